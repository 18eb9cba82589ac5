"""Agreement with engines nobody here wrote: Pinocchio on URDF robots, MuJoCo on MJCF robots, 1,000
random states each.

Everything is judged joint by joint, at 1e-12 of Σ_k |Y_jk θ_k|: the size of what is summed to the
torque of joint j.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from data_paths import EXAMPLE_ROBOTS, example_robot, shared_file

import thetahat as th
from oracles import mujoco_bridge, pinocchio_bridge
from thetahat import robots as shipped
from thetahat.errors import RobotWarning
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

STATES = 1_000
# of Σ_k |Y_jk θ_k|, as asked for; what is seen is below 7e-13, and below 1e-13 on most robots
TOLERANCE = 1e-12
MASS_ERROR = 1e-9  # relative, on the heaviest body: must be seen
# a body is felt where its mass makes this share of a joint's Σ_k |Y_jk θ_k|: one part in 1e9 of it
# is 50 × the tolerance
FELT = 0.05
SKIPPED = 6  # at most so many heavier ones are not felt: bases of fingers, shoulders of two arms
CHUNK = 100  # states per regressor comparison: 64 × 580 numbers each

VALKYRIE = {
    "valkyrie44": "(ships with the package)",
    "valkyrie58": "derived_valkyrie_A_58dof_nomesh.urdf",
}
FLOATING = ("talos", "talos_full", "icub", "solo12", "anymal", "g1", "valkyrie44")
URDF_CASES = [(name, False) for name in (*EXAMPLE_ROBOTS, *VALKYRIE)] + [
    (name, True) for name in FLOATING
]

MENAGERIE = "models/mjcf_stripped/mujoco_menagerie"
MJCF_CASES = {  # what is special about them
    "digit": "models/mjcf_stripped/RAPTOR/Robots/digit-v3/digit-v3.xml",  # free and ball joints
    "cassie": f"{MENAGERIE}/agility_cassie/cassie.xml",  # free and ball joints, `ref`
    "dog": (
        "models/mjcf_stripped/dm_control/dm_control/locomotion/walkers/assets/dog_v2/dog.xml"
    ),  # free, three joints on one body
    "cmu_humanoid": (
        "models/dm_control/dm_control/locomotion/walkers/assets/humanoid_CMU_V2019.xml"
    ),  # 28 bodies with several joints
    "human": (
        f"{MENAGERIE}/ms_human_700/MS-Human-700-Locomotion.xml"
    ),  # slides and hinges on one body
    "pusher": "models/bullet3/data/mjcf/pusher.xml",  # slides, inertia from geoms, no gravity
    "panda": f"{MENAGERIE}/franka_emika_panda/panda.xml",  # slides
    "aloha": f"{MENAGERIE}/aloha/aloha.xml",  # two arms, slides
    "shadow_hand": f"{MENAGERIE}/shadow_hand/right_hand.xml",  # small bodies
    "apollo": f"{MENAGERIE}/apptronik_apollo/apptronik_apollo.xml",  # free
    "go2": f"{MENAGERIE}/unitree_go2/go2.xml",  # free
    "ur5e": f"{MENAGERIE}/universal_robots_ur5e/ur5e.xml",
}


def load(path: Path, **options: bool) -> Robot:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RobotWarning
        )  # some of these robots have unphysical links: the engines do not mind
        return th.load(path, **options)


def random_states(robot: Robot, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions within the limits, or ±π; several rad/s and rad/s²."""
    rng = np.random.default_rng(seed)
    return (
        th.random_configuration(robot, rng, STATES),
        3.0 * rng.normal(size=(STATES, robot.nv)),
        6.0 * rng.normal(size=(STATES, robot.nv)),
    )


def worst(error: np.ndarray, size: np.ndarray) -> float:
    """The largest |error|/size; where nothing is summed, nothing may differ."""
    error = np.abs(error)
    assert np.all(np.isfinite(error))
    assert not np.any(error[size == 0.0]), "a torque where no parameter makes any"
    return float(np.max(error[size > 0.0] / size[size > 0.0], initial=0.0))


def heavier(robot: Robot, Y: np.ndarray) -> Robot:
    """The robot with one body's mass wrong by one part in 1e9, its centre of mass and Ī_C as they
    are.

    The body is the heaviest one that some joint feels, in the states of the regressor Y: what turns
    about its own centre of mass alone (the first link of most arms) makes no torque whatever its
    mass, and no comparison of torques could notice it.
    """
    theta = robot.theta.reshape(-1, 10)
    mass, com, _ = parameters.to_mass_com_inertia(theta)
    change = parameters.from_mass_com_inertia(
        mass, com, np.zeros((len(mass), 3, 3))
    )  # of θ when the mass doubles
    made = np.abs(np.einsum("sjbk,bk->sjb", Y.reshape(*Y.shape[:2], -1, 10), change))
    felt = np.any(
        made > FELT * np.sum(np.abs(Y * robot.theta), axis=-1, keepdims=True), axis=(0, 1)
    )
    heaviest = int(np.argmax(np.where(felt, mass, 0.0)))
    assert np.sum(mass > mass[heaviest]) <= SKIPPED, "most of the heavy bodies must be felt"
    changed = theta.copy()
    changed[heaviest] += MASS_ERROR * change[heaviest]
    return robot.with_parameters(changed.ravel())


# -- Pinocchio -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """A robot, Pinocchio's model of the same file, and states."""

    path: Path
    floating: bool
    robot: Robot
    states: tuple[np.ndarray, np.ndarray, np.ndarray]

    @cached_property
    def oracle(self) -> pinocchio_bridge.Oracle:
        return pinocchio_bridge.from_urdf(
            self.path, self.robot, floating_base=self.floating, mimic=False
        )

    def chunks(self) -> Iterator[tuple[np.ndarray, ...]]:
        return zip(*(np.split(x, STATES // CHUNK) for x in self.states), strict=True)

    @cached_property
    def size(self) -> np.ndarray:
        """Σ_k |Y_jk θ_k|, (states, nv), by Pinocchio's regressor."""
        return np.concatenate(
            [
                np.sum(np.abs(self.oracle.regressor(*state) * self.robot.theta), axis=-1)
                for state in self.chunks()
            ]
        )

    @cached_property
    def torque(self) -> np.ndarray:
        return self.oracle.inverse_dynamics(*self.states)


@pytest.fixture(
    scope="module",
    params=URDF_CASES,
    ids=[f"{name}{'-floating' if floating else ''}" for name, floating in URDF_CASES],
)
def case(request) -> Case:
    name, floating = request.param
    if name in EXAMPLE_ROBOTS:
        path = example_robot(name)
    elif name == "valkyrie44":
        path = shipped.path("valkyrie")
    else:
        path = shared_file("robots", "valkyrie", VALKYRIE[name])
    robot = load(path, floating_base=floating)
    return Case(path, floating, robot, random_states(robot, seed=1))


def test_enough_robots() -> None:
    """Twelve robots of example-robot-data, the five that were named, floating bases, Valkyrie
    twice; six of MJCF, all its joints.
    """
    assert len(EXAMPLE_ROBOTS) >= 12
    assert {"panda", "ur5", "talos", "icub", "solo12"} <= set(EXAMPLE_ROBOTS)
    assert len(FLOATING) >= 2
    assert len(VALKYRIE) == 2
    assert len(MJCF_CASES) >= 6


def test_inverse_dynamics(case: Case) -> None:
    got = th.inverse_dynamics(case.robot, *case.states, rigid=True)
    assert worst(got - case.torque, case.size) < TOLERANCE


def test_gravity(case: Case) -> None:
    """On the scale of the moving robot: at rest, all terms of an upright joint are zero, and its
    rounding would have no scale.
    """
    q = case.states[0]
    assert worst(th.gravity(case.robot, q) - case.oracle.gravity(q), case.size) < TOLERANCE


def test_mass_matrix(case: Case) -> None:
    """Entry by entry, at 1e-12 of √(D_jj D_kk), the largest that an entry of a positive definite
    matrix can be.

    Σ_k |Y_jk θ_k| at unit accelerations would be no scale here: where an entry is zero by symmetry,
    all its terms are.
    """
    q = case.states[0]
    expected = case.oracle.mass_matrix(q)
    length = np.sqrt(np.einsum("sjj->sj", expected))
    assert (
        worst(
            th.mass_matrix(case.robot, q, rigid=True) - expected,
            length[:, :, None] * length[:, None, :],
        )
        < TOLERANCE
    )


def test_regressor(case: Case) -> None:
    """Σ_k |ΔY_jk θ_k| against Σ_k |Y_jk θ_k|; and every entry, also where θ_k is zero, against the
    largest of its row.
    """
    theta = case.robot.theta
    for state in case.chunks():
        got, expected = th.regressor(case.robot, *state), case.oracle.regressor(*state)
        size = np.sum(np.abs(expected * theta), axis=-1)
        assert worst(np.sum(np.abs((got - expected) * theta), axis=-1), size) < TOLERANCE
        assert (
            worst(np.max(np.abs(got - expected), axis=-1), np.max(np.abs(expected), axis=-1))
            < TOLERANCE
        )


def test_a_seeded_mass_error_is_noticed(case: Case) -> None:
    """The comparison above is able to fail."""
    wrong = heavier(case.robot, case.oracle.regressor(*next(case.chunks())))
    got = th.inverse_dynamics(wrong, *case.states, rigid=True)
    assert worst(got - case.torque, case.size) > TOLERANCE


@pytest.mark.parametrize("name", ["panda", "baxter"])
def test_mimic_joints_as_pinocchio_has_them(name: str) -> None:
    """Above, followers move by themselves in Pinocchio and are projected; here its own mimic joints
    do it (no regressor for them).
    """
    path = example_robot(name)
    robot = load(path)
    assert robot.tree.has_mimic
    oracle = pinocchio_bridge.from_urdf(path, robot, mimic=True)
    assert oracle.model.nv == robot.nv
    states = random_states(robot, seed=2)
    size = np.sum(np.abs(th.regressor(robot, *states) * robot.theta), axis=-1)
    assert (
        worst(
            th.inverse_dynamics(robot, *states, rigid=True) - oracle.inverse_dynamics(*states), size
        )
        < TOLERANCE
    )
    expected = oracle.mass_matrix(states[0])
    length = np.sqrt(np.einsum("sjj->sj", expected))
    assert (
        worst(
            th.mass_matrix(robot, states[0], rigid=True) - expected,
            length[:, :, None] * length[:, None, :],
        )
        < TOLERANCE
    )


# -- MuJoCo ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MjcfCase:
    """A robot with its damping and rotor inertia, states, MuJoCo's torques and the size of what is
    summed to them.
    """

    robot: Robot
    states: tuple[np.ndarray, np.ndarray, np.ndarray]
    torque: np.ndarray
    size: np.ndarray


@pytest.fixture(scope="module", params=MJCF_CASES, ids=list(MJCF_CASES))
def mjcf_case(request) -> MjcfCase:
    path = shared_file(*MJCF_CASES[request.param].split("/"))
    robot = mujoco_bridge.comparable(load(path))
    q, dq, ddq = random_states(robot, seed=3)
    parts = zip(*(np.split(x, STATES // CHUNK) for x in (q, dq, ddq)), strict=True)
    size = np.concatenate(
        [np.sum(np.abs(th.regressor(robot, *part) * robot.theta), axis=-1) for part in parts]
    )
    size += np.abs(robot.drive.viscous * dq) + np.abs(
        robot.drive.armature * ddq
    )  # the columns of the drive
    return MjcfCase(
        robot, (q, dq, ddq), mujoco_bridge.from_mjcf(path, robot).inverse_dynamics(q, dq, ddq), size
    )


def test_inverse_dynamics_against_mujoco(mjcf_case: MjcfCase) -> None:
    """Rigid bodies, damping and rotor inertia together."""
    got = th.inverse_dynamics(mjcf_case.robot, *mjcf_case.states)
    assert worst(got - mjcf_case.torque, mjcf_case.size) < TOLERANCE


def test_a_seeded_mass_error_is_noticed_by_mujoco(mjcf_case: MjcfCase) -> None:
    wrong = heavier(
        mjcf_case.robot, th.regressor(mjcf_case.robot, *(x[:CHUNK] for x in mjcf_case.states))
    )
    got = th.inverse_dynamics(wrong, *mjcf_case.states)
    assert worst(got - mjcf_case.torque, mjcf_case.size) > TOLERANCE


def test_all_joints_of_mjcf_are_there() -> None:
    robots = [
        load(shared_file(*MJCF_CASES[name].split("/")))
        for name in ("digit", "cmu_humanoid", "human")
    ]
    nodes = [node for robot in robots for node in robot.tree.nodes]
    assert {node.kind for node in nodes} == set(JointKind) - {JointKind.PLANAR}
    assert any(node.body is None for node in nodes), "placeholders between the joints of one body"
