"""Every example runs as a user would run it, in seconds, without a warning, and says what
is true.
"""

from __future__ import annotations

import io
import json
import re
import runpy
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest
from data_paths import ROOT, shared_file

import thetahat as th
from thetahat import robots

EXAMPLES = ROOT / "examples"
NUMBERED = sorted(EXAMPLES.glob("*.py"))
LIMIT = 60.0  # [s]; each takes under 15, and compiles kernels the first time
LINES = 40  # an example is read by people


@cache
def said(name: str) -> str:
    """What an example prints, in this process: a start of Python each would take longer."""
    out = io.StringIO()
    with redirect_stdout(out), warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error")
        patch.setattr(sys, "argv", [str(EXAMPLES / name)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return out.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=() if path in NUMBERED[:1] else pytest.mark.slow)
        for path in NUMBERED
        if path.name
        not in ("03_make_a_log.py", "13_bridge.py", "14_gait_log.py")  # which take arguments
    ],
)
def test_an_example_runs_from_a_shell(name: str) -> None:
    """With the same words as in this process, but for times."""
    command = [sys.executable, "-W", "error", EXAMPLES / name]
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", check=False, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert re.sub(r"\d", "", done.stdout) == re.sub(r"\d", "", said(name))


def number(pattern: str, text: str) -> float:
    """The number that the pattern's group finds."""
    found = re.search(pattern, text)
    assert found, f"{pattern!r} is not in:\n{text}"
    return float(found[1])


def test_examples_are_numbered_without_gaps_and_each_has_a_test() -> None:
    assert [path.name[:3] for path in NUMBERED] == [
        f"{k:02d}_" for k in range(1, len(NUMBERED) + 1)
    ]
    tested = Path(__file__).read_text(encoding="utf-8")
    for path in NUMBERED:
        assert f'"{path.name}"' in tested, f"{path.name} has no test"


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.name)
def test_an_example_says_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert f"python examples/{path.name}" in text.split('"""')[1]
    assert len(text.splitlines()) < 80


def test_inspect() -> None:
    text = said("01_inspect.py")
    assert len(text.splitlines()) < LINES
    assert text.count("could be built") == 7
    assert number(r"(\d+) base parameters", text) == len(
        th.base_parameters(th.load(robots.path("arm7")))
    )


def test_dynamics() -> None:
    errors = [float(word) for word in re.findall(r"(\d\.\de[-+]\d+)", said("02_dynamics.py"))]
    assert len(errors) == 4
    assert max(errors) < 1e-9


def test_the_log_of_a_heavier_arm_is_identified(tmp_path: Path) -> None:
    log, out = tmp_path / "arm4.csv", tmp_path / "result"
    subprocess.run(
        [sys.executable, EXAMPLES / "03_make_a_log.py", log],
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    command = [
        sys.executable,
        "-m",
        "thetahat.cli",
        "identify",
        "arm4",
        log,
        "--out",
        out,
        "--json",
        "--no-tune",  # docs/quick-start.md is the same, tuned
    ]
    answer = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT).stdout
    )
    assert answer["r2"]["test"] > 0.995
    # The arm that made the log is 20 % heavier, and what shows of that is the gravity torque of the
    # last joint: m·c of the forearm.
    forearm = answer["links"][-1]
    assert forearm["name"] == "forearm"
    assert json.loads((out / "estimate.json").read_text())["r2"] == answer["r2"]
    nominal = th.load(robots.path("arm4")).theta[-10:]
    for name, index in (("mcx", 7), ("mcy", 4)):
        assert forearm["theta"][index] == pytest.approx(1.2 * nominal[index], rel=0.05), name


def test_identify() -> None:
    text = said("04_identify.py")
    assert "rank 36, consistent: True, solved" in text
    assert number(r"R² ([\d.]+) \(nominal", text) > 0.999 > number(r"\(nominal ([\d.]+)\)", text)


def test_payload() -> None:
    """0.75 kg, 6 cm in front of the tool, found within three of its own standard deviations, in
    both ways.
    """
    text = said("05_payload.py")
    for name, truth in (("mass", 0.75), ("com z", 0.06), ("com x", 0.02), ("Izz", 8e-4)):
        found = re.findall(rf"^  {name} +(\S+) +± (\S+)", text, flags=re.MULTILINE)
        assert len(found) == 2, name
        for value, spread in found:
            assert abs(float(value) - truth) < 3.0 * float(spread), name
    assert text.count("a physical body") == 2


def test_design() -> None:
    text = said("06_design_a_motion.py")
    assert number(r"standard deviations ([\d.]+) times", text) > 1.5
    assert max(map(float, re.findall(r"([\d.]+) % of its limit", text))) <= 100.0


def test_coupled_wrist() -> None:
    text = said("07_coupled_wrist_actuation.py")
    assert number(r"joint by joint .* two joints (\S+)", text) < 0.5
    assert number(r"with the map .* two joints (\S+)", text) > 0.999
    assert number(r"with the map .* motor 6: (\S+)", text) == pytest.approx(2.0, abs=0.02)


def test_sideways() -> None:
    text = said("08_sideways_gravity.py")
    assert "90° away" in text
    assert "--gravity 9.81,0,0" in text
    assert number(r"as the file says +held-out R² (\S+)", text) < 0.6
    assert number(r"sideways +held-out R² (\S+)", text) > 0.999


def test_currents() -> None:
    text = said("09_currents.py")
    assert number(r"all gains known: R² ([\d.]+),", text) > 0.999
    assert "no gain known: no motor gain is known" in text
    assert number(r"gain_elbow: (\S+)", text) == pytest.approx(8.0, rel=0.01)


def test_merging() -> None:
    text = said("10_merge_logs.py")
    ranks = [int(word) for word in re.findall(r"rank (\d+) of 36", text)]
    assert max(ranks[:2]) < ranks[2] == 36
    assert number(r"differ by (\S+)", text) < 1e-9


def test_write_back() -> None:
    text = said("11_write_back.py")
    assert "offset in drive.json" in text
    assert number(r"torques agree to (\S+)", text) < 1e-9
    assert number(r"read back differ by (\S+)", text) < 1e-9
    lines, everything = re.search(r"(\d+) of (\d+) lines differ", text).groups()
    assert 6 <= int(lines) < 0.2 * int(everything)


def test_online_and_control() -> None:
    text = said("12_online_and_control.py")
    assert 5.0 <= number(r"^(\S+) s: open", text) <= 17.5
    offs = re.findall(r"by +(\S+) mrad before, +(\S+) after", text)
    assert len(offs) == 4
    assert all(float(after) < 0.2 * float(before) for before, after in offs)


def test_bridge_says_what_it_needs() -> None:
    """That it feeds the page is tested where the page is: tests/live/test_live_listen.py."""
    pytest.importorskip("websockets", reason='the live page needs pip install "thetahat[web]"')
    done = subprocess.run(
        [sys.executable, EXAMPLES / "13_bridge.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 1
    assert "thetahat watch listen arm7" in done.stderr


def test_a_walking_trial_becomes_a_log_of_a_floating_base(tmp_path: Path) -> None:
    log = tmp_path / "gait.csv"
    subprocess.run(
        [sys.executable, EXAMPLES / "14_gait_log.py", shared_file("logs", "gait"), log],
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    names = log.read_text(encoding="utf-8").splitlines()[0].split(",")
    assert {"t", "base.x", "base.qw", "q.knee_angle_r", "wrench.calcn_l.tz"} <= set(names)
