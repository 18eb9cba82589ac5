"""The robots that ship with the package: solid, strong enough to hold themselves up, and the same
to other tools.
"""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from thetahat import robots
from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.model.io.load import load

DIGITS = 1e-8  # the files carry ten significant digits
ROUNDING = 1e-13
HEADROOM = (
    1.3  # efforts exceed the torque that holds the arm in its worst posture by at least this factor
)


def solid(shape: ElementTree.Element, mass: float) -> np.ndarray:
    """Principal moments of a uniform solid about its centre, from the integral of r² over it."""
    match shape.tag:
        case "box":
            x, y, z = (float(value) ** 2 / 12 for value in shape.attrib["size"].split())
            second = np.array([x, y, z])
        case "cylinder":
            r = float(shape.attrib["radius"])
            second = np.array([r**2 / 4, r**2 / 4, float(shape.attrib["length"]) ** 2 / 12])
        case "sphere":
            second = np.full(3, float(shape.attrib["radius"]) ** 2 / 5)
    return mass * (second.sum() - second)


def test_names_and_paths() -> None:
    assert {"double_pendulum", "arm4", "arm7"} <= set(robots.names())
    assert all(robots.path(name).is_file() for name in robots.names())
    with pytest.raises(UsageError, match=r"'arm5' does not ship with thetahat; robots: arm4, arm7"):
        robots.path("arm5")


@pytest.mark.parametrize("name", robots.names())
def test_inertia_is_that_of_the_solid_shown(name: str) -> None:
    for link in ElementTree.parse(robots.path(name)).getroot().iter("link"):
        inertial, visual = link.find("inertial"), link.find("visual")
        assert inertial.find("origin").attrib == visual.find("origin").attrib
        inertia = inertial.find("inertia").attrib
        assert all(float(inertia[key]) == 0 for key in ("ixy", "ixz", "iyz"))
        expected = solid(visual.find("geometry")[0], float(inertial.find("mass").attrib["value"]))
        np.testing.assert_allclose(
            [float(inertia[key]) for key in ("ixx", "iyy", "izz")], expected, rtol=DIGITS
        )


@pytest.mark.parametrize("name", robots.names())
@pytest.mark.filterwarnings("error")
def test_loads_without_a_warning_and_is_physical(name: str) -> None:
    robot = load(robots.path(name))
    assert robot.name == name
    assert all(robot.consistency)
    assert all(parameters.check(link.theta) for link in robot.links)
    for node in robot.tree.nodes:
        assert node.joint.damping > 0
        assert node.joint.friction > 0
        assert 0 < node.limits.velocity < np.inf


@pytest.mark.parametrize("name", robots.names())
def test_pinocchio_reads_the_same_robot_and_it_holds_itself_up(name: str) -> None:
    pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    model = pinocchio.buildModelFromUrdf(str(robots.path(name)))
    robot, data = load(robots.path(name)), model.createData()
    assert set(robot.joint_names) == set(model.names) - {"universe"}
    order = [
        model.getJointId(name) for name in robot.joint_names
    ]  # theirs is alphabetical where a tree branches
    theirs = np.concatenate([model.inertias[k].toDynamicParameters() for k in order])
    np.testing.assert_allclose(
        robot.theta, parameters.from_pinocchio(theirs), rtol=0, atol=ROUNDING * np.abs(theirs).max()
    )
    worst = np.zeros(model.nv)
    pinocchio.seed(0)
    for _ in range(500):
        q = pinocchio.randomConfiguration(model)
        worst = np.maximum(worst, np.abs(pinocchio.computeGeneralizedGravity(model, data, q)))
    assert np.all(
        HEADROOM * worst[[model.joints[k].idx_v for k in order]]
        < [node.limits.effort for node in robot.tree.nodes]
    )


@pytest.mark.parametrize(
    ("name", "joints", "mass", "base"),
    [("valkyrie", 44, 126.20, 290), ("valkyrie_leg", 4, 24.86, 22), ("valkyrie_arm", 4, 15.04, 24)],
)
def test_valkyries_are_as_published(name: str, joints: int, mass: float, base: int) -> None:
    """Degrees of freedom, moving mass and identifiable parameters of NASA's own model."""
    robot = load(robots.path(name))
    assert (robot.nv, len(robot.without_drive().base_parameters)) == (joints, base)
    assert robot.mass == pytest.approx(mass, abs=0.02)


@pytest.mark.parametrize("name", robots.names())
def test_mujoco_reads_the_same_masses(name: str) -> None:
    mujoco = pytest.importorskip("mujoco", reason="MuJoCo is the oracle (pip install mujoco)")
    model = mujoco.MjModel.from_xml_path(str(robots.path(name)))
    robot = load(robots.path(name))
    theirs = {model.body(i).name: model.body_mass[i] for i in range(1, model.nbody)}
    for i, body in enumerate(robot.body_names):
        assert theirs[body] == pytest.approx(robot.theta[10 * i + parameters.M], rel=ROUNDING)
