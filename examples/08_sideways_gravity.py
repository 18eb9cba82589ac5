"""The arm hangs on a wall. Its file does not know, but its torques do: the audit of the log says
which way gravity points.

    python examples/08_sideways_gravity.py

`thetahat identify … --gravity X,Y,Z` takes the direction from the command line.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.excite.trajectories import Fourier
from thetahat.plant.realism import SensorModel

SIDEWAYS = (9.81, 0.0, 0.0)  # [m/s²] in the robot's own frame

arm = th.load(robots.path("arm4"))
rng = np.random.default_rng(0)
a, b = rng.normal(size=(2, arm.nv, 5)) * 1.2
motion = Fourier.at_rest(arm, 10.0, centre=[0.0, 0.0, 0.0, 1.0], a=a, b=b, periods=2)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "wall.csv"
    th.simulate(
        th.OwnPlant(arm.with_gravity(SIDEWAYS)),
        motion,
        rate=250.0,
        realism=th.Realism(sensors=SensorModel(torque_noise=0.2)),
    ).save(path)
    log = th.read_log(path, arm)
    for finding in log.findings:
        print(f"audit: {finding.message}")
    for name, robot in (("as the file says", arm), ("sideways", arm.with_gravity(SIDEWAYS))):
        robot = robot.with_drive(viscous=True, coulomb=True, offset=True)
        train, test = th.prepare(log, robot).split(0.7)
        estimate = th.solve(th.information(robot, train))
        print(
            f"gravity {name:17} held-out R²"
            f" {th.validate(robot.with_parameters(estimate), test).r2_total:.4f}"
        )
