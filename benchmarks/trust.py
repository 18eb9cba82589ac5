"""Whether results can be trusted: random arms with planted truth, planted faults, clean logs.

`make trust ARGS="arms --count 200"` (or `python -m benchmarks.trust arms|rails|faults|clean`). Every arm
is simulated by MuJoCo (simulated_arms.py) and identified with defaults from a robot file that is
wrong by up to 30 %. Rows go to build/trust as JSON, one file an experiment; a summary is printed.

arms:   link masses and base parameters against the truth, beside the robot file's own error
rails:  the same for arms on tilting rails, whose logs tell the mass that the rail carries and that of
        the last link
faults: one fault planted in each log; the verdict's reasons must name it
clean:  no fault; nothing may be reported
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.simulated_arms import (
    Arm,
    Disturbance,
    Recording,
    as_in_file,
    random_arm,
    record,
    urdf,
)

OUT = Path(__file__).resolve().parents[1] / "build" / "trust"
MASSES = ("mass", "mass_file")


def identify(folder: Path, file: Arm, log: Recording, **settings: Any) -> Any:
    """Identify from files, as a user would."""
    import thetahat as th

    robot = folder / "arm.urdf"
    robot.write_text(urdf(file))
    path = log.write(folder / "log.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return th.identify(robot, path, settings=th.IdentifySettings(report=False, **settings))


# -- planted truth ---------------------------------------------------------------------------------


def rail_row(seed: int) -> dict[str, Any]:
    """Identify one random arm on a rail."""
    return arm_row(seed, rail=True)


def arm_row(seed: int, *, rail: bool = False, **settings: Any) -> dict[str, Any]:
    """Identify one random arm; errors of masses, base parameters and rotors beside the file's."""
    import thetahat as th

    arm = random_arm(seed, rail=rail)
    file = as_in_file(arm, seed)
    begin = time.process_time()
    log = record(arm, seed)
    recorded = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = identify(folder, file, log, **settings)
        true_file = folder / "truth.urdf"
        true_file.write_text(urdf(arm))
        truth = th.load(true_file)
    data = result.data
    std = np.array(
        [np.nan if v is None else v for v in (link["std"][-1] for link in data["links"])]
    )
    masses = np.array([link["mass"] for link in data["links"]])
    return {
        "seed": seed,
        "joints": arm.count,
        "prismatic": bool(arm.prismatic.any()),
        "seconds": time.process_time() - recorded,
        "recording_seconds": recorded - begin,
        "level": result.verdict.level,
        "reasons": list(result.verdict.reasons),
        "mass": masses.tolist(),
        "mass_std": [None if np.isnan(v) else float(v) for v in std],
        "mass_true": arm.masses.tolist(),
        "mass_file": file.masses.tolist(),
        "mass_sums": _mass_sums(result.estimate),
        "armature": [joint["armature"] for joint in data["joints"]],
        "armature_true": arm.armature.tolist(),
        "coulomb": [joint["coulomb"] for joint in data["joints"]],
        "coulomb_true": arm.coulomb.tolist(),
        "r2_test": [joint["r2_test"] for joint in data["joints"]],
        "weight": result.tuned.weight,
        "rigid_base_error": _rigid_error(result.estimate.theta, truth.theta, truth),
        "rigid_base_file_error": _rigid_error(result.nominal.theta, truth.theta, truth),
    }


def _mass_sums(estimate: Any) -> list[dict[str, Any]]:
    """Sums of link masses that the log tells by itself, and their data-only standard deviations."""
    bodies = len(estimate.theta) // 10
    mass = 10 * np.arange(bodies) + 9
    out = []
    for row, std in zip(estimate.base.map, estimate.base_std, strict=True):
        used = np.flatnonzero(np.abs(row) > 1e-6)
        alike = np.all(np.abs(row[used] - 1.0) < 1e-6)
        if len(used) and alike and np.all(np.isin(used, mass)) and std is not np.ma.masked:
            out.append({"links": ((used - 9) // 10).tolist(), "std": float(std)})
    return out


def _rigid_error(theta: np.ndarray, true: np.ndarray, robot: Any) -> list[float]:
    """Error of each base parameter of the rigid bodies, each in its own unit."""
    base = robot.base_parameters
    difference = np.abs(base.map[:, : len(true)] @ (np.asarray(theta) - true))
    return [float(x) for x in difference]


def summarise_arms(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors of link masses relative to the truth, where the data tell and where they do not."""
    told, file_told, silent, file_silent = [], [], [], []
    sums, file_sums = [], []
    ratios, totals, base = [], [], []
    for row in rows:
        true = np.array(row["mass_true"])
        mine, theirs = (np.abs(np.array(row[k]) / true - 1.0) for k in MASSES)
        std = np.array([np.inf if v is None else v for v in row["mass_std"]]) / true
        tells = std < theirs
        told += mine[tells].tolist()
        file_told += theirs[tells].tolist()
        silent += mine[~tells].tolist()
        file_silent += theirs[~tells].tolist()
        for each in row["mass_sums"]:
            links = each["links"]
            mine_sum, file_sum = (np.sum(np.array(row[k])[links]) for k in MASSES)
            whole = true[links].sum()
            if each["std"] < abs(file_sum - whole):
                sums.append(abs(mine_sum / whole - 1.0))
                file_sums.append(abs(file_sum / whole - 1.0))
        ratios += (np.array(row["mass"]) / np.array(row["mass_file"])).tolist()
        totals.append(sum(row["mass"]) / true.sum())
        base.append(
            np.median(
                np.array(row["rigid_base_error"])
                / np.maximum(np.array(row["rigid_base_file_error"]), 1e-12)
            )
        )
    levels = [row["level"] for row in rows]
    return {
        "robots": len(rows),
        "levels": {level: levels.count(level) for level in sorted(set(levels))},
        "identifiable masses": len(told),
        "median error / file's, identifiable": _ratio(told, file_told, 50),
        "identifiable sums of masses": len(sums),
        "median error / file's, of these": _ratio(sums, file_sums, 50),
        "95th percentile / file's, not identifiable": _ratio(silent, file_silent, 95),
        "median error / file's, not identifiable": _ratio(silent, file_silent, 50),
        "mass / file's mass, 1st and 99th percentile": _percentiles(ratios, (1, 99)),
        "total mass / true, 1st, 50th, 99th percentile": _percentiles(totals, (1, 50, 99)),
        "median base parameter error / file's": float(np.median(base)),
        "processor time per robot [s]": float(np.mean([row["seconds"] for row in rows])),
    }


def _ratio(mine: list[float], theirs: list[float], percent: float) -> float | None:
    if not mine:
        return None
    return float(np.percentile(mine, percent) / np.percentile(theirs, percent))


def _percentiles(values: list[float], percents: tuple[float, ...]) -> list[float]:
    return [float(x) for x in np.percentile(values, percents)]


# -- planted faults --------------------------------------------------------------------------------


def _noisy_acceleration(log: Recording, rng: np.random.Generator, joint: int) -> Recording:
    slope = np.gradient(log.dq, log.t, axis=0)
    spread = 15.0 * np.std(slope, axis=0)
    return replace(log, ddq=spread * rng.normal(size=log.q.shape))


def _scaled(factor: float) -> Callable[[Recording, np.random.Generator, int], Recording]:
    return lambda log, rng, joint: replace(log, tau=factor * log.tau)


def _amperes(log: Recording, rng: np.random.Generator, joint: int) -> Recording:
    return replace(log, tau=log.tau / rng.uniform(6.0, 15.0, log.q.shape[1]))


def _one_joint(factor: float) -> Callable[[Recording, np.random.Generator, int], Recording]:
    def plant(log: Recording, rng: np.random.Generator, joint: int) -> Recording:
        tau = log.tau.copy()
        tau[:, joint] *= factor
        return replace(log, tau=tau)

    return plant


def _dead(log: Recording, rng: np.random.Generator, joint: int) -> Recording:
    tau = log.tau.copy()
    tau[:, joint] = 0.0
    return replace(log, tau=tau)


def _degrees(log: Recording, rng: np.random.Generator, joint: int) -> Recording:
    return replace(log, q=np.degrees(log.q), dq=np.degrees(log.dq))


def _as_is(log: Recording, rng: np.random.Generator, joint: int) -> Recording:
    return log


# fault → (how it is planted, words of which one must be named, whether its joint must be named)
FAULTS: dict[str, tuple[Callable[..., Recording], tuple[str, ...], bool]] = {
    "noise as ddq": (_noisy_acceleration, ("ddq", "acceleration"), False),
    "mN·m": (_scaled(1000.0), ("mN·m", "mNm", "scale", "1000"), False),
    "amperes": (_amperes, ("ampere", "current", "scale", "gain"), False),
    "one joint × gear ratio": (_one_joint(1.0 / 100.0), ("scale", "gear", "factor", "times"), True),
    "sign of one joint": (_one_joint(-1.0), ("sign",), True),
    "sign of all joints": (_scaled(-1.0), ("sign",), False),
    "2 s log": (_as_is, ("short", "seconds", " s ", "longer"), False),
    "pushed": (_as_is, ("push", "contact", "external"), False),
    "spring": (_as_is, ("spring", "position"), True),
    "dead channel": (_dead, ("dead", "constant"), True),
    "degrees": (_degrees, ("degree",), False),
}


def fault_row(kind: str, seed: int) -> dict[str, Any]:
    """Plant one fault, and see whether the verdict names it."""
    from thetahat.errors import ThetahatError

    arm = random_arm(seed)
    rng = np.random.default_rng([seed, 4])
    plant, words, joint_named = FAULTS[kind]
    load = np.sqrt(np.mean(record(arm, seed, seconds=2.0).tau ** 2, axis=0))
    joint = int(np.argmax(load * rng.uniform(0.5, 1.0, arm.count)))
    disturbance, seconds = Disturbance(), 20.0
    if kind == "spring":
        disturbance = Disturbance(spring=(joint, 0.6 * load[joint]))
    elif kind == "pushed":
        start = rng.uniform(3.0, 10.0)
        disturbance = Disturbance(push=(start, start + 1.0, 0.5))
    elif kind == "2 s log":
        seconds = 2.0
    log = plant(record(arm, seed, seconds=seconds, disturbance=disturbance), rng, joint)
    row: dict[str, Any] = {"fault": kind, "seed": seed, "joint": f"j{joint + 1}"}
    with tempfile.TemporaryDirectory() as name:
        try:
            result = identify(Path(name), as_in_file(arm, seed), log)
        except ThetahatError as error:
            level, reasons = type(error).__name__, [str(error)]
        else:
            level, reasons = result.verdict.level, list(result.verdict.reasons)
    text = " ".join(reasons)
    named = any(word in text for word in words) and (not joint_named or row["joint"] in text)
    return {**row, "level": level, "reasons": reasons, "named": named}


def clean_row(seed: int) -> dict[str, Any]:
    """Identify from a clean log; what the audit and the verdict report are false alarms."""
    arm = random_arm(seed)
    with tempfile.TemporaryDirectory() as name:
        result = identify(Path(name), as_in_file(arm, seed), record(arm, seed))
    findings = [finding.message for finding in result.audit.findings]
    reasons = list(result.verdict.reasons)
    return {"seed": seed, "level": result.verdict.level, "findings": findings, "reasons": reasons}


# -- command ---------------------------------------------------------------------------------------


ROWS = {"arms": arm_row, "rails": rail_row, "faults": fault_row, "clean": clean_row}


def _guarded(job: tuple[str, tuple[Any, ...]]) -> dict[str, Any]:
    """One row; what fails is a row, too."""
    name, arguments = job
    try:
        return ROWS[name](*arguments)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "arguments": list(arguments)}


def _jobs(name: str, first: int, count: int) -> list[tuple[str, tuple[Any, ...]]]:
    seeds = range(first, first + count)
    if name == "faults":
        return [(name, (kind, seed)) for kind in FAULTS for seed in seeds]
    return [(name, (seed,)) for seed in seeds]


def main() -> None:
    """Run one experiment, write its rows and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", choices=tuple(ROWS))
    parser.add_argument("--count", type=int, default=10, help="robots (of each fault)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first robot")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    jobs = _jobs(given.experiment, given.first, given.count)
    with ProcessPoolExecutor(given.workers) as pool:
        rows = list(pool.map(_guarded, jobs, timeout=60.0 * len(jobs)))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{given.experiment}.json").write_text(json.dumps(rows, indent=1))
    good = [row for row in rows if "error" not in row]
    for row in rows:
        if "error" in row:
            print("failed:", row["arguments"], row["error"])
    if given.experiment in ("arms", "rails"):
        print(json.dumps(summarise_arms(good), indent=1))
    elif given.experiment == "faults":
        for kind in FAULTS:
            mine = [row for row in good if row["fault"] == kind]
            named = sum(row["named"] for row in mine)
            called_good = sum(row["level"] == "good" for row in mine)
            print(f"{kind:24} named {named} of {len(mine)}, called good {called_good}")
    else:
        alarms = [row for row in good if row["findings"]]
        levels = [row["level"] for row in good]
        print(
            f"{len(alarms)} of {len(good)} clean logs with findings; levels",
            {level: levels.count(level) for level in set(levels)},
        )
        for row in alarms:
            print(row["seed"], row["findings"])


if __name__ == "__main__":
    main()
