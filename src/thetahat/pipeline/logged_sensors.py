"""The force sensors and contacts of a log: which links its columns name, and the robot that has
them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from thetahat.data.columns import wrench_links
from thetahat.data.formats.table import label
from thetahat.data.ground_columns import contact_links
from thetahat.data.log import Log
from thetahat.data.reading import Reading, open_log_table
from thetahat.data.samples import Samples
from thetahat.engine.sources import items
from thetahat.errors import MalformedInput, UsageError
from thetahat.model.floating_base import floating_joint, with_ground
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import PREFIX, sensor_below, with_wrench_sensors
from thetahat.pipeline.settings import IdentifySettings


def with_logged_sensors(robot: Robot, logs: object, settings: IdentifySettings) -> Robot:
    """Return the robot with the sensors whose wrenches its logs have, where they are to be fitted;
    with a floating base, on the ground whose wrenches and contacts they have.
    """
    floating = floating_joint(robot) is not None
    chosen = settings.joints
    if chosen and not floating and not any(name.startswith(PREFIX) for name in chosen):
        return robot
    file, columns = logged_columns(robot, logs, log_names(logs), settings.reading)
    links = wrench_links(columns, file)
    if links and settings.actuation is not None and not floating:
        raise UsageError(
            f"--actuation and the columns wrench.{links[0]}.* of {file} cannot be fitted together;"
            " leave the sensor out with --joints and the joints' names"
        )
    try:
        if not floating:
            return with_wrench_sensors(robot, links)
        return _on_ground(robot, logs, links, contact_links(columns), settings)
    except UsageError as error:
        raise MalformedInput(f"{file}: {error}") from None


def _on_ground(
    robot: Robot,
    logs: object,
    links: tuple[str, ...],
    touching: tuple[str, ...],
    settings: IdentifySettings,
) -> Robot:
    if isinstance(logs, Log | Samples):
        return robot  # they were made with what acts on it
    if settings.contacts == "none":
        return with_ground(robot, links, ())
    if links or touching:
        return with_ground(robot, links, touching, settings.contacts)
    if not settings.floating_base:
        return robot
    raise UsageError(
        "the base floats, and no column says what holds it up; log measured wrenches"
        " wrench.<link>.fx … tz, or contact.<link> (1 where a link touches the ground), or pass"
        " --contacts none if nothing touches the robot"
    )


def logged_sensors(
    robot: Robot, logs: object, names: list[str] | None, reading: Reading
) -> tuple[str, tuple[str, ...]]:
    """Return the first file, and the links whose wrenches it has."""
    file, columns = logged_columns(robot, logs, names, reading)
    return file, wrench_links(columns, file)


def logged_columns(
    robot: Robot, logs: object, names: list[str] | None, reading: Reading
) -> tuple[str, tuple[str, ...]]:
    """Return the first file, and the names of its columns."""
    columns = getattr(logs, "columns", None)
    if isinstance(logs, Mapping):
        return "the table", tuple(map(str, logs))
    if names is None:
        return "the table", () if columns is None or callable(columns) else tuple(map(str, columns))
    first = next(iter(items(names)), None)
    if first is None:
        return "", ()
    table = open_log_table(first.local(), robot.joint_names, reading)
    return label(table.path), table.names


def with_common_sensors(
    robot: Robot, logs: Sequence[object], link: str, settings: IdentifySettings
) -> tuple[Robot, IdentifySettings]:
    """Return the robot with the sensor that feels what a link carries, where all of these logs have
    one, and settings by which its six channels alone are fitted: they know nothing of drives.
    """
    if settings.joints or settings.actuation is not None:
        return robot, settings
    reading, common = settings.reading, None
    for each in logs:
        names = log_names(each)
        links = set(logged_sensors(robot, each, names, reading)[1])
        common = links if common is None else common & links
    for sensor in sorted(common or ()):
        measured = with_wrench_sensors(robot, [sensor])
        if sensor_below(measured, link) == sensor:
            return measured, replace(settings, joints=(f"wrench.{sensor}",))
    return robot, settings


def log_names(logs: object) -> list[str] | None:
    """Return paths and URLs as text; None where something else was given."""
    if isinstance(logs, str | os.PathLike):
        return [os.fspath(logs)]
    if not isinstance(logs, list | tuple) or not logs:
        return None
    names = [os.fspath(each) for each in logs if isinstance(each, str | os.PathLike)]
    return names if len(names) == len(logs) else None
