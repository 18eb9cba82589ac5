"""What changed between two estimates: parameters in standard deviations, R², settings, logs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

SCHEMA = "thetahat/diff/1"
QUIET = ("cutoff_reason",)  # settings that say why, not what


def compare_estimates(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Compare two answers of identify (schema thetahat/estimate/1).

    `in_std` is (b − a)/√(std_a² + std_b²), as if the two had no log in common; `shared` says how
    many they do have.
    """
    parameters = _parameters(a, b)
    names = [[each["name"] for each in estimate["base_parameters"]] for estimate in (a, b)]
    known = [abs(each["in_std"]) for each in parameters if each["in_std"] is not None]
    logs = [
        {log["sha256"]: log["path"] for log in estimate["provenance"].get("logs", ())}
        for estimate in (a, b)
    ]
    return {
        "schema": SCHEMA,
        "a": _about(a),
        "b": _about(b),
        "same_robot": a["provenance"].get("robot_sha256") == b["provenance"].get("robot_sha256"),
        "largest": max(known, default=None),
        "parameters": parameters,
        "only_a": [name for name in names[0] if name not in names[1]],
        "only_b": [name for name in names[1] if name not in names[0]],
        "r2": {
            name: {"a": a["r2"].get(name), "b": b["r2"].get(name)} for name in ("train", "test")
        },
        "joints": _joints(a, b),
        "settings": _settings(a, b),
        "logs": {
            "shared": len(logs[0].keys() & logs[1].keys()),
            "only_a": [path for digest, path in logs[0].items() if digest not in logs[1]],
            "only_b": [path for digest, path in logs[1].items() if digest not in logs[0]],
        },
    }


def _about(estimate: dict[str, Any]) -> dict[str, Any]:
    provenance = estimate["provenance"]
    return {
        "robot": provenance.get("robot"),
        **{name: estimate[name] for name in ("method", "samples", "rank", "consistent", "status")},
        "version": provenance.get("version"),
    }


def _parameters(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """Base parameters that both have, the most changed first."""
    others = {each["name"]: each for each in b["base_parameters"]}
    out = []
    for one in a["base_parameters"]:
        other = others.get(one["name"])
        if other is None:
            continue
        change = _both(one["value"], other["value"], lambda x, y: y - x)
        spread = _both(one["std"], other["std"], math.hypot)
        in_std = 0.0 if change == 0.0 and spread is not None else None
        if change and spread:
            in_std = change / spread
        out.append(
            {
                "name": one["name"],
                "a": one["value"],
                "b": other["value"],
                "std_a": one["std"],
                "std_b": other["std"],
                "difference": change,
                "in_std": in_std,
            }
        )
    return sorted(out, key=lambda e: math.inf if e["in_std"] is None else -abs(e["in_std"]))


def _both(
    a: float | None, b: float | None, function: Callable[[float, float], float]
) -> float | None:
    return None if a is None or b is None else function(a, b)


def _joints(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    theirs = {joint["name"]: joint for joint in b["joints"]}
    return [
        {
            "name": joint["name"],
            **{
                f"{name}_{side}": found[name]
                for name in ("r2_test", "rms_test")
                for side, found in (("a", joint), ("b", other))
            },
        }
        for joint in a["joints"]
        if (other := theirs.get(joint["name"])) is not None
    ]


def _settings(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """Settings that differ."""
    mine, theirs = (
        {"method": estimate["method"], **estimate["provenance"].get("settings", {})}
        for estimate in (a, b)
    )
    names = [
        name
        for name in dict.fromkeys([*mine, *theirs])
        if name not in QUIET and mine.get(name) != theirs.get(name)
    ]
    return [{"name": name, "a": mine.get(name), "b": theirs.get(name)} for name in names]
