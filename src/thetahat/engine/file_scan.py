"""The first look at one file, apart from all others: its rows checked and hashed, its runs found,
its channels audited.

What `thetahat.data.scan` decides over all files at once (limits at which torques saturate, signs,
the direction of gravity) needs all of them; a file's survey therefore keeps what those decisions
are made from, and `catalogue.py` makes them when all are in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from threading import Event
from typing import Any

import numpy as np

from thetahat.data.audit import ConstantChannel, Extreme
from thetahat.data.columns import ColumnMap, Resolver, parse_patterns
from thetahat.data.formats import Table, is_bag_folder, open_table
from thetahat.data.formats.bags import bag_files
from thetahat.data.formats.table import State, file_digest, label
from thetahat.data.scan import Survey
from thetahat.data.types import Run, Source
from thetahat.engine import array_codec
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.row_cache import spool_file, spooling
from thetahat.engine.seek import divisible, line_places
from thetahat.engine.sources import Item
from thetahat.errors import ThetahatError
from thetahat.model.robot import Robot

CHANNELS = ("dead", "stuck", "held")
WINDOW_ARRAYS = ("q", "dq", "ddq", "tau", "slope", "row")


@dataclass(frozen=True)
class Reading:
    """How files are read: as `read_log` takes it; and where rows may be set aside, a folder that
    all workers see.
    """

    columns: str | None = None
    topic: str | None = None
    salvage: bool = False
    spool: str | None = None

    @property
    def plain(self) -> tuple[str | None, str | None, bool]:
        """What decides the rows that are read."""
        return self.columns, self.topic, self.salvage


@dataclass(frozen=True, eq=False)
class FileSurvey:
    """What one file holds, rows counted from its own first."""

    sources: tuple[Source, ...]  # paths as the surveyor saw them
    states: tuple[State, ...]
    rows: int
    columns: ColumnMap
    runs: tuple[Run, ...]
    dropped: tuple[Run, ...]  # too short
    gaps: tuple[tuple[int, float, float], ...]
    notes: tuple[tuple[str, str], ...]
    wraps: dict[int, tuple[np.ndarray, np.ndarray]]
    stretches: dict[
        str, np.ndarray
    ]  # by channel: (·, 4) degree of freedom, value, first and stop row
    extremes: dict[str, Extremes]  # "top" and "bottom", by degree of freedom
    windows: dict[str, np.ndarray]
    period: float  # [s] of the windows
    divisible: bool  # whether its rows can be read from the middle
    places: np.ndarray  # of lines, in a CSV file

    @property
    def digest(self) -> str:
        """Of its content: the file's SHA-256, or one of all files of a bag."""
        return _digest([source.sha256 for source in self.sources])

    @property
    def bytes(self) -> int:
        """On disk."""
        return sum(source.bytes for source in self.sources)


Extremes = dict[
    int, tuple[dict[float, int], int, np.ndarray]
]  # by degree of freedom: rows at the two largest values, moving, intervals


def survey_key(digest: str, robot: Robot, reading: Reading) -> str:
    """What a file's survey is stored by: its content, the robot's joints, and how it is read."""
    return fingerprint(
        "survey", DATA_FORMAT, digest, robot_fingerprint(robot.without_drive()), reading.plain
    )


def digest_of(item: Item) -> str:
    """Of a file's content, read for nothing else."""
    path = item.local()
    return _digest(
        [
            file_digest(file, Event())
            for file in (bag_files(path) if is_bag_folder(path) else [path])
        ]
    )


def _digest(hashes: list[str]) -> str:
    return hashes[0] if len(hashes) == 1 else fingerprint(hashes)


def survey_file(item: Item, robot: Robot, reading: Reading) -> FileSurvey:
    """Read a file once from front to back; whatever is wrong with it is said with the name its
    owner gave it.
    """
    path = item.local()
    try:
        table = open_table(
            path, joints=robot.joint_names, topic=reading.topic, salvage=reading.salvage
        )
        columns = Resolver(
            robot,
            table.names,
            widths=table.widths,
            patterns=parse_patterns(reading.columns),
            file=label(path),
        ).resolve()
        if reading.spool is None or divisible(table):
            return _Surveyor(robot, table, columns).survey()
        with spooling(table, spool_file(reading.spool, item, columns, reading.plain)) as spooled:
            found = _Surveyor(robot, spooled, columns).survey()
        return replace(found, divisible=True)
    except ThetahatError as error:
        raise type(error)(str(error).replace(label(path), item.name)) from None


def renamed(found: FileSurvey, stem: str) -> FileSurvey:
    """The survey of the same content in a file of another name: runs that no column names are
    called after their file.
    """
    if found.columns.run is not None:
        return found
    order = {
        run.first_row: k
        for k, run in enumerate(
            sorted((*found.runs, *found.dropped), key=lambda run: run.first_row), start=1
        )
    }
    runs, dropped = (
        tuple(
            replace(
                run, name=stem if order[run.first_row] == 1 else f"{stem}#{order[run.first_row]}"
            )
            for run in some
        )
        for some in (found.runs, found.dropped)
    )
    return replace(found, runs=runs, dropped=dropped)


class _Surveyor(Survey):
    """The first pass over one file, with what it saw handed out."""

    def __init__(self, robot: Robot, table: Table, columns: ColumnMap) -> None:
        super().__init__(robot, [(table, columns)])

    def survey(self) -> FileSurvey:
        found = self.run()  # units that are not SI are an error here, of this file alone
        ((table, columns),) = self._tables
        audit = self._audit
        windows = audit._windows
        return FileSurvey(
            sources=found.sources,
            states=tuple(table.states),
            rows=found.rows,
            columns=columns,
            runs=found.runs,
            dropped=tuple(self._splitter.dropped),
            gaps=tuple(self._splitter.gaps),
            notes=tuple(table.notes),
            wraps=found.wraps,
            stretches={name: _stretches(getattr(audit, f"_{name}")) for name in CHANNELS},
            extremes={name: _extremes(getattr(audit, f"_{name}")) for name in ("top", "bottom")},
            windows=windows._joined() if windows._parts else {},
            period=windows._period,
            divisible=divisible(table),
            places=line_places(table),
        )


def _stretches(channels: dict[int, ConstantChannel]) -> np.ndarray:
    rows = [
        (v, stretch.value, stretch.first, stretch.stop)
        for v, channel in channels.items()
        for stretch in channel.found
    ]
    return np.array(rows, dtype=float).reshape(-1, 4)


def _extremes(channels: dict[int, Extreme]) -> Extremes:
    empty = np.zeros((0, 2), dtype=np.int64)
    return {
        v: (
            dict(extreme._counts),
            extreme._moving,
            np.concatenate(extreme._rows) if extreme._rows else empty,
        )
        for v, extreme in channels.items()
    }


# -- bytes -----------------------------------------------------------------------------------------


def to_bytes(survey: FileSurvey) -> bytes:
    """As the store keeps it."""
    values: dict[str, Any] = {
        "schema": "thetahat/survey/1",
        "sources": [asdict(source) for source in survey.sources],
        "states": [asdict(state) for state in survey.states],
        "rows": survey.rows,
        "columns": asdict(survey.columns),
        "runs": [asdict(run) for run in survey.runs],
        "dropped": [asdict(run) for run in survey.dropped],
        "gaps": survey.gaps,
        "notes": survey.notes,
        "period": survey.period,
        "divisible": survey.divisible,
        "extremes": {
            name: {
                str(v): [list(counts.items()), moving] for v, (counts, moving, _) in found.items()
            }
            for name, found in survey.extremes.items()
        },
    }
    arrays = {"places": survey.places}
    arrays |= {f"stretches.{name}": rows for name, rows in survey.stretches.items()}
    arrays |= {f"windows.{name}": array for name, array in survey.windows.items()}
    arrays |= {
        f"{name}.{v}": rows
        for name, found in survey.extremes.items()
        for v, (_, _, rows) in found.items()
    }
    arrays |= {
        f"wraps.{at}.{k}": array
        for at, pair in survey.wraps.items()
        for k, array in enumerate(pair)
    }
    return array_codec.packed(values, arrays)


def from_bytes(data: bytes) -> FileSurvey:
    """What `to_bytes` wrote; `codec.Damaged` where it is something else."""
    values, arrays = array_codec.unpacked(data)
    try:
        if values["schema"] != "thetahat/survey/1":
            raise array_codec.Damaged(f"it is a {values['schema']}")
        extremes = {
            name: {
                int(v): (dict(map(tuple, counts)), moving, arrays[f"{name}.{v}"])
                for v, (counts, moving) in found.items()
            }
            for name, found in values["extremes"].items()
        }
        wraps = {
            int(name.split(".")[1]): (array, arrays[f"{name[:-1]}1"])
            for name, array in arrays.items()
            if _first_wrap(name)
        }
        return FileSurvey(
            sources=tuple(Source(**each) for each in values["sources"]),
            states=tuple(State(**each) for each in values["states"]),
            rows=values["rows"],
            columns=ColumnMap(
                **{name: _tupled(value) for name, value in values["columns"].items()}
            ),
            runs=tuple(Run(**each) for each in values["runs"]),
            dropped=tuple(Run(**each) for each in values["dropped"]),
            gaps=_tupled(values["gaps"]),
            notes=_tupled(values["notes"]),
            wraps=wraps,
            stretches={name: arrays[f"stretches.{name}"] for name in CHANNELS},
            extremes=extremes,
            windows={
                name.removeprefix("windows."): array
                for name, array in arrays.items()
                if name.startswith("windows.")
            },
            period=values["period"],
            divisible=values["divisible"],
            places=arrays["places"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise array_codec.Damaged(f"it lacks what a survey has ({error})") from None


def _first_wrap(name: str) -> bool:
    return name.startswith("wraps.") and name.endswith(".0")


def _tupled(value: Any) -> Any:
    """Lists as tuples, as frozen objects hold them."""
    return (
        tuple(_tupled(each) for each in value)
        if isinstance(value, Iterable) and not isinstance(value, str)
        else value
    )
