"""Work on several processes: the same numbers as in one, whoever does what and whoever dies; a
cluster that is not there is said in a sentence.
"""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    quicker,
    spoil,
    write,
)
from store_cases import shard_keys

import thetahat as th
from thetahat.data.prepare import choose
from thetahat.engine import fold_logs
from thetahat.engine.cache import Store
from thetahat.engine.foreign_logs import TIMES, measure_misfit
from thetahat.engine.multi_log import Failure
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation, Score
from thetahat.engine.workers import FAN_IN, STARTING, DaskWorkers, Job, Workers, _tree
from thetahat.errors import MissingExtra, StorageError, UsageError
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


def scaled(robot: Robot, factor: float) -> Tree:
    """The same arm with longer links."""
    return Tree(
        tuple(replace(node, translation=factor * node.translation) for node in robot.tree.nodes)
    )


def test_logs_of_one_robot_are_no_strangers_to_each_other(tmp_path: Path) -> None:
    """Not the slow one, not the one that alone moves a joint, not worn gears, not a few
    kilograms.
    """
    folder = tmp_path / "logs"
    folder.mkdir()
    for k in range(4):
        table = columns(k)
        still = {
            name: np.zeros_like(array)
            for name, array in table.items()
            if name in ("q.elbow", "dq.elbow")
        }
        write(folder / f"{k}.parquet", table | still)
    write(folder / "moves.parquet", columns(8))
    write(folder / "slow.parquet", quicker(columns(9), 0.2))
    worn = columns(10)
    worn |= {
        name: array + 2.0 * np.sign(worn[f"dq{name[3:]}"])
        for name, array in worn.items()
        if name.startswith("tau.")
    }
    write(folder / "worn.parquet", worn)
    theta = arm().theta.copy()
    theta[-1] += 0.5  # [kg] on the last link
    write(folder / "load.parquet", columns(11, robot=arm().with_parameters(theta)))
    files = ShardReducer().scan(folder, arm())
    _, told = ShardReducer(rows=ROWS).fold(
        files, Fold(Preparation(arm(), choose(files.log, arm())), fitted(arm()))
    )
    assert told.failures == ()


def named_strangers(folder: Path) -> list[str]:
    files = ShardReducer().scan(folder, arm())
    _, told = ShardReducer(rows=ROWS).fold(
        files, Fold(Preparation(arm(), choose(files.log, arm())), fitted(arm()))
    )
    return [Path(failure.name).stem for failure in told.failures]


def test_a_few_kilograms_are_no_other_robot(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "logs", 6)
    for name, factor, wanted in (("load", 1.15, []), ("other", 3.0, ["other"])):
        write(
            folder / f"{name}.parquet",
            columns(11, robot=arm().with_parameters(factor * arm().theta)),
        )
        assert named_strangers(folder) == wanted
        (folder / f"{name}.parquet").unlink()


def test_no_one_is_judged_by_what_others_hardly_know(tmp_path: Path) -> None:
    """Loud torques of the others: their parameters leave a hundred times what its own do, and
    chance explains it.
    """
    loud, clean = columns(1), columns(2)
    rng = np.random.default_rng(0)
    loud |= {
        name: array + rng.normal(0.0, 80.0, len(array))
        for name, array in loud.items()
        if name.startswith("tau.")
    }
    others, own = (
        gathered(ShardReducer(), write(tmp_path / f"{k}.parquet", table), arm(), fitted(arm()))[0]
        for k, table in enumerate((loud, clean))
    )
    left, least = (
        float(np.sum(own.residual_norms(each.solution.x) ** 2)) for each in (others, own)
    )
    assert left > TIMES * least
    assert measure_misfit(own, others).ratio < 10.0


def test_two_logs_that_contradict_each_other_are_both_kept(tmp_path: Path) -> None:
    for k, theta in enumerate((1.0, 3.0)):
        write(
            tmp_path / f"{k}.parquet", columns(k, robot=arm().with_parameters(theta * arm().theta))
        )
    files = ShardReducer().scan(tmp_path, arm())
    _, told = ShardReducer().fold(
        files, Fold(Preparation(arm(), choose(files.log, arm())), fitted(arm()))
    )
    assert told.failures == ()


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


def test_a_scheduler_that_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thetahat.engine.workers.PATIENCE", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    for wrong in (address, "nonsense://x", "127.0.0.1:notaport"):
        with (
            DaskWorkers(scheduler=wrong) as workers,
            pytest.raises(StorageError, match="cannot be reached") as caught,
        ):
            _ = workers.client
        assert caught.value.exit_code == 6
        assert "\n" not in str(caught.value)


def test_a_scheduler_without_workers_is_said() -> None:
    with (
        distributed.LocalCluster(
            n_workers=0, dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as cluster,
        DaskWorkers(scheduler=cluster.scheduler_address) as workers,
        pytest.raises(StorageError, match="has no workers"),
    ):
        _ = workers.client


def test_a_scheduler_of_the_users_is_used_and_left_running(
    two: DaskWorkers, logs: Path, here: Information
) -> None:
    address = two.client.scheduler.address
    with DaskWorkers(scheduler=address) as workers:
        found, _, _ = gathered(ShardReducer(workers, rows=ROWS), logs, arm(), fitted(arm()))
        assert workers.count == 2
    assert equal(found, here)
    assert two.client.run(lambda: 1)


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


@pytest.mark.timeout(600)  # five interpreters start one after the other
def test_a_task_that_no_worker_outlives_is_a_failure_in_its_place() -> None:
    """Also where a worker starts again later than Dask waits for it: its nanny is not stopped."""
    import dask

    impatient = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.deploy.lost-worker-timeout": "10ms",
    }
    with dask.config.set(impatient), DaskWorkers(workers=1) as workers:
        job = Job(5, worker_tasks.deadly, lambda task: f"no. {task}")
        found = dict(workers.each(job, range(4, 7)))
        assert (found[0], found[2]) == (4, 6)
        assert "its worker died every time" in found[1].sentence
        seen: list[int] = []
        whole = workers.reduce(job, list(range(20)), sum, lambda number, _: seen.append(number))
        (failure,) = whole.failures
        assert whole.result == sum(range(20)) - 5
        assert (failure.name, failure.exit_code) == ("no. 5", 6)
        assert sorted(seen) == list(range(20))


def wait_until(true: Callable[[], object], limit: float = STARTING) -> None:
    """Return once something is true; fail after `limit` seconds."""
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, f"waited {limit:g} s"
        time.sleep(0.02)


def test_a_cluster_that_lost_its_workers_for_good_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wait for workers that never come back ends."""
    monkeypatch.setattr("thetahat.engine.workers.CHECK", 0.1)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        job = Job(0.0, worker_tasks.slow, lambda task: f"no. {task}")
        workers = DaskWorkers(client=client)
        assert dict(workers.each(job, range(2))) == {0: 0, 1: 1}
        monkeypatch.setattr("thetahat.engine.workers.NO_RESULT", 0.3)
        with pytest.raises(StorageError, match=r"finished nothing for 0\.3 s"):
            dict(workers.each(replace(job, context=3.0), range(2)))
        cluster.scale(0)
        wait_until(lambda: not cluster.scheduler.workers)
        monkeypatch.setattr("thetahat.engine.workers.NO_WORKERS", 0.5)
        monkeypatch.setattr("thetahat.engine.workers.NO_RESULT", 60.0)
        with pytest.raises(StorageError, match=r"no workers for 0\.5 s"):
            dict(workers.each(job, range(2)))
        with pytest.raises(StorageError, match=r"no workers for 0\.5 s"):
            workers.reduce(job, list(range(20)), sum, lambda *_: None)


def test_a_scheduler_that_dies_ends_the_wait() -> None:
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
    )

    def die() -> None:
        wait_until(lambda: any(each.processing for each in [*cluster.scheduler.workers.values()]))
        cluster.close(timeout=STARTING)

    with cluster, DaskWorkers(scheduler=cluster.scheduler_address) as workers:
        job = Job(30.0, worker_tasks.slow, lambda task: f"no. {task}")
        with ThreadPoolExecutor(1) as thread:
            death = thread.submit(die)
            with pytest.raises(StorageError, match="the Dask cluster was lost"):
                dict(workers.each(job, range(2)))
            death.result(timeout=STARTING)


def test_a_scheduler_without_thetahat_is_said() -> None:
    from thetahat.engine.workers import _result

    class Lost:
        def result(self, timeout: float) -> None:
            raise RuntimeError(
                "Error during deserialization of the task graph. This frequently occurs if the"
                " Scheduler and Client …"
            )

    with pytest.raises(
        UsageError, match=r"scheduler of the Dask cluster.*install thetahat"
    ) as caught:
        _result(Lost(), "x")
    assert "\n" not in str(caught.value)


def test_workers_without_dask_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    original = builtins.__import__

    def without(name: str, *more: object, **options: object) -> object:
        if name.partition(".")[0] in ("distributed", "dask", "fsspec"):
            raise ImportError(name)
        return original(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"thetahat\[dask\]"):
        DaskWorkers(workers=2)
    with pytest.raises(MissingExtra, match=r"thetahat\[dask\]"):
        ShardReducer().scan("s3://bucket/log.parquet", arm())


def test_options_that_contradict_each_other_are_refused() -> None:
    for options in ({}, {"workers": 2, "scheduler": "x"}, {"workers": 0}, {"workers": True}):
        with pytest.raises(UsageError):
            DaskWorkers(**options)


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


def test_nothing_is_left_running() -> None:
    with DaskWorkers(workers=1) as workers:
        (pid,) = workers.client.run(os.getpid).values()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30.0)
