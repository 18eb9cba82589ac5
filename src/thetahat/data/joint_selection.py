"""The joints that a log measures, and those whose torques count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from thetahat.data.contact_rows import project_torques
from thetahat.data.log import Log
from thetahat.data.resample import mean_period
from thetahat.data.samples import MASKED, REASONS, STANDSTILL, USABLE, Samples
from thetahat.errors import MalformedInput, NotIdentifiable, UsageError, known
from thetahat.model.lock_joints import kept_positions, lock
from thetahat.model.robot import Robot

RAW = 0.9  # of half the sampling rate: a low-pass there is as good as none


@dataclass(frozen=True, eq=False)
class JointSelection:
    """Narrows samples of a robot to the joints that its log measures.

    Torques of joints that are not asked for are masked.
    """

    robot: Robot  # all joints, as its file has them
    locked: tuple[str, ...] = ()  # joints without a column, held still
    dofs: tuple[int, ...] | None = None  # of the robot without those, whose torques count

    def select(self, samples: Samples) -> Samples:
        """Return the same rows of the robot with locked joints."""
        q, v = kept_positions(self.robot, self.locked)
        reason = (
            np.zeros(samples.tau.shape, dtype=np.uint8)
            if samples.reason is None
            else samples.reason
        )[:, v]
        if self.dofs is not None:
            reason = reason.copy()
            reason[:, np.setdiff1d(np.arange(len(v)), self.dofs)] = MASKED
        if not self.locked:
            return project_torques(self.robot, replace(samples, reason=reason))
        reference = samples.instruments
        if reference is not None:
            moved = {name: getattr(reference, name)[:, v] for name in ("dq", "ddq", "tau")}
            reference = replace(reference, q=reference.q[:, q], reason=None, **moved)
        arrays = {name: getattr(samples, name)[:, v] for name in ("dq", "ddq", "tau")}
        out = replace(samples, q=samples.q[:, q], **arrays, reason=reason, instruments=reference)
        return project_torques(self._unlocked, out)

    @cached_property
    def _unlocked(self) -> Robot:
        """The robot with locked joints."""
        return lock(self.robot, self.locked)

    def wanted(self, robot: Robot) -> list[int]:
        """Return the degrees of freedom whose torques count, of the robot with locked joints."""
        return list(range(robot.nv)) if self.dofs is None else list(self.dofs)


@dataclass(frozen=True, eq=False)
class TorqueCounts:
    """Torques of the training rows, by whether and why they are left out of the fit."""

    counts: np.ndarray  # (nv, reasons), see data/samples.py
    dofs: tuple[int, ...] | None  # that count; None: all

    def require_rows(self, robot: Robot) -> None:
        """Raise where a joint that should be fitted has no usable torque."""
        wanted = range(robot.nv) if self.dofs is None else self.dofs
        empty = [v for v in wanted if self.counts[v, 0] == 0]
        if not empty:
            return
        names, v = robot.velocity_names, empty[0]
        reasons = ", ".join(
            f"{count} {REASONS[code]}" for code, count in enumerate(self.counts[v]) if count
        )
        usable = [names[k] for k in wanted if k not in empty]
        others = f" ({', '.join(names[k] for k in empty)} have none)" if len(empty) > 1 else ""
        fix = (
            f"; leave it out with --joints {','.join(usable)}"
            if usable
            else "; record the robot while it moves"
        )
        if self.counts[v, REASONS.index("sign")] and not usable:
            fix = "; the torques seem flipped: multiply them by −1, or pass --keep sign"
        raise NotIdentifiable(
            f"joint {names[v]!r} has no usable torque in the rows to fit: {reasons}{others}{fix},"
            " or correct the log"
        )

    @property
    def moving(self) -> np.ndarray:
        """Share of a joint's rows in which it is not at standstill, (nv,); NaN without rows."""
        usable, still = self.counts[:, USABLE], self.counts[:, STANDSTILL]
        total = (usable + still).astype(float)
        return np.where(total > 0.0, usable / np.maximum(total, 1.0), np.nan)

    @property
    def dropped(self) -> dict[str, int]:
        """Torques left out of the fit, by reason; those of joints not asked for do not count."""
        totals = self.counts[slice(None) if self.dofs is None else list(self.dofs)].sum(axis=0)
        return {REASONS[code]: int(totals[code]) for code in range(1, len(REASONS)) if totals[code]}


class TorqueCounter:
    """Counts torques by reason while samples stream by."""

    def __init__(self, nv: int, dofs: tuple[int, ...] | None) -> None:
        self._counts, self._dofs = np.zeros((nv, len(REASONS)), dtype=np.int64), dofs
        self.period = 0.0  # [s] between rows that are fitted, of the slowest run

    def add(self, samples: Samples) -> None:
        """Count the torques of a batch of narrowed samples."""
        if samples.reason is None:
            self._counts[:, 0] += len(samples)
        else:
            for v, codes in enumerate(samples.reason.T):
                self._counts[v] += np.bincount(codes, minlength=len(REASONS))
        self.period = max(self.period, samples.row_period or 0.0)

    def result(self) -> TorqueCounts:
        """Return the counts so far."""
        return TorqueCounts(self._counts.copy(), self._dofs)


def selected_dofs(robot: Robot, joints: Iterable[str]) -> tuple[int, ...] | None:
    """Return the degrees of freedom of these joints; None where none are named."""
    joints, dofs = tuple(joints), set[int]()
    for name in joints:
        own = [
            v for v, dof in enumerate(robot.velocity_names) if name in (dof, dof.rsplit(".", 1)[0])
        ]
        if not own:
            raise UsageError(
                f"--joints names {name!r}, which is not a joint that the log measures; joints:"
                f" {known(robot.joint_names)}"
            )
        dofs.update(own)
    return tuple(sorted(dofs)) if joints else None


def require_torque(log: Log, purpose: str) -> Log:
    """Return the log; raise where it has no torques."""
    if not log.has_tau:
        currents = [finding.message for finding in log.findings if finding.kind == "currents"]
        fix = 'name them tau.<joint>, or map yours with --columns "tau=…"'
        raise MalformedInput(
            f"{Path(log.sources[0].path).name} has no torque columns, so there is nothing to"
            f" {purpose}; {currents[0] if currents else fix}"
        )
    return log


def highest_cutoff(log: Log) -> float:
    """Return the highest cut-off that the slowest run allows [Hz]: as good as unfiltered."""
    return RAW * 0.5 / max(mean_period(run) for run in log.runs)
