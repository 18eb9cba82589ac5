"""Simulated motion of identified actuators: logged commands from logged states, by horizon."""

from __future__ import annotations

import numpy as np

from thetahat.identification.actuators.drive_log import DriveLog, Segment
from thetahat.identification.actuators.drive_parameters import DriveParameters
from thetahat.identification.actuators.drive_rollout import DriveRollout
from thetahat.identification.motion_rollout import STRETCH, errors_at_horizons, starts_in
from thetahat.identification.rollout_errors import HORIZONS, RolloutErrors, Tip
from thetahat.model.robot import Robot

MOST = 24  # stretches of a log that are simulated


def command_rollout(
    robot: Robot,
    log: DriveLog,
    drives: DriveParameters,
    nominal: DriveParameters | None = None,
    file_robot: Robot | None = None,
) -> RolloutErrors | None:
    """Simulate logged commands from many logged states, with identified and nominal drives.

    file_robot: of the nominal motion, where its links are others. None where no run lasts a tenth
    of a second. The loop is closed by the drives, so that errors stay bounded and the longest
    horizon compares them.
    """
    step, pieces = log.period, _pieces(log)
    runs = np.array([first for _, first, _ in log.runs])
    starts = [start for first, count in pieces for start in starts_in(first, count, step)]
    if not starts:
        return None
    segments = []
    for start in starts:
        run = int(np.searchsorted(runs, start.first, side="right")) - 1
        lead = log.leads[run] if log.leads else 0
        segments.append(Segment(start.first, start.rows, int(runs[run]) - lead))
    simulated = [DriveRollout(robot, log).positions(drives.values[None], segments)[0]]
    if nominal is not None:
        nominal_rollout = DriveRollout(file_robot or robot, log)
        simulated.append(nominal_rollout.positions(nominal.values[None], segments)[0])
    tip = Tip.of(robot)
    errors = [
        errors_at_horizons(robot, tip, step, starts, logged=log.q, simulated=each)
        for each in simulated
    ]
    beside = errors[1] if len(errors) > 1 else None
    return RolloutErrors.of(robot, tip, "command", errors[0], beside, longest=HORIZONS[-1])


def _pieces(log: DriveLog) -> list[tuple[int, int]]:
    """Return first row and rows of stretches, evenly spread over the log."""
    rows = round(STRETCH / log.period) + 1
    out = []
    for _, first, count in log.runs:
        for at in range(0, max(1, count - 1), rows - 1):
            out.append((first + at, min(rows, count - at)))
    every = -(-len(out) // MOST)
    return out[:: max(1, every)]
