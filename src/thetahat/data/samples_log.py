"""A log of samples that are prepared already: used as they are, never filtered again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields

import numpy as np

from thetahat.data.log import Log
from thetahat.data.memory_log import log_from_arrays
from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.data.types import Source
from thetahat.errors import UsageError
from thetahat.model.robot import Robot

PERIOD = 1e-3  # [s] between samples that have no stamps


@dataclass(frozen=True, eq=False)
class SamplesLog(Log):
    """A log whose rows are samples."""

    samples: Samples = field(repr=False, kw_only=True)

    @property
    def settings(self) -> Settings:
        """How the samples were made, as far as they say."""
        period = self.samples.period or PERIOD
        return Settings(
            cutoff=self.samples.cutoff or 0.5 / period,
            min_speed=(0.0,) * self.samples.nv,
            reasoning="samples as given",
            form=self.samples.form.name,
        )


def samples_log(samples: Samples, robot: Robot) -> SamplesLog:
    """Return a log of samples of a robot."""
    if samples.nq != robot.nq or samples.nv != robot.nv:
        raise UsageError(
            f"the samples have {samples.nq} coordinates and {samples.nv} velocities, but robot"
            f" {robot.name!r} has {robot.nq} and {robot.nv}; prepare them with this robot"
        )
    rows = len(samples)
    t = np.arange(rows) * (samples.period or PERIOD)
    log = log_from_arrays(
        robot, t, samples.q, dq=samples.dq, ddq=samples.ddq, tau=samples.tau, name="samples"
    )
    digest = hashlib.sha256()
    for array in (samples.q, samples.dq, samples.ddq, samples.tau):
        digest.update(np.ascontiguousarray(array).data)
    given = {each.name: getattr(log, each.name) for each in fields(log)}
    given |= {
        "sources": (Source("samples", digest.hexdigest(), samples.tau.nbytes),),
        "findings": (),
        "masks": (),
    }
    return SamplesLog(**given, samples=samples)
