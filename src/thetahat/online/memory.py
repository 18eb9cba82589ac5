"""What the identifier remembers of the samples it took: a window, all of them, all of them fading,
or those that say most.

Each takes one sample at a time and gives what estimators need: the information of what is
remembered, and, quickly, its triangle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from thetahat.data.samples import MASKED, USABLE, Samples
from thetahat.identification.information import Information, information
from thetahat.identification.informative.informative_buffer import InformativeBuffer
from thetahat.model.robot import Robot
from thetahat.online.stacked_factor import Stack


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
    def add(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, tau: np.ndarray, valid: np.ndarray
    ) -> None:
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
    def sums(self, x_base: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(e'e, u'u, rows) of every joint at these base parameters, (nv,) each."""

    @property
    def samples(self) -> Samples | None:
        """The samples themselves, where they are kept."""
        return None


class _Kept(Memory):
    """A memory that keeps samples: its rows are computed when they are asked for."""

    _rows: np.ndarray | None = None

    @abstractmethod
    def _held(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """q, dq, ddq, tau, valid of what is kept."""

    @property
    def samples(self) -> Samples:
        """In the order they came."""
        *arrays, valid = self._held()
        reason = None if np.all(valid) else np.where(valid, np.uint8(USABLE), np.uint8(MASKED))
        return Samples(
            **{
                name: array.copy()
                for name, array in zip(("q", "dq", "ddq", "tau"), arrays, strict=True)
            },
            reason=reason,
        )

    def information(self) -> Information:
        """Folded anew."""
        return information(self.robot, self.samples, threads=1)

    def _matrices(self) -> np.ndarray:
        if self._rows is None:
            *arrays, valid = self._held()
            self._rows = self.stack.rows(
                *arrays, weights=None if np.all(valid) else valid.astype(float)
            )
        return self._rows

    def triangle(self, joints: np.ndarray | None = None) -> np.ndarray:
        """Of the rows of what is kept."""
        return self.stack.of_rows(self._matrices(), joints)

    def sums(self, x_base: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """From the rows themselves."""
        chunks = self._matrices().reshape(-1, self.stack.height, self._matrices().shape[1])
        starts = self.stack.plan.starts
        e2, u2 = np.empty(self.robot.nv), np.empty(self.robot.nv)
        for v, own in enumerate(self.stack.positions):
            u = chunks[:, starts[v + 1] - 1]
            e = u - np.einsum("i,kis->ks", x_base[own], chunks[:, starts[v] : starts[v + 1] - 1])
            e2[v], u2[v] = np.vdot(e, e), np.vdot(u, u)
        return e2, u2, np.count_nonzero(self._held()[4], axis=0)


class Window(_Kept):
    """The last `size` samples (paper: 50). What falls out leaves no trace: every update is computed
    from those that are left.
    """

    def __init__(self, robot: Robot, size: int) -> None:
        super().__init__(robot, size)
        widths = (robot.nq, robot.nv, robot.nv, robot.nv)
        self._arrays = tuple(
            np.zeros((2 * size, width)) for width in widths
        )  # the window moves along, and back once it reaches the end
        self._valid = np.zeros((2 * size, robot.nv), dtype=bool)
        self._first = 0

    def __len__(self) -> int:
        return min(self.count, self.size)

    def add(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, tau: np.ndarray, valid: np.ndarray
    ) -> None:
        """The oldest makes room."""
        if len(self) == self.size:
            self._first += 1
            if self._first == self.size:
                for array in (*self._arrays, self._valid):
                    array[: self.size - 1] = array[self._first : self._first + self.size - 1]
                self._first = 0
                at = self.size - 1
            else:
                at = self._first + self.size - 1
        else:
            at = self._first + len(self)
        for array, value in zip(self._arrays, (q, dq, ddq, tau), strict=True):
            array[at] = value[0]
        self._valid[at] = valid
        self.count += 1
        self._rows = None

    def clear(self) -> None:
        """Empty."""
        self.count, self._first, self._rows = 0, 0, None

    def _held(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        span = slice(self._first, self._first + len(self))
        return (*(array[span] for array in self._arrays), self._valid[span])


class Informative(_Kept):
    """At most `size` samples, those that tell most about the parameters (`InformativeBuffer`); it
    turns outliers away by itself.
    """

    def __init__(self, robot: Robot, size: int) -> None:
        super().__init__(robot, size)
        self.buffer = InformativeBuffer(robot, size)

    def __len__(self) -> int:
        return len(self.buffer)

    def add(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, tau: np.ndarray, valid: np.ndarray
    ) -> None:
        """Offer one sample."""
        if self.buffer.push(q[0], dq[0], ddq[0], tau[0], valid=valid):
            self._rows = None
        self.count += 1

    def clear(self) -> None:
        """A new buffer."""
        self.buffer, self.count, self._rows = InformativeBuffer(self.robot, self.size), 0, None

    def _held(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        samples = self.buffer.samples
        return samples.q, samples.dq, samples.ddq, samples.tau, samples.valid


class Recursive(Memory):
    """All samples in one triangle per joint, new rows by rotations."""

    def __init__(self, robot: Robot, size: int) -> None:
        super().__init__(robot, size)
        self._factors = np.zeros(int(self.stack.starts[-1, 1]))
        self._weight = np.zeros(robot.nv)  # rows remembered, faded ones as what is left of them
        self._row = np.zeros(int(np.max(np.diff(self.stack.plan.starts))))

    def add(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, tau: np.ndarray, valid: np.ndarray
    ) -> None:
        """Rotate the sample's rows in."""
        self._fold(self.stack.rows(q, dq, ddq, tau), valid)
        self._weight += valid
        self.count += 1

    def _fold(self, matrices: np.ndarray, valid: np.ndarray) -> None:
        self.stack.kernel.fold_sample(
            matrices, 0, self.stack.starts, valid, self._factors, self._row
        )

    def clear(self) -> None:
        """Empty."""
        self._factors[:], self._weight[:], self.count = 0.0, 0.0, 0

    def _triangles(self, factors: np.ndarray | None = None) -> list[np.ndarray]:
        """Every joint's own, as views."""
        factors, sizes = (
            self._factors if factors is None else factors,
            np.diff(self.stack.plan.starts),
        )
        return [
            factors[at : at + n * n].reshape(n, n)
            for at, n in zip(self.stack.starts[:-1, 1], sizes, strict=True)
        ]

    def information(self) -> Information:
        """What estimators take."""
        upright = tuple(
            R * np.where(np.diag(R) < 0.0, -1.0, 1.0)[:, None] for R in self._triangles()
        )
        return Information(
            self.robot,
            self.stack.base,
            self.stack.positions,
            upright,
            np.round(self._weight).astype(np.int64),
            self.count,
        )

    def triangle(self, joints: np.ndarray | None = None) -> np.ndarray:
        """Of every joint's own."""
        return self.stack.of_factors(self._factors, joints)

    def sums(self, x_base: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read off the triangles."""
        e2, u2 = np.empty(self.robot.nv), np.empty(self.robot.nv)
        for v, (own, R) in enumerate(zip(self.stack.positions, self._triangles(), strict=True)):
            e = R[:, -1] - R[:, :-1] @ x_base[own]
            e2[v], u2[v] = e @ e, R[:, -1] @ R[:, -1]
        return e2, u2, self._weight.copy()


class Growing(Recursive):
    """All samples since the beginning (paper, the leg): the same as folding them at once."""
