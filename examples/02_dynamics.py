"""The equation of motion D(q)q̈ + C(q, q̇)q̇ + G(q) = U, its regressor, and three laws that tie
them together.

    python examples/02_dynamics.py

Every function takes one state (n,) or many (samples, n).
"""

from __future__ import annotations

import numpy as np

import thetahat as th
from thetahat import robots

robot = th.load(robots.path("arm7"))
rng = np.random.default_rng(0)
q, dq, ddq = rng.uniform(-1.0, 1.0, (3, 1000, robot.nv))

# The parts of the equation of motion, and their sum by recursive Newton–Euler.
D, C, G = (
    th.mass_matrix(robot, q, rigid=True),
    th.coriolis_matrix(robot, q, dq),
    th.gravity(robot, q),
)
tau = th.inverse_dynamics(
    robot, q, dq, ddq, rigid=True
)  # rigid: without the friction that the file states
parts = np.einsum("sij,sj->si", D, ddq) + np.einsum("sij,sj->si", C, dq) + G
print(f"D q̈ + C q̇ + G − U:       {np.abs(parts - tau).max():.1e} N·m at most")

# It is linear in the ten parameters of every body: Y(q, q̇, q̈)·θ = U. The fast regressor and the
# paper's Algorithm 1 agree.
Y = th.regressor(robot, q, dq, ddq)
print(
    f"Y·θ − U:                 {np.abs(Y @ robot.theta - tau).max():.1e} N·m at most, Y is"
    f" {Y.shape}"
)
literal = th.regressor_by_unit_parameters(robot, q[:10], dq[:10], ddq[:10])
print(f"Y − Y by Algorithm 1:    {np.abs(Y[:10] - literal).max():.1e} at most")

# Forward dynamics is the inverse of inverse dynamics, friction included.
again = th.forward_dynamics(robot, q, dq, th.inverse_dynamics(robot, q, dq, ddq))
print(f"q̈ there and back:        {np.abs(again - ddq).max():.1e} rad/s² at most")
