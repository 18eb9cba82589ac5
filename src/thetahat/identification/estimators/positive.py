"""Θ > 0 (paper, §IV): least squares with the parameters that are positive by nature held so, by a
quadratic program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.errors import NotIdentifiable
from thetahat.identification import factor
from thetahat.identification.consistency import interior_point
from thetahat.identification.consistency.misfit import NONNEGATIVE, objective, solution_of
from thetahat.identification.estimate import Certificate, Estimate
from thetahat.identification.estimators.estimator import covariance_of_data, estimated
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.model import parameters

POSITIVE = ("Ixx", "Iyy", "Izz", "m", *NONNEGATIVE)
FAINT = 1e-4  # weight of the least norm, in directions that the data leave open and nowhere else
CERTAIN = 1e-6  # of 1 + f: as for physically consistent fits


@dataclass(frozen=True, eq=False)
class Positive:
    """The best fit with Ixx, Iyy, Izz and m of every body, friction and rotor inertia above zero;
    of all such fits one near the least norm.

    It is the paper's Θ > 0 taken literally, for the components that are positive by nature:
    products of inertia, first moments and offsets have either sign. It does not make bodies
    physical (a mass may be positive and the triangle inequality broken): `Consistent` does.
    weights: "joint" weighs each joint by its residual, "iterated" until that settles, None all
    torques alike.
    """

    weights: str | None = None

    name = "positive"

    def estimate(self, information: Information) -> Estimate:
        """Return the estimate; `NotIdentifiable` where the rank is short."""
        if information.rank < len(information.base):
            raise NotIdentifiable(
                f"rank {information.rank} of {len(information.base)}: {information.missing()[0]}"
            )
        f = objective(information, prior=None, weight=0.0, metric="euclidean", weights=self.weights)
        columns = Columns(information.robot)
        scale = f.scale
        positive = np.array(
            [k for k, (name, _) in enumerate(columns.pairs) if name in POSITIVE], dtype=int
        )
        # orthonormal: changes of x that no motion shows
        hidden = np.linalg.qr(information.base.nullspace)[0].T
        data = np.column_stack([f.R @ (information.base.map * scale), f.z])
        least = np.column_stack([np.sqrt(FAINT) * hidden * scale, np.zeros(len(hidden))])
        T = factor.triangle(np.asfortranarray(np.vstack([data, least])))
        problem = interior_point.Problem(
            T=np.asfortranarray(T[:-1, :-1]),
            t=T[:-1, -1],
            constant=0.5 * T[-1, -1] ** 2,
            shapes=np.zeros((0, interior_point.PLACES, 4, 4)),
            first=np.zeros(0, dtype=int),
            gamma=np.zeros(0),
            G=np.eye(columns.count)[positive],
            low=np.zeros(len(positive)),
        )
        minimum = interior_point.minimise(
            problem, np.where(np.isin(np.arange(columns.count), positive), 1.0, 0.0)
        )
        x, solution = scale * minimum.v, solution_of(f)
        eigenvalues = np.linalg.eigvalsh(
            parameters.to_pseudo_inertia(x[: columns.inertial].reshape(-1, parameters.SIZE))
        )[:, 0]
        certificate = Certificate(
            objective=minimum.value,
            gap=minimum.gap,
            infeasibility=0.0,
            eigenvalue=float(np.min(eigenvalues, initial=1.0)),
            iterations=minimum.iterations,
            solver=interior_point.NAME,
        )
        return estimated(
            information,
            solution,
            method=self.name,
            x=x,
            covariance=covariance_of_data(solution, f.weights.variance),
            status="solved" if minimum.gap <= CERTAIN * (1.0 + minimum.value) else "almost_solved",
            certificate=certificate,
        )
