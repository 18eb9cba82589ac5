"""Structure in what a model leaves of the torque: springs, delays, drift, model error.

What no column of the model explains becomes mass somewhere, or stays in the residual. Each kind is
a few columns of one joint, and the measure is the share of the residual's squares that they explain
on stretches of time that their coefficients were not fitted to:

    spring   q, sin q, cos q       a spring, a counterbalance, cables
    delay    ∂τ/∂t                 torque and motion of this joint are not recorded at the same time
    drift    t, t·d                an offset or dry friction that changes over the log: temperature

Motors that turn with two joints are in coupled_joints.py. A consistent fit that loses clearly
against unconstrained parameters says that something moves that is no rigid body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.data.types import Finding
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.tuning.cross_validation import thinned
from thetahat.model.robot import Robot

EXPLAINED = 0.3  # of the residual's squares, on stretches left out
NOTICED = 0.05  # of the joint's RMS torque: less changes R² by a quarter of a percent
STRETCHES = 20  # of time, each predicted from all but its neighbours
FEWEST = 200  # rows
LOSS = 1.15  # RMS residual of the consistent fit over that of unconstrained least squares
ZONE = 0.03  # of the RMS speed: width of the transition of dry friction
_SHAPES = {"spring": "q", "spring_sine": "sin q", "spring_cosine": "cos q"}


@dataclass(frozen=True, eq=False)
class Residuals:
    """Samples of one log, and what the identified model leaves of their torques."""

    samples: Samples  # thinned to the rows that the low-pass leaves independent
    residual: np.ndarray  # (rows, nv) [N·m or N]

    @staticmethod
    def of(samples: Samples, predicted: np.ndarray) -> Residuals:
        """Subtract the prediction, and keep as few rows as hold all that the low-pass let pass."""
        rest = thinned(replace(samples, tau=samples.tau - predicted))
        return Residuals(thinned(samples), rest.tau)


def find_structure(names: Sequence[str], residuals: Residuals) -> list[Finding]:
    """Return what the residuals of these degrees of freedom follow, the clearest of each joint."""
    out = []
    for j, name in enumerate(names):
        rows = residuals.samples.valid[:, j]
        if np.count_nonzero(rows) < FEWEST:
            continue
        rest, tau = residuals.residual[rows, j], residuals.samples.tau[rows, j]
        shares = {
            kind: explained_share(columns, rest)
            for kind, columns in _columns(residuals.samples, rows, j).items()
        }
        kind = max(shares, key=lambda kind: shares[kind])
        share = shares[kind]
        level = np.sqrt(max(share, 0.0) * np.mean(rest**2) / max(float(np.mean(tau**2)), 1e-300))
        if share > EXPLAINED and level > NOTICED:
            out.append(Finding(kind, name, None, _sentence(kind, name, share, float(level))))
    return out


def _columns(samples: Samples, rows: np.ndarray, j: int) -> dict[str, np.ndarray]:
    """The columns of every kind for one joint, (rows, columns)."""
    dq = samples.dq[rows, j]
    out: dict[str, np.ndarray] = {}
    if samples.q.shape[1] == samples.nv:
        q = samples.q[rows, j]
        out["spring"] = np.column_stack([q, np.sin(q), np.cos(q), np.ones_like(q)])
    t = np.arange(len(samples), dtype=float) if samples.t is None else samples.t
    time = t[rows] - np.mean(t[rows])
    direction = np.tanh(dq / (ZONE * float(np.sqrt(np.mean(dq**2))) or 1.0))
    out["drift"] = np.column_stack([time, time * direction])
    rate = np.gradient(samples.tau[:, j], t) if np.all(np.diff(t) > 0.0) else None
    if rate is not None:
        out["delay"] = rate[rows, None]
    return out


def explained_share(columns: np.ndarray, rest: np.ndarray) -> float:
    """Return the share of Σ rest² that the columns explain on stretches left out.

    Each stretch becomes its triangular factor once; a fit to some of them is one to their factors.
    """
    table, width = np.column_stack([columns, rest]), columns.shape[1]
    edges = np.linspace(0, len(rest), STRETCHES + 1).astype(int)
    stretches = np.zeros((STRETCHES, -(-len(rest) // STRETCHES), width + 1))  # filled up with zeros
    for k in range(STRETCHES):
        stretches[k, : edges[k + 1] - edges[k]] = table[edges[k] : edges[k + 1]]
    number = np.arange(STRETCHES)
    others = np.abs(number[:, None] - number) > 1
    parts = others[:, :, None, None] * np.asarray(np.linalg.qr(stretches, mode="r"))
    stacked = parts.reshape(STRETCHES, -1, width + 1)
    factors = np.asarray(np.linalg.qr(stacked, mode="r"))
    inverse = np.linalg.pinv(factors[:, :width, :width], rcond=np.finfo(float).eps * len(rest))
    x = inverse @ factors[:, :width, width:]
    left = float(np.sum((stretches[:, :, width:] - stretches[:, :, :width] @ x) ** 2))
    total = float(np.sum(rest**2))
    return 1.0 - left / total if total > 0.0 else 0.0


def _sentence(kind: str, name: str, share: float, level: float) -> str:
    follows = {
        "spring": "its own position",
        "drift": "time",
        "delay": "the rate of change of its torque",
    }[kind]
    remedy = {
        "spring": "a spring, counterbalance or cable that the model lacks",
        "drift": "friction or an offset that changes over the log, as a drive does that warms up;"
        " warm up before recording, or identify from a part of the log",
        "delay": "torque and motion of this joint are not recorded at the same time",
    }[kind]
    return (
        f"joint {name!r}: {share:.0%} of the residual ({level:.1%} of its torque) follows"
        f" {follows}: {remedy}"
    )


def fitted_springs(robot: Robot) -> list[Finding]:
    """Return the springs and counterbalances that an identified robot has, joint by joint."""
    drive, out = robot.drive, []
    names = robot.velocity_names if drive.actuation is None else drive.actuation.names
    springs = [(shape, value) for shape, value in drive.extra if shape.of_position]
    slides = dict(zip(drive.column_motors, Columns(robot).sliding_motors.tolist(), strict=True))
    for m, name in enumerate(names):
        parts = [
            f"{value[m]:.3g} {shape.units[slides.get(m, False)]} × {_SHAPES[shape.term]}"
            for shape, value in springs
            if value[m]
        ]
        if parts:
            text = " + ".join(parts).replace("+ -", "− ").replace("-", "−")
            said = (
                f"joint {name!r}: a spring or counterbalance is fitted beside the links ({text}),"
                " as a function of the position alone; without it the links would have to be far"
                " from the robot file's. If the robot has none, identify with --no-springs"
            )
            out.append(Finding("spring-fitted", name, None, said))
    return out


def lost_to_constraints(
    names: Sequence[str], consistent: np.ndarray, unconstrained: np.ndarray, torque: np.ndarray
) -> list[Finding]:
    """Return joints on which physically consistent bodies fit clearly worse than free parameters.

    consistent, unconstrained: (nv,) residual norms of the fits. torque: (nv,) norms of the torques.
    """
    out = []
    for name, bound, free, size in zip(names, consistent, unconstrained, torque, strict=True):
        if free <= 0.0 or bound < LOSS * free or bound**2 - free**2 < (NOTICED * size) ** 2:
            continue
        out.append(
            Finding(
                "inconsistent",
                name,
                None,
                f"joint {name!r}: physically consistent bodies leave {bound / free - 1.0:.0%} more"
                " residual than parameters of any value, so something moves that is no rigid body"
                " of this file: check springs, coupled motors, joint axes and the file's geometry",
            )
        )
    return out
