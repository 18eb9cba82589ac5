"""Instrumental variables where noise in the motion biases least squares.

`make instruments ARGS="bias --count 100"` (or `python -m benchmarks.instruments bias|alarms|real`).
Rows go to build/instruments as JSON, run by run, and a benchmark that was stopped goes on where it
was; a summary is printed.

bias:   arm4 and arm7 under computed torque in MuJoCo, encoder noise, commanded positions logged; the
        mean error of every base parameter over the runs, in its stated standard deviations
alarms: the same without noise in the motion; how often the Durbin–Wu–Hausman test finds some
real:   logs without a command in ../shared/data; instruments from simulated motion
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.data.log import Log
from thetahat.data.memory_log import log_from_table
from thetahat.data.prepare import prepare
from thetahat.data.reading import Reading
from thetahat.data.reference_motion import ReferenceMotion
from thetahat.data.samples import Samples
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import prior_vector
from thetahat.identification.tuning.tune import Tuned, TuningOptions
from thetahat.identification.uncertainty.hausman import LEVEL, hausman_test
from thetahat.plant.plant import MujocoPlant
from thetahat.plant.realism import DriveModel, Realism, SensorModel
from thetahat.plant.simulate import Recording, simulate
from thetahat.plant.tracking import Tracking

OUT = Path(__file__).resolve().parents[1] / "build" / "instruments"
ARMS = ("arm4", "arm7")
ENCODER = 1e-3  # [rad]
TORQUE = 0.01  # of a joint's RMS torque: noise of its sensor
FITS = {"least squares": th.LeastSquares("iterated"), "instrumental": th.Instrumental("iterated")}
RATE, SECONDS = 250.0, 40.0  # [Hz], [s]
AMPLITUDE = 0.1  # [rad] of each harmonic: a slow motion, in which noise matters most
SPEED = 30.0  # [Hz] low-pass of the speed that the controller gets


@dataclass(frozen=True)
class Sines:
    """A motion of five harmonics of 0.1 Hz."""

    a: np.ndarray
    b: np.ndarray
    duration: float = SECONDS

    def at(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, dq, ddq."""
        w = 0.2 * np.pi * np.arange(1, 6)
        s, c = np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
        return (
            s @ self.a + c @ self.b,
            (c * w) @ self.a - (s * w) @ self.b,
            -((s * w**2) @ self.a + (c * w**2) @ self.b),
        )


def motion(robot: th.Robot, seed: int) -> Sines:
    """Random amplitudes; the same seed, the same motion."""
    rng = np.random.default_rng([seed, 5])
    return Sines(*(AMPLITUDE * rng.normal(size=(2, 5, robot.nv))))


def record(robot: th.Robot, path: int, seed: int, encoder: float, *, dry: bool) -> Recording:
    """Let the arm follow a motion in MuJoCo; no torque noise yet."""
    sensors = SensorModel(encoder_noise=encoder, speed_cutoff=SPEED)
    plant = MujocoPlant(robot, realism=Realism(drive=_drive(dry), sensors=sensors))
    controller = Tracking(robot.without_drive())  # which knows of no friction
    return simulate(plant, motion(robot, path), rate=RATE, seed=seed, controller=controller)


def as_log(robot: th.Robot, run: Recording, seed: int) -> Log:
    """The log with noise on its torques, and with what was commanded."""
    rng = np.random.default_rng([seed, 6])
    names = robot.joint_names
    noise = TORQUE * np.sqrt(np.mean(run.tau**2, axis=0))
    tau = run.measured["tau"] + noise * rng.normal(size=run.tau.shape)
    table = {"t": run.t}
    for kind, values in (("q", run.measured["q"]), ("tau", tau), ("cmd", run.wanted[0])):
        table |= {f"{kind}.{name}": values[:, v] for v, name in enumerate(names)}
    return log_from_table(table, robot)


def _drive(dry: bool) -> DriveModel:
    """Friction of the robot's file, or its viscous part alone."""
    return DriveModel() if dry else DriveModel(coulomb=0.0)


def paired(log: Log, robot: th.Robot, tuned: Tuned) -> tuple[Samples, Information]:
    """Samples with the commanded motion as instruments, and their information."""
    settings = replace(tuned.settings, decimate="auto")
    commanded = log.commanded(Reading())
    assert commanded is not None
    reference = ReferenceMotion("the commanded motion", commanded, robot, same_rows=True)
    samples = prepare(log, robot, settings=settings)
    (samples,) = reference.attached(iter([samples]), settings, None)
    return samples, information(tuned.robot, samples)


def tuned_on(log: Log, robot: th.Robot, *, dry: bool) -> Tuned:
    """What `identify` chooses on one log, used for all of its kind; but for the delay, which is
    known: a torque is held from its stamp on for a tick, whose middle is half a tick later.
    """
    fitted = robot.without_drive().with_drive(viscous=True, coulomb=dry, offset=True)
    options = TuningOptions(rotors=False, delay=False)
    tuned = th.tune(log, robot, options, fitted=fitted)
    return replace(tuned, settings=replace(tuned.settings, delay=-0.5 / RATE))


# -- runs, kept one by one: a benchmark that was stopped goes on where it was ----------------------


def kept(label: str, seeds: range, run: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of these seeds, those that an earlier call made from its file."""
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / f"{label}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = {row["seed"]: row for row in map(json.loads, lines)}
    for seed in seeds:
        if seed not in rows:
            rows[seed] = {"seed": seed, **run(seed)}
            with file.open("a") as out:
                out.write(json.dumps(rows[seed]) + "\n")
    return [rows[seed] for seed in seeds]


def _label(what: str, name: str, dry: bool) -> str:
    return f"{what}-{name}{'-dry' if dry else ''}"


# -- bias ------------------------------------------------------------------------------------------


def bias(name: str, count: int, *, dry: bool, encoder: float = ENCODER) -> dict[str, Any]:
    """Mean errors of base parameters over runs of one motion."""
    robot = th.load(robots.path(name))
    tuned = cache(
        lambda: tuned_on(as_log(robot, record(robot, 0, 0, encoder, dry=dry), 0), robot, dry=dry)
    )

    def run(seed: int) -> dict[str, Any]:
        chosen = tuned()
        log = as_log(robot, record(robot, 0, seed, encoder, dry=dry), seed)
        samples, info = paired(log, robot, chosen)
        true = prior_vector(Realism(drive=_drive(dry)).applied(robot), chosen.robot)
        truth = info.base.map @ true
        out: dict[str, Any] = {
            "names": list(info.base.names),
            "rejects": hausman_test(info, samples=samples).biased,
        }
        for kind, estimator in FITS.items():
            estimate = th.solve(info, estimator, samples=samples)
            scaled = (estimate.x_base - truth) / estimate.base_std.filled(np.inf)
            out[kind] = scaled.tolist()
        return out

    rows = kept(_label("bias", name, dry), range(count), run)
    out: dict[str, Any] = {
        "arm": name,
        "dry friction": dry,
        "runs": count,
        "encoder": encoder,
        "test rejects": sum(row["rejects"] for row in rows),
        "names": rows[0]["names"],
    }
    for kind in FITS:
        values = np.array([row[kind] for row in rows])
        mean, spread = np.mean(values, axis=0), np.std(values, axis=0)
        covered = np.mean(np.abs(values) <= 1.96, axis=0)
        out[kind] = {
            "bias": mean.tolist(),
            "spread": spread.tolist(),
            "largest": float(np.max(np.abs(mean))),
            "median": float(np.median(np.abs(mean))),
            "chance": float(np.median(spread) / np.sqrt(count)),
            "coverage": float(np.median(covered)),
            "least coverage": float(np.min(covered)),
        }
    return out


# -- false alarms ----------------------------------------------------------------------------------


def alarms(name: str, count: int, *, dry: bool, motions: int = 10) -> dict[str, Any]:
    """How often the test finds noise in a motion that has none.

    The torque sensor's noise does not reach the controller, so runs of one motion share its
    simulation.
    """
    robot = th.load(robots.path(name))
    recorded = cache(lambda path: record(robot, path, path, 0.0, dry=dry))
    tuned = cache(lambda path: tuned_on(as_log(robot, recorded(path), path), robot, dry=dry))

    def run(seed: int) -> dict[str, Any]:
        path = seed * motions // count
        samples, info = paired(as_log(robot, recorded(path), seed), robot, tuned(path))
        test = hausman_test(info, samples=samples)
        # Holm's first step decides whether any hypothesis falls
        found = {
            "parameters": test.p_values.compressed(),
            "joints": test.joint_p_values.compressed(),
        }
        return {
            "motion": path,
            **{kind: float(np.min(p) * len(p)) if len(p) else 1.0 for kind, p in found.items()},
        }

    rows = kept(_label("alarms", name, dry), range(count), run)
    out: dict[str, Any] = {
        "arm": name,
        "dry friction": dry,
        "runs": count,
        "motions": motions,
        "level": LEVEL,
    }
    for kind in ("parameters", "joints"):
        least = np.array([row[kind] for row in rows])
        out[kind] = {f"{level:g}": int(np.sum(least <= level)) for level in (0.01, 0.05, 0.1)}
    return out


def main() -> None:
    """Run one experiment, write its rows and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", choices=("bias", "alarms", "real"))
    parser.add_argument("--count", type=int, default=20, help="runs of each arm")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--dry", action="store_true", help="with Coulomb friction")
    given = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    if given.experiment == "real":
        from benchmarks.simulated_instruments import real_logs

        rows = real_logs()
    else:
        work = {"bias": bias, "alarms": alarms}[given.experiment]
        rows = [work(name, given.count, dry=given.dry) for name in given.arms.split(",")]
    OUT.mkdir(parents=True, exist_ok=True)
    label = f"{given.experiment}{'-dry' if given.dry else ''}"
    (OUT / f"{label}.json").write_text(json.dumps(rows, indent=1))
    for row in rows:
        print({key: value for key, value in row.items() if key != "names" and not _lists(value)})
        for kind in ("least squares", "instrumental"):
            if kind in row:
                print(" ", kind, {k: v for k, v in row[kind].items() if not isinstance(v, list)})


def _lists(value: object) -> bool:
    return isinstance(value, dict) and any(isinstance(each, list) for each in value.values())


if __name__ == "__main__":
    main()
