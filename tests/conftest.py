"""Fixtures of several files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import browser
import pytest

SLOW = 1800.0  # [s] that a slow test may take


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests a time limit of their own."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as running:
        yield running
