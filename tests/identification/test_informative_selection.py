"""Informative samples: few say what many say, on simulated and on real logs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from data_paths import example_robot
from selection_cases import (
    REAL,
    WITHIN,
    fits,
    fourier,
    panda,
    pendulum,
    real,
    scores,
    simulated,
    ur10,
)

import thetahat as th
from thetahat.data.samples import MASKED, Samples
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification.information import information
from thetahat.identification.informative.selection import Selection, informative
from thetahat.identification.parameter_columns import full_regressor
from thetahat.model.tree import Tree

# -- the estimate is that of all samples -----------------------------------------------------------


@pytest.mark.parametrize("robot", [panda, ur10])
def test_five_percent_of_a_rich_log_fit_like_all_of_it(robot) -> None:
    robot = robot()
    train, held_out = simulated(robot, 1, 6000), information(robot, simulated(robot, 2, 3000))
    selection = informative(robot, train, 300)
    full, chosen = (
        scores(info, held_out)
        for info in (information(robot, train), selection.information(robot, train))
    )
    assert len(selection) == 300
    assert selection.rank == selection.full_rank == len(held_out.base)
    assert np.max(np.abs(full - chosen)) < WITHIN


@pytest.mark.parametrize("name", REAL)
def test_on_a_real_log_it_is_no_worse_than_every_twentieth_sample(name: str) -> None:
    robot, train, test = real(name)
    held_out, count = information(robot, test), len(range(0, len(train), 20))
    full, chosen = (
        scores(info, held_out)
        for info in (
            information(robot, train),
            informative(robot, train, count).information(robot, train),
        )
    )
    every = [
        scores(information(robot, train.subset(slice(first, None, 20))), held_out)
        for first in (0, 5, 10, 15)
    ]
    # Thinning may beat the fit to all samples by luck; that is not owed.
    assert np.all(chosen > np.minimum(full, every[0]) - WITHIN)
    assert (
        np.min(chosen - full)
        > np.mean([np.min(thinned - full) for thinned in every]) - WITHIN / 10.0
    )


def test_greedy_d_optimality_picks_outliers() -> None:
    """Why leverage is sampled and not maximised: the same number of samples by greedy
    log-determinant fit far worse.
    """
    robot, train, test = real("ur10")
    held_out, info = information(robot, test), information(robot, train)
    Y = (
        full_regressor(robot, train.q, train.dq, train.ddq)[:, :, info.base.independent]
        * train.valid[:, :, None]
    )
    U = Y @ info.solution.inverse
    P, count, chosen, free = (
        1e6 * np.eye(U.shape[2]),
        len(range(0, len(train), 20)),
        [],
        np.ones(len(train), dtype=bool),
    )
    for _ in range(count):
        gain = np.linalg.slogdet(np.eye(robot.nv) + U @ P @ U.transpose(0, 2, 1))[1]
        best = int(np.argmax(np.where(free, gain, -1.0)))
        T = U[best] @ P
        P -= T.T @ np.linalg.solve(np.eye(robot.nv) + T @ U[best].T, T)
        free[best] = False
        chosen.append(best)
    full, greedy, ours = (
        scores(x, held_out)
        for x in (
            info,
            information(robot, train.subset(np.sort(chosen))),
            informative(robot, train, count).information(robot, train),
        )
    )
    assert np.min(greedy - full) < -0.02 < -2.0 * WITHIN < np.min(ours - full)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-5])
def test_without_a_count_it_takes_what_the_tolerance_needs(tolerance: float) -> None:
    robot, train = ur10(), simulated(ur10(), 3, 4000)
    selection = informative(robot, train, tolerance=tolerance)
    assert selection.worst_loss <= tolerance
    assert len(selection) < len(train) / 4


def test_the_certificate_is_what_lstsq_finds() -> None:
    """`loss` is the R² on all samples that the weighted fit loses, by NumPy on the whole stacked
    regressor.
    """
    robot, train = pendulum(), simulated(pendulum(), 4, 900, noise=0.3)
    selection = informative(robot, train, 12)
    Y = full_regressor(robot, train.q, train.dq, train.ddq)
    w = selection.weights[:, None]
    chosen = np.linalg.lstsq(
        (w[:, :, None] * Y[selection.rows]).reshape(-1, Y.shape[2]),
        (w * train.tau[selection.rows]).ravel(),
        rcond=1e-10,
    )[0]
    best = np.linalg.lstsq(Y.reshape(-1, Y.shape[2]), train.tau.ravel(), rcond=1e-10)[0]
    r2 = [
        1.0 - np.sum((train.tau - Y @ x) ** 2, axis=0) / np.sum(train.tau**2, axis=0)
        for x in (best, chosen)
    ]
    loss = r2[0] - r2[1]
    assert np.max(np.abs(loss)) > 1e-4  # there is something to certify
    assert np.all(selection.loss >= loss - 1e-9)  # the worse of two fits, of which this is one
    plain, joint = (
        information(robot, train).r2_per_joint(x) for x in fits(selection.information(robot, train))
    )
    assert np.allclose(np.minimum(plain, joint), np.minimum(r2[1], joint), atol=1e-9)


# -- laws ------------------------------------------------------------------------------------------


def test_all_samples_with_weight_one_are_the_full_fit() -> None:
    robot, train = ur10(), simulated(ur10(), 5, 700)
    for count in (700, 5000):
        selection = informative(robot, train, count)
        assert np.array_equal(selection.rows, np.arange(700))
        assert np.all(selection.weights == 1.0)
        for mine, full in zip(
            selection.information(robot, train).factors,
            information(robot, train).factors,
            strict=True,
        ):
            assert np.allclose(mine, full, rtol=0.0, atol=1e-12 * np.max(np.abs(full)))


def test_the_unit_of_length_does_not_matter() -> None:
    """In millimetres the columns are 1, 1e3 and 1e6 times what they were, and the torques 1e6
    times; the choice is the same.
    """
    robot, train = ur10(), simulated(ur10(), 6, 800)
    nodes = tuple(replace(node, translation=1e3 * node.translation) for node in robot.tree.nodes)
    small = th.Robot(robot.name, Tree(nodes), robot.theta, robot.drive, gravity=1e3 * robot.gravity)
    a, b = (
        informative(robot, train, 80),
        informative(small, replace(train, tau=1e6 * train.tau), 80),
    )
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
    """Shares in the information do not depend on whose columns span it: the diagonal of the
    projector on Pinocchio's, summed per sample.
    """
    bridge = pytest.importorskip("oracles.pinocchio_bridge")
    from thetahat.identification.informative.selection import UNIFORM, _Source

    robot = th.load(example_robot("ur10"))
    rng = np.random.default_rng(8)
    q, dq, ddq = fourier(robot, rng, 60)
    samples = Samples(
        q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(robot, q, dq, ddq) + rng.normal(size=q.shape)
    )
    source = _Source.of(robot, samples, None)
    rows = bridge.from_robot(robot).regressor(q, dq, ddq) * source.joint.weights[:, None]
    U, s, _ = np.linalg.svd(rows.reshape(-1, rows.shape[2]), full_matrices=False)
    share = np.sum(U[:, s > 1e-9 * s[0]] ** 2, axis=1).reshape(60, -1).sum(axis=1)
    leverage = (source.mass - UNIFORM / 60.0) / (1.0 - UNIFORM) * source.rank
    assert np.allclose(leverage, share, rtol=1e-8)


@pytest.mark.parametrize("count", [11, 12, 15, 25, 60])
def test_rank_is_kept_however_few_are_chosen(count: int) -> None:
    """54 directions over 6 rows per sample: 9 samples at the least. A joint that moves in four rows
    alone is not overlooked.
    """
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
    with pytest.raises(
        NotIdentifiable, match=r"^5 samples keep rank \d+ of the \d+ that all 500 show; choose more"
    ):
        informative(robot, train, 5)


def test_what_is_marked_unusable_does_not_count() -> None:
    robot, train = ur10(), simulated(ur10(), 11, 1500)
    reason = np.zeros(train.tau.shape, dtype=np.uint8)
    reason[500:1000] = MASKED
    reason[::3, 2] = MASKED
    wild, tame = (
        replace(train, reason=reason, tau=np.where(reason > 0, value, train.tau))
        for value in (1e9, 0.0)
    )
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
    still = Samples(
        q=q, dq=np.zeros_like(q), ddq=np.zeros_like(q), tau=np.tile(train.tau[:1], (400, 1))
    )
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
        informative(
            pendulum(),
            replace(samples, reason=np.full(samples.tau.shape, MASKED, dtype=np.uint8)),
            10,
        )
    selection: Selection = informative(pendulum(), samples, 20)
    with pytest.raises(UsageError, match="from 50 samples, not from these 49"):
        selection.information(pendulum(), samples.subset(slice(49)))
