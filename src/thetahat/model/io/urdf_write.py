"""A URDF with other inertial and drive values, and all else byte for byte."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thetahat.model.io.urdf import placement
from thetahat.model.io.write_back import Stated, restated
from thetahat.model.io.xml_edit import Splice, attribute
from thetahat.model.io.xml_reader import Document, Element, number

ATTRIBUTES = {
    "damping": "damping",
    "friction": "friction",
}  # what a joint can state → the attribute of its <dynamics>
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
    splice = Splice(document)
    for element in document.root.findall("link"):
        name = element.attrib["name"]
        if name in links:
            _write_link(splice, element, links[name], reach[name])
    for element in document.root.findall("joint"):
        values = {
            ATTRIBUTES[key]: value
            for key, value in joints.get(element.attrib["name"], {}).items()
            if key in ATTRIBUTES
        }
        if values:
            _write_dynamics(splice, element, values)
    return splice.result()


def _write_link(splice: Splice, link: Element, theta: np.ndarray, reach: float) -> None:
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
        splice.insert(link, (*lines, (0, "</inertial>")))
        return
    origin, mass, inertia = (inertial.find(tag) for tag in ("origin", "mass", "inertia"))
    assert mass is not None  # the reader asks for both
    assert inertia is not None
    if np.any(new.com != old.com):  # else an origin that leaves out its zeros would be given them
        if origin is None:
            splice.insert(inertial, [(0, _origin(new.com))])
        else:
            splice.set_numbers(origin, "xyz", new.com)
    splice.set_numbers(mass, "value", [new.mass])
    for key, value in tensor.items():
        splice.set_numbers(inertia, key, [value])


def _stated(inertial: Element) -> Stated:
    rotation, com = placement(inertial)
    mass, inertia = inertial.find("mass"), inertial.find("inertia")
    assert mass is not None
    assert inertia is not None
    tensor = np.empty((3, 3))
    for key, (r, c) in _TENSOR.items():
        tensor[r, c] = tensor[c, r] = number(inertia, key)
    return Stated(number(mass, "value"), com, tensor, rotation)


def _write_dynamics(splice: Splice, joint: Element, values: dict[str, float]) -> None:
    dynamics = joint.find("dynamics")
    if dynamics is None:
        splice.insert(joint, [(0, _element("dynamics", values))], last=True)
        return
    for key, value in values.items():
        splice.set_numbers(dynamics, key, [value])


def _origin(com: np.ndarray) -> str:
    return f"<origin{attribute('xyz', com)}/>"


def _element(tag: str, values: Mapping[str, float]) -> str:
    return f"<{tag}{''.join(attribute(key, [value]) for key, value in values.items())}/>"
