"""The gate's checks of samples that are in no fit."""

from __future__ import annotations

import numpy as np

from thetahat.online.gate_evidence import Check, Evidence, Score, Thresholds, digits

# correlation of measured and nominal torque, below which the channel's sign is in doubt
AGAINST = -0.5
CARRIED = 0.5  # of a joint's RMS torque: what bodies must take of it for its sign to be judged
# of a joint's RMS torque, that its noise may excuse at most: a model worse than none (R² < 0)
# explains nothing
NOISY = 1.0
# of the strongest joint's RMS torque: static friction that may hold a joint which has not moved yet
HELD_BACK = 0.05
UNFELT = 1e-3  # of the same: what a still joint's torque may be off, whatever it carries
TOO_LITTLE = 0.1  # of the nominal torque: a channel that shows less is taken for dead


def later_check(gate: Thresholds, e: Evidence, later: np.ndarray, held: Score) -> Check:
    """Whether models from before the newest samples predict them: else the motion still shows what
    it has not shown before, and the model would have to extrapolate.
    """
    size2 = held.to_explain / np.maximum(held.rows, 1)
    floor = np.maximum(gate.rules.noise * e.noise, np.asarray(gate.rules.floor, dtype=float))
    allowed = np.maximum((1.0 - gate.closing) * size2, floor**2)
    with np.errstate(invalid="ignore"):
        new = e.judged & ~(later <= allowed) & ~np.isnan(later)
    if np.all(np.isnan(later)):
        return Check("later", False, True, "no model is two seconds old yet")
    if np.any(new):
        return Check(
            "later",
            False,
            True,
            f"joint {_first(e, new)!r} moves in ways that the models of two seconds ago did not"
            " predict",
        )
    return Check("later", True, True, "models of two seconds ago predict the newest samples")


def held_out_check(gate: Thresholds, e: Evidence, held: Score) -> Check:
    """Per joint: R² reaches the threshold, or what is left is the torque's noise (or too small to
    matter): a joint that carries next to nothing. Of a light joint what the nominal robot leaves is
    explained to the threshold, at least: that is what a controller would have instead.
    """
    if not np.all(np.isfinite(held.e2) & np.isfinite(held.u2)):
        return _failed("the model predicts torques that are not finite")
    if not np.all(np.isfinite(e.noise)):
        return _failed("the noise of the torques is not finite, so no error can be told from it")
    rules, floor = gate.rules, np.asarray(gate.rules.floor, dtype=float)
    size = np.sqrt(held.u2 / np.maximum(held.rows, 1))
    allowed = np.maximum(np.minimum(rules.noise * e.noise, NOISY * size), floor) ** 2 * held.rows
    undefined = e.judged & ((held.rows == 0) | (held.u2 <= 0.0))
    defined = e.judged & ~undefined
    of = held.to_explain
    enough = np.maximum((1.0 - gate.threshold) * of, allowed)
    short = defined & (held.e2 > enough)
    worse = defined & (held.late2 > enough)  # what changed a moment ago is in few samples yet
    low = defined & (held.e2 > np.maximum((1.0 - gate.closing) * of, 2.0 * allowed))
    if np.any(low) or np.any(short):
        v = int(np.flatnonzero(low if np.any(low) else short)[0])
        r2 = digits(1.0 - held.e2[v] / held.u2[v])
        return _failed(
            f"R² of joint {e.names[v]!r} on samples held out is {r2}, to open it must reach"
            f" {gate.threshold:g}",
            keeps=not np.any(low),
        )
    if np.any(worse):
        return _failed(
            f"the newest samples of joint {_first(e, worse)!r} are explained worse than the"
            f" threshold {gate.threshold:g} asks for",
            keeps=True,
        )
    still = np.maximum(rules.noise * e.noise, floor) ** 2 * held.still_rows
    strongest = float(
        np.max((held.u2 + held.still_u2) / np.maximum(held.rows + held.still_rows, 1))
    )
    unfelt = UNFELT**2 * strongest * held.still_rows
    allowed = np.maximum(np.maximum((1.0 - gate.closing) * held.still_u2, 2.0 * still), unfelt)
    # whose friction is not known yet may be held by more of it than the nominal robot's
    held_back = np.maximum(allowed, HELD_BACK**2 * strongest * held.still_rows)
    unrest = (e.judged & (held.still2 > allowed)) | (e.frozen & (held.still2 > held_back))
    if np.any(unrest):
        return _failed(
            f"joint {_first(e, unrest)!r} seems to stand still, but its torque is not what carries"
            " it, nor friction; check its encoder"
        )
    if np.any(undefined):
        return _failed(
            f"R² of joint {_first(e, undefined)!r} on samples held out is undefined", keeps=True
        )
    return Check("held out", True, True, "every joint is explained on samples held out")


def _failed(sentence: str, *, keeps: bool = False) -> Check:
    """A failed check of held-out samples; keeps: whether an open gate may stay open."""
    return Check("held out", False, keeps, sentence)


def _first(e: Evidence, joints: np.ndarray) -> str:
    return e.names[int(np.argmax(joints))]


def sign_check(e: Evidence, held: Score) -> Check:
    """A sign that is turned, or a channel that is dead, can be fitted perfectly; the nominal robot
    need not be good to tell.
    """
    size = np.sqrt(held.u2 * held.nominal2)
    correlation = held.cross / np.where(size > 0.0, size, 1.0)
    louder = held.nominal2 > (10.0 * e.noise) ** 2 * held.rows
    carried = held.nominal2 > CARRIED**2 * held.u2  # rather than taken by friction
    judged = e.judged & ~np.asarray(held.cancelling)
    against = judged & louder & carried & (correlation < AGAINST)
    silent = judged & louder & (held.u2 < TOO_LITTLE**2 * held.nominal2)
    if np.any(against):
        v = int(np.argmax(against))
        why = (
            f"the torque of joint {e.names[v]!r} runs against the nominal robot's (correlation"
            f" {correlation[v]:.2f}); check its sign"
        )
        return Check("channels", False, False, why)
    if np.any(silent):
        v = int(np.argmax(silent))
        ratio = np.sqrt(held.u2[v] / held.nominal2[v])
        why = (
            f"the torque of joint {e.names[v]!r} is {ratio:.1%} of the nominal robot's; check its"
            " sensor"
        )
        return Check("channels", False, False, why)
    return Check("channels", True, True, "no torque runs against the nominal robot's")
