"""Filters and derivatives: closed forms, SciPy as the oracle, and the laws that make them usable on
both sides of an equation.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from thetahat.data import filters
from thetahat.data.filters import (
    Butterworth,
    ExponentialAverage,
    SavitzkyGolay,
)
from thetahat.errors import UsageError

CUT = 1e-9  # the impulse response is cut at 1e-10 of itself, in sum, on signals of order one
ROUNDING = 1e-12
# SciPy solves for powers of the sample number, up to 1e12 here, and loses as many digits; the next
# test asks for all of them
SCIPY_POWERS = 1e-6
METHODS = {
    "butterworth": Butterworth(10.0),
    "savgol": SavitzkyGolay(10.0),
    "ema": ExponentialAverage(10.0),
}
PERIOD = 1e-3


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n)


# -- Butterworth -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cutoff", "rate", "order"),
    [
        (10, 1000, 4),
        (50, 5000, 4),
        (4, 30, 4),
        (5, 5000, 4),
        (14, 30, 4),
        (1, 1000, 2),
        (30, 250, 7),
        (2, 125, 1),
    ],
)
def test_butterworth_is_filtfilt(cutoff: float, rate: float, order: int) -> None:
    method = Butterworth(cutoff, order)
    reach = method.kernel(1 / rate).past
    x = noise(6 * reach + 4000)
    ours = filters.smooth(x, 1 / rate, method)
    theirs = signal.sosfiltfilt(
        signal.butter(order, 2 * cutoff / rate, output="sos"), x, padlen=reach
    )
    assert np.max(np.abs(ours - theirs)) < CUT


@pytest.mark.parametrize("derivative", [0, 1, 2])
def test_response_of_a_sine_is_the_closed_form(derivative: int) -> None:
    t = np.arange(8000) * PERIOD
    for frequency in (0.5, 3.0, 10.0, 17.0):
        w = 2 * np.pi * frequency
        got = filters.smooth(np.sin(w * t), PERIOD, METHODS["butterworth"], derivative)[2000:-2000]
        gain = 1 / (1 + (np.tan(w * PERIOD / 2) / np.tan(np.pi * 10.0 * PERIOD)) ** 8)
        want = gain * w**derivative * np.sin(w * t + derivative * np.pi / 2)[2000:-2000]
        assert np.max(np.abs(got - want)) < 1e-7 * w**derivative, frequency


@pytest.mark.parametrize("name", ["butterworth", "savgol"])
def test_half_the_amplitude_passes_at_the_cutoff(name: str) -> None:
    t = np.arange(6000) * PERIOD
    got = filters.smooth(np.sin(2 * np.pi * 10.0 * t), PERIOD, METHODS[name])[2000:-2000]
    assert np.max(np.abs(got)) == pytest.approx(
        0.5, abs=0.02
    )  # a window is a whole number of samples


@pytest.mark.parametrize("name", ["butterworth", "savgol"])
def test_zero_phase(name: str) -> None:
    x = noise(20_000)
    y = filters.smooth(x, PERIOD, METHODS[name])
    lags = signal.correlation_lags(len(x), len(y))
    assert lags[np.argmax(signal.correlate(x, y))] == 0
    weights = METHODS[name].kernel(PERIOD).weights
    np.testing.assert_allclose(weights, weights[::-1], atol=1e-15)


def test_the_average_lags_behind_its_input() -> None:
    x = filters.smooth(noise(20_000), PERIOD, METHODS["butterworth"])
    lags = signal.correlation_lags(len(x), len(x))
    assert lags[np.argmax(signal.correlate(x, filters.smooth(x, PERIOD, METHODS["ema"])))] < 0


# -- derivatives -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "degree"), [("butterworth", 7), ("savgol", 4)])
def test_polynomials_and_their_derivatives_are_kept(name: str, degree: int) -> None:
    t = np.linspace(-1, 1, 4001)
    period = t[1] - t[0]
    method = type(METHODS[name])(20.0)
    inner = slice(1000, -1000)  # both kernels end before
    for power in range(degree + 1):
        x = np.polynomial.Polynomial([0] * power + [1])
        for derivative in (0, 1, 2):
            got = filters.smooth(x(t), period, method, derivative)[inner]
            assert np.max(np.abs(got - x.deriv(derivative)(t)[inner])) < CUT, (power, derivative)


@pytest.mark.parametrize("name", ["butterworth", "savgol"])
def test_derivatives_of_a_slow_motion(name: str) -> None:
    t = np.arange(10_000) * PERIOD
    w = 2 * np.pi * 1.0  # a tenth of the cut-off
    for derivative, want in (
        (0, np.sin(w * t)),
        (1, w * np.cos(w * t)),
        (2, -(w**2) * np.sin(w * t)),
    ):
        got = filters.smooth(np.sin(w * t), PERIOD, METHODS[name], derivative)
        error = np.max(np.abs(got - want)[2000:-2000]) / w**derivative
        assert error < (1e-7 if name == "butterworth" else 2e-2 if derivative == 2 else 2e-3), (
            derivative
        )


def test_the_second_derivative_is_the_derivative_of_the_first() -> None:
    x = noise(20_000)
    first = filters.smooth(x, PERIOD, METHODS["butterworth"], 1)
    second = filters.smooth(x, PERIOD, METHODS["butterworth"], 2)
    again = filters.central_difference(first, PERIOD)
    assert np.max(np.abs(second - again)[2000:-2000]) < 1e-9 * np.max(np.abs(second))


def test_central_differences_are_exact_to_the_eighth_degree() -> None:
    t = np.linspace(0, 1, 101)
    for power in range(9):
        got = filters.central_difference(t**power, 0.01)[4:-4]
        np.testing.assert_allclose(got, power * t[4:-4] ** max(power - 1, 0), atol=1e-11)
    w = 2 * np.pi * 20 * 0.002  # radians per sample
    got = filters.central_difference(np.sin(w * np.arange(200)), 1.0)[50:-50]
    assert np.max(np.abs(got - w * np.cos(w * np.arange(200)[50:-50]))) == pytest.approx(
        w**9 / 630, rel=0.1
    )


# -- the law that matters --------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
@given(seed=st.integers(0, 2**31), a=st.floats(-3, 3), b=st.floats(-3, 3), c=st.floats(-3, 3))
@settings(max_examples=10, deadline=None)
def test_a_linear_relation_survives_filtering_both_sides(
    name: str, seed: int, a: float, b: float, c: float
) -> None:
    x, y = noise(6000, seed), noise(6000, seed + 1)
    method = METHODS[name]
    smooth = filters.smooth(x, PERIOD, Butterworth(100.0))  # so that differences make sense
    rate = filters.central_difference(smooth, PERIOD)
    torque = a * smooth + b * rate + c * y
    filtered = [filters.smooth(z, PERIOD, method) for z in (smooth, rate, y, torque)]
    residual = filtered[3] - a * filtered[0] - b * filtered[1] - c * filtered[2]
    scale = (
        sum(abs(k) * np.max(np.abs(z)) for k, z in zip((a, b, c), (smooth, rate, y), strict=True))
        + 1e-30
    )
    assert np.max(np.abs(residual)) < 1e-10 * scale
    if name == "butterworth":  # and the derivative of the filtered is the filtered derivative
        inner = slice(2000, -2000)
        assert np.max(
            np.abs(filtered[1] - filters.smooth(smooth, PERIOD, method, 1))[inner]
        ) < 1e-10 * np.max(np.abs(rate))


def test_convolution_in_blocks_is_plain_convolution() -> None:
    x = noise(90_000)
    kernel = Butterworth(40.0).kernel(PERIOD, 1)
    (got,) = filters.convolve(
        filters.extend(x[None], kernel.past, kernel.future),
        [kernel],
        past=kernel.past,
        future=kernel.future,
    )
    want = np.convolve(
        np.concatenate(
            [2 * x[0] - x[kernel.past : 0 : -1], x, 2 * x[-1] - x[-2 : -2 - kernel.future : -1]]
        ),
        kernel.weights,
        mode="valid",
    )
    assert np.max(np.abs(got[0] - want)) < ROUNDING * np.max(np.abs(want))


# -- Savitzky–Golay --------------------------------------------------------------------------------


@pytest.mark.parametrize(("cutoff", "degree"), [(10.0, 4), (40.0, 4), (60.0, 3), (25.0, 6)])
@pytest.mark.parametrize("derivative", [0, 1, 2])
def test_savitzky_golay_is_scipys(cutoff: float, degree: int, derivative: int) -> None:
    method = SavitzkyGolay(cutoff, degree)
    window = 2 * method.half_window(PERIOD) + 1
    x = noise(3000)
    want = signal.savgol_filter(x, window, degree, deriv=derivative, delta=PERIOD)
    got = filters.smooth(x, PERIOD, method, derivative)
    inner = slice(window, -window)
    assert np.max(np.abs(got - want)[inner]) < SCIPY_POWERS * np.max(np.abs(want))


@pytest.mark.parametrize("degree", [2, 4, 6])
@pytest.mark.parametrize("derivative", [0, 1, 2])
def test_savitzky_golay_weights_have_the_moments_of_a_derivative(
    degree: int, derivative: int
) -> None:
    kernel = SavitzkyGolay(25.0, degree).kernel(1e-3, derivative)
    place = np.arange(kernel.future, -kernel.past - 1, -1) / kernel.future
    for power in range(degree + 1):  # Σ w x(t) = x⁽ᵈ⁾(0) for x = tᵖ
        want = (
            float(power == derivative)
            * (1, 1, 2)[derivative]
            / (1e-3 * kernel.future) ** derivative
        )
        assert np.sum(kernel.weights * place**power) == pytest.approx(
            want, abs=1e-13 * np.sum(np.abs(kernel.weights))
        )


# -- the paper's average ---------------------------------------------------------------------------


def test_average_is_its_transfer_function_and_its_closed_form() -> None:
    x = noise(500)
    keep = np.exp(-2 * np.pi * 10.0 * PERIOD)
    oracle = signal.lfilter([1 - keep], [1, -keep], np.concatenate([np.full(20_000, x[0]), x]))[
        20_000:
    ]
    closed = [
        (1 - keep) * sum(keep**i * x[k - i] for i in range(k + 1)) + keep ** (k + 1) * x[0]
        for k in range(0, 500, 50)
    ]
    np.testing.assert_allclose(oracle[::50], closed, atol=1e-13)
    np.testing.assert_allclose(filters.smooth(x, PERIOD, METHODS["ema"]), oracle, atol=CUT)


# -- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("derivative", [0, 1, 2])
def test_rows_inside_the_edges_hardly_see_what_lies_beyond_the_end(
    name: str, derivative: int
) -> None:
    method = METHODS[name]
    kernel = method.kernel(PERIOD, derivative)
    future, past = kernel.edge_reach()
    weights, centre = np.abs(kernel.weights), kernel.future
    outside = weights[: max(centre - future, 0)].sum(), weights[centre + past + 1 :].sum()
    assert max(outside) < filters.EDGE_WEIGHT * weights.sum()
    assert past <= kernel.past
    if name == "butterworth":
        assert 0.1 < past * PERIOD < 0.5  # a few cycles of the cut-off, not the whole response
        assert (
            weights[: centre - future + 1].sum() >= filters.EDGE_WEIGHT * weights.sum()
            or future == 0
        )  # and no longer than needed


@pytest.mark.parametrize("n", [1, 2, 3, 50])
@pytest.mark.parametrize("name", METHODS)
def test_runs_shorter_than_the_filter_stay_finite(n: int, name: str) -> None:
    out = filters.smooth(np.full((n, 2), 3.0), PERIOD, METHODS[name])
    np.testing.assert_allclose(out, 3.0, atol=1e-12)
    assert np.all(np.isfinite(filters.smooth(noise(n), PERIOD, METHODS[name], 2)))


def test_the_causal_filter_sees_no_future() -> None:
    x = noise(4000)
    changed = x.copy()
    changed[2000:] += 5.0
    for derivative in (0, 1, 2):
        before, after = (
            filters.smooth(z, PERIOD, METHODS["ema"], derivative)[:2000] for z in (x, changed)
        )
        assert np.max(np.abs(before - after)) < 1e-9 * np.max(np.abs(before))


# -- uneven stamps ---------------------------------------------------------------------------------


def stamps(n: int, h: float, jitter: float, seed: int = 0) -> np.ndarray:
    """Steps like those of the Panda log: mostly even, each off by up to `jitter` of a period."""
    rng = np.random.default_rng(seed)
    return np.cumsum(h * (1 + rng.uniform(-jitter, jitter, n)))


@pytest.mark.parametrize(
    ("degree", "bound"),
    [(5, lambda u: 0.0049 * u**6), (3, lambda u: 0.0235 * u**4), (1, lambda u: u**2 / 8)],
)
def test_resampling_errs_no_more_than_stated(degree: int, bound) -> None:
    h = 1e-3
    t = np.arange(3000) * h
    grid = t[10] + h * np.arange(2900) + 0.5 * h
    for frequency in (5.0, 20.0, 60.0):
        w = 2 * np.pi * frequency
        got = filters.resample(t, np.sin(w * t)[:, None], grid, degree=degree)[:, 0]
        error = np.max(np.abs(got - np.sin(w * grid)))
        assert 0.5 * bound(w * h) - 1e-12 < error < 1.05 * bound(w * h) + 1e-12, frequency


def test_jittering_stamps_cost_next_to_nothing() -> None:
    t = stamps(20_000, 1e-3, 0.5)
    grid = np.linspace(t[0], t[-1], len(t))
    w = 2 * np.pi * 5.0
    error = np.abs(filters.resample(t, np.sin(w * t)[:, None], grid)[:, 0] - np.sin(w * grid))
    assert np.max(error) < 1e-10
    assumed_even = np.abs(np.sin(w * t) - np.sin(w * grid))
    assert np.max(assumed_even) > 1e-2  # what assuming even stamps would have cost


def test_resampling_is_exact_for_polynomials_and_at_the_knots() -> None:
    t = stamps(200, 0.01, 0.4)
    grid = np.linspace(t[0], t[-1], 500)
    x = np.column_stack([t**k for k in range(6)])
    np.testing.assert_allclose(
        filters.resample(t, x, grid), np.column_stack([grid**k for k in range(6)]), rtol=1e-9
    )
    np.testing.assert_allclose(filters.resample(t, x, t), x, rtol=1e-13)


def test_a_hole_in_the_stamps_does_not_make_noise_swing() -> None:
    t = np.delete(np.arange(400) * 1e-3, slice(200, 204))  # a step of five periods
    x = np.random.default_rng(0).normal(size=(len(t), 4000))
    inside = filters.resample(t, x, np.arange(400) * 1e-3)[200:204]
    assert np.max(inside.std(axis=1)) == pytest.approx(1.62, abs=0.1)  # six knots would give 2.84
    w = 2 * np.pi * 3
    got = filters.resample(t, np.sin(w * t)[:, None], np.arange(400) * 1e-3)[:, 0]
    assert np.max(np.abs(got - np.sin(w * np.arange(400) * 1e-3))) < 0.024 * (w * 5e-3) ** 4


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7])
def test_few_measurements_are_resampled_as_well_as_they_allow(n: int) -> None:
    t = np.arange(n) * 0.1
    grid = np.linspace(0, t[-1], 9)
    got = filters.resample(t, (2 * t + 1)[:, None], grid)[:, 0]
    np.testing.assert_allclose(got, 2 * grid + 1, atol=1e-12)


# -- decimation, errors ----------------------------------------------------------------------------


def test_thinning_leaves_five_rows_a_cycle() -> None:
    assert filters.decimation_factor(10.0, 1e-3) == 20
    assert filters.decimation_factor(50.0, 2e-4) == 20
    assert filters.decimation_factor(10.0, 1 / 30) == 1
    for cutoff, period in ((10.0, 1e-3), (7.3, 2e-3), (4.0, 1e-3)):
        folded = 0.5 / (
            filters.decimation_factor(cutoff, period) * period
        )  # half the new sampling rate
        assert (
            1 / (1 + (np.tan(np.pi * folded * period) / np.tan(np.pi * cutoff * period)) ** 8)
            < 1e-3
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda: filters.smooth(noise(100), 1e-3, Butterworth(500.0)),
        lambda: filters.smooth(noise(100), 1e-3, Butterworth(-1.0)),
        lambda: filters.smooth(noise(100), 1e-3, Butterworth(np.nan)),
        lambda: filters.smooth(noise(100), 0.0, Butterworth(1.0)),
        lambda: filters.smooth(noise(100), 1e-3, Butterworth(1e-7)),
        lambda: filters.smooth(np.array([1.0, np.nan]), 1e-3, Butterworth(1.0)),
        lambda: filters.smooth(np.zeros(0), 1e-3, Butterworth(1.0)),
        lambda: Butterworth(1.0, order=0),
        lambda: Butterworth(1.0, order=2.5),
        lambda: SavitzkyGolay(1.0, degree=1),
        lambda: Butterworth(1.0).kernel(1e-3, 3),
        lambda: filters.method_of("kalman", 1.0),
        lambda: filters.resample(np.arange(5.0), np.zeros((5, 1)), np.arange(3.0), degree=2),
        lambda: filters.smooth(noise(100), 1e-3, ExponentialAverage(0.0)),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(call) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) > 20
