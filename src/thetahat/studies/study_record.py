"""What is kept of a closed loop: its signals at a modest rate, and what every update of the
identifier said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from thetahat.data.log import Log
from thetahat.data.memory_log import log_from_arrays
from thetahat.identification.information import Information
from thetahat.model.robot import Robot
from thetahat.online.gate import GateState
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.simulate import Recording
from thetahat.report.traces import Series
from thetahat.studies.closed_loop import Cycle

DRAWN = 100.0  # [Hz] of the signals that are drawn


@dataclass(frozen=True, eq=False)
class Update:
    """What the identifier said after an update."""

    t: float  # [s]
    gate: GateState
    x_base: np.ndarray | None  # the estimate, as base parameters


@dataclass(frozen=True)
class GateChange:
    """A moment at which the gate opened or closed, and why it did."""

    t: float  # [s]
    open: bool
    reason: str


@dataclass(frozen=True, eq=False)
class Run:
    """A closed loop that is over."""

    robot: Robot  # nominal
    t: np.ndarray  # (n,) [s], every cycle
    q: np.ndarray  # (n, nq) measured
    dq: np.ndarray  # (n, nv) measured
    tau: np.ndarray  # (n, nv) measured [N·m or N]
    wanted: np.ndarray  # (n, nq)
    error: np.ndarray  # (n, nv) wanted − true position, one-DOF joints
    identified: np.ndarray  # (n,) bool
    updates: tuple[Update, ...]
    step: int  # cycles between two drawn points
    u: np.ndarray | None = None  # (n, nv) commanded [N·m or N]
    # (first cycle, the model in charge of the commands from it on)
    models: tuple[tuple[int, Robot], ...] = ()
    gate: tuple[GateChange, ...] = ()

    @staticmethod
    def of(robot: Robot, recording: Recording) -> Run:
        """A recording without an identifier."""
        wanted, measured = recording.wanted[0], recording.measured
        rate = 1.0 / float(np.median(np.diff(recording.t)))
        step, dq = max(1, round(rate / DRAWN)), measured.get("dq", recording.dq)
        still = np.zeros(len(recording.t), dtype=bool)
        q, tau, error = measured["q"], measured["tau"], wanted - recording.q
        return Run(robot, recording.t, q, dq, tau, wanted, error, still, (), step)

    @property
    def drawn(self) -> slice:
        """Cycles to draw."""
        return slice(None, None, self.step)

    @property
    def opened_at(self) -> float | None:
        """[s] when the gate first opened."""
        return next((change.t for change in self.gate if change.open), None)

    def gate_summary(self) -> dict[str, Any]:
        """For `summary.json`: when the gate first opened and why it did, or why it never did; and
        every time it closed again.
        """
        opened = next((change for change in self.gate if change.open), None)
        closings = [
            {"t": change.t, "reason": change.reason} for change in self.gate if not change.open
        ]
        never = self.updates[-1].gate.reason if self.updates else "no update was made"
        return {
            "opened_at": None if opened is None else opened.t,
            "reason": never if opened is None else opened.reason,
            "closings": closings,
            "open_at_end": bool(self.gate) and self.gate[-1].open,
        }

    def over_updates(self, name: str) -> Series:
        """A number of the gate's state after every update, by time; NaN where there is none."""
        values = [getattr(update.gate, name) for update in self.updates]
        t = np.array([update.t for update in self.updates])
        return Series(t, np.array([np.nan if value is None else value for value in values]))

    def log(self, name: str) -> Log:
        """The run as a log, audited like one from a file; speeds follow from the positions."""
        return log_from_arrays(self.robot, self.t, self.q, tau=self.tau, name=name)


class Recorder:
    """`add` every cycle, then take the `result`."""

    def __init__(
        self, robot: Robot, count: int, rate: float, identifier: OnlineIdentifier | None = None
    ) -> None:
        self.robot, self.identifier = robot, identifier
        self._arrays = {
            name: np.empty((count, width))
            for name, width in (
                *(("q", robot.nq), ("dq", robot.nv), ("tau", robot.nv), ("u", robot.nv)),
                *(("wanted", robot.nq), ("error", robot.nv)),
            )
        }
        self._t, self._identified = np.empty(count), np.zeros(count, dtype=bool)
        self._count, self._step = 0, max(1, round(rate / DRAWN))
        self._updates: list[Update] = []
        self._models: list[tuple[int, Robot]] = []
        self._gate: list[GateChange] = []

    def add(self, cycle: Cycle) -> Update | None:
        """Keep a cycle; the update that it brought, if any."""
        k, arrays = cycle.k, self._arrays
        self._t[k], self._identified[k] = cycle.t, cycle.identified
        arrays["q"][k], arrays["dq"][k], arrays["tau"][k] = cycle.q, cycle.dq, cycle.tau
        arrays["wanted"][k] = cycle.wanted[0]
        arrays["error"][k], arrays["u"][k] = cycle.wanted[0] - cycle.true, cycle.u
        self._count = k + 1
        if cycle.model is not None and (not self._models or self._models[-1][1] is not cycle.model):
            self._models.append((k, cycle.model))
        identifier = self.identifier
        if identifier is not None and identifier.gate.open != (
            bool(self._gate) and self._gate[-1].open
        ):
            self._gate.append(GateChange(cycle.t, identifier.gate.open, identifier.gate.reason))
        if identifier is None or identifier.updates == len(self._updates):
            return None
        estimate = identifier.estimate
        x_base = None if estimate is None else estimate.x_base
        self._updates.append(Update(cycle.t, identifier.gate, x_base))
        return self._updates[-1]

    def result(self) -> Run:
        """All of it."""
        n = self._count
        arrays = {name: array[:n] for name, array in self._arrays.items()}
        return Run(
            self.robot,
            self._t[:n],
            **arrays,
            identified=self._identified[:n],
            updates=tuple(self._updates),
            step=self._step,
            models=tuple(self._models),
            gate=tuple(self._gate),
        )


def score_over_time(whole: Information, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(t, R² of each update's estimate on the whole run)."""
    known = [(update.t, update.x_base) for update in run.updates if update.x_base is not None]
    scores = [whole.r2(x_base) for _, x_base in known]
    r2 = np.array([np.nan if score is None else score for score in scores])
    return np.array([t for t, _ in known]), r2
