"""What a model must be explained by after a confirmed change.

A model that was trusted stopped explaining the torques. That is a robot that changed, or a sensor
that lies; a fit is silent about which. So the model that is learned next is compared with the one
that was trusted, on the same samples, and may be used where

    near       it differs from it by less than the nominal robot does: if the torques lie, and the
               trusted model is right, it is still no worse than the nominal robot; or by no more
               than a twentieth of the torques
    explained  a body on the payload link (else on a last link), and friction of the joints, leave a
               quarter of the difference at most
    stated     somebody expects a change: GateRules(expect=…)

Differences are RMS over samples, relative to each joint's torque, and RMS over joints. The gate
stays closed otherwise, until a model passes, or `OnlineIdentifier.reset` says that the robot is
another one.
"""

from __future__ import annotations

import numpy as np

from thetahat.data.samples import Samples
from thetahat.dynamics import rigid_body
from thetahat.model.parameters import SIZE
from thetahat.model.robot import Robot
from thetahat.online.predict import Model

SMALL = 0.05  # of the torques
LEFT = 0.25  # of the difference that a payload and friction may leave
LEAST_ROWS = 60  # samples, below which nothing is said
STATED = ("torque", "payload", "mass")


class AfterChange:
    """Compares models with the one that was trusted before a change.

    link: that may carry a payload; None: the last ones.
    """

    def __init__(self, trusted: Model, nominal: Model, robot: Robot, link: str | None) -> None:
        self._trusted, self._nominal, self._robot = trusted, nominal, robot
        self._bodies = last_bodies(robot) if link is None else (robot.body_index(link),)

    def sentence(self, model: Model, samples: Samples) -> str:
        """Why a model may not be used, "" where it may; samples: of after the change."""
        if len(samples.q) < LEAST_ROWS:
            return "too few samples tell what changed"
        states = samples.q, samples.dq, samples.ddq
        new, trusted, nominal = (
            np.array(each.torque(*states)) for each in (model, self._trusted, self._nominal)
        )
        size = np.sqrt(np.mean(new**2, axis=0))
        size = np.maximum(size, SMALL * float(np.max(size)))  # (nv,) what a joint carries
        if not np.all(size > 0.0):
            return ""
        difference = (new - trusted) / size
        change = _rms(difference)
        if change <= max(SMALL, _rms((nominal - trusted) / size)):
            return ""
        left = min(self._left(body, states, difference, size) for body in self._bodies)
        if left <= LEFT * change:
            return ""
        return (
            f"since the last alarm the torques differ by {change:.0%} from those of the model used"
            f" before, and a payload and friction leave {left:.0%}; check the sensors, or state the"
            ' change: expect=("payload",) or reset()'
        )

    def _left(
        self,
        body: int,
        states: tuple[np.ndarray, np.ndarray, np.ndarray],
        difference: np.ndarray,
        size: np.ndarray,
    ) -> float:
        """RMS of what a payload on a body and friction leave of a difference (n, nv)."""
        n, nv = difference.shape
        Y = rigid_body.regressor(self._robot, *states)[:, :, SIZE * body : SIZE * (body + 1)]
        held = (Y / size[:, None]).reshape(n * nv, SIZE)
        dq = states[1]
        friction = np.zeros((n, nv, 2 * nv))
        joints = np.arange(nv)
        friction[:, joints, joints], friction[:, joints, nv + joints] = dq, np.sign(dq)
        A = np.hstack([held, friction.reshape(n * nv, 2 * nv)])
        A = A / np.maximum(np.linalg.norm(A, axis=0), 1e-12)
        b = difference.ravel()
        x = np.linalg.lstsq(A, b, rcond=1e-6)[0]
        return float(np.sqrt(np.mean((b - A @ x) ** 2)))


def last_bodies(robot: Robot) -> tuple[int, ...]:
    """Indices of bodies that carry no other body."""
    parents = {node.parent for node in robot.tree.nodes}
    return tuple(k for k in range(len(robot.body_names)) if k not in parents)


def _rms(relative: np.ndarray) -> float:
    return float(np.sqrt(np.mean(relative**2)))
