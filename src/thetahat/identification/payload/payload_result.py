"""`Payload`: a body that a robot holds, and how well each of its ten numbers is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.identification.estimate import Certificate
from thetahat.identification.payload.payload_place import payload_place
from thetahat.model import parameters
from thetahat.model.parameters import M
from thetahat.model.robot import Robot

PARTS = ("mass", "com x", "com y", "com z", "Ixx", "Ixy", "Ixz", "Iyy", "Iyz", "Izz")
UPPER = np.triu_indices(3)  # of an inertia matrix, in the order of PARTS


@dataclass(frozen=True, eq=False)
class PayloadFit:
    """Least squares before the numbers are required to be a body's, and how well each is known.
    Spreads are standard deviations; masked or None where the motion shows nothing.
    """

    least_squares: np.ndarray  # (10,)
    # (10, 10) of least_squares; the body's θ is at least as near to the truth, in its metric
    covariance: np.ma.MaskedArray
    mass_std: float | None  # [kg]
    com_std: np.ma.MaskedArray  # (3,) [m]
    inertia_std: np.ma.MaskedArray  # (3, 3) [kg·m²] of inertia_com
    # of PARTS: what the motion does not show; it stays near the values of a small compact body
    unseen: tuple[str, ...]
    # χ² per degree of freedom of what else differs: 1 if nothing does and the noise is as it was.
    # Where it is more than chance allows, spreads are √misfit times those of the noise alone.
    misfit: float | None = None

    def with_scale_error(self, theta: np.ndarray, error: float) -> PayloadFit:
        """Return the same where all torques may be off by one factor, 1 ± error.

        Mass and inertia are off with it, the centre of mass is not.
        """
        mass, _, inertia = parameters.to_mass_com_inertia(theta)
        std = None if self.mass_std is None else float(np.hypot(self.mass_std, error * mass))
        return replace(
            self,
            covariance=self.covariance + error**2 * np.outer(theta, theta),
            mass_std=std,
            inertia_std=np.ma.sqrt(self.inertia_std**2 + (error * inertia) ** 2),
        )

    def inflated(self, factor: float) -> PayloadFit:
        """Return the same with standard deviations `factor` times as large."""
        return replace(
            self,
            covariance=factor**2 * self.covariance,
            mass_std=None if self.mass_std is None else factor * self.mass_std,
            com_std=factor * self.com_std,
            inertia_std=factor * self.inertia_std,
        )


@dataclass(frozen=True, eq=False)
class Payload:
    """A body held by a robot, in the frame of one of its links."""

    link: str  # that carries it
    frame: str  # the link in whose frame all numbers are
    theta: np.ndarray  # (10,) in the paper's order
    fit: PayloadFit
    status: str  # solved, almost_solved, or rank_short where something is not identifiable
    # whether the rest of the robot counts as exact, so that its own uncertainty is not in spreads
    exact_rest: bool = False
    advice: tuple[str, ...] = ()
    certificate: Certificate | None = None  # where a solver found the body

    @property
    def least_squares(self) -> np.ndarray:
        """θ before it was required to be a body's, (10,)."""
        return self.fit.least_squares

    @property
    def covariance(self) -> np.ma.MaskedArray:
        """Of least_squares, (10, 10)."""
        return self.fit.covariance

    @property
    def mass_std(self) -> float | None:
        """Standard deviation of the mass [kg]."""
        return self.fit.mass_std

    @property
    def com_std(self) -> np.ma.MaskedArray:
        """Standard deviation of the centre of mass, (3,) [m]."""
        return self.fit.com_std

    @property
    def inertia_std(self) -> np.ma.MaskedArray:
        """Standard deviation of inertia_com, (3, 3) [kg·m²]."""
        return self.fit.inertia_std

    @property
    def unseen(self) -> tuple[str, ...]:
        """What the motion does not show, of PARTS."""
        return self.fit.unseen

    @property
    def misfit(self) -> float | None:
        """χ² per degree of freedom of what else differs."""
        return self.fit.misfit

    @property
    def mass(self) -> float:
        """[kg]."""
        return float(self.theta[M])

    @property
    def com(self) -> np.ndarray:
        """Centre of mass, (3,) [m]."""
        return parameters.to_mass_com_inertia(self.theta)[1]

    @property
    def inertia_com(self) -> np.ndarray:
        """Rotational inertia about the centre of mass, (3, 3) [kg·m²], in the axes of the frame."""
        return parameters.to_mass_com_inertia(self.theta)[2]

    @property
    def theta_std(self) -> np.ma.MaskedArray:
        """(10,) of least_squares."""
        C = self.covariance
        variance = np.ma.masked_array(C.diagonal(), mask=np.ma.getmaskarray(C).diagonal())
        std: np.ma.MaskedArray = np.ma.sqrt(variance)
        return std

    @property
    def consistent(self) -> bool:
        """Whether a rigid body can have these ten numbers."""
        return bool(parameters.check(self.theta))

    @property
    def replaced(self) -> bool:
        """Whether least squares was no body, and the one that fits best took its place."""
        return self.certificate is not None

    def added_to(self, robot: Robot) -> Robot:
        """Return the robot holding it: the payload's parameters are added to the carrier's."""
        place = payload_place(robot, self.link, self.frame)
        theta = robot.theta.copy()
        theta[place.span] += place.to_body @ self.theta
        return robot.with_parameters(theta)

    def __str__(self) -> str:
        body = (
            "the body that fits best, where least squares alone gives none"
            if self.replaced
            else "a physical body"
        )
        lines = [
            f"payload on {self.link!r}, in the frame of {self.frame!r} (± one standard deviation):"
            f" {self.status}, {body}"
        ]
        values = (self.mass, *self.com, *self.inertia_com[UPPER])
        spreads = (self.mass_std, *self.com_std, *self.inertia_std[UPPER])
        for part, value, spread, unit in zip(
            PARTS, values, spreads, ("kg", *["m"] * 3, *["kg·m²"] * 6), strict=True
        ):
            lines.append(
                f"  {part:6} {value:12.5g}"
                f" {'not seen' if part in self.unseen else f'± {spread:.2g}':>10} {unit}"
            )
        if self.mass_std is None:  # then single numbers about the frame's origin are all there is
            lines += [
                f"  about the origin: {n} {v:.5g} ± {d:.2g}"
                for n, v, d in zip(parameters.NAMES, self.theta, self.theta_std, strict=True)
                if d
            ]
        if self.exact_rest:
            lines.append(
                "  the rest of the robot counts as exact; its own uncertainty is not in these"
                " figures"
            )
        return "\n".join([*lines, *(f"  {sentence}" for sentence in self.advice)])
