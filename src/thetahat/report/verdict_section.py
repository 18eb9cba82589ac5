"""The first thing a reader wants: is the identified model good, usable, or not usable, and why, in
one sentence.
"""

from __future__ import annotations

from typing import Any

from thetahat.errors import known
from thetahat.report.section import Note, Section, Text
from thetahat.report.text import FAIR, GOOD, GRAVE, WORSE, asked, r2, short

WORDS = {"good": "Good", "warning": "Usable", "bad": "Not usable"}


def verdict(found: dict[str, Any]) -> Section:
    """The sentence, what the audit found that changes the answer, and the figures of the fit."""
    level, sentence = judged(found)
    grave = tuple(
        Note(f"Log: {item['message']}", "warning")
        for item in found["findings"]
        if item["kind"] in GRAVE
    )
    return Section("Verdict", "verdict", (Note(sentence, level), *grave, Text(_fitted(found))))


def judged(found: dict[str, Any]) -> tuple[str, str]:
    """(level, sentence)."""
    scored = [joint for joint in asked(found) if joint["r2_test"] is not None]
    total, nominal = found["r2"]["test"], found["r2"]["nominal"]
    if found["status"] == "infeasible":
        return (
            "bad",
            (
                "Not usable: the bounds contradict each other, so the parameters are the prior's"
                " own values."
            ),
        )
    if total is None or not scored:
        fit = (
            ""
            if found["r2"]["train"] is None
            else f"; on the rows it was fitted to, R² is {r2(found['r2']['train'])}"
        )
        return (
            "warning",
            (
                "Not judged: nothing usable was held out, so how well the model predicts is not"
                f" known{fit}."
            ),
        )
    least = min(scored, key=lambda joint: joint["r2_test"])
    beside = "" if nominal is None else f" (as its file states the robot: {r2(nominal)})"
    facts = (
        f"R² {r2(total)} on held-out data{beside}, least on {least['name']}: {r2(least['r2_test'])}"
    )
    reasons = _reasons(found, scored)
    if total < FAIR or (nominal is not None and total < nominal):
        why = (
            "it explains too little of the torque"
            if total < FAIR
            else "the file's own values predict better"
        )
        return "bad", f"Not usable: {why}; {facts}."
    hopeless = [joint["name"] for joint in scored if joint["r2_test"] < 0.0]
    if hopeless:
        return (
            "bad",
            (
                f"Not usable: predicting no torque at all would do better on {known(hopeless, 6)};"
                f" {facts}."
            ),
        )
    level = "warning" if reasons else "good"
    more = (
        f"; but {'; '.join(reasons)}" if reasons else ", and every body found is one that can exist"
    )
    return level, f"{WORDS[level]}: {facts}{more}."


def _reasons(found: dict[str, Any], scored: list[dict[str, Any]]) -> list[str]:
    """What keeps a model from being good."""
    out = []
    low = [joint["name"] for joint in scored if joint["r2_test"] < GOOD]
    if low:
        out.append(f"R² is below {GOOD} on {known(low, 6)}")
    behind = [
        joint["name"]
        for joint in scored
        if joint["rms_nominal"] is not None and joint["rms_test"] > WORSE * joint["rms_nominal"]
    ]
    if behind:
        out.append(f"the file's own values predict {known(behind, 6)} better")
    if not found["consistent"]:
        wrong = [link["name"] for link in found["links"] if not link["consistent"]]
        out.append(
            f"no body can be what was found for {known(wrong, 4)}, so it is for prediction, not for"
            " a simulator"
        )
    if found["rank"] < found["structural_rank"]:
        out.append(f"the log shows {found['rank']} of {found['structural_rank']} base parameters")
    return out


def _fitted(found: dict[str, Any]) -> str:
    settings = found["provenance"]["settings"]
    rows = f"{found['samples']:,} samples" if found.get("samples") is not None else "the samples"
    low_pass = "" if settings.get("cutoff") is None else f", low-pass {settings['cutoff']:.4g} Hz"
    text = (
        f"{found['rank']} of {found['structural_rank']} base parameters from {rows}{low_pass},"
        f" condition {short(found['condition'])}; method {found['method']}:"
        f" {found['status'].replace('_', ' ')}."
    )
    proof = found.get("certificate")
    if proof and proof.get("gap") is not None:
        text += f" Proved to be within {proof['gap']:.1g} noise variances of the best physical fit."
    return text
