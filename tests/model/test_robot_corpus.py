"""Every public URDF at hand loads as Pinocchio loads it, or is refused in one sentence. No
traceback, no hang.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_paths import NO_EXAMPLES, NO_SHARED, corpus

from thetahat.errors import RobotWarning, ThetahatError
from thetahat.model import parameters
from thetahat.model.io.load import load
from thetahat.model.robot import Robot
from thetahat.model.unit_checks import implausible

pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")

LONGEST = 5.0  # [s] per file
AGREEMENT = 1e-12  # relative to the largest number of the body: merged links, a few roundings each

FILES = corpus("*.urdf")
HAVE = [name.split("/")[0] for name, _ in FILES]

# Files that Pinocchio reads and this project refuses, on purpose. Shared-data paths are below
# ../shared/data.
REFUSED_BY_POLICY = {
    "models/bullet3/data/Base_1.urdf": (
        "lower=1 is above upper=0"
    ),  # swapped limits; Bullet alone takes them for "free"
    "models/bullet3/data/Base_2.urdf": "lower=1 is above upper=0",
    "models/urdf_files_dataset/urdf_files/oems/pioneer_adept_mobile_robots/description/urdf/pioneer-lx-devil.urdf": (
        "lower=2.775 is above"
    ),
    "models/krang/09-URDF/scenes/KrangBlocks.urdf": (
        "<inertia> is missing"
    ),  # Pinocchio drops the link's mass in silence
    "models/krang/09-URDF/scenes/KrangBlocksOld.urdf": "<inertia> is missing",
}

# Files that this project reads and Pinocchio refuses.
READ_BY_US_ALONE = {
    "models/bullet3/data/prismatic.urdf": "a limit without effort",
    "models/bullet3/data/racecar/racecar_differential.urdf": "a material defined twice",
    "models/urdf_files_dataset/urdf_files/drake/atlas/urdf/robotiq_tendons.urdf": (
        "a limit without effort"
    ),
}

NOT_IN_SI = {"models/krang/09-URDF/scenes/testObject.urdf"}  # a Kinect of 1,087 kg

needs_corpus = pytest.mark.skipif(not FILES, reason=f"{NO_SHARED}; {NO_EXAMPLES}")
every_file = pytest.mark.parametrize(("name", "path"), FILES, ids=[name for name, _ in FILES])


def attempt(path: Path) -> tuple[Robot | None, str]:
    """(robot, "") or (None, the refusal); anything else than a robot or our own error fails the
    test.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        try:
            return load(path), ""
        except ThetahatError as error:
            return None, str(error)


@needs_corpus
@every_file
def test_loads_as_pinocchio_does_or_is_refused(name: str, path: Path) -> None:
    start = time.perf_counter()
    robot, refusal = attempt(path)
    assert time.perf_counter() - start < LONGEST
    try:
        model = pinocchio.buildModelFromUrdf(str(path))
    except Exception:  # whatever type Boost makes of it
        model = None

    if robot is None:
        assert path.name in refusal
        assert refusal.isprintable(), "one line"
        assert ";" in refusal, "what is wrong; what to do"
        assert (name in REFUSED_BY_POLICY) == (model is not None), refusal
        assert REFUSED_BY_POLICY.get(name, "") in refusal
        return
    assert name not in REFUSED_BY_POLICY
    assert np.all(np.isfinite(robot.theta))
    assert (model is None) == (name in READ_BY_US_ALONE)
    if model is not None:
        compare(robot, model)


def compare(robot: Robot, model: object) -> None:
    """The same joints under the same parents in the same places, each carrying the same ten
    numbers.
    """
    tree = robot.tree
    assert set(tree.index_of) == set(list(model.names)[1:])
    for body, at in enumerate(tree.bodies):
        node = tree.nodes[at]
        index = model.getJointId(node.name)
        theta, placement = robot.theta[10 * body : 10 * body + 10], model.jointPlacements[index]
        expected = parameters.from_pinocchio(model.inertias[index].toDynamicParameters())
        np.testing.assert_allclose(
            theta,
            expected,
            rtol=0,
            atol=AGREEMENT * max(1e-3, np.max(np.abs(expected))),
            err_msg=node.name,
        )
        np.testing.assert_allclose(
            node.rotation, placement.rotation, atol=AGREEMENT, err_msg=node.name
        )
        np.testing.assert_allclose(
            node.translation, placement.translation, atol=AGREEMENT, err_msg=node.name
        )
        assert model.names[model.parents[index]] == (
            "universe" if node.parent < 0 else tree.nodes[node.parent].name
        )


@needs_corpus
def test_ordinary_robots_look_like_si_units() -> None:
    """The plausibility rules stay silent on every robot but the one that deserves them."""
    suspicious = {
        name
        for name, path in FILES
        if (robot := attempt(path)[0]) is not None and implausible(robot)
    }
    assert suspicious == NOT_IN_SI & {name for name, _ in FILES}


@pytest.mark.skipif("logs" not in HAVE, reason=NO_SHARED)
@pytest.mark.parametrize(
    "name",
    [
        "panda/panda_nomesh_from_example_robot_data.urdf",
        "ur10/ur10_nomesh.urdf",
        "tx40/tx40_mdh_modified.urdf",
    ],
)
def test_grams_would_be_noticed(name: str) -> None:
    """The rules are not merely silent: each arm on which a log was recorded is noticed when its
    file is in grams.
    """
    robot = attempt(dict(FILES)[f"logs/{name}"])[0]
    assert not implausible(robot)
    assert implausible(
        replace(
            robot, links=tuple(replace(link, theta=1_000.0 * link.theta) for link in robot.links)
        )
    )


@pytest.mark.skipif(len(set(HAVE)) < 4, reason=f"{NO_SHARED}, or {NO_EXAMPLES}")
def test_the_lists_of_exceptions_are_small_and_current() -> None:
    """Each listed file exists, and few files of a corpus of hundreds are on a list."""
    names = {name for name, _ in FILES}
    assert set(REFUSED_BY_POLICY) | set(READ_BY_US_ALONE) | NOT_IN_SI <= names
    assert len(REFUSED_BY_POLICY) <= 0.03 * len(names)
