"""What is done with shards: folded into the factors of their samples, or scored. Results merge in
any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from thetahat.data.friction_direction import batches_with_friction_direction
from thetahat.data.joint_selection import JointSelection, TorqueCounter
from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.engine import shard_samples
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.shards import Shard
from thetahat.identification import factor as f
from thetahat.identification.information import (
    Information,
    information,
    without_instruments,
)
from thetahat.identification.scores import TorqueSums, Validation, validate
from thetahat.model.robot import Robot

OWN, NOMINAL = "", "\0nominal"  # names of the two robots that are always meant; others have theirs
R = TypeVar("R")


# -- samples ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Preparation:
    """How shards become samples."""

    robot: Robot  # whose log it is
    settings: Settings
    locked: tuple[str, ...] = ()  # joints without a column
    dofs: tuple[int, ...] | None = None  # of the robot without those; whose torques count
    commanded: bool = False  # whether the commanded motion stands beside them as instruments

    @property
    def key(self) -> tuple[object, ...]:
        """All that samples depend on beside the shard, in plain values."""
        geometry = robot_fingerprint(self.robot.without_drive())
        own = geometry, replace(self.settings, reasoning=""), self.locked, self.dofs
        return (*own, "commanded") if self.commanded else own

    def samples(self, shard: Shard, fitted: Robot, *, timed: bool = False) -> Iterator[Samples]:
        """Yield samples of the joints that are not locked, torques that do not count masked, with
        the direction of the fitted robot's dry friction.
        """
        joints = JointSelection(self.robot, self.locked, self.dofs)

        def transform(parts: Iterator[Samples]) -> Iterator[Samples]:
            return batches_with_friction_direction(map(joints.select, parts), fitted)

        return shard_samples.samples(
            shard,
            self.robot,
            self.settings,
            transform=transform,
            timed=timed,
            commanded=self.commanded,
        )


@dataclass(frozen=True, eq=False)
class Work(ABC, Generic[R]):
    """One kind of work on shards, the same for all of them; frozen, so that it travels."""

    prepared: Preparation
    robot: Robot  # folded or scored: joints without a column locked, drive terms chosen

    @property
    def settings(self) -> Settings:
        """How the samples are made."""
        return self.prepared.settings

    @property
    def whole(self) -> bool:
        """Whether runs must not be cut: a column depends on all that its run did before, or rows
        are made of windows on one grid.
        """
        dry = self.robot.drive.dry
        windowed = self.settings.form != "torque"
        return windowed or (dry is not None and bool(np.any(dry.travel > 0.0)))

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Of everything that a result depends on beside the shard."""

    @property
    @abstractmethod
    def kind(self) -> type[R]:
        """Of the results."""

    @abstractmethod
    def run(self, shard: Shard) -> R:
        """Return the result of a shard, on one core."""

    @staticmethod
    @abstractmethod
    def merge(parts: Sequence[R]) -> R:
        """Merge results into one."""


# -- factors ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FoldResult:
    """The factors of some samples, per degree of freedom, and what was left out; with instruments,
    factors of [Z | Y | u].
    """

    factors: tuple[np.ndarray, ...]
    rows: np.ndarray  # (nv,) torques folded
    samples: int
    counts: np.ndarray  # (nv, reasons) torques by what became of them (data.samples.REASONS)
    period: float  # [s] of the slowest run

    def information(self, robot: Robot) -> Information:
        """Return them as an `Information` of the robot they were folded with."""
        empty = information(robot, ())
        beside, factors = None, self.factors
        if any(len(R) > len(own) for R, own in zip(factors, empty.factors, strict=True)):
            beside, factors = factors, without_instruments(factors)
        return replace(
            empty,
            factors=factors,
            rows=self.rows,
            samples=self.samples,
            instrument_factors=beside,
        )


@dataclass(frozen=True, eq=False)
class Fold(Work[FoldResult]):
    """How shards are folded."""

    kind = FoldResult

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that a shard's factors depend on beside the shard."""
        return fingerprint("fold", DATA_FORMAT, self.prepared.key, robot_fingerprint(self.robot))

    def run(self, shard: Shard) -> FoldResult:
        """Fold a shard, on one core."""
        counter = TorqueCounter(self.robot.nv, self.prepared.dofs)

        def counted() -> Iterator[Samples]:
            for part in self.prepared.samples(shard, self.robot):
                counter.add(part)
                yield part

        folded = information(self.robot, counted(), threads=1)
        counts = counter.result().counts
        factors = folded.instrument_factors or folded.factors
        return FoldResult(factors, folded.rows, folded.samples, counts, counter.period)

    @staticmethod
    def merge(parts: Sequence[FoldResult]) -> FoldResult:
        """Merge all factors."""
        if len(parts) == 1:
            return parts[0]
        with f.blas_threads().limit(limits=1, user_api="blas"):
            factors = tuple(
                f.merged(*same) for same in zip(*(part.factors for part in parts), strict=True)
            )
        return FoldResult(
            factors,
            np.sum([part.rows for part in parts], axis=0),
            sum(part.samples for part in parts),
            np.sum([part.counts for part in parts], axis=0),
            max(part.period for part in parts),
        )


# -- scores ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Sums over some samples, (2, nv) each: all usable rows, and those of joints in motion."""

    samples: int
    rows: np.ndarray
    torque: np.ndarray  # Σ u²
    residual: dict[str, np.ndarray]  # Σ e², by robot


@dataclass(frozen=True, eq=False)
class Score(Work[ScoreSums]):
    """How shards are scored."""

    nominal: Robot | None = None
    beside: Mapping[str, Robot] = field(default_factory=dict)
    kind = ScoreSums

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that a shard's sums depend on beside the shard."""
        robots = {OWN: self.robot, NOMINAL: self.nominal, **self.beside}
        prints = {
            name: None if robot is None else robot_fingerprint(robot, values=True)
            for name, robot in robots.items()
        }
        return fingerprint("score", DATA_FORMAT, self.prepared.key, prints)

    def run(self, shard: Shard) -> ScoreSums:
        """Score a shard, on one core."""
        samples = self.prepared.samples(shard, self.robot)
        scores = validate(self.robot, samples, nominal=self.nominal, beside=self.beside)
        robots = {OWN: scores, **scores.beside}
        if scores.nominal is not None:
            robots[NOMINAL] = scores.nominal
        residual = {name: each.sums.left for name, each in robots.items()}
        return ScoreSums(scores.samples, scores.sums.rows, scores.sums.torque, residual)

    @staticmethod
    def merge(parts: Sequence[ScoreSums]) -> ScoreSums:
        """Add all sums."""
        return ScoreSums(
            sum(part.samples for part in parts),
            np.sum([part.rows for part in parts], axis=0),
            np.sum([part.torque for part in parts], axis=0),
            {
                name: np.sum([part.residual[name] for part in parts], axis=0)
                for name in parts[0].residual
            },
        )

    def validation(self, sums: ScoreSums) -> Validation:
        """Return the scores, as `thetahat.identification.scores` gives them."""
        cutoff = self.settings.torque_cutoff or self.settings.cutoff
        scores = {
            name: Validation(
                self.robot.velocity_names,
                TorqueSums(sums.samples, sums.rows, sums.torque, residual),
                cutoff,
            )
            for name, residual in sums.residual.items()
        }
        return replace(scores.pop(OWN), nominal=scores.pop(NOMINAL, None), beside=scores)
