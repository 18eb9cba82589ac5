"""Findings about logged velocities and accelerations that do not follow the position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from thetahat.data.derivative_check import ChannelMatch
from thetahat.data.types import Finding

SINGLY = 2  # channels of a kind that are named one by one; more are one finding
NOUNS = {"dq": ("velocity", "velocities"), "ddq": ("acceleration", "accelerations")}


def derivative_findings(
    matches: Sequence[ChannelMatch],
    names: Sequence[str],
    angular: Sequence[bool],
    keep: tuple[str, ...],
) -> Iterator[Finding]:
    """Yield findings about channels that do not follow the position, or are late.

    names, angular: of every degree of freedom.
    """
    for kind in NOUNS:
        for follows in (False, True):
            group = [
                match
                for match in matches
                if match.kind == kind and match.follows == follows and (match.late or not follows)
            ]
            kept = kind in keep and not follows
            for part in [[match] for match in group] if len(group) <= SINGLY else [group]:
                evidence = _evidence(part, names, angular)
                message = f"{evidence}; {_treatment(kind, follows=follows, kept=kept)}"
                joint = names[part[0].dof] if len(part) == 1 else None
                prefix = "delayed" if follows else "inconsistent"
                yield Finding(f"{prefix}-{kind}", joint, None, message, kept=kept)


def _treatment(kind: str, *, follows: bool, kept: bool) -> str:
    if follows:
        return "the columns are used as they are"
    if kept:
        return f"the columns are used all the same (--keep {kind})"
    what = (
        "these velocities are differentiated from q instead"
        if kind == "dq"
        else "the accelerations of all joints are differentiated instead"
    )
    return f"{what} (--keep {kind} uses the columns)"


def _evidence(
    matches: Sequence[ChannelMatch], names: Sequence[str], angular: Sequence[bool]
) -> str:
    """Return how the channels differ from the derivatives of their positions."""
    first = matches[0]
    noun, nouns = NOUNS[first.kind]
    late = all(match.late for match in matches)
    cutoffs = sorted(match.cutoff for match in matches)
    if len(matches) == 1:
        how = f"{_lag(matches)} behind" if late else "does not follow"
        where = f"joint {names[first.dof]!r}: its logged {noun} {first.kind} {how} the derivative"
        rms = f"RMS {_rms(first, angular)} below {first.cutoff:.3g} Hz, R² {first.r2:.2f}"
        without = f", {first.r2_lagged:.2f} without the lag" if late else ""
        return f"{where} of its position ({rms}{without})"
    how = f"{_lag(matches)} behind" if late else "do not follow"
    each = ", ".join(f"{names[match.dof]} {_rms(match, angular)}" for match in matches)
    band = f"{cutoffs[0]:.3g} to {cutoffs[-1]:.3g} Hz"
    best = max(match.r2 for match in matches)
    return (
        f"the logged {nouns} {first.kind} of {len(matches)} joints {how} the derivatives of their"
        f" positions (RMS below {band}: {each}; R² at most {best:.2f})"
    )


def _rms(match: ChannelMatch, angular: Sequence[bool]) -> str:
    unit = ("rad" if angular[match.dof] else "m") + ("/s" if match.kind == "dq" else "/s²")
    return f"{match.logged:.3g} against {match.derived:.3g} {unit}"


def _lag(matches: Sequence[ChannelMatch]) -> str:
    """Return by how much channels lag, as a verb; less than nothing is ahead."""
    lags = sorted(1e3 * match.lag for match in matches)
    if len(lags) == 1:
        return f"lags {lags[0]:.0f} ms"
    return f"lag {lags[0]:.0f} to {lags[-1]:.0f} ms"
