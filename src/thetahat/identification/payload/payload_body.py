"""The body that fits evidence of a payload best, and how well the motion shows its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification import factor as f
from thetahat.identification.consistency import interior_point
from thetahat.identification.consistency.program import CERTAIN, MARGIN, smallest_eigenvalue
from thetahat.identification.estimate import Certificate
from thetahat.identification.payload.payload_evidence import Evidence, Sight
from thetahat.identification.payload.payload_place import PayloadPlace
from thetahat.identification.payload.payload_result import PARTS, UPPER, Payload, PayloadFit
from thetahat.model import parameters
from thetahat.model.parameters import FIRST_MOMENT, SIZE, M
from thetahat.model.robot import Robot

# [m] how large a thing usually is that a robot holds: what is known no better than to this length
# is not seen
HELD = 0.1
CLEAR = 3.0  # standard deviations: a mass nearer to zero has no centre that can be told


@dataclass(frozen=True, eq=False)
class PayloadBox:
    """A box in the payload's frame that holds all of its mass."""

    low: np.ndarray  # (3,) [m]
    high: np.ndarray  # (3,) [m]

    @property
    def size(self) -> float:
        """Half of the diagonal [m]."""
        return float(0.5 * np.linalg.norm(self.high - self.low))

    @property
    def realisability(self) -> np.ndarray:
        """G, (3, 10), with G·θ = ∫(x − low)(high − x) dm ≥ 0 along each axis, for any mass inside
        [Wensing2018].
        """
        J = parameters.to_pseudo_inertia(np.eye(SIZE))
        axes = np.arange(3)
        middle = (self.low + self.high)[:, None] * J[:, axes, 3].T
        return np.asarray(
            middle - J[:, axes, axes].T - (self.low * self.high)[:, None] * J[:, 3, 3]
        )

    def filled(self, mass: float) -> np.ndarray:
        """Return θ of the box filled evenly, (10,)."""
        square = (self.high - self.low) ** 2 / 12.0
        inertia = np.diag(np.sum(square) - square)
        centre = 0.5 * (self.low + self.high)
        return parameters.from_mass_com_inertia(np.array(mass), centre, mass * inertia)


def typical_mass(robot: Robot) -> float:
    """Return the mean mass of a body [kg]: a payload's mass known no better is not seen."""
    return float(np.mean(np.abs(robot.theta[M::SIZE]))) or 1.0


def fit_payload(
    evidence: Evidence,
    place: PayloadPlace,
    *,
    typical: float,
    size: float,
    box: PayloadBox | None = None,
) -> Payload:
    """Return the body that fits best.

    typical: mass of a body of the robot [kg]. size: of what may be held [m]. box: that holds it.
    """
    if not (np.isfinite(size) and size > 0.0):
        raise UsageError(f"size is {size!r}; give the length of what may be held [m], above zero")
    unit = np.eye(SIZE)
    first = Sight(evidence.factor, typical, size)
    mass, std = first.scale[M] * first.best(np.zeros(SIZE))[M], float(first.std(unit[M]))
    seen_mass = std <= typical
    sight = Sight(evidence.factor, abs(mass) + 2.0 * std if seen_mass else typical, size)
    own = _compact(sight, size, box)
    v = sight.best(own)
    body = _body(sight, own, v, box)
    if not np.all(np.isfinite(body.theta)):
        raise NotIdentifiable(
            "no finite payload fits; the log's numbers are too large or too small, check their"
            " units"
        )
    spread = sight.spread(unit)
    seen = np.linalg.norm(spread, axis=1) <= sight.scale
    seen[M] = seen_mass
    if not np.any(seen):
        raise NotIdentifiable(
            f"the motion shows no number of a payload on {place.link!r}; move the joints that carry"
            " it through several poses"
        )
    covariance = np.ma.masked_array(
        np.where(np.outer(seen, seen), spread @ spread.T, 0.0), mask=~np.outer(seen, seen)
    )
    com, inertia = _spreads(sight, body.theta, size, clear=seen_mass and mass > CLEAR * std)
    masks = (not seen_mass, *np.ma.getmaskarray(com), *np.ma.getmaskarray(inertia)[UPPER])
    unseen = tuple(part for part, hidden in zip(PARTS, masks, strict=True) if hidden)
    mass_std = std if seen_mass else None
    return Payload(
        link=place.link,
        frame=place.frame,
        theta=body.theta,
        fit=PayloadFit(sight.scale * v, covariance, mass_std, com, inertia, unseen),
        status="rank_short" if unseen and body.status == "solved" else body.status,
        advice=tuple(_advice(unseen, mass, mass_std)),
        certificate=body.certificate,
    )


def _compact(sight: Sight, size: float, box: PayloadBox | None) -> np.ndarray:
    """A small ball where the data put the payload, or the box filled, in units of sight.scale."""
    fitted, com, _ = parameters.to_mass_com_inertia(sight.scale * sight.best(np.zeros(SIZE)))
    least = float(0.1 * sight.scale[M])
    mass = max(float(fitted), least)
    if box is not None:
        return np.asarray(box.filled(mass) / sight.scale)
    com = com if mass > least else np.zeros(3)
    inertia = mass * (0.5 * size) ** 2 * np.eye(3)
    return parameters.from_mass_com_inertia(np.array(mass), com, inertia) / sight.scale


@dataclass(frozen=True, eq=False)
class _Body:
    theta: np.ndarray  # (10,)
    status: str
    certificate: Certificate | None = None


def _body(sight: Sight, own: np.ndarray, v: np.ndarray, box: PayloadBox | None) -> _Body:
    """The body with the numbers v, or where no body has them the one that fits best."""
    G = np.zeros((0, SIZE)) if box is None else box.realisability * sight.scale
    G = G / np.maximum(np.linalg.norm(G, axis=1, keepdims=True), np.finfo(float).tiny)
    if smallest_eigenvalue(sight.scale * v) >= MARGIN and np.all(G @ v >= 0.0):
        return _Body(sight.scale * v, "solved")
    hidden = sight.directions[sight.hidden]
    rows = np.vstack(
        [np.column_stack([sight.rows, sight.right]), np.column_stack([hidden, hidden @ own])]
    )
    T = f.triangle(np.asfortranarray(rows))
    basis = parameters.to_pseudo_inertia(np.eye(SIZE))
    kept = basis - MARGIN * np.trace(basis, axis1=1, axis2=2)[:, None, None] * np.eye(4)
    per_length = np.sqrt(sight.scale[M] / sight.scale[0])
    D = np.array([per_length, per_length, per_length, 1.0])
    shape = sight.scale[:, None, None] / sight.scale[M] * (D[:, None] * kept * D)
    problem = interior_point.Problem(
        T=np.asfortranarray(T[:-1, :-1]),
        t=T[:-1, -1],
        constant=0.5 * T[-1, -1] ** 2,
        shapes=shape[None],
        first=np.zeros(1, dtype=int),
        gamma=np.zeros(1),
        G=G,
        low=np.zeros(len(G)),
    )
    answer = interior_point.minimise(problem, own)
    theta = sight.scale * answer.v
    certificate = Certificate(
        objective=answer.value,
        gap=answer.gap,
        infeasibility=0.0,
        eigenvalue=smallest_eigenvalue(theta),
        iterations=answer.iterations,
        solver=interior_point.NAME,
    )
    certain = answer.gap <= CERTAIN * (1.0 + answer.value)
    return _Body(theta, "solved" if certain else "almost_solved", certificate)


def _spreads(
    sight: Sight, theta: np.ndarray, size: float, *, clear: bool
) -> tuple[np.ma.MaskedArray, np.ma.MaskedArray]:
    """Standard deviations of c = h/m and of Ī_C = Ī_O − (h·h 1 − h hᵀ)/m, h = m·c, to first order;
    masked where the motion does not show them.
    """
    if not clear:
        com, about = np.zeros(3), np.zeros((3, 3))
        return np.ma.masked_array(com, mask=True), np.ma.masked_array(about, mask=True)
    mass, c, _ = parameters.to_mass_com_inertia(theta)
    unit, one = np.eye(SIZE), np.eye(3)
    dm = unit[M]
    dh = unit[list(FIRST_MOMENT)]
    dI = np.moveaxis(parameters.inertia_about_origin(unit), 0, -1)
    cross = dh[:, None, :] * c[:, None] + c[:, None, None] * dh  # dh cᵀ + c dhᵀ
    inertia = (
        dI
        - (2.0 * (c @ dh) * one[..., None] - cross)
        + ((c @ c) * one - np.outer(c, c))[..., None] * dm
    )
    com = sight.std((dh - np.outer(c, dm)) / mass)
    about = sight.std(inertia)
    hidden = about > sight.scale[M] * size**2
    return np.ma.masked_array(com, mask=com > size), np.ma.masked_array(about, mask=hidden)


# -- words -----------------------------------------------------------------------------------------


def _advice(unseen: tuple[str, ...], mass: float, std: float | None) -> Iterator[str]:
    """What to say of numbers that are not seen, and of a mass that nothing has."""
    if std is not None and mass < -CLEAR * std:
        yield (
            f"the loaded run is lighter by {-mass:.3g} kg than the robot without payload; the"
            " runs may be swapped, or a torque has the wrong sign"
        )
    elif std is not None and mass <= CLEAR * std:
        yield (
            f"a mass of {mass:.2g} ± {std:.2g} kg cannot be told from none, and so it has no"
            " centre of mass or inertia that could be told"
        )
    elif unseen:
        turning = all(part.startswith("I") for part in unseen)
        fix = "turn it against gravity, by more joints"
        if turning:
            fix = "accelerate the payload about more axes, or faster"
        what = "the inertia" if turning and len(unseen) == 6 else ", ".join(unseen)
        does = "does" if len(unseen) == 1 or what == "the inertia" else "do"
        yield f"{what} of the payload {does} not show in this motion; {fix}"
