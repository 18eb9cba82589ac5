"""Open-loop simulation of robots driven by logged torques, eight simulations side by side.

    (M(q) + armature) q̈ + h(q, q̇) + springs(q) + offset + viscous q̇ + one_sided |q̇|
        + quadratic q̇|q̇| + f d = τ
    f = coulomb + stribeck exp(−(q̇/v_s)²) + (load + load_stribeck exp(−(q̇/v_l)²)) |τ_b|
        + load_squared τ_b² + load_driving or load_driven |τ_b|,   τ_b: torque that moves the bodies

d is the direction of dry friction: the sign of q̇, tanh(q̇/zone), or a hysteresis over `travel`. All
of these are a motor's: motors turn at q̇_m = Bᵀq̇, and the equation is solved at the motors.

A step of length h evaluates positions at its middle, velocities by extrapolation to its middle,
torques as the mean of both ends, and linear damping by the trapezoidal rule, so that its error is
of second order; dry friction with a sign is taken at its end, where the new velocity minimises

    ½ vᵀAv − bᵀv + h Σ f|v|,   A = M + armature + ½ h damping

so that a joint at rest stays at rest as long as friction can hold it.
"""

from __future__ import annotations

import math

import numpy as np

from thetahat.kernels.crba import mass_matrix
from thetahat.kernels.drive_simulation import solve_friction
from thetahat.kernels.jit import inline, jit
from thetahat.kernels.lanes import WIDTH
from thetahat.kernels.rnea import inverse_dynamics

# Columns of the parameters of a motor.
VISCOUS, COULOMB, ARMATURE, OFFSET, STRIBECK, STRIBECK_SPEED, LOAD = range(7)
ONE_SIDED, QUADRATIC, SPRING, SPRING_SINE, SPRING_COSINE, ZONE, TRAVEL = range(7, 14)
LOAD_DRIVING, LOAD_DRIVEN, LOAD_SQUARED, LOAD_STRIBECK, LOAD_SPEED = range(14, 19)
PARAMETERS = 19
# Columns of a job: first row, rows, row of `out`.
FIRST, ROWS, OUT = range(3)


@inline
def times(A, x, work, n):
    """Replace x by A x."""
    for i in range(n):
        total = 0.0
        for k in range(n):
            total += A[i, k] * x[k]
        work[i] = total
    for i in range(n):
        x[i] = work[i]


@inline
def motor_matrix(inverse, M, work, n):
    """Replace M by B⁻¹ M B⁻ᵀ."""
    for i in range(n):
        for j in range(n):
            total = 0.0
            for k in range(n):
                total += inverse[i, k] * M[k * n + j]
            work[i * n + j] = total
    for i in range(n):
        for j in range(n):
            total = 0.0
            for k in range(n):
                total += work[i * n + k] * inverse[j, k]
            M[i * n + j] = total


@inline
def step(p, h, q, v, ahead, d, M, rest, load, b, f, nv):
    """Advance the motors of one lane by h: new velocity in v, direction of hysteresis in d.

    q: position in the middle. ahead: velocity extrapolated to there. M: changed. rest: torque that
    is left to friction and acceleration. load: torque that moved the bodies in the last step.
    """
    for i in range(nv):
        w = ahead[i]
        size = abs(load[i])
        friction = p[i, COULOMB] + size * (p[i, LOAD] + p[i, LOAD_SQUARED] * size)
        if load[i] * w != 0.0:
            friction += size * (p[i, LOAD_DRIVING] if load[i] * w > 0.0 else p[i, LOAD_DRIVEN])
        if p[i, LOAD_STRIBECK] != 0.0:
            slow = w / p[i, LOAD_SPEED]
            friction += size * p[i, LOAD_STRIBECK] * math.exp(-slow * slow)
        if p[i, STRIBECK] != 0.0:
            slow = w / p[i, STRIBECK_SPEED]
            friction += p[i, STRIBECK] * math.exp(-slow * slow)
        damping = p[i, VISCOUS] + p[i, QUADRATIC] * abs(w)
        force = rest[i] - p[i, OFFSET] - p[i, ONE_SIDED] * abs(w)
        force -= p[i, SPRING] * q[i]
        if p[i, SPRING_SINE] != 0.0 or p[i, SPRING_COSINE] != 0.0:
            force -= p[i, SPRING_SINE] * math.sin(q[i]) + p[i, SPRING_COSINE] * math.cos(q[i])
        f[i] = 0.0
        if p[i, ZONE] > 0.0:
            x = abs(w) / p[i, ZONE]
            damping += friction / p[i, ZONE] * (math.tanh(x) / x if x > 1e-6 else 1.0)
        elif p[i, TRAVEL] > 0.0:
            before = d[i]
            d[i] = (before + h * w / p[i, TRAVEL]) / (1.0 + h * abs(w) / p[i, TRAVEL])
            force -= friction * 0.5 * (before + d[i])
        else:
            f[i] = h * max(friction, 0.0)
        M[i * nv + i] += p[i, ARMATURE]
        total = 0.0
        for j in range(nv):
            total += M[i * nv + j] * v[j]
        b[i] = total + h * (force - 0.5 * damping * v[i])
        M[i * nv + i] += 0.5 * h * damping
    solve_friction(M, b, f, v, nv)


@jit
def simulate_torques(
    tree, gravity, theta, parameters, maps, jobs, t, tau, q0, dq0, d0, substeps, scratch, out
):
    """Simulate every job (jobs, 3) and fill out (rows, nv) with positions.

    parameters: (nv, PARAMETERS) of the motors. maps: Bᵀ, B⁻¹, B⁻ᵀ; without rows where B is the
    identity. t, tau: (rows,), (rows, nv). q0, dq0, d0: state, and direction of dry friction at each
    row, read at the first row of a job. tree, scratch: as in drive_simulation.
    """
    to_motor, inverse, to_joint = maps
    coupled = to_motor.shape[0] > 0
    nv = q0.shape[1]
    q, v, middle = np.zeros((WIDTH, nv)), np.zeros((WIDTH, nv)), np.zeros((WIDTH, nv))
    last, ahead, d = np.zeros((WIDTH, nv)), np.zeros((WIDTH, nv)), np.zeros((WIDTH, nv))
    load, still, force = np.zeros((WIDTH, nv)), np.zeros((WIDTH, nv)), np.zeros((WIDTH, nv))
    M, none, bodies = np.zeros((WIDTH, nv * nv)), np.zeros((WIDTH, 0)), np.zeros(nv * nv)
    b, f, work = np.zeros(nv), np.zeros(nv), np.zeros(nv * nv)
    acting, carried = np.zeros(nv), np.zeros(nv)
    v_m, before, ahead_m, q_m = np.zeros(nv), np.zeros(nv), np.zeros(nv), np.zeros(nv)
    for tile in range(0, jobs.shape[0], WIDTH):
        count = min(WIDTH, jobs.shape[0] - tile)
        longest = 0
        for lane in range(WIDTH):
            job = jobs[tile + min(lane, count - 1)]
            longest = max(longest, job[ROWS])
            for i in range(nv):
                q[lane, i], v[lane, i] = q0[job[FIRST], i], dq0[job[FIRST], i]
                last[lane, i], d[lane, i] = v[lane, i], d0[job[FIRST], i]
                load[lane, i] = tau[job[FIRST], i]
            if coupled:
                times(inverse, load[lane], work, nv)
        for k in range(longest):
            for lane in range(count):
                job = jobs[tile + lane]
                if k < job[ROWS]:
                    for i in range(nv):
                        out[job[OUT] + k, i] = q[lane, i]
            if k + 1 == longest:
                break
            for sub in range(substeps):
                for lane in range(count):
                    row = jobs[tile + lane, FIRST] + k
                    if k + 1 < jobs[tile + lane, ROWS]:
                        h = (t[row + 1] - t[row]) / substeps
                        for i in range(nv):
                            middle[lane, i] = q[lane, i] + 0.5 * h * v[lane, i]
                            ahead[lane, i] = 1.5 * v[lane, i] - 0.5 * last[lane, i]
                mass_matrix(*tree, theta, nv, middle, *scratch[:4], M)
                inverse_dynamics(
                    *tree,
                    gravity,
                    theta,
                    middle,
                    ahead,
                    still,
                    none,
                    *scratch[:2],
                    *scratch[4:],
                    force,
                )
                for lane in range(count):
                    row = jobs[tile + lane, FIRST] + k
                    if k + 1 >= jobs[tile + lane, ROWS]:
                        continue
                    h = (t[row + 1] - t[row]) / substeps
                    share = (sub + 0.5) / substeps
                    for i in range(nv):
                        acting[i] = tau[row, i] + share * (tau[row + 1, i] - tau[row, i])
                        carried[i] = force[lane, i]
                        v_m[i], ahead_m[i], q_m[i] = v[lane, i], ahead[lane, i], middle[lane, i]
                        last[lane, i] = v[lane, i]
                    if coupled:
                        motor_matrix(inverse, M[lane], work, nv)
                        times(inverse, acting, work, nv)
                        times(inverse, carried, work, nv)
                        times(to_motor, v_m, work, nv)
                        times(to_motor, ahead_m, work, nv)
                        times(to_motor, q_m, work, nv)
                    for i in range(nv):
                        acting[i] -= carried[i]
                        before[i] = v_m[i]
                    for i in range(nv * nv):
                        bodies[i] = M[lane, i]
                    step(
                        parameters,
                        h,
                        q_m,
                        v_m,
                        ahead_m,
                        d[lane],
                        M[lane],
                        acting,
                        load[lane],
                        b,
                        f,
                        nv,
                    )
                    for i in range(nv):
                        total = carried[i]
                        for j in range(nv):
                            total += bodies[i * nv + j] * (v_m[j] - before[j]) / h
                        load[lane, i] = total
                    if coupled:
                        times(to_joint, v_m, work, nv)
                    for i in range(nv):
                        v[lane, i] = v_m[i]
                        q[lane, i] = middle[lane, i] + 0.5 * h * v_m[i]
