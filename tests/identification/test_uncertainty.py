"""Standard deviations that hold: coverage over many simulated logs, and the sandwich against dense
matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from data_paths import shared_file
from scipy.linalg import solve_toeplitz, toeplitz
from scipy.signal import butter, filtfilt, freqz
from uncertainty_cases import PERIOD, Experiment, arm, first_order, path, share_covered, spread

import thetahat as th
from thetahat.data.samples import Samples, concatenate
from thetahat.errors import UsageError
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.prior import Prior
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.submodel import view
from thetahat.identification.time_blocks import base_rows, blocks, row_plan
from thetahat.identification.uncertainty.autocorrelation import (
    corrected,
    noise_covariance,
    sandwich,
)

EXACT = 1e-10  # relative: rounding of FFTs and of a few thousand products
STREAMED = 1e-10  # relative: batches against one piece
TIME = 0.02  # [s] of the noise the issue names
Noise = Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Coverage:
    """Shares of 95 % intervals that hold the truth, per parameter."""

    plain: np.ndarray
    corrected: np.ndarray | None

    def __str__(self) -> str:
        shown = [
            f"{name} {np.mean(c):.4f} ({np.min(c):.3f} … {np.max(c):.3f})"
            for name, c in vars(self).items()
            if c is not None
        ]
        return "covered: " + ", ".join(shown)


def covered(
    experiment: Experiment, noise: Noise, runs: int, *, seed: int, both: bool = True
) -> Coverage:
    """Intervals of weighted least squares over many draws of the noise: plain, and corrected for
    autocorrelation.
    """
    rng = np.random.default_rng(seed)
    errors, plain, honest = [], [], []
    for _ in range(runs):
        info, samples = experiment.with_noise(spread(experiment.robot) * noise(rng))
        estimate = LeastSquares(weights="joint").estimate(info)
        errors.append(estimate.x_base - experiment.truth)
        plain.append(estimate.base_std)
        if both:
            honest.append(corrected(estimate, info, samples, weights="joint").base_std)
    result = Coverage(
        share_covered(np.array(errors), np.array(plain)),
        share_covered(np.array(errors), np.array(honest)) if both else None,
    )
    print(f"{experiment.robot.name}, {runs} runs, {len(experiment.truth)} parameters: {result}")
    return result


def least(runs: int, parameters: int, share: float = 0.95) -> float:
    """What intervals that are right cover pooled, but for one case in a thousand; neighbours are
    not independent, a third of them count.
    """
    return share - 3.09 * np.sqrt(share * (1.0 - share) / (runs * max(parameters / 3.0, 1.0)))


def stationary(experiment: Experiment, time: float) -> Noise:
    return lambda rng: first_order(rng, experiment.samples.tau.shape, time=time)


def long(*values: object) -> Any:
    """The parameters of a long version of a check."""
    return pytest.param(*values, marks=pytest.mark.slow)


# -- coverage --------------------------------------------------------------------------------------


def test_what_folding_gives_is_what_the_experiment_says() -> None:
    """The shortcut of these tests: other torques in the factor, without folding."""
    experiment = Experiment.of("arm4", 2.0)
    info, samples = experiment.with_noise(
        first_order(np.random.default_rng(0), experiment.samples.tau.shape, time=TIME)
    )
    folded = information(experiment.robot, samples)
    a, b = (
        LeastSquares(weights="joint").estimate(info),
        LeastSquares(weights="joint").estimate(folded),
    )
    np.testing.assert_allclose(a.x_base, b.x_base, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(a.base_std, b.base_std, rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "runs"),
    [("double_pendulum", 200), ("arm4", 100), ("arm7", 30), long("arm4", 200), long("arm7", 200)],
)
def test_white_noise_is_covered(name: str, runs: int) -> None:
    """Without autocorrelation plain intervals hold, and the corrected ones are the same but for
    chance.
    """
    experiment = Experiment.of(name)
    p = len(experiment.truth)
    many = covered(experiment, stationary(experiment, 0.0), runs, seed=1, both=False)
    assert least(runs, p) <= np.mean(many.plain) <= 2 * 0.95 - least(runs, p)
    few = covered(experiment, stationary(experiment, 0.0), 10 if p < 40 else 4, seed=2)
    assert abs(np.mean(few.corrected) - np.mean(few.plain)) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", ["double_pendulum", "arm4", "arm7", "panda"])
def test_white_noise_is_covered_in_a_thousand_runs(name: str) -> None:
    experiment = Experiment.of(name)
    result = covered(experiment, stationary(experiment, 0.0), 1000, seed=3, both=False)
    assert 0.94 <= np.mean(result.plain) <= 0.96
    assert np.all((result.plain >= 0.92) & (result.plain <= 0.98))


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        *(("double_pendulum", 30), ("arm4", 12), ("arm7", 5)),
        *(long("double_pendulum", 60), long("arm4", 30), long("arm7", 12)),
    ],
)
def test_correlated_noise_is_covered(name: str, runs: int) -> None:
    """AR(1) of 20 ms on 10 s at 1 kHz: plain intervals are six times too short."""
    experiment = Experiment.of(name)
    result = covered(experiment, stationary(experiment, TIME), runs, seed=4)
    assert np.mean(result.plain) < 0.35
    assert (
        np.mean(result.corrected) >= least(runs, len(experiment.truth)) - 0.01
    )  # the spectrum itself is estimated


@pytest.mark.slow
@pytest.mark.parametrize("name", ["double_pendulum", "arm4", "arm7", "panda"])
def test_correlated_noise_is_covered_in_a_thousand_runs(name: str) -> None:
    experiment = Experiment.of(name)
    result = covered(experiment, stationary(experiment, TIME), 1000, seed=5)
    assert np.mean(result.plain) < 0.35
    assert np.mean(result.corrected) >= 0.9
    assert np.all(result.corrected >= 0.88)


def low_passed(experiment: Experiment, cutoff: float) -> Noise:
    """White noise behind a zero-phase low-pass, with no edges."""
    filter_ = butter(4, cutoff, fs=1.0 / PERIOD)
    rows, nv = experiment.samples.tau.shape
    return lambda rng: (
        np.sqrt(0.5 / (cutoff * PERIOD))
        * filtfilt(*filter_, rng.normal(size=(rows + 4000, nv)), axis=0)[2000:-2000]
    )


def mixed(experiment: Experiment, slow: float, share: float) -> Noise:
    """A sensor's white noise above a slow wander."""
    shape = experiment.samples.tau.shape
    return lambda rng: rng.normal(size=shape) + np.sqrt(share) * first_order(rng, shape, time=slow)


@pytest.mark.parametrize("cutoff", [5.0, long(40.0)])
def test_low_passed_noise_is_covered(cutoff: float) -> None:
    """Its spectrum is empty above the cut-off; the low part, which matters, must still be right."""
    experiment = Experiment.of("double_pendulum")
    result = covered(experiment, low_passed(experiment, cutoff), 60, seed=6)
    assert np.mean(result.plain) < 0.5
    assert np.mean(result.corrected) >= least(60, len(experiment.truth)) - 0.01


def test_the_spectrum_of_low_passed_noise_is_found() -> None:
    """Level at low frequency, and autocovariance, of a zero-phase Butterworth filter, in the mean
    of some logs.
    """
    experiment = Experiment.of("double_pendulum")
    cutoff, rng, found = 10.0, np.random.default_rng(13), []
    for _ in range(20):
        info, samples = experiment.with_noise(low_passed(experiment, cutoff)(rng))
        models = noise_covariance(info, LeastSquares().estimate(info).x_base, samples)[
            1
        ].autocovariances
        found += [
            np.array([model.level, *(model.c[[20, 40, 60]] / model.c[0])]) for model in models
        ]
        assert all(model.thinned > 10 for model in models)
    _, response = freqz(*butter(4, cutoff, fs=1.0 / PERIOD), worN=1 << 16)
    power = np.abs(response) ** 4  # forwards and backwards
    angle = np.pi * np.arange(1 << 16) / (1 << 16)
    truth = np.array(
        [power[0], *(np.mean(power * np.cos(angle * k)) for k in (20, 40, 60))]
    ) / np.mean(power)
    chance = np.std(found, axis=0) / np.sqrt(len(found))
    mean = np.mean(found, axis=0)
    print(mean, truth, chance)
    assert np.all(np.abs(mean - truth) <= np.maximum(4.0 * chance, 0.03 * np.abs(truth)))


def test_a_wander_below_white_noise_is_covered() -> None:
    """A tenth of the variance, of 0.2 s: most of what matters at the frequencies of the motion."""
    experiment = Experiment.of("double_pendulum", 20.0)
    result = covered(experiment, mixed(experiment, 0.2, 0.1), 40, seed=7)
    assert np.mean(result.plain) < 0.5
    assert np.mean(result.corrected) >= 0.9


def test_noise_with_gaps_and_rows_left_out_is_covered() -> None:
    """Standstill rows are left out joint by joint; the noise goes on behind them."""
    still = np.abs(Experiment.of("arm4").samples.dq) < 0.3
    experiment = Experiment.of("arm4", reason=still.astype(np.uint8))
    assert 0.05 < np.mean(still) < 0.3
    result = covered(experiment, stationary(experiment, TIME), 25, seed=8)
    assert np.mean(result.corrected) >= least(25, len(experiment.truth)) - 0.01


@pytest.mark.parametrize("draws", [10, long(25)])
def test_many_short_runs_are_covered(draws: int) -> None:
    """Twenty runs of half a second whose noises know nothing of each other."""
    whole = Experiment.of("arm4")
    experiment = replace(
        whole, samples=replace(whole.samples, run=np.arange(len(whole.samples)) // 500)
    )
    nv = experiment.robot.nv
    result = covered(
        experiment,
        lambda rng: np.concatenate([first_order(rng, (500, nv), time=TIME) for _ in range(20)]),
        draws,
        seed=9,
    )
    assert np.mean(result.corrected) >= least(draws, len(experiment.truth)) - 0.01


def test_thinning_a_measured_log_changes_little() -> None:
    """A Panda, low-passed at 10 Hz: nineteen rows of twenty carry nothing new, and honest
    deviations do not shrink with them.
    """
    robot = th.load(
        shared_file("logs", "panda", "panda_nomesh_from_example_robot_data.urdf")
    ).with_drive(viscous=True, coulomb=True, offset=True)
    log = th.read_log(shared_file("logs", "panda", "panda_exciting_traj1.csv"), robot)
    plain, honest = [], []
    for decimate in (None, "auto"):
        samples = th.prepare(log, robot, cutoff=10.0, decimate=decimate)
        info = information(robot, samples)
        estimate = LeastSquares(weights="joint").estimate(info)
        plain.append(estimate.base_std)
        honest.append(corrected(estimate, info, samples, weights="joint").base_std)
    assert np.ma.median(plain[1] / plain[0]) > 3.5
    assert np.ma.median(honest[1] / honest[0]) == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_other_noises_are_covered_in_more_runs() -> None:
    for name, runs in (("arm4", 300), ("arm7", 150)):
        experiment = Experiment.of(name)
        assert (
            np.mean(covered(experiment, low_passed(experiment, 10.0), runs, seed=10).corrected)
            >= 0.93
        )
        assert (
            np.mean(covered(experiment, mixed(experiment, 0.2, 0.1), runs, seed=11).corrected)
            >= 0.9
        )


# -- the sandwich, exactly -------------------------------------------------------------------------


def dense(
    experiment: Experiment, c: list[np.ndarray], weights: np.ndarray, together: np.ndarray
) -> np.ndarray:
    """H⁻¹ [Σ w⁴ YᵀTY] H⁻¹ with T written out; `together`: (n, n) whether two rows belong to one
    run.
    """
    p, n = len(experiment.truth), len(experiment.samples)
    H, middle = np.zeros((p, p)), np.zeros((p, p))
    for v, (Y, positions) in enumerate(
        zip(experiment.rows, experiment.clean.positions, strict=True)
    ):
        T = toeplitz(np.pad(c[v], (0, max(n - len(c[v]), 0)))[:n]) * together
        at = np.ix_(positions, positions)
        H[at] += weights[v] ** 2 * Y.T @ Y
        middle[at] += weights[v] ** 4 * Y.T @ T @ Y
    inverse = np.linalg.inv(H)
    return inverse @ middle @ inverse


@pytest.mark.parametrize("lags", [1, 40, 900, 4000])
def test_the_sandwich_is_the_dense_one(lags: int) -> None:
    """Joints of different weight and colour, rows left out, two runs; a run longer than a block of
    products, lags longer than a run.
    """
    reason = (np.random.default_rng(2).uniform(size=(4000, 4)) < 0.2).astype(np.uint8)
    experiment = Experiment.of("arm4", 4.0, reason=reason)
    run = (np.arange(4000) >= 3300).astype(int)
    experiment = replace(experiment, samples=replace(experiment.samples, run=run))
    c = [
        (v + 1) ** 2 * np.exp(-np.arange(lags) / (5.0 * 4**v)) * np.cos(0.01 * np.arange(lags))
        for v in range(4)
    ]
    weights = np.array([1.0, 2.0, 0.5, 7.0])
    expected = dense(experiment, c, weights, run[:, None] == run)
    found = sandwich(experiment.clean, experiment.samples, c, weights)
    size = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(
        found / np.outer(size, size), expected / np.outer(size, size), rtol=0, atol=1e-8
    )


def test_a_gap_in_time_keeps_its_length() -> None:
    """Rows cut out of a log leave a hole; what is on its two sides is as far apart as it was."""
    whole = Experiment.of("double_pendulum", 2.0)
    keep = np.ones(2000, dtype=bool)
    keep[500:530] = keep[900:901] = False
    cut = Experiment(whole.robot, whole.samples.subset(keep))
    masked = Experiment.of(
        "double_pendulum", 2.0, reason=np.repeat(~keep[:, None], 2, axis=1).astype(np.uint8)
    )
    c = [np.exp(-np.arange(300) / 20.0)] * 2
    expected = sandwich(masked.clean, masked.samples, c)
    np.testing.assert_allclose(
        sandwich(cut.clean, cut.samples, c),
        expected,
        rtol=EXACT,
        atol=EXACT * np.abs(expected).max(),
    )
    adjacent = replace(cut, samples=replace(cut.samples, t=None))  # as if the hole were not there
    assert np.abs(sandwich(adjacent.clean, adjacent.samples, c) / expected - 1.0).max() > 1e-3


def test_white_noise_gives_plain_least_squares() -> None:
    experiment = Experiment.of("arm7", 3.0)
    info, samples = experiment.with_noise(
        spread(experiment.robot)
        * np.random.default_rng(3).normal(size=experiment.samples.tau.shape)
    )
    weights = weigh(info, "joint")
    estimate = LeastSquares(weights="joint").estimate(info)
    same = sandwich(info, samples, [[s**2] for s in weights.noise], weights.joints)
    np.testing.assert_allclose(
        same, estimate.covariance, rtol=1e-9, atol=1e-9 * np.abs(estimate.covariance).max()
    )
    found = corrected(estimate, info, samples, weights="joint")
    np.testing.assert_allclose(found.base_std, estimate.base_std, rtol=0.05)
    assert found.x is estimate.x


def test_generalised_least_squares_bounds_it() -> None:
    """Gauss–Markov: with T known no linear estimate is better than (Σ YᵀT⁻¹Y)⁻¹, and for white
    noise least squares reaches that.
    """
    experiment = Experiment.of("double_pendulum", 4.0)
    c = np.exp(-np.arange(4000) / 20.0)
    p = len(experiment.truth)
    best = np.zeros((p, p))
    for Y, positions in zip(experiment.rows, experiment.clean.positions, strict=True):
        best[np.ix_(positions, positions)] += Y.T @ solve_toeplitz(c, Y)
    best = np.linalg.inv(best)
    found = sandwich(experiment.clean, experiment.samples, [c, c])
    scale = np.sqrt(np.diag(found))
    assert np.linalg.eigvalsh((found - best) / np.outer(scale, scale)).min() > -1e-8
    assert np.median(np.sqrt(np.diag(best)) / scale) > 0.5  # a slow motion leaves little to gain


def test_the_blend_with_a_guess_is_corrected_through_its_own_gain() -> None:
    """x = Q·Σ w²Yᵀu + …, so Cov = Q·[Σ w⁴YᵀTY]·Q, with Q of the stacked system."""
    experiment = Experiment.of("arm4", 3.0)
    noise = spread(experiment.robot) * first_order(
        np.random.default_rng(4), experiment.samples.tau.shape, time=TIME
    )
    info, samples = experiment.with_noise(noise)
    alpha, M = 0.3, info.base.map
    estimate = Prior(alpha=alpha).estimate(info)
    found = corrected(estimate, info, samples).covariance
    _, model = noise_covariance(info, estimate.x_base, samples)
    S, H = np.zeros((len(M), len(M))), np.zeros((len(M), len(M)))
    for v, (Y, positions) in enumerate(zip(experiment.rows, info.positions, strict=True)):
        c = model.autocovariances[v].c
        at = np.ix_(positions, positions)
        S[at] += Y.T @ toeplitz(np.pad(c, (0, max(3000 - len(c), 0)))[:3000]) @ Y
        H[at] += Y.T @ Y
    Q = (
        alpha**2
        * M
        @ np.linalg.solve(alpha**2 * M.T @ H @ M + (1 - alpha) ** 2 * np.eye(M.shape[1]), M.T)
    )
    expected = Q @ S @ Q
    size = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(
        found / np.outer(size, size), expected / np.outer(size, size), atol=1e-6
    )


# -- batches, views, and what cannot be told -------------------------------------------------------


@pytest.mark.parametrize("rows", [97, 4096, 9000])
def test_batches_are_one_piece(rows: int) -> None:
    reason = (np.abs(Experiment.of("arm4", 20.0).samples.dq) < 0.1).astype(np.uint8)
    experiment = Experiment.of("arm4", 20.0, reason=reason)
    run = (np.arange(20_000) >= 9500).astype(int)
    info, samples = experiment.with_noise(
        first_order(np.random.default_rng(5), experiment.samples.tau.shape, time=TIME)
    )
    samples = replace(samples, run=run, period=PERIOD)
    x = LeastSquares(weights="joint").estimate(info).x_base
    weights = weigh(info, "joint").joints
    whole, model = noise_covariance(info, x, samples, weights)
    parts = [samples.subset(slice(k, k + rows)) for k in range(0, 20_000, rows)]
    streamed, other = noise_covariance(info, x, lambda: iter(parts), weights)
    np.testing.assert_allclose(streamed, whole, rtol=0, atol=STREAMED * np.abs(whole).max())
    np.testing.assert_allclose(np.diag(streamed), np.diag(whole), rtol=STREAMED)
    np.testing.assert_allclose(other.std, model.std, rtol=STREAMED)
    assert len(concatenate(parts, same_log=True)) == 20_000


def test_blocks_hold_every_row_once_in_time() -> None:
    robot = arm("double_pendulum")
    t, q, dq, ddq = path(robot, 1.0)
    t = t + np.where(np.arange(1000) >= 400, 0.05, 0.0) + np.where(np.arange(1000) >= 700, 5.0, 0.0)
    samples = Samples(q=q, dq=dq, ddq=ddq, tau=np.arange(2000.0).reshape(1000, 2), t=t)
    for size in (64, 333, 5000):
        found = list(blocks(samples, robot, size, reach=500))
        assert (
            sum(block.first for block in found) == 2
        )  # the gap of 5 s parts, the one of 50 ms is filled
        kept = np.concatenate([block.tau[block.usable[:, 0]] for block in found])
        np.testing.assert_array_equal(kept, samples.tau)
        assert sum(map(len, found)) == 1000 + 50
        assert all(len(block) == size or following.first for block, following in pairwise(found))


def test_rows_of_the_kernel_are_those_of_the_plain_regressor() -> None:
    for name in ("arm4", "panda"):
        experiment = Experiment.of(name, 0.333, reason=None)
        info, samples = experiment.clean, experiment.samples
        for shown in (info, view(info, without=("coulomb",), dofs=[1, 2])):
            plan = row_plan(shown)
            (block,) = blocks(samples, shown.robot, len(samples), reach=500)
            rows = base_rows(plan, block)
            Y = full_regressor(shown.robot, samples.q, samples.dq, samples.ddq)[
                ..., shown.base.independent
            ]
            for v, positions in enumerate(shown.positions):
                mine = rows[plan.starts[v] : plan.starts[v + 1]]
                np.testing.assert_allclose(mine, Y[:, v, positions].T, rtol=1e-10, atol=1e-10)


def test_a_view_of_some_joints_is_corrected_too() -> None:
    experiment = Experiment.of("arm4", 5.0)
    info, samples = experiment.with_noise(
        first_order(np.random.default_rng(6), experiment.samples.tau.shape, time=TIME)
    )
    shown = view(info, dofs=[2, 3])
    estimate = LeastSquares().estimate(shown)
    found = corrected(estimate, shown, samples)
    assert np.all(found.base_std > 3.0 * estimate.base_std)


def test_what_the_data_do_not_see_stays_infinite() -> None:
    robot = arm("arm4")
    t, q, dq, ddq = path(robot, 5.0)
    q[:, 3], dq[:, 3], ddq[:, 3] = 0.3, 0.0, 0.0
    tau = th.inverse_dynamics(robot, q, dq, ddq) + first_order(
        np.random.default_rng(7), dq.shape, time=TIME
    )
    samples = Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t)
    info = information(robot, samples)
    estimate = LeastSquares().estimate(info)
    found = corrected(estimate, info, samples)
    np.testing.assert_array_equal(found.base_std.mask, estimate.base_std.mask)
    assert 0 < np.sum(~found.base_std.mask) < len(found.base)
    assert np.all(found.base_std.compressed() > 3.0 * estimate.base_std.compressed())


@pytest.mark.parametrize("time", [0.0, 0.3])
def test_what_the_fit_took_is_put_back(time: float) -> None:
    """A short log at 10 Hz: 36 parameters of 320 torques take a ninth of white noise, and more of
    noise as slow as the motion.
    """
    robot = arm("arm4")
    t, q, dq, ddq = path(robot, 8.0, period=0.1)
    experiment = Experiment(
        robot, Samples(q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(robot, q, dq, ddq), t=t)
    )
    rng, found, left = np.random.default_rng(12), [], []
    for _ in range(30):
        info, samples = experiment.with_noise(first_order(rng, dq.shape, time=time, period=0.1))
        estimate = LeastSquares().estimate(info)
        found.append(noise_covariance(info, estimate.x_base, samples)[1].std ** 2)
        left.append(info.residual_norms(estimate.x_base) ** 2 / info.rows)
    chance = 3.1 * np.sqrt(2.0 / (30 * 284)) * np.sqrt(1.0 + 2.0 * time / 0.1)
    assert np.mean(left) < 0.9
    assert np.mean(found) == pytest.approx(1.0, abs=chance)


def test_the_model_reports_what_was_put_in() -> None:
    experiment = Experiment.of("arm4", 30.0)
    level = spread(experiment.robot)
    info, samples = experiment.with_noise(
        level * first_order(np.random.default_rng(8), experiment.samples.tau.shape, time=TIME)
    )
    estimate = LeastSquares().estimate(info)
    _, model = noise_covariance(info, estimate.x_base, samples)
    np.testing.assert_allclose(model.std, level, rtol=0.1)
    np.testing.assert_allclose(model.correlation_time, TIME, rtol=0.3)
    np.testing.assert_allclose(model.effective, 30.0 / (2 * TIME), rtol=0.3)
    np.testing.assert_allclose(model.inflation, np.sqrt(2 * TIME / PERIOD), rtol=0.15)
    assert np.all(model.resolved)
    assert not model.advice
    assert all(name in str(model) for name in experiment.robot.joint_names)


def test_noise_too_slow_for_the_log_is_said() -> None:
    experiment = Experiment.of("double_pendulum", 10.0)
    info, samples = experiment.with_noise(
        first_order(np.random.default_rng(9), experiment.samples.tau.shape, time=5.0)
    )
    _, model = noise_covariance(info, LeastSquares().estimate(info).x_base, samples)
    assert not np.all(model.resolved)
    slow = [sentence for sentence in model.advice if sentence not in model.warning]
    assert len(slow) == np.sum(~model.resolved)
    assert all(
        "record a longer run" in sentence
        and any(j in sentence for j in experiment.robot.joint_names)
        for sentence in slow
    )


@pytest.mark.parametrize("rows", [8, 30, 200])
def test_short_logs_and_no_noise_stay_finite(rows: int) -> None:
    robot = arm("double_pendulum")
    t, q, dq, ddq = path(robot, 10.0)
    take = np.linspace(0, 9999, rows).astype(int)
    for noise in (0.0, 0.1):
        tau = th.inverse_dynamics(robot, q, dq, ddq) + noise * np.random.default_rng(0).normal(
            size=dq.shape
        )
        for time in (t[take], None):
            samples = Samples(q=q[take], dq=dq[take], ddq=ddq[take], tau=tau[take], t=time)
            info = information(robot, samples)
            estimate = LeastSquares(weights="joint").estimate(info)
            found = corrected(estimate, info, samples, weights="joint")
            assert np.all(np.isfinite(found.base_std.compressed()))
            assert np.all(found.base_std.compressed() >= 0.0)


def test_samples_of_another_log_are_refused() -> None:
    experiment = Experiment.of("double_pendulum", 1.0)
    estimate = LeastSquares().estimate(experiment.clean)
    with pytest.raises(UsageError, match="pass the samples it was folded from"):
        corrected(estimate, experiment.clean, experiment.samples.subset(slice(0, 900)))
    with pytest.raises(UsageError, match="yields batches"):
        corrected(estimate, experiment.clean, iter([experiment.samples]))
