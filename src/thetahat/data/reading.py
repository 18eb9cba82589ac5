"""How the files of a log are read: format, columns, units, which rows. The one door to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from thetahat.data.columns import (
    ColumnMap,
    Conversion,
    Resolver,
    by_place,
    commanded_columns,
    parse_patterns,
)
from thetahat.data.formats import Table, open_table
from thetahat.data.formats.date_stamps import epoch_unit
from thetahat.data.formats.table import label
from thetahat.data.presets import check_format, currents_hint, preset_patterns
from thetahat.data.units import Converter, ScaledUnits, Unit, parse_units
from thetahat.errors import MalformedInput, ThetahatError
from thetahat.model.robot import Robot

EXAMINED = 64  # rows at the beginning by which stamps since 1970 are recognised


@dataclass(frozen=True)
class Reading:
    """How files are read, as `read_log` takes it, and the folder of spools that all workers see."""

    columns: str | Mapping[str, str] | None = None
    topic: str | None = None
    salvage: bool = False
    units: str | Mapping[str, str] | ScaledUnits | None = None
    format: str | None = None
    skip_bad_rows: bool = False
    keep: tuple[str, ...] = ()  # what the audit would leave out but must not
    spool: str | None = None

    @property
    def stated_units(self) -> str | Mapping[str, str] | None:
        """The units of columns, without gains."""
        return self.units.units if isinstance(self.units, ScaledUnits) else self.units

    @property
    def gains(self) -> tuple[tuple[str, float], ...]:
        """Joints, and the factors on their torques."""
        return self.units.gains if isinstance(self.units, ScaledUnits) else ()

    @property
    def world_wrenches(self) -> bool:
        """Whether wrenches are in the world's axes."""
        return isinstance(self.units, ScaledUnits) and self.units.wrench_frame == "world"

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the rows that are read, in plain values."""
        given = (self.columns, self.topic, self.salvage)
        more: tuple[object, ...] = (self.gains,) if self.gains else ()
        more += ("world",) if self.world_wrenches else ()
        units = self.stated_units
        return (*given, units, self.format, self.skip_bad_rows, self.keep, *more)

    def check(self) -> None:
        """Refuse options that cannot be read, before any file is."""
        parse_patterns(self.columns)
        parse_units(self.stated_units)
        check_format(self.format)


class Header(Protocol):
    """The part of a table that tells its columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its columns."""

    @property
    def widths(self) -> dict[str, int]:
        """Return the widths of matrices that were expanded to columns."""

    @property
    def headerless(self) -> bool:
        """Return whether its columns have numbers, from 1, for names."""

    @property
    def dates(self) -> frozenset[str]:
        """Return the columns that hold dates."""

    def head(self, column: str, count: int) -> np.ndarray:
        """Return the first numbers of a column, unchecked."""


def open_log_table(path: Path, joints: Sequence[str], reading: Reading) -> Table:
    """Open a file of a log as a table. joints: of the robot."""
    check_format(reading.format)
    table = open_table(
        path,
        joints=joints,
        topic=reading.topic,
        salvage=reading.salvage,
        format=reading.format,
        patterns=tuple(parse_patterns(reading.columns).values()),
    )
    table.skip_bad_rows = reading.skip_bad_rows
    table.skip_empty_rows = reading.format == "plotjuggler"
    return table


def open_log_file(path: Path, robot: Robot, reading: Reading) -> tuple[Table, ColumnMap]:
    """Open a file of a log, and find the robot's columns in it."""
    table = open_log_table(path, robot.joint_names, reading)
    return table, column_map(table, robot, reading, file=label(path))


def column_map(table: Header, robot: Robot, reading: Reading, *, file: str) -> ColumnMap:
    """Return where a table has the robot's columns, and their units."""
    patterns = parse_patterns(reading.columns)
    if table.headerless and not by_place(patterns):
        count = len(robot.joint_names)
        example = f"t=1,q=2-{1 + count},tau={2 + count}-{1 + 2 * count}"
        raise MalformedInput(
            f"{file}, line 1 holds numbers where the columns' names belong; add a header such as"
            f' t,q1,tau1, or name the places of the columns: --columns "{example}"'
        )
    names = table.names
    if reading.format is not None:
        preset = preset_patterns(reading.format, names, robot.joint_names, reading.topic, file)
        patterns = preset | patterns
    columns = Resolver(robot, names, widths=table.widths, patterns=patterns, file=file).resolve()
    for column in columns.columns[1:]:
        if column in table.dates:
            raise MalformedInput(
                f"{file}: column {column!r} holds dates, which are time stamps and not positions"
                " or torques; store numbers"
            )
    units, notes = parse_units(reading.stated_units), []
    if "t" not in units and (unit := _epoch(table, columns.time)) is not None:
        units["t"] = unit
        text = f"column {columns.time!r} counts {unit.name} since 1970; it is read in seconds"
        notes.append(("stamps", text))
    hint = "" if columns.has("tau") else currents_hint(reading.format, names)
    notes += [("currents", hint)] if hint else []
    converter = Converter(robot, units, dict(reading.gains))
    columns = _converted(columns, converter, tuple(notes))
    if not reading.world_wrenches:
        return columns
    return replace(columns, conversion=replace(columns.conversion, world_wrenches=True))


def command_map(
    columns: ColumnMap, robot: Robot, reading: Reading, kind: str = "cmd"
) -> ColumnMap | None:
    """Return where a table has the commanded positions, as a map of positions; None where a joint
    that it measures has none.

    They are in the units of `cmd`, by default those of q. kind: cmd, or cur or pwm of what the
    drives read, which is taken as it is.
    """
    pattern = parse_patterns(reading.columns).get(kind)
    place = commanded_columns(columns, robot, pattern, kind)
    if place is None:
        return None
    if kind != "cmd":
        scale = columns.conversion.scale
        taken = Conversion((scale[0] if scale else 1.0, *(1.0 for _ in place)))
        return replace(columns, place=place, incomplete=(), silent=(), conversion=taken)
    units = parse_units(reading.stated_units)
    kind = "cmd" if any(key.partition(".")[0] == "cmd" for key in units) else "q"
    converter, scale = Converter(robot, units), columns.conversion.scale
    factors = [converter.factor(kind, at) for _, at, _ in place]
    conversion = Conversion((scale[0] if scale else 1.0, *factors))
    return replace(columns, place=place, incomplete=(), silent=(), conversion=conversion)


def _converted(
    columns: ColumnMap, converter: Converter, notes: tuple[tuple[str, str], ...]
) -> ColumnMap:
    """Return the map with factors to SI units, and with notes on what was converted."""
    if not converter.units and not notes and not converter.gains:
        return columns
    place = {(kind, at): column for kind, at, column in columns.place}
    converter.check(place)
    factors = [converter.factor(kind, at) for kind, at in place]
    sentence = converter.sentence(place)
    told = (
        *notes,
        *((("unit-conversion", sentence),) if sentence else ()),
        *converter.gain_notes(place),
    )
    conversion = Conversion((converter.time_factor, *factors), told)
    return replace(columns, conversion=conversion)


def _epoch(table: Header, time: str) -> Unit | None:
    """Return the unit of stamps that count from 1970 and not in seconds."""
    try:
        stamps = table.head(time, EXAMINED)
    except ThetahatError:  # the scan says what is wrong, and where
        return None
    if not len(stamps) or not np.isfinite(stamps).all():
        return None
    name = epoch_unit(stamps)
    return None if name is None else parse_units({"t": name})["t"]
