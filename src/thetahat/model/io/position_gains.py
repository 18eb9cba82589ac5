"""Gains of the position actuators that an MJCF file states, by joint."""

from __future__ import annotations

import math
from dataclasses import dataclass

from thetahat.errors import ThetahatError
from thetahat.model.io.xml_reader import Element, read_xml
from thetahat.model.robot import Robot


@dataclass(frozen=True)
class PositionGains:
    """A `<position>` actuator: torque = clip(kp (command − q) − kv q̇, ±limit)."""

    kp: float
    kv: float
    limit: float  # [N·m or N], infinite where the file states none


def position_gains(robot: Robot) -> dict[str, PositionGains]:
    """Return the gains of the robot's file by joint; empty where it states none."""
    if robot.source is None:
        return {}
    try:
        root = read_xml(robot.source).root
    except ThetahatError:
        return {}
    if root.tag != "mujoco":
        return {}
    defaults: dict[str, dict[str, str]] = {}
    for element in root.findall("default"):
        _read_defaults(element, {}, defaults, top=True)
    out = {}
    for actuators in root.findall("actuator"):
        for element in actuators.findall("position"):
            known = defaults.get(element.attrib.get("class", "main"), {})
            attributes = {**known, **element.attrib}
            joint = attributes.get("joint")
            if joint in robot.joint_names:
                gains = _gains(attributes)
                if gains is not None:
                    out[joint] = gains
    return out


def _read_defaults(
    element: Element, inherited: dict[str, str], out: dict[str, dict[str, str]], *, top: bool
) -> None:
    """Collect the attributes of `<position>` by class, inner classes over outer ones."""
    own = dict(inherited)
    for child in element.findall("position"):
        own |= child.attrib
    out["main" if top and "class" not in element.attrib else element.attrib.get("class", "")] = own
    for child in element.findall("default"):
        _read_defaults(child, own, out, top=False)


def _gains(attributes: dict[str, str]) -> PositionGains | None:
    try:
        kp = float(attributes.get("kp", "1"))
        kv = float(attributes.get("kv", "0"))
        limits = [abs(float(each)) for each in attributes.get("forcerange", "").split()]
    except ValueError:
        return None
    if not (math.isfinite(kp) and math.isfinite(kv) and kp > 0.0):
        return None
    return PositionGains(kp, kv, min(limits) if limits and min(limits) > 0.0 else math.inf)
