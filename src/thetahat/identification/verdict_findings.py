"""What findings of the audit and of the fit do to the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator

from thetahat.data import finding_kinds
from thetahat.errors import known
from thetahat.identification.next_steps import Commands
from thetahat.identification.verdict_reason import CORRECTED, SUSPECT, WRONG, Data, Reason

# What a finding does to the verdict, by what it means; one that is not here changes nothing.
_LEVELS = {
    finding_kinds.CORRECTED: CORRECTED,
    finding_kinds.REMOVED: CORRECTED,
    finding_kinds.SUSPECT: SUSPECT,
    finding_kinds.WRONG: WRONG,
}
# notes on what would make a result better: said, with the command
ADVICE = {"gain-differences": CORRECTED}
EFFECTS = {
    kind: _LEVELS[effect] for kind, effect in finding_kinds.EFFECTS.items() if effect in _LEVELS
} | ADVICE
_OPTION = re.compile(r"--(?:gravity|units|keep|columns) [^\s;,)]+(?:,[^\s;,)]+)*")
NAMED = 6  # joints with the same finding


def effect_of(finding: Data) -> str | None:
    """Return what a finding does to the verdict; None: nothing."""
    meaning = finding.get("effect") or finding_kinds.EFFECTS.get(finding["kind"], "")
    return ADVICE.get(finding["kind"], _LEVELS.get(meaning))


def finding_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """Yield a reason per kind of finding: the first of its kind, and which joints share it."""
    kinds: dict[str, list[Data]] = {}
    for finding in data.get("findings") or ():
        if effect_of(finding) is not None:
            kinds.setdefault(finding["kind"], []).append(finding)
    for findings in kinds.values():
        first = findings[0]
        effect = effect_of(first) or SUSPECT
        names = [item["joint"] for item in findings[1:] if item["joint"] is not None]
        others = [name for name in dict.fromkeys(names) if name != first["joint"]]
        also = f" (likewise {known(others, NAMED)})" if others else ""
        option = _OPTION.search(first["message"])
        steps = [commands.identify(option[0])] if option else []
        steps += [commands.weigh] if first["kind"] in ADVICE else []
        text = first["message"].rstrip(".") + also
        yield Reason(effect, text, tuple(steps), advice=first["kind"] in ADVICE)
