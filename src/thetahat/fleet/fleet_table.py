"""A judged fleet as data: one row per robot, period and parameter (Parquet), and all of it as JSON,
schema thetahat/fleet/1.
"""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import numpy as np

from thetahat import __version__
from thetahat.fleet.analysis import Inquiry
from thetahat.fleet.findings import Lived, Series
from thetahat.fleet.parameter_series import PAYLOAD, Parameter

SCHEMA = "thetahat/fleet/1"
# by the physically consistent fit: where the motion does not show it the robot file decides, so it
# has no std
MASS = "link mass"


def table(found: Inquiry) -> dict[str, list[Any]]:
    """Columns: robot, period, parameter, kind, unit, value, std, z_life, z_fleet, r2, rows."""
    out: dict[str, list[Any]] = {
        name: []
        for name in (
            "robot",
            "period",
            "parameter",
            "kind",
            "unit",
            "value",
            "std",
            "z_life",
            "z_fleet",
            "r2",
            "rows",
        )
    }
    for robot in found.lives:
        shared = {
            "robot": [robot.name] * len(robot.labels),
            "period": list(robot.labels),
            "r2": [each.r2 for each in robot.periods],
            "rows": [each.rows for each in robot.periods],
        }
        for parameter in parameters(found, robot):
            own = {name: [parameter[name]] * len(robot.labels) for name in ("kind", "unit")}
            own |= {"parameter": [parameter["name"]] * len(robot.labels)} | {
                name: parameter[name] for name in ("value", "std", "z_life", "z_fleet")
            }
            for name, column in {**shared, **own}.items():
                out[name] += column
    return out


def parquet(found: Inquiry) -> bytes:
    """The table as a Parquet file."""
    import polars

    kinds = {"rows": polars.Int64} | dict.fromkeys(
        ("value", "std", "z_life", "z_fleet", "r2"), polars.Float64
    )
    text = dict.fromkeys(("robot", "period", "parameter", "kind", "unit"), polars.String)
    columns = table(found)
    buffer = io.BytesIO()
    polars.DataFrame(
        columns, schema={name: {**kinds, **text}[name] for name in columns}
    ).write_parquet(buffer)
    return buffer.getvalue()


def parameters(found: Inquiry, robot: Lived) -> list[dict[str, Any]]:
    """Every parameter of a robot over its periods; None where nothing is known."""
    comparisons = found.judged.comparisons.get(robot.kind, (None,) * len(robot.space.parameters))
    place = [each.name for each in found.lives if each.kind == robot.kind].index(robot.name)
    out = []
    for parameter, series, comparison in zip(
        robot.space.parameters, found.judged.series[robot.name], comparisons, strict=True
    ):
        shown, fleet = (
            series.values - origin(parameter, series),
            np.full(len(series.values), np.nan),
        )
        if comparison is not None:
            fleet = comparison.off(place, series.values, series.variances + _scatter(series))
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
    nothing: list[None] = [None] * len(robot.labels)
    for k, body in enumerate(robot.space.robot.body_names):
        masses = _plain(np.array([each.masses[k] for each in robot.periods]))
        own = {"name": f"mass_{body}", "kind": MASS, "where": body, "unit": "kg"}
        out.append({**own, "value": masses, "std": nothing, "z_life": nothing, "z_fleet": nothing})
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
    if series.change is not None and series.found:
        return series.change.before
    return float(np.average(series.values[good], weights=1.0 / series.variances[good]))


def earlier(series: Series) -> np.ndarray:
    """How many standard deviations every period is off what the robot's earlier ones say; NaN for
    the first.
    """
    y, V = series.values, series.variances + _scatter(series)
    w = np.where(np.isfinite(y), 1.0 / V, 0.0)
    before = np.concatenate([[0.0], np.cumsum(w)[:-1]])
    mean = np.concatenate([[0.0], np.cumsum(w * np.nan_to_num(y))[:-1]]) / np.where(
        before > 0.0, before, np.nan
    )
    return (y - mean) / np.sqrt(V + 1.0 / np.where(before > 0.0, before, np.nan))


def _scatter(series: Series) -> float:
    return series.change.scatter**2 if series.change is not None else 0.0


def _plain(values: np.ndarray) -> list[float | None]:
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in values]


# -- JSON ------------------------------------------------------------------------------------------


def as_data(found: Inquiry) -> dict[str, Any]:
    """Everything, as JSON holds it."""
    kinds = {
        kind: number
        for number, kind in enumerate(dict.fromkeys(robot.kind for robot in found.lives))
    }
    findings = found.judged.findings
    return {
        "schema": SCHEMA,
        "manifest": str(found.manifest.path),
        "level": found.judged.level,
        "by": found.asked.by,
        "hypotheses": found.judged.hypotheses,
        "summary": {
            "robots": len(found.lives),
            "periods": sum(len(robot.labels) for robot in found.lives),
            "samples": sum(each.rows for robot in found.lives for each in robot.periods),
            "findings": dict(Counter(each.kind for each in findings)),
            "left_out": len(found.failures),
        },
        "findings": [
            {
                "robot": each.robot,
                "kind": each.kind,
                "parameter": each.parameter,
                "term": each.term or None,
                "where": each.where or None,
                "period": each.period,
                "size": each.size,
                "std": each.std,
                "before": each.before,
                "unit": each.unit,
                "deviations": each.deviations,
                "chance": each.chance,
                "sentence": each.sentence,
            }
            for each in findings
        ],
        "robots": [_robot(found, robot, kinds) for robot in found.lives],
        "left_out": [
            {"name": each.name, "sentence": each.sentence, "exit_code": each.exit_code}
            for each in found.failures
        ],
        "provenance": {
            "version": __version__,
            "tuned": [list(found.reasons.get(kind, ())) for kind in kinds],
        },
    }


def _robot(found: Inquiry, robot: Lived, kinds: dict[str, int]) -> dict[str, Any]:
    recipe = found.recipes[robot.name]
    source = recipe.robot.source
    return {
        "id": robot.name,
        "robot_file": None if source is None else str(source),
        "kind": kinds[robot.kind],
        "settings": {
            "cutoff": recipe.settings.cutoff,
            "torque_cutoff": recipe.settings.torque_cutoff,
            "delay": recipe.settings.delay,
            "min_speed": list(recipe.settings.min_speed),
            "friction": list(recipe.fitted.drive.identified),
            "prior_weight": recipe.weight,
            "locked": list(recipe.locked),
        },
        "periods": [
            {
                "label": label,
                "r2": each.r2,
                "rows": each.rows,
                "rank": each.rank,
                "resolved": each.resolved,
            }
            for label, each in zip(robot.labels, robot.periods, strict=True)
        ],
        "parameters": parameters(found, robot),
    }
