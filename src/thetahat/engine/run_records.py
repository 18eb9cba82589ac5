"""Run records: every identification with a store leaves its estimate, verdict and provenance, to
be listed and compared; and its answer, which a run in which nothing is new takes over.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from thetahat import __version__
from thetahat.engine.cache import Answer, Store, encodable
from thetahat.engine.fingerprint import fingerprint, robot_fingerprint
from thetahat.engine.multi_log import Failure
from thetahat.errors import UsageError
from thetahat.files import write_atomically, written_together
from thetahat.model.robot import Robot

RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"


@dataclass(frozen=True)
class RunRecord:
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
        data = asdict(self)
        return data | {
            "started": iso_utc(self.started),
            "finished": None if self.finished is None else iso_utc(self.finished),
            "period": self.period or None,
            "r2": {"train": data.pop("r2_train"), "test": data.pop("r2_test")},
            "logs": [{"path": path, "sha256": digest} for path, digest in self.logs],
            "failures": [{"name": each.name, "message": each.sentence} for each in self.failures],
        }


def iso_utc(seconds: float) -> str:
    """A time as ISO 8601 writes it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# -- writing ---------------------------------------------------------------------------------------


def begin_run(store: Store, robot: Robot, *, owner: str | None = None, period: str = "") -> int:
    """Record that a run begins; returns its number.

    A run that is killed stays in the store as interrupted.
    """
    return store.insert(
        "INSERT INTO runs (state, started, process, robot, period, robot_print, version) VALUES (?,"
        " ?, ?, ?, ?, ?, ?)",
        (
            RUNNING,
            time.time(),
            f"{platform.node()}:{os.getpid()}",
            owner or robot.name,
            period,
            robot_fingerprint(robot.without_drive()),
            __version__,
        ),
    )


def finish_run(
    store: Store,
    run: int,
    answer: dict[str, Any],
    *,
    verdict: str,
    fold: str | None = None,
    root: str | None = None,
    failures: Iterable[Failure] = (),
) -> None:
    """Record that a run is done, with this answer (schema thetahat/estimate/1).

    fold, root: fingerprint of how its shards were folded, and key of all of them merged: what the
        estimate was solved from.
    """
    columns = {
        "state": DONE,
        "finished": time.time(),
        "fold": fold,
        "root": root,
        "method": answer["method"],
        "samples": answer["samples"],
        "rank": answer["rank"],
        "r2_train": answer["r2"]["train"],
        "r2_test": answer["r2"]["test"],
        "consistent": None if answer["consistent"] is None else int(answer["consistent"]),
        "verdict": verdict,
        "estimate": json.dumps(answer, allow_nan=False),
        "failures": json.dumps([[each.name, each.sentence, each.exit_code] for each in failures]),
    }
    provenance = answer["provenance"]
    logs = [*provenance.get("logs", ()), *provenance.get("test_logs", ())]
    with store.transaction() as database:
        database.execute(
            f"UPDATE runs SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?",
            (*columns.values(), run),
        )
        database.executemany(
            "INSERT OR IGNORE INTO run_logs VALUES (?, ?, ?)",
            [encodable((run, log["sha256"], log["path"])) for log in logs],
        )


def fail_run(store: Store, run: int, sentence: str) -> None:
    """Record that a run ended with an error."""
    store.change(
        "UPDATE runs SET state = ?, finished = ?, verdict = ? WHERE id = ? AND state = ?",
        [(FAILED, time.time(), sentence, run, RUNNING)],
    )


def is_recorded(store: Store, owner: str, period: str, root: str) -> bool:
    """Whether there is a run with this very estimate of a robot's period."""
    rows = store.query(
        "SELECT 1 FROM runs WHERE robot = ? AND period = ? AND root = ? AND state = ? LIMIT 1",
        (owner, period, root, DONE),
    )
    return bool(rows)


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFilter:
    """Which runs are meant; None and empty: all."""

    robot: str | None = None
    period: str | None = None
    method: str | None = None
    log: str | None = None  # part of a log's path, or the beginning of its SHA-256
    since: float | None = None  # [s since 1970]
    until: float | None = None
    done: bool = False  # those with an estimate alone
    limit: int | None = None  # the latest of them


def find_runs(store: Store, wanted: RunFilter | None = None) -> list[RunRecord]:
    """Return the runs, latest first."""
    wanted = wanted or RunFilter()
    conditions = {
        "robot": "robot = :robot",
        "period": "period = :period",
        "method": "method = :method",
        "since": "started >= :since",
        "until": "started < :until",
        "log": (
            "id IN (SELECT run FROM run_logs WHERE instr(place, :log) OR instr(digest, :log) = 1)"
        ),
    }
    where = [sql for name, sql in conditions.items() if getattr(wanted, name) is not None]
    where += ["state = 'done'"] if wanted.done else ["1"]
    latest = "ORDER BY id DESC LIMIT coalesce(:limit, -1)"
    rows = store.query(f"SELECT * FROM runs WHERE {' AND '.join(where)} {latest}", asdict(wanted))
    return [_record(store, row) for row in rows]


def _record(store: Store, row: sqlite3.Row) -> RunRecord:
    logs = store.query(
        "SELECT place, digest FROM run_logs WHERE run = ? ORDER BY rowid", (row["id"],)
    )
    interrupted = row["state"] == RUNNING and not _alive(row["process"])
    columns = {field.name: row[field.name] for field in fields(RunRecord) if field.name != "logs"}
    return RunRecord(
        **columns
        | {
            "state": INTERRUPTED if interrupted else row["state"],
            "consistent": None if row["consistent"] is None else bool(row["consistent"]),
            "logs": tuple((log["place"], log["digest"]) for log in logs),
            "failures": tuple(Failure(*each) for each in json.loads(row["failures"] or "[]")),
        }
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


def load_estimate(store: Store, run: int) -> dict[str, Any]:
    """Return the answer of a run, schema thetahat/estimate/1."""
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
    estimate: dict[str, Any] = json.loads(rows[0]["estimate"])
    return estimate


# -- answers of whole runs -------------------------------------------------------------------------


@cache
def program_fingerprint() -> str:
    """Return the hash of the program's source: another one may answer otherwise."""
    root = Path(__file__).parents[1]
    return fingerprint(
        [(str(path.relative_to(root)), path.read_bytes()) for path in sorted(root.rglob("*.py"))]
    )


def answer_key(
    robot: Robot,
    options: object,
    inputs: Sequence[Path | None],
    *,
    logs: Sequence[Sequence[tuple[str, str]]],
    folder: Path,
) -> str:
    """Return the hash of all that an answer depends on.

    Args:
        robot: as loaded.
        options: of the run, plain values.
        inputs: files whose content counts, the robot's among them.
        logs: name and content hash of every file, fitted and held out.
        folder: where the answer is written.
    """
    contents = [
        None if path is None else (str(path), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in inputs
    ]
    return fingerprint(
        "answer",
        program_fingerprint(),
        robot_fingerprint(robot, values=True),
        robot.name,
        options,
        contents,
        logs,
        str(folder.absolute()),
    )


def keep_answer(
    store: Store, key: str, estimate: dict[str, Any], files: Sequence[Path], folder: Path
) -> None:
    """Keep an answer and the files that were written beneath `folder`."""
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    store.put_answer(key, Answer(json.dumps(estimate, allow_nan=False), contents))


def restore_answer(
    store: Store, key: str, folder: Path
) -> tuple[dict[str, Any], list[Path]] | None:
    """Return a kept answer, its files written beneath `folder`; None where it is not known.

    The first file, estimate.json, is written last, so that it says that all are there.
    """
    answer = store.get_answer(key)
    if answer is None:
        return None
    files = {folder / name: data for name, data in answer.files.items()}
    with written_together():
        for path, data in reversed(files.items()):
            write_atomically(path, data, folders=True)
    return json.loads(answer.estimate), list(files)
