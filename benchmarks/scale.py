"""Long logs on workers: samples per second on one and on two, memory of each, the second run from
the store, the cost of every stage.

`python -m benchmarks.scale` takes 2·10⁶ samples; `python -m benchmarks.scale 2e7` the full size
(about 3 GB, made in a temporary folder and deleted after; `--folder DIR` makes them there and keeps
them, and takes what is there). `--check` compares with one pass over all. What is missed of what is
asked for (75 % of linear, 50 times from the store, 1 GB per worker, the same estimate to 1e-10) is
said, with exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.make_shards import arm6, make
from thetahat.engine.cache import Store
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.engine.workers import DaskWorkers, Workers
from thetahat.identification.information import Information
from thetahat.model.robot import Robot

SAMPLES, LONG, FULL = (
    2_000_000,
    1_000_000,
    20_000_000,
)  # by default; from which on starting does not count; as the limits are meant
LIMIT = 1e9  # bytes of a worker
LINEAR, QUICKER, SAME = (
    0.75,
    50.0,
    1e-10,
)  # of two workers, of the second run from the store, of an estimate


class Asked:
    """What is asked for, and whether it was met."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def __call__(self, met: bool, what: str) -> str:
        """The sentence, judged."""
        if not met:
            self.missed.append(what)
        return f"{what}: {'met' if met else 'MISSED'}"


class Watched:
    """The largest resident memory of processes, looked at every 50 ms, and the processor time they
    took.
    """

    def __init__(self, pids: list[int]) -> None:
        self.peak = dict.fromkeys(pids, 0)
        self._before = self._processor()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.seconds = self._processor() - self._before

    def _processor(self) -> float:
        """User and system time of all of them [s]."""
        ticks = 0
        for pid in self.peak:
            with contextlib.suppress(OSError):
                ticks += sum(
                    map(
                        int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                    )
                )
        return ticks / os.sysconf("SC_CLK_TCK")

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for pid in self.peak:
                with contextlib.suppress(OSError):
                    size = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf(
                        "SC_PAGE_SIZE"
                    )
                    self.peak[pid] = max(self.peak[pid], size)


def fitted(robot: Robot) -> Robot:
    return robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)


class Stopwatch:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def run(
    robot: Robot, logs: Path, workers: Workers, store: Store | None
) -> tuple[Information, Stopwatch, int]:
    """(information, seconds of each stage, shards that were computed)."""
    watch, reducer = Stopwatch(), ShardReducer(workers, store)
    with watch("scan"):
        files = reducer.scan(logs, robot)
    with watch("choose"):
        settings = reducer.choose(files)
    with watch("fold"):
        found, told = reducer.fold(
            files, Fold(Preparation(robot, settings, files.log.locked), fitted(robot))
        )
    assert not told.failures, told.failures
    return found, watch, told.computed


def on_workers(
    count: int, robot: Robot, logs: Path, store: Path
) -> tuple[Information, Stopwatch, Watched]:
    """(information, seconds of each stage, what the workers used) of a first run with an empty
    store.
    """
    with DaskWorkers(workers=count) as workers, Store(store) as kept:
        pids = list(workers.client.run(os.getpid).values())
        workers.client.run(warm, robot)  # modules loaded and kernels compiled before the clock runs
        with Watched(pids) as used:
            found, watch, _ = run(robot, logs, workers, kept)
    return found, watch, used


def warm(robot: Robot) -> None:
    from thetahat.data.samples import Samples
    from thetahat.engine import reduce  # noqa: F401
    from thetahat.identification.information import information

    zero = np.zeros((64, robot.nv))
    information(fitted(robot), Samples(q=zero, dq=zero + 1.0, ddq=zero, tau=zero), threads=1)


def differ(a: Information, b: Information) -> float:
    """The largest difference of two estimates: of each base parameter, times its column, relative
    to the torque.
    """
    x, y = (th.solve(each, th.LeastSquares()).x_base for each in (a, b))
    stacked = a.stacked()
    return float(
        np.max(np.linalg.norm(stacked[:, :-1], axis=0) * np.abs(x - y))
        / np.linalg.norm(stacked[:, -1])
    )


def measure(robot: Robot, logs: Path, samples: int, asked: Asked, *, check: bool) -> None:
    warm(robot)
    size = sum(path.stat().st_size for path in logs.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        time.sleep(2.5)  # files written just now are not trusted by their stamps
        found, times = {}, {}
        for count in (1, 2):
            found[count], watch, used = on_workers(
                count, robot, logs, Path(folder) / f"store{count}"
            )
            times[count] = watch.total
            stages = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in watch.seconds.items())
            peak = max(used.peak.values())
            print(
                f"   {count} worker{'s' * (count > 1)}: {watch.total:7.1f} s ({stages}),"
                f" {samples / watch.total:9,.0f} samples/s, {size / watch.total / 1e6:5.0f} MB/s;"
                f" {used.seconds:.0f} core-seconds, {samples / used.seconds:,.0f} samples each;"
                f" memory of a worker {peak / 1e6:.0f} MB;"
                f" {asked(peak <= LIMIT, f'at most {LIMIT / 1e6:.0f} MB')}"
            )
        gain, wanted = times[1] / times[2], f"at least {LINEAR:.0%} from {LONG:,} samples on"
        print(
            f"   1 → 2 workers: {gain:.2f} times;"
            f" {asked(samples < LONG or gain >= 2.0 * LINEAR, f'{gain / 2.0:.0%} of linear, {wanted}')}"
        )
        with Store(Path(folder) / "store2") as kept:
            again, watch, computed = run(robot, logs, Workers(), kept)
        stages = ", ".join(
            f"{name} {1e3 * seconds:.0f} ms" for name, seconds in watch.seconds.items()
        )
        quicker = times[2] / watch.total
        said = asked(
            quicker >= QUICKER and not computed,
            f"{quicker:.0f} times faster, at least {QUICKER:.0f}",
        )
        print(f"   again, from the store: {watch.total:.3f} s ({stages}); {said}")
        same = all(
            np.array_equal(a, b) and np.array_equal(a, c)
            for a, b, c in zip(found[1].factors, found[2].factors, again.factors, strict=True)
        )
        kept_bytes = sum(
            path.stat().st_size for path in Path(folder, "store2").rglob("*") if path.is_file()
        )
        factor = sum(R.nbytes for R in again.factors)
        print(
            f"   {asked(same, 'the same factors to the last bit')}; a factor has {factor / 1e3:.0f}"
            f" kB, the store {kept_bytes / 1e6:.1f} MB"
        )
        whole_verb(robot, logs, Path(folder), asked, full=samples >= FULL)
    if check:
        from thetahat.data.log import read_log
        from thetahat.data.prepare import choose, prepare_batches
        from thetahat.identification.information import information

        began = time.perf_counter()
        log = read_log(logs, robot)
        one = information(fitted(robot), prepare_batches(log, robot, settings=choose(log, robot)))
        off = differ(one, again)
        seconds = time.perf_counter() - began
        print(
            f"   one pass, in one process of two threads: {seconds:.1f} s;"
            f" {asked(off <= SAME, f'its estimate differs by {off:.1e}, at most {SAME}')}"
        )


def whole_verb(robot: Robot, logs: Path, folder: Path, asked: Asked, *, full: bool) -> None:
    """`thetahat identify --workers 2 --store` as a user starts it: once, and again with nothing
    new. full: so long that Python's start is little.
    """
    seconds, answers = [], []
    for _ in range(2):
        began = time.perf_counter()
        given = [
            str(robot.source),
            str(logs),
            "--out",
            str(folder / "out"),
            "--workers",
            "2",
            "--store",
            str(folder / "store"),
            "--json",
            "--quiet",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "thetahat.cli", "identify", *given],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds.append(time.perf_counter() - began)
        answers.append(json.loads(done.stdout))
    quicker = seconds[0] / seconds[1]
    first, again = ([each["value"] for each in answer["base_parameters"]] for answer in answers)
    print(
        f"   thetahat identify --workers 2 --store: {seconds[0]:.1f} s, and again {seconds[1]:.1f}"
        " s, start-up of Python included"
        f" ({asked(not full or quicker >= QUICKER, f'{quicker:.0f} times faster, at least {QUICKER:.0f} at full size')};"
        f" {asked(first == again, 'the same estimate')})"
    )


def main(arguments: list[str] | None = None) -> None:
    met = Asked()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("samples", nargs="?", type=lambda text: int(float(text)), default=SAMPLES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args([] if arguments is None else arguments)
    with contextlib.ExitStack() as stack:
        folder = asked.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if (folder / "logs").is_dir():
            robot, logs = arm6(folder), folder / "logs"
        else:
            robot, logs, _ = make(folder, asked.samples)
        size = sum(path.stat().st_size for path in logs.iterdir())
        print(
            f"\n{asked.samples:,} samples of {robot.nv} joints in {len(list(logs.iterdir()))}"
            f" Parquet files, {size / 1e9:.2f} GB"
        )
        measure(robot, logs, asked.samples, met, check=asked.check)
    if met.missed:
        raise SystemExit(f"missed: {'; '.join(met.missed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
