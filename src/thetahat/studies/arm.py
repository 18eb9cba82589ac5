"""Online identification and control of an arm of four joints (paper, §VI): tick-tock motion, a
wrong guess, the gate, and the switch.

In the paper's figure of joint errors the peak-to-peak stays, and the bias goes. That is what a
model of rigid bodies alone does to errors that friction makes, where the nominal model is good: the
variant `RIGID` (study `arm-rigid`). The study `arm` identifies friction too, which takes most of
the peak-to-peak with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from thetahat import robots
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.model_switch import ModelSwitch
from thetahat.data.prepare import prepare
from thetahat.excite.trajectories import Moves, tick_tock
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.scores import validate
from thetahat.model.io.load import load
from thetahat.model.robot import Robot
from thetahat.online.config import FilterConfig, SolverConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.perturb import perturb
from thetahat.report.trace_collector import Collector
from thetahat.studies import study_page
from thetahat.studies.closed_loop import Experiment
from thetahat.studies.study import (
    SPREAD,
    Progress,
    Result,
    assembled,
    cycle_time,
    fit_over_time,
    gate_sentence,
    numbers,
    optional_numbers,
    play,
    silent,
    summary,
)
from thetahat.studies.study_record import Run, score_over_time

RATE = 1000.0  # [Hz]
CUTOFF = 10.0  # [Hz] of the low-pass that the run is scored with
UPDATES, WINDOW, THRESHOLD = 3.0, 50, 0.95  # [Hz], samples, R² (paper)
ALPHA = 0.5  # of the blend with the wrong guess, until the buffer is full
KP, KD, SLEW = 400.0, 40.0, 50.0  # [1/s²], [1/s], [N·m/s]
ONE_WAY, DWELL, REPEATS = 1.6, 0.15, 20  # [s], [s]: 70 s in all
GUESS_SPREAD = 0.4  # how wrong the initial guess is, on purpose
FIRST, SECOND = (-0.6, -0.9, -1.0, -1.6), (0.9, 0.5, 0.9, -0.2)  # [rad]


@dataclass(frozen=True)
class Variant:
    """What is identified, and how good the nominal model is."""

    name: str
    title: str
    friction: tuple[str, ...]  # terms that are identified
    spread: float  # by which the simulated robot differs from the nominal one


FULL = Variant("arm", "Arm", ("viscous", "coulomb", "offset"), SPREAD)
RIGID = Variant("arm-rigid", "Arm, rigid bodies alone", (), 0.02)


def experiment(engine: str, *, seed: int = 0, variant: Variant = FULL) -> Experiment:
    """An arm that is not quite as its file says, a nominal model, and a guess that is far from
    both.
    """
    nominal = load(robots.path("valkyrie_arm"))
    model = nominal.with_drive(**dict.fromkeys(variant.friction, True))
    wrong = perturb(nominal, spread=GUESS_SPREAD, seed=seed + 5)
    guess = Columns(model.with_parameters(wrong.theta)).x0
    identifier = OnlineIdentifier(
        model,
        guess,
        UPDATES,
        WINDOW,
        THRESHOLD,
        filter=FilterConfig(held_torque=True),
        solver=SolverConfig(alpha=ALPHA),
    )
    controller = ModelSwitch(
        identifier, lambda robot: ComputedTorque(robot, kp=KP, kd=KD), slew=SLEW
    )
    moves = motion(nominal)
    return assembled(
        nominal,
        identifier,
        controller,
        moves,
        engine=engine,
        rate=RATE,
        seed=seed,
        spread=variant.spread,
    )


def motion(robot: Robot) -> Moves:
    """From one position to another and back and so forth (paper)."""
    return tick_tock(
        robot, np.array(FIRST), np.array(SECOND), time=ONE_WAY, repeats=REPEATS, dwell=DWELL
    )


def run(
    engine: str, *, seed: int = 0, progress: Progress = silent, variant: Variant = FULL
) -> Result:
    """Run it to its end."""
    parts = experiment(engine, seed=seed, variant=variant)
    record = play(parts, progress)
    before, after = spans(record)
    samples = prepare(record.log(variant.name), parts.model, cutoff=CUTOFF)
    whole = information(parts.model, samples)
    last = last_model(record, parts.model)
    collector = Collector(last, parts.nominal)
    collector.add(samples, "train")
    facts = summary(
        record,
        study=variant.name,
        plant=engine,
        seed=seed,
        r2=optional_numbers(record.updates[-1].gate.r2_per_joint),
        r2_over_time=fit_over_time(record),
        gate={**record.gate_summary(), "full_at": filled_at(record)},
        bias_before=numbers(bias(record, before)),
        bias_after=numbers(bias(record, after)),
        max_torque_step=parts.switch.max_torque_step,
        cycle_us=cycle_time(parts.loop.seconds["cycle"]),
        slew_bound=SLEW / RATE,
        peak_to_peak_before=numbers(swing(record, before)),
        peak_to_peak_after=numbers(swing(record, after)),
        switches=parts.switch.switches,
        fallbacks=parts.switch.fallbacks,
        r2_whole=numbers(validate(last, samples).r2_moving),
    )
    traces = collector.result()
    sections = study_page.arm(facts, record, score_over_time(whole, record), traces)
    return Result(facts, variant.title, sections, parts.nominal, record, (_story(facts),))


def last_model(run: Run, nominal: Robot) -> Robot:
    """The last identified model that commanded, or the nominal one."""
    used = [robot for _, robot in run.models if robot is not nominal]
    return used[-1] if used else nominal


def filled_at(run: Run) -> float | None:
    """[s] when the buffer was full."""
    return next((update.t for update in run.updates if update.gate.fill >= WINDOW), None)


def spans(run: Run) -> tuple[slice, slice]:
    """Whole periods of the motion before the switch, and as many at the end, when what came of the
    switch has settled.
    """
    period = 2.0 * (ONE_WAY + DWELL)
    opened = run.opened_at if run.opened_at is not None else run.t[-1] / 2.0
    count = max(1, int((opened - 1.0) / period))
    cycles = round(count * period * RATE)
    first = max(0, int(opened * RATE) - cycles)
    return slice(first, first + cycles), slice(len(run.t) - cycles, len(run.t))


def bias(run: Run, span: slice) -> np.ndarray:
    """Mean of the joint errors over whole periods, (nv,) [rad]."""
    return np.asarray(run.error[span].mean(axis=0))


def swing(run: Run, span: slice) -> np.ndarray:
    """Peak to peak of the joint errors, (nv,) [rad]."""
    return np.asarray(np.ptp(run.error[span], axis=0))


def _story(facts: dict[str, Any]) -> str:
    if facts["gate"]["opened_at"] is None:
        return gate_sentence(facts["gate"])
    before, after = (np.abs(np.array(facts[key])) for key in ("bias_before", "bias_after"))
    gate, step = facts["gate"], facts["max_torque_step"]
    full, opened = gate["full_at"], gate["opened_at"]
    return (
        f"The buffer was full at {full:.1f} s and the gate opened at {opened:.1f} s; the bias of"
        f" the joint errors fell from {before.max():.2g} to {after.max():.2g} rad at most, and no"
        f" switch changed a torque by more than {step:.2g} N·m per cycle."
        + ("" if gate["open_at_end"] else f" {gate_sentence(gate)}")
    )
