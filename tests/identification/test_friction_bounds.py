"""Identified friction dissipates at every speed up to the limit, and is no larger than the torque
seen.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_log import motion

import thetahat as th
from thetahat import robots
from thetahat.identification.consistency.friction_bounds import (
    BEYOND,
    friction_bounds,
    top_speeds,
    worst_dissipation,
)
from thetahat.identification.log_statistics import log_statistics
from thetahat.identification.parameter_columns import Columns
from thetahat.model.friction_terms import FrictionDirection, one_sided, quadratic, stribeck
from thetahat.model.robot import Robot

ROUNDING = 1e-9  # of the torque


def with_all_terms(name: str, zone: float = 0.0) -> Robot:
    """A shipped robot with every term of friction to identify."""
    robot = th.load(robots.path(name)).without_drive()
    robot = robot.with_drive(viscous=True, coulomb=True, offset=True)
    ones = np.ones(robot.nv)
    drive = robot.drive.with_dry(FrictionDirection(zone * ones, 0.0 * ones))
    for term in (stribeck(0.2 * ones), one_sided(ones), quadratic(ones)):
        drive = drive.with_extra_term(term)
    return replace(robot, drive=drive)


@pytest.mark.parametrize("zone", [0.0, 0.05])
@pytest.mark.parametrize("name", ["arm4", "arm7"])
def test_whatever_meets_the_bounds_dissipates_between_their_speeds_too(
    name: str, zone: float
) -> None:
    """Random friction on the very edge of the bounds, on a grid forty times as fine."""
    columns = Columns(with_all_terms(name, zone))
    bounds = friction_bounds(columns)
    top = np.where(np.isfinite(top_speeds(columns, None)), top_speeds(columns, None), 10.0)
    rng = np.random.default_rng(0)
    motors = len(columns.drive.column_motors)
    for _ in range(50):
        x = np.zeros(columns.count)
        x[columns.inertial :] = rng.normal(size=columns.count - columns.inertial)
        for term in ("viscous", "coulomb", "stribeck"):
            at = columns.inertial + columns.drive.identified.index(term) * motors
            x[at : at + motors] = np.abs(x[at : at + motors])
        for term in ("one_sided", "quadratic"):  # shrunk until the bounds hold, and no further
            at = columns.inertial + columns.drive.identified.index(term) * motors
            while np.any(bounds.rows @ x < 0.0):
                x[at : at + motors] *= 0.9
                if np.max(np.abs(x[at : at + motors])) < 1e-12:
                    break
        if np.all(bounds.rows @ x >= 0.0):
            assert np.all(worst_dissipation(columns, x, top) >= -ROUNDING)


def test_a_fit_dissipates_where_least_squares_does_not() -> None:
    """Friction that falls with speed, as if it became negative beyond the speeds seen."""
    robot = with_all_terms("arm4")
    _, q, dq, ddq = motion(4, seconds=12.0, rate=100.0)
    rng = np.random.default_rng(1)
    tau = th.inverse_dynamics(robot, q, dq, ddq, rigid=True)
    tau += np.sign(dq) * (3.0 + 0.4 * np.abs(dq) - 2.0 * dq**2)
    tau += 0.05 * rng.standard_normal(tau.shape)
    samples = th.Samples(q=q, dq=dq, ddq=ddq, tau=tau)
    information = th.information(robot, samples)
    columns, statistics = Columns(robot), log_statistics(robot, samples)
    top = top_speeds(columns, statistics)
    plain = th.solve(information, th.LeastSquares(weights="joint"))
    assert np.any(worst_dissipation(columns, plain.x, top) < -0.1)
    fit = th.solve(information, th.Consistent(prior=robot.theta, statistics=statistics))
    assert fit.status in ("solved", "almost_solved")
    assert np.all(worst_dissipation(columns, fit.x, top) >= -1e-6)
    largest = np.max(np.abs(tau), axis=0)
    assert np.all(fit.drive["coulomb"] + fit.drive["stribeck"] <= largest * (1.0 + 1e-6))


def test_the_limit_is_that_of_the_file_or_a_multiple_of_the_fastest_speed_seen() -> None:
    robot = with_all_terms("arm4")
    _, q, dq, ddq = motion(4, seconds=4.0, rate=100.0)
    samples = th.Samples(q=q, dq=dq, ddq=ddq, tau=np.ones_like(q))
    statistics = log_statistics(robot, samples)
    fastest = np.max(np.abs(dq), axis=0)
    np.testing.assert_allclose(statistics.fastest, fastest)
    stated = top_speeds(Columns(robot), None)
    expected = np.where(np.isfinite(stated), np.maximum(stated, fastest), BEYOND * fastest)
    np.testing.assert_allclose(top_speeds(Columns(robot), statistics), expected)
