"""Check of a log against the robot's model: units, signs of torques, direction of gravity.

Torques are linear in gravity: τ = inertial(q, q̇, q̈) + Σ g_k ∂G/∂g_k + friction. Every joint is
fitted by itself with a free but non-negative scale for each part (a model from a data sheet may be
wrong by much, but not in sign, and friction brakes), and hypotheses are compared by how much of the
torque's variance they explain: as logged, with a joint's sign flipped, with gravity in another
direction, with angles in degrees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.audit_windows import Windows
from thetahat.data.columns import ColumnMap
from thetahat.data.types import Finding, Mask
from thetahat.errors import MalformedInput
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

ENOUGH = 24  # windows to check_against_model by
DEGREE = np.pi / 180.0
ANGLE = 20.0  # [degrees] by which gravity must differ to be reported
CLEAR = 0.4  # of the variance explained: enough to judge a sign
SNAP = 10.0  # [degrees] within which a direction is that of an axis
UNITS = {1e-3: "milliseconds", 1e-6: "microseconds", 1e-9: "nanoseconds"}
OPTIONS = {1e-3: "ms", 1e-6: "us", 1e-9: "ns"}  # of --units


def check_against_model(
    robot: Robot, columns: ColumnMap, windows: Windows | None, *, rows: int, file: str
) -> tuple[list[Finding], list[Mask]]:
    """Return findings and masks; raise `MalformedInput` where the units are not SI."""
    if windows is None or not windows.finite:
        return [], []
    _check_time(robot, columns, windows, file, seconds=rows * windows.period)
    _check_degrees(robot, columns, windows, file)
    if windows.tau is None or len(windows) < ENOUGH:
        return [], []
    return _Torques(robot, columns, windows).verdict(rows)


# -- units -----------------------------------------------------------------------------------------


def _check_time(
    robot: Robot, columns: ColumnMap, windows: Windows, file: str, *, seconds: float
) -> None:
    """Compare positions with velocities: time stamps in milliseconds make positions change a
    thousand times slower; likewise for degrees.
    """
    if windows.slope is None or len(windows) < 3:
        return
    if not columns.has("dq"):
        _check_pace(columns, windows, file, seconds)
        return
    ratios, names = [], []
    for node in robot.tree.independent:
        at = robot.tree.v_index[node.name]
        dq, slope = windows.dq[:, at], windows.slope[:, at]
        product, squares = dq @ slope, np.sqrt((dq @ dq) * (slope @ slope))
        # moving, and both tell of the same motion
        if node.name not in columns.locked and squares > 0 and product > 0.8 * squares:
            ratios.append(np.sqrt((slope @ slope) / (dq @ dq)))
            names.append(node.name if node.kind is JointKind.REVOLUTE else "")
    if not ratios:
        return
    ratio = float(np.median(ratios))
    for factor, unit in UNITS.items():
        if factor / 1.5 < ratio < factor * 1.5:
            raise MalformedInput(
                f"{file}, column {columns.time!r}: positions change {1 / ratio:.4g} times slower"
                f" than the velocities say, so the time stamps seem to be in {unit}; give seconds"
                f" (multiply by {factor:g}), or pass --units t={OPTIONS[factor]}"
            )
    turning = [r for r, name in zip(ratios, names, strict=True) if name]
    angular = float(np.median(turning)) if turning else 1.0
    for factor, wrong, right in ((DEGREE, "dq", "q"), (1.0 / DEGREE, "q", "dq")):
        if factor / 1.3 < angular < factor * 1.3:
            first = (
                columns.column_of(wrong, 0)
                if (wrong, 0) in {(k, at) for k, at, _ in columns.place}
                else wrong
            )
            raise MalformedInput(
                f"{file}, column {first!r} and the others of {wrong}: positions change"
                f" {angular:.4g} times as fast as the velocities say, so {wrong} seems to be in"
                f" degrees and {right} in radians; give radians (multiply by pi/180), or pass"
                f" --units {wrong}=deg"
            )


def _check_pace(columns: ColumnMap, windows: Windows, file: str, seconds: float) -> None:
    """Without velocities: detect hours of few rows per second in which everything creeps."""
    slope = windows.q[:, :0] if windows.slope is None else windows.slope
    speed = float(np.percentile(np.abs(slope), 98, axis=0).max(initial=0.0))
    span = float(np.ptp(windows.q, axis=0).max(initial=0.0))
    if windows.period > 100.0 or (
        windows.period >= 0.1 and seconds > 1800.0 and span > 0.1 and speed < 0.02
    ):
        factor = next((factor for factor in UNITS if 0.05 < speed / factor < 50.0), 1e-3)
        raise MalformedInput(
            f"{file}, column {columns.time!r}: its median step is {windows.period:.4g} s and the"
            f" fastest joint moves {speed:.2g} rad/s, so the time stamps seem to be in"
            f" {UNITS[factor]}; give seconds (multiply by {factor:g}) or pass --units"
            f" t={OPTIONS[factor]}, or log dq too if the robot is so slow"
        )


def _check_degrees(robot: Robot, columns: ColumnMap, windows: Windows, file: str) -> None:
    """Detect angles far outside their joints' limits that are inside as degrees."""
    joints = [
        node
        for node in robot.tree.independent
        if node.kind is JointKind.REVOLUTE and node.name not in columns.locked
    ]
    reach = {
        node.name: np.abs(windows.q[:, robot.tree.q_index[node.name]]).max() for node in joints
    }
    if not joints or max(reach.values()) <= 2.0 * np.pi:
        return
    limited = [
        node
        for node in joints
        if np.isfinite(node.limits.lower)
        and np.isfinite(node.limits.upper)
        and node.limits.upper > node.limits.lower
    ]
    outside, inside = [], True
    for node in limited:
        q = windows.q[:, robot.tree.q_index[node.name]]
        if q.min() < node.limits.lower - 0.5 or q.max() > node.limits.upper + 0.5:
            outside.append(node)
        inside &= bool(
            q.min() * DEGREE > node.limits.lower - 0.2
            and q.max() * DEGREE < node.limits.upper + 0.2
        )
    away = [node for node in limited if reach[node.name] > 0.5]
    far = [
        node
        for node in outside
        if reach[node.name] > 4.0 * np.pi
        and reach[node.name] > 3.0 * max(abs(node.limits.lower), abs(node.limits.upper))
    ]
    by_limits = bool(far) and inside and 2 * len(outside) >= len(away)
    if by_limits or _torques_say_degrees(robot, columns, windows):
        node = max(far or joints, key=lambda node: reach[node.name])
        column = columns.column_of("q", robot.tree.q_index[node.name])
        bounds = (
            f", beyond its limits {node.limits.lower:.4g} to {node.limits.upper:.4g} rad"
            if node in limited
            else ""
        )
        raise MalformedInput(
            f"{file}, column {column!r} reaches {reach[node.name]:.4g}{bounds}: positions seem to"
            " be in degrees; give radians (multiply by pi/180), or pass --units q=deg"
        )


def _torques_say_degrees(robot: Robot, columns: ColumnMap, windows: Windows) -> bool:
    """Return whether the model explains the torques much better with angles in degrees."""
    if windows.tau is None or len(windows) < ENOUGH or robot.nq != robot.nv:
        return False
    scale = np.array(
        [DEGREE if node.kind is JointKind.REVOLUTE else 1.0 for node in robot.tree.independent]
    )
    as_logged = _Torques(robot, columns, windows)
    turned = _Torques(robot, columns, _scaled(windows, scale))
    joints = as_logged.loaded() & turned.loaded()
    if not joints.any():
        return False
    before, after = (fits.explained(robot.gravity)[joints].mean() for fits in (as_logged, turned))
    return bool(after > 0.8 and before < after - 0.3)


def _scaled(windows: Windows, scale: np.ndarray) -> Windows:
    slope = None if windows.slope is None else windows.slope * scale
    q, dq, ddq = (array * scale for array in (windows.q, windows.dq, windows.ddq))
    return replace(windows, q=q, dq=dq, ddq=ddq, slope=slope)


# -- torques ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Joint:
    """One degree of freedom's torques, centred and scaled, and the parts that may explain them."""

    tau: np.ndarray  # (k,)
    inertial: np.ndarray  # (k,)
    gravity: np.ndarray  # (k, 3) torque per unit of gravity along x, y, z
    friction: np.ndarray  # (k, 2) viscous, Coulomb

    def explained(self, gravity: np.ndarray, sign: float = 1.0) -> float:
        """Return R² of sign·τ = a·inertial + b·(gravity torque) + c·q̇ + d·sign(q̇) with a free
        mean and a, b, c, d ≥ 0.
        """
        from scipy.optimize import nnls

        parts = np.column_stack([self.inertial, self.gravity @ gravity, self.friction])
        lengths = np.linalg.norm(parts, axis=0)
        parts = parts[:, lengths > 1e-9 * max(lengths.max(initial=0.0), 1e-30)]
        if not parts.shape[1]:
            return 0.0
        parts = parts / np.linalg.norm(parts, axis=0)
        _, rest = nnls(parts, sign * self.tau)
        return float(1.0 - rest**2 / (self.tau @ self.tau))


class _Torques:
    """The fits of all joints that have enough usable torques."""

    def __init__(self, robot: Robot, columns: ColumnMap, windows: Windows) -> None:
        self._robot = robot
        measured = {at for kind, at, _ in columns.place if kind == "tau"}
        inertial, gravity = _model(robot, windows)
        torque = np.zeros_like(inertial) if windows.tau is None else windows.tau
        self._joints: dict[int, _Joint] = {}
        for v in sorted(measured):
            rows = windows.usable[:, v]
            tau = torque[rows, v]
            if len(tau) < ENOUGH or np.ptp(tau) <= 0.0:
                continue
            speed = windows.dq[rows, v]
            threshold = max(0.02, 0.1 * float(np.percentile(np.abs(speed), 95)))
            friction = np.column_stack([speed, np.tanh(speed / threshold)])
            scale = float(np.std(tau))
            parts = (tau, inertial[rows, v], gravity[rows, v], friction)
            self._joints[v] = _Joint(*((part - part.mean(axis=0)) / scale for part in parts))

    def explained(self, gravity: np.ndarray, signs: dict[int, float] | None = None) -> np.ndarray:
        """Return R² by degree of freedom; 0 of those that cannot be judged."""
        out = np.zeros(self._robot.nv)
        for v, joint in self._joints.items():
            out[v] = joint.explained(gravity, (signs or {}).get(v, 1.0))
        return out

    def loaded(self) -> np.ndarray:
        """Return degrees of freedom of whose torque gravity (of any direction) can be at least a
        fifth, by the model.
        """
        strength = float(np.linalg.norm(self._robot.gravity))
        out = np.zeros(self._robot.nv, dtype=bool)
        for v, joint in self._joints.items():
            out[v] = strength * np.linalg.norm(joint.gravity, axis=0).max() > 0.2 * np.linalg.norm(
                joint.tau
            )
        return out

    def verdict(self, rows: int) -> tuple[list[Finding], list[Mask]]:
        """Return gravity in another direction or torques of the wrong sign, whichever explains
        more.
        """
        if not self._joints:
            return [], []
        nominal = np.array(self._robot.gravity)
        as_logged = self.explained(nominal)
        turned = self.explained(nominal, dict.fromkeys(self._joints, -1.0))
        flipped = {
            v for v in self._joints if turned[v] > CLEAR and as_logged[v] < CLEAR * turned[v]
        }
        direction = self._direction()
        loaded = self.loaded()
        if direction is not None and loaded.any():
            other = self.explained(direction)
            with_signs = np.where([v in flipped for v in range(self._robot.nv)], turned, as_logged)
            without = self.explained(np.zeros(3))
            gain, before = (
                np.maximum(r2 - without, 0.0)[loaded].mean() for r2 in (other, as_logged)
            )  # what gravity adds
            better = bool(gain > 2.0 * before + 0.02 and other[loaded].mean() > 0.6)
            # all turned at once: rather the mounting
            margin = 0.02 if flipped >= set(np.flatnonzero(loaded).tolist()) else -0.02
            if better and other.sum() / len(self._joints) + margin > with_signs.sum() / len(
                self._joints
            ):
                return [
                    self._gravity_finding(direction, other[loaded].mean(), as_logged[loaded].mean())
                ], []
        names = self._robot.velocity_names
        findings = [
            Finding(
                "sign",
                names[v],
                (0, rows),
                f"joint {names[v]!r}: the model explains {turned[v]:.0%} of its torque with the"
                f" sign flipped, {max(as_logged[v], 0.0):.0%} as logged, so the sign seems flipped;"
                " all its torques are masked (flip the sign in the log)",
            )
            for v in sorted(flipped)
        ]
        return findings, [Mask(v, 0, rows, "sign") for v in sorted(flipped)]

    def _direction(self) -> np.ndarray | None:
        """Return the direction of gravity by all joints together, of the robot's strength, where it
        clearly differs from the robot's.
        """
        nominal = np.array(self._robot.gravity)
        strength = float(np.linalg.norm(nominal))
        normal, right = np.zeros((3, 3)), np.zeros(3)
        for joint in self._joints.values():
            nuisance = np.linalg.qr(np.column_stack([joint.inertial, joint.friction]))[0]
            g = joint.gravity - nuisance @ (nuisance.T @ joint.gravity)
            normal += g.T @ g
            right += g.T @ joint.tau
        ridge = 1e-3 * np.trace(normal) / 3.0  # what the motion does not show counts as none
        if strength == 0.0 or ridge == 0.0 or not np.isfinite(ridge):
            return None
        fitted = np.linalg.solve(normal + ridge * np.eye(3), right)
        length = float(np.linalg.norm(fitted))
        if not 0.3 < length / strength < 3.0:
            return None
        direction = fitted / length
        if np.degrees(np.arccos(np.clip(direction @ nominal / strength, -1.0, 1.0))) <= ANGLE:
            return None
        axis = int(np.argmax(np.abs(direction)))
        if np.abs(direction[axis]) > np.cos(np.radians(SNAP)):
            direction = np.eye(3)[axis] * np.sign(direction[axis])
        return strength * direction

    def _gravity_finding(self, direction: np.ndarray, after: float, before: float) -> Finding:
        nominal = np.array(self._robot.gravity)
        angle = np.degrees(np.arccos(np.clip(direction @ nominal / (nominal @ nominal), -1.0, 1.0)))
        option = ",".join(f"{x:.4g}" for x in np.round(direction, 3) + 0.0)
        return Finding(
            "gravity-direction",
            None,
            None,
            f"the torques fit gravity that points {angle:.0f}° away from the robot's ({after:.0%}"
            f" explained against {max(before, 0.0):.0%}); nothing was changed: if the robot is"
            f" mounted so, pass --gravity {option}",
        )


def _model(robot: Robot, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Return the rigid-body torque without gravity (k, nv), and the torque per unit of gravity
    along each axis (k, nv, 3).
    """
    from thetahat.dynamics.rigid_body import gravity, inverse_dynamics

    weightless = robot.with_gravity(np.zeros(3))
    inertial = inverse_dynamics(weightless, windows.q, windows.dq, windows.ddq, rigid=True)
    return inertial, np.stack(
        [gravity(robot.with_gravity(axis), windows.q) for axis in np.eye(3)], axis=-1
    )
