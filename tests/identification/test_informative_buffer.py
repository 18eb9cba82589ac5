"""The streaming buffer keeps the best of an endless stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from selection_cases import log_det, pendulum, scores, simulated, ur10

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification.information import information
from thetahat.identification.informative.informative_buffer import InformativeBuffer

# -- the streaming buffer --------------------------------------------------------------------------


def feed(buffer: InformativeBuffer, samples: Samples, rows: range | None = None) -> np.ndarray:
    """Push rows; which were kept."""
    rows = range(len(samples)) if rows is None else rows
    return np.array(
        [buffer.push(samples.q[i], samples.dq[i], samples.ddq[i], samples.tau[i]) for i in rows]
    )


def then_stands_still(robot: th.Robot, seed: int, moving: int, still: int) -> Samples:
    """Motion, then the same pose for long, with the noise of a real standstill."""
    samples, rng = simulated(robot, seed, moving), np.random.default_rng(seed)
    q = np.concatenate([samples.q, samples.q[-1] + 1e-4 * rng.normal(size=(still, robot.nq))])
    dq = np.concatenate([samples.dq, 1e-3 * rng.normal(size=(still, robot.nv))])
    ddq = np.concatenate([samples.ddq, 1e-2 * rng.normal(size=(still, robot.nv))])
    drive = robot.drive.with_values(
        viscous=np.full(robot.nv, 0.5),
        coulomb=np.full(robot.nv, 0.8),
        offset=np.full(robot.nv, 0.1),
    )
    tau = th.inverse_dynamics(replace(robot, drive=drive), q, dq, ddq)
    tau[:moving] = samples.tau
    tau[moving:] += (
        0.02 * np.sqrt(np.mean(samples.tau**2, axis=0)) * rng.normal(size=(still, robot.nv))
    )
    return Samples(q=q, dq=dq, ddq=ddq, tau=tau)


def test_a_long_standstill_does_not_wash_the_buffer_out() -> None:
    robot, size = ur10(), 100
    samples = then_stands_still(robot, 20, 800, 700)
    buffer = InformativeBuffer(robot, size)
    feed(buffer, samples)
    window = samples.subset(slice(len(samples) - size, None))
    assert len(buffer.samples) == size
    assert log_det(robot, buffer.samples) > log_det(robot, window) + 100.0
    assert log_det(robot, buffer.samples) > log_det(
        robot, samples.subset(slice(0, 800, 8))
    )  # better than thinning
    held_out = information(robot, simulated(robot, 21, 1000))
    assert buffer.information().rank == len(held_out.base)
    assert (
        np.min(
            scores(buffer.information(), held_out)
            - scores(information(robot, samples.subset(slice(800))), held_out)
        )
        > -0.01
    )


def test_updates_stay_true_over_many_pushes() -> None:
    """log_det follows by thousands of updates; the samples held say what it is."""
    robot = pendulum()
    buffer = InformativeBuffer(robot, 40)
    samples = simulated(robot, 22, 5000)
    for part in range(0, 5000, 1000):
        feed(buffer, samples, range(part, part + 1000))
        A = np.concatenate(
            [
                buffer._weights[:, None] * buffer._rows(*state)
                for state in zip(*buffer._state[:3], strict=True)
            ]
        )
        exact = np.linalg.slogdet(A.T @ A + buffer._ridge * np.eye(A.shape[1]))[1]
        assert buffer.log_det == pytest.approx(exact, abs=1e-8)
        own = np.linalg.lstsq(
            A * buffer._scale**-1, (buffer._state[3] * buffer._weights).ravel(), rcond=None
        )[0]
        assert np.allclose(buffer.x_base, own, atol=1e-4 * np.max(np.abs(own)))
    assert buffer.counts.kept > 200


def test_a_new_sample_is_kept_only_if_it_adds_more_than_it_costs() -> None:
    """Without the guard and with weights that stand still, log-det never falls, and what is turned
    away could not have raised it.
    """
    robot, size = pendulum(), 12
    samples = simulated(robot, 23, 400)
    buffer = InformativeBuffer(robot, size, outlier=np.inf)
    buffer._weigh = lambda: None
    feed(buffer, samples, range(size))
    before = log_det(robot, buffer.samples)
    for i in range(size, 200):
        held = buffer.samples
        kept = feed(buffer, samples, range(i, i + 1))[0]
        now = log_det(robot, buffer.samples)
        assert now >= before - 1e-6
        if not kept:
            joined = [
                np.concatenate([getattr(held, name), getattr(samples, name)[i : i + 1]])
                for name in ("q", "dq", "ddq", "tau")
            ]
            swaps = [np.setdiff1d(np.arange(size + 1), k) for k in range(size)]
            both = Samples(**dict(zip(("q", "dq", "ddq", "tau"), joined, strict=True)))
            assert (
                max(log_det(robot, both.subset(rows)) for rows in swaps[:: size // 3])
                <= before + 0.01
            )
        before = now


def test_spikes_are_turned_away() -> None:
    robot, rng = ur10(), np.random.default_rng(24)
    samples = simulated(robot, 24, 1500)
    spiked = rng.random(1500) < 0.03
    tau = samples.tau + spiked[:, None] * np.sqrt(np.mean(samples.tau**2, axis=0)) * np.where(
        rng.random((1500, 6)) < 0.5, -1.0, 1.0
    )  # 50σ
    buffer = InformativeBuffer(robot, 80)
    kept = feed(buffer, replace(samples, tau=tau))
    assert not np.any(kept[200:] & spiked[200:])
    assert (
        np.sum(spiked[200:]) <= buffer.counts.outliers <= np.sum(spiked) + 30
    )  # of 1500, few for nothing
    assert buffer.counts.changes == 0


def test_spikes_that_got_in_before_there_was_a_fit_are_let_go() -> None:
    """Even where they are the most informative samples: the robot moves fast at first, then slowly
    for good.
    """
    robot = ur10()
    samples = simulated(robot, 32, 600)
    pace = np.where(np.arange(600) < 80, 1.0, 0.3)[:, None]
    drive = robot.drive.with_values(
        viscous=np.full(6, 0.5), coulomb=np.full(6, 0.8), offset=np.full(6, 0.1)
    )
    dq, ddq = pace * samples.dq, pace**2 * samples.ddq
    tau = th.inverse_dynamics(replace(robot, drive=drive), samples.q, dq, ddq)
    spread = 0.02 * np.sqrt(np.mean(tau**2, axis=0))
    tau += spread * np.random.default_rng(32).normal(size=tau.shape)
    tau[[10, 35, 60]] += 50.0 * spread
    buffer = InformativeBuffer(robot, 80)
    feed(buffer, Samples(q=samples.q, dq=dq, ddq=ddq, tau=tau))
    held = {row.tobytes() for row in buffer.samples.tau}
    assert sum(row.tobytes() in held for row in tau[:80]) > 20  # most of the fast samples stay
    assert not any(row.tobytes() in held for row in tau[[10, 35, 60]])


def test_a_payload_taken_up_is_not_locked_out() -> None:
    robot, size = ur10(), 80
    theta = robot.theta.copy()
    theta[-10:] += th.from_pinocchio(
        np.array([3.0, 0.1, 0.2, 0.3, 0.05, 0.0, 0.05, 0.0, 0.0, 0.05])
    )
    loaded = robot.with_parameters(theta)
    before, after, held_out = (
        simulated(robot, 25, 600),
        simulated(loaded, 26, 600),
        information(robot, simulated(loaded, 27, 600)),
    )
    buffer = InformativeBuffer(robot, size)
    feed(buffer, before)
    assert buffer.counts.changes == 0
    assert np.min(scores(buffer.information(), held_out)) < 0.9
    feed(buffer, after)
    assert buffer.counts.changes == 1
    assert buffer.counts.outliers < 100
    assert np.min(scores(buffer.information(), held_out)) > 0.99


def test_forget_renews_the_buffer_and_keeps_its_rank() -> None:
    robot, size = pendulum(), 20
    samples = simulated(robot, 28, 200)
    buffer = InformativeBuffer(robot, size)
    feed(buffer, samples, range(100))
    buffer.forget()
    for i in range(100, 100 + size):
        assert buffer.push(samples.q[i], samples.dq[i], samples.ddq[i], samples.tau[i])
        assert buffer.information().rank == len(buffer.information().base)
    assert np.array_equal(buffer.samples.tau, samples.tau[100 : 100 + size])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("which", range(4))
def test_what_is_not_finite_is_refused_and_leaves_no_trace(value: float, which: int) -> None:
    robot = pendulum()
    samples = simulated(robot, 29, 60)
    a, b = (InformativeBuffer(robot, 20) for _ in range(2))
    for i in range(60):
        state = [samples.q[i], samples.dq[i], samples.ddq[i], samples.tau[i]]
        b.push(*state)
        if i in (0, 5, 40):
            state[which] = np.array([value, 0.0])
            assert value == 1e300 or not a.push(*state)
        assert a.push(samples.q[i], samples.dq[i], samples.ddq[i], samples.tau[i]) in (True, False)
    if value != 1e300:
        assert a.counts.refused == 3
        assert np.array_equal(a.samples.tau, b.samples.tau)
        assert a.log_det == b.log_det
    assert np.isfinite(a.log_det)


def test_memory_does_not_grow() -> None:
    robot = pendulum()
    buffer = InformativeBuffer(robot, 30)

    def size() -> int:
        arrays = [value for value in vars(buffer).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in (*arrays, *buffer._state))

    start = size()
    feed(buffer, simulated(robot, 30, 500))
    assert size() == start
    assert len(buffer) == len(buffer.samples) == 30


def test_torques_marked_unusable_do_not_count() -> None:
    robot = pendulum()
    samples, valid = simulated(robot, 31, 200), np.ones((200, 2), dtype=bool)
    valid[::3, 1] = False
    wild, tame = (InformativeBuffer(robot, 180) for _ in range(2))
    for buffer, value in ((wild, 1e6), (tame, 0.0)):
        tau = np.where(valid, samples.tau, value)
        for i in range(200):
            buffer.push(samples.q[i], samples.dq[i], samples.ddq[i], tau[i], valid=valid[i])
    assert np.array_equal(wild.x_base, tame.x_base)
    assert np.array_equal(wild.samples.q, tame.samples.q)
    assert 0 < np.sum(~wild.samples.valid) == np.sum(wild.samples.tau[:, 1] == 1e6)
    assert wild.information().rows[1] == np.sum(wild.samples.valid[:, 1])
    assert not wild.push(
        samples.q[0], samples.dq[0], samples.ddq[0], samples.tau[0], valid=[False, False]
    )


def test_a_robot_that_never_moves_fills_the_buffer_and_no_more() -> None:
    robot = ur10()
    buffer = InformativeBuffer(robot, 30)
    kept = [buffer.push(np.zeros(6), np.zeros(6), np.zeros(6), np.ones(6)) for _ in range(200)]
    assert all(kept[:30])
    assert not any(kept[30:])
    assert np.isfinite(buffer.log_det)
    assert np.all(np.isfinite(buffer.x_base))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"size": 2},
            r"size is 2; give at least 6 samples: 12 base parameters over 2 degrees of freedom",
        ),
        ({"size": 20.0}, "size is 20.0; give"),
        ({"size": 20, "outlier": 0.0}, "outlier is 0.0; give"),
        ({"size": 20, "patience": 0}, "patience is 0; give"),
    ],
)
def test_a_bad_buffer_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        InformativeBuffer(pendulum(), **arguments)


def test_a_sample_of_the_wrong_shape_is_an_error() -> None:
    buffer = InformativeBuffer(pendulum(), 20)
    with pytest.raises(UsageError, match=r"dq has shape \(3,\); expected \(2,\), one sample"):
        buffer.push(np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2))
    with pytest.raises(UsageError, match="tau is not an array of numbers"):
        buffer.push(np.zeros(2), np.zeros(2), np.zeros(2), ["a", "b"])
    with pytest.raises(UsageError, match=r"valid has shape \(3,\)"):
        buffer.push(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2), valid=[True, True, True])
