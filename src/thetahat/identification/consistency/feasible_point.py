"""A point strictly inside of all bounds, or the proof that there is none: where a fit begins.

maximise τ ≤ 1    subject to   X_b(v) − τ·1 ⪰ 0,   G v − τ ≥ low,   F v = e
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.identification.consistency.interior_point import PLACES, Problem

DEEP = 1e-4  # a start this far inside is good enough as it is
NEAR = 1e-6  # weight of staying near the start, which bounds the problem
SHALLOW = 1e-7  # a set that holds no ball of this size, in units of one, is empty for a solver
ACTIVE = 1e-6  # multipliers above belong to demands that conflict


@dataclass(frozen=True, eq=False)
class FeasiblePoint:
    """The deepest point found."""

    v: np.ndarray
    depth: float  # how far inside all constraints it is; negative: by how much some must be broken
    active: np.ndarray  # (rows + blocks,) bool: which constraints stop it from going deeper
    iterations: int


def find_feasible_point(problem: Problem, start: np.ndarray, *, known: np.ndarray) -> FeasiblePoint:
    """Return the start where it is inside, else the deepest point near it. known: [F | e]."""
    rows, blocks = len(problem.low), len(problem.first)
    depth = min(
        float(np.min(problem.G @ start - problem.low, initial=1.0)),
        float(np.min(np.linalg.eigvalsh(problem.X(start)), initial=1.0)),
    )
    if depth >= DEEP and not len(known):
        return FeasiblePoint(start, depth, np.zeros(rows + blocks, dtype=bool), 0)
    return _deepest(problem, start, known)


def _deepest(problem: Problem, start: np.ndarray, known: np.ndarray) -> FeasiblePoint:
    import clarabel
    from scipy import sparse

    k, rows, blocks = len(start), len(problem.low), len(problem.first)
    column, row = np.tril_indices(4)  # upper triangle, column by column
    factor = np.where(row == column, 1.0, np.sqrt(2.0))
    entries = problem.shapes[:, :, row, column] * factor  # (blocks, 10 numbers, 10 entries)
    b, number, entry = np.nonzero(entries)
    X = sparse.csr_matrix(
        (-entries[b, number, entry], (10 * b + entry, problem.first[b] + number)),
        shape=(10 * blocks, k),
    )
    deep = np.tile((row == column).astype(float), blocks)[:, None]
    A = sparse.vstack(
        [
            sparse.hstack([sparse.csr_matrix(known[:, :-1]), sparse.csr_matrix((len(known), 1))]),
            sparse.hstack([sparse.csr_matrix((1, k)), sparse.csr_matrix([[1.0]])]),
            sparse.hstack([sparse.csr_matrix(-problem.G), sparse.csr_matrix(np.ones((rows, 1)))]),
            sparse.hstack([X, sparse.csr_matrix(deep)]),
        ]
    ).tocsc()
    h = np.concatenate([known[:, -1], [1.0], -problem.low, np.zeros(10 * blocks)])
    cones = [
        clarabel.ZeroConeT(len(known)),
        clarabel.NonnegativeConeT(1 + rows),
        *[clarabel.PSDTriangleConeT(4)] * blocks,
    ]
    P = sparse.diags(np.append(np.full(k, NEAR), 0.0)).tocsc()
    q = np.append(-NEAR * start, -1.0)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.direct_solve_method = False, 1, "qdldl"
    settings.chordal_decomposition_enable = settings.presolve_enable = False
    answer = clarabel.DefaultSolver(P, q, A, h, cones, settings).solve()
    v, dual = np.array(answer.x)[:k], np.array(answer.z)
    if not np.all(np.isfinite(v)):
        v = start
    eigenvalues = np.linalg.eigvalsh(problem.X(v))
    depth = min(
        float(np.min(problem.G @ v - problem.low, initial=1.0)),
        float(np.min(eigenvalues, initial=1.0)),
    )
    off = float(np.max(np.abs(known[:, :-1] @ v - known[:, -1]), initial=0.0))
    linear, last = dual[len(known) + 1 : len(known) + 1 + rows], dual[len(known) + 1 + rows :]
    multipliers = np.concatenate([linear, np.linalg.norm(last.reshape(blocks, PLACES), axis=1)])
    inside = depth > SHALLOW and off <= 1e-6
    return FeasiblePoint(
        v,
        depth if inside else min(depth, 0.0) - off,
        multipliers > ACTIVE * max(float(np.max(multipliers, initial=0.0)), 1e-300),
        answer.iterations,
    )
