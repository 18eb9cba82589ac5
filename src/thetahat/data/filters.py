"""Filters and derivatives of sampled signals, zero-phase and causal, each a finite kernel.

A *method* (`Butterworth`, `SavitzkyGolay`, `ExponentialAverage`) is a frozen object that turns a
sampling period into kernels for the signal itself, its first and its second derivative:

    y_k = Σ_i w_i x_{k−i},   i = −future … past

All three kernels of a method share one low-pass, so position, velocity, acceleration and torque
filtered with them still obey any linear relation they obeyed before. Kernels are finite: an output
depends on nothing outside its reach, so halos, guards and gaps are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from thetahat.errors import MalformedInput, UsageError

TAIL = 1e-10  # an impulse response is cut where what remains of it is this part of the whole
GUARD = 16  # samples on either side of a kernel that was moved by a fraction of one
EDGE_WEIGHT = 1e-3  # rows are valid where less than this part of a kernel exceeds the run's ends
HALF_PERIODS = 0.95  # a cut-off may be this part of half the sampling rate
SHORTEST_PERIOD = 1e-9  # [s] between two samples
LEAST_CYCLES = 1e-9  # per sample, of a cut-off
# weights of x_{k+4} … x_{k−4} for x', with error (ωh)⁸/630
STENCIL = np.array([-1 / 280, 4 / 105, -1 / 5, 4 / 5, 0.0, -4 / 5, 1 / 5, -4 / 105, 1 / 280])


@dataclass(frozen=True, eq=False)
class Kernel:
    """Weights of y_k = Σ w_i x_{k−i}, stored for i = −future … past."""

    weights: np.ndarray
    future: int  # samples it looks ahead
    past: int  # samples it looks back

    def padded(self, future: int, past: int) -> np.ndarray:
        """Return the weights padded with zeros to this reach."""
        return np.pad(self.weights, (future - self.future, past - self.past))

    def delayed(self, samples: float) -> Kernel:
        """Return the kernel of the same signal this many samples ago, fractions included: its
        weights shifted by the phase of their spectrum.

        Exact for signals in the kernel's pass band.
        """
        if not samples:
            return self
        reach = math.ceil(abs(samples)) + GUARD
        weights = np.pad(self.weights, reach)
        frequency = np.fft.rfftfreq(len(weights))
        moved = np.fft.irfft(
            np.fft.rfft(weights) * np.exp(-2j * np.pi * frequency * samples), len(weights)
        )
        total = moved.sum()
        preserved = abs(total) > 1e-9 * np.abs(moved).sum()  # a constant stays exactly what it is
        scale = self.weights.sum() / total if preserved else 1.0
        return Kernel(moved * scale, self.future + reach, self.past + reach)

    def edge_reach(self, part: float = EDGE_WEIGHT) -> tuple[int, int]:
        """Return the (future, past) reach outside which less than `part` of the absolute weight
        lies.
        """
        size = np.abs(self.weights)
        total = size.sum()
        behind = np.cumsum(size[::-1])[::-1] - size  # weight further in the past than each tap
        ahead = np.cumsum(size) - size
        past = int(np.argmax(behind < part * total)) - self.future
        future = self.future - (len(size) - 1 - int(np.argmax(ahead[::-1] < part * total)))
        return max(future, 0), max(past, 0)


class Method(Protocol):
    """Filter that makes kernels for a sampling period."""

    @property
    def cutoff(self) -> float:
        """Return the cut-off [Hz]."""

    def kernel(self, period: float, derivative: int = 0) -> Kernel:
        """Return the kernel of the filtered signal or of its first or second derivative."""


def _check_cutoff(cutoff: float, period: float) -> float:
    """Return cutoff·period, in cycles per sample; it must be below half the sampling rate."""
    if not (math.isfinite(period) and period > 0.0):
        raise UsageError(f"the sampling period is {period!r} s; it must be a positive number")
    if not (math.isfinite(cutoff) and cutoff > 0.0):
        raise UsageError(
            f"cutoff is {cutoff!r}; give a positive frequency in Hz, or None to have it chosen"
        )
    highest = HALF_PERIODS * 0.5 / period
    if cutoff > highest:
        raise UsageError(
            f"cutoff is {cutoff:g} Hz, but a log sampled at {1.0 / period:.6g} Hz can be filtered"
            f" at no more than {highest:.4g} Hz; lower it"
        )
    if period < SHORTEST_PERIOD:
        raise MalformedInput(
            f"the log is sampled every {period:.3g} s; no robot is logged faster than every"
            f" {SHORTEST_PERIOD:g} s, so check the unit of the time stamps (--units)"
        )
    if cutoff * period < LEAST_CYCLES:
        raise UsageError(
            f"cutoff is {cutoff:g} Hz, far too low for a log sampled at {1.0 / period:.6g} Hz; give"
            f" at least {LEAST_CYCLES / period:.3g} Hz"
        )
    return cutoff * period


def _check_derivative(derivative: int) -> None:
    if derivative not in (0, 1, 2):
        raise UsageError(f"derivative is {derivative!r}; it must be 0, 1 or 2")


# -- methods ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Butterworth:
    """Zero-phase Butterworth low-pass (forward and backward), derivatives by nine-point central
    differences.

    |G(f)| = 1 / (1 + (tan πfh / tan πf_c h)^{2·order}), half the amplitude at the cut-off: what
    `filtfilt` does, sampled from its closed form.
    """

    cutoff: float  # [Hz]
    order: int = 4

    def __post_init__(self) -> None:
        if not (isinstance(self.order, int | np.integer) and 1 <= self.order <= 12):
            raise UsageError(
                f"order is {self.order!r}; a Butterworth filter takes a whole number from 1 to 12"
            )

    def kernel(self, period: float, derivative: int = 0) -> Kernel:
        """Return the filter followed by `derivative` central differences."""
        _check_derivative(derivative)
        weights = _butterworth_weights(_check_cutoff(self.cutoff, period), int(self.order))
        for _ in range(derivative):
            weights = np.convolve(weights, STENCIL) / period
        reach = len(weights) // 2
        return Kernel(weights, reach, reach)


@lru_cache(maxsize=64)
def _butterworth_weights(frequency: float, order: int) -> np.ndarray:
    """Return the impulse response of |H|², symmetric, cut at `TAIL`, of unit sum; `frequency` is
    in cycles per sample.

    It is the inverse transform of the spectrum's closed form, long enough that what the slowest
    pole leaves to wrap around is below rounding.
    """
    ratio = math.tan(math.pi * frequency)
    poles = ratio * np.exp(0.5j * np.pi * (1.0 + (2.0 * np.arange(order) + 1.0) / order))
    slowest = -np.log(np.max(np.abs((1.0 + poles) / (1.0 - poles))))  # nepers per sample
    size = 1 << max(8, math.ceil(math.log2(100.0 / slowest)))
    if size > 1 << 24:
        raise UsageError(
            f"cutoff is {frequency:.3g} of the sampling rate, too low to be filtered in one step;"
            " raise the cutoff, or thin out the log first"
        )
    angle = np.pi * np.arange(size // 2 + 1) / size
    with np.errstate(over="ignore"):
        spectrum = 1.0 / (1.0 + (np.tan(angle) / ratio) ** (2 * order))
    spectrum[-1] = 0.0  # tan(π/2): the bilinear transform's zero at half the sampling rate
    half = np.fft.irfft(spectrum, size)[: size // 2]
    tail = np.cumsum(np.abs(half[::-1]))[::-1] * 2.0
    reach = int(np.argmax(tail < TAIL * tail[0])) if np.any(tail < TAIL * tail[0]) else len(half)
    weights = np.concatenate([half[reach - 1 : 0 : -1], half[:reach]])
    weights /= weights.sum()
    weights.setflags(write=False)
    return weights


@dataclass(frozen=True)
class SavitzkyGolay:
    """Local least-squares polynomial over a symmetric window whose width makes half the amplitude
    pass at the cut-off.
    """

    cutoff: float  # [Hz]
    degree: int = 4

    def __post_init__(self) -> None:
        if not (isinstance(self.degree, int | np.integer) and 2 <= self.degree <= 10):
            raise UsageError(
                f"degree is {self.degree!r}; a Savitzky–Golay filter takes a whole number from 2 to"
                " 10 here, enough for an acceleration"
            )

    def half_window(self, period: float) -> int:
        """Return the number of samples on each side of the middle."""
        return _savitzky_golay_half(_check_cutoff(self.cutoff, period), int(self.degree))

    def kernel(self, period: float, derivative: int = 0) -> Kernel:
        """Return the polynomial's value or derivative at the middle of the window."""
        _check_derivative(derivative)
        half = self.half_window(period)
        weights = _savitzky_golay_weights(half, int(self.degree), derivative)
        return Kernel(weights / period**derivative, half, half)


@lru_cache(maxsize=256)
def _savitzky_golay_weights(half: int, degree: int, derivative: int) -> np.ndarray:
    """Return row `derivative` of the pseudo-inverse of the window's polynomials, times its
    factorial, for x_{k+half} … x_{k−half}.
    """
    place = np.arange(half, -half - 1, -1) / half  # scaled, so that powers stay near one
    basis, triangle = np.linalg.qr(np.vander(place, degree + 1, increasing=True))
    unit = np.zeros(degree + 1)
    unit[derivative] = math.factorial(derivative) / half**derivative
    weights = basis @ np.linalg.solve(triangle.T, unit)
    weights.setflags(write=False)
    return weights


@lru_cache(maxsize=64)
def _savitzky_golay_half(frequency: float, degree: int) -> int:
    """Return the widest half window whose response at `frequency` (cycles per sample) is at least
    one half, by bisection.
    """

    def response(half: int) -> float:
        weights = _savitzky_golay_weights(half, degree, 0)
        return float(weights @ np.cos(2.0 * np.pi * frequency * np.arange(half, -half - 1, -1)))

    least = degree // 2 + 1
    main_lobe = math.ceil((degree + 2) / (2.0 * frequency))  # it ends before
    low, high = least, max(least + 1, main_lobe)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if response(middle) >= 0.5 else (low, middle)
    return low


@dataclass(frozen=True)
class ExponentialAverage:
    """The paper's causal filter (§VI): y_k = y_{k−1} + a (x_k − y_{k−1}), a = 1 − exp(−2π f_c h);
    derivatives by backward differences.
    """

    cutoff: float  # [Hz]

    def kernel(self, period: float, derivative: int = 0) -> Kernel:
        """Return w_i = a (1 − a)^i into the past, differenced."""
        _check_derivative(derivative)
        keep = math.exp(-2.0 * math.pi * _check_cutoff(self.cutoff, period))
        count = max(1, math.ceil(math.log(TAIL) / math.log(keep)))
        weights = (1.0 - keep) * keep ** np.arange(count)
        weights /= weights.sum()
        for _ in range(derivative):
            weights = np.convolve(weights, [1.0, -1.0]) / period
        return Kernel(weights, 0, len(weights) - 1)


def method_of(name: str, cutoff: float, order: int = 4) -> Method:
    """Return the filter of this name: butterworth, savgol or ema."""
    match name:
        case "butterworth":
            return Butterworth(cutoff, order)
        case "savgol":
            return SavitzkyGolay(cutoff, order)
        case "ema":
            return ExponentialAverage(cutoff)
    raise UsageError(f"derivative is {name!r}; methods: butterworth, savgol, ema")


# -- applying kernels ------------------------------------------------------------------------------


def extend(x: np.ndarray, left: int, right: int, *, mirror: bool = True) -> np.ndarray:
    """Extend x (channels, n) beyond both ends by point reflection, 2x_0 − x_k, and by its last
    value where the reflection runs out (or always).
    """
    n = x.shape[-1]
    take_left, take_right = (min(left, n - 1), min(right, n - 1)) if mirror else (0, 0)
    before = 2.0 * x[:, :1] - x[:, take_left:0:-1]
    after = 2.0 * x[:, -1:] - x[:, -2 : -2 - take_right : -1] if take_right else x[:, :0]
    parts = [before, x, after]
    if left > take_left:
        parts.insert(
            0, np.repeat(parts[0][:, :1] if take_left else x[:, :1], left - take_left, axis=1)
        )
    if right > take_right:
        parts.append(
            np.repeat(parts[-1][:, -1:] if take_right else x[:, -1:], right - take_right, axis=1)
        )
    return np.concatenate(parts, axis=1)


def convolve(
    x: np.ndarray, kernels: Sequence[Kernel], *, past: int, future: int
) -> list[np.ndarray]:
    """Return each kernel's output (channels, n) on x (channels, past + n + future), extended by at
    least the kernels' reach.

    Overlap–save with one transform of the input for all kernels. A constant per channel is taken
    out first, since it costs digits: every kernel turns a constant into its sum times the constant.
    """
    from scipy import fft

    taps = future + past + 1
    channels, length = x.shape
    n = length - taps + 1
    size = min(
        fft.next_fast_len(max(4 * taps, 1 << 14), real=True), fft.next_fast_len(length, real=True)
    )
    hop = size - taps + 1
    level = x[:, :1]
    spectra = [fft.rfft(k.padded(future, past), size) for k in kernels]
    sums = [float(k.weights.sum()) for k in kernels]
    outputs = [np.empty((channels, n)) for _ in kernels]
    for first in range(0, n, hop):
        block = x[:, first : first + size] - level
        count = min(hop, n - first)
        transform = fft.rfft(block, size, axis=1)
        for spectrum, total, out in zip(spectra, sums, outputs, strict=True):
            piece = fft.irfft(transform * spectrum, size, axis=1)
            np.add(
                piece[:, taps - 1 : taps - 1 + count],
                total * level,
                out=out[:, first : first + count],
            )
    return outputs


def smooth(x: np.ndarray, period: float, method: Method, derivative: int = 0) -> np.ndarray:
    """Filter a uniformly sampled run x (n,) or (n, channels), or return its first or second
    derivative.

    Rows closer than `edge_rows(...)` to an end depend on the extension beyond it.
    """
    try:
        array = np.asarray(x, dtype=float)
    except (TypeError, ValueError):
        raise UsageError("a signal to be filtered must be an array of numbers") from None
    if not array.size or not np.all(np.isfinite(array)):
        raise UsageError(
            "a signal to be filtered must have at least one sample and only finite numbers; remove"
            " the rows that have none"
        )
    columns = np.ascontiguousarray(array.reshape(len(array), -1).T)
    kernel = method.kernel(period, derivative)
    continued = extend(columns, kernel.past, kernel.future, mirror=kernel.future > 0)
    (out,) = convolve(continued, [kernel], past=kernel.past, future=kernel.future)
    return np.ascontiguousarray(out.T).reshape(array.shape)


def edge_rows(method: Method, period: float) -> tuple[int, int]:
    """Return (rows at the start, rows at the end) of a run where more than `EDGE_WEIGHT` of the
    filter or a derivative lies outside it.
    """
    reaches = [method.kernel(period, derivative).edge_reach() for derivative in (0, 1, 2)]
    return max(past for _, past in reaches), max(future for future, _ in reaches)


def central_difference(x: np.ndarray, period: float) -> np.ndarray:
    """Return dx/dt of a uniformly sampled run (n,) or (n, channels) from nine points, exact for
    polynomials of degree 8; the run is reflected at its ends.
    """
    array = np.asarray(x, dtype=float)
    half = len(STENCIL) // 2
    padded = extend(array.reshape(len(array), -1).T, half, half)
    out = sum(w * padded[:, i : i + len(array)] for i, w in enumerate(STENCIL[::-1]) if w)
    return np.ascontiguousarray(out.T / period).reshape(array.shape)


def decimation_factor(cutoff: float, period: float) -> int:
    """Return k to keep every k-th filtered row: five rows per cycle of the cut-off, where a
    fourth-order filter leaves 7e-4 to alias.
    """
    return max(1, math.floor(1.0 / (5.0 * cutoff * period) + 1e-9))


# -- uneven time stamps ----------------------------------------------------------------------------

KNOTS = 4  # measurements on each side of a time that its interpolated value can depend on
# six knots are used where no step among them is this many times the mean one, else the four nearest
UNEVEN = 2.0


def resample(
    t: np.ndarray, x: np.ndarray, grid: np.ndarray, *, degree: int = 5, period: float | None = None
) -> np.ndarray:
    """Interpolate x (n, channels), measured at rising times t, at the times of `grid` inside them
    by the polynomial through the nearest measurements.

    For sin ωt measured every h it errs by at most 0.0049 (ωh)⁶ of the amplitude (degree 5), 0.024
    (ωh)⁴ (3) or (ωh)²/8 (1). Across a hole of five periods six knots make noise 2.8 times larger,
    four 1.6 times, so there degree 5 steps down to 3.
    """
    if degree not in (1, 3, 5):
        raise UsageError(f"degree is {degree!r}; it must be 1, 3 or 5")
    if len(t) < 2:
        return np.repeat(x[:1], len(grid), axis=0)
    degree = (
        min(degree, len(t) - 1 if len(t) % 2 == 0 else len(t) - 2)
        if len(t) < degree + 1
        else degree
    )
    mean = (t[-1] - t[0]) / (len(t) - 1) if period is None else period
    out = np.empty((len(grid), x.shape[1]))
    for first in range(0, len(grid), 4096):  # piece by piece, so that it stays in cache
        times = grid[first : first + 4096]
        right = np.searchsorted(t, times)
        piece = _polynomial(t, x, times, right, degree)
        if degree == 5:
            start = np.clip(right - 3, 0, len(t) - 6)
            steps = np.diff(t[start[:, None] + np.arange(6)], axis=1).max(axis=1)
            uneven = np.flatnonzero(steps > UNEVEN * mean)
            if len(uneven):
                piece[uneven] = _polynomial(t, x, times[uneven], right[uneven], 3)
        out[first : first + 4096] = piece
    return out


def _polynomial(
    t: np.ndarray, x: np.ndarray, times: np.ndarray, right: np.ndarray, degree: int
) -> np.ndarray:
    """Evaluate Lagrange's polynomial through degree + 1 knots around each time; `right` is the knot
    at or after it.
    """
    start = np.clip(right - (degree + 1) // 2, 0, len(t) - degree - 1)
    knots = [t[start + i] for i in range(degree + 1)]
    out = np.zeros((len(times), x.shape[1]))
    for i, own in enumerate(knots):
        others = [other for k, other in enumerate(knots) if k != i]
        weight = math.prod(times - other for other in others) / math.prod(
            own - other for other in others
        )
        out += weight[:, None] * x[start + i]
    return out
