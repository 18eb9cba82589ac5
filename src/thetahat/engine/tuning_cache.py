"""Settings and tuning of a log in many files: chosen from a few stretches of it, which are all that
is read, and reused while they fit what is added.
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
from thetahat.data.row_batches import BATCH_ROWS
from thetahat.data.subsample import ROWS as EXCERPT
from thetahat.data.subsample import spread_spans
from thetahat.data.types import Chunk
from thetahat.engine.cache import Store, from_json, to_json
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.multi_log import Entry, MultiLog, Span, merge_files
from thetahat.errors import MalformedInput, NotIdentifiable
from thetahat.identification.log_statistics import LogStatistics
from thetahat.identification.tuning.tune import Tuned
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import KNOWN, FrictionDirection, term_from_settings
from thetahat.model.robot import Robot

FORMAT = 3  # of what the store keeps here
# Settings that were chosen before stay while logs that are added allow it, as everything folded
# with them would have to be read again otherwise, and an estimate hardly depends on them
# (thetahat.data.cutoff). What the new logs alone would choose may differ by these ratios: slower
# logs hardly change a choice from all, faster and noisier ones would be spoiled by too low a
# cut-off or too small a threshold.
ALONE = {"cutoff": 2.0, "min_speed": 3.0, "spikes": 2.0}
# and if they do, what all logs together would choose may still differ by these
TOGETHER = {"cutoff": 1.25, "min_speed": 1.5, "spikes": 1.5}
REUSED = " (chosen in an earlier run of this store)"
T = TypeVar("T")
E = TypeVar("E")
Write = Callable[[Callable[[Store], None]], None]  # changes the store, or leaves it


@dataclass(frozen=True)
class SettingsOptions:
    """What the caller gives, None where it is to be chosen; as `thetahat.data.prepare.choose` takes
    it.
    """

    cutoff: float | None = None
    min_speed: float | tuple[float, ...] | None = None


@dataclass(frozen=True)
class CachedChoice(Generic[T, E]):
    """Something that is chosen from a log, and how a store keeps it."""

    name: Any  # plain values that tell it from other choices: options, the robot's columns
    choose: Callable[[], T]
    kind: type[E]  # of what is kept
    pack: Callable[[T], E | None]  # None: it cannot be kept
    unpack: Callable[[E], T]


def choose_settings(files: MultiLog, options: SettingsOptions, span: Span = None) -> Settings:
    """Choose the settings for the rows of `span`, reading nothing else of the log."""
    wanted = spectrum_spans(files.log, run_spans(files.log, span))
    return choose(
        files.log, files.robot, **asdict(options), span=span, chunks=_chunks(files, wanted)
    )


def sparse_log(files: MultiLog, span: Span) -> Log:
    """Return the log as one that yields only those rows of `span` that tuning looks at: of a long
    one, a few hundred thousand.
    """
    spans = spectrum_spans(files.log, run_spans(files.log, span)) + spread_spans(
        files.log, span or (0, files.log.rows), EXCERPT
    )
    wanted = sorted(
        (max(first, run.first_row), min(stop, run.stop_row))
        for first, stop in _joined(spans)
        for run in files.log.runs
        if max(first, run.first_row) < min(stop, run.stop_row)
    )
    given = {field.name: getattr(files.log, field.name) for field in fields(files.log)}
    return _SparseLog(**given, _read=lambda: _chunks(files, wanted))


@dataclass(frozen=True, eq=False)
class _SparseLog(Log):
    """A log that skips what nobody looks at."""

    _read: Callable[[], Iterator[Chunk]] = field(repr=False, kw_only=True)

    def chunks(self, rows: int = BATCH_ROWS) -> Iterator[Chunk]:
        """Yield the rows that are wanted, in order, each chunk inside one run."""
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


def _chunks(files: MultiLog, wanted: Sequence[tuple[int, int]]) -> Iterator[Chunk]:
    """These rows of the log, each stretch inside one run."""
    starts = np.array([entry.first_row for entry in files.entries])
    runs = np.array([run.first_row for run in files.log.runs])
    by_file: dict[int, list[tuple[int, int]]] = {}
    for first, stop in wanted:
        number = int(np.searchsorted(starts, first, side="right")) - 1
        origin = files.entries[number].first_row
        by_file.setdefault(number, []).append((first - origin, stop - origin))
    for number, spans in by_file.items():
        entry = files.entries[number]
        for at, values in files.rows_of(entry).several(spans):
            row = entry.first_row + at
            run = int(np.searchsorted(runs, row, side="right")) - 1
            yield files.log.chunk(values, entry.file.columns, row=row, run=run)


# -- what is kept ----------------------------------------------------------------------------------


def settings_choice(
    files: MultiLog, options: SettingsOptions, span: Span
) -> CachedChoice[Settings, Settings]:
    """Return the choice of the settings alone."""
    return CachedChoice(
        "settings",
        lambda: choose_settings(files, options, span),
        Settings,
        lambda settings: settings,
        _reused,
    )


def _reused(settings: Settings) -> Settings:
    return replace(settings, reasoning=f"{settings.reasoning.removesuffix(REUSED)}{REUSED}")


@dataclass(frozen=True)
class FrictionEntry:
    """A friction term beyond the linear ones."""

    term: str
    settings: dict[str, tuple[float, ...]]
    values: tuple[float, ...]  # per motor


@dataclass(frozen=True)
class StatisticsEntry:
    """Statistics of the rows that were tuned on, in plain values."""

    independent: tuple[float, ...]
    slowest: tuple[float, ...]
    fastest: tuple[float, ...]
    torque: tuple[float, ...]
    period: float | None

    @staticmethod
    def of(statistics: LogStatistics | None) -> StatisticsEntry | None:
        """None where there are none."""
        if statistics is None:
            return None
        return StatisticsEntry(
            _floats(statistics.independent),
            _floats(statistics.slowest),
            _floats(statistics.fastest),
            _floats(statistics.torque),
            statistics.period,
        )

    def restore(self) -> LogStatistics:
        """Return the statistics."""
        return LogStatistics(
            np.array(self.independent),
            np.array(self.slowest),
            np.array(self.fastest),
            np.array(self.torque),
            self.period,
        )


@dataclass(frozen=True)
class DriveEntry:
    """Columns of a drive, in plain values."""

    identified: tuple[str, ...]
    dry: tuple[tuple[float, ...], tuple[float, ...]] | None  # zone and travel, per motor
    extra: tuple[FrictionEntry, ...]
    rotors: tuple[int, ...] | None  # motors whose rotor inertia is identified; None: all

    @staticmethod
    def of(drive: Drive) -> DriveEntry | None:
        """None where a friction term is code that no file holds."""
        if any(shape.term not in KNOWN or not shape.settings for shape, _ in drive.extra):
            return None
        return DriveEntry(
            identified=drive.identified,
            dry=None if drive.dry is None else (_floats(drive.dry.zone), _floats(drive.dry.travel)),
            extra=tuple(
                FrictionEntry(
                    shape.term,
                    {name: _floats(numbers) for name, numbers in shape.settings},
                    _floats(values),
                )
                for shape, values in drive.extra
            ),
            rotors=drive.rotors,
        )

    def restore(self, fitted: Drive) -> Drive:
        """Return the same for the drive whose columns were to be chosen."""
        motors = len(fitted.viscous)
        extra = []
        for each in self.extra:
            settings = {name: list(numbers) for name, numbers in each.settings.items()}
            shape = term_from_settings(each.term, settings, motors=motors, where="the store")
            if shape is None:
                raise MalformedInput(f"the store has an unknown friction term {each.term!r}")
            extra.append((shape, np.array(each.values)))
        return replace(
            fitted,
            extra=tuple(extra),
            identified=self.identified,
            dry=None
            if self.dry is None
            else FrictionDirection(np.array(self.dry[0]), np.array(self.dry[1])),
            rotors=self.rotors,
        )


@dataclass(frozen=True)
class TunedEntry:
    """What `tune` chose, in plain values."""

    settings: Settings
    drive: DriveEntry
    weight: float
    metric: str
    reasons: tuple[str, ...]
    rms: tuple[float, ...] | None
    statistics: StatisticsEntry | None

    @staticmethod
    def of(tuned: Tuned) -> TunedEntry | None:
        """None where a friction term is code that no file holds."""
        drive = DriveEntry.of(tuned.robot.drive)
        if drive is None:
            return None
        return TunedEntry(
            settings=tuned.settings,
            drive=drive,
            weight=float(tuned.weight),
            metric=tuned.metric,
            reasons=tuned.reasons,
            rms=None if tuned.rms is None else _floats(tuned.rms),
            statistics=StatisticsEntry.of(tuned.statistics),
        )

    def restore(self, fitted: Robot) -> Tuned:
        """Return the same for the robot whose columns were to be chosen."""
        return Tuned(
            settings=_reused(self.settings),
            robot=replace(fitted, drive=self.drive.restore(fitted.drive)),
            weight=self.weight,
            metric=self.metric,
            reasons=self.reasons,
            rms=None if self.rms is None else np.array(self.rms),
            statistics=None if self.statistics is None else self.statistics.restore(),
        )


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def tuned_choice(
    name: dict[str, Any], tune: Callable[[], Tuned], fitted: Robot
) -> CachedChoice[Tuned, TunedEntry]:
    """Return the choice of everything that `tune` chooses. name: all that it depends on."""
    return CachedChoice(name, tune, TunedEntry, TunedEntry.of, lambda entry: entry.restore(fitted))


def reuse_or_choose(
    files: MultiLog,
    options: SettingsOptions,
    span: Span,
    *,
    choice: CachedChoice[T, E],
    store: Store,
    write: Write,
) -> T:
    """Return what was chosen before for logs of this robot, where it fits those added since; else
    choose anew from all.

    It fits where the settings that the new logs ask for do. Logs that it was compared with once are
    not looked at again.
    """
    series = fingerprint(
        "series",
        FORMAT,
        DATA_FORMAT,
        robot_fingerprint(files.robot.without_drive()),
        files.reading.key,
        options,
        Layout.of(files.log, files.robot),
        choice.name,
    )
    first, stop = rows = (0, files.log.rows) if span is None else span
    used = [entry for entry in files.entries if entry.first_row < stop and entry.stop_row > first]
    marks = {_mark(entry, rows): entry for entry in used}
    old = store.query("SELECT settings FROM settings WHERE series = ?", (series,))
    logs = store.query("SELECT digest FROM settings_logs WHERE series = ?", (series,))
    known = {row["digest"] for row in logs}
    new = {
        mark: entry
        for mark, entry in marks.items()
        if mark not in known and entry.file.digest not in known
    }
    if old and known:
        data = json.loads(old[0]["settings"])
        base = from_json(Settings, data["settings"])
        if not new or _still_fits(base, files, list(new.values()), options, rows):
            write(lambda store: _add_logs(store, series, list(new)))
            return choice.unpack(from_json(choice.kind, data["choice"]))
    now = choose_settings(files, options, span)
    chosen = choice.choose()
    packed = choice.pack(chosen)
    if packed is not None:
        kept = json.dumps({"settings": to_json(now), "choice": to_json(packed)})
        write(lambda store: _replace(store, series, kept, list(marks)))
    return chosen


def _still_fits(
    base: Settings,
    files: MultiLog,
    new: Sequence[Entry],
    options: SettingsOptions,
    rows: tuple[int, int],
) -> bool:
    """Whether settings chosen before will do for these files too."""
    if _fits(base, _choose_alone(files, new, options, rows), ALONE):
        return True
    now = choose_settings(files, options, rows)
    return _fits(base, now, TOGETHER) and now.cutoff * TOGETHER["cutoff"] >= base.cutoff


def _add_logs(store: Store, series: str, marks: Sequence[str]) -> None:
    if marks:
        store.change(
            "INSERT OR IGNORE INTO settings_logs VALUES (?, ?)", [(series, mark) for mark in marks]
        )


def _replace(store: Store, series: str, kept: str, marks: Sequence[str]) -> None:
    """Write a choice and the logs it was made from at once: another run must not see one without
    the other.
    """
    with store.transaction() as database:
        database.execute("DELETE FROM settings_logs WHERE series = ?", (series,))
        database.execute(
            "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", (series, kept, time.time())
        )
        database.executemany(
            "INSERT OR IGNORE INTO settings_logs VALUES (?, ?)", [(series, mark) for mark in marks]
        )


def _mark(entry: Entry, span: tuple[int, int]) -> str:
    """What of a file was looked at: all of it, or the rows inside the span alone."""
    rows = entry.file.rows
    low, high = max(span[0] - entry.first_row, 0), min(span[1] - entry.first_row, rows)
    return entry.file.digest if high - low == rows else f"{entry.file.digest}:{low}-{high}"


def _choose_alone(
    files: MultiLog, entries: Sequence[Entry], options: SettingsOptions, span: tuple[int, int]
) -> Settings | None:
    """What these files alone would choose, rows outside the span left out; None where they are too
    short to tell.
    """
    some = merge_files(files.robot, files.reading, [(each.item, each.file) for each in entries])
    cut = (
        sum(max(span[0] - entry.first_row, 0) for entry in entries),
        some.log.rows - sum(max(entry.stop_row - span[1], 0) for entry in entries),
    )
    try:
        return choose_settings(some, options, cut)
    except NotIdentifiable:
        return None


def _fits(before: Settings, other: Settings | None, ratios: dict[str, float]) -> bool:
    """Whether the thresholds chosen before will do where these would be chosen."""
    if other is None:
        return True
    for name, ratio in ratios.items():
        mine, theirs = (
            np.atleast_1d(np.asarray(getattr(each, name) or (), dtype=float))
            for each in (before, other)
        )
        if mine.shape != theirs.shape or np.any(theirs > ratio * mine):
            return False
    return True
