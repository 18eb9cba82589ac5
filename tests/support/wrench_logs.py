"""Logs of arms with a wrist sensor, their torques and wrenches by Pinocchio, on a robot that is not
the file's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pinocchio as pin
from payload_cases import Bar, path
from payload_cases import robot as arm_with_friction

import thetahat as th
from thetahat import robots
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint

LINK = "tool"
EVERY = 5  # rows: 200 Hz
BIAS = np.array([4.0, -3.0, 7.0, 0.2, -0.1, 0.15])  # [N, N·m]
HELD = Bar(mass=1.1)


@dataclass(frozen=True)
class Noise:
    """Standard deviations of white noise."""

    torque: float = 0.0  # [N·m]
    force: float = 0.0  # [N]
    moment: float = 0.0  # [N·m] of the sensor


def held_theta() -> np.ndarray:
    """θ (10,) of the file's tool and what it holds beside, in the tool's frame."""
    arm = th.load(robots.path("arm7"))
    own = next(link for link in arm.links if link.name == LINK).theta
    inertia = HELD.inertia
    return own + th.from_pinocchio(inertia.toDynamicParameters())


@cache
def columns(
    seed: int,
    *,
    noise: Noise = Noise(),
    seconds: float = 10.0,
    link: str = LINK,
    held: bool = True,
) -> dict[str, np.ndarray]:
    """Columns of a log of the seven-joint arm that holds HELD, friction and bias included."""
    arm = arm_with_friction("arm7")
    states = tuple(array[::EVERY] for array in path(arm, seconds, seed=seed))
    torque, wrench = _pinocchio(arm, states, link, held=held)
    rng = np.random.default_rng([seed, 11])
    torque = torque + noise.torque * rng.standard_normal(torque.shape)
    size = np.repeat([noise.force, noise.moment], 3)
    wrench = wrench + BIAS + size * rng.standard_normal(wrench.shape)
    out = {"t": np.linspace(0.0, seconds, len(torque), endpoint=False)}
    for j, name in enumerate(arm.joint_names):
        out[f"q.{name}"], out[f"dq.{name}"] = states[0][:, j], states[1][:, j]
        out[f"ddq.{name}"], out[f"tau.{name}"] = states[2][:, j], torque[:, j]
    return out | {sensor_joint(link, each): wrench[:, k] for k, each in enumerate(CHANNELS)}


def _pinocchio(
    arm: th.Robot, states: tuple[np.ndarray, ...], link: str, *, held: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Joint torques with friction, and the wrench that the joint above the link transmits. Fixed
    joints are ones that turn, but stand still.
    """
    text = robots.path("arm7").read_text().replace('type="fixed">', 'type="continuous">')
    model = pin.buildModelFromXML(text)
    tool = model.frames[model.getFrameId(LINK)]
    if held:
        model.appendBodyToJoint(tool.parentJoint, HELD.inertia, tool.placement)
    data, frame = model.createData(), model.frames[model.getFrameId(link)]
    at = [model.joints[model.getJointId(name)] for name in arm.joint_names]
    torque, wrench = np.empty((len(states[0]), arm.nv)), np.empty((len(states[0]), 6))
    for k, (q, dq, ddq) in enumerate(zip(*states, strict=True)):
        full = [pin.neutral(model), np.zeros(model.nv), np.zeros(model.nv)]
        for j, joint in enumerate(at):
            if joint.nq == 2:
                full[0][joint.idx_q : joint.idx_q + 2] = np.cos(q[j]), np.sin(q[j])
            else:
                full[0][joint.idx_q] = q[j]
            full[1][joint.idx_v], full[2][joint.idx_v] = dq[j], ddq[j]
        tau = pin.rnea(model, data, *full)
        torque[k] = [tau[joint.idx_v] for joint in at]
        wrench[k] = frame.placement.actInv(data.f[frame.parentJoint]).vector
    return torque + arm.drive.friction(states[1], q=states[0]), wrench
