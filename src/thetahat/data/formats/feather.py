"""Feather and Arrow IPC files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thetahat.data.formats.columnar import ColumnarTable
from thetahat.data.formats.table import label, opened
from thetahat.errors import MalformedInput

if TYPE_CHECKING:
    import polars

_MAGIC = b"ARROW1"


class FeatherTable(ColumnarTable):
    """A Feather (version 2) or Arrow IPC file. Its footer is read when it is opened."""

    kind = "Feather"

    def __init__(self, path: Path) -> None:
        with opened(path) as file:
            head = file.read(len(_MAGIC))
            file.seek(0, 2)
            file.seek(max(0, file.tell() - len(_MAGIC)))
            tail = file.read(len(_MAGIC))
        if not head:
            raise MalformedInput(f"{label(path)} is empty; give a log with rows of numbers")
        if head.startswith(b"FEA1"):
            raise MalformedInput(
                f"{label(path)} is a Feather file of version 1, which nobody writes any more; save"
                " it again as version 2, or as Parquet"
            )
        if head != _MAGIC:
            raise MalformedInput(
                f"{label(path)} is not a Feather or Arrow IPC file (it begins with {head!r}); check"
                " what wrote it"
            )
        if tail != _MAGIC:
            raise MalformedInput(
                f"{label(path)} has no Arrow footer at its end; it is cut off or a stream, so write"
                " it as a file again"
            )
        super().__init__(path)

    def scan(self) -> polars.LazyFrame:
        """Return the file as polars scans it."""
        import polars

        return polars.scan_ipc(self.path, glob=False)
