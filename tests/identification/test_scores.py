"""Held-out scores: R² and RMS are their definitions, whichever way the samples come; the robot that
made the torques scores one.
"""

from __future__ import annotations

import numpy as np
import pytest
import simulated_log

import thetahat as th
from thetahat import robots
from thetahat.data.samples import MASKED, OUTLIER, STANDSTILL
from thetahat.errors import UsageError

EXACT = 1e-12


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("arm4"))


@pytest.fixture(scope="module")
def samples(robot: th.Robot) -> th.Samples:
    """Torques by Pinocchio with noise, and every reason for leaving a torque out."""
    _, q, dq, ddq = simulated_log.motion(robot.nv, seconds=2.0)
    rng = np.random.default_rng(3)
    tau = simulated_log.torque(robot.source, q, dq, ddq) + rng.normal(size=q.shape)
    reason = rng.choice([0, 0, 0, STANDSTILL, OUTLIER], size=q.shape).astype(np.uint8)
    reason[:, 2] = MASKED
    return th.Samples(q=q, dq=dq, ddq=ddq, tau=tau, reason=reason)


def test_scores_are_their_definitions(robot: th.Robot, samples: th.Samples) -> None:
    found = th.validate(robot.without_drive(), samples)
    predicted = simulated_log.torque(robot.source, samples.q, samples.dq, samples.ddq)
    for j in range(robot.nv):
        for rows, r2, rms in (
            (np.isin(samples.reason[:, j], (0, STANDSTILL)), found.r2[j], found.rms[j]),
            (samples.reason[:, j] == 0, found.r2_moving[j], found.rms_moving[j]),
        ):
            u, e = samples.tau[rows, j], (samples.tau - predicted)[rows, j]
            if not rows.any():
                assert r2 is rms is np.ma.masked
                continue
            assert r2 == pytest.approx(1.0 - e @ e / (u @ u), rel=1e-9)
            assert rms == pytest.approx(np.sqrt(np.mean(e**2)), rel=1e-9)
    scored = np.isin(samples.reason, (0, STANDSTILL))
    left, torque = ((samples.tau - predicted)[scored], samples.tau[scored])
    assert found.r2_total == pytest.approx(1.0 - left @ left / (torque @ torque), rel=1e-9)
    assert list(found.rows) == list(scored.sum(axis=0))


def test_the_true_robot_explains_everything_and_a_wrong_one_less(robot: th.Robot) -> None:
    _, q, dq, ddq = simulated_log.motion(robot.nv, seconds=2.0)
    exact = th.Samples(q=q, dq=dq, ddq=ddq, tau=simulated_log.torque(robot.source, q, dq, ddq))
    wrong = robot.without_drive().with_parameters(1.1 * robot.theta)
    found = th.validate(robot.without_drive(), exact, nominal=wrong)
    assert np.all(found.r2 > 1.0 - EXACT)
    assert found.nominal is not None
    np.testing.assert_allclose(
        found.nominal.r2, 0.99, rtol=0, atol=1e-9
    )  # an error of a tenth of the torque
    assert found.nominal.r2_total == pytest.approx(0.99)


def test_a_stream_scores_as_the_whole(robot: th.Robot, samples: th.Samples) -> None:
    whole = th.validate(robot, samples, nominal=robot.without_drive())
    parts = th.validate(
        robot,
        (samples.subset(slice(k, k + 37)) for k in range(0, len(samples), 37)),
        nominal=robot.without_drive(),
    )
    for name in ("rows", "rows_moving", "r2", "r2_moving", "rms", "rms_moving"):
        for a, b in ((whole, parts), (whole.nominal, parts.nominal)):
            np.testing.assert_allclose(
                np.ma.filled(getattr(a, name), -1.0),
                np.ma.filled(getattr(b, name), -1.0),
                rtol=EXACT,
            )
    assert parts.samples == whole.samples == len(samples)


def test_it_prints_every_joint_and_the_nominal_robot(robot: th.Robot, samples: th.Samples) -> None:
    text = str(th.validate(robot, samples, nominal=robot.without_drive()))
    for name in robot.joint_names:
        assert name in text
    assert "nominal" in text
    assert "–" in text  # the masked joint
    assert "nan" not in text
    assert "nominal" not in str(th.validate(robot, samples))


def test_nothing_to_score_is_no_number(robot: th.Robot) -> None:
    zero = np.zeros((5, robot.nv))
    still = th.Samples(q=zero, dq=zero, ddq=zero, tau=zero)
    found = th.validate(robot, still)
    assert found.r2.mask.all()
    assert found.r2_total is None
    assert not found.rms.mask.any()
    none = th.validate(robot, still.subset(slice(0, 0)))
    assert none.rms.mask.all()
    assert none.samples == 0


def test_samples_and_robots_that_do_not_fit_are_refused(
    robot: th.Robot, samples: th.Samples
) -> None:
    other = th.load(robots.path("arm7"))
    with pytest.raises(UsageError, match="prepare them with this robot"):
        th.validate(other, samples)
    with pytest.raises(UsageError, match="variants of one robot"):
        th.validate(robot, samples, nominal=other)
