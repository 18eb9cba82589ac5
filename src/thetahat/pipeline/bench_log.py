"""Logs of a pendulum on one motor for `bench`, checked before anything is fitted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thetahat.data.formats import Table, open_table
from thetahat.dynamics.rigid_body import gravity, mass_matrix
from thetahat.errors import MalformedInput, NotIdentifiable, UsageError, known
from thetahat.identification.actuators.motor_bench import BenchRuns, Pendulum
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

RUN = "seg"  # column that names the run of a row
SHORTEST = 20  # rows of a run
SATURATED = 0.97  # of full duty, from which on the controller's gain does not show
LAGS = range(-2, 3)  # rows by which a reading of the duty may be late or early
SLOWEST = 20.0  # [Hz]
LEAST_WEIGHT = 1e-6  # [N·m]
ROOM = 25.0  # [°C] where no temperature is logged


@dataclass(frozen=True)
class BenchColumns:
    """What a log may not state itself."""

    volts: float | None = None  # [V] of the supply, where it has no column
    pwm_full: float | None = None  # reading of the duty at full voltage; None: the largest one
    duty_gain: float | None = None  # [1/rad] duty per position error, where no duty is logged


@dataclass(frozen=True, eq=False)
class BenchLog:
    """Runs of a bench, with the controller's gain of each and what the log states."""

    runs: BenchRuns
    gains: tuple[float, ...]  # [1/rad] duty per position error, by run
    warm: bool  # whether temperatures differ
    sources: tuple[tuple[str, str], ...]  # path and SHA-256


def pendulum_of(robot: Robot) -> tuple[Pendulum, float]:
    """Return the pendulum of a robot, and the angle at which it hangs down [rad].

    Gravity on one joint is W sin(q − q₀).
    """
    if robot.nv != 1 or robot.tree.nodes[0].kind is not JointKind.REVOLUTE:
        raise UsageError(
            f"robot {robot.name!r} has {robot.nv} degrees of freedom; a bench is one motor that"
            " turns a pendulum: give its URDF"
        )
    robot.require_physical("a bench")
    bare = robot.without_drive()
    sine, cosine = (float(gravity(bare, np.array([q]))[0]) for q in (0.5 * np.pi, 0.0))
    weight = float(np.hypot(sine, cosine))
    if weight < LEAST_WEIGHT:
        raise NotIdentifiable(
            f"gravity does not turn the pendulum of {robot.name!r}; the motor's scale comes from a"
            " weight: turn the axis level, or give its mass and length"
        )
    inertia = float(mass_matrix(bare, np.zeros(1))[0, 0])
    return Pendulum(inertia, weight), float(np.arctan2(-cosine, sine))


def read_bench(
    robot: Robot, paths: Sequence[str | Path], columns: BenchColumns, hanging: float
) -> BenchLog:
    """Read runs; positions count from where the pendulum hangs down."""
    joint = robot.joint_names[0]
    parts: list[np.ndarray] = []
    names: list[str] = []
    sources = []
    for path in map(Path, paths):
        table = open_table(path)
        named, values = _runs(table, joint, columns)
        names += named
        parts += values
        sources.append((str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
    if not parts:
        raise NotIdentifiable(
            f"{known(map(str, paths))}: no run has {SHORTEST} rows; record runs of some seconds"
        )
    full = columns.pwm_full or max(float(np.abs(part[:, 7]).max()) for part in parts)
    gains = []
    for name, part in zip(names, parts, strict=True):
        _check(name, part)
        gains.append(_gain(name, part, full, columns))
        part[:, 1] -= hanging
        part[:, 2] -= hanging
        part[:, 7] = gains[-1]
    stops = np.cumsum([len(part) for part in parts])
    first = np.concatenate([[0], stops[:-1]])
    rows = np.ascontiguousarray(np.concatenate(parts))
    runs = BenchRuns(rows, first, stops, tuple(names))
    return BenchLog(runs, tuple(gains), bool(np.ptp(rows[:, 6]) > 3.0), tuple(sources))


def _runs(table: Table, joint: str, given: BenchColumns) -> tuple[list[str], list[np.ndarray]]:
    """Return names and rows (t, cmd, q, dq, volts, enabled, temperature, duty) of every run."""
    wanted = ["t", f"cmd.{joint}", f"q.{joint}"]
    missing = [name for name in wanted if name not in table.names]
    if "volts" not in table.names and given.volts is None:
        missing.append("volts (or --volts)")
    if f"pwm.{joint}" not in table.names and given.duty_gain is None:
        missing.append(f"pwm.{joint} (or --duty-gain)")
    if missing:
        raise MalformedInput(
            f"{table.path}: no column {', '.join(missing)}; a bench needs commanded and measured"
            f" positions, supply voltage and duty; columns: {known(table.names, 20)}"
        )
    optional = (f"dq.{joint}", "volts", "enabled", "temp", f"pwm.{joint}")
    present = [name for name in optional if name in table.names]
    blocks = list(table.blocks([*wanted, *present], RUN if RUN in table.names else None))
    values = np.concatenate([block.values for block in blocks])
    at = {name: k for k, name in enumerate([*wanted, *present])}
    count = len(values)
    rows = np.zeros((count, 8))
    rows[:, :3] = values[:, :3]
    defaults = {"volts": given.volts or 0.0, "enabled": 1.0, "temp": ROOM, f"pwm.{joint}": 0.0}
    for column, name in ((4, "volts"), (5, "enabled"), (6, "temp"), (7, f"pwm.{joint}")):
        rows[:, column] = values[:, at[name]] if name in at else defaults[name]
    begins, labels, base = [], [], 0
    for block in blocks:
        for row, label in block.labels:
            begins.append(base + row)
            labels.append(label)
        base += len(block)
    if not begins or begins[0] != 0:
        begins, labels = [0, *begins], [table.path.stem, *labels]
    names, parts = [], []
    for first, stop, label in zip(begins, [*begins[1:], count], labels, strict=True):
        part = rows[first:stop].copy()
        if len(part) < SHORTEST:
            continue
        if f"dq.{joint}" in at:
            part[:, 3] = values[first:stop, at[f"dq.{joint}"]]
        else:
            part[:, 3] = np.gradient(part[:, 2], part[:, 0])
        names.append(label)
        parts.append(part)
    return names, parts


def _check(name: str, part: np.ndarray) -> None:
    step = np.diff(part[:, 0])
    if np.any(step <= 0.0):
        row = int(np.argmax(step <= 0.0)) + 1
        raise MalformedInput(
            f"run {name!r}: t goes from {part[row - 1, 0]:.6g} to {part[row, 0]:.6g} s at its row"
            f" {row}; stamps must rise"
        )
    if 1.0 / float(np.median(step)) < SLOWEST:
        raise NotIdentifiable(
            f"run {name!r} has {1.0 / float(np.median(step)):.3g} rows per second, too few to see a"
            f" motor; log at {SLOWEST:g} Hz or more"
        )
    on = part[:, 5] > 0.5
    if np.any(on) and np.all(np.abs(part[on, 1] - part[on, 2]) < 1e-9):
        raise MalformedInput(
            f"run {name!r}: the command equals the position in every row, so it is no command; log"
            " the position that was sent to the motor"
        )


def _gain(name: str, part: np.ndarray, full: float, given: BenchColumns) -> float:
    """Return the duty per position error of a run, from readings that do not saturate."""
    if given.duty_gain is not None:
        return given.duty_gain
    best, fit = None, -np.inf
    for lag in LAGS:
        error = np.roll(part[:, 1] - part[:, 2], lag)[2:-2]
        duty, on = part[2:-2, 7] / full, part[2:-2, 5] > 0.5
        used = on & (np.abs(duty) < SATURATED)
        square = float(error[used] @ error[used])
        if square < 1e-6:
            continue
        gain = float(error[used] @ duty[used]) / square
        left = float(np.sum((duty[used] - gain * error[used]) ** 2))
        score = 1.0 - left / max(float(duty[used] @ duty[used]), 1e-12)
        if score > fit:
            best, fit = gain, score
    if best is None or best <= 0.0 or fit < 0.5:
        raise NotIdentifiable(
            f"run {name!r}: the duty does not follow the position error, so the controller's gain"
            " is not known; state it with --duty-gain, or check the sign of pwm"
        )
    return best
