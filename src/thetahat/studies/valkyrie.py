"""All 44 joints of a humanoid in the loop of the arm's experiment, to show that it scales (paper,
§VII: no symbolic expressions).
"""

from __future__ import annotations

import numpy as np

from thetahat import robots
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.model_switch import ModelSwitch
from thetahat.excite.trajectories import Sinusoids
from thetahat.model.io.load import load
from thetahat.model.robot import Robot
from thetahat.online.config import FilterConfig, GateRules
from thetahat.online.identifier import OnlineIdentifier
from thetahat.studies import study_page
from thetahat.studies.closed_loop import Experiment
from thetahat.studies.study import (
    Progress,
    Result,
    assembled,
    cycle_time,
    fit_over_time,
    gate_sentence,
    optional_numbers,
    play,
    silent,
    summary,
)

NAME = "valkyrie"
DURATION, RATE = 30.0, 500.0  # [s], [Hz]
UPDATES, WINDOW, THRESHOLD = 3.0, 50, 0.95
KP, KD, SLEW = 400.0, 40.0, 50.0  # [1/s²], [1/s], [N·m/s]
REACH = 0.3  # of each joint's range
# of a joint's effort limit: errors below do not matter (a finger's whole torque is a hundredth of
# what its motor can do)
FLOOR = 0.005
SLOWEST, FASTEST = 0.2, 0.7  # [Hz]


def experiment(engine: str, *, seed: int = 0) -> Experiment:
    """A humanoid hung up by its pelvis that moves all its joints at once."""
    nominal = load(robots.path("valkyrie"))
    model = nominal.with_drive(viscous=True, coulomb=True)
    floor = [FLOOR * node.limits.effort for node in nominal.tree.independent]
    identifier = OnlineIdentifier(
        model,
        None,
        UPDATES,
        WINDOW,
        THRESHOLD,
        filter=FilterConfig(held_torque=True),
        gate=GateRules(floor=floor),
    )
    controller = ModelSwitch(
        identifier, lambda robot: ComputedTorque(robot, kp=KP, kd=KD), slew=SLEW
    )
    moves = motion(nominal)
    return assembled(nominal, identifier, controller, moves, engine=engine, rate=RATE, seed=seed)


def motion(robot: Robot) -> Sinusoids:
    """Two sinusoids per joint inside its limits, all frequencies apart."""
    rng = np.random.default_rng(7)
    limits = np.array([[node.limits.lower, node.limits.upper] for node in robot.tree.independent])
    centre, reach = limits.mean(axis=1), REACH * np.diff(limits, axis=1)[:, 0]
    frequency = np.column_stack(
        [rng.permutation(np.linspace(SLOWEST, FASTEST, robot.nv)) for _ in range(2)]
    )
    amplitude = reach[:, None] * np.array([0.65, 0.35])
    phase = rng.uniform(0.0, 2.0 * np.pi, (robot.nv, 2))
    return Sinusoids(robot.joint_names, DURATION, centre, amplitude, frequency, phase, ramp=1.5)


def run(engine: str, *, seed: int = 0, progress: Progress = silent) -> Result:
    """Run it to its end."""
    parts = experiment(engine, seed=seed)
    record = play(parts, progress)
    seconds, gate = parts.loop.seconds, parts.identifier.gate
    facts = summary(
        record,
        study=NAME,
        plant=engine,
        seed=seed,
        r2=optional_numbers(record.updates[-1].gate.r2_per_joint),
        r2_over_time=fit_over_time(record),
        gate=record.gate_summary(),
        max_torque_step=parts.switch.max_torque_step,
        cycle_us=cycle_time(seconds["cycle"]),
        slew_bound=SLEW / RATE,
        base_parameters=gate.structural_rank,
        rank=gate.rank,
        parts_us={part: cycle_time(each) | {"max": each.max} for part, each in seconds.items()},
    )
    text = (
        (
            f"{parts.nominal.nv} joints, {facts['base_parameters']} base parameters with friction."
            f" {gate_sentence(facts['gate'])}"
        ),
        f"Per cycle: control {seconds['control']}, identification {seconds['identify']}.",
    )
    sections = study_page.valkyrie(facts, record)
    return Result(facts, "Valkyrie", sections, parts.nominal, record, text)
