"""Signs of logged torques and the direction of gravity, by hypotheses that could be true.

A sign: each joint is fitted as logged and flipped, with inertia and gravity of its file scaled by a
third to three, a free first moment of its own link, and a rotor and friction that are not negative.
A joint is flipped where it fits much better flipped, and where its friction, left free, would push
as logged. Energy flows between joints, so a single joint's work says nothing; that of all joints,
∫Στq̇ dt less the gain of mechanical energy, is friction's and positive.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from thetahat.data.audit_windows import Windows
from thetahat.data.columns import ColumnMap
from thetahat.data.finding_kinds import treatment
from thetahat.data.joint_torques import JointTorque
from thetahat.data.types import Finding, Mask
from thetahat.model.robot import Robot

ANGLE = 20.0  # [degrees] by which gravity must differ to be reported
SNAP = 10.0  # [degrees] within which a direction is that of an axis
CLEAR = 0.4  # of the variance explained: enough to judge a sign
BETTER = 2.0  # times smaller squares of residuals: the other sign fits clearly better
SURE, FAR_BETTER = 0.9, 10.0  # of the variance explained, times smaller squares: without doubt
SCALE = 3.0  # a file's inertia and gravity may be wrong by this factor


def check_signs(
    robot: Robot,
    columns: ColumnMap,
    windows: Windows,
    joints: dict[int, JointTorque],
    *,
    keep: tuple[str, ...],
    rows: int,
) -> tuple[list[Finding], list[Mask]]:
    """Return gravity in another direction or torques of the wrong sign, whichever explains more."""
    if not joints:
        return [], []
    hypotheses = TorqueHypotheses(robot, joints)
    fits = {v: SignFit.of(joint, np.array(robot.gravity)) for v, joint in joints.items()}
    flipped = {v for v, fit in fits.items() if fit.is_flipped}
    gravity = hypotheses.other_gravity(flipped)
    if gravity is not None:
        return [gravity], []
    names = robot.velocity_names
    clear = {v for v, fit in fits.items() if max(fit.as_logged, fit.flipped) > CLEAR}
    upright = any(fit.is_upright for fit in fits.values())
    if flipped and not upright and 2 * len(flipped) >= len(clear):
        power = _dissipated(robot, columns, windows, joints)
        everyone = flipped >= clear and 2 * len(flipped) >= len(joints)
        surely = everyone and all(fits[v].is_sure for v in flipped)
        if surely or ((power.as_logged < 0.0 or everyone) and power.flipped > 0.0):
            return _all_flipped(names, fits, flipped, power, keep=keep, rows=rows)
    findings = [
        Finding(
            "sign",
            names[v],
            (0, rows),
            f"joint {names[v]!r}: {fits[v].evidence}, so the sign of its torque (or of its"
            " position) seems flipped;"
            " its torques are used as logged: multiply the column by −1 if so, or leave the joint"
            " out with --joints",
        )
        for v in sorted(flipped)
    ]
    return findings, []


def _all_flipped(
    names: tuple[str, ...],
    fits: dict[int, SignFit],
    flipped: set[int],
    power: Dissipation,
    *,
    keep: tuple[str, ...],
    rows: int,
) -> tuple[list[Finding], list[Mask]]:
    """Return one finding about all torques, and masks for them unless they are kept."""
    ratio = np.median([fits[v].ratio for v in flipped])
    lost = power.as_logged
    drives = (
        f" and as logged friction would drive the robot with {-lost:.3g} W," if lost < 0 else ""
    )
    what = (
        "the torques of all joints seem flipped: turned around they fit"
        f" {ratio:.3g} times better (median of the squared residuals),{drives} so multiply them by"
        " −1; all are"
    )
    message = treatment("signs", what, keep)
    kept = "sign" in keep
    finding = Finding("signs", None, (0, rows), message, kept=kept)
    return [finding], [] if kept else [Mask(v, 0, rows, "sign") for v in range(len(names))]


class Dissipation(NamedTuple):
    """Mean power [W] that motors put in beyond the gain of mechanical energy: friction's."""

    as_logged: float
    flipped: float  # with all signs turned around


def _dissipated(
    robot: Robot, columns: ColumnMap, windows: Windows, joints: dict[int, JointTorque]
) -> Dissipation:
    """Return what friction takes, by the file's bodies scaled as fits best; where a joint's torque
    is not measured, the energy says nothing.
    """
    from thetahat.dynamics.rigid_body import inverse_dynamics

    measured = {at for kind, at, _ in columns.place if kind == "tau"}
    moving = [v for v in range(robot.nv) if np.ptp(windows.dq[:, v]) > 0.0]
    if windows.tau is None or not set(moving) <= measured:
        return Dissipation(0.0, np.inf)
    rows = windows.usable[:, moving].all(axis=1)
    # torques as `joints` have them, in N·m
    unit = np.ones(robot.nv)
    for v, joint in joints.items():
        unit[v] = joint.unit / max(float(np.std(windows.tau[windows.usable[:, v], v])), 1e-300)
    power = np.sum((windows.tau * unit * windows.dq)[rows][:, moving], axis=1)
    torque = inverse_dynamics(robot, windows.q, windows.dq, windows.ddq, rigid=True)
    gain = np.sum((torque * windows.dq)[rows][:, moving], axis=1)
    square = float(gain @ gain)
    scale = np.clip(abs(power @ gain) / square, 1.0 / SCALE, SCALE) if square > 0.0 else 1.0
    put_in, gained = float(np.mean(power)), float(scale * np.mean(gain))
    return Dissipation(put_in - gained, -put_in - gained)


class SignFit:
    """How well a joint's torque is explained with either sign."""

    def __init__(self, as_logged: float, flipped: float, friction: float) -> None:
        self.as_logged, self.flipped = as_logged, flipped  # R²
        self.friction = friction  # power of the fitted friction as logged, of the torque's own

    @staticmethod
    def of(joint: JointTorque, gravity: np.ndarray) -> SignFit:
        """Fit one joint."""
        from scipy.optimize import lsq_linear

        columns = np.column_stack(
            [joint.inertial, joint.gravity @ gravity, joint.own, joint.rotor, joint.friction]
        )
        free = joint.own.shape[1]
        dry = joint.friction.shape[1]
        low = np.r_[[1.0 / SCALE] * 2, [-np.inf] * free, np.zeros(1 + dry)]
        high = np.r_[[SCALE] * 2, [np.inf] * (free + 1 + dry)]
        length = np.linalg.norm(columns, axis=0)
        used = length > 1e-9 * max(float(length.max()), 1e-30)
        length = length[used]
        scaled, limits = columns[:, used] / length, (low[used] * length, high[used] * length)
        square = float(joint.tau @ joint.tau)
        r2 = []
        for sign in (1.0, -1.0):
            fit = lsq_linear(scaled, sign * joint.tau, limits, method="bvls")
            r2.append(1.0 - 2.0 * float(fit.cost) / square)
        solution = np.linalg.lstsq(scaled, joint.tau, rcond=1e-8)[0]
        full = np.zeros(len(used))
        full[used] = solution / length
        power = float(np.mean(joint.friction @ full[-dry:] * joint.speed))
        total = float(np.mean(np.abs(joint.tau * joint.speed)))
        return SignFit(r2[0], r2[1], power / total if total > 0.0 else 0.0)

    @property
    def ratio(self) -> float:
        """By how much the squares of the residuals are smaller with the sign flipped."""
        return (1.0 - self.as_logged) / max(1.0 - self.flipped, 1e-9)

    @property
    def is_flipped(self) -> bool:
        """Whether fit and friction both say so, or the fit alone where it leaves no doubt."""
        by_both = self.flipped > CLEAR and self.ratio > BETTER and self.friction < 0.0
        return by_both or self.is_sure

    @property
    def is_sure(self) -> bool:
        """Whether the fit alone leaves no doubt that the sign is flipped."""
        return self.flipped > SURE and self.ratio > FAR_BETTER

    @property
    def is_upright(self) -> bool:
        """Whether fit and friction both say that the sign is right."""
        return self.as_logged > CLEAR and self.ratio < 1.0 / BETTER and self.friction > 0.0

    @property
    def evidence(self) -> str:
        """What speaks for the other sign."""
        pushes = ", where its friction would push instead of brake" if self.friction < 0 else ""
        return (
            f"the model explains {self.flipped:.1%} of its torque with the sign flipped,"
            f" {max(self.as_logged, 0.0):.1%} as logged{pushes}"
        )


def explained(joint: JointTorque, gravity: np.ndarray, sign: float = 1.0) -> float:
    """Return R² of sign·τ = a·inertial + b·(gravity torque) + c·q̇ + d·sign(q̇) with a free mean and
    a, b, c, d ≥ 0.
    """
    from scipy.optimize import nnls

    parts = np.column_stack([joint.inertial, joint.gravity @ gravity, joint.friction])
    lengths = np.linalg.norm(parts, axis=0)
    parts = parts[:, lengths > 1e-9 * max(lengths.max(initial=0.0), 1e-30)]
    if not parts.shape[1]:
        return 0.0
    parts = parts / np.linalg.norm(parts, axis=0)
    _, rest = nnls(parts, sign * joint.tau)
    return float(1.0 - rest**2 / (joint.tau @ joint.tau))


class TorqueHypotheses:
    """What explains the torques of all joints: gravity in any direction, signs."""

    def __init__(self, robot: Robot, joints: dict[int, JointTorque]) -> None:
        self._robot, self._joints = robot, joints

    def explained(self, gravity: np.ndarray, signs: dict[int, float] | None = None) -> np.ndarray:
        """Return R² by degree of freedom; 0 of those that cannot be judged."""
        out = np.zeros(self._robot.nv)
        for v, joint in self._joints.items():
            out[v] = explained(joint, gravity, (signs or {}).get(v, 1.0))
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

    def other_gravity(self, flipped: set[int]) -> Finding | None:
        """Return that gravity points elsewhere, where this explains more than flipped signs."""
        nominal = np.array(self._robot.gravity)
        direction, loaded = self._direction(), self.loaded()
        if direction is None or not loaded.any():
            return None
        as_logged, other = self.explained(nominal), self.explained(direction)
        turned = self.explained(nominal, dict.fromkeys(self._joints, -1.0))
        with_signs = np.where([v in flipped for v in range(self._robot.nv)], turned, as_logged)
        without = self.explained(np.zeros(3))
        gain, before = (
            np.maximum(r2 - without, 0.0)[loaded].mean() for r2 in (other, as_logged)
        )  # what gravity adds
        left, left_now = (1.0 - r2[loaded].mean() for r2 in (other, as_logged))
        better = bool(gain > 2.0 * before + 0.02 and left < 0.4 and left_now > BETTER * left)
        # all turned at once: rather the mounting
        margin = 0.02 if flipped >= set(np.flatnonzero(loaded).tolist()) else -0.02
        count = len(self._joints)
        if not better or other.sum() / count + margin <= with_signs.sum() / count:
            return None
        finding = self._gravity_finding(direction, other[loaded].mean(), as_logged[loaded].mean())
        if flipped >= set(self._joints):
            also = "; torques of the opposite sign would fit as well"
            finding = replace(finding, message=finding.message + also)
        return finding

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
