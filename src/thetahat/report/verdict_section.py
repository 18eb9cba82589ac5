"""The verdict of a report: is the identified model good, usable or not usable, and why."""

from __future__ import annotations

from thetahat.data.finding_kinds import GRAVE
from thetahat.identification.verdict import Verdict
from thetahat.report.section import Block, Note, Section, Text
from thetahat.report.text import Data, short

LEVELS = {"good": "good", "usable": "warning", "not usable": "bad"}


def verdict(estimate: Data) -> Section:
    """Return the verdict, findings of the audit that change the result, and the fit's figures."""
    judged = Verdict.from_data(estimate["verdict"])
    grave = (item for item in estimate["findings"] if item["kind"] in GRAVE)
    blocks: list[Block] = [Note(judged.sentence, LEVELS[judged.level])]
    blocks += [Text(f"Next: `{step}`") for step in judged.next_steps]
    blocks += [Note(f"Log: {item['message']}", "warning") for item in grave]
    blocks.append(Text(_fit_summary(estimate)))
    return Section("Verdict", "verdict", tuple(blocks))


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
