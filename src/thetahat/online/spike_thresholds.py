"""What is usual, as a stream's first samples tell it: medians, which a few wrong samples do not
move.

From then on running quantiles (kernels.py) follow what the channels do. Begun with the largest
change, or a mean of squares, one garbage torque of 1000 N·m passed for noise, and the gate opened
on a dead channel.
"""

from __future__ import annotations

import numpy as np

# samples that tell what changes are usual, before any is a spike; whether one of them was is told
# then
YOUNG = 20
TIMES_MEDIAN = 2.906  # 95 % of normal changes are smaller than this many medians of their size
SIGMA = 0.6745  # median of the size of normal numbers, in standard deviations
FEW = 5  # changes, of which the smallest is taken: their median may be garbage


def grown(
    Sq: np.ndarray,
    Sv: np.ndarray,
    Fq: np.ndarray,
    Fv: np.ndarray,
    q_of: np.ndarray,
    period: float | None,
) -> bool:
    """Fill what is usual into the state; whether one of the first samples leaps. Fq (samples, nq),
    Fv (3, samples, nv): what they did, forgotten.
    """
    from thetahat.kernels import online as k

    dq, step, tau = Fv
    Sv[k.SQUARE] = np.median(tau**2, axis=0)
    Sv[k.NOISE] = np.array([_median(np.abs(column)) for column in np.diff(step, axis=0).T]) ** 2 / (
        6.0 * SIGMA**2
    )  # of white noise: 6σ²
    count = np.where(Sq[k.Q_STEP] < k.ELSEWHERE, k.COUNTS * Sq[k.Q_STEP], 0.0)
    rate = np.where(q_of >= 0, count[q_of], 0.0) / (period or np.inf)
    leaps = False
    for state, row, found, least in (
        (Sq, k.Q_SCALE, Fq, np.maximum(k.LEAST_Q, count / k.SPIKE)),
        (Sv, k.SCALE_DQ, dq, np.maximum(k.LEAST_DQ, rate / k.SPIKE)),
        (Sv, k.SCALE_TAU, step, k.LEAST_TAU * np.sqrt(Sv[k.SQUARE]) + 1e-9),
    ):
        state[row] = [_usual(np.abs(column)) for column in found.T]
        leaps |= bool(np.any(np.abs(found) > k.SPIKE * np.maximum(state[row], least)))
    Fq[:], Fv[:] = np.nan, np.nan
    return leaps


def _median(sizes: np.ndarray) -> float:
    known = sizes[np.isfinite(sizes)]
    return float(np.median(known)) if len(known) else 0.0


def _usual(sizes: np.ndarray) -> float:
    """The change that 95 % are below, as the median tells it. Changes of nothing, and what is no
    number, say nothing.
    """
    some = sizes[sizes > 0.0]
    if len(some) < FEW:
        return float(np.min(some)) if len(some) else 0.0
    return TIMES_MEDIAN * float(np.median(some))
