"""What a model must be explained by after a confirmed change.

A model that was trusted stopped explaining the torques. That is a robot that changed, or a sensor
that lies; a fit is silent about which. So the model that is learned next is compared with the one
that was trusted, on the same samples, and may be used where

    near       it differs from it by less than the nominal robot does: if the torques lie, and the
               trusted model is right, it is still no worse than the nominal robot; or by no more
               than a twentieth of the torques
    explained  a body held by the payload link (else by a last link) or let go, physical and no
               further away than a hand holds it, and friction of the joints, leave a quarter of the
               difference at most, and no more than scales of the torque channels would
    stated     somebody expects a change: GateRules(expect=…)

Differences are RMS over samples, relative to each joint's torque, and RMS over joints. The gate
stays closed otherwise, until a model passes, or `OnlineIdentifier.reset` says that the robot is
another one.
"""

from __future__ import annotations

import numpy as np

from thetahat.data.samples import Samples
from thetahat.dynamics import rigid_body
from thetahat.errors import NotIdentifiable
from thetahat.identification import factor as f
from thetahat.identification.payload.payload_body import HELD, fit_payload, typical_mass
from thetahat.identification.payload.payload_evidence import Evidence
from thetahat.identification.payload.payload_place import PayloadPlace, payload_place
from thetahat.model.parameters import FIRST_MOMENT, SIZE
from thetahat.model.robot import Robot
from thetahat.online.predict import Model

SMALL = 0.05  # of the torques
LEFT = 0.25  # of the difference that a payload and friction may leave
SIGMA = 0.01  # of a joint's torque: what models are usually off
REACH = 0.5  # [m] from the link's frame to the centre of what it may hold
LEAST_ROWS = 60  # samples, below which nothing is said
STATED = ("torque", "payload", "mass")


class AfterChange:
    """Compares models with the one that was trusted before a change.

    link: that may carry a payload; None: the last ones.
    """

    def __init__(self, trusted: Model, nominal: Model, robot: Robot, link: str | None) -> None:
        self._trusted, self._nominal, self._robot = trusted, nominal, robot
        links = [robot.body_names[k] for k in last_bodies(robot)] if link is None else [link]
        self._places = [payload_place(robot, name, None) for name in links]

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
        left = min(self._left(place, states, difference, size) for place in self._places)
        scaled = _rms(
            _beside_friction((new / size)[:, :, None], states[1], trusted / size)[:, :, 0]
        )
        if left <= min(LEFT * change, max(scaled, SIGMA)):
            return ""
        like = ", and scales of the torques less" if scaled < left else ""
        return (
            f"since the last alarm the torques differ by {change:.0%} from those of the model used"
            f" before, and a payload and friction leave {left:.1%}{like}; check the sensors, or"
            ' state the change: expect=("payload",) or reset()'
        )

    def _left(
        self,
        place: PayloadPlace,
        states: tuple[np.ndarray, np.ndarray, np.ndarray],
        difference: np.ndarray,
        size: np.ndarray,
    ) -> float:
        """RMS of what a payload at a place and friction leave of a difference (n, nv)."""
        n, nv = difference.shape
        Y = rigid_body.regressor(self._robot, *states)[:, :, place.span] @ place.to_body
        rows = np.concatenate([Y / size[:, None], difference[:, :, None]], axis=2) / SIGMA
        rows = _beside_friction(rows, states[1])
        factor = f.triangle(np.asfortranarray(rows.reshape(n * nv, SIZE + 1)))
        left = [float(np.linalg.norm(factor[:, -1]))]  # of friction alone
        for sign in (1.0, -1.0):  # held, or let go
            signed = factor * np.append(np.ones(SIZE), sign)
            try:
                typical = typical_mass(self._robot)
                held = fit_payload(Evidence(signed, 0.0, 0), place, typical=typical, size=HELD)
            except (NotIdentifiable, np.linalg.LinAlgError):
                continue
            if np.linalg.norm(held.theta[list(FIRST_MOMENT)]) <= REACH * held.mass:
                left.append(float(np.linalg.norm(signed[:, :-1] @ held.theta - signed[:, -1])))
        return SIGMA * min(left) / float(np.sqrt(n * nv))


def _beside_friction(
    rows: np.ndarray, dq: np.ndarray, torque: np.ndarray | None = None
) -> np.ndarray:
    """What friction of each joint, and a scale of its `torque`, leave of rows (n, nv, k)."""
    out = np.empty_like(rows)
    for j in range(rows.shape[1]):
        columns = [dq[:, j], np.sign(dq[:, j])]
        A = np.column_stack(columns if torque is None else [*columns, torque[:, j]])
        Q = np.linalg.qr(A)[0]
        out[:, j] = rows[:, j] - Q @ (Q.T @ rows[:, j])
    return out


def last_bodies(robot: Robot) -> tuple[int, ...]:
    """Indices of bodies that carry no other body."""
    parents = {node.parent for node in robot.tree.nodes}
    return tuple(k for k in range(len(robot.body_names)) if k not in parents)


def _rms(relative: np.ndarray) -> float:
    return float(np.sqrt(np.mean(relative**2)))
