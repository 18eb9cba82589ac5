"""The maker's library with no arm behind it: the same names as pylibfranka's, and a simple arm that
answers every millisecond, judges torques as the real one does, and can break.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np

STEP, LIMITS = 1.0, np.array([87.0] * 4 + [12.0] * 3)


class FrankaException(RuntimeError): ...


class NetworkException(FrankaException): ...


class ControlException(FrankaException): ...


class RealtimeConfig:
    kIgnore, kEnforce = 1, 0


class Torques:
    def __init__(self, tau_J: list[float]) -> None:
        assert len(tau_J) == 7
        self.tau_J, self.motion_finished = tau_J, False


class Errors(str):
    def __bool__(self) -> bool:
        return len(self) > 0


class Arm:
    """What is behind the library; one for all connections of a test."""

    def __init__(self, kind: str = "") -> None:
        self.kind, self.q, self.dq = kind, 0.1 * np.arange(7), np.zeros(7)
        self.inertia = np.array([1.5, 1.5, 1.0, 1.0, 0.2, 0.15, 0.05])
        self.time, self.begun, self.moving = 10.0, time.monotonic(), False
        self.last = np.zeros(7)
        self.sent: list[np.ndarray] = []

    def state(self) -> SimpleNamespace:
        time.sleep(1e-3)
        self.time += 1e-3
        late = time.monotonic() - self.begun > 0.3
        if late and self.kind == "vanishes":
            raise NetworkException("libfranka: UDP receive: Timeout")
        q = np.full(7, np.nan) if late and self.kind == "not a number" else self.q
        q = np.zeros(100) if late and self.kind == "huge" else q
        return SimpleNamespace(
            q=q.tolist(),
            dq=self.dq.tolist(),
            tau_J=(self.last + self.gravity()).tolist(),
            time=SimpleNamespace(to_sec=lambda t=self.time: t),
            current_errors=Errors("joint_reflex" if late and self.kind == "reflex" else ""),
        )

    def gravity(self) -> np.ndarray:
        return np.array([0.0, -20.0, 3.0, 12.0, 1.0, 2.0, 0.0])

    def obey(self, tau: np.ndarray) -> None:
        if not self.moving:
            raise ControlException("libfranka: no motion")
        if np.max(np.abs(tau - self.last)) > STEP:
            raise ControlException("libfranka: controller_torque_discontinuity")
        if np.any(np.abs(tau) > LIMITS) or not np.all(np.isfinite(tau)):
            raise ControlException("libfranka: tau_j_range_violation")
        self.sent.append(tau)
        self.last = tau
        self.dq = self.dq + 1e-3 * (tau / self.inertia - 2.0 * self.dq)
        self.q = self.q + 1e-3 * self.dq


def library(arm: Arm) -> Any:
    """A module in the place of pylibfranka."""

    class Model:
        def gravity(self, state: Any) -> list[float]:
            return arm.gravity().tolist()

        def coriolis(self, state: Any) -> list[float]:
            return [0.0] * 7

    class ActiveControlBase:
        def readOnce(self) -> tuple[Any, Any]:
            return arm.state(), SimpleNamespace(to_sec=lambda: 1e-3)

        def writeOnce(self, command: Torques) -> None:
            arm.obey(np.array(command.tau_J))
            if command.motion_finished:
                arm.moving, arm.dq, arm.last = False, np.zeros(7), np.zeros(7)

    class Robot:
        def __init__(self, robot_ip_address: str, realtime_config: int) -> None:
            assert realtime_config == RealtimeConfig.kIgnore
            if arm.kind == "absent":
                raise NetworkException("libfranka: Connection timeout")

        def read_once(self) -> Any:
            return arm.state()

        def load_model(self) -> Model:
            return Model()

        def start_torque_control(self) -> ActiveControlBase:
            arm.moving = True
            return ActiveControlBase()

    return SimpleNamespace(
        Robot=Robot,
        Model=Model,
        ActiveControlBase=ActiveControlBase,
        Torques=Torques,
        RealtimeConfig=RealtimeConfig,
    )
