"""Rows of the momentum and filtered forms: every joint's columns over windows of samples.

Rotor inertia acts by the momentum of the rotors, B·q̇_m; every other drive term is integrated as it
is. Friction by load reads accelerations in these forms, too: its column is not linear in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thetahat.data.regressor_form import Windows
from thetahat.dynamics import batch
from thetahat.dynamics.momentum import momentum_columns
from thetahat.model.robot import Robot

TILE = 4096  # samples whose columns are computed at once


class DrivePlace(Protocol):
    """Where a drive column of one joint goes."""

    @property
    def term(self) -> int:
        """Which of the identified terms it is."""

    @property
    def row(self) -> int:
        """Its row of the joints' matrices stacked."""

    def of(self, B: np.ndarray | None, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Return its values, (samples,)."""


@dataclass(frozen=True, eq=False)
class WindowMotion:
    """Samples of whole windows, and what drive columns read beside them."""

    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    tau: np.ndarray
    usable: np.ndarray  # (samples, nv) bool
    direction: np.ndarray | None  # of dry friction
    load: np.ndarray | None  # that carries the rigid bodies, where a column reads it
    windows: Windows

    def part(self, first: int, count: int) -> WindowMotion:
        """Return `count` windows from number `first` on."""
        begin = first * self.windows.stride
        rows = slice(begin, begin + self.windows.samples(count))
        return WindowMotion(
            self.q[rows],
            self.dq[rows],
            self.ddq[rows],
            self.tau[rows],
            self.usable[rows],
            None if self.direction is None else self.direction[rows],
            None if self.load is None else self.load[rows],
            self.windows,
        )


@dataclass(frozen=True, eq=False)
class WindowPlaces:
    """Rows of the joints' matrices stacked that columns go to; joint v's are rows starts[v] :
    starts[v + 1], torque last where there is one.
    """

    places: np.ndarray  # (dofs, 10·bodies) int64, −1 where a column is not used
    drive: Sequence[DrivePlace]
    starts: np.ndarray  # (nv + 1,)
    torque: bool


def window_rows(
    robot: Robot, to: WindowPlaces, motion: WindowMotion, threads: int | None = None
) -> np.ndarray:
    """Return the rows of all windows, (columns of all joints, windows), zero where one of its
    samples is not usable.
    """
    windows = motion.windows
    count = windows.count(len(motion.q))
    out = np.zeros((int(to.starts[-1]), count))
    tile = max(windows.count(TILE), 1)

    def call(workspace: batch.Workspace, numbers: np.ndarray) -> None:
        del workspace  # of its own kernels
        for first in range(int(numbers[0]), int(numbers[-1]) + 1, tile):
            stop = min(first + tile, int(numbers[-1]) + 1)
            out[:, first:stop] = _tile(robot, to, motion.part(first, stop - first))

    batch.run(robot, threads, float(windows.stride), call, np.arange(count))
    return out


def _tile(robot: Robot, to: WindowPlaces, motion: WindowMotion) -> np.ndarray:
    """Rows of a few windows."""
    windows, rows = motion.windows, int(to.starts[-1])
    momenta, rates = momentum_columns(robot, motion.q, motion.dq, to.places, rows=rows, threads=1)
    _add_drive(robot, to.drive, motion, momenta, rates)
    if to.torque:
        rates[to.starts[1:] - 1] = motion.tau.T
    out = np.empty((rows, windows.count(len(motion.q))))
    batch.kernels().momentum.weigh_windows(
        momenta, rates, windows.of_momenta, windows.of_rates, windows.stride, out
    )
    usable = windows.all(motion.usable)
    return np.asarray(out * np.repeat(usable.T, np.diff(to.starts), axis=0))


def _add_drive(
    robot: Robot,
    places: Sequence[DrivePlace],
    motion: WindowMotion,
    momenta: np.ndarray,
    rates: np.ndarray,
) -> None:
    """Write the drive columns: of rotors their momentum, of other terms what they add to it."""
    if not places:
        return
    drive, q, dq = robot.drive, motion.q, motion.dq
    B, columns = drive.motor_columns(
        dq, motion.ddq, q=q, load=motion.load, direction=motion.direction
    )
    rotor = drive.identified.index("armature") if "armature" in drive.identified else -1
    turning: np.ndarray | None = None  # Ḃ, where B depends on q
    speeds = list(columns)
    if rotor >= 0:
        speed = dq
        if drive.actuation is not None:
            speed, _ = drive.actuation.motor_rates(dq, motion.ddq, q=q)
            turning = None if drive.actuation.constant else drive.actuation.rate(q, dq)
        motors = np.arange(speed.shape[-1])
        fitted = np.isin(motors, motors if drive.rotors is None else drive.rotors)
        speeds[rotor] = np.where(fitted, speed, 0.0)
    for each in places:
        if each.term != rotor:
            rates[each.row] = each.of(B, columns)
            continue
        momenta[each.row] = each.of(B, speeds)
        rates[each.row] = 0.0 if turning is None else -each.of(turning, speeds)
