"""A motor on a bench: planted parameters are found again from a simulation written here, and logs
that cannot tell are refused in a sentence.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT, SHARED

import thetahat as th
from thetahat.errors import MalformedInput, NotIdentifiable, UsageError
from thetahat.identification.actuators.motor_bench import BASE, BenchMotor, fit, run_errors
from thetahat.pipeline.bench_identification import bench
from thetahat.pipeline.bench_log import BenchColumns, pendulum_of, read_bench

KT, R, ARMATURE, COULOMB, VISCOUS = 0.4, 3.5, 0.002, 0.015, 0.004
MASS, LENGTH, GAIN, VOLTS, STEP = 0.5, 0.1, 2.0, 7.4, 2e-4
URDF = f"""<robot name="pendulum"><link name="base"/><link name="rod"><inertial>
<origin xyz="0 0 -{LENGTH}"/><mass value="{MASS}"/>
<inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="joint" type="continuous"><parent link="base"/><child link="rod"/>
<axis xyz="0 1 0"/></joint></robot>"""


def record(seed: int, *, drop: bool) -> np.ndarray:
    """Rows t, cmd, q, dq, pwm, volts, enabled of 4 s at 200 Hz; semi-implicit Euler of 0.2 ms."""
    rng = np.random.default_rng(seed)
    a, w = rng.uniform(0.5, 1.2, 2), rng.uniform(1.0, 5.0, 2)
    q, v, rows = 0.0, 0.0, []
    J = MASS * LENGTH**2 + 1e-4 + ARMATURE
    for k in range(round(4.0 / STEP)):
        t = k * STEP
        if k % 25 == 0:  # a command holds until the next one
            command = a[0] * math.sin(w[0] * t) + a[1] * math.sin(w[1] * t)
        on = not drop or t < 1.5
        duty = min(1.0, max(-1.0, GAIN * (command - q))) if on else 0.0
        if k % 25 == 0:
            rows.append((t, command, q, v, 885.0 * duty, VOLTS, float(on)))
        torque = KT * (duty * VOLTS - KT * v) / R if on else 0.0
        torque -= MASS * 9.81 * LENGTH * math.sin(q) + VISCOUS * v
        free = v + STEP * torque / J
        stop = STEP * COULOMB / J
        v = math.copysign(max(abs(free) - stop, 0.0), free)
        q += STEP * v
    return np.array(rows)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    robot, log = tmp_path / "pendulum.urdf", tmp_path / "log.csv"
    robot.write_text(URDF)
    lines = ["seg,t,cmd.joint,q.joint,dq.joint,pwm.joint,volts,enabled"]
    for k in range(4):
        for row in record(k, drop=k % 2 == 1):
            lines.append(f"run{k}," + ",".join(f"{x:.9g}" for x in row))
    log.write_text("\n".join(lines) + "\n")
    return robot, log


def test_planted_motors_are_found(files: tuple[Path, Path]) -> None:
    robot, log = files
    model = th.load(robot)
    pendulum, hanging = pendulum_of(model)
    assert pendulum.weight == pytest.approx(MASS * 9.81 * LENGTH, rel=1e-9)
    assert hanging == pytest.approx(0.0, abs=1e-12)
    read = read_bench(model, [log], BenchColumns(pwm_full=885.0), hanging)
    np.testing.assert_allclose(read.gains, GAIN, rtol=1e-6)
    assert read.runs.swings_free
    motor = fit(read.runs, pendulum, BASE, BenchMotor.start())
    assert np.max(run_errors(motor, pendulum, read.runs)) < 2e-3
    truth = {"kt": KT, "R": R, "armature": ARMATURE, "coulomb": COULOMB, "viscous": VISCOUS}
    for name, value in truth.items():
        assert motor.values[name] == pytest.approx(value, rel=0.05), name
    assert abs(motor.values["delay"]) < 3e-3
    assert abs(motor.values["bias"]) < 3e-3


def test_without_a_drop_the_winding_is_a_sum(files: tuple[Path, Path]) -> None:
    robot, log = files
    lines = log.read_text().splitlines()
    driven = [line for line in lines if not line.startswith(("run1", "run3"))]
    log.write_text("\n".join(driven) + "\n")
    result = bench(robot, [log], columns=BenchColumns(pwm_full=885.0), holdout=0.0)
    rows = {row["name"]: row for row in result.data["parameters"]}
    for name in ("kt", "R", "viscous"):
        assert rows[name]["value"] is None
    assert rows["kt/R"]["value"] == pytest.approx(KT / R, rel=0.03)
    assert rows["kt²/R + viscous"]["value"] == pytest.approx(KT**2 / R + VISCOUS, rel=0.05)
    assert any("torque off" in reason for reason in result.verdict.reasons)
    json.dumps(result.data, allow_nan=False)


@pytest.mark.parametrize(
    ("change", "columns", "error", "said"),
    [
        (("pwm.joint", "duty"), BenchColumns(), MalformedInput, "--duty-gain"),
        (("volts", "v"), BenchColumns(), MalformedInput, "--volts"),
        (("cmd.joint", "goal"), BenchColumns(), MalformedInput, "cmd.joint"),
    ],
)
def test_logs_that_lack_something(
    files: tuple[Path, Path],
    change: tuple[str, str],
    columns: BenchColumns,
    error: type[Exception],
    said: str,
) -> None:
    robot, log = files
    log.write_text(log.read_text().replace(*change, 1))
    with pytest.raises(error, match=said):
        bench(robot, [log], columns=columns)


def test_a_duty_of_the_wrong_sign_is_named(files: tuple[Path, Path]) -> None:
    robot, log = files
    text = log.read_text().splitlines()
    flipped = [text[0]]
    for line in text[1:]:
        cells = line.split(",")
        cells[5] = str(-float(cells[5]))
        flipped.append(",".join(cells))
    log.write_text("\n".join(flipped) + "\n")
    with pytest.raises(NotIdentifiable, match="sign of pwm"):
        bench(robot, [log])


def test_arms_are_no_pendulums() -> None:
    with pytest.raises(UsageError, match="degrees of freedom"):
        bench("arm4", ["log.csv"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_servo_beats_the_published_model() -> None:
    """XL330, runs of gains 200 and 800 held out: 0.0865 rad by the published m6 model, 0.0816 by the
    best of the six (benchmarks/motor_bench.py).
    """
    folder = SHARED / "logs" / "actuators"
    if not folder.is_dir():
        pytest.skip("the logs of servos are not here")
    lines = [line.split(",") for line in (folder / "runs.csv").read_text().splitlines()]
    held = [row[1] for row in lines if row[0] == "xl330.csv" and row[6] in ("200", "800")]
    result = bench(
        folder / "xl330_pendulum.urdf",
        [folder / "xl330.csv"],
        columns=BenchColumns(pwm_full=885.0),
        test_runs=held,
    )
    assert result.data["error"]["test"] < 0.0816


def test_the_answer_is_as_its_schema_says(files: tuple[Path, Path], tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the answer")
    robot, log = files
    lines = log.read_text().splitlines()
    log.write_text("\n".join(x for x in lines if not x.startswith(("run2", "run3"))) + "\n")
    (path,) = bench(robot, [log], columns=BenchColumns(pwm_full=885.0), holdout=0.5).save(tmp_path)
    schema = ROOT / "src" / "thetahat" / "schemas" / "bench.json"
    jsonschema.validate(json.loads(path.read_text()), json.loads(schema.read_text()))
