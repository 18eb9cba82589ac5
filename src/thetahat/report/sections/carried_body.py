"""Section on what a wrist sensor carries: the body at the flange, with its intervals."""

from __future__ import annotations

import numpy as np

from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint, sensor_links
from thetahat.report.figures.stick_figure import robot_figure
from thetahat.report.section import Block, Cell, Column, Figure, Panel, Section, Table
from thetahat.report.text import Data

Z95 = 1.96  # standard deviations of a 95 % interval
COLUMNS = (
    Column("quantity"),
    Column("value", decimals=5),
    Column("std"),
    Column("95 % interval"),
    Column("unit"),
)


def carried_bodies(estimate: Data, robot: Robot, pose: np.ndarray) -> list[Section]:
    """Return the section on what each sensor carries; none where the robot has no sensor."""
    blocks: list[Block] = []
    panels = []
    rows = {link["name"]: link for link in estimate["links"]}
    biases = {joint["name"]: joint for joint in estimate["joints"]}
    for link in sensor_links(robot):
        blocks.append(body_table(rows[link]))
        blocks.append(_bias_table(link, biases))
        at = robot.body_index(link)
        body = np.zeros_like(robot.theta)
        body[10 * at : 10 * at + 10] = rows[link]["theta"]
        panels.append(Panel(link, robot_figure(robot, pose, body, robot.theta)))
    if not panels:
        return []
    caption = "What the sensor carries, as the ellipsoid of its inertia; rings: the file's bodies."
    blocks.append(Figure(tuple(panels), caption, group="sensor"))
    return [Section("Beyond the wrist sensor", "sensor", tuple(blocks))]


def body_table(link: Data) -> Table:
    """Return mass, centre of mass and inertia about the link's origin, with their intervals."""
    theta, std = link["theta"], link["std"]
    mass, spread = theta[parameters.M], std[parameters.M]
    rows: list[tuple[Cell, ...]] = [_row("mass", mass, spread, "kg")]
    for axis, k in zip("xyz", parameters.FIRST_MOMENT, strict=True):
        centre = theta[k] / mass if mass else None
        rows.append(_row(f"centre of mass {axis}", centre, _centre_std(theta, std, k), "m"))
    for k in parameters.INERTIA:
        rows.append(_row(parameters.NAMES[k], theta[k], std[k], "kg·m²"))
    note = (
        f"In the frame of {link['name']}, inertia about its origin. The interval of the centre of"
        " mass takes mass and first moment as independent."
    )
    return Table(
        COLUMNS, tuple(rows), caption=f"Body beyond the sensor on {link['name']}", note=note
    )


def _centre_std(theta: list[float], std: list[float | None], k: int) -> float | None:
    mass, own, spread = theta[parameters.M], std[k], std[parameters.M]
    if not mass or own is None or spread is None:
        return None
    return float(np.hypot(own, theta[k] / mass * spread) / abs(mass))


def _row(name: str, value: float | None, std: float | None, unit: str) -> tuple[Cell, ...]:
    if value is None or std is None:
        return name, value, None, "the motion does not tell it", unit
    interval = f"{value - Z95 * std:.4g} to {value + Z95 * std:.4g}".replace("-", "−")
    return name, value, std, interval, unit


def _bias_table(link: str, joints: dict[str, Data]) -> Table:
    """Return the bias of each channel, and what is left of it."""
    rows = []
    for channel in CHANNELS:
        joint = joints[sensor_joint(link, channel)]
        unit = "N" if channel.startswith("f") else "N·m"
        rows.append((channel, joint["offset"], joint["rms_test"], unit))
    columns = (
        Column("channel"),
        Column("bias", decimals=4),
        Column("RMS held out"),
        Column("unit"),
    )
    return Table(columns, tuple(rows), caption=f"Sensor on {link}")
