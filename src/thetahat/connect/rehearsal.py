"""The rehearsal: the very motion in simulation, with planted parameters that must be recovered
before a robot moves.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from thetahat.connect.sim import ENGINES
from thetahat.dynamics import rigid_body
from thetahat.errors import NotIdentifiable
from thetahat.excite.trajectory import Motion
from thetahat.model.robot import Robot
from thetahat.pipeline.identify import identify
from thetahat.pipeline.settings import IdentifySettings
from thetahat.plant.perturb import perturb
from thetahat.plant.realism import Realism
from thetahat.plant.simulate import simulate
from thetahat.plant.tracking import Tracking

PLANTED = 0.1  # spread of the planted bodies, see `perturb`
SEED = 1717  # of the rehearsal, so that the same motion gets the same verdict
RECOVERED = 0.05  # of a joint's torque, RMS over other states, that may be left unexplained
SCALE = 0.02  # of the strongest joint's torque, which every joint's error is measured against
STATES = 500  # random ones, in the space and at the speeds of the motion


@dataclass(frozen=True)
class Rehearsal:
    """What a motion would show."""

    verdict: str  # of the identification
    error: float  # RMS torque error of the identified model, of the worst joint, relative
    error_file: float  # of the robot file
    joint: str  # the worst

    @property
    def passed(self) -> bool:
        """Whether the planted parameters were recovered: they predict torques of states that the
        motion does not go through. The verdict also depends on the robot file.
        """
        return self.error <= RECOVERED

    def __str__(self) -> str:
        return (
            f"rehearsal: the identification is {self.verdict}; planted torques are predicted within"
            f" {100 * self.error:.2g} % (the file's: {100 * self.error_file:.2g} %), worst at"
            f" {self.joint}"
        )


def rehearse(
    robot: Robot, motion: Motion, *, rate: float, engine: str, friction: tuple[str, ...]
) -> Rehearsal:
    """Play the motion on a simulated robot with planted bodies and friction, and identify it."""
    truth = perturb(robot, spread=PLANTED, seed=SEED)
    realism = replace(Realism.typical(truth, seed=SEED), jitter=0.0)
    plant = ENGINES[engine](truth, realism=realism, seed=SEED)
    recording = simulate(
        plant, motion, rate=rate, seed=SEED, controller=Tracking(realism.applied(robot))
    )
    settings = IdentifySettings(friction=friction, report=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = identify(robot, recording.log, settings=settings)
    except NotIdentifiable as error:
        raise NotIdentifiable(
            f"the rehearsal shows that the motion tells too little: {error}"
        ) from None
    return _compared(robot, result.robot, plant.robot, motion, result.verdict.level)


def _compared(
    nominal: Robot, identified: Robot, truth: Robot, motion: Motion, verdict: str
) -> Rehearsal:
    """Torques of the rigid bodies in random states, against those of the planted ones."""
    rng, shape = np.random.default_rng(SEED), (STATES, nominal.nv)
    q = rng.uniform(motion.q.min(axis=0), motion.q.max(axis=0), shape)
    states = (q, *(rng.normal(0.0, np.std(x, axis=0), shape) for x in (motion.dq, motion.ddq)))
    true, found, file = (
        rigid_body.inverse_dynamics(each, *states, rigid=True)
        for each in (truth, identified, nominal)
    )
    rms = np.sqrt(np.mean(true**2, axis=0))
    scale = np.maximum(rms, SCALE * float(np.max(rms)))
    errors, of_file = (
        np.sqrt(np.mean((each - true) ** 2, axis=0)) / scale for each in (found, file)
    )
    worst = int(np.argmax(errors))
    name = nominal.joint_names[worst]
    return Rehearsal(verdict, float(errors[worst]), float(of_file[worst]), name)
