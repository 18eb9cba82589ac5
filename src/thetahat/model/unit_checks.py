"""Check whether a robot file seems to be in grams or millimetres, by bounds that ordinary robots
stay far from.

The figures are from 322 public URDF files: single links weigh up to 395 kg (one toy scene: 1,087
kg), joints are up to 4.1 m apart, the links' mean radius of gyration is up to 5.5 m (placeholders
of 1 kg·m² included), and the median link is at most as dense as 2,821 kg/m³ (one file: 59,698).
There is no lower bound on density, because of the placeholders.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from thetahat.errors import RobotWarning
from thetahat.model import parameters
from thetahat.model.robot import Robot

HEAVIEST = 1_000.0  # [kg] one link
FARTHEST = 10.0  # [m] a joint from its parent's, a centre of mass from its link's frame
WIDEST = 10.0  # [m] radius of gyration, mean over the robot by mass
DENSEST = 1e5  # [kg/m³] median over the links; osmium has 22,590


def warn_if_implausible(robot: Robot) -> None:
    """Warn once per kind of sign that units are not SI, naming the link or joint and the value."""
    where = f"{robot.source.name}: " if robot.source else ""
    for text in implausible(robot):
        warnings.warn(f"{where}{text}", RobotWarning, stacklevel=3)


def implausible(robot: Robot) -> list[str]:
    """What is out of every known robot's range, one sentence each; empty for an ordinary robot.

    A link of mass m and radius of gyration k, k² = ½ tr(Ī_C)/m, spread like a ball of radius √(5/3)
    k, has the density 3m / 4π(√(5/3) k)³: grams multiply it by 1,000 or more, whatever the unit of
    inertia beside them.
    """
    found: list[str] = []
    links = [link for link in robot.links if link.theta[parameters.M] > 0.0]
    if links:
        mass, com, inertia = parameters.to_mass_com_inertia(
            np.array([link.theta for link in links])
        )
        second = 0.5 * np.trace(inertia, axis1=-2, axis2=-1)  # m k² [kg·m²]
        heaviest = int(np.argmax(mass))
        if mass[heaviest] > HEAVIEST:
            found.append(
                f"link {links[heaviest].name!r} weighs {mass[heaviest]:.6g} kg; if the file is in"
                " grams, divide masses by 1,000"
            )
        solid = second > 0.0
        if np.any(solid):
            # nonsense may be infinite here, and compares all the same
            with np.errstate(over="ignore", under="ignore", divide="ignore"):
                gyration = np.sqrt(second[solid] / mass[solid])
                density = mass[solid] / (
                    4.0 / 3.0 * math.pi * (math.sqrt(5.0 / 3.0) * gyration) ** 3
                )
                overall = math.sqrt(np.sum(second[solid]) / np.sum(mass[solid]))
            if np.median(density) > DENSEST:
                worst = [link for link, is_solid in zip(links, solid, strict=True) if is_solid][
                    int(np.argmax(density))
                ].name
                found.append(
                    f"the links are too dense to be real (median {np.median(density):.3g} kg/m³,"
                    f" link {worst!r} most); check whether masses are in grams or inertia is in"
                    " other units than kg·m²"
                )
            if overall > WIDEST:
                worst = links[int(np.argmax(np.where(solid, second, 0.0)))].name
                found.append(
                    f"the links' mean radius of gyration is {overall:.3g} m, link {worst!r} most; "
                    "if inertia is in kg·mm² or g·mm², convert it to kg·m²"
                )
        away = np.linalg.norm(com, axis=-1)
        far = int(np.argmax(away))
        if away[far] > FARTHEST:
            found.append(
                f"the centre of mass of link {links[far].name!r} is {away[far]:.6g} m off; if the"
                " file is in millimetres, divide lengths by 1,000"
            )
    offsets = [(float(np.linalg.norm(node.translation)), node.name) for node in robot.tree.nodes]
    if offsets and max(offsets)[0] > FARTHEST:
        distance, name = max(offsets)
        found.append(
            f"joint {name!r} is {distance:.6g} m from its parent; if the file is in millimetres,"
            " divide lengths by 1,000"
        )
    return found
