"""Samples that no joint can have are turned away before a control law sees them.

    speed      |q̇| is at most the largest speed of the joint
    position   |q − q_believed| ≤ speed · Δt + 0.02 rad (or m), Δt since that sample, at most
               0.1 s; where no sample came for longer, there is nothing to compare with

The largest speed of a joint is three times what its file states, 10 rad/s (3 m/s) at least; 50
rad/s (10 m/s) where the file states none. A position elsewhere that is measured again and again for
0.1 s is believed in the end: an encoder that was set anew. A speed beyond the bound never is. Which
of the first three samples is wrong cannot be told, so the newest is believed.
"""

from __future__ import annotations

import numpy as np

from thetahat.control.torque_limits import PerJoint, per_joint
from thetahat.dynamics import batch
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

SLACK = 0.02  # [rad or m] of noise, encoder counts and stamps that jitter
TIMES_LIMIT = 3.0  # the speed that a file states
LEAST = {JointKind.REVOLUTE: 10.0, JointKind.PRISMATIC: 3.0}  # [rad/s], [m/s]
UNKNOWN = {JointKind.REVOLUTE: 50.0, JointKind.PRISMATIC: 10.0}
LONGEST = 0.1  # [s] since the last believed sample: later nothing can be compared
CONFIRMED = 0.1  # [s] of samples that agree with each other: the joint is there
CONFIRMING = 5  # of them at least
START = 3  # samples: which of the first ones is wrong cannot be told, so the newest is believed


def speed_bounds(robot: Robot, max_speed: PerJoint | None) -> np.ndarray:
    """The largest speed of every joint that is believed, (nv,) [rad/s or m/s]."""
    if max_speed is not None:
        return per_joint("max_speed", max_speed, robot.nv, finite=False)
    return np.array(
        [
            max(TIMES_LIMIT * node.limits.velocity, LEAST[node.kind])
            if 0.0 < node.limits.velocity < np.inf
            else UNKNOWN[node.kind]
            for node in robot.tree.independent
        ]
    )


class SampleGuard:
    """Believes a sample, or says why not; knows the last one believed."""

    def __init__(self, names: tuple[str, ...], speed: np.ndarray) -> None:
        k = batch.kernels().sample_check
        self._names, self._kernel, self._rows = names, k.implausible, k
        self._state = np.zeros((k.STATE_SIZE + 1, len(names)))
        self._state[k.SPEED], self._state[k.SLACK] = speed, SLACK
        self._elsewhere = self._state[k.STATE_SIZE]  # the last position turned away
        self.q, self.dq = self._state[k.BELIEVED_Q], self._state[k.BELIEVED_DQ]
        self.t = np.nan  # [s] of the last believed sample, NaN before there was one
        self.count = 0  # believed since the start, or since the joints were elsewhere
        self._since = self._last = np.nan  # [s] of positions elsewhere that agree
        self._agreeing, self._rejecting = 0, False
        self._kernel(self._state, 0.0, k.BELIEVED_Q)  # compiles it now

    def doubt(self, t: float, q: np.ndarray, dq: np.ndarray) -> str:
        """Why this sample cannot be, "" if it can: then it is the last one believed."""
        state, dt = self._state, t - self.t
        state[0], state[1] = q, dq
        if not 0.0 < dt <= LONGEST:  # NaN too
            dt = LONGEST if dt > 0.0 and self._rejecting else 0.0
        code = self._kernel(state, dt, 2)
        if code < 0:
            self.t = t
            self.count += 1
            self._rejecting, self._agreeing = False, 0
            return ""
        return self._reject(t, code, dt)

    def adopt(self, other: SampleGuard) -> None:
        """Believe what another guard of the same joints believed last."""
        self.q[:], self.dq[:], self.t, self.count = other.q, other.dq, other.t, other.count
        self._elsewhere[:] = other._elsewhere
        self._since, self._last, self._agreeing = other._since, other._last, other._agreeing
        self._rejecting = other._rejecting

    def _reject(self, t: float, code: int, dt: float) -> str:
        rows, state, self._rejecting = self._rows, self._state, True
        n = len(self._names)
        speed, v = divmod(code, n)
        name = self._names[v]
        if speed:
            self._agreeing, value = 0, float(state[rows.DQ, v])
            if not np.isfinite(value):
                return f"dq of joint {name!r} is {value}"
            return (
                f"dq of joint {name!r} is {value:.6g}, and no more than"
                f" {state[rows.SPEED, v]:.4g} can be; give max_speed if it can"
            )
        if not np.all(np.isfinite(state[rows.Q])):
            self._agreeing = 0
            return f"q of joint {name!r} is {state[rows.Q, v]}"
        q, believed = float(state[rows.Q, v]), float(self.q[v])
        gap = t - self._last
        with np.errstate(over="ignore"):
            gone = np.abs(state[rows.Q] - self._elsewhere)
        near = (
            self._agreeing > 0
            and 0.0 < gap <= LONGEST
            and np.all(gone <= state[rows.SPEED] * gap + SLACK)
        )
        self._agreeing, self._since = (self._agreeing + 1, self._since) if near else (1, t)
        self._elsewhere[:], self._last = state[rows.Q], t
        confirmed = self._agreeing >= CONFIRMING and t - self._since >= CONFIRMED
        if confirmed or self.count < START:
            self._kernel(state, 0.0, rows.BELIEVED_Q)
            self.t, self._agreeing, self.count, self._rejecting = t, 0, 1, False
            return ""
        return (
            f"q of joint {name!r} is {q:.6g}, {dt * 1e3:.3g} ms after {believed:.6g}: it cannot"
            " have gone so far"
        )
