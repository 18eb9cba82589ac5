"""A manifest in, a judged fleet out: logs surveyed, settings chosen once, every period estimated by
whoever is free, and the whole judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thetahat.data.prepare import Settings
from thetahat.engine import array_codec
from thetahat.engine.file_scan import Reading
from thetahat.engine.fingerprint import fingerprint, robot_fingerprint
from thetahat.engine.multi_log import Catalogue, Failure
from thetahat.engine.reduce import Gatherer
from thetahat.engine.settings_cache import Choices, chosen, sparse
from thetahat.engine.tuning_cache import dumped, loaded
from thetahat.engine.workers import Job
from thetahat.errors import MalformedInput, NotIdentifiable, ThetahatError
from thetahat.fleet import period_estimates
from thetahat.fleet.findings import LEVEL, Judged, Lived, judged
from thetahat.fleet.manifest import Manifest, Member
from thetahat.fleet.parameter_series import space
from thetahat.fleet.period_estimates import PeriodEstimate, Recipe, Task
from thetahat.fleet.periods import Life, life, times
from thetahat.identification import factor as f
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.tuning.cross_validation import METRIC
from thetahat.identification.tuning.tune import USUAL, Tuned, TuningOptions, tune
from thetahat.model.io.load import load
from thetahat.model.lock_joints import kept_positions, lock
from thetahat.model.robot import Robot

FIRST = 4  # periods that settings are chosen from


@dataclass(frozen=True)
class Asked:
    """What the caller asks for."""

    by: str = "log"
    level: float = LEVEL
    friction: tuple[str, ...] = ("viscous", "coulomb", "offset")
    armature: bool = False
    cutoff: float | None = None
    min_speed: float | None = None
    tune: bool = True
    columns: str | None = None
    topic: str | None = None
    salvage: bool = False


@dataclass(frozen=True, eq=False)
class Inquiry:
    """All that came out."""

    manifest: Manifest
    asked: Asked
    lives: tuple[Lived, ...]
    recipes: dict[str, Recipe]  # by robot
    judged: Judged
    failures: tuple[Failure, ...]  # logs, periods and robots that were left out
    computed: int  # periods; the others were in the store
    reasons: dict[str, tuple[str, ...]]  # by kind of robot: what was chosen and why
    tasks: dict[tuple[str, str], Task]  # by robot and period
    keys: dict[tuple[str, str], str]  # of the estimates in the store, likewise; none without one


@dataclass(frozen=True, eq=False)
class _Surveyed:
    """A robot whose logs have been looked through."""

    member: Member
    life: Life
    files: Catalogue
    kind: str


def inquire(manifest: Manifest, asked: Asked, gatherer: Gatherer) -> Inquiry:
    """Estimate every robot and period, and judge the fleet. What cannot be used is named in
    `failures`; the rest of the work is kept.
    """
    failures: list[Failure] = []
    found = _surveyed(manifest, asked, gatherer, failures)
    tuned: dict[str, Tuned] = {}
    recipes: dict[str, Recipe] = {}
    for each in found:
        try:
            if each.kind not in tuned:
                tuned[each.kind] = _tuned(each, asked, gatherer)
            recipes[each.member.name] = _recipe(each, tuned[each.kind], asked)
        except ThetahatError as error:
            failures.append(_of(each.member.name, error))
    usable = [each for each in found if each.member.name in recipes]
    tasks = {
        (task.robot, task.label): task
        for number, each in enumerate(usable)
        for task in _tasks(number, each)
    }
    results, keys, computed = _estimated(usable, list(tasks.values()), recipes, gatherer, failures)
    gatherer.tell("judging", 0, 0)
    with f.blas_threads().limit(
        limits=1, user_api="blas"
    ):  # thousands of small matrices: threads woken for each would only spin
        lives = _lives(usable, recipes, results, failures)
        if not lives:
            raise _refused(manifest, failures)
        verdict = judged(lives, level=asked.level)
    reasons = {kind: each.reasons for kind, each in tuned.items()}
    return Inquiry(
        manifest, asked, lives, recipes, verdict, tuple(failures), computed, reasons, tasks, keys
    )


def _refused(manifest: Manifest, failures: Sequence[Failure]) -> ThetahatError:
    """Nothing could be estimated: the first reason, and how many more there are."""
    first = (
        failures[0] if failures else Failure("", "no log could be used", NotIdentifiable.exit_code)
    )
    kinds = {each.exit_code: each for each in ThetahatError.__subclasses__()}
    more = f" ({len(failures) - 1} more failed)" if len(failures) > 1 else ""
    return kinds.get(first.exit_code, MalformedInput)(
        f"{manifest.path.name}: no robot could be estimated: {first.sentence}{more}"
    )


def _of(robot: str, error: ThetahatError) -> Failure:
    return Failure(robot, f"{robot}: {error}", error.exit_code)


# -- logs ------------------------------------------------------------------------------------------


def _surveyed(
    manifest: Manifest, asked: Asked, gatherer: Gatherer, failures: list[Failure]
) -> list[_Surveyed]:
    """Every robot with logs that can be read."""
    reading = Reading(asked.columns, asked.topic, asked.salvage)
    robots: dict[Path, Robot] = {}
    owners: dict[str, str] = {}
    out = []
    for member in manifest.members:
        try:
            mine = life(member, asked.by)
            failures += mine.failures
            for item in mine.items:
                if owners.setdefault(item.place, member.name) != member.name:
                    raise MalformedInput(
                        f"the log {item.name} is also one of {owners[item.place]}; a log is of one"
                        " robot"
                    )
            if not mine.periods:
                raise MalformedInput("none of its logs is there")
            robot = (
                robots.setdefault(member.robot, load(member.robot))
                if member.robot not in robots
                else robots[member.robot]
            )
            files = gatherer.survey(
                [item.given for item in mine.items], robot, reading, owner=member.name
            )
            failures += [
                replace(each, sentence=f"{member.name}: {each.sentence}") for each in files.failures
            ]
            if not files.log.has_tau:
                raise MalformedInput(
                    "its logs have no torque columns; name them tau.<joint>, or map yours with"
                    ' --columns "tau=…"'
                )
            kind = fingerprint(str(member.robot.resolve()), sorted(files.log.locked))
            out.append(_Surveyed(member, mine, files, kind))
        except ThetahatError as error:
            failures.append(_of(member.name, error))
    return out


def _first(each: _Surveyed) -> tuple[int, int]:
    """The rows of a robot's first periods."""
    places = {item.place for period in each.life.periods[:FIRST] for item in period.items}
    return 0, max(
        (entry.stop_row for entry in each.files.entries if entry.item.place in places),
        default=each.files.log.rows,
    )


# -- what is chosen --------------------------------------------------------------------------------


def _columns(each: _Surveyed, asked: Asked) -> Robot:
    """The robot whose columns are fitted, before further friction is looked for."""
    terms = {term: term in asked.friction for term in ("viscous", "coulomb", "offset")}
    return (
        lock(each.files.robot, each.files.log.locked)
        .without_drive()
        .with_drive(**terms, armature=asked.armature)
    )


def _prior(each: _Surveyed, fitted: Robot) -> np.ndarray:
    """What the robot file says of every column, made physical."""
    nominal = lock(each.files.robot, each.files.log.locked)
    nominal = nominal if all(nominal.consistency) else nominal.projected()
    columns, drive = Columns(fitted), nominal.drive
    stated = [
        drive.value(term) if term in drive.terms else np.zeros(len(columns.motor_names))
        for term in fitted.drive.identified
    ]
    return np.concatenate([nominal.theta, *stated]) if stated else nominal.theta


def _tuned(each: _Surveyed, asked: Asked, gatherer: Gatherer) -> Tuned:
    """Low-pass, friction law and prior, chosen from the first periods of the first robot of a kind,
    for all of that kind.
    """
    fitted, span = _columns(each, asked), _first(each)
    if not asked.tune:
        settings = chosen(each.files, Choices(cutoff=asked.cutoff, min_speed=asked.min_speed), span)
        return Tuned(settings, fitted, USUAL, METRIC)
    digests = [entry.survey.digest for entry in each.files.entries if entry.first_row < span[1]]
    given = (asked.cutoff, asked.min_speed, each.files.reading.plain, tuple(each.files.log.locked))
    key = fingerprint(
        "fleet-tuned",
        period_estimates.FORMAT,
        robot_fingerprint(each.files.robot, values=True),
        robot_fingerprint(fitted),
        given,
        digests,
    )
    store = gatherer.store
    kept = None if store is None else store.get(key, lambda data: _opened(data, key))
    if kept is not None:
        return loaded(kept, fitted)
    gatherer.tell("choosing friction and low-pass", 0, 0)
    positions, velocities = kept_positions(each.files.robot, each.files.log.locked)

    def narrowed(samples: Any) -> Any:
        if not each.files.log.locked:
            return samples
        arrays = {name: getattr(samples, name) for name in ("q", "dq", "ddq", "tau", "reason")}
        return replace(
            samples,
            **{
                k: a[:, positions if k == "q" else velocities]
                for k, a in arrays.items()
                if a is not None
            },
        )

    found = tune(
        sparse(each.files, span),
        each.files.robot,
        TuningOptions(cutoff=asked.cutoff, min_speed=asked.min_speed),
        fitted=fitted,
        narrow=narrowed,
        span=span,
        prior=_prior(each, fitted),
    )
    data = dumped(found)
    if store is not None and data is not None:
        gatherer.kept(lambda: store.put(key, array_codec.packed({"key": key, "tuned": data}, {})))
    return found


def _opened(data: bytes, key: str) -> dict[str, Any]:
    values, _ = array_codec.unpacked(data)
    if values.get("key") != key:
        raise array_codec.Damaged("it is the entry of another key")
    return values["tuned"]


def _recipe(each: _Surveyed, tuned: Tuned, asked: Asked) -> Recipe:
    """What was chosen for its kind, with thresholds for noise and standstill from its own first
    periods.
    """
    own = chosen(
        each.files, Choices(cutoff=tuned.settings.cutoff, min_speed=asked.min_speed), _first(each)
    )
    settings: Settings = replace(
        own, torque_cutoff=tuned.settings.torque_cutoff, delay=tuned.settings.delay, reasoning=""
    )
    prior = _prior(each, tuned.robot)
    return Recipe(
        each.files.robot,
        each.files.reading,
        settings,
        tuple(each.files.log.locked),
        tuned.robot,
        prior,
        tuned.weight,
        tuned.metric,
    )


# -- periods ---------------------------------------------------------------------------------------


def _estimated(
    found: Sequence[_Surveyed],
    tasks: Sequence[Task],
    recipes: dict[str, Recipe],
    gatherer: Gatherer,
    failures: list[Failure],
) -> tuple[dict[tuple[str, str], PeriodEstimate], dict[tuple[str, str], str], int]:
    """Every period's estimate by (robot, label), from the store or by a worker; the keys of those
    in a store; and how many were computed.
    """
    context = [recipes[each.member.name] for each in found]
    results: dict[tuple[str, str], PeriodEstimate] = {}
    keys: dict[tuple[str, str], str] = {}
    total, done = sum(task.rows for task in tasks), 0
    missing: list[Task] = []
    for task in tasks:
        known = None
        if gatherer.store is not None:
            try:
                keys[task.robot, task.label] = key = period_estimates.store_key(
                    context[task.recipe], task
                )
                known = gatherer.store.get(
                    key, lambda data, key=key: period_estimates.from_bytes(data, key)
                )
            except ThetahatError:  # it is said when the task runs
                keys.pop((task.robot, task.label), None)
        if known is None:
            missing.append(task)
        else:
            results[task.robot, task.label] = known
            done += task.rows
    gatherer.tell("estimating", done, total)

    def take(task: Task, result: PeriodEstimate | Failure) -> None:
        nonlocal done
        done += task.rows
        gatherer.tell("estimating", done, total)
        if isinstance(result, Failure):
            failures.append(replace(result, sentence=_named(task, result.sentence)))
            return
        results[task.robot, task.label] = result
        failures.extend(
            replace(each, sentence=_named(task, each.sentence)) for each in result.left_out
        )
        if (task.robot, task.label) in keys and not result.left_out:
            key = keys[task.robot, task.label]
            gatherer.kept(lambda: gatherer.store.put(key, period_estimates.to_bytes(result, key)))

    small = [task for task in missing if task.rows <= period_estimates.LARGE]
    for number, result in gatherer.workers.each(
        Job(context, period_estimates.run, lambda task: task.name), small
    ):
        take(small[number], result)
    for task in missing:
        if task.rows > period_estimates.LARGE:
            try:
                take(task, period_estimates.estimated(gatherer, context[task.recipe], task))
            except ThetahatError as error:
                take(task, Failure.of(task.name, error))
    return results, keys, len(missing)


def _named(task: Task, sentence: str) -> str:
    return sentence if sentence.startswith(task.robot) else f"{task.name}: {sentence}"


def _tasks(number: int, each: _Surveyed) -> list[Task]:
    """The periods that have a log which can be read."""
    surveys = {entry.item.place: (entry.item, entry.survey) for entry in each.files.entries}
    out = []
    for period in each.life.periods:
        files = tuple(surveys[item.place] for item in period.items if item.place in surveys)
        if files:
            out.append(Task(number, period.label, each.member.name, files))
    return out


def _lives(
    found: Sequence[_Surveyed],
    recipes: dict[str, Recipe],
    results: dict[tuple[str, str], PeriodEstimate],
    failures: list[Failure],
) -> tuple[Lived, ...]:
    """Robots with at least one estimate, each in the space of its kind."""
    by_kind: dict[str, list[PeriodEstimate]] = {}
    for each in found:
        mine = [
            results[each.member.name, period.label]
            for period in each.life.periods
            if (each.member.name, period.label) in results
        ]
        by_kind.setdefault(each.kind, []).extend(mine)
    spaces = {}
    out = []
    for each in found:
        name = each.member.name
        kept = [k for k, period in enumerate(each.life.periods) if (name, period.label) in results]
        if not kept:
            failures.append(
                Failure(
                    name,
                    f"{name}: none of its periods could be estimated",
                    NotIdentifiable.exit_code,
                )
            )
            continue
        if each.kind not in spaces:
            spaces[each.kind] = space(information(recipes[name].fitted, ()), by_kind[each.kind])
        periods = [each.life.periods[k] for k in kept]
        labels = tuple(period.label for period in periods)
        out.append(
            Lived(
                name,
                each.kind,
                spaces[each.kind],
                labels,
                times(periods),
                tuple(results[name, label] for label in labels),
            )
        )
    return tuple(out)
