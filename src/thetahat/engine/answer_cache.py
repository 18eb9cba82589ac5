"""Whole answers of `identify`, kept by everything they depend on, so that a run in which nothing is
new reads no row of any log.

    DIR/answers/ab12…    the files that were written and estimate.json, one entry for each answer,
    with a checksum inside (codec.py)

What an answer depends on is the content of logs and robot, every option, where it is written, and
the program itself: the hash of its source. Like spools, answers may be deleted at any time; the
oldest go first.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from thetahat.engine import array_codec
from thetahat.engine.fingerprint import fingerprint, robot_fingerprint
from thetahat.engine.multi_log import Catalogue
from thetahat.engine.row_cache import evict
from thetahat.engine.store import Store
from thetahat.files import write_atomically
from thetahat.model.robot import Robot

SCHEMA = "thetahat/answer/1"
BYTES = 256 * 2**20  # of all answers of a store


@cache
def program() -> str:
    """The hash of the program's source: another one may answer otherwise."""
    root = Path(__file__).parents[1]
    return fingerprint(
        [(str(path.relative_to(root)), path.read_bytes()) for path in sorted(root.rglob("*.py"))]
    )


def answer_key(
    robot: Robot,
    options: Any,
    inputs: Sequence[Path | None],
    logs: Sequence[Catalogue],
    folder: Path,
) -> str:
    """The hash of all that an answer depends on. inputs: files whose content counts, the robot's
    among them.
    """
    given = [
        None if path is None else (str(path), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in inputs
    ]
    rows = [[(entry.item.given, entry.survey.digest) for entry in files.entries] for files in logs]
    return fingerprint(
        "answer",
        program(),
        robot_fingerprint(robot, values=True),
        robot.name,
        options,
        given,
        rows,
        str(folder.absolute()),
    )


def keep(
    store: Store, key: str, found: dict[str, Any], files: Sequence[Path], folder: Path
) -> None:
    """Keep an answer and the files that were written beneath `folder`."""
    names = [str(path.relative_to(folder)) for path in files]
    arrays = {
        f"file{k}": np.frombuffer(path.read_bytes(), dtype=np.uint8) for k, path in enumerate(files)
    }
    path = store.folder / "answers" / key
    write_atomically(
        path,
        array_codec.packed({"schema": SCHEMA, "key": key, "answer": found, "files": names}, arrays),
        folders=True,
    )
    evict(path, "[0-9a-f]*", BYTES)


def kept(store: Store, key: str, folder: Path) -> tuple[dict[str, Any], list[Path]] | None:
    """The answer, its files written beneath `folder`, estimate.json last, so that it says that all
    are there; None where it is not known.
    """
    path = store.folder / "answers" / key
    try:
        values, arrays = array_codec.unpacked(path.read_bytes())
        if values.get("schema") != SCHEMA or values.get("key") != key:
            raise array_codec.Damaged("it is the entry of another key")
        files = {
            folder / name: arrays[f"file{k}"].tobytes() for k, name in enumerate(values["files"])
        }
    except OSError:
        return None
    except (array_codec.Damaged, KeyError):
        store.damaged.append(key)
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):
        os.utime(path)  # it is of use
    for file, data in reversed(files.items()):
        write_atomically(file, data, folders=True)
    return values["answer"], list(files)
