"""The scan of a log's files, side by side on workers; files whose content the store knows are not
read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike

from thetahat.data.formats.table import State
from thetahat.data.reading import Reading
from thetahat.engine import file_scan
from thetahat.engine.cache import Store
from thetahat.engine.file_scan import ScannedFile
from thetahat.engine.multi_log import Failure, MultiLog, merge_files
from thetahat.engine.sources import Item, items
from thetahat.engine.tuning_cache import Write
from thetahat.engine.workers import Job, Workers
from thetahat.errors import ThetahatError
from thetahat.model.robot import Robot

Names = str | PathLike[str] | Sequence[str | PathLike[str]]
Progress = Callable[[str, int, int], None]  # (stage, rows or files done, of how many)


def _scan(context: tuple[Robot, Reading], item: Item) -> ScannedFile:
    return file_scan.scan_file(item, *context)


def _hash(_: None, item: Item) -> str:
    return file_scan.digest_of(item)


def _name(item: Item) -> str:
    return item.name


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
        job = Job((self.robot, self.reading), _scan, _name)
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
        for number, digest in self.workers.each(Job(None, _hash, _name), touched):
            item = touched[number]
            known = None if isinstance(digest, Failure) else self._stored(item, digest)
            if known is not None:
                out[item] = known
                self._remember(item, states[item], known.digest)
        return out

    def _stored(self, item: Item, digest: str) -> ScannedFile | None:
        """The stored scan of this content, as one of this file."""
        key = file_scan.scan_key(digest, self.robot, self.reading)
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
        key = file_scan.scan_key(file.digest, self.robot, self.reading)
        self.write(lambda store: store.put(key, file))
        if self.store is not None and item.state() == state:
            self._remember(item, state, file.digest)

    def _remember(self, item: Item, state: str, digest: str) -> None:
        self.write(lambda store: store.remember_file(item, state, digest))
