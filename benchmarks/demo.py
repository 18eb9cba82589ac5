"""The speed comparison of `make demo`: the regressor of a shipped robot beside Pinocchio called from Python."""

from __future__ import annotations

import numpy as np

import thetahat as th
from benchmarks.dynamics import SAMPLES, batches
from benchmarks.robots import pair
from thetahat import robots


def main() -> None:
    p = pair("arm7", robots.path("arm7"), SAMPLES)
    Y, tau = th.regressor(p.robot, *p.states), th.inverse_dynamics(p.robot, *p.states, rigid=True)
    print(f"\narm7, {SAMPLES} random states: largest |Y·θ − inverse dynamics| = {np.abs(Y @ p.robot.theta - tau).max():.1e} N·m\n")
    for what, peer, (one, two) in batches(p):
        print(f"{what:17} {one:6.3f} µs per sample on one thread, {two:6.3f} on two")
        print(f"{'':17} {peer:6.2f} by Pinocchio called from Python: {peer / one:.1f}× and {peer / two:.1f}×")


if __name__ == "__main__":
    main()
