"""A study: what it is made of, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thetahat.control.loop_timing import Quantiles
from thetahat.errors import UsageError, known
from thetahat.model.robot import Robot
from thetahat.plant.plant import MujocoPlant, OwnPlant, Plant
from thetahat.plant.realism import Realism
from thetahat.report.section import Section
from thetahat.studies.study_record import Run

SCHEMA = "thetahat/study/1"
Tell = Callable[[str, int, int], None]  # what goes on, cycles done, cycles in all


def silent(what: str, done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, eq=False)
class Result:
    """What a study found: the summary of interface.md, the sections of its page, and tables to
    keep.
    """

    summary: dict[str, Any]
    title: str
    sections: tuple[Section, ...]
    robot: Robot
    run: Run
    text: tuple[str, ...] = field(default=())  # a few sentences for a reader at a terminal


def plant_of(engine: str, robot: Robot, realism: Realism | None, *, seed: int) -> Plant:
    """A simulated robot."""
    kinds = {"mujoco": MujocoPlant, "own": OwnPlant}
    if engine not in kinds:
        raise UsageError(f"plant is {engine!r}; plants: {known(kinds)}")
    return kinds[engine](robot, realism=realism, seed=seed)


def summary(
    study: str,
    engine: str,
    seed: int,
    run: Run,
    *,
    r2: np.ndarray | None,
    over_time: tuple[np.ndarray, np.ndarray] | None = None,
    gate: dict[str, Any] | None = None,
    bias: tuple[np.ndarray, np.ndarray] | None = None,
    max_torque_step: float | None = None,
    cycle: Quantiles | None = None,
    **more: Any,
) -> dict[str, Any]:
    """`summary.json`, schema thetahat/study/1; None where a study has no such thing."""
    before, after = (None, None) if bias is None else (numbers(part) for part in bias)
    return {
        "schema": SCHEMA,
        "study": study,
        "plant": engine,
        "seed": seed,
        "joints": list(run.robot.velocity_names),
        "r2": None if r2 is None else numbers(r2),
        "r2_over_time": (
            None if over_time is None else {"t": numbers(over_time[0]), "r2": numbers(over_time[1])}
        ),
        "gate": gate,
        "bias_before": before,
        "bias_after": after,
        "max_torque_step": max_torque_step,
        "cycle_us": None if cycle is None else {"p50": cycle.p50, "p99": cycle.p99},
        **more,
    }


def gate_sentence(gate: dict[str, Any]) -> str:
    """When the gate opened and why it did, and that it closed later, where it did."""
    if gate["opened_at"] is None:
        return f"The gate stayed closed: {gate['reason']}."
    said = f"The gate opened at {gate['opened_at']:.1f} s: {gate['reason']}."
    if not gate["closings"]:
        return said
    last, times = gate["closings"][-1], len(gate["closings"])
    often = "It closed" if times == 1 else f"It closed {times} times, last"
    return (
        f"{said} {often} at {last['t']:.1f} s:"
        f" {last['reason']}{', and opened again' if gate['open_at_end'] else ''}."
    )


def numbers(values: Any) -> list[float | None]:
    """Finite numbers, None for the others."""
    array = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    return [float(value) if np.isfinite(value) else None for value in array]
