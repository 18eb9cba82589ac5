"""Whether rotor inertia is identified: only if the log shows it.

The criterion is the Bayesian information criterion, with two independent rows per cycle of the
low-pass; a difference of 10 is very strong evidence [Kass1995].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information
from thetahat.identification.submodel import view

EVIDENCE = 10.0  # difference of the criteria that counts as very strong
EXACT = 1e-12  # of the torque: a fit that is exact to rounding cannot be improved upon


@dataclass(frozen=True, eq=False)
class RotorDecision:
    """The information to solve, with rotor inertia or without, and why."""

    information: Information
    reason: str


def decide_rotor_inertia(
    whole: Information,
    asked: bool | None,
    *,
    dofs: tuple[int, ...] | None = None,
    weights: str | None = "iterated",
    independent: float = 1.0,
) -> RotorDecision:
    """Decide whether rotor inertia is identified.

    Args:
        whole: information with the columns of rotor inertia.
        asked: True or False decide; None: only if the log shows it.
        dofs: degrees of freedom whose torques count; None: all.
        weights: of the joints' rows.
        independent: share of the rows that count as independent.

    """
    rich = view(whole, dofs=dofs)
    if asked is not None:
        return RotorDecision(rich, f"{'fitted' if asked else 'not fitted'}: as asked")
    plain = view(whole, without=("armature",), dofs=dofs)
    if rich.rank < len(rich.base) or len(rich.base) == len(plain.base):
        return RotorDecision(
            plain, "not fitted: the motion does not separate it from the links' inertia"
        )
    estimator = LeastSquares(weights=weights)
    without, fitted = estimator.estimate(plain), estimator.estimate(rich)
    used = rich.rows > 0
    rows = independent * rich.rows[used]
    floor = EXACT * rich.torque_norms()[used]
    ratio = np.maximum(without.residual_norms[used], floor) / np.maximum(
        fitted.residual_norms[used], floor
    )
    parameters = len(rich.base) - len(plain.base)
    gain = float(np.sum(rows * 2.0 * np.log(ratio))) - parameters * float(
        np.log(max(rows.sum(), 1.0))
    )
    evidence = f"ΔBIC {gain:+.0f}".replace("-", "−")
    if gain <= EVIDENCE:
        return RotorDecision(plain, f"not fitted: {evidence}, needs {EVIDENCE:+g}")
    values = fitted.drive["armature"]
    std = fitted.full_std[-len(values) :] / np.sqrt(independent)
    for value, spread in zip(values, std, strict=True):
        if spread is not np.ma.masked and value < -2.0 * spread:
            return RotorDecision(
                plain, f"not fitted: {evidence}, but it would be negative ({value:.2g} kg·m²)"
            )
    return RotorDecision(rich, f"fitted: {evidence}")
