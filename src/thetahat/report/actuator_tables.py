"""Tables of identified actuators: drives with their intervals, and errors of their motion."""

from __future__ import annotations

from thetahat.report.section import Cell, Column, Table
from thetahat.report.text import Data

TERMS = (
    ("kp", "kp [N·m/rad]"),
    ("damping", "kd + viscous [N·m·s/rad]"),
    ("coulomb", "Coulomb [N·m]"),
    ("armature", "armature [kg·m²]"),
    ("delay", "delay [s]"),
    ("bias", "bias [rad]"),
)


def drive_table(data: Data) -> Table:
    """Return the drives, a row for each joint; ± is half a 95 % interval."""
    columns = [Column("joint")]
    for _, title in TERMS:
        columns += [Column(title), Column("±")]
    rows: list[tuple[Cell, ...]] = []
    for joint in data["joints"]:
        cells: list[Cell] = [joint["name"]]
        for name, _ in TERMS:
            std = joint["std"][name]
            cells += [joint[name], None if std is None else 1.96 * std]
        rows.append(tuple(cells))
    note = "± is half a 95 % interval; empty: not known from this log."
    return Table(tuple(columns), tuple(rows), note=note)


def error_table(data: Data) -> Table:
    """Return the RMS of q − q_sim per joint, beside the file's actuators and the command."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(joint["name"], joint["rms_test"], joint["rms_nominal"], joint["rms_command"]),
            joint["rms_train"],
        )
        for joint in data["joints"]
    ]
    rows.append(
        ("mean", *(data[f"rms_{kind}"] for kind in ("test", "nominal", "command", "train")))
    )
    return Table(
        (
            Column("open-loop error [rad]"),
            *(Column("identified", decimals=4), Column("file's actuators", decimals=4)),
            *(Column("command itself", decimals=4), Column("on fitted motion", decimals=4)),
        ),
        tuple(rows),
        note="RMS of q − q_sim, held-out runs simulated from their first rows; mean over runs.",
    )
