"""A fleet on the terminal: what was found first, then a line per robot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from thetahat.cli.exit_status import plain
from thetahat.cli.terminal import judged, short, show, table, written
from thetahat.report.figures.base import fit

SHOWN = 30  # findings, and robots
LONGEST = 36  # name of a parameter


def draw(found: dict[str, Any], files: list[Path], seconds: float) -> None:
    """Print it."""
    show(
        [_head(found), _findings(found), _robots(found), _notes(found), written(files, seconds)],
        unbroken=True,
    )


def _head(found: dict[str, Any]) -> Text:
    summary = found["summary"]
    count = len(found["findings"])
    said = (
        "nothing changed, and nobody is unlike the others"
        if not count
        else f"{count} finding{'s' if count > 1 else ''}"
    )
    return Text(
        f"{summary['robots']} robots, {summary['periods']} periods, {summary['samples']:,} samples:"
        f" {said} (level {found['level']:g}).",
        style="bold",
    )


def _findings(found: dict[str, Any]) -> Text | None:
    lines = [f"  {plain(each['sentence'])}" for each in found["findings"][:SHOWN]]
    if len(found["findings"]) > SHOWN:
        lines.append(f"  {len(found['findings']) - SHOWN} more (--json lists all)")
    return Text("\n".join(lines)) if lines else None


def _robots(found: dict[str, Any]) -> Any:
    drawn = table(
        "robot", "periods", "samples", "least R²", "findings", "farthest off the fleet", "std"
    )
    for robot in found["robots"][:SHOWN]:
        scores = [period["r2"] for period in robot["periods"] if period["r2"] is not None]
        mine = sum(each["robot"] == robot["id"] for each in found["findings"])
        name, off = farthest(robot)
        drawn.add_row(
            plain(robot["id"]),
            str(len(robot["periods"])),
            f"{sum(period['rows'] for period in robot['periods']):,}",
            judged(min(scores, default=None)),
            Text(str(mine), style="red" if mine else ""),
            fit(plain(name or "–"), LONGEST),
            short(off),
        )
    return drawn


def farthest(robot: dict[str, Any]) -> tuple[str | None, float | None]:
    """The parameter that is farthest off the fleet's in the last period, and by how many standard
    deviations.
    """
    last = [
        (each["name"], each["z_fleet"][-1])
        for each in robot["parameters"]
        if each["z_fleet"] and each["z_fleet"][-1] is not None
    ]
    return max(last, key=lambda each: abs(each[1]), default=(None, None))


def _notes(found: dict[str, Any]) -> Text | None:
    lines = []
    if len(found["robots"]) > SHOWN:
        lines.append(f"{len(found['robots']) - SHOWN} more robots (--json lists all)")
    short_lives = [robot["id"] for robot in found["robots"] if len(robot["periods"]) < 4]
    if short_lives:
        lines.append(
            f"{len(short_lives)} robots have fewer than four periods, in which no change can be"
            " told from chance"
        )
    kinds = [robot["kind"] for robot in found["robots"]]
    few = sum(kinds.count(kind) < 5 for kind in set(kinds))
    if few:
        lines.append(
            f"{few} kind{'s' if few > 1 else ''} of robot {'have' if few > 1 else 'has'} fewer than"
            " five robots, too few to say who is odd"
        )
    return Text("\n".join(lines), style="dim") if lines else None
