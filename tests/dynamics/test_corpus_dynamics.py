"""Every file of the corpus that an engine reads too: the same torques, at random states."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from data_paths import NO_EXAMPLES, NO_SHARED, corpus

import thetahat as th
from oracles import mujoco_bridge, pinocchio_bridge
from thetahat.errors import RobotWarning, ThetahatError
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

STATES = 12
# Of Σ_k |Y_jk θ_k|. Odd files have links of a gram hanging on tonnes, metres from the joint: what
# cancels inside a sum of positive terms is bounded by their size only up to the depth of the tree.
TOLERANCE = 1e-11
# MuJoCo computes about the centre of mass of whole trees; on a gripper and a mobile base it is off
# by 9e-11 and 5e-11 from an evaluation in extended precision, from which this project is off by
# 2e-14 and 0.
MUJOCO_TOLERANCE = 1e-9

URDF = corpus("*.urdf")
MJCF = [
    (name, path)
    for name, path in corpus("*.xml")
    if "mjcf_stripped" in name or "dm_control" in name or "bullet3" in name
]


def loaded(path: Path) -> Robot | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        try:
            robot = th.load(path)
        except ThetahatError:
            return None
    return robot if robot.nv else None


def states(robot: Robot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    q = th.random_configuration(robot, rng, STATES)
    return q, 2.0 * rng.normal(size=(STATES, robot.nv)), 4.0 * rng.normal(size=(STATES, robot.nv))


def size(robot: Robot, state: tuple[np.ndarray, ...]) -> np.ndarray:
    """Σ_k |Y_jk θ_k|, (states, nv)."""
    return np.sum(np.abs(th.regressor(robot, *state) * robot.theta), axis=-1)


@pytest.mark.skipif(not URDF, reason=f"{NO_SHARED}; {NO_EXAMPLES}")
def test_every_urdf_that_pinocchio_reads() -> None:
    import pinocchio

    compared, failed = 0, []
    for name, path in URDF:
        robot = loaded(path)
        if robot is None or any(node.kind is JointKind.PLANAR for node in robot.tree.nodes):
            # Pinocchio takes no notice of a planar joint's axis; test_laws compares planar joints
            # on models built by hand
            continue
        try:
            pinocchio.buildModelFromUrdf(str(path))
        except Exception:  # whatever type Boost makes of it
            continue
        oracle = pinocchio_bridge.from_urdf(path, robot, mimic=False)
        state = states(robot)
        error = np.abs(
            th.inverse_dynamics(robot, *state, rigid=True) - oracle.inverse_dynamics(*state)
        )
        if np.any(error > TOLERANCE * size(robot, state) + 1e-300):
            failed.append((name, float(np.max(error))))
        compared += 1
    assert not failed
    assert compared >= 200


@pytest.mark.skipif(not MJCF, reason=NO_SHARED)
def test_every_mjcf_that_mujoco_compiles() -> None:
    import mujoco

    compared, failed = 0, []
    for name, path in MJCF:
        robot = loaded(path)
        if robot is None:
            continue
        try:
            mujoco.MjModel.from_xml_path(str(path))
        except ValueError:
            continue
        robot = mujoco_bridge.comparable(robot)
        oracle = mujoco_bridge.from_mjcf(path, robot)
        state = states(robot)
        error = np.abs(th.inverse_dynamics(robot, *state) - oracle.inverse_dynamics(*state))
        scale = size(robot, state) + np.abs(robot.drive.torque(*state[1:], q=state[0]))
        if np.any(error > MUJOCO_TOLERANCE * scale + 1e-300):
            failed.append((name, float(np.max(error / np.maximum(scale, 1e-300)))))
        compared += 1
    assert not failed
    assert compared >= 60
