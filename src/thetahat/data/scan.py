"""The first pass over a log: every number checked, hashes computed, runs found, channels
audited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.data.audit import Audit
from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Table
from thetahat.data.formats.table import label
from thetahat.data.row_batches import BATCH_ROWS, Batch, batches
from thetahat.data.timestamps import MIN_RUN, RunSplitter, WrapFinder
from thetahat.data.types import Finding, Mask, Run, Source
from thetahat.errors import NotIdentifiable, known
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

QUATERNION_TOLERANCE = 1e-3  # as the dynamics ask
SHOWN_GAPS = 8  # findings of one gap each; the others are counted


def angle_positions(robot: Robot) -> list[int]:
    """Positions in q that are angles, and may therefore wrap around."""
    found = []
    for node in robot.tree.independent:
        first = robot.tree.q_index[node.name]
        if node.kind is JointKind.REVOLUTE:
            found.append(first)
        elif node.kind is JointKind.PLANAR:
            found.append(first + 2)
    return found


@dataclass(frozen=True, eq=False)
class Surveyed:
    """What the first pass found."""

    sources: tuple[Source, ...]
    rows: int
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    masks: tuple[Mask, ...]
    wraps: dict[
        int, tuple[np.ndarray, np.ndarray]
    ]  # by position in q: rows where the encoder jumped, by how many turns


class Survey:
    """Reads every file once, and knows afterwards what there is to know."""

    def __init__(self, robot: Robot, tables: Sequence[tuple[Table, ColumnMap]]) -> None:
        self._robot, self._tables = robot, tables
        self._splitter, self._wraps = RunSplitter(), WrapFinder(angle_positions(robot))
        self._audit = Audit(robot, tables[0][1], where=self._where, file=label(tables[0][0].path))
        self._rows = [0] * len(tables)

    def run(self) -> Surveyed:
        """Read everything."""
        for batch in batches(self._tables, BATCH_ROWS):
            self._take(batch)
        self._splitter.finish()
        for (table, _), rows in zip(self._tables, self._rows, strict=True):
            if not rows:
                raise NotIdentifiable(
                    f"{label(table.path)} has a header but no rows; record the robot while it moves"
                )
        total = sum(self._rows)
        if not self._splitter.runs:
            raise NotIdentifiable(
                f"{label(self._tables[0][0].path)} has {total} rows and no run of at least"
                f" {MIN_RUN}; record longer, without pauses"
            )
        audited = self._audit.finish()
        silent = [Mask(at, 0, total, "no torque column") for at in self._tables[0][1].silent]
        return Surveyed(
            sources=tuple(
                Source(str(file), digest, state.size)
                for table, _ in self._tables
                for file, digest, state in zip(
                    table.files, table.sha256 or (), table.states, strict=True
                )
            ),
            rows=total,
            runs=tuple(self._splitter.runs),
            findings=(
                *self._column_findings(),
                *self._stamp_findings(),
                *self._wrap_findings(),
                *audited.findings,
            ),
            masks=(*silent, *audited.masks),
            wraps=self._wraps.wraps(),
        )

    def _take(self, batch: Batch) -> None:
        if batch.file_row == 0:
            self._splitter.next_file()
        self._rows[batch.file] += len(batch.values)
        stem, several = batch.table.path.stem, len(self._tables) > 1
        labels = batch.labels if batch.columns.run else ((0, stem),)
        prefix = f"{stem}/" if several and batch.columns.run else ""
        arrays = batch.columns.split(batch.values, self._robot, by_column=True)
        starts = self._splitter.feed(
            arrays["t"],
            labels,
            row=batch.row,
            stem=prefix,
            table=batch.table,
            file_row=batch.file_row,
        )  # type: ignore[arg-type]
        self._check_quaternions(arrays["q"], batch)
        self._wraps.feed(arrays["q"], starts, batch.row)  # type: ignore[arg-type]
        self._audit.feed(arrays, starts, row=batch.row, period=self._splitter.period)

    def _check_quaternions(self, q: np.ndarray | None, batch: Batch) -> None:
        assert q is not None
        for name, at in self._robot.tree.quaternions:
            length = np.linalg.norm(q[:, at : at + 4], axis=1)
            wrong = np.abs(length - 1.0) > QUATERNION_TOLERANCE
            if wrong.any():
                row = int(np.argmax(wrong))
                raise batch.table.problem(
                    batch.file_row + row,
                    f"the quaternion of joint {name!r} has length {length[row]:.4g}; log unit"
                    " quaternions (qx, qy, qz, qw)",
                )

    def _where(self, row: int) -> str:
        """A row of the log as a place in a file."""
        for (table, _), rows in zip(self._tables, self._rows, strict=True):
            if row < rows or (table, rows) == (self._tables[-1][0], self._rows[-1]):
                place = table.where(row)
                return place if len(self._tables) == 1 else f"{label(table.path)}, {place}"
            row -= rows
        return f"row {row}"

    # -- findings ----------------------------------------------------------------------------------

    def _column_findings(self) -> Iterator[Finding]:
        columns = self._tables[0][1]
        for table, _ in self._tables:
            for kind, sentence in table.notes:
                yield Finding(kind, None, None, f"{label(table.path)}: {sentence}")
        ignored = dict.fromkeys(name for _, found in self._tables for name in found.ignored)
        if ignored:
            yield Finding(
                "ignored-columns",
                None,
                None,
                "columns that are nothing of the robot's were ignored:"
                f" {known(name or '(no name)' for name in ignored)}",
            )
        for kind in columns.incomplete:
            yield Finding(
                "incomplete",
                None,
                None,
                f"only some joints have a column of {kind}; {kind} is computed from the positions"
                " instead",
            )
        if columns.locked:
            yield Finding(
                "locked-joints",
                None,
                None,
                f"joints without a column are held at zero: {known(columns.locked)}",
            )
        measured = [
            name
            for name in (self._robot.velocity_names[at] for at in columns.silent)
            if name.split(".")[0] not in columns.locked
        ]
        if measured:
            yield Finding(
                "no-torque",
                None,
                None,
                f"joints without a torque column do not enter the fit: {known(measured)}",
            )

    def _stamp_findings(self) -> Iterator[Finding]:
        gaps = self._splitter.gaps
        for row, length, period in gaps[:SHOWN_GAPS]:
            yield Finding(
                "gap",
                None,
                (row - 1, row + 1),
                f"a gap of {length:.4g} s ({length / period:.3g} periods) at {self._where(row)};"
                " the run is split there",
            )
        if len(gaps) > SHOWN_GAPS:
            yield Finding(
                "gap",
                None,
                (gaps[SHOWN_GAPS][0], gaps[-1][0] + 1),
                f"{len(gaps) - SHOWN_GAPS} more gaps up to {self._where(gaps[-1][0])}; runs are"
                " split there",
            )
        dropped = self._splitter.dropped
        if dropped:
            rows = sum(run.rows for run in dropped)
            first, last = dropped[0].first_row, dropped[-1].stop_row
            yield Finding(
                "short-run",
                None,
                (first, last),
                f"{rows} rows in {len(dropped)} runs of fewer than {MIN_RUN} rows, first at"
                f" {self._where(first)}, were left out",
            )
        worst = max(self._splitter.runs, key=lambda run: run.jitter / run.period)
        if worst.jitter > 0.05 * worst.period:
            yield Finding(
                "jitter",
                None,
                (worst.first_row, worst.stop_row),
                f"stamps jitter by {worst.jitter * 1e3:.3g} ms (standard deviation) around"
                f" {worst.period * 1e3:.4g} ms in run {worst.name!r}; they are kept as they are,"
                " and derivatives go by them",
            )

    def _wrap_findings(self) -> Iterator[Finding]:
        names = {
            at: node.name
            for node in self._robot.tree.independent
            for at in range(
                self._robot.tree.q_index[node.name],
                self._robot.tree.q_index[node.name] + node.kind.nq,
            )
        }
        for angle, (rows, _) in self._wraps.wraps().items():
            times = f"{len(rows)} time{'s' * (len(rows) != 1)}"
            yield Finding(
                "wrap",
                names[angle],
                (int(rows[0]), int(rows[-1]) + 1),
                f"the encoder of joint {names[angle]!r} wrapped around {times}, first at"
                f" {self._where(int(rows[0]))}; its angle was unwrapped",
            )
