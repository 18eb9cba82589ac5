"""Gains of torque per error, from the inertia a joint moves."""

from __future__ import annotations

import numpy as np

from thetahat.control.torque_limits import require_driven
from thetahat.dynamics import batch, configuration, rigid_body
from thetahat.errors import UsageError
from thetahat.model.robot import Robot

BANDWIDTH = 10.0  # [rad/s]: what PD alone follows without shaking a robot whose joints are coupled
POSTURES = 200


def joint_inertia(robot: Robot, *, q: np.ndarray | None = None) -> np.ndarray:
    """The inertia a joint moves while the others stand still, (nv,) [kg·m² or kg]: D_jj(q), or its
    largest over random postures (always the same).
    """
    if q is None:
        q = configuration.random_configuration(robot, np.random.default_rng(0), POSTURES)
    (q,) = batch.check_state(robot, q)
    return np.max(np.einsum("kii->ki", rigid_body.mass_matrix(robot, batch.rows(q))), axis=0)


def pd_gains(
    robot: Robot, bandwidth: float = BANDWIDTH, *, damping: float = 1.0, q: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(kp, kd) = (ω² D_jj, 2ζω D_jj), each (nv,) [N·m/rad, N·m·s/rad]: what makes joint j alone an
    oscillator of ω [rad/s] and damping ζ.

    D_jj is that of the posture q, or the largest over random postures.
    """
    require_driven(robot)
    for name, value in (("bandwidth", bandwidth), ("damping", damping)):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | np.number)
            or not (np.isfinite(value) and value > 0.0)
        ):
            raise UsageError(f"{name} is {value!r}; give a finite number above zero")
    inertia = joint_inertia(robot, q=q)
    return bandwidth**2 * inertia, 2.0 * damping * bandwidth * inertia
