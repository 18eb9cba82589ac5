"""What a log is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Source:
    """A file the log came from."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Run:
    """Rows between two gaps: one uninterrupted piece of motion."""

    name: str
    rows: int
    first_row: int  # in the log, counted from 0 over all files
    start: float  # first stamp [s]
    stop: float  # last stamp [s]
    period: float  # median step [s]
    jitter: float  # standard deviation of the step [s]

    @property
    def stop_row(self) -> int:
        """One past its last row."""
        return self.first_row + self.rows


@dataclass(frozen=True)
class Finding:
    """Something the audit saw: what, where, and what was done about it."""

    kind: str
    joint: str | None
    rows: tuple[int, int] | None  # first row and one past the last, over all files
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Mask:
    """Torques of one degree of freedom that must not be used."""

    joint: int  # degree of freedom: a position in dq
    first_row: int
    stop_row: int
    reason: str


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive rows of one run."""

    t: np.ndarray  # (n,) [s]
    q: np.ndarray  # (n, nq) [rad or m]
    dq: np.ndarray | None  # (n, nv)
    ddq: np.ndarray | None  # (n, nv)
    tau: np.ndarray | None  # (n, nv) [N·m or N]
    run: int  # index of its run
    row: int  # its first row in the log, from 0 over all files

    def __len__(self) -> int:
        return len(self.t)
