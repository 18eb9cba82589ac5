"""A servo on a bench against its published model: `make motor`.

Rhoban's runs of a Dynamixel XL330 (shared data, `logs/actuators`): fitted on firmware gains 100 and
400, scored on 200 and 800. The published parameters of BAM (m1 … m6) are simulated by BAM's own
scheme, written here from its equations (Rhoban/bam, model.py and simulate.py, Apache-2.0): semi-
implicit steps of 5 ms, friction that at most stops the motor. The metric is BAM's: mean absolute
error of positions, whole runs from their first row, the controller simulated.
"""

from __future__ import annotations

import csv
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from thetahat.identification.actuators.motor_bench import BenchRuns
from thetahat.pipeline.bench_identification import bench
from thetahat.pipeline.bench_log import BenchColumns

ROOT = Path(__file__).resolve().parents[1]
LOGS = Path(os.environ.get("THETAHAT_SHARED", ROOT.parent / "shared")) / "data/logs/actuators"
HELD_OUT = ("200", "800")
STEP = 5e-3  # [s] of BAM's scheme
GRAVITY = 9.80665
FULL = 885.0  # reading of the duty at full voltage


def friction_loss(p: dict[str, float], motor: float, external: float, speed: float) -> float:
    """BAM's budget of dry friction, models m1 to m6 by the parameters that are there."""
    loss = p["friction_base"]
    low = 0.0
    if "dtheta_stribeck" in p:
        low = math.exp(-(abs(speed / p["dtheta_stribeck"]) ** p["alpha"]))
        loss += low * p["friction_stribeck"]
    if "load_friction_base" in p:
        gear = abs(external - motor)
        loss += gear * (p["load_friction_base"] + low * p.get("load_friction_stribeck", 0.0))
    if "load_friction_motor" in p:
        loss += abs(external * p["load_friction_external"] - motor * p["load_friction_motor"])
        loss += low * abs(
            external * p["load_friction_external_stribeck"]
            - motor * p["load_friction_motor_stribeck"]
        )
    if "load_friction_motor_quad" in p and np.sign(external) != np.sign(motor):
        if abs(external) < abs(motor):
            loss += low * p["load_friction_external_quad"] * external**2
        elif abs(external) > abs(motor):
            loss += low * p["load_friction_motor_quad"] * motor**2
    return loss


def published_error(p: dict[str, float], rows: np.ndarray, mass: float, length: float) -> float:
    """Mean absolute error of one run by BAM's scheme."""
    inertia, weight = mass * length**2 + p["armature"], mass * GRAVITY * length
    t = np.arange(rows[0, 0], rows[-1, 0], STEP)
    at = np.searchsorted(rows[:, 0], t + 1e-9, side="right") - 1
    q, speed, out = rows[0, 2], rows[0, 3], np.empty(len(t))
    for k, row in enumerate(rows[at]):
        out[k] = q
        external, motor = -weight * math.sin(q + p["q_offset"]), 0.0
        if row[5] > 0.5:
            duty = min(1.0, max(-1.0, row[7] * (row[1] - q)))
            motor = p["kt"] * (duty * row[4] - p["kt"] * speed) / p["R"]
        loss = friction_loss(p, motor, external, speed) + p["friction_viscous"] * abs(speed)
        net = motor + external
        stop = inertia / STEP * speed + net
        net -= math.copysign(min(abs(stop), loss), stop)
        acceleration = net / inertia
        speed = min(100.0, max(-100.0, speed + acceleration * STEP))
        q += speed * STEP + 0.5 * acceleration * STEP**2
    return float(np.mean(np.abs(out - np.interp(t, rows[:, 0], rows[:, 2]))))


def published_errors(runs: BenchRuns, held: list[int], info: dict[str, Any]) -> dict[str, float]:
    """Errors of the published models on held-out runs, with the best of three zero angles."""
    models = json.loads((LOGS / "xl330_published_params.json").read_text())
    out = {}
    for name, stated in models.items():
        errors = []
        for offset in (0.0, stated["q_offset"], -stated["q_offset"]):
            p = {**stated, "q_offset": offset}
            errors.append(
                np.mean(
                    [
                        published_error(
                            p,
                            runs.rows[runs.first[k] : runs.last[k]],
                            float(info[runs.names[k]]["mass"]),
                            float(info[runs.names[k]]["length"]),
                        )
                        for k in held
                    ]
                )
            )
        out[name] = float(min(errors))
    return out


def main() -> None:
    """Fit, score, compare."""
    if not LOGS.is_dir():
        raise SystemExit(f"{LOGS} is not there; set THETAHAT_SHARED")
    with (LOGS / "runs.csv").open() as file:
        info = {row["seg"]: row for row in csv.DictReader(file) if row["file"] == "xl330.csv"}
    held = [name for name, row in info.items() if row["kp"] in HELD_OUT]
    began = time.process_time()
    result = bench(
        LOGS / "xl330_pendulum.urdf",
        [LOGS / "xl330.csv"],
        columns=BenchColumns(pwm_full=FULL),
        test_runs=held,
    )
    seconds = time.process_time() - began
    print(f"fitted in {seconds:.1f} s of processor time; {result.verdict}")
    for row in result.data["parameters"]:
        print(f"  {row['name']:16} {row['value']!r:24} ± {row['std']!r} {row['unit']}")
    for name, error in published_errors(result.log.runs, list(result.held_out), info).items():
        print(f"published {name}: {error:.4f} rad on {len(held)} held-out runs")
    print(f"thetahat bench: {result.data['error']['test']:.4f} rad on the same runs")


if __name__ == "__main__":
    main()
