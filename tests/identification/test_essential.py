"""Essential parameters: what is dropped, against refits with NumPy and F-tests with SciPy, and what
must not be dropped.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from uncertainty_cases import Experiment, arm, first_order, path, spread

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import information
from thetahat.identification.uncertainty.autocorrelation import noise_covariance
from thetahat.identification.uncertainty.essential import essential


def noisy(
    name: str, *, seconds: float = 10.0, time: float = 0.0, seed: int = 0
) -> tuple[Experiment, th.Information, Samples]:
    experiment = Experiment.of(name, seconds)
    return experiment, *experiment.with_noise(
        spread(experiment.robot)
        * first_order(np.random.default_rng(seed), experiment.samples.tau.shape, time=time)
    )


def weighted(
    experiment: Experiment, info: th.Information, samples: Samples
) -> tuple[np.ndarray, np.ndarray]:
    """All rows in base columns and their torques, each over its joint's noise."""
    w, p = weigh(info, "joint").joints, len(info.base)
    rows = np.zeros((info.robot.nv, len(samples), p))
    for v, (Y, positions) in enumerate(zip(experiment.rows, info.positions, strict=True)):
        rows[v][:, positions] = w[v] * Y
    return rows.reshape(-1, p), (w * samples.tau).T.ravel()


def test_every_step_is_a_refit_with_one_column_less() -> None:
    """Values, relative deviations and F of each step, from the stacked rows by NumPy and SciPy."""
    experiment, info, samples = noisy("arm4", seconds=3.0)
    result = essential(info)
    A, b = weighted(experiment, info, samples)
    kept, freedom = list(range(A.shape[1])), len(b) - A.shape[1]
    square = full = np.sum((A @ np.linalg.lstsq(A, b, rcond=None)[0] - b) ** 2)
    assert len(result.steps) >= 3
    for count, step in enumerate([*result.steps, result.refused], start=1):
        x = np.linalg.lstsq(A[:, kept], b, rcond=None)[0]
        relative = 100.0 * np.sqrt(np.diag(np.linalg.inv(A[:, kept].T @ A[:, kept]))) / np.abs(x)
        assert kept[int(np.argmax(relative))] == step.position
        assert step.relative_std == pytest.approx(np.max(relative), rel=1e-6)
        kept.remove(step.position)
        after = np.sum((A[:, kept] @ np.linalg.lstsq(A[:, kept], b, rcond=None)[0] - b) ** 2)
        assert step.f_step == pytest.approx(after - square, rel=1e-5, abs=1e-7)
        assert step.f_total == pytest.approx((after - full) / count, rel=1e-5, abs=1e-7)
        assert step.p_step == pytest.approx(stats.f.sf(step.f_step, 1, freedom), rel=1e-3)
        assert step.p_total == pytest.approx(stats.f.sf(step.f_total, count, freedom), rel=1e-3)
        assert (step.p < 0.05) == (step is result.refused)
        square = after
    x = np.linalg.lstsq(A[:, result.kept], b, rcond=None)[0]
    np.testing.assert_allclose(result.x_base[result.kept], x, rtol=1e-7, atol=1e-9)
    assert np.all(np.delete(result.x_base, result.kept) == 0.0)


def test_parameters_that_are_zero_go_and_those_that_matter_stay() -> None:
    """An arm without offsets: they go first. Half a newton metre of Coulomb friction stays, and
    what is left is known better than before.
    """
    _, info, _ = noisy("arm4")
    result = essential(info)
    assert not any("coulomb" in name or "viscous" in name for name in result.dropped)
    assert sum("offset" in name for name in result.dropped) >= 2
    assert set(result.names) | set(result.dropped) == set(info.base.names)
    assert len(result.names) + len(result.dropped) == len(info.base)
    kept = result.kept
    std = LeastSquares(weights="joint").estimate(info).base_std
    assert np.all(result.std[kept] <= std[kept] * (1.0 + 1e-9))  # fewer columns, never less certain
    assert 0.0 <= result.rise < 0.01


def test_truly_zero_parameters_are_dropped_at_the_level_stated() -> None:
    """Four offsets are zero in 30 logs: each is dropped about as often as the F-test says, never
    much less.
    """
    experiment = Experiment.of("arm4", 3.0)
    offsets = [
        k
        for k, name in enumerate(experiment.clean.base.names)
        if "offset" in name and experiment.truth[k] == 0.0
    ]
    assert len(offsets) == 4
    rng, dropped = np.random.default_rng(5), []
    for _ in range(30):
        info, _ = experiment.with_noise(
            spread(experiment.robot) * rng.normal(size=experiment.samples.tau.shape)
        )
        dropped += [k not in essential(info).kept for k in offsets]
    assert np.mean(dropped) > 0.85


def test_correlated_noise_keeps_fewer() -> None:
    """Rows at 1 kHz are not independent: with the noise's model fewer parameters are essential."""
    _, info, samples = noisy("arm4", time=0.02)
    weights = weigh(info, "joint").joints
    _, model = noise_covariance(
        info, LeastSquares(weights="joint").estimate(info).x_base, samples, weights
    )
    every, independent = essential(info), essential(info, noise=model)
    assert len(independent.kept) < len(every.kept)
    freedom = np.sum(info.rows / model.inflation**2) - len(info.base)
    assert all(
        step.p_step == pytest.approx(stats.f.sf(step.f_step, 1, freedom), rel=1e-8)
        for step in independent.steps
    )
    assert np.ma.median(independent.before / every.before) == pytest.approx(
        6.3, rel=0.15
    )  # √(2·20 ms/1 ms)


def test_without_noise_everything_that_is_not_zero_stays() -> None:
    experiment = Experiment.of("arm4", 3.0)
    result = essential(experiment.clean)
    tiny = np.abs(experiment.truth) < 1e-12
    np.testing.assert_array_equal(
        np.setdiff1d(np.arange(len(tiny)), result.kept), np.flatnonzero(tiny)
    )
    np.testing.assert_allclose(result.x_base, experiment.truth, rtol=1e-6, atol=1e-9)


def test_what_is_not_seen_goes_first_and_costs_nothing() -> None:
    robot = arm("arm4")
    t, q, dq, ddq = path(robot, 5.0)
    q[:, 3], dq[:, 3], ddq[:, 3] = 0.3, 0.0, 0.0
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 0.1 * np.random.default_rng(2).normal(
        size=dq.shape
    )
    info = information(robot, Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t))
    short = len(info.base) - info.rank
    assert short > 0
    result = essential(info)
    assert all(
        not np.isfinite(step.relative_std) and step.f_step < 1e-6 for step in result.steps[:short]
    )
    assert np.all(np.isfinite(result.x_base))
    assert not np.any(result.std[result.kept].mask)
    assert "not seen" in str(result)


def test_the_table_names_every_parameter_once() -> None:
    _, info, _ = noisy("double_pendulum")
    result = essential(info)
    lines = str(result).splitlines()
    assert len(lines) == 3 + len(info.base)
    assert lines[0].startswith(f"{len(result.kept)} essential parameters of {len(info.base)}")
    assert "nan" not in str(result)


def test_a_wide_limit_drops_nothing() -> None:
    _, info, _ = noisy("double_pendulum")
    result = essential(info, limit=1e12)
    assert not result.steps
    np.testing.assert_allclose(
        result.x_base, LeastSquares(weights="joint").estimate(info).x_base, rtol=1e-9
    )
    with pytest.raises(UsageError, match="level is 0"):
        essential(info, level=0)
    with pytest.raises(UsageError, match="limit is -1"):
        essential(info, limit=-1.0)
