"""`Estimate`: the parameters found, how well each is known, and what certifies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from thetahat.errors import UsageError
from thetahat.identification.identifiability.base_parameters import ALONE, BaseParameters
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.uncertainty.flags import BOUND, DECIDES, PRIOR, REASONS
from thetahat.identification.uncertainty.noise import NoiseModel
from thetahat.identification.uncertainty.posterior import (
    Limits,
    Posterior,
    RobotLaw,
    RobotSamples,
)
from thetahat.identification.uncertainty.sensitivity import Sensitivity
from thetahat.model import parameters
from thetahat.model.robot import Robot

STATUSES = ("solved", "almost_solved", "infeasible", "rank_short")


@dataclass(frozen=True)
class ActiveConstraint:
    """A bound on which a fit sits, and what it costs there."""

    name: str
    multiplier: float  # noise variances per kg by which the objective falls as the bound moves
    soft: bool  # whether it may be given up where the data reject it
    exact: bool = False  # whether it states a value, which a fit always sits on


@dataclass(frozen=True)
class RejectedConstraint:
    """A bound that was given up, since the data reject it."""

    name: str
    evidence: float  # twice the log-likelihood that it costs, in effective rows
    threshold: float  # above which it is given up


@dataclass(frozen=True, eq=False)
class Certificate:
    """Proof that a constrained fit is optimal, to within its gap."""

    objective: float  # of the problem solved, in units of the noise variance
    gap: float  # between it and a lower bound that the dual proves, same unit
    infeasibility: float  # largest violation of a constraint, relative
    # smallest eigenvalue of a body's pseudo-inertia, relative to its trace; the worst body's
    eigenvalue: float
    iterations: int
    solver: str  # name of the method
    active: tuple[ActiveConstraint, ...] = ()  # bounds on bodies that the fit sits on


@dataclass(frozen=True, eq=False)
class Reweighting:
    """Weights of the samples in a robust fit."""

    threshold: float  # k
    scale: np.ndarray  # (nv,) σ_j [N·m or N]
    # (nv,) share of the joint's rows with a weight below one (Gaussian noise: 18 % at k = 1.345)
    reduced: np.ndarray
    outliers: np.ndarray  # (nv,) share of its rows with a weight below a third
    rounds: int
    change: float  # of the parameters in the last round, in standard deviations
    settled: bool


@dataclass(frozen=True, eq=False)
class FitScores:
    """How well an estimate explains the log it was fitted to."""

    samples: int
    rank: int  # directions of base parameters that the data determine
    condition: float  # of the column-scaled factor
    r2: float | None
    r2_per_joint: np.ma.MaskedArray  # (nv,)
    residual_norms: np.ndarray  # (nv,) [N·m or N]
    weak: np.ndarray  # (n, p) combinations of base parameters behind a large condition number


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What is known about an estimate beside its numbers."""

    advice: tuple[str, ...] = ()  # a sentence per direction the data do not determine
    unseen: tuple[str, ...] = ()  # parameters that nothing in the data touches
    certificate: Certificate | None = None  # of fits by a solver
    reweighting: Reweighting | None = None  # of robust fits
    # where the samples were seen: correlation of the torque noise, which the covariance includes
    noise: NoiseModel | None = None
    given_up: tuple[RejectedConstraint, ...] = ()  # bounds that the data reject
    # of fits with a prior: what the covariance consists of, and the law to draw robots from
    sensitivity: Sensitivity | None = None
    posterior: Posterior | None = None
    # base parameters whose interval may not hold, (p,) bool by reason, as tests beside the fit say
    flagged: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Parameters found by an estimator. Robots take it: `robot.with_parameters(estimate)`."""

    robot: Robot  # the robot of the information, nominal values
    base: BaseParameters
    method: str
    x: np.ndarray  # (columns,) θ and the identified drive terms
    # (p, p) of x_base; rows and columns of directions the data do not determine are infinite
    covariance: np.ndarray
    status: str
    fit: FitScores
    diagnostics: Diagnostics = Diagnostics()

    def with_noise(self, covariance: np.ndarray, noise: NoiseModel) -> Estimate:
        """Return the estimate with the covariance that a noise model leads to."""
        diagnostics = replace(self.diagnostics, noise=noise, advice=(*self.advice, *noise.warning))
        return replace(self, covariance=covariance, diagnostics=diagnostics)

    def with_covariance(self, covariance: np.ndarray) -> Estimate:
        """Return the estimate with another covariance of its base parameters."""
        return replace(self, covariance=covariance)

    def with_sensitivity(self, sensitivity: Sensitivity, posterior: Posterior | None) -> Estimate:
        """Return the estimate with the covariance that noise and the prior's own spread make.

        What the data do not determine keeps an infinite variance.
        """
        seen = np.isfinite(self.covariance)
        covariance = np.where(seen, sensitivity.covariance(self.base.map), np.inf)
        diagnostics = replace(self.diagnostics, sensitivity=sensitivity, posterior=posterior)
        return replace(self, covariance=covariance, diagnostics=diagnostics)

    def with_noise_of(self, other: Estimate) -> Estimate:
        """Return the estimate with the noise model of another one, of the same rows and weights."""
        mine, theirs = self.diagnostics.sensitivity, other.diagnostics.sensitivity
        if other.noise is None:
            return self
        if mine is None or theirs is None:
            return self.with_noise(other.covariance, other.noise)
        same = self.with_sensitivity(mine.with_noise(theirs.noise), self.diagnostics.posterior)
        same = same.with_noise(same.covariance, other.noise)
        for reason, flagged in other.diagnostics.flagged.items():
            same = same.with_flag(reason, flagged)
        return same

    def with_flag(self, reason: str, flagged: np.ndarray) -> Estimate:
        """Return the estimate with base parameters, (p,) bool, whose interval may not hold."""
        flags = {**self.diagnostics.flagged, reason: np.asarray(flagged, dtype=bool)}
        return replace(self, diagnostics=replace(self.diagnostics, flagged=flags))

    def with_limits(self, limits: Limits) -> Estimate:
        """Return the estimate whose robots are drawn from within these limits."""
        posterior = self.diagnostics.posterior
        if posterior is None:
            return self
        diagnostics = replace(self.diagnostics, posterior=posterior.with_limits(limits))
        return replace(self, diagnostics=diagnostics)

    def sample(self, n: int, seed: int = 0) -> RobotSamples:
        """Draw physical robots from the law of the estimate.

        Base parameters spread as stated, all else as the prior does within the bounds of physical
        and plausible bodies. The same seed draws the same robots.
        """
        law = self.law
        if law is None:
            raise UsageError(
                f"robots cannot be drawn from an estimate by {self.method!r} ({self.status}): it"
                " has no law for what the data do not determine; use th.Consistent"
            )
        return law.draw(n, seed)

    @property
    def law(self) -> RobotLaw | None:
        """The law that `sample` draws robots from; None for estimators without a prior."""
        posterior, sensitivity = self.diagnostics.posterior, self.diagnostics.sensitivity
        if posterior is None or sensitivity is None:
            return None
        return posterior.with_noise(sensitivity.noise)

    def with_noise_model(self, noise: NoiseModel) -> Estimate:
        """Return the estimate with the noise model that its covariance comes from."""
        return self.with_noise(self.covariance, noise)

    @property
    def coulomb(self) -> np.ndarray:
        """Identified Coulomb friction of every degree of freedom, (nv,); zero where unknown."""
        drive, out = self.robot.drive, np.zeros(self.robot.nv)
        if drive.actuation is None and "coulomb" in drive.identified:
            out[list(drive.column_motors)] = self.drive["coulomb"]
        return out

    def with_given_up(self, rejected: tuple[RejectedConstraint, ...]) -> Estimate:
        """Return the estimate with the bounds that were given up for it, each with a sentence."""
        said = tuple(
            f"given up, as the log rejects it: {each.name} (twice the log-likelihood:"
            f" {each.evidence:.0f}, allowed: {each.threshold:.1f})"
            for each in rejected
        )
        diagnostics = replace(
            self.diagnostics,
            given_up=(*self.diagnostics.given_up, *rejected),
            advice=(*said, *self.advice),
        )
        return replace(self, diagnostics=diagnostics)

    @cached_property
    def x_base(self) -> np.ndarray:
        """The base parameters, (p,)."""
        return np.asarray(self.base.map @ self.x)

    @property
    def rank(self) -> int:
        """How many directions of base parameters the data determine."""
        return self.fit.rank

    @property
    def condition(self) -> float:
        """Condition number of the column-scaled factor."""
        return self.fit.condition

    @property
    def samples(self) -> int:
        """How many samples were read."""
        return self.fit.samples

    @property
    def r2(self) -> float | None:
        """R² over all joints of the fitted log (paper), None without torque."""
        return self.fit.r2

    @property
    def r2_per_joint(self) -> np.ma.MaskedArray:
        """R² per degree of freedom, (nv,)."""
        return self.fit.r2_per_joint

    @property
    def residual_norms(self) -> np.ndarray:
        """‖u_j − Y_j x‖ per degree of freedom, (nv,) [N·m or N]."""
        return self.fit.residual_norms

    @property
    def advice(self) -> tuple[str, ...]:
        """A sentence per direction the data do not determine, and other warnings."""
        return self.diagnostics.advice

    @property
    def unseen(self) -> tuple[str, ...]:
        """Parameters that nothing in the data touches; with a prior they keep its values."""
        return self.diagnostics.unseen

    @property
    def certificate(self) -> Certificate | None:
        """What proves a constrained fit to be optimal."""
        return self.diagnostics.certificate

    @property
    def on_bound(self) -> tuple[ActiveConstraint, ...]:
        """Bounds on bodies that the fit sits on."""
        certificate = self.diagnostics.certificate
        return () if certificate is None else certificate.active

    @property
    def given_up(self) -> tuple[RejectedConstraint, ...]:
        """Bounds on bodies that were given up, since the data reject them."""
        return self.diagnostics.given_up

    @property
    def reweighting(self) -> Reweighting | None:
        """The samples' weights of a robust fit."""
        return self.diagnostics.reweighting

    @property
    def noise(self) -> NoiseModel | None:
        """The noise model, where the samples were given to `solve`."""
        return self.diagnostics.noise

    @property
    def theta(self) -> np.ndarray:
        """The inertial parameters, (10·bodies,), in the paper's order."""
        return self.x[: Columns(self.robot).inertial]

    @cached_property
    def drive(self) -> dict[str, np.ndarray]:
        """The identified drive terms, per motor."""
        return Columns(self.robot).split(self.x)[1]

    @cached_property
    def base_std(self) -> np.ma.MaskedArray:
        """Standard deviation of every base parameter, (p,), masked where the data do not see it."""
        variance = np.diag(self.covariance)
        seen = np.isfinite(variance)
        return np.ma.masked_array(np.sqrt(np.where(seen, variance, 0.0)), mask=~seen)

    @cached_property
    def flags(self) -> tuple[tuple[str, ...], ...]:
        """Why each base parameter's interval may not hold: reasons of `flags.py`, none if it does.

        Parameters that the data do not see have no interval, and the prior decides them.
        """
        flagged = dict(self.diagnostics.flagged)
        sensitivity = self.diagnostics.sensitivity
        if sensitivity is not None:
            unseen = np.ma.getmaskarray(self.base_std)
            flagged[PRIOR] = (sensitivity.prior_share(self.base.map) > DECIDES) | unseen
            if sensitivity.held is not None:
                flagged[BOUND] = (sensitivity.held > DECIDES) & ~unseen
        reasons = [reason for reason in REASONS if reason in flagged]
        return tuple(
            tuple(reason for reason in reasons if flagged[reason][k]) for k in range(len(self.base))
        )

    @property
    def base_prior_share(self) -> np.ma.MaskedArray:
        """Share of each base parameter's variance that an error of the prior makes, (p,).

        Masked for fits without a prior.
        """
        sensitivity, p = self.diagnostics.sensitivity, len(self.base)
        if sensitivity is None:
            return np.ma.masked_array(np.zeros(p), mask=True)
        return np.ma.masked_array(sensitivity.prior_share(self.base.map), mask=np.zeros(p, bool))

    @property
    def weak_prior_share(self) -> float | None:
        """Largest share of variance that an error of the prior makes of a combination that the data
        hardly tell; None where a condition number is small, or the fit has no prior.
        """
        sensitivity, weak = self.diagnostics.sensitivity, self.fit.weak
        if sensitivity is None or not len(weak):
            return None
        return float(np.max(sensitivity.prior_share(weak @ self.base.map)))

    @cached_property
    def decided_by_prior(self) -> np.ndarray:
        """Which columns of x the prior decides rather than the data, (columns,) bool."""
        sensitivity = self.diagnostics.sensitivity
        if sensitivity is None:
            return np.zeros(self.base.columns, dtype=bool)
        shares = sensitivity.prior_share(np.eye(self.base.columns))
        return np.asarray(shares > DECIDES)

    @property
    def base_relative_std(self) -> np.ma.MaskedArray:
        """Standard deviation of every base parameter in percent of its value, (p,)."""
        return _relative(self.base_std, self.x_base)

    @cached_property
    def full_std(self) -> np.ma.MaskedArray:
        """Standard deviation of every column of x, masked where it is not identifiable alone."""
        out: np.ma.MaskedArray = np.ma.masked_array(np.zeros(self.base.columns), mask=True)
        # A parameter identifiable alone is a fixed combination of base parameters: e_k = c·M.
        alone = [k for k, kind in enumerate(self.base.kinds) if kind == ALONE]
        if alone:
            targets = np.eye(self.base.columns)[:, alone]
            combination = np.linalg.lstsq(self.base.map.T, targets, rcond=None)[0]  # (p, alone)
            for column, c in zip(alone, combination.T, strict=True):
                used = np.abs(c) > 1e-9 * np.max(np.abs(c))
                block = self.covariance[np.ix_(used, used)]
                if np.all(np.isfinite(block)):
                    out[column] = np.sqrt(c[used] @ block @ c[used])
        return out

    @property
    def std(self) -> np.ma.MaskedArray:
        """Standard deviation of θ, (10·bodies,), masked where not individually identifiable."""
        return self.full_std[: Columns(self.robot).inertial]

    @property
    def relative_std(self) -> np.ma.MaskedArray:
        """Standard deviation of θ in percent of its value, (10·bodies,)."""
        return _relative(self.std, self.theta)

    @cached_property
    def consistency(self) -> tuple[parameters.Consistency, ...]:
        """For every body, whether the ten numbers found can belong to a rigid body."""
        return tuple(parameters.check(theta) for theta in self.theta.reshape(-1, 10))

    @property
    def consistent(self) -> bool:
        """Whether every body is physically consistent."""
        return all(self.consistency)

    def __str__(self) -> str:
        r2 = "undefined" if self.r2 is None else f"{self.r2:.6f}"
        lines = [
            (
                f"{self.method}: {self.status}, rank {self.rank} of {len(self.base)}, condition"
                f" {self.condition:.3g}, {self.samples} samples, R² {r2}"
            ),
            f"physically consistent: {'yes' if self.consistent else 'no'}",
        ]
        width = max((len(name) for name in self.base.names), default=0)
        width = min(width, 60)
        for name, value, std in zip(self.base.names, self.x_base, self.base_std, strict=True):
            spread = "unidentifiable" if std is np.ma.masked else f"± {std:.2g}"
            shown = name if len(name) <= width else name[: width - 1] + "…"
            lines.append(f"  {shown:{width}} {value:13.6g} {spread}")
        return "\n".join([*lines, *(f"  {sentence}" for sentence in self.advice)])


def _relative(std: np.ma.MaskedArray, value: np.ndarray) -> np.ma.MaskedArray:
    """100·std/|value|, masked where the value is zero."""
    size = np.abs(value)
    return np.ma.masked_array(
        100.0 * std.filled(0.0) / np.where(size > 0.0, size, 1.0),
        mask=np.ma.getmaskarray(std) | (size == 0.0),
    )
