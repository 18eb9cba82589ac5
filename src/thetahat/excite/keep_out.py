"""Boxes of the world that every link keeps out of, by the same distances as links from each
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from thetahat.errors import UsageError
from thetahat.excite.collision_model import CollisionModel, Hulls

NAME = "a keep-out box"


def keep_out_model(
    model: CollisionModel, boxes: Sequence[np.ndarray], clearance: float
) -> CollisionModel:
    """Return what all that moves keeps out of: boxes (2, 3) with lower and upper corner [m]."""
    hulls, world = model.hulls, len(model.names) - 1
    for box in boxes:
        if np.shape(box) != (2, 3) or not np.all(np.isfinite(box)) or np.any(box[0] >= box[1]):
            raise UsageError(
                f"a keep-out box is {np.array(box).tolist()}; give lower and upper corner, lower"
                " below upper along x, y and z [m]"
            )
    corners = [np.array(list(product(*zip(box[0], box[1], strict=True)))) for box in boxes]
    balls = [[*np.mean(box, axis=0), np.linalg.norm(box[1] - box[0]) / 2.0] for box in boxes]
    count = len(hulls.body)
    more = Hulls(
        np.ascontiguousarray(np.vstack([hulls.points, *corners])),
        np.concatenate([hulls.first, hulls.first[-1] + 8 * np.arange(1, len(boxes) + 1)]),
        np.concatenate([hulls.body, np.full(len(boxes), world)]),
        np.concatenate([hulls.radius, np.zeros(len(boxes))]),
        np.vstack([hulls.balls, np.array(balls).reshape(-1, 4)]),
    )
    moving = np.flatnonzero(hulls.body < world)
    pairs = np.array([(piece, count + k) for piece in moving for k in range(len(boxes))], dtype=int)
    pairs = pairs.reshape(-1, 2)
    nothing = np.zeros(0)
    return replace(
        model,
        hulls=more,
        names=(*model.names[:-1], NAME),
        pairs=pairs,
        apart=np.full(len(pairs), clearance),
        floor=None,
        floor_pieces=nothing.astype(int),
        above=nothing,
        notes=(),
    )
