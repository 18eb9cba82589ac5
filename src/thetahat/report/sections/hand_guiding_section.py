"""Section on held poses: does each joint stay where it is put?"""

from __future__ import annotations

from thetahat.report.section import Column, Section, Table, Text
from thetahat.report.text import Data

STAYS = {True: "stays", False: "creeps", None: "friction unknown"}


def hand_guiding(estimate: Data) -> list[Section]:
    """Return the section; none where the log was not one of held poses."""
    static = estimate.get("static")
    if not static:
        return []
    text = (
        f"{static['poses']} poses were fitted and {static['poses_test']} held out; they tell"
        f" {static['rank']} of the {static['structural_rank']} parameters that holding torques can"
        " tell. Inertias, which they cannot, follow the robot file."
    )
    return [Section("Hand guiding", "guiding", (guiding_table(estimate), Text(text)))]


def guiding_table(estimate: Data) -> Table:
    """Return the error of each joint's holding torque beside the friction that holds it."""
    columns = (
        Column("joint"),
        Column("error"),
        Column("friction"),
        Column("resolution"),
        Column("let go"),
        Column("unit"),
    )
    rows = tuple(
        (
            row["joint"],
            row["error"],
            row["friction"],
            row["resolution"],
            STAYS[row["holds"]],
            row["unit"],
        )
        for row in estimate["static"]["joints"]
    )
    note = (
        "Error: RMS of the holding torque at poses that were not fitted. Friction: as poses that"
        " were reached from both sides show it, or as the robot file states it. Resolution: least"
        " step of the logged torque."
    )
    return Table(columns, rows, note=note)
