"""Informative samples: few say what many say, on simulated and on real logs, and the streaming buffer keeps the best of an endless stream."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import thetahat as th
from data_paths import shared_file
from thetahat.data.log import read_log
from thetahat.data.prepare import prepare
from thetahat.data.samples import MASKED, Samples
from thetahat.errors import NotIdentifiable, RobotWarning, UsageError
from thetahat.identify import factor as f
from thetahat.identify.buffer import InformativeBuffer
from thetahat.identify.columns import full_regressor
from thetahat.identify.information import Information, information
from thetahat.identify.select import Selection, informative
from thetahat.model.tree import Tree

WITHIN = 1e-3  # R², the tolerance of the issue
FRICTION = {"viscous": True, "coulomb": True, "offset": True}
MOTOR = {**FRICTION, "armature": True}

# -- robots and logs --------------------------------------------------------------------------------------------------


@cache
def panda() -> th.Robot:
    return th.load(shared_file("logs", "panda", "panda_nomesh_from_example_robot_data.urdf")).with_drive(**FRICTION)


@cache
def ur10() -> th.Robot:
    return th.load(shared_file("logs", "ur10", "ur10_nomesh.urdf")).with_drive(**FRICTION)


@cache
def pendulum() -> th.Robot:
    return th.load(shared_file("logs", "double_pendulum", "double_pendulum_C1_from_yml.urdf")).with_drive(**FRICTION)


def fourier(robot: th.Robot, rng: np.random.Generator, rows: int, *, seconds: float = 20.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Five harmonics per joint, as robots are excited: q, dq, ddq."""
    t = np.linspace(0.0, seconds, rows)[:, None, None]
    omega = 2.0 * np.pi * np.arange(1, 6) / seconds * 2.0
    a, b = rng.normal(size=(2, robot.nv, 5)) / omega
    s, c = np.sin(omega * t), np.cos(omega * t)
    return np.sum(a * s - b * c, axis=2), np.sum(omega * (a * c + b * s), axis=2), np.sum(omega**2 * (b * c - a * s), axis=2)


def simulated(robot: th.Robot, seed: int, rows: int, *, noise: float = 0.02) -> Samples:
    """A log of Fourier motion with friction, and noise that is a fiftieth of every joint's torque."""
    rng = np.random.default_rng(seed)
    q, dq, ddq = fourier(robot, rng, rows)
    drive = robot.drive.with_values(viscous=np.full(robot.nv, 0.5), coulomb=np.full(robot.nv, 0.8), offset=np.full(robot.nv, 0.1))
    tau = th.inverse_dynamics(replace(robot, drive=drive), q, dq, ddq)
    return Samples(q=q, dq=dq, ddq=ddq, tau=tau + noise * np.sqrt(np.mean(tau**2, axis=0)) * rng.normal(size=tau.shape))


def fits(info: Information) -> tuple[np.ndarray, np.ndarray]:
    """x_base by plain least squares, and with joints weighted by their residuals."""
    plain = f.solve(info.stacked()).x
    variance = info.residual_norms(plain) ** 2 / np.maximum(info.rows, 1)
    return plain, f.solve(info.stacked(1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0)))).x


def scores(info: Information, held_out: Information) -> np.ndarray:
    """Held-out R² per joint of both fits, (2, nv); 0 where it is not defined."""
    return np.array([held_out.r2_per_joint(x).filled(0.0) for x in fits(info)])


@cache
def dense(robot: th.Robot) -> np.ndarray:
    return information(robot, simulated(robot, 0, 8)).base.independent


def log_det(robot: th.Robot, samples: Samples) -> float:
    """Log-determinant of the information of samples, each column over its norm at typical states."""
    Y = full_regressor(robot, samples.q, samples.dq, samples.ddq)[:, :, dense(robot)] * samples.valid[:, :, None]
    typical = simulated(robot, 9, 500)
    scale = np.linalg.norm(full_regressor(robot, typical.q, typical.dq, typical.ddq)[:, :, dense(robot)], axis=(0, 1))
    Y = Y.reshape(-1, Y.shape[2]) / scale
    return float(np.linalg.slogdet(Y.T @ Y + 1e-12 * np.eye(Y.shape[1]))[1])


REAL = {
    "panda": ("panda/panda_nomesh_from_example_robot_data.urdf", "panda/panda_exciting_traj1.csv", 10.0, FRICTION),
    "ur10": ("ur10/ur10_nomesh.urdf", "ur10/ur10_exciting.csv", 5.0, MOTOR),
    "kr300": ("kr300/kr300_from_dh.urdf", "kr300/kr300.csv", 10.0, MOTOR),
    "tx40": ("tx40/tx40_mdh_modified.urdf", "tx40/tx40.csv", 50.0, MOTOR),
    "pendulum C1": ("double_pendulum/double_pendulum_C1_from_yml.urdf", "double_pendulum/double_pendulum_C1.csv", 5.0, MOTOR),
    "pendulum C0": ("double_pendulum/double_pendulum_C0_from_yml.urdf", "double_pendulum/double_pendulum_C0.csv", 5.0, MOTOR),
    "pendulum A0": ("double_pendulum/double_pendulum_A0_from_yml.urdf", "double_pendulum/double_pendulum_A0.csv", 5.0, MOTOR),
}


@cache
def real(name: str) -> tuple[th.Robot, Samples, Samples]:
    """(robot, training samples, held-out samples) of a real log, with the splits and cut-offs of its SOURCE.md."""
    urdf, csv, cutoff, terms = REAL[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)  # C0's published parameters are unphysical
        robot = th.load(shared_file("logs", *urdf.split("/")))
    if name == "tx40":  # joints 5 and 6 share motor 6
        B = np.eye(6)
        B[4, 5] = 1.0
        robot = robot.with_actuation(B)
    robot = robot.with_drive(**terms)
    samples = prepare(read_log(shared_file("logs", *csv.split("/")), robot), robot, cutoff=cutoff)
    if name == "kr300":
        return robot, *samples.split_runs([0, 1], [2])
    if name.startswith("pendulum"):
        return robot, *samples.split_runs([run for run in np.unique(samples.run) if run % 2 == 0])
    return robot, *samples.split(0.5)


# -- the estimate is that of all samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", [panda, ur10])
def test_five_percent_of_a_rich_log_fit_like_all_of_it(robot) -> None:
    robot = robot()
    train, held_out = simulated(robot, 1, 6000), information(robot, simulated(robot, 2, 3000))
    selection = informative(robot, train, 300)
    full, chosen = (scores(info, held_out) for info in (information(robot, train), selection.information(robot, train)))
    assert len(selection) == 300
    assert selection.rank == selection.full_rank == len(held_out.base)
    assert np.max(np.abs(full - chosen)) < WITHIN


@pytest.mark.parametrize("name", REAL)
def test_on_a_real_log_it_is_no_worse_than_every_twentieth_sample(name: str) -> None:
    robot, train, test = real(name)
    held_out, count = information(robot, test), len(range(0, len(train), 20))
    full, chosen = (scores(info, held_out) for info in (information(robot, train), informative(robot, train, count).information(robot, train)))
    every = [scores(information(robot, train.subset(slice(first, None, 20))), held_out) for first in (0, 5, 10, 15)]
    # Thinning may beat the fit to all samples by luck; that is not owed.
    assert np.all(chosen > np.minimum(full, every[0]) - WITHIN)
    assert np.min(chosen - full) > np.mean([np.min(thinned - full) for thinned in every]) - WITHIN / 10.0


def test_greedy_d_optimality_picks_outliers() -> None:
    """Why leverage is sampled and not maximised: the same number of samples by greedy log-determinant fit far worse."""
    robot, train, test = real("ur10")
    held_out, info = information(robot, test), information(robot, train)
    Y = full_regressor(robot, train.q, train.dq, train.ddq)[:, :, info.base.independent] * train.valid[:, :, None]
    U = Y @ info.solution.inverse
    P, count, chosen, free = 1e6 * np.eye(U.shape[2]), len(range(0, len(train), 20)), [], np.ones(len(train), dtype=bool)
    for _ in range(count):
        gain = np.linalg.slogdet(np.eye(robot.nv) + U @ P @ U.transpose(0, 2, 1))[1]
        best = int(np.argmax(np.where(free, gain, -1.0)))
        T = U[best] @ P
        P -= T.T @ np.linalg.solve(np.eye(robot.nv) + T @ U[best].T, T)
        free[best] = False
        chosen.append(best)
    full, greedy, ours = (
        scores(x, held_out)
        for x in (info, information(robot, train.subset(np.sort(chosen))), informative(robot, train, count).information(robot, train))
    )
    assert np.min(greedy - full) < -0.02 < -2.0 * WITHIN < np.min(ours - full)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-5])
def test_without_a_count_it_takes_what_the_tolerance_needs(tolerance: float) -> None:
    robot, train = ur10(), simulated(ur10(), 3, 4000)
    selection = informative(robot, train, tolerance=tolerance)
    assert selection.worst_loss <= tolerance
    assert len(selection) < len(train) / 4


def test_the_certificate_is_what_lstsq_finds() -> None:
    """`loss` is the R² on all samples that the weighted fit loses, by NumPy on the whole stacked regressor."""
    robot, train = pendulum(), simulated(pendulum(), 4, 900, noise=0.3)
    selection = informative(robot, train, 12)
    Y = full_regressor(robot, train.q, train.dq, train.ddq)
    w = selection.weights[:, None]
    chosen = np.linalg.lstsq((w[:, :, None] * Y[selection.rows]).reshape(-1, Y.shape[2]), (w * train.tau[selection.rows]).ravel(), rcond=1e-10)[0]
    best = np.linalg.lstsq(Y.reshape(-1, Y.shape[2]), train.tau.ravel(), rcond=1e-10)[0]
    r2 = [1.0 - np.sum((train.tau - Y @ x) ** 2, axis=0) / np.sum(train.tau**2, axis=0) for x in (best, chosen)]
    loss = r2[0] - r2[1]
    assert np.max(np.abs(loss)) > 1e-4  # there is something to certify
    assert np.all(selection.loss >= loss - 1e-9)  # the worse of two fits, of which this is one
    plain, joint = (information(robot, train).r2_per_joint(x) for x in fits(selection.information(robot, train)))
    assert np.allclose(np.minimum(plain, joint), np.minimum(r2[1], joint), atol=1e-9)


# -- laws -------------------------------------------------------------------------------------------------------------


def test_all_samples_with_weight_one_are_the_full_fit() -> None:
    robot, train = ur10(), simulated(ur10(), 5, 700)
    for count in (700, 5000):
        selection = informative(robot, train, count)
        assert np.array_equal(selection.rows, np.arange(700))
        assert np.all(selection.weights == 1.0)
        for mine, full in zip(selection.information(robot, train).factors, information(robot, train).factors, strict=True):
            assert np.allclose(mine, full, rtol=0.0, atol=1e-12 * np.max(np.abs(full)))


def test_the_unit_of_length_does_not_matter() -> None:
    """In millimetres the columns are 1, 1e3 and 1e6 times what they were, and the torques 1e6 times; the choice is the same."""
    robot, train = ur10(), simulated(ur10(), 6, 800)
    nodes = tuple(replace(node, translation=1e3 * node.translation) for node in robot.tree.nodes)
    small = th.Robot(robot.name, Tree(nodes), robot.theta, robot.drive, gravity=1e3 * robot.gravity)
    a, b = informative(robot, train, 80), informative(small, replace(train, tau=1e6 * train.tau), 80)
    assert np.array_equal(a.rows, b.rows)
    assert np.allclose(a.weights, b.weights, rtol=1e-6)


def test_it_is_deterministic_and_threads_do_not_matter() -> None:
    robot, train = ur10(), simulated(ur10(), 7, 3000)
    a, b, c = (informative(robot, train, 150, threads=threads) for threads in (2, 2, 1))
    assert np.array_equal(a.rows, b.rows)
    assert np.array_equal(a.weights, b.weights)
    assert np.array_equal(a.rows, c.rows)
    assert np.allclose(a.weights, c.weights, rtol=1e-6)


def test_leverage_is_the_hat_matrix_of_pinocchios_regressor() -> None:
    """Shares in the information do not depend on whose columns span it: the diagonal of the projector on Pinocchio's, summed per sample."""
    bridge = pytest.importorskip("oracles.pinocchio_bridge")
    from thetahat.identify.select import UNIFORM, _Source

    robot = th.load(shared_file("logs", "ur10", "ur10_nomesh.urdf"))
    rng = np.random.default_rng(8)
    q, dq, ddq = fourier(robot, rng, 60)
    samples = Samples(q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(robot, q, dq, ddq) + rng.normal(size=q.shape))
    source = _Source.of(robot, samples, None)
    rows = bridge.from_robot(robot).regressor(q, dq, ddq) * source.joint.weights[:, None]
    U, s, _ = np.linalg.svd(rows.reshape(-1, rows.shape[2]), full_matrices=False)
    share = np.sum(U[:, s > 1e-9 * s[0]] ** 2, axis=1).reshape(60, -1).sum(axis=1)
    leverage = (source.mass - UNIFORM / 60.0) / (1.0 - UNIFORM) * source.rank
    assert np.allclose(leverage, share, rtol=1e-8)


@pytest.mark.parametrize("count", [11, 12, 15, 25, 60])
def test_rank_is_kept_however_few_are_chosen(count: int) -> None:
    """54 directions over 6 rows per sample: 9 samples at the least. A joint that moves in four rows alone is not overlooked."""
    robot, train = ur10(), simulated(ur10(), 10, 2000)
    dq = train.dq.copy()
    dq[:, 5] = 0.0
    dq[[3, 700, 701, 1900], 5] = [0.5, -0.5, 1.0, -0.8]
    train = replace(train, dq=dq)
    selection = informative(robot, train, count)
    assert len(selection) == count
    assert selection.rank == selection.full_rank
    assert selection.information(robot, train).rank == information(robot, train).rank


def test_too_few_samples_are_an_error_that_says_so() -> None:
    robot, train = ur10(), simulated(ur10(), 10, 500)
    with pytest.raises(NotIdentifiable, match=r"^5 samples keep rank \d+ of the \d+ that all 500 show; choose more"):
        informative(robot, train, 5)


def test_what_is_marked_unusable_does_not_count() -> None:
    robot, train = ur10(), simulated(ur10(), 11, 1500)
    reason = np.zeros(train.tau.shape, dtype=np.uint8)
    reason[500:1000] = MASKED
    reason[::3, 2] = MASKED
    wild, tame = (replace(train, reason=reason, tau=np.where(reason > 0, value, train.tau)) for value in (1e9, 0.0))
    a, b = informative(robot, wild, 100), informative(robot, tame, 100)
    assert not np.any((a.rows >= 500) & (a.rows < 1000))
    assert np.array_equal(a.rows, b.rows)
    assert np.allclose(a.weights, b.weights)


def test_weights_stand_for_the_samples_left_out() -> None:
    robot, train = panda(), simulated(panda(), 12, 4000)
    selection = informative(robot, train, 200)
    assert np.all(np.diff(selection.rows) > 0)
    assert np.all(selection.weights > 0.0)
    assert np.sum(selection.weights**2) == pytest.approx(4000, rel=0.15)
    low, high = selection.spread
    assert 0.1 < low < 1.0 < high < 3.0
    assert "200 of 4000 samples" in str(selection)


def test_noise_free_samples_and_still_joints_are_no_trouble() -> None:
    robot, train = ur10(), simulated(ur10(), 13, 400, noise=0.0)
    selection = informative(robot, train, 40)
    assert selection.worst_loss < 1e-12
    q = np.tile(train.q[:1], (400, 1))
    still = Samples(q=q, dq=np.zeros_like(q), ddq=np.zeros_like(q), tau=np.tile(train.tau[:1], (400, 1)))
    selection = informative(robot, still, 20)
    assert len(selection) == 20
    assert np.all(np.isfinite(selection.weights))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count is 0; give"),
        ({"count": 2.5}, "count is 2.5; give"),
        ({"count": True}, "count is True; give"),
        ({"tolerance": 0.0}, "tolerance is 0.0; give"),
        ({"tolerance": float("nan")}, "tolerance is nan; give"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        informative(pendulum(), simulated(pendulum(), 0, 50), **arguments)


def test_samples_without_a_usable_torque_are_refused() -> None:
    samples = simulated(pendulum(), 0, 50)
    with pytest.raises(NotIdentifiable, match="none of the 50 samples has a usable torque"):
        informative(pendulum(), replace(samples, reason=np.full(samples.tau.shape, MASKED, dtype=np.uint8)), 10)
    selection: Selection = informative(pendulum(), samples, 20)
    with pytest.raises(UsageError, match="from 50 samples, not from these 49"):
        selection.information(pendulum(), samples.subset(slice(49)))


# -- the streaming buffer ---------------------------------------------------------------------------------------------


def feed(buffer: InformativeBuffer, samples: Samples, rows: range | None = None) -> np.ndarray:
    """Push rows; which were kept."""
    rows = range(len(samples)) if rows is None else rows
    return np.array([buffer.push(samples.q[i], samples.dq[i], samples.ddq[i], samples.tau[i]) for i in rows])


def then_stands_still(robot: th.Robot, seed: int, moving: int, still: int) -> Samples:
    """Motion, then the same pose for long, with the noise of a real standstill."""
    samples, rng = simulated(robot, seed, moving), np.random.default_rng(seed)
    q = np.concatenate([samples.q, samples.q[-1] + 1e-4 * rng.normal(size=(still, robot.nq))])
    dq = np.concatenate([samples.dq, 1e-3 * rng.normal(size=(still, robot.nv))])
    ddq = np.concatenate([samples.ddq, 1e-2 * rng.normal(size=(still, robot.nv))])
    drive = robot.drive.with_values(viscous=np.full(robot.nv, 0.5), coulomb=np.full(robot.nv, 0.8), offset=np.full(robot.nv, 0.1))
    tau = th.inverse_dynamics(replace(robot, drive=drive), q, dq, ddq)
    tau[:moving] = samples.tau
    tau[moving:] += 0.02 * np.sqrt(np.mean(samples.tau**2, axis=0)) * rng.normal(size=(still, robot.nv))
    return Samples(q=q, dq=dq, ddq=ddq, tau=tau)


def test_a_long_standstill_does_not_wash_the_buffer_out() -> None:
    robot, size = ur10(), 100
    samples = then_stands_still(robot, 20, 800, 700)
    buffer = InformativeBuffer(robot, size)
    feed(buffer, samples)
    window = samples.subset(slice(len(samples) - size, None))
    assert len(buffer.samples) == size
    assert log_det(robot, buffer.samples) > log_det(robot, window) + 100.0
    assert log_det(robot, buffer.samples) > log_det(robot, samples.subset(slice(0, 800, 8)))  # better than thinning
    held_out = information(robot, simulated(robot, 21, 1000))
    assert buffer.information().rank == len(held_out.base)
    assert np.min(scores(buffer.information(), held_out) - scores(information(robot, samples.subset(slice(800))), held_out)) > -0.01


def test_updates_stay_true_over_many_pushes() -> None:
    """log_det follows by thousands of updates; the samples held say what it is."""
    robot = pendulum()
    buffer = InformativeBuffer(robot, 40)
    samples = simulated(robot, 22, 5000)
    for part in range(0, 5000, 1000):
        feed(buffer, samples, range(part, part + 1000))
        A = np.concatenate([buffer._weights[:, None] * buffer._rows(*state) for state in zip(*buffer._state[:3], strict=True)])
        exact = np.linalg.slogdet(A.T @ A + buffer._ridge * np.eye(A.shape[1]))[1]
        assert buffer.log_det == pytest.approx(exact, abs=1e-8)
        own = np.linalg.lstsq(A * buffer._scale**-1, (buffer._state[3] * buffer._weights).ravel(), rcond=None)[0]
        assert np.allclose(buffer.x_base, own, atol=1e-4 * np.max(np.abs(own)))
    assert buffer.counts.kept > 200


def test_a_new_sample_is_kept_only_if_it_adds_more_than_it_costs() -> None:
    """Without the guard and with weights that stand still, log-det never falls, and what is turned away could not have raised it."""
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
            joined = [np.concatenate([getattr(held, name), getattr(samples, name)[i : i + 1]]) for name in ("q", "dq", "ddq", "tau")]
            swaps = [np.setdiff1d(np.arange(size + 1), k) for k in range(size)]
            both = Samples(**dict(zip(("q", "dq", "ddq", "tau"), joined, strict=True)))
            assert max(log_det(robot, both.subset(rows)) for rows in swaps[:: size // 3]) <= before + 0.01
        before = now


def test_spikes_are_turned_away() -> None:
    robot, rng = ur10(), np.random.default_rng(24)
    samples = simulated(robot, 24, 1500)
    spiked = rng.random(1500) < 0.03
    tau = samples.tau + spiked[:, None] * np.sqrt(np.mean(samples.tau**2, axis=0)) * np.where(rng.random((1500, 6)) < 0.5, -1.0, 1.0)  # 50σ
    buffer = InformativeBuffer(robot, 80)
    kept = feed(buffer, replace(samples, tau=tau))
    assert not np.any(kept[200:] & spiked[200:])
    assert np.sum(spiked[200:]) <= buffer.counts.outliers <= np.sum(spiked) + 30  # of 1500, few for nothing
    assert buffer.counts.changes == 0


def test_spikes_that_got_in_before_there_was_a_fit_are_let_go() -> None:
    """Even where they are the most informative samples: the robot moves fast at first, then slowly for good."""
    robot = ur10()
    samples = simulated(robot, 32, 600)
    pace = np.where(np.arange(600) < 80, 1.0, 0.3)[:, None]
    drive = robot.drive.with_values(viscous=np.full(6, 0.5), coulomb=np.full(6, 0.8), offset=np.full(6, 0.1))
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
    theta[-10:] += th.from_pinocchio(np.array([3.0, 0.1, 0.2, 0.3, 0.05, 0.0, 0.05, 0.0, 0.0, 0.05]))
    loaded = robot.with_parameters(theta)
    before, after, held_out = simulated(robot, 25, 600), simulated(loaded, 26, 600), information(robot, simulated(loaded, 27, 600))
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
    assert not wild.push(samples.q[0], samples.dq[0], samples.ddq[0], samples.tau[0], valid=[False, False])


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
        ({"size": 2}, r"size is 2; give at least 6 samples: 12 base parameters over 2 degrees of freedom"),
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
