"""External torque and payload on the live page: a push, a body that is lifted, and what is said."""

from __future__ import annotations

from typing import Any

import live_cases as cases
import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.data.memory_log import log_from_arrays
from thetahat.live.sample_sources import Replay, Settings
from thetahat.live.session import Session
from thetahat.plant.realism import Payload

RATE, SECONDS = 100.0, 62.0
PUSHED, LIFTED = 45.0, 52.0  # [s]
MASS = 1.0  # [kg]


def source() -> Replay:
    """An arm that is pushed with 8 N·m for 0.15 s, and later lifts a body."""
    robot = th.load(robots.path("arm4"))
    robot = robot.with_parameters(robot.theta).with_drive(coulomb=False)
    t = np.arange(round(RATE * SECONDS)) / RATE
    q, dq, ddq = cases.motion(robot, SECONDS).at(t)
    body = Payload("hand", mass=MASS, com=(0.0, 0.0, 0.06), inertia_com=(2e-3, 0, 0, 2e-3, 0, 2e-3))
    true = robot.with_parameters(1.1 * robot.theta)
    tau = th.inverse_dynamics(true, q, dq, ddq)
    late = t > LIFTED
    tau[late] = th.inverse_dynamics(body.on(true), q[late], dq[late], ddq[late])
    tau[(t > PUSHED) & (t < PUSHED + 0.15), 1] -= 8.0
    tau += 0.03 * np.random.default_rng(0).standard_normal(tau.shape)
    log = log_from_arrays(robot, t, q, dq=dq, tau=tau, name="pushed.csv")
    return Replay(robot, log, Settings(payload_link="hand"))


@pytest.fixture(scope="module")
def watched() -> tuple[list[tuple[float, dict[str, Any]]], Session]:
    """States of the page over time, and the session at its end: loop and publisher take turns."""
    made = source()
    session, states = Session(made, speed=1e6), []
    for k, step in enumerate(made.steps(session.loop.clock)):
        session.loop._take(step)
        if k % 4 == 3:
            session.publisher._tick()
            states.append((step.t, session.publisher.state()))
    return states, session


def between(states: list[tuple[float, dict[str, Any]]], begin: float, end: float) -> list[Any]:
    return [state["contact"]["kind"] for t, state in states if begin <= t < end]


def test_a_push_is_a_collision_on_the_page_and_before_it_there_was_none(watched: Any) -> None:
    states, session = watched
    learned = next(t for t, state in states if state["contact"]["kind"] is not None)
    assert learned < PUSHED - 2.0
    assert set(between(states, learned, PUSHED)) == {"none"}
    assert "collision" in between(states, PUSHED, PUSHED + 0.15)
    assert set(between(states, PUSHED + 1.0, LIFTED)) == {"none"}
    said = [event["message"] for event in session.shared.events.all if event["kind"] == "contact"]
    assert said[1].startswith("Collision on joint 'shoulder_roll': +")
    assert said[2].startswith("Contact over after 0.")
    largest = float(said[2].rpartition(" ")[2])
    assert largest == pytest.approx(8.0, rel=0.2)


def test_what_is_lifted_is_a_body_at_its_link_with_its_interval(watched: Any) -> None:
    states, session = watched
    held = states[-1][1]["payload"]
    assert states[0][1]["payload"] is None
    assert held["link"] == "hand"
    assert abs(held["mass"] - MASS) <= max(held["half"], 0.03)
    assert held["since"] == pytest.approx(LIFTED, abs=1.0)
    scene = session.publisher.scene
    assert scene.redraw(session.shared.robot.theta, session.shared.snapshot.payload)
    body = session.shared.robot.body_index("hand")
    assert scene.bodies[-1] == body
    mesh = scene.figure["data"][-1]
    assert mesh["name"].startswith("payload 1")
    assert "±" in mesh["name"]
    section = session.shared.snapshot.payload.section(session.shared.robot, scene.q)
    table = next(block for block in section.blocks if hasattr(block, "rows"))
    low, high = (float(each) for each in table.rows[0][3].split(" to "))
    assert low < held["mass"] < high


def test_another_robot_is_learned_anew(watched: Any) -> None:
    """Lifting is no push that lasts for ever: the robot is another one from then on."""
    states, session = watched
    assert states[-1][1]["contact"]["kind"] is None
    said = [event["message"] for event in session.shared.events.all if event["kind"] == "contact"]
    assert "the robot is another one" in said[-1].lower()
