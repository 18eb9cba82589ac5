"""Draws what `inspect` found for a reader at a terminal. Takes only the plain data of
`describe`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from thetahat import robots
from thetahat.cli.exit_status import plain
from thetahat.cli.terminal import show, table
from thetahat.errors import known

DEEPEST = 24  # branches drawn with guides; deeper ones are only counted
SHOWN_LINKS, SHOWN_NOTES, SHOWN_BASE, SHOWN_TERMS = 3, 8, 40, 4
_DRIVE_TERMS = {
    "viscous friction": "damping",
    "Coulomb friction": "friction",
    "rotor inertia": "armature",
}
_UNIT = {"revolute": "rad", "prismatic": "m"}


def draw(found: dict[str, Any]) -> None:
    """Print the report to stdout, in colour where stdout is a terminal that wants it."""
    # The terminal breaks a sentence that is too long, not us: a broken one cannot be searched for.
    show(
        [
            heading(found),
            tree(found),
            joints(found),
            bodies(found),
            base(found),
            verdict(found),
            notes(found),
        ],
        unbroken=True,
    )


def heading(found: dict[str, Any]) -> Text:
    """Name, file, degrees of freedom, mass and gravity."""
    gravity = ", ".join(_short(value) for value in found["gravity"])
    text = Text(plain(found["name"]), style="bold")
    if found["source"]:
        shipped = Path(found["source"]).parent == robots.FOLDER
        text.append(
            "  (ships with thetahat)" if shipped else f"  {plain(found['source'])}",
            style="not bold dim",
        )
    text.append(
        f"\n{_count(found['nv'], 'degree')} of freedom (nq {found['nq']}, nv {found['nv']}) ·"
        f" {_count(len(found['joints']), 'joint')} ·"
        f" {_count(len(found['bodies']), 'body', 'bodies')}, {_short(found['mass'])} kg · gravity"
        f" ({gravity}) m/s²",
        style="not bold",
    )
    return text


def tree(found: dict[str, Any]) -> Table:
    """The joints in depth-first order; a joint stands under the one it hangs in, and is indented
    where that one branches.
    """
    out = table("tree", "kind", "axis", "moves", "mass [kg]", "links welded to it", numbers=False)
    out.columns[4].justify = "right"
    out.columns[3].no_wrap = out.columns[5].no_wrap = (
        False  # the columns that give way where the terminal is narrow
    )
    if any(joint["parent_joint"] is None for joint in found["joints"]):
        out.add_row(
            Text("world", style="dim"),
            "",
            "",
            "",
            "",
            _listed([name for name in found["fixed_links"] if name != "world"]),
        )
    body_named = {body["name"]: body for body in found["bodies"]}
    for guide, joint in _guided(found["joints"]):
        body = body_named.get(joint["body"])
        out.add_row(
            Text.assemble((guide, "dim"), plain(joint["name"])),
            joint["kind"],
            _axis(joint["axis"]),
            Text(plain(joint["body"]) if body else "(nothing)", no_wrap=True, overflow="ellipsis"),
            _short(body["mass"]) if body else "",
            _listed([name for name in body["links"] if name != body["name"]] if body else []),
        )
    return out


def _guided(joints: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Each joint with the lines drawn before its name."""
    children: dict[str | None, list[dict[str, Any]]] = {}
    for joint in joints:
        children.setdefault(joint["parent_joint"], []).append(joint)
    out = []
    stack: list[tuple[dict[str, Any], str, str]] = []  # joint, its own guide, the guide beneath it

    def branch(parent: str | None, guide: str) -> None:
        hanging = children.get(parent, [])
        if len(hanging) == 1 and parent is not None:
            stack.append((hanging[0], guide, guide))
            return
        for joint in reversed(hanging):
            last = joint is hanging[-1]
            stack.append(
                (joint, guide + ("└╴" if last else "├╴"), guide + ("  " if last else "│ "))
            )

    branch(None, "")
    while stack:
        joint, guide, beneath = stack.pop()
        out.append((guide if len(guide) <= 2 * DEEPEST else f"… {len(guide) // 2} ", joint))
        branch(joint["name"], beneath)
    return out


def joints(found: dict[str, Any]) -> Group | Text:
    """Limits and drive terms the file states; columns nobody states are left out."""
    columns = {
        "speed": "velocity",
        "effort": "effort",
        "viscous": "damping",
        "Coulomb": "friction",
        "rotor": "armature",
    }
    stated = {
        title: key for title, key in columns.items() if any(joint[key] for joint in found["joints"])
    }
    if not stated and all(_range(joint) in ("", "unlimited") for joint in found["joints"]):
        return Text("The file states no limits and no drive terms.")
    out = table("joint", "range", *stated, numbers=False)
    for column in out.columns[2:]:
        column.justify = "right"
    for joint in found["joints"]:
        blank = (None, 0.0) if joint["mimic"] or joint["kind"] not in _UNIT else (None,)
        cells = ["" if joint[key] in blank else _short(joint[key]) for key in stated.values()]
        out.add_row(plain(joint["name"]), _range(joint), *cells)
    missing = [term for term, key in _DRIVE_TERMS.items() if key not in stated.values()]
    return Group(
        out,
        Text(
            f"SI units. The file states no {', no '.join(missing)}." if missing else "SI units.",
            style="dim",
        ),
    )


def bodies(found: dict[str, Any]) -> Table | None:
    """Mass, centre of mass and principal moments of every body, in its own frame."""
    if not found["bodies"]:
        return None
    out = table(
        "body", "mass [kg]", "centre of mass [m]", "principal moments [kg·m²]", "ok", numbers=False
    )
    for column in out.columns[1:4]:
        column.justify, column.no_wrap = (
            "right",
            False,
        )  # numbers may move to the next line, never be cut
    for body in found["bodies"]:
        good = body["consistent"] and not body["unphysical_links"]
        out.add_row(
            plain(body["name"]),
            _short(body["mass"]),
            " ".join(
                "?" if value is None else f"{round(value, 4) + 0.0:7.4f}" for value in body["com"]
            ),
            " ".join(
                "?" if value is None else f"{value:8.3g}" for value in body["principal_moments"]
            ),
            Text("yes", style="green") if good else Text("NO", style="bold red"),
        )
    return out


def base(found: dict[str, Any]) -> Group | Text | None:
    """What the torques of a motion can tell of every body, and the base parameters by name."""
    if not found["bodies"]:
        return None
    named = found["base_parameters"]
    if named is None:
        return Text("Base parameters are not looked for in a robot of this size.")
    out = table("body", "shows alone", "in sums with others", "never shows", numbers=False)
    for body in found["bodies"]:
        out.add_row(
            plain(body["name"]),
            *(" ".join(body[kind]) or "–" for kind in ("alone", "in_sums", "never")),
        )
    lines = [
        f"Base parameters, what torques can tell: {len(named)} of {10 * len(found['bodies'])}"
        " inertial ones."
    ]
    lines += [f"  {_cut(plain(name))}" for name in named[:SHOWN_BASE]]
    if len(named) > SHOWN_BASE:
        lines.append(f"  and {len(named) - SHOWN_BASE} more (--json lists all)")
    return Group(out, Text("\n" + "\n".join(lines), no_wrap=True, overflow="ignore"))


def _cut(sum_: str) -> str:
    """A sum with its first terms and how many follow."""
    terms = re.split(r"(?= [+−] )", sum_)
    return (
        sum_
        if len(terms) <= SHOWN_TERMS + 1
        else f"{''.join(terms[:SHOWN_TERMS])} + {len(terms) - SHOWN_TERMS} more"
    )


def verdict(found: dict[str, Any]) -> Text:
    """Whether every link can belong to a rigid body; if not, which and why, and the way out."""
    if not found["bodies"]:
        return Text("Nothing moves: every link is welded to the world.")
    if found["consistent"]:
        return Text(
            f"Physically consistent: yes ({_count(len(found['bodies']), 'body', 'bodies')}).",
            style="green",
        )
    text = Text("Physically consistent: NO.", style="bold red")
    for body in found["bodies"]:
        for link in body["unphysical_links"]:
            text.append(
                f"\n  link {plain(link['name'])}: {plain(link['condition'])}", style="not bold red"
            )
        if not body["consistent"] and body["condition"] not in [
            link["condition"] for link in body["unphysical_links"]
        ]:
            text.append(
                f"\n  body {plain(body['name'])} (its links together): {plain(body['condition'])}",
                style="not bold red",
            )
    text.append(
        "\nCorrect the file, or go on with the nearest physical robot:"
        " thetahat.load(...).projected().",
        style="not bold default",
    )
    return text


def notes(found: dict[str, Any]) -> Text | None:
    """What the reader saw in the file and left alone."""
    if not found["notes"]:
        return None
    lines = [f"note: {plain(note)}" for note in found["notes"][:SHOWN_NOTES]]
    if len(found["notes"]) > SHOWN_NOTES:
        lines.append(f"note: {len(found['notes']) - SHOWN_NOTES} more (--json lists all)")
    return Text("\n".join(lines), style="dim")


# -- pieces ----------------------------------------------------------------------------------------


def _listed(links: list[str]) -> Text:
    return Text(
        known(map(plain, links), SHOWN_LINKS) if links else "",
        style="dim",
        no_wrap=True,
        overflow="ellipsis",
    )


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _short(value: float | None) -> str:
    return "?" if value is None else f"{value + 0.0:.4g}"


def _axis(axis: list[float] | None) -> str:
    if axis is None:
        return ""
    for k, name in enumerate("xyz"):
        if abs(abs(axis[k]) - 1.0) < 1e-9:
            return ("+" if axis[k] > 0 else "-") + name
    return "(" + ", ".join(f"{value + 0.0:.3g}" for value in axis) + ")"


def _range(joint: dict[str, Any]) -> str:
    if joint["mimic"]:
        mimic = joint["mimic"]
        offset = (
            f" {'+' if mimic['offset'] > 0 else '-'} {_short(abs(mimic['offset']))}"
            if mimic["offset"]
            else ""
        )
        return f"{_short(mimic['multiplier'])} × {plain(mimic['joint'])}{offset}"
    lower, upper = joint["lower"], joint["upper"]
    if lower is None and upper is None:
        return "unlimited" if joint["kind"] in _UNIT else ""
    return (
        f"{'-∞' if lower is None else _short(lower)} … {'∞' if upper is None else _short(upper)}"
        f" {_UNIT.get(joint['kind'], '')}".rstrip()
    )
