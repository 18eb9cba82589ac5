"""MATLAB files: version 5 to 7 by scipy, version 7.3 (HDF5) by h5py, which is the extra `mat`.

A vector is a column; a matrix with one row (or one column) per time stamp stands for columns
`name1 … nameN`; fields of a struct are `struct.field`, or `field` where the file holds that struct
alone. Nothing in the file is executed: objects, functions, cells and links to other files are left
out or refused. Version 7.3 is read in slices of rows; the older versions are loaded whole, after
their unpacked size was measured.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from thetahat.data.formats.table import (
    MAX_COLUMNS,
    Block,
    Table,
    check_names,
    label,
    labels_of,
    opened,
    shown,
)
from thetahat.errors import MalformedInput, MissingExtra, RefusedForSafety, ThetahatError

if TYPE_CHECKING:
    import h5py

SLICE_ROWS = 65_536
MAX_RATIO = 200  # unpacked over packed; measured logs stay under 10
FREE_BYTES = 64 * 2**20  # below this nobody minds the ratio
MAX_LOADED = 2**30  # bytes of a file that is loaded whole
MAX_DEPTH = 8  # of structs in structs
_HDF5 = b"\x89HDF\r\n\x1a\n"
_HEADER = 128  # bytes of the header of version 5
_COMPRESSED = 15  # type of a compressed element
_PIECE = 2**20
_ADVICE = (
    "save plain arrays, for example with save('log.mat', 't', 'q', 'tau'); a table or timetable by"
    " table2struct(…, 'ToScalar', true)"
)


@dataclass(frozen=True)
class _Array:
    """A numeric variable: its columns, and how its rows lie."""

    name: str
    source: np.ndarray | str  # array, or path in an HDF5 file
    rows_first: bool  # whether a row of the log is a row of MATLAB's matrix
    width: int | None  # None: a vector

    @property
    def columns(self) -> list[str]:
        if self.width is None:
            return [self.name]
        return [f"{self.name}{k + 1}" for k in range(self.width)]


@dataclass(frozen=True)
class _Dataset:
    """A variable of an HDF5 file."""

    path: str
    shape: tuple[int, ...]  # as rows and columns in MATLAB


_Variable = np.ndarray | _Dataset


class MatTable(Table):
    """A MATLAB file. The sizes of its variables are read when it is opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with opened(path) as file:
            head = file.read(1024)
        if not head:
            raise MalformedInput(f"{label(path)} is empty; give a log with rows of numbers")
        self._texts: dict[str, np.ndarray] = {}
        if head.startswith(_HDF5) or head[512:520] == _HDF5:
            found: Mapping[str, _Variable] = self._open_hdf5()
        else:
            found = self._load(head)
        self._arrays, self.rows = _oriented(path, found)
        texts = {name: text for name, text in self._texts.items() if len(text) == self.rows}
        self._texts = texts
        self.widths = {each.name: each.width for each in self._arrays if each.width is not None}
        self.names = (*(name for each in self._arrays for name in each.columns), *texts)
        check_names(path, self.names)

    # -- versions 5 to 7 ---------------------------------------------------------------------------

    def _load(self, head: bytes) -> dict[str, np.ndarray]:
        path = self.path
        if not head.startswith(b"MATLAB 5.0 MAT-file") or head[126:128] not in (b"IM", b"MI"):
            raise MalformedInput(
                f"{label(path)} is not a MATLAB file of version 5 or later (it begins with"
                f" {head[:20]!r}); {_ADVICE}"
            )
        self._measure("<" if head[126:128] == b"IM" else ">")
        from scipy.io import loadmat

        try:
            content = loadmat(path, struct_as_record=True, squeeze_me=False, chars_as_strings=True)
        except Exception as error:  # whatever a damaged file makes scipy raise
            raise self._damaged(error) from None
        variables = {name: value for name, value in content.items() if not name.startswith("__")}
        out: dict[str, np.ndarray] = {}
        self._flatten("", variables, out, 0)
        return out

    def _measure(self, order: str) -> None:
        """Refuse a file whose elements unpack to more than can be loaded."""
        size, at, end = 0, _HEADER, self.states[0].size
        with opened(self.path) as file:
            while at + 8 <= end:
                file.seek(at)
                tag = file.read(8)
                kind, length = (int(each) for each in np.frombuffer(tag, dtype=f"{order}u4"))
                if at + 8 + length > end:
                    raise MalformedInput(
                        f"{label(self.path)} ends inside a variable; it was cut off, so copy or"
                        " save it again"
                    )
                left, unpack = length, zlib.decompressobj()
                while kind == _COMPRESSED and left > 0:
                    data = file.read(min(left, _PIECE))
                    left -= len(data)
                    while data:
                        try:
                            size += len(unpack.decompress(data, _PIECE))
                        except zlib.error as error:
                            raise self._damaged(error) from None
                        data = unpack.unconsumed_tail
                        self._check_size(size)
                at += 8 + length
                size += length if kind != _COMPRESSED else 0
                self._check_size(size)

    def _check_size(self, size: int) -> None:
        packed = max(self.states[0].size, 1)
        if size > FREE_BYTES and size > MAX_RATIO * packed:
            raise RefusedForSafety(
                f"{label(self.path)} has {packed} bytes but unpacks to more than {size}; no log of"
                " a moving robot does, so save it without compression"
            )
        if size > MAX_LOADED:
            raise RefusedForSafety(
                f"{label(self.path)} unpacks to more than {MAX_LOADED // 2**20} MiB, and this"
                " version of MATLAB files must be loaded whole; save it with '-v7.3', or as"
                " Parquet"
            )

    def _flatten(
        self, prefix: str, values: Mapping[str, object], out: dict[str, np.ndarray], d: int
    ) -> None:
        """Collect the numeric arrays of variables and structs; names of what is left out."""
        alone = d == 0 and len(values) == 1
        for name, value in values.items():
            array = np.asarray(value)
            full = prefix + name
            if array.dtype.names and type(value).__name__ == "ndarray":
                if array.size == 1 and d < MAX_DEPTH:
                    record = array.reshape(-1)[0]
                    inner = {field: record[field] for field in array.dtype.names}
                    self._flatten("" if alone else f"{full}.", inner, out, d + 1)
                continue
            if array.dtype.kind in "fiub" and array.ndim == 2 and array.size:
                out[full] = array
            elif array.dtype.kind == "U" and array.ndim == 1 and len(array) > 1:
                self._texts[full] = np.char.strip(array)

    # -- version 7.3 -------------------------------------------------------------------------------

    def _open_hdf5(self) -> Mapping[str, _Variable]:
        try:
            import h5py
        except ImportError:
            raise MissingExtra(
                f"{label(self.path)} is a MATLAB file of version 7.3 (HDF5), which needs the extra"
                " 'mat': pip install 'thetahat[mat]'; or save it with '-v7'"
            ) from None
        out: dict[str, _Dataset] = {}
        with self._hdf5_errors(), h5py.File(self.path, "r", locking=False) as file:
            names = [name for name in file if not name.startswith("#")]
            self._walk(file, names, "", out, 0)
        size, packed = sum(8 * math.prod(each.shape) for each in out.values()), self.states[0].size
        if size > FREE_BYTES and size > MAX_RATIO * packed:
            raise RefusedForSafety(
                f"{label(self.path)} has {packed} bytes but unpacks to {size}; no log of a moving"
                " robot does, so save it without compression"
            )
        return out

    @contextmanager
    def _hdf5_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            if isinstance(error, ThetahatError):
                raise
            raise self._damaged(error) from None

    def _walk(
        self,
        group: h5py.Group,
        names: list[str],
        prefix: str,
        out: dict[str, _Dataset],
        depth: int,
    ) -> None:
        import h5py

        if len(names) > MAX_COLUMNS:
            raise RefusedForSafety(
                f"{label(self.path)} holds {len(names)} variables; at most {MAX_COLUMNS} are read"
            )
        for name in names:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise RefusedForSafety(
                    f"{label(self.path)}: variable {shown(prefix + name)} is a link, perhaps to"
                    " another file, which is refused; save the arrays themselves"
                )
            item = group[name]
            if isinstance(item, h5py.Group):
                if depth < MAX_DEPTH and b"struct" in item.attrs.get("MATLAB_class", b"struct"):
                    alone = depth == 0 and len(names) == 1
                    inner = "" if alone else f"{prefix}{name}."
                    self._walk(item, list(item), inner, out, depth + 1)
                continue
            if item.is_virtual or item.external:
                raise RefusedForSafety(
                    f"{label(self.path)}: variable {shown(prefix + name)} keeps its numbers in"
                    " another file, which is refused; save the arrays themselves"
                )
            text = item.attrs.get("MATLAB_class") == b"char" or "MATLAB_empty" in item.attrs
            if item.dtype.kind in "fiub" and item.ndim == 2 and item.size and not text:
                out[prefix + name] = _Dataset(str(item.name), tuple(item.shape[::-1]))

    # -- rows --------------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return slices of `SLICE_ROWS` rows."""
        if all(isinstance(each.source, np.ndarray) for each in self._arrays):
            yield from self._blocks(columns, run_column, None)
            return
        import h5py

        with self._hdf5_errors(), h5py.File(self.path, "r", locking=False) as file:
            yield from self._blocks(columns, run_column, file)

    def _blocks(
        self, columns: Sequence[str], run_column: str | None, file: h5py.File | None
    ) -> Iterator[Block]:
        place = {name: (each, k) for each in self._arrays for k, name in enumerate(each.columns)}
        for name in columns:
            if name not in place:
                raise MalformedInput(
                    f"{label(self.path)}: variable {shown(name)} is text; store numbers"
                )
        for start in range(0, self.rows, SLICE_ROWS):
            stop = min(start + SLICE_ROWS, self.rows)
            parts: dict[str, np.ndarray] = {}
            for name in chain(columns, [run_column] if run_column in place else []):
                each = place[str(name)][0]
                if each.name not in parts:
                    parts[each.name] = _slice(each, start, stop, file)
            values = np.empty((stop - start, len(columns)))
            for i, name in enumerate(columns):
                each, k = place[name]
                values[:, i] = parts[each.name][:, k]
            labels: tuple[tuple[int, str], ...] = ()
            if run_column in place:
                each, k = place[run_column]
                labels = labels_of([f"{number:g}" for number in parts[each.name][:, k]])
            elif run_column is not None:
                labels = labels_of(self._texts[run_column][start:stop].tolist())
            yield Block(self.check_finite(values, columns, start), labels)

    def _damaged(self, error: Exception) -> MalformedInput:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return MalformedInput(
            f"{label(self.path)} cannot be read as a MATLAB file ({shown(reason, 90)}); copy or"
            " save it again"
        )


def _slice(each: _Array, start: int, stop: int, file: h5py.File | None) -> np.ndarray:
    """Return rows of an array, (rows, width)."""
    rows = slice(start, stop)
    if isinstance(each.source, np.ndarray):
        part = each.source[rows] if each.rows_first else each.source[:, rows].T
    else:  # HDF5 keeps MATLAB's matrices transposed
        assert file is not None
        data = file[each.source]
        part = data[:, rows].T if each.rows_first else data[rows]
    return np.asarray(part, dtype=float).reshape(stop - start, -1)


def _oriented(path: Path, found: Mapping[str, _Variable]) -> tuple[list[_Array], int]:
    """Return the arrays that have one row, or one column, per time stamp, and how many those
    are.
    """
    if not found:
        _refuse(path, "holds no numeric arrays")
    shapes = {name: each.shape for name, each in found.items()}
    stamps = [name for name in shapes if name.rpartition(".")[2] in ("t", "time", "timestamp")]
    vectors = [name for name in stamps if min(shapes[name]) == 1]
    rows = max(shapes[vectors[0]]) if vectors else max(max(shape) for shape in shapes.values())
    out = []
    for name, shape in shapes.items():
        if rows not in shape:
            kind = name.rpartition(".")[2]
            if kind in ("q", "dq", "ddq", "tau"):
                _refuse(path, f"has an array {name!r} of {shape[0]}×{shape[1]} for {rows} stamps")
            continue
        first = shape[0] == rows
        width = None if min(shape) == 1 else shape[1] if first else shape[0]
        each = found[name]
        source = each if isinstance(each, np.ndarray) else each.path
        out.append(_Array(name, source, first, width))
    return out, rows


def _refuse(path: Path, problem: str) -> NoReturn:
    raise MalformedInput(f"{label(path)} {problem}; {_ADVICE}")
