"""Memories of samples: a window, all of them, all of them fading, or the informative ones.

Each takes one sample at a time and gives what estimators need: the information of what is
remembered, and, quickly, its triangle.

The fading memory fades only in the directions that new samples say something about. Forgetting
everything by a factor at every step, as plain recursive least squares does, empties the memory
while the robot stands still: the covariance grows by 1/λ a step and overflows after some 71,000
(λ = 0.99), and the parameters drift off on noise. Here forgetting keeps to the subspace of
information that was excited [Cao2000, Lai2024], in square-root form and block by block. With L the
triangle of a joint's rows, and E that of the last B of them (which are in L, too):

    E L⁻¹ = U diag(s) Vᵀ         s² ∈ [0, 1]: the share of what is known in each direction that the
                                 last B samples brought
    [L z] ← diag(√g) Vᵀ [L z]    g = λ^(B·min(1, s²/τ)),  τ = ½(1 − λᴮ)

B is half of the memory, but at least two rows per column, as fewer cannot show all directions. A
motion that goes on has s² = 1 − λᴮ in all directions, which are then forgotten by λ per sample, as
in the plain scheme: a memory of 1/(1 − λ) samples. A direction that nothing excites has s = 0 and
is not touched, ever; one that noise alone excites gains more than it loses. While the robot stands
still, the pose's own direction has s = 1 and settles at B/(1 − λᴮ) samples: bounded above and below
for any number of them. The torques' column goes along, so forgetting as such changes no parameter
(L x = z before, L x = z after); it does not depend on units; and no matrix is ever squared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.data.samples import MASKED, USABLE, Samples
from thetahat.identification import factor as f
from thetahat.identification.information import Information, information
from thetahat.identification.informative.informative_buffer import InformativeBuffer
from thetahat.model.robot import Robot
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.config import Forgetting, Growing, Informative, MemoryConfig
from thetahat.online.stacked_factor import Stack

SPANS = 2  # rows per column: fewer cannot show which directions are excited
HIDDEN = 1e-10  # of a column's length: what keeps L⁻¹ finite in directions that nothing has shown


@dataclass(frozen=True, eq=False)
class JointSums:
    """Sums over the rows of every joint, (nv,) each."""

    e2: np.ndarray  # squared errors [N²·m² or N²]
    u2: np.ndarray  # squared torques
    rows: np.ndarray


class Memory(ABC):
    """Samples, remembered."""

    def __init__(self, robot: Robot, size: int) -> None:
        self.robot, self.size, self.stack = robot, size, Stack(robot)
        self.count = 0  # samples taken since it was empty

    def __len__(self) -> int:
        return self.count

    @property
    def full(self) -> bool:
        """Whether there are as many samples as the window holds."""
        return len(self) >= self.size

    @abstractmethod
    def add(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """Take one sample, (1, ·) each; valid: (nv,) which torques may be used."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @abstractmethod
    def information(self) -> Information:
        """The information of what is remembered."""

    @abstractmethod
    def triangle(self, joints: np.ndarray | None = None) -> np.ndarray:
        """The factor of all rows in base parameters, (p + 1, p + 1), each joint's times its
        weight.
        """

    @abstractmethod
    def sums(self, x_base: np.ndarray) -> JointSums:
        """Sums of every joint's errors and torques at these base parameters."""

    @property
    def samples(self) -> Samples | None:
        """The samples themselves, where they are kept."""
        return None


@dataclass(frozen=True, eq=False)
class _Held:
    """The samples that a memory keeps, (n, ·) each."""

    sample: FilteredSample
    valid: np.ndarray  # (n, nv) bool


class SampleMemory(Memory):
    """A memory that keeps samples: its rows are computed when they are asked for."""

    _rows: np.ndarray | None = None

    @abstractmethod
    def _held(self) -> _Held:
        """What is kept, in the order it came."""

    @property
    def samples(self) -> Samples:
        """In the order they came."""
        held = self._held()
        q, dq, ddq, tau = (array.copy() for array in held.sample)
        reason = np.where(held.valid, np.uint8(USABLE), np.uint8(MASKED))
        return Samples(q=q, dq=dq, ddq=ddq, tau=tau, reason=None if np.all(held.valid) else reason)

    def information(self) -> Information:
        """Folded anew."""
        return information(self.robot, self.samples, threads=1)

    def _matrices(self) -> np.ndarray:
        if self._rows is None:
            held = self._held()
            weights = None if np.all(held.valid) else held.valid.astype(float)
            self._rows = self.stack.rows(held.sample, weights)
        return self._rows

    def triangle(self, joints: np.ndarray | None = None) -> np.ndarray:
        """Of the rows of what is kept."""
        return self.stack.of_rows(self._matrices(), joints)

    def sums(self, x_base: np.ndarray) -> JointSums:
        """From the rows themselves."""
        chunks = self._matrices().reshape(-1, self.stack.height, self._matrices().shape[1])
        starts = self.stack.plan.starts
        e2, u2 = np.empty(self.robot.nv), np.empty(self.robot.nv)
        for v, own in enumerate(self.stack.positions):
            u = chunks[:, starts[v + 1] - 1]
            e = u - np.einsum("i,kis->ks", x_base[own], chunks[:, starts[v] : starts[v + 1] - 1])
            e2[v], u2[v] = np.vdot(e, e), np.vdot(u, u)
        return JointSums(e2, u2, np.count_nonzero(self._held().valid, axis=0))


class WindowMemory(SampleMemory):
    """The last `size` samples (paper: 50). What falls out leaves no trace: every update is computed
    from those that are left.
    """

    def __init__(self, robot: Robot, size: int) -> None:
        super().__init__(robot, size)
        # the window moves along, and back once it reaches the end
        widths = (robot.nq, robot.nv, robot.nv, robot.nv)
        self._arrays = FilteredSample(*(np.zeros((2 * size, width)) for width in widths))
        self._valid = np.zeros((2 * size, robot.nv), dtype=bool)
        self._first = 0

    def __len__(self) -> int:
        return min(self.count, self.size)

    def add(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """The oldest makes room."""
        if len(self) == self.size:
            self._first += 1
            if self._first == self.size:
                for array in (*self._arrays, self._valid):
                    array[: self.size - 1] = array[self.size : 2 * self.size - 1]
                self._first = 0
        at = self._first + min(self.count, self.size - 1)
        for array, value in zip(self._arrays, sample, strict=True):
            array[at] = value[0]
        self._valid[at] = valid
        self.count += 1
        self._rows = None

    def clear(self) -> None:
        """Empty."""
        self.count, self._first, self._rows = 0, 0, None

    def _held(self) -> _Held:
        span = slice(self._first, self._first + len(self))
        return _Held(FilteredSample(*(array[span] for array in self._arrays)), self._valid[span])


class InformativeMemory(SampleMemory):
    """At most `size` samples, those that tell most about the parameters (`InformativeBuffer`); it
    turns outliers away by itself.
    """

    def __init__(self, robot: Robot, size: int) -> None:
        super().__init__(robot, size)
        self.buffer = InformativeBuffer(robot, size)

    def __len__(self) -> int:
        return len(self.buffer)

    def add(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """Offer one sample."""
        if self.buffer.push(*(array[0] for array in sample), valid=valid):
            self._rows = None
        self.count += 1

    def clear(self) -> None:
        """A new buffer."""
        self.buffer, self.count, self._rows = InformativeBuffer(self.robot, self.size), 0, None

    def _held(self) -> _Held:
        kept = self.buffer.samples
        return _Held(FilteredSample(kept.q, kept.dq, kept.ddq, kept.tau), kept.valid)


class RecursiveMemory(Memory):
    """All samples in one triangle per joint, new rows by rotations."""

    def __init__(self, robot: Robot, size: int) -> None:
        super().__init__(robot, size)
        self._factors = np.zeros(int(self.stack.starts[-1, 1]))
        self._weight = np.zeros(robot.nv)  # rows remembered, faded ones as what is left of them
        self._row = np.zeros(int(np.max(np.diff(self.stack.plan.starts))))

    def add(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """Rotate the sample's rows in."""
        self._fold(self.stack.rows(sample), valid)
        self._weight += valid
        self.count += 1

    def _fold(self, matrices: np.ndarray, valid: np.ndarray) -> None:
        self.stack.kernel.fold_sample(
            matrices, 0, self.stack.starts, valid, self._factors, self._row
        )

    def clear(self) -> None:
        """Empty."""
        self._factors[:], self._weight[:], self.count = 0.0, 0.0, 0

    def _triangles(self, factors: np.ndarray) -> list[np.ndarray]:
        """Every joint's own, as views."""
        places = zip(self.stack.starts[:-1, 1], np.diff(self.stack.plan.starts), strict=True)
        return [factors[at : at + n * n].reshape(n, n) for at, n in places]

    def information(self) -> Information:
        """What estimators take."""
        triangles = self._triangles(self._factors)
        upright = tuple(R * np.where(np.diag(R) < 0.0, -1.0, 1.0)[:, None] for R in triangles)
        base, positions = self.stack.base, self.stack.positions
        rows = np.round(self._weight).astype(np.int64)
        return Information(self.robot, base, positions, upright, rows, self.count)

    def triangle(self, joints: np.ndarray | None = None) -> np.ndarray:
        """Of every joint's own."""
        return self.stack.of_factors(self._factors, joints)

    def sums(self, x_base: np.ndarray) -> JointSums:
        """Read off the triangles."""
        e2, u2 = np.empty(self.robot.nv), np.empty(self.robot.nv)
        triangles = self._triangles(self._factors)
        for v, (own, R) in enumerate(zip(self.stack.positions, triangles, strict=True)):
            e = R[:, -1] - R[:, :-1] @ x_base[own]
            e2[v], u2[v] = e @ e, R[:, -1] @ R[:, -1]
        return JointSums(e2, u2, self._weight.copy())


class ForgettingMemory(RecursiveMemory):
    """One triangle per joint, which fades by `factor` per sample in the directions that are
    excited; 1: nothing fades.
    """

    def __init__(self, robot: Robot, size: int, factor: float) -> None:
        super().__init__(robot, size)
        self.factor = factor
        half = round(0.5 / (1.0 - factor)) if factor < 1.0 else 0  # of those remembered
        # B of every joint
        self.blocks = np.array([max(half, SPANS * len(own), 1) for own in self.stack.positions])
        self._recent = np.zeros_like(self._factors)
        self._rows = np.zeros(robot.nv, dtype=np.int64)  # in the block

    def clear(self) -> None:
        """Empty."""
        super().clear()
        self._recent[:], self._rows[:] = 0.0, 0

    def _fold(self, matrices: np.ndarray, valid: np.ndarray) -> None:
        super()._fold(matrices, valid)
        if self.factor == 1.0:
            return
        self.stack.kernel.fold_sample(
            matrices, 0, self.stack.starts, valid, self._recent, self._row
        )
        self._rows += valid
        if np.any(self._rows >= self.blocks):
            with f.blas_threads().limit(limits=1, user_api="blas"):
                for v in np.flatnonzero(self._rows >= self.blocks):
                    self._forget(int(v))

    def _forget(self, v: int) -> None:
        """Let a joint's old rows fade where its last block told something."""
        whole, recent = (self._triangles(each)[v] for each in (self._factors, self._recent))
        kept = self.factor ** self.blocks[v]
        p = len(whole) - 1
        L, E = whole[:p, :p], recent[:p, :p]
        lengths = np.linalg.norm(L, axis=0)
        floor = HIDDEN * np.where(lengths > 0.0, lengths, 1.0)
        full = f.triangle(np.asfortranarray(np.vstack([L, np.diag(floor)])))
        both = solve_triangular(full, np.hstack([E.T, L.T]), trans="T", check_finite=False).T
        _, s, Vt = np.linalg.svd(both[:p] @ both[p:].T)  # E·L⁺, finite where L is short
        root = kept ** (0.5 * np.minimum(1.0, s**2 / (0.5 * (1.0 - kept))))
        whole[:p] = f.triangle(np.asfortranarray(root[:, None] * (Vt @ whole[:p])))[:p]
        whole[p, p] *= np.sqrt(kept)
        recent[:], self._rows[v], self._weight[v] = 0.0, 0, kept * self._weight[v]


def create_memory(config: MemoryConfig, robot: Robot, size: int) -> Memory:
    """Return an empty memory of this kind; size: samples that fill it."""
    match config:
        case Growing():
            return RecursiveMemory(robot, size)
        case Forgetting(factor):
            return ForgettingMemory(robot, size, factor)
        case Informative():
            return InformativeMemory(robot, size)
    return WindowMemory(robot, size)
