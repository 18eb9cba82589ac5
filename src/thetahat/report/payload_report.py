"""The report on payloads: verdict, each payload as a body at its link, gains, torques explained."""

from __future__ import annotations

import numpy as np

from thetahat.identification.payload.payload_place import payload_place
from thetahat.identification.payload.payload_result import PARTS
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind
from thetahat.report.figures.stick_figure import robot_figure
from thetahat.report.section import Block, Cell, Code, Column, Figure, Panel, Section, Table, Text
from thetahat.report.text import Data
from thetahat.report.verdict_section import verdict_lines

UNITS = ("kg", *["m"] * 3, *["kg·m²"] * 6)
BENT = 0.6  # [rad]
Z95 = 1.96  # standard deviations of a 95 % interval


def payload_sections(data: Data, robot: Robot) -> list[Section]:
    """Return the sections of the report. data: schema thetahat/payload/1."""
    steps = data["verdict"]["next_steps"]
    blocks: list[Block] = verdict_lines(data)
    if steps:
        blocks.append(Code("\n".join(steps), "Next steps, the most useful first:"))
    out = [Section("Verdict", "verdict", tuple(blocks)), _payloads(data, robot)]
    if data["gains"] is not None:
        text = "Torque of a joint is its gain times what its drive reports; `--gains` applies them."
        out.append(Section("Drive gains", "gains", (gain_table(data), Text(text))))
    out.append(Section("Torques", "torques", (residual_table(data),)))
    if data["findings"]:
        lines = tuple(Text(f"• {each['message']}") for each in data["findings"])
        out.append(Section("Findings", "findings", lines))
    return out


def _payloads(data: Data, robot: Robot) -> Section:
    """Return a table per payload, and the robot that holds it."""
    model = lock(robot, data["locked"])
    blocks: list[Block] = []
    panels = []
    for each in data["payloads"]:
        blocks.append(payload_table(each, caption=each["name"]))
        place = payload_place(model, each["link"], each["frame"])
        body = np.zeros_like(model.theta)
        body[place.span] = place.to_body @ np.array(each["theta"], dtype=float)
        drawing = robot_figure(model, _bent(model), body, model.theta)
        panels.append(Panel(each["name"], drawing))
    caption = "The payload as the ellipsoid of its inertia at its link; rings: the robot's bodies."
    blocks.append(Figure(tuple(panels), caption, group="payload"))
    return Section("Payload", "payload", tuple(blocks))


def _bent(robot: Robot) -> np.ndarray:
    """Return a pose in which an arm is not stretched, so that its end can be seen."""
    q = np.array(robot.neutral, dtype=float)
    for node in robot.tree.independent:
        if node.kind is JointKind.REVOLUTE:
            at = robot.tree.q_index[node.name]
            q[at] = np.clip(BENT, node.limits.lower, node.limits.upper)
    return q


def payload_table(each: Data, *, caption: str = "") -> Table:
    """Return the ten numbers of a payload with their intervals."""
    values = (each["mass"], *each["com"], *each["inertia_com"])
    spreads = (each["std"], *each["com_std"], *each["inertia_std"])
    rows: list[tuple[Cell, ...]] = []
    for part, value, spread, unit in zip(PARTS, values, spreads, UNITS, strict=True):
        told = "given" if part == "mass" and each["mass_known"] else None
        if value is None:
            rows.append((part, None, None, "the motion does not tell it", unit))
        elif spread is None:
            rows.append((part, value, None, told, unit))
        else:
            low, high = value - Z95 * spread, value + Z95 * spread
            interval = f"{low:.4g} to {high:.4g}".replace("-", "−")
            rows.append((part, value, spread, interval, unit))
    columns = (
        Column("quantity"),
        Column("value"),
        Column("std"),
        Column("95 % interval"),
        Column("unit"),
    )
    note = f"In the frame of {each['frame']}; inertia about the centre of mass."
    return Table(columns, tuple(rows), caption=caption, note=note)


def gain_table(data: Data) -> Table:
    """Return the gain of every joint."""
    rows = tuple((each["joint"], each["gain"], each["std"]) for each in data["gains"])
    note = "Empty: the known payload does not tell it."
    return Table((Column("joint"), Column("gain", decimals=4), Column("std")), rows, note=note)


def residual_table(data: Data) -> Table:
    """Return what is left of the loaded runs' torques without the payload, and with it."""
    rows = tuple(
        (each["name"], each["rms_without"], each["rms_with"], each["rows"], each["unit"])
        for each in data["joints"]
    )
    columns = (
        Column("joint"),
        Column("RMS without payload"),
        Column("RMS with payload"),
        Column("rows"),
        Column("unit"),
    )
    note = "RMS of the loaded runs' torques that the robot alone leaves, and the robot with it."
    return Table(columns, rows, note=note)
