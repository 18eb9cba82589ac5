"""Folders beside a robot file's own that meshes may be read from, as the user states them.

`--asset-root DIR` of the command line, or the environment variable `THETAHAT_ASSET_ROOT` (several
with the system's path separator), which processes that are started inherit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from thetahat.errors import UsageError

VARIABLE = "THETAHAT_ASSET_ROOT"


def asset_roots() -> tuple[Path, ...]:
    """Return the folders that meshes may be read from, resolved; none by default."""
    names = [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    return tuple(_folder(name, VARIABLE) for name in names)


@contextmanager
def meshes_allowed_in(folders: Sequence[str]) -> Iterator[None]:
    """Allow meshes in these folders, too, in this process and those it starts meanwhile."""
    if not folders:
        yield
        return
    before = os.environ.get(VARIABLE)
    added = [str(_folder(name, "--asset-root")) for name in folders]
    os.environ[VARIABLE] = os.pathsep.join([*added, *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def _folder(name: str, stated: str) -> Path:
    try:
        path = Path(name).resolve()
        if path.is_dir():
            return path
    except (OSError, RuntimeError, ValueError):
        pass
    raise UsageError(f"{stated} is {name!r}, which is not a folder; name the folder of the meshes")
