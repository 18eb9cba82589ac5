"""Distances of links and floor: those of other programs; and what is watched is said."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest
from data_paths import example_robot, needs_examples
from excite_cases import arm, shipped
from scipy.optimize import nnls
from scipy.spatial.transform import Rotation

import thetahat as th
from thetahat import robots
from thetahat.errors import NotIdentifiable, RefusedForSafety, UsageError
from thetahat.excite.collision_model import Hulls, hull_distances
from thetahat.excite.collision_pairs import collision_model
from thetahat.excite.design import design
from thetahat.excite.motion_limits import motion_limits
from thetahat.model.io.collision_geometry import collision_geometry
from thetahat.model.lock_joints import lock

EXACT = 1e-7  # [m] of a search that stops at 1e-10 of the square


def two_hulls(a: np.ndarray, b: np.ndarray) -> Hulls:
    points = np.vstack([a, b])
    balls = np.zeros((2, 4))
    for k, own in enumerate((a, b)):
        balls[k, :3] = own.mean(axis=0)
        balls[k, 3] = np.max(np.linalg.norm(own - own.mean(axis=0), axis=1))
    first = np.array([0, len(a), len(points)])
    return Hulls(points, first, np.array([0, 1]), np.zeros(2), balls)


def distance_by_least_squares(a: np.ndarray, b: np.ndarray) -> float:
    """min ‖aᵀλ − bᵀμ‖ with λ, μ ≥ 0 of sum one, which a heavy row each enforces: SciPy's NNLS."""
    heavy = 1e4
    rows = np.zeros((5, len(a) + len(b)))
    rows[:3], rows[3, : len(a)], rows[4, len(a) :] = np.hstack([a.T, -b.T]), heavy, heavy
    shares, _ = nnls(rows, np.array([0.0, 0.0, 0.0, heavy, heavy]))
    return float(np.linalg.norm(rows[:3] @ shares))


def test_distances_of_hulls_are_those_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    touching = 0
    for _ in range(300):
        clouds = [rng.normal(size=(rng.integers(1, 30), 3)) * 0.1 for _ in range(2)]
        turn = Rotation.from_quat(rng.normal(size=4)).as_matrix()
        at = rng.normal(size=3) * 0.25
        R, p = np.stack([np.eye(3), turn])[None], np.stack([np.zeros(3), at])[None]
        found, near = hull_distances(
            two_hulls(*clouds), R, p, np.array([[0, 1]]), np.array([np.inf])
        )
        expected = distance_by_least_squares(clouds[0], clouds[1] @ turn.T + at)
        assert found[0, 0] == pytest.approx(expected, abs=1e-6)
        touching += found[0, 0] == 0.0
        if found[0, 0] > 0.0:
            assert np.linalg.norm(near[0, 0, 0] - near[0, 0, 1]) == pytest.approx(found[0, 0])
    assert 20 < touching < 280


def test_capsules_and_boxes_of_mjcf_are_as_far_apart_as_in_mujoco(tmp_path: Path) -> None:
    """Primitives of every kind; round ones are held from outside, by a few per cent."""
    path = tmp_path / "shapes.xml"
    path.write_text("""<mujoco><compiler angle="radian"/><worldbody>
      <geom type="box" size=".1 .2 .05" pos="0 0 -.3"/>
      <body name="one" pos="0 0 .2"><joint name="a" type="hinge" axis="0 1 0" range="-2 2"/>
        <geom type="capsule" size=".05 .1" pos=".1 0 .1"/>
        <body name="two" pos=".3 0 .2"><joint name="b" type="hinge" axis="1 0 0" range="-2 2"/>
          <geom type="cylinder" size=".04 .1"/>
          <body name="three" pos=".3 0 0"><joint name="c" type="hinge" axis="0 1 0" range="-2 2"/>
            <geom type="ellipsoid" size=".05 .08 .1"/>
            <geom type="sphere" size=".2" pos="0 0 2" contype="0" conaffinity="0"/>
          </body></body></body></worldbody></mujoco>""")
    robot = th.load(path)
    pieces = collision_geometry(robot).pieces
    assert {name: len(own) for name, own in pieces.items()} == {
        **{"world": 1, "one": 1, "two": 1, "three": 1}  # without what only shows
    }
    model = collision_model(robot, np.full(3, -2.0), np.full(3, 2.0), floor=None)
    assert [model.name(k) for k in range(len(model.pairs))] == [
        "one and three",
        "two and the base",
        "three and the base",
    ]
    simulated = mujoco.MjModel.from_xml_path(str(path))
    data, q = mujoco.MjData(simulated), np.random.default_rng(0).uniform(-2, 2, (200, 3))
    R, p = model.frames(robot, q)
    core, _ = hull_distances(model.hulls, R, p, model.pairs, np.full(3, np.inf))
    found = core - model.hulls.radius[model.pairs].sum(axis=1)
    geoms = [(1, 3), (0, 2), (0, 3)]
    for row, x in zip(found, q, strict=True):
        data.qpos[:] = x
        mujoco.mj_kinematics(simulated, data)
        for distance, (a, b) in zip(row, geoms, strict=True):
            theirs = mujoco.mj_geomDistance(simulated, data, a, b, 5.0, np.zeros(6))
            assert theirs - 0.012 <= max(distance, 0.0) <= max(theirs, 0.0) + 1e-6


@needs_examples
def test_pieces_hold_the_meshes_they_stand_for() -> None:
    robot = arm("ur10")
    limits = motion_limits(robot)
    hulls = limits.collisions.hulls
    assert len(hulls.points) < 1_000
    for name, pieces in collision_geometry(robot).pieces.items():
        link = next(each for each in robot.links if each.name == name)
        body = link.body if link.body >= 0 else len(robot.body_names)
        own = [k for k in range(len(hulls.body)) if hulls.body[k] == body]
        points = np.vstack([piece.points for piece in pieces]) @ link.rotation.T + link.translation
        some = points[:: max(1, len(points) // 300)]
        least = np.full(len(some), np.inf)
        for k in own:
            cloud = hulls.points[hulls.first[k] : hulls.first[k + 1]]
            every = np.vstack([cloud, some])
            first = np.concatenate([[0], np.arange(len(cloud), len(every) + 1)])
            count = len(some) + 1
            all_ones = Hulls(
                every, first, np.zeros(count, dtype=int), np.zeros(count), np.zeros((count, 4))
            )
            pairs = np.column_stack([np.zeros(count - 1, dtype=int), np.arange(1, count)])
            away, _ = hull_distances(
                all_ones,
                np.eye(3)[None, None],
                np.zeros((1, 1, 3)),
                pairs,
                np.full(count - 1, np.inf),
            )
            least = np.minimum(least, away[0] - hulls.radius[k])
        assert np.max(least) <= EXACT


def test_ratios_have_the_slope_they_state() -> None:
    robot = shipped("arm7")
    model = motion_limits(robot).collisions
    limits = motion_limits(robot)
    q = np.random.default_rng(3).uniform(limits.lower, limits.upper, (60, 7))
    felt = model.contacts(robot, q)
    slopes, h = model.jacobian(robot, q, felt), 1e-5
    sound = 0
    for joint in range(7):
        step = h * np.eye(7)[joint]
        ahead, behind = (model.contacts(robot, x) for x in (q + step, q - step))
        values = [
            dict(zip(zip(each.sample, each.row, strict=True), each.ratio, strict=True))
            for each in (ahead, behind)
        ]
        for k, key in enumerate(zip(felt.sample, felt.row, strict=True)):
            if felt.ratio[k] < 1.1 and key in values[0] and key in values[1]:
                numeric = (values[0][key] - values[1][key]) / (2 * h)
                sound += abs(numeric - slopes[k, joint]) <= 1e-3 * max(1.0, abs(numeric))
    assert sound >= 0.97 * 7 * np.sum(felt.ratio < 1.1)  # corners change where faces are parallel


def test_what_touches_at_zero_and_what_a_joint_joins_is_not_watched() -> None:
    robot = shipped("arm4")
    limits = motion_limits(robot, clearance=0.01)
    names = {limits.collisions.name(k) for k in range(len(limits.collisions.pairs))}
    body = robot.body_names
    assert f"{body[0]} and {body[1]}" not in names
    assert any("the base" in name for name in names)
    assert np.all(limits.collisions.apart <= 0.01)
    assert not len(motion_limits(robot, self_collision=False).collisions.pairs)
    two = shipped("double_pendulum")
    assert any("hangs below" in note for note in motion_limits(two).notes)
    assert motion_limits(two, floor=-3.0).collisions.floor == -3.0
    assert motion_limits(robot, floor=None).collisions.floor is None


@needs_examples
def test_the_zero_of_a_joint_that_excludes_it_is_its_middle() -> None:
    """A Kinova arm at zero, outside of its range, has 13 pairs inside of each other."""
    limits = motion_limits(arm("kinova"))
    assert not any("touch in the zero configuration" in note for note in limits.notes)


def test_a_robot_without_geometry_has_capsules_between_its_joints(tmp_path: Path) -> None:
    tree = ElementTree.parse(robots.path("arm4"))
    for link in tree.getroot().iter("link"):
        for visual in link.findall("visual"):
            link.remove(visual)
    plain = tmp_path / "plain.urdf"
    tree.write(plain)
    robot = th.load(plain).with_drive(viscous=True)
    limits = motion_limits(robot)
    assert any("a capsule between joints stands for" in note for note in limits.notes)
    assert np.all(limits.collisions.hulls.radius > 0.0)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"floor": np.nan}, UsageError, "floor is nan"),
        ({"floor": "low"}, UsageError, "floor is 'low'"),
        ({"clearance": 0.0}, UsageError, "clearance is 0.0"),
        ({"clearance": -1.0}, UsageError, "clearance is -1.0"),
        ({"jerk": 0.0}, UsageError, "jerk limit of joint"),
        ({"acceleration": -1.0}, UsageError, "acceleration limit of joint"),
        ({"floor": 5.0}, NotIdentifiable, "above the floor"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options, error, words: str) -> None:
    robot = shipped("arm4")
    with pytest.raises(error, match=words) as caught:
        design(robot, limits=motion_limits(robot, **options), duration=4.0, starts=1)
    assert "\n" not in str(caught.value)


def test_a_start_in_the_floor_or_in_a_link_is_refused_for_safety() -> None:
    robot = shipped("arm7")
    with pytest.raises(RefusedForSafety, match=r"inside of the floor, z = 1 m"):
        design(robot, limits=motion_limits(robot, floor=1.0), start=np.zeros(7))
    limits = motion_limits(robot, floor=None)
    q = 0.9 * np.random.default_rng(0).uniform(limits.lower, limits.upper, (500, 7))
    felt = limits.collisions.contacts(robot, q)
    folded = q[felt.sample[np.argmax(felt.ratio)]]
    with pytest.raises(RefusedForSafety, match="apart; start elsewhere"):
        design(robot, limits=limits, start=folded)


def test_pairs_that_are_near_at_zero_keep_half_of_that_and_it_is_said() -> None:
    limits = motion_limits(shipped("arm7"), clearance=0.1, floor=None)
    assert np.min(limits.collisions.apart) < 0.1 == np.max(limits.collisions.apart)
    assert any("keep half of" in note for note in limits.notes)


@needs_examples
def test_locked_fingers_are_part_of_the_hand() -> None:
    robot = th.load(example_robot("panda"))
    fixed = lock(robot, [joint for joint in robot.joint_names if "finger" in joint])
    assert len(motion_limits(fixed).collisions.names) == 8
