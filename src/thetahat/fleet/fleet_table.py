"""A judged fleet as data: one row per robot, period and parameter (Parquet), and all of it as JSON,
schema thetahat/fleet/1.
"""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from thetahat import __version__
from thetahat.fleet.analysis import FleetAnalysis
from thetahat.fleet.findings import RobotHistory, Series
from thetahat.fleet.fleet_verdict import judge_fleet_answer, judge_robot
from thetahat.fleet.parameter_series import PAYLOAD, Parameter
from thetahat.identification.verdict_reason import Data
from thetahat.report.text import count

SCHEMA = "thetahat/fleet/1"
# by the physically consistent fit: where the motion does not show it the robot file decides, so it
# has no std
MASS = "link mass"
COLUMNS = {
    **dict.fromkeys(("robot", "period", "parameter", "kind", "unit"), "s"),
    **dict.fromkeys(("value", "std", "z_life", "z_fleet", "r2"), "f"),
    "rows": "i",
}


def table(analysis: FleetAnalysis) -> dict[str, list[Any]]:
    """Columns: robot, period, parameter, kind, unit, value, std, z_life, z_fleet, r2, rows."""
    out: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for robot in analysis.robots:
        periods: dict[str, list[Any]] = {
            "period": list(robot.labels),
            "r2": [each.r2 for each in robot.periods],
            "rows": [each.rows for each in robot.periods],
        }
        for parameter in parameters(analysis, robot):
            fixed = {"robot": robot.name, "parameter": parameter["name"]} | {
                name: parameter[name] for name in ("kind", "unit")
            }
            columns: dict[str, list[Any]] = dict(periods)
            columns |= {name: [value] * len(robot.labels) for name, value in fixed.items()}
            columns |= {name: parameter[name] for name in ("value", "std", "z_life", "z_fleet")}
            for name, column in columns.items():
                out[name] += column
    return out


def parquet(analysis: FleetAnalysis) -> bytes:
    """The table as a Parquet file."""
    import polars

    types = {"s": polars.String, "f": polars.Float64, "i": polars.Int64}
    buffer = io.BytesIO()
    schema = {name: types[kind] for name, kind in COLUMNS.items()}
    polars.DataFrame(table(analysis), schema=schema).write_parquet(buffer)
    return buffer.getvalue()


def parameters(analysis: FleetAnalysis, robot: RobotHistory) -> list[dict[str, Any]]:
    """Every parameter of a robot over its periods; None where nothing is known."""
    comparisons = analysis.findings.comparisons.get(
        robot.kind, (None,) * len(robot.space.parameters)
    )
    place = [each.name for each in analysis.robots if each.kind == robot.kind].index(robot.name)
    out: list[dict[str, Any]] = []
    for parameter, series, comparison in zip(
        robot.space.parameters, analysis.findings.series[robot.name], comparisons, strict=True
    ):
        shown = series.values - origin(parameter, series)
        fleet = np.full(len(series.values), np.nan)
        if comparison is not None:
            fleet = comparison.off(place, series.values, series.variances + series.scatter)
        out.append(
            {
                "name": parameter.name,
                "kind": parameter.term or parameter.kind,
                "where": parameter.where or None,
                "unit": parameter.unit,
                "value": _plain(shown),
                "std": _plain(np.sqrt(series.variances)),
                "z_life": _plain(earlier(series)),
                "z_fleet": _plain(fleet),
            }
        )
    nothing: list[float | None] = [None] * len(robot.labels)
    for k, body in enumerate(robot.space.robot.body_names):
        masses = _plain(np.array([each.masses[k] for each in robot.periods]))
        unknown = dict.fromkeys(("std", "z_life", "z_fleet"), nothing)
        own = {"name": f"mass_{body}", "kind": MASS, "where": body, "unit": "kg"}
        out.append({**own, "value": masses, **unknown})
    return out


def origin(parameter: Parameter, series: Series) -> float:
    """What counts as zero: a payload is what a link carries more than before the robot's first
    change, or than over its whole life without one.
    """
    if parameter.kind != PAYLOAD:
        return 0.0
    good = np.flatnonzero(np.isfinite(series.values))
    if not len(good):
        return 0.0
    if series.change is not None and series.significant:
        return series.change.before
    return float(np.average(series.values[good], weights=1.0 / series.variances[good]))


def earlier(series: Series) -> np.ndarray:
    """How many standard deviations every period is off what the robot's earlier ones say; NaN for
    the first.
    """
    y, V = series.values, series.variances + series.scatter
    w = np.where(np.isfinite(y), 1.0 / V, 0.0)
    before = np.concatenate([[0.0], np.cumsum(w)[:-1]])
    mean = np.concatenate([[0.0], np.cumsum(w * np.nan_to_num(y))[:-1]]) / np.where(
        before > 0.0, before, np.nan
    )
    return (y - mean) / np.sqrt(V + 1.0 / np.where(before > 0.0, before, np.nan))


def _plain(values: np.ndarray) -> list[float | None]:
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in values]


# -- JSON ------------------------------------------------------------------------------------------


def as_data(analysis: FleetAnalysis) -> dict[str, Any]:
    """Everything, as JSON holds it."""
    kinds: dict[str, int] = {}
    for robot in analysis.robots:
        kinds.setdefault(robot.kind, len(kinds))
    findings = analysis.findings.findings
    answer = {
        "schema": SCHEMA,
        "manifest": str(analysis.manifest.path),
        "level": analysis.findings.level,
        "by": analysis.options.by,
        "hypotheses": analysis.findings.hypotheses,
        "summary": {
            "robots": len(analysis.robots),
            "periods": sum(len(robot.labels) for robot in analysis.robots),
            "samples": sum(each.rows for robot in analysis.robots for each in robot.periods),
            "findings": dict(Counter(each.kind for each in findings)),
            "left_out": len(analysis.failures),
        },
        "findings": [
            asdict(each) | {"term": each.term or None, "where": each.where or None}
            for each in findings
        ],
        "robots": [_robot(analysis, robot, kinds) for robot in analysis.robots],
        "left_out": [asdict(each) for each in analysis.failures],
        "provenance": {
            "version": __version__,
            "tuned": [list(analysis.reasons.get(kind, ())) for kind in kinds],
        },
    }
    return answer | {"verdict": judge_fleet_answer(answer, headline(answer)).as_data()}


def headline(data: Data) -> str:
    """Return what was analysed and how much was found, in one line."""
    summary, number = data["summary"], len(data["findings"])
    said = count(number, "finding") if number else "no changes and no outliers"
    return (
        f"{count(summary['robots'], 'robot')}, {count(summary['periods'], 'period')},"
        f" {summary['samples']:,} samples: {said} (level {data['level']:g})"
    )


def _robot(analysis: FleetAnalysis, robot: RobotHistory, kinds: dict[str, int]) -> dict[str, Any]:
    recipe = analysis.recipes[robot.name]
    source = recipe.robot.source
    answer = {
        "id": robot.name,
        "robot_file": None if source is None else str(source),
        "kind": kinds[robot.kind],
        "settings": recipe.as_data(),
        "periods": [
            {
                "label": label,
                **{name: getattr(each, name) for name in ("r2", "rows", "rank", "resolved")},
            }
            for label, each in zip(robot.labels, robot.periods, strict=True)
        ],
        "parameters": parameters(analysis, robot),
    }
    return answer | {"verdict": judge_robot(answer).as_data()}
