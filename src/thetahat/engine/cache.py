"""The store: results kept by content, answers of whole runs, and the database of run records.

    DIR/entries/ab/ab12…    results, one file per key
    DIR/answers/ab12…       answers of `identify` with their files; the oldest go first
    DIR/spool/…             rows of files that can only be read from their beginning (row_reader.py)
    DIR/store.sqlite        in WAL mode: contents of files, settings in use, every run

A key is the hash of all that an entry depends on, so an entry never changes, two writers of one key
write the same, and whether it exists is asked of the folder alone: a run that was killed at any
moment leaves whole entries, and the next one goes on with them. An entry whose checksum is wrong is
deleted and computed anew. Entries hold numbers and text; nothing in them can run:

    magic (8)   length of the header (8)   header: JSON   arrays   BLAKE2 of all before (32)
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import sqlite3
import struct
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from thetahat.engine.sources import Item, evict
from thetahat.errors import StorageError
from thetahat.files import write_atomically

VERSION = 2  # of the folder; 1 had its results in `objects`, with another header
MAGIC = b"THETAH\x02\n"  # the byte before the line end is the version
CHECK = 32  # bytes
DTYPES = {"f": "<f8", "i": "<i8", "b": "|b1", "u": "|u1"}
LOCK_TIMEOUT = 30.0  # [s] another writer may take
# [s] since its last change, from which on a file's time stamps tell that it is still the same
SETTLING_TIME = 2.0
ROOM = 2**20  # bytes: with less, SQLite's complaint of its disk is that it is full
ABANDONED = 3600.0  # [s] after which a file that is being written no longer is
ANSWER_BYTES = 256 * 2**20  # of all answers of a store
T = TypeVar("T")

TABLES = """
CREATE TABLE IF NOT EXISTS files (place TEXT PRIMARY KEY, state TEXT NOT NULL,
    digest TEXT NOT NULL, seen REAL NOT NULL);
CREATE TABLE IF NOT EXISTS settings (series TEXT PRIMARY KEY, settings TEXT NOT NULL,
    made REAL NOT NULL);
CREATE TABLE IF NOT EXISTS settings_logs (series TEXT NOT NULL, digest TEXT NOT NULL,
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
Stored = str | int | float | bytes | None
Values = Sequence[Stored] | Mapping[str, Stored]


# -- bytes of an entry -----------------------------------------------------------------------------


class Damaged(ValueError):
    """Bytes that are not what was written."""


def encode(value: object, key: str) -> bytes:
    """Encode a frozen dataclass of numbers, texts, arrays, tuples, dictionaries and dataclasses."""
    arrays: list[np.ndarray] = []
    tree = _to_plain(value, arrays)
    described = [{"dtype": a.dtype.str, "shape": list(a.shape)} for a in arrays]
    header = json.dumps(
        {"type": type(value).__name__, "key": key, "value": tree, "arrays": described},
        allow_nan=False,
        separators=(",", ":"),
    ).encode()
    size = struct.pack("<q", len(header))
    body = b"".join([MAGIC, size, header, *(array.tobytes() for array in arrays)])
    return body + _checksum(body)


def decode(data: bytes, kind: type[T], key: str) -> T:
    """Return what `encode` was given; `Damaged` where it is something else, or of another key."""
    header, arrays = unpack(data)
    try:
        if (header["type"], header["key"]) != (kind.__name__, key):
            raise Damaged("it is the entry of another key")
        value: T = _from_plain(kind, header["value"], arrays)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Damaged(f"it is no {kind.__name__} ({error})") from None
    return value


def unpack(data: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the header and the arrays of an entry; `Damaged` where its checksum is wrong."""
    if len(data) < len(MAGIC) + 8 + CHECK or not data.startswith(MAGIC[:6]):
        raise Damaged("it is cut off, or no entry of a store")
    if not data.startswith(MAGIC):
        raise Damaged(f"it is of version {data[6]}, and {MAGIC[6]} is known")
    body = memoryview(data)[:-CHECK]
    if _checksum(body) != data[-CHECK:]:
        raise Damaged("its checksum is not as stored")
    (length,) = struct.unpack_from("<q", body, len(MAGIC))
    at = len(MAGIC) + 8 + length
    arrays = []
    try:
        header: dict[str, Any] = json.loads(bytes(body[len(MAGIC) + 8 : at]))
        for each in header["arrays"]:
            if each["dtype"] not in DTYPES.values():
                raise Damaged(f"an array has dtype {each['dtype']!r}")
            flat = np.frombuffer(body, each["dtype"], math.prod(each["shape"]), at)
            arrays.append(flat.reshape(each["shape"]).copy())  # aligned, and ours
            at += flat.nbytes
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"its header is not as the format says ({error})") from None
    if at != len(body):
        raise Damaged("bytes are left over behind its arrays")
    return header, arrays


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECK).digest()


def _to_plain(value: Any, arrays: list[np.ndarray]) -> Any:
    """As JSON holds it; an array is its number in `arrays`."""
    if isinstance(value, bytes):
        value = np.frombuffer(value, dtype=np.uint8)
    if isinstance(value, np.ndarray):
        arrays.append(np.ascontiguousarray(value, dtype=DTYPES[value.dtype.kind]))
        return len(arrays) - 1
    if is_dataclass(value):
        return [_to_plain(getattr(value, field.name), arrays) for field in fields(value)]
    if isinstance(value, dict):
        return [[_to_plain(each, arrays) for each in pair] for pair in value.items()]
    if isinstance(value, tuple | list):
        return [_to_plain(each, arrays) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def to_json(value: object) -> Any:
    """Return a dataclass without arrays as JSON holds it."""
    return _to_plain(value, [])


def from_json(kind: type[T], value: Any) -> T:
    """Return what `to_json` was given."""
    built: T = _from_plain(kind, value, [])
    return built


_hints = cache(get_type_hints)


def _from_plain(hint: Any, value: Any, arrays: list[np.ndarray]) -> Any:
    """The value of this type that `_to_plain` took apart."""
    if hint is np.ndarray:
        return arrays[value]
    if hint is bytes:
        return arrays[value].tobytes()
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        kinds = [hints[field.name] for field in fields(hint)]
        return hint(*(_from_plain(*each, arrays) for each in zip(kinds, value, strict=True)))
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        kinds = list(repeat(args[0], len(value)) if args[1:] == (...,) else args)
        return tuple(_from_plain(*each, arrays) for each in zip(kinds, value, strict=True))
    if origin is dict:
        return {_from_plain(args[0], k, arrays): _from_plain(args[1], v, arrays) for k, v in value}
    if origin in (Union, UnionType):
        kinds = [each for each in args if each is not NoneType]
        single = value is not None and len(kinds) == 1
        return _from_plain(kinds[0], value, arrays) if single else value
    if hint is float and isinstance(value, int):
        return float(value)
    if not isinstance(value, hint):
        raise Damaged(f"{value!r} is no {hint.__name__}")
    return value


# -- the store -------------------------------------------------------------------------------------


class DiskFull(StorageError):
    """There is no room for what a store is to keep; the work itself needs none."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of a whole run (schema thetahat/estimate/1, JSON) and the files it wrote."""

    estimate: str
    files: dict[str, bytes]  # by their names beneath the output folder


def encodable(values: Values) -> Values:
    """Return values as SQLite takes them: bytes of names that are no UTF-8 escaped."""
    if isinstance(values, Mapping):
        return {name: _encodable_value(value) for name, value in values.items()}
    return [_encodable_value(value) for value in values]


def _encodable_value(value: Stored) -> Stored:
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


class Store:
    """An open store; made where there is none, unless `create` is False.

    Any number of processes may have it open.
    """

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True) -> None:
        self.folder = Path(folder)
        self.damaged: list[str] = []  # keys of entries that were deleted
        self._tidied: set[Path] = set()
        database = self.folder / "store.sqlite"
        if not create and not database.is_file():
            raise StorageError(
                f"{self.folder} is no store (it has no store.sqlite); check --store, or make one"
                " with thetahat identify --store"
            )
        try:
            (self.folder / "entries").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
            raise kind(
                f"the store {self.folder} cannot be made ({error.strerror}); give another folder"
                " with --store"
            ) from None
        with self._explained():
            self._database = sqlite3.connect(
                database,
                timeout=LOCK_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
            )
            self._database.row_factory = sqlite3.Row
            _retry_locked(lambda: self._database.execute("PRAGMA journal_mode = WAL"))
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._check_version()

    def _check_version(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version == VERSION:
            return
        if version > VERSION:
            self._database.close()
            raise StorageError(
                f"the store {self.folder} is of version {version}, and {VERSION} is known; use"
                " the thetahat that made it, or another folder"
            )
        self._database.executescript(
            f"BEGIN IMMEDIATE;{TABLES}PRAGMA user_version = {VERSION};COMMIT;"
        )
        if version:
            warnings.warn(
                f"the store {self.folder} was of version {version}: its runs are kept, its results"
                f" are computed anew; {self.folder / 'objects'} can be deleted",
                stacklevel=4,
            )

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        with suppress(sqlite3.Error):
            self._database.close()

    # -- SQLite ------------------------------------------------------------------------------------

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what SQLite raises into one sentence."""
        try:
            yield
        except sqlite3.OperationalError as error:
            reason, kind = str(error), StorageError
            if "locked" in reason:
                reason = f"another run has held it for {LOCK_TIMEOUT:g} s; wait for it to end"
            elif "full" in reason or ("disk I/O" in reason and _free(self.folder) < ROOM):
                kind = DiskFull
                reason = "its disk is full; make room, and run again: what was stored is kept"
            else:
                reason = f"{reason}; check the folder, its permissions and the room on its disk"
            raise kind(f"the store {self.folder} cannot be used: {reason}") from None
        except sqlite3.DatabaseError as error:
            raise StorageError(
                f"{self.folder / 'store.sqlite'} is damaged ({error}); move it away: the entries"
                " beside it are kept, the run records begin anew"
            ) from None

    def query(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        with self._explained():
            return self._database.execute(sql, encodable(values)).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make several changes, all or none."""
        with self._explained():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    def change(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Make one change for every row of values, all or none."""
        with self.transaction() as database:
            database.executemany(sql, [encodable(row) for row in rows])

    def insert(self, sql: str, values: Sequence[Any]) -> int:
        """Insert one row; returns its number."""
        with self._explained():
            return int(self._database.execute(sql, encodable(values)).lastrowid or 0)

    # -- entries -----------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self.folder / "entries" / key[:2] / key

    def has(self, key: str) -> bool:
        """Whether there is an entry of this key, whole or not."""
        return self._path(key).is_file()

    def get(self, key: str, kind: type[T]) -> T | None:
        """Return the entry; None where there is none, or where it was damaged and is now gone."""
        return self._read(self._path(key), key, kind)

    def put(self, key: str, value: object) -> None:
        """Keep an entry; what is there under this key already is the same."""
        path = self._path(key)
        if not path.exists():
            self._write(path, encode(value, key))

    def get_answer(self, key: str) -> Answer | None:
        """Return the answer of this key, which then counts as used."""
        path = self.folder / "answers" / key
        answer = self._read(path, key, Answer)
        if answer is not None:
            with suppress(OSError):
                os.utime(path)
        return answer

    def put_answer(self, key: str, answer: Answer) -> None:
        """Keep an answer; the oldest give way."""
        path = self.folder / "answers" / key
        self._write(path, encode(answer, key))
        evict(path.parent.glob("[0-9a-f]*"), ANSWER_BYTES, keep=path)

    def _read(self, path: Path, key: str, kind: type[T]) -> T | None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(
                f"{path} cannot be read ({error.strerror}); check the store's disk and permissions"
            ) from None
        try:
            return decode(data, kind, key)
        except Damaged:
            self.damaged.append(key)
            with suppress(OSError):
                path.unlink()
            return None

    def _write(self, path: Path, data: bytes) -> None:
        if path.parent not in self._tidied:
            self._tidied.add(path.parent)
            _remove_abandoned(path.parent)
        write_atomically(path, data, folders=True)

    # -- contents of files -------------------------------------------------------------------------

    def content_of(self, item: Item, state: str) -> str | None:
        """Return the content hash of a file in this state; None where it is not known."""
        rows = self.query(
            "SELECT digest FROM files WHERE place = ? AND state = ?", (item.place, state)
        )
        return str(rows[0]["digest"]) if rows else None

    def knows(self, item: Item) -> bool:
        """Whether the file was seen before, in whatever state."""
        return bool(self.query("SELECT 1 FROM files WHERE place = ?", (item.place,)))

    def remember_file(self, item: Item, state: str, digest: str) -> None:
        """Remember that a file in this state has this content.

        Not of one that was written to just now, whose stamps may stay when it changes.
        """
        if item.remote or time.time() - item.changed() > SETTLING_TIME:
            self.change(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)",
                [(item.place, state, digest, time.time())],
            )


def _free(folder: Path) -> int:
    """Bytes that the folder's disk has left."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return ROOM


def _remove_abandoned(folder: Path) -> None:
    """Remove what writers that were killed left of files they had not finished."""
    with suppress(OSError):
        for path in folder.glob(".*"):
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


def _retry_locked(call: Callable[[], object]) -> None:
    """SQLite does not wait by itself while another process turns the same new file to WAL mode."""
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            call()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
