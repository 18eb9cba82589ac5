"""Compare logged velocities and accelerations with the derivatives of the position.

Over stretches of the log the logged channel y and the derivative x of q get the same taper, and
their cross-spectra [Bendat2010] are summed in bands of frequency. Behind a low-pass H, with y
behind x by δ, the logged channel follows the position with

    R²(δ) = 1 − Σ|H|² (S_xx + S_yy − 2 Re S_xy e^{iωδ}) / Σ|H|² S_xx

The low-pass is that of a fit: 15 times the bandwidth of the motion, or less where the noise of q,
differentiated, would be more than 3 % of x. So x is sound by construction, and where y does not
follow, y is to blame. The sums are small and add up over files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.filters import central_difference, resample
from thetahat.data.resample import BURST, despike, spike_thresholds
from thetahat.data.types import Channels
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

STRETCH = 8.0  # [s]
ROWS = (32, 16_384)  # of a stretch, at least and at most
PER_BATCH = 4  # stretches of a batch of rows
MANY, RARELY = 64, 16  # after so many stretches only every 16th batch is looked at
PER_OCTAVE = 6
LOWEST = 2.0**-6  # [Hz] of the first band, which also holds the mean
BANDS = 18 * PER_OCTAVE
SUMS = 4  # S_xx, S_yy, Re S_xy, Im S_xy

FOLLOWS = 0.9  # R² from which a channel is used
MOTION_PART, HARMONICS = 0.99, 15.0  # as the choice of the cut-off has them (cutoff.py)
NOISE_PART = 0.03  # of x that may be noise of q
MOST = 0.3  # of the sampling rate: beyond it differences do not differentiate
SHARE = 0.5  # of the motion that must lie below the low-pass to judge by it
STEPS = 4.0  # of the encoder per cycle of the low-pass: fewer are stairs, and no motion
STAIRS = 0.1  # of a large difference between rows that the median of a smooth motion exceeds
SLOW_ANGLE, SLOW_LENGTH = 0.02, 0.002  # [rad/s], [m/s] RMS below which a joint hardly moves
LONGEST_LAG = 0.1  # [s]
LAG_LOSS = 0.02  # of R²: a lag that costs less is not worth a word
STILL, STUCK = 0.5, 0.05  # [s], [rad or m]: an encoder that moves less in that time is not stuck
ORDER = {"dq": 1, "ddq": 2}


@dataclass(frozen=True)
class ChannelMatch:
    """How a logged channel follows the derivative of the position."""

    kind: str  # dq or ddq
    dof: int
    r2: float  # behind the low-pass
    r2_lagged: float  # with the best lag
    lag: float  # [s] by which the logged channel is late
    logged: float  # RMS behind the low-pass
    derived: float  # RMS of the derivative of q
    cutoff: float  # [Hz]

    @property
    def follows(self) -> bool:
        """Whether the channel can be used."""
        return self.r2 >= FOLLOWS

    @property
    def late(self) -> bool:
        """Whether it is a delayed copy of the derivative, by an amount worth a word."""
        return self.r2_lagged >= FOLLOWS and self.r2_lagged - self.r2 > LAG_LOSS


Spectra = dict[str, np.ndarray]


class DerivativeCheck:
    """Cross-spectra of logged and differentiated channels, in one pass over a log."""

    def __init__(self, robot: Robot, columns: ColumnMap) -> None:
        self._kinds = [kind for kind in ORDER if columns.has(kind)]
        self._dofs = [
            (node, robot.tree.q_index[node.name], robot.tree.v_index[node.name])
            for node in robot.tree.independent
            if node.kind.nv == 1 and not node.sensor and node.name not in columns.locked
        ]
        count = len(self._dofs)
        self._q = [at for _, at, _ in self._dofs]
        self._v = [v for _, _, v in self._dofs]
        self._turning = [
            i for i, (node, _, _) in enumerate(self._dofs) if node.kind is JointKind.REVOLUTE
        ]
        self._sums: Spectra = {kind: np.zeros((SUMS, BANDS, count)) for kind in (*self._kinds, "q")}
        self._sums |= {"width": np.zeros(BANDS), "step": np.full(count, np.inf)}
        self._sums |= {"seconds": np.zeros(1), "slowest": np.full(1, np.inf)}
        self._stretches, self._batches = 0, 0

    # -- collecting --------------------------------------------------------------------------------

    def feed(self, channels: Channels, starts: np.ndarray, *, period: float) -> None:
        """Take a batch of consecutive rows; `starts` are where runs begin in it."""
        self._batches += 1
        if not self._kinds or not self._dofs or not period:
            return
        if self._stretches >= MANY and self._batches % RARELY:
            return
        size = int(np.clip(round(STRETCH / period), *ROWS))
        for first, stop in _spread(len(channels["t"]), starts, size):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                self._add_stretch(channels, slice(first, stop))

    def _add_stretch(self, channels: Channels, rows: slice) -> None:
        t = channels["t"][rows]
        keep = np.concatenate([[True], np.diff(t) > BURST * np.median(np.diff(t))])
        if np.count_nonzero(keep) < ROWS[0]:
            return
        given = {"dq": channels["dq"], "ddq": channels["ddq"]}
        logged = [np.asarray(given[kind])[rows][keep][:, self._v] for kind in self._kinds]
        q, t = channels["q"][rows][keep][:, self._q].copy(), t[keep]
        q[:, self._turning] = np.unwrap(q[:, self._turning], axis=0)
        x = np.concatenate([q, *logged], axis=1)
        period = float(t[-1] - t[0]) / (len(t) - 1)
        if not (np.isfinite(x).all() and np.abs(x).max(initial=0.0) < 1e100 and period > 0.0):
            return
        steps = np.abs(np.diff(q, axis=0))
        stuck = np.zeros(len(self._dofs), dtype=bool)
        if "dq" in self._kinds:
            stuck = _stuck(steps == 0.0, logged[0] * period, period)
        self._sums["step"] = np.minimum(self._sums["step"], _encoder_step(steps))
        grid = t[0] + period * np.arange(len(t))
        if np.abs(t - grid).max() > 1e-3 * period:
            x = resample(t, x, np.minimum(grid, t[-1]), period=period)
        noise, span = spike_thresholds(x)
        x, _ = despike(x, np.maximum(noise, 0.05 * span) + 1e-300)
        self._add_spectra(x, period, ~stuck)

    def _add_spectra(self, x: np.ndarray, period: float, used: np.ndarray) -> None:
        from scipy import fft

        n, count = len(x), len(self._dofs)
        derivatives = {1: central_difference(x[:, :count], period)}
        derivatives[2] = central_difference(derivatives[1], period)
        taper = (0.5 - 0.5 * np.cos(2.0 * np.pi * (np.arange(n) + 0.5) / n))[:, None]
        frequency = np.arange(n // 2 + 1) / (n * period)
        octaves = np.log2(np.maximum(frequency, LOWEST) / LOWEST)
        band = np.minimum(np.floor(PER_OCTAVE * octaves).astype(int), BANDS - 1)
        seconds = n * period
        factor = np.full((len(frequency), 1), 2.0 * seconds / (n * float(np.sum(taper**2))))
        factor[0] *= 0.5
        velocity = fft.rfft(derivatives[1] * taper, axis=0)
        self._sum("q", band, factor, velocity, velocity)
        for i, kind in enumerate(self._kinds):
            y = fft.rfft(x[:, count * (i + 1) : count * (i + 2)] * taper, axis=0)
            reference = fft.rfft(derivatives[ORDER[kind]] * taper, axis=0)
            self._sum(kind, band, factor * used, reference, y)
        self._sums["width"] += np.bincount(band, minlength=BANDS) / (n * period) * seconds
        self._sums["seconds"] += seconds
        self._sums["slowest"] = np.minimum(self._sums["slowest"], 1.0 / period)
        self._stretches += 1

    def _sum(
        self, kind: str, band: np.ndarray, factor: np.ndarray, x: np.ndarray, y: np.ndarray
    ) -> None:
        cross = factor * np.conj(x) * y
        parts = (factor * np.abs(x) ** 2, factor * np.abs(y) ** 2, cross.real, cross.imag)
        for k, part in enumerate(parts):
            for j in range(part.shape[1]):
                self._sums[kind][k, :, j] += np.bincount(band, part[:, j], minlength=BANDS)

    def collected(self) -> Spectra:
        """Return the sums of a file that has been fed to its end."""
        return dict(self._sums)

    def add(self, sums: Spectra) -> None:
        """Add the sums of another file of the same log."""
        for name, array in sums.items():
            least = name in ("step", "slowest")
            mine = self._sums[name]
            self._sums[name] = np.minimum(mine, array) if least else mine + array

    # -- judging -----------------------------------------------------------------------------------

    def matches(self) -> Iterator[ChannelMatch]:
        """Yield how every channel that can be judged follows the position."""
        if not self._sums["seconds"][0] > 0.0:
            return
        frequency = LOWEST * 2.0 ** ((np.arange(BANDS) + 0.5) / PER_OCTAVE)
        for kind in self._kinds:
            for i, (node, _, v) in enumerate(self._dofs):
                slow = SLOW_ANGLE if node.kind is JointKind.REVOLUTE else SLOW_LENGTH
                cutoff = self._cutoff(frequency, i, ORDER[kind])
                if cutoff is None or self._speed(frequency, i, cutoff) < slow:
                    continue
                sums = self._sums[kind][:, :, i] / self._sums["seconds"][0]
                match = _match(kind, v, frequency, sums, cutoff)
                if match is not None:
                    yield match

    def _speed(self, frequency: np.ndarray, i: int, cutoff: float) -> float:
        energy = self._sums["q"][0, frequency <= cutoff, i].sum()
        return float(np.sqrt(energy / self._sums["seconds"][0]))

    def _cutoff(self, frequency: np.ndarray, i: int, order: int) -> float | None:
        """Return the low-pass to compare behind; None where q is too coarse to differentiate."""
        energy, seconds = self._sums["q"][0, :, i] / self._sums["seconds"][0], self._sums["seconds"]
        width = self._sums["width"] / seconds[0]
        rate, step = float(self._sums["slowest"][0]), float(self._sums["step"][i])
        covered = (width > 0.0) & (frequency < MOST * rate)
        if not covered.any() or energy.sum() <= 0.0:
            return None
        angular = (2.0 * np.pi * frequency) ** 2
        top = covered & (frequency > 0.5 * MOST * rate)
        density = energy[top] / (angular[top] * width[top]) if top.any() else np.zeros(1)
        floor = float(np.median(density))
        speed = np.sqrt(np.cumsum(energy))  # behind each low-pass
        if np.isfinite(step):  # steps of an encoder come as often as the joint passes them
            floor = max(floor, step**2 / 4.0 / max(min(0.5 * rate, float(speed[-1]) / step), 1e-12))
        noise = np.cumsum(np.where(covered, angular**order * floor * width, 0.0))
        signal = np.cumsum(np.where(covered, energy * angular ** (order - 1), 0.0))
        motion = np.cumsum(np.maximum(energy - angular * floor * width, 0.0) * covered)
        if motion[-1] <= 0.0:
            return None
        bandwidth = frequency[int(np.searchsorted(motion, MOTION_PART * motion[-1]))]
        sound = covered & (noise <= NOISE_PART * signal) & (frequency <= HARMONICS * bandwidth)
        sound &= STEPS * frequency * step <= speed if np.isfinite(step) else True
        if not sound.any():
            return None
        last = int(np.flatnonzero(sound)[-1])
        return None if motion[last] < SHARE * motion[-1] else float(frequency[last])


def _match(
    kind: str, dof: int, frequency: np.ndarray, sums: np.ndarray, cutoff: float
) -> ChannelMatch | None:
    passed = 1.0 / (1.0 + (frequency / cutoff) ** 8) ** 2
    xx, yy, real, imag = sums * passed
    total = float(xx.sum())
    if total <= 0.0:
        return None
    lags = np.linspace(-LONGEST_LAG, LONGEST_LAG, 201)
    phase = np.outer(lags, 2.0 * np.pi * frequency)
    together = np.cos(phase) @ real - np.sin(phase) @ imag
    r2 = 1.0 - (total + float(yy.sum()) - 2.0 * together) / total
    best, zero = int(np.argmax(r2)), len(lags) // 2
    return ChannelMatch(
        kind=kind,
        dof=dof,
        r2=float(r2[zero]),
        r2_lagged=float(r2[best]),
        lag=float(lags[best]),
        logged=float(np.sqrt(yy.sum())),
        derived=float(np.sqrt(total)),
        cutoff=cutoff,
    )


def _spread(rows: int, starts: np.ndarray, size: int) -> Iterator[tuple[int, int]]:
    """Yield first and stop row of stretches inside runs, spread over a batch."""
    edges = [0, *(int(row) for row in starts if row > 0), rows]
    pieces = [
        (at, min(at + size, stop))
        for first, stop in pairwise(edges)
        for at in range(first, stop, size)
        if min(at + size, stop) - at >= min(ROWS[0] if stop - first < size else size // 2, size)
    ]
    if pieces:
        chosen = np.unique(np.linspace(0, len(pieces) - 1, PER_BATCH).astype(int))
        for k in chosen:
            yield pieces[k]


def _encoder_step(steps: np.ndarray) -> np.ndarray:
    """Return the step of each encoder from differences of rows: the least of them, or where most
    rows do not change (a slow joint, resampled stairs) a typical large one.
    """
    large, usual = np.quantile(steps, 0.99, axis=0), np.median(steps, axis=0)
    least = np.where(steps > 0.0, steps, np.inf).min(axis=0)
    return np.asarray(np.where((usual < STAIRS * large) & (large > least), large, least))


def _stuck(still: np.ndarray, travel: np.ndarray, period: float) -> np.ndarray:
    """Return which positions stay at one value while the logged velocity says that they move."""
    out = np.zeros(still.shape[1], dtype=bool)
    for j, column in enumerate(still.T):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], column, [0]]).astype(np.int8)))
        for first, stop in edges.reshape(-1, 2):
            if (stop - first) * period > STILL:
                out[j] |= bool(abs(travel[first : stop + 1, j].sum()) > STUCK)
    return out
