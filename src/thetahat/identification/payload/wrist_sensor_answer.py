"""What `thetahat tool` answers: a calibrated wrist sensor as plain data, with its verdict."""

from __future__ import annotations

import numpy as np

from thetahat.data.wrist_poses import CHANNELS
from thetahat.identification.payload.wrist_sensor import (
    CENTRE,
    FORCE_BIAS,
    MOUNT,
    TILT,
    TORQUE_BIAS,
    SensorFit,
    held_out_rms,
)
from thetahat.identification.verdict import Verdict, verdict_of
from thetahat.identification.verdict_reason import (
    CORRECTED,
    SUSPECT,
    WRONG,
    Fields,
    Reason,
    quantity,
)

SCHEMA = "thetahat/tool/1"
SURE, VAGUE = 0.02, 0.1  # standard deviation of the mass relative to it: good; not usable
NAMED, LARGE = 0.02, 0.05  # drift relative to the tool's weight: said; keeps a result from good
TURNED = np.deg2rad(2.0)  # mounting or base beyond that are no small errors
ARM = 0.01  # [m] least lever arm that a drift of the torque is compared with
Z = 1.96


def describe(fit: SensorFit) -> Fields:
    """Return the answer, schema thetahat/tool/1; rms is at poses that were not fitted."""
    std, held = fit.std, held_out_rms(fit.poses, fit.gravity)
    rms = np.where(np.isfinite(held), held, np.sqrt(np.mean(fit.residual**2, axis=0)))
    drifts = drift_data(fit.drift, np.array([noise.drifts for noise in fit.noise]))
    return {
        "schema": SCHEMA,
        "mass": _number(fit.mass),
        "mass_std": _number(std[0]),
        "com": _numbers(fit.centre),
        "com_std": _numbers(std[CENTRE]),
        "force_bias": _numbers(fit.sign * fit.force_bias),
        "force_bias_std": _numbers(std[FORCE_BIAS]),
        "torque_bias": _numbers(fit.sign * fit.torque_bias),
        "torque_bias_std": _numbers(std[TORQUE_BIAS]),
        "rms": _numbers(rms),
        "rms_rows": "held out" if np.isfinite(held).all() else "fitted",
        "rms_constant_bias": _numbers(np.sqrt(np.mean(fit.constant_residual**2, axis=0))),
        "drift": drifts,
        "sensor_rotation": _numbers(fit.x[MOUNT]) if fit.free[MOUNT].all() else None,
        "sensor_rotation_std": _numbers(std[MOUNT]) if fit.free[MOUNT].all() else None,
        "base_tilt": _numbers(fit.x[TILT]) if fit.free[TILT].all() else None,
        "base_tilt_std": _numbers(std[TILT]) if fit.free[TILT].all() else None,
        "axis_mass": None if fit.axes is None else _numbers(fit.axes.masses),
        "axis_mass_std": None if fit.axes is None else _numbers(fit.axes.std),
        "reaction": fit.sign < 0.0,
        "poses": len(fit.poses),
        "rows_moving": fit.poses.moving,
        "gravity": _numbers(fit.gravity),
        "verdict": judge_sensor(fit).as_data(),
    }


def judge_sensor(fit: SensorFit) -> Verdict:
    """Judge a calibrated sensor."""
    std = fit.std
    summary = (
        f"tool of {fit.mass:.4g} ± {Z * std[0]:.1g} kg (95 %), centre of mass"
        f" ({', '.join(f'{1e3 * c:.1f}'.replace('-', '−') for c in fit.centre)}) mm"
    )
    reasons = [*_mass_reasons(fit), *_drift_reasons(fit), *_axis_reasons(fit), *_frame_reasons(fit)]
    return verdict_of(summary, reasons)


def _mass_reasons(fit: SensorFit) -> list[Reason]:
    relative = float(fit.std[0]) / max(abs(fit.mass), 1e-12)
    if fit.mass <= 0.0:
        return [Reason(WRONG, f"the mass is {quantity(fit.mass, 'kg')}, which no tool has")]
    if relative < SURE:
        return []
    text = (
        f"the mass is known to {100 * Z * relative:.0f} % only (95 %); add poses that tilt the"
        " sensor by 30° or more in several directions, or repeat them"
    )
    return [Reason(WRONG if relative > VAGUE else SUSPECT, text)]


def _drift_reasons(fit: SensorFit) -> list[Reason]:
    weight = abs(fit.mass) * float(np.linalg.norm(fit.gravity))
    drifts = np.array([noise.drifts for noise in fit.noise])
    return drift_reasons(np.ptp(fit.drift, axis=0) * drifts, weight * drift_lengths(fit.centre))


def drift_lengths(centre: np.ndarray) -> np.ndarray:
    """Return (6,) by which the tool's weight is multiplied to compare a channel's drift with it: 1,
    and for torques the lever arm [m].
    """
    arm = max(float(np.linalg.norm(centre)), ARM)
    return np.array([1.0] * 3 + [arm] * 3)


def drift_reasons(ranges: np.ndarray, scales: np.ndarray) -> list[Reason]:
    """Name the drifts (6,) [N, N·m] that matter beside the tool's load (6,), the largest first."""
    reasons = []
    for k in np.argsort(-ranges / scales):
        if ranges[k] < NAMED * scales[k]:
            continue
        text = (
            f"the bias of {CHANNELS[k]} drifts by"
            f" {quantity(float(ranges[k]), 'N' if k < 3 else 'N·m')} over the log; this"
            " is accounted for, but zero the sensor shortly before use"
        )
        reasons.append(Reason(SUSPECT if ranges[k] > LARGE * scales[k] else CORRECTED, text))
    return reasons


def drift_data(drift: np.ndarray, significant: np.ndarray) -> list[Fields]:
    """Return the drift (n, 6) of each channel as plain data."""
    return [
        {
            "channel": name,
            "range": _number(np.ptp(drift[:, k])),
            "end": _number(drift[-1, k]),
            "significant": bool(significant[k]),
        }
        for k, name in enumerate(CHANNELS)
    ]


def _axis_reasons(fit: SensorFit) -> list[Reason]:
    if fit.axes is None or fit.axes.scatter[0] < SURE * abs(fit.mass):
        return []
    said = ", ".join(
        f"{name} {mass:.4g}" for name, mass in zip(CHANNELS, fit.axes.masses, strict=False)
    )
    text = f"the force axes disagree on the mass ({said} kg); have the sensor's gains checked"
    return [Reason(SUSPECT, text)]


def _frame_reasons(fit: SensorFit) -> list[Reason]:
    reasons = []
    if fit.sign < 0.0:
        text = "the sensor states the force that it exerts on the tool; biases are as it reads them"
        reasons.append(Reason(CORRECTED, text))
    for part, what in (
        (MOUNT, "the sensor is mounted turned by {} against the orientation stated"),
        (TILT, "gravity is tilted by {} against the world stated"),
    ):
        angle = float(np.linalg.norm(fit.x[part]))
        if fit.free[part].all() and angle > TURNED:
            reasons.append(Reason(SUSPECT, what.format(f"{np.rad2deg(angle):.1f}°")))
    return reasons


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _numbers(values: np.ndarray) -> list[float | None]:
    return [_number(float(value)) for value in values]
