"""Options of the verbs that can share work among workers and keep results in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from thetahat.cli.arguments import option
from thetahat.cli.exit_status import say

if TYPE_CHECKING:
    from thetahat.engine.open_engine import EngineOptions
    from thetahat.engine.protocol import Completion

STORE = "THETAHAT_STORE"  # environment variable

Workers = Annotated[
    int | None,
    option("Number of local worker processes (needs the extra dask).", "--workers", metavar="N"),
]
Scheduler = Annotated[
    str | None, option("Address of a Dask scheduler to run on.", "--scheduler", metavar="ADDRESS")
]
Store = Annotated[
    str | None,
    option(
        "Folder that caches results and records every run; created if needed.",
        "--store",
        metavar="DIR",
        envvar=STORE,
    ),
]


def engine_options(workers: int | None, scheduler: str | None, store: str | None) -> EngineOptions:
    """Return the options, checked."""
    from pathlib import Path

    from thetahat.engine.open_engine import EngineOptions

    return EngineOptions(workers, scheduler, None if store is None else Path(store))


def say_completion(completion: Completion) -> None:
    """Say what was left out; raise where that was anything, as the answer is of the others."""
    for sentence in completion.sentences:
        say(sentence, "warning")
    if completion.error is not None:
        raise completion.error
