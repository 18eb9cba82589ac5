"""How the world acts on a robot with a floating base: which wrenches are measured, which feet touch
ground whose force is not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Foot:
    """A link that touches ground whose force is not measured."""

    link: str
    flat: bool  # ground exerts a force and a couple; else a force at the link's origin alone

    @property
    def size(self) -> int:
        """Numbers in the unknown force: 6, or 3 of a point."""
        return 6 if self.flat else 3


@dataclass(frozen=True)
class Ground:
    """How the world acts on a floating robot."""

    measured: tuple[str, ...] = ()  # links whose wrench is measured
    feet: tuple[Foot, ...] = ()
    # [N·m or N] by degree of freedom: errors of the rows, by which forces are eliminated
    deviations: tuple[tuple[str, float], ...] = ()
