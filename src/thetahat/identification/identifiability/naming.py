"""Readable names: which words stand for a body or a motor, and how a sum of parameters is
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SEPARATORS = re.compile(r"(?<=[_./: -])")


def short_labels(names: Sequence[str]) -> tuple[str, ...]:
    """The names without the words they all begin with: panda_link1, panda_link2 → link1, link2."""
    if len(names) < 2:
        return tuple(names)
    parts = [_SEPARATORS.split(name) for name in names]
    shared = 0
    while (
        all(len(words) > shared + 1 for words in parts)
        and len({words[shared] for words in parts}) == 1
    ):
        shared += 1
    labels = tuple("".join(words[shared:]) for words in parts)
    return labels if len(set(labels)) == len(set(names)) else tuple(names)


def column_labels(pairs: Iterable[tuple[str, str]], inertial: int) -> tuple[str, ...]:
    """Ixx_link1, …, viscous_joint1, … without the words that all bodies or motors share."""
    pairs = list(pairs)
    out: list[str] = []
    for part in (pairs[:inertial], pairs[inertial:]):
        owners = list(dict.fromkeys(owner for _, owner in part))
        label = dict(zip(owners, short_labels(owners), strict=True))
        out += [f"{name}_{label[owner]}" for name, owner in part]
    return tuple(out)


def coefficient(value: float) -> str:
    """A coefficient in front of a name: nothing for one, else three digits (0.0519·)."""
    # twice, so that equal numbers stay equal where rounding leaves them on both sides of a tie
    text = f"{float(f'{value:.8g}'):.3g}"
    return "" if text == "1" else f"{text}·"


def combination(coefficients: Sequence[float], labels: Sequence[str]) -> str:
    """A sum of parameters: Izz_1 + Iyy_2 − 0.0519·m_3."""
    text = ""
    for value, label in zip(coefficients, labels, strict=True):
        sign = ("−" if value < 0.0 else "") if not text else (" − " if value < 0.0 else " + ")
        text += f"{sign}{coefficient(abs(value))}{label}"
    return text
