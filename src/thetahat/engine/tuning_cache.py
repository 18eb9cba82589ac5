"""What `tune` chose, as a store keeps it: settings, the law of dry friction, further friction, the
strength of the prior.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from thetahat.engine.settings_cache import KEPT, settings_from
from thetahat.identification.tuning.tune import Tuned
from thetahat.model.friction_terms import KNOWN, FrictionDirection, term_from_settings
from thetahat.model.robot import Robot


def dumped(tuned: Tuned) -> dict[str, Any] | None:
    """As JSON holds it; None where a friction term is code that no file holds."""
    drive = tuned.robot.drive
    if any(shape.term not in KNOWN or not shape.settings for shape, _ in drive.extra):
        return None
    return {
        "settings": asdict(tuned.settings),
        "identified": list(drive.identified),
        "dry": (
            None
            if drive.dry is None
            else {"zone": drive.dry.zone.tolist(), "travel": drive.dry.travel.tolist()}
        ),
        "extra": [
            [shape.term, {name: list(values) for name, values in shape.settings}, value.tolist()]
            for shape, value in drive.extra
        ],
        "weight": float(tuned.weight),
        "metric": tuned.metric,
        "reasons": list(tuned.reasons),
        "rms": None if tuned.rms is None else np.asarray(tuned.rms).tolist(),
    }


def loaded(data: dict[str, Any], fitted: Robot) -> Tuned:
    """The same for the robot whose columns were to be chosen."""
    motors = len(fitted.drive.viscous)
    extra = [
        (term_from_settings(term, settings, motors=motors, where="the store"), np.array(values))
        for term, settings, values in data["extra"]
    ]
    dry = (
        None
        if data["dry"] is None
        else FrictionDirection(np.array(data["dry"]["zone"]), np.array(data["dry"]["travel"]))
    )
    drive = replace(fitted.drive, extra=tuple(extra), identified=tuple(data["identified"]), dry=dry)
    settings = settings_from(data["settings"])
    return Tuned(
        settings=replace(settings, reasoning=f"{settings.reasoning.removesuffix(KEPT)}{KEPT}"),
        robot=replace(fitted, drive=drive),
        weight=data["weight"],
        metric=data["metric"],
        reasons=tuple(data["reasons"]),
        rms=None if data["rms"] is None else np.array(data["rms"]),
    )
