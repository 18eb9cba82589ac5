"""What `thetahat excite` says of the motion that it wrote."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thetahat.errors import UsageError
from thetahat.identification.verdict_reason import Fields

if TYPE_CHECKING:
    from thetahat.excite.design import Design

SCHEMA = "thetahat/excite/1"
POSES = "thetahat/poses/1"
MARGIN_FIELDS = ("kind", "name", "used", "allowed", "value", "limit", "unit", "time")


def motion_format(out: str, to: str | None) -> str:
    """Return the format of the file to write; an error names the option."""
    from thetahat.excite.trajectory_files import format_of

    try:
        return format_of(out, to)
    except UsageError as error:
        option = "--to" if to is not None else "--out"
        raise UsageError(f"{option}: {error}") from None


def describe(
    motion_design: Design, *, rows: int, rate: float, file: Path, warnings: list[str]
) -> dict[str, Any]:
    """Return the answer as plain data, schema thetahat/excite/1."""
    space = motion_design.workspace
    return {
        "schema": SCHEMA,
        "file": str(file),
        "rows": rows,
        "rate": rate,
        "duration": motion_design.trajectory.duration,
        "joints": list(motion_design.trajectory.joint_names),
        "criterion": motion_design.criterion,
        "condition": motion_design.condition if math.isfinite(motion_design.condition) else None,
        "log_det": motion_design.log_det if math.isfinite(motion_design.log_det) else None,
        "base_parameters": len(motion_design.information.base),
        "evaluations": motion_design.evaluations,
        "seconds": motion_design.seconds,
        "complete": motion_design.complete,
        "limits": [
            {name: getattr(m, name) for name in MARGIN_FIELDS} | {"text": str(m)}
            for m in motion_design.margins
        ],
        "workspace": {
            "link": space.link,
            "lower": space.lower.tolist(),
            "upper": space.upper.tolist(),
            "lowest": space.lowest,
            "lowest_link": space.lowest_link,
            "lowest_time": space.lowest_time,
            "text": str(space),
        },
        "notes": list(motion_design.notes),
        "warnings": list(warnings),
    }


def as_words(data: dict[str, Any], seconds: float) -> str:
    """Return the answer as people read it."""
    condition = "without bound" if data["condition"] is None else f"{data['condition']:.3g}"
    lines = [
        f"A motion of {data['duration']:g} s for {len(data['joints'])} joints shows"
        f" {data['base_parameters']} base parameters; condition {condition}."
    ]
    lines += [f"  {m['text']}" for m in data["limits"]]
    lines.append(f"  {data['workspace']['text']}")
    lines += [f"  {note}" for note in data["notes"]]
    if data["preview"]:
        lines.append(f"Wrote {data['preview']}: open it in a browser to see the robot move.")
    lines.append(
        f"Wrote {data['file']} ({data['rows']:,} rows at {data['rate']:g} Hz) in {seconds:.1f} s;"
        " play it, or: thetahat simulate."
    )
    return "\n".join(lines) + "\n"


def poses_data(file: Path, joints: tuple[str, ...], count: int, link: str) -> Fields:
    """Return the answer where poses to hold were written, schema thetahat/poses/1."""
    note = (
        f"poses for a payload on {link}: hold each for a second, reach it once from either side so"
        " that friction cancels, and plan a free way between them yourself"
    )
    names = list(joints)
    return {"schema": POSES, "file": str(file), "rows": count, "joints": names, "notes": [note]}


def held_words(data: Fields) -> str:
    """Return the answer on poses as people read it."""
    return f"Wrote {data['file']}: {data['rows']} {data['notes'][0]}.\n"
