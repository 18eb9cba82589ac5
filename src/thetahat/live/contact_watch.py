"""Contacts on the live page: what pushes the robot, by the observer of external torques.

It takes the rows that are drawn, 50 a second, so it costs the loop nothing. Thresholds are learned
from half a minute behind an open gate, in which nobody should touch the robot; they are learned
anew when the identifier forgets its memory, since the robot is another one by then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.errors import ThetahatError
from thetahat.identification.verdict_reason import Fields
from thetahat.live.shared_state import Rows
from thetahat.model.joint_units import joint_units
from thetahat.model.robot import Robot
from thetahat.online.external_torque import GAP, Contact, ExternalTorque, Run
from thetahat.online.gate import GateState

LEARN = 30.0  # [s] of motion without contact
RATE = 6.0  # false alarms an hour that thresholds are for


@dataclass(frozen=True)
class ContactEvent:
    """A contact that began, lasts, or is over."""

    t: float  # [s]
    sentence: str


class ContactWatch:
    """`add` rows; states the external torque, and collects the events."""

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self._units = [torque for torque, _ in joint_units(robot)]
        self.forget()

    def forget(self) -> None:
        """Forget all that was learned."""
        self._observer: ExternalTorque | None = None
        self._contact: Contact | None = None
        self._began: float | None = None  # [s] when the contact that lasts began,
        self._kind, self._most = "none", 0.0  # what was told of it, and its largest torque
        self._events: list[ContactEvent] = []
        self._runs: list[list[tuple[float, np.ndarray]]] = []
        self._learned = 0.0  # [s]
        self._open = self._done = False
        self._fill = 0  # samples in the identifier's memory

    def add(self, rows: Rows, x: np.ndarray | None, gate: GateState) -> np.ndarray:
        """Take rows, and the parameters of the model in use; return external torques (n, nv), NaN
        where none is known.
        """
        if 2 * gate.fill < self._fill:
            self._begin_anew(float(rows.t[0]))
        self._fill, self._open = gate.fill, gate.open
        out = np.full((len(rows), self._robot.nv), np.nan)
        q, dq, _, tau = rows.filtered
        for k in np.flatnonzero(rows.settled):
            t = float(rows.t[k])
            if gate.open and x is not None and not self._done:
                self._learn(t, np.concatenate([q[k], dq[k], tau[k]]), x)
            if self._observer is not None:
                self._contact = self._observer.push(t, q[k], dq[k], tau[k])
                out[k] = self._contact.torque
                self._tell(self._contact)
        return out

    def _begin_anew(self, t: float) -> None:
        watched = self._observer is not None
        self.forget()
        if watched:
            sentence = "the robot is another one; contacts are watched for once it is identified"
            self._events.append(ContactEvent(t, sentence))

    def events(self) -> list[ContactEvent]:
        """Return the events since the last call."""
        out, self._events = self._events, []
        return out

    def state(self) -> Fields:
        """Return what the page shows."""
        learning = None if self._done or not self._open else round(self._learned, 1)
        out: Fields = {"kind": None, "joint": None, "torque": None, "unit": None}
        if self._contact is not None:
            out |= {"kind": self._contact.kind, **self._felt(self._contact)}
        return out | {"learning": learning, "learn": LEARN}

    def _felt(self, contact: Contact) -> Fields:
        if contact.joint is None:
            return {}
        v = self._robot.velocity_names.index(contact.joint)
        torque = float(f"{contact.torque[v]:.3g}")
        return {"joint": contact.joint, "torque": torque, "unit": self._units[v]}

    def _learn(self, t: float, row: np.ndarray, x: np.ndarray) -> None:
        """Keep a row; learn thresholds where there are enough."""
        before = self._runs[-1][-1][0] if self._runs else -np.inf
        if not 0.0 < t - before <= GAP:
            self._runs.append([])
        else:
            self._learned += t - before
        self._runs[-1].append((t, row))
        if self._learned < LEARN:
            return
        self._done = True
        robot = self._robot.with_parameters(x)
        runs = [self._run(run) for run in self._runs if len(run) > 1]
        try:
            self._observer = ExternalTorque.calibrated(robot, runs, false_alarms=RATE, unsure=1.0)
        except ThetahatError as error:
            self._events.append(ContactEvent(t, f"contacts cannot be told: {error}"))
            return
        self._observer.reset()
        self._contact = self._began = None
        sentence = f"contacts are watched for from now on, by {self._learned:.0f} s of motion"
        self._events.append(ContactEvent(t, sentence))

    def _run(self, rows: list[tuple[float, np.ndarray]]) -> Run:
        t, values = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
        q, dq, tau = np.split(values, [self._robot.nq, self._robot.nq + self._robot.nv], axis=1)
        return t, q, dq, tau

    def _tell(self, contact: Contact) -> None:
        """Note an event where a contact begins, becomes guiding, or is over."""
        felt, t = self._felt(contact), contact.t
        if contact.since is None:
            if self._began is not None:
                sentence = f"contact over after {t - self._began:.2g} s, at most {self._most:.3g}"
                self._events.append(ContactEvent(t, sentence))
            self._began, self._kind, self._most = None, "none", 0.0
            return
        if self._began is None:
            self._began = contact.since
        self._most = max(self._most, abs(felt.get("torque", 0.0)))
        if contact.kind != self._kind and self._kind != "hand-guiding":
            on = (
                f" on joint {felt['joint']!r}: {felt['torque']:+.3g} {felt['unit']}" if felt else ""
            )
            self._events.append(ContactEvent(t, f"{contact.kind}{on}"))
            self._kind = contact.kind
