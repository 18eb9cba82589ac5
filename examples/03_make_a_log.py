"""A log to try `thetahat identify` on: an arm that is 20 % heavier than its file says, moved for
twenty seconds.

    python examples/03_make_a_log.py arm4.csv
    thetahat identify arm4 arm4.csv --out result

Positions are sums of three sines per joint, torques are the heavier arm's with friction and sensor
noise; the robot file that `identify` starts from is the lighter one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots

RATE = 250.0  # [Hz]
SECONDS = 20.0
NOISE = 0.2  # [N·m] of the torque sensors


def make_log(path: Path, *, seed: int = 0) -> None:
    robot = th.load(robots.path("arm4"))
    heavier = robot.with_parameters(1.2 * robot.theta)
    t = np.arange(0.0, SECONDS, 1.0 / RATE)[:, None]
    first = np.array([1.1, 1.7, 2.3, 3.1])  # [rad/s], one per joint
    q, dq, ddq = (np.zeros((len(t), robot.nv)) for _ in range(3))
    for harmonic in (1, 2, 3):
        w = harmonic * first
        q += 0.4 * np.sin(t * w + w)
        dq += 0.4 * w * np.cos(t * w + w)
        ddq -= 0.4 * w**2 * np.sin(t * w + w)
    tau = th.inverse_dynamics(heavier, q, dq, ddq) + np.random.default_rng(seed).normal(
        0.0, NOISE, q.shape
    )
    names = [
        "t",
        *(f"q.{joint}" for joint in robot.joint_names),
        *(f"tau.{joint}" for joint in robot.joint_names),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, np.hstack([t, q, tau]), delimiter=",", header=",".join(names), comments="")


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "arm4.csv")
    make_log(target)
    print(f"wrote {target}")
