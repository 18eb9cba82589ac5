"""The same information seen through other columns: with a drive term left out, or with the torques
of some joints alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from scipy.linalg import qr

from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification import factor as f
from thetahat.identification.identifiability.base_parameters import (
    WEAK,
    BaseParameters,
    base_parameters,
    random_states,
)
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns, full_regressor
from thetahat.model.robot import Robot


def view(
    information: Information,
    *,
    without: Iterable[str] = (),
    dofs: Iterable[int] | None = None,
    rotors: Iterable[int] | None = None,
) -> Information:
    """The information of the robot without these drive terms, from the torques of these degrees of
    freedom (default: all), with the rotor inertia of these motors (default: as it is), without weak
    directions.

    Y'x' = Y·x with the entries of x that are left out at zero, so each joint's factor is R_j·M_j[:,
    independent']: what the robot without those columns would have folded, with no second pass over
    the log.
    """
    robot = information.robot.with_drive(**dict.fromkeys(without, False))
    if rotors is not None:
        robot = robot.with_rotors(rotors)
    base = _tidied(base_parameters(robot).strong)
    if dofs is None:
        return seen_through(information, robot, base)
    dofs = sorted(set(dofs))
    if not dofs or not 0 <= dofs[0] <= dofs[-1] < robot.nv:
        raise UsageError(f"degrees of freedom are {dofs}; give some of 0 … {robot.nv - 1}")
    seen = seen_through(information, robot, shown_by(robot, base, dofs))
    mine = np.isin(np.arange(robot.nv), dofs)
    factors = tuple(
        R if own else np.zeros_like(R) for own, R in zip(mine, seen.factors, strict=True)
    )
    beside = seen.instrument_factors
    if beside is not None:
        beside = tuple(R if own else np.zeros_like(R) for own, R in zip(mine, beside, strict=True))
    return replace(
        seen,
        factors=factors,
        rows=np.where(mine, information.rows, 0),
        instrument_factors=beside,
    )


def shown_by(robot: Robot, base: BaseParameters, dofs: Sequence[int]) -> BaseParameters:
    """Return the base parameters that show in the torques of these degrees of freedom."""
    base = base.strong
    rng = np.random.default_rng(20240229)
    states = random_states(robot, rng, max(16, -(-3 * len(base) // len(dofs))))
    Y = full_regressor(robot, *states)[:, list(dofs)][..., base.independent].reshape(-1, len(base))
    length = np.linalg.norm(Y, axis=1)
    Y = Y / np.where(length > 0.0, length, 1.0)[:, None]
    norm = np.linalg.norm(Y, axis=0)
    scale = np.where(norm > WEAK * np.max(norm, initial=0.0), norm, 1.0)
    _, R, order = qr(Y / scale, mode="economic", pivoting=True)
    pivots = np.abs(np.diag(R))
    rank = int(np.sum(pivots > WEAK))
    if not rank:
        raise NotIdentifiable(
            f"the torques of {', '.join(robot.velocity_names[v] for v in dofs)} show no parameter;"
            " choose other joints"
        )
    K = np.zeros((rank, len(base)))  # scaled: column j is Σ_i K_ij × chosen column i
    K[:, order] = np.linalg.solve(R[:rank, :rank], R[:rank])
    K[np.abs(K) < WEAK] = 0.0
    chosen = np.sort(order[:rank])
    K = K[np.argsort(order[:rank])] * (scale / scale[chosen][:, None])
    K[:, chosen] = np.eye(rank)
    shown = replace(
        base,
        independent=base.independent[chosen],
        map=K @ base.map,
        weak=base.weak[chosen],
        strength=base.strength[chosen],
        share=np.zeros((rank, 0)),
    )
    return _tidied(shown)


def _tidied(base: BaseParameters) -> BaseParameters:
    """Without coefficients as small as the weak directions that were given up."""
    M = np.where(
        base.scale[base.independent][:, None] * np.abs(base.map) > WEAK * base.scale, base.map, 0.0
    )
    return replace(base, map=M)


def seen_through(information: Information, robot: Robot, base: BaseParameters) -> Information:
    """Return every joint's factor in the base columns of `robot`, a submodel."""
    old, new = Columns(information.robot), Columns(robot)
    place = {pair: k for k, pair in enumerate(old.pairs)}
    columns = [place[new.pairs[k]] for k in base.independent]  # positions in the old x
    touched = new.fitted[:, base.independent]
    positions, factors, beside = [], [], []
    for v, (held, R) in enumerate(zip(information.positions, information.factors, strict=True)):
        mine = np.flatnonzero(touched[v])
        M = information.base.map[held][:, [columns[k] for k in mine]]
        rows = np.column_stack([R[:, :-1] @ M, R[:, -1]])
        positions.append(mine)
        factors.append(f.triangle(np.asfortranarray(rows)))
        if information.instrument_factors is not None:
            both, n = information.instrument_factors[v], len(held)
            pair = [both[:, :n] @ M, both[:, n:-1] @ M, both[:, -1]]
            beside.append(f.triangle(np.asfortranarray(np.column_stack(pair))))
    return replace(
        information,
        robot=robot,
        base=base,
        positions=tuple(positions),
        factors=tuple(factors),
        instrument_factors=tuple(beside) if beside else None,
    )
