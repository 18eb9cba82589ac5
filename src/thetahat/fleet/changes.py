"""Whether a parameter of one robot has changed over its periods: by a step, for a spell, or by a
drift.

    y_t = a + b·x_t + e_t,    e_t ~ N(0, v_t + τ²)
    x_t = [t ≥ k] for a step at k, [k ≤ t < l] for a spell, the time from 0 to 1 for a drift

v_t is the variance of period t's estimate, which the fit states. τ² is the honest scatter from one
period to the next (temperature, another operator): whatever v_t does not explain of the residuals
around the change itself, by Paule and Mandel's equation Σ e_t²/(v_t + τ²) = T − 2 [Paule1982]. Then
b over its standard deviation is at most as wide as Student's t with T − 2 degrees of freedom
[Hartung2001]: where τ² is zero because the estimates scatter less than they say, it is narrower.
Residuals that stay alike from one period to the next (ρ > 0) make the standard deviation larger by
√((1 + ρ)/(1 − ρ)), the mean of an autoregression's [Bartlett1946].

The k of a step is unknown, so its probability by chance is that of the best k, times the number of
them (Bonferroni). Spells are looked for at some lengths, each half as long again as the one before,
then the ends of the clearest are moved in turn; chance counts all pairs of ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats

SHORTEST = 2  # periods on either side of a step
FEWEST = 4  # periods below which no change is looked for
ROUNDS, CONVERGED = 60, 1e-9  # of Newton's method, and the relative change at which it ends
MOVES = 4  # of the ends of a spell
ALIKE = 0.9  # correlation from one period to the next, at most
KINDS = ("drift", "step", "spell")


@dataclass(frozen=True)
class Change:
    """The change that fits a series best, and how likely chance is to make one as clear."""

    kind: str  # one of KINDS
    at: int  # first period after a step, or of a spell; 0 for a drift
    size: float  # from before to after, or from the first period to the last
    std: float
    before: float  # the value before the step, or at the first period
    chance: float  # probability by chance, over all k and both kinds that were looked at
    scatter: float  # τ, of the series around the change
    end: int = 0  # first period after a spell; 0 for others

    @property
    def deviations(self) -> float:
        """How many standard deviations the change is."""
        return abs(self.size) / self.std if self.std > 0.0 else 0.0


@dataclass(frozen=True, eq=False)
class _Fits:
    """Lines through a series, one per regressor."""

    before: np.ndarray  # (K,)
    size: np.ndarray  # (K,)
    std: np.ndarray  # (K,) of size, scatter and correlation in it
    tau2: np.ndarray  # (K,)
    misfit: np.ndarray  # (K,) −2 log-likelihood but for a constant


def best_change(
    values: np.ndarray, variances: np.ndarray, times: np.ndarray, *, kinds: tuple[str, ...]
) -> Change | None:
    """Return the change that fits a series (T,) best; None where it is too short.

    times: (T,) ascending, of the drift's line.
    """
    T = len(values)
    if T < FEWEST:
        return None
    each = (_clearest(values, variances, times, kind) for kind in kinds)
    clearest = [fit for fit in each if fit is not None]
    if not clearest:
        return None
    chance = min(1.0, len(clearest) * min(change.chance for change, _ in clearest))
    # Which kind it is says the likelihood of each kind's clearest change: k and l are numbers that
    # were chosen too, log T each.
    cost = {"drift": 0.0, "step": np.log(T), "spell": 2.0 * np.log(T)}
    best, _ = min(clearest, key=lambda fit: fit[1] + cost[fit[0].kind])
    return replace(best, chance=chance)


def _clearest(
    values: np.ndarray, variances: np.ndarray, times: np.ndarray, kind: str
) -> tuple[Change, float] | None:
    """(the clearest change of a kind, its misfit); its chance over all places that it could have
    had.
    """
    T = len(values)
    if kind == "drift":
        line = (times - times[0]) / (times[-1] - times[0])
        return _best(values, variances, [_Place("drift", 0)], line[None], trials=1)
    if kind == "step":
        places = [_Place("step", k) for k in range(SHORTEST, T - SHORTEST + 1)]
        x = np.array([step_regressor(T, place.at) for place in places])
        return _best(values, variances, places, x, trials=len(places))
    # beginnings and ends that leave enough periods before, inside and after
    inside = T - 3 * SHORTEST + 1
    if inside < 1:
        return None
    trials = inside * (inside + 1) // 2
    places = [
        _Place("spell", k, k + length)
        for length in _lengths(T - 2 * SHORTEST)
        for k in range(SHORTEST, T - SHORTEST - length + 1)
    ]
    best = _best(values, variances, places, _spells(T, places), trials=trials)
    for _ in range(MOVES):
        k, end = best[0].at, best[0].end
        places = [_Place("spell", other, end) for other in range(SHORTEST, end - SHORTEST + 1)]
        places += [_Place("spell", k, other) for other in range(k + SHORTEST, T - SHORTEST + 1)]
        best = _best(values, variances, places, _spells(T, places), trials=trials)
        if (best[0].at, best[0].end) == (k, end):
            break
    return best


class _Place(NamedTuple):
    """Where a change may be."""

    kind: str
    at: int
    end: int = 0


def _best(
    values: np.ndarray,
    variances: np.ndarray,
    places: Sequence[_Place],
    x: np.ndarray,
    *,
    trials: int,
) -> tuple[Change, float]:
    """The clearest of some changes; trials: how many there could have been, for chance."""
    fits = _fitted(values, variances, x)
    k = int(np.argmax(np.abs(fits.size) / fits.std))
    return _change(fits, k, places[k], len(values) - 2, trials), float(fits.misfit[k])


def _change(fits: _Fits, k: int, place: _Place, freedom: int, trials: int = 1) -> Change:
    size, std = float(fits.size[k]), float(fits.std[k])
    chance = min(1.0, trials * 2.0 * float(stats.t.sf(abs(size) / std, freedom)))
    scatter = float(np.sqrt(fits.tau2[k]))
    return Change(
        place.kind, place.at, size, std, float(fits.before[k]), chance, scatter, place.end
    )


def _spells(T: int, places: Sequence[_Place]) -> np.ndarray:
    """(K, T)."""
    return np.array([step_regressor(T, p.at) - step_regressor(T, p.end) for p in places])


def _lengths(most: int) -> list[int]:
    """2, 3, 5, 7, 10, 15, … periods."""
    out, length = [], SHORTEST
    while length <= most:
        out.append(length)
        length += max(length // 2, 1) if length != 3 else 2
    return out


def step_regressor(count: int, at: int) -> np.ndarray:
    """0 before the period `at`, 1 from it on."""
    return (np.arange(count) >= at).astype(float)


def _fitted(values: np.ndarray, variances: np.ndarray, x: np.ndarray) -> _Fits:
    """Weighted lines through a series along K regressors at once, each with the scatter around
    itself.
    """
    K, T = x.shape
    unit = float(np.median(variances)) or 1.0
    v, freedom = variances / unit, T - 1 - int(np.any(np.ptp(x, axis=1)))
    y = (values - np.mean(values)) / np.sqrt(unit)
    tau2 = paule_mandel(lambda w: _line(y, w, x)[3], v, freedom, np.ones((K, T)))
    w = 1.0 / (v + tau2[:, None])
    a, b, variance, e = _line(y, w, x)
    alike = _alike(e * np.sqrt(w))
    std = np.sqrt(variance * (1.0 + alike) / (1.0 - alike))
    misfit = np.sum(w * e**2 - np.log(w), axis=1)
    root = np.sqrt(unit)
    return _Fits(a * root + np.mean(values), b * root, std * root, tau2 * unit, misfit)


def paule_mandel(
    residuals: Callable[[np.ndarray], np.ndarray],
    v: np.ndarray,
    freedom: int | np.ndarray,
    among: np.ndarray,
) -> np.ndarray:
    """Return (K,) τ² that solves Σ e²/(v + τ²) = freedom, by Newton's method from zero, which
    cannot overshoot.

    residuals: (K, n) of the fit with weights (K, n). among: (K, n), 1 for values that count.
    """
    tau2 = np.zeros(len(among))
    for _ in range(ROUNDS):
        w = among / (v + tau2[:, None])
        e = residuals(w)
        excess = np.sum(w * e**2, axis=1) - freedom
        slope = np.sum(w**2 * e**2, axis=1)
        step = np.maximum(excess, 0.0) / np.maximum(slope, np.finfo(float).tiny)
        tau2 = tau2 + step
        if np.all(step <= CONVERGED * (1.0 + tau2)):
            break
    return tau2


def _line(
    y: np.ndarray, w: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(a, b, variance of b, residuals) of a + b·x, per row of w and x."""
    total = np.sum(w, axis=1, keepdims=True)
    x_mean, y_mean = (
        np.sum(w * x, axis=1, keepdims=True) / total,
        np.sum(w * y, axis=1, keepdims=True) / total,
    )
    along = w * (x - x_mean)
    power = np.sum(along * (x - x_mean), axis=1)
    safe = np.where(power > 0.0, power, 1.0)
    b = np.where(power > 0.0, np.sum(along * (y - y_mean), axis=1) / safe, 0.0)
    a = y_mean[:, 0] - b * x_mean[:, 0]
    return a, b, 1.0 / safe, y - a[:, None] - b[:, None] * x


def _alike(e: np.ndarray) -> np.ndarray:
    """ρ ≥ 0 of residuals from one period to the next."""
    power = np.sum(e**2, axis=1)
    rho = np.sum(e[:, 1:] * e[:, :-1], axis=1) / np.where(power > 0.0, power, 1.0)
    return np.asarray(np.clip(rho, 0.0, ALIKE))


def holm(chances: np.ndarray, level: float) -> np.ndarray:
    """Which hypotheses are refused so that with probability 1 − level none is refused wrongly
    [Holm1979].
    """
    order, m = np.argsort(chances, kind="stable"), len(chances)
    refused = np.zeros(m, dtype=bool)
    for rank, k in enumerate(order):
        if chances[k] > level / (m - rank):
            break
        refused[k] = True
    return refused


def step_at(values: np.ndarray, variances: np.ndarray, at: int) -> Change:
    """Return the step of a series at a known period; its chance is that of this one alone."""
    fits = _fitted(values, variances, step_regressor(len(values), at)[None])
    return _change(fits, 0, _Place("step", at), max(len(values) - 2, 1))
