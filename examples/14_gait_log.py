"""Walking human: OpenSim's gait2354 trial as a log of a floating base with measured ground forces.

The trial's columns predate the rules for floating bases: the pelvis is `q.pelvis_free.*`, and a
force plate gives a force, its point and a free torque, in the world's axes. Here they become
`base.*`, and per foot the wrench about the link's origin, still in the world's axes:

    python examples/14_gait_log.py TRIAL_FOLDER gait.csv
    thetahat identify TRIAL_FOLDER/gait2354_subject01.xml gait.csv --floating-base \
        --wrench-frame world --out result
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

import thetahat as th
from thetahat.dynamics.rigid_body import body_frames

FEET = ("calcn_r", "calcn_l")


def convert(folder: Path) -> dict[str, np.ndarray]:
    """Return the columns of a log from the trial's files."""
    robot = th.load(folder / "gait2354_subject01.xml")
    table = pl.read_csv(folder / "gait_60hz.csv", infer_schema_length=None)
    trial = {name: table[name].to_numpy().astype(float) for name in table.columns}
    out = {"t": trial["t"]}
    for name, values in trial.items():
        if name.startswith("q.pelvis_free."):
            out[f"base.{name.removeprefix('q.pelvis_free.')}"] = values
        elif name.startswith("q."):
            out[name] = values
    q = np.column_stack([values for name, values in trial.items() if name.startswith("q.")])
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    _, origins = body_frames(robot, q)
    for foot in FEET:
        force, point, free = (
            np.column_stack([trial[f"contact.{foot}.{kind}{axis}"] for axis in "xyz"])
            for kind in "fpt"
        )
        couple = free + np.cross(point - origins[:, robot.body_names.index(foot)], force)
        for channel, values in zip(
            ("fx", "fy", "fz", "tx", "ty", "tz"), np.hstack([force, couple]).T, strict=True
        ):
            out[f"wrench.{foot}.{channel}"] = values
    return out


def main() -> None:
    """Convert the trial in a folder to a CSV file."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: python {sys.argv[0]} TRIAL_FOLDER LOG.csv")
    pl.DataFrame(convert(Path(sys.argv[1]))).write_csv(sys.argv[2])


if __name__ == "__main__":
    main()
