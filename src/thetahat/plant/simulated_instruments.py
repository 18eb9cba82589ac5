"""Instruments from simulation: the motion of a model that follows the log's under a controller.

Where no command was logged and no motion repeated, an identified robot is simulated along the
measured motion; its own motion has the log's torque noise in it only through the few numbers of the
model, and noise of the encoders only as far as the controller follows it. Identified anew with such
instruments, and simulated anew, until the parameters settle, this is IDIM-IV [Janot2014].
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.control.controller import Controller
from thetahat.data.memory_log import log_from_arrays
from thetahat.data.prepare import Settings, prepare
from thetahat.data.reference_motion import with_reference
from thetahat.data.samples import Samples, concatenate
from thetahat.errors import UsageError
from thetahat.model.robot import Robot
from thetahat.plant.plant import OwnPlant
from thetahat.plant.simulate import simulate
from thetahat.plant.tracking import Tracking

RATE = 250.0  # [Hz] of the simulated controller, at least
SHORTEST = 50  # rows of a run that is simulated


@dataclass(frozen=True, eq=False)
class _Path:
    """Rows of samples as a motion that a plant follows."""

    t: np.ndarray
    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray


def with_simulated_instruments(
    samples: Samples,
    robot: Robot,
    *,
    command: Samples | None = None,
    controller: Controller | None = None,
    rate: float | None = None,
) -> Samples:
    """Return samples with the motion of a simulated robot as instruments.

    Args:
        samples: with time stamps.
        robot: the current model, friction included; identify it anew and come back until it
            settles.
        command: the motion that is followed, by default the samples' own. One whose noise is not
            that of the samples (of the encoder's other rows, say) makes instruments that are free
            of it.
        controller: by default computed torque with the model's rigid bodies (`Tracking`).
        rate: of the controller [Hz], by default that of the samples or 250.

    """
    if samples.t is None:
        raise UsageError("the samples have no time stamps, so their motion cannot be simulated")
    followed = samples if command is None else command
    law = Tracking(robot.without_drive()) if controller is None else controller
    parts = []
    for run in _runs(samples):
        mine = samples.subset(run)
        assert mine.t is not None
        assert followed.t is not None
        inside = (followed.t >= mine.t[0]) & (followed.t <= mine.t[-1])
        if followed.run is not None and mine.run is not None and command is None:
            inside &= followed.run == mine.run[0]
        rows = followed.subset(inside)
        if len(rows) < SHORTEST:
            continue
        parts.append(_simulated(mine, rows, robot, law, rate))
    if not parts:
        raise UsageError(
            f"no run of the samples has {SHORTEST} rows to simulate; record longer motions"
        )
    return concatenate(parts, same_log=True)


def _runs(samples: Samples) -> list[np.ndarray]:
    """Rows of every run."""
    if samples.run is None:
        return [np.arange(len(samples))]
    return [np.flatnonzero(samples.run == run) for run in np.unique(samples.run)]


def _simulated(
    samples: Samples, followed: Samples, robot: Robot, law: Controller, rate: float | None
) -> Samples:
    """One run's samples with the simulated motion beside them, behind their low-pass."""
    t = followed.t
    assert t is not None
    path = _Path(t, followed.q, followed.dq, followed.ddq)
    tick = rate or max(RATE, 1.0 / (samples.period or np.inf))
    recording = simulate(OwnPlant(robot), path, rate=tick, controller=law)
    zero = np.zeros((len(recording.t), robot.nv))
    log = log_from_arrays(robot, t[0] + recording.t, recording.q, tau=zero, name="simulation")
    motion = prepare(log, robot, settings=_low_pass(samples, robot, tick))
    return with_reference(samples, replace(motion, run=None), robot)


def _low_pass(samples: Samples, robot: Robot, rate: float) -> Settings:
    """Return the settings of the samples' own low-pass, without the delay of torques."""
    given = samples.provenance.get("settings", {})
    speeds = tuple(given.get("min_speed") or ())
    return Settings(
        cutoff=min(samples.cutoff or 0.4 * rate, 0.4 * rate),
        min_speed=speeds if len(speeds) == robot.nv else (0.0,) * robot.nv,
        order=int(given.get("order", 4)),
        derivative=str(given.get("derivative", "butterworth")),
    )
