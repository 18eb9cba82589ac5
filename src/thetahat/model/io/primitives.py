"""Points on the outlines of primitive shapes, about their own centres, (points, 3) [m]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

RING = 16  # points around a cylinder
BALL = 64  # points on a sphere


def box(half: np.ndarray) -> np.ndarray:
    """Corners of a box with these half sides."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return np.asarray(signs * half)


def cylinder(radius: float, half: float) -> np.ndarray:
    """Points around the ends of a cylinder along z."""
    turn = 2.0 * np.pi * np.arange(RING) / RING
    ring = np.column_stack([radius * np.cos(turn), radius * np.sin(turn), np.full(RING, half)])
    return np.vstack([ring, ring * [1.0, 1.0, -1.0]])


def ellipsoid(radii: np.ndarray) -> np.ndarray:
    """Points on an ellipsoid with these semi-axes."""
    k = np.arange(BALL) + 0.5
    z = 1.0 - 2.0 * k / BALL
    turn = np.pi * (1.0 + np.sqrt(5.0)) * k
    ring = np.sqrt(1.0 - z**2)
    spiral = np.column_stack([ring * np.cos(turn), ring * np.sin(turn), z])
    return np.asarray(np.vstack([spiral, np.eye(3), -np.eye(3)]) * radii)


def capsule(radius: float, half: float) -> np.ndarray:
    """Points on a cylinder along z with half balls at its ends; half: of the cylinder's length."""
    ball, end = ellipsoid(np.full(3, radius)), np.array([0.0, 0.0, half])
    return np.vstack([ball + end, ball - end])


PRIMITIVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of MJCF, from their `size`
    "sphere": lambda size: ellipsoid(np.full(3, size[0])),
    "capsule": lambda size: capsule(float(size[0]), float(size[1])),
    "ellipsoid": ellipsoid,
    "cylinder": lambda size: cylinder(float(size[0]), float(size[1])),
    "box": box,
}
