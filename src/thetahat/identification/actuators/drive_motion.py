"""Held-out motion simulated in open loop: positions over time, errors by run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_rollout import DriveRollout, rows_of
from thetahat.model.robot import Robot


@dataclass(frozen=True, eq=False)
class DriveMotion:
    """Positions of a log, commanded, measured and simulated from the first row of every run."""

    log: DriveLog
    simulated: np.ndarray  # (rows of the runs, joints), by the fitted drives
    nominal: np.ndarray  # by those of the robot's file

    @staticmethod
    def of(
        robot: Robot,
        log: DriveLog,
        fitted: np.ndarray,
        nominal: np.ndarray,
        file_robot: Robot | None = None,
    ) -> DriveMotion:
        """Simulate a log with both sets of drives, each (joints, parameters).

        file_robot: of the nominal motion, where its links are others.
        """
        segments, rollout = log.segments(None), DriveRollout(robot, log)
        if file_robot is None:
            both = rollout.positions(np.array([fitted, nominal]), segments)
            return DriveMotion(log, both[0], both[1])
        beside = DriveRollout(file_robot, log).positions(nominal[None], segments)[0]
        return DriveMotion(log, rollout.positions(fitted[None], segments)[0], beside)

    def run_rows(self, run: int) -> tuple[slice, slice]:
        """Return the rows of a run in the log, and in what was simulated."""
        _, first, rows = self.log.runs[run]
        at = sum(each[2] for each in self.log.runs[:run])
        return slice(first, first + rows), slice(at, at + rows)

    def errors(self, positions: np.ndarray) -> np.ndarray:
        """Return the RMS of q − positions of every run and joint; positions: (rows, joints)."""
        return np.array([self._rms(run, positions) for run in range(len(self.log.runs))])

    def _rms(self, run: int, positions: np.ndarray) -> np.ndarray:
        logged, simulated = self.run_rows(run)
        error: np.ndarray = self.log.q[logged] - positions[simulated]
        out: np.ndarray = np.sqrt(np.mean(error**2, axis=0))
        return out

    @property
    def command(self) -> np.ndarray:
        """The commanded positions of the runs, (rows, joints)."""
        command: np.ndarray = self.log.command[rows_of(self.log.segments(None))]
        return command
