"""`thetahat bench ROBOT LOG... --out DIR`: a motor from a pendulum of known mass."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import with_options
from thetahat.errors import check_positive
from thetahat.files import as_text, require_folder
from thetahat.identification.verdict_reason import Data
from thetahat.pipeline.settings import setting


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Options of `thetahat bench`."""

    volts: float | None = setting("Supply voltage, where the log has no column volts.", None, "V")
    pwm_full: float | None = setting(
        "Reading of pwm.<joint> at full voltage; default: the largest one of the log.", None, "N"
    )
    duty_gain: float | None = setting(
        "Duty cycle per radian of position error, where the log has no column pwm.<joint>.",
        None,
        "GAIN",
    )
    holdout: float = setting(
        "Share of the runs to score on, evenly spread; 0: none.", 0.3, "SHARE", shown=True
    )


@with_options(BenchOptions)
def bench(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    out: Annotated[str | None, arguments.output("Folder for bench.json.", "DIR")] = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    options: BenchOptions,
) -> None:
    """Identify a motor on a test bench: torque constant, resistance, rotor and friction law.

    The motor moves a pendulum of known mass and length.
    """
    began = time.monotonic()
    file = robots.find(robot)
    for name in ("volts", "pwm_full", "duty_gain"):
        if getattr(options, name) is not None:
            check_positive(f"--{name.replace('_', '-')}", getattr(options, name))
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        from thetahat.pipeline.bench_identification import ANSWER
        from thetahat.pipeline.bench_identification import bench as identify_bench
        from thetahat.pipeline.bench_log import BenchColumns

        if out is not None:
            require_folder(Path(out), [Path(out) / ANSWER], [file, *logs])
        columns = BenchColumns(options.volts, options.pwm_full, options.duty_gain)
        result = identify_bench(
            file, list(logs), columns=columns, holdout=options.holdout, progress=progress
        )
        files = () if out is None else result.save(out, warnings=warnings)
    data = {**result.data, "warnings": list(warnings)}
    if json:
        emit(as_text(data))
    else:
        draw(data, files=files, seconds=time.monotonic() - began)


def draw(data: Data, *, files: tuple[Path, ...], seconds: float) -> None:
    """Print parameters, laws and errors. data: schema thetahat/bench/1."""
    from thetahat.cli.terminal import show
    from thetahat.report.section import Cell, Column, Table, Text
    from thetahat.report.verdict_section import verdict_lines

    parameters: tuple[tuple[Cell, ...], ...] = tuple(
        (row["name"], row["unit"], row["value"], row["std"]) for row in data["parameters"]
    )
    laws: tuple[tuple[Cell, ...], ...] = tuple(
        (row["law"], row["error"]) for row in sorted(data["laws"], key=lambda row: row["error"])
    )
    show(
        [
            verdict_lines(data),
            Table(
                (
                    Column("parameter"),
                    Column("unit"),
                    Column("value"),
                    Column("standard deviation"),
                ),
                parameters,
            ),
            Table(
                (Column("friction law"), Column("error of runs not fitted", "rad")),
                laws,
                note="Mean absolute error of positions, whole runs simulated from their first row.",
            ),
            Text("\n".join([*map(str, files), f"Identified in {seconds:.1f} s."])),
        ]
    )
