"""How much each joint moved in the rows that were fitted."""

from __future__ import annotations

import numpy as np

from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns


def joint_motion(information: Information, moving: np.ndarray) -> list[dict[str, float | None]]:
    """Return how each degree of freedom moved, as an answer states it.

    moving: (nv,) the share of its rows in which it was not at standstill, NaN where unknown.
    """
    speeds = _speeds(information)
    known = speeds[np.isfinite(speeds) & (speeds > 0.0)]
    median = float(np.median(known)) if known.size else np.nan

    def number(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return [
        {
            "share": number(share),
            "speed": number(speed),
            "relative_speed": number(speed / median),
        }
        for share, speed in zip(moving, speeds, strict=True)
    ]


def _speeds(information: Information) -> np.ndarray:
    """RMS speed of the fitted rows, (nv,) [rad/s or m/s]; NaN where no column is the speed.

    The column of viscous friction is the speed itself, and the norm of a factor's column is that of
    the regressor's. So no row is read again.
    """
    columns, out = Columns(information.robot), np.full(len(information.factors), np.nan)
    terms = columns.drive.identified
    if "viscous" not in terms or columns.drive.actuation is not None:
        return out
    motors = list(columns.drive.column_motors)
    begin = columns.inertial + terms.index("viscous") * len(motors)
    independent = list(information.base.independent)
    for k, joint in enumerate(motors):
        if begin + k not in independent or not information.rows[joint]:
            continue
        at = np.flatnonzero(information.positions[joint] == independent.index(begin + k))
        if at.size:
            norm = np.linalg.norm(information.factors[joint][:, at[0]])
            out[joint] = norm / np.sqrt(information.rows[joint])
    return out
