"""What every verb prints with --json is valid against the schema kept in the package, and the
schemas are strict enough to notice.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from data_paths import ROOT, example_robot
from identify_cases import Done

from thetahat.excite import design

jsonschema = pytest.importorskip(
    "jsonschema", reason="jsonschema checks the answers (pip install jsonschema)"
)
FOLDER = ROOT / "src" / "thetahat" / "schemas"
Thetahat = Callable[..., Done]


def validator(name: str) -> Any:
    schema = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def require(name: str, answer: dict[str, Any]) -> None:
    errors = [
        f"{list(error.absolute_path)}: {error.message}"
        for error in validator(name).iter_errors(answer)
    ]
    assert errors == []


@pytest.mark.parametrize("robot", ["arm4", "valkyrie", "talos", "panda"])
def test_inspect(thetahat: Thetahat, robot: str) -> None:
    path = robot if robot in ("arm4", "valkyrie") else example_robot(robot)
    require("inspect", thetahat("inspect", path, "--json", "--floating-base").data)


OPTIONS = (
    [],
    ["--method", "least-squares"],
    ["--method", "prior"],
    ["--method", "positive"],
    ["--method", "smooth"],
    ["--robust"],
    ["--holdout", 0],
    ["--joints", "elbow", "--friction", "none"],
    ["--armature"],
    ["--report"],
)


@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: " ".join(map(str, options)) or "none"
)
def test_identify(thetahat: Thetahat, log: Path, tmp_path: Path, options: list) -> None:
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", *options)
    assert done.code == 0, done.err
    require("estimate", done.data)
    require("estimate", json.loads((tmp_path / "estimate.json").read_text(encoding="utf-8")))


def test_randomize(thetahat: Thetahat, log: Path, tmp_path: Path) -> None:
    result, out = tmp_path / "result", tmp_path / "robots"
    assert thetahat("identify", "arm4", log, "--out", result).code == 0
    done = thetahat("randomize", result, "--count", 2, "--out", out, "--json")
    assert done.code == 0, done.err
    require("ranges", done.data)
    require("ranges", json.loads((out / "ranges.json").read_text(encoding="utf-8")))
    assert not list(validator("ranges").iter_errors(done.data))
    assert list(validator("ranges").iter_errors({**done.data, "level": 95}))


def test_codegen(thetahat: Thetahat, tmp_path: Path) -> None:
    require("codegen", thetahat("codegen", "arm4", "--out", tmp_path / "c", "--json").data)


def test_identify_with_motors(thetahat: Thetahat, log: Path, tmp_path: Path) -> None:
    (tmp_path / "map.csv").write_text("a,b,c,d\n1,0,0,0\n0,1,0,0\n0,0,1,0.5\n0,0,0,1\n")
    require(
        "estimate",
        thetahat(
            "identify",
            "arm4",
            log,
            "--out",
            tmp_path / "out",
            "--json",
            "--actuation",
            tmp_path / "map.csv",
        ).data,
    )


def test_excite_simulate_and_validate(thetahat: Thetahat, log: Path, tmp_path: Path) -> None:
    motion = tmp_path / "motion.csv"
    require(
        "excite",
        thetahat("excite", "double_pendulum", "--out", motion, "--starts", 2, "--json").data,
    )
    require(
        "simulate",
        thetahat(
            "simulate",
            "double_pendulum",
            motion,
            "--out",
            tmp_path / "log.csv",
            "--plant",
            "own",
            "--json",
        ).data,
    )
    require("validation", thetahat("validate", "arm4", log, "--json").data)


def paths(value: Any, at: tuple = ()) -> list[tuple]:
    """The way to every value in an answer."""
    below = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:1])
        if isinstance(value, list)
        else ()
    )
    return [at, *(path for key, part in below for path in paths(part, (*at, key)))]


def test_the_schema_notices_whatever_is_missing_or_of_another_kind(
    thetahat: Thetahat, log: Path, tmp_path: Path
) -> None:
    """Every field of an answer is replaced by something else in turn; and a field more is noticed,
    too.
    """
    answer, check = (
        thetahat("identify", "arm4", log, "--out", tmp_path, "--json").data,
        validator("estimate"),
    )
    free = 0
    for path in paths(answer):
        if not path:
            continue
        spoiled = copy.deepcopy(answer)
        parent = spoiled
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = {"not": "this"}
        free += check.is_valid(spoiled)
    assert free == 0
    assert not check.is_valid(answer | {"surprise": 1})


def test_demo_is_the_whole_path_and_gives_one_answer(
    thetahat: Thetahat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file it names is there, and the identified robot predicts a motion it has not seen
    better than its file, on every joint; by another clock it is the same to the last bit.
    """
    monkeypatch.setattr("thetahat.cli.demo.DURATION", 5.0)  # [s], of 10
    monkeypatch.setattr("thetahat.cli.demo.RATE", 250.0)  # [Hz], of 1000
    few = partial(design.design, starts=3)  # of 24
    monkeypatch.setattr(design, "design", few)
    told = thetahat(
        "demo", "--out", tmp_path / "demo", "--robot", "double_pendulum", "--plant", "own", "--json"
    ).data
    require("demo", told)
    assert all(Path(path).is_file() for path in told["files"].values())
    assert told["consistent"]
    assert all(joint["rms_test"] < joint["rms_nominal"] for joint in told["joints"])
    assert told["r2"]["test"] > 0.99

    looks = itertools.count()  # a clock on which the search takes minutes
    clock = SimpleNamespace(monotonic=lambda: 0.05 * next(looks))
    for module in ("search", "design"):
        monkeypatch.setattr(f"thetahat.excite.{module}.time", clock)
    again = thetahat(
        "demo",
        "--out",
        tmp_path / "again",
        "--robot",
        "double_pendulum",
        "--plant",
        "own",
        "--json",
    ).data
    for name, path in told["files"].items():
        if path.endswith(".csv"):
            assert Path(path).read_bytes() == Path(again["files"][name]).read_bytes()
    for key in ("files", "seconds"):
        del told[key], again[key]
    text = json.dumps(told).replace(str(tmp_path / "demo"), str(tmp_path / "again"))
    assert json.loads(text) == again  # next steps name the folder
