"""The gate's checks of an update: of the stream, the fit, the motion, the model."""

from __future__ import annotations

import numpy as np

from thetahat.errors import known
from thetahat.online.config import GateRules
from thetahat.online.gate_evidence import Check, Evidence, Thresholds, digits
from thetahat.online.held_out_check import held_out_check, later_check, sign_check


def all_checks(gate: Thresholds, e: Evidence) -> tuple[Check, ...]:
    """Every condition of the gate, in the order in which they are named."""
    believed = e.channels[0] if e.channels else "the channels can be believed"
    kept = e.physical is not False or e.held is not None
    scores = (
        (Check("held out", False, True, "no model has been scored on samples held out yet"),)
        if e.held is None
        else (held_out_check(gate, e, e.held), sign_check(e, e.held))
    )
    return (
        Check("stream", not e.channels, not e.channels, believed),
        Check("full", e.fill >= e.size, True, f"{e.fill} of {e.size} samples are in the buffer"),
        motion_check(gate.rules, e),
        _fit(gate, e.r2_fit),
        _rank(gate.rules, e),
        Check("physical", e.physical is True, kept, _physical(e)),
        *scores,
        _ahead(gate, e.r2_ahead),
        *(() if e.later is None or e.held is None else (later_check(gate, e, e.later, e.held),)),
        _change(e),
    )


def _change(e: Evidence) -> Check:
    usual = "the model is within a factor of two of the nominal robot, or expected"
    return Check("change", not e.surprise, not e.surprise, e.surprise or usual)


def _ahead(gate: Thresholds, r2: float | None) -> Check:
    number = "undefined" if r2 is None else digits(r2)
    sentence = f"R² of samples predicted ahead is {number}, to open it must reach {gate.closing:g}"
    return Check("ahead", r2 is not None and r2 >= gate.closing, True, sentence)


def _fit(gate: Thresholds, r2: float | None) -> Check:
    if r2 is None or not np.isfinite(r2):
        why = "R² of the fit is undefined: there is no torque to explain"
        return Check("fit", False, False, why)
    sentence = (
        f"R² of the fit is {digits(r2)}, to open it must reach {gate.threshold:g}, and closes"
        f" below {gate.closing:g}"
    )
    return Check("fit", r2 >= gate.threshold, r2 >= gate.closing, sentence)


def _physical(e: Evidence) -> str:
    if e.physical:
        return "a physical robot has the identified base parameters"
    if e.physical is None:
        return "no physical model has been computed yet"
    return f"no physical robot has the identified base parameters: {e.sentence}"


def motion_check(rules: GateRules, e: Evidence) -> Check:
    """Whether every judged joint has moved, and enough."""
    still, frozen = np.flatnonzero(e.judged & ~e.moving), np.flatnonzero(e.frozen)
    if e.still_for > rules.hold:
        since = f"for {e.still_for:.3g} s" if np.isfinite(e.still_for) else "yet"
        why = f"nothing has moved {since}: R² is undefined, so the nominal model is used"
        return Check("motion", False, False, why)
    if len(still):
        name = e.names[still[0]]
        why = (
            f"joint {name!r} has not moved lately, so its R² is undefined; move it, or leave it out"
            " of `joints`"
        )
        return Check("motion", False, True, why)
    if len(frozen) and len(frozen) >= np.count_nonzero(e.judged):
        why = (
            f"{len(frozen)} joints have not moved enough, both ways, for friction and inertia to be"
            f" told ({_names(e, frozen)}); move them, or leave them out of `joints`"
        )
        return Check("motion", False, True, why)
    if len(frozen):
        why = (
            f"{_names(e, frozen)} has not moved enough, both ways, for friction and inertia to be"
            " told, so it keeps its nominal values"
        )
        return Check("motion", True, True, why)
    return Check("motion", True, True, "every joint has moved")


def _names(e: Evidence, joints: np.ndarray) -> str:
    return known([e.names[v] for v in joints], 3)


def _rank(rules: GateRules, e: Evidence) -> Check:
    if e.seen is None:
        return Check("rank", False, True, "the rank of the data is not known yet")
    needed = rules.rank * e.structural_rank
    sentence = (
        f"the motion shows {int(e.seen + 0.5)} of {e.structural_rank} directions, to open"
        f" {int(np.ceil(needed))} are needed; excite more joints"
    )
    return Check("rank", int(e.seen + 0.5) >= needed, True, sentence)
