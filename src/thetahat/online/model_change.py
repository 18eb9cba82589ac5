"""How far an identified robot is from its nominal one, where the motion shows it.

A gate that asks for prediction alone is silent about a torque channel in the wrong unit: torques
three times too large are predicted perfectly by a robot three times too heavy. So a change beyond a
factor of two must be expected by somebody.

On held-out samples, per joint,

    torque   a = Σ τ_identified τ_nominal / Σ τ_nominal²         allowed: 1/2 to 2
    gravity  the same of G(q) alone, over the same postures       allowed: 1/2 to 2
    inertia  the same of D_jj |q̈_j|                              allowed: 1/2 to 2

and the mass of all bodies. A short motion tells the sum of gravity, inertia, friction and offset,
not its parts; so gravity and inertia are judged only where the torque has changed by a factor of
1.4, and the mass only where all joints' have. Joints are compared where the nominal torque is at
least a twentieth of the largest joint's of the same unit, and ten times the noise: what a wrist's
file says about its rotor or friction may be wrong by any factor, and does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.model.parameters import SIZE, M
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

FACTOR = 2.0  # by which a model may differ from the nominal one unless that is expected
SHARE = 0.05  # of the largest joint's nominal torque, below which a joint is not compared
TIMES_NOISE = 10.0
SHOWN = 1.4  # ratio of torques from which on a change of gravity, inertia or mass is shown by them
LEAST_ROWS = 20
# the largest ratio of joints over the smallest, below which all are scaled alike: no payload does
ALIKE = 1.3


@dataclass(frozen=True, eq=False)
class ModelChange:
    """Ratios of an identified robot to the nominal one, (nv,) each, NaN where nothing can be
    compared.
    """

    torque: np.ndarray
    gravity: np.ndarray
    inertia: np.ndarray
    mass: float  # of all bodies

    @property
    def uniform(self) -> bool:
        """Whether all joints that are compared changed by the same factor: a unit, not a
        payload.
        """
        known = self.torque[np.isfinite(self.torque)]
        return bool(len(known) and np.min(known) > 0.0 and np.ptp(np.log(known)) < np.log(ALIKE))


def model_change(
    nominal: Robot,
    identified: Robot,
    q: np.ndarray,
    dq: np.ndarray,
    ddq: np.ndarray,
    *,
    noise: np.ndarray | float = 0.0,
) -> ModelChange | None:
    """Compare two robots of the same tree along held-out samples, (n, nq) and (n, nv); None where
    there are too few. noise: (nv,) of the torques [N·m or N].
    """
    if len(q) < LEAST_ROWS:
        return None
    pairs = []
    for robot in (nominal, identified):
        torque = rigid_body.inverse_dynamics(robot, q, dq, ddq)
        inertia = np.einsum("kii->ki", rigid_body.mass_matrix(robot, q, rigid=True))
        pairs.append((torque, rigid_body.gravity(robot, q), inertia))
    (torque, gravity, inertia), (torque_i, gravity_i, inertia_i) = pairs
    moved = inertia * np.abs(ddq)
    masses = [float(np.sum(robot.theta[M::SIZE])) for robot in (nominal, identified)]
    return ModelChange(
        _ratio(torque_i, torque, torque, nominal, noise),
        _ratio(gravity_i, gravity, torque, nominal, noise),
        _ratio(inertia_i * np.abs(ddq), moved, torque, nominal, noise),
        masses[1] / masses[0] if masses[0] > 0.0 else float("nan"),
    )


def measured_ratio(
    nominal: Robot, cross: np.ndarray, square: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """a of measured torques, (nv,), NaN where nothing can be compared; cross, square: (nv,) means
    of τ τ_nominal and τ_nominal² over held-out samples.
    """
    size = np.sqrt(square)
    known = (size > SHARE * _largest(nominal, size)) & (size > TIMES_NOISE * noise) & (size > 0.0)
    return np.where(known, cross / np.where(known, square, 1.0), np.nan)


def is_light(robot: Robot, size: np.ndarray) -> np.ndarray:
    """(nv,) bool: whose torques of these sizes (nv,) are too small to be compared one by one."""
    return np.asarray(size <= SHARE * _largest(robot, size))


def is_shown(torque: np.ndarray) -> np.ndarray:
    """(nv,) bool: whose torques changed so much that parts of them can be judged."""
    with np.errstate(invalid="ignore"):
        return np.asarray((torque > SHOWN) | (torque < 1.0 / SHOWN))


def _largest(robot: Robot, size: np.ndarray) -> np.ndarray:
    """(nv,) the largest size among joints of the same unit."""
    slides = np.array(
        [
            node.kind is JointKind.PRISMATIC
            for node in robot.tree.independent
            for _ in range(node.kind.nv)
        ]
    )
    out = np.zeros(len(size))
    for kind in (slides, ~slides):
        if np.any(kind):
            out[kind] = np.max(size[kind])
    return out


def _ratio(
    identified: np.ndarray,
    nominal: np.ndarray,
    torque: np.ndarray,
    robot: Robot,
    noise: np.ndarray | float,
) -> np.ndarray:
    """Regression of the one on the other per joint, (nv,), NaN where the nominal one is small."""
    size = np.sqrt(np.mean(nominal**2, axis=0))
    whole = np.sqrt(np.mean(torque**2, axis=0))
    largest = _largest(robot, whole)
    known = (size > SHARE * largest) & (size > TIMES_NOISE * np.asarray(noise)) & (size > 0.0)
    with np.errstate(all="ignore"):
        ratio = np.sum(identified * nominal, axis=0) / np.sum(nominal**2, axis=0)
    return np.where(known, ratio, np.nan)


def surprises(change: ModelChange, names: tuple[str, ...], expect: tuple[str, ...]) -> str:
    """Why a model needs to be expected, as a sentence; "" where it does not, or is.

    expect: "torque" (any factor), "payload" (more of it on some joints, not on all alike), "mass".
    """
    kinds = (
        ("torques", change.torque),
        ("gravity torques", change.gravity),
        ("inertia", change.inertia),
    )
    if "torque" in expect:
        return ""
    payload = "payload" in expect and not change.uniform
    shown = is_shown(change.torque)
    for what, ratio in kinds:
        with np.errstate(invalid="ignore"):
            far = (ratio < 1.0 / FACTOR) | ((ratio > FACTOR) & (not payload))
            far &= shown
        if np.any(far):
            v = int(np.flatnonzero(far)[np.argmax(np.abs(np.log(_size(ratio[far]))))])
            return (
                f"the identified {what} of joint {names[v]!r} are {ratio[v]:.2g} times the nominal"
                f" robot's on the same motion; check the unit and the calibration of its torque, or"
                f" state what changed: {_remedy(change)}"
            )
    far_mass = not 1.0 / FACTOR <= change.mass <= FACTOR
    everywhere = bool(np.all(shown[np.isfinite(change.torque)]))  # else masses are not shown
    if far_mass and everywhere and not (payload or "mass" in expect):
        return (
            f"the identified robot weighs {change.mass:.2g} times the nominal one; check the units"
            ' of the robot file, or state it: expect=("mass",)'
        )
    return ""


def _size(ratio: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(np.abs(ratio), 1e-6))


def _remedy(change: ModelChange) -> str:
    return 'expect=("torque",)' if change.uniform else 'expect=("payload",) or ("torque",)'
