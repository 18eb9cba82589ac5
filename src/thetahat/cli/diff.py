"""`thetahat diff A B`: what changed between two runs, or between two estimates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from thetahat.cli import arguments, engine_options
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit, plain
from thetahat.cli.history import required
from thetahat.errors import StorageError, UsageError
from thetahat.files import as_text

Which = Annotated[
    str,
    typer.Argument(
        help="The number of a run of the store, an estimate.json, or the folder it is in.",
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
        option("Parameters shown, the most changed first; 0: all.", metavar="N", show_default=True),
    ] = SHOWN,
    json: arguments.Json = False,
) -> None:
    """Compare two runs: parameters in standard deviations, R², settings and logs."""
    if limit < 0:
        raise UsageError(f"--limit is {limit}; give a whole number from 0")
    from thetahat.fleet.estimate_diff import compare_estimates

    found = compare_estimates(_answer(a, store), _answer(b, store))
    found["a"]["name"], found["b"]["name"] = a, b
    if json:
        emit(as_text(found))
    else:
        draw(found, limit)


def _answer(name: str, store: str | None) -> dict[str, Any]:
    """The estimate that a name means: digits are a run, all else is a path."""
    if name.isdecimal() and not Path(name).exists():
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


def draw(found: dict[str, Any], limit: int) -> None:
    """Tables of what changed."""
    from rich.text import Text

    from thetahat.cli.terminal import r2, short, show, table

    parameters = found["parameters"][: limit or None]
    values = table("parameter", "A", "B", "B − A", "in std")
    for each in parameters:
        spread = each["in_std"]
        told = Text(
            "–" if spread is None else f"{spread:+.1f}",
            style="red" if spread is not None and abs(spread) > LARGE else "",
        )
        values.add_row(
            plain(each["name"]), short(each["a"]), short(each["b"]), short(each["difference"]), told
        )
    scores = table("", "R² A", "R² B", "RMS A", "RMS B")
    for name in ("train", "test"):
        scores.add_row(
            f"all, {name}", r2(found["r2"][name]["a"]), r2(found["r2"][name]["b"]), "", ""
        )
    for joint in found["joints"]:
        scores.add_row(
            plain(joint["name"]),
            r2(joint["r2_test_a"]),
            r2(joint["r2_test_b"]),
            short(joint["rms_test_a"]),
            short(joint["rms_test_b"]),
        )
    settings = None
    if found["settings"]:
        settings = table("setting", "A", "B", numbers=False)
        for each in found["settings"]:
            settings.add_row(each["name"], plain(each["a"]), plain(each["b"]))
    show(
        [
            _head(found),
            values,
            scores,
            settings,
            Text("\n".join(_notes(found, len(parameters))), style="dim"),
        ]
    )


def _head(found: dict[str, Any]) -> Any:
    from rich.text import Text

    largest = found["largest"]
    if largest is None:
        said = "no parameter can be compared"
    else:
        changed = sum(
            each["in_std"] is not None and abs(each["in_std"]) > LARGE
            for each in found["parameters"]
        )
        said = (
            f"{changed} of {len(found['parameters'])} parameters changed by more than {LARGE:g}"
            f" standard deviations, the most by {largest:.1f}"
        )
    return Text(
        f"A {plain(found['a']['name'])} → B {plain(found['b']['name'])}: {said}.", style="bold"
    )


def _notes(found: dict[str, Any], shown: int) -> list[str]:
    logs = found["logs"]
    notes = [
        f"logs: {logs['shared']} in both, {len(logs['only_a'])} in A alone, {len(logs['only_b'])}"
        " in B alone"
    ]
    if logs["shared"]:
        notes.append(
            "estimates that share logs differ by less than independent ones; in std takes them for"
            " independent"
        )
    if not found["same_robot"]:
        notes.append("the robot files differ")
    for side in ("a", "b"):
        if found[f"only_{side}"]:
            notes.append(
                f"in {side.upper()} alone:"
                f" {', '.join(plain(name) for name in found[f'only_{side}'][:8])}"
            )
    if shown < len(found["parameters"]):
        notes.append(
            f"{len(found['parameters']) - shown} more parameters changed less (--limit 0 shows all)"
        )
    return notes
