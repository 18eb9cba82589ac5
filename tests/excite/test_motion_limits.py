"""Limits of motions: what the file says, what is given, what is assumed; and what cannot be is
refused in a sentence.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from data_paths import example_robot, needs_examples
from excite_cases import arm, shares, shipped, torques, with_limits

import thetahat as th
from thetahat import robots
from thetahat.errors import NotIdentifiable, ThetahatError, UsageError
from thetahat.excite.design import design, excitation
from thetahat.excite.motion_limits import KINDS, Box, motion_limits
from thetahat.excite.trajectories import Fourier, Moves
from thetahat.model.drive import Drive
from thetahat.model.tree import Limits, Mimic

# -- limits ----------------------------------------------------------------------------------------


@needs_examples
def test_limits_are_those_of_the_file_less_a_margin() -> None:
    robot = arm("panda")
    model = pin.buildModelFromUrdf(str(example_robot("panda")))
    limits = motion_limits(robot, margin=0.9)
    for j, name in enumerate(robot.joint_names):
        joint = model.joints[model.getJointId(name)]
        low, high = model.lowerPositionLimit[joint.idx_q], model.upperPositionLimit[joint.idx_q]
        assert limits.lower[j] == pytest.approx(0.95 * low + 0.05 * high)
        assert limits.upper[j] == pytest.approx(0.05 * low + 0.95 * high)
        assert limits.velocity[j] == pytest.approx(0.9 * model.velocityLimit[joint.idx_v])
        assert limits.torque[j] == pytest.approx(0.9 * model.effortLimit[joint.idx_v])
    assert np.allclose(limits.acceleration, limits.velocity / 0.3)
    assert np.allclose(limits.jerk, limits.acceleration / 0.1)
    assert "0.3 s from rest to top speed" in " ".join(limits.notes)


def test_given_limits_take_the_place_of_the_files() -> None:
    robot = shipped()
    first, last = robot.joint_names[0], robot.joint_names[-1]
    limits = motion_limits(
        robot,
        position={first: (-0.1, 0.2)},
        velocity={last: 0.3},
        acceleration=2.0,
        torque=[1.0, 2.0, 3.0, np.inf],
    )
    plain = motion_limits(robot)
    assert (limits.lower[0], limits.upper[0], limits.velocity[-1]) == (-0.1, 0.2, 0.3)
    assert np.array_equal(limits.lower[1:], plain.lower[1:])
    assert np.array_equal(limits.velocity[:-1], plain.velocity[:-1])
    assert np.array_equal(limits.acceleration, np.full(4, 2.0))
    assert np.array_equal(limits.torque, [1.0, 2.0, 3.0, np.inf])


def test_what_the_file_does_not_say_is_assumed_and_said() -> None:
    robot = shipped()
    a, b, *_ = robot.joint_names
    limits = motion_limits(with_limits(robot, **{a: Limits(), b: Limits(-1.0, 1.0, 0.0, 0.0)}))
    assert (limits.lower[0], limits.upper[0]) == (-np.pi, np.pi)
    assert np.isinf(limits.velocity[0])
    assert np.isinf(limits.velocity[1])
    assert np.isinf(limits.torque[1])
    notes = " ".join(limits.notes)
    assert f"{a} ±3.142 rad" in notes
    assert f"nothing limits the speed of {a}, {b}" in notes
    assert f"nothing limits the torque of {a}, {b}" in notes


def test_limits_of_a_follower_count_for_the_joint_it_follows() -> None:
    robot = shipped()
    a, b, *_ = robot.joint_names
    nodes = list(
        with_limits(
            robot, **{a: Limits(-1.0, 1.0, 3.0, 9.0), b: Limits(-0.5, 1.0, 2.0, 1.0)}
        ).tree.nodes
    )
    # q_b = 0.1 − 2 q_a, so q_a is in [−0.45, 0.3] and slower than 1
    nodes[1] = replace(nodes[1], joint=replace(nodes[1].joint, mimic=Mimic(a, -2.0, 0.1)))
    drive = Drive.none(3)
    limits = motion_limits(
        replace(robot, tree=replace(robot.tree, nodes=tuple(nodes)), drive=drive), margin=1.0
    )
    assert (limits.lower[0], limits.upper[0], limits.velocity[0], limits.torque[0]) == (
        -0.45,
        0.3,
        1.0,
        9.0,
    )


def test_check_finds_the_worst_of_every_limit() -> None:
    """Against plain comparison, with torques by Pinocchio."""
    robot = shipped("arm7")
    limits = motion_limits(robot, acceleration=3.0)
    rng = np.random.default_rng(0)
    trajectory = Fourier.at_rest(
        robot, 4.0, centre=limits.centre, a=rng.normal(size=(7, 3)), b=rng.normal(size=(7, 3))
    )
    motion = trajectory.sampled(1000.0)
    expected = shares(limits, motion, torques(robot, motion))
    for margin in limits.check(robot, trajectory):
        if margin.kind not in expected:
            continue
        exact = 1e-9 if margin.kind != "jerk" else 1e-3  # of the mean over a millisecond
        assert margin.share == pytest.approx(expected[margin.kind], rel=exact)
        row = round(margin.time * 1000)
        if margin.kind == "velocity":
            assert abs(motion.dq[row, robot.joint_names.index(margin.name)]) == pytest.approx(
                margin.share * limits.velocity[robot.joint_names.index(margin.name)]
            )
    kinds = [margin.kind for margin in limits.check(robot, motion)]
    assert kinds == [kind for kind in KINDS if kind != "box"]


@needs_examples
@pytest.mark.parametrize("inside", [True, False])
def test_boxes_hold_points_of_links_where_pinocchio_puts_them(inside: bool) -> None:
    robot = arm("ur10")
    model = pin.buildModelFromUrdf(str(example_robot("ur10")))
    data, frame = model.createData(), model.getFrameId("ee_link")
    points = np.array([[0.0, 0.0, 0.0], [0.1, -0.2, 0.05]])
    box = Box("ee_link", np.array([-0.4, -0.3, -0.2]), np.array([0.5, 0.6, 1.0]), inside, points)
    q = np.random.default_rng(0).uniform(-2, 2, size=(20, 6))
    order = [robot.joint_names.index(name) for name in list(model.names)[1:]]
    for k, x in enumerate(q):
        pin.framesForwardKinematics(model, data, x[order])
        world = np.array([data.oMf[frame].act(point) for point in points])
        assert np.allclose(box.positions(robot, q[k : k + 1])[0], world, atol=1e-9)
        within = np.all((world > box.lower) & (world < box.upper), axis=1)
        used = np.abs(box.ratios(robot, q[k : k + 1])[0])
        soft = np.abs(box.ratios(robot, q[k : k + 1], power=8.0)[0])
        if inside:
            assert np.array_equal(np.all(used.reshape(2, 3) <= 1.0, axis=1), within)
        else:
            assert np.array_equal(used <= 1.0, ~within)
            assert np.all(soft >= used)  # what is smooth keeps more free, never less


# -- refusals --------------------------------------------------------------------------------------


def floating() -> th.Robot:
    return th.load(robots.path("arm4"), floating_base=True)


FOUR = shipped("arm4")
TOOL = FOUR.links[-1].name
FAR = Box(TOOL, [50.0, 50.0, 50.0], [51.0, 51.0, 51.0])
JOINT = FOUR.joint_names[1]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: motion_limits(FOUR, position={JOINT: (0.5, -0.5)}),
            UsageError,
            f"{JOINT}.*lower < upper",
        ),
        (lambda: motion_limits(FOUR, position={JOINT: (0.5, 0.5)}), UsageError, "lower < upper"),
        (
            lambda: motion_limits(with_limits(FOUR, **{JOINT: Limits(0.0, 0.0)})),
            UsageError,
            "no room",
        ),
        (
            lambda: motion_limits(FOUR, velocity={JOINT: 0.0}),
            UsageError,
            f"velocity limit of joint '{JOINT}' is 0",
        ),
        (lambda: motion_limits(FOUR, torque=-1.0), UsageError, "torque limit of joint"),
        (
            lambda: motion_limits(FOUR, acceleration=np.nan),
            UsageError,
            "acceleration limit of joint",
        ),
        (
            lambda: motion_limits(FOUR, velocity={"elbw": 1.0}),
            UsageError,
            "'elbw' is not in the robot; joints",
        ),
        (lambda: motion_limits(FOUR, velocity=[1.0, 2.0]), UsageError, "4 numbers"),
        (lambda: motion_limits(FOUR, margin=0.0), UsageError, "margin is 0.0"),
        (
            lambda: motion_limits(FOUR, boxes=[Box("nose", [0, 0, 0], [1, 1, 1])]),
            UsageError,
            "'nose' is not in robot",
        ),
        (lambda: Box(TOOL, [0, 0, 0], [1, -1, 1]), UsageError, "along y"),
        (lambda: motion_limits(floating()), UsageError, "6 degrees of freedom"),
        (lambda: design(floating()), UsageError, "6 degrees of freedom"),
        (lambda: design(FOUR, duration=0.0), UsageError, "duration is 0.0"),
        (lambda: design(FOUR, duration=-3), UsageError, "duration is -3"),
        (lambda: design(FOUR, duration=float("inf")), UsageError, "duration is inf"),
        (lambda: design(FOUR, seconds=0), UsageError, "seconds is 0"),
        (lambda: design(FOUR, starts=0), UsageError, "starts is 0"),
        (lambda: design(FOUR, seed=-1), UsageError, "seed is -1"),
        (lambda: design(FOUR, harmonics=1), UsageError, "harmonics is 1"),
        (lambda: design(FOUR, points=2), UsageError, "points is 2"),
        (lambda: design(FOUR, criterion="volume"), UsageError, "log-det, condition"),
        (lambda: design(FOUR, noise=0.0), UsageError, "noise is 0.0"),
        (lambda: design(FOUR, noise=[1.0]), UsageError, "one number or 4"),
        (lambda: design(FOUR, rate=0.0), UsageError, "rate is 0.0"),
        (lambda: design(FOUR, start=np.zeros(3)), UsageError, "start has shape"),
        (lambda: design(FOUR, start=[0.0, 99.0, 0.0, 0.0]), UsageError, f"'{JOINT}' at 99"),
        (
            lambda: design(
                FOUR, limits=motion_limits(FOUR, boxes=[FAR]), start=motion_limits(FOUR).centre
            ),
            UsageError,
            f"box of {TOOL}",
        ),
        (
            lambda: design(FOUR, limits=motion_limits(FOUR, boxes=[FAR])),
            NotIdentifiable,
            "poses tried keeps the boxes",
        ),
        (
            lambda: design(pendulum_on_a_slope(), limits=None),
            NotIdentifiable,
            "torque limits are below gravity in each of",
        ),
        (
            lambda: design(FOUR, limits=motion_limits(shipped("arm7"))),
            UsageError,
            "the limits are of joints",
        ),
        (lambda: design(FOUR, earlier=other_information()), UsageError, "another robot"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    call, error: type[ThetahatError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def pendulum_on_a_slope() -> th.Robot:
    """A robot whose first joint can never hold its weight: it slides along gravity with a feeble
    motor.
    """
    robot = shipped("arm4")
    first = replace(
        robot.tree.nodes[0],
        kind=type(robot.tree.nodes[0].kind).PRISMATIC,
        axis=np.array([0.0, 0.0, 1.0]),
        joint=replace(robot.tree.nodes[0].joint, limits=Limits(-1, 1, 1, 1e-3)),
    )
    return replace(robot, tree=replace(robot.tree, nodes=(first, *robot.tree.nodes[1:])))


def other_information():
    robot = shipped("double_pendulum")
    return excitation(
        robot, Moves(robot.joint_names, np.array([[0.0, 0.0], [1.0, 1.0]]), [1.0]), np.ones(2)
    )[0]


def test_a_start_that_cannot_be_held_is_refused() -> None:
    robot = shipped("arm4")
    limits = motion_limits(robot, torque=1e-3)
    with pytest.raises(UsageError, match=r"to hold the start, and may take 0\.001"):
        design(robot, limits=limits, start=limits.centre + 0.3 * limits.reach)
