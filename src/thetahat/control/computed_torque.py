"""Computed torque, gravity compensation and PD.

    computed torque       U = Y(q, q̇, q̈_cmd)·Θ̂ = D(q) q̈_cmd + C(q, q̇)q̇ + G(q) + friction
                          (paper, eq. computedtorque)
                          q̈_cmd = q̈_d + kd ė + kp e,   e = q_d − q
    gravity compensation  U = G(q) + kp e + kd ė
    PD                    U = kp e + kd ė

Mind the units: the gains of computed torque are accelerations per error, kp [1/s²] and kd [1/s],
the same for light joints and heavy ones (kp = ω², kd = 2ζω gives every joint the bandwidth ω);
those of PD and gravity compensation, and of `pd=`, are torques per error, kp [N·m/rad] and kd
[N·m·s/rad] (N/m and N·s/m where a joint slides), and grow with the inertia: see `pd_gains`. An
angle is a number: nothing is wrapped, so wanted and measured q of a continuous joint must count the
same turns.
"""

from __future__ import annotations

import numpy as np

from thetahat.control.controller import JointController, Reference
from thetahat.control.sample_guard import speed_bounds
from thetahat.control.torque_limits import (
    PerJoint,
    per_joint,
    require_driven,
    require_physical,
    torque_limits,
)
from thetahat.dynamics import batch, configuration, rigid_body
from thetahat.errors import UsageError, check_positive
from thetahat.model.drive import TERMS, Drive
from thetahat.model.friction_terms import FrictionDirection
from thetahat.model.robot import Robot

FRICTION = ("wanted", "wanted-sign", "measured", "none")
BANDWIDTH = 10.0  # [rad/s] of `pd_gains`: what PD alone tracks on a robot with coupled joints
# [rad/s] of computed torque's own gains: of a heavy joint, and at most of one that is held back by
# friction rather than by inertia
SLOWEST, FASTEST = 20.0, 80.0
TRANSITION = 0.05  # [rad/s or m/s] of speed over which compensated dry friction changes its sign
DAMPED_IN = 0.1  # [s] T of the damping with which a robot without usable samples is slowed down
POSTURES = 200  # random configurations over which the largest joint inertia is taken


class InverseDynamics:
    """D q̈ + C q̇ + G of one robot, prepared: fill `q`, `dq`, `ddq` (n,), call, read the result
    (nv,), which the next call overwrites.

    Nothing is checked. Measured on 7 and 44 joints: 3 µs and 8 µs a call.
    """

    def __init__(self, robot: Robot) -> None:
        tree, w = robot.tree, batch.Workspace(robot.tree)
        theta, gravity, _ = robot.kernel_values
        state = [np.zeros((1, n)) for n in (robot.nq, robot.nv, robot.nv)]
        tau = np.zeros((1, robot.nv))
        self.q, self.dq, self.ddq = (array[0] for array in state)
        self._tau: np.ndarray = tau[0]
        self._kernel = batch.kernels().rnea.inverse_dynamics
        scratch = (np.empty((1, 0)), w.nodes, w.directions, w.forces, w.torques)
        self._arguments = (*tree.rigid_arrays, gravity, theta, *state, *scratch, tau)
        self()  # compiles it, where it is the first of its kind: not in the first cycle of a loop

    def __call__(self) -> np.ndarray:
        """D q̈ + C q̇ + G, (nv,)."""
        self._kernel(*self._arguments)
        return self._tau


class ModelController(JointController):
    """A controller with a model, which tells it how to hold the robot still."""

    def __init__(
        self,
        robot: Robot,
        limits: bool | PerJoint,
        purpose: str,
        *,
        physical: bool,
        max_speed: PerJoint | None = None,
    ) -> None:
        require_driven(robot)
        if physical:
            require_physical(robot, purpose)
        bounds = torque_limits(robot, limits)
        super().__init__(robot.joint_names, bounds.values, speed_bounds(robot, max_speed))
        self.robot = robot
        self.notes, self._assumed = (bounds.note,) if bounds.note else (), bounds.assumed
        self._model = InverseDynamics(robot)

    def take_over(self, other: JointController, command: np.ndarray) -> None:
        """Go on where another controller of the same joints stopped, inside its limits where this
        one's are assumed.
        """
        super().take_over(other, command)
        if self._assumed and other.limits is not None:
            self._set_limits(other.limits)

    def _static_torque(self, q: np.ndarray) -> np.ndarray:
        """G(q) and springs, (nv,), that the next call overwrites."""
        model, drive = self._model, self.robot.drive
        model.q[:], model.dq[:], model.ddq[:] = q, 0.0, 0.0
        tau = model()
        if drive.has_springs:
            tau += drive.static.torque(model.dq, model.ddq, q=model.q)
        return tau

    def halt(self) -> np.ndarray:
        """G(q) where the robot was last seen, inside the limits; zero where it never was."""
        if not self._guard.count:
            return np.zeros(self._shape)
        tau = self._static_torque(self._guard.q).copy()
        return np.asarray(np.clip(tau, -self._upper, self._upper))

    def _fallback(self, age: float) -> np.ndarray:
        """G(q) where the robot was last believed to be, and D_jj/T against the speed it had, which
        is taken to die out as that damping lets it: no speed can be measured now.
        """
        tau = self.halt()
        if self._guard.count and age < np.inf:
            inertia = np.diag(rigid_body.mass_matrix(self.robot, self._guard.q))
            tau -= inertia / DAMPED_IN * np.exp(-age / DAMPED_IN) * self._guard.dq
        return tau


class ComputedTorque(ModelController):
    """U = Y(q, q̇, q̈_cmd)·Θ̂, q̈_cmd = q̈_d + kd ė + kp e; the joints then move as ë + kd ė + kp e
    = 0 if the model's torques are right.

    Args:
        robot: the model, nominal or identified: rigid bodies, rotors and friction.
        kp: [1/s²], one number or one per joint; None: that of `bandwidths(robot)`, squared.
        kd: [1/s], one number or one per joint; None: critical damping.
        pd: (kp, kd) [N·m/rad, N·m·s/rad] of a PD torque on top, which does not trust the model.
        limits: True: the effort limits of the robot's file, and the model's own bound where it
            states none (`notes` says so); or numbers [N·m or N]; False: none.
        friction: of the "wanted" speed (the sign of a measured one chatters around zero), whose dry
            part changes its sign over a range of speed: a step of torque at every reversal shakes
            the joint, and no encoder tells its moment; "wanted-sign": with that step; of the
            "measured" speed; or "none".
        physical: whether a robot that no rigid body can be is refused. Least squares may answer
            with such a Θ̂, whose torques are right all the same.
        max_speed: [rad/s or m/s] beyond which a sample is not believed (`sample_guard`); by default
            three times what the file states.

    """

    def __init__(
        self,
        robot: Robot,
        kp: PerJoint | None = None,
        kd: PerJoint | None = None,
        *,
        pd: tuple[PerJoint, PerJoint] | None = None,
        limits: bool | PerJoint = True,
        friction: str = "wanted",
        physical: bool = True,
        max_speed: PerJoint | None = None,
    ) -> None:
        super().__init__(robot, limits, "computed torque", physical=physical, max_speed=max_speed)
        if friction not in FRICTION:
            raise UsageError(f"friction is {friction!r}; choose one of {', '.join(FRICTION)}")
        self.kp = per_joint("kp", bandwidths(robot) ** 2 if kp is None else kp, robot.nv)
        self.kd = per_joint("kd", 2.0 * np.sqrt(self.kp) if kd is None else kd, robot.nv)
        self._transition = TRANSITION if friction == "wanted" else 0.0
        self.pd: tuple[np.ndarray, np.ndarray] | None = None
        if pd is not None:
            stiffness, damping = (
                per_joint(f"{name} of pd", gain, robot.nv)
                for name, gain in zip(("kp", "kd"), pd, strict=True)
            )
            self.pd = stiffness, damping
        drive = robot.drive if friction != "none" else _rotors(robot.drive)
        self._prepare(robot, drive, friction == "measured")

    def _prepare(self, robot: Robot, drive: Drive, measured: bool) -> None:
        """Everything the kernel wants, in the place it wants it."""
        k, tree, w = batch.kernels().computed_torque, robot.tree, batch.Workspace(robot.tree)
        theta, gravity, _ = robot.kernel_values
        constants = np.zeros((k.CONSTANTS_SIZE, robot.nv))
        constants[k.KP], constants[k.KD] = self.kp, self.kd
        if self.pd is not None:
            constants[k.STIFFNESS], constants[k.DAMPING] = self.pd
        constants[k.ZONE] = self._transition
        simple = drive.simple
        if not simple and drive.dry is None and self._transition:
            zone = np.full(len(drive.viscous), self._transition)
            drive = drive.with_dry(FrictionDirection(zone, np.zeros_like(zone)))
        if simple:
            for row, term in zip((k.VISCOUS, k.COULOMB, k.OFFSET, k.ARMATURE), TERMS, strict=True):
                constants[row] = drive.value(term)
        self._drive = None if simple or drive.is_zero else drive
        self._state = state = np.zeros((k.STATE_SIZE, robot.nv))
        self._acceleration, self._speed = state[k.DDQ], state[k.SPEED]
        tau = np.zeros((k.SAMPLES, robot.nv))
        self._tau: np.ndarray = tau[0]
        self._kernel, self._constants = k.computed_torque, constants
        model = (*tree.rigid_arrays, gravity, theta)
        scratch = (np.empty((k.SAMPLES, 0)), w.nodes, w.directions, w.forces, w.torques)
        # the last but one: whose mass matrix feedback has, where that is another robot's
        self._arguments = (
            *(*model, state, constants, measured, *scratch, tau),
            *(np.empty(0), np.zeros((k.LANES_SIZE, robot.nv))),
        )
        self._kernel(*self._arguments)  # compiles it now, not in the first cycle of a loop

    def keep_feedback(self, other: ComputedTorque) -> None:
        """Take over the feedback of another controller of the same joints, gains and mass matrix
        D₀: U = D q̈_d + C q̇ + G + D₀ (kd ė + kp e), rotors by whichever robot has the larger one.
        """
        k, robot = batch.kernels().computed_torque, other.robot
        self.kp, self.kd = other.kp, other.kd
        self._constants[k.KP], self._constants[k.KD] = self.kp, self.kd
        if self.robot.drive.simple and robot.drive.simple:
            less = robot.drive.armature - self.robot.drive.armature
            self._constants[k.ROTOR] = np.maximum(less, 0.0)
        theta, _, _ = robot.kernel_values
        self._arguments = (*self._arguments[:-2], theta, self._arguments[-1])

    def _torque(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        state, (q_d, dq_d, ddq_d) = self._state, wanted
        state[0], state[1], state[2], state[3], state[4] = q, dq, q_d, dq_d, ddq_d
        usable = self._kernel(*self._arguments)
        # motors that drive several joints, or friction of shapes the kernel does not know
        if self._drive is not None and usable:
            with np.errstate(all="ignore"):
                pd = 0.0 if self.pd is None else self.pd[0] * (q_d - q) + self.pd[1] * (dq_d - dq)
                self._tau += self._drive.torque(
                    self._speed, self._acceleration, q=state[0], load=self._tau - pd
                )
        return self._tau


class GravityCompensation(ModelController):
    """U = G(q) + kp e + kd ė: holds any posture without a steady error, and lags behind fast
    motions.

    kp, kd: [N·m/rad], [N·m·s/rad], one number or one per joint; by default those of
        `pd_gains(robot)`.
    """

    def __init__(
        self,
        robot: Robot,
        kp: PerJoint | None = None,
        kd: PerJoint | None = None,
        *,
        limits: bool | PerJoint = True,
        physical: bool = True,
        max_speed: PerJoint | None = None,
    ) -> None:
        super().__init__(
            robot, limits, "gravity compensation", physical=physical, max_speed=max_speed
        )
        usual = pd_gains(robot) if kp is None or kd is None else (0.0, 0.0)
        self.kp = per_joint("kp", usual[0] if kp is None else kp, robot.nv)
        self.kd = per_joint("kd", usual[1] if kd is None else kd, robot.nv)

    def _torque(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        q_d, dq_d, _ = wanted
        with np.errstate(all="ignore"):
            tau: np.ndarray = self._static_torque(q) + self.kp * (q_d - q) + self.kd * (dq_d - dq)
        return tau


class PD(JointController):
    """U = kp e + kd ė, without any model: kp [N·m/rad], kd [N·m·s/rad], one per joint (of one
    joint, a number will do).
    """

    def __init__(
        self,
        kp: PerJoint,
        kd: PerJoint,
        *,
        limits: bool | PerJoint = False,
        names: tuple[str, ...] | None = None,
    ) -> None:
        count = max(np.size(kp), np.size(kd), 1 if names is None else len(names))
        self.kp, self.kd = per_joint("kp", kp, count), per_joint("kd", kd, count)
        if limits is True:
            raise UsageError(
                "limits is True, but PD has no robot that could state them; give numbers [N·m or N]"
            )
        bounds = None
        if limits is not False and limits is not None:
            bounds = per_joint("limits", limits, count, finite=False)
        numbered = tuple(f"joint{k + 1}" for k in range(count))
        super().__init__(numbered if names is None else tuple(names), bounds)

    def _torque(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        q_d, dq_d, _ = wanted
        with np.errstate(all="ignore"):
            tau: np.ndarray = self.kp * (q_d - q) + self.kd * (dq_d - dq)
        return tau


def _rotors(drive: Drive) -> Drive:
    """The drive without friction: rotors and springs stay."""
    still = np.zeros_like(drive.viscous)
    extra = {shape.term: still for shape, _ in drive.extra if not shape.of_position}
    offset = drive.static.offset
    return drive.with_values(viscous=still, coulomb=still, offset=offset, **extra)


def bandwidths(robot: Robot) -> np.ndarray:
    """(nv,) [rad/s] that suit computed torque: 20 for a joint whose inertia is its load, up to 80
    for a light one, whose friction would hold it back: it is made as stiff [N·m/rad] as the
    strongest joint's gravity torque [N·m], so that friction of 1 % of that costs it 0.01 rad.
    """
    rng = np.random.default_rng(0)
    q = configuration.random_configuration(robot, rng, POSTURES)
    load = rigid_body.gravity(robot, q)
    stiffness = float(np.max(np.sqrt(np.mean(load**2, axis=0)), initial=0.0))
    inertia = np.maximum(joint_inertia(robot), np.finfo(float).tiny)
    return np.asarray(np.clip(np.sqrt(stiffness / inertia), SLOWEST, FASTEST))


def joint_inertia(robot: Robot, *, q: np.ndarray | None = None) -> np.ndarray:
    """The inertia a joint moves while the others stand still, (nv,) [kg·m² or kg]: D_jj(q), or its
    largest over random postures (always the same).
    """
    if q is None:
        q = configuration.random_configuration(robot, np.random.default_rng(0), POSTURES)
    (q,) = batch.check_state(robot, q)
    diagonals = np.einsum("kii->ki", rigid_body.mass_matrix(robot, batch.rows(q)))
    return np.asarray(np.max(diagonals, axis=0))


def pd_gains(
    robot: Robot, bandwidth: float = BANDWIDTH, *, damping: float = 1.0, q: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(kp, kd) = (ω² D_jj, 2ζω D_jj), each (nv,) [N·m/rad, N·m·s/rad]: what makes joint j alone an
    oscillator of ω [rad/s] and damping ζ.

    D_jj is that of the posture q, or the largest over random postures.
    """
    require_driven(robot)
    for name, value in (("bandwidth", bandwidth), ("damping", damping)):
        check_positive(name, value)
    inertia = joint_inertia(robot, q=q)
    return bandwidth**2 * inertia, 2.0 * damping * bandwidth * inertia
