"""A closed loop in simulated time: a plant follows a motion, a controller commands it, and an
identifier looks on, cycle by cycle.

`cycles()` yields after every control cycle, so the same loop runs as fast as it can (a study) or
paced by a clock (the live page).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.controller import Controller
from thetahat.control.loop_timing import Histogram, Quantiles
from thetahat.control.model_switch import ModelSwitch
from thetahat.errors import UsageError
from thetahat.model.robot import Robot
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.plant import Plant
from thetahat.plant.tracking import check_reference, duration_of, reference

PARTS = ("control", "identify", "simulate")  # of a cycle, timed apart
BLOCK = 4096  # cycles whose references are computed at once


@dataclass(frozen=True, eq=False)
class Cycle:
    """What one control cycle saw and did; arrays are the loop's own until the next cycle."""

    k: int
    t: float  # [s]
    q: np.ndarray  # (nq,) measured
    dq: np.ndarray  # (nv,) measured
    tau: np.ndarray  # (nv,) [N·m or N] measured
    u: np.ndarray  # (nv,) [N·m or N] commanded
    wanted: tuple[np.ndarray, np.ndarray, np.ndarray]  # q, dq, ddq
    true: np.ndarray  # (nq,) where the robot really is
    identified: bool  # whether the command came from an identified model
    took: int = 0  # [ns] of this thread's processor time for control and identification
    model: Robot | None = None  # in charge of the command, where the controller tells


@dataclass(frozen=True, eq=False)
class Experiment:
    """The parts of a loop, made and not yet run: a study runs it, the live page watches it."""

    nominal: Robot
    model: Robot  # with the drive terms to identify
    identifier: OnlineIdentifier
    controller: ModelSwitch | ComputedTorque
    loop: ClosedLoop

    @property
    def switch(self) -> ModelSwitch:
        """The controller of an experiment that changes models."""
        if not isinstance(self.controller, ModelSwitch):
            raise UsageError("this experiment's controller keeps its model; it has no switch")
        return self.controller


class ClosedLoop:
    """Iterate over `cycles()`; afterwards `seconds` says what each part of a cycle took, of this
    thread's processor time.
    """

    def __init__(
        self,
        plant: Plant,
        motion: Any,
        controller: Controller,
        identifier: OnlineIdentifier | None = None,
        *,
        rate: float = 1000.0,
        seed: int = 0,
    ) -> None:
        check_reference(motion, plant.nominal)
        self.plant, self.motion, self.controller = plant, motion, controller
        self.identifier, self.rate, self.seed = identifier, float(rate), seed
        self.duration = duration_of(motion)
        self.count = int(self.duration * self.rate)
        self._times = {part: Histogram() for part in (*PARTS, "cycle")}

    def cycles(self) -> Iterator[Cycle]:
        """From the motion's beginning to its end."""
        plant, controller, identifier = self.plant, self.controller, self.identifier
        clock = time.thread_time_ns
        for first in range(0, self.count, BLOCK):
            stop = min(first + BLOCK, self.count)
            wanted = reference(self.motion, np.arange(first, stop) / self.rate, plant.nominal)
            if first == 0:
                plant.reset(wanted[0][0], wanted[1][0], seed=self.seed)
            for k, goal in zip(range(first, stop), zip(*wanted, strict=True), strict=True):
                t, true = plant.t, plant.state.q
                q, dq = plant.sense_motion()
                begun = clock()
                u = controller(t, q, dq, goal)
                decided = clock()
                plant.command(u)
                # what acts from now on, so it cannot be known before the command; it is judged
                # before the next one
                tau = plant.sense_torque()
                sensed = clock()
                if identifier is not None:
                    identifier.push(t, q, dq, tau)
                done = clock()
                # what a controller on a real robot would pay
                took = decided - begun + done - sensed
                identified = bool(getattr(controller, "identified", False))
                model = getattr(controller, "robot", None)
                yield Cycle(k, t, q, dq, tau, u, goal, true, identified, took, model)
                resumed = clock()
                plant.advance((k + 1) / self.rate - plant.t)
                for part, ns in zip(
                    PARTS, (decided - begun, done - sensed, clock() - resumed), strict=True
                ):
                    self._times[part].add(ns)
                self._times["cycle"].add(took)

    @property
    def seconds(self) -> dict[str, Quantiles]:
        """[µs] of control, identification, both (cycle), and the simulation, which a real robot
        does by itself.
        """
        return {part: histogram.quantiles() for part, histogram in self._times.items()}
