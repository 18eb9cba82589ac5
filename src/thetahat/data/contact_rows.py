"""Samples of feet on the ground: their rows without the contact forces, which are not measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thetahat.data.samples import EDGE, STANDSTILL, USABLE, Samples
from thetahat.dynamics.contact_projection import (
    ContactProjection,
    contact_projection,
    eliminates_forces,
)
from thetahat.errors import UsageError
from thetahat.model.robot import Robot

TILE = 512  # samples whose rows are projected at once


def contacts_of(robot: Robot, samples: Samples) -> ContactProjection | None:
    """Return what eliminates the contact forces of samples; None where none act."""
    if not eliminates_forces(robot):
        return None
    if samples.contact is None:
        raise UsageError(
            f"robot {robot.name!r} has feet on ground whose force is not measured, and the samples"
            " do not say which are down; pass contact=, one column per foot"
        )
    return contact_projection(robot, samples.q, samples.contact, measured(samples))


def measured(samples: Samples) -> np.ndarray:
    """Return whether each torque was measured, (n, nv), used or not."""
    if samples.reason is None:
        return np.ones(samples.tau.shape, dtype=bool)
    return np.isin(samples.reason, (USABLE, STANDSTILL, EDGE))


def without_contact_forces(robot: Robot, samples: Samples, rows: np.ndarray) -> np.ndarray:
    """Return rows, (n, nv) or (n, nv, columns), without what contact forces may add to them; the
    same rows where none act. Twice is as good as once.
    """
    if not eliminates_forces(robot):
        return rows
    out = np.empty(rows.shape)
    for first in range(0, len(samples), TILE):
        part = slice(first, first + TILE)
        projection = contacts_of(robot, samples.subset(part))
        assert projection is not None
        out[part] = projection.apply(rows[part])
    return out


def project_torques(robot: Robot, samples: Samples) -> Samples:
    """Return samples whose torques are without contact forces."""
    if not eliminates_forces(robot):
        return samples
    return replace(samples, tau=without_contact_forces(robot, samples, samples.tau))
