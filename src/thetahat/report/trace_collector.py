"""Collects the traces of a report, batch by batch, in bounded memory and time per row."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from thetahat.data.contact_rows import without_contact_forces
from thetahat.data.samples import STANDSTILL, Samples
from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError
from thetahat.identification.uncertainty.posterior import RobotSamples
from thetahat.model.joint_units import joint_units
from thetahat.model.robot import Robot
from thetahat.report.decimate import Envelope, Worst
from thetahat.report.sampled_band import SampledBand
from thetahat.report.spectrum import Welch
from thetahat.report.traces import (
    PARTS,
    Band,
    Bins,
    Cloud,
    JointTraces,
    Lines,
    Residuals,
    Series,
    Spectrum,
    Stretch,
    Summary,
    Traces,
)

PIECE = 8192  # rows looked at at once
MANY = 30_000  # points of all joints' lines together: robots with many joints get fewer each
LONGEST_PAUSE, PAUSE = 5.0, 1.0  # [s] a longer pause between two runs is drawn as one of PAUSE
WINDOW, SHORTEST, LONGEST = 4.0, 64, 8192  # [s], rows of a window of the spectrum
SHORTER = (1, 4, 16)  # the spectrum of short runs has windows shorter by this
# periods of runs that differ by less share an axis of frequency: where rows were lost, their mean
# does
SAME_RATE = 0.1
ENOUGH = 3  # windows to average, else the shorter ones are taken
STRETCH, STRETCH_ROWS = 2.0, (100, 1000)  # [s] of the worst stretch, and its bounds
SLICES, FEWEST = 24, 12  # of velocity, and points in one of them
SERIES = ("measured", "predicted", "nominal", "residual")
MOTION = ("position", "velocity", "acceleration")
MOTION_POINTS = 3  # a line of the motion has one point where one of a torque has so many


class Collector:
    """Collects fitted and held-out rows in the order of the log: `add` them, take the `result`.

    model: the identified robot. nominal: the robot of the file, or None. points: of one line of one
    part, at most. cloud: rows per joint and part that are kept as they are, drawn at random by
    `seed`. drawn: robots drawn from the estimate, for a band of torques.
    """

    def __init__(
        self,
        model: Robot,
        nominal: Robot | None = None,
        *,
        points: int = 2000,
        cloud: int = 8192,
        seed: int = 0,
        drawn: RobotSamples | None = None,
    ) -> None:
        if nominal is not None and (nominal.nv, nominal.nq) != (model.nv, model.nq):
            raise UsageError(
                f"the nominal robot has {nominal.nv} degrees of freedom and the other {model.nv};"
                " give variants of one robot"
            )
        if points < 4 or cloud < 1:
            raise UsageError(f"points is {points} and cloud {cloud}; give at least 4 and 1")
        self.model, self.nominal = model, nominal
        self._points = max(4, min(points, MANY // max(1, model.nv)))
        self._size, self._seed = cloud, seed
        self._parts: dict[str, _Part] = {}
        self._clock = _Clock()
        self._cutoffs: set[float | None] = set()
        self._pose, self._rows = np.zeros(model.nq), 0
        self._coordinates = _coordinates(model)
        self._band = None if drawn is None else SampledBand(drawn)

    def add(self, samples: Samples, part: str) -> None:
        """Add a batch of rows, of the part that was fitted ("train") or held out ("test")."""
        if part not in PARTS:
            raise UsageError(f"part is {part!r}; give one of {', '.join(PARTS)}")
        if (samples.nq, samples.nv) != (self.model.nq, self.model.nv):
            raise UsageError(
                f"the samples have {samples.nq} coordinates and {samples.nv} velocities, but robot"
                f" {self.model.name!r} has {self.model.nq} and {self.model.nv}; prepare them with"
                " this robot"
            )
        self._cutoffs.add(samples.cutoff)
        for piece in _pieces(samples):
            self._take(piece, part)

    def _take(self, samples: Samples, part: str) -> None:
        t, begins = self._clock.placed(samples, part)
        if part not in self._parts:
            self._parts[part] = _Part(
                self.model.nv,
                points=self._points,
                cloud=self._size,
                seed=self._seed + PARTS.index(part),
                period=self._clock.period,
            )
        q, dq, ddq, drive = samples.q, samples.dq, samples.ddq, self.model.drive
        rigid = rigid_body.inverse_dynamics(self.model, q, dq, ddq, rigid=True)
        predicted, friction = rigid, np.zeros_like(rigid)
        if not drive.is_zero:
            direction = samples.direction_of(drive)
            predicted = rigid + drive.torque(dq, ddq, q=q, load=rigid, direction=direction)
            friction = drive.friction(dq, q=q, load=rigid, direction=direction)
        series = [samples.tau, predicted]
        if self.nominal is not None:
            series.append(rigid_body.inverse_dynamics(self.nominal, q, dq, ddq))
        series = [without_contact_forces(self.model, samples, each) for each in series]
        self._parts[part].add(t, samples, np.stack(series, axis=1), friction, begins=begins)
        position = np.where(self._coordinates < 0, np.nan, q[:, self._coordinates])
        self._parts[part].add_motion(t, np.stack([position, dq, ddq]), begins=begins)
        if self._band is not None:
            self._band.add(t, samples, part)
        self._pose = self._posed(samples)
        self._rows += len(samples)

    def _posed(self, samples: Samples) -> np.ndarray:
        """Return the mean of q so far; of quaternions, which have none, the first."""
        total = self._rows + len(samples)
        mean = np.asarray((self._pose * self._rows + samples.q.sum(axis=0)) / total)
        for _, at in self.model.tree.quaternions:
            mean[at : at + 4] = self._pose[at : at + 4] if self._rows else samples.q[0, at : at + 4]
        return mean

    def result(self) -> Traces:
        """Return the traces of the rows added so far."""
        present = {name: self._parts[name] for name in PARTS if name in self._parts}
        for part in present.values():
            part.worst.close()
        units = joint_units(self.model)
        bands = {} if self._band is None else self._band.bands()
        return Traces(
            joints=tuple(
                self._joint(j, name, units[j], present, bands)
                for j, name in enumerate(self.model.velocity_names)
            ),
            spans={name: part.span for name, part in present.items()},
            decimation={name: part.envelope.width for name, part in present.items()},
            clock=self._clock.title,
            cutoff=next(iter(self._cutoffs)) if len(self._cutoffs) == 1 else None,
            pose=self._pose if self._rows else self.model.neutral,
        )

    def _joint(
        self,
        j: int,
        name: str,
        units: tuple[str, str],
        parts: dict[str, _Part],
        bands: dict[str, list[Band]],
    ) -> JointTraces:
        parts = {part: each for part, each in parts.items() if each.rows[j]}

        def line(k: int) -> dict[str, Series]:
            return {part: each.line(j, k) for part, each in parts.items()}

        nominal = {} if self.nominal is None else line(SERIES.index("nominal"))
        position, velocity, acceleration = (
            {part: each.motion_line(j, k) for part, each in parts.items()}
            for k in range(len(MOTION))
        )
        if self._coordinates[j] < 0:
            position = {}
        band = {part: bands[part][j] for part in parts if part in bands}
        lines = Lines(line(0), line(1), nominal, line(3), position, velocity, acceleration, band)
        clouds = {
            part: each.cloud.result(j, nominal=self.nominal is not None)
            for part, each in parts.items()
        }
        moving = {part: cloud for part, cloud in clouds.items() if cloud.moving.any()}
        speeds = (np.abs(cloud.velocity[cloud.moving]) for cloud in moving.values())
        fastest = max((float(np.quantile(speed, 0.995)) for speed in speeds), default=0.0)

        def bins(cloud: Cloud, values: np.ndarray) -> Bins:
            return _bins(cloud.velocity[cloud.moving], values[cloud.moving], fastest)

        spectra = {part: each.spectrum(j) for part, each in parts.items()}
        residuals = Residuals(
            summary={part: each.summary(j) for part, each in parts.items()},
            spectrum={part: each for part, each in spectra.items() if each is not None},
            against_velocity={part: bins(c, c.residual) for part, c in moving.items()},
            friction={part: bins(c, c.residual + c.friction) for part, c in moving.items()},
            curve=_curve(self.model, j, fastest),
        )
        still = tuple(span for each in parts.values() for span in each.envelope.marked(j))
        worst = next((parts[part].worst_stretch(j, part) for part in reversed(parts)), None)
        return JointTraces(name, *units, lines, still, worst, clouds, residuals)


def _pieces(samples: Samples) -> Iterator[Samples]:
    """Yield rows of one run each, at most PIECE of them."""
    cuts = [] if samples.run is None else (np.flatnonzero(np.diff(samples.run)) + 1).tolist()
    for begin, end in zip([0, *cuts], [*cuts, len(samples)], strict=True):
        for at in range(begin, end, PIECE):
            yield samples.subset(slice(at, min(at + PIECE, end)))


def _coordinates(robot: Robot) -> np.ndarray:
    """Return where the position of every degree of freedom is in q; -1: it is no single number."""
    out = np.full(robot.nv, -1)
    for node in robot.tree.independent:
        if node.kind.nq == 1 and node.kind.nv == 1:
            out[robot.tree.v_index[node.name]] = robot.tree.q_index[node.name]
    return out


# -- time ------------------------------------------------------------------------------------------


class _Clock:
    """Time as it is drawn: from zero, runs one after another, long pauses shortened.

    Without timestamps it is the count of rows.
    """

    def __init__(self) -> None:
        self.period: float | None = None  # [s] of the first rows
        self._key: tuple[str, int] | None = None
        self._offset, self._last = 0.0, -math.inf
        self._shifted, self._stamped, self._count = False, True, 0

    @property
    def title(self) -> str:
        """Title of a time axis."""
        if not self._stamped:
            return "sample"
        return "time [s], long pauses between runs shortened" if self._shifted else "time [s]"

    def placed(self, samples: Samples, part: str) -> tuple[np.ndarray, bool]:
        """Return (time of every row, whether they begin a run of this part) of rows of one run."""
        key = (part, int(samples.run[0]) if samples.run is not None else 0)
        begins, self._key = key != self._key, key
        if samples.t is None:
            self._stamped = False
            t = np.arange(self._count, self._count + len(samples), dtype=float)
            self._count += len(samples)
            self.period = samples.period if self.period is None else self.period
            return t, begins
        if self.period is None:
            duration, intervals = float(samples.t[-1] - samples.t[0]), len(samples) - 1
            self.period = samples.period or (duration / intervals if intervals else None)
        first = float(samples.t[0])
        if math.isinf(self._last):
            self._offset = -first
        elif begins and not 0.0 <= first + self._offset - self._last <= LONGEST_PAUSE:
            self._offset, self._shifted = self._last + PAUSE - first, True
        t = samples.t + self._offset
        self._last = float(t[-1])
        return t, begins


# -- one part --------------------------------------------------------------------------------------


class _Part:
    """What is collected of the fitted, or of the held-out rows."""

    def __init__(
        self, nv: int, *, points: int, cloud: int, seed: int, period: float | None
    ) -> None:
        self.nv, self.period, self.begin, self.end = nv, period, math.nan, math.nan
        self._periods = np.zeros(2)  # rows that windows were taken of, and their duration
        self.envelope = Envelope(len(SERIES) * nv, points // 2)
        self.motion = Envelope(len(MOTION) * nv, max(2, points // 2 // MOTION_POINTS))
        self.cloud = _Cloud(nv, cloud, seed)
        length, block = 1024, STRETCH_ROWS[1]
        if period:
            length = min(max(2 ** round(math.log2(WINDOW / period)), SHORTEST), LONGEST)
            block = min(max(round(STRETCH / period), STRETCH_ROWS[0]), STRETCH_ROWS[1])
        lengths = [length // shorter for shorter in SHORTER]
        self.welch = [Welch(2 * nv, rows) for rows in lengths if rows >= SHORTEST // 4]
        self._silent = True  # no row of the run could be scored so far: windows begin where one can
        self.worst = Worst(nv, block)
        self.rows = np.zeros(nv, dtype=np.int64)
        self.sums = np.zeros((3, nv))  # e, e², u²
        self.largest, self.largest_at = np.full(nv, -1.0), np.full(nv, np.nan)

    @property
    def span(self) -> tuple[float, float]:
        """First and last time."""
        return self.begin, self.end

    def add(
        self,
        t: np.ndarray,
        samples: Samples,
        series: np.ndarray,
        friction: np.ndarray,
        *,
        begins: bool,
    ) -> None:
        """series: (n, 2 or 3, nv): measured, predicted, nominal."""
        mask = samples.scorable
        still = np.zeros_like(mask) if samples.reason is None else samples.reason == STANDSTILL
        error = series[:, 0] - series[:, 1]
        nominal = series[:, 2] if series.shape[1] > 2 else np.full_like(error, np.nan)
        values = np.stack([series[:, 0], series[:, 1], nominal, error])  # (4, n, nv)
        channels = np.ascontiguousarray(values.transpose(0, 2, 1)).reshape(-1, len(t))
        usable = np.tile(mask.T, (len(SERIES), 1)) & ~np.isnan(channels)
        self.envelope.add(t, channels, usable, marks=still.T, broken=begins)
        self.cloud.add(np.stack([samples.dq, *values[:3], friction, (~still).astype(float)]), mask)
        self.worst.add(t, series, mask, begins=begins)
        period = samples.period or self.period
        # Runs at another rate have another axis of frequency.
        if self.period and period and abs(period / self.period - 1.0) <= SAME_RATE:
            self._periods += len(t) * np.array([1.0, period])
            self._add_spectrum(
                np.hstack([error, series[:, 0]]), np.hstack([mask, mask]), begins=begins
            )
        self._sum(t, error, series[:, 0], mask)
        self.begin = float(t[0]) if math.isnan(self.begin) else self.begin
        self.end = float(t[-1])

    def add_motion(self, t: np.ndarray, values: np.ndarray, *, begins: bool) -> None:
        """values: (3, n, nv): position (NaN where there is none), velocity, acceleration."""
        channels = np.ascontiguousarray(values.transpose(0, 2, 1)).reshape(-1, len(t))
        marks = np.zeros((0, len(t)), dtype=bool)
        self.motion.add(t, channels, ~np.isnan(channels), marks=marks, broken=begins)

    def _add_spectrum(self, rows: np.ndarray, mask: np.ndarray, *, begins: bool) -> None:
        self._silent |= begins
        if self._silent:
            scored = mask.any(axis=1)
            if not scored.any():
                return
            first = int(np.argmax(scored))
            rows, mask, begins, self._silent = rows[first:], mask[first:], True, False
        for welch in self.welch:
            welch.add(rows, mask, begins=begins)

    def _sum(self, t: np.ndarray, error: np.ndarray, torque: np.ndarray, mask: np.ndarray) -> None:
        self.rows += mask.sum(axis=0)
        self.sums += np.stack(
            [np.sum(each, axis=0, where=mask) for each in (error, error**2, torque**2)]
        )
        size = np.where(mask, np.abs(error), -1.0)
        where = size.argmax(axis=0)
        largest = size[where, np.arange(self.nv)]
        larger = largest > self.largest
        self.largest = np.where(larger, largest, self.largest)
        self.largest_at = np.where(larger, t[where], self.largest_at)

    def line(self, j: int, kind: int) -> Series:
        """One of SERIES of a joint."""
        return self.envelope.line(kind * self.nv + j)

    def motion_line(self, j: int, kind: int) -> Series:
        """One of MOTION of a joint."""
        return self.motion.line(kind * self.nv + j)

    def summary(self, j: int) -> Summary:
        """Of a joint that has rows."""
        rows, (first, second, torque) = int(self.rows[j]), self.sums[:, j]
        r2 = 1.0 - second / torque if torque > 0.0 else None
        largest, at = float(self.largest[j]), float(self.largest_at[j])
        return Summary(rows, first / rows, math.sqrt(second / rows), largest, at, r2)

    def spectrum(self, j: int) -> Spectrum | None:
        """With the longest windows of which there are enough."""
        usable = [welch for welch in self.welch if welch.used[j]]
        if not usable:
            return None
        welch = next((each for each in usable if each.used[j] >= ENOUGH), usable[-1])
        rate = self._periods[0] / self._periods[1]
        frequency, residual = welch.density(j, rate)
        _, torque = welch.density(self.nv + j, rate)
        return Spectrum(frequency, np.sqrt(residual), np.sqrt(torque), int(welch.used[j]))

    def worst_stretch(self, j: int, part: str) -> Stretch | None:
        """The block predicted worst."""
        rows = self.worst.rows[j]
        if rows is None:
            return None
        t, values = rows
        seen = np.flatnonzero(np.isfinite(values[:, 0]))
        t, values = t[seen[0] : seen[-1] + 1], values[seen[0] : seen[-1] + 1]
        nominal = values[:, 2] if values.shape[1] > 2 else None
        return Stretch(part, t, values[:, 0], values[:, 1], nominal, math.sqrt(self.worst.score[j]))


class _Cloud:
    """Of every joint, `size` rows drawn at random: those with the smallest random keys.

    How the rows are cut into pieces makes no difference.
    """

    def __init__(self, nv: int, size: int, seed: int) -> None:
        self.size, self._rng = size, np.random.default_rng(seed)
        self._limit = np.ones(nv)  # keys from here on are out already
        self._keys: list[list[np.ndarray]] = [[] for _ in range(nv)]
        self._values: list[list[np.ndarray]] = [[] for _ in range(nv)]

    def add(self, values: np.ndarray, mask: np.ndarray) -> None:
        """Add rows: values (kinds, n, nv), mask (n, nv)."""
        keys = self._rng.random(len(mask))
        for j in range(mask.shape[1]):
            take = np.flatnonzero(mask[:, j] & (keys < self._limit[j]))
            if take.size:
                self._keys[j].append(keys[take])
                self._values[j].append(values[:, take, j])
                if sum(map(len, self._keys[j])) > 2 * self.size:
                    self._thin(j)

    def _thin(self, j: int) -> None:
        keys, values = np.concatenate(self._keys[j]), np.concatenate(self._values[j], axis=1)
        order = np.argsort(keys)[: self.size]
        self._keys[j], self._values[j] = [keys[order]], [values[:, order]]
        if len(order) == self.size:
            self._limit[j] = keys[order[-1]]

    def result(self, j: int, *, nominal: bool) -> Cloud:
        """Return the rows of a joint, in random order."""
        self._thin(j)
        velocity, measured, predicted, stated, friction, moving = self._values[j][0]
        known = stated if nominal else None
        return Cloud(velocity, measured, predicted, known, friction, moving > 0.5)


# -- friction --------------------------------------------------------------------------------------


def _bins(velocity: np.ndarray, values: np.ndarray, fastest: float) -> Bins:
    """Return median and quantiles by slices of velocity, none of which mixes the directions."""
    if fastest <= 0.0:
        return Bins(*(np.zeros(0) for _ in range(5)))
    edges = np.linspace(-fastest, fastest, SLICES + 1)
    at = np.digitize(velocity, edges) - 1
    out = []
    for k in range(SLICES):
        mine = values[at == k]
        if len(mine) >= FEWEST:
            centre = 0.5 * (edges[k] + edges[k + 1])
            out.append((centre, *np.quantile(mine, (0.5, 0.05, 0.95)), len(mine)))
    return Bins(*np.array(out).reshape(-1, 5).T)


def _curve(model: Robot, j: int, fastest: float) -> Series | None:
    """Return the model's friction and offset over one joint's velocity; a gap at zero."""
    drive = model.drive
    if fastest <= 0.0 or drive.is_zero or drive.actuation is not None or drive.needs_load:
        return None
    half = np.linspace(0.0, fastest, 41)[1:]
    velocity = np.concatenate([-half[::-1], [-1e-9 * fastest, 0.0, 1e-9 * fastest], half])
    dq = np.zeros((len(velocity), model.nv))
    dq[:, j] = velocity
    return Series(
        velocity, np.where(velocity == 0.0, np.nan, drive.without_springs().friction(dq)[:, j])
    )
