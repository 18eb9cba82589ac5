"""Write inertial and drive values into a copy of a URDF, all else byte for byte."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thetahat.model.io.urdf import placement, tensor_of
from thetahat.model.io.write_back import Stated, restated
from thetahat.model.io.xml_edit import XmlEdit, attribute
from thetahat.model.io.xml_reader import Document, Element, number

# what a joint can state → the attribute of its <dynamics>
ATTRIBUTES = {"damping": "damping", "friction": "friction"}
_TENSOR = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2), "izz": (2, 2)}


def write_urdf(
    document: Document,
    links: Mapping[str, np.ndarray],
    joints: Mapping[str, Mapping[str, float]],
    *,
    reach: Mapping[str, float],
) -> bytes:
    """The file's bytes with these links' ten numbers (each in its own frame) and these joints'
    values of `ATTRIBUTES`.

    reach: how far each link's numbers were moved between frames [m].
    """
    edit = XmlEdit(document)
    for element in document.root.findall("link"):
        name = element.attrib["name"]
        if name in links:
            _write_link(edit, element, links[name], reach[name])
    for element in document.root.findall("joint"):
        values = {
            ATTRIBUTES[key]: value
            for key, value in joints.get(element.attrib["name"], {}).items()
            if key in ATTRIBUTES
        }
        if values:
            _write_dynamics(edit, element, values)
    return edit.result()


def _write_link(edit: XmlEdit, link: Element, theta: np.ndarray, reach: float) -> None:
    inertial = link.find("inertial")
    old = Stated.nothing() if inertial is None else _stated(inertial)
    new = restated(theta, old, reach=reach, place=link.place)
    tensor = {key: float(new.inertia[at]) for key, at in _TENSOR.items()}
    if inertial is None:
        lines = (
            (0, "<inertial>"),
            (1, _origin(new.com)),
            (1, _element("mass", {"value": new.mass})),
            (1, _element("inertia", tensor)),
        )
        edit.insert(link, (*lines, (0, "</inertial>")))
        return
    origin, mass, inertia = inertial.find("origin"), *_mass_and_inertia(inertial)
    if np.any(new.com != old.com):  # else an origin that leaves out its zeros would be given them
        if origin is None:
            edit.insert(inertial, [(0, _origin(new.com))])
        else:
            edit.set_numbers(origin, "xyz", new.com)
    edit.set_numbers(mass, "value", [new.mass])
    for key, value in tensor.items():
        edit.set_numbers(inertia, key, [value])


def _stated(inertial: Element) -> Stated:
    rotation, com = placement(inertial)
    mass, inertia = _mass_and_inertia(inertial)
    return Stated(number(mass, "value"), com, tensor_of(inertia), rotation)


def _mass_and_inertia(inertial: Element) -> tuple[Element, Element]:
    """The two elements that the reader asks for."""
    mass, inertia = inertial.find("mass"), inertial.find("inertia")
    assert mass is not None and inertia is not None  # noqa: PT018
    return mass, inertia


def _write_dynamics(edit: XmlEdit, joint: Element, values: dict[str, float]) -> None:
    dynamics = joint.find("dynamics")
    if dynamics is None:
        edit.insert(joint, [(0, _element("dynamics", values))], last=True)
        return
    for key, value in values.items():
        edit.set_numbers(dynamics, key, [value])


def _origin(com: np.ndarray) -> str:
    return f"<origin{attribute('xyz', com)}/>"


def _element(tag: str, values: Mapping[str, float]) -> str:
    return f"<{tag}{''.join(attribute(key, [value]) for key, value in values.items())}/>"
