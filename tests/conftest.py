"""Fixtures of several files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import browser
import pytest


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as running:
        yield running
