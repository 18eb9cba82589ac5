"""Read robots from MJCF through MuJoCo (extra `mujoco`): every number comes from the compiled
model, in double precision.

MuJoCo resolves default classes, orientations, units and inertia from geoms. It is given text that
`mjcf_sanitize` has checked and stripped, so it opens no file. Here the compiled bodies and joints
become links and joints:

- several joints on one body are a chain, with placeholder links between them that share the body's
  frame;
- q is MuJoCo's qpos (a joint's displacement is q − ref), with the quaternions of ball and free
  joints written x, y, z, w;
- a free joint's q is absolute, so where the file puts its body does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from thetahat.errors import MalformedInput, MissingExtra, UsageError, known
from thetahat.model import parameters
from thetahat.model.io.assemble import JointSpec, LinkSpec, Pose, assemble
from thetahat.model.io.mjcf_sanitize import sanitize
from thetahat.model.io.sanitized_mjcf import BodySource, SanitizedMjcf
from thetahat.model.io.xml_reader import Document, Element, label, shown, symmetric
from thetahat.model.robot import Robot
from thetahat.model.tree import Joint, JointKind, Limits, Spring
from thetahat.model.unit_checks import warn_if_implausible

MujocoModel = Any  # MuJoCo is an extra: its types are not always there
# in the order of MuJoCo's mjtJoint
KINDS = (JointKind.FREE, JointKind.BALL, JointKind.PRISMATIC, JointKind.REVOLUTE)

_FIXES = (  # part of MuJoCo's reason → what to do about it
    ("global coordinates", "save the file with local coordinates, as MuJoCo up to 2.3.3 can"),
    (
        "larger than mjMINVAL",
        "give the body an <inertial> with positive mass and inertia, or merge it into its parent",
    ),
    ("A + B >= C", 'correct the inertia, or set balanceinertia="true" in <compiler>'),
    ("required attribute missing", "add it"),
    ("invalid keyword", "use one that MuJoCo knows"),
    ("unrecognized", "correct its spelling or remove it"),
    ("repeated name", "give every one a name of its own"),
    ("axis too small", "give a direction such as 0 0 1"),
    ("unknown default", "define the class in <default> or correct its name"),
)


@dataclass(frozen=True, eq=False)
class CompiledMjcf:
    """A compiled MuJoCo model, and the way back to the document's elements."""

    mujoco: ModuleType
    model: Any
    source: SanitizedMjcf
    names: _Names
    warnings: list[str]  # of MuJoCo


def compile_mjcf(document: Document, unsaved: Mapping[Path, bytes] | None = None) -> CompiledMjcf:
    """Compile a document; `unsaved` are files it may include as if they were in its folder, by
    their resolved paths.
    """
    source = sanitize(document, unsaved)
    mujoco = load_mujoco(document)
    model, warnings = _compile(mujoco, source, document)
    if model.nbody < 2:
        raise MalformedInput(
            f"{label(document.path)}: there is no <body> in <worldbody>, so there is no robot; load"
            " the file that includes this one"
        )
    return CompiledMjcf(mujoco, model, source, _names(model), warnings)


def read_mjcf(
    document: Document,
    *,
    floating_base: bool = False,
    gravity: np.ndarray | tuple[float, ...] | None = None,
    unsaved: Mapping[Path, bytes] | None = None,
) -> Robot:
    """The robot of an MJCF document.

    Args:
        document: what `read_xml` returned for the file.
        floating_base: free the one body that hangs in the world without a joint.
        gravity: three numbers [m/s²] in place of the file's.
        unsaved: as for `compile_mjcf`.
    """
    compiled = compile_mjcf(document, unsaved)
    model, source, names = compiled.model, compiled.source, compiled.names
    links, joints = _links(model, source, names), _joints(model, source, names)
    root = names.bodies[0]
    if floating_base:
        root = _freed_root(model, names, document)
        links, joints = links[1:], [joint for joint in joints if joint.child != root]
    notes = (*_left_out_notes(source), *_compiled_notes(model, names), *compiled.warnings)
    if gravity is None:
        off = model.opt.disableflags & compiled.mujoco.mjtDisableBit.mjDSBL_GRAVITY
        gravity = np.zeros(3) if off else model.opt.gravity.copy()
        notes += ("gravity is switched off by <flag>",) if off else ()
    robot = assemble(
        source.name,
        links,
        joints,
        root=root,
        floating_base=floating_base,
        gravity=gravity,
        source=document.path,
        notes=notes,
    )
    warn_if_implausible(robot)
    return robot


# -- MuJoCo ----------------------------------------------------------------------------------------


def load_mujoco(document: Document) -> ModuleType:
    """Return MuJoCo's module; `MissingExtra` where it is not installed."""
    try:
        import mujoco
    except ImportError:
        raise MissingExtra(
            f"{label(document.path)} is MJCF, which is read through MuJoCo; install it with: pip"
            " install 'thetahat[mujoco]'"
        ) from None
    module: ModuleType = mujoco
    return module


def _compile(
    mujoco: ModuleType, source: SanitizedMjcf, document: Document
) -> tuple[Any, list[str]]:
    """The compiled model, and MuJoCo's warnings (which it would print, and write to a file in the
    working folder).
    """
    warnings: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(
        lambda text: warnings.append(f"MuJoCo says: {' '.join(str(text).split()).split('. ')[0]}")
    )
    try:
        return mujoco.MjModel.from_xml_string(source.given.text, source.given.assets), warnings
    except Exception as error:  # whatever a foreign library raises, the user gets a sentence
        _refuse(str(error), source, document)
    finally:
        mujoco.set_mju_user_warning(before)


def _refuse(message: str, source: SanitizedMjcf, document: Document) -> NoReturn:
    """MuJoCo's reason as one sentence, at the element of the user's file that MuJoCo's line number
    leads to.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no reason given"]
    reason = re.sub(r"^((XML )?Error: )+", "", lines[0]).split(". ")[0].rstrip(".")
    for key, file in source.given.files.items():
        reason = reason.replace(key, file)
    where = label(document.path)
    value = ""
    line = re.search(r"[Ll]ine(?: number=| )(\d+)", message)
    if line and not source.attached and 0 < int(line[1]) <= len(source.given.lines):
        element = source.given.lines[int(line[1]) - 1]
        where = element.place
        attribute = re.search(r"attribute:? '(\w+)'", reason)
        if attribute and attribute[1] in element.attrib:
            value = f" in {attribute[1]}={shown(element.attrib[attribute[1]])}"
    elif name := re.search(r"Element name '([^']+)'", message):
        where += f", element {name[1]!r}"
    fix = next((text for part, text in _FIXES if part in reason), "correct it")
    raise MalformedInput(f"{where}: MuJoCo refuses this{value} ({reason}); {fix}")


# -- names -----------------------------------------------------------------------------------------


class _Names:
    """A name for every body and joint: the file's, or one derived from the body and used by nothing
    else.
    """

    def __init__(self, bodies: list[str], joints: list[str], joint_bodies: list[int]) -> None:
        taken = set(bodies)
        self.bodies = [name or _unused(f"body{i}", taken) for i, name in enumerate(bodies)]
        taken = set(joints)
        self.joints = [
            name or _unused(f"{self.bodies[body]}_joint", taken)
            for name, body in zip(joints, joint_bodies, strict=True)
        ]


def _names(model: MujocoModel) -> _Names:
    return _Names(
        [model.body(i).name for i in range(model.nbody)],
        [model.joint(j).name for j in range(model.njnt)],
        model.jnt_bodyid.tolist(),
    )


def body_names(model: MujocoModel) -> list[str]:
    """Return the names of a compiled model's bodies, as the robot has them."""
    return _names(model).bodies


def _unused(name: str, taken: set[str]) -> str:
    count = 2
    out = name
    while out in taken:
        out = f"{name}{count}"
        count += 1
    taken.add(out)
    return out


# -- bodies and joints -----------------------------------------------------------------------------


def rotation_of(quaternion: np.ndarray) -> np.ndarray:
    """The matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def body_of(model: Any, source: SanitizedMjcf, i: int) -> BodySource | None:
    """Where a compiled body stands in the file; None for the world, and for what MuJoCo made up."""
    return source.elements.bodies[int(model.body_user[i, 0])] if model.nuser_body else None


def joint_of(model: Any, source: SanitizedMjcf, j: int) -> Element | None:
    """The element of a compiled joint; None for a `<freejoint>`."""
    return source.elements.joints[int(model.jnt_user[j, 0])] if model.nuser_jnt else None


def body_parameters(model: Any, source: SanitizedMjcf) -> tuple[np.ndarray, float]:
    """θ of every compiled body in its own frame, (bodies, 10), and the factor by which
    `settotalmass` has scaled what the file states.
    """
    mass, inertia = _inertias(model, source)
    total = float(np.sum(mass[1:]))
    scale = source.total_mass / total if source.total_mass and total > 0.0 else 1.0
    theta = parameters.from_mass_com_inertia(mass * scale, model.body_ipos, inertia * scale)
    theta[0] = 0.0
    return theta, scale


def _inertias(model: Any, source: SanitizedMjcf) -> tuple[np.ndarray, np.ndarray]:
    """Mass (bodies,) and inertia about the centre of mass in body axes (bodies, 3, 3), unscaled;
    the centre itself is `body_ipos`.
    """
    mass = model.body_mass.copy()
    inertia = np.empty((model.nbody, 3, 3))
    for i in range(model.nbody):
        turn, diagonal = rotation_of(model.body_iquat[i]), model.body_inertia[i]
        body = body_of(model, source, i)
        if body and body.substitute:
            mass[i], diagonal = body.substitute.mass, np.array(body.substitute.diagonal)
            if body.substitute.full is not None:
                inertia[i] = symmetric(body.substitute.full)
                continue
        inertia[i] = turn @ np.diag(diagonal) @ turn.T
    return mass, inertia


def _links(model: Any, source: SanitizedMjcf, names: _Names) -> list[LinkSpec]:
    theta, _ = body_parameters(model, source)
    links = []
    for i, name in enumerate(names.bodies):
        body = body_of(model, source, i)
        has_inertia = bool(theta[i, parameters.M]) or bool(body and body.inertial is not None)
        links.append(LinkSpec(name, theta[i], has_inertia=has_inertia))
        links.extend(
            LinkSpec(between, has_inertia=False, placeholder=True)
            for between in _between(model, names, i)
        )
    return links


def _between(model: Any, names: _Names, body: int) -> list[str]:
    """Names of the placeholder links above a body: one after each of its joints but the last."""
    first, count = model.body_jntadr[body], model.body_jntnum[body]
    return [f"{names.bodies[body]}/{names.joints[j]}" for j in range(first, first + count - 1)]


def _joints(model: Any, source: SanitizedMjcf, names: _Names) -> list[JointSpec]:
    joints = []
    for i in range(1, model.nbody):
        body, parent = names.bodies[i], names.bodies[model.body_parentid[i]]
        pose = Pose(rotation_of(model.body_quat[i]), model.body_pos[i].copy())
        first, count = model.body_jntadr[i], model.body_jntnum[i]
        weld = JointSpec(f"{body}_weld", None, parent, body, pose)
        if count == 0:
            joints.append(weld)
        children = [*_between(model, names, i), body][:count]
        for j, child in enumerate(children, start=first):
            moved = replace(weld, name=names.joints[j], child=child)
            joints.append(_joint(model, source, j, moved))
            weld = replace(weld, parent=child, pose=Pose(np.eye(3), np.zeros(3)))
    return joints


def _joint(model: Any, source: SanitizedMjcf, j: int, weld: JointSpec) -> JointSpec:
    """Compiled joint j in place of a weld."""
    kind = KINDS[model.jnt_type[j]]
    dof, at = model.jnt_dofadr[j], model.jnt_qposadr[j]
    one = kind in (JointKind.REVOLUTE, JointKind.PRISMATIC)
    free = kind is JointKind.FREE
    axis = np.array([0.0, 0.0, 1.0])
    if one:
        axis = model.jnt_axis[j] / np.linalg.norm(model.jnt_axis[j])
    return replace(
        weld,
        kind=kind,
        pose=Pose(np.eye(3), np.zeros(3)) if free else weld.pose,
        axis=axis,
        anchor=np.zeros(3) if free else model.jnt_pos[j].copy(),
        joint=Joint(
            limits=_limits(model, source, j, weld.name) if one else Limits(),
            offset=-float(model.qpos0[at]) if one else 0.0,
            damping=float(model.dof_damping[dof]),
            friction=float(model.dof_frictionloss[dof]),
            armature=float(model.dof_armature[dof]),
            spring=Spring(float(model.jnt_stiffness[j]), float(model.qpos_spring[at]))
            if one
            else Spring(),
        ),
    )


def _limits(model: Any, source: SanitizedMjcf, j: int, name: str) -> Limits:
    lower, upper = (float(x) for x in model.jnt_range[j])
    if lower > upper:  # MuJoCo takes such a range for none
        element = joint_of(model, source, j)
        where = element.place if element else f"{label(source.folder.main)}, joint {name!r}"
        raise MalformedInput(
            f"{where}: range has its lower limit {lower:g} above its upper {upper:g}; swap them"
        )
    if not model.jnt_limited[j]:
        lower, upper = -np.inf, np.inf
    effort = np.inf
    if model.jnt_actfrclimited[j]:
        low, high = (float(x) for x in model.jnt_actfrcrange[j])
        # both ways, where the joint is driven both ways
        effort = min(-low, high) if low < 0.0 < high else max(abs(low), abs(high))
    return Limits(lower, upper, effort=effort)


# -- the rest --------------------------------------------------------------------------------------


def _freed_root(model: Any, names: _Names, document: Document) -> str:
    """The body to free: the only one in the world, which must hang there without a joint."""
    where = label(document.path)
    free = [
        names.joints[j] for j in range(model.njnt) if KINDS[model.jnt_type[j]] is JointKind.FREE
    ]
    if free:
        raise UsageError(
            f"{where} already has a free joint ({free[0]!r}), so its base floats; load it without"
            " floating_base"
        )
    roots = [i for i in range(1, model.nbody) if model.body_parentid[i] == 0]
    if len(roots) > 1:
        listed = known([names.bodies[i] for i in roots])
        raise UsageError(
            f"{where} has {len(roots)} bodies in the world ({listed}), so which one floats is open;"
            " give the right one a <freejoint/>"
        )
    if model.body_jntnum[roots[0]]:
        joint = names.joints[model.body_jntadr[roots[0]]]
        raise UsageError(
            f"{where}: the root body {names.bodies[roots[0]]!r} hangs in the world by joint"
            f" {joint!r}, so it cannot float as well"
        )
    return names.bodies[roots[0]]


def _compiled_notes(model: Any, names: _Names) -> list[str]:
    """What the compiled model has and the robot does not."""
    springs = (model.jnt_stiffness != 0.0) & (model.nv > model.njnt)
    if hasattr(model, "jnt_stiffnesspoly"):
        springs = springs | np.any(model.jnt_stiffnesspoly, axis=1)
    bent = np.zeros(model.njnt, dtype=bool)
    if hasattr(model, "dof_dampingpoly"):
        bent[model.dof_jntid[np.any(model.dof_dampingpoly, axis=1)]] = True
    kinds = (
        (
            "joint springs are not modelled beside joints of several degrees of freedom, nor"
            " those that are not linear",
            names.joints,
            springs,
        ),
        ("damping that is not linear in speed is not modelled", names.joints, bent),
        ("gravity compensation is not modelled", names.bodies, model.body_gravcomp != 0.0),
        ("mocap bodies are welded to the world", names.bodies, model.body_mocapid >= 0),
    )
    return [
        f"{title}: {known([owners[i] for i in np.flatnonzero(chosen)], 6)}"
        for title, owners, chosen in kinds
        if np.any(chosen)
    ]


def _left_out_notes(source: SanitizedMjcf) -> list[str]:
    """A sentence for every kind of thing that the robot does not model."""
    titles = {
        "equality": "equality constraints are not modelled, so the joints they couple move freely",
        "tendon": "tendons are not modelled",
        "actuator": (
            "actuators (gears, gains, their armature and damping) are not modelled, so torques are"
            " the joints'"
        ),
        "deformable": "deformable bodies are not modelled",
        "composite": "composite bodies are not modelled",
        "flexcomp": "flexible bodies are not modelled",
        "plugin": "plugins are not run",
        "fluid": "forces of the surrounding fluid are not modelled",
    }
    return [
        f"{title}: {known(source.left_out[key], 6)}"
        for key, title in titles.items()
        if key in source.left_out
    ]
