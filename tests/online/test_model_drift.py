"""Slow drift of a robot that the model follows: named where there is one, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from online_cases import arm, push_all, run, wrong

from thetahat.data.samples import STANDSTILL, USABLE, Samples
from thetahat.identification.parameter_columns import Columns
from thetahat.online.change import ModelDrift
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.predict import Predictor

SECONDS = 60.0
JOINT = 1


def drifting(share: float, seed: int) -> OnlineIdentifier:
    """Push a minute of motion, in which a joint's offset grows by a share of its RMS torque."""
    robot = arm()
    stream = run(robot, SECONDS, seed=seed)
    tau = stream.tau.copy()
    grown = np.clip((stream.t - 25.0) / (SECONDS - 25.0), 0.0, 1.0)
    tau[:, JOINT] += share * np.sqrt(np.mean(tau[:, JOINT] ** 2)) * grown
    return push_all(OnlineIdentifier(wrong(robot)), replace(stream, tau=tau).noisy(0.01, 1e-3))


@pytest.mark.parametrize("seed", [11, 12])
def test_a_robot_that_stays_the_same_does_not_drift(seed: int) -> None:
    one = drifting(0.0, seed)
    assert one.gate.open, one.gate.reason
    assert one.events.counts["drift"] == one.events.counts["alarm"] == 0, list(one.events)


def test_an_offset_that_creeps_is_named_and_followed() -> None:
    one = drifting(0.6, 11)
    names = [event.joint for event in one.events if event.kind == "drift"]
    assert names
    assert set(names) == {one.nominal.velocity_names[JOINT]}
    assert one.gate.open, one.gate.reason


@pytest.mark.parametrize(
    ("grown", "moves", "named"),
    [(True, True, True), (False, True, False), (True, False, False)],
    ids=["the robot drifted", "only the model differs", "the joint stands still"],
)
def test_drift_is_what_the_old_model_errs_on_torques_that_count(
    grown: bool, moves: bool, named: bool
) -> None:
    """Two models that differ by an offset: no drift where measured torques do not follow the newer
    one, or where friction holds the joint and its torque says nothing.
    """
    robot, motion = arm(), run(arm(), 10.0, rate=30.0)
    offset = 0.6 * np.sqrt(np.mean(motion.tau**2, axis=0)) * (np.arange(robot.nv) == JOINT)
    later = replace(robot, drive=robot.drive.with_values(offset=robot.drive.offset + offset))
    before, after = (Predictor(each).model(Columns(each).x0) for each in (robot, later))
    reason = np.full(motion.tau.shape, np.uint8(USABLE))
    reason[:, JOINT] = USABLE if moves else STANDSTILL
    rng = np.random.default_rng(0)
    tau = motion.tau + 0.01 * rng.normal(size=motion.tau.shape) + (offset if grown else 0.0)
    samples = Samples(q=motion.q, dq=motion.dq, ddq=motion.ddq, tau=tau, reason=reason)
    one = ModelDrift(robot.velocity_names, 1.0)
    one.push(0.0, before, samples)
    finding = one.push(10.0, after, samples)
    assert (finding is not None) == named
    assert finding is None or finding.joint == robot.velocity_names[JOINT]
