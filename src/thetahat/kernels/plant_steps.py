"""Time steps of a plant with dry friction, cut where a motor stops: the stepper of plant/stepper.py
for joints of one degree of freedom, each with its own motor.

A motor slides forwards (sign 1), backwards (−1) or holds (0). Motors that hold are a constraint
q̈_h = 0. With a⁰ the acceleration without it, f the joints that slide and h those that hold,

    a_f = a⁰_f + D_ff⁻¹ D_fh a⁰_h,    a_h = 0,    λ = (D (a⁰ − a))_h

λ is what friction needs to hold them.

`model` is (bodies, scratch, foreign, D, order): the arguments of the project's own dynamics, those
of another engine's function (its address, or 0 where the own dynamics are meant), and room.
"""

from __future__ import annotations

import math

from thetahat.kernels.aba import forward_dynamics
from thetahat.kernels.crba import mass_matrix
from thetahat.kernels.foreign_call import call_with_two
from thetahat.kernels.jit import inline, jit

# Rows of the friction table (FRICTION_SIZE, nv); LOW and HIGH: what holds a motor still; DRY: 1 for
# a motor that can hold.
VISCOUS, COULOMB, OFFSET, STRIBECK, SPEED, LOW, HIGH, DRY, ROTOR = range(9)
FRICTION_SIZE = 9
# Rows of the work array (WORK_SIZE, nv). Q, DQ, SIGN, TAU: the state and the torque that acts.
# K1 to K4: accelerations at the stages of a step; STAGE_*: the states there; END_*: the state after
# the step; NET: torque less friction; FREE: a⁰; NEEDED: λ; BEGIN, FRONT, BACK: speeds along the
# motion at the beginning of a step and at the two ends of a bracket; FORCED, STOPS: motors that
# hold until the step's end, and that stop at the end of its piece.
Q, DQ, SIGN, TAU, K1, K2, K3, K4, STAGE_Q, STAGE_DQ, END_Q, END_DQ = range(12)
NET, FREE, NEEDED, BEGIN, FRONT, BACK, FORCED, STOPS = range(12, 20)
WORK_SIZE = 20
# Where a step ends, see plant/stepper.py, whose constants these are.
AT_ZERO, MAX_EVENTS, SHORTEST_PIECE, MAX_CUTS = 1e-12, 50, 1e-4, 60


@inline
def _holds(friction, w, i):
    """Whether motor i is held by dry friction."""
    return friction[DRY, i] != 0.0 and w[SIGN, i] == 0.0


@inline
def _count_held(friction, w):
    count = 0
    for i in range(w.shape[1]):
        if _holds(friction, w, i):
            count += 1
    return count


@inline
def _resist(friction, w, dq):
    """NET: the torque that acts less what friction of sliding motors takes, at the speeds of row
    dq.
    """
    for i in range(w.shape[1]):
        speed, dry = w[dq, i], friction[COULOMB, i]
        if friction[STRIBECK, i] != 0.0:
            slow = speed / friction[SPEED, i]
            dry += friction[STRIBECK, i] * math.exp(-slow * slow)
        w[NET, i] = w[TAU, i] - (
            friction[VISCOUS, i] * speed + dry * w[SIGN, i] + friction[OFFSET, i]
        )


@jit
def factor_and_solve(D, order, count, x):
    """Solve D_ff x = x for the joints f = order[:count] by Cholesky, D_ff overwritten (its lower
    triangle); NaN where it is not positive definite.
    """
    for a in range(count):
        i = order[a]
        for b in range(a + 1):
            j = order[b]
            total = D[i, j]
            for c in range(b):
                total -= D[i, order[c]] * D[j, order[c]]
            if a == b:
                D[i, i] = math.sqrt(total) if total > 0.0 else math.nan
            else:
                D[i, j] = total / D[j, j]
        total = x[i]
        for c in range(a):
            total -= D[i, order[c]] * x[order[c]]
        x[i] = total / D[i, i]
    for a in range(count - 1, -1, -1):
        i = order[a]
        total = x[i]
        for c in range(a + 1, count):
            total -= D[order[c], i] * x[order[c]]
        x[i] = total / D[i, i]


@jit
def _hold(friction, w, out, D, order, needed):
    """Row out: q̈ with the motors that hold held, from the q̈ without them; NEEDED: λ, if asked."""
    nv, count = w.shape[1], 0
    for i in range(nv):
        w[FREE, i] = w[out, i]
        if not _holds(friction, w, i):
            order[count] = i
            count += 1
    for a in range(count):
        i = order[a]
        total = 0.0
        for j in range(nv):
            if _holds(friction, w, j):
                total += D[i, j] * w[FREE, j]
        w[out, i] = total
    if needed:
        for i in range(nv):
            w[NEEDED, i] = 0.0
            if _holds(friction, w, i):
                for j in range(nv):
                    if _holds(friction, w, j):
                        w[NEEDED, i] += D[i, j] * w[FREE, j]
    # the Cholesky factor overwrites D below the diagonal, of sliding joints alone
    factor_and_solve(D, order, count, w[out])
    for i in range(nv):
        if _holds(friction, w, i):
            w[out, i] = 0.0
            if needed:
                for a in range(count):
                    w[NEEDED, i] -= D[i, order[a]] * w[out, order[a]]
    for a in range(count):
        w[out, order[a]] += w[FREE, order[a]]


@jit
def _own_acceleration(bodies, scratch, w, q, dq, out):
    """Row out: q̈ under NET at the state in rows q and dq, by articulated bodies."""
    state = w[q : q + 1], w[dq : dq + 1], w[NET : NET + 1]
    forward_dynamics(*bodies, *state, *scratch[:6], w[out : out + 1], scratch[6])


@jit
def _own_matrix(bodies, scratch, friction, w, q, D):
    """D: the mass matrix at row q, with rotors."""
    topology, geometry, dofs, axes, theta = *bodies[:4], bodies[5]
    nodes, directions, composite, matrix = *scratch[1:3], *scratch[7:]
    nv = w.shape[1]
    mass_matrix(
        *(topology, geometry, dofs, axes, theta, nv, w[q : q + 1]),
        *(nodes, directions, composite, matrix, D.reshape(1, nv * nv)),
    )
    for i in range(nv):
        D[i, i] += friction[ROTOR, i]


@jit
def _foreign_acceleration(foreign, w, q, dq, out):
    """The same by another engine's function, which works on its own memory."""
    function, model, data, position, speed, applied, acceleration = foreign[:7]
    for i in range(w.shape[1]):
        position[i], speed[i], applied[i] = w[q, i], w[dq, i], w[NET, i]
    call_with_two(function, model, data)
    for i in range(w.shape[1]):
        w[out, i] = acceleration[i]


@jit
def _foreign_matrix(foreign, D):
    """D: the mass matrix where that function was called last, of which the other engine keeps the
    entries below the diagonal, row by row.
    """
    values, counts, starts, columns = foreign[7:]
    D[:] = 0.0
    for i in range(D.shape[0]):
        for k in range(starts[i], starts[i] + counts[i]):
            D[i, columns[k]] = values[k]
            D[columns[k], i] = values[k]


@jit
def _stage(model, friction, w, q, dq, out, needed):
    """Row out: q̈ at the state in rows q and dq."""
    bodies, scratch, foreign, D, order = model
    _resist(friction, w, dq)
    held = _count_held(friction, w)
    if foreign[0] != 0:
        _foreign_acceleration(foreign, w, q, dq, out)
        if held:
            _foreign_matrix(foreign, D)
    else:
        _own_acceleration(bodies, scratch, w, q, dq, out)
        if held:
            _own_matrix(bodies, scratch, friction, w, q, D)
    if held:
        _hold(friction, w, out, D, order, needed)


@jit
def settle(model, friction, w):
    """Let go the motors that cannot hold under this torque, the one furthest beyond its limit
    first; K1: q̈ then.
    """
    nv = w.shape[1]
    while True:
        held = _count_held(friction, w)
        _stage(model, friction, w, Q, DQ, K1, held > 0)
        if held == 0:
            return
        worst, most, up = -1, 0.0, False
        for i in range(nv):
            if _holds(friction, w, i):
                needed = w[NEEDED, i] + friction[OFFSET, i]
                beyond = max(needed - friction[HIGH, i], friction[LOW, i] - needed)
                if worst < 0 or beyond > most:
                    worst, most, up = i, beyond, needed > friction[HIGH, i]
        if not most > 0.0:
            return
        w[SIGN, worst] = 1.0 if up else -1.0


@jit
def _trial(model, friction, w, h):
    """END_Q, END_DQ: the state after a step of length h in which no motor changes its ways; K1 is
    known.
    """
    nv, half = w.shape[1], 0.5 * h
    for i in range(nv):
        w[STAGE_Q, i] = w[Q, i] + half * w[DQ, i]
        w[STAGE_DQ, i] = w[DQ, i] + half * w[K1, i]
    _stage(model, friction, w, STAGE_Q, STAGE_DQ, K2, False)
    for i in range(nv):
        w[STAGE_Q, i] = w[Q, i] + half * w[STAGE_DQ, i]
        w[STAGE_DQ, i] = w[DQ, i] + half * w[K2, i]
    _stage(model, friction, w, STAGE_Q, STAGE_DQ, K3, False)
    for i in range(nv):
        w[STAGE_Q, i] = w[Q, i] + h * w[STAGE_DQ, i]
        w[STAGE_DQ, i] = w[DQ, i] + h * w[K3, i]
    _stage(model, friction, w, STAGE_Q, STAGE_DQ, K4, False)
    for i in range(nv):
        both = w[K2, i] + w[K3, i]
        w[END_Q, i] = w[Q, i] + h * (w[DQ, i] + (h / 6.0) * (w[K1, i] + both))
        w[END_DQ, i] = w[DQ, i] + (h / 6.0) * (w[K1, i] + both + both + w[K4, i])


@inline
def _commit(w):
    for i in range(w.shape[1]):
        w[Q, i], w[DQ, i] = w[END_Q, i], w[END_DQ, i]


@inline
def _stop(friction, w, row):
    """Hold the motors of a row: their speed is zero from now on."""
    for i in range(w.shape[1]):
        if w[row, i] != 0.0:
            w[SIGN, i] = 0.0
        if _holds(friction, w, i):
            w[DQ, i] = 0.0


@jit
def _first_stop(model, friction, w, h, zero):
    """The time at which the first sliding motor comes within `zero` of standing still, by false
    position; END: the state there; STOPS: who stops. The state after h is in END.
    """
    nv = w.shape[1]
    low, high, at, side, least = 0.0, h, h, 0, 0.0
    for i in range(nv):
        w[FRONT, i], w[BACK, i] = w[BEGIN, i], w[SIGN, i] * w[END_DQ, i]
    for _ in range(MAX_CUTS):
        fraction = math.inf
        for i in range(nv):
            if w[BEGIN, i] > zero and w[BACK, i] < 0.0:
                fraction = min(fraction, w[FRONT, i] / (w[FRONT, i] - w[BACK, i]))
        at = low + fraction * (high - low)
        _trial(model, friction, w, at)
        least = math.inf
        for i in range(nv):
            if w[BEGIN, i] > zero:
                least = min(least, w[SIGN, i] * w[END_DQ, i])
        if abs(least) <= zero or high - low < 1e-15 * h:
            break
        # Illinois: an end that stays twice counts half, or false position would creep
        back = least < 0.0
        share = 0.5 if side == (1 if back else -1) else 1.0
        for i in range(nv):
            speed = w[SIGN, i] * w[END_DQ, i]
            if back:
                w[BACK, i], w[FRONT, i] = speed, w[FRONT, i] * share
            else:
                w[FRONT, i], w[BACK, i] = speed, w[BACK, i] * share
        if back:
            high, side = at, 1
        else:
            low, side = at, -1
    for i in range(nv):
        stops = w[BEGIN, i] > zero and w[SIGN, i] * w[END_DQ, i] <= max(zero, least)
        w[STOPS, i] = 1.0 if stops else 0.0
    return at


@inline
def _hold_forced(model, friction, w):
    """Hold again the motors that were let go but are to hold until the step's end."""
    again = False
    for i in range(w.shape[1]):
        if w[FORCED, i] != 0.0 and w[SIGN, i] != 0.0:
            w[SIGN, i] = 0.0
            again = True
    if again:
        _stage(model, friction, w, Q, DQ, K1, False)


@jit
def _step(model, friction, w, h, known):
    """A step of length h, cut wherever a sliding motor stops."""
    nv = w.shape[1]
    left, piece, events = h, h, 0
    w[FORCED] = 0.0
    while left > 0.0:
        if not known:
            settle(model, friction, w)
        if events:
            _hold_forced(model, friction, w)
        known, piece = True, min(piece, left)
        _trial(model, friction, w, piece)
        crossed, fastest = False, 0.0
        for i in range(nv):
            w[BEGIN, i] = w[SIGN, i] * w[DQ, i]
            fastest = max(fastest, w[BEGIN, i])
            crossed = crossed or w[SIGN, i] * w[END_DQ, i] < 0.0
        if not crossed:
            _commit(w)
            left -= piece
        else:
            events += 1
            zero, idle = AT_ZERO * fastest, False
            for i in range(nv):  # broke away, and came back within the step
                idle = idle or (w[SIGN, i] * w[END_DQ, i] < 0.0 and w[BEGIN, i] <= zero)
            if events > MAX_EVENTS or (idle and piece < SHORTEST_PIECE * h):
                for i in range(nv):
                    if w[SIGN, i] * w[END_DQ, i] < 0.0:
                        w[FORCED, i] = 1.0
                _stop(friction, w, FORCED)
                known = False
                continue
            if idle:
                piece *= 0.25
                continue
            piece = _first_stop(model, friction, w, piece, zero)
            _commit(w)
            _stop(friction, w, STOPS)
            left -= piece
        known, piece = False, left
        if left < 1e-9 * h:
            return


@inline
def _stands(friction, w):
    """Whether every joint stands still and is held there, so that no step changes anything."""
    for i in range(w.shape[1]):  # noqa: SIM110
        if w[DQ, i] != 0.0 or not _holds(friction, w, i):
            return False
    return True


@jit
def advance(model, friction, w, count, h, known):
    """`count` steps of length h under a constant torque; known: K1 is q̈ now, and who holds is
    decided.
    """
    if not known:
        settle(model, friction, w)
        known = True
    if _stands(friction, w):
        return
    for _ in range(count):
        _step(model, friction, w, h, known)
        known = False
