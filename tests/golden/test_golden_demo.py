"""The path of `thetahat demo`, from a simulated plant to an estimate, gives its golden numbers."""

from __future__ import annotations

import golden_numbers
import pytest
from golden_cases import DEMO, parameters


@pytest.mark.parametrize("name", parameters(DEMO))
def test_the_demo_gives_its_golden_numbers(name: str) -> None:
    golden_numbers.check(f"demo/{name}", DEMO[name].numbers())
