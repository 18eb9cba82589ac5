"""Write a robot's values back to its file: what each link and joint is to state.

A body is the sum of its links. With P the 4×4 pseudo-inertia in the body's frame and U its upper
triangular factor, P = U Uᵀ,

    T = U_new·U_nominal⁻¹,    P_k,new = T P_k Tᵀ  for every link k
    Σ P_k,new = T P_nominal Tᵀ = P_new

T maps homogeneous coordinates, its last row being (0 0 0 t): each link's matter is stretched and
moved alike and its density scaled, so the sum is exact and every physical part stays physical.
Where P_nominal is singular or P_new is indefinite there is no such T, and one link takes the whole
difference: the one that carries the body's name if it has inertia, else the heaviest, else the one
with the name.

Damping, friction and armature are stated per joint. Joints that share a coordinate (mimic) add up
by virtual work, `assemble`'s k² and |k|; the difference goes to the joint that owns the coordinate,
or is shared in proportion where that would make a value negative. Motors behind an actuation map
are stated where they drive one joint alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.errors import UnphysicalRobot
from thetahat.model import parameters
from thetahat.model.drive import Drive
from thetahat.model.robot import Link, Robot
from thetahat.model.tree import Node

EPS = float(np.finfo(float).eps)
# × the size of what a number was computed from: below it a number did not change
ROUNDING = 16.0 * EPS
# of a pivot beside its diagonal element (dimensionless): below it a factor is not inverted
SINGULAR = 1e-10
INDEFINITE = 1e-9  # of an eigenvalue, the matrix scaled to a unit diagonal
# relative: two sets of ten numbers that differ by no more are the same, read from a file
CLOSE = 1e-11


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
    others = (theta for key, theta in parts.items() if key != main)
    parts[main] = new - sum(others, np.zeros(10))
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
    old, other = (_upper_factor(parameters.to_pseudo_inertia(theta)) for theta in (nominal, new))
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
        inertia = self.rotation @ self.inertia @ self.rotation.T
        return parameters.from_mass_com_inertia(self.mass, self.com, inertia)


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
        float(_kept(mass, np.array(old.mass), ROUNDING * abs(float(mass)))),
        _kept(com, old.com, ROUNDING * max(radius, float(np.max(np.abs(com))))),
        _kept(0.5 * (inertia + inertia.T), old.inertia, ROUNDING * about_origin),
        old.rotation,
    )


def _kept(new: np.ndarray, old: np.ndarray, tolerance: float) -> np.ndarray:
    return np.where(np.abs(new - old) <= tolerance, old, new)


def same_parameters(
    a: np.ndarray, b: np.ndarray, tolerance: float = CLOSE, *, body: np.ndarray | None = None
) -> bool:
    """Whether two sets of ten numbers are the same, each group of them beside its own size.

    body: that they are a part of; what is nothing beside it need not agree.
    """
    each = (a, b) if body is None else (a, b, body)
    inertia = max(float(np.max(np.abs(parameters.inertia_about_origin(theta)))) for theta in each)
    mass = max(abs(float(theta[parameters.M])) for theta in each)
    moment = max(float(np.max(np.abs(parameters.first_moment(theta)))) for theta in each)
    size = np.full(parameters.SIZE, inertia)
    size[list(parameters.FIRST_MOMENT)] = max(moment, np.sqrt(mass * inertia))
    size[parameters.M] = mass
    return bool(np.all(np.abs(a - b) <= tolerance * size))


# -- from a drive to the joints of a file ----------------------------------------------------------

# term → field of a node, power of a ratio
STATED = {"viscous": ("damping", 2), "coulomb": ("friction", 1), "armature": ("armature", 2)}


def at_joints(drive: Drive, nv: int) -> dict[str, np.ndarray]:
    """Each stated term's values per degree of freedom, (nv,), as far as joints can have them:
    motors that drive several have no place there.
    """
    if drive.actuation is None:
        return {term: drive.value(term) for term in STATED}
    out = {term: np.zeros(nv) for term in STATED}
    B = drive.actuation.constant_matrix
    for motor, column in enumerate([] if B is None else B.T):
        driven = np.flatnonzero(column)
        if len(driven) == 1:
            for term, (_, power) in STATED.items():
                out[term][driven[0]] += abs(column[driven[0]]) ** power * drive.value(term)[motor]
    return out


def joint_changes(robot: Robot, file: Robot) -> dict[str, dict[str, float]]:
    """Joint → field of a node → its new value, where the robot's differs from that of the file as
    it was read (and locked alike).
    """
    out: dict[str, dict[str, float]] = {}
    wanted = at_joints(robot.drive, robot.nv)
    for node in file.tree.independent:
        at = slice(file.tree.v_index[node.name], file.tree.v_index[node.name] + node.kind.nv)
        followers = [
            other
            for other in file.tree.nodes
            if other.mimic is not None and other.mimic.joint == node.name
        ]
        for term, (field, power) in STATED.items():
            values, stated = wanted[term][at], file.drive.value(term)[at]
            if not np.array_equal(values, stated):
                # the nearest that one number can say
                value = float(values[0]) if np.all(values == values[0]) else float(np.mean(values))
                for name, own in _spread(node, followers, field, power, value).items():
                    out.setdefault(name, {})[field] = own
    return out


def _spread(
    node: Node, followers: list[Node], field: str, power: int, wanted: float
) -> dict[str, float]:
    """New values of the joints on one coordinate that add up to `wanted`."""
    own = {other.name: float(getattr(other.joint, field)) for other in (node, *followers)}
    rest = sum(
        abs(other.mimic.multiplier) ** power * own[other.name] for other in followers if other.mimic
    )
    first = wanted - rest
    if first < 0.0 <= wanted and rest > 0.0 and own[node.name] + rest > 0.0:
        share = wanted / (own[node.name] + rest)
        return {name: share * value for name, value in own.items() if value}
    return {node.name: first}
