"""Choose friction model, low-pass, delay and prior from the rows that are fitted.

In this order, each with those before it in force:

1. how many of each joint's rows are independent (log_statistics.py);
2. rotor inertia, motor by motor (rotor_inertia.py), and springs (spring_selection.py);
3. the Coulomb transition, motor by motor (model_selection.py);
4. the low-pass of the motion, around the one that its spectra suggest (motion_filter.py);
5. the delay between motion and torque, where it is seen (motion_filter.py);
6. further friction, motor by motor: Stribeck, one-sided, quadratic (model_selection.py);
7. rotor inertia and springs once more, with that friction and the rows counted anew;
8. where asked for, the form of the equation of motion, with accelerations or without
   (form_choice.py);
9. the weight of the prior (prior_strength.py).

The measure is the log-likelihood of independent rows: of held-out blocks of time
(cross_validation.py), or of all rows beside the prior (gaussian_fit.py).
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
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.information import information
from thetahat.identification.log_statistics import LogStatistics, log_statistics, time_between_rows
from thetahat.identification.parameter_columns import prior_vector
from thetahat.identification.tuning.cross_validation import METRIC, CrossValidation, thinned
from thetahat.identification.tuning.form_choice import choose_form
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
from thetahat.identification.tuning.prior_strength import USUAL, WEIGHTS, choose_prior_strength
from thetahat.identification.tuning.rotor_inertia import decide_rotor_inertia
from thetahat.identification.tuning.spring_selection import choose_springs
from thetahat.identification.uncertainty.autocorrelation import independent_share
from thetahat.model.robot import Robot

CUTOFFS = (0.5, 0.7, 1.0, 1.4, 2.0)  # times the low-pass that the spectra suggest
LARGEST_DELAY = 0.2  # of a cycle of the torque's low-pass


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
        friction: further friction terms that are tried, of "stribeck", "one_sided", "quadratic" and
            "load"; None: friction is left as it is, its Coulomb transition too.
        delay: whether a delay between motion and torque is searched.
        rotors: whether rotor inertia is identified; None: that of motors for which the log shows
            it.
        form: of the equation of motion: "torque", "momentum" or "filtered"; None: the one that
            predicts torques best.
        springs: whether springs and counterbalances are searched.

    """

    cutoff: float | None = None
    score_cutoff: float | None = None
    min_speed: float | Sequence[float] | None = None
    weight: float | None = None
    metric: str = METRIC
    friction: tuple[str, ...] | None = TERMS
    delay: bool = True
    rotors: bool | None = None
    form: str | None = "torque"
    springs: bool = True


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
    statistics: LogStatistics | None = None  # of the rows that `settings` make

    def estimator(
        self, prior: np.ndarray | Robot | None = None, *, weights: str | None = "iterated"
    ) -> Consistent:
        """Return the physically consistent estimator with the chosen weight of the prior."""
        return Consistent(prior, self.weight, self.metric, weights, statistics=self.statistics)

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
            else robot.without_drive().with_drive(
                viscous=True, coulomb=True, offset=True, armature=options.rotors is not False
            )
        )
    if prior is None and robot.theta.shape == fitted.theta.shape and robot.nv == fitted.nv:
        prior = prior_vector(robot, fitted)
    torque = options.score_cutoff or settings.cutoff
    settings = replace(settings, torque_cutoff=torque)
    cutoffs = _cutoffs(log, settings.cutoff, torque) if options.cutoff is None else [options.cutoff]
    source = LogSamples(subsample(log, robot, span=span), settings, narrow)
    search = _Search(source, options, CrossValidation(prior, options.metric), tell)
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
    samples = samples.with_form("torque")  # of any form: what is chosen first is chosen by torques
    search = _Search(FixedSamples(samples), options, CrossValidation(prior, options.metric), tell)
    tuned = search.run(fitted, settings, [settings.cutoff], 0.0)
    return replace(tuned, settings=replace(settings, form=tuned.settings.form))


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
        # small matrices; threads woken for them would spin beside the next fold
        with f.blas_threads().limit(limits=1, user_api="blas"):
            try:
                return self._chosen(fitted, settings, cutoffs, largest_delay)
            except NotIdentifiable as error:
                return self._unchosen(fitted, settings, cutoffs[0], str(error))

    def _unchosen(self, fitted: Robot, settings: Settings, cutoff: float, why: str) -> Tuned:
        """Return a strong prior, and one low-pass for motion and torque."""
        options = self.options
        samples = self.source.samples(cutoff)
        identified = {"armature": bool(options.rotors)} if options.rotors is None else {}
        return Tuned(
            settings=replace(settings, cutoff=cutoff, form=options.form or "torque"),
            robot=fitted.with_drive(**identified),
            weight=USUAL if options.weight is None else options.weight,
            metric=options.metric,
            reasons=(f"nothing was chosen: {why}",),
            statistics=log_statistics(fitted, samples),
        )

    def _chosen(
        self, robot: Robot, settings: Settings, cutoffs: Sequence[float], largest_delay: float
    ) -> Tuned:
        options, source = self.options, self.source
        cutoff, delay, reasons = cutoffs[0], 0.0, list[str]()
        whole = robot  # with the columns of all rotors
        self.tell("rotor inertia")
        validation = self._counted(robot, source.samples(cutoff))
        robot, _ = self._rotors(validation, whole, source.samples(cutoff))
        robot, _ = self._springs(validation, robot, source.samples(cutoff))
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
        self.tell("the prior")
        drive = robot.drive.with_terms(armature="armature" in whole.drive.identified)
        whole = replace(whole, drive=replace(drive, rotors=None))
        validation = self._counted(whole, samples)
        robot, why = self._rotors(validation, whole, samples)
        reasons += why
        robot, why = self._springs(validation, robot, samples)
        reasons += why
        form, why = self._form(validation, robot, samples)
        reasons += why
        strength = choose_prior_strength(
            validation.pieces(robot, samples),
            weights=WEIGHTS if options.weight is None else (options.weight,),
            metric=options.metric,
        )
        return Tuned(
            settings=replace(settings, cutoff=cutoff, delay=delay, form=form),
            robot=robot,
            weight=strength.weight,
            metric=options.metric,
            reasons=(*reasons, strength.reason),
            rms=strength.predictions.rms,
            statistics=log_statistics(
                robot, samples, independent=_share_at(validation.statistics, samples)
            ),
        )

    def _counted(self, robot: Robot, samples: Samples) -> CrossValidation:
        """Return the cross-validation with rows counted as independent ones."""
        few = thinned(samples)
        folded = information(robot, few)
        shares = independent_share(folded, few, weigh(folded, "iterated"))
        return replace(self.validation, statistics=log_statistics(robot, few, independent=shares))

    def _form(
        self, validation: CrossValidation, robot: Robot, samples: Samples
    ) -> tuple[str, list[str]]:
        """Return the form of the equation of motion, and why where it was chosen."""
        if self.options.form is not None:
            return self.options.form, []
        form, reason = choose_form(validation, robot, samples)
        return form, [reason]

    def _rotors(
        self, validation: CrossValidation, whole: Robot, samples: Samples
    ) -> tuple[Robot, list[str]]:
        """Return the robot with the rotors to identify, and why."""
        if "armature" not in whole.drive.identified or not whole.drive.column_motors:
            return whole, []
        if self.options.rotors is not None:
            return whole, []
        pieces = validation.pieces(whole, samples)
        decision = decide_rotor_inertia(pieces.model, pieces.whole)
        return decision.applied(whole), list(decision.reasons)

    def _springs(
        self, validation: CrossValidation, robot: Robot, samples: Samples
    ) -> tuple[Robot, list[str]]:
        """Return the robot with the springs to identify, and why."""
        if not self.options.springs or not robot.drive.column_motors:
            return robot, []
        return choose_springs(validation, robot, samples)


def _share_at(statistics: LogStatistics | None, samples: Samples) -> np.ndarray | None:
    """The share of independent rows in samples that are not thinned."""
    return None if statistics is None else statistics.at(time_between_rows(samples)).independent


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
