"""One module per file format; `open_table` chooses by the file's name and first bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from thetahat.data.formats.table import Block, Table, label, opened
from thetahat.errors import MalformedInput, RefusedForSafety, StorageError

__all__ = ["SUFFIXES", "Block", "Table", "is_bag_folder", "open_table"]

SUFFIXES = (".csv", ".parquet", ".npz", ".mcap", ".bag", ".db3")
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tgz")
_PICKLED = (".pkl", ".pickle", ".joblib", ".dill")


def is_bag_folder(path: Path) -> bool:
    """Whether a folder is a ROS 2 bag."""
    return path.is_dir() and (path / "metadata.yaml").is_file()


def open_table(
    path: Path, *, joints: Sequence[str] = (), topic: str | None = None, salvage: bool = False
) -> Table:
    """Open a log file, or the folder of a ROS 2 bag, and read what its header says."""
    suffix = path.suffix.lower()
    if is_bag_folder(path):
        suffix = ".bag"
    elif path.is_dir():
        raise StorageError(
            f"{label(path)} is a folder without logs in it; give a file, or a folder of files"
            f" ending in {', '.join(SUFFIXES)}"
        )
    match suffix:
        case ".csv" | ".txt":
            from thetahat.data.formats.csv import CsvTable

            return CsvTable(path, salvage=salvage)
        case ".parquet" | ".pq":
            from thetahat.data.formats.parquet import ParquetTable

            return ParquetTable(path)
        case ".npz":
            from thetahat.data.formats.npz import NpzTable

            return NpzTable(path)
        case ".mcap" | ".bag" | ".db3":
            from thetahat.data.formats.bags import BagTable

            return BagTable(path, joints=joints, topic=topic, salvage=salvage)
    with opened(path):
        pass  # a file that is not there says so first
    if suffix in _PACKED:
        raise RefusedForSafety(
            f"{label(path)} is compressed, and a small file may unpack to any size; unpack it"
            " yourself and give the log inside"
        )
    if suffix in _PICKLED:
        raise RefusedForSafety(
            f"{label(path)} is refused: {suffix} files may run code when they are loaded; save the"
            " log as CSV, Parquet or NPZ"
        )
    raise MalformedInput(
        f"{label(path)} has the unknown ending {suffix!r}; logs end in {', '.join(SUFFIXES)}"
    )
