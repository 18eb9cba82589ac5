"""Constraints of a physically consistent fit: bounds on links, frozen links, links that are alike.

All of them become one affine map and a few cones:  x = c + E·v  (frozen and tied links),  low ≤ G·x
≤ high,  ‖F·x‖ ≤ m. That a body's mass lies in an ellipsoid is one of the linear ones: tr(J·Q) ≥ 0
[Wensing2018].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.identification.parameter_columns import Columns
from thetahat.model import parameters
from thetahat.model.link_geometry import Region
from thetahat.model.parameters import FIRST_MOMENT, SIZE, M
from thetahat.model.robot import Robot

AXES = {"x": 0, "y": 1, "z": 2}
ROUNDING = 1e-9  # relative, by which a bound may be missed


@dataclass(frozen=True)
class Bounds:
    """Limits of one body, in its own frame; None: free.

    mass: (least, most) [kg]. com_box: (low, high) corners, com_ellipsoid: (centre, radii) that hold
        the centre of mass [m]; com_region: the same, an ellipsoid in any orientation.
    region: an ellipsoid that holds all of its mass (density realisability).
    """

    mass: tuple[float, float] | None = None
    com_box: tuple[Sequence[float], Sequence[float]] | None = None
    com_ellipsoid: tuple[Sequence[float], Sequence[float]] | None = None
    com_region: Region | None = None
    region: Region | None = None


@dataclass(frozen=True)
class Tie:
    """Two bodies alike, each in its own frame: θ_second = θ_first, or its mirror image along one
    axis ("x", "y" or "z").
    """

    first: str
    second: str
    mirror: str | None = None


@dataclass(frozen=True)
class Constraints:
    """What is known of a robot beside its log.

    bounds: limits per body. total_mass: of all moving bodies, one number or (least, most) [kg].
    frozen: bodies that keep the prior's values. tied: pairs of bodies that are alike. Bodies are
    named as in `robot.body_names`.
    plausible: limits per body that nobody has stated, and that may be given up where the data
    reject them (plausibility.py). given_up: names of constraints that do not count.
    """

    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    total_mass: float | tuple[float, float] | None = None
    frozen: Sequence[str] = ()
    tied: Sequence[Tie] = ()
    plausible: Mapping[str, Bounds] = field(default_factory=dict)
    given_up: Sequence[str] = ()

    def __bool__(self) -> bool:
        stated = self.bounds or self.total_mass is not None or self.frozen or self.tied
        return bool(stated or self.plausible)

    def met(self, robot: Robot, x: np.ndarray) -> bool:
        """Whether parameters x = [θ; drive terms] of a robot are within all bounds."""
        columns = Columns(robot)
        body = _Bodies(columns)
        return _met(_linear_bounds(columns, body, self), _cones(columns, body, self), x)


@dataclass(frozen=True, eq=False)
class LinearBounds:
    """low ≤ rows·x ≤ high."""

    rows: np.ndarray  # (linear, columns)
    low: np.ndarray  # (linear,)
    high: np.ndarray  # (linear,), infinite where nothing bounds it; as low where it is known
    names: tuple[str, ...]  # (linear,) for messages about conflicts
    soft: tuple[bool, ...]  # (linear,) whether it may be given up


@dataclass(frozen=True, eq=False)
class Cone:
    """First row of rows·x ≥ norm of the others."""

    rows: np.ndarray  # (4, columns)
    name: str
    soft: bool = False  # whether it may be given up


@dataclass(frozen=True, eq=False)
class Feasible:
    """The set of x that the constraints allow beside physical consistency."""

    free: np.ndarray  # (k,) positions in x of the free variables
    fixed: np.ndarray  # (columns,) c: values of frozen bodies, zero elsewhere
    # (columns,) position among the free variables that determines each entry of x; −1: frozen
    expand: np.ndarray
    sign: np.ndarray  # (columns,) its sign there
    moved: np.ndarray  # positions of the bodies that are not frozen
    bodies: np.ndarray  # of these, one of each tie: whose consistency is to be required
    linear: LinearBounds
    cones: tuple[Cone, ...]

    def through(self, rows: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return rows·E, (…, k), for rows with a number per column of x.

        The free variables are in units of `scale`.
        """
        used = np.flatnonzero(self.expand >= 0)
        values = rows[..., used] * (self.sign[used] * scale[self.free[self.expand[used]]])
        if len(used) == len(self.free):  # no ties: every free variable is one column
            return np.asarray(values[..., np.argsort(self.expand[used])])
        out = np.zeros((*rows.shape[:-1], len(self.free)))
        np.add.at(out.T, self.expand[used], np.asarray(values).T)
        return out

    def met(self, x: np.ndarray) -> bool:
        """Whether x is within all bounds, up to rounding."""
        return _met(self.linear, self.cones, x)

    def x(self, v: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return x = c + E·v."""
        free = (
            np.where(
                self.expand >= 0,
                self.sign * (scale[self.free] * v)[np.maximum(self.expand, 0)],
                0.0,
            )
            if len(self.free)
            else 0.0
        )
        return self.fixed + free


def _met(linear: LinearBounds, cones: Sequence[Cone], x: np.ndarray) -> bool:
    value, slack = linear.rows @ x, ROUNDING * (np.abs(linear.rows) @ np.abs(x))
    within = np.all(value >= linear.low - slack) and np.all(value <= linear.high + slack)
    return bool(within) and all(
        np.linalg.norm(cone.rows[1:] @ x) <= cone.rows[0] @ x * (1.0 + ROUNDING) for cone in cones
    )


def feasible(columns: Columns, x0: np.ndarray, constraints: Constraints | None = None) -> Feasible:
    """Return the set of x that the constraints leave; x0 holds the prior's values."""
    constraints = constraints or Constraints()
    body = _Bodies(columns)
    expand, sign, fixed = np.arange(columns.count), np.ones(columns.count), np.zeros(columns.count)
    asked = np.ones(columns.inertial // SIZE, dtype=bool)
    for name in constraints.frozen:
        b = body(name, "frozen")
        _require_consistent(name, x0[_span(b)])
        expand[_span(b)], fixed[_span(b)], asked[b] = -1, x0[_span(b)], False
    for tie in constraints.tied:
        first, second = body(tie.first, "tied"), body(tie.second, "tied")
        _require_tie(tie, first, second, asked)
        expand[_span(second)], sign[_span(second)] = (
            expand[_span(first)],
            sign[_span(first)] * _mirrored(tie.mirror),
        )
        fixed[_span(second)] = fixed[_span(first)] * _mirrored(tie.mirror)
        asked[second] = False
    used = np.unique(expand[expand >= 0])
    place = np.full(columns.count, -1)
    place[used] = np.arange(len(used))
    expand = np.where(expand >= 0, place[np.maximum(expand, 0)], -1)
    return Feasible(
        free=used,
        fixed=fixed,
        expand=expand,
        sign=sign,
        moved=np.flatnonzero(expand[: columns.inertial : SIZE] >= 0),
        bodies=np.flatnonzero(asked),
        linear=_linear_bounds(columns, body, constraints),
        cones=_cones(columns, body, constraints),
    )


# -- names -----------------------------------------------------------------------------------------


class _Bodies:
    """Finds a body by its name."""

    def __init__(self, columns: Columns) -> None:
        self.robot = columns.robot

    def __call__(self, name: str, what: str) -> int:
        names = self.robot.body_names
        if name in names:
            return names.index(name)
        for link in self.robot.links:
            if link.name == name and link.body >= 0:
                raise UsageError(
                    f"{what} names link {name!r}, which is welded into body {names[link.body]!r};"
                    " name that body"
                )
        raise UsageError(
            f"{what} names {name!r}, which is no moving body of the robot; bodies: {known(names)}"
        )


def _span(body: int) -> slice:
    return slice(SIZE * body, SIZE * body + SIZE)


def _require_consistent(name: str, theta: np.ndarray) -> None:
    consistency = parameters.check(theta)
    if not consistency:
        raise UsageError(
            f"frozen names body {name!r}, whose own values are not physical:"
            f" {consistency.condition}; correct the robot file first"
        )


def _require_tie(tie: Tie, first: int, second: int, asked: np.ndarray) -> None:
    if first == second:
        raise UsageError(f"tied names body {tie.first!r} twice; tie two different bodies")
    if not asked[second]:
        raise UsageError(
            f"body {tie.second!r} is frozen or tied already, so it cannot follow {tie.first!r} too;"
            " name it second in one tie only"
        )
    if tie.mirror is not None and tie.mirror not in AXES:
        raise UsageError(
            f"the tie of {tie.first!r} and {tie.second!r} has mirror {tie.mirror!r}; give 'x', 'y',"
            " 'z' or None"
        )


def _mirrored(axis: str | None) -> np.ndarray:
    """Signs of θ under a reflection along an axis: odd powers of that coordinate change theirs."""
    sign = np.ones(SIZE)
    if axis is not None:
        sign[FIRST_MOMENT[AXES[axis]]] = -1.0
        for product in {
            "x": (parameters.IXY, parameters.IXZ),
            "y": (parameters.IXY, parameters.IYZ),
            "z": (parameters.IXZ, parameters.IYZ),
        }[axis]:
            sign[product] = -1.0
    return sign


# -- bounds ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class _LinearRows:
    """Rows of `LinearBounds` as they come; those that were given up are left out."""

    columns: Columns
    given_up: frozenset[str]
    rows: list[np.ndarray] = field(default_factory=list)
    limits: list[tuple[float, float]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    soft: list[bool] = field(default_factory=list)

    def add(self, row: np.ndarray, low: float, high: float, name: str, soft: bool) -> None:
        if name in self.given_up:
            return
        self.rows.append(row)
        self.limits.append((low, high))
        self.names.append(name)
        self.soft.append(soft)

    def add_bounds(self, b: int, name: str, limits: Bounds, soft: bool) -> None:
        """The linear limits of one body."""
        unit = np.eye(self.columns.count)
        mass, moment = unit[SIZE * b + M], [unit[SIZE * b + k] for k in FIRST_MOMENT]
        if limits.mass is not None:
            low, high = _range(limits.mass, f"the mass of {name!r}")
            self.add(mass, low, high, f"mass of {name!r} in {low:.4g} … {high:.4g} kg", soft)
        if limits.com_box is not None:
            for axis, low, high in zip(
                "xyz", *_vectors(limits.com_box, f"com_box of {name!r}"), strict=True
            ):
                _range((low, high), f"com_box of {name!r} along {axis}", lowest=-np.inf)
                label = f"centre of mass of {name!r}: {axis} in {low:g} … {high:g} m"
                top = 0.0 if low == high else np.inf
                self.add(moment[AXES[axis]] - low * mass, 0.0, top, label, soft)
                if high > low:
                    self.add(high * mass - moment[AXES[axis]], 0.0, np.inf, label, soft)
        if limits.region is not None:
            row = np.zeros(self.columns.count)
            basis = parameters.to_pseudo_inertia(np.eye(SIZE))
            row[_span(b)] = np.sum(basis * limits.region.realisability, axis=(1, 2))
            self.add(row, 0.0, np.inf, f"mass of {name!r} inside its region", soft)

    def bounds(self) -> LinearBounds:
        limits = np.array(self.limits, dtype=float).reshape(-1, 2)
        rows = np.array(self.rows).reshape(-1, self.columns.count)
        return LinearBounds(rows, limits[:, 0], limits[:, 1], tuple(self.names), tuple(self.soft))


def _linear_bounds(columns: Columns, body: _Bodies, constraints: Constraints) -> LinearBounds:
    """Limits of masses, boxes of centres of mass, regions of bodies."""
    rows = _LinearRows(columns, frozenset(constraints.given_up))
    for stated, soft in ((constraints.bounds, False), (constraints.plausible, True)):
        for name, limits in stated.items():
            rows.add_bounds(body(name, "bounds"), name, limits, soft)
    if constraints.total_mass is not None:
        total = constraints.total_mass
        pair = total if isinstance(total, tuple | list) else (total, total)
        low, high = _range(pair, "total_mass")
        every = np.eye(columns.count)[M : columns.inertial : SIZE].sum(axis=0)
        rows.add(every, low, high, f"total mass in {low:g} … {high:g} kg", True)
    return rows.bounds()


def _cones(columns: Columns, body: _Bodies, constraints: Constraints) -> tuple[Cone, ...]:
    """Ellipsoids that hold a centre of mass."""
    cones: list[Cone] = []
    unit = np.eye(columns.count)
    for stated, soft in ((constraints.bounds, False), (constraints.plausible, True)):
        for name, limits in stated.items():
            b = body(name, "bounds")
            mass, moment = unit[SIZE * b + M], unit[[SIZE * b + k for k in FIRST_MOMENT]]
            for centre, to_unit, label in _ellipsoids(name, limits):
                if label not in constraints.given_up:
                    offsets = to_unit @ (moment - centre[:, None] * mass)
                    cones.append(Cone(np.vstack([mass, offsets]), label, soft))
    return tuple(cones)


def _ellipsoids(name: str, limits: Bounds) -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
    """(centre, map to the unit ball, label) of the ellipsoids that hold a centre of mass."""
    if limits.com_ellipsoid is not None:
        centre, radii = _vectors(limits.com_ellipsoid, f"com_ellipsoid of {name!r}")
        if np.any(radii <= 0.0):
            raise UsageError(
                f"com_ellipsoid of {name!r} has radii {radii.tolist()}; give three lengths above"
                " zero [m]"
            )
        yield centre, np.diag(1.0 / radii), f"centre of mass of {name!r} in its ellipsoid"
    if limits.com_region is not None:
        region = limits.com_region
        to_unit = (region.axes / region.radii).T
        yield region.centre, to_unit, f"centre of mass of {name!r} in its region"


def _range(pair: Sequence[float], what: str, *, lowest: float = 0.0) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in pair)
    except (TypeError, ValueError):
        raise UsageError(f"{what} is {pair!r}; give (least, most)") from None
    if not (lowest <= low <= high < np.inf):
        raise UsageError(
            f"{what} is {low:g} … {high:g}; give (least, most), finite, the least"
            f" first{'' if lowest else ' and not negative'}"
        )
    return low, high


def _vectors(pair: Sequence[Sequence[float]], what: str) -> np.ndarray:
    try:
        array = np.array(pair, dtype=float)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.shape != (2, 3) or not np.all(np.isfinite(array)):
        raise UsageError(f"{what} is {pair!r}; give two triples of finite numbers [m]")
    return array
