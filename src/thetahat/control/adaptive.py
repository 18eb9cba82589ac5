"""Adaptive control of Slotine and Li: tracks while it learns.

    q̃ = q − q_d,   q̇_r = q̇_d − Λ q̃,   s = q̃̇ + Λ q̃,   q̈_r = q̈_d − Λ q̃̇ − κ s
    U = Y(q, q̇, q̇_r, q̈_r)·Θ̂ + friction(q̇_r)
    Θ̂ moves along −Yᵀ s_Δ as its law says (adaptation_laws.py)

Y·Θ = D q̈_r + C q̇_r + G with Ḋ − 2C skew. The term −κ s in q̈_r is a damping K = κ D(q), so D⁻¹K
has the one eigenvalue κ in every posture [Slotine1987]: with the true Θ the error has the poles −Λ
and −κ. A diagonal K that suits the heaviest posture has eigenvalues of 1,500 rad/s at a wrist.

What is proved, and under which conditions: where torques act at once, samples are exact, the model
has every force, and the dead zone is zero, V = ½ sᵀD s + distance(Θ̂, Θ) falls as V̇ ≤ −κ sᵀD s,
so the error goes to zero whatever the masses are. No robot is like that. With delay, noise and
friction that is not in the model there is no such proof; instead

    delay        Λ = κ ≤ 0.15/delay, so that the loop's crossover, about Λ + κ, loses 0.3 rad of
                 phase by the stated delay; `delay_margin` is what the loop bears in all, with
                 believed inertias that are twice the true ones
    adaptation   acts like an integral gain of (D⁻¹YΓYᵀ)^½ rad/s; by default γ keeps it below κ
    dead zone    s_Δ = s less at most `dead_zone`: noise does not teach
    standing     nothing is learned while the wanted motion rests: there any force that holds
                 (static friction, contact) reads as mass

Friction is evaluated at the reference speed: it does not chatter, and as friction grows with speed
it only makes V̇ smaller (s·(f(q̇) − f(q̇_r)) ≥ 0). Nothing is learned from a cycle in which a torque
was cut or a sample was unusable.
"""

from __future__ import annotations

import numpy as np

from thetahat.control.adaptation_laws import Law, LogDet, drive_values, dual
from thetahat.control.computed_torque import ModelController
from thetahat.control.controller import Reference
from thetahat.control.torque_limits import POSTURES, PerJoint, per_joint
from thetahat.dynamics import batch, configuration, rigid_body
from thetahat.errors import UsageError, check_positive
from thetahat.model import parameters
from thetahat.model.drive import Drive
from thetahat.model.robot import Robot

LONGEST = 0.05  # [s] between samples over which a gradient may be held: beyond it the loop stalled
BANDWIDTH = 10.0  # [1/s], where the delay allows it
PHASE = 0.15  # [rad] of Λ·delay, and of κ·delay
DELAY = 0.005  # [s] from a measurement to its torque, unless told
DEAD_ZONE = 0.02  # [rad/s or m/s]: 16-bit encoders, differentiated and filtered, make less
RESTING = 1e-3  # [rad/s or m/s] of the wanted motion: slower is standing
INERTIA_RATIO = 2.0  # by which believed inertias may exceed the true ones, in `delay_margin`


class SlotineLi(ModelController):
    """Adaptive computed torque; `adapted` is the robot as it is believed to be now.

    Args:
        robot: the guess; its drive terms to be identified (`with_drive`) adapt too, the others are
            taken as they are.
        law: `LogDet` (physical at every moment) or `Euclidean`; by default a `LogDet` whose γ keeps
            the adaptation no quicker than the damping (`suitable_gamma`).
        bandwidth: Λ [1/s], of the error once s is zero; by default 10, or 0.15/delay if that is
            less.
        damping: K [N·m·s/rad], the same in every posture; by default κ D(q), κ = Λ.
        delay: [s] from a measurement to the torque that answers it.
        dead_zone: [rad/s or m/s] of s that teaches nothing.
        limits: as of `ComputedTorque`.
        max_speed: as of `ComputedTorque`.

    """

    def __init__(
        self,
        robot: Robot,
        law: Law | None = None,
        *,
        bandwidth: PerJoint | None = None,
        damping: PerJoint | None = None,
        delay: float = DELAY,
        dead_zone: PerJoint = DEAD_ZONE,
        limits: bool | PerJoint = True,
        max_speed: PerJoint | None = None,
    ) -> None:
        super().__init__(robot, limits, "adaptive control", physical=True, max_speed=max_speed)
        _check_drive(robot)
        check_positive("delay", delay)
        usual = min(BANDWIDTH, PHASE / delay)
        self.delay = float(delay)
        self.bandwidth = per_joint("bandwidth", usual if bandwidth is None else bandwidth, robot.nv)
        self.dead_zone = per_joint("dead_zone", dead_zone, robot.nv)
        self.damping = None if damping is None else per_joint("damping", damping, robot.nv)
        self.rate = float(np.min(self.bandwidth)) if damping is None else 0.0  # κ [1/s]
        self._check_margin()
        if law is None:
            law = LogDet(gamma=suitable_gamma(robot, self.rate or BANDWIDTH))
        self.law = law
        self.state = self.law.begin(robot)
        fixed = _fixed_terms(robot.drive)
        self._fixed = None if fixed.is_zero else fixed
        self._adapts_drive = bool(robot.drive.column_count)
        self._terms = AdaptiveTerms(robot)
        self._terms.theta[:] = self.state.theta
        self._columns = np.zeros((robot.nv, robot.drive.column_count))
        self._resting = True
        # time, Yᵀs of bodies and of drives
        self._pending: tuple[float, np.ndarray, np.ndarray] | None = None

    @property
    def fastest(self) -> float:
        """[rad/s] The largest eigenvalue of D⁻¹K over random postures: κ, by default."""
        if self.damping is None:
            return self.rate
        return fastest_damping(self.robot, self.damping)

    @property
    def delay_margin(self) -> float:
        """[s] of delay, from measurement to torque, that the linear loop bears in its fastest
        direction, the believed inertia twice the true one: the phase margin over the crossover of
        (a s + b)/s², a = 2(Λ + κ), b = 2κΛ.
        """
        top, fast = float(np.max(self.bandwidth)), self.fastest
        a, b = INERTIA_RATIO * (top + fast), INERTIA_RATIO * top * fast
        crossover = np.sqrt(0.5 * (a * a + np.sqrt(a**4 + 4.0 * b * b)))
        return float(np.arctan2(a * crossover, b) / crossover)

    def _check_margin(self) -> None:
        if self.delay_margin < self.delay:
            raise UsageError(
                f"with bandwidth {np.max(self.bandwidth):.4g} and damping of up to"
                f" {self.fastest:.4g} rad/s (D⁻¹K) the loop bears {self.delay_margin * 1e3:.3g} ms"
                f" of delay, but delay is {self.delay * 1e3:.3g} ms; leave bandwidth and damping to"
                " their defaults, or lower them"
            )

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
        s = dq - dq_r
        return s, dq_r, ddq_d - self.bandwidth * (dq - dq_d) - self.rate * s

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
        terms.q[:], terms.dq[:], terms.dq_r[:], terms.ddq_r[:] = q, dq, dq_r, ddq_r
        terms.s[:] = s - np.minimum(np.maximum(s, -self.dead_zone), self.dead_zone)
        terms()
        tau: np.ndarray = terms.tau if self.damping is None else terms.tau - self.damping * s
        self._resting = float(np.max(np.abs(wanted[1]))) < RESTING
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
        # a torque that was cut teaches the wrong thing, as does one at rest
        if not self._resting and (self.limits is None or not self.saturated.any()):
            self._pending = (t, self._terms.gradient.copy(), self._columns.T @ self._terms.s)

    def _rejected(self) -> None:
        self._pending = None


def fastest_damping(robot: Robot, damping: np.ndarray) -> float:
    """[rad/s] The largest eigenvalue of D(q)⁻¹K, K = diag(damping) (nv,), over random postures."""
    q = configuration.random_configuration(robot, np.random.default_rng(0), POSTURES)
    root = np.sqrt(damping)
    inverse = np.linalg.inv(rigid_body.mass_matrix(robot, q))
    return float(np.max(np.linalg.eigvalsh(root[:, None] * inverse * root)))


def suitable_gamma(robot: Robot, frequency: float) -> float:
    """γ [J] of `LogDet` with which the adaptation at the guess is an integral action of at most
    `frequency` [rad/s]: γ = max λ(D⁻¹ Y Γ₁ Yᵀ)/frequency², Γ₁ the law's metric at γ = 1, over
    random postures at accelerations of up to 5 rad/s².
    """
    rng = np.random.default_rng(0)
    q = configuration.random_configuration(robot, rng, POSTURES)
    dq, ddq = rng.uniform(-1.0, 1.0, (2, POSTURES, robot.nv))
    Y = slotine_li_regressor(robot, q, dq, dq, 5.0 * ddq)
    theta = robot.theta.reshape(-1, parameters.SIZE)
    P = parameters.to_pseudo_inertia(parameters.project(theta))
    P[theta[:, parameters.M] <= 0.0] = 0.0
    rows = Y.reshape(-1, len(theta), parameters.SIZE)  # of every joint in every posture
    L = dual(rows.reshape(-1, parameters.SIZE)).reshape(len(rows), len(theta), 4, 4)
    moved = parameters.from_pseudo_inertia(P @ L @ P).reshape(POSTURES, robot.nv, -1)
    A = np.einsum("kip,kjp->kij", Y, moved)
    factor = np.linalg.cholesky(rigid_body.mass_matrix(robot, q))
    half = np.linalg.solve(factor, A)
    scaled = np.linalg.solve(factor, np.swapaxes(half, 1, 2))
    largest = float(np.max(np.linalg.eigvalsh(0.5 * (scaled + np.swapaxes(scaled, 1, 2)))))
    return max(largest, 1e-12) / frequency**2


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
