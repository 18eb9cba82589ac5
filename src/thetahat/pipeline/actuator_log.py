"""Logs of commanded and measured positions for `actuators`, checked before anything is fitted."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from thetahat.data.log import Log
from thetahat.data.reading import Reading
from thetahat.errors import MalformedInput, NotIdentifiable, RobotWarning, UsageError, known
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.model.lock_joints import kept_positions
from thetahat.model.robot import Robot

SLOWEST = 20.0  # [Hz] rows per second at least: drives settle within tens of milliseconds
SHORTEST = 1.0  # [s] of a run
STILL = 0.01  # [rad or m] of motion, below which a joint does not move
FARTHEST = 20.0  # times its motion that a joint's command can be away
EFFORTS = ("cur", "pwm")  # what drives read, the better first
EQUAL = 1e-9  # [rad or m] between command and measurement


def require_single_dofs(robot: Robot) -> None:
    """Refuse robots with joints that no position drive moves."""
    for node in robot.tree.independent:
        if node.kind.nv != 1:
            raise UsageError(
                f"joint {node.name!r} of {robot.name!r} is a {node.kind.name.lower()} joint, which"
                " no position drive moves; hold the base and give a robot whose root is fixed"
            )


def drive_log(robot: Robot, log: Log, reading: Reading) -> DriveLog:
    """Return the commanded and measured positions of a log, of the joints that it measures."""
    files = known([source.path for source in log.sources], limit=3)
    commanded = log.commanded(reading)
    if commanded is None:
        raise MalformedInput(
            f"{files}: no commanded positions of all measured joints; log them as cmd.<joint>, or"
            " map yours with --columns 'cmd=…'"
        )
    places = kept_positions(robot, log.locked)[0]
    t, q, u, runs, at = [], [], [], [], 0
    for measured, asked in zip(log.read(), commanded.read(), strict=True):
        run = log.runs[measured.run]
        if len(measured) < 8 or run.stop - run.start < SHORTEST:
            continue
        t.append(measured.t)
        q.append(measured.q[:, places])
        u.append(asked.q[:, places])
        runs.append((run.name, at, len(measured)))
        at += len(measured)
    if not runs:
        raise NotIdentifiable(
            f"{files}: no run lasts {SHORTEST:g} s; record longer motions, 20 s or more"
        )
    out = DriveLog(
        np.concatenate(t),
        np.ascontiguousarray(np.concatenate(q)),
        np.ascontiguousarray(np.concatenate(u)),
        tuple(runs),
    )
    joints = [name for name in robot.joint_names if name not in log.locked]
    _check(out, joints, files)
    out = _with_effort(out, log, reading, places, joints=joints, files=files)
    if log.has_tau:
        _warn_of_unsigned_torque(log, joints, places, files)
    return out


def _with_effort(
    rows: DriveLog,
    log: Log,
    reading: Reading,
    places: np.ndarray,
    *,
    joints: list[str],
    files: str,
) -> DriveLog:
    """Return the rows with the current (`cur.<joint>`), else the duty cycle (`pwm.<joint>`), of all
    drives, where the log has it with its sign.
    """
    for kind in EFFORTS:
        beside = log.commanded(reading, kind)
        if beside is None:
            continue
        parts = [
            chunk.q[:, places]
            for chunk in beside.read()
            if log.runs[chunk.run].name in {name for name, _, _ in rows.runs}
        ]
        effort = np.ascontiguousarray(np.concatenate(parts))
        if len(effort) != len(rows.t) or not np.all(np.isfinite(effort)):
            warnings.warn(
                f"{files}: {kind}.<joint> has gaps or values that are no numbers, and is not used",
                RobotWarning,
                stacklevel=3,
            )
            continue
        unsigned = (effort.min(axis=0) >= 0.0) & (effort.max(axis=0) > 0.0)
        if unsigned.any():
            names = [f"{kind}.{name}" for name, each in zip(joints, unsigned, strict=True) if each]
            warnings.warn(
                f"{files}: {known(names, limit=3)} are never negative, so they are magnitudes, and"
                " are not used; log them with their sign",
                RobotWarning,
                stacklevel=3,
            )
            continue
        return replace(rows, effort=effort)
    return rows


def _warn_of_unsigned_torque(log: Log, joints: list[str], places: np.ndarray, files: str) -> None:
    """Say that a torque is a magnitude; torques are not used here."""
    parts = [chunk.tau[:, places] for chunk in log.read() if chunk.tau is not None]
    if not parts:
        return
    tau = np.concatenate(parts)
    unsigned = (tau.min(axis=0) >= 0.0) & (tau.max(axis=0) > 0.0)
    if unsigned.all():
        warnings.warn(
            f"{files}: {known([f'tau.{name}' for name in joints], limit=3)} are never negative, so"
            " they are magnitudes; actuators are identified from positions alone, and torques are"
            " not used",
            RobotWarning,
            stacklevel=3,
        )


def moving_joints(log: DriveLog) -> np.ndarray:
    """Return which joints move enough to be identified."""
    spans = np.array([np.ptp(log.q[a : a + n], axis=0) for _, a, n in log.runs])
    asked = np.array([np.ptp(log.command[a : a + n], axis=0) for _, a, n in log.runs])
    out: np.ndarray = (spans.max(axis=0) > STILL) & (asked.max(axis=0) > STILL)
    return out


def _check(log: DriveLog, joints: list[str], files: str) -> None:
    rate = 1.0 / log.period
    if rate < SLOWEST:
        raise NotIdentifiable(
            f"{files}: {rate:.3g} rows per second are too few to see a drive, which settles within"
            f" tens of milliseconds; log at {SLOWEST:g} Hz or more"
        )
    moving = moving_joints(log)
    if not moving.any():
        raise NotIdentifiable(
            f"{files}: no joint moves by more than {STILL:g} rad and is asked to; record a motion"
            " that moves every joint"
        )
    for at, name in enumerate(joints):
        apart = float(np.abs(log.command[:, at] - log.q[:, at]).max())
        span = float(np.ptp(log.q[:, at]))
        if moving[at] and apart > FARTHEST * max(span, 0.1):
            raise MalformedInput(
                f"{files}: cmd.{name} is up to {apart:.3g} away from q.{name}, which moves by"
                f" {span:.3g}; both are positions in rad or m: check the command's unit and joint"
            )
        if moving[at] and float(np.abs(log.command[:, at] - log.q[:, at]).max()) < EQUAL:
            raise MalformedInput(
                f"{files}: cmd.{name} equals q.{name} in every row, so it is no command; log the"
                " position that was sent to the drive"
            )
