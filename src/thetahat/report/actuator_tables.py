"""Tables of identified actuators: drives with their intervals, and errors of their motion."""

from __future__ import annotations

from thetahat.report.section import Cell, Column, Table
from thetahat.report.text import Data, short, with_spread

Z95 = 1.96  # standard deviations of a 95 % interval
TERMS = (
    ("kp", "kp [N·m/rad]"),
    ("damping", "kd + viscous [N·m·s/rad]"),
    ("coulomb", "Coulomb [N·m]"),
    ("armature", "armature [kg·m²]"),
    ("delay", "delay [s]"),
    ("bias", "bias [rad]"),
)
EXTRA = (  # name, title, unit
    ("offset", "constant torque", "N·m"),
    ("stribeck", "Stribeck friction", "N·m"),
    ("stribeck_speed", "Stribeck speed", "rad/s"),
    ("load", "friction per load", "–"),
    ("quadratic", "quadratic friction", "N·m·s²/rad²"),
    ("backlash", "backlash", "rad"),
    ("deadband", "dead zone of the loop", "rad"),
    ("limit", "torque limit", "N·m"),
    ("back_emf", "torque limit lost with speed", "N·m·s/rad"),
)


def drive_table(data: Data) -> Table:
    """Return the drives, a row for each joint; ± is half a 95 % interval."""
    columns = [Column("joint"), *(Column(title, numeric=True) for _, title in TERMS)]
    rows: list[tuple[Cell, ...]] = [
        (joint["name"], *(_with_interval(joint, name) for name, _ in TERMS))
        for joint in data["joints"]
    ]
    note = "± is half a 95 % interval; empty: not known from this log."
    return Table(tuple(columns), tuple(rows), note=note)


def _with_interval(joint: Data, name: str) -> str | None:
    value, std = joint[name], joint["std"][name]
    if value is None or std is not None:
        return with_spread(value, None if std is None else Z95 * std)
    return f"{short(value)} (given)" if name in joint["given"] else short(value)


def error_table(data: Data) -> Table:
    """Return the RMS of q − q_sim per joint, beside the file's actuators and the command."""
    titles = {"test": "identified", "nominal": "file's actuators", "command": "command itself"}
    if "rms_train" in data:
        titles["train"] = "on fitted motion"
    rows: list[tuple[Cell, ...]] = [
        (joint["name"], *(joint[f"rms_{kind}"] for kind in titles)) for joint in data["joints"]
    ]
    rows.append(("mean", *(data[f"rms_{kind}"] for kind in titles)))
    return Table(
        (
            Column("open-loop error [rad]"),
            *(Column(title, decimals=4) for title in titles.values()),
        ),
        tuple(rows),
        note="RMS of q − q_sim, held-out runs simulated from their first rows; mean over runs.",
    )


def extra_table(data: Data) -> Table | None:
    """Return constant torques, and the terms that only some joints have."""
    rows: list[tuple[Cell, ...]] = []
    for joint in data["joints"]:
        for name, title, unit in EXTRA:
            std = joint["std"][name]
            if joint[name] is not None and std is not None:
                rows.append((joint["name"], title, joint[name], Z95 * std, unit))
    if not rows:
        return None
    columns = (*map(Column, ("joint", "term", "value", "±")), Column("unit"))
    note = "Other terms than a constant are there where they explain more motion than chance would."
    return Table(columns, tuple(rows), note=note)


def sum_table(data: Data) -> Table | None:
    """Return rotor and link inertia by joint where links were free: their sum, and the parts."""
    if data["freed"] is None:
        return None
    rows: list[tuple[Cell, ...]] = [
        (each["joint"], each["value"], Z95 * each["std"], each["armature"], each["inertia"])
        for each in data["freed"]["sums"]
    ]
    titles = ("armature + link [kg·m²]", "±", "armature", "link")
    note = "Rotor inertia and the link's about the joint; empty: no motion tells them apart."
    return Table((Column("joint"), *map(Column, titles)), tuple(rows), note=note)


def run_table(data: Data) -> Table:
    """Return the error of every held-out run and joint."""
    columns = [Column("run")]
    columns += [Column(joint["name"], decimals=4) for joint in data["joints"]]
    rows: list[tuple[Cell, ...]] = [(run["name"], *run["rms"]) for run in data["runs"]]
    return Table(tuple(columns), tuple(rows), caption="Every held-out run", folded=True)
