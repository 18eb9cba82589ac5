"""Robots with other values, and what differs between two XML files, found by a tokeniser that knows
nothing of the writer.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import thetahat as th
from thetahat.errors import RobotWarning, ThetahatError
from thetahat.model import parameters
from thetahat.model.robot import Link, Robot

TORQUE = 1e-9  # [N·m]
_TOKEN = re.compile(
    rb"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|</[^>]*>|<![^>]*>"
    rb"|<(?P<tag>[^\s/>!?]+)(?P<attributes>(?:\s+[^\s=/>]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*)\s*/?>|[^<]+",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(rb"\s+([^\s=/>]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")


@dataclass(frozen=True)
class Value:
    """A changed value: the named element around it, its tag, the attribute, and its text before and
    after.
    """

    owner: str
    tag: str
    attribute: str
    old: bytes
    new: bytes


def tokens(text: bytes) -> list[tuple[tuple[str, str, str] | None, bytes]]:
    """Everything in a file, in order: (where, bytes) of every attribute's value, (None, bytes) of
    all between them.
    """
    out: list[tuple[tuple[str, str, str] | None, bytes]] = []
    owner, at = "", 0
    for found in _TOKEN.finditer(text):
        assert found.start() == at, f"not tokenised at {at}: {text[at : at + 40]!r}"
        at = found.end()
        if found["tag"] is None:
            out.append((None, found[0]))
            continue
        tag, inside = found["tag"].decode(), found.start("attributes")
        values = [
            (a[1].decode(), a.span(2) if a[2] is not None else a.span(3))
            for a in _ATTRIBUTE.finditer(found["attributes"])
        ]
        if tag in ("link", "joint", "body"):
            owner = next(
                (
                    text[inside + start : inside + stop].decode()
                    for name, (start, stop) in values
                    if name == "name"
                ),
                f"unnamed {tag}",
            )
        last = found.start()
        for name, (start, stop) in values:
            out += [
                (None, text[last : inside + start]),
                ((owner, tag, name), text[inside + start : inside + stop]),
            ]
            last = inside + stop
        out.append((None, text[last : found.end()]))
    assert at == len(text)
    assert b"".join(part for _, part in out) == text
    return out


def changed_values(old: bytes, new: bytes) -> list[Value]:
    """The attribute values that differ between two files; fails where anything else does."""
    before, after = tokens(old), tokens(new)
    for (a, text), (b, other) in zip(before, after, strict=False):
        assert a == b, (
            f"{a} {text!r} became {b} {other!r}: elements or attributes were added or removed"
        )
    assert len(before) == len(after)
    out = []
    for (where, a), (_, b) in zip(before, after, strict=True):
        if a != b:
            assert where is not None, f"{a!r} became {b!r}, which is no attribute's value"
            out.append(Value(*where, a, b))
    return out


def changed_inertials(
    old: bytes, new: bytes
) -> tuple[list[tuple[str, list[bytes], list[bytes]]], list[bytes]]:
    """(owner, attributes before, attributes after) of each changed `<inertial>`, and the other tags
    that changed; an `<inertial>` may be new.

    Fails where any byte differs outside of changed tags and new inertials (with the blanks before
    them).
    """
    before, after = _tags(old), _tags(new)
    inertials, others = [], []
    i = blanks = 0
    for j, (owner, part) in enumerate(after):
        if i < len(before) and before[i][1] == part:
            i += 1
        elif part.startswith(b"<inertial") and not (
            i < len(before) and before[i][1].startswith(b"<inertial")
        ):
            inertials.append((owner, [], _names(part)))
        elif not part.strip() and any(
            0 <= k < len(after) and after[k][1].startswith(b"<inertial") for k in (j - 1, j + 1)
        ):
            blanks += 1
        else:
            name = re.match(rb"<[\w:]+", part)
            assert name, f"{part!r} is new"
            assert before[i][1].startswith(name[0]), f"{before[i][1]!r} became {part!r}"
            if name[0] == b"<inertial":
                inertials.append((owner, _names(before[i][1]), _names(part)))
            else:
                others.append(part)
            i += 1
    assert i == len(before), f"{before[i][1]!r} is gone"
    assert blanks <= sum(not old for _, old, _ in inertials)
    return inertials, others


def _names(tag: bytes) -> list[bytes]:
    return [found[1] for found in _ATTRIBUTE.finditer(tag)]


def _tags(text: bytes) -> list[tuple[str, bytes]]:
    """(named body or joint around it, bytes) of every tag, comment and stretch of text."""
    owner, out = "", []
    for found in _TOKEN.finditer(text):
        if found["tag"] in (b"body", b"joint"):
            name = re.search(rb"\sname\s*=\s*[\"']([^\"']*)", found[0])
            owner = name[1].decode() if name and found["tag"] == b"body" else owner
        out.append((owner, found[0]))
    return out


# -- a small arm -----------------------------------------------------------------------------------

URDF = """<robot name="arm">
  <link name="base"/>
  <!-- the <upper> arm, mass="9" -->
  <link name="upper">
    <inertial>
      <origin xyz="0.1  0 -0.02" rpy="0.3 -0.2 0.5"/>
      <mass value="2.50"/>
      <inertia ixx="0.02" ixy="0" ixz="0.001" iyy="0.030" iyz="0" izz="4e-2"/>
    </inertial>
    <visual><geometry><mesh filename="package://arm/upper.stl"/></geometry></visual>
  </link>
  <link name="lower">
    <inertial>
      <mass value="1"/>
      <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/>
    </inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/>
    <child link="upper"/>
    <axis xyz="0 1 0"/>
    <limit lower="-2" upper="2" effort="10" velocity="3"/>
    <dynamics damping="0.10" friction="0.2"/>
  </joint>
  <joint name="elbow" type="continuous">
    <origin xyz="0.3 0 0" rpy="0 0.1 0"/>
    <parent link="upper"/>
    <child link="lower"/>
  </joint>
</robot>
"""


def load(text: str | bytes = URDF, name: str = "arm.urdf", **options: object) -> Robot:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return th.load(name, **options)


def with_body(robot: Robot, name: str, theta: np.ndarray) -> Robot:
    new, at = robot.theta.copy(), 10 * robot.body_index(name)
    new[at : at + 10] = theta
    return robot.with_parameters(new)


def body(robot: Robot, name: str) -> np.ndarray:
    at = 10 * robot.body_index(name)
    return robot.theta[at : at + 10]


def heavier(robot: Robot, name: str, factor: float = 2.0) -> Robot:
    """Another mass alone, at the same place with the same inertia about it."""
    mass, com, inertia = parameters.to_mass_com_inertia(body(robot, name))
    return with_body(robot, name, parameters.from_mass_com_inertia(factor * mass, com, inertia))


# -- robots with other values ----------------------------------------------------------------------


def loaded(path: Path, **options: object) -> Robot | None:
    """The robot; None where it is refused or does not move."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        try:
            robot = th.load(path, **options)
        except ThetahatError:
            return None
    return robot if robot.nv and len(robot.theta) else None


def single_links(robot: Robot) -> list[Link]:
    """The links that alone make up a physical body."""
    out = []
    for body in range(len(robot.body_names)):
        heavy = [link for link in robot.links if link.body == body and np.any(link.theta)]
        if (
            len(heavy) == 1
            and heavy[0].theta[parameters.M] > 0.0
            and parameters.check(heavy[0].theta)
        ):
            out.append(heavy[0])
    return out


def with_link(robot: Robot, link: Link, theta: np.ndarray) -> Robot:
    """The robot with other ten numbers of a link that is a body alone."""
    new = robot.theta.copy()
    new[10 * link.body : 10 * link.body + 10] = parameters.transform(
        theta, link.rotation, link.translation
    )
    return robot.with_parameters(new)


def stretched(theta: np.ndarray, rng: np.random.Generator, amount: float = 0.05) -> np.ndarray:
    """Another body near this one, physical if it is: all its matter stretched, moved by
    centimetres, and made denser.
    """
    T = np.eye(4) + amount * np.triu(rng.normal(size=(4, 4)))
    T[:3, 3] *= 0.1
    return parameters.from_pseudo_inertia(T @ parameters.to_pseudo_inertia(theta) @ T.T)


def varied(robot: Robot, seed: int = 0) -> Robot:
    """All bodies and all drive terms other than they were; free joints have no drive."""
    rng = np.random.default_rng(seed)
    theta = [stretched(body, rng) if np.any(body) else body for body in robot.theta.reshape(-1, 10)]
    per_joint = [rng.uniform(0.05, 1.0, 4) * (node.kind.nv < 6) for node in robot.tree.independent]
    values = np.repeat(
        np.array(per_joint), [node.kind.nv for node in robot.tree.independent], axis=0
    )
    terms = dict(zip(("viscous", "coulomb", "armature", "offset"), values.T, strict=True))
    return replace(robot, theta=np.concatenate(theta), drive=robot.drive.with_values(**terms))


def states(robot: Robot, count: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return th.random_configuration(robot, rng, count), *rng.uniform(-2.0, 2.0, (2, count, robot.nv))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


def pinocchio_agrees(path: str, robot: Robot, **options: object) -> None:
    """Pinocchio reads the same inverse dynamics from the file."""
    pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    from oracles import pinocchio_bridge

    state = states(robot)
    expected = pinocchio_bridge.from_urdf(Path(path), robot, **options).inverse_dynamics(*state)
    np.testing.assert_allclose(
        th.inverse_dynamics(robot, *state, rigid=True), expected, rtol=0, atol=TORQUE
    )
