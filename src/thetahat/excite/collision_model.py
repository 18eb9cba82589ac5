"""Distances of a robot's links to each other and to a floor, and how they change with its pose.

Every body is held by convex pieces, hulls of points widened by a radius; collision_pairs.py makes
them of a robot and says which keep apart. A limit's ratio is 1 − (d −
clearance)/ROOM: 1 at the clearance, 0 where nothing is near.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.model.robot import Robot

ROOM = 0.1  # [m] beyond the clearance in which a limit is felt
STEP = 1e-6  # [rad or m] of differences
WORLD = "the base"
SELF_COLLISION, FLOOR = "self-collision", "floor"


class Contacts(NamedTuple):
    """Where limits of distance are felt in some samples: one entry per sample and limit."""

    sample: np.ndarray  # (a,)
    row: np.ndarray  # (a,) of the limits: pairs of pieces, then pieces above the floor
    ratio: np.ndarray  # (a,) above 0; 1 at the clearance
    points: np.ndarray  # (a, 2, 3) nearest points in the world [m]


class Hulls(NamedTuple):
    """Pieces of all bodies, as the kernel reads them; the world is the body after the last."""

    points: np.ndarray  # (k, 3) in the bodies' frames [m]
    first: np.ndarray  # (pieces + 1,) where each piece begins
    body: np.ndarray  # (pieces,)
    radius: np.ndarray  # (pieces,) [m]
    balls: np.ndarray  # (pieces, 4) centre and radius of a ball around its points


@dataclass(frozen=True, eq=False)
class CollisionModel:
    """What keeps apart from what; see `collision_pairs.collision_model`."""

    hulls: Hulls
    names: tuple[str, ...]  # of the bodies, the world's last
    pairs: np.ndarray  # (m, 2) of pieces
    apart: np.ndarray  # (m,) least distance of each [m]
    floor: float | None  # [m] its height
    floor_pieces: np.ndarray  # (f,) that keep above it
    above: np.ndarray  # (f,) least height of each above it [m]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(len(self.pairs) or len(self.floor_pieces))

    def frames(self, robot: Robot, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rotation and position of all bodies and the world, (n, bodies + 1, …)."""
        R, p = rigid_body.body_frames(robot, q)
        n = len(q)
        return (
            np.concatenate([R, np.broadcast_to(np.eye(3), (n, 1, 3, 3))], axis=1),
            np.concatenate([p, np.zeros((n, 1, 3))], axis=1),
        )

    def contacts(self, robot: Robot, q: np.ndarray) -> Contacts:
        """Return the limits that are felt at configurations q, (n, nv)."""
        R, p = self.frames(robot, q)
        parts = []
        if len(self.pairs):
            between = self.hulls.radius[self.pairs].sum(axis=1)
            reach = between + self.apart + ROOM
            core, near = hull_distances(self.hulls, R, p, self.pairs, reach)
            parts.append(_felt(core - between - self.apart, near, 0))
        if len(self.floor_pieces):
            height, lowest = heights(self.hulls, R, p, self.floor_pieces)
            below = lowest.copy()
            below[..., 2] = self.floor
            near = np.stack([lowest, below], axis=2)
            parts.append(_felt(height - below[..., 2] - self.above, near, len(self.pairs)))
        if not parts:
            nowhere = np.zeros(0, dtype=int)
            return Contacts(nowhere, nowhere, np.zeros(0), np.zeros((0, 2, 3)))
        return Contacts(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def jacobian(self, robot: Robot, q: np.ndarray, felt: Contacts) -> np.ndarray:
        """Return the derivative of every ratio by its sample's configuration, (a, nv).

        The nearest points move with their bodies; how they move on them changes the distance in
        second order alone.
        """
        if not len(felt.ratio):
            return np.zeros((0, robot.nv))
        samples, at = np.unique(felt.sample, return_inverse=True)
        nv = robot.nv
        moved = q[samples][:, None] + STEP * np.concatenate([np.zeros((1, nv)), np.eye(nv)])
        R, p = self.frames(robot, moved.reshape(-1, nv))
        R, p = R.reshape(len(samples), nv + 1, *R.shape[1:]), p.reshape(len(samples), nv + 1, -1, 3)
        normal = felt.points[:, 0] - felt.points[:, 1]
        normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
        if self.floor is not None:
            normal[felt.row >= len(self.pairs)] = (0.0, 0.0, 1.0)
        change: np.ndarray = np.zeros((len(felt.ratio), nv))
        for side, sign in ((0, 1.0), (1, -1.0)):
            body = self._bodies(felt.row, side)
            turn, origin = R[at, :, body], p[at, :, body]  # (a, nv + 1, …)
            local = np.einsum("aji,aj->ai", turn[:, 0], felt.points[:, side] - origin[:, 0])
            world = np.einsum("akij,aj->aki", turn, local) + origin
            change += sign * np.einsum("aki,ai->ak", world[:, 1:] - world[:, :1], normal)
        out: np.ndarray = -change / (STEP * ROOM)
        return out

    def _bodies(self, rows: np.ndarray, side: int) -> np.ndarray:
        """The body on one side of each limit."""
        world = len(self.names) - 1
        of_pairs = self.hulls.body[self.pairs[:, side]]
        of_floor = self.hulls.body[self.floor_pieces]
        if side == 1:
            of_floor = np.full(len(of_floor), world)
        return np.asarray(np.concatenate([of_pairs, of_floor])[rows], dtype=int)

    def kind(self, row: int) -> str:
        """Return which kind of limit a row is."""
        return SELF_COLLISION if row < len(self.pairs) else FLOOR

    def name(self, row: int) -> str:
        """Return what a row keeps apart, in words."""
        a, b = (self.names[int(self._bodies(np.array([row]), side)[0])] for side in (0, 1))
        return f"{a} and {b}" if row < len(self.pairs) else a

    def least(self, row: int) -> float:
        """Return the least distance of a row [m]."""
        return float(np.concatenate([self.apart, self.above])[row])

    def lowest_point(self, robot: Robot, q: np.ndarray) -> tuple[float, str, int]:
        """Return the lowest height of anything that moves [m], of which body, in which sample."""
        R, p = self.frames(robot, q)
        moving = np.flatnonzero(self.hulls.body < len(self.names) - 1)
        if not len(moving):
            return 0.0, WORLD, 0
        z, _ = heights(self.hulls, R, p, moving)
        row, piece = np.unravel_index(int(np.argmin(z)), z.shape)
        return float(z[row, piece]), self.names[self.hulls.body[moving[piece]]], int(row)


def heights(
    hulls: Hulls, R: np.ndarray, p: np.ndarray, pieces: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where pieces end below, (n, pieces), and the lowest of their points, (n, pieces, 3) [m]."""
    lowest = np.empty((len(R), len(pieces), 3))
    for k, piece in enumerate(pieces):
        own = hulls.points[hulls.first[piece] : hulls.first[piece + 1]]
        turn = R[:, hulls.body[piece]]
        at = np.argmin(turn[:, 2] @ own.T, axis=1)
        lowest[:, k] = np.einsum("nij,nj->ni", turn, own[at]) + p[:, hulls.body[piece]]
    return lowest[..., 2] - hulls.radius[pieces], lowest


def _felt(room: np.ndarray, near: np.ndarray, first: int) -> Contacts:
    """Those of (n, rows) whose distance leaves less than ROOM."""
    sample, row = np.nonzero(room < ROOM)
    return Contacts(sample, row + first, 1.0 - room[sample, row] / ROOM, near[sample, row])


def hull_distances(
    hulls: Hulls, R: np.ndarray, p: np.ndarray, pairs: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances of the hulls' points, radii aside, (n, m), and nearest points, (n, m, 2, 3).

    Beyond `reach` (m,), a distance is a lower bound, and its points are not filled.
    """
    from thetahat.kernels.convex_distance import convex_distances

    out, near = np.empty((len(R), len(pairs))), np.empty((len(R), len(pairs), 2, 3))
    shares = (np.empty(4), np.empty(4))
    placed = np.empty(len(hulls.body), dtype=np.bool_)
    scratch = (np.empty((4, 3)), np.zeros((4, 2), dtype=np.int64), *shares, placed)
    convex_distances(
        hulls.points,
        hulls.first,
        hulls.body,
        hulls.balls,
        np.ascontiguousarray(R),
        np.ascontiguousarray(p),
        np.ascontiguousarray(pairs, dtype=np.int64),
        np.ascontiguousarray(reach, dtype=float),
        np.empty_like(hulls.points),
        scratch,
        out,
        near,
    )
    return out, near
