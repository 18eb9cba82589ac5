"""Elements of a URDF: which children count, which are unknown, what is only noted.

As in urdfdom [URDF] the first of several children counts and unknown elements are ignored, here
with a warning that names the line and what was taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from difflib import get_close_matches

from thetahat.errors import MalformedInput, RobotWarning, known
from thetahat.model.io.xml_reader import Element, required, shown

# of the standard, and of simulators where they are common and say nothing about rigid bodies
_KNOWN = {
    "robot": (
        *("link", "joint", "material", "transmission", "gazebo", "sensor", "ros2_control"),
        *("mujoco", "frame", "loop_joint"),
    ),
    "link": ("inertial", "visual", "collision", "contact"),
    "joint": (
        *("origin", "parent", "child", "axis", "limit", "dynamics", "mimic", "calibration"),
        "safety_controller",
    ),
    "inertial": ("origin", "mass", "inertia"),
}
ALIKE = 0.8  # similarity of two names that may be one, misspelt


def refuse_xacro(robot: Element) -> None:
    """Definitions left over by xacro do no harm; what xacro would have replaced by links or joints
    does.
    """
    for element in robot.children:
        if element.tag.startswith("xacro:") and element.tag not in (
            "xacro:property",
            "xacro:macro",
            "xacro:arg",
        ):
            raise MalformedInput(
                f"{element.place}: this is a xacro file, not a URDF yet; run xacro first and load"
                " what it writes"
            )
        if element.tag in ("link", "joint") and "${" in element.attrib.get("name", ""):
            raise MalformedInput(
                f"{element.place}: the name is a xacro expression; run xacro first and load what it"
                " writes"
            )


def require_unique_names(elements: list[Element]) -> None:
    """Every element has a name, and no two the same."""
    first: dict[str, Element] = {}
    for element in elements:
        name = required(element, "name")
        if name in first:
            raise MalformedInput(
                f"{element.place}: the name is taken by line {first[name].line}; rename one of"
                " the two"
            )
        first[name] = element


def only_child(element: Element, tag: str) -> Element | None:
    """The child with this tag, if any; of several the first, as in urdfdom, with a warning."""
    children = element.findall(tag)
    for other in children[1:]:
        warnings.warn(
            f"{other.place}: <{tag}> is there more than once; the first, in line"
            f" {children[0].line}, is taken and this one ignored",
            RobotWarning,
            stacklevel=2,
        )
    return children[0] if children else None


def warn_of_unknown(robot: Element) -> None:
    """Name elements and attributes that no rule here knows; they are ignored, as in urdfdom."""
    unknown: dict[tuple[str, str], list[Element]] = {}
    for parent in _with_rules(robot):
        for child in parent.children:
            if child.tag not in _KNOWN[parent.tag] and ":" not in child.tag:
                unknown.setdefault((parent.tag, child.tag), []).append(child)
    for (parent_tag, tag), elements in unknown.items():
        more = f", and {len(elements) - 1} more like it" if len(elements) > 1 else ""
        meant = get_close_matches(tag.lower(), _KNOWN[parent_tag], n=1, cutoff=ALIKE)
        hint = f"; <{meant[0]}> may be meant" if meant else ""
        warnings.warn(
            f"{elements[0].place}: <{tag}> in <{parent_tag}> is unknown and was"
            f" ignored{more}{hint}",
            RobotWarning,
            stacklevel=3,
        )
    odd = [
        (element, name)
        for joint in robot.findall("joint")
        for element in joint.findall("dynamics")
        for name in element.attrib
        if name not in ("damping", "friction")
    ]
    if odd:
        element, name = odd[0]
        names = known(dict.fromkeys(shown(name) for _, name in odd))
        warnings.warn(
            f"{element.place}: {name}={shown(element.attrib[name])} is not of URDF and was ignored;"
            f" only damping and friction are read (ignored in all: {names})",
            RobotWarning,
            stacklevel=3,
        )


def _with_rules(robot: Element) -> Iterator[Element]:
    """The elements whose children are known: the robot, links, joints and inertials."""
    yield robot
    for element in robot.children:
        if element.tag in ("link", "joint"):
            yield element
            yield from element.findall("inertial") if element.tag == "link" else ()


def required_child(element: Element, tag: str) -> Element:
    """The child with this tag, which must be there."""
    child = only_child(element, tag)
    if child is None:
        raise MalformedInput(f"{element.place}: <{tag}> is missing; add it")
    return child


def notes_of(robot: Element) -> tuple[str, ...]:
    """What was seen and left alone."""
    notes = []
    meshes = [
        element
        for link in robot.findall("link")
        for element in link.iter()
        if element.tag == "mesh"
    ]
    if meshes:
        notes.append(
            f"{len(meshes)} meshes are named and not opened, since dynamics need none; identify"
            " reads those in the robot's folder"
        )
    for mesh in meshes:
        name = mesh.attrib.get("filename", "")
        if ".." in name.replace("\\", "/").split("/") or name.startswith("file:"):
            notes.append(
                f"line {mesh.line}: mesh {shown(name)} points out of the robot's folder; it is not"
                " opened"
            )
    for loop in robot.findall("loop_joint"):
        notes.append(f"line {loop.line}: {loop.path} closes a loop; it is left open")
    return tuple(notes)
