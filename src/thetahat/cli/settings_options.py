"""Options of a verb from the fields of a frozen class: one place for defaults and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from fractions import Fraction
from typing import Annotated, Any

from thetahat.cli.arguments import option, presented
from thetahat.errors import UsageError
from thetahat.pipeline.setting_error import SettingError
from thetahat.pipeline.settings import IdentifySettings, outside_span

# settings that say how the files of a log are read
READING = (
    *("columns", "units", "wrench_frame", "gains", "format", "topic", "salvage"),
    *("skip_bad_rows", "keep"),
)
Verb = Callable[..., None]

KINDS = {  # of an option, by the annotation of its field; all else is text
    "bool": bool,
    "bool | None": bool | None,
    "int": int,
    "int | None": int | None,
    "float": float,
    "float | None": float | None,
    "list[str] | None": list[str] | None,
}
REPEATED = ("keep",)  # settings of names that are given one by one


def with_settings(*names: str) -> Callable[[Verb], Verb]:
    """Add options for these fields of `IdentifySettings` to a verb; no names: for all.

    The verb gets the settings as its argument `settings`.
    """
    chosen = [each for each in fields(IdentifySettings) if each.name in names or not names]
    return _with_fields(chosen, "settings", settings_from)


def with_options(kind: type, argument: str = "options") -> Callable[[Verb], Verb]:
    """Add an option for every field of a frozen class to a verb, which gets an instance."""
    return _with_fields(list(fields(kind)), argument, lambda given: kind(**given))


def _with_fields(
    chosen: list[Field[Any]], argument: str, make: Callable[[dict[str, Any]], object]
) -> Callable[[Verb], Verb]:
    added = [_parameter(each) for each in chosen]

    def decorate(verb: Verb) -> Verb:
        signature = inspect.signature(verb, eval_str=True)
        own = [each for name, each in signature.parameters.items() if name != argument]

        def run(**given: Any) -> None:
            values = {each.name: given.pop(each.name) for each in added}
            made = make(values)
            for each in chosen:
                if (wrong := outside_span(each, values[each.name])) is not None:
                    raise UsageError(f"{_flag(each)}{wrong}")
            verb(**given, **{argument: made})

        return presented(run, verb, [*own, *added])

    return decorate


def settings_from(given: dict[str, Any]) -> IdentifySettings:
    """Return the settings that the options ask for; an error names the option."""
    if given.get("weights") == "none":
        given = {**given, "weights": None}
    for name in ("joints", "frozen", "tied", *REPEATED):
        if name in given and given[name] is None:
            given = {**given, name: ()}
    try:
        return IdentifySettings(**given)
    except SettingError as error:
        option = error.setting.replace("_", "-")
        raise UsageError(f"--{option}{error.rest}") from None


def friction_terms(text: str) -> tuple[str, ...]:
    """Return friction terms from text with commas; "none" is none."""
    return settings_from({"friction": text}).friction


def _flag(setting: Field[object]) -> str:
    """Return the first flag of a field's option."""
    flags = str(setting.metadata["flags"]) or f"--{setting.name.replace('_', '-')}"
    return flags.split()[0].split("/")[0]


def _text(value: str | float) -> str:
    """A name, or a number as people write it: 1/3."""
    return value if isinstance(value, str) else str(Fraction(value).limit_denominator(100))


def _parameter(setting: Field[Any]) -> inspect.Parameter:
    """Return the option of a field, as Typer reads it."""
    default, about = setting.default, setting.metadata
    if setting.name in REPEATED:
        default = None
    elif isinstance(default, tuple):  # names or factors, with commas
        default = ",".join(map(_text, default)) or None
    text = str | None if default is None else str
    more = {"metavar": about["metavar"]} if about["metavar"] else {}
    flags = about["flags"] or f"--{setting.name.replace('_', '-')}"
    kind: Any = KINDS.get(str(setting.type), text)
    if setting.name in REPEATED:
        kind = list[str] | None
    annotation: Any = Annotated[
        kind, option(about["help"], *flags.split(), show_default=about["shown"], **more)
    ]
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
