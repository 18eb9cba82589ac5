"""`payload`: logs with and without a payload → information → one joint fit → its ten numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.joint_selection import JointSelection, require_torque, selected_dofs
from thetahat.data.log import Log
from thetahat.data.prepare import Settings
from thetahat.data.types import Finding
from thetahat.engine.local import LocalEngine
from thetahat.engine.protocol import NoProgress, Progress, Rows
from thetahat.errors import MalformedInput, UsageError, known
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.joint_weights import Weights, weigh
from thetahat.identification.information import Information
from thetahat.identification.payload.drive_gains import HeldPayload, LoadedRun, fit_gains
from thetahat.identification.payload.payload_body import PayloadBox
from thetahat.identification.payload.payload_evidence import (
    QUIETEST,
    Run,
    coloured,
    known_rows,
    whitened,
)
from thetahat.identification.payload.payload_place import payload_place
from thetahat.identification.payload.payload_result import Payload
from thetahat.identification.payload.payload_runs import (
    Stacked,
    WhitenedRun,
    payload_of,
    scale_error,
)
from thetahat.identification.read_estimate import (
    base_covariance,
    fitted_robot,
    read_estimate,
    stated_sensors,
)
from thetahat.identification.submodel import view
from thetahat.identification.uncertainty.autocorrelation import whitened_noise
from thetahat.identification.verdict_reason import Fields
from thetahat.model.io.gains_json import DriveGain, read_gains
from thetahat.model.lock_joints import lock
from thetahat.model.placeholder_inertia import placeholder_reason
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import sensor_links
from thetahat.pipeline.dataset import Dataset, LogInput, load_robot, read_logs
from thetahat.pipeline.identification import Identification
from thetahat.pipeline.identify import settings_for, tune_dataset
from thetahat.pipeline.logged_sensors import with_common_sensors
from thetahat.pipeline.outputs import DRIVE
from thetahat.pipeline.payload_identification import (
    ANSWER,
    PAGE,
    JointResidual,
    PayloadIdentification,
    PayloadSource,
)
from thetahat.pipeline.payload_request import NamedRun, named_runs, payload_box
from thetahat.pipeline.settings import IdentifySettings
from thetahat.pipeline.solvable import solvable

FILES = (ANSWER, PAGE, DRIVE)  # that `save` writes
USUAL_ERROR = 0.1  # of torques whose scale nothing confirms, as those by motor currents are off


def payload(
    robot: Robot | str | os.PathLike[str],
    loaded: LogInput,
    *,
    link: str,
    without: LogInput = None,
    estimate: Identification | Estimate | str | os.PathLike[str] | None = None,
    known_mass: float | Mapping[str, float] | None = None,
    size: str | os.PathLike[str] | Sequence[float] | None = None,
    settings: IdentifySettings | None = None,
    progress: Progress | None = None,
) -> PayloadIdentification:
    """Identify what a link holds: mass, centre of mass and inertia, with standard deviations.

    This is all that ``thetahat payload`` does: same defaults, same answer.

    Args:
        robot: a URDF or MJCF file, the name of a robot that ships with thetahat, or a `Robot`.
        loaded: logs with the payload, as `identify` takes them, or an `Information` of them; of
            several payloads, logs by the payload's name.
        link: that holds the payload, in whose frame its numbers are.
        without: logs of the same robot without a payload; any motion.
        estimate: of the robot without a payload, instead of such logs: an estimate.json, or what
            `identify` returns.
        known_mass: [kg] of payloads that were weighed. The gain of each joint is identified then.
        size: of the box that holds the payload [m]: X, Y, Z on the link's frame, or a mesh file.
        settings: how logs are read and filtered, and which friction is modelled.
        progress: that is told what goes on.

    Example:
        >>> result = th.payload("panda.urdf", "box.csv", without="empty.csv", link="panda_link8")
        ... # doctest: +SKIP
        >>> print(result)  # doctest: +SKIP

    """
    settings = replace(settings or IdentifySettings(), holdout=0.0, report=False)
    whole = load_robot(robot, settings.gravity)
    payload_place(whole, link, None)  # refused before anything is read
    named, box = named_runs(loaded, known_mass), payload_box(size)
    _check_bare(without, estimate, named)
    if settings.actuation is not None and any(each.known_mass for each in named):
        raise UsageError(
            "--known-mass finds a gain per joint, and --actuation says that motors drive several;"
            " multiply the motors' currents by their gains yourself"
        )
    if estimate is None and not any(each.known_mass for each in named):
        given = [without, *(each.logs for each in named)]
        whole, settings = with_common_sensors(whole, given, link, settings)
    reader = _Reader(whole, settings, progress or NoProgress())
    bare = reader.bare(without) if estimate is None else reader.estimated(estimate)
    runs = [bare.run]
    runs += [reader.loaded(each, bare, k) for k, each in enumerate(named)]
    reader.progress.stage("solving")
    held = [HeldPayload(payload_place(bare.robot, link, None), each.known_mass) for each in named]
    # small matrices: threads woken for them cost a hundred times the work
    with f.blas_threads().limit(limits=1, user_api="blas"):
        return _solved(reader, bare, runs, held, named, box)


def _check_bare(without: LogInput, estimate: object, named: Sequence[NamedRun]) -> None:
    """Refuse a request in which the robot without payload is not stated once."""
    if without is None and estimate is None:
        raise UsageError(
            "no log without the payload is given; give one with --without LOG, or the estimate of"
            " the bare robot with --estimate FILE"
        )
    if without is not None and estimate is not None:
        raise UsageError(
            "--without and --estimate are both given; the robot without payload is one of them"
        )
    if estimate is not None and any(each.known_mass for each in named):
        raise UsageError(
            "--known-mass finds the drives' gains, and an estimate of the bare robot holds torques"
            " whose gains are fixed; give its log with --without LOG"
        )


@dataclass(frozen=True, eq=False)
class FoldedRun:
    """A run: what it says, its noise, and which payload was held in it."""

    whitened: Run
    payload: int | None
    information: Information | None  # None: what an estimate knows of the robot
    inflation: np.ndarray  # (nv,)
    log: Log | None = None


@dataclass(frozen=True, eq=False)
class _Bare:
    """The robot without a payload, and how its logs and the loaded ones are filtered."""

    robot: Robot  # with the columns that are fitted
    filtering: Settings | None
    locked: tuple[str, ...]
    run: FoldedRun
    chosen: tuple[str, ...] = ()  # sentences of the tuning


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads and folds the logs of one robot."""

    robot: Robot
    settings: IdentifySettings
    progress: Progress

    @property
    def engine(self) -> LocalEngine:
        return LocalEngine(self.progress)

    def bare(self, logs: LogInput) -> _Bare:
        """The robot's own logs: friction and low-pass are chosen from them, as in `identify`."""
        if isinstance(logs, Information):
            run = _folded_before(logs, None)
            return _Bare(logs.robot, None, (), run)
        self.progress.stage("reading the log without payload")
        log = require_torque(read_logs(self.robot, logs, self.settings, self.engine), "fit")
        dataset = Dataset(self.robot, log, None, self.settings)
        with solvable(dataset.nominal, log):
            tuned = tune_dataset(dataset, self.engine, self.progress)
        rows = Rows(log, tuned.settings, dataset.train_rows, dataset.joints)
        run = self._fold(rows, tuned.robot, None)
        information = run.information
        robot = tuned.robot if information is None else information.robot
        return _Bare(robot, tuned.settings, tuple(log.locked), run, tuned.reasons)

    def estimated(self, given: Identification | Estimate | str | os.PathLike[str]) -> _Bare:
        """What an estimate knows of the robot, as well as its covariance says."""
        ones = np.ones(self.robot.nv)
        if isinstance(given, Identification):
            estimate = given.estimate
            run = FoldedRun(known_rows(estimate.x_base, estimate.covariance), None, None, ones)
            locked = tuple(given.dataset.log.locked)
            return _Bare(estimate.robot, given.tuned.settings, locked, run)
        if isinstance(given, Estimate):
            run = FoldedRun(known_rows(given.x_base, given.covariance), None, None, ones)
            return _Bare(given.robot, None, (), run)
        where = f"--estimate {os.fspath(given)}"
        data = read_estimate(given)
        if stated_sensors(data):
            raise MalformedInput(
                f"{where} was identified with a wrist sensor, which feels the payload by itself;"
                " give the log without the payload with --without LOG"
            )
        robot = fitted_robot(data, self.robot, where=where)
        base = view(_empty(robot)).base
        covariance = base_covariance(data, base.names, where=where)
        x = np.array([float(row["value"] or 0.0) for row in data["base_parameters"]])
        run = FoldedRun(known_rows(x, covariance), None, None, ones)
        return _Bare(robot, self._filtering(data), tuple(data["locked"]), run)

    def _filtering(self, data: Fields) -> Settings:
        """The low-pass and delay of the fit behind an estimate.json."""
        fitted = (data.get("provenance") or {}).get("settings") or {}
        try:
            return Settings(
                cutoff=float(fitted["cutoff"]),
                min_speed=tuple(float(value) for value in fitted["min_speed"]),
                reasoning="that of the estimate",
                torque_cutoff=fitted.get("torque_cutoff"),
                delay=fitted.get("delay") or 0.0,
            )
        except (KeyError, TypeError, ValueError):
            raise MalformedInput(
                "--estimate does not state its low-pass; identify the robot again"
            ) from None

    def loaded(self, run: NamedRun, bare: _Bare, payload: int) -> FoldedRun:
        """A run with a payload, filtered as the robot's own, with the same columns."""
        if isinstance(run.logs, Information):
            return _folded_before(run.logs, payload)
        if bare.filtering is None:
            raise UsageError(
                "loaded is a log, and the robot without payload is information that was folded"
                " before; give both as logs, or both as information"
            )
        self.progress.stage(f"reading the log of {run.name}")
        log = require_torque(read_logs(self.robot, run.logs, self.settings, self.engine), "fit")
        if set(log.locked) != set(bare.locked):
            only = sorted(set(log.locked) ^ set(bare.locked))
            raise MalformedInput(
                f"the logs with and without the payload do not measure the same joints"
                f" ({known(only)} in one alone); give logs with the same columns"
            )
        nominal = lock(self.robot, log.locked)
        dofs = selected_dofs(nominal, self.settings.joints)
        joints = JointSelection(self.robot, tuple(log.locked), dofs)
        rows = Rows(log, settings_for(log, bare.filtering), None, joints)
        return self._fold(rows, bare.robot, payload)

    def _fold(self, rows: Rows, fitted: Robot, payload: int | None) -> FoldedRun:
        fold = self.engine.fold(rows, fitted)
        fold.counts.require_rows(lock(self.robot, rows.log.locked))
        seen = view(fold.information.without_instruments, dofs=rows.joints.dofs)
        noise = whitened_noise(
            seen,
            lambda: self.engine.samples(rows, fold.information.robot, "reading again"),
            _weights(seen),
        )
        inflation = np.maximum(np.ma.filled(noise.model.inflation, 1.0), 1.0)
        return FoldedRun(coloured(noise), payload, seen, inflation, rows.log)


def _folded_before(information: Information, payload: int | None) -> FoldedRun:
    """A run that was folded before: its rows count as independent."""
    ones = np.ones(information.robot.nv)
    with f.blas_threads().limit(limits=1, user_api="blas"):
        return FoldedRun(whitened(information, "joint", ones), payload, information, ones)


def _weights(information: Information) -> Weights:
    rms = information.torque_norms() / np.sqrt(np.maximum(information.rows, 1))
    noise = np.maximum(weigh(information, "joint").noise, QUIETEST * rms)
    return Weights(1.0 / noise, 1.0, noise)


def _empty(robot: Robot) -> Information:
    from thetahat.identification.fold_plan import fold_plan

    plan = fold_plan(robot)
    factors = tuple(np.zeros((len(p) + 1, len(p) + 1)) for p in plan.positions)
    rows = np.zeros(robot.nv, dtype=int)
    return Information(robot, plan.base, plan.positions, factors, rows, 0)


# -- solving ---------------------------------------------------------------------------------------


def _solved(
    reader: _Reader,
    bare: _Bare,
    runs: Sequence[FoldedRun],
    held: Sequence[HeldPayload],
    named: Sequence[NamedRun],
    box: PayloadBox | None,
) -> PayloadIdentification:
    """Fit all runs at once, and collect what they say."""
    informations = [run.information for run in runs if run.information is not None]
    _require_same(informations, runs)
    first = informations[0]
    gains: tuple[DriveGain, ...] | None = None
    error: float | None = None
    if any(each.mass for each in held):
        fit = fit_gains([_with_gains(run) for run in runs], held)
        evidence, x, theta = list(fit.evidence), fit.x_base, fit.theta
        given = dict(reader.settings.torque_gains)
        factor = np.array([given.get(name, 1.0) for name in first.robot.velocity_names])
        gains = _gains(first.robot, factor * fit.gains, np.abs(factor) * fit.std)
        payloads = [
            payload_of(each, one, first, box=box, scale_error=0.0)
            for each, one in zip(evidence, held, strict=True)
        ]
        scale = 1.0 / fit.gains
    else:
        whitened_runs = [WhitenedRun(run.whitened, run.payload) for run in runs]
        stacked = Stacked.of(first.base, whitened_runs, held)
        evidence = [stacked.evidence(k) for k in range(len(held))]
        payloads = [
            payload_of(each, one, first, box=box, scale_error=0.0)
            for each, one in zip(evidence, held, strict=True)
        ]
        theta = np.stack([each.theta for each in payloads])
        x = stacked.robot(theta)
        error = _scale_error(reader, first, x)
        payloads = [_with_scale(each, error) for each in payloads]
        scale = np.ones(first.robot.nv)
    residuals = _residuals(runs, held, x, theta, scale)
    return PayloadIdentification(
        payloads=dict(zip((each.name for each in named), payloads, strict=True)),
        known_masses={each.name: each.known_mass for each in named},
        gains=gains,
        scale_error=error,
        residuals=residuals,
        robot=reader.robot,
        settings=reader.settings,
        source=_source(bare, runs),
    )


def _require_same(informations: Sequence[Information], runs: Sequence[FoldedRun]) -> None:
    """Refuse runs whose columns differ: another robot, or drive terms of an estimate."""
    first = informations[0]
    for each in informations[1:]:
        if each.key != first.key:
            raise UsageError(
                f"the runs are of different robots ({first.robot.name!r} and"
                f" {each.robot.name!r}): geometry, gravity or drive columns differ; fold all logs"
                " with the same robot"
            )
    for run in runs:
        if run.whitened.rows.shape[1] != len(first.base):
            raise UsageError(
                f"the estimate has {run.whitened.rows.shape[1]} base parameters and the log's robot"
                f" {len(first.base)}: other joints were measured; identify the robot from a log of"
                " the same joints"
            )


def _with_gains(run: FoldedRun) -> LoadedRun:
    if run.information is None:
        raise UsageError("gains need logs with and without the payload; give both")
    return LoadedRun(run.information, run.payload, run.inflation)


def _gains(robot: Robot, gains: np.ndarray, std: np.ma.MaskedArray) -> tuple[DriveGain, ...]:
    """The gains that the motion tells; None for the others."""
    hidden = np.ma.getmaskarray(std)
    return tuple(
        DriveGain(name, *((None, None) if hidden[v] else (float(gains[v]), float(std[v]))))
        for v, name in enumerate(robot.velocity_names)
    )


def _scale_error(reader: _Reader, information: Information, x: np.ndarray) -> float:
    """How well the torques' scale is known: by the gains' standard deviations, where gains are
    given, else by the robot file's masses.
    """
    given = reader.settings.gains
    if isinstance(given, Mapping) or sensor_links(information.robot):
        return 0.0  # a wrist sensor is calibrated
    if given is not None:
        known_gains = [each for each in read_gains(given).values() if each.gain and each.std]
        errors = [(each.std or 0.0) / abs(each.gain or 1.0) for each in known_gains]
        # most of it is the known mass's, and all joints share that; single ones may be known worse
        return float(np.median(errors)) if errors else 0.0
    if placeholder_reason(information.robot) is not None:
        return USUAL_ERROR
    return scale_error(information, x)


def _with_scale(payload: Payload, error: float) -> Payload:
    return replace(payload, fit=payload.fit.with_scale_error(payload.theta, error))


def _residuals(
    runs: Sequence[FoldedRun],
    held: Sequence[HeldPayload],
    x: np.ndarray,
    theta: np.ndarray,
    scale: np.ndarray,
) -> tuple[JointResidual, ...]:
    """RMS of the loaded runs' torques that is left without the payload, and with it."""
    loaded = [run for run in runs if run.information is not None and run.payload is not None]
    square = np.zeros((2, len(scale)))
    rows = np.zeros(len(scale))
    robot = None
    for run in loaded:
        information, k = run.information, run.payload
        if information is None or k is None:
            continue
        robot = information.robot
        carried = information.base.map[:, held[k].place.span] @ held[k].place.to_body @ theta[k]
        for row, own in enumerate((x, x + carried)):
            for v, (positions, R) in enumerate(
                zip(information.positions, information.factors, strict=True)
            ):
                left = scale[v] * (R[:, :-1] @ own[positions]) - R[:, -1]
                square[row, v] += float(left @ left)
        rows += information.rows
    if robot is None:
        return ()
    rms = np.sqrt(square / np.maximum(rows, 1.0))
    return tuple(
        JointResidual(name, int(rows[v]), float(rms[0, v]), float(rms[1, v]))
        for v, name in enumerate(robot.velocity_names)
    )


def _source(bare: _Bare, runs: Sequence[FoldedRun]) -> PayloadSource:
    """Where the answer comes from: logs, findings, choices."""
    findings: list[tuple[Finding, str]] = []
    for run in runs:
        if run.log is not None:
            where = "without" if run.payload is None else "loaded"
            findings += [(each, where) for each in run.log.findings]
    logs = [run.log for run in runs if run.log is not None and run.payload is not None]
    unloaded = [run.log for run in runs if run.log is not None and run.payload is None]
    samples = sum(run.information.samples for run in runs if run.information is not None)
    return PayloadSource(
        tuple(logs), tuple(unloaded), tuple(findings), bare.chosen, bare.locked, int(samples)
    )
