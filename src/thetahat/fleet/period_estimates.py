"""One estimate per robot and period: the logs of a period folded, solved, and their noise measured;
by any worker, kept in a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thetahat import __version__
from thetahat.data.prepare import Settings
from thetahat.data.reading import Reading
from thetahat.engine.excerpt_uncertainty import estimate_with_excerpt
from thetahat.engine.fingerprint import fingerprint
from thetahat.engine.multi_log import Failure, MultiLog, ScannedFile, merge_files, refused
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.engine.shards import plan
from thetahat.engine.sources import Item
from thetahat.errors import MalformedInput, NotIdentifiable, known
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimate_json import number, numbers
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.identifiability.base_parameters import BaseParameters
from thetahat.identification.information import Information
from thetahat.identification.solve import solve
from thetahat.model.parameters import SIZE, M
from thetahat.model.robot import Robot

FORMAT = 2  # raise it when an estimate of the same logs comes out otherwise
LARGE = 2_000_000  # rows of a period, from which on all workers share one
SCHEMA = "thetahat/fleet-period/1"


@dataclass(frozen=True, eq=False)
class Recipe:
    """What all periods of a robot share: chosen once, so that its periods can be compared."""

    robot: Robot  # whose logs they are
    reading: Reading
    settings: Settings
    locked: tuple[str, ...]
    fitted: Robot  # with the columns to identify
    estimator: Consistent

    @property
    def weight(self) -> float:
        """Of the prior."""
        return self.estimator.weight

    @property
    def metric(self) -> str:
        """Of the prior."""
        return self.estimator.metric

    @property
    def work(self) -> Fold:
        """How its shards are folded."""
        return Fold(Preparation(self.robot, self.settings, self.locked), self.fitted)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        names = ("cutoff", "torque_cutoff", "delay")
        return {
            **{name: getattr(self.settings, name) for name in names},
            "min_speed": list(self.settings.min_speed),
            "friction": list(self.fitted.drive.identified),
            "prior_weight": self.weight,
            "locked": list(self.locked),
        }


@dataclass(frozen=True)
class PeriodTask:
    """A period to be estimated."""

    recipe: int  # number of the robot's
    label: str
    robot: str
    files: tuple[tuple[Item, ScannedFile], ...]

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self.robot}, {self.label}"

    @property
    def rows(self) -> int:
        """In all of its logs."""
        return sum(file.rows for _, file in self.files)


@dataclass(frozen=True, eq=False)
class PeriodEstimate:
    """What the logs of a period say. Unidentifiable parameters have an infinite variance."""

    # (p,) by least squares: free of any prior, so that differences mean something
    x_base: np.ndarray
    covariance: np.ndarray  # (p, p), with the noise's correlation
    masses: np.ndarray  # (bodies,) [kg] of the physically consistent fit
    r2: float | None  # of least squares
    rms: np.ndarray  # (nv,) of its residuals [N·m or N]
    rows: int  # samples read
    rank: int
    resolved: bool  # whether the logs are long enough to know how correlated the noise is
    left_out: tuple[Failure, ...] = ()


def store_key(recipe: Recipe, task: PeriodTask) -> str:
    """Return the hash of all that a period's estimate depends on."""
    work = recipe.work
    shards = plan(_files(recipe, task), recipe.settings, whole=work.whole)
    statistics = recipe.estimator.statistics
    share = None if statistics is None else statistics.share
    given = (recipe.estimator.prior, recipe.weight, recipe.metric, share)
    return fingerprint(
        "period", FORMAT, work.fingerprint, given, [shard.content for shard in shards]
    )


def run(context: Sequence[Recipe], task: PeriodTask) -> PeriodEstimate:
    """Estimate a period on one core."""
    return estimate(ShardReducer(), context[task.recipe], task)


def estimate(reducer: ShardReducer, recipe: Recipe, task: PeriodTask) -> PeriodEstimate:
    """Estimate a period, its shards folded by the reducer's workers."""
    reduction = reducer.reduce(_files(recipe, task), recipe.work)
    whole = reduction.result.information(recipe.fitted)
    if not np.any(whole.rows):
        raise NotIdentifiable(
            f"{task.name}: no torque of its logs can be used; record the robot while it moves"
        )
    plain = _least_squares(reducer, recipe, reduction.files, whole)
    physical = solve(whole, recipe.estimator)
    return PeriodEstimate(
        x_base=plain.x_base,
        covariance=plain.covariance,
        masses=physical.theta.reshape(-1, SIZE)[:, M].copy(),
        r2=plain.r2,
        rms=plain.residual_norms / np.sqrt(np.maximum(whole.rows, 1)),
        rows=whole.samples,
        rank=plain.rank,
        resolved=plain.noise is None or bool(np.all(plain.noise.resolved)),
        left_out=reduction.failures,
    )


def _least_squares(
    reducer: ShardReducer, recipe: Recipe, files: MultiLog, whole: Information
) -> Estimate:
    estimator, work = LeastSquares(weights="iterated"), recipe.work
    if reducer.excerpt_share(files, work) >= 1.0:
        return solve(whole, estimator, samples=lambda: reducer.samples(files, work))
    part = reducer.reduce(files, work, what="folding an excerpt", excerpt=True)
    return estimate_with_excerpt(
        whole,
        estimator,
        whole=whole,
        excerpt=part.result.information(recipe.fitted),
        samples=lambda: reducer.samples(part.files, work),
        dofs=None,
    )


def _files(recipe: Recipe, task: PeriodTask) -> MultiLog:
    files = merge_files(recipe.robot, recipe.reading, task.files)
    if files.failures and not files.entries:
        raise refused(files.failures)
    if set(files.log.locked) != set(recipe.locked):
        only = sorted(set(files.log.locked) ^ set(recipe.locked))
        raise MalformedInput(
            f"{task.name}: its logs do not measure the same joints as the others ({known(only)} in"
            " some alone); give logs with the same columns"
        )
    return files


# -- as a run's answer ----------------------------------------------------------------------------


def as_json(
    recipe: Recipe, task: PeriodTask, estimate: PeriodEstimate, names: tuple[str, ...]
) -> dict[str, Any]:
    """Return a period's estimate as `thetahat diff` takes it.

    What schema thetahat/estimate/1 calls the same has the same names.
    """
    source = recipe.robot.source
    std = np.sqrt(np.diag(estimate.covariance))
    gone = {failure.name for failure in estimate.left_out}
    return {
        "schema": SCHEMA,
        "method": "least-squares",
        "samples": int(estimate.rows),
        "rank": int(estimate.rank),
        "r2": {"train": number(estimate.r2), "test": None},
        "consistent": None,  # least squares is asked what changed, not whether a body can be that
        "status": "solved",
        "joints": [
            {"name": name, "r2_test": None, "rms_test": None, "rms_train": number(rms)}
            for name, rms in zip(recipe.fitted.velocity_names, estimate.rms, strict=True)
        ],
        "masses": dict(zip(recipe.fitted.body_names, numbers(estimate.masses), strict=True)),
        "base_parameters": [
            {"name": name, "value": number(value), "std": number(spread)}
            for name, value, spread in zip(names, estimate.x_base, std, strict=True)
        ],
        "provenance": {
            "robot": task.robot,
            "robot_file": None if source is None else str(source),
            "robot_sha256": (
                None if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()
            ),
            "logs": [
                {"path": item.given, "sha256": file.digest}
                for item, file in task.files
                if item.name not in gone
            ],
            "version": __version__,
            "settings": {**recipe.as_data(), "metric": recipe.metric, "weights": "iterated"},
        },
    }


# -- what a payload does ---------------------------------------------------------------------------


def payload_map(base: BaseParameters, body: int) -> np.ndarray:
    """(p, 10): how ten numbers held by a body change the base parameters."""
    return base.map[:, SIZE * body : SIZE * body + SIZE]
