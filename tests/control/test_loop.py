"""The fixed-rate loop: deadlines, stalls, missing samples and signals, on a clock that runs when it
is told to, and on the machine's.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT
from plant_cases import load

import thetahat as th
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.controller import STOP_AFTER
from thetahat.control.journal import Journal
from thetahat.control.loop import Cycle, Follow, Loop, LoopReport
from thetahat.control.loop_timing import Histogram, MonotonicClock, VirtualClock
from thetahat.errors import StorageError, UsageError


class Bench:
    """A robot made of lists: what is read, how long work takes, and what was written when."""

    def __init__(self, samples: list | None = None, work: dict[int, float] | None = None) -> None:
        self.clock = VirtualClock()
        self.samples, self.work = samples, work or {}
        self.cycles: list[Cycle] = []
        self.written: list[tuple[float, object]] = []
        self.reads = 0

    def read(self) -> object:
        self.reads += 1
        return (
            self.reads
            if self.samples is None
            else self.samples[min(self.reads, len(self.samples)) - 1]
        )

    def control(self, cycle: Cycle, sample: object) -> object:
        self.cycles.append(cycle)
        self.clock.advance(self.work.get(cycle.number, 0.0))
        return sample

    def write(self, command: object) -> None:
        self.written.append((self.clock.now() * 1e-9, command))

    def run(self, rate: float = 1000.0, **options: object) -> LoopReport:
        known = ("stop_after", "stall")
        loop = Loop(
            rate, clock=self.clock, **{name: options.pop(name) for name in known if name in options}
        )
        return loop.run(self.read, self.control, self.write, **options)


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1000.0, 333.0, 50.0])
def test_cycles_begin_on_the_grid_and_there_are_as_many_as_the_duration_holds(rate: float) -> None:
    bench = Bench(work=dict.fromkeys(range(10_000), 0.4 / rate))
    report = bench.run(rate, duration=4.0)
    period = round(1e9 / rate) * 1e-9
    assert report.cycles == len(bench.cycles) == int(np.ceil(4.0 / period))
    assert np.max(np.abs([c.t - k * period for k, c in enumerate(bench.cycles)])) < 1e-9
    assert (report.missed, report.overruns, report.stalls, report.held) == (0, 0, 0, 0)
    assert (report.late_us.max, report.jitter_us.max) == (0.0, 0.0)
    assert report.cycle_us.p50 == pytest.approx(0.4e6 / rate, rel=0.02)
    assert report.reason == "the duration is over"


def test_a_late_cycle_skips_the_deadlines_it_missed_and_never_catches_up() -> None:
    bench = Bench(work={10: 0.0035})
    report = bench.run(duration=0.05)
    starts = np.array([c.t for c in bench.cycles])
    assert (report.overruns, report.missed, report.stalls) == (1, 2, 0)
    assert starts[11] == pytest.approx(0.0135), (
        "as soon as there is time, for the deadline at 13 ms"
    )
    assert starts[12] == pytest.approx(0.014), "and on the grid again"
    assert np.min(np.diff(starts)) >= 0.5e-3 - 1e-12
    assert report.cycles == 50 - 2
    assert not any(c.stalled for c in bench.cycles)
    assert bench.cycles[11].late == pytest.approx(0.0005)


@pytest.mark.parametrize("stall", [0.2, 0.5, 3.0])
def test_a_stall_is_told_once_and_deadlines_begin_anew(stall: float) -> None:
    bench = Bench(work={20: stall + 0.0013})
    report = bench.run(duration=stall + 0.1)
    starts = np.array([c.t for c in bench.cycles])
    assert [c.number for c in bench.cycles if c.stalled] == [21]
    assert report.stalls == 1
    assert np.min(np.diff(starts)) > 0.99e-3, "no burst"
    assert starts[21] == pytest.approx(0.02 + stall + 0.0013)
    assert np.allclose(np.diff(starts[21:]), 1e-3), "a new grid from there"
    assert report.missed == pytest.approx(stall * 1000, abs=2)
    assert report.jitter_us.max < 2000.0, "a stall is not jitter"


def test_a_stall_makes_the_controller_fall_back() -> None:
    told = []

    class Law:
        def __call__(self, t: float, q: object, dq: object, wanted: object) -> object:
            return q

        def resync(self) -> None:
            told.append(bench.clock.now())

    bench = Bench(samples=[(1.0, 2.0)])
    follow = Follow(Law(), lambda t: None)

    def control(cycle: Cycle, sample: tuple) -> object:
        bench.clock.advance(0.25 if cycle.number == 5 else 0.0)
        return follow(cycle, sample)

    Loop(1000.0, clock=bench.clock).run(bench.read, control, bench.write, duration=0.3)
    assert len(told) == 1
    assert not hasattr(follow, "halt")


# -- samples that do not come ----------------------------------------------------------------------


@pytest.mark.parametrize("gap", [1, 7, STOP_AFTER - 1])
def test_up_to_nineteen_missing_samples_hold_the_last_command(gap: int) -> None:
    bench = Bench(samples=[1, 2, 3, *[None] * gap, 4, 5])
    report = bench.run(duration=(gap + 5) * 1e-3, halt=lambda: "halt")
    assert [command for _, command in bench.written] == [1, 2, 3, *[3] * gap, 4, 5, "halt"]
    assert report.held == gap
    assert bench.cycles[3].missing == gap
    assert report.cycles == gap + 5


def test_the_twentieth_missing_sample_stops() -> None:
    bench = Bench(samples=[1, *[None] * 100])
    report = bench.run(duration=10.0, halt=lambda: "halt")
    assert [command for _, command in bench.written] == [1, *[1] * (STOP_AFTER - 1), "halt"]
    assert report.reason == "20 samples in a row are missing"
    assert report.cycles == 21
    few = Bench(samples=[1, *[None] * 100])
    assert few.run(duration=10.0, stop_after=3).cycles == 4
    none = Bench(samples=[None])
    none.run(duration=10.0)
    assert none.written == [], "before there is a command there is none to hold"


def test_samples_that_repeat_or_come_out_of_order_are_dropped() -> None:
    stamps = [1, 2, 2, 5, 3, 4, 6, float("nan"), 7]
    bench = Bench(samples=[(s,) for s in stamps])
    report = bench.run(duration=9e-3, stamp=lambda sample: sample[0])
    assert [command[0] for _, command in bench.written] == [1, 2, 2, 5, 5, 5, 6, 6, 7]
    assert len(bench.cycles) == 5
    assert (report.dropped, report.held) == (4, 4)


# -- ends ------------------------------------------------------------------------------------------


def test_ends_on_asking_from_inside_outside_and_by_condition() -> None:
    bench = Bench()
    assert bench.run(until=lambda: len(bench.cycles) == 7).cycles == 7
    bench = Bench()
    loop = Loop(100.0, clock=bench.clock)

    def control(cycle: Cycle, sample: object) -> object:
        if cycle.number == 3:
            loop.stop("enough")
        return sample

    report = loop.run(bench.read, control, bench.write)
    assert (report.cycles, report.reason) == (4, "enough")
    real = Loop(200.0)
    threading.Timer(0.1, real.stop).start()
    report = real.run(lambda: 1, lambda cycle, sample: sample, lambda command: None, duration=30.0)
    assert report.duration < 5.0


@pytest.mark.parametrize("where", ["read", "control", "write"])
def test_an_error_halts_and_is_the_one_that_is_told(where: str) -> None:
    bench = Bench()
    calls = {"read": bench.read, "control": bench.control, "write": bench.write}
    inner, count = calls[where], [0]

    def broken(*arguments: object) -> object:
        count[0] += 1
        if count[0] == 5:
            raise ValueError("the cable is out")
        return inner(*arguments)

    calls[where] = broken
    handlers = signal.getsignal(signal.SIGTERM), gc.isenabled()
    with pytest.raises(ValueError, match="the cable is out"):
        Loop(1000.0, clock=bench.clock).run(*calls.values(), halt=lambda: "halt")
    assert bench.written[-1][1] == "halt"
    assert (signal.getsignal(signal.SIGTERM), gc.isenabled()) == handlers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_in_order(number: signal.Signals, tmp_path: Path) -> None:
    """A process of its own: signalled while it runs, it halts, closes its journal, reports and
    returns 0.
    """
    code = f"""
import sys
from thetahat.control.journal import Journal
from thetahat.control.loop import Loop
with Journal({str(tmp_path / "run.journal")!r}) as journal:
    def control(cycle, sample):
        journal.append("cycle", cycle.t, index=float(cycle.number))
        if cycle.number == 20:
            print("running", flush=True)
        return 1
    report = Loop(500.0).run(lambda: 1, control, lambda command: None, halt=lambda: journal.append("halt", 0.0))
print(report.reason, report.cycles, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as child:
        assert child.stdout.readline() == "running\n"
        time.sleep(0.05)
        child.send_signal(number)
        out, _ = child.communicate(timeout=20)
    assert child.returncode == 0
    *reason, cycles = out.split()
    assert " ".join(reason) == f"signal {number.name}"
    kinds = Journal.report(tmp_path / "run.journal").kinds
    assert kinds == {"cycle": int(cycles), "halt": 1}


def test_the_collector_is_quiet_while_the_loop_runs_and_as_before_after_it() -> None:
    seen = []
    bench = Bench()
    loop = Loop(1000.0, clock=bench.clock)
    loop.run(
        bench.read,
        lambda cycle, sample: seen.append((gc.isenabled(), gc.get_freeze_count() > 0)),
        bench.write,
        duration=0.01,
    )
    assert set(seen) == {(False, True)}
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    seen.clear()
    Loop(1000.0, clock=bench.clock, quiet_gc=False).run(
        bench.read, lambda c, s: seen.append(gc.isenabled()), bench.write, duration=0.01
    )
    assert set(seen) == {True}


# -- a robot in the loop ---------------------------------------------------------------------------


def test_a_controller_in_the_loop_holds_halts_and_leaves_a_journal(tmp_path: Path) -> None:
    robot = load("arm4")
    law, q = ComputedTorque(robot), np.array([0.1, 0.2, 0.3, 0.4])
    still = np.zeros(4)
    samples = [(q, still)] * 5 + [(np.full(4, np.nan), still)] + [(q, still)] * 2 + [None] * 100
    bench = Bench(samples=samples)
    with Journal(tmp_path / "robot.journal") as journal:
        follow = Follow(law, lambda t: (q, still, still), journal=journal)
        report = Loop(1000.0, clock=bench.clock).run(bench.read, follow, bench.write, duration=10.0)
    assert report.reason.startswith("20 samples")
    commands = np.array([command for _, command in bench.written])
    assert np.all(np.isfinite(commands))
    assert np.max(np.abs(commands[-1] - th.gravity(robot, q))) < 1e-9, (
        "the loop ends with the torque that holds it still"
    )
    records = list(Journal.read(tmp_path / "robot.journal"))
    assert len(records) == 8
    assert np.array_equal([r.values["tau"] for r in records], commands[:8])
    assert np.isnan(records[5].values["q"]).all(), "what was measured is kept as it was measured"


def test_records_that_were_lost_are_an_alarm_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full from the first record on: control goes on, and the report says so."""
    q = np.zeros(4)
    bench = Bench(samples=[(q, q)])
    with suppress(StorageError), Journal(tmp_path / "full.journal") as journal:
        monkeypatch.setattr(Journal, "_write", _full)
        follow = Follow(ComputedTorque(load("arm4")), lambda t: (q, q, q), journal=journal)
        report = Loop(1000.0, clock=bench.clock).run(bench.read, follow, bench.write, duration=0.05)
    assert report.cycles == 50
    (alarm,) = report.alarms
    assert "No space left" in alarm
    assert "(50 records so far)" in alarm
    assert f"ALARM: {alarm}" in str(report)


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_on_the_machines_clock() -> None:
    report = Loop(500.0).run(
        lambda: 1, lambda cycle, sample: sample, lambda command: None, duration=0.4
    )
    assert report.duration >= 0.4 - 2e-3
    assert report.cycles + report.missed >= 190
    spun = Loop(500.0, clock=MonotonicClock(spin=2e-4)).run(
        lambda: 1, lambda cycle, sample: sample, lambda command: None, duration=0.1
    )
    assert spun.cycles > 10
    assert "cycles in" in str(report)


def test_quantiles_are_those_of_numpy_to_a_per_cent() -> None:
    times = np.exp(np.random.default_rng(0).normal(10.0, 2.0, 20_000)).astype(int)
    histogram = Histogram()
    for x in times.tolist():
        histogram.add(x)
    for fraction in (0.5, 0.9, 0.99):
        assert histogram.quantile(fraction) == pytest.approx(np.quantile(times, fraction), rel=0.02)
    assert histogram.largest == times.max()
    empty = Histogram()
    assert empty.quantiles().p99 == 0.0
    for x in (0, 10**20):
        empty.add(x)
    assert empty.quantiles().max == 1e17


def test_refusals_are_sentences() -> None:
    for options, words in (
        ({"rate": 0.0}, "rate is 0.0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"rate": 100.0, "stop_after": 0}, "stop_after is 0"),
        ({"rate": 100.0, "stall": -1.0}, "stall is -1.0"),
    ):
        with pytest.raises(UsageError, match=words):
            Loop(**options)
