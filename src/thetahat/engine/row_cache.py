"""Rows of files that can only be read from their beginning (bags, MCAP, NPZ), set aside as plain
numbers, so that shards may begin anywhere.

Decoding a message takes longer than folding it; with a store it is done once, while the file is
surveyed. A spool is scratch: it may be deleted at any time, and is then made again by whoever needs
it. One that cannot be written (a full disk) is done without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Block, Table
from thetahat.engine.fingerprint import fingerprint
from thetahat.engine.sources import Item
from thetahat.files import replacing

BYTES = 32 * 2**30  # of all spools of a store; the oldest go first
PIECE = 65_536  # rows
DOUBLE = 8  # bytes of a number


def spool_file(folder: str, item: Item, columns: ColumnMap, reading: tuple) -> Path:
    """Where the rows of a file are set aside while it stays as it is. reading: how it is read
    (which topic of a bag), in plain values.
    """
    return Path(folder) / f"{fingerprint(item.place, item.state(), columns.columns, reading)}.rows"


class SpooledTable(Table):
    """A table whose rows are set aside as they are read."""

    def __init__(self, table: Table, file: BinaryIO) -> None:
        self._table, self._file = table, file
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    hashes_itself = property(lambda self: self._table.hashes_itself)
    notes = property(lambda self: self._table.notes)

    def blocks(self, columns: Sequence[str], run_column: str | None) -> Iterator[Block]:
        """The table's blocks."""
        for block in self._table.blocks(columns, run_column):
            if not self.failed:
                try:
                    self._file.write(np.ascontiguousarray(block.values, dtype="<f8").tobytes())
                except OSError:
                    self.failed = True
            yield block

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """The table's blocks."""
        return self._table.read(columns, run_column, first=first)

    def where(self, row: int) -> str:
        """As the table counts."""
        return self._table.where(row)


@contextmanager
def spooling(table: Table, path: Path) -> Iterator[Table]:
    """``with spooling(table, path) as table: …`` read all of it inside; the rows are at `path`
    afterwards, unless the disk is full.
    """
    stack = ExitStack()
    try:
        scratch = stack.enter_context(replacing(path, folders=True))
        file = stack.enter_context(scratch.open("wb", buffering=DOUBLE * PIECE))
    except OSError:
        stack.close()
        yield table
        return
    spooled = SpooledTable(table, file)
    try:
        yield spooled
    except BaseException as error:
        stack.__exit__(type(error), error, error.__traceback__)  # nothing of it stays
        raise
    over = RuntimeError() if spooled.failed else None
    with suppress(OSError):
        stack.__exit__(type(over) if over else None, over, None)
        evict(path, "*.rows", BYTES)


def spooled_rows(
    path: Path, columns: int, rows: int, first: int, stop: int
) -> Iterator[np.ndarray] | None:
    """Rows first … stop of a spool of so many rows; None where it is not there, or is not whole."""
    try:
        if path.stat().st_size != DOUBLE * columns * rows:
            return None
    except OSError:
        return None
    return _pieces(path, columns, first, stop)


def _pieces(path: Path, columns: int, first: int, stop: int) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        file.seek(DOUBLE * columns * first)
        for start in range(first, stop, PIECE):
            count = min(PIECE, stop - start)
            values = np.frombuffer(file.read(DOUBLE * columns * count), dtype="<f8")
            yield values.reshape(count, columns)


def evict(keep: Path, pattern: str, most: int) -> None:
    """Remove the oldest files beside this one until those of this pattern take no more than so many
    bytes.
    """
    found = []
    for path in keep.parent.glob(pattern):
        with suppress(OSError):
            found.append((path.stat().st_mtime, path.stat().st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        if path != keep:
            with suppress(OSError):
                path.unlink()
            total -= size
