"""A fleet's estimates among the runs that a store remembers: one run per robot and period, once for
each estimate.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from thetahat import __version__
from thetahat.engine import run_history
from thetahat.engine.store import Store
from thetahat.fleet.analysis import Inquiry
from thetahat.fleet.findings import Lived
from thetahat.fleet.period_estimates import PeriodEstimate, Recipe, Task
from thetahat.identification.estimate_json import number, numbers

SCHEMA = "thetahat/fleet-period/1"


def remember(store: Store, found: Inquiry) -> int:
    """Leave every period's estimate, verdict and provenance, unless the same estimate is remembered
    already; how many were new.
    """
    count = 0
    for robot in found.lives:
        recipe = found.recipes[robot.name]
        for label, estimate in zip(robot.labels, robot.periods, strict=True):
            key = (
                None if estimate.left_out else found.keys.get((robot.name, label))
            )  # which is that of all its logs
            if key is not None and run_history.remembered(store, robot.name, label, key):
                continue
            task = found.tasks[robot.name, label]
            run = run_history.begin(store, recipe.robot, owner=robot.name, period=label)
            answer = described(recipe, task, estimate, robot.space.base.names)
            verdict = _verdict(found, robot, label, estimate)
            run_history.finish(
                store,
                run,
                answer,
                verdict=verdict,
                fold=recipe.work.fingerprint,
                root=key,
                failures=estimate.left_out,
            )
            count += 1
    return count


def described(
    recipe: Recipe, task: Task, estimate: PeriodEstimate, names: tuple[str, ...]
) -> dict[str, Any]:
    """A period's estimate as `thetahat diff` takes it: what schema thetahat/estimate/1 calls the
    same has the same names.
    """
    settings, drive, source = recipe.settings, recipe.fitted.drive, recipe.robot.source
    std = np.sqrt(np.diag(estimate.covariance))
    gone = {failure.name for failure in estimate.left_out}
    return {
        "schema": SCHEMA,
        "method": "least-squares",
        "samples": int(estimate.rows),
        "rank": int(estimate.rank),
        "r2": {"train": number(estimate.r2), "test": None},
        "consistent": None,  # least squares is asked what changed, not whether a body can be that
        "status": "solved",
        "joints": [
            {"name": name, "r2_test": None, "rms_test": None, "rms_train": number(rms)}
            for name, rms in zip(recipe.fitted.velocity_names, estimate.rms, strict=True)
        ],
        "masses": dict(zip(recipe.fitted.body_names, numbers(estimate.masses), strict=True)),
        "base_parameters": [
            {"name": name, "value": number(value), "std": number(spread)}
            for name, value, spread in zip(names, estimate.x_base, std, strict=True)
        ],
        "provenance": {
            "robot": task.robot,
            "robot_file": None if source is None else str(source),
            "robot_sha256": (
                None if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()
            ),
            "logs": [
                {"path": item.given, "sha256": survey.digest}
                for item, survey in task.files
                if item.name not in gone
            ],
            "version": __version__,
            "settings": {
                "cutoff": settings.cutoff,
                "torque_cutoff": settings.torque_cutoff,
                "delay": settings.delay,
                "min_speed": list(settings.min_speed),
                "friction": list(drive.identified),
                "prior_weight": recipe.weight,
                "metric": recipe.metric,
                "weights": recipe.weights,
                "locked": list(recipe.locked),
            },
        },
    }


def _verdict(found: Inquiry, robot: Lived, label: str, estimate: PeriodEstimate) -> str:
    """What the fleet says of a period: how well it was fitted, and what was found to begin
    there.
    """
    fit = (
        "no torque to explain"
        if estimate.r2 is None
        else f"R² {estimate.r2:.4f} on the rows that were fitted"
    )
    mine = [
        each.sentence
        for each in found.judged.findings
        if each.robot == robot.name and each.period == label
    ]
    return f"{'Changed' if mine else 'Fitted'}: {'; '.join([fit, *mine])}"
