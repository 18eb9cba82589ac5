"""The files of a robot's C code: header, source, self-test, CMake file, and a C++ example."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from thetahat import __version__
from thetahat.dynamics import configuration, rigid_body
from thetahat.errors import UnphysicalRobot, UsageError
from thetahat.export.codegen import c_templates
from thetahat.export.codegen.c_functions import Function, RobotFunctions
from thetahat.export.codegen.c_statements import Statements
from thetahat.export.codegen.symbolic_drive import check_drive
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

MOST_NODES = 200  # joints: above, the code of the matrices would not fit a controller
PROBES = 4  # configurations at which the mass matrix must have an inverse
KEYWORDS = {"auto", "double", "float", "int", "long", "main", "real", "register", "static", "void"}


@dataclass(frozen=True, eq=False)
class RobotCode:
    """C code of one robot."""

    robot: Robot
    single: bool = False  # float in place of double
    base: bool = True  # whether base columns are wanted, too
    name: str = ""  # prefix of every name; empty: the robot's
    left_out: list[str] = field(default_factory=list, init=False)  # functions and why

    def __post_init__(self) -> None:
        check_drive(self.robot)
        count = len(self.robot.tree.nodes)
        if not 0 < count <= MOST_NODES:
            raise UsageError(
                f"robot {self.robot.name!r} has {count} movable joints; C code is generated for 1"
                f" to {MOST_NODES}: lock the others"
            )

    @cached_property
    def prefix(self) -> str:
        """The robot's name as C names begin: lower-case letters, digits and _."""
        name = re.sub(r"[^a-z0-9]+", "_", (self.name or self.robot.name).lower()).strip("_")
        name = name or "robot"
        return f"robot_{name}" if name[0].isdigit() or name in KEYWORDS else name

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Everything that can be generated for this robot."""
        robot, build = self.robot, RobotFunctions(self.robot, single=self.single)
        out = [build.inverse_dynamics(), build.gravity(), build.mass_matrix(), build.regressor()]
        if self.base:
            out.append(build.base_regressor(robot.base_parameters.strong.independent))
        why = no_forward_dynamics(robot)
        if why is None:
            out.append(build.forward_dynamics())
        else:
            self.left_out.append(f"forward_dynamics: {why}")
        if all(node.kind.nv == 1 for node in robot.tree.independent):
            out.append(build.computed_torque())
        else:
            self.left_out.append(
                "computed_torque: joints with several degrees of freedom have no error q_d - q"
            )
        return tuple(out)

    @cached_property
    def parameters(self) -> np.ndarray:
        """θ, then the drive's values term by term."""
        drive = self.robot.drive
        return np.concatenate([self.robot.theta, *(drive.value(term) for term in drive.terms)])

    @cached_property
    def robot_hash(self) -> str:
        """SHA-256 of what the code was generated from, values of the parameters included."""
        return hashlib.sha256(self.structure_hash.encode() + self.parameters.tobytes()).hexdigest()

    @cached_property
    def structure_hash(self) -> str:
        """SHA-256 of all but the parameters' values: geometry, gravity, drive terms."""
        robot, drive = self.robot, self.robot.drive
        words = {
            "joints": robot.velocity_names,
            "bodies": robot.body_names,
            "terms": [
                (t, drive.term(t).settings, bool(np.any(drive.value(t)))) for t in drive.terms
            ],
            "identified": (drive.identified, drive.column_motors, drive.rotors),
            "dry": None if drive.dry is None else drive.dry.key,
            "forward_dynamics": no_forward_dynamics(robot) is None,
        }
        digest = hashlib.sha256(json.dumps(words).encode())
        tables = [*robot.tree.arrays, robot.gravity]
        if drive.actuation is not None:
            tables.append(drive.actuation.matrix_at(None))
        for table in tables:
            digest.update(np.ascontiguousarray(table).tobytes())
        return digest.hexdigest()

    # -- text -------------------------------------------------------------------------------------

    def filled(self, text: str) -> str:
        """Return a template with the robot's prefix in it."""
        return text.replace("@name@", self.prefix).replace("@NAME@", self.prefix.upper())

    def header(self) -> str:
        """Return the header."""
        sizes = {
            "NQ": self.robot.nq,
            "NV": self.robot.nv,
            "BODIES": len(self.robot.tree.bodies),
            "COLUMNS": len(self.robot.theta),
            "PARAMETERS": len(self.parameters),
            "LONGEST_NAME": 1 + max(len(name.encode()) for name in self.robot.velocity_names),
        }
        if self.base:
            sizes["BASE"] = len(self.robot.base_parameters.strong)
        defines = "\n".join(f"#define @NAME@_{name} {value}" for name, value in sizes.items())
        described = [
            f"/* {_plain(f.about)} */\n{f.signature(self.prefix)};\n" for f in self.functions
        ]
        zeros = [
            f"/* writes zeros, once, before the first {name} into this memory */\n"
            f"void @name@_{name}_init(@name@_real *{output});\n"
            for name, output in self._matrices
        ]
        text = c_templates.HEADER
        for key, value in (
            ("@about@", self._about()),
            ("@hash@", self.robot_hash),
            ("@real@", "float" if self.single else "double"),
            ("@sizes@", defines),
            ("@functions@", "\n".join([*zeros, *described])),
        ):
            text = text.replace(key, value)
        return self.filled(text)

    @property
    def _matrices(self) -> list[tuple[str, str]]:
        names = {"mass_matrix", "regressor", "base_regressor"}
        return [(f.name, f.output) for f in self.functions if f.name in names]

    def _about(self) -> str:
        """Return the header's comment: joints, units, parameters."""
        robot = self.robot
        lines = [f"Dynamics of {robot.name}, generated by thetahat {__version__}.", ""]
        lines += ["q, dq, ddq and tau in this order, SI units and radians:", ""]
        for node in robot.tree.independent:
            units = _UNITS[node.kind]
            lines.append(
                f"  q[{robot.tree.q_index[node.name]}], dq[{robot.tree.v_index[node.name]}]"
                f"  {node.name}  ({node.kind.name.lower()}; {units})"
            )
        lines += ["", "Parameters p, (PARAMETERS): ten numbers per body about its frame's origin,"]
        lines += [f"{', '.join(parameters.NAMES)}, in the order", ""]
        lines += [f"  p[{10 * k}]  {body}" for k, body in enumerate(robot.body_names)]
        lines += ["", "then the drive's terms, a number per motor:", ""]
        first, motors = len(robot.theta), len(robot.drive.viscous)
        for k, term in enumerate(robot.drive.terms):
            unit = robot.drive.term(term).units[0]
            lines.append(f"  p[{first + k * motors}]  {term}  [{unit}]")
        lines += [
            "",
            f"Gravity {tuple(float(g) for g in robot.gravity)} m/s^2 and the geometry are part of"
            " the code.",
            "A term that was zero for every motor is left out of it. Outputs must not overlap",
            "inputs. No function allocates, locks or keeps anything: any may run in many threads.",
        ]
        if self.base:
            lines += ["", "Base parameters, the columns of base_regressor:", ""]
            lines += [f"  {k}  {name}" for k, name in enumerate(robot.base_parameters.strong.names)]
        lines += ["", *(f"Not generated: {why}." for why in self.left_out)]
        return "\n".join(f" * {_plain(line)}".rstrip() for line in lines)

    def source(self) -> str:
        """Return the source."""
        build = RobotFunctions(self.robot, single=self.single)
        constants = Statements(build.graph, single=self.single)
        names = ",\n".join(f'    "{_escaped(name)}"' for name in self.robot.velocity_names)
        values = ",\n".join(
            "    " + ", ".join(constants.literal(v) for v in self.parameters[k : k + 10])
            for k in range(0, len(self.parameters), 10)
        )
        parts = [
            f"const char @name@_joint_names[@NAME@_NV][@NAME@_LONGEST_NAME] = {{\n{names}\n}};\n",
            f"const @name@_real @name@_parameters[@NAME@_PARAMETERS] = {{\n{values}\n}};\n",
        ]
        parts.append(build.rigid)
        if any(f.name == "forward_dynamics" for f in self.functions):
            parts.append(build.solver)
        sizes = {"mass_matrix": "NV", "regressor": "COLUMNS", "base_regressor": "BASE"}
        parts += [
            f"void @name@_{name}_init(@name@_real *{output})\n{{\n    memset({output}, 0,"
            f" sizeof(@name@_real) * @NAME@_NV * @NAME@_{sizes[name]});\n}}\n"
            for name, output in self._matrices
        ]
        parts += [function.definition(self.prefix) for function in self.functions]
        return self.filled(c_templates.SOURCE.replace("@parts@", "\n".join(parts)))


def no_forward_dynamics(robot: Robot) -> str | None:
    """Return why a robot has no forward dynamics; None: it has."""
    if robot.drive.needs_load:
        return "friction depends on the load, which depends on the acceleration"
    q = configuration.random_configuration(robot, np.random.default_rng(0), PROBES)
    still = np.zeros((PROBES, robot.nv))
    try:
        rigid_body.forward_dynamics(robot, q, still, still)
    except UnphysicalRobot as error:
        return str(error)
    return None


_UNITS = {
    JointKind.REVOLUTE: "rad, N·m",
    JointKind.PRISMATIC: "m, N",
    JointKind.PLANAR: "q = x, y [m], angle [rad]; velocity in the body's axes",
    JointKind.BALL: "q = quaternion x, y, z, w; velocity = body rates [rad/s]",
    JointKind.FREE: "q = x, y, z [m], quaternion x, y, z, w; velocity = body twist, angular first",
}
_ASCII = str.maketrans({"·": "*", "²": "^2", "−": "-", "θ": "theta", "×": "x", "³": "^3"})


def _plain(text: str) -> str:
    """Text for a C comment: ASCII, and nothing that ends it."""
    ascii_only = text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
    return ascii_only.replace("*/", "* /").replace("/*", "/ *")


def _escaped(text: str) -> str:
    """Text for a C string."""
    return "".join(
        c
        if c.isascii() and c.isprintable() and c not in '"\\?'
        else "".join(f"\\{b:03o}" for b in c.encode())
        for c in text
    )
