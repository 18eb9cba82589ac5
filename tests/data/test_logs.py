"""Logs: every format and every way of cutting them gives the same numbers, exactly those that were
written.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars
import pytest
from data_paths import needs_shared, shared_file
from hypothesis import given, settings
from hypothesis import strategies as st

import thetahat as th
from thetahat import robots
from thetahat.data import row_batches
from thetahat.data.columns import parse_patterns
from thetahat.data.formats import columnar as columnar_format
from thetahat.data.formats import csv as csv_format
from thetahat.data.formats import npz as npz_format
from thetahat.data.formats.write_log import write_table
from thetahat.data.log import Log, read_log
from thetahat.data.timestamps import DecimatedValues

KINDS = ("q", "dq", "tau")


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("double_pendulum"))


def motion(
    rows: int = 400, joints: int = 2, rate: float = 200.0, seed: int = 0
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    t = np.arange(rows) / rate
    phase = 2 * np.pi * np.outer(t, rng.uniform(0.4, 1.5, joints)) + rng.uniform(0, 6, joints)
    speed = 2 * np.pi * rng.uniform(0.4, 1.5, joints)
    return {
        "t": t,
        "q": np.sin(phase),
        "dq": speed * np.cos(phase),
        "tau": rng.normal(size=phase.shape),
    }


def named(data: dict[str, np.ndarray], joints: tuple[str, ...]) -> dict[str, np.ndarray]:
    columns = {"t": data["t"]}
    for kind in KINDS:
        columns |= {f"{kind}.{joint}": data[kind][:, j] for j, joint in enumerate(joints)}
    return columns


def write(path: Path, columns: dict[str, np.ndarray]) -> Path:
    if path.suffix == ".tsv":
        polars.DataFrame(columns).write_csv(path, separator="\t")
        return path
    if path.suffix == ".feather":
        polars.DataFrame(columns).write_ipc(path)
        return path
    return write_table(path, list(columns), list(columns.values()))


def together(log: Log, rows: int = 65_536) -> dict[str, np.ndarray]:
    chunks = list(log.chunks(rows))
    return {
        name: np.concatenate([getattr(chunk, name) for chunk in chunks])
        for name in ("t", "q", "dq", "tau")
    }


def kinds(log: Log) -> list[str]:
    return [finding.kind for finding in log.findings]


# -- formats ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".feather", ".npz"])
def test_what_is_read_is_what_was_written(robot: th.Robot, tmp_path: Path, suffix: str) -> None:
    data = motion()
    path = write(tmp_path / f"log{suffix}", named(data, robot.joint_names))
    before = path.read_bytes()
    log = read_log(path, robot)
    found = together(log)
    for name, array in data.items():
        np.testing.assert_array_equal(found[name], array)
    assert path.read_bytes() == before
    assert log.sources[0].sha256 == hashlib.sha256(before).hexdigest()
    assert log.sources[0].bytes == len(before)
    assert (log.has_dq, log.has_ddq, log.has_tau, log.locked, log.rows) == (
        True,
        False,
        True,
        (),
        400,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-9e18, 9e18, allow_nan=False), min_size=6, max_size=40),
    st.sampled_from(["{!r}", "{:.17g}", "{:.17e}", "{:+.3e}"]),
)
def test_numbers_are_parsed_as_python_parses_them(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], style: str
) -> None:
    robot = th.load(robots.path("double_pendulum"))
    cells = [style.format(value) for value in values]
    path = tmp_path_factory.mktemp("numbers") / "log.csv"
    path.write_text("t,tau1,q1,q2\n" + "".join(f"{i},{cell},0,0\n" for i, cell in enumerate(cells)))
    table = csv_format.CsvTable(path)
    blocks = list(table.blocks(["tau1"], None))
    np.testing.assert_array_equal(
        np.concatenate([b.values[:, 0] for b in blocks]), [float(cell) for cell in cells]
    )
    assert read_log(path, robot).rows == len(cells)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".feather", ".npz"])
def test_how_a_file_is_cut_into_blocks_changes_nothing(
    robot: th.Robot, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = motion(300) | {"seg": np.repeat(["a", "b", "c"], 100)}
    columns = named(data, robot.joint_names) | {"seg": data["seg"]}
    path = write(tmp_path / f"log{suffix}", columns)
    whole = read_log(path, robot)
    for rows in (1, 7, 64, 100, 299):
        found = together(whole, rows)
        for name in ("t", "q", "dq", "tau"):
            np.testing.assert_array_equal(found[name], data[name])
    with monkeypatch.context() as patch:
        patch.setattr("thetahat.data.scan.BATCH_ROWS", 37)
        assert [(run.name, run.rows) for run in read_log(path, robot).runs] == [
            (run.name, run.rows) for run in whole.runs
        ]
    monkeypatch.setattr(csv_format, "BLOCK_BYTES", 97)
    monkeypatch.setattr(npz_format, "SLICE_ROWS", 13)
    monkeypatch.setattr(columnar_format, "SLICE_CELLS", 100)
    small = read_log(path, robot)
    assert small.runs == whole.runs
    assert [run.name for run in whole.runs] == ["a", "b", "c"]
    assert [run.rows for run in whole.runs] == [100, 100, 100]
    assert small.sources == whole.sources
    for name, array in together(small).items():
        np.testing.assert_array_equal(array, data[name])


def test_batches_of_the_first_pass_change_nothing(
    robot: th.Robot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = motion(500)
    data["t"][200:] += 1.0
    data["q"][:, 0] = np.angle(np.exp(1j * np.linspace(0, 60, 500)))
    path = write(tmp_path / "log.csv", named(data, robot.joint_names))
    whole = read_log(path, robot)
    monkeypatch.setattr("thetahat.data.scan.BATCH_ROWS", 50)
    parts = read_log(path, robot)
    assert [(run.name, run.rows, run.first_row) for run in parts.runs] == [
        (run.name, run.rows, run.first_row) for run in whole.runs
    ]
    assert kinds(parts) == kinds(whole)
    np.testing.assert_array_equal(together(parts)["q"], together(whole)["q"])
    assert row_batches.BATCH_ROWS == 65_536


@pytest.mark.parametrize(
    "text",
    ["\ufeff{}", "{}\n\n", '"{}"'],
    ids=["byte order mark", "blank lines at the end", "quoted header"],
)
def test_harmless_oddities_of_csv_are_read(robot: th.Robot, tmp_path: Path, text: str) -> None:
    header, rows = "t,q1,q2,tau1,tau2", "".join(f"{i},{i * 0.1:.3f}, 0,1,2\r\n" for i in range(20))
    header = header.replace(",", '","') if '"' in text else header
    body = (
        text.replace("{}", header + "\n" + rows)
        if '"' not in text
        else text.replace("{}", header) + "\n" + rows
    )
    path = tmp_path / "log.csv"
    path.write_text(body, encoding="utf-8")
    np.testing.assert_allclose(
        together_q(read_log(path, robot))[:, 0], np.arange(20) * 0.1, atol=1e-12
    )


def together_q(log: Log) -> np.ndarray:
    return np.concatenate([chunk.q for chunk in log.chunks()])


def test_padded_cells_are_numbers(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("t , q1 , q2\n" + "".join(f"{i} , {i}.5 , 0 \n" for i in range(9)))
    np.testing.assert_array_equal(together_q(read_log(path, robot))[:, 0], np.arange(9) + 0.5)


def test_npz_matrices_are_positional_columns(robot: th.Robot, tmp_path: Path) -> None:
    data = motion()
    np.savez_compressed(tmp_path / "log.npz", **data, note="a text", cube=np.zeros((2, 2, 2)))
    np.savez(
        tmp_path / "turned.npz", **{name: np.asfortranarray(array) for name, array in data.items()}
    )
    for name in ("log.npz", "turned.npz"):
        found = together(read_log(tmp_path / name, robot))
        for key, array in data.items():
            np.testing.assert_array_equal(found[key], array)


# -- columns ---------------------------------------------------------------------------------------


def test_columns_by_position_by_name_and_by_pattern_agree(robot: th.Robot, tmp_path: Path) -> None:
    data = motion()
    columns = named(data, robot.joint_names)
    by_name = read_log(write(tmp_path / "a.csv", columns), robot)
    order = list(columns)[::-1]
    shuffled = read_log(write(tmp_path / "b.csv", {name: columns[name] for name in order}), robot)
    positions = {f"{kind}{j + 1}": data[kind][:, j] for kind in KINDS for j in range(2)}
    by_position = read_log(write(tmp_path / "c.csv", {"t": data["t"]} | positions), robot)
    other = {"time": data["t"]} | {
        f"{joint}_{kind}": data[kind][:, j]
        for kind in KINDS
        for j, joint in enumerate(robot.joint_names)
    }
    pattern = "t=time,q={joint}_q,dq={joint}_dq,tau={joint}_tau"
    by_pattern = read_log(write(tmp_path / "d.csv", other), robot, columns=pattern)
    by_mapping = read_log(tmp_path / "d.csv", robot, columns=parse_patterns(pattern))
    numbered = {"t": data["t"]} | {f"p_{j + 1}": data["q"][:, j] for j in range(2)}
    by_number = read_log(write(tmp_path / "e.csv", numbered), robot, columns="q=p_{number}")
    for log in (shuffled, by_position, by_pattern, by_mapping):
        for name, array in together(by_name).items():
            np.testing.assert_array_equal(together(log)[name], array)
    np.testing.assert_array_equal(together_q(by_number), data["q"])


def test_other_columns_and_joints_without_one_are_named_once(tmp_path: Path) -> None:
    robot = th.load(robots.path("arm4"))
    data = motion(joints=2)
    columns = {
        "t": data["t"],
        "q1": data["q"][:, 0],
        "q2": data["q"][:, 1],
        "tau1": data["tau"][:, 0],
        "current1": data["t"],
        "note": np.array(["x"] * 400),
    }
    log = read_log(write(tmp_path / "log.csv", columns), robot)
    messages = {finding.kind: finding.message for finding in log.findings}
    assert "current1, note" in messages["ignored-columns"]
    assert all(name in messages["locked-joints"] for name in robot.joint_names[2:])
    assert robot.joint_names[1] in messages["no-torque"]
    assert log.locked == robot.joint_names[2:]
    assert {mask.joint for mask in log.masks if mask.reason == "no torque column"} == {1, 2, 3}
    chunk = log.read()[0]
    np.testing.assert_array_equal(chunk.q[:, 2:], 0.0)
    assert chunk.tau.shape == (400, 4)
    assert chunk.dq is None


def test_a_stranger_among_the_columns_is_ignored_unless_it_looks_misspelt(tmp_path: Path) -> None:
    robot = th.load(robots.path("arm4"))
    t = np.arange(50) * 0.01
    known = {"t": t, f"q.{robot.joint_names[0]}": np.sin(t)}
    log = read_log(write(tmp_path / "a.csv", known | {"q.gripper": t}), robot)
    assert log.locked == robot.joint_names[1:]
    assert "q.gripper" in next(
        finding.message for finding in log.findings if finding.kind == "ignored-columns"
    )
    misspelt = robot.joint_names[1][:-1] + "_"
    with pytest.raises(th.ThetahatError, match=f"{misspelt}.*{robot.joint_names[1]}"):
        read_log(write(tmp_path / "b.csv", known | {f"q.{misspelt}": t}), robot)


FLOATING = """<robot name="r">
<link name="base"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="arm"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/></joint></robot>"""


def test_joints_of_several_degrees_of_freedom(tmp_path: Path) -> None:
    (tmp_path / "r.urdf").write_text(FLOATING)
    robot = th.load(tmp_path / "r.urdf", floating_base=True)
    base = robot.joint_names[0]
    rng = np.random.default_rng(0)
    q = rng.normal(size=(50, 8))
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    dq, t = rng.normal(size=(50, 7)), np.arange(50) * 0.01
    names = [f"q.{base}.{c}" for c in ("x", "y", "z", "qx", "qy", "qz", "qw")] + ["q.hinge"]
    rates = [f"dq.{name}" for name in robot.velocity_names]
    named_columns = (
        {"t": t}
        | dict(zip(names, q.T, strict=True))
        | dict(zip(rates, dq.T, strict=True))
        | {"tau.hinge": t}
    )
    log = read_log(write(tmp_path / "a.csv", named_columns), robot)
    np.savez(tmp_path / "b.npz", t=t, q=q, dq=dq)
    for path_log in (log, read_log(tmp_path / "b.npz", robot)):
        chunk = path_log.read()[0]
        np.testing.assert_array_equal(chunk.q, q)
        np.testing.assert_array_equal(chunk.dq, dq)
    assert [mask.joint for mask in log.masks] == list(range(6))
    locked = read_log(write(tmp_path / "c.csv", {"t": t, "q.hinge": t}), robot)
    np.testing.assert_array_equal(
        locked.read()[0].q[:, :7], np.tile([0, 0, 0, 0, 0, 0, 1.0], (50, 1))
    )
    q[7, 3:7] *= 1.1
    np.savez(tmp_path / "d.npz", t=t, q=q, dq=dq)
    with pytest.raises(th.ThetahatError, match=r"row 7 .* length 1\.1"):
        read_log(tmp_path / "d.npz", robot)


# -- runs ------------------------------------------------------------------------------------------


def test_gaps_split_runs_and_jitter_does_not(robot: th.Robot, tmp_path: Path) -> None:
    data = motion(300)
    rng = np.random.default_rng(1)
    data["t"] = np.cumsum(rng.uniform(0.7e-3, 3e-3, 300))
    data["t"][120:] += 0.05
    data["t"][123:] += 0.05
    log = read_log(write(tmp_path / "log.csv", named(data, robot.joint_names)), robot)
    assert [(run.name, run.first_row, run.rows) for run in log.runs] == [
        ("log", 0, 120),
        ("log#3", 123, 177),
    ]
    for run in log.runs:
        part = data["t"][run.first_row : run.stop_row]
        assert (run.start, run.stop) == (part[0], part[-1])
        assert run.period == pytest.approx(np.median(np.diff(part)), rel=1e-12)
        assert run.jitter == pytest.approx(np.std(np.diff(part)), rel=1e-6)
    assert kinds(log).count("gap") == 2
    assert "short-run" in kinds(log)
    assert "jitter" in kinds(log)
    assert "line 122" in next(finding.message for finding in log.findings if finding.kind == "gap")
    for chunk in log.chunks(64):
        run = log.runs[chunk.run]
        assert run.first_row <= chunk.row
        assert chunk.row + len(chunk) <= run.stop_row
        np.testing.assert_array_equal(chunk.q, data["q"][chunk.row : chunk.row + len(chunk)])
    assert [len(chunk) for chunk in log.read()] == [run.rows for run in log.runs]


def test_many_gaps_are_summed_up(robot: th.Robot, tmp_path: Path) -> None:
    data = motion(400)
    data["t"] += np.arange(400) // 20 * 1.0
    log = read_log(write(tmp_path / "log.csv", named(data, robot.joint_names)), robot)
    assert len(log.runs) == 20
    assert kinds(log).count("gap") == 9
    assert "11 more gaps" in log.findings[8].message


def test_files_folders_and_patterns_are_runs_in_order(robot: th.Robot, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    parts = [motion(50 + 10 * k, seed=k) for k in range(3)]
    paths = [
        write(folder / f"run{k}{suffix}", named(part, robot.joint_names))
        for k, (part, suffix) in enumerate(zip(parts, (".csv", ".parquet", ".npz"), strict=True))
    ]
    (folder / "notes.md").write_text("not a log")
    for given_ in (
        paths,
        folder,
        str(folder / "run*"),
        [folder / "run0.csv", str(folder / "run[12]*")],
    ):
        log = read_log(given_, robot)
        assert [run.name for run in log.runs] == ["run0", "run1", "run2"]
        assert [run.first_row for run in log.runs] == [0, 50, 110]
        np.testing.assert_array_equal(
            together(log)["tau"], np.concatenate([part["tau"] for part in parts])
        )
        assert [Path(source.path).name for source in log.sources] == [path.name for path in paths]


def test_an_encoder_that_wraps_is_unwrapped_and_counted(robot: th.Robot, tmp_path: Path) -> None:
    true = motion(2000, rate=500.0)
    true["q"][:, 0] = 3.0 + 14.0 * np.sin(true["t"] * 2.0)
    logged = true | {"q": true["q"].copy()}
    logged["q"][:, 0] = np.mod(true["q"][:, 0] + np.pi, 2 * np.pi) - np.pi
    jumps = int(np.count_nonzero(np.abs(np.diff(logged["q"][:, 0])) > 3.0))
    log = read_log(write(tmp_path / "log.parquet", named(logged, robot.joint_names)), robot)
    finding = next(finding for finding in log.findings if finding.kind == "wrap")
    assert jumps > 4
    assert f"wrapped around {jumps} times" in finding.message
    assert finding.joint == robot.joint_names[0]
    for rows in (37, 65_536):
        found = together(log, rows)["q"]
        np.testing.assert_allclose(
            found[:, 0] - found[0, 0], true["q"][:, 0] - true["q"][0, 0], atol=1e-12
        )
        np.testing.assert_array_equal(found[:, 1], true["q"][:, 1])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(4, 40))
def test_thinned_numbers_are_every_kth(sizes: list[int], limit: int) -> None:
    thinned, at = DecimatedValues(limit), 0
    for size in sizes:
        thinned.add(np.arange(at, at + size, dtype=float))
        at += size
    kept = np.concatenate(thinned._parts)
    assert len(kept) <= limit
    assert len(set(np.diff(kept))) <= 1
    assert kept[0] == 0.0
    assert at - kept[-1] <= 2 * max(at / limit, 1.0) + 1


REAL = [
    (
        "panda/panda_exciting_traj1.csv",
        "panda/panda_nomesh_from_example_robot_data.urdf",
        20_544,
        5,
    ),
    ("ur10/panda_exciting.csv", "ur10/panda_nomesh.urdf", 727, 1),
    ("ur10/ur10_exciting.csv", "ur10/ur10_nomesh.urdf", 3_441, 1),
    ("kr300/kr300.csv", "kr300/kr300_from_dh.urdf", 7_503, 3),
    ("tx40/tx40.csv", "tx40/tx40_mdh_modified.urdf", 45_000, 1),
    (
        "double_pendulum/double_pendulum_A0.csv",
        "double_pendulum/double_pendulum_A0_from_yml.urdf",
        43_833,
        9,
    ),
    (
        "double_pendulum/double_pendulum_C0.csv",
        "double_pendulum/double_pendulum_C0_from_yml.urdf",
        41_828,
        9,
    ),
    (
        "double_pendulum/double_pendulum_C1.csv",
        "double_pendulum/double_pendulum_C1_from_yml.urdf",
        45_970,
        10,
    ),
    # rows and runs as SOURCE.md states them; the Panda's stamps have four gaps of more than 8
    # periods
]


@needs_shared
@pytest.mark.parametrize(
    ("log", "urdf", "rows", "runs"), REAL, ids=[Path(entry[0]).stem for entry in REAL]
)
@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
def test_real_logs_are_read_without_a_false_alarm(
    log: str, urdf: str, rows: int, runs: int
) -> None:
    path = shared_file("logs", log)
    robot = th.load(shared_file("logs", urdf))
    found = read_log(path, robot)
    assert (found.rows, len(found.runs)) == (rows, runs)
    assert set(kinds(found)) <= {"ignored-columns", "locked-joints", "gap", "jitter"}
    assert {mask.reason for mask in found.masks} <= {"no torque column"}
    with path.open() as file:
        names, first = file.readline().strip().split(","), file.readline().strip().split(",")
    values = dict(zip(names, first, strict=True))
    chunk = next(found.chunks())
    assert chunk.q[0, 0] == float(values["q1"])
    assert chunk.tau[0, 1] == float(values["tau2"])
    assert found.has_dq == ("dq1" in names)


# -- writing and memory ----------------------------------------------------------------------------


def test_exported_text_is_no_formula(tmp_path: Path) -> None:
    path = write_table(
        tmp_path / "out.csv", ["=name", "x"], [["=1+1", "@x", "plain"], np.array([-1.5, 2.0, 3.0])]
    )
    assert path.read_text().splitlines() == ["'=name,x", "'=1+1,-1.5", "'@x,2.0", "plain,3.0"]
    with pytest.raises(th.ThetahatError, match="unknown ending"):
        write_table(tmp_path / "out.xls", ["x"], [np.zeros(2)])
    with pytest.raises(th.ThetahatError, match="cannot be written"):
        write_table(tmp_path / "absent" / "out.csv", ["x"], [np.zeros(2)])
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


PEAK = """
import sys
import polars, scipy.optimize
import thetahat as th
from thetahat import robots
from thetahat.data.log import read_log
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024
robot = th.load(robots.path("arm7"))
th.inverse_dynamics(robot, *[robot.neutral] * 3), th.gravity(robot, robot.neutral)  # compiled, if need be, before we measure
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak counts from here
before = status("VmRSS")
log = read_log(sys.argv[1], robot)
rows = sum(len(chunk) for chunk in log.chunks())
print(rows, status("VmHWM") - before)
"""

linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="peak memory is measured through Linux's /proc",
)


def peak(path: Path) -> tuple[int, float]:
    """(rows, MB above start) of a process that reads the log twice."""
    out = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True
    ).stdout.split()
    return int(out[0]), float(out[1])


def long_log(folder: Path, rows: int, suffix: str) -> Path:
    """A log of six joints, t, q and tau (13 columns), written a piece at a time."""
    import polars

    names = ["t"] + [f"{kind}{j}" for kind in ("q", "tau") for j in range(1, 7)]
    path = folder / "long.csv"
    with path.open("wb") as file:
        for start in range(0, rows, 200_000):
            t = np.arange(start, min(start + 200_000, rows))[:, None] * 1e-3
            phase = t * np.linspace(1.0, 3.0, 6)
            polars.DataFrame(
                np.hstack([t, np.sin(phase), 5 * np.cos(3 * phase)]), schema=names
            ).write_csv(file, include_header=start == 0)
    if suffix == ".parquet":
        polars.scan_csv(path).sink_parquet(path.with_suffix(suffix))
    return path.with_suffix(suffix)


@linux
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_memory_does_not_grow_with_the_log(tmp_path: Path, suffix: str) -> None:
    rows, megabytes = peak(long_log(tmp_path, 600_000, suffix))
    assert rows == 600_000
    assert megabytes < 250, (
        "600,000 rows are 62 MB as numbers and 140 MB as text; blocks under way take most of this"
    )


@linux
@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_ten_million_rows_take_less_than_500_megabytes(tmp_path: Path, suffix: str) -> None:
    rows, megabytes = peak(long_log(tmp_path, 10_000_000, suffix))
    assert rows == 10_000_000
    assert megabytes < 500
