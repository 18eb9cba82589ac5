"""A study: what it is made of, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.loop_timing import Quantiles
from thetahat.control.model_switch import ModelSwitch
from thetahat.errors import UsageError, known
from thetahat.identification.verdict import FAIR, GOOD, Verdict, verdict_of
from thetahat.identification.verdict_reason import SUSPECT, WRONG, Data, Reason
from thetahat.model.robot import Robot
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.perturb import perturb
from thetahat.plant.plant import MujocoPlant, OwnPlant, Plant
from thetahat.plant.realism import Realism
from thetahat.report.section import Section
from thetahat.studies.closed_loop import ClosedLoop, Experiment
from thetahat.studies.study_record import Recorder, Run

SCHEMA = "thetahat/study/1"
COMMON = ("r2", "r2_over_time", "gate", "bias_before", "bias_after", "max_torque_step", "cycle_us")
SPREAD = 0.15  # by which the simulated robot differs from its file
REPORT_EVERY = 500  # cycles between two reports of progress
Progress = Callable[[str, int, int], None]  # activity, cycles done, cycles in all


def silent(activity: str, done: int, total: int) -> None:
    """Report no progress."""


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

    @property
    def verdict(self) -> Verdict:
        """Whether the model at the end can be used."""
        return Verdict.from_data(self.summary["verdict"])


def plant_of(engine: str, robot: Robot, realism: Realism | None, *, seed: int) -> Plant:
    """A simulated robot."""
    kinds = {"mujoco": MujocoPlant, "own": OwnPlant}
    if engine not in kinds:
        raise UsageError(f"plant is {engine!r}; plants: {known(kinds)}")
    return kinds[engine](robot, realism=realism, seed=seed)


def assembled(
    nominal: Robot,
    identifier: OnlineIdentifier,
    controller: ModelSwitch | ComputedTorque,
    motion: Any,
    *,
    engine: str,
    rate: float,
    seed: int,
    spread: float = SPREAD,
) -> Experiment:
    """The experiment on a simulated robot that is not quite as its file says (`spread` of `perturb`
    tells how far), with friction and sensors as they come.
    """
    truth = perturb(nominal, spread=spread, seed=seed)
    plant = plant_of(engine, truth, Realism.typical(truth, seed=seed), seed=seed)
    loop = ClosedLoop(plant, motion, controller, identifier, rate=rate, seed=seed)
    return Experiment(nominal, identifier.nominal, identifier, controller, loop)


def play(experiment: Experiment, progress: Progress) -> Run:
    """Run an experiment to its end, and record it."""
    loop = experiment.loop
    recorder = Recorder(experiment.nominal, loop.count, loop.rate, experiment.identifier)
    for cycle in loop.cycles():
        recorder.add(cycle)
        if cycle.k % REPORT_EVERY == 0:
            progress("moving", cycle.k, loop.count)
    return recorder.result()


def summary(run: Run, *, study: str, plant: str, seed: int, **values: Any) -> dict[str, Any]:
    """Return `summary.json`, schema thetahat/study/1; None where a study has no such thing."""
    common = dict.fromkeys(COMMON)
    joints = list(run.robot.velocity_names)
    head = {"schema": SCHEMA, "study": study, "plant": plant, "seed": seed, "joints": joints}
    facts = head | common | values
    return facts | {"verdict": study_verdict(facts).as_data()}


def study_verdict(facts: Data) -> Verdict:
    """Judge the model at the end of a study: what explains the torque, and what the gate said."""
    gate, name, seed = facts["gate"], facts["study"], facts["seed"]
    floating = facts.get("floating", False)
    other = f"thetahat study {name}{' --floating' if floating else ''} --seed {seed + 1} --out DIR"
    again = (other if floating else f"thetahat watch study {name}",)
    pairs = zip(facts["joints"], facts["r2"] or (), strict=False)
    scored = {joint: r2 for joint, r2 in pairs if r2 is not None}
    reasons = []
    if gate is not None and gate["opened_at"] is None:
        reasons.append(Reason(WRONG, f"the gate stayed closed: {gate['reason']}", again))
    elif gate is not None and not gate["open_at_end"]:
        text = f"the gate is closed at the end: {gate['closings'][-1]['reason']}"
        reasons.append(Reason(SUSPECT, text, again))
    if not scored:
        reasons.append(Reason(SUSPECT, "no torque was scored"))
    for effect, low, high in ((WRONG, -np.inf, FAIR), (SUSPECT, FAIR, GOOD)):
        named = [f"{joint} ({r2:.3f})" for joint, r2 in scored.items() if low <= r2 < high]
        if named:
            reasons.append(Reason(effect, f"R² is below {high} on {known(named, 6)}", again))
    lowest = min(scored, key=lambda joint: scored[joint], default=None)
    text = "no torque was scored"
    if lowest is not None:
        text = f"R² at least {scored[lowest]:.4f} on all joints (lowest: {lowest})"
    if gate is not None and gate["opened_at"] is not None:
        text += f"; the gate opened at {gate['opened_at']:.1f} s"
    return verdict_of(text, reasons, other)


def fit_over_time(run: Run) -> dict[str, Any]:
    """R² of every update's fit, by time."""
    r2 = run.over_updates("r2_fit")
    return over_time(r2.t, r2.y)


def over_time(t: Sequence[float] | np.ndarray, r2: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """A curve of R² for `summary.json`."""
    return {"t": numbers(t), "r2": numbers(r2)}


def cycle_time(quantiles: Quantiles) -> dict[str, float]:
    """[µs] of a cycle for `summary.json`."""
    return {"p50": quantiles.p50, "p99": quantiles.p99}


def gate_sentence(gate: dict[str, Any]) -> str:
    """When the gate opened and why it did, and that it closed later, where it did."""
    if gate["opened_at"] is None:
        return f"The gate stayed closed: {gate['reason']}."
    opened = f"The gate opened at {gate['opened_at']:.1f} s: {gate['reason']}."
    if not gate["closings"]:
        return opened
    last, times = gate["closings"][-1], len(gate["closings"])
    often = "It closed" if times == 1 else f"It closed {times} times, last"
    return (
        f"{opened} {often} at {last['t']:.1f} s:"
        f" {last['reason']}{', and opened again' if gate['open_at_end'] else ''}."
    )


def numbers(values: Any) -> list[float | None]:
    """Finite numbers, None for the others."""
    array: np.ndarray = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    return [float(value) if np.isfinite(value) else None for value in array]


def optional_numbers(values: np.ndarray | None) -> list[float | None] | None:
    """The same; None where there are no values at all."""
    return None if values is None else numbers(values)
