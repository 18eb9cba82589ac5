"""The engine protocol: how a pipeline reads logs, folds their rows and scores on them.

Two engines implement it: `LocalEngine` streams the log in this process, `ShardedEngine` shares it
among workers and keeps what was computed in a store. Both give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from thetahat.data.joint_selection import JointSelection, TorqueCounts
from thetahat.data.log import Log
from thetahat.data.prepare import Settings
from thetahat.data.reading import Reading
from thetahat.data.reference_motion import ReferenceMotion
from thetahat.data.samples import Samples
from thetahat.engine.multi_log import Span
from thetahat.errors import ThetahatError
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import AnyEstimator
from thetahat.identification.information import Information
from thetahat.identification.scores import Validation
from thetahat.identification.tuning.tune import Tuned
from thetahat.model.robot import Robot

Answer = tuple[dict[str, Any], list[Path]]  # data of estimate.json, and the files written
S = TypeVar("S", bound=Sized)


class Progress(Protocol):
    """What an engine tells of its progress."""

    def stage(self, text: str, total: int | None = None) -> None:
        """Say what goes on now."""
        return

    def count(self, parts: Iterable[S], text: str, total: int) -> Iterator[S]:
        """Pass parts on and count what is in them."""
        return iter(parts)

    def update(self, text: str, done: int, total: int) -> None:
        """Say how much of the stage is done."""
        return


class NoProgress(Progress):
    """Tells nobody."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a log, and how they become samples."""

    log: Log
    settings: Settings
    span: Span
    joints: JointSelection
    reference: ReferenceMotion | None = None  # of the samples' instruments

    @property
    def stop(self) -> int:
        """One past the last row."""
        return self.log.rows if self.span is None else self.span[1]


@dataclass(frozen=True, eq=False)
class Fold:
    """The information of some rows, and what was left out of it."""

    information: Information
    counts: TorqueCounts
    period: float  # [s] of the slowest run


@dataclass(frozen=True, eq=False)
class Tuning:
    """A request to choose what the settings leave open; `run` does it on a log."""

    robot: Robot
    fitted: Robot  # with the columns to identify
    span: Span
    options: Mapping[str, Any]  # plain values: everything that the choice depends on
    run: Callable[[Log], Tuned]


@dataclass(frozen=True)
class Completion:
    """How the work went: sentences to say, and an error where logs had to be left out."""

    sentences: tuple[str, ...] = ()
    error: ThetahatError | None = None


class Engine(Protocol):
    """Reads logs, folds their rows into information, and scores robots on them."""

    def read(self, names: Sequence[str], robot: Robot, reading: Reading) -> Log:
        """Scan the files behind these names and return them as one log."""

    def choose_filter(
        self, log: Log, robot: Robot, *, cutoff: float | None, min_speed: float | None, span: Span
    ) -> Settings:
        """Choose how the log's rows are filtered."""

    def tune(self, log: Log, request: Tuning) -> Tuned:
        """Choose what the settings leave open."""

    def fold(self, rows: Rows, fitted: Robot) -> Fold:
        """Fold rows into information."""

    def samples(
        self, rows: Rows, fitted: Robot, text: str, *, every: bool = False
    ) -> Iterator[Samples]:
        """Yield the samples; of a long sharded log a subsample spread evenly over it, unless every
        one is asked for.
        """

    def solve(
        self, seen: Information, whole: Information, estimator: AnyEstimator, rows: Rows
    ) -> Estimate:
        """Estimate from `seen`, a view of the information `whole` of these rows."""

    def score(
        self,
        rows: Rows,
        identified: Robot,
        *,
        nominal: Robot | None = None,
        beside: Mapping[str, Robot] | None = None,
        watch: Callable[[Samples], None] | None = None,
    ) -> Validation | None:
        """Score robots on rows; `watch` sees the samples. None: nothing can be read any more."""

    def without_failures(self, log: Log) -> Log:
        """Return the log without the sources that could not be used."""

    def answer_key(
        self, logs: Sequence[Log], settings: object, inputs: Sequence[Path], out: Path
    ) -> str | None:
        """Return a hash of all that an answer depends on; None where answers are not kept."""
        return None

    def cached_answer(self, key: str, out: Path) -> Answer | None:
        """Write the files of an earlier answer and return it; None where there is none."""
        return None

    def keep_answer(self, key: str, answer: Answer, out: Path) -> None:
        """Keep an answer and its files, where answers are kept."""
        return

    def record(self, data: dict[str, Any], verdict: str) -> None:
        """Record the answer in the history of runs, where there is one."""
        return

    @property
    def completion(self) -> Completion:
        """What the user must know about how the work went."""
        return Completion()
