"""What a link holds, on the live page and in its report: a body, with its intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.identification.payload.payload_json import payload_data
from thetahat.identification.payload.payload_place import payload_place
from thetahat.identification.payload.payload_result import Payload
from thetahat.identification.verdict_reason import Fields
from thetahat.model.robot import Robot
from thetahat.online.identifier import OnlineIdentifier
from thetahat.report.figures.stick_figure import robot_figure
from thetahat.report.payload_report import Z95, payload_table
from thetahat.report.section import Figure, Panel, Section, Text


@dataclass(frozen=True, eq=False)
class HeldBody:
    """A body that the identifier found at a link."""

    body: int  # of the robot, that carries it
    theta: np.ndarray  # (10,) in that body's frame
    since: float  # [s]
    payload: Payload

    @staticmethod
    def of(identifier: OnlineIdentifier) -> HeldBody | None:
        """Return what is held; None where nothing is, where no payload
        explains the torques, and while its mass may be zero."""
        report = identifier.payload
        if report is None or not report.explained or report.let_go:
            return None
        payload, robot = report.payload, identifier.nominal
        if payload.mass_std is None or payload.mass < Z95 * payload.mass_std:
            return None
        place = payload_place(robot, payload.link, payload.frame)
        theta = place.to_body @ payload.theta
        return HeldBody(place.span.start // len(theta), theta, report.detected, payload)

    @property
    def half(self) -> float | None:
        """[kg] by which the mass may differ, with 95 % probability."""
        std = self.payload.mass_std
        return None if std is None else float(f"{Z95 * std:.2g}")

    @property
    def title(self) -> str:
        """Name and mass, with its interval."""
        spread = "" if self.half is None else f" ± {self.half:g}"
        return f"payload {self.payload.mass:.3g}{spread} kg"

    def state(self) -> Fields:
        """Return what the page shows."""
        mass = float(f"{self.payload.mass:.4g}")
        since = round(self.since, 2)
        return {"mass": mass, "half": self.half, "link": self.payload.link, "since": since}

    def section(self, robot: Robot, pose: np.ndarray) -> Section:
        """Return the section of a report on it."""
        alone = np.zeros_like(robot.theta)
        alone[len(self.theta) * self.body :][: len(self.theta)] = self.theta
        drawing = robot_figure(robot, pose, alone, robot.theta)
        data = payload_data(self.payload, name="payload", known_mass=None)
        blocks = (
            Text(f"Taken up {self.since:.2f} s after the start."),
            payload_table(data, caption=f"Held by link {self.payload.link!r}"),
            Figure((Panel("payload", drawing),), "The payload; rings: the robot's bodies."),
        )
        return Section("Payload", "payload", blocks)
