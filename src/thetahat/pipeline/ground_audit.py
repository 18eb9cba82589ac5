"""Mistakes in the log of a floating robot: its orientation, what holds it up, flags of contact.

Nothing here needs masses. Feet are below the base, the ground's force points up on average, a foot
that is down stays in place, and nobody flies for a second. Where another reading of the columns
(scalar first, the other axes, the other sign) is right and this one is not, it is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.data.log import Log
from thetahat.data.types import Finding
from thetahat.dynamics.link_forces import link_place
from thetahat.errors import MalformedInput
from thetahat.model.floating_base import base_dofs, floating_joint, ground_of
from thetahat.model.robot import Robot

ROWS = 20_000  # at the log's beginning that are looked at
ALONG, OFF = 0.9, 0.5  # cosine of what points a way, and of what does not
ASIDE, CLEAR = 0.05, 0.5  # horizontal part of forces worth a look; of another reading, to be right
FLIGHT = 1.0  # [s] without any contact, longer than a jump
SLIP = 0.05  # [m/s] RMS of a foot that is down
INVERTED = 3.0  # times faster down than up
HEAVY = 3.0  # times the file's mass, or less than its reciprocal
WINDOW = 0.05  # [s] over which a foot's speed is taken
AXES = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class _Excerpt:
    """Rows of a log, one run after the other."""

    t: np.ndarray
    q: np.ndarray
    force: np.ndarray  # (n, 3) of the world on the robot where it is measured, in base axes
    contact: np.ndarray  # (n, feet) bool
    run: np.ndarray


def check_ground(
    robot: Robot, log: Log, file: str, *, frame: str, other_frame: Callable[[], Log | None]
) -> tuple[Finding, ...]:
    """Return what seems wrong; raise where another reading of the columns is right.

    frame: link or world, the axes that wrenches are not read in; other_frame: reads them so.
    """
    ground, node = ground_of(robot), floating_joint(robot)
    if ground is None or node is None or not (ground.measured or ground.feet):
        return ()
    rows = _excerpt(robot, log)
    links = (*ground.measured, *(foot.link for foot in ground.feet))
    _check_upright(robot, rows, links, file)
    findings: list[Finding] = []
    if ground.measured:
        _check_force(robot, rows, file, frame, other_frame)
        findings += _check_weight(robot, rows, partly=bool(ground.feet))
    for k, foot in enumerate(ground.feet):
        findings += _check_foot(robot, rows, k, foot.link, file)
    if ground.feet and not ground.measured:
        _check_flight(rows, [foot.link for foot in ground.feet], file)
    return tuple(findings)


def _excerpt(robot: Robot, log: Log) -> _Excerpt:
    parts, count = [], 0
    for chunk in log.chunks():
        parts.append(chunk)
        count += len(chunk)
        if count >= ROWS:
            break
    ground, base = ground_of(robot), list(base_dofs(robot))[3:]
    feet = 0 if ground is None else len(ground.feet)
    none = np.zeros
    return _Excerpt(
        np.concatenate([part.t for part in parts]),
        np.concatenate([part.q for part in parts]),
        np.concatenate([none((len(p), 3)) if p.tau is None else p.tau[:, base] for p in parts]),
        np.concatenate(
            [none((len(p), feet)) if p.contact is None else p.contact for p in parts]
        ) > 0.5,
        np.concatenate([np.full(len(part), part.run) for part in parts]),
    )  # fmt: skip


def _up(robot: Robot) -> np.ndarray:
    size = float(np.linalg.norm(robot.gravity))
    return -robot.gravity / size if size else np.array([0.0, 0.0, 1.0])


def _scalar_first(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Configurations as they are if the quaternion's columns are w, x, y, z."""
    at = robot.tree.q_index[robot.tree.nodes[0].name] + 3
    out = q.copy()
    out[:, at : at + 4] = q[:, [at + 1, at + 2, at + 3, at]]
    return out


def _turn(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Rotation of the base in the world, (n, 3, 3)."""
    from scipy.spatial.transform import Rotation  # here, since importing it takes 0.05 s

    at = robot.tree.q_index[robot.tree.nodes[0].name] + 3
    quaternion = q[:, at : at + 4]
    return np.asarray(Rotation.from_quat(quaternion).as_matrix() @ robot.tree.nodes[0].rotation)


def _foot_direction(robot: Robot, q: np.ndarray, links: Sequence[str]) -> np.ndarray:
    """Mean direction from the base to its feet in the world, length 1 where it never changes."""
    some = q[:: max(1, len(q) // 200)]
    at = robot.tree.q_index[robot.tree.nodes[0].name]
    arms = np.mean([link_place(robot, some, link)[1] - some[:, at : at + 3] for link in links], 0)
    length = np.maximum(np.linalg.norm(arms, axis=1, keepdims=True), 1e-12)
    return np.asarray(np.mean(arms / length, axis=0))


def _check_upright(robot: Robot, rows: _Excerpt, links: Sequence[str], file: str) -> None:
    """Refuse an orientation by which the feet are not below the base."""
    up = _up(robot)
    feet = _foot_direction(robot, rows.q, links)
    if -feet @ up > OFF:
        return
    axis = int(np.argmax(np.abs(feet)))
    if abs(feet[axis]) > ALONG and abs(up[axis]) < ALONG:
        gravity = np.zeros(3)
        gravity[axis] = np.sign(feet[axis]) * 9.81
        told = ",".join(f"{value:g}" for value in gravity)
        raise MalformedInput(
            f"{file}: the feet are along {'−' if feet[axis] < 0 else '+'}{AXES[axis]} of the world"
            f" from the base, and gravity is not; give the pose in a world whose z points up, or"
            f" pass --gravity {told}; or rename base.q…, if the scalar part comes first"
        )
    other = _foot_direction(robot, _scalar_first(robot, rows.q), links)
    if -other @ up > ALONG:
        raise MalformedInput(
            f"{file}: by base.qx … base.qw the feet are not below the base, and they are if the"
            " first of the four columns is the scalar part; rename them, so that base.qw is it"
        )
    raise MalformedInput(
        f"{file}: by base.qx … base.qw the feet {', '.join(links)} are not below the base (cosine"
        f" {-feet @ up:.2f} to the vertical); give the pose of the root link"
        f" {robot.tree.nodes[0].body!r} in a world whose z points up, or pass --contacts none if"
        " the robot does not stand"
    )


def _sideways(robot: Robot, rows: _Excerpt, up: np.ndarray) -> float:
    """RMS of the horizontal force relative to the mean vertical one."""
    force = (_turn(robot, rows.q) @ rows.force[..., None])[..., 0]
    vertical = force @ up
    level = np.sqrt(np.mean(np.sum((force - vertical[:, None] * up) ** 2, axis=1)))
    return float(level / max(abs(float(np.mean(vertical))), 1e-9))


def _check_force(
    robot: Robot, rows: _Excerpt, file: str, frame: str, other_frame: Callable[[], Log | None]
) -> None:
    """Refuse wrenches that do not hold the robot up."""
    up = _up(robot)
    mean, cosine = _mean_force(robot, rows.q, rows.force, up)
    aside = _sideways(robot, rows, up)
    if cosine > ALONG and aside < ASIDE:
        return
    if mean == 0.0:
        raise MalformedInput(f"{file}: all wrench columns are zero; check the sensors")
    if cosine < -ALONG:
        raise MalformedInput(
            f"{file}: the wrenches point down, so they seem to be the forces of the feet on the"
            " ground; give those of the ground on the feet: negate the columns, or pass --units"
            " wrench=-1"
        )
    other = other_frame()
    if other is not None:
        turned = _excerpt(robot, other)
        beside = _mean_force(robot, turned.q, turned.force, up)[1]
        if abs(beside) > ALONG and _sideways(robot, turned, up) < CLEAR * aside:
            raise MalformedInput(
                f"{file}: the ground pushes sideways with {aside:.0%} of its mean force (RMS), and"
                f" hardly so if wrenches are in the other axes; pass --wrench-frame {frame}"
                f"{'' if beside > 0 else ', and negate them: --units wrench=-1'}"
            )
    if cosine > ALONG:
        return
    raise MalformedInput(
        f"{file}: the ground's mean force is {np.degrees(np.arccos(cosine)):.0f}° off the vertical;"
        " check the axes of the wrench columns (in the link's, or --wrench-frame world), the base's"
        " orientation and --gravity"
    )


def _mean_force(
    robot: Robot, q: np.ndarray, force: np.ndarray, up: np.ndarray
) -> tuple[float, float]:
    """Size of the mean force in the world [N], and its cosine to the vertical."""
    mean = np.mean((_turn(robot, q) @ force[..., None])[..., 0], axis=0)
    size = float(np.linalg.norm(mean))
    return size, float(mean @ up) / size if size else 0.0


def _check_weight(robot: Robot, rows: _Excerpt, *, partly: bool) -> list[Finding]:
    """Name forces that carry a multiple of the file's mass."""
    size, g = _mean_force(robot, rows.q, rows.force, _up(robot))[0], np.linalg.norm(robot.gravity)
    carried = size / max(float(g), 1e-9)
    low = 0.0 if partly else robot.mass / HEAVY
    if low < carried < HEAVY * robot.mass or not robot.mass:
        return []
    return [
        Finding(
            "wrench-scale",
            None,
            None,
            f"the measured wrenches carry {carried:.3g} kg, and the file has {robot.mass:.3g} kg:"
            " check that forces are in N, and that every link that touches the world has its"
            " columns",
        )
    ]


def _speed(robot: Robot, rows: _Excerpt, link: str) -> tuple[np.ndarray, np.ndarray]:
    """Speed of a link's origin [m/s], and the rows it is at."""
    period = float(np.median(np.diff(rows.t))) if len(rows.t) > 1 else 1.0
    step = max(1, round(WINDOW / max(period, 1e-9)))
    at = np.arange(0, len(rows.t) - step, step)
    at = at[rows.run[at] == rows.run[at + step]]
    _, p = link_place(robot, rows.q, link)
    dt = np.maximum(rows.t[at + step] - rows.t[at], 1e-9)
    return np.linalg.norm(p[at + step] - p[at], axis=1) / dt, at


def _check_foot(robot: Robot, rows: _Excerpt, k: int, link: str, file: str) -> list[Finding]:
    """Refuse inverted flags; name a foot that moves while it is down."""
    speed, at = _speed(robot, rows, link)
    down = rows.contact[at, k]
    if not down.any():
        return []
    rms = float(np.sqrt(np.mean(speed[down] ** 2)))
    if np.count_nonzero(~down) > 5:
        still = float(np.sqrt(np.mean(speed[~down] ** 2)))
        if rms > SLIP and rms > INVERTED * still:
            raise MalformedInput(
                f"{file}: contact.{link} seems inverted: the link moves at {rms:.2g} m/s (RMS)"
                f" where the flag is 1 and at {still:.2g} m/s where it is 0; give 1 where it"
                " touches the ground"
            )
    if rms < SLIP:
        return []
    return [
        Finding(
            "slip",
            None,
            None,
            f"link {link!r} moves at {rms:.2g} m/s (RMS) while contact.{link} says it is down: the"
            " foot slips, or base.x … base.qw is the pose of another link or late; forces of a foot"
            " that slips are eliminated all the same",
        )
    ]


def _check_flight(rows: _Excerpt, links: Sequence[str], file: str) -> None:
    """Refuse flags by which the robot flies."""
    if not rows.contact.any():
        raise MalformedInput(
            f"{file}: contact.{links[0]} and the others are 0 in all rows; give 1 where a link"
            " touches the ground, or pass --contacts none if nothing touches the robot"
        )
    flying = ~rows.contact.any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flying, [0]])))
    for first, stop in zip(edges[::2], edges[1::2], strict=True):
        length = float(rows.t[stop - 1] - rows.t[first])
        if length > FLIGHT and rows.run[first] == rows.run[stop - 1]:
            raise MalformedInput(
                f"{file}: by the contact flags no link touches the ground for {length:.2g} s from"
                f" t = {rows.t[first]:.6g} s on, longer than a jump; the flags seem inverted, or a"
                " link that carries the robot has none"
            )
