"""Open-loop simulation of position-controlled joints: PD drives with delay, torque limit and dry
friction, eight simulations side by side.

A drive turns the commanded position into torque, and friction opposes the motion:

    e = u(t − delay) − q_m,   τ = clip(kp dz(e) − kd q̇, −back_emf q̇ ± limit)
    (M(q) + armature) q̈ + h(q, q̇) + viscous q̇ + f sgn(q̇) + offset = τ
    f = coulomb + stribeck exp(−(q̇/v_s)²) + load |τ| + quadratic q̇²

q_m = q + bias is what the encoder shows, and dz a dead zone. The torque that a limited voltage can
make falls with speed by back_emf. One step of length h takes dry friction at its end and damping d
in between, so that the new velocity minimises

    ½ vᵀ A v − bᵀ v + h Σ f_i |v_i|,   A = M + armature + θ h d + (θ − ½) h² kp

and a joint at rest stays at rest as long as friction can hold it. The minimum is found coordinate
by coordinate (soft thresholding), which converges for every positive definite A. θ(h d/m) is fitted
to the exponential decay of the velocity: ½ where a joint is light on damping (the leapfrog
scheme), 1 where it is all damping (the midpoint rule for its position), so that neither rotor
inertia nor damping depend on the length of the step to first order.

A gear with backlash lets its motor run ahead of the link, whose position the encoder shows, by
±backlash/2. Rotor, friction, offset and back_emf are then the motor's, which moves with a speed w
of its own, kp and kd act on what the encoder shows, and |slack + h (w − v)| ≤ backlash/2 holds at
the end of every step: motor and link move apart, or one pushes the other without bouncing off.
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
STRIBECK_SPEED, LOAD, QUADRATIC, DEADBAND, BACKLASH, BACK_EMF = range(10, 16)
PARAMETERS = 16
# Columns of a job: which parameters, first row, rows, first row of the run, row of `out`.
JOB_SET, JOB_FIRST, JOB_ROWS, JOB_RUN, JOB_OUT = range(5)
SWEEPS = 60  # at most, of the coordinates
TOLERANCE = 1e-9  # [rad/s] of the velocities
UNLOADED = 1e-9  # [N·m] of a link that rests on neither side of its gear


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
def soft(x, f):
    """x less friction f that opposes it; zero where f holds it."""
    if x > f:
        return x - f
    return x + f if x < -f else 0.0


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
            new = soft(r, f[i]) / A[i * nv + i]
            change = max(change, abs(new - v[i]))
            v[i] = new
        if change < TOLERANCE:
            break


@inline
def solve_gears(A, b, f, v, motor, nv):
    """The same with motors that may move apart from their links, in place.

    motor: (6, nv): speed, inertia, momentum, how much faster than its link it may turn at least and
    at most, and how its momentum falls with the link's speed; no inertia where no backlash is.
    """
    for _ in range(SWEEPS):
        change = 0.0
        for i in range(nv):
            r, a = b[i], A[i * nv + i]
            for j in range(nv):
                if j != i:
                    r -= A[i * nv + j] * v[j]
            if motor[1, i] == 0.0:
                new = soft(r, f[i]) / a
            else:
                new, loop = r / a, motor[5, i]
                own = soft(motor[2, i] - loop * new, f[i]) / motor[1, i]
                ahead = own - new
                if ahead < motor[3, i] or ahead > motor[4, i]:
                    ahead = motor[3, i] if ahead < motor[3, i] else motor[4, i]
                    own = soft(r + (a + loop) * ahead + motor[2, i], f[i])
                    own /= a + loop + motor[1, i]
                    new = own - ahead
                motor[0, i] = own
            change = max(change, abs(new - v[i]))
            v[i] = new
        if change < TOLERANCE:
            break


@inline
def drive_law(p, i, u, q, v, w):
    """Return the drive's torque at rest, how it falls with q, with the encoder's speed v and with
    the motor's w, the torque, and whether it is limited.
    """
    e, band = u - q - p[i, BIAS], p[i, DEADBAND]
    stiffness = p[i, KP] if abs(e) > band else 0.0
    e = e - band if e > band else (e + band if e < -band else 0.0)
    spring, by_v, by_w = p[i, KP] * e, p[i, KD], 0.0
    tau, limit, lost = spring - p[i, KD] * v, p[i, LIMIT], p[i, BACK_EMF] * w
    limited = tau >= limit - lost or tau <= -limit - lost
    if limited:
        spring = limit if tau >= limit - lost else -limit
        tau, stiffness, by_v, by_w = spring - lost, 0.0, 0.0, p[i, BACK_EMF]
    return spring, stiffness, by_v, by_w, tau, limited


@inline
def drive_step(p, u, q, v, motor, slack, h, M, bias_force, b, f, nv):
    """Advance one lane by h: M (nv·nv, changed), h(q, q̇), commands u; in place: q, v, speeds of the
    motors motor[0], and by how much they are ahead of their links, slack.
    """
    apart = False
    for i in range(nv):
        geared = p[i, BACKLASH] > 0.0
        turning = motor[0, i] if geared else v[i]
        spring, stiffness, kd, damping, tau, _ = drive_law(p, i, u[i], q[i], v[i], turning)
        damping += p[i, VISCOUS]
        slow = turning / p[i, STRIBECK_SPEED]
        f[i] = h * (
            p[i, COULOMB]
            + p[i, STRIBECK] * math.exp(-slow * slow)
            + p[i, LOAD] * abs(tau)
            + p[i, QUADRATIC] * turning * turning
        )
        weight = damping_weight(h * (damping + kd) / (M[i * nv + i] + p[i, ARMATURE]))
        push = h * (spring - p[i, OFFSET] - (1.0 - weight) * (damping * turning + kd * v[i]))
        loop = h * (weight * kd + (weight - 0.5) * h * stiffness)
        total = -h * bias_force[i]
        for j in range(nv):
            total += M[i * nv + j] * v[j]
        motor[1, i] = 0.0
        if geared:
            apart = True
            motor[1, i] = p[i, ARMATURE] + h * weight * damping
            motor[2, i] = p[i, ARMATURE] * turning + push
            motor[3, i] = (-0.5 * p[i, BACKLASH] - slack[i]) / h
            motor[4, i] = (0.5 * p[i, BACKLASH] - slack[i]) / h
            motor[5, i] = loop
            b[i] = total
        else:
            b[i] = total + p[i, ARMATURE] * v[i] + push
            M[i * nv + i] += p[i, ARMATURE] + h * weight * damping + loop
    if apart:
        solve_gears(M, b, f, v, motor, nv)
    else:
        solve_friction(M, b, f, v, nv)
    for i in range(nv):
        q[i] += h * v[i]
        if motor[1, i] > 0.0:
            half = 0.5 * p[i, BACKLASH]
            slack[i] = min(max(slack[i] + h * (motor[0, i] - v[i]), -half), half)


@inline
def first_slack(p, i, u, q, force):
    """By how much a motor is ahead of the link whose load it carries."""
    load = force if abs(force) > UNLOADED else p[i, KP] * (u - q - p[i, BIAS])
    return 0.5 * p[i, BACKLASH] if load > 0.0 else -0.5 * p[i, BACKLASH]


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
    motor, slack = np.zeros((WIDTH, 6, nv)), np.zeros((WIDTH, nv))
    for tile in range(0, jobs.shape[0], WIDTH):
        count = min(WIDTH, jobs.shape[0] - tile)
        longest = 0
        for lane in range(WIDTH):
            job = jobs[tile + min(lane, count - 1)]
            longest = max(longest, job[JOB_ROWS])
            for i in range(nv):
                bias = parameters[job[JOB_SET], i, BIAS]
                q[lane, i], v[lane, i] = q0[job[JOB_FIRST], i] - bias, dq0[job[JOB_FIRST], i]
                motor[lane, 0, i] = v[lane, i]
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
                        if k + sub == 0:
                            for i in range(nv):
                                slack[lane, i] = first_slack(p, i, u[i], q[lane, i], force[lane, i])
                        state = (q[lane], v[lane], motor[lane], slack[lane])
                        drive_step(p, u, *state, h, M[lane], force[lane], b, f, nv)
