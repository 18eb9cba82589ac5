"""Covariance of fitted drives: Gauss–Newton's Hessian, with the residual's autocorrelation.

Residuals of a simulation are correlated over many rows, so H⁻¹ alone would be far too small. Two
estimates are made, and the larger standard deviation counts:

    C_1 = (H/κ + P)⁻¹                                  κ rows count as one (autocorrelation)
    C_2 = (H + κP)⁻¹ (Σ_b g_b g_bᵀ) (H + κP)⁻¹ B/(B−1)   g_b: gradients of blocks of time

P is the precision of the prior. C_2 also holds where the model is wrong, but needs many blocks.
Simulators of the same equations differ, too, by their steps and by how they solve dry friction:
what another one (MuJoCo, steps of 0.1 ms) was seen to differ by is added as independent errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.errors import NotIdentifiable
from thetahat.identification.actuators.drive_fit import (
    DriveFit,
    NormalEquations,
    SimulationError,
    correlation_rows,
)
from thetahat.identification.actuators.drive_parameters import (
    BACKLASH,
    BIAS,
    DELAY,
    KD,
    KP,
    NAMES,
    PER_KP,
    VISCOUS,
    DriveParameters,
)

BLOCK = 2.0  # times the rows that count as one, in a block
SHORTEST_BLOCK = 1.0  # [s]
FEWEST_BLOCKS = 12
# Standard deviations between simulators, seen on five planted robots: relative, [s], [rad].
RELATIVE, DELAYS, BIASES = 4e-3, 1e-4, 1e-3
# The same of gears with backlash, whose stops simulators make each in its own way, on three more.
RELATIVE_GEARED, BACKLASHES = 1e-2, 3e-4

UNDETERMINED = (
    "the log does not determine the drives: their equations are singular; record a motion in which"
    " all joints move, with commands and positions of the same scale"
)


@dataclass(frozen=True, eq=False)
class DriveUncertainty:
    """Covariance of the free parameters, as the fit sees them and in SI units."""

    drives: DriveParameters
    seen: np.ndarray  # covariance of drives.x
    rows_per_sample: float  # rows that count as one

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the free parameters' values."""
        slopes = self.drives.slopes
        out: np.ndarray = slopes @ self.seen @ slopes.T
        return out

    def std_of_sum(self, joint: int, names: tuple[str, ...]) -> float | None:
        """Return the standard deviation of a sum of parameters; None where none was fitted."""
        entries, wanted = self.drives.entries, [NAMES.index(name) for name in names]
        at = np.flatnonzero((entries[:, 0] == joint) & np.isin(entries[:, 1], wanted))
        if not len(at):
            return None
        return float(np.sqrt(max(self.covariance[np.ix_(at, at)].sum(), 0.0)))

    def beside_links(self, covariance: np.ndarray) -> DriveUncertainty:
        """Return the uncertainty where links were free, too: correlations of both together, with
        the larger of both standard deviations. covariance: of the drives' free parameters first.
        """
        count = len(self.seen)
        joint = covariance[:count, :count]
        std = np.sqrt(np.maximum(np.diag(joint), 1e-300))
        more = np.maximum(std, np.sqrt(np.maximum(np.diag(self.seen), 0.0)))
        return replace(self, seen=joint * np.outer(more / std, more / std))

    def std(self, joint: int, name: str, *, seen: bool = False) -> float | None:
        """Return the standard deviation of a parameter; None where it was not fitted.

        seen: of what the fit sees: logarithm or ratio to kp.
        """
        entries = self.drives.entries
        at = np.flatnonzero((entries[:, 0] == joint) & (entries[:, 1] == NAMES.index(name)))
        if not len(at):
            return None
        matrix = self.seen if seen else self.covariance
        return float(np.sqrt(max(matrix[at[0], at[0]], 0.0)))


def drive_uncertainty(error: SimulationError, fit: DriveFit) -> DriveUncertainty:
    """Return the covariance of a fit."""
    drives = fit.drives
    if not len(drives.entries):
        return DriveUncertainty(drives, np.zeros((0, 0)), 1.0)
    rows = correlation_rows(error.residual(drives), error.segments)
    equations = error.normal_equations(drives, fit.scale, rows_of_a_block(error, rows))
    between = np.diag(between_simulators(drives) ** 2)
    seen = larger_covariance(equations, drives.prior, rows) + between
    return DriveUncertainty(drives, seen, rows)


def rows_of_a_block(error: SimulationError, rows: float) -> int:
    """Return the rows of a block of time, whose gradients are taken as independent.

    rows: that count as one.
    """
    total = sum(each.rows for each in error.segments)
    wanted = max(BLOCK * rows, SHORTEST_BLOCK / error.rollout.log.period)
    return int(np.clip(wanted, 1, max(1, total // FEWEST_BLOCKS)))


def between_simulators(drives: DriveParameters) -> np.ndarray:
    """Return by how much simulators differ in what the fit sees."""
    out = np.zeros(len(drives.entries))
    for at, ((joint, parameter), value) in enumerate(zip(drives.entries, drives.x, strict=True)):
        kp, kd, play = drives.values[joint, [KP, KD, BACKLASH]]
        relative = RELATIVE_GEARED if play > 0.0 else RELATIVE
        if parameter == KP:
            out[at] = relative
        elif parameter == VISCOUS:  # kd + viscous is what a simulation shows
            out[at] = relative * abs(value + kd / kp)
        elif parameter in PER_KP:
            out[at] = relative * abs(value)
        else:
            allowances = {DELAY: DELAYS, BIAS: BIASES, BACKLASH: BACKLASHES}
            out[at] = allowances.get(int(parameter), 0.0)
    return out


def larger_covariance(equations: NormalEquations, prior: np.ndarray, rows: float) -> np.ndarray:
    """Return the correlations of C_1 with the larger of both standard deviations.

    prior: standard deviations.
    """
    precision = np.diag(1.0 / prior**2)
    try:
        first = np.linalg.inv(equations.H / rows + precision)
        inverse = np.linalg.inv(equations.H + rows * precision)
    except np.linalg.LinAlgError:
        raise NotIdentifiable(UNDETERMINED) from None
    if not (np.all(np.isfinite(first)) and np.all(np.isfinite(inverse))):
        raise NotIdentifiable(UNDETERMINED)
    blocks = equations.blocks - equations.blocks.mean(axis=0)
    count = len(blocks)
    second = inverse @ (blocks.T @ blocks) @ inverse * (count / max(count - 1.0, 1.0))
    std = np.sqrt(np.diag(first))
    more = np.maximum(std, np.sqrt(np.maximum(np.diag(second), 0.0)))
    more = np.minimum(more, np.maximum(prior, std))
    out: np.ndarray = first * np.outer(more / std, more / std)
    return out
