"""The residual monitor: does the model in use still explain the torques? And if not, what does the
robot hold?

Per joint and sign a cumulative sum of the residual r = τ − τ_model over its usual size σ
[Page1954]:

    g ← max(0, g + h·(±r/σ − d)/d),   alarm where g > limit/drift,   h: [s] since the sample before

An error of at most d σ never alarms, however long it lasts and however its samples hang together;
one of 2d σ alarms after limit/drift = 0.1 s, a large one within a few samples. σ is what the model
leaves on samples held out (friction errors and all), but at least a share of the torque predicted,
and a still joint may be off by its dry friction.

d is `drift` (3) at least. For residuals that were white noise over blocks of two filter time
constants, the mean time between false alarms would then be `false_alarm_interval` [Siegmund1985]:
beyond any robot's life. What can alarm falsely is a model error that lasts, so d is the size that
errors of a tenth of a second exceed once in `interval` on one of the joints, as their tail tells
that was seen while the gate was open (false_alarm_level.py), where that is more.

After an alarm, samples of the new robot are folded, and the payload on a named link follows by
least squares with the model in use as the known rest (payload_body.py): its ten numbers, as a
physical body, with their spread.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification import factor as f
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.payload.payload_body import HELD, fit_payload, typical_mass
from thetahat.identification.payload.payload_evidence import Evidence
from thetahat.identification.payload.payload_place import payload_place
from thetahat.identification.payload.payload_result import Payload
from thetahat.model.parameters import SIZE
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind
from thetahat.online.causal_filter import ONE_WAY, FilteredSample
from thetahat.online.config import MonitorRules
from thetahat.online.false_alarm_level import FalseAlarmLevel
from thetahat.online.predict import Model, Predictor

SLOWLY = 2.5  # times the least speed of a moving joint: below, dry friction may have either sign
LEAST_ROWS = 20  # of a payload's least squares: twice its unknowns
FAR = 5.0  # usual errors that a payload may leave of the torques, as RMS
# of what changed, that it may leave if that is more: what is heavy brings more friction, too
LEFT = 0.1
LASTING = 3  # scores of a joint's error, of which the mean counts: a tenth of a second
LATER = 30  # scores: what was seen counts as of before by then, if no alarm was raised
ERROR_LASTS = 1.0  # [s] of a model's error on a motion
# times the dry friction that a still joint's torque may be off: breakaway takes more than sliding
DRY = 1.5


@dataclass(frozen=True)
class Alarm:
    """The model stopped explaining the torques."""

    t: float  # [s] of the alarm
    joint: str
    residual: float  # [N·m or N] then
    scale: float  # σ of that joint
    sentence: str
    together: bool = False  # residual and scale are of a mass [kg] that all joints tell of


@dataclass(frozen=True, eq=False)
class PayloadReport:
    """What was taken up or let go, as far as it is known; or that it was neither."""

    detected: float  # [s]
    t: float  # [s] of this estimate
    rows: int  # torques it is from
    payload: Payload  # the body that explains the change best
    let_go: bool  # whether it is gone, rather than held
    left: float  # RMS of what it leaves of the torques, in usual errors
    # whether that is little enough: if not, something else changed (a sensor, a collision), and no
    # mass is stated
    explained: bool

    @property
    def mass(self) -> float | None:
        """[kg] by which the link is heavier than before; below zero where something was let go,
        None where it is no payload.
        """
        if not self.explained:
            return None
        return -self.payload.mass if self.let_go else self.payload.mass

    def __str__(self) -> str:
        if not self.explained:
            return (
                f"not a payload on {self.payload.link!r}: the best one leaves {self.left:.2g} times"
                " the usual error; check the torque sensors"
            )
        spread = "" if self.payload.mass_std is None else f" ± {self.payload.mass_std:.2g}"
        return (
            f"{self.payload.link!r} is {'lighter' if self.let_go else 'heavier'} by"
            f" {self.payload.mass:.3g}{spread} kg since {self.detected:.2f} s"
        )


def false_alarm_interval(time_constant: float, rules: MonitorRules | None = None) -> float:
    """Mean time between false alarms of one joint [s] if residuals were Gaussian of variance σ²,
    independent from one block of 2T to the next.

    Siegmund's approximation of a cumulative sum's run length, (e^{2kb} − 2kb − 1)/(2k²), b = limit
    in blocks + 1.166; halved for two signs. Infinite beyond what a double holds.
    """
    rules = MonitorRules() if rules is None else rules
    block = 2.0 * time_constant
    b = rules.limit / block + 1.166
    exponent = 2.0 * rules.drift * b
    if exponent > 700.0:
        return math.inf
    return 0.5 * block * (math.exp(exponent) - exponent - 1.0) / (2.0 * rules.drift**2)


def _units(robot: Robot) -> list[str]:
    """Of every degree of freedom's torque: N along an axis, N·m about one; of a free joint's mixed
    ones neither is named.
    """
    units = {JointKind.PRISMATIC: " N", JointKind.REVOLUTE: " N·m"}
    joints = robot.tree.independent
    return [units.get(node.kind, "") for node in joints for _ in range(node.kind.nv)]


def usual_level(robot: Robot, rules: MonitorRules) -> FalseAlarmLevel:
    """What is to be learned of a robot's usual errors; Gaussian ones say nothing beyond `drift`."""
    return FalseAlarmLevel(robot.nv, rules.interval, share=0.0)


class ResidualMonitor:
    """Compares every filtered sample with what a model predicts.

    scale: (nv,) σ, usual size of each joint's residual [N·m or N]. min_speed: (nv,) at which a
        joint moves. lag: [s] that a filtered sample reaches back: a joint that turned round since
        has friction of either sign. model: what predicts; None: the robot itself. seen: what was
        learned of usual errors so far.
    """

    def __init__(
        self,
        robot: Robot,
        scale: np.ndarray,
        rules: MonitorRules | None = None,
        *,
        min_speed: np.ndarray | float = 0.02,
        lag: float = 0.1,
        model: Model | None = None,
        seen: FalseAlarmLevel | None = None,
    ) -> None:
        from thetahat.kernels import online

        scale = np.array(scale, dtype=float)
        if scale.shape != (robot.nv,) or not np.all(scale > 0.0):
            raise UsageError(
                f"scale has shape {scale.shape}; give the usual size of every joint's residual,"
                f" ({robot.nv},), above zero (inf: a joint that is not monitored)"
            )
        self.rules = rules = MonitorRules() if rules is None else rules
        self.robot, self.scale = robot, scale
        self._kernels, self._rules = online, np.array([rules.relative, lag, ONE_WAY])
        self._most = rules.limit / rules.drift
        self._state = np.zeros((online.SUMS + 2, robot.nv))
        self._state[online.LASTS] = rules.drift
        self._seen = usual_level(robot, rules) if seen is None else seen
        self._waiting: deque[tuple[np.ndarray, float]] = deque()
        self._raise_level()
        self._state[online.SLOW_SPEED] = SLOWLY * np.asarray(min_speed, dtype=float)
        self._units = _units(robot)
        self._one_way = np.ones(robot.nv)
        self.alarm: Alarm | None = None
        self.use(Predictor(robot).model(Columns(robot).x0) if model is None else model)

    def use(self, model: Model, scale: np.ndarray | None = None) -> None:
        """Monitor another model from now on, with what has been summed up so far."""
        coulomb = model.coulomb
        dry = DRY * model.dry() + (model.dry() - coulomb)
        self.scale = self.scale if scale is None else scale
        self._model, k = model, self._kernels
        self._state[k.COULOMB], self._state[k.DRY], self._state[k.SCALE] = coulomb, dry, self.scale

    def reset(self) -> None:
        """Start anew, as after an alarm or a gap."""
        self._state[self._kernels.SUMS :], self.alarm = 0.0, None
        self._waiting.clear()

    @property
    def lasts(self) -> np.ndarray:
        """(nv,) deviations σ that may last for ever."""
        return np.asarray(self._state[self._kernels.LASTS])

    def learn(self, seconds: float) -> None:
        """Take what the last sample left as usual, if no alarm follows within a second. seconds:
        since the last one that was learned.
        """
        self._waiting.append((self._state[self._kernels.DEVIATION].copy(), seconds))
        if len(self._waiting) < LATER:
            return
        first, seconds = self._waiting.popleft()
        for k in range(LASTING - 1):
            first += self._waiting[k][0]
        np.abs(first, out=first)
        first[first != first] = 0.0  # no evidence in one of them
        first /= LASTING
        if self._seen.add(first, seconds):
            self._raise_level()

    def _raise_level(self) -> None:
        if self._seen.known:
            lasts = self._state[self._kernels.LASTS]
            np.maximum(self.rules.drift, self._seen.level, out=lasts)

    def push(
        self, t: float, h: float, sample: FilteredSample, direction: np.ndarray | None = None
    ) -> Alarm | None:
        """Take one filtered sample, h seconds after the last; return an alarm if it raises one.

        direction: (nv,) of the motion, filtered alike.
        """
        q, dq, ddq, tau = sample
        predicted = self._model.torque(q, dq, ddq)
        worst, v, residual = self._kernels.cusum_step(
            h,
            self._rules,
            predicted,
            dq,
            ddq,
            tau,
            self._one_way if direction is None else direction,
            self._state,
        )
        if worst <= self._most or self.alarm is not None:
            return None
        name, unit = self.robot.velocity_names[v], self._units[v]
        sentence = (
            f"the model in use stopped explaining joint {name!r} at {t:.4g} s:"
            f" {residual:+.3g}{unit} are left of its torque, usually {self.scale[v]:.2g}{unit}; a"
            " payload, a collision, or a sensor"
        )
        self.alarm = Alarm(t, name, float(residual), float(self.scale[v]), sentence)
        return self.alarm


class PayloadMonitor:
    """Estimates what a named link holds, from samples after an alarm: recursive least squares of
    ten columns, with the model in use before (`robot`, with its friction) as the known rest.

    scale: (nv,) usual size of the residuals without a payload. detected: [s] of the alarm. usual:
        [kg] spread of the mass that the model's errors feigned before it, at one moment; they last
        for `ERROR_LASTS` seconds, so that rows in between are not independent.
    """

    def __init__(
        self, robot: Robot, link: str, scale: np.ndarray, *, detected: float, usual: float = 0.0
    ) -> None:
        self.robot, self.link, self.detected, self._usual = robot, link, detected, usual
        self.scale = np.asarray(scale, dtype=float)
        self._place = payload_place(robot, link, None)
        self._model = Predictor(robot).model(Columns(robot).x0)
        self._factor = np.zeros((SIZE + 1, SIZE + 1))
        self.rows = 0

    def add(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """Take one filtered sample; valid: (nv,) which torques may be used."""
        if not np.any(valid):
            return
        q, dq, ddq, tau = sample
        Y = rigid_body.regressor(self.robot, q[0], dq[0], ddq[0])
        left = tau - self._model.torque(q, dq, ddq)
        ten = Y[:, self._place.span] @ self._place.to_body
        rows = np.column_stack([ten, left[0]]) / self.scale[:, None]
        self._factor = f.triangle(np.asfortranarray(np.vstack([self._factor, rows[valid]])))
        self.rows += int(np.count_nonzero(valid))

    def report(self, t: float) -> PayloadReport | None:
        """What is known by now; None while there are too few rows."""
        if self.rows < LEAST_ROWS:
            return None
        tries = []
        for sign in (1.0, -1.0):  # held, or gone: a body that is taken off the link
            factor = self._factor * np.append(np.ones(SIZE), sign)
            try:
                evidence, typical = Evidence(factor, 0.0, 0), typical_mass(self.robot)
                payload = fit_payload(evidence, self._place, typical=typical, size=HELD)
            except (NotIdentifiable, np.linalg.LinAlgError):
                continue
            left = float(
                np.linalg.norm(factor[:, :-1] @ payload.theta - factor[:, -1])
            ) / math.sqrt(self.rows - SIZE)
            tries.append((left, sign < 0.0, payload))
            # least squares itself is a body: none fits better
            if not payload.replaced and payload.mass > 0.0:
                break
        if not tries:
            return None
        left, let_go, payload = min(tries, key=lambda each: each[0])
        whole = float(np.linalg.norm(self._factor[:, -1])) / math.sqrt(self.rows)
        # what it leaves beyond the usual errors is noise as well, and so is what errors feign
        feigned = self._usual * math.sqrt(min(1.0, ERROR_LASTS / max(t - self.detected, 1e-6)))
        std = payload.mass_std or math.inf
        fit = payload.fit.inflated(math.hypot(max(left, 1.0), feigned / std))
        return PayloadReport(
            self.detected,
            t,
            self.rows,
            replace(payload, fit=fit, exact_rest=True),
            let_go,
            left,
            explained=left <= max(FAR, LEFT * whole),
        )
