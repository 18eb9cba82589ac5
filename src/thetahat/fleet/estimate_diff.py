"""What changed between two estimates: parameters in standard deviations, R², settings, logs."""

from __future__ import annotations

import math
from typing import Any

SCHEMA = "thetahat/diff/1"
QUIET = ("cutoff_reason",)  # settings that say why, not what


def compared(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Two answers of identify (schema thetahat/estimate/1), side by side.

    `in_std` is (b − a)/√(std_a² + std_b²), as if the two had no log in common; `shared` says how
    many they do have.
    """
    parameters, only_a, only_b = _parameters(a, b)
    known = [abs(each["in_std"]) for each in parameters if each["in_std"] is not None]
    logs = [
        {log["sha256"]: log["path"] for log in found["provenance"].get("logs", ())}
        for found in (a, b)
    ]
    return {
        "schema": SCHEMA,
        "a": _about(a),
        "b": _about(b),
        "same_robot": a["provenance"].get("robot_sha256") == b["provenance"].get("robot_sha256"),
        "largest": max(known, default=None),
        "parameters": parameters,
        "only_a": only_a,
        "only_b": only_b,
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


def _about(found: dict[str, Any]) -> dict[str, Any]:
    provenance = found["provenance"]
    return {
        "robot": provenance.get("robot"),
        "method": found["method"],
        "samples": found["samples"],
        "rank": found["rank"],
        "consistent": found["consistent"],
        "status": found["status"],
        "version": provenance.get("version"),
    }


def _parameters(
    a: dict[str, Any], b: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Base parameters that both have, the most changed first, and the names of those that one alone
    has.
    """
    mine, theirs = ({each["name"]: each for each in found["base_parameters"]} for found in (a, b))
    out = []
    for name, one in mine.items():
        other = theirs.get(name)
        if other is None:
            continue
        change = (
            None
            if one["value"] is None or other["value"] is None
            else other["value"] - one["value"]
        )
        spread = (
            None
            if one["std"] is None or other["std"] is None
            else math.hypot(one["std"], other["std"])
        )
        in_std = (
            None
            if change is None or spread is None
            else 0.0
            if change == 0.0
            else change / spread
            if spread > 0.0
            else None
        )
        out.append(
            {
                "name": name,
                "a": one["value"],
                "b": other["value"],
                "std_a": one["std"],
                "std_b": other["std"],
                "difference": change,
                "in_std": in_std,
            }
        )
    out.sort(key=lambda each: -abs(each["in_std"]) if each["in_std"] is not None else math.inf)
    return (
        out,
        [name for name in mine if name not in theirs],
        [name for name in theirs if name not in mine],
    )


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
        {"method": found["method"], **found["provenance"].get("settings", {})} for found in (a, b)
    )
    names = [
        name
        for name in dict.fromkeys([*mine, *theirs])
        if name not in QUIET and mine.get(name) != theirs.get(name)
    ]
    return [{"name": name, "a": mine.get(name), "b": theirs.get(name)} for name in names]
