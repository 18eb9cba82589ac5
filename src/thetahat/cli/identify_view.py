"""Terminal output of `identify`, from the sections of its report."""

from __future__ import annotations

from pathlib import Path

from thetahat.cli.terminal import Part, findings, show, written
from thetahat.errors import known
from thetahat.identification.verdict_findings import EFFECTS
from thetahat.report.identification_report import parity, processing
from thetahat.report.section import Block, Code, Note, Text
from thetahat.report.sections import bodies, torques
from thetahat.report.sections.hand_guiding_section import guiding_table
from thetahat.report.text import Data
from thetahat.report.verdict_section import fit_summary, verdict_lines


def draw(estimate: Data, *, files: list[Path], seconds: float, verbose: bool = False) -> None:
    """Print verdict, scores and next steps to stdout; verbose: everything that is known.

    estimate: plain data, schema thetahat/estimate/1.
    """
    show(
        [
            verdict_lines(estimate),
            torques.score_table(estimate) if verbose else torques.brief_score_table(estimate),
            *((guiding_table(estimate),) if estimate.get("static") else ()),
            *(_details(estimate) if verbose else ()),
            _next_steps(estimate),
            [written(files, seconds), *(() if verbose else _more(estimate))],
        ]
    )


def _details(estimate: Data) -> list[Part]:
    """Return fit, friction, bodies, identifiability, audit and automatic choices."""
    return [
        Text(fit_summary(estimate)),
        bodies.drive_table(estimate),
        bodies.body_table(estimate),
        [
            *bodies.consistency_notes(estimate),
            *bodies.identifiability_notes(estimate),
            *map(Text, parity(estimate)),
        ],
        [
            *findings(estimate["findings"], skip=(*EFFECTS, "locked-joints")),
            *map(Text, processing(estimate)),
        ],
    ]


def _next_steps(estimate: Data) -> list[Block]:
    """Return the commands to try, one a line."""
    steps = estimate["verdict"]["next_steps"]
    return [Code("\n".join(steps), "Next:")] if steps else []


def _more(estimate: Data) -> list[Block]:
    """Return why there is no robot file, locked joints, and where the rest is."""
    reason = next((text for text in estimate["advice"] if text.startswith("no robot file")), None)
    blocks: list[Block] = [] if reason is None else [Note(f"{_sentence(reason)}.", "warning")]
    if estimate["locked"]:
        blocks.append(
            Text(f"Locked, as the log has no columns for them: {known(estimate['locked'])}.")
        )
    return [*blocks, Text("-v prints friction, bodies and every automatic choice, too.")]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
