"""A solver that hangs: the loop goes on with the last valid model, and the next task gets another
worker.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from online_cases import arm, exactly, run, wrong

import thetahat as th
from thetahat.control.loop import Loop
from thetahat.control.loop_timing import MonotonicClock, VirtualClock
from thetahat.online import background_solver
from thetahat.online.background_solver import GIVE_UP, LOST, BackgroundSolver
from thetahat.online.config import SolverConfig
from thetahat.online.physical_model import Solution
from thetahat.online.sample_verdict import Events


def until(true: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_solver_that_hangs_leaves_the_model_in_use_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a valid model before: it stays to the last, the gate stays open, and once solvers answer
    again so does the next.
    """
    robot = arm()
    solve, hangs, asked = background_solver.solve, threading.Event(), []

    def hanging(*task: object) -> Solution:
        asked.append(threading.get_ident())
        hangs.wait(20.0)
        return solve(*task)

    rows = list(run(robot, 8.0).noisy(0.01).rows())
    with exactly(
        wrong(robot), rate=10.0, window=20, estimator=th.Consistent(), run_in="thread", timeout=5.0
    ) as one:
        for t, q, dq, tau, ddq in rows[:1000]:
            one.push(t, q, dq, tau, ddq)
            until(lambda: not one._learner.solver.busy)
        assert one.gate.open, one.gate.reason
        monkeypatch.setattr(background_solver, "solve", hanging)
        one._learner.solver._timeout, in_use = 0.02, None
        for t, q, dq, tau, ddq in rows[1000:1200]:
            one.push(t, q, dq, tau, ddq)
            in_use = in_use if asked == [] else in_use or one.robot
            time.sleep(0.001)
        assert one.gate.open, one.gate.reason
        assert one.robot is in_use
        assert any(
            "was given up; the last valid model stays" in event.sentence for event in one.events
        )
        assert len(set(asked)) >= 2  # another thread
        hangs.set()
        monkeypatch.setattr(background_solver, "solve", solve)
        one._learner.solver._lost, one._learner.solver._timeout = 0, 5.0
        for t, q, dq, tau, ddq in rows[1200:]:
            one.push(t, q, dq, tau, ddq)
            until(lambda: not one._learner.solver.busy)
        assert one.robot is not in_use


def test_threads_that_hang_are_not_given_up_without_end() -> None:
    """None can be ended from outside."""
    events, never = Events(), threading.Event()
    one = BackgroundSolver(SolverConfig(run_in="thread", timeout=1e-3), arm(), events)
    for _ in range(LOST):
        one._executor = one._start()
        one._future, one._since, one._late = (
            one._executor.submit(never.wait, 20.0),
            time.monotonic(),
            False,
        )
        until(lambda: one.ready or one._future is None)
    one.submit(None, None)
    assert one._future is None
    assert events.counts["solver"] == 2 * LOST
    never.set()


def test_a_loop_with_a_real_clock_solves_in_a_process_and_a_virtual_one_in_the_update() -> None:
    class Control:
        """What a loop asks of an online run."""

        def __init__(self) -> None:
            self.solver = BackgroundSolver(SolverConfig(), arm(), Events())

        def run_beside(self) -> None:
            self.solver.run_beside()

        def __call__(self, cycle: object, sample: object) -> None: ...

    for clock, place in ((VirtualClock(), "update"), (MonotonicClock(), "process")):
        control = Control()
        Loop(1000.0, clock=clock).run(lambda: 0, control, lambda command: None, duration=0.01)
        assert control.solver._place == place
        control.solver.close()


def test_a_chosen_place_stays_whatever_the_clock() -> None:
    one = BackgroundSolver(SolverConfig(run_in="update"), arm(), Events())
    one.run_beside()
    assert one._place == "update"


def test_a_script_without_a_guard_is_not_run_again_by_its_solver(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import thetahat as th\n"
        "from thetahat import robots\n"
        "print('this script runs', flush=True)\n"
        "one = th.OnlineIdentifier(th.load(robots.path('double_pendulum')))\n"
        "one.run_beside()\n"
        "print('worker:', one._learner.solver._warm.result(60.0) is not None)\n"
        "one.close()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("this script runs") == 1
    assert "worker: True" in done.stdout


def test_a_process_that_hangs_is_ended_and_another_answers() -> None:
    events = Events()
    one = BackgroundSolver(SolverConfig(run_in="process", timeout=0.1), arm(), events)
    try:
        one._warm.result(60.0)
        worker = next(iter(one._executor._processes.values()))
        one._future, one._since = one._executor.submit(time.sleep, 1e4), time.monotonic()
        until(lambda: one.ready or one._future is None)
        assert time.monotonic() - one._since >= GIVE_UP * 0.1
        until(lambda: not worker.is_alive())
        one._executor = one._start()
        assert one._executor.submit(int, "7").result(60.0) == 7
    finally:
        one.close()
