"""Write an estimate as plain data: `estimate.json`, schema thetahat/estimate/1.

Unknown or not estimated is None, never NaN. `read_estimate.py` reads it back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from thetahat.data.types import Finding
from thetahat.identification.consistency.plausibility import Plausibility
from thetahat.identification.estimate import Estimate
from thetahat.identification.identifiability.base_parameters import ALONE, NEVER
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.scores import Validation
from thetahat.model import parameters
from thetahat.model.drive import TERMS
from thetahat.model.joint_units import joint_units
from thetahat.model.robot import Robot

SCHEMA = "thetahat/estimate/1"
PLAIN = "pseudo-inverse"  # name of its scores beside those of the estimate


def as_data(
    estimate: Estimate,
    *,
    rows: Iterable[int],
    robot: Robot | None = None,
    test: Validation | None = None,
    raw: Validation | None = None,
    plausibility: Plausibility | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an estimate, and its scores on held-out samples, as JSON holds them, not yet judged.

    rows: torques that were fitted, per degree of freedom. robot: as its file states it. raw: scores
        on the same held-out rows, torques unfiltered.
    """
    nominal = None if test is None else test.nominal
    plain = None if test is None else test.beside.get(PLAIN)
    links = _links(estimate)
    return {
        "schema": SCHEMA,
        "method": estimate.method,
        "samples": int(estimate.samples),
        "rank": int(estimate.rank),
        "structural_rank": len(estimate.base),
        "columns": int(estimate.base.columns),
        "condition": number(estimate.condition),
        "weak_prior_share": number(estimate.weak_prior_share),
        "r2": {
            "train": number(estimate.r2),
            "test": None if test is None else number(test.r2_total),
            "test_raw": None if raw is None else number(raw.r2_total),
            "nominal": None if nominal is None else number(nominal.r2_total),
            "pseudo_inverse": None if plain is None else number(plain.r2_total),
        },
        "score_cutoff": None if test is None else number(test.cutoff),
        "consistent": bool(estimate.consistent),
        "status": estimate.status,
        "certificate": _certificate(estimate),
        "plausibility": None if plausibility is None else _plausibility(plausibility),
        "joints": _joints(estimate, list(rows), test, raw),
        "motors": _motors(estimate),
        "actuation": _actuation(estimate),
        "friction": _friction(estimate),
        "links": links,
        "base_parameters": _base(estimate, robot),
        "base_covariance": _covariance(estimate.covariance),
        "unseen": list(estimate.unseen),
        "advice": list(estimate.advice),
        "parity": None,  # of the robot file, when it is written
        "provenance": dict(provenance or {}),
    }


def findings(found: Iterable[Finding], name: str) -> list[dict[str, Any]]:
    """Return findings as JSON holds them; name: what their log was used for."""
    return [
        {
            "log": name,
            "kind": f.kind,
            "joint": f.joint,
            "rows": None if f.rows is None else [int(row) for row in f.rows],
            "message": f.message,
            "effect": f.effect,
        }
        for f in found
    ]


def number(value: Any) -> float | None:
    """Return a finite float, or None."""
    if value is None or value is np.ma.masked:
        return None
    value = float(value)
    return value if math.isfinite(value) else None


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Return each as a finite float, or None."""
    return [number(value) for value in values]


# -- parts -----------------------------------------------------------------------------------------


def _joints(
    estimate: Estimate, rows: list[int], test: Validation | None, raw: Validation | None
) -> list[dict[str, Any]]:
    """Scores and drive terms of every degree of freedom."""

    def at(scores: Any, name: str, j: int) -> float | None:
        return None if scores is None else number(getattr(scores, name)[j])

    drive = {motor["name"]: motor for motor in _drive(estimate)}
    nominal = None if test is None else test.nominal
    plain = None if test is None else test.beside.get(PLAIN)
    out, units = [], joint_units(estimate.robot)
    for j, name in enumerate(estimate.robot.velocity_names):
        known = drive.get(name, {})
        out.append(
            {
                "name": name,
                "unit": units[j][0],
                "rows_train": int(rows[j]),
                "rows_test": None if test is None else int(test.rows[j]),
                "r2_train": number(estimate.r2_per_joint[j]) if rows[j] else None,
                "r2_test": at(test, "r2", j),
                "r2_test_moving": at(test, "r2_moving", j),
                "r2_test_raw": at(raw, "r2", j),
                "r2_nominal": at(nominal, "r2", j),
                "r2_pseudo_inverse": at(plain, "r2", j),
                "rms_train": (
                    number(estimate.residual_norms[j] / math.sqrt(rows[j])) if rows[j] else None
                ),
                "rms_test": at(test, "rms", j),
                "rms_nominal": at(nominal, "rms", j),
                "rms_pseudo_inverse": at(plain, "rms", j),
                "noise": _noise(estimate, j),
                **{term: known.get(term) for term in TERMS},
                "std": {term: known.get("std", {}).get(term) for term in TERMS},
            }
        )
    return out


def _noise(estimate: Estimate, j: int) -> dict[str, Any] | None:
    """What the residuals say of a joint's torque noise, where the samples were seen."""
    model = estimate.noise
    if model is None or number(model.std[j]) is None:
        return None
    return {
        "std": number(model.std[j]),
        "correlation_time": number(model.correlation_time[j]),
        "effective_rows": number(model.effective[j]),
        "inflation": number(model.inflation[j]),
        "resolved": bool(model.resolved[j]),
    }


def _drive(estimate: Estimate) -> list[dict[str, Any]]:
    """Identified drive terms, and their standard deviations, of every motor that has columns."""
    columns = Columns(estimate.robot)
    terms = columns.drive.identified
    std = estimate.full_std[columns.inertial :].reshape(len(terms), len(columns.motor_names))
    never = np.array(
        [kind == NEVER for kind in estimate.base.kinds[columns.inertial :]], dtype=bool
    ).reshape(len(terms), len(columns.motor_names))
    out = []
    for m, name in enumerate(columns.motor_names):
        values = {
            term: None if never[t, m] else number(estimate.drive[term][m])
            for t, term in enumerate(terms)
        }
        out.append(
            {
                "name": name,
                **values,
                "std": {term: number(std[t, m]) for t, term in enumerate(terms)},
            }
        )
    return out


def _motors(estimate: Estimate) -> list[dict[str, Any]] | None:
    """Drive terms by motor, where motors are not the joints themselves."""
    return None if estimate.robot.drive.actuation is None else _drive(estimate)


def _actuation(estimate: Estimate) -> dict[str, Any] | None:
    """The map from motors to joints, a row per degree of freedom; no map where it depends on q."""
    actuation = estimate.robot.drive.actuation
    if actuation is None:
        return None
    B = actuation.B
    return {
        "motors": list(actuation.names),
        "map": [numbers(row) for row in B] if isinstance(B, np.ndarray) else None,
    }


def _friction(estimate: Estimate) -> dict[str, Any] | None:
    """Coulomb transition and friction terms beyond the four, by motor; None without either."""
    robot = estimate.robot
    drive = robot.drive
    if drive.dry is None and not drive.extra:
        return None
    columns, terms = Columns(robot), {}
    for shape, _ in drive.extra:
        if shape.term not in drive.identified:
            continue
        values = np.zeros(len(drive.viscous))
        spreads: list[float | None] = [None] * len(drive.viscous)
        at = columns.inertial + drive.identified.index(shape.term) * len(drive.column_motors)
        for k, motor in enumerate(drive.column_motors):
            # of a motor that has the term at all
            if not shape.settings or np.broadcast_to(shape.settings[0][1], values.shape)[motor]:
                values[motor], spreads[motor] = (
                    estimate.drive[shape.term][k],
                    number(estimate.full_std[at + k]),
                )
        terms[shape.term] = {
            "values": numbers(values),
            "std": spreads,
            "unit": shape.units[0],
            "settings": {name: list(setting) for name, setting in shape.settings},
        }
    dry = drive.dry
    return {
        "motors": list(robot.velocity_names if drive.actuation is None else drive.actuation.names),
        "zone": None if dry is None else numbers(dry.zone),
        "travel": None if dry is None else numbers(dry.travel),
        "terms": terms,
    }


def _links(estimate: Estimate) -> list[dict[str, Any]]:
    """Every body: its ten parameters, their uncertainty, and which are identifiable alone."""
    robot, out = estimate.robot, []
    std = estimate.std.reshape(-1, 10)
    decided = estimate.decided_by_prior[: len(robot.theta)].reshape(-1, 10)
    kinds = np.array(estimate.base.kinds, dtype=object)[: len(robot.theta)].reshape(-1, 10)
    for b, (name, theta) in enumerate(
        zip(robot.body_names, estimate.theta.reshape(-1, 10), strict=True)
    ):
        alone = [
            n
            for n, kind, spread in zip(parameters.NAMES, kinds[b], std[b], strict=True)
            if kind == ALONE and spread is not np.ma.masked
        ]
        out.append(
            {
                "name": name,
                "links": [link.name for link in robot.links if link.body == b],
                **_mass_com_inertia(theta),
                "theta": numbers(theta),
                "std": numbers(std[b]),
                "identifiable": alone,
                "decided_by_prior": [
                    n for n, prior in zip(parameters.NAMES, decided[b], strict=True) if prior
                ],
                "consistent": bool(estimate.consistency[b]),
                "condition": estimate.consistency[b].condition or None,
                "nominal": _mass_com_inertia(robot.theta.reshape(-1, 10)[b]),
            }
        )
    return out


def _base(estimate: Estimate, nominal: Robot | None) -> list[dict[str, Any]]:
    """What the log determines, beside what the robot's file says of the same sums."""
    columns = Columns(estimate.robot)
    stated: Sequence[float | None] | np.ndarray = [None] * len(estimate.base)
    # Files state friction of joints, not of motors that drive several.
    if nominal is not None and (columns.drive.actuation is None or not columns.drive.column_count):
        motors = list(columns.drive.column_motors)
        stated_terms = nominal.drive.terms
        drive = [
            nominal.drive.value(term)[motors] if term in stated_terms else np.zeros(len(motors))
            for term in columns.drive.identified
        ]
        stated = estimate.base.map @ np.concatenate([nominal.theta, *drive])
    return [
        {
            "name": name,
            "value": number(value),
            "std": number(std),
            "relative_std": number(relative),
            "nominal": number(x),
            "prior_share": number(share),
            "flags": list(flags),
        }
        for name, value, std, relative, x, share, flags in zip(
            estimate.base.names,
            estimate.x_base,
            estimate.base_std,
            estimate.base_relative_std,
            stated,
            estimate.base_prior_share,
            estimate.flags,
            strict=True,
        )
    ]


def _covariance(covariance: np.ndarray) -> list[list[float | None]]:
    """Rows of the lower triangle, of base parameters in their order; None: not determined. Nine
    digits: it is the largest part of the file.
    """
    return [
        [None if value is None else float(f"{value:.9g}") for value in numbers(row[: k + 1])]
        for k, row in enumerate(covariance)
    ]


def _certificate(estimate: Estimate) -> dict[str, Any] | None:
    """What proves a constrained fit to be the best one."""
    certificate = estimate.certificate
    if certificate is None:
        return None
    return {
        "objective": number(certificate.objective),
        "gap": number(certificate.gap),
        "infeasibility": number(certificate.infeasibility),
        "eigenvalue": number(certificate.eigenvalue),
        "iterations": int(certificate.iterations),
        "solver": certificate.solver,
    }


def _plausibility(plausibility: Plausibility) -> dict[str, object]:
    """How the bodies compare with those of a real robot."""
    return {
        "total_mass": number(plausibility.total_mass),
        "total_mass_file": number(plausibility.total_mass_file),
        "mass_range": None if plausibility.mass_range is None else list(plausibility.mass_range),
        "placeholder": plausibility.placeholder,
        "links": [
            {
                "name": link.name,
                "mass_ratio": number(link.mass_ratio),
                "com_outside": number(link.com_outside),
                "size_ratio": number(link.size_ratio),
                "size_ratio_file": number(link.size_ratio_file),
                "region": link.region,
            }
            for link in plausibility.links
        ],
        "on_bound": [
            {"name": bound.name, "multiplier": number(bound.multiplier), "soft": bound.soft}
            for bound in plausibility.on_bound
        ],
        "given_up": [
            {
                "name": bound.name,
                "evidence": number(bound.evidence),
                "threshold": number(bound.threshold),
            }
            for bound in plausibility.given_up
        ],
        "notes": list(plausibility.notes),
    }


def _mass_com_inertia(theta: np.ndarray) -> dict[str, Any]:
    """Mass, centre of mass and inertia about it (xx, xy, xz, yy, yz, zz); a body without mass has
    no centre.
    """
    if abs(theta[parameters.M]) <= 1e-9 * np.max(np.abs(theta)):
        return {"mass": number(theta[parameters.M]), "com": [None] * 3, "inertia_com": [None] * 6}
    mass, com, inertia = parameters.to_mass_com_inertia(theta)
    upper = inertia[np.triu_indices(3)]
    return {"mass": number(mass), "com": numbers(com), "inertia_com": numbers(upper)}
