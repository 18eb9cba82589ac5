"""Section on plausibility: every link's body in the region that the link takes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from thetahat.identification.verdict_bodies import MASS, OUTSIDE, SIZE
from thetahat.model import parameters as ten
from thetahat.model.link_geometry import Region, link_regions
from thetahat.model.robot import Robot
from thetahat.report.figures.base import fit, shown
from thetahat.report.figures.link_bodies import in_frame, link_body
from thetahat.report.figures.stick_figure import Ellipsoid, ellipsoid
from thetahat.report.section import Block, Column, Figure, Panel, Section, Table
from thetahat.report.sections.torques import table_of
from thetahat.report.text import Data, short

GRID = 16  # links up to which all stand side by side
Regions = Sequence[Region]  # by body


def plausibility(
    estimate: Data, robot: Robot, identified: Robot, *, regions: Regions | None = None
) -> Section:
    """Return each body as its inertia ellipsoid in its link's region, and masses beside the file's.

    regions: that the links take up, in the order of the bodies; None: those around their joints.
    """
    facts = {link["name"]: link for link in (estimate.get("plausibility") or {}).get("links", ())}
    regions = regions or link_regions(robot, {})
    panels = []
    for b, name in enumerate(robot.body_names):
        bodies = [ellipsoid(each.theta.reshape(-1, ten.SIZE)[b]) for each in (identified, robot)]
        if bodies[0] is None and bodies[1] is None:
            continue
        drawing = link_body(
            regions[b],
            bodies[0],
            bodies[1],
            plausible=_plausible(facts.get(name, {}), bodies[0]),
            title=_title(name, bodies[0], bodies[1], regions[b]),
        )
        panels.append(Panel(name, drawing))
    blocks: list[Block] = []
    if panels:
        caption = (
            "Bodies as solid ellipsoids of uniform density with their mass, centre and inertia:"
            " identified (blue, red where it cannot be the link's) and of the file (orange), in the"
            " region of the link (grey: around its geometry, or else around its joints)."
            " The frame fits the region; what is larger is cut off."
        )
        arrangement = "grid" if len(panels) <= GRID else "choose"
        blocks.append(Figure(tuple(panels), caption, arrangement, "link"))
    blocks.append(_table(estimate, facts))
    return Section("Plausibility of the bodies", "plausibility", tuple(blocks))


def _plausible(facts: Data, body: Ellipsoid | None) -> bool:
    """Whether a body is within the limits of the verdict."""
    if body is None or not body.possible:
        return False
    ratio, outside, size = (facts.get(k) for k in ("mass_ratio", "com_outside", "size_ratio"))
    return (
        (ratio is None or 1.0 / MASS <= ratio <= MASS)
        and (outside is None or outside <= OUTSIDE[1])
        and (size is None or size <= SIZE[1])
    )


def _title(name: str, body: Ellipsoid | None, nominal: Ellipsoid | None, region: Region) -> str:
    """Return name and masses, and how far off a centre is that the frame does not show."""
    masses = [f"{each.mass:.3g} kg" if each else "no mass" for each in (body, nominal)]
    text = f"{shown(fit(name, 24))}<br>{masses[0]} (file {masses[1]})"
    if body is not None and not in_frame(region, body):
        text += f"<br>centre {np.linalg.norm(body.centre - region.centre):.2g} m away"
    return text


def _table(estimate: Data, facts: Mapping[str, Data]) -> Table:
    """Return masses and ratios of every link, and the total."""
    columns = {
        "name": Column("body"),
        "mass": Column("mass", "kg"),
        "file": Column("file", "kg"),
        "mass_ratio": Column("ratio", decimals=2),
        "outside": Column("centre outside", "mm"),
        "size_ratio": Column("size ratio", decimals=2),
    }
    records: list[Data] = []
    for link in estimate["links"]:
        stated = facts.get(link["name"], {})
        outside = stated.get("com_outside")
        records.append(
            {
                **stated,
                "name": link["name"],
                "mass": link["mass"],
                "file": (link.get("nominal") or {}).get("mass"),
                "outside": None if outside is None else 1e3 * outside,
            }
        )
    totals = estimate.get("plausibility") or {}
    mass, stated_mass = totals.get("total_mass"), totals.get("total_mass_file")
    ratio = mass / stated_mass if mass is not None and stated_mass else None
    records.append({"name": "total", "mass": mass, "file": stated_mass, "mass_ratio": ratio})
    note = (
        f"Not usable: a mass beyond {short(MASS)} times or 1/{short(MASS)} of the file's, a centre"
        f" of mass more than {1e3 * OUTSIDE[1]:.0f} mm outside the region, a radius of gyration of"
        f" more than {SIZE[1]:g} times the region's."
    )
    return table_of(records, columns, note=note)
