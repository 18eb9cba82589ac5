"""The report's band of torques is that of robots drawn from the estimate, at rows of the log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from uncertainty_cases import PERIOD, arm, path, spread

import thetahat as th
from thetahat.data.samples import REASONS, Samples
from thetahat.report.sampled_band import ROWS, SampledBand
from thetahat.report.trace_collector import Collector

STILL = slice(400, 440)


def noisy_samples() -> tuple[th.Robot, Samples]:
    robot = arm("arm4")
    t, q, dq, ddq = (each[::4] for each in path(robot, 8.0))
    rng = np.random.default_rng(0)
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 0.02 * spread(robot) * rng.normal(size=q.shape)
    reason = np.zeros(q.shape, dtype=np.uint8)
    reason[STILL, 0] = REASONS.index("standstill")
    return robot, Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t, period=4 * PERIOD, reason=reason)


def test_edges_are_quantiles_of_drawn_robots_torques() -> None:
    robot, samples = noisy_samples()
    estimate = th.solve(th.information(robot, samples), th.Consistent(), samples=samples)
    drawn = estimate.sample(100)
    whole, cut = SampledBand(drawn), SampledBand(drawn)
    whole.add(samples.t, samples, "train")
    for rows in (slice(0, 333), slice(333, 334), slice(334, None)):
        part = samples.subset(rows)
        cut.add(part.t, part, "train")
    bands = whole.bands()["train"]
    for mine, other in zip(bands, cut.bands()["train"], strict=True):
        assert np.array_equal(mine.t, other.t)  # however the rows come
        assert np.array_equal(mine.low, other.low)
    assert ROWS / 2 <= len(bands[1].t) <= ROWS
    assert not np.any((bands[0].t >= samples.t[STILL][0]) & (bands[0].t <= samples.t[STILL][-1]))
    at = np.searchsorted(samples.t, bands[1].t)
    torques = [
        th.inverse_dynamics(each, samples.q[at], samples.dq[at], samples.ddq[at])[:, 1]
        for each in drawn
    ]
    low, high = np.quantile(torques, [0.025, 0.975], axis=0)
    np.testing.assert_allclose(bands[1].low, low, atol=1e-9)
    np.testing.assert_allclose(bands[1].high, high, atol=1e-9)


def test_the_figure_has_the_band_where_robots_were_drawn() -> None:
    from thetahat.report.figures.time_series import torque_over_time

    robot, samples = noisy_samples()
    estimate = th.solve(th.information(robot, samples), th.Consistent(), samples=samples)
    identified = robot.with_parameters(estimate)
    collector = Collector(identified, drawn=estimate.sample(20))
    plain = Collector(identified)
    for each in (collector, plain):
        each.add(replace(samples, cutoff=10.0), "train")
    lines = collector.result().joints[2].lines
    assert not plain.result().joints[2].lines.band
    drawing = torque_over_time(
        lines.measured["train"], lines.predicted["train"], band=lines.band.values()
    )
    filled = [each for each in drawing["data"] if each.get("fill") == "tonexty"]
    assert [each["name"] for each in filled] == ["95 % of drawn robots"]
    assert np.mean(lines.band["train"].high > lines.band["train"].low) > 0.99
