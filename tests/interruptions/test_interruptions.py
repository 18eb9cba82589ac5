"""Verbs that write, killed, on a full disk and in a read-only folder: the old files or the new."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def interrupted(*options: str, limit: float) -> str:
    """Run `make interruptions` in a process of its own, which has no threads yet."""
    command = [sys.executable, "-m", "tests.interruptions", *options]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    return ended.stdout


@pytest.mark.timeout(400)  # a few seconds of work, in some twenty processes
def test_two_verbs_at_drawn_moments() -> None:
    assert interrupted("--quick", "--moments", "4", "--drawn", "0", limit=380.0).endswith("0 bad\n")


@pytest.mark.slow
def test_all_verbs_at_twenty_moments() -> None:
    assert interrupted("--moments", "20", limit=1750.0).endswith("0 bad\n")
