"""What the model lacks: how far it may have moved each parameter, and where the data show it.

What no column explains is taken by the columns that are there, as far as they can. So for every
joint a few columns C are looked at that it could have beside those of the model:

    sign(q̇)·exp(−(q̇/v)²) at three speeds v    a Stribeck bump, of any width
    |q̇|,  q̇·|q̇|,  sin q,  cos q                 friction of another shape, springs, cogging
    dτ/dt                                      torque and motion not quite at the same time

Fitted to what the estimate leaves, together with the parameters, they have the coefficients

    A = CᵀC − GᵀG,  ĉ = A⁻¹Cᵀe      G: C in whitened columns of the fit

**Widening.** No joint has Coulomb and viscous friction to the last digit, and no log is exact to
the microsecond. Bumps of `BUMP` times the Coulomb friction and delays of `LATE` rows are taken as
possible, c ~ N(0, S²). What the data say of them is in A; what they cannot tell from Coulomb and
viscous friction is not, and stays possible. Either way E[ccᵀ] = (A + S⁻²)⁻¹ + ĉĉᵀ moves the
whitened combinations of torques by G·c, and is added to the covariance of their noise.

**Flags.** ĉᵀAĉ over the noise is χ² where nothing is missing. Where it is larger than chance
allows, parameters moved by more than `NOTABLE` of their standard deviation are flagged
[Hausman1978].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

CHANCE = 1e-4  # probability of naming an effect that is not there, per joint
NOTABLE = 0.7  # of a standard deviation that includes it: what the model lacks decides the error
SPEEDS = (0.1, 0.3, 1.0)  # of the joint's RMS speed: widths of bumps around standstill
BUMP = 0.15  # of Coulomb friction: standard deviation of a bump's height
LATE = 0.5  # rows: standard deviation of the time between torque and motion
RESOLVED = 1e-6  # of a column's square: less is left of it beside the model's own columns


def omitted_columns(q: np.ndarray | None, speed: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Return what one joint may have beside the model, (columns, rows).

    q: None where the joint's coordinate is no angle or length. speed: relative to its RMS. rate:
        change of its torque from row to row [N·m or N].
    """
    out = [np.sign(speed) * np.exp(-((speed / width) ** 2)) for width in SPEEDS]
    out += [rate, np.abs(speed), speed * np.abs(speed)]
    if q is not None:
        out += [np.sin(q), np.cos(q)]
    return np.array(out)


def possible(coulomb: float, count: int) -> np.ndarray:
    """Return the standard deviations S of effects that no data may show, (columns,)."""
    out = np.zeros(count)
    out[: len(SPEEDS)], out[len(SPEEDS)] = BUMP * abs(coulomb), LATE
    return out


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


@dataclass(frozen=True, eq=False)
class OmittedEffect:
    """What the omitted columns of one joint may have added to Σ z·u of its rows."""

    spread: np.ndarray  # (r, r) second moments of what is possible, given the data
    shift: np.ndarray | None  # (r,) what the data show; None: nothing that is not chance


def omitted_effect(
    sums: OmittedSums, fitted: np.ndarray, variance: float, spread: np.ndarray
) -> OmittedEffect:
    """Return the effect of what the model lacks.

    fitted: (r,) of Σ z·e, the part that the parameters could still explain. variance: of a row's
        noise, times the rows that make one independent one. spread: (c,) S.
    """
    size = np.sqrt(np.diag(sums.squares))
    used = size > 0.0
    none = np.zeros((len(fitted), len(fitted)))
    if not np.any(used) or not variance > 0.0:
        return OmittedEffect(none, None)
    size, S = size[used], spread[used] * size[used]
    G = sums.cross[:, used] / size
    b = sums.residual[used] / size - G.T @ fitted
    A = sums.squares[np.ix_(used, used)] / np.outer(size, size) - G.T @ G
    values, vectors = np.linalg.eigh(A)
    seen = values > RESOLVED
    along = vectors[:, seen].T @ b
    square = float(np.sum(along**2 / values[seen])) / variance
    shown = special.chdtrc(float(np.sum(seen)), square) <= CHANCE
    shift = G @ (vectors[:, seen] @ (along / values[seen])) if shown else None
    may = S > 0.0
    if not np.any(may):
        return OmittedEffect(none, shift)
    # (A/σ² + S⁻²)⁻¹ = S (S A S/σ² + 1)⁻¹ S
    inner = S[may, None] * A[np.ix_(may, may)] * S[may] / variance + np.eye(int(np.sum(may)))
    left = S[may, None] * np.linalg.solve(inner, np.diag(S[may]))
    c = left @ b[may] / variance
    moment = left + np.outer(c, c)
    return OmittedEffect(np.asarray(G[:, may] @ moment @ G[:, may].T), shift)
