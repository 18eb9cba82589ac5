"""Adaptive control of Slotine and Li: tracks while it learns, and is stable whatever it does not
know.

    q̃ = q − q_d,   q̇_r = q̇_d − Λ q̃,   q̈_r = q̈_d − Λ q̃̇,   s = q̇ − q̇_r = q̃̇ + Λ q̃
    U = Y(q, q̇, q̇_r, q̈_r)·Θ̂ + friction(q̇_r) − K s
    Θ̂ moves along −Yᵀs as its law says (adaptation_laws.py)

Y·Θ = D q̈_r + C q̇_r + G with Ḋ − 2C skew, so V = ½ sᵀD s + distance(Θ̂, Θ) falls as V̇ ≤ −sᵀK s: s
and with it the error go to zero. Friction is evaluated at the reference speed: it does not chatter,
and as friction grows with speed it only makes V̇ smaller (s·(f(q̇) − f(q̇_r)) ≥ 0). Where s = 0
nothing moves. Nothing is learned from a cycle in which a torque was cut or a sample was unusable.
"""

from __future__ import annotations

import numpy as np

from thetahat.control.adaptation_laws import Law, LogDet, drive_values
from thetahat.control.computed_torque import ModelController, joint_inertia
from thetahat.control.controller import Reference
from thetahat.control.torque_limits import PerJoint, per_joint
from thetahat.dynamics import batch, rigid_body
from thetahat.errors import UsageError
from thetahat.model.drive import Drive
from thetahat.model.robot import Robot

LONGEST = 0.05  # [s] between samples over which a gradient may be held: beyond it the loop stalled


class SlotineLi(ModelController):
    """Adaptive computed torque; `adapted` is the robot as it is believed to be now.

    Args:
        robot: the guess; its drive terms to be identified (`with_drive`) adapt too, the others are
            taken as they are.
        law: `LogDet` (physical at every moment) or `Euclidean`.
        bandwidth: Λ [1/s], of the error once s is zero.
        damping: K [N·m·s/rad]; by default Λ times the joint's largest inertia.
        limits: as of `ComputedTorque`.

    """

    def __init__(
        self,
        robot: Robot,
        law: Law | None = None,
        *,
        bandwidth: PerJoint = 10.0,
        damping: PerJoint | None = None,
        limits: bool | PerJoint = True,
        max_speed: PerJoint | None = None,
    ) -> None:
        super().__init__(robot, limits, "adaptive control", physical=True, max_speed=max_speed)
        _check_drive(robot)
        self.law = LogDet() if law is None else law
        self.state = self.law.begin(robot)
        self.bandwidth = per_joint("bandwidth", bandwidth, robot.nv)
        self.damping = (
            self.bandwidth * joint_inertia(robot)
            if damping is None
            else per_joint("damping", damping, robot.nv)
        )
        fixed = _fixed_terms(robot.drive)
        self._fixed = None if fixed.is_zero else fixed
        self._adapts_drive = bool(robot.drive.column_count)
        self._terms = AdaptiveTerms(robot)
        self._terms.theta[:] = self.state.theta
        self._columns = np.zeros((robot.nv, robot.drive.column_count))
        # time, Yᵀs of bodies and of drives
        self._pending: tuple[float, np.ndarray, np.ndarray] | None = None

    @property
    def adapted(self) -> Robot:
        """The robot with the parameters believed now."""
        x = np.concatenate([self.state.theta, self.state.drive])
        return self.robot.with_parameters(x if self._adapts_drive else self.state.theta)

    def sliding(
        self, q: np.ndarray, dq: np.ndarray, wanted: Reference
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(s, q̇_r, q̈_r), each (nv,)."""
        q_d, dq_d, ddq_d = wanted
        dq_r = dq_d - self.bandwidth * (q - q_d)
        return dq - dq_r, dq_r, ddq_d - self.bandwidth * (dq - dq_d)

    def lyapunov(self, q: np.ndarray, dq: np.ndarray, wanted: Reference, *, truth: Robot) -> float:
        """V = ½ sᵀD s + distance(Θ̂, Θ) [J], D and Θ those of the true robot (which has the same
        drive terms to be identified).
        """
        s = self.sliding(q, dq, wanted)[0]
        return 0.5 * float(s @ rigid_body.mass_matrix(truth, q) @ s) + self.state.distance(
            truth.theta, drive_values(truth)
        )

    def resync(self) -> None:
        """Learn nothing over the gap."""
        self._pending = None

    def _torque(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        with np.errstate(all="ignore"):
            return self._law_torque(t, q, dq, wanted)

    def _law_torque(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        self._learn(t)
        terms = self._terms
        s, dq_r, ddq_r = self.sliding(q, dq, wanted)
        terms.q[:], terms.dq[:], terms.dq_r[:], terms.ddq_r[:], terms.s[:] = q, dq, dq_r, ddq_r, s
        terms()
        tau: np.ndarray = terms.tau - self.damping * s
        if self._adapts_drive:
            self._columns = self.robot.drive.columns(dq_r, ddq_r, q=q)
            tau += self._columns @ self.state.drive
        if self._fixed is not None:
            tau += self._fixed.torque(dq_r, ddq_r, q=q)
        return tau

    def _learn(self, t: float) -> None:
        """Move the estimate over the time since the last usable sample."""
        if self._pending is None:
            return
        before, gradient, drive = self._pending
        self._pending = None
        if 0.0 < t - before <= LONGEST:  # false for NaN too
            self.state.step(gradient, drive, t - before)
            self._terms.theta[:] = self.state.theta

    def _accepted(self, t: float, q: np.ndarray) -> None:
        super()._accepted(t, q)
        # a torque that was cut teaches the wrong thing
        if self.limits is None or not self.saturated.any():
            self._pending = (t, self._terms.gradient.copy(), self._columns.T @ self._terms.s)

    def _rejected(self) -> None:
        self._pending = None


def _fixed_terms(drive: Drive) -> Drive:
    """The drive with the terms that adapt set to zero (of the motors whose columns they are)."""
    values = {}
    for term in drive.identified:
        values[term] = drive.value(term).copy()
        values[term][list(drive.column_motors)] = 0.0
    return drive.with_values(**values) if values else drive


def _check_drive(robot: Robot) -> None:
    drive = robot.drive
    if drive.actuation is not None and not drive.actuation.constant:
        raise UsageError(
            f"the actuation map of {robot.name!r} depends on q; adaptive control takes a constant"
            " one: robot.with_actuation(matrix)"
        )
    for shape, _ in drive.extra:
        if shape.needs_load:
            raise UsageError(
                f"drive term {shape.term!r} of {robot.name!r} depends on the load, which adaptive"
                " control does not know; leave it out"
            )


def slotine_li_regressor(
    robot: Robot, q: np.ndarray, dq: np.ndarray, dq_r: np.ndarray, ddq_r: np.ndarray
) -> np.ndarray:
    """Y, (…, nv, 10·bodies), with Y(q, q̇, q̇_r, q̈_r)·θ = D q̈_r + C(q, q̇) q̇_r + G, C as
    `coriolis_matrix` has it [Slotine1987].

    Linear in (q̇_r, q̈_r); with q̇_r = q̇ it is `regressor(robot, q, dq, ddq_r)`.
    """
    q, dq, ddq_r = batch.check_state(robot, q, dq, ddq_r, names=("dq", "ddq_r"))
    dq_r = batch.check_array(
        "dq_r", dq_r, robot.nv, f"one number per degree of freedom of {robot.name!r}"
    )
    if dq_r.shape != dq.shape:
        raise UsageError(
            f"dq has shape {dq.shape} but dq_r has {dq_r.shape}; give the same number of samples"
        )
    columns, tree = len(robot.theta), robot.tree
    out = np.empty((*dq.shape, columns))
    if not out.size:
        return out
    w = batch.Workspace(tree)
    batch.kernels().slotine_li.regressor(
        *tree.rigid_arrays,
        robot.kernel_values[1],
        *(batch.rows(a) for a in (q, dq, dq_r, ddq_r)),
        columns,
        w.nodes,
        w.directions,
        w.composite,
        out.reshape(-1, robot.nv * columns),
    )
    return out


class AdaptiveTerms:
    """Y·θ and Yᵀs of one robot without the matrix, prepared: fill `q`, `dq`, `dq_r`, `ddq_r`, `s`
    and `theta`, call, read `tau` and `gradient`.
    """

    def __init__(self, robot: Robot) -> None:
        tree, w, n = robot.tree, batch.Workspace(robot.tree), robot.nv
        theta, gravity, _ = robot.kernel_values
        self.theta = theta.copy()  # (10·bodies,)
        state = [np.zeros((1, robot.nq)), *(np.zeros((1, n)) for _ in range(4))]
        self.q, self.dq, self.dq_r, self.ddq_r, self.s = (array[0] for array in state)
        tau, gradient = np.zeros((1, n)), np.zeros((1, len(theta)))
        self.tau, self.gradient = tau[0], gradient[0]
        self._kernel = batch.kernels().slotine_li.torque_and_gradient
        scratch = (w.nodes, w.directions, w.composite, w.forces, w.torques)
        model = (*tree.rigid_arrays, gravity, self.theta)
        self._arguments = (*model, *state, *scratch, tau, gradient)
        self()  # compiles it now, not in the first cycle of a loop

    def __call__(self) -> None:
        """Fill `tau` (nv,) and `gradient` (10·bodies,)."""
        self._kernel(*self._arguments)
