"""What a model must be explained by after a change, and encoder zeros that torques tell of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plant_cases import load, sines, wrong_by

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.identification.parameter_columns import Columns
from thetahat.online.after_change import AfterChange, last_bodies
from thetahat.online.encoder_zero import zero_shift
from thetahat.online.predict import Model, Predictor
from thetahat.plant.realism import Payload


def states(robot: th.Robot, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    t = np.arange(0.0, 8.0, 1.0 / 30.0)
    return tuple(np.ascontiguousarray(x) for x in sines(robot, seed=seed, duration=8.0).at(t))


def model(robot: th.Robot) -> Model:
    return Predictor(robot).model(Columns(robot).x0)


def said(trusted: th.Robot, new: th.Robot) -> str:
    """What is said of a new model after the trusted one failed; the nominal is 20 % off."""
    nominal = replace(trusted, theta=1.2 * trusted.theta)
    q, dq, ddq = states(trusted)
    samples = Samples(q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(new, q, dq, ddq))
    after = AfterChange(model(trusted), model(nominal), nominal, None)
    return after.sentence(model(new), samples)


def robot(name: str) -> th.Robot:
    return load(name).without_drive().with_drive(viscous=True, coulomb=True, offset=True)


@pytest.mark.parametrize("name", ["arm4", "arm7"])
def test_a_payload_friction_and_small_changes_explain_a_model(name: str) -> None:
    truth = robot(name)
    hand = truth.body_names[last_bodies(truth)[-1]]
    heavy = Payload(hand, 3.0, (0.02, 0.0, 0.1), (0.01, 0, 0, 0.01, 0, 0.01)).on(truth)
    drive = truth.drive.with_values(
        coulomb=truth.drive.coulomb + 2.0, viscous=truth.drive.viscous + 1.0
    )
    for new in (truth, heavy, replace(truth, drive=drive)):
        assert said(truth, new) == ""
    assert said(heavy, truth) == "", "let go"


@pytest.mark.parametrize("name", ["arm4", "arm7"])
@pytest.mark.parametrize("factor", [0.5, 1.5, 3.0])
def test_torques_scaled_by_a_sensor_do_not(name: str, factor: float) -> None:
    truth = robot(name)
    sentence = said(truth, truth.with_parameters(factor * Columns(truth).x0))
    assert "a payload and friction leave" in sentence
    assert "reset()" in sentence


def test_a_model_nearer_than_the_nominal_one_needs_no_explanation() -> None:
    truth = robot("arm4")
    assert said(truth, truth.with_parameters(1.1 * Columns(truth).x0)) == ""


@pytest.mark.parametrize("name", ["arm4", "arm7"])
@pytest.mark.parametrize("joint", [1, 2, 3])
def test_a_shifted_encoder_is_named_and_its_shift_found(name: str, joint: int) -> None:
    truth = load(name)
    nominal = wrong_by(truth, 0.05, 3).without_drive()
    q, dq, ddq = states(truth)
    tau = th.inverse_dynamics(truth, q, dq, ddq)
    for offset in (0.5, -0.4):
        measured = q.copy()
        measured[:, joint] += offset
        shift = zero_shift(model(nominal), Samples(q=measured, dq=dq, ddq=ddq, tau=tau))
        assert shift is not None
        assert shift.shift[joint] == pytest.approx(-offset, abs=0.1)
        assert repr(truth.joint_names[joint]) in shift.sentence(truth)


@pytest.mark.parametrize("name", ["arm4", "arm7"])
@pytest.mark.parametrize("seed", range(4))
def test_other_masses_and_friction_are_no_shift(name: str, seed: int) -> None:
    truth = load(name)
    q, dq, ddq = states(truth, seed)
    nominal = wrong_by(truth, 0.2, seed).without_drive()
    loaded = Payload(truth.body_names[-1], 2.0, (0.0, 0.0, 0.1)).on(truth)
    for other in (truth, truth.with_parameters(1.4 * truth.theta), loaded):
        tau = th.inverse_dynamics(other, q, dq, ddq)
        shift = zero_shift(model(nominal), Samples(q=q, dq=dq, ddq=ddq, tau=tau))
        assert shift is not None
        assert shift.sentence(truth) == ""
