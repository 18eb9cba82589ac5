"""Settings of an online identifier by their field's name, for tests that vary one or two of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from thetahat.online.config import (
    FilterConfig,
    Forgetting,
    GateRules,
    Growing,
    Informative,
    MonitorRules,
    SolverConfig,
    Window,
)

MEMORIES = {
    "window": Window(),
    "growing": Growing(),
    "forgetting": Forgetting(),
    "informative": Informative(),
}
PLACES = {"filter": FilterConfig, "solver": SolverConfig, "gate": GateRules}


def settings(**options: Any) -> dict[str, Any]:
    """Arguments of `OnlineIdentifier`: fields of the configuration objects are put into them, a
    memory may be given by its name, all else stays as it is.
    """
    if "memory" in options:
        options["memory"] = MEMORIES.get(options["memory"], options["memory"])
    if "payload_link" in options:
        options["monitor"] = MonitorRules(payload_link=options.pop("payload_link"))
    out = {}
    for name, kind in PLACES.items():
        own = {field.name for field in fields(kind)} & options.keys()
        out[name] = kind(**{key: options.pop(key) for key in own})
    return out | options
