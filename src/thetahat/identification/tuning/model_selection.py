"""Every choice that a fit needs and nobody wants to make by hand, made from the rows that are
fitted, by what predicts best there.

In this order, each with those before it in force:

1. how dry friction turns with the motion, motor by motor: over a zone of speed, at once, or with
   hysteresis over a travel (model/friction_terms.py);
2. the low-pass of the motion, around the one that its spectra suggest (data/cutoff.py);
3. the delay between motion and torque, where it is seen;
4. further friction, motor by motor: Stribeck, one-sided, quadratic; by load if asked for, since
   neither plants nor adaptive control know it;
5. the strength of the prior.

The measure is cross-validation over stretches of time (crossvalidate.py). What is more complicated
must earn it: so many nats, more than their standard error between stretches, and it must not lose
much where it is worse. Of priors, the strongest is taken whose predictions are within one standard
error of the best [Hastie2009].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.dynamics import rigid_body
from thetahat.errors import NotIdentifiable
from thetahat.identification import factor as f
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.estimator import guess
from thetahat.identification.information import Information
from thetahat.identification.tuning.cross_validation import Folds, Predictions, folds, period_of
from thetahat.model import friction_terms
from thetahat.model.friction_terms import (
    DriveTerm,
    FrictionDirection,
    one_sided,
    quadratic,
    stribeck,
)
from thetahat.model.robot import Robot

ZONES = (
    0.03,
    0.1,
    0.3,
)  # of a motor's RMS speed; the first is what is taken unless another law earns its place
TRAVELS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # of the standard deviation of a motor's way
STRIBECK = (0.05, 0.15)  # of a motor's RMS speed
CUTOFFS = (0.5, 0.7, 1.0, 1.4, 2.0)  # times the one that the spectra suggest
WEIGHTS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # of the prior
METRIC = (  # unless told otherwise: the same in every frame, and keeps bodies from being flat
    "entropic"
)
PULL = 10.0  # strength of the prior while friction and low-pass are chosen
DELAY_STEPS = 4.0  # that the largest delay is of the step of its search
EARNED = 10.0  # [nats] that another law or low-pass must gain
FURTHER = 20.0  # [nats] that one more term of friction must gain
# standard errors that a gain must be at least, by how much stretches differ: the luck of one of
# them earns nothing
SURE = 1.0
LOST = {
    EARNED: 0.25,
    FURTHER: 0.05,
}  # of what it gains where it is better: more it must not lose where it is worse
# stretches to choose the prior's strength by: each fit then sees nearly all rows, as the last one
# will
FINE = 10
LOADED = 0.3  # of a motor's torque: with less load, friction by load means nothing


@dataclass(frozen=True, eq=False)
class Choices:
    """What was chosen, and why."""

    robot: Robot  # with the law of dry friction and the friction terms to identify
    cutoff: float | None  # [Hz] of the motion's low-pass
    delay: float  # [s] of the torque behind the motion
    weight: float  # of the prior
    metric: str
    reasons: tuple[str, ...]  # a sentence per choice
    rms: np.ndarray  # (nv,) of the stretches left out, predicted by what was chosen [N·m or N]


def search(
    prepared: Callable[[float | None, float], Samples],
    robot: Robot,
    *,
    cutoffs: Sequence[float] = (),
    reach: float = 0.0,
    prior: np.ndarray | Robot | None = None,
    friction: bool = True,
    by_load: bool = False,
    weight: float | None = None,
    metric: str = METRIC,
    weights: str | None = "iterated",
    tell: Callable[[str], None] = lambda what: None,
) -> Choices:
    """Choose all that is not given.

    Args:
        prepared: the samples to be fitted, of this low-pass of the motion [Hz] and this delay of
            the torque behind it [s]; the torque's low-pass is always the same.
        robot: with the drive terms to identify.
        cutoffs: the low-pass to take unless another predicts better, and the others.
        reach: [s] by which the torque may lag behind the motion or lead it, at most; 0: no delay is
            looked for.
        prior: as `Consistent` takes it.
        friction: whether laws and further terms of friction are looked for; only where Coulomb
            friction is identified.
        by_load: whether friction that grows with the load is among the further terms.
        weight: of the prior; None: chosen.
        metric: of the prior.
        weights: of the joints' rows.
        tell: called with what is being chosen.

    """
    made: dict[tuple[float | None, float], Samples] = {}

    def samples(cutoff: float | None, delay: float = 0.0) -> Samples:
        if (cutoff, delay) not in made:
            made[cutoff, delay] = prepared(cutoff, delay)
        return made[cutoff, delay]

    steps, cutoff, reasons = _Search(prior, weights), cutoffs[0] if cutoffs else None, []
    looks = friction and "coulomb" in robot.drive.identified and bool(robot.drive.column_motors)
    with f.blas_threads().limit(
        limits=1, user_api="blas"
    ):  # small matrices; threads woken for them would spin beside the next fold
        if looks:
            tell("how friction turns")
            robot, said = steps.dry(robot, samples(cutoff))
            reasons += said
        if len(cutoffs) > 1:
            tell("the low-pass")
            cutoff, sentence = steps.cutoff(robot, samples, cutoffs)
            reasons.append(sentence)
        delay = 0.0
        if reach:
            tell("the delay")
            delay, said = steps.delay(robot, lambda value: samples(cutoff, value), reach)
            reasons += said
        if looks:
            tell("further friction")
            robot, said = steps.further(robot, samples(cutoff, delay), load=by_load)
            reasons += said
        if weight is None:
            tell("the prior")
        cut = folds(robot, samples(cutoff, delay), FINE)
        weight, sentence, last = steps.strength(
            cut, WEIGHTS if weight is None else (weight,), metric
        )
    return Choices(robot, cutoff, delay, weight, metric, (*reasons, sentence), last.rms)


class _Search:
    """One step after another, with the prior and the weights that all share."""

    def __init__(self, prior: np.ndarray | Robot | None, weights: str | None) -> None:
        self.prior, self.weights = prior, weights

    def _x0(self, information: Information) -> np.ndarray | Robot | None:
        """The prior in the columns of this robot: terms it does not have are zero in it."""
        if not isinstance(self.prior, np.ndarray):
            return self.prior
        x0 = np.zeros(information.base.columns)
        x0[: min(len(self.prior), len(x0))] = self.prior[: len(x0)]
        return guess(information, x0)

    def predicted(self, robot: Robot, samples: Samples) -> Predictions:
        """By the fit that will be made, with a prior of middling strength."""
        return folds(robot, samples).predicted(
            lambda info: self._consistent(info, PULL, METRIC, self.weights and "joint")
        )

    # -- 1 -----------------------------------------------------------------------------------------

    def dry(self, robot: Robot, samples: Samples) -> tuple[Robot, list[str]]:
        """The law of dry friction of every motor."""
        speed, way = _scales(robot, samples)
        motors = len(speed)
        # A motor that stands may be held by any friction up to Coulomb's, either way: a zone says
        # none, a sign would follow the sensor's noise.
        laws = [FrictionDirection(share * speed, np.zeros(motors)) for share in ZONES]
        laws += [
            FrictionDirection.plain(motors),
            *(FrictionDirection(np.zeros(motors), share * way) for share in TRAVELS),
        ]
        found = [self.predicted(_with_dry(robot, law), samples) for law in laws]
        zone, travel, reasons = laws[0].zone.copy(), np.zeros(motors), []
        for m, joints in enumerate(_joints_of(robot)):
            best = _best(found, found[0], joints, least=EARNED)
            if best is not None:
                zone[m], travel[m] = laws[best].zone[m], laws[best].travel[m]
        chosen = _with_dry(robot, FrictionDirection(zone, travel))
        last = self.predicted(chosen, samples)
        chosen, last = self._settled(chosen, samples, laws, last)
        names = _motor_names(robot)
        for m, joints in enumerate(_joints_of(robot)):
            law = chosen.drive.dry
            kind = (
                f"over {law.zone[m]:.2g} rad/s"
                if law.zone[m]
                else f"over a travel of {law.travel[m]:.2g} rad"
                if law.travel[m]
                else "at once"
            )
            gain, _ = last.gain(found[0], joints)
            reasons.append(
                f"dry friction of {names[m]} turns"
                f" {kind}{f' (gains {gain:.0f} nats)' if law.zone[m] != laws[0].zone[m] else ''}"
            )
        return chosen, reasons

    def _settled(
        self, robot: Robot, samples: Samples, laws: list[FrictionDirection], last: Predictions
    ) -> tuple[Robot, Predictions]:
        """Motors that act on a joint together are tried once more one by one, the others as they
        were chosen.
        """
        joints = _joints_of(robot)
        shared = [
            m
            for m, mine in enumerate(joints)
            if any(set(mine) & set(other) for k, other in enumerate(joints) if k != m)
        ]
        for m in shared:
            now = robot.drive.dry
            tried = []
            for law in laws:
                zone, travel = now.zone.copy(), now.travel.copy()
                zone[m], travel[m] = law.zone[m], law.travel[m]
                tried.append(_with_dry(robot, FrictionDirection(zone, travel)))
            found = [self.predicted(each, samples) for each in tried]
            best = _best(found, last, joints[m], least=EARNED)
            if best is not None:
                robot, last = tried[best], found[best]
        return robot, last

    # -- 2 -----------------------------------------------------------------------------------------

    def cutoff(
        self, robot: Robot, samples: Callable[[float], Samples], cutoffs: Sequence[float]
    ) -> tuple[float, str]:
        """The low-pass of the motion that predicts best; the torque's, which is predicted,
        stays.
        """
        first = self.predicted(robot, samples(cutoffs[0]))
        best, most = cutoffs[0], 0.0
        for value in cutoffs[1:]:
            found = self.predicted(robot, samples(value))
            gain, _ = found.gain(first)
            if gain > most and _earned(found, first, least=EARNED):
                best, most = value, gain
        if best == cutoffs[0]:
            return best, f"the motion's low-pass stays at {best:.3g} Hz: no other predicts better"
        return (
            best,
            (
                f"the motion's low-pass is {best:.3g} Hz instead of {cutoffs[0]:.3g}: it predicts"
                f" better by {most:.0f} nats"
            ),
        )

    # -- 3 -----------------------------------------------------------------------------------------

    def delay(
        self, robot: Robot, samples: Callable[[float], Samples], reach: float
    ) -> tuple[float, list[str]]:
        """The delay at which a parabola through the squares that are left at −step, 0 and step is
        lowest, if it predicts better.

        To first order a delay adds δ·τ̇ to the residuals, so their squares are a parabola of it.
        """
        step = reach / DELAY_STEPS
        first, early, late = (self.predicted(robot, samples(value)) for value in (0.0, -step, step))
        below, above = early.squared(first) - 1.0, late.squared(first) - 1.0
        beyond = (
            2.0 * step * (1.0 if above < below else -1.0)
        )  # where they fall on one side without end, the lowest is further out
        top = 0.5 * step * (below - above) / (below + above) if below + above > 0.0 else beyond
        best = float(np.clip(top, -reach, reach))
        found = self.predicted(robot, samples(best))
        if not _earned(found, first, least=EARNED):
            return 0.0, []
        how = "lags behind" if best > 0.0 else "leads"
        return best, [
            f"the torque {how} the motion by {1e3 * abs(best):.2g} ms: it predicts better by"
            f" {found.gain(first)[0]:.0f} nats"
        ]

    # -- 4 -----------------------------------------------------------------------------------------

    def further(self, robot: Robot, samples: Samples, *, load: bool) -> tuple[Robot, list[str]]:
        """Friction terms beyond viscous and Coulomb, for the motors that earn them."""
        speed, _ = _scales(robot, samples)
        reasons: list[str] = []
        before = self.predicted(robot, samples)
        kinds: list[tuple[Callable[[np.ndarray], DriveTerm], list[np.ndarray]]] = [
            (stribeck, [share * speed for share in STRIBECK]),
            (one_sided, [np.ones(len(speed))]),
            (quadratic, [np.ones(len(speed))]),
        ]
        if load:
            kinds.append((friction_terms.by_load, [_loaded(robot, samples).astype(float)]))
        for make, candidates in kinds:
            candidates = [values for values in candidates if np.any(values)]
            found = [
                self.predicted(_with_extra_term(robot, make(values)), samples)
                for values in candidates
            ]
            chosen = np.zeros(len(speed))
            for m, joints in enumerate(_joints_of(robot)):
                best = _best(found, before, joints, least=FURTHER)
                if best is not None:
                    chosen[m] = candidates[best][m]
            if not np.any(chosen):
                continue
            tried = _with_extra_term(robot, make(chosen))
            after = self.predicted(tried, samples)
            gain, _ = after.gain(before)
            if _earned(after, before, least=FURTHER):
                names = [
                    name for name, value in zip(_motor_names(robot), chosen, strict=True) if value
                ]
                reasons.append(
                    f"{make(chosen).term} friction of {', '.join(names)}: gains {gain:.0f} nats"
                )
                robot, before = tried, after
        return robot, reasons

    # -- 5 -----------------------------------------------------------------------------------------

    def strength(
        self, cut: Folds, weights: Iterable[float], metric: str
    ) -> tuple[float, str, Predictions]:
        """The weight of the prior: of those that predict about as well as the best, the
        strongest.
        """
        found: list[tuple[float, Predictions]] = []
        for weight in weights:
            try:
                found.append(
                    (
                        weight,
                        cut.predicted(
                            lambda info, w=weight: self._consistent(info, w, metric, self.weights)
                        ),
                    )
                )
            except NotIdentifiable:
                continue
        if not found:
            raise NotIdentifiable(
                "no strength of the prior gave a fit; state it with --prior-weight, or give a"
                " better robot file"
            )
        first = found[0][1]
        best = max(found, key=lambda each: each[1].gain(first)[0])[1]
        weight, last = max(
            (each for each in found if _near(each[1], best)), key=lambda each: each[0]
        )
        how = (
            "as given"
            if len(found) == 1
            else f"of {len(found)} tried, the strongest that predicts as well as the best"
        )
        return weight, f"the prior's weight is {weight:g} ({metric}): {how}", last

    def _consistent(
        self, information: Information, weight: float, metric: str, weights: str | None
    ) -> np.ndarray:
        estimate = Consistent(
            prior=self._x0(information), weight=weight, metric=metric, weights=weights
        ).estimate(information)
        return information.base.map @ estimate.x


# -- what is better --------------------------------------------------------------------------------


def _earned(
    after: Predictions, before: Predictions, *, least: float, joints: list[int] | None = None
) -> bool:
    (gain, error), lost = after.gain(before, joints), after.lost(before, joints)
    return gain > max(least, SURE * error) and lost <= LOST[least] * (gain + lost)


def _best(
    found: Sequence[Predictions], before: Predictions, joints: list[int], *, least: float
) -> int | None:
    """The one that gains most, if it has earned it."""
    best = max(range(len(found)), key=lambda k: found[k].gain(before, joints)[0], default=None)
    return (
        best
        if best is not None and _earned(found[best], before, least=least, joints=joints)
        else None
    )


def _near(candidate: Predictions, best: Predictions) -> bool:
    gain, error = candidate.gain(best)
    return gain >= -error


# -- robots with other columns ---------------------------------------------------------------------


def _with_dry(robot: Robot, law: FrictionDirection) -> Robot:
    return replace(robot, drive=robot.drive.with_dry(law))


def _with_extra_term(robot: Robot, shape: DriveTerm) -> Robot:
    return replace(robot, drive=robot.drive.with_extra_term(shape))


def _joints_of(robot: Robot) -> list[list[int]]:
    """The degrees of freedom each motor acts on."""
    actuation = robot.drive.actuation
    return (
        [[v] for v in range(robot.nv)]
        if actuation is None
        else [np.flatnonzero(column).tolist() for column in actuation.touches().T]
    )


def _motor_names(robot: Robot) -> tuple[str, ...]:
    return robot.velocity_names if robot.drive.actuation is None else robot.drive.actuation.names


def _loaded(robot: Robot, samples: Samples) -> np.ndarray:
    """(motors,) whether a motor carries enough, by the robot's own values, for friction to depend
    on it.
    """
    load = rigid_body.inverse_dynamics(robot, samples.q, samples.dq, samples.ddq, rigid=True)
    actuation = robot.drive.actuation
    if actuation is not None and not actuation.constant:
        return np.zeros(actuation.motors, dtype=bool)
    pull = np.eye(robot.nv) if actuation is None else np.linalg.pinv(actuation.B)
    sizes = [np.sqrt(np.mean((pull @ u.T) ** 2, axis=1)) for u in (load, samples.tau)]
    return sizes[0] > LOADED * sizes[1]


def _scales(robot: Robot, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """(RMS speed, standard deviation of the way) of every motor, of rows in motion; one where it
    never moves.
    """
    actuation = robot.drive.actuation
    speed = (
        samples.dq
        if actuation is None
        else actuation.motor_rates(samples.dq, samples.ddq, q=samples.q)[0]
    )
    moving = speed**2 > 1e-4 * np.mean(speed**2, axis=0)
    rms = np.sqrt(np.sum(speed**2, axis=0, where=moving) / np.maximum(moving.sum(axis=0), 1))
    step = period_of(samples) or 1.0
    way = np.std(np.cumsum(speed, axis=0) * step, axis=0)
    return np.where(rms > 0.0, rms, 1.0), np.where(way > 0.0, way, 1.0)
