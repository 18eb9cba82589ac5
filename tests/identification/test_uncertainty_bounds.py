"""Standard deviations where the residual is no noise, or too little of it: bounded by its energy,
finite, and silent (no RuntimeWarning).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.signal import correlate
from uncertainty_cases import Experiment, arm, first_order, path, spread

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.prior import Prior
from thetahat.identification.information import information
from thetahat.identification.uncertainty import noise
from thetahat.identification.uncertainty.autocorrelation import corrected, noise_covariance

pytestmark = pytest.mark.filterwarnings("error")
ROUNDING = 1e-9  # relative: FFTs of a few thousand rows, and an estimate from them
# relative: where a residual is a line, Levinson's recursion takes rounding up by some orders
SCALED = 1e-6


@cache
def moving(name: str) -> Experiment:
    return Experiment.of(name)


def finite(estimate: Estimate) -> bool:
    """Whether every number that the noise has a part in is finite."""
    model = estimate.noise
    parts = (estimate.base_std, model.std, model.correlation_rows, model.effective, model.inflation)
    return all(np.all(np.isfinite(np.ma.compressed(part))) for part in parts) and np.all(
        np.isfinite(model.left)
    )


def largest(experiment: Experiment, tau: np.ndarray) -> np.ndarray:
    """The largest standard deviation least squares can have: Var gᵀe = gᵀTg ≤ ‖g‖²·n·c(0), as no
    eigenvalue of T is above its trace n·c(0).

    With c(0) ≤ 4·‖e‖²/(n − p), p the joint's share of the parameters: independent rows would have
    the fourth of it, and no factor n.
    """
    p = len(experiment.truth)
    H, b, factor = np.zeros((p, p)), np.zeros(p), 0.0
    for v, (Y, positions) in enumerate(
        zip(experiment.rows, experiment.clean.positions, strict=True)
    ):
        H[np.ix_(positions, positions)] += Y.T @ Y
        b[positions] += Y.T @ tau[:, v]
    inverse = np.linalg.inv(H)
    for v, (Y, positions) in enumerate(
        zip(experiment.rows, experiment.clean.positions, strict=True)
    ):
        e = tau[:, v] - Y @ (inverse @ b)[positions]
        share = np.trace(inverse[np.ix_(positions, positions)] @ Y.T @ Y)
        factor = max(factor, 4.0 * len(e) * (e @ e) / (len(e) - share))
    return np.sqrt(factor * np.diag(inverse))


T = 1e-3 * np.arange(10_000)
ERRORS: dict[str, Callable[[Experiment], np.ndarray]] = {
    "sine": lambda _: np.sin(2 * np.pi * 0.37 * T),
    "sine at a frequency of the motion": lambda _: np.sin(2 * np.pi * 0.3 * T),
    "sine slower than the log": lambda _: np.sin(2 * np.pi * 0.02 * T),
    "sine of 100 Hz": lambda _: np.sin(2 * np.pi * 100.0 * T),
    "up and down": lambda _: (-1.0) ** np.arange(len(T)),
    "ramp": lambda _: T,
    "step": lambda _: (T > 5.0).astype(float),
    "one row": lambda _: 100.0 * (np.arange(len(T)) == 4000),
    "bursts": lambda _: (np.arange(len(T)) % 500 < 3).astype(float),
    "walk": lambda _: 0.05 * np.cumsum(np.random.default_rng(0).normal(size=len(T))),
    "spring": lambda experiment: experiment.samples.q**3,
}


@pytest.mark.parametrize("name", list(ERRORS))
def test_model_error_gives_intervals_its_energy_allows(name: str) -> None:
    """Whatever the torque that is not modelled: no more than its energy can do, no less noise than
    the fit left.
    """
    experiment = moving("double_pendulum")
    error = ERRORS[name](experiment)
    info, samples = experiment.with_noise(
        3.0 * (error if error.ndim == 2 else error[:, None] * np.ones(2))
    )
    estimate = LeastSquares().estimate(info)
    found = corrected(estimate, info, samples)
    assert finite(found)
    assert np.all(found.base_std <= largest(experiment, samples.tau) * (1.0 + 1e-6))
    assert np.all(
        found.noise.std**2 >= 0.75 * info.residual_norms(estimate.x_base) ** 2 / info.rows
    )
    if name not in (
        "sine of 100 Hz",
        "up and down",
        "bursts",
        "one row",
    ):  # faster than the motion, or one row
        assert np.all(found.base_std > estimate.base_std)
    assert np.all(found.noise.std > 0.0)
    assert str(found.noise)


def test_the_interval_of_an_unmodelled_sine_is_how_far_it_moves_parameters() -> None:
    """Over sines of any frequency and phase: the error is of the size the intervals say, where
    independent rows are far off.
    """
    experiment, rng = moving("double_pendulum"), np.random.default_rng(1)
    honest, plain = [], []
    for _ in range(30):
        rate, phase = 2 * np.pi * rng.uniform(0.1, 1.5), rng.uniform(0.0, 2 * np.pi, size=2)
        info, samples = experiment.with_noise(np.sin(rate * T[:, None] + phase))
        estimate = LeastSquares().estimate(info)
        error = estimate.x_base - experiment.truth
        honest.append(error / corrected(estimate, info, samples).base_std)
        plain.append(error / estimate.base_std)
    size = [float(np.sqrt(np.mean(np.square(part)))) for part in (honest, plain)]
    print(
        f"error over standard deviation, RMS: {size[0]:.2f}, rows taken as independent"
        f" {size[1]:.1f}"
    )
    assert 0.4 < size[0] < 2.5
    assert size[1] > 10.0


def test_a_log_without_a_joint_says_that_its_intervals_are_of_model_error() -> None:
    """An arm whose elbow moves, fitted as if it were still: the torque that is missing is no noise,
    and no interval knows its sign.
    """
    robot = arm("arm4")
    t, q, dq, ddq = path(robot, 20.0, period=4e-3)
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 0.2 * np.random.default_rng(0).normal(
        size=q.shape
    )
    still = [np.where(np.arange(4) == 3, 0.0, part) for part in (q, dq, ddq)]
    reason = np.tile(np.array([0, 0, 0, 1], dtype=np.uint8), (len(t), 1))
    wrong = Samples(q=still[0], dq=still[1], ddq=still[2], tau=tau, t=t, reason=reason)
    info = information(robot, wrong)
    plain = LeastSquares().estimate(info)
    found = corrected(plain, info, wrong)
    ratio = found.base_std.compressed() / plain.base_std.compressed()
    print(f"over independent rows: {ratio.min():.1f} … {ratio.max():.1f}")
    assert finite(found)
    assert np.all((ratio > 1.0) & (ratio < 2.0 * np.sqrt(len(t))))
    assert np.any(found.noise.misfit[:3])
    assert not found.noise.misfit[3]  # has no rows
    assert "model error rather than sensor noise" in found.advice[-1]
    assert all(
        name in found.advice[-1]
        for name, flag in zip(robot.joint_names, found.noise.misfit, strict=True)
        if flag
    )
    right = Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t)
    info = information(robot, right)
    found = corrected(LeastSquares().estimate(info), info, right)
    assert not np.any(found.noise.misfit)
    assert not found.advice


def test_noise_as_slow_as_the_log_stays_finite() -> None:
    """What is put back has no end where an offset takes all; these draws once ended in a spectrum
    of 1e46.
    """
    experiment, rng = moving("double_pendulum"), np.random.default_rng(9)
    for _ in range(4):
        info, samples = experiment.with_noise(
            spread(experiment.robot) * first_order(rng, experiment.samples.tau.shape, time=5.0)
        )
        estimate = LeastSquares(weights="joint").estimate(info)
        found = corrected(estimate, info, samples, weights="joint")
        assert finite(found)
        assert np.all(found.base_std <= 2.0 * np.sqrt(10_000) * estimate.base_std)


# -- too little to tell from -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(rows, marks=() if rows in (1, 2, 3, 5, 10, 19, 20) else pytest.mark.slow)
        for rows in range(1, 21)
    ],
)
def test_few_samples_count_as_independent(rows: int) -> None:
    """The very intervals of independent rows, flagged, whatever their residual is: none of the
    joints has twenty rows more than parameters.
    """
    robot = arm("arm4")
    experiment = moving("arm4")
    s = experiment.samples
    rng = np.random.default_rng(rows)
    for take in (slice(0, rows), np.linspace(0, 9999, rows).astype(int)):
        for tau in (
            s.tau,
            s.tau + 0.1 * rng.normal(size=s.tau.shape),
            1.2 * s.tau,
            0.0 * s.tau,
            0.0 * s.tau + 1.0,
        ):
            samples = Samples(
                q=s.q[take], dq=s.dq[take], ddq=s.ddq[take], tau=tau[take], t=s.t[take]
            )
            info = information(robot, samples)
            for estimator in (
                LeastSquares(),
                LeastSquares(weights="joint"),
                Prior(),
                Prior(alpha=0.99, weights="joint"),
            ):
                plain, found = (
                    th.solve(info, estimator),
                    th.solve(info, estimator, samples=samples),
                )
                np.testing.assert_array_equal(found.covariance, plain.covariance)
                assert finite(found)
                assert not np.any(found.noise.resolved)
                assert len(found.noise.advice) == 4
                assert all(
                    f"has {rows} rows, too few" in sentence for sentence in found.noise.advice
                )
            same, expected = (
                noise_covariance(info, plain.x_base, samples)[0],
                LeastSquares().estimate(info).covariance,
            )
            np.testing.assert_allclose(np.diag(same), np.diag(expected), rtol=ROUNDING)


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_few_samples_of_the_default_estimator_stay_finite(rows: int) -> None:
    s, robot = moving("arm4").samples, arm("arm4")
    samples = Samples(
        q=s.q[:rows], dq=s.dq[:rows], ddq=s.ddq[:rows], tau=1.1 * s.tau[:rows], t=s.t[:rows]
    )
    info = information(robot, samples)
    for estimator in (Consistent(), Prior()):
        assert finite(th.solve(info, estimator, samples=samples))


def test_more_samples_than_few_are_looked_at() -> None:
    """The flag goes where the rows suffice: thirty more than parameters."""
    s, robot = moving("double_pendulum").samples, arm("double_pendulum")
    take = np.linspace(0, 9999, 60).astype(int)
    tau = s.tau + 0.1 * np.random.default_rng(0).normal(size=s.tau.shape)
    samples = Samples(q=s.q[take], dq=s.dq[take], ddq=s.ddq[take], tau=tau[take], t=s.t[take])
    info = information(robot, samples)
    assert np.all(th.solve(info, LeastSquares(), samples=samples).noise.resolved)


@pytest.mark.parametrize("rows", [40, 500, 10_000])
@pytest.mark.parametrize("torque", ["exact", "none", "constant"])
def test_residuals_of_rounding_stay_finite(torque: str, rows: int) -> None:
    """A fit without a residual (a constant torque is an offset): intervals of rounding, and no
    correlation of it.
    """
    experiment = moving("double_pendulum")
    s = experiment.samples
    take = np.linspace(0, 9999, rows).astype(int)
    tau = {"exact": s.tau, "none": 0.0 * s.tau, "constant": 0.0 * s.tau + 3.0}[torque]
    samples = Samples(q=s.q[take], dq=s.dq[take], ddq=s.ddq[take], tau=tau[take], t=s.t[take])
    info = information(experiment.robot, samples)
    for weights in (None, "joint"):
        plain = LeastSquares(weights=weights).estimate(info)
        found = corrected(plain, info, samples, weights=weights)
        assert finite(found)
        assert np.all(
            (found.base_std > 0.1 * plain.base_std) & (found.base_std < 10.0 * plain.base_std)
        )
        if torque != "none":  # else nothing says how large a torque is
            assert np.all(found.noise.std < 1e-8 * max(np.abs(tau).max(), 1.0))
    assert finite(th.solve(info, Prior(), samples=samples))


def test_a_guess_that_outweighs_exact_data_keeps_its_intervals() -> None:
    """Forty rows next to each other, exact: weights of 1e9 see the arm along few directions, and
    the guess holds the rest by its own variance.
    """
    s, robot = moving("arm4").samples, arm("arm4")
    samples = Samples(q=s.q[:40], dq=s.dq[:40], ddq=s.ddq[:40], tau=s.tau[:40], t=s.t[:40])
    info = information(robot, samples)
    estimator = Prior(alpha=0.99, weights="joint")
    plain, found = th.solve(info, estimator), th.solve(info, estimator, samples=samples)
    assert np.all(found.base_std > 0.5 * plain.base_std)
    assert np.all(found.base_std < 2.0 * np.sqrt(40) * plain.base_std)


def test_a_constant_torque_without_an_offset_to_take_it() -> None:
    """A residual that never changes: the longest correlation there is, unresolved, wider than
    independent rows, bounded.
    """
    whole = moving("double_pendulum")
    experiment = Experiment(
        whole.robot.with_drive(viscous=True, coulomb=True, offset=False), whole.samples
    )
    info, samples = experiment.with_noise(3.0 * np.ones(whole.samples.tau.shape))
    estimate = LeastSquares().estimate(info)
    found = corrected(estimate, info, samples)
    assert finite(found)
    assert not np.all(found.noise.resolved)
    assert np.all(found.base_std > estimate.base_std)
    assert np.all(found.base_std <= largest(experiment, samples.tau) * (1.0 + 1e-6))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("kind", ["noise", "sine", "spring", "slow"])
def test_torques_in_other_units_scale_the_intervals(kind: str, scale: float) -> None:
    """Least squares is linear in the torques, and so is every standard deviation; what is resolved
    stays so.
    """
    experiment = moving("double_pendulum")
    rng, shape = np.random.default_rng(2), experiment.samples.tau.shape
    error = {
        "noise": lambda: first_order(rng, shape, time=0.02),
        "slow": lambda: first_order(rng, shape, time=5.0),
        "sine": lambda: np.sin(2.0 * T)[:, None] * np.ones(2),
        "spring": lambda: experiment.samples.q**3,
    }[kind]()
    info, samples = experiment.with_noise(error)
    other = replace(
        info, factors=tuple(np.hstack([R[:, :-1], scale * R[:, -1:]]) for R in info.factors)
    )
    one, two = LeastSquares().estimate(info), LeastSquares().estimate(other)
    a, b = (
        corrected(one, info, samples),
        corrected(two, other, replace(samples, tau=scale * samples.tau)),
    )
    np.testing.assert_allclose(b.base_std / scale, a.base_std, rtol=SCALED)
    np.testing.assert_allclose(b.noise.std / scale, a.noise.std, rtol=SCALED)
    np.testing.assert_allclose(b.noise.inflation, a.noise.inflation, rtol=SCALED)
    np.testing.assert_array_equal(b.noise.resolved, a.noise.resolved)


# -- the spectrum alone ----------------------------------------------------------------------------


def lag_sums(series: np.ndarray, usable: np.ndarray, columns: np.ndarray) -> noise.LagSums:
    """What the first pass would give for one joint whose columns are fitted to the series."""
    Q, _ = np.linalg.qr(columns * usable[:, None])
    e = series * usable
    e = e - Q @ (Q.T @ e)
    n = len(e)

    def sums(*parts: np.ndarray) -> np.ndarray:
        total = sum(correlate(part, part)[n - 1 :][: noise.LAGS] for part in parts)
        return np.concatenate([total, np.zeros(noise.LAGS - len(total))])

    return noise.LagSums(sums(e), np.rint(sums(usable.astype(float))), sums(*Q.T), n)


def test_every_spectrum_is_bounded() -> None:
    """Walks, lines, noise, short or long, with rows left out: c(0) lies where the residual's energy
    puts it, and S ≥ 0 is that of rows.
    """
    rng = np.random.default_rng(3)
    for _ in range(60):
        n = int(rng.integers(30, 1500))
        t = np.arange(n)
        usable = np.ones(n, dtype=bool)
        for _ in range(int(rng.integers(0, 6))):
            begin = int(rng.integers(0, n))
            usable[begin : begin + int(rng.integers(1, n // 4))] = False
        if np.sum(usable) < 30:
            continue
        line = np.sin(rng.uniform(0.001, 3.0) * t + rng.uniform(0.0, 6.0))
        series = (
            line,
            np.cumsum(rng.normal(size=n)),
            rng.normal(size=n),
            line + 0.01 * rng.normal(size=n),
        )[int(rng.integers(4))]
        columns = np.column_stack(
            [np.ones(n), *(np.sin(k * 6.0 * t / n + 1.0) for k in range(1, 5))]
        )
        sums = lag_sums(series, usable, columns)
        found = noise.fit(sums, 0.0, 1.0)
        mean, variance = (
            sums.residual[0] / sums.pairs[0],
            sums.residual[0] / (sums.pairs[0] - sums.leverage[0]),
        )
        assert np.all(np.isfinite(found.c))
        assert 0.75 * mean <= found.c[0] <= 4.001 * variance
        assert 0.0 <= found.level <= 2 * noise.LAGS * 1.001  # S(0) ≤ Σ S
        assert np.all(np.abs(found.c) <= found.c[0] * (1.0 + 1e-9))


@pytest.mark.parametrize("rate", [np.pi, 1.3, 0.02])
def test_a_line_that_lasts_longer_than_the_lags_stays_an_autocovariance(rate: float) -> None:
    """No combination of the rows of a long log has a variance below zero, but for what cutting
    small tails may take.
    """
    n = 20_000
    series = np.cos(rate * np.arange(n)) + 0.01 * np.random.default_rng(5).normal(size=n)
    c = noise.fit(lag_sums(series, np.ones(n, dtype=bool), np.ones((n, 1))), 0.0, 1.0).c
    S = np.fft.rfft(np.concatenate([c, np.zeros(2 * n), c[:0:-1]])).real
    assert S.min() > -2.0 * noise.TAIL * np.sum(np.abs(c))


def test_where_the_fit_takes_all_the_residual_says_nothing() -> None:
    """A model with all its power where an offset takes it leaves next to nothing: what is found
    there is no measure of it, by any factor.
    """
    n = 2000
    sums = lag_sums(
        np.random.default_rng(6).normal(size=n), np.ones(n, dtype=bool), np.ones((n, 1))
    )
    sums = replace(sums, residual=sums.residual / sums.residual[0] * n)
    S = np.zeros(noise.LAGS + 1)
    S[0] = 2.0 * noise.LAGS  # c(k) = 1
    found = S * noise._departures(
        S, noise._Bands(sums, noise._spectrum(sums.leverage), noise.LAGS + 1)
    )
    assert np.all(np.isfinite(found))
    assert np.mean(found) < 1e3


def test_sums_over_all_rows_are_always_those_of_a_process() -> None:
    """r(k)/n(0) of any series with any gaps passes Levinson's recursion; r(k)/n(k) does not always,
    which is why it falls back.
    """
    rng, refused = np.random.default_rng(4), 0
    for _ in range(100):
        usable = rng.uniform(size=200) < 0.5
        e = np.cumsum(rng.normal(size=200)) * usable
        r, n = (np.correlate(x, x, "full")[199:240] for x in (e, usable.astype(float)))
        assert noise._recursion(r / n[0], 200.0)[2]
        refused += not noise._recursion(r / np.maximum(n, 1.0), 200.0)[2]
    assert refused > 10
