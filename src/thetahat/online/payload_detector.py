"""Finds a payload that is too light for any one joint's residual to tell.

A body of mass m and centre c on the payload link adds G(q, q̇, q̈)·(m, m·c) to the torques; its own
inertia is small beside that. So the residuals of the model in use, averaged over a fifth of a
second, r̄, tell of a payload by the generalized likelihood ratio [Kay1998] against none,

    S = bᵀA⁻¹b,    A = Σ g_j g_jᵀ / V_j,    b = Σ g_j r̄_j / V_j,    g_j: row of G of joint j.

V_j is the mean square of r̄_j while the gate was open. That is what the model's errors, which hang
together over some tenths of a second, leave of an average; noise alone would leave less. Three
more things are no payload:

    slow joints          friction is up to a third more than sliding (Stribeck): near standstill
                         V_j is larger by that square.
    one joint's error    friction that differs from its model. A payload is felt by several joints:
                         the statistic is S without the joint that tells most.
    a new motion         the memory leaves some combinations of parameters open, and a motion that
                         needs them is predicted with a spread, E (RᵀR)⁻¹ Eᵀ, R the triangle of the
                         memory and E the rows of the sample. It joins V before anything is said.

A payload is found where the root of S stays for a tenth of a second beyond the level that is
exceeded once in eight hours while nothing happens (false_alarm_level.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.identification.payload.payload_body import HELD, typical_mass
from thetahat.identification.payload.payload_place import payload_place
from thetahat.model.parameters import FIRST_MOMENT, M
from thetahat.model.robot import Robot
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.false_alarm_level import FalseAlarmLevel
from thetahat.online.predict import Model
from thetahat.online.residual_monitor import Alarm

POOL = 0.2  # [s] of residuals that are averaged
LASTING = 0.1  # [s] beyond the level
# [s] after which a sample, or a model that was fitted to it, counts as one of before: if a payload
# was taken up, it was found by then
LATER = 1.0
REMEMBER = 30.0  # [s] in which V fades
CLIP = 9.0  # times V that one value may move it by
KNOWN = 50  # values of a joint, from which on it counts
# of a joint's usual error: no average counts as better than that
LEAST_ERROR = 0.01
MANY = 10.0  # bodies of the robot: a payload is not as heavy as so many of them, in units of 0.1 m
COLUMNS = (M, *FIRST_MOMENT)
SLOWLY = 5.0  # times the least speed of a moving joint: friction may still be beyond sliding
STRIBECK = 0.3  # of the dry friction, by which it is
EARLY = 1e-6  # [s]: stamps are rounded


class PayloadDetector:
    """Push every score of the identifier; `beyond` says whether a mass was taken up or let go.

    interval: [s] between two false alarms. min_speed: (nv,) from which joints move.
    """

    def __init__(self, robot: Robot, link: str, interval: float, min_speed: np.ndarray) -> None:
        self._robot, self._place = robot, payload_place(robot, link, None)
        size = MANY * typical_mass(robot) * np.array([1.0, HELD, HELD, HELD])
        self._prior = np.diag(size**-2.0)
        self._to_body = self._place.to_body[:, list(COLUMNS)]
        # of Gaussian errors: without the joint that tells most, S is less by its share at least
        freedom, share = min(len(COLUMNS), robot.nv), 1.0 - 1.0 / robot.nv
        self._level = FalseAlarmLevel(1, interval, freedom, share=max(share, 0.5))
        self.link, self._interval = link, interval
        self._slow = np.maximum(SLOWLY * min_speed, np.finfo(float).tiny)
        self.reset()

    def reset(self) -> None:
        """Begin anew, with another robot."""
        nv = self._robot.nv
        self._rows: deque[tuple[float, np.ndarray, np.ndarray]] = deque()
        self._values: deque[tuple[float, float]] = deque()
        self._waiting: deque[tuple[float, float, np.ndarray, np.ndarray, float, float]] = deque()
        self._models: deque[tuple[float, Model]] = deque()
        self._learned = False  # whether the model was trusted at the last sample
        self._known = np.zeros(nv, dtype=bool)  # the joints of which it knew anything
        self._usual, self._count = np.zeros(nv), np.zeros(nv, dtype=int)  # V
        self._floor = np.full(nv, np.finfo(float).tiny)  # of V
        self._friction = np.zeros(nv)
        self._information, self._tells = 0.0, 0.0  # of the mass alone; that of the last sample
        self._since = np.inf  # [s] from when on the statistic is beyond its level
        self._level.reset()
        self.beyond = False  # whether something is held, or gone
        self.mass, self.ratio = 0.0, 0.0  # [kg] that is told of, and the root of S
        self.joint = 0  # that tells most

    @property
    def suspects(self) -> bool:
        """Whether the last samples tell of a payload, be it for less than a tenth of a second."""
        return bool(self._since < np.inf)

    @property
    def level(self) -> float:
        """What the root of S stays below while nothing happens."""
        return float(self._level.level[0])

    @property
    def spread(self) -> float:
        """[kg] of the mass that errors feign while nothing is held."""
        return float(self._information**-0.5) if self._information > 0.0 else 0.0

    def pause(self) -> None:
        """The model in use is not trusted any more: the next one starts without it."""
        self._learned = False

    def alarm(self, t: float) -> Alarm:
        """The alarm that is due when `push` tells of a change."""
        sentence = (
            f"the model in use stopped explaining the torques at {t:.4g} s: together they tell of"
            f" {self.mass:+.2g} kg on {self.link!r}, {self.ratio:.1f} deviations from none, which"
            f" exceed {self.level:.1f} once in {self._interval / 3600.0:.3g} h"
        )
        joint = self._robot.velocity_names[self.joint]
        return Alarm(t, joint, self.mass, self.spread, sentence, together=True)

    def push(
        self,
        t: float,
        sample: FilteredSample,
        model: Model,
        scale: np.ndarray,
        spread: Callable[[np.ndarray], np.ndarray],
        *,
        usable: np.ndarray,
        learn: bool,
    ) -> bool:
        """Take a filtered sample; return whether it is the one that tells of a change.

        scale: (nv,) of residuals, inf: not counted. spread: covariance (nv, nv) of what the memory
        predicts for this sample, given the mean squares of averaged errors (nv,). learn: whether
        the model is trusted now.
        """
        q, dq, ddq, tau = sample
        known = np.isfinite(scale)
        usable = usable & known
        self._floor[usable] = (LEAST_ERROR * scale[usable]) ** 2
        earlier = self._earlier(t, model, known, learn=learn)
        residual = (tau - earlier.torque(q, dq, ddq))[0]
        self._friction = STRIBECK * earlier.dry() * np.exp(-((dq[0] / self._slow) ** 2))
        mean, counted, dt = self._average(t, residual, usable)
        told = counted & (self._count >= KNOWN)
        was = self.beyond
        self.ratio = self._ratio(sample, mean, told, spread) if np.any(told) else 0.0
        far = self.ratio > self.level and self._level.known
        self._since = min(self._since, t) if far else np.inf
        self.beyond = t - self._since >= LASTING - EARLY
        if far or not learn:
            self._waiting.clear()
        else:
            self._waiting.append((t, dt, mean, counted, self.ratio, self._tells))
            while self._waiting[0][0] <= t - LATER:
                self._learn(*self._waiting.popleft())
        return self.beyond and not was

    def _earlier(self, t: float, model: Model, known: np.ndarray, *, learn: bool) -> Model:
        """The model that was in use a second ago: it has not seen what is to be explained."""
        models = self._models
        if learn and not self._learned:
            models.clear()  # what was in use before the gate closed
        if np.any(known & ~self._known):
            models.clear()  # nothing was known of a joint that can be told now
            self._rows.clear()
            self._values.clear()
        self._learned, self._known = learn, known
        if learn and not (models and models[-1][1] is model):
            models.append((t, model))
        while len(models) > 1 and models[1][0] <= t - LATER:
            models.popleft()
        return models[0][1] if models else model

    def _average(
        self, t: float, residual: np.ndarray, usable: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """The mean residual of the last fifth of a second, whether half of it may be used, and the
        seconds since the sample before.
        """
        rows = self._rows
        dt = t - rows[-1][0] if rows else 0.0
        if not 0.0 <= dt <= POOL:
            rows.clear()
            self._values.clear()
            dt = 0.0
        rows.append((t, np.where(usable, residual, 0.0), usable.copy()))
        while rows[0][0] <= t - POOL:
            rows.popleft()
        valid = np.sum([each for _, _, each in rows], axis=0)
        mean = np.sum([each for _, each, _ in rows], axis=0) / np.maximum(valid, 1)
        return mean, 2 * valid > len(rows), dt

    def _ratio(
        self,
        sample: FilteredSample,
        mean: np.ndarray,
        told: np.ndarray,
        spread: Callable[[np.ndarray], np.ndarray],
    ) -> float:
        """The root of S, with the memory's spread where that decides."""
        q, dq, ddq, _ = sample
        Y = rigid_body.regressor(self._robot, q[0], dq[0], ddq[0])
        V = np.maximum(self._usual, self._floor) + self._friction**2
        g, r, usual = (Y[:, self._place.span] @ self._to_body)[told], mean[told], V[told]
        A = g[:, :, None] * g[:, None, :] / usual[:, None, None]
        b = g * (r / usual)[:, None]
        whole = np.sum(A, axis=0) + self._prior, np.sum(b, axis=0)
        ratio = _root(whole[0] - A, whole[1] - b)
        self._tells = float(A[:, 0, 0].sum())
        if ratio <= self.level:
            return ratio
        self.mass = float(np.linalg.solve(*whole)[0])
        self.joint = int(np.flatnonzero(told)[np.argmax(r**2 / usual)])
        wide = np.diag(usual) + spread(np.maximum(self._usual, self._floor))[np.ix_(told, told)]
        keep = ~np.eye(len(r), dtype=bool)  # all joints but one
        A, b = np.empty((len(r), 4, 4)), np.empty((len(r), 4))
        for j, others in enumerate(keep):
            weighted = np.linalg.solve(wide[np.ix_(others, others)], g[others])
            A[j], b[j] = g[others].T @ weighted + self._prior, r[others] @ weighted
        return min(ratio, _root(A, b))

    def _learn(
        self,
        t: float,
        dt: float,
        mean: np.ndarray,
        counted: np.ndarray,
        ratio: float,
        tells: float,
    ) -> None:
        """What residuals, and the statistic, look like while nothing happens."""
        most = min(dt / REMEMBER, 1.0)
        known = self._count >= KNOWN
        square = np.where(known, np.minimum(mean**2, CLIP * self._usual), mean**2)
        self._count += counted
        share = np.maximum(1.0 / np.maximum(self._count, 1), most)
        self._usual += np.where(counted, share * (square - self._usual), 0.0)
        if not np.any(known):
            return
        self._information += (most if self._information else 1.0) * (tells - self._information)
        self._values.append((t, ratio))
        while self._values[0][0] < t - LASTING:
            self._values.popleft()
        lasting = min(each for _, each in self._values)
        self._level.add(np.array([lasting]), dt)


def _root(A: np.ndarray, b: np.ndarray) -> float:
    """The least root of bᵀA⁻¹b, of several (n, 4, 4) and (n, 4)."""
    x = np.linalg.solve(A, b[:, :, None])[:, :, 0]
    return float(np.sqrt(max(np.min(np.sum(b * x, axis=1)), 0.0)))
