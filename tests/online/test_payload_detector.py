"""A light payload is found by all joints together; one joint's error, and what the memory leaves
open, are no payload.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from online_cases import frictionless, run

import thetahat as th
from thetahat.identification.parameter_columns import Columns
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.payload_detector import PayloadDetector
from thetahat.online.predict import Predictor
from thetahat.plant.realism import Payload

RATE, SECONDS, AT = 30.0, 60.0, 40.0  # [Hz] of scores; [s]; [s] of what is planted
SIGMA = 0.05  # [N·m] of every joint
Plant = Callable[[th.Robot, np.ndarray, tuple[np.ndarray, ...]], np.ndarray]


def certain(variance: np.ndarray) -> np.ndarray:
    return np.zeros((len(variance), len(variance)))


def found(plant: Plant, spread: Callable[[np.ndarray], np.ndarray], seed: int) -> list[float]:
    """When something is found [s]; plant: adds to the torques from AT on."""
    robot = frictionless()
    motion, rng = run(robot, SECONDS, rate=RATE, seed=seed), np.random.default_rng(seed)
    tau = motion.tau + SIGMA * rng.normal(size=motion.tau.shape)
    late = motion.t >= AT
    states = tuple(each[late] for each in (motion.q, motion.dq, motion.ddq))
    tau[late] += plant(robot, motion.tau[late], states)
    model = Predictor(robot).model(Columns(robot).x0)
    one = PayloadDetector(robot, robot.body_names[-1], 8.0 * 3600.0, np.full(4, 0.02))
    out = []
    for k, t in enumerate(motion.t):
        sample = FilteredSample(*(x[k : k + 1] for x in (motion.q, motion.dq, motion.ddq, tau)))
        moving = np.ones(4, dtype=bool)
        if one.push(float(t), sample, model, np.full(4, SIGMA), spread, usable=moving, learn=True):
            out.append(float(t))
    return out


def nothing(robot: th.Robot, tau: np.ndarray, states: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.zeros_like(tau)


def body(robot: th.Robot, tau: np.ndarray, states: tuple[np.ndarray, ...]) -> np.ndarray:
    held = Payload(robot.body_names[-1], 0.3, (0.03, -0.02, 0.05)).on(robot)
    return th.inverse_dynamics(held, *states) - tau


def one_joint(robot: th.Robot, tau: np.ndarray, states: tuple[np.ndarray, ...]) -> np.ndarray:
    """A friction that grew by fifty times the usual error."""
    return 50.0 * SIGMA * np.sign(states[1]) * np.array([0.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_payload_is_found_in_half_a_second_and_nothing_else(seed: int) -> None:
    times = found(body, certain, seed)
    assert times
    assert AT < times[0] < AT + 0.5
    assert not found(nothing, certain, seed)
    assert not found(one_joint, certain, seed)


def test_what_the_memory_leaves_open_is_no_payload() -> None:
    """The same torques, where the memory does not tell what the links weigh."""
    assert not found(body, lambda variance: np.full((4, 4), 1e4) + 1e4 * np.eye(4), 1)


def found_after_another_model(*, joint: bool, pause: bool) -> list[float]:
    """When something is found [s]; two models explain the torques, one until AT, one from then on.

    joint: the first knows nothing of the last joint. pause: it was not trusted any more.
    """
    robot = frictionless()
    other = Payload(robot.body_names[-1], 0.3, (0.03, -0.02, 0.05)).on(robot)
    motion, rng = run(robot, SECONDS, rate=RATE, seed=4), np.random.default_rng(4)
    early = motion.t < AT
    tau = motion.tau + SIGMA * rng.normal(size=motion.tau.shape)
    states = tuple(each[early] for each in (motion.q, motion.dq, motion.ddq))
    tau[early] += th.inverse_dynamics(other, *states) - motion.tau[early]
    first, second = (Predictor(each).model(Columns(each).x0) for each in (other, robot))
    one = PayloadDetector(robot, robot.body_names[-1], 8.0 * 3600.0, np.full(4, 0.02))
    out, moving = [], np.ones(4, dtype=bool)
    for k, t in enumerate(motion.t):
        sample = FilteredSample(*(x[k : k + 1] for x in (motion.q, motion.dq, motion.ddq, tau)))
        scale = np.full(4, SIGMA)
        if early[k]:
            scale[-1] = np.inf if joint else SIGMA
        elif early[k - 1] and pause:
            one.pause()
        model = first if early[k] else second
        if one.push(float(t), sample, model, scale, certain, usable=moving, learn=True):
            out.append(float(t))
    return out


def test_a_model_that_is_not_trusted_any_more_accuses_nobody() -> None:
    """What was in use before the gate closed, or before a joint was known, is no yardstick."""
    times = found_after_another_model(joint=False, pause=False)
    assert times
    assert AT < times[0] < AT + 0.5
    assert not found_after_another_model(joint=False, pause=True)
    assert not found_after_another_model(joint=True, pause=False)
