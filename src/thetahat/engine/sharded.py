"""The engine of many workers: folds and scores shard by shard, and keeps results in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from thetahat.data.joint_selection import TorqueCounts
from thetahat.data.log import Log
from thetahat.data.prepare import Settings
from thetahat.data.reading import Reading
from thetahat.data.samples import Samples
from thetahat.engine import run_records
from thetahat.engine.excerpt_uncertainty import estimate_with_excerpt
from thetahat.engine.fingerprint import robot_fingerprint
from thetahat.engine.foreign_logs import FittedLogs
from thetahat.engine.multi_log import Failure, MultiLog, Span, refused
from thetahat.engine.protocol import Answer, Completion, Engine, Fold, Progress, Rows, Tuning
from thetahat.engine.reduce import Reduction, ShardReducer
from thetahat.engine.shard_work import Fold as ShardFold
from thetahat.engine.shard_work import Preparation, Score
from thetahat.engine.tuning_cache import SettingsOptions, sparse_log, tuned_choice
from thetahat.errors import StorageError, ThetahatError, UsageError
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import AnyEstimator
from thetahat.identification.information import Information
from thetahat.identification.scores import Validation
from thetahat.identification.solve import solve
from thetahat.identification.tuning.tune import Tuned
from thetahat.model.robot import Robot

SHOWN = 12  # things left out that are named; the others are counted


def _prepared(rows: Rows) -> Preparation:
    """Return how workers prepare the rows."""
    commanded = rows.reference is not None
    if rows.reference is not None and not rows.reference.same_rows:
        raise UsageError(
            "--reference is read in one process; leave --workers, --scheduler and --store out, or"
            " log the commanded positions as cmd.<joint>"
        )
    joints = rows.joints
    return Preparation(joints.robot, rows.settings, joints.locked, joints.dofs, commanded)


class ShardedEngine(Engine):
    """Works shard by shard, on workers, with a store."""

    def __init__(self, reducer: ShardReducer, progress: Progress) -> None:
        self._reducer, self._progress = reducer, progress
        self._files: dict[int, MultiLog] = {}  # by the log's identity
        self._logs: dict[tuple[tuple[str, ...], Reading], Log] = {}
        self._failures: list[Failure] = []
        self._notes: list[str] = []
        self._fitted: FittedLogs | None = None  # what the rows that were fitted say
        self._reviewed: set[int] = set()  # logs whose held-out files were checked
        self._run: int | None = None  # in the store's history
        self._folded: tuple[str | None, str | None] = None, None

    # -- the protocol ------------------------------------------------------------------------------

    def read(self, names: Sequence[str], robot: Robot, reading: Reading) -> Log:
        """Scan the files side by side and return them as one log."""
        if self._run is None:
            self._reducer.write(
                lambda store: setattr(self, "_run", run_records.begin_run(store, robot))
            )
        key = tuple(names), reading
        if key not in self._logs:
            files = self._reducer.scan(list(names), robot, reading)
            self._files[id(files.log)] = files
            self._failures += files.failures
            self._logs[key] = files.log
        return self._logs[key]

    def choose_filter(
        self, log: Log, robot: Robot, *, cutoff: float | None, min_speed: float | None, span: Span
    ) -> Settings:
        """Choose how rows are filtered, or take what an earlier run of the store chose."""
        del robot
        choices = SettingsOptions(cutoff, min_speed)
        return self._reducer.choose(self._files[id(log)], choices, span)

    def tune(self, log: Log, request: Tuning) -> Tuned:
        """Choose from a subsample, or take what an earlier run of the store chose."""
        files, options = self._files[id(log)], request.options
        name = {
            "robot": robot_fingerprint(request.robot, values=True),
            "fitted": robot_fingerprint(request.fitted, values=True),
            **options,
        }
        choice = tuned_choice(
            name, lambda: request.run(sparse_log(files, request.span)), request.fitted
        )
        choices = SettingsOptions(options["cutoff"], min_speed=options["min_speed"])
        return self._reducer.reuse_or_choose(files, choices, request.span, choice)

    def fold(self, rows: Rows, fitted: Robot) -> Fold:
        """Fold the shards that the store does not have, and merge all."""
        work = ShardFold(_prepared(rows), fitted)
        folded, reduction = self._reducer.fold(self._files[id(rows.log)], work, rows.span)
        self._collect(rows.log, reduction)
        if rows.reference is None:
            self._folded = work.fingerprint, reduction.root
            used = sum(entry.first_row < rows.stop for entry in reduction.files.used)
            self._fitted = FittedLogs(work, folded, used)
        result = reduction.result
        return Fold(folded, TorqueCounts(result.counts, rows.joints.dofs), result.period)

    def samples(
        self, rows: Rows, fitted: Robot, text: str, *, every: bool = False
    ) -> Iterator[Samples]:
        """Yield samples, of a long log a subsample; what cannot be read any more is left out."""

        def failed(rest: MultiLog, failure: Failure) -> None:
            self._files[id(rows.log)] = rest
            self._failures.append(failure)

        self._progress.stage(text)
        work = ShardFold(_prepared(rows), fitted)
        files = self._files[id(rows.log)]
        return self._reducer.samples(files, work, rows.span, every=every, failed=failed)

    def solve(
        self, seen: Information, whole: Information, estimator: AnyEstimator, rows: Rows
    ) -> Estimate:
        """Estimate; of a long log, standard deviations are as wide as a subsample says.

        A robust estimator reads all of it. Where files have vanished since they were folded, what
        is left is the subsample.
        """
        work = ShardFold(_prepared(rows), whole.robot)
        robust = hasattr(estimator, "estimate_from_samples")
        share = self._reducer.excerpt_share(self._files[id(rows.log)], work, rows.span)
        every = robust or share >= 1.0

        def samples() -> Iterator[Samples]:
            return self.samples(rows, whole.robot, "reading again", every=every)

        before = len(self._failures)
        while True:
            files, failed = self._files[id(rows.log)], len(self._failures)
            try:
                if every and failed == before:
                    return solve(seen, estimator, samples=samples)
                reduction = self._reducer.reduce(
                    files, work, rows.span, what="folding an excerpt", excerpt=not every
                )
                self._collect(rows.log, reduction)
                subsample = reduction.result.information(whole.robot)
                return estimate_with_excerpt(
                    seen,
                    estimator,
                    whole=whole,
                    excerpt=subsample,
                    samples=samples,
                    dofs=rows.joints.dofs,
                )
            except ThetahatError:
                if robust or len(self._failures) == failed:  # it is not for want of rows
                    raise

    def score(
        self,
        rows: Rows,
        identified: Robot,
        *,
        nominal: Robot | None = None,
        beside: Mapping[str, Robot] | None = None,
        watch: Callable[[Samples], None] | None = None,
    ) -> Validation | None:
        """Score the shards that the store has not scored with these robots.

        Files of another robot are looked for once.
        """
        log = rows.log
        work = Score(_prepared(rows), identified, nominal, dict(beside or {}))
        fitted = None if id(log) in self._reviewed else self._fitted
        self._reviewed.add(id(log))
        try:
            scores, reduction = self._reducer.score(
                self._files[id(log)], work, rows.span, fitted=fitted
            )
        except StorageError as error:  # none of its files is there any more; the estimate is
            self._failures.append(Failure.of(log.sources[-1].path, error))
            return None
        self._collect(log, reduction)
        if watch is not None:
            for part in self.samples(rows, identified, "reading an excerpt"):
                watch(part)
        return scores

    def without_failures(self, log: Log) -> Log:
        """Return the log without the sources that could not be used."""
        return replace(log, sources=self._files[id(log)].sources)

    def _collect(self, log: Log, reduction: Reduction[Any]) -> None:
        """Keep what was left out, so that it is named at the end and not read again."""
        self._failures += [each for each in reduction.failures if each not in self._failures]
        self._notes += reduction.notes
        self._files[id(log)] = reduction.files

    # -- answers and history -----------------------------------------------------------------------

    def answer_key(
        self, logs: Sequence[Log], settings: object, inputs: Sequence[Path], out: Path
    ) -> str | None:
        """Return the hash of all that an answer depends on; None where there is no store, or a log
        is left out.
        """
        if self._reducer.store is None or self._failures:
            return None
        files = [self._files[id(log)] for log in logs]
        names = [[(each.item.given, each.file.digest) for each in log.entries] for log in files]
        return run_records.answer_key(files[0].robot, settings, inputs, logs=names, folder=out)

    def cached_answer(self, key: str, out: Path) -> Answer | None:
        """Write the files of an earlier answer and return it; None where there is none."""
        store = self._reducer.store
        return None if store is None else run_records.restore_answer(store, key, out)

    def keep_answer(self, key: str, answer: Answer, out: Path) -> None:
        """Keep an answer and its files, if nothing was left out."""
        if not self._failures and not self._notes:
            self._reducer.write(lambda store: run_records.keep_answer(store, key, *answer, out))

    def record(self, data: dict[str, Any], verdict: str) -> None:
        """Record the answer in the store's history of runs."""
        run = self._run
        if run is None:
            return
        fold, root = self._folded
        self._reducer.write(
            lambda store: run_records.finish_run(
                store,
                run,
                data,
                verdict=verdict,
                fold=fold,
                root=root,
                failures=self._failures,
            )
        )

    def record_failure(self, error: BaseException) -> None:
        """Record that the run ended with an error."""
        store, run = self._reducer.store, self._run
        if store is not None and run is not None and isinstance(error, Exception):
            with suppress(ThetahatError):
                run_records.fail_run(store, run, str(error))

    @property
    def completion(self) -> Completion:
        """One sentence for each log or shard that was left out, and the error of the first."""
        nouns = "log or shard", "logs or shards"
        return completion_of(self._reducer, self._failures, nouns, notes=self._notes)


def completion_of(
    reducer: ShardReducer,
    left_out: Sequence[Failure],
    nouns: tuple[str, str],
    *,
    notes: Sequence[str] = (),
    more: str = "",
) -> Completion:
    """Return how work with a reducer went, a sentence for each thing that was left out.

    nouns: what is left out, one and many. more: where to find those that are not named.
    """
    store, trouble, count = reducer.store, reducer.store_failures, len(left_out)
    damaged = [
        f"entry {key[:12]}… of the store was damaged and is computed anew"
        for key in (store.damaged if store is not None else ())
    ]
    sentences = [*damaged, *notes]
    if not left_out:
        return Completion(tuple(sentences), refused(trouble) if trouble else None)
    sentences += [failure.sentence for failure in left_out[:SHOWN]]
    if count > SHOWN:
        sentences.append(f"{count - SHOWN} more were left out{more}")
    sentences += [failure.sentence for failure in trouble]
    number = f"1 {nouns[0]} was" if count == 1 else f"{count} {nouns[1]} were"
    error = left_out[0].error(
        f"{number} left out; the answer is of the others, so repair or remove what is named above"
    )
    return Completion(tuple(sentences), error)
