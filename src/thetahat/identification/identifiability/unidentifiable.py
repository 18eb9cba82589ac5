"""Sentences on the directions of base parameters that data do not show."""

from __future__ import annotations

import numpy as np

from thetahat.identification.identifiability.base_parameters import BaseParameters
from thetahat.identification.parameter_columns import Columns
from thetahat.model.robot import Robot


def unidentifiable(robot: Robot, base: BaseParameters, directions: np.ndarray) -> tuple[str, ...]:
    """Return a sentence per direction, (p, directions): its parameters, and joints to move."""
    return tuple(_sentence(robot, base, direction) for direction in _sparse(directions).T)


def _sparse(directions: np.ndarray) -> np.ndarray:
    """The same span with as few parameters in each direction as elimination finds."""
    out = directions.copy()
    scale = np.linalg.norm(directions, axis=1)
    scale = np.where(scale > 0.0, scale, 1.0)
    used: list[int] = []
    for k in range(out.shape[1]):
        relative = np.abs(out[:, k]) / scale
        relative[used] = 0.0
        pivot = int(np.argmax(relative))
        used.append(pivot)
        for other in range(out.shape[1]):
            if other != k and out[pivot, k] != 0.0:
                out[:, other] -= out[:, k] * out[pivot, other] / out[pivot, k]
    return out


def _sentence(robot: Robot, base: BaseParameters, direction: np.ndarray) -> str:
    columns = Columns(robot)
    share = np.abs(direction) * base.scale[base.independent]
    together = [k for k in np.argsort(-share) if share[k] > 1e-6 * share.max()][:4]
    names = [base.column_names[base.independent[k]] for k in together]
    motors = columns.motor_names
    joints: list[str] = []
    for k in together:
        column = int(base.independent[k])
        if column < columns.inertial:
            node = robot.tree.nodes[robot.tree.bodies[column // 10]]
            joints.append(node.name)
        else:
            joints.append(motors[(column - columns.inertial) % len(motors)])
    joints = list(dict.fromkeys(joints))
    what = (
        f"{names[0]} is not seen"
        if len(names) == 1
        else f"{', '.join(names[:-1])} and {names[-1]} move together"
    )
    return (
        f"{what}; excite {'joint' if len(joints) == 1 else 'joints'} {', '.join(joints)} or pass a"
        " prior"
    )
