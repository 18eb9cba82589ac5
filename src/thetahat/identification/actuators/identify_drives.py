"""The drives of a robot from a log: linear start, simulation error, earned terms, uncertainty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from thetahat.identification.actuators.backlash_selection import with_earned_backlash
from thetahat.identification.actuators.drive_fit import DriveFit, SimulationError, fit_drives
from thetahat.identification.actuators.drive_log import DriveLog, Segment
from thetahat.identification.actuators.drive_parameters import (
    BACK_EMF,
    BACKLASH,
    BIAS,
    LIMIT,
    NAMES,
    DriveParameters,
)
from thetahat.identification.actuators.drive_rollout import DriveRollout
from thetahat.identification.actuators.drive_uncertainty import DriveUncertainty, drive_uncertainty
from thetahat.identification.actuators.effort_law import EffortLaw, effort_law, with_told_kd
from thetahat.identification.actuators.free_links import (
    FreeLinks,
    LinkFit,
    fit_links,
    with_covariance,
)
from thetahat.identification.actuators.linear_start import linear_start
from thetahat.identification.actuators.term_selection import (
    CANDIDATES,
    with_earned_terms,
    with_free_kd,
)
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

SEGMENT = 10.0  # [s] simulated in one piece
SCREENED_ROWS = 8_000  # on which terms are chosen and the first steps are made
COARSE_STEP = 10e-3  # [s] of the first simulations
FINAL_STEPS = 3  # on all rows
UPRIGHT = 1e-3  # of gravity's size: an axis this parallel to it feels none


@dataclass(frozen=True, eq=False)
class KnownGains:
    """Gains that the user states, (joints,), NaN where they do not."""

    kp: np.ndarray
    kd: np.ndarray


@dataclass(frozen=True, eq=False)
class IdentifiedDrives:
    """Fitted drives with their uncertainty; joints that did not move keep the start."""

    fit: DriveFit
    uncertainty: DriveUncertainty
    moving: np.ndarray  # (joints,) bool
    friction: tuple[str, ...]  # terms that earned their place somewhere
    robot: Robot  # whose links were simulated
    links: LinkFit | None = None  # where they were free
    efforts: EffortLaw | None = None  # where the log has the drives' current or duty cycle


def identify_drives(
    robot: Robot,
    log: DriveLog,
    *,
    known: KnownGains,
    file_kp: np.ndarray,
    moving: np.ndarray,
    stage: Callable[[str], None],
    links: FreeLinks | None = None,
) -> IdentifiedDrives:
    """Identify the drives that move in a log, and the links where they are free."""
    stage("fitting the drives: linear start")
    start = start_of(robot, log, known=known, file_kp=file_kp, moving=moving)
    segments = log.segments(SEGMENT)
    few = _screened(segments)
    stage("fitting the drives: simulation error")
    fit = fit_drives(SimulationError(DriveRollout(robot, log, step=COARSE_STEP), few), start)
    freed: LinkFit | None = None
    if links is not None:
        stage("fitting links and drives")
        freed = fit_links(log, few, fit.drives, links)
        robot, fit = freed.robot, replace(fit, drives=freed.drives)
    rollout = DriveRollout(robot, log)
    some = SimulationError(rollout, few)
    fit = fit_drives(some, fit.drives)
    stage("looking for backlash")
    fit = with_earned_backlash(some, fit, kd_known=np.isfinite(known.kd))
    stage("choosing friction terms")
    chosen = with_free_kd(with_earned_terms(some, fit.drives), np.isfinite(known.kd))
    if np.any(chosen.free != fit.drives.free):
        fit = fit_drives(some, chosen)
    everything = some
    if len(few) < len(segments):
        stage("fitting the drives: all rows")
        everything = SimulationError(rollout, segments)
        fit = fit_drives(everything, fit.drives, most_steps=FINAL_STEPS)
    law = effort_law(log, fit.drives, moving)
    if law is not None:
        fit = replace(fit, drives=with_told_kd(fit.drives, law, np.isfinite(known.kd)))
    fit = replace(fit, drives=_without_zeros(fit.drives))
    stage("computing intervals")
    uncertainty = drive_uncertainty(everything, fit)
    if freed is not None:
        freed = with_covariance(freed, log, few, fit.drives)
        uncertainty = uncertainty.beside_links(freed.covariance)
    earned = tuple(
        NAMES[k] for k in (*CANDIDATES, LIMIT, BACKLASH, BACK_EMF) if fit.drives.free[:, k].any()
    )
    return IdentifiedDrives(fit, uncertainty, moving, earned, robot, freed, law)


def start_of(
    robot: Robot, log: DriveLog, *, known: KnownGains, file_kp: np.ndarray, moving: np.ndarray
) -> DriveParameters:
    """Return where the fit begins: the linear start, with the parameters that it is to move."""
    linear = linear_start(robot, log, kp=known.kp, file_kp=file_kp)
    kd = np.nan_to_num(known.kd)
    drives = DriveParameters.of(log.joints).with_values(
        kp=linear.kp,
        kd=kd,
        viscous=np.maximum(linear.damping - kd, 1e-3 * linear.kp),
        coulomb=linear.coulomb,
        armature=linear.armature,
        delay=np.minimum(linear.delay, 0.03),
        offset=linear.offset,
    )
    drives = drives.with_free("kp", moving & ~np.isfinite(known.kp))
    for name in ("viscous", "coulomb", "armature", "delay", "offset"):
        drives = drives.with_free(name, moving)
    return drives.with_free("bias", moving & ~upright_axes(robot))


def upright_axes(robot: Robot) -> np.ndarray:
    """Return which joints never feel gravity: sliding ones, and first joints along gravity.

    An encoder's bias shows through gravity alone.
    """
    out = np.zeros(robot.nv, dtype=bool)
    size = float(np.linalg.norm(robot.gravity))
    for node in robot.tree.independent:
        at = robot.tree.v_index[node.name]
        if node.kind is not JointKind.REVOLUTE or size == 0.0:
            out[at] = True
        elif node.parent < 0:
            axis = node.rotation @ node.axis
            out[at] = bool(np.linalg.norm(np.cross(axis, robot.gravity)) < UPRIGHT * size)
    return out


def _screened(segments: list[Segment]) -> list[Segment]:
    """Some segments, evenly spread over the log."""
    rows = sum(each.rows for each in segments)
    every = max(1, int(np.ceil(rows / SCREENED_ROWS)))
    return segments[every // 2 :: every] if every < len(segments) else segments[:1]


def _without_zeros(drives: DriveParameters) -> DriveParameters:
    """Terms that fell to zero are not in the model."""
    free = drives.free.copy()
    for k in (*CANDIDATES, BACKLASH, BACK_EMF):
        free[:, k] &= drives.values[:, k] > 0.0
    return DriveParameters(drives.values, free)


def bias_is_known(uncertainty: DriveUncertainty, joint: int, prior: float) -> bool:
    """Whether the log tells an encoder's bias better than its prior."""
    if not uncertainty.drives.free[joint, BIAS]:
        return False
    std = uncertainty.std(joint, "bias")
    return std is not None and std < 0.7 * prior
