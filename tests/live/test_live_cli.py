"""`thetahat watch` at the command line: it says what is wrong in one sentence, prints a link that
works, and ends cleanly.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import live_cases as cases
import numpy as np
import prose
import pytest
from data_paths import ROOT
from live_cases import receive, strict

import thetahat as th
from thetahat import robots
from thetahat.data.formats.write_log import write_table
from thetahat.data.memory_log import column_names
from thetahat.live.server import bind_socket

LINK = r"http://127\.0\.0\.1:\d+/\?token=[\w-]{22}"
START = ["--port", "0", "--no-open"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "thetahat.cli", "watch", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "NO_COLOR": "1",
    }


def refused(*arguments: object) -> tuple[int, str]:
    """(exit code, what it says on stderr) of a start that fails, in this process."""
    answer = prose.run(["watch", *map(str, arguments)], Path.cwd())
    assert answer.out == ""
    assert "Traceback" not in answer.err
    return answer.code, answer.err


@contextmanager
def running(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """(the process, the lines it printed to stdout first)."""
    process = subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process, [process.stdout.readline().strip()]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, str]:
    """(exit code, stderr) after a signal."""
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["study", "cartwheel"],
            2,
            "study 'cartwheel' is unknown; studies: double-pendulum, leg, arm, arm-rigid, valkyrie",
        ),
        (["study", "arm", "--host", "0.0.0.0"], 2, "--allow-remote"),
        (["study", "arm", "--speed", "0"], 2, "--speed is 0.0; give a number above 0"),
        (["study", "arm", "--speed", "nan"], 2, "--speed is nan"),
        (["study", "arm", "--port", "70000"], 2, "--port is 70000"),
        (["study", "arm", "--token-file", "absent"], 6, "--token-file absent cannot be read"),
        (["study", "arm", "--plant", "bullet"], 2, "--plant is 'bullet'"),
        (["replay", "arm4", "absent.csv", *START], 6, "absent.csv"),
        (["replay", "absent.urdf", "absent.csv"], 6, "neither a file nor a robot"),
        (["listen", "arm4", "--threshold", "2"], 2, "--threshold is 2.0; give an R² from 0 to 1"),
        (["listen", "arm4", "--friction", "sand"], 2, "--friction names 'sand'"),
        (["listen", "arm4", "--payload-link", "moon", *START], 2, "moon"),
        (["listen"], 2, "ROBOT"),
    ],
    ids=lambda each: "-".join(map(str, each[:4])) if isinstance(each, list) else None,
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], code: int, sentence: str) -> None:
    found, said = refused(*arguments)
    assert found == code, said
    assert sentence in " ".join(said.split()), said
    if not said.startswith("Usage"):
        assert len(said.strip().splitlines()) == 1


def test_a_port_in_use_is_one_sentence() -> None:
    with bind_socket("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        code, said = refused("listen", "arm4", "--port", port, "--no-open")
    assert code == 2
    assert (
        said.strip()
        == f"error: port {port} of 127.0.0.1 is in use; give another with --port, or --port 0 for"
        " any that is free"
    )


@pytest.mark.parametrize("missing", ["uvicorn", "starlette.websockets"])
def test_without_the_extra_it_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("thetahat.live.server",):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    code, said = refused("listen", "arm4")
    assert code == 2
    assert 'which is not installed; pip install "thetahat[web]"' in said
    assert len(said.strip().splitlines()) == 1


def test_it_prints_a_link_that_works_and_ctrl_c_ends_it_with_a_summary() -> None:
    with running("study", "double-pendulum", "--plant", "own", "--speed", "5", *START) as (
        process,
        lines,
    ):
        assert re.fullmatch(LINK, lines[0])
        with urllib.request.urlopen(lines[0], timeout=30) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(lines[0].split("?")[0], timeout=30)
        assert error.value.code == 401
        address = urlsplit(lines[0])
        with cases.connect(f"ws://{address.netloc}/live?{address.query}", max_size=None) as page:
            receive(page, "frame")
            while receive(page, "frame")["t"] < 2.0:
                pass
            process.send_signal(signal.SIGINT)
            assert receive(page, "bye")["reason"] == "stopped"
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "open the link to watch; Ctrl-C ends" in said
    assert re.search(
        r"double-pendulum: \d+ samples in \d+ s .* 0 dropped; \d+ updates, gate (open|closed)"
        r" \(.+\)",
        said,
    ), said
    assert "Traceback" not in said


def test_a_log_is_played_from_the_command_line(tmp_path: Path) -> None:
    robot = th.load(robots.path("arm4"))
    t, q, dq, tau = cases.samples(robot, 3.0, 200.0)
    path = tmp_path / "log.csv"
    write_table(
        path, column_names(robot, ["q", "dq", "tau"]), list(np.column_stack([t, q, dq, tau]).T)
    )
    with running(
        "replay", "arm4", path, "--speed", "3", "--rate", "6", "--window", "12", "--json", *START
    ) as (process, lines):
        text = lines[0]
        while not text.endswith("}"):
            text += process.stdout.readline().strip()
        told = json.loads(text)
        assert (told["schema"], told["mode"], told["joint_states"]) == (
            "thetahat/watch/1",
            "replay",
            None,
        )
        address = urlsplit(told["page"])
        with cases.connect(f"ws://{address.netloc}/live?{address.query}", max_size=None) as page:
            assert receive(page, "hello")["title"] == "log.csv"
            while not receive(page, "frame")["state"]["ended"]:
                pass
        code, said = ended(process, signal.SIGTERM)
    assert code == 0, said
    assert "log.csv: 600 samples" in said


def test_listen_prints_where_to_send_to(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("my-own-token")
    robot = th.load(robots.path("arm4"))
    t, q, dq, tau = cases.samples(robot, 1.0, 100.0)
    with running("listen", "arm4", "--token-file", tmp_path / "token", "--quiet", *START) as (
        process,
        lines,
    ):
        lines.append(process.stdout.readline().strip())
        assert lines[0].endswith("/?token=my-own-token")
        assert lines[1].startswith("ws://127.0.0.1:")
        with cases.connect(lines[1]) as sender:
            sender.send("nonsense")
            assert strict(sender.recv(timeout=30))["frame"] == 1
            for k in range(len(t)):
                sender.send(json.dumps(cases.state(robot, t[k], q[k], dq[k], tau[k])))
        time.sleep(0.2)
        code, said = ended(process)
    assert (code, said) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX")
def test_ctrl_c_of_a_terminal_ends_all_processes_without_last_words() -> None:
    """A terminal sends it to every process of the group: the page's, the loop's, the solver's."""
    process = subprocess.Popen(
        command("listen", "arm4", *START),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert "token=" in process.stdout.readline()
        time.sleep(2.0)  # for the solver's process to be there
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60.0)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=10.0)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said
