"""The same numbers to the last bit, on any number of threads and workers, with and without a store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.samples import write_samples

# the command line on a machine that says it has so many cores
PROGRAM = """
import os, sys
os.cpu_count = lambda: int(os.environ["CORES"])
from thetahat.cli import main
main()
"""


def identified(
    inputs: Path, out: Path, *options: str, cores: int = 2, blas: int = 1
) -> dict[str, object]:
    """Return the numbers of estimate.json, without what says how and where they were made."""
    command = [sys.executable, "-c", PROGRAM, "identify", "robot.urdf", "log.csv", "--quiet"]
    threads = {"CORES": str(cores), "OPENBLAS_NUM_THREADS": str(blas)}
    ended = subprocess.run(
        [*command, "--no-report", "--out", str(out), *options],
        cwd=inputs,
        env=os.environ | threads,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    answer = json.loads((out / "estimate.json").read_text(encoding="utf-8"))
    return dict(leaves({name: part for name, part in answer.items() if name != "provenance"}, ""))


def leaves(value: object, where: str) -> Iterator[tuple[str, object]]:
    """Yield every number and text with its place."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, f"{where}.{name}")
    elif isinstance(value, list):
        for k, part in enumerate(value):
            yield from leaves(part, f"{where}[{k}]")
    else:
        yield where, value


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_samples(tmp_path_factory.mktemp("determinism"))


def test_threads_change_no_bit(inputs: Path, tmp_path: Path) -> None:
    one = identified(inputs, tmp_path / "result", "--no-tune", cores=1)
    four = identified(inputs, tmp_path / "result", "--no-tune", cores=4, blas=2)
    assert len(one) > 100
    assert four == one


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--store", "STORE"),
        ("--workers", "1"),
        ("--workers", "2"),
        ("--workers", "2", "--store", "STORE"),
    ],
)
def test_workers_and_stores_change_no_bit(
    inputs: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    given = [str(tmp_path / "store") if each == "STORE" else each for each in options]
    alone = identified(inputs, tmp_path / "result")
    assert identified(inputs, tmp_path / "result", *given) == alone
    assert identified(inputs, tmp_path / "result", *given, cores=4) == alone  # from the store
