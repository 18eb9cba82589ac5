"""Robot = tree + parameters + drive + gravity. Frozen: `Robot` goes in and `Robot` comes out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from thetahat.errors import UnphysicalRobot, UsageError, known
from thetahat.model import parameters
from thetahat.model.drive import Drive
from thetahat.model.tree import JointKind, Tree

STANDARD_GRAVITY = (0.0, 0.0, -9.81)  # [m/s²], the value URDF tools assume


@dataclass(frozen=True, eq=False)
class Link:
    """A link of the file: the body it is welded into, where it stands in that body's frame, and its own ten numbers."""

    name: str
    body: int  # position in body_names, −1 where it is welded to the world
    rotation: np.ndarray  # (3, 3) of the link frame in the body frame
    translation: np.ndarray  # (3,) [m]
    theta: np.ndarray  # (10,) in the link's own frame, as the file states them
    has_inertia: bool = True  # whether the file states an inertia for it


@dataclass(frozen=True, eq=False)
class Robot:
    """A robot that can be computed with. Build one with `thetahat.load`."""

    name: str
    tree: Tree
    theta: np.ndarray  # (10·bodies,) in the paper's order
    drive: Drive
    gravity: np.ndarray = field(default_factory=lambda: np.array(STANDARD_GRAVITY))  # (3,) [m/s²], world frame
    links: tuple[Link, ...] = ()
    source: Path | None = None
    notes: tuple[str, ...] = ()  # what the reader saw and left alone

    def __post_init__(self) -> None:
        theta = np.array(self.theta, dtype=float)
        if theta.shape != (10 * len(self.tree.bodies),):
            raise UsageError(
                f"theta has shape {theta.shape}; robot {self.name!r} has {len(self.tree.bodies)} bodies, so ({10 * len(self.tree.bodies)},)"
            )
        gravity = np.array(self.gravity, dtype=float)
        if gravity.shape != (3,) or not np.all(np.isfinite(gravity)):
            raise UsageError(f"gravity is {self.gravity!r}; give three finite numbers [m/s²], for example (0, 0, -9.81)")
        for name, value in (("theta", theta), ("gravity", gravity)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    # -- names and sizes ----------------------------------------------------------------------------------------------

    @cached_property
    def joint_names(self) -> tuple[str, ...]:
        """The movable joints, in the order of dq (mimic joints have no coordinate of their own)."""
        return tuple(node.name for node in self.tree.independent)

    @cached_property
    def body_names(self) -> tuple[str, ...]:
        """The bodies, in the order of theta."""
        return tuple(self.tree.nodes[i].body for i in self.tree.bodies)  # type: ignore[misc]

    @cached_property
    def velocity_names(self) -> tuple[str, ...]:
        """A name per degree of freedom: the joint's, with a suffix where it has several."""
        return tuple(f"{node.name}.{suffix}" if suffix else node.name for node in self.tree.independent for suffix in node.kind.directions)

    @property
    def nq(self) -> int:
        """Numbers in q."""
        return self.tree.nq

    @property
    def nv(self) -> int:
        """Numbers in dq."""
        return self.tree.nv

    def body_index(self, name: str) -> int:
        """Position of a body in theta, by the name of the body or of any link welded into it."""
        for i, body in enumerate(self.body_names):
            if body == name:
                return i
        for link in self.links:
            if link.name == name and link.body >= 0:
                return link.body
        raise UsageError(f"body {name!r} is not in robot {self.name!r}; bodies: {known(self.body_names)}")

    @cached_property
    def neutral(self) -> np.ndarray:
        """A configuration with every one-DOF joint at zero and every orientation unturned, (nq,)."""
        q = np.zeros(self.nq)
        for node in self.tree.independent:
            if node.kind in (JointKind.BALL, JointKind.FREE):
                q[self.tree.q_index[node.name] + node.kind.nq - 1] = 1.0
        q.setflags(write=False)
        return q

    # -- variants -----------------------------------------------------------------------------------------------------

    def with_parameters(self, theta: np.ndarray) -> Robot:
        """The same robot with other inertial parameters."""
        return replace(self, theta=np.asarray(theta, dtype=float))

    def with_gravity(self, gravity: np.ndarray) -> Robot:
        """The same robot mounted otherwise: gravity as a vector in its world frame [m/s²]."""
        return replace(self, gravity=np.asarray(gravity, dtype=float))

    def with_drive(self, **terms: bool) -> Robot:
        """The same robot with these drive terms (viscous, coulomb, offset, armature) to be identified or not."""
        return replace(self, drive=self.drive.with_terms(**terms))

    def without_drive(self) -> Robot:
        """The rigid bodies alone: no friction, no rotor inertia."""
        return replace(self, drive=Drive.none(self.nv))

    # -- physics ------------------------------------------------------------------------------------------------------

    @cached_property
    def consistency(self) -> tuple[parameters.Consistency, ...]:
        """For every body, whether its ten numbers can belong to a rigid body."""
        return tuple(parameters.check(theta) for theta in self.theta.reshape(-1, 10))

    @property
    def mass(self) -> float:
        """Mass of all moving bodies [kg]."""
        return float(np.sum(self.theta[parameters.M :: 10]))

    def require_physical(self, purpose: str) -> None:
        """Raise `UnphysicalRobot` naming the first body that no rigid body can be, and the fix."""
        for name, verdict in zip(self.body_names, self.consistency, strict=True):
            if not verdict:
                raise UnphysicalRobot(
                    f"{purpose} needs a physical robot, but body {name!r} of {self.name!r}: {verdict.condition}; "
                    "correct the file, or use robot.projected(), the nearest physical robot"
                )

    def projected(self) -> Robot:
        """The robot with every unphysical body replaced by the nearest physical one."""
        theta = self.theta.reshape(-1, 10).copy()
        for i, verdict in enumerate(self.consistency):
            if not verdict:
                theta[i] = parameters.project(theta[i])
        return self.with_parameters(theta.ravel())
