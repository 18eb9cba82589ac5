"""Regions of links: the ellipsoid of least volume, mass inside of it, and the rules by joints."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import thetahat as th
from thetahat import robots
from thetahat.model import parameters
from thetahat.model.link_geometry import (
    REACH,
    SHORTEST,
    SKIN,
    Region,
    enclosing_ellipsoid,
    link_length,
    link_regions,
)
from thetahat.model.lock_joints import lock

CLOSE = 0.02  # relative: the outline is taken in 162 directions


def random_region(rng: np.random.Generator) -> Region:
    return Region(
        rng.normal(size=3),
        np.linalg.qr(rng.normal(size=(3, 3)))[0],
        rng.uniform(0.05, 0.5, 3),
        "geometry",
    )


def inside(region: Region, rng: np.random.Generator, count: int) -> np.ndarray:
    """Points spread evenly over the region."""
    ball = rng.normal(size=(count, 3))
    ball *= (rng.random(count) ** (1 / 3) / np.linalg.norm(ball, axis=1))[:, None]
    return region.centre + (ball * region.radii) @ region.axes.T


def theta_of(points: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The ten parameters of point masses."""
    lifted = np.column_stack([points, np.ones(len(points))])
    return parameters.from_pseudo_inertia((lifted.T * mass) @ lifted)


@pytest.mark.parametrize("seed", range(5))
def test_every_cloud_of_masses_inside_is_realisable_and_none_outside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    region = random_region(rng)
    points = inside(region, rng, 40)
    mass = rng.exponential(size=40) ** 3
    assert region.filling(theta_of(points, mass)) >= 0.0
    beyond = region.centre + (points - region.centre) * 1e3
    reach = np.linalg.norm((beyond - region.centre) @ region.axes / region.radii, axis=1)
    assert region.filling(theta_of(beyond[reach > 1.0], mass[reach > 1.0])) < 0.0
    # one point on the boundary: exactly between
    edge = region.centre + region.axes[:, 0] * region.radii[0]
    assert region.filling(theta_of(edge[None], np.ones(1))) == pytest.approx(0.0, abs=1e-9)


def test_a_region_filled_evenly_is_what_sampled_points_say() -> None:
    rng = np.random.default_rng(3)
    region = random_region(rng)
    theta = region.filled(1_000.0)
    points = inside(region, rng, 200_000)
    sampled = theta_of(points, np.full(len(points), 1_000.0 * region.volume / len(points)))
    assert theta == pytest.approx(sampled, rel=0.02, abs=0.02 * np.max(np.abs(sampled)))
    assert region.filling(theta) == pytest.approx(0.4)
    mass, _, inertia = parameters.to_mass_com_inertia(theta)
    assert np.sqrt(0.5 * np.trace(inertia) / mass) == pytest.approx(region.gyration)


@pytest.mark.parametrize("seed", range(4))
def test_distance_is_that_of_the_nearest_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    region = random_region(rng)
    point = region.centre + 2.0 * rng.normal(size=3)
    to_unit = (region.axes / region.radii).T

    def beyond(x: np.ndarray) -> float:
        return 1.0 - float(np.sum((to_unit @ (x - region.centre)) ** 2))

    nearest = minimize(
        lambda x: float(np.sum((x - point) ** 2)),
        region.centre,
        constraints={"type": "ineq", "fun": beyond},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    expected = 0.0 if beyond(point) >= 0.0 else np.sqrt(nearest.fun)
    assert region.distance(point) == pytest.approx(expected, abs=1e-4)
    assert region.distance(region.centre) == 0.0


def test_the_smallest_ellipsoid_of_a_box_is_known_and_of_a_cloud_holds_it() -> None:
    half = np.array([0.1, 0.2, 0.4])
    corners = half * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    region = enclosing_ellipsoid(corners, 0.0, "geometry")
    assert np.sort(region.radii) == pytest.approx(np.sqrt(3.0) * half, rel=CLOSE)
    cloud = np.random.default_rng(0).normal(size=(20_000, 3)) * [1.0, 0.3, 0.1]
    around = enclosing_ellipsoid(cloud, SKIN, "geometry")
    assert max(around.distance(point) for point in cloud[::50]) <= 1e-9
    far = cloud[np.argmax(np.linalg.norm(cloud, axis=1))]
    assert around.distance(far) <= 1e-9
    moved = enclosing_ellipsoid(cloud + 5.0, SKIN, "geometry")
    assert moved.centre == pytest.approx(around.centre + 5.0, abs=0.05)
    assert moved.volume == pytest.approx(around.volume, rel=CLOSE)


def test_links_without_geometry_reach_around_their_joints() -> None:
    robot = th.load(robots.path("arm7"))
    pad = max(REACH * link_length(robot), SHORTEST)
    bare = link_regions(robot, {}, placeholder=True)
    for b, region in enumerate(bare):
        assert region.source == "joints"
        at = robot.tree.bodies[b]
        carried = [node.translation for node in robot.tree.nodes if node.parent == at]
        for point in (np.zeros(3), *carried):
            assert region.distance(point) == 0.0
        assert np.min(region.radii) >= 0.99 * pad
        if not carried and all(
            np.allclose(link.translation, 0.0) for link in robot.links if link.body == b
        ):  # a last link: a ball
            assert region.radii == pytest.approx(np.full(3, pad), rel=CLOSE)
            assert region.centre == pytest.approx(np.zeros(3), abs=CLOSE * pad)
    # with the file's centres of mass, unless its inertias are placeholders
    for b, region in enumerate(link_regions(robot, {})):
        theta = robot.theta[10 * b : 10 * b + 10]
        assert region.distance(theta[[7, 4, 3]] / theta[9]) == 0.0


def test_links_that_are_welded_together_share_a_region() -> None:
    robot = th.load(robots.path("arm7"))
    whole, locked = link_regions(robot, {}), lock(robot, [robot.joint_names[3]])
    merged = link_regions(locked, {})
    assert len(merged) == len(whole) - 1
    at = locked.tree.bodies[2]
    frames = [link.translation for link in locked.links if link.body == 2]
    assert len(frames) >= 2  # the third link, and the one that was locked to it
    frames += [node.translation for node in locked.tree.nodes if node.parent == at]
    assert all(merged[2].distance(frame) == 0.0 for frame in frames)


def test_geometry_takes_the_place_of_joints() -> None:
    robot = th.load(robots.path("arm4"))
    name = robot.body_names[1]
    cloud = np.random.default_rng(1).uniform(-0.05, 0.05, (50, 3)) + np.array([0.0, 0.0, 0.3])
    regions = link_regions(robot, {name: cloud})
    assert [region.source for region in regions].count("geometry") == 1
    assert regions[1].distance(np.array([0.0, 0.0, 0.3])) == 0.0
    assert np.max(regions[1].radii) < 0.13
