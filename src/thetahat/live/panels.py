"""The panels of the page: what is kept of a run, as figures of the report, and what is new in them
since the last frame.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from thetahat.live.line_history import BUCKETS, Grounds, History
from thetahat.live.ring_buffer import Block
from thetahat.model.robot import Robot
from thetahat.model.tree import ANGULAR, V_INDEX
from thetahat.online.gate import GateState
from thetahat.report.figures import online_run
from thetahat.report.figures.time_series import torque_over_time
from thetahat.report.traces import Series

MANY = 12  # joints in one figure; of more, the worst, the median and the chosen one are drawn
POINTS = 12_000  # of a figure, about
TITLES = {
    "r2": "R² per joint",
    "torque": "Torque",
    "error": "Joint errors",
    "fill": "Buffer and rank",
    "cycle": "Cycle time",
}
SPAN = 60.0  # [s] that the page shows at first
FIT, HELD = "of the fit, all joints", "held out, all joints"

Points = list[list[list[float | None]]]  # per line: times, values


def units(robot: Robot) -> tuple[list[str], list[str]]:
    """Units of torque and of position of every degree of freedom."""
    dofs = robot.tree.arrays.dofs
    angular = {
        int(v): bool(a) for v, a in zip(dofs[::-1, V_INDEX], dofs[::-1, ANGULAR], strict=True)
    }
    turns = [angular[v] for v in range(robot.nv)]
    return ["N·m" if turn else "N" for turn in turns], ["rad" if turn else "m" for turn in turns]


class Panels:
    """Histories and the figures of them. One thread adds and asks: the publisher."""

    def __init__(self, robot: Robot, *, wanted: bool, threshold: float, window: int) -> None:
        self.robot, self.threshold, self.window = robot, threshold, window
        self.names, (self.torque_units, self.units) = robot.velocity_names, units(robot)
        self.many = robot.nv > MANY
        lines = 4 if self.many else robot.nv
        sizes = {
            "tail": min(1000, POINTS // 2 // lines),
            "buckets": min(BUCKETS, POINTS // 4 // lines),
        }
        self._r2 = History(
            4 + robot.nv, **sizes
        )  # held out, of the fit, worst joint, median joint, every joint
        self._torque = History(3 * robot.nv, tail=1000)  # measured, predicted, nominal
        self._error = (
            History(2 + robot.nv, **sizes) if wanted else None
        )  # worst joint, median joint, every joint
        self._fill, self._cycle = History(2, tail=1000), History(2, tail=1000)
        self.grounds, self.full_at, self.directions = Grounds(), None, None
        self._new: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def identities(self) -> tuple[str, ...]:
        """The panels there are, the most important first."""
        return tuple(name for name in TITLES if name != "error" or self._error is not None)

    # -- what comes in -----------------------------------------------------------------------------

    def add(self, block: Block, predicted: np.ndarray, nominal: np.ndarray) -> None:
        """Rows of the loop, and what two models predict of their torques."""
        measured = block.filtered[3]
        values = np.where(block.settled[:, None], np.hstack([measured, predicted, nominal]), np.nan)
        self._torque.add(block.t, values)
        if self._error is not None:
            size = np.abs(block.error)
            self._error.add(
                block.t, np.column_stack([_worst(size, low=False), _median(size), block.error])
            )
        self.grounds.add(block.t.tolist(), block.identified.tolist())

    def add_update(self, t: float, gate: GateState) -> None:
        """What the identifier said."""
        per_joint = (
            np.full(self.robot.nv, np.nan)
            if gate.r2_per_joint is None
            else np.ma.filled(gate.r2_per_joint, np.nan)
        )
        stacked = [np.nan if value is None else value for value in (gate.r2, gate.r2_fit)]
        over = [_worst(per_joint[None], low=True)[0], _median(per_joint[None])[0]]
        self._r2.add(
            np.array([t]),
            np.maximum(np.concatenate([stacked, over, per_joint]), online_run.LOWEST)[None],
        )
        self.directions = (
            gate.structural_rank if gate.structural_rank is not None else self.directions
        )
        rank = (
            np.nan
            if gate.rank is None or not self.directions
            else 100.0 * gate.rank / self.directions
        )
        self._fill.add(
            np.array([t]), np.array([[100.0 * min(gate.fill / max(gate.size, 1), 1.0), rank]])
        )
        if self.full_at is None and 0 < gate.size <= gate.fill:
            self.full_at = t

    def add_cycle(self, t: float, p50: float, p99: float) -> None:
        """Processor time of a cycle [µs]."""
        self._cycle.add(np.array([t]), np.array([[p50, p99]]))

    # -- what goes out -----------------------------------------------------------------------------

    def collect(self) -> None:
        """Gather what is new in all panels, for `extension` to hand out."""
        histories = {
            "r2": self._r2,
            "torque": self._torque,
            "error": self._error,
            "fill": self._fill,
            "cycle": self._cycle,
        }
        self._new = {
            name: history.fresh() for name, history in histories.items() if history is not None
        }

    def extension(self, name: str, joint: int) -> Points | None:
        """New points of every line of a panel; None where there are none."""
        t, rows = self._new.get(name, (np.zeros(0), None))
        if not len(t):
            return None
        times = np.round(t, 4).tolist()
        return [[times, rounded(rows[:, channel])] for channel in self._drawn(name, joint).values()]

    def figure(self, name: str, joint: int) -> dict[str, Any]:
        """A panel with all that is kept."""
        spans = self.grounds.spans
        match name:
            case "r2":
                return online_run.r2_over_time(
                    self._curves("r2", joint),
                    threshold=self.threshold,
                    identified=spans,
                    full_at=self.full_at,
                )
            case "torque":
                return torque_over_time(
                    *self._curves("torque", joint).values(), unit=self.torque_units[joint]
                )
            case "error":
                unit = "rad" if len(set(self.units)) == 1 and self.units[0] == "rad" else "rad or m"
                return online_run.over_time(
                    self._curves("error", joint), f"wanted − true [{unit}]", identified=spans
                )
            case "fill":
                return online_run.filling(
                    *self._curves("fill", joint).values(),
                    window=self.window,
                    directions=self.directions,
                )
            case _:
                return online_run.cycle_time(*self._curves("cycle", joint).values())

    def _drawn(self, name: str, joint: int) -> dict[str, int]:
        """Lines of a panel by their titles, and the channels they are in."""
        n = self.robot.nv
        if name == "torque":
            return {"measured": joint, "predicted": n + joint, "nominal": 2 * n + joint}
        if name not in ("r2", "error"):
            return {"first": 0, "second": 1}
        over, first = ({HELD: 0, FIT: 1}, 4) if name == "r2" else ({}, 2)
        if self.many:
            return over | {
                "worst joint": first - 2,
                "median joint": first - 1,
                f"joint {self.names[joint]}": first + joint,
            }
        return over | {_other(title, over): first + j for j, title in enumerate(self.names)}

    def _curves(self, name: str, joint: int) -> dict[str, Series]:
        history = {
            "r2": self._r2,
            "torque": self._torque,
            "error": self._error,
            "fill": self._fill,
            "cycle": self._cycle,
        }[name]
        return {title: history.line(channel) for title, channel in self._drawn(name, joint).items()}


def _worst(rows: np.ndarray, *, low: bool) -> np.ndarray:
    """The least, or the largest, of every row; NaN where all are."""
    filled = np.where(np.isnan(rows), np.inf if low else -np.inf, rows)
    out = filled.min(axis=1) if low else filled.max(axis=1)
    return np.where(np.isfinite(out), out, np.nan)


def _median(rows: np.ndarray) -> np.ndarray:
    """Of every row, of what is known in it."""
    ordered = np.sort(rows, axis=1)  # NaN last
    known = np.count_nonzero(~np.isnan(rows), axis=1)
    out = ordered[np.arange(len(rows)), np.maximum(known - 1, 0) // 2]
    return np.where(known > 0, out, np.nan)


def rounded(values: np.ndarray) -> list[float | None]:
    """Numbers to six digits; None where not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]


def _other(name: str, taken: dict[str, int]) -> str:
    """A joint may be called like another line."""
    return f"joint {name}" if name in taken else name
