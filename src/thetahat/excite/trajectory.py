"""What every trajectory is: a smooth motion of one-DOF joints from rest to rest, with derivatives
in closed form, and its samples.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thetahat.data.formats.write_log import write_table
from thetahat.data.log import read_log
from thetahat.data.velocities import all_single_dof
from thetahat.errors import MalformedInput, UsageError, check_positive
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

State = tuple[np.ndarray, np.ndarray, np.ndarray]  # q, dq, ddq
MAX_SAMPLES = 50_000_000  # of one motion: beyond it a rate was mistyped


class Trajectory(ABC):
    """q(t) of every joint, at rest before t = 0 and after t = duration."""

    joint_names: tuple[str, ...]

    if TYPE_CHECKING:  # a field of some, a property of others

        @property
        def duration(self) -> float:
            """Of the motion [s]."""

    @abstractmethod
    def _states(self, t: np.ndarray) -> State:
        """q, dq and ddq, (n, nv) each, at times (n,) inside [0, duration]."""

    @abstractmethod
    def _jerk(self, t: np.ndarray) -> np.ndarray:
        """q⃛, (n, nv), at times (n,) inside [0, duration]."""

    def jerk(self, t: np.ndarray) -> np.ndarray:
        """Return q⃛ [rad/s³ or m/s³] at times (n,) inside [0, duration], (n, nv); where it jumps,
        one of both sides.
        """
        return self._jerk(np.clip(np.asarray(t, dtype=float), 0.0, self.duration))

    def at(self, t: float | np.ndarray) -> State:
        """(q, dq, ddq) at time t [s]: (nv,) each at one time, (n, nv) at (n,). Outside [0,
        duration] the robot stands where it starts or ends.
        """
        times = np.asarray(t, dtype=float)
        if times.ndim > 1 or not np.all(np.isfinite(times)):
            raise UsageError(f"t is {t!r}; give a time or a row of times [s], all finite")
        states = self._states(np.clip(np.atleast_1d(times), 0.0, self.duration))
        q, dq, ddq = states
        return (q[0], dq[0], ddq[0]) if times.ndim == 0 else states

    def sampled(self, rate: float) -> Motion:
        """The motion at `rate` samples per second, from t = 0 to its end; the last sample may lie
        up to one period after it, at rest.
        """
        check_positive("rate", rate, "samples per second")
        if self.duration * rate > MAX_SAMPLES:
            raise UsageError(
                f"{self.duration:g} s at rate {rate:g} are more than {MAX_SAMPLES:,} samples; give"
                " a lower rate [Hz]"
            )
        t = np.arange(math.ceil(self.duration * rate * (1.0 - 1e-12)) + 1) / rate
        return Motion(t, *self.at(t), self.joint_names)


@dataclass(frozen=True, eq=False)
class Motion:
    """A trajectory at equal steps of time, as a robot driver plays it."""

    t: np.ndarray  # (n,) [s]
    q: np.ndarray  # (n, nv) [rad or m]
    dq: np.ndarray  # (n, nv) [rad/s or m/s]
    ddq: np.ndarray  # (n, nv) [rad/s² or m/s²]
    joint_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("t", "q", "dq", "ddq"):
            array = np.ascontiguousarray(getattr(self, name), dtype=float)
            shape = (len(self.t),) if name == "t" else (len(self.t), len(self.joint_names))
            if array.shape != shape or not np.all(np.isfinite(array)):
                raise UsageError(
                    f"{name} of a motion has shape {array.shape}; expected {shape}, all finite"
                )
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.t)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write t, q, dq, ddq by joint to .csv, .parquet or .npz, whole or not at all."""
        names = [
            "t",
            *(f"{kind}.{joint}" for kind in ("q", "dq", "ddq") for joint in self.joint_names),
        ]
        return write_table(path, names, [self.t, *self.q.T, *self.dq.T, *self.ddq.T])

    @staticmethod
    def load(path: str | os.PathLike[str], robot: Robot) -> Motion:
        """Read what `save` wrote, or any log in one run with positions, velocities and
        accelerations; joints without a column stand at zero.
        """
        require_plain(robot)
        log = read_log(path, robot)
        if not (log.has_dq and log.has_ddq):
            missing = "dq" if not log.has_dq else "ddq"
            raise MalformedInput(
                f"{path} has no {missing}.<joint> columns; a motion to play has t, q., dq. and ddq."
                " columns"
            )
        if len(log.runs) != 1:
            raise MalformedInput(
                f"{path} holds {len(log.runs)} runs with gaps between them; a motion to play is one"
                " run with equal steps of time"
            )
        (chunk,) = log.read()
        return Motion(chunk.t, chunk.q, chunk.dq, chunk.ddq, robot.joint_names)  # type: ignore[arg-type]


# -- checks shared by all trajectories -------------------------------------------------------------


def joint_array(
    name: str, value: np.ndarray, shape: tuple[int | None, ...], what: str
) -> np.ndarray:
    """A read-only copy as finite doubles of this shape (None: any size)."""
    try:
        array = np.array(value, dtype=float, order="C")
    except (TypeError, ValueError):
        raise UsageError(f"{name} is not an array of real numbers; expected {what}") from None
    fits = array.ndim == len(shape) and all(
        n is None or n == m for n, m in zip(shape, array.shape, strict=True)
    )
    if not fits or not np.all(np.isfinite(array)):
        raise UsageError(f"{name} has shape {array.shape}; expected {what}, all finite")
    array.setflags(write=False)
    return array


def set_arrays(frozen: object, **arrays: np.ndarray) -> None:
    """Give a frozen dataclass its arrays as they were checked."""
    for name, array in arrays.items():
        object.__setattr__(frozen, name, array)


def require_plain(robot: Robot) -> None:
    """Refuse robots with joints of several degrees of freedom, and robots that cannot move."""
    if robot.nv == 0:
        raise UsageError(
            f"robot {robot.name!r} has no movable joint, so there is no motion to make"
        )
    if not all_single_dof(robot):
        node = next(
            n
            for n in robot.tree.independent
            if n.kind not in (JointKind.REVOLUTE, JointKind.PRISMATIC)
        )
        raise UsageError(
            f"joint {node.name!r} of {robot.name!r} is {node.kind.name.lower()}, with"
            f" {node.kind.nv} degrees of freedom; trajectories are made for revolute and prismatic"
            " joints alone: load the robot with its base fixed, or lock the joint"
        )
