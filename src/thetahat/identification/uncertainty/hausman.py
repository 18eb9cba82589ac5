"""Durbin–Wu–Hausman test: whether noise in the motion biases least squares [Hausman1978].

    d = x_IV − x_LS = Σ_j D_jᵀε_j,   D_j = w_j²·(Z_j·gain·H_P⁻¹ − Y_j·H⁻¹)

Without noise in the motion both estimates are consistent, and d is as small as the torque noise ε
makes it: Cov d = Σ_j D_jᵀT_j D_j, T_j the autocovariance of joint j's noise. This holds whether or
not least squares is efficient, which the textbook's V_IV − V_LS asks for. Parameters are tested
one by one, d_k/√(Cov d)_kk against the normal law, and joints by a Wald statistic of the parameters
of their own link and drive; `level` is the probability of any false alarm among all parameters, or
among all joints, by Holm's correction [Holm1979].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from thetahat.errors import known
from thetahat.identification import factor as f
from thetahat.identification.estimators.estimator import Source, covariance_of_data
from thetahat.identification.estimators.instrumental import (
    Instrumental,
    instrument_strength,
    require_instruments,
)
from thetahat.identification.estimators.joint_weights import Weights, weigh
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.uncertainty.autocorrelation import contrast_covariance, corrected

LEVEL = 0.01  # probability of a false alarm, of all parameters together
# of an estimate's standard deviation: a difference that cannot be larger is not tested
EQUAL = 1e-6
SEEN = 1e-9  # of the largest eigenvalue of a correlation matrix: directions below are rounding


@dataclass(frozen=True, eq=False)
class HausmanTest:
    """Differences of the instrumental-variable estimate and least squares, and their chance."""

    names: tuple[str, ...]  # of base parameters
    difference: np.ndarray  # (p,) x_IV − x_LS
    std: np.ma.MaskedArray  # (p,) of the difference without noise in the motion
    estimate_std: np.ma.MaskedArray  # (p,) of the instrumental-variable estimate
    p_values: np.ma.MaskedArray  # (p,) masked where nothing can differ
    joints: tuple[str, ...]  # of the links and motors that the parameters belong to
    joint_p_values: np.ma.MaskedArray
    strength: float  # of the instruments, between 0 and 1
    level: float = LEVEL

    @cached_property
    def rejected(self) -> np.ndarray:
        """Parameters that noise in the motion biases, (p,) bool, by Holm's correction."""
        return holm(self.p_values, self.level)

    @cached_property
    def rejected_joints(self) -> tuple[str, ...]:
        """Joints whose parameters are biased, by Holm's correction over joints."""
        marked = holm(self.joint_p_values, self.level)
        return tuple(name for name, each in zip(self.joints, marked, strict=True) if each)

    @property
    def biased(self) -> bool:
        """Whether noise in the motion biases least squares in any parameter."""
        return bool(np.any(self.rejected))

    @property
    def shift(self) -> np.ma.MaskedArray:
        """Distance of the two estimates in standard deviations of the instrumental one, (p,)."""
        std = self.estimate_std
        size, unknown = std.filled(1.0), np.ma.getmaskarray(std)
        return np.ma.masked_array(np.abs(self.difference) / size, mask=unknown)

    @property
    def sentence(self) -> str:
        """The outcome in one sentence, without a full stop."""
        chance = f"Durbin–Wu–Hausman test, {self.level:.0%} false alarms over all parameters"
        if not self.biased:
            least = self.p_values.min() if self.p_values.count() else 1.0
            return (
                f"noise in the motion does not show in the parameters ({chance}: smallest p"
                f" {float(least):.2g} of {self.p_values.count()})"
            )
        marked = np.flatnonzero(self.rejected)
        worst = max(marked, key=lambda k: float(self.shift[k] or 0.0))
        text = (
            f"noise in the motion biases {len(marked)} of {self.p_values.count()} parameters, most"
            f" {self.names[worst]} by {float(self.shift[worst]):.1f} standard deviations"
        )
        if self.rejected_joints:
            text += f" (joints {known(self.rejected_joints, 6)})"
        return f"{text} ({chance})"

    def __str__(self) -> str:
        lines = [self.sentence]
        for k in np.flatnonzero(self.rejected):
            lines.append(
                f"  {self.names[k]}: {self.difference[k]:+.3g} ± {self.std[k]:.2g}, p"
                f" {self.p_values[k]:.2g}"
            )
        return "\n".join(lines)


def holm(p_values: np.ma.MaskedArray, level: float) -> np.ndarray:
    """Return which hypotheses fall, so that any false one does with probability `level` at most."""
    out = np.zeros(len(p_values), dtype=bool)
    tested = np.flatnonzero(~np.ma.getmaskarray(p_values))
    values = np.asarray(p_values.filled(1.0))
    ordered = tested[np.argsort(values[tested], kind="stable")]
    for left, k in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if values[k] * left > level:
            break
        out[k] = True
    return out


def hausman_test(
    information: Information,
    *,
    samples: Source | None = None,
    weights: str | None = "iterated",
    level: float = LEVEL,
) -> HausmanTest:
    """Test whether noise in the motion biases least squares.

    Args:
        information: folded with instruments.
        samples: what it was folded from, with their instruments: the test then knows that
            neighbouring rows are correlated; without, rows count as independent.
        weights: of the joints' rows, as estimators take them.
        level: probability of any false alarm, over all parameters.

    """
    require_instruments(information)
    with f.blas_threads().limit(limits=1, user_api="blas"):
        return _test(information, samples, weights, level)


def _test(
    information: Information, samples: Source | None, weights: str | None, level: float
) -> HausmanTest:
    chosen = weigh(information, weights)
    estimate = Instrumental(weights).estimate(information)
    if samples is not None:
        estimate = corrected(estimate, information, samples, weights=chosen)
    plain = f.solve(information.without_instruments.stacked(chosen.joints))
    solution = f.solve(information.stacked(chosen.joints))
    seen = np.isfinite(np.diag(covariance_of_data(solution, 1.0)))
    seen &= np.isfinite(np.diag(covariance_of_data(plain, 1.0)))
    std = np.where(seen, np.sqrt(np.where(seen, np.diag(estimate.covariance), 1.0)), 1.0)
    gains = [gain / std for gain in _gains(information, chosen, solution, plain)]
    noise = estimate.noise
    variances = _variances(chosen)
    covariance = contrast_covariance(
        information,
        gains,
        None if samples is None or noise is None else samples,
        [
            np.array([variances[v]])
            if noise is None or (model := noise.autocovariances[v]) is None
            else model.c
            for v in range(len(variances))
        ],
    )
    difference = (solution.x - plain.x) / std
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    tested = seen & (spread > EQUAL)
    joints, groups = _groups(information)
    return HausmanTest(
        names=tuple(information.base.names),
        difference=difference * std,
        std=np.ma.masked_array(spread * std, mask=~seen),
        estimate_std=np.ma.masked_array(std, mask=~seen),
        p_values=np.ma.masked_array(
            2.0 * special.ndtr(-np.abs(difference) / np.where(tested, spread, 1.0)), mask=~tested
        ),
        joints=joints,
        joint_p_values=_wald(difference, covariance, [group[tested[group]] for group in groups]),
        strength=instrument_strength(information, chosen.joints),
        level=level,
    )


def _variances(weights: Weights) -> np.ndarray:
    """σ_j² of every joint's rows, (nv,)."""
    if weights.joints is None:
        return np.full(len(weights.noise), weights.variance)
    return np.asarray(weights.noise**2)


def _gains(
    information: Information, weights: Weights, solution: f.Solution, plain: f.Solution
) -> list[np.ndarray]:
    """C_j, (2·columns, p): D_j = [Z_j | Y_j]·C_j."""
    out, projection = [], information.projection(weights.joints)
    gain = np.eye(len(information.base)) if projection is None else projection.gain
    H_p, H = solution.inverse @ solution.inverse.T, plain.inverse @ plain.inverse.T
    for v, positions in enumerate(information.positions):
        square = 1.0 if weights.joints is None else float(weights.joints[v]) ** 2
        out.append(square * np.vstack([gain[positions] @ H_p, -H[positions]]))
    return out


def _groups(information: Information) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """(joints, base parameters whose own column is of the joint's link or motor)."""
    columns, robot = Columns(information.robot), information.robot
    members: dict[str, list[int]] = {}
    for k, column in enumerate(information.base.independent):
        if column < columns.inertial:
            name = robot.tree.nodes[robot.tree.bodies[column // 10]].name
        else:
            motors = columns.motor_names
            name = motors[(column - columns.inertial) % len(motors)]
        members.setdefault(name, []).append(k)
    return tuple(members), [np.array(each, dtype=int) for each in members.values()]


def _wald(
    difference: np.ndarray, covariance: np.ndarray, groups: list[np.ndarray]
) -> np.ma.MaskedArray:
    """p-value of each group's difference; masked where a group is empty."""
    out = np.ma.masked_array(np.ones(len(groups)), mask=[not len(group) for group in groups])
    for at, group in enumerate(groups):
        if not len(group):
            continue
        size = np.sqrt(np.diag(covariance)[group])
        values, axes = np.linalg.eigh(covariance[np.ix_(group, group)] / np.outer(size, size))
        kept = values > SEEN * values[-1]
        z = axes[:, kept].T @ (difference[group] / size)
        out[at] = special.chdtrc(int(np.sum(kept)), float(np.sum(z**2 / values[kept])))
    return out
