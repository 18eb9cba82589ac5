"""What of a model or its signals must be expected by somebody before a controller may use it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thetahat.data.velocities import all_single_dof
from thetahat.dynamics import rigid_body
from thetahat.model.robot import Robot
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.config import GateRules
from thetahat.online.gate_evidence import NominalSums, Score
from thetahat.online.model_change import is_shown, measured_ratio, model_change, surprises
from thetahat.online.signal_check import SpeedCheck, TorqueCheck

CARRIED = 0.5  # of a joint's RMS torque: what bodies must take of it to be judged by it
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

    @property
    def torques(self) -> TorqueCheck:
        """Takes what was commanded and measured."""
        return self._torques

    def add(self, t: float, sample: FilteredSample, *, kept: bool) -> None:
        """A filtered sample; kept: whether any joint moves."""
        q, dq = sample.q[0], sample.dq[0]
        if len(self._waiting) < POSTURES:
            self._waiting.append((t, q.copy(), dq.copy(), self._torques.latest()))
        if kept:
            at = self._count % POSTURES
            ring_q, ring_dq, ring_ddq = self._ring
            ring_q[at], ring_dq[at], ring_ddq[at] = q, dq, sample.ddq[0]
            self._count += 1

    def update(self) -> None:
        """Compare the signals of the samples since the last update."""
        for t, q, dq, torques in self._waiting:
            if self._speeds is not None:
                self._speeds.add(t, q, dq)
            if torques is not None:
                self._torques.tick(t, torques, rigid_body.gravity(self._robot, q), dq)
        self._waiting.clear()

    @property
    def signals(self) -> str:
        """Which signals do not agree with each other; "" where they do, or that is expected."""
        if "signals" in self._expect:
            return ""
        return self._torques.sentence or (self._speeds.sentence if self._speeds else "")

    def sentence(self, x: np.ndarray | None, score: Score | None, noise: np.ndarray) -> str:
        """Why a model x = [θ; drive] needs to be expected, compared with the nominal robot with its
        friction and without (a file may be wrong about friction by any factor); "" where it does
        not, or is. score: of held-out samples; noise: (nv,) of the torques.
        """
        wrong = self.signals
        if wrong or x is None or score is None:
            return wrong
        rows = np.maximum(score.rows, 1)
        nominal = [NominalSums(score.nominal2, score.cross)]
        nominal += [] if score.whole is None else [score.whole]
        torque = _nearest_to_one(
            [
                measured_ratio(self._robot, sums.cross / rows, sums.square / rows, noise)
                for sums in nominal
            ]
        )
        if not np.any(is_shown(torque)):
            return ""
        identified, n = self._robot.with_parameters(x), min(self._count, POSTURES)
        q, dq, ddq = (array[:n] for array in self._ring)
        change = model_change(self._robot, identified, q, dq, ddq, noise=noise)
        if change is None:
            return ""
        # a joint whose torque is mostly friction, by either robot, says little about its bodies
        carried = np.ones(self._robot.nv, dtype=bool)
        for robot in (self._robot, identified):
            bodies, whole = (
                np.mean(rigid_body.inverse_dynamics(robot, q, dq, ddq, rigid=rigid) ** 2, axis=0)
                for rigid in (True, False)
            )
            carried &= bodies > CARRIED**2 * whole
        change = replace(change, torque=np.where(carried, torque, np.nan))
        return surprises(change, self._robot.velocity_names, self._expect)


def _nearest_to_one(ratios: list[np.ndarray]) -> np.ndarray:
    """(nv,) of several ratios the one that is nearest to one; NaN where any is."""
    with np.errstate(all="ignore"):
        far = np.abs(np.log(np.maximum(np.array(ratios), 1e-9)))
    best = np.argmin(np.where(np.isnan(far), -1.0, far), axis=0)  # NaN first
    return np.asarray(np.take_along_axis(np.array(ratios), best[None], axis=0)[0])
