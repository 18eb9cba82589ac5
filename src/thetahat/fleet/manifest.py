"""The manifest of a fleet: which robot has which robot file and which logs, in TOML or CSV.

    robot = "arm4"               # for robots that name none of their own

    [robots.arm-01]
    robot = "arms/left.urdf"     # beside the manifest, or the name of a robot that ships with us
    logs = ["arm-01/*.parquet", "s3://bucket/arm-01"]

    [[robots.arm-02.logs]]
    log = "march.parquet"
    date = 2024-03-01            # when it was recorded, or
    period = "spring"            # what it is counted under

A CSV has one row per log, with the columns id, robot, log, and if wanted period and date.
"""

from __future__ import annotations

import csv
import datetime
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thetahat import robots
from thetahat.errors import MalformedInput, StorageError, known

LARGEST = 64 * 2**20  # bytes
MOST_PARTS = 100  # of a dotted key; tomllib takes hours for thousands
CSV_KEYS = ("id", "robot", "log", "period", "date")


@dataclass(frozen=True)
class LogEntry:
    """A file, folder, pattern or URL as the manifest names it."""

    place: str  # made absolute, or a URL
    given: str
    period: str | None = None
    date: datetime.date | None = None


@dataclass(frozen=True)
class Member:
    """A robot of the fleet."""

    name: str
    robot: Path
    logs: tuple[LogEntry, ...]


@dataclass(frozen=True)
class Manifest:
    """All robots, in the order of the file."""

    path: Path
    members: tuple[Member, ...]


_Robots = dict[str, tuple[str | None, list[LogEntry]]]  # robot file and logs, by id


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; `MalformedInput` says in one sentence what is wrong with it."""
    return _Reader(path).manifest()


class _Reader:
    """Reads one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def manifest(self) -> Manifest:
        readers = {".toml": self._from_toml, ".csv": self._from_csv}
        read = readers.get(self.path.suffix.lower())
        if read is None:
            raise self._error(
                " is neither TOML nor CSV by its name; give a manifest that ends in .toml or .csv"
            )
        robots = read(self._text())
        if not robots:
            raise self._error(
                " names no robot; add a [robots.<id>] table with its robot file and logs"
            )
        return Manifest(
            self.path, tuple(self._member(name, *each) for name, each in robots.items())
        )

    def _error(self, what: str) -> MalformedInput:
        return MalformedInput(f"{self.path.name}{what}")

    def _text(self) -> str:
        try:
            size = self.path.stat().st_size
            if size > LARGEST:
                raise self._error(
                    f" has {size:,} bytes; a manifest has far less, so give another file"
                )
            return self.path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be read: {error.strerror or error}; check the path"
            ) from None
        except UnicodeDecodeError as error:
            raise self._error(
                f" is not UTF-8 text (byte {error.start}); save it as UTF-8"
            ) from None

    def _member(self, name: str, robot: str | None, logs: list[LogEntry]) -> Member:
        if not name.strip() or not name.isprintable():
            raise self._error(f" has a robot with the id {name!r}; give it a name that can be read")
        if robot is None:
            raise self._error(f': robot {name!r} has no robot file; add robot = "FILE"')
        if not logs:
            raise self._error(
                f': robot {name!r} has no logs; add logs = ["FILE, FOLDER OR PATTERN"]'
            )
        return Member(name, self._robot_file(name, robot), tuple(logs))

    def _robot_file(self, name: str, robot: str) -> Path:
        """The file beside the manifest, else the robot that ships under this name."""
        file = self.path.parent / robot
        with suppress(OSError, ValueError):
            if file.is_file():
                return file
        if robot in robots.names():
            return robots.path(robot)
        raise self._error(
            f": the robot file {robot!r} of {name!r} is neither a file beside the manifest nor a"
            f" robot that ships with thetahat ({', '.join(robots.names())}); check the path"
        )

    def _entry(self, name: str, place: Any, period: Any = None, date: Any = None) -> LogEntry:
        if not isinstance(place, str) or not place.strip():
            raise self._error(
                f": a log of robot {name!r} is {place!r}; give a file, folder, pattern or URL"
            )
        if period is not None and (
            not isinstance(period, str | int) or isinstance(period, bool) or not str(period).strip()
        ):
            raise self._error(
                f": the period of {place!r} of robot {name!r} is {period!r}; give a text"
            )
        absolute = place if "://" in place else str(self.path.parent / place)
        label = None if period is None else str(period).strip()
        return LogEntry(absolute, place, label, self._date(name, place, date))

    def _date(self, name: str, place: str, date: Any) -> datetime.date | None:
        if date is None:
            return None
        if isinstance(date, datetime.datetime):
            return date.date()
        if isinstance(date, datetime.date):
            return date
        try:
            return datetime.datetime.fromisoformat(date).date()
        except (TypeError, ValueError):
            raise self._error(
                f": the date of {place!r} of robot {name!r} is {date!r}; write it as 2024-03-31"
            ) from None

    # -- TOML --------------------------------------------------------------------------------------

    def _from_toml(self, text: str) -> _Robots:
        for number, line in enumerate(text.splitlines(), 1):
            key, equals, _ = line.partition("=")
            is_key = equals or key.lstrip().startswith("[")
            if is_key and "," not in key and key.count(".") >= MOST_PARTS:
                raise self._error(
                    f" line {number} has a key of more than {MOST_PARTS} parts; write"
                    " [robots.<id>] tables"
                )
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # integers of 5,000 digits are a ValueError
            reason = str(error) or type(error).__name__
            raise self._error(f" is not TOML: {reason[:200]}; correct it there") from None
        self._check_keys("the manifest", data, ("robot", "robots"))
        shared, listed = data.get("robot"), data.get("robots", {})
        if not isinstance(listed, Mapping):
            raise self._error(
                f": robots is {_shown(listed)}; write one [robots.<id>] table per robot"
            )
        out: _Robots = {}
        for name, each in listed.items():
            if not isinstance(each, Mapping):
                raise self._error(
                    f": robot {name!r} is {_shown(each)}; write a [robots.{name}] table with robot"
                    " and logs"
                )
            self._check_keys(f"robot {name!r}", each, ("robot", "logs"))
            robot, logs = each.get("robot", shared), each.get("logs", [])
            if robot is not None and not isinstance(robot, str):
                raise self._error(
                    f": the robot file of {name!r} is {_shown(robot)}; give a path or a name in"
                    " quotes"
                )
            several = logs if isinstance(logs, list) else [logs]
            out[name] = robot, [self._toml_log(name, log) for log in several]
        return out

    def _toml_log(self, name: str, log: Any) -> LogEntry:
        if not isinstance(log, Mapping):
            return self._entry(name, log)
        self._check_keys(f"a log of robot {name!r}", log, ("log", "period", "date"))
        return self._entry(name, log.get("log"), log.get("period"), log.get("date"))

    def _check_keys(self, where: str, table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        for key in table:
            if key not in keys:
                raise self._error(
                    f": {where} has the key {key!r}, which is unknown; keys: {', '.join(keys)}"
                )

    # -- CSV ---------------------------------------------------------------------------------------

    def _from_csv(self, text: str) -> _Robots:
        rows = csv.reader(text.splitlines(), strict=True, skipinitialspace=True)
        out: _Robots = {}
        last = None
        try:
            header = [title.strip() for title in next(rows, [])]
            self._check_header(header)
            for row in rows:
                line = f" line {rows.line_num}"
                if not any(cell.strip() for cell in row):
                    continue
                if len(row) != len(header):
                    raise self._error(
                        f"{line} has {len(row)} fields, and the header {len(header)}; give one per"
                        " column"
                    )
                cells = {key: cell.strip() or None for key, cell in zip(header, row, strict=True)}
                name = cells["id"]
                if name is None:
                    raise self._error(f"{line} has no id; name the robot that the log is of")
                if name != last and name in out:
                    raise self._error(
                        f"{line}: the id {name!r} is used twice; keep a robot's rows together, ids"
                        " are unique"
                    )
                last = name
                before, logs = out.setdefault(name, (cells["robot"], []))
                if cells["robot"] is not None and before != cells["robot"]:
                    raise self._error(
                        f"{line}: robot {name!r} has the robot files {before!r} and"
                        f" {cells['robot']!r}; give one"
                    )
                logs.append(
                    self._entry(name, cells["log"] or "", cells.get("period"), cells.get("date"))
                )
        except csv.Error as error:
            raise self._error(
                f" line {rows.line_num} is not CSV ({error}); correct it there"
            ) from None
        return out

    def _check_header(self, header: list[str]) -> None:
        names = ", ".join(CSV_KEYS)
        for title in header:
            if title not in CSV_KEYS:
                raise self._error(f" has the column {title!r}, which is unknown; columns: {names}")
            if header.count(title) > 1:
                raise self._error(f" has the column {title!r} twice; columns: {names}")
        missing = [title for title in ("id", "log", "robot") if title not in header]
        if missing:
            raise self._error(
                f" has no column {known(missing)}; its first line names the columns: {names}"
            )


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or an integer of thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:39]}…"
