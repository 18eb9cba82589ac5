"""Simulated motion of identified robots: logged torques from logged states, open loop.

`TorqueWindows` keeps stretches of held-out rows as they pass by, evenly spread over the log and
bounded in number; `torque_rollout` simulates a robot, and the nominal one beside it, from many
starts in them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from thetahat.data.samples import OUTLIER, STANDSTILL, USABLE, Samples
from thetahat.data.velocities import all_single_dof
from thetahat.dynamics import batch
from thetahat.identification.rollout_errors import HORIZONS, HorizonErrors, RolloutErrors, Tip
from thetahat.model.robot import Robot

STRETCH = HORIZONS[-1]  # [s] of rows kept in one piece
MOST = 12  # stretches kept
STEP = 4e-3  # [s] of the simulation, at most by much: torques are low-passed far below its rate
SPACING = 0.5  # [s] between starts
OUTLIERS = 0.02  # share of a window's torques that may be outliers
LONGEST_WAIT = 600.0  # [s] for a thread
TORQUE_DRIVEN = 0.5  # [s] after which an arm that torques hold up is lost by every model
GAP = 1.5  # periods between rows of one stretch, at most


@dataclass(frozen=True, eq=False)
class Stretch:
    """Consecutive rows: time, state, torque, direction of dry friction, whether torques hold."""

    t: np.ndarray  # (rows,) [s]
    q: np.ndarray  # (rows, joints)
    dq: np.ndarray
    tau: np.ndarray
    direction: np.ndarray | None  # (rows, motors), of the identified robot
    reason: np.ndarray  # (rows,) usable, outlier or another reason of any joint

    def __len__(self) -> int:
        return len(self.t)


class TorqueWindows:
    """Keeps stretches of rows in bounded memory: every one, every second, every fourth …"""

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self._kept: list[tuple[int, list[Stretch]]] = []  # number of the stretch, its parts
        self._number, self._every, self._start = -1, 1, np.inf
        self._last, self._run, self._rows = np.inf, -1, 0

    def add(self, samples: Samples) -> None:
        """Look at a batch of rows, in the order of the log."""
        t = samples.t
        if t is None and samples.period is not None:
            t = (self._rows + np.arange(len(samples))) * samples.period
        self._rows += len(samples)
        if t is None or len(samples) < 2 or samples.form.windowed:
            return
        run = np.zeros(len(samples), dtype=np.int64) if samples.run is None else samples.run
        period = float(np.median(np.diff(t)))
        broken = (np.diff(t) > GAP * period) | (np.diff(t) <= 0.0) | (np.diff(run) != 0)
        edges = [0, *(np.flatnonzero(broken) + 1), len(samples)]
        for first, stop in pairwise(edges):
            follows = 0.0 < t[first] - self._last <= GAP * period and run[first] == self._run
            if not follows:
                self._begin(t[first])
            self._take(samples, t, int(first), int(stop))
            self._last, self._run = float(t[stop - 1]), int(run[stop - 1])

    def _begin(self, t: float) -> None:
        """Begin another stretch at this time."""
        self._number += 1
        self._start = float(t)
        if self._number % self._every:
            return
        self._kept.append((self._number, []))
        if len(self._kept) > MOST:
            self._every *= 2
            self._kept = [each for each in self._kept if each[0] % self._every == 0]

    def _take(self, samples: Samples, t: np.ndarray, first: int, stop: int) -> None:
        while first < stop:
            # a row beyond the stretch is its last and the next one's first
            end = first + int(np.searchsorted(t[first:stop], self._start + STRETCH))
            end = min(end + 1, stop)
            if self._kept and self._kept[-1][0] == self._number:
                self._kept[-1][1].append(_stretch(self._robot, samples, t, slice(first, end)))
            if t[end - 1] - self._start < STRETCH:
                return
            self._begin(t[end - 1])
            if end == stop:
                if self._kept and self._kept[-1][0] == self._number:
                    part = slice(end - 1, end)
                    self._kept[-1][1].append(_stretch(self._robot, samples, t, part))
                return
            first = end - 1

    @property
    def stretches(self) -> list[Stretch]:
        """The stretches that were kept."""
        out = []
        for _, parts in self._kept:
            if not parts:
                continue
            directions = [part.direction for part in parts if part.direction is not None]
            t, q, dq, tau = (
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("t", "q", "dq", "tau")
            )
            out.append(
                Stretch(
                    t,
                    q,
                    dq,
                    tau,
                    np.concatenate(directions) if len(directions) == len(parts) else None,
                    np.concatenate([part.reason for part in parts]),
                )
            )
        return out


def _stretch(robot: Robot, samples: Samples, t: np.ndarray, rows: slice) -> Stretch:
    direction = samples.direction_of(robot.drive)
    reason = np.zeros(len(t[rows]), dtype=np.uint8)
    if samples.reason is not None:
        codes = samples.reason[rows]
        other = ~np.isin(codes, (USABLE, STANDSTILL, OUTLIER))
        reason = np.where(other.any(axis=1), 255, (codes == OUTLIER).any(axis=1) * OUTLIER)
    return Stretch(
        t[rows],
        samples.q[rows],
        samples.dq[rows],
        samples.tau[rows],
        None if direction is None else direction[rows],
        np.asarray(reason, dtype=np.uint8),
    )


# -- simulation ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """A simulation: where it begins, and how many rows it lasts."""

    first: int
    rows: int


def starts_in(
    first: int, count: int, step: float, good: Callable[[int, int], bool] = lambda first, rows: True
) -> list[Start]:
    """Return starts every half second of consecutive rows.

    Each lasts as long as the longest horizon of which it is a multiple and whose rows are good, so
    that simulations of one horizon do not overlap.
    """
    out = []
    spacing = max(1, round(SPACING / step))
    for k, at in enumerate(range(0, count, spacing)):
        for horizon in reversed(HORIZONS):
            rows = round(horizon / step) + 1
            own = k % max(1, round(horizon / SPACING)) == 0
            if own and at + rows <= count and good(first + at, rows):
                out.append(Start(first + at, rows))
                break
    return out


def errors_at_horizons(
    robot: Robot,
    tip: Tip,
    step: float,
    starts: list[Start],
    *,
    logged: np.ndarray,
    simulated: np.ndarray,
) -> dict[float, HorizonErrors]:
    """Return the errors of simulations by horizon.

    logged: positions by row. simulated: positions of all starts, one after the other.
    """
    begins = np.cumsum([0, *(each.rows for each in starts)])[:-1]
    out = {}
    for horizon in HORIZONS:
        ahead = round(horizon / step)
        used = [k for k, each in enumerate(starts) if each.rows > ahead]
        if used:
            rows = [starts[k].first + ahead for k in used]
            at = begins[used] + ahead
            out[horizon] = HorizonErrors.of(robot, tip, simulated[at], logged[rows])
    return out


def can_simulate(robot: Robot) -> bool:
    """Whether a robot's motion can be simulated here: joints of one degree of freedom, as many
    motors as joints, a constant actuation map, physical bodies.
    """
    drive = robot.drive
    if not all_single_dof(robot) or not all(robot.consistency) or len(robot.tree.sensor_dofs):
        return False
    if drive.actuation is None:
        return True
    if not drive.actuation.constant or drive.actuation.motors != robot.nv:
        return False
    return bool(np.linalg.cond(np.asarray(drive.actuation.matrix_at(None))) < 1e6)


def torque_rollout(
    robot: Robot, stretches: list[Stretch], nominal: Robot | None = None
) -> RolloutErrors | None:
    """Simulate logged torques from logged states; None where nothing can be simulated."""
    if not can_simulate(robot):
        return None
    if nominal is not None and not can_simulate(nominal):
        nominal = None
    rows = _Rows.of(stretches, robot)
    if rows is None:
        return None
    starts = rows.starts()
    if not starts:
        return None
    tip = Tip.of(robot if nominal is None else nominal)
    mine, theirs = (
        None
        if each is None
        else errors_at_horizons(
            robot,
            tip,
            rows.step,
            starts,
            logged=rows.q,
            simulated=_simulate(each, rows, starts),
        )
        for each in (robot, nominal)
    )
    return RolloutErrors.of(robot, tip, "torque", mine or {}, theirs, longest=TORQUE_DRIVEN)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of all stretches, thinned to the step of the simulation."""

    step: float  # [s]
    t: np.ndarray
    q: np.ndarray
    dq: np.ndarray
    tau: np.ndarray
    direction: np.ndarray
    reason: np.ndarray
    pieces: tuple[tuple[int, int], ...]  # first row, rows

    @staticmethod
    def of(stretches: list[Stretch], robot: Robot) -> _Rows | None:
        usable = [each for each in stretches if len(each) > 1]
        if not usable:
            return None
        period = float(np.median(np.concatenate([np.diff(each.t) for each in usable])))
        every = max(1, int(STEP / period + 0.05))
        motors = len(robot.drive.viscous)
        arrays: list[list[np.ndarray]] = [[] for _ in range(6)]
        pieces, at = [], 0
        for each in usable:
            direction = each.direction
            if direction is None:
                direction = robot.drive.direction(each.dq).reshape(len(each), motors)
            count = len(each.t[::every])
            for into, values in zip(
                arrays, (each.t, each.q, each.dq, each.tau, direction, each.reason), strict=True
            ):
                into.append(values[::every])
            pieces.append((at, count))
            at += count
        t, q, dq, tau, d, reason = (np.ascontiguousarray(np.concatenate(each)) for each in arrays)
        return _Rows(every * period, t, q, dq, tau, d, reason, tuple(pieces))

    def starts(self) -> list[Start]:
        """Return starts in all pieces."""
        return [
            start
            for first, count in self.pieces
            for start in starts_in(first, count, self.step, self._good)
        ]

    def _good(self, first: int, rows: int) -> bool:
        reason = self.reason[first : first + rows]
        return bool(np.all(reason != 255) and np.mean(reason == OUTLIER) <= OUTLIERS)


def _simulate(robot: Robot, rows: _Rows, starts: list[Start]) -> np.ndarray:
    """Return simulated positions of all starts one after the other, (rows, joints)."""
    kernel = batch.kernels().torque_rollout
    offsets = np.cumsum([0, *(each.rows for each in starts)])
    # lanes of a tile advance together, so simulations of one length share them
    order = sorted(range(len(starts)), key=lambda k: -starts[k].rows)
    jobs = np.array([(starts[k].first, starts[k].rows, offsets[k]) for k in order], dtype=np.int64)
    out = np.empty((int(offsets[-1]), robot.nv))
    substeps = max(1, int(np.ceil(rows.step / STEP - 0.3)))
    tiles = [jobs[at : at + batch.WIDTH] for at in range(0, len(jobs), batch.WIDTH)]
    count = min(batch.CORES, len(tiles))
    theta, gravity, _ = robot.kernel_values
    parameters, maps = _parameters(robot), _maps(robot)

    def run(part: np.ndarray) -> None:
        w = batch.Workspace(robot.tree)
        scratch = (w.nodes, w.directions, w.composite, w.matrix, w.forces, w.torques)
        kernel.simulate_torques(
            robot.tree.rigid_arrays,
            gravity,
            theta,
            parameters,
            maps,
            part,
            rows.t,
            rows.tau,
            rows.q,
            rows.dq,
            rows.direction,
            substeps,
            scratch,
            out,
        )

    with ThreadPoolExecutor(count) as pool:
        parts = [np.concatenate(tiles[k::count]) for k in range(count)]
        for future in [pool.submit(run, part) for part in parts]:
            future.result(timeout=LONGEST_WAIT)
    return out


def _parameters(robot: Robot) -> np.ndarray:
    """Return the drive's terms by motor, in the order of the kernel's columns."""
    kernel, drive = batch.kernels().torque_rollout, robot.drive
    out = np.zeros((len(drive.viscous), kernel.PARAMETERS))
    out[:, kernel.STRIBECK_SPEED] = out[:, kernel.LOAD_SPEED] = 1.0
    standard = {"viscous": kernel.VISCOUS, "coulomb": kernel.COULOMB, "armature": kernel.ARMATURE}
    for term, column in {**standard, "offset": kernel.OFFSET}.items():
        out[:, column] = drive.value(term)
    extra = {
        "stribeck": kernel.STRIBECK,
        "load": kernel.LOAD,
        "load_driving": kernel.LOAD_DRIVING,
        "load_driven": kernel.LOAD_DRIVEN,
        "load_squared": kernel.LOAD_SQUARED,
        "load_stribeck": kernel.LOAD_STRIBECK,
        "one_sided": kernel.ONE_SIDED,
        "quadratic": kernel.QUADRATIC,
        "spring": kernel.SPRING,
        "spring_sine": kernel.SPRING_SINE,
        "spring_cosine": kernel.SPRING_COSINE,
    }
    speeds = {"stribeck": kernel.STRIBECK_SPEED, "load_stribeck": kernel.LOAD_SPEED}
    for shape, value in drive.extra:
        if shape.term not in extra or not shape.settings:
            continue
        setting = np.broadcast_to(np.array(shape.settings[0][1]), value.shape)
        if shape.term in speeds:
            out[:, extra[shape.term]] = np.where(setting > 0.0, value, 0.0)
            out[:, speeds[shape.term]] = np.where(setting > 0.0, setting, 1.0)
        else:
            out[:, extra[shape.term]] = setting * value
    if drive.dry is not None:
        out[:, kernel.ZONE], out[:, kernel.TRAVEL] = drive.dry.zone, drive.dry.travel
    return out


def _maps(robot: Robot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Bᵀ, B⁻¹ and B⁻ᵀ; without rows where B is the identity."""
    if robot.drive.actuation is None:
        none = np.zeros((0, 0))
        return none, none, none
    B = np.asarray(robot.drive.actuation.matrix_at(None), dtype=float)
    inverse = np.linalg.inv(B)
    return np.ascontiguousarray(B.T), np.ascontiguousarray(inverse), np.ascontiguousarray(inverse.T)
