"""Fixtures of several files."""

from __future__ import annotations

import gc
import os

# Two processes of tests on two cores: threads of the linear algebra would wait for each other, and
# sums would depend on their number. Before numpy is imported, and for the processes that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections import Counter
from collections.abc import Iterator
from typing import Any

import browser
import pytest

SLOW = 1800.0  # [s] that a slow test may take

# Modules and tests stay until the end. Looking through them for garbage again and again took a third
# of the time of collecting the tests, and a tenth of that of running them.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests a time limit of their own."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW))


def pytest_collection_finish() -> None:
    """Collect garbage again, but for what was there before the first test."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests were skipped, and why."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(report.longrepr[2].rpartition(": ")[2] for report in skipped)
    if skipped:
        parts = [f"{count} {reason}" for reason, count in reasons.most_common()]
        terminalreporter.write_line(f"{len(skipped)} skipped: {'; '.join(parts)}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as running:
        yield running
