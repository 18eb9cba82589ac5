"""The steps of stepper.py in compiled code, where every joint has one degree of freedom and a motor
of its own.
"""

from __future__ import annotations

import numpy as np

from thetahat.dynamics import batch
from thetahat.plant.friction import Friction
from thetahat.plant.physics_engine import Engine, StepArguments


class CompiledSteps:
    """The kernels of plant_steps.py with their memory, for one engine and one friction."""

    def __init__(
        self, engine: Engine, arguments: StepArguments, constants: dict[str, np.ndarray]
    ) -> None:
        kernels, nv = batch.kernels().plant_steps, engine.robot.nv
        self._settle, self._advance = kernels.settle, kernels.advance
        friction = np.empty((kernels.FRICTION_SIZE, nv))
        for name, values in constants.items():
            friction[getattr(kernels, name.upper())] = values
        friction[kernels.ROTOR] = np.diag(engine.robot.drive.joint_armature())
        self._work = work = np.zeros((kernels.WORK_SIZE, nv))
        matrix, order = np.empty((nv, nv)), np.empty(nv, dtype=np.int64)
        model = (arguments.bodies, arguments.scratch, arguments.foreign, matrix, order)
        self._arguments = model, friction, work
        self._engine = engine  # whose memory the foreign function works on
        rows = (kernels.Q, kernels.DQ, kernels.SIGN, kernels.TAU)
        self._q, self._dq, self._sign, self._tau = (work[row] for row in rows)
        self._ddq: np.ndarray = work[kernels.K1]

    def settle(
        self, q: np.ndarray, dq: np.ndarray, sign: np.ndarray, tau: np.ndarray
    ) -> np.ndarray:
        """Decide who holds under this torque, in `sign`; q̈ then, an array that the next call
        overwrites.
        """
        self._q[:], self._dq[:], self._sign[:], self._tau[:] = q, dq, sign, tau
        self._settle(*self._arguments)
        sign[:] = self._sign
        return self._ddq

    def advance(
        self,
        q: np.ndarray,
        dq: np.ndarray,
        sign: np.ndarray,
        tau: np.ndarray,
        count: int,
        h: float,
        *,
        known: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """State after `count` steps of h seconds, who holds in `sign`; known: `settle` was the
        last call, with the same arguments.
        """
        if not known:  # else they are there already
            self._q[:], self._dq[:], self._sign[:], self._tau[:] = q, dq, sign, tau
        self._advance(*self._arguments, count, h, known)
        sign[:] = self._sign
        return self._q.copy(), self._dq.copy()


def compiled_steps(engine: Engine, friction: Friction) -> CompiledSteps | None:
    """The compiled steps of an engine, where there are some."""
    constants, arguments = friction.constants(), engine.step_arguments()
    if constants is None or arguments is None or not engine.robot.nv:
        return None
    return CompiledSteps(engine, arguments, constants)
