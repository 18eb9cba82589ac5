"""The compiled time steps move a plant as the steps in Python do: same motion, same motors held,
same moments of stopping.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plant_cases import load

from oracles.random_trees import random_robot, random_state
from thetahat.errors import UsageError
from thetahat.kernels import plant_steps
from thetahat.model.friction_terms import quadratic
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind
from thetahat.plant import stepper as steppers
from thetahat.plant.compiled_steps import compiled_steps
from thetahat.plant.friction import Friction
from thetahat.plant.physics_engine import Engine, OwnEngine
from thetahat.plant.plant import OwnPlant
from thetahat.plant.realism import DriveModel, Realism
from thetahat.plant.stepper import Stepper

SAME = 1e-9  # relative; roundings of one engine, carried through hundreds of stops: measured 2e-12
TICKS, TICK = 150, 1e-3


def with_friction(robot: Robot, seed: int, *, stribeck: bool, kind: str) -> tuple[Engine, Friction]:
    rng = np.random.default_rng(seed)
    n = robot.nv
    drive = robot.without_drive().drive.with_values(
        viscous=rng.uniform(0.0, 0.5, n),
        coulomb=rng.uniform(0.2, 2.0, n) * (rng.random(n) < 0.8),
        offset=rng.normal(size=n) * 0.2,
        armature=rng.uniform(0.05, 0.3, n),
    )
    robot = replace(robot, drive=drive)
    level, speed = rng.uniform(0.1, 0.6, n), rng.uniform(0.05, 0.3, n)
    friction = Friction(robot, stribeck=level, speed=speed) if stribeck else Friction(robot)
    if kind == "mujoco":
        pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
        from thetahat.plant.mujoco_engine import MujocoEngine

        return MujocoEngine(robot), friction
    return OwnEngine(robot), friction


def run(engine: Engine, friction: Friction, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, accelerations and signs of every tick under torques that reverse often."""
    robot = engine.robot
    rng = np.random.default_rng(seed)
    q, dq, _ = random_state(robot, seed)
    stepper = Stepper(engine, friction, q, 0.3 * dq * (rng.random(robot.nv) < 0.7))
    size, phase = rng.uniform(0.5, 4.0, robot.nv), rng.uniform(0.0, 6.0, robot.nv)
    states, accelerations, signs = [], [], []
    for k in range(TICKS):
        tau = size * np.sin(2.0 * np.pi * 12.0 * k * TICK + phase)
        accelerations.append(stepper.acceleration(tau).copy())
        stepper.advance(tau, TICK)
        states.append(np.concatenate([stepper.q, stepper.dq]))
        signs.append(stepper.sign.copy())
    return np.array(states), np.array(accelerations), np.array(signs)


@pytest.mark.parametrize("kind", ["own", "mujoco"])
@pytest.mark.parametrize("stribeck", [False, True])
@pytest.mark.parametrize("name", ["double_pendulum", "arm4", "arm7", "ur10", 3, 4])
def test_compiled_steps_are_those_in_python(
    name: str | int, stribeck: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(name, int):
        kinds = (JointKind.REVOLUTE, JointKind.PRISMATIC)
        robot = random_robot(name, nodes=6, kinds=kinds, mimic=False, massless=False)
        robot = robot.with_gravity(np.zeros(3))  # or the heavy ones would never hold
    else:
        robot = load(name)
    seed = sum(map(ord, str(name)))
    engine, friction = with_friction(robot, seed, stribeck=stribeck, kind=kind)
    assert compiled_steps(engine, friction) is not None
    states, accelerations, signs = run(engine, friction, seed)
    monkeypatch.setattr(steppers, "compiled_steps", lambda engine, friction: None)
    expected, slow_accelerations, slow_signs = run(engine, friction, seed)
    assert np.any(signs[:, friction.dry] == 0.0)  # some motor held
    assert np.any(np.abs(np.diff(signs, axis=0)) > 0.0)  # and changed its ways
    assert np.array_equal(signs, slow_signs)
    n = robot.nq
    for part in (slice(None, n), slice(n, None)):
        scale = np.max(np.abs(expected[:, part]))
        assert np.max(np.abs(states - expected)[:, part]) <= SAME * scale
    scale = np.max(np.abs(slow_accelerations))
    assert np.max(np.abs(accelerations - slow_accelerations)) <= SAME * scale


def test_what_the_kernel_does_not_know_takes_steps_in_python() -> None:
    arm = load("arm4").without_drive()
    shaped = replace(arm, drive=arm.drive.with_extra_term(quadratic(), 0.1))
    mimic = next(r for r in map(random_robot, range(20)) if r.tree.has_mimic)
    coupled = load("double_pendulum").without_drive().with_actuation(np.array([[1.0, 0.5], [0, 2]]))
    for robot in (shaped, mimic, coupled):
        assert compiled_steps(OwnEngine(robot), Friction(robot)) is None


def test_a_plant_goes_on_alike_after_brakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brakes are in Python alone; before and after them compiled steps move the same state."""

    def played() -> np.ndarray:
        plant = OwnPlant(load("arm4"), realism=Realism(DriveModel(viscous=0.2, coulomb=0.3)))
        plant.reset(np.full(4, 0.3), np.full(4, 0.5))
        for k in range(60):
            if k in (20, 40):
                plant.clamp(np.arange(4) == (0 if k == 20 else 9))
            plant.step(np.array([5.0, 0.0, 0.0, 0.0]), 2e-3)
        return np.concatenate([plant.state.q, plant.state.dq])

    end = played()
    monkeypatch.setattr(steppers, "compiled_steps", lambda engine, friction: None)
    assert np.allclose(end, played(), rtol=SAME, atol=SAME)


def test_a_state_that_is_no_number_ends_in_a_sentence() -> None:
    plant = OwnPlant(load("arm7"), realism=Realism(DriveModel(coulomb=0.3)))
    with pytest.raises(UsageError, match="diverged at t ="):
        plant.step(np.full(7, 1e9), 1.0)


def test_both_end_a_step_by_the_same_numbers() -> None:
    for name in ("AT_ZERO", "MAX_EVENTS", "SHORTEST_PIECE", "MAX_CUTS"):
        assert getattr(plant_steps, name) == getattr(steppers, name)
