"""Distances of a robot's shapes along a motion, by Pinocchio and Coal: nothing of ours but the list
of pairs. Meshes are held by their hulls, as Coal makes them.
"""

from __future__ import annotations

import warnings

import coal
import numpy as np
import pinocchio as pin

from thetahat.excite.collision_model import CollisionModel
from thetahat.model.robot import Robot

FLOOR_NAME = "floor"


def shapes_of(
    robot: Robot, watched: CollisionModel, packages: str
) -> tuple[pin.Model, pin.GeometryModel]:
    """The robot as Pinocchio reads it, its meshes, a floor, and the pairs that are watched."""
    path = str(robot.source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = pin.buildModelFromUrdf(path)
        geometry = pin.buildGeomFromUrdf(model, path, pin.GeometryType.COLLISION, [packages])
        if not geometry.ngeoms:
            geometry = pin.buildGeomFromUrdf(model, path, pin.GeometryType.VISUAL, [packages])
    for shape in geometry.geometryObjects:  # hulls hold their meshes, and are far quicker
        if isinstance(shape.geometry, coal.BVHModelBase):
            shape.geometry.buildConvexRepresentation(False)
            shape.geometry = shape.geometry.convex
    names = {frozenset(watched.name(k).split(" and ")) for k in range(len(watched.pairs))}
    low = {watched.name(len(watched.pairs) + k) for k in range(len(watched.floor_pieces))}
    bodies = {link.name: watched.names[link.body] for link in robot.links}
    owner = [bodies[model.frames[shape.parentFrame].name] for shape in geometry.geometryObjects]
    for b in range(len(owner)):
        for a in range(b):
            if frozenset((owner[a], owner[b])) in names:
                geometry.addCollisionPair(pin.CollisionPair(a, b))
    if watched.floor is not None:
        slab = pin.SE3(np.eye(3), np.array([0.0, 0.0, watched.floor - 0.5]))
        ground = geometry.addGeometryObject(
            pin.GeometryObject(FLOOR_NAME, 0, slab, coal.Box(20.0, 20.0, 1.0))
        )
        for a, name in enumerate(owner):
            if name in low:
                geometry.addCollisionPair(pin.CollisionPair(a, ground))
    return model, geometry


def least_distances(
    robot: Robot, watched: CollisionModel, q: np.ndarray, packages: str = ""
) -> tuple[float, float]:
    """The least distance [m] of links from each other, and of links from the floor."""
    model, geometry = shapes_of(robot, watched, packages)
    data, placed = model.createData(), pin.GeometryData(geometry)
    order = [model.joints[model.getJointId(name)].idx_q for name in robot.joint_names]
    floor = np.array(
        [
            geometry.geometryObjects[pair.second].name == FLOOR_NAME
            for pair in geometry.collisionPairs
        ]
    )
    least, rest = np.full(len(floor), np.inf), pin.neutral(model)
    for row in q:
        rest[order] = row
        pin.computeDistances(model, data, geometry, placed, rest)
        least = np.minimum(least, [each.min_distance for each in placed.distanceResults])
    return float(np.min(least[~floor], initial=np.inf)), float(np.min(least[floor], initial=np.inf))
