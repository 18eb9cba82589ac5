"""Parameters that an effect which the model lacks has moved: an omitted-variable test.

What no column explains is taken by the columns that are there, as far as they can. So for every
joint a few columns c that friction and springs could have beside those of the model,

    sign(q̇)·exp(−(q̇/v)²) at three speeds v,   |q̇|,   q̇·|q̇|,   sin q,   cos q

are fitted to what the estimate leaves, together with the parameters:

    A = CᵀC − GᵀG,  ĉ = A⁻¹Cᵀe,   dx = −H⁻¹Dᵀ·G·ĉ,      G: C in whitened columns of the fit

ĉᵀAĉ over the noise is χ² where nothing is missing. Where it is larger than chance allows, dx is how
far the omitted effect has moved each parameter, and those moved by a notable part of their standard
deviation are flagged: their interval is about another value than the true one [Hausman1978].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

CHANCE = 1e-4  # probability of naming an effect that is not there, per joint
NOTABLE = 0.3  # standard deviations: coverage falls below 94 % from there on
SPEEDS = (0.1, 0.3, 1.0)  # of the joint's RMS speed: widths of bumps around standstill
RESOLVED = 1e-6  # of a column's square: less is left of it beside the model's own columns


def omitted_columns(
    q: np.ndarray | None, dq: np.ndarray, usable: np.ndarray, speed: float
) -> np.ndarray:
    """Return what one joint may have beside the model, (columns, rows), zero where not usable.

    q: None where the joint's coordinate is no angle or length. speed: its RMS [rad/s or m/s].
    """
    v = dq / speed
    out = [np.sign(v) * np.exp(-((v / width) ** 2)) for width in SPEEDS]
    out += [np.abs(v), v * np.abs(v)]
    if q is not None:
        out += [np.sin(q), np.cos(q)]
    return np.array(out) * usable


@dataclass(frozen=True, eq=False)
class OmittedSums:
    """Sums over one joint's rows of the columns c that the model lacks."""

    squares: np.ndarray  # (c, c) Σ c cᵀ
    cross: np.ndarray  # (r, c) Σ z cᵀ with the joint's rows z of the fit
    residual: np.ndarray  # (c,) Σ c·e
    fitted: np.ndarray  # (r,) Σ z·e: zero for least squares

    @staticmethod
    def of(columns: np.ndarray, rows: np.ndarray, residual: np.ndarray) -> OmittedSums:
        """Return the sums over these rows: (c, n), (r, n) and (n,)."""
        return OmittedSums(
            columns @ columns.T, rows @ columns.T, columns @ residual, rows @ residual
        )

    def __add__(self, other: OmittedSums) -> OmittedSums:
        return OmittedSums(
            self.squares + other.squares,
            self.cross + other.cross,
            self.residual + other.residual,
            self.fitted + other.fitted,
        )


def omitted_effect(sums: OmittedSums, fitted: np.ndarray, variance: float) -> np.ndarray | None:
    """Return what the omitted columns add to Σ z·u of a joint's rows, (r,); None: nothing there.

    fitted: (r,) of Σ z·e, the part that the parameters could still explain. variance: of a row's
        noise, times the rows that make one independent one.
    """
    size = np.sqrt(np.diag(sums.squares))
    used = size > 0.0
    if not np.any(used) or not variance > 0.0:
        return None
    G = sums.cross[:, used] / size[used]
    b = sums.residual[used] / size[used] - G.T @ fitted
    C = sums.squares[np.ix_(used, used)] / np.outer(size[used], size[used])
    values, vectors = np.linalg.eigh(C - G.T @ G)
    seen = values > RESOLVED
    along = vectors[:, seen].T @ b
    square = float(np.sum(along**2 / values[seen])) / variance
    if special.chdtrc(float(np.sum(seen)), square) > CHANCE:
        return None
    return np.asarray(G @ (vectors[:, seen] @ (along / values[seen])))
