"""What of a model or its signals must be expected by somebody before a controller may use it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thetahat.data.velocities import all_single_dof
from thetahat.dynamics import rigid_body
from thetahat.model.robot import Robot
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.config import GateRules
from thetahat.online.gate import Score
from thetahat.online.model_change import is_shown, measured_ratio, model_change, surprises
from thetahat.online.signal_check import SpeedCheck, TorqueCheck

POSTURES = 120  # samples on which models are compared: four seconds of them


class Surprises:
    """Keeps the last samples and comparisons of signals; `sentence` judges a model by them."""

    def __init__(self, robot: Robot, rules: GateRules, min_speed: np.ndarray) -> None:
        self._robot, self._expect = robot, tuple(rules.expect)
        if rules.monitor is not None and rules.monitor.payload_link is not None:
            self._expect = (*self._expect, "payload")
        names = robot.velocity_names
        self._speeds = SpeedCheck(names, min_speed) if all_single_dof(robot) else None
        self._torques = TorqueCheck(names)
        self._ring = [np.zeros((POSTURES, n)) for n in (robot.nq, robot.nv, robot.nv)]
        self._count = 0
        # (t, q, dq, torques) since the last update: compared there, for a control cycle has no
        # time for it
        self._waiting: list[tuple[float, np.ndarray, np.ndarray, np.ndarray | None]] = []

    def reset(self) -> None:
        """Forget what was measured before a gap."""
        self._waiting.clear()
        if self._speeds is not None:
            self._speeds.reset()

    def note_command(self, commanded: np.ndarray, measured: np.ndarray) -> None:
        """A cycle's torques, (nv,) each [N·m or N]."""
        self._torques.add(commanded, measured)

    def add(self, t: float, sample: FilteredSample, *, kept: np.ndarray) -> None:
        """A filtered sample; kept: (nv,) bool, which joints move."""
        q, dq = sample.q[0], sample.dq[0]
        if len(self._waiting) < POSTURES:
            self._waiting.append((t, q.copy(), dq.copy(), self._torques.latest()))
        if np.any(kept):
            at = self._count % POSTURES
            for array, value in zip(self._ring, (q, dq, sample.ddq[0]), strict=True):
                array[at] = value
            self._count += 1

    def update(self) -> None:
        """Compare the signals of the samples since the last update."""
        for t, q, dq, torques in self._waiting:
            if self._speeds is not None:
                self._speeds.add(t, q, dq)
            if torques is not None:
                self._torques.tick(t, torques, rigid_body.gravity(self._robot, q))
        self._waiting.clear()

    @property
    def signals(self) -> str:
        """Which signals do not agree with each other; "" where they do, or that is expected."""
        if "signals" in self._expect:
            return ""
        return self._torques.sentence or (self._speeds.sentence if self._speeds else "")

    def sentence(self, x: np.ndarray | None, score: Score | None, noise: np.ndarray) -> str:
        """Why a model x = [θ; drive] needs to be expected; "" where it does not, or is. score: of
        held-out samples; noise: (nv,) of the torques.
        """
        wrong = self.signals
        if wrong or x is None or score is None:
            return wrong
        rows = np.maximum(score.rows, 1)
        torque = measured_ratio(self._robot, score.cross / rows, score.nominal2 / rows, noise)
        if not np.any(is_shown(torque)):
            return ""
        identified, n = self._robot.with_parameters(x), min(self._count, POSTURES)
        q, dq, ddq = (array[:n] for array in self._ring)
        change = model_change(self._robot, identified, q, dq, ddq, noise=noise)
        if change is None:
            return ""
        change = replace(change, torque=torque)
        return surprises(change, self._robot.velocity_names, self._expect)
