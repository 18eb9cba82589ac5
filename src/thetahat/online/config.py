"""Settings of an online identifier: small frozen objects, checked once, where they are made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import ParamSpec, TypeVar

import numpy as np

from thetahat.dynamics import batch
from thetahat.errors import UsageError, check_count, check_positive, is_number, is_whole, known
from thetahat.identification.estimators.estimator import AnyEstimator
from thetahat.model.floating_base import base_dofs
from thetahat.model.robot import Robot

BLENDS = ("early", "always")
PLACES = ("auto", "update", "thread", "process")
# changes that may be stated: any torque scale, a payload on some joints, masses, signals that do
# not agree with each other
EXPECTED = ("torque", "payload", "mass", "signals")
FLOATING_CUTOFF = 3.0  # [Hz] of a robot with a floating base
CLOSE = 0.9  # R² below which a gate closes, unless told; never above its threshold

# -- memories --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """The last samples, as many as the identifier's `window` (paper: 50)."""


@dataclass(frozen=True)
class Growing:
    """All samples since the beginning, as one factor per joint (paper, the leg)."""


@dataclass(frozen=True)
class Forgetting:
    """All samples, fading by `factor` per sample in the directions that new ones excite."""

    factor: float = 0.98  # share that is left after one sample; 1: nothing is forgotten

    def __post_init__(self) -> None:
        if not 0.0 < self.factor <= 1.0:
            raise UsageError(
                f"factor is {self.factor!r}; give the share that is left after one sample, above 0,"
                " at most 1 (1: nothing is forgotten)"
            )


@dataclass(frozen=True)
class Informative:
    """The samples that tell most about the parameters, `window` of them; rejects outliers."""


MemoryConfig = Window | Growing | Forgetting | Informative


# -- the three settings of an identifier -----------------------------------------------------------


@dataclass(frozen=True)
class FilterConfig:
    """How the stream of samples is filtered."""

    cutoff: float | None = 10.0  # [Hz] of each exponential average, all channels alike; None: none
    stages: int = 2  # averages one after the other, 1 to 4
    period: float | None = None  # [s] between samples; None: the first ones tell
    # whether torque k acts from sample k until the next one (a command), rather than being a
    # momentary reading
    held_torque: bool = False
    min_speed: float | Sequence[float] = 0.02  # [rad/s or m/s] of a joint that moves
    reset_after: float = 1.0  # [s] of a gap that empties the memory

    def __post_init__(self) -> None:
        if self.cutoff is not None and not (is_number(self.cutoff) and self.cutoff > 0.0):
            raise UsageError(
                f"cutoff is {self.cutoff!r}; give a positive frequency in Hz, or None for no filter"
            )
        if not (is_whole(self.stages, 1) and self.stages <= 4):
            raise UsageError(f"stages is {self.stages!r}; give a whole number from 1 to 4")
        for name, value in (("period", self.period), ("reset_after", self.reset_after)):
            if value is not None and not value > 0.0:
                raise UsageError(f"{name} is {value!r}; give seconds, above zero")

    def speeds(self, robot: Robot) -> np.ndarray:
        """(nv,) from which each joint of a robot moves [rad/s or m/s]."""
        array = np.asarray(self.min_speed, dtype=float)
        if array.shape not in ((), (robot.nv,)) or not np.all(np.isfinite(array) & (array >= 0.0)):
            raise UsageError(
                f"min_speed is {self.min_speed!r}; give one speed from 0, or one for each of the"
                f" {robot.nv} degrees of freedom"
            )
        speeds = np.broadcast_to(array, (robot.nv,)).copy()
        if not array.shape:
            speeds[list(base_dofs(robot))] = 0.0  # a floating base has no friction to overcome
        return speeds


def default_filter(robot: Robot) -> FilterConfig:
    """Return the filter for a robot: a floating base's acceleration is the second derivative of a
    pose that cameras or a state estimator measure, which needs a lower cut-off than encoders.
    """
    return FilterConfig(cutoff=FLOATING_CUTOFF) if base_dofs(robot) else FilterConfig()


@dataclass(frozen=True)
class SolverConfig:
    """How samples become a model.

    A semidefinite program takes 11 ms for a Panda and 0.3 s for Valkyrie's 44 joints. In a control
    loop that drives a robot no cycle may wait for it: "auto" solves in a process of its own as soon
    as a `Loop` with a real clock runs, and in the update until then. In a loop of your own, use
    "process" (or "thread", where no process may be started). "update" always has the same result:
    for studies, replays and tests.
    """

    memory: MemoryConfig = Window()
    # any of the library's; None: the pseudo-inverse, after the blend with the guess
    estimator: AnyEstimator | None = None
    alpha: float = 0.5  # weight of the data in the blend with the guess, between 0 and 1
    # "early": blend until the buffer is full and all directions are seen; "always"
    blend: str = "early"
    prior_weight: float = 1.0  # of the nominal robot in directions the data do not know
    run_in: str = "auto"  # where programs and slow estimators are solved: PLACES
    # [s] after which a solution is late and dropped; after five times that the worker is replaced
    timeout: float = 2.0
    refit_interval: float = 1.0  # [s] between two programs while a model is at hand

    def __post_init__(self) -> None:
        if not isinstance(self.memory, MemoryConfig):
            raise UsageError(
                f"memory is {self.memory!r}; give Window(), Growing(), Forgetting(factor) or"
                " Informative() of thetahat.online.config"
            )
        if self.blend not in BLENDS:
            raise UsageError(f"blend is {self.blend!r}; give one of {', '.join(BLENDS)}")
        if not 0.0 < self.alpha < 1.0:
            raise UsageError(
                f"alpha is {self.alpha!r}; give a number between 0 (the guess alone) and 1 (the"
                " data alone), both excluded"
            )
        if self.run_in not in PLACES:
            raise UsageError(f"run_in is {self.run_in!r}; give one of {', '.join(PLACES)}")
        if not self.timeout > 0.0:
            raise UsageError(
                f"timeout is {self.timeout!r}; give the seconds a solution may take, above zero"
            )
        if not (is_number(self.refit_interval) and self.refit_interval >= 0.0):
            raise UsageError(
                f"refit_interval is {self.refit_interval!r}; give the seconds between two"
                " semidefinite programs, from 0"
            )
        self._check_estimator()

    def _check_estimator(self) -> None:
        name = type(self.estimator).__name__
        if hasattr(self.estimator, "estimate_from_samples"):
            if not isinstance(self.memory, Window | Informative):
                raise UsageError(
                    f"{name} weighs single samples, which {self.memory} does not keep; use Window()"
                    " or Informative()"
                )
        elif self.estimator is not None and not hasattr(self.estimator, "estimate"):
            raise UsageError(
                f"estimator is of type {name}; give one of the library's, for example"
                " LeastSquares()"
            )


@dataclass(frozen=True)
class MonitorRules:
    """When residuals of the model in use raise an alarm, see `residual_monitor`."""

    drift: float = 3.0  # σ that may last for ever
    limit: float = 0.3  # σ·s beyond it
    relative: float = 0.03  # of the predicted torque: an error of a model that is good
    # where a payload may be taken up or put down; its mass is reported after an alarm
    payload_link: str | None = None
    interval: float = 8.0 * 3600.0  # [s] between two false alarms of each kind

    def __post_init__(self) -> None:
        if not (self.drift > 0.0 and self.limit > 0.0 and self.relative >= 0.0):
            raise UsageError(
                f"drift is {self.drift!r}, limit {self.limit!r}, relative {self.relative!r}; give"
                " numbers above zero"
            )
        check_positive("interval", self.interval, "the seconds between two false alarms")


@dataclass(frozen=True)
class GateRules:
    """What a gate needs beside its threshold, and how the model in use is monitored."""

    close: float | None = None  # R² below which it closes; None: 0.9, or the threshold if lower
    dwell: float = 1.0  # [s] it stays closed at least
    hold: float = 5.0  # [s] an open gate keeps its verdict at standstill
    # torque noises that a joint's error may have instead of reaching the threshold
    noise: float = 2.0
    floor: float | Sequence[float] = 0.0  # [N·m or N] errors that do not matter, per joint
    rank: float = 0.5  # share of the structural rank that the motion must show
    joints: Sequence[str] | None = None  # whose R² is required; None: all
    monitor: MonitorRules | None = MonitorRules()
    # changes beyond a factor of two from the nominal robot that are to be expected: EXPECTED
    expect: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in self.expect:
            if kind not in EXPECTED:
                raise UsageError(f"expect has {kind!r}; give some of {', '.join(EXPECTED)}")
        for name in ("dwell", "hold", "noise"):
            if not getattr(self, name) >= 0.0:
                raise UsageError(f"{name} is {getattr(self, name)!r}; give a number from 0")
        if not 0.0 <= self.rank <= 1.0:
            raise UsageError(
                f"rank is {self.rank!r}; give a share of the structural rank, from 0 to 1"
            )
        if self.joints is not None and not self.joints:
            raise UsageError(
                "joints is empty; name those that are to be judged, or pass None for all"
            )

    def closing(self, threshold: float) -> float:
        """R² below which a gate with this threshold closes."""
        close = min(CLOSE, threshold) if self.close is None else self.close
        if not 0.0 <= close <= threshold <= 1.0:
            raise UsageError(
                f"close is {close!r} and threshold {threshold!r}; give 0 ≤ close ≤ threshold ≤ 1,"
                " so that the gate has hysteresis"
            )
        return close

    def judged(self, robot: Robot) -> np.ndarray:
        """(nv,) bool: whose R² is required."""
        names = robot.velocity_names
        for name in self.joints or ():
            if name not in names:
                raise UsageError(
                    f"joint {name!r} is not in robot {robot.name!r}; joints: {known(names)}"
                )
        return np.array([self.joints is None or name in self.joints for name in names])


# -- checks ----------------------------------------------------------------------------------------


def check(robot: Robot, rate: float | None, window: int | None) -> None:
    """Refuse what makes no sense."""
    batch.require_movable(robot, "no motion shows its parameters")
    if rate is not None:
        check_positive("rate", rate, "the updates per second [Hz]")
    if window is not None:
        check_count("window", window, "how many samples fill the buffer")


# -- keywords of versions before 0.2 ---------------------------------------------------------------

MOVED = {
    field.name: f"{place}={kind.__name__}({field.name}=…)"
    for place, kind in (("solver", SolverConfig), ("filter", FilterConfig), ("gate", GateRules))
    for field in fields(kind)
} | {
    "memory": "solver=SolverConfig(memory=Growing())",
    "forgetting": "solver=SolverConfig(memory=Forgetting(factor))",
    "weight": "solver=SolverConfig(prior_weight=…)",
    "beside": 'solver=SolverConfig(run_in="process")',
    "patience": "solver=SolverConfig(timeout=…)",
    "refit": "solver=SolverConfig(refit_interval=…)",
    "held": "filter=FilterConfig(held_torque=…)",
    "rank_share": "gate=GateRules(rank=…)",
    "payload_link": "gate=GateRules(monitor=MonitorRules(payload_link=…))",
    "watch": "gate=GateRules(monitor=None)",
}
P = ParamSpec("P")
R = TypeVar("R")


def moved_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function name the new place of keywords that moved into configuration objects."""

    @functools.wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name in MOVED:
                raise UsageError(
                    f"{name} is not a parameter any more; write {MOVED[name]}, from"
                    " thetahat.online.config"
                )
        return function(*args, **keywords)

    return checked
