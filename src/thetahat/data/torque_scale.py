"""Scale of logged torques against the load that the robot file states: units, gear ratios.

Per joint τ = s·(inertia and gravity of the file) + friction + rotor inertia·q̈ + offset by least
squares. A file may be wrong by half and more, and a small robot's torque is mostly friction and
rotor inertia; so a scale counts only where the file's load explains the shape of the torque, and
only if it is far from one. Millinewton-metres are 1000, currents and motor-side torques far below
one; a joint off by its gear ratio differs from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from thetahat.data.finding_kinds import treatment
from thetahat.data.joint_torques import JointTorque
from thetahat.data.types import Finding, Mask
from thetahat.model.robot import Robot

SHAPE = 0.6  # of the torque that friction and rotor leave: the load explains so much of it
SHARE = 0.012  # of the torque's variance that the load must be
COMMON = 5.0  # a factor of all joints from here on is no wrong mass
SPREAD = 30.0  # factors of two joints further apart are no common unit
COARSE = 100.0  # likewise where rotor inertia could explain the shape
OWN = 8.0  # a factor of one joint against the others
OWN_LINK = 20.0  # likewise where the joint carries its own link alone, whose file may be far off
OUTER_SHAPE, OUTER_SHARE = 0.5, 0.05  # with which the links beyond the own one tell by themselves
ARM = 0.5  # [m] at which the whole robot's weight bounds what such a joint can carry
DEAD_SHARE, DEAD_SHAPE = 0.01, 0.2  # of the file's load, and of its shape: a dead channel's noise
MILLI = (500.0, 2000.0)  # factors that stand for mN·m


class LoadFit(NamedTuple):
    """How the load of the file, scaled, explains a joint's torque."""

    factor: float  # torque over load
    explained: float  # of what other columns leave of the torque
    share: float  # of the torque's variance

    @property
    def clear(self) -> bool:
        """Whether the load explains enough of the torque."""
        return self.explained >= SHAPE and self.share >= SHARE and self.factor > 0.0


@dataclass(frozen=True)
class TorqueScale:
    """How one joint's torque compares with the load of the file."""

    dof: int
    load: LoadFit  # beside friction and rotor inertia
    coarse: LoadFit  # if there were no rotor inertia
    outer: LoadFit  # by the links that the joint's own link carries
    bounded: bool  # whether the robot's weight could be the torque
    flagged: bool = False
    common: bool = False  # with all others

    @property
    def best(self) -> LoadFit:
        """The fit to go by."""
        return self.load if self.load.clear else self.coarse


def torque_scales(joints: dict[int, JointTorque], robot: Robot) -> list[TorqueScale]:
    """Return the scale of every joint, those that cannot be N·m flagged."""
    scales = [_scale(v, joint, robot) for v, joint in joints.items()]
    judged = [scale for scale in scales if scale.load.clear]
    common = _common(scales, judged)
    if common is not None:
        scales = [replace(scale, flagged=True, common=True) for scale in scales]
        judged = [scale for scale in scales if scale.load.clear]
    usual = common or _usual([scale.load.factor for scale in judged])
    alone = {scale.dof for scale in judged if _differs(scale, usual)}
    return [
        replace(scale, flagged=True, common=False) if scale.dof in alone else scale
        for scale in scales
    ]


def common_factor(scales: Sequence[TorqueScale]) -> float:
    """Return the factor of all joints, 1 where there is none."""
    together = [scale for scale in scales if scale.common]
    clear = [scale.load.factor for scale in together if scale.load.clear]
    rough = [scale.coarse.factor for scale in together if scale.coarse.clear]
    chosen = clear or rough
    return float(np.exp(np.median(np.log(chosen)))) if chosen else 1.0


def _scale(dof: int, joint: JointTorque, robot: Robot) -> TorqueScale:
    gravity = np.array(robot.gravity)
    load, tau = joint.load(gravity), joint.tau
    nuisance = np.column_stack([joint.friction, joint.rotor])
    fit = _partial(load, tau, nuisance)
    # the whole robot half a metre away would not be so heavy
    mass = float(np.sum(robot.theta.reshape(-1, 10)[:, 9]))
    most = float(np.linalg.norm(gravity)) * mass * ARM
    return TorqueScale(
        dof=dof,
        load=fit,
        coarse=_partial(load, tau, joint.friction),
        outer=_partial(load, tau, np.column_stack([nuisance, joint.own])),
        bounded=bool(np.sqrt(2.0 * fit.share) * joint.unit <= most),
    )


def _partial(load: np.ndarray, tau: np.ndarray, nuisance: np.ndarray) -> LoadFit:
    """Return how a load explains a torque beside other columns."""
    lengths = np.linalg.norm(nuisance, axis=0)
    basis = np.linalg.svd(nuisance / np.where(lengths > 0.0, lengths, 1.0), full_matrices=False)
    least = 1e-6 * max(float(basis.S.max(initial=0.0)), 1e-30)
    kept = basis.U[:, least < basis.S]
    own, rest = (x - kept @ (kept.T @ x) for x in (load, tau))
    square, left = float(own @ own), float(rest @ rest)
    if square <= 1e-12 * float(load @ load) or left <= 0.0:
        return LoadFit(0.0, 0.0, 0.0)
    factor = float(own @ rest) / square
    share = factor**2 * square
    return LoadFit(factor, share / left, share / float(tau @ tau))


def _common(scales: list[TorqueScale], judged: list[TorqueScale]) -> float | None:
    """Return the factor by which all torques are off, if they are."""
    if len(judged) >= 2 or (judged and len(scales) == 1):
        logs = np.log([scale.load.factor for scale in judged])
        middle = float(np.median(logs))
        same = np.mean(np.sign(middle) * logs > np.log(COMMON) / 2.0)
        together = np.ptp(logs) < np.log(SPREAD) or len(judged) > 2
        if abs(middle) > np.log(COMMON) and same >= 0.75 and together:
            return float(np.exp(middle))
        return None
    # as many joints as there are, none of which rotors could explain
    rough = [scale.coarse.factor for scale in scales if scale.coarse.clear]
    if len(rough) < max(1, (len(scales) + 1) // 2) or min(rough) < COARSE:
        return None
    return float(np.exp(np.median(np.log(rough))))


def _usual(factors: list[float]) -> float:
    """Return the factor that most joints have; of two the one nearer to 1, of one joint 1."""
    if len(factors) > 2:
        return float(np.exp(np.median(np.log(factors))))
    if len(factors) < 2:
        return 1.0
    nearest = min(factors, key=lambda factor: abs(np.log(factor)))
    return float(np.clip(nearest, 1.0 / COMMON, COMMON))


def _differs(scale: TorqueScale, usual: float) -> bool:
    """Return whether one joint's torque is in another unit than the others'."""
    ratio = scale.load.factor / usual
    if max(ratio, 1.0 / ratio) < OWN:
        return False
    if scale.outer.explained >= OUTER_SHAPE and scale.outer.share >= OUTER_SHARE:
        outer = scale.outer.factor / usual
        return outer > OWN / 2.0 if ratio > 1.0 else 0.0 < outer < 2.0 / OWN
    if max(ratio, 1.0 / ratio) < OWN_LINK:
        return False
    return ratio < 1.0 or not scale.bounded


def scale_findings(scales: Sequence[TorqueScale], robot: Robot) -> list[Finding]:
    """Return findings about the unit of all torques, and about single joints."""
    names = robot.velocity_names
    out: list[Finding] = []
    common = common_factor(scales)
    together = [scale for scale in scales if scale.common]
    if together:
        shown = [scale for scale in together if scale.best.clear]
        each = ", ".join(f"{names[scale.dof]} {_times(scale.best.factor)}" for scale in shown)
        shape = np.median([scale.best.explained for scale in shown])
        out.append(
            Finding(
                "torque-scale",
                None,
                None,
                f"the torques are {_times(common)} times the gravity and inertia load of the robot"
                f" file, whose shape they have ({shape:.0%} explained; {each}): {_remedy(common)};"
                " nothing was changed",
            )
        )
    others = [s.load.factor for s in scales if s.load.clear and (s.common or not s.flagged)]
    for scale in scales:
        if not scale.flagged or scale.common:
            continue
        name, fit = names[scale.dof], scale.load
        usual = f", the other joints' {_times(float(np.median(others)))} times" if others else ""
        ratio = fit.factor / (float(np.median(others)) if others else 1.0)
        out.append(
            Finding(
                "torque-scale",
                name,
                None,
                f"joint {name!r}: its torque is {_times(fit.factor)} times the gravity and inertia"
                f" load of the robot file, whose shape it has ({fit.explained:.0%} explained)"
                f"{usual}: its unit or gear ratio seems wrong; multiply the column by about"
                f" {_times(1.0 / ratio)}, or check the masses in the file; nothing was changed",
            )
        )
    return out


def _times(factor: float) -> str:
    """Return a factor in three digits, without an exponent where it is large."""
    return f"{float(f'{factor:.3g}'):.0f}" if factor >= 100.0 else f"{factor:.3g}"


def _remedy(factor: float) -> str:
    if MILLI[0] <= factor <= MILLI[1]:
        return "they seem to be in mN·m; pass --units tau=mNm, or check the masses in the file"
    if factor > 1.0:
        return (
            f"their unit is not N·m, or the file's masses are placeholders; multiply them by about"
            f" {1.0 / factor:.3g}, or correct the file"
        )
    return (
        "they seem to be motor currents or motor-side torques; multiply each column by its torque"
        f" constant and gear ratio, together about {_times(1.0 / factor)}, or check the file's"
        " masses"
    )


def dead_torques(
    joints: dict[int, JointTorque], robot: Robot, *, rows: int, keep: tuple[str, ...]
) -> tuple[list[Finding], list[Mask]]:
    """Return channels that hold noise alone, where the file states a load and others show it."""
    gravity, names = np.array(robot.gravity), robot.velocity_names
    fits = {v: _scale(v, joint, robot).load for v, joint in joints.items()}
    usual = [f.factor for f in fits.values() if f.clear and 1.0 / COMMON < f.factor < COMMON]
    findings: list[Finding] = []
    masks: list[Mask] = []
    for v, joint in joints.items():
        load = float(np.std(joint.load(gravity))) * joint.unit
        friction = _partial(joint.friction[:, 1], joint.tau, joint.friction[:, :1])
        shape = max(fits[v].explained, friction.explained)
        few = len(usual) < min(2, max(len(joints) - 1, 1))
        if few or joint.unit > DEAD_SHARE * load or shape > DEAD_SHAPE:
            continue
        kept = "dead-torque" in keep
        what = (
            f"joint {names[v]!r}: its torque varies by {joint.unit:.3g} N·m where the robot file"
            f" needs {load:.3g}, and follows neither load nor friction, so the channel is dead; all"
            " its torques are"
        )
        message = treatment("dead-torque", what, keep)
        findings.append(Finding("dead-torque", names[v], (0, rows), message, kept=kept))
        if not kept:
            masks.append(Mask(v, 0, rows, "dead torque"))
    return findings, masks
