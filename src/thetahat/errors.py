"""Errors, each with one sentence that names the cause, its value and the fix.

Each class carries the exit code that the command line returns for it (interface: 2 usage, 3
malformed input, 4 unphysical robot, 5 not identifiable, 6 storage, 7 refused for safety, 8 not
usable).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real


class ThetahatError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 1


class UsageError(ThetahatError, ValueError):
    """A call or an option that cannot be carried out as given (wrong shape, NaN, unknown name)."""

    exit_code = 2


class MalformedInput(ThetahatError, ValueError):
    """A file whose content is not what its format asks for."""

    exit_code = 3


class UnphysicalRobot(ThetahatError, ValueError):
    """A robot whose inertia no rigid body can have, where a physical one is needed."""

    exit_code = 4


class NotIdentifiable(ThetahatError):
    """The data do not determine what was asked for."""

    exit_code = 5


class StorageError(ThetahatError, OSError):
    """A file that cannot be read or written."""

    exit_code = 6


class RefusedForSafety(ThetahatError):
    """Input that would exhaust the machine or leave its folder."""

    exit_code = 7


class NotUsable(ThetahatError):
    """A result that is not usable, where a usable one was asked for."""

    exit_code = 8


class MissingExtra(ThetahatError, ImportError):
    """An optional dependency that is not installed."""

    exit_code = 2


class RobotWarning(UserWarning):
    """A robot that loads, with something unusual its user should know."""


def known(names: Iterable[str], limit: int = 12) -> str:
    """List the alternatives for an error message: ``a, b, c, … (58 in all)``."""
    names = list(names)
    if len(names) <= limit:
        return ", ".join(names) or "none"
    return ", ".join(names[:limit]) + f", … ({len(names)} in all)"


def is_number(value: object) -> bool:
    """Whether a value is a finite real number; a bool is none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: object, least: int) -> bool:
    """Whether a value is a whole number of at least so many; a bool is none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_positive(
    name: str, value: float, what: str = "", *, most: float | None = None, end: str = ""
) -> float:
    """Return a finite number above zero. what: it is, and end: of the message."""
    if not (is_number(value) and value > 0.0) or (most is not None and value > most):
        span = "a finite number above zero" + (f" and at most {most:g}" if most is not None else "")
        wanted = f"{what}, {span}" if what else span
        raise UsageError(f"{name} is {value!r}; give {wanted}{end}")
    return float(value)


def check_count(
    name: str,
    value: int,
    what: str = "",
    *,
    least: int = 1,
    most: int | None = None,
    end: str = "",
) -> int:
    """Return a whole number of at least and at most so many. what: it is, and end: of the
    message.
    """
    if not is_whole(value, least) or (most is not None and int(value) > most):
        span = f"a whole number from {least}" + (f" to {most:,}" if most is not None else "")
        wanted = f"{what}, {span}" if what else span
        raise UsageError(f"{name} is {value!r}; give {wanted}{end}")
    return int(value)
