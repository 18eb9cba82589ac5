"""Spikes: samples that leap further than their channel ever does are rejected, until a second one
shows that it was a step.

The kernel `online.take` compares every sample with running quantiles of each channel's changes.
They start from medians of the first 20 samples, which a few wrong ones do not move: begun with the
largest change, or a mean of squares, one garbage torque of 1000 N·m passed for noise, and the gate
opened on a dead channel.
"""

from __future__ import annotations

import numpy as np

from thetahat.online.causal_filter import CausalFilter
from thetahat.online.sample_verdict import Event, Events

TIMES_MEDIAN = 2.906  # 95 % of normal changes are smaller than this many medians of their size
SIGMA = 0.6745  # median of the size of normal numbers, in standard deviations
FEW = 5  # changes, of which the smallest is taken: their median may be garbage
# spikes in a row, no two alike: the channel is not what it was, and is taken as it is
PATIENCE = 10
# samples after a start: which of two that do not agree is wrong cannot be told, so the newer one
# starts anew
START = 2


class SpikeFilter:
    """Records rejected samples, and starts the spike thresholds of a filter's channels."""

    def __init__(self, names: tuple[str, ...], events: Events) -> None:
        self._names, self._events = names, events
        self._rejected: list[Event] = []  # in a row; the next sample taken tells what they were
        self._t = 0.0  # [s] of the last of them
        self._starts = 0  # in a row whose first samples did not agree

    @property
    def forced(self) -> bool:
        """Whether so many were rejected that the next sample is taken as it is."""
        return max(len(self._rejected), self._starts) >= PATIENCE

    def since(self, now: float) -> float:
        """[s] since a sample was rejected; 0 where the last one was taken."""
        return now - self._t if self._rejected else 0.0

    def reject(self, now: float, v: int, quantity: str) -> str:
        """Count a spike of degree of freedom v; return why, as a sentence."""
        name = self._names[v]
        sentence = (
            f"the {quantity} of joint {name!r} at {now:.6g} s leaps by far more than it ever does;"
            " the sample was dropped"
        )
        self._t = now
        self._events.counts["spike"] += 1
        self._rejected.append(Event(now, "spike", name, sentence))
        return sentence

    def accept(self, count: int, *, stepped: bool) -> None:
        """A sample was taken, `count` since the start. Those rejected before it were spikes; or, if
        what leaped stays there (`stepped`), the first samples after a step.
        """
        if self._rejected:
            if stepped:
                self._events.counts["spike"] -= len(self._rejected)
                self._events.counts["step"] += 1
            else:
                for event in self._rejected:
                    self._events.record(event)
            self._rejected.clear()
        if count > START + 1:
            self._starts = 0

    def start_over(self, now: float, v: int, quantity: str) -> None:
        """The first samples after a start do not agree, so one of them is wrong."""
        name = self._names[v]
        sentence = (
            f"the {quantity} of joint {name!r} leaps in the first samples, up to {now:.6g} s; those"
            " before were dropped"
        )
        self._events.add(now, "spike", sentence, name)
        self._starts += 1


def start_thresholds(channels: CausalFilter, period: float | None) -> bool:
    """Set the spike thresholds from what the first samples did, which is cleared; return whether
    one of those leaps.
    """
    k, state = channels.kernels, channels.state
    Sq, Sv, Fq, Fv, q_of = state.q, state.v, state.first_q, state.first_v, state.q_of
    dq, step, tau = Fv
    Sv[k.SQUARE] = np.median(tau**2, axis=0)
    Sv[k.NOISE] = np.array([_median(np.abs(column)) for column in np.diff(step, axis=0).T]) ** 2 / (
        6.0 * SIGMA**2
    )  # of white noise: 6σ²
    count = np.where(Sq[k.Q_STEP] < k.ELSEWHERE, k.COUNTS * Sq[k.Q_STEP], 0.0)
    rate = np.where(q_of >= 0, count[q_of], 0.0) / (period or np.inf)
    leaps = False
    for rows, row, changes, least in (
        (Sq, k.Q_SCALE, Fq, np.maximum(k.LEAST_Q, count / k.SPIKE)),
        (Sv, k.SCALE_DQ, dq, np.maximum(k.LEAST_DQ, rate / k.SPIKE)),
        (Sv, k.SCALE_TAU, step, k.LEAST_TAU * np.sqrt(Sv[k.SQUARE]) + 1e-9),
    ):
        rows[row] = [_usual(np.abs(column)) for column in changes.T]
        leaps |= bool(np.any(np.abs(changes) > k.SPIKE * np.maximum(rows[row], least)))
    Fq[:], Fv[:] = np.nan, np.nan
    return leaps


def _median(sizes: np.ndarray) -> float:
    known = sizes[np.isfinite(sizes)]
    return float(np.median(known)) if len(known) else 0.0


def _usual(sizes: np.ndarray) -> float:
    """The change that 95 % are below, from the median. Zeros and NaN say nothing."""
    some = sizes[sizes > 0.0]
    if len(some) < FEW:
        return float(np.min(some)) if len(some) else 0.0
    return TIMES_MEDIAN * float(np.median(some))
