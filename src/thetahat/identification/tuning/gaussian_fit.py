"""Fits by a Gaussian prior, quick enough to judge many models over many cuts of a log.

    minimise ½ Σ_j share/σ_j²·‖Y_j·M·x − u_j‖² + ½ (x − x₀)ᵀP(x − x₀)

The prior's curvature P is that of the physically consistent fit's distance at x₀ (misfit.py): for a
body w·tr(J₀⁻¹E_i J₀⁻¹E_k), for a drive term at most one over its size squared. So this is the
consistent fit to second order, without its cones; friction and rotor inertia stay nonnegative by an
active set. Sums of products of rows (Gram matrices) are kept per piece of time, so that the fit to
any set of pieces costs one factorisation.

Rows see base parameters y = M·S·δ alone, of which there are fewer. With x − x₀ = S·δ, the prior's
precision D in δ, LLᵀ = M·S·D⁻¹·(M·S)ᵀ the covariance of y, and G, g the data's curvature and slope,

    (1 + LᵀG·L)·L⁻¹y = Lᵀg        δ = D⁻¹(M·S)ᵀ(g − G·y)

so a fit is solved in base parameters, and L serves all rows alike. A column that is held leaves L.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from thetahat.identification.consistency.misfit import (
    DRIVE,
    Objective,
    moments_unit,
    nonnegative_columns,
    reference_inertias,
)
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

    def squares(self, x_base: np.ndarray, positions: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return ‖u_j − Y_j x‖² of every joint, (nv,)."""
        out = np.zeros(len(self.products))
        for v, (G, at) in enumerate(zip(self.products, positions, strict=True)):
            x = with_torque(x_base[at])
            out[v] = max(float(x @ G @ x), 0.0)
        return out

    @property
    def torque_squares(self) -> np.ndarray:
        """‖u_j‖² of every joint, (nv,)."""
        return np.array([G[-1, -1] for G in self.products])


@dataclass(frozen=True, eq=False)
class GramStack:
    """The same sums over several sets of rows."""

    products: tuple[np.ndarray, ...]  # (sets, p_v + 1, p_v + 1) per joint
    rows: np.ndarray  # (sets, nv)

    @staticmethod
    def of(sets: Sequence[Grams]) -> GramStack:
        """Return sums side by side."""
        products = tuple(np.stack(each) for each in zip(*(g.products for g in sets), strict=True))
        return GramStack(products, np.stack([g.rows for g in sets]))

    @cached_property
    def whole(self) -> Grams:
        """All sets together."""
        return Grams(tuple(G.sum(axis=0) for G in self.products), self.rows.sum(axis=0))

    def summed(self, used: np.ndarray) -> GramStack:
        """Return unions of these sets. used: (unions, sets), 1.0 where a set belongs to one."""
        products = []
        for v, G in enumerate(self.products):
            shape = len(used), *G.shape[1:]
            any_rows = np.any(self.rows[:, v])
            flat = G.reshape(len(G), -1)
            products.append((used @ flat).reshape(shape) if any_rows else np.zeros(shape))
        return GramStack(tuple(products), used @ self.rows)

    def without(self, used: np.ndarray) -> GramStack:
        """Return all sets but those of each union."""
        return self.complement(self.summed(used))

    def complement(self, parts: GramStack) -> GramStack:
        """Return all sets but each of these unions."""
        whole = self.whole
        products = tuple(a - b for a, b in zip(whole.products, parts.products, strict=True))
        return GramStack(products, whole.rows - parts.rows)

    def squares(self, x_base: np.ndarray, positions: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return ‖u_j − Y_j x‖² of every set and joint, (sets, nv), each with its own x."""
        out = np.zeros(self.rows.shape)
        for v, (G, at) in enumerate(zip(self.products, positions, strict=True)):
            if np.any(self.rows[:, v]):
                x = with_torque(x_base[:, at])
                out[:, v] = np.sum((G @ x[..., None])[..., 0] * x, axis=1)
        return np.maximum(out, 0.0)


def with_torque(x: np.ndarray) -> np.ndarray:
    """Return x with −1 beneath, so that [y, u]·x is what is left of a row."""
    return np.concatenate([x, np.full((*x.shape[:-1], 1), -1.0)], axis=-1)


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
    _roots: dict[tuple[float, bytes], np.ndarray] = field(
        default_factory=dict, init=False, repr=False
    )

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
        drive = np.arange(self.columns.inertial, self.columns.count)
        drive = drive[~self.stated[drive]]
        size = np.zeros(len(drive))
        for v, (G, at) in enumerate(zip(grams.products, self.positions, strict=True)):
            share = self.M[np.ix_(at, drive)]
            size += np.sum(share * (G[:-1, :-1] @ share), axis=0) / torque[v]
        seen = size > 0.0
        S[drive[seen], drive[seen]] = 1.0 / np.sqrt(size[seen])
        return replace(self, S=S)

    @cached_property
    def _runs(self) -> list[list[tuple[slice, slice]]]:
        """Of every joint, base parameters that follow each other: in its rows, and in all."""
        out = []
        for at in self.positions:
            edges = [0, *(np.flatnonzero(np.diff(at) != 1) + 1).tolist(), len(at)]
            pairs = pairwise(edges) if len(at) else ()
            out.append([(slice(a, b), slice(int(at[a]), int(at[a]) + b - a)) for a, b in pairs])
        return out

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

    @cached_property
    def base0(self) -> np.ndarray:
        """Base parameters of x₀, (p,)."""
        return np.asarray(self.M @ self.x0)

    @cached_property
    def A(self) -> np.ndarray:
        """The map from δ to base parameters, (p, columns)."""
        return np.asarray(self.M @ self.S)

    def precision(self, weight: float) -> np.ndarray:
        """Diagonal of the prior's precision in δ, (columns,)."""
        out = np.full(self.columns.count, weight)
        out[self.columns.inertial :] = min(weight, DRIVE)
        out[self.stated] = weight
        return out

    def root(self, weight: float, held: np.ndarray) -> np.ndarray:
        """L, (p, ·): LLᵀ is the prior's covariance of base parameters, some columns held at x₀."""
        key = weight, held.tobytes()
        if key not in self._roots:
            free = ~held
            scaled = self.A[:, free] / np.sqrt(self.precision(weight)[free])
            self._roots[key] = np.ascontiguousarray(np.asarray(np.linalg.qr(scaled.T, mode="r")).T)
        return self._roots[key]

    def noise(self, grams: Grams, weight: float) -> np.ndarray:
        """σ_j of every joint's torque, from what fits with this prior leave, (nv,) [N·m or N]."""
        rows = np.maximum(grams.rows, 1.0)
        floor = EXACT * np.sqrt(grams.torque_squares / rows)
        floor = np.where(floor > 0.0, floor, 1.0)
        sigma = np.sqrt(np.maximum(grams.torque_squares / rows, floor**2))
        for _ in range(REWEIGHTINGS):
            left = grams.squares(self.fit(grams, sigma, weight).x_base, self.positions)
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
        alone = GramStack(tuple(G[None] for G in grams.products), grams.rows[None])
        return self.problems(alone, sigma)[0]

    def problems(self, stack: GramStack, sigma: np.ndarray) -> list[GaussianProblem]:
        """Return the misfit of every set of rows with noise σ_j."""
        p, sets = len(self.M), len(stack.rows)
        G, g, constant = np.zeros((sets, p, p)), np.zeros((sets, p)), np.zeros(sets)
        for v, (product, at) in enumerate(zip(stack.products, self.positions, strict=True)):
            factor = self.statistics.share / sigma[v] ** 2
            x = with_torque(self.base0[at])
            left = factor * (product @ x)
            for mine, theirs in self._runs[v]:
                G[:, at, theirs] += factor * product[:, :-1, mine]
            g[:, at] -= left[:, :-1]
            constant += 0.5 * (left @ x)
        return [GaussianProblem(self, *each) for each in zip(G, g, constant.tolist(), strict=True)]

    def base_fits(self, stack: GramStack, sigma: np.ndarray, weight: float) -> np.ndarray:
        """Return the base parameters of the fit to every set of rows, (sets, p)."""
        problems = self.problems(stack, sigma)
        L = self.root(weight, np.zeros(self.columns.count, dtype=bool))
        G, g = np.stack([each.G for each in problems]), np.stack([each.g for each in problems])
        K = L.T @ (G @ L) + np.eye(L.shape[1])
        y = np.linalg.solve(K, (g @ L)[..., None])[..., 0] @ L.T
        at = self.nonnegative
        slope = (g - (G @ y[..., None])[..., 0]) @ self.A[:, at]
        x = self.x0[at] + slope / self.precision(weight)[at] * self.S[at, at]
        out = self.base0 + y
        for k in np.flatnonzero(np.any(x < 0.0, axis=1)):
            out[k] = problems[k].fit(weight).x_base
        return np.asarray(out)


@dataclass(frozen=True, eq=False)
class GaussianProblem:
    """The misfit ½yᵀG·y − gᵀy + constant of some rows, y base parameters beside those of x₀."""

    model: GaussianModel
    G: np.ndarray  # (p, p)
    g: np.ndarray  # (p,)
    constant: float

    @cached_property
    def H(self) -> np.ndarray:
        """The misfit's curvature in δ, (columns, columns)."""
        A = self.model.A
        return np.asarray(A.T @ self.G @ A)

    def fit(self, weight: float, *, without: np.ndarray | None = None) -> GaussianFit:
        """Return the fit with a prior of this weight; columns of `without` stay at x₀."""
        model = self.model
        D = model.precision(weight)
        held = np.zeros(len(D), dtype=bool)
        if without is not None:
            held[without] = True
        for _ in range(ACTIVE_SETS):
            fitted = held.copy()
            L = model.root(weight, held)
            factor = cho_factor(L.T @ self.G @ L + np.eye(L.shape[1]), check_finite=False)
            y = L @ cho_solve(factor, L.T @ self.g, check_finite=False)
            slope = model.A.T @ (self.g - self.G @ y)
            x = model.x0 + model.S @ np.where(held, 0.0, slope / D)
            nonnegative = model.nonnegative
            negative = nonnegative[(x < 0.0)[nonnegative] & ~held[nonnegative]]
            if not len(negative):
                break
            held[negative] = True
        value = self.constant - 0.5 * float(self.g @ y)
        return GaussianFit(self, D, fitted, x, model.base0 + y, value, slope, (L, factor[0]))


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """Parameters of a fit, its objective, and its curvature."""

    problem: GaussianProblem
    D: np.ndarray  # (columns,) precision of the prior in δ
    held: np.ndarray  # (columns,) bool, columns at x₀
    x: np.ndarray  # (columns,)
    x_base: np.ndarray  # (p,)
    value: float  # misfit and distance from the prior, in noise variances
    slope: np.ndarray  # (columns,) what the misfit would gain per unit of a held column's δ
    factors: tuple[np.ndarray, np.ndarray]  # L, and the Cholesky factor of 1 + LᵀG·L

    @cached_property
    def _factor(self) -> tuple[np.ndarray, bool]:
        free, H = ~self.held, self.problem.H
        factor: tuple[np.ndarray, bool] = cho_factor(
            H[np.ix_(free, free)] + np.diag(self.D[free]), check_finite=False
        )
        return factor

    def std(self, columns: np.ndarray) -> np.ndarray:
        """Standard deviation of these entries of x, the prior included; zero where held."""
        rows = self.problem.model.S[columns][:, ~self.held]
        return np.asarray(np.sqrt(np.sum(rows * cho_solve(self._factor, rows.T).T, axis=1)))

    def freed(self, columns: np.ndarray) -> FreedColumns:
        """Return what these held columns would be if they were free, all others with them."""
        L, upper = self.factors
        A = self.problem.model.A[:, columns]
        GA = self.problem.G @ A
        across = L.T @ GA
        curvature = A.T @ GA - across.T @ cho_solve((upper, False), across, check_finite=False)
        curvature += np.diag(self.D[columns])
        covariance = np.linalg.inv(curvature)
        delta = covariance @ self.slope[columns]
        spread = -0.5 * float(np.linalg.slogdet(curvature / self.D[columns])[1])
        return FreedColumns(
            gain=0.5 * float(self.slope[columns] @ delta) + spread,
            worth=float(np.max(np.abs(delta) / np.sqrt(np.diag(covariance)))),
        )

    def log_evidence(self) -> float:
        """log p(data | prior) up to a constant that the prior's weight does not change."""
        return -self.value - float(np.sum(np.log(np.diag(self.factors[1]))))


@dataclass(frozen=True)
class FreedColumns:
    """Columns that a fit holds at x₀, if they were free."""

    gain: float  # of the log-evidence
    worth: float  # standard deviations of the clearest of their values


def _unit_prior(f: Objective) -> np.ndarray:
    """S of x = x₀ + S·δ: δ has the unit matrix as the curvature of its distance from x₀."""
    S = np.diag(f.scale)
    if f.metric == "euclidean":
        return S
    for b, body in enumerate(f.x0[: f.columns.inertial].reshape(-1, SIZE)):
        at = slice(SIZE * b, SIZE * b + SIZE)
        unit = _body_unit(body.tobytes(), f.metric, f.entropic_weight / f.weight)
        S[at, at] = S[at, at] if unit is None else unit
    return S


@lru_cache(maxsize=1024)  # of one robot many models are made
def _body_unit(body: bytes, metric: str, share: float) -> np.ndarray | None:
    """One body's part of S; None where it has no shape of its own. share: of the entropic part."""
    theta = np.frombuffer(body)
    if not parameters.check(theta) or theta[parameters.M] <= 0.0:
        return None
    J = reference_inertias(theta[None])[0]
    W = np.linalg.inv(np.linalg.cholesky(J))
    E = (W @ BASIS @ W.T).reshape(SIZE, -1)
    curvature = share * (E @ E.T)
    if metric == "moments":
        K = moments_unit(J)
        curvature = curvature + K.T @ K
    return np.asarray(np.linalg.inv(np.linalg.cholesky(curvature)).T)
