"""The files of an identification: robot file, report, posterior and estimate.json, in this order.

estimate.json is the last, so that where it is, all are.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thetahat import __version__
from thetahat.data.samples_log import SamplesLog
from thetahat.errors import UsageError, known
from thetahat.files import (
    as_text,
    make_folder,
    remove_file,
    require_folder,
    write_atomically,
    written_together,
)
from thetahat.identification import estimate_json, posterior_file
from thetahat.identification.excitation import joint_motion
from thetahat.identification.hand_guiding import HandGuiding, static_rank
from thetahat.identification.verdict import Verdict, with_verdict
from thetahat.identification.verdict_reason import Fields
from thetahat.model.io.save import save
from thetahat.model.joint_units import joint_units
from thetahat.model.lock_joints import kept_positions
from thetahat.model.wrench_sensors import sensor_links, without_wrench_sensors
from thetahat.report.identification_report import sections, titles
from thetahat.report.page import render

if TYPE_CHECKING:
    from thetahat.data.log import Log
    from thetahat.model.robot import Robot
    from thetahat.pipeline.dataset import Dataset
    from thetahat.pipeline.results import Results
    from thetahat.report.section import Section

DRIVE = "drive.json"  # beside the robot file, for what that cannot hold


@dataclass(frozen=True)
class Targets:
    """Where the files go."""

    folder: Path
    estimate: Path
    robot: Path
    report: Path | None

    @staticmethod
    def beneath(
        folder: str | os.PathLike[str], robot: Robot | Path, *, report: bool = True
    ) -> Targets:
        """Return the files in a folder, named after the robot's file."""
        folder = Path(folder)
        source = robot if isinstance(robot, Path) else robot.source or Path(f"{robot.name}.urdf")
        name = f"{source.stem}_identified{source.suffix or '.urdf'}"
        page = folder / "report.html" if report else None
        return Targets(folder, folder / "estimate.json", folder / name, page)

    def check(self, inputs: Iterable[str | Path]) -> None:
        """Raise where they cannot be written, or would replace an input, before work begins."""
        beside = (self.folder / DRIVE, self.folder / posterior_file.NAME)
        files = (self.estimate, self.robot, self.report, *beside)
        require_folder(self.folder, [file for file in files if file is not None], inputs)


# -- plain data ------------------------------------------------------------------------------------


def as_data(result: Results) -> dict[str, Any]:
    """Return the answer as plain data, schema thetahat/estimate/1, with its verdict."""
    model, dataset = result.model, result.dataset
    data = estimate_json.as_data(
        result.estimate,
        rows=model.information.rows,
        robot=model.nominal,
        test=result.held_out.test,
        raw=result.held_out.raw,
        plausibility=model.plausibility,
        provenance=provenance(dataset.robot, dataset.log, dataset.test_log, _settings(result)),
    )
    audit = result.audit
    findings = estimate_json.findings(audit.findings, "fit")
    findings += estimate_json.findings(audit.test_findings, "test")
    motion = joint_motion(model.information, result.counts.moving)
    joints = zip(data["joints"], motion, strict=True)
    rollout = result.held_out.rollout
    return with_verdict(
        {
            **data,
            "joints": [{**joint, "motion": moved} for joint, moved in joints],
            "rollout": None if rollout is None else rollout.as_data(),
            "seconds": _seconds(dataset),
            "locked": list(dataset.log.locked),
            "dropped": result.counts.dropped,
            "findings": findings,
            "warnings": [],
            **({"static": _static(result, data)} if dataset.settings.static else {}),
        }
    )


def _static(result: Results, data: Fields) -> Fields:
    """Return what held poses tell: how many gravity parameters, and whether each joint stays."""
    dataset, robot = result.dataset, result.model.identified
    held = dataset.log if dataset.test_log is None else dataset.test_log
    steps = held.samples.provenance["resolution"] if isinstance(held, SamplesLog) else ()
    kept = kept_positions(dataset.robot, dataset.log.locked)[1]
    stated = result.model.nominal.drive.coulomb
    joints = []
    for j, (row, (unit, _)) in enumerate(zip(data["joints"], joint_units(robot), strict=True)):
        error = row["rms_test"] if row["rms_test"] is not None else row["noise"]["std"]
        friction, spread = row["coulomb"], row["noise"]["std"] / math.sqrt(dataset.log.rows)
        if not friction:
            friction, spread = float(stated[j]) or None, 0.0
        step = steps[kept[j]] if steps else math.inf
        resolution = float(step) if math.isfinite(step) else None
        joints.append(HandGuiding(row["name"], unit, error, friction, spread, resolution).as_data())
    return {
        "poses": dataset.log.rows,
        "poses_test": 0 if dataset.test_log is None else dataset.test_log.rows,
        "rank": data["rank"],
        "structural_rank": static_rank(robot),
        "joints": joints,
    }


def _seconds(dataset: Dataset) -> dict[str, float | None]:
    """Return how long the fitted and the held-out rows last."""
    test = dataset.test_log
    held_out = dataset.test_rows if test is None else (0, test.rows)
    return {
        "train": _duration(dataset.log, dataset.train_rows),
        "test": None if held_out is None else _duration(test or dataset.log, held_out),
    }


def _duration(log: Log, span: tuple[int, int]) -> float | None:
    """Return the time in rows of a log [s]; None where they have no stamps."""
    if isinstance(log, SamplesLog) and log.samples.period is None and log.samples.t is None:
        return None
    rows = (
        (max(0, min(span[1], run.stop_row) - max(span[0], run.first_row)), run.period)
        for run in log.runs
    )
    return float(sum(count * period for count, period in rows))


def provenance(
    robot: Robot, log: Log | None, test_log: Log | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return where an answer comes from: files with their hashes, version, settings."""
    logs, tests = (
        [] if each is None else [{"path": s.path, "sha256": s.sha256} for s in each.sources]
        for each in (log, test_log)
    )
    source = robot.source
    return {
        "robot": robot.name,
        "robot_file": None if source is None else str(source),
        "robot_sha256": None if source is None else hashlib.sha256(source.read_bytes()).hexdigest(),
        "logs": logs,
        "test_logs": tests,
        "version": __version__,
        "settings": settings,
    }


def _settings(result: Results) -> dict[str, Any]:
    """Return the settings of a fit, given and chosen."""
    given, dataset = result.dataset.settings, result.dataset
    chosen, held_out = result.tuned.settings, dataset.test_rows
    return {
        "cutoff": chosen.cutoff,
        "cutoff_reason": chosen.reasoning,
        "min_speed": list(chosen.min_speed),
        "friction": list(given.friction),
        "armature": result.model.rotor_inertia,
        "weights": given.weights,
        "prior": None if given.prior is None else str(getattr(given.prior, "name", given.prior)),
        "torque_cutoff": chosen.torque_cutoff,
        "delay": chosen.delay,
        "form": chosen.form,
        "tuned": list(result.tuned.reasons),
        "prior_weight": result.tuned.weight if given.consistent else None,
        "metric": result.tuned.metric if given.consistent else None,
        "mass_range": None if given.plausible is None else list(given.plausible),
        "total_mass": None if given.total_mass is None else list(given.total_mass),
        "bounds": given.bounds,
        "frozen": list(given.frozen),
        "tied": list(given.tied),
        "alpha": given.blend if given.method == "prior" else None,
        "robust": given.robust,
        "reference": None if given.reference is None else str(given.reference),
        "instruments": result.model.information.instrument_factors is not None,
        "joints": list(given.joints) or None,
        "actuation": None if given.actuation is None else str(given.actuation),
        "columns": given.columns,
        "topic": given.topic,
        "salvage": given.salvage,
        "keep": list(given.keep),
        "units": given.units,
        "gains": dict(given.torque_gains) or None,
        "format": given.format,
        "skip_bad_rows": given.skip_bad_rows,
        "gravity": [float(value) for value in dataset.robot.gravity],
        "static": given.static,
        "rows_fitted": list(dataset.train_rows),
        "rows_held_out": None if held_out is None else list(held_out),
    }


# -- files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedResult:
    """What was written: the answer with the robot file's parity, and the files."""

    data: dict[str, Any]
    files: tuple[Path, ...]  # estimate.json first

    def __str__(self) -> str:
        return "\n".join(str(path) for path in self.files)


def write(
    result: Results,
    data: Fields,
    targets: Targets,
    warnings: Sequence[str] = (),
    *,
    force: bool = False,
) -> SavedResult:
    """Write the robot file, the report, the posterior and estimate.json, all or none.

    force: write the robot file of a result that is not usable, too.
    """
    make_folder(targets.folder)
    with written_together():
        return _write_files(result, data, targets, warnings, force=force)


def _write_files(
    result: Results,
    data: Fields,
    targets: Targets,
    warnings: Sequence[str],
    *,
    force: bool,
) -> SavedResult:
    files: list[Path] = []
    robot, advice, parity = result.model.identified, list(data["advice"]), None
    refusal = robot_file_refusal(robot, Verdict.from_data(data["verdict"]), force=force)
    if refusal is not None:
        advice.append(refusal)
        _remove_earlier(targets)
    else:
        saved = save(without_wrench_sensors(robot), targets.robot)
        parity = saved.as_data()
        files += saved.files
        if saved.note:
            advice.append(saved.note)
        files += _write_posterior(result, targets)
    data = {**data, "advice": advice, "parity": parity, "warnings": list(warnings)}
    data = with_verdict(data, str(targets.folder))
    if targets.report is not None:
        files.append(write_report(result, data, targets.report))
    return SavedResult(data, (write_atomically(targets.estimate, as_text(data)), *files))


def _write_posterior(result: Results, targets: Targets) -> list[Path]:
    """Write the law that `thetahat randomize` draws robots from, where the estimate has one."""
    path, law = targets.folder / posterior_file.NAME, result.estimate.law
    if law is None or sensor_links(law.robot):  # bodies cut at a sensor are not the file's
        remove_file(path)  # an earlier result's
        return []
    return [posterior_file.write_posterior(law, path)]


def robot_file_refusal(robot: Robot, verdict: Verdict, *, force: bool) -> str | None:
    """Return why no robot file is written of a result; None where one is."""
    if robot.source is None:
        return "no robot file is written, as the robot was not loaded from one"
    wrong = [
        name for name, body in zip(robot.body_names, robot.consistency, strict=True) if not body
    ]
    if wrong:
        return (
            f"no robot file is written, as {known(wrong)} cannot be rigid bodies; --method"
            " consistent finds parameters that can"
        )
    if not verdict.usable and not force:
        return "no robot file is written, as the result is not usable; --force writes it"
    return None


def _remove_earlier(targets: Targets) -> None:
    """Remove the robot file of an earlier result, which would pass for this one's."""
    for file in (targets.robot, targets.folder / DRIVE, targets.folder / posterior_file.NAME):
        remove_file(file)


def report_sections(result: Results, data: dict[str, Any]) -> list[Section]:
    """Return the sections of the report."""
    if result.traces is None:
        raise UsageError(
            "figures and report need the traces that settings with report=False leave out; identify"
            " again with report=True"
        )
    model = result.model
    return sections(
        data,
        robot=model.nominal,
        identified=model.identified,
        traces=result.traces,
        covariance=result.estimate.covariance,
        regions=result.dataset.reference.regions,
    )


def write_report(result: Results, data: dict[str, Any], path: Path) -> Path:
    """Write the report as one self-contained HTML page."""
    title, subtitle = titles(data)
    return write_atomically(path, render(title, report_sections(result, data), subtitle=subtitle))
