"""What a gripper has just lifted, from a wrist force/torque sensor, a few hundredths of a second
after it hangs free.

Samples are averaged over windows of 10 ms; accelerations are the slope of the velocities over the
seven windows around each, which delays it by 30 ms. While nothing is held, the sensor's bias and
its noise are learned: what a window reads less what the empty tool weighs. When that leaves its
noise, something is held, and

    reading − empty tool − bias = W(q, q̇, q̈)·θ + noise

is solved for mass, centre of mass and inertia over the latest windows that one body explains:
windows in which the load still rests on the ground are left out by that. The noise of a mean over
so many windows is that of such means while nothing was held, so slow noise widens the interval,
and so does the noise of the accelerations, times the load's mass.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint, with_wrench_sensors

WINDOW = 0.01  # [s] that is averaged
AROUND = 3  # windows on either side in the slope of the velocities
LEARNED = 400  # windows while nothing is held by which bias and noise are known
LEAST_LEARNED = 50
LEAST = 3  # windows of a load
MOST = 100  # windows of a load that are fitted
LIFTED = 8.0  # standard deviations of a window's force: something is held
RELEASED = 4.0  # likewise, below: nothing is
SIZE = 0.1  # [m] how far from the link's origin a load's centre may be, as a standard deviation
LEVEL = 1e-3  # of the χ² test by which windows are of one body
COLUMNS = (parameters.M, *parameters.FIRST_MOMENT, *parameters.INERTIA)


@dataclass(frozen=True, eq=False)
class WristLoad:
    """What is held: mass and centre of mass in the link's frame, with standard deviations."""

    mass: float  # [kg]
    mass_std: float
    com: np.ndarray  # (3,) [m]
    com_std: np.ndarray
    since: float  # [s] time stamp since which one body explains the readings
    windows: int  # that were fitted

    @property
    def interval(self) -> tuple[float, float]:
        """The mass with 95 % probability [kg]."""
        reach = float(stats.t.ppf(0.975, max(3 * self.windows - 4, 1))) * self.mass_std
        return self.mass - reach, self.mass + reach


@dataclass(frozen=True, eq=False)
class _Mean:
    """Averages of some samples."""

    t: float  # [s]
    q: np.ndarray
    dq: np.ndarray
    wrench: np.ndarray  # (6,)


@dataclass(frozen=True, eq=False)
class _Window:
    t: float  # [s]
    rows: np.ndarray  # (6, 10) per unit of mass, first moment and inertia
    reading: np.ndarray  # (6,) less the empty tool
    spread: np.ndarray  # (6,) standard deviation of the first column of `rows`


class WristLoadEstimator:
    """Mass and centre of mass of what a gripper lifts, from the sensor on a link.

    Args:
        robot: that carries the sensor.
        link: whose wrench is measured, as in logs.
        tool: θ (10,) of the link and what is fixed to it when nothing is held, in the link's frame,
            such as `thetahat tool` finds it; None: the robot's own.

    """

    def __init__(self, robot: Robot, link: str, *, tool: np.ndarray | None = None) -> None:
        self._plain = robot
        self._robot = with_wrench_sensors(robot, [link]).without_drive()
        tree, body = self._robot.tree, self._robot.body_names.index(link)
        if tool is not None:
            theta = self._robot.theta.reshape(-1, parameters.SIZE).copy()
            theta[body] = np.asarray(tool, dtype=float)
            self._robot = self._robot.with_parameters(theta.ravel())
        self._rows = [tree.v_index[sensor_joint(link, channel)] for channel in CHANNELS]
        self._columns = [10 * body + k for k in COLUMNS]
        self._q = [tree.q_index[node.name] for node in tree.independent if not node.sensor]
        self._v = [v for v in range(self._robot.nv) if v not in set(tree.sensor_dofs.tolist())]
        self._begun: list[_Mean] = []
        self._means: deque[_Mean] = deque(maxlen=2 * AROUND + 1)
        self._speeds: deque[np.ndarray] = deque(maxlen=LEARNED)
        self._empty: deque[np.ndarray] = deque(maxlen=LEARNED)
        self._held: deque[_Window] = deque(maxlen=MOST)
        self._answer: WristLoad | None = None
        self._link = link

    @property
    def ready(self) -> bool:
        """Whether bias and noise are known well enough to tell that something is lifted."""
        return len(self._empty) >= LEAST_LEARNED

    def push(self, t: float, q: np.ndarray, dq: np.ndarray, wrench: np.ndarray) -> WristLoad | None:
        """Take a sample, and return what is held; None while nothing is.

        wrench: fx fy fz tx ty tz that the rest of the robot exerts on the link, in its axes.
        """
        shapes = (np.shape(q), np.shape(dq), np.shape(wrench))
        if shapes != ((len(self._q),), (len(self._v),), (6,)):
            raise UsageError(
                f"q, dq and wrench have shapes {shapes}; robot {self._plain.name!r} needs"
                f" ({len(self._q)},), ({len(self._v)},) and (6,)"
            )
        sample = _Mean(float(t), *(np.array(each, dtype=float) for each in (q, dq, wrench)))
        if not all(np.all(np.isfinite(each)) for each in (t, q, dq, wrench)):
            return self._answer  # what is no number says nothing
        if self._begun and not self._begun[-1].t < t < self._begun[-1].t + 10.0 * WINDOW:
            self._begun.clear()
            self._means.clear()
        if self._begun and t - self._begun[0].t >= WINDOW - 1e-9:
            self._means.append(self._averaged())
            self._begun = []
            if len(self._means) == 2 * AROUND + 1:
                self._take(self._window())
                self._answer = self._load()
        self._begun.append(sample)
        return self._answer

    def _averaged(self) -> _Mean:
        """Average what has been collected."""
        t, q, dq, wrench = (
            np.mean([getattr(each, name) for each in self._begun], axis=0)
            for name in ("t", "q", "dq", "wrench")
        )
        if len(self._means) >= 2:
            # noise of the velocities' means: what a line through three of them leaves
            bend = dq - 2.0 * self._means[-1].dq + self._means[-2].dq
            self._speeds.append(bend / np.sqrt(6.0))
        return _Mean(float(t), q, dq, wrench)

    def _window(self) -> _Window:
        """The window in the middle, with the slope of all around it."""
        middle = self._means[AROUND]
        t = np.array([each.t for each in self._means])
        s = t - t.mean()
        dq = np.array([each.dq for each in self._means])
        state = np.zeros((3, 1, self._robot.nv))
        state[0][0, self._q], state[1][0, self._v] = middle.q, middle.dq
        state[2][0, self._v] = s @ dq / float(s @ s)
        Y = rigid_body.regressor(self._robot, *state)[0][self._rows]
        slope = np.zeros(self._robot.nv)
        slope[self._v] = np.std(self._speeds, axis=0) / np.sqrt(float(s @ s))
        spread = np.zeros(6)
        jacobian = rigid_body.body_jacobian(self._robot, state[0][0], self._link)[3:]
        spread[:3] = np.sqrt(jacobian**2 @ slope**2)
        reading = middle.wrench - Y @ self._robot.theta
        return _Window(middle.t, Y[:, self._columns], reading, spread)

    def _take(self, window: _Window) -> None:
        if not self.ready:
            self._empty.append(window.reading)
            return
        empty = np.array(self._empty)
        noise = np.maximum(empty.std(axis=0), 1e-12)
        off = float(np.max(np.abs((window.reading - empty.mean(axis=0)) / noise)[:3]))
        if off > (RELEASED if self._held else LIFTED):
            self._held.append(window)
            return
        self._held.clear()
        self._empty.append(window.reading)

    # -- the load ----------------------------------------------------------------------------------

    def _load(self) -> WristLoad | None:
        windows = list(self._held)
        empty = np.array(self._empty)
        while len(windows) >= LEAST:
            fit = self._fit(windows, empty)
            if fit is not None:
                return fit
            windows = windows[max(1, len(windows) // 4) :]
        return None

    def _fit(self, windows: list[_Window], empty: np.ndarray) -> WristLoad | None:
        """Least squares over windows; None where no one body explains them."""
        n, single = len(windows), np.maximum(empty.std(axis=0, ddof=1), 1e-12)
        rows = np.array([each.rows for each in windows])
        b = np.array([each.reading for each in windows]) - empty.mean(axis=0)
        force, per_mass = b[:, :3].ravel(), rows[:, :3, 0].ravel()
        guess = max(float(per_mass @ force / (per_mass @ per_mass)), 1e-6)
        moved = guess * np.mean([each.spread for each in windows], axis=0)
        noise = np.hypot(single, moved)
        # the load is within reach of the link
        prior = np.diag([0.0, *[1.0 / (SIZE * guess)] * 3, *[1.0 / (SIZE**2 * guess)] * 6])
        A = np.vstack([(rows / noise[:, None]).reshape(-1, len(COLUMNS)), prior])
        right = np.append((b / noise).ravel(), np.zeros(len(COLUMNS)))
        x = np.linalg.lstsq(A, right, rcond=None)[0]
        chi, freedom = float(np.sum((right - A @ x) ** 2)), 6 * n - 4
        if chi > _limit(freedom):
            return None
        # of means over n windows: slow noise, accelerations that neighbours share, the bias
        mean = single**2 * (_spread_of_means(empty, n) + n / len(empty))
        mean = mean + moved**2 * min(n, 2 * AROUND + 1)
        scale = max(float(np.max((mean / noise**2)[:3])), chi / freedom)
        inverse = np.linalg.inv(np.linalg.qr(A)[1])
        covariance = scale * inverse @ inverse.T
        mass, moment = float(x[0]), x[1:4]
        if mass <= 0.0:
            return None
        J = np.hstack([-moment[:, None] / mass**2, np.eye(3) / mass])
        com_std = np.sqrt(np.diag(J @ covariance[:4, :4] @ J.T))
        std = float(np.sqrt(covariance[0, 0]))
        return WristLoad(mass, std, moment / mass, com_std, windows[0].t, n)


@cache
def _limit(freedom: int) -> float:
    """χ² above which windows are not of one body."""
    return float(stats.chi2.isf(LEVEL, freedom))


def _spread_of_means(empty: np.ndarray, count: int) -> float:
    """Variance of means over `count` windows, times count, relative to that of single windows: one
    for white noise, more for slow noise. The largest of the force channels'.
    """
    count = min(count, len(empty) // 4)
    if count < 2:
        return 1.0
    blocks = empty[len(empty) % count :].reshape(-1, count, empty.shape[1]).mean(axis=1)
    ratio = count * blocks.var(axis=0, ddof=1) / np.maximum(empty.var(axis=0, ddof=1), 1e-300)
    return max(1.0, float(np.max(ratio[:3])))
