"""Open-loop simulation of a pendulum on one position-controlled motor, many parameter sets.

The motor's own controller turns the commanded position into a duty cycle, which its voltage and
its winding turn into torque; the pendulum hangs down at q = bias:

    duty = clip(gain (u(t − delay) − q), ±1),   τ = kt (duty·volts − kt q̇)/R while it is switched on
    (m l² + armature) q̈ + m g l sin(q − bias) + viscous q̇ + quadratic q̇|q̇| + f sgn(q̇) = τ
    f = coulomb + (stribeck + load_stribeck |τ_b|) exp(−(q̇/v_s)²) + load |τ_b|
        + load_squared τ_b² + load_driving or load_driven |τ_b|
    τ_b = m l² q̈ + m g l sin(q − bias)

and all friction times 1 + warm (temperature − 25 °C). A step takes positions at its middle,
damping by the trapezoidal rule and dry friction at its end.
"""

from __future__ import annotations

import math

from thetahat.kernels.drive_simulation import held_command
from thetahat.kernels.jit import jit

# Columns of the parameters.
KT, R, ARMATURE, BIAS, DELAY, COULOMB, VISCOUS, STRIBECK, STRIBECK_SPEED, LOAD = range(10)
LOAD_DRIVING, LOAD_DRIVEN, LOAD_SQUARED, LOAD_STRIBECK, QUADRATIC, WARM = range(10, 16)
PARAMETERS = 16
# Columns of the rows.
T, COMMAND, POSITION, SPEED, VOLTS, ENABLED, TEMPERATURE, GAIN = range(8)
ROOM = 25.0  # [°C]
FASTEST = 100.0  # [rad/s] at which a simulation is held, so that it stays finite


@jit
def simulate_pendulum(parameters, inertia, weight, rows, first, last, longest, out):
    """Fill out (sets, rows) with positions, each run from the state of its first row.

    parameters: (sets, PARAMETERS). inertia: m l² [kg·m²]. weight: m g l [N·m]. rows: (rows, 8).
    first, last: rows of every run. longest: [s] of a step.
    """
    t, u = rows[:, T], rows[:, COMMAND : COMMAND + 1]
    for k in range(parameters.shape[0]):
        p = parameters[k]
        ratio, back = p[KT] / p[R], p[KT] * p[KT] / p[R]
        J = inertia + p[ARMATURE]
        for run in range(first.shape[0]):
            begin, end = first[run], last[run]
            q, v, a = rows[begin, POSITION], rows[begin, SPEED], 0.0
            for row in range(begin, end):
                out[k, row] = q
                if row + 1 == end:
                    break
                period = rows[row + 1, T] - rows[row, T]
                count = max(1, math.ceil(period / longest - 0.05))
                h = period / count
                on = rows[row, ENABLED] > 0.5
                warm = max(0.0, 1.0 + p[WARM] * (rows[row, TEMPERATURE] - ROOM))
                for sub in range(count):
                    since = rows[row, T] + sub * h - p[DELAY]
                    command = held_command(t, u, 0, begin, row, since, since + h)
                    middle = q + 0.5 * h * v
                    gravity = weight * math.sin(middle - p[BIAS])
                    torque, damping = 0.0, 0.0
                    if on:
                        duty = rows[row, GAIN] * (command - middle)
                        torque = ratio * rows[row, VOLTS] * min(1.0, max(-1.0, duty))
                        damping = back
                    damping += warm * (p[VISCOUS] + p[QUADRATIC] * abs(v))
                    b = J * v + h * (torque - gravity) - 0.5 * h * damping * v
                    load = inertia * a + gravity
                    size = abs(load)
                    along = load * (v if v != 0.0 else b)
                    slow = math.exp(-((v / p[STRIBECK_SPEED]) ** 2))
                    f = p[COULOMB] + (p[STRIBECK] + p[LOAD_STRIBECK] * size) * slow
                    f += size * (p[LOAD] + p[LOAD_SQUARED] * size)
                    f += size * (p[LOAD_DRIVING] if along > 0.0 else p[LOAD_DRIVEN])
                    f *= h * warm
                    new = 0.0
                    if b > f:
                        new = (b - f) / (J + 0.5 * h * damping)
                    elif b < -f:
                        new = (b + f) / (J + 0.5 * h * damping)
                    new = min(FASTEST, max(-FASTEST, new))
                    a = (new - v) / h
                    q += 0.5 * h * (v + new)
                    v = new
