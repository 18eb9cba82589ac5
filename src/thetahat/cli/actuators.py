"""`thetahat actuators ROBOT LOG... --out DIR`: drives and friction from commanded positions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import READING, with_options, with_settings
from thetahat.errors import NotUsable, UsageError
from thetahat.files import as_text, require_folder
from thetahat.pipeline.settings import IdentifySettings, setting


@dataclass(frozen=True, kw_only=True)
class ActuatorOptions:
    """Options of `thetahat actuators`."""

    kp: str | None = setting(
        "Position gains that are known, in N·m/rad: one number, one per joint with commas, or"
        " JOINT=NUMBER with commas.",
        None,
        "GAINS",
    )
    kd: str | None = setting(
        "Velocity gains that are known, in N·m·s/rad; without them only the sum of kd and viscous"
        " friction is found.",
        None,
        "GAINS",
    )
    links: str = setting(
        "file: as the robot's file has them; free: fitted with the drives, the file as a prior,"
        " which needs --kp or --mass.",
        "file",
        "file|free",
    )
    mass: str | None = setting(
        "Masses of links that are known, in kg, for --links free: LINK=KG with commas.",
        None,
        "MASSES",
    )
    test: list[str] | None = setting(
        "Log to score on instead of a held-out part; may be repeated.", None, "LOG"
    )
    strict: bool = setting(
        "End with exit code 8 if the result is not usable.", False, flags="--strict"
    )


@with_options(ActuatorOptions)
@with_settings("gravity", "holdout", *(name for name in READING if name != "gains"))
def actuators(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    out: Annotated[
        str | None, arguments.output("Folder for actuators.json and report.html.", "DIR")
    ] = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    options: ActuatorOptions,
    settings: IdentifySettings,
) -> None:
    """Identify gains, friction, rotor inertia and delay from commanded and measured positions."""
    began = time.monotonic()
    file = robots.find(robot)
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        from thetahat.pipeline import actuators as pipeline
        from thetahat.pipeline.dataset import load_robot
        from thetahat.pipeline.freed_links import LinkFreedom

        if out is not None:
            targets = [Path(out) / name for name in pipeline.FILES]
            require_folder(Path(out), targets, [file, *logs, *(options.test or ())])
        model = load_robot(str(file), settings.gravity)
        result = pipeline.actuators(
            model,
            list(logs),
            test=options.test or None,
            kp=arguments.per_joint(options.kp, "--kp", model.joint_names),
            kd=arguments.per_joint(options.kd, "--kd", model.joint_names),
            free=LinkFreedom(_are_free(options.links), _masses(options.mass)),
            settings=settings,
            progress=progress,
        )
        files = () if out is None else result.save(out, warnings=warnings)
    data = result.answer(list(warnings), out or "result")
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.actuators_view import draw

        draw(data, files=list(files), seconds=time.monotonic() - began)
    if options.strict and not result.verdict.usable:
        raise NotUsable(f"the result is not usable (--strict): {result.verdict.reasons[0]}")


def _are_free(links: str) -> bool:
    if links not in ("file", "free"):
        raise UsageError(f"--links is {links!r}; give file or free")
    return links == "free"


def _masses(text: str | None) -> dict[str, float]:
    """Return masses by link."""
    out: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, sign, number = part.rpartition("=")
        try:
            out[name.strip()] = float(number if sign else "")
        except ValueError:
            raise UsageError(
                f"--mass is {text!r}; give LINK=KG, such as hand=0.8, several with commas"
            ) from None
    return out
