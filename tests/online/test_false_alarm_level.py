"""The level that a statistic exceeds once in so many hours, learned from what was seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from thetahat.online.false_alarm_level import BLOCK, LEAST, FalseAlarmLevel, chi_quantile


def learned(maxima: np.ndarray, interval: float) -> FalseAlarmLevel:
    one = FalseAlarmLevel(1, interval, share=0.0)
    for value in maxima:
        one.add(np.array([value]), BLOCK)
    return one


def test_further_blocks_exceed_it_no_more_often_than_stated() -> None:
    """Maxima whose squares are exponential, of a size that nobody told: learned from 40 blocks,
    further ones exceed the level in one of 100 blocks at most, over many repetitions.
    """
    rng, chance = np.random.default_rng(0), 0.01
    often = []
    for size in rng.uniform(0.1, 10.0, 400):
        one = learned(size * np.sqrt(rng.exponential(size=40)), BLOCK / chance)
        often.append(np.exp(-((one.level[0] / size) ** 2)))
    assert 0.3 * chance < np.mean(often) < 1.1 * chance


def test_the_less_was_seen_the_higher_it_is() -> None:
    rng = np.random.default_rng(1)
    few, many = (
        np.mean(
            [
                learned(np.sqrt(rng.exponential(size=n)), 8.0 * 3600.0).level[0] ** 2
                for _ in range(50)
            ]
        )
        for n in (LEAST, 200)
    )
    assert few > 1.5 * many
    assert many == pytest.approx(np.log(8.0 * 3600.0 / BLOCK), rel=0.2)


def test_quiet_errors_say_nothing_below_gaussian_noise() -> None:
    assert chi_quantile(3, 1e-5) == pytest.approx(np.sqrt(chi2.isf(1e-5, 3)), rel=1e-9)
    one = FalseAlarmLevel(2, 3600.0, freedom=3)
    least = chi_quantile(3, BLOCK / 3600.0 / 2)
    assert np.all(one.level == least)
    for k in range(50):
        one.add(np.array([1e-3, 10.0 + k % 3]), 0.1)  # five make a block
    assert not one.known
    for k in range(100):
        one.add(np.array([1e-3, 10.0 + k % 3]), 0.1)
    assert one.known
    assert one.level[0] == least
    assert one.level[1] > 12.0
