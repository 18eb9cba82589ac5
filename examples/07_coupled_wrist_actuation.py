"""A wrist whose motors turn two joints: friction belongs to the motors, and a map from motors to
joints says so.

    python examples/07_coupled_wrist_actuation.py

On many industrial arms motor 6 sits behind joint 5, so that turning joint 5 alone makes motor 6
turn, too. A joint-wise friction model cannot explain that; the map B of u_joint = B·u_motor can, as
motors turn at q̇_m = Bᵀq̇.
"""

from __future__ import annotations

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.excite.trajectories import Fourier

WRIST = {
    "viscous": 1.2,
    "coulomb": 2.0,
}  # [N·m·s/rad], [N·m] of the last motor, mounted behind the joint before it

arm = th.load(robots.path("arm7")).without_drive()
n, (fifth, sixth) = arm.nv, (arm.nv - 2, arm.nv - 1)

# Motor 6 drives joint 6 and, through the gears it shares, takes joint 5 along; every other motor
# drives its own joint.
B = np.eye(n)
B[fifth, sixth] = 1.0
coupled = arm.with_actuation(B).with_drive(viscous=True, coulomb=True, offset=True)
friction = {term: np.where(np.arange(n) == sixth, value, 0.3) for term, value in WRIST.items()}
truth = coupled.with_parameters(
    np.concatenate([arm.theta, friction["viscous"], friction["coulomb"], np.zeros(n)])
)

# A log of the truth: two periods of a Fourier series, joint torques with a little noise.
rng = np.random.default_rng(1)
a, b = rng.normal(size=(2, n, 5)) * 0.9
t = np.arange(0.0, 20.0, 0.004)
q, dq, ddq = Fourier.at_rest(arm, 10.0, centre=np.zeros(n), a=a, b=b, periods=2).at(t)
tau = th.inverse_dynamics(truth, q, dq, ddq) + 0.05 * rng.normal(size=q.shape)
samples = th.Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t)
train, test = samples.split(0.6)

for name, robot in (
    ("joint by joint", arm.with_drive(viscous=True, coulomb=True, offset=True)),
    ("with the map", coupled),
):
    estimate = th.solve(th.information(robot, train))
    scores = th.validate(robot.with_parameters(estimate), test)
    last = estimate.drive["coulomb"][sixth]
    print(
        f"{name:15} R² of the last two joints {scores.r2[fifth]:.4f} {scores.r2[sixth]:.4f};"
        f" Coulomb friction of motor 6: {last:.3f} N·m"
    )
print(f"{'truth':15} {'':42}Coulomb friction of motor 6: {WRIST['coulomb']:.3f} N·m")
