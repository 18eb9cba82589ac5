"""Samples: what they accept, how they are cut and joined, and that a cut lets nothing through."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetahat.data.samples import (
    EDGE,
    OUTLIER,
    REASONS,
    STANDSTILL,
    Samples,
    concatenate,
    reason_code,
)
from thetahat.errors import UsageError


def made(n: int = 20, nv: int = 3, nq: int | None = None, seed: int = 0, **more) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples(
        q=rng.normal(size=(n, nq or nv)),
        **{name: rng.normal(size=(n, nv)) for name in ("dq", "ddq", "tau")},
        **more,
    )


def timed(n: int = 100, runs: int = 2, **more) -> Samples:
    run = np.repeat(np.arange(runs), n // runs)
    return made(n, t=np.arange(n) * 0.1, run=run, period=0.1, **more)


def test_arrays_alone_make_samples() -> None:
    samples = made()
    assert len(samples) == 20
    assert (samples.nq, samples.nv) == (3, 3)
    assert samples.valid.all()
    assert samples.dropped == {}
    assert samples.t is None
    assert made(nq=7, nv=6).nq == 7  # a quaternion


def test_samples_are_frozen_and_do_not_freeze_what_they_were_given() -> None:
    tau = np.zeros((4, 2))
    samples = Samples(q=tau, dq=tau, ddq=tau, tau=tau)
    with pytest.raises(ValueError, match="read-only"):
        samples.tau[0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        samples.tau = tau
    tau[0, 0] = 1.0


@pytest.mark.parametrize("name", ["q", "dq", "ddq", "tau"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_named_with_its_sample_and_joint(name: str, bad: float) -> None:
    arrays = {key: np.ones((9, 4)) for key in ("q", "dq", "ddq", "tau")}
    arrays[name][7, 2] = bad
    with pytest.raises(UsageError, match=rf"{name} of sample 7, .* 2 \(counted from 0\).*{bad}"):
        Samples(**arrays)


def test_huge_but_finite_numbers_are_numbers() -> None:
    big = np.full((3, 2), 1.7e308)  # their sum is not finite
    assert len(Samples(q=big, dq=big, ddq=big, tau=big)) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"q": np.zeros((9, 4))},
        {"q": np.zeros((10, 3))},
        {"dq": np.zeros((10, 5))},
        {"ddq": np.zeros(10)},
        {"tau": "ten"},
        {"tau": np.zeros((10, 0))},
        {"t": np.zeros(9)},
        {"t": np.full(10, np.nan)},
        {"run": np.zeros((10, 1))},
        {"run": ["a"] * 10},
        {"reason": np.zeros((10, 3))},
        {"reason": np.full((10, 4), 200)},
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_a_sentence(change: dict) -> None:
    arrays = {key: np.zeros((10, 4)) for key in ("q", "dq", "ddq", "tau")}
    with pytest.raises(UsageError) as error:
        Samples(**{**arrays, **change})
    assert "\n" not in str(error.value)


def test_reasons_are_counted_and_standstill_may_be_scored() -> None:
    reason = np.zeros((20, 3), dtype=np.uint8)
    reason[:5, 0], reason[5:7], reason[9, 2] = STANDSTILL, EDGE, OUTLIER
    samples = made(reason=reason)
    assert samples.dropped == {"standstill": 5, "edge": 6, "outlier": 1}
    assert samples.valid.sum() == 60 - 12
    assert samples.scorable.sum() == 60 - 7
    assert "5 standstill" in str(samples)


def test_reasons_of_a_log_have_codes_however_they_are_spelt() -> None:
    assert REASONS[reason_code("Dead-Torque")] == "dead torque"
    assert REASONS[reason_code("saturated")] == "saturated"
    assert REASONS[reason_code("sensor on fire")] == "masked"
    assert REASONS[reason_code("usable")] == "masked"  # a mask never makes a row usable


# -- parts -----------------------------------------------------------------------------------------


@given(st.integers(2, 60), st.floats(0.01, 0.99), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_a_split_loses_and_doubles_no_row(n: int, fraction: float, runs: int) -> None:
    samples = timed(n * runs, runs, guard=0.35)
    first, last = samples.split(fraction)
    assert len(first) + len(last) == len(samples)
    assert abs(len(first) - fraction * len(samples)) <= 1
    for name in ("q", "dq", "ddq", "tau", "t", "run"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(first, name), getattr(last, name)]), getattr(samples, name)
        )
    touched = (first.t >= last.t[0] - 0.35 * (1 + 1e-9)) & (first.run == last.run[0])
    assert np.all((first.reason == EDGE).all(axis=1) == touched)
    assert last.reason is None


def test_a_split_between_runs_needs_no_guard() -> None:
    first, _ = timed(100, 2, guard=1.0).split(0.5)
    assert first.valid.all()


def test_a_guard_hides_no_other_reason() -> None:
    reason = np.zeros((100, 3), dtype=np.uint8)
    reason[48, 0], reason[48, 1] = OUTLIER, STANDSTILL
    first, _ = timed(100, 1, guard=0.45, reason=reason).split(0.5)
    assert first.reason[48].tolist() == [OUTLIER, EDGE, EDGE]
    assert first.reason[44].tolist() == [0, 0, 0]
    assert (first.reason[46:, 2] == EDGE).all()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1, 2, np.nan, "half", None])
def test_a_fraction_is_between_nothing_and_all(fraction: object) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        made().split(fraction)


def test_one_sample_cannot_be_split() -> None:
    with pytest.raises(UsageError, match="cannot be split"):
        made(1).split(0.5)


def test_runs_are_split_by_number() -> None:
    samples = timed(100, 4)
    train, test = samples.split_runs(train=[0, 2])
    assert set(train.run) == {0, 2}
    assert set(test.run) == {1, 3}
    assert set(samples.split_runs(train=[0], test=[3])[1].run) == {3}
    for wrong, word in (
        (([0], [0]), "train and in test"),
        (([7], None), "0, 1, 2, 3"),
        (([], [1]), "train has no runs"),
        (([0, 1, 2, 3], None), "test has no runs"),
    ):
        with pytest.raises(UsageError, match=word):
            samples.split_runs(*wrong)
    with pytest.raises(UsageError, match="split"):
        made().split_runs([0])


def test_subset_takes_slices_positions_and_masks() -> None:
    samples = timed(100, 2)
    mask = np.zeros(100, dtype=bool)
    mask[[3, 50]] = True
    for rows in ([3, 50], np.array([3, 50]), mask):
        np.testing.assert_array_equal(samples.subset(rows).q, samples.q[[3, 50]])
    assert len(samples.subset(slice(None, None, 7))) == 15
    assert len(samples.subset([])) == 0
    for wrong in ([100], [0.5], mask[:50]):
        with pytest.raises(UsageError):
            samples.subset(wrong)


def test_joined_batches_of_one_log_keep_their_runs_and_others_are_numbered_on() -> None:
    samples = timed(100, 4, cutoff=5.0, provenance={"a": 1})
    parts = [samples.subset(slice(a, a + 30)) for a in range(0, 100, 30)]
    whole = concatenate(parts, same_log=True)
    for name in ("q", "dq", "ddq", "tau", "t", "run"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(samples, name))
    assert (whole.cutoff, whole.period, whole.provenance) == (5.0, 0.1, {"a": 1})
    two = concatenate([samples, samples])
    assert sorted(set(two.run)) == list(range(8))
    assert len(two.provenance["parts"]) == 2
    assert concatenate([samples, dataclasses.replace(samples, period=0.2)]).period is None


def test_joining_keeps_reasons_and_refuses_other_robots() -> None:
    with_reason = made(reason=np.full((20, 3), EDGE))
    both = concatenate([made(), with_reason])
    assert both.valid.sum() == 60
    assert both.dropped == {"edge": 60}
    with pytest.raises(UsageError, match="different robots"):
        concatenate([made(), made(nv=4)])
    with pytest.raises(UsageError, match="nothing"):
        concatenate([])
