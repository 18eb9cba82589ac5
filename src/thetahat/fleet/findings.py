"""What happened in a fleet: payloads taken up or put down, friction that drifted or stepped, robots
unlike the others. One level for all of it.

With probability 1 − level none of the findings is by chance. Half of the level goes to changes over
a robot's life, half to robots against the fleet. Of the first, half is spent by Holm's procedure
over all robots, on every friction parameter and on the inertial parameters of each robot together
(the clearest of them, times their number); the other half on further steps in what a step leaves on
both sides of it, a quarter at the first division and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from thetahat.fleet import changes
from thetahat.fleet.changes import Change
from thetahat.fleet.outliers import Comparison, compared
from thetahat.fleet.parameter_series import FRICTION, INERTIAL, PAYLOAD, Parameter, Space, values
from thetahat.fleet.payload_changes import KINDS as INERTIAL_KINDS
from thetahat.fleet.payload_changes import Event, events
from thetahat.fleet.period_estimates import PeriodEstimate

LEVEL = 0.01


@dataclass(frozen=True, eq=False)
class Series:
    """A parameter of a robot over its periods, and the change that fits it best."""

    values: np.ndarray  # (T,), NaN where a period does not show it
    variances: np.ndarray
    change: Change | None  # None: too few periods
    found: bool = False  # whether it is no chance


@dataclass(frozen=True, eq=False)
class Lived:
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
    deviations: float
    chance: float
    unit: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Judged:
    """All that was found, and the series behind it."""

    level: float
    hypotheses: int  # changes that were looked for
    findings: tuple[Finding, ...]  # the clearest first
    series: dict[str, tuple[Series, ...]]  # by robot, in the order of its space's parameters
    comparisons: dict[str, tuple[Comparison | None, ...]] = field(default_factory=dict)  # by kind


def judged(fleet: Sequence[Lived], *, level: float = LEVEL) -> Judged:
    """Judge a fleet."""
    series = {each.name: _series(each) for each in fleet}
    names, chances = _hypotheses(fleet, series)
    refused = dict(zip(names, changes.holm(chances, level / 4.0), strict=True))
    findings: list[Finding] = []
    for each in fleet:
        mine = list(series[each.name])
        steps: list[Event] = []
        if refused.get((each.name, -1)):
            steps = events(
                each.space,
                each.periods,
                chance=_chance_of(each.space, mine),
                level=level / 4.0 / len(names),
            )
            findings += [_inertial(each, event) for event in steps] or [_unplaced(each, mine)]
            _mark(each.space, steps, mine)
        for k in each.space.of(FRICTION):
            if refused.get((each.name, k)):
                mine[k] = Series(mine[k].values, mine[k].variances, mine[k].change, found=True)
                findings.append(_friction(each, each.space.parameters[k], mine[k]))
        series[each.name] = tuple(mine)
    comparisons = _comparisons(fleet, series, level / 2.0)
    findings += _outliers(fleet, series, comparisons)
    findings.sort(key=lambda each: (each.chance, -each.deviations))
    return Judged(level, len(names), tuple(findings), series, comparisons)


# -- changes ---------------------------------------------------------------------------------------


def _series(robot: Lived) -> tuple[Series, ...]:
    out = []
    for parameter in robot.space.parameters:
        y, v = values(parameter, robot.periods)
        good = np.isfinite(y)
        kinds = ("drift", "step") if parameter.kind == FRICTION else INERTIAL_KINDS
        found = changes.change(y[good], v[good], robot.times[good], kinds=kinds)
        out.append(Series(y, v, found))
    return tuple(out)


def _hypotheses(
    fleet: Sequence[Lived], series: dict[str, tuple[Series, ...]]
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
        for k in robot.space.of(FRICTION):
            if mine[k].change is not None:
                names.append((robot.name, k))
                chances.append(mine[k].change.chance)
    return names, np.array(chances)


def _chance_of(space: Space, series: Sequence[Series]) -> float | None:
    """Of the clearest step of an inertial parameter, times their number."""
    found = [
        series[k].change.chance
        for k in (*space.of(INERTIAL), *space.of(PAYLOAD))
        if series[k].change is not None
    ]
    return min(1.0, len(found) * min(found)) if found else None


def _numbered(series: Series, at: int) -> int:
    """The period that is the at-th of those that show the parameter."""
    return int(np.flatnonzero(np.isfinite(series.values))[at])


def _friction(robot: Lived, parameter: Parameter, series: Series) -> Finding:
    found = series.change
    assert found is not None
    shown = {"offset": "offset torque"}.get(parameter.term, f"{parameter.term} friction")
    at = robot.labels[_numbered(series, found.at)]
    part = (
        f", {100.0 * found.size / found.before:+.0f} %"
        if abs(found.before) > 2.0 * found.std
        else ""
    )
    verb = "grew" if found.size > 0.0 else "fell"
    when = (
        f"from {at} on" if found.kind == "step" else f"from {robot.labels[0]} to {robot.labels[-1]}"
    )
    how = "at once, " if found.kind == "step" else "steadily, "
    sentence = (
        f"{robot.name}: the {shown} of {parameter.where} {verb} {how}{when}, by"
        f" {_with(abs(found.size), found.std)} {parameter.unit}{part}: {found.deviations:.1f}"
        " standard deviations"
    )
    return Finding(
        robot.name,
        f"friction-{found.kind}",
        parameter.name,
        parameter.term,
        parameter.where,
        at,
        found.size,
        found.std,
        found.before,
        found.deviations,
        found.chance,
        parameter.unit,
        sentence,
    )


def _mark(space: Space, steps: Sequence[Event], series: list[Series]) -> None:
    """Note the first step of the mass on a link with its series."""
    for event in reversed(steps):
        for k in space.of(PAYLOAD):
            if (
                space.parameters[k].where == space.robot.body_names[event.body]
                and event.mass is not None
            ):
                series[k] = Series(series[k].values, series[k].variances, event.mass, found=True)


def _inertial(robot: Lived, event: Event) -> Finding:
    at, link = robot.labels[event.at], robot.space.robot.body_names[event.body]
    if event.mass is not None and event.mass.deviations > 3.0:
        mass = event.mass
        what = "took up" if mass.size > 0.0 else "lost"
        centre = (
            ""
            if event.com is None
            else f", centred at ({', '.join(f'{x + 0.0:.3f}' for x in event.com)}) m of its frame"
        )
        sentence = (
            f"{robot.name}: {link} {what} {_with(abs(mass.size), mass.std)} kg from {at}"
            f" on{centre}: {mass.deviations:.1f} standard deviations"
        )
        return Finding(
            robot.name,
            "payload",
            f"payload_{link}",
            "mass",
            link,
            at,
            mass.size,
            mass.std,
            0.0,
            mass.deviations,
            event.chance,
            "kg",
            sentence,
        )
    parameter, change = event.clearest
    return _changed(robot, parameter, change, at, link, event.chance)


def _unplaced(robot: Lived, series: Sequence[Series]) -> Finding:
    """A step where no period shows all parameters, so that no link can be told."""
    k = min(
        (
            k
            for kind in (INERTIAL, PAYLOAD)
            for k in robot.space.of(kind)
            if series[k].change is not None
        ),
        key=lambda k: series[k].change.chance,
    )
    found, parameter = series[k].change, robot.space.parameters[k]
    return _changed(
        robot,
        parameter,
        found,
        robot.labels[_numbered(series[k], found.at)],
        parameter.where,
        found.chance,
    )


def _changed(
    robot: Lived, parameter: Parameter, change: Change, at: str, link: str, chance: float
) -> Finding:
    where = f"of {link} or beyond " if link else ""
    sentence = (
        f"{robot.name}: the inertia {where}changed from {at} on; {parameter.name} the most, by"
        f" {_with(change.size, change.std)} {parameter.unit}: {change.deviations:.1f} standard"
        " deviations"
    )
    return Finding(
        robot.name,
        "inertia",
        parameter.name,
        "",
        link,
        at,
        change.size,
        change.std,
        change.before,
        change.deviations,
        chance,
        parameter.unit,
        sentence,
    )


# -- against the fleet -----------------------------------------------------------------------------


def settled(series: Series) -> tuple[float, float]:
    """(mean over a robot's life, its variance), scatter from period to period in it."""
    good = np.isfinite(series.values)
    if not good.any():
        return np.nan, np.nan
    y, v = series.values[good], series.variances[good]
    w = 1.0 / (v + (series.change.scatter**2 if series.change is not None else 0.0))
    return float(np.sum(w * y) / np.sum(w)), float(1.0 / np.sum(w))


def _comparisons(
    fleet: Sequence[Lived], series: dict[str, tuple[Series, ...]], level: float
) -> dict[str, tuple[Comparison | None, ...]]:
    kinds = {robot.kind: robot.space for robot in fleet}
    count = sum(len(space.parameters) for space in kinds.values())
    out = {}
    for kind, space in kinds.items():
        mine = [robot for robot in fleet if robot.kind == kind]
        found = []
        for k, parameter in enumerate(space.parameters):
            y, v = np.array([settled(series[robot.name][k]) for robot in mine]).T
            found.append(
                compared(
                    y, v, level=level / count, positive=parameter.term in ("viscous", "coulomb")
                )
            )
        out[kind] = tuple(found)
    return out


def _outliers(
    fleet: Sequence[Lived],
    series: dict[str, tuple[Series, ...]],
    comparisons: dict[str, tuple[Comparison | None, ...]],
) -> list[Finding]:
    out = []
    for kind, found in comparisons.items():
        mine = [robot for robot in fleet if robot.kind == kind]
        for k, comparison in enumerate(found):
            if comparison is not None:
                for number, chance in zip(comparison.outliers, comparison.chances, strict=True):
                    robot = mine[number]
                    out.append(
                        _outlier(
                            robot,
                            robot.space.parameters[k],
                            settled(series[robot.name][k]),
                            comparison,
                            number,
                            chance,
                        )
                    )
    return out


def _outlier(
    robot: Lived,
    parameter: Parameter,
    own: tuple[float, float],
    comparison: Comparison,
    number: int,
    chance: float,
) -> Finding:
    value, std, off = own[0], float(np.sqrt(own[1])), abs(float(comparison.deviations[number]))
    what = (
        f"the mass that {parameter.where} carries" if parameter.kind == PAYLOAD else parameter.name
    )
    centre = comparison.centre
    if parameter.kind == PAYLOAD:  # its zero means nothing, only differences do
        said = (
            f"{what} is {_with(abs(value - centre), std)} kg {'more' if value > centre else 'less'}"
            " than that of the fleet"
        )
    else:
        said = f"{what} is {_with(value, std)} {parameter.unit}, that of the fleet {centre:.3g}"
    sentence = f"{robot.name}: {said}: {off:.1f} standard deviations from the others"
    before = None if parameter.kind == PAYLOAD else centre
    return Finding(
        robot.name,
        "outlier",
        parameter.name,
        parameter.term,
        parameter.where,
        None,
        value - centre,
        std,
        before,
        off,
        chance,
        parameter.unit,
        sentence,
    )


def _with(value: float, std: float) -> str:
    """A value as far as its standard deviation lets it be known."""
    if not (np.isfinite(std) and std > 0.0):
        return f"{value:.3g}"
    places = max(0, 1 - int(np.floor(np.log10(std)))) if std < 10.0 else 0
    return f"{value:.{places}f} ± {std:.{places}f}" if places <= 6 else f"{value:.3g} ± {std:.2g}"
