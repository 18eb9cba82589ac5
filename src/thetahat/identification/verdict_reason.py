"""One reason of a verdict, and what it does to the level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Data = Mapping[str, Any]  # an answer, or a part of it, as JSON holds it
Fields = dict[str, Any]  # the same, to be written

CORRECTED = "corrected"  # said; a good result stays good
SUSPECT = "suspect"  # at most usable
WRONG = "wrong"  # not usable


@dataclass(frozen=True)
class Reason:
    """Why a result is not good, or what was corrected, and commands that help."""

    effect: str  # CORRECTED, SUSPECT or WRONG
    text: str  # no full stop: it may be a part of a sentence
    steps: tuple[str, ...] = ()
    advice: bool = False  # whether its steps help though nothing is wrong


def quantity(value: float, unit: str) -> str:
    """Format a number of three digits with its unit."""
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
    return f"{text} {unit}".replace("-", "−")
