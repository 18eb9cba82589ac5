"""What `tune` chooses: planted friction, delays and couplings are found, and nothing outside the
rows to fit is read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from data_paths import shared_file
from simulated_log import motion

import thetahat as th
from thetahat import robots
from thetahat.data.memory_log import log_from_arrays
from thetahat.data.prepare import choose
from thetahat.identification.coupled_joints import coupled
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.residual_structure import Residuals
from thetahat.identification.tuning.cross_validation import (
    WEIGHT,
    CrossValidation,
    Predictions,
    Scores,
    Threshold,
    block_edges,
    thinned,
)
from thetahat.identification.tuning.model_selection import best_improving
from thetahat.identification.tuning.prior_strength import USUAL, WEIGHTS
from thetahat.identification.tuning.tune import Tuned, TuningOptions
from thetahat.kernels.direction import follow
from thetahat.model.friction_terms import FrictionDirection, quadratic
from thetahat.model.io.save import with_drive_file
from thetahat.model.robot import Robot

RATE = 500.0
COULOMB = np.array([4.0, 3.0, 2.0, 1.0])


def recorded(
    *,
    travel: float = 0.0,
    extra: float = 0.0,
    delay: float = 0.0,
    noise: float = 0.05,
    seconds: float = 24.0,
    shaft: float = 0.0,
):
    """A log of the shipped arm whose friction is made here, by its formula, from motion that is
    exact.
    """
    robot = th.load(robots.path("arm4")).without_drive()
    t, q, dq, ddq = motion(4, seconds=seconds, rate=RATE)
    late = motion(4, seconds=seconds + 0.1, rate=RATE)
    direction = np.sign(dq)
    if travel:
        direction = np.empty_like(dq)
        follow(dq.copy(), 1.0 / RATE, np.zeros(4), np.full(4, travel), np.zeros(4), direction)
    tau = (
        th.inverse_dynamics(robot, q, dq, ddq, rigid=True)
        + 0.5 * dq
        + COULOMB * direction
        + extra * dq * np.abs(dq)
    )
    turn = dq[:, 2] + dq[:, 3]
    tau[:, 2:] += shaft * (np.sign(turn) + 0.5 * turn)[:, None]
    tau += noise * np.random.default_rng(3).standard_normal(tau.shape)
    lag = round(delay * RATE)
    assert len(late[0]) > lag >= 0
    return robot, log_from_arrays(robot, t[lag:], q[lag:], tau=tau[: len(t) - lag], name="arm")


def with_terms(robot: Robot) -> Robot:
    return robot.with_drive(viscous=True, coulomb=True, offset=True)


@cache
def tuned_without_surprises() -> Tuned:
    """Friction that is viscous, Coulomb's and an offset, and nothing else."""
    robot, log = recorded()
    return th.tune(log, robot, TuningOptions(delay=False))


def test_hysteresis_is_found_where_there_is_some_and_not_where_there_is_none() -> None:
    robot, log = recorded(travel=0.005)
    found = th.tune(log, robot, TuningOptions(delay=False))
    assert np.all(np.abs(np.log(found.robot.drive.dry.travel / 0.005)) < np.log(2.5)), found
    found = tuned_without_surprises()
    assert np.all(found.robot.drive.dry.travel < 5e-4), found


def test_a_term_that_is_there_is_found_and_its_value_too() -> None:
    robot, log = recorded(extra=0.8)
    found = th.tune(log, robot, TuningOptions(delay=False))
    assert "quadratic" in found.robot.drive.identified, found
    samples = th.prepare(log, robot, settings=found.settings)
    estimate = th.solve(th.information(found.robot, samples), found.estimator())
    np.testing.assert_allclose(estimate.drive["quadratic"], 0.8, rtol=0.1)
    assert tuned_without_surprises().robot.drive.identified == (
        "viscous",
        "coulomb",
        "offset",
    )


@pytest.mark.parametrize("delay", [0.0, 0.006])
def test_a_delay_is_measured(delay: float) -> None:
    robot, log = recorded(delay=delay, noise=0.02)
    found = th.tune(log, robot, TuningOptions(cutoff=10.0, friction=None))
    assert found.settings.delay == pytest.approx(delay, abs=0.1 * delay)


def test_the_prior_is_strong_where_the_robot_is_right_and_weak_where_it_is_not() -> None:
    robot, log = recorded(noise=0.5)
    right = th.tune(log, robot, TuningOptions(friction=None, delay=False))
    wrong = robot.with_parameters(robot.theta * np.repeat([1.8, 0.6, 1.5, 0.7], 10))
    assert right.weight > th.tune(log, wrong, TuningOptions(friction=None, delay=False)).weight


def test_rows_outside_the_span_change_nothing() -> None:
    robot, log = recorded(travel=0.02, seconds=12.0)
    half = log.rows // 2
    t, q, tau = (
        np.concatenate([getattr(chunk, name) for chunk in log.read()]) for name in ("t", "q", "tau")
    )
    spoiled = tau.copy()
    spoiled[half:] = 1e3 * np.random.default_rng(0).standard_normal(spoiled[half:].shape)
    other = log_from_arrays(robot, t, q, tau=spoiled, name="arm")
    a, b = (th.tune(each, robot, span=(0, half)) for each in (log, other))
    assert a.reasons == b.reasons
    assert (a.settings.cutoff, a.settings.delay, a.weight) == (
        b.settings.cutoff,
        b.settings.delay,
        b.weight,
    )
    assert a.robot.drive.dry.key == b.robot.drive.dry.key


def test_a_log_too_short_to_choose_from_says_so_and_still_gives_a_model() -> None:
    robot, log = recorded(seconds=1.0)
    found = th.tune(log, robot, TuningOptions(cutoff=5.0))
    assert found.reasons[0].startswith("nothing was chosen")
    assert found.robot.drive.dry is None
    assert found.weight == USUAL >= 100.0  # a strong prior
    assert found.settings.torque_cutoff in (None, found.settings.cutoff)  # one low-pass for both


def test_blocks_are_predicted_by_fits_that_have_not_seen_them() -> None:
    """The fit and the squared errors of every block, by its own regressor, row by row."""
    robot, log = recorded(seconds=12.0)
    robot = with_terms(robot)
    samples = th.prepare(log, robot, cutoff=8.0)
    pieces = CrossValidation(robot.theta).pieces(robot, samples)
    few = thinned(samples)
    edges = block_edges(few, 15)
    model, sigma = pieces.model, pieces.noise(WEIGHT)
    Y = full_regressor(robot, few.q, few.dq, few.ddq)
    precision = np.linalg.inv(model.S @ np.diag(1.0 / model.precision(WEIGHT)) @ model.S.T)
    for way, cut in enumerate(pieces.cuts()):
        assert sorted(k for block in cut.pieces for k in block) == list(range(15))
        found = pieces.predict(WEIGHT).cuts[way]
        rows = np.concatenate([np.arange(edges[k], edges[k + 1]) for k in cut.pieces[1]])
        others = np.setdiff1d(np.arange(len(few)), rows)
        H, g = precision.copy(), precision @ model.x0
        for v in range(4):
            mine = others[few.valid[others, v]]
            w = model.statistics.share / sigma[v] ** 2
            H += w * Y[mine, v].T @ Y[mine, v]
            g += w * Y[mine, v].T @ few.tau[mine, v]
        x = np.linalg.solve(H, g)
        reach = round(1.0 / (few.cutoff * few.period))
        scored = rows[reach:-reach]  # rows beside the cuts are not scored
        for v in range(4):
            mine = scored[few.valid[scored, v]]
            error = few.tau[mine, v] - Y[mine, v] @ x
            assert found.rows[2, v] == len(mine)
            np.testing.assert_allclose(found.squares[2, v], error @ error, rtol=1e-6)


def test_gains_count_stretches_by_their_own_noise() -> None:
    squares = np.array([[1.0], [0.0], [100.0], [0.0]])
    rows, independent = np.array([[100], [0], [100], [0]]), np.array([[50.0], [0.0], [50.0], [0.0]])
    before = Predictions(squares, rows, independent, np.array([1e-6]))
    after = Predictions(
        squares * np.array([[0.25], [1.0], [4.0], [1.0]]), rows, independent, np.array([1e-6])
    )
    gain, error = after.gain(before)
    assert gain == pytest.approx(
        0.0, abs=1e-12
    )  # one halved, one doubled: as likely as before, though the sum of squares grew
    assert error > 0.0
    assert after.lost(before) == pytest.approx(50.0 * np.log(2.0))


def test_a_shaft_that_two_joints_share_is_named() -> None:
    for shaft, expected in ((2.0, [("elbow", "wrist")]), (0.0, [])):
        robot, log = recorded(shaft=shaft)
        model = with_terms(robot)
        samples = th.prepare(log, robot, cutoff=8.0)
        estimate = th.solve(th.information(model, samples), th.LeastSquares())
        torque = th.inverse_dynamics(
            model.with_parameters(estimate), samples.q, samples.dq, samples.ddq
        )
        residuals = Residuals.of(samples, torque)
        found = coupled(["base", "shoulder", "elbow", "wrist"], residuals)
        assert [each.joints for each in found] == expected
        assert all(each.sign == 1 and "--actuation" in each.sentence for each in found)


def test_laws_and_terms_survive_the_robot_file(tmp_path: Path) -> None:
    robot = with_terms(th.load(robots.path("arm4")).without_drive())
    drive = robot.drive.with_dry(
        FrictionDirection(np.array([0.1, 0.0, 0.2, 0.0]), np.array([0.0, 0.01, 0.0, 0.0]))
    )
    drive = drive.with_extra_term(
        quadratic(np.array([1.0, 0.0, 1.0, 0.0])), np.array([0.3, 0.0, -0.1, 0.0])
    ).with_values(coulomb=COULOMB)
    robot = replace(robot, drive=drive)
    saved = th.save(robot, tmp_path / "arm.urdf")
    assert {"direction", "quadratic"} <= set(saved.not_in_file)
    again = with_drive_file(th.load(tmp_path / "arm.urdf"))
    assert again.drive.dry.key == robot.drive.dry.key
    dq = np.random.default_rng(1).standard_normal((20, 4))
    np.testing.assert_allclose(
        again.drive.torque(dq, 0 * dq), robot.drive.torque(dq, 0 * dq), rtol=1e-12, atol=1e-12
    )


# -- how rows are cut, and what is earned ----------------------------------------------------------


def in_runs(*lengths: int) -> th.Samples:
    count, rng = sum(lengths), np.random.default_rng(0)
    q, dq, ddq, tau = rng.standard_normal((4, count, 4))
    return th.Samples(q=q, dq=dq, ddq=ddq, tau=tau, run=np.repeat(np.arange(len(lengths)), lengths))


@pytest.mark.parametrize(
    "lengths",
    [
        (100, 100, 100, 100, 100),
        (130, 80, 110, 90, 90),
        (250, 250),
        (40, 460),
        (500,),
        (30,) * 17,
        (149, 3, 348),
    ],
)
def test_no_stretch_holds_the_end_of_one_motion_and_the_start_of_another(
    lengths: tuple[int, ...],
) -> None:
    """Unless the motions are many: then stretches hold whole ones. A stretch is never much shorter
    than the others.
    """
    edges, ends = block_edges(in_runs(*lengths), 5), np.cumsum(lengths)
    assert edges[0] == 0
    assert edges[-1] == ends[-1]
    assert 4 <= len(edges) <= 6
    assert np.min(np.diff(edges)) >= ends[-1] // 5 // 4
    if min(lengths) >= ends[-1] // 10:
        assert set(ends) <= set(edges)
    if len(lengths) >= 5:
        assert set(edges[1:]) <= set(ends)


def test_the_luck_of_one_stretch_earns_nothing() -> None:
    def errors(*squares: float) -> Predictions:
        both = np.repeat(np.array(squares)[:, None], 2, axis=0)  # in motion, and at standstill
        return Predictions(
            both, np.full_like(both, 100.0), np.full_like(both, 20.0), np.array([1e-6])
        )

    before, everywhere, once = (
        errors(1.0, 1.0, 1.0, 1.0, 1.0),
        errors(0.8, 0.9, 0.8, 0.9, 0.8),
        errors(0.4, 1.05, 1.05, 1.05, 1.05),
    )
    assert everywhere.gain(before)[0] == pytest.approx(
        20.0 * np.log(1.0 / (0.8**3 * 0.9**2)), rel=1e-9
    )
    assert once.gain(before)[0] > 10.0
    threshold = Threshold(gain=10.0, loss=0.25)
    assert everywhere.improves(before, threshold)
    assert not once.improves(before, threshold)
    scores = [Scores((each,)) for each in (errors(0.1, 1.05, 1.05, 1.05, 1.05), everywhere)]
    before_all = Scores((before,))
    assert scores[0].gain(before_all)[0] > scores[1].gain(before_all)[0]
    best = best_improving(scores, before_all, [0], threshold)
    assert best == 1, "a larger gain that is luck does not keep the sound one out"


# -- short logs, unphysical files, recutting -------------------------------------------------------


def test_a_short_run_keeps_its_rows() -> None:
    """Two seconds behind a low-pass of 5 Hz: the edges take a quarter of them, not half."""
    robot, log = recorded(seconds=2.0)
    short = th.prepare(log, robot, cutoff=5.0, min_speed=0.0)
    assert np.mean(short.valid) > 0.7
    robot, log = recorded(seconds=24.0)
    long = th.prepare(log, robot, cutoff=5.0, min_speed=0.0)
    edges = np.flatnonzero(long.valid[:, 0])[0] / RATE
    assert 0.4 < edges < 0.6  # where rows are plenty, they are away from the ends


def test_least_squares_needs_no_physical_file() -> None:
    robot, log = recorded(seconds=8.0)
    theta = robot.theta.copy()
    theta[10 + 8] = -0.3  # Izz of the second link
    broken = robot.with_parameters(theta)
    assert not all(broken.consistency)
    settings = th.IdentifySettings(method="least-squares", report=False, cutoff=8.0)
    result = th.identify(broken, log, settings=settings)
    assert min(result.scores.r2) > 0.98


def test_a_vibrating_joint_does_not_lead_the_low_pass() -> None:
    robot, log = recorded(seconds=16.0)
    t, q, tau = (
        np.concatenate([getattr(chunk, name) for chunk in log.read()]) for name in ("t", "q", "tau")
    )
    quiet = choose(log, robot).cutoff
    shaken = q.copy()
    shaken[:, 3] += 5e-4 * np.sin(2.0 * np.pi * 70.0 * t)  # 0.2 rad/s
    loud = choose(log_from_arrays(robot, t, shaken, tau=tau, name="arm"), robot).cutoff
    assert loud < 1.5 * quiet


def steps_apart(first: Tuned, second: Tuned) -> bool:
    """Whether two tunings differ by at most one step of any choice."""
    weights = [WEIGHTS.index(each.weight) for each in (first, second)]
    terms = [set(each.robot.drive.identified) for each in (first, second)]
    rotors = [
        set(range(len(each.robot.drive.viscous)) if each.robot.drive.rotors is None else rotors)
        if "armature" in each.robot.drive.identified
        else set()
        for each in (first, second)
        for rotors in [each.robot.drive.rotors or ()]
    ]
    return (
        abs(weights[0] - weights[1]) <= 1
        and len(terms[0] ^ terms[1]) <= 1
        and len(rotors[0] ^ rotors[1]) <= 1
    )


def recut(log: th.Log, robot: Robot, ways: int) -> float:
    """Share of the ways of leaving out a tenth of a log that leave its choices as they are."""
    options = TuningOptions(delay=False)
    whole = th.tune(log, robot, options)
    size = log.rows // 10
    same = []
    for k in range(ways):
        left = round(k * size / max(ways - 1, 1))
        span = (left, log.rows - size + left)
        same.append(steps_apart(whole, th.tune(log, robot, options, span=span)))
    return float(np.mean(same))


def test_recutting_a_log_leaves_its_choices() -> None:
    robot, log = recorded(travel=0.005, seconds=16.0)
    wrong = robot.with_parameters(robot.theta * np.repeat([1.2, 0.8, 1.1, 0.9], 10))
    assert recut(log, wrong, 3) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["panda", "ur10", "kr300"])
def test_recutting_a_real_log_in_ten_ways_leaves_its_choices_in_eight(name: str) -> None:
    robot, log = {
        "panda": ("panda_nomesh_from_example_robot_data.urdf", "panda_exciting_traj1.csv"),
        "ur10": ("ur10_nomesh.urdf", "ur10_exciting.csv"),
        "kr300": ("kr300_from_dh.urdf", "kr300.csv"),
    }[name]
    arm = th.load(shared_file("logs", name, robot))
    assert recut(th.read_log(shared_file("logs", name, log), arm), arm, 10) >= 0.8
