"""`thetahat identify` on real logs gives the numbers it gave when the golden ones were kept."""

from __future__ import annotations

import golden_numbers
import pytest
from golden_cases import REAL, parameters


@pytest.mark.parametrize("name", parameters(REAL))
def test_real_logs_give_their_golden_numbers(name: str) -> None:
    golden_numbers.check(f"real/{name}", REAL[name].numbers())
