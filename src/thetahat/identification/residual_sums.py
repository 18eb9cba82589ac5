"""Sums over the residuals of one run: squares in blocks of time, normal equations of a mass.

They are of bounded size, whatever the length of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetahat.data.samples import EDGE, Samples

BLOCK = 0.25  # [s]
MOST_BLOCKS = 8_192  # of a run; beyond, neighbours are put together
EDGES = 2  # blocks beside an edge of the filter that are not looked at
USUAL = 0.8  # quantile of blocks that counts as usual: a contact may last a fifth of a run
ALIKE, ENOUGH_ALIKE = 0.5, 8  # of a block's acceleration: blocks to compare it with, and how many
PART = 0.1  # of the torque's standard deviation that a contact must add, and more than friction
PRIOR = np.array([10.0, 2.0, 2.0, 2.0])  # [kg, kg·m] what a payload may be


@dataclass(frozen=True, eq=False)
class Blocks:
    """Residuals of one run in blocks of time."""

    place: np.ndarray  # (b,) which block of the run
    residual: np.ndarray  # (b, nv) RMS; NaN where too few rows can be used
    activity: np.ndarray  # (b, nv) RMS of the acceleration
    least: np.ndarray  # (nv,) that a contact must exceed: a part of the torque, and friction
    length: float  # [s] of a block

    @staticmethod
    def joined(parts: list[Blocks]) -> Blocks | None:
        """Return the blocks of several runs."""
        if not parts:
            return None
        return Blocks(
            np.concatenate([part.place for part in parts]),
            np.concatenate([part.residual for part in parts]),
            np.concatenate([part.activity for part in parts]),
            np.max([part.least for part in parts], axis=0),
            parts[0].length,
        )

    @cached_property
    def busy(self) -> np.ndarray:
        """The acceleration that most blocks stay below, per joint."""
        return np.asarray(np.nanquantile(self.activity, 0.95, axis=0))

    def exertion(self, busy: np.ndarray) -> np.ndarray:
        """Return how strongly the robot accelerates in each block, 1: as strongly as it does."""
        parts = np.nan_to_num(self.activity)[:, busy > 0.0] / busy[busy > 0.0]
        return np.sqrt(np.mean(parts**2, axis=1)) if parts.shape[1] else np.zeros(len(parts))

    def usual(self, exertion: float) -> np.ndarray | None:
        """Return the residual that most blocks of a motion as strong stay below, per joint; None
        where there are too few.
        """
        alike = self.exertion(self.busy) >= ALIKE * exertion
        if np.count_nonzero(alike) < ENOUGH_ALIKE:
            return None
        return np.asarray(np.nanquantile(np.nan_to_num(self.residual[alike]), USUAL, axis=0))


@dataclass(frozen=True, eq=False)
class MassFit:
    """A mass at a body that explains a run's residual best."""

    value: np.ndarray  # (4,) m, m·c
    std: float  # [kg] of the mass
    normal: np.ndarray  # (4, 4)
    right: np.ndarray  # (4,)
    square: float  # of the residual

    def explained_beyond(self, other: np.ndarray) -> float:
        """Return the part of the residual's square, with another mass, that the own one removes."""

        def left(value: np.ndarray) -> float:
            return float(self.square - 2.0 * self.right @ value + value @ self.normal @ value)

        return 1.0 - left(self.value) / max(left(other), 1e-300)


class RunSums:
    """Sums of one run."""

    def __init__(self, leaves: int, nv: int) -> None:
        self.length, self.origin = BLOCK, 0.0
        # rows of (block, rows at an edge of the filter, Σe², Σq̈², count), the last three nv each
        self._parts: list[np.ndarray] = []
        self._count = 0
        self.squares, self.counts = np.zeros(nv), np.zeros(nv)  # of residuals
        self._torque = np.zeros((2, nv))  # Σu, Σu²
        self.friction = np.zeros(nv)  # Σ of its square
        self._normal, self._right = np.zeros((leaves, nv, 4, 4)), np.zeros((leaves, nv, 4))
        self.seconds, self._independent = 0.0, 1.0

    def add(
        self,
        samples: Samples,
        residual: np.ndarray,
        columns: list[np.ndarray],
        independent: float,
    ) -> None:
        """Add rows: what the model leaves of their torques, and the torque per unit of a mass at
        each last body; independent: the share of rows that count.
        """
        t, usable = samples.t, samples.scorable
        if t is None or not samples.period:
            return
        if not self._parts:
            self.origin = float(t[0])
        steps = np.diff(t)
        self.seconds += float(len(t) * np.median(steps)) if len(steps) else 0.0
        error = np.where(usable, residual, 0.0)
        edge = np.zeros(len(t)) if samples.reason is None else (samples.reason == EDGE).any(axis=1)
        self._add_blocks(t, np.hstack([edge[:, None], error**2, samples.ddq**2 * usable, usable]))
        self.squares += np.sum(error**2, axis=0)
        self.counts += usable.sum(axis=0)
        torque = np.where(usable, samples.tau, 0.0)
        self._torque += np.stack([torque.sum(axis=0), np.sum(torque**2, axis=0)])
        for i, matrix in enumerate(columns):
            own = np.where(usable[:, :, None], matrix, 0.0)
            self._normal[i] += np.einsum("njk,njl->jkl", own, own)
            self._right[i] += np.einsum("njk,nj->jk", own, error)
        self._independent = independent

    def _add_blocks(self, t: np.ndarray, values: np.ndarray) -> None:
        place = np.floor((t - self.origin) / self.length).astype(np.int64)
        blocks, inverse = np.unique(place, return_inverse=True)
        sums = np.zeros((len(blocks), 1 + values.shape[1]))
        sums[:, 0] = blocks
        np.add.at(sums[:, 1:], inverse, values)
        self._parts.append(sums)
        self._count += len(blocks)
        while self._count > MOST_BLOCKS:
            self._coarsen()

    def _coarsen(self) -> None:
        """Double the length of blocks; of two neighbours the one with more residual stays."""
        whole = self._joined()
        nv = (whole.shape[1] - 2) // 3
        mean = whole[:, 2 : nv + 2].sum(axis=1) / np.maximum(whole[:, 2 * nv + 2 :].sum(axis=1), 1)
        order = np.lexsort((mean, whole[:, 0] // 2))
        last = np.flatnonzero(np.diff(whole[order, 0] // 2, append=np.inf))
        whole = whole[order[last]]
        whole[:, 0] //= 2
        self._parts, self._count, self.length = [whole], len(whole), 2.0 * self.length

    def _joined(self) -> np.ndarray:
        """Return the sums with one row per block, in order of time."""
        rows = np.concatenate(self._parts)
        blocks, inverse = np.unique(rows[:, 0], return_inverse=True)
        out = np.zeros((len(blocks), rows.shape[1]))
        np.add.at(out, inverse, rows)
        out[:, 0] = blocks
        return out

    def blocks(self) -> Blocks | None:
        """Return residuals in blocks of time; None where no torque can be used."""
        if not self._parts:
            return None
        sums = self._joined()
        nv = (sums.shape[1] - 2) // 3
        square, activity, count = (sums[:, 2 + k * nv : 2 + (k + 1) * nv] for k in range(3))
        enough = count >= 0.5 * np.maximum(np.median(count, axis=0), 1.0)
        # near its edges a filter leaves more
        edges = np.concatenate([[1.0], sums[:, 1], [1.0]])
        beside = np.convolve(edges, np.ones(2 * EDGES + 1))[EDGES : EDGES + len(edges)]
        near = beside[1:-1] > 0.0
        enough &= ~near[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            rms = np.where(enough, np.sqrt(square / count), np.nan)
            moved = np.where(enough, np.sqrt(activity / count), np.nan)
        unused = np.all(np.isnan(rms), axis=0)
        if unused.all():
            return None
        rms[:, unused], moved[:, unused] = 0.0, 0.0
        total = np.maximum(self.counts, 1.0)
        torque = np.sqrt(np.maximum(self._torque[1] / total - (self._torque[0] / total) ** 2, 0.0))
        # what friction's reversals leave is less than friction
        least = np.maximum(PART * torque, np.sqrt(self.friction / total))
        return Blocks(sums[:, 0], rms, moved, least, self.length)

    def mass(self, leaf: int, spread: np.ndarray) -> MassFit:
        """Return the mass at a last body that explains the residual; spread: of each joint's."""
        weight = np.where(spread > 0.0, self._independent / np.maximum(spread, 1e-300) ** 2, 0.0)
        normal = np.einsum("j,jkl->kl", weight, self._normal[leaf])
        right = weight @ self._right[leaf]
        covariance = np.linalg.inv(normal + np.diag(1.0 / PRIOR**2))
        square = float(weight @ self.squares)
        return MassFit(covariance @ right, float(np.sqrt(covariance[0, 0])), normal, right, square)
