"""The memory of runs: every identification with a store leaves its estimate, verdict and
provenance, to be listed and compared.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from thetahat import __version__
from thetahat.engine.fingerprint import robot_fingerprint
from thetahat.engine.multi_log import Failure
from thetahat.engine.store import Store
from thetahat.errors import UsageError
from thetahat.model.robot import Robot

RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"


@dataclass(frozen=True)
class Record:
    """One run, without its estimate."""

    id: int
    state: str
    started: float  # [s since 1970]
    finished: float | None
    robot: str
    period: str
    method: str | None
    samples: int | None
    rank: int | None
    r2_train: float | None
    r2_test: float | None
    consistent: bool | None
    verdict: str | None
    version: str
    logs: tuple[tuple[str, str], ...]  # (path, SHA-256)
    failures: tuple[Failure, ...]

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.id,
            "state": self.state,
            "started": stamp(self.started),
            "finished": None if self.finished is None else stamp(self.finished),
            "robot": self.robot,
            "period": self.period or None,
            "method": self.method,
            "samples": self.samples,
            "rank": self.rank,
            "r2": {"train": self.r2_train, "test": self.r2_test},
            "consistent": self.consistent,
            "verdict": self.verdict,
            "version": self.version,
            "logs": [{"path": path, "sha256": digest} for path, digest in self.logs],
            "failures": [{"name": each.name, "message": each.sentence} for each in self.failures],
        }


def stamp(seconds: float) -> str:
    """A time as ISO 8601 writes it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# -- writing ---------------------------------------------------------------------------------------


def begin(store: Store, robot: Robot, *, owner: str | None = None, period: str = "") -> int:
    """A run begins; its number. A run that is killed stays in the store as interrupted."""
    return store.insert(
        "INSERT INTO runs (state, started, process, robot, period, robot_print, version) VALUES (?,"
        " ?, ?, ?, ?, ?, ?)",
        (
            RUNNING,
            time.time(),
            _process(),
            owner or robot.name,
            period,
            robot_fingerprint(robot.without_drive()),
            __version__,
        ),
    )


def finish(
    store: Store,
    run: int,
    found: dict[str, Any],
    *,
    verdict: str,
    fold: str | None = None,
    root: str | None = None,
    failures: Iterable[Failure] = (),
) -> None:
    """A run is done, with this answer (schema thetahat/estimate/1).

    fold, root: fingerprint of how its shards were folded, and key of all of them merged: what the
        estimate was solved from.
    """
    failed = json.dumps([[each.name, each.sentence, each.exit_code] for each in failures])
    values = (
        DONE,
        time.time(),
        fold,
        root,
        found["method"],
        found["samples"],
        found["rank"],
        found["r2"]["train"],
        found["r2"]["test"],
    )
    consistent = None if found["consistent"] is None else int(found["consistent"])
    logs = [*found["provenance"].get("logs", ()), *found["provenance"].get("test_logs", ())]
    with store.transaction() as database:
        database.execute(
            "UPDATE runs SET state = ?, finished = ?, fold = ?, root = ?, method = ?, samples = ?,"
            " rank = ?, r2_train = ?, r2_test = ?, consistent = ?, verdict = ?, estimate = ?,"
            " failures = ? WHERE id = ?",
            (*values, consistent, verdict, json.dumps(found, allow_nan=False), failed, run),
        )
        database.executemany(
            "INSERT OR IGNORE INTO run_logs VALUES (?, ?, ?)",
            [(run, log["sha256"], log["path"]) for log in logs],
        )


def fail(store: Store, run: int, sentence: str) -> None:
    """A run ended with an error."""
    store.change(
        "UPDATE runs SET state = ?, finished = ?, verdict = ? WHERE id = ? AND state = ?",
        [(FAILED, time.time(), sentence, run, RUNNING)],
    )


def remembered(store: Store, owner: str, period: str, root: str) -> bool:
    """Whether there is a run with this very estimate of a robot's period."""
    found = store.query(
        "SELECT 1 FROM runs WHERE robot = ? AND period = ? AND root = ? AND state = ? LIMIT 1",
        (owner, period, root, DONE),
    )
    return bool(found)


def _process() -> str:
    return f"{platform.node()}:{os.getpid()}"


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filter:
    """Which runs are meant; None and empty: all."""

    robot: str | None = None
    period: str | None = None
    method: str | None = None
    log: str | None = None  # part of a log's path, or the beginning of its SHA-256
    since: float | None = None  # [s since 1970]
    until: float | None = None
    done: bool = False  # those with an estimate alone
    limit: int | None = None  # the latest of them


def history(store: Store, wanted: Filter | None = None) -> list[Record]:
    """The runs, latest first."""
    wanted = wanted or Filter()
    where, values = ["1"], []
    for column, value in (
        ("robot", wanted.robot),
        ("period", wanted.period),
        ("method", wanted.method),
    ):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if wanted.since is not None:
        where.append("started >= ?")
        values.append(wanted.since)
    if wanted.until is not None:
        where.append("started < ?")
        values.append(wanted.until)
    if wanted.done:
        where.append("state = 'done'")
    if wanted.log is not None:
        where.append(
            "id IN (SELECT run FROM run_logs WHERE instr(place, ?) OR substr(digest, 1, length(?))"
            " = ?)"
        )
        values += [wanted.log] * 3
    limit = -1 if wanted.limit is None else wanted.limit
    rows = store.query(
        f"SELECT * FROM runs WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?", (*values, limit)
    )
    return [_record(store, row) for row in rows]


def _record(store: Store, row: Any) -> Record:
    logs = store.query(
        "SELECT place, digest FROM run_logs WHERE run = ? ORDER BY rowid", (row["id"],)
    )
    state = INTERRUPTED if row["state"] == RUNNING and not _alive(row["process"]) else row["state"]
    return Record(
        id=row["id"],
        state=state,
        started=row["started"],
        finished=row["finished"],
        robot=row["robot"],
        period=row["period"],
        method=row["method"],
        samples=row["samples"],
        rank=row["rank"],
        r2_train=row["r2_train"],
        r2_test=row["r2_test"],
        consistent=None if row["consistent"] is None else bool(row["consistent"]),
        verdict=row["verdict"],
        version=row["version"],
        logs=tuple((log["place"], log["digest"]) for log in logs),
        failures=tuple(Failure(*each) for each in json.loads(row["failures"] or "[]")),
    )


def _alive(process: str) -> bool:
    """Whether a process of this machine still runs; of other machines nothing is known, so
    it may.
    """
    host, _, number = process.rpartition(":")
    if host != platform.node() or os.name == "nt":  # there, asking would end it
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True
    return True


def estimate(store: Store, run: int) -> dict[str, Any]:
    """The answer of a run, schema thetahat/estimate/1."""
    rows = store.query("SELECT state, estimate FROM runs WHERE id = ?", (run,))
    if not rows:
        last = store.query("SELECT max(id) AS last FROM runs")[0]["last"]
        known = f"its runs are 1 to {last}" if last else "it has no runs yet"
        raise UsageError(
            f"the store {store.folder} has no run {run}; {known} (thetahat history lists them)"
        )
    if rows[0]["estimate"] is None:
        raise UsageError(
            f"run {run} of the store {store.folder} has no estimate (it is {rows[0]['state']});"
            " give one that is done"
        )
    return json.loads(rows[0]["estimate"])
