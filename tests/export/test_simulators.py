"""Results for simulators: MuJoCo loads them and moves as the project's own dynamics do; Python text
parses; what is not known is not made up.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import thetahat as th
from thetahat import robots
from thetahat.errors import MalformedInput, NotUsable, UsageError
from thetahat.export.simulator_model import SimulatorModel, read_simulator_model
from thetahat.export.simulator_targets import TARGETS
from thetahat.model.friction_terms import by_load, stribeck

mujoco = pytest.importorskip("mujoco", reason="MuJoCo loads the files (pip install mujoco)")
SAME = 1e-6  # [rad] over one second, as asked
SECONDS = 1.0


def mujoco_motion(text: str, command: np.ndarray, start: np.ndarray, step: float) -> np.ndarray:
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.timestep = step
    data = mujoco.MjData(model)
    data.qpos[:] = start
    data.ctrl[:] = command
    for _ in range(round(SECONDS / step)):
        mujoco.mj_step(model, data)
    return np.array(data.qpos)


def own_motion(model: SimulatorModel, command: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The robot's own dynamics under the drive's law, to 1e-10."""
    n = model.robot.nv
    kp, kd, bias, limit = (
        np.array([joint.get(term) or 0.0 for joint in model.joints])
        for term in ("kp", "kd", "bias", "effort_limit")
    )

    def rate(_: float, x: np.ndarray) -> np.ndarray:
        q, dq = x[:n], x[n:]
        tau = np.clip(kp * (command - q - bias) - kd * dq, -limit, limit)
        return np.concatenate([dq, th.forward_dynamics(model.robot, q, dq, tau)])

    done = solve_ivp(
        rate, (0.0, SECONDS), np.concatenate([start, np.zeros(n)]), rtol=1e-10, atol=1e-10
    )
    return done.y[:n, -1]


def test_mjcf_moves_as_the_own_dynamics_do(actuators: Callable[..., Path]) -> None:
    path = actuators(bias=0.03)
    data = json.loads(path.read_text())
    for joint in data[
        "joints"
    ]:  # dry friction is a soft constraint in MuJoCo, delay is tested below
        joint |= {"coulomb": 0.0, "delay": None}
    path.write_text(json.dumps(data))
    model = read_simulator_model(path)
    start, command = np.full(4, 0.1), np.array([0.15, 0.1, 0.2, 0.3])
    ours = own_motion(model, command, start)
    theirs = mujoco_motion(TARGETS["mjcf"](model), command, start, 2e-4)
    assert np.max(np.abs(ours - start)) > 0.01
    np.testing.assert_allclose(theirs, ours, rtol=0.0, atol=SAME)


def test_mjcf_of_an_estimate_has_its_bodies_and_drive(identified: Path) -> None:
    model = read_simulator_model(identified)
    made = mujoco.MjModel.from_xml_string(TARGETS["mjcf"](model))
    np.testing.assert_allclose(made.body_mass[1:], model.robot.theta[9::10], rtol=1e-12)
    np.testing.assert_allclose(made.dof_damping, model.robot.drive.viscous, rtol=1e-12)
    np.testing.assert_allclose(made.dof_frictionloss, model.robot.drive.coulomb, rtol=1e-12)
    # and the same torques at any state, friction and rotors aside
    rng, data = np.random.default_rng(0), mujoco.MjData(made)
    made.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    for _ in range(5):
        data.qpos[:], data.qvel[:], data.qacc[:] = rng.uniform(-1.0, 1.0, (3, 4))
        mujoco.mj_inverse(made, data)
        bare = model.robot.without_drive()
        wanted = th.inverse_dynamics(bare, data.qpos, data.qvel, data.qacc)
        np.testing.assert_allclose(
            data.qfrc_inverse - made.dof_damping * data.qvel, wanted, atol=1e-9
        )


def test_a_delayed_command_arrives_late(actuators: Callable[..., Path]) -> None:
    made = mujoco.MjModel.from_xml_string(TARGETS["mjcf"](read_simulator_model(actuators())))
    if not hasattr(made, "actuator_delay"):
        pytest.skip("this MuJoCo has no actuators with delay")
    np.testing.assert_allclose(made.actuator_delay, 0.012)
    data = mujoco.MjData(made)
    made.opt.gravity[:] = 0.0
    force = []
    for _ in range(20):
        data.ctrl[:] = 0.1
        mujoco.mj_step(made, data)
        force.append(data.actuator_force[1])
    late = int(np.argmax(np.abs(np.array(force) - force[0]) > 1.0))
    assert 11 <= late <= 13, "steps of one millisecond"


def test_urdf_is_the_file_with_other_values(identified: Path, tmp_path: Path) -> None:
    model = read_simulator_model(identified)
    path = tmp_path / "arm.urdf"
    path.write_text(TARGETS["urdf"](model))
    again = th.load(path)
    np.testing.assert_allclose(again.theta, model.robot.theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(again.drive.viscous, model.robot.drive.viscous)
    np.testing.assert_allclose(again.drive.coulomb, model.robot.drive.coulomb)


@pytest.mark.parametrize("target", ["isaaclab", "mjlab"])
def test_python_text_parses_and_holds_the_values(
    actuators: Callable[..., Path], target: str
) -> None:
    text = TARGETS[target](read_simulator_model(actuators(delay=0.02, kp=275.5)))
    numbers = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
    assert 275.5 in numbers
    assert 0.6 in numbers
    assert 4 in numbers, "0.02 s are four steps of 5 ms"
    assert 2 in numbers, "0.012 s are two"


def test_isaaclab_leaves_out_what_is_not_known(identified: Path) -> None:
    tree = ast.parse(TARGETS["isaaclab"](read_simulator_model(identified)))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    found = {k.arg: k.value for call in calls for k in call.keywords}
    assert isinstance(found["stiffness"], ast.Constant)
    assert found["stiffness"].value is None
    assert "armature" not in found


def test_bam_and_json(actuators: Callable[..., Path]) -> None:
    model = read_simulator_model(actuators(kd=None))
    servo = next(iter(json.loads(TARGETS["bam"](model)).values()))
    assert (servo["model"], servo["friction_base"], servo["command_delay"]) == ("m1", 0.6, 0.012)
    rows = json.loads(TARGETS["json"](model))["joints"]
    assert rows[0]["kd"] is None
    assert rows[1]["kd"] == 12.0
    assert rows[0]["std"]["coulomb"] == 0.03


def test_bam_has_bams_keys_for_every_law(actuators: Callable[..., Path]) -> None:
    """Keys of Rhoban/bam, model.py: what a model of that name reads, and nothing else."""
    common = {"model", "actuator", "armature", "friction_base", "friction_viscous"}
    common |= {"q_offset", "command_delay"}
    low = {"friction_stribeck", "dtheta_stribeck", "alpha"}
    keys = {
        "m1": common,
        "m2": common | low,
        "m3": common | {"load_friction_base"},
        "m4": common | low | {"load_friction_base", "load_friction_stribeck"},
    }
    model = read_simulator_model(actuators())
    drive = model.robot.drive
    slow, loaded = (stribeck(np.full(4, 0.1)), 0.3), (by_load(np.ones(4)), 0.2)
    laws = {"m1": (), "m2": (slow,), "m3": (loaded,), "m4": (slow, loaded)}
    for name, terms in laws.items():
        own = drive
        for shape, value in terms:
            own = own.with_extra_term(shape, value)
        made = replace(model, robot=replace(model.robot, drive=own))
        servo = next(iter(json.loads(TARGETS["bam"](made)).values()))
        assert servo["model"] == name
        assert set(servo) == keys[name]
        assert servo.get("load_friction_base", 0.1) == 0.1


def test_a_sum_of_damping_is_the_joints(actuators: Callable[..., Path]) -> None:
    """kd and viscous friction that a log does not tell apart: their sum moves a simulator alike."""
    model = read_simulator_model(actuators(kd=None, viscous=None, damping=12.4, limit=33.0))
    made = mujoco.MjModel.from_xml_string(TARGETS["mjcf"](model))
    assert made.dof_damping[0] == 12.4
    assert made.actuator_biasprm[0][2] == 0.0
    assert made.actuator_forcerange[0][1] == 33.0
    assert model.robot.drive.viscous[0] == 12.4


def test_what_the_log_does_not_tell_is_simulated_as_it_was(actuators: Callable[..., Path]) -> None:
    """A joint of which only ratios are known keeps its loop: a motor without gain would fall."""
    numbers = {"armature": 0.3, "viscous": 4.0, "coulomb": 2.0, "kp": 900.0, "kd": 0.0}
    numbers |= {"delay": 0.01, "bias": 0.02, "offset": 0.5, "limit": 1e9, "damping": 4.0}
    numbers |= {"stribeck": 0.0, "stribeck_speed": 0.1, "load": 0.1, "quadratic": 0.0}
    unknown = dict.fromkeys(("armature", "viscous", "coulomb", "kp", "kd", "bias", "damping"))
    path = actuators(**unknown, delay=0.011, model={**numbers, "backlash": 0.0})
    model = read_simulator_model(path)
    made = mujoco.MjModel.from_xml_string(TARGETS["mjcf"](model))
    assert made.actuator_gainprm[0][0] == 900.0
    np.testing.assert_allclose(made.actuator_biasprm[0][:3], [-900.0 * 0.02 - 0.5, -900.0, 0.0])
    assert (made.dof_armature[0], made.dof_damping[0]) == (0.3, 4.0)
    assert "load 0.1" in TARGETS["mjcf"](model)
    row = json.loads(TARGETS["json"](model))["joints"][0]
    assert row["delay"] == 0.011, "told by the log"
    assert "kp" in row["assumed"]
    assert "delay" not in row["assumed"]
    assert json.loads(TARGETS["bam"](model))[row["name"]]["load_friction_base"] == 0.05


def test_stiff_drives_get_the_implicit_integrator(actuators: Callable[..., Path]) -> None:
    """Damping that decays within a step blows Runge–Kutta up; the motion stays finite."""
    model = read_simulator_model(actuators(armature=0.0, viscous=4000.0, kp=3e4))
    text = TARGETS["mjcf"](model)
    moved = mujoco_motion(text, np.full(4, 0.2), np.zeros(4), 1e-3)
    assert np.all(np.abs(moved) < 1.0)
    assert "implicitfast" in text
    assert "RK4" in TARGETS["mjcf"](read_simulator_model(actuators()))


def test_what_cannot_be_exported_is_one_sentence(
    actuators: Callable[..., Path], identified: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no position gain"):
        TARGETS["mjlab"](read_simulator_model(identified))
    with pytest.raises(MalformedInput, match="kp is 'stiff'"):
        read_simulator_model(actuators(kp="stiff"))
    path = actuators()
    data = json.loads(path.read_text())
    del data["provenance"]
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="--robot"):
        read_simulator_model(path)
    assert read_simulator_model(path, robot="arm4").robot.name == "arm4"
    data["verdict"] = {"level": "not usable", "reasons": ["no command"]}
    path.write_text(json.dumps(data))
    with pytest.raises(NotUsable, match="no command"):
        read_simulator_model(path, robot=str(robots.path("arm4")))
    path.write_text('{"schema": "thetahat/tool/1"}')
    with pytest.raises(MalformedInput, match="identify"):
        read_simulator_model(path)
