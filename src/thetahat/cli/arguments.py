"""Arguments and options that several verbs share, and how their text is read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from thetahat import robots
from thetahat.errors import StorageError, UsageError, known
from thetahat.model.io.asset_roots import meshes_allowed_in
from thetahat.studies import STUDIES

TABLES = (".csv", ".parquet", ".npz")
PLANTS = ("mujoco", "own")


def option(text: str, *names: str, **more: Any) -> Any:
    """An option whose default is not shown, unless `show_default` is given."""
    return typer.Option(*names, help=text, show_default=more.pop("show_default", False), **more)


def output(text: str, metavar: str, **more: Any) -> Any:
    """The option --out, -o of a verb."""
    return option(text, "--out", "-o", metavar=metavar, **more)


def verb(app: typer.Typer) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function a verb of `app`; the list of verbs shows the whole first line of its
    docstring. One that takes a robot file gets the option `--asset-root`, too.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        # Annotations that are text would be compiled several times each before any help is shown.
        function.__annotations__ = get_type_hints(function, include_extras=True)
        if function.__annotations__.get("robot") == Robot:
            function = _with_asset_root(function)
        return app.command(short_help=(function.__doc__ or "").partition("\n")[0])(function)

    return add


def _with_asset_root(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option that says where else meshes may be read from."""
    signature = inspect.signature(function)
    given = [
        each.replace(annotation=function.__annotations__[name])
        for name, each in signature.parameters.items()
    ]
    added = inspect.Parameter(
        "asset_root", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=AssetRoot
    )

    def run(*, asset_root: list[str] | None, **values: Any) -> None:
        with meshes_allowed_in(asset_root or ()):
            function(**values)

    return presented(run, function, [*given, added])


def presented(
    run: Callable[..., None], function: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """Return `run` under the name and docstring of a verb's function, with these parameters."""
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _complete_robot(incomplete: str) -> list[str]:
    return [name for name in robots.names() if name.startswith(incomplete)]


def _complete_study(incomplete: str) -> list[str]:
    return [name for name in STUDIES if name.startswith(incomplete)]


Robot = Annotated[
    str,
    typer.Argument(
        metavar="ROBOT",
        help=(
            "A URDF or MJCF file, or a robot that ships with thetahat:"
            f" {', '.join(robots.names())}."
        ),
        autocompletion=_complete_robot,
        show_default=False,
    ),
]
Study = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help=f"One of {', '.join(STUDIES)}.",
        autocompletion=_complete_study,
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Suppress warnings and progress; errors are still printed."),
]
FloatingBase = Annotated[
    bool, typer.Option("--floating-base", help="Model the root link as a floating base.")
]
AssetRoot = Annotated[
    list[str] | None,
    option(
        "Also read meshes beneath this folder, beside the robot file's own; repeatable.",
        metavar="DIR",
    ),
]
Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG",
        help=(
            "Logs of its motion: CSV, Parquet, Feather, NPZ, MAT, ROS bags, MCAP or LeRobot"
            " datasets."
        ),
        show_default=False,
    ),
]
Plant = Annotated[
    str | None,
    option("Simulation engine: mujoco or own; default: mujoco if it is installed.", metavar="NAME"),
]


def plant(name: str | None) -> str:
    """The engine to simulate with: MuJoCo where it is installed, else the project's own."""
    if name is None:
        return "mujoco" if find_spec("mujoco") else "own"
    if name not in PLANTS:
        raise UsageError(f"--plant is {name!r}; plants: {', '.join(PLANTS)}")
    return name


def study_with_seed(name: str, seed: int) -> str:
    """Return the module of a study; the seed is checked too."""
    if name not in STUDIES:
        raise UsageError(f"study {name!r} is unknown; studies: {', '.join(STUDIES)}")
    whole_number("--seed", seed)
    return STUDIES[name]


def whole_number(option: str, value: int, least: int = 0) -> int:
    """A whole number that is not below `least`."""
    if value < least:
        raise UsageError(f"{option} is {value}; give a whole number from {least}")
    return value


def numbers(text: str, option: str, count: int) -> tuple[float, ...]:
    """So many finite numbers with commas between them."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(map(math.isfinite, values)):
        raise UsageError(
            f"{option} is {text!r}; give {count} finite number{'s' if count > 1 else ''} with"
            " commas"
        )
    return values


def per_joint(
    text: str | None, option: str, joints: tuple[str, ...]
) -> float | list[float] | dict[str, float] | None:
    """One number for all joints, one for each with commas, or JOINT=NUMBER with commas."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    try:
        if any("=" in part for part in parts):
            pairs = [part.rpartition("=") for part in parts]
            unknown = [name.strip() for name, _, _ in pairs if name.strip() not in joints]
            if unknown:
                raise UsageError(
                    f"{option} names {unknown[0]!r}, which is not a joint that moves; joints:"
                    f" {known(joints)}"
                )
            return {name.strip(): float(value) for name, _, value in pairs}
        values = [float(part) for part in parts]
    except UsageError:
        raise
    except ValueError:
        values = []
    if len(values) not in (1, len(joints)):
        raise UsageError(
            f"{option} is {text!r}; give one number, {len(joints)} with commas, or JOINT=NUMBER"
            " with commas"
        )
    return values[0] if len(values) == 1 else values


def names(text: str, option: str, among: tuple[str, ...]) -> tuple[str, ...]:
    """Names with commas between them, each one of `among`."""
    names_given = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names_given:
        raise UsageError(f"{option} is empty; give names with commas")
    for name in names_given:
        if name not in among:
            raise UsageError(
                f"{option} names {name!r}, which the robot does not have; it has: {known(among)}"
            )
    return names_given


def positive(option: str, value: float | None, unit: str) -> float | None:
    """A finite number above zero; None where the option was not given."""
    if value is not None and not (math.isfinite(value) and value > 0.0):
        raise UsageError(f"{option} is {value}; give a positive number [{unit}]")
    return value


def input_file(text: str, option: str) -> Path:
    """A file that is there."""
    path = Path(text)
    if not path.is_file():
        raise StorageError(f"{option} {text!r} is not a file; check the path")
    return path


def table_file(
    text: str, option: str, *, keep: list[Path], kinds: tuple[str, ...] = TABLES
) -> Path:
    """A file to write a table to: of a known kind, in a folder that exists, and none of those to
    keep.
    """
    path = Path(text)
    if path.suffix not in kinds:
        raise UsageError(f"{option} is {text!r}; give a file that ends in {', '.join(kinds)}")
    return writeable_file(path, option, keep=keep)


def writeable_file(path: Path, option: str, *, keep: list[Path]) -> Path:
    """A file in a folder that exists, and none of those to keep."""
    text = str(path)
    if path.is_dir() or not path.parent.is_dir():
        raise StorageError(
            f"{option} {text!r} cannot be written:"
            f" {'it is a folder' if path.is_dir() else 'its folder does not exist'}; check the path"
        )
    for other in keep:
        if path.exists() and path.samefile(other):
            raise UsageError(
                f"{option} {text!r} is also read; originals are never modified, so give another"
                " file"
            )
    return path


def floor(text: str) -> float | str | None:
    """Return the height of the floor, "auto", or None."""
    if text in ("none", "auto"):
        return None if text == "none" else text
    try:
        height = float(text)
    except ValueError:
        height = math.nan
    if not math.isfinite(height):
        raise UsageError(f"--floor is {text!r}; give a height [m], none or auto")
    return height
