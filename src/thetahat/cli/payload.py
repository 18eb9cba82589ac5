"""`thetahat payload ROBOT LOADED... --without UNLOADED... --link NAME`: what a link holds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import READING, with_options, with_settings
from thetahat.errors import NotUsable
from thetahat.files import as_text, require_folder
from thetahat.pipeline.settings import IdentifySettings, setting

Loaded = Annotated[
    list[str],
    typer.Argument(
        metavar="LOADED",
        help="Logs with the payload; of several payloads NAME=LOG.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class PayloadOptions:
    """Options of `thetahat payload`."""

    without: list[str] | None = setting(
        "Log without the payload, of any motion; may be repeated.", None, "LOG"
    )
    estimate: str | None = setting(
        "estimate.json of the robot without payload, instead of its logs.", None, "FILE"
    )
    known_mass: list[str] | None = setting(
        "Mass of the payload in kg, or NAME=KG of one of several: identifies the gains of the"
        " drives; may be repeated.",
        None,
        "KG",
    )
    size: str | None = setting(
        "Box that holds the payload: X,Y,Z in m on the link's frame (centred along x and y, from 0"
        " along z), XLOW..XHIGH/YLOW..YHIGH/ZLOW..ZHIGH, or a mesh file.",
        None,
        "SIZE",
    )
    strict: bool = setting(
        "End with exit code 8 if the result is not usable.", False, flags="--strict"
    )


@with_options(PayloadOptions)
@with_settings(
    *("friction", "armature", "cutoff", "min_speed", "gravity", "joints", "actuation"),
    *("springs", "tune", *READING),
)
def payload(
    robot: arguments.Robot,
    loaded: Loaded,
    *,
    link: Annotated[
        str, option("Link that holds the payload, in whose frame its numbers are.", metavar="NAME")
    ],
    out: Annotated[
        str | None,
        arguments.output(
            "Folder for payload.json, report.html and, with --known-mass, drive.json.", "DIR"
        ),
    ] = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    options: PayloadOptions,
    settings: IdentifySettings,
) -> None:
    """Identify what a link holds: mass, centre of mass, inertia; with a known mass, drive gains."""
    began = time.monotonic()
    file, without, estimate = robots.find(robot), options.without or None, options.estimate
    if estimate is not None:
        arguments.input_file(estimate, "--estimate")
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        from thetahat.pipeline import payload as pipeline
        from thetahat.pipeline.payload_request import known_masses

        if out is not None:
            read = [file, *loaded, *(without or ()), *filter(None, [estimate])]
            require_folder(Path(out), [Path(out) / name for name in pipeline.FILES], read)
        result = pipeline.payload(
            file,
            list(loaded),
            link=link,
            without=without,
            estimate=estimate,
            known_mass=known_masses(options.known_mass or ()),
            size=options.size,
            settings=settings,
            progress=progress,
        )
        files = () if out is None else result.save(out, warnings=warnings)
    data = {**result.data, "warnings": list(warnings)}
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.payload_view import draw

        draw(data, files=list(files), seconds=time.monotonic() - began)
    if options.strict and not result.verdict.usable:
        raise NotUsable(f"the result is not usable (--strict): {result.verdict.reasons[0]}")
