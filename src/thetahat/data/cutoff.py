"""Choice of the low-pass cut-off from a log: bandwidth of its motion and noise.

One rule for all robots, from spectra of velocity and the nominal inertia alone. Per degree of
freedom j, with S_j(f) the power spectrum of the velocity:

    knee     the minimum of f²·S_j(f): below it is motion, above it noise
    motion   99 % of the velocity's energy below the knee lies below f_m
    noise    f_n where the acceleration's noise below it, Σ_k D_jk² ∫₀^f (2πν)² N_k(ν) dν, is 3 % of
             the variance of torque j; N_k is the spectrum at the knee below it, as measured above

    cut-off = min(15·f_m, f_n), f_m and f_n the medians over the degrees of freedom that move,
              at least 1.5 and (unless noise forbids it) 3 times the fastest f_m, at most 0.4 of the
              sampling rate. A joint more than 4 times as fast as the median vibrates rather than
              moves, and does not count as the fastest.

15: friction and the products of the equation of motion spread torque over harmonics of the motion.
3 %: noise in the regressor biases a least-squares fit by about its share of the variance. The rule
and its constants (also the 4 % of `choose_min_speed`) were chosen on least-squares fits of the
eight logs in ../shared/data/logs, held-out scores included: those hardly change from 10 to 30 times
f_m where noise does not interfere. These logs show that one rule can serve all of them, not how
well it does on other robots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetahat.data.filters import KNOTS, central_difference
from thetahat.data.resample import (
    Block,
    Layout,
    despike,
    mean_period,
    run_spans,
    spike_thresholds,
    uniform_blocks,
)
from thetahat.data.samples import UNMEASURED
from thetahat.data.types import Chunk, LogLike
from thetahat.data.velocities import velocities
from thetahat.errors import NotIdentifiable
from thetahat.model.robot import Robot

WINDOW = 8.0  # [s] of one spectrum
WINDOWS = 64  # stretches of that length at most, spread over the log
SHORTEST_WINDOW = 32  # rows
STATISTICS = 512  # rows of each window that quantiles are taken from
PER_OCTAVE = 8
LOWEST = 2.0**-10  # [Hz] of the first band
BANDS = 26 * PER_OCTAVE  # up to 65 kHz

MOTION_PART = 0.99  # of the velocity's energy
HARMONICS = 15.0
NOISE_PART = 0.03  # of the torque's variance
FASTEST = 3.0  # times the fastest joint's motion, where noise allows it
LEAST = 1.5  # times the fastest joint's motion, in any case
MOST = 0.4  # of the sampling rate
VIBRATES = 4.0  # times the median f_m: a joint with more vibrates, and does not lead the choice
MOVES = 100.0  # a joint moves if its spectrum's peak is this many times the level at the knee
NOISELESS = 1e-8  # of the peak: a spectrum is followed no further down
SLOW_PART = 0.04  # of the 95th percentile of a joint's speed: at standstill below it
SLOW_NOISE = 3.0  # standard deviations of the filtered velocity's noise: at standstill below it
STILL = 1e-6  # [rad/s or m/s] at standstill in any case
SPIKE_RANGE = 0.05  # of a channel's range: smaller jumps are no spikes


@dataclass(frozen=True, eq=False)
class VelocitySpectrum:
    """Power spectrum of the velocities in bands of equal ratio."""

    frequency: np.ndarray  # (bands,) [Hz], centres
    energy: np.ndarray  # (bands, nv) [(rad/s)²]
    density: np.ndarray  # (bands, nv) [(rad/s)²/Hz]

    @cached_property
    def knees(self) -> np.ndarray:
        """Return the band of each degree of freedom's knee."""
        return np.array([_knee(self.frequency, column) for column in self.density.T])

    @property
    def floor(self) -> np.ndarray:
        """Return the density at each degree of freedom's knee."""
        return np.array(
            [column[knee] for column, knee in zip(self.density.T, self.knees, strict=True)]
        )


@dataclass(frozen=True, eq=False)
class Spectra:
    """Statistics of a log from which filters are chosen."""

    velocity: VelocitySpectrum
    torque_variance: np.ndarray  # (nv,) [(N·m)²]
    inertia: np.ndarray  # (nv, nv) mean square of the nominal mass matrix, zero if unknown
    speed: np.ndarray  # (nv,) 95th percentile of |dq|
    spikes: np.ndarray  # (channels,) thresholds
    rate: float  # [Hz], the slowest run's
    differentiated: bool  # whether accelerations come from velocities or positions
    usable: np.ndarray  # (nv,) whether the log measures the joint at all


@dataclass(frozen=True, eq=False)
class Cutoff:
    """The chosen cut-off and the reasons."""

    value: float  # [Hz]
    motion: np.ndarray  # (nv,) f_m [Hz]
    noise: np.ndarray  # (nv,) f_n [Hz], infinite where noise does not matter
    knee: np.ndarray  # (nv,) [Hz]
    moves: np.ndarray  # (nv,)
    reasoning: str

    def __float__(self) -> float:
        return self.value


# -- spectra ---------------------------------------------------------------------------------------


def scan_spectra(
    log: LogLike,
    robot: Robot,
    *,
    span: tuple[int, int] | None = None,
    chunks: Iterable[Chunk] | None = None,
) -> Spectra:
    """Measure the spectra of a log, or of its rows of `span`, in one pass and bounded memory; of a
    long one, from `WINDOWS` stretches spread over it.
    """
    spans = run_spans(log, span)
    accumulator = _SpectrumAccumulator(robot, Layout.of(log, robot))
    for block in uniform_blocks(log, robot, chunks=chunks, spans=spectrum_spans(log, spans)):
        accumulator.push(block)
    return accumulator.result(1.0 / max(_periods(log, spans)))


def spectrum_spans(log: LogLike, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans, or `WINDOWS` stretches of one window each where there are more, without
    short runs, whose spectra smear.
    """
    periods = _periods(log, spans)
    seconds = np.array(
        [period * (stop - first) for period, (first, stop) in zip(periods, spans, strict=True)]
    )
    enough = 0.5 * min(WINDOW, float(seconds.max()))
    long = [
        (span, period)
        for span, period, length in zip(spans, periods, seconds, strict=True)
        if length >= enough
    ]
    windows = []
    for (first, stop), period in long:
        size = _window_rows(period)
        windows += [
            (row, min(row + size + KNOTS, stop))
            for row in range(first, max(stop - size // 2, first + 1), size)
        ]
    if len(windows) <= WINDOWS:
        return [span for span, _ in long]
    picked = [
        windows[i] for i in np.unique(np.linspace(0, len(windows) - 1, WINDOWS).round().astype(int))
    ]
    return [
        (first, min(stop, after))
        for (first, stop), (after, _) in zip(picked, [*picked[1:], (log.rows, 0)], strict=True)
    ]


def _periods(log: LogLike, spans: list[tuple[int, int]]) -> list[float]:
    """Return the mean period of the run that each span is in."""
    starts = np.array([run.first_row for run in log.runs])
    return [
        mean_period(log.runs[int(at)])
        for at in np.searchsorted(starts, [first for first, _ in spans], side="right") - 1
    ]


def _window_rows(period: float) -> int:
    return max(SHORTEST_WINDOW, round(WINDOW / period))


class _SpectrumAccumulator:
    """Sums of window spectra, and quantiles of each window."""

    def __init__(self, robot: Robot, layout: Layout) -> None:
        self.robot, self.layout = robot, layout
        self.held: np.ndarray | None = None
        self.at, self.made = 0, 0  # start of the next window in the held rows; windows of this run
        self.energy = np.zeros((BANDS, layout.nv))
        self.width = np.zeros(BANDS)  # [Hz·windows] of spectrum that fell into each band
        self.windows = 0
        self.spread: list[np.ndarray] = []  # of each window: spike thresholds
        self.quantiles: list[np.ndarray] = []  # of each window: every channel and the speed
        self.configurations: list[np.ndarray] = []
        self.unmeasured = np.ones(layout.nv, dtype=bool)

    def push(self, block: Block) -> None:
        """Add the rows of a block; windows overlap by half, the last of a run ends with it."""
        self.unmeasured &= np.isin(block.codes[:, : len(self.unmeasured)], UNMEASURED).all(axis=0)
        held = block.x if self.held is None else np.concatenate([self.held, block.x])
        size, at = _window_rows(block.period), self.at
        while len(held) >= at + size:
            self._window(held[at : at + size], block.period)
            at, self.made = at + size // 2, self.made + 1
        left = len(held) - at
        if block.last:
            if left > 3 * size // 4 or (not self.made and left >= SHORTEST_WINDOW):
                self._window(held[-size:], block.period)
            self.held, self.at, self.made = None, 0, 0
        else:
            keep = max(at - size // 2, 0)
            self.held, self.at = held[keep:], at - keep

    def _window(self, x: np.ndarray, period: float) -> None:
        part = x[:: max(1, len(x) // STATISTICS)][:STATISTICS]
        head = x[len(x) // 2 - min(len(x), STATISTICS) // 2 :][:STATISTICS]
        noise, span = spike_thresholds(head)
        x, _ = despike(
            x, np.maximum(noise, SPIKE_RANGE * np.maximum(span, np.ptp(part, axis=0)) + 1e-300)
        )
        velocity = self._velocity(x, period)
        self.spread.append(noise)
        speeds = np.abs(velocity[:: max(1, len(x) // STATISTICS)])
        levels = (np.arange(32) + 0.5) / 32
        self.quantiles.append(
            np.concatenate(
                [np.quantile(part, levels, axis=0), np.quantile(speeds, levels, axis=0)], axis=1
            )
        )
        self.configurations.append(x[len(x) // 2, : self.layout.nq])
        self._spectrum(velocity, period)

    def _velocity(self, x: np.ndarray, period: float) -> np.ndarray:
        """Return velocities (rows, nv), measured or differentiated from positions."""
        q = x[:, self.layout.q]
        if self.layout.has_dq:
            dq = x[:, self.layout.dq]
            for at, v in self.layout.differentiated:
                dq[:, v] = central_difference(q[:, at], period)
            return dq
        return velocities(self.robot, q, central_difference(q, period))

    def _spectrum(self, velocity: np.ndarray, period: float) -> None:
        from scipy import fft

        n = len(velocity)
        taper = 0.5 - 0.5 * np.cos(2.0 * np.pi * (np.arange(n) + 0.5) / n)
        transform = fft.rfft((velocity - velocity.mean(axis=0)) * taper[:, None], axis=0)[
            1 : (n + 1) // 2
        ]
        energy = 2.0 * np.abs(transform) ** 2 / (n * np.sum(taper**2))  # its sum is the variance
        step = 1.0 / (n * period)
        octaves = np.log2(step * np.arange(1, len(energy) + 1) / LOWEST)
        band = np.clip(np.floor(PER_OCTAVE * octaves).astype(int), 0, BANDS - 1)
        for j in range(energy.shape[1]):
            self.energy[:, j] += np.bincount(band, energy[:, j], minlength=BANDS)
        self.width += np.bincount(band, minlength=BANDS) * step
        self.windows += 1

    def result(self, rate: float) -> Spectra:
        if not self.windows:
            raise NotIdentifiable(
                f"no run of the log has {SHORTEST_WINDOW} rows, too few to choose filters from;"
                " record longer"
            )
        frequency = LOWEST * 2.0 ** ((np.arange(BANDS) + 0.5) / PER_OCTAVE)
        covered = self.width > 0.0
        pooled = np.concatenate(self.quantiles)
        channels = pooled[:, : self.layout.channels]
        low, high = np.quantile(channels, (0.01, 0.99), axis=0)
        spikes = np.maximum(np.quantile(self.spread, 0.9, axis=0), SPIKE_RANGE * (high - low))
        for _, at in self.robot.tree.quaternions:
            spikes[at : at + 4] = np.inf  # a quaternion may change its sign
        spikes[spikes == 0.0] = np.inf  # a channel that never changes has no spikes
        return Spectra(
            velocity=VelocitySpectrum(
                frequency=frequency[covered],
                energy=self.energy[covered] / self.windows,
                density=self.energy[covered] / self.width[covered, None],
            ),
            torque_variance=channels[:, self.layout.tau].var(axis=0),
            inertia=_inertia(self.robot, np.array(self.configurations)),
            speed=np.quantile(pooled[:, self.layout.channels :], 0.95, axis=0),
            spikes=spikes,
            rate=rate,
            differentiated=not self.layout.has_ddq,
            usable=~self.unmeasured,
        )


def _inertia(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Return the mean square of the nominal mass matrix over configurations of the log, with zero
    rows where it is not that of a physical joint.
    """
    from thetahat.dynamics.rigid_body import mass_matrix

    q = q.copy()
    for _, at in robot.tree.quaternions:
        length = np.linalg.norm(q[:, at : at + 4], axis=1, keepdims=True)
        q[:, at : at + 4] = np.where(
            length > 0.5, q[:, at : at + 4] / np.maximum(length, 1e-300), [0.0, 0.0, 0.0, 1.0]
        )
    matrices = np.asarray(mass_matrix(robot, q)).reshape(-1, robot.nv, robot.nv)
    square: np.ndarray = np.mean(matrices**2, axis=0)
    square[np.mean(matrices, axis=0).diagonal() <= 0.0] = 0.0
    return square


# -- the rule --------------------------------------------------------------------------------------


def choose_cutoff(spectra: Spectra, robot: Robot) -> Cutoff:
    """Choose the cut-off by the rule at the head of this file."""
    velocity = spectra.velocity
    moves = (
        spectra.usable
        & (spectra.speed > STILL)
        & (velocity.density.max(axis=0) > MOVES * velocity.floor)
    )
    motion = np.array(
        [
            _bandwidth(velocity.frequency, energy[: knee + 1])
            for energy, knee in zip(velocity.energy.T, velocity.knees, strict=True)
        ]
    )
    noise = _noise_limits(spectra) if spectra.differentiated else np.full(robot.nv, np.inf)
    who = moves if moves.any() else np.ones(robot.nv, dtype=bool)
    typical = float(np.median(motion[who]))
    who = who & (motion <= VIBRATES * typical)
    fastest = float(np.max(motion[who]))
    limit = float(np.median(noise[who]))
    wanted = max(HARMONICS * typical, FASTEST * fastest)
    value = min(max(min(wanted, limit), LEAST * fastest), MOST * spectra.rate)
    value = float(f"{value:.3g}")
    why = (
        f"99 % of the motion is below {typical:.3g} Hz (median of the joints; fastest"
        f" {_name(robot, who, motion)} {fastest:.3g} Hz)"
    )
    if value >= 0.99 * MOST * spectra.rate:
        how = f"the sampling rate of {spectra.rate:.4g} Hz allows no more"
    elif limit < wanted:
        how = (
            f"above {limit:.3g} Hz the noise of the acceleration would be more than"
            f" {100 * NOISE_PART:g} % of the torque"
        )
        how += ", but the motion itself must pass" if value > limit * 1.01 else ""
    else:
        allowed = (
            f"noise would allow {limit:.3g} Hz" if np.isfinite(limit) else "noise sets no limit"
        )
        how = f"{HARMONICS:g} times that leaves the harmonics of friction in, and {allowed}"
    reasoning = f"cut-off {value:.3g} Hz: {why}; {how}"
    return Cutoff(value, motion, noise, velocity.frequency[velocity.knees], moves, reasoning)


def _name(robot: Robot, who: np.ndarray, motion: np.ndarray) -> str:
    return robot.velocity_names[int(np.argmax(np.where(who, motion, -1.0)))]


def _knee(frequency: np.ndarray, density: np.ndarray) -> int:
    """Return the band above the spectrum's peak where f²·S(f) is least, S averaged over 5/8 of an
    octave.
    """
    if not np.any(density > 0.0):
        return len(density) - 1
    level = np.log(np.maximum(density, density.max() * 1e-30))
    level = np.convolve(np.pad(level, 2, mode="edge"), np.full(5, 0.2), mode="valid")
    peak = int(np.argmax(level))
    below = np.flatnonzero(level[peak:] < level[peak] + np.log(NOISELESS))
    end = peak + int(below[0]) + 1 if len(below) else len(level)
    return peak + int(np.argmin((level + 2.0 * np.log(frequency))[peak:end]))


def _bandwidth(frequency: np.ndarray, energy: np.ndarray) -> float:
    """Return the frequency below which `MOTION_PART` of the energy lies."""
    total = np.cumsum(energy)
    if total[-1] <= 0.0:
        return float(frequency[0])
    at = int(np.searchsorted(total, MOTION_PART * total[-1]))
    before = total[at - 1] if at else 0.0
    part = (MOTION_PART * total[-1] - before) / max(total[at] - before, 1e-300)
    return float(frequency[at] * 2.0 ** ((part - 0.5) / PER_OCTAVE))


def _noise_limits(spectra: Spectra) -> np.ndarray:
    """Return (nv,) the frequency up to which noise of the acceleration makes `NOISE_PART` of the
    torque's variance.
    """
    velocity = spectra.velocity
    f, density = velocity.frequency, velocity.density
    width = f * (2.0 ** (0.5 / PER_OCTAVE) - 2.0 ** (-0.5 / PER_OCTAVE))
    noise = np.where(np.arange(len(f))[:, None] < velocity.knees, velocity.floor, density)
    # below this level is the skirt of the window itself
    noise = np.where(density.max(axis=0) * NOISELESS * 10.0 < noise, noise, 0.0)
    acceleration = np.cumsum((2.0 * np.pi * f[:, None]) ** 2 * noise * width[:, None], axis=0)
    torque = acceleration @ spectra.inertia.T  # (bands, nv)
    out = np.full(torque.shape[1], np.inf)
    for j in np.flatnonzero(spectra.torque_variance > 0.0):
        over = np.flatnonzero(torque[:, j] > NOISE_PART * spectra.torque_variance[j])
        if len(over):
            out[j] = f[over[0]]
    return out


def choose_min_speed(spectra: Spectra, cutoff: float) -> np.ndarray:
    """Choose (nv,) the speed below which a joint stands still: 4 % of its 95th percentile, or three
    standard deviations of the noise that the filter leaves.
    """
    velocity = spectra.velocity
    f, knees = velocity.frequency, velocity.knees
    passed = 1.0 / (1.0 + (f / cutoff) ** 8) ** 2
    above = np.arange(len(f))[:, None] > knees
    variance = velocity.floor * np.minimum(f[knees], cutoff) + np.sum(
        np.where(above, velocity.energy, 0.0) * passed[:, None], axis=0
    )
    noise = np.minimum(SLOW_NOISE * np.sqrt(variance), 0.1 * spectra.speed)
    return np.asarray(np.maximum(np.maximum(SLOW_PART * spectra.speed, noise), STILL))
