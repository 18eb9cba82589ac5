"""MuJoCo's world of a floating robot on a floor: contacts of its feet, what they exert, friction of
its joints, drives that hold positions.

The same bodies as in `mujoco_engine.py`, with contacts and friction loss switched on. Drives are
springs and dampers of their own, computed where MuJoCo integrates (damping implicitly), as motor
controllers run much faster than a robot's computer; their torque is logged like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.errors import UsageError
from thetahat.model.floating_base import ground_of, moving_link
from thetahat.model.robot import Link, Robot
from thetahat.plant.friction import STRIBECK
from thetahat.plant.mujoco_engine import SpecBody, build_model, load_mujoco, quaternion

RADIUS = 2e-3  # [m] of a point foot
SOLE = (0.09, 0.045, 0.01)  # [m] half length, width and thickness of a flat foot
FRICTION = 1.0  # of the ground: tangential over normal force
CONTACT_TIME = 0.01  # [s] in which the ground pushes a foot out
HELD = (0.99, 0.99, 1e-3, 0.5, 2.0)  # MuJoCo's impedance of joints that dry friction holds


@dataclass(frozen=True, eq=False)
class Drives:
    """Stiffness and damping of the joints' position control, and the torques it may reach."""

    stiffness: np.ndarray  # (nv,) [N·m/rad]
    damping: np.ndarray  # (nv,) [N·m·s/rad]
    limits: np.ndarray | None = None  # (nv,) [N·m or N]


@dataclass(frozen=True, eq=False)
class Wanted:
    """What drives are asked for from a moment on."""

    q: np.ndarray  # (nq,)
    dq: np.ndarray  # (nv,)
    tau: np.ndarray  # (nv,) feedforward


class GroundWorld:
    """State and motion of one robot whose feet touch a floor at height 0.

    robot: with its friction and rotors. nominal: its ground names the feet.
    """

    def __init__(self, robot: Robot, nominal: Robot) -> None:
        ground = ground_of(nominal)
        if ground is None or not ground.feet:
            raise UsageError(
                f"robot {nominal.name!r} has no feet to stand on; name them with --contacts"
            )
        _require_plain(robot)
        self.robot, self.feet, self._mujoco = robot, ground.feet, load_mujoco()
        self.places = [moving_link(robot, foot.link, foot.link) for foot in ground.feet]
        self.model = build_model(robot, self._furnish)
        self._switch_on()
        self.data = self._mujoco.MjData(self.model)
        tree = robot.tree
        rows = [
            (self.model.jnt_qposadr[i], self.model.jnt_dofadr[i], tree.q_index[node.name],
             tree.v_index[node.name])
            for i, node in enumerate(tree.nodes)
            if i
        ]  # fmt: skip
        self._to, self._dof, self._at, self._v = np.array(rows, dtype=int).T
        self._nodes = [tree.bodies[place.body] for place in self.places]
        drive = robot.drive
        self._viscous, self._coulomb = drive.value("viscous"), drive.value("coulomb")
        self._offset = drive.value("offset")
        self.model.dof_armature[self._dof] = np.diag(drive.joint_armature())[self._v]
        self._stribeck = next(
            ((shape, value) for shape, value in drive.extra if shape.term == STRIBECK), None
        )

    def _switch_on(self) -> None:
        """Contacts, dampers and friction loss, which build_model leaves out."""
        bits, option = self._mujoco.mjtDisableBit, self.model.opt
        for name in ("CONSTRAINT", "CONTACT", "DAMPER", "FRICTIONLOSS"):
            option.disableflags &= ~int(getattr(bits, f"mjDSBL_{name}", 0))
        option.integrator = self._mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.cone = self._mujoco.mjtCone.mjCONE_ELLIPTIC

    def _furnish(self, world: SpecBody, bodies: list[SpecBody]) -> None:
        """Add a floor, and a sphere or a sole under every foot."""
        kinds = self._mujoco.mjtGeom
        touch: dict[str, object] = {
            "condim": 3,
            "friction": (FRICTION, 0.005, 1e-4),
            "solref": (CONTACT_TIME, 1.0),
        }
        world.add_geom(
            name="floor", type=kinds.mjGEOM_PLANE, size=(0, 0, 1), pos=(0, 0, -RADIUS), **touch
        )
        for k, (foot, place) in enumerate(zip(self.feet, self.places, strict=True)):
            node, at = self.robot.tree.bodies[place.body], place.translation
            shape: dict[str, object] = {
                "type": kinds.mjGEOM_SPHERE, "size": (RADIUS, 0, 0), "pos": at
            }  # fmt: skip
            if foot.flat:
                low = place.rotation @ np.array([0.0, 0.0, SOLE[2] - RADIUS])
                turn = quaternion(place.rotation)
                shape = {"type": kinds.mjGEOM_BOX, "size": SOLE, "pos": at + low, "quat": turn}
            bodies[node].add_geom(name=f"foot{k}", **shape, **touch)

    # -- state -------------------------------------------------------------------------------------

    def place(self, q: np.ndarray) -> None:
        """Put the robot somewhere, at rest."""
        self._mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:7] = *q[:3], q[6], *q[3:6]
        self.data.qpos[self._to] = q[self._at]

    @property
    def q(self) -> np.ndarray:
        """Where it is, (nq,)."""
        p, q = self.data.qpos, np.empty(self.robot.nq)
        q[:7] = *p[:3], *p[4:7], p[3]
        q[self._at] = p[self._to]
        return q

    @property
    def dq(self) -> np.ndarray:
        """Its velocity, (nv,): the base's twist in its own axes, angular first."""
        dq, speed = np.empty(self.robot.nv), self.data.qvel
        R = self.data.xmat[1].reshape(3, 3)
        dq[:3], dq[3:6] = speed[3:6], R.T @ speed[:3]
        dq[self._v] = speed[self._dof]
        return dq

    def carry(self, robot: Robot) -> None:
        """Give the bodies the inertias of another robot (a payload was taken up)."""
        other = build_model(robot, self._furnish)
        for name in ("body_mass", "body_ipos", "body_inertia", "body_iquat"):
            getattr(self.model, name)[:] = getattr(other, name)
        position, speed = self.data.qpos.copy(), self.data.qvel.copy()
        self._mujoco.mj_setConst(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = position, speed

    # -- motion ------------------------------------------------------------------------------------

    def command(self, wanted: Wanted, drives: Drives, dt: float) -> None:
        """Set what acts during the next dt."""
        model, data, dof, v = self.model, self.data, self._dof, self._v
        model.opt.timestep = dt
        model.dof_solref[:, 0], model.dof_solref[:, 1] = 2.0 * dt, 1.0
        model.dof_solimp[:] = HELD
        speed = data.qvel[dof]
        push = np.zeros(self.robot.nv)
        push[v] = wanted.tau[v] + drives.stiffness[v] * (wanted.q[self._at] - data.qpos[self._to])
        push[v] += drives.damping[v] * wanted.dq[v]
        damping = drives.damping
        if drives.limits is not None:
            total = push.copy()
            total[v] -= damping[v] * speed
            cut = np.abs(total) > drives.limits
            push = np.where(cut, np.clip(total, -drives.limits, drives.limits), push)
            damping = np.where(cut, 0.0, damping)
        dry = self._coulomb.copy()
        if self._stribeck is not None:
            shape, value = self._stribeck
            full = np.zeros(self.robot.nv)
            full[v] = np.abs(speed) + 1e-9
            dry += value * shape.column(full, np.zeros_like(full), np.zeros_like(full))
        model.dof_damping[dof] = self._viscous[v] + damping[v]
        model.dof_frictionloss[dof] = dry[v]
        data.qfrc_applied[dof] = push[v] - self._offset[v]
        self._push, self._damping = push, damping

    def advance(self) -> np.ndarray:
        """Let the time of the last `command` pass; return the drives' torque meanwhile, (nv,).

        `wrenches` and `imu` then say what acted on the robot at its beginning.
        """
        self._mujoco.mj_step(self.model, self.data)
        self._mujoco.mj_rnePostConstraint(self.model, self.data)
        tau = self._push.copy()
        tau[self._v] -= self._damping[self._v] * self.data.qvel[self._dof]
        return tau

    # -- what acts on it ---------------------------------------------------------------------------

    def wrenches(self) -> np.ndarray:
        """Return force and couple of the ground on every foot about its link's origin, in its axes,
        (feet, 6).
        """
        data, out = self.data, np.empty((len(self.feet), 6))
        centre = data.subtree_com[1]  # about which MuJoCo sums what acts on a body
        for k, (node, place) in enumerate(zip(self._nodes, self.places, strict=True)):
            body = node + 1
            R = data.xmat[body].reshape(3, 3)
            arm = centre - (data.xpos[body] + R @ place.translation)
            couple, force = data.cfrc_ext[body, :3], data.cfrc_ext[body, 3:]
            to_link = (R @ place.rotation).T
            out[k, :3], out[k, 3:] = to_link @ force, to_link @ (couple + np.cross(arm, force))
        return out

    def imu(self, place: Link) -> np.ndarray:
        """Return angular rate [rad/s] and specific force [m/s²] at a link's origin in its axes."""
        body = self.robot.tree.bodies[place.body] + 1
        model, data = self.model, self.data
        kind = self._mujoco.mjtObj.mjOBJ_XBODY
        speed, rate = np.empty(6), np.empty(6)
        self._mujoco.mj_objectVelocity(model, data, kind, body, speed, 1)
        self._mujoco.mj_objectAcceleration(model, data, kind, body, rate, 1)
        w, arm = speed[:3], place.translation
        force = rate[3:] + np.cross(rate[:3], arm) + np.cross(w, np.cross(w, arm))
        return np.concatenate([place.rotation.T @ w, place.rotation.T @ force])


def _require_plain(robot: Robot) -> None:
    """Refuse what the world does not simulate."""
    drive, tree = robot.drive, robot.tree
    what = ""
    if tree.has_mimic or any(node.kind.nv > 1 for node in tree.nodes[1:]):
        what = "mimic joints or joints of several degrees of freedom"
    elif drive.actuation is not None:
        what = "an actuation map"
    elif drive.has_springs or any(shape.term != STRIBECK for shape, _ in drive.extra):
        what = "springs or friction terms beside viscous, Coulomb, Stribeck and offset"
    elif drive.couples_joints:
        what = "rotors that tie joints together"
    if what:
        raise UsageError(
            f"robot {robot.name!r} has {what}, which the standing plant does not take; leave them"
            " out of the file"
        )
