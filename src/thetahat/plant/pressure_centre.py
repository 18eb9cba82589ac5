"""The centre of pressure of a standing robot, and base motions that keep it among the feet.

Where the ground's total force acts, no couple tips the robot: p = (x_b − (M_y + hF_x)/F_z,
y_b − (hF_y − M_x)/F_z), from the force F and the couple M about the base's origin that the motion
needs, h above the ground. A base that moves by Δ moves it by Δ − Δ̈/ω², ω² = g/z, so an unwanted
course e of the centre is taken back by Δ(f) = −e(f)/(1 + (2πf/ω)²).
"""

from __future__ import annotations

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.dynamics.link_forces import link_place
from thetahat.model.floating_base import base_dofs, ground_of
from thetahat.model.robot import Robot
from thetahat.plant.ground_world import SOLE

SMOOTH = 1.0  # [s] in which a shift begins and ends
USED = 0.5  # of the way from the middle of the feet to their edges


def pressure_centre(
    robot: Robot, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, ground: float
) -> np.ndarray:
    """Compute where the ground's total force acts, (n, 2) [m]; ground: its height [m]."""
    needed = rigid_body.inverse_dynamics(robot, q, dq, ddq)[:, list(base_dofs(robot))]
    R = rigid_body.body_frames(robot, q)[0][:, 0]  # of the base
    couple, force = ((R @ part[..., None])[..., 0] for part in (needed[:, :3], needed[:, 3:]))
    up = force[:, 2]
    height = q[:, 2] - ground
    x = q[:, 0] - (couple[:, 1] + height * force[:, 0]) / up
    y = q[:, 1] - (height * force[:, 1] - couple[:, 0]) / up
    return np.stack([x, y], axis=1)


def support_room(robot: Robot, posture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle of the feet and how far their edges are from it, (2,) each [m]."""
    ground = ground_of(robot)
    assert ground is not None
    places = np.array([link_place(robot, posture, foot.link)[1][:2] for foot in ground.feet])
    soles = np.array([SOLE[:2] if foot.flat else (0.0, 0.0) for foot in ground.feet])
    high, low = (places + soles).max(axis=0), (places - soles).min(axis=0)
    return 0.5 * (high + low), 0.5 * (high - low)


def base_shift(
    robot: Robot, t: np.ndarray, course: np.ndarray, posture: np.ndarray, height: float
) -> np.ndarray:
    """Compute the shift of the base, (n, 2) [m], that keeps a centre of pressure (n, 2) among the
    feet; zero where it stays there. height: of the centre of mass above the ground [m].
    """
    middle, room = support_room(robot, posture)
    off = course - middle
    farthest = np.maximum(np.abs(off).max(axis=0), 1e-12)
    excess = off * (1.0 - np.minimum(1.0, USED * room / farthest))
    n, rate = len(t), 1.0 / float(t[1] - t[0])
    squared = float(np.linalg.norm(robot.gravity)) / height
    f = np.fft.rfftfreq(2 * n, 1.0 / rate)
    # the motion begins and ends where it would have
    ends = np.clip(np.minimum(t - t[0], t[-1] - t) / SMOOTH, 0.0, 1.0)
    ends = (ends**3 * (10.0 - 15.0 * ends + 6.0 * ends**2))[:, None]
    padded = np.fft.rfft(excess, 2 * n, axis=0) / (1.0 + (2.0 * np.pi * f) ** 2 / squared)[:, None]
    shift = -np.fft.irfft(padded, 2 * n, axis=0)[:n]
    return np.asarray(shift * ends)
