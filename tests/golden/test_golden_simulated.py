"""`thetahat identify` on simulated logs of the shipped robots gives its golden numbers."""

from __future__ import annotations

import golden_numbers
import pytest
from golden_cases import SIMULATED, parameters


@pytest.mark.parametrize("name", parameters(SIMULATED))
def test_shipped_robots_give_their_golden_numbers(name: str) -> None:
    golden_numbers.check(f"simulated/{name}", SIMULATED[name].numbers())
