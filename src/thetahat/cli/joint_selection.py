"""A log's samples as the verbs use them: of the joints that it measures, torques of joints not
asked for masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from thetahat.data.log import Log
from thetahat.data.resample import mean_period
from thetahat.data.samples import MASKED, REASONS, Samples
from thetahat.errors import MalformedInput, NotIdentifiable, UsageError, known
from thetahat.model.lock_joints import kept_positions
from thetahat.model.robot import Robot

RAW = 0.9  # of half the sampling rate: a low-pass there is as good as none


def require_torque(log: Log, purpose: str) -> Log:
    """The log, or an error where it has no torques."""
    if not log.has_tau:
        raise MalformedInput(
            f"{Path(log.sources[0].path).name} has no torque columns, so there is nothing to"
            f' {purpose}; name them tau.<joint>, or map yours with --columns "tau=…"'
        )
    return log


def highest_cutoff(log: Log) -> float:
    """The highest cut-off that the slowest run allows: torques as good as unfiltered [Hz]."""
    return RAW * 0.5 / max(mean_period(run) for run in log.runs)


def degrees(robot: Robot, joints: tuple[str, ...]) -> tuple[int, ...] | None:
    """Degrees of freedom whose torques count; None: all."""
    if not joints:
        return None
    out: list[int] = []
    for name in joints:
        mine = [
            v for v, dof in enumerate(robot.velocity_names) if name in (dof, dof.rsplit(".", 1)[0])
        ]
        if not mine:
            raise UsageError(
                f"--joints names {name!r}, which is not a joint that the log measures; joints:"
                f" {known(robot.joint_names)}"
            )
        out += mine
    return tuple(sorted(set(out)))


class Stream:
    """Samples of the joints that the log measures, torques of joints not asked for masked; counts
    what is left out of the fit.
    """

    def __init__(self, robot: Robot, locked: tuple[str, ...], dofs: tuple[int, ...] | None) -> None:
        self._q, self._v = kept_positions(robot, locked)
        self._all = not locked
        self.dofs = dofs
        self._counts: np.ndarray | None = np.zeros((len(self._v), len(REASONS)), dtype=np.int64)
        self._training: np.ndarray | None = None
        self.period = 0.0  # [s] of the slowest run that was fitted

    def __call__(self, batches: Iterator[Samples]) -> Iterator[Samples]:
        """Batches of the robot with locked joints, of all joints' samples; those seen before
        `require_rows` count as training.
        """
        for samples in batches:
            narrowed = self.narrowed(samples)
            if self._training is None:
                for v, codes in enumerate(narrowed.reason.T):
                    self._counts[v] += np.bincount(codes, minlength=len(REASONS))
                self.period = max(self.period, samples.period or 0.0)
            yield narrowed

    def narrowed(self, samples: Samples) -> Samples:
        """The same rows of the robot with locked joints, torques of joints not asked for masked."""
        reason = (
            np.zeros(samples.tau.shape, dtype=np.uint8)
            if samples.reason is None
            else samples.reason
        )
        reason = reason[:, self._v]
        if self.dofs is not None:
            reason = reason.copy()
            reason[:, np.setdiff1d(np.arange(len(self._v)), self.dofs)] = MASKED
        if self._all:
            return replace(samples, reason=reason)
        arrays = {name: getattr(samples, name)[:, self._v] for name in ("dq", "ddq", "tau")}
        return replace(samples, q=samples.q[:, self._q], **arrays, reason=reason)

    def require_rows(self, robot: Robot) -> None:
        """Raise where a joint that should be fitted has no usable torque; what streams by from now
        on is not training.
        """
        self._training = self._counts
        wanted = range(robot.nv) if self.dofs is None else self.dofs
        empty = [v for v in wanted if self._training[v, 0] == 0]
        if not empty:
            return
        names, v = robot.velocity_names, empty[0]
        why = ", ".join(
            f"{count} {REASONS[code]}" for code, count in enumerate(self._training[v]) if count
        )
        left = [names[k] for k in wanted if k not in empty]
        others = f" ({', '.join(names[k] for k in empty)} have none)" if len(empty) > 1 else ""
        fix = (
            f"; leave it out with --joints {','.join(left)}"
            if left
            else "; record the robot while it moves"
        )
        raise NotIdentifiable(
            f"joint {names[v]!r} has no usable torque in the rows to fit: {why}{others}{fix}, or"
            " correct the log"
        )

    @property
    def dropped_in_training(self) -> dict[str, int]:
        """Torques left out of the fit, by reason; those of joints not asked for are not counted."""
        wanted = slice(None) if self.dofs is None else list(self.dofs)
        totals = self._training[wanted].sum(axis=0)
        return {REASONS[code]: int(totals[code]) for code in range(1, len(REASONS)) if totals[code]}
