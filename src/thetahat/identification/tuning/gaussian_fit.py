"""Fits by a Gaussian prior, quick enough to judge many models over many cuts of a log.

    minimise ½ Σ_j share/σ_j²·‖Y_j·M·x − u_j‖² + ½ (x − x₀)ᵀP(x − x₀)

The prior's curvature P is that of the physically consistent fit's distance at x₀ (misfit.py): for a
body w·tr(J₀⁻¹E_i J₀⁻¹E_k), for a drive term at most one over its size squared. So this is the
consistent fit to second order, without its cones; friction and rotor inertia stay nonnegative by an
active set. Sums of products of rows (Gram matrices) are kept per piece of time, so that the fit to
any set of pieces costs one factorisation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from thetahat.identification.consistency.misfit import DRIVE, Objective, nonnegative_columns
from thetahat.identification.estimators.joint_weights import Weights
from thetahat.identification.information import Information
from thetahat.identification.log_statistics import LogStatistics
from thetahat.identification.parameter_columns import Columns
from thetahat.model import parameters
from thetahat.model.parameters import SIZE

REWEIGHTINGS = 4  # of the joints by their residuals
ACTIVE_SETS = 3  # rounds of setting negative friction to zero
EXACT = 1e-4  # of a joint's RMS torque: noise counts as no smaller
BASIS = parameters.to_pseudo_inertia(np.eye(SIZE))


@dataclass(frozen=True, eq=False)
class Grams:
    """Σ zᵀz over rows z = [y, u] of every joint: y its base columns, u its torque."""

    products: tuple[np.ndarray, ...]  # (p_v + 1, p_v + 1) per joint
    rows: np.ndarray  # (nv,)

    @staticmethod
    def of(information: Information) -> Grams:
        """Return the sums over the rows that were folded."""
        products = tuple(R.T @ R for R in information.factors)
        return Grams(products, information.rows.astype(float))

    def __add__(self, other: Grams) -> Grams:
        products = tuple(a + b for a, b in zip(self.products, other.products, strict=True))
        return Grams(products, self.rows + other.rows)

    def __sub__(self, other: Grams) -> Grams:
        products = tuple(a - b for a, b in zip(self.products, other.products, strict=True))
        return Grams(products, self.rows - other.rows)

    def squares(self, x_base: np.ndarray, positions: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return ‖u_j − Y_j x‖² of every joint, (nv,)."""
        out = np.zeros(len(self.products))
        for v, (G, at) in enumerate(zip(self.products, positions, strict=True)):
            x = np.append(x_base[at], -1.0)
            out[v] = max(float(x @ G @ x), 0.0)
        return out

    @property
    def torque_squares(self) -> np.ndarray:
        """‖u_j‖² of every joint, (nv,)."""
        return np.array([G[-1, -1] for G in self.products])


@dataclass(frozen=True, eq=False)
class GaussianModel:
    """A robot's columns, and the prior of their parameters in units in which it is round."""

    columns: Columns
    M: np.ndarray  # (p, columns) map to base parameters
    positions: tuple[np.ndarray, ...]  # base parameters of each joint's rows
    x0: np.ndarray  # (columns,)
    S: np.ndarray  # (columns, columns): x = x₀ + S·δ, whose prior precision is diagonal
    statistics: LogStatistics
    base_columns: np.ndarray  # (p,) the column whose base parameter each is

    @staticmethod
    def of(
        information: Information, x0: np.ndarray, statistics: LogStatistics, *, metric: str
    ) -> GaussianModel:
        """Return the model of these columns; `information` need not hold rows."""
        columns = Columns(information.robot)
        p = len(information.base)
        weights = Weights(None, 1.0, np.ones(columns.robot.nv))
        f = Objective(
            information, weights, np.zeros((p, p)), np.zeros(p), x0, 1.0, metric, statistics
        )
        return GaussianModel(
            columns,
            information.base.map,
            information.positions,
            x0,
            _unit_prior(f),
            statistics,
            information.base.independent,
        )

    def with_drive_sizes(self, grams: Grams) -> GaussianModel:
        """Return the model with drive terms in units of the value that alone would make their
        joints' torque.
        """
        S = self.S.copy()
        torque = np.where(grams.torque_squares > 0.0, grams.torque_squares, 1.0)
        for column in range(self.columns.inertial, self.columns.count):
            if self.stated[column]:
                continue
            share = self.M[:, column]
            size = 0.0
            for v, (G, at) in enumerate(zip(grams.products, self.positions, strict=True)):
                size += float(share[at] @ G[:-1, :-1] @ share[at]) / torque[v]
            if size > 0.0:
                S[column, column] = 1.0 / np.sqrt(size)
        return replace(self, S=S)

    @cached_property
    def nonnegative(self) -> np.ndarray:
        """Positions in x of drive terms that cannot be negative."""
        return nonnegative_columns(self.columns)

    @cached_property
    def stated(self) -> np.ndarray:
        """Which columns are rotor inertia that the prior states, (columns,) bool."""
        rotor = np.array([name == "armature" for name, _ in self.columns.pairs])
        rotor[: self.columns.inertial] = False
        return np.asarray(rotor & (self.x0 > 0.0))

    def precision(self, weight: float) -> np.ndarray:
        """Diagonal of the prior's precision in δ, (columns,)."""
        out = np.full(self.columns.count, weight)
        out[self.columns.inertial :] = min(weight, DRIVE)
        out[self.stated] = weight
        return out

    def noise(self, grams: Grams, weight: float) -> np.ndarray:
        """σ_j of every joint's torque, from what fits with this prior leave, (nv,) [N·m or N]."""
        rows = np.maximum(grams.rows, 1.0)
        floor = EXACT * np.sqrt(grams.torque_squares / rows)
        floor = np.where(floor > 0.0, floor, 1.0)
        sigma = np.sqrt(np.maximum(grams.torque_squares / rows, floor**2))
        for _ in range(REWEIGHTINGS):
            left = grams.squares(self.M @ self.fit(grams, sigma, weight).x, self.positions)
            sigma = np.asarray(np.maximum(np.sqrt(left / rows), floor))
        return np.asarray(sigma)

    def fit(
        self,
        grams: Grams,
        sigma: np.ndarray,
        weight: float,
        *,
        without: np.ndarray | None = None,
    ) -> GaussianFit:
        """Return the fit to these rows, with noise σ_j; columns of `without` stay at x₀."""
        return self.problem(grams, sigma).fit(weight, without=without)

    def problem(self, grams: Grams, sigma: np.ndarray) -> GaussianProblem:
        """Return these rows' misfit with noise σ_j, for fits with several priors and columns."""
        return GaussianProblem(self, *self._normal(grams, sigma))

    def _normal(self, grams: Grams, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """(H, b, constant) of ½δᵀHδ − bᵀδ + constant: the data's misfit."""
        p = len(self.M)
        G, g, constant = np.zeros((p, p)), np.zeros(p), 0.0
        x_base = self.M @ self.x0
        for v, (product, at) in enumerate(zip(grams.products, self.positions, strict=True)):
            factor = self.statistics.share / sigma[v] ** 2
            mine = product[:-1, :-1]
            slope = product[:-1, -1] - mine @ x_base[at]
            G[np.ix_(at, at)] += factor * mine
            g[at] += factor * slope
            last = np.append(x_base[at], -1.0)
            constant += 0.5 * factor * float(last @ product @ last)
        A = self.M @ self.S
        return A.T @ G @ A, A.T @ g, constant


@dataclass(frozen=True, eq=False)
class GaussianProblem:
    """The misfit ½δᵀHδ − bᵀδ + constant of some rows."""

    model: GaussianModel
    H: np.ndarray
    b: np.ndarray
    constant: float

    def fit(self, weight: float, *, without: np.ndarray | None = None) -> GaussianFit:
        """Return the fit with a prior of this weight; columns of `without` stay at x₀."""
        model, H, b = self.model, self.H, self.b
        D = model.precision(weight)
        held = np.zeros(len(D), dtype=bool)
        if without is not None:
            held[without] = True
        for _ in range(ACTIVE_SETS):
            solved = _solve(H, b, D, held)
            x = model.x0 + model.S @ solved
            nonnegative = model.nonnegative
            negative = nonnegative[(x < 0.0)[nonnegative] & ~held[nonnegative]]
            if not len(negative):
                break
            held[negative] = True
        value = self.constant - float(b @ solved) + 0.5 * float(solved @ (H @ solved))
        value += 0.5 * float(D @ solved**2)
        return GaussianFit(model, x, value, H, D, held, b - H @ solved)


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """Parameters of a fit, its objective, and its curvature in δ."""

    model: GaussianModel
    x: np.ndarray  # (columns,)
    value: float  # misfit and distance from the prior, in noise variances
    H: np.ndarray
    D: np.ndarray
    held: np.ndarray  # (columns,) bool, columns at x₀
    slope: np.ndarray  # (columns,) what the misfit would gain per unit of a held column's δ

    @cached_property
    def _factor(self) -> tuple[np.ndarray, bool]:
        free = ~self.held
        factor: tuple[np.ndarray, bool] = cho_factor(
            self.H[np.ix_(free, free)] + np.diag(self.D[free]), check_finite=False
        )
        return factor

    def std(self, columns: np.ndarray) -> np.ndarray:
        """Standard deviation of these entries of x, the prior included; zero where held."""
        rows = self.model.S[columns][:, ~self.held]
        return np.asarray(np.sqrt(np.sum(rows * cho_solve(self._factor, rows.T).T, axis=1)))

    def freed(self, columns: np.ndarray) -> FreedColumns:
        """Return what these held columns would be if they were free, all others with them."""
        free = ~self.held
        across = self.H[np.ix_(free, columns)]
        curvature = self.H[np.ix_(columns, columns)] + np.diag(self.D[columns])
        curvature = curvature - across.T @ cho_solve(self._factor, across, check_finite=False)
        covariance = np.linalg.inv(curvature)
        delta = covariance @ self.slope[columns]
        spread = -0.5 * float(np.linalg.slogdet(curvature / self.D[columns])[1])
        return FreedColumns(
            gain=0.5 * float(self.slope[columns] @ delta) + spread,
            worth=float(np.max(np.abs(delta) / np.sqrt(np.diag(covariance)))),
        )

    def log_evidence(self) -> float:
        """log p(data | prior) up to a constant that the prior's weight does not change."""
        free = ~self.held
        spread = float(np.sum(np.log(np.diag(self._factor[0]))))
        return -self.value - spread + 0.5 * float(np.sum(np.log(self.D[free])))


@dataclass(frozen=True)
class FreedColumns:
    """Columns that a fit holds at x₀, if they were free."""

    gain: float  # of the log-evidence
    worth: float  # standard deviations of the clearest of their values


def _solve(H: np.ndarray, b: np.ndarray, D: np.ndarray, held: np.ndarray) -> np.ndarray:
    free = np.flatnonzero(~held)
    out = np.zeros(len(D))
    factor = cho_factor(H[np.ix_(free, free)] + np.diag(D[free]), check_finite=False)
    out[free] = cho_solve(factor, b[free], check_finite=False)
    return out


def _unit_prior(f: Objective) -> np.ndarray:
    """S of x = x₀ + S·δ: δ has the unit matrix as the curvature of its distance from x₀."""
    if f.metric == "euclidean":
        return np.diag(f.scale)
    S = np.diag(f.scale)
    theta = f.x0[: f.columns.inertial].reshape(-1, SIZE)
    for b, body in enumerate(theta):
        if not parameters.check(body) or body[parameters.M] <= 0.0:
            continue
        W = np.linalg.inv(np.linalg.cholesky(f.references[b]))
        E = (W @ BASIS @ W.T).reshape(SIZE, -1)
        at = slice(SIZE * b, SIZE * b + SIZE)
        K = f.whitening[at, at]
        share = f.entropic_weight / f.weight
        curvature = share * (E @ E.T) + (K.T @ K if f.metric == "moments" else 0.0)
        S[at, at] = np.linalg.inv(np.linalg.cholesky(curvature)).T
    return S
