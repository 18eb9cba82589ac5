"""Data types of a log: files, runs, findings, masks, chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypedDict

import numpy as np

from thetahat.data.finding_kinds import EFFECTS, NOTE, SUSPECT


@dataclass(frozen=True)
class Source:
    """File that a log was read from."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Run:
    """Rows between two gaps: one uninterrupted motion."""

    name: str
    rows: int
    first_row: int  # in the log, counted from 0 over all files
    start: float  # first time stamp [s]
    stop: float  # last time stamp [s]
    period: float  # median step [s]
    jitter: float  # standard deviation of the step [s]

    @property
    def stop_row(self) -> int:
        """Return one past its last row."""
        return self.first_row + self.rows


@dataclass(frozen=True)
class Finding:
    """Result of the audit: what was found, where, and what was done about it."""

    kind: str
    joint: str | None
    rows: tuple[int, int] | None  # first row and one past the last, over all files
    message: str
    kept: bool = False  # because the user asked for it (--keep), although it would be left out

    @property
    def effect(self) -> str:
        """What was done: note, corrected, removed, or suspect where nothing was changed."""
        return SUSPECT if self.kept else EFFECTS.get(self.kind, NOTE)

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Mask:
    """Rows in which the torque of one degree of freedom must not be used."""

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
    contact: np.ndarray | None = None  # (n, feet) 1 where a foot touches the ground

    def __len__(self) -> int:
        return len(self.t)

    def part(self, first: int, stop: int) -> Chunk:
        """Return rows first … stop of this chunk, without a copy."""
        rows = slice(first, stop)
        return Chunk(
            t=self.t[rows],
            q=self.q[rows],
            dq=None if self.dq is None else self.dq[rows],
            ddq=None if self.ddq is None else self.ddq[rows],
            tau=None if self.tau is None else self.tau[rows],
            run=self.run,
            row=self.row + first,
            contact=None if self.contact is None else self.contact[rows],
        )


class Channels(TypedDict):
    """Rows of a log in the robot's order; None for what the log does not have."""

    t: np.ndarray  # (n,)
    q: np.ndarray  # (n, nq)
    dq: np.ndarray | None  # (n, nv)
    ddq: np.ndarray | None  # (n, nv)
    tau: np.ndarray | None  # (n, nv)
    contact: np.ndarray | None  # (n, feet)


class LogLike(Protocol):
    """The part of a log (thetahat.data.log.Log) that preparing it needs."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the runs in the order of their rows."""

    @property
    def masks(self) -> tuple[Mask, ...]:
        """Return the torques that must not be used."""

    @property
    def has_dq(self) -> bool:
        """Return whether velocities were logged."""

    @property
    def has_ddq(self) -> bool:
        """Return whether accelerations were logged."""

    @property
    def has_tau(self) -> bool:
        """Return whether torques were logged."""

    def chunks(self, rows: int = ...) -> Iterator[Chunk]:
        """Return the rows in order, in chunks that lie inside one run each."""

    def read(self) -> list[Chunk]:
        """Return one chunk per run, all in memory."""
