"""Kernels of online identification: per sample (spike test, averages, prediction, cumulative sums)
and per update (rows and factors).

States are plain tuples of arrays: Numba unpacks them as quickly as single arguments, named ones it
does not.
"""

from __future__ import annotations

import math

from thetahat.kernels.fold import CHUNK, base_columns, dot_columns, load_column
from thetahat.kernels.jit import jit
from thetahat.kernels.kinematics import SHARED
from thetahat.kernels.lanes import put, splat
from thetahat.kernels.rnea import inverse_dynamics

# Where a rate comes from.
MEASURED, DIFFERENTIATED, GIVEN = 0, 1, 2
# Rows of the state of coordinates, (…, nq), and of degrees of freedom, (…, nv); averages follow.
Q_LAST, Q_MIDDLE, Q_SCALE, Q_STEP, Q_NOW, Q_WRAP, Q_TURNS, Q_LEAPED, Q_AVERAGE = range(9)
(
    LAST_DQ,
    LAST_TAU,
    MIDDLE_DQ,
    MIDDLE_TAU,
    SCALE_DQ,
    SCALE_TAU,
    SQUARE,
    NOISE,
    TRAVEL,
    SPEED,
    SPEED_BEFORE,
    STEP_TAU,
    LEAPED_DQ,
    LEAPED_TAU,
    LEAST_SPEED,
    AVERAGE,
) = range(16)
SAME_Q, SAME_TAU = 0, 1
# Rows of the state of the residual monitor, (…, nv).
SLOW_SPEED, COULOMB, DRY, SCALE, LASTS, DEVIATION, SUMS = range(7)
# Rows of what the first samples did, (…, samples, nv): changes of speed and torque, and the torque
# itself.
FIRST_DQ, FIRST_STEP, FIRST_TAU = range(3)
# What became of a sample: the code, times 10,000, plus the channel.
STEPPED, TAKEN, NOT_FINITE, SPIKE_Q, SPIKE_DQ, SPIKE_TAU = -1, 0, 1, 2, 3, 4
CODE = 10_000

# usual innovations from which a sample is a spike: far beyond noise (20σ), well below 50σ
SPIKE = 10.0
RISE, FALL = (
    0.0475,
    0.0025,
    # how much the idea of a usual innovation grows or shrinks with one sample: they balance where
    # one in twenty is larger
)
# least usual innovation [rad], [rad/s]; of the RMS torque
LEAST_Q, LEAST_DQ, LEAST_TAU = (1e-6, 1e-4, 1e-4)
# [rad/s² or m/s²] arms reach about 20, most joints less: a change that such an acceleration
# explains is no leap, however still the joint has stood until now
ACCELERATION = 20.0
# encoder counts that are no leap: a slow joint stands between two, and its speed, which is made of
# them, leaps with each
COUNTS = 1.5
# [rad or m] the least that a joint must have gone while its position stood still; encoder counts
# are smaller
ELSEWHERE = 1e-3
CREEP = 0.05  # [rad/s or m/s] beyond noise; from there no joint stops within one sample
SLOW = 1e-3  # share of the newest sample in the running mean squares
# times the torque's noise (squared) that one sample may add: 5.5σ, so that no garbage passes for
# noise
CLIP = 30.0
# [SI] no robot turns, moves or pushes that much: as good as not finite, and its square still is
ABSURD = 1e9


@jit
def _usual(innovation, scale, least, slack):
    return abs(innovation) <= SPIKE * slack * max(scale, least)


@jit
def _adapted(scale, innovation, least):
    """A running quantile of 95 %: it moves by steps, however far off one value is.

    A channel that does not change at all (a still joint, an encoder between two counts) says
    nothing of how much it changes.
    """
    scale = max(scale, least)
    if innovation == 0.0:
        return scale
    return (
        scale * math.exp(RISE) if abs(innovation) > scale else max(scale * math.exp(-FALL), least)
    )


@jit
def _unwrapped(first, q, Sq):
    """q without the whole turns by which an encoder wrapped, in a row of the state."""
    now = Sq[Q_NOW]
    for i in range(q.shape[0]):
        now[i] = q[i]
        if Sq[Q_TURNS, i] != 0.0 and first > 0:
            now[i] += Sq[Q_WRAP, i]
            step = now[i] - Sq[Q_LAST, i]
            if abs(step) > math.pi:
                now[i] -= 2.0 * math.pi * round(step / (2.0 * math.pi))
    return now


@jit
def _leap(h, slack, mode, rated, sample, before, state):
    """Return which channel moved further since the sample `before`, h seconds ago, than it ever
    does in one step, as a code; TAKEN where none did.

    before: its (q, dq, tau). rated: whether the speed then is known; without it no position can be
    predicted.
    """
    q, dq, _, tau = sample
    q0, dq0, tau0 = before
    Sq, Sv, q_of = state[0], state[1], state[5]
    code = TAKEN
    for v in range(tau.shape[0]):
        i = q_of[v]
        # the first step of an encoder that stood still is its count, as far as is known
        count = min(Sq[Q_STEP, i], abs(q[i] - q0[i]) or ELSEWHERE) if i >= 0 else ELSEWHERE
        count = COUNTS * count if count < ELSEWHERE else 0.0
        moved = ACCELERATION * h / (SPIKE * slack)
        if (
            rated
            and i >= 0
            and not _usual(
                q[i] - q0[i] - h * Sv[LAST_DQ, v],
                Sq[Q_SCALE, i],
                max(LEAST_Q, 2.0 * count / SPIKE, h * moved),  # of position and speed
                slack,
            )
        ):
            code = SPIKE_Q * CODE + v
        if mode != DIFFERENTIATED and not _usual(
            dq[v] - dq0[v],
            Sv[SCALE_DQ, v],
            max(LEAST_DQ, count * slack / (SPIKE * h), moved),
            slack,
        ):
            code = SPIKE_DQ * CODE + v
        if not _usual(
            tau[v] - tau0[v], Sv[SCALE_TAU, v], LEAST_TAU * math.sqrt(Sv[SQUARE, v]) + 1e-9, slack
        ):
            code = SPIKE_TAU * CODE + v
    return code


@jit
def _learn_scales(h, mode, sample, state):
    """Update the running quantiles of what each channel does in one step."""
    q, dq, _, tau = sample
    Sq, Sv, q_of = state[0], state[1], state[5]
    for v in range(tau.shape[0]):
        i = q_of[v]
        if i >= 0:
            Sq[Q_SCALE, i] = _adapted(
                Sq[Q_SCALE, i], q[i] - Sq[Q_LAST, i] - h * Sv[LAST_DQ, v], LEAST_Q
            )
        if mode != DIFFERENTIATED:
            Sv[SCALE_DQ, v] = _adapted(Sv[SCALE_DQ, v], dq[v] - Sv[LAST_DQ, v], LEAST_DQ)
        Sv[SCALE_TAU, v] = _adapted(
            Sv[SCALE_TAU, v], tau[v] - Sv[LAST_TAU, v], LEAST_TAU * math.sqrt(Sv[SQUARE, v]) + 1e-9
        )


@jit
def _record_changes(h, mode, first, rated, sample, state, age):
    """Record what the channels did in one of the first steps; NaN where they began."""
    q, dq, _, tau = sample
    Sq, Sv, q_of = state[0], state[1], state[5]
    Fq, Fv = state[2][age], state[3][:, age]
    for v in range(tau.shape[0]):
        i = q_of[v]
        if i >= 0:
            Fq[i] = q[i] - Sq[Q_LAST, i] - h * Sv[LAST_DQ, v] if first > 0 and rated else math.nan
        Fv[FIRST_DQ, v] = (
            dq[v] - Sv[LAST_DQ, v] if first > 0 and mode != DIFFERENTIATED else math.nan
        )
        Fv[FIRST_STEP, v] = tau[v] - Sv[LAST_TAU, v] if first > 0 else math.nan
        Fv[FIRST_TAU, v] = tau[v]


@jit
def _finite(mode, sample):
    """Return NOT_FINITE and the channel as a code where a number is absurd, else TAKEN."""
    q, dq, ddq, tau = sample
    for i in range(q.shape[0]):
        if not abs(q[i]) <= ABSURD:
            return NOT_FINITE * CODE + i
    for v in range(tau.shape[0]):
        rates = (mode == DIFFERENTIATED or abs(dq[v]) <= ABSURD) and (
            mode != GIVEN or abs(ddq[v]) <= ABSURD
        )
        if not (abs(tau[v]) <= ABSURD and rates):
            return NOT_FINITE * CODE + v
    return TAKEN


@jit
def _judge(step, rated, sample, state):
    """Return the code of a spike, STEPPED for a step that was taken for one, or TAKEN."""
    h, since, slack, _, mode, force, _, first, age = step
    Sq, Sv = state[0], state[1]
    code, young = TAKEN, age < state[2].shape[0]
    last = (Sq[Q_LAST], Sv[LAST_DQ], Sv[LAST_TAU])
    leaped = (Sq[Q_LEAPED], Sv[LEAPED_DQ], Sv[LEAPED_TAU])
    if first > 0 and not force and not young:
        code = _leap(h, slack, mode, rated, sample, last, state)
    if first > 2:
        if since > 0.0 and _leap(since, 1.0, mode, True, sample, leaped, state) == TAKEN:
            if code != TAKEN or _leap(h, 1.0, mode, True, sample, last, state) != TAKEN:
                code = STEPPED
        elif code != TAKEN:
            leaped[0][:], leaped[1][:], leaped[2][:] = sample[0], sample[1], sample[3]
        if not young:
            _learn_scales(h, mode, sample, state)
    return code


@jit
def take(step, sample, state):
    """Judge a sample and, if it is taken, average it; return the code of what became of it.

    A sample that leaps is rejected. If the next one is where it was, it was no spike but a step
    (friction that changes its sign), which is taken then.

    step: (h, since, slack, keep, mode, force, held, first, age). h: [s] since the last sample.
        since: [s] since a sample was rejected, 0 for none. slack: how much longer than usual the
        step is, at least 1. keep: exp(−h/T) of the averages. force: take it though it leaps. held:
        torque k acts from k to k + 1. first: samples taken since the start (0: this one starts
        anew). age: samples that have told what is usual; the first ones are recorded in Fq and Fv.
    sample: (q, dq, ddq, tau). state: (Sq, Sv, Fq, Fv, C, q_of, and q, dq, ddq, tau filtered).
    """
    h, mode, first, age = step[0], step[4], step[7], step[8]
    given, dq, ddq, tau = sample
    Sq, Sv, Fq, _, _, _, out_q, out_dq, out_ddq, out_tau = state
    nq, nv, stages = given.shape[0], tau.shape[0], Sq.shape[0] - Q_AVERAGE
    code = _finite(mode, sample)
    if code != TAKEN:
        return code
    q = _unwrapped(first, given, Sq)
    unwrapped = (q, dq, ddq, tau)
    young, rated = age < Fq.shape[0], mode != DIFFERENTIATED or first > 1
    code = _judge(step, rated, unwrapped, state)
    if code > TAKEN:
        return code
    if young:
        _record_changes(h, mode, first, rated, unwrapped, state, age)
    for i in range(nq):
        Sq[Q_WRAP, i] = Sq[Q_NOW, i] - given[i]
    _average(step, young, unwrapped, state)
    last = stages - 1
    for i in range(nq):
        out_q[0, i] = Sq[Q_AVERAGE + last, i]
    for v in range(nv):
        out_dq[0, v] = Sv[AVERAGE + last, v]
        out_ddq[0, v] = Sv[AVERAGE + stages + last, v]
        out_tau[0, v] = Sv[AVERAGE + 2 * stages + last, v]
    return code


@jit
def _put_average(S, row, stages, i, x, keep, fresh):
    for k in range(stages):
        S[row + k, i] = x if fresh else x + keep * (S[row + k, i] - x)
        x = S[row + k, i]


@jit
def _average(step, young, sample, state):
    """Bring all channels to one moment (the middle of the step, or, where speeds are differences,
    the sample before) and average them alike.
    """
    h, _, _, keep, mode, _, held, first, age = step
    q, dq, ddq, tau = sample
    Sq, Sv, C, q_of = state[0], state[1], state[4], state[5]
    nq, nv, stages = q.shape[0], tau.shape[0], Sq.shape[0] - Q_AVERAGE
    C[SAME_Q, nv], C[SAME_TAU, nv] = 0, 0  # the largest of each, last
    fresh = first <= (2 if mode == DIFFERENTIATED else 1 if mode == MEASURED else 0)
    for v in range(nv):
        i = q_of[v]
        if i >= 0 and first > 0:
            if q[i] == Sq[Q_LAST, i]:
                C[SAME_Q, v] += 1
                rate = dq[v]
                if mode == DIFFERENTIATED:  # as it came over its last two counts
                    rate = min(abs(Sv[SPEED, v]), abs(Sv[SPEED_BEFORE, v]))
                    if Sv[SPEED, v] * Sv[SPEED_BEFORE, v] <= 0.0:
                        rate = 0.0  # it turned, or trembles between two
                Sv[TRAVEL, v] += h * rate if abs(rate) > CREEP else 0.0
            else:
                Sq[Q_STEP, i] = min(Sq[Q_STEP, i], abs(q[i] - Sq[Q_LAST, i]))
                # since the count before: a slow joint stands between two
                Sv[SPEED_BEFORE, v] = Sv[SPEED, v]
                Sv[SPEED, v] = (q[i] - Sq[Q_LAST, i]) / (h * (C[SAME_Q, v] + 1))
                C[SAME_Q, v], Sv[TRAVEL, v] = 0, 0.0
        if first > 0:
            C[SAME_TAU, v] = C[SAME_TAU, v] + 1 if tau[v] == Sv[LAST_TAU, v] else 0
            change = tau[v] - Sv[LAST_TAU, v]
            if first > 1 and not young:
                weight = max(SLOW, 1.0 / (age + 1.0))
                bend = change - Sv[STEP_TAU, v]  # of white noise: variance 6σ²
                most = CLIP * max(Sv[NOISE, v], LEAST_TAU * LEAST_TAU * Sv[SQUARE, v])
                Sv[NOISE, v] += weight * (min(bend * bend / 6.0, most) - Sv[NOISE, v])
                Sv[SQUARE, v] += weight * (tau[v] * tau[v] - Sv[SQUARE, v])
            Sv[STEP_TAU, v] = change
        C[SAME_Q, nv], C[SAME_TAU, nv] = (
            max(C[SAME_Q, nv], C[SAME_Q, v]),
            max(C[SAME_TAU, nv], C[SAME_TAU, v]),
        )
        rate = dq[v]
        acceleration = ddq[v]
        torque = tau[v]
        if mode == MEASURED:
            if first > 0:
                rate, acceleration = 0.5 * (dq[v] + Sv[LAST_DQ, v]), (dq[v] - Sv[LAST_DQ, v]) / h
                torque = Sv[LAST_TAU, v] if held else 0.5 * (tau[v] + Sv[LAST_TAU, v])
            Sv[LAST_DQ, v] = dq[v]
        elif mode == DIFFERENTIATED:
            rate, acceleration = 0.0, 0.0
            if first > 0:
                speed = (q[v] - Sq[Q_LAST, v]) / h
                middle = Sv[LAST_TAU, v] if held else 0.5 * (tau[v] + Sv[LAST_TAU, v])
                if first > 1:
                    rate, acceleration = (
                        0.5 * (speed + Sv[MIDDLE_DQ, v]),
                        (speed - Sv[MIDDLE_DQ, v]) / h,
                    )
                    torque = 0.5 * (middle + Sv[MIDDLE_TAU, v])
                Sv[MIDDLE_DQ, v], Sv[MIDDLE_TAU, v], Sv[LAST_DQ, v] = speed, middle, speed
        else:
            Sv[LAST_DQ, v] = dq[v]
        Sv[LAST_TAU, v] = tau[v]
        _put_average(Sv, AVERAGE, stages, v, rate, keep, fresh)
        _put_average(Sv, AVERAGE + stages, stages, v, acceleration, keep, fresh)
        _put_average(Sv, AVERAGE + 2 * stages, stages, v, torque, keep, fresh)
        # the direction of motion passes the same averages: dry friction as the torques show it
        speed, least = Sv[AVERAGE, v], Sv[LEAST_SPEED, v]
        way = 1.0 if speed > least else -1.0 if speed < -least else 0.0
        _put_average(Sv, AVERAGE + 3 * stages, stages, v, way, keep, fresh)
    for i in range(nq):
        place = q[i]
        if mode != GIVEN and first > 0:
            middle = 0.5 * (q[i] + Sq[Q_LAST, i])
            place = middle
            if mode == DIFFERENTIATED:
                place = 0.5 * (middle + Sq[Q_MIDDLE, i]) if first > 1 else middle
            Sq[Q_MIDDLE, i] = middle
        Sq[Q_LAST, i] = q[i]
        _put_average(Sq, Q_AVERAGE, stages, i, place, keep, fresh)


# -- factors ---------------------------------------------------------------------------------------


@jit
def _absorb_into(work, columns, R):
    """R ← the triangle of [R; chunk] where the chunk's columns are those named, in rising order:
    Householder, as `fold.absorb`.
    """
    for k in range(columns.shape[0]):
        x = load_column(work, k)
        square = dot_columns(x, x)
        if square == 0.0:
            continue
        c = columns[k]
        alpha = R[c, c]
        beta = math.sqrt(alpha * alpha + square)
        if alpha > 0.0:
            beta = -beta
        tau, scale = (beta - alpha) / beta, splat(1.0 / (alpha - beta))
        v = (
            x[0] * scale,
            x[1] * scale,
            x[2] * scale,
            x[3] * scale,
            x[4] * scale,
            x[5] * scale,
            x[6] * scale,
            x[7] * scale,
        )
        R[c, c] = beta
        for j in range(k + 1, columns.shape[0]):
            y = load_column(work, j)
            t = tau * (R[c, columns[j]] + dot_columns(v, y))
            R[c, columns[j]] -= t
            step = splat(-t)
            put(work, j, 0, y[0] + v[0] * step)
            put(work, j, 8, y[1] + v[1] * step)
            put(work, j, 16, y[2] + v[2] * step)
            put(work, j, 24, y[3] + v[3] * step)
            put(work, j, 32, y[4] + v[4] * step)
            put(work, j, 40, y[5] + v[5] * step)
            put(work, j, 48, y[6] + v[6] * step)
            put(work, j, 56, y[7] + v[7] * step)


@jit
def all_rows(tree, motion, weights, places, extras, extra_rows, scratch, matrices, height):
    """Fill every joint's rows of [Y | u], chunk after chunk: chunk k is matrices[k·height : (k +
    1)·height].

    tree: (topology, geometry, dofs, axes, gravity). motion: (q, dq, ddq). scratch: (nodes,
        directions).
    """
    topology, geometry, dofs, axes, gravity = tree
    q, dq, ddq = motion
    nodes, directions = scratch
    samples = q.shape[0]
    shared = False
    for e in range(dofs.shape[0]):
        shared = shared or dofs[e, SHARED] != 0
    at = 0
    for begin in range(0, samples, CHUNK):
        end = min(begin + CHUNK, samples)
        part = matrices[at : at + height]
        if shared:
            part[:, :] = 0.0
        w = weights[begin:end] if weights.shape[0] > 0 else weights
        base_columns(
            topology,
            geometry,
            dofs,
            axes,
            gravity,
            q[begin:end],
            dq[begin:end],
            ddq[begin:end],
            w,
            places,
            nodes,
            directions,
            part,
            0,
        )
        for e in range(extras.shape[0]):
            for s in range(begin, end):
                part[extra_rows[e], s - begin] = extras[e, s]
        if end - begin < CHUNK:
            part[:, end - begin :] = 0.0
        at += height


@jit
def stack_rows(plan, joints, matrices, height, work, R):
    """Fill the triangle R of all joints' rows, each joint's times its weight, from the leaves to
    the root.

    A joint's rows touch only what the joint carries, so until its turn no row of R there has
    anything beyond: no fill. plan: (order, first, columns, source) of `StackedFactor`.
    """
    order, first, columns, source = plan
    chunks = matrices.shape[0] // height
    for o in range(order.shape[0]):
        v = order[o]
        mine = columns[first[v] : first[v + 1]]
        for k in range(chunks):
            for i in range(mine.shape[0]):
                row = source[first[v] + i]
                for s in range(CHUNK):
                    work[i, s] = joints[v] * matrices[k * height + row, s] if row >= 0 else 0.0
            _absorb_into(work, mine, R)


@jit
def stack_factors(plan, starts, joints, factors, work, R):
    """Fill the same triangle from every joint's own, row by row at factors[starts[v, 1]:]."""
    order, first, columns, source = plan
    for o in range(order.shape[0]):
        v = order[o]
        mine = columns[first[v] : first[v + 1]]
        n, at, row0 = starts[v + 1, 0] - starts[v, 0], starts[v, 1], starts[v, 0]
        for begin in range(0, n, CHUNK):
            end = min(begin + CHUNK, n)
            for i in range(mine.shape[0]):
                c = source[first[v] + i] - row0
                for s in range(CHUNK):
                    work[i, s] = (
                        joints[v] * factors[at + (begin + s) * n + c]
                        if c >= 0 and begin + s < end
                        else 0.0
                    )
            _absorb_into(work, mine, R)


@jit
def fold_sample(matrices, sample, starts, valid, factors, row):
    """One sample (column `sample` of the chunk) into every joint's triangle by rotations."""
    for v in range(starts.shape[0] - 1):
        if not valid[v]:
            continue
        n, at, begin = starts[v + 1, 0] - starts[v, 0], starts[v, 1], starts[v, 0]
        for j in range(n):
            row[j] = matrices[begin + j, sample]
        for k in range(n):
            y = row[k]
            if y == 0.0:
                continue
            x = factors[at + k * n + k]
            length = math.hypot(x, y)
            c, s = x / length, y / length
            factors[at + k * n + k] = length
            for j in range(k + 1, n):
                a, b = factors[at + k * n + j], row[j]
                factors[at + k * n + j], row[j] = c * a + s * b, c * b - s * a


# -- residual monitor ------------------------------------------------------------------------------


@jit
def predict(
    topology,
    geometry,
    dofs,
    axes,
    gravity,
    theta,
    q,
    dq,
    ddq,
    external,
    nodes,
    directions,
    forces,
    torques,
    out,
    drive,
):
    """Fill `out` (samples, nv) as `inverse_dynamics` does, and add the drive: its rows are viscous,
    Coulomb, offset and armature of every degree of freedom.
    """
    inverse_dynamics(
        topology,
        geometry,
        dofs,
        axes,
        gravity,
        theta,
        q,
        dq,
        ddq,
        external,
        nodes,
        directions,
        forces,
        torques,
        out,
    )
    for s in range(out.shape[0]):
        for v in range(out.shape[1]):
            sign = 1.0 if dq[s, v] > 0.0 else -1.0 if dq[s, v] < 0.0 else 0.0
            out[s, v] += (
                drive[0, v] * dq[s, v] + drive[1, v] * sign + drive[2, v] + drive[3, v] * ddq[s, v]
            )


@jit
def cusum_step(h, rules, predicted, dq, ddq, tau, direction, state):
    """Update two cumulative sums per joint of the residual over its scale, beyond the deviation
    that may last, in units of it [s]; return the largest, whose it is, and its residual.

    A joint that stood still, or turned round, within `lag` seconds or the filter's memory may have
    any friction up to `dry`; the prediction holds `coulomb` of it. Where that friction is more than
    the scale and the joint did not move one way, its torque is anywhere inside the band that holds
    it, whose width nobody knows: no evidence. A joint without a scale (inf) is not monitored.

    rules: relative, lag, sure. predicted, dq, ddq, tau: (1, nv) each. direction: (nv,) the
        filtered direction of motion; below `sure` it is not one. state: (8, nv), rows SLOW_SPEED,
        COULOMB, DRY, SCALE, LASTS, DEVIATION (residual over scale, NaN: no evidence), SUMS and the
        next.
    """
    relative, lag, sure = rules[0], rules[1], rules[2]
    slow, coulomb, dry, scale = state[SLOW_SPEED], state[COULOMB], state[DRY], state[SCALE]
    lasts, deviation, sums = state[LASTS], state[DEVIATION], state[SUMS:]
    worst, joint, left = 0.0, 0, 0.0
    for v in range(tau.shape[1]):
        residual = tau[0, v] - predicted[0, v]
        if abs(direction[v]) < sure and dry[v] > scale[v]:
            deviation[v] = math.nan
            continue
        if abs(dq[0, v]) < slow[v] + lag * abs(ddq[0, v]) or abs(direction[v]) < sure:
            residual += coulomb[v] if dq[0, v] > 0.0 else -coulomb[v] if dq[0, v] < 0.0 else 0.0
            residual = math.copysign(max(abs(residual) - dry[v], 0.0), residual)
        z = residual / max(scale[v], relative * abs(predicted[0, v]))
        deviation[v] = z
        z /= lasts[v]
        sums[0, v] = max(0.0, sums[0, v] + h * (z - 1.0))
        sums[1, v] = max(0.0, sums[1, v] + h * (-z - 1.0))
        top = max(sums[0, v], sums[1, v])
        if top > worst:
            worst, joint, left = top, v, residual
    return worst, joint, left
