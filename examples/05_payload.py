"""What does the arm hold? Mass, centre and inertia of a payload on its tool, found in two ways.

    python examples/05_payload.py

From two runs, with and without the payload: the arm's own parameters and friction cancel, and need
not be known. From one run of an arm that was identified before: what that run shows beyond the arm
is the payload, and the arm's own uncertainty is counted.
"""

from __future__ import annotations

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.identification.payload.payload_difference import (
    payload_from_difference,
    payload_on_link,
)
from thetahat.model.parameters import from_mass_com_inertia, transform

NOISE = 0.2  # [N·m] of the torque sensors
HELD = from_mass_com_inertia(
    np.array(0.75), np.array([0.02, 0.0, 0.06]), np.diag([3e-3, 3e-3, 8e-4])
)  # in the tool's frame


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


arm = th.load(robots.path("arm7")).with_drive(viscous=True, coulomb=True, offset=True)

# The simulated truth: the payload's ten numbers, seen from the body that carries the tool, are
# added to that body's.
tool = next(link for link in arm.links if link.name == "tool")
theta = arm.theta.copy()
theta[10 * tool.body : 10 * tool.body + 10] += transform(HELD, tool.rotation, tool.translation)

rng = np.random.default_rng(0)
loaded, unloaded = run(arm.with_parameters(theta), rng), run(arm, rng)

print("Two runs:")
print(payload_from_difference(loaded, unloaded, "tool"))

print("One run, of an arm that was identified without payload:")
payload = payload_on_link(loaded, th.solve(unloaded), "tool")
print(payload)
print(
    f"The arm that holds it weighs {payload.added_to(arm).mass:.3f} kg, the bare one"
    f" {arm.mass:.3f} kg."
)
