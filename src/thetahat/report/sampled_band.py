"""Torques of robots drawn from the estimate, at rows spread over the log."""

from __future__ import annotations

import numpy as np

from thetahat.data.samples import STANDSTILL, Samples
from thetahat.identification.uncertainty.posterior import RobotSamples
from thetahat.identification.uncertainty.torque_band import sampled_torque_band
from thetahat.report.traces import Band

ROWS = 600  # of one part, at most


class SampledBand:
    """Keeps up to `ROWS` rows of each part, at even distances, and states what 95 % of the drawn
    robots need there.
    """

    def __init__(self, drawn: RobotSamples) -> None:
        self._drawn = drawn
        self._parts: dict[str, _ThinnedRows] = {}

    def add(self, t: np.ndarray, samples: Samples, part: str) -> None:
        """Add rows of a part, in the order of time."""
        moving = np.ones(samples.dq.shape, dtype=bool)
        if samples.reason is not None:
            moving = samples.reason != STANDSTILL
        rows = np.hstack([t[:, None], samples.q, samples.dq, samples.ddq, moving])
        self._parts.setdefault(part, _ThinnedRows()).add(rows)

    def bands(self) -> dict[str, list[Band]]:
        """Return the bands of all degrees of freedom by part, without rows at standstill."""
        robot, out = self._drawn.robot, {}
        widths = np.cumsum([1, robot.nq, robot.nv, robot.nv])
        for part, kept in self._parts.items():
            t, q, dq, ddq, moving = np.split(kept.rows, widths, axis=1)
            low, high = sampled_torque_band(self._drawn, (q, dq, ddq))
            out[part] = [
                Band(t[used, 0], low[used, v], high[used, v])
                for v, used in enumerate(moving.T > 0.5)
            ]
        return out


class _ThinnedRows:
    """Every stride-th row; the stride doubles where there are more than `ROWS`."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        self._stride, self._count = 1, 0

    @property
    def rows(self) -> np.ndarray:
        return np.concatenate(self._kept)

    def add(self, rows: np.ndarray) -> None:
        self._kept.append(rows[-self._count % self._stride :: self._stride])
        self._count += len(rows)
        while sum(map(len, self._kept)) > ROWS:
            self._kept, self._stride = [self.rows[::2]], 2 * self._stride
