"""`thetahat tool LOG --robot ROBOT`: what a wrist sensor carries, from a log in which it moves.

The six rows of the sensor alone are fitted: ten numbers of the tool and a bias per channel. Joint
torques, which a log may lack, take no part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from thetahat.data.joint_selection import JointSelection, selected_dofs
from thetahat.data.log import Log
from thetahat.data.samples import Samples
from thetahat.engine.local import LocalEngine
from thetahat.engine.protocol import NoProgress, Progress, Rows
from thetahat.errors import MalformedInput, UsageError, known
from thetahat.identification import factor as f
from thetahat.identification.estimators.joint_weights import Weights, weigh
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information
from thetahat.identification.payload.bias_drift import WalkBasis, channel_noise
from thetahat.identification.payload.payload_body import fit_payload, typical_mass
from thetahat.identification.payload.payload_evidence import QUIETEST, coloured, eliminated
from thetahat.identification.payload.payload_place import payload_place
from thetahat.identification.payload.payload_result import UPPER, Payload
from thetahat.identification.payload.wrist_sensor_answer import (
    drift_data,
    drift_lengths,
    drift_reasons,
)
from thetahat.identification.scores import predicted
from thetahat.identification.solve import solve
from thetahat.identification.submodel import view
from thetahat.identification.uncertainty.autocorrelation import whitened_noise
from thetahat.identification.verdict import Verdict, verdict_of
from thetahat.identification.verdict_reason import CORRECTED, SUSPECT, WRONG, Fields, Reason
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint, with_wrench_sensors
from thetahat.pipeline.dataset import LogInput, load_robot, read_logs
from thetahat.pipeline.logged_sensors import log_names, logged_sensors
from thetahat.pipeline.settings import IdentifySettings

SCHEMA = "thetahat/tool/1"
SURE, VAGUE = 0.02, 0.1  # standard deviation of the mass relative to it: good; not usable
CENTRED = 0.02  # [m] standard deviation of the centre of mass that is no measurement
HELD = 0.1  # [m] size of a tool
LEAST_BLOCK = 0.5  # [s] whose mean says where a bias is
LEAST_BLOCKS, MOST_BLOCKS = 8, 200
GRAVITY = 9.81  # [m/s²] by which a tool's weight is compared with drifts
RESOLUTION = 1e-6  # of a reading
Z = 1.96


@dataclass(frozen=True, eq=False)
class WristTool:
    """The body that a wrist sensor carries, and the sensor's bias."""

    link: str
    payload: Payload  # what the link and all beyond it weigh
    bias: np.ndarray  # (6,) [N, N·m] fx … tz
    bias_std: np.ndarray  # (6,)
    rms: np.ndarray  # (6,) of what is left of the fitted rows
    drift: np.ndarray  # (blocks, 6) of the biases from their means; zero in channels without one
    log: Log
    samples: int

    @property
    def verdict(self) -> Verdict:
        """Whether the result is good, usable or not usable, and why."""
        body, std = self.payload, self.payload.mass_std
        mass = (
            f"{body.mass:.4g} kg" if std is None else f"{body.mass:.4g} ± {Z * std:.1g} kg (95 %)"
        )
        centre = ", ".join(f"{1e3 * c:.1f}".replace("-", "−") for c in body.com)
        summary = f"tool of {mass} on {self.link}, centre of mass ({centre}) mm"
        return verdict_of(summary, self._reasons())

    def _reasons(self) -> list[Reason]:
        body, std, out = self.payload, self.payload.mass_std, []
        relative = np.inf if std is None else std / max(abs(body.mass), 1e-12)
        if relative > SURE:
            text = (
                "the motion does not tell the mass"
                if std is None
                else f"the mass is known to {100 * Z * relative:.0f} % only (95 %)"
            )
            fix = "; turn the sensor by 30° or more in several directions"
            out.append(Reason(WRONG if relative > VAGUE else SUSPECT, text + fix))
        wide = np.ma.getmaskarray(body.com_std) | (np.ma.filled(body.com_std, np.inf) > CENTRED)
        if wide.any():
            axes = ", ".join(axis for axis, no in zip("xyz", wide, strict=True) if no)
            text = f"the motion does not tell the centre of mass along {axes}: tilt the sensor"
            out.append(Reason(SUSPECT, text))
        turning = [part for part in body.unseen if part.startswith("I")]
        if turning:
            text = f"the motion does not tell {known(turning)}: accelerate about more axes"
            out.append(Reason(CORRECTED, text))
        return [*out, *self._drift_reasons()]

    def _drift_reasons(self) -> list[Reason]:
        weight = abs(self.payload.mass) * GRAVITY
        lengths = drift_lengths(self.payload.com)
        return drift_reasons(np.ptp(self.drift, axis=0), weight * lengths)

    @property
    def data(self) -> Fields:
        """The answer as plain data, schema thetahat/tool/1."""
        body, hidden = self.payload, set(self.payload.unseen)
        inertia = np.ma.masked_array(
            body.inertia_com[UPPER], mask=np.ma.getmaskarray(body.inertia_std)[UPPER]
        )
        com = np.ma.masked_array(body.com, mask=np.ma.getmaskarray(body.com_std))
        return {
            "schema": SCHEMA,
            "link": self.link,
            "mass": None if "mass" in hidden else body.mass,
            "mass_std": body.mass_std,
            "com": _numbers(com),
            "com_std": _numbers(body.com_std),
            "inertia_com": _numbers(inertia),
            "inertia_com_std": _numbers(body.inertia_std[UPPER]),
            "force_bias": _numbers(self.bias[:3]),
            "force_bias_std": _numbers(self.bias_std[:3]),
            "torque_bias": _numbers(self.bias[3:]),
            "torque_bias_std": _numbers(self.bias_std[3:]),
            "rms": _numbers(self.rms),
            "rms_rows": "fitted",
            "drift": drift_data(self.drift, np.any(self.drift, axis=0)),
            "samples": self.samples,
            "findings": [finding.message for finding in self.log.findings],
            "verdict": self.verdict.as_data(),
        }


def wrist_tool(
    robot: Robot | str | os.PathLike[str],
    logs: LogInput,
    *,
    link: str | None = None,
    settings: IdentifySettings | None = None,
    progress: Progress | None = None,
) -> WristTool:
    """Identify what a wrist sensor carries from a log in which the robot moves.

    Args:
        robot: that carries the sensor.
        logs: with columns wrench.<link>.fx … tz beside the positions; torques may be missing.
        link: whose wrench is measured; None: the only one that the log has.
        settings: how the log is read and filtered.
        progress: that is told what goes on.

    """
    settings, progress = settings or IdentifySettings(), progress or NoProgress()
    whole, reading = load_robot(robot, settings.gravity), settings.reading
    file, links = logged_sensors(whole, logs, log_names(logs), reading)
    link = _require_link(file, links, link)
    try:
        whole = with_wrench_sensors(whole, [link])
    except UsageError as error:
        raise MalformedInput(f"{file}: {error}") from None
    engine = LocalEngine(progress)
    log = read_logs(whole, logs, settings, engine)
    filtering = engine.choose_filter(
        log, whole, cutoff=settings.cutoff, min_speed=settings.min_speed, span=(0, log.rows)
    )
    fitted = lock(whole, log.locked).without_drive().with_drive(offset=True)
    dofs = selected_dofs(fitted, [f"wrench.{link}"])
    rows = Rows(log, filtering, None, JointSelection(whole, tuple(log.locked), dofs))
    fold = engine.fold(rows, fitted)
    fold.counts.require_rows(fitted)
    seen = view(fold.information, dofs=dofs)

    def samples() -> Iterator[Samples]:
        return engine.samples(rows, fold.information.robot, "reading again")

    with f.blas_threads().limit(limits=1, user_api="blas"):
        body = _body(seen, link, samples)
    estimate = solve(seen, LeastSquares(weights="joint"), samples=samples)
    at = [f"offset_{sensor_joint(link, channel)}" for channel in CHANNELS]
    kept = [seen.base.column_names[k] for k in seen.base.independent]
    places = [kept.index(name) for name in at]
    channels = [fitted.velocity_names.index(sensor_joint(link, each)) for each in CHANNELS]
    left = seen.residual_norms(estimate.x_base)[channels]
    identified = fold.information.robot.with_parameters(estimate)
    return WristTool(
        link=link,
        payload=body,
        bias=estimate.x_base[places],
        bias_std=np.sqrt(np.diag(estimate.covariance))[places],
        rms=left / np.sqrt(np.maximum(seen.rows[channels], 1)),
        drift=_drift(identified, samples(), channels),
        log=log,
        samples=seen.samples,
    )


def _require_link(file: str, links: tuple[str, ...], link: str | None) -> str:
    if not links:
        raise MalformedInput(
            f"{file} has no columns wrench.<link>.fx … wrench.<link>.tz; name the sensor's so"
        )
    if link is None and len(links) == 1:
        return links[0]
    if link is None or link not in links:
        asked = "several links" if link is None else f"no link {link!r}"
        raise UsageError(f"{file} has wrenches of {asked}; give --link, one of {known(links)}")
    return link


def _body(seen: Information, link: str, samples: Callable[[], Iterator[Samples]]) -> Payload:
    """The body beyond the sensor, all else eliminated, with the noise's own correlation."""
    rms = seen.torque_norms() / np.sqrt(np.maximum(seen.rows, 1))
    noise = np.maximum(weigh(seen, "joint").noise, QUIETEST * rms)
    run = coloured(whitened_noise(seen, samples, Weights(1.0 / noise, 1.0, noise)))
    place = payload_place(seen.robot, link, None)
    others = np.setdiff1d(
        np.arange(seen.base.columns), np.arange(place.span.start, place.span.stop)
    )
    shared = run.rows @ seen.base.map[:, others]
    ten = run.rows @ (seen.base.map[:, place.span] @ place.to_body)
    evidence = eliminated(shared, ten, run.right, runs=(run,))
    return fit_payload(evidence, place, typical=typical_mass(seen.robot), size=HELD)


def _drift(robot: Robot, batches: Iterable[Samples], channels: list[int]) -> np.ndarray:
    """The random walk of each channel's bias, (blocks, 6), where its residuals show one."""
    expected, left, time = [], [], []
    for batch in batches:
        torque = predicted(robot, batch)[:, channels]
        expected.append(torque)
        left.append(batch.tau[:, channels] - torque)
        time.append(np.arange(len(batch)) if batch.t is None else batch.t)
    t = np.concatenate(time)
    span = max(float(t[-1] - t[0]), 1e-12)
    count = int(min(span / LEAST_BLOCK, MOST_BLOCKS, len(t)))
    if count < LEAST_BLOCKS:
        return np.zeros((1, 6))
    parts = np.array_split(np.arange(len(t)), count)
    means = [
        np.array([np.concatenate(x)[part].mean(axis=0) for part in parts]) for x in (expected, left)
    ]
    basis = WalkBasis(np.array([t[part].mean() for part in parts]))
    out = np.zeros((count, 6))
    for k in range(6):
        columns = np.column_stack([means[0][:, k], np.ones(count)])
        floor = RESOLUTION * float(np.abs(means[0][:, k]).max()) + 1e-12
        noise = channel_noise(columns, means[1][:, k], basis, floor=floor)
        out[:, k] = noise.drift(means[1][:, k], basis) if noise.drifts else 0.0
    return out


def _numbers(values: np.ndarray) -> list[float | None]:
    filled: np.ndarray = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    return [float(value) if np.isfinite(value) else None for value in filled]
