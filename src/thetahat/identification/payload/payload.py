"""What a robot holds: mass, centre of mass and inertia, from two runs, or from one run of a robot
that is known.

    u = Y·(x + E·θ_p) + noise                                                        [Atkeson1986]
        E puts the payload's ten numbers θ_p on the body that carries it

Two runs: x is unknown and the same in both, and only the loaded one has θ_p; one least-squares
problem, from the two factors alone. One run: x is a robot's, or an estimate's, which is then known
as well as its covariance says. Either way x is eliminated by a rank-revealing QR, and ten columns
are left. A payload is a body, J(θ_p) ⪰ 0 [Wensing2018]: where least squares breaks that, the body
that fits best takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from thetahat.errors import NotIdentifiable, UsageError, known
from thetahat.identification import factor as f
from thetahat.identification.consistency import interior_point
from thetahat.identification.consistency.program import CERTAIN, MARGIN, smallest_eigenvalue
from thetahat.identification.estimate import Certificate, Estimate
from thetahat.identification.information import Information, robot_key
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.payload.payload_evidence import (
    Evidence,
    Run,
    Sight,
    eliminated,
    prior_rows,
    whitened,
)
from thetahat.model import parameters
from thetahat.model.parameters import FIRST_MOMENT, SIZE, M
from thetahat.model.robot import Robot

# [m] how large a thing usually is that a robot holds: what is known no better than to this length
# is not seen
HELD = 0.1
CLEAR = 3.0  # standard deviations: a mass nearer to zero has no centre that can be told
SURPRISE = 1e-4  # probability of a misfit by chance below which it is named,
INFLATED = 0.01  # and below which it counts as noise that is larger than each run says
PARTS = ("mass", "com x", "com y", "com z", "Ixx", "Ixy", "Ixz", "Iyy", "Iyz", "Izz")
_UPPER = np.triu_indices(3)  # in the order of PARTS


@dataclass(frozen=True, eq=False)
class PayloadFit:
    """Least squares before the numbers are required to be a body's, and how well each is known.
    Spreads are standard deviations; masked or None where the motion shows nothing.
    """

    least_squares: np.ndarray  # (10,)
    # (10, 10) of least_squares; the body's θ is at least as near to the truth, in its metric
    covariance: np.ma.MaskedArray
    mass_std: float | None  # [kg]
    com_std: np.ma.MaskedArray  # (3,) [m]
    inertia_std: np.ma.MaskedArray  # (3, 3) [kg·m²] of inertia_com
    # of PARTS: what the motion does not show; it stays near the values of a small compact body
    unseen: tuple[str, ...]
    # χ² per degree of freedom of what else differs: 1 if nothing does and the noise is as it was.
    # Where it is more than chance allows, spreads are √misfit times those of the noise alone.
    misfit: float | None = None

    def inflated(self, factor: float) -> PayloadFit:
        """Return the same with standard deviations `factor` times as large."""
        return replace(
            self,
            covariance=factor**2 * self.covariance,
            mass_std=None if self.mass_std is None else factor * self.mass_std,
            com_std=factor * self.com_std,
            inertia_std=factor * self.inertia_std,
        )


@dataclass(frozen=True, eq=False)
class Payload:
    """A body held by a robot, in the frame of one of its links."""

    link: str  # that carries it
    frame: str  # the link in whose frame all numbers are
    theta: np.ndarray  # (10,) in the paper's order
    fit: PayloadFit
    status: str  # solved, almost_solved, or rank_short where something is not identifiable
    # whether the rest of the robot counts as exact, so that its own uncertainty is not in spreads
    exact_rest: bool = False
    advice: tuple[str, ...] = ()
    certificate: Certificate | None = None  # where a solver found the body

    @property
    def least_squares(self) -> np.ndarray:
        """θ before it was required to be a body's, (10,)."""
        return self.fit.least_squares

    @property
    def covariance(self) -> np.ma.MaskedArray:
        """Of least_squares, (10, 10)."""
        return self.fit.covariance

    @property
    def mass_std(self) -> float | None:
        """Standard deviation of the mass [kg]."""
        return self.fit.mass_std

    @property
    def com_std(self) -> np.ma.MaskedArray:
        """Standard deviation of the centre of mass, (3,) [m]."""
        return self.fit.com_std

    @property
    def inertia_std(self) -> np.ma.MaskedArray:
        """Standard deviation of inertia_com, (3, 3) [kg·m²]."""
        return self.fit.inertia_std

    @property
    def unseen(self) -> tuple[str, ...]:
        """What the motion does not show, of PARTS."""
        return self.fit.unseen

    @property
    def misfit(self) -> float | None:
        """χ² per degree of freedom of what else differs."""
        return self.fit.misfit

    @property
    def mass(self) -> float:
        """[kg]."""
        return float(self.theta[M])

    @property
    def com(self) -> np.ndarray:
        """Centre of mass, (3,) [m]."""
        return parameters.to_mass_com_inertia(self.theta)[1]

    @property
    def inertia_com(self) -> np.ndarray:
        """Rotational inertia about the centre of mass, (3, 3) [kg·m²], in the axes of the frame."""
        return parameters.to_mass_com_inertia(self.theta)[2]

    @property
    def theta_std(self) -> np.ma.MaskedArray:
        """(10,) of least_squares."""
        C = self.covariance
        variance = np.ma.masked_array(C.diagonal(), mask=np.ma.getmaskarray(C).diagonal())
        std: np.ma.MaskedArray = np.ma.sqrt(variance)
        return std

    @property
    def consistent(self) -> bool:
        """Whether a rigid body can have these ten numbers."""
        return bool(parameters.check(self.theta))

    @property
    def replaced(self) -> bool:
        """Whether least squares was no body, and the one that fits best took its place."""
        return self.certificate is not None

    def added_to(self, robot: Robot) -> Robot:
        """Return the robot holding it: the payload's parameters are added to the carrier's."""
        place = payload_place(robot, self.link, self.frame)
        theta = robot.theta.copy()
        theta[place.span] += place.to_body @ self.theta
        return robot.with_parameters(theta)

    def __str__(self) -> str:
        body = (
            "the body that fits best, where least squares alone gives none"
            if self.replaced
            else "a physical body"
        )
        lines = [
            f"payload on {self.link!r}, in the frame of {self.frame!r} (± one standard deviation):"
            f" {self.status}, {body}"
        ]
        values = (self.mass, *self.com, *self.inertia_com[_UPPER])
        spreads = (self.mass_std, *self.com_std, *self.inertia_std[_UPPER])
        for part, value, spread, unit in zip(
            PARTS, values, spreads, ("kg", *["m"] * 3, *["kg·m²"] * 6), strict=True
        ):
            lines.append(
                f"  {part:6} {value:12.5g}"
                f" {'not seen' if part in self.unseen else f'± {spread:.2g}':>10} {unit}"
            )
        if self.mass_std is None:  # then single numbers about the frame's origin are all there is
            lines += [
                f"  about the origin: {n} {v:.5g} ± {d:.2g}"
                for n, v, d in zip(parameters.NAMES, self.theta, self.theta_std, strict=True)
                if d
            ]
        if self.exact_rest:
            lines.append(
                "  the rest of the robot counts as exact; its own uncertainty is not in these"
                " figures"
            )
        return "\n".join([*lines, *(f"  {sentence}" for sentence in self.advice)])


# -- the two ways ----------------------------------------------------------------------------------


def payload_from_difference(
    loaded: Information,
    unloaded: Information,
    link: str,
    *,
    frame: str | None = None,
    differing: Iterable[str] = (),
    weights: str = "joint",
    inflation: np.ndarray | None = None,
    size: float = HELD,
) -> Payload:
    """What `link` holds in one run and not in the other; the runs need not be the same motion.
    Nothing of the robot need be known.

    frame: of the answer, a link welded to the same body (default: `link`). differing: drive terms
    ("offset", "coulomb", …) that may have changed between the runs. weights: "joint" or "iterated",
    of each run's own fit. inflation: (nv,), or (2, nv) with the loaded run
    first: factors on the standard deviation of each joint's noise, where its samples are not
    independent. size: [m] of what may be held; numbers known no better than for any body of that
    size are not seen.
    """
    _require(loaded, "loaded")
    _require(unloaded, "unloaded")
    if loaded.key != unloaded.key:
        raise UsageError(
            f"the runs are informations of different robots ({loaded.robot.name!r} and"
            f" {unloaded.robot.name!r}): geometry, gravity or drive columns differ; fold both logs"
            " with the same robot"
        )
    place = payload_place(loaded.robot, link, frame)
    columns = Columns(loaded.robot)
    base = loaded.base
    changed = _changed(columns, differing)
    factors = _inflation(inflation, 2, loaded.robot.nv)
    with f.blas_threads().limit(limits=1, user_api="blas"):
        with_load = whitened(loaded, weights, factors[0])
        without = whitened(unloaded, weights, factors[1])
        A, B = with_load.rows, without.rows
        none = np.zeros((len(B), len(changed)))
        shared = np.vstack([np.hstack([A, A @ base.map[:, changed]]), np.hstack([B, none])])
        ten = np.vstack([A @ (base.map[:, place.span] @ place.to_body), np.zeros((len(B), SIZE))])
        right = np.concatenate([with_load.right, without.right])
        evidence = eliminated(shared, ten, right, runs=(with_load, without))
        payload = fit_payload(evidence, place, typical=typical_mass(loaded.robot), size=size)
    odd = f"the runs differ by more than a payload on {link!r} explains"
    fix = (
        "pass inflation if samples are not independent, name friction that changed in differing, or"
        " try another link"
    )
    return _with_misfit(payload, evidence, odd, fix)


def payload_on_link(
    information: Information,
    without: Robot | Estimate,
    link: str,
    *,
    frame: str | None = None,
    weights: str = "joint",
    inflation: np.ndarray | None = None,
    size: float = HELD,
) -> Payload:
    """What `link` holds, from one run of a robot whose own parameters and friction are known: ten
    unknowns, the rest fixed.

    without: a Robot counts as exact; an Estimate as known to its covariance, which goes into the
    payload's uncertainty. Others as in `payload_from_difference`; inflation is (nv,).
    """
    _require(information, "information")
    place, base = payload_place(information.robot, link, frame), information.base
    factors = _inflation(inflation, 1, information.robot.nv)
    exact = isinstance(without, Robot)
    if isinstance(without, Robot):
        x = _own_values(information, without)
    else:
        x = _estimated_values(information, without)
    with f.blas_threads().limit(limits=1, user_api="blas"):
        run = whitened(information, weights, factors[0])
        ten = run.rows @ (base.map[:, place.span] @ place.to_body)
        left = run.right - run.rows @ (base.map @ x)
        advice: tuple[str, ...] = ()
        if isinstance(without, Robot):
            evidence = eliminated(np.zeros((len(left), 0)), ten, left, runs=(run,))
        else:
            prior, advice = prior_rows(without)
            shared = np.vstack([run.rows, prior])
            ten = np.vstack([ten, np.zeros((len(prior), SIZE))])
            none = np.zeros(len(prior))
            runs = (run, Run(prior, none, 0.0, len(prior)))
            evidence = eliminated(shared, ten, np.append(left, none), runs=runs)
        typical = typical_mass(information.robot)
        payload = fit_payload(evidence, place, typical=typical, size=size)
    odd = f"the run shows more than the known robot and a payload on {link!r} explain"
    fix = (
        "pass inflation if samples are not independent, identify the robot without payload first,"
        " or try another link"
    )
    payload = _with_misfit(payload, evidence, odd, fix)
    return replace(payload, exact_rest=exact, advice=(*payload.advice, *advice))


# -- what is asked for -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PayloadPlace:
    """Where a payload is, and in which frame: θ of the body gains to_body · θ_p."""

    link: str
    frame: str
    span: slice  # of the body's ten numbers in θ
    to_body: np.ndarray  # (10, 10)


class _LinkPose(NamedTuple):
    """A link in the body it is welded into."""

    body: int
    rotation: np.ndarray
    translation: np.ndarray


def payload_place(robot: Robot, link: str, frame: str | None) -> PayloadPlace:
    """Return where a payload on this link is; frame: of its numbers, by default the link's."""
    body, rotation, translation = _link(robot, link, "link")
    if frame is not None and frame != link:
        other, rotation, translation = _link(robot, frame, "frame")
        if other != body:
            name = robot.body_names[body]
            raise UsageError(
                f"frame {frame!r} moves against link {link!r}; name a link that is welded to"
                f" {name!r}: {known(_welded(robot, body))}"
            )
    to_body = parameters.transform(np.eye(SIZE), rotation, translation).T
    return PayloadPlace(
        link, link if frame is None else frame, slice(SIZE * body, SIZE * body + SIZE), to_body
    )


def _welded(robot: Robot, body: int) -> list[str]:
    links = [link.name for link in robot.links if link.body == body]
    return list(dict.fromkeys([robot.body_names[body], *links]))


def _link(robot: Robot, name: str, what: str) -> _LinkPose:
    """The pose of a link in the body it is welded into."""
    for link in robot.links:
        if link.name == name:
            if link.body < 0:
                raise UsageError(
                    f"{what} {name!r} of robot {robot.name!r} is welded to the world, so no joint"
                    " feels what it carries; name a moving link"
                )
            return _LinkPose(link.body, link.rotation, link.translation)
    if name in robot.body_names:
        return _LinkPose(robot.body_names.index(name), np.eye(3), np.zeros(3))
    moving = [link.name for link in robot.links if link.body >= 0] or robot.body_names
    raise UsageError(
        f"{what} {name!r} is not in robot {robot.name!r}; moving links: {known(moving)}"
    )


def _require(information: Information, what: str) -> None:
    if not isinstance(information, Information):
        raise UsageError(
            f"{what} is of type {type(information).__name__}; give an Information, from"
            " th.information(robot, samples)"
        )


def _changed(columns: Columns, terms: Iterable[str]) -> list[int]:
    """Positions in x of these drive terms."""
    terms = (terms,) if isinstance(terms, str) else tuple(terms)
    identified = columns.drive.identified
    for term in terms:
        if term not in identified:
            raise UsageError(
                f"differing names {term!r}, which is no drive term with columns here; terms:"
                f" {known(identified)}"
            )
    return [k for k in range(columns.inertial, columns.count) if columns.pairs[k][0] in terms]


def _inflation(inflation: np.ndarray | None, runs: int, nv: int) -> np.ndarray:
    """(runs, nv)."""
    given = (
        np.ones(nv) if inflation is None else np.asarray(np.ma.filled(inflation, 1.0), dtype=float)
    )
    if given.shape not in ((nv,), (runs, nv)) or not np.all(np.isfinite(given) & (given > 0.0)):
        shapes = f"({nv},) or ({runs}, {nv})" if runs > 1 else f"({nv},)"
        raise UsageError(
            f"inflation has shape {given.shape}; give finite factors above zero, one per joint:"
            f" {shapes}"
        )
    return np.broadcast_to(given, (runs, nv))


def _own_values(information: Information, robot: Robot) -> np.ndarray:
    """x of a robot that counts as known; an error where its friction has no column, as the factor
    then cannot tell it from a payload.
    """
    mine = information.robot.drive
    if robot_key(replace(robot, drive=mine)) != information.key or len(robot.drive.viscous) != len(
        mine.viscous
    ):
        raise UsageError(
            f"robot {robot.name!r} is not the one the information was folded with"
            f" ({information.robot.name!r}): joints, geometry or gravity differ"
        )
    for term in robot.drive.terms:
        if term not in mine.identified and np.any(robot.drive.value(term)):
            raise UsageError(
                f"robot {robot.name!r} states {term!r} drive terms, but the information has no"
                f" column for them; fold it with {term}=True"
            )
    values = [
        robot.drive.value(term) if term in robot.drive.terms else mine.value(term)
        for term in mine.identified
    ]
    return np.concatenate([robot.theta, *(value[list(mine.column_motors)] for value in values)])


def _estimated_values(information: Information, estimate: Estimate) -> np.ndarray:
    if not isinstance(estimate, Estimate):
        raise UsageError(
            f"without is of type {type(estimate).__name__}; give the Robot without payload, or an"
            " Estimate of it"
        )
    if robot_key(estimate.robot) != information.key or not np.array_equal(
        estimate.base.independent, information.base.independent
    ):
        raise UsageError(
            f"the estimate is of robot {estimate.robot.name!r} with other joints, geometry or drive"
            " columns than the information's"
        )
    return estimate.x


def typical_mass(robot: Robot) -> float:
    """Return the mean mass of a body [kg]: a payload's mass known no better is not seen."""
    return float(np.mean(np.abs(robot.theta[M::SIZE]))) or 1.0


# -- the body --------------------------------------------------------------------------------------


def fit_payload(evidence: Evidence, place: PayloadPlace, *, typical: float, size: float) -> Payload:
    """Return the body that fits best.

    typical: mass of a body of the robot [kg]. size: of what may be held [m].
    """
    if not (np.isfinite(size) and size > 0.0):
        raise UsageError(f"size is {size!r}; give the length of what may be held [m], above zero")
    unit = np.eye(SIZE)
    first = Sight(evidence.factor, typical, size)
    mass, std = first.scale[M] * first.best(np.zeros(SIZE))[M], float(first.std(unit[M]))
    seen_mass = std <= typical
    sight = Sight(evidence.factor, abs(mass) + 2.0 * std if seen_mass else typical, size)
    own = _compact(sight, size)
    v = sight.best(own)
    body = _body(sight, own, v)
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
    masks = (not seen_mass, *np.ma.getmaskarray(com), *np.ma.getmaskarray(inertia)[_UPPER])
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


def _compact(sight: Sight, size: float) -> np.ndarray:
    """A small ball where the data put the payload, in units of sight.scale."""
    fitted, com, _ = parameters.to_mass_com_inertia(sight.scale * sight.best(np.zeros(SIZE)))
    least = float(0.1 * sight.scale[M])
    mass = max(float(fitted), least)
    com = com if mass > least else np.zeros(3)
    inertia = mass * (0.5 * size) ** 2 * np.eye(3)
    return parameters.from_mass_com_inertia(np.array(mass), com, inertia) / sight.scale


@dataclass(frozen=True, eq=False)
class _Body:
    theta: np.ndarray  # (10,)
    status: str
    certificate: Certificate | None = None


def _body(sight: Sight, own: np.ndarray, v: np.ndarray) -> _Body:
    """The body with the numbers v, or where no body has them the one that fits best."""
    if smallest_eigenvalue(sight.scale * v) >= MARGIN:
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
        G=np.zeros((0, SIZE)),
        low=np.zeros(0),
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


def _with_misfit(payload: Payload, evidence: Evidence, odd: str, fix: str) -> Payload:
    """With the misfit, and a sentence where it is no chance."""
    freedom = evidence.freedom
    if freedom <= 0:
        return payload
    advice, chance = payload.advice, float(chi2.sf(evidence.surplus, freedom))
    fit = replace(payload.fit, misfit=evidence.surplus / freedom)
    if chance < INFLATED:
        fit = fit.inflated(float(np.sqrt(evidence.surplus / freedom)))
    if chance < SURPRISE:
        advice = (
            *advice,
            f"{odd} (χ² {evidence.surplus:.4g}, {freedom} expected), so standard deviations are"
            f" {np.sqrt(evidence.surplus / freedom):.2g} times those of the noise; {fix}",
        )
    return replace(payload, fit=fit, advice=advice)
