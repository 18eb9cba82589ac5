"""`thetahat identify` on bad logs and on logs that do not determine the robot: one sentence and its
exit code.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import bag_files
import numpy as np
import pytest
import simulated_log
from identify_cases import Done, digest

import thetahat as th
from thetahat import robots
from thetahat.data.formats.write_log import write_table

# -- bad logs --------------------------------------------------------------------------------------


def text_of(names: list[str], values: np.ndarray) -> str:
    buffer = io.StringIO()
    np.savetxt(buffer, values, delimiter=",", header=",".join(names), comments="", fmt="%.9g")
    return buffer.getvalue()


def line_changed(text: str, at: int, change: Callable[[str], str]) -> str:
    lines = text.splitlines()
    lines[at - 1] = change(lines[at - 1])
    return "\n".join(lines) + "\n"


CSV = {
    # what happened to the log: (how, exit code, words of the sentence)
    "empty": (lambda s: "", 3, ["empty"]),
    "header only": (lambda s: s.split("\n")[0] + "\n", 5, ["no rows"]),
    "cut last row": (lambda s: s[:-15], 3, ["line 3201"]),
    "short row": (
        lambda s: line_changed(s, 50, lambda row: row.rsplit(",", 1)[0]),
        3,
        ["line 50", "12 fields"],
    ),
    "long row": (
        lambda s: line_changed(s, 50, lambda row: row + ",1"),
        3,
        ["line 50", "14 fields"],
    ),
    "repeated header": (
        lambda s: line_changed(s, 50, lambda row: s.split("\n")[0] + "\n" + row),
        3,
        ["line 50", "repeated"],
    ),
    "text cell": (
        lambda s: line_changed(s, 50, lambda row: row.rsplit(",", 1)[0] + ",broken"),
        3,
        ["line 50", "'tau4'", "'broken'"],
    ),
    "infinity": (
        lambda s: line_changed(s, 50, lambda row: row.rsplit(",", 1)[0] + ",inf"),
        3,
        ["line 50", "'tau4'"],
    ),
    "1e400": (
        lambda s: line_changed(s, 50, lambda row: row.rsplit(",", 1)[0] + ",1e400"),
        3,
        ["line 50", "'tau4'"],
    ),
    "bars": (lambda s: s.replace(",", "|"), 3, ["bars"]),
    "decimal commas and points": (
        lambda s: s.replace(",", ";").replace(".", ",", s.count(".") // 2),
        3,
        ["not a number", "decimal comma"],
    ),
    "duplicate column": (lambda s: s.replace("q2,", "q1,", 1), 3, ["'q1'", "twice"]),
    "NUL": (lambda s: line_changed(s, 50, lambda row: row + "\0"), 3, ["line 50", "NUL"]),
    "20,000 columns": (
        lambda s: ",".join(["t", *(f"x{k}" for k in range(20_000))]) + "\n",
        7,
        ["columns"],
    ),
    "other joints": (
        lambda s: re.sub(r"\b(d?q|tau)(\d)", r"\1.axis\2", s.split("\n")[0]) + s[s.index("\n") :],
        3,
        ["axis1", "shoulder_pitch"],
    ),
    "no torque": (lambda s: s.replace("tau", "x", 4), 3, ["no torque columns", "--columns"]),
    "repeated stamp": (
        lambda s: line_changed(s, 50, lambda row: "0.235," + row.split(",", 1)[1]),
        3,
        ["line 50"],
    ),
    "backward stamp": (
        lambda s: line_changed(s, 50, lambda row: "0.1," + row.split(",", 1)[1]),
        3,
        ["line 50"],
    ),
}


def refused(done: Done, code: int, words: list[str], path: Path) -> None:
    assert done.code == code, (done.code, done.err)
    assert done.out == ""
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert path.name in last
    for word in words:
        assert word in last, last


@pytest.mark.parametrize("case", CSV)
def test_bad_csv(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path, case: str) -> None:
    how, code, words = CSV[case]
    path = tmp_path / "log.csv"
    path.write_text(how(text_of(*rows)), newline="")
    before = digest(path)
    refused(thetahat("identify", "arm4", path, "--out", tmp_path / "out"), code, words, path)
    assert digest(path) == before
    assert not (tmp_path / "out").exists()


def test_the_log_that_is_spoiled_above_is_good(
    thetahat: Callable[..., Done], rows: tuple, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text(text_of(*rows))
    assert thetahat("identify", "arm4", tmp_path / "log.csv", "--out", tmp_path).code == 0


@pytest.mark.parametrize(
    "case",
    ["UTF-16", "Latin-1", "gzip", "gzip bomb", "pickle", "object array", "cut parquet", "absent"],
)
def test_bad_files(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path, case: str) -> None:
    names, values = rows
    text = text_of(names, values)
    path = tmp_path / {
        "pickle": "log.pkl",
        "object array": "log.npz",
        "cut parquet": "log.parquet",
    }.get(case, "log.csv")
    match case:
        case "UTF-16":
            path.write_bytes(text.encode("utf-16"))
        case "Latin-1":
            path.write_bytes(text.replace("tau4", "é4", 1).encode("latin-1"))
        case "gzip":
            path.write_bytes(gzip.compress(text.encode()))
        case "gzip bomb":
            path.write_bytes(gzip.compress(bytes(20_000_000)))
        case "pickle":
            path.write_bytes(pickle.dumps(os.getcwd))
        case "object array":
            np.savez(
                path, **dict(zip(names, values.T, strict=True)), extra=np.array([{}], dtype=object)
            )
        case "cut parquet":
            write_table(path, names, list(values.T))
            path.write_bytes(path.read_bytes()[:-40])
    code = {"UTF-16": 3, "Latin-1": 3, "cut parquet": 3, "absent": 6}.get(case, 7)
    before = digest(path) if path.exists() else []
    refused(thetahat("identify", "arm4", path, "--out", tmp_path / "out"), code, [], path)
    assert not before or digest(path) == before


def test_bad_bags(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    pytest.importorskip("rosbags", reason="rosbags is not installed (pip install thetahat[ros])")
    names = th.load(robots.path("arm4")).joint_names
    folder = bag_files.write_ros2(tmp_path / "bag", names, bag_files.motion(joints=4))
    whole = next(folder.glob("*.mcap")).read_bytes()
    done = thetahat("identify", "arm4", folder, "--out", tmp_path, "--topic", "/arm")
    assert (done.code, "/joint_states" in done.err) == (3, True)
    path = tmp_path / "log.mcap"
    path.write_bytes(whole[: len(whole) // 2])
    refused(thetahat("identify", "arm4", path, "--out", tmp_path), 3, ["salvage"], path)
    checked = bytearray(bag_files.with_checksums(whole))
    checked[bag_files.chunk_middles(bytes(checked))[0]] ^= 8
    path.write_bytes(checked)
    refused(thetahat("identify", "arm4", path, "--out", tmp_path), 3, [], path)


def test_units_that_are_not_si(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path) -> None:
    names, values = rows
    degrees, milliseconds = values.copy(), values.copy()
    degrees[:, 1:9] = np.degrees(values[:, 1:9])
    milliseconds[:, 0] *= 1e3
    for word, spoiled in (("degrees", degrees), ("millisecond", milliseconds)):
        path = simulated_log.write_csv(tmp_path / f"{word}.csv", names, spoiled)
        refused(thetahat("identify", "arm4", path, "--out", tmp_path), 3, [word], path)


# -- not identifiable ------------------------------------------------------------------------------


def test_a_dead_torque_channel_offers_joints_which_works(
    thetahat: Callable[..., Done], rows: tuple, tmp_path: Path
) -> None:
    names, values = rows
    spoiled = values.copy()
    spoiled[:, names.index("tau3")] = 1.5
    path = simulated_log.write_csv(tmp_path / "dead.csv", names, spoiled)
    done = thetahat("identify", "arm4", path, "--out", tmp_path)
    assert done.code == 5
    offer = re.search(r"'arm_yaw' has no usable torque .*dead torque.*--joints (\S+?),? ", done.err)
    assert offer
    fixed = thetahat(
        "identify", "arm4", path, "--out", tmp_path, "--json", "--joints", offer[1].rstrip(",")
    )
    assert fixed.code == 0, fixed.err
    assert (
        min(joint["r2_test"] for joint in fixed.data["joints"] if joint["name"] != "arm_yaw") > 0.9
    )


def test_a_flipped_sign_is_named(
    thetahat: Callable[..., Done], rows: tuple, tmp_path: Path
) -> None:
    names, values = rows
    spoiled = values.copy()
    spoiled[:, names.index("tau1")] *= -1.0
    log = simulated_log.write_csv(tmp_path / "flipped.csv", names, spoiled)
    quick = ("--no-tune", "--no-report", "--out", tmp_path)
    done = thetahat("identify", "arm4", log, *quick)
    assert done.code == 0, "it is named, and left to the user"
    assert re.search(
        r"(?i)joint .shoulder_pitch.[^•]* the sign of its torque", " ".join(done.out.split())
    )
    assert "multiply the column by" in " ".join(done.out.split())
    spoiled = values.copy()
    spoiled[:, [i for i, name in enumerate(names) if name.startswith("tau")]] *= -1.0
    log = simulated_log.write_csv(tmp_path / "all.csv", names, spoiled)
    done = thetahat("identify", "arm4", log, *quick)
    assert done.code == 5
    assert re.search(r"no usable torque .*sign.*multiply them by −1, or pass --keep sign", done.err)
    assert thetahat("identify", "arm4", log, *quick, "--keep", "sign").code == 0


@pytest.mark.parametrize("count", [3, 7, 20, 40, 60])
def test_fewer_samples_than_parameters(
    thetahat: Callable[..., Done], rows: tuple, tmp_path: Path, count: int
) -> None:
    names, values = rows
    done = thetahat(
        "identify",
        "arm4",
        simulated_log.write_csv(tmp_path / "short.csv", names, values[:count]),
        "--out",
        tmp_path,
    )
    assert done.code == 5, done.err


def test_a_log_that_does_not_show_everything_names_what_is_missing(
    thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    """The elbow moves, all else stands: with standstill rows let in, gravity and friction of the
    others cannot be told apart.
    """
    t, q, dq, ddq = simulated_log.motion(4)
    q, dq, ddq = (
        np.column_stack([np.full((len(t), 3), still), a[:, 3]])
        for a, still in ((q, 0.5), (dq, 0.0), (ddq, 0.0))
    )
    tau = simulated_log.torque(robots.path("arm4"), q, dq, ddq) + simulated_log.drive(dq, ddq)
    path = simulated_log.write_csv(tmp_path / "elbow.csv", *simulated_log.table(t, q, tau, dq))
    for method in ("least-squares", "positive"):
        done = thetahat(
            "identify", "arm4", path, "--out", tmp_path, "--min-speed", 0, "--method", method
        )
        assert done.code == 5
    assert re.search(r"rank \d+ of 36: .*excite joints? .*(shoulder|arm_yaw)", done.err)
    assert not (tmp_path / "estimate.json").exists()
    done = thetahat("identify", "arm4", path, "--out", tmp_path)
    assert (done.code, "--joints elbow" in done.err) == (5, True)
    # with a prior, what the log does not show keeps the robot's own values, and is named
    found = thetahat("identify", "arm4", path, "--out", tmp_path, "--min-speed", 0, "--json").data
    assert found["rank"] < found["structural_rank"]
    assert {"viscous_shoulder_pitch", "coulomb_arm_yaw"} <= set(found["unseen"])
    assert any("excite" in sentence for sentence in found["advice"])
    assert found["joints"][0]["viscous"] == pytest.approx(
        th.load(robots.path("arm4")).drive.viscous[0], rel=1e-6
    )
    assert found["consistent"]


def test_units_are_converted_or_refused(
    thetahat: Callable[..., Done], rows: tuple, tmp_path: Path
) -> None:
    names, values = rows
    scaled = values.copy()
    scaled[:, 1:9] = np.degrees(values[:, 1:9])
    scaled[:, 0] *= 1e3
    plain = simulated_log.write_csv(tmp_path / "plain.csv", names, values)
    path = simulated_log.write_csv(tmp_path / "log.csv", names, scaled)
    units = ("--units", "q=deg,dq=deg,t=ms")
    done = thetahat("validate", "arm4", path, *units, "--json")
    assert done.code == 0, done.err
    found, wanted = (
        json.loads(each.out) for each in (done, thetahat("validate", "arm4", plain, "--json"))
    )
    for mine, other in zip(found["joints"], wanted["joints"], strict=True):
        assert mine["rms_test"] == pytest.approx(other["rms_test"], rel=1e-6)
    for options, word in (
        (("--units", "tau=A"), "gain"),
        (("--units", "q=ms"), "rad"),
        (("--format", "rosbag"), "plotjuggler"),
        (("--columns", "q=p"), "{index}"),
    ):
        done = thetahat("validate", "arm4", plain, *options)
        assert (done.code, word in done.err) == (2, True), done.err
