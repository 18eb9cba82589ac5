"""What a robot's motion can tell about its parameters at all: base parameters, their names, and the
map to them.

The columns of the regressor depend on each other in every state alike, so only x_base = M·x shows
in the torque:

    Y·x = Y[:, independent]·(M·x)

M comes from a column-scaled, rank-revealing QR of the regressor at random states, in double
precision; whether what it finds next to zero is zero, and whether the map holds at other states,
extended precision decides, by other code (`extended_regressor`). Robot files are rounded (1.5708
for π/2), which makes tiny pivots where an exact file had none: below WEAK a direction is named
weak, and kept in the map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np
from scipy.linalg import lapack, solve_triangular
from threadpoolctl import threadpool_limits

from thetahat.dynamics import rigid_body
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification.identifiability.extended_precision import extended_regressor
from thetahat.identification.identifiability.naming import column_labels, combination
from thetahat.identification.parameter_columns import Columns
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import Tree

ZERO = 1e-12  # relative pivot: rounding of the arithmetic and of cos(π/2) stays three digits below
# relative pivot: a file that writes 1.5708 for π/2 is off by 3.7e-6, and most of what that causes
# is smaller
WEAK = 1e-6
# a column may stand for another only if its share in it is at least this, so that the map keeps its
# precision
EXCHANGE = 0.05
CLEAN = 1e-11  # scaled coefficients below are rounding
SHOWN = 1e-6  # scaled coefficients below are not worth writing in a name
ATTEMPTS = 4
KEPT = 16  # results per robot
REFINEMENTS = 3  # each gains the digits that double has over the condition number
FRESH = 4  # states in extended precision, for the check

ALONE, GROUP, NEVER = "alone", "group", "never"

# The parameter that names a group is the first of it in this order: bodies from the base up, and in
# a body
_ORDER = (
    *(parameters.IZZ, parameters.IXX, parameters.IYY),
    *(parameters.IXY, parameters.IXZ, parameters.IYZ),
    *(parameters.MCX, parameters.MCY, parameters.MCZ, parameters.M),
)


@dataclass(frozen=True, eq=False)
class BaseParameters:
    """The identifiable combinations of a robot's parameters: x_base = map · x, and Y·x = Y[:,
    independent]·x_base.
    """

    column_names: tuple[str, ...]  # of x, short
    independent: np.ndarray  # (p,) positions in x, ascending: the regressor's columns to keep
    map: np.ndarray  # (p, columns)
    weak: np.ndarray  # (p,) bool: seen only through what rounding left in the robot file
    # (p,) distance of each kept column from the span of the others, relative to its norm (a weak
    # one: to its kind's)
    strength: np.ndarray
    scale: np.ndarray  # (columns,) norm of each column at typical states, for rank decisions
    # (columns,) rank of each column among those that may name a group, and in a sum
    order: np.ndarray
    # (strong, weak): what of each weak column the strong ones hold, all but a millionth of it
    share: np.ndarray

    def __post_init__(self) -> None:
        for name in ("independent", "map", "weak", "strength", "scale", "order", "share"):
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.independent)

    @property
    def columns(self) -> int:
        """How many standard parameters there are, the length of x."""
        return len(self.column_names)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Whether each standard parameter is identifiable alone, in a group, or never."""
        alone = np.zeros(self.columns, dtype=bool)
        alone[self.independent] = np.sum(self.map != 0.0, axis=1) == 1
        return tuple(
            NEVER if never else ALONE if one else GROUP
            for never, one in zip(~np.any(self.map, axis=0), alone, strict=True)
        )

    @property
    def count(self) -> int:
        """p, how many there are, weak ones included."""
        return len(self.independent)

    @property
    def strong_count(self) -> int:
        """How many there are that do not hang on the rounding of the robot file."""
        return int(np.sum(~self.weak))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Each base parameter as a sum: Izz_1 + Iyy_2 + 0.0519·m_3."""
        ratio = self.scale[self.independent][:, None] * np.abs(self.map)
        shown = ratio > SHOWN * self.scale
        terms = [
            [k, *sorted(set(np.flatnonzero(s)) - {k}, key=self.order.__getitem__)]
            for k, s in zip(self.independent, shown, strict=True)
        ]
        return tuple(
            combination(row[ks], [self.column_names[k] for k in ks])
            for row, ks in zip(self.map, terms, strict=True)
        )

    @property
    def weak_names(self) -> tuple[str, ...]:
        """The base parameters that hang on the rounding of the robot file."""
        return tuple(name for name, weak in zip(self.names, self.weak, strict=True) if weak)

    @cached_property
    def strong(self) -> BaseParameters:
        """Without the weak ones, whose columns join the strong ones: Y·x = Y[:,
        independent]·(map·x) but for what rounding left in the file.

        This is what data can tell: beside a weak column the strong ones it leans on lose as many
        digits as it lacks.
        """
        if not np.any(self.weak):
            return self
        keep = ~self.weak
        M = self.map[keep] + self.share @ self.map[self.weak]
        return replace(
            self,
            independent=self.independent[keep],
            map=M,
            weak=self.weak[keep],
            strength=self.strength[keep],
            share=np.zeros((len(M), 0)),
        )

    @cached_property
    def nullspace(self) -> np.ndarray:
        """Changes of x that no motion shows, (columns, columns − p), with map · nullspace = 0."""
        dependent = np.setdiff1d(np.arange(self.columns), self.independent)
        out = np.zeros((self.columns, len(dependent)))
        out[dependent, np.arange(len(dependent))] = 1.0
        out[self.independent] = -self.map[:, dependent]
        return out

    def of(self, x: np.ndarray) -> np.ndarray:
        """x_base = map · x."""
        x = np.asarray(x, dtype=float)
        if x.shape[-1:] != (self.columns,):
            raise UsageError(
                f"x has shape {x.shape}; its last axis must be {self.columns}, one number per"
                " column"
            )
        return np.asarray(x @ self.map.T)

    def __str__(self) -> str:
        weak = f", {int(np.sum(self.weak))} of them weak" if np.any(self.weak) else ""
        lines = [f"{self.count} base parameters of {self.columns}{weak}"]
        lines += [
            f"  {name}{'  (weak)' if weak else ''}"
            for name, weak in zip(self.names, self.weak, strict=True)
        ]
        return "\n".join(lines)


_cache: WeakKeyDictionary[Tree, dict[tuple[object, ...], BaseParameters]] = WeakKeyDictionary()


def base_parameters(robot: Robot, *, drive: bool = True) -> BaseParameters:
    """The base parameters of a robot, with the drive terms to be identified unless `drive` is
    false.

    They depend on geometry, gravity and drive columns, not on the parameters' values, and are found
    once for all robots that share these.
    """
    if not drive:
        robot = robot.without_drive()
    terms = robot.drive
    shapes = tuple(terms.term(term) for term in terms.identified)
    rotors = terms.rotors if "armature" in terms.identified else None
    actuation = terms.actuation if shapes else None
    key = (tuple(robot.gravity), shapes, actuation, terms.motors, rotors)
    cached = _cache.setdefault(robot.tree, {})
    result = cached.get(key)
    if result is None:
        # small matrices: waking more threads costs more than it gains
        with threadpool_limits(limits=1):
            result = _find(robot)
        if len(cached) >= KEPT:  # a search over friction models needs many, each once
            cached.pop(next(iter(cached)), None)
        cached[key] = result
    return result


# -- the numerical way -----------------------------------------------------------------------------


def random_states(robot: Robot, rng: np.random.Generator, samples: int) -> tuple[np.ndarray, ...]:
    """Return random (q, q̇, q̈): q anywhere (limits do not matter to structure), q̇ over two and a
    half decades so that every term dominates somewhere, q̈ to match.
    """
    q = rng.uniform(-np.pi, np.pi, (samples, robot.nq))
    for _, at in robot.tree.quaternions:
        turn = rng.normal(size=(samples, 4))
        q[:, at : at + 4] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
    speed = np.exp(rng.uniform(np.log(0.1), np.log(30.0), (samples, 1)))
    dq = speed * rng.normal(size=(samples, robot.nv))
    ddq = (1.0 + speed**2) * rng.normal(size=(samples, robot.nv))
    for node in robot.tree.independent:
        if node.sensor:
            q[:, robot.tree.q_index[node.name]] = 0.0
    dq[:, robot.tree.sensor_dofs] = ddq[:, robot.tree.sensor_dofs] = 0.0
    return q, dq, ddq


def _find(robot: Robot) -> BaseParameters:
    columns = Columns(robot)
    rng = np.random.default_rng(20240229)
    samples = max(16 + 2 * len(robot.drive.identified), -(-2 * columns.count // max(robot.nv, 1)))
    for _ in range(ATTEMPTS):
        result = _attempt(columns, rng, samples)
        if result is not None:
            return result
        samples *= 2
    raise NotIdentifiable(
        f"the base parameters of {robot.name!r} could not be settled: extended precision disagrees"
        f" with double at {samples // 2} states; look for lengths or ratios of very different size"
        " in the robot file"
    )


def _attempt(columns: Columns, rng: np.random.Generator, samples: int) -> BaseParameters | None:
    """Base parameters from one draw of states; None where other states do not confirm them."""
    robot, n = columns.robot, columns.count
    states, load = random_states(robot, rng, samples), _load(robot, rng, samples)
    Y = _rows(columns, rigid_body.regressor(robot, *states), states, load)
    scale, seen = _scales(columns, Y)
    rows = np.tile(columns.touches, (samples, 1))
    whole = _Reduction.empty(n)
    extended: list[np.ndarray] = []  # the same rows once more, should a block have weak directions

    def precise(mine: np.ndarray, block: np.ndarray) -> np.ndarray:
        if not extended:
            extended.append(_rows(columns, extended_regressor(robot, *states), states, load))
        return np.asarray(extended[0][mine][:, block] / scale[block])

    for block in _blocks(columns.touches, seen):
        mine = np.any(rows[:, block], axis=1)
        scaled, preference = Y[mine][:, block] / scale[block], _preference(columns)[block]
        part = _reduce(scaled, partial(precise, mine, block), preference)
        whole.independent[block], whole.weak[block] = part.independent, part.weak
        whole.strength[block], whole.K[np.ix_(block, block)] = part.strength, part.K
    return _result(columns, scale, whole) if _confirmed(columns, rng, scale, whole) else None


@dataclass(frozen=True, eq=False)
class _Reduction:
    """Which of n scaled columns are kept: column j is Σ_i K_ij × independent column i."""

    independent: np.ndarray  # (n,) bool
    weak: np.ndarray  # (n,) bool
    strength: np.ndarray  # (n,)
    K: np.ndarray  # (n, n)

    @staticmethod
    def empty(n: int) -> _Reduction:
        return _Reduction(
            np.zeros(n, dtype=bool), np.zeros(n, dtype=bool), np.zeros(n), np.zeros((n, n))
        )


def _rows(
    columns: Columns, Y: np.ndarray, states: tuple[np.ndarray, ...], load: np.ndarray | None
) -> np.ndarray:
    """Rows of [Y | Y_drive], each of norm one, so that fast states do not hide slow ones."""
    q, dq, ddq = states
    Y = np.concatenate([Y, columns.drive.columns(dq, ddq, q=q, load=load)], axis=-1)
    Y = Y.reshape(-1 if columns.count else 0, columns.count)
    length = np.linalg.norm(Y.astype(float), axis=1)
    return Y / np.where(length > 0.0, length, 1.0)[:, None]


def _load(robot: Robot, rng: np.random.Generator, samples: int) -> np.ndarray | None:
    """Any load, where a drive term depends on it."""
    needs = any(robot.drive.term(term).needs_load for term in robot.drive.identified)
    return rng.normal(size=(samples, robot.nv)) if needs else None


def _scales(columns: Columns, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scale, whether it is seen at all) per column: its norm, or, where that is next to nothing,
    the norm others of its kind have.

    Scaling what is 1e-9 of its kind to one would turn rounding into a direction.
    """
    norm = np.linalg.norm(Y, axis=0)
    kind = np.array(
        [0 if name.startswith("I") else 2 if name == "m" else 1 for name in parameters.NAMES]
        * (columns.inertial // 10),
        dtype=int,
    )
    kind = np.concatenate([kind, np.full(columns.count - columns.inertial, 3)])
    usual = np.full(4, 1e-3 * np.max(norm, initial=0.0))
    np.maximum.at(usual, kind, norm)
    seen = norm > ZERO * usual[kind]
    scale = np.where(norm >= WEAK * usual[kind], norm, usual[kind])
    return np.where(scale > 0.0, scale, 1.0), seen


def _blocks(touches: np.ndarray, seen: np.ndarray) -> list[np.ndarray]:
    """Columns that share no row with any other block's, such as separate branches."""
    left, blocks = set(np.flatnonzero(seen)), []
    while left:
        block = np.zeros(touches.shape[1], dtype=bool)
        block[min(left)] = True
        while True:
            grown = np.any(touches[np.any(touches[:, block], axis=1)], axis=0) & seen
            if np.array_equal(grown | block, block):
                break
            block |= grown
        blocks.append(np.flatnonzero(block))
        left -= set(blocks[-1])
    return blocks


def _preference(columns: Columns) -> np.ndarray:
    """Rank of every column among those that may name a group, best 0."""
    bodies = columns.inertial // 10
    place = np.empty(10, dtype=int)
    place[list(_ORDER)] = np.arange(10)
    inertial = (10 * np.arange(bodies)[:, None] + place).ravel()
    return np.concatenate([inertial, np.arange(columns.inertial, columns.count)])


def _reduce(A: np.ndarray, precise: Callable[[], np.ndarray], preference: np.ndarray) -> _Reduction:
    """Reduce a scaled block, A[:, j] = Σ_i A[:, i] K_ij. precise: A in extended precision."""
    n = A.shape[1]
    qr, order, *_ = lapack.dgeqp3(np.asfortranarray(A))
    order, pivots = order - 1, np.abs(np.diag(qr))
    doubtful, strong = int(np.sum(pivots > ZERO)), int(np.sum(pivots > WEAK))
    R = np.empty((strong, n))
    R[:, order] = np.triu(qr[:strong])
    chosen = _exchange(R, order[:strong], preference)
    upper = np.linalg.solve(R[:, chosen], R)  # every column by the chosen ones
    out = _Reduction.empty(n)
    independent, weak, strength, K = out.independent, out.weak, out.strength, out.K
    independent[chosen], strength[chosen] = True, _distances(R[:, chosen])
    weakly = np.zeros(0, dtype=int)
    if doubtful > strong:
        left = _remainder(precise(), A, chosen, upper)
        tail, order, *_ = lapack.dgeqp3(np.asfortranarray(left))
        count = int(np.sum(np.abs(np.diag(tail)) > ZERO))
        T = np.zeros((count, n))
        T[:, order - 1] = np.triu(tail[:count])
        weakly = _exchange(T, order[:count] - 1, preference)
        independent[weakly], weak[weakly], strength[weakly] = True, True, _distances(T[:, weakly])
        free = np.flatnonzero(~independent)
        K[np.ix_(weakly, free)] = np.linalg.solve(T[:, weakly], T[:, free])
    free = np.flatnonzero(~independent)
    K[np.ix_(chosen, free)] = upper[:, free] - upper[:, weakly] @ K[np.ix_(weakly, free)]
    K[np.ix_(chosen, weakly)] = upper[:, weakly]  # beside what the weak columns add of their own
    K[np.abs(K) < CLEAN] = 0.0
    return out


def _remainder(
    precise: np.ndarray, A: np.ndarray, chosen: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """What the chosen columns leave of the others, by iterative refinement: residuals in extended
    precision, corrections in double.

    In double a column that is 1e-6 of its kind carries rounding of 1e-10 of itself, which would
    pass for a direction. `upper` is refined in place.
    """
    left = np.zeros(A.shape)
    Q, R = np.linalg.qr(A[:, chosen])
    rough = A - A[:, chosen] @ upper
    rough[:, chosen] = 0.0
    others = np.flatnonzero(np.linalg.norm(rough, axis=0) > ZERO)
    share = upper[:, others].astype(precise.dtype)
    for _ in range(REFINEMENTS):
        residual = precise[:, others] - precise[:, chosen] @ share
        share = share + solve_triangular(R, Q.T @ residual.astype(float))
    left[:, others] = (precise[:, others] - precise[:, chosen] @ share).astype(float)
    upper[:, others] = share.astype(float)
    return left


def _distances(square: np.ndarray) -> np.ndarray:
    """Distance of every column from the span of the others."""
    return np.asarray(1.0 / np.linalg.norm(np.linalg.inv(square), axis=1))


def _exchange(R: np.ndarray, chosen: np.ndarray, preference: np.ndarray) -> np.ndarray:
    """Trade pivoted columns for ones that name better, as long as each has a fair share in what it
    replaces (a Gauss–Jordan step each).
    """
    n, chosen = R.shape[1], chosen.copy()
    if not len(chosen):
        return chosen
    K = np.linalg.solve(R[:, chosen], R)  # every column by the chosen ones
    while True:
        traded = False
        free = np.setdiff1d(np.arange(n), chosen)
        for j in free[np.argsort(preference[free])]:
            able = np.flatnonzero(
                (np.abs(K[:, j]) > EXCHANGE) & (preference[chosen] > preference[j])
            )
            if not able.size:
                continue
            i = able[np.argmax(preference[chosen[able]])]
            row = K[i] / K[i, j]
            K -= np.outer(K[:, j], row)
            K[i] = row
            chosen[i], traded = j, True
        if not traded:
            return chosen


def _confirmed(
    columns: Columns, rng: np.random.Generator, scale: np.ndarray, reduction: _Reduction
) -> bool:
    """Whether the dependent columns depend at fresh states too, in extended precision."""
    states, load = random_states(columns.robot, rng, FRESH), _load(columns.robot, rng, FRESH)
    Y = _rows(columns, extended_regressor(columns.robot, *states), states, load) / scale
    K = reduction.K
    for j in np.flatnonzero(~reduction.independent):
        used = np.flatnonzero(K[:, j])
        left = Y[:, j] - Y[:, used] @ K[used, j].astype(Y.dtype)
        if np.linalg.norm(left.astype(float)) > 10.0 * ZERO * (1.0 + np.linalg.norm(K[used, j])):
            return False
    return True


def _result(columns: Columns, scale: np.ndarray, reduction: _Reduction) -> BaseParameters:
    keep, weak = np.flatnonzero(reduction.independent), reduction.weak
    M = reduction.K[keep] * (scale / scale[keep][:, None])
    share = M[~weak[keep]][:, weak].copy()
    M[:, keep] = np.eye(len(keep))
    return BaseParameters(
        column_names=column_labels(columns.pairs, columns.inertial),
        independent=keep,
        map=M,
        weak=weak[keep],
        strength=reduction.strength[keep],
        scale=scale,
        order=_preference(columns),
        share=share,
    )
