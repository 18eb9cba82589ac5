"""A motor from a pendulum of known mass on a bench: what `thetahat bench` does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from thetahat import __version__
from thetahat.engine.protocol import NoProgress, Progress
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.files import as_text, make_folder, write_atomically
from thetahat.identification.actuators.motor_bench import (
    BASE,
    TERMS,
    UNITS,
    BenchFit,
    Pendulum,
    identify_motor,
    run_errors,
)
from thetahat.identification.verdict import Verdict, verdict_of
from thetahat.identification.verdict_reason import CORRECTED, SUSPECT, WRONG, Fields, Reason
from thetahat.model.robot import Robot
from thetahat.pipeline.bench_log import BenchColumns, BenchLog, pendulum_of, read_bench
from thetahat.pipeline.dataset import load_robot

SCHEMA = "thetahat/bench/1"
ANSWER = "bench.json"
HELD_OUT = 0.3  # of the runs, evenly spread
OVERFITTED = 3.0  # times the error of fitted runs
Z = 1.96  # of a 95 % interval


@dataclass(frozen=True, eq=False)
class BenchIdentification:
    """The result of `bench`: winding, rotor and friction law, errors of the motion, verdict."""

    robot: Robot
    pendulum: Pendulum
    log: BenchLog
    held_out: tuple[int, ...]  # runs
    fitted: BenchFit

    @property
    def verdict(self) -> Verdict:
        """Whether the result is good, usable or not usable, and why."""
        return Verdict.from_data(self.data["verdict"])

    @cached_property
    def data(self) -> Fields:
        """The answer as plain data, schema thetahat/bench/1."""
        errors = run_errors(self.fitted.motor, self.pendulum, self.log.runs)
        held = np.isin(np.arange(len(errors)), self.held_out)
        mean = {
            "train": float(np.mean(errors[~held])),
            "test": float(np.mean(errors[held])) if held.any() else None,
        }
        data: Fields = {
            "schema": SCHEMA,
            "joint": self.robot.joint_names[0],
            "parameters": self._parameters(),
            "friction_law": ["coulomb", "viscous", *self.fitted.terms],
            "laws": [{"law": law, "error": error} for law, error in self.fitted.tried.items()],
            "runs": [
                {"name": name, "held_out": bool(out), "duty_gain": gain, "error": float(error)}
                for name, out, gain, error in zip(
                    self.log.runs.names, held, self.log.gains, errors, strict=True
                )
            ],
            "error": {**mean, "command": self._command_error(held)},
            "swings_free": self.log.runs.swings_free,
            "pendulum": {"inertia": self.pendulum.inertia, "weight": self.pendulum.weight},
            "warnings": [],
            "provenance": {
                "robot_file": None if self.robot.source is None else str(self.robot.source),
                "logs": [{"path": path, "sha256": sha} for path, sha in self.log.sources],
                "version": __version__,
            },
        }
        return {**data, "verdict": self._verdict(data).as_data()}

    def _parameters(self) -> list[Fields]:
        """Winding, rotor, friction, each with its standard deviation; what runs do not tell apart
        is null, and its sum is given.
        """
        motor, free = self.fitted.motor, self.log.runs.swings_free
        names = [*BASE, *(n for term in self.fitted.terms for n in TERMS[term])]
        rows: list[Fields] = []
        for name in dict.fromkeys(names):
            hidden = not free and name in ("kt", "R", "viscous")
            value, std = (None, None) if hidden else (motor.values[name], motor.std(name))
            rows.append(_row(name, value, std, UNITS[name]))
        kt, resistance = motor.values["kt"], motor.values["R"]
        slope = {"kt": 1.0 / resistance, "R": -kt / resistance**2}
        rows.append(_row("kt/R", kt / resistance, self._spread(slope), "N·m/V"))
        back = kt**2 / resistance
        slope = {"kt": 2.0 * kt / resistance, "R": -back / resistance, "viscous": 1.0}
        total = back + motor.values["viscous"]
        rows.append(_row("kt²/R + viscous", total, self._spread(slope), UNITS["viscous"]))
        return rows

    def _spread(self, slope: dict[str, float]) -> float | None:
        """Return the standard deviation of a function of the parameters by its slopes."""
        motor = self.fitted.motor
        if motor.covariance is None:
            return None
        g = np.array([slope.get(name, 0.0) for name in motor.fitted])
        return float(np.sqrt(max(g @ motor.covariance @ g, 0.0)))

    def _command_error(self, held: np.ndarray) -> float | None:
        """Return the error of the command itself on held-out runs, where the motor is on."""
        errors = []
        runs = self.log.runs
        for k in np.flatnonzero(held):
            rows = runs.rows[runs.first[k] : runs.last[k]]
            on = rows[:, 5] > 0.5
            if np.any(on):
                errors.append(float(np.mean(np.abs(rows[on, 1] - rows[on, 2]))))
        return float(np.mean(errors)) if errors else None

    def _verdict(self, data: Fields) -> Verdict:
        error = data["error"]
        law = " + ".join(data["friction_law"])
        where = "fitted runs; none was held out" if error["test"] is None else "runs not fitted"
        value = error["train"] if error["test"] is None else error["test"]
        summary = f"open-loop error {value:.3g} rad on {where} (friction: {law})"
        return verdict_of(summary, list(_reasons(data)))

    def save(
        self, folder: str | os.PathLike[str], *, warnings: Sequence[str] = ()
    ) -> tuple[Path, ...]:
        """Write bench.json."""
        folder = Path(folder)
        make_folder(folder)
        data = {**self.data, "warnings": list(warnings)}
        return (write_atomically(folder / ANSWER, as_text(data)),)


def _reasons(data: Fields) -> Iterator[Reason]:
    test, train, command = (data["error"][key] for key in ("test", "train", "command"))
    if test is None:
        yield Reason(SUSPECT, "no run was held out")
    else:
        if command is not None and test > command:
            yield Reason(
                WRONG,
                f"the command itself predicts positions better ({command:.3g} rad against"
                f" {test:.3g}); check mass and length of the pendulum, and the sign of the angle",
            )
        if test > OVERFITTED * train:
            yield Reason(
                SUSPECT, f"the error of runs not fitted is {test / train:.2g} times that of others"
            )
    if not data["swings_free"]:
        yield Reason(
            CORRECTED,
            "kt, R and viscous friction are not told apart, as the motor is never off while it"
            " swings; kt/R and the sum of dampings are known: record a drop with the torque off",
        )


def _row(name: str, value: float | None, std: float | None, unit: str) -> Fields:
    interval = None if value is None or std is None else [value - Z * std, value + Z * std]
    return {"name": name, "unit": unit, "value": value, "std": std, "interval": interval}


def bench(
    robot: Robot | str | os.PathLike[str],
    logs: Sequence[str | Path],
    *,
    columns: BenchColumns | None = None,
    holdout: float = HELD_OUT,
    test_runs: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> BenchIdentification:
    """Identify a motor from runs of a pendulum of known mass and length.

    Args:
        robot: of one joint, the pendulum; its links are known.
        logs: with commanded and measured positions, duty (`pwm.<joint>`), `volts` and `enabled`.
        columns: what the logs do not state.
        holdout: share of the runs to score on, evenly spread; 0: none.
        test_runs: names of the runs to score on instead.
        progress: is told what goes on.

    """
    progress = progress or NoProgress()
    model = load_robot(robot, None)
    pendulum, hanging = pendulum_of(model)
    progress.stage("reading the log")
    log = read_bench(model, logs, columns or BenchColumns(), hanging)
    names, count = log.runs.names, len(log.runs.names)
    if test_runs is not None:
        unknown = [name for name in test_runs if name not in names]
        if unknown:
            raise UsageError(f"run {unknown[0]!r} is not in the log; runs: {', '.join(names[:20])}")
        held = tuple(k for k, name in enumerate(names) if name in test_runs)
    elif not 0.0 <= holdout < 1.0:
        raise UsageError(f"--holdout is {holdout:g}; give a share of the runs from 0 to below 1")
    else:
        number = min(round(holdout * count), count - 1) if holdout else 0
        held = tuple(np.linspace(count - 1, 1, number).round().astype(int).tolist())
    fitted = [k for k in range(count) if k not in held]
    if not fitted:
        raise NotIdentifiable("no run is left to fit; hold out fewer runs")
    result = identify_motor(log.runs.part(fitted), pendulum, stage=progress.stage, warm=log.warm)
    return BenchIdentification(model, pendulum, log, held, result)
