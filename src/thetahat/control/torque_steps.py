"""The part of a torque's steps that a switch of models is to blame for, measured on what was
commanded.

What is commanded beyond the torque that the one model in charge would command alone is the switch's
doing, d = u − u_model. How d changes from a cycle to the next is measured against one and the same
model: against the old one up to the cycle of the switch, against the new one from it on. A joint at
its limit is left out in that cycle and the next: there the limit decides, not the switch.
"""

from __future__ import annotations

import numpy as np


class TorqueSteps:
    """Told of every command while there may be a difference; `largest` is the largest change of it
    in one cycle [N·m or N].
    """

    def __init__(self) -> None:
        self.largest = 0.0
        self.watching = False  # whether the last command was another than the model's own
        self._beyond: np.ndarray | None = (
            None  # (nv,) d of the last cycle, NaN at a limit; None: zero
        )

    def add(self, commanded: np.ndarray, own: np.ndarray, limits: np.ndarray | None) -> None:
        """A cycle: what was commanded, and what the model in charge would have commanded alone,
        (nv,) each.
        """
        beyond = _beyond(commanded, own, limits)
        change = np.abs(beyond if self._beyond is None else beyond - self._beyond)
        self.largest = max(self.largest, float(np.fmax.reduce(change, initial=0.0)))
        self._keep(beyond)

    def switch(self, commanded: np.ndarray, own: np.ndarray, limits: np.ndarray | None) -> None:
        """After `add` against the old model: from now on changes are those against the new one."""
        self._keep(_beyond(commanded, own, limits))

    restart = switch  # after a fallback: its step is another matter

    def _keep(self, beyond: np.ndarray) -> None:
        self.watching = bool(beyond.any())
        self._beyond = beyond if self.watching else None


def _beyond(commanded: np.ndarray, own: np.ndarray, limits: np.ndarray | None) -> np.ndarray:
    beyond = commanded - own
    if limits is not None:
        beyond[(np.abs(commanded) >= limits) | (np.abs(own) >= limits)] = np.nan
    return beyond
