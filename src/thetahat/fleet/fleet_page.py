"""The page of a fleet: findings first, then robots against the fleet, their lives over the periods,
and what was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thetahat.fleet.analysis import FleetAnalysis
from thetahat.fleet.changes import Change
from thetahat.fleet.findings import Finding, RobotHistory, Series
from thetahat.fleet.fleet_table import origin
from thetahat.fleet.outliers import Comparison
from thetahat.fleet.parameter_series import FRICTION, PAYLOAD, Parameter
from thetahat.identification.verdict import Verdict
from thetahat.report.figures.base import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    axis,
    dots,
    figure,
    fit,
    line,
    relative,
    shown,
)
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table, Text
from thetahat.report.text import FAIR, GOOD, count, short, with_spread

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
TOP = 6.0  # standard deviations at which a colour of the matrix ends
KINDS = {
    "payload": "payload",
    "inertia": "inertia",
    "friction-drift": "friction, steadily",
    "friction-step": "friction, at once",
    "outlier": "unlike the fleet",
}
SCALE = [
    [0.0, BLUE],
    [0.35, "rgba(47,126,216,0.12)"],
    [0.5, "rgba(128,135,144,0.05)"],
    [0.65, "rgba(217,72,59,0.12)"],
    [1.0, RED],
]


def titles(data: dict[str, Any]) -> tuple[str, str]:
    """Title and subtitle of the page."""
    summary, periods = data["summary"], f"{data['summary']['periods']:,} periods"
    verdict = Verdict.from_data(data["verdict"]).sentence
    subtitle = f"{verdict} {periods}, {summary['samples']:,} samples; from {data['manifest']}"
    return f"Fleet of {count(summary['robots'], 'robot')}", subtitle


def sections(analysis: FleetAnalysis, data: dict[str, Any]) -> list[Section]:
    """Every section."""
    out = [
        _findings(analysis, data),
        *_against(analysis),
        _lives(analysis),
        _robots(analysis, data),
        _left_out(data),
        _method(analysis, data),
    ]
    return [section for section in out if section is not None]


# -- what was found --------------------------------------------------------------------------------


def _findings(analysis: FleetAnalysis, data: dict[str, Any]) -> Section:
    findings, level = analysis.findings.findings, analysis.findings.level
    odd = len({each.robot for each in findings})
    number = f"{count(len(findings), 'finding')} on {odd} of {len(analysis.robots)} robots"
    chance = f"a fleet in which nothing happened shows any with a probability of at most {level:g}"
    nothing = "Nothing changed, and no robot is unlike the others, at a level of"
    lead = Note(f"{nothing} {level:g} for the whole fleet.", "good")
    blocks: list[Block] = [Note(f"{number}; {chance}.", "warning") if findings else lead]
    if findings:
        columns = (
            *map(Column, ("robot", "what", "of", "from")),
            *(Column(title, numeric=True) for title in ("before", "by")),
            Column("unit"),
            Column("standard deviations", decimals=1),
        )
        caption = "What happened; for robots unlike the fleet, before is the fleet's centre."
        blocks.append(Table(columns, tuple(_row(each) for each in findings), caption))
    if data["left_out"]:
        what = f"{len(data['left_out'])} robots, periods or logs"
        blocks.append(Note(f"{what} were left out; they are named below.", "warning"))
    return Section("Findings", "findings", tuple(blocks))


def _row(each: Finding) -> tuple[Any, ...]:
    of = f"{each.term} {each.where}".strip() or each.parameter
    before = None if each.kind == "payload" else short(each.before)
    change = before, with_spread(each.size, each.std), each.unit, each.deviations
    return (each.robot, KINDS[each.kind], of, each.period, *change)


# -- against the fleet -----------------------------------------------------------------------------


def _against(analysis: FleetAnalysis) -> list[Section]:
    kinds = list(dict.fromkeys(robot.kind for robot in analysis.robots))
    panels, few = [], []
    for kind in kinds:
        robots = [robot for robot in analysis.robots if robot.kind == kind]
        comparisons = analysis.findings.comparisons[kind]
        source = analysis.recipes[robots[0].name].robot.name
        if any(each is not None for each in comparisons):
            panels.append(Panel(source, _matrix(robots, comparisons)))
        else:
            few.append(f"{source} ({len(robots)})")
    blocks: list[Block] = []
    if panels:
        caption = (
            "How many standard deviations every robot is off the others of its kind, spread from"
            " robot to robot included; friction by its logarithm. Colours end at six."
        )
        blocks.append(Figure(tuple(panels), caption, "choose", "robot"))
    if few:
        blocks.append(Text(f"Too few of a kind to compare: {', '.join(few)}; five are needed."))
    return [Section("Against the fleet", "against", tuple(blocks))] if blocks else []


def _matrix(
    robots: Sequence[RobotHistory], comparisons: Sequence[Comparison | None]
) -> dict[str, Any]:
    """Robots down, parameters across."""
    pairs = zip(robots[0].space.parameters, comparisons, strict=True)
    compared = [(parameter, each) for parameter, each in pairs if each is not None]
    compared.sort(key=lambda pair: {FRICTION: 0, PAYLOAD: 1}.get(pair[0].kind, 2))
    parameters = [parameter for parameter, _ in compared]
    z = np.array([each.deviations for _, each in compared]).T
    text = [
        [
            f"{shown(robot.name)}<br>{shown(parameter.name)}<br>{value:+.1f} standard deviations"
            for parameter, value in zip(parameters, row, strict=True)
        ]
        for robot, row in zip(robots, z, strict=True)
    ]
    heat = {
        "type": "heatmap",
        "z": [relative(row, 3) for row in z],
        "x": list(range(len(parameters))),
        "y": list(range(len(robots))),
        "text": text,
        "hovertemplate": "%{text}<extra></extra>",
        "zmin": -TOP,
        "zmax": TOP,
        "colorscale": SCALE,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"title": {"text": "std"}, "thickness": 12},
    }
    x = axis(
        tickmode="array",
        tickvals=list(range(len(parameters))),
        ticktext=[shown(fit(each.name, 20)) for each in parameters],
        tickangle=-60,
    )
    y = axis(
        tickmode="array",
        tickvals=list(range(len(robots))),
        ticktext=[shown(fit(each.name)) for each in robots],
        autorange="reversed",
    )
    return figure(
        [heat],
        x=x | {"showgrid": False},
        y=y | {"showgrid": False},
        height=190 + 22 * max(len(robots), 4),
        showlegend=False,
    )


# -- lives -----------------------------------------------------------------------------------------


def _lives(analysis: FleetAnalysis) -> Section:
    """A choice of robots, those with findings first; for each, its friction and what it carries
    over the periods.
    """
    order = {each.robot: -k for k, each in enumerate(reversed(analysis.findings.findings))}
    robots = sorted(analysis.robots, key=lambda robot: order.get(robot.name, 1))
    blocks: list[Block] = []
    terms = list(
        dict.fromkeys(
            p.term
            for kind in (PAYLOAD, FRICTION)
            for robot in robots
            for p in robot.space.parameters
            if p.kind == kind
        )
    )
    mass = "Mass that links carry more than in the robot's first periods"
    titles = {"mass": mass, "offset": "Offset torque"}
    for term in terms:
        panels = []
        for robot in robots:
            drawn = _over_life(analysis, robot, term)
            what = f" — {_short(analysis, robot)}" if robot.name in order else ""
            if drawn is not None:
                panels.append(Panel(robot.name, drawn, robot.name + what))
        if panels:
            title = titles.get(term, f"{term.capitalize()} friction")
            caption = (
                f"{title}, ± 2 standard deviations of each period; lines are changes that were"
                " found."
            )
            blocks.append(Figure(tuple(panels), caption, "choose", "robot"))
    return Section(
        "Lives", "lives", tuple(blocks) or (Text("No friction or payload was looked at."),)
    )


def _short(analysis: FleetAnalysis, robot: RobotHistory) -> str:
    mine = [each for each in analysis.findings.findings if each.robot == robot.name]
    return ", ".join(dict.fromkeys(KINDS[each.kind] for each in mine))


def _over_life(analysis: FleetAnalysis, robot: RobotHistory, term: str) -> dict[str, Any] | None:
    data, x, unit = [], np.arange(len(robot.labels)), ""
    mine = [
        k
        for k, each in enumerate(robot.space.parameters)
        if each.term == term and each.kind in (FRICTION, PAYLOAD)
    ]
    # one mass explains what changed; the others would say the same change once more
    if term == "mass":
        marked = [k for k in mine if analysis.findings.series[robot.name][k].significant]
        mine = marked or mine[-1:]
    for number, k in enumerate(mine):
        parameter, series = robot.space.parameters[k], analysis.findings.series[robot.name][k]
        y, spread = series.values - origin(parameter, series), 2.0 * np.sqrt(series.variances)
        colour, unit = COLOURS[number % len(COLOURS)], parameter.unit
        error = {"type": "data", "array": relative(spread), "thickness": 1, "width": 2}
        text = [
            f"{shown(label)}<br>{short(value)} ± {short(s / 2.0)}"
            for label, value, s in zip(robot.labels, y, spread, strict=True)
        ]
        marks = dots(
            x.tolist(),
            relative(y),
            shown(parameter.where),
            colour,
            size=5,
            symbol=SYMBOLS[number % len(SYMBOLS)],
            error_y={**error, "color": colour},
        )
        data.append(marks | {"text": text, "hovertemplate": "%{text}"})
        if series.significant and series.change is not None:
            data.append(_changed(robot, series, series.change, parameter, colour))
    if not data:
        return None
    periods = len(robot.labels)
    ticks = np.unique(np.linspace(0, periods - 1, min(periods, 10)).round().astype(int))
    below = axis(
        "period",
        tickmode="array",
        tickvals=ticks.tolist(),
        ticktext=[shown(fit(robot.labels[k], 14)) for k in ticks],
    )
    return figure(data, x=below, y=axis(unit), height=320)


def _changed(
    robot: RobotHistory, series: Series, change: Change, parameter: Parameter, colour: str
) -> dict[str, Any]:
    """The change that was found, as a line."""
    low = change.before - origin(parameter, series)
    seen = np.flatnonzero(np.isfinite(series.values))
    if change.kind == "step":
        at, high = float(seen[change.at]) - 0.5, low + change.size
        x, y = [0.0, at, at, float(len(robot.labels) - 1)], [low, low, high, high]
    else:
        times = robot.times[seen] - robot.times[seen[0]]
        span = times / times[-1]
        x, y = seen.astype(float).tolist(), (low + change.size * span).tolist()
    return line(x, relative(y), f"{shown(parameter.where)}: found", colour, width=2, dash="dash")


# -- the rest --------------------------------------------------------------------------------------


def _robots(analysis: FleetAnalysis, data: dict[str, Any]) -> Section:
    scores = ("median R²", "least R²")
    columns = (
        *map(Column, ("robot", "robot file", "periods", "samples")),
        *(Column(title, decimals=4, limits=(FAIR, GOOD)) for title in scores),
        Column("low-pass", "Hz"),
        Column("findings"),
    )
    rows = []
    for robot in data["robots"]:
        r2 = [period["r2"] for period in robot["periods"] if period["r2"] is not None]
        file = (robot["robot_file"] or "–").replace("\\", "/").rsplit("/", 1)[-1]
        median, least = (float(np.median(r2)), float(min(r2))) if r2 else (None, None)
        findings = sum(each.robot == robot["id"] for each in analysis.findings.findings)
        samples = sum(period["rows"] for period in robot["periods"])
        counts, cutoff = (len(robot["periods"]), samples), robot["settings"]["cutoff"]
        rows.append((robot["id"], file, *counts, median, least, cutoff, findings))
    note = "R² of each period's fit, over the rows that were fitted."
    return Section("Robots", "robots", (Table(columns, tuple(rows), note=note),))


def _left_out(data: dict[str, Any]) -> Section:
    rows = tuple((each["name"], each["sentence"], each["exit_code"]) for each in data["left_out"])
    columns = (Column("what"), Column("why", wide=True), Column("exit code"))
    nothing = Note("Nothing: every log of the manifest was used.", "good")
    return Section("Left out", "left-out", (Table(columns, rows) if rows else nothing,))


def _method(analysis: FleetAnalysis, data: dict[str, Any]) -> Section:
    blocks: list[Block] = [
        Text(
            "Every period is estimated by least squares from its own logs, with standard"
            " deviations that know how correlated the noise is."
            f" {analysis.findings.hypotheses} changes were looked for: a drift or a step of every"
            " friction parameter, and a step of the"
            " inertial ones of each robot. Scatter from period to period that the estimates' own"
            " uncertainty does not explain counts as chance; it is taken to be independent from"
            f" one period to the next. With a probability of {1.0 - analysis.findings.level:g} no"
            " finding on this page is wrong."
        ),
        Text(
            "Robots are compared over their whole lives with the others of the same robot file,"
            " what spreads from robot to robot counted as chance."
        ),
    ]
    reasons = [sentence for each in data["provenance"]["tuned"] for sentence in each]
    if reasons:
        rows = tuple((sentence,) for sentence in reasons)
        columns = (Column("chosen once, from the first periods", wide=True),)
        blocks.append(Table(columns, rows, "Choices", folded=True))
    blocks += [Note(sentence, "warning") for sentence in data.get("warnings", ())]
    return Section("How it was judged", "method", tuple(blocks))
