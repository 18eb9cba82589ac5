"""What findings of the audit and of the fit do to the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator

from thetahat.errors import known
from thetahat.identification.next_steps import Commands
from thetahat.identification.verdict_reason import CORRECTED, SUSPECT, WRONG, Data, Reason

# Kind of a finding → its effect. A kind that is not here is reported and changes nothing.
EFFECTS = {
    # signals
    "torque-scale": WRONG,  # mN·m, amperes, motor side: every mass is off by the factor
    "units": WRONG,
    "degrees": WRONG,
    "sign": SUSPECT,
    "gravity-direction": SUSPECT,
    "dead": SUSPECT,  # a channel as a whole: its joint is not identified
    "pushed": SUSPECT,
    "payload-run": SUSPECT,
    "derivative": CORRECTED,  # the derivative of q took its place
    "dead-torque": CORRECTED,  # rows that were masked
    "saturated": CORRECTED,
    "stuck": CORRECTED,
    "wrap": CORRECTED,
    "no-torque": CORRECTED,
    # what the fit leaves unexplained
    "spring": SUSPECT,
    "delay": SUSPECT,
    "drift": SUSPECT,
    "coupling": SUSPECT,
    "inconsistent": SUSPECT,
}
_OPTION = re.compile(r"--(?:gravity|units|keep|columns) [^\s;,)]+(?:,[^\s;,)]+)*")
NAMED = 6  # joints with the same finding


def finding_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """Yield a reason per kind of finding: the first of its kind, and which joints share it."""
    kinds: dict[str, list[Data]] = {}
    for finding in data.get("findings") or ():
        if finding["kind"] in EFFECTS:
            kinds.setdefault(finding["kind"], []).append(finding)
    for kind, findings in kinds.items():
        first = findings[0]
        names = [item["joint"] for item in findings[1:] if item["joint"] is not None]
        others = [name for name in dict.fromkeys(names) if name != first["joint"]]
        also = f" (likewise {known(others, NAMED)})" if others else ""
        option = _OPTION.search(first["message"])
        steps = (commands.identify(option[0]),) if option else ()
        yield Reason(EFFECTS[kind], first["message"].rstrip(".") + also, steps)
