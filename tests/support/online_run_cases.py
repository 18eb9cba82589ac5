"""An online run on an arm whose measurements are computed rather than simulated: the same in a test
and in a child process that is killed.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
from online_cases import Run, arm, run, wrong
from online_settings import settings

import thetahat as th
from thetahat.control.journal import Journal
from thetahat.control.loop import Loop, LoopReport
from thetahat.control.loop_timing import VirtualClock
from thetahat.control.model_switch import ModelSwitch
from thetahat.control.online_control import OnlineControl, resume
from thetahat.online.identifier import OnlineIdentifier

RATE = 250.0  # [Hz]
SECONDS = 12.0
OPEN = 6.0  # [s] by which the gate of the clean run is open


@cache
def truth() -> th.Robot:
    return arm()


@cache
def stream() -> Run:
    return run(truth(), SECONDS, rate=RATE).noisy(0.01, 2e-3)


def identifier(**options: object) -> OnlineIdentifier:
    return OnlineIdentifier(
        wrong(truth()),
        rate=10.0,
        window=50,
        **settings(period=1.0 / RATE, dwell=0.5, refit_interval=2.0, **options),
    )


class Rig:
    """An identifier, a switched controller and a journal, on a clock that runs when it is told to;
    samples come from a list, None is missing.
    """

    def __init__(
        self, path: Path | None = None, *, first: int = 0, again: bool = False, **options: object
    ) -> None:
        self.identifier = identifier(**options)
        if again:
            resume(self.identifier, path)
        self.controller = ModelSwitch(
            self.identifier,
            self.make,
            slew=50.0,
            nominal=self.identifier.nominal,
            applied=False,  # samples come from a list
        )
        self.journal = None if path is None else Journal(path)
        self.online = OnlineControl(
            self.identifier, self.controller, wanted=self.wanted, journal=self.journal
        )
        self.first, self.clock = first, VirtualClock()
        data = stream()
        self.samples: list = list(zip(data.t.tolist(), data.q, data.dq, data.tau, strict=True))
        self.at, self.written = first, []

    @staticmethod
    def make(robot: th.Robot) -> th.ComputedTorque:
        return th.ComputedTorque(robot, 100.0, 20.0)

    def wanted(self, t: float) -> tuple:
        data, k = stream(), min(self.first + round(t * RATE), len(stream()) - 1)
        return data.q[k], data.dq[k], data.ddq[k]

    def read(self) -> object:
        self.at += 1
        return self.samples[self.at - 1]

    def write(self, command: np.ndarray) -> None:
        self.written.append(command)

    def run(self, until: float = SECONDS) -> LoopReport:
        last = min(round(until * RATE), len(self.samples))
        return Loop(RATE, clock=self.clock).run(
            self.read, self.online, self.write, until=lambda: self.at >= last
        )


def child(path: str, first: int, *, again: bool) -> None:
    """Run on through the stream, round and round; after every command its number goes into the
    pipe: that one is acknowledged.
    """
    rig = Rig(Path(path), first=first, again=again)
    k = first

    def write(command: np.ndarray) -> None:
        nonlocal k
        os.write(1, b"%d\n" % k)
        k += 1

    def read() -> tuple:
        data = stream()
        i = k % len(
            data
        )  # where the stream begins again, the robot leaps and the identifier has something to say
        return (k / RATE, data.q[i], data.dq[i], data.tau[i])

    Loop(RATE, clock=rig.clock).run(read, rig.online, write)
