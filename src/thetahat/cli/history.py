"""`thetahat history`: the runs recorded in a store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from thetahat.cli import arguments, engine_options
from thetahat.cli.exit_status import emit
from thetahat.cli.settings_options import with_options
from thetahat.errors import UsageError
from thetahat.files import as_text
from thetahat.pipeline.settings import setting

if TYPE_CHECKING:
    from thetahat.engine.run_records import RunRecord

SCHEMA = "thetahat/history/1"


@dataclass(frozen=True, kw_only=True)
class HistoryOptions:
    """Options of `thetahat history`: which runs are listed."""

    robot: str | None = setting("Show only runs of this robot.", None, "NAME")
    period: str | None = setting("Show only runs of this fleet period.", None, "NAME")
    method: str | None = setting("Show only runs with this method.", None, "NAME")
    log: str | None = setting(
        "Show only runs with this log: part of its path, or a prefix of its SHA-256.", None, "TEXT"
    )
    since: str | None = setting(
        "Show only runs since this date or time (ISO 8601, UTC).", None, "DATE"
    )
    until: str | None = setting("Show only runs before this date or time.", None, "DATE")
    done: bool = setting("Show only runs that have an estimate.", False, flags="--done")
    limit: int = setting(
        "Maximum number of runs to show, latest first; 0: all.", 50, "N", shown=True
    )


@with_options(HistoryOptions)
def history(
    *,
    store: engine_options.Store = None,
    json: arguments.Json = False,
    options: HistoryOptions,
) -> None:
    """List the runs recorded in a store, latest first: robot, method, samples, R², verdict."""
    arguments.whole_number("--limit", options.limit)
    folder = required(store)
    from thetahat.engine.cache import Store
    from thetahat.engine.run_records import RunFilter, find_runs

    since, until = moment(options.since, "--since"), moment(options.until, "--until")
    given = asdict(options) | {"since": since, "until": until, "limit": options.limit or None}
    wanted = RunFilter(**given)
    with Store(folder, create=False) as opened:
        records = find_runs(opened, wanted)
    if json:
        runs = [record.as_data() for record in records]
        emit(as_text({"schema": SCHEMA, "store": str(folder), "runs": runs}))
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
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} is {text!r}; give a date such as 2026-01-31 or 2026-01-31T12:00:00"
        ) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def draw(records: list[RunRecord], folder: str) -> None:
    """Print a row for every run."""
    from thetahat.cli.terminal import show
    from thetahat.engine.run_records import DONE, iso_utc
    from thetahat.report.section import Cell, Column, Table, Text
    from thetahat.report.text import FAIR, GOOD

    if not records:
        show([Text(f"No run in {folder} fits.")])
        return
    periods = any(record.period for record in records)
    columns = (
        *(Column(title) for title in ("run", "started", "robot")),
        *([Column("period")] if periods else []),
        *(Column(title) for title in ("method", "logs", "samples")),
        Column("R² train", decimals=4),
        Column("R² test", decimals=4, limits=(FAIR, GOOD)),
        Column("verdict"),
    )
    rows: list[tuple[Cell, ...]] = []
    for record in records:
        started = iso_utc(record.started).replace("T", " ").removesuffix("Z")
        word = (record.verdict or "").split(":")[0] if record.state == DONE else record.state
        rows.append(
            (
                str(record.id),
                started,
                record.robot,
                *([record.period] if periods else []),
                *(record.method, len(record.logs), record.samples),
                *(record.r2_train, record.r2_test, word),
            )
        )
    runs = f"{len(records)} run{'s' * (len(records) != 1)}"
    note = f"{runs}; thetahat diff A B --store {folder} compares two."
    show([Table(columns, tuple(rows), note=note)])
