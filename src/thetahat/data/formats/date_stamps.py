"""Time stamps that are dates: ISO 8601 text and datetimes as seconds, epochs by their size."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars

ISO_8601 = re.compile(
    r"(\d{4})[-/](\d{2})[-/](\d{2})[T ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?"
    r" ?(Z|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
_PARTS = (  # of polars' regular expressions: date, minutes, seconds, zone
    r"^\s*(\d{4}[-/]\d{2}[-/]\d{2})[T ](\d{2}:\d{2})(?::(\d{2}(?:[.,]\d+)?))?"
    r" ?(Z|[+-]\d{2}:?\d{2})?\s*$"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# [s since 1970] of 2001-09-09 and 2096: stamps between them, in some unit, are dates
EARLIEST, LATEST = 1.0e9, 4.0e9
EPOCH_UNITS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}
SLOWEST = 0.5  # [s] between two rows; an epoch in a unit that makes a log slower is not believed


def seconds_of_text(text: str) -> float | None:
    """Return the seconds since 1970 of an ISO 8601 date, UTC unless it states a zone; None where
    it is none.
    """
    match = ISO_8601.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
    try:
        whole = datetime(year, month, day, hour, minute, int(match[6] or 0), tzinfo=UTC)
    except ValueError:
        return None
    fraction = float(f"0.{match[7] or 0}")
    return (whole - _EPOCH - _offset(match[8])).total_seconds() + fraction


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone == "Z":
        return timedelta()
    sign = -1 if zone[0] == "-" else 1
    return sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))


def seconds_of_texts(texts: polars.Series) -> np.ndarray:
    """Return the seconds since 1970 of a column of ISO 8601 dates, NaN where one is none."""
    import polars

    date, clock, seconds, zone = (texts.str.extract(_PARTS, group) for group in (1, 2, 3, 4))
    whole = (
        date.str.replace_all("/", "-", literal=True)
        + "T"
        + clock
        + ":"
        + seconds.fill_null("00").str.replace(",", ".", literal=True)
    )
    stamps = whole.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="ns", strict=False)
    offset = zone.fill_null("Z").str.replace("Z", "+00:00", literal=True)
    minutes = offset.str.slice(1, 2).cast(polars.Int64, strict=False) * 60
    minutes = minutes + offset.str.slice(-2).cast(polars.Int64, strict=False)
    sign = 1 - 2 * offset.str.starts_with("-").cast(polars.Int64)
    nanoseconds = stamps.dt.epoch("ns") - sign * minutes * 60_000_000_000
    return nanoseconds_to_seconds(nanoseconds)


def nanoseconds_to_seconds(nanoseconds: polars.Series) -> np.ndarray:
    """Return whole nanoseconds as seconds, NaN where there are none."""
    whole, rest = nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000
    out: np.ndarray = whole.cast(float).to_numpy() + 1e-9 * rest.cast(float).to_numpy()
    return out


def epoch_unit(stamps: np.ndarray) -> str | None:
    """Return the unit of stamps since 1970 ("ms", "us", "ns"), by size and step; None where they
    are seconds or no dates.

    stamps: the first ones of a log. Seconds since 1970 need no unit.
    """
    steps = np.diff(stamps)
    steps = steps[steps > 0.0]
    if not len(steps):
        return None
    for unit, factor in EPOCH_UNITS.items():
        if EARLIEST <= factor * stamps[0] <= LATEST:
            return unit if factor * float(np.median(steps)) < SLOWEST else None
    return None
