"""Free links of `actuators`: what must be known for them, and what the answer says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from thetahat.errors import NotIdentifiable, UsageError, known
from thetahat.identification.actuators.drive_parameters import ARMATURE, DriveParameters
from thetahat.identification.actuators.free_links import FreeLinks, LinkFit
from thetahat.identification.actuators.identify_drives import KnownGains
from thetahat.identification.verdict_reason import Fields
from thetahat.model import parameters
from thetahat.model.robot import Robot

BY_PRIOR = 0.7  # of the prior's standard deviation: a number that the log hardly tells
UNSPLIT = 0.25  # of the sum, from which a part's interval is too wide to be told
Z = 1.96  # of a 95 % interval


@dataclass(frozen=True)
class LinkFreedom:
    """Whether links are fitted with the drives, and masses that are known [kg], by link."""

    free: bool = False
    masses: Mapping[str, float] = field(default_factory=dict)

    def links(
        self, robot: Robot, *, known_gains: KnownGains, moving: np.ndarray, locked: Sequence[str]
    ) -> FreeLinks | None:
        """Return the links to fit, if something known fixes the scale of every joint."""
        if not self.free:
            if self.masses:
                raise UsageError("--mass is of free links; add --links free, or leave it out")
            return None
        _check_masses(robot, self.masses)
        if locked:
            raise UsageError(
                f"--links free needs positions of all joints; the log lacks {known(list(locked))}"
            )
        unscaled = [
            name
            for at, name in enumerate(robot.joint_names)
            if moving[at]
            and not math.isfinite(known_gains.kp[at])
            and not any(name in _above(robot, link) for link in self.masses)
        ]
        if unscaled:
            raise NotIdentifiable(
                "with free links kp, kd, friction, armature and inertia share one scale, which no"
                f" motion shows at {known(unscaled)}; give --kp, or the --mass of a link beyond"
            )
        return FreeLinks.of(robot, self.masses)


def _check_masses(robot: Robot, masses: Mapping[str, float]) -> None:
    for name, mass in masses.items():
        if name not in robot.body_names:
            raise UsageError(
                f"--mass names {name!r}, which is no link that moves; links:"
                f" {known(robot.body_names)}"
            )
        if not (math.isfinite(mass) and mass > 0.0):
            raise UsageError(f"--mass of {name} is {mass:g}; give a mass above zero, in kg")
        if robot.theta.reshape(-1, 10)[robot.body_index(name), parameters.M] <= 0.0:
            raise UsageError(f"--mass of {name}: the robot's file states no mass to scale")


def _above(robot: Robot, link: str) -> set[str]:
    """Return the joints that carry a link."""
    nodes = robot.tree.nodes
    at = next(k for k, node in enumerate(nodes) if node.body == link)
    out = set()
    while at >= 0:
        out.add(nodes[at].name)
        at = nodes[at].parent
    return out


def describe_links(fit: LinkFit) -> Fields:
    """Return masses, base parameters and sums of an answer, schema thetahat/actuators/1."""
    count = len(fit.drives.entries)
    slopes = fit.links.theta_slopes(fit.eta)
    C = fit.covariance[count:, count:]
    spread = np.sqrt(np.maximum(np.diag(C), 0.0)).reshape(-1, 10)
    prior = fit.links.prior.reshape(-1, 10)
    theta = fit.robot.theta.reshape(-1, 10)
    bodies = []
    for k, body in enumerate(fit.links.bodies):
        mass, given = float(theta[body, parameters.M]), prior[k, 0] < 1e-3
        told = given or bool(spread[k, 0] < BY_PRIOR * prior[k, 0])
        bodies.append(
            {
                "name": fit.robot.body_names[body],
                "mass": mass if told else None,
                "std": 2.0 * mass * float(spread[k, 0]) if told else None,
                "given": bool(given),
            }
        )
    base = fit.robot.without_drive().base_parameters
    after = np.sqrt(np.maximum(np.diag(base.map @ slopes @ C @ slopes.T @ base.map.T), 0.0))
    at_prior = fit.links.theta_slopes(fit.links.centre) * fit.links.prior
    before = np.linalg.norm(base.map @ at_prior, axis=1)
    values = base.map @ fit.robot.theta
    return {
        "bodies": bodies,
        "base_parameters": [
            {
                "name": name,
                "value": float(value) if std < BY_PRIOR * wide else None,
                "std": float(std) if std < BY_PRIOR * wide else None,
            }
            for name, value, std, wide in zip(base.names, values, after, before, strict=True)
        ],
        "sums": [_sum(fit, slopes, joint) for joint in _with_armature(fit.drives)],
    }


def _with_armature(drives: DriveParameters) -> list[int]:
    return [int(joint) for joint, parameter in drives.entries if parameter == ARMATURE]


def _sum(fit: LinkFit, slopes: np.ndarray, joint: int) -> Fields:
    """Return a rotor's inertia with its link's about the joint's axis, parts null if unsplit."""
    robot, drives = fit.robot, fit.drives
    name = robot.joint_names[joint]
    node = next(each for each in robot.tree.independent if robot.tree.v_index[each.name] == joint)
    count, entries = len(drives.entries), drives.entries
    armature = float(drives.values[joint, ARMATURE])
    by_drive = np.zeros(count)
    place = np.flatnonzero((entries[:, 0] == joint) & (entries[:, 1] == ARMATURE))[0]
    by_drive[:] = drives.slopes[place]
    link, by_link = 0.0, np.zeros(len(fit.eta))
    if node.body is not None:
        at, axis = robot.body_index(node.body), node.axis
        weight = np.array(
            [float(axis @ parameters.inertia_about_origin(unit) @ axis) for unit in np.eye(10)]
        )
        link = float(weight @ robot.theta.reshape(-1, 10)[at])
        by_link = weight @ slopes[10 * at : 10 * at + 10]

    def std(drive: float, links: float) -> float:
        g = np.concatenate([drive * by_drive, links * by_link])
        return float(np.sqrt(max(g @ fit.covariance @ g, 0.0)))

    total, both = armature + link, std(1.0, 1.0)
    split = Z * std(1.0, 0.0) < UNSPLIT * total
    return {
        "joint": name,
        "name": f"armature of {name} + inertia of {node.body or name} about its axis",
        "value": total,
        "std": both,
        "armature": armature if split else None,
        "inertia": link if split else None,
    }
