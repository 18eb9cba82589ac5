"""Periods of a robot's service life, in order: when each log was recorded.

What the manifest states comes first: a log's `period`, which is a label, else its `date`. By day,
week or month a log without either is dated by its file's name (2024-03-31 or 20240331 in it). When
a file was last written says nothing of when it was recorded, so it is never asked. By log, which is
the default, every log is a period of its own, in the manifest's order; a folder's in the order of
their names.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from thetahat.engine.multi_log import Failure
from thetahat.engine.sources import Item, items
from thetahat.errors import MalformedInput, StorageError, ThetahatError
from thetahat.fleet.manifest import LogEntry, Member

BY = ("log", "day", "week", "month")
_DATED = re.compile(r"(?<!\d)(20\d\d|19\d\d)([-_.]?)(\d\d)\2(\d\d)(?!\d)")


@dataclass(frozen=True)
class Period:
    """Logs that are one estimate."""

    label: str
    items: tuple[Item, ...]
    date: datetime.date | None  # its first day, where all of its logs are dated


@dataclass(frozen=True)
class Timeline:
    """The periods of a robot, in order, and logs that are not there."""

    periods: tuple[Period, ...]
    failures: tuple[Failure, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """All logs, in the order of the periods."""
        return tuple(item for period in self.periods for item in period.items)


def timeline(member: Member, by: str = "log") -> Timeline:
    """Return the periods of a robot of the manifest."""
    logs, failures = _logs(member)
    groups: dict[str, list[tuple[Item, datetime.date | None]]] = {}
    taken: set[str] = {entry.period for _, entry in logs if entry.period is not None}
    for item, entry in logs:
        date = entry.date or (None if by == "log" else _named_date(item))
        if entry.period is not None:
            label = entry.period
        elif by == "log":
            label = _unused(PurePosixPath(item.place).stem, taken)
        elif date is None:
            failures.append(
                Failure(
                    item.name,
                    f"{item.name} of {member.name} is of no {by} that is stated; give its date in"
                    " the manifest, or in its name",
                    3,
                )
            )
            continue
        else:
            label = _label(date, by)
        groups.setdefault(label, []).append((item, date))
    periods = [
        Period(label, tuple(item for item, _ in some), _first([date for _, date in some]))
        for label, some in groups.items()
    ]
    dated = [(period.date, period) for period in periods if period.date is not None]
    if len(dated) == len(periods):
        periods = [period for _, period in sorted(dated, key=lambda each: each[0])]
    return Timeline(tuple(periods), tuple(failures))


def period_times(periods: Sequence[Period]) -> np.ndarray:
    """Return the times of periods: days where all are dated and not all of one day, else their
    numbers.
    """
    dates = [period.date for period in periods if period.date is not None]
    if len(dates) == len(periods) and len(set(dates)) > 1:
        return np.array([float((date - dates[0]).days) for date in dates])
    return np.arange(float(len(periods)))


def _logs(member: Member) -> tuple[list[tuple[Item, LogEntry]], list[Failure]]:
    """Every log once, and names behind which there is none."""
    logs: dict[str, tuple[Item, LogEntry]] = {}
    failures = []
    for entry in member.logs:
        try:
            for item in items(entry.place):
                if not item.remote:
                    item.state()
                logs.setdefault(item.place, (item, entry))
        except StorageError as error:
            failures.append(
                Failure(
                    entry.given,
                    f"the log {entry.given!r} of {member.name} cannot be had ({error})",
                    MalformedInput.exit_code,
                )
            )
        except ThetahatError as error:
            failures.append(Failure.of(entry.given, error))
    return list(logs.values()), failures


def _named_date(item: Item) -> datetime.date | None:
    for year, _, month, day in _DATED.findall(PurePosixPath(item.place).name):
        try:
            return datetime.date(int(year), int(month), int(day))
        except ValueError:
            continue
    return None


def _label(date: datetime.date, by: str) -> str:
    if by == "day":
        return date.isoformat()
    if by == "week":
        year, week, _ = date.isocalendar()
        return f"{year}-W{week:02d}"
    return f"{date:%Y-%m}"


def _unused(label: str, taken: set[str]) -> str:
    """The label, with a number behind it where it was given before."""
    unused, k = label, 2
    while unused in taken:
        unused, k = f"{label} ({k})", k + 1
    taken.add(unused)
    return unused


def _first(dates: list[datetime.date | None]) -> datetime.date | None:
    known = [date for date in dates if date is not None]
    return min(known) if len(known) == len(dates) else None
