"""`th.information`: of samples in memory, or of logs of any size by their names, on the workers of
a Dask client, with a store.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, TypedDict, TypeGuard, Unpack

import numpy as np

from thetahat.data.prepare import Settings
from thetahat.data.reading import Reading
from thetahat.data.samples import Samples, require_motion
from thetahat.engine.cache import Store
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.scan_logs import Names
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.engine.tuning_cache import SettingsOptions
from thetahat.engine.workers import DaskWorkers, Workers
from thetahat.errors import UsageError
from thetahat.identification.information import Information
from thetahat.identification.information import information as fold_samples
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot


class LogOptions(TypedDict, total=False):
    """How `information` folds logs that are given by their names."""

    client: Any  # a Dask client whose workers read and fold logs, shard by shard
    workers: int | None  # so many processes on this machine do, instead of a client
    # a folder, or an open `Store`, that keeps what was computed: the same logs are not read again
    store: str | os.PathLike[str] | Store | None
    settings: Settings | None  # how logs are prepared; chosen from them if None
    cutoff: float | None  # [Hz] of the low-pass; chosen if None
    min_speed: float | tuple[float, ...] | None  # below which a joint stands still; chosen if None
    columns: str | None  # as `th.read_log` takes it
    topic: str | None  # of a bag
    salvage: bool  # read what is left of a file that was cut off
    units: str | None  # of columns that are not in SI units
    format: str | None  # of a recorder: rtde, plotjuggler, lerobot
    skip_bad_rows: bool  # leave them out instead of refusing the file


def information(
    robot: Robot,
    samples: Samples | Iterable[Samples] | Names,
    *,
    instruments: Samples | Iterable[Samples] | None = None,
    weights: np.ndarray | None = None,
    threads: int | None = None,
    **options: Unpack[LogOptions],
) -> Information:
    """Fold samples, a stream of them, or whole logs into the information they hold on the robot's
    parameters.

    Args:
        robot: whose columns, with the drive terms to identify (`robot.with_drive`); joints that the
            logs do not measure are locked.
        samples: samples, a stream of them, or logs: a file, a folder, a pattern, a URL, or a list
            of these.
        instruments: the same motion without the samples' noise, row by row (a batch for each batch
            of a stream): as commanded, repeated or simulated. Fits then are instrumental-variable
            fits, which noise in the motion does not bias.
        weights: (samples, nv) factors on the rows of [Y | u], of samples; rows a sample marks
            unusable never count.
        threads: that fold samples.
        options: of logs: client, workers, store, settings, cutoff, min_speed, columns, topic,
            salvage, units, format and skip_bad_rows, as `LogOptions` has them.

    A log that cannot be used is left out, with a warning that names it.

    """
    if _are_samples(samples):
        for name, value in options.items():
            if value not in (None, False):
                raise UsageError(
                    f"{name} is for logs, which are given by their names; samples are folded here"
                    " and as they are"
                )
        paired = samples if instruments is None else _paired(robot, samples, instruments)
        return fold_samples(robot, paired, weights=weights, threads=threads)
    if instruments is not None:
        raise UsageError(
            "instruments are for samples; prepare the log first (th.prepare), or leave them out"
        )
    if weights is not None:
        raise UsageError(
            "weights are for samples; prepare the log first (th.prepare), or leave them out"
        )
    return _fold_logs(robot, samples if _are_names(samples) else (), **options)


def _paired(
    robot: Robot,
    samples: Samples | Iterable[Samples],
    instruments: Samples | Iterable[Samples],
) -> Samples | Iterator[Samples]:
    """Return samples with their instruments."""
    if isinstance(samples, Samples):
        if not isinstance(instruments, Samples):
            raise UsageError(
                f"instruments is {type(instruments).__name__}; give Samples, as the samples are"
            )
        require_motion(instruments, samples, robot.velocity_names)
        return samples.with_instruments(instruments)
    batches = [instruments] if isinstance(instruments, Samples) else instruments
    return (part.with_instruments(reference) for part, reference in _zipped(samples, batches))


def _zipped(
    samples: Iterable[Samples], instruments: Iterable[Samples]
) -> Iterator[tuple[Samples, Samples]]:
    """Yield batches in pairs; an error where one stream ends before the other."""
    for part, reference in zip_longest(samples, instruments):
        if part is None or reference is None:
            raise UsageError(
                f"the {'samples' if part is None else 'instruments'} end first; give a batch of"
                " instruments for each batch of samples"
            )
        yield part, reference


def _fold_logs(robot: Robot, names: Names, **options: Unpack[LogOptions]) -> Information:
    client, workers, store = options.get("client"), options.get("workers"), options.get("store")
    local = client is None and workers is None
    executor = Workers() if local else DaskWorkers(client=client, workers=workers)
    opened = store if isinstance(store, Store | None) else Store(store)
    reading = Reading(
        options.get("columns"),
        options.get("topic"),
        options.get("salvage", False),
        options.get("units"),
        options.get("format"),
        options.get("skip_bad_rows", False),
    )
    wanted = SettingsOptions(cutoff=options.get("cutoff"), min_speed=options.get("min_speed"))
    try:
        with executor:
            reducer = ShardReducer(executor, opened)
            files = reducer.scan(names, robot, reading)
            settings = options.get("settings") or reducer.choose(files, wanted)
            locked = files.log.locked
            folded, reduction = reducer.fold(
                files, Fold(Preparation(robot, settings, locked), lock(robot, locked))
            )
    finally:
        if opened is not None and opened is not store:
            opened.close()
    left_out = [f"left out: {failure.sentence}" for failure in reduction.failures]
    unwritten = [failure.sentence for failure in reducer.store_failures]
    for sentence in (*reduction.notes, *left_out, *unwritten):
        warnings.warn(sentence, stacklevel=3)
    return folded


def _are_names(value: object) -> TypeGuard[Names]:
    several = value if isinstance(value, list | tuple) and value else [value]
    return all(isinstance(each, str | os.PathLike) for each in several)


def _are_samples(value: object) -> TypeGuard[Samples | Iterable[Samples]]:
    return not _are_names(value)
