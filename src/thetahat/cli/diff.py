"""`thetahat diff A B`: what changed between two runs, or between two estimates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from thetahat.cli import arguments, engine_options
from thetahat.cli.exit_status import emit, plain
from thetahat.cli.history import required
from thetahat.errors import StorageError
from thetahat.files import as_text

Which = Annotated[
    str,
    typer.Argument(
        help="Run number in the store, an estimate.json, or the folder that contains it.",
        show_default=False,
    ),
]
SHOWN = 20
LARGE = 3.0  # standard deviations: a change that is hardly chance


def diff(
    a: Which,
    b: Which,
    *,
    store: engine_options.Store = None,
    limit: Annotated[
        int,
        arguments.option(
            "Number of parameters to show, most changed first; 0: all.",
            metavar="N",
            show_default=True,
        ),
    ] = SHOWN,
    json: arguments.Json = False,
) -> None:
    """Compare two runs: parameters in standard deviations, R², settings and logs."""
    arguments.whole_number("--limit", limit)
    from thetahat.fleet.estimate_diff import compare_estimates

    changes = compare_estimates(_answer(a, store), _answer(b, store))
    changes["a"]["name"], changes["b"]["name"] = a, b
    if json:
        emit(as_text(changes))
    else:
        draw(changes, limit)


def _answer(name: str, store: str | None) -> dict[str, Any]:
    """The estimate that a name means: digits are a run, all else is a path."""
    if name.isascii() and name.isdecimal() and not Path(name).exists():
        from thetahat.engine.cache import Store
        from thetahat.engine.run_records import load_estimate

        with Store(required(store), create=False) as opened:
            return load_estimate(opened, int(name))
    path = Path(name)
    if path.is_dir():
        path = path / "estimate.json"
    if not path.is_file():
        raise StorageError(
            f"{plain(name)} is neither the number of a run nor an estimate.json; check the path, or"
            " see thetahat history"
        )
    from thetahat.identification.read_estimate import read_estimate

    return read_estimate(path)


def draw(changes: dict[str, Any], limit: int) -> None:
    """Print tables of what changed."""
    from thetahat.cli.terminal import show
    from thetahat.report.section import Cell, Column, Note, Table, Text

    parameters = changes["parameters"][: limit or None]
    values = tuple(
        (each["name"], each["a"], each["b"], each["difference"], each["in_std"])
        for each in parameters
    )
    totals = changes["r2"]
    scores: list[tuple[Cell, ...]] = [
        (f"all, {name}", totals[name]["a"], totals[name]["b"], None, None)
        for name in ("train", "test")
    ]
    keys = ("name", "r2_test_a", "r2_test_b", "rms_test_a", "rms_test_b")
    scores += [tuple(joint[key] for key in keys) for joint in changes["joints"]]
    settings = tuple((each["name"], str(each["a"]), str(each["b"])) for each in changes["settings"])
    r2 = (Column("R² A", decimals=4), Column("R² B", decimals=4))
    numbers = (Column("A"), Column("B"), Column("B − A"), Column("σ", decimals=1))
    show(
        [
            Note(_head(changes)),
            Table((Column("parameter"), *numbers), values),
            Table((Column("joint"), *r2, Column("RMS A"), Column("RMS B")), tuple(scores)),
            Table((Column("setting"), Column("A"), Column("B")), settings) if settings else None,
            [Text(note) for note in _notes(changes, len(parameters))],
        ]
    )


def _head(changes: dict[str, Any]) -> str:
    largest = changes["largest"]
    if largest is None:
        said = "no parameter can be compared"
    else:
        changed = sum(
            each["in_std"] is not None and abs(each["in_std"]) > LARGE
            for each in changes["parameters"]
        )
        said = (
            f"{changed} of {len(changes['parameters'])} parameters changed by more than {LARGE:g}"
            f" standard deviations, at most by {largest:.1f}"
        )
    return f"A {changes['a']['name']} → B {changes['b']['name']}: {said}."


def _notes(changes: dict[str, Any], shown: int) -> list[str]:
    logs = changes["logs"]
    notes = [
        f"logs: {logs['shared']} in both, {len(logs['only_a'])} in A alone, {len(logs['only_b'])}"
        " in B alone"
    ]
    if logs["shared"]:
        notes.append(
            "estimates that share logs differ by less than independent ones; in std takes them for"
            " independent"
        )
    if not changes["same_robot"]:
        notes.append("the robot files differ")
    for side in ("a", "b"):
        if changes[f"only_{side}"]:
            names = ", ".join(changes[f"only_{side}"][:8])
            notes.append(f"in {side.upper()} alone: {names}")
    if shown < len(changes["parameters"]):
        rest = len(changes["parameters"]) - shown
        notes.append(f"{rest} more parameters changed less (--limit 0 shows all)")
    return notes
