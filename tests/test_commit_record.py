"""A process that is killed while files take their places: whoever comes next finishes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from thetahat import commit_record, files
from thetahat.errors import StorageError
from thetahat.json_document import read_document

OLD, NEW = b'{"of": "old"}', b'{"of": "new"}'
# writes three files and removes a fourth, and is killed at the k-th change of a name
PROGRAM = """
import os, signal, sys
from pathlib import Path
from thetahat.files import remove_file, write_atomically, written_together
folder, left = Path(sys.argv[1]), [int(sys.argv[2])]
def hook(event, given):
    if event in ("os.rename", "os.remove"):
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
sys.addaudithook(hook)
with written_together():
    remove_file(folder / "d.json")
    for name in "abc":
        write_atomically(folder / f"{name}.json", '{"of": "new"}')
"""


def earlier(folder: Path) -> Path:
    for name in "abd":
        (folder / f"{name}.json").write_bytes(OLD)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name[0] != "."}


@pytest.mark.parametrize("changes", range(6))
def test_a_kill_between_two_renames_leaves_one_set(tmp_path: Path, changes: int) -> None:
    earlier(tmp_path)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(changes)]
    ended = subprocess.run(command, timeout=60, check=False)
    assert ended.returncode == (-signal.SIGKILL if changes < 5 else 0)
    read_document(tmp_path / "a.json", None, "a result")  # as every verb does
    assert contents(tmp_path) == dict.fromkeys(("a.json", "b.json", "c.json"), NEW)
    assert not (tmp_path / commit_record.NAME).exists()


def test_what_is_written_later_is_not_undone(tmp_path: Path) -> None:
    earlier(tmp_path)
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), "1"], timeout=60, check=False)
    files.write_atomically(tmp_path / "a.json", b"later")
    commit_record.finish_interrupted(tmp_path)
    assert contents(tmp_path) == {"a.json": b"later", "b.json": NEW, "c.json": NEW}


def scratch(folder: Path, name: str = ".a.json.12345678.json") -> Path:
    (folder / name).write_bytes(NEW)
    return folder / name


@pytest.mark.parametrize(
    "moves",
    [
        [[".a.json.12345678.json", "../b.json"]],
        [[None, "../b.json"]],
        [["../b.json", "a.json"]],
        [["/etc/hostname", "a.json"]],
        [["b.json", "a.json"]],  # not the name of a scratch file
        [[".a.json.12345678.json"]],
        {"a": 1},
        7,
    ],
)
def test_a_made_up_record_moves_nothing(tmp_path: Path, moves: object) -> None:
    folder = tmp_path / "result"
    folder.mkdir()
    earlier(folder)
    (tmp_path / "b.json").write_bytes(b"outside")
    scratch(folder)
    (folder / commit_record.NAME).write_text(json.dumps(moves))
    commit_record.finish_interrupted(folder)
    assert contents(folder) == dict.fromkeys(("a.json", "b.json", "d.json"), OLD)
    assert (tmp_path / "b.json").read_bytes() == b"outside"


def test_a_record_cut_in_writing_moves_nothing(tmp_path: Path) -> None:
    earlier(tmp_path)
    record = json.dumps([[scratch(tmp_path).name, "a.json"]])
    (tmp_path / commit_record.NAME).write_text(record[:-1])
    commit_record.finish_interrupted(tmp_path)
    assert contents(tmp_path)["a.json"] == OLD


def test_a_link_is_no_record(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    folder.mkdir()
    earlier(folder)
    (tmp_path / "record").write_text(json.dumps([[scratch(folder).name, "a.json"]]))
    (folder / commit_record.NAME).symlink_to(tmp_path / "record")
    with pytest.raises(StorageError, match="killed while it wrote"):
        commit_record.finish_interrupted(folder)
    assert contents(folder)["a.json"] == OLD


def test_scratch_files_of_dead_processes_go(tmp_path: Path) -> None:
    earlier(tmp_path)
    old, young = scratch(tmp_path), scratch(tmp_path, ".a.json.abcdefgh.json")
    other = scratch(tmp_path, ".a.json.12345678.txt")
    for path in (old, other):
        os.utime(path, (0, 0))
    with files.written_together():
        files.write_atomically(tmp_path / "a.json", b"1")
        files.write_atomically(tmp_path / "b.json", b"2")
    assert not old.exists()
    assert young.exists()
    assert other.exists()
