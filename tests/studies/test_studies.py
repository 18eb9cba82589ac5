"""The paper's experiments, and its claims as laws: convergence, the guess, the gate, the switch,
and better tracking with an identified model.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import golden_numbers
import numpy as np
import pytest
from data_paths import example_robot

import thetahat as th
from thetahat import cli, robots
from thetahat.excite.trajectories import Sinusoids
from thetahat.model.lock_joints import lock
from thetahat.plant.perturb import perturb
from thetahat.plant.plant import MujocoPlant
from thetahat.report.section import Figure, Table
from thetahat.report.text import format_cell
from thetahat.studies import arm, leg
from thetahat.studies.closed_loop import Cycle
from thetahat.studies.study import Result, gate_sentence, study_verdict
from thetahat.studies.study_record import Recorder

BIAS_LEFT = 0.2  # of the bias before the switch
SMALL = 1e-3  # [rad]: a bias that is nothing before cannot be asked to fall


SHORT = 12  # repeats of the arm's motion, of 20: the gate opens at 19 of the 42 s that are left


def run_verb(*arguments: object) -> tuple[int, str]:
    """(exit code, what is printed) of `thetahat …`."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out):
        patched.setattr(sys, "argv", ["thetahat", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return int(ended.value.code or 0), out.getvalue()


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the verb says of the whole study."""
    folder = tmp_path_factory.mktemp("studies") / "out"
    code, printed = run_verb(
        "study", "double-pendulum", "--out", folder, "--plant", "own", "--json"
    )
    assert code == 0
    return written(folder, printed)


@pytest.fixture(scope="module")
def legs() -> Result:
    return leg.run("own")


@pytest.fixture(scope="module")
def arms() -> Result:
    pytest.importorskip("mujoco", reason="MuJoCo simulates this one (pip install mujoco)")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arm, "REPEATS", SHORT)
        return arm.run("mujoco")


def test_the_pendulum_gives_its_golden_numbers(pendulum: dict[str, Any]) -> None:
    golden_numbers.check("studies/double-pendulum", golden_numbers.of_study(pendulum))


def test_the_leg_gives_its_golden_numbers(legs: Result) -> None:
    golden_numbers.check("studies/leg", golden_numbers.of_study(legs.summary))


def test_the_arm_gives_its_golden_numbers_up_to_the_switch(arms: Result) -> None:
    """What a shorter run has in common with the whole."""
    kept = golden_numbers.load("studies/arm")
    now = golden_numbers.rounded(golden_numbers.of_study(arms.summary))
    for key in ("gate", "bias_before"):
        differing = golden_numbers.differences(
            kept["numbers"][key], now[key], golden_numbers.tolerance(kept), key
        )
        assert not list(differing)


def test_rigid_bodies_alone_take_the_bias_and_leave_the_peak_to_peak(arms: Result) -> None:
    """The paper's figure; with friction in the model the peak-to-peak goes, too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arm, "REPEATS", SHORT)
        facts = arm.run("mujoco", variant=arm.RIGID).summary
    bias, swing = (
        [np.linalg.norm(facts[f"{name}_{when}"]) for when in ("before", "after")]
        for name in ("bias", "peak_to_peak")
    )
    assert facts["gate"]["open_at_end"]
    assert bias[1] < 0.25 * bias[0]
    assert 0.7 < swing[1] / swing[0] < 1.3
    with_friction = arms.summary
    assert np.linalg.norm(with_friction["peak_to_peak_after"]) < 0.2 * np.linalg.norm(
        with_friction["peak_to_peak_before"]
    )


@pytest.mark.slow
def test_the_whole_study_of_the_arm_gives_its_golden_numbers() -> None:
    pytest.importorskip("mujoco", reason="MuJoCo simulates this one (pip install mujoco)")
    golden_numbers.check("studies/arm", golden_numbers.of_study(arm.run("mujoco").summary))


def test_the_pendulum_is_found_exactly_without_noise_and_well_with_it(
    pendulum: dict[str, Any],
) -> None:
    told = pendulum
    assert min(told["r2_noise_free"]) >= 1.0 - 1e-9
    assert min(told["r2"]) >= 0.99
    assert list(told["parameters_seen"].values()) == [
        3,
        3,
    ], "in a plane three parameters per link are effectively used (paper)"


def test_other_parameters_give_the_same_torques() -> None:
    """Minimum-norm parameters of a pendulum are not its own, and predict any motion of it (paper:
    Θ̂ need not converge to Θ).
    """
    robot = th.load(robots.path("double_pendulum")).without_drive()
    rng = np.random.default_rng(0)
    q, dq, ddq = rng.uniform(-2.0, 2.0, (3, 200, 2))
    estimate = th.solve(
        th.information(
            robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(robot, q, dq, ddq))
        ),
        th.LeastSquares(),
    )
    found = robot.with_parameters(estimate)
    assert np.linalg.norm(found.theta - robot.theta) > 0.1 * np.linalg.norm(robot.theta)
    other = rng.uniform(-3.0, 3.0, (3, 100, 2))
    np.testing.assert_allclose(
        th.inverse_dynamics(found, *other), th.inverse_dynamics(robot, *other), atol=1e-9
    )


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


def test_the_torque_steps_of_the_arm_as_anyone_could_measure_them(arms: Result) -> None:
    """Commands of the run beside those of a plain controller of each model: what is commanded
    beyond it changes by no more than the slew bound.
    """
    run, told = arms.run, arms.summary
    wanted = arm.motion(run.robot).at(run.t)
    largest, beyond, plain, nominal = 0.0, np.zeros(run.robot.nv), None, None
    starts = dict(run.models)
    for k in range(len(run.t)):
        sample = (run.t[k], run.q[k], run.dq[k], tuple(each[k] for each in wanted))
        if plain is not None:
            now = run.u[k] - plain(*sample)
            largest, beyond = max(largest, float(np.max(np.abs(now - beyond)))), now
        if k in starts:
            plain = th.ComputedTorque(starts[k], kp=arm.KP, kd=arm.KD)
            nominal = nominal or plain
            plain.keep_feedback(nominal)
            beyond = run.u[k] - plain(*sample)
    assert len(run.models) == 1 + told["switches"]
    assert 0.5 * told["slew_bound"] < largest <= told["slew_bound"] * (1.0 + 1e-6)
    assert told["max_torque_step"] == pytest.approx(largest, rel=1e-6)


def test_the_reason_is_that_of_the_moment_the_gate_opened(arms: Result) -> None:
    told, run = arms.summary["gate"], arms.run
    opening = next(update for update in run.updates if update.gate.open)
    assert (told["opened_at"], told["reason"]) == (opening.t, opening.gate.reason)
    assert (told["closings"], told["open_at_end"]) == ([], True)


def test_a_gate_that_closes_later_is_said_to_have_closed() -> None:
    robot = th.load(robots.path("double_pendulum"))
    states = [
        (False, "too little"),
        (True, "R² 0.99"),
        (True, "R² 0.97"),
        (False, "a payload"),
        (True, "R² 0.98"),
        (False, "a dead channel"),
    ]
    identifier = SimpleNamespace(updates=0, estimate=None, gate=None)
    recorder, zero = Recorder(robot, len(states), 10.0, identifier), np.zeros(2)
    told = []
    for k, (is_open, reason) in enumerate(states):
        identifier.gate = SimpleNamespace(
            open=is_open, reason=reason, r2_fit=None, r2=None, r2_per_joint=None, fill=0, rank=None
        )
        identifier.updates += 1
        recorder.add(Cycle(k, 0.1 * k, zero, zero, zero, zero, (zero, zero, zero), zero, is_open))
        told.append(recorder.result().gate_summary())
    assert gate_sentence(told[0]) == "The gate stayed closed: too little."
    assert gate_sentence(told[2]) == "The gate opened at 0.1 s: R² 0.99."
    assert (
        gate_sentence(told[3])
        == "The gate opened at 0.1 s: R² 0.99. It closed at 0.3 s: a payload."
    )
    assert (
        gate_sentence(told[4])
        == "The gate opened at 0.1 s: R² 0.99. It closed at 0.3 s: a payload, and opened again."
    )
    assert gate_sentence(told[5]).endswith("It closed 2 times, last at 0.5 s: a dead channel.")
    assert [closing["reason"] for closing in told[5]["closings"]] == ["a payload", "a dead channel"]


def test_the_bias_of_the_arm_moves_to_zero(arms: Result) -> None:
    """The paper's claim is the bias. That the peak-to-peak stays holds for a robot without
    friction; here it is compensated too, and shrinks.
    """
    before, after = (np.abs(arms.summary[key]) for key in ("bias_before", "bias_after"))
    assert before.max() > 0.01
    assert after.max() <= 1.5e-3, "to zero: a milliradian, of 82 before"
    assert np.all(after <= np.maximum(BIAS_LEFT * before, SMALL * (before < SMALL / BIAS_LEFT)))
    assert np.all(
        np.array(arms.summary["peak_to_peak_after"])
        <= 1.05 * np.array(arms.summary["peak_to_peak_before"])
    )


def test_a_study_is_the_same_again() -> None:
    """Deterministic by seed; and another seed is another leg."""
    short = [leg.run("own", seed=seed, duration=2.0).summary for seed in (3, 3, 4)]
    for told in short:
        told["cycle_us"] = None
    assert short[0] == short[1]
    assert short[0]["r2"] != short[2]["r2"]


def written(folder: Path, printed: str) -> dict:
    """summary.json, which is what was printed, and follows its schema; the page and the signals are
    there.
    """
    jsonschema = pytest.importorskip(
        "jsonschema", reason="jsonschema checks the answers (pip install jsonschema)"
    )
    told = json.loads(printed)
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.html",
        "run.parquet",
        "summary.json",
    ]
    assert json.loads((folder / "summary.json").read_text(encoding="utf-8")) == told
    schema = json.loads(
        (Path(th.__file__).parent / "schemas" / "study.json").read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator(schema).validate(told)
    return told


def test_the_verb_writes_the_page_the_signals_and_the_summary(
    pendulum: dict[str, Any], tmp_path: Path
) -> None:
    """That it does is asked where the pendulum is run; here, what it refuses."""
    assert pendulum["study"] == "double-pendulum"
    assert run_verb("study", "cartwheel", "--out", tmp_path / "out")[0] == 2
    (tmp_path / "file").write_text("")
    assert run_verb("study", "leg", "--out", tmp_path / "file")[0] == 6


@pytest.mark.parametrize("name", ["arm", "leg"])
def test_the_verb_on_the_arm_and_the_leg(
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything but the simulation, which was made once above."""
    result: Result = request.getfixturevalue(f"{name}s")
    engine, asked = result.summary["plant"], []

    def run(engine: str, *, seed: int, progress: Callable) -> Result:
        asked.append((engine, seed))
        return result

    monkeypatch.setattr({"arm": arm, "leg": leg}[name], "run", run)
    code, printed = run_verb("study", name, "--out", tmp_path / name, "--plant", engine, "--json")
    assert code == 0
    told = written(tmp_path / name, printed)
    assert asked == [(engine, 0)]
    assert told["study"] == name
    page = (tmp_path / name / "report.html").read_text(encoding="utf-8")
    for section in (
        "Result",
        "Joint trajectories",
        "Measured against computed torque",
        "1 − R²",
        *(("Joint errors", "Tiles of the motion") if name == "arm" else ("Torque tracking",)),
    ):
        assert section in page
    if name == "arm":
        assert gate_sentence(told["gate"]) in page
    code, printed = run_verb("study", name, "--out", tmp_path / name, "--plant", engine)
    assert code == 0
    assert "report.html" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arm", "leg"])
def test_the_verb_runs_the_whole_study(name: str, tmp_path: Path) -> None:
    code, printed = run_verb(
        "study", name, "--out", tmp_path / "out", "--plant", "own", "--seed", 1, "--json"
    )
    assert code == 0
    told = written(tmp_path / "out", printed)
    assert (told["study"], told["seed"]) == (name, 1)
    assert min(told["r2"]) >= 0.95


@pytest.mark.slow
def test_valkyrie_goes_through_the_same_loop_with_44_joints(tmp_path: Path) -> None:
    pytest.importorskip("mujoco", reason="MuJoCo simulates this one (pip install mujoco)")
    code, printed = run_verb(
        "study", "valkyrie", "--out", tmp_path / "out", "--plant", "mujoco", "--json"
    )
    assert code == 0
    told = written(tmp_path / "out", printed)
    golden_numbers.check("studies/valkyrie", golden_numbers.of_study(told))
    robot = th.load(robots.path("valkyrie"))
    assert len(told["joints"]) == robot.nv == 44
    assert told["base_parameters"] == len(
        th.base_parameters(robot.with_drive(viscous=True, coulomb=True))
    )
    assert told["rank"] >= 0.5 * told["base_parameters"]
    assert told["gate"]["opened_at"] >= 16.0, "50 samples at 3 Hz"
    assert told["gate"]["open_at_end"]
    assert 0.0 < told["max_torque_step"] <= told["slew_bound"] * (1.0 + 1e-9)
    assert sum(r2 is not None and r2 >= 0.95 for r2 in told["r2"]) >= 40, (
        "the others are fingers, whose errors are below what their motors can do"
    )
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert gate_sentence(told["gate"]) in page
    assert "44 joints, 378 base parameters" in page


# -- control with what was identified --------------------------------------------------------------


def wave(robot: th.Robot, seed: int, duration: float) -> Sinusoids:
    """Sinusoids inside the limits, each seed another motion."""
    rng = np.random.default_rng(seed)
    limits = np.array(
        [
            [max(node.limits.lower, -2.0), min(node.limits.upper, 2.0)]
            for node in robot.tree.independent
        ]
    )
    reach = 0.3 * np.diff(limits, axis=1)
    frequency = np.column_stack(
        [rng.permutation(np.linspace(0.2, 0.8, robot.nv)) for _ in range(2)]
    )
    return Sinusoids(
        robot.joint_names,
        duration,
        limits.mean(axis=1),
        reach * [0.7, 0.3],
        frequency,
        rng.uniform(0, 6, (robot.nv, 2)),
        ramp=1.0,
    )


ROBOTS: dict[str, Callable[[], th.Robot]] = {
    "panda": lambda: lock(th.load(example_robot("panda")), ["panda_finger_joint1"]),
    "arm": lambda: th.load(robots.path("valkyrie_arm")),
    "leg": lambda: th.load(robots.path("valkyrie_leg")),
}


@pytest.mark.parametrize("name", ROBOTS)
def test_an_identified_model_tracks_five_times_better_than_a_wrong_one(name: str) -> None:
    """In MuJoCo, with friction and noise: the same controller, on a model 20 % too heavy and on the
    identified one, on a motion it has not seen.
    """
    pytest.importorskip("mujoco", reason="MuJoCo simulates this one (pip install mujoco)")
    nominal = ROBOTS[name]()
    truth = perturb(nominal, spread=0.05, seed=1)
    plant = MujocoPlant(truth, realism=th.Realism.typical(truth))
    model = plant.robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    recording = th.simulate(
        plant,
        wave(nominal, 1, 8.0),
        rate=500.0,
        # the wave asks for more than the file's speeds and torques
        controller=th.ComputedTorque(nominal, kp=900.0, kd=60.0, limits=False),
    )
    estimate = th.solve(th.information(model, th.prepare(recording.log, model, cutoff=15.0)))
    identified = model.with_parameters(estimate)
    wrong = nominal.with_parameters(1.2 * nominal.theta)
    errors = []
    for believed in (wrong, identified):
        found = th.simulate(
            plant,
            wave(nominal, 2, 4.0),
            rate=500.0,
            controller=th.ComputedTorque(believed, kp=400.0, kd=40.0, limits=False),
            seed=5,
        )
        errors.append(np.sqrt(np.mean((found.q - found.wanted[0]) ** 2)))
    assert errors[1] <= 0.2 * errors[0]


def test_a_page_has_one_score_per_joint_and_says_its_rows(legs: Result) -> None:
    """Titles of the scatters show the table's numbers, and the points in them have that R²."""
    sections = {section.anchor: section for section in legs.sections}
    table = next(block for block in sections["result"].blocks if isinstance(block, Table))
    (scatter,) = sections["scatter"].blocks
    assert isinstance(scatter, Figure)
    assert "R² over the rows of the run that were fitted, without standstill" in scatter.caption
    for (name, score), panel in zip(table.rows, scatter.panels, strict=True):
        title = panel.figure["layout"]["annotations"][0]["text"]
        assert title == f"{name}: R² {format_cell(score, table.columns[1])}"
        points = next(trace for trace in panel.figure["data"] if trace["mode"] == "markers")
        measured, predicted = np.array(points["x"]), np.array(points["y"])
        left = np.sum((measured - predicted) ** 2) / np.sum(measured**2)
        # 500 rows at random; with those at standstill the yaw would be off by a factor of ten
        assert 0.4 < left / (1.0 - score) < 2.5


def test_a_study_is_judged_by_its_scores_and_its_gate() -> None:
    gate = {"opened_at": 17.0, "reason": "full", "closings": [], "open_at_end": True}
    facts = {"study": "arm", "seed": 0, "joints": ["a", "b"], "r2": [0.99, 0.98], "gate": gate}
    closed = {"t": 20.0, "reason": "payload"}
    changes: dict[str, dict[str, Any]] = {
        "good": {},
        "usable": {"gate": gate | {"open_at_end": False, "closings": [closed]}},
        "not usable": {"gate": gate | {"opened_at": None, "reason": "rank 3 of 36"}},
    }
    for level, changed in changes.items():
        verdict = study_verdict(facts | changed)
        assert verdict.level == level
        assert bool(verdict.reasons) == (level != "good")
    assert study_verdict(facts | {"r2": [0.99, 0.9]}).level == "usable"
    assert study_verdict(facts | {"r2": [0.99, 0.5], "gate": None}).level == "not usable"
    assert study_verdict(facts | {"r2": None}).level == "usable"


def test_valkyrie_stands_on_its_feet_and_is_identified_online(tmp_path: Path) -> None:
    """Five seconds of it, in which no gate can open: what it measures, and its page."""
    pytest.importorskip("mujoco", reason="MuJoCo simulates this one (pip install mujoco)")
    from thetahat.cli.study import write
    from thetahat.studies import valkyrie_floating

    result = valkyrie_floating.run("mujoco", seed=3, seconds=2.5)
    facts = result.summary
    assert facts["gate"]["opened_at"] is None
    assert facts["before"]["torque"] > 10.0 > facts["before"]["base_mm"][2]
    assert facts["mass"]["identified"] == facts["mass"]["nominal"] != facts["mass"]["true"]
    assert len(facts["joints"]) == 44
    assert "--floating" in facts["verdict"]["next_steps"][0]
    write(result, tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "tilt of the base" in page


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_identified_robot_sways_better_on_its_feet(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("mujoco", reason="MuJoCo simulates this one (pip install mujoco)")
    given = ("--out", tmp_path / "out", "--seed", seed, "--json")
    code, printed = run_verb("study", "valkyrie", "--floating", *given)
    assert code == 0
    told = written(tmp_path / "out", printed)
    assert told["gate"]["open_at_end"]
    assert not told["gate"]["closings"]
    assert told["mass"]["identified"] == pytest.approx(told["mass"]["true"], rel=5e-3)
    assert np.linalg.norm(told["com_error_mm"]["identified"][:2]) < 5.0
    assert told["after"]["feedback_torque"] < 0.7 * told["before"]["feedback_torque"]
    assert told["after"]["tilt_mrad"][1] < 0.7 * told["before"]["tilt_mrad"][1]


def test_only_valkyrie_has_feet(tmp_path: Path) -> None:
    code, _ = run_verb("study", "arm", "--floating", "--out", tmp_path / "out")
    assert code == 2
    assert not (tmp_path / "out").exists()
