"""What is done with shards: folded into the factors of their samples, or scored. Results merge in
any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from thetahat.data.friction_direction import batches_with_friction_direction
from thetahat.data.joint_selection import JointSelection, TorqueCounter
from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.engine import shard_samples
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.shards import Shard
from thetahat.identification import factor as f
from thetahat.identification.information import Information, information
from thetahat.identification.scores import TorqueSums, Validation, validate
from thetahat.model.robot import Robot

OWN, NOMINAL = "", "\0nominal"  # names of the two robots that are always meant; others have theirs
R = TypeVar("R")


class Work(Protocol[R]):
    """One kind of work on shards, the same for all of them; frozen, so that it travels."""

    @property
    def settings(self) -> Settings:
        """How the samples are made."""

    @property
    def fingerprint(self) -> str:
        """Of everything that a result depends on beside the shard."""

    @property
    def whole(self) -> bool:
        """Whether runs must not be cut."""

    @property
    def kind(self) -> type[R]:
        """Of the results."""

    def run(self, shard: Shard) -> R:
        """Return the result of a shard, on one core."""

    @staticmethod
    def merge(parts: Sequence[R]) -> R:
        """Merge results into one."""


# -- samples ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Preparation:
    """How shards become samples."""

    robot: Robot  # whose log it is
    settings: Settings
    locked: tuple[str, ...] = ()  # joints without a column
    dofs: tuple[int, ...] | None = None  # of the robot without those; whose torques count

    @property
    def key(self) -> tuple[object, ...]:
        """All that samples depend on beside the shard, in plain values."""
        geometry = robot_fingerprint(self.robot.without_drive())
        return geometry, replace(self.settings, reasoning=""), self.locked, self.dofs

    def samples(self, shard: Shard, fitted: Robot, *, timed: bool = False) -> Iterator[Samples]:
        """Yield samples of the joints that are not locked, torques that do not count masked, with
        the direction of the fitted robot's dry friction.
        """
        joints = JointSelection(self.robot, self.locked, self.dofs)

        def transform(parts: Iterator[Samples]) -> Iterator[Samples]:
            return batches_with_friction_direction(map(joints.select, parts), fitted)

        return shard_samples.samples(
            shard, self.robot, self.settings, transform=transform, timed=timed
        )


def has_hysteresis(robot: Robot) -> bool:
    """Whether a column depends on all that its run did before: then a run must not be cut."""
    return robot.drive.dry is not None and bool(np.any(robot.drive.dry.travel > 0.0))


# -- factors ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FoldResult:
    """The factors of some samples, per degree of freedom, and what was left out."""

    factors: tuple[np.ndarray, ...]
    rows: np.ndarray  # (nv,) torques folded
    samples: int
    counts: np.ndarray  # (nv, reasons) torques by what became of them (data.samples.REASONS)
    period: float  # [s] of the slowest run

    def information(self, robot: Robot) -> Information:
        """Return them as an `Information` of the robot they were folded with."""
        return replace(
            information(robot, ()), factors=self.factors, rows=self.rows, samples=self.samples
        )


@dataclass(frozen=True, eq=False)
class Fold:
    """How shards are folded."""

    prepared: Preparation
    fitted: Robot  # whose columns are folded: joints without a column locked, drive terms chosen
    kind = FoldResult

    @property
    def settings(self) -> Settings:
        """How the samples are made."""
        return self.prepared.settings

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that a shard's factors depend on beside the shard."""
        return fingerprint("fold", DATA_FORMAT, self.prepared.key, robot_fingerprint(self.fitted))

    @property
    def whole(self) -> bool:
        """Whether runs must not be cut."""
        return has_hysteresis(self.fitted)

    def run(self, shard: Shard) -> FoldResult:
        """Fold a shard, on one core."""
        counter = TorqueCounter(self.fitted.nv, self.prepared.dofs)

        def counted() -> Iterator[Samples]:
            for part in self.prepared.samples(shard, self.fitted):
                counter.add(part)
                yield part

        folded = information(self.fitted, counted(), threads=1)
        counts = counter.result().counts
        return FoldResult(folded.factors, folded.rows, folded.samples, counts, counter.period)

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
class Score:
    """How shards are scored."""

    prepared: Preparation
    robot: Robot  # joints without a column locked
    nominal: Robot | None = None
    beside: Mapping[str, Robot] = field(default_factory=dict)
    kind = ScoreSums

    @property
    def settings(self) -> Settings:
        """How the samples are made."""
        return self.prepared.settings

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that a shard's sums depend on beside the shard."""
        robots = {OWN: self.robot, NOMINAL: self.nominal, **self.beside}
        prints = {
            name: None if robot is None else robot_fingerprint(robot, values=True)
            for name, robot in robots.items()
        }
        return fingerprint("score", DATA_FORMAT, self.prepared.key, prints)

    @property
    def whole(self) -> bool:
        """Whether runs must not be cut."""
        return has_hysteresis(self.robot)

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
