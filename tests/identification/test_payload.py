"""Payloads: Pinocchio simulates the robot that holds one; NumPy's plain least squares and CVXPY
solve the same problems from all rows.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from data_paths import needs_examples
from payload_cases import (
    PANDA,
    TOOL,
    Bar,
    Run,
    case,
    every_way,
    noisy_pair,
    numbers,
    path,
    robot,
    sensor_noise,
    torques,
    truth,
)

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.identification.consistency.program import MARGIN, smallest_eigenvalue
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.payload.payload_difference import (
    payload_from_difference,
    payload_on_link,
)
from thetahat.identification.solve import solve
from thetahat.model import parameters

Z95 = 1.959963984540054
# relative to the size of each kind of number: noise-free, noise counts as a millionth of the torque
EXACT = 1e-6
ARMS = [
    ("panda", TOOL),
    ("panda", "panda_link8"),
    ("ur10", "tool0"),
    ("arm4", "hand"),
    ("arm7", "tool"),
    ("panda", "panda_link4"),
]


# -- the truth is found ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "link"), ARMS)
def test_without_noise_all_ten_are_exact(name: str, link: str) -> None:
    arm, loaded, unloaded = case(name, link)
    size = truth(Bar())[0] * np.array([1.0, *[0.1] * 3, *[0.01] * 6])
    for way, payload in every_way(arm, loaded.clean, unloaded.clean, link).items():
        np.testing.assert_allclose(
            numbers(payload)[0] / size, truth(Bar()) / size, rtol=0, atol=EXACT, err_msg=way
        )
        assert payload.status == "solved"
        assert payload.consistent
        assert not payload.unseen
        assert not payload.advice
        assert payload.exact_rest == (way == "robot")


@pytest.mark.parametrize("mass", [0.3, 1.0, 3.0])
@needs_examples
def test_a_pandas_payload_within_one_percent(mass: float) -> None:
    """Friction, offsets, and the noise of a Panda's sensors on 10 s at 1 kHz: both ways, ten draws
    each.
    """
    for seed in range(10):
        arm, loaded, unloaded = noisy_pair(PANDA, TOOL, seed, bar=Bar(mass=mass))
        for payload in every_way(arm, loaded, unloaded, TOOL).values():
            assert payload.mass == pytest.approx(mass, rel=0.01)
            np.testing.assert_allclose(payload.com, Bar(mass=mass).inertia.lever, rtol=0, atol=2e-3)
            assert payload.consistent
            assert payload.status == "solved"
            assert 0.3 < payload.misfit < 2.0


@needs_examples
def test_folded_samples_with_noise_on_every_torque() -> None:
    """Not by drawn factors: samples, 2 % of each joint's torque as noise, folded as a log is."""
    arm, rng, bar = robot(PANDA), np.random.default_rng(5), Bar(mass=0.8)
    runs = []
    for seed, load in ((1, {}), (2, {"load": bar.inertia, "link": TOOL})):
        states = path(arm, 15.0, seed=seed)
        tau = torques(arm, states, **load)
        tau = tau + 0.02 * np.sqrt(np.mean(tau**2, axis=0)) * rng.normal(size=tau.shape)
        runs.append(information(arm, Samples(q=states[0], dq=states[1], ddq=states[2], tau=tau)))
    for payload in every_way(arm, runs[1], runs[0], TOOL).values():
        values, std = numbers(payload)
        assert payload.mass == pytest.approx(0.8, rel=0.01)
        assert np.all(np.abs(values - truth(bar)) < 4.5 * std)


# -- one problem, solved rightly -------------------------------------------------------------------


@pytest.mark.parametrize(("name", "link"), [("arm7", "link5"), ("arm4", "hand")])
@pytest.mark.parametrize("differing", [(), ("coulomb", "offset")])
def test_the_difference_is_one_least_squares_problem_of_all_rows(
    name: str, link: str, differing: tuple[str, ...]
) -> None:
    """NumPy, every row of both runs: values and covariance of [x shared; what differs; payload]."""
    arm, rng = robot(name), np.random.default_rng(0)
    blocks, infos = [], []
    for seed, load in ((1, {}), (2, {"load": Bar().inertia, "link": link})):
        q, dq, ddq = path(arm, 2.0, seed=seed, rate=0.5)
        tau = torques(arm, (q, dq, ddq), **load)
        tau = tau + np.linspace(0.4, 0.1, arm.nv) * (1.0 + seed) * rng.normal(size=tau.shape)
        infos.append(information(arm, Samples(q=q, dq=dq, ddq=ddq, tau=tau)))
        blocks.append((full_regressor(arm, q, dq, ddq), tau, weigh(infos[-1], "joint").noise))
    payload = payload_from_difference(infos[1], infos[0], link, differing=differing)
    there = next(each for each in arm.links if each.name == link)
    place = np.column_stack(
        [parameters.transform(unit, there.rotation, there.translation) for unit in np.eye(10)]
    )
    motors = len(arm.drive.column_motors)
    terms = [
        len(arm.theta) + motors * arm.drive.identified.index(term) + k
        for term in differing
        for k in range(motors)
    ]
    rows, right = [], []
    for (Y, tau, noise), on in zip(blocks, (0.0, 1.0), strict=True):
        Y, n = Y / noise[:, None], Y.shape[0] * Y.shape[1]
        base = Y[..., infos[0].base.independent].reshape(n, -1)
        ten = on * Y[..., 10 * there.body : 10 * there.body + 10].reshape(n, 10) @ place
        rows.append(np.hstack([base, on * Y[..., terms].reshape(n, -1), ten]))
        right.append((tau / noise).ravel())
    A, b = np.vstack(rows), np.concatenate(right)
    norms = np.linalg.norm(A, axis=0)
    x, *_ = np.linalg.lstsq(A / norms, b, rcond=1e-13)
    C = np.linalg.inv((A / norms).T @ (A / norms)) / norms / norms[:, None]
    std = np.sqrt(np.diag(C))
    np.testing.assert_allclose(
        payload.least_squares / std[-10:], (x / norms)[-10:] / std[-10:], rtol=0, atol=1e-4
    )
    np.testing.assert_allclose(
        payload.covariance / np.outer(std[-10:], std[-10:]),
        C[-10:, -10:] / np.outer(std[-10:], std[-10:]),
        rtol=0,
        atol=1e-5,
    )


def test_the_body_is_the_best_one() -> None:
    """CVXPY's, from all rows, where least squares gives none: a thin bar, much noise."""
    cp = pytest.importorskip("cvxpy")
    arm, rng, bar = robot("arm7"), np.random.default_rng(1), Bar(mass=0.4, sides=(0.25, 0.01, 0.01))
    q, dq, ddq = path(arm, 2.0, seed=2)
    tau = torques(arm, (q, dq, ddq), load=bar.inertia, link="flange") + rng.normal(size=q.shape)
    info = information(arm, Samples(q=q, dq=dq, ddq=ddq, tau=tau))
    payload = payload_on_link(info, arm, "flange")
    assert payload.replaced
    assert not parameters.check(payload.least_squares)
    assert smallest_eigenvalue(payload.theta) >= 0.1 * MARGIN
    noise = weigh(info, "joint").noise
    Y = (
        dict(
            zip(
                arm.body_names,
                np.split(th.regressor(arm, q, dq, ddq), len(arm.body_names), axis=-1),
                strict=True,
            )
        )["flange"]
        / noise[:, None]
    )
    left = ((tau - th.inverse_dynamics(arm, q, dq, ddq)) / noise).ravel()
    A, norms = Y.reshape(-1, 10), np.linalg.norm(Y.reshape(-1, 10), axis=0)
    R = np.linalg.qr(np.column_stack([A / norms, left]), mode="r")
    v = cp.Variable(10)
    basis = parameters.to_pseudo_inertia(np.eye(10))
    J = sum(
        v[k] / norms[k] * (basis[k] - MARGIN * np.trace(basis[k]) * np.eye(4)) for k in range(10)
    )
    W = np.diag([10.0, 10.0, 10.0, 1.0])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(R[:, :10] @ v - R[:, 10])), [W @ J @ W >> 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL, tol_gap_rel=1e-11, tol_gap_abs=1e-11, tol_feas=1e-11)
    np.testing.assert_allclose(
        payload.theta / payload.theta_std, v.value / norms / payload.theta_std, rtol=0, atol=1e-3
    )


def test_an_estimate_with_its_covariance_is_the_other_run() -> None:
    """Weighted least squares of the unloaded run and its covariance hold all of that run: the two
    ways are one.
    """
    for seed in range(3):
        arm, loaded, unloaded = noisy_pair("arm7", "tool", seed)
        ways = every_way(arm, loaded, unloaded, "tool")
        a, b = ways["difference"], ways["estimate"]
        np.testing.assert_allclose(a.theta / a.theta_std, b.theta / b.theta_std, rtol=0, atol=1e-3)
        np.testing.assert_allclose(a.theta_std, b.theta_std, rtol=1e-4)
        assert np.all(ways["robot"].theta_std < b.theta_std)  # what counts as exact is not in it
        assert "counts as exact" in str(ways["robot"])
        assert "counts as exact" not in str(b)


# -- intervals that cover --------------------------------------------------------------------------


def coverage(
    name: str,
    link: str,
    way: str,
    draws: int,
    *,
    factor: float = 1.0,
    bar: Bar = Bar(),  # noqa: B008
) -> tuple[np.ndarray, np.ndarray]:
    """Share of 95 % intervals that hold the truth: of mass, com and inertia; of the ten numbers by
    least squares.
    """
    arm, loaded, unloaded = case(name, link, bar=bar)
    rng, std = np.random.default_rng(11), factor * sensor_noise(arm)
    ten = th.from_pinocchio(bar.inertia.toDynamicParameters())
    inside, linear = [], []
    for _ in range(draws):
        with_load, without = loaded.noisy(rng, std), unloaded.noisy(rng, std)
        if way == "difference":
            payload = payload_from_difference(with_load, without, link)
        else:
            payload = payload_on_link(
                with_load,
                solve(without, LeastSquares(weights="joint")) if way == "estimate" else arm,
                link,
            )
        values, spread = numbers(payload)
        inside.append(np.abs(values - truth(bar)) <= Z95 * spread)
        linear.append(np.abs(payload.least_squares - ten) <= Z95 * payload.theta_std)
    return np.mean(inside, axis=0), np.mean(linear, axis=0)


@pytest.mark.parametrize("way", ["difference", "estimate", "robot"])
@needs_examples
def test_intervals_cover(way: str) -> None:
    inside, linear = coverage(PANDA, TOOL, way, 400)
    for share in (inside, linear):
        assert np.all((share >= 0.92) & (share <= 0.98)), share
        assert 0.935 <= np.mean(share) <= 0.965


@pytest.mark.slow
@pytest.mark.parametrize("way", ["difference", "estimate", "robot"])
@pytest.mark.parametrize(("name", "link"), ARMS)
def test_intervals_cover_on_other_robots(name: str, link: str, way: str) -> None:
    """Near the edge of what is a body the fit is nearer to the truth than least squares, whose
    spread it keeps: it covers no less.
    """
    inside, linear = coverage(name, link, way, 1500)
    assert np.all((linear >= 0.92) & (linear <= 0.98)), linear
    assert np.all(inside >= 0.92), inside
    assert 0.94 <= np.mean(linear) <= 0.96


@pytest.mark.slow
@pytest.mark.parametrize("mass", [0.3, 3.0])
@needs_examples
def test_intervals_cover_for_light_and_heavy_payloads(mass: float) -> None:
    inside, linear = coverage(PANDA, TOOL, "difference", 1500, factor=2.0, bar=Bar(mass=mass))
    assert np.all((linear >= 0.92) & (linear <= 0.98)), linear
    assert np.all(inside >= 0.92), inside


# -- frames, friction, misfit, inflation -----------------------------------------------------------


@needs_examples
def test_frames_of_links_welded_to_the_same_body() -> None:
    """The same payload seen from the flange, by Pinocchio's change of frame; and the robot that
    holds it feels Pinocchio's torques.
    """
    arm, loaded, unloaded = case(PANDA, TOOL)
    links = {link.name: pin.SE3(link.rotation, link.translation) for link in arm.links}
    payload = payload_from_difference(loaded.clean, unloaded.clean, TOOL, frame="panda_link8")
    seen = Bar().inertia.se3Action(links["panda_link8"].inverse() * links[TOOL])
    assert payload.frame == "panda_link8"
    np.testing.assert_allclose(payload.com, seen.lever, atol=1e-7)
    np.testing.assert_allclose(payload.inertia_com, seen.inertia, atol=1e-7)
    states = path(arm, 0.2, seed=9)
    holding = payload.added_to(arm)
    np.testing.assert_allclose(
        th.inverse_dynamics(holding, *states),
        torques(arm, states, load=Bar().inertia, link=TOOL),
        atol=1e-5,
    )


def test_friction_that_changed_is_noticed_and_allowed_for() -> None:
    arm, rng = robot("arm7"), np.random.default_rng(3)
    warm = replace(
        arm,
        drive=arm.drive.with_values(viscous=0.6 * arm.drive.viscous, offset=arm.drive.offset + 0.2),
    )
    loaded = Run.of(warm, path(arm, 10.0, seed=2), load=Bar().inertia, link="tool")
    infos = [
        replace(run.noisy(rng, sensor_noise(arm)), robot=arm)
        for run in (loaded, Run.of(arm, path(arm, 10.0, seed=1)))
    ]
    naive = payload_from_difference(*infos, "tool")
    assert naive.misfit > 10.0
    assert "differing" in naive.advice[-1]
    payload = payload_from_difference(*infos, "tool", differing=("viscous", "offset"))
    values, std = numbers(payload)
    assert np.all(np.abs(values - truth(Bar())) < 4.5 * std)
    assert not payload.advice
    assert payload.misfit < 2.0
    # fewer unknowns spread less by noise alone; what the runs differ by counts as noise, too
    assert np.all(payload.theta_std > naive.theta_std / np.sqrt(naive.misfit))
    wrong, spread = numbers(naive)
    assert np.all(np.abs(wrong - truth(Bar())) < 4.5 * spread)
    alone = spread / np.sqrt(naive.misfit)
    assert np.any(np.abs(wrong - truth(Bar())) > 4.5 * alone), "without inflation it would fail"


@needs_examples
def test_a_payload_elsewhere_or_a_robot_that_is_another_is_noticed() -> None:
    arm, loaded, unloaded = noisy_pair(PANDA, "panda_link4", 0)
    assert "another link" in payload_from_difference(loaded, unloaded, TOOL).advice[-1]
    heavier = arm.with_parameters(1.05 * arm.theta)
    assert "identify the robot" in payload_on_link(loaded, heavier, "panda_link4").advice[-1]


def test_inflation_widens_the_intervals_of_its_joint() -> None:
    arm, loaded, unloaded = noisy_pair("arm7", "tool", 0)
    plain, wide = (
        payload_from_difference(loaded, unloaded, "tool", inflation=k)
        for k in (None, np.full(arm.nv, 3.0))
    )
    np.testing.assert_allclose(wide.theta_std, 3.0 * plain.theta_std, rtol=1e-9)
    np.testing.assert_allclose(wide.least_squares, plain.least_squares, rtol=1e-6, atol=1e-9)
    factors = np.ones((2, arm.nv))
    factors[0, 2:5] = 5.0
    one = payload_from_difference(loaded, unloaded, "tool", inflation=factors)
    assert np.all((one.theta_std > plain.theta_std) & (one.theta_std < 5.0 * plain.theta_std))
    assert payload_on_link(
        loaded, arm, "tool", inflation=np.full(arm.nv, 2.0)
    ).mass_std == pytest.approx(2.0 * payload_on_link(loaded, arm, "tool").mass_std)
