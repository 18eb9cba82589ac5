"""Choose the friction model of every motor by cross-validation: Coulomb transition, further terms.

A more complicated model must improve the cross-validated log-likelihood by so much, by more than
the standard error between time blocks, and must not lose much where it is worse, whichever way the
log is cut. Speeds at which friction changes are those that the fitted rows reach. A further term
must be worth more than `WORTH` of its own standard deviations, by the covariance of independent
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.dynamics import rigid_body
from thetahat.identification.log_statistics import log_statistics, time_between_rows
from thetahat.identification.tuning.cross_validation import (
    IMPROVES,
    LAW,
    TERM,
    WEIGHT,
    CrossValidation,
    Scores,
    Threshold,
)
from thetahat.model import friction_terms
from thetahat.model.friction_terms import (
    DriveTerm,
    FrictionDirection,
    one_sided,
    quadratic,
    stribeck,
)
from thetahat.model.robot import Robot

# transition widths as shares of a motor's RMS speed; the first is used unless another law improves
ZONES = (0.03, 0.1, 0.3)
TRAVELS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # shares of the standard deviation of a motor's travel
# zones of speed after which tanh has reached 96 %: the transition ends there, and no fitted row is
# slower
REACHED = 2.0
STRIBECK = (0.05, 0.15)  # shares of a motor's RMS speed
WORTH = 2.5  # standard deviations of a further term's value, at least
LOADED = 0.3  # share of a motor's torque: with less load, friction by load means nothing
TERMS = ("stribeck", "one_sided", "quadratic")  # further friction that is tried by default
BY_LOAD = "load"  # tried on request, since neither plants nor adaptive control know it


# -- Coulomb transition ----------------------------------------------------------------------------


def choose_coulomb_transition(
    validation: CrossValidation, robot: Robot, samples: Samples
) -> tuple[Robot, list[str]]:
    """Return the robot with the Coulomb friction law of every motor, and the reasons.

    Candidates are a transition over a zone of speed, the sign of the velocity, and hysteresis over
    a travel (model/friction_terms.py).
    """
    speed, travel_std = _scales(robot, samples)
    slowest = log_statistics(robot, samples).slowest
    motors = len(speed)
    # A motor that stands may be held by any friction up to Coulomb's, either way: a zone says none,
    # a sign would follow the sensor's noise.
    laws = [
        FrictionDirection(np.maximum(share * speed, slowest / REACHED), np.zeros(motors))
        for share in ZONES
    ]
    laws += [
        FrictionDirection.plain(motors),
        *(FrictionDirection(np.zeros(motors), share * travel_std) for share in TRAVELS),
    ]
    candidates = [validation.predict(_with_dry(robot, law), samples) for law in laws]
    chosen = laws[0]
    for m, joints in enumerate(_joints_of(robot)):
        best = best_improving(candidates, candidates[0], joints, LAW)
        if best is not None:
            chosen = _with_law_of(chosen, laws[best], m)
    robot = _with_dry(robot, chosen)
    robot, last = _refine_shared(
        validation, robot, samples, laws, validation.predict(robot, samples)
    )
    return robot, _transition_reasons(robot, laws[0], last, candidates[0])


def _refine_shared(
    validation: CrossValidation,
    robot: Robot,
    samples: Samples,
    laws: Sequence[FrictionDirection],
    last: Scores,
) -> tuple[Robot, Scores]:
    """Choose again, one by one, for motors that act on a joint together."""
    joints = _joints_of(robot)
    shared = [
        m
        for m, mine in enumerate(joints)
        if any(set(mine) & set(other) for k, other in enumerate(joints) if k != m)
    ]
    for m in shared:
        current = _law_of(robot)
        tried = [_with_dry(robot, _with_law_of(current, law, m)) for law in laws]
        candidates = [validation.predict(each, samples) for each in tried]
        best = best_improving(candidates, last, joints[m], LAW)
        if best is not None:
            robot, last = tried[best], candidates[best]
    return robot, last


def _transition_reasons(
    robot: Robot, default: FrictionDirection, after: Scores, before: Scores
) -> list[str]:
    law, reasons = _law_of(robot), []
    for m, (name, joints) in enumerate(zip(_motor_names(robot), _joints_of(robot), strict=True)):
        if not joints:
            continue
        if law.zone[m]:
            kind = f"Coulomb transition width of {name}: {law.zone[m]:.2g} rad/s"
        elif law.travel[m]:
            kind = f"Coulomb friction of {name}: hysteresis over {law.travel[m]:.2g} rad"
        else:
            kind = f"Coulomb friction of {name}: sign of the velocity"
        if law.zone[m] != default.zone[m]:
            kind += f", {IMPROVES} by {after.gain(before, joints)[0]:.0f}"
        reasons.append(kind)
    return reasons


def _with_law_of(law: FrictionDirection, other: FrictionDirection, motor: int) -> FrictionDirection:
    """The law, with that of one motor taken from another."""
    zone, travel = law.zone.copy(), law.travel.copy()
    zone[motor], travel[motor] = other.zone[motor], other.travel[motor]
    return FrictionDirection(zone, travel)


def _law_of(robot: Robot) -> FrictionDirection:
    law = robot.drive.dry
    return FrictionDirection.plain(len(robot.drive.viscous)) if law is None else law


# -- further friction ------------------------------------------------------------------------------


def choose_further_friction(
    validation: CrossValidation, robot: Robot, samples: Samples, *, terms: Sequence[str] = TERMS
) -> tuple[Robot, list[str]]:
    """Return the robot with further friction terms of motors that gain by them, and why."""
    speed, _ = _scales(robot, samples)
    slowest = log_statistics(robot, samples).slowest
    ones = np.ones(len(speed))
    kinds: dict[str, tuple[Callable[[np.ndarray], DriveTerm], Sequence[np.ndarray]]] = {
        "stribeck": (stribeck, [np.maximum(share * speed, slowest) for share in STRIBECK]),
        "one_sided": (one_sided, [ones]),
        "quadratic": (quadratic, [ones]),
    }
    if BY_LOAD in terms:
        loaded = _loaded(robot, samples).astype(float)
        kinds[BY_LOAD] = (friction_terms.by_load, [loaded])
    before, reasons = validation.predict(robot, samples), []
    for term, (make, values) in kinds.items():
        if term not in terms:
            continue
        values = [each for each in values if np.any(each)]
        candidates = [
            validation.predict(_with_extra_term(robot, make(each)), samples) for each in values
        ]
        chosen = np.zeros(len(speed))
        for m, joints in enumerate(_joints_of(robot)):
            best = best_improving(candidates, before, joints, TERM)
            if best is not None:
                chosen[m] = values[best][m]
        chosen = _worth(validation, robot, samples, make, chosen)
        if not np.any(chosen):
            continue
        tried = _with_extra_term(robot, make(chosen))
        after = validation.predict(tried, samples)
        if after.improves(before, TERM):
            names = [name for name, used in zip(_motor_names(robot), chosen, strict=True) if used]
            gain, _ = after.gain(before)
            reasons.append(
                f"{make(chosen).term} friction of {', '.join(names)}: {IMPROVES} by {gain:.0f}"
            )
            robot, before = tried, after
    return robot, reasons


def _worth(
    validation: CrossValidation,
    robot: Robot,
    samples: Samples,
    make: Callable[[np.ndarray], DriveTerm],
    chosen: np.ndarray,
) -> np.ndarray:
    """The motors' settings of a term, zero where it is worth too few standard deviations."""
    while np.any(chosen):
        tried = _with_extra_term(robot, make(chosen))
        pieces = validation.pieces(tried, samples)
        fit = pieces.model.fit(pieces.whole, pieces.noise(WEIGHT), WEIGHT)
        columns, term = pieces.model.columns, make(chosen).term
        motors = list(columns.drive.column_motors)
        at = columns.inertial + columns.drive.identified.index(term) * len(motors)
        places = at + np.arange(len(motors))
        std = fit.std(places)
        worth = np.abs(fit.x[places]) / np.where(std > 0.0, std, np.inf)
        worth = np.where(chosen[motors] > 0.0, worth, np.inf)
        worst = int(np.argmin(worth))
        if worth[worst] >= WORTH:
            break
        chosen = chosen.copy()
        chosen[motors[worst]] = 0.0
    return chosen


def _loaded(robot: Robot, samples: Samples) -> np.ndarray:
    """Whether a motor carries enough load for friction to depend on it, (motors,) bool."""
    load = rigid_body.inverse_dynamics(robot, samples.q, samples.dq, samples.ddq, rigid=True)
    actuation = robot.drive.actuation
    pull = np.eye(robot.nv)
    if actuation is not None:
        if not isinstance(actuation.B, np.ndarray):
            return np.zeros(actuation.motors, dtype=bool)
        pull = np.linalg.pinv(actuation.B)
    of_load, of_torque = (np.sqrt(np.mean((pull @ u.T) ** 2, axis=1)) for u in (load, samples.tau))
    enough: np.ndarray = of_load > LOADED * of_torque
    return enough


# -- motors ----------------------------------------------------------------------------------------


def best_improving(
    candidates: Sequence[Scores],
    before: Scores,
    joints: list[int],
    threshold: Threshold,
) -> int | None:
    """The candidate with the largest gain of those that improve by enough; None: none does."""
    improving = [k for k, each in enumerate(candidates) if each.improves(before, threshold, joints)]
    return max(improving, key=lambda k: candidates[k].gain(before, joints)[0], default=None)


def _with_dry(robot: Robot, law: FrictionDirection) -> Robot:
    return replace(robot, drive=robot.drive.with_dry(law))


def _with_extra_term(robot: Robot, shape: DriveTerm) -> Robot:
    return replace(robot, drive=robot.drive.with_extra_term(shape))


def _joints_of(robot: Robot) -> list[list[int]]:
    """The degrees of freedom each motor acts on; none where it has no columns (a floating base)."""
    actuation = robot.drive.actuation
    joints = (
        [[v] for v in range(robot.nv)]
        if actuation is None
        else [np.flatnonzero(column).tolist() for column in actuation.touches().T]
    )
    fitted = set(robot.drive.column_motors)
    return [mine if m in fitted else [] for m, mine in enumerate(joints)]


def _motor_names(robot: Robot) -> tuple[str, ...]:
    return robot.velocity_names if robot.drive.actuation is None else robot.drive.actuation.names


def _scales(robot: Robot, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """(RMS speed, standard deviation of the travel) of every motor, over rows in motion."""
    actuation = robot.drive.actuation
    speed = (
        samples.dq
        if actuation is None
        else actuation.motor_rates(samples.dq, samples.ddq, q=samples.q)[0]
    )
    moving = speed**2 > 1e-4 * np.mean(speed**2, axis=0)
    rms = np.sqrt(np.sum(speed**2, axis=0, where=moving) / np.maximum(moving.sum(axis=0), 1))
    step = time_between_rows(samples) or 1.0
    travel = np.std(np.cumsum(speed, axis=0) * step, axis=0)
    return np.where(rms > 0.0, rms, 1.0), np.where(travel > 0.0, travel, 1.0)
