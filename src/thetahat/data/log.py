"""A log: measured motion and torque of a robot, in runs, streamed from its files in bounded memory.

`read_log` reads every file once from front to back: it checks each number, computes the hashes,
finds the runs and audits what it sees. `Log.chunks` reads the files again, as often as wanted, and
yields arrays in the robot's order.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import Path

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.finding_kinds import kept_reasons
from thetahat.data.formats import SUFFIXES, Table, is_log_folder
from thetahat.data.formats.table import label
from thetahat.data.reading import Reading, command_map, open_log_file
from thetahat.data.row_batches import BATCH_ROWS, batches
from thetahat.data.scan import LogScan, Wraps, merge_scans, scan_file
from thetahat.data.timestamps import unwrap
from thetahat.data.types import Chunk, Finding, Mask, Run, Source
from thetahat.errors import MalformedInput, StorageError, UsageError, known
from thetahat.model.robot import Robot

__all__ = ["BATCH_ROWS", "Chunk", "Finding", "Log", "Mask", "Run", "Source", "read_log"]


@dataclass(frozen=True, eq=False)
class Log:
    """Log of a robot, as `read_log` returns it; its rows stay in its files."""

    sources: tuple[Source, ...]
    joint_names: tuple[str, ...]
    rows: int
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    masks: tuple[Mask, ...]
    has_dq: bool
    has_ddq: bool
    has_tau: bool
    locked: tuple[str, ...]  # joints without a column, held at zero
    # degrees of freedom whose logged dq is not used: it does not follow the position
    differentiated: tuple[int, ...]
    _robot: Robot = field(repr=False)
    _tables: tuple[tuple[Table, ColumnMap], ...] = field(repr=False)
    _wraps: Wraps = field(repr=False)

    def __str__(self) -> str:
        seconds = sum(run.stop - run.start for run in self.runs)
        lines = [
            f"log of {len(self.joint_names)} joints: {self.rows} rows in {len(self.runs)} runs,"
            f" {seconds:.4g} s"
        ]
        return "\n".join(
            lines + [f"  {finding.kind}: {finding.message}" for finding in self.findings]
        )

    def __len__(self) -> int:
        return self.rows

    def chunks(self, rows: int = BATCH_ROWS) -> Iterator[Chunk]:
        """Return the rows in order in chunks of at most `rows`, each inside one run; encoder angles
        are unwrapped.
        """
        if not isinstance(rows, int | np.integer) or rows < 1:
            raise UsageError(f"rows is {rows!r}; give a whole number from 1")
        current = 0
        for batch in batches(self._tables, rows):
            while current < len(self.runs):
                run = self.runs[current]
                begin, end = (
                    max(run.first_row, batch.row),
                    min(run.stop_row, batch.row + len(batch.values)),
                )
                if begin < end:
                    values = batch.values[begin - batch.row : end - batch.row]
                    yield self.chunk(values, batch.columns, row=begin, run=current)
                if run.stop_row > batch.row + len(batch.values):
                    break
                current += 1

    def read(self) -> list[Chunk]:
        """Return every run as one chunk, all in memory."""
        parts: dict[int, list[Chunk]] = {}
        for chunk in self.chunks():
            parts.setdefault(chunk.run, []).append(chunk)
        return [_joined(parts[run]) for run in sorted(parts)]

    def commanded(self, reading: Reading, kind: str = "cmd") -> Log | None:
        """Return the log of commanded positions (`cmd.<joint>`) on the same rows; None where a
        joint that it measures has none.

        kind: cmd, or cur or pwm of currents or duty cycles that the drives read.
        """
        maps = [command_map(columns, self._robot, reading, kind) for _, columns in self._tables]
        if not maps or any(columns is None for columns in maps):
            return None
        tables = tuple(
            (table, columns)
            for (table, _), columns in zip(self._tables, maps, strict=True)
            if columns is not None
        )
        return Log(
            sources=self.sources,
            joint_names=self.joint_names,
            rows=self.rows,
            runs=self.runs,
            findings=(),
            masks=(),
            has_dq=False,
            has_ddq=False,
            has_tau=False,
            locked=self.locked,
            differentiated=(),
            _robot=self._robot,
            _tables=tables,
            _wraps={},
        )

    def chunk(self, values: np.ndarray, columns: ColumnMap, *, row: int, run: int) -> Chunk:
        """Return rows of a file, from `row` of the log on, as a chunk of a run."""
        channels = columns.split(values, self._robot)
        if self._wraps:
            unwrap(channels["q"], self._wraps, row=row, run=self.runs[run])
        return Chunk(**channels, run=run, row=row)


def _joined(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]

    def stacked(name: str) -> np.ndarray:
        return np.concatenate([getattr(chunk, name) for chunk in chunks])

    first = chunks[0]
    return Chunk(
        t=stacked("t"),
        q=stacked("q"),
        dq=None if first.dq is None else stacked("dq"),
        ddq=None if first.ddq is None else stacked("ddq"),
        tau=None if first.tau is None else stacked("tau"),
        run=first.run,
        row=first.row,
        contact=None if first.contact is None else stacked("contact"),
    )


# -- reading ---------------------------------------------------------------------------------------


def read_log(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    robot: Robot,
    *,
    columns: str | Mapping[str, str] | None = None,
    topic: str | None = None,
    salvage: bool = False,
    keep: str | Sequence[str] = (),
    units: str | Mapping[str, str] | None = None,
    format: str | None = None,
    skip_bad_rows: bool = False,
) -> Log:
    """Read and audit a log of the robot's motion: CSV and its kin, Parquet, Feather, NPZ, MATLAB
    files, ROS bags, MCAP, LeRobot datasets.

    Args:
        paths: a file, a folder of files, a pattern such as ``runs/*.csv``, or several of these;
            each file is a run or more.
        robot: whose joints the columns are of.
        columns: names that differ from the rules, as ``"q={joint}_pos,tau={joint}_eff"``, or the
            places of columns from 1, as ``"t=1,q=2-8,tau=9-15"``.
        topic: which topic of a bag to read, where several hold joint states.
        salvage: read what is left of a file that was cut off, instead of refusing it.
        keep: what the audit would leave out but must not: saturation, dead-torque, stuck, sign, dq,
            ddq, units.
        units: of columns that are not in SI units, as ``"q=deg,t=ms,tau=mNm"``.
        format: names of a recorder's columns: rtde, plotjuggler, lerobot.
        skip_bad_rows: leave out rows with cells that are no finite numbers or with stamps that do
            not increase, instead of refusing the file; they are counted and named.

    """
    if not isinstance(robot, Robot):
        raise UsageError(
            f"robot is {type(robot).__name__}; give a Robot, as thetahat.load returns it"
        )
    kept = kept_reasons(keep)
    reading = Reading(columns, topic, salvage, units, format, skip_bad_rows, kept)
    return read_files(paths, robot, reading)


def read_files(paths: object, robot: Robot, reading: Reading) -> Log:
    """Read and audit the files of a log."""
    reading.check()
    tables: list[tuple[Table, ColumnMap]] = []
    for path in log_files(paths):
        tables.append(open_log_file(path, robot, reading))
        _require_same(tables[0], tables[-1])
    return scan_tables(robot, tables, reading.keep)


def scan_tables(
    robot: Robot, tables: list[tuple[Table, ColumnMap]], keep: tuple[str, ...] = ()
) -> Log:
    """Return the log of tables with the same columns, each read once: runs, findings, masks."""
    files = [(table, scan_file(robot, table, columns)) for table, columns in tables]
    return scanned_log(robot, tables, merge_scans(robot, files, keep))


def scanned_log(robot: Robot, tables: Sequence[tuple[Table, ColumnMap]], scan: LogScan) -> Log:
    """Return the log of tables with the same columns, from their merged scan."""
    columns = tables[0][1]
    differentiated = tuple(v for kind, v in scan.unused if kind == "dq")
    logged = {at for kind, at, _ in columns.place if kind == "dq"}
    some = not logged <= set(differentiated)  # one column that can be used
    return Log(
        sources=scan.sources,
        joint_names=robot.joint_names,
        rows=scan.rows,
        runs=scan.runs,
        findings=scan.findings,
        masks=scan.masks,
        has_dq=columns.has("dq") and some,
        has_ddq=columns.has("ddq") and not any(kind == "ddq" for kind, _ in scan.unused),
        has_tau=columns.has("tau"),
        locked=columns.locked,
        differentiated=differentiated if some else (),
        _robot=robot,
        _tables=tuple(tables),
        _wraps=scan.wraps,
    )


def log_files(paths: object) -> list[Path]:
    """Return every file named by paths, folders and patterns, in order, each once."""
    items = (
        [paths]
        if isinstance(paths, str | os.PathLike)
        else list(paths)
        if isinstance(paths, Sequence)
        else None
    )
    if not items or not all(isinstance(item, str | os.PathLike) for item in items):
        raise UsageError(
            f"paths is {reprlib.repr(paths)}; give a log file, a folder, a pattern or a list of "
            "these (th.identify takes arrays by column name too)"
        )
    files: dict[Path, None] = {}
    for item in items:
        path = Path(item)
        if has_magic(str(path)) and not path.exists():
            parts = sorted(
                Path(path.anchor or ".").glob(
                    str(path.relative_to(path.anchor) if path.anchor else path)
                )
            )
            if not parts:
                raise StorageError(f"no file fits the pattern {label(path)}; check the path")
        elif path.is_dir() and not is_log_folder(path):
            parts = sorted(
                part
                for part in path.iterdir()
                if part.suffix.lower() in SUFFIXES or is_log_folder(part)
            )
            if not parts:
                raise StorageError(
                    f"{label(path)} is a folder without logs; logs end in {', '.join(SUFFIXES)}"
                )
        else:
            parts = [path]
        files.update(dict.fromkeys(parts))
    return list(files)


def _require_same(first: tuple[Table, ColumnMap], other: tuple[Table, ColumnMap]) -> None:
    """Refuse files of one log with different columns."""
    mine, theirs = (
        {(kind, at): column for kind, at, column in columns.place} for _, columns in (first, other)
    )
    if mine.keys() != theirs.keys():
        only = [mine.get(key) or theirs[key] for key in mine.keys() ^ theirs.keys()]
        raise MalformedInput(
            f"{label(other[0].path)} and {label(first[0].path)} bring different columns"
            f" ({known(sorted(only))} in one alone); give files with the same columns, or read them"
            " one by one"
        )
