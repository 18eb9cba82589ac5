"""The verdict on a fleet: whether the models behind its findings describe the robots.

Findings are the answer of an analysis and no fault of it. What can be wrong are the fits of which
they are differences: rows that a model does not explain, and logs that were left out. A period has
no held-out rows, so that scores are of the rows that were fitted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from thetahat.errors import known
from thetahat.identification.verdict import FAIR, GOOD, Verdict, verdict_of
from thetahat.identification.verdict_reason import SUSPECT, WRONG, Data, Reason

MOST_NAMES = 6


def judge_robot(data: Data) -> Verdict:
    """Judge one robot of an answer, schema thetahat/fleet/1, by its periods' fits."""
    scored = [period for period in data["periods"] if period["r2"] is not None]
    if not scored:
        return verdict_of(
            "no torque was fitted", [Reason(WRONG, "no period has torque to explain")]
        )
    lowest = min(scored, key=lambda period: period["r2"])
    periods = f"{len(scored)} period{'' if len(scored) == 1 else 's'}"
    summary = f"R² at least {lowest['r2']:.4f} on the fitted rows of {periods}"
    return verdict_of(summary, list(_robot_reasons(data, scored)))


def _robot_reasons(data: Data, scored: list[Data]) -> Iterator[Reason]:
    robot = shlex.quote(str(data["robot_file"] or "ROBOT"))
    again = (f"thetahat identify {robot} LOG --out result",)
    for effect, low, high in ((WRONG, -float("inf"), FAIR), (SUSPECT, FAIR, GOOD)):
        labels = [period["label"] for period in scored if low <= period["r2"] < high]
        if labels:
            text = f"R² is below {high} on the fitted rows of {known(labels, MOST_NAMES)}"
            yield Reason(effect, text, again)
    if len(scored) < len(data["periods"]):
        silent = [period["label"] for period in data["periods"] if period["r2"] is None]
        yield Reason(SUSPECT, f"no torque to explain in {known(silent, MOST_NAMES)}")
    short = [period["label"] for period in scored if not period["resolved"]]
    if short:
        text = (
            f"{known(short, MOST_NAMES)} too short for the noise's correlation: deviations may be"
            " overstated"
        )
        yield Reason(SUSPECT, text)


def judge_fleet_answer(data: Data, summary: str) -> Verdict:
    """Judge a whole answer, whose robots have verdicts: not usable if no robot's is usable."""
    robots, reasons = data["robots"], []
    for level in ("not usable", "usable"):
        named = [robot for robot in robots if robot["verdict"]["level"] == level]
        if not named:
            continue
        effect = WRONG if level == "not usable" and len(named) == len(robots) else SUSPECT
        first = named[0]["verdict"]
        text = (
            f"{known([robot['id'] for robot in named], MOST_NAMES)} {level}: {first['reasons'][0]}"
        )
        reasons.append(Reason(effect, text, tuple(first["next_steps"])))
    left_out = data["left_out"]
    if left_out:
        text = f"{len(left_out)} left out: {left_out[0]['sentence']}"
        reasons.append(Reason(SUSPECT, text))
    return verdict_of(summary, reasons)
