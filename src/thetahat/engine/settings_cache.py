"""The settings of a log in many files: chosen from a few stretches of it, which are all that is
read, and kept while they fit what is added.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np

from thetahat.data.cutoff import spectrum_spans
from thetahat.data.log import Log
from thetahat.data.prepare import Settings, choose
from thetahat.data.resample import Layout, run_spans
from thetahat.data.row_batches import BATCH_ROWS, Batch
from thetahat.data.subsample import ROWS as EXCERPT
from thetahat.data.subsample import spread_spans
from thetahat.data.types import Chunk
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.multi_log import Catalogue, Entry, catalogue
from thetahat.engine.row_reader import FileRows
from thetahat.engine.store import Store
from thetahat.errors import NotIdentifiable

# Settings that were chosen before stay while logs that are added allow it, as everything folded
# with them would have to be read again otherwise, and an estimate hardly depends on them
# (thetahat.data.cutoff). What the new logs alone would choose may differ by these ratios: slower
# logs hardly change a choice from all, faster and noisier ones would be spoiled by too low a
# cut-off or too small a threshold.
ALONE = {"cutoff": 2.0, "min_speed": 3.0, "spikes": 2.0}
KEPT = " (chosen in an earlier run of this store)"
TOGETHER = {
    "cutoff": 1.25,
    "min_speed": 1.5,
    "spikes": 1.5,
}  # and if they do, what all logs together would choose may still differ by these


@dataclass(frozen=True)
class Choices:
    """What the caller gives, None where it is to be chosen; as `thetahat.data.prepare.choose` takes
    it.
    """

    cutoff: float | None = None
    torque_cutoff: float | None = None
    min_speed: float | tuple[float, ...] | None = None
    decimate: int | str | None = None
    order: int = 4
    derivative: str = "butterworth"


T = TypeVar("T")


@dataclass(frozen=True)
class Choice(Generic[T]):
    """What is chosen from a log beside its settings, or instead of them, and how a store
    keeps it.
    """

    name: Any  # plain values that tell it from other choices: options, the robot's columns
    make: Callable[[], T]
    dump: Callable[[T], dict[str, Any] | None]  # as JSON holds it; None: it cannot be kept
    load: Callable[[dict[str, Any]], T]


def chosen(files: Catalogue, choices: Choices, span: tuple[int, int] | None = None) -> Settings:
    """The settings for the rows of `span`, as `choose` finds them, reading nothing else of
    the log.
    """
    wanted = spectrum_spans(files.log, run_spans(files.log, span))
    return choose(
        files.log, files.robot, **asdict(choices), span=span, chunks=_chunks(files, wanted)
    )


def sparse(files: Catalogue, span: tuple[int, int] | None) -> Log:
    """The log as one that yields those rows of `span` alone that a choice looks at: of a long one,
    a few hundred thousand.
    """
    spans = spectrum_spans(files.log, run_spans(files.log, span)) + spread_spans(
        files.log, span or (0, files.log.rows), EXCERPT
    )
    runs = [
        (max(first, run.first_row), min(stop, run.stop_row))
        for first, stop in _joined(spans)
        for run in files.log.runs
    ]
    wanted = [(first, stop) for first, stop in runs if first < stop]
    given = {field.name: getattr(files.log, field.name) for field in fields(files.log)}
    return _Sparse(**given, _read=lambda: _chunks(files, sorted(wanted)))


@dataclass(frozen=True, eq=False)
class _Sparse(Log):
    """A log that skips what nobody looks at."""

    _read: Callable[[], Iterator[Chunk]] = field(repr=False, kw_only=True)

    def chunks(self, rows: int = BATCH_ROWS) -> Iterator[Chunk]:
        """The rows that are wanted, in order, each chunk inside one run."""
        del rows
        return self._read()


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that touch in one."""
    out: list[tuple[int, int]] = []
    for first, stop in sorted(spans):
        if out and first <= out[-1][1]:
            out[-1] = out[-1][0], max(stop, out[-1][1])
        else:
            out.append((first, stop))
    return out


def _chunks(files: Catalogue, wanted: Sequence[tuple[int, int]]) -> Iterator[Chunk]:
    """These rows of the log, each stretch inside one run."""
    log = files.log
    starts = np.array([entry.first_row for entry in files.entries])
    runs = np.array([run.first_row for run in log.runs])
    by_file: dict[int, list[tuple[int, int]]] = {}
    for first, stop in wanted:
        number = int(np.searchsorted(starts, first, side="right")) - 1
        origin = files.entries[number].first_row
        by_file.setdefault(number, []).append((first - origin, stop - origin))
    for number, spans in by_file.items():
        entry, (table, columns) = files.entries[number], log._tables[number]
        for at, values in FileRows.of(
            entry.item, entry.survey, files.reading, files.robot.joint_names
        ).several(spans):
            row = entry.first_row + at
            batch = Batch(values, (), row, at, number, columns, table)
            yield log._chunk(
                batch, row, row + len(values), int(np.searchsorted(runs, row, side="right")) - 1
            )


# -- kept ------------------------------------------------------------------------------------------


def settings_choice(
    files: Catalogue, choices: Choices, span: tuple[int, int] | None
) -> Choice[Settings]:
    """The settings alone."""

    def load(data: dict[str, Any]) -> Settings:
        found = settings_from(data)
        return replace(found, reasoning=f"{found.reasoning.removesuffix(KEPT)}{KEPT}")

    return Choice("settings", lambda: chosen(files, choices, span), asdict, load)


def settings_from(data: dict[str, Any]) -> Settings:
    """Settings as JSON holds them."""
    return Settings(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    )


def settled(
    files: Catalogue,
    choices: Choices,
    span: tuple[int, int] | None,
    choice: Choice[T],
    store: Store,
    write: Callable[[Callable[[], None]], None],
) -> T:
    """What was chosen before for logs of this robot, where it fits those added since; else chosen
    anew from all.

    It fits where the settings that the new logs ask for do. Logs that it was held against once are
    not looked at again. write: does what changes the store, or leaves it.
    """
    geometry = robot_fingerprint(files.robot.without_drive())
    series = fingerprint(
        "series",
        DATA_FORMAT,
        geometry,
        files.reading.plain,
        choices,
        Layout.of(files.log, files.robot),
        choice.name,
    )
    first, stop = (0, files.log.rows) if span is None else span
    used = [entry for entry in files.entries if entry.first_row < stop and entry.stop_row > first]
    old = store.query("SELECT settings FROM settings WHERE series = ?", (series,))
    known = {
        row["digest"]
        for row in store.query("SELECT digest FROM settled WHERE series = ?", (series,))
    }
    new = [entry for entry in used if not {entry.survey.digest, _mark(entry, first, stop)} & known]
    kept = json.loads(old[0]["settings"]) if old and known else None
    base = None if kept is None else settings_from(kept["settings"])
    if base is None or (new and not _fits(base, _alone(files, new, choices, (first, stop)), ALONE)):
        now = chosen(files, choices, span)
        if (
            base is None
            or not _fits(base, now, TOGETHER)
            or now.cutoff * TOGETHER["cutoff"] < base.cutoff
        ):
            found = choice.make()
            data = choice.dump(found)
            if data is not None:
                write(
                    lambda: _replace(
                        store,
                        series,
                        {"settings": asdict(now), "choice": data},
                        [_mark(entry, first, stop) for entry in used],
                    )
                )
            return found
    assert kept is not None
    write(lambda: _look(store, series, [_mark(entry, first, stop) for entry in new]))
    return choice.load(kept["choice"])


def _look(store: Store, series: str, marks: Sequence[str]) -> None:
    if marks:
        store.change(
            "INSERT OR IGNORE INTO settled VALUES (?, ?)", [(series, mark) for mark in marks]
        )


def _replace(store: Store, series: str, data: dict[str, Any], marks: Sequence[str]) -> None:
    """What is chosen and which logs it was held against, at once: another run must not find the one
    without the other.
    """
    with store.transaction() as database:
        database.execute("DELETE FROM settled WHERE series = ?", (series,))
        database.execute(
            "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)",
            (series, json.dumps(data), time.time()),
        )
        database.executemany(
            "INSERT OR IGNORE INTO settled VALUES (?, ?)", [(series, mark) for mark in marks]
        )


def _mark(entry: Entry, first: int, stop: int) -> str:
    """What of a file was looked at: all of it, or the rows inside the span alone."""
    low, high = max(first - entry.first_row, 0), min(stop - entry.first_row, entry.survey.rows)
    return (
        entry.survey.digest
        if high - low == entry.survey.rows
        else f"{entry.survey.digest}:{low}-{high}"
    )


def _alone(
    files: Catalogue, entries: Sequence[Entry], choices: Choices, span: tuple[int, int]
) -> Settings | None:
    """What these files alone would choose, rows outside the span left out; None where they are too
    short to tell.
    """
    some = catalogue(files.robot, files.reading, [(entry.item, entry.survey) for entry in entries])
    cut = (
        sum(max(span[0] - entry.first_row, 0) for entry in entries),
        some.log.rows - sum(max(entry.stop_row - span[1], 0) for entry in entries),
    )
    try:
        return chosen(some, choices, cut)
    except NotIdentifiable:
        return None


def _fits(kept: Settings, other: Settings | None, ratios: dict[str, float]) -> bool:
    """Whether the thresholds kept will do where these would be chosen."""
    if other is None:
        return True
    for name, ratio in ratios.items():
        mine, theirs = (
            np.atleast_1d(np.asarray(getattr(each, name) or (), dtype=float))
            for each in (kept, other)
        )
        if mine.shape != theirs.shape or np.any(theirs > ratio * mine):
            return False
    return True
