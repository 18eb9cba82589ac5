"""Log → Samples: what its settings do, and the cut-off it chooses by itself."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from data_paths import shared_file
from prepare_cases import BATCH, NAMES, difference, even, log_of, measured, motion, uneven

import thetahat as th
from thetahat import robots
from thetahat.data import filters
from thetahat.data.cutoff import choose_cutoff, scan_spectra
from thetahat.data.prepare import Settings, choose, prepare, prepare_batches
from thetahat.data.samples import OUTLIER, REASONS, concatenate
from thetahat.errors import MalformedInput, NotIdentifiable, UsageError


@pytest.fixture(scope="module")
def arm() -> th.Robot:
    return th.load(
        robots.path("arm4")
    ).without_drive()  # no steps of friction: its torques are as smooth as its motion


# -- settings --------------------------------------------------------------------------------------


def test_thinned_rows_are_rows_of_the_whole(arm: th.Robot) -> None:
    log = log_of(arm, measured(motion(arm, uneven(5000))), measured(motion(arm, even(1003) + 20)))
    settings = choose(log, arm, cutoff=10.0)
    whole = prepare(log, arm, settings=settings)
    thin = prepare(log, arm, settings=dataclasses.replace(settings, decimate=7))
    kept = np.concatenate([np.arange(0, 5000, 7), 5000 + np.arange(0, 1003, 7)])
    for name in (*NAMES, "reason", "t", "run"):
        np.testing.assert_array_equal(getattr(thin, name), getattr(whole, name)[kept])
    assert thin.period == pytest.approx(7 * whole.period)
    parts = concatenate(
        prepare_batches(log, arm, settings=dataclasses.replace(settings, decimate=7), rows=100),
        same_log=True,
    )
    assert difference(thin, parts) < BATCH
    automatic = prepare(log, arm, settings=dataclasses.replace(settings, decimate="auto"))
    assert len(automatic) == pytest.approx(
        len(whole) / 10, abs=2
    )  # 500 Hz, five rows per cycle of 10 Hz


def test_torque_may_have_a_low_pass_of_its_own(arm: th.Robot) -> None:
    log = log_of(arm, measured(motion(arm, even(4000))))
    one, two = (prepare(log, arm, cutoff=20.0, torque_cutoff=f) for f in (None, 2.0))
    np.testing.assert_allclose(one.ddq, two.ddq, rtol=0, atol=1e-12 * np.max(np.abs(one.ddq)))
    want = filters.smooth(log.whole[0].tau, 2e-3, filters.Butterworth(2.0))
    assert np.max(np.abs(two.tau - want)[1000:-1000]) < 1e-7 * np.max(np.abs(want))
    assert np.max(np.abs(one.tau - two.tau)) > 0.1


def test_torques_scored_behind_a_lower_low_pass_are_predicted_from_slower_motion(
    arm: th.Robot,
) -> None:
    """An encoder that shakes at 20 Hz shakes the predicted torques; where those are scored up to 5
    Hz, nothing of it may be left.
    """
    run = motion(arm, even(8000), top=1.0)
    shaken = run | {"q": run["q"] + 1e-3 * np.sin(2 * np.pi * 20.0 * run["t"])[:, None]}
    settings = choose(log_of(arm, measured(run)), arm, cutoff=40.0)
    clean, scored, plain = (
        prepare(log_of(arm, measured(each)), arm, settings=setting)
        for each, setting in (
            (run, settings.scored(5.0)),
            (shaken, settings.scored(5.0)),
            (shaken, dataclasses.replace(settings, torque_cutoff=5.0)),
        )
    )
    usable = (clean.reason == 0) & (scored.reason == 0) & (plain.reason == 0)
    left, before = (np.max(np.abs(each.ddq - clean.ddq)[usable]) for each in (scored, plain))
    assert left < 0.01 * before
    assert before > 5.0
    assert (
        settings.scored(60.0).cutoff,
        settings.scored(None).cutoff,
        settings.scored(5.0).torque_cutoff,
    ) == (40.0, 40.0, 5.0)


def test_provenance_is_plain_and_complete(arm: th.Robot) -> None:
    samples = prepare(log_of(arm, measured(motion(arm, even(3000)))), arm)
    known = json.loads(json.dumps(samples.provenance))
    assert known["sources"] == [{"path": "run.csv", "sha256": "00ff", "bytes": 17}]
    again = Settings(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in known["settings"].items()
        }
    )
    assert again.cutoff == samples.cutoff
    assert "Hz" in again.reasoning
    np.testing.assert_array_equal(
        prepare(log_of(arm, measured(motion(arm, even(3000)))), arm, settings=again).tau,
        samples.tau,
    )


def test_what_cannot_be_done_is_said(arm: th.Robot) -> None:
    run = measured(motion(arm, even(3000)))
    log = log_of(arm, run)
    settings = choose(log, arm, cutoff=5.0)
    other = th.load(robots.path("double_pendulum"))
    bad_row = {**run, "tau": run["tau"].copy()}
    bad_row["tau"][17, 2] = np.nan
    for error, word, call in (
        (UsageError, "Hz", lambda: prepare(log, arm, cutoff=300.0)),
        (UsageError, "cutoff", lambda: prepare(log, arm, cutoff=-1.0)),
        (UsageError, "cutoff", lambda: prepare(log, arm, cutoff=np.nan)),
        (
            UsageError,
            "butterworth, savgol, ema",
            lambda: prepare(log, arm, cutoff=5.0, derivative="spline"),
        ),
        (UsageError, "butterworth, savgol, ema", lambda: prepare(log, arm, derivative="spline")),
        (UsageError, "decimate", lambda: prepare(log, arm, cutoff=5.0, decimate=0)),
        (UsageError, "min_speed", lambda: prepare(log, arm, min_speed=[1.0, 2.0])),
        (UsageError, "min_speed", lambda: prepare(log, arm, min_speed=-1.0)),
        (UsageError, "span", lambda: prepare(log, arm, span=(10, 4000))),
        (UsageError, "settings", lambda: prepare(log, arm, settings=settings, cutoff=3.0)),
        (UsageError, "rows", lambda: list(prepare_batches(log, arm, rows=0))),
        (UsageError, "joints", lambda: prepare(log, other)),
        (
            MalformedInput,
            "torque",
            lambda: prepare(log_of(arm, {name: run[name] for name in ("t", "q")}), arm),
        ),
        (MalformedInput, "row 17", lambda: prepare(log_of(arm, bad_row), arm)),
        (
            NotIdentifiable,
            "rows",
            lambda: prepare(log_of(arm, {name: value[:6] for name, value in run.items()}), arm),
        ),
        (
            NotIdentifiable,
            "rows",
            lambda: choose(log_of(arm, {name: value[:20] for name, value in run.items()}), arm),
        ),
    ):
        with pytest.raises(error, match=word) as raised:
            call()
        assert "\n" not in str(raised.value)


# -- the automatic cut-off -------------------------------------------------------------------------


def test_the_cutoff_lets_the_motion_pass_and_follows_it(arm: th.Robot) -> None:
    found = []
    for top in (0.5, 2.0, 8.0):
        run = motion(arm, even(20_000), top=top)
        found.append(choose(log_of(arm, measured(run, "dq")), arm).cutoff)
        assert 3 * top <= found[-1] <= 20 * top
    assert found == sorted(found)


def test_noise_lowers_the_cutoff_but_not_below_the_motion(arm: th.Robot) -> None:
    run = motion(arm, even(20_000), top=2.0)
    rng = np.random.default_rng(0)
    found = []
    for level in (0.0, 0.1, 1.0, 5.0):
        noisy = {**measured(run), "dq": run["dq"] + level * rng.normal(size=run["dq"].shape)}
        found.append(choose(log_of(arm, noisy), arm).cutoff)
    assert found == sorted(found, reverse=True)
    assert found[0] > 2 * found[2]
    assert found[-1] > 1.2 * 2.0


REAL = {  # log, robot, cut-off that a careful person used for the published baseline [Hz]
    "panda": (
        "panda/panda_exciting_traj1.csv",
        "panda/panda_nomesh_from_example_robot_data.urdf",
        10.0,
    ),
    "tx40": ("tx40/tx40.csv", "tx40/tx40_mdh_modified.urdf", 50.0),
    "kr300": ("kr300/kr300.csv", "kr300/kr300_from_dh.urdf", 10.0),
    "ur10": ("ur10/ur10_exciting.csv", "ur10/ur10_nomesh.urdf", 5.0),
    "panda at 30 Hz": ("ur10/panda_exciting.csv", "ur10/panda_nomesh.urdf", 4.0),
    "pendulum C1": (
        "double_pendulum/double_pendulum_C1.csv",
        "double_pendulum/double_pendulum_C1_from_yml.urdf",
        5.0,
    ),
    "pendulum C0": (
        "double_pendulum/double_pendulum_C0.csv",
        "double_pendulum/double_pendulum_C0_from_yml.urdf",
        5.0,
    ),
    "pendulum A0": (
        "double_pendulum/double_pendulum_A0.csv",
        "double_pendulum/double_pendulum_A0_from_yml.urdf",
        5.0,
    ),
}


@pytest.mark.parametrize("name", REAL)
@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
def test_real_robots_get_the_cutoff_a_careful_person_used(name: str) -> None:
    from thetahat.data.log import read_log

    log_file, robot_file, by_hand = REAL[name]
    robot = th.load(shared_file("logs", robot_file))
    log = read_log(shared_file("logs", log_file), robot)
    for span in (None, (0, log.rows // 2)):
        chosen = choose_cutoff(scan_spectra(log, robot, span=span), robot)
        assert 1 / 2.5 < chosen.value / by_hand < 2.5, chosen.reasoning
        assert f"{chosen.value:.3g} Hz" in chosen.reasoning
    samples = prepare(log, robot)
    for array in NAMES:
        assert np.all(np.isfinite(getattr(samples, array)))
    measured_joints = samples.reason[0] != REASONS.index("locked")
    assert samples.valid[:, measured_joints].mean() > 0.5
    assert (samples.reason == OUTLIER).mean() < 0.02
    joined = concatenate(prepare_batches(log, robot, rows=4000), same_log=True)
    assert difference(samples, joined) < BATCH
    np.testing.assert_array_equal(samples.reason, joined.reason)
