"""Numbers per joint, the largest torque of each, and which robots a joint controller can drive and
trust at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.dynamics import batch, configuration, rigid_body
from thetahat.errors import UsageError, known
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

PerJoint = float | Sequence[float] | np.ndarray
# of a pseudo-inertia's trace: eigenvalues above it are positive whatever was rounded
CLEARLY = 1e-12
SPEED, RATE = 1.0, 2.0  # [rad/s, rad/s²] of a moderate motion
TIMES_MODEL = 3.0  # the model's largest torque, where a file states no limit
LEAST_SHARE = 0.1  # of the strongest joint's torque: wrists of arms have 12 to 20 %
POSTURES = 64  # random configurations over which torques are taken


def per_joint(
    name: str, value: PerJoint, count: int | None, *, least: float = 0.0, finite: bool = True
) -> np.ndarray:
    """A number for each of `count` joints (None: as many as are given), from `least` on."""
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is {value!r}; give a number, or one per joint") from None
    wanted = "finite " if finite else ""
    if (
        isinstance(value, bool)
        or array.ndim > 1
        or np.any(np.isnan(array))
        or (finite and not np.all(np.isfinite(array)))
        or np.any(array < least)
    ):
        raise UsageError(
            f"{name} is {value!r}; give a {wanted}number from {least:g} on, or one per joint"
        )
    if array.ndim and count is not None and array.shape != (count,):
        raise UsageError(f"{name} has {len(array)} values; give one, or {count}: one per joint")
    return array if count is None else np.broadcast_to(array, (count,)).copy()


def usual_torques(robot: Robot) -> np.ndarray:
    """(nv,) [N·m or N] that the robot's joints take: RMS over random postures and moderate motion
    (1 rad/s, 2 rad/s² or m/s, m/s²), at least 1 % of the strongest joint's.
    """
    rng = np.random.default_rng(0)
    q = configuration.random_configuration(robot, rng, POSTURES)
    dq, ddq = (
        rng.normal(0.0, SPEED, (POSTURES, robot.nv)),
        rng.normal(0.0, RATE, (POSTURES, robot.nv)),
    )
    tau = rigid_body.inverse_dynamics(robot.without_drive(), q, dq, ddq)
    rms = np.sqrt(np.mean(tau**2, axis=0))
    least = 0.01 * float(np.max(rms, initial=np.finfo(float).tiny))
    return np.asarray(np.maximum(rms, least))


@dataclass(frozen=True, eq=False)
class TorqueLimits:
    """The largest torque of every joint, and where it comes from."""

    values: np.ndarray | None  # (nv,) [N·m or N]; None: no limit
    note: str = ""  # which joints' limits had to be assumed, and how; "" where none
    assumed: bool = False


def torque_limits(robot: Robot, limits: bool | PerJoint) -> TorqueLimits:
    """The largest torque of every joint: True takes the effort limits of the robot's file, and the
    model's own bound where it states none or zero; False none.
    """
    if limits is False or limits is None:
        return TorqueLimits(None)
    if limits is not True:
        return TorqueLimits(per_joint("limits", limits, robot.nv, finite=False))
    stated = _stated(robot)
    unknown = ~((stated > 0.0) & np.isfinite(stated))
    if not np.any(unknown):
        return TorqueLimits(stated)
    values = np.where(unknown, torque_bound(robot), stated)
    names = [
        f"{name} {value:.3g}"
        for name, value, which in zip(robot.velocity_names, values, unknown, strict=True)
        if which
    ]
    note = (
        f"{robot.name!r} states no effort limit of {len(names)} of its {robot.nv} joints; assumed"
        f" are {TIMES_MODEL:g} times the model's largest torques over {POSTURES} postures:"
        f" {known(names)}. State your own with limits=[…], or limits=False for none"
    )
    return TorqueLimits(values, note, assumed=True)


def torque_bound(robot: Robot) -> np.ndarray:
    """A bound of every joint's torque from the model, (nv,) [N·m or N]: TIMES_MODEL times the
    largest over random postures (always the same) at speeds of up to 2 rad/s (1 m/s) and
    accelerations of up to 10 rad/s² (5 m/s²); a tenth of the strongest joint's of the same unit at
    least, for a wrist's friction is not in proportion to what it carries.
    """
    rng, count = np.random.default_rng(0), POSTURES
    q = configuration.random_configuration(robot, rng, count)
    slides = np.array([node.kind is JointKind.PRISMATIC for node in robot.tree.independent])
    speed = np.array(
        [min(node.limits.velocity, 2.0) or 2.0 for node in robot.tree.independent]
    ) * np.where(slides, 0.5, 1.0)
    dq = rng.uniform(-1.0, 1.0, (count, robot.nv)) * speed
    ddq = rng.uniform(-1.0, 1.0, (count, robot.nv)) * np.where(slides, 5.0, 10.0)
    tau = np.max(np.abs(rigid_body.inverse_dynamics(robot, q, dq, ddq)), axis=0)
    for kind in (slides, ~slides):
        if np.any(kind):
            tau[kind] = np.maximum(tau[kind], LEAST_SHARE * np.max(tau[kind]))
    # a robot without masses says nothing
    return np.asarray(TIMES_MODEL * np.where(tau > 0.0, tau, np.inf))


def _stated(robot: Robot) -> np.ndarray:
    """The effort limits that the file states, (nv,); inf for joints of several degrees."""
    return np.array(
        [
            node.limits.effort if node.kind.nv == 1 else np.inf
            for node in robot.tree.independent
            for _ in range(node.kind.nv)
        ]
    )


def effort_limits(robot: Robot, option: str) -> np.ndarray:
    """The effort limit that the robot's file states for every degree of freedom, (nv,) [N·m or N];
    none for those of joints that have several. option: where numbers could be given instead.
    """
    out = _stated(robot)
    if np.any(out <= 0.0):
        name = robot.velocity_names[int(np.argmin(out))]
        raise UsageError(
            f"joint {name!r} of {robot.name!r} states an effort limit of {out.min():g}, so it could"
            f" not move; give {option} as numbers"
        )
    return out


def require_physical(robot: Robot, purpose: str) -> None:
    """Refuse a robot that no rigid bodies can be, as `Robot.require_physical` does, in the middle
    of a control cycle.

    A robot whose pseudo-inertias are all clearly positive definite passes at once (44 bodies: 0.1
    ms); only otherwise body by body (2 ms).
    """
    theta = robot.theta.reshape(-1, parameters.SIZE)
    theta = theta[theta.any(axis=1)]  # what has no mass at all is a frame
    if np.all(np.isfinite(theta)):
        pseudo = parameters.to_pseudo_inertia(theta)
        pseudo -= CLEARLY * np.trace(pseudo, axis1=1, axis2=2)[:, None, None] * np.eye(4)
        try:
            np.linalg.cholesky(pseudo)
            return
        except np.linalg.LinAlgError:
            pass  # who it is, and whether rounding alone is to blame
    robot.require_physical(purpose)


def require_driven(robot: Robot) -> None:
    """Refuse a robot with degrees of freedom that no motor drives to a wanted motion."""
    batch.require_movable(robot, "there is nothing to control")
    for node in robot.tree.independent:
        if node.kind.nv > 1:
            raise UsageError(
                f"joint {node.name!r} of {robot.name!r} is {node.kind.name.lower()}, which no motor"
                " drives to a wanted motion; pass a controller of your own, or load the robot with"
                " its base fixed"
            )
    actuation = robot.drive.actuation
    if actuation is None or not actuation.constant:
        return
    rank = np.linalg.matrix_rank(actuation.matrix_at(None))
    if rank < robot.nv:
        raise UsageError(
            f"the {actuation.motors} motors of {robot.name!r} drive"
            f" {rank} of its {robot.nv} joints independently; a joint"
            " controller needs all of them driven: give an actuation map of full rank"
        )
