"""An online run: a measured sample → the identifier → the model the gate allows → the command, and
a journal of what was measured and decided.

The identifier sees a sample before the controller does, so what is wrong with it (a torque that is
not finite, a dead channel) closes the gate for this very cycle. A sample that it turns away, or
that does not come, reaches no control law: the last command is held for 20 ms, then faded over 100
ms to the nominal model's gravity compensation with damping.

Records of the journal, by kind; `t` is the loop's time, `stamp` the sample's own:

    begin     robot, joints                       a run begins (again)
    sample    stamp, q, dq, measured (torque),    one per cycle; `used`: whether the identifier
              tau (commanded), used, identified   accepted it, `identified`: which model commanded
    missing   row                                 a cycle without a sample, and how many in a row
    gate      open, reason                        whenever either changes
    switch    identified, reason, theta           another model is in charge, and its parameters
    alarm     sentence, joint                     the robot is not what was identified
    event     what, sentence, joint               anything else that happened to the stream
    stall     late                                time was lost before this cycle
    halt      tau                                 the run ended in order, with this command

A record is written before its command is handed out. A full disk stops nothing: control goes on,
and `alarms` says what was lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from thetahat.control.controller import Reference
from thetahat.control.journal import Journal
from thetahat.control.loop import Cycle
from thetahat.control.model_switch import ModelSwitch
from thetahat.errors import UsageError
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.sample_verdict import SampleVerdict

MOST_ALARMS = 100  # kept


class Measured(NamedTuple):
    """A sample of a robot."""

    t: float  # [s], its own stamp
    q: np.ndarray  # (nq,)
    dq: np.ndarray  # (nv,)
    tau: np.ndarray  # (nv,) [N·m or N] measured


class OnlineControl:
    """What a `Loop` runs: samples (t, q, dq, tau) in, commands out.

    Args:
        identifier: fed with every sample; its gate decides.
        controller: a `ModelSwitch` on that identifier.
        wanted: loop's time [s] → (q, dq, ddq), each (nv,).
        journal: where everything is written down, or None.

    """

    def __init__(
        self,
        identifier: OnlineIdentifier,
        controller: ModelSwitch,
        *,
        wanted: Callable[[float], Reference],
        journal: Journal | None = None,
    ) -> None:
        if getattr(controller, "source", None) is not identifier:
            raise UsageError(
                f"the controller ({type(controller).__name__}) is not switched by this identifier;"
                " give a ModelSwitch(identifier, …)"
            )
        self.identifier, self.controller, self.wanted = identifier, controller, wanted
        self.journal: Journal | None = None
        self.cycles = 0
        self._sentences: list[str] = []
        self._gate: tuple[bool, str] | None = None  # open and reason, as last written
        self._robot = controller.robot
        self._t = 0.0
        if journal is not None:
            self.write_to(journal)

    def write_to(self, journal: Journal) -> None:
        """Write everything down from now on."""
        self.journal = journal
        nominal = self.identifier.nominal
        self._note("begin", robot=nominal.name, joints=list(nominal.velocity_names))
        for sentence in self.controller.notes:
            self._note("event", what="assumed", sentence=sentence, joint=None)

    @property
    def alarms(self) -> tuple[str, ...]:
        """What somebody has to look at, as sentences: changes of the robot, and records that could
        not be written.
        """
        return (*self._sentences, *(() if self.journal is None else self.journal.alarms))

    def run_beside(self) -> None:
        """A real clock drives the loop: no cycle waits for a solver."""
        self.identifier.run_beside()

    def __call__(self, cycle: Cycle, sample: Measured) -> np.ndarray:
        """The command of one cycle, (nv,)."""
        try:
            t, q, dq, measured = sample
        except (TypeError, ValueError):
            raise UsageError(
                f"a sample is {type(sample).__name__}; give (t, q, dq, tau), as measured"
            ) from None
        self._t = cycle.t
        if cycle.stalled:
            self.controller.resync()
            self._note("stall", late=cycle.late)
        verdict = self.identifier.push(t, q, dq, measured)
        # by the loop's clock, which nobody sets
        if verdict.accepted:
            tau = self.controller(cycle.t, q, dq, self.wanted(cycle.t))
        else:
            tau = self.controller.turn_away(cycle.t, verdict.reason)
        self.cycles += 1
        if self.journal is not None:
            q, dq, measured = (np.asarray(array, dtype=float) for array in (q, dq, measured))
            flags = {
                "used": float(verdict.accepted),
                "identified": float(self.controller.identified),
            }
            self._note("sample", stamp=float(t), q=q, dq=dq, measured=measured, tau=tau, **flags)
        self._record(verdict)
        return tau

    def missed(self, cycle: Cycle) -> np.ndarray:
        """The command of a cycle in which no sample came, (nv,)."""
        self._t = cycle.t
        verdict = self.identifier.miss()
        self._note("missing", row=float(cycle.missing + 1))
        tau = self.controller.turn_away(cycle.t, "no sample came")
        self._record(verdict)
        return tau

    def halt(self) -> np.ndarray:
        """The command to end with, (nv,): what holds the robot still where it was last seen."""
        tau = self.controller.halt()
        self._note("halt", tau=tau)
        return tau

    def _record(self, verdict: SampleVerdict) -> None:
        """Write down what changed in this cycle: events, the gate, and the model in charge."""
        gate, robot = verdict.gate, self.controller.robot
        for event in verdict.events:
            if event.kind == "alarm":
                self._sentences = [*self._sentences[1 - MOST_ALARMS :], event.sentence]
                self._note("alarm", sentence=event.sentence, joint=event.joint)
            else:
                self._note("event", what=event.kind, sentence=event.sentence, joint=event.joint)
        if self._gate is None or gate.open != self._gate[0] or gate.reason != self._gate[1]:
            self._gate = gate.open, gate.reason
            self._note("gate", open=gate.open, reason=gate.reason)
        if robot is not self._robot:
            self._robot = robot
            identified = self.controller.identified
            self._note("switch", identified=identified, reason=gate.reason, theta=robot.theta)

    def _note(self, kind: str, **values: object) -> None:
        if self.journal is not None:
            # False: the journal keeps count, and `alarms` tells
            self.journal.append(kind, self._t, **values)


def resume(
    identifier: OnlineIdentifier, path: str | os.PathLike[str], *, seconds: float | None = None
) -> int:
    """Feed an identifier with what a journal holds, as if it had run through it: after a kill, or
    to try other options; how many samples.

    The identifier ends as the one that ran did, where neither solved anything beside its loop
    (`run_in="update"`). seconds: only the last ones of it, which is enough for a memory that is no
    longer than that. Where the samples to come are stamped a second later or more, the identifier
    will forget all of it, for the robot may hold something else by then; give it a longer
    `reset_after` where that cannot be.
    """
    if seconds is not None and not seconds > 0.0:
        raise UsageError(
            f"seconds is {seconds!r}; give a number above zero, or None for the whole journal"
        )
    first, count = -np.inf, 0
    if seconds is not None:
        stamps = (
            record.values["stamp"] for record in Journal.read(path) if record.kind == "sample"
        )
        first = max((stamp for stamp in stamps if stamp == stamp), default=0.0) - seconds
    for record in Journal.read(path):
        values = record.values
        if record.kind == "sample" and not values["stamp"] < first:
            identifier.push(values["stamp"], values["q"], values["dq"], values["measured"])
            count += 1
        elif record.kind == "missing" and count:
            identifier.miss()
    return count
