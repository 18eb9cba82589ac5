"""What an alarm turns out to be: a collision that is over, a payload, a sensor, or drift.

An alarm closes the gate at once, but one moment is no proof that the robot changed. For `CONFIRM`
seconds the model that was in use goes on predicting: if it explains the torques again, something
pushed the robot (a collision), nothing is forgotten and the model is used again; if it alarms
again, the change is confirmed, and what was learned before it is forgotten. A residual that crept
over the limit is drift; one that a body on the payload link explains, a payload; one of a single
joint that no body explains, that joint's sensor or drive.

Drift so slow that the identifier follows it raises no alarm. It shows in the models: where the one
in use differs from the one of some time ago by a fifth of a joint's torque, on the same samples,
and that is an offset, friction or a scale, it is named (`ModelDrift`); the gate stays open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.data.samples import Samples
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.payload_detector import PayloadDetector
from thetahat.online.predict import Model
from thetahat.online.residual_monitor import Alarm, ResidualMonitor

CONFIRM = 0.3  # [s] after an alarm, from which another one confirms it
# [s] the same, of a light payload that residuals tell of together: a push must have faded from them
CONFIRM_LIGHT = 0.7
OVER = 0.5  # [s] without an alarm, after which it was a collision
OVER_LIGHT = 1.0  # [s] the same, of a light payload: in some postures a joint or two tell of it
SLOW = 1.5  # times the drift that may last for ever: a residual below it crept there
DRIFTED = 0.2  # of a joint's torque by which a model may differ from the one of some time ago
WEAK = 0.05  # of the strongest joint's torque: a weaker joint counts as if it had that
UNLIKE = 0.5  # of a difference that an offset, friction and a scale may leave: else it is no drift
LEAST_ROWS = 60
FASTER = 1.1  # times the fastest speed remembered: beyond it a model is extrapolated


@dataclass(frozen=True)
class Finding:
    """What became of a suspicion."""

    kind: str  # "collision", "drift" or "change"
    sentence: str
    joint: str

    @property
    def over(self) -> bool:
        """Whether the model that was in use explains the torques again."""
        return self.kind == "collision"


class Suspicion:
    """An alarm that has to prove itself. The monitor is that of the model that was in use."""

    def __init__(
        self, alarm: Alarm, monitor: ResidualMonitor, detector: PayloadDetector | None = None
    ) -> None:
        self.alarm, self._monitor, self._detector = alarm, monitor, detector
        self._last = alarm.t
        v = monitor.robot.velocity_names.index(alarm.joint)
        crept = abs(alarm.residual) <= SLOW * monitor.lasts[v] * alarm.scale
        self._crept = crept and not alarm.together
        monitor.reset()

    def push(
        self, t: float, h: float, sample: FilteredSample, direction: np.ndarray
    ) -> Finding | None:
        """Take one filtered sample; return what it turns out to be, None while that is open."""
        again = self._monitor.push(t, h, sample, direction)
        held = self._detector is not None and self._detector.suspects
        if again is not None or held:
            self._monitor.reset()
            self._last = t
            if t - self.alarm.t >= (CONFIRM if again is not None else CONFIRM_LIGHT):
                return self._confirmed()
        elif t - self._last >= (OVER_LIGHT if self.alarm.together else OVER):
            span, joint = self._last - self.alarm.t, self.alarm.joint
            return Finding(
                "collision",
                f"joint {joint!r} was pushed at {self.alarm.t:.4g} s, for {span + 0.05:.1g} s or"
                " less: the model explains the torques again, so nothing is forgotten",
                joint,
            )
        return None

    def _confirmed(self) -> Finding:
        joint, t = self.alarm.joint, self.alarm.t
        if self._crept:
            return Finding(
                "drift",
                f"what joint {joint!r} takes has drifted away from the model, slowly, until"
                f" {t:.4g} s; what is older is forgotten",
                joint,
            )
        return Finding(
            "change",
            f"joint {joint!r} has gone on being unexplained since {t:.4g} s: the robot is another"
            " one, and what is older is forgotten",
            joint,
        )


class ModelDrift:
    """Compares models in use with the one that was in use `settle` seconds after the first."""

    def __init__(self, names: tuple[str, ...], settle: float) -> None:
        self._names, self._settle = names, settle
        self.reset()

    def reset(self) -> None:
        """Begin anew, with another robot."""
        self._first = np.nan
        self._reference: Model | None = None
        self._since = 0.0  # [s] of the reference

    def push(self, t: float, model: Model, samples: Samples) -> Finding | None:
        """Take a model that is in use from now on, and the samples held out; return a drift."""
        if self._first != self._first:
            self._first = t
        if self._reference is None or t - self._first < self._settle:
            self._reference, self._since = model, t
            return None
        if len(samples) < LEAST_ROWS:
            return None
        states, usable = (samples.q, samples.dq, samples.ddq), samples.valid
        now, then = (np.array(each.torque(*states)) for each in (model, self._reference))
        rows = np.maximum(np.count_nonzero(usable, axis=0), 1)
        size, errors, others = (
            np.sum(each**2, axis=0, where=usable) / rows
            for each in (samples.tau, samples.tau - now, samples.tau - then)
        )
        size = np.sqrt(size)
        size = np.maximum(size, WEAK * float(np.max(size)))
        # what the reference errs by beyond the model in use, where torques count
        change = np.sqrt(np.maximum(others - errors, 0.0)) / size
        change[rows < LEAST_ROWS] = 0.0
        v = int(np.argmax(change))
        if change[v] < DRIFTED:
            return None
        own = usable[:, v]
        speed, difference = samples.dq[own, v], (now - then)[own, v]
        A = np.column_stack([np.ones(len(speed)), np.sign(speed), speed, then[own, v]])
        left = difference - A @ np.linalg.lstsq(A, difference, rcond=1e-9)[0]
        if np.sqrt(np.mean(left**2)) > UNLIKE * change[v] * size[v]:
            return None
        since, self._reference, self._since = self._since, model, t
        return Finding(
            "drift",
            f"what joint {self._names[v]!r} takes has drifted by {change[v]:.0%} of its torque"
            f" since {since:.4g} s, slowly enough to be followed; check its temperature, brake and"
            " sensor",
            self._names[v],
        )


def extrapolated(speed: float, fastest: float) -> bool:
    """Whether a joint moves faster than in all that a model was identified from."""
    return abs(speed) > FASTER * fastest
