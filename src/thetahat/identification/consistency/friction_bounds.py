"""Linear constraints of friction that can exist: dissipative, and no larger than the torque seen.

Friction without its offset, at motor speed v > 0 in either direction,

    τ_f(±v)·sign = d(v)·(coulomb + stribeck·e^{−(v/v_s)²}) + (viscous ± one_sided)·v + quadratic·v²

is to be nonnegative up to the joint's speed limit, or `BEYOND` times the fastest speed seen where
the file states none. Coulomb and Stribeck are nonnegative, and d(v)/v and its product with the
exponential fall with v; so on a cell a ≤ v ≤ b of the speeds

    τ_f/v ≥ d(b)/b·(coulomb + stribeck·e^{−(b/v_s)²}) + viscous ± one_sided + quadratic·v

whose right side is linear in v: where it is nonnegative at a and at b, friction dissipates in the
whole cell, and no speed between the ends of cells is missed.

Friction that grows with the load is nonnegative by itself (misfit.py) and left out.
"""

from __future__ import annotations

import numpy as np

from thetahat.identification.consistency.constraints import LinearBounds
from thetahat.identification.log_statistics import LogStatistics
from thetahat.identification.parameter_columns import Columns
from thetahat.model.friction_terms import FrictionDirection

BEYOND = 2.0  # times the fastest speed seen: the speed limit where the file states none
CELLS = 10  # of the speeds up to the limit
FIRST = 0.02  # of the limit: end of the first cell; the others grow by the same ratio
DRY, RISING = ("coulomb", "stribeck"), ("viscous", "one_sided", "quadratic")


def top_speeds(columns: Columns, statistics: LogStatistics | None) -> np.ndarray:
    """Return the speed of every motor up to which friction dissipates, (motors,) [rad/s or m/s].

    The limit of the robot file; that of a motor which drives several joints is reached when all of
    them are. Infinite where neither a limit nor a log is known.
    """
    robot = columns.robot
    limits = np.full(robot.nv, np.inf)
    for node in robot.tree.independent:
        if node.kind.nv == 1:
            limits[robot.tree.v_index[node.name]] = node.limits.velocity
    actuation = robot.drive.actuation
    if actuation is not None:
        B = np.abs(actuation.B) if isinstance(actuation.B, np.ndarray) else None
        limits = np.full(actuation.motors, np.inf) if B is None else _through(B, limits)
    limits = np.where(limits > 0.0, limits, np.inf)
    if statistics is None:
        return limits
    fastest = np.where(statistics.fastest > 0.0, statistics.fastest, 1.0)
    return np.maximum(np.where(np.isfinite(limits), limits, BEYOND * fastest), fastest)


def _through(B: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Motor speeds |B|ᵀ·limits, infinite where a joint that counts has none."""
    finite = np.isfinite(limits)
    speeds: np.ndarray = B.T @ np.where(finite, limits, 0.0)
    return np.where(np.any((B > 0.0) & ~finite[:, None], axis=0), np.inf, speeds)


def friction_bounds(columns: Columns, statistics: LogStatistics | None = None) -> LinearBounds:
    """Return rows·x ≥ low of friction that dissipates and whose terms the torque seen bounds."""
    rows: list[np.ndarray] = []
    names: list[str] = []
    low: list[float] = []
    places = _places(columns)
    top = top_speeds(columns, statistics)
    for position, (motor, name) in enumerate(
        zip(columns.drive.column_motors, columns.motor_names, strict=True)
    ):
        at = {term: start + position for term, start in places.items()}
        made = _dissipation(columns, at, motor, float(top[motor]))
        rows += made
        names += [f"friction of {name} dissipates"] * len(made)
        low += [0.0] * len(made)
        if statistics is not None:
            made, bound = _amplitudes(columns, at, motor, statistics)
            rows += made
            names += [f"friction of {name} within the torque seen"] * len(made)
            low += [bound] * len(made)
    return LinearBounds(
        np.array(rows).reshape(-1, columns.count),
        np.array(low),
        np.full(len(rows), np.inf),
        tuple(names),
        (False,) * len(rows),
    )


def _places(columns: Columns) -> dict[str, int]:
    """Position in x of the first motor of each identified friction term."""
    identified, motors = columns.drive.identified, len(columns.drive.column_motors)
    return {
        term: columns.inertial + k * motors
        for k, term in enumerate(identified)
        if term in (*DRY, *RISING)
    }


def _shape(columns: Columns, term: str, motor: int, speed: np.ndarray) -> np.ndarray:
    """Torque of a term at these speeds of one motor, per unit of its parameter."""
    drive = columns.drive
    dq = np.zeros((len(speed), len(drive.viscous)))
    dq[:, motor] = speed
    value = drive.term(term).column(dq, np.zeros_like(dq), None)[:, motor]
    if drive.term(term).along:
        law = drive.dry or FrictionDirection.plain(len(drive.viscous))
        value = value * law.at(dq)[:, motor]
    return np.asarray(value)


def _dissipation(columns: Columns, at: dict[str, int], motor: int, top: float) -> list[np.ndarray]:
    """Rows of one motor; none where all its terms are nonnegative by themselves."""
    one = np.ones(1)
    signed = [
        term
        for term in ("one_sided", "quadratic")
        if term in at and np.any(_shape(columns, term, motor, one))
    ]
    if not signed:
        return []
    out = []
    directions = (1.0, -1.0) if "one_sided" in signed else (1.0,)
    for a, b, dry_at in _cells(top):
        dry = {
            term: float(_shape(columns, term, motor, np.array([dry_at]))[0]) / dry_at
            for term in DRY
            if term in at and np.isfinite(dry_at)
        }
        for direction in directions:
            for v in (a, b):
                row = np.zeros(columns.count)
                for term, value in dry.items():
                    row[at[term]] = value
                if "viscous" in at:
                    row[at["viscous"]] = 1.0
                if "one_sided" in signed:
                    row[at["one_sided"]] = direction
                if "quadratic" in signed:
                    row[at["quadratic"]] = v
                out.append(row)
    return list(np.unique(np.array(out), axis=0))


def _cells(top: float) -> list[tuple[float, float, float]]:
    """(a, b, speed at whose dry friction counts) of every cell.

    Without a limit two rows are left: at rest, and where only the leading term counts.
    """
    if not np.isfinite(top):
        return [(0.0, 1e6, np.inf)]
    ends = top * np.geomspace(FIRST, 1.0, CELLS)
    return [(a, b, b) for a, b in zip([0.0, *ends[:-1]], ends, strict=True)]


def _amplitudes(
    columns: Columns, at: dict[str, int], motor: int, statistics: LogStatistics
) -> tuple[list[np.ndarray], float]:
    """Rows that hold each term's torque at the fastest speed below the largest torque seen."""
    actuation = columns.drive.actuation
    joints = (
        np.array([motor]) if actuation is None else np.flatnonzero(actuation.touches()[:, motor])
    )
    largest = float(np.max(statistics.torque[joints], initial=0.0))
    fastest = float(statistics.fastest[motor])
    if largest <= 0.0 or fastest <= 0.0:
        return [], 0.0
    out = []
    dry = np.zeros(columns.count)
    for term in DRY:
        if term in at:
            dry[at[term]] = -1.0
    if np.any(dry):
        out.append(dry)
    for term in RISING:
        if term not in at:
            continue
        size = float(_shape(columns, term, motor, np.array([fastest]))[0])
        for sign in (-1.0, 1.0) if term != "viscous" else (-1.0,):
            if size > 0.0:
                row = np.zeros(columns.count)
                row[at[term]] = sign * size
                out.append(row)
    return out, -largest


def worst_dissipation(
    columns: Columns, x: np.ndarray, top: np.ndarray, *, count: int = 400
) -> np.ndarray:
    """Return the least τ_f·sign(q̇) of every motor with columns up to its top speed, (motors,).

    On a grid much finer than the cells: a check of the bounds, offset left out. Zero or more
    where friction dissipates.
    """
    places, out = _places(columns), []
    for position, motor in enumerate(columns.drive.column_motors):
        speed = top[motor] * np.linspace(1e-4, 1.0, count)
        least = np.inf
        for direction in (1.0, -1.0):
            torque = sum(
                (
                    x[start + position] * _shape(columns, term, motor, direction * speed)
                    for term, start in places.items()
                ),
                np.zeros(count),
            )
            least = min(least, float(np.min(direction * torque)))
        out.append(least)
    return np.array(out)
