"""Many logs to one result: scanned file by file, cut into shards, reduced by workers, kept in a
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from thetahat.data.prepare import Settings
from thetahat.data.reading import Reading
from thetahat.data.resample import SHORTEST_RUN
from thetahat.data.samples import Samples
from thetahat.engine.cache import Store
from thetahat.engine.foreign_logs import (
    FilePart,
    FittedLogs,
    find_foreign_logs,
    foreign_failure,
    poorly_predicted,
)
from thetahat.engine.multi_log import Entry, Failure, MultiLog, Span, refused
from thetahat.engine.scan_logs import LogScanner, Names, Progress
from thetahat.engine.shard_bookkeeping import BYTES, ShardBook
from thetahat.engine.shard_work import Fold, FoldResult, Score, ScoreSums, Work
from thetahat.engine.shards import ROWS, Shard, plan
from thetahat.engine.tuning_cache import (
    CachedChoice,
    SettingsOptions,
    reuse_or_choose,
    settings_choice,
)
from thetahat.engine.workers import Job, Part, Workers
from thetahat.errors import NotIdentifiable, StorageError, ThetahatError
from thetahat.identification.information import Information
from thetahat.identification.scores import Validation
from thetahat.model.robot import Robot

E = TypeVar("E")
R = TypeVar("R")
Review = Callable[[list[FilePart[R]]], dict[str, Failure]]  # files to leave out, by place
EXCERPT = 500_000  # rows that a report and the noise of a fit are drawn from


def _silent(what: str, done: int, total: int) -> None:
    pass


def _run(context: Work[R], shard: Shard) -> R:
    return context.run(shard)


@dataclass(frozen=True, eq=False)
class Reduction(Generic[R]):
    """The result of all rows."""

    result: R
    failures: tuple[Failure, ...]  # files and shards that were left out
    shards: int
    computed: int  # of the shards; the others were in the store
    root: str  # key of the whole
    files: MultiLog  # that the result is of: without what was left out
    notes: tuple[str, ...] = ()  # what could not be checked


@dataclass(frozen=True, eq=False)
class _Plan:
    """Shards to be reduced."""

    shards: list[Shard]
    share: float  # of all rows
    lost: dict[str, Failure]  # files that can no longer be read, by place


class ShardReducer:
    """Scan, fold and score logs on workers, with a store.

    A store that cannot be written to any more is told in `store_failures`, and stops nothing.
    """

    def __init__(
        self,
        workers: Workers | None = None,
        store: Store | None = None,
        *,
        progress: Progress = _silent,
        rows: int = ROWS,
    ) -> None:
        self.workers, self.store = workers or Workers(), store
        self.progress, self._rows = progress, rows
        self.store_failures: list[Failure] = []

    def write(self, change: Callable[[Store], None]) -> None:
        """Change the store; where that fails the work goes on, and nothing more is written."""
        if self.store is None or self.store_failures:
            return
        try:
            change(self.store)
        except StorageError as error:
            self.store_failures.append(Failure.of(str(self.store.folder), error))

    def scan(self, names: Names, robot: Robot, reading: Reading | None = None) -> MultiLog:
        """Scan the files behind paths, folders, patterns and URLs as one log.

        Those that cannot be used are named in its `failures`.
        """
        reading = reading or Reading()
        reading.check()
        if self.store is not None:
            reading = replace(reading, spool=str(self.store.folder.absolute() / "spool"))
        return LogScanner(robot, reading, self.workers, self.store, self.write, self.progress).scan(
            names
        )

    # -- settings ----------------------------------------------------------------------------------

    def choose(
        self, files: MultiLog, options: SettingsOptions | None = None, span: Span = None
    ) -> Settings:
        """Choose how the rows of `span` are prepared, as in an earlier run of this store where that
        fits.
        """
        options = options or SettingsOptions()
        return self.reuse_or_choose(files, options, span, settings_choice(files, options, span))

    def reuse_or_choose(
        self, files: MultiLog, options: SettingsOptions, span: Span, choice: CachedChoice[R, E]
    ) -> R:
        """Make a choice from the rows of `span`, or take that of an earlier run of this store where
        it fits.
        """
        self.progress("choosing the low-pass", 0, 0)
        if self.store is None:
            return choice.choose()
        return reuse_or_choose(
            files, options, span, choice=choice, store=self.store, write=self.write
        )

    # -- shards ------------------------------------------------------------------------------------

    def reduce(
        self,
        files: MultiLog,
        work: Work[R],
        span: Span = None,
        *,
        what: str = "folding",
        excerpt: bool = False,
        review: Review[R] | None = None,
    ) -> Reduction[R]:
        """Merge what some work makes of the rows of `span`, shard by shard; what the store has is
        not computed again.

        A shard that fails is left out; so is its whole file where that is no longer the one that
        was scanned, as nothing of it can be read again.

        Args:
            files: the log.
            work: a fold or a score.
            span: rows of the log.
            what: name of the stage, for progress.
            excerpt: only of shards spread evenly over a long log.
            review: given what each file came to by itself, says which are to be left out.
        """
        plan = self._plan(files, work, span, excerpt=excerpt)
        if not plan.shards:
            raise refused(list(plan.lost.values())) if plan.lost else _too_short()
        report = partial(self.progress, what)
        book = ShardBook(work, plan.shards, self.store, write=self.write, progress=report)
        cached = book.cached_total()
        if cached is not None:
            return _reduction(book, cached, files, plan.lost)
        job = Job(work, _run, lambda shard: shard.place)
        whole: Part[R] = self.workers.reduce(
            job,
            plan.shards,
            work.merge,
            book.done,
            fetch=book.stored(),
            results=book.wants_results,
        )
        if whole.result is None:
            raise refused(whole.failures)
        lost = plan.lost | _lost(files, plan.shards, whole.failures)
        if book.totals.given_up and {shard.item.place for shard in plan.shards} & lost.keys():
            again = self.reduce(files.without(lost), work, span, what=what, excerpt=excerpt)
            return replace(
                again,
                failures=(*again.failures, *lost.values()),
                computed=again.computed + book.computed,
                notes=() if review is None else (_unreviewed(book.totals.files),),
            )
        return self._reviewed(_reduction(book, whole.result, files, lost), book, lost, review)

    def _reviewed(
        self,
        reduction: Reduction[R],
        book: ShardBook[R],
        lost: dict[str, Failure],
        review: Review[R] | None,
    ) -> Reduction[R]:
        """Leave out the files that can no longer be read, and those that the review refuses."""
        total, notes = reduction.result, reduction.notes
        odd: dict[str, Failure] = {}
        if review is not None and book.totals.given_up:
            notes = (_unreviewed(book.totals.files),)
        elif review is not None:
            odd = review(book.file_parts(total))
        gone = {*lost, *odd} & {shard.item.place for shard in book.shards}
        rest = book.totals.without(gone) if gone else total
        if rest is None and not odd:
            raise refused(list(lost.values()))
        if rest is None:  # there is nothing else, so it stays
            rest, notes, odd = total, tuple(failure.sentence for failure in odd.values()), {}
        if not lost and not odd:
            self.write(lambda store: store.put(book.root, rest))
        return replace(
            reduction,
            result=rest,
            failures=(*reduction.failures, *odd.values()),
            files=reduction.files.without(odd),
            notes=notes,
        )

    def fold(
        self, files: MultiLog, work: Fold, span: Span = None
    ) -> tuple[Information, Reduction[FoldResult]]:
        """Fold the rows of `span`; a file whose torques are those of another robot is left out and
        named.
        """
        folded = self.reduce(
            files, work, span, review=lambda parts: find_foreign_logs(work.robot, parts)
        )
        provenance = {
            "sources": [asdict(source) for source in folded.files.sources],
            "rows": [0, files.log.rows] if span is None else list(span),
            "settings": asdict(work.settings),
        }
        return replace(folded.result.information(work.robot), provenance=(provenance,)), folded

    def score(
        self,
        files: MultiLog,
        work: Score,
        span: Span = None,
        *,
        fitted: FittedLogs | None = None,
    ) -> tuple[Validation, Reduction[ScoreSums]]:
        """Score how well robots predict the torques of the rows of `span`.

        fitted: what other rows say, so that a file of another robot is noticed.
        """
        review = None if fitted is None else partial(self._foreign, files, work, span, fitted)
        scored = self.reduce(files, work, span, what="scoring", review=review)
        return work.validation(scored.result), scored

    def _foreign(
        self,
        files: MultiLog,
        work: Score,
        span: Span,
        fitted: FittedLogs,
        parts: list[FilePart[ScoreSums]],
    ) -> dict[str, Failure]:
        """Held-out files of another robot: those that are predicted poorly are folded alone."""
        settings = replace(work.settings, torque_cutoff=fitted.work.settings.torque_cutoff)
        fold = replace(fitted.work, prepared=replace(fitted.work.prepared, settings=settings))
        out: dict[str, Failure] = {}
        for part in poorly_predicted(parts, fitted):
            others = {entry.item.place for entry in files.entries} - {part.place}
            own = self.reduce(files.without(others), fold, span, what="looking again").result
            failure = foreign_failure(part.name, own, fitted, only=len(parts) == 1)
            out |= {} if failure is None else {part.place: failure}
        return out

    def samples(
        self,
        files: MultiLog,
        work: Fold,
        span: Span = None,
        *,
        every: bool = False,
        failed: Callable[[MultiLog, Failure], None] | None = None,
    ) -> Iterator[Samples]:
        """Yield samples of the rows of `span` in their order: of shards spread evenly over a long
        log; all of a shorter one, or of `every` one.

        failed: called with the log without a shard or file that can no longer be read, and why;
            without it that is an error.
        """
        plan = self._plan(files, work, span, excerpt=not every)
        lost = plan.lost
        for shard in plan.shards:
            if shard.item.place in lost:
                continue
            try:
                yield from work.prepared.samples(shard, work.robot, timed=True)
            except ThetahatError as error:
                lost |= _lost(files, [shard], [Failure.of(shard.place, error)])
        for failure in lost.values():
            if failed is None:
                raise refused([failure])
            failed(files.without(lost), failure)

    def excerpt_share(self, files: MultiLog, work: Work[Any], span: Span = None) -> float:
        """Return which part of the rows of `span` an excerpt has, 1: all."""
        return self._plan(files, work, span, excerpt=True).share

    def _plan(self, files: MultiLog, work: Work[Any], span: Span, *, excerpt: bool) -> _Plan:
        """The shards of the rows of `span`, or of an excerpt of them."""
        lost: dict[str, Failure] = {}

        def failed(entry: Entry, error: ThetahatError) -> None:
            lost[entry.item.place] = Failure.of(entry.item.name, error)

        shards = plan(files, work.settings, span, rows=self._rows, whole=work.whole, failed=failed)
        total = sum(shard.rows for shard in shards)
        if not excerpt or total <= EXCERPT:
            return _Plan(shards, 1.0, lost)
        count = max(1, round(len(shards) * EXCERPT / total))
        some = np.unique(np.linspace(0, len(shards) - 1, count).round().astype(int))
        chosen = [shards[k] for k in some]
        return _Plan(chosen, sum(shard.rows for shard in chosen) / total, lost)


def _reduction(
    book: ShardBook[R], total: R, files: MultiLog, lost: dict[str, Failure]
) -> Reduction[R]:
    return Reduction(
        total,
        (*files.failures, *lost.values()),
        len(book.shards),
        book.computed,
        book.root,
        files.without(lost),
    )


def _too_short() -> NotIdentifiable:
    return NotIdentifiable(
        f"no run of the log has {SHORTEST_RUN} rows; record the robot while it moves, without"
        " pauses in the log"
    )


def _lost(
    files: MultiLog, shards: Sequence[Shard], failures: Sequence[Failure]
) -> dict[str, Failure]:
    """What is left out for these failures of shards, by place: a file that is no longer the one
    that was scanned as a whole, else the shard.
    """
    by_place = {shard.place: shard for shard in shards}
    entries = {entry.item.place: entry for entry in files.entries}
    out: dict[str, Failure] = {}
    same: dict[str, bool] = {}
    for failure in failures:
        shard = by_place[failure.name]
        place = shard.item.place
        if place not in same:
            same[place] = _unchanged(files, entries[place])
        if same[place]:
            sentence = failure.sentence.replace(shard.place, shard.name)
            out[shard.place] = replace(failure, name=shard.name, sentence=sentence)
        else:
            out.setdefault(place, replace(failure, name=shard.item.name))
    return out


def _unchanged(files: MultiLog, entry: Entry) -> bool:
    """Whether a file is still the one that was scanned."""
    try:
        _ = files.rows_of(entry).table
    except (ThetahatError, OSError):
        return False
    return True


def _unreviewed(files: int) -> str:
    return (
        f"the {files} logs were not compared with each other, as their factors would take more than"
        f" {BYTES / 1e9:g} GB here: a log of another robot among them was not looked for"
    )
