"""The ten inertial parameters of a rigid body, and conversions to every other form.

Paper, §IV: the spatial inertia tensor of a body about its joint origin, in body axes,

    I_O = [ Ī_C + m c× c×ᵀ   m c× ]
          [      m c×ᵀ        m 1 ]

holds ten independent numbers. Read off row by row they are, in the ONE order of this project,

    θ = (Ixx, Ixy, Ixz, m·cz, m·cy, Iyy, Iyz, m·cx, Izz, m)

with Ixx … Izz about the *origin* of the body frame. All functions take and return arrays with any
leading axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.errors import UsageError
from thetahat.model.spatial import force_transform, skew

NAMES = ("Ixx", "Ixy", "Ixz", "mcz", "mcy", "Iyy", "Iyz", "mcx", "Izz", "m")
SIZE = len(NAMES)

IXX, IXY, IXZ, MCZ, MCY, IYY, IYZ, MCX, IZZ, M = range(SIZE)
FIRST_MOMENT = (MCX, MCY, MCZ)
INERTIA = (IXX, IXY, IXZ, IYY, IYZ, IZZ)
INERTIA_ENTRIES = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))  # of INERTIA in the 3×3 matrix
_ROWS_OF_INERTIA = ((IXX, IXY, IXZ), (IXY, IYY, IYZ), (IXZ, IYZ, IZZ))

# Positions in θ of Pinocchio's dynamic parameters (m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz).
_PINOCCHIO = (M, MCX, MCY, MCZ, IXX, IXY, IYY, IXZ, IYZ, IZZ)

# A condition counts as violated below −TOLERANCE × the size of the numbers it compares: CAD files
# carry five or six digits, so a plate's Izz = Ixx + Iyy is met to about 1e-6 only.
TOLERANCE = 1e-6

# Ī_C = Ī_O − m c× c×ᵀ is a difference of numbers of the size of Ī_O, so below some hundred units in
# their last place its sign is rounding: a point mass far from the origin has Ī_C = 0, and would
# otherwise fail by 1e-17.
ROUNDING = 1e-13


def _theta(theta: np.ndarray) -> np.ndarray:
    theta = np.asarray(theta, dtype=float)
    if theta.ndim == 0 or theta.shape[-1] % SIZE:
        raise UsageError(
            f"theta has shape {theta.shape}; its last axis must be a multiple of {SIZE}, ten"
            " numbers per body"
        )
    return theta


def _one_body(theta: np.ndarray) -> np.ndarray:
    theta = _theta(theta)
    if theta.shape[-1] != SIZE:
        raise UsageError(
            f"theta has shape {theta.shape}; expected (..., {SIZE}), reshape a stacked vector to"
            f" (bodies, {SIZE}) first"
        )
    return theta


# -- (I_O, m c, m) ---------------------------------------------------------------------------------


def inertia_about_origin(theta: np.ndarray) -> np.ndarray:
    """Rotational inertia about the body's origin, (..., 3, 3) [kg·m²]."""
    return _one_body(theta)[..., np.array(_ROWS_OF_INERTIA)]


def first_moment(theta: np.ndarray) -> np.ndarray:
    """m·c, (..., 3) [kg·m]."""
    return _one_body(theta)[..., list(FIRST_MOMENT)]


def from_origin(mass: np.ndarray, moment: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """θ from m [kg], m·c [kg·m] and the rotational inertia about the origin [kg·m²]."""
    mass, moment, inertia = (np.asarray(a, dtype=float) for a in (mass, moment, inertia))
    theta = np.empty(
        (*np.broadcast_shapes(mass.shape, moment.shape[:-1], inertia.shape[:-2]), SIZE)
    )
    theta[..., M] = mass
    for k, index in enumerate(FIRST_MOMENT):
        theta[..., index] = moment[..., k]
    for index, (r, c) in zip(INERTIA, INERTIA_ENTRIES, strict=True):
        theta[..., index] = 0.5 * (inertia[..., r, c] + inertia[..., c, r])
    return theta


# -- (m, c, Ī_C) -----------------------------------------------------------------------------------


def from_mass_com_inertia(
    mass: np.ndarray | float, com: np.ndarray, inertia_com: np.ndarray
) -> np.ndarray:
    """θ from m, c and Ī_C (body axes): Ī_O = Ī_C + m c× c×ᵀ (paper, eq. inertiatensor)."""
    mass, com = np.asarray(mass, dtype=float), np.asarray(com, dtype=float)
    c_x = skew(com)
    inertia = np.asarray(inertia_com, dtype=float) + mass[..., None, None] * (
        c_x @ np.swapaxes(c_x, -1, -2)
    )
    return from_origin(mass, mass[..., None] * com, inertia)


def to_mass_com_inertia(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(m, c, Ī_C) from θ. A massless body has c = 0 here; its Ī_C is then the inertia about the
    origin.
    """
    theta = _one_body(theta)
    mass, moment = theta[..., M], first_moment(theta)
    safe = np.where(mass == 0.0, 1.0, mass)
    com = np.where((mass == 0.0)[..., None], 0.0, moment / safe[..., None])
    c_x = skew(com)
    inertia_com = inertia_about_origin(theta) - mass[..., None, None] * (
        c_x @ np.swapaxes(c_x, -1, -2)
    )
    return mass, com, inertia_com


# -- the 6×6 spatial inertia tensor ----------------------------------------------------------------


def to_spatial_inertia(theta: np.ndarray) -> np.ndarray:
    """I_O, (..., 6, 6), angular first (paper, eq. assigningtensor)."""
    theta = _one_body(theta)
    mc_x = skew(first_moment(theta))
    out = np.zeros((*theta.shape[:-1], 6, 6))
    out[..., :3, :3] = inertia_about_origin(theta)
    out[..., :3, 3:] = mc_x
    out[..., 3:, :3] = np.swapaxes(mc_x, -1, -2)
    out[..., 3:, 3:] = theta[..., M, None, None] * np.eye(3)
    return out


def from_spatial_inertia(tensor: np.ndarray) -> np.ndarray:
    """θ from I_O, (..., 6, 6) → (..., 10)."""
    tensor = np.asarray(tensor, dtype=float)
    moment = np.stack([tensor[..., 2, 4], tensor[..., 0, 5], tensor[..., 1, 3]], axis=-1)
    return from_origin(tensor[..., 3, 3], moment, tensor[..., :3, :3])


# -- the 4×4 pseudo-inertia ------------------------------------------------------------------------


def to_pseudo_inertia(theta: np.ndarray) -> np.ndarray:
    """J = [Σ, m c; m cᵀ, m], Σ = ½ tr(I_O) 1 − I_O [Wensing2018]. A body is physical if and only if
    J ⪰ 0.
    """
    theta = _one_body(theta)
    inertia = inertia_about_origin(theta)
    out = np.empty((*theta.shape[:-1], 4, 4))
    out[..., :3, :3] = (
        0.5 * np.trace(inertia, axis1=-2, axis2=-1)[..., None, None] * np.eye(3) - inertia
    )
    out[..., :3, 3] = out[..., 3, :3] = first_moment(theta)
    out[..., 3, 3] = theta[..., M]
    return out


def from_pseudo_inertia(pseudo: np.ndarray) -> np.ndarray:
    """θ from J: I_O = tr(Σ) 1 − Σ."""
    pseudo = np.asarray(pseudo, dtype=float)
    sigma = pseudo[..., :3, :3]
    inertia = np.trace(sigma, axis1=-2, axis2=-1)[..., None, None] * np.eye(3) - sigma
    return from_origin(pseudo[..., 3, 3], pseudo[..., :3, 3], inertia)


# -- log-Cholesky ----------------------------------------------------------------------------------


def to_log_cholesky(theta: np.ndarray) -> np.ndarray:
    """Ten free numbers (α, d1, d2, d3, s12, s23, s13, t1, t2, t3) of a strictly physical body
    [Rucker2022].

    J = U Uᵀ with U = e^α [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3], [0, 0, 0,
    1]].
    """
    pseudo = to_pseudo_inertia(theta)
    flip = pseudo[..., ::-1, ::-1]
    try:
        upper = np.linalg.cholesky(flip)[..., ::-1, ::-1]
    except np.linalg.LinAlgError:
        raise UsageError(
            "theta is not strictly physical, so it has no log-Cholesky form; project it first"
            " (thetahat.model.parameters.project)"
        ) from None
    alpha = np.log(upper[..., 3, 3])
    unit = upper / upper[..., 3:4, 3:4]
    return np.stack(
        [
            alpha,
            *(np.log(unit[..., k, k]) for k in range(3)),
            unit[..., 0, 1],
            unit[..., 1, 2],
            unit[..., 0, 2],
            *(unit[..., k, 3] for k in range(3)),
        ],
        axis=-1,
    )


def from_log_cholesky(eta: np.ndarray) -> np.ndarray:
    """θ from the ten free numbers of `to_log_cholesky`; every η gives a strictly physical body."""
    upper = _log_cholesky_factor(eta)
    return from_pseudo_inertia(upper @ np.swapaxes(upper, -1, -2))


def log_cholesky_jacobian(eta: np.ndarray) -> np.ndarray:
    """∂θ/∂η of `from_log_cholesky`, (..., 10, 10): θ is linear in J, and dJ = dU Uᵀ + U dUᵀ
    [Rucker2022].
    """
    upper = _log_cholesky_factor(eta)
    scale = upper[..., 3, 3]
    change = np.zeros((*upper.shape[:-2], SIZE, 4, 4))  # ∂U/∂η_a
    change[..., 0, :, :] = upper
    for k in range(3):
        change[..., 1 + k, k, k] = upper[..., k, k]
        change[..., 7 + k, k, 3] = scale
    for a, (r, c) in zip((4, 5, 6), ((0, 1), (1, 2), (0, 2)), strict=True):
        change[..., a, r, c] = scale
    half = change @ np.swapaxes(upper, -1, -2)[..., None, :, :]
    return np.swapaxes(from_pseudo_inertia(half + np.swapaxes(half, -1, -2)), -1, -2)


def _log_cholesky_factor(eta: np.ndarray) -> np.ndarray:
    """U, (..., 4, 4)."""
    eta = np.asarray(eta, dtype=float)
    if eta.shape[-1:] != (SIZE,):
        raise UsageError(f"eta has shape {eta.shape}; expected (..., {SIZE})")
    upper = np.zeros((*eta.shape[:-1], 4, 4))
    for k in range(3):
        upper[..., k, k] = np.exp(eta[..., 1 + k])
        upper[..., k, 3] = eta[..., 7 + k]
    upper[..., 0, 1], upper[..., 1, 2], upper[..., 0, 2] = eta[..., 4], eta[..., 5], eta[..., 6]
    upper[..., 3, 3] = 1.0
    upper *= np.exp(eta[..., 0])[..., None, None]
    return upper


# -- other tools' orders ---------------------------------------------------------------------------


def to_pinocchio(theta: np.ndarray) -> np.ndarray:
    """Permute each body's ten numbers to Pinocchio's (m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz,
    Izz).
    """
    theta = _theta(theta)
    return theta.reshape(*theta.shape[:-1], -1, SIZE)[..., list(_PINOCCHIO)].reshape(theta.shape)


def from_pinocchio(pi: np.ndarray) -> np.ndarray:
    """Permute each body's ten numbers from Pinocchio's order to θ's."""
    pi = _theta(pi)
    inverse = np.argsort(_PINOCCHIO)
    return pi.reshape(*pi.shape[:-1], -1, SIZE)[..., inverse].reshape(pi.shape)


# -- change of frame -------------------------------------------------------------------------------


def transform(theta: np.ndarray, rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """θ of the same body seen from another frame, in which the old frame stands at (rotation,
    translation).

    I_new = Xf I_old Xfᵀ, with Xf the force transform from the old frame to the new one. The
    pseudo-inertia would do it too, J_new = H J Hᵀ with H = [R, p; 0, 1], but its trace rounds away
    the small moments of thin bodies.
    """
    rotation, translation = np.asarray(rotation, dtype=float), np.asarray(translation, dtype=float)
    # of the new frame, seen from the old one
    origin = -np.squeeze(np.swapaxes(rotation, -1, -2) @ translation[..., None], -1)
    X = force_transform(rotation, origin)
    return from_spatial_inertia(X @ to_spatial_inertia(theta) @ np.swapaxes(X, -1, -2))


# -- physical consistency --------------------------------------------------------------------------


@dataclass(frozen=True)
class Consistency:
    """Whether ten numbers can belong to a rigid body, and if not, which condition fails."""

    physical: bool
    condition: str  # empty when physical
    value: float  # that violates it: a mass [kg], a moment or a difference of moments [kg·m²]

    def __bool__(self) -> bool:
        return self.physical


def check(theta: np.ndarray, tolerance: float = TOLERANCE) -> Consistency:
    """Check one body: finite, m ≥ 0, Ī_C ⪰ 0, and the triangle inequality of its principal
    moments.
    """
    theta = _one_body(theta)
    if theta.ndim != 1:
        raise UsageError(f"theta has shape {theta.shape}; check takes one body, ({SIZE},)")
    if not np.all(np.isfinite(theta)):
        bad = NAMES[int(np.argmin(np.isfinite(theta)))]
        return Consistency(False, f"{bad} is not finite", float("nan"))
    if theta[M] < 0.0:
        return Consistency(False, f"mass is negative ({theta[M]:.6g} kg)", float(theta[M]))
    if theta[M] == 0.0:
        worst = int(np.argmax(np.abs(theta)))
        if theta[worst] != 0.0:
            return Consistency(
                False, f"mass is zero but {NAMES[worst]} = {theta[worst]:.6g}", float(theta[worst])
            )
        return Consistency(True, "", 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        inertia_com = to_mass_com_inertia(theta)[2]
    if not np.all(np.isfinite(inertia_com)):
        return Consistency(
            False,
            f"mass is too small ({theta[M]:.6g} kg) for its first moment, the centre of mass is out"
            " of range",
            float(theta[M]),
        )
    moments = np.linalg.eigvalsh(inertia_com)
    slack = tolerance * max(abs(moments[0]), abs(moments[2])) + ROUNDING * float(
        np.max(np.abs(inertia_about_origin(theta)))
    )
    if moments[0] < -slack:
        return Consistency(
            False,
            f"inertia about the centre of mass has a negative principal moment ({moments[0]:.6g}"
            " kg·m²)",
            float(moments[0]),
        )
    excess = moments[0] + moments[1] - moments[2]
    if excess < -slack:
        text = (
            f"principal moments {moments[0]:.6g}, {moments[1]:.6g}, {moments[2]:.6g} kg·m² violate"
            f" the triangle inequality by {-excess:.3g}"
        )
        return Consistency(False, text, float(excess))
    return Consistency(True, "", float(excess))


def project(theta: np.ndarray, margin: float = 1e-6) -> np.ndarray:
    """The nearest physical body in the pseudo-inertia's Frobenius norm, eigenvalues held ≥ margin ×
    the largest magnitude.

    The margin makes it strictly physical, so it also moves singular but physical bodies (rods,
    point masses): `check` first.
    """
    theta = _one_body(theta)
    if not np.all(np.isfinite(theta)):
        raise UsageError(
            f"theta holds {theta[~np.isfinite(theta)][0]}; only finite parameters have a nearest"
            " physical body"
        )
    values, vectors = np.linalg.eigh(to_pseudo_inertia(theta))
    clipped = np.maximum(values, margin * np.max(np.abs(values), axis=-1, keepdims=True))
    return from_pseudo_inertia((vectors * clipped[..., None, :]) @ np.swapaxes(vectors, -1, -2))
