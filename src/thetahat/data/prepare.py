"""Log → Samples: filtered, differentiated, and each torque that must not be used marked with the
reason.

`prepare_batches` streams; `prepare` is its batches put together, so both give the same rows. All
choices that are not made by the caller are made by `choose` in one pass before, from the rows of
`span` alone: choose on the training rows, then hand the settings to `prepare` for training and
held-out rows alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from thetahat.data.cutoff import choose_cutoff, choose_min_speed, scan_spectra
from thetahat.data.filters import KNOTS, Kernel, convolve, decimation_factor, method_of
from thetahat.data.resample import HALF, Halo, Layout, run_spans, uniform_blocks
from thetahat.data.samples import EDGE, OUTLIER, STANDSTILL, Samples, concatenate
from thetahat.data.types import Chunk, LogLike
from thetahat.data.velocities import normalize_quaternions, velocities
from thetahat.errors import UsageError, known
from thetahat.model.robot import Robot

BATCH = 65_536  # rows
LONGEST_DELAY = 1.0  # [s] between motion and torque
CARRIED = 2 * (
    HALF + KNOTS
    # rows beyond the filter's reach on which a row depends: neighbours of spikes and of resampled
    # rows, generously
)


@dataclass(frozen=True)
class Settings:
    """Everything `prepare` does to a log, stated: hand them to another log, or to the held-out part
    of this one.
    """

    cutoff: float  # [Hz]
    min_speed: tuple[float, ...]  # (nv,) [rad/s or m/s]
    order: int = 4  # of the Butterworth filter, or the degree of a Savitzky–Golay polynomial
    derivative: str = "butterworth"  # or savgol, ema
    torque_cutoff: float | None = None  # [Hz] where the torque has a low-pass of its own
    decimate: int | str | None = (
        None  # keep every k-th row; "auto": five rows per cycle of the cut-off
    )
    delay: float = (
        0.0  # [s] by which the torque lags behind the motion; the motion is taken this much earlier
    )
    spikes: tuple[float, ...] | None = (
        None  # (channels,) jumps from the running median that are no measurement
    )
    reasoning: str = ""  # how the cut-off came about

    def __post_init__(self) -> None:
        for name in ("cutoff", "torque_cutoff"):
            value = getattr(self, name)
            if value is not None:
                method_of(
                    self.derivative, float(value), self.order
                )  # an unknown name or order is an error here, not in the middle of a log
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
        """Keep every k-th row of a run sampled with this period."""
        if self.decimate == "auto":
            return decimation_factor(max(self.cutoff, self.torque_cutoff or 0.0), period)
        return int(self.decimate or 1)

    def scored(self, torque_cutoff: float | None) -> Settings:
        """For torques behind another low-pass. What is slower than the motion is predicted from
        motion that is as slow: a prediction must not hold what was taken out of the torque.
        """
        cutoff = self.cutoff if torque_cutoff is None else min(self.cutoff, torque_cutoff)
        return replace(self, cutoff=cutoff, torque_cutoff=torque_cutoff)


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
    span: tuple[int, int] | None = None,
    chunks: Iterable[Chunk] | None = None,
) -> Settings:
    """The settings for a log: what is not given is chosen from its rows (of `span`, first and stop
    row, alone).
    """
    _check_names(log, robot)
    if cutoff is not None or torque_cutoff is not None:
        Settings(
            cutoff=torque_cutoff if cutoff is None else cutoff,
            min_speed=(),
            order=order,
            derivative=derivative,
            decimate=decimate,
        )
    speeds = None if min_speed is None else _speeds(min_speed, robot)
    seen = scan_spectra(log, robot, span=span, chunks=chunks)
    reasoning = "given"
    if cutoff is None:
        chosen = choose_cutoff(seen, robot)
        cutoff, reasoning = chosen.value, chosen.reasoning
    speeds = tuple(float(v) for v in choose_min_speed(seen, cutoff)) if speeds is None else speeds
    return Settings(
        cutoff=float(cutoff),
        min_speed=speeds,
        order=order,
        derivative=derivative,
        torque_cutoff=torque_cutoff,
        decimate=decimate,
        spikes=tuple(float(v) for v in seen.spikes),
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
    settings: Settings | None = None,
    span: tuple[int, int] | None = None,
) -> Samples:
    """Samples of a log, all in memory.

    Velocities and accelerations of the log are used where it has them (filtered), else
    differentiated; torque has the same low-pass.

    Args:
        log: as `read_log` returns it.
        robot: whose log it is.
        cutoff: of the low-pass [Hz]; chosen from the log if None.
        order: of the Butterworth filter, or the degree of the Savitzky–Golay polynomial.
        derivative: butterworth (zero-phase), savgol (zero-phase) or ema (causal).
        torque_cutoff: a low-pass for the torque alone [Hz]; the same one if None.
        min_speed: a joint slower than this stands still [rad/s or m/s], one for all or one per
            degree of freedom; chosen if None.
        decimate: keep every k-th filtered row, or "auto".
        settings: all of the above, as `choose` or another log's samples have them.
        span: first and stop row of the log to use; nothing outside them is touched.

    """
    chunks = log.read()
    choices = {
        "cutoff": cutoff,
        "torque_cutoff": torque_cutoff,
        "min_speed": min_speed,
        "decimate": decimate,
    }
    settings = _given_or_chosen(
        log, robot, settings, choices, order=order, derivative=derivative, span=span, chunks=chunks
    )
    batches = list(batches_of(log, robot, settings, rows=BATCH, span=span, chunks=chunks))
    return concatenate(batches, same_log=True)


def prepare_batches(
    log: LogLike,
    robot: Robot,
    *,
    cutoff: float | None = None,
    order: int = 4,
    derivative: str = "butterworth",
    torque_cutoff: float | None = None,
    min_speed: float | Sequence[float] | None = None,
    decimate: int | str | None = None,
    settings: Settings | None = None,
    span: tuple[int, int] | None = None,
    rows: int = BATCH,
) -> Iterator[Samples]:
    """The samples of `prepare` in batches of at most `rows` log rows, each inside one run, read
    from disk in bounded memory.
    """
    if not (isinstance(rows, int | np.integer) and rows >= 1):
        raise UsageError(f"rows is {rows!r}; give the number of rows in a batch, from 1")
    choices = {
        "cutoff": cutoff,
        "torque_cutoff": torque_cutoff,
        "min_speed": min_speed,
        "decimate": decimate,
    }
    settings = _given_or_chosen(
        log, robot, settings, choices, order=order, derivative=derivative, span=span
    )
    return batches_of(log, robot, settings, rows=int(rows), span=span, chunks=None)


# -- arguments -------------------------------------------------------------------------------------


def _given_or_chosen(
    log: LogLike, robot: Robot, settings: Settings | None, choices: dict, **more
) -> Settings:
    """The settings handed in, or those chosen from the log; both at once would contradict each
    other.
    """
    if settings is None:
        return choose(log, robot, **choices, **more)
    if any(value is not None for value in choices.values()):
        raise UsageError(
            "settings are given, and with them the cutoff, the least speed and the decimation;"
            " change them there (dataclasses.replace)"
        )
    return settings


def _check_names(log: LogLike, robot: Robot) -> None:
    names = tuple(getattr(log, "joint_names", robot.joint_names))
    if names != robot.joint_names:
        raise UsageError(
            f"the log was read for the joints {known(names)}, but the robot has"
            f" {known(robot.joint_names)}; read it again with this robot"
        )


def _speeds(min_speed: float | Sequence[float], robot: Robot) -> tuple[float, ...]:
    speeds = np.asarray(min_speed, dtype=float)
    if speeds.ndim == 0:
        speeds = np.full(robot.nv, float(speeds))
    if speeds.shape != (robot.nv,) or not np.all(np.isfinite(speeds)) or np.any(speeds < 0.0):
        raise UsageError(
            f"min_speed is {min_speed!r}; give one speed from 0, or one for each of the {robot.nv}"
            " degrees of freedom"
        )
    return tuple(float(v) for v in speeds)


# -- filtering -------------------------------------------------------------------------------------


class _Filter:
    """The kernels for one period, and what they make of a stretch of rows."""

    def __init__(self, robot: Robot, layout: Layout, settings: Settings, period: float) -> None:
        self.robot, self.layout, self.settings = robot, layout, settings
        plain = [self._kernel(settings.cutoff, period, d) for d in (0, 1, 2)]
        torque = (
            plain[0]
            if settings.torque_cutoff is None
            else self._kernel(settings.torque_cutoff, period, 0)
        )
        motion = [kernel.delayed(settings.delay / period) for kernel in plain]
        self.work: list[tuple[slice, list[Kernel]]] = [
            (
                layout.q,
                (
                    motion[:1]
                    if layout.has_dq and layout.has_ddq
                    else motion[: 1 if layout.has_dq else 3]
                ),
            )
        ]
        if layout.has_dq:
            self.work.append((layout.dq, motion[: 1 if layout.has_ddq else 2]))
        if layout.has_ddq:
            self.work.append((layout.ddq, motion[:1]))
        self.work.append((layout.tau, [torque]))
        used = [kernel for _, kernels in self.work for kernel in kernels]
        self.past, self.future = max(k.past for k in used), max(k.future for k in used)
        self.edge_future, self.edge_past = (
            max(reach) for reach in zip(*(k.edge_reach() for k in used), strict=True)
        )

    def _kernel(self, cutoff: float, period: float, derivative: int) -> Kernel:
        """The kernel for this period. Runs whose periods agree to four digits share one, scaled, so
        that many runs cost no more than one.
        """
        method = method_of(self.settings.derivative, cutoff, self.settings.order)
        shared = float(f"{period:.4g}")
        kernel = method.kernel(shared, derivative)
        return (
            replace(kernel, weights=kernel.weights * (shared / period) ** derivative)
            if derivative
            else kernel
        )

    def apply(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(q, dq, ddq, tau), each (rows, ·), of channels × (past + rows + future)."""
        outputs = [
            [out.T for out in convolve(x[channels], kernels, past=self.past, future=self.future)]
            for channels, kernels in self.work
        ]
        q_parts, tau = outputs[0], outputs[-1][0]
        q = np.ascontiguousarray(q_parts[0])
        if self.layout.has_dq:
            dq = outputs[1][0]
            ddq = outputs[2][0] if self.layout.has_ddq else outputs[1][1]
        else:
            dq, ddq = velocities(self.robot, *q_parts)
            ddq = outputs[1][0] if self.layout.has_ddq else ddq
        return normalize_quaternions(self.robot, q), dq, ddq, tau

    def reasons(
        self, dq: np.ndarray, codes: np.ndarray, *, first: int, total: int | None
    ) -> np.ndarray:
        """(rows, nv) codes; `codes` are of the stretch with its halo, `total` the rows of the run
        where they are known.
        """
        rows = len(dq)
        reason = np.where(
            np.abs(dq) < np.array(self.settings.min_speed), np.uint8(STANDSTILL), np.uint8(0)
        )
        own = codes[self.past : self.past + rows]
        reason[own == OUTLIER] = OUTLIER
        place = np.arange(first, first + rows)
        edge = (place < self.edge_past) | (
            False if total is None else place >= total - self.edge_future
        )
        reason[edge] = EDGE
        beyond = np.where(
            codes == OUTLIER, 0, codes
        )  # a spike was taken out; what else is marked spoils the rows its filter reaches
        for joint in np.flatnonzero(beyond.any(axis=0)):
            for code in np.unique(beyond[:, joint][beyond[:, joint] > 0]):
                count = np.concatenate([[0], np.cumsum(beyond[:, joint] == code)])
                low = np.arange(self.past - self.edge_past, self.past - self.edge_past + rows)
                reason[count[low + self.edge_past + self.edge_future + 1] > count[low], joint] = (
                    code
                )
        return reason


def batches_of(
    log: LogLike,
    robot: Robot,
    settings: Settings,
    *,
    rows: int,
    span: tuple[int, int] | None,
    chunks: Iterable[Chunk] | None,
) -> Iterator[Samples]:
    """The stream, stage by stage, run by run."""
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
    made: _Filter | None = None
    halo: Halo | None = None
    for block in uniform_blocks(
        log, robot, chunks=chunks, spans=run_spans(log, span), spikes=spikes
    ):
        if halo is None:
            made = _Filter(robot, layout, settings, block.period)
            halo = Halo(past=made.past, future=made.future, rows=rows)
        factor = settings.factor(block.period)
        total = block.first + len(block.x) if block.last else None
        for first, count, x, codes in halo.push(block):
            q, dq, ddq, tau = made.apply(x)
            reason = made.reasons(dq, codes, first=first, total=total)
            keep = slice(-first % factor, None, factor)
            place = np.arange(first, first + count)[keep]
            if not len(place):
                continue
            yield Samples(
                q=q[keep],
                dq=dq[keep],
                ddq=ddq[keep],
                tau=tau[keep],
                t=block.start + block.period * place,
                run=np.full(len(place), block.run),
                reason=reason[keep],
                period=factor * block.period,
                cutoff=settings.cutoff,
                guard=(made.future + CARRIED) * block.period,
                provenance=provenance,
            )
        if block.last:
            halo = None


def _provenance(log: LogLike, settings: Settings, span: tuple[int, int] | None) -> dict[str, Any]:
    """Where the samples came from, as plain values."""
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
