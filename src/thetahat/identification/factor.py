"""The triangular factor of [A | b]: all that least squares needs of any number of rows, and it
merges.

    [A | b] = Q·[R z; 0 ρ],    ‖A x − b‖² = ‖R x − z‖² + ρ²

Folded by Householder QR, never by normal equations: those lose half of the digits (NIST's Filip:
none left of seven).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.linalg import lapack, solve_triangular, svd
from threadpoolctl import ThreadpoolController

from thetahat.dynamics import batch
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification.uncertainty.flags import ILL_CONDITIONED

# singular values of the column-scaled factor below RANK × the largest count as zero: rounding of
# many rows
RANK = 1e-12


@cache
def blas_threads() -> ThreadpoolController:
    """Return the control of BLAS threads, which fight with ours (13× slower, measured)."""
    return ThreadpoolController()


def triangle(rows: np.ndarray) -> np.ndarray:
    """R of a QR of `rows` (Fortran order, overwritten), (c, c), diagonal ≥ 0."""
    count, columns = rows.shape
    if count < columns:  # fewer rows than columns: zeros change nothing
        padded = np.zeros((columns, columns), order="F")
        padded[:count] = rows
        rows = padded
    qr, _, _, info = lapack.dgeqrf(rows, lwork=64 * max(columns, 1), overwrite_a=1)
    if info:
        raise UsageError(f"LAPACK's dgeqrf refused argument {-info}; this is a bug of thetahat")
    return upright(np.triu(qr[:columns]))


def merged(*factors: np.ndarray) -> np.ndarray:
    """The factor of all rows behind these factors together."""
    if len(factors) == 1:
        return factors[0]
    return triangle(np.asfortranarray(np.vstack(factors)))


def upright(factor: np.ndarray) -> np.ndarray:
    """The same factor with a diagonal ≥ 0, which makes it unique."""
    return factor * np.where(np.diag(factor) < 0.0, -1.0, 1.0)[:, None]


def fold(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The factor of [A | b], chunk by chunk: (rows, columns), (rows,) → (columns + 1, columns + 1).

    Rows go in largest first: where their sizes differ by many orders, Householder QR then keeps the
    small ones' digits [Cox1998].
    """
    A, b = np.asarray(A, dtype=float), np.asarray(b, dtype=float)
    if (
        A.ndim != 2
        or b.shape != A.shape[:1]
        or not (np.all(np.isfinite(A)) and np.all(np.isfinite(b)))
    ):
        raise UsageError(
            f"A has shape {A.shape} and b {b.shape}; expected (rows, columns) and (rows,), finite"
        )
    kernel = batch.kernels().fold
    columns = A.shape[1] + 1
    factor = np.zeros(columns * columns)
    order = np.argsort(-np.max(np.abs(A), axis=1, initial=0.0), kind="stable")
    kernel.fold_rows(
        np.ascontiguousarray(np.column_stack([A, b])[order].T),
        columns,
        np.zeros((columns, kernel.CHUNK)),
        factor,
    )
    return upright(factor.reshape(columns, columns))


def _require_finite(matrix: np.ndarray) -> None:
    if not np.all(np.isfinite(matrix)):
        raise NotIdentifiable(
            "the rows of the log hold numbers too large to fit; check torques, positions and their"
            " units (--units), or record longer"
        )


def singular_values(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s, Vᵀ of a thin singular value decomposition.

    LAPACK's divide and conquer (gesdd) gives up on some matrices whose entries differ by very many
    orders, as those of rows do of which contact forces leave next to nothing; QR iteration (gesvd)
    does not.
    """
    _require_finite(matrix)
    try:
        U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
    except np.linalg.LinAlgError:
        U, s, Vt = svd(matrix, full_matrices=False, check_finite=False, lapack_driver="gesvd")
    return U, s, Vt


@dataclass(frozen=True, eq=False)
class Projection:
    """P[A | b], P the projection onto the columns of instruments Z, in their own coordinates."""

    rows: np.ndarray  # (rank of Z, columns + 1): ‖P(A x − b)‖ = ‖rows·[x; −1]‖
    gain: np.ndarray  # (columns of Z, columns): P·A = Z·gain


def projection(factor: np.ndarray) -> Projection:
    """Return [A | b] on the columns of Z, from the factor of [Z | A | b], Z as wide as A.

    Z = Q·R_Z, so Qᵀ[A | b] stands in the factor's first rows; where R_Z is short of rank, Q holds
    directions that are rounding, which its singular vectors leave out.
    """
    n = (len(factor) - 1) // 2
    R, rest = factor[:n, :n], factor[:n, n:]
    norms = np.linalg.norm(R, axis=0)
    scale = np.where(norms > 0.0, norms, 1.0)
    U, s, Vt = singular_values(R / scale)
    rank = int(np.sum(s > RANK * s[0])) if n and s[0] > 0.0 else 0
    rows = U[:, :rank].T @ rest
    gain = (Vt[:rank].T / s[:rank]) @ rows[:, :-1] / scale[:, None]
    return Projection(rows, gain)


@dataclass(frozen=True, eq=False)
class Solution:
    """Least squares from a factor, with what it says about itself."""

    x: np.ndarray  # (columns,), or minimum norm in the scaled columns where rank is short
    rank: int
    singular: np.ndarray  # (columns,) singular values of the column-scaled factor
    # (columns, columns − rank): changes of x the rows do not see, scaled back
    directions: np.ndarray
    residual: float  # ‖A x − b‖
    # (columns, rank): x's covariance is σ²·inverse·inverseᵀ, in the directions seen
    inverse: np.ndarray
    # (rank, columns): what the rows determine of x, seen · x; ‖A dx‖ = ‖seen · dx‖
    seen: np.ndarray
    # (n, columns): combinations of x, in scaled columns, whose singular value is small but counts
    weak: np.ndarray

    @property
    def condition(self) -> float:
        """Condition number of the column-scaled factor, over the singular values that count."""
        return float(self.singular[0] / self.singular[self.rank - 1]) if self.rank else float("inf")


def solve(factor: np.ndarray, *, tolerance: float = RANK) -> Solution:
    """Solve min ‖A x − b‖ from the factor of [A | b]; rank is decided on scaled columns."""
    _require_finite(factor)
    n = len(factor) - 1
    R, z, rho = factor[:n, :n], factor[:n, n], abs(factor[n, n])
    norms = np.linalg.norm(R, axis=0)
    scale = np.where(norms > 0.0, norms, 1.0)
    U, s, Vt = singular_values(R / scale)
    rank = int(np.sum(s > tolerance * s[0])) if n and s[0] > 0.0 else 0
    if rank == n:
        x = solve_triangular(R, z) if n else np.zeros(0)
        inverse = solve_triangular(R, np.eye(n)) if n else np.zeros((0, 0))
        seen = R
    else:
        inverse = (Vt[:rank].T / s[:rank]) / scale[:, None]
        x = inverse @ (U.T[:rank] @ z)
        seen = s[:rank, None] * Vt[:rank] * scale
    weak = Vt[:rank][s[:rank] * ILL_CONDITIONED < s[0]] * scale if rank else Vt[:0]
    residual = float(np.hypot(np.linalg.norm(R @ x - z), rho))
    silent = Vt[rank:].T / scale[:, None]
    return Solution(x, rank, s, silent, residual, inverse, seen, weak)
