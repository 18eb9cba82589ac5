"""What a physically consistent fit minimises, whichever way it does so: the data's misfit, and the
distance from a nominal robot.

    f(x) = ½‖R·M·x − z‖² + w·d(x, x₀)
           in units of the noise variance: a negative log-likelihood and a negative log-prior

R, z are the whitened factor of the log (every joint's rows over its noise), M the map to base
parameters. The distance is

    euclidean   ½ Σ_k ((x_k − x₀_k)/s_k)²
                with s a size of each parameter: kg, kg·m, kg·m² of the body itself
    entropic    Σ_bodies tr(J₀⁻¹J) − log det(J₀⁻¹J) − 4
                the same in every frame and unit [Lee2020]; J pseudo-inertias
    moments     ½ Σ_bodies (δm/m)² + |δc|²/l² + |δΣ|²/(m·l²)², and a hundredth of the entropic one
                mass m, centre c and second moments Σ about it, m·l² = tr Σ: each may be wrong by a
                share of the body's own size, whichever way, as robot files are. The same in every
                frame; a thin body may be off its axis, which the entropic distance hardly allows.

and, for drive terms, the euclidean one in both. Near x₀ the two agree where the body is as long as
it is wide. A robot file says how heavy its links are, and next to nothing of friction: a drive
term's weight is at most `DRIVE`, but for rotor inertia that the file states.

With the statistics of a log, only its independent rows count: ½‖R·M·x − z‖² is
then as large as the noise's correlation allows, and so is its weight beside the prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from thetahat.errors import UnphysicalRobot, UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimators.estimator import guess
from thetahat.identification.estimators.joint_weights import Weights, weigh
from thetahat.identification.information import Information
from thetahat.identification.log_statistics import LogStatistics
from thetahat.identification.parameter_columns import Columns
from thetahat.model import parameters
from thetahat.model.robot import Robot

METRICS = ("euclidean", "entropic", "moments")
# of a "moments" prior's weight: that of its entropic part, which keeps bodies from being flat
BARRIER = 0.01
BY_LOAD = ("load", "load_driving", "load_driven", "load_squared", "load_stribeck")
# what no drive has below zero; an offset has either sign
NONNEGATIVE = ("viscous", "coulomb", "armature", "stribeck", *BY_LOAD)
# principal second moments of a reference body, relative to their sum: a rod or a point would hold J
# on a line for ever
FLOOR = 1e-3
# of a joint's RMS torque: noise counts as no smaller, or the prior would vanish beside the data in
# double precision
CERTAIN = 1e-6
LIGHTEST = 1e-4  # of the mean body: what a body's own mass is worth as a unit, at least
SHORTEST = 1e-2  # [m] what a body's own radius of gyration is worth as a unit, at least
DRIVE = 1.0  # largest weight of a drive term's distance from the prior
# powers of a length in kg·m², kg·m and kg, in the order of θ
_LENGTHS = np.array([2, 2, 2, 1, 1, 2, 2, 1, 2, 0])


@dataclass(frozen=True, eq=False)
class Objective:
    """f(x), and all that a solver needs of it."""

    information: Information
    weights: Weights
    R: np.ndarray  # (p, p) whitened factor of the data
    z: np.ndarray  # (p,)
    x0: np.ndarray  # (columns,)
    weight: float
    metric: str
    statistics: LogStatistics | None = None  # of the rows; None: all are independent

    @cached_property
    def columns(self) -> Columns:
        """The columns of x."""
        return Columns(self.information.robot)

    @property
    def bodies(self) -> int:
        """How many bodies x holds."""
        return self.columns.inertial // parameters.SIZE

    @cached_property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """(mass, length) of every body, (bodies,) [kg], [m], usable as units."""
        theta0 = self.x0[: self.columns.inertial].reshape(-1, parameters.SIZE)
        mass = np.abs(theta0[:, parameters.M])
        mass = np.maximum(mass, LIGHTEST * np.mean(mass)) if np.any(mass) else np.ones_like(mass)
        second = np.abs(np.trace(parameters.to_pseudo_inertia(theta0)[:, :3, :3], axis1=1, axis2=2))
        return mass, np.maximum(np.sqrt(second / mass), SHORTEST)

    @cached_property
    def scale(self) -> np.ndarray:
        """s, (columns,): the size of each parameter. A drive term's is the value at which it alone
        would make the torque of its joints.
        """
        mass, length = self.units
        out = np.ones(self.columns.count)
        out[: self.columns.inertial] = (mass[:, None] * length[:, None] ** _LENGTHS).ravel()
        drive = self.R @ self.information.base.map[:, self.columns.inertial :]
        norms, torque = np.linalg.norm(drive, axis=0), np.linalg.norm(self.z)
        used = np.flatnonzero(norms > 0.0) if torque > 0.0 else np.empty(0, dtype=int)
        out[self.columns.inertial + used] = torque / norms[used]
        stated = self._stated
        out[stated] = self.x0[stated]
        return out

    @cached_property
    def _stated(self) -> np.ndarray:
        """Positions in x of rotor inertia that the prior states, where rows count as independent
        ones and a weight has its full meaning.
        """
        if self.statistics is None:
            return np.empty(0, dtype=int)
        rotor = np.array([name == "armature" for name, _ in self.columns.pairs])
        rotor[: self.columns.inertial] = False
        return np.flatnonzero(rotor & (self.x0 > 0.0))

    @cached_property
    def pull(self) -> np.ndarray:
        """Weight of each column's distance from the prior, relative to `weight`, (columns,)."""
        out = np.ones(self.columns.count)
        out[self.columns.inertial :] = min(1.0, DRIVE / self.weight) if self.weight else 1.0
        out[self._stated] = 1.0
        return out

    @cached_property
    def whitening(self) -> np.ndarray:
        """K of the prior's quadratic part ½‖K(x − x₀)‖², (columns, columns)."""
        K = np.diag(np.sqrt(self.pull) / self.scale)
        if self.metric == "moments":
            size = parameters.SIZE
            for b, J in enumerate(self.references):
                if J[3, 3] > 0.0:
                    at = slice(size * b, size * b + size)
                    K[at, at] = moments_unit(J)
        return K

    @property
    def entropic_weight(self) -> float:
        """Weight of the entropic distance; zero where the prior has none."""
        return self.weight * {"entropic": 1.0, "moments": BARRIER}.get(self.metric, 0.0)

    @cached_property
    def nonnegative(self) -> np.ndarray:
        """Positions in x of drive terms that cannot be negative."""
        return nonnegative_columns(self.columns)

    @cached_property
    def references(self) -> np.ndarray:
        """J₀ of every body, (bodies, 4, 4): mass and centre as they are, second moments about it
        held above a share of their trace.
        """
        return reference_inertias(self.x0[: self.columns.inertial].reshape(-1, parameters.SIZE))

    def data(self, x: np.ndarray) -> float:
        """½‖R·M·x − z‖²."""
        return 0.5 * float(np.sum((self.R @ (self.information.base.map @ x) - self.z) ** 2))

    def distance(self, x: np.ndarray) -> float:
        """d(x, x₀); infinite where the entropic one has no value."""
        n = self.columns.inertial
        step = self.whitening @ (x - self.x0)
        square = step**2
        if self.metric == "euclidean":
            return 0.5 * float(np.sum(square))
        ratio = np.linalg.solve(
            self.references, parameters.to_pseudo_inertia(x[:n].reshape(-1, parameters.SIZE))
        )
        sign, logarithm = np.linalg.slogdet(ratio)
        if np.any(sign <= 0.0):
            return float("inf")
        divergence = float(np.sum(np.trace(ratio, axis1=1, axis2=2) - logarithm - 4.0))
        if self.metric == "moments":
            return BARRIER * divergence + 0.5 * float(np.sum(square))
        return divergence + 0.5 * float(np.sum(square[n:]))

    def misfit(self, x: np.ndarray) -> float:
        """Return ‖R·M·x − z‖² per row of the log that counts, in noise variances."""
        share = 1.0 if self.statistics is None else self.statistics.share
        count = share * float(np.sum(self.information.rows))
        return 2.0 * self.data(x) / max(count, 1.0)

    def tempered(self, misfit: float) -> Objective:
        """Return the objective with a noise variance `misfit` times as large."""
        root = np.sqrt(misfit)
        weights = replace(
            self.weights, variance=self.weights.variance * misfit, noise=self.weights.noise * root
        )
        return replace(self, R=self.R / root, z=self.z / root, weights=weights)

    def value(self, x: np.ndarray) -> float:
        """f(x)."""
        return self.data(x) + (self.weight * self.distance(x) if self.weight else 0.0)


def objective(
    information: Information,
    *,
    prior: np.ndarray | Robot | None,
    weight: float,
    metric: str,
    weights: str | None,
    statistics: LogStatistics | None = None,
) -> Objective:
    """The objective of a fit to this information; arguments as `Consistent` takes them."""
    if metric not in METRICS:
        raise UsageError(f"metric is {metric!r}; give one of {', '.join(METRICS)}")
    if not (np.isfinite(weight) and weight >= 0.0):
        raise UsageError(f"weight is {weight!r}; give a finite number of at least 0 (0: no prior)")
    x0 = guess(information, prior)
    if metric != "euclidean" and weight:
        _require_physical(information.robot, x0)
    joint_weights = weigh(information, weights)
    if statistics is not None:
        joint_weights = joint_weights.tempered(statistics.share)
    rms = information.torque_norms() / np.sqrt(np.maximum(information.rows, 1))
    whitening = (
        np.minimum(joint_weights.whitening, 1.0 / np.where(rms > 0.0, CERTAIN * rms, np.inf))
        if joint_weights.joints is not None
        else joint_weights.whitening
    )
    if joint_weights.joints is None:  # one factor for all, as the equation weighs them
        whitening = (
            np.minimum(whitening, 1.0 / (CERTAIN * float(np.max(rms))))
            if np.any(rms)
            else whitening
        )
    factor = information.stacked(np.where(np.isfinite(whitening), whitening, 1.0))
    return Objective(
        information,
        joint_weights,
        factor[:-1, :-1],
        factor[:-1, -1],
        x0,
        float(weight),
        metric,
        statistics,
    )


def nonnegative_columns(columns: Columns) -> np.ndarray:
    """Positions in x of drive terms that cannot be negative."""
    drive = enumerate(columns.pairs[columns.inertial :], start=columns.inertial)
    return np.array([k for k, (name, _) in drive if name in NONNEGATIVE], dtype=int)


def reference_inertias(theta0: np.ndarray) -> np.ndarray:
    """Return J₀ of bodies, (bodies, 4, 4): mass and centre as they are, second moments about it
    held above a share of their trace.
    """
    mass, com, inertia = parameters.to_mass_com_inertia(theta0)
    sigma = 0.5 * np.trace(inertia, axis1=1, axis2=2)[:, None, None] * np.eye(3) - inertia
    values, vectors = np.linalg.eigh(sigma)
    least = FLOOR * np.maximum(np.sum(values, axis=1), mass * SHORTEST**2)
    sigma = (vectors * np.maximum(values, least[:, None])[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    out = np.empty((len(mass), 4, 4))
    out[:, :3, :3] = sigma + mass[:, None, None] * com[:, :, None] * com[:, None, :]
    out[:, :3, 3] = out[:, 3, :3] = mass[:, None] * com
    out[:, 3, 3] = mass
    return out


def moments_unit(J: np.ndarray) -> np.ndarray:
    """K of one body: changes of θ to those of mass, centre and second moments Σ about it, each in a
    unit of the body's own: mass m, length √(tr Σ/m).

    J: its pseudo-inertia. To first order there, δc = (δ(mc) − c·δm)/m, and δΣ is what is left of
    the change of second moments about the origin.
    """
    mass, centre = J[3, 3], J[:3, 3] / J[3, 3]
    square = float(np.trace(J[:3, :3])) / mass - float(centre @ centre)
    dJ = parameters.to_pseudo_inertia(np.eye(parameters.SIZE))
    out = np.zeros((parameters.SIZE, parameters.SIZE))
    upper = np.triu_indices(3)
    for k in range(parameters.SIZE):
        change = dJ[k]
        shift = (change[:3, 3] - centre * change[3, 3]) / mass
        moved = mass * (np.outer(shift, centre) + np.outer(centre, shift))
        second = change[:3, :3] - change[3, 3] * np.outer(centre, centre) - moved
        values = second[upper] / (mass * square)
        # products of inertia occur twice in the matrix
        values = np.where(upper[0] == upper[1], values, np.sqrt(2.0) * values)
        out[:, k] = [change[3, 3] / mass, *(shift / np.sqrt(square)), *values]
    return out


def solution_of(objective: Objective) -> f.Solution:
    """Least squares with the same weights: rank, condition and directions of what the data show."""
    return f.solve(objective.information.stacked(objective.weights.joints))


def _require_physical(robot: Robot, x0: np.ndarray) -> None:
    for name, theta in zip(
        robot.body_names, x0[: len(robot.theta)].reshape(-1, parameters.SIZE), strict=True
    ):
        consistency = parameters.check(theta)
        if not consistency or theta[parameters.M] <= 0.0:
            why = consistency.condition or "it has no mass"
            raise UnphysicalRobot(
                f"the entropic prior needs a physical robot, and body {name!r} is none: {why}; use"
                " metric='euclidean'"
            )
