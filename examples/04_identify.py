"""From a log to a robot that can be trusted, step by step: read, prepare, fold, identify, validate.

    python examples/04_identify.py [LOG]

LOG is one of arm4, as `03_make_a_log.py` writes it; without it, a simulated arm that is 20 %
heavier than its file says makes one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.excite.trajectories import Sinusoids
from thetahat.plant.realism import SensorModel


def simulated(path: Path) -> Path:
    """Twenty seconds of a heavier arm, at 250 Hz, with friction, encoder counts and noise on the
    torques.
    """
    robot = th.load(robots.path("arm4"))
    motion = Sinusoids(
        robot.joint_names,
        20.0,
        centre=[0.0, 0.0, 0.0, 1.0],
        amplitude=np.full((4, 2), 0.45),
        frequency=[[0.31, 0.83], [0.37, 0.97], [0.43, 1.09], [0.53, 1.21]],
        phase=np.arange(8.0).reshape(4, 2),
        ramp=1.0,
    )
    realism = th.Realism(
        sensors=SensorModel(torque_noise=0.2, encoder_resolution=2.0 * np.pi / 2**19)
    )
    return th.simulate(
        th.OwnPlant(robot.with_parameters(1.2 * robot.theta)), motion, rate=250.0, realism=realism
    ).save(path)


with tempfile.TemporaryDirectory() as folder:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else simulated(Path(folder) / "arm4.csv")

    # The robot as its file states it, with friction and offsets to be identified as well.
    nominal = th.load(robots.path("arm4"))
    robot = nominal.with_drive(viscous=True, coulomb=True, offset=True)

    # Read and audit the log; low-pass and differentiate it; keep the last 30 % out of the fit.
    log = th.read_log(file, robot)
    train, test = th.prepare(log, robot).split(0.7)

# All that the log says about the robot, in a few kilobytes; then the physically consistent robot
# that fits it best.
info = th.information(robot, train)
estimate = th.solve(info, th.Consistent(), samples=train)
identified = robot.with_parameters(estimate)

print(
    f"{len(estimate.base)} base parameters, rank {estimate.rank}, consistent:"
    f" {estimate.consistent}, {estimate.status}"
)
print(th.validate(identified, test, nominal=nominal))

# What is known, and how well: base parameters have standard deviations, single link parameters only
# where the log tells them apart.
for name, value, std in list(
    zip(estimate.base.names, estimate.x_base, estimate.base_std, strict=True)
)[:3]:
    print(f"  {name} = {value:.4g} ± {std:.1g}")
