"""Derivatives that the drives' simulation carries along are those of the simulation itself."""

from __future__ import annotations

import numpy as np
import pytest

import thetahat as th
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_parameters import BACKLASH, NAMES, DriveParameters
from thetahat.identification.actuators.drive_rollout import DriveRollout, branch_places, columns_of

TWO_LEGS = """<mujoco><worldbody>
<body><joint name="a" axis="0 1 0"/><inertial pos=".02 0 -.1" mass=".6" diaginertia=".004 .004 .001"/>
 <body pos="0 0 -.2"><joint name="b" axis="1 0 0"/>
  <inertial pos="0 .01 -.1" mass=".3" diaginertia=".002 .002 .0005"/></body></body>
<body pos="0 .3 0"><joint name="c" axis="0 1 0"/>
 <inertial pos=".01 0 -.1" mass=".5" diaginertia=".003 .003 .001"/></body>
</worldbody></mujoco>"""
# How the weight of damping changes with M(q) is left out: of second order in the step of 1 ms.
TOLERANCE = 3e-3


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> DriveRollout:
    path = tmp_path_factory.mktemp("legs") / "legs.xml"
    path.write_text(TWO_LEGS, encoding="utf-8")
    rng = np.random.default_rng(3)
    t = np.arange(150) / 100.0
    wave = [np.sin(2 * np.pi * rng.uniform(0.4, 1.5) * t + phase) for phase in (0.0, 2.0, 4.0)]
    command = np.ascontiguousarray(0.4 * np.array(wave).T)
    command[75:] += 0.3
    log = DriveLog(t, np.roll(command, 5, axis=0), command, (("run", 0, len(t)),))
    return DriveRollout(th.load(path), log)


def drives() -> DriveParameters:
    """Every term at work: saturated for a while, inside the dead zone for a while, at rest."""
    out = DriveParameters.of(3).with_values(
        kp=np.array([20.0, 8.0, 15.0]),
        kd=0.3,
        viscous=0.2,
        coulomb=np.array([0.2, 0.1, 0.15]),
        armature=0.01,
        delay=0.0123,
        limit=np.array([3.0, 1.2, 2.5]),
        bias=np.array([0.01, -0.02, 0.015]),
        offset=0.05,
        stribeck=0.05,
        stribeck_speed=0.2,
        load=0.05,
        quadratic=0.01,
        deadband=0.003,
        backlash=np.array([0.0, 0.02, 0.012]),
        back_emf=0.2,
    )
    for name in NAMES:
        out = out.with_free(name)
    return out.with_free("backlash", out.values[:, BACKLASH] > 0.0)


def test_derivatives_are_those_of_central_differences(rollout: DriveRollout) -> None:
    free, segments = drives(), rollout.log.segments(None)
    shown, slopes = rollout.sensitivities(free, segments)
    again = rollout.positions(free.values[None], segments)[0]
    assert np.abs(shown - again).max() < 1e-12
    places = branch_places(rollout.robot)
    columns, moved = columns_of(free, places)
    assert places[:, 0].tolist() == [0, 0, 2]
    assert moved.shape == (3, 2 * len(NAMES) - 1)  # the second leg shares the first one's columns
    for (joint, parameter), column in zip(free.entries, columns, strict=True):
        step = 1e-6 * max(1e-2, abs(free.values[joint, parameter]))
        sets = np.array([free.values, free.values])
        sets[:, joint, parameter] += step * np.array([1.0, -1.0])
        ahead, behind = rollout.positions(sets, segments)
        expected = (ahead - behind) / (2.0 * step)
        same = places[:, 0] == places[joint, 0]
        error = np.linalg.norm(expected[:, same] - slopes[:, same, column])
        size = np.linalg.norm(expected[:, same])
        assert size > 0.0
        assert error < TOLERANCE * size, (joint, NAMES[parameter])
        assert np.abs(expected[:, ~same]).max() == 0.0
