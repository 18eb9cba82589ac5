"""Plausible bodies: what a real link's mass, centre and size are bounded by, and whether the data
agree.

Physical consistency allows a body of ten metres and a tonne. Beside it, every body is held to

    m_low ≤ m ≤ m_high     `mass_range` times the mass that the robot file states; and no more than
                           its region filled with steel
    tr(J·Q) ≥ 0            all of its mass lies in the ellipsoid of its region (link_geometry.py)
                           [Wensing2018]; the region is widened for this, about its centre, where
                           the file's own inertia does not fit in, which lumped rotors explain
    ‖c − centre‖ ≤ 1       and then its centre of mass still lies in the region as it is

and all of them together to

    M_low ≤ Σ m ≤ M_high   the total mass, where one is stated; else `mass_range` to the power of
                           `AVERAGED` times the file's, as errors of single links average out

in the same program, with the same certificate. A file with placeholder inertias
(placeholder_inertia.py) bounds no mass.

The fit without these bounds comes first. Where it meets them all it is the answer, and its noise
model counts the effective rows. Else a bound on which the bounded fit sits is given up where the
data reject it: the likelihood ratio of the fits without and with it,

    Λ = Σ_j n_j·log(‖e_j‖² with / ‖e_j‖² without)      n_j effective rows of joint j [Wilks1938]

is above the χ² quantile of `LEVEL` with one degree of freedom. One at a time, those with the
largest multiplier first, until no more are rejected. What users state of single links (bounds,
frozen and tied ones) is never given up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.identification.consistency.constraints import Bounds, Constraints
from thetahat.identification.estimate import ActiveConstraint, Estimate, RejectedConstraint
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.factor import blas_threads
from thetahat.identification.information import Information
from thetahat.model import parameters
from thetahat.model.link_geometry import Region
from thetahat.model.robot import Robot

MASS_RANGE = (1.0 / 3.0, 3.0)  # of the file's mass
# [kg/m³] solid steel; 99 of 100 links of public robots have less than 2,500 over their region
DENSEST = 8_000.0
# 1/√n of the six or seven links of an arm: with a range of 1/3 to 3, 0.64 to 1.55 of the total
AVERAGED = 0.4
LEVEL = 1e-3  # probability of giving up a bound that holds
REJECTED = 10.827566170662733  # χ² quantile of 1 − LEVEL, one degree of freedom
# tr(J·Q)/m that the file's own body must have in its region; filled evenly it has 0.4
FITS = 0.2


@dataclass(frozen=True, eq=False)
class Reference:
    """What bodies are compared with: a robot's masses, and the regions of its bodies."""

    robot: Robot
    regions: tuple[Region, ...]  # of every body
    placeholder: str | None = None  # why the robot's inertias count as made up; None: they do not
    notes: tuple[str, ...] = ()  # of the geometry that could not be read


def with_plausible_bounds(
    stated: Constraints,
    reference: Reference,
    mass_range: tuple[float, float] | None = MASS_RANGE,
) -> Constraints:
    """Return the constraints with those of plausible bodies beside what users state.

    mass_range: None: neither masses nor regions are bounded. What is stated of a body's mass or
        centre takes the place of what is plausible; frozen bodies, and those that follow another,
        have no bounds of their own. Where a mass is stated, the file's total counts no more.
    """
    if mass_range is None:
        return stated
    fixed = {*stated.frozen, *(tie.second for tie in stated.tied)}
    plausible = {}
    for b, name in enumerate(reference.robot.body_names):
        if name in fixed:
            continue
        bounds = _plausible(reference, b, mass_range)
        given = stated.bounds.get(name, Bounds())
        if given.mass is not None:
            bounds = replace(bounds, mass=None)
        if given.com_box is not None or given.com_ellipsoid is not None:
            bounds = replace(bounds, region=None, com_region=None)
        plausible[name] = bounds
    total, robot = stated.total_mass, reference.robot
    known = any(bounds.mass is not None for bounds in stated.bounds.values())
    if total is None and not known and reference.placeholder is None and robot.mass > 0.0:
        total = mass_range[0] ** AVERAGED * robot.mass, mass_range[1] ** AVERAGED * robot.mass
    return replace(stated, plausible=plausible, total_mass=total)


def _plausible(reference: Reference, body: int, mass_range: tuple[float, float]) -> Bounds:
    theta = reference.robot.theta[parameters.SIZE * body : parameters.SIZE * (body + 1)]
    region, mass = reference.regions[body], float(theta[parameters.M])
    densest = DENSEST * region.volume
    if mass <= 0.0 or reference.placeholder is not None:
        return Bounds(mass=(0.0, densest), region=region)
    low, high = mass_range[0] * mass, mass_range[1] * mass
    limits = (low, min(high, densest) if densest > mass else high)
    widened = _holding(region, theta)
    if widened is region:
        return Bounds(mass=limits, region=region)
    return Bounds(mass=limits, region=widened, com_region=region)


def _holding(region: Region, theta: np.ndarray) -> Region:
    """The region, widened about its centre until it holds this body."""
    if not parameters.check(theta) or region.filling(theta) >= FITS:
        return region
    # tr(J·Q)/m = 1 − spread/factor²
    return region.scaled(float(np.sqrt((1.0 - region.filling(theta)) / (1.0 - FITS))))


# -- what the data reject --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The estimator without the bounds that the data reject, its estimate, and which these are."""

    estimator: Consistent
    estimate: Estimate
    given_up: tuple[RejectedConstraint, ...] = ()


def bounded_estimate(
    information: Information, estimator: Consistent, free: Estimate, *, independent: float = 1.0
) -> Estimate:
    """Return the estimate within plausible bounds, but for those that the data reject.

    Args:
        information: of the log.
        estimator: with plausible bounds.
        free: its estimate without them, where it can with a noise model.
        independent: share of the rows that count as independent where there is no noise model.

    """
    if estimator.constraints.met(free.robot, free.x):
        return free
    relaxed = relax(information, estimator, effective_rows(information, free, independent))
    estimate = relaxed.estimate
    if free.noise is not None and estimate.status != "infeasible":
        estimate = estimate.with_noise_of(free)
    return estimate.with_given_up(relaxed.given_up)


def relax(information: Information, estimator: Consistent, rows: np.ndarray) -> Relaxation:
    """Give up the plausible bounds that the data reject, one at a time.

    rows: effective rows of every joint, (nv,).
    """
    given_up: list[RejectedConstraint] = []
    with blas_threads().limit(limits=1, user_api="blas"):  # small matrices
        estimate = estimator.estimate(information)
        while rejected := _first_rejected(information, estimator, estimate, rows):
            given_up.append(rejected)
            estimator = _without(estimator, rejected.name)
            estimate = estimator.estimate(information)
    return Relaxation(estimator, estimate, tuple(given_up))


def _first_rejected(
    information: Information, estimator: Consistent, estimate: Estimate, rows: np.ndarray
) -> RejectedConstraint | None:
    """The first bound, by its multiplier, that the data reject; None where there is none."""
    if estimate.status == "infeasible":
        return None
    for bound in estimate.on_bound:
        if bound.soft:
            freed = _without(estimator, bound.name).estimate(information)
            evidence = likelihood_ratio(estimate.residual_norms, freed.residual_norms, rows)
            if evidence > REJECTED:
                return RejectedConstraint(bound.name, evidence, REJECTED)
    return None


def _without(estimator: Consistent, name: str) -> Consistent:
    constraints = estimator.constraints
    return replace(
        estimator, constraints=replace(constraints, given_up=(*constraints.given_up, name))
    )


def effective_rows(
    information: Information, estimate: Estimate, independent: float = 1.0
) -> np.ndarray:
    """Return the effective rows of every joint, (nv,): the noise model's, else a share of all."""
    rows = independent * information.rows.astype(float)
    if estimate.noise is not None:
        rows = np.minimum(estimate.noise.effective.filled(np.inf), rows)
    return rows


def likelihood_ratio(held: np.ndarray, freed: np.ndarray, rows: np.ndarray) -> float:
    """Return Λ of two fits by their residual norms, (nv,) each, and effective rows, (nv,)."""
    used = (held > 0.0) & (freed > 0.0) & (rows > 0.0)
    return float(np.sum(rows[used] * 2.0 * np.log(held[used] / freed[used])))


# -- how plausible a result is ---------------------------------------------------------------------


@dataclass(frozen=True)
class LinkPlausibility:
    """One body beside its file's values and its region."""

    name: str
    mass_ratio: float | None  # to the file's mass; None where the file states none
    com_outside: float | None  # [m] the centre of mass lies outside the region; None without mass
    size_ratio: float | None  # radius of gyration over that of the region filled evenly
    size_ratio_file: float | None  # the same of the file's own body
    region: str  # what its region was made from: "geometry" or "joints"


@dataclass(frozen=True)
class Plausibility:
    """A result's bodies, judged as those of a robot."""

    total_mass: float  # [kg] of all moving bodies
    total_mass_file: float  # [kg]
    links: tuple[LinkPlausibility, ...]
    mass_range: tuple[float, float] | None  # that was asked for; None: bodies were not bounded
    placeholder: str | None  # why the file's inertias count as made up
    on_bound: tuple[ActiveConstraint, ...] = ()
    given_up: tuple[RejectedConstraint, ...] = ()
    notes: tuple[str, ...] = ()


def assess(
    estimate: Estimate, reference: Reference, mass_range: tuple[float, float] | None
) -> Plausibility:
    """Compare the bodies of an estimate with the file's masses and with their regions."""
    found = estimate.theta.reshape(-1, parameters.SIZE)
    file = estimate.robot.theta.reshape(-1, parameters.SIZE)  # whatever the prior is
    return Plausibility(
        total_mass=float(np.sum(found[:, parameters.M])),
        total_mass_file=float(np.sum(file[:, parameters.M])),
        links=tuple(
            _judged(name, theta, stated, region)
            for name, theta, stated, region in zip(
                reference.robot.body_names, found, file, reference.regions, strict=True
            )
        ),
        mass_range=mass_range,
        placeholder=reference.placeholder,
        on_bound=tuple(bound for bound in estimate.on_bound if not bound.exact),
        given_up=estimate.given_up,
        notes=reference.notes,
    )


def _judged(name: str, theta: np.ndarray, file: np.ndarray, region: Region) -> LinkPlausibility:
    mass, com, _ = parameters.to_mass_com_inertia(theta)
    stated = float(file[parameters.M])
    ratio = float(mass) / stated if stated > 0.0 else None
    outside = region.distance(com) if _has_mass(theta) else None
    sizes = (_size_ratio(theta, region), _size_ratio(file, region))
    return LinkPlausibility(name, ratio, outside, *sizes, region.source)


def _size_ratio(theta: np.ndarray, region: Region) -> float | None:
    """Radius of gyration of a body over that of its region filled evenly; None without mass."""
    if not _has_mass(theta):
        return None
    mass, _, inertia = parameters.to_mass_com_inertia(theta)
    return float(np.sqrt(max(0.5 * np.trace(inertia) / mass, 0.0))) / region.gyration


def _has_mass(theta: np.ndarray) -> bool:
    return bool(theta[parameters.M] > 1e-9 * float(np.max(np.abs(theta))))
