"""Instruments from simulated motion on real logs, which have no command: IDIM-IV beside least squares.

A log's even rows are fitted, its odd rows are the motion that the simulated robot follows: white
noise of the encoders is then not in the instruments. Robot, low-pass and friction are what
`identify` chooses. Rounds of identification and simulation go on until no parameter moves by more
than a tenth of its standard deviation.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import thetahat as th
from benchmarks.real import LOGS, TX40_MAP
from thetahat.data.log import Log
from thetahat.data.memory_log import log_from_arrays
from thetahat.data.prepare import prepare
from thetahat.identification.information import information
from thetahat.identification.uncertainty.hausman import hausman_test
from thetahat.model.robot import Robot
from thetahat.plant.simulated_instruments import with_simulated_instruments

CASES = (
    ("Panda", "panda/panda_nomesh_from_example_robot_data.urdf", "panda/panda_exciting_traj1.csv"),
    ("UR10", "ur10/ur10_nomesh.urdf", "ur10/ur10_exciting.csv"),
    ("KR300", "kr300/kr300_from_dh.urdf", "kr300/kr300.csv"),
    ("TX40", "tx40/tx40_mdh_modified.urdf", "tx40/tx40.csv"),
    (
        "double pendulum C1",
        "double_pendulum/double_pendulum_C1_from_yml.urdf",
        "double_pendulum/double_pendulum_C1.csv",
    ),
)
ROUNDS, SETTLED = 3, 0.1
SECONDS = 20.0  # of a log that are used, at most


def halves(log: Log, robot: Robot) -> tuple[Log, Log]:
    """Even and odd rows of the longest run, at most so many seconds of it."""
    chunk = max(log.read(), key=len)
    rows = chunk.t <= chunk.t[0] + SECONDS
    t, q, tau = chunk.t[rows], chunk.q[rows], chunk.tau[rows]  # type: ignore[index]
    parts = [log_from_arrays(robot, t[k::2], q[k::2], tau=tau[k::2]) for k in (0, 1)]
    return parts[0], parts[1]


def row(name: str, robot_file: str, log_file: str) -> dict[str, Any]:
    """One log: how far the two estimates are apart, and what the test says."""
    with tempfile.TemporaryDirectory() as folder:
        actuation = Path(folder) / "actuation.csv"
        actuation.write_text(TX40_MAP)
        settings = th.IdentifySettings(
            report=False, actuation=actuation if name == "TX40" else None
        )
        result = th.identify(LOGS / robot_file, LOGS / log_file, settings=settings)
    robot = result.dataset.robot
    even, odd = halves(th.read_log(LOGS / log_file, robot), robot)
    kept = replace(result.tuned.settings, spikes=None, decimate="auto")
    joints = result.dataset.joints
    samples, command = (joints.select(prepare(part, robot, settings=kept)) for part in (even, odd))
    fitted, model = result.tuned.robot, result.robot
    before: np.ndarray | None = None
    number = 0
    while number < ROUNDS:
        number += 1
        paired = with_simulated_instruments(samples, plain_friction(model), command=command)
        info = information(fitted, paired)
        estimate = th.solve(info, th.Consistent(weight=result.tuned.weight, metric="moments"))
        spread = th.solve(info, th.Instrumental("iterated"), samples=paired)
        model = fitted.with_parameters(estimate)
        moved = (
            np.inf
            if before is None
            else float(np.ma.max(np.abs(spread.x_base - before) / spread.base_std))
        )
        before = spread.x_base
        if moved < SETTLED:
            break
    test = hausman_test(info, samples=paired)
    plain = th.LeastSquares("iterated").estimate(info)
    return {
        "log": name,
        "rows": len(paired),
        "rounds": number,
        "moved": moved,
        "parameters": int(test.p_values.count()),
        "rejected": int(np.sum(test.rejected)),
        "joints": list(test.rejected_joints),
        "largest shift": float(np.ma.max(test.shift)),
        "of": test.names[int(np.ma.argmax(test.shift))],
        "median shift": float(np.ma.median(test.shift)),
        "strength": test.strength,
        "r2 least squares": plain.r2,
        "r2 instrumental": spread.r2,
        "sentence": test.sentence,
    }


def plain_friction(robot: Robot) -> Robot:
    """The robot as it can be simulated: viscous and Coulomb friction alone."""
    none = np.zeros_like(robot.drive.offset)
    drive = replace(robot.drive, identified=(), extra=(), dry=None, rotors=None, offset=none)
    return replace(robot, drive=drive)


def real_logs() -> list[dict[str, Any]]:
    """All logs; what fails is a row, too."""
    out = []
    for case in CASES:
        try:
            out.append(row(*case))
        except Exception as error:
            out.append({"log": case[0], "error": f"{type(error).__name__}: {error}"})
        print(out[-1], flush=True)
    return out
