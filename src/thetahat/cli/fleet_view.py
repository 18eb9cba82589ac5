"""Terminal output of `fleet`: verdict and findings first, then a row per robot."""

from __future__ import annotations

from pathlib import Path

from thetahat.cli.terminal import show, written
from thetahat.identification.verdict import Verdict
from thetahat.report.figures.base import fit
from thetahat.report.section import Cell, Column, Note, Table, Text
from thetahat.report.text import FAIR, GOOD, Data, count

SHOWN = 30  # findings, and robots
LONGEST = 36  # name of a parameter
COLUMNS = (
    Column("robot"),
    Column("periods"),
    Column("samples"),
    Column("lowest R²", decimals=4, limits=(FAIR, GOOD)),
    Column("verdict"),
    Column("findings"),
    Column("farthest from the fleet"),
    Column("σ"),
)


def draw(result: Data, files: list[Path], seconds: float) -> None:
    """Print the result to stdout. result: plain data, schema thetahat/fleet/1."""
    robots, findings = result["robots"], result["findings"]
    lines = [Text(f"  {each['sentence']}") for each in findings[:SHOWN]]
    if len(findings) > SHOWN:
        lines.append(Text(f"  {len(findings) - SHOWN} more (--json lists all)"))
    verdict = Verdict.from_data(result["verdict"])
    lines = [*(Text(f"  {text}") for text in verdict.details), *lines]
    rows = tuple(_row(robot, findings) for robot in robots[:SHOWN])
    table = Table(COLUMNS, rows, note="R² of each period's fit, over the rows that were fitted.")
    show(
        [Note(verdict.headline), lines, table, _notes(robots), written(files, seconds)],
        unbroken=True,
    )


def _row(robot: Data, findings: list[Data]) -> tuple[Cell, ...]:
    periods = robot["periods"]
    scores = [period["r2"] for period in periods if period["r2"] is not None]
    rows = sum(period["rows"] for period in periods)
    mine = sum(each["robot"] == robot["id"] for each in findings)
    name, off = farthest(robot)
    parameter = None if name is None else fit(name, LONGEST)
    level = robot["verdict"]["level"]
    return robot["id"], len(periods), rows, min(scores, default=None), level, mine, parameter, off


def farthest(robot: Data) -> tuple[str | None, float | None]:
    """Return the parameter farthest from the fleet's in the last period, and by how many σ."""
    last = [
        (each["name"], each["z_fleet"][-1])
        for each in robot["parameters"]
        if each["z_fleet"] and each["z_fleet"][-1] is not None
    ]
    return max(last, key=lambda each: abs(each[1]), default=(None, None))


def _notes(robots: list[Data]) -> list[Text]:
    lines = []
    if len(robots) > SHOWN:
        lines.append(f"{len(robots) - SHOWN} more robots (--json lists all)")
    few = sum(len(robot["periods"]) < 4 for robot in robots)
    if few:
        lines.append(f"{count(few, 'robot')} with fewer than four periods: too few for changes")
    kinds = [robot["kind"] for robot in robots]
    small = sum(kinds.count(kind) < 5 for kind in set(kinds))
    if small:
        kind = count(small, "kind", "kinds")
        lines.append(f"{kind} of robot with fewer than five robots: too few for outliers")
    return [Text(line) for line in lines]
