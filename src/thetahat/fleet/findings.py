"""What happened in a fleet: payloads taken up or put down, friction that drifted or stepped, robots
unlike the others. One level for all of it.

With probability 1 − level none of the findings is by chance. Half of the level goes to changes over
a robot's life, half to robots against the fleet. Of the first, half is spent by Holm's procedure
over all robots, on every friction parameter and on the inertial parameters of each robot together
(the clearest of them, times their number); the other half on further steps in what a step leaves on
both sides of it, a quarter at the first division and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from thetahat.fleet import changes
from thetahat.fleet.changes import Change
from thetahat.fleet.outliers import Comparison, compare_robots
from thetahat.fleet.parameter_series import FRICTION, INERTIAL, PAYLOAD, Parameter, Space, series_of
from thetahat.fleet.payload_changes import KINDS as INERTIAL_KINDS
from thetahat.fleet.payload_changes import Event, find_events
from thetahat.fleet.period_estimates import PeriodEstimate

LEVEL = 0.01


@dataclass(frozen=True, eq=False)
class Series:
    """A parameter of a robot over its periods, and the change that fits it best."""

    values: np.ndarray  # (T,), NaN where a period does not show it
    variances: np.ndarray
    change: Change | None  # None: too few periods
    significant: bool = False  # whether it is no chance

    @property
    def scatter(self) -> float:
        """τ², from period to period."""
        return self.change.scatter**2 if self.change is not None else 0.0


@dataclass(frozen=True, eq=False)
class RobotHistory:
    """A robot of the fleet with all its periods."""

    name: str
    kind: str  # what it is compared with: robots of the same file and columns
    space: Space
    labels: tuple[str, ...]
    times: np.ndarray
    periods: tuple[PeriodEstimate, ...]


@dataclass(frozen=True)
class Finding:
    """One thing that happened, or one robot that is unlike the others."""

    robot: str
    kind: str  # payload, inertia, friction-drift, friction-step or outlier
    parameter: str
    term: str  # viscous, coulomb, offset, mass; empty for base parameters
    where: str  # joint or link
    period: str | None  # from which on
    size: float
    std: float
    before: float | None  # the value before; the fleet's centre for an outlier
    unit: str
    deviations: float
    chance: float
    sentence: str


@dataclass(frozen=True, eq=False)
class FleetFindings:
    """All findings, and the series behind them."""

    level: float
    hypotheses: int  # changes that were looked for
    findings: tuple[Finding, ...]  # the clearest first
    series: dict[str, tuple[Series, ...]]  # by robot, in the order of its space's parameters
    comparisons: dict[str, tuple[Comparison | None, ...]] = field(default_factory=dict)  # by kind

    def verdict(self, robot: str, period: str, r2: float | None) -> str:
        """Return a sentence on a period: how well it was fitted, and what begins there."""
        fit = "no torque to explain" if r2 is None else f"R² {r2:.4f} on the rows that were fitted"
        own = [e.sentence for e in self.findings if (e.robot, e.period) == (robot, period)]
        return f"{'Changed' if own else 'Fitted'}: {'; '.join([fit, *own])}"


def judge_fleet(fleet: Sequence[RobotHistory], *, level: float = LEVEL) -> FleetFindings:
    """Look for changes of every robot, and for robots unlike the others."""
    series = {each.name: _series(each) for each in fleet}
    names, chances = _hypotheses(fleet, series)
    refused = dict(zip(names, changes.holm(chances, level / 4.0), strict=True))
    findings: list[Finding] = []
    for each in fleet:
        mine = list(series[each.name])
        steps: list[Event] = []
        if refused.get((each.name, -1)):
            steps = find_events(
                each.space,
                each.periods,
                chance=_chance_of(each.space, mine),
                level=level / 4.0 / len(names),
            )
            findings += [_inertial(each, event) for event in steps] or [_unplaced(each, mine)]
            _mark(each.space, steps, mine)
        for k, change in _changes(mine, each.space.of(FRICTION)):
            if refused.get((each.name, k)):
                mine[k] = replace(mine[k], significant=True)
                findings.append(_friction(each, k, mine[k], change))
        series[each.name] = tuple(mine)
    comparisons = _comparisons(fleet, series, level / 2.0)
    findings += _outliers(fleet, series, comparisons)
    findings.sort(key=lambda each: (each.chance, -each.deviations))
    return FleetFindings(level, len(names), tuple(findings), series, comparisons)


# -- changes ---------------------------------------------------------------------------------------


def _series(robot: RobotHistory) -> tuple[Series, ...]:
    out = []
    for parameter in robot.space.parameters:
        y, v = series_of(parameter, robot.periods)
        good = np.isfinite(y)
        kinds = ("drift", "step") if parameter.kind == FRICTION else INERTIAL_KINDS
        change = changes.best_change(y[good], v[good], robot.times[good], kinds=kinds)
        out.append(Series(y, v, change))
    return tuple(out)


def _hypotheses(
    fleet: Sequence[RobotHistory], series: dict[str, tuple[Series, ...]]
) -> tuple[list[tuple[str, int]], np.ndarray]:
    """(robot, parameter), −1 for its inertial ones together, and the probability of each by
    chance.
    """
    names, chances = [], []
    for robot in fleet:
        mine = series[robot.name]
        together = _chance_of(robot.space, mine)
        if together is not None:
            names.append((robot.name, -1))
            chances.append(together)
        for k, change in _changes(mine, robot.space.of(FRICTION)):
            names.append((robot.name, k))
            chances.append(change.chance)
    return names, np.array(chances)


def _changes(series: Sequence[Series], numbers: Iterable[int]) -> list[tuple[int, Change]]:
    """(number, change) of the series that are long enough to have one."""
    each = ((k, series[k].change) for k in numbers)
    return [(k, change) for k, change in each if change is not None]


def _chance_of(space: Space, series: Sequence[Series]) -> float | None:
    """Of the clearest step of an inertial parameter, times their number."""
    some = _changes(series, (*space.of(INERTIAL), *space.of(PAYLOAD)))
    chances = [change.chance for _, change in some]
    return min(1.0, len(chances) * min(chances)) if chances else None


def _finding(
    robot: RobotHistory, kind: str, parameter: Parameter, change: Change | None, /, **given: Any
) -> Finding:
    """Return a finding; `given` are fields that parameter and change do not state."""
    stated: dict[str, Any] = {
        "parameter": parameter.name,
        **{name: getattr(parameter, name) for name in ("term", "where", "unit")},
    }
    if change is not None:
        names = ("size", "std", "before", "deviations", "chance")
        stated |= {name: getattr(change, name) for name in names}
    return Finding(robot=robot.name, kind=kind, **stated | given)


def _numbered(series: Series, at: int) -> int:
    """The period that is the at-th of those that show the parameter."""
    return int(np.flatnonzero(np.isfinite(series.values))[at])


def _friction(robot: RobotHistory, k: int, series: Series, change: Change) -> Finding:
    parameter = robot.space.parameters[k]
    name = {"offset": "offset torque"}.get(parameter.term, f"{parameter.term} friction")
    at = robot.labels[_numbered(series, change.at)]
    known = abs(change.before) > 2.0 * change.std
    part = f", {100.0 * change.size / change.before:+.0f} %" if known else ""
    verb = "grew" if change.size > 0.0 else "fell"
    how = (
        f"at once, from {at} on"
        if change.kind == "step"
        else f"steadily, from {robot.labels[0]} to {robot.labels[-1]}"
    )
    sentence = (
        f"{robot.name}: the {name} of {parameter.where} {verb} {how}, by"
        f" {_with_std(abs(change.size), change.std)} {parameter.unit}{part}:"
        f" {change.deviations:.1f} standard deviations"
    )
    kind = f"friction-{change.kind}"
    return _finding(robot, kind, parameter, change, period=at, sentence=sentence)


def _mark(space: Space, steps: Sequence[Event], series: list[Series]) -> None:
    """Note the first step of the mass on a link with its series."""
    for event in reversed(steps):
        link = space.robot.body_names[event.body]
        for k in space.of(PAYLOAD):
            if space.parameters[k].where == link and event.mass is not None:
                series[k] = replace(series[k], change=event.mass, significant=True)


def _inertial(robot: RobotHistory, event: Event) -> Finding:
    at, link = robot.labels[event.at], robot.space.robot.body_names[event.body]
    parameter, change = event.clearest
    mass = event.mass
    if mass is None or mass.deviations <= 3.0:
        return _inertia_changed(robot, parameter, change, at, link, event.chance)
    what = "took up" if mass.size > 0.0 else "lost"
    centre = ""
    if event.com is not None:
        place = ", ".join(f"{x + 0.0:.3f}" for x in event.com)
        centre = f", centred at ({place}) m of its frame"
    sentence = (
        f"{robot.name}: {link} {what} {_with_std(abs(mass.size), mass.std)} kg from {at}"
        f" on{centre}: {mass.deviations:.1f} standard deviations"
    )
    return _finding(
        robot,
        "payload",
        parameter,
        mass,
        parameter=f"payload_{link}",
        term="mass",
        where=link,
        period=at,
        before=0.0,
        unit="kg",
        chance=event.chance,
        sentence=sentence,
    )


def _unplaced(robot: RobotHistory, series: Sequence[Series]) -> Finding:
    """A step where no period shows all parameters, so that no link can be told."""
    some = _changes(series, (*robot.space.of(INERTIAL), *robot.space.of(PAYLOAD)))
    k, change = min(some, key=lambda each: each[1].chance)
    parameter, at = robot.space.parameters[k], robot.labels[_numbered(series[k], change.at)]
    return _inertia_changed(robot, parameter, change, at, parameter.where, change.chance)


def _inertia_changed(
    robot: RobotHistory, parameter: Parameter, change: Change, at: str, link: str, chance: float
) -> Finding:
    where = f"of {link} or beyond " if link else ""
    sentence = (
        f"{robot.name}: the inertia {where}changed from {at} on; {parameter.name} the most, by"
        f" {_with_std(change.size, change.std)} {parameter.unit}: {change.deviations:.1f} standard"
        " deviations"
    )
    return _finding(
        robot,
        "inertia",
        parameter,
        change,
        term="",
        where=link,
        period=at,
        chance=chance,
        sentence=sentence,
    )


# -- against the fleet -----------------------------------------------------------------------------


def lifetime_mean(series: Series) -> tuple[float, float]:
    """Return the mean over all periods and its variance, scatter from period to period in it."""
    good = np.isfinite(series.values)
    if not good.any():
        return np.nan, np.nan
    y, v = series.values[good], series.variances[good]
    w = 1.0 / (v + series.scatter)
    return float(np.sum(w * y) / np.sum(w)), float(1.0 / np.sum(w))


def _comparisons(
    fleet: Sequence[RobotHistory], series: dict[str, tuple[Series, ...]], level: float
) -> dict[str, tuple[Comparison | None, ...]]:
    kinds = {robot.kind: robot.space for robot in fleet}
    count = sum(len(space.parameters) for space in kinds.values())
    out = {}
    for kind, space in kinds.items():
        mine = [robot for robot in fleet if robot.kind == kind]
        comparisons = []
        for k, parameter in enumerate(space.parameters):
            y, v = np.array([lifetime_mean(series[robot.name][k]) for robot in mine]).T
            positive = parameter.term in ("viscous", "coulomb")
            comparisons.append(compare_robots(y, v, level=level / count, positive=positive))
        out[kind] = tuple(comparisons)
    return out


def _outliers(
    fleet: Sequence[RobotHistory],
    series: dict[str, tuple[Series, ...]],
    comparisons: dict[str, tuple[Comparison | None, ...]],
) -> list[Finding]:
    out = []
    for kind, parameters in comparisons.items():
        mine = [robot for robot in fleet if robot.kind == kind]
        for k, comparison in enumerate(parameters):
            if comparison is None:
                continue
            for rank, number in enumerate(comparison.outliers):
                own = series[mine[number].name][k]
                out.append(_outlier(mine[number], k, own, comparison, rank))
    return out


def _outlier(
    robot: RobotHistory, k: int, series: Series, comparison: Comparison, rank: int
) -> Finding:
    parameter, centre = robot.space.parameters[k], comparison.centre
    value, variance = lifetime_mean(series)
    std = float(np.sqrt(variance))
    deviations = abs(float(comparison.deviations[comparison.outliers[rank]]))
    payload = parameter.kind == PAYLOAD
    if payload:  # its zero means nothing, only differences do
        what = (
            f"the mass that {parameter.where} carries is {_with_std(abs(value - centre), std)} kg"
            f" {'more' if value > centre else 'less'} than that of the fleet"
        )
    else:
        what = (
            f"{parameter.name} is {_with_std(value, std)} {parameter.unit}, that of the fleet"
            f" {centre:.3g}"
        )
    return _finding(
        robot,
        "outlier",
        parameter,
        None,
        period=None,
        size=value - centre,
        std=std,
        before=None if payload else centre,
        deviations=deviations,
        chance=comparison.chances[rank],
        sentence=f"{robot.name}: {what}: {deviations:.1f} standard deviations from the others",
    )


def _with_std(value: float, std: float) -> str:
    """A value as far as its standard deviation lets it be known."""
    if not (np.isfinite(std) and std > 0.0):
        return f"{value:.3g}"
    places = max(0, 1 - int(np.floor(np.log10(std)))) if std < 10.0 else 0
    return f"{value:.{places}f} ± {std:.{places}f}" if places <= 6 else f"{value:.3g} ± {std:.2g}"
