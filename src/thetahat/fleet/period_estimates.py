"""One estimate per robot and period: the logs of a period folded, solved, and their noise looked
at; by any worker, kept in a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thetahat.data.prepare import Settings
from thetahat.engine import array_codec
from thetahat.engine.excerpt_uncertainty import spread
from thetahat.engine.file_scan import FileSurvey, Reading
from thetahat.engine.fingerprint import fingerprint
from thetahat.engine.multi_log import Catalogue, Failure, catalogue, refused
from thetahat.engine.reduce import Gatherer
from thetahat.engine.shard_fold import Fold, Prepared
from thetahat.engine.shards import plan
from thetahat.engine.sources import Item
from thetahat.errors import MalformedInput, NotIdentifiable, known
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.identifiability.base_parameters import BaseParameters
from thetahat.identification.information import Information
from thetahat.identification.solve import solve
from thetahat.model.parameters import SIZE, M
from thetahat.model.robot import Robot

FORMAT = 1  # raise it when an estimate of the same logs comes out otherwise
LARGE = 2_000_000  # rows of a period, from which on all workers share one
SCHEMA = "thetahat/period/1"


@dataclass(frozen=True, eq=False)
class Recipe:
    """What all periods of a robot share: chosen once, so that its periods can be compared."""

    robot: Robot  # whose logs they are
    reading: Reading
    settings: Settings
    locked: tuple[str, ...]
    fitted: Robot  # with the columns to identify
    prior: np.ndarray
    weight: float
    metric: str
    weights: str | None = "iterated"

    @property
    def work(self) -> Fold:
        """How its shards are folded."""
        return Fold(Prepared(self.robot, self.settings, self.locked), self.fitted)


@dataclass(frozen=True)
class Task:
    """A period to be estimated."""

    recipe: int  # number of the robot's
    label: str
    robot: str
    files: tuple[tuple[Item, FileSurvey], ...]

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self.robot}, {self.label}"

    @property
    def rows(self) -> int:
        """In all of its logs."""
        return sum(survey.rows for _, survey in self.files)


@dataclass(frozen=True, eq=False)
class PeriodEstimate:
    """What the logs of a period say. Parameters that they do not show have an infinite variance."""

    x_base: (
        np.ndarray
    )  # (p,) by least squares: free of any prior, so that differences mean something
    covariance: np.ndarray  # (p, p), which knows of the noise's correlation
    masses: np.ndarray  # (bodies,) [kg] of the physically consistent fit
    r2: float | None  # of least squares
    rms: np.ndarray  # (nv,) of what it leaves [N·m or N]
    rows: int  # samples read
    rank: int
    resolved: bool  # whether the logs are long enough to know how correlated the noise is
    left_out: tuple[Failure, ...] = ()


def store_key(recipe: Recipe, task: Task) -> str:
    """A hash of all that a period's estimate depends on."""
    work = recipe.work
    shards = plan(_catalogue(recipe, task), recipe.settings, whole=work.whole)
    given = (recipe.prior, recipe.weight, recipe.metric, recipe.weights)
    return fingerprint(
        "period", FORMAT, work.fingerprint, given, [shard.content for shard in shards]
    )


def run(context: Sequence[Recipe], task: Task) -> PeriodEstimate:
    """A period's estimate, on one core."""
    return estimated(Gatherer(), context[task.recipe], task)


def estimated(gatherer: Gatherer, recipe: Recipe, task: Task) -> PeriodEstimate:
    """A period's estimate, its shards folded by the gatherer's workers."""
    files, work = _catalogue(recipe, task), recipe.work
    gathered = gatherer.gather(files, work)
    whole = gathered.result.on(recipe.fitted)
    if not np.any(whole.rows):
        raise NotIdentifiable(
            f"{task.name}: no torque of its logs can be used; record the robot while it moves"
        )
    found = _least_squares(gatherer, recipe, gathered.files, work, whole)
    physical = solve(
        whole,
        Consistent(
            prior=recipe.prior, weight=recipe.weight, metric=recipe.metric, weights=recipe.weights
        ),
    )
    return PeriodEstimate(
        x_base=found.x_base,
        covariance=found.covariance,
        masses=physical.theta.reshape(-1, SIZE)[:, M].copy(),
        r2=found.r2,
        rms=found.residual_norms / np.sqrt(np.maximum(whole.rows, 1)),
        rows=whole.samples,
        rank=found.rank,
        resolved=found.noise is None or bool(np.all(found.noise.resolved)),
        left_out=gathered.failures,
    )


def _least_squares(
    gatherer: Gatherer, recipe: Recipe, files: Catalogue, work: Fold, whole: Information
) -> Estimate:
    estimator = LeastSquares(weights=recipe.weights)
    if gatherer.share(files, work) >= 1.0:
        return solve(whole, estimator, samples=lambda: gatherer.excerpt(files, work))
    part = gatherer.gather(files, work, what="folding an excerpt", excerpt=True)
    return spread(
        whole,
        whole,
        part.result.on(recipe.fitted),
        estimator,
        lambda: gatherer.excerpt(part.files, work),
        None,
    )


def _catalogue(recipe: Recipe, task: Task) -> Catalogue:
    files = catalogue(recipe.robot, recipe.reading, task.files)
    if files.failures and not files.entries:
        raise refused(files.failures)
    if set(files.log.locked) != set(recipe.locked):
        only = sorted(set(files.log.locked) ^ set(recipe.locked))
        raise MalformedInput(
            f"{task.name}: its logs do not measure the same joints as the others ({known(only)} in"
            " some alone); give logs with the same columns"
        )
    return files


# -- as the store keeps it -------------------------------------------------------------------------


def to_bytes(found: PeriodEstimate, key: str) -> bytes:
    """With its key inside."""
    values = {
        "schema": SCHEMA,
        "key": key,
        "r2": found.r2,
        "rows": int(found.rows),
        "rank": int(found.rank),
        "resolved": bool(found.resolved),
    }
    return array_codec.packed(
        values, {name: getattr(found, name) for name in ("x_base", "covariance", "masses", "rms")}
    )


def from_bytes(data: bytes, key: str) -> PeriodEstimate:
    """What `to_bytes` wrote; `codec.Damaged` where it is something else, or of another key."""
    values, arrays = array_codec.unpacked(data)
    if values.get("schema") != SCHEMA or values.get("key") != key:
        raise array_codec.Damaged("it is the entry of another key")
    try:
        plain: dict[str, Any] = {name: values[name] for name in ("r2", "rows", "rank", "resolved")}
        return PeriodEstimate(
            **plain, **{name: arrays[name] for name in ("x_base", "covariance", "masses", "rms")}
        )
    except KeyError as error:
        raise array_codec.Damaged(f"it lacks what an entry has ({error})") from None


# -- what a payload does ---------------------------------------------------------------------------


def payload_map(base: BaseParameters, body: int) -> np.ndarray:
    """(p, 10): how ten numbers held by a body change the base parameters."""
    return base.map[:, SIZE * body : SIZE * body + SIZE]
