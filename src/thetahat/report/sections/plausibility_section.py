"""Section on plausibility: every link's body in the region that the link takes up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.identification.verdict_bodies import MASS, OUTSIDE, SIZE
from thetahat.model import parameters as ten
from thetahat.model.robot import Robot
from thetahat.report import figures
from thetahat.report.figures.link_bodies import Region, in_frame
from thetahat.report.figures.stick_figure import NEAR, Ellipsoid, ellipsoid
from thetahat.report.section import Block, Column, Figure, Panel, Section, Table
from thetahat.report.sections.torques import table_of
from thetahat.report.text import Data, short

PAD = (0.07, 0.4)  # [m], and of the longest half-axis: around the hull of a link's origins
GRID = 16  # links up to which all stand side by side
Regions = Mapping[str, Region]  # by body


def plausibility(
    estimate: Data, robot: Robot, identified: Robot, *, regions: Regions | None = None
) -> Section:
    """Return each body as its inertia ellipsoid in its link's region, and masses beside the file's.

    regions: centre and semi-axes by body, in its frame; where there is none, the padded hull of its
    joints' origins is taken.
    """
    facts = {link["name"]: link for link in (estimate.get("plausibility") or {}).get("links", ())}
    taken = {**origin_regions(robot), **(regions or {})}
    panels = []
    for b, name in enumerate(robot.body_names):
        bodies = [ellipsoid(each.theta.reshape(-1, ten.SIZE)[b]) for each in (identified, robot)]
        if bodies[0] is None and bodies[1] is None:
            continue
        drawing = figures.link_body(
            taken[name],
            bodies[0],
            bodies[1],
            plausible=_plausible(facts.get(name, {}), bodies[0]),
            title=_title(name, bodies[0], bodies[1], taken[name]),
        )
        panels.append(Panel(name, drawing))
    blocks: list[Block] = []
    if panels:
        caption = (
            "Bodies as solid ellipsoids of uniform density with their mass, centre and inertia:"
            " identified (blue, red where it cannot be the link's) and of the file (orange), in the"
            f" region of the link (grey{'' if regions else ': the hull of its joints, padded'})."
            " The frame fits the region; what is larger is cut off."
        )
        arrangement = "grid" if len(panels) <= GRID else "choose"
        blocks.append(Figure(tuple(panels), caption, arrangement, "link"))
    blocks.append(_table(estimate, facts))
    return Section("Plausibility of the bodies", "plausibility", tuple(blocks))


def origin_regions(robot: Robot) -> dict[str, Region]:
    """Return an ellipsoid about each body's joint origins and welded links, padded."""
    R, p = rigid_body.body_frames(robot, robot.neutral)
    points: list[list[np.ndarray]] = [[np.zeros(3)] for _ in robot.body_names]
    body_of = {node: b for b, node in enumerate(robot.tree.bodies)}
    for b, node in enumerate(robot.tree.bodies):
        above = robot.tree.nodes[node].parent
        while above >= 0 and above not in body_of:
            above = robot.tree.nodes[above].parent
        if above >= 0:
            parent = body_of[above]
            points[parent].append(R[parent].T @ (p[b] - p[parent]))
    for link in robot.links:
        if link.body >= 0:
            points[link.body].append(np.asarray(link.translation))
    out = {}
    for b, name in enumerate(robot.body_names):
        own = np.array(points[b])
        if np.ptp(own, axis=0).max() < NEAR:  # a last link reaches as far as its centre, twice
            theta = robot.theta[ten.SIZE * b : ten.SIZE * (b + 1)]
            if theta[ten.M] > 0.0:
                tip = 2.0 * ten.first_moment(theta) / theta[ten.M]
                own = np.vstack([own, tip])
        half = 0.5 * np.ptp(own, axis=0)
        pad = max(PAD[0], PAD[1] * float(half.max()))
        out[name] = (0.5 * (own.min(axis=0) + own.max(axis=0)), np.diag(half + pad))
    return out


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
    text = f"{figures.shown(figures.fit(name, 24))}<br>{masses[0]} (file {masses[1]})"
    if body is not None and not in_frame(region, body):
        text += f"<br>centre {np.linalg.norm(body.centre - region[0]):.2g} m away"
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
