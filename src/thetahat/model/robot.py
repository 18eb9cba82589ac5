"""The robot model: tree, inertial parameters, drive and gravity, frozen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from thetahat.errors import UnphysicalRobot, UsageError, known
from thetahat.model import parameters
from thetahat.model.actuation import Actuation, ActuationFunction
from thetahat.model.drive import TERMS, Drive
from thetahat.model.tree import JointKind, Node, Tree

if TYPE_CHECKING:
    from thetahat.export.codegen.compiled_robot import CompiledRobot
    from thetahat.identification.identifiability.base_parameters import BaseParameters

STANDARD_GRAVITY = (0.0, 0.0, -9.81)  # [m/s²], the value URDF tools assume


@dataclass(frozen=True, eq=False)
class Link:
    """A link of the file: its body, its pose in the body's frame, and its own ten parameters."""

    name: str
    body: int  # position in body_names, −1 where it is welded to the world
    rotation: np.ndarray  # (3, 3) of the link frame in the body frame
    translation: np.ndarray  # (3,) [m]
    theta: np.ndarray  # (10,) in the link's own frame, as the file states them
    has_inertia: bool = True  # whether the file states an inertia for it
    parent: str | None = None  # link that its joint, fixed or not, hangs on; None: the root


class KernelValues(NamedTuple):
    """θ, gravity and rotor inertia per degree of freedom, as the kernels take them."""

    theta: np.ndarray  # (10·bodies,)
    gravity: np.ndarray  # (3,) [m/s²]
    armature: np.ndarray  # (nv,) [kg·m² or kg]


class HasParameters(Protocol):
    """A result with a parameter vector, such as an `Estimate`."""

    @property
    def x(self) -> np.ndarray:
        """θ, then the identified drive terms."""


@dataclass(frozen=True, eq=False)
class Robot:
    """A robot model; load one with `thetahat.load`."""

    name: str
    tree: Tree
    theta: np.ndarray  # (10·bodies,) in the paper's order
    drive: Drive
    # (3,) [m/s²], world frame
    gravity: np.ndarray = field(default_factory=lambda: np.array(STANDARD_GRAVITY))
    links: tuple[Link, ...] = ()
    source: Path | None = None
    notes: tuple[str, ...] = ()  # what the reader saw and left alone

    def __post_init__(self) -> None:
        theta = np.array(self.theta, dtype=float)
        if theta.shape != (10 * len(self.tree.bodies),):
            raise UsageError(
                f"theta has shape {theta.shape}; robot {self.name!r} has {len(self.tree.bodies)}"
                f" bodies, so ({10 * len(self.tree.bodies)},)"
            )
        gravity = np.array(self.gravity, dtype=float)
        if gravity.shape != (3,) or not np.all(np.isfinite(gravity)):
            raise UsageError(
                f"gravity is {self.gravity!r}; give three finite numbers [m/s²], for example (0, 0,"
                " -9.81)"
            )
        for name, value in (("theta", theta), ("gravity", gravity)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    @cached_property
    def kernel_values(self) -> KernelValues:
        """Writeable copies for the kernels: Numba takes longer over read-only arrays.

        The armature is zero where rotors couple joints: they add no diagonal, and forward dynamics
        inverts the mass matrix.
        """
        armature = np.zeros(self.nv)
        if not self.drive.couples_joints:
            armature += np.diag(self.drive.joint_armature())
        return KernelValues(self.theta.copy(), self.gravity.copy(), armature)

    # -- names and sizes ---------------------------------------------------------------------------

    @cached_property
    def joint_names(self) -> tuple[str, ...]:
        """The movable joints, in the order of dq (mimic joints have no coordinate of their own)."""
        return tuple(node.name for node in self.tree.independent)

    @cached_property
    def body_names(self) -> tuple[str, ...]:
        """The bodies, in the order of theta."""
        return tuple(node.body for node in self.tree.nodes if node.body is not None)

    @cached_property
    def velocity_names(self) -> tuple[str, ...]:
        """A name per degree of freedom: the joint's, with a suffix where it has several."""
        return tuple(
            f"{node.name}.{suffix}" if suffix else node.name
            for node in self.tree.independent
            for suffix in node.kind.directions
        )

    @property
    def nq(self) -> int:
        """Numbers in q."""
        return self.tree.nq

    @property
    def nv(self) -> int:
        """Numbers in dq."""
        return self.tree.nv

    def body_index(self, name: str) -> int:
        """Return the position of a body in theta, by the name of the body or of a link welded into
        it.
        """
        for i, body in enumerate(self.body_names):
            if body == name:
                return i
        for link in self.links:
            if link.name == name and link.body >= 0:
                return link.body
        raise UsageError(
            f"body {name!r} is not in robot {self.name!r}; bodies: {known(self.body_names)}"
        )

    @cached_property
    def neutral(self) -> np.ndarray:
        """Configuration with every one-DOF joint at zero and identity orientations, (nq,)."""
        q = np.zeros(self.nq)
        for node in self.tree.independent:
            if node.kind in (JointKind.BALL, JointKind.FREE):
                q[self.tree.q_index[node.name] + node.kind.nq - 1] = 1.0
        q.setflags(write=False)
        return q

    # -- variants ----------------------------------------------------------------------------------

    def with_parameters(self, parameters: np.ndarray | HasParameters) -> Robot:
        """Return the robot with other parameters: θ (10·bodies,), or x = [θ; identified drive
        terms], or a result that has either as `.x` or `.theta`.
        """
        values = np.asarray(
            getattr(parameters, "x", getattr(parameters, "theta", parameters)), dtype=float
        )
        split, motors = len(self.theta), list(self.drive.column_motors)
        if not self.drive.column_count or values.shape != (split + self.drive.column_count,):
            return replace(self, theta=values)
        drive = {}
        for term, part in zip(
            self.drive.identified, values[split:].reshape(-1, len(motors)), strict=True
        ):
            drive[term] = self.drive.value(term).copy()
            drive[term][motors] = part
        return replace(self, theta=values[:split], drive=self.drive.with_values(**drive))

    def with_gravity(self, gravity: ArrayLike) -> Robot:
        """Return the robot with another gravity vector in its world frame [m/s²]."""
        return replace(self, gravity=np.asarray(gravity, dtype=float))

    def with_drive(self, **terms: bool) -> Robot:
        """Return the robot with these drive terms (viscous, coulomb, offset, armature) to be
        identified or not.

        One column per term and motor. Without an actuation map every degree of freedom is a motor
        but those of a free joint: nothing drives a base.
        """
        drive = self.drive.with_terms(**terms)
        if drive.actuation is None and any(
            node.kind is JointKind.FREE for node in self.tree.independent
        ):
            drive = replace(
                drive,
                motors=tuple(
                    k for k, node in enumerate(self._node_of_dof) if node.kind is not JointKind.FREE
                ),
            )
        return replace(self, drive=drive)

    def with_rotors(self, motors: Iterable[int] | None) -> Robot:
        """Return the robot with the rotor inertia of these motors to be identified; None: all."""
        return replace(self, drive=self.drive.with_rotors(motors))

    def with_actuation(
        self,
        B: np.ndarray | ActuationFunction,
        *,
        names: Iterable[str] | None = None,
        gains: Iterable[float | None] | None = None,
    ) -> Robot:
        """Return the robot driven through u_joint = B·u_motor: friction, offset and rotors then
        belong to the motors.

        B: (nv, motors), or a function of q, (…, nq) → (…, nv, motors). names: of the motors; a
            function needs them to tell their number.
        gains: [N·m/A] of the motors, None where unknown. Drive values stay with their joint where a
            motor drives that joint alone.
        """
        if not callable(B):
            B = np.atleast_2d(np.asarray(B, dtype=float))
            names = self._motor_names(B) if names is None else names
        elif names is None:
            names = self.velocity_names
        one_dof = [node.name for node in self.tree.independent if node.kind.nq == 1]
        actuation = Actuation(
            B,
            self.nv,
            tuple(names),
            gains=None if gains is None else tuple(gains),
            one_dof=(
                np.array([self.tree.q_index[name] for name in one_dof], dtype=int),
                np.array([self.tree.v_index[name] for name in one_dof], dtype=int),
            ),
        )
        return replace(self, drive=self._moved_to_motors(actuation))

    def _motor_names(self, B: np.ndarray) -> tuple[str, ...]:
        """The degrees of freedom's names where there are as many motors, else a joint's for the
        motor that drives it alone, or motor1, motor2, …
        """
        if B.shape == (self.nv, self.nv):
            return self.velocity_names
        names: list[str] = []
        for k, column in enumerate(B.T):
            joints = np.flatnonzero(column)
            alone = len(joints) == 1 and joints[0] < self.nv
            name = self.velocity_names[joints[0]] if alone else ""
            names.append(name if name and name not in names else f"motor{k + 1}")
        return tuple(names)

    def _moved_to_motors(self, actuation: Actuation) -> Drive:
        """The drive with its joint-side values seen from motors that drive one joint alone: viscous
        and armature by 1/N², the others by 1/N.
        """
        values = {term: np.zeros(actuation.motors) for term in TERMS}
        B = actuation.constant_matrix
        stated = self.drive
        if stated.actuation is not None:
            if not stated.is_zero:
                raise UsageError(
                    f"robot {self.name!r} has motors with friction already; use"
                    " robot.without_drive().with_actuation(...) to replace them"
                )
            stated = Drive.none(self.nv)
        for joint in np.flatnonzero(np.any([stated.value(term) for term in TERMS], axis=0)):
            alone = None
            if B is not None:
                drives = np.flatnonzero(B[joint])
                alone = next((k for k in drives if np.count_nonzero(B[:, k]) == 1), None)
            if B is None or alone is None:
                raise UsageError(
                    f"joint {self.velocity_names[joint]!r} states friction or armature, but no"
                    " motor drives it alone, so the values have no place; use"
                    " robot.without_drive().with_actuation(...)"
                )
            ratio = B[joint, alone]
            powers = {"viscous": ratio**2, "coulomb": abs(ratio), "offset": ratio}
            for term in TERMS:
                power = powers.get(term, ratio**2)  # armature
                values[term][alone] = stated.value(term)[joint] / power
        return replace(
            Drive.none(actuation.motors).with_values(**values),
            extra=tuple((shape, np.zeros(actuation.motors)) for shape, _ in self.drive.extra),
            identified=self.drive.identified,
            actuation=actuation,
        )

    @cached_property
    def _node_of_dof(self) -> tuple[Node, ...]:
        return tuple(node for node in self.tree.independent for _ in range(node.kind.nv))

    def without_drive(self) -> Robot:
        """Return the robot without friction, offset and rotor inertia."""
        return replace(self, drive=Drive.none(self.nv))

    # -- compiled ----------------------------------------------------------------------------------

    def compiled(self) -> CompiledRobot:
        """Return the robot's dynamics in C for one sample per call, built with the system's
        compiler and kept for the next time; without a compiler, a warning and Numba's.
        """
        # A later stage, as `base_parameters` below.
        from thetahat.export.codegen.compiled_robot import compile_robot

        return compile_robot(self)

    # -- what can be identified --------------------------------------------------------------------

    @cached_property
    def base_parameters(self) -> BaseParameters:
        """Base parameters of the robot and its identified drive terms: names, map from x."""
        # A later stage, imported on first use: the one exception in tests/test_layers.py.
        from thetahat.identification.identifiability.base_parameters import base_parameters

        return base_parameters(self)

    # -- physics -----------------------------------------------------------------------------------

    @cached_property
    def consistency(self) -> tuple[parameters.Consistency, ...]:
        """Physical consistency of every body's ten parameters."""
        return tuple(parameters.check(theta) for theta in self.theta.reshape(-1, 10))

    @property
    def mass(self) -> float:
        """Mass of all moving bodies [kg]."""
        return float(np.sum(self.theta[parameters.M :: 10]))

    def require_physical(self, purpose: str) -> None:
        """Raise `UnphysicalRobot`, naming the first physically inconsistent body and the fix."""
        for name, verdict in zip(self.body_names, self.consistency, strict=True):
            if not verdict:
                raise UnphysicalRobot(
                    f"{purpose} needs a physical robot, but body {name!r} of {self.name!r}:"
                    f" {verdict.condition}; correct the file, or use robot.projected(), the nearest"
                    " physical robot"
                )

    def projected(self) -> Robot:
        """Return the robot with every unphysical body replaced by the nearest physical one."""
        theta = self.theta.reshape(-1, 10).copy()
        for i, verdict in enumerate(self.consistency):
            if not verdict:
                theta[i] = parameters.project(theta[i])
        return self.with_parameters(theta.ravel())
