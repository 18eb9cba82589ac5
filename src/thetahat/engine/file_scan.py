"""The scan of one file apart from all others, by any worker; `multi_log` merges those of a log."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Table
from thetahat.data.formats.table import State, file_digest, label
from thetahat.data.reading import Reading, open_log_file
from thetahat.data.scan import FileScan, merge_scans
from thetahat.data.scan import scan_file as scan_table
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.row_reader import divisible, line_places, spool_file, spooling
from thetahat.engine.sources import Item
from thetahat.errors import ThetahatError
from thetahat.model.robot import Robot


@dataclass(frozen=True, eq=False)
class ScannedFile:
    """A file's scan, and how its rows are found again."""

    scan: FileScan  # sources with paths as the scanning worker saw them
    states: tuple[State, ...]
    notes: tuple[tuple[str, str], ...]
    divisible: bool  # whether its rows can be read from the middle
    places: np.ndarray  # of lines, in a CSV file
    left_out: np.ndarray  # rows of the file that were skipped

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.scan.rows

    @property
    def columns(self) -> ColumnMap:
        """The columns that are read."""
        return self.scan.columns

    @property
    def digest(self) -> str:
        """The file's SHA-256, or a hash of those of all files of a bag."""
        return _joint_digest([source.sha256 for source in self.scan.sources])


def scan_key(digest: str, robot: Robot, reading: Reading) -> str:
    """Return the key of a scan: the file's content, the robot's joints, and how it is read."""
    geometry = robot_fingerprint(robot.without_drive())
    return fingerprint("scan", DATA_FORMAT, digest, geometry, reading.key)


def digest_of(item: Item) -> str:
    """Return the hash of a file's content, read for nothing else."""
    return _joint_digest([file_digest(file, Event()) for file in item.files()])


def _joint_digest(hashes: list[str]) -> str:
    return hashes[0] if len(hashes) == 1 else fingerprint(hashes)


def scan_file(item: Item, robot: Robot, reading: Reading) -> ScannedFile:
    """Read a file once from front to back; errors name it as its owner does."""
    path = item.local()
    try:
        table, columns = open_log_file(path, robot, reading)
        if reading.spool is None or divisible(table):
            return _scanned(robot, table, columns, divisible=divisible(table))
        with spooling(table, spool_file(reading.spool, item, columns, reading)) as spooled:
            return _scanned(robot, spooled, columns, divisible=True)
    except ThetahatError as error:
        raise type(error)(str(error).replace(label(path), item.name)) from None


def _scanned(robot: Robot, table: Table, columns: ColumnMap, *, divisible: bool) -> ScannedFile:
    scan = scan_table(robot, table, columns)
    merge_scans(robot, [(table, scan)])  # what is wrong with the file is an error of it alone
    notes, places = tuple(table.notes), line_places(table)
    left_out = np.zeros(0, np.int64) if table.skipped is None else table.skipped.rows
    return ScannedFile(scan, tuple(table.states), notes, divisible, places, left_out)
