"""Files that are written together: the old set or the new one, whatever fails and when."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.errors import StorageError
from thetahat.files import as_written, remove_file, write_atomically, written_together


class FullDisk:
    """A disk that is full from the k-th file on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left, self._fsync = after, os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        if not self.left:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= 1
        self._fsync(descriptor)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("after", range(5))  # three files, and the record of their renaming
def test_a_full_disk_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    for name in "abc":
        (tmp_path / name).write_text("old")
    before = contents(tmp_path)
    FullDisk(monkeypatch, after)

    def write() -> None:
        with written_together():
            remove_file(tmp_path / "c")
            for name in "abd":
                write_atomically(tmp_path / name, "new")
                assert as_written(tmp_path / name).read_text() == "new"
            assert (tmp_path / "a").read_text() == "old"

    if after < 4:
        with pytest.raises(StorageError, match="No space left"):
            write()
        assert contents(tmp_path) == before
    else:
        write()
        assert contents(tmp_path) == dict.fromkeys("abd", b"new")


def test_an_error_half_way_leaves_the_old_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    @written_together()
    def write() -> None:
        write_atomically(tmp_path / "a", "new")
        write_atomically(tmp_path / "b", "new")
        raise KeyError

    with pytest.raises(KeyError):
        write()
    assert contents(tmp_path) == {"a": b"old"}


def test_a_robot_and_its_drive_file_change_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = th.load(robots.path("arm4")).with_drive(offset=True)
    drive = robot.drive.with_values(offset=np.array([0.1, 0.2, 0.3, 0.4]))
    robot = replace(robot, drive=drive)
    target = tmp_path / "arm.urdf"
    th.save(robot, target)
    before = contents(tmp_path)
    assert set(before) == {"arm.urdf", "drive.json"}
    heavier = replace(
        robot.with_parameters(1.01 * robot.theta),
        drive=drive.with_values(offset=np.array([0.5, 0.2, 0.3, 0.4])),
    )
    for after in range(3):
        with monkeypatch.context() as patch:
            FullDisk(patch, after)
            with pytest.raises(StorageError):
                th.save(heavier, target)
        assert contents(tmp_path) == before
    th.save(heavier, target)
    after_all = contents(tmp_path)
    assert all(after_all[name] != before[name] for name in before)
