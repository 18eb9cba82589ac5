"""The first pass over a log: every number checked, hashes computed, runs found, channels
audited.

Every file is scanned by itself (`scan_file`), in this process or on a worker; what needs all of
them (limits at which torques saturate, signs, the direction of gravity) is decided when their
scans are merged (`merge_scans`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.audit import Audit, AuditScan
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


Wraps = dict[int, tuple[np.ndarray, np.ndarray]]
# by position in q: rows where the encoder jumped, by how many turns


@dataclass(frozen=True, eq=False)
class FileScan:
    """What one pass over a file finds, rows counted from its own first."""

    name: str  # of the file, for runs that no column names
    sources: tuple[Source, ...]
    rows: int
    columns: ColumnMap
    runs: tuple[Run, ...]  # named by their label; "" where no column states one
    dropped: tuple[Run, ...]  # too short
    gaps: tuple[tuple[int, float, float], ...]  # row after the gap, its length and the period [s]
    wraps: Wraps
    audit: AuditScan


@dataclass(frozen=True, eq=False)
class LogScan:
    """What the first pass over all files of a log finds."""

    sources: tuple[Source, ...]
    rows: int
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    masks: tuple[Mask, ...]
    wraps: Wraps
    unused: tuple[tuple[str, int], ...]  # logged dq and ddq that do not follow the position


def scan_file(robot: Robot, table: Table, columns: ColumnMap) -> FileScan:
    """Read a file once from front to back."""
    splitter, wraps = RunSplitter(), WrapFinder(angle_positions(robot))
    audit = Audit(robot, columns, where=table.where, file=label(table.path))
    total = 0
    for batch in batches([(table, columns)], BATCH_ROWS):
        arrays = columns.split(batch.values, robot, by_column=True)
        t, q = arrays["t"], arrays["q"]
        assert t is not None
        assert q is not None
        labels = batch.labels if columns.run else ((0, ""),)
        starts = splitter.feed(t, labels, row=batch.row, table=table)
        _check_quaternions(robot, q, batch)
        wraps.feed(q, starts, batch.row)
        audit.feed(arrays, starts, row=batch.row, period=splitter.period)
        total += len(batch.values)
    splitter.finish()
    return FileScan(
        name=table.path.stem,
        sources=tuple(
            Source(str(file), digest, state.size)
            for file, digest, state in zip(
                table.files, table.sha256 or (), table.states, strict=True
            )
        ),
        rows=total,
        columns=columns,
        runs=tuple(splitter.runs),
        dropped=tuple(splitter.dropped),
        gaps=tuple(splitter.gaps),
        wraps=wraps.wraps(),
        audit=audit.scan(),
    )


def merge_scans(
    robot: Robot, files: Sequence[tuple[Table, FileScan]], keep: tuple[str, ...] = ()
) -> LogScan:
    """Merge the scans of a log's files, in their order, and judge the log as a whole.

    keep: reasons for which nothing is left out (finding_kinds.KEEP).
    """
    return _Merger(robot, files, keep).merge()


def _check_quaternions(robot: Robot, q: np.ndarray, batch: Batch) -> None:
    for name, at in robot.tree.quaternions:
        length = np.linalg.norm(q[:, at : at + 4], axis=1)
        wrong = np.abs(length - 1.0) > QUATERNION_TOLERANCE
        if wrong.any():
            row = int(np.argmax(wrong))
            raise batch.table.problem(
                batch.file_row + row,
                f"the quaternion of joint {name!r} has length {length[row]:.4g}; log unit"
                " quaternions (qx, qy, qz, qw)",
            )


class _Merger:
    """Files one after another, rows counted over all of them."""

    def __init__(
        self, robot: Robot, files: Sequence[tuple[Table, FileScan]], keep: tuple[str, ...]
    ) -> None:
        self._robot, self._files, self._keep = robot, files, keep
        self._columns = files[0][1].columns
        self._runs: list[Run] = []
        self._dropped: list[Run] = []
        self._gaps: list[tuple[int, float, float]] = []
        self._wraps: Wraps = {}

    def merge(self) -> LogScan:
        file = label(self._files[0][0].path)
        audit = Audit(self._robot, self._columns, where=self._where, file=file, keep=self._keep)
        pieces: Counter[str] = Counter()
        total = 0
        for table, scan in self._files:
            if not scan.rows:
                raise NotIdentifiable(
                    f"{label(table.path)} has a header but no rows; record the robot while it moves"
                )
            self._add(scan, total, pieces)
            audit.add(scan.audit, total, scan.rows)
            total += scan.rows
        if not self._runs:
            raise NotIdentifiable(
                f"{file} has {total} rows and no run of at least {MIN_RUN}; record longer, without"
                " pauses"
            )
        audited = audit.finish()
        silent = [Mask(at, 0, total, "no torque column") for at in self._columns.silent]
        return LogScan(
            sources=tuple(source for _, scan in self._files for source in scan.sources),
            rows=total,
            runs=tuple(self._runs),
            findings=(
                *self._column_findings(),
                *self._stamp_findings(),
                *self._wrap_findings(),
                *audited.findings,
            ),
            masks=(*silent, *audited.masks),
            wraps=self._wraps,
            unused=audited.unused,
        )

    def _add(self, scan: FileScan, row: int, pieces: Counter[str]) -> None:
        short = {run.first_row for run in scan.dropped}
        for run in sorted((*scan.runs, *scan.dropped), key=lambda run: run.first_row):
            name = scan.name
            if scan.columns.run is not None:
                name = f"{scan.name}/{run.name}" if len(self._files) > 1 else run.name
            pieces[name] += 1
            numbered = name if pieces[name] == 1 else f"{name}#{pieces[name]}"
            moved = replace(run, name=numbered, first_row=run.first_row + row)
            (self._dropped if run.first_row in short else self._runs).append(moved)
        self._gaps += [(at + row, length, period) for at, length, period in scan.gaps]
        for angle, (rows, turns) in scan.wraps.items():
            before = self._wraps.get(angle, (rows[:0], turns[:0]))
            self._wraps[angle] = (
                np.concatenate((before[0], rows + row)),
                np.concatenate((before[1], turns)),
            )

    def _where(self, row: int) -> str:
        """A row of the log as a place in a file."""
        for table, scan in self._files:
            if row < scan.rows or table is self._files[-1][0]:
                place = table.where(row)
                return place if len(self._files) == 1 else f"{label(table.path)}, {place}"
            row -= scan.rows
        return f"row {row}"

    # -- findings ----------------------------------------------------------------------------------

    def _column_findings(self) -> Iterator[Finding]:
        columns = self._columns
        notes: dict[tuple[str, str], list[str]] = {}
        for table, _ in self._files:
            for note in table.notes:
                notes.setdefault(note, []).append(label(table.path))
        for (kind, sentence), names in notes.items():
            yield Finding(kind, None, None, f"{known(names, 3)}: {sentence}")
        told = dict.fromkeys(
            note for _, scan in self._files for note in scan.columns.conversion.notes
        )
        for kind, sentence in told:
            yield Finding(kind, None, None, sentence)
        ignored = dict.fromkeys(name for _, scan in self._files for name in scan.columns.ignored)
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
        gaps = self._gaps
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
        dropped = self._dropped
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
        worst = max(self._runs, key=lambda run: run.jitter / run.period)
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
        for angle, (rows, _) in self._wraps.items():
            times = f"{len(rows)} time{'s' * (len(rows) != 1)}"
            yield Finding(
                "wrap",
                names[angle],
                (int(rows[0]), int(rows[-1]) + 1),
                f"the encoder of joint {names[angle]!r} wrapped around {times}, first at"
                f" {self._where(int(rows[0]))}; its angle was unwrapped",
            )
