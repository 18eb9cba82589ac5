"""Identification of a robotic leg of four joints while the data grow (paper, §VI): decimated
updates, an initial guess.
"""

from __future__ import annotations

import numpy as np

from thetahat import robots
from thetahat.control.computed_torque import ComputedTorque
from thetahat.data.prepare import prepare
from thetahat.excite.trajectories import Sinusoids
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import Columns
from thetahat.model.io.load import load
from thetahat.model.robot import Robot
from thetahat.online.config import FilterConfig, GateRules, Growing, SolverConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.perturb import perturb
from thetahat.plant.realism import Realism
from thetahat.report.trace_collector import Collector
from thetahat.studies import study_page
from thetahat.studies.arm import Experiment
from thetahat.studies.closed_loop import ClosedLoop
from thetahat.studies.study import Result, Tell, plant_of, silent, summary
from thetahat.studies.study_record import Recorder, score_over_time

NAME = "leg"
DURATION, RATE = 40.0, 1000.0  # [s], [Hz]
CUTOFF = 10.0  # [Hz] of the low-pass that the run is scored with
ALPHA = 0.9  # of the blend: the guess bounds the first estimates, and fades as data come
GUESS_SPREAD = 0.35  # how far the guess is from the leg


def experiment(engine: str, *, seed: int = 0, duration: float = DURATION) -> Experiment:
    """The leg moves under the nominal model; the identifier looks on."""
    nominal = load(robots.path("valkyrie_leg"))
    truth = perturb(nominal, seed=seed)
    model = nominal.without_drive().with_drive(viscous=True, coulomb=True)
    identifier = OnlineIdentifier(
        model,
        _guess(nominal, model, seed),
        filter=FilterConfig(held_torque=True),
        solver=SolverConfig(memory=Growing(), alpha=ALPHA, blend="always"),
        gate=GateRules(monitor=None),
    )
    controller = ComputedTorque(nominal, kp=400.0, kd=40.0)
    plant = plant_of(engine, truth, Realism.typical(truth, seed=seed), seed=seed)
    loop = ClosedLoop(
        plant, motion(nominal, duration), controller, identifier, rate=RATE, seed=seed
    )
    return Experiment(nominal, model, identifier, controller, loop)


def _guess(nominal: Robot, model: Robot, seed: int) -> np.ndarray:
    """Parameters that are far from the leg's, on purpose."""
    return Columns(
        model.with_parameters(perturb(nominal, spread=GUESS_SPREAD, seed=seed + 1).theta)
    ).x0


def run(engine: str, *, seed: int = 0, tell: Tell = silent, duration: float = DURATION) -> Result:
    """Run it to its end."""
    made = experiment(engine, seed=seed, duration=duration)
    nominal, model, identifier, loop = made.nominal, made.model, made.identifier, made.loop
    guess = _guess(nominal, model, seed)
    recorder = Recorder(nominal, loop.count, RATE, identifier)
    for cycle in loop.cycles():
        recorder.add(cycle)
        if cycle.k % 1000 == 0:
            tell("moving", cycle.k, loop.count)
    played = recorder.result()
    samples = prepare(played.log(NAME), model, cutoff=CUTOFF)
    whole = information(model, samples)
    t, r2 = score_over_time(whole, played)
    last = next(update.x_base for update in reversed(played.updates) if update.x_base is not None)
    final = whole.r2_per_joint(last)
    told = summary(
        NAME,
        engine,
        seed,
        played,
        r2=final,
        over_time=(t, r2),
        cycle=loop.seconds["cycle"],
        r2_guess=whole.r2(whole.base.map @ guess),
    )
    collector = Collector(model.with_parameters(identifier.estimate), nominal)
    collector.add(samples, "train")
    tracked = study_page.torque_as_it_was_known(whole, played, samples)
    sections = study_page.leg(told, played, collector.result(), tracked)
    text = (
        (
            f"R² of the estimate on the whole run: {r2[0]:.3f} at first, {r2[-1]:.4f} at the end;"
            f" of the guess {told['r2_guess']:.3f}."
        ),
    )
    return Result(told, "Leg", sections, nominal, played, text)


def motion(robot: Robot, duration: float = DURATION) -> Sinusoids:
    """Swinging and stepping in the air, inside the limits; no two frequencies have a common
    period.
    """
    centre = np.array([0.3, 0.05, -0.5, 0.95])
    amplitude = np.array([[0.4, 0.15], [0.25, 0.12], [0.8, 0.35], [0.6, 0.3]])
    frequency = np.array([[0.31, 0.83], [0.43, 1.01], [0.37, 0.71], [0.53, 0.97]])
    phase = np.array([[0.0, 1.0], [0.7, 2.1], [1.3, 0.4], [2.2, 1.7]])
    return Sinusoids(robot.joint_names, duration, centre, amplitude, frequency, phase, ramp=1.0)
