"""Whether the identified bodies can be those of the robot: masses, centres and sizes against its
file, and bounds that they sit on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from thetahat.errors import known
from thetahat.identification.next_steps import Commands
from thetahat.identification.verdict_reason import (
    SUSPECT,
    WRONG,
    Data,
    Fields,
    Reason,
    quantity,
)

MASS = 4.0  # times the file's mass, or a part of it: no link of that robot beyond
TOTAL = (0.6, 1.6)  # of the file's total mass
FAR_TOTAL = 4.0  # of parameters that are no bodies, whose masses mean little
NEGLIGIBLE = 0.005  # of the total mass: a difference that does not matter
OUTSIDE = (0.01, 0.05)  # [m] centre of mass outside the link's region: named; not usable
SIZE = (1.5, 2.5)  # radius of gyration to the region's: named; not usable. A shell has 1.29.
GROWN = 1.2  # times the file's own size: as large as in the file is not the fit's doing
NAMED = 4


def compare_masses(links: Sequence[Data]) -> Fields:
    """Return masses relative to the file's, as `plausibility` of an answer states them."""
    compared = [link for link in links if not is_placeholder(link.get("nominal") or {})]
    return {
        "total_mass": _total(link["mass"] for link in links),
        "total_mass_file": _total(link["nominal"]["mass"] for link in compared)
        if len(compared) == len(links)
        else None,
        "links": [
            {
                "name": link["name"],
                "mass_ratio": link["mass"] / link["nominal"]["mass"]
                if link in compared and link["mass"] is not None
                else None,
                "com_outside": None,
                "size_ratio": None,
            }
            for link in links
        ],
        "on_bound": [],
        "given_up": [],
    }


def _comparable(facts: Data | None) -> Data | None:
    """Return the facts without comparisons with masses that the file made up."""
    if not facts or not facts.get("placeholder"):
        return facts
    links = [{**link, "mass_ratio": None} for link in facts["links"]]
    return {**facts, "total_mass_file": None, "links": links}


def is_placeholder(nominal: Data) -> bool:
    """Whether a file's values are none: no mass, or the unit mass with unit inertia at its origin.

    Nothing can be compared with them.
    """
    mass, inertia, com = nominal.get("mass"), nominal.get("inertia_com"), nominal.get("com")
    if mass is None or mass <= 0.0:
        return True
    if not inertia or None in inertia or not com or None in com:
        return False
    moments = {inertia[0], inertia[3], inertia[5]}
    at_origin = not any(com) and not any(inertia[k] for k in (1, 2, 4))
    return bool(at_origin and len(moments) == 1 and (inertia[0] == mass or mass == 1.0))


def body_reasons(data: Data, commands: Commands) -> Iterator[Reason]:
    """Yield what is wrong with the bodies."""
    facts = _comparable(data.get("plausibility")) or compare_masses(data["links"])
    if not data["consistent"]:
        yield from _inconsistent(data, facts, commands)
        return
    steps = (*commands.stronger_prior(data), commands.excite_after, commands.inspect)
    yield from _total_reasons(facts, TOTAL, steps, commands)
    yield from _mass_reasons(data, facts, steps)
    places = _over(facts, "com_outside", OUTSIDE, lambda x: f"{100.0 * x:.2g} cm")
    for effect, names in places.items():
        text = f"the centre of mass lies outside the link: {known(names, NAMED)}"
        yield Reason(effect, text, steps)
    grown = {**facts, "links": [link for link in facts["links"] if _larger_than_stated(link)]}
    for effect, names in _over(grown, "size_ratio", SIZE, lambda x: f"{x:.2g} times").items():
        text = f"the inertia is that of a body larger than the link: {known(names, NAMED)}"
        yield Reason(effect, text, steps)
    bounds = [_name(item) for item in facts.get("on_bound") or ()]
    if bounds:
        text = f"on the bound of what is plausible, where the data ask for more: {known(bounds, 6)}"
        yield Reason(SUSPECT, text, (commands.excite_after,))
    given_up = [_name(item) for item in facts.get("given_up") or ()]
    if given_up:
        text = f"bounds that the data reject were given up: {known(given_up, 6)}"
        yield Reason(SUSPECT, text, (commands.inspect,))


def _inconsistent(data: Data, facts: Data, commands: Commands) -> Iterator[Reason]:
    """Yield that parameters are no bodies; their masses are compared by order of magnitude."""
    wrong = [link["name"] for link in data["links"] if not link["consistent"]]
    text = (
        f"the parameters of {known(wrong, NAMED)} are not physically consistent: use them for"
        " prediction, not in a simulator"
    )
    yield Reason(SUSPECT, text, (commands.identify("--method consistent"),))
    limits = (-math.inf, FAR_TOTAL)
    yield from _total_reasons(facts, limits, (commands.inspect,), commands)


def _total_reasons(
    facts: Data, limits: tuple[float, float], steps: tuple[str, ...], commands: Commands
) -> Iterator[Reason]:
    total, file = facts.get("total_mass"), facts.get("total_mass_file")
    if total is None or not file or limits[0] <= total / file <= limits[1]:
        return
    ratio = total / file
    check = "masses in the file, and rotor inertia (--armature)"
    if not 0.1 < ratio < 10.0:
        check = "unit of the torques (mN·m are a thousand times N·m, amperes another scale)"
        steps = (commands.score_nominal, commands.inspect)
    text = (
        f"the robot would weigh {quantity(total, 'kg')}, {_times(ratio)} its file's"
        f" {quantity(file, 'kg')}: check the {check}"
    )
    yield Reason(WRONG, text, steps)


def _mass_reasons(data: Data, facts: Data, steps: tuple[str, ...]) -> Iterator[Reason]:
    """Yield links whose masses no such robot has, and those that cannot be compared."""
    masses = {link["name"]: (link["mass"], link.get("nominal") or {}) for link in data["links"]}
    known_masses = [nominal.get("mass") or 0.0 for _, nominal in masses.values()]
    negligible = NEGLIGIBLE * sum(known_masses)
    wrong, unknown = [], []
    for link in facts["links"]:
        ratio, name = link.get("mass_ratio"), link["name"]
        mass, nominal = masses.get(name, (None, {}))
        if ratio is None:
            if mass is not None and mass > negligible:  # a frame without mass has none to check
                unknown.append(name)
            continue
        stated = nominal.get("mass")
        small = None not in (mass, stated) and abs(mass - stated) < negligible
        if 1.0 / MASS <= ratio <= MASS or small:
            continue
        values = "" if mass is None else f"{quantity(mass, 'kg')}, "
        wrong.append((ratio, f"{name} ({values}{_times(ratio)} its file's)"))
    if wrong:
        wrong.sort(key=lambda each: -max(each[0], 1.0 / each[0]) if each[0] > 0.0 else -1e9)
        tool = (
            "; a link that carries a tool needs it in the robot file"
            if any(ratio > MASS for ratio, _ in wrong)
            else ""
        )
        text = f"masses that the links cannot have: {known([t for _, t in wrong], NAMED)}{tool}"
        yield Reason(WRONG, text, steps)
    if unknown:
        text = (
            f"the masses of {known(unknown, NAMED)} cannot be checked: the robot file has none, or"
            " placeholders"
        )
        yield Reason(SUSPECT, text)


def _larger_than_stated(link: Data) -> bool:
    """Whether a body is larger than the file's own, which may exceed its region by itself."""
    return bool((link.get("size_ratio") or 0.0) > GROWN * (link.get("size_ratio_file") or 0.0))


def _over(
    facts: Data, key: str, limits: tuple[float, float], shown: Callable[[float], str]
) -> dict[str, list[str]]:
    """Return links beyond either limit, by effect, the gravest first."""
    out: dict[str, list[str]] = {}
    for link in facts["links"]:
        value = link.get(key)
        if value is None or value <= limits[0]:
            continue
        effect = WRONG if value > limits[1] else SUSPECT
        out.setdefault(effect, []).append(f"{link['name']} ({shown(value)})")
    return out


def _times(ratio: float) -> str:
    """Return a ratio in words."""
    if ratio >= 10.0:
        return f"{ratio:,.0f} times"
    return f"{ratio:.2g} times" if ratio >= 1.0 else f"{max(ratio, 0.0):.2g} of"


def _name(item: object) -> str:
    """Return what sits on a bound, or was given up, as text."""
    if isinstance(item, Mapping):
        words = (item.get(key) for key in ("name", "what", "bound"))
        return str(item.get("message") or " ".join(str(word) for word in words if word))
    return str(item)


def _total(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values) if known_values else None
