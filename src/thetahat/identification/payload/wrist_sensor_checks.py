"""Mistakes in a table of poses that would pass for a tool: axes, frames, order of a quaternion.

Each is a hypothesis of how the readings were made. Hypotheses are compared by how well they
explain the change from one pose to the next, so that a drifting bias does not count.
"""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
from scipy.spatial.transform import Rotation

from thetahat.errors import MalformedInput
from thetahat.identification.payload.wrist_sensor import LEAST_POSES, StandingPoses

CLEAR = 0.5  # times the residual as stated: another reading of the table explains it better
EXPLAINED = 0.2  # of the changes' RMS: what is left by a reading that is right
SPREAD = 0.1  # RMS of gravity's direction in the third direction, to tell a mirrored sensor
NEAR = np.deg2rad(45.0)  # of a sensor's mounting
AXES = "xyz"
CONSTANT = 0.1  # of the mean force: changes below are noise
WORLD = (
    "{}: the wrench looks as if it were stated in the world's axes and not in the sensor's; give"
    " --wrench-frame world"
)


def check_readings(poses: StandingPoses) -> None:
    """Raise an error where another reading of the table explains it, and this one does not.

    Tables too short for any calibration pass: `calibrate` refuses them.
    """
    if len(poses) < LEAST_POSES:
        return
    _check_frames(poses)
    _check_mirrored(poses)


def _check_frames(poses: StandingPoses) -> None:
    rotation, force = poses.rotation, poses.wrench[:, :3]
    if _stands_in_the_world(poses):
        raise MalformedInput(WORLD.format(poses.source))
    identity = np.broadcast_to(np.eye(3), rotation.shape)
    turned = np.swapaxes(rotation, 1, 2)
    stated = _rest(turned, identity, force)
    if stated < EXPLAINED:
        return
    limit = min(CLEAR * stated, EXPLAINED)
    if _rest(np.swapaxes(_scalar_first(rotation), 1, 2), identity, force) < limit:
        raise MalformedInput(
            f"{poses.source}: the quaternions look as if their scalar came first; name their"
            " columns qw, qx, qy, qz in that order"
        )
    if _rest(rotation, identity, force) >= limit:
        return
    # a turning weight beside a constant bias, or a turning bias beside a constant weight
    columns = np.concatenate([rotation, identity], axis=2).reshape(-1, 6)
    found = np.linalg.lstsq(columns, force.ravel(), rcond=None)[0]
    turning, constant = (
        abs(v[2]) / max(float(np.linalg.norm(v)), 1e-12) for v in (found[:3], found[3:])
    )
    if turning > constant:
        raise MalformedInput(
            f"{poses.source}: the quaternions look inverted (they state the orientation of the"
            " world in the sensor); conjugate them"
        )
    raise MalformedInput(WORLD.format(poses.source))


def _stands_in_the_world(poses: StandingPoses) -> bool:
    """Whether the force stays the same while the sensor tilts, and the torque turns as that of a
    weight does which is stated in the world: of a sensor that was zeroed.
    """
    down = -poses.rotation[:, 2, :]
    force, torque = poses.wrench[:, :3], poses.wrench[:, 3:]
    mean = force.mean(axis=0)
    rest = float(np.sqrt(np.mean(np.sum((force - mean) ** 2, axis=1))))
    if np.linalg.eigvalsh(np.cov(down.T, bias=True))[1] < SPREAD**2:
        return False
    if rest > CONSTANT * float(np.linalg.norm(mean)):
        return False
    # τ = (R c) × f = −[f]× R c
    f = np.array([[0, -mean[2], mean[1]], [mean[2], 0, -mean[0]], [-mean[1], mean[0], 0]])
    columns = np.diff(-f @ poses.rotation, axis=0).reshape(-1, 3)
    changes = np.diff(torque, axis=0).ravel()
    centre = np.linalg.lstsq(columns, changes, rcond=1e-9)[0]
    total = max(float(np.linalg.norm(changes)), 1e-12)
    return float(np.linalg.norm(changes - columns @ centre)) / total < EXPLAINED


def _scalar_first(rotation: np.ndarray) -> np.ndarray:
    """Rotations (n, 3, 3) of the same numbers, read as (w, x, y, z)."""
    quaternion = Rotation.from_matrix(rotation).as_quat()
    return np.asarray(Rotation.from_quat(np.roll(quaternion, -1, axis=1)).as_matrix())


def _rest(weight: np.ndarray, bias: np.ndarray, force: np.ndarray) -> float:
    """RMS of what weight and bias, in the axes that are given, leave of the changes' RMS."""
    columns = np.diff(np.concatenate([weight, bias], axis=2), axis=0).reshape(-1, 6)
    changes = np.diff(force, axis=0).ravel()
    solution = np.linalg.lstsq(columns, changes, rcond=1e-9)[0]
    total = float(np.sqrt(np.mean(changes**2)))
    return float(np.sqrt(np.mean((changes - columns @ solution) ** 2))) / max(total, 1e-12)


def _check_mirrored(poses: StandingPoses) -> None:
    """Name swapped axes and wrong signs: force against gravity in the sensor's axes, freely."""
    down = -poses.rotation[:, 2, :]
    if np.linalg.eigvalsh(np.cov(down.T, bias=True))[0] < SPREAD**2:
        return
    stated = np.diff(down, axis=0)
    left, gain = _free(stated, np.diff(poses.wrench[:, :3], axis=0))
    if left > EXPLAINED or np.linalg.det(gain) >= 0.0:
        return
    u, _, vt = np.linalg.svd(-gain)
    if Rotation.from_matrix(u @ vt).magnitude() < NEAR:  # it states the force that it exerts
        return
    mass = np.cbrt(abs(np.linalg.det(gain)))
    choices = list(product(permutations(range(3)), product((1.0, -1.0), repeat=3)))
    distance = [
        float(np.linalg.norm(gain / mass - np.eye(3)[list(order)] * np.array(signs)[:, None]))
        for order, signs in choices
    ]
    order, signs = choices[int(np.argmin(distance))]
    named = ", ".join(
        f"f{AXES[k]} along {'−' if sign < 0 else ''}{AXES[axis]}"
        for k, (axis, sign) in enumerate(zip(order, signs, strict=True))
        if axis != k or sign < 0
    )
    raise MalformedInput(
        f"{poses.source}: the force axes are not those of a sensor (they are left-handed: {named});"
        " two columns are swapped, or one has the wrong sign"
    )


def _free(down: np.ndarray, force: np.ndarray) -> tuple[float, np.ndarray]:
    """What a free 3×3 matrix leaves of the force's changes, and the matrix."""
    gain = np.linalg.lstsq(down, force, rcond=None)[0].T
    rest = force - down @ gain.T
    return float(np.linalg.norm(rest)) / max(float(np.linalg.norm(force)), 1e-12), gain
