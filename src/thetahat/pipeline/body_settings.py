"""How limits on links are written: as text, in options and in settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from thetahat.pipeline.setting_error import SettingError

MASS_RANGE = (1.0 / 3.0, 3.0)  # of the file's mass, by default
MOST_FACTOR = 1e6
MOST_MASS = 1e9  # [kg]
LIMITS = "LINK:mass=LOW..HIGH,com=XLOW..XHIGH/YLOW..YHIGH/ZLOW..ZHIGH;LINK:…"


def mass_range(value: str | Sequence[float] | None) -> tuple[float, float] | None:
    """Return (least, most) factors of the file's mass from text such as "1/3,3"; "none" is None."""
    if value is None or value == "none":
        return None
    low, high = _pair(
        "mass_range", value, "LOW,HIGH, two factors of the file's mass such as 1/3,3, or none"
    )
    if not 0.0 <= low <= 1.0 <= high <= MOST_FACTOR or high == low:
        raise SettingError(
            "mass_range",
            f" is {low:g} to {high:g} times the file's mass; give LOW,HIGH around 1, at most"
            f" {MOST_FACTOR:g}",
        )
    return low, high


def total_mass(value: str | float | Sequence[float] | None) -> tuple[float, float] | None:
    """Return (least, most) [kg] from a number or a pair, or text of either."""
    if value is None:
        return None
    if isinstance(value, int | float):
        value = (value, value)
    elif isinstance(value, str) and "," not in value:
        value = f"{value},{value}"
    low, high = _pair("total_mass", value, "kilograms: a number, or LOW,HIGH")
    if not 0.0 < low <= high <= MOST_MASS:
        raise SettingError(
            "total_mass",
            f" is {low:g} to {high:g} kg; give a number above 0 and at most {MOST_MASS:g}, or"
            " LOW,HIGH",
        )
    return low, high


class Limits(NamedTuple):
    """What is stated of one link."""

    mass: tuple[float, float] | None  # (least, most) [kg]
    com_box: tuple[tuple[float, ...], tuple[float, ...]] | None  # its corners [m]


class Pair(NamedTuple):
    """Two links that are alike."""

    first: str
    second: str
    mirror: str | None  # axis along which the second is the first one's mirror image


def link_limits(text: str | None) -> dict[str, Limits]:
    """Return the limits of links by name, from text as `LIMITS` shows it."""
    if text is None:
        return {}
    out: dict[str, Limits] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, colon, rest = part.rpartition(":")
        if not (colon and name.strip() and rest.strip()) or name.strip() in out:
            raise SettingError("bounds", f" has {part!r}; write {LIMITS}, each link once")
        mass = com = None
        for each in rest.split(","):
            key, _, value = each.partition("=")
            if key.strip() == "mass":
                mass = _interval(value, each)
            elif key.strip() == "com" and value.count("/") == 2:
                axes = [_interval(axis, each) for axis in value.split("/")]
                com = tuple(low for low, _ in axes), tuple(high for _, high in axes)
            else:
                raise SettingError("bounds", f" has {each.strip()!r}; write {LIMITS}")
        out[name.strip()] = Limits(mass, com)
    if not out:
        raise SettingError("bounds", f" is empty; write {LIMITS}")
    return out


def _interval(text: str, part: str) -> tuple[float, float]:
    """LOW..HIGH, or one number."""
    ends = text.split("..") if ".." in text else [text, text]
    try:
        low, high = (float(end) for end in ends)
    except ValueError:
        low, high = math.nan, math.nan
    if not -MOST_MASS <= low <= high <= MOST_MASS:
        raise SettingError("bounds", f" has {part.strip()!r}; give LOW..HIGH, such as 2..4.5")
    return low, high


def pair(text: str) -> Pair:
    """Return the links of "A=B" or "A=B:x"."""
    first, equals, rest = text.partition("=")
    second, colon, mirror = rest.partition(":")
    if not (first.strip() and equals and second.strip()) or (colon and mirror not in "xyz"):
        raise SettingError("tied", f" has {text!r}; write A=B, or A=B:x for a mirror image along x")
    return Pair(first.strip(), second.strip(), mirror or None)


def _fraction(text: str) -> float:
    """Read a number such as 0.5 or 1/3."""
    above, slash, below = text.partition("/")
    return float(above) / float(below) if slash else float(above)


def _pair(name: str, value: str | Sequence[float], what: str) -> tuple[float, float]:
    try:
        parts = value.split(",") if isinstance(value, str) else value
        low, high = (_fraction(p) if isinstance(p, str) else float(p) for p in parts)
    except (TypeError, ValueError, ZeroDivisionError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SettingError(name, f" is {value!r}; give {what}")
    return low, high
