"""The stages of `thetahat identify`, one after another: log → samples → information → estimate →
scores. Streaming throughout.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thetahat.cli.backends import Alone, Rows
from thetahat.cli.joint_selection import Stream, degrees, highest_cutoff, require_torque
from thetahat.cli.progress import Progress
from thetahat.data.log import Log
from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples, concatenate
from thetahat.data.subsample import ROWS
from thetahat.errors import MalformedInput, NotIdentifiable, RobotWarning, UsageError, known
from thetahat.identification.coupled_joints import Coupling, coupled
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimate_json import PLAIN
from thetahat.identification.estimators.consistent import Consistent, LogCholesky
from thetahat.identification.estimators.estimator import Estimator, SampleEstimator
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.positive import Positive
from thetahat.identification.estimators.prior import Prior
from thetahat.identification.estimators.robust import Robust
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.scores import Validation, predicted
from thetahat.identification.submodel import view
from thetahat.identification.tuning.cross_validation import METRIC
from thetahat.identification.tuning.model_selection import BY_LOAD, TERMS
from thetahat.identification.tuning.tune import USUAL, Tuned, TuningOptions, tune
from thetahat.model.io.actuation_csv import with_map
from thetahat.model.io.load import load
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.report.trace_collector import Collector
from thetahat.report.traces import Traces

EVIDENCE = 10.0  # difference of the Bayesian information criteria that counts as very strong


@dataclass(frozen=True)
class Options:
    """What the command line asks for, read and checked."""

    logs: tuple[str, ...]
    tests: tuple[str, ...] = ()
    holdout: float = 0.3
    friction: tuple[str, ...] = ("viscous", "coulomb", "offset")
    armature: bool | None = None  # None: only if the log shows it
    weights: str | None = "iterated"
    method: str = "consistent"
    prior: Path | None = None  # None: the robot itself
    prior_weight: float | None = None  # None: chosen
    metric: str | None = None  # None: entropic
    alpha: float = 0.5
    robust: bool = False
    cutoff: float | None = None
    score_cutoff: float | None = None
    min_speed: float | None = None
    joints: tuple[str, ...] = ()
    actuation: Path | None = None
    columns: str | None = None
    topic: str | None = None
    salvage: bool = False
    load_friction: bool = False  # whether friction by load is among what may be chosen
    tune: bool = (
        True  # choose friction, low-pass and prior by what predicts best inside the rows to fit
    )
    report: bool = True  # collect what a report draws: one more pass over the rows that were fitted


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came out."""

    estimate: Estimate
    nominal: Robot  # as its file states it, joints that the log does not measure locked
    identified: Robot  # the same with what was found
    information: Information
    settings: Settings
    test: Validation | None
    raw: Validation | None
    log: Log
    test_log: Log | None
    spans: tuple[tuple[int, int], tuple[int, int] | None]
    dropped: dict[str, int]  # torques of the training rows left out, by reason
    armature: str  # how it was decided
    tuned: Tuned
    couplings: tuple[Coupling, ...]  # pairs of joints that a motor seems to turn with
    traces: Traces | None  # for the report


def run(robot: Robot, options: Options, progress: Progress, crew: Alone) -> Outcome:
    """Identify a robot from its log, and score what was found on rows that the fit has not seen."""
    progress.stage("reading the log")
    log, test_log = _read(robot, options, crew)
    spans = _spans(log, options, own_test=test_log is not None)
    nominal = lock(robot, log.locked)
    stream = Stream(robot, log.locked, degrees(nominal, options.joints))
    fitted = _with_columns(nominal, robot, log, options)
    tuned = _tuned(log, robot, nominal, fitted, stream, spans[0], options, progress, crew)
    settings, fitted = tuned.settings, tuned.robot
    rows = Rows(log, robot, settings, spans[0], stream)
    whole = crew.information(rows, fitted)
    stream.require_rows(nominal)
    progress.stage("solving")
    seen, armature = _decided(whole, stream.dofs, settings, stream.period, options)
    prior = _prior(nominal, log, seen.robot, options)

    def again() -> Iterator[Samples]:
        return crew.samples(rows, fitted, "reading again")

    _require_rows(seen)
    estimate = crew.identify(seen, whole, _estimator(options, tuned, prior), rows)
    plain = LeastSquares(weights=options.weights).estimate(seen)
    model = fitted.with_drive(armature="armature" in seen.robot.drive.identified)
    identified, beside = model.with_parameters(estimate), {PLAIN: model.with_parameters(plain)}
    collector = Collector(identified, nominal) if options.report else None
    if collector is not None:
        for samples in again():
            collector.add(samples, "train")
    couplings = () if options.actuation is not None else _couplings(identified, again())
    test = raw = None
    if test_log is not None or spans[1] is not None:
        source, span = (log, spans[1]) if test_log is None else (test_log, None)
        scoring = settings if test_log is None else settings_for(test_log, settings)

        def scored(
            cutoff: float | None, seen: Callable[[Samples], None] | None = None
        ) -> Validation | None:
            return crew.score(
                Rows(source, robot, scoring.scored(cutoff), span, stream),
                identified,
                nominal,
                beside,
                seen,
            )

        shown = None if collector is None else lambda samples: collector.add(samples, "test")
        test = scored(options.score_cutoff or settings.torque_cutoff or settings.cutoff, shown)
        raw = None if test is None else scored(highest_cutoff(source))
    traces = None if collector is None else collector.result()
    dropped = stream.dropped_in_training
    log, test_log = crew.used(log), None if test_log is None else crew.used(test_log)
    return Outcome(
        estimate,
        nominal,
        identified,
        seen,
        settings,
        test,
        raw,
        log,
        test_log,
        spans,
        dropped,
        armature,
        tuned,
        couplings,
        traces,
    )


# -- reading ---------------------------------------------------------------------------------------


def _read(robot: Robot, options: Options, crew: Alone) -> tuple[Log, Log | None]:
    choices: dict[str, Any] = {
        "columns": options.columns,
        "topic": options.topic,
        "salvage": options.salvage,
    }
    log = require_torque(crew.read(options.logs, robot, **choices), "identify from")
    if not options.tests:
        return log, None
    test = crew.read(options.tests, robot, **choices)
    both = {source.sha256: source.path for source in log.sources}
    for source in test.sources:
        if source.sha256 in both:
            raise UsageError(
                f"--test {source.path} has the same content as {both[source.sha256]}, which is"
                " fitted; hold out another log"
            )
    if set(test.locked) != set(log.locked):
        only = sorted(set(test.locked) ^ set(log.locked))
        raise MalformedInput(
            f"the test log and the fitted one do not measure the same joints ({known(only)} in one"
            " alone); give logs with the same columns"
        )
    return log, require_torque(test, "score on")


def _spans(
    log: Log, options: Options, *, own_test: bool
) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """Rows to fit and rows to hold out, split before anything is filtered."""
    if own_test or options.holdout == 0.0:
        return (0, log.rows), None
    cut = round((1.0 - options.holdout) * log.rows)
    if not 0 < cut < log.rows:
        raise NotIdentifiable(
            f"{log.rows} rows cannot be split into a part to fit and a part of {options.holdout:g}"
            " to hold out; record longer"
        )
    return (0, cut), (cut, log.rows)


# -- robot -----------------------------------------------------------------------------------------


def _with_columns(nominal: Robot, robot: Robot, log: Log, options: Options) -> Robot:
    """The robot whose columns are fitted. Terms that are not fitted are none of the model, so the
    file's values do not count either.
    """
    fitted = nominal.without_drive()
    if options.actuation is not None:
        fitted = with_map(fitted, options.actuation, whole=robot, locked=log.locked)
    terms = {term: term in options.friction for term in ("viscous", "coulomb", "offset")}
    return fitted.with_drive(**terms, armature=options.armature is not False)


def _couplings(identified: Robot, batches: Iterator[Samples]) -> tuple[Coupling, ...]:
    """Pairs of joints that seem to share a motor, from the first rows that were fitted."""
    parts, rows = [], 0
    for samples in batches:
        parts.append(replace(samples, tau=samples.tau - predicted(identified, samples)))
        rows += len(samples)
        if rows >= ROWS:
            break
    return (
        tuple(coupled(identified.velocity_names, concatenate(parts, same_log=True)))
        if parts
        else ()
    )


def settings_for(log: Log, settings: Settings) -> Settings:
    """The fit's settings on another log, which may be sampled more slowly: its motion is filtered
    no higher than its rate allows.
    """
    return replace(settings, cutoff=min(settings.cutoff, highest_cutoff(log)))


# -- choosing --------------------------------------------------------------------------------------


def _tuned(
    log: Log,
    robot: Robot,
    nominal: Robot,
    fitted: Robot,
    stream: Stream,
    span: tuple[int, int],
    options: Options,
    progress: Progress,
    crew: Alone,
) -> Tuned:
    """What the options leave open, chosen from the rows to fit."""
    if not options.tune:
        progress.stage("choosing the low-pass")
        settings = crew.choose(
            log, robot, cutoff=options.cutoff, min_speed=options.min_speed, span=span
        )
        weight = USUAL if options.prior_weight is None else options.prior_weight
        return Tuned(settings, fitted, weight, options.metric or METRIC)
    prior = _prior(nominal, log, fitted, options)
    given = TuningOptions(
        cutoff=options.cutoff,
        min_speed=options.min_speed,
        score_cutoff=options.score_cutoff,
        friction=(*TERMS, BY_LOAD) if options.load_friction else TERMS,
        weight=options.prior_weight if options.method in ("consistent", "smooth") else USUAL,
        metric=options.metric or METRIC,
        weights=options.weights,
    )

    def make(log: Log) -> Tuned:
        return tune(
            log,
            robot,
            given,
            fitted=fitted,
            narrow=stream.narrowed,
            span=span,
            prior=prior,
            tell=lambda what: progress.stage(f"choosing {what}"),
        )

    return crew.tuned(
        log, robot, fitted, span, {**asdict(given), "prior": prior, "dofs": stream.dofs}, make
    )


# -- fitting ---------------------------------------------------------------------------------------


def _decided(
    whole: Information,
    dofs: tuple[int, ...] | None,
    settings: Settings,
    period: float,
    options: Options,
) -> tuple[Information, str]:
    """The information to solve, with rotor inertia or without, and why."""
    if options.armature is not None:
        return view(whole, dofs=dofs), "asked for" if options.armature else "left out as asked"
    plain, rich = view(whole, without=("armature",), dofs=dofs), view(whole, dofs=dofs)
    if rich.rank < len(rich.base) or len(rich.base) == len(plain.base):
        return plain, "not in the model: the motion does not tell it from the links' inertia"
    estimator = LeastSquares(weights=options.weights)
    a, b = estimator.estimate(plain), estimator.estimate(rich)
    # Rows of a filtered signal are not independent: two per cycle of the cut-off are.
    share = min(1.0, 2.0 * settings.cutoff * period) if period else 1.0
    used = rich.rows > 0
    rows = share * rich.rows[used]
    floor = (
        1e-12 * rich.torque_norms()[used]
    )  # a fit that is exact to rounding cannot be improved upon
    gain = float(
        np.sum(
            rows
            * 2.0
            * np.log(
                np.maximum(a.residual_norms[used], floor)
                / np.maximum(b.residual_norms[used], floor)
            )
        )
    )
    evidence = gain - (len(rich.base) - len(plain.base)) * float(np.log(max(rows.sum(), 1.0)))
    said = (
        f"the information criterion {'gains' if evidence > 0 else 'loses'} {abs(evidence):.0f}"
        " by it"
    )
    if evidence <= EVIDENCE:
        return plain, f"not in the model: {said}, and {EVIDENCE:g} are asked for"
    std = b.full_std[-len(b.drive["armature"]) :] / np.sqrt(share)
    negative = [
        k
        for k, (value, spread) in enumerate(zip(b.drive["armature"], std, strict=True))
        if spread is not np.ma.masked and value < -2.0 * spread
    ]
    if negative:
        return (
            plain,
            (
                f"not in the model: {said}, but it would be negative"
                f" ({b.drive['armature'][negative[0]]:.2g} kg·m²), which no rotor is"
            ),
        )
    return rich, f"in the model: {said}"


def _estimator(options: Options, tuned: Tuned, prior: np.ndarray) -> Estimator | SampleEstimator:
    """What the command line asks for, as an object."""
    weights, strength = options.weights, {"weight": tuned.weight, "metric": tuned.metric}
    inner: dict[str, Callable[[], Estimator]] = {
        "least-squares": lambda: LeastSquares(weights=weights, strict=True),
        "prior": lambda: Prior(prior, options.alpha, weights=weights),
        "positive": lambda: Positive(weights=weights),
        "consistent": lambda: Consistent(prior=prior, **strength, weights=weights),
        "smooth": lambda: Consistent(
            prior=prior, **strength, weights=weights, solver=LogCholesky()
        ),
    }
    chosen = inner[options.method]()
    return Robust(chosen) if options.robust else chosen


def _prior(nominal: Robot, log: Log, fitted: Robot, options: Options) -> np.ndarray:
    """x₀: what a robot file says of every column, of the joints that the log measures; made
    physical where a method needs it.
    """
    robot = nominal
    if options.prior is not None:
        robot = lock(load(options.prior), log.locked)
        if robot.joint_names != nominal.joint_names or robot.body_names != nominal.body_names:
            ours, theirs = (
                set(nominal.joint_names + nominal.body_names),
                set(robot.joint_names + robot.body_names),
            )
            differ = known(sorted(ours ^ theirs)) if ours != theirs else "their order"
            raise UsageError(
                f"--prior {options.prior.name} is another robot: joints or bodies differ"
                f" ({differ}); give a variant of the same robot"
            )
    wrong = [
        name
        for name, verdict in zip(robot.body_names, robot.consistency, strict=True)
        if not verdict
    ]
    if wrong and options.method in ("consistent", "smooth"):
        warnings.warn(
            f"the prior's {known(wrong)} cannot be rigid bodies; the nearest physical ones take"
            " their place",
            RobotWarning,
            stacklevel=2,
        )
        robot = robot.projected()
    columns = Columns(fitted)
    if (
        columns.drive.actuation is not None
    ):  # files state friction of joints, not of motors that drive several
        return np.concatenate([robot.theta, np.zeros(columns.count - columns.inertial)])
    motors = list(columns.drive.column_motors)
    stated = [
        (
            np.maximum(robot.drive.value(term), 0.0)
            if term in robot.drive.terms
            else np.zeros(robot.nv)
        )
        for term in columns.drive.identified
    ]
    return np.concatenate([robot.theta, *(values[motors] for values in stated)])


def _require_rows(seen: Information) -> None:
    """An error where there are fewer samples than parameters, however they are solved."""
    usable = int(seen.rows.max())
    if usable < len(seen.base):
        raise NotIdentifiable(
            f"the log has {usable} usable samples to fit {len(seen.base)} parameters; record"
            " longer, or hold out less"
        )
