"""Base parameters: their number, map and names. Oracles: Pinocchio's regressor, published lists,
textbooks; and two ways that must agree.
"""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from data_paths import EXAMPLES, example_robot, needs_examples, shared_file, thinned

import thetahat as th
from oracles import pinocchio_bridge
from oracles.nullspace import parameter_nullspace
from oracles.random_trees import random_robot
from thetahat.errors import RobotWarning, UsageError
from thetahat.identification.identifiability.base_parameters import (
    ALONE,
    GROUP,
    NEVER,
    BaseParameters,
    base_parameters,
    random_states,
)
from thetahat.identification.identifiability.extended_precision import (
    _orthonormal,
    extended_regressor,
)
from thetahat.identification.identifiability.naming import short_labels
from thetahat.identification.parameter_columns import full_regressor
from thetahat.model.io.assemble import JointSpec, LinkSpec, assemble
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

pytestmark = pytest.mark.filterwarnings(
    f"ignore::{RobotWarning.__module__}.{RobotWarning.__name__}"
)

# relative error of Y·x = Y_base·(M·x); pivots below 1e-12 count as zero, and K has entries of order
# one
MAP = 1e-10
# singular values of a scaled regressor: identifiable directions are above 1e-5 here, rounding below
# 1e-13
GAP = 1e-9

# Files whose rounding (1.5708 for π/2) makes directions that an exact file would not have: named
# weak, tested apart.
ROUNDED = {"anymal-kinova", "borinot_flying_arm_2", "kinova", "so100", "so101"}
TOO_LARGE = {"tiago_dual"}  # 101 joints: in the speed test alone

FRICTION = {"viscous": True, "coulomb": True, "offset": True}


def example_files() -> list[Path]:
    """Every URDF of example-robot-data that is a robot of moving bodies."""
    empty = {
        "quadrotor_base",
        "iris_simple",
        "alex_psyonic_hands",
        "ur3",
    }  # no joints; refused by the reader
    return [
        path
        for path in sorted(EXAMPLES.rglob("*.urdf"))
        if path.stem not in ROUNDED | TOO_LARGE | empty
    ]


@cache
def load(path: Path, **options) -> Robot:
    return th.load(path, **options)


def rank(Y: np.ndarray) -> int:
    """Numerical rank of stacked rows by singular values, columns scaled to length one (zero ones
    left out).
    """
    Y = Y.reshape(-1, Y.shape[-1])
    Y = Y / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-300)
    norm = np.linalg.norm(Y, axis=0)
    values = np.linalg.svd(
        Y[:, norm > 1e-10 * np.max(norm)] / norm[norm > 1e-10 * np.max(norm)], compute_uv=False
    )
    return int(np.sum(values > GAP * values[0]))


def pinocchio_rank(robot: Robot, oracle: pinocchio_bridge.Oracle, seed: int = 1) -> int:
    samples = 12 + -(-2 * len(robot.theta) // robot.nv)
    return rank(oracle.regressor(*random_states(robot, np.random.default_rng(seed), samples)))


def check_map(robot: Robot, base: BaseParameters, tolerance: float = MAP) -> None:
    """Y·x = Y[:, independent]·(M·x) for any x, at states the map was not made from."""
    rng = np.random.default_rng(99)
    state = random_states(robot, rng, 8)
    needs_load = any(robot.drive.term(term).needs_load for term in robot.drive.identified)
    Y = full_regressor(robot, *state, load=rng.normal(size=(8, robot.nv)) if needs_load else None)
    x = rng.normal(size=base.columns)
    size = np.abs(Y) @ np.abs(x)
    assert (
        np.max(
            np.abs(Y @ x - Y[..., base.independent] @ base.of(x)) / np.maximum(size, 1e-300),
            initial=0.0,
        )
        < tolerance
    )
    assert np.array_equal(base.map[:, base.independent], np.eye(base.count))
    assert np.max(np.abs(base.map @ base.nullspace), initial=0.0) < 1e-12


# -- number: against Pinocchio, against the literature, and by two ways ----------------------------


@needs_examples
def test_there_are_thirty_robots() -> None:
    assert len(example_files()) >= 30


@pytest.mark.parametrize("path", thinned(example_files(), 3), ids=lambda path: path.stem)
def test_count_is_the_rank_of_pinocchios_regressor(path: Path) -> None:
    robot = load(path)
    base = base_parameters(robot, drive=False)
    assert base.count == pinocchio_rank(robot, pinocchio_bridge.from_urdf(path, robot, mimic=False))
    assert not np.any(base.weak)
    check_map(robot, base)
    if not robot.tree.has_mimic:
        null = parameter_nullspace(robot)
        assert null.identifiable == base.count
        assert (
            np.linalg.matrix_rank(base.map @ null.basis / np.linalg.norm(null.basis), tol=1e-9) == 0
        ), "the two nullspaces differ"


@pytest.mark.parametrize("name", ["solo12", "talos", "panda", "icub"])
def test_a_floating_base_shows_more(name: str) -> None:
    path = example_robot(name)
    robot = load(path, floating_base=True)
    base = base_parameters(robot)
    assert base.count == pinocchio_rank(
        robot, pinocchio_bridge.from_urdf(path, robot, floating_base=True, mimic=False)
    )
    assert base.count > base_parameters(load(path)).count
    check_map(robot, base)
    if not robot.tree.has_mimic:
        assert parameter_nullspace(robot).identifiable == base.count


@pytest.mark.parametrize("seed", range(24))
def test_random_trees_of_every_kind_of_joint(seed: int) -> None:
    robot = random_robot(seed, nodes=3 + seed % 6, mimic=seed % 3 == 0)
    if seed % 5 == 0:
        robot = robot.with_gravity((0.0, 0.0, 0.0))
    base = base_parameters(robot)
    assert base.count == pinocchio_rank(robot, pinocchio_bridge.from_robot(robot))
    check_map(robot, base)
    if not robot.tree.has_mimic:
        null = parameter_nullspace(robot)
        assert null.identifiable == base.count
        Y = th.regressor(robot, *random_states(robot, np.random.default_rng(seed), 5))
        assert np.max(np.abs(Y @ null.basis), initial=0.0) < 1e-10 * np.max(np.abs(Y), initial=1.0)


VALKYRIE = {
    "A_58dof_nomesh": 388,
    "A_44dof": 290,
    "A_32dof": 206,
    "right_arm4": 24,
    "left_arm4": 24,
    "right_leg4": 22,
    "left_leg4": 22,
}


@pytest.mark.parametrize(("name", "count"), VALKYRIE.items())
def test_valkyrie(name: str, count: int, record_property) -> None:
    robot = load(shared_file("robots", "valkyrie", f"derived_valkyrie_{name}.urdf"))
    start = time.perf_counter()
    base = base_parameters(robot)
    seconds = time.perf_counter() - start
    record_property("seconds", seconds)
    assert base.count == base.strong_count == count
    assert parameter_nullspace(robot).identifiable == count
    check_map(robot, base)
    assert seconds < 60.0, "hangs"


def test_a_panda_with_friction_has_64_of_91() -> None:
    robot = load(shared_file("logs", "panda", "panda_gaz2019_published.urdf")).with_drive(
        **FRICTION
    )
    base = robot.base_parameters
    assert (base.count, base.columns) == (64, 91)
    assert base_parameters(robot, drive=False).count == 43
    check_map(robot, base)


def published_rows(lines: list[str], names: tuple[str, ...]) -> np.ndarray:
    """Sums such as `Izz2 + 1.0*Ia2 + 0.050625*m3` as vectors over our columns."""
    word = {
        "mx": "mcx",
        "my": "mcy",
        "mz": "mcz",
        "Ia": "armature_joint",
        "fv": "viscous_joint",
        "fs": "coulomb_joint",
        "off": "offset_joint",
    }
    shaft = {"Iam": "armature_motor7", "fvm": "viscous_motor7", "fsm": "coulomb_motor7"}
    rows = np.zeros((len(lines), len(names)))
    for row, line in zip(rows, lines, strict=True):
        for sign, value, name, link in re.findall(
            r"([+-]?)\s*(?:([\d.]+)\*)?([A-Za-z]+)(\d)", line.split(",")[0]
        ):
            column = shaft.get(name) or f"{word.get(name, name)}_{link}"
            row[names.index(column)] += float(f"{sign}1") * float(value or 1.0)
            if column in ("offset_joint_5", "offset_joint_6"):
                row[names.index("offset_motor7")] = 1.0  # the shaft has none of its own there
    return rows


def test_the_tx40_with_its_wrist_has_the_published_parameters() -> None:
    """Published: 61 (60 in the file, whose list lacks Ia6). The robot file is rounded, so that one
    rotor more is told apart, weakly.
    """
    published = (
        shared_file("logs", "tx40", "published_TX40_bp_5.csv")
        .read_text(encoding="utf-8-sig")
        .strip()
        .splitlines()
    )
    wrist = np.hstack(
        [np.eye(6), np.array([[0, 0, 0, 0, 1, 1]]).T]
    )  # friction on every joint, and a shaft that turns with joints 5 and 6
    robot = (
        load(shared_file("logs", "tx40", "tx40_mdh_modified.urdf"))
        .with_actuation(wrist)
        .with_drive(**FRICTION, armature=True)
    )
    base = robot.base_parameters
    assert base.columns == 88
    assert base.strong_count == base.strong.count == 61
    rows = published_rows(published, base.column_names)
    outside = rows - np.linalg.lstsq(base.strong.map.T, rows.T, rcond=None)[0].T @ base.strong.map
    assert np.max(np.abs(outside)) < 1e-5, "a published parameter is no combination of ours"
    assert np.linalg.matrix_rank(rows) == len(rows) == 60
    ours = {tuple(np.round(row, 4)) for row in base.strong.map}
    assert sum(tuple(np.round(row, 4)) in ours for row in rows) == 60, (
        "the same representatives, too"
    )
    assert "offset_joint_5 + offset_motor7" in base.names
    assert (
        "Izz_1 + Iyy_2 + Iyy_3 + 0.07·mcz_3 + 0.0519·m_3 + 0.0519·m_4 + 0.0519·m_5 + 0.0519·m_6 +"
        " armature_joint_1" in base.names
    )
    check_map(robot, base)


ROUNDED_FILES = {
    "kr300": (("logs", "kr300", "kr300_from_dh.urdf"), {38, 39}, 36),
    "kinova": (("kinova_description", "robots", "kinova.urdf"), {36, 37}, 36),
}


@pytest.mark.parametrize("name", ROUNDED_FILES)
def test_what_hangs_on_the_rounding_of_a_file_is_named_weak(name: str) -> None:
    parts, counts, strong = ROUNDED_FILES[name]
    robot = load(shared_file(*parts) if parts[0] == "logs" else example_robot("kinova"))
    base = base_parameters(robot)
    assert base.count in counts
    assert (
        base.strong_count == base.strong.count == parameter_nullspace(robot).identifiable == strong
    )
    assert len(base.weak_names) == base.count - strong >= 1
    assert set(base.weak_names) <= set(base.names)
    assert np.all(base.strength[base.weak] < 1e-6)
    assert np.all(base.strength[~base.weak] > 1e-6)
    check_map(robot, base)
    check_map(robot, base.strong, tolerance=1e-6)
    assert "weak" in str(base)


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(EXAMPLES.rglob("*.urdf")) if path.stem in ROUNDED],
    ids=lambda path: path.stem,
)
def test_rounded_files_are_bracketed_by_the_other_way(path: Path) -> None:
    robot = load(path)
    base = base_parameters(robot)
    loose, tight = (
        parameter_nullspace(robot, tolerance=tolerance).identifiable for tolerance in (1e-4, 1e-13)
    )
    assert loose <= base.strong_count <= base.count <= tight
    check_map(robot, base)


@needs_examples
def test_a_hundred_joints_do_not_take_long(record_property) -> None:
    robot = load(next(EXAMPLES.rglob("tiago_dual.urdf")))
    start = time.perf_counter()
    base = base_parameters(robot)
    record_property("seconds", time.perf_counter() - start)
    assert (
        base.count == parameter_nullspace(robot).identifiable
        if not robot.tree.has_mimic
        else base.count > 0
    )
    assert time.perf_counter() - start < 60.0, "hangs"


# -- gravity, drive, mimic -------------------------------------------------------------------------


def chain(*joints: tuple[JointKind, str, tuple[float, float, float]], **options) -> Robot:
    """Links 1, 2, … with these joints: kind, axis (x, y or z) and place in the link before."""
    axes = dict(zip("xyz", np.eye(3), strict=True))
    links = [
        LinkSpec("base"),
        *(
            LinkSpec(str(k + 1), np.r_[0.1, 0, 0, 0, 0, 0.1, 0, 0, 0.1, 1.0])
            for k in range(len(joints))
        ),
    ]
    specs = [
        JointSpec(
            f"j{k + 1}",
            kind,
            links[k].name,
            links[k + 1].name,
            np.eye(3),
            np.array(place, dtype=float),
            axes[axis],
        )
        for k, (kind, axis, place) in enumerate(joints)
    ]
    return assemble("chain", links, specs, root="base", **options)


R, P = JointKind.REVOLUTE, JointKind.PRISMATIC
ARM = ((R, "z", (0, 0, 0)), (R, "z", (0.7, 0, 0)))

# Count of a single revolute body: Izz, and its first moment across the axis where gravity has a
# part across it.
GRAVITIES = {
    "along": ((0, 0, -9.81), 1),
    "across": ((0, -9.81, 0), 3),
    "aslant": ((3.0, 0, -9.0), 3),
    "none": ((0, 0, 0), 1),
}


@pytest.mark.parametrize("direction", GRAVITIES)
def test_gravity_along_the_first_axis_shows_nothing(direction: str) -> None:
    gravity, count = GRAVITIES[direction]
    robot = chain(ARM[0], gravity=gravity)
    base = base_parameters(robot)
    assert base.count == parameter_nullspace(robot).identifiable == count
    assert set(base.names) == {"Izz_1", "mcx_1", "mcy_1"} if count == 3 else {"Izz_1"}
    assert base_parameters(chain(*ARM).with_gravity(gravity)).count == pinocchio_rank(
        chain(*ARM, gravity=gravity), pinocchio_bridge.from_robot(chain(*ARM, gravity=gravity))
    )


def test_a_planar_arm_has_the_textbooks_parameters() -> None:
    """Two links, l = 0.7 m: link 2's mass shows as if it sat at its joint, on link 1, and nothing
    out of the plane shows.
    """
    across = base_parameters(chain(*ARM, gravity=(0, -9.81, 0)))
    assert set(across.names) == {
        "Izz_1 + 0.49·m_2",
        "mcx_1 + 0.7·m_2",
        "mcy_1",
        "Izz_2",
        "mcx_2",
        "mcy_2",
    }
    flat = base_parameters(chain(*ARM, gravity=(0, 0, -9.81)))
    assert set(flat.names) == {"Izz_1 + 0.49·m_2", "Izz_2", "mcx_2", "mcy_2"}
    kind = dict(zip(across.column_names, across.kinds, strict=True))
    assert kind["Izz_2"] == kind["mcy_1"] == ALONE
    assert kind["m_2"] == kind["Izz_1"] == kind["mcx_1"] == GROUP
    assert kind["Ixx_1"] == kind["m_1"] == kind["mcz_2"] == NEVER


def test_a_wrist_regroups_as_gautier_and_khalil_write() -> None:
    """[Gautier1990]: across a revolute joint Iyy goes to the link before and is subtracted from
    Ixx; m and m·cz go to the link before.
    """
    robot = chain((R, "z", (0, 0, 0)), (R, "x", (0, 0, 0.5)), (R, "z", (0, 0, 0.3)))
    names = set(base_parameters(robot).names)
    assert {"Izz_3", "Ixx_3 − Iyy_3", "Ixy_3", "Ixz_3", "Iyz_3", "mcx_3", "mcy_3"} <= names
    assert "Ixx_2 + Iyy_3 + 0.6·mcz_3 + 0.09·m_3" in names
    assert "mcz_2 + mcz_3 + 0.3·m_3" in names


def test_a_gantry_shows_masses_alone() -> None:
    robot = chain((P, "x", (0, 0, 0)), (P, "y", (0.1, 0, 0)), (P, "z", (0, 0.2, 0)))
    base = base_parameters(robot)
    assert set(base.names) == {"m_1", "m_2", "m_3"}
    assert base.count == parameter_nullspace(robot).identifiable == 3
    driven = robot.with_drive(offset=True, armature=True)
    names = driven.base_parameters.names
    # A rotor is a mass that gravity does not pull, so along z the offset tells it from one, up to
    # g.
    assert driven.base_parameters.count == 6
    assert any("armature_j3" in name and "m_3" in name for name in names)
    check_map(driven, driven.base_parameters)


def test_a_first_rotor_joins_the_first_inertia() -> None:
    robot = chain(*ARM, gravity=(0, -9.81, 0)).with_drive(armature=True, coulomb=True)
    names = set(robot.base_parameters.names)
    assert "Izz_1 + 0.49·m_2 + armature_j1" in names
    assert {"Izz_2", "armature_j2", "coulomb_j1", "coulomb_j2"} <= names
    assert base_parameters(robot, drive=False).columns == 20


def test_ball_and_planar_joints_show_what_pinocchio_says() -> None:
    ball, planar = JointKind.BALL, JointKind.PLANAR
    for joints in [
        ((ball, "z", (0, 0, 0)),),
        ((planar, "z", (0, 0, 0)),),
        ((planar, "y", (0, 0, 0)), (ball, "z", (0.2, 0, 0)), ARM[1]),
    ]:
        robot = chain(*joints)
        assert (
            base_parameters(robot).count
            == parameter_nullspace(robot).identifiable
            == pinocchio_rank(robot, pinocchio_bridge.from_robot(robot))
        )
    alone = base_parameters(chain((ball, "z", (0, 0, 0))))
    assert set(alone.names) == {
        "Ixx_1",
        "Ixy_1",
        "Ixz_1",
        "Iyy_1",
        "Iyz_1",
        "Izz_1",
        "mcx_1",
        "mcy_1",
        "mcz_1",
    }, "all but the mass"


# -- laws of the result ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["panda", "ur5", "talos", "baxter"])
def test_alone_group_and_never_mean_what_they_say(name: str) -> None:
    robot = load(example_robot(name)).with_drive(**FRICTION, armature=True)
    base = robot.base_parameters
    Y = full_regressor(robot, *random_states(robot, np.random.default_rng(4), 12)).reshape(
        -1, base.columns
    )
    null = base.nullspace
    projector, *_ = np.linalg.lstsq(base.map.T, np.eye(base.columns), rcond=None)
    in_row_space = np.linalg.norm(base.map.T @ projector - np.eye(base.columns), axis=0) < 1e-9
    for k, kind in enumerate(base.kinds):
        effect = np.max(np.abs(Y[:, k]))
        assert (kind == NEVER) == (effect < 1e-9), base.column_names[k]
        assert (kind == ALONE) == bool(in_row_space[k]), base.column_names[k]
        assert (kind == ALONE) == (not np.any(null[k])), base.column_names[k]
    assert {ALONE, GROUP, NEVER} == set(base.kinds)


def test_the_columns_kept_are_well_apart() -> None:
    for name in ("panda", "talos", "g1", "allegro"):
        base = base_parameters(load(example_robot(name)))
        assert np.min(base.strength) > 1e-3
        assert np.max(np.abs(base.map)) < 100.0


def test_values_do_not_matter_and_are_not_computed_twice() -> None:
    robot = load(example_robot("panda"))
    base = robot.base_parameters
    assert robot.with_parameters(2.0 * robot.theta).base_parameters is base
    assert base_parameters(robot.with_gravity((0.0, 9.81, 0.0))) is not base
    assert base_parameters(robot.with_drive(viscous=True)) is not base
    for array in (base.map, base.independent, base.weak, base.strength, base.scale, base.order):
        assert not array.flags.writeable
    x = np.random.default_rng(0).normal(size=(3, base.columns))
    assert np.allclose(base.of(x), x @ base.map.T)
    with pytest.raises(UsageError, match="last axis must be 90"):
        base.of(np.zeros(89))


def test_a_robot_without_joints_has_none() -> None:
    base = base_parameters(assemble("rock", [LinkSpec("base")], [], root="base"))
    assert base.count == base.columns == 0
    assert base.names == ()


def test_mimic_joints_are_beyond_the_recursion() -> None:
    robot = load(example_robot("panda"))
    assert robot.tree.has_mimic
    with pytest.raises(UsageError, match="mimic"):
        parameter_nullspace(robot)


@pytest.mark.parametrize("seed", range(6))
def test_the_extended_regressor_is_the_regressor(seed: int) -> None:
    robot = random_robot(seed, nodes=9)
    state = random_states(robot, np.random.default_rng(seed), 5)
    Y = th.regressor(robot, *state)
    assert np.max(np.abs(extended_regressor(robot, *state) - Y)) < 1e-12 * np.max(np.abs(Y))


@pytest.mark.skipif(
    np.finfo(np.longdouble).eps >= np.finfo(float).eps,
    reason="long double is double on this machine",
)
def test_the_extended_regressor_is_extended() -> None:
    """m_2 = 0.25·Izz_1 + 0.5·mcx_1 holds to double's rounding in double, and to less than a
    hundredth of that here.
    """
    robot = chain((R, "z", (0, 0, 0)), (R, "z", (0.5, 0, 0)), gravity=(0, -9.81, 0))
    state = random_states(robot, np.random.default_rng(0), 6)
    double, extended = (
        Y[..., 19] - 0.25 * Y[..., 8] - 0.5 * Y[..., 7]
        for Y in (th.regressor(robot, *state), extended_regressor(robot, *state))
    )
    assert 0.0 < np.max(np.abs(extended)) < 0.01 * np.max(np.abs(double))
    turn = _orthonormal(
        np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0].astype(np.longdouble)
    )
    assert np.max(np.abs(turn.T @ turn - np.eye(3))) < 1e-18, (
        "geometry that is rigid to double only would part equal columns"
    )


def test_labels_leave_out_what_all_share() -> None:
    assert short_labels(["panda_link1", "panda_link2"]) == ("link1", "link2")
    assert short_labels(["a_b_1", "a_b_2"]) == ("1", "2")
    assert short_labels(["shoulder", "elbow"]) == ("shoulder", "elbow")
    assert short_labels(["left_arm", "left_arm_tip"]) == ("arm", "arm_tip")
    assert short_labels(["only_one"]) == ("only_one",)
