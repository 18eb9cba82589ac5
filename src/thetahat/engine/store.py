"""The store: what was computed once, kept by content, and the memory of runs.

    DIR/objects/ab/ab12…    one entry each, named by its key: a file written whole or not at all,
    with a checksum inside (codec.py) DIR/store.sqlite        in WAL mode: which file has which
    content, which entries belong to which log and robot, and every run

A key is the hash of all that an entry depends on, so an entry is never changed, two writers of one
key write the same, and whether it is there is asked of the folder alone: a run that was killed at
any moment leaves entries that are whole, and the next one goes on with them. An entry whose
checksum is not as stored is thrown away and computed anew.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from thetahat.engine.array_codec import Damaged
from thetahat.engine.sources import Item
from thetahat.errors import StorageError
from thetahat.files import write_atomically

VERSION = 1
PATIENCE = 30.0  # [s] another writer may take
# [s] since its last change, from which on a file's time stamps tell that it is still the same
SETTLED = 2.0
ROOM = 2**20  # bytes: with less, SQLite's complaint of its disk is that it is full
ABANDONED = 3600.0  # [s] after which a file that is being written no longer is
T = TypeVar("T")

TABLES = """
CREATE TABLE IF NOT EXISTS files (place TEXT PRIMARY KEY, state TEXT NOT NULL,
    digest TEXT NOT NULL, seen REAL NOT NULL);
CREATE TABLE IF NOT EXISTS logs (
    robot TEXT NOT NULL, period TEXT NOT NULL, digest TEXT NOT NULL, place TEXT NOT NULL,
    rows INTEGER NOT NULL,
    start REAL NOT NULL, stop REAL NOT NULL, seen REAL NOT NULL, PRIMARY KEY (robot, period,
    digest));
CREATE TABLE IF NOT EXISTS entries (
    key TEXT PRIMARY KEY, fold TEXT NOT NULL, digest TEXT NOT NULL, first INTEGER NOT NULL,
    stop INTEGER NOT NULL, samples INTEGER NOT NULL,
    made REAL NOT NULL);
CREATE INDEX IF NOT EXISTS entries_of_log ON entries (digest, fold);
CREATE TABLE IF NOT EXISTS settings (series TEXT PRIMARY KEY, settings TEXT NOT NULL,
    made REAL NOT NULL);
CREATE TABLE IF NOT EXISTS settled (series TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (series, digest));
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, started REAL NOT NULL,
    finished REAL, process TEXT NOT NULL,
    robot TEXT NOT NULL, period TEXT NOT NULL, robot_print TEXT NOT NULL, fold TEXT, root TEXT,
    method TEXT, samples INTEGER, rank INTEGER,
    r2_train REAL, r2_test REAL, consistent INTEGER, verdict TEXT, version TEXT NOT NULL,
    estimate TEXT, failures TEXT);
CREATE TABLE IF NOT EXISTS run_logs (run INTEGER NOT NULL, digest TEXT NOT NULL,
    place TEXT NOT NULL, PRIMARY KEY (run, digest, place));
CREATE INDEX IF NOT EXISTS runs_of_log ON run_logs (digest);
"""


@dataclass(frozen=True)
class Entry:
    """A shard's factors in the store: which rows of which log, folded how."""

    key: str
    fold: str
    digest: str
    first: int
    stop: int
    samples: int


@dataclass(frozen=True)
class KnownLog:
    """A log that the store has seen: whose it is, and of which period."""

    robot: str
    period: str
    digest: str
    place: str
    rows: int
    start: float  # [s] its first stamp
    stop: float


class DiskFull(StorageError):
    """There is no room for what a store is to keep; the work itself needs none."""


class Store:
    """An open store; made where there is none, unless `create` is False. Any number of processes
    may have it open.
    """

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True) -> None:
        self.folder = Path(folder)
        self.damaged: list[str] = []  # keys of entries that were thrown away
        self._tidied: set[Path] = set()
        database = self.folder / "store.sqlite"
        if not create and not database.is_file():
            raise StorageError(
                f"{self.folder} is no store (it has no store.sqlite); check --store, or make one"
                " with thetahat identify --store"
            )
        try:
            (self.folder / "objects").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
            raise kind(
                f"the store {self.folder} cannot be made ({error.strerror}); give another folder"
                " with --store"
            ) from None
        with self._said():
            self._database = sqlite3.connect(
                database, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._database.row_factory = sqlite3.Row
            _patiently(lambda: self._database.execute("PRAGMA journal_mode = WAL"))
            self._database.execute("PRAGMA synchronous = NORMAL")
            version = self._database.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                self._database.close()
                raise StorageError(
                    f"the store {self.folder} is of version {version}, and {VERSION} is known; use"
                    " the thetahat that made it, or another folder"
                )
            if not version:
                self._database.executescript(
                    f"BEGIN IMMEDIATE;{TABLES}PRAGMA user_version = {VERSION};COMMIT;"
                )

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let it go."""
        with suppress(sqlite3.Error):
            self._database.close()

    # -- SQLite ------------------------------------------------------------------------------------

    @contextmanager
    def _said(self) -> Iterator[None]:
        """What SQLite raises, in one sentence."""
        try:
            yield
        except sqlite3.OperationalError as error:
            told, kind = str(error), StorageError
            if "locked" in told:
                told = f"another run has held it for {PATIENCE:g} s; wait for it to end"
            elif "full" in told or ("disk I/O" in told and _room(self.folder) < ROOM):
                told, kind = (
                    "its disk is full; make room, and run again: what was stored is kept",
                    DiskFull,
                )
            else:
                told = f"{told}; check the folder, its permissions and the room on its disk"
            raise kind(f"the store {self.folder} cannot be used: {told}") from None
        except sqlite3.DatabaseError as error:
            raise StorageError(
                f"{self.folder / 'store.sqlite'} is damaged ({error}); move it away: the entries"
                " beside it are kept, the memory of runs begins anew"
            ) from None

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Rows of a question."""
        with self._said():
            return self._database.execute(sql, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Several changes, all or none."""
        with self._said():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    def change(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One change for every row of values, all or none."""
        with self.transaction() as database:
            database.executemany(sql, rows)

    def insert(self, sql: str, values: Sequence[Any]) -> int:
        """One row; its number."""
        with self._said():
            return int(self._database.execute(sql, values).lastrowid or 0)

    # -- entries -----------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self.folder / "objects" / key[:2] / key

    def has(self, key: str) -> bool:
        """Whether there is an entry of this key, whole or not."""
        return self._path(key).is_file()

    def get(self, key: str, read: Callable[[bytes], T]) -> T | None:
        """The entry, read; None where there is none, or where it was damaged and is now gone."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(
                f"{path} cannot be read ({error.strerror}); check the store's disk and permissions"
            ) from None
        try:
            return read(data)
        except Damaged:
            self.damaged.append(key)
            with suppress(OSError):
                path.unlink()
            return None

    def put(self, key: str, data: bytes) -> None:
        """Keep an entry; what is there under this key already is the same."""
        path = self._path(key)
        if path.exists():
            return
        if path.parent not in self._tidied:
            self._tidied.add(path.parent)
            _tidy(path.parent)
        write_atomically(path, data, folders=True)

    # -- files and logs ----------------------------------------------------------------------------

    def content_of(self, item: Item, state: str) -> str | None:
        """The hash of a file's content as it was when the file was in this state; None where that
        is not known.
        """
        found = self.query(
            "SELECT digest FROM files WHERE place = ? AND state = ?", (item.place, state)
        )
        return str(found[0]["digest"]) if found else None

    def knows(self, item: Item) -> bool:
        """Whether the file was seen before, in whatever state."""
        return bool(self.query("SELECT 1 FROM files WHERE place = ?", (item.place,)))

    def remember_file(self, item: Item, state: str, digest: str) -> None:
        """That a file in this state has this content; not of one that was written to just now,
        whose stamps may stay when it changes.
        """
        if item.remote or time.time() - item.changed() > SETTLED:
            self.change(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)",
                [(item.place, state, digest, time.time())],
            )

    def remember_logs(self, logs: Iterable[KnownLog]) -> None:
        """Which logs are of which robot and period."""
        now = time.time()
        rows = [
            (log.robot, log.period, log.digest, log.place, log.rows, log.start, log.stop, now)
            for log in logs
        ]
        self.change("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def logs(self, robot: str | None = None, period: str | None = None) -> list[KnownLog]:
        """The logs of one robot and one period, or of all."""
        found = self.query(
            "SELECT * FROM logs WHERE robot = coalesce(?, robot) AND period = coalesce(?, period)"
            " ORDER BY robot, period, start, place",
            (robot, period),
        )
        return [KnownLog(*(row[name] for name in KnownLog.__dataclass_fields__)) for row in found]

    def remember_entries(self, entries: Iterable[Entry]) -> None:
        """Which rows of which log an entry holds."""
        rows = [
            (each.key, each.fold, each.digest, each.first, each.stop, each.samples, time.time())
            for each in entries
        ]
        self.change("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def entries(self, digest: str, fold: str | None = None) -> list[Entry]:
        """The entries of a log, folded in one way, or in all ways there are."""
        found = self.query(
            "SELECT * FROM entries WHERE digest = ? AND fold = coalesce(?, fold) ORDER BY fold,"
            " first",
            (digest, fold),
        )
        return [Entry(*(row[name] for name in Entry.__dataclass_fields__)) for row in found]

    def entries_of(
        self, robot: str, period: str | None = None, *, fold: str | None = None
    ) -> list[Entry]:
        """The entries of a robot's logs of one period, or of all: what an estimate of that robot
        then is merged from.
        """
        return [
            entry for log in self.logs(robot, period) for entry in self.entries(log.digest, fold)
        ]


def _room(folder: Path) -> int:
    """Bytes that the folder's disk has left."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return ROOM


def _tidy(folder: Path) -> None:
    """Remove what writers that were killed left of entries they had not finished."""
    with suppress(OSError):
        for path in folder.glob(".*"):
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


def _patiently(call: Callable[[], Any]) -> None:
    """SQLite does not wait by itself while another process turns the same new file to WAL mode."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            call()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.05)
