"""The ten numbers and their other forms, against Pinocchio, NumPy's own sums over point masses, and
convex geometry.
"""

from __future__ import annotations

import re

import numpy as np
import pinocchio as pin
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from thetahat.errors import UsageError
from thetahat.model import parameters as par

CLOSE = {"rtol": 1e-12, "atol": 1e-12}  # numbers of order one, some dozen operations

seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)
laws = settings(max_examples=25, deadline=None)


def random_cloud(rng: np.random.Generator, count: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Masses (k,) and points (k, 3) of a physical body."""
    return rng.uniform(0.1, 1.0, count), rng.normal(size=3) + rng.normal(size=(count, 3))


def theta_of_cloud(masses: np.ndarray, points: np.ndarray) -> np.ndarray:
    """θ by direct summation, spelled out number by number in the paper's order."""
    x, y, z = points.T
    sums = [
        y * y + z * z,
        -x * y,
        -x * z,
        z,
        y,
        x * x + z * z,
        -y * z,
        x,
        x * x + y * y,
        np.ones_like(x),
    ]
    return np.array([masses @ s for s in sums])


def random_theta(rng: np.random.Generator) -> np.ndarray:
    return theta_of_cloud(*random_cloud(rng))


bodies = seeds.map(random_theta)


def rod(length: float = 0.7) -> np.ndarray:
    """Two point masses along x, off the origin: Ī_C = diag(0, I, I)."""
    return theta_of_cloud(
        np.array([1.0, 2.0]), np.array([[0.1, 0.2, 0.3], [0.1 + length, 0.2, 0.3]])
    )


def plate() -> np.ndarray:
    """Point masses in a plane: the largest moment is the sum of the other two."""
    return theta_of_cloud(
        np.full(4, 0.5),
        np.array([[0, 0, 0.4], [1, 0, 0.4], [0, 2, 0.4], [1.5, 2, 0.4]], dtype=float),
    )


# -- forms -----------------------------------------------------------------------------------------


def test_the_order_is_the_papers():
    """Eq. assigningtensor: θ1 … θ10 at the places in I_O the paper prints, signs included."""
    t = np.arange(1.0, 11.0)
    expected = [
        [t[0], t[1], t[2], 0, -t[3], t[4]],
        [t[1], t[5], t[6], t[3], 0, -t[7]],
        [t[2], t[6], t[8], -t[4], t[7], 0],
        [0, t[3], -t[4], t[9], 0, 0],
        [-t[3], 0, t[7], 0, t[9], 0],
        [t[4], -t[7], 0, 0, 0, t[9]],
    ]
    np.testing.assert_array_equal(par.to_spatial_inertia(t), expected)
    assert par.NAMES == ("Ixx", "Ixy", "Ixz", "mcz", "mcy", "Iyy", "Iyz", "mcx", "Izz", "m")


@laws
@given(theta=bodies)
def test_round_trips(theta):
    np.testing.assert_allclose(
        par.from_mass_com_inertia(*par.to_mass_com_inertia(theta)), theta, **CLOSE
    )
    np.testing.assert_allclose(
        par.from_pseudo_inertia(par.to_pseudo_inertia(theta)), theta, **CLOSE
    )
    np.testing.assert_array_equal(par.from_spatial_inertia(par.to_spatial_inertia(theta)), theta)
    np.testing.assert_array_equal(
        par.from_origin(theta[par.M], par.first_moment(theta), par.inertia_about_origin(theta)),
        theta,
    )
    np.testing.assert_array_equal(par.from_pinocchio(par.to_pinocchio(theta)), theta)
    np.testing.assert_allclose(
        par.from_log_cholesky(par.to_log_cholesky(theta)), theta, rtol=1e-11, atol=1e-11
    )


@laws
@given(rng=seeds)
def test_the_linear_forms_round_trip_for_any_ten_numbers(rng):
    """Estimates need not be physical; the linear forms do not care."""
    theta = rng.normal(size=10)
    np.testing.assert_allclose(
        par.from_pseudo_inertia(par.to_pseudo_inertia(theta)), theta, **CLOSE
    )
    np.testing.assert_array_equal(par.from_spatial_inertia(par.to_spatial_inertia(theta)), theta)
    np.testing.assert_allclose(
        par.from_mass_com_inertia(*par.to_mass_com_inertia(theta)), theta, rtol=1e-9, atol=1e-9
    )  # m may be small


@laws
@given(rng=seeds)
def test_log_cholesky_round_trips_from_any_eta(rng):
    """Every η is a body, strictly physical, and comes back."""
    eta = rng.uniform(-1, 1, size=10)
    theta = par.from_log_cholesky(eta)
    assert np.linalg.eigvalsh(par.to_pseudo_inertia(theta))[0] > 0
    assert par.check(theta)
    np.testing.assert_allclose(par.to_log_cholesky(theta), eta, rtol=1e-9, atol=1e-9)


@laws
@given(rng=seeds)
def test_point_masses_give_every_form(rng):
    """Σ m [r; 1][r; 1]ᵀ is the pseudo-inertia, and the sums about C are (m, c, Ī_C)."""
    masses, points = random_cloud(rng)
    theta = theta_of_cloud(masses, points)
    lifted = np.hstack([points, np.ones((len(points), 1))])
    pseudo = lifted.T @ (masses[:, None] * lifted)
    np.testing.assert_allclose(par.to_pseudo_inertia(theta), pseudo, **CLOSE)
    np.testing.assert_allclose(par.from_pseudo_inertia(pseudo), theta, **CLOSE)
    com = masses @ points / masses.sum()
    d = points - com
    inertia_com = sum(
        m * (p @ p * np.eye(3) - np.outer(p, p)) for m, p in zip(masses, d, strict=True)
    )
    for got, expected in zip(
        par.to_mass_com_inertia(theta), (masses.sum(), com, inertia_com), strict=True
    ):
        np.testing.assert_allclose(got, expected, **CLOSE)
    assert par.check(theta)


@laws
@given(theta=bodies)
def test_pinocchio_agrees_on_every_form(theta):
    mass, com, inertia_com = par.to_mass_com_inertia(theta)
    inertia = pin.Inertia(float(mass), com, inertia_com)
    pi = inertia.toDynamicParameters()
    np.testing.assert_allclose(par.to_pinocchio(theta), pi, **CLOSE)
    np.testing.assert_allclose(par.from_pinocchio(pi), theta, **CLOSE)
    back = pin.Inertia.FromDynamicParameters(par.to_pinocchio(theta))
    np.testing.assert_allclose(back.matrix(), inertia.matrix(), **CLOSE)
    angular_first = np.array([3, 4, 5, 0, 1, 2])
    np.testing.assert_allclose(
        par.to_spatial_inertia(theta),
        inertia.matrix()[np.ix_(angular_first, angular_first)],
        **CLOSE,
    )
    if hasattr(pin, "PseudoInertia"):  # Pinocchio ≥ 3.2
        np.testing.assert_allclose(
            par.to_pseudo_inertia(theta),
            pin.PseudoInertia.FromDynamicParameters(pi).toMatrix(),
            **CLOSE,
        )
        eta = par.to_log_cholesky(theta)
        np.testing.assert_allclose(
            par.to_pinocchio(theta),
            pin.LogCholeskyParameters(eta).toDynamicParameters(),
            rtol=1e-11,
            atol=1e-11,
        )


def test_leading_axes_and_stacked_vectors():
    rng = np.random.default_rng(5)
    theta = np.array([[random_theta(rng) for _ in range(3)] for _ in range(2)])
    forms = (
        par.to_spatial_inertia,
        par.to_pseudo_inertia,
        par.to_log_cholesky,
        par.to_pinocchio,
        par.project,
        par.first_moment,
    )
    for form in forms:
        np.testing.assert_allclose(form(theta)[1, 2], form(theta[1, 2]), **CLOSE)
    stacked = theta.reshape(2, 30)
    np.testing.assert_array_equal(
        par.to_pinocchio(stacked).reshape(2, 3, 10), par.to_pinocchio(theta)
    )
    np.testing.assert_array_equal(par.from_pinocchio(par.to_pinocchio(stacked)), stacked)


# -- change of frame -------------------------------------------------------------------------------


@laws
@given(rng=seeds)
def test_transform_is_the_same_body_from_another_frame(rng):
    """Against the moved point masses themselves, and Pinocchio's SE3 acting on an Inertia."""
    masses, points = random_cloud(rng)
    theta = theta_of_cloud(masses, points)
    rotation, translation = Rotation.from_quat(rng.normal(size=4)).as_matrix(), rng.normal(size=3)
    moved = par.transform(theta, rotation, translation)
    np.testing.assert_allclose(
        moved, theta_of_cloud(masses, points @ rotation.T + translation), rtol=1e-11, atol=1e-11
    )
    acted = pin.SE3(rotation, translation).act(
        pin.Inertia.FromDynamicParameters(par.to_pinocchio(theta))
    )
    np.testing.assert_allclose(
        par.to_pinocchio(moved), acted.toDynamicParameters(), rtol=1e-11, atol=1e-11
    )
    placement = pin.SE3(rotation, translation).homogeneous
    np.testing.assert_allclose(
        par.to_pseudo_inertia(moved),
        placement @ par.to_pseudo_inertia(theta) @ placement.T,
        rtol=1e-11,
        atol=1e-11,
    )


def test_transform_keeps_the_small_moments_of_a_thin_body():
    """A needle's own moment, 1e-12 of the others, survives a frame that does not move, to the last
    bit.
    """
    theta = par.from_mass_com_inertia(1.0, np.zeros(3), np.diag([0.3, 0.3, 3e-13]))
    np.testing.assert_array_equal(par.transform(theta, np.eye(3), np.zeros(3)), theta)
    slid = par.transform(theta, np.eye(3), np.array([0.0, 0.0, 2.0]))
    assert slid[par.IZZ] == theta[par.IZZ]


def test_transform_broadcasts():
    rng = np.random.default_rng(6)
    theta, shifts = np.array([random_theta(rng) for _ in range(3)]), rng.normal(size=(3, 3))
    moved = par.transform(theta, np.eye(3), shifts)
    np.testing.assert_allclose(moved[2], par.transform(theta[2], np.eye(3), shifts[2]), **CLOSE)


# -- refused shapes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: par.to_pinocchio(np.zeros(11)), "multiple of 10"),
        (lambda: par.to_pinocchio(np.float64(1.0)), "multiple of 10"),
        (
            lambda: par.to_pseudo_inertia(np.zeros(20)),
            r"reshape a stacked vector to \(bodies, 10\)",
        ),
        (lambda: par.from_log_cholesky(np.zeros(9)), r"expected \(\.\.\., 10\)"),
        (lambda: par.check(np.zeros((2, 10))), "one body"),
        (lambda: par.project(np.full(10, np.nan)), "holds nan"),
        (lambda: par.to_log_cholesky(np.zeros(10)), "not strictly physical.*project"),
        (
            lambda: par.to_log_cholesky(-random_theta(np.random.default_rng(0))),
            "not strictly physical.*project",
        ),
    ],
)
def test_what_cannot_be_done_is_said(call, words):
    with pytest.raises(UsageError, match=words):
        call()


# -- physical consistency --------------------------------------------------------------------------


def body(moments: tuple[float, float, float], mass: float = 2.0) -> np.ndarray:
    """A body with these principal moments, turned and off the origin."""
    turn = Rotation.from_euler("xyz", [0.3, -0.8, 1.1]).as_matrix()
    return par.from_mass_com_inertia(
        mass, np.array([0.2, -0.1, 0.4]), turn @ np.diag(moments) @ turn.T
    )


def with_value(index: int, value: float) -> np.ndarray:
    theta = body((1.0, 1.1, 1.2))
    theta[index] = value
    return theta


@pytest.mark.parametrize(
    ("theta", "words", "value"),
    [
        (with_value(par.IYZ, np.nan), "Iyz is not finite", None),
        (with_value(par.MCX, np.inf), "mcx is not finite", None),
        (with_value(par.M, -2.0), r"mass is negative \(-2 kg\)", -2.0),
        (with_value(par.M, 0.0), r"mass is zero but I\w\w = ", None),
        (np.eye(10)[par.MCX] * -0.5, "mass is zero but mcx = -0.5", -0.5),
        (body((-0.1, 1.0, 1.0)), r"negative principal moment \(-0.1 kg·m²\)", -0.1),
        (
            body((0.1, 0.2, 0.5)),
            "principal moments 0.1, 0.2, 0.5 kg·m² violate the triangle inequality by 0.2",
            -0.2,
        ),
        (with_value(par.M, 1e-310), "mass is too small", 1e-310),
    ],
)
def test_each_failing_condition_is_named(theta, words, value):
    verdict = par.check(theta)
    assert not verdict
    assert not verdict.physical
    assert re.search(words, verdict.condition), verdict.condition
    if value is not None:
        assert verdict.value == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    "theta",
    [
        np.zeros(10),
        rod(),
        plate(),
        theta_of_cloud(
            np.array([3.0]), np.array([[0.3, -0.2, 0.9]])
        ),  # a point mass: Ī_C = 0, up to rounding
        theta_of_cloud(np.array([3.0]), np.array([[1e3 / 3, -200.1, 9.7]])),
        body((0.1, 0.2, 0.3)),  # a turned plate: on the boundary, up to rounding
        body((0.1, 0.2, 0.3000001)),  # five digits of CAD: beyond it by 3e-7
    ],
    ids=[
        "massless",
        "rod",
        "plate",
        "point",
        "far point",
        "turned plate",
        "plate with five digits",
    ],
)
def test_bodies_on_the_boundary_are_physical(theta):
    assert par.check(theta), par.check(theta).condition


def test_the_tolerance_is_that_of_cad_digits_and_no_more():
    """At TOLERANCE the answer turns: half of it passes, twice of it fails; with tolerance 0 half of
    it fails too.
    """
    largest = 0.3
    inside, outside = (body((0.1, 0.2, largest * (1 + k * par.TOLERANCE))) for k in (0.5, 2.0))
    assert par.check(inside)
    assert not par.check(outside)
    assert not par.check(inside, tolerance=0.0)


@laws
@given(rng=seeds)
def test_check_agrees_with_the_pseudo_inertia(rng):
    """Physical if and only if J ⪰ 0 [Wensing2018], on bodies pushed in and out of the set."""
    theta = random_theta(rng) + rng.uniform(0, 2) * rng.normal(size=10)
    lowest = np.linalg.eigvalsh(par.to_pseudo_inertia(theta))[0]
    if abs(lowest) > 1e-4:
        assert bool(par.check(theta)) == (lowest > 0)


def test_consistency_does_not_depend_on_the_frame():
    rng = np.random.default_rng(8)
    for moments, physical in (((0.1, 0.2, 0.29), True), ((0.1, 0.2, 0.31), False)):
        for _ in range(10):
            turn = Rotation.from_quat(rng.normal(size=4)).as_matrix()
            assert (
                bool(par.check(par.transform(body(moments), turn, rng.normal(size=3)))) is physical
            )


# -- projection ------------------------------------------------------------------------------------


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(par.to_pseudo_inertia(a) - par.to_pseudo_inertia(b)))


@laws
@given(rng=seeds)
def test_projection_is_strictly_physical_and_idempotent(rng):
    """For any ten numbers, all eigenvalues negative included."""
    for theta in (
        rng.normal(size=10),
        -random_theta(rng),
        body((0.1, 0.2, 0.5)),
        with_value(par.M, -2.0),
        rod(),
    ):
        nearest = par.project(theta)
        assert par.check(nearest), par.check(nearest).condition
        values = np.linalg.eigvalsh(par.to_pseudo_inertia(nearest))
        assert values[0] > 0.5e-6 * values[-1]
        np.testing.assert_allclose(par.project(nearest), nearest, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            par.from_log_cholesky(par.to_log_cholesky(nearest)), nearest, rtol=1e-8, atol=1e-8
        )


@laws
@given(theta=bodies)
def test_projection_leaves_a_physical_body_alone(theta):
    np.testing.assert_allclose(par.project(theta), theta, rtol=1e-11, atol=1e-11)


def test_projection_of_nothing_is_nothing():
    np.testing.assert_array_equal(par.project(np.zeros(10)), np.zeros(10))


def test_projection_moves_a_singular_body_by_the_margin_only():
    """Intended: it makes them strictly physical. `check` accepts them as they are."""
    largest = np.linalg.eigvalsh(par.to_pseudo_inertia(rod()))[-1]
    assert 0 < distance(par.project(rod()), rod()) < 2e-6 * largest


@laws
@given(rng=seeds)
def test_projection_is_the_nearest(rng):
    """⟨J − P, Z − P⟩ ≤ 0 for every physical Z: the condition that singles out the nearest point of
    a convex set.
    """
    theta = rng.normal(size=10)
    nearest = par.project(theta, margin=0.0)
    J, P = par.to_pseudo_inertia(theta), par.to_pseudo_inertia(nearest)
    for scale in (1e-3, 0.1, 1.0, 10.0):
        masses, points = random_cloud(rng, count=int(rng.integers(1, 6)))
        other = theta_of_cloud(scale * masses, points)
        Z = par.to_pseudo_inertia(other)
        assert np.sum((J - P) * (Z - P)) <= 1e-11 * (1 + np.linalg.norm(Z))
        assert distance(theta, nearest) <= distance(theta, other) + 1e-12
    for _ in range(20):  # small steps from it that stay physical are no nearer
        step = nearest + 1e-3 * rng.normal(size=10)
        if np.linalg.eigvalsh(par.to_pseudo_inertia(step))[0] >= 0:
            assert distance(theta, nearest) <= distance(theta, step) + 1e-12


# -- derivatives -----------------------------------------------------------------------------------


def test_log_cholesky_jacobian_is_sympys() -> None:
    """∂θ/∂η, each of the hundred entries, from the definition J = U Uᵀ written out in symbols."""
    eta = sympy.symbols("a d1 d2 d3 s12 s23 s13 t1 t2 t3", real=True)
    a, d1, d2, d3, s12, s23, s13, t1, t2, t3 = eta
    U = sympy.exp(a) * sympy.Matrix(
        [
            [sympy.exp(d1), s12, s13, t1],
            [0, sympy.exp(d2), s23, t2],
            [0, 0, sympy.exp(d3), t3],
            [0, 0, 0, 1],
        ]
    )
    J = U * U.T
    S = J[:3, :3]
    inertia = S.trace() * sympy.eye(3) - S
    theta = sympy.Matrix(
        [
            inertia[0, 0],
            inertia[0, 1],
            inertia[0, 2],
            J[2, 3],
            J[1, 3],
            inertia[1, 1],
            inertia[1, 2],
            J[0, 3],
            inertia[2, 2],
            J[3, 3],
        ]
    )
    exact = sympy.lambdify(eta, theta.jacobian(eta), "numpy")
    values = np.random.default_rng(4).normal(size=(3, 2, 10))
    expected = np.array([exact(*each) for each in values.reshape(-1, 10)]).reshape(3, 2, 10, 10)
    np.testing.assert_allclose(
        par.log_cholesky_jacobian(values), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max()
    )
    with pytest.raises(UsageError, match="eta has shape"):
        par.log_cholesky_jacobian(np.zeros(9))
