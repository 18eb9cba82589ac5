"""Terminal output of `validate`."""

from __future__ import annotations

from dataclasses import replace

from thetahat.cli.terminal import findings, show
from thetahat.report.section import Text
from thetahat.report.sections.rollout_section import rollout_table
from thetahat.report.sections.torques import SCORES, table_of
from thetahat.report.text import Data, low_pass
from thetahat.report.verdict_section import verdict_lines

COLUMNS = {
    key: replace(SCORES[key], brief=title)
    for key, title in {
        "name": "joint",
        "r2_test": "R²",
        "r2_test_moving": "moving",
        "r2_test_raw": "raw",
        "rms_test": "RMS",
        "r2_nominal": "R² other",
        "rms_nominal": "RMS other",
        "rows_test": "rows",
    }.items()
}


def draw(result: Data, *, seconds: float) -> None:
    """Print the scores to stdout. result: plain data, schema thetahat/validation/1."""
    joints = [joint for joint in result["joints"] if joint["rows_test"]]
    note = (
        "R² = 1 − e'e/u'u over all usable rows, moving: without standstill; torques low-passed at"
        f" {result['score_cutoff']:.4g} Hz, raw: unfiltered. RMS of the residual [N·m or N]."
    )
    show(
        [
            [*verdict_lines(result), Text(f"{result['robot']}, {result['samples']:,} samples.")],
            table_of(joints, COLUMNS, note=note),
            rollout_table(result["rollout"]) if result["rollout"] else None,
            [*findings(result["findings"]), Text(low_pass(result["cutoff_reason"]))],
            Text(f"Scored in {seconds:.1f} s."),
        ]
    )
