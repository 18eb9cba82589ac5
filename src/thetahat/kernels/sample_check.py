"""Whether a measured sample is one that a joint can have, told before a controller uses it.

What takes the time at seven joints is the way into and out of a kernel: all arrays are rows of one.
"""

from __future__ import annotations

import math

from thetahat.kernels.jit import jit

# Rows of the state (6, n): the sample, the last one believed, and what a joint can do.
Q, DQ, BELIEVED_Q, BELIEVED_DQ, SPEED, SLACK = 0, 1, 2, 3, 4, 5
STATE_SIZE = 6
FINE = -1


@jit
def implausible(state, dt, last):
    """FINE, and the sample in rows Q and DQ is believed from now on; or the joint k whose position
    (k) or speed (n + k) cannot be. dt: [s] since the row `last`, 0 where there is nothing to
    compare with.
    """
    count = state.shape[1]
    for k in range(count):
        if not abs(state[DQ, k]) <= state[SPEED, k]:
            return count + k
        far = state[SPEED, k] * dt + state[SLACK, k]
        if not abs(state[Q, k]) < 1e300 or (dt > 0.0 and abs(state[Q, k] - state[last, k]) > far):
            return k
    for k in range(count):
        state[BELIEVED_Q, k], state[BELIEVED_DQ, k] = state[Q, k], state[DQ, k]
    return FINE


@jit
def bounded(tau, limits, saturated):
    """Cut torques (n,) at limits (n,), and say which were cut; whether all of them are finite, if
    not nothing is cut.
    """
    total = 0.0
    for k in range(tau.shape[0]):
        total += abs(tau[k])
    if not math.isfinite(total):
        return False
    for k in range(tau.shape[0]):
        saturated[k] = abs(tau[k]) > limits[k]
        tau[k] = min(max(tau[k], -limits[k]), limits[k])
    return True
