"""Elements of MJCF: which of them kinematics and inertia need, and what is checked in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from thetahat.errors import MalformedInput, RefusedForSafety
from thetahat.model.io.sanitized_mjcf import Inertial
from thetahat.model.io.xml_reader import Element, number, shown, symmetric, vector

# geoms that give inertia, and frames, with every copy that <replicate> and <attach> make
MAX_COPIES = 5_000
SMALL = 1e-12  # kg, kg·m²; MuJoCo's own bound is 1e-15
LARGEST = 1e30  # for any number: products over a whole robot stay finite
# relative, on MuJoCo's A + B ≥ C and on definiteness: taking such a tensor ourselves changes
# nothing
SLACK = 1e-9


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


JOINTS = _words("joint freejoint")
DEFORMABLE = _words("composite flexcomp")
WEIGHTLESS = _words("site camera light plugin") | DEFORMABLE
NOT_MODELLED = _words("equality tendon actuator deformable")
SECTIONS_LEFT_OUT = NOT_MODELLED | _words(
    "size statistic visual custom extension contact sensor keyframe"
)
ASSETS_LEFT_OUT = _words("texture material hfield skin")
DEFAULTS_LEFT_OUT = ASSETS_LEFT_OUT | _words(
    "site camera light pair equality tendon general motor position velocity intvelocity orientation"
    " pid damper cylinder muscle adhesion dcmotor"
)
COMPILER_LEFT_OUT = _words(
    "meshdir texturedir assetdir strippath discardvisual fusestatic usethread settotalmass"
) | _words("passthrough saveinertial savecanonical savecompiled")
# without contacts MuJoCo builds no convex hull
GEOM_LEFT_OUT = _words("material user contype conaffinity")
NUMERIC = _words(
    "pos quat axisangle xyaxes zaxis euler axis anchor mass diaginertia fullinertia size fromto"
    " density ref damping armature frictionloss stiffness springref springdamper gravity gravcomp"
    " offset count scale vertex boundmass boundinertia inertiagrouprange settotalmass"
)
MAY_BE_INFINITE = _words("range actuatorfrcrange")


def body_containers(
    body: Element, childclass: str | None, copies: int
) -> Iterator[tuple[Element, str | None, int]]:
    """Yield the body and the frames and replicates in it, whose content is the body's, with the
    class and the copies in force.
    """
    stack = [(body, childclass, copies)]
    while stack:
        container, inherited, times = stack.pop()
        yield container, inherited, times
        for child in reversed(container.children):
            if child.tag not in ("frame", "replicate"):
                continue
            more = max(1.0, number(child, "count")) if child.tag == "replicate" else 1.0
            if times * more > MAX_COPIES:
                raise RefusedForSafety(
                    f"{child.place}: count={shown(child.attrib['count'])} makes {times * more:,.0f}"
                    " copies; lower it"
                )
            stack.append((child, child.attrib.get("childclass", inherited), times * int(more)))


def class_defaults(root: Element, tag: str) -> dict[str, dict[str, str]]:
    """Return the attributes of a geom or mesh by default class, each with what it inherits."""
    out: dict[str, dict[str, str]] = {"main": {}}
    stack = [(section, "main", True) for section in reversed(root.findall("default"))]
    while stack:
        element, parent, top = stack.pop()
        name = element.attrib.get("class") or ("main" if top else "")
        # whatever the top class is called, it applies without a class
        attributes = out.setdefault(name, out["main"] if top else dict(out[parent]))
        for stated in element.findall(tag):
            attributes.update(stated.attrib)
        stack.extend((child, name, False) for child in reversed(element.findall("default")))
    return out


def strip_defaults(section: Element) -> None:
    """Leave in a section of default classes what kinematics and inertia need."""
    for element in section.iter():
        if element.tag == "default":
            element.children = [
                child for child in element.children if child.tag not in DEFAULTS_LEFT_OUT
            ]
        elif element.tag == "geom":
            element.attrib = {k: v for k, v in element.attrib.items() if k not in GEOM_LEFT_OUT}
            element.children = []
        else:
            element.attrib.pop("user", None)


def strip_option(section: Element) -> None:
    """Leave gravity, and whether it is switched off: all that inverse dynamics needs to know."""
    section.attrib = {k: v for k, v in section.attrib.items() if k == "gravity"}
    section.children = [child for child in section.children if child.tag == "flag"]
    for flag in section.children:
        flag.attrib = {k: v for k, v in flag.attrib.items() if k == "gravity"}


def check_numbers(element: Element) -> None:
    """Refuse what MuJoCo lets through: nan, inf and hexadecimal numbers."""
    for name, value in element.attrib.items():
        if name in NUMERIC:
            vector(element, name, len(value.split()), largest=LARGEST)
        elif name in MAY_BE_INFINITE and "nan" in value.lower():
            raise MalformedInput(
                f"{element.place}: {name}={shown(value)} is not a range; give two numbers"
            )


def refused_inertial(element: Element) -> Inertial | None:
    """Return the numbers of an `<inertial>` that MuJoCo would refuse (too small, not definite, A +
    B < C); None where it accepts them.
    """
    if "pos" not in element.attrib or (
        "fullinertia" in element.attrib and "diaginertia" in element.attrib
    ):
        return None  # MuJoCo says best what is wrong
    mass = number(element, "mass")
    if "fullinertia" in element.attrib:
        full = vector(element, "fullinertia", 6)
        moments = np.linalg.eigvalsh(symmetric(full))
        out = Inertial(mass, full=full)
    else:
        diagonal = vector(element, "diaginertia", 3, (0.0, 0.0, 0.0))
        moments = np.sort(diagonal)
        out = Inertial(mass, diagonal)
    size = float(np.max(np.abs(moments)))
    fine = (
        mass > SMALL
        and moments[0] > max(SMALL, SLACK * size)
        and moments[0] + moments[1] - moments[2] > SLACK * size
    )
    return None if fine else out


def joint_dofs(joint: Element) -> int:
    """Return how many degrees of freedom a joint has."""
    return (
        6
        if joint.tag == "freejoint"
        else {"ball": 3, "free": 6}.get(joint.attrib.get("type", ""), 1)
    )


def ancestors(element: Element) -> Iterator[Element]:
    """Yield the elements around an element, the innermost first."""
    parent = element.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def describe(element: Element) -> str:
    """Return a few words for a note: the element's kind, and its name or what it binds."""
    keys = (
        ("name",)
        if element.attrib.get("name")
        else ("joint", "joint1", "joint2", "body1", "body2", "tendon", "tendon1", "tendon2")
    )
    names = " – ".join(repr(element.attrib[key]) for key in keys if key in element.attrib)
    return f"{element.tag} {names}".strip()
