"""Terminal output of `identify`, from the sections of its report."""

from __future__ import annotations

from pathlib import Path

from thetahat.cli.terminal import findings, show, written
from thetahat.data.finding_kinds import GRAVE
from thetahat.report.identification_report import parity, processing
from thetahat.report.section import Text
from thetahat.report.sections import bodies, torques
from thetahat.report.text import Data
from thetahat.report.verdict_section import verdict


def draw(estimate: Data, *, files: list[Path], seconds: float) -> None:
    """Print the result to stdout. estimate: plain data, schema thetahat/estimate/1."""
    show(
        [
            verdict(estimate).blocks,
            torques.score_table(estimate),
            bodies.drive_table(estimate),
            bodies.body_table(estimate),
            [
                *bodies.consistency_notes(estimate),
                *bodies.identifiability_notes(estimate),
                *map(Text, parity(estimate)),
            ],
            [
                *findings(estimate["findings"], skip=(*GRAVE, "locked-joints")),
                *map(Text, processing(estimate)),
            ],
            written(files, seconds),
        ]
    )
