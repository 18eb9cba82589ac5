"""The manifest of a fleet: which robot has which robot file and which logs, in TOML or CSV.

    robot = "arm4"                            # for robots that name none of their own

    [robots.arm-01]
    robot = "arms/left.urdf"                  # beside the manifest, or the name of a robot that
    ships with thetahat logs = ["arm-01/*.parquet", "s3://bucket/arm-01"]

    [[robots.arm-02.logs]]
    log = "march.parquet"
    date = 2024-03-01                         # when it was recorded, or
    period = "spring"                         # what it is counted under

A CSV has one row per log, with the columns id, robot, log, and if wanted period and date.
"""

from __future__ import annotations

import csv
import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thetahat import robots
from thetahat.errors import MalformedInput, StorageError, known

LARGEST = 64 * 2**20  # bytes
KEYS = ("robot", "logs")
LOG_KEYS = ("log", "period", "date")
CSV_NEEDED, CSV_KEYS = ("id", "log"), ("id", "robot", "log", "period", "date")


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


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file; `MalformedInput` says in one sentence what is wrong with it."""
    kind = path.suffix.lower()
    if kind not in (".toml", ".csv"):
        raise MalformedInput(
            f"{path.name} is neither TOML nor CSV by its name; give a manifest that ends in .toml"
            " or .csv"
        )
    text = _text(path)
    found = _from_toml(path, text) if kind == ".toml" else _from_csv(path, text)
    members = tuple(_member(path, name, *each) for name, each in found.items())
    if not members:
        raise MalformedInput(
            f"{path.name} names no robot; add a [robots.<id>] table with its robot file and logs"
        )
    return Manifest(path, members)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise MalformedInput(
                f"{path.name} has {path.stat().st_size:,} bytes; a manifest has far less, so give"
                " another file"
            )
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror or error}; check the path"
        ) from None
    except UnicodeDecodeError as error:
        raise MalformedInput(
            f"{path.name} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None


def _member(path: Path, name: str, robot: str | None, logs: list[LogEntry]) -> Member:
    if not name.strip() or not name.isprintable():
        raise MalformedInput(
            f"{path.name} has a robot with the id {name!r}; give it a name that can be read"
        )
    if robot is None:
        raise MalformedInput(f'{path.name}: robot {name!r} has no robot file; add robot = "FILE"')
    if not logs:
        raise MalformedInput(
            f'{path.name}: robot {name!r} has no logs; add logs = ["FILE, FOLDER OR PATTERN"]'
        )
    return Member(name, _robot_file(path, name, robot), tuple(logs))


def _robot_file(path: Path, name: str, robot: str) -> Path:
    """The file beside the manifest, else the robot that ships under this name."""
    file = path.parent / robot
    try:
        if file.is_file():
            return file
    except (OSError, ValueError):
        pass
    if robot in robots.names():
        return robots.path(robot)
    raise MalformedInput(
        f"{path.name}: the robot file {robot!r} of {name!r} is neither a file beside the manifest"
        f" nor a robot that ships with thetahat ({', '.join(robots.names())}); check the path"
    )


def _entry(path: Path, name: str, place: Any, period: Any = None, date: Any = None) -> LogEntry:
    if not isinstance(place, str) or not place.strip():
        raise MalformedInput(
            f"{path.name}: a log of robot {name!r} is {place!r}; give a file, folder, pattern"
            " or URL"
        )
    if period is not None and (
        not isinstance(period, str | int) or isinstance(period, bool) or not str(period).strip()
    ):
        raise MalformedInput(
            f"{path.name}: the period of {place!r} of robot {name!r} is {period!r}; give a text"
        )
    absolute = place if "://" in place else str(path.parent / place)
    return LogEntry(
        absolute,
        place,
        None if period is None else str(period).strip(),
        _date(path, name, place, date),
    )


def _date(path: Path, name: str, place: str, date: Any) -> datetime.date | None:
    if date is None or (
        isinstance(date, datetime.date) and not isinstance(date, datetime.datetime)
    ):
        return date
    try:
        return (
            date.date()
            if isinstance(date, datetime.datetime)
            else datetime.datetime.fromisoformat(date).date()
        )
    except (TypeError, ValueError):
        raise MalformedInput(
            f"{path.name}: the date of {place!r} of robot {name!r} is {date!r}; write it as"
            " 2024-03-31"
        ) from None


# -- TOML ------------------------------------------------------------------------------------------


def _from_toml(path: Path, text: str) -> dict[str, tuple[str | None, list[LogEntry]]]:
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise MalformedInput(f"{path.name} is not TOML: {error}; correct it there") from None
    _only(path, "the manifest", found, ("robot", "robots"))
    shared, listed = found.get("robot"), found.get("robots", {})
    if not isinstance(listed, Mapping):
        raise MalformedInput(
            f"{path.name}: robots is {_shown(listed)}; write one [robots.<id>] table per robot"
        )
    out = {}
    for name, each in listed.items():
        if not isinstance(each, Mapping):
            raise MalformedInput(
                f"{path.name}: robot {name!r} is {_shown(each)}; write a [robots.{name}] table with"
                " robot and logs"
            )
        _only(path, f"robot {name!r}", each, KEYS)
        robot = each.get("robot", shared)
        if robot is not None and not isinstance(robot, str):
            raise MalformedInput(
                f"{path.name}: the robot file of {name!r} is {_shown(robot)}; give a path or a name"
                " in quotes"
            )
        logs = each.get("logs", [])
        out[name] = (
            robot,
            [_toml_log(path, name, log) for log in (logs if isinstance(logs, list) else [logs])],
        )
    return out


def _toml_log(path: Path, name: str, log: Any) -> LogEntry:
    if not isinstance(log, Mapping):
        return _entry(path, name, log)
    _only(path, f"a log of robot {name!r}", log, LOG_KEYS)
    return _entry(path, name, log.get("log"), log.get("period"), log.get("date"))


def _only(path: Path, where: str, table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            raise MalformedInput(
                f"{path.name}: {where} has the key {key!r}, which is unknown; keys:"
                f" {', '.join(keys)}"
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


# -- CSV -------------------------------------------------------------------------------------------


def _from_csv(path: Path, text: str) -> dict[str, tuple[str | None, list[LogEntry]]]:
    rows = csv.reader(text.splitlines(), strict=True, skipinitialspace=True)
    out: dict[str, tuple[str | None, list[LogEntry]]] = {}
    closed: set[str] = (
        set()
    )  # robots whose rows have ended: one that comes again is a second robot of the same id
    last = None
    try:
        header = [title.strip() for title in next(rows, [])]
        _check_header(path, header)
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise MalformedInput(
                    f"{path.name} line {rows.line_num} has {len(row)} fields, and the header"
                    f" {len(header)}; give one per column"
                )
            cells = {title: cell.strip() or None for title, cell in zip(header, row, strict=True)}
            name = cells["id"]
            if name is None:
                raise MalformedInput(
                    f"{path.name} line {rows.line_num} has no id; name the robot that the log is of"
                )
            if name != last and name in closed:
                raise MalformedInput(
                    f"{path.name} line {rows.line_num}: the id {name!r} is used twice; keep a"
                    " robot's rows together, ids are unique"
                )
            closed.add(name)
            last, before = name, out.get(name)
            robot = cells.get("robot") or (before[0] if before else None)
            if before and before[0] != robot:
                raise MalformedInput(
                    f"{path.name} line {rows.line_num}: robot {name!r} has the robot files"
                    f" {before[0]!r} and {robot!r}; give one"
                )
            out.setdefault(name, (robot, []))[1].append(
                _entry(path, name, cells["log"] or "", cells.get("period"), cells.get("date"))
            )
    except csv.Error as error:
        raise MalformedInput(
            f"{path.name} line {rows.line_num} is not CSV ({error}); correct it there"
        ) from None
    return out


def _check_header(path: Path, header: list[str]) -> None:
    for title in header:
        if title not in CSV_KEYS:
            raise MalformedInput(
                f"{path.name} has the column {title!r}, which is unknown; columns:"
                f" {', '.join(CSV_KEYS)}"
            )
        if header.count(title) > 1:
            raise MalformedInput(
                f"{path.name} has the column {title!r} twice; columns: {', '.join(CSV_KEYS)}"
            )
    missing = [title for title in (*CSV_NEEDED, "robot") if title not in header]
    if missing:
        raise MalformedInput(
            f"{path.name} has no column {known(missing)}; its first line names the columns:"
            f" {', '.join(CSV_KEYS)}"
        )
