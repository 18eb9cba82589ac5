"""Prepare a log: filter, differentiate, and mark each torque that must not be used.

`prepare_batches` streams; `prepare` is its batches put together, so both give the same rows. What
the caller does not choose, `choose` chooses in one pass before, from the rows of `span` alone:
choose on the training rows, then pass the settings to `prepare` for training and held-out rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from thetahat.data.cutoff import choose_cutoff, choose_min_speed, scan_spectra
from thetahat.data.filters import EDGE_WEIGHT, KNOTS, Kernel, convolve, decimation_factor, method_of
from thetahat.data.regressor_form import RegressorForm, check_form
from thetahat.data.resample import HALF, Halo, Layout, run_spans, uniform_blocks
from thetahat.data.samples import EDGE, OUTLIER, STANDSTILL, Samples, concatenate
from thetahat.data.types import Chunk, LogLike
from thetahat.data.velocities import (
    normalize_quaternions,
    velocities,
    velocities_and_accelerations,
)
from thetahat.errors import UsageError, known
from thetahat.model.floating_base import base_dofs, ground_of
from thetahat.model.robot import Robot

BATCH = 65_536  # rows
LONGEST_DELAY = 1.0  # [s] between motion and torque
# of a run: where its edges would take more at either end, they end where less than `SHORT_EDGE` of
# the filter's weight exceeds the run, whose mirror image stands for the rest
SHORT_RUN, SHORT_EDGE = 0.1, 0.02
# rows beyond the filter's reach on which a row depends: neighbours of spikes and resampled rows
CARRIED = 2 * (HALF + KNOTS)


@dataclass(frozen=True)
class Settings:
    """Frozen settings of `prepare`, for other logs or the held-out part of the same one."""

    cutoff: float  # [Hz]
    min_speed: tuple[float, ...]  # (nv,) [rad/s or m/s]
    order: int = 4  # of the Butterworth filter, or the degree of a Savitzky–Golay polynomial
    derivative: str = "butterworth"  # or savgol, ema
    torque_cutoff: float | None = None  # [Hz] where the torque has a low-pass of its own
    # keep every k-th row; "auto": five rows per cycle of the cut-off
    decimate: int | str | None = None
    delay: float = 0.0  # [s] by which the torque lags behind the motion, which is delayed as much
    spikes: tuple[float, ...] | None = None  # (channels,) largest distance from the running median
    reasoning: str = ""  # for the cut-off
    form: str = "torque"  # of the equation of motion (regressor_form.py): or momentum, filtered

    def __post_init__(self) -> None:
        check_form(self.form)
        for name in ("cutoff", "torque_cutoff"):
            value = getattr(self, name)
            if value is not None:
                method_of(self.derivative, float(value), self.order)  # checks name and order
                if not (math.isfinite(value) and value > 0.0):
                    raise UsageError(
                        f"{name} is {value!r}; give a positive frequency in Hz, or None to have it"
                        " chosen"
                    )
        if not (math.isfinite(self.delay) and abs(self.delay) <= LONGEST_DELAY):
            raise UsageError(
                f"delay is {self.delay!r}; give seconds between −{LONGEST_DELAY:g} and"
                f" {LONGEST_DELAY:g}, by which the torque lags"
            )
        whole = (
            isinstance(self.decimate, int)
            and not isinstance(self.decimate, bool)
            and self.decimate >= 1
        )
        if not (self.decimate in (None, "auto") or whole):
            raise UsageError(
                f"decimate is {self.decimate!r}; give a whole number from 1, 'auto' or None"
            )

    def factor(self, period: float) -> int:
        """Return k to keep every k-th row of a run sampled with this period."""
        if self.decimate == "auto":
            return decimation_factor(max(self.cutoff, self.torque_cutoff or 0.0), period)
        return int(self.decimate or 1)

    def scored(self, torque_cutoff: float | None) -> Settings:
        """Return the settings for torques with another low-pass, scored row by row. Where it is
        below the motion's, the motion gets it, too: a prediction must not hold what was filtered
        from the torque.
        """
        cutoff = self.cutoff if torque_cutoff is None else min(self.cutoff, torque_cutoff)
        return replace(self, cutoff=cutoff, torque_cutoff=torque_cutoff, form="torque")


class Choices(TypedDict, total=False):
    """What `choose` need not choose; None stands for a choice from the log."""

    cutoff: float | None
    order: int
    derivative: str
    torque_cutoff: float | None
    min_speed: float | Sequence[float] | None
    decimate: int | str | None
    form: str


# -- public ----------------------------------------------------------------------------------------


def choose(
    log: LogLike,
    robot: Robot,
    *,
    cutoff: float | None = None,
    order: int = 4,
    derivative: str = "butterworth",
    torque_cutoff: float | None = None,
    min_speed: float | Sequence[float] | None = None,
    decimate: int | str | None = None,
    form: str = "torque",
    span: tuple[int, int] | None = None,
    chunks: Iterable[Chunk] | None = None,
) -> Settings:
    """Choose the settings for a log: what is not given is chosen from its rows (only those of
    `span`, first and stop row).
    """
    _check_names(log, robot)
    check_form(form)
    given = torque_cutoff if cutoff is None else cutoff
    if given is not None:  # an error now, not after a pass over the log
        Settings(cutoff=given, min_speed=(), order=order, derivative=derivative, decimate=decimate)
    speeds = None if min_speed is None else _speeds(min_speed, robot)
    spectra = scan_spectra(log, robot, span=span, chunks=chunks)
    reasoning = "given"
    if cutoff is None:
        chosen = choose_cutoff(spectra, robot)
        cutoff, reasoning = chosen.value, chosen.reasoning
    if speeds is None:
        speeds = tuple(float(v) for v in choose_min_speed(spectra, cutoff))
    return Settings(
        cutoff=float(cutoff),
        min_speed=speeds,
        order=order,
        derivative=derivative,
        torque_cutoff=torque_cutoff,
        decimate=decimate,
        form=form,
        spikes=tuple(float(v) for v in spectra.spikes),
        reasoning=reasoning,
    )


def prepare(
    log: LogLike,
    robot: Robot,
    *,
    cutoff: float | None = None,
    order: int = 4,
    derivative: str = "butterworth",
    torque_cutoff: float | None = None,
    min_speed: float | Sequence[float] | None = None,
    decimate: int | str | None = None,
    form: str | None = None,
    settings: Settings | None = None,
    span: tuple[int, int] | None = None,
) -> Samples:
    """Prepare a log: all its samples in memory.

    Logged velocities and accelerations are filtered; missing ones are differentiated. Torque has
    the same low-pass.

    Args:
        log: from `read_log`.
        robot: whose log it is.
        cutoff: of the low-pass [Hz]; chosen from the log if None.
        order: of the Butterworth filter, or the degree of the Savitzky–Golay polynomial.
        derivative: butterworth (zero-phase), savgol (zero-phase) or ema (causal).
        torque_cutoff: a low-pass for the torque alone [Hz]; the same one if None.
        min_speed: a joint slower than this stands still [rad/s or m/s], one for all or one per
            degree of freedom; chosen if None.
        decimate: keep every k-th filtered row, or "auto".
        form: of the equation of motion that is fitted: "torque" (the default), or without
            accelerations "momentum" or "filtered"; scores are of torques in any case.
        settings: all of the above, from `choose`.
        span: first and stop row of the log to use.

    """
    chunks = log.read()
    choices = Choices(
        cutoff=cutoff,
        order=order,
        derivative=derivative,
        torque_cutoff=torque_cutoff,
        min_speed=min_speed,
        decimate=decimate,
        form=form or "torque",
    )
    if settings is None:
        settings = choose(log, robot, span=span, chunks=chunks, **choices)
    else:
        _check_no_choices(choices)
        settings = settings if form is None else replace(settings, form=form)
    batches = list(batches_of(log, robot, settings, rows=BATCH, span=span, chunks=chunks))
    return concatenate(batches, same_log=True)


def prepare_batches(
    log: LogLike,
    robot: Robot,
    *,
    settings: Settings | None = None,
    span: tuple[int, int] | None = None,
    rows: int = BATCH,
    **choices: Unpack[Choices],
) -> Iterator[Samples]:
    """Return the samples of `prepare` in batches of at most `rows` log rows, each inside one run,
    read in bounded memory.
    """
    if not (isinstance(rows, int | np.integer) and rows >= 1):
        raise UsageError(f"rows is {rows!r}; give the number of rows in a batch, from 1")
    if settings is None:
        settings = choose(log, robot, span=span, **choices)
    else:
        _check_no_choices(choices)
    return batches_of(log, robot, settings, rows=int(rows), span=span, chunks=None)


# -- arguments -------------------------------------------------------------------------------------


def _check_no_choices(choices: Choices) -> None:
    """Refuse choices beside settings, which they would contradict."""
    chosen = (choices.get(name) for name in ("cutoff", "torque_cutoff", "min_speed", "decimate"))
    if any(value is not None for value in chosen):
        raise UsageError(
            "settings are given, and with them the cutoff, the least speed and the decimation;"
            " change them there (dataclasses.replace)"
        )


def _check_names(log: LogLike, robot: Robot) -> None:
    names = tuple(getattr(log, "joint_names", robot.joint_names))
    if names != robot.joint_names:
        raise UsageError(
            f"the log was read for the joints {known(names)}, but the robot has"
            f" {known(robot.joint_names)}; read it again with this robot"
        )


def _speeds(min_speed: float | Sequence[float], robot: Robot) -> tuple[float, ...]:
    try:
        speeds = np.asarray(min_speed, dtype=float)
    except (TypeError, ValueError):
        speeds = np.full(1, np.nan)
    if speeds.ndim == 0:
        speeds = np.full(robot.nv, float(speeds))
    if speeds.shape != (robot.nv,) or not np.all(np.isfinite(speeds)) or np.any(speeds < 0.0):
        raise UsageError(
            f"min_speed is {min_speed!r}; give one speed from 0, or one for each of the {robot.nv}"
            " degrees of freedom"
        )
    return tuple(float(v) for v in speeds)


# -- filtering -------------------------------------------------------------------------------------


class Motion(NamedTuple):
    """Filtered motion and torque, (rows, ·) each."""

    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    tau: np.ndarray


class _Filter:
    """Kernels for one period, applied to windows of rows."""

    def __init__(
        self, robot: Robot, layout: Layout, settings: Settings, period: float, run_rows: int
    ) -> None:
        self.robot, self.layout, self.settings = robot, layout, settings
        plain = [self._kernel(settings.cutoff, period, d) for d in (0, 1, 2)]
        torque = (
            plain[0]
            if settings.torque_cutoff is None
            else self._kernel(settings.torque_cutoff, period, 0)
        )
        motion = [kernel.delayed(settings.delay / period) for kernel in plain]
        # kernels by channels; without dq, velocities are differentiated, by kernels or quaternions
        self.work: list[tuple[slice, list[Kernel]]] = [
            (layout.q, motion[: 1 if layout.has_dq else 3])
        ]
        if layout.has_dq:
            self.work.append((layout.dq, motion[: 1 if layout.has_ddq else 2]))
        if layout.has_ddq:
            self.work.append((layout.ddq, motion[:1]))
        self.work.append((layout.tau, [torque]))
        # logged velocities that are not used
        self.positions = [at for at, _ in layout.differentiated]
        self.unused = [v for _, v in layout.differentiated]
        self.derivatives = motion[1:] if layout.differentiated else []
        used = [kernel for _, kernels in self.work for kernel in kernels] + self.derivatives
        self.past, self.future = max(k.past for k in used), max(k.future for k in used)
        self.edge_future, self.edge_past = _edges(used)
        if max(self.edge_future, self.edge_past) > SHORT_RUN * run_rows:
            self.edge_future, self.edge_past = _edges(used, SHORT_EDGE)

    def _kernel(self, cutoff: float, period: float, derivative: int) -> Kernel:
        """Return the kernel for this period. Runs whose periods agree to four digits share one,
        scaled.
        """
        method = method_of(self.settings.derivative, cutoff, self.settings.order)
        shared = float(f"{period:.4g}")
        kernel = method.kernel(shared, derivative)
        return (
            replace(kernel, weights=kernel.weights * (shared / period) ** derivative)
            if derivative
            else kernel
        )

    def apply(self, x: np.ndarray) -> Motion:
        """Filter channels × (past + rows + future)."""
        outputs = [
            [out.T for out in convolve(x[channels], kernels, past=self.past, future=self.future)]
            for channels, kernels in self.work
        ]
        q_parts, tau = outputs[0], outputs[-1][0]
        q = np.ascontiguousarray(q_parts[0])
        if self.layout.has_dq:
            dq = outputs[1][0]
            ddq = outputs[2][0] if self.layout.has_ddq else outputs[1][1]
        elif self.layout.has_ddq:
            dq, ddq = velocities(self.robot, q_parts[0], q_parts[1]), outputs[1][0]
        else:
            dq, ddq = velocities_and_accelerations(self.robot, *q_parts)
        if self.unused:
            first, second = (
                out.T
                for out in convolve(
                    x[self.positions], self.derivatives, past=self.past, future=self.future
                )
            )
            dq = np.array(dq)
            dq[:, self.unused] = first
            if not self.layout.has_ddq:
                ddq = np.array(ddq)
                ddq[:, self.unused] = second
        return Motion(normalize_quaternions(self.robot, q), dq, ddq, tau)

    def reasons(
        self, dq: np.ndarray, codes: np.ndarray, *, first: int, total: int | None
    ) -> np.ndarray:
        """Return codes (rows, nv); `codes` are of the window with its halo, `total` the rows of the
        run where they are known.
        """
        rows = len(dq)
        still = np.abs(dq) < np.array(self.settings.min_speed)
        still[:, self.robot.tree.sensor_dofs] = False  # a sensor never moves, and always measures
        if ground_of(self.robot) is not None:
            still[:, base_dofs(self.robot)] = False  # nothing rubs on a floating base
        reason = np.where(still, np.uint8(STANDSTILL), np.uint8(0))
        reason[codes[self.past : self.past + rows] == OUTLIER] = OUTLIER
        place = np.arange(first, first + rows)
        edge = place < self.edge_past
        if total is not None:
            edge |= place >= total - self.edge_future
        reason[edge] = EDGE
        # spikes were removed; any other reason applies to all rows that the filter reaches
        others = np.where(codes == OUTLIER, 0, codes)
        low = np.arange(rows) + self.past - self.edge_past
        high = low + self.edge_past + self.edge_future + 1
        for joint in np.flatnonzero(others.any(axis=0)):
            for code in np.unique(others[:, joint][others[:, joint] > 0]):
                count = np.concatenate([[0], np.cumsum(others[:, joint] == code)])
                reason[count[high] > count[low], joint] = code
        return reason

    def contacts(self, codes: np.ndarray, rows: int) -> np.ndarray | None:
        """Return which feet are down, (rows, feet), in a window with its halo: those that touch the
        ground anywhere the filter reaches; None where no flags are logged.
        """
        down = codes[:, self.robot.nv :]
        if not down.shape[1]:
            return None
        count = np.cumsum(np.pad(down, ((1, 0), (0, 0))).astype(np.int64), axis=0)
        low = np.arange(rows) + self.past - self.edge_past
        return np.asarray(count[low + self.edge_past + self.edge_future + 1] > count[low])


def _edges(kernels: Sequence[Kernel], part: float = EDGE_WEIGHT) -> tuple[int, int]:
    """Return (rows at the end, rows at the start) of a run that these kernels' ends reach over."""
    future, past = zip(*(kernel.edge_reach(part) for kernel in kernels), strict=True)
    return max(future), max(past)


def _run_rows(log: LogLike, spans: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the rows of every run inside the spans."""
    starts = np.array([run.first_row for run in log.runs])
    runs = np.searchsorted(starts, [first for first, _ in spans], side="right") - 1
    return {int(run): stop - first for run, (first, stop) in zip(runs, spans, strict=True)}


def batches_of(
    log: LogLike,
    robot: Robot,
    settings: Settings,
    *,
    rows: int,
    span: tuple[int, int] | None,
    chunks: Iterable[Chunk] | None,
) -> Iterator[Samples]:
    """Return the samples of a log batch by batch, run by run."""
    _check_names(log, robot)
    layout = Layout.of(log, robot)
    if len(settings.min_speed) != robot.nv:
        raise UsageError(
            f"the settings are for {len(settings.min_speed)} degrees of freedom, but robot"
            f" {robot.name!r} has {robot.nv}; choose them for it"
        )
    spikes = None if settings.spikes is None else np.array(settings.spikes)
    if spikes is not None and len(spikes) != layout.channels:
        spikes = None  # they were chosen on a log with other columns
    provenance = _provenance(log, settings, span)
    state: tuple[_Filter, Halo] | None = None
    spans = run_spans(log, span)
    run_rows = _run_rows(log, spans)
    for block in uniform_blocks(log, robot, chunks=chunks, spans=spans, spikes=spikes):
        if state is None:
            rows_of_run = run_rows.get(block.run, log.rows)
            kernels = _Filter(robot, layout, settings, block.period, rows_of_run)
            state = kernels, Halo(past=kernels.past, future=kernels.future, rows=rows)
        kernels, halo = state
        factor = settings.factor(block.period)
        total = block.first + len(block.x) if block.last else None
        for window in halo.push(block):
            motion = kernels.apply(window.x)
            codes = window.codes[:, : robot.nv]
            reason = kernels.reasons(motion.dq, codes, first=window.first, total=total)
            down = kernels.contacts(window.codes, window.count)
            keep = slice(-window.first % factor, None, factor)
            place = np.arange(window.first, window.first + window.count)[keep]
            if not len(place):
                continue
            yield Samples(
                q=motion.q[keep],
                dq=motion.dq[keep],
                ddq=motion.ddq[keep],
                tau=motion.tau[keep],
                t=block.start + block.period * place,
                run=np.full(len(place), block.run),
                reason=reason[keep],
                contact=None if down is None else down[keep],
                period=factor * block.period,
                cutoff=settings.cutoff,
                guard=(kernels.future + CARRIED) * block.period,
                provenance=provenance,
                form=RegressorForm.of(
                    settings.form, settings.torque_cutoff or settings.cutoff, factor * block.period
                ),
            )
        if block.last:
            state = None


def _provenance(log: LogLike, settings: Settings, span: tuple[int, int] | None) -> dict[str, Any]:
    """Return sources, rows and settings of the samples as plain values."""
    sources = []
    for source in getattr(log, "sources", ()):
        path, sha256, size = (
            (source.path, source.sha256, source.bytes) if hasattr(source, "sha256") else source
        )
        sources.append({"path": str(path), "sha256": sha256, "bytes": size})
    return {
        "sources": sources,
        "rows": list(span) if span is not None else [0, log.rows],
        "settings": asdict(settings),
    }
