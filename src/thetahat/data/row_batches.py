"""Rows of all files of a log in batches whose size does not depend on the formats' blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Block, Table

BATCH_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one file: the requested number, or fewer at the end of the file."""

    values: np.ndarray
    labels: tuple[tuple[int, str], ...]
    row: int  # in the log
    file_row: int  # in the file
    file: int
    columns: ColumnMap
    table: Table


def batches(tables: Sequence[tuple[Table, ColumnMap]], rows: int) -> Iterator[Batch]:
    """Return the rows of all files in batches of `rows`."""
    row = 0
    for number, (table, columns) in enumerate(tables):
        file_row = 0
        for block in _resized(table.blocks(columns.columns, columns.run), rows):
            yield Batch(block.values, block.labels, row, file_row, number, columns, table)
            row, file_row = row + len(block), file_row + len(block)


def _resized(blocks: Iterator[Block], rows: int) -> Iterator[Block]:
    """Return the same rows in blocks of `rows`."""
    waiting: list[Block] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block)
        while count >= rows:
            whole = _stacked(waiting)
            yield _cut(whole, 0, rows)
            waiting, count = [_cut(whole, rows, count)], count - rows
    if count:
        yield _stacked(waiting)


def _stacked(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    labels, at = [], 0
    for block in blocks:
        labels += [(at + row, name) for row, name in block.labels]
        at += len(block)
    return Block(np.concatenate([block.values for block in blocks]), tuple(labels))


def _cut(block: Block, begin: int, end: int) -> Block:
    """Return rows begin … end; the run's name at `begin` is stated there."""
    labels = [(max(row, begin) - begin, name) for row, name in block.labels if row < end]
    last = max((i for i, (row, _) in enumerate(labels) if row == 0), default=0)
    return Block(block.values[begin:end], tuple(labels[last:]))
