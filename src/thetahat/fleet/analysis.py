"""A manifest in, a judged fleet out: logs scanned, settings chosen once, every period estimated by
whichever worker is free, and the whole judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from thetahat.data.joint_selection import JointSelection
from thetahat.data.reading import Reading
from thetahat.engine.cache import Store
from thetahat.engine.fingerprint import fingerprint, robot_fingerprint
from thetahat.engine.multi_log import Failure, MultiLog
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.run_records import begin_run, finish_run, is_recorded
from thetahat.engine.tuning_cache import SettingsOptions, TunedEntry, choose_settings, sparse_log
from thetahat.engine.workers import Job
from thetahat.errors import MalformedInput, NotIdentifiable, ThetahatError
from thetahat.fleet import period_estimates
from thetahat.fleet.findings import LEVEL, FleetFindings, RobotHistory, judge_fleet
from thetahat.fleet.manifest import Manifest, Member
from thetahat.fleet.parameter_series import parameter_space
from thetahat.fleet.period_estimates import PeriodEstimate, PeriodTask, Recipe
from thetahat.fleet.periods import Timeline, period_times, timeline
from thetahat.identification import factor as f
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import prior_vector
from thetahat.identification.tuning.cross_validation import METRIC
from thetahat.identification.tuning.prior_strength import USUAL
from thetahat.identification.tuning.tune import Tuned, TuningOptions, tune
from thetahat.model.io.load import load
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot

FIRST = 4  # periods that settings are chosen from
PeriodKey = tuple[str, str]  # robot and label of the period


@dataclass(frozen=True)
class FleetOptions:
    """Options of a fleet's analysis."""

    by: str = "log"
    level: float = LEVEL
    friction: tuple[str, ...] = ("viscous", "coulomb", "offset")
    armature: bool = False
    cutoff: float | None = None
    min_speed: float | None = None
    tune: bool = True
    reading: Reading = field(default_factory=Reading)  # how the files of a log are read


@dataclass(frozen=True, eq=False)
class FleetAnalysis:
    """All that came out."""

    manifest: Manifest
    options: FleetOptions
    robots: tuple[RobotHistory, ...]
    recipes: dict[str, Recipe]  # by robot
    findings: FleetFindings
    failures: tuple[Failure, ...]  # logs, periods and robots that were left out
    computed: int  # periods; the others were in the store
    reasons: dict[str, tuple[str, ...]]  # by kind of robot: what was chosen and why
    tasks: dict[PeriodKey, PeriodTask]
    keys: dict[PeriodKey, str]  # of the estimates in the store; none without one

    def record(self, store: Store) -> None:
        """Record every period's estimate, verdict and provenance as a run, unless the same estimate
        is recorded already.
        """
        for robot in self.robots:
            recipe = self.recipes[robot.name]
            for label, estimate in zip(robot.labels, robot.periods, strict=True):
                # the key is that of all its logs
                key = None if estimate.left_out else self.keys.get((robot.name, label))
                if key is not None and is_recorded(store, robot.name, label, key):
                    continue
                task = self.tasks[robot.name, label]
                finish_run(
                    store,
                    begin_run(store, recipe.robot, owner=robot.name, period=label),
                    period_estimates.as_json(recipe, task, estimate, robot.space.base.names),
                    verdict=self.findings.verdict(robot.name, label, estimate.r2),
                    fold=recipe.work.fingerprint,
                    root=key,
                    failures=estimate.left_out,
                )


def analyze_fleet(
    manifest: Manifest, options: FleetOptions, reducer: ShardReducer
) -> FleetAnalysis:
    """Estimate every robot and period, and judge the fleet.

    What cannot be used is named in `failures`; the rest of the work is kept.
    """
    scanned, failures = _scan_robots(manifest, options, reducer)
    chosen = _choose_recipes(scanned, options, reducer)
    usable = [each for each in scanned if each.member.name in chosen.recipes]
    tasks = {
        (task.robot, task.label): task
        for number, each in enumerate(usable)
        for task in _tasks(number, each)
    }
    context = [chosen.recipes[each.member.name] for each in usable]
    estimates = _Estimates(reducer, context, list(tasks.values()))
    estimates.run()
    failures += [*chosen.failures, *estimates.failures]
    reducer.progress("judging", 0, 0)
    # thousands of small matrices: threads woken for each would only spin
    with f.blas_threads().limit(limits=1, user_api="blas"):
        robots, empty = _histories(usable, chosen.recipes, estimates.results)
        failures += empty
        if not robots:
            raise _refused(manifest, failures)
        findings = judge_fleet(robots, level=options.level)
    return FleetAnalysis(
        manifest,
        options,
        robots,
        chosen.recipes,
        findings,
        tuple(failures),
        estimates.computed,
        {kind: each.reasons for kind, each in chosen.tuned.items()},
        tasks,
        estimates.keys,
    )


def _refused(manifest: Manifest, failures: Sequence[Failure]) -> ThetahatError:
    """Nothing could be estimated: the first reason, and how many more there are."""
    nothing = Failure("", "no log could be used", NotIdentifiable.exit_code)
    first = failures[0] if failures else nothing
    more = f" ({len(failures) - 1} more failed)" if len(failures) > 1 else ""
    return first.error(f"{manifest.path.name}: no robot could be estimated: {first.sentence}{more}")


def _failure(robot: str, error: ThetahatError) -> Failure:
    return Failure(robot, f"{robot}: {error}", error.exit_code)


# -- logs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ScannedRobot:
    """A robot whose logs have been scanned."""

    member: Member
    timeline: Timeline
    files: MultiLog
    kind: str

    @property
    def locked(self) -> tuple[str, ...]:
        """Joints that the logs do not measure."""
        return self.files.log.locked

    @property
    def first_rows(self) -> tuple[int, int]:
        """The rows of its first periods."""
        places = {item.place for period in self.timeline.periods[:FIRST] for item in period.items}
        stops = [entry.stop_row for entry in self.files.entries if entry.item.place in places]
        return 0, max(stops, default=self.files.log.rows)


def _scan_robots(
    manifest: Manifest, options: FleetOptions, reducer: ShardReducer
) -> tuple[list[_ScannedRobot], list[Failure]]:
    """Every robot with logs that can be read, and what cannot."""
    robots: dict[Path, Robot] = {}
    owners: dict[str, str] = {}
    scanned: list[_ScannedRobot] = []
    failures: list[Failure] = []
    for member in manifest.members:
        name = member.name
        try:
            own = timeline(member, options.by)
            failures += own.failures
            for item in own.items:
                if owners.setdefault(item.place, name) != name:
                    raise MalformedInput(
                        f"the log {item.name} is also one of {owners[item.place]}; a log is of one"
                        " robot"
                    )
            if not own.periods:
                raise MalformedInput("none of its logs is there")
            if member.robot not in robots:
                robots[member.robot] = load(member.robot)
            names = [item.given for item in own.items]
            files = reducer.scan(names, robots[member.robot], options.reading)
            failures += [
                replace(each, sentence=f"{name}: {each.sentence}") for each in files.failures
            ]
            if not files.log.has_tau:
                raise MalformedInput(
                    "its logs have no torque columns; name them tau.<joint>, or map yours with"
                    ' --columns "tau=…"'
                )
            kind = fingerprint(str(member.robot.resolve()), sorted(files.log.locked))
            scanned.append(_ScannedRobot(member, own, files, kind))
        except ThetahatError as error:
            failures.append(_failure(name, error))
    return scanned, failures


# -- settings --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Chosen:
    """What was chosen, once per kind of robot, and each robot's recipe."""

    tuned: dict[str, Tuned] = field(default_factory=dict)  # by kind
    recipes: dict[str, Recipe] = field(default_factory=dict)  # by robot
    failures: list[Failure] = field(default_factory=list)


def _choose_recipes(
    scanned: Sequence[_ScannedRobot], options: FleetOptions, reducer: ShardReducer
) -> _Chosen:
    out = _Chosen()
    for each in scanned:
        try:
            if each.kind not in out.tuned:
                out.tuned[each.kind] = _tune(each, options, reducer)
            out.recipes[each.member.name] = _recipe(each, out.tuned[each.kind], options)
        except ThetahatError as error:
            out.failures.append(_failure(each.member.name, error))
    return out


def physical_prior(robot: Robot, locked: Sequence[str], fitted: Robot) -> np.ndarray:
    """Return the values of a robot file for every column of `fitted`, bodies made physical."""
    nominal = lock(robot, locked)
    return prior_vector(nominal if all(nominal.consistency) else nominal.projected(), fitted)


def _tune(each: _ScannedRobot, options: FleetOptions, reducer: ShardReducer) -> Tuned:
    """Low-pass, friction law and prior, chosen from the first periods of the first robot of a kind,
    for all of that kind.
    """
    robot, span = each.files.robot, each.first_rows
    terms = {term: term in options.friction for term in ("viscous", "coulomb", "offset")}
    bare = lock(robot, each.locked).without_drive()
    fitted = bare.with_drive(**terms, armature=options.armature)
    if not options.tune:
        wanted = SettingsOptions(cutoff=options.cutoff, min_speed=options.min_speed)
        return Tuned(choose_settings(each.files, wanted, span), fitted, USUAL, METRIC)
    key = fingerprint(
        "fleet-tuned",
        period_estimates.FORMAT,
        robot_fingerprint(robot, values=True),
        robot_fingerprint(fitted),
        (options.cutoff, options.min_speed, each.files.reading.key, each.locked),
        [entry.file.digest for entry in each.files.entries if entry.first_row < span[1]],
    )
    stored = None if reducer.store is None else reducer.store.get(key, TunedEntry)
    if stored is not None:
        return stored.restore(fitted)
    reducer.progress("choosing friction and low-pass", 0, 0)
    tuned = tune(
        sparse_log(each.files, span),
        robot,
        TuningOptions(cutoff=options.cutoff, min_speed=options.min_speed),
        fitted=fitted,
        narrow=JointSelection(robot, each.locked).select,
        span=span,
        prior=physical_prior(robot, each.locked, fitted),
    )
    entry = TunedEntry.of(tuned)
    if entry is not None:
        reducer.write(lambda store: store.put(key, entry))
    return tuned


def _recipe(each: _ScannedRobot, tuned: Tuned, options: FleetOptions) -> Recipe:
    """What was chosen for its kind, with thresholds for noise and standstill from its own first
    periods.
    """
    wanted = SettingsOptions(cutoff=tuned.settings.cutoff, min_speed=options.min_speed)
    settings = replace(
        choose_settings(each.files, wanted, each.first_rows),
        torque_cutoff=tuned.settings.torque_cutoff,
        delay=tuned.settings.delay,
        reasoning="",
    )
    return Recipe(
        each.files.robot,
        each.files.reading,
        settings,
        each.locked,
        tuned.robot,
        tuned.estimator(physical_prior(each.files.robot, each.locked, tuned.robot)),
    )


# -- periods ---------------------------------------------------------------------------------------


class _Estimates:
    """Every period's estimate, from the store or by a worker."""

    def __init__(
        self, reducer: ShardReducer, context: Sequence[Recipe], tasks: Sequence[PeriodTask]
    ) -> None:
        self._reducer, self._context, self._tasks = reducer, context, tasks
        self.results: dict[PeriodKey, PeriodEstimate] = {}
        self.keys: dict[PeriodKey, str] = {}  # of those in a store
        self.failures: list[Failure] = []
        self.computed = 0
        self._done, self._total = 0, sum(task.rows for task in tasks)

    def run(self) -> None:
        """Estimate what the store has not: small periods side by side, large ones shard by
        shard.
        """
        missing = [task for task in self._tasks if not self._load(task)]
        self.computed = len(missing)
        self._reducer.progress("estimating", self._done, self._total)
        small = [task for task in missing if task.rows <= period_estimates.LARGE]
        job = Job(self._context, period_estimates.run, lambda task: task.name)
        for number, result in self._reducer.workers.each(job, small):
            self._take(small[number], result)
        for task in missing:
            if task.rows > period_estimates.LARGE:
                recipe = self._context[task.recipe]
                try:
                    self._take(task, period_estimates.estimate(self._reducer, recipe, task))
                except ThetahatError as error:
                    self._take(task, Failure.of(task.name, error))

    def _load(self, task: PeriodTask) -> bool:
        """Whether the store has the estimate."""
        store = self._reducer.store
        if store is None:
            return False
        try:
            key = period_estimates.store_key(self._context[task.recipe], task)
        except ThetahatError:  # it is told when the task runs
            return False
        self.keys[task.robot, task.label] = key
        estimate = store.get(key, PeriodEstimate)
        if estimate is None:
            return False
        self.results[task.robot, task.label] = estimate
        self._done += task.rows
        return True

    def _take(self, task: PeriodTask, result: PeriodEstimate | Failure) -> None:
        self._done += task.rows
        self._reducer.progress("estimating", self._done, self._total)
        failures = (result,) if isinstance(result, Failure) else result.left_out
        self.failures += [replace(each, sentence=_named(task, each.sentence)) for each in failures]
        if isinstance(result, Failure):
            return
        self.results[task.robot, task.label] = result
        key = self.keys.get((task.robot, task.label))
        if key is not None and not result.left_out:
            self._reducer.write(lambda store: store.put(key, result))


def _named(task: PeriodTask, sentence: str) -> str:
    return sentence if sentence.startswith(task.robot) else f"{task.name}: {sentence}"


def _tasks(number: int, each: _ScannedRobot) -> list[PeriodTask]:
    """The periods that have a log which can be read."""
    scanned = {entry.item.place: (entry.item, entry.file) for entry in each.files.entries}
    out = []
    for period in each.timeline.periods:
        files = tuple(scanned[item.place] for item in period.items if item.place in scanned)
        if files:
            out.append(PeriodTask(number, period.label, each.member.name, files))
    return out


def _histories(
    scanned: Sequence[_ScannedRobot],
    recipes: dict[str, Recipe],
    results: dict[PeriodKey, PeriodEstimate],
) -> tuple[tuple[RobotHistory, ...], list[Failure]]:
    """Robots with at least one estimate, each in the parameter space of its kind; and the
    others.
    """
    by_kind: dict[str, list[PeriodEstimate]] = {}
    periods = {}
    for each in scanned:
        name = each.member.name
        periods[name] = [p for p in each.timeline.periods if (name, p.label) in results]
        by_kind.setdefault(each.kind, []).extend(results[name, p.label] for p in periods[name])
    spaces = {
        each.kind: parameter_space(
            information(recipes[each.member.name].fitted, ()), by_kind[each.kind]
        )
        for each in scanned
        if periods[each.member.name]
    }
    robots, failures = [], []
    for each in scanned:
        name = each.member.name
        if not periods[name]:
            sentence = f"{name}: none of its periods could be estimated"
            failures.append(Failure(name, sentence, NotIdentifiable.exit_code))
            continue
        labels = tuple(period.label for period in periods[name])
        robots.append(
            RobotHistory(
                name,
                each.kind,
                spaces[each.kind],
                labels,
                period_times(periods[name]),
                tuple(results[name, label] for label in labels),
            )
        )
    return tuple(robots), failures
