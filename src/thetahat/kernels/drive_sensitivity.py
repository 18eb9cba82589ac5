"""Derivatives of simulated drives by their parameters, carried along with the simulation.

A step of `drive_simulation` solves, for the joints that move at its end,

    M (v' − v) + armature (v' − v) + h (θ d + (θ − ½) h k) v'
        = h (spring − offset − c(q, v) − (1 − θ) d v − f sgn v'),      q' = q + h v'

Its derivative takes the derivatives (dq, dv) of the state at the beginning to those at the end:

    A dv' = (M + armature) dv − h (∂ID/∂q dq + ∂ID/∂v dv) + h ∂(spring, f, …)      dq' = dq + h dv'

with ID = M a + c at a = (v' − v)/h; a joint that friction holds has dv' = 0. Where a gear has
backlash the motor has a row of its own, which is added to the link's while one pushes the other,
v' = w' − (side − slack)/h, and is solved apart while it does not. M, c, ∂ID/∂q and
∂ID/∂v come from inverse dynamics of neighbouring states, eight at once; joints on different
branches of the base are moved together. How θ changes with M(q) is left out, which is of second
order in h.
"""

from __future__ import annotations

import math

import numpy as np

from thetahat.kernels.drive_simulation import (
    ARMATURE,
    BACK_EMF,
    BACKLASH,
    BIAS,
    COULOMB,
    DEADBAND,
    DELAY,
    KD,
    KP,
    LIMIT,
    LOAD,
    OFFSET,
    PARAMETERS,
    QUADRATIC,
    STRIBECK,
    STRIBECK_SPEED,
    VISCOUS,
    commands,
    damping_weight,
    drive_law,
    drive_step,
    first_slack,
)
from thetahat.kernels.jit import inline, jit
from thetahat.kernels.rnea import inverse_dynamics

NUDGE = 1e-6  # of positions [rad] and speeds [rad/s], for the derivatives of inverse dynamics


@inline
def weight_slope(z):
    """dθ/dz of `damping_weight`."""
    if z < 1e-2:
        return 1.0 / 12.0
    if z > 50.0:
        return 1.0 / (z * z)
    decay = math.exp(-z)
    return 1.0 / (z * z) - decay / ((1.0 - decay) * (1.0 - decay))


@inline
def command_at(t, u, joint, first, row, time):
    """The command that holds at a time, at or before `row`."""
    k = row
    while k > first and t[k] > time:
        k -= 1
    return u[k, joint]


@inline
def friction_slopes(p, i, v, G):
    """Derivatives of dry friction at joint i but those through τ: G[k] by parameters, returned: by
    the motor's speed.
    """
    speed = p[i, STRIBECK_SPEED]
    slow = v / speed
    share = math.exp(-slow * slow)
    G[COULOMB], G[STRIBECK] = 1.0, share
    G[STRIBECK_SPEED] = p[i, STRIBECK] * share * 2.0 * slow * slow / speed
    G[QUADRATIC] = v * v
    return -p[i, STRIBECK] * share * 2.0 * slow / speed + 2.0 * p[i, QUADRATIC] * v


@inline
def joint_slopes(p, i, u, du, q, v, w, v_new, w_new, h, inertia, G):
    """Derivatives of the row of joint i's motor: G[k] by its parameters; returned: by q, by the
    encoder's speed v and by the motor's w.
    """
    for k in range(PARAMETERS):
        G[k] = 0.0
    spring, stiffness, kd, loss, tau, limited = drive_law(p, i, u, q, v, w)
    side = 1.0 if spring > 0.0 else (-1.0 if spring < 0.0 else 0.0)
    damping = p[i, VISCOUS] + loss
    sign = 1.0 if tau > 0.0 else -1.0
    direction = 1.0 if w_new > 0.0 else -1.0
    f_by_w = friction_slopes(p, i, w, G)
    for k in range(PARAMETERS):
        G[k] *= -h * direction
    G[LOAD] = -h * direction * abs(tau)
    carried = 1.0 - direction * sign * p[i, LOAD]  # a drive's torque less the friction it makes
    if limited:
        G[LIMIT] = h * side * carried
        G[BACK_EMF] = h * direction * sign * p[i, LOAD] * w
    else:
        G[KP] = h * spring / p[i, KP] * carried if p[i, KP] > 0.0 else 0.0
        G[BIAS] = -h * stiffness * carried
        G[DELAY] = -h * stiffness * du * carried
        G[DEADBAND] = -h * stiffness * side * carried
        G[KD] = h * direction * sign * p[i, LOAD] * v
    G[OFFSET] = -h
    z = h * (damping + kd) / inertia
    weight, slope = damping_weight(z), weight_slope(z)
    # of −h θ (d w' + kd v') − h (1 − θ) (d w + kd v) − (θ − ½) h² k v', by θ, by d and by kd
    by_weight = -h * damping * (w_new - w) - h * kd * (v_new - v) - h * h * stiffness * v_new
    through = by_weight * slope * h / inertia
    by_damping = -h * weight * w_new - h * (1.0 - weight) * w + through
    G[VISCOUS] = by_damping
    if limited:
        G[BACK_EMF] += by_damping
    else:
        G[KD] += -h * weight * v_new - h * (1.0 - weight) * v + through
        if stiffness > 0.0:
            G[KP] -= (weight - 0.5) * h * h * v_new
    G[ARMATURE] = -(w_new - w) - by_weight * slope * z / inertia
    loaded = h * direction * sign * p[i, LOAD]  # friction by the drive's torque
    by_v = -h * (1.0 - weight) * kd + loaded * kd
    by_w = -h * (1.0 - weight) * damping - h * direction * f_by_w + loaded * loss
    return -h * stiffness + loaded * stiffness, by_v, by_w


@inline
def gear_slopes(motor, slack, push, rhs, moved, h, new, mode, S, nv):
    """Prepare the rows of the step for the gears, in place: mode −1 or 1 where a motor is at that
    side of its backlash, 0 where it is apart from its link, 2 where a gear has none.

    push: derivatives of the motors' rows. rhs: those of the links', which become the equations of
    the joints that move; of one that does not, its known dv'. slack: derivatives of the slack.
    """
    columns = rhs.shape[1]
    for i in range(nv):
        if mode[i] == 2.0:
            for c in range(columns):
                rhs[i, c] = rhs[i, c] + push[i, c] if new[i] != 0.0 else 0.0
        elif mode[i] != 0.0:
            for c in range(columns):
                side = 0.5 * mode[i] if moved[i, c] == BACKLASH else 0.0
                ahead = (side - slack[i, c]) / h
                if new[i] != 0.0:
                    rhs[i, c] += push[i, c] - motor[1, i] * ahead
                else:
                    rhs[i, c] = -ahead
            S[i * nv + i] += motor[1, i] + motor[5, i]
    for j in range(nv):
        if new[j] == 0.0 and mode[j] != 2.0:
            for i in range(nv):
                if new[i] != 0.0 and S[i * nv + j] != 0.0:
                    for c in range(columns):
                        rhs[i, c] -= S[i * nv + j] * rhs[j, c]


@inline
def motor_slopes(motor, slack, push, rhs, moved, h, mode, dw, nv):
    """Take the derivatives of motors' speeds, dw, and of the slack to the end of the step."""
    for i in range(nv):
        if mode[i] == 2.0:
            continue
        for c in range(rhs.shape[1]):
            if mode[i] == 0.0:
                turned = push[i, c] - motor[5, i] * rhs[i, c]
                dw[i, c] = turned / motor[1, i] if motor[0, i] != 0.0 else 0.0
                slack[i, c] += h * (dw[i, c] - rhs[i, c])
            else:
                side = 0.5 * mode[i] if moved[i, c] == BACKLASH else 0.0
                dw[i, c] = rhs[i, c] + (side - slack[i, c]) / h
                slack[i, c] = side


@inline
def solve_moving(A, new, rhs, nv, columns):
    """Solve A x = rhs (nv, columns) for the joints that move, in place; others keep their rows.

    A is symmetric and positive definite, and becomes its factor.
    """
    for j in range(nv):
        if new[j] == 0.0:
            continue
        for i in range(j + 1, nv):
            if new[i] == 0.0 or A[i * nv + j] == 0.0:
                continue
            ratio = A[i * nv + j] / A[j * nv + j]
            for k in range(j + 1, nv):
                A[i * nv + k] -= ratio * A[j * nv + k]
            for c in range(columns):
                rhs[i, c] -= ratio * rhs[j, c]
    for j in range(nv - 1, -1, -1):
        if new[j] == 0.0:
            continue
        for k in range(j + 1, nv):
            if new[k] != 0.0 and A[j * nv + k] != 0.0:
                for c in range(columns):
                    rhs[j, c] -= A[j * nv + k] * rhs[k, c]
        scale = 1.0 / A[j * nv + j]
        for c in range(columns):
            rhs[j, c] *= scale


@jit
def simulate_sensitivities(
    tree,
    gravity,
    theta,
    p,
    moved,
    places,
    jobs,
    t,
    command,
    q0,
    dq0,
    substeps,
    scratch,
    out,
    grad,
):
    """Simulate every job (jobs, 5), fill out (rows, nv) and grad (rows, nv, columns).

    p: (nv, PARAMETERS). moved: (nv, columns): which parameter of a joint a column moves, −1 for
    none. places: (nv, 2): branch of the base a joint is on, and its place there. The rest as in
    `simulate_drives`.
    """
    nv, columns = moved.shape
    depth = places[:, 1].max() + 1
    lanes = max(1 + depth, 2 * depth)
    Q, V, A = np.zeros((lanes, nv)), np.zeros((lanes, nv)), np.zeros((lanes, nv))
    T, none = np.zeros((lanes, nv)), np.zeros((lanes, 0))
    few, many = 1 + depth, 2 * depth
    q, v, old, force = np.zeros(nv), np.zeros(nv), np.zeros(nv), np.zeros(nv)
    M, S = np.zeros(nv * nv), np.zeros(nv * nv)
    b, f, u, base = np.zeros(nv), np.zeros(nv), np.zeros(nv), np.zeros(nv)
    dq, dv, rhs = np.zeros((nv, columns)), np.zeros((nv, columns)), np.zeros((nv, columns))
    push, slacks, dw = np.zeros(dq.shape), np.zeros(dq.shape), np.zeros(dq.shape)
    motor, slack, mode, moving = np.zeros((6, nv)), np.zeros(nv), np.zeros(nv), np.zeros(nv)
    turning = np.zeros(nv)
    G = np.zeros(PARAMETERS)
    for at in range(jobs.shape[0]):
        first, rows, run, target = jobs[at, 1], jobs[at, 2], jobs[at, 3], jobs[at, 4]
        for i in range(nv):
            q[i], v[i] = q0[first, i] - p[i, BIAS], dq0[first, i]
            motor[0, i] = v[i]
            for c in range(columns):
                dv[i, c], dw[i, c], slacks[i, c] = 0.0, 0.0, 0.0
                dq[i, c] = -1.0 if moved[i, c] == BIAS else 0.0
        for k in range(rows):
            for i in range(nv):
                out[target + k, i] = q[i] + p[i, BIAS]
                for c in range(columns):
                    shown = 1.0 if moved[i, c] == BIAS else 0.0
                    grad[target + k, i, c] = dq[i, c] + shown
            if k + 1 == rows:
                break
            row = first + k
            h = (t[row + 1] - t[row]) / substeps
            for sub in range(substeps):
                # M and c(q, v)
                for lane in range(few):
                    for i in range(nv):
                        Q[lane, i], V[lane, i] = q[i], v[i]
                        A[lane, i] = 1.0 if lane == 1 + places[i, 1] else 0.0
                inverse_dynamics(
                    *tree, gravity, theta, Q[:few], V[:few], A[:few], none, *scratch, T[:few]
                )
                for i in range(nv):
                    force[i] = T[0, i]
                    for j in range(nv):
                        M[i * nv + j] = 0.0
                        if places[i, 0] == places[j, 0]:
                            M[i * nv + j] = T[1 + places[j, 1], i] - T[0, i]
                begin = t[row] + sub * h
                commands(p, t, command, run, row, begin, h, M, u)
                for i in range(nv):
                    old[i], base[i] = v[i], q[i]
                    turning[i] = motor[0, i] if p[i, BACKLASH] > 0.0 else v[i]
                    if k + sub == 0:
                        slack[i] = first_slack(p, i, u[i], q[i], force[i])
                        for c in range(columns):
                            if moved[i, c] == BACKLASH:
                                slacks[i, c] = 0.5 if slack[i] > 0.0 else -0.5
                    for j in range(nv):
                        S[i * nv + j] = M[i * nv + j]
                drive_step(p, u, q, v, motor, slack, h, S, force, b, f, nv)
                for i in range(nv):
                    mode[i], half = 2.0, 0.5 * p[i, BACKLASH]
                    moving[i] = v[i]
                    if half > 0.0:
                        mode[i] = 1.0 if slack[i] == half else (-1.0 if slack[i] == -half else 0.0)
                        moving[i] = motor[0, i] if mode[i] != 0.0 else 1.0
                # ∂ID/∂q and ∂ID/∂v
                for lane in range(many):
                    for i in range(nv):
                        Q[lane, i], V[lane, i] = base[i], old[i]
                        A[lane, i] = (v[i] - old[i]) / h
                        if lane == places[i, 1]:
                            Q[lane, i] += NUDGE
                        elif lane == depth + places[i, 1]:
                            V[lane, i] += NUDGE
                inverse_dynamics(
                    *tree, gravity, theta, Q[:many], V[:many], A[:many], none, *scratch, T[:many]
                )
                for i in range(nv):
                    inertia = M[i * nv + i] + p[i, ARMATURE]
                    weight = damping_weight(h * (p[i, VISCOUS] + p[i, KD]) / inertia)
                    start = begin - p[i, DELAY] + (weight - 1.0) * h
                    du = command_at(t, command, i, run, row, start + h)
                    du = (du - command_at(t, command, i, run, row, start)) / h
                    new = v[i] if mode[i] == 2.0 else motor[0, i]
                    state = (u[i], du, base[i], old[i], turning[i], v[i], new)
                    by_q, by_v, by_w = joint_slopes(p, i, *state, h, inertia, G)
                    total = force[i]
                    for j in range(nv):
                        total += M[i * nv + j] * (v[j] - old[j]) / h
                    for c in range(columns):
                        rhs[i, c] = 0.0
                        speed = dv[i, c] if mode[i] == 2.0 else dw[i, c]
                        push[i, c] = by_q * dq[i, c] + by_v * dv[i, c]
                        push[i, c] += (by_w + p[i, ARMATURE]) * speed
                        if moved[i, c] >= 0:
                            push[i, c] += G[moved[i, c]]
                    for j in range(nv):
                        if places[i, 0] != places[j, 0]:
                            continue
                        to_q = -h * (T[places[j, 1], i] - total) / NUDGE
                        to_v = -h * (T[depth + places[j, 1], i] - total) / NUDGE + M[i * nv + j]
                        for c in range(columns):
                            rhs[i, c] += to_q * dq[j, c] + to_v * dv[j, c]
                gear_slopes(motor, slacks, push, rhs, moved, h, moving, mode, S, nv)
                solve_moving(S, moving, rhs, nv, columns)
                motor_slopes(motor, slacks, push, rhs, moved, h, mode, dw, nv)
                for i in range(nv):
                    for c in range(columns):
                        dv[i, c] = rhs[i, c]
                        dq[i, c] += h * rhs[i, c]
