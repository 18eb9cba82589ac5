"""`Robust`: any estimator, with samples that do not fit the others held back (Huber). The one
re-weighting loop of the library.

    minimise Σ_j a_j Σ_i ρ(e_ij/σ_j),    e = u − Y x                                   [Huber1973]
             ρ(r) = r²/2 for |r| ≤ k,  k|r| − k²/2 beyond

A sample counts with the weight w = min(1, kσ_j/|e|). σ_j is the joint's own: 1.4826 × the median of
|e|, which half of its rows cannot move. What the inner estimator is handed are not the weighted
rows but pseudo-torques,

    u* = Y x + (K_j/m_j)·w·e                                                          [Street1988]
    m_j = share of the joint's rows with w = 1
    K_j = 1 + (p/n)(1 − m_j)/m_j

Both have their fixed point at the same Yᵀ(w·e) = 0; but least squares on weighted rows misjudges
its noise, while on pseudo-torques σ²(YᵀY)⁻¹ is the M-estimator's covariance, K²·Σψ²/(n −
p)/m²·(YᵀY)⁻¹ [Huber1973, Huber2009], in every estimator that reads its noise off the residual, and
weights="joint" are the best weights. Outliers in the torque are held back; a wrong q, q̇ or q̈ that
makes a row of Y itself an outlier is not: Huber's estimator bounds residuals, not leverage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from thetahat.data.contact_rows import without_contact_forces
from thetahat.data.friction_direction import batches_with_friction_direction
from thetahat.data.samples import Samples
from thetahat.dynamics import rigid_body
from thetahat.dynamics.contact_projection import eliminates_forces
from thetahat.errors import UsageError
from thetahat.identification import submodel
from thetahat.identification.estimate import Estimate, Reweighting
from thetahat.identification.estimators.estimator import Estimator, Source, fit_scores
from thetahat.identification.estimators.joint_weights import EXACT
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.fold_plan import load_of
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns

HUBER = 1.345  # k at which Gaussian noise costs 5 % of efficiency
MAD = 1.482602218505602  # 1/Φ⁻¹(3/4): from the median of |e| to a standard deviation
PIECE = 65_536  # samples whose residuals are held at once
# of the histogram of |e|: 0.27 % wide, from 2⁻⁴⁰ to 2¹⁰ of the joint's RMS torque
BINS, PER_OCTAVE, OCTAVES = 12_800, 256, 40
ROUNDS = 60
# σ_j is held after that many rounds, or that relative change: what is left is convex
SCALE_ROUNDS, SCALE_SETTLED = 20, 1e-3
SETTLED = 1e-6  # of a standard deviation of the parameters, by which the last round may move them
PRECISION = 1e-12  # of the torque: below, a round moves the parameters by rounding
STALLED, RATE = (
    1e-2,
    0.9,
    # a solver's own tolerance ends it too: less than this of a standard deviation, and no longer
    # getting smaller
)
OUTLIER = (
    1.0 / 3.0
    # a torque is an outlier below this weight: beyond four standard deviations, which Gaussian
    # noise is once in 18,000
)
NOTABLE = 0.01  # a joint with this share of outliers is named


@dataclass(frozen=True, eq=False)
class Robust:
    """An estimator whose samples are re-weighted until they agree which of them to believe.

    inner: any estimator that takes an `Information`. threshold: k, in standard deviations of each
        joint's noise.
    """

    inner: Estimator = field(default_factory=lambda: LeastSquares(weights="joint"))
    threshold: float = HUBER

    name = "robust"

    def estimate_from_samples(self, information: Information, samples: Source) -> Estimate:
        """Return the estimate; R² is that of all rows, outliers included."""
        self._check(samples)
        log = _Log(information, samples)
        estimate = self.inner.estimate(information)
        tally = log.tally(estimate.x_base)
        scale = tally.scale()
        held = False
        change = np.inf
        settled = estimate.status == "infeasible"
        rounds = 0
        while not settled and rounds < ROUNDS:
            pseudo, tally = log.pseudo(estimate.x_base, scale, self.threshold)
            x_base, estimate = estimate.x_base, self.inner.estimate(pseudo)
            before = change
            change = log.distance(estimate.x_base - x_base, scale)
            rounds = rounds + 1
            if (
                not held
                # the tally is of the residuals that this round began with; the first round's is
                # where the scale came from
            ):
                old, scale = scale, tally.scale()
                held = rounds > 1 and (
                    rounds > SCALE_ROUNDS
                    or bool(np.all(np.abs(scale - old) <= SCALE_SETTLED * old))
                )
            else:
                small = max(SETTLED, PRECISION * log.size(scale))
                settled = (
                    change <= small
                    or (change <= STALLED and change >= RATE * before)
                    or estimate.status == "infeasible"
                )
        weights = Reweighting(
            self.threshold, scale, *tally.shares(), rounds, float(change), bool(settled)
        )
        return self._reported(information, estimate, weights)

    def _check(self, samples: Source) -> None:
        if not hasattr(self.inner, "estimate"):
            raise UsageError(
                f"inner is {self.inner!r}, which takes no Information; give an estimator such as"
                " LeastSquares(weights='joint')"
            )
        if not (np.isfinite(self.threshold) and self.threshold >= 1.0):
            raise UsageError(
                f"threshold is {self.threshold!r}; give a finite number of standard deviations, at"
                f" least 1 ({HUBER} is usual)"
            )
        if not (isinstance(samples, Samples) or callable(samples)):
            raise UsageError(
                f"samples is a {type(samples).__name__}; give Samples, or a function that yields"
                " them anew each time it is called"
            )

    def _reported(
        self, information: Information, estimate: Estimate, weights: Reweighting
    ) -> Estimate:
        """The estimate with scores of the measured torques, and advice on joints with outliers."""
        names, advice = information.robot.velocity_names, []
        for v in np.flatnonzero(weights.outliers > NOTABLE):
            share = 100.0 * weights.outliers[v]
            beyond = weights.threshold * weights.scale[v] / OUTLIER
            advice.append(
                f"{names[v]}: {share:.1f} % of its torques are outliers, more than {beyond:.3g}"
                " off, and count less than a third"
            )
        if not weights.settled:
            advice.append(
                f"the weights of samples were still moving the parameters by {weights.change:.2g}"
                f" standard deviations after {ROUNDS} rounds"
            )
        return replace(
            estimate,
            method=f"{self.name} {estimate.method}",
            fit=fit_scores(information, estimate.x_base, estimate.fit),
            diagnostics=replace(
                estimate.diagnostics,
                advice=(*advice, *estimate.advice),
                reweighting=weights,
            ),
        )


# -- passes over the log ---------------------------------------------------------------------------


@dataclass(eq=False)
class _Tally:
    """Counts of residuals per degree of freedom of one pass over the log, however batched."""

    unit: np.ndarray  # (nv,) RMS torque
    limit: np.ndarray  # (nv,) beyond which a residual is clipped
    samples: int = 0

    def __post_init__(self) -> None:
        nv = len(self.unit)
        self.rows, self.inside, self.outside = (np.zeros(nv, dtype=np.int64) for _ in range(3))
        self.histogram = np.zeros((nv, BINS), dtype=np.int64)

    def add(self, size: np.ndarray, valid: np.ndarray) -> None:
        """Count |e|, (n, nv)."""
        self.samples += len(size)
        self.rows += np.count_nonzero(valid, axis=0)
        self.inside += np.count_nonzero(valid & (size <= self.limit), axis=0)
        self.outside += np.count_nonzero(valid & (size * OUTLIER > self.limit), axis=0)
        octave = np.log2(np.maximum(size / self.unit, np.finfo(float).tiny))
        place = np.clip((octave + OCTAVES) * PER_OCTAVE, 0, BINS - 1).astype(np.int64)
        for v in range(len(self.unit)):
            self.histogram[v] += np.bincount(place[valid[:, v], v], minlength=BINS)

    def scale(self) -> np.ndarray:
        """σ_j from the median of |e|, (nv,), interpolated in its bin; one without rows."""
        out = np.ones(len(self.unit))
        for v in np.flatnonzero(self.rows):
            up_to, half = np.cumsum(self.histogram[v]), 0.5 * self.rows[v]
            at = int(np.searchsorted(up_to, half))
            within = (half - (up_to[at] - self.histogram[v, at])) / self.histogram[v, at]
            median = self.unit[v] * 2.0 ** ((at + within) / PER_OCTAVE - OCTAVES)
            out[v] = max(MAD * median, EXACT * self.unit[v])
        return out

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Shares of rows with a weight below one, and of outliers; zero where there are no rows."""
        rows = np.maximum(self.rows, 1)
        return np.where(self.rows > 0, 1.0 - self.inside / rows, 0.0), self.outside / rows


class _Log:
    """The samples behind an information, read as often as needed, a piece at a time."""

    def __init__(self, information: Information, samples: Source) -> None:
        self.information, self.samples = information, samples
        self.used = information.rows > 0
        rms = information.torque_norms() / np.sqrt(np.maximum(information.rows, 1))
        self.unit = np.where(rms > 0.0, rms, 1.0)

    def tally(self, x_base: np.ndarray) -> _Tally:
        """Residuals at x, counted; nothing is clipped."""
        tally = _Tally(self.unit, np.full(len(self.unit), np.inf))
        for _ in self._clipped(x_base, tally):
            pass
        return tally

    def pseudo(
        self, x_base: np.ndarray, scale: np.ndarray, threshold: float
    ) -> tuple[Information, _Tally]:
        """The information of the pseudo-torques at x, folded from clipped residuals w·e."""
        info, tally = self.information, _Tally(self.unit, threshold * scale)
        folded = information(info.robot, self._clipped(x_base, tally))
        if not (
            np.array_equal(folded.base.independent, info.base.independent)
            and np.array_equal(folded.base.map, info.base.map)
        ):
            # the information is a view, of some joints or terms
            folded = submodel.seen_through(folded, info.robot, info.base)
        # half are inside k ≥ 1 by the median; while σ is held, nearly so
        inside = np.maximum(tally.inside / np.maximum(tally.rows, 1), 0.5)
        gain = (1.0 + len(info.base) / np.sum(info.rows) * (1.0 - inside) / inside) / inside

        def pseudo(factors: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
            out = []
            for v, (positions, R) in enumerate(zip(folded.positions, factors, strict=True)):
                new, n = R.copy(), len(positions)
                new[:, -1] = gain[v] * R[:, -1] + R[:, -n - 1 : -1] @ x_base[positions]
                out.append(new if self.used[v] else np.zeros_like(R))
            return tuple(out)

        beside = folded.instrument_factors
        replaced = replace(
            info,
            positions=folded.positions,
            factors=pseudo(folded.factors),
            instrument_factors=None if beside is None else pseudo(beside),
        )
        return replaced, tally

    def distance(self, step: np.ndarray, scale: np.ndarray) -> float:
        """‖Y·step‖ in units of the noise: how many standard deviations the step is long."""
        norms = [
            np.linalg.norm(R[:, :-1] @ step[at])
            for at, R in zip(self.information.positions, self.information.factors, strict=True)
        ]
        return float(np.linalg.norm(np.array(norms) / scale))

    def size(self, scale: np.ndarray) -> float:
        """‖u‖ in units of the noise."""
        return float(np.linalg.norm(self.information.torque_norms() / scale))

    def _clipped(self, x_base: np.ndarray, tally: _Tally) -> Iterator[Samples]:
        """The samples with w·e in place of their torques, counted on the way."""
        for part in self._pieces():
            e = part.tau - self._predicted(part, x_base)
            e = without_contact_forces(self.information.robot, part, e)
            tally.add(np.abs(e), part.valid & self.used)
            yield replace(
                part,
                tau=np.where(self.used & part.valid, np.clip(e, -tally.limit, tally.limit), 0.0),
            )
        differ = tally.rows[self.used] != self.information.rows[self.used]
        if eliminates_forces(self.information.robot):
            differ = np.zeros(1, dtype=bool)  # their rows count by parts
        if tally.samples != self.information.samples or np.any(differ):
            raise UsageError(
                f"the information was folded from {self.information.samples} samples with"
                f" {int(np.sum(self.information.rows))} usable torques, and these are"
                f" {tally.samples} with {int(np.sum(tally.rows))}; pass what it was folded from,"
                " the same each time it is read"
            )

    def _pieces(self) -> Iterator[Samples]:
        parts: Iterable[Samples] = (
            [self.samples] if isinstance(self.samples, Samples) else self.samples()
        )
        for part in batches_with_friction_direction(parts, self.information.robot):
            if part.form.windowed:
                raise UsageError(
                    f"Robust weights single torques, and rows of the {part.form.name} form are made"
                    " of several; prepare the samples without it"
                )
            for first in range(0, len(part), PIECE):
                yield part if len(part) <= PIECE else part.subset(slice(first, first + PIECE))

    def _predicted(self, samples: Samples, x_base: np.ndarray) -> np.ndarray:
        """Y[:, independent]·x_base, (n, nv): the torque of the columns that were fitted."""
        robot = self.information.robot
        if samples.q.shape[1] != robot.nq or samples.dq.shape[1] != robot.nv:
            raise UsageError(
                f"the samples have {samples.nq} coordinates and {samples.nv} velocities, but robot"
                f" {robot.name!r} has others"
            )
        x = np.zeros(self.information.base.columns)
        x[self.information.base.independent] = x_base
        theta, terms = Columns(robot).split(x)
        out = rigid_body.inverse_dynamics(
            robot, samples.q, samples.dq, samples.ddq, rigid=True, theta=theta
        )
        if terms:
            state = (samples.q, samples.dq, samples.ddq)
            direction = samples.direction_of(robot.drive)
            B, columns = robot.drive.motor_columns(
                samples.dq,
                samples.ddq,
                q=samples.q,
                load=load_of(robot, *state),
                direction=direction,
            )
            motors, u = list(robot.drive.column_motors), np.zeros_like(columns[0])
            for values, column in zip(terms.values(), columns, strict=True):
                u[:, motors] += values * column[:, motors]
            out += u if B is None else (B @ u[..., None])[..., 0]
        return out
