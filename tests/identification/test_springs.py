"""Springs and counterbalances: found where they are, not invented where they are not, and said."""

from __future__ import annotations

import csv
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
from thetahat.identification.consistency.misfit import objective
from thetahat.identification.log_statistics import log_statistics
from thetahat.identification.parameter_columns import Columns, prior_vector
from thetahat.identification.residual_structure import fitted_springs
from thetahat.identification.tuning.gaussian_fit import GaussianModel, Grams
from thetahat.identification.tuning.tune import Tuned, TuningOptions
from thetahat.model.friction_terms import spring, spring_cosine, spring_sine

RATE = 200.0
PITCH, YAW = 0, 2  # the shoulder's horizontal axis, and the one along the upper arm
OPTIONS = TuningOptions(cutoff=8.0, delay=False, friction=None)


def recorded(*, stiffness: float = 0.0, lift: float = 0.0, joint: int = PITCH, wrong: float = 0.25):
    """The shipped arm's file, wrong by a share, and a log of the arm with a spring or a lever."""
    robot = th.load(robots.path("arm4")).without_drive()
    t, q, dq, ddq = motion(4, seconds=20.0, rate=RATE)
    tau = th.inverse_dynamics(robot, q, dq, ddq, rigid=True) + 0.5 * dq + 2.0 * np.sign(dq)
    tau[:, joint] += stiffness * (q[:, joint] - 0.3) + lift * np.sin(q[:, joint] + 0.5)
    tau += 0.05 * np.random.default_rng(5).standard_normal(tau.shape)
    scale = np.repeat(1.0 + wrong * np.array([0.7, -1.0, 1.0, -0.6]), 10)
    file = robot.with_parameters(robot.theta * scale)
    return file, log_from_arrays(robot, t, q, tau=tau, name="arm")


@cache
def tuned(stiffness: float = 0.0, lift: float = 0.0, joint: int = PITCH) -> tuple[Tuned, th.Robot]:
    file, log = recorded(stiffness=stiffness, lift=lift, joint=joint)
    chosen = th.tune(log, file, OPTIONS)
    samples = th.prepare(log, file, settings=chosen.settings)
    prior = prior_vector(file, chosen.robot)
    estimate = th.solve(th.information(chosen.robot, samples), chosen.estimator(prior))
    return chosen, chosen.robot.with_parameters(estimate)


@pytest.mark.parametrize("joint", [PITCH, YAW])
def test_a_planted_spring_is_found_with_its_stiffness_and_rest(joint: int) -> None:
    chosen, robot = tuned(stiffness=12.0, joint=joint)
    stiffness = robot.drive.value("spring")
    assert stiffness[joint] == pytest.approx(12.0, rel=0.1)
    assert np.all(np.delete(stiffness, joint) == 0.0), "of no other joint"
    assert robot.drive.offset[joint] == pytest.approx(-0.3 * 12.0, rel=0.2)
    name = robot.joint_names[joint]
    assert any(each.startswith(f"Spring at {name}: log-evidence +") for each in chosen.reasons)


def test_a_counterbalance_is_told_from_the_links_by_their_file() -> None:
    """Centres of mass make the same torque, and would have to be far from their file's."""
    _, robot = tuned(lift=-40.0)
    file, log = recorded(lift=-40.0)
    sine, cosine = robot.drive.value("spring_sine"), robot.drive.value("spring_cosine")
    lift = np.hypot(sine[PITCH], cosine[PITCH])
    assert lift == pytest.approx(40.0, rel=0.25)
    without = th.tune(log, file, replace(OPTIONS, springs=False))
    samples = th.prepare(log, file, settings=without.settings)
    information = th.information(without.robot, samples)
    absorbed = th.solve(information, without.estimator(prior_vector(file, without.robot)))
    assert absorbed.r2_per_joint[PITCH] > 0.99, "the residual alone shows nothing"
    truth = th.load(robots.path("arm4"))
    centre = truth.theta.reshape(-1, 10)[0]
    errors = [np.linalg.norm(each.theta.reshape(-1, 10)[0] - centre) for each in (robot, absorbed)]
    assert errors[0] < 0.5 * errors[1]


def test_an_arm_without_springs_gets_none() -> None:
    chosen, robot = tuned()
    assert not robot.drive.has_springs, chosen


def test_a_link_of_twice_its_files_mass_is_no_spring() -> None:
    file, log = recorded(wrong=0.0)
    half = np.repeat([0.5, 1.0, 1.0, 1.0], 10)
    found = th.tune(log, file.with_parameters(file.theta * half), OPTIONS)
    assert not found.robot.drive.has_springs, found


def test_a_result_with_a_spring_says_so_and_stays_good() -> None:
    file, log = recorded(stiffness=12.0)
    settings = th.IdentifySettings(report=False)
    result = th.identify(file, log, settings=settings)
    assert result.verdict.level == "good", result.verdict
    said = [each for each in result.verdict.reasons if "shoulder_pitch" in each]
    assert any("spring or counterbalance is fitted" in each and "× q" in each for each in said)
    none = th.identify(file, log, settings=replace(settings, springs=False))
    assert not none.robot.drive.has_springs
    assert none.verdict.level != "good", none.verdict


def test_a_spring_that_gravity_can_stand_for_has_the_size_of_the_torque() -> None:
    """Its column is none of the base parameters', and still its prior is no tighter."""
    robot = th.load(robots.path("arm4")).without_drive()
    drive = robot.drive.with_terms(offset=True)
    for make in (spring, spring_sine, spring_cosine):
        drive = drive.with_extra_term(make(np.ones(4)))
    robot = replace(robot, drive=drive)
    columns = Columns(robot)
    _, q, dq, ddq = motion(4, seconds=5.0, rate=RATE)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    information = th.information(robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau))
    f = objective(information, prior=None, weight=1.0, metric="moments", weights=None)
    at = columns.names.index("spring_sine_shoulder_pitch")
    assert at in columns.of_position
    assert at not in information.base.independent
    alone = f.scale[at] * np.linalg.norm(np.sin(q[:, PITCH]))
    assert alone == pytest.approx(np.linalg.norm(tau), rel=1e-6)


@pytest.mark.parametrize("weight", [0.1, 10.0])
def test_what_a_column_would_add_is_the_difference_of_two_fits(weight: float) -> None:
    robot = th.load(robots.path("arm4")).without_drive()
    drive = robot.drive.with_terms(offset=True)
    for make in (spring_sine, spring_cosine):
        drive = drive.with_extra_term(make(np.ones(4)))
    robot = replace(robot, drive=drive)
    _, q, dq, ddq = motion(4, seconds=5.0, rate=RATE)
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 3.0 * np.sin(q)
    samples = th.Samples(q=q, dq=dq, ddq=ddq, tau=tau)
    information, grams = th.information(robot, samples), Grams.of(th.information(robot, samples))
    x0 = np.concatenate([1.2 * robot.theta, np.zeros(12)])
    statistics = log_statistics(robot, samples)
    model = GaussianModel.of(information, x0, statistics, metric="moments").with_drive_sizes(grams)
    problem = model.problem(grams, np.full(4, 0.5))
    held = model.columns.of_position
    pair = held[[1, 5]]  # of the second joint
    without = problem.fit(weight, without=held)
    beside = problem.fit(weight, without=np.setdiff1d(held, pair))
    freed = without.freed(pair)
    assert freed.gain == pytest.approx(beside.log_evidence() - without.log_evidence(), rel=1e-6)
    worth = np.max(np.abs(beside.x[pair]) / beside.std(pair))
    assert freed.worth == pytest.approx(worth, rel=1e-6)


def test_findings_name_the_shape_and_its_sign() -> None:
    robot = th.load(robots.path("arm4"))
    drive = robot.drive.with_extra_term(spring_sine(np.eye(4)[1]), [0.0, -3.0, 0.0, 0.0])
    drive = drive.with_extra_term(spring_cosine(np.eye(4)[1]), [0.0, -1.5, 0.0, 0.0])
    (found,) = fitted_springs(replace(robot, drive=drive))
    assert found.joint == "shoulder_roll"
    assert "−3 N·m × sin q − 1.5 N·m × cos q" in found.message
    assert found.effect == "corrected"


def test_the_counterbalance_of_a_kr300_is_the_one_its_authors_modelled(tmp_path: Path) -> None:
    """A column of the log, which nothing here reads, holds their model of the hydraulic spring."""
    source = shared_file("logs", "kr300", "kr300.csv")
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [row for row in rows if row["seg"] != "FF_C"]
    log = tmp_path / "log.csv"
    names = ["t", *(f"{kind}{k}" for kind in ("q", "tau") for k in range(1, 7)), "seg"]
    with log.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    settings = th.IdentifySettings(report=False, holdout=0.0, score_cutoff=10.0)
    result = th.identify(source.parent / "kr300_from_dh.urdf", log, settings=settings)
    q = np.zeros((len(rows), 6))
    q[:, 1] = [float(row["q2"]) for row in rows]
    torque = result.robot.drive.spring_torque(q)
    assert np.all(np.delete(torque, 1, axis=1) == 0.0), "of no other joint"
    stated = np.array([float(row["tau_counterbalance_model2"]) for row in rows])
    assert np.corrcoef(torque[:, 1], stated)[0, 1] > 0.999
    slope, constant = np.polyfit(stated, torque[:, 1], 1)
    assert slope == pytest.approx(1.0, abs=0.1)
    assert abs(constant) < 0.1 * np.max(np.abs(stated))
    assert all(0.5 < link.mass_ratio < 1.5 for link in result.model.plausibility.links)
