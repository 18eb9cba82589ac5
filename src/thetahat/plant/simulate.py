"""`simulate`: a plant follows a motion under a controller, and what its sensors saw becomes
a log.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thetahat.data.formats.write_log import write_table
from thetahat.data.log import Log
from thetahat.data.memory_log import column_names, log_from_arrays
from thetahat.errors import UsageError, check_positive
from thetahat.plant.plant import Plant
from thetahat.plant.realism import Realism
from thetahat.plant.tracking import (
    Controller,
    Reference,
    Tracking,
    check_reference,
    duration_of,
    reference,
)

Progress = Callable[[int, int], None]  # rows done, rows in all
# of the control period: jitter stays inside, so that no tick looks like a gap in the log
SHORTEST_TICK, LONGEST_TICK = 0.1, 4.0
MAX_ROWS = 50_000_000  # of one simulation: beyond it a rate or a duration was mistyped


@dataclass(frozen=True, eq=False)
class Recording:
    """What the sensors saw (`log`, and `measured` by kind), and what was true at the same
    moments.
    """

    log: Log
    plant: str  # the engine's name
    seed: int
    t: np.ndarray  # (n,) [s]
    q: np.ndarray  # (n, nq) true
    dq: np.ndarray  # (n, nv) true
    ddq: np.ndarray  # (n, nv) true, from each moment on
    tau: np.ndarray  # (n, nv) [N·m or N] truly exerted by the actuators from each moment on
    wanted: tuple[np.ndarray, np.ndarray, np.ndarray]  # q, dq, ddq of the motion that was followed
    measured: dict[str, np.ndarray]  # q, dq (where it is logged) and tau, as in the log
    names: tuple[str, ...]  # columns of the log

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write t, q.<joint>, dq.<joint> (where it is logged), tau.<joint> as measured, to .csv,
        .parquet or .npz.
        """
        columns = [column for array in self.measured.values() for column in array.T]
        return write_table(path, self.names, [self.t, *columns])


def simulate(
    plant: Plant,
    trajectory: Any,
    *,
    rate: float = 1000.0,
    controller: Controller | None = None,
    realism: Realism | None = None,
    seed: int = 0,
    duration: float | None = None,
    progress: Progress | None = None,
) -> Recording:
    """Let a plant follow a motion from its beginning, with a tick of the controller and a row of
    the log every 1/rate seconds.

    Args:
        plant: `OwnPlant` or `MujocoPlant`.
        trajectory: has `duration` and `at(t) -> (q, dq, ddq)`, or is sampled: t, q, dq, ddq.
        rate: of the controller and the log [Hz].
        controller: (t, measured q, measured dq, wanted (q, dq, ddq)) → joint torques; default:
            `Tracking` with the plant's nominal robot.
        realism: other options than the plant's own.
        seed: of everything left to chance; the same seed gives the same log, bit for bit.
        duration: [s], if not the motion's own; after its end a motion stands still.
        progress: called with rows done and rows in all, a hundred times.

    """
    if not isinstance(plant, Plant):
        raise UsageError(f"plant is {type(plant).__name__}; give an OwnPlant or a MujocoPlant")
    check_reference(trajectory, plant.nominal)
    if realism is not None:
        plant = plant.with_realism(realism, seed=seed)
    plant.reset(seed=seed)
    robot = plant.nominal
    length = duration_of(trajectory) if duration is None else duration
    t = tick_times(plant.realism, plant.streams["clock"], rate, length)
    wanted = reference(trajectory, t, robot)
    controller = Tracking(robot) if controller is None else controller
    plant.reset(wanted[0][0], wanted[1][0], seed=seed)
    rows = len(t)
    widths = {"q": robot.nq, "dq": robot.nv, "ddq": robot.nv, "tau": robot.nv}
    true = {kind: np.empty((rows, width)) for kind, width in widths.items()}
    seen = {kind: np.empty((rows, widths[kind])) for kind in ("q", "dq", "tau")}
    _run(plant, controller, t, wanted, true, seen, progress)
    if not plant.realism.logs_speed:
        del seen["dq"]
    log = log_from_arrays(robot, t, **seen, name=f"simulation of {robot.name}")
    names = tuple(column_names(robot, list(seen)))
    return Recording(
        log, plant.name, int(seed), t, **true, wanted=wanted, measured=seen, names=names
    )


def tick_times(
    realism: Realism, clock: np.random.Generator, rate: float, duration: float
) -> np.ndarray:
    """The controller's ticks, (n,), jitter and all. clock: draws the jitter."""
    for name, value, unit in (("rate", rate, "Hz"), ("duration", duration, "s")):
        check_positive(name, value, end=f" [{unit}]")
    if rate * duration > MAX_ROWS:
        raise UsageError(
            f"{duration:g} s at rate {rate:g} are more than {MAX_ROWS:,} rows; give a lower rate"
            " [Hz] or a shorter duration"
        )
    count = math.floor(duration * rate * (1.0 + 1e-12)) + 1
    if count < 2:
        raise UsageError(
            f"duration {duration:g} s is less than one tick of rate {rate:g} Hz; simulate longer,"
            " or at a higher rate"
        )
    if not realism.jitter:
        return np.arange(count) / rate
    period = 1.0 / rate
    late = realism.jitter * clock.standard_normal(count - 1)
    steps = np.clip(period + late, SHORTEST_TICK * period, LONGEST_TICK * period)
    return np.concatenate([[0.0], np.cumsum(steps)])


def _run(
    plant: Plant,
    controller: Controller,
    t: np.ndarray,
    wanted: Reference,
    true: dict[str, np.ndarray],
    seen: dict[str, np.ndarray],
    progress: Progress | None,
) -> None:
    """The loop: measure, control, command, record, let time pass."""
    rows, every = len(t), max(1, len(t) // 100)
    q_d, dq_d, ddq_d = wanted
    nv = plant.nominal.nv
    for k in range(rows):
        q, dq = plant.sense_motion()
        u = controller(plant.t, q, dq, (q_d[k], dq_d[k], ddq_d[k]))
        if u.shape != (nv,) or not math.isfinite(sum(u.tolist())):
            raise UsageError(
                f"the controller returned {u!r} at t = {plant.t:.6g} s; expected {nv} finite joint"
                " torques"
            )
        plant.command(u)
        true["q"][k], true["dq"][k], true["ddq"][k], true["tau"][k] = plant.truth()
        seen["q"][k], seen["dq"][k], seen["tau"][k] = q, dq, plant.sense_torque()
        if progress is not None and k % every == 0:
            progress(k, rows)
        if k + 1 < rows:
            plant.advance(t[k + 1] - plant.t)
    if progress is not None:
        progress(rows, rows)
