"""What an online identifier is told, checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.identification.estimators.estimator import guess
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.prior import Prior
from thetahat.identification.information import Information
from thetahat.model.robot import Robot
from thetahat.online.forgetting import Forgetting
from thetahat.online.memory import Growing, Informative, Memory, Window

BLENDS = ("early", "always")
MEMORIES = ("window", "growing", "forgetting", "informative")


def check(
    robot: Robot,
    *,
    rate: float,
    window: int,
    cutoff: float | None,
    stages: int,
    blend: str,
    refit: float,
) -> None:
    """Refuse what makes no sense."""
    if not isinstance(robot, Robot):
        raise UsageError(
            f"robot is {type(robot).__name__}; give a Robot, as thetahat.load returns it"
        )
    if not robot.nv:
        raise UsageError(
            f"robot {robot.name!r} has no movable joint, so no motion shows its parameters"
        )
    if not (_number(rate) and rate > 0.0):
        raise UsageError(
            f"rate is {rate!r}; give the updates per second [Hz], a finite number above zero"
        )
    if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
        raise UsageError(
            f"window is {window!r}; give how many samples fill the buffer, a whole number from 1"
        )
    if cutoff is not None and not (_number(cutoff) and cutoff > 0.0):
        raise UsageError(
            f"cutoff is {cutoff!r}; give a positive frequency in Hz, or None for no filter"
        )
    if isinstance(stages, bool) or not isinstance(stages, int | np.integer) or not 1 <= stages <= 4:
        raise UsageError(f"stages is {stages!r}; give a whole number from 1 to 4")
    if blend not in BLENDS:
        raise UsageError(f"blend is {blend!r}; give one of {', '.join(BLENDS)}")
    if not (_number(refit) and refit >= 0.0):
        raise UsageError(
            f"refit is {refit!r}; give the seconds between two semidefinite programs, from 0"
        )


def _number(value: Any) -> bool:
    return (
        not isinstance(value, bool)
        and isinstance(value, int | float | np.number)
        and math.isfinite(value)
    )


def speeds(min_speed: float | Sequence[float], robot: Robot) -> np.ndarray:
    """(nv,) at which each joint moves."""
    array = np.asarray(min_speed, dtype=float)
    if array.shape not in ((), (robot.nv,)) or not np.all(np.isfinite(array) & (array >= 0.0)):
        raise UsageError(
            f"min_speed is {min_speed!r}; give one speed from 0, or one for each of the {robot.nv}"
            " degrees of freedom"
        )
    return np.broadcast_to(array, (robot.nv,)).copy()


def judged(robot: Robot, joints: Sequence[str] | None) -> np.ndarray:
    """(nv,) whose R² is asked for."""
    names = robot.velocity_names
    if joints is None:
        return np.ones(robot.nv, dtype=bool)
    for name in joints:
        if name not in names:
            raise UsageError(
                f"joint {name!r} is not in robot {robot.name!r}; joints: {known(names)}"
            )
    if not joints:
        raise UsageError("joints is empty; name those that are to be judged, or pass None for all")
    return np.array([name in joints for name in names])


def estimators(
    empty: Information,
    theta0: Robot | np.ndarray | None,
    estimator: Any,
    *,
    alpha: float,
    blend: str,
    memory: str,
) -> tuple[Any, Any]:
    """(the estimator, the blend it begins with); None for the plain pseudo-inverse, which has a
    quick way of its own, and for no blend.
    """
    prior = None
    if theta0 is not None:
        guess(empty, theta0, "guess")
        if not 0.0 < alpha < 1.0:
            raise UsageError(
                f"alpha is {alpha!r}; give a number between 0 (the guess alone) and 1 (the data"
                " alone), both excluded"
            )
        prior = Prior(theta0, alpha)
    if estimator is None:
        return (prior if blend == "always" else None), prior
    if hasattr(estimator, "estimate_from_samples"):
        if memory not in ("window", "informative"):
            raise UsageError(
                f"{type(estimator).__name__} weighs single samples, which memory {memory!r} does"
                " not keep; use 'window' or 'informative'"
            )
    elif not hasattr(estimator, "estimate"):
        raise UsageError(
            f"estimator is of type {type(estimator).__name__}; give one of the library's, for"
            " example LeastSquares()"
        )
    plain = (
        isinstance(estimator, LeastSquares) and estimator.weights is None and not estimator.strict
    )
    return (None if plain else estimator), prior


def make_memory(kind: str, robot: Robot, size: int, *, forgetting: float) -> Memory:
    """A memory by its name."""
    match kind:
        case "window":
            return Window(robot, size)
        case "growing":
            return Growing(robot, size)
        case "forgetting":
            return Forgetting(robot, size, factor=forgetting)
        case "informative":
            return Informative(robot, size)
    raise UsageError(f"memory is {kind!r}; memories: {', '.join(MEMORIES)}")


def next_due(due: float, now: float, period: float) -> float:
    """The next moment of a fixed rate, from time stamps; after a pause it begins anew."""
    due = now + period if due == -math.inf else due + period
    return due if due > now + 0.5 * period else now + period
