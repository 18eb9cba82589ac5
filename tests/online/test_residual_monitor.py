"""The watch on the model in use: quick where a robot takes something up, silent where it
does not.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from data_paths import example_robot
from online_cases import FRICTION, Run, arm, push_all, run, wrong
from online_settings import settings
from plant_cases import engine, realistic, sines, wrong_by

import thetahat as th
from thetahat.errors import UsageError
from thetahat.model.lock_joints import lock
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.config import MonitorRules
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.residual_monitor import (
    PayloadMonitor,
    PayloadReport,
    ResidualMonitor,
    false_alarm_interval,
)
from thetahat.plant.realism import DriveModel, Payload, Realism
from thetahat.plant.tracking import Tracking

MASS = 1.0  # [kg]
DRIFT, LIMIT = MonitorRules().drift, MonitorRules().limit


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return arm()


def watch(robot: th.Robot, **options: object) -> ResidualMonitor:
    return ResidualMonitor(robot, np.full(robot.nv, 0.1), MonitorRules(relative=0.0, **options))


def moving(robot: th.Robot) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    q, dq, ddq = np.array([[0.1, 0.2, 0.3, 0.4]]), np.full((1, 4), 0.8), np.zeros((1, 4))
    return q, dq, ddq, th.inverse_dynamics(robot, q, dq, ddq)


def time_to_alarm(
    one: ResidualMonitor, sample: tuple, error: float, *, period: float = 1e-3, seconds: float = 5.0
) -> float | None:
    q, dq, ddq, tau = sample
    off = tau + error * np.array([0.0, 0.0, 1.0, 0.0])
    for k in range(round(seconds / period)):
        if one.push(period * k, period, FilteredSample(q, dq, ddq, off)):
            return period * (k + 1)
    return None


# -- the sum ---------------------------------------------------------------------------------------


def test_an_error_of_three_sigma_never_alarms_and_a_larger_one_after_limit_over_excess(
    robot: th.Robot,
) -> None:
    sample = moving(robot)
    assert time_to_alarm(watch(robot), sample, DRIFT * 0.1, seconds=20.0) is None
    for sigmas in (4.0, 6.0, 13.0, -6.0):
        found = time_to_alarm(watch(robot), sample, sigmas * 0.1)
        assert found == pytest.approx(LIMIT / (abs(sigmas) - DRIFT), abs=2e-3)


def test_the_alarm_names_the_joint_and_comes_once(robot: th.Robot) -> None:
    one = watch(robot)
    assert time_to_alarm(one, moving(robot), 2.0) is not None
    assert one.alarm.joint == robot.velocity_names[2]
    assert f"joint {robot.velocity_names[2]!r}" in one.alarm.sentence
    assert one.alarm.residual == pytest.approx(2.0)
    assert time_to_alarm(one, moving(robot), 2.0) is None
    one.reset()
    assert time_to_alarm(one, moving(robot), 2.0) is not None


def test_a_still_joint_may_be_off_by_its_dry_friction(robot: th.Robot) -> None:
    q, dq, ddq, _ = moving(robot)
    zero = 0.0 * dq
    carried = th.inverse_dynamics(robot, q, zero, ddq)
    coulomb = float(robot.drive.coulomb[2])
    assert time_to_alarm(watch(robot), (q, zero, ddq, carried), 1.4 * coulomb) is None
    assert time_to_alarm(watch(robot), (q, zero, ddq, carried), 2.5 * coulomb) is not None
    assert time_to_alarm(watch(robot), moving(robot), 1.4 * coulomb) is not None


def test_a_joint_at_rest_is_no_evidence_where_friction_holds_it(robot: th.Robot) -> None:
    """How wide the band is in which friction holds a joint, nobody knows: five times the sliding
    friction raises no alarm at rest, and does in motion; without friction nothing holds it.
    """
    q, dq, ddq, tau = moving(robot)
    zero, one_way = 0.0 * dq, np.ones(robot.nv)
    carried = th.inverse_dynamics(robot, q, zero, ddq)
    left = np.zeros(robot.nv)
    left[2] = 5.0 * float(robot.drive.coulomb[2])
    held, bare = watch(robot), watch(robot.without_drive())
    bare_carried = th.inverse_dynamics(robot.without_drive(), q, zero, ddq)
    for k in range(2000):
        assert (
            held.push(k * 1e-3, 1e-3, FilteredSample(q, zero, ddq, carried + left), 0.0 * left)
            is None
        )
    alarms = [
        bare.push(k * 1e-3, 1e-3, FilteredSample(q, zero, ddq, bare_carried + left), 0.0 * left)
        for k in range(2000)
    ]
    assert any(alarms)
    moved = watch(robot)
    assert any(
        moved.push(k * 1e-3, 1e-3, FilteredSample(q, dq, ddq, tau + left), one_way)
        for k in range(2000)
    )


def test_false_alarms_of_white_noise_are_as_rare_as_stated(robot: th.Robot) -> None:
    """Siegmund's approximation, against simulated sums with a drift and a limit at which alarms can
    be waited for.
    """
    rng, block, drift, limit = np.random.default_rng(0), 0.02, 0.5, 0.08
    stated = false_alarm_interval(block / 2.0, MonitorRules(drift=drift, limit=limit))
    lengths = []
    for _ in range(200):
        high = low = 0.0
        for k in range(10**6):
            z = rng.normal()
            high, low = max(0.0, high + block * (z - drift)), max(0.0, low + block * (-z - drift))
            if max(high, low) > limit:
                lengths.append(block * (k + 1))
                break
    assert np.mean(lengths) == pytest.approx(stated, rel=0.3)
    assert false_alarm_interval(0.0159) > 1e9 * 3.15e7  # a thousand million years
    assert math.isinf(false_alarm_interval(1e-4))


def test_errors_that_come_and_go_while_the_gate_is_open_may_last(robot: th.Robot) -> None:
    """Errors of 5 σ for a third of a second, every ten seconds or so, alarm a monitor that has seen
    none; one that has seen them goes on silently, and tells of 30 σ.
    """
    q, dq, ddq, tau = moving(robot)
    rng, step = np.random.default_rng(0), 1.0 / 30.0

    def alarm(one: ResidualMonitor, seconds: float, size: float, *, learn: bool) -> bool:
        for k in range(round(seconds / step)):
            off = rng.normal(size=4) * 0.05
            off[2] += size * 0.1 * (k % 300 < 10)
            if one.push(k * step, step, FilteredSample(q, dq, ddq, tau + off)):
                return True
            if learn:
                one.learn(step)
        return False

    assert alarm(watch(robot), 60.0, 5.0, learn=False)
    one = watch(robot, limit=3.0)  # patient while it learns
    assert not alarm(one, 60.0, 5.0, learn=True)
    taught = watch(robot)
    taught.lasts[:] = one.lasts
    assert one.lasts[2] > 5.0
    assert not alarm(taught, 60.0, 5.0, learn=False)
    assert alarm(taught, 20.0, 30.0, learn=False)


def test_a_scale_that_is_none_is_refused(robot: th.Robot) -> None:
    with pytest.raises(UsageError, match=r"scale has shape \(3,\)"):
        ResidualMonitor(robot, np.ones(3))
    with pytest.raises(UsageError, match=r"link 'hnd' is not in robot 'arm4'"):
        PayloadMonitor(robot, "hnd", np.ones(4), detected=0.0)


# -- long runs without anything --------------------------------------------------------------------


def clean(seconds: float) -> OnlineIdentifier:
    """Friction with a Stribeck peak of a third, which no column explains, and other motions every
    minute.
    """
    truth = arm()
    stribeck = realistic(stribeck=tuple(0.3 * truth.drive.coulomb)).applied(truth)
    one, part = OnlineIdentifier(wrong(truth)), 60.0
    for k in range(round(seconds / part)):
        whole = run(truth, part, seed=20 + k)
        tau = th.inverse_dynamics(stribeck, whole.q, whole.dq, whole.ddq)
        push_all(
            one,
            replace(
                Run(whole.t, whole.q, whole.dq, whole.ddq, tau).noisy(0.01, 1e-3, seed=k),
                t=whole.t + k * (part + 0.5),
            ),
        )
    return one


def test_no_alarm_without_a_cause() -> None:
    one = clean(180.0)
    assert one.events.counts["alarm"] == 0
    assert one.gate.open, one.gate.reason


@pytest.mark.slow
def test_no_alarm_in_two_hours_without_a_cause() -> None:
    one = clean(7200.0)
    assert one.events.counts["alarm"] == 0
    assert one.gate.open, one.gate.reason


# -- a payload -------------------------------------------------------------------------------------


def test_a_payload_closes_the_gate_and_is_weighed_and_the_loaded_robot_is_identified_anew(
    robot: th.Robot,
) -> None:
    """An arm takes up 2 kg: the nominal model at once, the mass in two seconds, the loaded robot
    once the buffer is full again.
    """
    link = robot.body_names[-1]
    held = Payload(link, 2.0, com=(0.0, 0.15, 0.02), inertia_com=(4e-3, 0.0, 0.0, 4e-3, 0.0, 4e-3))
    before = run(robot, 30.0)
    loaded = th.inverse_dynamics(held.on(robot), before.q, before.dq, before.ddq)
    tau = np.where(before.t[:, None] < 9.0, before.tau, loaded)
    one = OnlineIdentifier(wrong(robot), rate=10.0, **settings(payload_link=link))
    stream = Run(before.t, before.q, before.dq, before.ddq, tau).noisy(0.01, 1e-3)
    masses = {}
    for t, q, dq, tau, _ in stream.rows():
        one.push(t, q, dq, tau)
        if one.payload is not None and one.payload.mass is not None:
            masses.setdefault(round(one.payload.t - 9.0, 1), one.payload.mass)
    assert 9.0 < one.alarm.t < 9.5
    assert next(e.t for e in one.events if e.kind == "closed") == one.alarm.t
    assert masses[2.0] == pytest.approx(2.0, rel=0.02)
    assert one.gate.open, one.gate.reason
    assert np.min(th.validate(one.robot, one.held_out).r2_moving) > 0.99
    assert one.robot.mass == pytest.approx(held.on(robot).mass, rel=0.2)


def weighed(model: th.Robot, tau: np.ndarray, states: tuple[np.ndarray, ...]) -> PayloadReport:
    """What is reported of four seconds of samples, the usual error being 0.05."""
    one, rng = (
        PayloadMonitor(model, model.body_names[-1], np.full(4, 0.05), detected=0.0),
        np.random.default_rng(0),
    )
    tau = tau + 0.05 * rng.normal(size=tau.shape)
    for k in range(len(tau)):
        sample = FilteredSample(*(x[k : k + 1] for x in (*states, tau)))
        one.add(sample, np.ones(4, dtype=bool))
    return one.report(4.0)


def test_the_change_of_mass_has_a_sign_and_a_lying_sensor_has_none(robot: th.Robot) -> None:
    """Letting go of 2 kg was reported as +0.60 kg held, and a dead torque sensor as 1.2581 ± 0.0025
    kg.
    """
    states = sines(robot, seed=5, duration=4.0).at(np.arange(0.0, 4.0, 0.03))
    loaded = Payload(
        robot.body_names[-1],
        2.0,
        com=(0.0, 0.15, 0.02),
        inertia_com=(4e-3, 0.0, 0.0, 4e-3, 0.0, 4e-3),
    ).on(robot)
    light, heavy = (th.inverse_dynamics(each, *states) for each in (robot, loaded))
    taken, gone = weighed(robot, heavy, states), weighed(loaded, light, states)
    assert taken.mass == pytest.approx(2.0, rel=0.01)
    assert gone.mass == pytest.approx(-2.0, rel=0.01)
    assert "heavier by 2 ±" in str(taken)
    assert "lighter by 2 ±" in str(gone)
    for j in range(4):
        for factor in (0.0, -1.0):
            lie = light.copy()
            lie[:, j] *= factor
            report = weighed(robot, lie, states)
            assert not report.explained
            assert report.mass is None
            assert str(report).startswith("not a payload on")


def test_an_alarm_says_its_units(robot: th.Robot) -> None:
    one = watch(robot)
    time_to_alarm(one, moving(robot), 2.0)
    assert "+2 N·m are left of its torque, usually 0.1 N·m" in one.alarm.sentence


def panda() -> th.Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = th.load(example_robot("panda"))
    return lock(found, [joint for joint in found.joint_names if "finger" in joint])


def real(truth: th.Robot, payload: Payload | None) -> Realism:
    """18-bit encoders without a speed sensor, torque noise of one per cent, delays, jitter; dry
    friction with a Stribeck peak of 30 %.
    """
    coulomb = np.array([0.5, 0.6, 0.5, 0.6, 0.35, 0.3, 0.25])
    drive = DriveModel(viscous=0.5 * coulomb, coulomb=coulomb, stribeck=0.3 * coulomb)
    return replace(Realism.typical(truth), payload=payload, drive=drive)


@pytest.mark.parametrize(
    ("seed", "at", "rate"),
    [(0, 10.0, 8.0), *(pytest.param(seed, 20.0, 3.0, marks=pytest.mark.slow) for seed in range(4))],
)
def test_a_panda_takes_up_a_kilogram(seed: int, at: float, rate: float) -> None:
    """MuJoCo, realistic sensors, a nominal robot off by 20 %, friction identified: detected within
    0.5 s, weighed to 2 % within 2 s.
    """
    truth = panda()
    held = Payload(
        "panda_hand",
        MASS,
        com=(0.0, 0.0, 0.08),
        inertia_com=(1e-3, 0.0, 0.0, 1e-3, 0.0, 1e-3),
        time=at,
    )
    plant = engine("mujoco")(truth, realism=real(truth, held))
    nominal = wrong_by(truth, 0.2, 1)
    record = th.simulate(
        plant, sines(truth, seed=seed, duration=at + 2.2), controller=Tracking(nominal), seed=seed
    )
    one = OnlineIdentifier(
        nominal.without_drive().with_drive(**FRICTION),
        rate=rate,
        **settings(payload_link="panda_hand"),
    )
    was_open, mass = False, None
    for t, q, tau in zip(
        record.t.tolist(), record.measured["q"], record.measured["tau"], strict=True
    ):
        one.push(t, q, None, tau)
        was_open |= t < at and one.gate.open
        assert t >= at or one.alarm is None
        if one.payload is not None and t <= at + 2.0:
            mass = one.payload.mass
    assert was_open, one.gate.reason
    assert at < one.alarm.t <= at + 0.5
    assert not one.gate.open
    assert one.robot is one.nominal
    assert mass == pytest.approx(MASS, rel=0.02)
