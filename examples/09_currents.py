"""The log has motor currents, and one motor's gain is unknown: identify it beside the inertial
parameters.

    python examples/09_currents.py

A torque is gain × current. With all gains known, currents are torques. An unknown gain is one more
column of the least-squares problem, [Y | −i]·[x; gain] = what the known motors exert. At least one
gain (or a known mass) must be given, or everything could be scaled alike.
"""

from __future__ import annotations

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.errors import NotIdentifiable
from thetahat.excite.trajectories import Fourier
from thetahat.identification.parameter_columns import full_regressor

GAINS = np.array([12.0, 12.0, 8.0, 8.0])  # [N·m/A] at the joint, gear included

arm = th.load(robots.path("arm4")).with_drive(viscous=True, coulomb=True, offset=True)
rng = np.random.default_rng(0)
a, b = rng.normal(size=(2, arm.nv, 5)) * 1.2
t = np.arange(0.0, 10.0, 0.004)
q, dq, ddq = Fourier.at_rest(arm, 10.0, centre=[0.0, 0.0, 0.0, 1.0], a=a, b=b).at(t)
current = (
    th.inverse_dynamics(arm, q, dq, ddq) + 0.1 * rng.normal(size=q.shape)
) / GAINS  # [A], what the drives log

# All gains known: currents are torques, and everything else is as usual.
known = arm.without_drive().with_actuation(np.eye(4), gains=GAINS)
tau = known.drive.actuation.joint_torque_of_current(current)
estimate = th.solve(th.information(arm, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau)))
print(f"all gains known: R² {estimate.r2:.5f}, consistent: {estimate.consistent}")

# No gain known: refused, as zero parameters and zero gains would fit best.
try:
    arm.without_drive().with_actuation(np.eye(4)).drive.actuation.gain_columns(current)
except NotIdentifiable as error:
    print(f"no gain known: {error}")

# The elbow's gain unknown: its column stands beside the base columns of the regressor.
actuation = arm.without_drive().with_actuation(np.eye(4), gains=[*GAINS[:3], None]).drive.actuation
columns, names, torque = actuation.gain_columns(current)
Y = full_regressor(arm, q, dq, ddq)[..., th.base_parameters(arm).independent]
A = np.concatenate([Y, columns], axis=-1).reshape(-1, Y.shape[-1] + len(names))
gain = np.linalg.lstsq(A, torque.ravel(), rcond=None)[0][-1]
print(f"{names[0]}: {gain:.3f} N·m/A, truth {GAINS[3]:.3f}")
