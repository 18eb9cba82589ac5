"""Many logs to one `Information`: surveyed file by file, planned as shards, folded by workers, kept in a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from thetahat.data.formats import is_bag_folder
from thetahat.data.formats.bags import bag_files
from thetahat.data.formats.table import State
from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.data.stream import SHORTEST_RUN
from thetahat.errors import NotIdentifiable, StorageError, ThetahatError
from thetahat.fleet import survey
from thetahat.fleet.catalogue import Catalogue, Failure, catalogue, refused
from thetahat.fleet.choice import Choice, Choices, settings_choice, settled
from thetahat.fleet.fingerprint import fingerprint
from thetahat.fleet.fold import Fold, Folded, Work
from thetahat.fleet.score import Score
from thetahat.fleet.shards import ROWS, Shard, plan
from thetahat.fleet.sources import Item, items
from thetahat.fleet.store import Entry, KnownLog, Store
from thetahat.fleet.strangers import strangers
from thetahat.fleet.survey import FileSurvey, Reading
from thetahat.fleet.workers import Job, Workers
from thetahat.identify.information import Information
from thetahat.model.robot import Robot
from thetahat.validate import Validation

R = TypeVar("R")
Tell = Callable[[str, int, int], None]  # (what goes on, rows or files done, of how many)
REVIEWED = 4_096  # shards up to which every file is held against all others: their factors are then all here
EXCERPT = 500_000  # rows that a report and the noise of a fit are drawn from
BATCH = 1.0  # [s] between two notes in the store's database of what was folded


def _silent(what: str, done: int, total: int) -> None:
    pass


def _survey(context: tuple[Robot, Reading], item: Item) -> FileSurvey:
    return survey.survey_file(item, *context)


def _hash(_: None, item: Item) -> str:
    return survey.digest_of(item)


def _run(context: Work[R], shard: Shard) -> R:
    return context.run(shard)


@dataclass(frozen=True, eq=False)
class Gathered(Generic[R]):
    """What came of the logs' rows."""

    result: R
    failures: tuple[Failure, ...]  # files and shards that were left out
    shards: int
    computed: int  # of the shards; the others were in the store
    root: str  # key of the whole


class Gatherer:
    """Workers and a store, and what they do with logs. A store that cannot be written to any more is said at the end, and stops nothing."""

    def __init__(self, workers: Workers | None = None, store: Store | None = None, *, tell: Tell = _silent, rows: int = ROWS) -> None:
        self.workers, self.store, self.tell, self._shard = workers or Workers(), store, tell, rows
        self.trouble: list[Failure] = []

    # -- surveys ------------------------------------------------------------------------------------------------------

    def survey(
        self,
        names: str | PathLike[str] | Sequence[str | PathLike[str]],
        robot: Robot,
        reading: Reading | None = None,
        *,
        owner: str | None = None,
        period: str = "",
    ) -> Catalogue:
        """The files behind paths, folders, patterns and URLs as one log; those that cannot be used are named in its `failures`.

        owner, period: what the store remembers the logs by: which robot's they are (by default, the robot's name), and of when.
        """
        reading = reading or Reading()
        if self.store is not None:
            reading = replace(reading, spool=str(self.store.folder.absolute() / "spool"))
        given = items(names)
        found: dict[Item, FileSurvey | Failure] = {}
        states: dict[Item, str] = {}
        for item in given:
            try:
                states[item] = item.state()
                known = self._known(item, states[item], robot, reading)
            except ThetahatError as error:
                known = Failure.of(item.name, error)
            if known is not None:
                found[item] = known
        missing = [item for item in given if item not in found]
        found |= self._touched(missing, states, robot, reading)
        self.tell("surveying", len(found), len(given))
        missing = [item for item in missing if item not in found]
        job = Job((robot, reading), _survey, lambda item: item.name)
        for number, result in self.workers.each(job, missing):
            item = missing[number]
            found[item] = result
            if isinstance(result, FileSurvey):
                self.kept(lambda item=item, result=result: self._keep_survey(item, states[item], result, robot, reading))
            self.tell("surveying", len(found), len(given))
        whole = catalogue(robot, reading, [(item, found[item]) for item in given])
        self.kept(lambda: self._keep_logs(whole, owner or robot.name, period))
        return whole

    def _known(self, item: Item, state: str, robot: Robot, reading: Reading) -> FileSurvey | None:
        """The survey of a file whose content the store knows."""
        digest = None if self.store is None else self.store.content_of(item, state)
        return None if digest is None else self._surveyed(item, digest, robot, reading)

    def _touched(self, missing: Sequence[Item], states: dict[Item, str], robot: Robot, reading: Reading) -> dict[Item, FileSurvey]:
        """Surveys of files that were known and whose stamps have changed since: perhaps their content has not, which a hash tells quickly."""
        if self.store is None:
            return {}
        suspects = [item for item in missing if not item.remote and self.store.knows(item)]
        out = {}
        for number, digest in self.workers.each(Job(None, _hash, lambda item: item.name), suspects):
            item = suspects[number]
            known = None if isinstance(digest, Failure) else self._surveyed(item, digest, robot, reading)
            if known is not None:
                out[item] = known
                self.kept(lambda item=item, digest=digest: self.store.remember_file(item, states[item], digest))
        return out

    def _surveyed(self, item: Item, digest: str, robot: Robot, reading: Reading) -> FileSurvey | None:
        """The survey of this content, as one of this file."""
        assert self.store is not None
        found = self.store.get(survey.survey_key(digest, robot, reading), survey.from_bytes)
        if found is None or item.remote:
            return found
        path = Path(item.place)
        files = bag_files(path) if is_bag_folder(path) else [path]
        sources = tuple(replace(source, path=str(file)) for source, file in zip(found.sources, files, strict=True))
        return survey.renamed(replace(found, states=tuple(State.of(file) for file in files), sources=sources), path.stem)

    def _keep_survey(self, item: Item, state: str, found: FileSurvey, robot: Robot, reading: Reading) -> None:
        assert self.store is not None
        self.store.put(survey.survey_key(found.digest, robot, reading), survey.to_bytes(found))
        if item.state() == state:
            self.store.remember_file(item, state, found.digest)

    def _keep_logs(self, files: Catalogue, owner: str, period: str) -> None:
        assert self.store is not None
        self.store.remember_logs(
            KnownLog(owner, period, each.digest, entry.item.place, each.rows, each.runs[0].start, each.runs[-1].stop)
            for entry in files.entries
            for each in [entry.survey]
        )

    # -- settings -----------------------------------------------------------------------------------------------------

    def choose(self, files: Catalogue, choices: Choices | None = None, span: tuple[int, int] | None = None) -> Settings:
        """How the rows of `span` are prepared: chosen from them, or as chosen in an earlier run of this store where that fits."""
        choices = choices or Choices()
        return self.settled(files, choices, span, settings_choice(files, choices, span))

    def settled(self, files: Catalogue, choices: Choices, span: tuple[int, int] | None, choice: Choice[R]) -> R:
        """A choice made from the rows of `span`, or in an earlier run of this store where that fits."""
        self.tell("choosing the low-pass", 0, 0)
        return choice.make() if self.store is None else settled(files, choices, span, choice, self.store, self.kept)

    # -- shards -------------------------------------------------------------------------------------------------------

    def gather(
        self,
        files: Catalogue,
        work: Work[R],
        span: tuple[int, int] | None = None,
        *,
        what: str = "folding",
        excerpt: bool = False,
        review: Callable[[list[tuple[str, R]]], list[Failure]] | None = None,
    ) -> Gathered[R]:
        """What some work makes of the rows of `span`, shard by shard, merged; what the store has is not computed again.

        excerpt: only of shards spread evenly over a long log. review: shown what each file came to by itself, says which are to be left out.
        """
        shards = self._excerpted(files, work, span)[0] if excerpt else plan(files, work.settings, span, rows=self._shard, whole=work.whole)
        if not shards:
            raise NotIdentifiable(f"no run of the log has {SHORTEST_RUN} rows; record the robot while it moves, without pauses in the log")
        keys = [fingerprint(work.fingerprint, shard.content) for shard in shards] if self.store is not None else []
        root = fingerprint("root", keys)
        notes = _Notes(self, work, shards, keys, what, by_file=review is not None and len(shards) <= REVIEWED)
        if self.store is not None:
            whole = self.store.get(root, lambda data: work.from_bytes(data, root))
            if whole is not None:
                notes.all_known()
                return Gathered(whole, files.failures, len(shards), 0, root)
        tasks = [shard if not keys or not self.store.has(key) else notes.fetch(number) for number, shard, key in _numbered(shards, keys)]
        job = Job(work, _run, lambda shard: shard.name)
        found, failures = self.workers.reduced(job, tasks, work.merged, notes.done, results=bool(keys) or notes.by_file is not None)
        notes.flush()
        if found is None:
            raise refused(failures)
        if review is not None and notes.by_file is not None:
            found, failures = self._reviewed(found, failures, notes.files(), work, review)
        if not failures:
            self.kept(lambda: self.store.put(root, work.to_bytes(found, root)))
        return Gathered(found, (*files.failures, *failures), len(shards), notes.computed, root)

    @staticmethod
    def _reviewed(
        found: R, failures: list[Failure], by_file: list[tuple[str, R]], work: Work[R], review: Callable[[list[tuple[str, R]]], list[Failure]]
    ) -> tuple[R, list[Failure]]:
        """The result without files that are to be left out."""
        out = review(by_file)
        names = {failure.name for failure in out}
        return (work.merged([part for name, part in by_file if name not in names]), [*failures, *out]) if out else (found, failures)

    def fold(self, files: Catalogue, work: Fold, span: tuple[int, int] | None = None) -> tuple[Information, Gathered[Folded]]:
        """The information of the rows of `span`; a file whose torques are those of another robot is left out and named."""
        found = self.gather(files, work, span, review=lambda by_file: strangers(work.fitted, by_file))
        rows = list(span) if span is not None else [0, files.log.rows]
        provenance = {"sources": [asdict(source) for source in files.log.sources], "rows": rows, "settings": asdict(work.settings)}
        return replace(found.result.on(work.fitted), provenance=(provenance,)), found

    def score(self, files: Catalogue, work: Score, span: tuple[int, int] | None = None) -> Validation:
        """How well robots predict the torques of the rows of `span`."""
        return work.validation(self.gather(files, work, span, what="scoring").result)

    def excerpt(self, files: Catalogue, work: Fold, span: tuple[int, int] | None = None, *, every: bool = False) -> Iterator[Samples]:
        """Samples of the rows of `span` in their order: of shards spread evenly over a long log; all of a shorter one, or of `every` one."""
        for shard in self._excerpted(files, work, span, every=every)[0]:
            yield from work.prepared.samples(shard, work.fitted, timed=True)

    def share(self, files: Catalogue, work: Work[Any], span: tuple[int, int] | None = None) -> float:
        """Which part of the rows of `span` an excerpt has, 1: all."""
        return self._excerpted(files, work, span)[1]

    def _excerpted(self, files: Catalogue, work: Work[Any], span: tuple[int, int] | None, *, every: bool = False) -> tuple[list[Shard], float]:
        shards = plan(files, work.settings, span, rows=self._shard, whole=work.whole)
        total = sum(shard.rows for shard in shards)
        if every or total <= EXCERPT:
            return shards, 1.0
        count = max(1, round(len(shards) * EXCERPT / total))
        chosen = [shards[k] for k in np.unique(np.linspace(0, len(shards) - 1, count).round().astype(int))]
        return chosen, sum(shard.rows for shard in chosen) / total

    # -- trouble ------------------------------------------------------------------------------------------------------

    def kept(self, write: Callable[[], None]) -> None:
        """Write to the store; where that fails the work goes on, and nothing more is written."""
        if self.store is None or self.trouble:
            return
        try:
            write()
        except StorageError as error:
            self.trouble.append(Failure.of(str(self.store.folder), error))


def _numbered(shards: list[Shard], keys: list[str]) -> list[tuple[int, Shard, str]]:
    return [(number, shard, keys[number] if keys else "") for number, shard in enumerate(shards)]


class _Notes(Generic[R]):
    """What becomes of shards: kept in the store as they are done, counted for whoever watches."""

    def __init__(self, gatherer: Gatherer, work: Work[R], shards: list[Shard], keys: list[str], what: str, *, by_file: bool) -> None:
        self._gatherer, self._work, self._shards, self._keys, self._what = gatherer, work, shards, keys, what
        self._total = sum(shard.rows for shard in shards)
        self._rows, self.computed, self._last = 0, 0, time.monotonic()
        self._waiting: list[Entry] = []
        self._fetched: set[int] = set()
        self.by_file: dict[str, dict[int, R]] | None = {} if by_file else None
        gatherer.tell(what, 0, self._total)

    def all_known(self) -> None:
        """Nothing is left to do."""
        self._gatherer.tell(self._what, self._total, self._total)

    def fetch(self, number: int) -> Callable[[], R | Failure]:
        """A function that gets a shard's result from the store, or computes it where that turns out to be damaged."""

        def call() -> R | Failure:
            key, store = self._keys[number], self._gatherer.store
            found = store.get(key, lambda data: self._work.from_bytes(data, key))
            if found is not None:
                self._fetched.add(number)
                return found
            try:
                return self._work.run(self._shards[number])
            except ThetahatError as error:
                return Failure.of(self._shards[number].name, error)

        return call

    def done(self, number: int, result: R | Failure | None) -> None:
        """A shard is done."""
        shard = self._shards[number]
        self._rows += shard.rows
        if self.by_file is not None and result is not None and not isinstance(result, Failure):
            self.by_file.setdefault(shard.item.name, {})[number] = result
        if number not in self._fetched:
            self.computed += 1
            if self._keys and result is not None and not isinstance(result, Failure):
                key = self._keys[number]
                self._gatherer.kept(lambda: self._gatherer.store.put(key, self._work.to_bytes(result, key)))
                self._waiting.append(Entry(key, self._work.fingerprint, shard.digest, *shard.span, int(result.samples)))
                if time.monotonic() - self._last > BATCH:
                    self.flush()
        self._gatherer.tell(self._what, self._rows, self._total)

    def files(self) -> list[tuple[str, R]]:
        """What each file came to, in the order of the log."""
        found = [(min(parts), name, self._work.merged([parts[k] for k in sorted(parts)])) for name, parts in (self.by_file or {}).items()]
        return [(name, result) for _, name, result in sorted(found, key=lambda each: each[0])]

    def flush(self) -> None:
        """Note in the database what was computed."""
        waiting, self._waiting, self._last = self._waiting, [], time.monotonic()
        if waiting:
            self._gatherer.kept(lambda: self._gatherer.store.remember_entries(waiting))
