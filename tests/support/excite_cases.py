"""What the tests of trajectories and of their design share."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from data_paths import example_robot

import thetahat as th
from oracles import pinocchio_bridge
from thetahat import robots
from thetahat.excite.motion_limits import MotionLimits
from thetahat.excite.trajectories import Fourier, Moves, Sinusoids, Spline, tick_tock
from thetahat.excite.trajectory import Motion, Trajectory
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.model.tree import Limits

FRICTION = {"viscous": True, "coulomb": True, "offset": True}


HELD = 1.0 + 1e-9  # a share of a limit; torques by another program round otherwise


def shipped(name: str = "arm4") -> Robot:
    """A robot of the package with friction columns."""
    return th.load(robots.path(name)).with_drive(**FRICTION)


def arm(name: str) -> Robot:
    """An arm of example-robot-data with friction columns; the Panda's fingers are locked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        robot = th.load(example_robot(name))
    return lock(robot, [joint for joint in robot.joint_names if "finger" in joint]).with_drive(
        **FRICTION
    )


def one_of_each(seed: int = 0) -> dict[str, Trajectory]:
    """Every kind of trajectory, for the four joints of the shipped arm, with coefficients at
    random.
    """
    rng, robot = np.random.default_rng(seed), shipped()
    names, nv = robot.joint_names, robot.nv
    draw = rng.normal
    return {
        "fourier": Fourier.at_rest(
            robot, 7.0, centre=draw(size=nv), a=draw(size=(nv, 4)), b=draw(size=(nv, 4))
        ),
        "fourier twice": Fourier.at_rest(
            robot, 3.0, centre=draw(size=nv), a=draw(size=(nv, 2)), b=draw(size=(nv, 2)), periods=2
        ),
        "sinusoids": Sinusoids(
            names,
            6.0,
            draw(size=nv),
            draw(size=(nv, 3)),
            rng.uniform(0.1, 1.0, (nv, 3)),
            draw(size=(nv, 3)),
            1.5,
        ),
        "sinusoids all ramp": Sinusoids(
            names,
            2.0,
            draw(size=nv),
            draw(size=(nv, 1)),
            np.full((nv, 1), 0.5),
            draw(size=(nv, 1)),
            1.0,
        ),
        "moves": Moves(names, draw(size=(5, nv)), rng.uniform(0.5, 2.0, 4), 0.3),
        "tick-tock": tick_tock(robot, draw(size=nv), draw(size=nv), time=1.2, repeats=2),
        "spline": Spline(names, np.array([0.0, 0.7, 1.5, 2.9, 3.3, 5.0]), draw(size=(6, nv))),
    }


def shares(limits: MotionLimits, motion: Motion, tau: np.ndarray) -> dict[str, float]:
    """The largest share of each kind of limit, by plain comparison with torques that somebody else
    computed.
    """
    middle, half = (limits.lower + limits.upper) / 2, (limits.upper - limits.lower) / 2
    return {
        "position": float(np.max(np.abs(motion.q - middle) / half)),
        "velocity": float(np.max(np.abs(motion.dq) / limits.velocity)),
        "acceleration": float(np.max(np.abs(motion.ddq) / limits.acceleration)),
        "jerk": float(
            np.max(np.abs(np.diff(motion.ddq, axis=0) / np.diff(motion.t)[:, None]) / limits.jerk)
        ),
        "torque": float(np.max(np.abs(tau) / limits.torque)),
    }


def torques(robot: Robot, motion: Motion) -> np.ndarray:
    """Rigid torques by Pinocchio, and the drive's by its formula."""
    tau = pinocchio_bridge.from_robot(robot).inverse_dynamics(motion.q, motion.dq, motion.ddq)
    drive = robot.drive
    return (
        tau
        + drive.viscous * motion.dq
        + drive.coulomb * np.sign(motion.dq)
        + drive.offset
        + drive.armature * motion.ddq
    )


def with_limits(robot: Robot, **values: Limits) -> Robot:
    nodes = tuple(
        replace(node, joint=replace(node.joint, limits=values.get(node.name, node.limits)))
        for node in robot.tree.nodes
    )
    return replace(robot, tree=replace(robot.tree, nodes=nodes))
