"""The verdict: whether an identified model is good, usable or not usable, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thetahat.errors import known
from thetahat.report.text import r2

GOOD, FAIR = 0.95, 0.8  # R² of every joint that is good; of the robot, below which it is not usable
WORSE = 1.05  # times the RMS of the file's values: predicting worse than that
LEVELS = ("good", "usable", "not usable")


@dataclass(frozen=True)
class Verdict:
    """Whether a result can be used, in words."""

    level: str  # one of LEVELS
    summary: str  # the facts in one sentence
    reasons: tuple[str, ...] = ()  # what keeps it from being good
    next_steps: tuple[str, ...] = ()  # commands to try

    @property
    def usable(self) -> bool:
        """Whether a controller or a simulator may use the model."""
        return self.level != "not usable"

    @property
    def sentence(self) -> str:
        """The level, the facts and the reasons in one sentence."""
        more = f"; but {'; '.join(self.reasons)}" if self.reasons and self.usable else ""
        why = f"{'; '.join(self.reasons)}; " if self.reasons and not self.usable else ""
        return f"{self.level.capitalize()}: {why}{self.summary}{more}."

    @staticmethod
    def from_data(data: dict[str, Any]) -> Verdict:
        """Return the verdict that estimate.json holds."""
        reasons, steps = tuple(data["reasons"]), tuple(data["next_steps"])
        return Verdict(data["level"], data["summary"], reasons, steps)

    def as_data(self) -> dict[str, Any]:
        """Return the verdict as estimate.json holds it."""
        return {
            "level": self.level,
            "summary": self.summary,
            "reasons": list(self.reasons),
            "next_steps": list(self.next_steps),
        }

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"  next: {step}" for step in self.next_steps)])


def judge(data: dict[str, Any]) -> Verdict:
    """Judge an answer (schema thetahat/estimate/1) by its scores, its bodies and its rank."""
    robot = data["provenance"].get("robot_file") or data["provenance"].get("robot") or "ROBOT"
    fitted = [joint for joint in data["joints"] if joint["rows_train"]]
    scored = [joint for joint in fitted if joint["r2_test"] is not None]
    total, nominal = data["r2"]["test"], data["r2"]["nominal"]
    if data["status"] == "infeasible":
        return Verdict(
            "not usable",
            "the parameters are the prior's own values",
            ("the bounds contradict each other",),
        )
    if total is None or not scored:
        train = data["r2"]["train"]
        fit = "no torque could be scored" if train is None else f"R² {r2(train)} on the rows fitted"
        return Verdict(
            "usable",
            fit,
            ("nothing usable was held out, so how well the model predicts is not known",),
            (f"thetahat validate {robot} OTHER_LOG --estimate estimate.json",),
        )
    least = min(scored, key=lambda joint: joint["r2_test"])
    beside = "" if nominal is None else f" ({r2(nominal)} with the values of the file)"
    summary = (
        f"R² {r2(total)} on held-out data{beside}, lowest {r2(least['r2_test'])} on {least['name']}"
    )
    wrong = _not_usable(total, nominal, scored)
    if wrong:
        return Verdict("not usable", summary, (wrong,), (f"thetahat inspect {robot}",))
    reasons = _reservations(data, scored)
    if not reasons:
        return Verdict("good", f"{summary}; every link is physically consistent")
    short = data["rank"] < data["structural_rank"]
    steps = (f"thetahat excite {robot} --out motion.csv",) if short else ()
    return Verdict("usable", summary, tuple(reasons), steps)


def _not_usable(total: float, nominal: float | None, scored: list[dict[str, Any]]) -> str | None:
    """Return why the model must not be used; None where it may be."""
    if total < FAIR:
        return "it explains too little of the torque"
    if nominal is not None and total < nominal:
        return "the file's own values predict better"
    hopeless = [joint["name"] for joint in scored if joint["r2_test"] < 0.0]
    if hopeless:
        return f"predicting no torque at all would do better on {known(hopeless, 6)}"
    return None


def _reservations(data: dict[str, Any], scored: list[dict[str, Any]]) -> list[str]:
    """Return what keeps a usable model from being good."""
    reasons = []
    low = [joint["name"] for joint in scored if joint["r2_test"] < GOOD]
    if low:
        reasons.append(f"R² is below {GOOD} on {known(low, 6)}")
    behind = [
        joint["name"]
        for joint in scored
        if joint["rms_nominal"] is not None and joint["rms_test"] > WORSE * joint["rms_nominal"]
    ]
    if behind:
        reasons.append(f"the file's own values predict {known(behind, 6)} better")
    if not data["consistent"]:
        wrong = [link["name"] for link in data["links"] if not link["consistent"]]
        reasons.append(
            f"no rigid body has the parameters found for {known(wrong, 4)}, so the model is for"
            " prediction, not for a simulator"
        )
    if data["rank"] < data["structural_rank"]:
        reasons.append(
            f"the log identifies {data['rank']} of {data['structural_rank']} base parameters"
        )
    return reasons
