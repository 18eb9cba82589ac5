"""Errors of simulated motion against the horizon, beside those of the nominal robot.

Simulations begin at states of a log, many of them, and drift away from it. At every horizon the
difference to the log is taken, per joint and at the tip; a joint that is half a turn off is lost,
and no further error of it is counted.

Two robots are compared start by start: with E the length of the vector of all joints' errors,

    ratio = exp(mean log(E / E_nominal))

and the motion is worse where the ratio is above `WORSE` by more than chance makes of so few starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from thetahat.dynamics.rigid_body import body_frames
from thetahat.identification.verdict_reason import Fields
from thetahat.model.joint_units import joint_units
from thetahat.model.parameters import to_mass_com_inertia
from thetahat.model.robot import Robot

HORIZONS = (0.1, 0.5, 1.0, 2.0, 5.0)  # [s]
LOST = math.pi  # [rad or m] of a joint's error: beyond it, it is lost
WORSE = 1.05  # ratio of errors: worse than the nominal robot, as of torques in verdict.py
CERTAIN = 0.975  # that a mean of so few logarithms is above zero, by Student's law
FEWEST = 4  # starts to compare two robots by
LEAST = 1e-12  # [rad or m] of an error, so that it has a logarithm


@dataclass(frozen=True, eq=False)
class Tip:
    """A point whose motion is measured in space: the centre of mass of the last body."""

    body: int
    point: np.ndarray  # (3,) [m] in the body's frame
    name: str

    @staticmethod
    def of(robot: Robot) -> Tip:
        """Return the tip of the longest chain."""
        tree = robot.tree
        depth: list[int] = []
        for node in tree.nodes:
            depth.append(1 if node.parent < 0 else depth[node.parent] + 1)
        body = max(range(len(tree.bodies)), key=lambda k: depth[tree.bodies[k]])
        com = to_mass_com_inertia(robot.theta.reshape(-1, 10))[1][body]
        return Tip(body, np.array(com), robot.body_names[body])

    def at(self, robot: Robot, q: np.ndarray) -> np.ndarray:
        """Return where it is, (rows, 3) [m]."""
        R, p = body_frames(robot, q)
        where: np.ndarray = p[:, self.body] + R[:, self.body] @ self.point
        return where


@dataclass(frozen=True, eq=False)
class HorizonErrors:
    """Errors of one robot at one horizon."""

    joints: np.ndarray  # (starts, joints) [rad or m]
    tip: np.ndarray  # (starts,) [m]

    @staticmethod
    def of(robot: Robot, tip: Tip, simulated: np.ndarray, logged: np.ndarray) -> HorizonErrors:
        """Compare simulated with logged positions, (starts, joints) each."""
        error = np.nan_to_num(simulated - logged, nan=LOST, posinf=LOST, neginf=-LOST)
        error = np.clip(error, -LOST, LOST)
        if not len(error):
            return HorizonErrors(error, np.zeros(0))
        away = tip.at(robot, logged + error) - tip.at(robot, logged)
        return HorizonErrors(error, np.linalg.norm(away, axis=1))

    @property
    def rms(self) -> np.ndarray:
        """RMS over starts, (joints,)."""
        out: np.ndarray = np.sqrt(np.mean(self.joints**2, axis=0))
        return out


@dataclass(frozen=True)
class Comparison:
    """Errors of a robot relative to those of the nominal one, at one horizon."""

    horizon: float  # [s]
    starts: int
    ratio: float  # geometric mean over starts
    tip_ratio: float
    worse: bool


@dataclass(frozen=True, eq=False)
class RolloutErrors:
    """Errors at every horizon that the log is long enough for."""

    robot: Robot
    tip: Tip
    driven_by: str  # "torque" or "command", as logged
    horizons: tuple[float, ...]
    model: tuple[HorizonErrors, ...]
    nominal: tuple[HorizonErrors, ...] | None
    longest: float  # [s] horizon up to which robots are compared

    @staticmethod
    def of(
        robot: Robot,
        tip: Tip,
        driven_by: str,
        model: Mapping[float, HorizonErrors],
        nominal: Mapping[float, HorizonErrors] | None,
        *,
        longest: float,
    ) -> RolloutErrors | None:
        """Return the errors by horizon; None where there are none."""
        if not model:
            return None
        beside = None if nominal is None else tuple(nominal[horizon] for horizon in model)
        return RolloutErrors(
            robot, tip, driven_by, tuple(model), tuple(model.values()), beside, longest
        )

    @property
    def comparison(self) -> Comparison | None:
        """The robot beside the nominal one, at the longest horizon that has enough starts."""
        if self.nominal is None:
            return None
        at = [
            k
            for k, horizon in enumerate(self.horizons)
            if horizon <= self.longest and len(self.model[k].tip) >= FEWEST
        ]
        if not at:
            return None
        mine, theirs = self.model[at[-1]], self.nominal[at[-1]]
        logs = np.log(_lengths(mine) / _lengths(theirs))
        tips = np.log(np.maximum(mine.tip, LEAST) / np.maximum(theirs.tip, LEAST))
        count = len(logs)
        error = float(np.std(logs, ddof=1)) / math.sqrt(count)
        mean = float(np.mean(logs))
        worse = bool(mean > math.log(WORSE) and mean > stdtrit(count - 1, CERTAIN) * error)
        return Comparison(
            self.horizons[at[-1]], count, math.exp(mean), math.exp(float(np.mean(tips))), worse
        )

    def as_data(self) -> Fields:
        """Return the table as estimate.json holds it; lists are by horizon."""
        units = joint_units(self.robot)
        joints = [
            {
                "name": name,
                "unit": "rad" if units[j][0] == "N·m" else "m",
                "rms": [float(each.rms[j]) for each in self.model],
                "rms_nominal": None
                if self.nominal is None
                else [float(each.rms[j]) for each in self.nominal],
            }
            for j, name in enumerate(self.robot.velocity_names)
        ]
        compared = self.comparison
        return {
            "driven_by": self.driven_by,
            "horizons": list(self.horizons),
            "starts": [len(each.tip) for each in self.model],
            "joints": joints,
            "tip": {
                "link": self.tip.name,
                "mm": [_rms_mm(each.tip) for each in self.model],
                "mm_nominal": None
                if self.nominal is None
                else [_rms_mm(each.tip) for each in self.nominal],
            },
            "compared": None
            if compared is None
            else {
                "horizon": compared.horizon,
                "starts": compared.starts,
                "ratio": compared.ratio,
                "tip_ratio": compared.tip_ratio,
                "worse": compared.worse,
            },
        }


def _lengths(errors: HorizonErrors) -> np.ndarray:
    out: np.ndarray = np.maximum(np.linalg.norm(errors.joints, axis=1), LEAST)
    return out


def _rms_mm(tip: np.ndarray) -> float:
    return 1e3 * float(np.sqrt(np.mean(tip**2)))
