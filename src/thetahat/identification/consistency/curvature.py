"""The curvature of a physically consistent fit at its minimum, and what follows from it: how far
the estimate moves with noise and prior (sensitivity.py), and its posterior (posterior.py).

Bounds and cones that the minimum sits on add curvature, too: with multipliers Z of X ⪰ 0 and y of
G·v ≥ l, s = G·v − l,

    tr(Z dX X⁻¹ dX) + Σ (y/s)·(G dv)²

Where X has a small eigenvalue and Z a large one this is stiff, and holds dX on the tangent space of
the cone's face; between the face and the inside it is the face's own curvature [Shapiro1997];
inside it vanishes. So one expression serves a fit on a face, off it, and in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.identification import factor
from thetahat.identification.consistency.interior_point import (
    PLACES,
    Minimum,
    Problem,
    solve_triangular,
)
from thetahat.identification.consistency.program import Program
from thetahat.identification.uncertainty.posterior import Posterior
from thetahat.identification.uncertainty.prior_conflict import prior_conflict
from thetahat.identification.uncertainty.sensitivity import Sensitivity


@dataclass(frozen=True, eq=False)
class LocalFit:
    """A fit near its minimum, to second order, in the program's free variables v."""

    program: Program
    minimum: Minimum
    data: np.ndarray  # (p, k) rows of the data in units of their noise
    prior: np.ndarray  # (…, k) rows of the prior's curvature, without a barrier beside it
    barrier: np.ndarray  # (…, k) rows of the barrier's
    root: np.ndarray  # (k, k) upper triangle: rootᵀroot is the curvature of data and prior
    held_root: np.ndarray  # (k, k) the same with that of bounds and cones
    conflict: float  # κ, in spreads of the prior

    def sensitivity(self, whitened: np.ndarray, variance: float) -> Sensitivity:
        """Return how far x moves.

        whitened: (p, r) what the whitened combinations of torques change of the base parameters.
        variance: of each of them, were all rows independent.
        """
        M, expand = self.program.f.information.base.map, self._expand
        rows, right = np.vstack([self.prior, self.barrier]), self.data_of(whitened)
        data, prior = self._moves(self.held_root, right, rows)
        free, loose = self._moves(_stacked(self.root, self.barrier), right, rows)
        moved = [M @ expand(part) for part in (data, self.conflict * prior)]
        freely = [M @ expand(part) for part in (free, self.conflict * loose)]
        variances = [
            variance * np.sum(noise**2, axis=1) + np.sum(bias**2, axis=1)
            for noise, bias in (moved, freely)
        ]
        held = 1.0 - variances[0] / np.where(variances[1] > 0.0, variances[1], 1.0)
        return Sensitivity(
            data=expand(data),
            prior=expand(prior),
            noise=variance * np.eye(whitened.shape[1]),
            conflict=self.conflict,
            held=np.clip(held, 0.0, 1.0),
        )

    def data_of(self, whitened: np.ndarray) -> np.ndarray:
        """Return the change of the data's right side with a change of base parameters."""
        return np.asarray(self.program.f.R @ whitened)

    def posterior(self, whitened: np.ndarray) -> Posterior:
        """Return the law of x, cut off at bounds and cones."""
        gain = self._gain(self.root, self.data)
        program = self.program
        gradient = self._gradient()
        return Posterior(
            robot=program.f.information.robot,
            start=self.minimum.v,
            centre=self.minimum.v - _solved(self.root, gradient),
            data=gain @ self.data_of(whitened),
            prior=self.conflict * self._gain(self.root, self.prior),
            limits=program.limits(),
        )

    def _moves(
        self, root: np.ndarray, right: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Changes of v with the data's right side, and with a prior of these rows."""
        return self._gain(root, self.data) @ right, self._gain(root, rows)

    def _gain(self, root: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(rootᵀroot)⁻¹·rowsᵀ."""
        return _solved(root, np.asfortranarray(rows.T))

    def _expand(self, changes: np.ndarray) -> np.ndarray:
        """Changes of x = c + E·v."""
        program = self.program
        return np.asarray(
            program.allowed.through(np.eye(program.f.columns.count), program.f.scale) @ changes
        )

    def _gradient(self) -> np.ndarray:
        """Of data and prior at the minimum: what bounds and cones balance, (k,)."""
        problem, v = self.program.problem, self.minimum.v
        gradient = problem.T.T @ (problem.T @ v - problem.t)
        if self.program.f.metric == "entropic":
            gamma = problem.gamma[:, None, None]
            slope = gamma * (np.eye(4) - np.linalg.inv(problem.X(v)))
            none = np.zeros(len(problem.low))
            gradient = gradient + problem.adjoint(np.where(gamma > 0.0, slope, 0.0), none)
        return np.asarray(gradient)


def local_fit(program: Program, minimum: Minimum) -> LocalFit:
    """Return the fit to second order about its minimum."""
    problem, f = program.problem, program.f
    data, prior = program.data_rows, program.prior_rows
    barrier = _entropic_rows(problem, minimum.v)
    # the entropic distance is the prior itself, or a barrier beside it that keeps bodies from flat;
    # that one is no Gaussian, and robots are drawn without it
    own = barrier if f.metric == "entropic" else barrier[:0]
    barrier = barrier[len(own) :]
    root = _stacked(problem.T, own)
    rows = np.vstack([prior[:, :-1], own])
    v0 = (f.x0 / f.scale)[program.allowed.free]
    bodies = program.allowed.free < f.columns.inertial
    conflict = (
        prior_conflict(data[:, :-1], data[:, -1] - data[:, :-1] @ v0, rows.T @ rows, bodies)
        if f.weight
        else 1.0
    )
    return LocalFit(
        program=program,
        minimum=minimum,
        data=data[:, :-1],
        prior=rows,
        barrier=barrier,
        root=root,
        held_root=_stacked(root, np.vstack([barrier, _active_rows(problem, minimum)])),
        conflict=conflict,
    )


def _solved(root: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(rootᵀroot)⁻¹·right."""
    return np.asarray(solve_triangular(root, solve_triangular(root, right, transposed=True)))


def _stacked(root: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The triangle of both."""
    return np.asfortranarray(factor.merged(root, rows) if len(rows) else root)


def _entropic_rows(problem: Problem, v: np.ndarray) -> np.ndarray:
    """Rows F with FᵀF the curvature of the entropic blocks at v, (…, k)."""
    L_inverse = np.linalg.inv(np.linalg.cholesky(problem.X(v)[problem.entropic]))
    roots = np.sqrt(problem.gamma[problem.entropic])[:, None, None] * np.swapaxes(L_inverse, 1, 2)
    return _block_rows(problem, problem.entropic, L_inverse, roots)


def _active_rows(problem: Problem, minimum: Minimum) -> np.ndarray:
    """Rows F with FᵀF the curvature that bounds and cones add, (…, k)."""
    if not len(minimum.Z):
        return np.zeros((0, len(problem.t)))
    cones = ~problem.entropic
    L_inverse = np.linalg.inv(np.linalg.cholesky(problem.X(minimum.v)[cones]))
    values, vectors = np.linalg.eigh(minimum.Z[cones])
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    slack = np.maximum(problem.G @ minimum.v - problem.low, np.finfo(float).tiny)
    linear = np.sqrt(np.maximum(minimum.y, 0.0) / slack)
    active = linear > 0.0
    blocks = _block_rows(problem, cones, L_inverse, roots)
    return np.vstack([blocks, linear[active, None] * problem.G[active]])


def _block_rows(
    problem: Problem, chosen: np.ndarray, L_inverse: np.ndarray, roots: np.ndarray
) -> np.ndarray:
    """Entries of Kᵀ dX L⁻ᵀ per unit of v of the chosen blocks; roots: K of each, (…, 4, 4)."""
    changes = np.swapaxes(roots, 1, 2)[:, None] @ problem.shapes[chosen]
    changes = changes @ np.swapaxes(L_inverse, 1, 2)[:, None]
    out = np.zeros((16 * len(changes), len(problem.t)))
    for b, (first, block) in enumerate(zip(problem.first[chosen], changes, strict=True)):
        out[16 * b : 16 * b + 16, first : first + PLACES] = block.reshape(PLACES, 16).T
    return out
