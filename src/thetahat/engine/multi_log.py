"""The surveys of many files as one log: what is decided over all of them together is decided here,
as one pass over them would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from thetahat.data.audit import Extreme, Stretch
from thetahat.data.audit_windows import KEPT
from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Block, Table, open_table
from thetahat.data.log import Log, assembled
from thetahat.data.scan import Survey, Surveyed
from thetahat.data.types import Mask, Source
from thetahat.engine.file_scan import CHANNELS, FileSurvey, Reading
from thetahat.engine.sources import Item
from thetahat.errors import MalformedInput, StorageError, ThetahatError, known
from thetahat.model.robot import Robot


@dataclass(frozen=True)
class Failure:
    """A file or a shard that was left out, and why."""

    name: str
    sentence: str
    exit_code: int

    @staticmethod
    def of(name: str, error: ThetahatError) -> Failure:
        """What went wrong with it."""
        return Failure(name, str(error), error.exit_code)


@dataclass(frozen=True, eq=False)
class Entry:
    """A surveyed file and its place in the log."""

    item: Item
    survey: FileSurvey
    first_row: int  # of the log

    @property
    def stop_row(self) -> int:
        """One past its last."""
        return self.first_row + self.survey.rows


@dataclass(frozen=True, eq=False)
class Catalogue:
    """All files of a log, and the log they make together."""

    robot: Robot
    reading: Reading
    entries: tuple[Entry, ...]
    log: Log
    failures: tuple[Failure, ...]
    left_out: frozenset[str] = (
        frozenset()
    )  # places of files, and of shards (`Shard.place`), that were surveyed and are used no longer

    @property
    def used(self) -> tuple[Entry, ...]:
        """The files that are still used."""
        return tuple(entry for entry in self.entries if entry.item.place not in self.left_out)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Of the files that are still used."""
        return tuple(
            _named(entry, source) for entry in self.used for source in entry.survey.sources
        )

    def without(self, places: Iterable[str]) -> Catalogue:
        """The same log, rows counted as before, without these files and shards."""
        return replace(self, left_out=self.left_out | frozenset(places))


class SurveyedTable(Table):
    """A file that was surveyed: it is opened when its rows are asked for, and held to be the one
    that was surveyed.
    """

    hashes_itself = True

    def __init__(
        self, item: Item, survey: FileSurvey, reading: Reading, joints: Sequence[str]
    ) -> None:
        self.item, self.survey, self._reading, self._joints = item, survey, reading, tuple(joints)
        self.path, self.widths, self.names = Path(item.given), {}, survey.columns.columns
        self.files = tuple(Path(source.path) for source in survey.sources)
        self.states, self.notes = survey.states, survey.notes
        self.sha256 = tuple(source.sha256 for source in survey.sources)

    @cached_property
    def table(self) -> Table:
        """The file, open; `StorageError` where it has changed since."""
        table = open_table(
            self.item.local(),
            joints=self._joints,
            topic=self._reading.topic,
            salvage=self._reading.salvage,
        )
        same = (
            (lambda state: state.size) if self.item.remote else (lambda state: state)
        )  # a copy's other marks are its own
        if [same(state) for state in table.states] != [same(state) for state in self.states]:
            raise StorageError(
                f"{self.item.name} changed after it was surveyed; wait until its recording has"
                " ended, or read a copy"
            )
        table.sha256 = self.sha256
        return table

    def blocks(self, columns: Sequence[str], run_column: str | None) -> Iterator[Block]:
        """Its rows."""
        yield from self.table.blocks(columns, run_column)

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Its rows."""
        yield from self.table.read(columns, run_column, first=first)

    def where(self, row: int) -> str:
        """As its format counts."""
        return self.table.where(row)


def catalogue(
    robot: Robot, reading: Reading, surveys: Sequence[tuple[Item, FileSurvey | Failure]]
) -> Catalogue:
    """The files that go together as one log; those that cannot be read, or bring other columns than
    most, are left out and named.
    """
    failures = [found for _, found in surveys if isinstance(found, Failure)]
    good = [(item, found) for item, found in surveys if isinstance(found, FileSurvey)]
    if not good:
        raise refused(failures)
    kinds = Counter(_columns(survey) for _, survey in good)
    common = kinds.most_common(1)[0][0]
    entries, row = [], 0
    for item, survey in good:
        if _columns(survey) != common:
            failures.append(
                Failure(
                    item.name,
                    _differs(
                        item, survey, next(each for each in good if _columns(each[1]) == common)
                    ),
                    3,
                )
            )
            continue
        entries.append(Entry(item, survey, row))
        row += survey.rows
    tables = [
        (SurveyedTable(each.item, each.survey, reading, robot.joint_names), each.survey.columns)
        for each in entries
    ]
    log = assembled(robot, tables, _Merged(robot, tables, entries).finish())
    return Catalogue(robot, reading, tuple(entries), log, tuple(failures))


def _columns(survey: FileSurvey) -> frozenset[tuple[str, int]]:
    return frozenset((kind, at) for kind, at, _ in survey.columns.place)


def _differs(item: Item, survey: FileSurvey, other: tuple[Item, FileSurvey]) -> str:
    mine, theirs = (
        {(kind, at): column for kind, at, column in each.columns.place}
        for each in (survey, other[1])
    )
    only = sorted(mine.get(key) or theirs[key] for key in mine.keys() ^ theirs.keys())
    return (
        f"{item.name} and {other[0].name} bring different columns ({known(only)} in one alone); "
        "it seems to be of another robot or recorder, so identify from it apart"
    )


def refused(failures: Sequence[Failure]) -> ThetahatError:
    """The error where no file is left: that of the first."""
    kinds = {
        error.exit_code: error
        for error in ThetahatError.__subclasses__()
        if error.__name__ != "MissingExtra"
    }
    first = failures[0]
    rest = f" (and {len(failures) - 1} more logs cannot be used)" if len(failures) > 1 else ""
    return kinds.get(first.exit_code, MalformedInput)(first.sentence + rest)


class _Merged(Survey):
    """The state that one pass over all files would have left, put together from theirs."""

    def __init__(
        self, robot: Robot, tables: list[tuple[Table, ColumnMap]], entries: Sequence[Entry]
    ) -> None:
        super().__init__(robot, tables)
        self._entries = entries
        self._rows = [entry.survey.rows for entry in entries]
        windows = _Windows()
        for (table, _), entry in zip(tables, entries, strict=True):
            survey, row = entry.survey, entry.first_row
            prefix = f"{table.path.stem}/" if len(entries) > 1 and survey.columns.run else ""
            moved = [
                [
                    replace(run, name=prefix + run.name, first_row=run.first_row + row)
                    for run in runs
                ]
                for runs in (survey.runs, survey.dropped)
            ]
            self._splitter.runs += moved[0]
            self._splitter.dropped += moved[1]
            self._splitter.gaps += [
                (at + row, length, period) for at, length, period in survey.gaps
            ]
            for angle, (rows, turns) in survey.wraps.items():
                self._wraps._rows.setdefault(angle, []).extend((rows + row).tolist())
                self._wraps._turns.setdefault(angle, []).extend(turns.tolist())
            self._take_audit(survey, row)
            windows.add(survey.windows, row)
        self._audit._rows = sum(self._rows)
        collector = self._audit._windows
        collector._parts, collector._count, collector._period = (
            windows.parts,
            windows.count,
            entries[-1].survey.period,
        )

    def _take_audit(self, survey: FileSurvey, row: int) -> None:
        for name in CHANNELS:
            channels = getattr(self._audit, f"_{name}")
            for v, value, first, stop in survey.stretches[name]:
                channels[int(v)].found.append(
                    Stretch(value, int(first) + row, int(stop) + row, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
                )
        for name, found in survey.extremes.items():
            channels = getattr(self._audit, f"_{name}")
            for v, (counts, moving, rows) in found.items():
                _extend(channels[v], counts, moving, rows + row)

    def finish(self) -> Surveyed:
        """What the first pass finds, without reading anything."""
        audited = self._audit.finish()
        total = sum(self._rows)
        silent = [Mask(at, 0, total, "no torque column") for at in self._tables[0][1].silent]
        return Surveyed(
            sources=tuple(
                _named(entry, source) for entry in self._entries for source in entry.survey.sources
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


def _named(entry: Entry, source: Source) -> Source:
    """A source by the name its owner gave it; files of a bag keep their own."""
    return replace(source, path=entry.item.given) if len(entry.survey.sources) == 1 else source


def _extend(extreme: Extreme, counts: dict[float, int], moving: int, rows: np.ndarray) -> None:
    """An extreme with what another file adds: rows at the two largest values of both."""
    if not counts:
        return
    before, top = max(extreme._counts, default=-np.inf), max(counts)
    both = Counter(extreme._counts) + Counter(counts)
    extreme._counts = {value: both[value] for value in sorted(both)[-2:]}
    if top > before:
        extreme._rows, extreme._moving = [], 0
    if top >= before:
        extreme._rows.append(rows)
        extreme._moving += moving


class _Windows:
    """Windows of all files, every k-th where there are too many; k doubles when needed."""

    def __init__(self) -> None:
        self.parts: list[dict[str, np.ndarray]] = []
        self.count, self._step, self._seen = 0, 1, 0

    def add(self, windows: dict[str, np.ndarray], row: int) -> None:
        """Take a file's windows, which follow those before."""
        if not windows:
            return
        size = len(windows["row"])
        kept = {
            name: array[-self._seen % self._step :: self._step] for name, array in windows.items()
        }
        kept["row"] = kept["row"] + row
        self._seen += size
        self.parts.append(kept)
        self.count += len(kept["row"])
        while self.count > KEPT:
            joined = {
                name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]
            }
            self.parts = [{name: array[::2] for name, array in joined.items()}]
            self.count, self._step = len(self.parts[0]["row"]), 2 * self._step
