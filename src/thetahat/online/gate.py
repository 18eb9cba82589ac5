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

from thetahat.online.config import GateRules
from thetahat.online.gate_checks import all_checks, motion_check
from thetahat.online.gate_evidence import Check, Evidence, Thresholds, digits
from thetahat.online.held_out_check import held_out_check


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
        self._thresholds = Thresholds(rules, threshold, self.closing)
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
        if held is None or evidence.surprise:
            return False
        return held_out_check(self._thresholds, evidence, held).passed

    def judge(self, t: float, evidence: Evidence) -> None:
        """Open, close, or stay, on what an update found."""
        was_open, since = self.state.open, self.state.since
        checks = all_checks(self._thresholds, evidence)
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
                f"R² {digits(r2)} on samples held out, {evidence.fill} samples in the buffer, a"
                " physical model"
                if r2 is not None
                else "all conditions hold"
            )
            if np.any(evidence.frozen):
                reason += f"; {motion_check(self.rules, evidence).sentence}"
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
