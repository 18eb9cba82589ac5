"""The verdict of a report: is the identified model good, usable or not usable, and why."""

from __future__ import annotations

import re

from thetahat.identification.verdict import Verdict
from thetahat.report.section import Block, Code, Note, Section, Text
from thetahat.report.text import Data, short

LEVELS = {"good": "good", "usable": "warning", "not usable": "bad"}


def verdict_lines(result: Data) -> list[Block]:
    """Return the verdict as a headline, and each reason on a line of its own."""
    judged = Verdict.from_data(result["verdict"])
    headline = Note(_options(judged.headline), LEVELS[judged.level])
    lines = (f"• {text[:1].upper()}{text[1:]}." for text in map(_options, judged.details))
    return [headline, *map(Text, lines)]


def _options(text: str) -> str:
    """Return text with options of the command line marked as code."""
    return re.sub(r"(?<![`\w-])--[a-z][a-z-]*", r"`\g<0>`", text)


def verdict(estimate: Data) -> Section:
    """Return the verdict with reasons and next steps, and the fit's figures."""
    steps = estimate["verdict"]["next_steps"]
    blocks = verdict_lines(estimate)
    if steps:
        blocks.append(Code("\n".join(steps), "Next steps, the most useful first:"))
    blocks.append(Text(fit_summary(estimate)))
    return Section("Verdict", "verdict", tuple(blocks))


def fit_summary(estimate: Data) -> str:
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
