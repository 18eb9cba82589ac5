"""Sections on parameters: base parameters, friction, bodies, consistency and identifiability."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from thetahat.errors import known
from thetahat.identification.identifiability.naming import short_labels
from thetahat.identification.uncertainty.flags import SENTENCES
from thetahat.model import parameters as ten
from thetahat.model.drive import TERMS
from thetahat.model.robot import Robot
from thetahat.report.figures import bars
from thetahat.report.figures.stick_figure import margin, robot_figure
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table, Text
from thetahat.report.text import (
    Data,
    count,
    fitted_joints,
    friction_sentences,
    labels,
    lengths,
    magnitudes,
    with_spread,
)

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
EDGE = 1e-3  # margin of the triangle inequality below which a body is degenerate
VAGUE = 50.0  # [%] σ of its value: a parameter known less well cannot be told from zero
NEARLY = 1.05  # inflation of standard deviations below which rows are nearly independent
NAMED = 12  # of them, above which the list is folded
SHOWN = 8  # bodies that are not consistent, named
_LEADING = re.compile(r"^−?(?:[\d.e+-]+·)?(mc|m|I|viscous|coulomb|offset|armature)[a-z]*_")


def parameters(estimate: Data) -> Section:
    """Return base parameters with intervals beside the nominal ones, friction, and the bodies."""
    base = estimate["base_parameters"]
    blocks: list[Block] = [
        Text(
            "A log identifies base parameters: fixed combinations of the ten inertial parameters"
            f" of each body, and of friction. Intervals are ± 2 standard deviations,"
            f" {_inflation(estimate)}."
        )
    ]
    panels = _interval_panels(base)
    if panels:
        blocks.append(Figure(panels, "Base parameters, identified and nominal.", "choose", "kind"))
    blocks += [block for block in (drive_table(estimate), body_table(estimate)) if block]
    columns = (
        Column("base parameter", wide=True),
        Column("value", "SI"),
        Column("σ"),
        Column("σ", "%"),
        Column("nominal"),
        Column("interval", wide=True),
    )
    keys = ("name", "value", "std", "relative_std", "nominal")
    rows = tuple((*(entry.get(key) for key in keys), _flagged(entry)) for entry in base)
    blocks.append(Table(columns, rows, f"All {len(rows)} base parameters", folded=True))
    return Section("Parameters", "parameters", tuple(blocks))


def _flagged(entry: Data) -> str | None:
    """Return why the interval of a base parameter may not hold."""
    return ", ".join(SENTENCES[flag] for flag in entry.get("flags") or ()) or None


def _inflation(estimate: Data) -> str:
    """Return how standard deviations account for autocorrelated noise."""
    noise = [joint.get("noise") for joint in fitted_joints(estimate)]
    factors = [each["inflation"] for each in noise if each is not None]
    if not factors or len(factors) < len(noise) or None in factors:
        return "as of independent rows"
    if max(factors) < NEARLY:
        return "as of independent rows"
    resolved = all(each["resolved"] for each in noise if each is not None)
    least, short = ("", "") if resolved else ("at least ", " (the log is too short to say more)")
    return (
        f"{least}{min(factors):.1f} to {max(factors):.1f} times those of independent rows, as the"
        f" noise is autocorrelated{short}"
    )


def _interval_panels(base: Sequence[Data]) -> tuple[Panel, ...]:
    """Return a panel per kind of parameter, as units cannot be mixed, and per ROWS of them."""
    kinds: dict[str, list[Data]] = {kind: [] for kind in PARAMETERS}
    for entry in base:
        leading = _LEADING.match(entry["name"])
        if leading:
            kinds[leading[1]].append(entry)
    panels = []
    for kind, mine in kinds.items():
        title, unit = PARAMETERS[kind]
        parts = [mine[at : at + ROWS] for at in range(0, len(mine), ROWS)]
        for number, entries in enumerate(parts, start=1):
            names = [entry["name"] for entry in entries]
            drawing = bars.parameter_intervals(
                names,
                [entry["value"] for entry in entries],
                [entry["std"] for entry in entries],
                [entry["nominal"] for entry in entries],
                title=f"{title} [{unit}]",
                labels=[_first_term(name) for name in names],
            )
            of = "" if len(parts) == 1 else f", {number} of {len(parts)}"
            panels.append(Panel(f"{title}{of}", drawing))
    return tuple(panels)


def _first_term(name: str) -> str:
    first, *rest = re.split(r" [+−] ", name, maxsplit=1)
    return f"{first} + …" if rest else first


def drive_table(estimate: Data) -> Table | None:
    """Return friction and rotor inertia with their standard deviations."""
    motors = estimate["motors"]
    rows = fitted_joints(estimate) if motors is None else motors
    terms = [term for term in TERMS if any(row.get(term) is not None for row in rows)]
    if not terms:
        return None
    of = "joint" if motors is None else "motor"
    titles = (Column(*DRIVE[term], numeric=True, brief=DRIVE[term][0]) for term in terms)
    cells = tuple(
        (row["name"], *(with_spread(row.get(term), row["std"].get(term)) for term in terms))
        for row in rows
    )
    armature = estimate["provenance"]["settings"].get("armature") or "not requested"
    notes = [
        f"± one standard deviation, {_inflation(estimate)}; SI units.",
        f"Rotor inertia {armature}.",
    ]
    if any(cell is not None and "(in sum)" in cell for row in cells for cell in row[1:]):
        notes.append("In sum: identifiable only in a sum with other parameters.")
    notes += friction_sentences(estimate)
    caption = "Friction, offset and rotor inertia; of prismatic joints in N, m and kg."
    return Table((Column(of), *titles), cells, caption, note=" ".join(notes))


def body_table(estimate: Data) -> Table | Note:
    """Return mass, centre and principal moments of every body beside the nominal ones."""
    if not estimate["consistent"]:
        text = "Bodies are not listed: the parameters are not physically consistent."
        return Note(text, "warning")
    columns = (
        Column("body"),
        Column("mass", "kg"),
        Column("nominal", "kg", brief="nominal"),
        Column("centre of mass", "m", numeric=True),
        Column("moved", "mm", brief=""),
        Column("principal moments", "kg·m²", numeric=True, brief=""),
        Column("nominal", "kg·m²", numeric=True, brief=""),
        Column("individually identifiable", wide=True),
    )
    rows = []
    for link in estimate["links"]:
        nominal = link.get("nominal") or {}
        centres = (*link["com"], *(nominal.get("com") or [None]))
        moved = None
        if None not in centres:
            moved = 1000.0 * float(np.linalg.norm(np.subtract(link["com"], nominal["com"])))
        moments = [
            magnitudes(_moments(inertia))
            for inertia in (link["inertia_com"], nominal.get("inertia_com"))
        ]
        masses = (link["mass"], nominal.get("mass"))
        identifiable = ", ".join(link["identifiable"]) or None
        rows.append((link["name"], *masses, lengths(link["com"]), moved, *moments, identifiable))
    note = (
        "Only base parameters are identifiable; of all bodies with the same base parameters, these"
        " are closest to the prior."
    )
    return Table(columns, tuple(rows), "Bodies, identified and nominal.", note=note)


def _moments(inertia: Sequence[float | None] | None) -> list[float] | None:
    """Return principal moments from xx, xy, xz, yy, yz, zz."""
    values = [value for value in inertia or () if value is not None]
    if len(values) < 6:
        return None
    xx, xy, xz, yy, yz, zz = values
    matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return [float(moment) for moment in np.linalg.eigvalsh(matrix)]


# -- consistency -----------------------------------------------------------------------------------


def consistency_notes(estimate: Data) -> list[Note]:
    """Return whether the bodies are physically consistent, and which are not."""
    wrong = [link for link in estimate["links"] if not link["consistent"]]
    if not wrong:
        number = count(len(estimate["links"]), "body", "bodies")
        return [
            Note(f"Physically consistent: yes ({number}).", "good"),
            *plausibility_notes(estimate),
        ]
    notes = [
        Note(f"{link['name']}: {link['condition'] or 'not a rigid body'}.", "bad")
        for link in wrong[:SHOWN]
    ]
    more = len(wrong) - SHOWN
    if more > 0:
        notes.append(Note(f"And {more} more.", "bad"))
    if estimate["method"].endswith(("prior", "positive")):
        advice = "--method consistent gives physically consistent parameters."
    else:
        advice = (
            "Base parameters are unaffected; the least-norm parameters behind them are for"
            " prediction, not for a simulator."
        )
    return [*notes, Note(f"Physically consistent: no. {advice}", "warning")]


def plausibility_notes(estimate: Data) -> list[Note]:
    """Return the bounds of plausible bodies that the result sits on, and other doubts."""
    found = estimate.get("plausibility")
    if found is None:
        return []
    notes = []
    if found.get("placeholder") is not None:
        notes.append(
            Note(f"Placeholder inertias in the robot file: {found['placeholder']}.", "warning")
        )
    names = [bound["name"] for bound in found.get("on_bound", ())]
    if names:
        notes.append(Note(f"On a bound: {'; '.join(names)}.", "warning"))
    return notes


def consistency(estimate: Data, robot: Robot, identified: Robot, pose: np.ndarray) -> Section:
    """Return the robot with inertia ellipsoids, and the margin of every body's consistency."""
    blocks: list[Block] = [*consistency_notes(estimate)]
    thetas = [each.theta.reshape(-1, ten.SIZE) for each in (identified, robot)]
    margins = [[margin(theta) for theta in each] for each in thetas]
    flat = [
        name
        for name, share in zip(identified.body_names, margins[0], strict=True)
        if share is not None and abs(share) < EDGE
    ]
    if flat and all(link["consistent"] for link in estimate["links"]):
        blocks.append(
            Note(
                f"On the boundary of consistency (needles or plates): {known(flat, 6)}"
                f" ({len(flat)} of {len(estimate['links'])} bodies). The log does not identify"
                " their inertia individually; `--metric moments` or a larger `--prior-weight`"
                " keeps them off the boundary."
            )
        )
    caption = (
        "The robot in the log's mean pose. Inertia is drawn as the solid ellipsoid of uniform"
        " density with the body's mass, centre and moments: identified in blue, nominal as orange"
        " rings. Drag to rotate; hover over a centre of mass for its body."
    )
    drawing = robot_figure(robot, pose, identified.theta, robot.theta)
    blocks.append(Figure((Panel("robot", drawing),), caption))
    caption = (
        "Triangle inequality of the principal moments I₁ ≤ I₂ ≤ I₃: 1/3 for a ball, 0 for a flat"
        " plate or a rod, negative for no rigid body."
    )
    drawing = bars.consistency_margins(labels(robot.body_names), *margins)
    blocks.append(Figure((Panel("margins", drawing),), caption))
    return Section("Physical consistency", "bodies", tuple(blocks))


# -- identifiability -------------------------------------------------------------------------------


def identifiability_notes(estimate: Data) -> list[Note]:
    """Return the rank of the log, and advice."""
    rank, structural = estimate["rank"], estimate["structural_rank"]
    if rank < structural:
        text = f"The log identifies {rank} of {structural} base parameters; the others"
        notes = [Note(f"{text} {_fate(estimate['method'])}.", "warning")]
    else:
        notes = [Note(f"The log identifies all {structural} base parameters.", "good")]
    advice = (sentence[:1].upper() + sentence[1:] for sentence in estimate["advice"])
    return notes + [Note(sentence, "warning") for sentence in advice]


def identifiability(estimate: Data) -> Section:
    """Return which parameters are unidentifiable or vague, and which motion would help."""
    blocks: list[Block] = [*identifiability_notes(estimate)]
    missing, base = estimate["structural_rank"] - estimate["rank"], estimate["base_parameters"]
    vague = [entry for entry in base if (entry.get("relative_std") or 0.0) > VAGUE]
    if vague:
        vague.sort(key=lambda entry: -entry["relative_std"])
        columns = (Column("base parameter", wide=True), Column("value ± σ", "SI", numeric=True))
        rows = tuple((entry["name"], with_spread(entry["value"], entry["std"])) for entry in vague)
        text = (
            f"{len(rows)} of {len(base)} base parameters are not significantly different from zero"
            " (|value| < 2σ): they matter little to these torques, or are poorly excited."
        )
        caption = "Base parameters not significantly different from zero"
        blocks += [Text(text), Table(columns, rows, caption, folded=len(rows) > NAMED)]
    if vague or missing > 0:
        blocks.append(
            Text(
                "`thetahat excite ROBOT --after LOG --out motion.csv` designs a motion that excites"
                " what this log does not."
            )
        )
    if estimate["unseen"]:
        text = "These parameters have no effect on any measured torque"
        if missing <= 0:
            text += ", whatever the motion of these joints; only another mounting would show them"
        columns = (Column("body or joint"), Column("unidentifiable", wide=True))
        fate = Text(f"{text}. They {_fate(estimate['method'])}.")
        blocks += [fate, Table(columns, tuple(_by_owner(estimate)))]
    return Section("Identifiability", "unseen", tuple(blocks))


def _fate(method: str) -> str:
    prior = method.endswith(("consistent", "smooth", "prior"))
    return "keep the prior's values" if prior else "are not determined"


def _by_owner(estimate: Data) -> list[tuple[str, str]]:
    """Group Ixx_link1, m_link1 to (panda_link1, "Ixx, m")."""
    names = [link["name"] for link in estimate["links"]]
    whole = dict(zip(short_labels(names), names, strict=True))
    groups: dict[str, list[str]] = {}
    for name in estimate["unseen"]:
        term, _, owner = name.partition("_")
        owner = whole.get(owner, owner) if term in ten.NAMES else owner or name
        groups.setdefault(owner, []).append(term)
    return [(owner, known(terms)) for owner, terms in groups.items()]
