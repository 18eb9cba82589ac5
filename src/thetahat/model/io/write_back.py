"""How the links of one body share a change of the body, and how a link's ten numbers become the
numbers a file states.

A body is the sum of its links. With P the 4×4 pseudo-inertia in the body's frame and U its upper
triangular factor, P = U Uᵀ,

    T = U_new·U_nominal⁻¹,    P_k,new = T P_k Tᵀ  for every link k,    Σ P_k,new = T P_nominal Tᵀ =
    P_new.

T maps homogeneous coordinates, its last row being (0 0 0 t): each link's matter is stretched and
moved alike and its density scaled, so the sum is exact and every physical part stays physical.
Where P_nominal is singular or P_new is indefinite there is no such T, and one link takes the whole
difference: the one that carries the body's name if it has inertia, else the heaviest, else the one
with the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.errors import UnphysicalRobot
from thetahat.model import parameters
from thetahat.model.robot import Link

EPS = float(np.finfo(float).eps)
ROUNDING = (
    16.0 * EPS
)  # × the size of what a number was computed from: below it a number did not change
# of a pivot beside its diagonal element (dimensionless): below it a factor is not inverted
SINGULAR = 1e-10
INDEFINITE = 1e-9  # of an eigenvalue, the matrix scaled to a unit diagonal
CLOSE = (
    1e-11  # relative: two sets of ten numbers that differ by no more are the same, read from a file
)


# -- from a body to its links ----------------------------------------------------------------------


def shared_change(new: np.ndarray, links: Sequence[Link], name: str) -> dict[str, np.ndarray]:
    """θ of the links that change, each in its own frame, so that the body `name` made of them gets
    θ = new.
    """
    parts = {
        link.name: parameters.transform(link.theta, link.rotation, link.translation)
        for link in links
        if np.any(link.theta)
    }
    main = _main_link(parts, links, name)
    if len(parts) > 1:
        T = _shared_map(np.sum(list(parts.values()), axis=0), new)
        if T is not None:
            parts = {
                key: parameters.from_pseudo_inertia(T @ parameters.to_pseudo_inertia(theta) @ T.T)
                for key, theta in parts.items()
            }
            main = _heaviest(parts)  # takes the rounding
    others = (
        np.sum([theta for key, theta in parts.items() if key != main], axis=0)
        if parts.keys() - {main}
        else np.zeros(10)
    )
    parts[main] = new - others
    return {link.name: _in_link(parts[link.name], link) for link in links if link.name in parts}


def _in_link(theta: np.ndarray, link: Link) -> np.ndarray:
    return parameters.transform(theta, link.rotation.T, -link.rotation.T @ link.translation)


def _main_link(parts: dict[str, np.ndarray], links: Sequence[Link], name: str) -> str:
    if name in parts or not parts:
        return name if any(link.name == name for link in links) else links[0].name
    return _heaviest(parts)


def _heaviest(parts: dict[str, np.ndarray]) -> str:
    return max(parts, key=lambda key: parts[key][parameters.M])


def _shared_map(nominal: np.ndarray, new: np.ndarray) -> np.ndarray | None:
    """T = U_new·U_nominal⁻¹, or None where there is none."""
    old, other = (
        _upper_factor(parameters.to_pseudo_inertia(nominal)),
        _upper_factor(parameters.to_pseudo_inertia(new)),
    )
    if old is None or other is None:
        return None
    diagonal = np.diag(old)
    if np.any(diagonal**2 <= SINGULAR * np.sum(old**2, axis=1)):
        return None
    return np.linalg.solve(old.T, other.T).T


def _upper_factor(pseudo: np.ndarray) -> np.ndarray | None:
    """U, upper triangular with P = U Uᵀ, of a P that may be singular (estimates lie on the edge of
    the cone); None where it is indefinite.
    """
    diagonal = np.diag(pseudo)
    if np.any(diagonal <= 0.0):
        return None
    scale = np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(pseudo / np.outer(scale, scale))
    if values[0] < -INDEFINITE:
        return None
    half = scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))  # P = half halfᵀ
    upper = np.linalg.qr(half[::-1].T)[1].T[::-1, ::-1]
    return upper * np.where(np.diag(upper) < 0.0, -1.0, 1.0)


# -- from a link to the numbers of a file ----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stated:
    """What a file states of a link's inertia: mass, centre of mass, and the inertia about it in
    axes turned by `rotation`.
    """

    mass: float
    com: np.ndarray  # (3,) [m]
    inertia: np.ndarray  # (3, 3) [kg·m²]
    rotation: np.ndarray  # (3, 3)

    @staticmethod
    def nothing() -> Stated:
        """A link without inertia."""
        return Stated(0.0, np.zeros(3), np.zeros((3, 3)), np.eye(3))

    def theta(self) -> np.ndarray:
        """The link's ten numbers."""
        return parameters.from_mass_com_inertia(
            np.array(self.mass), self.com, self.rotation @ self.inertia @ self.rotation.T
        )


def restated(theta: np.ndarray, old: Stated, *, reach: float, place: str) -> Stated:
    """The numbers for θ in the same axes. What differs from the old by rounding alone is the old,
    so that its text can stay.

    reach: how far the numbers were moved between frames [m], which is what their rounding is
        relative to. place: for errors.
    """
    mass, com, inertia = parameters.to_mass_com_inertia(theta)
    if mass == 0.0:
        if np.any(parameters.first_moment(theta)):
            raise UnphysicalRobot(
                f"{place} has a first moment but no mass, which no file can state; identify with"
                " the consistent method, or use robot.projected()"
            )
        com = old.com
    inertia = old.rotation.T @ inertia @ old.rotation
    about_origin = (
        float(np.max(np.abs(parameters.inertia_about_origin(theta)))) + abs(float(mass)) * reach**2
    )
    radius = np.sqrt(about_origin / abs(float(mass))) if mass else 0.0
    return Stated(
        float(_kept(mass, old.mass, ROUNDING * abs(float(mass)))),
        _kept(com, old.com, ROUNDING * max(radius, float(np.max(np.abs(com))))),
        _kept(0.5 * (inertia + inertia.T), old.inertia, ROUNDING * about_origin),
        old.rotation,
    )


def _kept(new: np.ndarray, old: np.ndarray, tolerance: float) -> np.ndarray:
    return np.where(np.abs(new - old) <= tolerance, old, new)


def same_parameters(a: np.ndarray, b: np.ndarray, tolerance: float = CLOSE) -> bool:
    """Whether two sets of ten numbers are the same, each group of them beside its own size."""
    inertia = max(float(np.max(np.abs(parameters.inertia_about_origin(theta)))) for theta in (a, b))
    mass = max(abs(float(a[parameters.M])), abs(float(b[parameters.M])))
    moment = max(float(np.max(np.abs(parameters.first_moment(theta)))) for theta in (a, b))
    size = np.full(parameters.SIZE, inertia)
    size[list(parameters.FIRST_MOMENT)] = max(moment, np.sqrt(mass * inertia))
    size[parameters.M] = mass
    return bool(np.all(np.abs(a - b) <= tolerance * size))
