"""What a fleet's estimates start from."""

from __future__ import annotations

from pathlib import Path

from thetahat.fleet.analysis import physical_prior
from thetahat.identification.parameter_columns import Columns
from thetahat.model.io.load import load

FREE = """<mujoco><worldbody><body name="base"><freejoint name="free"/>
<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
<body name="link"><joint name="hinge" type="hinge" axis="0 1 0" damping="0.3"/>
<inertial pos="0.1 0 0" mass="0.5" diaginertia="0.01 0.01 0.01"/></body></body></worldbody></mujoco>
"""


def test_the_prior_has_a_number_for_every_column_with_a_free_joint(tmp_path: Path) -> None:
    (tmp_path / "free.xml").write_text(FREE)
    robot = load(tmp_path / "free.xml")
    fitted = robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    prior = physical_prior(robot, (), fitted)
    assert prior.shape == (Columns(fitted).count,) == (23,)
    assert prior[20] == 0.3
