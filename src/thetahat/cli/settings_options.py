"""Options of a verb from the fields of a settings class: one place for defaults and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any

from thetahat.cli.arguments import option
from thetahat.errors import UsageError
from thetahat.pipeline.settings import IdentifySettings, SettingError

SHOWN = {"method", "weights", "friction"}  # options whose default is shown in the help


Verb = Callable[..., None]


def with_settings(*names: str) -> Callable[[Verb], Verb]:
    """Add options for these fields of `IdentifySettings` to a verb; no names: for all.

    The verb gets the settings as its argument `settings`.
    """
    added = [
        _parameter(each) for each in fields(IdentifySettings) if each.name in names or not names
    ]

    def decorate(verb: Verb) -> Verb:
        signature = inspect.signature(verb, eval_str=True)
        own = [each for name, each in signature.parameters.items() if name != "settings"]

        def run(**given: Any) -> None:
            chosen = {each.name: given.pop(each.name) for each in added}
            verb(**given, settings=settings_from(chosen))

        run.__name__, run.__doc__ = verb.__name__, verb.__doc__
        run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
        return run

    return decorate


def settings_from(given: dict[str, Any]) -> IdentifySettings:
    """Return the settings that the options ask for; an error names the option."""
    if given.get("weights") == "none":
        given = {**given, "weights": None}
    if "joints" in given and given["joints"] is None:
        given = {**given, "joints": ()}
    try:
        return IdentifySettings(**given)
    except SettingError as error:
        option = error.setting.replace("_", "-")
        raise UsageError(f"--{option}{error.rest}") from None


def friction_terms(text: str) -> tuple[str, ...]:
    """Return friction terms from text with commas; "none" is none."""
    return settings_from({"friction": text}).friction


def _parameter(setting: Field[Any]) -> inspect.Parameter:
    """Return the option of a field, as Typer reads it."""
    kind = _kind(setting)
    default = setting.default
    if isinstance(default, tuple):  # names with commas
        default = ",".join(default) or None
    flags = setting.metadata["flags"] or f"--{setting.name.replace('_', '-')}"
    more = {"metavar": setting.metadata["metavar"]} if setting.metadata["metavar"] else {}
    annotation = Annotated[
        kind,
        option(setting.metadata["help"], flags, show_default=setting.name in SHOWN, **more),
    ]
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _kind(setting: Field[Any]) -> Any:
    """Return the type of an option: flags and numbers as they are, all else as text."""
    kinds = {
        "bool": bool,
        "bool | None": bool | None,
        "float": float,
        "float | None": float | None,
    }
    text = str | None if setting.default in (None, ()) else str
    return kinds.get(str(setting.type), text)
