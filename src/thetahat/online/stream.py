"""The stream of measurements: one clock and one causal filter for all channels; samples that cannot
be used are rejected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from thetahat.data.velocities import all_single_dof
from thetahat.errors import UsageError
from thetahat.model.floating_base import base_dofs
from thetahat.model.robot import Robot
from thetahat.online.causal_filter import ONE_WAY, YOUNG, CausalFilter
from thetahat.online.config import FilterConfig
from thetahat.online.predict import has_dry_friction
from thetahat.online.sample_clock import MISSING, SampleClock, Stamp
from thetahat.online.sample_verdict import Events
from thetahat.online.spike_filter import START, SpikeFilter, start_thresholds

# [s] that a torque is the same to the last bit while the joint moves: a dead channel; one refreshed
# at 10 Hz is not
CONSTANT = 0.15
SAME = 20  # such samples in a row, where the period is not known; never fewer than FROZEN
FROZEN = 5  # positions in a row that are the same to the last bit
# encoder steps, beside kernels.ELSEWHERE, that a joint must have gone while its position stood
# still
STEPS = 10.0

_DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True)
class StreamResult:
    """What became of a sample."""

    status: str  # "good", "settling", "dropped" or "restarted"
    kind: str = ""  # of event; "" where it is good or settling
    reason: str = ""  # the same as a sentence
    forget: bool = False  # whether what was learned before a restart may be of another robot


GOOD, SETTLING = StreamResult("good"), StreamResult("settling")
STEPPED = StreamResult("good", "step", "a step: it confirms the sample rejected before it")


@dataclass(frozen=True)
class ChannelFault:
    """A channel that cannot be believed right now."""

    joint: str
    kind: str
    sentence: str


class Stream:
    """Samples in, filtered samples out: `sample` is valid after a push whose status is "good".

    min_speed: (nv,) at which a joint moves [rad/s or m/s].
    """

    def __init__(self, robot: Robot, config: FilterConfig, min_speed: np.ndarray) -> None:
        self.robot, self.config, self.min_speed = robot, config, min_speed
        self.events = Events()
        self.filter = CausalFilter(robot, config, min_speed)
        self.sample = self.filter.out  # the last one, in the filter's own memory
        self.clock = SampleClock(config.period, config.reset_after)
        self._spikes = SpikeFilter(robot.velocity_names, self.events)
        self._plain, self._dry = all_single_dof(robot), has_dry_friction(robot)
        self._base = list(base_dofs(robot))  # nothing rubs on a floating base, nothing drives it
        self._no_rates = np.zeros(robot.nv)
        self._mode = -1
        self.missing = 0  # samples in a row that were not taken
        self._restarted: StreamResult | None = None  # a restart that no sample has told yet
        self.channels: tuple[ChannelFault, ...] = ()

    @property
    def torque_noise(self) -> np.ndarray:
        """(nv,) standard deviation of the filtered torques' noise [N·m or N]."""
        return self.filter.torque_noise(self.clock.period)

    def moving(self) -> np.ndarray:
        """(nv,) bool: which joints move in the last sample."""
        return np.asarray(np.abs(self.sample.dq[0]) >= self.min_speed)

    def usable(self, moving: np.ndarray) -> np.ndarray:
        """(nv,) bool: whose torques may be used. With dry friction: not a still joint's, nor one's
        that turned round within the filter's memory. moving: (nv,) bool, which joints move.
        """
        if not self._dry:
            return np.ones(self.robot.nv, dtype=bool)
        usable = np.asarray(moving & (np.abs(self.filter.direction) >= ONE_WAY))
        usable[self._base] = True
        return usable

    # -- a sample ----------------------------------------------------------------------------------

    def push(
        self,
        t: float,
        q: np.ndarray,
        dq: np.ndarray | None,
        tau: np.ndarray,
        ddq: np.ndarray | None,
    ) -> StreamResult:
        """Take a sample if it can be used; return what became of it."""
        try:
            sample = self._arrays(q, dq, tau, ddq)
            if not isinstance(t, int | float | np.number):
                raise UsageError(f"t is {t!r}; give the time of the sample in seconds, a number")
        except UsageError:
            self.missing += 1
            self.events.counts["refused"] += 1
            raise
        clock, stamp = self.clock, float(t)
        now = clock.time(stamp)
        if now is not None:
            return self._filtered(now, now - clock.t, sample)
        reading = clock.read(stamp, running=self.filter.count > 0)
        if reading.dropped:
            return self._drop(reading.kind, reading.sentence)
        self._follow(reading)
        return self._filtered(reading.now, reading.h, sample)

    def _filtered(
        self, now: float, h: float, sample: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    ) -> StreamResult:
        channels, spikes = self.filter, self._spikes
        k, period = channels.kernels, self.clock.period
        since, forced = spikes.since(now), spikes.forced
        code = channels.take(h, sample, self._mode, since=since, forced=forced, period=period)
        if code > 0 and 0 < channels.count <= START and code // k.CODE != k.NOT_FINITE:
            spikes.start_over(now, code % k.CODE, self._quantity(code))
            channels.restart()
            code = channels.take(
                h, sample, self._mode, since=since, forced=spikes.forced, period=period
            )
        if code > 0:
            return self._reject(now, code)
        spikes.accept(channels.count, stepped=code < 0)
        self.clock.accept(now, h, running=channels.count > 1)
        self.missing = 0
        self._check_channels(now)
        if channels.seen == YOUNG and start_thresholds(channels, self.clock.period):
            sentence = (
                f"the first samples, up to {now:.6g} s, do not agree (a first command, or one wrong"
                " sample); they are not used"
            )
            self._restart("start", sentence, forget=True)
        if self._restarted is not None:
            result, self._restarted = self._restarted, None
            return result
        if not channels.settled:
            return SETTLING
        return GOOD if code == k.TAKEN else STEPPED

    def miss(self) -> StreamResult | None:
        """Count a cycle without a sample; return why the stream stopped, None while it is held."""
        self.missing += 1
        self.events.counts["missing"] += 1
        if self.missing < MISSING:
            return None
        sentence = f"{self.missing} samples in a row are missing; stopped until they come again"
        if self.missing == MISSING:
            self.events.add(self.clock.now, "stopped", sentence)
        return StreamResult("dropped", "missing", sentence)

    def _arrays(
        self, q: np.ndarray, dq: np.ndarray | None, tau: np.ndarray, ddq: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return q, dq, ddq, tau as doubles, or raise an error that leaves all as it was."""
        nq, nv = self.robot.nq, self.robot.nv
        mode = 2 if ddq is not None else 0 if dq is not None else 1
        if mode == 1 and not self._plain:
            raise UsageError(
                f"robot {self.robot.name!r} has joints of several degrees of freedom, whose speeds"
                " are no derivatives of q; pass dq"
            )
        if mode == 2 and dq is None:
            raise UsageError("ddq is given without dq; pass both, or neither")
        sample = (
            self._checked("q", q, nq),
            self._no_rates if dq is None else self._checked("dq", dq, nv),
            self._no_rates if ddq is None else self._checked("ddq", ddq, nv),
            self._checked("tau", tau, nv),
        )
        if mode != self._mode:
            if self._mode >= 0:
                self.filter.restart()
            self._mode = mode
        return sample

    def _checked(self, name: str, value: np.ndarray, width: int) -> np.ndarray:
        if (
            type(value) is np.ndarray
            and value.dtype is _DOUBLE
            and value.ndim == 1
            and len(value) == width
            and value.flags.carray
        ):
            return value
        try:
            array = np.array(value, dtype=float)
        except (TypeError, ValueError):
            array = None
        if array is None or array.shape != (width,):
            shape = "not an array of numbers" if array is None else f"of shape {array.shape}"
            raise UsageError(
                f"{name} is {shape}; robot {self.robot.name!r} has ({width},), and it cannot change"
                " in a run"
            )
        return array

    # -- what can be wrong with it -----------------------------------------------------------------

    def _follow(self, reading: Stamp) -> None:
        """Restart where the clock tells to."""
        if reading.held:
            self.events.counts["held"] += reading.held
        if reading.kind:
            self._restart(reading.kind, reading.sentence, forget=reading.forget)
            if reading.kind == "rate":  # what is usual in a step has to be learned anew
                self.filter.seen = 0

    def _restart(self, kind: str, sentence: str, *, forget: bool) -> None:
        """Start the filter anew; the next sample that is taken tells it."""
        forget |= self._restarted is not None and self._restarted.forget
        self._restarted = StreamResult("restarted", kind, sentence, forget)
        self.events.add(self.clock.now, kind, sentence)
        self.filter.restart()

    def _drop(self, kind: str, sentence: str, joint: str | None = None) -> StreamResult:
        self.events.add(self.clock.now, kind, sentence, joint)
        self.missing += 1
        return StreamResult("dropped", kind, sentence)

    def _reject(self, now: float, code: int) -> StreamResult:
        k = self.filter.kernels
        kind, at = divmod(code, k.CODE)
        if kind == k.NOT_FINITE:
            name = self.robot.velocity_names[min(at, self.robot.nv - 1)]
            sentence = (
                f"a number of joint {name!r} at {now:.6g} s is not finite, or beyond all reason;"
                " the sample was dropped"
            )
            return self._drop("not finite", sentence, name)
        self.missing += 1
        sentence = self._spikes.reject(now, at, self._quantity(code))
        return StreamResult("dropped", "spike", sentence)

    def _quantity(self, code: int) -> str:
        k = self.filter.kernels
        names = {k.SPIKE_Q: "position", k.SPIKE_DQ: "speed", k.SPIKE_TAU: "torque"}
        return names[code // k.CODE]

    def _check_channels(self, now: float) -> None:
        """Find channels that stand still though the joint moves."""
        k, same = self.filter.kernels, self.filter.state.same
        period = self.clock.period
        constant = SAME if period is None else max(FROZEN, math.ceil(CONSTANT / period))
        stuck, dead = same[k.SAME_Q, -1] >= FROZEN, same[k.SAME_TAU, -1] >= constant
        if not (stuck or dead):
            if self.channels:
                self.channels = ()
            return
        known = self.channels
        self.channels = (*(self._stuck() if stuck else ()), *(self._dead(constant) if dead else ()))
        for fault in self.channels:
            if fault not in known:
                self.events.add(now, fault.kind, fault.sentence, fault.joint)

    def _stuck(self) -> tuple[ChannelFault, ...]:
        k, state = self.filter.kernels, self.filter.state
        count = np.maximum(state.q[k.Q_STEP], state.q[k.Q_SCALE])[state.q_of]
        far = k.ELSEWHERE + STEPS * np.where(state.q_of >= 0, count, np.inf)
        stuck = (state.same[k.SAME_Q, :-1] >= FROZEN) & (np.abs(state.v[k.TRAVEL]) > far)
        sentence = "the encoder of joint {!r} stands still while the joint moves"
        return self._faults(stuck, "stuck", sentence)

    def _dead(self, constant: int) -> tuple[ChannelFault, ...]:
        k, same = self.filter.kernels, self.filter.state.same
        dead = (same[k.SAME_TAU, :-1] >= constant) & (np.abs(self.sample.dq[0]) > self.min_speed)
        dead[self._base] = False
        sentence = "the torque of joint {!r} does not change while the joint moves"
        return self._faults(dead, "dead torque", sentence)

    def _faults(self, which: np.ndarray, kind: str, sentence: str) -> tuple[ChannelFault, ...]:
        names = [self.robot.velocity_names[v] for v in np.flatnonzero(which)]
        return tuple(ChannelFault(name, kind, sentence.format(name)) for name in names)
