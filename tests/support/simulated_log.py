"""Logs of shipped robots with torques by Pinocchio, for tests of the path from a log to an
estimate.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from thetahat import robots

VISCOUS, COULOMB, OFFSET, ROTOR = 0.7, 1.3, 0.4, 0.05  # of joint 1; joint k has k times as much


def motion(
    joints: int, *, seconds: float = 16.0, rate: float = 200.0, seed: int = 0
) -> tuple[np.ndarray, ...]:
    """(t, q, dq, ddq) of sums of sines below 2 Hz, all derivatives exact."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate)) / rate
    w = 2.0 * np.pi * np.array([0.11, 0.23, 0.41, 0.67, 1.09])
    a = rng.uniform(-1.0, 1.0, (joints, len(w))) / w**0.8 * 0.8
    phase = rng.uniform(0.0, 2.0 * np.pi, (joints, len(w)))
    angle = t[:, None, None] * w + phase
    return (
        t,
        np.sum(a * np.sin(angle), axis=2),
        np.sum(a * w * np.cos(angle), axis=2),
        np.sum(-a * w**2 * np.sin(angle), axis=2),
    )


def torque(
    urdf: Path,
    q: np.ndarray,
    dq: np.ndarray,
    ddq: np.ndarray,
    *,
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81),
) -> np.ndarray:
    """Pinocchio's rigid-body torque."""
    pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    model = pinocchio.buildModelFromUrdf(str(urdf))
    model.gravity.linear = np.array(gravity)
    data = model.createData()
    return np.array([pinocchio.rnea(model, data, *state) for state in zip(q, dq, ddq, strict=True)])


def drive(dq: np.ndarray, ddq: np.ndarray, *, rotor: bool = False) -> np.ndarray:
    """Friction, offset and rotors, growing with the joint's number."""
    size = np.arange(1, dq.shape[1] + 1)
    return size * (VISCOUS * dq + COULOMB * np.sign(dq) + OFFSET + (ROTOR * ddq if rotor else 0.0))


def table(
    t: np.ndarray, q: np.ndarray, tau: np.ndarray, dq: np.ndarray | None = None
) -> tuple[list[str], np.ndarray]:
    """Column names and rows of a log."""
    n = q.shape[1]
    kinds = [("q", q), *([("dq", dq)] if dq is not None else []), ("tau", tau)]
    return ["t", *(f"{kind}{j + 1}" for kind, _ in kinds for j in range(n))], np.column_stack(
        [t, *(values for _, values in kinds)]
    )


def write_csv(path: Path, names: list[str], rows: np.ndarray) -> Path:
    np.savetxt(path, rows, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
    return path


def simulated(
    folder: Path,
    robot: str = "arm4",
    *,
    noise: float = 0.0,
    seed: int = 0,
    rotor: bool = False,
    friction: bool = True,
    **options,
) -> Path:
    """A log of a shipped robot; `options` go to `motion`, `gravity` to Pinocchio."""
    urdf = robots.path(robot)
    gravity = options.pop("gravity", (0.0, 0.0, -9.81))
    t, q, dq, ddq = motion({"arm4": 4, "arm7": 7}[robot], seed=seed, **options)
    tau = torque(urdf, q, dq, ddq, gravity=gravity) + (
        drive(dq, ddq, rotor=rotor) if friction else 0.0
    )
    tau += noise * np.random.default_rng(seed + 1).normal(size=tau.shape)
    return write_csv(folder / f"{robot}.csv", *table(t, q, tau, dq))
