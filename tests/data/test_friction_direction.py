"""The direction of dry friction: its laws, and how a low-pass shows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.signal import butter, sosfiltfilt
from simulated_log import motion

import thetahat as th
from thetahat import robots
from thetahat.data.friction_direction import (
    batches_with_friction_direction,
    with_friction_direction,
)
from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.kernels.direction import follow
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import FrictionDirection, by_load, one_sided, quadratic, stribeck
from thetahat.model.robot import Robot

RATE, CUTOFF = 500.0, 10.0


def arm(dry: FrictionDirection | None) -> Robot:
    robot = th.load(robots.path("arm4")).without_drive().with_drive(viscous=True, coulomb=True)
    return replace(robot, drive=robot.drive.with_dry(dry))


def moved(seconds: float = 8.0, **more) -> Samples:
    t, q, dq, ddq = motion(4, seconds=seconds, rate=RATE)
    provenance = {"settings": {"torque_cutoff": CUTOFF, "order": 4, "derivative": "butterworth"}}
    values = {
        "q": q,
        "dq": dq,
        "ddq": ddq,
        "tau": np.zeros_like(q),
        "t": t,
        "run": np.zeros(len(t), dtype=int),
        "period": 1.0 / RATE,
    }
    return Samples(**{**values, "cutoff": CUTOFF, "provenance": provenance, **more})


LAWS = {
    "zone": FrictionDirection(np.full(4, 0.05), np.zeros(4)),
    "travel": FrictionDirection(np.zeros(4), np.full(4, 0.01)),
    "sign": FrictionDirection.plain(4),
    "mixed": FrictionDirection(np.array([0.05, 0.0, 0.0, 0.2]), np.array([0.0, 0.02, 0.0, 0.0])),
}


@pytest.mark.parametrize("name", LAWS)
def test_what_the_samples_hold_is_the_law_behind_scipys_low_pass(name: str) -> None:
    law, samples = LAWS[name], moved()
    state, raw = np.zeros(4), np.empty_like(samples.dq)
    follow(np.array(samples.dq), 1.0 / RATE, np.array(law.zone), np.array(law.travel), state, raw)
    seen = with_friction_direction(samples, arm(law)).direction
    expected = sosfiltfilt(butter(4, CUTOFF, fs=RATE, output="sos"), raw, axis=0, padlen=400)
    inner = slice(400, -400)
    np.testing.assert_allclose(seen[inner], expected[inner], atol=2e-6)


def test_hysteresis_solves_its_differential_equation() -> None:
    travel, amplitude, w = 0.02, 0.1, 2.0 * np.pi
    t = np.arange(0.0, 2.0, 1e-4)
    speed = (amplitude * w * np.cos(w * (t + 0.5e-4)))[:, None]  # at the middle of every step
    found, state = np.empty_like(speed), np.zeros(1)
    follow(speed, 1e-4, np.zeros(1), np.array([travel]), state, found)

    def slope(at: float, d: np.ndarray) -> np.ndarray:
        v = amplitude * w * np.cos(w * at)
        return v * (1.0 - d * np.sign(v)) / travel

    known = solve_ivp(slope, (0.0, 2.0), [0.0], t_eval=t[1:], rtol=1e-9, atol=1e-11, max_step=1e-3)
    np.testing.assert_allclose(found[:-1, 0], known.y[0], atol=2e-4)


def test_friction_holds_its_direction_while_the_motor_stands() -> None:
    speed = np.concatenate([np.full(500, 0.2), np.zeros(300), np.full(2, -0.001), np.zeros(100)])[
        :, None
    ]
    out, state = np.empty_like(speed), np.zeros(1)
    follow(speed, 0.002, np.zeros(1), np.array([0.01]), state, out)
    assert out[499] == pytest.approx(1.0, abs=1e-8)
    assert np.all(out[500:800] == out[499])
    assert 0.99 < out[-1, 0] < out[499, 0]  # it gave way by as much as it was moved


@pytest.mark.parametrize("name", ["zone", "travel", "mixed"])
@pytest.mark.parametrize("size", [1, 37, 1000])
def test_a_stream_gives_what_the_whole_gives(name: str, size: int) -> None:
    samples, robot = moved(3.0), arm(LAWS[name])
    whole = with_friction_direction(samples, robot).direction
    parts = list(
        batches_with_friction_direction(
            (samples.subset(slice(k, k + size)) for k in range(0, len(samples), size)), robot
        )
    )
    assert [len(part) for part in parts] == [
        min(size, len(samples) - k) for k in range(0, len(samples), size)
    ]
    np.testing.assert_allclose(
        np.concatenate([part.direction for part in parts]), whole, atol=1e-12
    )


def test_runs_and_gaps_begin_anew() -> None:
    samples, robot = moved(4.0), arm(LAWS["travel"])
    run = np.where(np.arange(len(samples)) < 900, 0, 1)
    cut = with_friction_direction(replace(samples, run=run), robot)
    for k in (0, 1):
        alone = with_friction_direction(samples.subset(run == k), robot)
        np.testing.assert_allclose(cut.direction[run == k], alone.direction, atol=1e-12)
    late = with_friction_direction(
        replace(samples, t=samples.t + np.where(run == 1, 1.0, 0.0)), robot
    )
    np.testing.assert_allclose(late.direction, cut.direction, atol=1e-12)


def test_a_plain_robot_is_as_it_was() -> None:
    samples = moved(2.0)
    assert with_friction_direction(samples, arm(None)) is samples
    assert samples.direction_of(arm(LAWS["zone"]).drive) is None
    found = with_friction_direction(samples, arm(LAWS["zone"]))
    assert found.direction_of(arm(LAWS["sign"]).drive) is None  # another law
    assert with_friction_direction(found, arm(LAWS["zone"])) is found or np.array_equal(
        with_friction_direction(found, arm(LAWS["zone"])).direction, found.direction
    )


def test_a_fit_with_the_law_finds_the_friction_and_one_without_does_not() -> None:
    """Torques by a law with hysteresis, low-passed as measured ones are; the columns must be what
    the low-pass shows.
    """
    law = FrictionDirection(np.zeros(4), np.full(4, 0.03))
    true = arm(law)
    values = {"viscous": np.array([0.5, 0.4, 0.3, 0.2]), "coulomb": np.array([2.0, 1.5, 1.0, 0.5])}
    true = replace(true, drive=true.drive.with_values(**values))
    samples = with_friction_direction(moved(16.0), true)
    torque = th.inverse_dynamics(true, samples.q, samples.dq, samples.ddq, rigid=True)
    torque = torque + true.drive.torque(samples.dq, samples.ddq, direction=samples.direction)
    samples = replace(samples, tau=torque)
    found = th.solve(th.information(arm(law), samples), th.LeastSquares())
    np.testing.assert_allclose(found.drive["coulomb"], values["coulomb"], rtol=1e-6)
    assert th.validate(true, samples).r2_total == pytest.approx(1.0, abs=1e-12)
    plain = th.solve(
        th.information(arm(None), replace(samples, direction=None, dry=None)), th.LeastSquares()
    )
    assert np.max(np.abs(plain.drive["coulomb"] / values["coulomb"] - 1.0)) > 0.02


def test_further_shapes_are_their_formulas_and_leave_motors_out() -> None:
    dq = np.array([[0.3, -0.2, 0.1, 0.05]])
    drive = Drive.none(4)
    for shape, expected in (
        (
            stribeck(np.array([0.1, 0.0, 0.1, 0.1])),
            np.sign(dq) * np.exp(-((dq / 0.1) ** 2)) * [1, 0, 1, 1],
        ),
        (one_sided(np.array([1.0, 1.0, 0.0, 1.0])), np.abs(dq) * [1, 1, 0, 1]),
        (quadratic(np.array([1.0, 0.0, 1.0, 1.0])), dq * np.abs(dq) * [1, 0, 1, 1]),
        (by_load(np.array([1.0, 1.0, 0.0, 1.0])), np.sign(dq) * 7.0 * [1, 1, 0, 1]),
    ):
        (column,) = drive.with_extra_term(shape).motor_columns(
            dq, 0.0 * dq, load=np.full((1, 4), -7.0)
        )[1]
        np.testing.assert_allclose(column, expected, rtol=1e-12)


def test_bad_laws_are_refused() -> None:
    with pytest.raises(UsageError, match="not both"):
        FrictionDirection(np.array([0.1]), np.array([0.1]))
    with pytest.raises(UsageError, match="from 0"):
        FrictionDirection(np.array([-0.1]), np.array([0.0]))
    with pytest.raises(UsageError, match="3 motors"):
        Drive.none(4).with_dry(FrictionDirection.plain(3))
