"""What does the arm hold? Two runs of a simulated arm, with and without a payload on its tool, tell its mass, centre and inertia.

    python examples/payload.py

The arm's own parameters and friction are never used to find it: what the runs share cancels, what is left is the payload.
"""

from __future__ import annotations

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.identify.payload import payload_from_difference
from thetahat.model.parameters import from_mass_com_inertia, transform

NOISE = 0.2  # [N·m] of the torque sensors
HELD = from_mass_com_inertia(np.array(0.75), np.array([0.02, 0.0, 0.06]), np.diag([3e-3, 3e-3, 8e-4]))  # in the tool's frame


def run(robot: th.Robot, rng: np.random.Generator) -> th.Information:
    """Ten seconds at 1 kHz on sums of five sines per joint, with noise on every torque."""
    t = np.arange(0.0, 10.0, 1e-3)[:, None, None]
    rates = 0.2 * np.pi * np.arange(1, 6)[:, None]  # [rad/s]
    size, phase = 0.5 * rng.normal(size=(5, robot.nv)), rng.uniform(0.0, 2.0 * np.pi, (5, robot.nv))
    q = np.sum(size * np.sin(rates * t + phase), axis=1)
    dq = np.sum(size * rates * np.cos(rates * t + phase), axis=1)
    ddq = -np.sum(size * rates**2 * np.sin(rates * t + phase), axis=1)
    tau = th.inverse_dynamics(robot, q, dq, ddq) + NOISE * rng.normal(size=q.shape)
    return th.information(robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau))


if __name__ == "__main__":
    arm = th.load(robots.path("arm7")).with_drive(viscous=True, coulomb=True, offset=True)
    tool = next(link for link in arm.links if link.name == "tool")
    theta = arm.theta.copy()
    theta[10 * tool.body : 10 * tool.body + 10] += transform(HELD, tool.rotation, tool.translation)
    rng = np.random.default_rng(0)
    print(payload_from_difference(run(arm.with_parameters(theta), rng), run(arm, rng), "tool"))
