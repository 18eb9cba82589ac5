"""The scan of a log's files, side by side on workers; files whose content the store knows are not
read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from os import PathLike
from threading import Event

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Table
from thetahat.data.formats.table import State, file_digest, label
from thetahat.data.reading import Reading, open_log_file
from thetahat.data.scan import merge_scans
from thetahat.data.scan import scan_file as scan_table
from thetahat.engine.cache import Store
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.multi_log import Failure, MultiLog, ScannedFile, joint_digest, merge_files
from thetahat.engine.row_reader import divisible, line_places, spool_file, spooling
from thetahat.engine.sources import Item, items
from thetahat.engine.tuning_cache import Write
from thetahat.engine.workers import Job, Workers
from thetahat.errors import ThetahatError
from thetahat.model.robot import Robot

Names = str | PathLike[str] | Sequence[str | PathLike[str]]
Progress = Callable[[str, int, int], None]  # (stage, rows or files done, of how many)


def scan_key(digest: str, robot: Robot, reading: Reading) -> str:
    """Return the key of a scan: the file's content, the robot's joints, and how it is read."""
    geometry = robot_fingerprint(robot.without_drive())
    return fingerprint("scan", DATA_FORMAT, digest, geometry, reading.key)


def digest_of(_: None, item: Item) -> str:
    """Return the hash of a file's content, read for nothing else."""
    return joint_digest([file_digest(file, Event()) for file in item.files()])


def scan_file(context: tuple[Robot, Reading], item: Item) -> ScannedFile:
    """Read a file once from front to back, by any worker; errors name it as its owner does."""
    (robot, reading), path = context, item.local()
    try:
        table, columns = open_log_file(path, robot, reading)
        if reading.spool is None or divisible(table):
            return _scanned(robot, table, columns, reading, divisible=divisible(table))
        with spooling(table, spool_file(reading.spool, item, columns, reading)) as spooled:
            return _scanned(robot, spooled, columns, reading, divisible=True)
    except ThetahatError as error:
        raise type(error)(str(error).replace(label(path), item.name)) from None


def _scanned(
    robot: Robot, table: Table, columns: ColumnMap, reading: Reading, *, divisible: bool
) -> ScannedFile:
    scan = scan_table(robot, table, columns)
    # what is wrong with the file is an error of it alone
    merge_scans(robot, [(table, scan)], reading.keep)
    notes, places = tuple(table.notes), line_places(table)
    left_out = np.zeros(0, np.int64) if table.skipped is None else table.skipped.rows
    return ScannedFile(scan, tuple(table.states), notes, divisible, places, left_out)


@dataclass(frozen=True, eq=False)
class LogScanner:
    """Workers, a store, and what files are read as."""

    robot: Robot
    reading: Reading
    workers: Workers
    store: Store | None
    write: Write
    progress: Progress

    def scan(self, names: Names) -> MultiLog:
        """Scan the files behind paths, folders, patterns and URLs, and merge them to one log.

        Those that cannot be used are named in its `failures`.
        """
        wanted = items(names)
        files: dict[Item, ScannedFile | Failure] = {}
        states: dict[Item, str] = {}
        for item in wanted:
            try:
                states[item] = item.state()
                known = self._known(item, states[item])
            except ThetahatError as error:
                files[item] = Failure.of(item.name, error)
            else:
                files |= {} if known is None else {item: known}
        files |= self._touched([item for item in wanted if item not in files], states)
        self.progress("scanning", len(files), len(wanted))
        missing = [item for item in wanted if item not in files]
        job = Job((self.robot, self.reading), scan_file, attrgetter("name"))
        for number, result in self.workers.each(job, missing):
            item = missing[number]
            files[item] = result
            if isinstance(result, ScannedFile):
                self._keep(item, states[item], result)
            self.progress("scanning", len(files), len(wanted))
        return merge_files(self.robot, self.reading, [(item, files[item]) for item in wanted])

    def _known(self, item: Item, state: str) -> ScannedFile | None:
        """The scan of a file whose content the store knows."""
        digest = None if self.store is None else self.store.content_of(item, state)
        return None if digest is None else self._stored(item, digest)

    def _touched(self, missing: Sequence[Item], states: dict[Item, str]) -> dict[Item, ScannedFile]:
        """Scans of files that were known and whose stamps have changed since: perhaps their content
        has not, which a hash tells quickly.
        """
        if self.store is None:
            return {}
        touched = [item for item in missing if not item.remote and self.store.knows(item)]
        out: dict[Item, ScannedFile] = {}
        for number, digest in self.workers.each(Job(None, digest_of, attrgetter("name")), touched):
            item = touched[number]
            known = None if isinstance(digest, Failure) else self._stored(item, digest)
            if known is not None:
                out[item] = known
                self._remember(item, states[item], known.digest)
        return out

    def _stored(self, item: Item, digest: str) -> ScannedFile | None:
        """The stored scan of this content, as one of this file."""
        key = scan_key(digest, self.robot, self.reading)
        file = None if self.store is None else self.store.get(key, ScannedFile)
        if file is None or item.remote:
            return file
        paths = item.files()
        sources = tuple(
            replace(source, path=str(each))
            for source, each in zip(file.scan.sources, paths, strict=True)
        )
        states = tuple(State.of(each) for each in paths)
        return replace(file, scan=replace(file.scan, sources=sources), states=states)

    def _keep(self, item: Item, state: str, file: ScannedFile) -> None:
        key = scan_key(file.digest, self.robot, self.reading)
        self.write(lambda store: store.put(key, file))
        if self.store is not None and item.state() == state:
            self._remember(item, state, file.digest)

    def _remember(self, item: Item, state: str, digest: str) -> None:
        self.write(lambda store: store.remember_file(item, state, digest))
