"""`Information`: fold and merge, against the plain stacked regressor and NumPy's pseudo-inverse."""

from __future__ import annotations

import numpy as np
import pytest
from data_paths import example_robot

import thetahat as th
from thetahat import robots
from thetahat.data.samples import Samples
from thetahat.errors import MalformedInput, NotIdentifiable, StorageError, UsageError
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.solve import solve as run

MERGE = (
    1e-12  # relative to the size of a column: rounding of a QR of a few thousand rows stays below
)


def identify(info: Information, estimator: object = None):
    """The pseudo-inverse, unless told otherwise."""
    return run(info, LeastSquares() if estimator is None else estimator)


def with_friction(robot: th.Robot) -> th.Robot:
    return robot.with_drive(viscous=True, coulomb=True, offset=True)


def simulated(robot: th.Robot, count: int, *, seed: int = 0, noise: float = 0.0) -> Samples:
    rng = np.random.default_rng(seed)
    q = th.random_configuration(robot, rng, count)
    dq, ddq = rng.normal(size=(count, robot.nv)), 3.0 * rng.normal(size=(count, robot.nv))
    tau = th.inverse_dynamics(robot, q, dq, ddq) + noise * rng.normal(size=(count, robot.nv))
    return Samples(q=q, dq=dq, ddq=ddq, tau=tau)


def arm(name: str = "arm4") -> th.Robot:
    return with_friction(th.load(robots.path(name)))


def stacked(robot: th.Robot, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """The paper's Y_C and U_C."""
    Y = full_regressor(robot, samples.q, samples.dq, samples.ddq)
    return Y.reshape(-1, Y.shape[-1]), samples.tau.ravel()


@pytest.mark.parametrize("count", [200, 1024, 1500, 2500])
@pytest.mark.parametrize("name", ["double_pendulum", "arm4", "arm7"])
def test_least_squares_is_the_pseudo_inverse(name: str, count: int) -> None:
    """Θ̂ = pinv(Y_C) U_C, minimum norm, and the paper's R², total and per joint."""
    robot = arm(name)
    samples = simulated(robot, count, noise=0.05)
    estimate = identify(information(robot, samples))
    Y, u = stacked(robot, samples)
    x = np.linalg.pinv(Y) @ u
    np.testing.assert_allclose(estimate.x, x, atol=1e-9 * np.abs(x).max())
    residual = u - Y @ x
    assert estimate.r2 == pytest.approx(1.0 - residual @ residual / (u @ u), abs=1e-12)
    per_joint = 1.0 - np.sum(residual.reshape(-1, robot.nv) ** 2, axis=0) / np.sum(
        samples.tau**2, axis=0
    )
    np.testing.assert_allclose(estimate.r2_per_joint, per_joint, atol=1e-12)
    norms = np.linalg.norm(Y, axis=0)
    scaled = Y / np.where(
        norms > 1e-9 * norms.max(), norms, np.inf
    )  # columns that are zero but for rounding stay so
    assert estimate.rank == len(estimate.base) == np.linalg.matrix_rank(scaled, tol=1e-9)
    assert estimate.status == "solved"


def test_the_truth_is_found_without_noise() -> None:
    robot = arm("arm7")
    estimate = identify(information(robot, simulated(robot, 2000)))
    truth = np.concatenate(
        [robot.theta, robot.drive.viscous, robot.drive.coulomb, robot.drive.offset]
    )
    np.testing.assert_allclose(estimate.x_base, estimate.base.map @ truth, rtol=1e-8, atol=1e-10)
    assert estimate.r2 >= 1.0 - 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_merge_is_batch_for_any_split_and_order(seed: int) -> None:
    robot = arm("arm7")
    samples = simulated(robot, 3000, seed=seed, noise=0.1)
    rng = np.random.default_rng(seed)
    order = rng.permutation(3000)
    parts = [
        information(robot, samples.subset(rows))
        for rows in np.split(order, np.sort(rng.choice(np.arange(1, 3000), 5, replace=False)))
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged + part
    whole = information(robot, samples, threads=1)
    # One joint's columns may depend on each other, and its factor is then not unique; all joints'
    # together is.
    a, b = merged.stacked(), whole.stacked()
    size = np.linalg.norm(b, axis=0)
    np.testing.assert_allclose(a / size, b / size, rtol=0, atol=MERGE)
    for one, other in zip(merged.factors, whole.factors, strict=True):
        gram = other.T @ other
        np.testing.assert_allclose(one.T @ one, gram, rtol=0, atol=MERGE * np.abs(gram).max())
    np.testing.assert_array_equal(merged.rows, whole.rows)
    assert merged.samples == whole.samples == 3000
    np.testing.assert_allclose(
        identify(merged).x_base, identify(whole).x_base, rtol=1e-9, atol=1e-11
    )


def test_a_stream_of_batches_is_one_pass() -> None:
    robot = arm()
    samples = simulated(robot, 2000, noise=0.1)
    batches = (samples.subset(np.arange(k, min(k + 333, 2000))) for k in range(0, 2000, 333))
    streamed, whole = information(robot, batches), information(robot, samples)
    a, b = streamed.stacked(), whole.stacked()
    size = np.linalg.norm(b, axis=0)
    np.testing.assert_allclose(a / size, b / size, rtol=0, atol=MERGE)


def test_threads_agree_and_repeat_to_the_bit() -> None:
    robot = arm("arm7")
    samples = simulated(robot, 5000, noise=0.1)
    first, *others = (identify(information(robot, samples, threads=2)).x for _ in range(6))
    assert all(np.array_equal(first, other) for other in others)
    one, two = (identify(information(robot, samples, threads=threads)).x_base for threads in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-11)


def test_rows_marked_unusable_do_not_count() -> None:
    robot = arm()
    samples = simulated(robot, 1200, noise=0.1)
    reason = np.zeros(samples.tau.shape, dtype=np.uint8)
    reason[100:300, 1] = 1
    spoiled = samples.tau.copy()
    spoiled[100:300, 1] = 1e6
    masked = information(
        robot, Samples(q=samples.q, dq=samples.dq, ddq=samples.ddq, tau=spoiled, reason=reason)
    )
    assert masked.rows.tolist() == [1200, 1000, 1200, 1200]
    Y = full_regressor(robot, samples.q, samples.dq, samples.ddq)
    keep = reason == 0
    x = np.linalg.pinv(Y[keep]) @ spoiled[keep]
    np.testing.assert_allclose(identify(masked).x, x, atol=1e-9 * np.abs(x).max())


def test_row_weights_are_those_of_weighted_least_squares() -> None:
    robot = arm()
    samples = simulated(robot, 900, noise=0.3)
    weights = np.random.default_rng(1).uniform(0.1, 2.0, samples.tau.shape)
    Y, u = stacked(robot, samples)
    x = np.linalg.pinv(Y * weights.ravel()[:, None]) @ (u * weights.ravel())
    np.testing.assert_allclose(
        identify(information(robot, samples, weights=weights)).x, x, atol=1e-9 * np.abs(x).max()
    )


def test_joint_weights_are_the_two_stage_fit() -> None:
    robot = arm()
    rng = np.random.default_rng(3)
    samples = simulated(robot, 4000)
    tau = samples.tau + rng.normal(size=samples.tau.shape) * [5.0, 0.5, 0.05, 0.005]
    samples = Samples(q=samples.q, dq=samples.dq, ddq=samples.ddq, tau=tau)
    info = information(robot, samples)
    first, second = identify(info), identify(info, LeastSquares(weights="joint"))
    truth = first.base.map @ np.concatenate(
        [robot.theta, robot.drive.viscous, robot.drive.coulomb, robot.drive.offset]
    )
    # Gauss–Markov: the weighted fit is the closer one where its own standard deviations say so.
    z_plain, z_weighted = np.abs(first.x_base - truth), np.abs(second.x_base - truth)
    assert np.median(z_weighted / z_plain) < 0.5
    assert np.mean(np.abs(second.x_base - truth) / second.base_std.filled(np.inf) < 2.0) > 0.85


def test_standard_deviations_are_those_of_ordinary_least_squares() -> None:
    robot = arm()
    samples = simulated(robot, 1500, noise=0.2)
    estimate = identify(information(robot, samples))
    Y, u = stacked(robot, samples)
    B = Y[:, estimate.base.independent]
    residual = u - B @ np.linalg.lstsq(B, u, rcond=None)[0]
    expected = np.sqrt(
        np.diag(np.linalg.inv(B.T @ B)) * (residual @ residual) / (len(u) - B.shape[1])
    )
    np.testing.assert_allclose(estimate.base_std, expected, rtol=1e-8)


def test_mimic_and_multi_dof_robots_fold_like_the_plain_regressor() -> None:
    robot = with_friction(th.load(example_robot("panda")))  # its fingers are coupled
    samples = simulated(robot, 1100, noise=0.1)
    Y, u = stacked(robot, samples)
    x = np.linalg.pinv(Y) @ u
    np.testing.assert_allclose(
        identify(information(robot, samples)).x, x, atol=1e-8 * np.abs(x).max()
    )
    floating = th.load(example_robot("solo12"), floating_base=True)
    samples = simulated(floating, 700, noise=0.1)
    Y, u = stacked(floating, samples)
    x = np.linalg.pinv(Y) @ u
    np.testing.assert_allclose(
        identify(information(floating, samples)).x, x, atol=1e-8 * np.abs(x).max()
    )


def test_a_coupled_wrist_folds_through_the_actuation_map() -> None:
    B = np.eye(4)
    B[2, 3] = 1.0  # motor 4 also drives joint 3
    robot = with_friction(th.load(robots.path("arm4")).without_drive().with_actuation(B))
    samples = simulated(robot, 1500, noise=0.05)
    Y, u = stacked(robot, samples)
    x = np.linalg.pinv(Y) @ u
    np.testing.assert_allclose(
        identify(information(robot, samples)).x, x, atol=1e-9 * np.abs(x).max()
    )


def test_standstill_is_rank_short_and_says_which_joint_to_move() -> None:
    robot = arm()
    samples = simulated(robot, 500)
    still = np.zeros_like(samples.dq)
    frozen = Samples(q=np.tile(samples.q[:1], (500, 1)), dq=still, ddq=still, tau=samples.tau)
    info = information(robot, frozen)
    assert info.rank < len(info.base)
    estimate = identify(info)
    assert estimate.status == "rank_short"
    assert np.all(np.isfinite(estimate.x))
    assert len(estimate.advice) == len(info.base) - info.rank
    assert any(joint in " ".join(estimate.advice) for joint in robot.joint_names)
    with pytest.raises(NotIdentifiable, match=f"rank {info.rank} of {len(info.base)}"):
        identify(info, LeastSquares(strict=True))


def still_elbow(robot: th.Robot, *, noise: float) -> Samples:
    """A log in which the last joint never moves."""
    samples = simulated(robot, 800)
    q, dq, ddq = samples.q.copy(), samples.dq.copy(), samples.ddq.copy()
    q[:, 3], dq[:, 3], ddq[:, 3] = 0.3, 0.0, 0.0
    tau = th.inverse_dynamics(robot, q, dq, ddq) + noise * np.random.default_rng(5).normal(
        size=dq.shape
    )
    return Samples(q=q, dq=dq, ddq=ddq, tau=tau)


def test_a_still_joint_is_named() -> None:
    info = information(arm(), still_elbow(arm(), noise=0.0))
    assert info.rank < len(info.base)
    assert any("elbow" in sentence for sentence in info.missing())


@pytest.mark.parametrize("weights", [None, "joint"])
def test_rank_short_is_the_pseudo_inverse_too(weights: str | None) -> None:
    """What the data do not see must not spoil what they do: of all best fits the one of
    least norm.
    """
    robot = arm()
    samples = still_elbow(robot, noise=0.1)
    info = information(robot, samples)
    estimate = identify(info, LeastSquares(weights=weights))
    Y, u = stacked(robot, samples)
    if weights == "joint":
        inverse = np.linalg.pinv(Y, rcond=1e-10)
        taken = (
            np.einsum("rc,cr->r", Y, inverse).reshape(-1, robot.nv).sum(axis=0)
        )  # of each joint's noise, by the fit
        variance = np.sum((u - Y @ (inverse @ u)).reshape(-1, robot.nv) ** 2, axis=0) / (
            len(samples.q) - taken
        )
        weight = np.tile(1.0 / np.sqrt(variance), len(samples.q))
        Y, u = Y * weight[:, None], u * weight
    x = np.linalg.pinv(Y, rcond=1e-10) @ u
    assert estimate.status == "rank_short"
    np.testing.assert_allclose(Y @ estimate.x, Y @ x, rtol=0, atol=1e-7 * np.abs(u).max())
    np.testing.assert_allclose(estimate.x, x, atol=1e-7 * np.abs(x).max())


def test_informations_of_different_robots_do_not_merge() -> None:
    one, other = arm("arm4"), arm("arm7")
    a, b = information(one, simulated(one, 100)), information(other, simulated(other, 100))
    with pytest.raises(UsageError, match="different robots"):
        a + b
    sideways = one.with_gravity([9.81, 0, 0])
    with pytest.raises(UsageError, match="different robots"):
        a + information(sideways, simulated(sideways, 100))


def test_parameters_do_not_matter_to_the_factor() -> None:
    """Two units of one robot share geometry, so their informations merge."""
    robot = arm()
    heavier = robot.with_parameters(2.0 * robot.theta)
    samples = simulated(robot, 300)
    assert (information(robot, samples) + information(heavier, samples)).samples == 600


def test_wrong_samples_are_refused() -> None:
    with pytest.raises(UsageError, match="prepare them with this robot"):
        information(arm("arm7"), simulated(arm("arm4"), 50))


def test_valkyrie_arm_and_leg() -> None:
    """The paper's robots: the rank of the data is the structural one, 24 and 22."""
    for name, rank in (("valkyrie_arm", 24), ("valkyrie_leg", 22)):
        robot = th.load(robots.path(name)).without_drive()
        info = information(robot, simulated(robot, 400))
        assert info.rank == len(info.base) == rank


def test_save_and_load(tmp_path) -> None:
    robot = arm()
    info = information(robot, simulated(robot, 400, noise=0.1))
    info.save(tmp_path / "info.npz")
    back = Information.load(tmp_path / "info.npz", robot)
    assert [path.name for path in tmp_path.iterdir()] == ["info.npz"]
    for a, b in zip(back.factors, info.factors, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(identify(back + info).x, identify(info + info).x)
    with pytest.raises(UsageError, match="another robot"):
        Information.load(tmp_path / "info.npz", robot.with_gravity([0, 9.81, 0]))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "info.npz").read_bytes()[:200])
    with pytest.raises(MalformedInput, match=r"cut\.npz"):
        Information.load(tmp_path / "cut.npz", robot)
    with pytest.raises(StorageError, match="cannot be read"):
        Information.load(tmp_path / "absent.npz", robot)
    with pytest.raises(StorageError, match="cannot be written"):
        info.save(tmp_path / "no folder" / "info.npz")
