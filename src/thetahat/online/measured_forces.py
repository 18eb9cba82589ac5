"""Forces of the world on links, measured in every cycle: the known torques of all joints."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thetahat.dynamics.link_forces import generalised_forces
from thetahat.errors import UsageError
from thetahat.model.floating_base import moving_link
from thetahat.model.robot import Robot


class MeasuredForces:
    """Torques Jᵀ·w of measured wrenches, beside those of the motors."""

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self._known: set[str] = set()

    def added(
        self, tau: np.ndarray, q: np.ndarray, wrenches: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Return the motors' torques (nv,) and what the wrenches exert on the joints."""
        for link, wrench in wrenches.items():
            if link not in self._known:
                moving_link(self._robot, link, f"wrenches[{link!r}]")
                self._known.add(link)
            if np.shape(wrench) != (6,):
                raise UsageError(
                    f"wrenches[{link!r}] has shape {np.shape(wrench)}; give six numbers, force and"
                    " couple in the link's axes"
                )
        position = np.asarray(q, dtype=float)
        if position.shape != (self._robot.nq,) or not np.all(np.isfinite(position)):
            return tau  # what is wrong with q, the stream says
        arrays = {link: np.asarray(wrench, dtype=float) for link, wrench in wrenches.items()}
        if not all(np.all(np.isfinite(each)) for each in arrays.values()):
            return np.full(self._robot.nv, np.nan)  # which the stream drops, and says so
        motors = np.asarray(tau, dtype=float)
        return np.asarray(motors + generalised_forces(self._robot, position, arrays))
