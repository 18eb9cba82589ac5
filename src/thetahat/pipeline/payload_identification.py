"""`PayloadIdentification`: what `payload` returns, and the files that it writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from thetahat.data.types import Finding
from thetahat.files import as_text, make_folder, write_atomically, written_together
from thetahat.identification import estimate_json
from thetahat.identification.payload.payload_json import SCHEMA, gains_data, payload_data
from thetahat.identification.payload.payload_result import Payload
from thetahat.identification.payload.payload_verdict import with_payload_verdict
from thetahat.identification.verdict import Verdict
from thetahat.identification.verdict_reason import Fields
from thetahat.model.io.gains_json import DriveGain, gains_content
from thetahat.model.joint_units import joint_units
from thetahat.model.robot import Robot
from thetahat.pipeline.outputs import DRIVE, provenance
from thetahat.pipeline.settings import IdentifySettings
from thetahat.report.page import render

if TYPE_CHECKING:
    from thetahat.data.log import Log

ANSWER, PAGE = "payload.json", "report.html"


@dataclass(frozen=True)
class JointResidual:
    """RMS of a joint's logged torque that the fit leaves of the loaded runs [N·m or N]."""

    joint: str
    rows: int
    without: float  # by the robot alone
    with_payload: float


@dataclass(frozen=True, eq=False)
class PayloadSource:
    """Where the answer comes from: logs, what their audit found, what was chosen."""

    logs: tuple[Log, ...] = ()
    unloaded: tuple[Log, ...] = ()
    findings: tuple[tuple[Finding, str], ...] = ()  # and of which logs: "loaded" or "without"
    chosen: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    samples: int = 0


@dataclass(frozen=True, eq=False)
class PayloadIdentification:
    """The result of `payload`: payloads by name, drive gains, verdict, files."""

    payloads: Mapping[str, Payload]
    known_masses: Mapping[str, float | None]  # [kg] by name, None: identified
    gains: tuple[DriveGain, ...] | None  # None: not asked for
    # error of the torques' scale that standard deviations include, as a fraction; None with gains
    scale_error: float | None
    residuals: tuple[JointResidual, ...]
    robot: Robot
    settings: IdentifySettings
    source: PayloadSource

    @property
    def name(self) -> str:
        """Of the payload that was asked for: the first whose mass was not known."""
        unknown = [name for name, mass in self.known_masses.items() if mass is None]
        return (unknown or list(self.payloads))[0]

    @property
    def payload(self) -> Payload:
        """The payload that was asked for."""
        return self.payloads[self.name]

    @property
    def verdict(self) -> Verdict:
        """Whether the result is good, usable or not usable, and why."""
        return Verdict.from_data(self.data["verdict"])

    @cached_property
    def data(self) -> Fields:
        """The answer as plain data, schema thetahat/payload/1."""
        payloads = [
            payload_data(payload, name=name, known_mass=self.known_masses[name])
            for name, payload in self.payloads.items()
        ]
        first = next(each for each in payloads if each["name"] == self.name)
        torque = [unit for unit, _ in joint_units(self.robot)]
        units = dict(zip(self.robot.velocity_names, torque, strict=True))
        data = {
            "schema": SCHEMA,
            **first,
            "payloads": payloads,
            "gains": None if self.gains is None else gains_data(self.gains),
            "scale_error": self.scale_error,
            "joints": [
                {
                    "name": each.joint,
                    "unit": units.get(each.joint, "N·m"),
                    "rows": each.rows,
                    "rms_without": each.without,
                    "rms_with": each.with_payload,
                }
                for each in self.residuals
            ],
            "samples": self.source.samples,
            "locked": list(self.source.locked),
            "chosen": list(self.source.chosen),
            "findings": self._findings,
            "warnings": [],
            "provenance": self._provenance,
        }
        return with_payload_verdict(data)

    @property
    def _findings(self) -> list[Fields]:
        out = []
        for finding, where in self.source.findings:
            out += estimate_json.findings([finding], where)
        return out

    @property
    def _provenance(self) -> Fields:
        given = self.settings
        settings = {
            **{name: getattr(given, name) for name in ("columns", "units", "format", "topic")},
            "gains": dict(given.torque_gains) or None,
            "joints": list(given.joints) or None,
            "actuation": None if given.actuation is None else str(given.actuation),
            "gravity": [float(value) for value in self.robot.gravity],
        }
        whole = provenance(self.robot, None, None, settings)
        logs, unloaded = (
            [{"path": s.path, "sha256": s.sha256} for log in group for s in log.sources]
            for group in (self.source.logs, self.source.unloaded)
        )
        del whole["test_logs"]
        return {**whole, "logs": logs, "unloaded_logs": unloaded}

    # -- files -------------------------------------------------------------------------------------

    @written_together()
    def save(
        self, folder: str | os.PathLike[str], *, warnings: list[str] | None = None
    ) -> tuple[Path, ...]:
        """Write payload.json, report.html and, where gains were identified, drive.json."""
        folder = Path(folder)
        make_folder(folder)
        data = {**self.data, "warnings": list(warnings or ())}
        data = with_payload_verdict(data, str(folder))
        files = [self.report(folder / PAGE)]
        if self.gains is not None:
            by_joint = {each.joint: each for each in self.gains}
            files.append(write_atomically(folder / DRIVE, gains_content(self.robot, by_joint)))
        return (write_atomically(folder / ANSWER, as_text(data)), *files)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one self-contained HTML page."""
        from thetahat.report.payload_report import payload_sections

        title = f"Payload on {self.payload.link}"
        page = render(title, payload_sections(self.data, self.robot), subtitle=self.robot.name)
        return write_atomically(Path(path), page)

    def __repr__(self) -> str:
        return f"<PayloadIdentification of {self.robot.name}: {self.verdict.sentence}>"

    def __str__(self) -> str:
        parts = [str(self.verdict), *map(str, self.payloads.values())]
        for each in self.gains or ():
            value = "unknown" if each.gain is None else f"{each.gain:.4g} ± {each.std:.2g}"
            parts.append(f"gain of {each.joint}: {value}")
        return "\n\n".join(parts)
