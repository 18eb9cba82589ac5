"""Random problems for consistent fits: robots of 2 to 44 joints, noise, motion that shows little,
priors that contradict the data, bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from data_paths import example_robot

import thetahat as th
from thetahat import robots
from thetahat.identification.consistency.constraints import Bounds, Tie
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns
from thetahat.model import parameters

SMALL = ("double_pendulum", "arm4", "arm7", "ur5", "kinova", "panda", "xarm7", "solo12")
LARGE = ("allegro", "baxter", "talos", "valkyrie")


@cache
def robot(name: str) -> th.Robot:
    """A robot with all four drive terms as columns; its own drive values are plausible."""
    found = th.load(robots.path(name) if name in robots.names() else example_robot(name))
    found = found.without_drive().with_drive(viscous=True, coulomb=True, offset=True, armature=True)
    columns, rng = Columns(found), np.random.default_rng(7)
    x = columns.x0.copy()
    x[columns.inertial :] = rng.uniform(0.01, 0.3, columns.count - columns.inertial)
    return columns.apply(x)


def motion(
    robot: th.Robot, rng: np.random.Generator, count: int, *, still: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random states; a share of the joints never moves."""
    q = th.random_configuration(robot, rng, count)
    dq, ddq = rng.normal(size=(count, robot.nv)), 3.0 * rng.normal(size=(count, robot.nv))
    stopped = rng.random(robot.nv) < still
    if robot.nq == robot.nv:
        q[:, stopped] = 0.2
    dq[:, stopped], ddq[:, stopped] = 0.0, 0.0
    return q, dq, ddq


def folded(
    robot: th.Robot, rng: np.random.Generator, *, count: int, noise: float, still: float = 0.0
) -> tuple[Information, th.Samples]:
    """Information of a simulated log: inverse dynamics plus noise, relative to each joint's RMS
    torque.
    """
    q, dq, ddq = motion(robot, rng, count, still=still)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    tau = tau + noise * np.sqrt(np.mean(tau**2, axis=0)) * rng.normal(size=tau.shape)
    samples = th.Samples(q=q, dq=dq, ddq=ddq, tau=tau)
    return information(robot, samples), samples


@dataclass(frozen=True)
class Case:
    name: str
    information: Information
    estimator: th.Consistent
    bounded: bool

    def __str__(self) -> str:
        e = self.estimator
        return (
            f"{self.name} {e.metric} weight {e.weight:.1g} rank"
            f" {self.information.rank}/{len(self.information.base)} bounds {self.bounded}"
        )


def random_case(seed: int, names: tuple[str, ...] = SMALL + LARGE) -> Case:
    """One problem, all of it decided by its seed."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(names))
    arm = robot(name)
    kind, bodies = rng.integers(6), arm.body_names
    tied = (Tie(bodies[0], bodies[1]),) if kind == 3 else ()
    if tied:  # two bodies that are alike
        theta = arm.theta.copy()
        theta[10:20] = theta[:10]
        arm = arm.with_parameters(theta)
    count = int(10 ** rng.uniform(0.7, 2.5))
    info, _ = folded(
        arm,
        rng,
        count=count,
        noise=10 ** rng.uniform(-5.0, 0.3),
        still=float(rng.choice([0.0, 0.0, 0.3, 0.8])),
    )
    metric = str(rng.choice(["euclidean", "entropic"]))
    weight = (
        float(10 ** rng.uniform(-4.0, 4.0)) if metric == "entropic" or rng.random() < 0.8 else 0.0
    )
    bounds, total, frozen = {}, None, ()
    if kind == 0:
        mass = arm.theta.reshape(-1, 10)[:, 9]
        bounds = {
            bodies[b]: Bounds(mass=tuple(np.sort(rng.uniform(0.3, 3.0, 2)) * max(mass[b], 0.1)))
            for b in rng.choice(len(bodies), 2, replace=False)
        }
        total = tuple(np.sort(rng.uniform(0.2, 3.0, 2)) * mass.sum())
    elif kind == 1:
        bounds = {
            bodies[-1]: Bounds(com_ellipsoid=(rng.normal(size=3) * 0.1, rng.uniform(0.01, 0.3, 3)))
        }
    elif kind == 2:
        frozen = (bodies[0],)
        total = float(arm.theta.reshape(-1, 10)[:, 9].sum() * rng.uniform(0.8, 1.2))
    prior = _prior(arm, rng, physical=metric == "entropic" or bool(frozen))
    estimator = th.Consistent(
        prior=prior,
        weight=weight,
        metric=metric,
        constraints=th.Constraints(bounds=bounds, total_mass=total, frozen=frozen, tied=tied),
    )
    return Case(name, info, estimator, kind < 3)


def _prior(arm: th.Robot, rng: np.random.Generator, *, physical: bool) -> np.ndarray:
    """A guess that contradicts the data: other masses and centres, and now and then no physical
    body at all.
    """
    theta = arm.theta.reshape(-1, 10).copy()
    wrong = theta * 10 ** rng.uniform(-1.0, 1.0, (len(theta), 1))
    if not physical and rng.random() < 0.5:
        return (wrong * rng.uniform(-1.0, 2.0, wrong.shape)).ravel()
    return np.concatenate(
        [
            parameters.transform(row, np.eye(3), 0.05 * rng.normal(size=3))
            for row in parameters.project(wrong)
        ]
    )
