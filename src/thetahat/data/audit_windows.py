"""Short windows spread over a log, each reduced to one smooth sample, for the model-based part of
the audit.

Over a window, q(t) ≈ c₀ + c₁s + c₂s² by least squares gives position, velocity and acceleration at
its middle without a filter, whatever the rate and jitter; torques are averaged. Of a log of any
length, some thousand windows are kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.types import Channels
from thetahat.model.robot import Robot

WINDOW = 0.04  # [s]: longer than noise, shorter than the motion of an arm
LEAST, MOST = 5, 400  # rows of a window
PER_BATCH = 512
KEPT = 2_048


@dataclass(frozen=True, eq=False)
class Windows:
    """Smooth samples, (k, ·) each."""

    q: np.ndarray
    dq: np.ndarray  # as measured where it is, else the slope of q
    ddq: np.ndarray
    tau: np.ndarray | None
    # (2, k, nv) slope and curvature of q, where every joint has one degree of freedom
    of_position: np.ndarray | None
    row: np.ndarray  # (k,) first row of each window
    usable: np.ndarray  # (k, nv) whether the torque is fit for use
    period: float

    @property
    def finite(self) -> bool:
        """Return whether their numbers are small enough to compute with."""
        arrays = (self.q, self.dq, self.ddq, *(() if self.tau is None else (self.tau,)))
        return all(float(np.abs(array).max(initial=0.0)) < 1e100 for array in arrays)

    def __len__(self) -> int:
        return len(self.q)

    @property
    def slope(self) -> np.ndarray | None:
        """Return the slope of q, (k, nv)."""
        return None if self.of_position is None else self.of_position[0]

    def differentiated(self, dofs: Collection[int]) -> Windows:
        """Return the windows with velocities and accelerations of these degrees of freedom taken
        from the position.
        """
        if not dofs or self.of_position is None:
            return self
        which, dq, ddq = list(dofs), self.dq.copy(), self.ddq.copy()
        dq[:, which], ddq[:, which] = self.of_position[:, :, which]
        return replace(self, dq=dq, ddq=ddq)


class WindowCollector:
    """Collect windows in one pass over a log; every other one is dropped whenever there are too
    many.
    """

    def __init__(self, robot: Robot, columns: ColumnMap) -> None:
        self._simple = robot.nq == robot.nv and not robot.tree.quaternions
        self._angles = [
            robot.tree.q_index[node.name] for node in robot.tree.independent if node.kind.nq == 1
        ]
        self._robot, self._quota = robot, PER_BATCH
        self._possible = self._simple or columns.has("dq")
        self._parts: list[dict[str, np.ndarray]] = []
        self._count, self._period = 0, 0.0
        self._step, self._seen = 1, 0  # of windows that other files collected

    def feed(self, channels: Channels, starts: np.ndarray, *, row: int, period: float) -> None:
        """Take a batch of consecutive rows."""
        t = channels["t"]
        if not self._possible or not period:
            return
        self._period = period
        width = int(np.clip(round(WINDOW / period), LEAST, MOST))
        count = min(len(t) // width, self._quota)
        if not count:
            return
        first = np.unique(np.linspace(0, len(t) - width, count).astype(np.int64))
        breaks = np.zeros(len(t) + 1, dtype=np.int64)
        breaks[starts + 1] = 1
        breaks = np.cumsum(breaks)
        first = first[breaks[first + width] == breaks[first + 1]]  # no run begins inside
        if len(first):
            with np.errstate(over="ignore", invalid="ignore"):
                self._reduce(channels, first, width, row)

    def _reduce(self, channels: Channels, first: np.ndarray, width: int, row: int) -> None:
        index = first[:, None] + np.arange(width)
        t, q, dq, tau = channels["t"][index], channels["q"][index], channels["dq"], channels["tau"]
        if self._angles:
            # an encoder that wraps around has no speed there
            smooth = np.abs(np.diff(q[:, :, self._angles], axis=1)).max(axis=(1, 2)) < np.pi
            index, t, q, first = index[smooth], t[smooth], q[smooth], first[smooth]
        if not len(first):
            return
        s = t - 0.5 * (t[:, :1] + t[:, -1:])
        half = 0.5 * (t[:, -1] - t[:, 0])
        powers = (s / half[:, None])[:, :, None] ** np.arange(3)
        transposed = powers.transpose(0, 2, 1)
        inverse = np.linalg.solve(transposed @ powers, transposed)  # (k, 3, width)
        scale = half[:, None]
        part = {"row": first + row}
        fit = inverse @ q
        part["q"], slope, curve = fit[:, 0], fit[:, 1] / scale, 2.0 * fit[:, 2] / scale**2
        if self._simple:
            part["slope"], part["curve"], part["dq"], part["ddq"] = slope, curve, slope, curve
        for _, at in self._robot.tree.quaternions:
            quaternion = part["q"][:, at : at + 4]
            quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
        if dq is not None:
            fit = inverse @ dq[index]
            part["dq"], part["ddq"] = fit[:, 0], fit[:, 1] / scale
        if tau is not None:
            part["tau"] = tau[index].mean(axis=1)
        self._keep(part)

    def _keep(self, part: dict[str, np.ndarray]) -> None:
        self._parts.append(part)
        self._count += len(part["row"])
        while self._count > KEPT:
            self._parts = [{name: array[::2] for name, array in self._joined().items()}]
            self._count, self._quota = len(self._parts[0]["row"]), max(self._quota // 2, 1)

    def collected(self) -> tuple[dict[str, np.ndarray], float]:
        """Return the arrays of all windows and the period [s] of the rows they are from."""
        return (self._joined() if self._parts else {}), self._period

    def add(self, windows: dict[str, np.ndarray], period: float, row: int) -> None:
        """Add what another collector has of a file whose first row is `row` of the log.

        Every k-th is kept where there are too many; k doubles when needed.
        """
        self._period = period or self._period
        if not windows:
            return
        part = {
            name: array[-self._seen % self._step :: self._step] for name, array in windows.items()
        }
        self._seen += len(windows["row"])
        self._parts.append(part | {"row": part["row"] + row})
        self._count += len(part["row"])
        while self._count > KEPT:
            self._parts = [{name: array[::2] for name, array in self._joined().items()}]
            self._count, self._step = len(self._parts[0]["row"]), 2 * self._step

    def _joined(self) -> dict[str, np.ndarray]:
        return {
            name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]
        }

    def windows(self, unusable: dict[int, list[tuple[int, int]]]) -> Windows | None:
        """Return the windows, with the torques of `unusable` rows (by degree of freedom) marked;
        None if the log is too short for one.
        """
        if not self._parts:
            return None
        joined = self._joined()
        by_position = "slope" in joined
        of_position = np.stack([joined["slope"], joined["curve"]]) if by_position else None
        row = joined["row"]
        usable = np.ones((len(row), self._robot.nv), dtype=bool)
        for v, intervals in unusable.items():
            for first, stop in intervals:
                usable[(row < stop) & (row >= first - MOST), v] = False
        return Windows(
            q=joined["q"],
            dq=joined["dq"],
            ddq=joined["ddq"],
            tau=joined.get("tau"),
            of_position=of_position,
            row=row,
            usable=usable,
            period=self._period,
        )
