"""The audit: what is wrong with a log is found, named and masked; what is merely unusual is left
alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from data_paths import needs_shared, shared_file

import thetahat as th
from thetahat import robots
from thetahat.data.formats.write_log import write_table
from thetahat.data.log import Log, read_log

RATE, SECONDS = 250.0, 12.0
ALARMS = {
    "stuck",
    "saturated",
    "dead-torque",
    "sign",
    "signs",
    "torque-scale",
    "inconsistent-dq",
    "inconsistent-ddq",
    "gravity-direction",
    "wrap",
    "gap",
    "short-run",
    "jitter",
}
Motion = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("arm7"))


@pytest.fixture(scope="module")
def motion(robot: th.Robot) -> Motion:
    """An exciting motion with friction and noise, from the robot's own equation of motion."""
    return simulated(robot)


def simulated(robot: th.Robot, amplitude: float = 0.8, seed: int = 0) -> Motion:
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, SECONDS, 1.0 / RATE)
    n = robot.nv
    q, dq, ddq = (
        rng.uniform(-0.5, 0.5, n) * np.ones((len(t), 1)),
        np.zeros((len(t), n)),
        np.zeros((len(t), n)),
    )
    for k in range(1, 4):
        w, phase = 2 * np.pi * 0.15 * k, rng.uniform(0, 6, n)
        a = amplitude * rng.uniform(0.3, 1.0, n) / k
        q = q + a * np.sin(np.outer(t, [w] * n) + phase)
        dq += a * w * np.cos(np.outer(t, [w] * n) + phase)
        ddq -= a * w**2 * np.sin(np.outer(t, [w] * n) + phase)
    tau = th.inverse_dynamics(robot, q, dq, ddq, rigid=True)
    scale = np.std(tau, axis=0)
    tau = tau + scale * (0.1 * dq + 0.2 * np.tanh(dq / 0.02) + 0.02 * rng.normal(size=tau.shape))
    return {"t": t, "q": q, "dq": dq, "tau": tau}


def log_of(
    folder: Path,
    robot: th.Robot,
    data: Motion,
    *,
    without: tuple[str, ...] = (),
    name: str = "log.parquet",
) -> Log:
    columns = {"t": data["t"]}
    for kind in ("q", "dq", "tau"):
        if kind not in without:
            columns |= {
                f"{kind}.{joint}": data[kind][:, j] for j, joint in enumerate(robot.joint_names)
            }
    return read_log(write_table(folder / name, list(columns), list(columns.values())), robot)


def alarms(log: Log) -> list[tuple[str, str | None]]:
    return [(finding.kind, finding.joint) for finding in log.findings if finding.kind in ALARMS]


def masked(log: Log, nv: int) -> np.ndarray:
    out = np.zeros((log.rows, nv), dtype=bool)
    for mask in log.masks:
        out[mask.first_row : mask.stop_row, mask.joint] = True
    return out


# -- nothing wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("without", [(), ("dq",), ("tau",)])
def test_a_sound_log_raises_no_alarm(
    robot: th.Robot, motion: Motion, tmp_path: Path, without: tuple[str, ...]
) -> None:
    log = log_of(tmp_path, robot, motion, without=without)
    assert log.findings == ()
    assert log.masks == ()


def test_unusual_is_not_wrong(robot: th.Robot, motion: Motion, tmp_path: Path) -> None:
    still = {name: array.copy() for name, array in motion.items()}
    still["q"][1000:2000], still["dq"][1000:2000], still["tau"][1000:2000] = (
        still["q"][1000],
        0.0,
        still["tau"][1000],
    )
    assert alarms(log_of(tmp_path, robot, still)) == [], "a robot at rest"
    locked = {name: array.copy() for name, array in motion.items()}
    locked["q"][:, 3], locked["dq"][:, 3] = 0.3, 0.0
    locked["tau"] = th.inverse_dynamics(
        robot, locked["q"], locked["dq"], np.gradient(locked["dq"], 1 / RATE, axis=0), rigid=True
    )
    assert alarms(log_of(tmp_path, robot, locked)) == [], (
        "a joint held by its brake, torques without noise"
    )
    coarse = dict(motion)
    step = np.ptp(motion["tau"], axis=0) / 60
    coarse["tau"] = np.round(motion["tau"] / step) * step
    assert alarms(log_of(tmp_path, robot, coarse)) == [], (
        "coarse torque readings, whose peaks are flat"
    )
    coarse["q"] = np.round(motion["q"] / 1e-3) * 1e-3
    assert alarms(log_of(tmp_path, robot, coarse, without=("dq",))) == [], "coarse encoders"


def test_a_joint_of_many_turns_is_not_in_degrees(tmp_path: Path) -> None:
    robot = th.load(robots.path("double_pendulum"))
    data = simulated(robot)
    data["q"][:, 0] += 9.0 * data["t"]
    data["dq"][:, 0] += 9.0
    ddq = np.gradient(data["dq"], 1 / RATE, axis=0)
    data["tau"] = th.inverse_dynamics(robot, data["q"], data["dq"], ddq, rigid=True)
    assert alarms(log_of(tmp_path, robot, data)) == []


# -- channels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "stop"), [(0, 3000), (700, 1500), (2500, 3000)])
def test_a_dead_torque_channel_is_masked_there(
    robot: th.Robot, motion: Motion, tmp_path: Path, first: int, stop: int
) -> None:
    data = motion | {"tau": motion["tau"].copy()}
    data["tau"][first:stop, 2] = 1.25
    log = log_of(tmp_path, robot, data, name="log.csv")
    assert alarms(log) == [("dead-torque", robot.joint_names[2])]
    finding = next(finding for finding in log.findings if finding.kind == "dead-torque")
    assert finding.rows == (first, stop)
    where = f"line {first + 2} to line {stop + 1}" if stop - first < 3000 else "100% of the log"
    assert where in finding.message
    assert "1.25" in finding.message
    assert "--keep dead-torque" in finding.message
    expected = np.zeros((3000, 7), dtype=bool)
    expected[first:stop, 2] = True
    np.testing.assert_array_equal(masked(log, 7), expected)


def test_a_dead_channel_is_followed_across_batches(
    robot: th.Robot, motion: Motion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = motion | {"tau": motion["tau"].copy()}
    data["tau"][700:1500, 2] = 0.0
    monkeypatch.setattr("thetahat.data.scan.BATCH_ROWS", 130)
    log = log_of(tmp_path, robot, data)
    assert [finding.rows for finding in log.findings] == [(700, 1500)]


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_saturated_torques_are_masked(
    robot: th.Robot, motion: Motion, tmp_path: Path, side: float
) -> None:
    data = motion | {"tau": motion["tau"].copy()}
    limit = np.percentile(side * motion["tau"][:, 1], 85)
    clipped = side * motion["tau"][:, 1] >= limit
    data["tau"][clipped, 1] = side * limit
    log = log_of(tmp_path, robot, data)
    assert alarms(log) == [("saturated", robot.joint_names[1])]
    expected = np.zeros((3000, 7), dtype=bool)
    expected[:, 1] = clipped
    np.testing.assert_array_equal(masked(log, 7), expected)
    assert f"{side * limit:.6g}" in str(log.findings[0])


def test_a_channel_that_is_dead_but_for_pauses_is_dead_as_a_whole(
    robot: th.Robot, motion: Motion, tmp_path: Path
) -> None:
    data = {name: array.copy() for name, array in motion.items()}
    for first in (0, 1200, 2400):  # where the joint rests, a constant torque contradicts nothing
        data["q"][first : first + 400, 2], data["dq"][first : first + 400, 2] = 0.1, 0.0
    data["tau"][:, 2] = 0.0
    data["tau"][::97, 2] = 0.01  # a bit that flickers
    log = log_of(tmp_path, robot, data, without=("dq",))
    assert ("dead-torque", robot.joint_names[2]) in alarms(log)
    assert masked(log, 7)[:, 2].all()


@pytest.mark.parametrize(("kind", "value", "stop"), [("q", 0.2, 1100), ("dq", 0.0, 650)])
def test_a_stuck_sensor_masks_every_joint(
    robot: th.Robot, motion: Motion, tmp_path: Path, kind: str, value: float, stop: int
) -> None:
    data = motion | {kind: motion[kind].copy()}
    data[kind][500:stop, 1] = value
    log = log_of(tmp_path, robot, data)
    assert alarms(log) == [("stuck", robot.joint_names[1])]
    expected = np.zeros((3000, 7), dtype=bool)
    expected[500:stop] = True
    np.testing.assert_array_equal(masked(log, 7), expected)
    assert ("position" if kind == "q" else "velocity") + " stays" in str(log.findings[0])


# -- signs and gravity -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "joints", [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (1, 3), tuple(range(7))]
)
@pytest.mark.parametrize("without", [(), ("dq",)])
def test_a_flipped_sign_is_found(
    robot: th.Robot,
    motion: Motion,
    tmp_path: Path,
    joints: tuple[int, ...],
    without: tuple[str, ...],
) -> None:
    data = motion | {"tau": motion["tau"].copy()}
    data["tau"][:, joints] *= -1.0
    log = log_of(tmp_path, robot, data, without=without)
    if len(joints) < 7:
        assert alarms(log) == [("sign", robot.joint_names[j]) for j in joints]
        assert not masked(log, 7).any(), "it is named, and used as it is"
        assert all("multiply the column by −1" in str(f) for f in log.findings)
        return
    assert alarms(log) == [("signs", None)]
    assert masked(log, 7).all()
    assert " W," in str(log.findings[0]), "by the energy"


@pytest.mark.parametrize(
    "gravity",
    [
        (0.0, 0.0, 9.81),
        (9.81, 0.0, 0.0),
        (-9.81, 0.0, 0.0),
        (0.0, -9.81, 0.0),
        (0.0, 6.9367, -6.9367),
    ],
)
def test_a_robot_mounted_otherwise_is_found_from_its_log(
    robot: th.Robot, tmp_path: Path, gravity: tuple[float, ...]
) -> None:
    mounted = robot.with_gravity(np.array(gravity))
    data = simulated(mounted)
    log = log_of(tmp_path, robot, data)
    assert alarms(log) == [("gravity-direction", None)]
    assert log.masks == (), "nothing is changed"
    proposed = np.array(
        [float(x) for x in str(log.findings[0]).rpartition("--gravity ")[2].split(",")]
    )
    angle = np.degrees(
        np.arccos(proposed @ gravity / np.linalg.norm(proposed) / np.linalg.norm(gravity))
    )
    assert angle < 6.0
    assert np.linalg.norm(proposed) == pytest.approx(9.81, abs=0.01)
    assert alarms(log_of(tmp_path, robot.with_gravity(proposed), data)) == [], (
        "with the proposal all is well"
    )


def test_a_model_with_wrong_masses_is_no_reason_for_alarm(
    robot: th.Robot, motion: Motion, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    wrong = robot.with_parameters(
        (robot.theta.reshape(-1, 10) * rng.uniform(0.5, 1.8, (7, 1))).ravel()
    )
    assert alarms(log_of(tmp_path, wrong, motion)) == []


# -- units -----------------------------------------------------------------------------------------


UNITS = {
    "degrees": ({"q": 180 / np.pi, "dq": 180 / np.pi}, (), "degrees"),
    "degrees, no velocities": ({"q": 180 / np.pi}, ("dq",), "degrees"),
    "positions in degrees": ({"q": 180 / np.pi}, (), "q seems to be in degrees"),
    "velocities in degrees": ({"dq": 180 / np.pi}, (), "dq seems to be in degrees"),
    "milliseconds": ({"t": 1e3}, (), "milliseconds"),
    "microseconds": ({"t": 1e6}, (), "microseconds"),
    "nanoseconds": ({"t": 1e9}, (), "nanoseconds"),
    "milliseconds, no velocities": ({"t": 1e3}, ("dq",), "milliseconds"),
    "nanoseconds, no velocities": ({"t": 1e9}, ("dq",), "nanoseconds"),
}


@pytest.mark.parametrize("case", UNITS)
def test_units_that_are_not_si_are_refused_with_a_hint(
    robot: th.Robot, motion: Motion, tmp_path: Path, case: str
) -> None:
    factors, without, words = UNITS[case]
    data = {name: array * factors.get(name, 1.0) for name, array in motion.items()}
    with pytest.raises(th.ThetahatError) as caught:
        log_of(tmp_path, robot, data, without=without)
    assert caught.value.exit_code == 3
    assert words in str(caught.value)
    assert "multiply by" in str(caught.value)
    assert "log.parquet" in str(caught.value)


def test_degrees_are_known_by_the_torques_where_no_limits_are(tmp_path: Path) -> None:
    text = Path(robots.path("double_pendulum")).read_text()
    (tmp_path / "free.urdf").write_text(
        re.sub(r"<limit[^>]*/>", "", text.replace('type="revolute"', 'type="continuous"'))
    )
    robot = th.load(tmp_path / "free.urdf")
    assert not any(np.isfinite(node.limits.upper) for node in robot.tree.independent)
    data = simulated(robot)
    degrees = data | {"q": np.degrees(data["q"]), "dq": np.degrees(data["dq"])}
    with pytest.raises(th.ThetahatError, match="degrees"):
        log_of(tmp_path, robot, degrees)


# -- real logs -------------------------------------------------------------------------------------

REAL = [
    ("panda/panda_exciting_traj1.csv", "panda/panda_nomesh_from_example_robot_data.urdf", 7),
    ("ur10/panda_exciting.csv", "ur10/panda_nomesh.urdf", 7),
    ("ur10/ur10_exciting.csv", "ur10/ur10_nomesh.urdf", 6),
    ("kr300/kr300.csv", "kr300/kr300_from_dh.urdf", 6),
    ("tx40/tx40.csv", "tx40/tx40_mdh_modified.urdf", 6),
]


@needs_shared
@pytest.mark.parametrize(
    ("log", "urdf", "joints"),
    REAL,
    ids=[entry[0].split("/")[1].split("_")[0] + entry[0][:2] for entry in REAL],
)
def test_on_real_logs_every_flipped_sign_is_found(
    tmp_path: Path, log: str, urdf: str, joints: int
) -> None:
    robot = th.load(shared_file("logs", urdf))
    original = read_log(shared_file("logs", log), robot)
    chunks = original.read()
    data = {
        name: np.concatenate([getattr(chunk, name) for chunk in chunks])
        for name in ("q", "tau", "dq")
        if getattr(chunks[0], name) is not None
    }
    run = np.repeat([f"r{chunk.run}" for chunk in chunks], [len(chunk) for chunk in chunks])
    columns = {"seg": run, "t": np.concatenate([chunk.t for chunk in chunks])}
    for j in range(joints):
        columns |= {f"{kind}{j + 1}": array[:, j] for kind, array in data.items()}
    for j in range(joints):
        flipped = columns | {f"tau{j + 1}": -columns[f"tau{j + 1}"]}
        found = read_log(
            write_table(tmp_path / "log.parquet", list(flipped), list(flipped.values())), robot
        )
        assert [
            (f.kind, f.joint)
            for f in found.findings
            if f.kind in ("sign", "gravity-direction", "stuck", "saturated", "dead-torque")
        ] == [("sign", robot.joint_names[j])]


@needs_shared
@pytest.mark.parametrize(
    ("log", "urdf"), [REAL[0][:2], REAL[1][:2], REAL[2][:2]], ids=["panda", "panda 30 Hz", "ur10"]
)
def test_on_real_logs_a_wrong_gravity_is_found(log: str, urdf: str) -> None:
    robot = th.load(shared_file("logs", urdf)).with_gravity(np.array([9.81, 0.0, 0.0]))
    found = [
        finding.message
        for finding in read_log(shared_file("logs", log), robot).findings
        if finding.kind == "gravity-direction"
    ]
    assert len(found) == 1
    assert found[0].endswith("--gravity 0,0,-9.81")
