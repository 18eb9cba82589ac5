"""The comparison with golden numbers can fail, and says what differs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import golden_numbers
import pytest
from golden_cases import CASES

NUMBERS = {
    "settings": {"cutoff": 7.86, "metric": "entropic", "delay": 0.0, "torque_cutoff": None},
    "base_parameters": {"Izz_1 + …": [2074.0, 255.0], "mcy_2": [1e-12, 0.5]},
    "bias_after": [6.5e-4, -3.6e-5],
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(golden_numbers, "FOLDER", tmp_path)
    golden_numbers.save("one", NUMBERS)
    return copy.deepcopy(NUMBERS)


def test_the_same_numbers_agree(kept: dict[str, Any]) -> None:
    golden_numbers.check("one", kept)
    kept["base_parameters"]["Izz_1 + …"][0] *= 1.0 + 1e-10
    kept["base_parameters"]["mcy_2"][0] = -1e-12  # nothing beside its standard deviation
    golden_numbers.check("one", kept)
    assert golden_numbers.load("one")["numbers"] == golden_numbers.rounded(NUMBERS)


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        ("settings", "cutoff", 7.86 * (1.0 + 2e-9)),
        ("settings", "metric", "euclidean"),
        ("settings", "delay", 1e-3),
        ("settings", "torque_cutoff", 5.0),
        ("settings", "cutoff", None),
        ("base_parameters", "mcy_2", [1e-8, 0.5]),
        ("base_parameters", "Izz_1 + …", [2074.0, 256.0]),
        ("base_parameters", "Izz_1 + …", [2074.0, None]),
        ("base_parameters", "Izz_3", [1.0, 1.0]),
    ],
)
def test_a_changed_number_fails(kept: dict[str, Any], group: str, key: str, value: object) -> None:
    kept[group][key] = value
    with pytest.raises(pytest.fail.Exception, match=f"{group}.*{key.split(' ')[0]}"):
        golden_numbers.check("one", kept)


def test_another_machine_has_a_wider_tolerance(
    kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept["settings"]["cutoff"] *= 1.0 + 2e-7
    with pytest.raises(pytest.fail.Exception):
        golden_numbers.check("one", kept)
    monkeypatch.setattr(golden_numbers, "machine", lambda: {"processor": "another"})
    golden_numbers.check("one", kept)
    kept["settings"]["cutoff"] *= 1.0 + 2e-6
    with pytest.raises(pytest.fail.Exception, match="more than 1e-06"):
        golden_numbers.check("one", kept)


def test_every_case_has_its_file_and_every_file_its_case() -> None:
    files = {
        path.relative_to(golden_numbers.FOLDER).with_suffix("").as_posix()
        for path in golden_numbers.FOLDER.rglob("*.json")
    }
    assert files == set(CASES)
