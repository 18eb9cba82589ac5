"""`tune`: a log and a robot in, and out come the low-pass, the friction and the prior that predict
best inside the rows that are fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thetahat.data.cutoff import MOST
from thetahat.data.prepare import Settings, choose
from thetahat.data.resample import mean_period
from thetahat.data.samples import Samples
from thetahat.data.subsample import subsample
from thetahat.data.types import LogLike
from thetahat.errors import NotIdentifiable
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.tuning.model_selection import METRIC, search
from thetahat.model.robot import Robot

OTHERS = (0.5, 0.7, 1.0, 1.4, 2.0)  # times the low-pass that the spectra suggest
SHARE = 0.2  # of a cycle of the torque's low-pass: no delay longer than that is looked for
USUAL = 1e-2  # weight of the prior where nothing could be chosen
TERMS = {"viscous": True, "coulomb": True, "offset": True}


@dataclass(frozen=True, eq=False)
class Tuned:
    """What was chosen: hand `settings` to `prepare`, `robot` to `information`, `estimator()` to
    `identify`.
    """

    settings: Settings
    robot: Robot  # with the columns to identify
    weight: float  # of the prior
    metric: str
    reasons: tuple[str, ...] = ()  # a sentence per choice
    rms: np.ndarray | None = (
        None  # (nv,) of stretches that were left out, predicted by what was chosen [N·m or N]
    )

    def estimator(self, prior: np.ndarray | Robot | None = None, **more: Any) -> Consistent:
        """Physically consistent, with the prior as strong as it was chosen; `more` as `Consistent`
        takes it.
        """
        return Consistent(prior=prior, weight=self.weight, metric=self.metric, **more)

    def __str__(self) -> str:
        return "\n".join(self.reasons)


def tune(
    log: LogLike,
    robot: Robot,
    *,
    fitted: Robot | None = None,
    narrowed: Callable[[Samples], Samples] = lambda samples: samples,
    span: tuple[int, int] | None = None,
    cutoff: float | None = None,
    score_cutoff: float | None = None,
    min_speed: float | Sequence[float] | None = None,
    prior: np.ndarray | Robot | None = None,
    friction: bool = True,
    by_load: bool = False,
    delay: bool = True,
    weight: float | None = None,
    metric: str | None = None,
    weights: str | None = "iterated",
    tell: Callable[[str], None] = lambda what: None,
) -> Tuned:
    """Choose what is not given, from the rows of `span` alone; of a long log, from 200,000 rows
    spread over them.

    Args:
        log: as `read_log` returns it.
        robot: whose log it is.
        fitted: the robot with the drive terms to identify, where joints are locked or motors
            mapped; by default the robot without what its file states of friction, and with viscous,
            Coulomb and offset to identify unless it names its terms itself.
        narrowed: makes samples of the robot samples of `fitted`.
        span: first and stop row to fit.
        cutoff: of the motion's low-pass [Hz]; None: chosen.
        score_cutoff: of the torque that is to be predicted [Hz]; by default the low-pass that the
            motion's spectra suggest.
        min_speed: below which a joint stands still; None: chosen.
        prior: as `Consistent` takes it; by default the robot's own values, and no friction.
        friction: whether to look for laws and further terms of friction. by_load: also for friction
            that grows with the load, which predicts, but which neither plants nor adaptive control
            know.
        delay: whether a delay between motion and torque is looked for.
        weight: of the prior; None: chosen. metric: of the prior; None: entropic.
        weights: of the joints' rows.
        tell: called with what is being chosen.

    """
    settings = choose(log, robot, cutoff=cutoff, min_speed=min_speed, span=span)
    if fitted is None:
        fitted = robot if robot.drive.identified else robot.without_drive().with_drive(**TERMS)
    if prior is None:
        prior = robot.theta if robot.theta.shape == fitted.theta.shape else None
    torque = score_cutoff or settings.cutoff
    settings = replace(settings, torque_cutoff=torque if torque != settings.cutoff else None)
    source = subsample(log, robot, span=span)
    cutoffs = _cutoffs(log, settings.cutoff, torque) if cutoff is None else [cutoff]

    def prepared(value: float | None, delay: float) -> Samples:
        return narrowed(
            source.prepared(replace(settings, cutoff=value, torque_cutoff=torque, delay=delay))
        )

    metric = metric or METRIC
    try:
        found = search(
            prepared,
            fitted,
            cutoffs=cutoffs,
            reach=SHARE / torque if delay else 0.0,
            prior=prior,
            friction=friction,
            by_load=by_load,
            weight=weight,
            metric=metric,
            weights=weights,
            tell=tell,
        )
    except NotIdentifiable as error:
        return Tuned(
            settings,
            fitted,
            USUAL if weight is None else weight,
            metric,
            (f"nothing was chosen: {error}",),
        )
    settings = replace(
        settings,
        cutoff=found.cutoff,
        torque_cutoff=torque if torque != found.cutoff else None,
        delay=found.delay,
    )
    return Tuned(settings, found.robot, found.weight, found.metric, found.reasons, found.rms)


def tune_samples(
    samples: Samples,
    settings: Settings,
    fitted: Robot,
    prior: np.ndarray | None,
    options: Mapping[str, Any],
    tell: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Choose friction model and prior weight for samples that are prepared already."""
    metric, weight = options["metric"] or METRIC, options["weight"]
    try:
        found = search(
            lambda cutoff, delay: samples,
            fitted,
            prior=prior,
            by_load=options["by_load"],
            weight=weight,
            metric=metric,
            weights=options["weights"],
            tell=tell,
        )
    except NotIdentifiable as error:
        weight = USUAL if weight is None else weight
        return Tuned(settings, fitted, weight, metric, (f"nothing was chosen: {error}",))
    return Tuned(settings, found.robot, found.weight, found.metric, found.reasons, found.rms)


def _cutoffs(log: LogLike, suggested: float, torque: float) -> list[float]:
    """The torque's own low-pass, the one that the spectra suggest, and others around that, as far
    as the sampling rate allows.
    """
    highest = MOST / max(mean_period(run) for run in log.runs)
    return list(
        dict.fromkeys(
            value
            for value in (torque, *(factor * suggested for factor in OTHERS))
            if value <= highest
        )
    ) or [suggested]
