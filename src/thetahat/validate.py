"""How well a robot predicts torques it was not fitted to: R² and RMS per joint, beside the nominal robot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from thetahat import dynamics
from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.model.robot import Robot

PIECE = 65_536  # samples predicted at once


@dataclass(frozen=True, eq=False)
class Validation:
    """Scores per degree of freedom; masked where there are no rows, or no torque to explain.

    R² = 1 − e'e/u'u, not centred (paper). All usable rows count; `_moving` leaves out those of a joint at standstill.
    """

    names: tuple[str, ...]  # of the degrees of freedom
    samples: int
    rows: np.ndarray  # (nv,) torques scored
    rows_moving: np.ndarray  # (nv,)
    r2: np.ma.MaskedArray  # (nv,)
    r2_moving: np.ma.MaskedArray
    rms: np.ma.MaskedArray  # (nv,) [N·m or N]
    rms_moving: np.ma.MaskedArray
    r2_total: float | None  # of all joints together (paper's R²)
    cutoff: float | None = None  # [Hz] of the low-pass on the torques that are scored
    nominal: Validation | None = None  # the same rows predicted by the nominal robot

    def __str__(self) -> str:
        width = max(map(len, ("joint", *self.names)))
        head = ["joint".ljust(width), "     R²", "moving", "    RMS", "  rows"] + (["nominal R²", "nominal RMS"] if self.nominal else [])
        lines = ["  ".join(head)]
        for j, name in enumerate(self.names):
            cells = [
                name.ljust(width),
                _cell(self.r2[j], 7, ".4f"),
                _cell(self.r2_moving[j], 6, ".4f"),
                _cell(self.rms[j], 7, ".3g"),
                f"{self.rows[j]:6d}",
            ]
            if self.nominal:
                cells += [_cell(self.nominal.r2[j], 10, ".4f"), _cell(self.nominal.rms[j], 11, ".3g")]
            lines.append("  ".join(cells))
        total = "undefined" if self.r2_total is None else f"{self.r2_total:.6f}"
        beside = "" if self.nominal is None or self.nominal.r2_total is None else f" (nominal {self.nominal.r2_total:.6f})"
        low_pass = "torques as given" if self.cutoff is None else f"torques below {self.cutoff:.4g} Hz"
        return "\n".join([f"R² {total}{beside} over {self.samples} samples, {low_pass}", *lines])


def _cell(value: float, width: int, form: str) -> str:
    return f"{'–' if value is np.ma.masked else format(float(value), form):>{width}}"


def validate(robot: Robot, samples: Samples | Iterable[Samples], nominal: Robot | None = None) -> Validation:
    """Score a robot, and the nominal one beside it, on samples or a stream of them; rows that samples mark unusable do not count."""
    robots = [robot] if nominal is None else [robot, nominal]
    for other in robots[1:]:
        if other.nv != robot.nv or other.nq != robot.nq:
            raise UsageError(f"the nominal robot has {other.nv} degrees of freedom and the other {robot.nv}; give two variants of one robot")
    sums = [_Sums(robot.nv) for _ in robots]
    cutoffs, count = set(), 0
    for part in _pieces(samples):
        _check(robot, part)
        cutoffs.add(part.provenance.get("settings", {}).get("torque_cutoff") or part.cutoff)
        count += len(part)
        for each, into in zip(robots, sums, strict=True):
            into.add(part, dynamics.inverse_dynamics(each, part.q, part.dq, part.ddq))
    cutoff = cutoffs.pop() if len(cutoffs) == 1 else None
    beside = sums[1].result(robot.velocity_names, count, cutoff) if nominal is not None else None
    return sums[0].result(robot.velocity_names, count, cutoff, nominal=beside)


class _Sums:
    """Sums of squares of torques and of what is left of them, over usable rows and over those in motion."""

    def __init__(self, nv: int) -> None:
        self.rows, self.moving = np.zeros(nv, dtype=np.int64), np.zeros(nv, dtype=np.int64)
        self.left, self.left_moving = np.zeros(nv), np.zeros(nv)
        self.torque, self.torque_moving = np.zeros(nv), np.zeros(nv)

    def add(self, samples: Samples, predicted: np.ndarray) -> None:
        e2, u2 = (samples.tau - predicted) ** 2, samples.tau**2
        all_rows, moving = samples.scorable, samples.valid
        self.rows += all_rows.sum(axis=0)
        self.moving += moving.sum(axis=0)
        self.left += np.sum(e2, axis=0, where=all_rows)
        self.torque += np.sum(u2, axis=0, where=all_rows)
        self.left_moving += np.sum(e2, axis=0, where=moving)
        self.torque_moving += np.sum(u2, axis=0, where=moving)

    def result(self, names: tuple[str, ...], samples: int, cutoff: float | None, nominal: Validation | None = None) -> Validation:
        total = float(self.torque.sum())
        return Validation(
            names=names,
            samples=samples,
            rows=self.rows,
            rows_moving=self.moving,
            r2=_share(self.left, self.torque),
            r2_moving=_share(self.left_moving, self.torque_moving),
            rms=_root_mean(self.left, self.rows),
            rms_moving=_root_mean(self.left_moving, self.moving),
            r2_total=1.0 - float(self.left.sum()) / total if total > 0.0 else None,
            cutoff=cutoff,
            nominal=nominal,
        )


def _share(left: np.ndarray, torque: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.masked_array(1.0 - left / np.where(torque > 0.0, torque, 1.0), mask=torque <= 0.0)


def _root_mean(left: np.ndarray, rows: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.masked_array(np.sqrt(left / np.maximum(rows, 1)), mask=rows == 0)


def _pieces(samples: Samples | Iterable[Samples]) -> Iterator[Samples]:
    for part in (samples,) if isinstance(samples, Samples) else samples:
        for first in range(0, len(part), PIECE):
            yield part if len(part) <= PIECE else part.subset(slice(first, first + PIECE))


def _check(robot: Robot, samples: Samples) -> None:
    if samples.nq != robot.nq or samples.nv != robot.nv:
        raise UsageError(
            f"the samples have {samples.nq} coordinates and {samples.nv} velocities, but robot {robot.name!r} has {robot.nq} and {robot.nv}; "
            "prepare them with this robot"
        )
