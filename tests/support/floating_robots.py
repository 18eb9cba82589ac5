"""Floating robots on their feet, and exact logs of them: ground forces that carry the motion with
the least effort, found by least squares and not by the code under test.
"""

from __future__ import annotations

import numpy as np
import pytest
from data_paths import EXAMPLES, NO_EXAMPLES, example_robot, shared_file

import thetahat as th
from thetahat.dynamics import rigid_body
from thetahat.dynamics.configuration import random_configuration
from thetahat.model.floating_base import ground_of, with_ground
from thetahat.model.robot import Robot
from thetahat.plant.stance import StandingMotion, stand, sway

FEET = {
    "solo12": ("FL_FOOT", "FR_FOOT", "HL_FOOT", "HR_FOOT"),
    "go2": ("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "g1": ("left_ankle_roll_link", "right_ankle_roll_link"),
    "valkyrie": ("leftFoot", "rightFoot"),
}


def floating(name: str) -> Robot:
    """A robot with a floating base and without friction."""
    if name == "valkyrie":
        path = shared_file("robots", "valkyrie", "derived_valkyrie_A_44dof.urdf")
    elif name == "go2":
        path = EXAMPLES / "go2_description/urdf/go2.urdf"
        if not path.is_file():
            pytest.skip(f"go2: {NO_EXAMPLES}")
    else:
        path = example_robot(name)
    return th.load(path, floating_base=True).without_drive()


def jacobian(robot: Robot, q: np.ndarray, link: str, step: float = 1e-7) -> np.ndarray:
    """(6, nv): twist of a link at its origin in its own axes, angular first, by differences."""
    from thetahat.dynamics.configuration import integrate

    place = next(each for each in robot.links if each.name == link)
    out = np.empty((6, robot.nv))

    def pose(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        R, p = rigid_body.body_frames(robot, q)
        return R[place.body] @ place.rotation, p[place.body] + R[place.body] @ place.translation

    R, _ = pose(q)
    for v in range(robot.nv):
        unit = step * np.eye(robot.nv)[v]
        (R1, p1), (R0, p0) = pose(integrate(robot, q, unit)), pose(integrate(robot, q, -unit))
        turn = R.T @ (R1 - R0) / (2.0 * step)
        out[:3, v] = turn[2, 1], turn[0, 2], turn[1, 0]
        out[3:, v] = R.T @ (p1 - p0) / (2.0 * step)
    return out


def carried(
    robot: Robot, q: np.ndarray, tau: np.ndarray, down: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(motor torques with the base's at zero, wrenches by foot) that carry generalised forces."""
    from thetahat.dynamics.link_forces import link_jacobian

    ground = ground_of(robot)
    assert ground is not None
    links = [(foot.link, foot.flat) for foot in ground.feet] or [
        (link, True) for link in ground.measured
    ]
    motors = tau.copy()
    wrenches = {link: np.zeros((len(q), 6)) for link, _ in links}
    J = [link_jacobian(robot, q, link) for link, _ in links]
    for i in range(len(q)):
        own = [k for k in range(len(links)) if down[i, k]]
        parts = [J[k][i] if links[k][1] else J[k][i, 3:] for k in own]
        A = np.concatenate(parts)
        force = np.linalg.lstsq(A[:, :6].T, tau[i, :6], rcond=None)[0]
        motors[i] -= A.T @ force
        at = 0
        for k, part in zip(own, parts, strict=True):
            piece = force[at : at + len(part)]
            at += len(part)
            link, flat = links[k]
            wrenches[link][i] = [*piece[3:], *piece[:3]] if flat else [*piece, 0.0, 0.0, 0.0]
    return motors, wrenches


def random_samples(robot: Robot, count: int, seed: int = 0) -> th.Samples:
    """Random states with random feet down; motor torques that leave the base's rows at zero."""
    rng, ground = np.random.default_rng(seed), ground_of(robot)
    assert ground is not None
    q = random_configuration(robot, rng, count)
    dq, ddq = rng.normal(size=(count, robot.nv)), 3.0 * rng.normal(size=(count, robot.nv))
    down = np.ones((count, len(ground.feet)), dtype=bool)
    lifted = rng.random(count) < 0.6
    down[lifted, rng.integers(len(ground.feet), size=np.count_nonzero(lifted))] = False
    motors, _ = carried(robot, q, th.inverse_dynamics(robot, q, dq, ddq), down)
    return th.Samples(q=q, dq=dq, ddq=ddq, tau=motors, contact=down)


def standing(
    name: str, duration: float = 12.0, rate: float = 100.0, seed: int = 0
) -> tuple[Robot, StandingMotion]:
    """A robot that stands on all feet, and a motion in which it sways."""
    robot = with_ground(floating(name), (), FEET[name])
    return robot, sway(robot, stand(robot), duration=duration, rate=rate, seed=seed)


def standing_log(true: Robot, motion: StandingMotion, *, wrenches: bool) -> dict[str, np.ndarray]:
    """Columns of an exact log of a swaying robot, with wrenches or with contact flags."""
    ground = ground_of(true)
    assert ground is not None
    tau = th.inverse_dynamics(true, motion.q, motion.dq, motion.ddq)
    down = np.ones((len(motion.t), len(ground.feet)), dtype=bool)
    motors, forces = carried(true, motion.q, tau, down)
    names = ("x", "y", "z", "qx", "qy", "qz", "qw")
    out = {"t": motion.t, **{f"base.{name}": motion.q[:, k] for k, name in enumerate(names)}}
    for node in true.tree.independent[1:]:
        out[f"q.{node.name}"] = motion.q[:, true.tree.q_index[node.name]]
        out[f"tau.{node.name}"] = motors[:, true.tree.v_index[node.name]]
    for link, wrench in forces.items():
        if not wrenches:
            out[f"contact.{link}"] = np.ones(len(motion.t))
            continue
        for channel, values in zip(("fx", "fy", "fz", "tx", "ty", "tz"), wrench.T, strict=True):
            out[f"wrench.{link}.{channel}"] = values
    return out
