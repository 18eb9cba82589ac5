"""What the tests of `thetahat identify` share: what a call returned, and looks at it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

KEYS = {
    "schema",
    "method",
    "samples",
    "rank",
    "columns",
    "condition",
    "r2",
    "consistent",
    "status",
    "joints",
    "links",
    "base_parameters",
    "parity",
}
KEYS |= {
    "score_cutoff",
    "provenance",
    "findings",
    "locked",
    "dropped",
    "advice",
    "motors",
    "structural_rank",
    "warnings",
    "certificate",
    "unseen",
}
JOINT_KEYS = {
    "name",
    "r2_test",
    "r2_test_moving",
    "rms_test",
    "r2_train",
    "rms_nominal",
    "viscous",
    "coulomb",
    "offset",
    "armature",
    "r2_test_raw",
    "noise",
}
LINK_KEYS = {"name", "mass", "com", "inertia_com", "theta", "std", "identifiable", "consistent"}
SLACK = 0.02  # of R² against baselines measured by another program with another filter


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def data(self) -> dict:
        def refuse(constant: str) -> None:
            pytest.fail(f"{constant} in JSON")

        return json.loads(self.out, parse_constant=refuse)


def digest(*paths: Path) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def numbers(value: object) -> list[float]:
    """Every number in a JSON value."""
    if isinstance(value, dict):
        return [x for part in value.values() for x in numbers(part)]
    if isinstance(value, list):
        return [x for part in value for x in numbers(part)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []
