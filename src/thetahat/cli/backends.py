"""Who gets through the logs of a verb: this process in one pass after another, or workers, shard by
shard, with a store. See scale.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thetahat.cli.exit_status import say
from thetahat.cli.progress import Progress
from thetahat.errors import StorageError, ThetahatError

if TYPE_CHECKING:
    from thetahat.cli.joint_selection import Stream
    from thetahat.data.log import Log
    from thetahat.data.prepare import Settings
    from thetahat.data.samples import Samples
    from thetahat.engine.foreign_logs import FittedLogs
    from thetahat.engine.multi_log import Failure, MultiLog
    from thetahat.engine.reduce import Reduction
    from thetahat.engine.row_reader import Reading
    from thetahat.engine.shard_work import Preparation
    from thetahat.identification.estimate import Estimate
    from thetahat.identification.estimators.estimator import Estimator, SampleEstimator
    from thetahat.identification.information import Information
    from thetahat.identification.scores import Validation
    from thetahat.identification.tuning.tune import Tuned
    from thetahat.model.robot import Robot

SHOWN = 12  # logs left out that are named; the others are counted


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a log, and how they are prepared."""

    log: Log
    robot: Robot  # all of it, as its file has it
    settings: Settings
    span: tuple[int, int] | None  # first and stop; None: all
    stream: Stream  # leaves out what cannot be used, and counts it

    @property
    def prepared(self) -> Preparation:
        """The same for workers."""
        from thetahat.engine.shard_work import Preparation

        return Preparation(self.robot, self.settings, tuple(self.log.locked), self.stream.dofs)


class Alone:
    """One pass over the log after another, in this process."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def read(self, names: Sequence[str], robot: Robot, **reading: Any) -> Log:
        """The log behind these names."""
        from thetahat.data.log import read_log

        return read_log(list(names), robot, **reading)

    def choose(
        self, log: Log, robot: Robot, *, span: tuple[int, int] | None = None, **choices: Any
    ) -> Settings:
        """How its rows are prepared."""
        from thetahat.data.prepare import choose

        return choose(log, robot, span=span, **choices)

    def tuned(
        self,
        log: Log,
        robot: Robot,
        fitted: Robot,
        span: tuple[int, int] | None,
        given: Mapping[str, Any],
        make: Callable[[Log], Tuned],
    ) -> Tuned:
        """What is chosen from the rows of `span` beside the settings; `given`, cutoff and min_speed
        among them, is all that it depends on.
        """
        del robot, fitted, span, given
        return make(log)

    def information(self, rows: Rows, fitted: Robot) -> Information:
        """What the rows say; their stream counts what is left out."""
        from thetahat.identification.information import information

        return information(fitted, self.samples(rows, fitted, "folding"))

    def samples(
        self, rows: Rows, fitted: Robot, what: str, *, every: bool = False
    ) -> Iterator[Samples]:
        """The rows, for what needs them again; of a log in shards that is long, an excerpt spread
        evenly over it, unless `every`.
        """
        from thetahat.data.friction_direction import directed_batches
        from thetahat.data.prepare import prepare_batches

        del every
        batches = prepare_batches(rows.log, rows.robot, settings=rows.settings, span=rows.span)
        return directed_batches(
            rows.stream(
                self._progress.count(
                    batches, what, rows.log.rows if rows.span is None else rows.span[1]
                )
            ),
            fitted,
        )

    def identify(
        self,
        seen: Information,
        whole: Information,
        estimator: Estimator | SampleEstimator,
        rows: Rows,
    ) -> Estimate:
        """The estimate from `seen`, a view of the information `whole`, with standard deviations
        that know the samples.
        """
        from thetahat.identification.solve import identify

        return identify(
            seen, estimator, samples=lambda: self.samples(rows, whole.robot, "reading again")
        )

    def score(
        self,
        rows: Rows,
        identified: Robot,
        nominal: Robot | None = None,
        beside: Mapping[str, Robot] | None = None,
        seen: Callable[[Samples], None] | None = None,
    ) -> Validation | None:
        """How well robots predict the rows; `seen` is shown the samples, or an excerpt of them.
        None: none of them can be read any more.
        """
        from thetahat.identification.scores import validate

        def shown() -> Iterator[Samples]:
            for part in self.samples(rows, identified, "scoring"):
                if seen is not None:
                    seen(part)
                yield part

        return validate(identified, shown(), nominal=nominal, beside=beside)

    def used(self, log: Log) -> Log:
        """The log without the sources that were left out, to be named in the answer."""
        return log

    def answered(
        self, robot: Robot, options: Any, folder: Path
    ) -> tuple[dict[str, Any], list[Path]] | None:
        """The answer and its files, written into the folder, where a store has it and nothing is
        new. options: `identify_run.Options`.
        """

    def answer(self, found: dict[str, Any], files: list[Path]) -> None:
        """Keep the answer and its files for a run in which nothing is new, where there is a
        store.
        """

    def record(self, found: dict[str, Any]) -> None:
        """Remember the answer (schema thetahat/estimate/1), where there is a store."""

    def failed(self, error: BaseException) -> None:
        """Remember that there is none."""

    def conclude(self) -> None:
        """Say what was left out; an error where that was anything, as the answer is then not of all
        that was asked for.
        """


class Crew(Alone):
    """Shard by shard, on workers, kept in a store."""

    def __init__(
        self,
        progress: Progress,
        workers: Any,
        store: Any,
        *,
        tell: Callable[[str, int, int], None],
        trouble: Sequence[Failure] = (),
    ) -> None:
        from thetahat.engine.reduce import ShardReducer

        super().__init__(progress)
        self._reducer = ShardReducer(workers, store, progress=tell)
        self._reducer.store_failures += trouble
        self._store = store
        self._files: dict[int, MultiLog] = {}  # by the log's identity
        self._read: dict[tuple[tuple[str, ...], Reading], Log] = {}
        self._answer: tuple[str, Path] | None = (
            None  # key of the answer, and the folder it is written to
        )
        self._failures: list[Failure] = []
        self._notes: list[str] = []
        self._known: FittedLogs | None = None  # what the rows that were fitted say
        self._reviewed: set[int] = set()  # logs whose held-out files were looked into
        self._run: int | None = None
        self._folded: tuple[str | None, str | None] = None, None

    def read(self, names: Sequence[str], robot: Robot, **reading: Any) -> Log:
        """Survey the files side by side."""
        from thetahat.engine.row_reader import Reading
        from thetahat.engine.run_records import begin_run

        if self._store is not None and self._run is None:
            self._reducer.write(lambda store: setattr(self, "_run", begin_run(store, robot)))
        asked = tuple(names), Reading(**reading)
        if asked not in self._read:
            files = self._reducer.scan(list(names), robot, asked[1])
            self._files[id(files.log)] = files
            self._failures += files.failures
            self._read[asked] = files.log
        return self._read[asked]

    def choose(
        self, log: Log, robot: Robot, *, span: tuple[int, int] | None = None, **choices: Any
    ) -> Settings:
        """As chosen before, where there is a store and that fits."""
        from thetahat.engine.tuning_cache import SettingsOptions

        del robot
        return self._reducer.choose(self._files[id(log)], SettingsOptions(**choices), span)

    def tuned(
        self,
        log: Log,
        robot: Robot,
        fitted: Robot,
        span: tuple[int, int] | None,
        given: Mapping[str, Any],
        make: Callable[[Log], Tuned],
    ) -> Tuned:
        """As chosen before, where there is a store and that fits; else from a few stretches,
        without reading what is between them.
        """
        from thetahat.engine.fingerprint import robot_fingerprint
        from thetahat.engine.tuning_cache import SettingsOptions, sparse_log, tuned_choice

        files = self._files[id(log)]
        name = {
            "robot": robot_fingerprint(robot, values=True),
            "fitted": robot_fingerprint(fitted, values=True),
            **given,
        }
        choice = tuned_choice(name, lambda: make(sparse_log(files, span)), fitted)
        return self._reducer.reuse_or_choose(
            files,
            SettingsOptions(given.get("cutoff"), min_speed=given.get("min_speed")),
            span,
            choice,
        )

    def information(self, rows: Rows, fitted: Robot) -> Information:
        """Fold the shards that the store has not, and merge all."""
        from thetahat.engine.foreign_logs import FittedLogs
        from thetahat.engine.shard_work import Fold

        files, work, stream = self._files[id(rows.log)], Fold(rows.prepared, fitted), rows.stream
        found, gathered = self._reducer.fold(files, work, rows.span)
        self._took(rows.log, gathered)
        self._folded = work.fingerprint, gathered.root
        stop = rows.log.rows if rows.span is None else rows.span[1]
        self._known = FittedLogs(
            work, found, sum(entry.first_row < stop for entry in gathered.files.used)
        )
        stream._counts += gathered.result.counts
        stream.period = max(stream.period, gathered.result.period)
        return found

    def _took(self, log: Log, gathered: Reduction) -> None:
        """What was left out is named at the end, and not read again for anything else."""
        self._failures += [each for each in gathered.failures if each not in self._failures]
        self._notes += gathered.notes
        self._files[id(log)] = gathered.files

    def samples(
        self, rows: Rows, fitted: Robot, what: str, *, every: bool = False
    ) -> Iterator[Samples]:
        """All rows, or of a long log an excerpt; what can no longer be read is left out and named
        at the end.
        """
        from thetahat.engine.shard_work import Fold

        def failed(rest: MultiLog, failure: Failure) -> None:
            self._files[id(rows.log)] = rest
            self._failures.append(failure)

        self._progress.stage(what)
        return self._reducer.samples(
            self._files[id(rows.log)],
            Fold(rows.prepared, fitted),
            rows.span,
            every=every,
            failed=failed,
        )

    def identify(
        self,
        seen: Information,
        whole: Information,
        estimator: Estimator | SampleEstimator,
        rows: Rows,
    ) -> Estimate:
        """Of a long log, standard deviations are as wide as an excerpt says; a robust estimator
        reads it all.

        Where files have vanished since they were folded, what is left is the excerpt.
        """
        from thetahat.engine.excerpt_uncertainty import estimate_with_excerpt
        from thetahat.engine.shard_work import Fold
        from thetahat.identification.solve import identify

        work, span, robust = (
            Fold(rows.prepared, whole.robot),
            rows.span,
            hasattr(estimator, "estimate_from_samples"),
        )
        every = robust or self._reducer.excerpt_share(self._files[id(rows.log)], work, span) >= 1.0

        def samples() -> Iterator[Samples]:
            return self.samples(rows, whole.robot, "reading again", every=every)

        before = len(self._failures)
        while True:
            files, failed = self._files[id(rows.log)], len(self._failures)
            try:
                if every and failed == before:
                    return identify(seen, estimator, samples=samples)
                gathered = self._reducer.reduce(
                    files, work, span, what="folding an excerpt", excerpt=not every
                )
                self._took(rows.log, gathered)
                return estimate_with_excerpt(
                    seen,
                    estimator,
                    whole=whole,
                    excerpt=gathered.result.information(whole.robot),
                    samples=samples,
                    dofs=rows.stream.dofs,
                )
            except ThetahatError:
                if robust or len(self._failures) == failed:  # it is not for want of rows
                    raise

    def score(
        self,
        rows: Rows,
        identified: Robot,
        nominal: Robot | None = None,
        beside: Mapping[str, Robot] | None = None,
        seen: Callable[[Samples], None] | None = None,
    ) -> Validation | None:
        """Score the shards that the store has not scored with these very robots; files of another
        robot are looked for once.
        """
        from thetahat.engine.multi_log import Failure
        from thetahat.engine.shard_work import Score

        work = Score(rows.prepared, identified, nominal, dict(beside or {}))
        known = None if id(rows.log) in self._reviewed else self._known
        self._reviewed.add(id(rows.log))
        try:
            found, gathered = self._reducer.score(
                self._files[id(rows.log)], work, rows.span, fitted=known
            )
        except StorageError as error:  # none of its files is there any more; the estimate is
            self._failures.append(Failure.of(rows.log.sources[-1].path, error))
            return None
        self._took(rows.log, gathered)
        if seen is not None:
            for part in self.samples(rows, identified, "reading an excerpt"):
                seen(part)
        return found

    def used(self, log: Log) -> Log:
        """The log without the sources that were left out."""
        return replace(log, sources=self._files[id(log)].sources)

    # -- answers -----------------------------------------------------------------------------------

    def answered(
        self, robot: Robot, options: Any, folder: Path
    ) -> tuple[dict[str, Any], list[Path]] | None:
        """An answer that all logs, the robot, the options and the program itself have in common
        with an earlier run.
        """
        if self._store is None:
            return None
        from thetahat.engine.run_records import answer_key, restore_answer

        reading = {"columns": options.columns, "topic": options.topic, "salvage": options.salvage}
        logs = [
            self._files[id(self.read(names, robot, **reading))]
            for names in (options.logs, options.tests)
            if names
        ]
        if self._failures:
            return None
        inputs = [
            None if path is None else Path(path)
            for path in (robot.source, options.prior, options.actuation)
        ]
        names = [[(each.item.given, each.file.digest) for each in log.entries] for log in logs]
        self._answer = answer_key(robot, options, inputs, logs=names, folder=folder), folder
        found = restore_answer(self._store, *self._answer)
        self._answer = None if found is not None else self._answer  # which then is there
        return found

    def answer(self, found: dict[str, Any], files: list[Path]) -> None:
        """Keep it, if nothing was left out."""
        if self._answer is None or self._failures or self._notes:
            return
        from thetahat.engine.run_records import keep_answer

        key, folder = self._answer
        self._reducer.write(lambda store: keep_answer(store, key, found, files, folder))

    # -- the memory of runs ------------------------------------------------------------------------

    def record(self, found: dict[str, Any]) -> None:
        """The run is done."""
        if self._run is None:
            return
        from thetahat.engine.run_records import finish_run
        from thetahat.report.verdict_section import judged

        fold, root = self._folded
        verdict = judged(found)[1]
        self._reducer.write(
            lambda store: finish_run(
                store,
                self._run,
                found,
                verdict=verdict,
                fold=fold,
                root=root,
                failures=self._failures,
            )
        )

    def failed(self, error: BaseException) -> None:
        """The run ended with an error."""
        if self._run is not None and isinstance(error, Exception):
            from thetahat.engine.run_records import fail_run

            with suppress(ThetahatError):
                fail_run(self._store, self._run, str(error))

    def conclude(self) -> None:
        """One sentence for each log or shard that was left out, and the exit code of the first."""
        from thetahat.engine.multi_log import refused

        for key in self._store.damaged if self._store is not None else ():
            say(
                f"entry {key[:12]}… of the store was damaged; it was thrown away and computed anew",
                "warning",
            )
        for note in self._notes:
            say(note, "warning")
        left_out, trouble = self._failures, self._reducer.store_failures
        if not left_out and not trouble:
            return
        for failure in left_out[:SHOWN]:
            say(failure.sentence, "warning")
        if len(left_out) > SHOWN:
            say(f"{len(left_out) - SHOWN} more were left out", "warning")
        if not left_out:
            raise refused(trouble)
        for failure in trouble:
            say(failure.sentence, "warning")
        count = (
            f"{len(left_out)} log or shard was"
            if len(left_out) == 1
            else f"{len(left_out)} logs or shards were"
        )
        raise type(refused(left_out[:1]))(
            f"{count} left out; the answer is of the others, so repair or remove what is named"
            " above"
        )
