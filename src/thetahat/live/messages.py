"""The messages of the page as JSON: never NaN, and no more digits than a screen shows.

    server → page   hello, frame, figure, parameters, event, error, bye
    page → server   command (pause, resume, reset, force_nominal, release), subscribe (joint), ack
    (seq)

A frame is put together from texts that all viewers share, so that one more viewer costs next to
nothing.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from thetahat.live.safe_text import encodable
from thetahat.online.gate import GateState
from thetahat.report.section import plain

COMMANDS = ("pause", "resume", "reset", "force_nominal", "release")
PLACE = 4  # digits of a place [m] and of a rotation


def text(message: Any) -> str:
    """JSON that can be sent; what is not finite becomes null."""
    try:
        return encodable(
            json.dumps(message, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        )
    except ValueError:
        return encodable(
            json.dumps(plain(message), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        )


def gate(state: GateState, *, window: int, condition: float | None) -> dict[str, Any]:
    """What the gate says."""
    per_joint = (
        None
        if state.r2_per_joint is None
        else _numbers(np.ma.filled(state.r2_per_joint, np.nan), 5)
    )
    return {
        "open": bool(state.open),
        "reason": state.reason,
        "since": _number(state.since, 4),
        "r2": _number(state.r2, 6),
        "r2_fit": _number(state.r2_fit, 6),
        "r2_per_joint": per_joint,
        "fill": int(state.fill),
        "window": window,
        "rank": None if state.rank is None else int(state.rank),
        "structural_rank": None if state.structural_rank is None else int(state.structural_rank),
        "condition": None if condition is None else float(f"{condition:.4g}"),
    }


def pose(points: np.ndarray, rotation: np.ndarray, place: np.ndarray, bodies: list[int]) -> str:
    """The robot's bones, and where the ellipsoids' bodies are, as the end of a frame."""
    axes = {name: _numbers(points[:, k], PLACE) for k, name in enumerate("xyz")}
    placed = np.round(
        np.concatenate([rotation[bodies].reshape(-1, 9), place[bodies]], axis=1), PLACE
    )
    return f'"pose":{text(axes)},"bodies":{text(placed.tolist())}'


def frame(number: int, t: float, state: str, extend: list[str], end: str) -> str:
    """A frame of texts: the state, the panels' new points, the pose."""
    new = ",".join(extend)
    head = f'"type":"frame","seq":{number},"t":{round(t, 4)},"state":{state}'
    return f'{{{head},"extend":{{{new}}},{end}}}'


def parse(received: str) -> dict[str, Any] | None:
    """A message of the page; None where it is none."""
    try:
        found = json.loads(received)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None


def error(sentence: str) -> str:
    """That something cannot be done."""
    return text({"type": "error", "message": sentence})


def _number(value: float | None, digits: int) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), digits)


def _numbers(values: np.ndarray, digits: int) -> list[float | None]:
    return [value if value == value else None for value in np.round(values, digits).tolist()]
