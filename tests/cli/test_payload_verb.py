"""`thetahat payload`: answers, files, exit codes; `--gains` where logs are read; poses to hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT
from identify_cases import Done
from payload_logs import BALL, BOX, GAINS, LINK, quick, table, write

import thetahat as th
from thetahat import robots

jsonschema = pytest.importorskip("jsonschema")
Thetahat = Callable[..., Done]
QUICK = ("--no-tune", "--cutoff", 8, "--no-armature")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with logs of right drives, and of drives whose gains are off."""
    folder = tmp_path_factory.mktemp("payloads")
    for name, held, seed in (("empty", None, 2), ("box", BOX, 1), ("ball", BALL, 3)):
        write(folder, name, held, seed)
        write(folder, f"off_{name}", held, seed, gains=True)
    return folder


def valid(answer: dict[str, object], name: str) -> None:
    schema = json.loads((ROOT / f"src/thetahat/schemas/{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(answer)


def test_command_and_python_give_one_answer(thetahat: Thetahat, logs: Path, tmp_path: Path) -> None:
    given = ("arm7", logs / "box.npz", "--without", logs / "empty.npz", "--link", LINK, *QUICK)
    done = thetahat("payload", *given, "--out", tmp_path / "result", "--json")
    assert done.code == 0
    valid(done.data, "payload")
    same = th.payload("arm7", table(BOX, 1), link=LINK, without=table(None, 2), settings=quick())
    np.testing.assert_allclose(done.data["theta"], same.payload.theta, rtol=1e-9, atol=1e-12)
    assert done.data["std"] == pytest.approx(same.payload.mass_std, rel=1e-9)
    written = json.loads((tmp_path / "result/payload.json").read_text(encoding="utf-8"))
    valid(written, "payload")
    assert written["mass"] == done.data["mass"]
    assert (tmp_path / "result/report.html").is_file()
    assert not (tmp_path / "result/drive.json").exists()
    words = thetahat("payload", *given)
    assert f"{done.data['mass']:.4g} ± " in words.out


def test_gains_are_found_written_and_applied(
    thetahat: Thetahat, logs: Path, tmp_path: Path
) -> None:
    """Identified with --known-mass, and `validate --gains` predicts what right drives report."""
    out = tmp_path / "gains"
    done = thetahat(
        *("payload", "arm7", f"box={logs / 'off_box.npz'}", f"ball={logs / 'off_ball.npz'}"),
        *("--without", logs / "off_empty.npz", "--link", LINK, "--known-mass", f"box={BOX.mass}"),
        *(*QUICK, "--out", out, "--json"),
    )
    valid(done.data, "payload")
    assert done.data["name"] == "ball"
    assert done.data["mass"] == pytest.approx(BALL.mass, rel=0.02)
    known = {each["joint"]: each["gain"] for each in done.data["gains"]}
    assert known["joint2"] == pytest.approx(GAINS[1], rel=0.02)
    file = out / "drive.json"
    plain, scaled = (
        thetahat("validate", "arm7", logs / "off_empty.npz", "--cutoff", 8, *more, "--json").data
        for more in ((), ("--gains", file))
    )
    right = thetahat("validate", "arm7", logs / "empty.npz", "--cutoff", 8, "--json").data
    error = {
        name: data["joints"][1]["rms_test"]
        for name, data in (("plain", plain), ("scaled", scaled), ("right", right))
    }
    assert abs(error["scaled"] - error["right"]) < 0.2 * abs(error["plain"] - error["right"])


REFUSED = {
    "no unloaded log": (2, ["{box}", "--link", LINK], "no log without the payload"),
    "no such link": (
        2,
        ["{box}", "--without", "{empty}", "--link", "gripper"],
        "link 'gripper' is not in robot",
    ),
    "no such mesh": (
        6,
        ["{box}", "--without", "{empty}", "--link", LINK, "--size", "none.stl"],
        "none.stl",
    ),
    "no such estimate": (6, ["{box}", "--estimate", "none.json", "--link", LINK], "none.json"),
    "no gains in it": (
        3,
        ["{box}", "--without", "{empty}", "--link", LINK, "--gains", "{other}"],
        "not 'thetahat/drive/1'",
    ),
    "mass": (
        2,
        ["{box}", "--without", "{empty}", "--link", LINK, "--known-mass", "heavy"],
        "--known-mass is 'heavy'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_gets_one_sentence(
    thetahat: Thetahat, logs: Path, tmp_path: Path, case: str
) -> None:
    code, arguments, said = REFUSED[case]
    other = tmp_path / "other.json"
    other.write_text("{}", encoding="utf-8")
    places = {"box": logs / "box.npz", "empty": logs / "empty.npz", "other": other}
    done = thetahat("payload", "arm7", *(each.format(**places) for each in arguments), *QUICK)
    assert done.code == code
    assert said in done.err
    assert done.err.count("error:") == 1


def test_the_log_of_another_robot_is_refused(thetahat: Thetahat, logs: Path) -> None:
    done = thetahat(
        *("payload", "arm4", logs / "box.npz", "--without", logs / "empty.npz", "--link", "hand")
    )
    assert done.code == 3
    assert "joint" in done.err


def test_poses_to_hold(thetahat: Thetahat, tmp_path: Path) -> None:
    """Chosen poses tell mass and centre of mass better than as many at random."""
    file = tmp_path / "poses.csv"
    given = ("excite", "arm7", "--for", "payload", "--link", LINK, "--poses", 8, "--out", file)
    done = thetahat(*given, "--json")
    valid(done.data, "poses")
    q = np.loadtxt(file, delimiter=",", skiprows=1)
    arm = th.load(robots.path("arm7"))

    def shown(poses: np.ndarray) -> float:
        Y = th.regressor(arm, poses, 0.0 * poses, 0.0 * poses)[:, :, -10:].reshape(-1, 10)
        Y = Y[:, [3, 4, 7, 9]]
        return float(np.linalg.slogdet(Y.T @ Y)[1])

    rng = np.random.default_rng(0)
    random = [shown(rng.uniform(-1.0, 1.0, (8, 7))) for _ in range(20)]
    assert shown(q) > np.median(random)
    assert thetahat(*given[:4], "--out", file).code == 2
