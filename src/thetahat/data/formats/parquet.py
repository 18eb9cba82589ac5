"""Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thetahat.data.formats.columnar import ColumnarTable
from thetahat.data.formats.table import label, opened
from thetahat.errors import MalformedInput

if TYPE_CHECKING:
    import polars


class ParquetTable(ColumnarTable):
    """A Parquet file. Its footer is read when it is opened."""

    kind = "Parquet"

    def __init__(self, path: Path) -> None:
        with opened(path) as file:
            head = file.read(4)
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4))
            tail = file.read(4)
        if not head:
            raise MalformedInput(f"{label(path)} is empty; give a log with rows of numbers")
        if head != b"PAR1":
            raise MalformedInput(
                f"{label(path)} is not a Parquet file (it begins with {head!r}); check what"
                " wrote it"
            )
        if tail != b"PAR1":
            raise MalformedInput(
                f"{label(path)} has no Parquet footer at its end; it was cut off, so copy or export"
                " it again"
            )
        super().__init__(path)

    def scan(self) -> polars.LazyFrame:
        """Return the file as polars scans it."""
        import polars

        return polars.scan_parquet(self.path, glob=False)
