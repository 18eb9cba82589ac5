"""The drives' fit beside CMA-ES: same simulator, objective, start, bounds and cores.

The objective is the one that `fit_drives` minimises: the Huber cost of q − q_sim in units of each
joint's error, and the weak prior. CMA-ES (package `cma`) gets the same start, bounds, its default
population, which is simulated at once on all cores, and the scale of every parameter from the
bounds that the fit's own steps have. It ends when it is within 1 % of the fit's objective, or when
it has used 20 times the fit's processor time: the ratio is then a lower bound (`reached` is false).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.planted_drives import planted, robot_of
from thetahat.data.log import read_log
from thetahat.identification.actuators.drive_fit import (
    SimulationError,
    correlation_rows,
    fit_drives,
    huber_cost,
    robust_scale,
)
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_parameters import BIAS, DriveParameters
from thetahat.identification.actuators.drive_rollout import DriveRollout, rows_of
from thetahat.identification.actuators.identify_drives import SEGMENT, KnownGains, start_of
from thetahat.model.io.load import load
from thetahat.pipeline.actuator_log import drive_log, moving_joints
from thetahat.pipeline.settings import IdentifySettings

WITHIN = 0.01  # of the fit's objective
LONGEST = 20.0  # times the fit's processor time
SPREAD = 20.0  # small steps: CMA-ES's first standard deviation of a parameter


class Objective:
    """The cost of many parameter vectors at once, with scales and prior of the fit's end."""

    def __init__(self, error: SimulationError, start: DriveParameters, end: DriveParameters):
        self.error, self.start = error, start
        residual = error.residual(end)
        self.scale = robust_scale(residual)
        self.precision = correlation_rows(residual, error.segments) / start.prior**2
        self.centre = np.where(start.entries[:, 1] == BIAS, 0.0, start.x)
        self.measured = error.rollout.log.q[rows_of(error.segments)]

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        sets = np.array([self.start.moved(x).values for x in vectors])
        shown = self.error.rollout.positions(sets, self.error.segments)
        residual = np.nan_to_num(shown - self.measured, nan=10.0, posinf=10.0, neginf=-10.0)
        cost = np.sum(huber_cost(np.clip(residual, -10.0, 10.0) / self.scale), axis=(1, 2))
        change = np.array([self.start.moved(x).x for x in vectors]) - self.centre
        out: np.ndarray = cost + 0.5 * np.sum(self.precision * change**2, axis=1)
        return out


def compare(kind: str, seed: int) -> dict[str, object]:
    """Return times of both [s], wall and processor, and how many simulations each needed."""
    import cma

    error, start = problem(kind, seed)
    fit_drives(error, start, most_steps=1)  # kernels are compiled
    began, used = time.perf_counter(), time.process_time()
    fit = fit_drives(error, start)
    own = time.perf_counter() - began, time.process_time() - used
    objective = Objective(error, start, fit.drives)
    wanted = float(objective(fit.drives.x[None])[0])
    width = SPREAD * start.steps
    low, high = ((bound - start.x) / width for bound in start.bounds)
    options = {"bounds": [list(low), list(high)], "seed": 1 + seed, "verbose": -9}
    options |= {
        "tolfun": 0.0,
        "tolfunhist": 0.0,
        "tolx": 0.0,
        "tolflatfitness": 10**6,
    }
    search = cma.CMAEvolutionStrategy(np.zeros(len(start.x)), 1.0, options)
    best, count = np.inf, 0
    began, used = time.perf_counter(), time.process_time()
    while best > (1.0 + WITHIN) * wanted and time.process_time() - used < LONGEST * own[1]:
        drawn = search.ask()
        costs = objective(start.x + width * np.array(drawn))
        search.tell(drawn, list(costs))
        best, count = min(best, float(costs.min())), count + len(drawn)
    theirs = time.perf_counter() - began, time.process_time() - used
    return {
        **{"kind": kind, "seed": seed, "parameters": len(start.x), "population": search.popsize},
        **{"fit_seconds": own[0], "fit_processor": own[1], "fit_steps": fit.steps},
        **{"cma_seconds": theirs[0], "cma_processor": theirs[1], "cma_evaluations": count},
        **{
            "fit_objective": wanted,
            "cma_objective": best,
            "reached": best <= (1.0 + WITHIN) * wanted,
        },
        **{"ratio_seconds": theirs[0] / own[0], "ratio_processor": theirs[1] / own[1]},
    }


def problem(kind: str, seed: int) -> tuple[SimulationError, DriveParameters]:
    """Return the simulation error of a planted robot, and where the fit begins."""
    robot = robot_of(kind, seed)
    with tempfile.TemporaryDirectory() as folder:
        file, path = planted(Path(folder), robot, seed=seed)
        model = load(file)
        log: DriveLog = drive_log(model, read_log(path, model), IdentifySettings().reading)
    log, _ = log.split(0.3)
    nothing = np.full(model.nv, np.nan)
    known = KnownGains(nothing, nothing)
    if kind == "quadruped":
        known = KnownGains(robot.drives.kp, robot.drives.kd)
    start = start_of(model, log, known=known, file_kp=nothing, moving=moving_joints(log))
    return SimulationError(DriveRollout(model, log), log.segments(SEGMENT)), start
