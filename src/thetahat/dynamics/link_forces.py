"""Forces of the world on links, as generalised forces of all degrees of freedom: Jᵀ·w."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.model.floating_base import moving_link
from thetahat.model.robot import Robot
from thetahat.model.spatial import skew


def link_jacobian(robot: Robot, q: np.ndarray, link: str) -> np.ndarray:
    """Compute J(q), (…, 6, nv): the link's twist at its origin in its own axes, angular first."""
    place = moving_link(robot, link, link)
    J = rigid_body.body_jacobian(robot, q, robot.body_names[place.body])
    angular, linear = J[..., :3, :], J[..., 3:, :]
    # v of the link's origin p in the body: v + ω × p
    moved = linear + np.cross(angular, place.translation[:, None], axis=-2)
    to_link = place.rotation.T
    return np.concatenate([to_link @ angular, to_link @ moved], axis=-2)


def link_place(robot: Robot, q: np.ndarray, link: str) -> tuple[np.ndarray, np.ndarray]:
    """Compute the rotation of a link's axes in the world, (…, 3, 3), and its origin, (…, 3) [m]."""
    place = moving_link(robot, link, link)
    R, p = rigid_body.body_frames(robot, q)
    R, p = R[..., place.body, :, :], p[..., place.body, :]
    return np.asarray(R @ place.rotation), np.asarray(p + R @ place.translation)


def generalised_forces(
    robot: Robot, q: np.ndarray, wrenches: Mapping[str, np.ndarray], *, world: bool = False
) -> np.ndarray:
    """Compute Σ Jᵀ·w, (…, nv), of wrenches by link, each (…, 6): force, then couple, about the
    link's origin, in its axes or, with `world`, in the world's.
    """
    bodies = np.zeros((*q.shape[:-1], len(robot.body_names), 6))
    frames = rigid_body.body_frames(robot, q)[0] if world else None
    for link, wrench in wrenches.items():
        place = moving_link(robot, link, link)
        force, couple = wrench[..., :3], wrench[..., 3:]
        if frames is None:  # into the body's axes, v Rᵀ = R v
            force, couple = force @ place.rotation.T, couple @ place.rotation.T
        else:
            back = frames[..., place.body, :, :]
            force, couple = (np.einsum("...ji,...j->...i", back, each) for each in (force, couple))
        bodies[..., place.body, :3] += couple + force @ skew(place.translation).T
        bodies[..., place.body, 3:] += force
    still, nothing = np.zeros((*q.shape[:-1], robot.nv)), np.zeros_like(robot.theta)
    massless = rigid_body.inverse_dynamics(
        robot, q, still, still, rigid=True, wrenches=bodies, theta=nothing
    )
    return -massless
