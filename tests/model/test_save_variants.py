"""Writing back other variants of a robot: floating base, locked and mimic joints, unphysical links."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_paths import example_robot
from save_cases import (  # noqa: F401 (a fixture)
    TORQUE,
    URDF,
    body,
    changed_values,
    load,
    own_folder,
    pinocchio_agrees,
    states,
    stretched,
    with_body,
)

import thetahat as th
from thetahat.errors import RobotWarning, UnphysicalRobot
from thetahat.model import parameters
from thetahat.model.io.save import save, with_drive_file
from thetahat.model.lock_joints import lock


def test_floating_base_other_gravity_and_a_floating_joint_name() -> None:
    text = URDF.replace(
        '<link name="base"/>',
        URDF[URDF.index('  <link name="lower">') : URDF.index('  <joint name="shoulder"')]
        .replace("lower", "base")
        .strip(),
    )
    robot = load(text, floating_base=True, gravity=(1.0, 2.0, -3.0))
    changed = robot.with_parameters(
        np.concatenate(
            [
                stretched(t, np.random.default_rng(k))
                for k, t in enumerate(robot.theta.reshape(-1, 10))
            ]
        )
    )
    saved = save(changed, "new.urdf")
    assert saved.torque_error < TORQUE
    pinocchio_agrees("new.urdf", changed, floating_base=True)


def test_locked_joints_are_merged_bodies_whose_links_share_the_change() -> None:
    """Panda with its fingers held, as a log without their columns has it: Pinocchio's reduced model
    of the whole file is the locked robot.
    """
    pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    path = example_robot("panda")
    robot = th.load(path)
    small = lock(robot, ["panda_finger_joint1"])
    rng = np.random.default_rng(2)
    changed = small.with_parameters(
        np.concatenate([stretched(t, rng) for t in small.theta.reshape(-1, 10)])
    )
    changed = replace(
        changed,
        drive=changed.drive.with_values(viscous=rng.uniform(0, 1, 7), offset=rng.uniform(0, 1, 7)),
    )
    saved = save(changed, "new.urdf")
    assert saved.not_in_file == ("offset",)
    assert saved.torque_error < TORQUE
    whole = th.load("new.urdf")
    assert whole.drive.viscous[7] == robot.drive.viscous[7], "the locked joint's own value stays"
    model = pinocchio.buildModelFromUrdf("new.urdf")
    fingers = [i for i, name in enumerate(model.names) if "finger" in name]
    reduced = pinocchio.buildReducedModel(model, fingers, pinocchio.neutral(model))
    q, dq, ddq = states(changed)
    expected = [
        pinocchio.rnea(reduced, reduced.createData(), *s) for s in zip(q, dq, ddq, strict=True)
    ]
    np.testing.assert_allclose(
        th.inverse_dynamics(changed, q, dq, ddq, rigid=True), expected, rtol=0, atol=TORQUE
    )
    hand = {
        v.owner
        for v in changed_values(path.read_bytes(), Path("new.urdf").read_bytes())
        if v.tag == "mass"
    }
    assert {"panda_link7", "panda_hand", "panda_leftfinger", "panda_rightfinger"} <= hand
    again = lock(with_drive_file(th.load("new.urdf")), ["panda_finger_joint1"])
    np.testing.assert_array_equal(again.drive.offset, changed.drive.offset)


MIMIC = URDF.replace(
    '    <child link="lower"/>\n',
    '    <child link="lower"/>\n    <mimic joint="shoulder" multiplier="-3" offset="0.1"/>\n   '
    ' <dynamics damping="0.5" friction="0.5"/>\n',
)


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize(
    ("viscous", "expected"),
    [(7.6, (3.1, 0.5)), (2.3, (0.05, 0.25)), (0.0, (0.0, 0.0)), (-1.0, (-5.5, 0.5))],
)
def test_mimic_joints_share_a_coordinate(viscous: float, expected: tuple[float, float]) -> None:
    """q̇ of the follower is −3 q̇: its damping counts nine times, and the sum is what the robot
    has. Damping never turns negative by sharing.
    """
    robot = load(MIMIC)
    assert robot.drive.viscous == pytest.approx([0.1 + 9 * 0.5])
    changed = replace(robot, drive=robot.drive.with_values(viscous=[viscous], coulomb=[2.0]))
    saved = save(changed, "new.urdf")
    assert saved.not_in_file == ()
    stated = [node.joint.damping for node in th.load("new.urdf").tree.nodes]
    assert stated == pytest.approx(expected, abs=1e-12)
    assert th.load("new.urdf").drive.coulomb == pytest.approx([2.0], rel=1e-15)


def test_negative_friction_is_written_as_it_is_and_warned_of_when_read() -> None:
    robot = load()
    save(
        replace(robot, drive=robot.drive.with_values(viscous=[-0.5, 0], coulomb=[0.2, -0.25])),
        "new.urdf",
    )
    with pytest.warns(RobotWarning, match=r"negative"):
        again = th.load("new.urdf")
    assert (again.drive.viscous[0], again.drive.coulomb[1]) == (-0.5, -0.25)


def test_unphysical_links_are_written_with_a_warning_and_what_no_file_can_say_is_refused() -> None:
    robot = load()
    bad = with_body(
        robot,
        "lower",
        parameters.from_mass_com_inertia(-1.0, np.array([0.1, 0, 0]), np.diag([1.0, 1.0, 5.0])),
    )
    with pytest.warns(RobotWarning, match=r"new\.urdf: links that no rigid body can be.*lower"):
        assert save(bad, "new.urdf").torque_error < TORQUE
    moment = np.zeros(10)
    moment[parameters.MCX] = 0.5
    with pytest.raises(
        UnphysicalRobot, match=r"arm.urdf.*'lower'.*first moment but no mass.*consistent"
    ):
        save(with_body(robot, "lower", moment), "other.urdf")
    moment = np.r_[np.random.default_rng(0).normal(size=9), 1e-17]
    with pytest.raises(UnphysicalRobot, match=r"'lower' cannot be stated.*consistent"):
        save(with_body(robot, "lower", moment), "other.urdf")
    assert not Path("other.urdf").exists()
