"""Physically consistent parameters from a near start in a few steps: Newton's method on the Cholesky factors of the bodies.

    minimise f(x) (objective.py)   over   K_i = J_i − ε·tr(J_i)·1 = S_i S_iᵀ ⪰ 0,   friction and rotor inertia y ≥ 0

A best fit often lies on the boundary. There the log-Cholesky numbers of [Rucker2022] are infinite, and Newton's method in them, or in the
factors they stand for, follows curved valleys: 130 to 160 steps cold and 45 warm on an arm of seven links, measured. So every K has a
partner, the multiplier Z_i = M_i M_iᵀ ⪰ 0, and steps are taken in x, where f is quadratic or nearly so, and in both factors, towards

    ∂f/∂K_i = Z_i,   K_i Z_i = μ·1,   μ → 0        (entropic: −w·log det J wants J_i Z_i = w·1, so there μ ends at w)

in the scaling of [Nesterov1997], in which K and Z are the same diagonal matrix and the factors of neither are ever squared or inverted.
Multipliers of the faces that a start lies on make it a warm one. Each step is one least-squares problem, solved by QR and never by its Gram
matrix. f is convex, so Z proves how far it is from its least value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import lapack

from thetahat.errors import UsageError
from thetahat.identify import factor
from thetahat.identify.consistent import FAINT, MARGIN, UNSEEN, Consistent, smallest_eigenvalue
from thetahat.identify.estimate import Certificate, Estimate
from thetahat.identify.estimator import covariance_of_data, estimated, guess
from thetahat.identify.information import Information
from thetahat.identify.objective import Objective, objective, solution_of
from thetahat.model import parameters
from thetahat.model.parameters import SIZE
from thetahat.model.robot import Robot

START = 1e-2  # of a body's largest eigenvalue, and of a drive term's size: how far inside a cold start begins
FACE = 1e-4  # of the same: what a warm start has below counts as held by the boundary
FAINTEST = 1e-12  # least μ to start with, in units of the noise variance
STRIDE = {"euclidean": (0.99, 0.99), "entropic": (0.9, 0.999)}  # of the way to the boundary of bodies and of drive terms, at most
SHORT, STUCK = 0.3, 1e-6  # steps, of the step wanted: below the first the corrector is left out, below the second the search ends
BLOCK = 16  # columns at a time in the QR

_BASIS = parameters.to_pseudo_inertia(np.eye(SIZE))  # J = Σ_a θ_a·basis_a
_EYE = np.eye(4)
_UPPER = np.triu_indices(4)


@dataclass(frozen=True, eq=False)
class Smooth:
    """The physically consistent parameters that fit best, as `Consistent` finds them without bounds: quick from a near start.

    prior, weight, metric, weights: as of `Consistent`. start: an `Estimate`, a robot, θ or x to begin at (None: the prior, or where
    least squares without constraints ends, whichever fits better). iterations: at most. tolerance: of the objective, relative to 1 + f.
    """

    prior: np.ndarray | Robot | None = None
    weight: float = 1e-2
    metric: str = "euclidean"
    weights: str | None = "joint"
    start: Estimate | np.ndarray | Robot | None = None
    iterations: int = 100
    tolerance: float = 1e-9

    name = "smooth"

    def estimate(self, information: Information) -> Estimate:
        """The estimate, with a certificate; where the tolerance is not reached, the best found and advice."""
        if isinstance(self.iterations, bool) or not isinstance(self.iterations, int) or self.iterations < 1:
            raise UsageError(f"iterations is {self.iterations!r}; give a whole number of at least 1")
        if not (np.isfinite(self.tolerance) and self.tolerance > 0.0):
            raise UsageError(f"tolerance is {self.tolerance!r}; give a finite number above 0, such as 1e-9")
        f = objective(information, prior=self.prior, weight=self.weight, metric=self.metric, weights=self.weights)
        start = self.start.x if isinstance(self.start, Estimate) else self.start
        start = None if start is None else guess(information, start, "start") / f.scale
        problem = _Problem(f)
        x, gap, steps = _minimise(problem, start, iterations=self.iterations, tolerance=self.tolerance)
        x, gap = _tidied(f, problem, x, gap)
        eigenvalue = smallest_eigenvalue((x * f.scale)[: f.columns.inertial])
        if problem.entropic and eigenvalue < MARGIN:  # so weak a prior keeps bodies from being flat, but not by how much
            both = Consistent(prior=self.prior, weight=self.weight, metric=self.metric, weights=self.weights)
            return replace(both.estimate(information), method=self.name)
        solved = gap <= self.tolerance * (1.0 + problem.value(x))
        outside = max(0.0, float(np.max(-x[problem.signed], initial=0.0)), -float(np.min(np.linalg.eigvalsh(problem.K(x)), initial=0.0)))
        solution = solution_of(f)
        return estimated(
            information,
            solution,
            method=self.name,
            x=x * f.scale,
            covariance=covariance_of_data(solution, f.weights.variance),
            status="solved" if solved else "almost_solved",
            certificate=Certificate(f.value(x * f.scale), float(gap), outside, eigenvalue, steps, "interior point, Cholesky factors"),
            advice=() if solved else (_advice(gap, steps, self.iterations),),
        )


def _advice(gap: float, steps: int, iterations: int) -> str:
    when, cure = (f"all {steps} iterations", "give more iterations") if steps >= iterations else (f"{steps} iterations", "give the prior more weight")
    far = f"may be {gap:.2g} noise variances above its least value" if np.isfinite(gap) else "is not proved to be near its least value"
    return f"Smooth stopped after {when}, and the objective {far}; {cure}, or use Consistent"


def _tidied(f: Objective, problem: _Problem, x: np.ndarray, gap: float) -> tuple[np.ndarray, float]:
    """(x, bound) with what the data do not see exactly at the prior, wherever that fits."""
    i = problem.inertial
    trial = np.where(np.any(f.information.base.map, axis=0), x, problem.x0)
    keep = np.repeat(np.linalg.eigvalsh(problem.K(trial))[:, 0] > 0.0, SIZE)
    trial[:i] = np.where(keep, trial[:i], x[:i])
    trial[problem.signed] = np.maximum(trial[problem.signed], 0.0)
    gain = problem.value(x) - problem.value(trial)
    return (trial, max(gap - gain, 0.0)) if gain >= 0.0 and np.isfinite(gain) else (x, gap)


# -- the problem ------------------------------------------------------------------------------------------------------


class _Problem:
    """The objective in units of each parameter's own size: f(x) = ½‖T x − t‖² + constant, and of an entropic prior its two terms of J."""

    def __init__(self, f: Objective) -> None:
        self.n, self.inertial, self.size = f.bodies, f.columns.inertial, f.columns.count
        self.weight, self.entropic = f.weight, f.metric == "entropic" and f.weight > 0.0
        self.signed, self.x0 = f.nonnegative, f.x0 / f.scale
        self.cones, self.stride = 4 * self.n + len(self.signed), np.array(STRIDE["entropic" if self.entropic else "euclidean"])
        A = (f.R @ f.information.base.map) * f.scale
        own = np.sqrt(f.weight) * np.eye(self.size)[self.inertial if self.entropic else 0 :] if f.weight else np.sqrt(FAINT) * _hidden(A)
        whole = factor.triangle(np.asfortranarray(np.vstack([np.column_stack([A, f.z]), np.column_stack([own, own @ self.x0])])))
        self.T, self.t, self.constant = np.asfortranarray(whole[:-1, :-1]), whole[:-1, -1], 0.5 * whole[-1, -1] ** 2
        mass, length = f.units
        squares = np.column_stack([length, length, length, np.ones(self.n)]) ** 2  # of the units of J's rows, but for the mass
        basis = np.tile(_BASIS, (self.n, 1, 1, 1))  # K = Σ_a x_a·basis_a
        self.pull = np.zeros(self.size)  # of tr(J₀⁻¹J)
        if self.entropic:  # log det holds J inside by itself: K = J
            unit = np.sqrt(mass[:, None] * squares)
            inverse = np.linalg.inv(f.references / (unit[:, :, None] * unit[:, None, :]))
            self.pull[: self.inertial] = self.weight * np.tensordot(inverse, _BASIS, ((1, 2), (1, 2))).ravel()
            self.constant -= self.weight * (float(np.sum(np.linalg.slogdet(inverse)[1])) + 4.0 * self.n)
        else:
            trace = np.sum(np.diagonal(basis, axis1=2, axis2=3) * squares[:, None], axis=2)
            basis[:, :, range(4), range(4)] -= MARGIN * trace[:, :, None] / squares[:, None]
        self.basis, self.flattened = basis, basis.reshape(self.n, SIZE, 16)
        self.inner = np.linalg.inv(basis[:, :, *_UPPER])  # x of a body from the upper triangle of K, (bodies, 10, 10)

    def K(self, x: np.ndarray) -> np.ndarray:
        """(bodies, 4, 4)."""
        return (x[: self.inertial].reshape(self.n, 1, SIZE) @ self.flattened).reshape(self.n, 4, 4)

    def form(self, Z: np.ndarray, s: np.ndarray) -> np.ndarray:
        """The linear form <Z, K(x)> + s·y on x."""
        out = np.zeros(self.size)
        out[: self.inertial] = (self.flattened @ Z.reshape(self.n, 16, 1)).ravel()
        out[self.signed] = s
        return out

    def assembled(self, K: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """x with these bodies and signed drive terms, the others as in x."""
        out = x.copy()
        out[: self.inertial] = (K[:, None, *_UPPER] @ self.inner).ravel()
        out[self.signed] = y
        return out

    def value(self, x: np.ndarray) -> float:
        """f(x)."""
        out = self.constant + 0.5 * float(np.sum((self.T @ x - self.t) ** 2)) + float(self.pull @ x)
        if self.entropic:
            sign, logarithm = np.linalg.slogdet(self.K(x))
            out = out - self.weight * float(np.sum(logarithm)) if np.all(sign > 0.0) else np.inf
        return out

    @cached_property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """(R, q): f without constraints and with the euclidean prior is ½‖R x − q‖² and a constant."""
        if not self.entropic:
            return self.T, self.t
        root, drives = np.sqrt(self.weight) * np.eye(SIZE), np.zeros(self.size - self.inertial)
        d = np.sqrt(self.weight) * np.where(np.arange(self.size) < self.inertial, self.x0, 0.0)
        return self.triangle(np.broadcast_to(root, (self.n, SIZE, SIZE)), drives, d, self.t)

    @cached_property
    def unconstrained(self) -> np.ndarray:
        """The best x without constraints, with the euclidean prior."""
        return _solved(*self.flat)

    def gap(self, point: _Point) -> float:
        """f(x) − min f is at most this, for the point's Z ⪰ 0 and s ≥ 0.

        f(x) − <Z, K(x)> − s·y lies nowhere above f where the constraints hold. Without constraints its least value is ½‖gradient‖² below,
        in the inverse of the Hessian; with log det, which is self-concordant, w·ω(‖gradient‖/√w), ω(t) = −t − log(1 − t) [Nesterov1994].
        """
        residual = self.T @ point.x - self.t
        if not self.entropic:
            between = float(np.sum((np.swapaxes(point.M, 1, 2) @ point.S) ** 2)) + float(point.s @ point.y)  # <Z, K> + s·y
            left = residual - _solved(self.T, self.form(point.M @ np.swapaxes(point.M, 1, 2), point.s), transposed=True)
            return between + 0.5 * float(left @ left)
        inverse = np.linalg.inv(point.S)
        blocks = np.linalg.qr(np.sqrt(self.weight) * _congruence(inverse, self.basis), mode="r")
        R = self.triangle(blocks, np.zeros(self.size - self.inertial), np.zeros(self.size), np.zeros(self.size))[0]
        gradient = self.T.T @ residual + self.pull - self.form(self.weight * np.swapaxes(inverse, 1, 2) @ inverse, point.s)
        t = float(np.linalg.norm(_solved(R, gradient, transposed=True))) / np.sqrt(self.weight)
        return float(point.s @ point.y) + (self.weight * float(-t - np.log1p(-t)) if t < 1.0 else np.inf)

    def triangle(self, blocks: np.ndarray, drives: np.ndarray, d: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(R, q) of ‖T x − b‖² + ‖D x − d‖² = ‖R x − q‖² + constant, by LAPACK's QR of two triangles.

        D: upper triangular blocks of the bodies, (bodies, 10, 10), and `drives` on the rest of its diagonal.
        """
        c, i = self.size, self.inertial
        top, rows = np.zeros((c + 1, c + 1), order="F"), np.zeros((c, c + 1), order="F")
        top[:c, :c], top[:c, c] = self.T, b
        for k, block in enumerate(blocks):
            rows[SIZE * k : SIZE * k + SIZE, SIZE * k : SIZE * k + SIZE] = block
        rows[range(i, c), range(i, c)] = drives
        rows[:, c] = d
        out, *_ = lapack.dtpqrt(c, min(BLOCK, c), top, rows, overwrite_a=1, overwrite_b=1)
        return out[:c, :c], out[:c, c]


def _hidden(A: np.ndarray) -> np.ndarray:
    """Orthonormal rows: the changes of x that the data do not see."""
    norms = np.linalg.norm(A, axis=0)
    norms = np.where(norms > 0.0, norms, 1.0)
    _, s, Vt = np.linalg.svd(A / norms)
    rank = int(np.sum(s > UNSEEN * s[0])) if len(s) and s[0] > 0.0 else 0
    return np.linalg.qr(Vt[rank:].T / norms[:, None])[0].T


def _congruence(G: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Rows (bodies, 16, 10) that take a change of a body's x to G·dK·Gᵀ."""
    return np.swapaxes((G[:, None] @ basis @ np.swapaxes(G, 1, 2)[:, None]).reshape(len(G), SIZE, 16), 1, 2)


def _solved(R: np.ndarray, b: np.ndarray, *, transposed: bool = False) -> np.ndarray:
    """R⁻¹b or R⁻ᵀb, R upper triangular."""
    x, info = lapack.dtrtrs(R, b, trans=int(transposed))
    if info:
        raise np.linalg.LinAlgError("singular factor")
    return x


# -- where to start ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Point:
    """x inside the constraints, with factors of K = S Sᵀ and of its multiplier Z = M Mᵀ, and the multipliers s of y ≥ 0."""

    x: np.ndarray  # (columns,)
    S: np.ndarray  # (bodies, 4, 4)
    M: np.ndarray  # (bodies, 4, 4)
    y: np.ndarray  # (signed,) as in x
    s: np.ndarray  # (signed,)


def _cold(problem: _Problem, x: np.ndarray) -> tuple[float, _Point]:
    """(f, the point near x well inside the constraints, K Z = μ·1 with what f may yet lose as μ)."""
    values, vectors = np.linalg.eigh(problem.K(x))
    root = np.sqrt(np.maximum(values, START * np.maximum(values[:, 3:], START)))
    S, y = vectors * root[:, None, :], np.maximum(x[problem.signed], START)
    x = problem.assembled(S @ np.swapaxes(S, 1, 2), y, x)
    loss = 0.5 * float(np.sum((problem.flat[0] @ (x - problem.unconstrained)) ** 2))
    mu = max(loss / problem.cones, problem.weight if problem.entropic else FAINTEST)
    return problem.value(x), _Point(x, S, np.sqrt(mu) * vectors / root[:, None, :], y, mu / y)


def _warm(problem: _Problem, x: np.ndarray) -> _Point:
    """The point near x with K Z = μ·1, with multipliers on the faces x lies on that explain its gradient best, and what they leave as μ."""
    y = np.maximum(x[problem.signed], 0.0)
    values, vectors = np.linalg.eigh(problem.K(x))
    values = np.maximum(values, FACE**2 * np.maximum(values[:, 3:], FACE))
    z = problem.weight / values if problem.entropic else np.zeros_like(values)
    Z = (vectors * z[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    gradient = problem.T.T @ (problem.T @ x - problem.t) + problem.pull - problem.form(Z, np.zeros_like(y))
    bodies, places = np.nonzero((values < FACE * values[:, 3:]) & (not problem.entropic))
    held = np.flatnonzero(y < FACE)
    forms = np.zeros((problem.size, len(bodies) + len(held)))
    for column, (b, k) in enumerate(zip(bodies, places, strict=True)):
        v = vectors[b, :, k]
        forms[SIZE * b : SIZE * b + SIZE, column] = problem.flattened[b] @ np.outer(v, v).ravel()
    forms[problem.signed[held], np.arange(len(bodies), forms.shape[1])] = 1.0
    left = _solved(problem.flat[0], gradient, transposed=True)
    E = _solved(problem.flat[0], forms, transposed=True) if forms.size else forms
    found = np.maximum(np.linalg.lstsq(E, left, rcond=None)[0], 0.0)
    mu = max(0.5 * float(np.sum((left - E @ found) ** 2)) / problem.cones, FAINTEST)
    wanted = mu / np.maximum(found, mu)
    y[held] = np.minimum(START, wanted[len(bodies) :])
    if not problem.entropic:
        values[bodies, places] = np.minimum(START * values[bodies, 3], wanted[: len(bodies)])
        z = mu / values
    S = vectors * np.sqrt(values)[:, None, :]
    return _Point(problem.assembled(S @ np.swapaxes(S, 1, 2), y, x), S, vectors * np.sqrt(z)[:, None, :], y, mu / y)


# -- Newton -----------------------------------------------------------------------------------------------------------


def _minimise(problem: _Problem, start: np.ndarray | None, *, iterations: int, tolerance: float) -> tuple[np.ndarray, float, int]:
    """(x, a bound on f(x) − min f, steps)."""
    x, nothing = problem.unconstrained, np.zeros((problem.n, 4, 4))
    if not problem.entropic and np.all(x[problem.signed] >= 0.0) and np.all(np.linalg.eigvalsh(problem.K(x)) >= 0.0):
        gap = problem.gap(_Point(x, nothing, nothing, x[problem.signed], np.zeros(len(problem.signed))))
        if gap <= tolerance * (1.0 + problem.value(x)):
            return x, gap, 0
    steps = 0
    for warm in (True, False) if start is not None else (False,):
        point = _warm(problem, start) if warm else min((_cold(problem, each) for each in (problem.x0, x)), key=lambda pair: pair[0])[1]
        best, least, taken = _searched(problem, point, iterations=iterations - steps, tolerance=tolerance)
        steps += taken
        if least <= tolerance * (1.0 + problem.value(best.x)) or steps >= iterations:
            break  # else the start was no good one: once more from inside
    return (*_snapped(problem, best, least, tolerance), steps)


def _searched(problem: _Problem, point: _Point, *, iterations: int, tolerance: float) -> tuple[_Point, float, int]:
    """(the best point found, its bound, steps)."""
    best, least, step = point, np.inf, 0
    for step in range(iterations + 1):
        try:
            gap = problem.gap(point)
            if gap <= least:
                best, least = point, gap
            if least <= tolerance * (1.0 + problem.value(best.x)) or step == iterations:
                break
            point, length = _stepped(problem, point)
        except np.linalg.LinAlgError:  # rounding has eaten a factor: there is nothing more to gain
            break
        if length < STUCK or not np.all(np.isfinite(point.x)):
            break
    return best, least, step


def _snapped(problem: _Problem, point: _Point, gap: float, tolerance: float) -> tuple[np.ndarray, float]:
    """(x, bound) with drive terms at zero that are there but for what is left of μ, if the bound allows."""
    small = (point.y < FACE) & (point.y < point.s)
    x = point.x.copy()
    x[problem.signed[small]] = 0.0
    bound = problem.gap(replace(point, x=x, y=x[problem.signed])) if np.any(small) else np.inf
    return (x, bound) if bound <= max(gap, tolerance * (1.0 + problem.value(x))) else (point.x, gap)


def _stepped(problem: _Problem, point: _Point) -> tuple[_Point, float]:
    """(the next point, the share taken of the step wanted)."""
    n, i, signed = problem.n, problem.inertial, problem.signed
    P, lam, Qt = np.linalg.svd(np.swapaxes(point.M, 1, 2) @ point.S)  # G⁻¹K G⁻ᵀ = GᵀZ G = diag λ
    root = np.sqrt(lam)
    G, inverse = point.S @ np.swapaxes(Qt, 1, 2) / root[:, None, :], np.swapaxes(point.M @ P, 1, 2) / root[:, :, None]
    rows, t, lam1 = _congruence(inverse, problem.basis), np.sqrt(point.s / point.y), np.sqrt(point.s * point.y)
    R, free = _model(problem, point, rows, t)
    diagonal = lam[:, :, None] * _EYE

    def towards(target: np.ndarray, target1: np.ndarray) -> tuple[np.ndarray, ...]:
        """(dx, dK, dZ, dy, ds) of the step to K∘Z = λ∘target, scaled."""
        pull = np.zeros(problem.size)
        pull[:i] = (np.swapaxes(rows, 1, 2) @ target.reshape(n, 16, 1)).ravel()
        pull[signed] = t * target1
        dx = free + _solved(R, _solved(R, pull, transposed=True)) if np.any(pull) else free
        dK, dy = (rows @ dx[:i].reshape(n, SIZE, 1)).reshape(n, 4, 4), t * dx[signed]
        return dx, dK, target - diagonal - dK, dy, target1 - lam1 - dy

    end = problem.weight / lam[:, :, None] * _EYE if problem.entropic else np.zeros((n, 4, 4))
    _, dK, dZ, dy, ds = towards(end, np.zeros_like(lam1))
    sigma = (1.0 - min(1.0, *_reach(lam, lam1, dK, dZ, dy, ds))) ** 3
    mu = sigma * (float(np.sum(lam**2)) + float(np.sum(lam1**2))) / problem.cones
    product = dK @ dZ
    curved, curved1 = (product + np.swapaxes(product, 1, 2)) / (lam[:, :, None] + lam[:, None, :]), dy * ds / lam1
    target = np.maximum(end, mu / lam[:, :, None] * _EYE)
    for share in (1.0, 0.0):  # far from K∘Z = μ·1 the corrector can lead astray
        dx, dK, dZ, dy, ds = towards(target - share * curved, mu / lam1 - share * curved1)
        a = min(1.0, *(problem.stride * _reach(lam, lam1, dK, dZ, dy, ds)))
        if a > SHORT:
            break
    S, M = G @ np.linalg.cholesky(diagonal + a * dK), np.swapaxes(inverse, 1, 2) @ np.linalg.cholesky(diagonal + a * dZ)
    x = point.x + a * dx
    return _Point(x, S, M, x[signed], point.s + a * t * ds), a


def _model(problem: _Problem, point: _Point, rows: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, dx): RᵀR the Hessian of f and of the scaled constraints, dx the step with no pull from them."""
    L = np.linalg.qr(rows, mode="r")
    drives, d = np.zeros(problem.size), np.zeros(problem.size)
    drives[problem.signed] = t
    if problem.entropic:
        pull = problem.pull[: problem.inertial].reshape(-1, SIZE, 1)
        d[: problem.inertial] = -np.linalg.solve(np.swapaxes(L, 1, 2), pull).ravel()
    R, q = problem.triangle(L, drives[problem.inertial :], d, problem.t - problem.T @ point.x)
    return R, _solved(R, q)


def _reach(lam: np.ndarray, lam1: np.ndarray, dK: np.ndarray, dZ: np.ndarray, dy: np.ndarray, ds: np.ndarray) -> np.ndarray:
    """(2,) how much of a step, scaled, keeps K and Z, y and s, at the boundary or inside."""
    root = np.sqrt(lam)
    both = np.concatenate([dK, dZ]) / np.concatenate([root[:, :, None] * root[:, None, :]] * 2)
    bodies, drives = np.linalg.eigvalsh(both)[:, 0], np.concatenate([dy, ds]) / np.concatenate([lam1, lam1])
    return 1.0 / np.maximum([-np.min(bodies, initial=0.0), -np.min(drives, initial=0.0)], 1e-300)
