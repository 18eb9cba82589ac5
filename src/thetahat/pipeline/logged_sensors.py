"""The wrist sensors of a log: which links its columns name, and the robot that has them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from thetahat.data.columns import wrench_links
from thetahat.data.formats.table import label
from thetahat.data.reading import Reading, open_log_table
from thetahat.engine.sources import items
from thetahat.errors import MalformedInput, UsageError
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import PREFIX, sensor_below, with_wrench_sensors
from thetahat.pipeline.settings import IdentifySettings


def with_logged_sensors(robot: Robot, logs: object, settings: IdentifySettings) -> Robot:
    """Return the robot with the sensors whose wrenches its logs have, where they are to be
    fitted.
    """
    chosen = settings.joints
    if chosen and not any(name.startswith(PREFIX) for name in chosen):
        return robot
    file, links = logged_sensors(robot, logs, log_names(logs), settings.reading)
    if links and settings.actuation is not None:
        raise UsageError(
            f"--actuation and the columns wrench.{links[0]}.* of {file} cannot be fitted together;"
            " leave the sensor out with --joints and the joints' names"
        )
    try:
        return with_wrench_sensors(robot, links)
    except UsageError as error:
        raise MalformedInput(f"{file}: {error}") from None


def logged_sensors(
    robot: Robot, logs: object, names: list[str] | None, reading: Reading
) -> tuple[str, tuple[str, ...]]:
    """Return the first file, and the links whose wrenches it has."""
    columns = getattr(logs, "columns", None)
    if isinstance(logs, Mapping):
        return "the table", wrench_links([str(each) for each in logs], "the table")
    if names is None:
        given = () if columns is None or callable(columns) else tuple(map(str, columns))
        return "the table", wrench_links(given, "the table")
    first = next(iter(items(names)), None)
    if first is None:
        return "", ()
    table = open_log_table(first.local(), robot.joint_names, reading)
    return first.name, wrench_links(table.names, label(table.path))


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
