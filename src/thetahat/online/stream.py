"""The stream of measurements: one clock, one causal filter for all channels, and what cannot be
used turned away.

Positions, speeds, accelerations and torques pass the same exponential moving averages (paper, §VI),
with time constant T = 1/(2π·cutoff), `stages` of them one after the other, so all channels lag
behind by the same stages·T and the equation of motion still holds between them; filtering the
accelerations alone, as one is tempted to, delays them against the torques, which biases every
inertia. Differences belong to the middle of their step, so the other channels are brought to that
moment, too:

    speeds measured        q, q̇, τ ← ½(x_k + x_{k−1})                       q̈ ← (q̇_k −
    q̇_{k−1})/h speeds not measured    q, τ ← ½(m_k + m_{k−1}), m_k = ½(x_k + x_{k−1})    q̇ ← ½(v_k
    + v_{k−1}), v_k = (q_k − q_{k−1})/h    q̈ ← (v_k − v_{k−1})/h accelerations given    as they are

Steps need not be even: the average forgets by exp(−h/T).
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from thetahat.data.velocities import all_single_dof, normalize_quaternions
from thetahat.errors import UsageError
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind
from thetahat.online.events import Event, Events
from thetahat.online.spike_thresholds import YOUNG, grown

SETTLED = 5.0  # time constants per stage until e⁻⁵ of a start is left
MISSING = 20  # samples in a row that may not be missing: 19 are held, the 20th stops
LATE = 3  # stamps in a row from the past: the clock was set back
# periods since the last sample, after which it says nothing about how far the next one may be
STALE = 5.0
PATIENCE = (
    10  # spikes in a row, no two alike: the channel is not what it was, and is taken as it is
)
# [s] that a torque is the same to the last bit while the joint moves: a dead channel; one refreshed
# at 10 Hz is not
CONSTANT = 0.15
SAME = 20  # such samples in a row, where the period is not known; never fewer than FROZEN
FROZEN = 5  # positions in a row that are the same to the last bit
# encoder steps, beside kernels.ELSEWHERE, that a joint must have gone while its position stood
# still
STEPS = 10.0
# samples after a start: which of two that do not agree is wrong cannot be told, so the newer one
# starts anew
START = 2
FARTHEST = 1e10  # [s] of a time stamp: 300 years, beyond which microseconds get lost
LEAP = 1e5  # [s] a day: a stamp that is so far ahead is a clock that was set, no pause
FIRST = 9  # steps whose median is the usual period
EVEN = 20  # steps in a row that are alike, but not as long as usual: the rate has changed

_DOUBLE = np.dtype(np.float64)

# What became of a sample.
GOOD, SETTLING, DROPPED, HELD, STOPPED, RESTARTED = range(6)


class Stream:
    """Samples in, filtered samples out: `q`, `dq`, `ddq`, `tau`, each (1, ·), valid after a push
    that returns `GOOD`.

    cutoff: [Hz] of each average; None: no filter. stages: averages one after the other. period: [s]
        between samples; None: the first ones tell.
    held: whether torque k acts from sample k until the next one (a command), rather than being a
    momentary reading. reset_after: [s] a gap after which nothing that was learned before is trusted
    to be of the same robot.
    """

    def __init__(
        self,
        robot: Robot,
        *,
        cutoff: float | None,
        stages: int,
        period: float | None,
        held: bool,
        min_speed: np.ndarray,
        reset_after: float,
    ) -> None:
        from thetahat.kernels import online

        for name, value in (("period", period), ("reset_after", reset_after)):
            if value is not None and not value > 0.0:
                raise UsageError(f"{name} is {value!r}; give seconds, above zero")
        self.robot, self._kernels, self._kernel = robot, online, online.take
        self.cutoff, self.stages, self.held, self.min_speed, self.reset_after = (
            cutoff,
            stages,
            held,
            min_speed,
            reset_after,
        )
        self.time_constant = 0.0 if cutoff is None else 1.0 / (2.0 * math.pi * cutoff)
        self.delay = (
            stages * self.time_constant
        )  # [s] that all channels lag behind, beside half a period or a period
        nq, nv = robot.nq, robot.nv
        self._q_of = np.full(nv, -1, dtype=np.int64)
        for node in robot.tree.independent:
            if node.kind.nq == 1:
                self._q_of[robot.tree.v_index[node.name]] = robot.tree.q_index[node.name]
        self._quaternions = bool(robot.tree.quaternions)
        self._plain = all_single_dof(robot)
        self._no_rates = np.zeros(nv)
        self.q, self.dq, self.ddq, self.tau = (
            np.zeros((1, nq)),
            np.zeros((1, nv)),
            np.zeros((1, nv)),
            np.zeros((1, nv)),
        )
        self._Sq, self._Sv = (
            np.zeros((online.Q_AVERAGE + stages, nq)),
            np.zeros((online.AVERAGE + 3 * stages, nv)),
        )
        self._Sq[online.Q_STEP] = online.ELSEWHERE
        for node in robot.tree.independent:
            self._Sq[online.Q_TURNS, robot.tree.q_index[node.name]] = float(
                node.kind is JointKind.REVOLUTE
            )
        self._Fq, self._Fv = (
            np.full((YOUNG, nq), np.nan),
            np.full((3, YOUNG, nv), np.nan),
        )  # what the first samples did
        self._C = np.zeros(
            (2, nv + 1), dtype=np.int64
        )  # how often in a row a channel did not change; the largest last
        self.period, self._steps = period, []
        self._odd: deque[float] = deque(
            maxlen=EVEN
        )  # [s] steps in a row that are not as long as usual
        self.events = Events()
        self.t = (
            -math.inf
        )  # of the last sample taken, on the stream's own clock, which never goes back
        self._offset = 0.0  # from stamps to that clock
        self._mode = -1
        self._total = 0
        self._told = 0  # samples that have told what is usual
        self._begun = 0  # starts in a row whose samples did not agree
        self.fault = ""  # why the last push was not good, as a sentence
        self.kind = ""
        self.missing = 0  # samples in a row that were not taken
        self._late: list[float] = []
        self._restarting = ""  # why the averages start anew, until the identifier knows
        self._gain: float | None = None
        self._leaps: list[Event] = (
            []
            # samples in a row that were turned away as spikes; the next one taken tells whether
            # they were
        )
        self._turned = 0.0  # [s] when the last of them was
        self.channels: tuple[
            tuple[str, str], ...
        ] = ()  # (joint, sentence) of channels that cannot be believed right now
        self.restart()

    @property
    def now(self) -> float:
        """[s] of the last sample taken; 0 before the first."""
        return self.t if self._total else 0.0

    def restart(self) -> None:
        """Forget what is in the averages; the next sample starts anew."""
        self._count, self._age = 0, 0.0
        self._C[:] = 0
        self._Sv[self._kernels.TRAVEL] = 0.0

    # -- a sample ----------------------------------------------------------------------------------

    def push(
        self,
        t: float,
        q: np.ndarray,
        dq: np.ndarray | None,
        tau: np.ndarray,
        ddq: np.ndarray | None,
    ) -> int:
        """What became of the sample."""
        try:
            q, dq, tau, ddq = self._arrays(q, dq, tau, ddq)
            if not isinstance(t, int | float | np.number):
                raise UsageError(f"t is {t!r}; give the time of the sample in seconds, a number")
        except UsageError:
            self.missing += 1
            self.events.counts["refused"] += 1
            raise
        self.fault = ""
        if not abs(t) <= FARTHEST:
            return self._drop(
                "not finite", f"a time stamp is {t:.4g} s, which is no time; the sample was dropped"
            )
        now = float(t) + self._offset
        if now <= self.t:
            now = self._from_the_past(t, now)
            if now <= self.t:
                return DROPPED
        elif self._late:
            self._late.clear()
        h = now - self.t
        if self._total and h > LEAP:
            now = self._from_the_future(t)
        elif self._count and not self._another_rate(h):
            self._gap(now, h)
        code = self._take(h, now, q, dq, tau, ddq)
        if (
            code > 0
            and 0 < self._count <= START
            and code // self._kernels.CODE != self._kernels.NOT_FINITE
        ):
            self._start_over(now, code)
            code = self._take(h, now, q, dq, tau, ddq)
        if code > 0:
            return self._turned_away(now, code)
        if self._leaps:
            self._settle(stepped=code < 0)
        self._learn(h)
        self.t, self.missing = now, 0
        self._age = 0.0 if self._count == 0 else self._age + h
        self._count += 1
        self._total += 1
        self._told += 1
        if self._count > START + 1:
            self._begun = 0
        self._look(now)
        if self._told == YOUNG:
            self._grow_up(now)
        if self._restarting:
            self.fault, self._restarting = self._restarting, ""
            return RESTARTED
        return GOOD if self.settled else SETTLING

    @property
    def settled(self) -> bool:
        """Whether the start has died out of the averages."""
        return self._count > 3 and self._age >= SETTLED * self.delay

    def miss(self) -> int:
        """Say that no sample came in this cycle."""
        self.missing += 1
        self.events.counts["missing"] += 1
        if self.missing < MISSING:
            return HELD
        self.kind, self.fault = (
            "missing",
            f"{self.missing} samples in a row are missing; stopped until they come again",
        )
        if self.missing == MISSING:
            self.events.add(self.now, "stopped", self.fault)
        return STOPPED

    def _arrays(self, q, dq, tau, ddq):
        """The channels as doubles, or an error that leaves all as it was."""
        nq, nv = self.robot.nq, self.robot.nv
        mode = 2 if ddq is not None else 0 if dq is not None else 1
        if mode == 1 and not self._plain:
            raise UsageError(
                f"robot {self.robot.name!r} has joints of several degrees of freedom, whose speeds"
                " are no derivatives of q; pass dq"
            )
        if mode == 2 and dq is None:
            raise UsageError("ddq is given without dq; pass both, or neither")
        out = (
            self._checked("q", q, nq),
            self._no_rates if dq is None else self._checked("dq", dq, nv),
            self._checked("tau", tau, nv),
            self._no_rates if ddq is None else self._checked("ddq", ddq, nv),
        )
        if mode != self._mode:
            if self._mode >= 0:
                self.restart()
            self._mode = mode
        return out

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

    def _take(
        self, h: float, now: float, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, ddq: np.ndarray
    ) -> int:
        if self._quaternions:
            q = self._one_side(q)
        keep = 0.0 if self.cutoff is None or not self._count else math.exp(-h / self.time_constant)
        slack = 1.0 if self.period is None else max(1.0, h / self.period)
        since = now - self._turned if self._leaps else 0.0
        code = self._kernel(
            h,
            since,
            slack,
            self._mode,
            max(len(self._leaps), self._begun) >= PATIENCE or slack > STALE,
            self.held,
            keep,
            self._count,
            self._told,
            q,
            dq,
            ddq,
            tau,
            self._Sq,
            self._Sv,
            self._Fq,
            self._Fv,
            self._C,
            self._q_of,
            self.q,
            self.dq,
            self.ddq,
            self.tau,
        )
        if self._quaternions and code <= 0:
            normalize_quaternions(self.robot, self.q)
        return code

    def _one_side(self, q: np.ndarray) -> np.ndarray:
        """Quaternions on one side of their double cover."""
        last = self._Sq[self._kernels.Q_LAST]
        for _, at in self.robot.tree.quaternions:
            if self._count and q[at : at + 4] @ last[at : at + 4] < 0.0:
                q = q.copy()
                q[at : at + 4] *= -1.0
        return q

    # -- what can be wrong with it -----------------------------------------------------------------

    def _drop(self, kind: str, sentence: str, joint: str | None = None) -> int:
        self.kind, self.fault = kind, sentence
        self.events.add(self.now, kind, sentence, joint)
        self.missing += 1
        return DROPPED

    def _from_the_past(self, t: float, now: float) -> float:
        """A duplicate or late sample is dropped. Where stamps go on from the past, the clock was
        set back: then when, on the stream's own clock.
        """
        if now == self.t:
            self._drop("duplicate", f"two samples are stamped {t:.9g} s; the second was dropped")
            return now
        if self._late and t <= self._late[-1]:
            self._late.clear()
        self._late.append(t)
        if len(self._late) < LATE:
            self._drop(
                "out of order",
                f"a sample stamped {t:.9g} s came after one of {self.t - self._offset:.9g} s; it"
                " was dropped",
            )
            return now
        self._offset = self.t + (self.period or 1e-3) - t
        self._late.clear()
        self._begin_anew(
            "clock",
            f"the clock was set back to {t:.9g} s; its stamps are continued from {self.t:.9g} s,"
            " all buffers start anew",
        )
        self.jumped = True
        return t + self._offset

    def _from_the_future(self, t: float) -> float:
        """The clock was set forward by more than any pause: its stamps are continued, so that the
        stream's own clock keeps its digits.
        """
        before, self._offset = self._offset, self.t + (self.period or 1e-3) - t
        ahead = f"the clock was set forward by {t + before - self.t:.4g} s"
        self._begin_anew(
            "clock",
            f"{ahead}; its stamps are continued from {self.t:.9g} s, all buffers start anew",
        )
        self.jumped = True
        return t + self._offset

    def _begin_anew(self, kind: str, sentence: str) -> None:
        """Restart, and say so with the next sample that is taken."""
        self.kind = kind
        self._restarting = sentence
        self.events.add(self.now, kind, sentence)
        self.restart()

    def _another_rate(self, h: float) -> bool:
        """Whether samples come at another rate from now on; then what is usual in a step has to be
        learned anew.
        """
        if self.period is None or 0.67 * self.period < h < 1.5 * self.period:
            self._odd.clear()
            return False
        self._odd.append(h)
        if len(self._odd) < EVEN or max(self._odd) > 1.5 * min(self._odd):
            return False
        before, self.period, self._gain, self._told = (
            self.period,
            float(np.median(self._odd)),
            None,
            0,
        )
        self._odd.clear()
        self._begin_anew(
            "rate",
            f"samples come every {self.period:.3g} s, no more every {before:.3g} s; the filter"
            " starts anew",
        )
        return True

    def _gap(self, now: float, h: float) -> None:
        """Start the averages anew where too many samples are missing before this one."""
        if self.period is None or h < (MISSING + 0.5) * self.period:
            if self.period is not None and h > 1.5 * self.period:
                self.events.counts["held"] += round(h / self.period) - 1
            return
        self._begin_anew(
            "gap",
            f"no sample came for {h:.4g} s, {round(h / self.period) - 1} in a row; resynchronised"
            f" at {now:.6g} s",
        )
        self.jumped |= h >= self.reset_after

    def _turned_away(self, now: float, code: int) -> int:
        k = self._kernels
        kind, at = divmod(code, k.CODE)
        if kind == k.NOT_FINITE:
            name = self.robot.velocity_names[min(at, self.robot.nv - 1)]
            sentence = (
                f"a number of joint {name!r} at {now:.6g} s is not finite, or beyond all reason;"
                " the sample was dropped"
            )
            return self._drop("not finite", sentence, name)
        name, what = self.robot.velocity_names[at], self._what(kind)
        self._turned = now
        self.kind, self.fault = (
            "spike",
            (
                f"the {what} of joint {name!r} at {now:.6g} s leaps by far more than it ever does;"
                " the sample was dropped"
            ),
        )
        self.missing += 1
        self.events.counts["spike"] += 1
        self._leaps.append(Event(now, "spike", name, self.fault))
        return DROPPED

    def _what(self, kind: int) -> str:
        return {
            self._kernels.SPIKE_Q: "position",
            self._kernels.SPIKE_DQ: "speed",
            self._kernels.SPIKE_TAU: "torque",
        }[kind]

    def _start_over(self, now: float, code: int) -> None:
        """The first samples after a start do not agree, so one of them is wrong: the newest one
        starts anew.
        """
        kind, at = divmod(code, self._kernels.CODE)
        name = self.robot.velocity_names[at]
        sentence = (
            f"the {self._what(kind)} of joint {name!r} leaps in the first samples, up to {now:.6g}"
            " s; those before were dropped"
        )
        self.events.add(now, "spike", sentence, name)
        self._begun += 1
        self.restart()

    def _grow_up(self, now: float) -> None:
        """What is usual, from the first samples; where one of them leaped, all starts anew."""
        if grown(self._Sq, self._Sv, self._Fq, self._Fv, self._q_of, self.period):
            self._begin_anew(
                "start",
                f"one of the first samples, up to {now:.6g} s, leaps by far more than the others;"
                " all start anew",
            )
            self.jumped = True

    def _settle(self, *, stepped: bool) -> None:
        """What was turned away were spikes; or, if what leaped stays there, they were the first
        samples after a step, and nothing is wrong.
        """
        if stepped:
            self.events.counts["spike"] -= len(self._leaps)
            self.events.counts["step"] += 1
        else:
            for event in self._leaps:
                self.events.tell(event)
        self._leaps.clear()

    def _learn(self, h: float) -> None:
        """The usual period, from the first steps."""
        if self.period is None and self._count:
            self._steps.append(h)
            if len(self._steps) >= FIRST:
                self.period = float(np.median(self._steps))

    def _look(self, now: float) -> None:
        """Channels that stand still though the joint moves."""
        k, found = self._kernels, []
        if self._C[k.SAME_Q, -1] >= FROZEN:
            step = np.where(
                self._q_of >= 0,
                np.maximum(self._Sq[k.Q_STEP], self._Sq[k.Q_SCALE])[self._q_of],
                np.inf,
            )
            stuck = (self._C[k.SAME_Q, :-1] >= FROZEN) & (
                np.abs(self._Sv[k.TRAVEL]) > k.ELSEWHERE + STEPS * step
            )
            found += [
                (v, "stuck", "the encoder of joint {!r} stands still while the joint moves")
                for v in np.flatnonzero(stuck)
            ]
        constant = SAME if self.period is None else max(FROZEN, math.ceil(CONSTANT / self.period))
        if self._C[k.SAME_TAU, -1] >= constant:
            dead = (self._C[k.SAME_TAU, :-1] >= constant) & (np.abs(self.dq[0]) > self.min_speed)
            found += [
                (v, "dead torque", "the torque of joint {!r} does not change while the joint moves")
                for v in np.flatnonzero(dead)
            ]
        if not found:
            if self.channels:
                self.channels = ()
            return
        known = {sentence for _, sentence in self.channels}
        channels = []
        for v, kind, sentence in found:
            name = self.robot.velocity_names[v]
            channels.append((name, sentence.format(name)))
            if channels[-1][1] not in known:
                self.events.add(now, kind, channels[-1][1], name)
        self.channels = tuple(channels)

    # -- what it knows -----------------------------------------------------------------------------

    jumped = False  # whether what was learned before the last restart may be of another robot

    @property
    def torque_noise(self) -> np.ndarray:
        """(nv,) standard deviation of the filtered torques' noise [N·m or N], from how much raw
        ones change between samples.
        """
        raw = np.sqrt(self._Sv[self._kernels.NOISE])
        if self.cutoff is None or self.period is None:
            return raw
        if self._gain is not None:
            return raw * self._gain
        keep = math.exp(-self.period / self.time_constant)
        gain, power = (
            np.array([1.0]),
            keep ** np.arange(round(12.0 * self.stages / max(1.0 - keep, 1e-6)) + 1),
        )
        for _ in range(self.stages):
            gain = np.convolve(gain, (1.0 - keep) * power)[: len(power)]
        self._gain = float(np.linalg.norm(gain))
        return raw * self._gain
