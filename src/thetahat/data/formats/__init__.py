"""One module per file format; `open_table` chooses by the file's name and first bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from thetahat.data.formats.table import Block, Table, label, opened
from thetahat.errors import MalformedInput, RefusedForSafety, StorageError

__all__ = ["SUFFIXES", "Block", "Table", "folder_files", "is_log_folder", "open_table"]

SUFFIXES = (
    *(".csv", ".tsv", ".parquet", ".feather", ".arrow", ".npz", ".mat"),
    *(".mcap", ".bag", ".db3"),
)
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tgz")
_PICKLED = (".pkl", ".pickle", ".joblib", ".dill")


def is_bag_folder(path: Path) -> bool:
    """Whether a folder is a ROS 2 bag."""
    return path.is_dir() and (path / "metadata.yaml").is_file()


def is_lerobot_folder(path: Path) -> bool:
    """Whether a folder is a LeRobot dataset."""
    return path.is_dir() and (path / "meta" / "info.json").is_file()


def is_log_folder(path: Path) -> bool:
    """Whether a folder is one log: a ROS 2 bag or a LeRobot dataset."""
    return is_bag_folder(path) or is_lerobot_folder(path)


def folder_files(path: Path) -> list[Path]:
    """Return the files that hold the rows of a log: itself, or those of its folder."""
    if is_lerobot_folder(path):
        from thetahat.data.formats.lerobot import dataset_files

        return dataset_files(path)
    from thetahat.data.formats.bags import bag_files

    return bag_files(path)


def open_table(
    path: Path,
    *,
    joints: Sequence[str] = (),
    topic: str | None = None,
    salvage: bool = False,
    format: str | None = None,
    patterns: Sequence[str] = (),
) -> Table:
    """Open a log file, or a folder that is one log, and read what its header says.

    format: of the recorder, where it decides how the file is opened. patterns: of column names.
    """
    suffix = path.suffix.lower()
    if is_lerobot_folder(path) or (format == "lerobot" and not path.is_file()):
        from thetahat.data.formats.lerobot import LeRobotTable

        return LeRobotTable(path, patterns=patterns)
    if is_bag_folder(path):
        suffix = ".bag"
    elif path.is_dir():
        raise StorageError(
            f"{label(path)} is a folder without logs in it; give a file, or a folder of files"
            f" ending in {', '.join(SUFFIXES)}"
        )
    match suffix:
        case ".csv" | ".tsv" | ".txt":
            from thetahat.data.formats.csv import CsvTable

            return CsvTable(path, salvage=salvage)
        case ".parquet" | ".pq":
            from thetahat.data.formats.parquet import ParquetTable

            return ParquetTable(path)
        case ".feather" | ".arrow" | ".ipc":
            from thetahat.data.formats.feather import FeatherTable

            return FeatherTable(path)
        case ".mat":
            from thetahat.data.formats.mat import MatTable

            return MatTable(path)
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
