"""Forces of the world on links, as generalised forces of all degrees of freedom: Jᵀ·w."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.model.floating_base import moving_link
from thetahat.model.robot import Robot


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
    out = np.zeros((*q.shape[:-1], robot.nv))
    for link, wrench in wrenches.items():
        force, couple = wrench[..., :3], wrench[..., 3:]
        if world:
            to_link = np.swapaxes(link_place(robot, q, link)[0], -1, -2)
            force, couple = ((to_link @ each[..., None])[..., 0] for each in (force, couple))
        J = link_jacobian(robot, q, link)
        out += np.einsum("...iv,...i->...v", J, np.concatenate([couple, force], axis=-1))
    return out
