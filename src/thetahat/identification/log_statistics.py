"""What a log says about its rows: how many are independent, which speeds and torques they reach.

Fits, cross-validation and decisions count rows by these numbers, so that they share one currency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.model.robot import Robot

PER_CYCLE = 2.0  # independent rows per cycle of a low-pass, at most


@dataclass(frozen=True, eq=False)
class LogStatistics:
    """Statistics of the rows that are fitted."""

    independent: np.ndarray  # (nv,) share of each joint's rows that count as independent
    slowest: np.ndarray  # (motors,) [rad/s or m/s] of the rows in motion
    fastest: np.ndarray  # (motors,) [rad/s or m/s]
    torque: np.ndarray  # (nv,) [N·m or N] largest
    period: float | None = None  # [s] between rows

    @staticmethod
    def by_share(robot: Robot, share: float, period: float | None) -> LogStatistics:
        """Return the statistics where no more is known than a share of all rows."""
        motors = len(robot.drive.viscous)
        none = np.zeros(motors)
        return LogStatistics(np.full(robot.nv, share), none, none, np.zeros(robot.nv), period)

    @property
    def share(self) -> float:
        """Share of all rows that count in a fit: the median over the joints with torques.

        One for all joints: how correlated a single joint's residuals are is known too poorly to
        weigh joints by it beside their noise.
        """
        seen = self.torque > 0.0
        return float(np.median(self.independent[seen] if np.any(seen) else self.independent))

    def at(self, period: float | None) -> LogStatistics:
        """Return the statistics of the same log with rows this far apart [s]."""
        if not period or not self.period:
            return self
        share = np.minimum(self.independent * (period / self.period), 1.0)
        return replace(self, independent=share, period=period)


def log_statistics(
    robot: Robot, samples: Samples, *, independent: np.ndarray | None = None
) -> LogStatistics:
    """Return the statistics of samples.

    independent: share of each joint's rows, as a noise model has it; at most two rows per cycle of
        the low-pass count in any case, since filtered rows hold no more.
    """
    actuation, valid = robot.drive.actuation, samples.valid
    speed = np.abs(
        samples.dq
        if actuation is None
        else actuation.motor_rates(samples.dq, samples.ddq, q=samples.q)[0]
    )
    moving = valid if actuation is None else (valid @ actuation.touches().astype(float)) > 0.0
    moving = moving & (speed > 0.0)
    seen = np.any(moving, axis=0)
    slowest = np.min(speed, axis=0, where=moving, initial=np.inf)
    share = np.full(robot.nv, filtered_share(samples))
    return LogStatistics(
        independent=share if independent is None else np.minimum(independent, share),
        slowest=np.where(seen, slowest, 0.0),
        fastest=np.max(speed, axis=0, where=moving, initial=0.0),
        torque=np.max(np.abs(samples.tau), axis=0, where=valid, initial=0.0),
        period=time_between_rows(samples),
    )


def filtered_share(samples: Samples) -> float:
    """Return the share of rows that can be independent behind the low-pass of their torque."""
    period = time_between_rows(samples)
    cutoff = samples.provenance.get("settings", {}).get("torque_cutoff") or samples.cutoff
    return min(1.0, PER_CYCLE * float(cutoff) * period) if cutoff and period else 1.0


def time_between_rows(samples: Samples) -> float | None:
    """Return the time between rows [s]: the one all runs share, or the median."""
    return samples.time_step
