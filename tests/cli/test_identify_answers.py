"""`thetahat identify`: what it says, on simulated and real robots, and its options."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simulated_log
from identify_cases import JOINT_KEYS, KEYS, LINK_KEYS, Done, digest, numbers

import thetahat as th
from thetahat import robots
from thetahat.identification.tuning.tune import TuningOptions
from thetahat.model import parameters

# -- what it says ----------------------------------------------------------------------------------


def test_finds_what_pinocchio_was_given(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """Noise-free torques by Pinocchio, smooth friction: base parameters and friction come back,
    held-out rows are predicted.
    """
    robot = th.load(robots.path("arm4"))
    t, q, dq, ddq = simulated_log.motion(4)
    tau = simulated_log.torque(robot.source, q, dq, ddq) + np.arange(1, 5) * (0.7 * dq + 0.4)
    path = simulated_log.write_csv(tmp_path / "log.csv", *simulated_log.table(t, q, tau))
    found = thetahat(
        "identify",
        "arm4",
        path,
        "--out",
        tmp_path,
        "--json",
        "--friction",
        "viscous,offset",
        "--cutoff",
        40,
        "--no-armature",
    ).data
    truth = robot.without_drive().with_drive(viscous=True, offset=True)
    x = np.concatenate([robot.theta, 0.7 * np.arange(1, 5), 0.4 * np.arange(1, 5)])
    base = th.base_parameters(truth)
    assert [b["name"] for b in found["base_parameters"]] == list(base.names)
    values, stds = (
        np.array([b[key] for b in found["base_parameters"]]) for key in ("value", "std")
    )
    np.testing.assert_allclose(
        values, base.map @ x, rtol=1e-4, atol=1e-4
    )  # a 40 Hz low-pass on motion below 1.1 Hz
    assert np.all(stds > 0.0)
    assert found["rank"] == found["structural_rank"] == len(base)
    assert (found["columns"], found["status"], found["method"]) == (48, "solved", "consistent")
    for k, joint in enumerate(found["joints"]):
        assert joint["r2_test"] > 1.0 - 1e-7
        assert joint["viscous"] == pytest.approx(0.7 * (k + 1), abs=1e-3)
        assert joint["offset"] == pytest.approx(0.4 * (k + 1), abs=1e-3)
        assert joint["coulomb"] is joint["armature"] is joint["std"]["coulomb"] is None
    assert found["r2"]["test"] > 1.0 - 1e-7
    assert found["r2"]["nominal"] < found["r2"]["test"]


def test_answer_has_the_schema_and_is_the_file(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    before = digest(log, robots.path("arm4"))
    done = thetahat(
        "identify", "arm4", log, "--out", tmp_path / "new" / "folder", "--json", "--report"
    )
    assert done.code == 0
    assert done.err == ""
    target = tmp_path / "new" / "folder" / "estimate.json"
    assert target.read_text(encoding="utf-8") == done.out
    left = sorted(path.name for path in target.parent.iterdir())
    assert left == [
        "arm4_identified.urdf",
        "drive.json",
        "estimate.json",
        "posterior.npz",
        "report.html",
    ], "and no temporary file"
    assert digest(log, robots.path("arm4")) == before
    found = done.data
    assert set(found) >= KEYS
    assert found["schema"] == "thetahat/estimate/1"
    assert all(set(joint) >= JOINT_KEYS for joint in found["joints"])
    assert all(set(link) >= LINK_KEYS for link in found["links"])
    assert all(map(math.isfinite, numbers(found)))
    provenance = found["provenance"]
    assert provenance["robot_sha256"] == before[1]
    assert provenance["logs"] == [{"path": str(log), "sha256": before[0]}]
    assert provenance["version"] == th.__version__
    assert "cut-off" in provenance["settings"]["cutoff_reason"]
    assert provenance["settings"]["cutoff"] == found["score_cutoff"]
    assert found["samples"] == pytest.approx(0.7 * 3200, abs=1)
    for link in found["links"]:
        if None in link["com"]:  # a body that least norm gave no mass
            assert abs(link["mass"]) < 1e-9
            continue
        theta = parameters.from_mass_com_inertia(
            link["mass"], np.array(link["com"]), _matrix(link["inertia_com"])
        )
        np.testing.assert_allclose(theta, link["theta"], rtol=1e-9, atol=1e-9)
        assert link["identifiable"] == [
            name for name, std in zip(parameters.NAMES, link["std"], strict=True) if std is not None
        ]
    again = thetahat("identify", "arm4", log, "--out", tmp_path / "new" / "folder", "--json")
    np.testing.assert_allclose(
        numbers(again.data),
        numbers(found),
        rtol=1e-6,
        atol=1e-9,
        err_msg="the same log, the same answer",
    )


def _matrix(six: list[float]) -> np.ndarray:
    out = np.zeros((3, 3))
    out[np.triu_indices(3)] = six
    return out + np.triu(out, 1).T


def test_prints_the_numbers_of_the_python_path(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    found = thetahat(
        "identify",
        "--tune",
        "arm4",
        log,
        "--out",
        tmp_path,
        "--json",
        "--no-armature",
        "--method",
        "least-squares",
    ).data
    robot = th.load(robots.path("arm4"))
    read = th.read_log(log, robot)
    cut = round(0.7 * read.rows)
    fitted = robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    prior = np.concatenate(
        [robot.theta, robot.drive.viscous, robot.drive.coulomb, robot.drive.offset]
    )
    tuned = th.tune(
        read, robot, TuningOptions(weight=0.01), fitted=fitted, span=(0, cut), prior=prior
    )
    train, test = (
        th.prepare(read, robot, settings=tuned.settings, span=span)
        for span in ((0, cut), (cut, read.rows))
    )
    fitted = tuned.robot
    estimate = th.solve(th.information(fitted, train), th.LeastSquares(weights="iterated"))
    scores = th.validate(fitted.with_parameters(estimate), test, nominal=robot)
    np.testing.assert_allclose(
        [b["value"] for b in found["base_parameters"]], estimate.x_base, rtol=1e-7, atol=1e-9
    )
    np.testing.assert_allclose(
        [joint["r2_test"] for joint in found["joints"]], scores.r2, rtol=1e-9
    )
    np.testing.assert_allclose(
        [joint["r2_test_moving"] for joint in found["joints"]], scores.r2_moving, rtol=1e-9
    )
    np.testing.assert_allclose(
        [joint["rms_nominal"] for joint in found["joints"]], scores.nominal.rms, rtol=1e-9
    )
    assert found["r2"]["train"] == pytest.approx(estimate.r2, rel=1e-9)


def test_rotor_inertia_is_what_the_log_shows_motor_by_motor(
    thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    for rotor in (False, True):
        folder = tmp_path / str(rotor)
        folder.mkdir()
        path = simulated_log.simulated(folder, noise=0.02, rotor=rotor)
        found = thetahat("identify", "arm4", path, "--out", folder, "--json").data
        values = [joint["armature"] for joint in found["joints"]]
        if rotor:  # joints 3 and 4, whose rotors motion tells from the links' inertia
            np.testing.assert_allclose(values[2:], simulated_log.ROTOR * np.array([3, 4]), rtol=0.1)
            why = found["provenance"]["settings"]["armature"]
            assert why.startswith("fitted: of ")
            assert why.count("ΔBIC") == 4
        else:
            assert values == [None] * 4
    forced = thetahat("identify", "arm4", path, "--out", folder, "--json", "--no-armature").data
    assert forced["columns"] == found["columns"] - 4
    asked = thetahat("identify", "arm4", path, "--out", folder, "--json", "--armature").data
    np.testing.assert_allclose([joint["armature"] for joint in asked["joints"]], values, rtol=1e-6)


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_fits_a_terminal(
    thetahat: Callable[..., Done],
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "-v", "--report")
    assert done.code == 0
    commands = [line for line in done.out.splitlines() if line.startswith("  thetahat ")]
    assert commands, "next steps, each in one piece"
    others = [line for line in done.out.splitlines() if line not in commands]
    assert max(map(len, others)) <= width
    words = re.sub(r"\s+", " ", done.out)
    for name in th.load(robots.path("arm4")).joint_names:
        assert len(re.findall(rf"^{name} ", done.out, flags=re.MULTILINE)) == 2, (
            "a row of scores and a row of friction"
        )
    assert "arm4: 36 of 36 base parameters identified from 2,240 samples" in words
    assert "condition number" in words
    # The path may be broken anywhere: it is as long as the folder's name.
    assert re.search(
        r"Wrote.*estimate\.json\(\d+kB\).*report\.html\(5\.\dMB\)in\d+\.\ds\.",
        re.sub(r"\s+", "", done.out),
    )
    assert "nan" not in words.lower().split()


def test_the_terminal_shows_verdict_joints_and_next_steps(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--no-report")
    blocks = done.out.split("\n\n")
    assert len(blocks) == 4, "verdict, table, next steps, files"
    assert re.match(
        r"Good: R² (> 0\.9999|0\.\d{4}) on held-out data \(nominal robot: 0\.\d{4}\)", blocks[0]
    )
    for name in th.load(robots.path("arm4")).joint_names:
        assert len(re.findall(rf"^{name} ", blocks[1], flags=re.MULTILINE)) == 1
    assert blocks[2].startswith("Next:\n  thetahat validate ")
    assert f"--estimate {tmp_path / 'estimate.json'}" in blocks[2]
    assert blocks[3].startswith("Wrote")


# -- not usable ------------------------------------------------------------------------------------


def in_millinewtons(log: Path, folder: Path) -> Path:
    """The log with its torques in mN·m."""
    lines = log.read_text().splitlines()
    names = lines[0].split(",")
    table = np.loadtxt(lines[1:], delimiter=",")
    table[:, [k for k, name in enumerate(names) if name.startswith("tau")]] *= 1000.0
    path = folder / "mnm.csv"
    np.savetxt(path, table, delimiter=",", header=lines[0], comments="")
    return path


def test_what_is_not_usable_leaves_no_robot_file(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert thetahat("identify", "arm4", log, "--out", out, "--no-report").code == 0
    assert (out / "arm4_identified.urdf").is_file()
    wrong = in_millinewtons(log, tmp_path)
    done = thetahat("identify", "arm4", wrong, "--out", out, "--no-report")
    assert done.code == 0
    assert done.out.startswith("Not usable: ")
    assert "No robot file is written, as the result is not usable; --force writes it." in done.out
    assert [path.name for path in out.iterdir()] == ["estimate.json"], "nor one of an earlier run"
    found = json.loads((out / "estimate.json").read_text())
    assert (found["verdict"]["level"], found["parity"]) == ("not usable", None)
    assert any("mN·m" in reason for reason in found["verdict"]["reasons"])


def test_force_writes_it_and_strict_ends_with_eight(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    wrong = in_millinewtons(log, tmp_path)
    given = ("identify", "arm4", wrong, "--out", tmp_path / "out", "--no-report")
    done = thetahat(*given, "--force", "--strict")
    assert done.code == 8
    assert (tmp_path / "out" / "arm4_identified.urdf").is_file()
    assert "error: the result is not usable (--strict): " in done.err
    good = thetahat("identify", "arm4", log, "--out", tmp_path / "out", "--no-report", "--strict")
    assert good.code == 0


def test_save_in_python_obeys_too(log: Path, tmp_path: Path) -> None:
    settings = th.IdentifySettings(tune=False, report=False)
    result = th.identify("arm4", in_millinewtons(log, tmp_path), settings=settings)
    assert not result.verdict.usable
    assert [path.name for path in result.save(tmp_path / "a").files] == ["estimate.json"]
    names = {path.name for path in result.save(tmp_path / "a", force=True).files}
    assert "arm4_identified.urdf" in names
