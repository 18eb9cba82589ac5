"""The data of an identification: robot, logs, and which of their rows are fitted and scored."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from thetahat import robots
from thetahat.data.held_poses import HeldPoses, held_poses
from thetahat.data.joint_selection import JointSelection, require_torque, selected_dofs
from thetahat.data.log import Log, read_files
from thetahat.data.memory_log import log_from_table
from thetahat.data.reference_motion import ReferenceMotion
from thetahat.data.samples import Samples
from thetahat.data.samples_log import SamplesLog, samples_log
from thetahat.data.types import Finding
from thetahat.engine.local import LocalEngine
from thetahat.engine.multi_log import Span
from thetahat.engine.protocol import Engine
from thetahat.errors import (
    MalformedInput,
    NotIdentifiable,
    RobotWarning,
    StorageError,
    UsageError,
    known,
)
from thetahat.identification.consistency.constraints import Bounds, Constraints, Tie
from thetahat.identification.consistency.plausibility import Reference, with_plausible_bounds
from thetahat.identification.parameter_columns import prior_vector
from thetahat.model.floating_base import floating_joint, ground_of
from thetahat.model.friction_terms import FrictionDirection
from thetahat.model.io.actuation_csv import with_map
from thetahat.model.io.link_shapes import link_shapes
from thetahat.model.io.load import load
from thetahat.model.link_geometry import link_regions
from thetahat.model.lock_joints import kept_positions, lock
from thetahat.model.placeholder_inertia import placeholder_reason
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import sensor_links, with_wrench_sensors
from thetahat.pipeline import body_settings
from thetahat.pipeline.ground_audit import check_ground
from thetahat.pipeline.logged_sensors import log_names, with_logged_sensors
from thetahat.pipeline.settings import IdentifySettings
from thetahat.pipeline.solvable import solvable

# [kg/m³] mass over region, the median of 1,031 links of public robots
USUAL_DENSITY = 300.0
# A path, several paths, a log, samples, a pandas or polars frame, or arrays by column name.
LogInput = Any


@dataclass(frozen=True, eq=False)
class Dataset:
    """A robot, the log it is fitted to, and what it is scored on."""

    robot: Robot  # all joints, as its file states them
    log: Log
    test_log: Log | None
    settings: IdentifySettings
    ground: tuple[Finding, ...] = ()  # about what a floating robot stands on

    @property
    def logs(self) -> list[Log]:
        """The log that is fitted and, where there is one, the test log."""
        return [self.log] if self.test_log is None else [self.log, self.test_log]

    @cached_property
    def nominal(self) -> Robot:
        """The robot as its file states it, joints that the log does not measure locked."""
        return lock(self.robot, self.log.locked)

    @cached_property
    def joints(self) -> JointSelection:
        """The joints that the log measures, and those whose torques count."""
        dofs = selected_dofs(self.nominal, self.settings.joints)
        if dofs is None and ground_of(self.nominal) is not None:
            dofs = self._with_torque()
        return JointSelection(self.robot, tuple(self.log.locked), dofs)

    def _with_torque(self) -> tuple[int, ...] | None:
        """Degrees of freedom of a floating robot whose torques are logged, beside its base's, which
        are always known; None: all.
        """
        silent = {mask.joint for mask in self.log.masks if mask.reason == "no torque column"}
        _, kept = kept_positions(self.robot, self.log.locked)
        dofs = tuple(at for at, v in enumerate(kept) if v not in silent)
        return None if len(dofs) == len(kept) else dofs

    @cached_property
    def fitted(self) -> Robot:
        """The robot with the columns to identify.

        Drive terms that are not identified are not in the model, so the file's values do not count.
        """
        settings, robot = self.settings, self.nominal.without_drive()
        if settings.actuation is not None:
            path = Path(settings.actuation)
            if not path.is_file():
                raise StorageError(f"--actuation {str(path)!r} is not a file; check the path")
            robot = with_map(robot, path, whole=self.robot, locked=self.log.locked)
        terms = {term: term in settings.friction for term in ("viscous", "coulomb", "offset")}
        terms["offset"] |= bool(sensor_links(robot))  # the bias of a sensor is one
        robot = robot.with_drive(**terms, armature=settings.armature is not False)
        if settings.static:  # held poses: friction acts against the last motion
            dry = FrictionDirection.plain(robot.nv)
            robot = replace(robot, drive=robot.drive.with_dry(dry))
        return robot

    @cached_property
    def train_rows(self) -> tuple[int, int]:
        """Rows to fit: split off before anything is filtered."""
        rows, share = self.log.rows, self.settings.held_out
        if self.test_log is not None or share == 0.0:
            return 0, rows
        cut = round((1.0 - share) * rows)
        if not 0 < cut < rows:
            raise NotIdentifiable(
                f"{rows} rows cannot be split into a part to fit and a part of {share:g} to hold"
                " out; record longer"
            )
        return 0, cut

    @cached_property
    def reference_motion(self) -> ReferenceMotion | None:
        """The motion of instruments: a file's, or the commanded one; None where there is none."""
        settings, robot = self.settings, self.robot
        if settings.instruments is False or isinstance(self.log, SamplesLog):
            return None
        if settings.reference is not None:
            log = read_files(os.fspath(settings.reference), robot, settings.reading)
            if set(log.locked) != set(self.log.locked):
                only = sorted(set(log.locked) ^ set(self.log.locked))
                raise MalformedInput(
                    f"--reference {settings.reference} and the log do not have the same joints"
                    f" ({known(only)} in one alone); give the motion of the same joints"
                )
            name = f"the motion of {Path(settings.reference).name}"
            return ReferenceMotion(name, log, robot, same_rows=False)
        commanded = self.log.commanded(settings.reading)
        if commanded is None:
            return None
        return ReferenceMotion("the commanded motion", commanded, robot, same_rows=True)

    @property
    def test_rows(self) -> Span:
        """Rows of the same log that are held out; None where there are none, or a test log is."""
        stop = self.train_rows[1]
        return None if stop == self.log.rows else (stop, self.log.rows)

    @cached_property
    def prior(self) -> Robot:
        """The robot whose values are the prior, made physical where the method needs it.

        Of a robot without any mass, every body fills its region as links do on average.
        """
        robot = prior_robot(self.nominal, self.log.locked, self.settings)
        if not self.settings.consistent or robot.mass > 0.0:
            return robot
        warnings.warn(
            f"no body of {robot.name!r} has mass; the prior fills their regions with"
            f" {USUAL_DENSITY:g} kg/m³, and its weight is small",
            RobotWarning,
            stacklevel=2,
        )
        regions = link_regions(robot, link_shapes(self.nominal).points, placeholder=True)
        return robot.with_parameters(
            np.concatenate([region.filled(USUAL_DENSITY) for region in regions])
        )

    @cached_property
    def reference(self) -> Reference:
        """Masses and regions that the bodies are compared with: the prior's, where one is given."""
        robot = self.nominal if self.settings.prior is None else self.prior
        with solvable(robot, self.log):
            reason = placeholder_reason(robot)
            shapes = link_shapes(self.nominal)
            regions = link_regions(robot, shapes.points, placeholder=reason is not None)
        return Reference(robot, regions, reason, shapes.notes)

    @cached_property
    def constraints(self) -> Constraints:
        """What is stated of links, and what makes bodies plausible."""
        settings = self.settings
        limits = body_settings.link_limits(settings.bounds)
        stated = Constraints(
            bounds={name: Bounds(*each) for name, each in limits.items()},
            total_mass=settings.total_mass,
            frozen=settings.frozen,
            tied=tuple(Tie(*body_settings.pair(each)) for each in settings.tied),
        )
        if settings.plausible is None:
            return stated
        return with_plausible_bounds(stated, self.reference, settings.plausible)

    def prior_of(self, fitted: Robot) -> np.ndarray:
        """Return the prior's values in the columns of a fitted robot."""
        return prior_vector(self.prior, fitted)


def prior_robot(nominal: Robot, locked: Sequence[str], settings: IdentifySettings) -> Robot:
    """Return the robot whose values are the prior, made physical where the method needs it."""
    robot, given = nominal, settings.prior
    if given is not None:
        floating = floating_joint(nominal) is not None
        robot = load_robot(given, None, floating_base=floating)
        robot = with_wrench_sensors(robot, sensor_links(nominal))
        robot = lock(robot, locked)
        if robot.joint_names != nominal.joint_names or robot.body_names != nominal.body_names:
            ours = set(nominal.joint_names + nominal.body_names)
            theirs = set(robot.joint_names + robot.body_names)
            differ = known(sorted(ours ^ theirs)) if ours != theirs else "their order"
            name = robot.name if isinstance(given, Robot) else Path(given).name
            raise UsageError(
                f"--prior {name} is another robot: joints or bodies differ ({differ}); give a"
                " variant of the same robot"
            )
    unphysical = [
        name for name, body in zip(robot.body_names, robot.consistency, strict=True) if not body
    ]
    if unphysical and settings.consistent:
        warnings.warn(
            f"the prior's {known(unphysical)} cannot be rigid bodies; the nearest physical ones"
            " take their place",
            RobotWarning,
            stacklevel=2,
        )
        robot = robot.projected()
    return robot


# -- reading ---------------------------------------------------------------------------------------


def load_robot(
    robot: Robot | str | os.PathLike[str],
    gravity: tuple[float, float, float] | None,
    *,
    floating_base: bool = False,
) -> Robot:
    """Return the robot of a path, or the given one, with this gravity where one is given."""
    if isinstance(robot, Robot):
        if floating_base and floating_joint(robot) is None:
            raise UsageError(
                f"robot {robot.name!r} has a fixed base; load it with"
                " thetahat.load(path, floating_base=True)"
            )
        return robot if gravity is None else robot.with_gravity(np.array(gravity))
    if isinstance(robot, str | os.PathLike):
        path = robots.find(os.fspath(robot))
        loaded = load(path, gravity=gravity)
        if not floating_base or floating_joint(loaded) is not None:  # the file may free it itself
            return loaded
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RobotWarning)  # given before
            return load(path, gravity=gravity, floating_base=True)
    raise UsageError(f"robot is {type(robot).__name__}; give a robot file or a Robot")


def read_dataset(
    robot: Robot, logs: LogInput, test: LogInput, settings: IdentifySettings, engine: Engine
) -> Dataset:
    """Read the logs, and check that they can be fitted and scored."""
    if test is not None and settings.holdout is not None:
        raise UsageError(
            "--test and --holdout are both given; score on other logs or on a part of this one"
        )
    if isinstance(logs, Samples) and test is None and settings.held_out:
        logs, test = logs.split(1.0 - settings.held_out)
    if settings.static:
        return static_dataset(robot, logs, test, settings, engine)
    robot = with_logged_sensors(robot, logs, settings)
    log = require_torque(read_logs(robot, logs, settings, engine), "identify from")
    ground = _ground_findings(robot, log, logs, settings)
    if test is None:
        return Dataset(robot, log, None, settings, ground)
    test_log = read_logs(robot, test, settings, engine)
    fitted = {source.sha256: source.path for source in log.sources}
    for source in test_log.sources:
        if source.sha256 in fitted:
            raise UsageError(
                f"--test {source.path} has the same content as {fitted[source.sha256]}, which is"
                " fitted; hold out another log"
            )
    if set(test_log.locked) != set(log.locked):
        only = sorted(set(test_log.locked) ^ set(log.locked))
        raise MalformedInput(
            "the test log and the fitted one do not measure the same joints"
            f" ({known(only)} in one alone); give logs with the same columns"
        )
    return Dataset(robot, log, require_torque(test_log, "score on"), settings, ground)


def _ground_findings(
    robot: Robot, log: Log, logs: LogInput, settings: IdentifySettings
) -> tuple[Finding, ...]:
    """Return what seems wrong about the ground of a floating robot."""
    if ground_of(robot) is None or isinstance(logs, Log | Samples):
        return ()
    frame = "link" if settings.wrench_frame == "world" else "world"

    def other_frame() -> Log | None:
        return read_logs(robot, logs, replace(settings, wrench_frame=frame), LocalEngine())

    file = Path(log.sources[0].path).name if log_names(logs) else "the table"
    return check_ground(robot, log, file, frame=frame, other_frame=other_frame)


def static_dataset(
    robot: Robot, logs: LogInput, test: LogInput, settings: IdentifySettings, engine: Engine
) -> Dataset:
    """Return the poses that are held in the logs; every third is held out where no test log is
    given.
    """
    log = require_torque(read_logs(robot, logs, settings, engine), "identify from")
    poses = held_poses(log.read(), robot, Path(log.sources[0].path).name)
    both = np.any(poses.approach > 0.0, axis=0) & np.any(poses.approach < 0.0, axis=0)
    settings = replace(
        settings,
        friction=("coulomb", "offset") if np.any(both) else ("offset",),
        armature=False,
        tune=False,
        instruments=False,
        springs=False,
    )
    if test is not None:
        other = require_torque(read_logs(robot, test, settings, engine), "score on")
        scored = held_poses(other.read(), robot, Path(other.sources[0].path).name)
        return Dataset(robot, _posed(poses, log, robot), _posed(scored, other, robot), settings)
    if not settings.held_out:
        return Dataset(robot, _posed(poses, log, robot), None, settings)
    out = np.zeros(len(poses), dtype=bool)
    out[2 :: max(2, round(1.0 / settings.held_out))] = True
    fitted, held = (_posed(poses.part(rows), log, robot) for rows in (~out, out))
    return Dataset(robot, fitted, held, settings)


def _posed(poses: HeldPoses, log: Log, robot: Robot) -> Log:
    """A log of held poses, with the name and findings of the one they are from."""
    posed = samples_log(poses.samples(robot), robot)
    return replace(posed, sources=log.sources, findings=log.findings, locked=log.locked)


def read_logs(robot: Robot, logs: LogInput, settings: IdentifySettings, engine: Engine) -> Log:
    """Return the log of whatever was given."""
    names = log_names(logs)
    if names is not None:
        return engine.read(names, robot, settings.reading)
    if settings.gains is not None and isinstance(logs, Log | Samples):
        raise UsageError(
            f"gains are applied where a log is read, and this is a {type(logs).__name__} that was"
            " read before; give its path, or multiply its torques yourself"
        )
    if isinstance(logs, Log):
        return logs
    if isinstance(logs, Samples):
        return samples_log(logs, robot)
    if isinstance(logs, Mapping) or hasattr(logs, "columns"):
        return log_from_table(
            logs,
            robot,
            columns=settings.columns,
            units=settings.reading.units,
            skip_bad_rows=settings.skip_bad_rows,
            keep=settings.keep,
        )
    raise UsageError(
        f"logs is {type(logs).__name__}; give a path or several, a Log, Samples, a pandas or polars"
        " frame, or a mapping of arrays by column name"
    )
