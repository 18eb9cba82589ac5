"""Readings of a wrist force/torque sensor beside its orientation, one row for each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from thetahat.data.formats import open_table
from thetahat.data.formats.table import label
from thetahat.errors import MalformedInput, UsageError, known

QUATERNION = ("qx", "qy", "qz", "qw")
FORCE, TORQUE = ("fx", "fy", "fz"), ("tx", "ty", "tz")
CHANNELS = (*FORCE, *TORQUE)
TIME = "t"
MAX_ROWS = 5_000_000
UNIT = 0.01  # deviation of a quaternion's length from 1 that rounding can explain
FRAMES = ("sensor", "world")


@dataclass(frozen=True, eq=False)
class WristPoses:
    """Wrenches that a sensor read at known orientations."""

    rotation: np.ndarray  # (n, 3, 3) rotates vectors of the sensor's axes into the world
    wrench: np.ndarray  # (n, 6) fx fy fz [N] tx ty tz [N·m] in the sensor's axes
    time: np.ndarray | None  # (n,) [s]; None: the order of the rows is all that is known
    source: str  # the file, as messages name it

    def __len__(self) -> int:
        return len(self.wrench)


def read_wrist_poses(path: Path, *, frame: str = "sensor") -> WristPoses:
    """Read a table with columns qx qy qz qw fx fy fz tx ty tz, and t where there is one.

    frame: whose axes the wrench is stated in, the sensor's or the world's.
    """
    if frame not in FRAMES:
        raise UsageError(f"--wrench-frame is {frame!r}; frames: {', '.join(FRAMES)}")
    table = open_table(path)
    timed = TIME in table.names
    wanted = [*([TIME] if timed else []), *QUATERNION, *CHANNELS]
    missing = [name for name in wanted if name not in table.names]
    if missing:
        raise MalformedInput(
            f"{label(path)} has no column {missing[0]!r}; a table of poses has"
            f" {', '.join((*QUATERNION, *CHANNELS))}, and this one {known(table.names)}"
        )
    blocks = []
    rows = 0
    for block in table.blocks(wanted, None):
        rows += len(block)
        if rows > MAX_ROWS:
            raise MalformedInput(
                f"{label(path)} has more than {MAX_ROWS:,} rows; give one row for each pose, or a"
                " shorter recording"
            )
        blocks.append(block.values)
    values = np.concatenate(blocks) if blocks else np.zeros((0, len(wanted)))
    time = values[:, 0] if timed else None
    quaternion, wrench = values[:, -10:-6], values[:, -6:]
    if time is not None and len(time) > 1 and not np.all(np.diff(time) > 0.0):
        row = int(np.argmax(np.diff(time) <= 0.0)) + 1
        raise table.problem(row, f"t is {time[row]:g} after {time[row - 1]:g}; times must rise")
    length = np.linalg.norm(quaternion, axis=1)
    off = np.abs(length - 1.0) > UNIT
    if off.any():
        row = int(np.argmax(off))
        raise table.problem(
            row,
            f"the quaternion (qx, qy, qz, qw) has length {length[row]:.4g}; it must be 1, so check"
            " the columns' order and units",
        )
    rotation = Rotation.from_quat(quaternion).as_matrix()
    if frame == "world":
        wrench = np.einsum("nji,nkj->nki", rotation, wrench.reshape(-1, 2, 3)).reshape(-1, 6)
    return WristPoses(rotation, wrench, time, label(path))
