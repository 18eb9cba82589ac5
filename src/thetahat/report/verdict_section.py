"""The verdict of a report: is the identified model good, usable or not usable, and why."""

from __future__ import annotations

from thetahat.errors import known
from thetahat.report.section import Note, Section, Text
from thetahat.report.text import FAIR, GOOD, GRAVE, WORSE, Data, fitted_joints, r2, short


def verdict(estimate: Data) -> Section:
    """Return the verdict, findings of the audit that change the result, and the fit's figures."""
    level, sentence = judged(estimate)
    grave = (item for item in estimate["findings"] if item["kind"] in GRAVE)
    notes = (Note(f"Log: {item['message']}", "warning") for item in grave)
    summary = Text(_fit_summary(estimate))
    return Section("Verdict", "verdict", (Note(sentence, level), *notes, summary))


def judged(estimate: Data) -> tuple[str, str]:
    """Return (level, sentence) of the verdict."""
    scored = [joint for joint in fitted_joints(estimate) if joint["r2_test"] is not None]
    total, nominal = estimate["r2"]["test"], estimate["r2"]["nominal"]
    if estimate["status"] == "infeasible":
        return "bad", "Not usable: the bounds are infeasible, so the parameters are the prior's."
    if total is None or not scored:
        train = estimate["r2"]["train"]
        fit = "" if train is None else f"; R² {r2(train)} on the fitted data"
        return "warning", f"Not validated: no usable held-out data{fit}."
    lowest = min(scored, key=lambda joint: joint["r2_test"])
    beside = "" if nominal is None else f" (nominal robot: {r2(nominal)})"
    facts = (
        f"R² {r2(total)} on held-out data{beside}, lowest on {lowest['name']}:"
        f" {r2(lowest['r2_test'])}"
    )
    if total < FAIR:
        return "bad", f"Not usable: the model explains too little of the torque; {facts}."
    if nominal is not None and total < nominal:
        return "bad", f"Not usable: the nominal parameters predict better; {facts}."
    useless = [joint["name"] for joint in scored if joint["r2_test"] < 0.0]
    if useless:
        why = f"predicting zero torque would be better on {known(useless, 6)}"
        return "bad", f"Not usable: {why}; {facts}."
    limits = _limits(estimate, scored)
    if limits:
        return "warning", f"Usable: {facts}; but {'; '.join(limits)}."
    return "good", f"Good: {facts}; all bodies are physically consistent."


def _limits(estimate: Data, scored: list[Data]) -> list[str]:
    """Return what keeps a model from being good."""
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
        out.append(
            f"the nominal parameters predict {known(behind, 6)} better (check the log, --cutoff"
            " and, for coupled joints, --actuation)"
        )
    if not estimate["consistent"]:
        wrong = [link["name"] for link in estimate["links"] if not link["consistent"]]
        out.append(
            f"the parameters of {known(wrong, 4)} are not physically consistent: use them for"
            " prediction, not in a simulator"
        )
    rank, structural = estimate["rank"], estimate["structural_rank"]
    if rank < structural:
        out.append(f"the log identifies {rank} of {structural} base parameters")
    return out


def _fit_summary(estimate: Data) -> str:
    """Return rank, samples, filter, conditioning and solver status in a sentence."""
    origin, samples = estimate["provenance"], estimate.get("samples")
    cutoff = origin["settings"].get("cutoff")
    rows = "" if samples is None else f" from {samples:,} samples"
    low_pass = "" if cutoff is None else f", low-pass {cutoff:.4g} Hz"
    text = (
        f"{origin.get('robot') or 'Robot'}: {estimate['rank']} of {estimate['structural_rank']}"
        f" base parameters identified{rows}{low_pass}, condition number"
        f" {short(estimate['condition'])}; method {estimate['method']}:"
        f" {estimate['status'].replace('_', ' ')}."
    )
    certificate = estimate.get("certificate")
    if certificate and certificate.get("gap") is not None:
        text += f" Optimal to within {certificate['gap']:.1g} noise variances."
    return text
