"""A result as a model of MuJoCo: bodies, joints with their drives, and position actuators.

The model is written from the tree of bodies and needs no other file: it has no geometry. Joints and
bodies keep their names; links behind fixed joints are one body, as they were identified.
"""

from __future__ import annotations

import math

import numpy as np

from thetahat.dynamics.rigid_body import mass_matrix
from thetahat.errors import MalformedInput, UsageError
from thetahat.export.simulator_model import SHAPES, UNITS, JointDrive, SimulatorModel
from thetahat.model import parameters
from thetahat.model.io.xml_edit import attribute, digits, escaped
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node
from thetahat.plant.mujoco_engine import load_mujoco, quaternion

TIMESTEP = 0.001  # [s]
STIFF = 1.0  # steps in which a velocity decays, from which on Runge–Kutta steps are too long
FRICTION = f'solreffriction="{2.0 * TIMESTEP} 1"'  # dry friction as hard as steps allow
LEAST = 1e-9  # [kg, kg·m²] of a frame without mass, which MuJoCo does not take
TYPES = {JointKind.REVOLUTE: "hinge", JointKind.PRISMATIC: "slide", JointKind.BALL: "ball"}


def mjcf(model: SimulatorModel) -> str:
    """Return the model as MJCF text, loaded by MuJoCo once to see that it can be."""
    text = _text(model, delays=True)
    mujoco = load_mujoco()
    try:
        mujoco.MjModel.from_xml_string(text)
    except ValueError as error:
        if "delay" not in str(error):
            raise MalformedInput(
                f"{model.file}: MuJoCo refuses the model ({str(error)[:120]}); identify with the"
                " consistent method"
            ) from None
        text = _text(model, delays=False)  # a version before actuators had delays
        mujoco.MjModel.from_xml_string(text)
    return text


def _text(model: SimulatorModel, *, delays: bool) -> str:
    robot = model.robot
    lines = [
        f'<mujoco model="{escaped(robot.name)}">',
        "  <!-- written by thetahat export; bodies and drives alone, no geometry -->",
        *_lost(model),
        '  <compiler angle="radian" autolimits="true" balanceinertia="false"/>',
        f'  <option timestep="{TIMESTEP}" integrator="{_integrator(model)}"'
        f"{attribute('gravity', robot.gravity)}/>",
        "  <worldbody>",
    ]
    children: dict[int, list[int]] = {}
    for i, node in enumerate(robot.tree.nodes):
        children.setdefault(node.parent, []).append(i)
    for i in children.get(-1, []):
        lines += _body(robot, i, children, "    ")
    lines += ["  </worldbody>", *_couplings(robot), "  <actuator>"]
    lines += [f"    {_actuator(joint, delays=delays)}" for joint in model.joints]
    return "\n".join([*lines, "  </actuator>", "</mujoco>", ""])


def _integrator(model: SimulatorModel) -> str:
    """Return the integrator: fourth order where no drive is stiff, else the implicit one."""
    robot = model.robot
    if robot.nq != robot.nv or any(node.mimic is not None for node in robot.tree.nodes):
        return "implicitfast"
    spread = np.diag(np.linalg.pinv(mass_matrix(robot, np.zeros(robot.nv))))
    damping = _per_joint(model, "viscous") + _per_joint(model, "kd")
    rates = spread * (damping + TIMESTEP * _per_joint(model, "kp"))
    return "RK4" if float(np.max(rates, initial=0.0)) * TIMESTEP < STIFF else "implicitfast"


def _per_joint(model: SimulatorModel, term: str) -> np.ndarray:
    return np.array([joint.get(term) or 0.0 for joint in model.joints])


def _body(robot: Robot, i: int, children: dict[int, list[int]], indent: str) -> list[str]:
    """Return the lines of a node's body and all below it."""
    node = robot.tree.nodes[i]
    if node.kind is JointKind.PLANAR:
        raise UsageError(
            f"joint {node.name!r} of {robot.name!r} is planar, which MJCF does not have; model it"
            " by two slides and a hinge"
        )
    name = node.body or f"{node.name}_frame"
    place = attribute("pos", node.translation) + attribute("quat", quaternion(node.rotation))
    lines = [f'{indent}<body name="{escaped(name)}"{place}>', f"{indent}  {_joint(robot, node)}"]
    lines.append(f"{indent}  {_inertial(robot, node)}")
    for child in children.get(i, []):
        lines += _body(robot, child, children, indent + "  ")
    return [*lines, f"{indent}</body>"]


def _joint(robot: Robot, node: Node) -> str:
    if node.kind is JointKind.FREE:
        return f'<freejoint name="{escaped(node.name)}"/>'
    parts = [f'<joint name="{escaped(node.name)}" type="{TYPES[node.kind]}"']
    if node.kind is not JointKind.BALL:
        parts.append(attribute("axis", node.axis))
    if node.joint.offset:
        parts.append(attribute("ref", [-node.joint.offset]))
    limits = node.limits
    if math.isfinite(limits.lower) and math.isfinite(limits.upper):
        parts.append(attribute("range", [limits.lower, limits.upper]))
    drive = robot.drive
    if drive.actuation is None and node.mimic is None:
        at = robot.tree.v_index[node.name]
        for key, term in (
            ("armature", "armature"),
            ("damping", "viscous"),
            ("frictionloss", "coulomb"),
        ):
            value = float(drive.value(term)[at])
            if value:
                parts.append(attribute(key, [value]))
                parts.append(f" {FRICTION}" if key == "frictionloss" else "")
        springs = {shape.term: value for shape, value in drive.extra}
        stiffness = float(springs["spring"][at]) if "spring" in springs else 0.0
        if stiffness > 0.0:
            rest = -float(drive.offset[at]) / stiffness
            parts.append(attribute("stiffness", [stiffness]) + attribute("springref", [rest]))
    return "".join(parts) + "/>"


def _inertial(robot: Robot, node: Node) -> str:
    mass, com, inertia = np.array(LEAST), np.zeros(3), LEAST * np.eye(3)
    if node.body is not None:
        theta = robot.theta.reshape(-1, 10)[robot.body_names.index(node.body)]
        if theta[parameters.M] > LEAST:
            mass, com, inertia = parameters.to_mass_com_inertia(theta)
    entries = [inertia[at] for at in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    return (
        f"<inertial{attribute('pos', com)}{attribute('mass', [float(mass)])}"
        f"{attribute('fullinertia', entries)}/>"
    )


def _couplings(robot: Robot) -> list[str]:
    """Return mimic joints as equality constraints, which are springs in MuJoCo."""
    lines = []
    for node in robot.tree.nodes:
        if node.mimic is not None:
            poly = attribute("polycoef", [node.mimic.offset, node.mimic.multiplier, 0.0, 0.0, 0.0])
            lines.append(
                f'    <joint joint1="{escaped(node.name)}" joint2="{escaped(node.mimic.joint)}"'
                f"{poly}/>"
            )
    return ["  <equality>", *lines, "  </equality>"] if lines else []


def _actuator(joint: JointDrive, *, delays: bool) -> str:
    """Return the actuator of a joint: a position loop where its gain is known, else a motor."""
    name = f' name="{escaped(joint.name)}" joint="{escaped(joint.name)}"'
    limit, delay = joint.get("effort_limit"), joint.get("delay")
    kp, kd, bias = joint.get("kp"), joint.get("kd") or 0.0, joint.get("bias") or 0.0
    offset = 0.0 if kp is None else joint.get("offset") or 0.0
    more = "" if limit is None else attribute("forcerange", [-limit - offset, limit - offset])
    if delay and delays:
        samples = math.ceil(delay / TIMESTEP - 1e-9) + 1
        more += f' delay="{digits(delay)}" nsample="{samples}"'
    if kp is None:
        return f"<motor{name}{more}/>"
    if not bias and not offset:
        return f"<position{name}{attribute('kp', [kp])}{attribute('kv', [kd])}{more}/>"
    # the drive sees the encoder: kp (cmd − (q + bias)) − kd q̇, less the constant torque
    return (
        f'<general{name} gaintype="fixed" biastype="affine"{attribute("gainprm", [kp])}'
        f"{attribute('biasprm', [-kp * bias - offset, -kp, -kd])}{more}/>"
    )


def _lost(model: SimulatorModel) -> list[str]:
    """Return comments with the terms that MuJoCo does not have."""
    return [
        f"  <!-- not in this model: {term} {joint.get(term):.6g} {UNITS[term][0]} of"
        f" {escaped(joint.name).replace('--', '- -')} -->"
        for joint in model.joints
        for term in SHAPES
        if joint.get(term) and not (term == "stribeck_speed" and not joint.get("stribeck"))
    ]
