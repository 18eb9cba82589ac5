"""Wrist sensors in `identify`, `tool` and `payload`: wrenches by Pinocchio, truth by its models."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from payload_logs import quick
from wrench_logs import BIAS, HELD, LINK, Noise, columns, held_theta

import thetahat as th
from thetahat import robots
from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint, with_wrench_sensors
from thetahat.pipeline.logged_sensors import with_logged_sensors
from thetahat.pipeline.wrist_tool import wrist_tool

Table = dict[str, np.ndarray]
NOISE = Noise(torque=0.1, force=0.3, moment=0.01)
WRENCH = [sensor_joint(LINK, channel) for channel in CHANNELS]


def samples(robot: th.Robot, table: Table) -> th.Samples:
    """A table's rows as they are, in the order of a robot with a sensor."""
    out = {kind: np.zeros((len(table["t"]), robot.nv)) for kind in ("q", "dq", "ddq", "tau")}
    for j, name in enumerate(robot.joint_names):
        for kind, array in out.items():
            if f"{kind}.{name}" in table:
                array[:, j] = table[f"{kind}.{name}"]
            elif kind == "tau":
                array[:, j] = table[name]
    return th.Samples(**out)


def measured_arm() -> th.Robot:
    """The arm of the file with its sensor, friction and bias to be found."""
    robot = with_wrench_sensors(th.load(robots.path("arm7")), [LINK])
    return robot.with_drive(viscous=True, coulomb=True, offset=True)


def test_without_noise_the_truth_is_found_and_what_the_sensor_carries_is_identifiable_alone() -> (
    None
):
    robot = measured_arm()
    information = th.information(robot, samples(robot, columns(1)))
    estimate = th.solve(information, th.LeastSquares())
    body = robot.body_index(LINK)
    ten = slice(10 * body, 10 * body + 10)
    assert {robot.base_parameters.kinds[k] for k in range(ten.start, ten.stop)} == {"alone"}
    assert_allclose(estimate.theta[ten], held_theta(), atol=1e-8)
    found = robot.with_parameters(estimate)
    sensors = robot.tree.sensor_dofs
    assert_allclose(found.drive.offset[sensors], BIAS, atol=1e-8)
    plain = th.load(robots.path("arm7"))
    kinds = plain.base_parameters.kinds
    assert kinds[10 * plain.body_index("flange") + 9] != "alone"  # the last body's mass, before


def test_parts_of_a_log_merge_to_the_whole() -> None:
    robot, table = measured_arm(), columns(1, noise=NOISE)
    whole = samples(robot, table)
    first, second = whole.split(0.4)
    merged = th.information(robot, first) + th.information(robot, second)
    estimator = th.LeastSquares(weights="joint")
    expected = th.solve(th.information(robot, whole), estimator).x_base
    assert_allclose(th.solve(merged, estimator).x_base, expected, rtol=1e-7, atol=1e-9)


def turned(table: Table) -> Table:
    """The same log with wrenches in the world's axes."""
    robot = measured_arm()
    q = samples(robot, table).q
    R = rigid_body.body_frames(robot, q)[0][:, robot.body_index(LINK)]
    out = dict(table)
    for part in (WRENCH[:3], WRENCH[3:]):
        world = (R @ np.stack([table[name] for name in part], axis=1)[..., None])[..., 0]
        out |= {name: world[:, k] for k, name in enumerate(part)}
    return out


def test_identify_finds_tool_and_bias_within_their_intervals_in_either_frame() -> None:
    table = columns(1, noise=NOISE)
    result = th.identify("arm7", table, settings=quick())
    body = result.estimate.robot.body_index(LINK)
    ten = slice(10 * body, 10 * body + 10)
    std = np.asarray(result.estimate.std[ten])
    assert np.all(np.isfinite(std))
    assert np.all(std > 0.0)
    assert np.all(np.abs(result.estimate.theta[ten] - held_theta()) < 4.0 * std)
    assert std[parameters.M] < 0.01
    names = [row.name for row in result.estimate.robot.tree.independent]
    assert names[-6:] == WRENCH
    assert_allclose(result.estimate.robot.drive.offset[-6:], 0.0)  # the file knows no bias
    found = result.estimate.robot.with_parameters(result.estimate)
    assert_allclose(found.drive.offset[-6:], BIAS, atol=0.05)
    settings = th.IdentifySettings(tune=False, cutoff=8.0, armature=False, wrench_frame="world")
    world = th.identify("arm7", turned(table), settings=settings)
    assert_allclose(world.estimate.theta, result.estimate.theta, atol=1e-6)


def test_joints_that_are_named_leave_the_sensor_out() -> None:
    arm, table = th.load(robots.path("arm7")), columns(1, noise=NOISE)
    joints = th.IdentifySettings(joints=tuple(arm.joint_names))
    assert with_logged_sensors(arm, table, joints) is arm
    both = th.IdentifySettings(joints=("joint1", f"wrench.{LINK}"))
    assert LINK in with_logged_sensors(arm, table, both).body_names


@pytest.mark.slow
def test_workers_find_what_one_process_finds(tmp_path) -> None:
    files = [tmp_path / f"{seed}.npz" for seed in (1, 2)]
    for seed, file in zip((1, 2), files, strict=True):
        np.savez(file, **columns(seed, noise=NOISE))
    one, two = (th.identify("arm7", files, settings=quick(), workers=w) for w in (None, 2))
    assert_allclose(two.estimate.theta, one.estimate.theta, rtol=1e-6, atol=1e-9)


def test_the_tool_of_a_moving_log_has_inertia_and_intervals_that_hold() -> None:
    mass, com, inertia = parameters.to_mass_com_inertia(held_theta())
    within = []
    for seed in range(3):
        table = {k: v for k, v in columns(seed, noise=NOISE).items() if k[:3] not in ("tau", "ddq")}
        tool = wrist_tool("arm7", table)
        body = tool.payload
        assert abs(body.mass - mass) < 0.01
        assert_allclose(body.com, com, atol=1e-3)
        assert_allclose(body.inertia_com, inertia, atol=2e-4)
        errors = [(body.mass - mass) / body.mass_std, *(body.com - com) / body.com_std]
        errors += list(((body.inertia_com - inertia) / body.inertia_std)[np.triu_indices(3)])
        within += list(np.abs(np.asarray(errors, dtype=float)) < 2.0)
        assert not any("drifts" in reason for reason in tool.verdict.reasons)
    assert np.mean(within) >= 0.85


def test_a_drift_of_the_bias_is_named_and_the_interval_holds() -> None:
    table = {k: v for k, v in columns(0, noise=NOISE).items() if k[:3] not in ("tau", "ddq")}
    mass = float(held_theta()[parameters.M])
    table[WRENCH[1]] = table[WRENCH[1]] + 2.0 * (table["t"] / table["t"][-1]) ** 2
    tool = wrist_tool("arm7", table)
    drift = {row["channel"]: row for row in tool.data["drift"]}
    assert drift["fy"]["significant"]
    assert drift["fy"]["range"] == pytest.approx(2.0, rel=0.2)
    assert not drift["fx"]["significant"]
    assert any("bias of fy drifts by" in reason for reason in tool.verdict.reasons)
    assert abs(tool.payload.mass - mass) < 3.0 * tool.payload.mass_std


def test_a_map_of_motors_and_a_sensor_are_refused_together(tmp_path) -> None:
    path = tmp_path / "map.csv"
    path.write_text("\n".join(",".join(str(int(i == j)) for j in range(7)) for i in range(7)))
    settings = th.IdentifySettings(tune=False, cutoff=8.0, actuation=path)
    with pytest.raises(UsageError, match=r"--actuation and the columns wrench\.tool"):
        th.identify("arm7", columns(1, noise=NOISE), settings=settings)


def test_a_payload_comes_from_the_sensor_alone_where_all_logs_have_one() -> None:
    loaded, empty = (
        columns(seed, noise=NOISE, held=held) for seed, held in ((1, True), (2, False))
    )
    spoilt = loaded | {name: 1.3 * v for name, v in loaded.items() if name.startswith("tau.")}
    answers = [
        th.payload("arm7", table, without=empty, link=LINK, settings=quick()).payload
        for table in (loaded, spoilt)
    ]
    assert answers[0].mass == pytest.approx(HELD.mass, abs=0.005)
    assert answers[0].mass_std < 0.003
    assert_allclose(answers[1].theta, answers[0].theta, atol=1e-4)  # drives play no part
