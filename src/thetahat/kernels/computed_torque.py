"""Computed torque in one call: q̈_cmd = q̈_d + kp e + kd ė, then D q̈_cmd + C q̇ + G, the drive of
one motor per joint, and a PD torque on top.

What takes a loop's time at seven joints is not the recursion but the way into and out of each small
array operation around it.
"""

from __future__ import annotations

import math

from thetahat.kernels.jit import jit
from thetahat.kernels.rnea import inverse_dynamics

# Rows of the state (7, n); the last two are filled here.
Q, DQ, Q_WANTED, DQ_WANTED, DDQ_WANTED, DDQ, SPEED = 0, 1, 2, 3, 4, 5, 6
STATE_SIZE = 7
# Rows of the constants (9, n).
KP, KD, STIFFNESS, DAMPING, VISCOUS, COULOMB, OFFSET, ARMATURE, ZONE = 0, 1, 2, 3, 4, 5, 6, 7, 8
CONSTANTS_SIZE = 9


@jit
def computed_torque(
    topology,
    geometry,
    dofs,
    axes,
    gravity,
    theta,
    state,
    constants,
    measured_speed,
    wrenches,
    nodes,
    directions,
    forces,
    torques,
    out,
):
    """Fill out (1, nv); friction is that of the wanted speed, or of the measured one. True if every
    torque is finite.
    """
    count = out.shape[1]
    for k in range(count):
        e, de = state[Q_WANTED, k] - state[Q, k], state[DQ_WANTED, k] - state[DQ, k]
        state[DDQ, k] = state[DDQ_WANTED, k] + constants[KP, k] * e + constants[KD, k] * de
        state[SPEED, k] = state[DQ, k] if measured_speed else state[DQ_WANTED, k]
    inverse_dynamics(
        topology,
        geometry,
        dofs,
        axes,
        gravity,
        theta,
        state[Q : Q + 1],
        state[DQ : DQ + 1],
        state[DDQ : DDQ + 1],
        wrenches,
        nodes,
        directions,
        forces,
        torques,
        out,
    )
    total = 0.0
    for k in range(count):
        e, de, speed = (
            state[Q_WANTED, k] - state[Q, k],
            state[DQ_WANTED, k] - state[DQ, k],
            state[SPEED, k],
        )
        sign = 0.0 if speed == 0.0 else math.copysign(1.0, speed)
        if constants[ZONE, k] > 0.0:
            sign = math.tanh(speed / constants[ZONE, k])
        if speed != speed:
            sign = speed
        drive = (
            constants[VISCOUS, k] * speed
            + constants[COULOMB, k] * sign
            + constants[OFFSET, k]
            + constants[ARMATURE, k] * state[DDQ, k]
        )
        out[0, k] += drive + constants[STIFFNESS, k] * e + constants[DAMPING, k] * de
        total += abs(out[0, k])
    return math.isfinite(total)
