"""The identified robot as a file: a copy of the source in which only inertial and drive values
differ, and drive.json for what URDF cannot hold.

    python examples/11_write_back.py

Whoever reads the file again gets the same torques; that is checked before it is written.
"""

from __future__ import annotations

import difflib
import tempfile
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.model.io.save import save, with_drive_file

# Stands for an identified robot: a heavier forearm with the hand welded to it, more friction, and
# an offset, for which URDF has no place.
arm = th.load(robots.path("arm4"))
x = arm.theta.copy()
x[-10:] *= 1.2
better = arm.with_drive(viscous=True, offset=True).with_parameters(
    np.concatenate([x, 2.0 * arm.drive.viscous, [0.1, 0.0, -0.2, 0.0]])
)

with tempfile.TemporaryDirectory() as folder:
    saved = save(better, Path(folder) / "arm4_identified.urdf")
    print(saved)

    # Only these lines differ from the source; forearm and hand share the change of the body they
    # are.
    before, after = (
        Path(path).read_text(encoding="utf-8").splitlines()
        for path in (robots.path("arm4"), saved.path)
    )
    changed = [
        line
        for line in difflib.unified_diff(before, after, lineterm="", n=0)
        if line.startswith("+") and not line.startswith("+++")
    ]
    print(f"{len(changed)} of {len(after)} lines differ, the first: {changed[0][1:].strip()}")

    # Read again, with its drive file, it is the same robot.
    again = with_drive_file(th.load(saved.path))
    q, dq, ddq = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 100, arm.nv))
    error = th.inverse_dynamics(again, q, dq, ddq) - th.inverse_dynamics(better, q, dq, ddq)
    print(f"torques read back differ by {np.abs(error).max():.1e} N·m at most")
