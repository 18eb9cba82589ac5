"""Writing a robot back: what is refused, and what a kill or a full disk leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT
from save_cases import URDF, body, heavier, load, own_folder  # noqa: F401 (a fixture)

from oracles.random_trees import random_robot
from thetahat.errors import StorageError, UsageError
from thetahat.model.io.save import save


def test_the_source_is_never_written_to_by_whatever_name(tmp_path: Path) -> None:
    robot = load()
    before = Path("arm.urdf").read_bytes()
    Path("link.urdf").symlink_to("arm.urdf")
    os.link("arm.urdf", "hard.urdf")
    for name in (
        "arm.urdf",
        tmp_path / "arm.urdf",
        "./../" + tmp_path.name + "/arm.urdf",
        "link.urdf",
        "hard.urdf",
    ):
        with pytest.raises(UsageError, match=r"is the file the robot was read from.*another name"):
            save(heavier(robot, "upper"), name)
    assert Path("arm.urdf").read_bytes() == before
    Path("arm.urdf").unlink()
    Path("hard.urdf").unlink()
    with pytest.raises(UsageError, match=r"is the file the robot was read from"):
        save(robot, "arm.urdf")  # gone, but it was the source


def test_what_cannot_be_saved_is_said_in_a_sentence() -> None:
    robot = load()
    theta = robot.theta.copy()
    theta[13] = np.nan
    with pytest.raises(UsageError, match=r"mcz of body 'lower' is nan"):
        save(robot.with_parameters(theta), "new.urdf")
    with pytest.raises(UsageError, match=r"not loaded from a file.*th.load"):
        save(random_robot(0), "new.urdf")
    with pytest.raises(UsageError, match=r"is a folder"):
        save(robot, ".")
    with pytest.raises(UsageError, match=r"give the path"):
        save(robot, None)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=r"no folder missing; make it"):
        save(robot, "missing/new.urdf")
    Path("file").write_text("")
    with pytest.raises(StorageError, match=r"file/new.urdf cannot be written"):
        save(robot, "file/new.urdf")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('xyz="0.3 0 0"', 'xyz="0.31 0 0"', "joint 'elbow' is another"),
        ('value="2.50"', 'value="2.51"', "link 'upper' has another inertia"),
        ('damping="0.10"', 'damping="0.11"', "joint 'shoulder' has other drive values"),
        ("shoulder", "hip", "it has no joint 'shoulder'"),
        ('axis xyz="0 1 0"', 'axis xyz="1 0 0"', "joint 'shoulder' is another"),
    ],
)
def test_a_source_that_changed_since_is_noticed(old: str, new: str, message: str) -> None:
    robot = load()
    Path("arm.urdf").write_text(URDF.replace(old, new))
    with pytest.raises(StorageError, match=f"arm.urdf is not the file.*{message}.*load it again"):
        save(heavier(robot, "upper"), "new.urdf")


# -- atomic ----------------------------------------------------------------------------------------


def test_a_full_disk_or_read_only_folder_leaves_the_old_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    robot = load()
    save(robot, "new.urdf")
    before = Path("new.urdf").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left"):
        save(heavier(robot, "upper"), "new.urdf")
    assert Path("new.urdf").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["arm.urdf", "new.urdf"]


def test_a_kill_leaves_a_whole_file(tmp_path: Path) -> None:
    """A process that saves two versions in turn is killed somewhere in between: what is there is
    one of them.
    """
    load()
    code = (
        "import sys, thetahat as th; from thetahat.model.io.save import save\n"
        "r = th.load('arm.urdf'); versions = [r, r.with_parameters(2.0 * r.theta)]\n"
        "save(versions[0], 'a.urdf'); save(versions[1], 'b.urdf'); print('ready', flush=True)\n"
        "while True:\n    [save(v, 'new.urdf') for v in versions]\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    try:
        assert child.stdout.readline().strip() == b"ready"
        time.sleep(0.3)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    assert Path("new.urdf").read_bytes() in (
        Path("a.urdf").read_bytes(),
        Path("b.urdf").read_bytes(),
    )
