"""Identification of a robotic leg of four joints while the data grow (paper, §VI): decimated
updates, an initial guess.
"""

from __future__ import annotations

import numpy as np

from thetahat import robots
from thetahat.control.computed_torque import ComputedTorque
from thetahat.data.prepare import prepare
from thetahat.errors import UsageError
from thetahat.excite.trajectories import Sinusoids
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import Columns
from thetahat.model.io.load import load
from thetahat.model.robot import Robot
from thetahat.online.buffer_plan import RATE as UPDATES
from thetahat.online.buffer_plan import WINDOW
from thetahat.online.config import FilterConfig, GateRules, Growing, SolverConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.perturb import perturb
from thetahat.report.trace_collector import Collector
from thetahat.studies import study_page
from thetahat.studies.closed_loop import Experiment
from thetahat.studies.study import (
    Progress,
    Result,
    assembled,
    cycle_time,
    numbers,
    over_time,
    play,
    silent,
    summary,
)
from thetahat.studies.study_record import score_over_time

NAME = "leg"
DURATION, RATE = 40.0, 1000.0  # [s], [Hz]
CUTOFF = 10.0  # [Hz] of the low-pass that the run is scored with
ALPHA = 0.9  # of the blend: the guess bounds the first estimates, and fades as data come
GUESS_SPREAD = 0.35  # how far the guess is from the leg


def experiment(engine: str, *, seed: int = 0, duration: float = DURATION) -> Experiment:
    """The leg moves under the nominal model; the identifier looks on."""
    nominal = load(robots.path("valkyrie_leg"))
    model = nominal.without_drive().with_drive(viscous=True, coulomb=True)
    identifier = OnlineIdentifier(
        model,
        _guess(nominal, model, seed),
        rate=UPDATES,
        window=WINDOW,
        filter=FilterConfig(held_torque=True),
        solver=SolverConfig(memory=Growing(), alpha=ALPHA, blend="always"),
        gate=GateRules(monitor=None),
    )
    controller = ComputedTorque(nominal, kp=400.0, kd=40.0)
    moves = motion(nominal, duration)
    return assembled(nominal, identifier, controller, moves, engine=engine, rate=RATE, seed=seed)


def _guess(nominal: Robot, model: Robot, seed: int) -> np.ndarray:
    """Parameters that are far from the leg's, on purpose."""
    wrong = perturb(nominal, spread=GUESS_SPREAD, seed=seed + 1)
    return Columns(model.with_parameters(wrong.theta)).x0


def run(
    engine: str, *, seed: int = 0, progress: Progress = silent, duration: float = DURATION
) -> Result:
    """Run it to its end."""
    parts = experiment(engine, seed=seed, duration=duration)
    nominal, model = parts.nominal, parts.model
    record = play(parts, progress)
    samples = prepare(record.log(NAME), model, cutoff=CUTOFF)
    whole = information(model, samples)
    t, r2 = score_over_time(whole, record)
    known = [update.x_base for update in record.updates if update.x_base is not None]
    estimate = parts.identifier.estimate
    if not known or estimate is None:
        raise UsageError(f"{duration:g} s are too short for an update; give a longer duration")
    facts = summary(
        record,
        study=NAME,
        plant=engine,
        seed=seed,
        r2=numbers(whole.r2_per_joint(known[-1])),
        r2_over_time=over_time(t, r2),
        cycle_us=cycle_time(parts.loop.seconds["cycle"]),
        r2_guess=whole.r2(whole.base.map @ _guess(nominal, model, seed)),
    )
    collector = Collector(model.with_parameters(estimate), nominal)
    collector.add(samples, "train")
    tracked = study_page.torque_as_it_was_known(whole, record, samples)
    sections = study_page.leg(facts, record, collector.result(), tracked)
    text = (
        (
            f"R² of the estimate on the whole run: {r2[0]:.3f} at first, {r2[-1]:.4f} at the end;"
            f" of the guess {facts['r2_guess']:.3f}."
        ),
    )
    return Result(facts, "Leg", sections, nominal, record, text)


def motion(robot: Robot, duration: float = DURATION) -> Sinusoids:
    """Swinging and stepping in the air, inside the limits; no two frequencies have a common
    period.
    """
    centre = np.array([0.3, 0.05, -0.5, 0.95])
    amplitude = np.array([[0.4, 0.15], [0.25, 0.12], [0.8, 0.35], [0.6, 0.3]])
    frequency = np.array([[0.31, 0.83], [0.43, 1.01], [0.37, 0.71], [0.53, 0.97]])
    phase = np.array([[0.0, 1.0], [0.7, 2.1], [1.3, 0.4], [2.2, 1.7]])
    return Sinusoids(robot.joint_names, duration, centre, amplitude, frequency, phase, ramp=1.0)
