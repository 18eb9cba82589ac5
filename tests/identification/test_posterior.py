"""Robots drawn from an estimate: the stated spread off the boundary, the truncated law at it,
against rejection sampling, and bodies that exist.
"""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import pytest
import scipy.linalg
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
    # four times as many draws as asked: chains that stay near where they were leave 0.012 by chance
    # in one direction, a rotor's, whose spread bodies' bounds widen to 1.09 of the stated one
    drawn = [estimate.sample(DRAWS, seed=seed) for seed in (1, 2, 3, 4)]
    for samples in drawn:
        assert samples.physical_share is not None
        assert samples.physical_share > 0.95
    base = np.vstack([samples.x for samples in drawn]) @ estimate.base.map.T
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_draws_are_confined_to_what_has_a_physical_robot(seed: int) -> None:
    """A default `identify` of a seven-joint arm, whose intervals reach over the edge of bodies: of
    draws as stated, Clarabel finds a physical robot for the same share, and those it finds one for
    spread as the draws do.
    """
    import cvxpy
    from benchmarks.coverage import CELLS, log_columns, robot_file

    settings = th.IdentifySettings(report=False)
    columns = log_columns("arm7", CELLS["white"], seed)
    estimate = th.identify(robot_file("arm7"), columns, settings=settings).estimate
    estimate.sample(1)  # compiles
    begin = time.process_time()
    samples = estimate.sample(1000, seed=1)
    assert time.process_time() - begin < 2.0
    assert np.min(np.linalg.eigvalsh(pseudo_inertias(samples))) > 0.0
    law, sensitivity = estimate.diagnostics.posterior, estimate.diagnostics.sensitivity
    assert law is not None
    assert sensitivity is not None
    values, vectors = np.linalg.eigh(sensitivity.noise)
    noisy = law.data @ (vectors * np.sqrt(np.maximum(values, 0.0)))
    # share of noise in the variance, direction by direction
    total = noisy @ noisy.T + law.prior @ law.prior.T
    share, axes = scipy.linalg.eigh(noisy @ noisy.T, total)
    L = total @ axes
    limits, given = law.limits, cvxpy.Parameter(int(np.sum(share > 0.5)))
    free, margin = cvxpy.Variable(len(L) - given.size), cvxpy.Variable()
    v = law.centre + L[:, share <= 0.5] @ free + L[:, share > 0.5] @ given
    inside = [limits.G @ v >= limits.low, margin <= 1.0]
    for first, shape in zip(limits.first, limits.shapes, strict=True):
        J = sum(v[int(first) + j] * shape[j] for j in range(SIZE))
        inside.append(J >> margin * np.eye(4))
    problem = cvxpy.Problem(cvxpy.Maximize(margin), inside)
    rng, tried, physical = np.random.default_rng(4), [], []
    for _ in range(1200):
        given.value = rng.normal(size=given.size)
        problem.solve(solver="CLARABEL")
        tried.append(given.value)
        physical.append(problem.status == "optimal" and margin.value > 0.0)
    assert samples.physical_share is not None
    assert samples.physical_share == pytest.approx(np.mean(physical), abs=0.09)
    # rejection sampling: variances of what is kept are those of the draws, 0.7 of the stated ones
    # along some axis where the edge of bodies is near
    kept = np.var(np.array(tried)[np.array(physical)], axis=0)
    drawn = np.linalg.lstsq(limits.expand, (estimate.sample(8000).x - limits.fixed).T, rcond=None)
    xi = np.linalg.solve(L, drawn[0] - law.centre[:, None])[share > 0.5]
    ratio = np.var(xi, axis=1) / kept
    # a variance of 800 draws is known to 5 %: three times that over all axes
    assert np.all((ratio > 0.83) & (ratio < 1.17)), ratio
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.03)
    nearest = int(np.argmin(np.var(xi, axis=1)))
    assert kept[nearest] < 0.97


def one_body(centre: np.ndarray, data: np.ndarray, prior: np.ndarray) -> Posterior:
    """The law of a single body, whose mass is at least 0.9 kg."""
    unit = np.eye(SIZE)
    inner = parameters.from_mass_com_inertia(np.array(1.0), np.zeros(3), 2.0 * np.eye(3))
    limits = Limits(
        shapes=parameters.to_pseudo_inertia(unit)[None],
        first=np.zeros(1, dtype=int),
        G=unit[[M]],
        low=np.array([0.9]),
        expand=unit,
        fixed=np.zeros(SIZE),
        inner=inner,
    )
    robot = th.load(robots.path("double_pendulum"))
    return Posterior(robot, start=inner, centre=centre, data=data, prior=prior, limits=limits)


def test_a_prior_that_bodies_cut_off_does_not_narrow_what_the_data_determine() -> None:
    """Seven directions by data, three by a prior that is mostly not physical: against draws of the
    first as stated, each with the first of many draws of the others that makes a body.
    """
    rng = np.random.default_rng(6)
    known, tries, count, more = 7, 300, 3000, np.random.default_rng(7)
    A = np.eye(SIZE) + 0.4 * rng.normal(size=(SIZE, SIZE))
    A *= np.where(np.arange(SIZE) < known, 0.1, 0.4)
    centre = parameters.from_mass_com_inertia(np.array(1.3), np.zeros(3), np.diag([1.0, 1.0, 1.7]))
    law = one_body(centre, A[:, :known], A[:, known:])
    samples = law.draw(6000, 3, np.eye(known))
    expected, together = [], []
    for _ in range(count):
        xi = rng.normal(size=(tries, SIZE))
        together.append(_physical(centre + xi @ A.T))
        xi[:, :known] = xi[0, :known]
        body = _physical(centre + xi @ A.T)[:1]
        for _ in range(0 if len(body) else 9):  # thin bodies, which a draw in a thousand makes
            xi[:, known:] = more.normal(size=(tries, SIZE - known))
            body = np.concatenate([body, _physical(centre + xi @ A.T)])[:1]
        expected.append(body)
    accepted = np.concatenate(expected)
    assert len(accepted) > 0.9 * count
    share = samples.physical_share
    assert share is not None
    assert share == pytest.approx(len(accepted) / count, abs=0.03)
    std = np.std(accepted, axis=0)
    away = np.abs(np.mean(samples.x, axis=0) - np.mean(accepted, axis=0)) / std
    assert np.max(away) < 5.0 / np.sqrt(len(accepted))
    np.testing.assert_allclose(
        np.std(samples.x, axis=0), std, rtol=5.0 / np.sqrt(2 * len(accepted))
    )
    # the law cut off as a whole is another one
    whole = np.concatenate(together)
    other = np.abs(np.mean(whole, axis=0) - np.mean(accepted, axis=0)) / std
    assert np.max(other) > 8.0 / np.sqrt(len(accepted))


def _physical(x: np.ndarray) -> np.ndarray:
    J = parameters.to_pseudo_inertia(x)
    return x[(np.linalg.eigvalsh(J)[:, 0] > 0.0) & (x[:, M] >= 0.9)]


def test_in_a_corner_of_bounds_all_directions_are_drawn() -> None:
    """Eight quantities that are centred on zero and not negative, as friction that is not there,
    beside twelve free ones: half-normal and normal laws.
    """
    rng, bounded, count = np.random.default_rng(8), 8, 30
    body = parameters.from_mass_com_inertia(np.array(1.3), np.zeros(3), np.eye(3))
    spread = np.repeat([0.01, 1.0], [SIZE, count - SIZE])
    rotation = np.linalg.qr(rng.normal(size=(count, count)))[0]
    unit, centre = np.eye(count), np.concatenate([body, np.zeros(count - SIZE)])
    limits = Limits(
        shapes=parameters.to_pseudo_inertia(np.eye(SIZE))[None],
        first=np.zeros(1, dtype=int),
        G=unit[SIZE : SIZE + bounded],
        low=np.zeros(bounded),
        expand=unit,
        fixed=np.zeros(count),
        inner=centre + unit[SIZE : SIZE + bounded].sum(axis=0),
    )
    law = Posterior(
        robot=th.load(robots.path("double_pendulum")),
        start=centre,
        centre=centre,
        data=spread[:, None] * rotation,
        prior=np.zeros((count, 1)),
        limits=limits,
    )
    samples = law.draw(DRAWS, 1, np.eye(count))
    assert samples.physical_share is None
    x = samples.x[:, SIZE:]
    chance = 5.0 / np.sqrt(DRAWS)
    half = np.sqrt(2.0 / np.pi)
    np.testing.assert_allclose(np.mean(x[:, :bounded], axis=0), half, atol=chance)
    np.testing.assert_allclose(np.std(x[:, :bounded], axis=0), np.sqrt(1 - half**2), atol=chance)
    np.testing.assert_allclose(np.mean(x[:, bounded:], axis=0), 0.0, atol=chance)
    np.testing.assert_allclose(np.std(x[:, bounded:], axis=0), 1.0, atol=chance)


@pytest.mark.parametrize("outside", [0.0, 1.5])
def test_at_the_boundary_the_law_is_cut_off(outside: float) -> None:
    """One body whose thinnest direction is centred on or beyond the edge of the cone, with a bound
    on its mass: moments against those of rejection sampling.
    """
    rng = np.random.default_rng(5)
    root = 0.15 * (np.eye(SIZE) + 0.3 * rng.normal(size=(SIZE, SIZE)))
    thin = parameters.from_mass_com_inertia(
        np.array(1.0), np.zeros(3), np.diag([1.0, 1.0, 2.0 + 0.2 * outside])
    )
    law = one_body(thin, root[:, :5], root)
    noise = np.eye(5)
    C = root[:, :5] @ root[:, :5].T + root @ root.T
    accepted = _physical(thin + rng.normal(size=(150_000, SIZE)) @ np.linalg.cholesky(C).T)
    assert len(accepted) > 2000
    samples = law.draw(20_000, 3, noise)
    assert samples.physical_share is None
    drawn = samples.x
    std = np.std(accepted, axis=0)
    away = np.abs(np.mean(drawn, axis=0) - np.mean(accepted, axis=0)) / std
    assert np.max(away) < 5.0 / np.sqrt(len(accepted))
    np.testing.assert_allclose(np.std(drawn, axis=0), std, rtol=5.0 / np.sqrt(2 * len(accepted)))
    smallest = [
        np.linalg.eigvalsh(parameters.to_pseudo_inertia(x))[:, 0] for x in (drawn, accepted)
    ]
    quantiles = [np.quantile(each, [0.1, 0.5, 0.9]) for each in smallest]
    np.testing.assert_allclose(*quantiles, rtol=0.12)
