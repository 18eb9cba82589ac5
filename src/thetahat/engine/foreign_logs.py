"""Logs of another robot: the same joints by name, but torques that the parameters of all other logs
do not explain, and its own do.

For file i, with R_i its factor and x_−i the least-squares fit of all others,

    left_i = ‖R_i x_−i − z_i‖²   against   own_i = min ‖R_i x − z_i‖²,   and what chance explains,
    σ²·‖R_i R_−i⁻¹‖²

A file is a stranger where `left` is more than `TIMES` what its own fit leaves and chance explains,
more than `TIMES` that of the other files, and more than a fifth of its torque: another arm or a
heavy payload, not a worn gear. With fewer than four files nobody can say who is wrong.

Files that are held out are scored, not folded; one whose score is that poor is folded alone, and
held against the information of the fitted files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.engine.multi_log import Failure
from thetahat.engine.shard_fold import Fold, Folded
from thetahat.engine.shard_score import OWN, Scored
from thetahat.errors import MalformedInput
from thetahat.identification import factor as f
from thetahat.identification.information import Information
from thetahat.model.robot import Robot

R = TypeVar("R")
FEWEST = 3  # files
TIMES = 100.0  # in energy: ten times the residual
PART = 0.2  # of the energy of the torque
ALIKE = 50.0  # filtered rows that count as one: neighbours are not independent


@dataclass(frozen=True, eq=False)
class FilePart(Generic[R]):
    """What the rows of one file came to."""

    place: str
    name: str
    result: R


@dataclass(frozen=True, eq=False)
class Known:
    """What the files that were fitted say."""

    work: Fold
    information: Information
    files: int


def strangers(robot: Robot, files: Sequence[FilePart[Folded]]) -> dict[str, Failure]:
    """The files, by place, whose torques do not fit what all others say of the robot; the one that
    fits worst first, then without it the next.
    """
    left, out = list(files), {}
    with f.blas_threads().limit(limits=1, user_api="blas"):
        told = _told_all(robot, left)
        while told and 2 * (len(out) + 1) < len(files):
            worst = max(range(len(left)), key=lambda k: told[k][0] or 0.0)
            ratio, with_others, with_own = told[worst]
            if ratio is None or ratio <= TIMES or 1.0 - with_others <= PART:
                break
            odd = left.pop(worst)
            told = _told_all(robot, left)
            if ratio <= TIMES * max(
                float(np.median([each[0] or 0.0 for each in told] or [np.inf])), 1.0
            ):
                break
            out[odd.place] = Failure(
                odd.name,
                _sentence(odd.name, len(left), with_others, with_own),
                MalformedInput.exit_code,
            )
    return out


def suspects(parts: Sequence[FilePart[Scored]], known: Known) -> list[FilePart[Scored]]:
    """Held-out files that the fitted robot predicts so badly that they may be strangers; none where
    most would be, or too few files were fitted.
    """
    found = [
        part
        for part in parts
        if float(part.result.left[OWN][0].sum()) > PART * float(part.result.torque[0].sum())
    ]
    return found if known.files >= FEWEST and 2 * len(found) < known.files + len(parts) else []


def misfit(name: str, own: Folded, known: Known, *, only: bool) -> Failure | None:
    """Why a held-out file is a stranger to the fitted ones, if it is. only: nothing else is held
    out, so that it is scored all the same.
    """
    with f.blas_threads().limit(limits=1, user_api="blas"):
        ratio, with_others, with_own = _told(own.on(known.work.fitted), known.information)
    if ratio is None or ratio <= TIMES or 1.0 - with_others <= PART:
        return None
    fate = ("nothing else is held out, so the score is of it",) if only else ()
    return Failure(
        name, _sentence(name, known.files, with_others, with_own, *fate), MalformedInput.exit_code
    )


def _sentence(
    name: str,
    others: int,
    with_others: float,
    with_own: float,
    fate: str = "it was left out, identify from it apart",
) -> str:
    return (
        f"{name}: its torques do not fit what the other {others} logs say of the robot (R²"
        f" {with_others:.2f} with their parameters, {with_own:.2f} with its own), so it seems to be"
        f" of another robot or payload; {fate}"
    )


def _told_all(
    robot: Robot, files: Sequence[FilePart[Folded]]
) -> list[tuple[float | None, float, float]]:
    """`_told` of every file; none where there are too few."""
    if len(files) < FEWEST:
        return []
    others = _all_but_one([each.result for each in files])
    return [
        _told(own.result.on(robot), rest.on(robot)) for own, rest in zip(files, others, strict=True)
    ]


def _all_but_one(parts: list[Folded]) -> list[Folded]:
    """For each part, all others merged: what comes before it and what comes after it, two merges
    each.
    """
    before, after = [parts[0]], [parts[-1]]
    for left, right in zip(parts[1:-1], parts[-2:0:-1], strict=True):
        before.append(Fold.merged([before[-1], left]))
        after.append(Fold.merged([right, after[-1]]))
    after.reverse()
    middle = [Fold.merged([a, b]) for a, b in zip(before[:-1], after[1:], strict=True)]
    return [after[0], *middle, before[-1]]


def _told(own: Information, others: Information) -> tuple[float | None, float, float]:
    """(how many times more is left with the others' parameters than is to be expected, R² with
    theirs, R² with its own); None: they cannot say.
    """
    theirs, mine = others.solution, own.solution
    energy = float(np.sum(own.torque_norms() ** 2))
    if theirs.rank < len(own.base) or not energy:
        return None, 0.0, 0.0
    left, least = (float(np.sum(own.residual_norms(x) ** 2)) for x in (theirs.x, mine.x))
    n = len(own.base)
    whole = others.stacked()
    share = solve_triangular(whole[:n, :n], own.stacked()[:n, :n].T, trans="T", check_finite=False)
    variance = ALIKE * theirs.residual**2 / max(int(others.rows.sum()), 1)
    expected = least + variance * float(np.sum(share**2)) + 1e-12 * energy
    return left / expected, 1.0 - left / energy, 1.0 - least / energy
