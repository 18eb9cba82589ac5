"""A small identification, from samples to everything a report takes, without files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import simulated_log

import thetahat as th
from thetahat import robots
from thetahat.data.samples import EDGE, STANDSTILL, Samples
from thetahat.identification.estimate_json import PLAIN, as_data
from thetahat.identification.verdict import with_verdict
from thetahat.model.robot import Robot
from thetahat.report.identification_report import sections
from thetahat.report.section import Section
from thetahat.report.trace_collector import Collector
from thetahat.report.traces import Traces

HOSTILE = (  # a name that wants to be more than text
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'`%{x}"
)


@dataclass(frozen=True, eq=False)
class Case:
    found: dict[str, Any]
    robot: Robot
    identified: Robot
    traces: Traces
    covariance: np.ndarray

    @property
    def sections(self) -> list[Section]:
        return sections(
            self.found,
            robot=self.robot,
            identified=self.identified,
            traces=self.traces,
            covariance=self.covariance,
        )


def samples(
    robot: Robot,
    *,
    seconds: float = 16.0,
    rate: float = 200.0,
    noise: float = 0.3,
    seed: int = 0,
    runs: int = 2,
) -> Samples:
    """Rows of a robot a fifth heavier than its file says, with friction; runs begin with rows of
    the filter's edge, slow rows are standstill.
    """
    t, q, dq, ddq = simulated_log.motion(robot.nv, seconds=seconds, rate=rate, seed=seed)
    tau = th.inverse_dynamics(robot.with_parameters(1.2 * robot.theta), q, dq, ddq)
    tau += noise * np.random.default_rng(seed + 1).normal(size=tau.shape)
    run = np.arange(len(t)) * runs // len(t)
    reason = np.where(np.abs(dq) < 0.05, STANDSTILL, 0).astype(np.uint8)
    begin = np.flatnonzero(np.diff(run, prepend=-1))
    for first in begin:
        reason[first : first + 20] = EDGE
    return Samples(
        q=q, dq=dq, ddq=ddq, tau=tau, t=t, run=run, reason=reason, period=1.0 / rate, cutoff=20.0
    )


def case(
    robot: Robot | None = None, *, held_out: bool = True, estimator: Any = None, **options: Any
) -> Case:
    """An identified robot and its report's input."""
    robot = th.load(robots.path("arm4")) if robot is None else robot
    whole = samples(robot, **options)
    train, test = whole.split(0.7) if held_out else (whole, None)
    fitted = robot.without_drive().with_drive(
        viscous=True, coulomb=True, offset=True, armature=False
    )
    info = th.information(fitted, train)
    estimate = th.solve(
        info, estimator or th.Consistent(prior=robot), samples=train if estimator is None else None
    )
    model = fitted.with_parameters(estimate)
    plain = fitted.with_parameters(th.solve(info, th.LeastSquares()))
    scores = (
        None if test is None else th.validate(model, test, nominal=robot, beside={PLAIN: plain})
    )
    collector = Collector(model, robot)
    for part, rows in (("train", train), ("test", test)):
        if rows is not None:
            collector.add(rows, part)
    settings = {
        "cutoff": 20.0,
        "cutoff_reason": "given",
        "armature": "left out as asked",
        "rows_fitted": [0, len(train)],
        "rows_held_out": None,
    }
    provenance = {
        "robot": robot.name,
        "robot_file": robots.__name__,
        "robot_sha256": "0" * 64,
        "logs": [],
        "version": th.__version__,
        "settings": settings,
    }
    found = as_data(
        estimate, rows=info.rows, robot=robot, test=scores, raw=scores, provenance=provenance
    )
    found |= {"locked": [], "dropped": train.dropped, "findings": [], "warnings": []}
    return Case(with_verdict(found), robot, model, collector.result(), estimate.covariance)


def hostile(folder: Path) -> Robot:
    """arm4 with a robot, a joint and a link that are called HOSTILE."""
    name = (
        HOSTILE.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
    )
    text = robots.path("arm4").read_text(encoding="utf-8")
    for old in ('"elbow"', '"forearm"', '"arm4"'):
        assert old in text
        text = text.replace(old, f'"{name}"')
    path = folder / "hostile.urdf"
    path.write_text(text, encoding="utf-8")
    return replace(th.load(path), name=HOSTILE)
