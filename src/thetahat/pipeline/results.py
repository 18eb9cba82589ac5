"""The parts of an identification's result."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from thetahat.data.joint_selection import TorqueCounts
from thetahat.data.types import Finding
from thetahat.errors import known
from thetahat.identification.consistency.plausibility import Plausibility
from thetahat.identification.estimate import Estimate
from thetahat.identification.information import Information
from thetahat.identification.residual_audit import ResidualFindings
from thetahat.identification.rollout_errors import RolloutErrors
from thetahat.identification.scores import Validation
from thetahat.identification.tuning.tune import Tuned
from thetahat.identification.uncertainty.instrument_choice import InstrumentChoice
from thetahat.model.robot import Robot
from thetahat.pipeline.dataset import Dataset
from thetahat.report.traces import Traces


@dataclass(frozen=True, eq=False)
class Model:
    """The identified robot, and what it was identified with."""

    nominal: Robot  # as its file states it, joints that the log does not measure locked
    identified: Robot
    least_squares: Robot  # the same columns by plain least squares
    information: Information
    rotor_inertia: str  # whether it was fitted, and why
    plausibility: Plausibility  # of its bodies, beside the file's masses and their regions
    instruments: InstrumentChoice | None = None  # where there is a reference motion
    unmodelled: tuple[Finding, ...] = ()  # structure in the residual: springs, shared motors


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores on held-out data: torques behind the low-pass and as logged, and simulated motion."""

    test: Validation | None = None
    raw: Validation | None = None
    rollout: RolloutErrors | None = None


@dataclass(frozen=True, eq=False)
class Audit:
    """What the audit of the logs found, and what was left out of the fit."""

    findings: tuple[Finding, ...]  # of the log that was fitted
    test_findings: tuple[Finding, ...]
    dropped: dict[str, int]  # torques left out of the fit, by reason
    locked: tuple[str, ...]  # joints without a column, held still

    def __str__(self) -> str:
        lines = [finding.message for finding in (*self.findings, *self.test_findings)]
        if self.dropped:
            counts = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
            lines.append(f"torques left out of the fit: {counts}")
        if self.locked:
            lines.append(f"held still, as the log has no column for them: {known(self.locked)}")
        return "\n".join(lines) or "nothing to report"


@dataclass(frozen=True, eq=False)
class Results:
    """Everything that the stages of an identification found."""

    estimate: Estimate
    model: Model
    held_out: Scores
    dataset: Dataset
    tuned: Tuned  # low-pass, delay, friction model, prior weight, and why
    counts: TorqueCounts
    traces: Traces | None  # for the report
    residuals: ResidualFindings = field(default_factory=ResidualFindings)

    @cached_property
    def audit(self) -> Audit:
        """What the audit of the logs found, and what was left out of the fit."""
        log, test = self.dataset.log, self.dataset.test_log
        return Audit(
            (*log.findings, *self.residuals.fit, *self.model.unmodelled),
            (*(() if test is None else test.findings), *self.residuals.test),
            self.counts.dropped,
            tuple(log.locked),
        )
