"""Read robots from URDF: strict about what the dynamics depend on; geometry (link_shapes.py reads
it), materials, transmissions and plug-ins are ignored.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np

from thetahat.errors import MalformedInput, RefusedForSafety, RobotWarning, UsageError, known
from thetahat.model import parameters
from thetahat.model.io.assemble import JointSpec, LinkSpec, Pose, assemble
from thetahat.model.io.xml_reader import (
    Document,
    Element,
    label,
    number,
    required,
    shown,
    symmetric,
    vector,
)
from thetahat.model.robot import STANDARD_GRAVITY, Robot
from thetahat.model.tree import Joint, JointKind, Limits, Mimic
from thetahat.model.unit_checks import warn_if_implausible

MAX_LINKS = 3_000

KINDS: dict[str, JointKind | None] = {
    "revolute": JointKind.REVOLUTE,
    "continuous": JointKind.REVOLUTE,
    "prismatic": JointKind.PRISMATIC,
    "fixed": None,
    "planar": JointKind.PLANAR,
    "floating": JointKind.FREE,
    "spherical": JointKind.BALL,  # not in the standard, but in use
    "ball": JointKind.BALL,
}
_ONE_DOF = (JointKind.REVOLUTE, JointKind.PRISMATIC)
_ZERO = (0.0, 0.0, 0.0)
_LARGEST = 1e30  # for masses, lengths and friction: their products over a whole robot stay finite
_SHORTEST_AXIS = 1e-9  # below this an axis has no direction worth the name


def read_urdf(
    document: Document,
    *,
    floating_base: bool = False,
    gravity: np.ndarray | tuple[float, ...] | None = None,
) -> Robot:
    """The robot a URDF document describes."""
    robot = document.root
    _refuse_xacro(robot)
    elements = robot.findall("link")
    if not elements:
        raise MalformedInput(f"{robot.place}: there is no <link>; a robot needs at least one")
    if len(elements) > MAX_LINKS:
        raise RefusedForSafety(
            f"{label(document.path)}: {len(elements):,} links are more than the {MAX_LINKS:,} that"
            " are read; split the robot"
        )
    _unique(elements)
    _unique(robot.findall("joint"))
    links = [_link(element) for element in elements]
    joints = [_joint(element) for element in robot.findall("joint")]
    root = _root(document, joints)
    joints = _with_mimics(robot, joints)
    if floating_base:
        _refuse_second_base(document, root, links, joints)
    result = assemble(
        robot.attrib.get("name") or document.path.stem,
        links,
        joints,
        root=root,
        floating_base=floating_base,
        gravity=STANDARD_GRAVITY if gravity is None else gravity,
        source=document.path,
        notes=_notes(robot),
    )
    warn_if_implausible(result)
    return result


# -- links -----------------------------------------------------------------------------------------


def _link(element: Element) -> LinkSpec:
    """A link with its ten numbers in its own frame: I = R(rpy) I_file R(rpy)ᵀ about the centre of
    mass xyz.
    """
    name = element.attrib["name"]
    inertial = _only(element, "inertial")
    if inertial is None:
        return LinkSpec(name, has_inertia=False)
    rotation, com = placement(inertial)
    mass = number(_child(inertial, "mass"), "value", largest=_LARGEST)
    inertia = rotation @ tensor_of(_child(inertial, "inertia")) @ rotation.T
    return LinkSpec(name, parameters.from_mass_com_inertia(mass, com, inertia))


def tensor_of(inertia: Element) -> np.ndarray:
    """The symmetric matrix of an <inertia>."""
    keys = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
    return symmetric(number(inertia, key, largest=_LARGEST) for key in keys)


def placement(element: Element) -> Pose:
    """R = Rz(yaw) Ry(pitch) Rx(roll) and t of the element's <origin>; identity where it has
    none.
    """
    origin = _only(element, "origin")
    if origin is None:
        return Pose(np.eye(3), np.zeros(3))
    translation = np.array(vector(origin, "xyz", 3, _ZERO, largest=_LARGEST))
    roll, pitch, yaw = vector(origin, "rpy", 3, _ZERO)
    cr, sr, cp, sp, cy, sy = (
        f(angle) for angle in (roll, pitch, yaw) for f in (math.cos, math.sin)
    )
    rotation = np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )
    return Pose(rotation, translation)


# -- joints ----------------------------------------------------------------------------------------


def _joint(element: Element) -> JointSpec:
    """A joint as it stands; its mimic, if any, still names the joint the file names."""
    kind_name = required(element, "type")
    if kind_name not in KINDS:
        raise MalformedInput(
            f"{element.place}: type={shown(kind_name)} is unknown; types: {', '.join(KINDS)}"
        )
    kind = KINDS[kind_name]
    pose = placement(element)
    parent, child = (required(_child(element, end), "link") for end in ("parent", "child"))
    if parent == child:
        raise MalformedInput(
            f"{element.place}: link {shown(parent)} is its own parent; name two different links"
        )
    if kind is None:
        return JointSpec(element.attrib["name"], None, parent, child, pose)
    damping, friction = _dynamics(element)
    limits, axis = Limits(), np.array([0.0, 0.0, 1.0])
    if kind in _ONE_DOF:
        limits = _limits(element, bounded=kind_name in ("revolute", "prismatic"))
    if kind in (*_ONE_DOF, JointKind.PLANAR):
        axis = _axis(element)
    mimic = _mimic(element, kind)
    joint = Joint(limits, mimic, damping=damping, friction=friction)
    return JointSpec(element.attrib["name"], kind, parent, child, pose, axis=axis, joint=joint)


def _axis(element: Element) -> np.ndarray:
    axis = _only(element, "axis")
    if axis is None:
        return np.array([1.0, 0.0, 0.0])
    direction = np.array(vector(axis, "xyz", 3, (1.0, 0.0, 0.0)))
    largest = float(np.max(np.abs(direction)))
    if largest < _SHORTEST_AXIS:
        raise MalformedInput(
            f"{axis.place}: xyz={shown(axis.attrib['xyz'])} has no direction; give a unit vector"
            " such as 0 0 1"
        )
    direction /= largest  # so that squares neither overflow nor vanish
    direction /= np.linalg.norm(direction)
    return direction


def _limits(element: Element, *, bounded: bool) -> Limits:
    """Limits of a one-DOF joint. Position limits count where the joint type has them and the file
    states them.
    """
    limit = _only(element, "limit")
    if limit is None:
        return Limits()
    lower, upper = -math.inf, math.inf
    if "lower" in limit.attrib or "upper" in limit.attrib:
        # the standard's default for a missing one
        lower, upper = (number(limit, "lower", 0.0), number(limit, "upper", 0.0))
        if bounded and lower > upper:
            raise MalformedInput(
                f"{limit.place}: lower={lower:g} is above upper={upper:g}; swap them"
            )
        if not bounded:
            lower, upper = -math.inf, math.inf
    most = {}
    for name in ("velocity", "effort"):
        most[name] = number(limit, name, math.inf)
        if most[name] < 0.0:
            raise MalformedInput(
                f"{limit.place}: {name}={most[name]:g} is negative; give its magnitude"
            )
    return Limits(lower, upper, most["velocity"], most["effort"])


def _dynamics(element: Element) -> tuple[float, float]:
    """(damping, friction). Negative values load with a warning: identified models have them, and
    are wanted as priors.
    """
    dynamics = _only(element, "dynamics")
    if dynamics is None:
        return 0.0, 0.0
    damping = number(dynamics, "damping", 0.0, largest=_LARGEST)
    friction = number(dynamics, "friction", 0.0, largest=_LARGEST)
    for name, value in (("damping", damping), ("friction", friction)):
        if value < 0.0:
            warnings.warn(
                f"{dynamics.place}: {name}={value:g} is negative, which feeds energy in; give 0 or"
                " more",
                RobotWarning,
                stacklevel=2,
            )
    return damping, friction


def _mimic(element: Element, kind: JointKind) -> Mimic | None:
    mimic = _only(element, "mimic")
    if mimic is None:
        return None
    if kind not in _ONE_DOF:
        raise MalformedInput(
            f"{mimic.place}: a joint of type {shown(element.attrib['type'])} cannot mimic another;"
            " only joints with one coordinate can"
        )
    return Mimic(
        required(mimic, "joint"), number(mimic, "multiplier", 1.0), number(mimic, "offset", 0.0)
    )


def _with_mimics(robot: Element, joints: list[JointSpec]) -> list[JointSpec]:
    """Joints whose mimics refer to the joint that owns the coordinate: q = k₁(k₂ q″ + o₂) + o₁
    along a chain of mimics.
    """
    kinds = {joint.name: joint.kind for joint in joints}
    element = {e.attrib["name"]: e for e in robot.findall("joint")}
    stated = {spec.name: spec.joint.mimic for spec in joints if spec.joint.mimic is not None}
    resolved: dict[str, Mimic] = {}
    for joint in joints:
        chain: dict[str, Mimic] = {}
        name = joint.name
        while name in stated and name not in resolved:
            chain[name] = stated[name]
            reference = stated[name].joint
            place = f"{element[name].place}: it mimics joint {shown(reference)}"
            if reference not in kinds:
                raise MalformedInput(
                    f"{place}, which the file does not have; joints: {known(map(shown, kinds))}"
                )
            if reference in chain:
                raise MalformedInput(f"{place}, which in the end mimics it back; break the circle")
            if kinds[reference] not in _ONE_DOF:
                kind = element[reference].attrib["type"]
                raise MalformedInput(
                    f"{place} of type {kind!r}; name a revolute or prismatic joint"
                )
            name = reference
        for name, own in reversed(chain.items()):
            further = resolved.get(own.joint)
            if further is not None:
                own = Mimic(
                    further.joint,
                    own.multiplier * further.multiplier,
                    own.multiplier * further.offset + own.offset,
                )
            if not max(abs(own.multiplier), abs(own.offset)) <= _LARGEST:
                raise MalformedInput(
                    f"{element[name].place}: it moves {own.multiplier:g} times as far as joint"
                    f" {shown(own.joint)}; check the multipliers"
                )
            resolved[name] = own
    return [
        replace(spec, joint=replace(spec.joint, mimic=resolved.get(spec.name))) for spec in joints
    ]


# -- the tree --------------------------------------------------------------------------------------


def _root(document: Document, joints: list[JointSpec]) -> str:
    """The one link that is nobody's child; refuses everything that is not one tree."""
    robot = document.root
    links = [element.attrib["name"] for element in robot.findall("link")]
    declared = set(links)
    parent_joint: dict[str, str] = {}
    children: dict[str, list[str]] = {}
    for element, joint in zip(robot.findall("joint"), joints, strict=True):
        for end, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in declared:
                fix = (
                    'declare <link name="world"/>'
                    if link == "world"
                    else f"declare it or name one of: {known(map(shown, links))}"
                )
                raise MalformedInput(
                    f"{element.place}: {end} link {shown(link)} is not declared; {fix}"
                )
        if joint.child in parent_joint:
            other = parent_joint[joint.child]
            raise MalformedInput(
                f"{element.place}: link {shown(joint.child)} already hangs on joint {shown(other)};"
                " a link has one parent, so cut the loop"
            )
        parent_joint[joint.child] = joint.name
        children.setdefault(joint.parent, []).append(joint.child)
    roots = [link for link in links if link not in parent_joint]
    if len(roots) > 1:
        names = known(map(shown, roots))
        raise MalformedInput(
            f"{label(document.path)}: {len(roots)} links hang on no joint ({names}); join them so"
            " that one root is left"
        )
    reached: set[str] = set()
    stack = list(roots)
    while stack:
        link = stack.pop()
        reached.add(link)
        stack.extend(children.get(link, ()))
    rest = [link for link in links if link not in reached]
    if rest:
        raise MalformedInput(
            f"{label(document.path)}: joint {shown(parent_joint[rest[0]])} closes a loop through"
            f" link {shown(rest[0])}; cut it so that one root is left"
        )
    return roots[0]


def _refuse_second_base(
    document: Document, root: str, links: list[LinkSpec], joints: list[JointSpec]
) -> None:
    """A massless world under a floating joint cannot be freed once more: six degrees of freedom
    without inertia.
    """
    floating = next(
        (joint for joint in joints if joint.parent == root and joint.kind is JointKind.FREE), None
    )
    massless = not next(np.any(link.theta) for link in links if link.name == root)
    if floating is not None and massless and sum(joint.parent == root for joint in joints) == 1:
        raise UsageError(
            f"{label(document.path)}: joint {shown(floating.name)} already frees the robot; leave"
            " out floating_base"
        )


# -- small helpers ---------------------------------------------------------------------------------


def _refuse_xacro(robot: Element) -> None:
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


def _unique(elements: list[Element]) -> None:
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


def _only(element: Element, tag: str) -> Element | None:
    """The child with this tag, if any; two would leave open which one counts."""
    children = element.findall(tag)
    if len(children) > 1:
        first, second = children[:2]
        raise MalformedInput(
            f"{second.place}: <{tag}> is there twice (first in line {first.line}); keep one"
        )
    return children[0] if children else None


def _child(element: Element, tag: str) -> Element:
    child = _only(element, tag)
    if child is None:
        raise MalformedInput(f"{element.place}: <{tag}> is missing; add it")
    return child


def _notes(robot: Element) -> tuple[str, ...]:
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
