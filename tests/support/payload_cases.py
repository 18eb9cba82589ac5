"""Robots that hold something, simulated by Pinocchio: its engine gets the payload as an inertia of
its own, never as our ten numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pinocchio as pin
from data_paths import example_robot

import thetahat as th
from oracles import pinocchio_bridge
from thetahat import robots
from thetahat.data.samples import Samples
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information, information
from thetahat.identification.payload.payload_difference import (
    payload_from_difference,
    payload_on_link,
)
from thetahat.identification.payload.payload_result import Payload
from thetahat.identification.solve import solve
from thetahat.model.lock_joints import lock

PERIOD = 1e-3  # [s]
PANDA, TOOL = "panda", "panda_hand_tcp"
TERMS = {"viscous": True, "coulomb": True, "offset": True}


@dataclass(frozen=True)
class Bar:
    """A bar of unequal sides with a lump on it, off the frame's origin and turned: none of its ten
    numbers is zero.
    """

    mass: float = 1.5  # [kg]
    sides: tuple[float, float, float] = (0.30, 0.06, 0.04)  # [m]
    centre: tuple[float, float, float] = (0.04, -0.03, 0.08)  # [m] of the bar
    angles: tuple[float, float, float] = (0.4, -0.7, 1.1)  # [rad] roll, pitch, yaw

    @property
    def inertia(self) -> pin.Inertia:
        """Pinocchio's: a box and a sphere at its end, a quarter of the mass."""
        turn = pin.rpy.rpyToMatrix(*self.angles)
        box = pin.Inertia.FromBox(0.75 * self.mass, *self.sides).se3Action(
            pin.SE3(turn, np.array(self.centre))
        )
        end = np.array(self.centre) + turn @ np.array([0.4 * self.sides[0], 0.02, 0.0])
        return box + pin.Inertia.FromSphere(0.25 * self.mass, 0.03).se3Action(
            pin.SE3(np.eye(3), end)
        )


def robot(name: str) -> th.Robot:
    """An arm with friction and offsets of its own, to be identified; a gripper's fingers
    are held.
    """
    found = th.load(robots.path(name) if name in robots.names() else example_robot(name))
    found = lock(found, [joint for joint in found.joint_names if "finger" in joint])
    rng, nv = np.random.default_rng(7), found.nv
    drive = found.drive.with_values(
        viscous=rng.uniform(0.1, 0.6, nv),
        coulomb=rng.uniform(0.1, 0.8, nv),
        offset=rng.uniform(-0.3, 0.3, nv),
        armature=np.zeros(nv),
    )
    return replace(found, drive=drive).with_drive(**TERMS)


def path(
    robot: th.Robot,
    seconds: float,
    *,
    seed: int,
    rate: float = 0.1,
    moving: tuple[int, ...] | None = None,
) -> tuple[np.ndarray, ...]:
    """(q, q̇, q̈): five harmonics of `rate` [Hz] with random amplitudes, as identification papers
    drive their robots [Swevers1997].
    """
    rng = np.random.default_rng(seed)
    t = PERIOD * np.arange(round(seconds / PERIOD))
    rates = 2.0 * np.pi * rate * np.arange(1, 6)
    a, b = 0.5 * rng.normal(size=(2, 5, robot.nv))
    if moving is not None:
        still = np.setdiff1d(np.arange(robot.nv), moving)
        a[:, still] = b[:, still] = 0.0
    sine, cosine = np.sin(t[:, None] * rates), np.cos(t[:, None] * rates)
    q0 = rng.uniform(-0.5, 0.5, robot.nv)
    return (
        q0 + sine @ a + cosine @ b,
        (cosine * rates) @ a - (sine * rates) @ b,
        -(sine * rates**2) @ a - (cosine * rates**2) @ b,
    )


def torques(
    robot: th.Robot,
    states: tuple[np.ndarray, ...],
    *,
    load: pin.Inertia | None = None,
    link: str = "",
) -> np.ndarray:
    """Pinocchio's torques, with the payload welded to a link's frame, and the friction of the
    robot.
    """
    oracle = pinocchio_bridge.from_robot(robot)
    if load is not None:
        there = next(each for each in robot.links if each.name == link)
        joint = oracle.model.getJointId(robot.tree.nodes[robot.tree.bodies[there.body]].name)
        oracle.model.appendBodyToJoint(joint, load, pin.SE3(there.rotation, there.translation))
    q, dq, ddq = states
    drive = robot.drive
    return (
        oracle.inverse_dynamics(q, dq, ddq)
        + drive.viscous * dq
        + drive.coulomb * np.sign(dq)
        + drive.offset
    )


@dataclass(frozen=True, eq=False)
class Run:
    """A run without noise; `noisy` has the distribution of what folding it with noise gives, and no
    rows are touched.
    """

    robot: th.Robot
    samples: Samples

    @staticmethod
    def of(robot: th.Robot, states: tuple[np.ndarray, ...], **load: object) -> Run:
        q, dq, ddq = states
        return Run(robot, Samples(q=q, dq=dq, ddq=ddq, tau=torques(robot, states, **load)))

    @cached_property
    def clean(self) -> Information:
        return information(self.robot, self.samples)

    def noisy(self, rng: np.random.Generator, std: np.ndarray) -> Information:
        """White noise seen through a QR of n rows and p columns, whose span holds the torques:
        normal numbers on z, and χ²(n − p) of what is left.
        """
        factors = []
        for clean, sigma, rows in zip(self.clean.factors, std, self.clean.rows, strict=True):
            factor, p = clean.copy(), len(clean) - 1
            factor[:-1, -1] += sigma * rng.normal(size=p)
            factor[-1, -1] = sigma * np.sqrt(rng.chisquare(rows - p))
            factors.append(factor)
        return replace(self.clean, factors=tuple(factors))


def sensor_noise(robot: th.Robot) -> np.ndarray:
    """[N·m] of every joint, 0.3 at the shoulder to 0.1 at the wrist: what a Panda's torque sensors
    have.
    """
    return np.linspace(0.3, 0.1, robot.nv)


@cache
def case(
    name: str, link: str, bar: Bar = Bar(), seconds: float = 10.0
) -> tuple[th.Robot, Run, Run]:
    """(robot, loaded, unloaded), on two different motions."""
    arm = robot(name)
    return (
        arm,
        Run.of(arm, path(arm, seconds, seed=2), load=bar.inertia, link=link),
        Run.of(arm, path(arm, seconds, seed=1)),
    )


def truth(bar: Bar) -> np.ndarray:
    """In the order of PARTS, from Pinocchio's inertia."""
    inertia = bar.inertia
    return np.concatenate([[inertia.mass], inertia.lever, inertia.inertia[np.triu_indices(3)]])


def numbers(payload: Payload) -> tuple[np.ndarray, np.ma.MaskedArray]:
    """(values, standard deviations) in the order of PARTS."""
    upper = np.triu_indices(3)
    std = np.ma.concatenate(
        [
            np.ma.masked_invalid([np.nan if payload.mass_std is None else payload.mass_std]),
            payload.com_std,
            payload.inertia_std[upper],
        ]
    )
    return np.concatenate([[payload.mass], payload.com, payload.inertia_com[upper]]), std


def noisy_pair(
    name: str, link: str, seed: int, *, factor: float = 1.0, **options
) -> tuple[th.Robot, Information, Information]:
    arm, loaded, unloaded = case(name, link, **options)
    rng, std = np.random.default_rng(seed), factor * sensor_noise(arm)
    return arm, loaded.noisy(rng, std), unloaded.noisy(rng, std)


def every_way(
    arm: th.Robot, loaded: Information, unloaded: Information, link: str
) -> dict[str, Payload]:
    return {
        "difference": payload_from_difference(loaded, unloaded, link),
        "estimate": payload_on_link(loaded, solve(unloaded, LeastSquares(weights="joint")), link),
        "robot": payload_on_link(loaded, arm, link),
    }


def still_poses(arm: th.Robot, count: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    q = np.repeat(np.random.default_rng(seed).uniform(-1.5, 1.5, (count, arm.nv)), 500, axis=0)
    return q, np.zeros_like(q), np.zeros_like(q)
