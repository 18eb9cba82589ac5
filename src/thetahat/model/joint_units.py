"""Units of the degrees of freedom: rotation or translation."""

from __future__ import annotations

from thetahat.model.robot import Robot
from thetahat.model.tree import ANGULAR, V_INDEX


def joint_units(robot: Robot) -> list[tuple[str, str]]:
    """Return (unit of torque, unit of velocity) of every degree of freedom."""
    dofs = robot.tree.arrays.dofs
    angular = {
        int(v): bool(a) for v, a in zip(dofs[::-1, V_INDEX], dofs[::-1, ANGULAR], strict=True)
    }
    return [("N·m", "rad/s") if angular[v] else ("N", "m/s") for v in range(robot.nv)]
