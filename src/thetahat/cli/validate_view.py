"""Draws what `validate` found for a reader at a terminal. Takes only the plain data of the
answer.
"""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from thetahat.cli.exit_status import plain
from thetahat.cli.terminal import findings, judged, low_pass, r2, short, show, table


def draw(told: dict[str, Any], *, seconds: float) -> None:
    """Print the scores to stdout."""
    notes = Text(
        "\n".join([*findings(told["findings"]), low_pass(told["cutoff_reason"])]), style="dim"
    )
    show([verdict(told), scores(told), notes, Text(f"Scored in {seconds:.1f} s.")])


def verdict(told: dict[str, Any]) -> Text:
    """One sentence: how well the torques are predicted."""
    scored = [joint for joint in told["joints"] if joint["r2_test"] is not None]
    text = Text(
        f"{plain(told['robot'])}: R² {r2(told['r2']['test'])} on {told['samples']:,} samples",
        style="bold",
    )
    if told["r2"]["nominal"] is not None:
        text.append(f" (beside it: {r2(told['r2']['nominal'])})", style="not bold")
    if scored:
        worst = min(scored, key=lambda joint: joint["r2_test"])
        text.append(f", least on {plain(worst['name'])}: {r2(worst['r2_test'])}", style="not bold")
    return text.append(".")


def scores(told: dict[str, Any]) -> Group:
    """R² and RMS per joint, and those of the robot beside it."""
    beside = told["r2"]["nominal"] is not None
    out = table(
        "joint",
        "R²",
        "moving",
        "raw",
        "RMS",
        *(["R² beside", "RMS beside"] if beside else []),
        "rows",
    )
    for joint in told["joints"]:
        if not joint["rows_test"]:
            continue
        other = [r2(joint["r2_nominal"]), short(joint["rms_nominal"])] if beside else []
        row = [
            judged(joint["r2_test"]),
            r2(joint["r2_test_moving"]),
            r2(joint["r2_test_raw"]),
            short(joint["rms_test"]),
            *other,
        ]
        out.add_row(plain(joint["name"]), *row, f"{joint['rows_test']:,}")
    note = (
        f"R² = 1 − e'e/u'u of torques behind a low-pass of {told['score_cutoff']:.4g} Hz, raw ones"
        " as logged; RMS of what is left [N·m or N]."
    )
    return Group(out, Text(note, style="dim"))
