"""Payloads as plain data, schema thetahat/payload/1. What the motion does not tell is None."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from thetahat.identification.estimate_json import number, numbers
from thetahat.identification.payload.payload_result import PARTS, UPPER, Payload
from thetahat.identification.verdict_reason import Fields
from thetahat.model.io.gains_json import DriveGain

SCHEMA = "thetahat/payload/1"


def payload_data(payload: Payload, *, name: str, known_mass: float | None) -> Fields:
    """Return one payload: its numbers in the frame of its link, with standard deviations.

    known_mass: [kg] that was given, and not identified.
    """
    hidden = set(payload.unseen) - ({"mass"} if known_mass is not None else set())
    com, com_std = (_shown(PARTS[1:4], values, hidden) for values in (payload.com, payload.com_std))
    inertia, inertia_std = (
        _shown(PARTS[4:], values[UPPER], hidden)
        for values in (payload.inertia_com, payload.inertia_std)
    )
    mass = payload.mass if known_mass is None else known_mass
    std = payload.mass_std if known_mass is None else None
    return {
        "name": name,
        "link": payload.link,
        "frame": payload.frame,
        "mass": None if "mass" in hidden else number(mass),
        "std": number(std),
        "mass_known": known_mass is not None,
        "com": com,
        "com_std": com_std,
        "inertia_com": inertia,
        "inertia_std": inertia_std,
        "theta": numbers(payload.theta),
        "theta_std": numbers(payload.theta_std),
        "unidentified": [part for part in PARTS if part in hidden],
        "consistent": payload.consistent,
        "replaced": payload.replaced,
        "misfit": number(payload.misfit),
        "status": payload.status,
        "advice": list(payload.advice),
    }


def _shown(
    parts: Iterable[str], values: np.ndarray | np.ma.MaskedArray, hidden: set[str]
) -> list[float | None]:
    return [
        None if part in hidden else value
        for part, value in zip(parts, numbers(values), strict=True)
    ]


def gains_data(gains: Iterable[DriveGain]) -> list[Fields]:
    """Return the gains of joints; None where the motion does not tell one."""
    return [{"joint": each.joint, "gain": each.gain, "std": each.std} for each in gains]
