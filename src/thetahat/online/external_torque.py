"""The external torque on every joint, by a generalized-momentum observer.

    p = D(q)·q̇,    ṗ = τ − friction − (G − Cᵀq̇) + τ_ext

The residual r follows τ_ext through a low-pass of first order and needs no acceleration
[DeLuca2005], [Haddadin2017]. From one sample to the next, with a = exp(−bandwidth·h):

    r ← a·r + (1 − a)·e,    e = (p − p_before)/h − mean of (τ − friction − (G − Cᵀq̇))

What is contact comes from motion without any (`calibrated`). Sudden pushes are steps in e that this
motion does not explain (contact_detector.py); pushes that grow slowly are found where r, averaged
over a quarter of a second, exceeds what it reached. Each of the two gets half of the false alarms
that are asked for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError, check_positive
from thetahat.kernels.direction import follow
from thetahat.model.robot import Robot
from thetahat.online.contact_calibration import HOUR, block_maxima, learn_contact
from thetahat.online.contact_detector import (
    BLOCK,
    UNSURE,
    WITHIN,
    ContactDetector,
    ContactModel,
    Tick,
    TickClock,
    Ticks,
)
from thetahat.online.false_alarm_level import tail
from thetahat.online.observed_motion import MotionAlignment

GAP = 0.1  # [s] after which the observer starts again
GUIDED = 0.25  # [s] time constant of the slow part: a push that lasts is guiding by hand
# of the largest slow part without contact: errors of a model are slow, too, and motion that was not
# fitted has larger ones
SLOW_MARGIN = 2.0
AT_REST = 0.05  # of the RMS speed: a joint that turns slower may be held by dry friction
RELEASED = 0.5  # of a push: below, it is over
RESTING = 0.1  # [s] after a push begins or ends in which no other is looked for
LONGEST = 10.0  # [s] of one push; what lasts longer is an error of the model
SETTLED = 5.0  # time constants of the observer, after which it counts
DELAYED = 0.05  # [s] largest delay between torque and motion

# t, q, dq, tau; dq None: not measured
Run = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]


@dataclass(frozen=True, eq=False)
class Contact:
    """The external torque at one sample, and what it is."""

    t: float  # [s]
    torque: np.ndarray  # (nv,) [N·m or N] on the robot
    kind: str  # "none", "collision" or "hand-guiding"
    joint: str | None  # the one furthest above its threshold
    since: float | None  # [s] when it began; of two pushes on top of one another, the second


@dataclass(frozen=True, eq=False)
class _Push:
    """A push that a detector found."""

    joint: int
    since: float  # [s]
    before: np.ndarray  # (nv,) slow part of the torques without it
    size: float  # by which the joint's differs
    latest: float  # [s] since when it is what it is: of another push on top


class ExternalTorque:
    """Observes external torques on a robot, sample by sample.

    Args:
        robot: the identified robot.
        threshold: (nv,) of the lasting external torque that is contact; `calibrated` finds it.
            None: torques are stated, and nothing is called contact.
        bandwidth: of the observer [rad/s].
        contact: what the model leaves without contact, by which sudden pushes are found.
        delay: [s] by which torques are logged after the motion they belong to, as `identify`
            finds it; negative: before.

    """

    def __init__(
        self,
        robot: Robot,
        threshold: np.ndarray | Sequence[float] | None = None,
        *,
        bandwidth: float = 60.0,
        contact: ContactModel | None = None,
        delay: float = 0.0,
    ) -> None:
        limit = np.full(robot.nv, np.inf) if threshold is None else np.array(threshold, dtype=float)
        if limit.shape != (robot.nv,) or not np.all(limit > 0.0):
            raise UsageError(
                f"threshold has shape {limit.shape}; give ({robot.nv},) torques above zero, or"
                " let ExternalTorque.calibrated find them"
            )
        check_positive("bandwidth", bandwidth)
        if not abs(delay) <= DELAYED:
            raise UsageError(f"delay is {delay} s; give at most {DELAYED} s")
        if robot.nq != robot.nv:
            raise UsageError(
                f"{robot.name!r} has joints of several degrees of freedom; the observer takes"
                " joints of one"
            )
        self.robot, self.threshold, self.bandwidth = robot, limit, float(bandwidth)
        self.contact, self.delay = contact, float(delay)
        self._detector = None if contact is None else ContactDetector(contact)
        self._stiction = _stiction(robot)
        self.reset()

    @staticmethod
    def calibrated(
        robot: Robot,
        runs: Sequence[Run],
        *,
        false_alarms: float | None = None,
        bandwidth: float = 60.0,
        delay: float = 0.0,
        unsure: float = UNSURE,
    ) -> ExternalTorque:
        """Return an observer with thresholds from runs without contact.

        Args:
            robot: the identified robot.
            runs: (t, q, dq, tau) of each run, at the rate at which samples will be pushed; dq None
                where it is not measured.
            false_alarms: per hour, of all joints together. None: one in as much time as the runs
                last, the least that they show; a lower rate is taken from how the largest
                deviations thin out.
            bandwidth: of the observer [rad/s].
            delay: of torques behind the motion [s].
            unsure: standard deviation of what the model's dry friction is off by for 50 ms after it
                turned, as a share of how far it turned: 1 for signals behind a low-pass.

        """
        shown = sum(float(t[-1] - t[0]) for t, *_ in runs if len(t))
        rate = HOUR / max(shown, BLOCK) if false_alarms is None else false_alarms
        check_positive("false_alarms", rate)
        observer = ExternalTorque(robot, bandwidth=bandwidth, delay=delay)
        seen = [observer.observe(run) for run in runs]
        rms = np.sqrt(np.mean(np.concatenate([each.torque for each in seen]) ** 2, axis=0))
        ticks = [each.ticks for each in seen]
        contact = learn_contact(ticks, rms=rms, false_alarms=0.5 * rate, unsure=unsure)
        chance = 0.5 * rate * BLOCK / HOUR / robot.nv
        maxima = np.concatenate([each.slow for each in seen])
        return ExternalTorque(
            robot,
            tail(maxima, chance, SLOW_MARGIN),
            bandwidth=bandwidth,
            contact=contact,
            delay=delay,
        )

    def observe(self, run: Run) -> Observed:
        """Push a run from the beginning, and return what is left of it."""
        self.reset()
        ticks: list[Tick] = []
        torque, slow, time = [], [], []
        for row in _rows(run):
            self.push(*row)
            ticks += [] if self._tick is None else [self._tick]
            torque.append(self._torque)
            slow.append(np.abs(self._slow))
            time.append(row[0])
        if not time:
            raise UsageError("a run has no samples; give runs of motion without contact")
        since = np.array(time) - time[0]
        period = max(float(np.median(np.diff(time))) if len(time) > 1 else BLOCK, 1e-6)
        begin = int(np.searchsorted(since, SETTLED / self.bandwidth))
        size = max(1, round(BLOCK / period))
        lasted = np.cumsum([each.length for each in ticks])
        first = int(np.searchsorted(lasted, SETTLED / self.bandwidth))
        return Observed(
            Ticks.of(ticks[first:], self.robot.nv),
            np.array(torque)[begin:],
            block_maxima(np.array(slow)[begin:], size),
        )

    def reset(self) -> None:
        """Forget all samples."""
        nv = self.robot.nv
        self._t: float | None = None
        self._momentum, self._driving = np.zeros(nv), np.zeros(nv)
        self._torque, self._slow = np.zeros(nv), np.zeros(nv)
        self._direction = np.zeros(len(self.robot.drive.viscous))
        self._alignment = MotionAlignment(self.delay)
        self._moment: float | None = None  # [s] of the motion that was taken last
        self._rest = np.zeros(nv)  # share of time in which a joint stands still, as slow as _slow
        self._since: float | None = None
        self._clock = TickClock(nv)
        self._push: _Push | None = None
        self._quiet = -math.inf  # [s] until when no push is looked for
        self._tick: Tick | None = None
        self._earlier: deque[tuple[float, np.ndarray]] = deque(maxlen=1000)
        if self._detector is not None:
            self._detector.reset()

    def push(self, t: float, q: np.ndarray, dq: np.ndarray | None, tau: np.ndarray) -> Contact:
        """Take one sample: position, velocity and motor torque of every joint. Without velocities
        (dq None) they are the slope of the last 10 ms of positions.
        """
        if self._t is not None and t <= self._t:
            raise UsageError(f"time is {t} s after {self._t} s; give samples in the order of time")
        if self._t is not None and t - self._t > GAP:
            self.reset()
        tau = np.asarray(tau, dtype=float)
        if tau.shape != (self.robot.nv,) or not np.all(np.isfinite(tau)):
            raise UsageError(f"tau at {t} s is {tau!r}; give one finite number per joint")
        self._t, self._tick = float(t), None
        aligned = self._alignment.add(float(t), q, dq, tau)
        if aligned is not None:
            self._observe(*aligned)
        return self._contact(float(t))

    def _observe(self, t: float, motion: np.ndarray, tau: np.ndarray) -> None:
        """Bring torques up to date with position, velocity and torque of one moment."""
        q, dq = motion
        step = None if self._moment is None else t - self._moment
        momentum = rigid_body.mass_matrix(self.robot, q) @ dq
        load, dry = self._load(q, dq, step)
        driving = tau - load
        if step is not None and step > 0.0:
            rate = (momentum - self._momentum) / step - 0.5 * (driving + self._driving)
            a, slowly = math.exp(-self.bandwidth * step), math.exp(-step / GUIDED)
            self._torque = a * self._torque + (1.0 - a) * rate
            if self._push is not None or t > self._quiet:  # not while a push dies away
                self._slow = slowly * self._slow + (1.0 - slowly) * self._torque
            if self.contact is not None:
                still = np.exp(-((dq / (AT_REST * self.contact.usual[0])) ** 2))
                self._rest = slowly * self._rest + (1.0 - slowly) * still
            self._tick = self._clock.add(step, rate, dq, dry)
        self._moment, self._momentum, self._driving = t, momentum, driving

    def _load(
        self, q: np.ndarray, dq: np.ndarray, step: float | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """G − Cᵀq̇ and friction, and its part that turns with the direction of motion."""
        robot, drive = self.robot, self.robot.drive
        carried = rigid_body.gravity(robot, q)
        passing = rigid_body.coriolis_matrix(robot, q, dq).T @ dq
        if drive.simple and drive.dry is None:
            dry = drive.coulomb * np.sign(dq)
            return np.asarray(carried - passing + drive.friction(dq)), np.asarray(dry)
        speed = dq
        if drive.actuation is not None:
            speed = drive.actuation.motor_rates(dq, np.zeros_like(dq), q=q)[0]
        direction = np.sign(speed)
        if drive.dry is not None:
            out = np.empty((1, len(self._direction)))
            law = np.array(drive.dry.zone), np.array(drive.dry.travel)
            follow(np.array(speed[None]), step or 0.0, *law, self._direction, out)
            direction = out[0]
        load = carried
        if drive.needs_load:
            load = rigid_body.inverse_dynamics(robot, q, dq, np.zeros_like(dq), rigid=True)
        friction = drive.friction(dq, q=q, load=load, direction=direction)
        smooth = drive.friction(dq, q=q, load=load, direction=np.zeros_like(direction))
        return np.asarray(carried - passing + friction), np.asarray(friction - smooth)

    def _contact(self, t: float) -> Contact:
        joint = self._sudden(t)
        self._earlier.append((t, self._slow))
        # what dry friction holds at rest is no push
        lasting = np.abs(self._slow) / (self.threshold + self._rest * self._stiction)
        kind = "none"
        if self._push is not None:
            kind = "collision" if t - self._push.since <= GUIDED else "hand-guiding"
            self._since = self._push.latest
        elif np.max(lasting) > 1.0:
            joint, kind = int(np.argmax(lasting)), "hand-guiding"
            self._since = t if self._since is None else self._since
        else:
            self._since = None
        name = None if joint is None else self.robot.velocity_names[joint]
        return Contact(t, self._torque.copy(), kind, name, self._since)

    def _sudden(self, t: float) -> int | None:
        """The joint that a sudden push is felt by; None: none is."""
        found = None
        if self._detector is not None and self._tick is not None:
            found = self._detector.add(self._tick)
        while len(self._earlier) > 1 and self._earlier[1][0] <= t - WITHIN:
            self._earlier.popleft()
        push = self._push
        if push is not None:
            size = float((self._torque - push.before)[push.joint])
            if abs(size) > abs(push.size):
                self._push = push = replace(push, size=size)
            elif t - push.since > WITHIN and (
                size * push.size < RELEASED * push.size**2 or t - push.since > LONGEST
            ):
                # its end is a step, too
                self._push, self._quiet = None, t + RESTING
                self._slow, push = push.before.copy(), None
        if found is not None and np.max(found) > 1.0 and t > self._quiet and self._earlier:
            joint, before = int(np.argmax(found)), self._earlier[0][1]
            size = float((self._torque - before)[joint])
            # a push that eases is none of its own; one on top of another is
            if push is None:
                push = _Push(joint, t, before, size, t)
            elif joint != push.joint or size * push.size > 0.0:
                push = replace(push, latest=t)
            self._push, self._quiet = push, t + RESTING
        return None if push is None else push.joint


def _stiction(robot: Robot) -> np.ndarray:
    """What dry friction may hold at rest, (nv,), without load."""
    drive = robot.drive
    if drive.simple:
        return np.asarray(np.abs(drive.coulomb))
    still, moving = np.zeros(robot.nv), np.ones(len(drive.viscous))
    ways = [drive.friction(still, q=still, load=still, direction=k * moving) for k in (0.0, 1.0)]
    return np.asarray(np.abs(ways[1] - ways[0]))


def _rows(
    run: Run,
) -> Iterator[tuple[float, np.ndarray, np.ndarray | None, np.ndarray]]:
    """The samples of a run."""
    t, q, dq, tau = run
    for k, at in enumerate(t):
        yield float(at), q[k], None if dq is None else dq[k], tau[k]


@dataclass(frozen=True, eq=False)
class Observed:
    """What an observer saw in a run."""

    ticks: Ticks
    torque: np.ndarray  # (n, nv) external torque of every sample, without the observer's start
    slow: np.ndarray  # (blocks, nv) maxima of its slow part's size
