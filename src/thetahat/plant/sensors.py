"""What the robot's controller and its log get to see: quantised, noisy and late."""

from __future__ import annotations

from collections import deque

import numpy as np

from thetahat.errors import check_count
from thetahat.model.robot import Robot
from thetahat.plant.realism import SensorModel, spread

# each has numbers of its own: more noise here changes nothing there
STREAMS = ("encoder", "speed", "torque", "clock")


def streams(seed: int) -> dict[str, np.random.Generator]:
    """A generator per source of chance, the same for every engine."""
    children = np.random.SeedSequence(check_count("seed", seed, least=0)).spawn(len(STREAMS))
    return {
        name: np.random.default_rng(child) for name, child in zip(STREAMS, children, strict=True)
    }


class Late:
    """A signal that is seen `delay` seconds later; between two samples by the polynomial that its
    values (and rates) give.
    """

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._past: deque[tuple[float, np.ndarray, np.ndarray | None]] = deque()

    def push(self, t: float, value: np.ndarray, rate: np.ndarray | None = None) -> None:
        """The signal at t; a second one at the same time replaces the first."""
        if self._past and self._past[-1][0] == t:
            self._past.pop()
        self._past.append((t, value, rate))

    def read(self, t: float, *, held: bool = False) -> np.ndarray:
        """The signal at t − delay; held: the value of the last sample before it. Before the first
        sample it is as at the first.
        """
        past, at = self._past, t - self._delay
        while len(past) > 1 and past[1][0] <= at + 1e-12:
            past.popleft()
        t0, y0, r0 = past[0]
        if held or len(past) == 1 or at <= t0:
            return y0
        t1, y1, r1 = past[1]
        h = t1 - t0
        x = (at - t0) / h
        line: np.ndarray = y0 + x * (y1 - y0)
        if r0 is not None and r1 is not None:
            line += x * (1.0 - x) * ((1.0 - x) * (h * r0 - (y1 - y0)) - x * (h * r1 - (y1 - y0)))
        return line


class Sensors:
    """Encoders, speeds and torques of one robot."""

    def __init__(
        self, robot: Robot, model: SensorModel, generators: dict[str, np.random.Generator]
    ) -> None:
        nv, self._generators = robot.nv, generators
        one_dof = [node for node in robot.tree.independent if node.kind.nq == 1]
        self._at = np.array([robot.tree.q_index[node.name] for node in one_dof], dtype=int)
        self._v = np.array([robot.tree.v_index[node.name] for node in one_dof], dtype=int)
        self._plain = len(one_dof) == robot.nq
        self._resolution = self._values("encoder_resolution", model, nv)
        self._encoder_noise = self._values("encoder_noise", model, nv)
        self._speed_noise = self._values("speed_noise", model, nv)
        self._torque_noise = self._values("torque_noise", model, nv)
        self._bias = self._values("torque_bias", model, nv)
        if self._resolution is not None:
            self._steps = np.where(self._resolution > 0.0, self._resolution, 1.0)[self._v]
            self._counted = (self._resolution > 0.0)[self._v]
            self._all_counted = bool(
                self._encoder_noise is None
                and self._counted.all()
                and self._plain
                and np.array_equal(self._at, self._v)
                and np.array_equal(self._at, np.arange(robot.nq))
            )
        self._cutoff = model.speed_cutoff
        self._q, self._dq = Late(model.encoder_delay), Late(model.encoder_delay)
        self._tau = Late(model.torque_delay)
        self._late = model.encoder_delay > 0.0
        self._late_torque = model.torque_delay > 0.0
        self._last: tuple[float, np.ndarray, np.ndarray] | None = None

    @staticmethod
    def _values(name: str, model: SensorModel, nv: int) -> np.ndarray | None:
        values = spread(name, getattr(model, name), nv, "joint")
        return values if np.any(values) else None

    def motion(self, t: float, q: np.ndarray, dq: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Measured (q, dq) at a tick of the controller."""
        if self._late:
            # positions on a curve that their speeds know; quaternions on a line, which is as good
            # at this distance
            self._q.push(t, q, dq if self._plain else None)
            self._dq.push(t, dq)
            q, dq = self._q.read(t), self._dq.read(t)
        seen = self._encoded(q)
        if self._cutoff is not None:
            return seen, self._differenced(t, seen, dq, self._cutoff)
        if self._speed_noise is not None:
            dq = dq + self._speed_noise * self._generators["speed"].standard_normal(len(dq))
        return seen, dq

    def _encoded(self, q: np.ndarray) -> np.ndarray:
        if self._resolution is None and self._encoder_noise is None:
            return q
        if self._resolution is not None and self._all_counted:
            counted: np.ndarray = np.rint(q / self._steps) * self._steps
            return counted
        seen, x = q.copy(), q[self._at]
        if self._encoder_noise is not None:
            drawn = self._generators["encoder"].standard_normal(len(self._encoder_noise))
            x = x + (self._encoder_noise * drawn)[self._v]
        if self._resolution is not None:
            x = np.where(self._counted, np.rint(x / self._steps) * self._steps, x)
        seen[self._at] = x
        return seen

    def _differenced(self, t: float, seen: np.ndarray, dq: np.ndarray, cutoff: float) -> np.ndarray:
        """Speeds of one-DOF joints from their encoders: a backward difference through a low-pass of
        first order.
        """
        speed = dq.copy()
        if self._last is not None:
            t0, seen0, speed0 = self._last
            if t <= t0:
                return speed0
            dt = t - t0
            keep = np.exp(-2.0 * np.pi * cutoff * dt)
            speed[self._v] = (
                keep * speed0[self._v] + (1.0 - keep) * (seen[self._at] - seen0[self._at]) / dt
            )
        self._last = (t, seen, speed)
        return speed

    def torque(self, t: float, tau: np.ndarray) -> np.ndarray:
        """Measured torque at a tick: what drives the joint, from this moment on."""
        if self._late_torque:
            self._tau.push(t, tau)
            tau = self._tau.read(t, held=True)
        if self._torque_noise is not None:
            tau = tau + self._torque_noise * self._generators["torque"].standard_normal(len(tau))
        return tau if self._bias is None else tau + self._bias
