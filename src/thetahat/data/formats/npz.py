"""NPZ: arrays of numbers in a zip file, read as streams, never unpickled.

A 2-D array `q` of k columns stands for columns q1 … qk. Every member is read a slice of rows at a
time, in bounded memory; sizes are checked before anything is unpacked.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from thetahat.data.formats.table import (
    MAX_COLUMNS,
    Block,
    Table,
    check_names,
    common_length,
    label,
    labels_of,
    opened,
    shown,
)
from thetahat.errors import MalformedInput, RefusedForSafety, ThetahatError

SLICE_ROWS = 65_536
MAX_RATIO = 200  # unpacked over packed; measured logs stay under 10
FREE_BYTES = 64 * 2**20  # below this nobody minds the ratio
MAX_FORTRAN = 512 * 2**20  # bytes of a column-major array, which cannot be read row by row
_PICKLE = (
    "it holds pickled Python objects, which can run any code when they are loaded; save arrays of"
    " numbers with np.savez"
)
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)


class _Header(NamedTuple):
    """Type and shape of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool  # two-dimensional and column-major


@dataclass(frozen=True)
class _Member:
    """One array: its columns in the table, and how it is stored."""

    name: str
    file: str
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool  # column-major

    @property
    def width(self) -> int:
        return 1 if len(self.shape) == 1 else self.shape[1]

    @property
    def columns(self) -> tuple[str, ...]:
        return (
            (self.name,)
            if len(self.shape) == 1
            else tuple(f"{self.name}{i + 1}" for i in range(self.width))
        )


class NpzTable(Table):
    """An NPZ file. The headers of its arrays are read when it is opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with opened(path) as file:
            head = file.read(8)
        if not head:
            raise MalformedInput(f"{label(path)} is empty; give a log with rows of numbers")
        if head.startswith((b"\x80", b"(dp", b"(lp", b"cnumpy", b"ccopy_re")):
            raise RefusedForSafety(f"{label(path)} is refused: {_PICKLE}")
        if not head.startswith(b"PK"):
            raise MalformedInput(
                f"{label(path)} is not an NPZ file (it begins with {head!r}); save it with np.savez"
            )
        self._members = self._index()
        lengths = {member.name: member.shape[0] for member in self._members}
        self.rows = common_length(path, lengths)
        self._members = [member for member in self._members if member.shape[0] == self.rows]
        self.widths = {
            member.name: member.width for member in self._members if len(member.shape) == 2
        }
        self.names = tuple(name for member in self._members for name in member.columns)
        check_names(path, self.names)

    # -- what is inside ----------------------------------------------------------------------------

    def _index(self) -> list[_Member]:
        path = label(self.path)
        try:
            with zipfile.ZipFile(self.path) as archive:
                entries = archive.infolist()
                if len(entries) > MAX_COLUMNS:
                    raise RefusedForSafety(
                        f"{path} holds {len(entries)} arrays; at most {MAX_COLUMNS} are read"
                    )
                size, packed = (
                    sum(entry.file_size for entry in entries),
                    max(self.states[0].size, 1),
                )
                if size > FREE_BYTES and size > MAX_RATIO * packed:
                    raise RefusedForSafety(
                        f"{path} has {packed} bytes but unpacks to {size}; no log of a moving robot"
                        " does, so save it with np.savez"
                    )
                return [member for entry in entries if (member := self._member(archive, entry))]
        except _BROKEN as error:
            if isinstance(error, ThetahatError):
                raise
            raise self._damaged(error) from None

    def _member(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Member | None:
        path, name = label(self.path), entry.filename.removesuffix(".npy")
        with archive.open(entry) as file:
            dtype, shape, fortran = self.header(file, name)
        if dtype.hasobject:
            raise RefusedForSafety(f"{path}: array {shown(name)} is refused: {_PICKLE}")
        if dtype.itemsize * int(np.prod(shape, dtype=object)) > entry.file_size:
            raise MalformedInput(
                f"{path}: array {shown(name)} says it has shape {shape}, more than its"
                f" {entry.file_size} bytes; it was damaged"
            )
        if (
            len(shape) not in (1, 2)
            or dtype.kind not in "fiubUS"
            or (dtype.kind in "US" and len(shape) == 2)
        ):
            return None  # a scalar, text or a cube among the arrays: no column
        return _Member(name, entry.filename, shape, dtype, fortran)

    def header(self, file: IO[bytes], name: str) -> _Header:
        """Read the header of an array."""
        lead = file.read(6)
        if lead != b"\x93NUMPY":
            if lead[:1] == b"\x80":
                raise RefusedForSafety(
                    f"{label(self.path)}: member {shown(name)} is refused: {_PICKLE}"
                )
            raise MalformedInput(
                f"{label(self.path)}: member {shown(name)} is not a NumPy array; save the log with"
                " np.savez"
            )
        version = tuple(file.read(2))
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            raise MalformedInput(
                f"{label(self.path)}: array {shown(name)} is of version {version}; save it again"
                " with np.savez"
            )
        try:
            shape, fortran, dtype = readers[version](file)
        except (ValueError, SyntaxError, tokenize.TokenError) as error:
            raise MalformedInput(
                f"{label(self.path)}: the header of array {shown(name)} is damaged"
                f" ({shown(error)}); save it again"
            ) from None
        return _Header(dtype, shape, bool(fortran) and len(shape) == 2)

    # -- rows --------------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return slices of `SLICE_ROWS` rows, from all members side by side."""
        place = {
            name: (member, k) for member in self._members for k, name in enumerate(member.columns)
        }
        needed = {place[name][0] for name in (*columns, *([run_column] if run_column else []))}
        for name in columns:
            if place[name][0].dtype.kind not in "fiub":
                raise MalformedInput(
                    f"{label(self.path)}: array {shown(name)} is of type {place[name][0].dtype},"
                    " not numbers; store numbers"
                )
        try:
            with zipfile.ZipFile(self.path) as archive, ExitStack() as stack:
                sources = {
                    member: _Source(stack.enter_context(archive.open(member.file)), member, self)
                    for member in needed
                }
                for start in range(0, self.rows, SLICE_ROWS):
                    count = min(SLICE_ROWS, self.rows - start)
                    parts = {member: source.rows(count) for member, source in sources.items()}
                    values = np.empty((count, len(columns)))
                    for i, name in enumerate(columns):
                        member, k = place[name]
                        values[:, i] = parts[member][:, k]
                    labels = (
                        labels_of(
                            [_text(x) for x in parts[place[run_column][0]][:, place[run_column][1]]]
                        )
                        if run_column
                        else ()
                    )
                    yield Block(self.check_finite(values, columns, start), labels)
                for source in sources.values():
                    source.finish()  # the zip file's CRC is checked at a member's end
        except _BROKEN as error:
            if isinstance(error, ThetahatError):
                raise
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> MalformedInput:
        return MalformedInput(
            f"{label(self.path)} cannot be read as NPZ ({shown(error, 90)}); it was cut off or"
            " damaged, so copy or save it again"
        )


class _Source:
    """Reader of the rows of one member."""

    def __init__(self, file: IO[bytes], member: _Member, table: NpzTable) -> None:
        self._file, self._member = file, member
        table.header(file, member.name)
        self._columns: np.ndarray | None = None
        self._at = 0
        if member.fortran:
            size = member.dtype.itemsize * member.shape[0] * member.width
            if size > MAX_FORTRAN:
                raise RefusedForSafety(
                    f"{label(table.path)}: array {shown(member.name)} is column-major and of {size}"
                    f" bytes; save np.ascontiguousarray({member.name})"
                )
            self._columns = np.frombuffer(self._exactly(size), member.dtype).reshape(
                member.shape, order="F"
            )

    def rows(self, count: int) -> np.ndarray:
        """Return the next rows, (count, width)."""
        if self._columns is not None:
            self._at += count
            return self._columns[self._at - count : self._at]
        data = self._exactly(self._member.dtype.itemsize * count * self._member.width)
        return np.frombuffer(data, self._member.dtype).reshape(count, self._member.width)

    def finish(self) -> None:
        """Read to the end of the member, where its checksum is compared."""
        while self._file.read(2**16):
            pass

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise EOFError(f"array {self._member.name!r} ends early")
        return data


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
