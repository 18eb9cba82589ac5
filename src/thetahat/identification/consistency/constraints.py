"""Constraints of a physically consistent fit: bounds on links, frozen links, links that are alike.

All of them become one affine map and a few cones:  x = c + E·v  (frozen and tied links),  low ≤ G·x
≤ high,  ‖F·x‖ ≤ m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.identification.parameter_columns import Columns
from thetahat.model import parameters
from thetahat.model.parameters import FIRST_MOMENT, SIZE, M

AXES = {"x": 0, "y": 1, "z": 2}


@dataclass(frozen=True)
class Bounds:
    """Limits of one body, in its own frame; None: free.

    mass: (least, most) [kg]. com_box: (low, high) corners, com_ellipsoid: (centre, radii) that hold
        the centre of mass [m].
    """

    mass: tuple[float, float] | None = None
    com_box: tuple[Sequence[float], Sequence[float]] | None = None
    com_ellipsoid: tuple[Sequence[float], Sequence[float]] | None = None


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
    """

    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    total_mass: float | tuple[float, float] | None = None
    frozen: Sequence[str] = ()
    tied: Sequence[Tie] = ()

    def __bool__(self) -> bool:
        return bool(self.bounds or self.total_mass is not None or self.frozen or self.tied)


@dataclass(frozen=True, eq=False)
class LinearBounds:
    """low ≤ rows·x ≤ high."""

    rows: np.ndarray  # (linear, columns)
    low: np.ndarray  # (linear,)
    high: np.ndarray  # (linear,), infinite where nothing bounds it; as low where it is known
    names: tuple[str, ...]  # (linear,) for messages about conflicts


@dataclass(frozen=True, eq=False)
class Cone:
    """First row of rows·x ≥ norm of the others."""

    rows: np.ndarray  # (4, columns)
    name: str


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
        cones=_cones(columns, body, constraints.bounds),
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


def _linear_bounds(columns: Columns, body: _Bodies, constraints: Constraints) -> LinearBounds:
    """Limits of masses and boxes of centres of mass."""
    rows: list[np.ndarray] = []
    lows: list[float] = []
    highs: list[float] = []
    names: list[str] = []

    def add(row: np.ndarray, low: float, high: float, name: str) -> None:
        rows.append(row)
        lows.append(low)
        highs.append(high)
        names.append(name)

    unit = np.eye(columns.count)
    for name, limits in constraints.bounds.items():
        b = body(name, "bounds")
        mass, moment = unit[SIZE * b + M], [unit[SIZE * b + k] for k in FIRST_MOMENT]
        if limits.mass is not None:
            low, high = _range(limits.mass, f"the mass of {name!r}")
            add(mass, low, high, f"mass of {name!r} in {low:g} … {high:g} kg")
        if limits.com_box is not None:
            for axis, low, high in zip(
                "xyz", *_vectors(limits.com_box, f"com_box of {name!r}"), strict=True
            ):
                _range((low, high), f"com_box of {name!r} along {axis}", lowest=-np.inf)
                label = f"centre of mass of {name!r}: {axis} in {low:g} … {high:g} m"
                add(moment[AXES[axis]] - low * mass, 0.0, 0.0 if low == high else np.inf, label)
                if high > low:
                    add(high * mass - moment[AXES[axis]], 0.0, np.inf, label)
    if constraints.total_mass is not None:
        total = constraints.total_mass
        pair = total if isinstance(total, tuple | list) else (total, total)
        low, high = _range(pair, "total_mass")
        every = unit[M : columns.inertial : SIZE].sum(axis=0)
        add(every, low, high, f"total mass in {low:g} … {high:g} kg")
    return LinearBounds(
        np.array(rows).reshape(-1, columns.count),
        np.array(lows, dtype=float),
        np.array(highs, dtype=float),
        tuple(names),
    )


def _cones(columns: Columns, body: _Bodies, bounds: Mapping[str, Bounds]) -> tuple[Cone, ...]:
    """Ellipsoids that hold a centre of mass."""
    cones: list[Cone] = []
    unit = np.eye(columns.count)
    for name, limits in bounds.items():
        if limits.com_ellipsoid is None:
            continue
        b = body(name, "bounds")
        mass, moment = unit[SIZE * b + M], [unit[SIZE * b + k] for k in FIRST_MOMENT]
        centre, radii = _vectors(limits.com_ellipsoid, f"com_ellipsoid of {name!r}")
        if np.any(radii <= 0.0):
            raise UsageError(
                f"com_ellipsoid of {name!r} has radii {radii.tolist()}; give three lengths above"
                " zero [m]"
            )
        offsets = [(moment[k] - centre[k] * mass) / radii[k] for k in range(3)]
        label = f"centre of mass of {name!r} in its ellipsoid"
        cones.append(Cone(np.array([mass, *offsets]), label))
    return tuple(cones)


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
