"""Rigid-body dynamics, D(q)q̈ + C(q, q̇)q̇ + G(q) = U (paper, eq. eom): checked calls of the
kernels.

Every function takes one sample ``(n,)`` or many ``(samples, n)`` and returns arrays with the same
leading axis. `out` fills an array you hand in; `threads` bounds the cores used (default: all of
them, once there are enough samples). Friction, offset and rotor inertia of the robot's drive are
included unless ``rigid=True``.
"""

from __future__ import annotations

import numpy as np

from thetahat.dynamics import batch
from thetahat.errors import UnphysicalRobot, UsageError
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import ANGULAR, DOF_COUNT, FIRST_DOF, PARENT, V_INDEX

# Rough cost [µs] per sample of a recursion per node, of pairs of joints per joint, of a regressor
# per byte: for the choice of threads.
_RECURSION, _PAIRS, _BYTES = 0.02, 0.05, 1e-4
# A pivot of the mass matrix below this fraction of the terms it is the difference of is nothing but
# their rounding.
_SINGULAR = 1e-13
_TOO_LARGE = 1e75  # squares and products of larger numbers overflow


def _finite(name: str, value: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
    """A copy of `value` as contiguous doubles of this shape, all finite."""
    try:
        array = np.array(value, dtype=float, order="C")
    except (TypeError, ValueError):
        raise UsageError(
            f"{name} is not an array of real numbers; expected shape {shape}, {what}"
        ) from None
    if array.shape != shape:
        raise UsageError(f"{name} has shape {array.shape}; expected {shape}, {what}")
    if not np.all(np.isfinite(array)):
        bad = np.argwhere(~np.isfinite(array))[0]
        raise UsageError(
            f"{name}[{', '.join(map(str, bad))}] is {array[tuple(bad)]}; every entry must be a"
            " finite number"
        )
    return array


def _theta(robot: Robot, theta: np.ndarray | None) -> np.ndarray:
    if theta is None:
        return robot.kernel_values[0]
    return _finite("theta", theta, robot.theta.shape, f"ten numbers per body of {robot.name!r}")


def _wrenches(robot: Robot, wrenches: np.ndarray | None, lead: tuple[int, ...]) -> np.ndarray:
    """External wrenches as (samples, 6·bodies), without columns where there are none."""
    if wrenches is None:
        return np.empty((lead[0] if lead else 1, 0))
    shape = (*lead, len(robot.tree.bodies), 6)
    wrenches = _finite(
        "wrenches", wrenches, shape, "per body a couple, then a force, in body axes at its origin"
    )
    return wrenches.reshape(lead[0] if lead else 1, shape[-2] * 6)


def _count(q: np.ndarray) -> int:
    """Samples in a checked q."""
    return q.shape[0] if q.ndim == 2 else 1


# -- inverse and forward dynamics ------------------------------------------------------------------


def inverse_dynamics(
    robot: Robot,
    q: np.ndarray,
    dq: np.ndarray,
    ddq: np.ndarray,
    *,
    rigid: bool = False,
    wrenches: np.ndarray | None = None,
    theta: np.ndarray | None = None,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Compute joint torques U = D q̈ + C q̇ + G + friction + rotor inertia − Jᵀ·wrenches by the
    recursive Newton–Euler algorithm [Featherstone2008].

    wrenches: (…, bodies, 6), external couple and force on every body, in its axes at its origin.
    theta: other parameters than the robot's own.
    """
    q, dq, ddq = batch.check_state(robot, q, dq, ddq)
    driven = not rigid and not robot.drive.is_zero
    if driven and out is not None:
        # the drive is added last and needs the inputs, one of which `out` may be
        q, dq, ddq = (a.copy() if np.may_share_memory(a, out) else a for a in (q, dq, ddq))
    out = batch.result(out, dq.shape)
    kernel = batch.kernels().rnea.inverse_dynamics
    fixed = (*robot.tree.rigid_arrays, robot.kernel_values[1], _theta(robot, theta))

    def call(w: batch.Workspace, *arrays: np.ndarray) -> None:
        kernel(*fixed, *arrays[:-1], w.nodes, w.directions, w.forces, w.torques, arrays[-1])

    states = (batch.rows(q), batch.rows(dq), batch.rows(ddq))
    external = _wrenches(robot, wrenches, q.shape[:-1])
    cost = _RECURSION * len(robot.tree.nodes)
    batch.run(robot, threads, cost, call, *states, external, batch.rows(out))
    if driven:
        out += robot.drive.torque(dq, ddq, q=q, load=out)
    return out


def forward_dynamics(
    robot: Robot,
    q: np.ndarray,
    dq: np.ndarray,
    tau: np.ndarray,
    *,
    rigid: bool = False,
    wrenches: np.ndarray | None = None,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Compute accelerations q̈ from joint torques, the inverse of `inverse_dynamics`.

    Articulated bodies [Featherstone2008]; with mimic joints, or rotors that tie joints together, a
    Cholesky factor of GᵀDG. A robot whose mass matrix is singular raises `UnphysicalRobot`, naming
    the link.
    """
    q, dq, tau = batch.check_state(robot, q, dq, tau, names=("dq", "tau"))
    out = batch.result(out, dq.shape)
    if not rigid and not robot.drive.is_zero:
        tau = tau - robot.drive.friction(dq, q=q)
    external = _wrenches(robot, wrenches, q.shape[:-1])
    if robot.tree.has_mimic or (robot.drive.couples_joints and not rigid):
        out[...] = _forward_by_mass_matrix(
            robot, q, dq, tau, rigid=rigid, wrenches=wrenches, threads=threads
        )
        return out
    theta, g, armature = robot.kernel_values
    kernel = batch.kernels().aba.forward_dynamics
    fixed = (*robot.tree.rigid_arrays, g, theta, robot.tree.zero_rates if rigid else armature)

    def call(w: batch.Workspace, *arrays: np.ndarray) -> None:
        scratch = (w.nodes, w.directions, w.table, w.articulated, w.elimination)
        kernel(*fixed, *arrays[:-2], *scratch, *arrays[-2:])

    pivots = np.empty((_count(q), 1))
    states = (batch.rows(q), batch.rows(dq), batch.rows(tau))
    cost = 3 * _RECURSION * len(robot.tree.nodes)
    batch.run(robot, threads, cost, call, *states, external, batch.rows(out), pivots)
    if robot.tree.nodes and not pivots.min(initial=1.0) >= _SINGULAR:  # it may be NaN
        largest = max(np.max(np.abs(a), initial=0.0) for a in (q, dq, tau, external))
        if largest > _TOO_LARGE:
            raise UsageError(
                f"q, dq, tau or wrenches hold a number of size {largest:.3g}, of which no"
                " acceleration can be computed; check their units"
            )
        raise _singular(
            robot, mass_matrix(robot, batch.rows(q)[~(pivots[:, 0] >= _SINGULAR)], rigid=rigid)
        )
    return out


def _forward_by_mass_matrix(
    robot: Robot,
    q: np.ndarray,
    dq: np.ndarray,
    tau: np.ndarray,
    *,
    rigid: bool,
    wrenches: np.ndarray | None,
    threads: int | None,
) -> np.ndarray:
    """Compute q̈ = (GᵀDG)⁻¹(τ − bias), for mimic joints and coupled rotors."""
    D = mass_matrix(robot, q, rigid=rigid, threads=threads)
    bias = inverse_dynamics(
        robot, q, dq, np.zeros_like(dq), rigid=True, wrenches=wrenches, threads=threads
    )
    try:
        factor = np.linalg.cholesky(D)
    except np.linalg.LinAlgError:
        raise _singular(robot, D) from None
    if np.any(np.einsum("...ii->...i", factor) ** 2 < _SINGULAR * np.einsum("...ii->...i", D)):
        raise _singular(robot, D)
    half = np.linalg.solve(factor, (tau - bias)[..., None])
    return np.linalg.solve(np.swapaxes(factor, -1, -2), half)[..., 0]


def _singular(robot: Robot, D: np.ndarray) -> UnphysicalRobot:
    """Build the error for a singular mass matrix, naming the joints without inertia."""
    robot.require_physical("forward dynamics")
    D = D.reshape(-1, robot.nv, robot.nv)
    D = D[int(np.argmin(np.min(np.linalg.eigvalsh(D), axis=1)))]
    d = np.diag(D)
    joint = np.array(
        [k for k, node in enumerate(robot.tree.independent) for _ in range(node.kind.nv)]
    )
    if np.min(d) > _SINGULAR * np.max(d):
        # the motion without kinetic energy
        idle = np.abs(np.linalg.eigh(D / np.sqrt(np.outer(d, d)))[1][:, 0])
        joints = dict.fromkeys(joint[idle > 0.3 * np.max(idle)])
    else:
        joints = {joint[int(np.argmin(d))]: None}
    nodes = [robot.tree.independent[k] for k in joints]
    named = " and ".join(f"{node.name!r} (link {node.body or node.name!r})" for node in nodes)
    if len(nodes) > 1:
        return UnphysicalRobot(
            f"the mass matrix of {robot.name!r} is singular: joints {named} can move against one"
            " another without any inertia; give the links between them mass and inertia, or the"
            " joints an armature"
        )
    return UnphysicalRobot(
        f"the mass matrix of {robot.name!r} is singular: joint {named} can move without any"
        " inertia; give the link mass and inertia, or the joint an armature"
    )


# -- the three terms -------------------------------------------------------------------------------


def mass_matrix(
    robot: Robot,
    q: np.ndarray,
    *,
    rigid: bool = False,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Compute the mass matrix D(q), (…, nv, nv), from composite bodies, with the rotors' inertia
    unless `rigid`.
    """
    (q,) = batch.check_state(robot, q)
    n, kernel = robot.nv, batch.kernels().crba.mass_matrix
    fixed = (*robot.tree.rigid_arrays, robot.kernel_values[0], n)
    out = batch.result(out, (*q.shape[:-1], n, n))

    def call(w: batch.Workspace, q: np.ndarray, out: np.ndarray) -> None:
        kernel(*fixed, q, w.nodes, w.directions, w.composite, w.matrix, out)

    batch.run(robot, threads, _PAIRS * n, call, batch.rows(q), out.reshape(_count(q), n * n))
    if not rigid and np.any(robot.drive.armature):
        out += robot.drive.joint_armature(q)
    return out


def mass_matrix_by_bodies(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Compute D(q) = Σ_i J_iᵀ I_{O_i} J_i body by body, as in the paper (eq. totalkineticenergy)."""
    (q,) = batch.check_state(robot, q)
    tensors = parameters.to_spatial_inertia(robot.theta.reshape(-1, 10))
    D = np.zeros((*q.shape[:-1], robot.nv, robot.nv))
    for body, I_O in zip(robot.body_names, tensors, strict=True):
        J = body_jacobian(robot, q, body)
        D += np.swapaxes(J, -1, -2) @ I_O @ J
    return D


def coriolis_matrix(
    robot: Robot,
    q: np.ndarray,
    dq: np.ndarray,
    *,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Compute the Coriolis matrix C(q, q̇), (…, nv, nv), with C q̇ exact and Ḋ − 2C skew
    [Echeandia2021].

    For one-DOF joints these are the Christoffel symbols' C_ij = Σ_k Γ_ijk q̇_k (paper, eq.
    coriolisdetails).
    """
    q, dq = batch.check_state(robot, q, dq)
    n, kernel = robot.nv, batch.kernels().crba.coriolis_matrix
    theta, g, _ = robot.kernel_values
    fixed = (*robot.tree.rigid_arrays, theta, n)
    out = batch.result(out, (*q.shape[:-1], n, n))

    def call(w: batch.Workspace, q: np.ndarray, dq: np.ndarray, out: np.ndarray) -> None:
        kernel(*fixed, q, dq, w.nodes, w.directions, w.composite, w.matrix, g, out)

    matrices = out.reshape(_count(q), n * n)
    batch.run(robot, threads, 2 * _PAIRS * n, call, batch.rows(q), batch.rows(dq), matrices)
    return out


def gravity(
    robot: Robot, q: np.ndarray, *, out: np.ndarray | None = None, threads: int | None = None
) -> np.ndarray:
    """Compute the gravity torque G(q) = ∂V/∂q, (…, nv), which holds the robot still."""
    (q,) = batch.check_state(robot, q)
    still = np.zeros((*q.shape[:-1], robot.nv))
    return inverse_dynamics(robot, q, still, still, rigid=True, out=out, threads=threads)


# -- energy ----------------------------------------------------------------------------------------


def kinetic_energy_regressor(
    robot: Robot, q: np.ndarray, dq: np.ndarray, *, threads: int | None = None
) -> np.ndarray:
    """Compute Y_T, (…, 10·bodies), with T = Y_T·θ: ½ ωᵀĪω + (m·c)·(v × ω) + ½ m v·v, ω and v in
    body axes (paper, eq. energysubs).
    """
    q, dq = batch.check_state(robot, q, dq)
    R, p = _node_frames(robot, q, threads=threads)
    w, v = _node_velocities(robot, R, p, dq)
    bodies = list(robot.tree.bodies)
    to_body = np.swapaxes(R[..., bodies, :, :], -1, -2)
    w, v = ((to_body @ a[..., bodies, :, None])[..., 0] for a in (w, v))
    Y = np.empty((*w.shape[:-1], 10))
    for column, (i, j) in zip(parameters.INERTIA, parameters.INERTIA_ENTRIES, strict=True):
        Y[..., column] = (0.5 if i == j else 1.0) * w[..., i] * w[..., j]
    Y[..., list(parameters.FIRST_MOMENT)] = np.cross(v, w)
    Y[..., parameters.M] = 0.5 * np.sum(v * v, axis=-1)
    return Y.reshape(*q.shape[:-1], len(robot.theta))


def _node_velocities(
    robot: Robot, R: np.ndarray, p: np.ndarray, dq: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """ω and v of every node's origin in world axes, (…, nodes, 3): ω_i = ω_p + Σ z q̇, v_i = v_p +
    ω_p × r + Σ z q̇.
    """
    arrays = robot.tree.arrays
    w, v = np.zeros_like(p), np.zeros_like(p)
    for i, (parent, first, count) in enumerate(arrays.topology[:, [PARENT, FIRST_DOF, DOF_COUNT]]):
        if parent >= 0:
            w[..., i, :] = w[..., parent, :]
            v[..., i, :] = v[..., parent, :] + np.cross(
                w[..., parent, :], p[..., i, :] - p[..., parent, :]
            )
        for e in range(first, first + count):
            rate = (
                arrays.axes[e, 3]
                * dq[..., arrays.dofs[e, V_INDEX], None]
                * (R[..., i, :, :] @ arrays.axes[e, :3])
            )
            moved = w if arrays.dofs[e, ANGULAR] else v
            moved[..., i, :] += rate
    return w, v


def potential_energy_regressor(
    robot: Robot, q: np.ndarray, *, threads: int | None = None
) -> np.ndarray:
    """Compute Y_V, (…, 10·bodies), with V = Y_V·θ; V is zero with all mass at the world's origin."""
    R, p = body_frames(robot, q, threads=threads)
    Y = np.zeros((*p.shape[:-1], 10))
    # V = −g·(m p + R m·c) (paper, eq. potentialmod)
    Y[..., list(parameters.FIRST_MOMENT)] = -robot.gravity @ R
    Y[..., parameters.M] = -p @ robot.gravity
    return Y.reshape(*p.shape[:-2], len(robot.theta))


def kinetic_energy(
    robot: Robot, q: np.ndarray, dq: np.ndarray, *, rigid: bool = False
) -> np.ndarray:
    """Compute T = ½ q̇ᵀ D q̇ [J] of every sample, rotors included unless `rigid`."""
    energy: np.ndarray = kinetic_energy_regressor(robot, q, dq) @ robot.theta
    if not rigid and np.any(robot.drive.armature):
        dq = np.asarray(dq, dtype=float)
        energy = energy + 0.5 * np.einsum(
            "...i,...ij,...j->...", dq, robot.drive.joint_armature(q), dq
        )
    return energy


def potential_energy(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Compute V(q) = −Σ m_i g·p_i [J] of every sample (paper, eq. potentialenergy)."""
    energy: np.ndarray = potential_energy_regressor(robot, q) @ robot.theta
    return energy


# -- the regressor ---------------------------------------------------------------------------------


def regressor(
    robot: Robot,
    q: np.ndarray,
    dq: np.ndarray,
    ddq: np.ndarray,
    *,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Compute the regressor Y, (…, nv, 10·bodies), with Y(q, q̇, q̈)·θ = D q̈ + C q̇ + G (paper,
    eq. separatedeom), in O(bodies × depth).
    """
    tree, kernel, g = robot.tree, batch.kernels().regressor.regressor, robot.kernel_values[1]
    rows, columns = tree.nv, 10 * len(tree.bodies)
    state = batch.one_sample(tree, q, dq, ddq)
    if state is None:
        q, dq, ddq = batch.check_state(robot, q, dq, ddq)
        state = [batch.rows(q), batch.rows(dq), batch.rows(ddq)]
    out = batch.result(out, (*q.shape[:-1], rows, columns))
    if not out.size:
        return out

    def call(
        w: batch.Workspace, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, out: np.ndarray
    ) -> None:
        kernel(*tree.arrays, g, q, dq, ddq, w.nodes, w.directions, w.rows, out)

    matrices = out[None] if q.ndim == 1 else out
    batch.run(robot, threads, _BYTES * 8 * rows * columns, call, *state, matrices)
    return out


def static_regressor(
    robot: Robot, q: np.ndarray, *, out: np.ndarray | None = None, threads: int | None = None
) -> np.ndarray:
    """Compute the regressor at rest, with Y·θ = G(q)."""
    (q,) = batch.check_state(robot, q)
    still = np.zeros((*q.shape[:-1], robot.nv))
    return regressor(robot, q, still, still, out=out, threads=threads)


# -- kinematics ------------------------------------------------------------------------------------


def body_jacobian(robot: Robot, q: np.ndarray, body: str) -> np.ndarray:
    """Compute J_i(q), (…, 6, nv): v_{O_i} = J_i q̇, the body's twist at its origin, in its axes,
    angular first (paper, eq. bodyvelocity).
    """
    (q,) = batch.check_state(robot, q)
    node, arrays = robot.tree.bodies[robot.body_index(body)], robot.tree.arrays
    R, p = _node_frames(robot, q)
    to_body = np.swapaxes(R[..., node, :, :], -1, -2)
    J = np.zeros((*q.shape[:-1], 6, robot.nv))
    j = node
    while j >= 0:
        for e in range(
            arrays.topology[j, FIRST_DOF],
            arrays.topology[j, FIRST_DOF] + arrays.topology[j, DOF_COUNT],
        ):
            v, (*axis, ratio) = arrays.dofs[e, V_INDEX], arrays.axes[e]
            z = R[..., j, :, :] @ np.array(axis)
            linear = np.cross(z, p[..., node, :] - p[..., j, :]) if arrays.dofs[e, ANGULAR] else z
            J[..., 3:, v] += ratio * (to_body @ linear[..., None])[..., 0]
            if arrays.dofs[e, ANGULAR]:
                J[..., :3, v] += ratio * (to_body @ z[..., None])[..., 0]
        j = arrays.topology[j, PARENT]
    return J


def body_frames(
    robot: Robot, q: np.ndarray, *, threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute rotation (…, bodies, 3, 3) and position (…, bodies, 3) [m] of every body's frame in
    the world.
    """
    R, p = _node_frames(robot, q, threads=threads)
    bodies = list(robot.tree.bodies)
    return R[..., bodies, :, :], p[..., bodies, :]


def _node_frames(
    robot: Robot, q: np.ndarray, *, threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and position of every node."""
    (q,) = batch.check_state(robot, q)
    tree, kernel = robot.tree, batch.kernels().frames.frames
    out = np.empty((*q.shape[:-1], len(tree.nodes), 12))

    def call(w: batch.Workspace, q: np.ndarray, out: np.ndarray) -> None:
        kernel(*tree.rigid_arrays, q, w.nodes, w.directions, out)

    frames = out.reshape(_count(q), 12 * len(tree.nodes))
    batch.run(robot, threads, _RECURSION * len(tree.nodes), call, batch.rows(q), frames)
    return out[..., :9].reshape(*out.shape[:-1], 3, 3), out[..., 9:]
