"""What is done with shards: `Fold` turns one into the factors of its samples, with what was left
out of them and why. They merge in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from thetahat.data.friction_direction import batches_with_friction_direction
from thetahat.data.prepare import Settings
from thetahat.data.samples import MASKED, REASONS, Samples
from thetahat.engine import array_codec, shard_samples
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.shards import Shard
from thetahat.identification import factor as f
from thetahat.identification.information import Information, information
from thetahat.model.lock_joints import kept_positions
from thetahat.model.robot import Robot

SCHEMA = "thetahat/folded/1"
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

    def run(self, shard: Shard) -> R:
        """The result of a shard, on one core; `result.samples` are the samples in it."""

    @staticmethod
    def merged(parts: Sequence[R]) -> R:
        """Results in one."""

    @staticmethod
    def to_bytes(result: R, key: str) -> bytes:
        """As the store keeps it, under this key."""

    @staticmethod
    def from_bytes(data: bytes, key: str) -> R:
        """What `to_bytes` wrote; `codec.Damaged` where it is something else, or of another key."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """How shards become samples."""

    robot: Robot  # whose log it is
    settings: Settings
    locked: tuple[str, ...] = ()  # joints without a column
    dofs: tuple[int, ...] | None = (
        None  # degrees of freedom of the robot without those whose torques count; None: all
    )

    @property
    def plain(self) -> tuple:
        """In plain values."""
        return (
            robot_fingerprint(self.robot.without_drive()),
            replace(self.settings, reasoning=""),
            self.locked,
            self.dofs,
        )

    def samples(self, shard: Shard, fitted: Robot, *, timed: bool = False) -> Iterator[Samples]:
        """Of the joints that are not locked, torques that do not count masked, with the direction
        of the fitted robot's dry friction.
        """

        def through(parts: Iterator[Samples]) -> Iterator[Samples]:
            return batches_with_friction_direction(self._chosen(parts), fitted)

        return shard_samples.samples(shard, self.robot, self.settings, through=through, timed=timed)

    def _chosen(self, parts: Iterator[Samples]) -> Iterator[Samples]:
        q, v = kept_positions(self.robot, self.locked)
        other = np.setdiff1d(np.arange(len(v)), self.dofs) if self.dofs is not None else None
        for part in parts:
            taken: dict[str, np.ndarray] = {}
            if self.locked:
                given = {name: getattr(part, name) for name in ("q", "dq", "ddq", "tau", "reason")}
                taken = {
                    name: array[:, q if name == "q" else v]
                    for name, array in given.items()
                    if array is not None
                }
            if other is not None:
                reason = taken.get("reason", part.reason)
                reason = (
                    np.zeros((len(part), len(v)), dtype=np.uint8)
                    if reason is None
                    else reason.copy()
                )
                reason[:, other] = MASKED
                taken["reason"] = reason
            yield replace(part, **taken) if taken else part


def remembers(robot: Robot) -> bool:
    """Whether a column depends on all that its run did before (hysteresis): then a run must not be
    cut.
    """
    return robot.drive.dry is not None and bool(np.any(robot.drive.dry.travel > 0.0))


@dataclass(frozen=True, eq=False)
class Folded:
    """The factors of some samples, per degree of freedom, and how they came about."""

    factors: tuple[np.ndarray, ...]
    rows: np.ndarray  # (nv,) torques folded
    samples: int
    counts: (
        np.ndarray
    )  # (nv, reasons) torques by what became of them (thetahat.data.samples.REASONS)
    period: float  # [s] of the slowest run

    def on(self, robot: Robot) -> Information:
        """As an `Information` of the robot they were folded with."""
        return replace(
            information(robot, ()), factors=self.factors, rows=self.rows, samples=self.samples
        )


@dataclass(frozen=True, eq=False)
class Fold:
    """How shards are folded."""

    prepared: Prepared
    fitted: Robot  # whose columns are folded: joints without a column locked, drive terms chosen

    @property
    def settings(self) -> Settings:
        """How the samples are made."""
        return self.prepared.settings

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that a shard's factors depend on beside the shard."""
        return fingerprint("fold", DATA_FORMAT, self.prepared.plain, robot_fingerprint(self.fitted))

    @property
    def whole(self) -> bool:
        """Whether runs must not be cut."""
        return remembers(self.fitted)

    def run(self, shard: Shard) -> Folded:
        """Fold a shard, on one core."""
        counts, period = np.zeros((self.fitted.nv, len(REASONS)), dtype=np.int64), 0.0

        def counted() -> Iterator[Samples]:
            nonlocal period
            for part in self.prepared.samples(shard, self.fitted):
                if part.reason is None:
                    counts[:, 0] += len(part)
                else:
                    for v, codes in enumerate(part.reason.T):
                        counts[v] += np.bincount(codes, minlength=len(REASONS))
                period = max(period, part.period or 0.0)
                yield part

        found = information(self.fitted, counted(), threads=1)
        return Folded(found.factors, found.rows, found.samples, counts, period)

    @staticmethod
    def merged(parts: Sequence[Folded]) -> Folded:
        """All of them together."""
        if len(parts) == 1:
            return parts[0]
        with f.blas_threads().limit(limits=1, user_api="blas"):
            factors = tuple(
                f.merged(*same) for same in zip(*(part.factors for part in parts), strict=True)
            )
        rows, counts = (
            np.sum([getattr(part, name) for part in parts], axis=0) for name in ("rows", "counts")
        )
        return Folded(
            factors,
            rows,
            sum(part.samples for part in parts),
            counts,
            max(part.period for part in parts),
        )

    @staticmethod
    def to_bytes(folded: Folded, key: str) -> bytes:
        """As the store keeps it, under this key."""
        values = {
            "schema": SCHEMA,
            "key": key,
            "samples": int(folded.samples),
            "period": float(folded.period),
        }
        arrays = {f"factor{v}": factor for v, factor in enumerate(folded.factors)}
        return array_codec.packed(values, {**arrays, "rows": folded.rows, "counts": folded.counts})

    @staticmethod
    def from_bytes(data: bytes, key: str) -> Folded:
        """What `to_bytes` wrote; `codec.Damaged` where it is something else, or of another key."""
        values, arrays = array_codec.unpacked(data)
        if values.get("schema") != SCHEMA or values.get("key") != key:
            raise array_codec.Damaged("it is the entry of another key")
        try:
            factors = tuple(arrays[f"factor{v}"] for v in range(len(arrays) - 2))
            return Folded(
                factors,
                arrays["rows"],
                int(values["samples"]),
                arrays["counts"],
                float(values["period"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise array_codec.Damaged(f"it lacks what an entry has ({error})") from None
