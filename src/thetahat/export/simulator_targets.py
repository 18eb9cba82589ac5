"""A result as simulators take it: `TARGETS` maps a name to the text it asks for.

docs/how-to/export.md has the mapping term by term, and what each format loses.
"""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from thetahat import __version__
from thetahat.errors import RobotWarning, UsageError
from thetahat.export.mjcf_export import mjcf
from thetahat.export.simulator_model import DRIVE, LOOP, SHAPES, UNITS, JointDrive, SimulatorModel
from thetahat.identification.verdict_reason import Fields
from thetahat.model.io.save import save
from thetahat.model.io.xml_reader import read_xml

STEP = 0.005  # [s] of physics for which Isaac Lab's and mjlab's delays are counted
SCHEMA = "thetahat/simulator/1"
NOT_HELD = ("bias", "offset", *SHAPES)  # by Isaac Lab's and mjlab's configurations


def urdf(model: SimulatorModel) -> str:
    """Return the robot's URDF with <dynamics> and <inertial>, all else byte for byte."""
    source = model.robot.source
    if source is None or read_xml(source).root.tag != "robot":
        raise UsageError(
            f"{model.file} is of a robot whose file is no URDF; use --to mjcf, or identify with its"
            " URDF"
        )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        target = Path(folder) / "robot.urdf"
        save(model.robot, target)
        return target.read_text(encoding="utf-8")


def isaaclab(model: SimulatorModel) -> str:
    """Return actuator configurations of Isaac Lab as Python text: the physics engine's own loop,
    and one with delay.
    """
    fields = {
        "effort_limit_sim": ("effort_limit",),
        "stiffness": ("kp",),
        "damping": ("kd",),
        "armature": ("armature",),
        "friction": ("coulomb",),
        "dynamic_friction": ("coulomb",),
        "viscous_friction": ("viscous",),
    }
    lines = [
        _head(model, "Isaac Lab actuators"),
        "from isaaclab.actuators import DelayedPDActuatorCfg, ImplicitActuatorCfg",
        "",
        f"PHYSICS_STEP = {STEP}  # [s] for which delays are counted; change both together",
        "",
        "IMPLICIT = ImplicitActuatorCfg(",
        *_config(model, fields),
        ")",
        "DELAYED = {",
    ]
    fields = {key.removesuffix("_sim"): terms for key, terms in fields.items()}
    for steps, joints in _by_delay(model).items():
        part = replace(model, joints=tuple(joints))
        lines += [
            f'    "delay_{steps}": DelayedPDActuatorCfg(',
            *(f"    {line}" for line in _config(part, fields)),
            f"        min_delay={steps},",
            f"        max_delay={steps},",
            "    ),",
        ]
    return "\n".join([*lines, "}", *_lost(model, ("delay", *NOT_HELD)), ""])


def mjlab(model: SimulatorModel) -> str:
    """Return actuator configurations of mjlab as Python text, one per joint."""
    if not model.has_loop:
        raise UsageError(
            f"{model.file} has no position gain kp, which mjlab's position actuators need; give a"
            " result of thetahat actuators, or use --to mjcf"
        )
    lines = [
        _head(model, "mjlab actuators"),
        "from mjlab.actuator import BuiltinPositionActuatorCfg",
        "",
        f"PHYSICS_STEP = {STEP}  # [s] for which lags are counted; change both together",
        "",
        "ACTUATORS = (",
    ]
    fields = {"stiffness": "kp", "damping": "kd", "armature": "armature"}
    fields |= {"frictionloss": "coulomb", "effort_limit": "effort_limit"}
    for joint in model.joints:
        values = {key: joint.get(term) for key, term in fields.items()}
        values = {key: value for key, value in values.items() if value is not None}
        if "stiffness" not in values:
            lines.append(f"    # of {json.dumps(joint.name)} no position gain is known")
            continue
        values.setdefault("damping", 0.0)
        steps = _steps(joint)
        inner = ", ".join(f"{key}={value!r}" for key, value in values.items())
        lag = f", delay_min_lag={steps}, delay_max_lag={steps}" if steps else ""
        name = json.dumps(joint.name)
        lines.append(f"    BuiltinPositionActuatorCfg(target_names_expr=({name},), {inner}{lag}),")
    return "\n".join([*lines, ")", *_lost(model, ("viscous", *NOT_HELD)), ""])


def bam(model: SimulatorModel) -> str:
    """Return parameters in BAM's names, by joint: m1, m2 with Stribeck friction, m3 with
    friction by load, m4 with both.
    """
    extra = {shape.term: (shape, value) for shape, value in model.robot.drive.extra}
    out: Fields = {}
    for k, joint in enumerate(model.joints):
        values: Fields = {
            "model": "m1",
            "actuator": joint.name,
            "armature": joint.get("armature"),
            "friction_base": joint.get("coulomb"),
            "friction_viscous": joint.get("viscous"),
            "q_offset": joint.get("bias"),
            "command_delay": joint.get("delay"),
            "kt": None,
            "R": None,
        }
        if "stribeck" in extra and extra["stribeck"][1][k]:
            shape, stribeck = extra["stribeck"]
            values |= {
                "model": "m2",
                "friction_stribeck": float(stribeck[k]),
                "dtheta_stribeck": float(dict(shape.settings)["speed"][k]),
                "alpha": 2.0,
            }
        if "load" in extra and extra["load"][1][k]:
            # BAM's gearbox torque |external − motor| is twice the load of slow motion
            stribeck_too = values["model"] == "m2"
            values |= {
                "model": "m4" if stribeck_too else "m3",
                "load_friction_base": 0.5 * float(extra["load"][1][k]),
            }
            if stribeck_too:
                values["load_friction_stribeck"] = 0.0
        out[joint.name] = {key: value for key, value in values.items() if value is not None}
    return json.dumps(out, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(model: SimulatorModel) -> str:
    """Return plain JSON, schema thetahat/simulator/1."""
    terms = (*DRIVE, *LOOP, *SHAPES)
    data = {
        "schema": SCHEMA,
        "robot": model.robot.name,
        "version": __version__,
        "joints": [
            {
                "name": joint.name,
                **{term: joint.get(term) for term in terms},
                "std": {term: joint.std.get(term) for term in terms},
                "assumed": sorted(joint.assumed),
            }
            for joint in model.joints
        ],
        "units": {term: unit[0] for term, unit in UNITS.items()},
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


TARGETS: Mapping[str, Callable[[SimulatorModel], str]] = {
    "mjcf": mjcf,
    "urdf": urdf,
    "isaaclab": isaaclab,
    "mjlab": mjlab,
    "bam": bam,
    "json": plain,
}


# -- parts -----------------------------------------------------------------------------------------


def _head(model: SimulatorModel, what: str) -> str:
    robot = json.dumps(model.robot.name)[1:-1].replace('"', "'")
    text = f'"""{what} of {robot}, written by thetahat export (SI units; None: not known).'
    assumed = [joint.name for joint in model.joints if "kp" in joint.assumed]
    if assumed:
        names = ", ".join(json.dumps(name)[1:-1].replace('"', "'") for name in assumed)
        text += (
            f"\n\nOf {names} the log tells only ratios to the position gain; the numbers here are"
            "\nthose with which its motion was simulated.\n"
        )
    return text + '"""\n'


def _config(model: SimulatorModel, fields: Mapping[str, tuple[str]]) -> list[str]:
    names = ", ".join(json.dumps(joint.name) for joint in model.joints)
    lines = [f"    joint_names_expr=[{names}],"]
    for key, (term,) in fields.items():
        found = {joint.name: joint.get(term) for joint in model.joints}
        inner = ", ".join(f"{json.dumps(n)}: {v!r}" for n, v in found.items() if v is not None)
        if inner:
            lines.append(f"    {key}={{{inner}}},")
        elif key in ("stiffness", "damping"):  # which have no default
            lines.append(f"    {key}=None,  # not known: the file's own")
    return lines


def _steps(joint: JointDrive) -> int:
    return math.floor((joint.get("delay") or 0.0) / STEP + 0.5)


def _by_delay(model: SimulatorModel) -> dict[int, list[JointDrive]]:
    """Group joints by their delay in steps of physics, which a group shares."""
    groups: dict[int, list[JointDrive]] = {}
    for joint in model.joints:
        groups.setdefault(_steps(joint), []).append(joint)
    return dict(sorted(groups.items()))


def _lost(model: SimulatorModel, terms: tuple[str, ...]) -> list[str]:
    """Return comments with what the format rounds or cannot hold."""
    rows = [
        f"#   {term} of {joint.name}: {joint.get(term)!r} {UNITS[term][0]}"
        for term in terms
        for joint in model.joints
        if joint.get(term) and not (term == "stribeck_speed" and not joint.get("stribeck"))
    ]
    return ["", "# not held, or rounded, by this format:", *rows] if rows else []
