"""What the page is told, tick by tick: the model that is really in use, nothing of what was
forgotten, all of what there is, and faults once.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import live_cases as cases
import numpy as np
import pytest
from live_cases import Reader, taken, until

import thetahat as th
from thetahat.control.model_switch import ModelSwitch
from thetahat.errors import UsageError
from thetahat.live.downloads import ParameterTable, Snapshot
from thetahat.live.sample_sources import Study
from thetahat.live.session import Session
from thetahat.live.shared_state import IDENTIFIED, Row, Status
from thetahat.live.viewers import Viewer
from thetahat.online.gate import GateState

OPEN = GateState(True, "all conditions hold")


def row(session: Session, t: float, *, flags: int = 0) -> None:
    """A row as the loop leaves it."""
    shared = session.shared
    x = np.zeros((1, shared.robot.nv))
    error = np.full(shared.robot.nv, 0.1 * t)
    shared.row(Row(t, shared.robot.neutral, error, (x, x, x, x), flags))
    shared.report(Status(t, 0, 0, False, False, 0.0), shared.gate)


def ticked(session: Session, viewer: Viewer) -> list[dict[str, Any]]:
    """What a viewer gets in one more tick."""
    session.publisher._tick()
    return taken(viewer)


@pytest.fixture
def session() -> Session:
    """One that does not run by itself."""
    return Session(cases.study())


# -- the model in use ------------------------------------------------------------------------------


def test_the_model_on_the_page_is_the_one_that_commanded_last(session: Session) -> None:
    """The gate permits, the controller decides: rows of a nominal controller behind an open gate
    are nominal.
    """
    viewer = session.viewers.attach()
    ticked(session, viewer)
    session.shared.gate = OPEN
    for t, flags, model in (
        (0.1, 0, "nominal"),
        (0.2, IDENTIFIED, "identified"),
        (0.3, 0, "nominal"),
    ):
        row(session, t, flags=flags)
        assert ticked(session, viewer)[-1]["state"]["model"] == model
    row(session, 0.4, flags=IDENTIFIED)
    session.shared.gate = GateState(False, "the fit is too old")
    assert ticked(session, viewer)[-1]["state"]["model"] == "nominal"


def test_where_no_controller_of_ours_runs_the_gate_says_which_model_may_be_used() -> None:
    session = Session(cases.listener())
    viewer = session.viewers.attach()
    ticked(session, viewer)
    session.shared.gate = OPEN
    assert ticked(session, viewer)[-1]["state"]["model"] == "identified"


def test_a_model_that_no_controller_can_be_made_of_is_a_fault_and_the_page_says_nominal() -> None:
    made = cases.experiment(seconds=600.0)
    nominal = made.identifier.robot

    def factory(robot: th.Robot) -> th.ComputedTorque:
        if robot is not nominal:
            raise UsageError("its mass matrix is not positive definite")
        return th.ComputedTorque(robot, kp=400.0, kd=40.0)

    controller = made.loop.controller = ModelSwitch(made.identifier, factory, nominal=nominal)
    source = Study("trial", made)
    source.controller = controller
    session = Session(source, speed=5.0)
    reader = Reader(session)
    with session:
        until(lambda: reader.state["gate"].get("open"), "the gate opens")
        until(lambda: any(event["kind"] == "fault" for event in reader.all("event")), "the fault")
        models = {message["state"]["model"] for message in reader.all("frame")}
    reader.close()
    faults = [event["message"] for event in reader.all("event") if event["kind"] == "fault"]
    assert (
        faults[0]
        == "The controller keeps the nominal model: its mass matrix is not positive definite"
    )
    assert models == {"nominal"}


# -- a reset ---------------------------------------------------------------------------------------


def learned(session: Session, t: float) -> None:
    """An update, and parameters that were made of it."""
    robot = session.shared.robot
    x = np.concatenate([1.5 * robot.theta, np.zeros(3 * robot.nv)])
    session.shared.update(t, OPEN, Snapshot(t, None, (), np.zeros(0), 7, {}, x))
    session.publisher.parameters.future = asked = Future()
    rows = ({"name": "mass"},)
    asked.set_result(ParameterTable(t, rows, condition=35.1, theta=1.5 * robot.theta))


def test_nothing_of_what_was_forgotten_stays_on_the_page(session: Session) -> None:
    """Parameters, their condition and the ellipsoids are those of the nominal robot again; a fit
    that was on its way is not shown.
    """
    publisher, viewer = session.publisher, session.viewers.attach()
    begun = ticked(session, viewer)[0]
    assert begun["type"] == "hello"
    learned(session, 1.0)
    after = ticked(session, viewer)
    assert next(message for message in after if message["type"] == "parameters")["rows"]
    assert any(message["type"] == "figure" and message["id"] == "scene" for message in after)
    learned(session, 2.0)
    flying, publisher.parameters.future = publisher.parameters.future, Future()
    session.shared.update(2.5, GateState(False, "the memory is empty"), None)
    ticked(session, viewer)
    publisher.parameters.future and publisher.parameters.future.set_result(flying.result())
    hello = next(
        message
        for _ in range(3)
        for message in ticked(session, viewer)
        if message["type"] == "hello"
    )
    assert hello["parameters"]["rows"] == []
    assert hello["state"]["gate"]["condition"] is None
    ellipsoids = [
        [trace["x"] for trace in message["scene"]["data"][1:]] for message in (begun, hello)
    ]
    assert ellipsoids[0] == ellipsoids[1]
    assert all(
        message["type"] != "parameters" for _ in range(3) for message in ticked(session, viewer)
    )


# -- the end ---------------------------------------------------------------------------------------


def times(messages: list[dict[str, Any]], panel: str = "error") -> list[float]:
    """Of the points that frames bring."""
    return [
        t
        for message in messages
        for lines in [message.get("extend", {}).get(panel)]
        if lines
        for t in lines[0][0]
    ]


def test_the_last_points_of_a_run_are_sent(session: Session) -> None:
    viewer = session.viewers.attach()
    ticked(session, viewer)
    row(session, 0.1)
    assert times(ticked(session, viewer)) == [0.1]
    row(session, 0.2)
    session.shared.end("")
    last = ticked(session, viewer)
    assert times(last) == [0.2]
    assert last[-1]["type"] == "bye"
    assert times(ticked(session, viewer)) == []


def test_the_last_points_before_a_pause_are_sent_and_what_comes_meanwhile_is_not(
    session: Session,
) -> None:
    viewer, shared = session.viewers.attach(), session.shared
    ticked(session, viewer)
    row(session, 0.1)
    shared.report(Status(0.1, 0, 0, False, True, 0.0), shared.gate)
    assert times(ticked(session, viewer)) == [0.1]
    row(session, 0.2)
    shared.report(Status(0.2, 0, 0, False, True, 0.0), shared.gate)
    assert times(ticked(session, viewer)) == []


# -- faults ----------------------------------------------------------------------------------------


def test_a_picture_that_cannot_be_drawn_is_one_sentence_and_an_event(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a traceback a second; and the run goes on."""
    session = Session(cases.study())

    def broken() -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("thetahat.live.publisher.Publisher._read", lambda _: broken())
    for _ in range(3):
        try:
            session.publisher._tick()
        except ZeroDivisionError as error:
            session.publisher._report_failure(error)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "a picture could not be drawn: ZeroDivisionError: oh (broken, line" in said
    told = [event for event in session.shared.events.all if event["kind"] == "fault"]
    assert len(told) == 1
    assert "ZeroDivisionError: oh" in told[0]["message"]
