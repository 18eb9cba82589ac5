"""The command line in this process, for tests of identify on workers, history and diff."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data_paths import ROOT
from fleet_cases import folder_of
from identify_cases import Done

from thetahat import cli
from thetahat.cli import engine_options

jsonschema = pytest.importorskip(
    "jsonschema", reason="jsonschema checks the answers (pip install jsonschema)"
)
Thetahat = Callable[..., Done]
QUICK = ["--no-tune", "--no-report"]  # what is tuned has tests of its own


@pytest.fixture
def thetahat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Thetahat:
    """The command line, in this process."""
    monkeypatch.delenv("THETAHAT_DEBUG", raising=False)
    monkeypatch.delenv(engine_options.STORE, raising=False)

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["thetahat", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(int(ended.value.code or 0), out, err)

    return call


def require(name: str, answer: dict[str, Any]) -> None:
    schema = json.loads(
        (ROOT / "src/thetahat/schemas" / f"{name}.json").read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    errors = [
        f"{list(error.absolute_path)}: {error.message}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(answer)
    ]
    assert errors == []


def one_error(done: Done, code: int, *said: str) -> None:
    """The exit code, and one sentence on stderr that is an error and names what it must."""
    assert done.code == code, done.err
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.err
    for part in said:
        assert part in done.err


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("cli") / "logs", 3)


SAME = 1e-10  # of a parameter's standard deviation, beside 1e-10 of its value


def require_same_answer(a: dict[str, Any], b: dict[str, Any]) -> None:
    for one, other in zip(a["base_parameters"], b["base_parameters"], strict=True):
        assert one["name"] == other["name"]
        assert abs(one["value"] - other["value"]) <= SAME * max(abs(one["value"]), one["std"])
    assert a["samples"] == b["samples"]
    assert a["dropped"] == b["dropped"]
    assert a["findings"] == b["findings"]
    for one, other in zip(a["joints"], b["joints"], strict=True):
        for name in ("rows_train", "rows_test"):
            assert one[name] == other[name]
        for name in (
            "r2_train",
            "r2_test",
            "r2_test_moving",
            "r2_test_raw",
            "rms_nominal",
            "rms_test",
        ):
            assert abs(one[name] - other[name]) <= 1e-9
