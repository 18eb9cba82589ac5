"""The direction of dry friction along a motion (model/friction_terms.py)."""

from __future__ import annotations

import math

from thetahat.kernels.jit import jit


@jit
def follow(speed, period, zone, travel, state, out):
    """Fill out (samples, motors) with d of every motor from its speed; `state` is d before the
    first row and after the last.

    With hysteresis (travel > 0) the way of one row, x = q̇·period, is taken at once: d ← ±1 ∓ (1 ∓
    d)·exp(−|x|/travel), the solution of ∂d/∂x = (1 − d·sign(x))/travel.
    """
    samples, motors = speed.shape
    for m in range(motors):
        d = state[m]
        for k in range(samples):
            v = speed[k, m]
            if zone[m] > 0.0:
                d = math.tanh(v / zone[m])
            elif travel[m] > 0.0:
                if v > 0.0:
                    d = 1.0 - (1.0 - d) * math.exp(-v * period / travel[m])
                elif v < 0.0:
                    d = -1.0 + (1.0 + d) * math.exp(v * period / travel[m])
            else:
                d = 1.0 if v > 0.0 else -1.0 if v < 0.0 else 0.0
            out[k, m] = d
        state[m] = d
