"""Write columns of numbers to CSV, Parquet or NPZ, exactly as they are read back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from thetahat.data.formats.table import label, shown
from thetahat.errors import UsageError
from thetahat.files import replacing

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a cell that begins so


def escaped(text: str) -> str:
    """Return a text cell that no spreadsheet takes for a formula."""
    return "'" + text if text.startswith(_FORMULA) else text


def _array(name: str, column: np.ndarray | Sequence[str]) -> np.ndarray:
    array = np.asarray(column)
    if array.dtype.kind == "O" and all(isinstance(cell, str) for cell in array):
        return array.astype(str)
    if array.ndim != 1 or array.dtype.kind not in "fiubU":
        raise UsageError(
            f"column {shown(name)} is of shape {array.shape} and type {array.dtype}; give a column"
            " of numbers or texts"
        )
    return array


def write_table(
    path: str | os.PathLike[str],
    names: Sequence[str],
    columns: Sequence[np.ndarray | Sequence[str]],
) -> Path:
    """Write columns (numbers, or texts such as run names) under their names; the ending of `path`
    chooses the format.

    The file appears complete or not at all: it is written beside its place and moved there.
    """
    import polars

    path = Path(path)
    if len(names) != len(columns) or len(set(names)) != len(names):
        raise UsageError(
            f"{len(names)} names for {len(columns)} columns; give one name, each once, per column"
        )
    arrays = {name: _array(name, column) for name, column in zip(names, columns, strict=True)}
    if len({len(array) for array in arrays.values()}) > 1:
        raise UsageError(
            f"columns have {sorted({len(array) for array in arrays.values()})} rows; give columns"
            " of one length"
        )
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet", ".npz"):
        raise UsageError(
            f"{label(path)} has the unknown ending {kind!r}; write .csv, .parquet or .npz"
        )
    with replacing(path) as scratch:
        if kind == ".csv":
            cells = {
                escaped(name): [escaped(str(x)) for x in a] if a.dtype.kind == "U" else a
                for name, a in arrays.items()
            }
            with scratch.open("wb") as file:  # polars takes no names that are not UTF-8
                polars.DataFrame(cells).write_csv(file)
        elif kind == ".parquet":
            with scratch.open("wb") as file:
                polars.DataFrame(arrays).write_parquet(file)
        else:
            np.savez(scratch, allow_pickle=False, **arrays)
    return path
