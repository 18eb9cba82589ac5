"""`thetahat inspect`: the numbers are Pinocchio's, the streams and exit codes are those of the
interface, nothing is a traceback.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT, example_robot

from thetahat import cli, errors, robots
from thetahat.cli.app import program
from thetahat.cli.exit_status import collect_warnings, guarded
from thetahat.cli.inspect import describe
from thetahat.cli.inspect_view import guided
from thetahat.errors import RobotWarning
from thetahat.model.io import load as loading
from thetahat.model.io.load import load

ROUNDING = 1e-12  # relative: sums of a few links
CLI = [sys.executable, "-m", "thetahat.cli"]
ARM = robots.path("arm4").read_text(encoding="utf-8")
KEYS = {
    "schema",
    "name",
    "source",
    "nq",
    "nv",
    "gravity",
    "mass",
    "joints",
    "bodies",
    "notes",
    "warnings",
}
JOINT_KEYS = {
    "name",
    "kind",
    "parent",
    "body",
    "axis",
    "lower",
    "upper",
    "velocity",
    "effort",
    "mimic",
    "damping",
    "friction",
    "armature",
}
BODY_KEYS = {
    "name",
    "links",
    "mass",
    "com",
    "inertia_com",
    "principal_moments",
    "theta",
    "consistent",
    "condition",
}


UNSET = ("COLUMNS", "NO_COLOR", "THETAHAT_DEBUG")


def thetahat(*arguments: object, columns: int | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in this process: a start would be most of the time."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
    )
    argv = ["thetahat", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        for name in UNSET:
            patched.delenv(name, raising=False)
        if columns is not None:
            patched.setenv("COLUMNS", str(columns))
        for name, value in (("argv", argv), ("stdout", out), ("stderr", err)):
            patched.setattr(sys, name, value)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    code = int(ended.value.code or 0)
    said = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(argv, code, *said)


def process(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, for what is between it and the system."""
    environment = {key: value for key, value in os.environ.items() if key not in UNSET}
    environment |= {"PYTHONPATH": str(ROOT / "src")} | options.pop("env", {})
    options = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "encoding": "utf-8",
        "timeout": 60,
    } | options
    return subprocess.run([*CLI, *map(str, arguments)], env=environment, **options)


def answer(*arguments: object) -> dict:
    """The JSON answer, refusing NaN and Infinity, which are not JSON."""

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} in JSON")

    done = thetahat("inspect", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout, parse_constant=refuse)


def changed(folder: Path, old: str, new: str) -> Path:
    """arm4 with one change."""
    assert ARM.count(old) >= 1
    path = folder / "arm.urdf"
    path.write_text(ARM.replace(old, new, 1), encoding="utf-8")
    return path


# -- what it says ----------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ["arm4", "arm7", "panda", "talos"])
def test_json_agrees_with_pinocchio(robot: str) -> None:
    pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    path = robots.path(robot) if robot in robots.names() else example_robot(robot)
    found, model = answer(path), pinocchio.buildModelFromUrdf(str(path))
    assert found["schema"] == "thetahat/inspect/1"
    assert set(found) >= KEYS
    assert {joint["name"] for joint in found["joints"]} == set(
        model.names[1:]
    )  # the order of children is Pinocchio's own
    assert found["nv"] == model.nv - sum(joint["mimic"] is not None for joint in found["joints"])
    assert found["mass"] == pytest.approx(pinocchio.computeTotalMass(model), rel=ROUNDING)
    bodies = {body["name"]: body for body in found["bodies"]}
    for joint in found["joints"]:
        assert set(joint) >= JOINT_KEYS
        k, body = model.getJointId(joint["name"]), bodies[joint["body"]]
        inertia, at, parent = model.inertias[k], model.joints[k].idx_v, model.parents[k]
        assert set(body) >= BODY_KEYS
        assert joint["parent_joint"] == (model.names[parent] if parent else None)
        for key, limit in (("velocity", model.velocityLimit), ("effort", model.effortLimit)):
            assert joint[key] == pytest.approx(limit[at])
        assert body["mass"] == pytest.approx(inertia.mass, rel=ROUNDING)
        np.testing.assert_allclose(body["com"], inertia.lever, rtol=0, atol=ROUNDING)
        scale = ROUNDING * np.abs(inertia.inertia).max()
        # The inertia about the centre is a difference of two larger numbers wherever the centre is
        # far from the origin.
        scale += ROUNDING * inertia.mass * inertia.lever @ inertia.lever
        np.testing.assert_allclose(
            body["inertia_com"], inertia.inertia[np.triu_indices(3)], rtol=0, atol=scale
        )
        np.testing.assert_allclose(
            body["principal_moments"], np.linalg.eigvalsh(inertia.inertia), rtol=0, atol=3 * scale
        )


def test_text_names_every_joint_body_and_link_and_floats_the_base() -> None:
    done = thetahat("inspect", "arm7", "--floating-base")
    assert done.returncode == 0
    assert done.stderr == ""
    robot = load(robots.path("arm7"), floating_base=True)
    for name in (*robot.joint_names, *robot.body_names, *(link.name for link in robot.links)):
        assert re.search(rf"\b{name}\b", done.stdout), name
    assert "nq 14, nv 13" in done.stdout
    assert f"{robot.mass:.4g} kg" in done.stdout


def test_gravity_and_infinite_limits() -> None:
    found = answer("double_pendulum", "--gravity", "-9.81,0,0")
    assert found["gravity"] == [-9.81, 0, 0]
    assert found["joints"][0]["lower"] is found["joints"][0]["upper"] is None
    assert found["joints"][1]["upper"] == 2.8


def test_unphysical_link_is_named_with_its_condition_and_a_way_out(tmp_path: Path) -> None:
    path = changed(tmp_path, 'izz="0.0055539"', 'izz="0.055539"')  # Izz > Ixx + Iyy
    done = thetahat("inspect", path)
    assert done.returncode == 0  # inspect reports; what needs a physical robot exits 4
    assert re.search(r"link shoulder: .*triangle inequality", done.stdout)
    assert "projected()" in done.stdout
    assert re.fullmatch(
        r"warning: arm\.urdf: link 'shoulder' is not physical: .*triangle inequality.*\n",
        done.stderr,
    )
    found = answer(path)
    assert not found["consistent"]
    assert [body["name"] for body in found["bodies"] if not body["consistent"]] == ["shoulder"]
    assert "triangle inequality" in found["bodies"][0]["condition"]
    assert found["bodies"][0]["unphysical_links"][0]["name"] == "shoulder"
    assert len(found["warnings"]) == 1
    assert thetahat("inspect", path, "--quiet").stderr == ""


def test_unphysical_link_is_named_where_the_body_it_is_welded_into_is_physical(
    tmp_path: Path,
) -> None:
    path = changed(
        tmp_path, '<mass value="0.85"/>', '<mass value="-0.85"/>'
    )  # the hand, behind a fixed joint
    found = answer(path)
    forearm = next(body for body in found["bodies"] if body["name"] == "forearm")
    assert [link["name"] for link in forearm["unphysical_links"]] == ["hand"]
    assert "link hand: mass is negative" in thetahat("inspect", path).stdout


def test_the_drawing_determines_the_tree() -> None:
    """From guides alone: a branch hangs in the last joint one step to the left, any other joint in
    the one drawn above it.
    """
    chance = random.Random(0)
    for _ in range(200):
        count, narrow = chance.randint(1, 30), chance.random()
        parents = [
            (
                None
                if i == 0 or chance.random() < 0.1
                else i - 1
                if chance.random() < narrow
                else chance.randrange(i)
            )
            for i in range(count)
        ]
        joints = [
            {"name": str(i), "parent_joint": None if parent is None else str(parent)}
            for i, parent in enumerate(parents)
        ]
        last: dict[int, str] = {}
        drawn = {}
        for guide, joint in guided(joints):
            level, branch = len(guide) // 2, guide.endswith("╴")
            drawn[joint["name"]] = last.get(level - 1) if branch else last[level]
            last[level] = joint["name"]
        assert drawn == {joint["name"]: joint["parent_joint"] for joint in joints}


# -- which file ------------------------------------------------------------------------------------


def test_a_file_goes_before_a_shipped_robot_and_a_folder_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm7").mkdir()
    assert json.loads(thetahat("inspect", "arm7", "--json").stdout)["name"] == "arm7"
    changed(tmp_path, 'robot name="arm4"', 'robot name="mine"').rename(tmp_path / "arm4")
    assert json.loads(thetahat("inspect", "arm4", "--json").stdout)["name"] == "mine"


# -- how it ends -----------------------------------------------------------------------------------

BOMB = (
    '<!DOCTYPE robot [<!ENTITY a "aaaaaaaaaa"><!ENTITY b'
    ' "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>\n<robot name="&b;"><link name="a"/></robot>'
)


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("", 3, "arm.urdf"),
        ("<robot", 3, "arm.urdf"),
        (ARM.replace('"3.7"', '"3.7kg"'), 3, "3.7kg"),
        (BOMB, 7, "arm.urdf"),
        (None, 6, "arm.urdf"),
    ],
    ids=["empty", "truncated", "unit", "bomb", "absent"],
)
def test_bad_files_end_in_their_code_and_one_sentence(
    content: str | None, code: int, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "arm.urdf"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    done = thetahat("inspect", path, "--quiet")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("inspect", "arm4", "--wrong"),
        ("wrong",),
        *(("inspect", "arm4", "--gravity", text) for text in ("1,2", "x,0,0", "0,0,nan", "")),
    ],
)
def test_usage_errors_exit_2(arguments: tuple[str, ...]) -> None:
    done = thetahat(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert done.stderr


def test_an_unknown_robot_lists_those_that_ship() -> None:
    done = thetahat("inspect", "arm5")
    assert done.returncode == 6
    assert all(name in done.stderr for name in robots.names())


FAILURES = [
    (errors.UsageError("a"), 2, "error: a\n"),
    (errors.MalformedInput("b\nc\x1b[31m"), 3, "error: b c [31m\n"),
    (errors.UnphysicalRobot("d"), 4, "error: d\n"),
    (errors.NotIdentifiable("e"), 5, "error: e\n"),
    (errors.StorageError("f"), 6, "error: f\n"),
    (errors.RefusedForSafety("g"), 7, "error: g\n"),
    (PermissionError(13, "Permission denied", "h.urdf"), 6, "error: h.urdf: Permission denied;"),
    (MemoryError(), 7, "error: out of memory"),
    (ZeroDivisionError("i"), 1, "error: unexpected ZeroDivisionError: i"),
    (KeyboardInterrupt(), 130, "interrupted\n"),
    (BrokenPipeError(), 141, ""),
]


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    FAILURES,
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_failure_is_a_code_and_a_sentence(
    failure: BaseException,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("THETAHAT_DEBUG", raising=False)
    with pytest.raises(SystemExit) as ended, guarded():
        raise failure
    captured = capsys.readouterr()
    assert ended.value.code == code
    assert captured.out == ""
    assert captured.err.startswith(said)
    assert captured.err.count("\n") == (1 if said else 0)


@pytest.mark.parametrize(
    ("failure", "code"), [(RuntimeError("boom"), 1), (KeyboardInterrupt(), 130)]
)
def test_a_failure_inside_a_verb_reaches_the_guard(
    failure: BaseException,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from thetahat.cli import main

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(loading, "load", fail)
    monkeypatch.setattr(sys, "argv", ["thetahat", "inspect", "arm4"])
    monkeypatch.delenv("THETAHAT_DEBUG", raising=False)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert "Traceback" not in capsys.readouterr().err
    if code == 1:
        monkeypatch.setenv("THETAHAT_DEBUG", "1")
        with pytest.raises(SystemExit):
            main()
        assert "Traceback" in capsys.readouterr().err


def test_many_warnings_are_counted_and_all_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with collect_warnings() as sentences:
        for i in range(40):
            warnings.warn(f"link {i}", RobotWarning, stacklevel=1)
    assert sentences == [f"link {i}" for i in range(40)]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "warning: link 0"
    assert lines[-1] == "warning: 28 more like these (--json lists all)"
    assert len(lines) == 13


def test_a_reader_that_left_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = process("inspect", "arm7", stdout=closed)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is not on this system")
def test_a_full_disk_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = process("inspect", "arm7", stdout=full)
    assert done.returncode == 6
    assert "No space left" in done.stderr
    assert done.stderr.count("\n") == 1


# -- terminals -------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str, **environment: str) -> str:
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*CLI, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"} | environment,
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:  # Linux says the other end has gone in this way
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return output.decode("utf-8")


def test_colour_only_where_a_terminal_wants_it() -> None:
    colour = re.compile(
        r"\x1b\[(?!0?m)[\d;]*m"
    )  # not the cursor's movements of a progress bar, nor the reset that colorama prints at the end
    assert colour.search(on_a_terminal("inspect", "arm4", NO_COLOR="", COLUMNS="100"))
    assert not colour.search(on_a_terminal("inspect", "arm4", NO_COLOR="1", COLUMNS="100"))
    assert "\x1b" not in process("inspect", "arm4").stdout


def test_names_from_a_file_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = changed(
        tmp_path, 'robot name="arm4"', 'robot name="&#x9b;31m[bold]&lt;b&gt;"'
    )  # U+009B begins a control sequence
    done = thetahat("inspect", path)
    assert done.returncode == 0, done.stderr
    assert "\x9b" not in done.stdout
    assert "[bold]<b>" in done.stdout  # nor is it markup


def test_a_terminal_that_only_knows_ascii_gets_an_answer() -> None:
    done = process("inspect", "arm4", env={"PYTHONIOENCODING": "ascii"}, encoding="ascii")
    assert done.returncode == 0, done.stderr
    assert "shoulder_pitch" in done.stdout


@pytest.mark.parametrize("width", [40, 60, 80])
def test_numbers_are_whole_however_narrow_the_terminal(width: int) -> None:
    """A mass cut short by the edge is another mass; it may only move to the next line."""
    text = thetahat("inspect", "arm4", columns=width).stdout
    table = text[text.index("centre of") if "centre of" in text else 0 :]
    for body in describe(load(robots.path("arm4")))["bodies"]:
        assert all(f"{value:.4f}" in table for value in body["com"])


# -- speed -----------------------------------------------------------------------------------------


def test_help_and_version_are_quick_and_load_nothing_heavy() -> None:
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert "inspect" in process("--help").stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # Processor time, and the best of several, since a test machine may be busy with other things;
    # on an idle one it is what the user waits.
    assert min(spent) <= 0.3
    code = (
        "import sys, atexit; sys.argv = ['thetahat', '--help']; from thetahat.cli import"
        " main\natexit.register(lambda: print(*[name for name in ('numpy', 'numba', 'scipy',"
        " 'polars') if name in sys.modules], file=sys.stderr))\nmain()"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stderr.strip()
        == ""
    )
    assert re.fullmatch(r"thetahat \d+\.\d+\.\d+\S*\n", process("--version").stdout)


def test_the_list_of_verbs_shows_whole_sentences() -> None:
    for command in program().commands.values():
        assert (command.short_help or "").endswith("."), command.name
