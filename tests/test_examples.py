"""Every example runs as a user would run it, and what it makes can be used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RUN_HERE = {"make_log.py", "payload.py"}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == RUN_HERE


def test_make_log_is_identified(tmp_path: Path) -> None:
    log, out = tmp_path / "arm4.csv", tmp_path / "result"
    subprocess.run([sys.executable, EXAMPLES / "make_log.py", log], check=True, capture_output=True)
    command = [sys.executable, "-m", "thetahat.cli", "identify", "arm4", log, "--out", out, "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert answer["r2"]["test"] > 0.995
    # The arm that made the log is 20 % heavier, and what shows of that is the gravity torque of the last joint: m·c of the forearm.
    forearm = answer["links"][-1]
    assert forearm["name"] == "forearm"
    assert json.loads((out / "estimate.json").read_text())["r2"] == answer["r2"]
    import thetahat as th
    from thetahat import robots

    nominal = th.load(robots.path("arm4")).theta[-10:]
    for name, index in (("mcx", 7), ("mcy", 4)):
        assert forearm["theta"][index] == pytest.approx(1.2 * nominal[index], rel=0.05), name


def test_payload_is_found() -> None:
    said = subprocess.run([sys.executable, EXAMPLES / "payload.py"], check=True, capture_output=True, text=True).stdout
    mass = next(line.split() for line in said.splitlines() if line.split()[0] == "mass")
    assert float(mass[1]) == pytest.approx(0.75, rel=0.01)
    assert "a physical body" in said
