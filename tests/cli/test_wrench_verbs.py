"""Wrist sensors on the command line: `identify`, `tool --robot`, and mistakes that are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT
from identify_cases import Done
from numpy.testing import assert_allclose
from wrench_logs import LINK, Noise, columns, held_theta

import thetahat as th
from thetahat import robots
from thetahat.dynamics import rigid_body
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint, with_wrench_sensors

jsonschema = pytest.importorskip("jsonschema")
Thetahat = Callable[..., Done]
Table = dict[str, np.ndarray]
NOISE = Noise(torque=0.1, force=0.3, moment=0.01)
NAMES = [sensor_joint(LINK, channel) for channel in CHANNELS]
QUICK = ("--no-tune", "--cutoff", 8, "--no-armature", "--no-report")


def written(folder: Path, table: Table, name: str = "log") -> Path:
    file = folder / f"{name}.npz"
    np.savez(file, **table)
    return file


def test_an_estimate_with_a_sensor_is_written_and_read_again(
    thetahat: Thetahat, tmp_path: Path
) -> None:
    log = written(tmp_path, columns(1, noise=NOISE))
    done = thetahat("identify", "arm7", log, "--out", tmp_path / "out", *QUICK, "--json")
    assert done.code == 0
    link = next(each for each in done.data["links"] if each["name"] == LINK)
    assert link["mass"] == pytest.approx(held_theta()[-1], abs=0.01)
    assert len(link["identifiable"]) == 10
    robot = th.load(tmp_path / "out/arm7_identified.urdf")
    assert robot.body_names == th.load(robots.path("arm7")).body_names
    assert not (tmp_path / "out/posterior.npz").exists()
    given = ("validate", "arm7", log, "--json")
    scored = thetahat(*given, "--estimate", tmp_path / "out/estimate.json")
    assert scored.code == 0
    assert [row["name"] for row in scored.data["joints"]] == list(robot.joint_names)
    assert min(row["r2_test"] for row in scored.data["joints"]) > 0.99
    drawn = thetahat("randomize", tmp_path / "out", "--count", 1, "--out", tmp_path / "drawn")
    assert drawn.code == 2
    assert "identified with a wrist sensor on tool" in drawn.err
    held = thetahat(
        "payload", "arm7", log, "--estimate", tmp_path / "out/estimate.json", "--link", LINK
    )
    assert held.code == 3
    assert "--without LOG" in held.err


def test_tool_of_a_moving_robot_prints_what_its_schema_says(
    thetahat: Thetahat, tmp_path: Path
) -> None:
    log = written(tmp_path, columns(1, noise=NOISE))
    done = thetahat("tool", log, "--robot", "arm7", "--json", "--out", tmp_path / "tool.json")
    assert done.code == 0
    schema = json.loads((ROOT / "src/thetahat/schemas/tool.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(done.data)
    assert done.data["mass"] == pytest.approx(held_theta()[-1], abs=0.01)
    words = thetahat("tool", log, "--robot", "arm7")
    assert "Ixx [kg·m²]" in words.out
    exported = thetahat(
        "export", tmp_path / "tool.json", "--to", "json", "--out", tmp_path / "load.json"
    )
    assert exported.code == 0, exported.err


def _swapped(table: Table) -> Table:
    return table | {NAMES[0]: table[NAMES[1]], NAMES[1]: table[NAMES[0]]}


def _turned(table: Table) -> Table:
    """A sensor that is mounted 90° further about z than the link's axes say."""
    f, t = NAMES[:3], NAMES[3:]
    out = dict(table)
    for x, y, _ in (f, t):
        out |= {x: table[y], y: -table[x]}
    return out


def _negated(table: Table) -> Table:
    return table | {name: -table[name] for name in NAMES}


def _world(table: Table) -> Table:
    robot = with_wrench_sensors(th.load(robots.path("arm7")), [LINK])
    q = np.zeros((len(table["t"]), robot.nq))
    for j, name in enumerate(robot.joint_names):
        q[:, j] = table.get(f"q.{name}", 0.0)
    R = rigid_body.body_frames(robot, q)[0][:, robot.body_index(LINK)]
    out = dict(table)
    for part in (NAMES[:3], NAMES[3:]):
        turned = (R @ np.stack([table[name] for name in part], axis=1)[..., None])[..., 0]
        out |= {name: turned[:, k] for k, name in enumerate(part)}
    return out


def _dead(table: Table) -> Table:
    return table | {NAMES[2]: np.full(len(table["t"]), 3.5)}


def _incomplete(table: Table) -> Table:
    return {name: values for name, values in table.items() if name != NAMES[4]}


def _renamed(link: str) -> Callable[[Table], Table]:
    return lambda table: {k.replace("wrench.tool.", f"wrench.{link}."): v for k, v in table.items()}


MISTAKES = (
    (_swapped, "left-handed (fy along x, fx along y); two columns are swapped"),
    (_turned, "are not those of the link"),
    (_negated, "--units wrench.tool=-1"),
    (_world, "pass --wrench-frame world"),
    (_dead, "this channel of the sensor is dead"),
    (_incomplete, "wrench.tool.ty missing; log all six"),
    (_renamed("hook"), "has no link 'hook'; moving links:"),
    (_renamed("base"), "is welded to the world"),
)


@pytest.mark.parametrize("verb", ["identify", "tool"])
@pytest.mark.parametrize(("spoil", "said"), MISTAKES)
def test_mistakes_in_a_sensors_columns_are_one_sentence(
    thetahat: Thetahat, tmp_path: Path, verb: str, spoil: Callable[[Table], Table], said: str
) -> None:
    log = written(tmp_path, spoil(columns(1, noise=NOISE)))
    given = ("identify", "arm7", log, "--out", tmp_path / "out", *QUICK)
    done = thetahat(*given) if verb == "identify" else thetahat("tool", log, "--robot", "arm7")
    assert done.code == 3, done.err
    assert said in " ".join(done.err.split())
    assert done.err.count("error:") == 1
    assert not (tmp_path / "out/estimate.json").exists()


def test_the_fixes_that_are_named_help(thetahat: Thetahat, tmp_path: Path) -> None:
    table = columns(1, noise=NOISE)
    plain = thetahat("tool", written(tmp_path, table), "--robot", "arm7", "--json").data
    for name, spoil, fix in (
        ("world", _world, ("--wrench-frame", "world")),
        ("negated", _negated, ("--units", "wrench=-1")),
    ):
        log = written(tmp_path, spoil(table), name)
        fixed = thetahat("tool", log, "--robot", "arm7", "--json", *fix)
        assert fixed.code == 0, fixed.err
        assert_allclose(fixed.data["mass"], plain["mass"], rtol=1e-3)
        assert_allclose(fixed.data["com"], plain["com"], atol=1e-4)


def test_requests_that_cannot_be_met_are_one_sentence(thetahat: Thetahat, tmp_path: Path) -> None:
    table = columns(1, noise=NOISE)
    bare = {k: v for k, v in table.items() if not k.startswith("wrench")}
    none = thetahat("tool", written(tmp_path, bare, "bare"), "--robot", "arm7")
    assert (none.code, "has no columns wrench.<link>.fx" in none.err) == (3, True)
    two = table | {k.replace(".tool.", ".flange."): v for k, v in table.items() if "wrench" in k}
    several = thetahat("tool", written(tmp_path, two, "two"), "--robot", "arm7")
    assert (several.code, "give --link, one of" in several.err) == (2, True)
    frame = thetahat("tool", written(tmp_path, table), "--robot", "arm7", "--wrench-frame", "base")
    assert (frame.code, "base" in frame.err) == (2, True)
    still = {k: np.repeat(v[:1], len(v)) if k[:2] in ("q.", "dq") else v for k, v in table.items()}
    rest = thetahat("tool", written(tmp_path, still, "still"), "--robot", "arm7")
    assert rest.code in (3, 5), rest.err
    assert rest.err.count("error:") == 1
