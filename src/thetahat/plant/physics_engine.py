"""What integrates into motion: q̈ from state and torque, and the mass matrix. Here by the project's
own kernels.

An engine knows the rigid bodies and the rotors alone; friction is added as a joint torque by
whoever asks, so that it is the same whatever the engine. Nothing is checked here: an engine is
asked four times a millisecond.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from thetahat.data.velocities import all_single_dof
from thetahat.dynamics import batch, rigid_body
from thetahat.model.drive import Drive
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind


def rotors_alone(robot: Robot) -> Robot:
    """The robot whose drive is its rotors' inertia and nothing else; a robot with a singular mass
    matrix is refused, the link named.
    """
    drive = robot.drive
    bare = replace(
        robot,
        drive=replace(
            Drive.none(len(drive.viscous)), armature=drive.armature, actuation=drive.actuation
        ),
    )
    robot.require_physical("simulation")
    rigid_body.forward_dynamics(bare, robot.neutral, np.zeros(robot.nv), np.zeros(robot.nv))
    return bare


@dataclass(frozen=True)
class StepArguments:
    """What the compiled steps call: the project's own dynamics, or another engine's function."""

    bodies: tuple[object, ...]
    scratch: tuple[object, ...]
    # of the function: its address, those of its two arguments, the arrays it reads (q, dq, tau) and
    # writes (q̈), and the sparse mass matrix: values, count and start of every row, columns
    foreign: tuple[object, ...] = (
        *(0, 0, 0),
        *[np.empty(0)] * 5,
        *[np.empty(0, dtype=np.int32)] * 3,
    )


class Engine(ABC):
    """Rigid bodies and rotors of one robot."""

    robot: Robot

    @abstractmethod
    def acceleration(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        """Fill `out` (nv,) with q̈ = D⁻¹(τ − C q̇ − G)."""

    @abstractmethod
    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        """D(q) with the rotors, (nv, nv); an array that the next call may overwrite."""

    def step_arguments(self) -> StepArguments | None:
        """What the kernels of plant_steps.py take of this engine; none where they cannot step its
        robot.
        """
        return None


class SprungEngine(Engine):
    """An engine whose joints have springs or counterbalances, which take some of the torque."""

    def __init__(self, engine: Engine, drive: Drive) -> None:
        self.robot, self._engine, self._drive = engine.robot, engine, drive

    def acceleration(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        """Fill `out` with q̈."""
        return self._engine.acceleration(q, dq, tau - self._drive.spring_torque(q), out)

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        """D(q) with the rotors."""
        return self._engine.mass_matrix(q)


class ClampedEngine(Engine):
    """An engine some of whose joints are clamped: closed brakes, or something in their way.

    They stop and stay near where they were, critically damped: Λ(ω²(q − q₀) + 2ωq̇) acts on them
    beside the motors, with Λ the inertia that the clamped joints have in q₀ while others yield.
    """

    def __init__(self, engine: Engine, joints: np.ndarray, q: np.ndarray, rate: float) -> None:
        self.robot, self._engine, self._rate = engine.robot, engine, rate
        self._joints, self._at = np.flatnonzero(joints), np.array(q, dtype=float)
        yields = np.linalg.inv(engine.mass_matrix(self._at))
        self._inertia = np.linalg.inv(yields[np.ix_(self._joints, self._joints)])

    def acceleration(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        """Fill `out` with q̈."""
        own, left, rate = self._joints, tau.copy(), self._rate
        pull = rate**2 * (q[own] - self._at[own]) + 2.0 * rate * dq[own]
        left[own] -= self._inertia @ pull
        return self._engine.acceleration(q, dq, left, out)

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        """D(q) with the rotors."""
        return self._engine.mass_matrix(q)


class OwnEngine(Engine):
    """Articulated bodies; with mimic joints, or rotors that tie joints together, a Cholesky factor
    of the mass matrix.
    """

    def __init__(self, robot: Robot) -> None:
        self.robot = robot = rotors_alone(robot)
        kernels, tree, n = batch.kernels(), robot.tree, robot.nv
        self._aba, self._rnea = kernels.aba.forward_dynamics, kernels.rnea.inverse_dynamics
        self._crba = kernels.crba.mass_matrix
        self._tree, self._w = tree.rigid_arrays, batch.Workspace(tree)
        self._theta, self._gravity, self._armature = robot.kernel_values
        self._none, self._pivots, self._still = np.empty((1, 0)), np.empty((1, 1)), np.zeros((1, n))
        self._D, self._bias, self._n = np.empty((n, n)), np.empty((1, n)), n
        self._rotors = robot.drive.joint_armature()
        self._by_matrix = tree.has_mimic or robot.drive.couples_joints
        w = self._w
        self._constants = (*self._tree, self._gravity, self._theta, self._armature)
        self._scratch = (self._none, w.nodes, w.directions, w.table, w.articulated, w.elimination)

    def acceleration(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        """Fill `out` with q̈."""
        if self._by_matrix:
            return self._solved(q, dq, tau, out)
        self._aba(
            *self._constants, q[None], dq[None], tau[None], *self._scratch, out[None], self._pivots
        )
        return out

    def step_arguments(self) -> StepArguments | None:
        """Its bodies and its scratch memory."""
        if self._by_matrix or not all_single_dof(self.robot):
            return None
        scratch = (*self._scratch, self._pivots, self._w.composite, self._w.matrix)
        return StepArguments(self._constants, scratch)

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        """D(q) by composite bodies."""
        w, out = self._w, self._D.reshape(1, -1)
        scratch = (w.nodes, w.directions, w.composite, w.matrix)
        self._crba(*self._tree, self._theta, self._n, q[None], *scratch, out)
        self._D += self._rotors
        return self._D

    def _solved(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        w = self._w
        model, state = (*self._tree, self._gravity, self._theta), (q[None], dq[None], self._still)
        scratch = (self._none, w.nodes, w.directions, w.forces, w.torques)
        self._rnea(*model, *state, *scratch, self._bias)
        out[:] = solved(self.mass_matrix(q), tau - self._bias[0])
        return out


def solved(D: np.ndarray, right: np.ndarray) -> np.ndarray:
    """D⁻¹·right by Cholesky; NaN where D is not positive definite, which the plant then reports as
    a state that is no number.
    """
    _, x, info = lapack.dposv(D, right, lower=1)
    return np.full_like(x, np.nan) if info else x


# -- coordinates -----------------------------------------------------------------------------------


class CoordinateRates:
    """The rates of q from dq, where some joints have several degrees of freedom (body twists,
    quaternions).
    """

    def __init__(self, robot: Robot) -> None:
        self._joints = [
            (node.kind, robot.tree.q_index[node.name], robot.tree.v_index[node.name])
            for node in robot.tree.independent
        ]
        self._quaternions = [at for _, at in robot.tree.quaternions]
        self._nq = robot.nq

    def __call__(self, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
        """(nq,): R(q) v for a position, ½ (quaternion ⊗ ω) for an orientation."""
        out = np.empty(self._nq)
        for kind, at, v in self._joints:
            match kind:
                case JointKind.PLANAR:
                    c, s = np.cos(q[at + 2]), np.sin(q[at + 2])
                    out[at : at + 3] = (
                        c * dq[v] - s * dq[v + 1],
                        s * dq[v] + c * dq[v + 1],
                        dq[v + 2],
                    )
                case JointKind.BALL:
                    out[at : at + 4] = _turning(q[at : at + 4], dq[v : v + 3])
                case JointKind.FREE:
                    out[at : at + 3] = rotation(q[at + 3 : at + 7]) @ dq[v + 3 : v + 6]
                    out[at + 3 : at + 7] = _turning(q[at + 3 : at + 7], dq[v : v + 3])
                case _:
                    out[at] = dq[v]
        return out

    def normalise(self, q: np.ndarray) -> None:
        """Bring every quaternion to unit length, in place."""
        for at in self._quaternions:
            q[at : at + 4] /= np.linalg.norm(q[at : at + 4])


def _turning(quaternion: np.ndarray, w: np.ndarray) -> np.ndarray:
    """½ quaternion ⊗ (ω, 0), (x, y, z, w) order."""
    x, y, z, s = quaternion.tolist()
    a, b, c = w.tolist()
    return 0.5 * np.array(
        [
            s * a + y * c - z * b,
            s * b + z * a - x * c,
            s * c + x * b - y * a,
            -x * a - y * b - z * c,
        ]
    )


def rotation(quaternion: np.ndarray) -> np.ndarray:
    """R, (3, 3), of a quaternion (x, y, z, w) of any length."""
    x, y, z, w = quaternion.tolist()
    k = 2.0 / (x * x + y * y + z * z + w * w)
    return np.array(
        [
            [1.0 - k * (y * y + z * z), k * (x * y - w * z), k * (x * z + w * y)],
            [k * (x * y + w * z), 1.0 - k * (x * x + z * z), k * (y * z - w * x)],
            [k * (x * z - w * y), k * (y * z + w * x), 1.0 - k * (x * x + y * y)],
        ]
    )
