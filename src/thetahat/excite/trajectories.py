"""The trajectories: Fourier series, sums of sinusoids, quintic moves from rest to rest, splines.
Each starts and ends at rest.

    Fourier     q = c + Σ_k a_k/(kω) sin kωt − b_k/(kω) cos kωt                      [Swevers1997]
                Σ a_k = 0 and Σ k b_k = 0, so that q̇ = q̈ = 0 at t = 0
    Sinusoids   q = c + w(t) Σ_k A_k sin(2πf_k t + φ_k)
                w a quintic ramp from 0 to 1 and, at the end, back
    Moves       q = p_i + (p_{i+1} − p_i) s(τ)
                s = 10τ³ − 15τ⁴ + 6τ⁵, and a rest of `dwell` seconds in every point
    Spline      a spline of degree five through the points, four times continuously differentiable
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from thetahat.errors import UsageError, check_count, check_positive
from thetahat.excite.trajectory import State, Trajectory, joint_array, set_arrays
from thetahat.model.robot import Robot

if TYPE_CHECKING:
    from scipy.interpolate import BSpline

# of the largest term: how exactly Fourier coefficients must leave the robot at rest at t = 0
REST = 1e-9


def fourier_terms(
    t: np.ndarray, period: float, harmonics: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, q̇ and q̈ per unit of a_1 … a_h, b_1 … b_h, (n, 2h) each."""
    w = 2.0 * np.pi / period * np.arange(1, harmonics + 1)
    s, c = np.sin(w * t[:, None]), np.cos(w * t[:, None])
    return np.hstack([s / w, -c / w]), np.hstack([c, s]), np.hstack([-w * s, w * c])


def fourier_jerk(t: np.ndarray, period: float, harmonics: int) -> np.ndarray:
    """q⃛ per unit of a_1 … a_h, b_1 … b_h, (n, 2h)."""
    w = 2.0 * np.pi / period * np.arange(1, harmonics + 1)
    return np.hstack([-(w**2) * np.cos(w * t[:, None]), -(w**2) * np.sin(w * t[:, None])])


@dataclass(frozen=True, eq=False)
class Fourier(Trajectory):
    """A finite Fourier series, periodic, whose period begins and ends at rest [Swevers1997]."""

    joint_names: tuple[str, ...]
    period: float  # [s]
    centre: np.ndarray  # (nv,) c [rad or m]
    a: np.ndarray  # (nv, harmonics) [rad/s or m/s]
    b: np.ndarray  # (nv, harmonics)
    periods: int = 1

    def __post_init__(self) -> None:
        check_positive("period", self.period, "the time of one period [s]")
        check_count("periods", self.periods, "how often to repeat the period")
        nv = len(self.joint_names)
        a = joint_array("a", self.a, (nv, None), f"({nv}, harmonics)")
        b = joint_array("b", self.b, a.shape, f"{a.shape}, as a")
        k = np.arange(1, a.shape[1] + 1)
        for values, name in ((a, "Σ a_k"), (b * k, "Σ k·b_k")):
            largest = np.max(np.abs(values), axis=1, initial=0.0)
            off = np.abs(np.sum(values, axis=1)) > REST * largest * len(k)
            if np.any(off):
                raise UsageError(
                    f"{name} of joint {self.joint_names[int(np.argmax(off))]!r} is not zero, so the"
                    " motion would not start at rest; use Fourier.at_rest, which moves"
                    " coefficients by the least that makes it so"
                )
        set_arrays(self, centre=joint_array("centre", self.centre, (nv,), f"({nv},)"), a=a, b=b)

    @staticmethod
    def at_rest(
        robot: Robot,
        period: float,
        *,
        centre: ArrayLike,
        a: ArrayLike,
        b: ArrayLike,
        periods: int = 1,
    ) -> Fourier:
        """The series nearest to these coefficients that starts and ends at rest."""
        a, b = np.array(a, dtype=float), np.array(b, dtype=float)
        middle = np.array(centre, dtype=float)
        if a.ndim != 2 or a.shape[1] < 2 or b.shape != a.shape:
            raise UsageError(
                f"a and b have shapes {a.shape} and {b.shape}; give (joints, harmonics) with at"
                " least two harmonics, as one cannot rest"
            )
        k = np.arange(1, a.shape[1] + 1)
        a -= np.mean(a, axis=1, keepdims=True)
        b -= np.outer(b @ k, k) / (k @ k)
        return Fourier(robot.joint_names, period, middle, a, b, periods)

    @property
    def duration(self) -> float:
        """All periods [s]."""
        return self.period * self.periods

    def _states(self, t: np.ndarray) -> State:
        terms = fourier_terms(t, self.period, self.a.shape[1])
        q, dq, ddq = (term @ np.hstack([self.a, self.b]).T for term in terms)
        return self.centre + q, dq, ddq

    def _jerk(self, t: np.ndarray) -> np.ndarray:
        terms = fourier_jerk(t, self.period, self.a.shape[1])
        return np.asarray(terms @ np.hstack([self.a, self.b]).T)


def quintic(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return s = 10x³ − 15x⁴ + 6x⁵ from 0 to 1 on [0, 1], and its first two derivatives."""
    x = np.clip(x, 0.0, 1.0)
    return (
        x**3 * (10.0 + x * (-15.0 + 6.0 * x)),
        30.0 * (x * (1.0 - x)) ** 2,
        60.0 * x * (1.0 - x) * (1.0 - 2.0 * x),
    )


def quintic_jerk(x: np.ndarray) -> np.ndarray:
    """Return the third derivative of `quintic`; zero outside [0, 1]."""
    inside = (x >= 0.0) & (x <= 1.0)
    return np.where(inside, 60.0 * (1.0 - 6.0 * x * (1.0 - x)), 0.0)


@dataclass(frozen=True, eq=False)
class Sinusoids(Trajectory):
    """A sum of sinusoids at each joint, faded in and out over `ramp` seconds (paper)."""

    joint_names: tuple[str, ...]
    duration: float  # [s]
    centre: np.ndarray  # (nv,) [rad or m]
    amplitude: np.ndarray  # (nv, terms) [rad or m]
    frequency: np.ndarray  # (nv, terms) [Hz]
    phase: np.ndarray  # (nv, terms) [rad]
    ramp: float  # [s]

    def __post_init__(self) -> None:
        check_positive("duration", self.duration, "how long the motion lasts [s]")
        check_positive("ramp", self.ramp, "how long the motion takes to fade in and out [s]")
        if 2.0 * self.ramp > self.duration:
            raise UsageError(
                f"ramp is {self.ramp:g} s; a motion of {self.duration:g} s can fade in and out for"
                f" at most {self.duration / 2:g} s each"
            )
        nv = len(self.joint_names)
        centre = joint_array("centre", self.centre, (nv,), f"({nv},)")
        amplitude = joint_array("amplitude", self.amplitude, (nv, None), f"({nv}, terms)")
        shape, what = amplitude.shape, f"{amplitude.shape}, as amplitude"
        frequency = joint_array("frequency", self.frequency, shape, what)
        phase = joint_array("phase", self.phase, shape, what)
        set_arrays(self, centre=centre, amplitude=amplitude, frequency=frequency, phase=phase)

    def _states(self, t: np.ndarray) -> State:
        w = 2.0 * np.pi * self.frequency
        angle = w * t[:, None, None] + self.phase  # (n, nv, terms)
        sine, cosine = self.amplitude * np.sin(angle), self.amplitude * np.cos(angle)
        x, dx, ddx = np.sum(sine, axis=2), np.sum(w * cosine, axis=2), -np.sum(w**2 * sine, axis=2)
        rise = quintic(t[:, None] / self.ramp)
        fall = quintic((self.duration - t[:, None]) / self.ramp)
        # one of the two ramps is always 1: they do not overlap
        u = rise[0] * fall[0]
        du = (rise[1] - fall[1]) / self.ramp
        ddu = (rise[2] + fall[2]) / self.ramp**2
        return self.centre + u * x, du * x + u * dx, ddu * x + 2.0 * du * dx + u * ddx

    def _jerk(self, t: np.ndarray) -> np.ndarray:
        w = 2.0 * np.pi * self.frequency
        angle = w * t[:, None, None] + self.phase
        sine, cosine = self.amplitude * np.sin(angle), self.amplitude * np.cos(angle)
        x, dx, ddx, dddx = (
            np.sum(each, axis=2) for each in (sine, w * cosine, -(w**2) * sine, -(w**3) * cosine)
        )
        up, down = t[:, None] / self.ramp, (self.duration - t[:, None]) / self.ramp
        rise, fall = quintic(up), quintic(down)
        u, du = rise[0] * fall[0], (rise[1] - fall[1]) / self.ramp
        ddu = (rise[2] + fall[2]) / self.ramp**2
        dddu = (quintic_jerk(up) - quintic_jerk(down)) / self.ramp**3
        return np.asarray(dddu * x + 3.0 * ddu * dx + 3.0 * du * ddx + u * dddx)


@dataclass(frozen=True, eq=False)
class Moves(Trajectory):
    """From point to point by polynomials of degree five, at rest in every point."""

    joint_names: tuple[str, ...]
    points: np.ndarray  # (points, nv) [rad or m]
    times: np.ndarray  # (points − 1,) of each move [s]
    dwell: float = 0.0  # rest in every point, the first and the last too [s]

    def __post_init__(self) -> None:
        nv = len(self.joint_names)
        points = joint_array("points", self.points, (None, nv), f"(points, {nv})")
        if len(points) < 2:
            raise UsageError(f"points holds {len(points)} point(s); a move needs two")
        moves = len(points) - 1
        times = joint_array("times", self.times, (moves,), f"({moves},), one per move")
        for time in times:
            check_positive("a move's time", float(time), "how long each move lasts [s]")
        if self.dwell != 0.0:
            check_positive("dwell", self.dwell, "the rest in every point [s]")
        set_arrays(self, points=points, times=times)

    @cached_property
    def _begins(self) -> np.ndarray:
        """When each move begins, (moves,)."""
        return self.dwell + np.concatenate([[0.0], np.cumsum(self.times[:-1] + self.dwell)])

    @property
    def duration(self) -> float:
        """All moves and rests [s]."""
        return float(np.sum(self.times)) + self.dwell * len(self.points)

    def _states(self, t: np.ndarray) -> State:
        move = np.clip(np.searchsorted(self._begins, t, side="right") - 1, 0, len(self.times) - 1)
        time = self.times[move][:, None]
        s, ds, dds = quintic((t - self._begins[move])[:, None] / time)
        step = np.diff(self.points, axis=0)[move]
        return self.points[move] + step * s, step * ds / time, step * dds / time**2

    def _jerk(self, t: np.ndarray) -> np.ndarray:
        move = np.clip(np.searchsorted(self._begins, t, side="right") - 1, 0, len(self.times) - 1)
        time = self.times[move][:, None]
        third = quintic_jerk((t - self._begins[move])[:, None] / time)
        return np.asarray(np.diff(self.points, axis=0)[move] * third / time**3)


def tick_tock(
    robot: Robot,
    first: ArrayLike,
    second: ArrayLike,
    *,
    time: float,
    repeats: int = 1,
    dwell: float = 0.0,
) -> Moves:
    """Return a motion to and fro between two poses, each way in `time` seconds (paper)."""
    check_positive("time", time, "how long each way lasts [s]")
    check_count("repeats", repeats, "how often to go there and back")
    what = f"({robot.nv},), one position per joint of {robot.name!r}"
    first = joint_array("first", np.asarray(first), (robot.nv,), what)
    second = joint_array("second", np.asarray(second), (robot.nv,), what)
    points = np.array([first, *[second, first] * repeats])
    return Moves(robot.joint_names, points, np.full(2 * repeats, float(time)), dwell)


def spline_terms(t: np.ndarray, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return q, q̇ and q̈ per unit of each point, (n, points) each: quintic, at rest at ends."""
    spline = _spline(knots)
    return spline(t), spline(t, 1), spline(t, 2)


def spline_jerk(t: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return q⃛ per unit of each point, (n, points)."""
    return np.asarray(_spline(knots)(t, 3))


def _spline(knots: np.ndarray) -> BSpline:
    from scipy.interpolate import make_interp_spline

    rest = [(1, np.zeros(len(knots))), (2, np.zeros(len(knots)))]
    return make_interp_spline(knots, np.eye(len(knots)), k=5, bc_type=(rest, rest))


@dataclass(frozen=True, eq=False)
class Spline(Trajectory):
    """Through points at given times, without rest between the ends."""

    joint_names: tuple[str, ...]
    times: np.ndarray  # (points,) from 0, ascending [s]
    points: np.ndarray  # (points, nv) [rad or m]

    def __post_init__(self) -> None:
        nv = len(self.joint_names)
        points = joint_array("points", self.points, (None, nv), f"(points, {nv})")
        times = joint_array("times", self.times, (len(points),), f"({len(points)},), one per point")
        if len(points) < 2 or times[0] != 0.0 or np.any(np.diff(times) <= 0.0):
            raise UsageError(
                f"times are {times.tolist()}; give at least two, from 0 on and ascending [s]"
            )
        set_arrays(self, points=points, times=times)

    @property
    def duration(self) -> float:
        """When the last point is reached [s]."""
        return float(self.times[-1])

    def _states(self, t: np.ndarray) -> State:
        q, dq, ddq = (term @ self.points for term in spline_terms(t, self.times))
        return q, dq, ddq

    def _jerk(self, t: np.ndarray) -> np.ndarray:
        return np.asarray(spline_jerk(t, self.times) @ self.points)
