"""An information seen through fewer columns, or fewer joints, is what folding with those would have
given.
"""

from __future__ import annotations

import numpy as np
import pytest
import simulated_log
from data_paths import shared_file

import thetahat as th
from thetahat import robots
from thetahat.errors import UsageError
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.submodel import view

ROUNDING = 1e-9


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return (
        th.load(robots.path("arm4"))
        .without_drive()
        .with_drive(viscous=True, coulomb=True, offset=True, armature=True)
    )


@pytest.fixture(scope="module")
def samples(robot: th.Robot) -> th.Samples:
    _, q, dq, ddq = simulated_log.motion(4, seconds=4.0)
    tau = simulated_log.torque(robot.source, q, dq, ddq) + simulated_log.drive(dq, ddq, rotor=True)
    return th.Samples(
        q=q, dq=dq, ddq=ddq, tau=tau + np.random.default_rng(0).normal(size=tau.shape)
    )


@pytest.mark.parametrize(
    "terms",
    [(), ("armature",), ("armature", "coulomb"), ("viscous", "coulomb", "offset", "armature")],
)
def test_without_terms_is_folded_without_them(
    robot: th.Robot, samples: th.Samples, terms: tuple[str, ...]
) -> None:
    seen = view(th.information(robot, samples), without=terms)
    direct = th.information(robot.with_drive(**dict.fromkeys(terms, False)), samples)
    assert seen.base.names == direct.base.names
    for a, b in zip(seen.factors, direct.factors, strict=True):
        np.testing.assert_allclose(a.T @ a, b.T @ b, rtol=0, atol=ROUNDING * np.abs(b.T @ b).max())
    found, expected = (th.solve(info, th.LeastSquares(weights="joint")) for info in (seen, direct))
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.base_std, expected.base_std, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "dofs"),
    [
        ("arm4", (0,)),
        ("arm4", (3,)),
        ("arm4", (1, 2)),
        ("arm4", (0, 3)),
        ("arm4", (0, 1, 2, 3)),
        ("arm7", (0,)),
        ("arm7", (0, 3, 4)),
        ("arm7", (2, 5)),
    ],
)
def test_some_joints_alone_give_their_own_least_squares(name: str, dofs: tuple[int, ...]) -> None:
    """NumPy's least squares on the rows of those joints: the same prediction, the same rank,
    nothing missing. On arm7 base columns merge.
    """
    robot = (
        th.load(robots.path(name))
        .without_drive()
        .with_drive(viscous=True, coulomb=True, offset=True, armature=True)
    )
    _, q, dq, ddq = simulated_log.motion(robot.nv, seconds=6.0)
    tau = simulated_log.torque(robot.source, q, dq, ddq) + np.random.default_rng(0).normal(
        size=q.shape
    )
    seen = view(th.information(robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau)), dofs=dofs)
    estimate = th.solve(seen, th.LeastSquares(strict=True))
    Y = full_regressor(robot, q, dq, ddq)[:, list(dofs)].reshape(-1, len(estimate.x))
    u = tau[:, list(dofs)].ravel()
    norm = np.linalg.norm(Y, axis=0)
    scaled = Y / np.where(norm > 1e-12 * norm.max(), norm, 1.0)
    y, _, rank, _ = np.linalg.lstsq(scaled, u, rcond=1e-9)
    assert estimate.rank == len(seen.base) == rank
    np.testing.assert_allclose(Y @ estimate.x, scaled @ y, rtol=0, atol=1e-6 * np.abs(u).max())
    np.testing.assert_allclose(
        Y[:, seen.base.independent] @ seen.base.map, Y, rtol=0, atol=1e-6 * np.abs(Y).max()
    )
    assert [v for v in range(robot.nv) if seen.rows[v]] == list(dofs)
    assert np.array_equal([kind == "never" for kind in seen.base.kinds], norm <= 1e-12 * norm.max())


def test_weak_directions_do_not_take_part() -> None:
    """KR300: what rounding left in its file would make parameters of 1e12."""
    robot = th.load(shared_file("logs", "kr300", "kr300_from_dh.urdf")).with_drive(
        viscous=True, coulomb=True, offset=True, armature=True
    )
    assert robot.base_parameters.strong_count < len(robot.base_parameters)
    rng = np.random.default_rng(0)
    q, dq, ddq = rng.uniform(-1.0, 1.0, (3, 400, robot.nv))
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    tau += 0.01 * np.abs(tau).max() * rng.normal(size=tau.shape)
    seen = view(th.information(robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau)))
    estimate = th.solve(seen, th.LeastSquares())
    assert estimate.rank == robot.base_parameters.strong_count
    assert np.abs(estimate.x).max() < 1e5
    assert [
        kind
        for kind, name in zip(seen.base.kinds, seen.base.column_names, strict=True)
        if name.startswith(("viscous", "coulomb"))
    ] == ["alone"] * 12


def test_joints_that_do_not_exist_are_refused(robot: th.Robot, samples: th.Samples) -> None:
    info = th.information(robot, samples)
    for dofs in ((), (4,), (-1,)):
        with pytest.raises(UsageError, match="degrees of freedom"):
            view(info, dofs=dofs)
