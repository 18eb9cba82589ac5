"""The autocovariance of a joint's torque noise, from what a fit left of it.

    r(k) = Σ_t e_t·e_{t+k},   n(k) pairs,   a(k) = Σ_t z_tᵀz_{t+k}
           (z: the joint's rows in whitened columns, Σ zᵀz = its share of the fit)
    E r(k) ≈ n(k)·c(k) − (c ⋆ a)(k)

The last term is what the fit took: e = (1 − P)·noise, whose power is missing where the regressor
has its own, at low frequency mostly. (Exact for white noise; else as if P·T·Pᵀ were the symmetric
part of P·T, which holds where the spectrum is level over a column's band.) Given a model c the
missing part is put back, and the model fitted again, as the EM algorithm does.

Two models compete, by their likelihood over the frequencies [Whittle1953] and BIC [Schwarz1978].
One is autoregressive, by Levinson's recursion [Brockwell1991]; a spectrum that is empty above some
frequency (low-passed samples) is modelled at a lower rate, every d-th lag, and taken back to all
lags by a raised cosine. The other is white noise beside slow ones, c(k) = Σ_i b_i exp(−k/T_i) with
b ≥ 0 and T from one row up in octaves: a wander below a sensor's white noise, which a short
recursion misses. Then octave by octave the residual's power is compared with what the model leaves
there, by χ²; where they differ by more than chance the spectrum follows the residual.

What bounds it. A recursion is only fitted to numbers that some process has: r(k)/n(k) need not be
such, r(k)/n(0) always is, as r is a sum of squares at every frequency. A line narrower than the
grid is widened to it, so that c(0) is the mean of S. The noise has at most LARGEST times the power
of white noise that leaves as much: where the fit takes all (an offset, at zero frequency) nothing
is known, and putting back has no end. So a combination zᵀe of rows has a variance zᵀTz ≤
‖z‖²·n·c(0), and standard deviations stay below √(LARGEST·n) times those of independent rows,
whatever the residual is. With fewer than FEW rows more than parameters there is no telling, and
rows count as independent.

A residual may be model error and no noise: what a fit leaves is then a large part of the torque, at
the frequencies of the motion. The intervals say how far such an error would move the parameters had
it come at another time, with another phase. How far it moved them this time, always the same way,
they cannot say; `NoiseModel.misfit` tells where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from scipy import fft, special

from thetahat.identification.uncertainty.model_error import OmittedSums

LAGS = 8192  # rows: the longest correlation looked for (8 s at 1 kHz)
POWER = 0.99  # of the noise lies below the frequency up to which it is modelled
ROLL = 0.15  # half width of the raised cosine, relative to the frequency it is centred on
ORDER = 48  # of the recursion, at most
PAIRS = 0.05  # of the rows must have a partner at a lag for the recursion to use it
# reflection coefficient at which the recursion ends: what it leaves is rounding
REFLECTION = 0.99999
EXHAUSTED = 1e-12  # of the variance: so does it where the innovation is this small
# by which c(0) and the mean of S may differ before lines count as narrower than the grid
GRID = 0.02
# of putting back what the fit took; relative change of c(0) and of the level at low frequency at
# which it ends
ROUNDS, SETTLED = 20, 1e-3
CHANCE = 0.02  # probability that the spectrum of a right model is changed anywhere
FREEDOM = 4.0  # degrees of freedom in a band, at least
WIDTH = 2.0 ** (1 / 3)  # from one band's edge to the next
STEPS = 300  # of the fit of relaxations
SMALL = 1e-3  # of the power at zero frequency: a relaxation that adds less is left out
SLOW = 0.05  # of the longest stretch: what stays alike for longer is known by too few repetitions
TAIL = 1e-3  # of Σ|c|: the autocovariance is cut where less is left
LASTING = 0.02  # of c(0): more at the last lags, and cutting there would show
# of a band's power is left there by any fit, at least: beyond that E r ≈ n·c − c ⋆ a does not hold
TAKEN = 1e-3
# rows more than the parameters they determine: with fewer, correlation cannot be told from chance
FEW = 20.0
LARGEST = 4.0  # c(0) over the variance that white noise with such a residual would have, at most
MOTION = 0.9  # of the regressor's power lies below the frequency up to which the motion reaches
SLOWLY = 0.5  # of the residual's power below that frequency, and
MISFIT = 0.2  # of the RMS torque is left: model error rather than noise


@dataclass(frozen=True, eq=False)
class LagSums:
    """Sums over pairs of one joint's rows, (LAGS,) each, and its longest segment."""

    residual: np.ndarray  # r
    pairs: np.ndarray  # n
    leverage: np.ndarray  # a
    longest: int  # rows
    omitted: OmittedSums | None = None  # of columns that the model lacks


@dataclass(frozen=True, eq=False)
class Autocovariance:
    """Autocovariance c(k), k = 0 … of one joint's noise, and its slow part."""

    c: np.ndarray  # (lags,) [(N·m)² or N²]
    # S(0)/c(0) = 1 + 2 Σ_k c(k)/c(0): rows that make one independent one, for what varies slowly
    level: float
    order: int  # of the recursion
    thinned: int  # d: modelled at every d-th lag
    # whether the log is much longer than the correlation, and has rows enough to tell
    resolved: bool
    few: bool = False  # too few rows: c(0) is what independent rows have
    slow: float = 0.0  # share of the residual's power at the frequencies of the motion

    @property
    def white(self) -> bool:
        """Whether neighbouring rows are independent."""
        return len(self.c) == 1


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """Torque noise of every joint, from the residuals of a fit. Joints without rows are masked."""

    joints: tuple[str, ...]
    rows: np.ndarray  # (nv,)
    period: float | None  # [s] between rows
    autocovariances: tuple[Autocovariance | None, ...]  # per joint
    # (nv,) number of independent rows that would say as much about a slow signal
    effective: np.ma.MaskedArray
    # (nv,) of standard deviations by the correlation, over this joint's part in the fit
    inflation: np.ma.MaskedArray
    left: np.ndarray  # (nv,) RMS of the residual over that of the torque

    @cached_property
    def std(self) -> np.ma.MaskedArray:
        """Standard deviation per joint, (nv,) [N·m or N]."""
        return self._per_joint(lambda model: float(np.sqrt(model.c[0])))

    @cached_property
    def correlation_rows(self) -> np.ma.MaskedArray:
        """Σ_{k>0} c(k)/c(0) per joint, (nv,): 0 for independent rows, T/period for exp(−t/T)."""
        return self._per_joint(lambda model: max(0.5 * (model.level - 1.0), 0.0))

    @property
    def resolved(self) -> np.ndarray:
        """Whether the log is long enough to know the correlation, (nv,) bool."""
        return np.array([model is None or model.resolved for model in self.autocovariances], bool)

    def _per_joint(self, value: Callable[[Autocovariance], float]) -> np.ma.MaskedArray:
        values = [0.0 if model is None else value(model) for model in self.autocovariances]
        return np.ma.masked_array(values, mask=[model is None for model in self.autocovariances])

    @property
    def misfit(self) -> np.ndarray:
        """Whether the residual is large and as slow as the motion: model error, (nv,) bool."""
        slow = [model is not None and model.slow > SLOWLY for model in self.autocovariances]
        return np.array(slow, dtype=bool) & (self.left > MISFIT)

    @property
    def warning(self) -> tuple[str, ...]:
        """What standard deviations mean where the model does not fit: one sentence, or none."""
        joints = [
            f"{self.joints[v]} ({100.0 * self.left[v]:.0f} % of its torque)"
            for v in np.flatnonzero(self.misfit)
        ]
        sentence = (
            f"what the fit leaves of {', '.join(joints)} is as slow as the motion: model error"
            " rather than sensor noise; standard deviations say how far such an error scatters the"
            " parameters, not how far it has moved them; check the log's joints and torques, or"
            " model what is left"
        )
        return (sentence,) if joints else ()

    @property
    def correlation_time(self) -> np.ma.MaskedArray:
        """[s] per joint; masked where the samples have no time."""
        if not self.period:
            return np.ma.masked_array(np.zeros(len(self.rows)), mask=True)
        return self.correlation_rows * self.period

    @property
    def advice(self) -> tuple[str, ...]:
        """A sentence per joint whose noise is too slow for this log, or with too few rows."""
        out = []
        for v in np.flatnonzero(~self.resolved):
            model = self.autocovariances[v]
            if model is not None and model.few:
                out.append(
                    f"{self.joints[v]} has {self.rows[v]} rows, too few beside its parameters to"
                    " tell whether neighbouring ones are alike: its standard deviations take them"
                    " as independent, and are a lower bound; record a longer run"
                )
                continue
            time = f"{self.correlation_rows[v]:.0f} rows"
            if self.period:
                time = f"{self.correlation_time[v]:.2g} s"
            out.append(
                f"the torque noise of {self.joints[v]} stays alike for about {time} or longer, too"
                " long for this log's stretches: its standard deviations are a lower bound; record"
                " a longer run, or model what is left (friction, temperature)"
            )
        return (*out, *self.warning)

    def __str__(self) -> str:
        width = max(len("joint"), *(len(name) for name in self.joints))
        lines = [f"{'joint':{width}}  noise std  correlation  effective rows  inflation"]
        for v, name in enumerate(self.joints):
            if self.std[v] is np.ma.masked:
                lines.append(f"{name:{width}}  no usable rows")
                continue
            time = f"{self.correlation_rows[v]:.3g} rows"
            if self.period:
                time = f"{1e3 * self.correlation_time[v]:.3g} ms"
            lines.append(
                f"{name:{width}}  {self.std[v]:9.3g}  {time:>11}  {self.effective[v]:14.0f} "
                f" {self.inflation[v]:9.3g}"
            )
        return "\n".join([*lines, *self.advice])


def fit(sums: LagSums, floor: float, alone: float) -> Autocovariance:
    """The autocovariance behind the sums of one joint. floor: variance below which a residual is
    rounding; alone: that of independent rows.
    """
    rows, a = sums.pairs[0], sums.leverage
    variance = sums.residual[0] / max(rows - a[0], 1.0)
    if rows - a[0] < FEW:
        return Autocovariance(np.array([alone]), 1.0, 0, 1, resolved=False, few=True)
    if not variance > floor:
        return Autocovariance(np.array([floor or alone]), 1.0, 0, 1, resolved=True)
    # from here on in units of the variance white noise would have
    sums = replace(sums, residual=sums.residual / variance)
    reach = int(np.argmax(sums.pairs < PAIRS * rows)) or LAGS  # lags that enough pairs of rows have
    reach = max(min(reach, sums.longest, LAGS), 1)
    d = _thinning(sums, reach)
    taken = _spectrum(a)
    S, order = _recursive(sums, taken, reach, d)
    bands = _Bands(sums, taken, LAGS + 1 if d == 1 else int((1.0 - ROLL) * LAGS / d))
    if d == 1:
        slow, parts = _relaxations(sums, bands)
        log = np.log(rows)
        if bands.deviance(slow) + parts * log < bands.deviance(S) + (order + 1) * log:
            S, order = slow, 0
    S = S * _departures(S, bands)
    bounded = _mean(S) > LARGEST
    S = S * (LARGEST / _mean(S)) if bounded else S
    c = fft.irfft(S, 2 * LAGS)[:LAGS]
    resolved = bool(_memory(c) <= min(SLOW * sums.longest, LAGS / 8)) and not bounded
    kept = _cut(c, sums.longest) if np.ptp(S) else c[:1]
    return Autocovariance(variance * kept, float(S[0] / c[0]), order, d, resolved, slow=_slow(sums))


def _mean(S: np.ndarray) -> float:
    """c(0) of a spectrum on the grid."""
    return float((S[0] + 2.0 * np.sum(S[1:-1]) + S[-1]) / (2 * LAGS))


def _slow(sums: LagSums) -> float:
    """Share of the residual's power at the frequencies of the motion."""
    window = 1.0 - np.arange(LAGS) / LAGS  # longer logs end behind the last lag, which would leak
    residual, moving = (
        np.cumsum(np.maximum(_spectrum(window * part), 0.0))
        for part in (sums.residual, sums.leverage)
    )
    return float(residual[int(np.argmax(moving >= MOTION * moving[-1]))] / residual[-1])


def _spectrum(c: np.ndarray) -> np.ndarray:
    """Σ_k c(|k|) cos(ωk) on the grid of LAGS + 1 frequencies from zero to half the rate."""
    return np.asarray(fft.rfft(np.concatenate([c, [0.0], c[:0:-1]])).real)


def _thinning(sums: LagSums, reach: int) -> int:
    """d: every d-th lag holds all but a hundredth of the noise's power."""
    window = np.clip(1.0 - np.arange(LAGS) / reach, 0.0, None)
    spectrum = _spectrum(window * sums.residual / np.maximum(sums.pairs, 1.0))
    power = np.cumsum(np.maximum(spectrum, 0.0))
    edge = max(int(np.argmax(power >= POWER * power[-1])), 1) * (1.0 + ROLL)
    return int(np.clip(LAGS / edge, 1, max(reach // 16, 1)))


def _recursive(sums: LagSums, taken: np.ndarray, reach: int, d: int) -> tuple[np.ndarray, int]:
    """(spectrum, order) of the autoregression that explains the residual's autocovariance."""
    rows, before, lost = sums.pairs[0], None, sums.leverage
    for _ in range(ROUNDS):
        power, pairs = (
            (x[:reach:d])[: ORDER + 1] for x in (sums.residual + lost, np.maximum(sums.pairs, 1.0))
        )
        phi, innovation, exists = _recursion(power / pairs, rows / d)
        if not exists:
            phi, innovation, _ = _recursion(power / rows, rows / d)
        c0 = power[0] / rows
        S = _all_lags(phi, innovation, d)
        if abs(_mean(S) - c0) > GRID * c0:
            S = _all_lags(phi * np.exp(-2.0 * d / LAGS * np.arange(1, len(phi) + 1)), innovation, d)
            S *= c0 / _mean(S)
        now = np.array([c0, S[0]])
        settled = before is not None and np.all(np.abs(now - before) <= SETTLED * before)
        if c0 > LARGEST or settled:
            break
        before, lost = now, fft.irfft(S * taken, 2 * LAGS)[:LAGS]
    return S, len(phi)


def _recursion(c: np.ndarray, rows: float) -> tuple[np.ndarray, float, bool]:
    """(φ, innovation variance, whether some process has these c) of x_t = Σ φ_i x_{t−i} +
    innovation, by Levinson's recursion, order by BIC.
    """
    phi, innovation = np.zeros(0), c[0]
    best, least = (phi, innovation), rows * np.log(innovation)
    for m in range(1, min(len(c), max(int(rows / 10.0), 1))):
        k = (c[m] - phi @ c[m - 1 : 0 : -1]) / innovation
        if not abs(k) < 1.0:  # no stationary process has these: pairs differ from lag to lag
            return *best, False
        phi = np.concatenate([phi - k * phi[::-1], [k]])
        innovation *= 1.0 - k * k
        criterion = rows * np.log(innovation) + m * np.log(rows)
        if criterion < least:
            best, least = (phi, innovation), criterion
        if abs(k) >= REFLECTION or innovation <= EXHAUSTED * c[0]:
            break
    return *best, True


def _all_lags(phi: np.ndarray, innovation: float, d: int) -> np.ndarray:
    """The spectrum of the recursion at every d-th lag, on the full grid, empty above its own half
    rate but for a raised cosine's flank.
    """
    if not len(phi) and d == 1:
        return np.full(LAGS + 1, innovation)
    frequency = np.arange(LAGS + 1) / LAGS  # of half the rate
    # 1 − Σ φ_m z^{md}, whose transform is the response at every frequency of the grid
    impulse = np.zeros(2 * LAGS)
    impulse[0] = 1.0
    np.subtract.at(impulse, d * np.arange(1, len(phi) + 1) % (2 * LAGS), phi)
    S: np.ndarray = innovation / np.abs(fft.rfft(impulse)) ** 2
    if d == 1:
        return S
    across = np.clip((frequency * d - (1.0 - ROLL)) / (2.0 * ROLL), 0.0, 1.0)
    return np.asarray(d * S * 0.5 * (1.0 + np.cos(np.pi * across)))


class _Bands:
    """Residual power band by band, beside what a model leaves there once the fit took its part.

    Bands of a third of an octave or wider, with enough degrees of freedom each. A model's spectrum
    S becomes that of n(k)·c(k) − (c ⋆ a)(k) under the window the residual's has, so gaps, short
    runs and leakage are in both alike.
    """

    def __init__(self, sums: LagSums, taken: np.ndarray, top: int) -> None:
        self._sums, self._taken = sums, taken
        self._window = np.clip(1.0 - np.arange(LAGS) / min(LAGS, sums.longest), 0.0, None)
        per_bin = sums.pairs[0] / LAGS  # degrees of freedom of a frequency
        edges = [max(top, 1)]
        while True:
            lower = int(edges[-1] / WIDTH)
            if lower < 1 or (edges[-1] - lower) * per_bin < FREEDOM or lower * per_bin < FREEDOM:
                break
            edges.append(lower)
        self.edges = np.array([0, *edges[::-1]])  # ascending
        self.power = self._sum(_spectrum(self._window * sums.residual))
        bins = np.diff(self.edges)  # white noise has n(0) in each, before the fit takes its part
        kept = np.clip(self.left(np.ones(LAGS + 1)) / (bins * sums.pairs[0]), TAKEN, 1.0)
        self.freedom = bins * per_bin * kept

    def _sum(self, spectrum: np.ndarray) -> np.ndarray:
        return np.add.reduceat(spectrum[: self.edges[-1]], self.edges[:-1])

    def left(self, S: np.ndarray) -> np.ndarray:
        """What a model leaves in every band."""
        c, lost = (fft.irfft(part, 2 * LAGS)[:LAGS] for part in (S, S * self._taken))
        before, gone = (
            self._sum(_spectrum(self._window * part)) for part in (self._sums.pairs * c, lost)
        )
        least = np.maximum(before, np.finfo(float).eps * np.sum(np.abs(before)))
        return np.asarray(np.maximum(before - gone, TAKEN * least))

    def deviance(self, S: np.ndarray) -> float:
        """−2 log-likelihood of the residual's power, but for a constant."""
        left = self.left(S)
        return float(self.freedom @ (np.log(left) + self.power / left))


@cache
def _shapes(octaves: int) -> np.ndarray:
    """Spectra of white noise and of exp(−k/T), T = 1, 2, 4, … rows, (octaves + 2, LAGS + 1)."""
    lags = np.arange(LAGS)
    return np.array(
        [np.ones(LAGS + 1), *(_spectrum(np.exp(-lags / 2.0**k)) for k in range(octaves + 1))]
    )


def _relaxations(sums: LagSums, bands: _Bands) -> tuple[np.ndarray, int]:
    """(spectrum, terms) of white noise beside Σ_i b_i exp(−k/T_i), b ≥ 0 by the multiplicative
    steps that raise the likelihood [Fevotte2011].
    """
    shapes = _shapes(int(np.log2(max(min(sums.longest, LAGS) / 8, 1.0))))
    left = np.array([bands.left(S) for S in shapes])
    b = np.full(len(shapes), np.sum(bands.power) / np.sum(left))
    for _ in range(STEPS):
        model = b @ left
        more = left @ (bands.freedom * bands.power / model**2)
        b *= np.sqrt(more / (left @ (bands.freedom / model)))
    power = b * shapes[:, 0]  # at zero frequency, where slow noise matters
    b[power < SMALL * np.sum(power)] = 0.0
    return b @ shapes, int(np.count_nonzero(b))


def _departures(S: np.ndarray, bands: _Bands) -> np.ndarray:
    """Residual power over the model's, octave by octave, where they differ by more than chance; one
    elsewhere, (LAGS + 1,).
    """
    out, left = np.ones(LAGS + 1), bands.left(S)
    # three thirds of an octave
    groups = [slice(max(stop - 3, 0), stop) for stop in range(len(left), 0, -3)]
    for group in groups:
        freedom = np.sum(bands.freedom[group])
        ratio = np.sum(bands.power[group]) / np.sum(left[group])
        square = ratio * freedom
        chance = 2.0 * min(special.chdtr(freedom, square), special.chdtrc(freedom, square))
        if chance < CHANCE / len(groups):
            out[bands.edges[group.start] : bands.edges[group.stop]] = ratio
    return out


def _memory(c: np.ndarray) -> float:
    """Rows over which the noise stays alike: the mean lag of c up to its first zero, without lag 0,
    where white noise hides how slow the rest is.
    """
    end = int(np.argmax(c <= 0.0)) or len(c)
    part = c[1:end]
    return float(np.arange(1, end) @ part / np.sum(part)) if len(part) else 0.0


def _cut(c: np.ndarray, longest: int) -> np.ndarray:
    """c as far as it matters, tapered to zero where it lasts longer than LAGS."""
    # cut as it is it would be no autocovariance: powers below zero
    if longest > LAGS and np.max(np.abs(c[-LAGS // 16 :])) > LASTING * c[0]:
        c = c * (1.0 - np.arange(LAGS) / LAGS)
    left = np.cumsum(np.abs(c[::-1]))[::-1]
    short = left < TAIL * left[0]
    return c[: max(int(np.argmax(short)), 1) if short[-1] else len(c)].copy()
