"""Reasons of a verdict on held poses: what they do not tell, and joints that would creep."""

from __future__ import annotations

from collections.abc import Sequence

from thetahat.identification.verdict_reason import CORRECTED, SUSPECT, Fields, Reason, quantity


def static_reasons(static: Fields) -> list[Reason]:
    """Say what poses do not tell, and name the joints that would creep."""
    rank, structural = static["rank"], static["structural_rank"]
    reasons = _creep_reasons(static["joints"])
    text = "gravity alone was identified; inertias, which held poses do not tell, follow the file"
    reasons.append(Reason(CORRECTED, text))
    if rank < structural:
        text = f"the poses tell {rank} of the {structural} parameters that holding torques can tell"
        fix = "hold more poses, over the whole range of every joint and from both sides"
        reasons.append(Reason(SUSPECT, f"{text}; {fix}"))
    return reasons


def _creep_reasons(joints: Sequence[Fields]) -> list[Reason]:
    creeping = [
        f"{row['joint']} ({quantity(row['error'], row['unit'])} of error,"
        f" {quantity(row['friction'], row['unit'])} of friction)"
        for row in joints
        if row["holds"] is False
    ]
    if not creeping:
        return []
    text = f"held by gravity torques alone, these joints creep: {', '.join(creeping)}"
    return [Reason(SUSPECT, f"{text}; hold more poses, each from both sides")]
