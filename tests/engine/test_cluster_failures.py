"""Clusters that cannot be reached, lose their workers, or die: each is said in a sentence."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import worker_tasks
from fleet_cases import (
    arm,
)

from thetahat.engine.reduce import ShardReducer
from thetahat.engine.workers import STARTING, DaskWorkers, Job
from thetahat.errors import MissingExtra, StorageError, UsageError

distributed = pytest.importorskip(
    "distributed", reason="workers need the extra dask (pip install 'dask[distributed]')"
)


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


def test_nothing_is_left_running() -> None:
    with DaskWorkers(workers=1) as workers:
        (pid,) = workers.client.run(os.getpid).values()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30.0)
