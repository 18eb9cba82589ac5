"""Streamed Welch estimate of a power spectral density, no window across a gap."""

from __future__ import annotations

import numpy as np
from scipy import fft

# Rows whose windows are all taken; of later ones every second, then every fourth …, with weights.
ROWS = 1 << 20


class Welch:
    """Mean of |rfft|² over Hann windows of `length` rows, each half over the last, mean removed;
    one spectrum per channel.

        P(f) = 2/(fs·Σw²)·mean |Σ w(x − x̄) e^{−2πift}|²    (once at f = 0 and at fs/2)

    A window counts for a channel if none of its rows is masked there.
    """

    def __init__(self, channels: int, length: int) -> None:
        self.length, self.hop = length, length // 2
        # Periodic Hann, as in scipy.signal.welch.
        self.window = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(length) / length)
        self.power = np.zeros((length // 2 + 1, channels))
        self.weight = np.zeros(channels)  # windows, each as often as it stands for
        self.used = np.zeros(channels, dtype=np.int64)  # windows transformed
        self._seen, self._all = 0, max(ROWS // length, 64)
        self._rows, self._mask = np.zeros((0, channels)), np.zeros((0, channels), dtype=bool)

    def add(self, rows: np.ndarray, mask: np.ndarray, *, begins: bool) -> None:
        """Take rows of one run, (n, channels); mask: which of them count. begins: they are the
        first of their run.
        """
        if not begins and len(self._rows):
            rows, mask = np.concatenate([self._rows, rows]), np.concatenate([self._mask, mask])
        count = max(0, (len(rows) - self.length) // self.hop + 1)
        starts, weights = self._chosen(count)
        self._transform(rows, mask, starts, weights)
        self._rows, self._mask = rows[count * self.hop :].copy(), mask[count * self.hop :].copy()

    def _chosen(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """First rows and weights of the next `count` windows that are transformed; time stays
        bounded however long the log.
        """
        index = np.arange(self._seen, self._seen + count)
        self._seen += count
        stride = np.where(
            index < self._all,
            1,
            2 ** (np.floor(np.log2(np.maximum(index, self._all) / self._all)).astype(np.int64) + 1),
        )
        use = index % stride == 0
        return (index[use] - index[0]) * self.hop if count else index, stride[use]

    def _transform(
        self, rows: np.ndarray, mask: np.ndarray, starts: np.ndarray, weights: np.ndarray
    ) -> None:
        for start, weight in zip(starts.tolist(), weights.tolist(), strict=True):
            part = slice(start, start + self.length)
            ok = mask[part].all(axis=0)
            if not ok.any():
                continue
            x = rows[part].T
            x = fft.rfft((x - x.mean(axis=1, keepdims=True)) * self.window)  # by channel
            self.power += (ok * weight) * (x.real**2 + x.imag**2).T
            self.weight += ok * weight
            self.used += ok

    def density(self, channel: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
        """(frequency [Hz], power spectral density [unit²/Hz]), one-sided; rate: rows per second."""
        scale = np.full(len(self.power), 2.0)
        scale[0] = 1.0
        if self.length % 2 == 0:
            scale[-1] = 1.0
        norm = max(self.weight[channel], 1.0) * rate * np.sum(self.window**2)
        frequency = np.fft.rfftfreq(self.length, 1.0 / rate)
        return frequency, scale * self.power[:, channel] / norm
