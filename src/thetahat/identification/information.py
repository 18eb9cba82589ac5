"""`Information`: what a log says about a robot's parameters, in a few hundred kilobytes whatever
the log's length.

For every joint j, the triangular factor of [Y_j | u_j]: the joint's rows of the regressor's base
columns beside its measured torque. Two of them merge into one (`a + b`). Tiles of samples are
folded as they come and never stored.

With instruments Z_j, the regressor of another record of the same motion, it is that of [Z_j | Y_j |
u_j], and fits minimise ‖P(Y x − u)‖² over all joints' rows, P the projection onto the instruments'
columns: noise in the motion, which is not in Z, then biases nothing (docs/estimators.md).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from thetahat.data.friction_direction import (
    batches_with_friction_direction,
    with_friction_direction,
)
from thetahat.data.samples import Samples
from thetahat.data.window_batches import WindowBatch, window_batches
from thetahat.dynamics.contact_projection import eliminates_forces, row_deviations
from thetahat.errors import MalformedInput, NotIdentifiable, StorageError, UsageError
from thetahat.files import replacing
from thetahat.identification import factor as f
from thetahat.identification.fold_plan import fold_plan
from thetahat.identification.fold_samples import fold_batch, fold_windows
from thetahat.identification.identifiability.base_parameters import BaseParameters
from thetahat.identification.identifiability.unidentifiable import unidentifiable
from thetahat.model.drive import Drive
from thetahat.model.floating_base import ground_of
from thetahat.model.robot import Robot

SCHEMA = "thetahat/information/1"
WINDOWS = 4096  # that are folded at once


@dataclass(frozen=True, eq=False)
class Information:
    """The factors of a log, and the robot they belong to."""

    robot: Robot
    base: BaseParameters
    # per degree of freedom: the base parameters its torque can show, ascending
    positions: tuple[np.ndarray, ...]
    # per degree of freedom: R of [Y_j | u_j], (columns + 1, columns + 1)
    factors: tuple[np.ndarray, ...]
    rows: np.ndarray  # (nv,) torque samples folded per degree of freedom
    samples: int  # samples read, used or not
    provenance: tuple[Mapping[str, Any], ...] = ()
    # per degree of freedom, where there are instruments: R of [Z_j | Y_j | u_j], (2·columns + 1, ·)
    instrument_factors: tuple[np.ndarray, ...] | None = None

    # -- merging -----------------------------------------------------------------------------------

    @cached_property
    def key(self) -> str:
        """A hash of geometry, gravity and columns: what two factors must share to merge."""
        return robot_key(self.robot)

    def __add__(self, other: Information) -> Information:
        """Merge the information of two logs of robots with the same geometry and columns."""
        if not isinstance(other, Information):
            return NotImplemented
        if self.key != other.key:
            raise UsageError(
                f"these are informations of different robots ({self.robot.name!r} and"
                f" {other.robot.name!r}): geometry, gravity or drive columns differ; fold both logs"
                " with the same robot"
            )
        mine, theirs = self.instrument_factors, other.instrument_factors
        if (mine is None) != (theirs is None):
            raise UsageError(
                "one of these informations has instruments and the other has none; fold both logs"
                " with instruments, or merge what `without_instruments` gives"
            )
        with f.blas_threads().limit(limits=1, user_api="blas"):
            factors = tuple(
                f.merged(a, b) for a, b in zip(self.factors, other.factors, strict=True)
            )
            beside = (
                None
                if mine is None or theirs is None
                else tuple(f.merged(a, b) for a, b in zip(mine, theirs, strict=True))
            )
        return Information(
            self.robot,
            self.base,
            self.positions,
            factors,
            self.rows + other.rows,
            self.samples + other.samples,
            self.provenance + other.provenance,
            beside,
        )

    # -- instruments -------------------------------------------------------------------------------

    @property
    def without_instruments(self) -> Information:
        """The same rows for ordinary least squares."""
        return self if self.instrument_factors is None else replace(self, instrument_factors=None)

    def projection(self, weights: np.ndarray | None = None) -> f.Projection | None:
        """[Y | u] of all joints' rows on the columns of Z, times the joints' weights, in base
        parameters; None without instruments.

        As many instruments as parameters: P projects onto the columns of all joints' Z, one below
        the other. Joint by joint it would have several times as many, and every one to spare draws
        the estimate of a finite log towards least squares.
        """
        if self.instrument_factors is None:
            return None
        p = len(self.base)
        weights = np.ones(len(self.factors)) if weights is None else weights
        rows = np.zeros((sum(len(R) for R in self.instrument_factors), 2 * p + 1), order="F")
        at = 0
        for positions, R, weight in zip(
            self.positions, self.instrument_factors, weights, strict=True
        ):
            to = np.concatenate([positions, p + positions, [2 * p]])
            rows[at : at + len(R), to] = weight * R
            at += len(R)
        return f.projection(f.triangle(rows))

    def fitted_factors(self, weights: np.ndarray | None = None) -> list[np.ndarray]:
        """Per degree of freedom, G with ‖rows of the fit·x‖ = ‖G·x‖ for all x, (·, p): those of
        Y_j, or with instruments of P·Y, which is Z_j·gain.
        """
        projection, p, out = self.projection(weights), len(self.base), []
        for v, positions in enumerate(self.positions):
            if projection is None or self.instrument_factors is None:
                whole = np.zeros((len(self.factors[v]), p))
                whole[:, positions] = self.factors[v][:, :-1]
                out.append(whole)
            else:
                Z = self.instrument_factors[v][:, : len(positions)]
                out.append(Z @ projection.gain[positions])
        return out

    # -- what it says ------------------------------------------------------------------------------

    def stacked(self, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the factor of all joints' rows in base parameters, times the joints' weights."""
        projection = self.projection(weights)
        if projection is not None:
            return f.triangle(np.asfortranarray(projection.rows))
        p = len(self.base)
        weights = np.ones(len(self.factors)) if weights is None else weights
        rows = np.zeros((sum(len(R) for R in self.factors), p + 1), order="F")
        at = 0
        for positions, R, weight in zip(self.positions, self.factors, weights, strict=True):
            rows[at : at + len(R), positions] = weight * R[:, :-1]
            rows[at : at + len(R), p] = weight * R[:, -1]
            at += len(R)
        return f.triangle(rows)

    def torque_norms(self) -> np.ndarray:
        """‖u_j‖ of every degree of freedom, (nv,) [N·m or N]."""
        return np.array([np.linalg.norm(R[:, -1]) for R in self.factors])

    def residual_norms(self, x_base: np.ndarray) -> np.ndarray:
        """Return ‖u_j − Y_j x‖ of every degree of freedom, (nv,), from the factors alone."""
        x_base = np.asarray(x_base, dtype=float)
        return np.array(
            [
                np.linalg.norm(R[:, :-1] @ x_base[positions] - R[:, -1])
                for positions, R in zip(self.positions, self.factors, strict=True)
            ]
        )

    def r2_per_joint(self, x_base: np.ndarray) -> np.ma.MaskedArray:
        """Return 1 − e'e/u'u per degree of freedom (paper); masked without torque."""
        u2 = self.torque_norms() ** 2
        defined = u2 > 0.0
        return np.ma.masked_array(
            1.0 - self.residual_norms(x_base) ** 2 / np.where(defined, u2, 1.0), mask=~defined
        )

    def r2(self, x_base: np.ndarray) -> float | None:
        """1 − e'e/u'u over all joints (paper's R²), None without torque."""
        u2 = float(np.sum(self.torque_norms() ** 2))
        return 1.0 - float(np.sum(self.residual_norms(x_base) ** 2)) / u2 if u2 > 0.0 else None

    @cached_property
    def solution(self) -> f.Solution:
        """Plain least squares in base parameters: rank, condition and the directions not seen."""
        return f.solve(self.stacked())

    @property
    def rank(self) -> int:
        """How many directions of base parameters the data see; the structural rank is len(base)."""
        return self.solution.rank

    @property
    def condition(self) -> float:
        """Condition number of the column-scaled factor, over the directions seen."""
        return self.solution.condition

    def missing(self) -> tuple[str, ...]:
        """Return a sentence per unidentifiable direction: its parameters, and joints to move."""
        return unidentifiable(self.robot, self.base, self.solution.directions)

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write to an .npz file, whole or not at all; `Information.load` reads it."""
        arrays: dict[str, Any] = {f"factor{v}": R for v, R in enumerate(self.factors)}
        arrays |= {f"instruments{v}": R for v, R in enumerate(self.instrument_factors or ())}
        header = json.dumps(
            {
                "schema": SCHEMA,
                "key": self.key,
                "samples": self.samples,
                "provenance": [dict(each) for each in self.provenance],
            }
        )
        with replacing(path) as scratch, scratch.open("wb") as file:
            np.savez(file, header=np.array(header), rows=self.rows, **arrays)

    @staticmethod
    def load(path: str | Path, robot: Robot) -> Information:
        """Read what `save` wrote; the robot must be the one it was folded with."""
        path = Path(path)
        try:
            with np.load(path, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                factors = tuple(file[f"factor{v}"] for v in range(robot.nv))
                rows = file["rows"]
                beside = (
                    tuple(file[f"instruments{v}"] for v in range(robot.nv))
                    if "instruments0" in file
                    else None
                )
        except OSError as error:
            raise StorageError(
                f"{path} cannot be read: {error.strerror or 'it is no .npz file'}"
            ) from None
        except (ValueError, KeyError, BadZipFile):
            raise MalformedInput(
                f"{path} is not an information of {robot.name!r} that thetahat saved; fold the log"
                " again"
            ) from None
        plan = fold_plan(robot)
        shapes = [(len(p) + 1, len(p) + 1) for p in plan.positions]
        pairs = [(2 * len(p) + 1, 2 * len(p) + 1) for p in plan.positions]
        if (
            header.get("schema") != SCHEMA
            or header.get("key") != robot_key(robot)
            or [R.shape for R in factors] != shapes
            or (beside is not None and [R.shape for R in beside] != pairs)
        ):
            raise UsageError(
                f"{path} belongs to another robot than {robot.name!r}: geometry, gravity or drive"
                " columns differ; fold the log again"
            )
        return Information(
            robot,
            plan.base,
            plan.positions,
            factors,
            rows,
            int(header["samples"]),
            tuple(header["provenance"]),
            beside,
        )


def robot_key(robot: Robot) -> str:
    """Return a hash of geometry, names, gravity, drive terms and actuation map."""
    digest = hashlib.sha256()
    for array in robot.tree.arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    drive = robot.drive
    actuation = (
        ""
        if drive.actuation is None
        else repr(drive.actuation.B if drive.actuation.constant else "function")
    )
    digest.update(
        repr(
            (
                robot.joint_names,
                robot.body_names,
                tuple(robot.gravity),
                drive.identified,
                drive.motors,
                actuation,
                *_laws(drive),
                *_forces(robot),
            )
        ).encode()
    )
    return digest.hexdigest()


def _forces(robot: Robot) -> tuple[object, ...]:
    """Feet whose forces are eliminated, and by which weights; none where all are measured."""
    if not eliminates_forces(robot):
        return ()
    return ("feet", ground_of(robot), tuple(row_deviations(robot)))


def _laws(drive: Drive) -> tuple[object, ...]:
    """Friction law and settings of further terms, which decide columns too; none if plain."""
    shapes = tuple(
        (shape.term, shape.settings)
        for shape, _ in drive.extra
        if shape.term in drive.identified and shape.settings
    )
    rotors = drive.rotors if "armature" in drive.identified else None
    return (
        *((drive.dry.key,) if drive.dry is not None else ()),
        *((shapes,) if shapes else ()),
        *((("rotors", rotors),) if rotors is not None else ()),
    )


def information(
    robot: Robot,
    samples: Samples | Iterable[Samples],
    *,
    weights: np.ndarray | None = None,
    threads: int | None = None,
) -> Information:
    """Fold samples, or a stream of them, into the information they hold on the robot's parameters.

    Samples with instruments are folded with them.

    weights: (samples, nv) factors on the rows of [Y | u], for robust estimation; rows a sample
        marks unusable never count.
    """
    plan = fold_plan(robot)
    if robot.nv == 0:
        raise NotIdentifiable(
            f"robot {robot.name!r} has no movable joint, so no motion shows its parameters"
        )
    factors = [np.zeros((len(p) + 1, len(p) + 1)) for p in plan.positions]
    rows, count, paired = np.zeros(robot.nv, dtype=np.int64), 0, False
    provenance: list[Mapping[str, Any]] = []
    for batched in _stream(samples, robot):
        if isinstance(batched, WindowBatch):
            part, read = batched.samples, batched.new_samples
            _check_windows(robot, part, weights)
            new, used = fold_windows(plan, batched, threads)
        else:
            part, read = batched, len(batched)
            _check(robot, part, weights)
            if count and paired != (part.instruments is not None):
                raise UsageError(
                    "some of the samples have instruments and others have none; give all of them"
                    " instruments, or none"
                )
            paired = part.instruments is not None
            new, used = fold_batch(plan, part, _row_weights(part, weights), threads)
        factors = [f.merged(a, b) for a, b in zip(factors, new, strict=True)] if count else new
        rows, count = rows + used, count + read
        if part.provenance and part.provenance not in provenance:
            provenance.append(part.provenance)
    beside = tuple(factors) if paired else None
    factors = list(without_instruments(factors)) if paired else factors
    return Information(
        robot, plan.base, plan.positions, tuple(factors), rows, count, tuple(provenance), beside
    )


def without_instruments(factors: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the factors of [Y_j | u_j] from those of [Z_j | Y_j | u_j]."""
    return tuple(f.triangle(np.asfortranarray(R[:, len(R) // 2 :])) for R in factors)


def _stream(
    samples: Samples | Iterable[Samples], robot: Robot
) -> Iterator[Samples] | Iterator[WindowBatch]:
    """Return the samples as they come, or those of whole windows where their form asks for it."""
    parts = (
        iter((with_friction_direction(samples, robot),))
        if isinstance(samples, Samples)
        else batches_with_friction_direction(samples, robot)
    )
    first = next(parts, None)
    if first is None:
        return iter(())
    parts = itertools.chain((first,), parts)
    return window_batches(parts, WINDOWS) if first.form.windowed else parts


def _check(robot: Robot, samples: Samples, weights: np.ndarray | None) -> None:
    if samples.q.shape[1] != robot.nq or samples.dq.shape[1] != robot.nv:
        raise UsageError(
            f"the samples have {samples.q.shape[1]} coordinates and {samples.dq.shape[1]}"
            f" velocities, but robot {robot.name!r} has {robot.nq} and {robot.nv}; prepare them"
            " with this robot"
        )
    if weights is not None and np.shape(weights) != samples.tau.shape:
        raise UsageError(
            f"weights have shape {np.shape(weights)}; expected {samples.tau.shape}, one per torque"
            " sample"
        )


def _check_windows(robot: Robot, samples: Samples, weights: np.ndarray | None) -> None:
    _check(robot, samples, None)
    if weights is not None:
        raise UsageError(
            f"weights are for the torque form; these samples have the {samples.form.name} form,"
            " whose rows are made of several samples: prepare them without it"
        )
    if eliminates_forces(robot):
        raise UsageError(
            f"contact forces are eliminated from torques; these samples have the"
            f" {samples.form.name} form: prepare them without it"
        )
    if samples.instruments is not None:
        raise UsageError(
            f"instruments are for the torque form; these samples have the {samples.form.name} form:"
            " prepare them without it"
        )


def _row_weights(samples: Samples, weights: np.ndarray | None) -> np.ndarray | None:
    """Factors on every row, zero where it is not usable; None where all are one."""
    usable = (
        None
        if samples.reason is None or not np.any(samples.reason)
        else samples.valid.astype(float)
    )
    if weights is None:
        return usable
    weights = np.array(weights, dtype=float, order="C")
    return weights if usable is None else weights * usable
