"""Computed torque in one call: q̈_cmd = q̈_d + kp e + kd ė, then D q̈_cmd + C q̇ + G, the drive of
one motor per joint, and a PD torque on top.

What takes a loop's time at seven joints is not the recursion but the way into and out of each small
array operation around it.

Feedback may have a mass matrix of its own: D q̈_d + C q̇ + G by one set of parameters, D₀ (kp e +
kd ė) by another. The recursion works on eight samples at once, so D₀ (kp e + kd ė), as the torque
of that acceleration less that of none, takes but a second way back through the tree.
"""

from __future__ import annotations

import math

from thetahat.kernels.jit import inline, jit
from thetahat.kernels.kinematics import COLUMN
from thetahat.kernels.lanes import splat, store
from thetahat.kernels.rnea import COUPLE, FORCE, inverse_dynamics, needed_wrench, sum_up
from thetahat.kernels.vectors import store3, zero3

# Rows of the state (7, n); the last two are filled here.
Q, DQ, Q_WANTED, DQ_WANTED, DDQ_WANTED, DDQ, SPEED = 0, 1, 2, 3, 4, 5, 6
STATE_SIZE = 7
# Rows of the constants (10, n).
KP, KD, STIFFNESS, DAMPING, VISCOUS, COULOMB, OFFSET, ARMATURE, ZONE = 0, 1, 2, 3, 4, 5, 6, 7, 8
ROTOR = 9  # what feedback has beside ARMATURE
CONSTANTS_SIZE = 10
# Rows of `lanes` (9, n), three samples: the wanted motion, feedback alone, nothing.
LANES_Q, LANES_DQ, LANES_DDQ = 0, 3, 6
LANES_SIZE, SAMPLES = 9, 3


@inline
def _weigh(topology, dofs, axes, theta, nodes, directions, forces, torques):
    """Fill torques (nv, 1, 8) by other parameters, for the motion that `nodes` hold."""
    for v in range(torques.shape[0]):
        store(torques, v, 0, splat(0.0))
    for i in range(topology.shape[0]):
        column = topology[i, COLUMN]
        couple, force = zero3(), zero3()
        if column >= 0:
            couple, force = needed_wrench(theta, column, nodes, i)
        store3(forces, i + 1, COUPLE, couple)
        store3(forces, i + 1, FORCE, force)
    sum_up(topology, dofs, axes, nodes, directions, forces, torques)


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
    feedback_theta,
    lanes,
):
    """Fill the first row of out (3, nv); friction is that of the wanted speed, or of the measured
    one. True if every torque is finite.

    feedback_theta: parameters whose mass matrix feedback has; empty: those of theta.
    """
    count, apart = out.shape[1], feedback_theta.shape[0] > 0
    for k in range(count):
        e, de = state[Q_WANTED, k] - state[Q, k], state[DQ_WANTED, k] - state[DQ, k]
        feedback = constants[KP, k] * e + constants[KD, k] * de
        state[DDQ, k] = state[DDQ_WANTED, k] + feedback
        state[SPEED, k] = state[DQ, k] if measured_speed else state[DQ_WANTED, k]
        if apart:
            for row in range(LANES_Q, LANES_DQ):
                lanes[row, k] = state[Q, k]
            lanes[LANES_DQ, k] = state[DQ, k]
            lanes[LANES_DDQ, k] = state[DDQ_WANTED, k]
            lanes[LANES_DDQ + 1, k] = feedback
    if apart:
        inverse_dynamics(
            topology,
            geometry,
            dofs,
            axes,
            gravity,
            theta,
            lanes[LANES_Q:LANES_DQ],
            lanes[LANES_DQ:LANES_DDQ],
            lanes[LANES_DDQ:],
            wrenches,
            nodes,
            directions,
            forces,
            torques,
            out,
        )
        _weigh(topology, dofs, axes, feedback_theta, nodes, directions, forces, torques)
        for k in range(count):
            rotor = constants[ROTOR, k] * lanes[LANES_DDQ + 1, k]
            out[0, k] += torques[k, 0, 1] - torques[k, 0, 2] + rotor
    else:
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
            out[:1],
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
