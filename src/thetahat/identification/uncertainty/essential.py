"""Essential parameters: the base parameters that the torque cannot do without [Pham1991].

One after another the base parameter that is known worst, by its relative standard deviation, is set
to zero and the others fitted again, from the factor alone, until all that are left are known well
enough or the residual rises by more than chance [Janot2014]:

    F_step = ρ_after² − ρ_before²,   F_total = (ρ_after² − ρ_full²)/(dropped so far)
             in units of the noise variance, ρ = ‖u − Y x‖

Both are compared with Fisher's F at the level stated: the one step, and all that was dropped
together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.identifiability.base_parameters import BaseParameters
from thetahat.identification.information import Information
from thetahat.identification.uncertainty.noise import NoiseModel

LONGEST = 60  # letters of a name in the table


@dataclass(frozen=True)
class Step:
    """One parameter set to zero."""

    name: str
    position: int  # among the base parameters
    relative_std: float  # [%] before it went, infinite where the data do not see it
    f_step: float
    p_step: float  # probability of at least this rise by chance
    f_total: float
    p_total: float

    @property
    def p(self) -> float:
        """The smaller of the two probabilities: what the level is compared with."""
        return min(self.p_step, self.p_total)


@dataclass(frozen=True)
class Elimination:
    """The steps of a backward elimination, and its criteria."""

    steps: tuple[Step, ...]  # in the order of elimination
    refused: Step | None  # the step at which the residual would have risen
    level: float  # of the F-test
    limit: float  # [%] relative standard deviation below which a parameter is kept without a test


@dataclass(frozen=True, eq=False)
class Essential:
    """The parameters kept, their uncertainty before and after, and the elimination."""

    base: BaseParameters
    kept: np.ndarray  # positions among the base parameters, ascending
    elimination: Elimination
    # (p,) relative standard deviation [%] with all parameters, masked where the data do not
    # determine one
    before: np.ma.MaskedArray
    after: np.ma.MaskedArray  # (p,) with the kept ones, masked elsewhere
    x_base: np.ndarray  # (p,) zero where dropped
    std: np.ma.MaskedArray  # (p,) of the kept ones
    rise: float  # of the residual norm, relative

    @property
    def steps(self) -> tuple[Step, ...]:
        """The parameters set to zero, in the order of elimination."""
        return self.elimination.steps

    @property
    def refused(self) -> Step | None:
        """The step at which the residual would have risen."""
        return self.elimination.refused

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters kept."""
        return tuple(self.base.names[k] for k in self.kept)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names of the others, in the order they went."""
        return tuple(step.name for step in self.steps)

    def __str__(self) -> str:
        why = "every one left is known better" if len(self.kept) else "none is left"
        if self.refused is not None:
            why = (
                f"without {_short(self.refused.name)} the residual rises (p = {self.refused.p:.2g})"
            )
        rule = self.elimination
        lines = [
            f"{len(self.kept)} essential parameters of {len(self.base)} (limit {rule.limit:g} %,"
            f" F-test at {rule.level:g}): {why}; the residual rose by {100.0 * self.rise:.2g} %"
        ]
        width = max((len(_short(name)) for name in self.base.names), default=0)
        lines.append(f"  {'kept':{width}} {'value':>12} {'± %':>8} {'before':>8}")
        lines += [
            f"  {_short(self.base.names[k]):{width}} {self.x_base[k]:12.5g}"
            f" {_percent(self.after[k])} {_percent(self.before[k])}"
            for k in self.kept
        ]
        lines.append(f"  {'dropped, in this order':{width}} {'F':>12} {'± %':>8} {'F, all':>8}")
        lines += [
            f"  {_short(s.name):{width}} {s.f_step:12.3g} {_percent(s.relative_std)}"
            f" {s.f_total:8.3g}"
            for s in self.steps
        ]
        return "\n".join(lines)


def essential(
    information: Information,
    *,
    weights: str | None = "joint",
    noise: NoiseModel | None = None,
    level: float = 0.05,
    limit: float = 10.0,
) -> Essential:
    """The essential parameters of a log.

    weights: as of `LeastSquares`. noise: of `noise_covariance`; every joint then counts by its
    independent rows, without it each row does, which at 1 kHz keeps too many. level: of the F-test.
    limit: relative standard deviation [%] below which a parameter is kept without a test.
    """
    if not 0.0 < level < 1.0:
        raise UsageError(
            f"level is {level!r}; give the probability at which a rise of the residual counts,"
            " between 0 and 1"
        )
    if not (np.isfinite(limit) and limit > 0.0):
        raise UsageError(
            f"limit is {limit!r}; give a relative standard deviation in percent, above 0"
        )
    # small matrices: waking more threads costs more than it gains
    with f.blas_threads().limit(limits=1, user_api="blas"):
        return _eliminate(information, weights, noise, level=level, limit=limit)


def _eliminate(
    information: Information,
    weights: str | None,
    noise: NoiseModel | None,
    *,
    level: float,
    limit: float,
) -> Essential:
    """One parameter after another."""
    inflation = (
        np.ones(len(information.rows)) if noise is None else np.ma.filled(noise.inflation, 1.0)
    )
    factor = information.stacked(weigh(information, weights).whitening / inflation)
    full = _Fit(factor, np.arange(len(information.base)))
    freedom = max(float(np.sum(information.rows / inflation**2)) - full.rank, 1.0)
    fit, refused = full, None
    steps: list[Step] = []
    while len(fit.kept) and np.max(fit.relative) > limit:
        worst = fit.worst()
        smaller = _Fit(factor, np.delete(fit.kept, worst))
        k, count = int(fit.kept[worst]), len(steps) + 1.0
        f_step = max(smaller.square - fit.square, 0.0)
        f_total = max(smaller.square - full.square, 0.0) / count
        step = Step(
            name=information.base.names[k],
            position=k,
            relative_std=float(fit.relative[worst]),
            f_step=f_step,
            p_step=float(special.fdtrc(1.0, freedom, f_step)),
            f_total=f_total,
            p_total=float(special.fdtrc(count, freedom, f_total)),
        )
        if step.p < level:
            refused = step
            break
        steps.append(step)
        fit = smaller
    return _result(information, full, fit, Elimination(tuple(steps), refused, level, limit))


class _Fit:
    """Least squares with some of the columns, from the factor of all, in units of the noise."""

    def __init__(self, factor: np.ndarray, kept: np.ndarray) -> None:
        self.kept = kept
        solution = f.solve(f.triangle(np.asfortranarray(factor[:, [*kept, len(factor) - 1]])))
        self.rank, self.square, self.x = solution.rank, solution.residual**2, solution.x
        self.std = np.linalg.norm(solution.inverse, axis=1)
        if solution.rank < len(kept):
            share = np.linalg.norm(solution.directions, axis=1)
            self.std[share > 1e-9 * np.max(share)] = np.inf
        self._size = np.linalg.norm(factor[:, kept], axis=0)
        size = np.abs(self.x)
        percent = 100.0 * self.std / np.where(size > 0.0, size, 1.0)
        self.relative = np.where(size > 0.0, percent, np.inf)

    def worst(self) -> int:
        """The parameter to drop next: an unidentifiable one first, else the least certain."""
        hidden = np.flatnonzero(~np.isfinite(self.relative))
        if len(hidden):
            return int(hidden[np.argmin(self._size[hidden])])
        return int(np.argmax(self.relative))


def _result(information: Information, full: _Fit, fit: _Fit, elimination: Elimination) -> Essential:
    p = len(information.base)
    before = np.ma.masked_invalid(full.relative)
    x = np.zeros(p)
    std, after = (np.ma.masked_array(np.zeros(p), mask=True) for _ in range(2))
    x[fit.kept], std[fit.kept] = fit.x, np.ma.masked_invalid(fit.std)
    after[fit.kept] = np.ma.masked_invalid(fit.relative)
    rise = float(np.sqrt(fit.square / full.square) - 1.0) if full.square > 0.0 else 0.0
    return Essential(information.base, fit.kept, elimination, before, after, x, std, rise)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _percent(value: float) -> str:
    number = float(np.ma.filled(value, np.inf))
    return f"{number:8.3g}" if np.isfinite(number) else f"{'not seen':>8}"
