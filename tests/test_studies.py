"""The paper's experiments, and its claims as laws: convergence, the guess, the gate, the switch, and better tracking with an identified model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import thetahat as th
from data_paths import example_robot
from thetahat import cli, robots
from thetahat.excite.shapes import Sinusoids
from thetahat.model.lock import lock
from thetahat.plant.built import as_built
from thetahat.studies import arm, double_pendulum, leg
from thetahat.studies.study import Result

BIAS_LEFT = 0.2  # of the bias before the switch
SMALL = 1e-3  # [rad]: a bias that is nothing before cannot be asked to fall


@pytest.fixture(scope="module")
def pendulum() -> Result:
    return double_pendulum.run("own")


@pytest.fixture(scope="module")
def legs() -> Result:
    return leg.run("own")


@pytest.fixture(scope="module")
def arms() -> Result:
    pytest.importorskip("mujoco", reason="MuJoCo simulates this one (pip install mujoco)")
    return arm.run("mujoco")


def test_the_pendulum_is_found_exactly_without_noise_and_well_with_it(pendulum: Result) -> None:
    told = pendulum.summary
    assert min(told["r2_noise_free"]) >= 1.0 - 1e-9
    assert min(told["r2"]) >= 0.99
    assert list(told["parameters_seen"].values()) == [3, 3], "in a plane three parameters per link are effectively used (paper)"


def test_other_parameters_give_the_same_torques() -> None:
    """Minimum-norm parameters of a pendulum are not its own, and predict any motion of it (paper: Θ̂ need not converge to Θ)."""
    robot = th.load(robots.path("double_pendulum")).without_drive()
    rng = np.random.default_rng(0)
    q, dq, ddq = rng.uniform(-2.0, 2.0, (3, 200, 2))
    estimate = th.identify(th.information(robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(robot, q, dq, ddq))), th.LeastSquares())
    found = robot.with_parameters(estimate)
    assert np.linalg.norm(found.theta - robot.theta) > 0.1 * np.linalg.norm(robot.theta)
    other = rng.uniform(-3.0, 3.0, (3, 100, 2))
    np.testing.assert_allclose(th.inverse_dynamics(found, *other), th.inverse_dynamics(robot, *other), atol=1e-9)


def test_the_leg_is_known_better_the_longer_it_moves(legs: Result) -> None:
    told = legs.summary
    r2 = np.array(told["r2_over_time"]["r2"])
    assert told["r2_guess"] < 0.9, "the guess is wrong on purpose"
    assert r2[-1] >= 0.99
    assert min(told["r2"]) >= 0.99
    quarter = len(r2) // 4
    assert np.min(r2[-quarter:]) > np.max(r2[:2])
    assert np.median(r2[:quarter]) <= np.median(r2[-quarter:])


def test_the_arm_switches_only_when_the_buffer_is_full_and_without_a_bump(arms: Result) -> None:
    told, run = arms.summary, arms.run
    assert told["gate"]["opened_at"] >= told["gate"]["full_at"] >= 16.0, "50 samples at 3 Hz"
    assert told["max_torque_step"] <= told["slew_bound"] * (1.0 + 1e-9)
    assert not run.identified[: np.searchsorted(run.t, told["gate"]["opened_at"])].any()
    assert told["fallbacks"] == 0


def test_the_bias_of_the_arm_moves_to_zero(arms: Result) -> None:
    before, after = (np.abs(arms.summary[key]) for key in ("bias_before", "bias_after"))
    assert before.max() > 0.01
    assert np.all(after <= np.maximum(BIAS_LEFT * before, SMALL * (before < SMALL / BIAS_LEFT)))
    assert np.all(np.array(arms.summary["peak_to_peak_after"]) <= 1.05 * np.array(arms.summary["peak_to_peak_before"]))


def test_a_study_is_the_same_again(legs: Result) -> None:
    """Deterministic by seed; and another seed is another leg."""
    short = [leg.run("own", seed=seed, duration=4.0).summary for seed in (3, 3, 4)]
    for told in short:
        told["cycle_us"] = None
    assert short[0] == short[1]
    assert short[0]["r2"] != short[2]["r2"]


def test_the_verb_writes_the_page_the_signals_and_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the answers (pip install jsonschema)")

    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["thetahat", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    assert call("study", "double-pendulum", "--out", tmp_path / "out", "--plant", "own", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "run.parquet", "summary.json"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8")) == told
    schema = json.loads((Path(th.__file__).parent / "schemas" / "study.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(told)
    assert call("study", "cartwheel", "--out", tmp_path / "out") == 2
    assert call("study", "leg", "--out", tmp_path / "out" / "summary.json") == 6


# -- control with what was identified -----------------------------------------------------------------------------------


def wave(robot: th.Robot, seed: int, duration: float) -> Sinusoids:
    """Sinusoids inside the limits, each seed another motion."""
    rng = np.random.default_rng(seed)
    limits = np.array([[max(node.limits.lower, -2.0), min(node.limits.upper, 2.0)] for node in robot.tree.independent])
    reach = 0.3 * np.diff(limits, axis=1)
    frequency = np.column_stack([rng.permutation(np.linspace(0.2, 0.8, robot.nv)) for _ in range(2)])
    return Sinusoids(robot.joint_names, duration, limits.mean(axis=1), reach * [0.7, 0.3], frequency, rng.uniform(0, 6, (robot.nv, 2)), ramp=1.0)


ROBOTS: dict[str, Callable[[], th.Robot]] = {
    "panda": lambda: lock(th.load(example_robot("panda")), ["panda_finger_joint1"]),
    "arm": lambda: th.load(robots.path("valkyrie_arm")),
    "leg": lambda: th.load(robots.path("valkyrie_leg")),
}


@pytest.mark.parametrize("name", ROBOTS)
def test_an_identified_model_tracks_five_times_better_than_a_wrong_one(name: str) -> None:
    """In MuJoCo, with friction and noise: the same controller, on a model 20 % too heavy and on the identified one, on a motion it has not seen."""
    pytest.importorskip("mujoco", reason="MuJoCo simulates this one (pip install mujoco)")
    nominal = ROBOTS[name]()
    truth = as_built(nominal, spread=0.05, seed=1)
    plant = th.MujocoPlant(truth, realism=th.Realism.typical(truth))
    model = plant.robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    recording = th.simulate(plant, wave(nominal, 1, 12.0), rate=500.0, controller=th.ComputedTorque(nominal, kp=900.0, kd=60.0))
    estimate = th.identify(th.information(model, th.prepare(recording.log, model, cutoff=15.0)))
    identified = model.with_parameters(estimate)
    wrong = nominal.with_parameters(1.2 * nominal.theta)
    errors = []
    for believed in (wrong, identified):
        found = th.simulate(plant, wave(nominal, 2, 8.0), rate=500.0, controller=th.ComputedTorque(believed, kp=400.0, kd=40.0), seed=5)
        errors.append(np.sqrt(np.mean((found.q - found.wanted[0]) ** 2)))
    assert errors[1] <= 0.2 * errors[0]
