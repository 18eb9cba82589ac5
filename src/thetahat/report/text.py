"""Numbers and sentences that the sections of a report and the terminal share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from thetahat.identification.identifiability.naming import short_labels
from thetahat.report.section import Cell, Column
from thetahat.report.traces import JointTraces, Traces

GOOD, FAIR = 0.95, 0.8  # R² of a joint: good from here on, bad below
WORSE = 1.05  # RMS held out, relative to the nominal robot's: less is chance
UNKNOWN = "–"

Data = Mapping[str, Any]  # an answer as plain data, such as schema thetahat/estimate/1
TracedJoint = tuple[Data, JointTraces]


# -- joints ----------------------------------------------------------------------------------------


def fitted_joints(estimate: Data) -> list[Data]:
    """Return the joints whose torques were fitted."""
    return [joint for joint in estimate["joints"] if joint["rows_train"]]


def traced_joints(estimate: Data, traces: Traces) -> list[TracedJoint]:
    """Return the fitted joints that have traces, with their traces."""
    traced = {joint.name: joint for joint in traces.joints if joint.lines.measured}
    joints = fitted_joints(estimate)
    return [(joint, traced[joint["name"]]) for joint in joints if joint["name"] in traced]


def score(joint: Data, traced: JointTraces | None = None) -> float | None:
    """Return R² held out, else of the fit."""
    values: list[float | None] = [joint["r2_test"], joint["r2_train"]]
    if traced is not None:
        values += [each.r2 for each in reversed(list(traced.residuals.summary.values()))][:1]
    return next((value for value in values if value is not None), None)


def rows_of(joint: Data) -> str:
    """Say which rows `score` is of."""
    return "fit" if joint["r2_test"] is None else "held out"


def worst(joints: Sequence[Data]) -> int:
    """Return the position of the joint with the lowest R²; the first where there are no scores."""
    scores = {k: value for k, joint in enumerate(joints) if (value := score(joint)) is not None}
    return min(scores, key=lambda k: scores[k], default=0)


def labels(names: Sequence[str]) -> list[str]:
    """Return names without their common beginning, where what is left is more than a number."""
    labels = list(short_labels(names))
    return list(names) if any(label.isdigit() for label in labels) else labels


# -- numbers ---------------------------------------------------------------------------------------


def format_cell(cell: Cell, column: Column | None = None) -> str:
    """Format a cell: a dash where nothing is known, three digits unless the column says more."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return UNKNOWN
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}".replace("-", "−")
    if isinstance(cell, str):
        return cell
    decimals = None if column is None else column.decimals
    if decimals is not None and -10.0 < cell < 1e6:
        text = f"{round(cell, decimals) + 0.0:.{decimals}f}"
        if cell < 1.0 and float(text) == 1.0:  # R² is not rounded up to one
            text = f"> {1.0 - 10.0**-decimals:.{decimals}f}"
    elif 1e3 <= abs(cell) < 1e6:
        text = f"{cell:.0f}"
    else:
        text = f"{cell + 0.0:.3g}"
    return text.replace("-", "−")


R2 = Column("R²", decimals=4)


def r2(value: float | None) -> str:
    """Format R²: four decimals, never rounded up to one."""
    return format_cell(value, R2)


def short(value: float | None) -> str:
    """Format with three significant digits."""
    return format_cell(value)


def with_spread(value: float | None, std: float | None) -> str | None:
    """Format value ± one standard deviation."""
    if value is None:
        return None
    if std is None:
        return f"{short(value)} (in sum)"
    if not 1e-4 <= std < 1e6:
        return f"{short(value)} ± {float(f'{std:.2g}'):g}".replace("-", "−")
    # The standard deviation has two digits, and the value ends where they do.
    decimals = max(0, 1 - math.floor(math.log10(std)))
    return f"{round(value, decimals) + 0.0:.{decimals}f} ± {std:.{decimals}f}".replace("-", "−")


def _known(values: Sequence[float | None] | None) -> list[float] | None:
    """Return the values, None where any is unknown."""
    known = [value for value in values or () if value is not None]
    return known if values and len(known) == len(values) else None


def lengths(values: Sequence[float | None] | None) -> str | None:
    """Format coordinates [m] to a tenth of a millimetre."""
    known = _known(values)
    if known is None:
        return None
    return " · ".join(f"{round(value, 4) + 0.0:.4f}".replace("-", "−") for value in known)


def magnitudes(values: Sequence[float | None] | None) -> str | None:
    """Format numbers of one kind; one that is negligible beside the largest is ≈ 0."""
    known = _known(values)
    if known is None:
        return None
    floor = 1e-4 * max(map(abs, known))
    return " · ".join("≈ 0" if abs(value) < floor else short(value) for value in known)


# -- sentences -------------------------------------------------------------------------------------


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def low_pass(reason: str) -> str:
    """Return how the low-pass was chosen."""
    if reason.startswith("cut-off"):
        return f"Low-pass {reason}."
    return f"Low-pass: {'as given' if reason == 'given' else reason}."


def friction_sentences(estimate: Data) -> list[str]:
    """Return the Coulomb transition, and friction beyond the four terms, a sentence each."""
    friction = estimate.get("friction")
    if friction is None:
        return []

    def listed(values: Sequence[float | None], digits: int) -> str:
        pairs = zip(friction["motors"], values, strict=True)
        return ", ".join(f"{name} {value:.{digits}g}" for name, value in pairs if value)

    lines = []
    if friction["zone"] is not None:
        width, travel = listed(friction["zone"], 2), listed(friction["travel"], 2)
        if width:
            lines.append(f"Coulomb transition width [rad/s or m/s]: {width}.")
        if travel:
            lines.append(f"Coulomb hysteresis width [rad or m]: {travel}.")
        if not width and not travel:
            lines.append("Coulomb friction changes sign abruptly.")
    for term, stated in friction["terms"].items():
        name = term.replace("_", "-").capitalize()
        values = listed(stated["values"], 3) or "none"
        lines.append(f"{name} friction [{stated['unit']}]: {values}.")
    return lines
