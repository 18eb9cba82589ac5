"""Downloads of the live page: made beside everything else, whole or refused in a sentence, whatever
the names are made of.
"""

from __future__ import annotations

import json
import math
import threading
import time
from concurrent.futures import Future
from typing import Any

import live_cases as cases
import numpy as np
import pytest
from live_cases import Reader, get, receive, served, until, viewer

import thetahat as th
from thetahat.errors import NotIdentifiable
from thetahat.live import server as serving
from thetahat.live import session as session_module
from thetahat.live import viewers as messages
from thetahat.live.downloads import DownloadRequest, Downloads, Snapshot
from thetahat.live.joint_states import MOST_NAMES, BadFrame, Decoder, Sample
from thetahat.live.publisher import needs_drive_file
from thetahat.live.session import NotReady, Session

MADE = Downloads(b"{}\n", b"<robot/>", "arm4_identified.urdf", None, b"<!DOCTYPE html>")


def test_nothing_that_waits_runs_in_the_thread_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A download asks for what it needs once, and not where all other requests would wait
    for it.
    """
    asked: list[str] = []

    def downloads() -> Downloads:
        asked.append(threading.current_thread().name)
        return MADE

    with served(cases.listener()) as server:
        monkeypatch.setattr(server.session, "downloads", downloads)
        status, body, headers = get(server, "/download/robot")
        assert (status, body) == (200, MADE.robot)
        assert "arm4_identified.urdf" in headers["content-disposition"]
        assert len(asked) == 1
        assert "thetahat-server" not in asked


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [("robot", 409, "see advice in estimate.json"), ("drive.json", 404, "there is no drive.json")],
)
def test_a_file_that_is_not_there_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, status: int, reason: str
) -> None:
    def downloads() -> Any:
        return Downloads(b"{}\n", None, "arm4_identified.urdf", None, b"")

    with served(cases.listener()) as server:
        monkeypatch.setattr(server.session, "downloads", downloads)
        found = get(server, f"/download/{name}")
        assert found[0] == status
        assert reason in found[1].decode()


# -- names that are no text ------------------------------------------------------------------------

HALF = "gripper\ud800"  # JSON can say it ("\\ud800"), UTF-8 cannot


def test_whatever_is_said_can_be_sent() -> None:
    for message in ({"name": HALF}, {HALF: math.nan}, [HALF, "R² ≥ 0.95", "😀"]):
        told = messages.to_json(message)
        json.loads(told.encode("utf-8"))
        assert "gripper\ufffd" in told
    assert messages.to_json({"reason": "R² ≥ 0.95, 😀"}) == '{"reason":"R² ≥ 0.95, 😀"}'


def test_a_joint_whose_name_is_no_text_harms_no_viewer_and_no_file() -> None:
    """Half a letter in a name that a sender makes up: viewers before and after see the event, and
    all files can be taken home.
    """
    source = cases.listener()
    robot = source.nominal
    t, q, dq, tau = cases.samples(robot, 3.0, 200.0)
    with (
        served(source) as server,
        viewer(server) as page,
        viewer(server, "/joint-states") as sender,
    ):
        receive(page, "hello")
        for k in range(len(t)):
            frame = cases.state(robot, t[k], q[k], dq[k], tau[k])
            extra = {
                "name": [*frame["name"], HALF],
                **{part: [*frame[part], 0.0] for part in ("position", "velocity", "effort")},
            }
            sender.send(json.dumps({"t": frame["t"], **extra}))
        until(
            lambda: (
                server.session.shared.snapshot is not None
                and server.session.shared.snapshot.count >= 12
            ),
            "something is learned",
        )
        receive(page, "frame")
        with viewer(server) as later:
            told = [event["message"] for event in receive(later, "hello")["events"]]
        assert any("gripper\ufffd" in message for message in told)
        for name in ("report.html", "estimate.json", "robot", "drive.json"):
            assert get(server, f"/download/{name}")[0] == 200, name
        assert "are ignored: gripper" in get(server, "/download/report.html")[1].decode("utf-8")


def test_a_log_whose_name_is_no_text_can_be_watched_and_taken_home() -> None:
    source = cases.listener()
    source.title = "run\udcff.csv"
    source.provenance = {"logs": [{"path": "/logs/run\udcff.csv", "sha256": "0" * 64}]}
    robot = source.nominal
    t, q, dq, tau = cases.samples(robot, 3.0, 200.0)
    session = Session(source)
    reader = Reader(session)
    with session:
        for k in range(len(t)):
            source.offer(Sample(t[k], q[k], dq[k], tau[k]))
        until(
            lambda: session.shared.snapshot is not None and session.shared.snapshot.count > 5,
            "something is learned",
        )
        until(lambda: bool(reader.all("hello")), "the whole picture")
        assert reader.all("hello")[0]["title"] == "run\ufffd.csv"
        made = session.downloads()
        assert json.loads(made.estimate)["provenance"]["logs"][0]["path"] == "/logs/run\ufffd.csv"
        assert "Live run" in made.report.decode("utf-8")
    reader.close()


def test_a_sender_that_changes_its_names_all_the_time_does_not_fill_the_events() -> None:
    """Two lists of names in turn, 200 times a second for three seconds: told a few times, and
    counted.
    """
    source = cases.listener()
    robot = source.nominal
    t, q, dq, tau = cases.samples(robot, 3.0, 200.0)
    with served(source) as server, viewer(server, "/joint-states") as sender:
        for k in range(len(t)):
            frame = cases.state(robot, t[k], q[k], dq[k], tau[k])
            extra = [f"finger_{k % 2}"]
            sender.send(
                json.dumps(
                    {
                        "t": frame["t"],
                        "name": frame["name"] + extra,
                        **{p: [*frame[p], 0.0] for p in ("position", "velocity", "effort")},
                    }
                )
            )
        until(lambda: server.session.shared.cycles == len(t), "all samples")
        told = [
            event for event in server.session.shared.events.all if "are ignored" in event["message"]
        ]
        assert 1 <= len(told) <= 5


def test_naming_thousands_of_joints_twice_is_refused_quickly() -> None:
    decoder, names = (
        Decoder(cases.listener().nominal),
        [f"joint {k}" for k in range(MOST_NAMES - 1)],
    )
    begun = time.process_time()
    for _ in range(10):
        with pytest.raises(BadFrame, match="'joint 4094' is named twice"):
            decoder.decode(json.dumps({"name": [*names, names[-1]]}))
    assert time.process_time() - begun < 0.5, (
        "ten frames of 60 kB; comparing every name with all before it takes a second"
    )


# -- what takes long -------------------------------------------------------------------------------


def test_an_answer_that_takes_long_to_make_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that a reader has to take an answer begins when there is one."""
    monkeypatch.setattr(serving, "PATIENCE", 0.2)
    monkeypatch.setattr(serving, "ANSWER", 0.5)

    def downloads() -> Downloads:
        time.sleep(2.0)
        return MADE

    assert serving.MAKING > session_module.PATIENCE
    with served(cases.listener()) as server:
        monkeypatch.setattr(server.session, "downloads", downloads)
        assert get(server, "/download/estimate.json")[:2] == (200, MADE.estimate)


def test_who_was_sent_away_gets_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for what is not done yet hears so in a sentence; once it is done, the next one gets
    it, though more was learned since.
    """
    monkeypatch.setattr(session_module, "PATIENCE", 0.1)
    session, asked = Session(cases.listener()), []

    def request(_: object, wanted: DownloadRequest) -> Future:
        asked.append((wanted.snapshot.t, Future()))
        return asked[-1][-1]

    def learn(t: float) -> None:
        session.shared.update(
            t, session.shared.gate, Snapshot(t, None, (), np.zeros(0), 7, {}, None)
        )

    monkeypatch.setattr(session.worker, "submit", request)
    learn(1.0)
    for t in (1.0, 2.0):
        with pytest.raises(NotReady, match=r"not ready after 0.1 s; try again in a while"):
            session.downloads()
        learn(t + 1.0)
    assert len(asked) == 1, "another would wait behind it"
    asked[0][-1].set_result(MADE)
    assert session.downloads() is MADE
    with pytest.raises(NotReady):
        session.downloads()
    assert [t for t, _ in asked] == [1.0, 3.0], "the next is of what is known now"
    session.shared.update(3.5, session.shared.gate, None)
    learn(4.0)
    with pytest.raises(NotReady):
        session.downloads()
    assert [t for t, _ in asked] == [1.0, 3.0, 4.0], "what was forgotten is not handed out"
    asked[2][-1].set_exception(RuntimeError("the process died"))
    with pytest.raises(
        NotIdentifiable, match="could not be written: RuntimeError the process died"
    ):
        session.downloads()


def test_an_unfinished_file_is_told_apart_from_one_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def downloads() -> Downloads:
        raise NotReady("it is not written up after 120 s; ask again in a while")

    with served(cases.listener()) as server:
        monkeypatch.setattr(server.session, "downloads", downloads)
        status, body, headers = get(server, "/download/report.html")
        assert (status, headers["retry-after"]) == (503, "10")
        assert "ask again" in json.loads(body)["error"]


def test_those_who_ask_at_once_share_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Slow:
        def __init__(self, *_: object, **__: object) -> None:
            time.sleep(0.05)
            made.append(self)

        def submit(self, *_: object) -> Future:
            return Future()

    monkeypatch.setattr("thetahat.live.session.ProcessPoolExecutor", Slow)
    worker = Session(cases.listener()).worker
    threads = [threading.Thread(target=worker.submit, args=(None, None)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


# -- drive.json ------------------------------------------------------------------------------------


def test_the_page_offers_drive_json_where_the_robot_file_cannot_hold_all() -> None:
    """The greeting says so: no format holds an offset, and URDF no rotor inertia."""
    robot = th.load(cases.robots.path("arm4"))
    for terms, offered in (
        (("viscous", "coulomb"), False),
        (("viscous", "coulomb", "offset"), True),
        (("armature",), True),
        ((), False),
    ):
        assert (
            needs_drive_file(robot.with_drive(**dict.fromkeys(terms, True)) if terms else robot)
            is offered
        )
    with served(cases.study()) as server, viewer(server) as page:
        assert receive(page, "hello")["drive_file"]
