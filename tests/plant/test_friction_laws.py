"""Friction laws in columns and in plants, alike: each takes power at every speed and load, and a
plant that slides obeys the column.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thetahat as th
from thetahat import robots
from thetahat.errors import UsageError
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import (
    STANDARD_TERMS,
    DriveTerm,
    by_load,
    by_load_driven,
    by_load_driving,
    by_load_squared,
    by_load_stribeck,
    one_sided,
    quadratic,
    stribeck,
)
from thetahat.plant.friction import Friction
from thetahat.plant.plant import OwnPlant
from thetahat.plant.simulate import simulate

SPEED = 0.4  # [rad/s] of Stribeck terms
LOADED = {
    "load": by_load(),
    "load_driving": by_load_driving(),
    "load_driven": by_load_driven(),
    "load_squared": by_load_squared(),
    "load_stribeck": by_load_stribeck(SPEED),
}
LAWS: dict[str, DriveTerm] = {
    "viscous": STANDARD_TERMS["viscous"],
    "coulomb": STANDARD_TERMS["coulomb"],
    "stribeck": stribeck(SPEED),
    "quadratic": quadratic(),
    **LOADED,
}
number = st.floats(-1e3, 1e3, allow_nan=False)


@pytest.mark.parametrize("name", LAWS)
@given(speed=number, load=number)
def test_every_law_dissipates(name: str, speed: float, load: float) -> None:
    """Power of one unit of the parameter, from the column as the drive evaluates it."""
    law = LAWS[name]
    drive = Drive.none(1)
    if name in STANDARD_TERMS:
        drive = drive.with_values(**{name: np.ones(1)})
    else:
        drive = drive.with_extra_term(law, 1.0)
    v, tau = np.array([speed]), np.array([load])
    assert float((drive.friction(v, load=tau) * v)[0]) >= 0.0


@given(speed=number, share=st.floats(-1.0, 1.0))
def test_one_sided_friction_within_viscous_friction_dissipates(speed: float, share: float) -> None:
    drive = (
        Drive.none(1).with_values(viscous=np.full(1, 2.0)).with_extra_term(one_sided(), 2 * share)
    )
    v = np.array([speed])
    assert float((drive.friction(v) * v)[0]) >= 0.0


@settings(max_examples=50)
@given(
    speed=st.floats(-20.0, 20.0),
    load=number,
    values=st.lists(st.floats(0.0, 0.15), min_size=len(LOADED), max_size=len(LOADED)),
)
def test_plants_dissipate(speed: float, load: float, values: list[float]) -> None:
    """All terms together, sliding either way and holding: f·q̇ ≥ 0, and 0 within what holds."""
    robot = th.load(robots.path("arm4"))
    drive = robot.drive
    for law, value in zip(LOADED.values(), values, strict=True):
        drive = drive.with_extra_term(law, value)
    friction = Friction(replace(robot, drive=drive))
    v, at = np.full(4, speed), np.full(4, load)
    assert np.all(friction.torque(v, np.sign(v), at) * v >= 0.0)
    low, high = friction.holding(at)
    assert np.all(low <= 0.0)
    assert np.all(high >= 0.0)


class Swing:
    """A sine of the first joint, and slower ones of the others."""

    duration = 0.5

    def at(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        w, t = np.array([2.0, 3.0, 4.0, 5.0]), np.asarray(t)[:, None]
        return 0.5 * np.sin(w * t), 0.5 * w * np.cos(w * t), -0.5 * w * w * np.sin(w * t)


@pytest.mark.parametrize("name", LOADED)
def test_a_plant_that_slides_obeys_the_column(name: str) -> None:
    robot = th.load(robots.path("arm4"))
    value = 0.002 if name == "load_squared" else 0.2
    drive = robot.drive.with_extra_term(LOADED[name], value).with_values(armature=np.full(4, 0.1))
    robot = replace(robot, drive=drive)
    run = simulate(OwnPlant(robot), Swing(), rate=100.0)
    predicted = th.inverse_dynamics(robot, run.q, run.dq, run.ddq)
    sliding = np.abs(run.dq) > 1e-3
    scale = float(np.abs(run.tau).max())
    assert sliding.mean() > 0.8
    assert np.max(np.abs(predicted - run.tau)[sliding]) < 1e-9 * scale
    without = replace(robot, drive=drive.with_values(**{name: np.zeros(4)}))
    other = th.inverse_dynamics(without, run.q, run.dq, run.ddq)
    assert np.max(np.abs(other - run.tau)[sliding]) > 1e-3 * scale


def test_load_holds_a_joint_that_nothing_else_holds() -> None:
    """A pendulum under gravity, by load alone: it breaks away where the torque leaves the cone."""
    robot = th.load(robots.path("arm4")).without_drive()
    drive = robot.drive.with_extra_term(by_load(np.ones(4)), 0.5)
    robot = replace(robot, drive=drive)
    q = np.array([0.0, 0.0, 0.0, 0.6])
    weight = th.gravity(robot, q)
    for factor, moves in ((1.0, False), (1.4, False), (0.6, False), (1.6, True), (0.4, True)):
        plant = OwnPlant(robot)
        plant.reset(q, np.zeros(4))
        plant.step(factor * weight, 0.05)
        assert bool(np.any(np.abs(plant.state.q - q) > 1e-9)) == moves, factor


def test_what_no_plant_can_have_is_refused() -> None:
    robot = th.load(robots.path("arm4"))
    for value, words in ((-0.1, "give ≥ 0"), (1.2, "less than 1")):
        drive = robot.drive.with_extra_term(by_load(np.ones(4)), value)
        with pytest.raises(UsageError, match=words):
            OwnPlant(replace(robot, drive=drive))
