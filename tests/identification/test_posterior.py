"""Robots drawn from an estimate: the stated spread off the boundary, the truncated law at it,
against rejection sampling, and bodies that exist.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from consistent_cases import folded, robot

import thetahat as th
from thetahat import robots
from thetahat.errors import UsageError
from thetahat.identification.consistency.constraints import Bounds
from thetahat.identification.consistency.misfit import nonnegative_columns
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.uncertainty.posterior import Limits, Posterior, RobotSamples
from thetahat.model import parameters
from thetahat.model.parameters import SIZE, M

DRAWS = 10_000
WITHIN = 0.10  # of a variance, as asked; chance alone leaves 0.014 √2 of 10,000 draws


@cache
def estimated() -> th.Estimate:
    info, _ = folded(robot("arm4"), np.random.default_rng(0), count=2000, noise=0.05)
    return th.Consistent(weight=100.0, metric="moments").estimate(info)


def pseudo_inertias(samples: RobotSamples) -> np.ndarray:
    return parameters.to_pseudo_inertia(samples.theta.reshape(len(samples), -1, SIZE))


def test_identified_directions_spread_as_stated() -> None:
    estimate = estimated()
    samples = estimate.sample(DRAWS, seed=1)
    base = samples.x @ estimate.base.map.T
    identified = estimate.base_prior_share.filled(1.0) < 0.1
    identified &= np.array([not flags for flags in estimate.flags])
    assert np.count_nonzero(identified) > 20
    C = estimate.covariance[np.ix_(identified, identified)]
    # in the directions of the stated covariance, all variances are one
    values, vectors = np.linalg.eigh(C)
    turned = (base - estimate.x_base)[:, identified] @ (vectors / np.sqrt(values))
    np.testing.assert_allclose(np.var(turned, axis=0), 1.0, atol=WITHIN)
    off = np.cov(turned.T) - np.diag(np.var(turned, axis=0))
    assert np.max(np.abs(off)) < WITHIN


def test_every_robot_drawn_can_exist() -> None:
    estimate = estimated()
    samples = estimate.sample(2000, seed=2)
    assert np.min(np.linalg.eigvalsh(pseudo_inertias(samples))) > 0.0
    assert np.all(samples.x[:, nonnegative_columns(Columns(estimate.robot))] >= 0.0)
    assert all(samples[5].consistency)
    assert len(list(estimate.sample(3))) == 3


def test_where_the_data_are_silent_bodies_stay_plausible() -> None:
    info, _ = folded(robot("arm4"), np.random.default_rng(0), count=2000, noise=0.05)
    masses = robot("arm4").theta[M::SIZE]
    bounds = {
        name: Bounds(mass=(0.8 * mass, 1.25 * mass))
        for name, mass in zip(robot("arm4").body_names, masses, strict=True)
    }
    estimator = th.Consistent(
        weight=1.0, metric="moments", constraints=th.Constraints(bounds=bounds)
    )
    samples = estimator.estimate(info).sample(2000, seed=3)
    ratio = samples.theta[:, M::SIZE] / masses
    assert np.all((ratio >= 0.8) & (ratio <= 1.25))
    # a prior of 100 % fills the range where nothing else does: the first link's mass is never seen
    assert np.min(ratio[:, 0]) < 0.85
    assert np.max(ratio[:, 0]) > 1.2


def test_a_seed_draws_the_same_robots() -> None:
    estimate = estimated()
    one, same, other = (estimate.sample(50, seed=seed).x for seed in (7, 7, 8))
    np.testing.assert_array_equal(one, same)
    assert np.all(one != other, axis=1).any()
    for bad in (0, -1, 2.5):
        with pytest.raises(UsageError):
            estimate.sample(bad)


@pytest.mark.parametrize("outside", [0.0, 1.5])
def test_at_the_boundary_the_law_is_cut_off(outside: float) -> None:
    """One body whose thinnest direction is centred on or beyond the edge of the cone, with a bound
    on its mass: moments against those of rejection sampling.
    """
    rng = np.random.default_rng(5)
    shapes = parameters.to_pseudo_inertia(np.eye(SIZE))[None]
    inner = parameters.from_mass_com_inertia(np.array(1.0), np.zeros(3), 2.0 * np.eye(3))
    root = 0.15 * (np.eye(SIZE) + 0.3 * rng.normal(size=(SIZE, SIZE)))
    thin = parameters.from_mass_com_inertia(
        np.array(1.0), np.zeros(3), np.diag([1.0, 1.0, 2.0 + 0.2 * outside])
    )
    unit = np.eye(SIZE)
    limits = Limits(
        shapes=shapes,
        first=np.zeros(1, dtype=int),
        G=unit[[M]],
        low=np.array([0.9]),
        expand=unit,
        fixed=np.zeros(SIZE),
        inner=inner,
    )
    law = Posterior(
        robot=th.load(robots.path("double_pendulum")),
        start=inner,
        centre=thin,
        data=root[:, :5],
        prior=root,
        limits=limits,
    )
    noise = np.eye(5)
    C = root[:, :5] @ root[:, :5].T + root @ root.T
    proposed = thin + rng.normal(size=(150_000, SIZE)) @ np.linalg.cholesky(C).T
    J = parameters.to_pseudo_inertia(proposed)
    accepted = proposed[(np.linalg.eigvalsh(J)[:, 0] > 0.0) & (proposed[:, M] >= 0.9)]
    assert len(accepted) > 2000
    drawn = law.draw(20_000, 3, noise).x
    std = np.std(accepted, axis=0)
    away = np.abs(np.mean(drawn, axis=0) - np.mean(accepted, axis=0)) / std
    assert np.max(away) < 5.0 / np.sqrt(len(accepted))
    np.testing.assert_allclose(np.std(drawn, axis=0), std, rtol=5.0 / np.sqrt(2 * len(accepted)))
    smallest = [
        np.linalg.eigvalsh(parameters.to_pseudo_inertia(x))[:, 0] for x in (drawn, accepted)
    ]
    quantiles = [np.quantile(each, [0.1, 0.5, 0.9]) for each in smallest]
    np.testing.assert_allclose(*quantiles, rtol=0.12)
