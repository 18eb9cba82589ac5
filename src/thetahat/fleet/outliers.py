"""Each robot against the others of its kind: a centre and a spread that outliers do not move, and
how far every robot is from them.

    y_r = μ + d_r + e_r,     d_r ~ N(0, σ²) from one robot to the next
                             e_r ~ N(0, v_r) by estimation

Robot r is compared with all others, less those found before: μ by weights 1/(v + σ²), σ² by Paule
and Mandel's equation, so that

    t_r = (y_r − μ)/√(v_r + σ² + var μ)     is Student's t with n − 2 degrees of freedom

where nothing is wrong with it. The one that is farthest off is taken out, and the next looked for
without it, up to a third of them; then as many count as outliers as the last of these t that is too
large by chance says (generalised extreme Studentised deviate [Rosner1983]), so two that are alike
do not hide each other. What is left when the farthest are taken out spreads less than all did, by
what is left of a normal distribution's variance without its ends, and chance has as many trials as
there are rounds (Bonferroni); both count. Friction, which is positive and spreads in proportion, is
compared by its logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from thetahat.fleet.changes import paule_mandel

FEWEST = 5  # robots of a kind, below which nobody can say who is odd
CLEAR = 5.0  # standard deviations from zero, from which on a logarithm is taken
MOST, ROUNDS = 1 / 3, 12  # of the robots, that may be outliers, and how many are looked for


@dataclass(frozen=True, eq=False)
class Comparison:
    """A parameter over robots."""

    logarithm: bool
    centre: float  # of the robots that are none of the outliers, in the parameter's own unit
    spread: float  # σ, in the unit that is compared: relative where the logarithm is
    # (n,) t_r, how many standard deviations each robot is off; NaN where it has no value
    deviations: np.ndarray
    # (n, 2) μ, and σ² + var μ, of all but the robot itself and the outliers, in the unit compared
    others: np.ndarray
    outliers: tuple[int, ...]  # the farthest first
    chances: tuple[float, ...]  # of each outlier

    def off(self, robot: int, values: np.ndarray, variances: np.ndarray) -> np.ndarray:
        """How many standard deviations values of a robot are off the others of the fleet; NaN where
        there is no logarithm.
        """
        centre, spread2 = self.others[robot]
        if self.logarithm:
            positive = np.where(values > 0.0, values, np.nan)
            values, variances = np.log(positive), variances / positive**2
        return np.asarray((values - centre) / np.sqrt(variances + spread2))


def compare_robots(
    values: np.ndarray, variances: np.ndarray, *, level: float, positive: bool = False
) -> Comparison | None:
    """Compare robots' values (n,) with their variances; None where fewer than `FEWEST` have one.

    level: probability of any outlier by chance.
    """
    known = np.flatnonzero(np.isfinite(values) & np.isfinite(variances))
    if len(known) < FEWEST:
        return None
    logarithm = positive and bool(np.all(values[known] > CLEAR * np.sqrt(variances[known])))
    y, v = (
        (np.log(values[known]), variances[known] / values[known] ** 2)
        if logarithm
        else (values[known], variances[known])
    )
    order, chances = _extremes(y, v)
    count = max((k + 1 for k, chance in enumerate(chances) if chance <= level), default=0)
    out, rest = order[:count], np.setdiff1d(np.arange(len(known)), order[:count])
    means, spreads = _others(y, v, rest)
    deviations, others = np.full(len(values), np.nan), np.full((len(values), 2), np.nan)
    others[known] = np.column_stack([means, spreads])
    deviations[known] = (y - means) / np.sqrt(v + spreads)
    centre, sigma2, _ = (
        float(each[0]) for each in _centres(y, v, np.isin(np.arange(len(y)), rest)[None])
    )
    return Comparison(
        logarithm,
        float(np.exp(centre) if logarithm else centre),
        float(np.sqrt(sigma2)),
        deviations,
        others,
        tuple(int(known[k]) for k in out),
        tuple(chances[:count]),
    )


def _others(y: np.ndarray, v: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) μ and (n,) σ² + var μ of the robots of `rest`, each time without the one that is
    compared.
    """
    n = len(y)
    among = np.broadcast_to(np.isin(np.arange(n), rest), (n, n)) & ~np.eye(n, dtype=bool)
    centre, sigma2, uncertain = _centres(y, v, among)
    return centre, sigma2 + uncertain


def _centres(
    y: np.ndarray, v: np.ndarray, among: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(K,) μ, σ² and var μ of the robots that each row of `among` (K, n) takes."""
    unit = float(np.median(v)) or 1.0
    v, freedom = v / unit, np.sum(among, axis=1) - 1
    y, at = (y - np.median(y)) / np.sqrt(unit), float(np.median(y))

    def residuals(w: np.ndarray) -> np.ndarray:
        return np.asarray(y - (w @ y / np.sum(w, axis=1))[:, None])

    sigma2 = paule_mandel(residuals, v, freedom, among)
    w = among / (v + sigma2[:, None])
    total = np.sum(w, axis=1)
    return w @ y / total * np.sqrt(unit) + at, sigma2 * unit, unit / total


def _extremes(y: np.ndarray, v: np.ndarray) -> tuple[list[int], list[float]]:
    """Robots by how far they are off, each without those before, and the probability that chance
    takes any so far.
    """
    rest, order, chances = np.arange(len(y)), [], []
    rounds = min(int(MOST * len(y)), len(y) - FEWEST + 1, ROUNDS)
    for taken in range(rounds):
        means, spreads = _others(y, v, rest)
        t = np.abs(y - means)[rest] / np.sqrt((v + spreads)[rest] / _left(taken / len(y)))
        worst = int(np.argmax(t))
        chances.append(
            min(1.0, float(rounds * len(rest) * 2.0 * stats.t.sf(t[worst], len(rest) - 2)))
        )
        order.append(int(rest[worst]))
        rest = np.delete(rest, worst)
    return order, chances


def _left(share: float) -> float:
    """The variance of a normal distribution without its ends, which hold a share of it."""
    if share <= 0.0:
        return 1.0
    z = float(stats.norm.isf(share / 2.0))
    return 1.0 - 2.0 * z * float(stats.norm.pdf(z)) / (1.0 - share)
