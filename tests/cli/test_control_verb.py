"""`thetahat control ROBOT --via sim`: the online loop as a verb, its files, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT
from identify_cases import Done

import thetahat as th
from thetahat import robots
from thetahat.control.journal import Journal
from thetahat.excite.trajectories import Moves

Thetahat = Callable[..., Done]
QUICK = ("--duration", 8, "--rate", 500, "--updates", 10, "--window", 30, "--quiet")


@pytest.fixture(scope="module")
def motion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All joints of the arm, to and fro within 3 s."""
    robot = th.load(robots.path("arm4"))
    limits = [node.limits for node in robot.tree.independent]
    centre = np.array([0.5 * (limit.lower + limit.upper) for limit in limits])
    rng = np.random.default_rng(0)
    points = centre + rng.uniform(-0.6, 0.6, (5, 4))
    points[-1] = points[0]
    path = tmp_path_factory.mktemp("motion") / "motion.csv"
    moves = Moves(robot.joint_names, points, np.full(4, 0.75), 0.0)
    return moves.sampled(500.0).save(path)


def test_the_loop_as_a_verb(thetahat: Thetahat, motion: Path, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the answers")
    out = tmp_path / "run"
    done = thetahat("control", "arm4", "--motion", motion, "--out", out, *QUICK, "--json")
    assert done.code == 0
    data = json.loads(done.out)
    schema = json.loads((ROOT / "src/thetahat/schemas/control.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)
    assert 1.0 < data["gate"]["opened_at"] < 5.0
    before, after = (
        np.array([joint[key] for joint in data["joints"]])
        for key in ("tracking_before", "tracking_after")
    )
    assert np.linalg.norm(after) < 0.6 * np.linalg.norm(before)
    saved = th.load(out / data["files"]["robot"])
    nominal = th.load(robots.path("arm4"))
    q = th.random_configuration(nominal, np.random.default_rng(1), 50)
    truth = 1.25 * th.gravity(nominal, q)
    wrong = [np.linalg.norm(th.gravity(robot, q) - truth) for robot in (saved, nominal)]
    assert wrong[0] < 0.3 * wrong[1], "what was planted was found"
    kinds = {record.kind for record in Journal.read(out / "run.journal")}
    assert {"begin", "sample", "gate", "switch", "halt"} <= kinds
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Joint errors" in page
    assert "Identified robot" in page
    assert "spike" not in data["counts"], "encoders that begin to count are no spikes"
    total = [sum(link[key] for link in data["links"]) for key in ("mass", "mass_file")]
    assert total[0] == pytest.approx(sum(saved.theta[9::10])), "the file's masses"
    assert abs(total[0] / total[1] - 1.25) < 0.15
    assert 0.0 < data["cycle_us"]["p50"] < data["cycle_us"]["p99"]
    assert json.loads((out / "summary.json").read_text())["gate"] == data["gate"]
    again = thetahat("control", "arm4", "--motion", motion, "--out", out, *QUICK)
    assert f"The gate opened at {data['gate']['opened_at']:.1f} s." in again.out, "reproducible"


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (["--via", "carrier-pigeon"], 2, "connections: sim"),
        (["--duration", "0"], 2, "--duration is 0"),
        (["--mass", "-1"], 2, "--mass is -1"),
        (["--spread", "0.7"], 2, "--spread is 0.7"),
        (["--threshold", "2"], 2, "--threshold is 2"),
        (["--motion", "nowhere.csv"], 6, "nowhere.csv"),
        (["--plant", "gazebo"], 2, "mujoco, own"),
        (["--payload", "hand:1"], 2, "--payload"),
    ],
)
def test_refusals(
    thetahat: Thetahat, motion: Path, tmp_path: Path, given: list[str], code: int, words: str
) -> None:
    rest = [] if "--motion" in given else ["--motion", motion]
    done = thetahat("control", "arm4", *rest, "--out", tmp_path / "run", *given)
    assert done.code == code
    assert words in done.err
