"""Held-out motion simulated in open loop: positions over time, errors by run and by horizon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.identification.actuators.drive_log import DriveLog, Segment
from thetahat.identification.actuators.drive_rollout import DriveRollout, rows_of
from thetahat.model.robot import Robot

HORIZONS = (0.1, 0.5, 1.0, 2.0, 5.0)  # [s] after the logged state


@dataclass(frozen=True, eq=False)
class DriveMotion:
    """Positions of a log, commanded, measured and simulated from the first row of every run."""

    log: DriveLog
    simulated: np.ndarray  # (rows of the runs, joints), by the fitted drives
    nominal: np.ndarray  # by those of the robot's file
    horizons: tuple[tuple[float, float, float], ...]  # seconds, error fitted, error nominal

    @staticmethod
    def of(robot: Robot, log: DriveLog, fitted: np.ndarray, nominal: np.ndarray) -> DriveMotion:
        """Simulate a log with both sets of drives, each (joints, parameters)."""
        rollout = DriveRollout(robot, log)
        both = rollout.positions(np.array([fitted, nominal]), log.segments(None))
        return DriveMotion(log, both[0], both[1], _horizons(rollout, fitted, nominal))

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


def _horizons(
    rollout: DriveRollout, fitted: np.ndarray, nominal: np.ndarray
) -> tuple[tuple[float, float, float], ...]:
    """Return the RMS over starts and joints of the error so long after the logged state.

    A simulation starts every longest horizon, at the measured state.
    """
    log = rollout.log
    segments = [
        part for part in log.segments(HORIZONS[-1] + 2 * log.period) if part.rows * log.period > 0.2
    ]
    if not segments:
        return ()
    both = rollout.positions(np.array([fitted, nominal]), segments)
    starts = np.cumsum([0, *(each.rows for each in segments)])
    out = []
    for seconds in HORIZONS:
        picked = [
            (start + row, each.first + row)
            for each, start in zip(segments, starts[:-1], strict=True)
            if (row := _row_after(log, each, seconds)) is not None
        ]
        if picked:
            simulated, logged = np.array(picked).T
            error = both[:, simulated] - log.q[logged]
            rms = np.sqrt(np.mean(error**2, axis=(1, 2)))
            out.append((seconds, float(rms[0]), float(rms[1])))
    return tuple(out)


def _row_after(log: DriveLog, segment: Segment, seconds: float) -> int | None:
    """Return the row of a segment so long after its first; None where it is shorter."""
    t = log.t[segment.first : segment.first + segment.rows]
    row = int(np.searchsorted(t, t[0] + seconds - 0.5 * log.period))
    return row if row < len(t) else None
