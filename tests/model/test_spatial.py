"""Each equation of the paper's §II, stated, against truths from elsewhere: clouds of point masses,
SymPy, Pinocchio.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import scipy.linalg
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.model import spatial as sv

# Numbers below are of order 1 to 100 and pass through a few dozen operations.
CLOSE = {"rtol": 1e-12, "atol": 1e-11}

seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)
vectors = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=3, max_size=3).map(np.array)
laws = settings(max_examples=25, deadline=None)

LINEAR_FIRST = np.array([3, 4, 5, 0, 1, 2])  # Pinocchio's order of [ω; v], and back


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    return Rotation.from_quat(rng.normal(size=4)).as_matrix()


def from_pin(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.ix_(LINEAR_FIRST, LINEAR_FIRST)]


def pin_placement(nu: np.ndarray, r: np.ndarray) -> pin.SE3:
    """Frame P in frame O: its origin at r, its axes the columns of νᵀ."""
    return pin.SE3(nu.T, r)


@dataclass
class Cloud:
    """A rigid body as point masses, moving: everything about it by direct summation, in the axes of
    O (the world's).
    """

    masses: np.ndarray  # (k,)
    points: np.ndarray  # (k, 3) from O, body axes
    nu: np.ndarray  # world to body
    omega: np.ndarray
    v: np.ndarray  # of the body's point at O

    @classmethod
    def random(cls, rng: np.random.Generator) -> Cloud:
        points = rng.normal(size=3) + rng.normal(size=(12, 3))
        return cls(
            rng.uniform(0.1, 2.0, 12),
            points,
            random_rotation(rng),
            rng.normal(size=3),
            rng.normal(size=3),
        )

    @property
    def arms(self) -> np.ndarray:
        return self.points @ self.nu  # νᵀ p, each row

    @property
    def velocities(self) -> np.ndarray:
        return self.v + np.cross(self.omega, self.arms)

    @property
    def mass(self) -> float:
        return float(self.masses.sum())

    @property
    def com(self) -> np.ndarray:
        return self.masses @ self.points / self.mass

    @property
    def inertia_com(self) -> np.ndarray:
        d = self.points - self.com
        return sum(
            m * (p @ p * np.eye(3) - np.outer(p, p)) for m, p in zip(self.masses, d, strict=True)
        )

    @property
    def twist(self) -> np.ndarray:
        return np.concatenate([self.omega, self.v])

    def momentum_about(self, point: np.ndarray) -> np.ndarray:
        moved = self.masses[:, None] * self.velocities
        return np.concatenate([np.cross(self.arms - point, moved).sum(0), moved.sum(0)])

    @property
    def energy(self) -> float:
        return float(0.5 * self.masses @ np.sum(self.velocities**2, axis=1))


clouds = seeds.map(Cloud.random)


# -- the cross product, velocity, force ------------------------------------------------------------


@laws
@given(a=vectors, b=vectors)
def test_skew_is_the_matrix_of_the_cross_product(a, b):
    np.testing.assert_allclose(sv.skew(a) @ b, np.cross(a, b), **CLOSE)
    np.testing.assert_array_equal(sv.skew(a), pin.skew(a))


def test_spatial_vectors_are_angular_first():
    """Eq. spatialvelocity and spatialforce."""
    np.testing.assert_array_equal(sv.spatial_velocity([1, 2, 3], [4, 5, 6]), [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(sv.spatial_force([1, 2, 3], [4, 5, 6]), [1, 2, 3, 4, 5, 6])
    assert sv.spatial_velocity(np.zeros((7, 3)), np.ones(3)).shape == (7, 6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sv.skew(np.zeros(4)),
        lambda: sv.spatial_velocity(np.zeros(2), np.zeros(3)),
        lambda: sv.spatial_force(np.zeros(3), 0.0),
        lambda: sv.rotation(np.zeros(3)),
        lambda: sv.motion_transform(np.eye(3), np.zeros(2)),
        lambda: sv.crm(np.zeros(3)),
        lambda: sv.spatial_inertia(1.0, np.zeros(3), np.zeros(3)),
    ],
)
def test_wrong_shapes_are_refused_in_one_sentence(call):
    with pytest.raises(UsageError, match=r"has shape .*; its last axes must be"):
        call()


# -- transforms ------------------------------------------------------------------------------------


@laws
@given(rng=seeds)
def test_translation(rng):
    """Eq. translationvelocity: v_P = v_O + ω × r and τ_P = τ_O + f × r; ω and f stay."""
    w, v, tau, f, r = rng.normal(size=(5, 3))
    moved = sv.motion_translation(r) @ sv.spatial_velocity(w, v)
    np.testing.assert_allclose(moved, np.concatenate([w, v + np.cross(w, r)]), **CLOSE)
    moved = sv.force_translation(r) @ sv.spatial_force(tau, f)
    np.testing.assert_allclose(moved, np.concatenate([tau + np.cross(f, r), f]), **CLOSE)


@laws
@given(rng=seeds)
def test_rotation(rng):
    """Eq. rotation: both halves of motion and force turn by ν."""
    nu, v = random_rotation(rng), rng.normal(size=6)
    np.testing.assert_allclose(
        sv.rotation(nu) @ v, np.concatenate([nu @ v[:3], nu @ v[3:]]), **CLOSE
    )


@laws
@given(rng=seeds)
def test_combined_transform(rng):
    """Eq. transrotationcombined: translation first, then rotation; and Pinocchio's SE3 says the
    same.
    """
    nu, r = random_rotation(rng), rng.normal(size=3)
    X_PO, Xf_PO = sv.motion_transform(nu, r), sv.force_transform(nu, r)
    np.testing.assert_allclose(X_PO, sv.rotation(nu) @ sv.motion_translation(r), **CLOSE)
    np.testing.assert_allclose(Xf_PO, sv.rotation(nu) @ sv.force_translation(r), **CLOSE)
    np.testing.assert_allclose(
        X_PO, from_pin(pin_placement(nu, r).toActionMatrixInverse()), **CLOSE
    )
    np.testing.assert_allclose(
        Xf_PO, from_pin(pin_placement(nu, r).inverse().toDualActionMatrix()), **CLOSE
    )
    motion, force = pin.Motion(rng.normal(size=6)), pin.Force(rng.normal(size=6))
    np.testing.assert_allclose(
        X_PO @ motion.vector[LINEAR_FIRST],
        pin_placement(nu, r).actInv(motion).vector[LINEAR_FIRST],
        **CLOSE,
    )
    np.testing.assert_allclose(
        Xf_PO @ force.vector[LINEAR_FIRST],
        pin_placement(nu, r).actInv(force).vector[LINEAR_FIRST],
        **CLOSE,
    )


@laws
@given(rng=seeds)
def test_rotation_first_is_the_same_transform(rng):
    """Eq. rottranscomb: rotation first, then translation by the turned r, equals eq.
    transrotationcombined.
    """
    nu, r = random_rotation(rng), rng.normal(size=3)
    np.testing.assert_allclose(
        sv.motion_transform_rotation_first(nu, r),
        sv.motion_translation(nu @ r) @ sv.rotation(nu),
        **CLOSE,
    )
    np.testing.assert_allclose(
        sv.force_transform_rotation_first(nu, r),
        sv.force_translation(nu @ r) @ sv.rotation(nu),
        **CLOSE,
    )
    np.testing.assert_allclose(
        sv.motion_transform_rotation_first(nu, r), sv.motion_transform(nu, r), **CLOSE
    )
    np.testing.assert_allclose(
        sv.force_transform_rotation_first(nu, r), sv.force_transform(nu, r), **CLOSE
    )


def test_turned_cross_product_by_sympy():
    """(ν r)× = ν r× ν⁻¹ for every rotation: the identity that makes both orders equal, proved, not
    sampled.
    """
    a, b, c = sp.symbols("a b c", real=True)
    r = sp.Matrix(sp.symbols("r1:4", real=True))
    nu = sp.rot_axis3(a) * sp.rot_axis2(b) * sp.rot_axis1(c)

    def hat(u: sp.Matrix) -> sp.Matrix:
        return sp.Matrix.hstack(
            *(
                u.cross(e)
                for e in (sp.Matrix([1, 0, 0]), sp.Matrix([0, 1, 0]), sp.Matrix([0, 0, 1]))
            )
        )

    assert sp.simplify(hat(nu * r) - nu * hat(r) * nu.T) == sp.zeros(3)
    values = {a: 0.3, b: -1.1, c: 2.0, r[0]: 0.5, r[1]: -0.7, r[2]: 1.9}
    lower = np.array((-nu * hat(r)).subs(values), dtype=float)
    np.testing.assert_allclose(
        sv.motion_transform(np.array(nu.subs(values), dtype=float), [0.5, -0.7, 1.9])[3:, :3],
        lower,
        **CLOSE,
    )


@laws
@given(rng=seeds)
def test_inverse_transform_and_adjacent_letters(rng):
    """X_ji X_ij = 1, X_ik = X_ij X_jk, and force goes by the inverse transpose, so power is the
    same in every frame.
    """
    (nu_ij, r_ij), (nu_jk, r_jk) = [(random_rotation(rng), rng.normal(size=3)) for _ in range(2)]
    X_ij, X_jk = sv.motion_transform(nu_ij, r_ij), sv.motion_transform(nu_jk, r_jk)
    np.testing.assert_allclose(sv.inverse_transform(X_ij) @ X_ij, np.eye(6), **CLOSE)
    Xf_ij = sv.force_transform(nu_ij, r_ij)
    np.testing.assert_allclose(sv.inverse_transform(Xf_ij) @ Xf_ij, np.eye(6), **CLOSE)
    np.testing.assert_allclose(Xf_ij, np.linalg.inv(X_ij).T, **CLOSE)
    v_j, f_j = rng.normal(size=(2, 6))
    assert (Xf_ij @ f_j) @ (X_ij @ v_j) == pytest.approx(f_j @ v_j, abs=1e-11)
    X_ik = sv.motion_transform(nu_ij @ nu_jk, r_jk + nu_jk.T @ r_ij)
    np.testing.assert_allclose(X_ik, X_ij @ X_jk, **CLOSE)


# -- cross products --------------------------------------------------------------------------------


@laws
@given(rng=seeds)
def test_cross_products(rng):
    """crm and crf are Pinocchio's motion × motion and motion × force, and dual: crf = −crmᵀ."""
    v, m, f = rng.normal(size=(3, 6))
    pin_v = pin.Motion(v[LINEAR_FIRST])
    np.testing.assert_allclose(
        sv.crm(v) @ m, pin_v.cross(pin.Motion(m[LINEAR_FIRST])).vector[LINEAR_FIRST], **CLOSE
    )
    np.testing.assert_allclose(
        sv.crf(v) @ f, pin_v.cross(pin.Force(f[LINEAR_FIRST])).vector[LINEAR_FIRST], **CLOSE
    )
    np.testing.assert_allclose(sv.crf(v), -sv.crm(v).T, **CLOSE)


@laws
@given(rng=seeds)
def test_cross_product_generates_the_transforms(rng):
    """A frame that moves with v for one second: X = exp(v×), Xf = exp(v×*), where it ends by
    Pinocchio's exp6.
    """
    v = rng.normal(size=6)
    end = pin.exp6(pin.Motion(v[LINEAR_FIRST]))
    np.testing.assert_allclose(
        scipy.linalg.expm(sv.crm(v)),
        sv.inverse_transform(sv.motion_transform(end.rotation.T, end.translation)),
        **CLOSE,
    )
    np.testing.assert_allclose(
        scipy.linalg.expm(sv.crf(v)),
        sv.inverse_transform(sv.force_transform(end.rotation.T, end.translation)),
        **CLOSE,
    )


# -- momentum, inertia, energy ---------------------------------------------------------------------


@laws
@given(cloud=clouds)
def test_momentum_about_the_centre_of_mass(cloud):
    """Eq. momentum: ĥ_C = [Ī_C ω; m v_C], in body axes, is the summed momentum of the points about
    C.
    """
    r = cloud.nu.T @ cloud.com
    v_C = sv.motion_transform(cloud.nu, r) @ cloud.twist
    h_C = sv.momentum_at_com(cloud.mass, cloud.inertia_com, v_C)
    np.testing.assert_allclose(h_C, sv.rotation(cloud.nu) @ cloud.momentum_about(r), **CLOSE)
    np.testing.assert_allclose(
        h_C, np.concatenate([cloud.inertia_com @ v_C[:3], cloud.mass * v_C[3:]]), **CLOSE
    )
    np.testing.assert_allclose(h_C, sv.inertia_at_com(cloud.mass, cloud.inertia_com) @ v_C, **CLOSE)


@laws
@given(cloud=clouds)
def test_momentum_transforms(cloud):
    """Eq. momentumtransformation and momentumtransformation2: between O (world axes) and C (body
    axes), both ways.
    """
    r = cloud.nu.T @ cloud.com
    h_O, h_C = cloud.momentum_about(np.zeros(3)), sv.rotation(cloud.nu) @ cloud.momentum_about(r)
    np.testing.assert_allclose(sv.momentum_to_com(h_O, cloud.nu, r), h_C, **CLOSE)
    np.testing.assert_allclose(sv.momentum_from_com(h_C, cloud.nu, r), h_O, **CLOSE)


@laws
@given(cloud=clouds)
def test_momentum_from_the_spatial_inertia_tensor(cloud):
    """§II: ĥ_O = [ν, 0; 0, ν]⁻¹ I_O [ν, 0; 0, ν] v̂_O with a constant I_O, whatever the
    orientation.
    """
    I_O = sv.spatial_inertia(cloud.mass, cloud.com, cloud.inertia_com)
    np.testing.assert_allclose(
        sv.momentum(I_O, cloud.nu, cloud.twist), cloud.momentum_about(np.zeros(3)), **CLOSE
    )


@laws
@given(cloud=clouds)
def test_spatial_inertia_tensor(cloud):
    """Eq. inertiatensor: closed form = product form = Pinocchio's inertia matrix = Σ over points of
    their own tensors.
    """
    I_O = sv.spatial_inertia(cloud.mass, cloud.com, cloud.inertia_com)
    np.testing.assert_allclose(
        I_O, sv.spatial_inertia_by_translation(cloud.mass, cloud.com, cloud.inertia_com), **CLOSE
    )
    np.testing.assert_allclose(
        I_O, from_pin(pin.Inertia(cloud.mass, cloud.com, cloud.inertia_com).matrix()), **CLOSE
    )
    jacobians = [
        np.hstack([-pin.skew(p), np.eye(3)]) for p in cloud.points
    ]  # velocity of a point: v + ω × p
    np.testing.assert_allclose(
        I_O, sum(m * j.T @ j for m, j in zip(cloud.masses, jacobians, strict=True)), **CLOSE
    )


def test_spatial_inertia_is_the_hessian_of_kinetic_energy_by_sympy():
    """T = ½ m |v + ω × c|² + ½ ωᵀ Ī_C ω; its second derivative in (ω, v) is eq. inertiatensor."""
    m, ixx, ixy, ixz, iyy, iyz, izz = sp.symbols("m Ixx Ixy Ixz Iyy Iyz Izz")
    w, v, c = (sp.Matrix(sp.symbols(f"{name}1:4")) for name in "wvc")
    inertia = sp.Matrix([[ixx, ixy, ixz], [ixy, iyy, iyz], [ixz, iyz, izz]])
    v_c = v + w.cross(c)
    energy = m * v_c.dot(v_c) / 2 + (w.T * inertia * w)[0] / 2
    values = {
        m: 2.5,
        c[0]: 0.1,
        c[1]: -0.4,
        c[2]: 0.7,
        ixx: 1.0,
        ixy: 0.1,
        ixz: -0.2,
        iyy: 1.5,
        iyz: 0.05,
        izz: 0.9,
    }
    expected = np.array(sp.hessian(energy, [*w, *v]).subs(values), dtype=float)
    inertia_com = np.array(inertia.subs(values), dtype=float)
    np.testing.assert_allclose(
        sv.spatial_inertia(2.5, [0.1, -0.4, 0.7], inertia_com), expected, **CLOSE
    )


@laws
@given(cloud=clouds)
def test_kinetic_energy(cloud):
    """Eq. kineticenergyrigidbody: ½ ĥ_Oᵀ v̂_O is the summed energy of the points."""
    I_O = sv.spatial_inertia(cloud.mass, cloud.com, cloud.inertia_com)
    assert sv.kinetic_energy(I_O, cloud.nu, cloud.twist) == pytest.approx(cloud.energy, rel=1e-12)


# -- leading axes ----------------------------------------------------------------------------------


def test_leading_axes_broadcast():
    """A batch gives what its members give one by one."""
    rng = np.random.default_rng(3)
    nu, r = np.array([random_rotation(rng) for _ in range(4)]), rng.normal(size=(4, 3))
    v, mass = rng.normal(size=(4, 6)), rng.uniform(1, 2, 4)
    inertia = np.array([(a := rng.normal(size=(3, 3))) @ a.T for _ in range(4)])
    I_O = sv.spatial_inertia(mass, r, inertia)
    for k in range(4):
        np.testing.assert_allclose(
            sv.motion_transform(nu, r)[k], sv.motion_transform(nu[k], r[k]), **CLOSE
        )
        np.testing.assert_allclose(
            sv.force_transform_rotation_first(nu, r)[k], sv.force_transform(nu[k], r[k]), **CLOSE
        )
        np.testing.assert_allclose(sv.crf(v)[k], sv.crf(v[k]), **CLOSE)
        np.testing.assert_allclose(I_O[k], sv.spatial_inertia(mass[k], r[k], inertia[k]), **CLOSE)
        np.testing.assert_allclose(
            sv.kinetic_energy(I_O, nu, v)[k], sv.kinetic_energy(I_O[k], nu[k], v[k]), **CLOSE
        )
        np.testing.assert_allclose(
            sv.momentum_from_com(v, nu, r)[k], sv.momentum_from_com(v[k], nu[k], r[k]), **CLOSE
        )
    assert sv.motion_transform(nu[0], r).shape == (4, 6, 6)


# -- docs/symbols.md and docs/references.md --------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT.parent / "shared" / "paper.tex"
SYMBOLS = ROOT / "docs" / "symbols.md"
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_names_in_the_table_of_symbols_exist():
    for module, name in re.findall(
        r"`(spatial|parameters)\.(?!py`)(\w+)`", SYMBOLS.read_text(encoding="utf-8")
    ):
        assert hasattr({"spatial": sv, "parameters": parameters}[module], name), (
            f"docs/symbols.md names {module}.{name}"
        )


def test_reference_keys_are_explained():
    known = set(
        re.findall(
            r"^\| \[(\w+)\]",
            (ROOT / "docs" / "references.md").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    for path in [*SOURCES, SYMBOLS]:
        used = set(
            re.findall(r"\[([A-Z][a-z]+\d{4}|Kolathaya)\]", path.read_text(encoding="utf-8"))
        )
        assert used <= known, (
            f"{path.relative_to(ROOT)} cites {used - known}, which docs/references.md does not"
            " explain"
        )


@pytest.mark.skipif(not PAPER.exists(), reason="../shared/paper.tex is not here")
def test_equation_labels_are_the_papers():
    labels = set(re.findall(r"\\label\{eqn?:(\w+)\}", PAPER.read_text(encoding="utf-8")))
    assert len(labels) > 20
    for path in [*SOURCES, SYMBOLS]:
        for cited in re.findall(
            r"eq\. ((?:[A-Za-z_]\w{2,})(?:, [a-z_]{8,}\w*)*)", path.read_text(encoding="utf-8")
        ):
            for label in cited.split(", "):
                assert label in labels, (
                    f"{path.relative_to(ROOT)} cites eq. {label}, which the paper does not have"
                )
