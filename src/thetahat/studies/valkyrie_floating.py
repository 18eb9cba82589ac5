"""A humanoid that stands on its feet and sways, identified online: its feedforward comes from the
file until the gate opens, then from the identified robot.

The same sway is played twice, so that errors before and after the switch are of the same motion.
"""

from __future__ import annotations

import time

import numpy as np

from thetahat import robots
from thetahat.control.loop_timing import Histogram
from thetahat.errors import UsageError
from thetahat.model.floating_base import ground_of, replace_ground, with_ground, without_ground
from thetahat.model.io.load import load
from thetahat.model.robot import Robot
from thetahat.online.config import FLOATING_CUTOFF, FilterConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.ground_sensors import GroundSensors
from thetahat.plant.perturb import perturb
from thetahat.plant.realism import Realism
from thetahat.plant.stance import StandingMotion, centre_of_mass, feedforward, stand, sway
from thetahat.plant.standing_plant import (
    StandingRecording,
    StandingSample,
    stand_and_sway,
)
from thetahat.report.traces import Series
from thetahat.studies import study_page
from thetahat.studies.study import (
    REPORT_EVERY,
    SPREAD,
    Progress,
    Result,
    cycle_time,
    fit_over_time,
    gate_sentence,
    optional_numbers,
    silent,
    summary,
)
from thetahat.studies.study_record import DRAWN, GateChange, Run, Update
from thetahat.studies.valkyrie import NAME

FEET = ("left_foot", "right_foot")
PERIOD, RATE, KNOTS = 20.0, 500.0, 100.0  # [s] of the sway, [Hz] of the loop and of the motion
SIZE = 1.0  # of the sway: the knees carry it with a quarter of their torque to spare
AGAIN = 4.0  # [s] between two feedforwards of newer models
FADE = 1.0  # [s] from one feedforward to the next
Errors = dict[str, list[float] | float]  # RMS by what is in error
START, END = 0.2, 0.05  # of each pass, at its ends, that are not compared


class IdentifiedFeedforward:
    """Identifies the robot, and gives the loop the identified robot's feedforward while the gate is
    open.
    """

    def __init__(
        self,
        nominal: Robot,
        identifier: OnlineIdentifier,
        motion: StandingMotion,
        progress: Progress = silent,
    ) -> None:
        self.nominal, self.identifier, self.motion = nominal, identifier, motion
        self.updates: list[Update] = []
        self.gate: list[GateChange] = []
        self.cycle = Histogram()
        count = len(motion.t)
        self.identified = np.zeros(count, dtype=bool)
        self.used = np.zeros((count, nominal.nv))  # feedforward torques
        self.ahead = feedforward(nominal, motion)
        self._nominal_ahead = self.ahead
        self._model, self._since = nominal, -np.inf
        self.q, self.dq = np.empty((count, nominal.nq)), np.empty((count, nominal.nv))
        self._progress = progress

    def __call__(self, sample: StandingSample) -> np.ndarray | None:
        """Take what was measured; return the feedforward to go on with, where it changes."""
        began, identifier = time.thread_time_ns(), self.identifier
        identifier.push(sample.t, sample.q, sample.dq, sample.tau, wrenches=sample.wrenches)
        self.cycle.add(time.thread_time_ns() - began)
        k = sample.k
        self.q[k], self.dq[k] = sample.q, sample.dq
        state = identifier.gate
        if state.open != (bool(self.gate) and self.gate[-1].open):
            self.gate.append(GateChange(sample.t, state.open, state.reason))
        if identifier.updates > len(self.updates):
            estimate = identifier.estimate
            x_base = None if estimate is None else estimate.x_base
            self.updates.append(Update(sample.t, state, x_base))
        self.identified[k] = state.open
        self.used[k] = self.ahead[k]
        if k % REPORT_EVERY == 0:
            self._progress("swaying", k, len(self.identified))
        return self._changed(sample, identifier.robot if state.open else None)

    def _changed(self, sample: StandingSample, model: Robot | None) -> np.ndarray | None:
        """The feedforward of another model, faded in from the present one."""
        wanted = self.nominal if model is None else model
        newer = sample.t - self._since >= AGAIN or (wanted is self.nominal)
        if wanted is self._model or not newer:
            return None
        self._model, self._since = wanted, sample.t
        new = self._nominal_ahead
        if model is not None:
            standing = replace_ground(model.without_drive(), ground_of(self.nominal))
            new = self.ahead.copy()
            rest = StandingMotion(*(x[sample.k :] for x in vars(self.motion).values()))
            new[sample.k :] = feedforward(standing, rest)
        t = self.motion.t - sample.t
        part = np.clip(t / FADE, 0.0, 1.0)[:, None]
        self.ahead = (1.0 - part) * self.ahead + part * new
        return self.ahead


def played_twice(nominal: Robot, *, seconds: float, size: float) -> StandingMotion:
    """The same sway two times, which begins and ends standing."""
    once = sway(nominal, stand(nominal), duration=seconds, rate=KNOTS, size=size, seed=0)
    t = np.concatenate([once.t, once.t[-1] + once.t[1:]])
    parts = (np.concatenate([x, x[1:]]) for x in (once.q, once.dq, once.ddq))
    return StandingMotion(t, *parts).resampled(nominal, np.arange(round(t[-1] * RATE)) / RATE)


def run(
    engine: str, *, seed: int = 0, progress: Progress = silent, seconds: float = PERIOD
) -> Result:
    """Run it to its end. seconds: of the sway, which is played twice."""
    if engine != "mujoco":
        raise UsageError(f"plant is {engine!r}; a robot that stands on the ground needs mujoco")
    fixed = load(robots.path("valkyrie"))
    free = load(robots.path("valkyrie"), floating_base=True).without_drive()
    nominal = with_ground(free, (), FEET)
    truth = perturb(nominal, spread=SPREAD, seed=seed)
    motion = played_twice(nominal, seconds=seconds, size=SIZE)
    model = without_ground(nominal).with_drive(viscous=True, coulomb=True)
    filtering = FilterConfig(cutoff=FLOATING_CUTOFF, held_torque=True)
    with OnlineIdentifier(model, filter=filtering) as identifier:
        follower = IdentifiedFeedforward(nominal, identifier, motion, progress)
        recording = stand_and_sway(
            truth,
            nominal,
            motion,
            rate=RATE,
            realism=Realism.typical(truth, seed=seed),
            sensors=GroundSensors.typical(truth.mass * float(np.linalg.norm(truth.gravity))),
            seed=seed,
            follower=follower,
        )
        identified, state = identifier.robot, identifier.gate
    record = _record(fixed, follower, recording)
    before, after = _passes(truth, follower, recording)
    facts = summary(
        record,
        study=NAME,
        floating=True,
        plant=engine,
        seed=seed,
        r2=None if state.r2_per_joint is None else optional_numbers(state.r2_per_joint[6:]),
        r2_over_time=fit_over_time(record),
        gate=record.gate_summary(),
        cycle_us=cycle_time(follower.cycle.quantiles()),
        mass={"true": truth.mass, "nominal": nominal.mass, "identified": identified.mass},
        com_error_mm={
            name: _com_error(truth, robot, recording.q[0])
            for name, robot in (("nominal", nominal), ("identified", identified))
        },
        before=before,
        after=after,
    )
    text = (
        f"{fixed.nv} joints on two feet. {gate_sentence(facts['gate'])}",
        f"Total mass {identified.mass:.2f} kg, of the true robot {truth.mass:.2f} kg, of the file"
        f" {nominal.mass:.2f} kg.",
    )
    sections = study_page.valkyrie_floating(facts, record, _sway_lines(recording))
    return Result(facts, "Valkyrie on its feet", sections, fixed, record, text)


def _record(fixed: Robot, follower: IdentifiedFeedforward, recording: StandingRecording) -> Run:
    """The joints' part of the run, for the figures that all studies share."""
    wanted, q = recording.wanted[:, 7:], recording.q[:, 7:]
    return Run(
        fixed,
        recording.t,
        follower.q[:, 7:],
        follower.dq[:, 6:],
        recording.tau[:, 6:],
        wanted,
        wanted - q,
        follower.identified,
        tuple(follower.updates),
        max(1, round(RATE / DRAWN)),
        gate=tuple(follower.gate),
    )


def _passes(
    truth: Robot, follower: IdentifiedFeedforward, recording: StandingRecording
) -> tuple[Errors, Errors]:
    """Errors of the first pass and of the second over the same part of the motion."""
    half = len(recording.t) // 2
    first, last = round(START * half), round((1.0 - END) * half)
    feedback = recording.tau - follower.used
    before, after = (
        _errors(truth, recording, feedback, slice(at + first, at + last)) for at in (0, half)
    )
    return before, after


def _errors(
    truth: Robot, recording: StandingRecording, feedback: np.ndarray, rows: slice
) -> Errors:
    """RMS errors of base, centre of mass and torque over some rows."""
    off = recording.q[rows, :6] - recording.wanted[rows, :6]
    com = centre_of_mass(truth, recording.q[rows]) - centre_of_mass(truth, recording.wanted[rows])
    rms = np.sqrt(np.mean(np.hstack([1e3 * off[:, :3], 2e3 * off[:, 3:], 1e3 * com]) ** 2, axis=0))
    return {
        "base_mm": rms[:3].tolist(),
        "tilt_mrad": rms[3:6].tolist(),
        "com_mm": rms[6:].tolist(),
        "feedback_torque": float(np.sqrt(np.mean(feedback[rows, 6:] ** 2))),
        "torque": float(np.sqrt(np.mean(recording.tau[rows, 6:] ** 2))),
    }


def _com_error(truth: Robot, robot: Robot, q: np.ndarray) -> list[float]:
    """[mm] of the centre of mass in a posture, (3,)."""
    off = 1e3 * (centre_of_mass(robot, q) - centre_of_mass(truth, q))
    return [float(each) for each in off]


def _sway_lines(recording: StandingRecording) -> dict[str, Series]:
    """[mm] of the base from where it was to be."""
    step = max(1, round(RATE / DRAWN))
    off = 1e3 * (recording.q[::step, :3] - recording.wanted[::step, :3])
    return {name: Series(recording.t[::step], off[:, k]) for k, name in enumerate("xyz")}
