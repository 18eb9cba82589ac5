"""What a legged robot's log has beside joints, with its errors: pose of the base, wrenches on feet
or flags of contact, an IMU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.errors import UsageError, is_number
from thetahat.model.ground import Foot

DOWN = 0.02  # of the weight: a foot that carries more is down
COUPLE = 0.1  # [m]: couples' errors by forces' errors
AXES = np.array([1.0, 1.0, 1.0, COUPLE, COUPLE, COUPLE])
CHANNELS = ("fx", "fy", "fz", "tx", "ty", "tz")
POSE = ("x", "y", "z", "qx", "qy", "qz", "qw")
IMU = ("wx", "wy", "wz", "ax", "ay", "az")

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class GroundSensors:
    """Errors of these sensors; standard deviations of white noise, and of biases that stay."""

    position: float = 0.0  # [m] of the base
    orientation: float = 0.0  # [rad]
    force: float = 0.0  # [N] of foot sensors; couples a tenth of it [N·m]
    force_bias: float = 0.0  # [N], likewise
    rate: float = 0.0  # [rad/s] of the gyroscope
    speed: float = 0.0  # [m/s] of the base, as the robot's state estimator has it
    acceleration: float = 0.0  # [m/s²] of the accelerometer
    acceleration_bias: float = 0.0  # [m/s²]

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (is_number(value) and value >= 0.0):
                raise UsageError(f"{name} is {value!r}; give a finite number from 0")

    def pose(self, pose: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a base's measured poses from true ones, (n, 7)."""
        pose = pose.copy()
        pose[:, :3] += self.position * rng.standard_normal((len(pose), 3))
        pose[:, 3:] += 0.5 * self.orientation * rng.standard_normal((len(pose), 4))
        pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
        return pose

    def twist(self, rng: np.random.Generator, nv: int) -> np.ndarray:
        """Return errors of all speeds, (nv,): those of the base's twist."""
        errors = np.zeros(nv)
        errors[:6] = np.repeat([self.rate, self.speed], 3) * rng.standard_normal(6)
        return errors

    def force_biases(self, feet: int, rng: np.random.Generator) -> np.ndarray:
        """Return errors of foot sensors that stay, (feet, 6)."""
        return np.asarray(self.force_bias * AXES * rng.standard_normal((feet, 6)))

    def wrenches(
        self, wrenches: np.ndarray, bias: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Return measured wrenches from true ones, (n, feet, 6)."""
        return np.asarray(wrenches + bias + self.force * AXES * rng.standard_normal(wrenches.shape))

    @staticmethod
    def typical(weight: float) -> GroundSensors:
        """Motion capture, six-axis sensors of 0.1 % of the weight, a small IMU."""
        return GroundSensors(
            position=2e-4,
            orientation=5e-4,
            force=1e-3 * weight,
            force_bias=3e-4 * weight,
            rate=2e-3,
            speed=5e-3,
            acceleration=0.03,
            acceleration_bias=0.02,
        )


def pose_columns(q: np.ndarray, sensors: GroundSensors, rng: np.random.Generator) -> Columns:
    """Pose of the base from true configurations (n, nq)."""
    pose = sensors.pose(q[:, :7], rng)
    return {f"base.{name}": column for name, column in zip(POSE, pose.T, strict=True)}


def wrench_columns(
    feet: tuple[Foot, ...],
    wrenches: np.ndarray,
    sensors: GroundSensors,
    rng: np.random.Generator,
) -> Columns:
    """Measured wrenches from true ones, (n, feet, 6)."""
    seen = sensors.wrenches(wrenches, sensors.force_biases(len(feet), rng), rng)
    return {
        f"wrench.{foot.link}.{channel}": seen[:, k, c]
        for k, foot in enumerate(feet)
        for c, channel in enumerate(CHANNELS)
    }


def contact_columns(feet: tuple[Foot, ...], wrenches: np.ndarray, weight: float) -> Columns:
    """1 where a foot carries more than a little of the weight."""
    size = np.linalg.norm(wrenches[:, :, :3], axis=2)
    return {
        f"contact.{foot.link}": (size[:, k] > DOWN * weight).astype(float)
        for k, foot in enumerate(feet)
    }


def imu_columns(true: np.ndarray, sensors: GroundSensors, rng: np.random.Generator) -> Columns:
    """Angular rate and specific force from true ones, (n, 6)."""
    spread = np.repeat([sensors.rate, sensors.acceleration], 3)
    seen = true + spread * rng.standard_normal(true.shape)
    seen[:, 3:] += sensors.acceleration_bias * rng.standard_normal(3)
    return {f"imu.{name}": column for name, column in zip(IMU, seen.T, strict=True)}
