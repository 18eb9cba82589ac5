"""Traces of a motion for a report: frozen, and small whatever the length of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

PARTS = ("train", "test")


@dataclass(frozen=True, eq=False)
class Series:
    """A line; NaN is a gap in it."""

    t: np.ndarray  # (k,) [s]
    y: np.ndarray  # (k,)


@dataclass(frozen=True, eq=False)
class Band:
    """Edges of a band over time."""

    t: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class Stretch:
    """Neighbouring rows at full rate."""

    part: str
    t: np.ndarray  # (k,) [s]
    measured: np.ndarray  # (k,) NaN where masked
    predicted: np.ndarray
    nominal: np.ndarray | None
    rms: float  # of measured − predicted


@dataclass(frozen=True, eq=False)
class Cloud:
    """Rows drawn at random, in random order: the first k of them are a sample too."""

    velocity: np.ndarray  # (k,) [rad/s or m/s]
    measured: np.ndarray  # (k,) [N·m or N]
    predicted: np.ndarray
    nominal: np.ndarray | None
    friction: np.ndarray  # (k,) what friction and offset of the model are in that row
    moving: np.ndarray  # (k,) bool: not at standstill

    @property
    def residual(self) -> np.ndarray:
        """Measured − predicted."""
        return np.asarray(self.measured - self.predicted)

    def in_motion(self) -> Cloud:
        """Return the rows that are not at standstill: those of a fit."""
        at, nominal = self.moving, self.nominal
        return Cloud(
            self.velocity[at],
            self.measured[at],
            self.predicted[at],
            None if nominal is None else nominal[at],
            self.friction[at],
            at[at],
        )

    def __len__(self) -> int:
        return len(self.measured)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Amplitude spectral densities, one-sided [N·m/√Hz or N/√Hz]."""

    frequency: np.ndarray  # (k,) [Hz], from 0
    residual: np.ndarray  # (k,)
    torque: np.ndarray  # (k,) of the measured torque
    windows: int  # averaged


@dataclass(frozen=True, eq=False)
class Bins:
    """A cloud cut into slices of equal width; slices with few points are left out."""

    centre: np.ndarray  # (k,)
    median: np.ndarray
    low: np.ndarray  # 5 %
    high: np.ndarray  # 95 %
    rows: np.ndarray  # (k,) points in the slice


@dataclass(frozen=True)
class Summary:
    """What is left of a joint's torque over all rows that can be scored."""

    rows: int
    mean: float
    rms: float
    largest: float  # |measured − predicted|
    at: float  # [s] when
    r2: float | None  # 1 − e'e/u'u


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines over time, by part: "train", "test", or both."""

    measured: Mapping[str, Series]
    predicted: Mapping[str, Series]
    nominal: Mapping[str, Series]  # empty without a nominal robot
    residual: Mapping[str, Series]  # measured − predicted
    position: Mapping[str, Series]  # [rad or m]; empty of joints with several degrees of freedom
    velocity: Mapping[str, Series]
    acceleration: Mapping[str, Series]
    # of torques that 95 % of robots drawn from the estimate need; empty where none can be drawn
    band: Mapping[str, Band] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Statistics of the residual, by part."""

    summary: Mapping[str, Summary]
    spectrum: Mapping[str, Spectrum]
    against_velocity: Mapping[str, Bins]  # moving rows
    friction: Mapping[str, Bins]  # of the torque that friction and offset explain, moving rows
    curve: Series | None  # the model's friction over velocity, where it depends on nothing else


@dataclass(frozen=True, eq=False)
class JointTraces:
    """Traces of one degree of freedom."""

    name: str
    unit: str  # of its torque: N·m or N
    rate: str  # of its velocity: rad/s or m/s
    lines: Lines
    still: tuple[tuple[float, float], ...]  # intervals of standstill [s]
    worst: Stretch | None  # the interval predicted worst, of the test part where there is one
    cloud: Mapping[str, Cloud]  # by part
    residuals: Residuals


@dataclass(frozen=True, eq=False)
class Traces:
    """What was collected of a log."""

    joints: tuple[JointTraces, ...]
    spans: Mapping[str, tuple[float, float]]  # first and last time of every part [s]
    decimation: Mapping[str, int]  # rows behind two points of a line; 1: every row is drawn
    clock: str  # title of the time axis
    cutoff: float | None  # [Hz] of the low-pass that made the rows
    pose: np.ndarray  # (nq,) the mean configuration
