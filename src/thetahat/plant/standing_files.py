"""Files of standing motions: t, the base's pose and joint positions, as `excite --floating-base`
writes and `simulate --floating-base` plays them.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from thetahat.data.formats.write_log import write_table
from thetahat.data.log import read_log
from thetahat.errors import MalformedInput
from thetahat.model.robot import Robot
from thetahat.plant.ground_sensors import POSE
from thetahat.plant.stance import StandingMotion, motion_through


def save_standing(motion: StandingMotion, robot: Robot, path: str | os.PathLike[str]) -> Path:
    """Write t, base.x … base.qw and q.<joint> to .csv, .parquet or .npz."""
    tree = robot.tree
    columns = {"t": motion.t}
    columns |= {f"base.{name}": motion.q[:, k] for k, name in enumerate(POSE)}
    columns |= {
        f"q.{node.name}": motion.q[:, tree.q_index[node.name]] for node in tree.independent[1:]
    }
    return write_table(path, list(columns), list(columns.values()))


def load_standing(path: str | os.PathLike[str], robot: Robot) -> StandingMotion:
    """Read what `save_standing` wrote, or any log with the base's pose, in one run."""
    log = read_log(path, robot)
    if log.locked:
        raise MalformedInput(
            f"{path} has no column 'q.{sorted(log.locked)[0]}'; a standing motion has the positions"
            " of all joints"
        )
    if len(log.runs) != 1:
        raise MalformedInput(
            f"{path} holds {len(log.runs)} runs with gaps between them; a motion to play is one run"
            " with equal steps of time"
        )
    (chunk,) = log.read()
    t = np.arange(len(chunk.t)) * float(np.median(np.diff(chunk.t)))
    return motion_through(robot, t, chunk.q)
