"""Motions for a payload: the criterion is that of its ten columns, with the slope of differences."""

from __future__ import annotations

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.errors import UsageError
from thetahat.excite.bases import FourierFamily
from thetahat.excite.design import design, planned
from thetahat.excite.payload_objective import held_poses, payload_problem
from thetahat.identification.information import information
from thetahat.identification.payload.payload_place import payload_place

LINK = "hand"


@pytest.fixture(scope="module")
def arm() -> th.Robot:
    return th.load(robots.path("arm4")).with_drive(viscous=True, coulomb=True, offset=True)


def payload_information(arm: th.Robot, motion: th.Samples) -> np.ndarray:
    """Yᵀ·Y of the payload's own columns, from the regressor of the body that carries it."""
    place = payload_place(arm, LINK, None)
    Y = th.regressor(arm, motion.q, motion.dq, motion.ddq)[:, :, place.span] @ place.to_body
    return np.einsum("njk,njl->kl", Y, Y)


def test_projected_information_is_that_of_the_payloads_columns(arm: th.Robot) -> None:
    """Pᵀ·F·P of a folded log, against the regressor of the body that carries it."""
    rng = np.random.default_rng(0)
    q, dq, ddq = rng.normal(size=(3, 50, arm.nv))
    motion = th.Samples(q=q, dq=dq, ddq=ddq, tau=0.0 * q)
    R = information(arm, motion).stacked()[:, :-1]
    place = payload_place(arm, LINK, None)
    family = FourierFamily(arm.joint_names, 5.0, 3, None)
    problem = payload_problem(planned(arm, family)[0], LINK)
    own = payload_information(arm, motion)
    whole = th.base_parameters(arm).strong.map[:, place.span] @ place.to_body
    np.testing.assert_allclose(whole.T @ (R.T @ R) @ whole, own, atol=1e-6 * np.max(own))
    assert problem.carried.shape[1] == np.linalg.matrix_rank(whole, tol=1e-9 * np.abs(whole).max())


def test_slope_is_that_of_differences(arm: th.Robot) -> None:
    rng = np.random.default_rng(1)
    problem = payload_problem(planned(arm, FourierFamily(arm.joint_names, 5.0, 3, None))[0], LINK)
    A = rng.normal(size=(80, len(problem.carried)))
    F, D = A.T @ A, rng.normal(size=(len(problem.carried),) * 2)
    D = D + D.T
    step = 1e-5
    ahead, behind = (problem.measured(F + sign * step * D)[0] for sign in (1.0, -1.0))
    slope = problem.measured(F)[1]
    assert (ahead - behind) / (2 * step) == pytest.approx(np.sum(slope * D), rel=1e-5)


def test_a_motion_for_the_payload_shows_more_of_it(arm: th.Robot) -> None:
    """Than the motion for the whole robot, from the same starts."""
    given = {"duration": 5.0, "harmonics": 3, "starts": 2, "seed": 0}
    values = []
    for link in (None, LINK):
        q, dq, ddq = design(arm, **given, payload_link=link).trajectory.at(np.arange(0, 5, 0.02))
        own = payload_information(arm, th.Samples(q=q, dq=dq, ddq=ddq, tau=0.0 * q))
        values.append(float(np.sum(np.log(np.linalg.eigvalsh(own).clip(1e-9)))))
    assert values[1] > values[0]


def test_poses_keep_limits_and_refuse_other_links(arm: th.Robot) -> None:
    limits = planned(arm, FourierFamily(arm.joint_names, 5.0, 3, None))[0].limits
    q = held_poses(arm, LINK, 6, limits)
    assert q.shape == (6, arm.nv)
    assert len(np.unique(q, axis=0)) == 6
    assert np.all(np.abs(q - limits.centre) <= limits.reach)
    with pytest.raises(UsageError, match="link 'gripper' is not in robot"):
        held_poses(arm, "gripper", 6, limits)
