"""Many logs to one `Information`: surveyed file by file, planned as shards, folded by workers, kept
in a store.
"""

from __future__ import annotations

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
from thetahat.data.resample import SHORTEST_RUN
from thetahat.data.samples import Samples
from thetahat.engine import file_scan
from thetahat.engine.file_scan import FileSurvey, Reading
from thetahat.engine.file_totals import BYTES
from thetahat.engine.fingerprint import fingerprint
from thetahat.engine.foreign_logs import FilePart, Known, misfit, strangers, suspects
from thetahat.engine.multi_log import Catalogue, Entry, Failure, catalogue, refused
from thetahat.engine.row_reader import FileRows
from thetahat.engine.settings_cache import Choice, Choices, settings_choice, settled
from thetahat.engine.shard_bookkeeping import Notes
from thetahat.engine.shard_fold import Fold, Folded, Work
from thetahat.engine.shard_score import Score, Scored
from thetahat.engine.shards import ROWS, Shard, plan
from thetahat.engine.sources import Item, items
from thetahat.engine.store import KnownLog, Store
from thetahat.engine.workers import Job, Workers
from thetahat.errors import NotIdentifiable, StorageError, ThetahatError
from thetahat.identification.information import Information
from thetahat.identification.scores import Validation
from thetahat.model.robot import Robot

R = TypeVar("R")
Review = Callable[
    [list[FilePart[R]]], dict[str, Failure]
]  # files that are to be left out, by place
Tell = Callable[[str, int, int], None]  # (what goes on, rows or files done, of how many)
EXCERPT = 500_000  # rows that a report and the noise of a fit are drawn from


def _silent(what: str, done: int, total: int) -> None:
    pass


def _survey(context: tuple[Robot, Reading], item: Item) -> FileSurvey:
    return file_scan.survey_file(item, *context)


def _hash(_: None, item: Item) -> str:
    return file_scan.digest_of(item)


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
    files: Catalogue  # that the result is of: without what was left out
    notes: tuple[str, ...] = ()  # what could not be looked into


class Gatherer:
    """Workers and a store, and what they do with logs. A store that cannot be written to any more
    is said at the end, and stops nothing.
    """

    def __init__(
        self,
        workers: Workers | None = None,
        store: Store | None = None,
        *,
        tell: Tell = _silent,
        rows: int = ROWS,
    ) -> None:
        self.workers, self.store, self.tell, self._shard = workers or Workers(), store, tell, rows
        self.trouble: list[Failure] = []

    # -- surveys -----------------------------------------------------------------------------------

    def survey(
        self,
        names: str | PathLike[str] | Sequence[str | PathLike[str]],
        robot: Robot,
        reading: Reading | None = None,
        *,
        owner: str | None = None,
        period: str = "",
    ) -> Catalogue:
        """The files behind paths, folders, patterns and URLs as one log; those that cannot be used
        are named in its `failures`.

        owner, period: what the store remembers the logs by: which robot's they are (by default, the
            robot's name), and of when.
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
                self.kept(
                    lambda item=item, result=result: self._keep_survey(
                        item, states[item], result, robot, reading
                    )
                )
            self.tell("surveying", len(found), len(given))
        whole = catalogue(robot, reading, [(item, found[item]) for item in given])
        self.kept(lambda: self._keep_logs(whole, owner or robot.name, period))
        return whole

    def _known(self, item: Item, state: str, robot: Robot, reading: Reading) -> FileSurvey | None:
        """The survey of a file whose content the store knows."""
        digest = None if self.store is None else self.store.content_of(item, state)
        return None if digest is None else self._surveyed(item, digest, robot, reading)

    def _touched(
        self, missing: Sequence[Item], states: dict[Item, str], robot: Robot, reading: Reading
    ) -> dict[Item, FileSurvey]:
        """Surveys of files that were known and whose stamps have changed since: perhaps their
        content has not, which a hash tells quickly.
        """
        if self.store is None:
            return {}
        suspects = [item for item in missing if not item.remote and self.store.knows(item)]
        out = {}
        for number, digest in self.workers.each(Job(None, _hash, lambda item: item.name), suspects):
            item = suspects[number]
            known = (
                None
                if isinstance(digest, Failure)
                else self._surveyed(item, digest, robot, reading)
            )
            if known is not None:
                out[item] = known
                self.kept(
                    lambda item=item, digest=digest: self.store.remember_file(
                        item, states[item], digest
                    )
                )
        return out

    def _surveyed(
        self, item: Item, digest: str, robot: Robot, reading: Reading
    ) -> FileSurvey | None:
        """The survey of this content, as one of this file."""
        assert self.store is not None
        found = self.store.get(file_scan.survey_key(digest, robot, reading), file_scan.from_bytes)
        if found is None or item.remote:
            return found
        path = Path(item.place)
        files = bag_files(path) if is_bag_folder(path) else [path]
        sources = tuple(
            replace(source, path=str(file))
            for source, file in zip(found.sources, files, strict=True)
        )
        return file_scan.renamed(
            replace(found, states=tuple(State.of(file) for file in files), sources=sources),
            path.stem,
        )

    def _keep_survey(
        self, item: Item, state: str, found: FileSurvey, robot: Robot, reading: Reading
    ) -> None:
        assert self.store is not None
        self.store.put(
            file_scan.survey_key(found.digest, robot, reading), file_scan.to_bytes(found)
        )
        if item.state() == state:
            self.store.remember_file(item, state, found.digest)

    def _keep_logs(self, files: Catalogue, owner: str, period: str) -> None:
        assert self.store is not None
        self.store.remember_logs(
            KnownLog(
                owner,
                period,
                each.digest,
                entry.item.place,
                each.rows,
                each.runs[0].start,
                each.runs[-1].stop,
            )
            for entry in files.entries
            for each in [entry.survey]
        )

    # -- settings ----------------------------------------------------------------------------------

    def choose(
        self, files: Catalogue, choices: Choices | None = None, span: tuple[int, int] | None = None
    ) -> Settings:
        """How the rows of `span` are prepared: chosen from them, or as chosen in an earlier run of
        this store where that fits.
        """
        choices = choices or Choices()
        return self.settled(files, choices, span, settings_choice(files, choices, span))

    def settled(
        self, files: Catalogue, choices: Choices, span: tuple[int, int] | None, choice: Choice[R]
    ) -> R:
        """A choice made from the rows of `span`, or in an earlier run of this store where that
        fits.
        """
        self.tell("choosing the low-pass", 0, 0)
        return (
            choice.make()
            if self.store is None
            else settled(files, choices, span, choice, self.store, self.kept)
        )

    # -- shards ------------------------------------------------------------------------------------

    def gather(
        self,
        files: Catalogue,
        work: Work[R],
        span: tuple[int, int] | None = None,
        *,
        what: str = "folding",
        excerpt: bool = False,
        review: Review[R] | None = None,
    ) -> Gathered[R]:
        """What some work makes of the rows of `span`, shard by shard, merged; what the store has is
        not computed again.

        excerpt: only of shards spread evenly over a long log. review: shown what each file came to
        by itself, says which are to be left out. A shard that fails is left out; so is its whole
        file where that is no longer the one that was surveyed, as nothing of it can be read again.
        """
        lost: dict[str, Failure] = {}
        shards = self._planned(files, work, span, lost, excerpt=excerpt)[0]
        if not shards:
            raise refused(list(lost.values())) if lost else _nothing()
        keys = (
            [fingerprint(work.fingerprint, shard.content) for shard in shards]
            if self.store is not None
            else []
        )
        root = fingerprint("root", keys)
        notes = Notes(
            work,
            shards,
            keys,
            store=self.store,
            write=self.kept,
            tell=lambda done, total: self.tell(what, done, total),
        )
        if self.store is not None:
            whole = self.store.get(root, lambda data: work.from_bytes(data, root))
            if whole is not None:
                notes.all_known()
                return Gathered(
                    whole,
                    (*files.failures, *lost.values()),
                    len(shards),
                    0,
                    root,
                    files.without(lost),
                )
        tasks = [
            shard if not keys or not self.store.has(key) else notes.fetch(number)
            for number, shard, key in _numbered(shards, keys)
        ]
        job = Job(work, _run, lambda shard: shard.place)
        found, failures = self.workers.reduced(
            job, tasks, work.merged, notes.done, results=bool(keys) or notes.by_file.files > 1
        )
        notes.flush()
        if found is None:
            raise refused(failures)
        lost |= _lost(files, shards, failures)
        by_file = notes.by_file
        parts = (
            by_file.parts()
            if by_file.files > 1
            else [FilePart(shards[0].item.place, shards[0].item.name, found)]
        )
        odd = {} if review is None or by_file.given_up else review(parts)
        told = (_unreviewed(by_file.files),) if review is not None and by_file.given_up else ()
        gone = {*lost, *odd} & {
            shard.item.place for shard in shards
        }  # files of which something is in the result
        if gone:
            rest = by_file.without(gone)
            if rest is None and by_file.given_up:
                again = self.gather(files.without(lost), work, span, what=what, excerpt=excerpt)
                return replace(
                    again,
                    failures=(*again.failures, *lost.values()),
                    computed=again.computed + notes.computed,
                    notes=told,
                )
            if rest is None and not odd:
                raise refused(list(lost.values()))
            if rest is None:  # there is nothing else, so it stays
                told, odd = tuple(failure.sentence for failure in odd.values()), {}
            found = found if rest is None else rest
        if not lost and not odd:
            self.kept(lambda: self.store.put(root, work.to_bytes(found, root)))
        lost |= odd
        return Gathered(
            found,
            (*files.failures, *lost.values()),
            len(shards),
            notes.computed,
            root,
            files.without(lost),
            told,
        )

    def fold(
        self, files: Catalogue, work: Fold, span: tuple[int, int] | None = None
    ) -> tuple[Information, Gathered[Folded]]:
        """The information of the rows of `span`; a file whose torques are those of another robot is
        left out and named.
        """
        found = self.gather(files, work, span, review=lambda parts: strangers(work.fitted, parts))
        rows = list(span) if span is not None else [0, files.log.rows]
        provenance = {
            "sources": [asdict(source) for source in found.files.sources],
            "rows": rows,
            "settings": asdict(work.settings),
        }
        return replace(found.result.on(work.fitted), provenance=(provenance,)), found

    def score(
        self,
        files: Catalogue,
        work: Score,
        span: tuple[int, int] | None = None,
        *,
        known: Known | None = None,
    ) -> tuple[Validation, Gathered[Scored]]:
        """How well robots predict the torques of the rows of `span`. known: what other rows say, so
        that a file of another robot is noticed.
        """

        def review(parts: list[FilePart[Scored]]) -> dict[str, Failure]:
            assert known is not None
            settings = replace(work.settings, torque_cutoff=known.work.settings.torque_cutoff)
            look = replace(known.work, prepared=replace(known.work.prepared, settings=settings))
            out = {}
            for part in suspects(parts, known):
                alone = files.without(
                    entry.item.place for entry in files.entries if entry.item.place != part.place
                )
                why = misfit(
                    part.name,
                    self.gather(alone, look, span, what="looking again").result,
                    known,
                    only=len(parts) == 1,
                )
                out |= {} if why is None else {part.place: why}
            return out

        found = self.gather(
            files, work, span, what="scoring", review=None if known is None else review
        )
        return work.validation(found.result), found

    def excerpt(
        self,
        files: Catalogue,
        work: Fold,
        span: tuple[int, int] | None = None,
        *,
        every: bool = False,
        failed: Callable[[Catalogue, Failure], None] | None = None,
    ) -> Iterator[Samples]:
        """Samples of the rows of `span` in their order: of shards spread evenly over a long log;
        all of a shorter one, or of `every` one.

        failed: told of a shard or file that can no longer be read, and of the log without it;
            without it that is an error.
        """
        lost: dict[str, Failure] = {}
        for shard in self._planned(files, work, span, lost, excerpt=not every)[0]:
            if shard.item.place in lost:
                continue
            try:
                yield from work.prepared.samples(shard, work.fitted, timed=True)
            except ThetahatError as error:
                lost |= _lost(files, [shard], [Failure.of(shard.place, error)])
        for failure in lost.values():
            if failed is None:
                raise refused([failure])
            failed(files.without(lost), failure)

    def share(
        self, files: Catalogue, work: Work[Any], span: tuple[int, int] | None = None
    ) -> float:
        """Which part of the rows of `span` an excerpt has, 1: all."""
        return self._planned(files, work, span, {}, excerpt=True)[1]

    def _planned(
        self,
        files: Catalogue,
        work: Work[Any],
        span: tuple[int, int] | None,
        lost: dict[str, Failure],
        *,
        excerpt: bool,
    ) -> tuple[list[Shard], float]:
        """The shards of the rows of `span`, or of an excerpt of them, and which part of all that
        is; files that can no longer be read are `lost`.
        """

        def failed(entry: Entry, error: ThetahatError) -> None:
            lost[entry.item.place] = Failure.of(entry.item.name, error)

        shards = plan(files, work.settings, span, rows=self._shard, whole=work.whole, failed=failed)
        total = sum(shard.rows for shard in shards)
        if not excerpt or total <= EXCERPT:
            return shards, 1.0
        count = max(1, round(len(shards) * EXCERPT / total))
        chosen = [
            shards[k] for k in np.unique(np.linspace(0, len(shards) - 1, count).round().astype(int))
        ]
        return chosen, sum(shard.rows for shard in chosen) / total

    # -- trouble -----------------------------------------------------------------------------------

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


def _nothing() -> NotIdentifiable:
    return NotIdentifiable(
        f"no run of the log has {SHORTEST_RUN} rows; record the robot while it moves, without"
        " pauses in the log"
    )


def _lost(
    files: Catalogue, shards: Sequence[Shard], failures: Sequence[Failure]
) -> dict[str, Failure]:
    """What is left out for these failures of shards, by place: a file that is no longer the one
    that was surveyed as a whole, else the shard.
    """
    by_place = {shard.place: shard for shard in shards}
    out: dict[str, Failure] = {}
    gone: dict[str, bool] = {}
    for failure in failures:
        shard = by_place[failure.name]
        place = shard.item.place
        if place not in gone:
            gone[place] = not _same(
                next(entry for entry in files.entries if entry.item.place == place), files
            )
        if gone[place]:
            out.setdefault(place, replace(failure, name=shard.item.name))
        else:
            out[shard.place] = replace(
                failure, name=shard.name, sentence=failure.sentence.replace(shard.place, shard.name)
            )
    return out


def _same(entry: Entry, files: Catalogue) -> bool:
    """Whether a file is still the one that was surveyed."""
    try:
        _ = FileRows.of(entry.item, entry.survey, files.reading, files.robot.joint_names).table
    except (ThetahatError, OSError):
        return False
    return True


def _unreviewed(files: int) -> str:
    return (
        f"the {files} logs were not held against each other, as their factors would take more than"
        f" {BYTES / 1e9:g} GB here: a log of another robot among them was not looked for"
    )
