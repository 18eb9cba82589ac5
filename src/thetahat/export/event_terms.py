"""Ranges as text for simulators: event terms of Isaac Lab, and a function for MuJoCo.

Both draw every parameter by itself, evenly from its range: the correlations that make a drawn robot
physical and as likely as the log says are in the robot files alone, and each text says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from thetahat.identification.verdict_reason import Data

HEAD = '''"""{what} of {robot}: ranges at {percent:g} % of what a log tells ({draws} draws).

Written by thetahat randomize. Parameters are drawn one by one here, so their correlations are lost
({largest}); the robot files beside this one keep them. A link's inertia is scaled with its mass.
"""
'''
JOINT_FIELDS = {  # of a joint → (MuJoCo's field of a degree of freedom)
    "viscous": "dof_damping",
    "coulomb": "dof_frictionloss",
    "armature": "dof_armature",
}
ISAAC_JOINT = {  # → parameter of mdp.randomize_joint_parameters
    "coulomb": "friction_distribution_params",
    "armature": "armature_distribution_params",
}
ISAAC_GAINS = {  # → parameter of mdp.randomize_actuator_gains
    "kp": "stiffness_distribution_params",
    "kd": "damping_distribution_params",
}


def _rows(data: Data, names: Sequence[str]) -> list[Data]:
    return [row for row in data["parameters"] if row["name"] in names and row["low"] < row["high"]]


def _head(data: Data, what: str) -> str:
    robot = json.dumps(str(data["robot"]))[1:-1].replace('"', "'")
    off = [
        abs(value)
        for k, row in enumerate(data["correlations"])
        for value in row[:k]
        if value is not None
    ]
    largest = f"up to {max(off):.2f}" if off else "there are none"
    return HEAD.format(
        what=what,
        robot=robot,
        percent=100.0 * data["level"],
        draws=data["draws"],
        largest=largest,
    )


def _text(value: str) -> str:
    """A string as Python reads it, in double quotes."""
    return json.dumps(value, ensure_ascii=True)


def _span(row: Data) -> str:
    return f"({row['low']:.6g}, {row['high']:.6g})"


def isaaclab_events(data: Data) -> str:
    """Return Isaac Lab event terms, Python text: one term per link's mass and centre of mass, and
    per joint's friction, armature and gains.
    """
    lines = [
        _head(data, "Event terms for Isaac Lab"),
        "from isaaclab.envs import mdp",
        "from isaaclab.managers import EventTermCfg, SceneEntityCfg",
        "",
        "",
        'def thetahat_events(asset: str = "robot") -> dict[str, EventTermCfg]:',
        '    """Return the terms by name; set them as attributes of an event configuration."""',
        "    return {",
    ]
    for row in _rows(data, ["mass"]):
        lines += _term(
            f"mass of {row['of']}",
            "randomize_rigid_body_mass",
            "body_names",
            row["of"],
            {"mass_distribution_params": _span(row), "operation": '"abs"'},
        )
    links = dict.fromkeys(row["of"] for row in _rows(data, ["com_x", "com_y", "com_z"]))
    for link in links:
        rows = {
            row["name"][-1]: row
            for row in _rows(data, ["com_x", "com_y", "com_z"])
            if row["of"] == link
        }
        about = {
            axis: f"({row['low'] - row['value']:.6g}, {row['high'] - row['value']:.6g})"
            for axis, row in rows.items()
        }
        spans = ", ".join(f'"{axis}": {span}' for axis, span in about.items())
        lines += _term(
            f"centre of mass of {link}",
            "randomize_rigid_body_com",
            "body_names",
            link,
            {"com_range": f"{{{spans}}}"},
        )
    for names, function in (
        (ISAAC_JOINT, "randomize_joint_parameters"),
        (ISAAC_GAINS, "randomize_actuator_gains"),
    ):
        for row in _rows(data, list(names)):
            lines += _term(
                f"{row['name']} of {row['of']}",
                function,
                "joint_names",
                row["of"],
                {names[row["name"]]: _span(row), "operation": '"abs"'},
            )
    lost = [f"{row['name']} of {row['of']}: {_span(row)}" for row in _unused(data)]
    notes = ["", "# no term of Isaac Lab sets these:", *(f"#   {each}" for each in lost)]
    return "\n".join([*lines, "    }", *(notes if lost else []), ""])


def _unused(data: Data) -> list[Data]:
    taken = ("mass", "com_x", "com_y", "com_z", *ISAAC_JOINT, *ISAAC_GAINS)
    return [
        row
        for row in data["parameters"]
        if row["name"] not in taken
        and not row["name"].startswith("inertia_")
        and row["low"] < row["high"]
    ]


def _term(name: str, function: str, kind: str, of: str, params: dict[str, str]) -> list[str]:
    inner = "".join(f", {_text(key)}: {value}" for key, value in params.items())
    return [
        f"        {_text(name)}: EventTermCfg(",
        f"            func=mdp.{function},",
        '            mode="startup",',
        f'            params={{"asset_cfg": SceneEntityCfg(asset, {kind}=[{_text(of)}]){inner}}},',
        "        ),",
    ]


def mujoco_events(data: Data) -> str:
    """Return a Python function that randomizes a model of MuJoCo in place."""
    masses = {row["of"]: row for row in _rows(data, ["mass"])}
    lines = [_head(data, "Randomization for MuJoCo"), "MASS = {  # [kg]"]
    lines += [f"    {_text(of)}: {_span(row)}," for of, row in masses.items()]
    lines += ["}", "COM = {  # [m] beside the model's own centre, x, y, z"]
    for link in dict.fromkeys(row["of"] for row in _rows(data, ["com_x", "com_y", "com_z"])):
        rows = {r["name"]: r for r in data["parameters"] if r["of"] == link}
        spans = [rows[f"com_{axis}"] for axis in "xyz"]
        text = ", ".join(
            f"({r['low'] - r['value']:.6g}, {r['high'] - r['value']:.6g})" for r in spans
        )
        lines.append(f"    {_text(link)}: ({text}),")
    lines += ["}", "JOINT = {  # field of a degree of freedom, by joint"]
    for term, field in JOINT_FIELDS.items():
        joints = ", ".join(f"{_text(row['of'])}: {_span(row)}" for row in _rows(data, [term]))
        if joints:
            lines.append(f"    {_text(field)}: {{{joints}}},")
    lines += ["}", MUJOCO_FUNCTION]
    return "\n".join(lines)


MUJOCO_FUNCTION = '''

def randomize(model, rng, nominal):
    """Draw the parameters of a mujoco.MjModel in place.

    rng: numpy.random.Generator. nominal: the model as it was loaded, never changed.
    """
    import mujoco

    for name, (low, high) in MASS.items():
        body, mass = model.body(name).id, rng.uniform(low, high)
        model.body_inertia[body] = nominal.body_inertia[body] * mass / nominal.body_mass[body]
        model.body_mass[body] = mass
    for name, spans in COM.items():
        body = model.body(name).id
        model.body_ipos[body] = nominal.body_ipos[body] + [rng.uniform(*span) for span in spans]
    for field, joints in JOINT.items():
        for name, (low, high) in joints.items():
            getattr(model, field)[model.joint(name).dofadr[0]] = rng.uniform(low, high)
    mujoco.mj_setConst(model, mujoco.MjData(model))
'''
