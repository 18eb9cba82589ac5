"""Inertia as an MJCF `<inertial>` states it: `diaginertia` in axes turned by `quat`, or
`fullinertia`.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from thetahat.model import parameters
from thetahat.model.io.mjcf import CompiledMjcf, body_of, rotation_of
from thetahat.model.io.mjcf_includes import serialise
from thetahat.model.io.write_back import ROUNDING, Stated
from thetahat.model.io.xml_reader import Element, number, symmetric, vector

# other ways than quat to turn the axes; MJCF allows one
ORIENTATIONS = ("axisangle", "xyaxes", "zaxis", "euler")


def stated_inertial(
    compiled: CompiledMjcf, i: int, inertial: Element | None, turn: np.ndarray
) -> Stated:
    """What the file states of body i, in the frame in which its `<inertial>` stands, itself turned
    by `turn` in the body.

    Where geoms count in place of the `<inertial>`, its axes are not known but theirs; they do as
    well, if they are written.
    """
    if inertial is None:
        return Stated.nothing()
    mass, com = number(inertial, "mass"), np.array(vector(inertial, "pos", 3, (0.0, 0.0, 0.0)))
    if "fullinertia" in inertial.attrib:
        return Stated(mass, com, symmetric(vector(inertial, "fullinertia", 6)), np.eye(3))
    turned = any(key in inertial.attrib for key in ("quat", *ORIENTATIONS))
    rotation = turn.T @ rotation_of(compiled.model.body_iquat[i]) if turned else np.eye(3)
    return Stated(mass, com, np.diag(vector(inertial, "diaginertia", 3, (0.0, 0.0, 0.0))), rotation)


def principal(new: Stated, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(principal moments, quaternion w x y z of their axes) of a new inertia; the quaternion is
    None where the old axes still do.

    Of the orders and directions of the axes, the one nearest to the old.
    """
    inertia = new.inertia
    slack = ROUNDING * float(np.max(np.abs(parameters.inertia_about_origin(theta))))
    if np.max(np.abs(inertia - np.diag(np.diag(inertia)))) <= slack:
        return np.diag(inertia), None
    values, vectors = np.linalg.eigh(inertia)
    order = max(
        map(list, permutations(range(3))),
        key=lambda p: float(np.sum(np.abs(vectors[range(3), p]))),
    )
    values, vectors = values[order], vectors[:, order]
    vectors = vectors * np.where(np.diag(vectors) < 0.0, -1.0, 1.0)
    if np.linalg.det(vectors) < 0.0:
        vectors[:, int(np.argmin(np.abs(np.diag(vectors))))] *= -1.0
    return values, quaternion_of(new.rotation @ vectors)


def quaternion_of(rotation: np.ndarray) -> np.ndarray:
    """The unit quaternion (w, x, y, z), w ≥ 0, of a rotation: the longest column of 4 q qᵀ, which
    is the best conditioned.
    """
    (a, b, c), (d, e, f), (g, h, i) = rotation
    outer = np.array(
        [
            [1 + a + e + i, h - f, c - g, d - b],
            [h - f, 1 + a - e - i, b + d, c + g],
            [c - g, b + d, 1 - a + e - i, f + h],
            [d - b, c + g, f + h, 1 - a - e + i],
        ]
    )
    q: np.ndarray = outer[:, int(np.argmax(np.diag(outer)))]
    q = q / np.linalg.norm(q)
    return -q if q[0] < 0.0 else q


def frame_poses(compiled: CompiledMjcf) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Rotation and translation, in its body, of the `<frame>` around an `<inertial>`, by body;
    found by compiling one without its own pose.
    """
    framed: dict[int, Element] = {}
    for i in range(compiled.model.nbody):
        body = body_of(compiled.model, compiled.source, i)
        if (
            body is not None
            and body.inertial is not None
            and body.inertial.parent is not body.element
        ):
            framed[i] = body.inertial
    if not framed or compiled.source.attached:
        return {}
    before = {i: inertial.attrib for i, inertial in framed.items()}
    for inertial in framed.values():
        inertial.attrib = {"pos": "0 0 0", "mass": "1", "diaginertia": "1 1.1 1.2"}
    root = compiled.source.lines[0]
    try:
        model = compiled.mujoco.MjModel.from_xml_string(serialise(root)[0], compiled.source.assets)
    finally:
        for i, inertial in framed.items():
            inertial.attrib = before[i]
    return {i: (rotation_of(model.body_iquat[i]), model.body_ipos[i].copy()) for i in framed}
