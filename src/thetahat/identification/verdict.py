"""The verdict: whether an identified model is good, usable or not usable, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thetahat.errors import known

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
            "not usable", "the parameters are the prior's", ("the bounds are infeasible",)
        )
    if total is None or not scored:
        train = data["r2"]["train"]
        fit = "no torque was scored" if train is None else f"R² {r2_text(train)} on the fitted data"
        return Verdict(
            "usable",
            fit,
            ("not validated: no usable held-out data",),
            (f"thetahat validate {robot} OTHER_LOG --estimate estimate.json",),
        )
    lowest = min(scored, key=lambda joint: joint["r2_test"])
    beside = "" if nominal is None else f" (nominal robot: {r2_text(nominal)})"
    summary = (
        f"R² {r2_text(total)} on held-out data{beside}, lowest on {lowest['name']}:"
        f" {r2_text(lowest['r2_test'])}"
    )
    wrong = _not_usable(total, nominal, scored)
    if wrong:
        return Verdict("not usable", summary, (wrong,), (f"thetahat inspect {robot}",))
    reasons = _reservations(data, scored)
    if not reasons:
        return Verdict("good", f"{summary}; all bodies are physically consistent")
    short = data["rank"] < data["structural_rank"]
    steps = (f"thetahat excite {robot} --out motion.csv",) if short else ()
    return Verdict("usable", summary, tuple(reasons), steps)


def _not_usable(total: float, nominal: float | None, scored: list[dict[str, Any]]) -> str | None:
    """Return why the model must not be used; None where it may be."""
    if total < FAIR:
        return "the model explains too little of the torque"
    if nominal is not None and total < nominal:
        return "the nominal parameters predict better"
    useless = [joint["name"] for joint in scored if joint["r2_test"] < 0.0]
    return f"predicting zero torque would be better on {known(useless, 6)}" if useless else None


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
        reasons.append(
            f"the nominal parameters predict {known(behind, 6)} better (check the log, --cutoff"
            " and, for coupled joints, --actuation)"
        )
    if not data["consistent"]:
        wrong = [link["name"] for link in data["links"] if not link["consistent"]]
        reasons.append(
            f"the parameters of {known(wrong, 4)} are not physically consistent: use them for"
            " prediction, not in a simulator"
        )
    rank, structural = data["rank"], data["structural_rank"]
    if rank < structural:
        reasons.append(f"the log identifies {rank} of {structural} base parameters")
    return reasons


def r2_text(value: float) -> str:
    """Format R² with four decimals, never rounded up to one."""
    text = f"{value:.4f}" if value > -10.0 else f"{value:.3g}"
    return ("> 0.9999" if value < 1.0 and text == "1.0000" else text).replace("-", "−")
