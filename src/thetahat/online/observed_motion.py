"""Position, velocity and torque of one moment, from samples whose parts are of different moments.

A velocity is the median of three, so that a reading between two others that agree counts for
nothing: drives that difference positions by stamps that jitter give such readings. Where none is
measured it is the slope of the positions over the last 10 ms, with the means of positions and
torques beside it. Both are a little late, and so is a torque that is logged behind its motion:
the later of the two is waited for.
"""

from __future__ import annotations

from collections import deque

import numpy as np

SLOPE = 0.01  # [s] of positions whose slope is the velocity
LEAST = 3  # of these positions


class MotionAlignment:
    """Aligns the samples of a stream.

    Args:
        delay: [s] by which torques come after the motion they belong to; negative: before.

    """

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._latest: deque[tuple[float, np.ndarray, np.ndarray]] = deque(maxlen=1000)
        self._aligned: deque[tuple[float, np.ndarray, np.ndarray]] = deque(maxlen=1000)

    def add(
        self, t: float, q: np.ndarray, dq: np.ndarray | None, tau: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        """Take a sample; return a moment, its position and velocity (2, nv) and its torque, or None
        while none is known.
        """
        motion = np.array([q, np.zeros_like(q) if dq is None else dq], dtype=float)
        self._latest.append((t, motion, tau))
        moment = self._slope(t) if dq is None else self._median()
        return None if moment is None else self._undelayed(*moment)

    def _median(self) -> tuple[float, np.ndarray, np.ndarray] | None:
        """The sample before the last, its velocities those in the middle of three."""
        while len(self._latest) > LEAST:
            self._latest.popleft()
        if len(self._latest) < LEAST:
            return None
        t, motion, tau = self._latest[1]
        speed = np.median([each[1][1] for each in self._latest], axis=0)
        return t, np.array([motion[0], speed]), tau

    def _slope(self, t: float) -> tuple[float, np.ndarray, np.ndarray] | None:
        """The middle of the last positions, the velocity their slope."""
        while len(self._latest) > LEAST and self._latest[1][0] <= t - SLOPE:
            self._latest.popleft()
        if len(self._latest) < LEAST:
            return None
        stamps = np.array([each[0] for each in self._latest])
        q = np.array([each[1][0] for each in self._latest])
        late = stamps - stamps.mean()
        speed = late @ q / (late @ late)
        tau = np.mean([each[2] for each in self._latest], axis=0)
        return float(stamps.mean()), np.array([q.mean(axis=0), speed]), tau

    def _undelayed(
        self, t: float, motion: np.ndarray, tau: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Motion and torque with the earlier of the two taken from before."""
        if not self._delay:
            return t, motion, tau
        self._aligned.append((t, motion, tau))
        at = t - abs(self._delay)
        while len(self._aligned) > 2 and self._aligned[1][0] <= at:
            self._aligned.popleft()
        if len(self._aligned) < 2:
            return t, motion, tau
        (t0, motion0, tau0), (t1, motion1, tau1) = self._aligned[0], self._aligned[1]
        share = min(max((at - t0) / (t1 - t0), 0.0), 1.0)
        if self._delay > 0.0:
            return t, (1.0 - share) * motion0 + share * motion1, tau
        return t, motion, (1.0 - share) * tau0 + share * tau1
