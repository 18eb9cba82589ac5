"""Signals are checked before they are believed: faults planted into simulated logs of many robots
are named, and clean logs raise no alarm.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_paths import needs_shared, shared_file
from planted_logs import (
    Recorder,
    Recording,
    clean_recording,
    random_recorder,
    random_truth,
    record,
    robot_file,
)

import thetahat as th
from thetahat import robots
from thetahat.data.finding_kinds import EFFECTS, KEEP, REASON_OF
from thetahat.data.log import Log, read_log
from thetahat.data.types import Finding

FULL = Recorder(rate=200.0, seconds=12.0, kinds=("q", "dq", "ddq", "tau"), encoder=2e-4)
RNG = np.random.default_rng(0)


def alarms(log: Log) -> list[Finding]:
    return [finding for finding in log.findings if finding.effect != "note"]


def noise_like(factor: float) -> object:
    """Return a fault: noise of so many times the channel's standard deviation in its place."""

    def change(x: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(len(x))
        return factor * x.std(axis=0) * rng.normal(size=x.shape)

    return change


@pytest.fixture(scope="module")
def arm() -> Recording:
    return record(th.load(robots.path("arm7")), FULL, seed=1)


# -- derivatives -----------------------------------------------------------------------------------


def test_noise_as_acceleration_is_not_used(arm: Recording) -> None:
    log = arm.planted("ddq", slice(None), noise_like(12.0)).log()
    found = alarms(log)
    assert [(f.kind, f.joint) for f in found] == [("inconsistent-ddq", None)], "all in one"
    assert not log.has_ddq
    assert log.has_dq
    assert found[0].effect == "corrected"
    assert "--keep ddq" in found[0].message
    assert all(f"{joint} " in found[0].message for joint in arm.robot.joint_names)
    rms = [float(x) for x in found[0].message.partition("joint1 ")[2].split(" ")[0:3:2]]
    true = arm.columns["ddq"][:, 0].std()
    assert rms[0] > 3.0 * true, "the column's own RMS behind the low-pass"
    assert rms[1] == pytest.approx(true, rel=0.1)


def test_what_replaces_a_velocity_is_the_derivative_of_its_position(arm: Recording) -> None:
    clean = replace(arm, columns={k: v for k, v in arm.columns.items() if k != "ddq"})
    log = clean.planted("dq", 2, noise_like(1.0)).log()
    assert [(f.kind, f.joint) for f in alarms(log)] == [("inconsistent-dq", "joint3")]
    assert log.differentiated == (2,)
    settings = th.prepare(clean.log(), arm.robot, cutoff=8.0)
    bad = th.prepare(log, arm.robot, cutoff=8.0)
    positions = {k: v for k, v in clean.columns.items() if k != "dq"}
    alone = th.prepare(replace(clean, columns=positions).log(), arm.robot, cutoff=8.0)
    np.testing.assert_allclose(bad.dq[:, 2], alone.dq[:, 2], rtol=0, atol=1e-12)
    np.testing.assert_allclose(bad.ddq[:, 2], alone.ddq[:, 2], rtol=0, atol=1e-12)
    others = [0, 1, 3, 4, 5, 6]
    np.testing.assert_allclose(bad.dq[:, others], settings.dq[:, others], rtol=0, atol=1e-12)
    kept = clean.planted("dq", 2, noise_like(1.0)).log(keep=("dq",))
    assert kept.differentiated == ()
    assert [(f.kind, f.effect) for f in alarms(kept)] == [("inconsistent-dq", "suspect")]


def test_a_velocity_that_is_dead_is_not_used_and_masks_nothing(arm: Recording) -> None:
    log = arm.planted("dq", 1, 0.0).log()
    assert ("inconsistent-dq", "joint2") in [(f.kind, f.joint) for f in log.findings]
    assert log.masks == ()


def test_a_late_velocity_is_named_and_used() -> None:
    robot = th.load(robots.path("arm4"))
    fast = replace(FULL, speed=4.0, kinds=("q", "dq", "tau"))
    rows = 4
    recording = record(robot, fast, seed=2)
    late = recording.planted("dq", slice(None), lambda x: np.vstack([x[:rows], x[:-rows]]))
    log = late.log()
    found = [f for f in log.findings if f.kind == "delayed-dq"]
    assert found
    assert not alarms(log)
    lags = [float(lag) for f in found for lag in re.findall(r"lags? (\d+)", f.message)]
    assert lags == pytest.approx([1e3 * rows / fast.rate] * len(found), abs=2.0)
    assert log.has_dq
    assert log.differentiated == ()


@pytest.mark.parametrize(
    "recorder",
    [
        Recorder(kinds=("q", "dq", "ddq", "tau"), amplitude=0.02, encoder=1e-3),
        Recorder(kinds=("q", "dq", "ddq", "tau"), amplitude=0.002, encoder=1e-4),
        Recorder(rate=50.0, kinds=("q", "dq", "tau"), encoder=5e-3, jitter=0.5),
        Recorder(kinds=("q", "dq", "tau"), velocity_filter=0.015, speed=2.0),
    ],
    ids=["hardly moves", "does not move", "coarse encoder", "filtered by the drive"],
)
def test_a_poor_but_honest_channel_is_used(recorder: Recorder) -> None:
    for name in ("arm7", "valkyrie_leg"):
        assert not alarms(record(th.load(robots.path(name)), recorder, seed=4).log())


def test_how_a_log_is_split_into_files_does_not_decide(arm: Recording, tmp_path: Path) -> None:
    from thetahat.data.formats.write_log import write_table
    from thetahat.data.memory_log import column_names

    bad = arm.planted("ddq", slice(None), noise_like(12.0))
    names = column_names(arm.robot, ("q", "dq", "ddq", "tau"))
    values = [bad.columns["t"], *(c for k in ("q", "dq", "ddq", "tau") for c in bad.columns[k].T)]
    files = []
    for k, rows in enumerate((slice(0, 900), slice(900, None))):
        parts = [column[rows] for column in values]
        files.append(write_table(tmp_path / f"{k}.parquet", names, parts))
    log = read_log(files, arm.robot)
    assert not log.has_ddq
    assert [f.kind for f in alarms(log)] == ["inconsistent-ddq"]


# -- scale of torques ------------------------------------------------------------------------------


def test_torques_in_millinewton_metres_are_named(arm: Recording) -> None:
    log = arm.planted("tau", slice(None), 1000.0).log()
    found = alarms(log)
    assert [(f.kind, f.joint, f.effect) for f in found] == [("torque-scale", None, "wrong")]
    assert "--units tau=mNm" in found[0].message
    factor = float(found[0].message.split(" are ")[1].split(" ")[0])
    assert 500.0 < factor < 2000.0
    assert log.masks == ()


def test_motor_side_torques_and_one_gear_ratio_are_named(arm: Recording) -> None:
    (found,) = alarms(arm.planted("tau", slice(None), 1 / 120.0).log())
    assert (found.kind, found.joint) == ("torque-scale", None)
    assert "gear ratio" in found.message
    for factor in (101.0, 1 / 101.0):
        (found,) = alarms(arm.planted("tau", 3, factor).log())
        assert (found.kind, found.joint) == ("torque-scale", "joint4")
        take = float(found.message.split("by about ")[1].split(",")[0])
        assert take == pytest.approx(1.0 / factor, rel=0.5)


def test_a_torque_channel_of_noise_is_dead(arm: Recording) -> None:
    log = arm.planted("tau", 3, noise_like(1e-3)).log()
    assert [(f.kind, f.joint) for f in alarms(log)] == [("dead-torque", "joint4")]
    assert [(mask.joint, mask.first_row, mask.stop_row) for mask in log.masks] == [(3, 0, log.rows)]


# -- signs, and what is kept -----------------------------------------------------------------------


def test_all_torques_flipped_are_refused_unless_kept(arm: Recording) -> None:
    plain = replace(arm, columns={k: v for k, v in arm.columns.items() if k != "ddq"})
    flipped = plain.planted("tau", slice(None), -1.0)
    settings = th.IdentifySettings(tune=False, report=False)
    with pytest.raises(th.ThetahatError, match="sign"):
        th.identify(arm.robot, flipped.log(), settings=settings)
    (found,) = alarms(flipped.log(keep="sign"))
    assert (found.kind, found.effect) == ("signs", "suspect")
    assert flipped.log(keep="sign").masks == ()


FAULTS = {
    "saturation": ("tau", 1, lambda x: np.minimum(x, np.percentile(x, 80))),
    "dead-torque": ("tau", 2, lambda x: np.r_[x[:900], np.full(700, 0.7), x[1600:]]),
    "stuck": ("q", 1, lambda x: np.r_[x[:900], np.full(400, 0.2), x[1300:]]),
    "sign": ("tau", slice(None), -1.0),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_every_mask_can_be_lifted_and_says_so(arm: Recording, reason: str) -> None:
    plain = replace(arm, columns={k: v for k, v in arm.columns.items() if k != "ddq"})
    faulty = plain.planted(*FAULTS[reason])
    log = faulty.log()
    own = [f for f in log.findings if REASON_OF.get(f.kind) == reason]
    assert own
    assert all(f"masked (--keep {reason} keeps them)" in f.message for f in own)
    assert all(f.effect == "removed" for f in own)
    assert log.masks
    kept = faulty.log(keep=[reason])
    assert all(m.reason.replace(" ", "-") not in KEEP[reason] for m in kept.masks)
    own = [f for f in kept.findings if REASON_OF.get(f.kind) == reason]
    assert all(f"kept (--keep {reason})" in f.message and f.effect == "suspect" for f in own)


def test_units_can_be_kept_and_unknown_reasons_are_refused(arm: Recording) -> None:
    degrees = arm.planted("q", slice(None), 180.0 / np.pi)
    with pytest.raises(th.ThetahatError, match="--keep units"):
        degrees.log()
    log = degrees.log(keep="units")
    assert "units" in [f.kind for f in log.findings]
    with pytest.raises(th.ThetahatError, match="reasons: saturation"):
        arm.log(keep="velocity")
    with pytest.raises(th.ThetahatError, match="reasons: saturation"):
        th.IdentifySettings(keep=("velocity",))
    assert th.IdentifySettings(keep="sign,dq").keep == ("sign", "dq")


def test_every_kind_of_finding_has_an_effect() -> None:
    source = Path(th.__file__).parent
    kinds = set()
    for file in (*source.glob("data/*.py"), *source.glob("identification/*.py")):
        text = file.read_text(encoding="utf-8")
        for part in text.split("Finding(")[1:]:
            head = part.lstrip().split(",")[0].strip()
            if head.startswith('"'):
                kinds.add(head.strip('"'))
    assert len(kinds) > 8
    assert kinds <= set(EFFECTS)


# -- many robots -----------------------------------------------------------------------------------

PLANTED = {
    "noise as ddq": ("ddq", "all", noise_like(10.0), "inconsistent-ddq"),
    "dq of the motor": ("dq", "all", 100.0, "inconsistent-dq"),
    "mN·m": ("tau", "all", 1000.0, "torque-scale"),
    "one sign": ("tau", "one", -1.0, "sign"),
    "all signs": ("tau", "all", -1.0, "signs"),
    "one gear ratio": ("tau", "one", 1 / 100.0, "torque-scale"),
    "dead": ("tau", "one", lambda x: np.full_like(x, 0.3), "dead-torque"),
}
NAMED = {"all signs": 0.9, "one sign": 0.9, "one gear ratio": 0.8}  # of the robots, at least


def planted_share(fault: str, seeds: range) -> tuple[float, list[Finding]]:
    """Return the share of robots on which a fault is named, and findings beside it."""
    kind, which, change, expected = PLANTED[fault]
    named, beside = 0, []
    for seed in seeds:
        rng = np.random.default_rng([seed, 17])
        recorder, truth = random_recorder(rng), random_truth(rng)
        recorder = replace(recorder, kinds=FULL.kinds, amplitude=max(recorder.amplitude, 0.5))
        recording = record(robot_file(seed), recorder, truth, seed=seed)
        if kind != "ddq":
            columns = {k: v for k, v in recording.columns.items() if k != "ddq"}
            recording = replace(recording, columns=columns)
        dof = slice(None) if which == "all" else seed % max(recording.robot.nv - 1, 1)
        found = alarms(recording.planted(kind, dof, change).log())
        # without friction a robot with all signs flipped is one that hangs from the ceiling
        own = [f for f in found if f.kind == expected or "opposite sign" in f.message]
        own += [f for f in found if (expected, f.kind) == ("signs", "sign")]  # joint by joint
        named += bool(own)
        beside += [f for f in found if f not in own]
    return named / len(seeds), beside


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_named_on_some_robots(fault: str) -> None:
    share, beside = planted_share(fault, range(9))
    assert share >= NAMED.get(fault, 1.0) - 0.12 * (fault in NAMED)
    assert len(beside) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_named_on_many_robots(fault: str) -> None:
    share, beside = planted_share(fault, range(100, 190))
    assert share >= NAMED.get(fault, 0.97)
    assert len(beside) <= 9


@pytest.mark.parametrize("seed", range(15))
def test_clean_logs_raise_no_alarm(seed: int) -> None:
    assert not alarms(clean_recording(seed).log())


@pytest.mark.slow
def test_hundreds_of_clean_logs_raise_no_alarm() -> None:
    found = {seed: alarms(clean_recording(seed).log()) for seed in range(1000, 1300)}
    assert {seed: [f.message for f in each] for seed, each in found.items() if each} == {}


@pytest.mark.slow
def test_identifying_from_clean_logs_raises_no_alarm() -> None:
    settings = th.IdentifySettings(tune=False, report=False)
    wrong: dict[int, list[str]] = {}
    judged = 0
    for seed in range(2000, 2100):
        recording = clean_recording(seed)
        rows = len(recording.columns["t"])
        run = np.repeat(["a", "b", "c"], [rows // 3, rows // 3, rows - 2 * (rows // 3)])
        try:
            result = th.identify(
                recording.robot, replace(recording, run=run).log(), settings=settings
            )
        except th.ThetahatError:  # a motion that identifies nothing is no alarm
            continue
        judged += 1
        found = [f.message for f in result.audit.findings if f.kind in ("contact", "payload")]
        if found:
            wrong[seed] = found
    assert judged > 80
    assert wrong == {}


# -- real logs -------------------------------------------------------------------------------------

REAL = [
    ("panda/panda_exciting_traj1.csv", "panda/panda_nomesh_from_example_robot_data.urdf"),
    ("ur10/panda_exciting.csv", "ur10/panda_nomesh.urdf"),
    ("ur10/ur10_exciting.csv", "ur10/ur10_nomesh.urdf"),
    ("kr300/kr300.csv", "kr300/kr300_from_dh.urdf"),
    ("tx40/tx40.csv", "tx40/tx40_mdh_modified.urdf"),
    ("double_pendulum/double_pendulum_C1.csv", "double_pendulum/double_pendulum_C1_from_yml.urdf"),
    ("double_pendulum/double_pendulum_C0.csv", "double_pendulum/double_pendulum_C0_from_yml.urdf"),
    ("double_pendulum/double_pendulum_A0.csv", "double_pendulum/double_pendulum_A0_from_yml.urdf"),
]


@needs_shared
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("log", "urdf"), REAL, ids=[entry[0] for entry in REAL])
def test_real_logs_raise_no_alarm(log: str, urdf: str) -> None:
    robot = th.load(shared_file("logs", urdf))
    assert not alarms(read_log(shared_file("logs", log), robot))


@needs_shared
def test_a_servo_whose_velocity_is_late_is_named() -> None:
    robot = th.load(shared_file("logs", "actuators/xl330_pendulum.urdf"))
    log = read_log(shared_file("logs", "actuators/xl330.csv"), robot)
    assert [f.kind for f in log.findings if f.kind.startswith("delayed")] == ["delayed-dq"]
