"""Reason of a verdict: simulated motion beside the nominal robot's."""

from __future__ import annotations

from collections.abc import Iterator

from thetahat.identification.next_steps import Commands
from thetahat.identification.verdict_reason import SUSPECT, Data, Reason


def rollout_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """Motion that the robot's file simulates better, from many states of the held-out rows.

    Predicted torques can be better in the sum while a light joint is wrong: it then flies off as
    soon as anything is simulated.
    """
    rollout = data.get("rollout")
    compared = None if rollout is None else rollout["compared"]
    if compared is None or not compared["worse"]:
        return
    text = (
        f"simulated motion is worse than with the nominal parameters: errors after"
        f" {compared['horizon']:g} s are {compared['ratio']:.2f} times theirs, over"
        f" {compared['starts']} starts"
    )
    yield Reason(SUSPECT, text, (commands.excite_after,))
