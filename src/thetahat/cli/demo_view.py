"""Draws what the demo found for a reader at a terminal. Takes only the plain data of the answer."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from thetahat.cli.exit_status import plain
from thetahat.cli.terminal import judged, r2, short, show, table


def draw(told: dict[str, Any]) -> None:
    """Print the story and its table to stdout."""
    show([story(told), scores(told), ending(told)])


def story(told: dict[str, Any]) -> Text:
    """What was done, in the order it was."""
    engine = "MuJoCo" if told["plant"] == "mujoco" else "the project's own engine"
    text = Text(
        f"{plain(told['robot'])}, built a little differently than its file says, moved by {engine}",
        style="bold",
    )
    return text.append(
        ", with friction, noise and delay. Its parameters were identified from one motion's log;"
        " the scores are of another motion's.",
        style="not bold",
    )


def scores(told: dict[str, Any]) -> Group:
    """R² and RMS of torques that the fit has not seen."""
    out = table(
        "joint",
        "R² of the file",
        "identified",
        "RMS of the file",
        "identified",
        "off course",
        "identified",
    )
    for joint in told["joints"]:
        rms = (short(joint["rms_nominal"]), short(joint["rms_test"]))
        course = (short(1e3 * joint["tracking_rms_nominal"]), short(1e3 * joint["tracking_rms"]))
        out.add_row(
            plain(joint["name"]), r2(joint["r2_nominal"]), judged(joint["r2_test"]), *rms, *course
        )
    out.add_row("all", r2(told["r2"]["nominal"]), judged(told["r2"]["test"]), "", "", "", "")
    note = (
        "RMS of the torque that is not explained [N·m], and of the way off course under computed"
        " torque [mrad]."
    )
    return Group(out, Text(note, style="dim"))


def ending(told: dict[str, Any]) -> Text:
    """What was written, and what to look at."""
    files = {name: plain(path) for name, path in told["files"].items()}
    text = Text(f"Done in {told['seconds']:.0f} s. Look at ").append(files["report"], style="bold")
    text.append(
        f"\nThe identified robot is {files['robot']}, its numbers are in {files['estimate']}."
    )
    return text.append(
        f"\nOn your own robot: thetahat identify {plain(told['robot'])}.urdf log.csv --out result",
        style="dim",
    )
