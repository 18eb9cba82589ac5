"""Offline identification of a planar double pendulum (paper, §VI): sinusoidal motion,
pseudo-inverse, no initial guess.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from thetahat import robots
from thetahat.control.computed_torque import ComputedTorque
from thetahat.data.prepare import prepare
from thetahat.data.samples import Samples
from thetahat.excite.trajectories import Sinusoids
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import information
from thetahat.model import parameters
from thetahat.model.io.load import load
from thetahat.model.robot import Robot
from thetahat.online.buffer_plan import RATE as UPDATES
from thetahat.online.buffer_plan import WINDOW
from thetahat.online.config import FilterConfig, GateRules, Growing, SolverConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.perturb import perturb
from thetahat.plant.realism import Realism
from thetahat.plant.simulate import Recording, simulate
from thetahat.report.trace_collector import Collector
from thetahat.report.traces import Traces
from thetahat.studies import study_page
from thetahat.studies.closed_loop import Experiment
from thetahat.studies.study import Progress, Result, assembled, numbers, plant_of, silent, summary
from thetahat.studies.study_record import Run

NAME = "double-pendulum"
DURATION, RATE = 20.0, 1000.0  # [s], [Hz]
KP, KD = 400.0, 40.0  # [1/s²], [1/s]
CUTOFF = 15.0  # [Hz] of the zero-phase low-pass: the motion ends at 1.1 Hz


def experiment(engine: str, *, seed: int = 0) -> Experiment:
    """The pendulum as it comes, under the nominal model, while an identifier with a growing memory
    and no guess looks on: for the live page.
    """
    nominal = load(robots.path("double_pendulum"))
    model = nominal.without_drive().with_drive(viscous=True, coulomb=True)
    identifier = OnlineIdentifier(
        model,
        rate=UPDATES,
        window=WINDOW,
        filter=FilterConfig(held_torque=True),
        solver=SolverConfig(memory=Growing()),
        gate=GateRules(monitor=None),
    )
    controller = ComputedTorque(nominal, kp=KP, kd=KD)
    moves = motion(nominal)
    return assembled(nominal, identifier, controller, moves, engine=engine, rate=RATE, seed=seed)


def run(engine: str, *, seed: int = 0, progress: Progress = silent) -> Result:
    """Twice: a pendulum without friction and noise, where the fit must be exact, and one as they
    come.
    """
    nominal = load(robots.path("double_pendulum"))
    truth, rigid = perturb(nominal, seed=seed), nominal.without_drive()

    def moved(robot: Robot, model: Robot, realism: Realism | None, what: str) -> Recording:
        return simulate(
            plant_of(engine, robot, realism, seed=seed),
            motion(model),
            rate=RATE,
            seed=seed,
            controller=ComputedTorque(model, kp=KP, kd=KD),
            progress=partial(progress, what),
        )

    clean = moved(truth.without_drive(), rigid, None, "without noise")
    typical = Realism.typical(truth, seed=seed)
    noisy = moved(truth, nominal, typical, "with friction and noise")
    true = Samples(
        q=clean.q, dq=clean.dq, ddq=clean.ddq, tau=clean.tau, t=clean.t, period=1.0 / RATE
    )
    exact, exact_traces = _fitted(rigid, rigid, true)
    model = rigid.with_drive(viscous=True, coulomb=True)
    real, traces = _fitted(model, nominal, prepare(noisy.log, model, cutoff=CUTOFF))
    counts, record = _seen(exact), Run.of(nominal, noisy)
    facts = summary(
        record,
        study=NAME,
        plant=engine,
        seed=seed,
        r2=numbers(real.r2_per_joint),
        r2_noise_free=numbers(exact.r2_per_joint),
        parameters_seen=counts,
    )
    sections = study_page.double_pendulum(facts, record, traces, exact_traces)
    text = (
        (
            f"R² {_list(exact.r2_per_joint, 7)} per joint without noise,"
            f" {_list(real.r2_per_joint, 4)} with friction and noise."
        ),
        "Parameters that planar motion shows: "
        + ", ".join(f"{count} of {name}" for name, count in counts.items())
        + ".",
    )
    return Result(facts, "Double pendulum", sections, nominal, record, text)


def motion(robot: Robot) -> Sinusoids:
    """A sinusoid at each joint, and a slower one that wanders; frequencies have no common
    period.
    """
    amplitude = np.array([[0.9, 0.4], [1.1, 0.5]])
    frequency = np.array([[0.41, 1.07], [0.67, 0.93]])
    phase, centre = np.array([[0.3, 1.1], [1.9, 0.2]]), np.zeros(2)
    return Sinusoids(robot.joint_names, DURATION, centre, amplitude, frequency, phase, ramp=1.0)


def _fitted(model: Robot, nominal: Robot, samples: Samples) -> tuple[Estimate, Traces]:
    """The pseudo-inverse of all data at once, and what there is to draw."""
    estimate = LeastSquares().estimate(information(model, samples))
    collector = Collector(model.with_parameters(estimate), nominal)
    collector.add(samples, "train")
    return estimate, collector.result()


def _seen(estimate: Estimate) -> dict[str, int]:
    """How many parameters of each link are effectively used (paper: three in a plane): base
    parameters that it leads.
    """
    leading = estimate.base.independent // parameters.SIZE
    return {name: int(np.sum(leading == b)) for b, name in enumerate(estimate.robot.body_names)}


def _list(values: np.ndarray, digits: int) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)
