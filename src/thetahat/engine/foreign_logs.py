"""Logs of another robot: the same joints by name, but torques that the parameters of all other logs
do not explain, and its own do.

For file i, with R_i its factor and x_−i the least-squares fit of all others,

    left_i = ‖R_i x_−i − z_i‖²   against   own_i = min ‖R_i x − z_i‖²
    and what chance explains, σ²·‖R_i R_−i⁻¹‖²

A file is foreign where `left` is more than `TIMES` what its own fit leaves and chance explains,
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
from thetahat.engine.shard_work import OWN, Fold, FoldResult, ScoreSums
from thetahat.errors import MalformedInput
from thetahat.identification import factor as f
from thetahat.identification.information import Information
from thetahat.model.robot import Robot

R = TypeVar("R")
FEWEST = 3  # files
TIMES = 100.0  # in energy: ten times the residual
PART = 0.2  # of the energy of the torque
CORRELATED = 50.0  # filtered rows that count as one: neighbours are not independent


@dataclass(frozen=True, eq=False)
class FilePart(Generic[R]):
    """The result of one file's rows."""

    place: str
    name: str
    result: R


@dataclass(frozen=True, eq=False)
class FittedLogs:
    """What the files that were fitted say."""

    work: Fold
    information: Information
    files: int


@dataclass(frozen=True)
class Misfit:
    """How a file fits what others say."""

    ratio: float  # of its residual with their parameters to the expected one; 0: they cannot say
    r2_others: float  # with their parameters
    r2_own: float  # with its own

    @property
    def foreign(self) -> bool:
        """Whether it is clearly of another robot."""
        return self.ratio > TIMES and 1.0 - self.r2_others > PART


def find_foreign_logs(robot: Robot, files: Sequence[FilePart[FoldResult]]) -> dict[str, Failure]:
    """Return the files, by place, whose torques do not fit what all others say of the robot.

    The one that fits worst is taken out first, then without it the next.
    """
    left = list(files)
    out: dict[str, Failure] = {}
    with f.blas_threads().limit(limits=1, user_api="blas"):
        misfits = _misfits(robot, left)
        while misfits and 2 * (len(out) + 1) < len(files):
            worst = max(range(len(left)), key=lambda k: misfits[k].ratio)
            misfit = misfits[worst]
            if not misfit.foreign:
                break
            odd = left.pop(worst)
            misfits = _misfits(robot, left)
            usual = float(np.median([each.ratio for each in misfits] or [np.inf]))
            if misfit.ratio <= TIMES * max(usual, 1.0):
                break
            out[odd.place] = _failure(odd.name, len(left), misfit)
    return out


def poorly_predicted(
    parts: Sequence[FilePart[ScoreSums]], fitted: FittedLogs
) -> list[FilePart[ScoreSums]]:
    """Return held-out files that the fitted robot predicts so badly that they may be foreign; none
    where most would be, or too few files were fitted.
    """
    poor = [
        part
        for part in parts
        if float(part.result.residual[OWN][0].sum()) > PART * float(part.result.torque[0].sum())
    ]
    return poor if fitted.files >= FEWEST and 2 * len(poor) < fitted.files + len(parts) else []


def foreign_failure(
    name: str, own: FoldResult, fitted: FittedLogs, *, only: bool
) -> Failure | None:
    """Return why a held-out file is foreign to the fitted ones, if it is.

    only: nothing else is held out, so that it is scored all the same.
    """
    with f.blas_threads().limit(limits=1, user_api="blas"):
        misfit = measure_misfit(own.information(fitted.work.robot), fitted.information)
    if not misfit.foreign:
        return None
    fate = ("nothing else is held out, so the score is of it",) if only else ()
    return _failure(name, fitted.files, misfit, *fate)


def _failure(
    name: str, others: int, misfit: Misfit, fate: str = "it was left out, identify from it apart"
) -> Failure:
    sentence = (
        f"{name}: its torques do not fit what the other {others} logs say of the robot (R²"
        f" {misfit.r2_others:.2f} with their parameters, {misfit.r2_own:.2f} with its own), so it"
        f" seems to be of another robot or payload; {fate}"
    )
    return Failure(name, sentence, MalformedInput.exit_code)


def _misfits(robot: Robot, files: Sequence[FilePart[FoldResult]]) -> list[Misfit]:
    """Of every file against all others; none where there are too few."""
    if len(files) < FEWEST:
        return []
    others = _all_but_one([each.result for each in files])
    return [
        measure_misfit(own.result.information(robot), rest.information(robot))
        for own, rest in zip(files, others, strict=True)
    ]


def _all_but_one(parts: list[FoldResult]) -> list[FoldResult]:
    """For each part, all others merged: what comes before it and what comes after it, two merges
    each.
    """
    before, after = [parts[0]], [parts[-1]]
    for left, right in zip(parts[1:-1], parts[-2:0:-1], strict=True):
        before.append(Fold.merge([before[-1], left]))
        after.append(Fold.merge([right, after[-1]]))
    after.reverse()
    middle = [Fold.merge([a, b]) for a, b in zip(before[:-1], after[1:], strict=True)]
    return [after[0], *middle, before[-1]]


def measure_misfit(own: Information, others: Information) -> Misfit:
    """Return how a file's information fits the parameters that others determine."""
    theirs, mine = others.solution, own.solution
    energy = float(np.sum(own.torque_norms() ** 2))
    if theirs.rank < len(own.base) or not energy:
        return Misfit(0.0, 0.0, 0.0)
    left, least = (float(np.sum(own.residual_norms(x) ** 2)) for x in (theirs.x, mine.x))
    n = len(own.base)
    whole = others.stacked()
    share = solve_triangular(whole[:n, :n], own.stacked()[:n, :n].T, trans="T", check_finite=False)
    variance = CORRELATED * theirs.residual**2 / max(int(others.rows.sum()), 1)
    expected = least + variance * float(np.sum(share**2)) + 1e-12 * energy
    return Misfit(left / expected, 1.0 - left / energy, 1.0 - least / energy)
