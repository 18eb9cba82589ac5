"""Terminal output of `actuators`."""

from __future__ import annotations

from pathlib import Path

from thetahat.cli.terminal import findings, show
from thetahat.report.actuator_tables import drive_table, error_table, extra_table, sum_table
from thetahat.report.section import Code, Text
from thetahat.report.sections.rollout_section import rollout_table
from thetahat.report.text import Data
from thetahat.report.verdict_section import verdict_lines


def draw(data: Data, *, files: list[Path], seconds: float) -> None:
    """Print drives and the errors of their motion. data: schema thetahat/actuators/1."""
    steps = data["verdict"]["next_steps"]
    show(
        [
            verdict_lines(data),
            drive_table(data),
            extra_table(data),
            sum_table(data),
            error_table(data),
            [*findings(data["findings"])],
            Code("\n".join(steps), "Next steps:") if steps else None,
            Text("\n".join([*map(str, files), f"Identified in {seconds:.1f} s."])),
        ]
    )


def draw_scores(data: Data, *, seconds: float) -> None:
    """Print the errors of motion. data: schema thetahat/actuator-validation/1."""
    show(
        [
            [*verdict_lines(data), Text(f"{data['robot']}, {data['samples_test']:,} samples.")],
            error_table(data),
            rollout_table(data["rollout"]) if data["rollout"] else None,
            Text(f"Scored in {seconds:.1f} s."),
        ]
    )
