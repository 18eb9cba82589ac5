"""A floating robot that stands and sways on the ground, in MuJoCo with contacts.

Joint torques are feedforward and feedback of a controller that believes in the nominal robot. What
is logged is what a legged robot logs: the pose of its base, joint positions, motor torques,
wrenches of the ground on its feet or flags of contact, each with errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError
from thetahat.model.floating_base import ground_of, moving_link
from thetahat.model.robot import Robot
from thetahat.plant.mujoco_engine import SpecBody, build_model, load_mujoco, quaternion
from thetahat.plant.stance import StandingMotion, feedforward

STEP = 5e-4  # [s] of the physics, at most
RADIUS = 2e-3  # [m] of a point foot
SOLE = (0.09, 0.045, 0.01)  # [m] half length, width and thickness of a flat foot
DAMPED = 0.3  # of what a step of the physics can take: damping of light joints
DOWN = 0.02  # of the weight: a foot that carries more is down
FALLEN = 0.35  # [rad or part of the height] from its course: it fell


@dataclass(frozen=True)
class StandingRealism:
    """Errors of a standing robot and its sensors; standard deviations."""

    viscous: float = 0.0  # [N·m·s/rad] of every joint
    coulomb: float = 0.0  # [N·m]
    encoder: float = 0.0  # [rad]
    base: float = 0.0  # [m] and [rad] of the base's pose
    torque: float = 0.0  # [N·m]
    force: float = 0.0  # [N]; couples a tenth of it [N·m]


def stand_and_sway(
    true: Robot,
    nominal: Robot,
    motion: StandingMotion,
    *,
    realism: StandingRealism | None = None,
    seed: int = 0,
    stiffness: float = 1.0,
) -> dict[str, np.ndarray]:
    """Return the columns of a log: base.*, q.*, tau.*, wrench.<foot>.* and contact.<foot>.

    true: the robot that stands. nominal: the one its controller believes in; its ground names the
        feet. stiffness: of the joints, 1 for the robot's weight times its height per radian.
    """
    world = _World(true, nominal)
    realism = realism or StandingRealism()
    rng = np.random.default_rng(seed)
    seen = world.run(motion, realism, stiffness)
    return _columns(nominal, motion, seen, realism, rng)


@dataclass(frozen=True, eq=False)
class _Seen:
    """True signals at the moments of a motion."""

    q: np.ndarray  # (n, nq)
    tau: np.ndarray  # (n, nv) exerted from each moment on
    wrenches: np.ndarray  # (n, feet, 6) force and couple on each foot, in its axes


class _World:
    """MuJoCo's model of a robot on a floor."""

    def __init__(self, true: Robot, nominal: Robot) -> None:
        ground = ground_of(nominal)
        if ground is None or not ground.feet:
            raise UsageError(f"robot {nominal.name!r} has no feet to stand on; name them")
        self.nominal, self.feet = nominal, ground.feet
        self.mujoco = load_mujoco()
        self.places = [moving_link(true, foot.link, foot.link) for foot in ground.feet]
        self.model = build_model(true, self._furnish)
        bits = self.mujoco.mjtDisableBit
        for name in ("CONSTRAINT", "CONTACT", "DAMPER", "FRICTIONLOSS"):
            self.model.opt.disableflags &= ~int(getattr(bits, f"mjDSBL_{name}"))
        self.model.opt.integrator = self.mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self.model.opt.cone = self.mujoco.mjtCone.mjCONE_ELLIPTIC
        self.data = self.mujoco.MjData(self.model)
        tree = true.tree
        self.nodes = [tree.bodies[place.body] for place in self.places]
        self.joints = [
            (int(self.model.jnt_qposadr[i]), int(self.model.jnt_dofadr[i]), tree.q_index[node.name],
             tree.v_index[node.name])
            for i, node in enumerate(tree.nodes)
            if i and node.mimic is None
        ]  # fmt: skip
        if tree.has_mimic or any(node.kind.nv > 1 for node in tree.nodes[1:]):
            raise UsageError(
                f"robot {true.name!r} has mimic joints or joints of several degrees of freedom,"
                " which the standing plant does not take"
            )

    def _furnish(self, world: SpecBody, bodies: list[SpecBody]) -> None:
        """Add a floor, and a sphere or a sole under every foot."""
        kinds = self.mujoco.mjtGeom
        contact = {"friction": (1.0, 0.005, 1e-4), "solref": (0.01, 1.0)}
        dim = {"condim": 3, **contact}
        world.add_geom(
            name="floor", type=kinds.mjGEOM_PLANE, size=(0, 0, 1), pos=(0, 0, -RADIUS), **dim
        )
        ground = ground_of(self.nominal)
        assert ground is not None
        for k, (foot, place) in enumerate(zip(ground.feet, self.places, strict=True)):
            tree_node = self.nominal.tree.bodies[place.body]
            at, turn = place.translation, quaternion(place.rotation)
            if foot.flat:
                low = place.rotation @ np.array([0.0, 0.0, SOLE[2] - RADIUS])
                bodies[tree_node].add_geom(
                    name=f"foot{k}", type=kinds.mjGEOM_BOX, size=SOLE, pos=at + low, quat=turn,
                    **dim,
                )  # fmt: skip
            else:
                bodies[tree_node].add_geom(
                    name=f"foot{k}", type=kinds.mjGEOM_SPHERE, size=(RADIUS, 0, 0), pos=at, **dim
                )

    def run(self, motion: StandingMotion, realism: StandingRealism, stiffness: float) -> _Seen:
        """Simulate the motion."""
        nominal, model, data = self.nominal, self.model, self.data
        count = len(motion.t)
        period = float(motion.t[1] - motion.t[0])
        inner = max(1, int(np.ceil(period / STEP)))
        model.opt.timestep = period / inner
        model.dof_damping[6:], model.dof_frictionloss[6:] = realism.viscous, realism.coulomb
        weight = nominal.mass * float(np.linalg.norm(nominal.gravity))
        height = float(motion.q[0, 2])
        kp = stiffness * weight * height
        inertia = np.diag(rigid_body.mass_matrix(nominal, motion.q[0]))
        kd = np.minimum(2.0 * np.sqrt(kp * inertia), DAMPED * inertia / model.opt.timestep)
        ahead = feedforward(nominal, motion)
        self._place(motion.q[0])
        q, tau = np.empty((count, nominal.nq)), np.zeros((count, nominal.nv))
        wrenches = np.empty((count, len(self.feet), 6))
        to, dof, at, v = (np.array(column) for column in zip(*self.joints, strict=True))
        for k in range(count):
            q[k] = self._configuration()
            self._require_upright(q[k], motion.q[k], height, motion.t[k])
            for step in range(inner):
                back = kp * (motion.q[k, at] - data.qpos[to])
                back += kd[v] * (motion.dq[k, v] - data.qvel[dof])
                data.qfrc_applied[dof] = ahead[k, v] + back
                if not step:
                    tau[k, v] = ahead[k, v] + back
                    self.mujoco.mj_forward(model, data)
                    wrenches[k] = self._wrenches()
                self.mujoco.mj_step(model, data)
        return _Seen(q, tau, wrenches)

    def _require_upright(self, q: np.ndarray, wanted: np.ndarray, height: float, t: float) -> None:
        off = max(abs(q[2] - wanted[2]) / height, float(np.abs(q[3:6] - wanted[3:6]).max()))
        if not off < FALLEN:
            raise UsageError(f"the robot fell {t:.2f} s after the start; give a smaller --sway")

    def _place(self, q: np.ndarray) -> None:
        self.mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:7] = *q[:3], q[6], *q[3:6]
        for to, _, at, _ in self.joints:
            self.data.qpos[to] = q[at]

    def _configuration(self) -> np.ndarray:
        p, q = self.data.qpos, np.empty(self.nominal.nq)
        q[:7] = *p[:3], *p[4:7], p[3]
        for to, _, at, _ in self.joints:
            q[at] = p[to]
        return q

    def _wrenches(self) -> np.ndarray:
        """Force and couple of the ground on every foot about its link's origin, in its axes."""
        out, data = np.zeros((len(self.feet), 6)), self.data
        force = np.empty(6)
        for i in range(data.ncon):
            contact = data.contact[i]
            self.mujoco.mj_contactForce(self.model, data, i, force)
            frame = contact.frame.reshape(3, 3)
            for geom, sign in ((contact.geom1, -1.0), (contact.geom2, 1.0)):
                name = self.model.geom(geom).name
                if not name.startswith("foot"):
                    continue
                k = int(name[4:])
                body, place = self.nodes[k] + 1, self.places[k]
                R = data.xmat[body].reshape(3, 3)
                origin = data.xpos[body] + R @ place.translation
                push, turn = sign * frame.T @ force[:3], sign * frame.T @ force[3:]
                couple = turn + np.cross(contact.pos - origin, push)
                to_link = (R @ place.rotation).T
                out[k, :3] += to_link @ push
                out[k, 3:] += to_link @ couple
        return out


def _columns(
    robot: Robot,
    motion: StandingMotion,
    seen: _Seen,
    realism: StandingRealism,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """The log's columns, with errors of the sensors."""
    count, ground = len(motion.t), ground_of(robot)
    assert ground is not None
    pose = seen.q[:, :7] + realism.base * rng.standard_normal((count, 7))
    pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
    names = ("x", "y", "z", "qx", "qy", "qz", "qw")
    out = {"t": motion.t, **{f"base.{name}": pose[:, k] for k, name in enumerate(names)}}
    joints = robot.tree.independent[1:]
    for node in joints:
        at = robot.tree.q_index[node.name]
        out[f"q.{node.name}"] = seen.q[:, at] + realism.encoder * rng.standard_normal(count)
    for node in joints:
        v = robot.tree.v_index[node.name]
        out[f"tau.{node.name}"] = seen.tau[:, v] + realism.torque * rng.standard_normal(count)
    weight = robot.mass * float(np.linalg.norm(robot.gravity))
    spread = realism.force * np.array([1.0, 1.0, 1.0, 0.1, 0.1, 0.1])
    for k, foot in enumerate(ground.feet):
        wrench = seen.wrenches[:, k] + spread * rng.standard_normal((count, 6))
        for channel, values in zip(("fx", "fy", "fz", "tx", "ty", "tz"), wrench.T, strict=True):
            out[f"wrench.{foot.link}.{channel}"] = values
        size = np.linalg.norm(seen.wrenches[:, k, :3], axis=1)
        out[f"contact.{foot.link}"] = (size > DOWN * weight).astype(float)
    return out
