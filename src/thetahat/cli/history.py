"""`thetahat history`: the runs that a store remembers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from thetahat.cli import arguments, engine_options
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit, plain
from thetahat.errors import UsageError
from thetahat.files import as_text

if TYPE_CHECKING:
    from thetahat.engine.run_records import RunRecord

SCHEMA = "thetahat/history/1"


def history(
    *,
    store: engine_options.Store = None,
    robot: Annotated[
        str | None, option("Only runs of this robot, by its name.", metavar="NAME")
    ] = None,
    period: Annotated[
        str | None, option("Only runs of this period of a fleet.", metavar="NAME")
    ] = None,
    method: Annotated[str | None, option("Only runs by this method.", metavar="NAME")] = None,
    log: Annotated[
        str | None,
        option(
            "Only runs with this log: part of its path, or the beginning of its SHA-256.",
            metavar="TEXT",
        ),
    ] = None,
    since: Annotated[
        str | None,
        option("Only runs from this day on, or from this moment (ISO 8601, UTC).", metavar="DATE"),
    ] = None,
    until: Annotated[
        str | None, option("Only runs before this day or moment.", metavar="DATE")
    ] = None,
    done: Annotated[bool, option("Only runs that have an estimate.", "--done")] = False,
    limit: Annotated[
        int, option("The latest runs, at most so many; 0: all.", metavar="N", show_default=True)
    ] = 50,
    json: arguments.Json = False,
) -> None:
    """List the runs that a store remembers, latest first: robot, method, samples, R², verdict."""
    if limit < 0:
        raise UsageError(f"--limit is {limit}; give a whole number from 0")
    folder = required(store)
    from thetahat.engine.cache import Store
    from thetahat.engine.run_records import RunFilter, find_runs

    wanted = RunFilter(
        robot,
        period,
        method,
        log,
        moment(since, "--since"),
        moment(until, "--until"),
        done,
        limit or None,
    )
    with Store(folder, create=False) as opened:
        records = find_runs(opened, wanted)
    if json:
        emit(
            as_text(
                {
                    "schema": SCHEMA,
                    "store": str(folder),
                    "runs": [record.as_data() for record in records],
                }
            )
        )
    else:
        draw(records, folder)


def required(store: str | None) -> str:
    """The folder, or an error that says how to give it."""
    if store is None:
        raise UsageError(
            "no store is given; name its folder with --store DIR, or in the variable"
            f" {engine_options.STORE}"
        )
    return store


def moment(text: str | None, option: str) -> float | None:
    """A day or a moment as seconds since 1970; without a zone it is UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} is {text!r}; give a date such as 2026-01-31 or 2026-01-31T12:00:00"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def draw(records: list[RunRecord], folder: str) -> None:
    """A row for every run."""
    from rich.text import Text

    from thetahat.cli.terminal import judged, r2, show, table
    from thetahat.engine.run_records import DONE, iso_utc

    if not records:
        show([Text(f"No run in {plain(folder)} fits.")])
        return
    periods = any(record.period for record in records)
    out = table(
        "run",
        "started",
        "robot",
        *(["period"] if periods else []),
        "method",
        "logs",
        "samples",
        "R² train",
        "R² test",
        "verdict",
        numbers=False,
    )
    for column in ("logs", "samples", "R² train", "R² test"):
        out.columns[[str(each.header) for each in out.columns].index(column)].justify = "right"
    for record in records:
        told: list[Any] = [
            str(record.id),
            iso_utc(record.started).replace("T", " ").removesuffix("Z"),
            plain(record.robot),
        ]
        told += [plain(record.period)] if periods else []
        told += [
            record.method or "–",
            f"{len(record.logs)}",
            "–" if record.samples is None else f"{record.samples:,}",
        ]
        word = (record.verdict or "").split(":")[0] if record.state == DONE else record.state
        out.add_row(*told, r2(record.r2_train), judged(record.r2_test), plain(word))
    show(
        [
            out,
            Text(
                f"{len(records)} run{'s' * (len(records) != 1)}; thetahat diff A B --store"
                f" {plain(folder)} compares two.",
                style="dim",
            ),
        ]
    )
