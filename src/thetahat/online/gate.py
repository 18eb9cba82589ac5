"""The gate: whether a controller may use the identified model right now, and why.

The paper's rule (stacked R² ≥ 0.95 and a full buffer), and what makes it safe. Measured on a UR10,
a stacked R² alone accepts a last link of negative mass (0.991), a dead torque sensor (1.000) and a
standstill fit of rank 6 of 60 (1.000). So a gate opens only where all of these hold:

    stream      samples come, whole and in order; no channel stands still that should not
    full        the buffer is full (paper)
    fit         stacked R² of the fit ≥ threshold (paper)
    motion      every joint that is judged has moved lately: R² is defined
    rank        the motion shows enough directions; the others keep the nominal robot's values
    physical    some physical robot has the identified base parameters; the controller gets it, and
                it is judged below
    held out    per joint, R² ≥ threshold on samples that are in no fit; or the error is no more
                than the torque's own noise
    ahead       each update's samples were predicted by the model before it, stacked R² ≥ the
                closing threshold
    later       per joint, models of two seconds ago predict the newest samples to the same; where
                the buffer need not be full, this is what tells that the motion has shown itself
    channels    no torque runs against the nominal robot's, or is missing where that is large
    change      torques, inertia and masses within a factor of two of the nominal robot's, or
                expected (model_change.py); signals that agree with each other (signal_check.py)

An open gate closes below a lower threshold (hysteresis), and at once for anything wrong with the
stream or the model; closed, it stays closed for the dwell time at least. Hysteresis is for the
model in use: another takes its place only if it would open the gate itself. "Undefined" is an
answer: at standstill no gate opens, and an open one keeps its verdict for a stated time, then
closes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.errors import known
from thetahat.online.config import GateRules

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


@dataclass(frozen=True)
class Check:
    """One condition of the gate."""

    name: str
    passed: bool  # whether a closed gate may open
    keeps: bool  # whether an open gate may stay open
    sentence: str  # why not, or that it is


@dataclass(frozen=True, eq=False)
class GateState:
    """What the gate says, and what it says it from. Masked or None: undefined, or not known yet."""

    open: bool
    reason: str  # one sentence
    since: float | None = None  # [s] when it last opened or closed, on the stream's clock
    r2: float | None = None  # stacked, of the model a controller would get, on samples held out
    r2_per_joint: np.ma.MaskedArray | None = None  # (nv,) the same per joint
    # stacked, of the estimate on the samples it was fitted to (the paper's R²)
    r2_fit: float | None = None
    r2_ahead: float | None = None  # stacked, of every update's samples by the model before it
    rank: int | None = None  # directions that the data know better than to their own size
    structural_rank: int | None = None  # directions that any motion could show
    fill: int = 0  # samples in the buffer
    size: int = 0
    consistent: bool | None = None  # whether a physical robot has the identified base parameters
    checks: tuple[Check, ...] = ()
    relapses: int = 0  # closings in a row, each within a memory's length of opening

    def __bool__(self) -> bool:
        return self.open

    def __str__(self) -> str:
        return f"{'open' if self.open else 'closed'}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an update found out."""

    fill: int
    size: int
    r2_fit: float | None
    seen: float | None  # soft count of directions
    structural_rank: int
    physical: bool | None
    sentence: str  # of what is not physical
    held: Score | None
    ahead: tuple[float, float]  # e'e, u'u
    noise: np.ndarray  # (nv,) of the filtered torques
    moving: np.ndarray  # (nv,) bool: moved within the horizon
    still_for: float  # [s] since any joint moved
    judged: np.ndarray  # (nv,) bool: whose R² is required
    frozen: np.ndarray  # (nv,) bool: required, but has not moved enough, so its drive is nominal
    channels: tuple[str, ...]  # sentences of channels that cannot be believed
    names: tuple[str, ...]
    surprise: str = ""  # what of the model or the signals has to be expected by somebody
    # (nv,) mean squared error of the newest samples by models two seconds older; None: not asked
    later: np.ndarray | None = None

    @property
    def r2_ahead(self) -> float | None:
        """Stacked R² of every update's samples by the model before it."""
        return 1.0 - self.ahead[0] / self.ahead[1] if self.ahead[1] > 0.0 else None


@dataclass(frozen=True, eq=False)
class Score:
    """Sums over held-out samples of moving joints, (nv,) each."""

    e2: np.ndarray  # of the model's errors
    u2: np.ndarray  # of the torques
    rows: np.ndarray
    nominal2: np.ndarray  # of the nominal robot's torques
    cross: np.ndarray  # of both
    # σ of the errors as their median tells it: a few samples of another robot do not move it
    usual: np.ndarray | float = np.inf
    # of the model's errors on the newest samples, as if all were like these
    late2: np.ndarray | float = 0.0
    still2: np.ndarray | float = 0.0  # of what is left of still joints' torques beyond dry friction
    still_u2: np.ndarray | float = 0.0  # of still joints' torques
    still_rows: np.ndarray | int = 0

    @property
    def r2_per_joint(self) -> np.ma.MaskedArray:
        """1 − e'e/u'u, masked where undefined."""
        defined = (self.u2 > 0.0) & (self.rows > 0)
        return np.ma.masked_array(1.0 - self.e2 / np.where(defined, self.u2, 1.0), mask=~defined)

    @property
    def r2(self) -> float | None:
        """Of all joints."""
        total = float(np.sum(self.u2))
        return 1.0 - float(np.sum(self.e2)) / total if total > 0.0 else None


class Gate:
    """Opens and closes on evidence. Time is the stream's.

    threshold: R² at which it opens, stacked and per joint. memory: [s] that the buffer reaches
        back: a gate that closes sooner after it opened had no lasting reason to.
    """

    def __init__(
        self, rules: GateRules, threshold: float = 0.95, *, memory: float = 50.0 / 3.0
    ) -> None:
        self.memory, self._opened = memory, -np.inf
        self.rules, self.threshold, self.closing = rules, threshold, rules.closing(threshold)
        self.state = GateState(False, "no sample has come yet")
        self._not_before = -np.inf  # [s] when it may open again

    def close(self, t: float, reason: str, *, dwell: bool = True) -> None:
        """Close now, whatever the evidence."""
        relapses = self.state.relapses
        if self.state.open or self.state.since is None:
            if self.state.open and dwell:
                relapses = relapses + 1 if t - self._opened < self.memory else 0
            self.state = replace(self.state, open=False, reason=reason, since=t, relapses=relapses)
        else:
            self.state = replace(self.state, reason=reason)
        if dwell:
            self._not_before = max(self._not_before, t + self._wait(relapses))

    def _wait(self, relapses: int) -> float:
        """[s] that it stays closed at least: twice as long with every relapse after the first, up
        to the memory's length.
        """
        wait = self.rules.dwell * 2.0 ** min(max(relapses - 1, 0), 30)
        return max(self.rules.dwell, min(wait, self.memory))

    def clear(self, t: float, reason: str) -> None:
        """Close, and forget what was known."""
        self.close(t, reason)
        self.state = GateState(
            False,
            reason,
            self.state.since,
            structural_rank=self.state.structural_rank,
            size=self.state.size,
        )

    def reopen(self, t: float, reason: str, *, waited: bool = False) -> None:
        """Open again after an interruption that said nothing about the model. waited: whatever the
        dwell time, for the model proved itself meanwhile.
        """
        if (waited or t >= self._not_before) and not self.state.open:
            self.state = replace(self.state, open=True, reason=reason, since=t)

    def earned(self, evidence: Evidence) -> bool:
        """Whether the model scored would open the gate: hysteresis is for a model in use, and none
        takes its place for less.
        """
        held = evidence.held
        return held is not None and not evidence.surprise and _held_out(self, evidence, held).passed

    def judge(self, t: float, evidence: Evidence) -> None:
        """Open, close, or stay, on what an update found."""
        was_open, since = self.state.open, self.state.since
        checks = _checks(self, evidence)
        failing = [check for check in checks if not (check.keeps if was_open else check.passed)]
        self.state = self._known(evidence, checks)
        if was_open:
            if failing:
                self.close(t, failing[0].sentence)
        elif failing or t < self._not_before:
            waiting = (
                f"all conditions hold; closed for another {self._not_before - t:.2g} s at least"
                " since it closed last"
            )
            reason = (failing[0].sentence if failing else waiting) + self._history(t, since)
            self.state = replace(self.state, since=t if since is None else since, reason=reason)
        else:
            r2 = self.state.r2
            reason = (
                f"R² {_digits(r2)} on samples held out, {evidence.fill} samples in the buffer, a"
                " physical model"
                if r2 is not None
                else "all conditions hold"
            )
            if np.any(evidence.frozen):
                reason += f"; {_motion(self.rules, evidence).sentence}"
            self.state = replace(self.state, open=True, reason=reason, since=t)
            self._opened = t

    def _history(self, t: float, since: float | None) -> str:
        """What a closed gate's reason ends with, where it keeps closing, or stays closed for longer
        than its memory although it was open before.
        """
        if self.state.relapses > 1:
            return (
                f"; it closed {self.state.relapses} times in a row within {self.memory:.3g} s of"
                f" opening, so it waits {self._wait(self.state.relapses):.2g} s each time now"
            )
        if self._opened > -np.inf and since is not None and t - since > self.memory:
            return (
                f"; closed for {t - since:.3g} s, longer than the {self.memory:.3g} s that fill the"
                " memory"
            )
        return ""

    def _known(self, evidence: Evidence, checks: tuple[Check, ...]) -> GateState:
        """The state with what an update found, neither opened nor closed by it."""
        held = evidence.held
        return replace(
            self.state,
            r2=None if held is None else held.r2,
            r2_per_joint=None if held is None else held.r2_per_joint,
            r2_fit=evidence.r2_fit,
            r2_ahead=evidence.r2_ahead,
            rank=None if evidence.seen is None else int(evidence.seen + 0.5),
            structural_rank=evidence.structural_rank,
            fill=evidence.fill,
            size=evidence.size,
            consistent=evidence.physical,
            checks=checks,
        )


def _checks(gate: Gate, e: Evidence) -> tuple[Check, ...]:
    believed = e.channels[0] if e.channels else "the channels can be believed"
    kept = e.physical is not False or e.held is not None
    scores = (
        (Check("held out", False, True, "no model has been scored on samples held out yet"),)
        if e.held is None
        else (_held_out(gate, e, e.held), _channels(e, e.held))
    )
    return (
        Check("stream", not e.channels, not e.channels, believed),
        Check("full", e.fill >= e.size, True, f"{e.fill} of {e.size} samples are in the buffer"),
        _motion(gate.rules, e),
        _fit(gate, e.r2_fit),
        _rank(gate.rules, e),
        Check("physical", e.physical is True, kept, _physical(e)),
        *scores,
        _ahead(gate, e.r2_ahead),
        *(() if e.later is None or e.held is None else (_later(gate, e, e.later, e.held),)),
        _change(e),
    )


def _change(e: Evidence) -> Check:
    usual = "the model is within a factor of two of the nominal robot, or expected"
    return Check("change", not e.surprise, not e.surprise, e.surprise or usual)


def _ahead(gate: Gate, r2: float | None) -> Check:
    number = "undefined" if r2 is None else _digits(r2)
    sentence = f"R² of samples predicted ahead is {number}, to open it must reach {gate.closing:g}"
    return Check("ahead", r2 is not None and r2 >= gate.closing, True, sentence)


def _later(gate: Gate, e: Evidence, later: np.ndarray, held: Score) -> Check:
    """Whether models from before the newest samples predict them: else the motion still shows what
    it has not shown before, and the model would have to extrapolate.
    """
    size2 = held.u2 / np.maximum(held.rows, 1)
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


def _digits(r2: float) -> str:
    """R² as text; far below zero its digits say nothing."""
    return f"{r2:.4f}" if r2 >= -1.0 else "below −1"


def _fit(gate: Gate, r2: float | None) -> Check:
    if r2 is None or not np.isfinite(r2):
        why = "R² of the fit is undefined: there is no torque to explain"
        return Check("fit", False, False, why)
    sentence = (
        f"R² of the fit is {_digits(r2)}, to open it must reach {gate.threshold:g}, and closes"
        f" below {gate.closing:g}"
    )
    return Check("fit", r2 >= gate.threshold, r2 >= gate.closing, sentence)


def _physical(e: Evidence) -> str:
    if e.physical:
        return "a physical robot has the identified base parameters"
    if e.physical is None:
        return "no physical model has been computed yet"
    return f"no physical robot has the identified base parameters: {e.sentence}"


def _motion(rules: GateRules, e: Evidence) -> Check:
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


def _held_out(gate: Gate, e: Evidence, held: Score) -> Check:
    """Per joint: R² reaches the threshold, or what is left is the torque's noise (or too small to
    matter): a joint that carries next to nothing.
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
    enough = np.maximum((1.0 - gate.threshold) * held.u2, allowed)
    short = defined & (held.e2 > enough)
    worse = defined & (held.late2 > enough)  # what changed a moment ago is in few samples yet
    low = defined & (held.e2 > np.maximum((1.0 - gate.closing) * held.u2, 2.0 * allowed))
    if np.any(low) or np.any(short):
        v = int(np.flatnonzero(low if np.any(low) else short)[0])
        r2 = _digits(1.0 - held.e2[v] / held.u2[v])
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


def _channels(e: Evidence, held: Score) -> Check:
    """A sign that is turned, or a channel that is dead, can be fitted perfectly; the nominal robot
    need not be good to tell.
    """
    size = np.sqrt(held.u2 * held.nominal2)
    correlation = held.cross / np.where(size > 0.0, size, 1.0)
    louder = held.nominal2 > (10.0 * e.noise) ** 2 * held.rows
    carried = held.nominal2 > CARRIED**2 * held.u2  # rather than taken by friction
    against = e.judged & louder & carried & (correlation < AGAINST)
    silent = e.judged & louder & (held.u2 < TOO_LITTLE**2 * held.nominal2)
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
