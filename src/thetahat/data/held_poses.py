"""Poses that a robot holds: the standing parts of a log, each averaged to one sample at rest.

A row of a table with a pose for each, recorded seconds apart, is a pose; of a recording, parts in
which no joint has moved for 0.3 s are. How each joint came there decides on which side of its
friction it is held: the direction of its last motion is kept with the sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.data.types import Chunk
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.model.friction_terms import FrictionDirection
from thetahat.model.robot import Robot

LONE = 0.2  # [s] between rows from which on each is a pose
SETTLED = 0.3  # [s] without motion after which a pose is held
STILL = 2e-3  # [rad or m] that a joint may creep in that time
LEAST_ROWS = 3  # of a held pose in a recording
LEAST_POSES = 10
APART = 0.02  # [rad or m] by which some joint has moved: another pose


@dataclass(frozen=True, eq=False)
class HeldPoses:
    """Averages over held poses."""

    q: np.ndarray  # (n, nq)
    tau: np.ndarray  # (n, nv)
    approach: np.ndarray  # (n, nv) −1, 0 or 1: direction of the joint's last motion
    resolution: np.ndarray  # (nv,) least step of the logged torques

    def __len__(self) -> int:
        return len(self.q)

    def part(self, rows: np.ndarray) -> HeldPoses:
        """Return some of the poses."""
        return replace(self, q=self.q[rows], tau=self.tau[rows], approach=self.approach[rows])

    def samples(self, robot: Robot) -> Samples:
        """Return them as samples at rest; dry friction acts against the last motion."""
        rest = np.zeros_like(self.tau)
        return Samples(
            q=self.q,
            dq=rest,
            ddq=rest,
            tau=self.tau,
            direction=self.approach,
            dry=FrictionDirection.plain(robot.nv),
            provenance={"resolution": tuple(float(step) for step in self.resolution)},
        )


def held_poses(runs: Iterable[Chunk], robot: Robot, file: str) -> HeldPoses:
    """Find the poses that are held in the runs of a log, and average them."""
    if robot.nq != robot.nv:
        raise UsageError(
            f"--static takes robots whose joints have one degree of freedom each, and"
            f" {robot.name!r} has others"
        )
    q: list[np.ndarray] = []
    approach: list[np.ndarray] = []
    tau, steps = [], []
    for run in runs:
        if run.tau is None or len(run) < 2:
            continue
        steps.append(_steps(run.tau))
        for part, direction in _standing(run):
            where = run.q[part].mean(axis=0)
            if q and np.max(np.abs(where - q[-1])) < APART and not np.any(direction - approach[-1]):
                continue  # held on, after a creep
            q.append(where)
            tau.append(run.tau[part].mean(axis=0))
            approach.append(direction)
    if len(q) < LEAST_POSES:
        raise NotIdentifiable(
            f"{file} holds {len(q)} pose{'s' if len(q) != 1 else ''} (no joint moves for"
            f" {SETTLED:g} s); --static asks for {LEAST_POSES} at least, better 30, spread over the"
            " range of every joint"
        )
    resolution = np.min(np.array(steps), axis=0)
    return HeldPoses(np.array(q), np.array(tau), np.array(approach), resolution)


def _standing(run: Chunk) -> Iterable[tuple[slice, np.ndarray]]:
    """Yield the rows of each held pose, and how its joints came there."""
    direction = np.zeros(run.q.shape[1])
    period = float(np.median(np.diff(run.t)))
    if period >= LONE:
        for k in range(len(run)):
            moved = run.q[k] - run.q[max(k - 1, 0)]
            direction = np.where(np.abs(moved) > STILL, np.sign(moved), direction)
            yield slice(k, k + 1), direction
        return
    before = np.searchsorted(run.t, run.t - SETTLED + 1e-9)
    still = np.max(np.abs(run.q - run.q[before]), axis=1) < STILL
    still &= run.t - run.t[0] >= SETTLED - 1e-9
    edges = np.flatnonzero(np.diff(np.concatenate([[False], still, [False]]).astype(int)))
    last = 0
    for first, stop in zip(edges[::2], edges[1::2], strict=True):
        # the latest motion of each joint since the pose before
        between = run.q[last : first + 1]
        moved = np.where(np.abs(between[-1] - between) > STILL, np.sign(between[-1] - between), 0.0)
        latest = [column[np.flatnonzero(column)[-1]] if column.any() else 0.0 for column in moved.T]
        direction = np.where(np.array(latest) != 0.0, latest, direction)
        last = first
        if stop - first >= LEAST_ROWS:
            yield slice(first, stop), direction


def _steps(tau: np.ndarray) -> np.ndarray:
    """Least difference between different torques of each joint, (nv,); infinite: constant."""
    out = []
    for values in tau.T:
        gaps = np.diff(np.unique(values))
        out.append(float(gaps.min()) if len(gaps) else np.inf)
    return np.array(out)
