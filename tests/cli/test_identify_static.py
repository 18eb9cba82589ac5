"""`identify --static`: gravity from held poses; torques by Pinocchio, of a robot that is not the
file's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from data_paths import ROOT
from identify_cases import Done

import thetahat as th
from oracles import pinocchio_bridge
from thetahat import robots
from thetahat.errors import NotIdentifiable

jsonschema = pytest.importorskip("jsonschema")
RATE, MOVE, HOLD = 50.0, 0.6, 0.8  # [Hz, s, s]
FRICTION = np.array([0.8, 0.8, 0.6, 0.5, 0.3, 0.2, 0.1])  # [N·m]
OFFSET = np.linspace(-0.3, 0.3, 7)  # [N·m]
RESOLUTION = 0.01  # [N·m]


@cache
def true_arm() -> th.Robot:
    arm = th.load(robots.path("arm7"))
    rng = np.random.default_rng(0)
    factors = 1.0 + 0.2 * rng.uniform(-1.0, 1.0, len(arm.body_names))
    return arm.with_parameters(arm.theta * np.repeat(factors, 10))


def gravity(q: np.ndarray) -> np.ndarray:
    """Pinocchio's, of the true arm."""
    oracle = pinocchio_bridge.from_robot(true_arm())
    data = oracle.model.createData()
    return np.array([pin.computeGeneralizedGravity(oracle.model, data, each) for each in q])


@cache
def recording(seed: int, poses: int = 40) -> dict[str, np.ndarray]:
    """Moves from pose to pose; friction holds against the last motion, torques have steps."""
    rng, parts, torque = np.random.default_rng(seed), [], []
    at = np.zeros(7)
    for _ in range(poses):
        to = rng.uniform(-1.5, 1.5, 7)
        s = np.linspace(0.0, 1.0, round(MOVE * RATE))
        way = at + (to - at) * (s * s * (3.0 - 2.0 * s))[:, None]
        part = np.vstack([way, np.tile(to, (round(HOLD * RATE), 1))])
        held = FRICTION * np.sign(to - at) * rng.uniform(0.8, 1.0, 7)
        parts.append(part)
        torque.append(gravity(part) + held + OFFSET + rng.normal(0.0, 0.03, part.shape))
        at = to
    q, tau = np.vstack(parts), RESOLUTION * np.round(np.vstack(torque) / RESOLUTION)
    out = {"t": np.arange(len(q)) / RATE}
    for j, name in enumerate(true_arm().joint_names):
        out |= {f"q.{name}": q[:, j], f"tau.{name}": tau[:, j]}
    return out


def settings(**more: object) -> th.IdentifySettings:
    return th.IdentifySettings(static=True, report=False, **more)


def test_gravity_of_poses_that_nobody_held_is_found_and_friction_and_offset_beside() -> None:
    result = th.identify("arm7", recording(1), settings=settings())
    q = np.random.default_rng(5).uniform(-1.5, 1.5, (300, 7))
    truth = gravity(q)
    errors, before = (
        np.sqrt(np.mean((th.gravity(robot, q) - truth) ** 2, axis=0))
        for robot in (result.robot, th.load(robots.path("arm7")))
    )
    assert np.all(errors < 0.05)
    assert np.all(errors[1:4] < 0.1 * before[1:4])
    np.testing.assert_allclose(result.robot.drive.coulomb, 0.9 * FRICTION, rtol=0.15)
    np.testing.assert_allclose(result.robot.drive.offset, OFFSET, atol=0.05)
    static = result.data["static"]
    assert static["rank"] == static["structural_rank"] == 12 + 7 + 7
    assert all(row["holds"] for row in static["joints"])
    assert [row["resolution"] for row in static["joints"]] == pytest.approx([RESOLUTION] * 7)
    named = {link["name"]: set(link["identifiable"]) for link in result.data["links"]}
    assert all(part.startswith(("m", "mc")) for parts in named.values() for part in parts)
    assert result.verdict.level == "good"
    assert any("gravity alone" in reason for reason in result.verdict.reasons)


def test_a_table_with_a_row_for_each_pose_will_do() -> None:
    rng = np.random.default_rng(2)
    q = rng.uniform(-1.5, 1.5, (60, 7))
    tau = gravity(q) + rng.normal(0.0, 0.03, q.shape)
    table = {"t": 5.0 * np.arange(len(q))}
    for j, name in enumerate(true_arm().joint_names):
        table |= {f"q.{name}": q[:, j], f"tau.{name}": tau[:, j]}
    result = th.identify("arm7", table, settings=settings())
    errors = np.sqrt(np.mean((th.gravity(result.robot, q) - gravity(q)) ** 2, axis=0))
    assert np.all(errors < 0.05)


def test_joints_that_would_creep_are_named() -> None:
    table = dict(recording(1))
    rng = np.random.default_rng(3)
    hold = round((MOVE + HOLD) * RATE)
    wrong = np.repeat(
        rng.normal(0.0, 2.0, 40), hold
    )  # torques of joint 2 lie by 2 N·m in each pose
    table["tau.joint2"] = table["tau.joint2"] + wrong
    result = th.identify("arm7", table, settings=settings())
    assert any("creep: joint2 (" in reason for reason in result.verdict.reasons)
    assert [row["holds"] for row in result.data["static"]["joints"]][1] is False


def test_too_few_poses_are_refused() -> None:
    with pytest.raises(NotIdentifiable, match=r"holds 4 poses .* --static asks for 10"):
        th.identify("arm7", recording(4, 4), settings=settings())


def test_the_verb_prints_the_check_and_its_schema_holds(
    thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    log = tmp_path / "poses.npz"
    np.savez(log, **recording(1))
    given = ("identify", "arm7", log, "--static", "--out", tmp_path / "out")
    assert "let go" in thetahat(*given).out
    done = thetahat(*given, "--json")
    assert done.code == 0, done.err
    schema = json.loads((ROOT / "src/thetahat/schemas/estimate.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(done.data)
    assert done.data["provenance"]["settings"]["static"] is True
