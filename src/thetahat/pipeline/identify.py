"""`identify`: logs → samples → information → estimate → scores → verdict."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thetahat import robots
from thetahat.data.joint_selection import highest_cutoff
from thetahat.data.log import Log
from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples, concatenate
from thetahat.data.samples_log import SamplesLog
from thetahat.data.subsample import ROWS
from thetahat.data.types import Finding
from thetahat.dynamics.contact_projection import eliminates_forces
from thetahat.engine.open_engine import EngineOptions, open_engine
from thetahat.engine.protocol import Completion, Engine, Fold, NoProgress, Progress, Rows, Tuning
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification.consistency.constraints import Constraints
from thetahat.identification.consistency.plausibility import assess, bounded_estimate
from thetahat.identification.coupled_joints import coupled
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimate_json import PLAIN
from thetahat.identification.estimators.consistent import Consistent, LogCholesky
from thetahat.identification.estimators.estimator import AnyEstimator, Estimator
from thetahat.identification.estimators.instrumental import Instrumental
from thetahat.identification.estimators.joint_weights import Weights, weigh
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.positive import Positive
from thetahat.identification.estimators.prior import Prior
from thetahat.identification.estimators.robust import Robust
from thetahat.identification.gain_differences import gain_differences
from thetahat.identification.information import Information
from thetahat.identification.log_statistics import PER_CYCLE, LogStatistics
from thetahat.identification.motion_rollout import TorqueWindows, torque_rollout
from thetahat.identification.residual_audit import ResidualAudit
from thetahat.identification.residual_structure import (
    Residuals,
    find_structure,
    fitted_springs,
    lost_to_constraints,
)
from thetahat.identification.scores import Validation, predicted
from thetahat.identification.submodel import view
from thetahat.identification.tuning.cross_validation import METRIC, CrossValidation
from thetahat.identification.tuning.gaussian_fit import GaussianModel, Grams
from thetahat.identification.tuning.model_selection import BY_LOAD, TERMS
from thetahat.identification.tuning.prior_strength import USUAL
from thetahat.identification.tuning.rotor_inertia import RotorDecision, decide_rotor_inertia
from thetahat.identification.tuning.tune import Tuned, TuningOptions, tune, tune_samples
from thetahat.identification.uncertainty.gain_error import with_gain_error
from thetahat.identification.uncertainty.posterior import RobotSamples
from thetahat.identification.verdict import Verdict
from thetahat.model.floating_base import base_dofs, ground_of
from thetahat.model.robot import Robot
from thetahat.pipeline.contact_weights import fold_rows
from thetahat.pipeline.dataset import Dataset, LogInput, load_robot, read_dataset
from thetahat.pipeline.identification import Identification
from thetahat.pipeline.instruments import instrumented
from thetahat.pipeline.logged_sensors import log_names
from thetahat.pipeline.outputs import Targets, write
from thetahat.pipeline.results import Model, Scores
from thetahat.pipeline.settings import IdentifySettings
from thetahat.pipeline.solvable import solvable
from thetahat.report.trace_collector import Collector

DRAWN = 200  # robots, for the report's band of torques
LOOSE = 0.1  # weight of a prior whose inertias are placeholders, at most: 3 times their size


def identify(
    robot: Robot | str | os.PathLike[str],
    logs: LogInput,
    *,
    test: LogInput = None,
    settings: IdentifySettings | None = None,
    workers: int | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Identification:
    """Identify a robot's inertial and friction parameters from logs of its motion.

    This is all that ``thetahat identify`` does: same defaults, same answer.

    Args:
        robot: a URDF or MJCF file, the name of a robot that ships with thetahat, or a `Robot`.
        logs: a path or several (files, folders, patterns, URLs), a `Log`, `Samples`, a pandas or
            polars frame, or a mapping of arrays by column name.
        test: logs to score on; by default the last 30 % of `logs` are held out.
        settings: what differs from the defaults, as ``th.IdentifySettings(cutoff=10.0)``.
        workers: processes that share the work (extra ``dask``).
        store: folder that caches results, so that a second run reads only what is new.

    Returns:
        Estimate, identified robot, scores on held-out data, verdict, report and figures.

    Example:
        >>> result = th.identify("panda.urdf", "run3.csv")  # doctest: +SKIP
        >>> print(result.verdict)  # doctest: +SKIP
        >>> result.save("result/")  # doctest: +SKIP

    """
    if isinstance(robot, Information):
        raise UsageError(
            "th.identify takes a robot and logs; an estimate from information is"
            " th.solve(information, estimator)"
        )
    settings = settings or IdentifySettings()
    loaded = load_robot(robot, settings.gravity, floating_base=settings.floating_base)
    names = [*(log_names(logs) or ()), *(log_names(test) or ())]
    options = EngineOptions(workers, store=None if store is None else Path(store))
    with open_engine(options, logs=names) as engine:
        result = run(read_dataset(loaded, logs, test, settings, engine), engine)
        engine.record(result.data, result.verdict.sentence)
    for sentence in engine.completion.sentences:
        warnings.warn(sentence, stacklevel=2)
    return result


@dataclass(frozen=True)
class Answer:
    """What `identify_into` wrote, and how the work went."""

    data: dict[str, Any]  # of estimate.json
    files: tuple[Path, ...]
    completion: Completion


def identify_into(
    folder: str | os.PathLike[str],
    robot: str,
    logs: Sequence[str],
    test: Sequence[str] | None,
    *,
    settings: IdentifySettings,
    engine_options: EngineOptions,
    progress: Progress,
    warned: list[str],
) -> Answer:
    """Identify and write the files into a folder; an answer that the store has is not made again.

    warned: sentences of the warnings so far, which estimate.json lists.
    """
    file = robots.find(robot)
    targets = Targets.beneath(folder, file, report=settings.report)
    inputs = [file]
    if isinstance(settings.prior, str | os.PathLike):
        inputs.append(robots.find(os.fspath(settings.prior)))
    if settings.actuation is not None:
        inputs.append(Path(settings.actuation))
    targets.check([*inputs, *logs, *(test or ())])
    progress.stage("loading the robot")
    loaded = load_robot(file, settings.gravity, floating_base=settings.floating_base)
    with open_engine(engine_options, progress, [*logs, *(test or ())]) as engine:
        progress.stage("reading the log")
        dataset = read_dataset(loaded, logs, test, settings, engine)
        # regions, since they hang on meshes, which are other files than the robot's
        options = settings, dataset.reference.regions
        key = engine.answer_key(dataset.logs, options, inputs, targets.folder)
        answer = None if key is None else engine.cached_answer(key, targets.folder)
        if answer is None:
            result = run(dataset, engine, progress)
            progress.stage("writing")
            saved = write(result, result.data, targets, warned, force=settings.force)
            answer = saved.data, list(saved.files)
            if key is not None:
                engine.keep_answer(key, answer, targets.folder)
        data, files = answer
        warned += [sentence for sentence in data["warnings"] if sentence not in warned]
        engine.record(data, Verdict.from_data(data["verdict"]).sentence)
    return Answer(data, tuple(files), engine.completion)


def run(dataset: Dataset, engine: Engine, progress: Progress | None = None) -> Identification:
    """Identify from a dataset, and score on rows that the fit has not seen."""
    with solvable(dataset.nominal, dataset.log):
        return _run(dataset, engine, progress or NoProgress())


def _run(dataset: Dataset, engine: Engine, progress: Progress) -> Identification:
    tuned = tune_dataset(dataset, engine, progress)
    dataset, tuned, rows, fold = fold_rows(dataset, engine, tuned)
    fold.counts.require_rows(dataset.nominal)
    progress.stage("solving")
    model, estimate = _solve(dataset, engine, tuned, rows, fold)
    if model.instruments is not None:
        tuned = replace(tuned, reasons=(*tuned.reasons, model.instruments.reason))
    collector = None
    if dataset.settings.report:
        collector = Collector(model.identified, model.nominal, drawn=_drawn(model, estimate))
    watchers = Watchers(
        collector,
        ResidualAudit(model.identified),
        TorqueWindows(model.identified),
        dataset.test_log is None,
    )
    batches = engine.samples(rows, tuned.robot, "reading again")
    unmodelled = _unmodelled(dataset, model, estimate, watchers.watched(batches))
    if dataset.settings.gains is None and tuned.robot.drive.actuation is None:
        share = 1.0 if tuned.statistics is None else tuned.statistics.share
        unmodelled += gain_differences(model.information, share)
    noise = () if model.instruments is None else model.instruments.findings
    model = replace(model, unmodelled=(*dataset.ground, *noise, *unmodelled))
    scores = _score(dataset, engine, tuned.settings, model, watchers)
    used = replace(
        dataset,
        log=engine.without_failures(dataset.log),
        test_log=None if dataset.test_log is None else engine.without_failures(dataset.test_log),
    )
    traces = None if collector is None else collector.result()
    test_runs = () if dataset.test_log is None else dataset.test_log.runs
    residuals = watchers.residuals.findings(dataset.log.runs, test_runs)
    return Identification(estimate, model, scores, used, tuned, fold.counts, traces, residuals)


def _drawn(model: Model, estimate: Estimate) -> RobotSamples | None:
    """Robots drawn from the estimate, for the report; None where it has no law of robots."""
    diagnostics, robot = estimate.diagnostics, estimate.robot
    same = (robot.nq, robot.nv) == (model.identified.nq, model.identified.nv)
    if diagnostics.posterior is None or diagnostics.sensitivity is None or not same:
        return None
    try:
        return estimate.sample(DRAWN)
    except NotIdentifiable:  # on a corner of its bounds
        return None


@dataclass(frozen=True)
class Watchers:
    """What looks at samples as they pass by: traces of the report, the audit of residuals, and
    the rows from which motion is simulated.
    """

    collector: Collector | None
    residuals: ResidualAudit
    windows: TorqueWindows  # of held-out rows
    one_log: bool  # held-out rows are of the fitted log

    def watched(self, batches: Iterator[Samples]) -> Iterator[Samples]:
        """Pass fitted rows on."""
        for samples in batches:
            if self.collector is not None:
                self.collector.add(samples, "train")
            self.residuals.add(samples, "fit")
            yield samples

    def watch_test(self, samples: Samples) -> None:
        """Look at held-out rows."""
        if self.collector is not None:
            self.collector.add(samples, "test")
        self.residuals.add(samples, "fit" if self.one_log else "test")
        self.windows.add(samples)


# -- stages ----------------------------------------------------------------------------------------


def tune_dataset(dataset: Dataset, engine: Engine, progress: Progress) -> Tuned:
    """Choose what the settings leave open, from the training rows."""
    settings, fitted = dataset.settings, dataset.fitted
    metric = settings.metric or METRIC
    weight = settings.prior_weight if settings.consistent else USUAL
    if not settings.tune:
        progress.stage("choosing the low-pass")
        filtering = (
            dataset.log.settings
            if isinstance(dataset.log, SamplesLog)
            else engine.choose_filter(
                dataset.log,
                dataset.robot,
                cutoff=settings.cutoff,
                min_speed=settings.min_speed,
                span=dataset.train_rows,
            )
        )
        filtering = replace(filtering, form=_form(dataset) or "torque")
        return Tuned(filtering, fitted, USUAL if weight is None else weight, metric)
    options = TuningOptions(
        cutoff=settings.cutoff,
        score_cutoff=settings.score_cutoff,
        min_speed=settings.min_speed,
        weight=weight,
        metric=metric,
        friction=(*TERMS, BY_LOAD) if settings.load_friction else TERMS,
        rotors=settings.armature,
        form=_form(dataset),
        springs=settings.springs,
    )
    prior = dataset.prior_of(fitted)

    def run(log: Log) -> Tuned:
        def tell(text: str) -> None:
            progress.stage(f"choosing {text}")

        if isinstance(log, SamplesLog):
            samples = dataset.joints.select(log.samples)
            return tune_samples(samples, log.settings, fitted, options, prior=prior, tell=tell)
        return tune(
            log,
            dataset.robot,
            options,
            fitted=fitted,
            narrow=dataset.joints.select,
            span=dataset.train_rows,
            prior=prior,
            tell=tell,
        )

    key = {**asdict(options), "prior": prior, "dofs": dataset.joints.dofs}
    chosen = engine.tune(dataset.log, Tuning(dataset.robot, fitted, dataset.train_rows, key, run))
    return _loosened(chosen, dataset) if settings.prior_weight is None else chosen


def _form(dataset: Dataset) -> str | None:
    """Return the form of the equation of motion that is asked for, or that samples have already;
    None: to be chosen.
    """
    form, log = dataset.settings.form, dataset.log
    if form == "torque" and isinstance(log, SamplesLog):
        return log.samples.form.name
    return None if form == "auto" else form


def _loosened(tuned: Tuned, dataset: Dataset) -> Tuned:
    """Return the choices with a weak prior where the robot file's inertias are placeholders."""
    if not dataset.settings.consistent or tuned.weight <= LOOSE:
        return tuned
    reason = dataset.reference.placeholder
    if reason is None:
        return tuned
    said = f"prior weight {LOOSE:g} instead of {tuned.weight:g}: placeholder inertias ({reason})"
    return replace(tuned, weight=LOOSE, reasons=(*tuned.reasons, said))


def _solve(
    dataset: Dataset, engine: Engine, tuned: Tuned, rows: Rows, fold: Fold
) -> tuple[Model, Estimate]:
    """Estimate the parameters, and a plain least-squares fit beside."""
    settings = dataset.settings
    statistics = _statistics(tuned, fold)
    tuned = replace(tuned, statistics=statistics)
    seen = view(fold.information.without_instruments, dofs=dataset.joints.dofs)
    rotors: tuple[int, ...] | None = None
    if not settings.tune and settings.armature is None and seen.robot.drive.column_motors:
        decision = _decide_rotors(dataset, tuned.metric, statistics, seen)
        rotors = tuple(decision.motors)
        seen = view(fold.information.without_instruments, dofs=dataset.joints.dofs, rotors=rotors)
        tuned = replace(tuned, robot=decision.applied(tuned.robot), reasons=decision.reasons)
    usable = int(seen.rows.max())
    if ground_of(tuned.robot) is not None:  # each of the base's six rows tells of all bodies
        own = slice(None) if eliminates_forces(tuned.robot) else list(base_dofs(tuned.robot))
        usable = int(fold.information.rows[own].sum())
    if usable < len(seen.base) and not settings.static:
        raise NotIdentifiable(
            f"the log has {usable} usable samples to fit {len(seen.base)} parameters; record"
            " longer, or hold out less"
        )
    paired = instrumented(
        dataset,
        engine,
        rows,
        fold.information.robot,
        lambda whole: view(whole, dofs=dataset.joints.dofs, rotors=rotors),
    )
    if paired is not None and paired.used:
        rows, fold, seen = paired.rows, paired.fold, paired.seen
    estimate = _estimate(dataset, engine, tuned, rows, fold, seen=seen)
    estimate = _with_gain_error(dataset, tuned, seen, estimate)
    plain = LeastSquares(weights=settings.weights).estimate(seen)
    model = Model(
        nominal=dataset.nominal,
        identified=tuned.robot.with_parameters(estimate),
        least_squares=tuned.robot.with_parameters(plain),
        information=seen,
        rotor_inertia=_rotor_sentence(tuned),
        plausibility=assess(estimate, dataset.reference, settings.plausible),
        instruments=None if paired is None else paired.decision,
    )
    return model, estimate


def _estimate(
    dataset: Dataset,
    engine: Engine,
    tuned: Tuned,
    rows: Rows,
    fold: Fold,
    *,
    seen: Information,
) -> Estimate:
    """Estimate, within bounds of plausible bodies where the fit without leaves them."""
    settings, prior = dataset.settings, dataset.prior_of(seen.robot)

    def solved(constraints: Constraints) -> Estimate:
        estimator = make_estimator(
            settings, tuned, prior, constraints, instruments=seen.instrument_factors is not None
        )
        return engine.solve(seen, fold.information, estimator, rows)

    limits = dataset.constraints
    free = solved(replace(limits, plausible={}, total_mass=None))
    if free.status == "infeasible" or not (limits.plausible or limits.total_mass):
        return free
    estimator = consistent_estimator(settings, tuned, prior, limits)
    share = 1.0 if tuned.statistics is None else tuned.statistics.share
    estimate = bounded_estimate(seen, estimator, free, independent=share)
    if estimate is free:
        return free.with_limits(estimator.limits(seen))
    if settings.robust:  # once more, with the samples' weights
        given_up = tuple(each.name for each in estimate.given_up)
        return solved(replace(limits, given_up=given_up)).with_given_up(estimate.given_up)
    return estimate


def _with_gain_error(
    dataset: Dataset, tuned: Tuned, seen: Information, estimate: Estimate
) -> Estimate:
    """The estimate with intervals that know how well the drives' gains are known."""
    settings, errors = dataset.settings, dataset.settings.gain_errors
    relative = np.array([errors.get(name, 0.0) for name in seen.robot.velocity_names])
    if not np.any(relative) or seen.robot.drive.actuation is not None:
        return estimate
    weights: str | Weights | None = settings.weights
    if settings.consistent:
        prior = dataset.prior_of(seen.robot)
        estimator = consistent_estimator(settings, tuned, prior, dataset.constraints)
        weights = estimator.joint_weights(seen)
    if not isinstance(weights, Weights):
        weights = weigh(seen, weights)
    return with_gain_error(estimate, seen, weights, relative)


def _decide_rotors(
    dataset: Dataset, metric: str, statistics: LogStatistics, seen: Information
) -> RotorDecision:
    """Whose rotor inertia is identified, from all rows, where nothing is tuned."""
    x0 = CrossValidation(dataset.prior_of(seen.robot), metric).x0(seen)
    model = GaussianModel.of(seen, x0, statistics, metric=metric)
    grams = Grams.of(seen)
    return decide_rotor_inertia(model.with_drive_sizes(grams), grams)


def _statistics(tuned: Tuned, fold: Fold) -> LogStatistics:
    """The statistics of the folded rows: as tuned, or of the low-pass alone."""
    if tuned.statistics is not None:
        return tuned.statistics.at(fold.period)
    cutoff = tuned.settings.torque_cutoff or tuned.settings.cutoff
    share = min(1.0, PER_CYCLE * cutoff * fold.period) if fold.period else 1.0
    return LogStatistics.by_share(tuned.robot, share, fold.period)


def _rotor_sentence(tuned: Tuned) -> str:
    """Whether rotor inertia is fitted, and why, motor by motor."""
    fitted = "fitted" if "armature" in tuned.robot.drive.identified else "not fitted"
    prefix = "Rotor inertia "
    reasons = [each.removeprefix(prefix) for each in tuned.reasons if each.startswith(prefix)]
    return f"{fitted}: {'; '.join(reasons)}" if reasons else f"{fitted}: as asked"


def make_estimator(
    settings: IdentifySettings,
    tuned: Tuned,
    prior: np.ndarray,
    constraints: Constraints | None = None,
    *,
    instruments: bool = False,
) -> AnyEstimator:
    """Return the estimator that the settings ask for; least squares is by instruments, if any."""
    weights = settings.weights
    estimator: Estimator
    match settings.method:
        case "least-squares" if instruments:
            estimator = Instrumental(weights=weights)
        case "least-squares":
            estimator = LeastSquares(weights=weights, strict=True)
        case "prior":
            estimator = Prior(prior, settings.blend, weights=weights)
        case "positive":
            estimator = Positive(weights=weights)
        case _:
            estimator = consistent_estimator(settings, tuned, prior, constraints)
    return Robust(estimator) if settings.robust else estimator


def consistent_estimator(
    settings: IdentifySettings, tuned: Tuned, prior: np.ndarray, constraints: Constraints | None
) -> Consistent:
    """Return the physically consistent estimator that the settings ask for."""
    return Consistent(
        prior=prior,
        weight=tuned.weight,
        metric=tuned.metric,
        weights=settings.weights,
        constraints=constraints or Constraints(),
        solver=LogCholesky() if settings.method == "smooth" else None,
        statistics=tuned.statistics,
    )


def _unmodelled(
    dataset: Dataset, model: Model, estimate: Estimate, batches: Iterator[Samples]
) -> tuple[Finding, ...]:
    """Find structure in the residual of the first rows that were fitted.

    All batches are read, as others look at them as well.
    """
    parts, rows = [], 0
    for samples in batches:
        if rows < ROWS:
            parts.append(samples)
        rows += len(samples)
    if not parts:
        return ()
    samples, names = concatenate(parts, same_log=True), model.identified.velocity_names
    residuals = Residuals.of(samples, predicted(model.identified, samples))
    found = [*fitted_springs(model.identified), *find_structure(names, residuals)]
    if dataset.settings.actuation is None:
        found += [coupling.finding for coupling in coupled(names, residuals)]
    information, weights = model.information, dataset.settings.weights
    instruments = information.instrument_factors is not None
    free = Instrumental(weights) if instruments else LeastSquares(weights)
    found += lost_to_constraints(
        names,
        estimate.residual_norms,
        free.estimate(information).residual_norms,
        information.torque_norms(),
    )
    return tuple(found)


def _score(
    dataset: Dataset,
    engine: Engine,
    settings: Settings,
    model: Model,
    watchers: Watchers,
) -> Scores:
    """Score on held-out rows, behind the low-pass of the fit and with torques as logged, and
    simulate their motion.
    """
    log, span = dataset.log, dataset.test_rows
    if dataset.test_log is not None:
        log, span = dataset.test_log, None
        settings = settings_for(log, settings)
    elif span is None:
        return Scores()

    def score(cutoff: float, watched: bool) -> Validation | None:
        return engine.score(
            Rows(log, settings.scored(cutoff), span, dataset.joints),
            model.identified,
            nominal=model.nominal,
            beside={PLAIN: model.least_squares},
            watch=watchers.watch_test if watched else None,
        )

    cutoff = dataset.settings.score_cutoff or settings.torque_cutoff or settings.cutoff
    test = score(cutoff, watched=True)
    if test is None:
        return Scores()
    raw = None
    if not isinstance(log, SamplesLog):
        raw = score(highest_cutoff(log), watched=False)
    rollout = torque_rollout(model.identified, watchers.windows.stretches, model.nominal)
    return Scores(test, raw, rollout)


def settings_for(log: Log, settings: Settings) -> Settings:
    """Return the fit's settings for another log, filtered no higher than its rate allows."""
    if isinstance(log, SamplesLog):
        return settings
    return replace(settings, cutoff=min(settings.cutoff, highest_cutoff(log)))
