"""Choose friction model, low-pass, delay and prior from the rows that are fitted.

In this order, each with those before it in force:

1. the Coulomb transition, motor by motor (model_selection.py);
2. the low-pass of the motion, around the one that its spectra suggest (motion_filter.py);
3. the delay between motion and torque, where it is seen (motion_filter.py);
4. further friction, motor by motor: Stribeck, one-sided, quadratic (model_selection.py);
5. the weight of the prior (prior_strength.py).

The measure is cross-validation over blocks of time (cross_validation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.cutoff import MOST
from thetahat.data.prepare import Settings, choose
from thetahat.data.resample import mean_period
from thetahat.data.samples import Samples
from thetahat.data.subsample import subsample
from thetahat.data.types import LogLike
from thetahat.errors import NotIdentifiable
from thetahat.identification import factor as f
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.tuning import prior_strength
from thetahat.identification.tuning.cross_validation import METRIC, CrossValidation, folds
from thetahat.identification.tuning.model_selection import (
    TERMS,
    choose_coulomb_transition,
    choose_further_friction,
)
from thetahat.identification.tuning.motion_filter import (
    FixedSamples,
    LogSamples,
    SampleSource,
    choose_cutoff,
    choose_delay,
)
from thetahat.model.robot import Robot

CUTOFFS = (0.5, 0.7, 1.0, 1.4, 2.0)  # times the low-pass that the spectra suggest
LARGEST_DELAY = 0.2  # of a cycle of the torque's low-pass
USUAL = 1e-2  # weight of the prior where nothing could be chosen


@dataclass(frozen=True)
class TuningOptions:
    """What `tune` is given, and what it searches; None: chosen.

    Args:
        cutoff: of the motion's low-pass [Hz].
        score_cutoff: of the torque that is to be predicted [Hz]; None: the low-pass that the
            motion's spectra suggest.
        min_speed: below which a joint stands still.
        weight: of the prior.
        metric: of the prior.
        weights: of the joints' rows, as `Consistent` takes them.
        friction: further friction terms that are tried, of "stribeck", "one_sided", "quadratic" and
            "load"; None: friction is left as it is, its Coulomb transition too.
        delay: whether a delay between motion and torque is searched.

    """

    cutoff: float | None = None
    score_cutoff: float | None = None
    min_speed: float | Sequence[float] | None = None
    weight: float | None = None
    metric: str = METRIC
    weights: str | None = "iterated"
    friction: tuple[str, ...] | None = TERMS
    delay: bool = True


@dataclass(frozen=True, eq=False)
class Tuned:
    """What was chosen: hand `settings` to `prepare`, `robot` to `information`, `estimator()` to
    `solve`.
    """

    settings: Settings
    robot: Robot  # with the columns to identify
    weight: float  # of the prior
    metric: str
    reasons: tuple[str, ...] = ()  # a sentence per choice
    rms: np.ndarray | None = None  # (nv,) of held-out time blocks, as predicted [N·m or N]

    def estimator(
        self, prior: np.ndarray | Robot | None = None, *, weights: str | None = "iterated"
    ) -> Consistent:
        """Return the physically consistent estimator with the chosen weight of the prior."""
        return Consistent(prior, self.weight, self.metric, weights)

    def __str__(self) -> str:
        return "\n".join(self.reasons)


def tune(
    log: LogLike,
    robot: Robot,
    options: TuningOptions = TuningOptions(),
    *,
    fitted: Robot | None = None,
    prior: np.ndarray | Robot | None = None,
    span: tuple[int, int] | None = None,
    narrow: Callable[[Samples], Samples] | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> Tuned:
    """Choose what is not given, from the rows of `span` alone; of a long log, from 200,000 rows
    spread over them.

    Args:
        log: as `read_log` returns it.
        robot: whose log it is.
        options: what is given, and what is searched.
        fitted: the robot with the drive terms to identify, where joints are locked or motors
            mapped; by default the robot without what its file states of friction, and with viscous,
            Coulomb and offset to identify unless it names its terms itself.
        prior: as `Consistent` takes it; by default the robot's own values, and no friction.
        span: first and stop row to fit.
        narrow: makes samples of the robot samples of `fitted`.
        tell: called with what is being chosen.

    """
    settings = choose(log, robot, cutoff=options.cutoff, min_speed=options.min_speed, span=span)
    if fitted is None:
        fitted = (
            robot
            if robot.drive.identified
            else robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
        )
    if prior is None:
        prior = robot.theta if robot.theta.shape == fitted.theta.shape else None
    torque = options.score_cutoff or settings.cutoff
    settings = replace(settings, torque_cutoff=torque)
    cutoffs = _cutoffs(log, settings.cutoff, torque) if options.cutoff is None else [options.cutoff]
    source = LogSamples(subsample(log, robot, span=span), settings, narrow)
    search = _Search(source, options, CrossValidation(prior, options.weights), tell)
    tuned = search.run(fitted, settings, cutoffs, LARGEST_DELAY / torque)
    torque_cutoff = torque if torque != tuned.settings.cutoff else None
    return replace(tuned, settings=replace(tuned.settings, torque_cutoff=torque_cutoff))


def tune_samples(
    samples: Samples,
    settings: Settings,
    fitted: Robot,
    options: TuningOptions = TuningOptions(),
    *,
    prior: np.ndarray | Robot | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> Tuned:
    """Choose friction model and prior weight for samples that are prepared already."""
    options = replace(options, delay=False)
    search = _Search(FixedSamples(samples), options, CrossValidation(prior, options.weights), tell)
    return replace(search.run(fitted, settings, [settings.cutoff], 0.0), settings=settings)


@dataclass(frozen=True, eq=False)
class _Search:
    """One choice after another, each with those before it in force."""

    source: SampleSource
    options: TuningOptions
    validation: CrossValidation
    tell: Callable[[str], None]

    def run(
        self, fitted: Robot, settings: Settings, cutoffs: Sequence[float], largest_delay: float
    ) -> Tuned:
        """Make all choices; of the cut-offs the first is used unless another predicts better."""
        try:
            # small matrices; threads woken for them would spin beside the next fold
            with f.blas_threads().limit(limits=1, user_api="blas"):
                return self._chosen(fitted, settings, cutoffs, largest_delay)
        except NotIdentifiable as error:
            weight = USUAL if self.options.weight is None else self.options.weight
            reason = f"nothing was chosen: {error}"
            return Tuned(settings, fitted, weight, self.options.metric, (reason,))

    def _chosen(
        self, robot: Robot, settings: Settings, cutoffs: Sequence[float], largest_delay: float
    ) -> Tuned:
        options, source, validation = self.options, self.source, self.validation
        cutoff, delay, reasons = cutoffs[0], 0.0, list[str]()
        terms = options.friction
        if "coulomb" not in robot.drive.identified or not robot.drive.column_motors:
            terms = None
        if terms is not None:
            self.tell("the Coulomb transition")
            robot, why = choose_coulomb_transition(validation, robot, source.samples(cutoff))
            reasons += why
        if len(cutoffs) > 1:
            self.tell("the low-pass")
            cutoff, reason = choose_cutoff(validation, robot, source, cutoffs=cutoffs)
            reasons.append(reason)
        if options.delay:
            self.tell("the delay")
            delay, why = choose_delay(
                validation, robot, source, cutoff=cutoff, largest=largest_delay
            )
            reasons += why
        samples = source.samples(cutoff, delay)
        if terms is not None:
            self.tell("further friction")
            robot, why = choose_further_friction(validation, robot, samples, terms=terms)
            reasons += why
        if options.weight is None:
            self.tell("the prior")
        strength = prior_strength.choose_prior_strength(
            validation,
            folds(robot, samples, prior_strength.FOLDS),
            weights=prior_strength.WEIGHTS if options.weight is None else (options.weight,),
            metric=options.metric,
        )
        return Tuned(
            settings=replace(settings, cutoff=cutoff, delay=delay),
            robot=robot,
            weight=strength.weight,
            metric=options.metric,
            reasons=(*reasons, strength.reason),
            rms=strength.predictions.rms,
        )


def _cutoffs(log: LogLike, suggested: float, torque: float) -> list[float]:
    """The torque's cut-off, then others around the suggested one, as the rate allows."""
    highest = MOST / max(mean_period(run) for run in log.runs)
    return list(
        dict.fromkeys(
            value
            for value in (torque, *(factor * suggested for factor in CUTOFFS))
            if value <= highest
        )
    ) or [suggested]
