"""Parameters of position-controlled drives, and which of them are free in a fit.

A fit sees the logarithm of kp, and friction, rotor inertia, offset and torque limit per kp: where
neither gravity nor the links' inertia show a joint's scale, log kp is the one direction that the
log does not tell, and the ratios are still known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.dynamics.batch import kernels

# In the order of the columns of kernels/drive_simulation.py.
NAMES = (
    *("kp", "kd", "viscous", "coulomb", "armature", "delay", "limit", "bias", "offset"),
    *("stribeck", "stribeck_speed", "load", "quadratic", "deadband", "backlash", "back_emf"),
)
KP, KD, VISCOUS, COULOMB, ARMATURE, DELAY, LIMIT, BIAS, OFFSET = range(9)
STRIBECK, STRIBECK_SPEED, LOAD, QUADRATIC, DEADBAND, BACKLASH, BACK_EMF = range(9, 16)
PER_KP = (KD, VISCOUS, COULOMB, ARMATURE, LIMIT, OFFSET, STRIBECK, QUADRATIC, BACK_EMF)
LOGARITHMIC = (KP, LIMIT, STRIBECK_SPEED)
NO_LIMIT = 1e9  # [N·m] of a drive whose torque is not bounded
# Bounds and small steps of what the fit sees: logarithms, ratios to kp, SI units.
LOWER = {KD: 0.0, VISCOUS: 0.0, COULOMB: 0.0, ARMATURE: 0.0, DELAY: 0.0, STRIBECK: 0.0, LOAD: 0.0}
LOWER |= {QUADRATIC: 0.0, DEADBAND: 0.0, BACKLASH: 0.0, BACK_EMF: 0.0}
LOWER |= {BIAS: -0.5, KP: -7.0, LIMIT: -10.0, STRIBECK_SPEED: -7.0}
UPPER = {DELAY: 0.25, BIAS: 0.5, LOAD: 0.95, DEADBAND: 0.2, KP: 12.0, STRIBECK_SPEED: 2.0}
UPPER |= {BACKLASH: 0.3}
STEPS = {KP: 0.01, LIMIT: 0.01, STRIBECK_SPEED: 0.02, VISCOUS: 2e-4, COULOMB: 2e-4, KD: 2e-4}
STEPS |= {ARMATURE: 1e-5, DELAY: 5e-4, BIAS: 1e-3, OFFSET: 2e-4, STRIBECK: 2e-4, LOAD: 2e-3}
STEPS |= {QUADRATIC: 2e-5, DEADBAND: 2e-4, BACKLASH: 2e-4, BACK_EMF: 2e-4}
# Standard deviations of the prior, around the start of the fit; bias: around zero [rad].
PRIOR = {KP: 3.0, LIMIT: 3.0, STRIBECK_SPEED: 1.0, BIAS: 0.05, VISCOUS: 10.0, COULOMB: 10.0}
PRIOR |= {ARMATURE: 1.0, DELAY: 1.0, OFFSET: 10.0, STRIBECK: 10.0, LOAD: 2.0, QUADRATIC: 10.0}
PRIOR |= {DEADBAND: 1.0, KD: 10.0, BACKLASH: 1.0, BACK_EMF: 10.0}


@dataclass(frozen=True, eq=False)
class DriveParameters:
    """Parameters of every joint's drive, (joints, parameters), and which of them are fitted."""

    values: np.ndarray
    free: np.ndarray  # bool, same shape

    @staticmethod
    def of(joints: int) -> DriveParameters:
        """Return drives without torque, friction or limits, nothing of them free."""
        values = np.zeros((joints, kernels().drive_simulation.PARAMETERS))
        values[:, LIMIT], values[:, STRIBECK_SPEED] = NO_LIMIT, 0.1
        return DriveParameters(values, np.zeros(values.shape, dtype=bool))

    def with_values(self, **values: np.ndarray | float) -> DriveParameters:
        """Return drives with other values of these parameters."""
        out = self.values.copy()
        for name, value in values.items():
            out[:, NAMES.index(name)] = value
        return replace(self, values=out)

    def with_free(self, name: str, joints: np.ndarray | bool = True) -> DriveParameters:
        """Return drives of which this parameter is fitted, at these joints."""
        free = self.free.copy()
        free[:, NAMES.index(name)] = joints
        return replace(self, free=free)

    @property
    def entries(self) -> np.ndarray:
        """(joint, parameter) of every free parameter, joint by joint."""
        return np.argwhere(self.free)

    @property
    def x(self) -> np.ndarray:
        """The free parameters as the fit sees them."""
        return np.array([self._seen(j, k) for j, k in self.entries])

    def _seen(self, joint: int, parameter: int) -> float:
        value = self.values[joint, parameter]
        if parameter in PER_KP:
            value = value / self.values[joint, KP]
        return float(np.log(value) if parameter in LOGARITHMIC else value)

    def moved(self, x: np.ndarray) -> DriveParameters:
        """Return drives with these free parameters, inside their bounds.

        Friction that is not free keeps its value, not its ratio to kp.
        """
        values = self.values.copy()
        x = np.clip(x, *self.bounds)
        for (j, k), value in zip(self.entries, x, strict=True):
            value = float(np.exp(value)) if k in LOGARITHMIC else value
            # kp comes first among a joint's parameters
            values[j, k] = value * values[j, KP] if k in PER_KP else value
        return replace(self, values=values)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of what the fit sees."""
        kinds = self.entries[:, 1]
        low = np.array([LOWER.get(int(k), -np.inf) for k in kinds])
        return low, np.array([UPPER.get(int(k), np.inf) for k in kinds])

    @property
    def steps(self) -> np.ndarray:
        """Small steps of what the fit sees: the unit of how far it moves at once."""
        return np.array([STEPS[int(k)] for k in self.entries[:, 1]])

    @property
    def prior(self) -> np.ndarray:
        """Standard deviations of the prior of what the fit sees."""
        return np.array([PRIOR[int(k)] for k in self.entries[:, 1]])

    @property
    def slopes(self) -> np.ndarray:
        """Derivatives of the free parameters' values by what the fit sees, a matrix."""
        entries = self.entries
        place = {(int(j), int(k)): at for at, (j, k) in enumerate(entries)}
        out = np.eye(len(entries))
        for at, (j, k) in enumerate(entries):
            if k in LOGARITHMIC:
                out[at, at] = self.values[j, k]
            elif k in PER_KP:
                out[at, at] = self.values[j, KP]
            if k in PER_KP and (int(j), KP) in place:
                out[at, place[int(j), KP]] = self.values[j, k]
        return out
