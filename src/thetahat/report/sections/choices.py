"""Section on automatic choices, each with its evidence."""

from __future__ import annotations

from collections.abc import Iterator

from thetahat.report.section import Column, Section, Table
from thetahat.report.text import Data, short

Row = tuple[str, str | None, str | None]
FORM = "form of the equation of motion"
STARTS = {  # a sentence of the tuning by how it begins: the choice it belongs to
    "motion low-pass": "low-pass (by cross-validation)",
    "torque low-pass": "low-pass of the torque",
    "torque ": "delay",  # "torque lags behind the motion by 2 ms"
    "prior weight": "prior weight",
    "instruments": "instruments",
    "Coulomb": "Coulomb friction",
    FORM: FORM,
    "Spring at ": "spring",
    "Counterbalance at ": "counterbalance",
    "nothing was chosen": "tuning",
}


def choices(estimate: Data) -> Section:
    """Return low-pass, delay, friction, rotor inertia, prior weight and masked rows, and why."""
    columns = (
        Column("choice", wide=True),
        Column("value", wide=True),
        Column("evidence", wide=True),
    )
    note = "Chosen inside the training rows; held-out rows decide nothing."
    return Section(
        "Automatic choices", "choices", (Table(columns, tuple(_rows(estimate)), note=note),)
    )


def _rows(estimate: Data) -> Iterator[Row]:
    settings = estimate["provenance"]["settings"]
    if settings.get("cutoff") is not None:
        reason = settings.get("cutoff_reason") or ""
        yield (
            "low-pass (by spectrum)",
            f"{settings['cutoff']:.4g} Hz",
            reason.partition(": ")[2] or reason,
        )
    tuned = [_split(sentence) for sentence in settings.get("tuned") or ()]
    yield from tuned
    chosen = {row[0] for row in tuned}
    if "low-pass of the torque" not in chosen and settings.get("torque_cutoff"):
        yield "low-pass of the torque", f"{settings['torque_cutoff']:.4g} Hz", "that of the motion"
    if "delay" not in chosen and settings.get("delay") is not None:
        evidence = "no other improves the fit" if tuned else "not tuned"
        yield "delay", f"{1e3 * settings['delay']:.2g} ms", evidence
    if FORM not in chosen and settings.get("form") not in (None, "torque"):
        yield FORM, settings["form"], "as asked: no accelerations"
    if settings.get("armature"):
        value, _, evidence = settings["armature"].partition(": ")
        yield "rotor inertia", value, evidence or None
    if "prior weight" not in chosen and settings.get("prior_weight") is not None:
        yield "prior weight", short(settings["prior_weight"]), "as given, or the default"
    if settings.get("min_speed"):
        speeds = sorted(set(settings["min_speed"]))
        ends = short(speeds[0]) + (f" … {short(speeds[-1])}" if len(speeds) > 1 else "")
        yield "standstill below", f"{ends} rad/s or m/s", "dry friction is undefined there"
    for reason, number in estimate["dropped"].items():
        yield f"masked: {reason}", f"{number:,} torques", "one joint in one row each"


def _split(sentence: str) -> Row:
    """Return choice, value and evidence of a sentence of the tuning."""
    head, _, evidence = sentence.partition(": ")
    for start, name in STARTS.items():
        if sentence.startswith(start):
            if name == "Coulomb friction":
                joint = head.removeprefix("Coulomb ").removeprefix("friction of ")
                joint = joint.removeprefix("transition width of ")
                what, _, gain = evidence.partition(", ")
                kind = "transition width " if "transition" in head else ""
                return f"{name} of {joint}", f"{kind}{what}", gain or None
            return name, head.removeprefix(start).strip() or head, evidence or None
    return head.split(" of ")[0], head.partition(" of ")[2] or None, evidence or None
