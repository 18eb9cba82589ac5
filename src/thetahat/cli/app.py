"""The `thetahat` program: its verbs and the options all of them share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated

import typer

from thetahat import __version__
from thetahat.cli import arguments
from thetahat.cli.actuators import actuators
from thetahat.cli.bench import bench
from thetahat.cli.codegen import codegen
from thetahat.cli.control import control
from thetahat.cli.demo import demo
from thetahat.cli.diff import diff
from thetahat.cli.excite import excite
from thetahat.cli.export import export
from thetahat.cli.fleet import fleet
from thetahat.cli.history import history
from thetahat.cli.identify import identify
from thetahat.cli.inspect import inspect
from thetahat.cli.payload import payload
from thetahat.cli.randomize import randomize
from thetahat.cli.record import record
from thetahat.cli.simulate import simulate
from thetahat.cli.study import study
from thetahat.cli.tool import tool
from thetahat.cli.validate import validate
from thetahat.cli.watch import app as watch

app = typer.Typer(
    help=(
        "Θ̂: identify a robot's inertial and friction parameters from its motion, and control it"
        " with the identified model."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # thetahat.cli.exit_status prints errors
    # panels squeeze the words into half a line, and loading them is half the time of --help
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"thetahat {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


VERBS = (
    *(demo, inspect, identify, validate, payload, tool, actuators, bench, export, randomize),
    *(codegen, study, excite, simulate, record, control, fleet, history, diff),
)
for function in VERBS:
    arguments.verb(app)(function)
app.add_typer(watch, name="watch", short_help=watch.info.help)


@cache
def program() -> Callable[..., object]:
    """Return the program that runs with the process's arguments."""
    return typer.main.get_command(app)
