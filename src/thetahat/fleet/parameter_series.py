"""Parameters of a robot over its periods, each a number with its variance: friction by joint, base
parameters, and the mass held by a link.

The mass on a link is not among the base parameters, but a payload θ_p on body i changes them by
G_i·θ_p, with G_i ten columns of the base map. So from the difference of two periods it is known by
generalised least squares; friction may change too, so its columns F are unknown as well:

    m = e_mᵀ (AᵀΛA)⁻¹ AᵀΛ · x_base = wᵀ·x_base
    A = [G_i  F],    Λ = Σ C_t⁻¹ over all robots and periods

with one w for all robots of a kind: then wᵀx of two periods, or of two robots, differ by the mass
that would explain their difference best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.fleet.period_estimates import PeriodEstimate, payload_map
from thetahat.identification.identifiability.base_parameters import BaseParameters
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.model.parameters import SIZE, M
from thetahat.model.robot import Robot

# standard deviation of a payload's mass in one period, relative to the robot's mean link: above,
# the motion does not show it
IDENTIFIABLE = 1.0
RANK = 1e-9  # relative singular value at which two columns are one
FRICTION, INERTIAL, PAYLOAD = "friction", "inertial", "payload"


@dataclass(frozen=True, eq=False)
class Parameter:
    """A number that every period has, linear in the base parameters: wᵀ·x_base."""

    name: str
    kind: str  # FRICTION, INERTIAL or PAYLOAD
    term: str  # viscous, coulomb, offset, …; mass for a payload; else empty
    where: str  # joint or link; empty for a base parameter
    unit: str
    w: np.ndarray  # (p,)


@dataclass(frozen=True, eq=False)
class Space:
    """The base parameters of robots of one kind, and what is looked at in them."""

    robot: Robot  # with the columns that were fitted
    base: BaseParameters
    parameters: tuple[Parameter, ...]

    def of(self, kind: str) -> list[int]:
        """Numbers of the parameters of a kind."""
        return [k for k, each in enumerate(self.parameters) if each.kind == kind]


def parameter_space(whole: Information, periods: Sequence[PeriodEstimate]) -> Space:
    """Return what can be compared; whole: any information of the robots' columns."""
    base, columns = whole.base, Columns(whole.robot)
    drive = range(columns.inertial, columns.count)
    unit = np.eye(len(base))
    out = []
    for k, column in enumerate(base.independent):
        term, where = columns.pairs[column]
        if column >= columns.inertial:
            out.append(
                Parameter(
                    columns.names[column], FRICTION, term, where, columns.units[column], unit[k]
                )
            )
        else:
            out.append(Parameter(base.names[k], INERTIAL, "", "", columns.units[column], unit[k]))
    precision = pooled(periods)
    typical = max(float(np.mean(whole.robot.theta.reshape(-1, SIZE)[:, M])), 1e-3)
    for body, name in enumerate(whole.robot.body_names):
        w = mass_weights(base, body, drive, precision, most=IDENTIFIABLE * typical)
        if w is not None:
            out.append(Parameter(f"payload_{name}", PAYLOAD, "mass", name, "kg", w))
    return Space(whole.robot, base, tuple(out))


def pooled(periods: Sequence[PeriodEstimate]) -> np.ndarray:
    """Return Λ, (p, p): the mean of what periods say."""
    return np.asarray(sum(precision(each.covariance) for each in periods) / max(len(periods), 1))


def precision(covariance: np.ndarray) -> np.ndarray:
    """C⁻¹; zero for parameters whose variance is infinite."""
    variance = np.diag(covariance)
    seen = np.flatnonzero(np.isfinite(variance) & (variance > 0.0))
    std = np.sqrt(variance[seen])
    out = np.zeros_like(covariance)
    out[np.ix_(seen, seen)] = np.linalg.pinv(
        covariance[np.ix_(seen, seen)] / np.outer(std, std), hermitian=True
    ) / np.outer(std, std)
    return out


def mass_weights(
    base: BaseParameters, body: int, drive: Sequence[int], precision: np.ndarray, *, most: float
) -> np.ndarray | None:
    """w of a payload's mass on a body; None where the motion does not show it to `most` [kg]."""
    A = np.column_stack([payload_map(base, body), base.map[:, list(drive)]])
    values, vectors = np.linalg.eigh(precision)
    half = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T  # halfᵀ·half = Λ
    B = half @ A
    norms = np.linalg.norm(B, axis=0)
    U, s, Vt = np.linalg.svd(B / np.where(norms > 0.0, norms, 1.0), full_matrices=False)
    used = s > RANK * s[0]
    target = np.zeros(A.shape[1])
    target[M] = 1.0 / norms[M] if norms[M] > 0.0 else 0.0
    inside = Vt[used] @ target
    if not norms[M] or np.linalg.norm(Vt[used].T @ inside - target) > 1e-6 * np.linalg.norm(target):
        return None
    w = (inside / s[used]) @ U[:, used].T @ half
    return w if np.linalg.norm(inside / s[used]) <= most else None


def series_of(
    parameter: Parameter, periods: Sequence[PeriodEstimate]
) -> tuple[np.ndarray, np.ndarray]:
    """Return (T,) values and (T,) variances; NaN where a period does not show it."""
    used = np.flatnonzero(np.abs(parameter.w) > 1e-9 * np.max(np.abs(parameter.w)))
    w = parameter.w[used]
    y = np.array([w @ each.x_base[used] for each in periods])
    blocks = [each.covariance[np.ix_(used, used)] for each in periods]
    v = np.array([w @ block @ w if np.all(np.isfinite(block)) else np.nan for block in blocks])
    good = np.isfinite(y) & np.isfinite(v) & (v > 0.0)
    return np.where(good, y, np.nan), np.where(good, v, np.nan)
