"""`ActuatorIdentification`: what `actuators` returns, and the files that it writes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thetahat.files import as_text, make_folder, write_atomically, written_together
from thetahat.identification import estimate_json
from thetahat.identification.actuators.actuator_verdict import with_actuator_verdict
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_motion import DriveMotion
from thetahat.identification.actuators.drive_parameters import (
    KD,
    KP,
    LOGARITHMIC,
    NAMES,
    NO_LIMIT,
    PER_KP,
    PRIOR,
    DriveParameters,
)
from thetahat.identification.actuators.drive_rollout import DriveRollout, run_errors
from thetahat.identification.actuators.identify_drives import (
    IdentifiedDrives,
    KnownGains,
    bias_is_known,
)
from thetahat.identification.rollout_errors import RolloutErrors
from thetahat.identification.verdict import Verdict
from thetahat.identification.verdict_reason import Fields
from thetahat.model.io.save import save
from thetahat.model.joint_units import joint_units
from thetahat.model.robot import Robot
from thetahat.pipeline.actuator_rollout import command_rollout
from thetahat.pipeline.freed_links import describe_links
from thetahat.pipeline.outputs import provenance
from thetahat.pipeline.settings import IdentifySettings

if TYPE_CHECKING:
    from thetahat.data.log import Log

SCHEMA = "thetahat/actuators/1"
ANSWER, PAGE = "actuators.json", "report.html"
Z = 1.96  # of a 95 % interval
DIGITS = 6  # of a correlation
# findings about what is used here: stamps and positions
RELEVANT = (*("gap", "jitter", "locked-joints", "salvaged", "short-run", "stuck", "units", "wrap"),)
UNSPLIT = 0.5  # standard deviation of kd, of the damping, from which it is not known
UNKNOWN_SCALE = 0.5  # standard deviation of log kp from which a joint's scale is not known
# reported parameters, and those that share the scale of kp
REPORTED = (
    *("armature", "viscous", "coulomb", "kp", "kd", "damping", "delay", "bias", "offset", "limit"),
    *("stribeck", "stribeck_speed", "load", "quadratic", "deadband", "backlash", "back_emf"),
)
SCALED = (
    *("armature", "viscous", "coulomb", "kp", "kd", "damping", "offset", "limit", "stribeck"),
    "back_emf",
)
IF_FITTED = ("deadband", "backlash", "back_emf")  # zero in the model of most joints, and not shown
NEVER_NEGATIVE = tuple(name for name in REPORTED if name not in ("bias", "offset"))


@dataclass(frozen=True, eq=False)
class ActuatorSource:
    """Logs that the answer comes from."""

    logs: tuple[Log, ...]
    test_logs: tuple[Log, ...] = ()


@dataclass(frozen=True, eq=False)
class ActuatorScores:
    """RMS of q − q_sim of every run and joint [rad or m], each simulated from its first row."""

    train: np.ndarray  # (runs, joints)
    test: np.ndarray | None
    nominal: np.ndarray | None  # by the robot's file, on the held-out runs
    command: np.ndarray | None  # of q − command
    rows: tuple[int, int]  # fitted, held out
    motion: DriveMotion | None  # held out
    rollout: RolloutErrors | None = None  # the same by horizon, from many states

    @staticmethod
    def of(
        robot: Robot,
        train: DriveLog,
        test: DriveLog | None,
        *,
        drives: DriveParameters,
        nominal: DriveParameters,
        file_robot: Robot | None = None,
    ) -> ActuatorScores:
        """Simulate the logs with the fitted and the file's drives.

        file_robot: of the nominal motion, where the links were fitted, too.
        """
        fitted = run_errors(DriveRollout(robot, train), drives.values)
        if test is None:
            return ActuatorScores(fitted, None, None, None, (train.rows, 0), None)
        motion = DriveMotion.of(robot, test, drives.values, nominal.values, file_robot)
        return ActuatorScores(
            fitted,
            motion.errors(motion.simulated),
            motion.errors(motion.nominal),
            motion.errors(motion.command),
            (train.rows, test.rows),
            motion,
            command_rollout(robot, test, drives, nominal, file_robot),
        )

    def mean(self, kind: str, joint: int | None = None) -> float | None:
        """Return the mean RMS over runs, of one joint or over all; None where nothing is."""
        errors: np.ndarray | None = getattr(self, kind)
        if errors is None:
            return None
        value = float(np.mean(errors if joint is None else errors[:, joint]))
        return value if np.isfinite(value) else None


@dataclass(frozen=True, eq=False)
class ActuatorIdentification:
    """The result of `actuators`: drives by joint, errors of the motion, verdict, files."""

    robot: Robot
    identified: IdentifiedDrives
    known: KnownGains
    scores: ActuatorScores
    source: ActuatorSource
    settings: IdentifySettings

    @property
    def drives(self) -> DriveParameters:
        """The fitted drives."""
        return self.identified.fit.drives

    @property
    def verdict(self) -> Verdict:
        """Whether the result is good, usable or not usable, and why."""
        return Verdict.from_data(self.data["verdict"])

    @cached_property
    def data(self) -> Fields:
        """The answer as plain data, schema thetahat/actuators/1."""
        scores = self.scores
        joints = [self._joint(at, name) for at, name in enumerate(self.robot.joint_names)]
        findings = estimate_json.findings(self.source.logs[0].findings, "fit")
        for log in self.source.test_logs:
            findings += estimate_json.findings(log.findings, "test")
        freed = self.identified.links
        data = {
            "schema": SCHEMA,
            "joints": joints,
            "rms_test": scores.mean("test"),
            "rms_nominal": scores.mean("nominal"),
            "rms_command": scores.mean("command"),
            "rms_train": scores.mean("train"),
            "runs": self._runs(),
            "rollout": None if scores.rollout is None else scores.rollout.as_data(),
            "samples": scores.rows[0],
            "samples_test": scores.rows[1],
            "rows_per_sample": self.identified.uncertainty.rows_per_sample,
            "spread": self._spread(),
            "friction": ["viscous", "coulomb", *self.identified.friction],
            "links": "file" if freed is None else "free",
            "freed": None
            if self.identified.links is None
            else describe_links(self.identified.links),
            "efforts": self._efforts(),
            "parity": None,
            "base": "fixed",
            "converged": bool(self.identified.fit.converged),
            "locked": list(self.source.logs[0].locked),
            "findings": [each for each in findings if each["kind"] in RELEVANT],
            "warnings": [],
            "provenance": self._provenance(),
        }
        return with_actuator_verdict(data)

    def _spread(self) -> Fields:
        """Return the law of all free parameters together, as the fit sees them."""
        uncertainty = self.identified.uncertainty
        drives, names = uncertainty.drives, self.robot.joint_names
        std = np.sqrt(np.maximum(np.diag(uncertainty.seen), 0.0))
        correlations = uncertainty.seen / np.maximum(np.outer(std, std), 1e-300)
        return {
            "parameters": [
                {
                    "joint": names[j],
                    "name": NAMES[k],
                    "scale": "log" if k in LOGARITHMIC else ("per kp" if k in PER_KP else "value"),
                    "value": float(value),
                    "std": float(spread),
                }
                for (j, k), value, spread in zip(drives.entries, drives.x, std, strict=True)
            ],
            "correlations": [
                [float(np.round(each, DIGITS)) + 0.0 for each in row[: at + 1]]
                for at, row in enumerate(np.clip(correlations, -1.0, 1.0))
            ],
        }

    def _runs(self) -> list[Fields]:
        motion = self.scores.motion
        if motion is None or self.scores.test is None:
            return []
        return [
            {"name": name, "rms": [_finite(value) for value in errors]}
            for (name, _, _), errors in zip(motion.log.runs, self.scores.test, strict=True)
        ]

    def _joint(self, at: int, name: str) -> Fields:
        model = self._model(at)
        value: dict[str, float | None] = {each: model[each] for each in REPORTED}
        std: dict[str, float | None] = {each: self._std(at, each) for each in REPORTED}
        if not np.isfinite(self.known.kd[at]) and not self._splits(std["kd"], model):
            value["kd"] = value["viscous"] = std["kd"] = std["viscous"] = None
        scale = self.identified.uncertainty.std(at, "kp", seen=True)
        unknown = scale is not None and scale > UNKNOWN_SCALE
        still = not bool(self.identified.moving[at])
        for each in REPORTED:
            absent = each in ("limit", *IF_FITTED) and std[each] is None
            absent |= each == "back_emf" and value["kd"] is None  # above kd is all that shows
            if still or absent or (unknown and each in SCALED):
                value[each] = std[each] = None
        if name in self._unsplit:
            value["armature"] = std["armature"] = None
        if not bias_is_known(self.identified.uncertainty, at, PRIOR[NAMES.index("bias")]):
            value["bias"] = std["bias"] = None
        return {
            "name": name,
            "unit": joint_units(self.robot)[at][0],
            **value,
            "std": std,
            "interval": {each: _interval(each, value[each], std[each]) for each in REPORTED},
            "per_kp": None if still else self._per_kp(at),
            "given": [each for each in ("kp", "kd") if np.isfinite(getattr(self.known, each)[at])],
            "moves": not still,
            "scale_known": not (unknown or still),
            "model": model,
            **{f"rms_{k}": self.scores.mean(k, at) for k in ("test", "nominal", "command")},
            "rms_train": self.scores.mean("train", at),
        }

    @cached_property
    def _unsplit(self) -> tuple[str, ...]:
        """Joints whose rotor and link no motion tells apart."""
        if self.identified.links is None:
            return ()
        sums = describe_links(self.identified.links)["sums"]
        return tuple(each["joint"] for each in sums if each["armature"] is None)

    def _model(self, at: int) -> dict[str, float]:
        """Every number that the simulation uses, whether the log tells it or not."""
        raw = dict(zip(NAMES, map(float, self.drives.values[at]), strict=True))
        out = {each: raw[each] for each in REPORTED if each in raw}
        out["damping"] = raw["kd"] + raw["viscous"]
        out["limit"] = min(raw["limit"], NO_LIMIT)
        return out

    def _std(self, at: int, name: str) -> float | None:
        if name == "damping":
            return self.identified.uncertainty.std_of_sum(at, ("kd", "viscous"))
        if name in ("kd", "viscous", "back_emf") and self._by_effort(at):
            return self._std_of_split(at, name)
        return self.identified.uncertainty.std(at, name)

    @staticmethod
    def _splits(std: float | None, model: dict[str, float]) -> bool:
        """Whether kd and viscous friction, mostly one column, are told apart."""
        return std is not None and std < UNSPLIT * model["damping"]

    def _by_effort(self, at: int) -> bool:
        """Whether the drive's current or duty cycle told kd from viscous friction."""
        law, free = self.identified.efforts, self.drives.free
        given = np.isfinite(self.known.kd[at])
        return law is not None and bool(law.told[at]) and not given and not free[at, KD]

    def _std_of_split(self, at: int, name: str) -> float | None:
        """Return the standard deviation of kd as the readings tell it, or of what it changes."""
        law, kp = self.identified.efforts, self.drives.values[at, KP]
        assert law is not None
        scale = self.identified.uncertainty.std(at, "kp") or 0.0
        kd = float(np.hypot(law.kd_per_kp_std[at] * kp, law.kd_per_kp[at] * scale))
        if name == "kd":
            return kd
        alone = self.identified.uncertainty.std(at, name)
        return None if alone is None else float(np.hypot(kd, alone))

    def _efforts(self) -> Fields | None:
        """Return what the readings tell of the drives, by joint."""
        law = self.identified.efforts
        if law is None:
            return None
        numbers = zip(self.robot.joint_names, law.gain, law.gain_std, law.r2, strict=True)
        kp = self.drives.values[:, KP]
        return {
            name: None
            if not told
            else {
                "torque_per_reading": float(kp[at] / gain),
                "gain": float(gain),
                "std": float(std),
                "r2": float(r2),
            }
            for at, (told, (name, gain, std, r2)) in enumerate(zip(law.told, numbers, strict=True))
        }

    def _per_kp(self, at: int) -> Fields:
        """Ratios to kp, known even where the scale is not: [s²], [s], [rad]."""
        out: Fields = {}
        kp = self.drives.values[at, KP]
        for name, raw in (("armature", "armature"), ("damping", "viscous"), ("coulomb", "coulomb")):
            value = self._model(at)[name] / kp
            out[name] = {
                "value": float(value),
                "std": self.identified.uncertainty.std(at, raw, seen=True),
            }
        return out

    def _provenance(self) -> Fields:
        given = self.settings
        settings = {
            **{name: getattr(given, name) for name in ("columns", "units", "format", "topic")},
            "kp": _numbers(self.known.kp),
            "kd": _numbers(self.known.kd),
            "gravity": [float(value) for value in self.robot.gravity],
            "held_out": None if self.source.test_logs else given.held_out,
        }
        test = self.source.test_logs[0] if self.source.test_logs else None
        return provenance(self.robot, self.source.logs[0], test, settings)

    def answer(self, warnings: list[str] | None, folder: str = "result") -> Fields:
        """Return the data with these warnings, and next steps that name this folder."""
        return with_actuator_verdict({**self.data, "warnings": list(warnings or ())}, folder)

    # -- files -------------------------------------------------------------------------------------

    @written_together()
    def save(
        self, folder: str | os.PathLike[str], *, warnings: list[str] | None = None
    ) -> tuple[Path, ...]:
        """Write actuators.json and report.html."""
        folder = Path(folder)
        make_folder(folder)
        data = self.answer(warnings, str(folder))
        if self.identified.links is not None and self.robot.source is not None:
            target = folder / f"{self.robot.source.stem}_links{self.robot.source.suffix}"
            save(self.robot, target)
            data["parity"] = {"file": target.name}
        page = _page(self.robot.name, data, self.scores.motion)
        return (
            write_atomically(folder / ANSWER, as_text(data)),
            write_atomically(folder / PAGE, page),
        )

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one self-contained HTML page."""
        page = _page(self.robot.name, self.data, self.scores.motion)
        return write_atomically(Path(path), page)

    def __repr__(self) -> str:
        return f"<ActuatorIdentification of {self.robot.name}: {self.verdict.sentence}>"


def _page(robot: str, data: Fields, motion: DriveMotion | None) -> str:
    from thetahat.report.actuator_report import actuator_sections
    from thetahat.report.page import render

    return render("Actuators", actuator_sections(data, motion), subtitle=robot)


def _numbers(values: np.ndarray) -> list[float | None] | None:
    out = [float(each) if np.isfinite(each) else None for each in values]
    return out if any(each is not None for each in out) else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _interval(name: str, value: float | None, std: float | None) -> list[float] | None:
    if value is None or std is None:
        return None
    low = value - Z * std
    return [max(low, 0.0) if name in NEVER_NEGATIVE else low, value + Z * std]
