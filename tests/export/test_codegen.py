"""Generated C against Pinocchio, under strict compilers and sanitizers, and called from Python."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import built_code
import numpy as np
import pytest
from data_paths import EXAMPLES, SHARED, needs_examples
from tests.oracles.pinocchio_bridge import Oracle, from_robot, from_urdf
from tests.oracles.random_trees import random_robot

import thetahat as th
from thetahat import robots
from thetahat.dynamics.configuration import random_configuration
from thetahat.errors import RobotWarning, UsageError
from thetahat.export.codegen.c_sources import RobotCode
from thetahat.export.codegen.self_test import base_regressor
from thetahat.model.friction_terms import (
    FrictionDirection,
    by_load,
    one_sided,
    quadratic,
    spring,
    spring_cosine,
    spring_sine,
    stribeck,
)

STATES = 1000
AGREE = 1e-12  # of the largest entry, with Pinocchio
AGREE_FLOAT = 1e-5
# Accelerations pass through the inverse of the mass matrix: the torque of what C returned is
# compared, which the condition of that matrix does not blow up.
QUICK = {
    "ur5": "ur_description/urdf/ur5_robot.urdf",
    "panda": "panda_description/urdf/panda.urdf",
    "allegro": "allegro_hand_description/urdf/allegro_left_hand.urdf",
}
SLOW = {
    "two_dofs": "asr_twodof_description/urdf/TwoDofs.urdf",
    "finger": "finger_edu_description/robots/finger_edu.urdf",
    "hextilt": "hextilt_description/urdf/hextilt_flying_arm_5.urdf",
    "kinova": "kinova_description/robots/kinova.urdf",
    "so101": "so_arm_description/urdf/so101.urdf",
    "xarm7": "xarm_description/urdf/xarm7.urdf",
    "z1": "z1_description/urdf/z1.urdf",
    "quadruped": "quadruped_description/urdf/quadruped.urdf",
    "go2": "go2_description/urdf/go2.urdf",
    "tiago_no_hand": "tiago_description/robots/tiago_no_hand.urdf",
    "anymal_kinova": "anymal_b_simple_description/robots/anymal-kinova.urdf",
    "alex": "alex_description/urdf/alex_sake_hands.urdf",
    "g1": "g1_description/urdf/g1_29dof_rev_1_0.urdf",
    "romeo_small": "romeo_description/urdf/romeo_small.urdf",
    "icub": "icub_description/robots/icub.urdf",
    "talos_full": "talos_data/robots/talos_full_v2.urdf",
    "human": "human_description/robots/human.urdf",
    "tiago": "tiago_description/robots/tiago.urdf",
    "valkyrie_44": "derived_valkyrie_A_44dof.urdf",
    "valkyrie_58": "derived_valkyrie_A_58dof_nomesh.urdf",
}


def _file(path: str) -> Path:
    return EXAMPLES / path if "/" in path else SHARED / "robots" / "valkyrie" / path


def _load(path: Path) -> th.Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return th.load(path).without_drive()


def _states(robot: th.Robot, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    q = random_configuration(robot, rng, count)
    dq, ddq = rng.normal(size=(2, count, robot.nv))
    return q, dq, ddq


def _compare(got: np.ndarray, want: np.ndarray, limit: float) -> None:
    assert np.max(np.abs(got - want)) <= limit * np.max(np.abs(want))


def check_agreement(built: built_code.Library, oracle: Oracle, count: int, limit: float) -> None:
    """Every function of the robot without a drive against Pinocchio."""
    robot = built.robot
    q, dq, ddq = _states(robot, count)
    tau = oracle.inverse_dynamics(q, dq, ddq)
    Y = oracle.regressor(q, dq, ddq)
    _compare(built("inverse_dynamics", q, dq, ddq), tau, limit)
    _compare(built("gravity", q), oracle.gravity(q), limit)
    _compare(built("mass_matrix", q), oracle.mass_matrix(q), limit)
    _compare(built("regressor", q, dq, ddq), Y, limit)
    if built.code.base:
        columns = robot.base_parameters.strong.independent
        _compare(built("base_regressor", q, dq, ddq), Y[..., columns], limit)
    names = [function.name for function in built.code.functions]
    if "forward_dynamics" in names and not built.code.single:
        back = oracle.inverse_dynamics(q, dq, built("forward_dynamics", q, dq, tau))
        _compare(back, tau, 100.0 * limit)  # D·D⁻¹ loses what D's condition takes
    if "computed_torque" in names:
        rng = np.random.default_rng(5)
        q_d, dq_d, ddq_d = rng.normal(size=(3, count, robot.nv))
        kp, kd = rng.uniform(10.0, 50.0, size=(2, count, robot.nv))
        command = ddq_d + kp * (q_d - q) + kd * (dq_d - dq)
        got = built("computed_torque", q, dq, q_d, dq_d, ddq_d, kp, kd)
        _compare(got, oracle.inverse_dynamics(q, dq, command), limit)


@built_code.needs_compiler
@needs_examples
@pytest.mark.parametrize("name", QUICK)
def test_agrees_with_pinocchio(name: str, tmp_path: Path) -> None:
    path = _file(QUICK[name])
    robot = _load(path)
    built = built_code.Library(RobotCode(robot), tmp_path)
    check_agreement(built, from_urdf(path, robot, mimic=False), STATES, AGREE)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a compiler on a busy machine
@built_code.needs_compiler
@needs_examples
@pytest.mark.parametrize("name", SLOW)
def test_agrees_with_pinocchio_on_twenty_robots(name: str, tmp_path: Path) -> None:
    path = _file(SLOW[name])
    if not path.is_file():
        pytest.skip(f"{path.name} is not there")
    robot = _load(path)
    built = built_code.Library(RobotCode(robot, base=robot.nv < 20), tmp_path)
    check_agreement(built, from_urdf(path, robot, mimic=False), STATES, AGREE)


@built_code.needs_compiler
@pytest.mark.parametrize("seed", [2, 3])
def test_every_kind_of_joint(seed: int, tmp_path: Path) -> None:
    robot = random_robot(np.random.default_rng(seed))
    built = built_code.Library(RobotCode(robot, base=False), tmp_path, optimize="-O1")
    check_agreement(built, from_robot(robot), 50, 10.0 * AGREE)


@built_code.needs_compiler
@needs_examples
def test_floats(tmp_path: Path) -> None:
    path = _file(QUICK["ur5"])
    robot = _load(path)
    built = built_code.Library(RobotCode(robot, single=True), tmp_path)
    check_agreement(built, from_urdf(path, robot, mimic=False), 200, AGREE_FLOAT)


def _driven() -> list[th.Robot]:
    """An arm with every term of friction, and one whose motors drive several joints."""
    arm = th.load(robots.path("arm4"))
    four = np.arange(1.0, 5.0)
    drive = arm.drive.with_values(
        viscous=0.1 * four, coulomb=0.2 * four, offset=0.05 * four, armature=0.01 * four
    )
    friction = drive.with_extra_term(stribeck(np.array([0.1, 0.2, 0.0, 0.3])), 0.3)
    for shape in (by_load(), quadratic(), one_sided(), spring(), spring_sine(), spring_cosine()):
        friction = friction.with_extra_term(shape, 0.2)
    B = np.eye(4)
    B[2, 3] = 0.5
    coupled = arm.without_drive().with_actuation(B)
    values = coupled.drive.with_values(viscous=0.1 * four, coulomb=0.2 * four, armature=0.1 * four)
    dry = FrictionDirection(np.array([0.1, 0.0, 0.2, 0.0]), np.array([0.0, 0.1, 0.0, 0.0]))
    terms = values.with_terms(viscous=True, coulomb=True, offset=True, armature=True).with_dry(dry)
    return [replace(arm, drive=friction), replace(coupled, drive=terms)]


@built_code.needs_compiler
@pytest.mark.parametrize("case", [0, 1])
def test_friction_springs_and_rotors(case: int, tmp_path: Path) -> None:
    robot = _driven()[case]
    built = built_code.Library(RobotCode(robot), tmp_path)
    q, dq, ddq = _states(robot, 100)
    _compare(built("inverse_dynamics", q, dq, ddq), th.inverse_dynamics(robot, q, dq, ddq), AGREE)
    _compare(built("mass_matrix", q), th.mass_matrix(robot, q), AGREE)
    got = built("base_regressor", q, dq, ddq)
    _compare(
        got, np.array([base_regressor(robot, *s) for s in zip(q, dq, ddq, strict=True)]), AGREE
    )
    if case == 0:
        assert built.code.left_out[0].startswith("forward_dynamics: friction depends on the load")
    else:
        tau = th.inverse_dynamics(robot, q, dq, ddq)
        _compare(built("forward_dynamics", q, dq, tau), ddq, 1e-10)


@built_code.needs_compiler
def test_computed_torque_is_the_controllers(tmp_path: Path) -> None:
    arm = th.load(robots.path("arm4"))
    built = built_code.Library(RobotCode(arm, base=False), tmp_path)
    q, dq, ddq_d = _states(arm, 20)
    q_d, dq_d = q + 0.01, dq + 0.1
    kp, kd = np.full_like(q, 100.0), np.full_like(q, 20.0)
    got = built("computed_torque", q, dq, q_d, dq_d, ddq_d, kp, kd)
    for k in range(len(q)):
        controller = th.ComputedTorque(arm, kp=100.0, kd=20.0, limits=False, max_speed=1e3)
        want = controller(0.0, q[k], dq[k], (q_d[k], dq_d[k], ddq_d[k]))
        _compare(got[k], want, 1e-12)


@built_code.needs_compiler
def test_parameters_are_replaced_at_run_time(tmp_path: Path) -> None:
    arm = th.load(robots.path("arm4"))
    built = built_code.Library(RobotCode(arm, base=False), tmp_path)
    other = arm.with_parameters(1.3 * arm.theta)
    built.parameters = RobotCode(other, base=False).parameters
    q, dq, ddq = _states(arm, 10)
    _compare(built("inverse_dynamics", q, dq, ddq), th.inverse_dynamics(other, q, dq, ddq), AGREE)


@pytest.mark.parametrize("compiler", built_code.COMPILERS)
@pytest.mark.parametrize("single", [False, True], ids=["double", "float"])
def test_strict_compilers_and_sanitizers(compiler: str, single: bool, tmp_path: Path) -> None:
    code = RobotCode(_driven()[1], single=single)
    built_code.write(code, tmp_path)
    sources = (f"{code.prefix}.c", "self_test.c")
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    built_code.run(
        compiler, *built_code.STRICT, *checks, *sources, "-lm", "-o", "checked", cwd=tmp_path
    )
    assert "worst relative error" in built_code.run(tmp_path / "checked")


@pytest.mark.parametrize("compiler", built_code.COMPILERS)
def test_self_test_notices_a_wrong_value(compiler: str, tmp_path: Path) -> None:
    code = RobotCode(th.load(robots.path("arm4")))
    built_code.write(code, tmp_path)
    text = (tmp_path / "arm4.c").read_text()
    (tmp_path / "arm4.c").write_text(text.replace("3.65,", "3.66,", 1))
    built_code.run(compiler, "-std=c99", "arm4.c", "self_test.c", "-lm", "-o", "t", cwd=tmp_path)
    done = subprocess.run([tmp_path / "t"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "relative error" in done.stdout


ALLOWED = {"memcpy", "memset", "sin", "cos", "sincos", "tanh", "exp", "sqrt", "fabs"}


@pytest.mark.parametrize("compiler", built_code.COMPILERS)
def test_only_libm_is_needed(compiler: str, tmp_path: Path) -> None:
    code = RobotCode(_driven()[0])
    built_code.write(code, tmp_path)
    built_code.run(compiler, *built_code.STRICT, "-c", f"{code.prefix}.c", cwd=tmp_path)
    listed = built_code.run("nm", "--undefined-only", f"{code.prefix}.o", cwd=tmp_path)
    assert {line.split()[-1] for line in listed.splitlines()} <= ALLOWED
    data = built_code.run("nm", f"{code.prefix}.o", cwd=tmp_path)
    assert not re.search(r" [BbDdC] (?!\.)", data), "a variable that is not const"


CONTROLLER_STUB = """\
#pragma once
#include <initializer_list>
#include <string>
#include <vector>
namespace rclcpp { class Time {}; class Duration {}; }
namespace rclcpp_lifecycle { class State {}; }
namespace controller_interface {
enum class CallbackReturn { SUCCESS, FAILURE, ERROR };
enum class return_type { OK, ERROR };
enum class interface_configuration_type { ALL, INDIVIDUAL, NONE };
struct InterfaceConfiguration {
  interface_configuration_type type;
  std::vector<std::string> names;
};
struct Interface {
  double value;
  double get_value() const { return value; }
  void set_value(double v) { value = v; }
};
class ControllerInterface {
public:
  virtual ~ControllerInterface() = default;
  virtual CallbackReturn on_init() = 0;
  virtual InterfaceConfiguration command_interface_configuration() const = 0;
  virtual InterfaceConfiguration state_interface_configuration() const = 0;
  virtual CallbackReturn on_activate(const rclcpp_lifecycle::State &) { return CallbackReturn::SUCCESS; }
  virtual return_type update(const rclcpp::Time &, const rclcpp::Duration &) = 0;
  std::vector<Interface> command_interfaces_, state_interfaces_;
};
}
"""
CONTROLLER_MAIN = """\
#include <cmath>
#include <cstdio>
#include "computed_torque_controller.hpp"
int main() {
  arm4_control::ComputedTorqueController c;
  c.on_init();
  const auto states = c.state_interface_configuration().names;
  const auto commands = c.command_interface_configuration().names;
  if (states.size() != 8 || states[1] != "shoulder_pitch/velocity") return 1;
  if (commands.size() != 4 || commands[3] != "elbow/effort") return 2;
  c.state_interfaces_.resize(8);
  c.command_interfaces_.resize(4);
  for (int k = 0; k < 4; ++k) c.state_interfaces_[2 * k].value = 0.1 * (k + 1);
  c.on_activate(rclcpp_lifecycle::State());
  if (c.update(rclcpp::Time(), rclcpp::Duration()) != controller_interface::return_type::OK) return 3;
  for (auto & i : c.command_interfaces_) std::printf("%.17g ", i.get_value());
  c.state_interfaces_[0].value = NAN;
  return c.update(rclcpp::Time(), rclcpp::Duration()) != controller_interface::return_type::ERROR;
}
"""


@built_code.needs_compiler
def test_controller_example_holds_the_robot(tmp_path: Path) -> None:
    arm = th.load(robots.path("arm4"))
    built_code.write(RobotCode(arm), tmp_path)
    (tmp_path / "controller_interface").mkdir()
    (tmp_path / "controller_interface" / "controller_interface.hpp").write_text(CONTROLLER_STUB)
    (tmp_path / "main.cpp").write_text(CONTROLLER_MAIN)
    built_code.run("gcc", "-c", *built_code.STRICT, "arm4.c", cwd=tmp_path)
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
    built_code.run("g++", *strict, "-I.", "main.cpp", "arm4.o", "-o", "main", cwd=tmp_path)
    tau = np.array(built_code.run(tmp_path / "main").split(), dtype=float)
    _compare(tau, th.gravity(arm, np.array([0.1, 0.2, 0.3, 0.4])) + arm.drive.offset, 1e-12)


def test_what_c_cannot_express_is_refused() -> None:
    arm = th.load(robots.path("arm4")).without_drive()
    bent = arm.with_actuation(lambda q: np.broadcast_to(np.eye(4), (*q.shape[:-1], 4, 4)))
    with pytest.raises(UsageError, match="Python function of q, which C cannot express"):
        RobotCode(bent)
    assert UsageError.exit_code == 2


# -- robot.compiled() ------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THETAHAT_CODE_CACHE", str(tmp_path / "cache"))
    for name in [name for name in sys.modules if name.startswith("thetahat_compiled_")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "cache"


def _same_answers(robot: th.Robot, compiled: object) -> None:
    (q, *_), (dq, *_), (ddq, *_) = states = _states(robot, 3)
    for name, state in (
        ("inverse_dynamics", (q, dq, ddq)),
        ("gravity", (q,)),
        ("mass_matrix", (q,)),
        ("forward_dynamics", (q, dq, ddq)),
        ("regressor", (q, dq, ddq)),
        ("inverse_dynamics", states),
        ("regressor", tuple(s[0].tolist() for s in states)),
    ):
        want = getattr(th, name)(robot, *state)
        _compare(getattr(compiled, name)(*state), want, 1e-11)
        out = np.full_like(want, np.nan)
        assert getattr(compiled, name)(*state, out=out) is out
        _compare(out, want, 1e-11)


@built_code.needs_compiler
def test_compiled_gives_the_same_answers(cache: Path) -> None:
    robot = th.load(robots.path("arm4"))
    compiled = robot.compiled()
    assert compiled.native
    _same_answers(robot, compiled)
    q, dq, ddq = (s[0] for s in _states(robot, 1))
    inside = np.copy(q)
    want = th.inverse_dynamics(robot, q, dq, ddq)
    _compare(compiled.inverse_dynamics(inside, dq, ddq, out=inside), want, 1e-11)
    with pytest.raises(UsageError, match="finite"):
        compiled.inverse_dynamics(np.full(4, np.nan), dq, ddq)
    # other parameters need no compiler
    heavier = robot.with_parameters(1.2 * robot.theta)
    _same_answers(heavier, heavier.compiled())
    assert len(list(cache.glob("*.so"))) == 1


@pytest.mark.parametrize(
    ("compiler", "why"), [("nosuchcc", "is not there"), ("false", "'false' failed: exit code 1")]
)
def test_without_a_compiler_numba_stays(
    cache: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, why: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    robot = th.load(robots.path("arm4"))
    with pytest.warns(RobotWarning, match=f"{why}; robot.compiled.. of 'arm4' stays on Numba"):
        compiled = robot.compiled()
    assert not compiled.native
    assert compiled.note is not None
    _same_answers(robot, compiled)


@built_code.needs_compiler
def test_a_damaged_cache_is_built_again(cache: Path) -> None:
    robot = th.load(robots.path("arm4"))
    assert robot.compiled().native
    (file,) = cache.glob("*.so")
    for name in [name for name in sys.modules if name.startswith("thetahat_compiled_")]:
        del sys.modules[name]
    file.unlink()  # not written over: this process has it mapped
    file.write_bytes(b"not a library")
    compiled = robot.compiled()
    assert compiled.native
    _same_answers(robot, compiled)
