"""How well a robot predicts torques it was not fitted to: R² and RMS per joint, beside the nominal
robot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from thetahat.data.contact_rows import project_torques, without_contact_forces
from thetahat.data.friction_direction import (
    batches_with_friction_direction,
    with_friction_direction,
)
from thetahat.data.samples import Samples
from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError
from thetahat.model.robot import Robot

PIECE = 65_536  # samples predicted at once
_OWN, _NOMINAL = "the robot", "the nominal robot"


@dataclass(frozen=True, eq=False)
class TorqueSums:
    """Sums over usable rows, first, and over those in motion, second; (2, nv) each."""

    samples: int  # read
    rows: np.ndarray
    torque: np.ndarray  # Σ u²
    left: np.ndarray  # Σ e²

    def r2(self, kind: int) -> np.ma.MaskedArray:
        """Return 1 − e'e/u'u per degree of freedom; masked where there is no torque."""
        left, torque = self.left[kind], self.torque[kind]
        return np.ma.masked_array(
            1.0 - left / np.where(torque > 0.0, torque, 1.0), mask=torque <= 0.0
        )

    def rms(self, kind: int) -> np.ma.MaskedArray:
        """Return the RMS error per degree of freedom; masked where there are no rows."""
        left, rows = self.left[kind], self.rows[kind]
        return np.ma.masked_array(np.sqrt(left / np.maximum(rows, 1)), mask=rows == 0)


@dataclass(frozen=True, eq=False)
class Validation:
    """Scores per degree of freedom; masked where there are no rows, or no torque to explain.

    R² = 1 − e'e/u'u, not centred (paper). All usable rows count; `_moving` leaves out those of a
    joint at standstill.
    """

    names: tuple[str, ...]  # of the degrees of freedom
    sums: TorqueSums
    cutoff: float | None = None  # [Hz] of the low-pass on the torques that are scored
    nominal: Validation | None = None  # the same rows predicted by the nominal robot
    beside: Mapping[str, Validation] = field(default_factory=dict)  # and by others, by name

    @property
    def samples(self) -> int:
        """How many samples were read."""
        return self.sums.samples

    @property
    def rows(self) -> np.ndarray:
        """Torques scored, (nv,)."""
        return np.asarray(self.sums.rows[0])

    @property
    def rows_moving(self) -> np.ndarray:
        """Torques scored in motion, (nv,)."""
        return np.asarray(self.sums.rows[1])

    @property
    def r2(self) -> np.ma.MaskedArray:
        """R² per degree of freedom, (nv,)."""
        return self.sums.r2(0)

    @property
    def r2_moving(self) -> np.ma.MaskedArray:
        """R² per degree of freedom in motion, (nv,)."""
        return self.sums.r2(1)

    @property
    def rms(self) -> np.ma.MaskedArray:
        """RMS error per degree of freedom, (nv,) [N·m or N]."""
        return self.sums.rms(0)

    @property
    def rms_moving(self) -> np.ma.MaskedArray:
        """RMS error per degree of freedom in motion, (nv,) [N·m or N]."""
        return self.sums.rms(1)

    @property
    def r2_total(self) -> float | None:
        """R² of all joints together (paper's R²); None without torque."""
        total = float(self.sums.torque[0].sum())
        return 1.0 - float(self.sums.left[0].sum()) / total if total > 0.0 else None

    def __str__(self) -> str:
        width = max(map(len, ("joint", *self.names)))
        others = {**({"nominal": self.nominal} if self.nominal else {}), **self.beside}
        head = ["joint".ljust(width), "     R²", "moving", "    RMS", "  rows"]
        head += [f"{name} {what}" for name in others for what in ("R²", "RMS")]
        lines = ["  ".join(head)]
        for j, name in enumerate(self.names):
            cells = [
                name.ljust(width),
                _cell(self.r2[j], 7, ".4f"),
                _cell(self.r2_moving[j], 6, ".4f"),
                _cell(self.rms[j], 7, ".3g"),
            ]
            cells.append(f"{self.rows[j]:6d}")
            for title, other in others.items():
                cells += [
                    _cell(other.r2[j], len(title) + 3, ".4f"),
                    _cell(other.rms[j], len(title) + 4, ".3g"),
                ]
            lines.append("  ".join(cells))
        total = "undefined" if self.r2_total is None else f"{self.r2_total:.6f}"
        scored = ", ".join(
            f"{name} {other.r2_total:.6f}"
            for name, other in others.items()
            if other.r2_total is not None
        )
        low_pass = (
            "torques as given" if self.cutoff is None else f"torques below {self.cutoff:.4g} Hz"
        )
        return "\n".join(
            [
                (
                    f"R² {total}{f' ({scored})' if scored else ''} over {self.samples} samples,"
                    f" {low_pass}"
                ),
                *lines,
            ]
        )


def _cell(value: object, width: int, form: str) -> str:
    return f"{'–' if value is np.ma.masked else format(value, form):>{width}}"


def validate(
    robot: Robot,
    samples: Samples | Iterable[Samples],
    nominal: Robot | None = None,
    *,
    beside: Mapping[str, Robot] | None = None,
) -> Validation:
    """Score a robot, and others beside it, on samples or a stream of them."""
    others = {**({} if nominal is None else {_NOMINAL: nominal}), **(beside or {})}
    for name, other in others.items():
        if other.nv != robot.nv or other.nq != robot.nq:
            raise UsageError(
                f"{name} has {other.nv} degrees of freedom and the other {robot.nv}; give variants"
                " of one robot"
            )
    sums = {name: (each, _Sums(robot.nv)) for name, each in {_OWN: robot, **others}.items()}
    cutoffs, count = set(), 0
    for part in _pieces(samples, robot):
        _check(robot, part)
        cutoffs.add(part.provenance.get("settings", {}).get("torque_cutoff") or part.cutoff)
        count += len(part)
        part = project_torques(robot, part)
        for each, into in sums.values():
            into.add(part, predicted(each, part))
    cutoff = cutoffs.pop() if len(cutoffs) == 1 else None
    scores = {
        name: Validation(
            robot.velocity_names, TorqueSums(count, into.rows, into.torque, into.left), cutoff
        )
        for name, (_, into) in sums.items()
    }
    return replace(scores.pop(_OWN), nominal=scores.pop(_NOMINAL, None), beside=scores)


def predicted(robot: Robot, samples: Samples) -> np.ndarray:
    """Return the torques a robot predicts, (n, nv): rigid bodies and drive, without contact forces
    that are not measured.
    """
    return without_contact_forces(robot, samples, _predicted(robot, samples))


def _predicted(robot: Robot, samples: Samples) -> np.ndarray:
    direction = samples.direction_of(robot.drive)
    if direction is None:
        return rigid_body.inverse_dynamics(robot, samples.q, samples.dq, samples.ddq)
    rigid = rigid_body.inverse_dynamics(robot, samples.q, samples.dq, samples.ddq, rigid=True)
    return np.asarray(
        rigid
        + robot.drive.torque(samples.dq, samples.ddq, q=samples.q, load=rigid, direction=direction)
    )


class _Sums:
    """Sums of squares over usable rows and over those in motion, growing batch by batch."""

    def __init__(self, nv: int) -> None:
        self.rows = np.zeros((2, nv), dtype=np.int64)
        self.torque, self.left = np.zeros((2, nv)), np.zeros((2, nv))

    def add(self, samples: Samples, predicted: np.ndarray) -> None:
        """Add the squares of these samples' torques and errors."""
        e2, u2 = (samples.tau - predicted) ** 2, samples.tau**2
        for kind, counted in enumerate((samples.scorable, samples.valid)):
            self.rows[kind] += counted.sum(axis=0)
            self.torque[kind] += np.sum(u2, axis=0, where=counted)
            self.left[kind] += np.sum(e2, axis=0, where=counted)


def _pieces(samples: Samples | Iterable[Samples], robot: Robot) -> Iterator[Samples]:
    for part in (
        (with_friction_direction(samples, robot),)
        if isinstance(samples, Samples)
        else batches_with_friction_direction(samples, robot)
    ):
        for first in range(0, len(part), PIECE):
            yield part if len(part) <= PIECE else part.subset(slice(first, first + PIECE))


def _check(robot: Robot, samples: Samples) -> None:
    if samples.nq != robot.nq or samples.nv != robot.nv:
        raise UsageError(
            f"the samples have {samples.nq} coordinates and {samples.nv} velocities, but robot"
            f" {robot.name!r} has {robot.nq} and {robot.nv}; prepare them with this robot"
        )
