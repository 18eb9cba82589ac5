"""LeRobot datasets: a folder with meta/info.json and Parquet files of episodes [LeRobot].

`observation.state`, `observation.velocity`, `observation.effort` and `action` are lists, with
names in info.json: they become `q.<name>`, `dq.<name>`, `tau.<name>` and `cmd.<name>`, or `q1 …`
where they have no names. `timestamp` is `t`, and `episode_index` the run (`seg`). Version 2 has one
file per episode, version 3 several episodes per file. Videos are never opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from thetahat.data.formats.parquet import ParquetTable
from thetahat.data.formats.table import Block, Table, check_names, label, opened, shown
from thetahat.errors import MalformedInput, RefusedForSafety, known

MAX_INFO = 16 * 2**20  # bytes of info.json
MAX_FILES = 100_000
KINDS = {  # list column → kind of the log's columns
    "observation.state": "q",
    "observation.velocity": "dq",
    "observation.effort": "tau",
    "action": "cmd",
}
_SUFFIX = re.compile(r"\.(pos|vel|effort|torque|tau)$")  # of names such as shoulder_pan.pos


def dataset_files(path: Path) -> list[Path]:
    """Return the Parquet files of a dataset, in the order of their chunks and numbers."""

    def numbers(file: Path) -> list[int | str]:
        parts = re.split(r"(\d+)", "/".join(file.relative_to(path).parts))
        return [int(part) if part.isdecimal() else part for part in parts]

    files = [file for file in (path / "data").glob("chunk-*/*.parquet") if file.is_file()]
    if not files:
        raise MalformedInput(
            f"{label(path)} has no data/chunk-*/*.parquet; give the whole folder of the dataset"
        )
    if len(files) > MAX_FILES:
        raise RefusedForSafety(
            f"{label(path)} holds {len(files)} Parquet files; at most {MAX_FILES} are read"
        )
    root = path.resolve()
    for file in files:
        if not file.resolve().is_relative_to(root):
            raise RefusedForSafety(
                f"{label(file)} is a link that leaves the dataset's folder, which is refused; copy"
                " the file there"
            )
    return sorted(files, key=numbers)


class LeRobotTable(Table):
    """A dataset. info.json and the first file's footer are read when it is opened."""

    def __init__(self, path: Path, *, patterns: Sequence[str] = ()) -> None:
        info = _info(path)
        super().__init__(path, dataset_files(path))
        first = ParquetTable(self.files[0])
        features = info.get("features")
        names: dict[str, str] = {}  # column of this table → of the files
        for column in first.names:
            if column not in _expanded(first):
                names[{"timestamp": "t", "episode_index": "seg"}.get(column, column)] = column
        for feature, width in first.widths.items():
            raw = any(pattern.startswith(feature) for pattern in patterns)
            given = _names(features, feature, width, path)
            kind = KINDS.get(feature)
            for k in range(width):
                source = f"{feature}{k + 1}"
                if raw or kind is None:
                    names[source] = source
                else:
                    names[f"{kind}.{given[k]}" if given else f"{kind}{k + 1}"] = source
        if "t" not in names:
            raise MalformedInput(
                f"{label(self.files[0])} has no column 'timestamp'; its columns:"
                f" {known(first.names)}"
            )
        self._source = names
        self.names = tuple(names)
        check_names(path, self.names)
        self._starts: list[int] = []  # first row of each file, as far as they were read

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return the slices of all files, one after another."""
        wanted = [self._source[name] for name in columns]
        run = None if run_column is None else self._source[run_column]
        self._starts, row = [], 0
        for file in self.files:
            table = ParquetTable(file)
            missing = [
                name for name in (*wanted, *([run] if run else [])) if name not in table.names
            ]
            if missing:
                raise MalformedInput(
                    f"{label(file)} has no column {shown(missing[0])}, which the first file of the"
                    " dataset has; its columns: {known(table.names)}"
                )
            table.skip_bad_rows, table.skip_empty_rows = self.skip_bad_rows, self.skip_empty_rows
            self._starts.append(row)
            for block in table.read(wanted, run, first=first):
                row += len(block)
                yield block

    def place(self, row: int) -> str:
        """Return the file and row."""
        at = max(0, sum(start <= row for start in self._starts) - 1)
        start = self._starts[at] if self._starts else 0
        name = self.files[at].relative_to(self.path)
        return f"{label(name)}, row {row - start} (counting from 0)"


def _expanded(table: ParquetTable) -> set[str]:
    return {f"{name}{k + 1}" for name, width in table.widths.items() for k in range(width)}


def _info(path: Path) -> Mapping[str, object]:
    file = path / "meta" / "info.json"
    with opened(file) as stream:
        text = stream.read(MAX_INFO + 1)
    if len(text) > MAX_INFO:
        raise RefusedForSafety(f"{label(file)} is larger than {MAX_INFO // 2**20} MiB")
    try:
        info = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput(
            f"{label(file)} is not JSON ({shown(error, 90)}); copy the dataset again"
        ) from None
    if not isinstance(info, dict):
        raise MalformedInput(f"{label(file)} is not an object; copy the dataset again")
    return info


def _names(features: object, feature: str, width: int, path: Path) -> list[str]:
    """Return the names of a feature's numbers; none where info.json has none."""
    entry = features.get(feature) if isinstance(features, dict) else None
    names = entry.get("names") if isinstance(entry, dict) else None
    if isinstance(names, dict) and len(names) == 1:  # {"motors": [...]}
        names = next(iter(names.values()))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return []
    if len(names) != width:
        raise MalformedInput(
            f"{label(path / 'meta' / 'info.json')} gives {len(names)} names to"
            f" {shown(feature)}, whose lists have {width} numbers; correct one of them"
        )
    return [_SUFFIX.sub("", name) for name in names]
