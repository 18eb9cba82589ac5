"""Work on several processes: the same numbers as in one, whoever does what and whoever dies; a
cluster that is not there is said in a sentence.
"""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import worker_tasks
from fleet_cases import (
    SAME,
    arm,
    columns,
    differ,
    fitted,
    folder_of,
    gathered,
    one_pass,
    spoil,
    write,
)
from store_cases import shard_keys

import thetahat as th
from thetahat.data.prepare import choose
from thetahat.engine import fold_logs
from thetahat.engine.cache import Store
from thetahat.engine.multi_log import Failure
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation, Score
from thetahat.engine.workers import FAN_IN, STARTING, DaskWorkers, Job, Workers, _tree
from thetahat.errors import UsageError
from thetahat.identification.information import Information
from thetahat.identification.scores import validate
from thetahat.model.robot import Robot
from thetahat.model.tree import Tree

distributed = pytest.importorskip(
    "distributed", reason="workers need the extra dask (pip install 'dask[distributed]')"
)
ROWS = 500


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("fleet") / "logs", 6, seconds=10.0)


@pytest.fixture(scope="module")
def two() -> Iterator[DaskWorkers]:
    with DaskWorkers(workers=2) as workers:
        yield workers


@pytest.fixture(scope="module")
def here(logs: Path) -> Information:
    """Of the same shards, in this process."""
    return gathered(ShardReducer(rows=ROWS), logs, arm(), fitted(arm()))[0]


@pytest.fixture(scope="module")
def whole(logs: Path) -> Information:
    """In one pass, without shards."""
    return one_pass(arm(), logs, fitted=fitted(arm()))


def equal(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.factors, b.factors, strict=True))


# -- the same numbers ------------------------------------------------------------------------------


def test_two_workers_are_one_pass(
    two: DaskWorkers, logs: Path, here: Information, whole: Information
) -> None:
    found, told, _ = gathered(ShardReducer(two, rows=ROWS), logs, arm(), fitted(arm()))
    assert told.shards == 24
    assert equal(found, here)  # to the last bit: the tree does not depend on who computes
    assert differ(whole, found) <= SAME


def test_a_worker_that_is_killed_half_way_costs_nothing_but_time(
    two: DaskWorkers, logs: Path
) -> None:
    killed = []

    def kill(what: str, done: int, total: int) -> None:
        if what == "folding" and done > total // 3 and not killed:
            killed.append(next(iter(two.client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    found, told, _ = gathered(
        ShardReducer(two, rows=250, progress=kill), logs, arm(), fitted(arm())
    )
    here, _, _ = gathered(ShardReducer(rows=250), logs, arm(), fitted(arm()))
    assert killed
    assert told.failures == ()
    assert equal(found, here)
    two.client.wait_for_workers(2, timeout=STARTING)  # the tests that follow need both


def test_with_a_store_what_is_there_is_not_sent_out(
    two: DaskWorkers, logs: Path, tmp_path: Path, here: Information
) -> None:
    with Store(tmp_path / "store") as store:
        first, told, _ = gathered(ShardReducer(two, store, rows=ROWS), logs, arm(), fitted(arm()))
        assert told.computed == 24
        (tmp_path / "store/entries" / told.root[:2] / told.root).unlink()
        entries = shard_keys(tmp_path / "store", told.root)
        assert len(entries) == 24
        for key in entries[::5]:
            (tmp_path / "store/entries" / key[:2] / key).unlink()
        half, told, _ = gathered(ShardReducer(two, store, rows=ROWS), logs, arm(), fitted(arm()))
        assert told.computed == len(entries[::5])
    assert equal(first, here)
    assert equal(half, here)


def test_scores_of_shards_are_those_of_one_pass(
    two: DaskWorkers, logs: Path, tmp_path: Path
) -> None:
    reducer = ShardReducer(two, rows=ROWS)
    found, _, files = gathered(reducer, logs, arm(), fitted(arm()))
    settings = reducer.choose(files)
    estimate = th.solve(found, th.LeastSquares())
    robots = {
        "robot": fitted(arm()).with_parameters(estimate),
        "nominal": arm(),
        "beside": {"light": arm().with_parameters(0.5 * arm().theta)},
    }
    span = (2_500, 9_500)
    work = Score(Preparation(arm(), settings), **robots)
    told, _ = reducer.score(files, work, span)
    wanted = validate(
        robots["robot"],
        th.prepare(files.log, arm(), settings=settings, span=span),
        robots["nominal"],
        beside=robots["beside"],
    )
    for a, b in (
        (told, wanted),
        (told.nominal, wanted.nominal),
        (told.beside["light"], wanted.beside["light"]),
    ):
        assert (a.samples, a.names, a.cutoff) == (b.samples, b.names, b.cutoff)
        assert np.array_equal(a.rows, b.rows)
        assert np.array_equal(a.rows_moving, b.rows_moving)
        for name in ("r2", "r2_moving", "rms", "rms_moving", "r2_total"):
            assert np.ma.allclose(getattr(a, name), getattr(b, name), rtol=1e-10, atol=0.0), name
    with Store(tmp_path / "store") as store:
        kept = ShardReducer(two, store, rows=ROWS)
        kept.score(files, work, span)
        again = kept.reduce(files, work, span)
        assert again.computed == 0
        assert np.array_equal(work.validation(again.result).r2, told.r2)
        other = Score(
            Preparation(arm(), settings),
            **(robots | {"nominal": arm().with_parameters(1.01 * arm().theta)}),
        )
        assert kept.reduce(files, other, span).computed == again.shards


def test_an_excerpt_is_rows_of_the_log_in_their_order(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thetahat.engine.reduce.EXCERPT", 3_000)
    reducer = ShardReducer(rows=ROWS)
    files = reducer.scan(logs, arm())
    settings = reducer.choose(files)
    whole = th.prepare(files.log, arm(), settings=settings)
    work = Fold(Preparation(arm(), settings), fitted(arm()))
    parts = list(reducer.samples(files, work))
    assert sum(map(len, parts)) == 3_000
    assert reducer.excerpt_share(files, work) == 3_000 / len(whole)
    assert sum(map(len, reducer.samples(files, work, every=True))) == len(whole)
    at = {
        (run, round(t / whole.period)): k
        for k, (run, t) in enumerate(zip(whole.run, whole.t, strict=True))
    }
    places = [
        at[(run, round(t / whole.period))]
        for part in parts
        for run, t in zip(part.run, part.t, strict=True)
    ]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] == len(whole) - 1
    assert np.max(np.abs(np.concatenate([part.tau for part in parts]) - whole.tau[places])) < 1e-10


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 63, 64, 65, 200, 513])
def test_the_tree_joins_every_leaf_once_and_never_more_than_eight(count: int) -> None:
    widths = []

    def join(parts: list) -> list:
        widths.append(len(parts))
        return [leaf for part in parts for leaf in (part if isinstance(part, list) else [part])]

    assert _tree(count, lambda number: number, join) == list(range(count))
    assert max(widths) <= FAN_IN
    assert len(widths) <= -(-count // (FAN_IN - 1)) + 4


# -- the Python face -------------------------------------------------------------------------------


def test_information_of_logs_by_their_names(
    two: DaskWorkers, logs: Path, tmp_path: Path, whole: Information
) -> None:
    fit = fitted(arm())
    for options in (
        {},
        {"client": two.client},
        {"store": tmp_path / "store"},
        {"store": tmp_path / "store", "client": two.client},
    ):
        assert differ(whole, fold_logs.information(fit, logs, **options)) <= SAME
    assert two.client.status == "running"  # a client that is handed in stays open
    samples = th.prepare(th.read_log(logs, arm()), arm(), cutoff=10.0)
    assert equal(
        fold_logs.information(fit, samples, threads=1),
        fold_logs.information(fit, [samples], threads=1),
    )
    assert (
        differ(
            fold_logs.information(fit, samples), fold_logs.information(fit, str(logs), cutoff=10.0)
        )
        <= SAME
    )
    with pytest.raises(UsageError, match="client is for logs"):
        fold_logs.information(fit, samples, client=two.client)
    with pytest.raises(UsageError, match="weights are for samples"):
        fold_logs.information(fit, logs, weights=np.ones((3, 4)))


def test_a_bad_log_is_a_warning_that_names_it(two: DaskWorkers, logs: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "logs", 2)
    name, said, _ = spoil(folder, "damaged")
    with pytest.warns(UserWarning, match=rf"{name}.*{said}"):
        found = fold_logs.information(fitted(arm()), folder, client=two.client)
    assert found.samples == 8_000


# -- other robots ----------------------------------------------------------------------------------


def scaled(robot: Robot, factor: float) -> Tree:
    """The same arm with longer links."""
    return Tree(
        tuple(replace(node, translation=factor * node.translation) for node in robot.tree.nodes)
    )


@pytest.mark.parametrize("here", [True, False])
def test_a_log_of_another_robot_with_the_same_joints_is_named_and_left_out(
    two: DaskWorkers, tmp_path: Path, here: bool
) -> None:
    folder = folder_of(tmp_path / "logs", 5)
    wanted = one_pass(
        arm(),
        folder,
        fitted=fitted(arm()),
        settings=(settings := choose(th.read_log(folder, arm()), arm())),
    )
    longer = replace(arm(), tree=scaled(arm(), 1.6))
    write(folder / "run002b.parquet", columns(77, robot=longer.with_parameters(2.0 * arm().theta)))
    reducer = ShardReducer(None if here else two, rows=ROWS)
    files = reducer.scan(folder, arm())
    assert files.failures == ()
    found, told = reducer.fold(files, Fold(Preparation(arm(), settings), fitted(arm())))
    (failure,) = told.failures
    assert failure.exit_code == 3
    assert "run002b.parquet" in failure.sentence
    assert "another robot or payload" in failure.sentence
    assert differ(wanted, found) <= SAME


# -- the cluster -----------------------------------------------------------------------------------


def test_the_cluster_listens_on_this_machine_alone_and_shows_no_dashboard(two: DaskWorkers) -> None:
    psutil = pytest.importorskip("psutil")
    info = two.client.scheduler_info(n_workers=-1)
    assert {worker["nthreads"] for worker in info["workers"].values()} == {1}
    assert {worker["memory_limit"] for worker in info["workers"].values()} == {10**9}
    pids = [os.getpid(), *two.client.run(os.getpid).values()]
    for pid in pids:
        listening = [
            each.laddr.ip
            for each in psutil.Process(pid).net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        ]
        assert set(listening) <= {"127.0.0.1", "::1"}
    page = urllib.request.Request(
        f"http://127.0.0.1:{info['services'].get('dashboard', 0) or 1}/status"
    )
    with pytest.raises(OSError, match=r"404|refused"):
        urllib.request.urlopen(page, timeout=5.0)
    assert set(two.client.run(lambda: os.environ["POLARS_MAX_THREADS"]).values()) == {"1"}


def test_a_scheduler_of_the_users_is_used_and_left_running(logs: Path, here: Information) -> None:
    own = {"processes": True, "threads_per_worker": 1, "host": "127.0.0.1"}
    with distributed.LocalCluster(n_workers=2, dashboard_address="127.0.0.1:0", **own) as cluster:
        with DaskWorkers(scheduler=cluster.scheduler_address) as workers:
            found, _, _ = gathered(ShardReducer(workers, rows=ROWS), logs, arm(), fitted(arm()))
            assert workers.count == 2
        assert equal(found, here)
        with distributed.Client(cluster, set_as_default=False, timeout=60) as client:
            assert client.run(int)


@pytest.mark.parametrize("here", [True, False])
def test_what_fails_is_a_failure_in_its_place(two: DaskWorkers, here: bool) -> None:
    workers = Workers() if here else two
    job = Job(7, worker_tasks.odd, lambda task: f"no. {task}")
    assert dict(workers.each(job, range(5))) == {
        0: 0,
        1: Failure("no. 1", "task 1 of 7", 6),
        2: 2,
        3: Failure("no. 3", "task 3 of 7", 6),
        4: 4,
    }
    seen: list[int] = []
    whole = workers.reduce(job, list(range(20)), sum, lambda number, _: seen.append(number))
    assert whole.result == sum(range(0, 20, 2))
    assert [failure.name for failure in whole.failures] == [f"no. {k}" for k in range(1, 20, 2)]
    assert sorted(seen) == list(range(20))
    assert workers.reduce(job, [1, 3], sum, lambda *_: None).result is None


def test_progress_is_told_as_work_is_done(two: DaskWorkers, logs: Path) -> None:
    told: list[tuple[str, int, int]] = []
    gathered(
        ShardReducer(two, rows=ROWS, progress=lambda *each: told.append(each)),
        logs,
        arm(),
        fitted(arm()),
    )
    folding = [done for what, done, total in told if what == "folding" and total == 12_000]
    assert folding == sorted(folding)
    assert (folding[0], folding[-1], len(folding)) == (0, 12_000, 25)
    assert [done for what, done, _ in told if what == "scanning"] == list(range(7))
