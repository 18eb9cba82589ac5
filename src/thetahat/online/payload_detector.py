"""Finds a payload that is too light for any one joint's residual to tell.

A mass m on the payload link adds m·g_j(q) to the torque of every joint, g_j the column of its
regressor. So the residuals r of the model in use are pooled over joints and a quarter of a second,

    m̂ = Σ g_j r_j / σ_j² / Σ g_j² / σ_j²,   σ_j: usual size of joint j's residual,

and m̂ is compared with its own mean and spread while the gate was open: the null hypothesis is what
the model's errors look like on this motion. A payload is found where m̂ is seven spreads away for an
eighth of a second; more where fewer joints tell than usual.
"""

from __future__ import annotations

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.identification.payload.payload_body import typical_mass
from thetahat.identification.payload.payload_place import payload_place
from thetahat.model.parameters import M
from thetahat.model.robot import Robot
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.predict import Model

POOL = 0.12  # [s] in which residuals fade
REMEMBER = 30.0  # [s] in which what is usual fades
TIMES_SPREAD = 7.0
CLIP = 3.0  # spreads that one value may move what is usual
KNOWN = 100  # values, from which on anything is said
LASTING = 4  # values in a row
LEAST_SPREAD = 1e-3  # of a body's mass


class PayloadDetector:
    """Push every score of the identifier; `beyond` says whether a mass was taken up or let go."""

    def __init__(self, robot: Robot, link: str) -> None:
        self._robot, self._place = robot, payload_place(robot, link, None)
        self._least = LEAST_SPREAD * typical_mass(robot)
        self.link = link
        self.reset()

    def reset(self) -> None:
        """Begin anew, with another robot."""
        self._t = np.nan
        self._sums = np.zeros(2)
        self._count, self._row = 0, 0
        self._mean, self._square, self._usual = 0.0, 0.0, 0.0
        self.mass = 0.0  # [kg] m̂, beside its usual mean

    @property
    def spread(self) -> float:
        """[kg] of m̂ while nothing was held."""
        return max(float(np.sqrt(self._square)), self._least)

    @property
    def beyond(self) -> bool:
        """Whether something is held, or gone."""
        return self._row >= LASTING

    def push(
        self,
        t: float,
        sample: FilteredSample,
        model: Model,
        scale: np.ndarray,
        *,
        usable: np.ndarray,
        learn: bool,
    ) -> bool:
        """Take a filtered sample; return whether it is the one that tells of a change. scale: (nv,)
        of residuals, inf: not counted. learn: whether the model is trusted now.
        """
        q, dq, ddq, tau = sample
        column = rigid_body.regressor(self._robot, q[0], dq[0], ddq[0])[:, self._place.span]
        g = (column @ self._place.to_body)[:, M] / scale
        r = (tau - model.torque(q, dq, ddq))[0] / scale
        g, r = np.where(usable, g, 0.0), np.where(usable, r, 0.0)
        dt, self._t = t - self._t, t
        keep = float(np.exp(-dt / POOL)) if dt > 0.0 else 0.0
        self._sums = keep * self._sums + (g @ r, g @ g)
        if not self._sums[1] > 0.0:
            return False
        mass = float(self._sums[0] / self._sums[1])
        self.mass = mass - self._mean
        fewer = np.sqrt(max(1.0, self._usual / float(self._sums[1])))
        far = abs(self.mass) > TIMES_SPREAD * fewer * self.spread and self._count >= KNOWN
        was, self._row = self.beyond, self._row + 1 if far else 0
        if learn and not far:
            self._learn(dt)
        return self.beyond and not was

    def _learn(self, dt: float) -> None:
        self._count += 1
        share = max(1.0 / self._count, min(dt / REMEMBER, 1.0) if dt > 0.0 else 0.0)
        most = CLIP * self.spread if self._count >= KNOWN else np.inf
        off = float(np.clip(self.mass, -most, most))
        self._usual += share * (float(self._sums[1]) - self._usual)
        self._mean += share * off
        self._square += share * (off * off - self._square)
