"""What each kind of finding means for a result, and which masks a user may lift.

A kind is a stable string. Its effect says what was done: `note`: nothing that matters to a fit;
`corrected`: another signal took its place; `removed`: rows or channels are left out; `suspect`:
nothing was changed, and the log (or the robot file) seems wrong; `wrong`: nothing was changed, and
every mass is off with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from thetahat.errors import UsageError

NOTE, CORRECTED, REMOVED = "note", "corrected", "removed"
SUSPECT, WRONG = "suspect", "wrong"

EFFECTS = {
    "coupling": SUSPECT,
    "contact": SUSPECT,
    "dead-torque": REMOVED,
    "delay": SUSPECT,
    "delayed-dq": NOTE,
    "delayed-ddq": NOTE,
    "drift": SUSPECT,
    "gains": NOTE,
    "gain-differences": NOTE,
    "gap": NOTE,
    "gravity-direction": SUSPECT,
    "gravity-removed": WRONG,
    "ignored-columns": NOTE,
    "incomplete": CORRECTED,
    "inconsistent": SUSPECT,
    "inconsistent-dq": CORRECTED,
    "inconsistent-ddq": CORRECTED,
    "jitter": NOTE,
    "locked-joints": NOTE,
    "motion-noise": CORRECTED,
    "no-torque": REMOVED,
    "payload": SUSPECT,
    "position-degrees": WRONG,
    "position-sign": WRONG,
    "salvaged": REMOVED,
    "saturated": REMOVED,
    "short-run": REMOVED,
    "sign": SUSPECT,
    "signs": REMOVED,
    "slip": SUSPECT,
    "spring": SUSPECT,
    "spring-fitted": CORRECTED,
    "stuck": REMOVED,
    "torque-scale": WRONG,
    "unit-conversion": NOTE,
    "units": WRONG,
    "wrap": CORRECTED,
    "wrench-scale": WRONG,
}

# what --keep takes, and the findings whose masks or refusals it lifts
KEEP = {
    "saturation": ("saturated",),
    "dead-torque": ("dead-torque",),
    "stuck": ("stuck",),
    "sign": ("signs",),
    "dq": ("inconsistent-dq",),
    "ddq": ("inconsistent-ddq",),
    "units": ("units",),
}
REASON_OF = {kind: reason for reason, kinds in KEEP.items() for kind in kinds}


def kept_reasons(keep: str | Sequence[str]) -> tuple[str, ...]:
    """Return the reasons, as text with commas or as names; raise where one is unknown."""
    names = tuple(name.strip() for name in keep.split(",")) if isinstance(keep, str) else keep
    for name in names:
        if name not in KEEP:
            raise UsageError(f"keep names {name!r}; reasons: {', '.join(KEEP)}")
    return tuple(names)


def treatment(kind: str, what: str, keep: tuple[str, ...]) -> str:
    """Return the end of a sentence: what is done with rows, and how to have it otherwise."""
    reason = REASON_OF[kind]
    if reason in keep:
        return f"{what} kept (--keep {reason})"
    return f"{what} masked (--keep {reason} keeps them)"
