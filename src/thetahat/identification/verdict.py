"""The verdict: whether an identified model is good, usable or not usable, why, and what to do next.

Every rule yields reasons, and the worst of them decides. So a result never gets better by getting
worse in one respect. What a result does not state (an older file, a live run) is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from thetahat.errors import known
from thetahat.identification.next_steps import Commands
from thetahat.identification.uncertainty.flags import DECIDES, ILL_CONDITIONED
from thetahat.identification.verdict_bodies import body_reasons
from thetahat.identification.verdict_findings import finding_reasons
from thetahat.identification.verdict_intervals import interval_reasons
from thetahat.identification.verdict_reason import (
    CORRECTED,
    SUSPECT,
    WRONG,
    Data,
    Fields,
    Reason,
    quantity,
)
from thetahat.identification.verdict_rollout import rollout_reasons
from thetahat.identification.verdict_static import static_reasons

GOOD, FAIR = 0.95, 0.8  # R² of every joint that is good; of the robot, below which it is not usable
CLOSE = 0.99  # R² of a joint whose held-out error is small, however little noise there is
WORSE = 1.05  # times the RMS of the file's values: predicting worse than that
LOUDER = 3.0  # times the noise: held-out error beyond that is no noise
LIKE_NOISE = 1.5  # times the noise: held-out error below that can hardly be lower
STILL, SLOW = 0.05, 0.05  # share of rows in motion; speed relative to the robot's median joint
SHORT, USUAL_LENGTH = 5.0, 20.0  # [s] fitted: too short below; what to record then
LEVELS = ("good", "usable", "not usable")
STEPS = 3  # next steps at most


@dataclass(frozen=True)
class Verdict:
    """Whether a result can be used, in words."""

    level: str  # one of LEVELS
    summary: str  # the facts in one sentence
    reasons: tuple[str, ...] = ()  # what keeps it from being good, or was corrected; gravest first
    next_steps: tuple[str, ...] = ()  # commands to try, the most useful first

    @property
    def usable(self) -> bool:
        """Whether a controller or a simulator may use the model."""
        return self.level != "not usable"

    @property
    def headline(self) -> str:
        """The level, and what matters most, in one line."""
        first = self.summary if self.usable or not self.reasons else self.reasons[0]
        return f"{self.level.capitalize()}: {first}."

    @property
    def details(self) -> tuple[str, ...]:
        """What the headline leaves out, a sentence each."""
        if self.usable or not self.reasons:
            return self.reasons
        return (*self.reasons[1:], self.summary)

    @property
    def sentence(self) -> str:
        """The level, the facts and the reasons in one sentence."""
        link = "; but " if self.level == "usable" else "; "
        parts = (self.headline[:-1], "; ".join(self.details))
        return f"{link.join(part for part in parts if part)}."

    @staticmethod
    def from_data(data: Data) -> Verdict:
        """Return the verdict that estimate.json holds."""
        reasons, steps = tuple(data["reasons"]), tuple(data["next_steps"])
        return Verdict(data["level"], data["summary"], reasons, steps)

    def as_data(self) -> Fields:
        """Return the verdict as estimate.json holds it."""
        return {
            "level": self.level,
            "summary": self.summary,
            "reasons": list(self.reasons),
            "next_steps": list(self.next_steps),
        }

    def __str__(self) -> str:
        details = (f"  - {text}" for text in self.details)
        return "\n".join(
            [self.headline, *details, *(f"  next: {step}" for step in self.next_steps)]
        )


def judge(data: Data, out: str = "result") -> Verdict:
    """Judge an answer, schema thetahat/estimate/1.

    It weighs held-out error against noise and against the nominal model, the bodies' plausibility,
    excitation, length of the log, and what the audit found.

    Args:
        data: the answer.
        out: the folder it is written to, for next steps that name its files.

    """
    commands = Commands.of(data, out)
    if data["status"] == "infeasible":
        reason = Reason(WRONG, "the bounds are infeasible", (commands.inspect,))
        return verdict_of("the parameters are the prior's", [reason], commands.validate)
    rules: tuple[Callable[[Data, Commands], Iterable[Reason]], ...] = (
        finding_reasons,  # causes before what they cause
        _length_reasons,
        _excitation_reasons,
        _score_reasons,
        rollout_reasons,
        body_reasons,
        interval_reasons,
        _solver_reasons,
    )
    static = data.get("static")
    if static:  # motion was not asked for
        rules = (finding_reasons, _score_reasons, body_reasons, _solver_reasons)
    reasons = [reason for rule in rules for reason in rule(data, commands)]
    reasons += static_reasons(static) if static else ()
    return verdict_of(_summary(data), reasons, commands.validate)


def with_verdict(data: Data, out: str = "result") -> Fields:
    """Return an answer with its verdict."""
    return {**data, "verdict": judge(data, out).as_data()}


def judge_scores(data: Data, estimate: Verdict | None = None) -> Verdict:
    """Judge how well a robot predicts a log, schema thetahat/validation/1.

    estimate: the verdict of the estimate that is scored: what is not usable stays so.
    """
    commands = Commands.of(data, "result")
    rules = (_score_reasons, rollout_reasons, finding_reasons)
    reasons = [reason for rule in rules for reason in rule(data, commands)]
    if estimate is not None and estimate.level != "good":
        effect = SUSPECT if estimate.usable else WRONG
        text = estimate.headline[:-1]
        reasons.append(Reason(effect, f"the estimate is {text[:1].lower()}{text[1:]}"))
    judged = verdict_of(_summary(data, "this log", "other robot"), reasons)
    again = () if judged.level == "good" else (commands.identify(""),)
    return replace(judged, next_steps=again)


def verdict_of(summary: str, reasons: Sequence[Reason], usual: str | None = None) -> Verdict:
    """Return the verdict that the worst reason decides, gravest reasons first.

    usual: the next step where no reason names one.
    """
    order = (WRONG, SUSPECT, CORRECTED)
    ranked = sorted(reasons, key=lambda reason: order.index(reason.effect))  # stable
    effects = {reason.effect for reason in ranked}
    level = LEVELS[2 if WRONG in effects else 1 if SUSPECT in effects else 0]
    helpful = [reason for reason in ranked if reason.advice or reason.effect != CORRECTED]
    steps = [step for reason in helpful for step in reason.steps]
    if level == "good" or not steps:
        steps = [] if usual is None else [usual]
    ordered = tuple(dict.fromkeys(steps))[:STEPS]
    return Verdict(level, summary, tuple(reason.text for reason in ranked), ordered)


def _summary(data: Data, rows: str = "held-out data", other: str = "nominal robot") -> str:
    """Return the facts in a sentence: scores, and the masses where they are known."""
    total, nominal = data["r2"]["test"], data["r2"]["nominal"]
    scored = _scored(data)
    if total is None or not scored:
        train = data["r2"].get("train")
        return "no torque was scored" if train is None else f"R² {r2_text(train)} on fitted data"
    lowest = min(scored, key=lambda joint: joint["r2_test"])
    beside = "" if nominal is None else f" ({other}: {r2_text(nominal)})"
    text = (
        f"R² {r2_text(total)} on {rows}{beside}, lowest on {lowest['name']}:"
        f" {r2_text(lowest['r2_test'])}"
    )
    masses = data.get("plausibility") or {}
    total_mass, stated = masses.get("total_mass"), masses.get("total_mass_file")
    if data.get("consistent") and total_mass and stated:
        text += f"; {quantity(total_mass, 'kg')} in all ({quantity(stated, 'kg')} in the file)"
    return text


# -- scores ----------------------------------------------------------------------------------------


def _scored(data: Data) -> list[Data]:
    """Return the joints that were fitted and scored."""
    return [
        joint
        for joint in data["joints"]
        if joint.get("rows_train", 1) and joint["r2_test"] is not None
    ]


def _noise(joint: Data) -> float | None:
    """Return the noise of a joint's torque, else what least squares leaves of held-out rows."""
    noise = joint.get("noise") or {}
    return noise.get("std") or joint.get("rms_pseudo_inverse")


def _at_noise(joint: Data) -> bool:
    """Whether held-out error is noise, of a joint whose torque the fit does explain.

    Where the held-out rows have little torque, R² is low however good the model is.
    """
    noise = (joint.get("noise") or {}).get("std")
    if noise is None or joint["rms_test"] is None or (joint.get("r2_train") or 0.0) < GOOD:
        return False
    return bool(joint["rms_test"] <= LIKE_NOISE * noise)


def _score_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """Held-out error: R², against the nominal model, and against noise."""
    total, nominal, scored = data["r2"]["test"], data["r2"]["nominal"], _scored(data)
    if total is None or not scored:
        yield Reason(SUSPECT, "not validated: no usable held-out data", (commands.validate,))
        return
    if total < FAIR:
        text = f"the model explains too little of the torque (R² {r2_text(total)}, below {FAIR})"
        yield Reason(WRONG, text, (commands.inspect,))
    if nominal is not None and total < nominal:
        text = (
            f"the nominal parameters predict better (R² {r2_text(nominal)} against"
            f" {r2_text(total)})"
        )
        yield Reason(WRONG, text, (commands.inspect,))
    yield from _low_scores([joint for joint in scored if joint["r2_test"] < GOOD], commands)
    behind = [
        joint["name"]
        for joint in scored
        if joint["rms_nominal"] is not None and joint["rms_test"] > WORSE * joint["rms_nominal"]
    ]
    if behind:
        text = (
            f"the nominal parameters predict {known(behind, 6)} better (check the log, --cutoff"
            " and, for coupled joints, --actuation)"
        )
        yield Reason(SUSPECT, text, (commands.score_nominal,))
    yield from _noise_reasons(scored, commands)


def _low_scores(low: list[Data], commands: Commands) -> Iterator[Reason]:
    """Yield joints of low R²: of an error that is noise, of a useless model, and others."""
    at_noise = [joint for joint in low if _at_noise(joint)]
    others = [joint for joint in low if not _at_noise(joint)]
    useless = [joint for joint in others if joint["r2_test"] < 0.0]
    if useless:
        text = f"predicting zero torque would be better on {_each(useless, 'r2_test')}"
        yield Reason(WRONG, text, (commands.inspect,))
    others = [joint for joint in others if joint["r2_test"] >= 0.0]
    if others:
        text = f"R² is below {GOOD} on {_each(others, 'r2_test')}"
        yield Reason(SUSPECT, text, (commands.load_friction,))
    if at_noise:
        text = (
            f"R² is below {GOOD} on {_each(at_noise, 'r2_test')}, though the error is no more than"
            " the noise: the held-out rows have too little torque to tell"
        )
        yield Reason(SUSPECT, text, (commands.validate,))


def _noise_reasons(scored: list[Data], commands: Commands) -> Iterator[Reason]:
    """Yield the held-out error that noise explains least, and which joints share that."""
    ratios = []
    for joint in scored:
        noise, error = _noise(joint), joint["rms_test"]
        if noise and error is not None and joint["r2_test"] < CLOSE and error > LOUDER * noise:
            ratios.append((error / noise, joint["name"], error, noise, joint.get("unit") or "N·m"))
    if not ratios:
        return
    ratios.sort(reverse=True)
    ratio, name, error, noise, unit = ratios[0]
    others = [each[1] for each in ratios[1:]]
    text = (
        f"the held-out error of {name} is {quantity(error, unit)}, {ratio:.1f} times the noise of"
        f" the fitted rows ({quantity(noise, unit)}): the held-out motion shows what the fitted one"
        f" does not{f' (likewise {known(others, 6)})' if others else ''}"
    )
    yield Reason(SUSPECT, text, (commands.excite_after,))


def _each(joints: list[Data], key: str) -> str:
    """Return names with their scores, lowest first."""
    ordered = sorted(joints, key=lambda joint: joint[key])
    return known([f"{joint['name']} ({r2_text(joint[key])})" for joint in ordered], 6)


# -- excitation and length -------------------------------------------------------------------------


def _solver_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """A solver that stopped before it was done."""
    if data["status"] == "almost_solved":
        text = "the solver stopped before full accuracy: another prior weight may help"
        yield Reason(SUSPECT, text, commands.stronger_prior(data))


def _excitation_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """Rank, conditioning, and joints that hardly moved."""
    rank, structural, condition = data["rank"], data["structural_rank"], data["condition"]
    if rank < structural:
        text = f"the log identifies {rank} of {structural} base parameters"
        yield Reason(SUSPECT, text, (commands.excite_after,))
    share = data.get("weak_prior_share")
    # where the data tell more than the prior of even the weakest combination, its standard
    # deviation says all, as with the angle of a spring that acts over a short range
    if condition is not None and condition > ILL_CONDITIONED and (share is None or share > DECIDES):
        text = (
            f"condition number {condition:.2g} (below 100 is well conditioned): the motion hardly"
            " tells some parameters apart, and the prior decides between them"
        )
        yield Reason(SUSPECT, text, (commands.excite_after,))
    still = [joint for joint in data["joints"] if joint.get("rows_train") and _hardly_moved(joint)]
    if still:
        names = [f"{joint['name']} ({_motion(joint)})" for joint in still]
        yield Reason(SUSPECT, f"hardly moved: {known(names, 6)}", (commands.excite_after,))


def _hardly_moved(joint: Data) -> bool:
    motion = joint.get("motion") or {}
    share, speed = motion.get("share"), motion.get("relative_speed")
    return (share is not None and share < STILL) or (speed is not None and speed < SLOW)


def _motion(joint: Data) -> str:
    """Return how much a joint moved."""
    motion = joint["motion"]
    speed = motion.get("speed")
    unit = "m/s" if joint.get("unit") == "N" else "rad/s"
    parts = [f"in motion in {motion['share']:.0%} of the rows"] if "share" in motion else []
    return ", ".join([*parts, *([] if speed is None else [f"{quantity(speed, unit)} RMS"])])


def _length_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """A log that is too short: in seconds, and in independent torques for each parameter."""
    seconds = (data.get("seconds") or {}).get("train")
    if seconds is None:
        return
    independent = _independent_torques(data)
    parameters = data["structural_rank"]
    scarce = independent is not None and independent < parameters
    if seconds >= SHORT and not scarce:
        return
    needed, tells = USUAL_LENGTH, ""
    if independent is not None and scarce:
        needed = max(needed, 2.0 * seconds * parameters / max(independent, 1.0))
        tells = (
            f", which hold about {independent:.0f} independent torques for {parameters} parameters"
        )
    needed = min(10.0 * -(-needed // 10.0), 600.0)
    text = (
        f"the log is short: {seconds:.2g} s were fitted{tells}; record {needed:.0f} s or more"
        f" ({max(needed - seconds, 1.0):.0f} s longer)"
    )
    yield Reason(SUSPECT, text, (commands.excite(min(needed, 60.0)),))


def _independent_torques(data: Data) -> float | None:
    """Return how many independent torques were fitted, of all joints; None where unknown."""
    total = 0.0
    for joint in data["joints"]:
        if joint.get("rows_train"):
            rows = (joint.get("noise") or {}).get("effective_rows")
            if rows is None:
                return None
            total += rows
    return total


def r2_text(value: float) -> str:
    """Format R² with four decimals, never rounded up to one."""
    text = f"{value:.4f}" if value > -10.0 else f"{value:.3g}"
    return ("> 0.9999" if value < 1.0 and text == "1.0000" else text).replace("-", "−")
