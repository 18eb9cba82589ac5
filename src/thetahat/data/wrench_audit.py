"""Mistakes in the columns of a wrist sensor: sign, frame, axes, a channel that is dead.

The readings are compared with what any body on the link would give: force and torque are linear in
its ten numbers (and in those of what moves beyond it), beside a constant bias. Forces decide, since
gravity turns in the link's axes as the arm moves. A light tool, or one that is hardly turned,
leaves the question open, and nothing is said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from thetahat.data.audit_windows import Windows
from thetahat.dynamics import rigid_body
from thetahat.errors import MalformedInput
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint, sensor_links

EXPLAINED = 0.2  # of the forces' RMS: what is left by a reading that is right
CLEAR = 0.5  # times what is left as stated: another reading explains it better
SPREAD = 0.1  # RMS of gravity's direction in the third direction, to tell axes apart
STEPS = 30  # in turning the axes
ENOUGH = 24  # windows
AXES = "xyz"


def check_wrenches(robot: Robot, windows: Windows, file: str) -> None:
    """Raise an error where another reading of a sensor's columns explains them, and this does
    not.
    """
    for link in sensor_links(robot):
        first = robot.tree.v_index[sensor_joint(link, CHANNELS[0])]
        if windows.tau is None:
            continue
        wrench = windows.tau[:, first : first + 6]
        _check_constant(wrench, link, file)
        if len(windows) < ENOUGH:
            continue
        _check_link(robot, link, windows, wrench, file)


def _check_constant(wrench: np.ndarray, link: str, file: str) -> None:
    for channel, values in zip(CHANNELS, wrench.T, strict=True):
        if len(values) >= ENOUGH and np.ptp(values) == 0.0:
            raise MalformedInput(
                f"{file}: column {sensor_joint(link, channel)!r} is {values[0]:.6g} in all rows, so"
                " this channel of the sensor is dead; log it, or rename the six columns so that"
                " they are not read"
            )


def _check_link(robot: Robot, link: str, windows: Windows, wrench: np.ndarray, file: str) -> None:
    rows, body = _rows(robot, link, windows)
    frames, _ = rigid_body.body_frames(robot, windows.q)
    R = frames[:, body]
    down = R.transpose(0, 2, 1) @ robot.gravity
    size = float(np.linalg.norm(robot.gravity)) or 1.0
    if np.linalg.eigvalsh(np.cov(down.T / size, bias=True))[0] < SPREAD**2:
        return
    force = wrench[:, :3]
    fit = _fit(rows, force, body)
    if fit.left < EXPLAINED:
        if fit.mass < 0.0:
            raise MalformedInput(
                f"{file}: wrench.{link} states the force that the link exerts on the sensor (its"
                " weight), not the one that holds it; negate the six columns, or pass --units"
                f" wrench.{link}=-1"
            )
        return
    limit = min(CLEAR * fit.left, EXPLAINED)
    turned = (R.transpose(0, 2, 1) @ force[..., None])[..., 0]
    if _fit(rows, turned, body).left < limit:
        raise MalformedInput(
            f"{file}: wrench.{link} looks as if it were in the world's axes and not in the link's;"
            " pass --wrench-frame world"
        )
    _check_axes(rows, force, body, limit, f"{file}: the axes of wrench.{link}")


def _rows(robot: Robot, link: str, windows: Windows) -> tuple[np.ndarray, int]:
    """Regressor (k, 3, columns) of the force on the link, and the link's body."""
    first = robot.tree.v_index[sensor_joint(link, CHANNELS[0])]
    Y = rigid_body.regressor(robot, windows.q, windows.dq, windows.ddq)[:, first : first + 3]
    return Y, robot.body_names.index(link)


@dataclass(frozen=True, eq=False)
class _Fit:
    """Forces that bodies beyond the sensor and a bias explain best."""

    left: float  # RMS of what they do not, relative to the force's
    mass: float  # [kg] of the link's body
    expected: np.ndarray  # (k, 3) less their mean


def _fit(rows: np.ndarray, force: np.ndarray, body: int) -> _Fit:
    A = (rows - rows.mean(axis=0)).reshape(-1, rows.shape[-1])
    b = (force - force.mean(axis=0)).ravel()
    scale = np.linalg.norm(A, axis=0)
    used = np.flatnonzero(scale > 1e-9 * max(float(scale.max(initial=0.0)), 1e-300))
    x = np.zeros(A.shape[1])
    x[used] = np.linalg.lstsq(A[:, used] / scale[used], b, rcond=1e-6)[0] / scale[used]
    total, expected = max(float(np.linalg.norm(b)), 1e-300), A @ x
    left = float(np.linalg.norm(b - expected)) / total
    return _Fit(left, float(x[10 * body + parameters.M]), expected.reshape(-1, 3))


def _check_axes(rows: np.ndarray, force: np.ndarray, body: int, limit: float, what: str) -> None:
    """Name axes that are swapped, turned or have another sign."""
    best = math.inf
    order: tuple[int, ...] = (0, 1, 2)
    signs: tuple[float, ...] = (1.0, 1.0, 1.0)
    for each, sign in product(permutations(range(3)), product((1.0, -1.0), repeat=3)):
        fit = _fit(rows, force[:, each] * sign, body)
        if fit.mass > 0.0 and fit.left < best:
            best, order, signs = fit.left, each, sign
    turn = np.eye(3)[list(order)] * np.array(signs)[:, None]  # readings to the link's axes
    if best < limit:
        named = ", ".join(
            f"{'−' if sign < 0 else ''}f{AXES[k]} along {AXES[axis]}"
            for axis, (k, sign) in enumerate(zip(order, signs, strict=True))
            if axis != k or sign < 0
        )
        hand = np.linalg.det(turn) < 0.0
        fix = "two columns are swapped, or one has the wrong sign"
        turned = "turn the columns, or name the link whose axes the sensor has"
        raise MalformedInput(
            f"{what} are {'left-handed' if hand else 'not those of the link'} ({named});"
            f" {fix if hand else turned}"
        )
    if np.linalg.det(turn) < 0.0:
        return
    for _ in range(STEPS):
        fit = _fit(rows, force @ turn.T, body)
        u, _, vt = np.linalg.svd(fit.expected.T @ (force - force.mean(axis=0)))
        turn = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
    from scipy.spatial.transform import Rotation  # takes a while to load, and is rarely needed

    angle = float(np.rad2deg(Rotation.from_matrix(turn).magnitude()))
    if fit.left < limit and fit.mass > 0.0:
        raise MalformedInput(
            f"{what} are turned by {angle:.0f}° from those of the link; turn the columns, or name"
            " the link whose axes the sensor has"
        )
