"""Two logs are one: informations add up, whatever the length of the logs, and can be kept on disk.

    python examples/10_merge_logs.py

Neither run moves all joints, so neither tells all parameters; together they do.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.excite.trajectories import Fourier

robot = th.load(robots.path("arm4")).with_drive(viscous=True, coulomb=True, offset=True)
rng = np.random.default_rng(0)


def run(moving: list[int]) -> th.Information:
    """Ten seconds in which only some of the joints move."""
    a, b = np.zeros((2, robot.nv, 5))
    a[moving], b[moving] = rng.normal(size=(2, len(moving), 5)) * 1.2
    t = np.arange(0.0, 10.0, 0.004)
    q, dq, ddq = Fourier.at_rest(robot, 10.0, centre=rng.uniform(-0.5, 0.5, robot.nv), a=a, b=b).at(
        t
    )
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 0.2 * rng.normal(size=q.shape)
    return th.information(robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau))


upper, lower = run([0, 1]), run([2, 3])
for name, info in (("shoulder alone", upper), ("arm alone", lower), ("both", upper + lower)):
    print(f"{name:15} rank {info.rank} of {len(info.base)}, {info.samples} samples")
print(f"not seen by the shoulder's run, for one: {upper.missing()[0]}")

# An information is small, and the same however it was put together.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "arm4.npz"
    (lower + upper).save(path)
    print(f"on disk: {path.stat().st_size / 1000:.0f} kB")
    kept = th.Information.load(path, robot)
first, second = th.solve(upper + lower), th.solve(kept)
print(f"estimates of both orders differ by {np.abs(first.x_base - second.x_base).max():.1e}")
