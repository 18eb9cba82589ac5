"""Ranges of a robot's parameters at a stated level, and their correlations: ranges.json."""

from __future__ import annotations

import numpy as np

from thetahat import __version__
from thetahat.export.robot_draws import RobotDraws
from thetahat.identification.estimate_json import number
from thetahat.identification.verdict_reason import Fields

SCHEMA = "thetahat/ranges/1"
DIGITS = 4  # of a correlation


def describe_ranges(draws: RobotDraws, *, level: float, seed: int) -> Fields:
    """Return ranges.json: each parameter's range at this level, and all correlations."""
    values, estimates, spreads = draws.values(), draws.estimates(), draws.spreads()
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(values, [tail, 100.0 - tail], axis=0)
    std, middle = np.std(values, axis=0), np.mean(estimates, axis=0)
    own = np.sqrt(np.mean(spreads**2, axis=0))
    between = between_units(estimates, spreads)
    rows = []
    for k, (name, of, unit) in enumerate(draws.parameters):
        positive = middle[k] > 0.0 and low[k] >= 0.0
        scale = [low[k] / middle[k], high[k] / middle[k]] if positive else None
        rows.append(
            {
                "name": name,
                "of": of,
                "unit": unit,
                "value": number(middle[k]),
                "std": number(std[k]),
                "low": number(low[k]),
                "high": number(high[k]),
                "scale": None if scale is None else [number(each) for each in scale],
                "std_own": number(own[k]),
                "std_between": None if between is None else number(between[k]),
            }
        )
    return {
        "schema": SCHEMA,
        "robot": draws.robot.name,
        "level": level,
        "seed": seed,
        "count": draws.count,
        "draws": len(values),
        "units": [str(unit.model.file) for unit in draws.units],
        "physical_share": [number(unit.physical_share) for unit in draws.units],
        "parameters": rows,
        "correlations": correlations(values, std),
        "version": __version__,
    }


def between_units(estimates: np.ndarray, spreads: np.ndarray) -> np.ndarray | None:
    """Return how much units differ, (parameters,): the standard deviation of their estimates beyond
    what their own uncertainty makes; None of a single unit.

        σ² = max(0, s² − mean own variance),   s² the variance of the estimates
    """
    if len(estimates) < 2:
        return None
    excess = np.var(estimates, axis=0, ddof=1) - np.mean(spreads**2, axis=0)
    between: np.ndarray = np.sqrt(np.maximum(excess, 0.0))
    return between


def correlations(values: np.ndarray, std: np.ndarray) -> list[list[float | None]]:
    """Return the rows of the lower triangle; None where a parameter is constant."""
    spread = std > 1e-12 * np.maximum(np.abs(values).max(axis=0, initial=0.0), 1e-300)
    scaled = (values - values.mean(axis=0)) / np.where(spread, std, 1.0)
    matrix = scaled.T @ scaled / len(values)
    rows: list[list[float | None]] = []
    for k in range(len(matrix)):
        both = spread[: k + 1] & spread[k]
        row = np.round(np.clip(matrix[k, : k + 1], -1.0, 1.0), DIGITS) + 0.0
        rows.append([float(r) if ok else None for r, ok in zip(row, both, strict=True)])
    return rows
