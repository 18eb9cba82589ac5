"""Parameters whose intervals may not hold, as a verdict says it."""

from __future__ import annotations

from collections.abc import Iterator

from thetahat.identification.next_steps import Commands
from thetahat.identification.uncertainty.flags import MODEL_ERROR, PRIOR, SENTENCES
from thetahat.identification.verdict_reason import CORRECTED, Data, Reason

MANY = 0.15  # of the base parameters: from there on a verdict says it
# the same where the prior decides: every motion leaves some parameters to it, and their rows say so
MOST = 0.5


def interval_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """Yield a note per reason why the intervals of many base parameters may not hold.

    The torque may well be predicted, so that a good result stays good.
    """
    base = data.get("base_parameters") or ()
    for reason, words in SENTENCES.items():
        if reason == MODEL_ERROR:
            continue  # its possible size is in the intervals, and the table of parameters says it
        count = sum(reason in (entry.get("flags") or ()) for entry in base)
        if count > (MOST if reason == PRIOR else MANY) * len(base):
            text = f"{count} of {len(base)} base parameters are {words}: see their flags"
            yield Reason(CORRECTED, text, (commands.excite_after,))
