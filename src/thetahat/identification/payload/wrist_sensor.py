"""Calibration of a wrist force/torque sensor from static poses: its bias, and the mass and centre
of mass of the tool that hangs on it.

At rest a sensor whose axes are rotated by Rᵢ reads fᵢ = uᵢ + b_f and τᵢ = c × uᵢ + b_t, where
uᵢ = exp(−δ) Rᵢᵀ m g. δ is the error of the sensor's mounting, and the direction of g that of the
robot's base. Biases of real sensors drift, and by more than their noise: each channel's noise is
white plus a random walk (bias_drift), so a drift neither moves the mass nor narrows its interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import stats
from scipy.spatial.transform import Rotation

from thetahat.data.wrist_poses import WristPoses
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification.payload.bias_drift import ChannelNoise, WalkBasis, channel_noise

SETTLED = 1.0  # [s] a sensor must have stood still before its reading counts
STILL = 0.01  # [rad] turned within that time
MOST = 400  # averages of standing rows at most
LEAST_POSES = 4
LEAST_TILT = np.deg2rad(2.0)  # RMS spread of gravity's direction in the second direction
LEVEL = 0.01  # of the tests that free the base's tilt and the mounting's rotation
SIGNIFICANT = 2.5  # standard deviations of a tilt or rotation that is kept
RESOLUTION = 1e-6  # of a channel's largest reading
STEPS = 30
FAR = 0.2  # [rad] of a mounting that a fit from zero might not find
MASS, TILT, MOUNT, CENTRE = slice(0, 1), slice(1, 3), slice(3, 6), slice(6, 9)
FORCE_BIAS, TORQUE_BIAS, SIZE = slice(9, 12), slice(12, 15), 15


@dataclass(frozen=True, eq=False)
class StandingPoses:
    """Readings at rest, averaged over stretches of standing still."""

    rotation: np.ndarray  # (n, 3, 3)
    wrench: np.ndarray  # (n, 6)
    order: np.ndarray  # (n,) time [s], or the number of the row
    rows: np.ndarray  # (n,) rows behind each
    moving: int  # rows left out
    source: str

    def __len__(self) -> int:
        return len(self.wrench)


@dataclass(frozen=True, eq=False)
class AxisMasses:
    """The tool's mass [kg] by each force axis alone."""

    masses: np.ndarray  # (3,), NaN where an axis shows none
    std: np.ndarray  # (3,)

    @cached_property
    def scatter(self) -> tuple[float, float]:
        """Spread [kg] between the axes beyond their noise, and the share of its variance that a
        mean over them keeps (DerSimonian and Laird 1986).
        """
        known = np.isfinite(self.masses) & (self.std > 0.0)
        if known.sum() < 2:
            return 0.0, 0.0
        weight, masses = 1.0 / self.std[known] ** 2, self.masses[known]
        mean = float(weight @ masses / weight.sum())
        excess = float(weight @ (masses - mean) ** 2) - (known.sum() - 1)
        scale = weight.sum() - float(weight @ weight) / weight.sum()
        share = float(weight @ weight) / weight.sum() ** 2
        return float(np.sqrt(max(excess, 0.0) / scale)), share


@dataclass(frozen=True, eq=False)
class SensorFit:
    """The calibrated sensor."""

    poses: StandingPoses
    gravity: np.ndarray  # (3,) [m/s²] in the world
    x: np.ndarray  # (15,) mass, tilt, mounting, centre of mass, force and torque bias
    free: np.ndarray  # (15,) bool
    covariance: np.ndarray  # (15, 15), zero where nothing was fitted
    noise: tuple[ChannelNoise, ...]  # of the six channels
    sign: float = 1.0  # −1: the sensor states the force that it exerts
    axes: AxisMasses | None = None

    @property
    def mass(self) -> float:
        """Mass of the tool [kg]."""
        return float(self.x[0])

    @property
    def centre(self) -> np.ndarray:
        """Centre of mass (3,) [m] in the sensor's axes."""
        return self.x[CENTRE]

    @property
    def force_bias(self) -> np.ndarray:
        """Force (3,) [N] that the unloaded sensor reads, the mean over the log."""
        return self.x[FORCE_BIAS]

    @property
    def torque_bias(self) -> np.ndarray:
        """Torque (3,) [N·m] that the unloaded sensor reads, the mean over the log."""
        return self.x[TORQUE_BIAS]

    @property
    def std(self) -> np.ndarray:
        """Standard deviations (15,), in the order of `x`."""
        return np.sqrt(np.diag(self.covariance))

    @cached_property
    def basis(self) -> WalkBasis:
        """Random walks along the poses."""
        return WalkBasis(self.poses.order)

    @cached_property
    def constant_residual(self) -> np.ndarray:
        """Readings less those of a tool with a constant bias, (n, 6)."""
        return np.asarray(self.poses.wrench - predicted(self.x, self.poses.rotation, self.gravity))

    @cached_property
    def drift(self) -> np.ndarray:
        """How far each bias is from its mean, (n, 6); zero in channels that do not drift."""
        channels = zip(self.noise, self.constant_residual.T, strict=True)
        return np.stack([noise.drift(r, self.basis) for noise, r in channels], axis=1)

    @property
    def residual(self) -> np.ndarray:
        """Readings less tool, bias and drift, (n, 6)."""
        return np.asarray(self.constant_residual - self.drift)


def standing_poses(poses: WristPoses) -> StandingPoses:
    """Average the rows in which the sensor stood still; a table without times has poses alone."""
    n = len(poses)
    if poses.time is None or n < 2:
        order = np.arange(n, dtype=float)
        return StandingPoses(poses.rotation, poses.wrench, order, np.ones(n, int), 0, poses.source)
    time = poses.time
    before = np.searchsorted(time, time - SETTLED)
    turned = Rotation.from_matrix(poses.rotation[before]).inv() * Rotation.from_matrix(
        poses.rotation
    )
    still = turned.magnitude() < STILL
    # what stands alone in time is a pose somebody recorded as such
    lone = np.diff(time, prepend=-np.inf) > SETTLED
    still |= lone & (np.diff(time, append=np.inf) > SETTLED)
    still &= (time - time[0] >= SETTLED) | lone
    if not still.any():
        raise NotIdentifiable(
            f"{poses.source}: the sensor never stands still for {SETTLED:g} s; record poses at"
            " rest, a few seconds each"
        )
    starts = np.flatnonzero(still & ~np.r_[False, still[:-1] & ~lone[1:]])
    stretch = np.cumsum(np.isin(np.arange(n), starts))[still]
    length = max(1, -(-int(still.sum()) // MOST))
    place = np.arange(len(stretch)) - np.searchsorted(stretch, stretch)
    _, block = np.unique(np.stack([stretch, place // length]), axis=1, return_inverse=True)
    count = np.bincount(block)
    first = np.searchsorted(block, np.arange(len(count)))

    def mean(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, first, axis=0) / count.reshape(-1, *[1] * (values.ndim - 1))

    rotation = Rotation.from_matrix(mean(poses.rotation[still])).as_matrix()
    return StandingPoses(
        rotation,
        mean(poses.wrench[still]),
        mean(time[still]),
        count,
        int(n - still.sum()),
        poses.source,
    )


def predicted(x: np.ndarray, rotation: np.ndarray, gravity: np.ndarray) -> np.ndarray:
    """Return the wrenches (n, 6) that a sensor with parameters x (15,) reads."""
    weight = _weights(x, rotation, gravity)
    force = weight + x[FORCE_BIAS]
    torque = np.cross(x[CENTRE], weight) + x[TORQUE_BIAS]
    return np.concatenate([force, torque], axis=1)


def _weights(x: np.ndarray, rotation: np.ndarray, gravity: np.ndarray) -> np.ndarray:
    """Weight of the tool (n, 3) [N] in the sensor's axes."""
    across = np.linalg.svd(gravity[None])[2][1:]  # two directions at right angles to gravity
    tilt = Rotation.from_rotvec(x[TILT] @ across)
    turned = np.einsum("nji,j->ni", rotation, tilt.apply(gravity))
    return np.asarray(x[0] * Rotation.from_rotvec(-x[MOUNT]).apply(turned))


def calibrate(poses: StandingPoses, gravity: np.ndarray) -> SensorFit:
    """Fit bias, mass and centre of mass; the base's tilt and the mounting where the data ask."""
    check_spread(poses)
    sign, mounting = _turned_mounting(poses, gravity)
    signed = replace(poses, wrench=sign * poses.wrench)
    basis = WalkBasis(poses.order)
    noise = _noise(signed, gravity, basis)
    free = np.ones(SIZE, dtype=bool)
    free[TILT] = False
    free[MOUNT] = mounting.any()
    start = _start(signed, gravity, mounting)
    fit = _fit(signed, gravity, noise, basis, free, start)
    for group in (TILT,) if mounting.any() else (MOUNT, TILT, MOUNT):  # each beside the other
        narrow, wide = fit.free.copy(), fit.free.copy()
        narrow[group], wide[group] = False, True
        start = np.where(narrow, fit.x, 0.0)
        without, other = (
            _fit(signed, gravity, noise, basis, free, start) for free in (narrow, wide)
        )
        fit = other if _earns(without, other, group) else without
    axes = _axis_masses(fit)
    scatter, share = axes.scatter
    covariance = fit.covariance.copy()
    covariance[0, 0] += share * scatter**2
    return replace(fit, covariance=covariance, sign=sign, axes=axes)


def check_spread(poses: StandingPoses) -> None:
    """Require enough poses that turn the sensor about two directions."""
    if len(poses) < LEAST_POSES:
        raise NotIdentifiable(
            f"{poses.source} has {len(poses)} pose{'s' if len(poses) != 1 else ''}; record at least"
            f" {LEAST_POSES} that tilt the sensor in different directions, better 20"
        )
    down = poses.rotation[:, 2, :]
    spread = np.sqrt(np.clip(np.linalg.eigvalsh(np.cov(down.T, bias=True)), 0.0, None))[::-1]
    if spread[1] < LEAST_TILT:
        angles = np.rad2deg(spread[:2])
        raise NotIdentifiable(
            f"{poses.source}: the poses hardly tilt the sensor (gravity's direction in its axes"
            f" spreads by {angles[0]:.2g}° and {angles[1]:.2g}°), so weight and bias cannot be told"
            " apart; add poses tilted by 30° or more about two axes"
        )


def _start(poses: StandingPoses, gravity: np.ndarray, mounting: np.ndarray) -> np.ndarray:
    """Plain least squares, forces first."""
    x = np.zeros(SIZE)
    x[0], x[MOUNT] = 1.0, mounting
    weight = _weights(x, poses.rotation, gravity)
    force, torque = poses.wrench[:, :3], poses.wrench[:, 3:]
    centred = weight - weight.mean(axis=0)
    x[0] = float(np.sum(centred * force) / np.sum(centred**2))
    x[FORCE_BIAS] = (force - x[0] * weight).mean(axis=0)
    columns = np.zeros((len(poses), 3, 6))
    columns[:, :, :3] = _cross_columns(x[0] * weight)
    columns[:, :, 3:] = np.eye(3)
    solution = np.linalg.lstsq(columns.reshape(-1, 6), torque.ravel(), rcond=None)[0]
    x[CENTRE], x[TORQUE_BIAS] = solution[:3], solution[3:]
    return x


def _cross_columns(weight: np.ndarray) -> np.ndarray:
    """Matrices (n, 3, 3) that take c to c × weight."""
    out = np.zeros((len(weight), 3, 3))
    out[:, 0, 1], out[:, 0, 2] = weight[:, 2], -weight[:, 1]
    out[:, 1, 0], out[:, 1, 2] = -weight[:, 2], weight[:, 0]
    out[:, 2, 0], out[:, 2, 1] = weight[:, 1], -weight[:, 0]
    return out


def _turned_mounting(poses: StandingPoses, gravity: np.ndarray) -> tuple[float, np.ndarray]:
    """Sign of the reading (−1: the force that the sensor exerts on the tool), and the rotation
    vector (3,) of a sensor whose axes are turned far from those stated.
    """
    weight = np.diff(np.einsum("nji,j->ni", poses.rotation, gravity), axis=0)
    force = np.diff(poses.wrench[:, :3], axis=0)
    gain = np.linalg.lstsq(weight, force, rcond=1e-6)[0].T
    if np.linalg.matrix_rank(weight, tol=FAR * np.linalg.norm(weight)) < 3:
        return (-1.0 if np.trace(gain) < 0.0 else 1.0), np.zeros(3)
    u, _, vt = np.linalg.svd(gain)
    sign = -1.0 if np.linalg.det(u @ vt) < 0.0 else 1.0  # of ±1: that of gain may overflow
    turned = Rotation.from_matrix(sign * (u @ vt))
    return sign, (-turned.as_rotvec() if turned.magnitude() > FAR else np.zeros(3))


def _noise(poses: StandingPoses, gravity: np.ndarray, basis: WalkBasis) -> tuple[ChannelNoise, ...]:
    """Noise of each channel, by a regression of its own that any tool and mounting satisfy."""
    weight = np.einsum("nji,j->ni", poses.rotation, gravity)
    columns = np.concatenate([weight, np.ones((len(poses), 1))], axis=1)
    floor = RESOLUTION * np.abs(poses.wrench).max(axis=0) + 1e-12
    return tuple(
        channel_noise(columns, values, basis, floor=float(least))
        for values, least in zip(poses.wrench.T, floor, strict=True)
    )


def _whitened(values: np.ndarray, noise: tuple[ChannelNoise, ...], basis: WalkBasis) -> np.ndarray:
    """Channels (n, 6, …) as independent numbers of variance 1, flat in the first two axes."""
    scales = np.stack([each.scales(basis) for each in noise], axis=1)
    components = basis.components(values.reshape(len(values), -1)).reshape(values.shape)
    scaled = components / scales.reshape(*scales.shape, *[1] * (values.ndim - 2))
    return np.asarray(scaled.reshape(-1, *values.shape[2:]))


def _fit(
    poses: StandingPoses,
    gravity: np.ndarray,
    noise: tuple[ChannelNoise, ...],
    basis: WalkBasis,
    free: np.ndarray,
    start: np.ndarray,
) -> SensorFit:
    """Gauss–Newton on the whitened readings."""
    x = start.copy()
    chosen = np.flatnonzero(free)
    for _ in range(STEPS):
        residual = _whitened(poses.wrench - predicted(x, poses.rotation, gravity), noise, basis)
        jacobian = _whitened(_jacobian(x, poses.rotation, gravity, chosen), noise, basis)
        q, r = np.linalg.qr(jacobian)
        step = np.linalg.lstsq(r, q.T @ residual, rcond=None)[0]
        x[chosen] += step
        if np.linalg.norm(r @ step) < 1e-8:
            break
    fit = SensorFit(poses, gravity, x, free, np.zeros((SIZE, SIZE)), noise)
    inverse = np.linalg.pinv(r)
    fit.covariance[np.ix_(chosen, chosen)] = _inflation(fit) * inverse @ inverse.T
    return fit


def _chi_squared(fit: SensorFit) -> float:
    return float(np.sum(_whitened(fit.constant_residual, fit.noise, fit.basis) ** 2))


def _inflation(fit: SensorFit) -> float:
    """χ² of the residuals by their degrees of freedom, where above 1."""
    dof = fit.poses.wrench.size - int(fit.free.sum())
    return max(1.0, _chi_squared(fit) / max(dof, 1))


def _jacobian(
    x: np.ndarray, rotation: np.ndarray, gravity: np.ndarray, chosen: np.ndarray
) -> np.ndarray:
    """Derivatives (n, 6, chosen) of the readings by central differences."""
    columns = []
    for k in chosen:
        step = np.zeros(SIZE)
        step[k] = 1e-5 * max(1.0, abs(x[k]))
        high, low = (predicted(x + s, rotation, gravity) for s in (step, -step))
        columns.append((high - low) / (2.0 * step[k]))
    return np.stack(columns, axis=2)


def _earns(fit: SensorFit, other: SensorFit, group: slice) -> bool:
    """Whether the readings ask for the wider model's additional parameters."""
    count = group.stop - group.start
    gain = (_chi_squared(fit) - _chi_squared(other)) / _inflation(other)
    sure = np.abs(other.x[group]) > SIGNIFICANT * other.std[group]
    limit = max(float(stats.chi2.isf(LEVEL, count)), count * np.log(6.0 * len(fit.poses)))
    return bool(gain > limit and sure.any())


def _axis_masses(fit: SensorFit) -> AxisMasses:
    poses, basis = fit.poses, fit.basis
    weight = _weights(fit.x, poses.rotation, fit.gravity) / fit.mass
    masses, deviations = np.full(3, np.nan), np.full(3, np.nan)
    for k in range(3):
        scale = fit.noise[k].scales(basis)
        columns = np.stack([weight[:, k], np.ones(len(poses))], axis=1)
        scaled = basis.components(columns) / scale[:, None]
        target = basis.components(poses.wrench[:, k]) / scale
        if np.linalg.matrix_rank(scaled) < 2:
            continue
        solution, *_ = np.linalg.lstsq(scaled, target, rcond=None)
        rest = target - scaled @ solution
        variance = max(1.0, float(rest @ rest) / max(len(target) - 2, 1))
        masses[k] = solution[0]
        deviations[k] = np.sqrt(variance * np.linalg.inv(scaled.T @ scaled)[0, 0])
    return AxisMasses(masses, deviations)


def held_out_rms(poses: StandingPoses, gravity: np.ndarray) -> np.ndarray:
    """RMS (6,) at every other pose, of a fit to the rest; drifts are interpolated."""
    if len(poses) < 2 * LEAST_POSES:
        return np.full(6, np.nan)
    fitted, other = (
        replace(
            poses,
            rotation=poses.rotation[part],
            wrench=poses.wrench[part],
            order=poses.order[part],
            rows=poses.rows[part],
        )
        for part in (slice(0, None, 2), slice(1, None, 2))
    )
    fit = calibrate(fitted, gravity)
    drift = np.stack([np.interp(other.order, fitted.order, d) for d in fit.drift.T], axis=1)
    expected = predicted(fit.x, other.rotation, gravity) + drift
    return np.asarray(np.sqrt(np.mean((fit.sign * other.wrench - expected) ** 2, axis=0)))


def require_gravity(gravity: tuple[float, ...]) -> np.ndarray:
    """Return the world's gravity (3,) [m/s²]."""
    vector = np.asarray(gravity, dtype=float)
    size = float(np.linalg.norm(vector))
    if not 0.1 < size < 100.0:
        raise UsageError(f"--gravity is {gravity}; give a vector of 0.1 to 100 m/s²")
    return vector
