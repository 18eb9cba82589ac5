"""Whose rotor inertia is identified: decided motor by motor, by what the log shows.

A rotor adds armature·q̈ to its own joint alone; a link's inertia shows in the torques of the joints
before it, too, and depends on the posture. A rotor that is left out becomes inertia and mass of
links. The criterion is the Bayesian information criterion of the fit with the prior, rows counted
as independent ones; a difference of 2 is positive evidence [Kass1995]. Rotor inertia is never
negative. The prior is the robot file's armature where it states one, and such a rotor is always
fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.identification.tuning.cross_validation import WEIGHT
from thetahat.identification.tuning.gaussian_fit import GaussianFit, GaussianModel, Grams
from thetahat.model.robot import Robot

# difference of the criteria that is positive evidence: a rotor that is left out becomes mass,
# which is worse than a small one too many
EVIDENCE = 2.0
WORTH = 2.5  # standard deviations of its value, at least
FREE = 1e-3  # weight of a prior that leaves all to the motion


@dataclass(frozen=True)
class RotorDecision:
    """Motors whose rotor inertia is fitted, and a sentence per motor."""

    motors: tuple[int, ...]
    reasons: tuple[str, ...]

    def applied(self, robot: Robot) -> Robot:
        """Return the robot with the rotor inertia of these motors to identify."""
        return robot.with_rotors(self.motors)


def decide_rotor_inertia(model: GaussianModel, grams: Grams) -> RotorDecision:
    """Decide whose rotor inertia is identified, from rows with the columns of all rotors.

    One motor after another is added, that with the most evidence first, until none has enough.
    """
    motors = list(model.columns.drive.column_motors)
    at = _places(model)
    stated = [k for k in range(len(motors)) if model.stated[at[k]]]
    problem = model.problem(grams, model.noise(grams, WEIGHT))
    fitted, gains = list(stated), dict.fromkeys(stated, np.inf)

    def fit(chosen: Sequence[int], weight: float = WEIGHT) -> GaussianFit:
        return problem.fit(weight, without=np.delete(at, list(chosen)))

    now = fit(fitted)
    penalty = float(np.log(max(float(model.statistics.independent @ grams.rows), 1.0)))
    last: dict[int, float] = {}
    while len(fitted) < len(motors):
        last = {}
        for k in range(len(motors)):
            if k not in fitted:
                last[k] = 2.0 * (now.value - fit([*fitted, k]).value) - penalty
        best = max(last, key=lambda k: last[k])
        if last[best] <= EVIDENCE:
            break
        fitted.append(best)
        gains[best] = last.pop(best)
        now = fit(fitted)
    fitted = _worth(now, at, fitted, stated)
    separate = fit(fitted, FREE)
    names = model.columns.motor_names
    sentences = []
    for k, name in enumerate(names):
        gain = last.get(k, gains.get(k, -penalty))
        sentences.append(_sentence(name, k in fitted, gain, k in stated, _alone(separate, at[k])))
    return RotorDecision(tuple(motors[k] for k in sorted(fitted)), tuple(sentences))


def _places(model: GaussianModel) -> np.ndarray:
    """Positions in x of every motor's rotor inertia."""
    columns = model.columns
    motors = len(columns.drive.column_motors)
    first = columns.inertial + columns.drive.identified.index("armature") * motors
    return np.asarray(first + np.arange(motors))


def _worth(
    fit: GaussianFit, at: np.ndarray, fitted: Sequence[int], stated: Sequence[int]
) -> list[int]:
    """Those whose value is worth enough standard deviations."""
    std = fit.std(at)
    return [k for k in fitted if k in stated or fit.x[at[k]] > WORTH * std[k]]


def _alone(fit: GaussianFit, place: int) -> bool:
    """Whether the motion alone, without the prior, tells this rotor from the links."""
    std = float(fit.std(np.array([place]))[0])
    return bool(std > 0.0 and fit.x[place] > WORTH * std)


def _sentence(name: str, fitted: bool, gain: float, stated: bool, alone: bool) -> str:
    evidence = f"ΔBIC {gain:+.0f}".replace("-", "−")
    apart = (
        ""
        if alone
        else "; the motion alone does not separate it from the links' inertia, the robot file does"
    )
    if stated:
        kept = "" if alone else "; the motion does not separate it from the links' inertia"
        return f"Rotor inertia of {name}: the robot file's value is its prior{kept}"
    if fitted:
        return f"Rotor inertia of {name} fitted: {evidence}{apart}"
    return f"Rotor inertia of {name} not fitted: {evidence}, needs {EVIDENCE:+g}"
