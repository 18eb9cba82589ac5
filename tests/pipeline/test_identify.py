"""`th.identify` is `thetahat identify`: same input, same settings, same answer, whichever way it is
asked.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import golden_numbers
import numpy as np
import pandas
import polars
import pytest
import simulated_log
from data_paths import shared_file

import thetahat as th
from thetahat import cli, robots
from thetahat.errors import MalformedInput, UsageError

SAME = 1e-9  # of the largest base parameter: both ways run the same code on the same rows
QUICK = th.IdentifySettings(tune=False, report=False)
REAL = {
    "panda": ("panda/panda_nomesh_from_example_robot_data.urdf", "panda/panda_exciting_traj1.csv"),
    "ur10": ("ur10/ur10_nomesh.urdf", "ur10/ur10_exciting.csv"),
    "kr300": ("kr300/kr300_from_dh.urdf", "kr300/kr300.csv"),
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_log.simulated(tmp_path_factory.mktemp("log"), noise=0.02)


@pytest.fixture(scope="module")
def result(log: Path) -> th.Identification:
    return th.identify("arm4", log)


@pytest.fixture(scope="module")
def shell(log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What the same command prints, and the folder it writes to."""
    folder = tmp_path_factory.mktemp("shell")
    return command("arm4", log, "--out", folder), folder


def command(*arguments: object) -> dict[str, Any]:
    """What `thetahat identify … --json` prints."""
    out = io.StringIO()
    argv = ["thetahat", "identify", *map(str, arguments), "--json", "--quiet"]
    with (
        patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    assert not ended.value.code
    return json.loads(out.getvalue())


def values(data: dict[str, Any]) -> np.ndarray:
    return np.array([entry["value"] for entry in data["base_parameters"]])


def require_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert [entry["name"] for entry in a["base_parameters"]] == [
        entry["name"] for entry in b["base_parameters"]
    ]
    assert np.max(np.abs(values(a) - values(b))) <= SAME * np.max(np.abs(values(a)))
    assert a["r2"] == pytest.approx(b["r2"], abs=SAME)
    for key in ("level", "summary", "reasons"):
        assert a["verdict"][key] == b["verdict"][key]


# -- the same answer -------------------------------------------------------------------------------


def test_python_and_the_command_line_give_the_same_answer(
    result: th.Identification, shell: tuple[dict[str, Any], Path]
) -> None:
    require_same(result.data, shell[0])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "valkyrie" else ())
        for name in robots.names()
    ],
)
def test_on_every_shipped_robot(name: str, tmp_path: Path) -> None:
    robot = th.load(robots.path(name))
    t, q, dq, ddq = simulated_log.motion(robot.nv, seconds=6.0)
    tau = th.inverse_dynamics(robot, q, dq, ddq) + simulated_log.drive(dq, ddq)
    log = simulated_log.write_csv(tmp_path / "log.csv", *simulated_log.table(t, q, tau, dq))
    mine = th.identify(name, log, settings=QUICK).data
    theirs = command(name, log, "--out", tmp_path / "out", "--no-tune", "--no-report")
    require_same(mine, theirs)


@pytest.mark.parametrize(
    "name", ["ur10", *(pytest.param(each, marks=pytest.mark.slow) for each in ("panda", "kr300"))]
)
def test_on_real_logs(name: str, tmp_path: Path) -> None:
    """And both are the golden numbers: what takes long is run once."""
    robot, log = (shared_file("logs", *part.split("/")) for part in REAL[name])
    theirs = command(robot, log, "--out", tmp_path)
    require_same(th.identify(robot, log).data, theirs)
    golden_numbers.check(f"real/{name}", golden_numbers.of_estimate(theirs))


def test_the_files_saved_are_those_of_the_command(
    result: th.Identification, shell: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    saved = result.save(tmp_path)
    names = {path.name for path in saved.files}
    assert names == {path.name for path in shell[1].iterdir()}
    written = ("arm4_identified.urdf", "drive.json", "posterior.npz")
    assert names == {"estimate.json", "report.html", *written}
    for name in written:
        assert (tmp_path / name).read_bytes() == (shell[1] / name).read_bytes()
    mine, theirs = (
        (folder / "estimate.json").read_text().replace(str(folder), "FOLDER")
        for folder in (tmp_path, shell[1])
    )
    assert json.loads(mine) == json.loads(theirs)


# -- what logs may be ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["paths", "log", "polars", "pandas", "mapping"])
def test_logs_of_every_kind(kind: str, log: Path) -> None:
    robot = th.load(robots.path("arm4"))
    frame = polars.read_csv(log)
    given: Any = {
        "paths": lambda: [log],
        "log": lambda: th.read_log(log, robot),
        "polars": lambda: frame,
        "pandas": lambda: pandas.DataFrame(frame.to_dict(as_series=False)),
        "mapping": lambda: {name: frame[name].to_numpy() for name in frame.columns},
    }[kind]()
    a, b = (th.identify(robot, each, settings=QUICK).data for each in (log, given))
    assert np.array_equal(values(a), values(b))


def test_samples_are_used_as_they_are(log: Path) -> None:
    robot = th.load(robots.path("arm4"))
    samples = th.prepare(th.read_log(log, robot), robot, cutoff=10.0)
    result = th.identify(robot, samples)
    assert result.data["provenance"]["settings"]["cutoff"] == 10.0
    assert result.data["samples"] == round(0.7 * len(samples))
    assert result.scores is not None
    assert result.scores.r2_total > 0.999
    train, test = samples.split(0.5)
    other = th.identify(robot, train, test=test, settings=QUICK)
    assert other.scores is not None
    assert other.scores.samples == len(test)


def test_a_table_that_cannot_be_used_is_one_sentence(log: Path) -> None:
    frame = pandas.read_csv(log).astype(object)
    frame.iloc[7, 3] = "broken"
    with pytest.raises(MalformedInput, match="broken"):
        th.identify("arm4", frame)
    with pytest.raises(UsageError, match="pandas or polars"):
        th.identify("arm4", 3.0)


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "magic"}, "method is 'magic'; methods: consistent"),
        ({"holdout": 1.0}, "holdout is 1.0"),
        ({"cutoff": -1.0}, "cutoff is -1.0"),
        ({"alpha": 0.5}, "alpha is of no use to method consistent"),
        ({"friction": "glue"}, "friction names 'glue'"),
        ({"gravity": (0.0, 1.0)}, "gravity is"),
    ],
)
def test_settings_are_checked_when_they_are_made(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        th.IdentifySettings(**given)


def test_the_old_call_names_the_new_one(log: Path) -> None:
    robot = th.load(robots.path("arm4"))
    info = th.information(robot, th.prepare(th.read_log(log, robot), robot))
    with pytest.raises(UsageError, match=r"th\.solve\(information, estimator\)"):
        th.identify(info, th.Consistent())


# -- the result ------------------------------------------------------------------------------------


def test_a_result_explains_itself(result: th.Identification) -> None:
    assert repr(result).startswith("<Identification of arm4: Good: R²")
    assert result.verdict.level == "good"
    assert "<script>" not in result._repr_html_()
    assert all(name in result._repr_html_() for name in result.nominal.joint_names)
    assert result.to_frame("links")["name"].to_list() == list(result.robot.body_names)
    assert result.to_frame("base_parameters").height == len(result.estimate.base)
    assert "standstill" in str(result.audit)
    with pytest.raises(UsageError, match="joints, links, base_parameters"):
        result.to_frame("wheels")


def test_figures_are_plotly_figures_by_name(result: th.Identification, tmp_path: Path) -> None:
    figure = result.figures["torque"]
    assert type(figure).__name__ == "Figure"
    assert len(figure.data) >= 2
    assert "torque.elbow" in result.figures
    with pytest.raises(KeyError, match="torque"):
        result.figures["torqe"]
    assert result.report(tmp_path / "page.html").stat().st_size > 1e6
