"""What MuJoCo gets of an MJCF file, and the way back from what it compiles to the file."""

from __future__ import annotations

from dataclasses import dataclass, field

from thetahat.model.io.mjcf_includes import Folder
from thetahat.model.io.xml_reader import Element


@dataclass(frozen=True, eq=False)
class Inertial:
    """An `<inertial>` that MuJoCo would refuse or alter, taken from the file: a massless frame, a
    point mass, an unphysical tensor.
    """

    mass: float = 0.0  # [kg]
    diagonal: tuple[float, ...] = (0.0, 0.0, 0.0)  # [kg·m²] in the inertial frame
    full: tuple[float, ...] | None = None  # xx, yy, zz, xy, xz, yz [kg·m²] in body axes


@dataclass(frozen=True, eq=False)
class BodySource:
    """Where a body stands in the file, and what the file says of its inertia."""

    element: Element
    # with the attributes that MuJoCo is given, not the file's where there is a substitute
    inertial: Element | None
    substitute: Inertial | None = None  # in place of what MuJoCo compiled
    overridden: bool = False  # whether geoms count in place of its <inertial>


@dataclass(eq=False)
class MujocoInput:
    """The text for MuJoCo and the files it names."""

    text: str = ""
    lines: list[Element] = field(default_factory=list)  # the element on each line of text
    assets: dict[str, bytes] = field(default_factory=dict)  # by the name MuJoCo knows them by
    files: dict[str, str] = field(default_factory=dict)  # that name → the user's


@dataclass(frozen=True, eq=False)
class MjcfElements:
    """The elements of a model, bodies and joints by their user data (0: made by MuJoCo)."""

    bodies: list[BodySource | None] = field(default_factory=lambda: [None])
    joints: list[Element | None] = field(default_factory=lambda: [None])
    # the <compiler> elements of each model, the main one first
    compilers: list[list[Element]] = field(default_factory=list)


@dataclass
class MjcfCounts:
    """Sizes of a model with every copy that <replicate> and <attach> make."""

    bodies: int = 0
    copies: int = 0
    dofs: int = 0
    dof_depths: int = 0


@dataclass(eq=False)
class SanitizedMjcf:
    """MuJoCo's input, and the way back from what it compiles to the file."""

    folder: Folder
    name: str = ""
    given: MujocoInput = field(default_factory=MujocoInput)
    elements: MjcfElements = field(default_factory=MjcfElements)
    counts: MjcfCounts = field(default_factory=MjcfCounts)
    total_mass: float = 0.0  # `settotalmass`, 0 where the file does not ask
    # what is not modelled: kind → names
    left_out: dict[str, list[str]] = field(default_factory=dict)
    # whether other models are in it, which makes MuJoCo's line numbers ambiguous
    attached: bool = False

    def leave_out(self, kind: str, *names: str) -> None:
        """Remember what the robot does not model."""
        if names:
            self.left_out.setdefault(kind, []).extend(names)
