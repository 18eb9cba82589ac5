"""Draws what `identify` found for a reader at a terminal. Takes only the plain data of the
answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from thetahat.cli.exit_status import plain
from thetahat.cli.terminal import (
    findings,
    judged,
    low_pass,
    r2,
    short,
    show,
    table,
    vector,
    with_spread,
    written,
)
from thetahat.errors import known
from thetahat.identification.estimate_json import friction_sentences

WORSE = 1.05  # RMS held out, of the file's own: less is chance
GRAVE = (
    "gravity-direction",
    "sign",
    "dead-torque",
    "saturated",
    "stuck",
    "coupling",
)  # findings that change the answer
DRIVE = {"viscous": "viscous", "coulomb": "Coulomb", "offset": "offset", "armature": "rotor"}


def draw(found: dict[str, Any], *, files: list[Path], seconds: float) -> None:
    """Print the report to stdout, in colour where stdout is a terminal that wants it."""
    show(
        [
            verdict(found),
            scores(found),
            drive(found),
            bodies(found),
            parameters(found),
            audit(found),
            written(files, seconds),
        ]
    )


def verdict(found: dict[str, Any]) -> Text:
    """One sentence: what was identified, and how well it predicts what it has not seen."""
    total, scored = (
        found["r2"],
        [joint for joint in found["joints"] if joint["r2_test"] is not None],
    )
    text = Text(
        f"{plain(found['provenance']['robot'])}: {found['rank']} parameters from"
        f" {found['samples']:,} samples",
        style="bold",
    )
    if total["test"] is None or not scored:
        text.append(
            "; nothing usable was held out, so how well they predict is not known.",
            style="not bold",
        )
        return _with_grave(text, found)
    worst = min(scored, key=lambda joint: joint["r2_test"])
    nominal = (
        ""
        if total["nominal"] is None
        else f" (the robot as its file states it: {r2(total['nominal'])})"
    )
    text.append(
        f"; R² {r2(total['test'])} on held-out data{nominal}, least on {plain(worst['name'])}:"
        f" {r2(worst['r2_test'])}.",
        style="not bold",
    )
    behind = [
        joint["name"]
        for joint in scored
        if joint["rms_nominal"] is not None and joint["rms_test"] > WORSE * joint["rms_nominal"]
    ]
    if behind and not any(item["kind"] in GRAVE for item in found["findings"]):
        text.append(
            f"\nThe file's own values predict {known(map(plain, behind))} better: look at the log,"
            " --cutoff and, for coupled joints, --actuation.",
            style="not bold yellow",
        )
    return _with_grave(text, found)


def _with_grave(text: Text, found: dict[str, Any]) -> Text:
    """What the audit found that changes the answer, where nobody can overlook it."""
    for item in found["findings"]:
        if item["kind"] in GRAVE:
            text.append(f"\nlog: {plain(item['message'])}", style="not bold yellow")
    return text


def scores(found: dict[str, Any]) -> Group:
    """R² and RMS per joint: fitted, held out, nominal."""
    plain_beside = found["method"] != "least-squares"
    out = table(
        "joint",
        "R² fit",
        "held out",
        "moving",
        "raw",
        "RMS",
        *(["pinv"] if plain_beside else []),
        "nominal",
        "rows fit",
    )
    for joint in _asked(found):
        out.add_row(
            plain(joint["name"]),
            r2(joint["r2_train"]),
            judged(joint["r2_test"]),
            r2(joint["r2_test_moving"]),
            r2(joint["r2_test_raw"]),
            *(
                _rms(joint[f"rms_{kind}"])
                for kind in ("test", *(["pseudo_inverse"] if plain_beside else []), "nominal")
            ),
            f"{joint['rows_train']:,}",
        )
    cutoff = found["provenance"]["settings"]["cutoff"]
    score = found["score_cutoff"]
    scored = "" if score is None else f"; scored torques {score:.4g} Hz, raw ones as logged"
    note = (
        f"R² = 1 − e'e/u'u. Low-pass of the fit {cutoff:.4g} Hz{scored}. RMS of what is left,"
        " held out"
    )
    note += (
        f"{', of the pseudo-inverse' if plain_beside else ''} and of the file's values [N·m or N]."
    )
    return Group(out, Text(note, style="dim"))


def _rms(value: float | None) -> str:
    """Three digits, two where they would take more room than a column of 80 has."""
    return short(value) if value is None or value >= 0.1 else f"{value:.2g}"


def drive(found: dict[str, Any]) -> Group | None:
    """Friction and rotor inertia with their standard deviations."""
    rows = _asked(found) if found["motors"] is None else found["motors"]
    terms = {
        term: title
        for term, title in DRIVE.items()
        if any(row.get(term) is not None for row in rows)
    }
    if not terms:
        return None
    out = table("joint" if found["motors"] is None else "motor", *terms.values())
    for row in rows:
        out.add_row(
            plain(row["name"]),
            *(with_spread(row.get(term), row["std"].get(term)) for term in terms),
        )
    lines = [plain(sentence) for sentence in friction_sentences(found)]
    notes = [
        f"± one standard deviation, {_counted(found)}. Rotor inertia:"
        f" {plain(found['provenance']['settings']['armature'])}."
    ]
    if any(
        row.get(term) is not None and row["std"].get(term) is None for row in rows for term in terms
    ):
        notes.append("“with others”: only its sum with other parameters is known.")
    return Group(out, Text("\n".join([" ".join(notes), *lines]), style="dim"))


def _counted(found: dict[str, Any]) -> str:
    """How rows were counted: a filtered log has fewer independent ones than rows."""
    noise = [joint["noise"] for joint in _asked(found)]
    if any(each is None or each["inflation"] is None for each in noise):
        return "rows taken as independent"
    least, most = (reduce(each["inflation"] for each in noise) for reduce in (min, max))
    far = (
        ""
        if all(each["resolved"] for each in noise)
        else ", and at least, since the log is too short to tell"
    )
    return (
        f"{least:.1f} to {most:.1f} times that of independent rows, as the noise of neighbouring"
        f" ones is alike{far}"
    )


def bodies(found: dict[str, Any]) -> Group | None:
    """Mass, beside the file's, and centre of mass of every body, and what the log tells of it."""
    if not found["consistent"]:
        return None  # numbers of a body that cannot exist mislead
    out = table("body", "mass [kg]", "file", "centre of mass [m]", "the log alone tells")
    for link in found["links"]:
        told = ", ".join(link["identifiable"]) or "–"
        out.add_row(
            plain(link["name"]),
            short(link["mass"]),
            short(link["nominal"]["mass"]),
            vector(link["com"]),
            told,
        )
    note = (
        "The log tells sums of these (base_parameters in estimate.json); of all bodies with those"
        " sums, these are nearest to the prior."
    )
    return Group(out, Text(note, style="dim"))


def parameters(found: dict[str, Any]) -> Text:
    """Rank, condition, and whether the ten numbers behind the base parameters are physical."""
    text = Text(
        f"{found['columns']} columns, {found['structural_rank']} base parameters, rank"
        f" {found['rank']}, condition {short(found['condition'])}; {found['method']}:"
        f" {found['status']}."
    )
    wrong = [link["name"] for link in found["links"] if not link["consistent"]]
    if wrong and found["method"].endswith(("prior", "positive")):
        text.append(
            f"\nNot physical: {known(map(plain, wrong), 4)}; --method consistent finds parameters"
            " that are.",
            style="yellow",
        )
    elif wrong:
        text.append(
            "\nBase parameters are what the log determines; the θ of least norm behind them is not"
            f" physical for {known(map(plain, wrong), 4)}, so it is for prediction, not for a"
            " simulator.",
            style="yellow",
        )
    else:
        proof = found["certificate"]
        proved = (
            ""
            if proof is None or proof["gap"] is None
            else f" Proved to be within {proof['gap']:.1g} noise variances of the best such fit."
        )
        text.append("\nPhysically consistent: yes.", style="green").append(proved)
    if found["rank"] < found["structural_rank"]:
        kept = (
            "keep the prior's values"
            if found["method"].endswith(("consistent", "smooth", "prior"))
            else "are not determined"
        )
        text.append(
            f"\nThe log shows {found['rank']} of {found['structural_rank']} base parameters; the"
            f" others {kept}.",
            style="yellow",
        )
    if found["parity"] is not None:
        parity = found["parity"]
        beside = (
            f"; {known(parity['not_in_file'])} in {parity['drive_file']} beside it, as the file has"
            " no place for it"
            if parity["drive_file"]
            else ""
        )
        text.append(
            f"\n{plain(parity['file'])}, read again, gives the same torques to"
            f" {parity['torque_error']:.0e} N·m{beside}."
        )
    if found["locked"]:
        text.append(
            "\nHeld still, and counted to what carries them:"
            f" {known(map(plain, found['locked']))}.",
            style="dim",
        )
    for sentence in found["advice"]:
        text.append(f"\n{plain(sentence)}", style="yellow")
    return text


def audit(found: dict[str, Any]) -> Text | None:
    """What the audit saw in the log, and what was left out of the fit."""
    lines = findings(found["findings"], skip=(*GRAVE, "locked-joints"))
    if found["dropped"]:
        lines.append(
            "left out of the fit: "
            + ", ".join(f"{count:,} {plain(reason)}" for reason, count in found["dropped"].items())
            + " (torques)"
        )
    lines.append(low_pass(found["provenance"]["settings"]["cutoff_reason"]))
    lines += [
        f"chosen: {plain(sentence)}"
        for sentence in found["provenance"]["settings"]["tuned"]
        if not sentence.startswith("dry friction")
    ]
    return Text("\n".join(lines), style="dim")


# -- pieces ----------------------------------------------------------------------------------------


def _asked(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The joints whose torques were fitted."""
    return [joint for joint in found["joints"] if joint["rows_train"]]
