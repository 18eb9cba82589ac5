"""The cases whose numbers are golden: what is run for each, by the command line as users type it."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import golden_numbers
import numpy as np
import pytest
import simulated_log
from data_paths import shared_file

import thetahat as th
from thetahat import cli, robots
from thetahat.excite.trajectory import Motion
from thetahat.plant.perturb import perturb

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What is run, and whether it is quick enough for `make test`."""

    numbers: Callable[[], Numbers]
    quick: bool = False


def run(*arguments: object) -> None:
    """Run the command line in this process, quietly."""
    argv = ["thetahat", *map(str, arguments), "--quiet"]
    with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{' '.join(argv)} ends with exit code {end.code}") from None


def command(file: str, verb: str, *arguments: object) -> dict[str, Any]:
    """Run a verb in this process, and read a JSON file that it wrote to its output folder."""
    with tempfile.TemporaryDirectory() as folder:
        run(verb, *arguments, "--out", folder)
        return json.loads((Path(folder) / file).read_text(encoding="utf-8"))


# -- identify on real logs -------------------------------------------------------------------------

# The wrist of a TX40 is coupled: what turns with motor 6 acts on joints 5 and 6 at the sum of their
# speeds.
TX40_ACTUATION = """j1,j2,j3,j4,j5,j6,coupling
1,0,0,0,0,0,0
0,1,0,0,0,0,0
0,0,1,0,0,0,0
0,0,0,1,0,0,0
0,0,0,0,1,0,1
0,0,0,0,0,1,1
"""


def real(robot: str, log: str, *options: object) -> Callable[[], Numbers]:
    """`thetahat identify` on a log of ../shared/data."""

    def numbers() -> Numbers:
        robot_file = shared_file("logs", *robot.split("/"))
        log_file = shared_file("logs", *log.split("/"))
        answer = command("estimate.json", "identify", robot_file, log_file, "--no-report", *options)
        return golden_numbers.of_estimate(answer)

    return numbers


def tx40() -> Numbers:
    """The TX40, with the map from its motors to its joints."""
    with tempfile.TemporaryDirectory() as folder:
        actuation = Path(folder) / "actuation.csv"
        actuation.write_text(TX40_ACTUATION)
        return real("tx40/tx40_mdh_modified.urdf", "tx40/tx40.csv", "--actuation", actuation)()


REAL = {
    "panda": Case(
        real("panda/panda_nomesh_from_example_robot_data.urdf", "panda/panda_exciting_traj1.csv")
    ),
    # tests/pipeline runs it for its own laws in `make test`, and compares it there
    "ur10": Case(real("ur10/ur10_nomesh.urdf", "ur10/ur10_exciting.csv")),
    "kr300": Case(real("kr300/kr300_from_dh.urdf", "kr300/kr300.csv"), quick=True),
    "tx40": Case(tx40),
    "double_pendulum_C1": Case(
        real(
            "double_pendulum/double_pendulum_C1_from_yml.urdf",
            "double_pendulum/double_pendulum_C1.csv",
        )
    ),
}


# -- identify on simulated logs of the shipped robots ----------------------------------------------


def simulated(name: str) -> Callable[[], Numbers]:
    """`thetahat identify` on a noisy log of a shipped robot whose friction its file does not know."""

    def numbers() -> Numbers:
        with tempfile.TemporaryDirectory() as folder:
            log = _simulated_log(name, Path(folder) / f"{name}.csv")
            answer = command("estimate.json", "identify", name, log, "--no-report")
        return golden_numbers.of_estimate(answer)

    return numbers


def _simulated_log(name: str, path: Path) -> Path:
    """16 s at 200 Hz: torques of the file's masses, a third heavier or lighter, with friction."""
    robot = th.load(robots.path(name)).without_drive()
    t, q, dq, ddq = simulated_log.motion(robot.nv)
    rng = np.random.default_rng(1)
    scale = np.repeat(rng.uniform(0.75, 1.33, len(robot.body_names)), 10)
    truth = robot.with_parameters(robot.theta * scale)
    tau = th.inverse_dynamics(truth, q, dq, ddq) + simulated_log.drive(dq, ddq) / robot.nv
    tau += 0.02 * rng.normal(size=tau.shape)
    return simulated_log.write_csv(path, *simulated_log.table(t, q, tau, dq))


SIMULATED = {
    "arm4": Case(simulated("arm4"), quick=True),
    "arm7": Case(simulated("arm7")),
    "double_pendulum": Case(simulated("double_pendulum"), quick=True),
    "valkyrie_leg": Case(simulated("valkyrie_leg")),
    "valkyrie_arm": Case(simulated("valkyrie_arm")),
    "valkyrie": Case(simulated("valkyrie")),
}


# -- the demo's path -------------------------------------------------------------------------------

DEMO_DURATION, DEMO_RATE = 8.0, 500.0  # [s, Hz]


def demo_path() -> Numbers:
    """What `thetahat demo` does after its search for a motion, on a motion that is given: an arm
    built with errors is simulated with noise and delay, and identified on one log, scored on another.
    """
    nominal = th.load(robots.path("arm4"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        th.save(perturb(nominal, seed=0), folder / "built.urdf")
        for seed, log in enumerate(("log", "test_log")):
            motion = simulated_log.motion(
                nominal.nv, seconds=DEMO_DURATION, rate=DEMO_RATE, seed=seed
            )
            Motion(*motion, nominal.joint_names).save(folder / f"motion{seed}.csv")
            run(
                *("simulate", "arm4", folder / f"motion{seed}.csv", "--truth"),
                *(folder / "built.urdf", "--plant", "own", "--rate", DEMO_RATE, "--seed", seed),
                *("--out", folder / f"{log}.csv"),
            )
        answer = command(
            *("estimate.json", "identify", "arm4", folder / "log.csv"),
            *("--test", folder / "test_log.csv", "--no-report"),
        )
    return golden_numbers.of_estimate(answer)


def demo() -> Numbers:
    """`thetahat demo`, its search for two motions included."""
    return golden_numbers.of_estimate(command("estimate.json", "demo", "--plant", "own"))


DEMO = {"path": Case(demo_path, quick=True), "arm4": Case(demo)}


# -- studies ---------------------------------------------------------------------------------------


def study(name: str, plant: str) -> Callable[[], Numbers]:
    """`thetahat study`."""
    return lambda: golden_numbers.of_study(command("summary.json", "study", name, "--plant", plant))


# tests/studies runs these for its own laws, and compares them there: no study runs twice.
STUDIES = {
    "double-pendulum": Case(study("double-pendulum", "own")),
    "leg": Case(study("leg", "own")),
    "arm": Case(study("arm", "mujoco")),
    "valkyrie": Case(study("valkyrie", "mujoco")),
}


def parameters(cases: dict[str, Case]) -> list[Any]:
    """The cases as parameters of a test; those that take long are marked slow."""
    return [
        pytest.param(name, marks=() if case.quick else pytest.mark.slow)
        for name, case in cases.items()
    ]


CASES: dict[str, Case] = {
    f"{kind}/{name}": case
    for kind, cases in (
        ("real", REAL),
        ("simulated", SIMULATED),
        ("demo", DEMO),
        ("studies", STUDIES),
    )
    for name, case in cases.items()
}
