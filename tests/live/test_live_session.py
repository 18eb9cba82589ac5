"""A session: the page is told what the loop did, commands do what they say, viewers cost the loop
nothing, and what is taken home is sound.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import live_cases as cases
import numpy as np
import pytest
from live_cases import Reader, taken, until

import thetahat as th
from thetahat.dynamics.rigid_body import body_frames
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.live.sample_sources import Study
from thetahat.live.session import Session
from thetahat.live.viewers import QUEUE
from thetahat.studies import arm, double_pendulum, leg, valkyrie

SCHEMA = Path(th.__file__).parent / "schemas" / "estimate.json"


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[Session, Reader]]:
    """A trial that has run for long enough to open its gate, and goes on."""
    session = Session(cases.study(seconds=600.0), speed=3.0)
    reader = Reader(session)
    with session:
        until(lambda: reader.state.get("model") == "identified", "the gate opens")
        yield session, reader
        reader.close()


# -- what is told ----------------------------------------------------------------------------------


def test_the_first_message_is_the_whole_picture(watched: tuple[Session, Reader]) -> None:
    session, reader = watched
    hello = reader.messages[0]
    assert hello["type"] == "hello"
    assert [panel["id"] for panel in hello["panels"]] == [
        "r2",
        "torque:0",
        "error",
        "fill",
        "cycle",
    ]
    assert hello["joints"] == list(session.source.nominal.joint_names)
    assert hello["units"] == ["N·m"] * 4
    assert (hello["mode"], hello["threshold"], hello["window"]) == ("study", 0.95, 24)
    assert [trace["type"] for trace in hello["scene"]["data"]] == [
        "scatter3d",
        *["mesh3d"] * len(hello["bodies"]),
    ]
    for panel in hello["panels"]:
        assert set(panel["figure"]) >= {"data", "layout"}


def test_frames_come_in_order_and_their_points_are_those_of_the_loop() -> None:
    """The points of all frames put together are the rows that the loop left, each once: compared
    with what a wrapped loop saw itself.
    """
    made = cases.experiment(seconds=4.0)
    seen: list[tuple[float, np.ndarray]] = []
    inner = made.loop.cycles

    def cycles() -> Iterator[Any]:
        for cycle in inner():
            yield cycle
            seen.append((cycle.t, cycle.wanted[0] - cycle.true))

    made.loop.cycles = cycles
    session = Session(Study("trial", made), speed=2.0)
    reader = Reader(session)
    with session:
        until(lambda: bool(reader.all("bye")), "the end")
    reader.close()
    hello, frames = reader.messages[0], reader.all("frame")
    assert [frame["seq"] for frame in frames] == sorted({frame["seq"] for frame in frames})
    points: dict[float, list[float]] = {}
    begun = next(panel["figure"]["data"] for panel in hello["panels"] if panel["id"] == "error")
    for k, t in enumerate(begun[0]["x"]):
        points[t] = [trace["y"][k] for trace in begun[:4]]
    for frame in frames:
        lines = frame["extend"].get("error", [])
        for k, t in enumerate(lines[0][0] if lines else []):
            assert t not in points, "every point comes once"
            points[t] = [line[1][k] for line in lines]
    true = {round(t, 4): error for t, error in seen}
    assert len(points) >= 0.9 * 4.0 * 50.0
    for t, values in points.items():
        np.testing.assert_allclose(values, true[t], rtol=1e-4, atol=1e-6)
    assert len(frames) / 2.0 >= 25.0, "frames per second, on a busy machine"


def test_the_prediction_on_the_page_is_that_of_what_was_identified(
    watched: tuple[Session, Reader],
) -> None:
    """Once the gate is open, measured and predicted torque of the page agree as R² says; the
    nominal robot's do not.
    """
    _, reader = watched
    begin = len(reader.messages)
    until(
        lambda: sum("torque:0" in each.get("extend", {}) for each in reader.messages[begin:]) > 60,
        "sixty extensions",
    )
    lines = [
        np.array(
            [
                y
                for each in reader.messages[begin:]
                for y in each.get("extend", {}).get("torque:0", [[[], []]] * 3)[k][1]
            ]
        )
        for k in range(3)
    ]
    measured, predicted, nominal = lines
    left = [np.sum((measured - line) ** 2) / np.sum(measured**2) for line in (predicted, nominal)]
    assert left[0] < 0.05
    assert left[1] > 3.0 * left[0]


def test_the_robot_on_the_page_stands_where_its_joints_are(watched: tuple[Session, Reader]) -> None:
    """Bodies' places against the library's own kinematics at a pose that is on the page."""
    session, reader = watched
    frame = reader.all("frame")[-1]
    R, p = (np.array([body[part] for body in frame["bodies"]]) for part in (slice(9), slice(9, 12)))
    ends = np.array(
        [
            end
            for end in zip(*(frame["pose"][axis] for axis in "xyz"), strict=True)
            if end[0] is not None
        ]
    ).reshape(-1, 2, 3)
    # The arm's joints turn about known axes of the body before: each body's rotation against its
    # parent's leaves that axis where it is.
    robot = session.shared.robot
    R = R.reshape(-1, 3, 3)
    np.testing.assert_allclose(
        R @ R.transpose(0, 2, 1), np.broadcast_to(np.eye(3), R.shape), atol=1e-3
    )
    away, at = body_frames(robot, robot.neutral)
    for b in range(1, robot.nv):
        bone, still = R[b - 1].T @ (p[b] - p[b - 1]), away[b - 1].T @ (at[b] - at[b - 1])
        np.testing.assert_allclose(
            bone, still, atol=1e-3, err_msg="a joint stays where it is on the body that carries it"
        )
        assert np.min(np.linalg.norm(ends.reshape(-1, 3) - p[b], axis=1)) < 2e-4, (
            "bones end where bodies begin"
        )


def test_a_switch_draws_the_ground_and_is_an_event(watched: tuple[Session, Reader]) -> None:
    _, reader = watched
    until(
        lambda: any(message["id"] == "error" for message in reader.all("figure")),
        "the figure with its ground",
    )
    names = [
        trace["name"]
        for trace in next(m for m in reader.all("figure") if m["id"] == "error")["figure"]["data"]
    ]
    assert "identified model in use" in names
    assert any(
        event["kind"] == "gate" and event["message"].startswith("The gate opened")
        for event in reader.all("event")
    )


def test_parameters_come_with_intervals_beside_nominal(watched: tuple[Session, Reader]) -> None:
    session, reader = watched
    until(
        lambda: any(row["identified"] for each in reader.all("parameters") for row in each["rows"]),
        "parameters",
    )
    rows = reader.all("parameters")[-1]["rows"]
    assert len(rows) == reader.state["gate"]["structural_rank"]
    known = [row for row in rows if row["identified"]]
    truth = cases.perturb(session.source.nominal, seed=0)
    base = th.base_parameters(session.shared.robot)
    drive = [truth.drive.value(term) for term in session.shared.robot.drive.identified]
    true = base.map @ np.concatenate([truth.theta, *drive])
    large = [
        (row["value"], value)
        for row, value in zip(rows, true, strict=True)
        if row["identified"] and abs(value) > 0.1
    ]
    assert len(known) > 20
    assert len(large) > 5
    assert np.median([abs(value - truly) / abs(truly) for value, truly in large]) < 0.2, (
        "values are near the truth"
    )
    times = [each["t"] for each in reader.all("parameters")]
    assert times == sorted(times)


def test_being_watched_changes_nothing() -> None:
    """The estimate of a run with viewers is that of the same run without a page, bit for bit."""
    plain = cases.experiment(seconds=3.0)
    for _ in plain.loop.cycles():
        pass
    made = cases.experiment(seconds=3.0)
    session = Session(Study("trial", made), speed=5.0)
    readers = [Reader(session) for _ in range(3)]
    with session:
        until(lambda: session.shared.ended, "the end")
    for reader in readers:
        reader.close()
    np.testing.assert_array_equal(made.identifier.estimate.x, plain.identifier.estimate.x)
    assert made.identifier.gate.r2 == plain.identifier.gate.r2
    assert made.controller.switches == plain.controller.switches


# -- commands --------------------------------------------------------------------------------------


def test_the_nominal_model_is_forced_and_released_while_the_gate_stays_open() -> None:
    session = Session(cases.study(seconds=600.0, window=40, updates=10.0), speed=5.0)
    reader = Reader(session)
    with session:
        until(
            lambda: (
                session.source.identifier.clock > 6.0 and reader.state.get("model") == "identified"
            ),
            "the gate opens, for good",
        )
        session.command("force_nominal")
        until(lambda: reader.state["forced"], "forced")
        time.sleep(0.2)
        for _ in range(50):
            assert session.source.identifier.gate.open, "the gate itself is honest, and stays open"
            assert not session.source.controller.identified, "not a cycle on the identified model"
            assert reader.state["model"] == "nominal"
            time.sleep(0.01)
        session.command("release")
        until(lambda: session.source.controller.identified, "back on the identified model")
        until(lambda: reader.state["model"] == "identified", "and the page says so")
        step = session.source.controller.max_torque_step
        assert 0.0 < step <= 50.0 / 500.0 * (1.0 + 1e-9), (
            "released without a bump: 50 N·m/s at 500 Hz"
        )
        assert [event["kind"] for event in reader.all("event")].count("forced") == 2
        session.command("reset")
        until(lambda: not reader.state["gate"]["open"], "the gate closes")
        until(lambda: len(reader.all("hello")) == 2, "the whole picture again")
        assert reader.state["gate"]["fill"] < 40
        assert any(event["kind"] == "reset" for event in reader.all("hello")[-1]["events"])
        until(lambda: reader.state["gate"]["open"], "and it opens again on new evidence")
    reader.close()


def test_a_pause_stops_the_clock_and_not_the_page() -> None:
    session = Session(cases.study(), speed=1.0)
    reader = Reader(session)
    with session:
        until(lambda: len(reader.all("frame")) > 10, "frames")
        session.command("pause")
        until(lambda: reader.state["paused"], "paused")
        time.sleep(0.1)
        cycles, frames = session.shared.cycles, len(reader.all("frame"))
        time.sleep(1.2)
        assert session.shared.cycles == cycles
        assert len(reader.all("frame")) > frames, "the page hears that the server is there"
        session.command("reset")
        until(
            lambda: any(event["kind"] == "reset" for event in session.shared.events.all),
            "commands are obeyed meanwhile",
        )
        session.command("resume")
        until(lambda: session.shared.cycles > cycles + 50, "it goes on")
        assert session.shared.cycles < cycles + 2000, "and does not hurry after what it missed"
    reader.close()


def test_commands_that_make_no_sense_are_refused_with_the_reason() -> None:
    session = Session(Study("leg", leg.experiment("own", duration=2.2)), speed=100.0)
    with pytest.raises(UsageError, match="commands: pause, resume"):
        session.command("explode")
    with pytest.raises(UsageError, match="its controller always uses the nominal model"):
        session.command("force_nominal")
    with pytest.raises(NotIdentifiable, match="nothing identified yet"):
        session.downloads()
    with session:
        until(lambda: session.shared.ended, "the end")
        with pytest.raises(UsageError, match="the run is over"):
            session.command("pause")
    assert Session(cases.listener()).source.forcible is False


def test_a_loop_that_fails_is_told_and_does_not_take_the_page_with_it() -> None:
    made = cases.experiment()

    def broken(*_: object) -> np.ndarray:
        raise ZeroDivisionError("oh")

    made.loop.controller = broken
    session = Session(Study("trial", made))
    reader = Reader(session)
    with session:
        until(lambda: bool(reader.all("bye")), "the end")
        assert "ZeroDivisionError" in reader.all("bye")[0]["message"]
        assert reader.state["ended"]
    reader.close()


# -- viewers ---------------------------------------------------------------------------------------


def test_a_viewer_that_takes_nothing_costs_a_bounded_queue_and_gets_the_picture_later() -> None:
    session = Session(cases.study(), speed=1.0)
    lazy, reader = session.viewers.attach(), Reader(session)
    with session:
        until(lambda: len(reader.all("frame")) > 2 * QUEUE, "many frames")
        assert lazy.dropped > 0
        assert len(lazy._queue) <= QUEUE
        assert reader.viewer.dropped == 0, "others do not suffer"
        until(
            lambda: any(message["type"] == "hello" for message in taken(lazy)), "the whole picture"
        )
        assert reader.state["dropped"]["frames"] > 0
    reader.close()


def test_a_viewer_that_draws_too_slowly_gets_the_newest_picture_instead_of_a_backlog() -> None:
    session = Session(cases.study(), speed=1.0)
    slow = session.viewers.attach()
    with session:
        until(lambda: any(message["type"] == "frame" for message in taken(slow)), "frames")
        slow.acknowledge(0)  # it answers, but never to a frame of now
        end, kinds = time.monotonic() + 6.0, []
        while time.monotonic() < end:
            kinds += [message["type"] for message in taken(slow)]
            time.sleep(0.01)
        assert kinds.count("hello") >= 1
        assert kinds.count("frame") < 0.9 * 6.0 * 40.0
        slow.acknowledge(10**9)
        kinds = []
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            kinds += [message["type"] for message in taken(slow)]
            time.sleep(0.01)
        assert kinds.count("frame") > 10


def test_each_viewer_sees_the_joint_it_chose() -> None:
    session = Session(cases.study(), speed=1.0)
    first, second = Reader(session), Reader(session)
    with session:
        until(lambda: len(first.all("frame")) > 5, "frames")
        second.viewer.joint = 3
        until(
            lambda: any(message["id"] == "torque:3" for message in second.all("figure")),
            "the figure of joint 3",
        )
        until(
            lambda: any("torque:3" in frame["extend"] for frame in second.all("frame")),
            "its points",
        )
        assert not any("torque:3" in frame["extend"] for frame in first.all("frame"))
    first.close()
    second.close()


# -- 44 joints -------------------------------------------------------------------------------------


def test_of_many_joints_the_worst_the_median_and_the_chosen_one_are_drawn() -> None:
    session = Session(Study("valkyrie", valkyrie.experiment("own")), speed=1.0)
    reader = Reader(session)
    with session:
        begun = time.monotonic()
        until(lambda: len(reader.all("frame")) > 40, "frames")
        rate = 40.0 / (time.monotonic() - begun)
        hello = reader.messages[0]
        names = {
            panel["id"]: [trace["name"] for trace in panel["figure"]["data"]]
            for panel in hello["panels"]
        }
        assert len(hello["joints"]) == 44
        assert names["error"][:3] == ["worst joint", "median joint", f"joint {hello['joints'][0]}"]
        assert len(names["r2"]) <= 8
        lines = next(
            frame["extend"]["error"]
            for frame in reversed(reader.all("frame"))
            if "error" in frame["extend"]
        )
        assert lines[0][1][-1] >= lines[1][1][-1] >= 0.0, (
            "the worst error is no smaller than the median"
        )
        reader.viewer.joint = 17
        until(
            lambda: (
                {message["id"] for message in reader.all("figure")} >= {"torque:17", "r2", "error"}
            ),
            "figures of joint 17",
        )
    reader.close()
    assert rate >= 10.0
    assert max(len(json.dumps(frame)) for frame in reader.all("frame")) < 40_000


# -- studies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "study"), [("arm", arm), ("leg", leg), ("double-pendulum", double_pendulum)]
)
def test_every_study_can_be_watched(name: str, study: Any) -> None:
    session = Session(Study(name, study.experiment("own")), speed=20.0)
    reader = Reader(session)
    with session:
        until(
            lambda: session.source.identifier.updates > 4 and len(reader.all("frame")) > 10,
            "updates",
        )
    reader.close()
    assert session.shared.failure == ""
    assert reader.all("frame")[-1]["t"] > 1.0


# -- what is taken home ----------------------------------------------------------------------------


def test_what_is_taken_home_is_sound(watched: tuple[Session, Reader], tmp_path: Path) -> None:
    """The estimate validates against its schema, the robot's file gives the estimate's torques, the
    report is a page; all of one moment.
    """
    session, _ = watched
    made = session.downloads()
    found = json.loads(made.estimate)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(found)
    assert found["consistent"]
    assert min(found["r2"]["train"], found["r2"]["test"]) > 0.9
    path = tmp_path / made.robot_name
    path.write_bytes(made.robot)
    (tmp_path / "drive.json").write_bytes(made.drive)
    again = th.load(path)
    theta = np.concatenate([link["theta"] for link in found["links"]])
    np.testing.assert_allclose(again.theta, theta, rtol=1e-9, atol=1e-12)
    page = made.report.decode()
    for title in ("Live run", "Verdict", "Parameters", "Provenance"):
        assert f">{title}</h2>" in page
    assert page.startswith("<!DOCTYPE html>")


@pytest.mark.slow
def test_a_memory_that_only_grows_can_be_taken_home_too() -> None:
    session = Session(Study("leg", leg.experiment("own", duration=6.0)), speed=20.0)
    with session:
        until(lambda: session.shared.ended, "the end")
        found = json.loads(session.downloads().estimate)
        jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(
            found
        )
        assert session.downloads().robot_name == "valkyrie_leg_identified.urdf"
        assert b"Live run" in session.downloads().report
