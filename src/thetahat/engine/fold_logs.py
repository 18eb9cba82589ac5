"""`th.information`: of samples that are there, or of logs of any size by their names, on the
workers of a Dask client, with a store.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.engine.file_scan import Reading
from thetahat.engine.reduce import Gatherer
from thetahat.engine.settings_cache import Choices
from thetahat.engine.shard_fold import Fold, Prepared
from thetahat.engine.store import Store
from thetahat.engine.workers import DaskWorkers, Workers
from thetahat.errors import UsageError
from thetahat.identification.information import Information
from thetahat.identification.information import information as folded
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot

Names = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def information(
    robot: Robot,
    samples: Samples | Iterable[Samples] | Names,
    *,
    weights: np.ndarray | None = None,
    threads: int | None = None,
    client: Any = None,
    workers: int | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    settings: Settings | None = None,
    cutoff: float | None = None,
    min_speed: float | tuple[float, ...] | None = None,
    columns: str | None = None,
    topic: str | None = None,
    salvage: bool = False,
) -> Information:
    """Fold samples, a stream of them, or whole logs into the information they hold on the robot's
    parameters.

    Args:
        robot: whose columns, with the drive terms to identify (`robot.with_drive`); joints that the
            logs do not measure are locked.
        samples: samples, a stream of them, or logs: a file, a folder, a pattern, a URL, or a list
            of these.
        weights: (samples, nv) factors on the rows of [Y | u], of samples; rows a sample marks
            unusable never count.
        threads: that fold samples.
        client: a Dask client whose workers read and fold logs, shard by shard.
        workers: so many processes on this machine do, instead of a client.
        store: a folder, or an open `Store`, that keeps what was computed: the same logs are not
            read again.
        settings: how logs are prepared, as `thetahat.data.prepare.choose` or other samples have
            them; chosen from the logs if None.
        cutoff: of the low-pass [Hz], of logs; chosen if None.
        min_speed: below which a joint stands still, of logs; chosen if None.
        columns: of logs, as `th.read_log` takes it; so are topic and salvage.
        topic: of a bag.
        salvage: read what is left of a file that was cut off.

    A log that cannot be used is left out, with a warning that names it.

    """
    if isinstance(samples, Samples) or not _are_names(samples):
        for name, value in (
            ("client", client),
            ("workers", workers),
            ("store", store),
            ("settings", settings),
            ("cutoff", cutoff),
        ):
            if value is not None:
                raise UsageError(
                    f"{name} is for logs, which are given by their names; samples are folded here"
                    " and as they are"
                )
        return folded(robot, samples, weights=weights, threads=threads)  # type: ignore[arg-type]
    if weights is not None:
        raise UsageError(
            "weights are for samples; prepare the log first (th.prepare), or leave them out"
        )
    crew = (
        Workers()
        if client is None and workers is None
        else DaskWorkers(client=client, workers=workers)
    )
    kept = Store(store) if isinstance(store, str | os.PathLike) else store
    try:
        with crew:
            gatherer = Gatherer(crew, kept)
            files = gatherer.survey(samples, robot, Reading(columns, topic, salvage))  # type: ignore[arg-type]
            chosen = settings or gatherer.choose(files, Choices(cutoff=cutoff, min_speed=min_speed))
            locked = files.log.locked
            found, gathered = gatherer.fold(
                files, Fold(Prepared(robot, chosen, locked), lock(robot, locked))
            )
    finally:
        if kept is not None and kept is not store:
            kept.close()
    for note in gathered.notes:
        warnings.warn(note, stacklevel=2)
    for failure in (*gathered.failures, *gatherer.trouble):
        warnings.warn(
            (
                f"left out: {failure.sentence}"
                if failure not in gatherer.trouble
                else failure.sentence
            ),
            stacklevel=2,
        )
    return found


def _are_names(value: object) -> bool:
    if isinstance(value, str | os.PathLike):
        return True
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(each, str | os.PathLike) for each in value)
    )
