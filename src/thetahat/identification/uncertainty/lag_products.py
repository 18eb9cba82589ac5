"""Sums over pairs of rows, Σ_t Σ_s c(|t − s|)·z_t z_sᵀ, of joints' rows in whitened columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from scipy import fft

from thetahat.dynamics import batch
from thetahat.identification import factor as f
from thetahat.identification.estimators.estimator import Source
from thetahat.identification.information import Information
from thetahat.identification.time_blocks import (
    Block,
    RowPlan,
    base_rows,
    blocks,
    instrument_rows,
    row_plan,
)

# singular values of a joint's part in the fit below this add less than rounding to any sum
SMALLEST = 1e-7
RowSource = Callable[[RowPlan, Block], np.ndarray]  # every joint's rows of a block
BLOCK = 2048  # rows whose products are formed at once, at least


@dataclass(frozen=True, eq=False)
class JointPart:
    """One joint's part in the fit: its rows y become z = y·columns, and Σ zᵀz = diag(sizes²);
    `back` takes z to whitened columns.
    """

    joint: int
    weight: float  # w_j
    columns: np.ndarray  # (its base columns, r)
    back: np.ndarray  # (rank, r)
    sizes: np.ndarray  # (r,)


def joint_parts(
    information: Information, solution: f.Solution, weights: np.ndarray | None
) -> list[JointPart]:
    """Return the joints that have rows, each with as few columns as its rows have directions."""
    out, projection = [], information.projection(weights)
    fitted = None if projection is None else information.fitted_factors(weights)
    for v, (positions, R) in enumerate(
        zip(information.positions, information.factors, strict=True)
    ):
        if not information.rows[v]:
            continue
        weight = 1.0 if weights is None else float(weights[v])
        columns = weight * solution.inverse[positions]
        whitened = R[:, :-1] @ columns
        if projection is not None and fitted is not None:  # P·Y = Z·gain
            columns = weight * projection.gain[positions] @ solution.inverse
            whitened = weight * fitted[v] @ solution.inverse
        _, sizes, back = f.singular_values(whitened)
        kept = sizes > SMALLEST
        out.append(JointPart(v, weight, columns @ back[kept].T, back[kept].T, sizes[kept]))
    return out


def together(parts: list[JointPart], shares: list[np.ndarray], rank: int) -> np.ndarray:
    """Return Σ_j w_j²·Z_jᵀT_j Z_j in whitened columns, (rank, rank)."""
    out = np.zeros((rank, rank))
    for part, share in zip(parts, shares, strict=True):
        out += part.weight**2 * part.back @ share @ part.back.T
    return out


def lag_products(
    information: Information,
    samples: Source,
    parts: list[JointPart],
    autocovariances: list[np.ndarray],
    *,
    sources: Sequence[RowSource] = (),
) -> list[np.ndarray]:
    """Return Σ_t Σ_s c(|t − s|)·z_t z_sᵀ of every joint, (r, r) each. sources: of the rows that
    parts apply to, one below the other; by default those that the fit minimises.
    """
    instruments = information.instrument_factors is not None
    sources = sources or ((instrument_rows,) if instruments else (base_rows,))
    shares = [c[0] * np.diag(part.sizes**2) for part, c in zip(parts, autocovariances, strict=True)]
    coloured = [k for k, c in enumerate(autocovariances) if len(c) > 1]
    if coloured:
        longest = max(len(autocovariances[k]) for k in coloured)
        size = max(BLOCK, 1 << (2 * longest - 1).bit_length())
        work = [LagProduct(len(parts[k].sizes), autocovariances[k], size) for k in coloured]
        plan = row_plan(information)
        with ThreadPoolExecutor(batch.CORES) as pool:
            for block in blocks(samples, plan.information.robot, size, reach=max(longest, 2)):
                rows = [source(plan, block) for source in sources]
                spans = (slice(*plan.starts[parts[k].joint :][:2]) for k in coloured)
                mine = [
                    rows[0][own] if len(rows) == 1 else np.concatenate([part[own] for part in rows])
                    for own in spans
                ]
                columns = (parts[k].columns.T for k in coloured)
                given = work, columns, mine, repeat(block.first)
                list(pool.map(LagProduct.add_rows, *given, timeout=batch.LONGEST_WAIT))
        for k, one in zip(coloured, work, strict=True):
            shares[k] = one.symmetric
    return shares


class LagProduct:
    """Σ_t Σ_s c(|t − s|)·z_t z_sᵀ of `count` series, block by block; c is shorter than half a
    block.
    """

    def __init__(self, count: int, c: np.ndarray, size: int) -> None:
        self.size, self.reach = size, len(c)
        self._c = c
        self._responses: dict[int, np.ndarray] = {}
        self._before = np.zeros((count, 0))
        self._total = np.zeros((count, count))

    @property
    def symmetric(self) -> np.ndarray:
        """The sum so far, (count, count), without the rounding that makes it unsymmetric."""
        return 0.5 * (self._total + self._total.T)

    def _response(self, length: int) -> np.ndarray:
        """The transform of c on a circle of this length."""
        if length not in self._responses:
            circle = np.zeros(length)
            circle[: self.reach] = self._c
            circle[length - self.reach + 1 :] = self._c[:0:-1]
            self._responses[length] = fft.rfft(circle).real
        return self._responses[length]

    def add_rows(self, columns: np.ndarray, rows: np.ndarray, first: bool) -> None:
        """Add z = columns·rows of the next block."""
        self.add(columns @ rows, first=first)

    def add(self, z: np.ndarray, *, first: bool) -> None:
        """Add the next block of the series, (count, rows). first: a segment begins with it."""
        held = 0 if first else self._before.shape[1]
        # a short log needs no full circle
        length = min(2 * self.size, fft.next_fast_len(z.shape[1] + self.reach + held, real=True))
        smooth = fft.irfft(fft.rfft(z, length) * self._response(length), length, overwrite_x=True)
        self._total += z @ smooth[:, : z.shape[1]].T
        if not first:
            across = self._before @ smooth[:, length - held :].T
            self._total += across + across.T
        self._before = z[:, -self.reach :].copy()
