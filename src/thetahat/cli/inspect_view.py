"""Terminal output of `inspect`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from thetahat import robots
from thetahat.cli.terminal import show
from thetahat.errors import known
from thetahat.report.section import Block, Cell, Column, Note, Table, Text
from thetahat.report.text import Data, count

DEEPEST = 24  # branches drawn with guides; deeper ones are only counted
SHOWN_LINKS, SHOWN_NOTES, SHOWN_BASE, SHOWN_TERMS = 3, 8, 40, 4
DRIVE_TERMS = {
    "damping": "viscous friction",
    "friction": "Coulomb friction",
    "armature": "rotor inertia",
}
LIMITS = {
    "velocity": "speed",
    "effort": "effort",
    "damping": "viscous",
    "friction": "Coulomb",
    "armature": "rotor",
}
UNITS = {"revolute": "rad", "prismatic": "m"}


def draw(robot: Data) -> None:
    """Print the robot to stdout. robot: plain data of `describe`."""
    parts = [
        _heading(robot),
        _tree(robot),
        _joints(robot),
        _bodies(robot),
        *_identifiability(robot),
        _consistency(robot),
        _notes(robot),
    ]
    # The terminal breaks a sentence that is too long, not us: a broken one cannot be searched for.
    show(parts, unbroken=True)


def _heading(robot: Data) -> list[Block]:
    """Return name, file, degrees of freedom, mass and gravity."""
    name, source = robot["name"], robot["source"]
    if source:
        shipped = Path(source).parent == robots.FOLDER
        name += "  (ships with thetahat)" if shipped else f"  {source}"
    gravity = ", ".join(_number(value) for value in robot["gravity"])
    bodies = count(len(robot["bodies"]), "body", "bodies")
    freedom = count(robot["nv"], "degree")
    return [
        Note(name),
        Text(
            f"{freedom} of freedom (nq {robot['nq']}, nv {robot['nv']}) ·"
            f" {count(len(robot['joints']), 'joint')} · {bodies}, {_number(robot['mass'])} kg ·"
            f" gravity ({gravity}) m/s²"
        ),
    ]


def _tree(robot: Data) -> Table:
    """Return the joints in depth-first order, indented where the tree branches."""
    columns = (
        Column("tree"),
        Column("kind"),
        Column("axis"),
        Column("moves", wide=True),
        Column("mass", "kg", numeric=True),
        Column("links welded to it", wide=True),
    )
    rows: list[tuple[Cell, ...]] = []
    if any(joint["parent_joint"] is None for joint in robot["joints"]):
        fixed = [name for name in robot["fixed_links"] if name != "world"]
        rows.append(("world", "", "", "", "", _listed(fixed)))
    bodies = {body["name"]: body for body in robot["bodies"]}
    for guide, joint in guided(robot["joints"]):
        body = bodies.get(joint["body"])
        name, axis = guide + joint["name"], _axis(joint["axis"])
        if body is None:
            rows.append((name, joint["kind"], axis, "(nothing)", "", ""))
            continue
        welded = _listed([link for link in body["links"] if link != body["name"]])
        rows.append((name, joint["kind"], axis, joint["body"], _number(body["mass"]), welded))
    return Table(columns, tuple(rows))


def guided(joints: Sequence[Data]) -> list[tuple[str, Data]]:
    """Return each joint with the lines drawn before its name."""
    children: dict[str | None, list[Data]] = {}
    for joint in joints:
        children.setdefault(joint["parent_joint"], []).append(joint)
    out = []
    stack: list[tuple[Data, str, str]] = []  # joint, its own guide, the guide beneath it

    def branch(parent: str | None, guide: str) -> None:
        hanging = children.get(parent, [])
        if len(hanging) == 1 and parent is not None:
            stack.append((hanging[0], guide, guide))
            return
        for joint in reversed(hanging):
            own, beneath = ("└╴", "  ") if joint is hanging[-1] else ("├╴", "│ ")
            stack.append((joint, guide + own, guide + beneath))

    branch(None, "")
    while stack:
        joint, guide, beneath = stack.pop()
        out.append((guide if len(guide) <= 2 * DEEPEST else f"… {len(guide) // 2} ", joint))
        branch(joint["name"], beneath)
    return out


def _joints(robot: Data) -> Block:
    """Return limits and drive terms that the file states, without empty columns."""
    joints = robot["joints"]
    stated = {key: title for key, title in LIMITS.items() if any(joint[key] for joint in joints)}
    if not stated and all(_range(joint) in ("", "unlimited") for joint in joints):
        return Text("The file states no limits and no drive terms.")
    rows: list[tuple[Cell, ...]] = []
    for joint in joints:
        blank = (None, 0.0) if joint["mimic"] or joint["kind"] not in UNITS else (None,)
        cells = ("" if joint[key] in blank else _number(joint[key]) for key in stated)
        rows.append((joint["name"], _range(joint), *cells))
    missing = [term for key, term in DRIVE_TERMS.items() if key not in stated]
    note = f" The file states no {', no '.join(missing)}." if missing else ""
    titles = (Column(title, numeric=True) for title in stated.values())
    columns = (Column("joint"), Column("range"), *titles)
    return Table(columns, tuple(rows), note=f"SI units.{note}")


def _bodies(robot: Data) -> Table | None:
    """Return mass, centre of mass and principal moments of every body, in its own frame."""
    if not robot["bodies"]:
        return None
    columns = (
        Column("body"),
        Column("mass", "kg", numeric=True),
        Column("centre of mass", "m", numeric=True),
        Column("principal moments", "kg·m²", numeric=True),
        Column("ok", limits=(1.0, 1.0)),
    )

    def listed(values: Sequence[float | None], form: str) -> str:
        return " ".join("?" if value is None else format(value + 0.0, form) for value in values)

    rows = tuple(
        (
            body["name"],
            _number(body["mass"]),
            listed([None if x is None else round(x, 4) for x in body["com"]], "7.4f"),
            listed(body["principal_moments"], "8.3g"),
            bool(body["consistent"] and not body["unphysical_links"]),
        )
        for body in robot["bodies"]
    )
    return Table(columns, rows)


def _identifiability(robot: Data) -> list[Block | list[Block] | None]:
    """Return which parameters of every body are identifiable, and the base parameters."""
    base = robot["base_parameters"]
    if not robot["bodies"]:
        return []
    if base is None:
        return [Text("Base parameters are not computed for a robot of this size.")]
    kinds = {"alone": "identifiable", "in_sums": "in sums", "never": "unidentifiable"}
    columns = (Column("body"), *(Column(title, wide=True) for title in kinds.values()))
    rows = tuple(
        (body["name"], *(" ".join(body[kind]) or None for kind in kinds))
        for body in robot["bodies"]
    )
    total = 10 * len(robot["bodies"])
    lines = [f"{len(base)} base parameters of {total} inertial parameters are identifiable:"]
    lines += [f"  {_shortened(name)}" for name in base[:SHOWN_BASE]]
    if len(base) > SHOWN_BASE:
        lines.append(f"  and {len(base) - SHOWN_BASE} more (--json lists all)")
    return [Table(columns, rows), [Text(line) for line in lines]]


def _shortened(base_parameter: str) -> str:
    """Return a sum with its first terms and how many follow."""
    terms = re.split(r"(?= [+−] )", base_parameter)
    if len(terms) <= SHOWN_TERMS + 1:
        return base_parameter
    return f"{''.join(terms[:SHOWN_TERMS])} + {len(terms) - SHOWN_TERMS} more"


def _consistency(robot: Data) -> list[Block]:
    """Return whether every link is physically consistent; if not, which and why."""
    if not robot["bodies"]:
        return [Text("Nothing moves: every link is welded to the world.")]
    if robot["consistent"]:
        bodies = count(len(robot["bodies"]), "body", "bodies")
        return [Note(f"Physically consistent: yes ({bodies}).", "good")]
    out: list[Block] = [Note("Physically consistent: NO.", "bad")]
    for body in robot["bodies"]:
        links, condition = body["unphysical_links"], body["condition"]
        for link in links:
            out.append(Note(f"  link {link['name']}: {link['condition']}", "bad"))
        if not body["consistent"] and condition not in [link["condition"] for link in links]:
            out.append(Note(f"  body {body['name']} (its links together): {condition}", "bad"))
    advice = (
        "Correct the file, or use the nearest consistent robot: thetahat.load(...).projected()."
    )
    return [*out, Text(advice)]


def _notes(robot: Data) -> list[Text]:
    """Return the reader's notes on the file."""
    notes = [f"note: {note}" for note in robot["notes"][:SHOWN_NOTES]]
    more = len(robot["notes"]) - SHOWN_NOTES
    return [Text(note) for note in (*notes, *([f"note: {more} more (--json)"] if more > 0 else []))]


# -- pieces ----------------------------------------------------------------------------------------


def _listed(links: list[str]) -> str:
    return known(links, SHOWN_LINKS) if links else ""


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value + 0.0:.4g}"


def _axis(axis: list[float] | None) -> str:
    if axis is None:
        return ""
    for k, name in enumerate("xyz"):
        if abs(abs(axis[k]) - 1.0) < 1e-9:
            return ("+" if axis[k] > 0 else "-") + name
    return "(" + ", ".join(f"{value + 0.0:.3g}" for value in axis) + ")"


def _range(joint: Data) -> str:
    mimic = joint["mimic"]
    if mimic:
        sign, offset = "+" if mimic["offset"] > 0 else "-", abs(mimic["offset"])
        shift = f" {sign} {_number(offset)}" if offset else ""
        return f"{_number(mimic['multiplier'])} × {mimic['joint']}{shift}"
    lower, upper = joint["lower"], joint["upper"]
    if lower is None and upper is None:
        return "unlimited" if joint["kind"] in UNITS else ""
    low, high = "-∞" if lower is None else _number(lower), "∞" if upper is None else _number(upper)
    return f"{low} … {high} {UNITS.get(joint['kind'], '')}".rstrip()
