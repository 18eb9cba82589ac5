"""A `Log` of arrays in memory: what a simulated robot recorded, audited as if it had been read from
a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from thetahat.data.columns import Resolver
from thetahat.data.formats import Block, Table
from thetahat.data.formats.table import State, check_names
from thetahat.data.log import Log, scan_tables
from thetahat.errors import UsageError
from thetahat.model.robot import Robot


class ArrayTable(Table):
    """Named columns in memory."""

    hashes_itself = True

    def __init__(self, name: str, names: Sequence[str], values: np.ndarray) -> None:
        self.path, self.widths, self.names = Path(name), {}, tuple(names)
        check_names(self.path, self.names)
        self._values = values
        self.files = (self.path,)
        self.states = (State(values.nbytes, 0, 0),)
        self.sha256 = (hashlib.sha256(np.ascontiguousarray(values)).hexdigest(),)

    def blocks(self, columns: Sequence[str], run_column: str | None) -> Iterator[Block]:
        """All rows at once; there is no file that could change meanwhile."""
        yield from self.read(columns, run_column, first=False)

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """All rows at once, checked."""
        place = [self.names.index(column) for column in columns]
        yield Block(self.check_finite(self._values[:, place], columns, 0))

    def where(self, row: int) -> str:
        """Rows count as NumPy counts."""
        return f"row {row} (counting from 0)"


def column_names(robot: Robot, kinds: Sequence[str]) -> list[str]:
    """t, then q.<joint>, dq.<joint> … for these kinds, with a suffix where a joint has several
    degrees of freedom.
    """
    names = ["t"]
    for kind in kinds:
        for node in robot.tree.independent:
            suffixes = node.kind.coordinates if kind == "q" else node.kind.directions
            names += [
                f"{kind}.{node.name}.{suffix}" if suffix else f"{kind}.{node.name}"
                for suffix in suffixes
            ]
    return names


def record(
    robot: Robot,
    t: np.ndarray,
    q: np.ndarray,
    *,
    dq: np.ndarray | None = None,
    ddq: np.ndarray | None = None,
    tau: np.ndarray | None = None,
    name: str = "recording",
) -> Log:
    """A log of arrays (n, ·) with one row per time stamp, audited like one from a file; its source
    is their SHA-256.
    """
    arrays = {
        kind: np.asarray(a, dtype=float)
        for kind, a in (("q", q), ("dq", dq), ("ddq", ddq), ("tau", tau))
        if a is not None
    }
    t = np.asarray(t, dtype=float)
    for kind, array in arrays.items():
        shape = (len(t), robot.nq if kind == "q" else robot.nv)
        if t.ndim != 1 or array.shape != shape:
            raise UsageError(
                f"{kind} has shape {array.shape}; expected {shape}, one row per time stamp"
            )
    table = ArrayTable(
        name, column_names(robot, list(arrays)), np.column_stack([t, *arrays.values()])
    )
    columns = Resolver(robot, table.names, widths={}, patterns={}, file=name).resolve()
    return scan_tables(robot, [(table, columns)])
