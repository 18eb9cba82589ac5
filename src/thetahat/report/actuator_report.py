"""The report on actuators: verdict, drives with intervals, open-loop errors, motion over time."""

from __future__ import annotations

import numpy as np

from thetahat.identification.actuators.drive_motion import DriveMotion
from thetahat.report.actuator_tables import (
    drive_table,
    error_table,
    extra_table,
    run_table,
    sum_table,
)
from thetahat.report.decimate import Envelope
from thetahat.report.figures.positions import position_error, positions_over_time
from thetahat.report.section import Block, Code, Figure, Panel, Section, Text
from thetahat.report.sections.rollout_section import rollout_figure, rollout_table
from thetahat.report.text import Data
from thetahat.report.traces import Series
from thetahat.report.verdict_section import verdict_lines

BUCKETS = 700  # of a line over time
MODEL = (
    "A drive turns the command of a delay ago into torque, τ = kp (command − q) − kd q̇, held within"
    " its limit; friction and rotor inertia act at the joint. The error is that of q simulated in"
    " open loop: from the first row of a held-out motion the simulation sees the commands alone."
)


def actuator_sections(data: Data, motion: DriveMotion | None) -> list[Section]:
    """Return the sections of the report. data: schema thetahat/actuators/1."""
    steps = data["verdict"]["next_steps"]
    blocks: list[Block] = verdict_lines(data)
    if steps:
        blocks.append(Code("\n".join(steps), "Next steps, the most useful first:"))
    out = [Section("Verdict", "verdict", tuple(blocks)), _drives(data), _errors(data)]
    if motion is not None:
        out.append(_motion(data, motion))
    notes = [*(each["message"] for each in data["findings"]), *data["warnings"]]
    if notes:
        lines = tuple(Text(f"• {each}") for each in notes)
        out.append(Section("Findings", "findings", lines))
    return out


def _drives(data: Data) -> Section:
    blocks: list[Block] = [Text(MODEL), drive_table(data)]
    extra = extra_table(data)
    if extra is not None:
        blocks.append(extra)
    sums = sum_table(data)
    if sums is not None:
        blocks.append(sums)
    return Section("Drives", "drives", tuple(blocks))


def _errors(data: Data) -> Section:
    blocks: list[Block] = [error_table(data)]
    if data["rollout"] is not None:
        blocks += [rollout_figure(data["rollout"]), rollout_table(data["rollout"])]
    if len(data["runs"]) > 1:
        blocks.append(run_table(data))
    return Section("Open-loop error", "errors", tuple(blocks))


def _motion(data: Data, motion: DriveMotion) -> Section:
    """Return positions over time of the best, a middle and the worst held-out run."""
    errors = np.array(
        [np.mean([np.inf if each is None else each for each in run["rms"]]) for run in data["runs"]]
    )
    order = np.argsort(errors)
    picked = dict.fromkeys([int(order[len(order) // 2]), int(order[-1]), int(order[0])])
    names = ["a middle run", "the worst run", "the best run"]
    blocks: list[Block] = []
    for run, kind in zip(picked, names, strict=False):
        name = data["runs"][run]["name"]
        caption = f"{name}: {errors[run]:.2g} rad" if len(errors) > 1 else "The held-out motion"
        label = f"{caption} ({kind})" if len(errors) > 1 else caption
        blocks += _run_figures(data, motion, run, label)
    return Section("Held-out motion", "motion", tuple(blocks))


def _run_figures(data: Data, motion: DriveMotion, run: int, label: str) -> list[Block]:
    logged, simulated = motion.run_rows(run)
    t = motion.log.t[logged] - motion.log.t[logged.start]
    series = np.stack(
        [motion.log.q[logged], motion.log.command[logged], motion.simulated[simulated]]
    )
    nominal = motion.nominal[simulated]
    positions, errors = [], []
    for at, joint in enumerate(data["joints"]):
        q, command, fitted = _decimated(t, series[:, :, at])
        own, other = _decimated(
            t, np.stack([series[0, :, at] - series[2, :, at], series[0, :, at] - nominal[:, at]])
        )
        unit = "rad" if joint["unit"] == "N·m" else "m"
        positions.append(Panel(joint["name"], positions_over_time(q, command, fitted, unit=unit)))
        errors.append(Panel(joint["name"], position_error(own, other, unit=unit)))
    return [
        Figure(tuple(positions), f"{label}. Position over time.", group="joint"),
        Figure(tuple(errors), "Measured − simulated position.", group="joint"),
    ]


def _decimated(t: np.ndarray, lines: np.ndarray) -> list[Series]:
    """Return lines (lines, rows) through the extremes of a bounded number of buckets."""
    envelope = Envelope(len(lines), BUCKETS)
    marks = np.zeros((0, len(t)), dtype=bool)
    envelope.add(t, lines, np.isfinite(lines), marks=marks, broken=True)
    return [envelope.line(k) for k in range(len(lines))]
