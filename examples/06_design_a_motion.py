"""Which motion reveals the robot? A Fourier series designed for most information inside the limits
of the robot file.

    python examples/06_design_a_motion.py [MOTION]

MOTION (default motion.csv in a temporary folder) gets t, q.<joint>, dq.<joint>, ddq.<joint> at 1
kHz for a driver to play. `thetahat excite` does the same from the command line.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.excite.bases import FourierFamily
from thetahat.excite.design import excitation, planned, random_motion
from thetahat.excite.motion_limits import Box, motion_limits

robot = th.load(robots.path("arm4")).with_drive(viscous=True, coulomb=True, offset=True)

# The same limits for all: those of the file, the floor and links that keep apart (both by default),
# accelerations for a first run, and the hand not far behind the arm. Eight random motions start.
box = Box("hand", lower=(-0.5, -2.0, -2.0), upper=(2.0, 2.0, 2.0))
limits = motion_limits(robot, acceleration=15.0, boxes=[box])
found = th.design(robot, duration=8.0, limits=limits, starts=8)
print(found)

# What a motion at random, scaled up to the first limit it meets, shows in the same time.
problem, _ = planned(robot, FourierFamily(robot.joint_names, 8.0, 5), limits=limits)
_, log_det, condition = excitation(
    robot, random_motion(problem, np.random.default_rng(0)), found.noise
)
gain = np.exp((found.log_det - log_det) / (2 * len(found.information.base)))
print(
    f"a random motion: condition {condition:.3g}; standard deviations {gain:.1f} times as large"
    " (geometric mean)"
)

with tempfile.TemporaryDirectory() as folder:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "motion.csv"
    found.trajectory.sampled(1000.0).save(path)
    print(f"wrote {path.name}, {path.stat().st_size / 1e6:.1f} MB")
