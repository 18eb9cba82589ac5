"""Sections on what was found: parameters with their intervals, the bodies as a picture, and what
the log does not tell.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from thetahat.errors import known
from thetahat.identification.estimate_json import friction_sentences
from thetahat.identification.identifiability.naming import short_labels
from thetahat.model import parameters as ten
from thetahat.model.drive import TERMS
from thetahat.model.robot import Robot
from thetahat.report import figures
from thetahat.report.figures.stick_figure import margin
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table, Text
from thetahat.report.text import asked, labels, lengths, sizes, with_spread

DRIVE = {
    "viscous": ("viscous", "N·m·s/rad"),
    "coulomb": ("Coulomb", "N·m"),
    "offset": ("offset", "N·m"),
    "armature": ("rotor", "kg·m²"),
}
PARAMETERS = {  # by the letters a base parameter's name begins with: title, unit
    "mc": ("first moments", "kg·m"),
    "m": ("masses", "kg"),
    "I": ("inertia", "kg·m²"),
    "viscous": ("viscous friction", "N·m·s/rad"),
    "coulomb": ("Coulomb friction", "N·m"),
    "offset": ("offsets", "N·m"),
    "armature": ("rotor inertia", "kg·m²"),
}
ROWS = 40  # parameters in one panel
EDGE = 1e-3  # margin of the triangle inequality below which a body is a needle or a plate
VAGUE = 50.0  # [%] σ of its value: a parameter known less well cannot be told from zero
NAMED = 12  # of them, above which the list is folded
_LEADING = re.compile(r"^−?(?:[\d.e+-]+·)?(mc|m|I|viscous|coulomb|offset|armature)[a-z]*_")


def parameters(found: dict[str, Any]) -> Section:
    """Base parameters with intervals beside nominal, friction, and the bodies."""
    stated = [entry["nominal"] for entry in found["base_parameters"]]
    blocks: list[Block] = [
        Text(
            "What a log determines are base parameters: fixed combinations of the ten numbers of"
            " each body, and of friction. Intervals are ± 2 standard deviations;"
            f" {_counted(found)}."
        )
    ]
    panels = _interval_panels(found, stated)
    if panels:
        blocks.append(
            Figure(tuple(panels), "Base parameters beside the file's values.", "choose", "kind")
        )
    drive = _drive_table(found)
    if drive is not None:
        blocks.append(drive)
        blocks.append(Text(_drive_note(found)))
    blocks += _bodies(found)
    rows = [
        (entry["name"], entry["value"], entry["std"], entry.get("relative_std"), value)
        for entry, value in zip(found["base_parameters"], stated, strict=True)
    ]
    columns = (
        Column("base parameter", wide=True),
        Column("value", "SI"),
        Column("σ"),
        Column("σ", "%"),
        Column("nominal"),
    )
    blocks.append(Table(columns, tuple(rows), f"All {len(rows)} base parameters", folded=True))
    return Section("Parameters", "parameters", tuple(blocks))


def _counted(found: dict[str, Any]) -> str:
    """How rows were counted: a filtered log has fewer independent ones than rows."""
    noise = [joint.get("noise") for joint in asked(found)]
    if not noise or any(each is None or each["inflation"] is None for each in noise):
        return "rows are taken as independent"
    least, most = (reduce(each["inflation"] for each in noise) for reduce in (min, max))
    at_least, far = (
        ("", "")
        if all(each["resolved"] for each in noise)
        else ("at least ", "; the log is too short to tell how much more")
    )
    return (
        f"they are {at_least}{least:.1f} to {most:.1f} times as wide as if rows were independent,"
        f" as the noise of neighbouring rows is alike{far}"
    )


def _interval_panels(found: dict[str, Any], stated: list[float | None]) -> list[Panel]:
    """A panel per kind of parameter, as units cannot be mixed, and per ROWS of them."""
    kinds: dict[str, list[int]] = {kind: [] for kind in PARAMETERS}
    for k, entry in enumerate(found["base_parameters"]):
        leading = _LEADING.match(entry["name"])
        if leading:
            kinds[leading[1]].append(k)
    panels = []
    for kind, mine in kinds.items():
        title, unit = PARAMETERS[kind]
        parts = [mine[at : at + ROWS] for at in range(0, len(mine), ROWS)]
        for number, part in enumerate(parts, start=1):
            entries = [found["base_parameters"][k] for k in part]
            names = [entry["name"] for entry in entries]
            drawing = figures.parameter_intervals(
                names,
                [entry["value"] for entry in entries],
                [entry["std"] for entry in entries],
                [stated[k] for k in part],
                title=f"{title} [{unit}]",
                labels=[_head(name) for name in names],
            )
            count = "" if len(parts) == 1 else f", {number} of {len(parts)}"
            panels.append(Panel(f"{title}{count}", drawing))
    return panels


def _head(name: str) -> str:
    """A sum by its first term."""
    first = re.split(r" [+−] ", name, maxsplit=1)
    return first[0] if len(first) == 1 else f"{first[0]} + …"


def _drive_table(found: dict[str, Any]) -> Table | None:
    """Friction and rotor inertia with their standard deviations."""
    rows = asked(found) if found["motors"] is None else found["motors"]
    terms = [term for term in TERMS if any(row.get(term) is not None for row in rows)]
    if not terms:
        return None
    columns = (
        Column("joint" if found["motors"] is None else "motor"),
        *(Column(*DRIVE[term], numeric=True) for term in terms),
    )
    cells = tuple(
        (row["name"], *(with_spread(row.get(term), row["std"].get(term)) for term in terms))
        for row in rows
    )
    return Table(
        columns,
        cells,
        "Friction, offset and rotor inertia ± one standard deviation; of joints that slide in N, m"
        " and kg.",
    )


def _drive_note(found: dict[str, Any]) -> str:
    text = f"Rotor inertia: {found['provenance']['settings'].get('armature') or 'not asked for'}."
    rows = asked(found) if found["motors"] is None else found["motors"]
    if any(
        row.get(term) is not None and row["std"].get(term) is None for row in rows for term in TERMS
    ):
        text += " “With others”: only its sum with other parameters is known."
    return " ".join([text, *friction_sentences(found)])


def _bodies(found: dict[str, Any]) -> list[Block]:
    """Mass, centre and principal moments of every body beside the file's."""
    if not found["consistent"]:
        return [
            Note(
                "Bodies are not listed: the numbers behind these base parameters are none that"
                " bodies can have.",
                "warning",
            )
        ]
    columns = (
        Column("body"),
        Column("mass", "kg"),
        Column("nominal", "kg"),
        Column("centre of mass", "m", numeric=True),
        Column("moved", "mm"),
        Column("principal moments", "kg·m²", numeric=True),
        Column("nominal", "kg·m²", numeric=True),
        Column("the log alone tells"),
    )
    rows = []
    for link in found["links"]:
        stated = link.get("nominal") or {}
        moved = None
        if not any(value is None for value in (*link["com"], *(stated.get("com") or [None]))):
            moved = 1000.0 * float(np.linalg.norm(np.subtract(link["com"], stated["com"])))
        moments = [
            sizes(_moments(values)) for values in (link["inertia_com"], stated.get("inertia_com"))
        ]
        told = ", ".join(link["identifiable"]) or None
        rows.append(
            (
                link["name"],
                link["mass"],
                stated.get("mass"),
                lengths(link["com"]),
                moved,
                *moments,
                told,
            )
        )
    note = (
        "The log tells sums of these numbers; of all robots with those sums, this one is nearest to"
        " the prior. Only what stands in the last column is known by itself."
    )
    return [Table(columns, tuple(rows), "Bodies as found, beside the file's."), Text(note)]


def _moments(inertia: list[float | None] | None) -> list[float] | None:
    """Principal moments from xx, xy, xz, yy, yz, zz."""
    if inertia is None or any(value is None for value in inertia):
        return None
    xx, xy, xz, yy, yz, zz = inertia
    return np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]).tolist()


# -- consistency -----------------------------------------------------------------------------------


def consistency(
    found: dict[str, Any], robot: Robot, identified: Robot, pose: np.ndarray
) -> Section:
    """The robot with the ellipsoids of its bodies, and how far each is from what no body can be."""
    blocks: list[Block] = []
    wrong = [link for link in found["links"] if not link["consistent"]]
    if wrong:
        blocks += [
            Note(
                f"{link['name']}: {link['condition'] or 'no rigid body has these numbers'}.", "bad"
            )
            for link in wrong[:8]
        ]
        if len(wrong) > 8:
            blocks.append(Note(f"And {len(wrong) - 8} more.", "bad"))
    else:
        blocks.append(
            Note(
                f"All {len(found['links'])} bodies are physical: mass above zero, and principal"
                " moments that a solid can have.",
                "good",
            )
        )
    thetas = [each.theta.reshape(-1, ten.SIZE) for each in (identified, robot)]
    margins = [[margin(theta) for theta in each] for each in thetas]
    flat = [
        name
        for name, share in zip(identified.body_names, margins[0], strict=True)
        if share is not None and abs(share) < EDGE
    ]
    if flat and not wrong:
        text = (
            f"At the edge of what is possible, as needles or plates: {known(flat, 6)} ({len(flat)}"
            f" of {len(found['links'])} bodies)"
        )
        blocks.append(
            Note(
                f"{text}. The log does not tell their inertia alone; `--metric entropic` or a"
                " larger `--prior-weight` keeps them off the edge."
            )
        )
    caption = (
        "The robot in the log's mean pose. Each body's inertia as the solid ellipsoid of uniform"
        " density that has its mass, centre and moments: identified in blue, nominal as orange"
        " rings. Drag to turn, point at a centre of mass to see its body."
    )
    drawing = figures.robot_figure(robot, pose, identified.theta, robot.theta)
    blocks.append(Figure((Panel("robot", drawing),), caption))
    names = labels(robot.body_names)
    caption = (
        "Triangle inequality of the principal moments I₁ ≤ I₂ ≤ I₃: 1/3 is a ball, 0 a flat plate"
        " or a rod, and nothing can be below."
    )
    blocks.append(
        Figure((Panel("margins", figures.consistency_margins(names, *margins)),), caption)
    )
    return Section("Consistency of the bodies", "bodies", tuple(blocks))


# -- what is not known -----------------------------------------------------------------------------


def unseen(found: dict[str, Any]) -> Section:
    """What was not identifiable, and which motion would show it."""
    blocks: list[Block] = []
    short_of = found["structural_rank"] - found["rank"]
    if short_of > 0:
        text = f"The log shows {found['rank']} of {found['structural_rank']} base parameters."
        blocks.append(Note(f"{text} The others {_kept(found['method'])}.", "warning"))
    else:
        blocks.append(
            Note(
                f"The log shows all {found['structural_rank']} base parameters that the robot's"
                " motion can show.",
                "good",
            )
        )
    blocks += [Note(sentence[:1].upper() + sentence[1:], "warning") for sentence in found["advice"]]
    vague = sorted(
        (
            entry
            for entry in found["base_parameters"]
            if entry.get("relative_std") is not None and entry["relative_std"] > VAGUE
        ),
        key=lambda entry: -entry["relative_std"],
    )
    if vague:
        columns = (Column("base parameter", wide=True), Column("value ± σ", "SI", numeric=True))
        rows = tuple((entry["name"], with_spread(entry["value"], entry["std"])) for entry in vague)
        text = (
            f"{len(rows)} of {len(found['base_parameters'])} base parameters cannot be told from"
            " zero (|value| < 2σ)"
        )
        blocks.append(
            Text(
                f"{text}: they matter little to the torques of this motion, or the motion shows"
                " them too weakly."
            )
        )
        blocks.append(
            Table(
                columns,
                rows,
                "Base parameters that cannot be told from zero",
                folded=len(rows) > NAMED,
            )
        )
    if vague or short_of > 0:
        blocks.append(
            Text(
                "`thetahat excite ROBOT --after LOG --out motion.csv` designs a motion that shows"
                " what this log does not."
            )
        )
    if found["unseen"]:
        text = "These numbers act on no torque that was measured"
        text += (
            "; no motion of these joints would show them, only another mounting or a moving base."
            if short_of <= 0
            else "."
        )
        columns = (Column("body or joint"), Column("not seen", wide=True))
        blocks += [
            Text(f"{text} They {_kept(found['method'])}."),
            Table(columns, tuple(_grouped(found))),
        ]
    return Section("What the log does not tell", "unseen", tuple(blocks))


def _kept(method: str) -> str:
    return (
        "keep the prior's values"
        if method.endswith(("consistent", "smooth", "prior"))
        else "are not determined"
    )


def _grouped(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Ixx_link1, m_link1 → (panda_link1, "Ixx, m")."""
    names = [link["name"] for link in found["links"]]
    whole = dict(zip(short_labels(names), names, strict=True))
    groups: dict[str, list[str]] = {}
    for name in found["unseen"]:
        term, _, owner = name.partition("_")
        groups.setdefault(
            whole.get(owner, owner) if term in ten.NAMES else owner or name, []
        ).append(term)
    return [(owner, known(terms)) for owner, terms in groups.items()]
