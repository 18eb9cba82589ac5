"""Open-loop simulation of position-controlled joints: PD drives with delay, torque limit and dry
friction, eight simulations side by side.

A drive turns the commanded position into torque, and friction opposes the motion:

    e = u(t − delay) − q_m,   τ = clip(kp dz(e) − kd q̇, ±limit)
    (M(q) + armature) q̈ + h(q, q̇) + viscous q̇ + f sgn(q̇) + offset = τ
    f = coulomb + stribeck exp(−(q̇/v_s)²) + load |τ| + quadratic q̇²

q_m = q + bias is what the encoder shows, and dz a dead zone. One step of length h takes dry
friction at its end and damping d in between, so that the new velocity minimises

    ½ vᵀ A v − bᵀ v + h Σ f_i |v_i|,   A = M + armature + θ h d + (θ − ½) h² kp

and a joint at rest stays at rest as long as friction can hold it. The minimum is found coordinate
by coordinate (soft thresholding), which converges for every positive definite A. θ(h d/m) is fitted
to the exponential decay of the velocity: ½ where a joint is light on damping (the leapfrog
scheme), 1 where it is all damping (the midpoint rule for its position), so that neither rotor
inertia nor damping depend on the length of the step to first order.
"""

from __future__ import annotations

import math

import numpy as np

from thetahat.kernels.crba import mass_matrix
from thetahat.kernels.jit import inline, jit
from thetahat.kernels.lanes import WIDTH
from thetahat.kernels.rnea import inverse_dynamics

# Columns of the parameters of a joint.
KP, KD, VISCOUS, COULOMB, ARMATURE, DELAY, LIMIT, BIAS, OFFSET, STRIBECK = range(10)
STRIBECK_SPEED, LOAD, QUADRATIC, DEADBAND = range(10, 14)
PARAMETERS = 14
# Columns of a job: which parameters, first row, rows, first row of the run, row of `out`.
JOB_SET, JOB_FIRST, JOB_ROWS, JOB_RUN, JOB_OUT = range(5)
SWEEPS = 60  # at most, of the coordinates
TOLERANCE = 1e-9  # [rad/s] of the velocities


@inline
def held_command(t, u, joint, first, row, begin, end):
    """Mean of a command, held from each stamp to the next, between two times.

    first: row before which the first command holds. row: at or behind `end`.
    """
    k = row
    while k > first and t[k] > begin:
        k -= 1
    total, at = 0.0, begin
    while True:
        stop = end if k >= row or t[k + 1] > end else t[k + 1]
        if stop > at:
            total += (stop - at) * u[k, joint]
            at = stop
        if k >= row or t[k + 1] > end:
            break
        k += 1
    return total / (end - begin)


@inline
def damping_weight(z):
    """θ(z) = 1/(1 − e^−z) − 1/z, for which a step decays as e^−z: ½ for small z, 1 for large."""
    if z < 1e-2:
        return 0.5 + z / 12.0
    return 1.0 / (1.0 - math.exp(-z)) - 1.0 / z


@inline
def commands(p, t, command, first, row, begin, h, M, u):
    """Fill u with the commands that act in the step from `begin` on."""
    nv = u.shape[0]
    for i in range(nv):
        m = M[i * nv + i] + p[i, ARMATURE]
        weight = damping_weight(h * (p[i, VISCOUS] + p[i, KD]) / m)
        at = begin - p[i, DELAY] + (weight - 1.0) * h  # where the step takes its forces
        u[i] = held_command(t, command, i, first, row, at, at + h)


@inline
def solve_friction(A, b, f, v, nv):
    """Minimise ½ vᵀAv − bᵀv + Σ f|v| from v on, in place."""
    for _ in range(SWEEPS):
        change = 0.0
        for i in range(nv):
            r = b[i]
            for j in range(nv):
                if j != i:
                    r -= A[i * nv + j] * v[j]
            new = 0.0
            if r > f[i]:
                new = (r - f[i]) / A[i * nv + i]
            elif r < -f[i]:
                new = (r + f[i]) / A[i * nv + i]
            change = max(change, abs(new - v[i]))
            v[i] = new
        if change < TOLERANCE:
            break


@inline
def drive_step(p, u, q, v, h, M, bias_force, b, f, nv):
    """Advance one lane by h: M (nv·nv, changed), h(q, q̇), commands u, state q, v in place."""
    for i in range(nv):
        e = u[i] - q[i] - p[i, BIAS]
        band = p[i, DEADBAND]
        stiffness = p[i, KP] if abs(e) > band else 0.0
        e = e - band if e > band else (e + band if e < -band else 0.0)
        damping = p[i, VISCOUS] + p[i, KD]
        spring = p[i, KP] * e
        tau = spring - p[i, KD] * v[i]
        if abs(tau) >= p[i, LIMIT]:
            tau = p[i, LIMIT] if tau > 0.0 else -p[i, LIMIT]
            spring, stiffness, damping = tau, 0.0, p[i, VISCOUS]
        slow = v[i] / p[i, STRIBECK_SPEED]
        f[i] = h * (
            p[i, COULOMB]
            + p[i, STRIBECK] * math.exp(-slow * slow)
            + p[i, LOAD] * abs(tau)
            + p[i, QUADRATIC] * v[i] * v[i]
        )
        M[i * nv + i] += p[i, ARMATURE]
        total = 0.0
        for j in range(nv):
            total += M[i * nv + j] * v[j]
        weight = damping_weight(h * damping / M[i * nv + i])
        b[i] = total + h * (spring - p[i, OFFSET] - bias_force[i] - (1.0 - weight) * damping * v[i])
        M[i * nv + i] += h * (weight * damping + (weight - 0.5) * h * stiffness)
    solve_friction(M, b, f, v, nv)
    for i in range(nv):
        q[i] += h * v[i]


@jit
def simulate_drives(
    tree, gravity, theta, parameters, jobs, t, command, q0, dq0, substeps, scratch, out
):
    """Simulate every job (jobs, 5) and fill out (rows, nv) with what the encoders would show.

    parameters: (sets, nv, PARAMETERS). t, command: (rows,), (rows, nv) of all runs. q0, dq0: state
    at each row, read at the first row of a job. tree: topology, geometry, dofs, axes. scratch:
    nodes, directions, composite, matrix, forces, torques.
    """
    nv = q0.shape[1]
    q, v = np.zeros((WIDTH, nv)), np.zeros((WIDTH, nv))
    still, force = np.zeros((WIDTH, nv)), np.zeros((WIDTH, nv))
    M, none = np.zeros((WIDTH, nv * nv)), np.zeros((WIDTH, 0))
    b, f, u = np.zeros(nv), np.zeros(nv), np.zeros(nv)
    for tile in range(0, jobs.shape[0], WIDTH):
        count = min(WIDTH, jobs.shape[0] - tile)
        longest = 0
        for lane in range(WIDTH):
            job = jobs[tile + min(lane, count - 1)]
            longest = max(longest, job[JOB_ROWS])
            for i in range(nv):
                bias = parameters[job[JOB_SET], i, BIAS]
                q[lane, i], v[lane, i] = q0[job[JOB_FIRST], i] - bias, dq0[job[JOB_FIRST], i]
        for k in range(longest):
            for lane in range(count):
                job = jobs[tile + lane]
                if k < job[JOB_ROWS]:
                    for i in range(nv):
                        bias = parameters[job[JOB_SET], i, BIAS]
                        out[job[JOB_OUT] + k, i] = q[lane, i] + bias
            if k + 1 == longest:
                break
            for sub in range(substeps):
                mass_matrix(*tree, theta, nv, q, *scratch[:4], M)
                inverse_dynamics(
                    *tree, gravity, theta, q, v, still, none, *scratch[:2], *scratch[4:], force
                )
                for lane in range(count):
                    job = jobs[tile + lane]
                    row = job[JOB_FIRST] + k
                    if k + 1 < job[JOB_ROWS]:
                        p = parameters[job[JOB_SET]]
                        h = (t[row + 1] - t[row]) / substeps
                        commands(p, t, command, job[JOB_RUN], row, t[row] + sub * h, h, M[lane], u)
                        drive_step(p, u, q[lane], v[lane], h, M[lane], force[lane], b, f, nv)
