"""Words and looks that the sections of a report share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thetahat.identification.identifiability.naming import short_labels
from thetahat.report.traces import JointTraces, Traces

GOOD, FAIR = 0.95, 0.8  # R² of a joint: good from here on, bad below
WORSE = 1.05  # RMS held out, of the nominal robot's: less is chance
GRAVE = (
    "gravity-direction",
    "sign",
    "dead-torque",
    "saturated",
    "stuck",
)  # findings that change the answer


def asked(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The joints whose torques were fitted."""
    return [joint for joint in found["joints"] if joint["rows_train"]]


def drawn(found: dict[str, Any], traces: Traces) -> list[tuple[dict[str, Any], JointTraces]]:
    """Fitted joints of which there is something to draw, with what was collected of them."""
    known = {joint.name: joint for joint in traces.joints if joint.measured}
    return [(joint, known[joint["name"]]) for joint in asked(found) if joint["name"] in known]


def score(joint: dict[str, Any], traced: JointTraces | None = None) -> float | None:
    """R² held out, else of the fit."""
    for value in (joint["r2_test"], joint["r2_train"]):
        if value is not None:
            return value
    return (
        None
        if traced is None
        else next((each.r2 for each in reversed(traced.summary.values())), None)
    )


def worst(joints: Sequence[dict[str, Any]]) -> int:
    """Position of the joint with the least R²; the first where there are none."""
    scores = [score(joint) for joint in joints]
    known = [k for k, value in enumerate(scores) if value is not None]
    return min(known, key=lambda k: scores[k]) if known else 0


def labels(names: Sequence[str]) -> list[str]:
    """Names without the words they all begin with, where what is left is more than a number."""
    found = list(short_labels(names))
    return list(names) if any(name.isdigit() for name in found) else found


def r2(value: float | None) -> str:
    """R² as text: never rounded up to one."""
    if value is None:
        return "–"
    text = f"{value:.4f}" if value > -10.0 else f"{value:.3g}"
    return ("> 0.9999" if value < 1.0 and text == "1.0000" else text).replace("-", "−")


def short(value: float | None) -> str:
    """Three significant digits."""
    if value is None:
        return "–"
    return (f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value + 0.0:.3g}").replace("-", "−")


def with_spread(value: float | None, std: float | None) -> str | None:
    """value ± one standard deviation."""
    if value is None:
        return None
    if std is None:
        return f"{short(value)} (with others)"
    if not 1e-4 <= std < 1e6:
        return f"{short(value)} ± {float(f'{std:.2g}'):g}".replace("-", "−")
    decimals = max(
        0, 1 - math.floor(math.log10(std))
    )  # the spread has two digits, and the value ends where they do
    return f"{round(value, decimals) + 0.0:.{decimals}f} ± {std:.{decimals}f}".replace("-", "−")


def lengths(values: Sequence[float | None] | None) -> str | None:
    """Coordinates [m] to a tenth of a millimetre."""
    if values is None or any(value is None for value in values):
        return None
    return " · ".join(f"{round(value, 4) + 0.0:.4f}".replace("-", "−") for value in values)


def sizes(values: Sequence[float | None] | None) -> str | None:
    """Numbers of one kind; one that is nothing beside the largest says so."""
    if values is None or any(value is None for value in values):
        return None
    floor = 1e-4 * max(map(abs, values))
    return " · ".join("≈ 0" if abs(value) < floor else short(value) for value in values)
