"""Spatial (6-D) vector algebra: every equation of the paper's §II as one small function.

Conventions, used in the whole project:

- Angular first: a motion is [ω; v], a force is [τ; f].
- ``X_ij`` takes motion from frame j to frame i, ``Xf_ij`` force, so that adjacent letters cancel:
  ``v_i = X_ij @ v_j``.
- ν takes coordinates from O's axes to P's (world to body) throughout §II. The paper's h_C (eq.
  heightcom) writes ν for the opposite map, body to world; there it is νᵀ of this module.
- r points from O to P and is written in O's axes. c is the centre of mass from O, in body axes: c =
  ν r.
- Arguments may have leading axes, which broadcast.

References: [Kolathaya], whose equation labels are given; [Featherstone2008] for the cross products.
"""

from __future__ import annotations

import numpy as np

from thetahat.errors import UsageError


def _array(name: str, value: np.ndarray, *shape: int) -> np.ndarray:
    """`value` as floats, its last axes checked."""
    value = np.asarray(value, dtype=float)
    if value.shape[-len(shape) :] != shape:
        raise UsageError(f"{name} has shape {value.shape}; its last axes must be {shape}")
    return value


def _blocks(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The 6×6 matrix [a, b; c, d] of 3×3 blocks, leading axes broadcast."""
    out = np.empty(
        (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2], d.shape[:-2]), 6, 6)
    )
    out[..., :3, :3], out[..., :3, 3:], out[..., 3:, :3], out[..., 3:, 3:] = a, b, c, d
    return out


def _pair(angular: np.ndarray, linear: np.ndarray) -> np.ndarray:
    return np.concatenate(np.broadcast_arrays(angular, linear), axis=-1)


def _apply(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    product: np.ndarray = (matrix @ vector[..., None])[..., 0]
    return product


def _transpose(matrix: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrix, -1, -2)


_ONE = np.eye(3)
_ZERO = np.zeros((3, 3))


def skew(c: np.ndarray) -> np.ndarray:
    """The matrix c× of the cross product, (c×) u = c × u; (..., 3) → (..., 3, 3)."""
    c = _array("c", c, 3)
    out = np.zeros((*c.shape, 3))
    out[..., 0, 1], out[..., 0, 2] = -c[..., 2], c[..., 1]
    out[..., 1, 0], out[..., 1, 2] = c[..., 2], -c[..., 0]
    out[..., 2, 0], out[..., 2, 1] = -c[..., 1], c[..., 0]
    return out


# -- velocity and force ----------------------------------------------------------------------------


def spatial_velocity(omega: np.ndarray, v: np.ndarray) -> np.ndarray:
    """v̂_O = [ωx, ωy, ωz, vx, vy, vz] (eq. spatialvelocity): ω [rad/s], and v [m/s] of the body's
    point at O.
    """
    return _pair(_array("omega", omega, 3), _array("v", v, 3))


def spatial_force(tau: np.ndarray, f: np.ndarray) -> np.ndarray:
    """f̂_O = [τx, τy, τz, fx, fy, fz] (eq. spatialforce): the moment τ about O [N·m], and the force
    f [N].
    """
    return _pair(_array("tau", tau, 3), _array("f", f, 3))


# -- coordinate transforms -------------------------------------------------------------------------


def motion_translation(r: np.ndarray) -> np.ndarray:
    """X_PO = [1, 0; −r×, 1] (eq. translationvelocity): v_P = v_O + ω × r."""
    return _blocks(_ONE, _ZERO, -skew(r), _ONE)


def force_translation(r: np.ndarray) -> np.ndarray:
    """Xf_PO = [1, −r×; 0, 1] (eq. translationvelocity): τ_P = τ_O + f × r."""
    return _blocks(_ONE, -skew(r), _ZERO, _ONE)


def rotation(nu: np.ndarray) -> np.ndarray:
    """X_PO = Xf_PO = [ν, 0; 0, ν] (eq. rotation): motion and force turn alike."""
    nu = _array("nu", nu, 3, 3)
    return _blocks(nu, _ZERO, _ZERO, nu)


def motion_transform(nu: np.ndarray, r: np.ndarray) -> np.ndarray:
    """X_PO = [ν, 0; −ν r×, ν] (eq. transrotationcombined): translate from O to P, then turn the
    axes by ν.
    """
    nu = _array("nu", nu, 3, 3)
    return _blocks(nu, _ZERO, -nu @ skew(r), nu)


def force_transform(nu: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Xf_PO = [ν, −ν r×; 0, ν] (eq. transrotationcombined). Xf = X⁻ᵀ, so power τ·ω + f·v is the
    same in every frame.
    """
    nu = _array("nu", nu, 3, 3)
    return _blocks(nu, -nu @ skew(r), _ZERO, nu)


def motion_transform_rotation_first(nu: np.ndarray, r: np.ndarray) -> np.ndarray:
    """X_PO = [ν, 0; −(ν r)× ν, ν] (eq. rottranscomb): turn first, then translate by the turned r.

    Equal to `motion_transform`, because (ν r)× = ν r× ν⁻¹.
    """
    nu = _array("nu", nu, 3, 3)
    return _blocks(nu, _ZERO, -skew(_apply(nu, _array("r", r, 3))) @ nu, nu)


def force_transform_rotation_first(nu: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Xf_PO = [ν, −(ν r)× ν; 0, ν] (eq. rottranscomb), equal to `force_transform`."""
    nu = _array("nu", nu, 3, 3)
    return _blocks(nu, -skew(_apply(nu, _array("r", r, 3))) @ nu, _ZERO, nu)


def inverse_transform(X_ij: np.ndarray) -> np.ndarray:
    """X_ji = X_ij⁻¹ = [aᵀ, bᵀ; cᵀ, dᵀ] for X_ij = [a, b; c, d], of motion or of force: no matrix is
    inverted.

    From eq. transrotationcombined: [ν, 0; −ν r×, ν]⁻¹ = [νᵀ, 0; r× νᵀ, νᵀ], and (−ν r×)ᵀ = r× νᵀ.
    """
    X_ij = _array("X_ij", X_ij, 6, 6)
    a, b, c, d = X_ij[..., :3, :3], X_ij[..., :3, 3:], X_ij[..., 3:, :3], X_ij[..., 3:, 3:]
    return _blocks(_transpose(a), _transpose(b), _transpose(c), _transpose(d))


# -- cross products --------------------------------------------------------------------------------


def crm(v: np.ndarray) -> np.ndarray:
    """v× = [ω×, 0; v×, ω×] [Featherstone2008]: how a motion that moves along with v changes, ṁ = v
    × m.
    """
    v = _array("v", v, 6)
    w_x = skew(v[..., :3])
    return _blocks(w_x, _ZERO, skew(v[..., 3:]), w_x)


def crf(v: np.ndarray) -> np.ndarray:
    """v×* = [ω×, v×; 0, ω×] = −(v×)ᵀ [Featherstone2008]: how a force that moves along with v
    changes, ḟ = v ×* f.
    """
    return -_transpose(crm(v))


# -- momentum and inertia --------------------------------------------------------------------------


def inertia_at_com(mass: np.ndarray, inertia_com: np.ndarray) -> np.ndarray:
    """I_C = [Ī_C, 0; 0, m 1] (under the brace of eq. momentum): the spatial inertia about the
    centre of mass.
    """
    mass, inertia_com = np.asarray(mass, dtype=float), _array("inertia_com", inertia_com, 3, 3)
    return _blocks(inertia_com, _ZERO, _ZERO, mass[..., None, None] * _ONE)


def momentum_at_com(mass: np.ndarray, inertia_com: np.ndarray, v_C: np.ndarray) -> np.ndarray:
    """ĥ_C = [Ī_C ω; m v_C] = I_C v̂_C (eq. momentum)."""
    return _apply(inertia_at_com(mass, inertia_com), _array("v_C", v_C, 6))


def momentum_to_com(h_O: np.ndarray, nu: np.ndarray, r: np.ndarray) -> np.ndarray:
    """ĥ_C = [ν, 0; 0, ν] [1, −r×; 0, 1] ĥ_O (eq. momentumtransformation): momentum transforms like
    force.
    """
    return _apply(rotation(nu) @ force_translation(r), _array("h_O", h_O, 6))


def momentum_from_com(h_C: np.ndarray, nu: np.ndarray, r: np.ndarray) -> np.ndarray:
    """ĥ_O = [1, r×; 0, 1] [ν, 0; 0, ν]⁻¹ ĥ_C (eq. momentumtransformation2)."""
    return _apply(
        force_translation(-np.asarray(r, dtype=float)) @ _transpose(rotation(nu)),
        _array("h_C", h_C, 6),
    )


def spatial_inertia_by_translation(
    mass: np.ndarray, c: np.ndarray, inertia_com: np.ndarray
) -> np.ndarray:
    """I_O = [1, c×; 0, 1] I_C [1, 0; c×ᵀ, 1] (§II, above eq. inertiatensor), body axes."""
    c_x = skew(c)
    to_origin = _blocks(_ONE, c_x, _ZERO, _ONE)
    tensor: np.ndarray = to_origin @ inertia_at_com(mass, inertia_com) @ _transpose(to_origin)
    return tensor


def spatial_inertia(mass: np.ndarray, c: np.ndarray, inertia_com: np.ndarray) -> np.ndarray:
    """I_O = [Ī_C + m c× c×ᵀ, m c×; m c×ᵀ, m 1] (eq. inertiatensor): the spatial inertia tensor
    about O, body axes.
    """
    inertia_com, c_x = _array("inertia_com", inertia_com, 3, 3), skew(c)
    m = np.asarray(mass, dtype=float)[..., None, None]
    return _blocks(inertia_com + m * c_x @ _transpose(c_x), m * c_x, m * _transpose(c_x), m * _ONE)


def momentum(I_O: np.ndarray, nu: np.ndarray, v_O: np.ndarray) -> np.ndarray:
    """ĥ_O = [ν, 0; 0, ν]⁻¹ I_O [ν, 0; 0, ν] v̂_O (§II, above eq. inertiatensor): in O's axes, the
    tensor in the body's.
    """
    turn = rotation(nu)
    return _apply(_transpose(turn) @ _array("I_O", I_O, 6, 6) @ turn, _array("v_O", v_O, 6))


def kinetic_energy(I_O: np.ndarray, nu: np.ndarray, v_O: np.ndarray) -> np.ndarray:
    """T = ½ ĥ_Oᵀ v̂_O = ½ v̂_Oᵀ [ν, 0; 0, ν]ᵀ I_O [ν, 0; 0, ν] v̂_O (eq. kineticenergyrigidbody)
    [J].
    """
    energy: np.ndarray = 0.5 * np.sum(momentum(I_O, nu, v_O) * v_O, axis=-1)
    return energy
