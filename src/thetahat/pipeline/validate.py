"""`validate`: how well a robot predicts the torques of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from thetahat.data.joint_selection import (
    JointSelection,
    TorqueCounter,
    highest_cutoff,
    require_torque,
    selected_dofs,
)
from thetahat.data.log import Log
from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.engine.local import LocalEngine
from thetahat.engine.protocol import NoProgress, Progress, Rows
from thetahat.errors import UsageError
from thetahat.identification import scores
from thetahat.identification.motion_rollout import TorqueWindows, torque_rollout
from thetahat.identification.read_estimate import apply_estimate
from thetahat.identification.rollout_errors import RolloutErrors
from thetahat.identification.scores import Validation
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.pipeline.dataset import LogInput, read_logs
from thetahat.pipeline.settings import IdentifySettings


def validate(
    robot: Robot,
    logs: LogInput | Samples | Iterable[Samples],
    nominal: Robot | None = None,
    *,
    beside: Mapping[str, Robot] | None = None,
    settings: IdentifySettings | None = None,
) -> Validation:
    """Score a robot on held-out data: R² and RMS per joint of the torques it predicts.

    Args:
        robot: the robot to score, often ``robot.with_parameters(estimate)``.
        logs: samples (scored as they are), or logs as `identify` takes them, which are filtered.
        nominal: a robot scored on the same rows, for comparison.
        beside: other robots scored on the same rows, by name; of samples only.
        settings: how logs are read and filtered (cutoff, score_cutoff, min_speed, joints, columns).

    """
    if _is_samples(logs):
        return scores.validate(robot, logs, nominal, beside=beside)
    if beside:
        raise UsageError("beside is for samples; prepare the log, and validate its samples")
    return score_logs(robot, logs, nominal, settings=settings or IdentifySettings()).test


def _is_samples(logs: Any) -> bool:
    if isinstance(logs, Samples):
        return True
    if isinstance(logs, list | tuple):
        return bool(logs) and all(isinstance(each, Samples) for each in logs)
    return hasattr(logs, "__next__")  # a stream of samples


@dataclass(frozen=True, eq=False)
class LogScores:
    """Scores of a robot on a log, and how its rows were filtered."""

    test: Validation  # torques behind the low-pass
    raw: Validation  # torques as logged
    log: Log
    settings: Settings
    rollout: RolloutErrors | None = None  # simulated motion, where it was asked for


def score_logs(
    robot: Robot,
    logs: LogInput,
    nominal: Robot | None = None,
    *,
    settings: IdentifySettings,
    estimate: dict[str, Any] | None = None,
    rollout: bool = False,
    progress: Progress | None = None,
) -> LogScores:
    """Score a robot, with the values of an estimate where one is given, on logs.

    estimate: data of an estimate.json; logs are then filtered as they were for its fit. rollout:
    simulate the motion, too.
    """
    progress = progress or NoProgress()
    engine = LocalEngine(progress)
    progress.stage("reading the log")
    log = require_torque(read_logs(robot, logs, settings, engine), "score on")
    model = _scored_model(robot, log, estimate)
    if nominal is not None:
        nominal = lock(nominal, [name for name in log.locked if name in nominal.joint_names])
        if nominal.joint_names != model.joint_names:
            raise UsageError(
                f"--against {nominal.name} has other joints than {robot.name}; give a variant of"
                " the same robot"
            )
    fitted = {} if estimate is None else (estimate.get("provenance") or {}).get("settings", {})
    highest, cutoff = highest_cutoff(log), settings.cutoff
    if cutoff is None and fitted.get("cutoff") and fitted["cutoff"] < highest:
        cutoff = fitted["cutoff"]
    progress.stage("choosing the low-pass")
    filtering = engine.choose_filter(
        log, robot, cutoff=cutoff, min_speed=settings.min_speed, span=None
    )
    score_cutoff = settings.score_cutoff
    if fitted:
        filtering = replace(filtering, delay=fitted.get("delay") or 0.0)
        own = fitted.get("torque_cutoff") or filtering.cutoff  # as held-out rows were scored
        if score_cutoff is None and cutoff == fitted.get("cutoff") and own < highest:
            score_cutoff = own
    joints = JointSelection(robot, tuple(log.locked), selected_dofs(model, settings.joints))

    def rows(torque_cutoff: float | None) -> Rows:
        return Rows(log, filtering.scored(torque_cutoff), None, joints)

    counter, windows = TorqueCounter(model.nv, joints.dofs), TorqueWindows(model)

    def watch(samples: Samples) -> None:
        counter.add(samples)
        if rollout:
            windows.add(samples)

    test = engine.score(rows(score_cutoff), model, nominal=nominal, watch=watch)
    counter.result().require_rows(model)
    raw = engine.score(rows(highest), model, nominal=nominal)
    simulated = torque_rollout(model, windows.stretches, nominal) if rollout else None
    return LogScores(test, raw, log, filtering, simulated)


def _scored_model(robot: Robot, log: Log, estimate: dict[str, Any] | None) -> Robot:
    """Return the robot to score, joints that the log does not measure locked."""
    model = robot if estimate is None else apply_estimate(estimate, robot, where="--estimate")
    unknown = [
        name
        for name in robot.joint_names
        if name not in model.joint_names and name not in log.locked
    ]
    if unknown:
        raise UsageError(
            f"the log moves {', '.join(unknown)}, which the estimate holds still; score it on a"
            " log of the joints it was fitted to"
        )
    unmeasured = [name for name in model.joint_names if name in log.locked]
    return lock(model, unmeasured) if unmeasured else model
