"""Reference motion for instrumental variables: the commanded motion of a log, or that of another.

It is prepared as the log's own motion is, with the same low-pass, and stands beside each sample
(`Samples.instruments`). A reference with time stamps of its own is interpolated at the samples'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from thetahat.data.prepare import Settings, prepare, prepare_batches
from thetahat.data.resample import mean_period
from thetahat.data.samples import MASKED, STANDSTILL, USABLE, Samples, concatenate, require_motion
from thetahat.data.types import Chunk, LogLike, Mask, Run, Source
from thetahat.data.velocities import normalize_quaternions
from thetahat.errors import MalformedInput, UsageError
from thetahat.model.robot import Robot

APART = 1.5  # periods between two rows of a reference that are not interpolated between
LEAST_OVERLAP = 0.5  # of the samples' rows: a reference that covers fewer is of another motion


class SourcedLog(LogLike, Protocol):
    """A log that knows its files and its joints."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return the files."""

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Return the joints it was read for."""


@dataclass(frozen=True, eq=False)
class PositionLog:
    """The positions of a log, as a log without velocities and with torques of zero."""

    log: SourcedLog
    robot: Robot

    has_dq = has_ddq = False
    has_tau = True
    masks: tuple[Mask, ...] = ()

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.log.rows

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the runs in the order of their rows."""
        return self.log.runs

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return the files."""
        return self.log.sources

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Return the joints it was read for."""
        return self.log.joint_names

    def chunks(self, rows: int = 65_536) -> Iterator[Chunk]:
        """Return the rows in chunks, positions alone."""
        for chunk in self.log.chunks(rows):
            yield self._positions(chunk)

    def read(self) -> list[Chunk]:
        """Return every run as one chunk, positions alone."""
        return [self._positions(chunk) for chunk in self.log.read()]

    def _positions(self, chunk: Chunk) -> Chunk:
        zero = np.zeros((len(chunk), self.robot.nv))
        return replace(chunk, dq=None, ddq=None, tau=zero)


@dataclass(frozen=True, eq=False)
class ReferenceMotion:
    """Where the instruments of a log's samples come from."""

    name: str  # in sentences: "the commanded motion"
    log: SourcedLog  # of positions
    robot: Robot  # it was read for
    same_rows: bool  # whether its rows are those of the log

    def attached(
        self, batches: Iterator[Samples], settings: Settings, span: tuple[int, int] | None
    ) -> Iterator[Samples]:
        """Yield a log's samples, prepared with these settings from rows of `span`, with their
        instruments.
        """
        if self.same_rows:
            return self._row_by_row(batches, settings, span)
        motion = self._prepared(settings)
        return (with_reference(part, motion, self.robot) for part in batches)

    def _prepared(self, settings: Settings) -> Samples:
        """All of it, with the same low-pass."""
        highest = 0.45 / max(mean_period(run) for run in self.log.runs)
        if settings.cutoff > highest:
            raise MalformedInput(
                f"{self.name} has too few rows a second for the log's low-pass of"
                f" {settings.cutoff:.4g} Hz; give one of {2.5 * settings.cutoff:.4g} Hz or more, or"
                f" --cutoff {highest:.3g}"
            )
        used = replace(settings, spikes=None, torque_cutoff=None, decimate=None)
        return prepare(PositionLog(self.log, self.robot), self.robot, settings=used)

    def _row_by_row(
        self, batches: Iterator[Samples], settings: Settings, span: tuple[int, int] | None
    ) -> Iterator[Samples]:
        rows = replace(settings, spikes=None)
        beside = _Rows(
            prepare_batches(PositionLog(self.log, self.robot), self.robot, settings=rows, span=span)
        )
        for part in batches:
            yield part.with_instruments(beside.take(len(part)))


class _Rows:
    """A stream of samples of which as many rows are taken as wanted."""

    def __init__(self, batches: Iterator[Samples]) -> None:
        self._batches = batches
        self._held: list[Samples] = []

    def take(self, count: int) -> Samples:
        """Return the next rows."""
        while sum(map(len, self._held)) < count:
            batch = next(self._batches, None)
            if batch is None:
                raise UsageError(
                    "the reference has fewer rows than the samples; this is a bug of thetahat"
                )
            self._held.append(batch)
        whole = concatenate(self._held, same_log=True) if len(self._held) > 1 else self._held[0]
        self._held = [whole.subset(slice(count, None))]
        return whole.subset(slice(0, count))


def with_reference(samples: Samples, reference: Samples, robot: Robot) -> Samples:
    """Return samples with a reference interpolated at their times as instruments.

    Rows that the reference does not reach are not usable. Positions by cubic polynomials through
    positions and velocities, velocities likewise, accelerations by lines.
    """
    if samples.t is None or reference.t is None:
        raise UsageError("samples and reference need time stamps to be laid beside each other")
    if (reference.nq, reference.nv) != (samples.nq, samples.nv):
        raise UsageError(
            f"the reference has {reference.nq} coordinates and {reference.nv} velocities, but the"
            f" samples have {samples.nq} and {samples.nv}; give the motion of the same joints"
        )
    t, at = reference.t, samples.t
    if len(t) < 2 or t[0] > at[-1] or t[-1] < at[0]:
        raise MalformedInput(
            f"the reference lasts from {t[0]:.6g} to {t[-1]:.6g} s and the log from {at[0]:.6g} to"
            f" {at[-1]:.6g} s, without overlap; shift its time stamps so that both begin together"
        )
    order = np.argsort(t, kind="stable")
    t = t[order]
    i = np.clip(np.searchsorted(t, at, side="right") - 1, 0, len(t) - 2)
    h = t[i + 1] - t[i]
    period = max(reference.period or 0.0, float(np.median(np.diff(t))))  # thinned rows keep theirs
    slack = 0.5 * period
    inside = (at >= t[0] - slack) & (at <= t[-1] + slack) & (h > 0.0) & (h <= APART * period)
    if np.mean(inside) < LEAST_OVERLAP:
        raise MalformedInput(
            f"the reference covers {np.mean(inside):.0%} of the log's rows in time; give the motion"
            " of all of them"
        )
    x = np.clip((at - t[i]) / np.where(h > 0.0, h, 1.0), 0.0, 1.0)[:, None]
    q, dq, ddq = (array[order] for array in (reference.q, reference.dq, reference.ddq))
    first, last = i, i + 1
    speeds = _cubic(x, h[:, None], dq[first], dq[last], ddq[first], ddq[last])
    if robot.nq == robot.nv:
        places = _cubic(x, h[:, None], q[first], q[last], dq[first], dq[last])
    else:
        places = normalize_quaternions(robot, (1.0 - x) * q[first] + x * q[last])
    standing = None
    if reference.reason is not None:
        near = order[np.where(x[:, 0] < 0.5, first, last)]
        standing = np.where(reference.reason[near] == STANDSTILL, np.uint8(STANDSTILL), USABLE)
    motion = Samples(
        q=places,
        dq=speeds,
        ddq=(1.0 - x) * ddq[first] + x * ddq[last],
        tau=np.zeros_like(samples.tau),
        t=at,
        run=samples.run,
        reason=standing,
        period=samples.period,
        cutoff=reference.cutoff,
    )
    require_motion(motion, samples, robot.velocity_names)
    reason = np.zeros(samples.tau.shape, np.uint8) if samples.reason is None else samples.reason
    reason = np.where(~inside[:, None] & (reason == USABLE), np.uint8(MASKED), reason)
    return replace(samples, reason=reason).with_instruments(motion)


def _cubic(
    x: np.ndarray, h: np.ndarray, y0: np.ndarray, y1: np.ndarray, r0: np.ndarray, r1: np.ndarray
) -> np.ndarray:
    """Hermite's cubic between values y and rates r of an interval of length h, at x ∈ [0, 1]."""
    chord = y1 - y0
    bend = (1.0 - x) * (h * r0 - chord) - x * (h * r1 - chord)
    return np.asarray(y0 + x * chord + x * (1.0 - x) * bend)
