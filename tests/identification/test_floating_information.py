"""Information of floating robots whose ground forces are not measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from floating_robots import FEET, floating, random_samples

import thetahat as th
from thetahat.dynamics.contact_projection import contact_projection, row_deviations
from thetahat.errors import UsageError
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.scores import validate
from thetahat.identification.time_blocks import base_rows, block_of, row_plan
from thetahat.identification.tuning.cross_validation import CrossValidation
from thetahat.identification.tuning.motion_filter import choose_cutoff
from thetahat.identification.uncertainty.autocorrelation import independent_share
from thetahat.model.floating_base import with_deviations, with_ground
from thetahat.model.robot import Robot

RECOVERED = 1e-8  # of the largest base parameter


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("solo12", 150),
        ("go2", 150),
        pytest.param("g1", 250, marks=pytest.mark.slow),
        pytest.param("valkyrie", 380, marks=pytest.mark.slow),
    ],
)
def test_truth_is_recovered_without_ground_forces(name: str, count: int) -> None:
    robot = with_ground(floating(name), (), FEET[name])
    information = th.information(robot, random_samples(robot, count, seed=1))
    truth = information.base.map @ robot.theta
    assert information.rank == len(information.base)
    assert np.max(np.abs(information.solution.x - truth)) < RECOVERED * np.max(np.abs(truth))


def test_all_ten_of_the_whole_body_show_with_a_floating_base() -> None:
    robot = floating("solo12")
    names = " ".join(th.base_parameters(robot).names)
    whole = th.base_parameters(robot).map
    mass = np.zeros(len(robot.theta))
    mass[9::10] = 1.0
    # the total mass is a combination of what shows
    left = mass - np.linalg.lstsq(whole.T, mass, rcond=None)[0] @ whole
    assert np.max(np.abs(left)) < 1e-9
    assert "m_" in names


def test_parts_merge_into_the_whole(tmp_path: object) -> None:
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    samples = random_samples(robot, 120)
    whole = th.information(robot, samples)
    parts = [th.information(robot, samples.subset(rows)) for rows in (slice(0, 50), slice(50, 120))]
    merged = parts[0] + parts[1]
    for a, b in zip(whole.factors, merged.factors, strict=True):
        np.testing.assert_allclose(a.T @ a, b.T @ b, atol=1e-9 * np.max(np.abs(a)) ** 2)
    streamed = th.information(
        robot, iter([samples.subset(slice(0, 70)), samples.subset(slice(70, 120))])
    )
    np.testing.assert_allclose(streamed.solution.x, whole.solution.x, atol=1e-9)
    # of each sample's rows as many count as forces leave
    assert samples.contact is not None
    expected = 120 * robot.nv - 3 * np.count_nonzero(samples.contact)
    assert abs(int(whole.rows.sum()) - expected) <= robot.nv


def test_informations_of_other_weights_do_not_merge() -> None:
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    samples = random_samples(robot, 20)
    other = with_deviations(robot, {"FL_KFE": 2.0})
    with pytest.raises(UsageError, match="different robots"):
        th.information(robot, samples) + th.information(other, samples)


def test_information_is_saved_and_read(tmp_path: object) -> None:
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    information = th.information(robot, random_samples(robot, 20))
    path = f"{tmp_path}/info.npz"
    information.save(path)
    again = Information.load(path, robot)
    assert all(
        np.array_equal(a, b) for a, b in zip(again.factors, information.factors, strict=True)
    )


def test_samples_must_say_which_feet_are_down() -> None:
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    samples = replace(random_samples(robot, 20), contact=None)
    with pytest.raises(UsageError, match="which are down"):
        th.information(robot, samples)


def test_scores_are_of_what_ground_forces_leave() -> None:
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    samples = random_samples(robot, 40)
    truth = validate(robot, samples)
    assert truth.r2.min() > 1.0 - 1e-9
    assert validate(robot.with_parameters(1.2 * robot.theta), samples).r2.max() < 0.99


@pytest.mark.parametrize("name", ["solo12", "g1"])
def test_folded_rows_are_those_of_the_dense_projection(name: str) -> None:
    """Arms keep rows and columns of their own; base and legs are mixed as P says."""
    robot = with_ground(floating(name), (), FEET[name]).with_drive(viscous=True, armature=True)
    samples = random_samples(robot, 37, seed=3)
    information = th.information(robot, samples)
    assert samples.contact is not None
    measured = np.ones(samples.tau.shape, dtype=bool)
    projection = contact_projection(robot, samples.q, samples.contact, measured)
    dense = full_regressor(robot, samples.q, samples.dq, samples.ddq)
    columns = dense[..., information.base.independent]
    left, torque = projection.apply(columns), projection.apply(samples.tau)
    for v, (positions, R) in enumerate(
        zip(information.positions, information.factors, strict=True)
    ):
        rows = np.column_stack([left[:, v, positions], torque[:, v]])
        others = np.delete(left[:, v], positions, axis=1)
        assert np.abs(others).max(initial=0.0) < 1e-12 * np.abs(left).max()
        size = np.abs(rows).max() ** 2 * len(rows)
        np.testing.assert_allclose(R.T @ R, rows.T @ rows, atol=1e-10 * size)


def test_blocks_of_time_have_the_same_rows() -> None:
    robot = with_ground(floating("g1"), (), FEET["g1"])
    samples = random_samples(robot, 37, seed=4)
    information = th.information(robot, samples)
    plan = row_plan(information)
    block = block_of(samples, robot, samples.valid)
    rows = base_rows(plan, block)
    for v, R in enumerate(information.factors):
        own = rows[plan.starts[v] : plan.starts[v + 1]]
        size = np.abs(own).max() ** 2 * own.shape[1]
        np.testing.assert_allclose(own @ own.T, (R.T @ R)[:-1, :-1], atol=1e-10 * size)


def test_rows_that_choices_are_judged_by_count_by_what_forces_leave() -> None:
    """Of each sample nv − rank J_c rows, and torques without the forces: the truth leaves none."""
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    samples = random_samples(robot, 60)
    pieces = CrossValidation(robot).pieces(robot, samples)
    assert samples.contact is not None
    expected = 60 * robot.nv - 3 * np.count_nonzero(samples.contact)
    assert abs(float(pieces.whole.rows.sum()) - expected) < 1e-6 * expected
    folded = th.information(robot, samples)
    truth = folded.base.map @ robot.theta
    left = np.sqrt(pieces.whole.squares(truth, folded.positions))
    assert np.all(left < 1e-6 * folded.torque_norms())


def test_rows_that_forces_leave_little_of_have_errors_in_fixed_proportions() -> None:
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    names = robot.velocity_names[:2]
    robot = with_deviations(robot, {names[0]: 0.01, names[1]: 0.02})
    samples = random_samples(robot, 1500, seed=2)
    noise = np.random.default_rng(5).normal(size=samples.tau.shape)
    folded = th.information(robot, replace(samples, tau=samples.tau + 0.02 * noise))
    assert folded.rows[:2].min() > 0
    assert folded.rows[:2].max() < len(folded.base)
    ratio = weigh(folded, "iterated").noise / row_deviations(robot)
    assert abs(ratio[1] / ratio[0] - 1.0) < 1e-12
    assert np.ptp(ratio[6:]) > 1e-3


@dataclass(frozen=True)
class _Score:
    """As good as the low-pass is close to the best one."""

    worth: float

    def gain(self, before: _Score, joints: list[int] | None = None) -> tuple[float, float]:
        return self.worth - before.worth, 0.0

    def improves(self, before: _Score, threshold: object, joints: object = None) -> bool:
        return self.worth > before.worth


class _Judge:
    """A log whose best low-pass is 2.5 Hz."""

    def samples(self, cutoff: float, delay: float = 0.0) -> float:
        return cutoff

    def predict(self, robot: Robot, samples: float, weight: float = 1.0) -> _Score:
        return _Score(-abs(np.log(samples / 2.5)))


@pytest.mark.parametrize(("touching", "expected"), [(True, 2.45), (False, 5.0)])
def test_low_pass_is_searched_below_what_encoders_suggest(touching: bool, expected: float) -> None:
    """Of a pose that no encoder measures; with foot sensors the given ones are all."""
    feet = FEET["solo12"]
    robot = with_ground(floating("solo12"), *(((), feet) if touching else (feet, ())))
    judge = cast(Any, _Judge())
    best, reason = choose_cutoff(judge, robot, judge, cutoffs=(20.0, 10.0, 5.0))
    assert best == pytest.approx(expected)
    assert f"{best:.3g} Hz instead of 20 Hz" in reason


def test_rows_that_forces_leave_little_of_are_those_that_were_folded() -> None:
    """A whole number of rows stands for parts of some: no other log for that."""
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    robot = with_deviations(robot, dict.fromkeys(robot.velocity_names[:2], 2e-3))
    samples = replace(random_samples(robot, 1500, seed=2), period=0.01)
    folded = th.information(robot, samples)
    assert 0 < folded.rows[:2].min() < 10
    share = independent_share(folded, samples, weigh(folded, "iterated"))
    assert np.all((share > 0.0) & (share <= 1.0))
