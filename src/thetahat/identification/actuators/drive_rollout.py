"""Open-loop simulation of logged commands with given drives, on several threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from thetahat.dynamics import batch
from thetahat.identification.actuators.drive_log import DriveLog, Segment
from thetahat.identification.actuators.drive_parameters import DriveParameters
from thetahat.model.robot import Robot
from thetahat.model.tree import DOF_NODE, PARENT, V_INDEX

SHORTEST_STEP, LONGEST_STEP = 1e-3, 5e-3  # [s]
MOST_STEPS = 300_000  # of a whole log, from which on steps are longer than the shortest
LONGEST_WAIT = 3600.0  # [s] for a thread


class DriveRollout:
    """Simulates segments of a log with several sets of drive parameters at once."""

    def __init__(self, robot: Robot, log: DriveLog, *, step: float | None = None) -> None:
        """Simulate with steps of this length at most; default: by the length of the log."""
        self.robot, self.log = robot, log
        if step is None:
            step = float(np.clip(log.seconds / MOST_STEPS, SHORTEST_STEP, LONGEST_STEP))
        self.substeps = max(1, int(np.ceil(log.period / step - 0.05)))
        self._speed = np.ascontiguousarray(log.derivatives[0])

    def positions(self, sets: np.ndarray, segments: Sequence[Segment]) -> np.ndarray:
        """Return what the encoders would show, (sets, rows of the segments, joints).

        sets: (sets, joints, parameters).
        """
        starts = np.cumsum([0, *(each.rows for each in segments)])
        rows = int(starts[-1])
        jobs = np.array(
            [
                (k, each.first, each.rows, each.run, k * rows + start)
                for each, start in sorted(
                    zip(segments, starts[:-1], strict=True), key=lambda pair: -pair[0].rows
                )
                for k in range(len(sets))
            ],
            dtype=np.int64,
        )
        out = np.empty((len(sets) * rows, self.log.joints))
        tiles = [jobs[at : at + batch.WIDTH] for at in range(0, len(jobs), batch.WIDTH)]
        count = min(batch.CORES, len(tiles))
        parts = [np.concatenate(tiles[k::count]) for k in range(count)]
        sets = np.ascontiguousarray(sets)
        with ThreadPoolExecutor(count) as pool:
            futures = [pool.submit(self._simulate, sets, part, out) for part in parts]
            for future in futures:
                future.result(timeout=LONGEST_WAIT)
        return out.reshape(len(sets), rows, -1)

    def sensitivities(
        self, drives: DriveParameters, segments: Sequence[Segment]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what the encoders would show, (rows, joints), and its derivatives.

        The derivatives, (rows, joints, columns), are by the values of the free parameters: those of
        `columns_of` a joint are by its parameters and those of its branch.
        """
        places, moved = branch_places(self.robot), columns_of(drives, branch_places(self.robot))[1]
        starts = np.cumsum([0, *(each.rows for each in segments)])
        order = np.argsort([-each.rows for each in segments])
        jobs = np.array(
            [(0, s.first, s.rows, s.run, at) for s, at in zip(segments, starts, strict=False)],
            dtype=np.int64,
        )[order]
        rows, count = int(starts[-1]), min(batch.CORES, len(jobs))
        out = np.empty((rows, self.log.joints))
        slopes = np.empty((rows, self.log.joints, moved.shape[1]))

        def simulate(part: np.ndarray) -> None:
            tree, log = self.robot.tree, self.log
            theta, gravity, _ = self.robot.kernel_values
            w = batch.Workspace(tree)
            batch.kernels().drive_sensitivity.simulate_sensitivities(
                tree.rigid_arrays,
                gravity,
                theta,
                np.ascontiguousarray(drives.values),
                moved,
                places,
                part,
                log.t,
                log.command,
                log.q,
                self._speed,
                self.substeps,
                (w.nodes, w.directions, w.forces, w.torques),
                out,
                slopes,
            )

        with ThreadPoolExecutor(count) as pool:
            futures = [
                pool.submit(simulate, np.ascontiguousarray(jobs[k::count])) for k in range(count)
            ]
            for future in futures:
                future.result(timeout=LONGEST_WAIT)
        return out, slopes

    def _simulate(self, sets: np.ndarray, jobs: np.ndarray, out: np.ndarray) -> None:
        tree, log = self.robot.tree, self.log
        theta, gravity, _ = self.robot.kernel_values
        w = batch.Workspace(tree)
        scratch = (w.nodes, w.directions, w.composite, w.matrix, w.forces, w.torques)
        batch.kernels().drive_simulation.simulate_drives(
            tree.rigid_arrays,
            gravity,
            theta,
            sets,
            jobs,
            log.t,
            log.command,
            log.q,
            self._speed,
            self.substeps,
            scratch,
            out,
        )


def branch_places(robot: Robot) -> np.ndarray:
    """Return (joints, 2): which branch of the base each joint is on, and its place there.

    Branches that a mimic joint ties together are one.
    """
    arrays = robot.tree.arrays
    branch = np.zeros(len(arrays.topology), dtype=int)
    for node, parent in enumerate(arrays.topology[:, PARENT]):
        branch[node] = node if parent < 0 else branch[parent]
    node_of: dict[int, int] = {}
    for node, joint in arrays.dofs[:, [DOF_NODE, V_INDEX]]:
        same = branch[node_of.setdefault(int(joint), int(node))]
        branch[branch == branch[node]] = same
    out = np.zeros((robot.nv, 2), dtype=np.int64)
    used: dict[int, int] = {}
    for joint in range(robot.nv):
        mine = int(branch[node_of[joint]])
        out[joint] = mine, used.get(mine, 0)
        used[mine] = used.get(mine, 0) + 1
    return out


def columns_of(drives: DriveParameters, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the column of every free parameter, and (joints, columns) which parameter of a joint
    a column moves, −1 for none.

    Joints on different branches do not move one another, so their parameters share columns.
    """
    entries = drives.entries
    used: dict[int, int] = {}
    columns = np.zeros(len(entries), dtype=int)
    for at, (joint, _) in enumerate(entries):
        branch = int(places[joint, 0])
        columns[at] = used.get(branch, 0)
        used[branch] = columns[at] + 1
    moved = np.full((len(places), max(used.values(), default=0)), -1, dtype=np.int64)
    for (joint, parameter), column in zip(entries, columns, strict=True):
        moved[joint, column] = parameter
    return columns, moved


def rows_of(segments: Sequence[Segment]) -> np.ndarray:
    """Return the rows of the log that segments cover, in their order."""
    return np.concatenate([np.arange(each.first, each.first + each.rows) for each in segments])


def run_errors(rollout: DriveRollout, values: np.ndarray) -> np.ndarray:
    """Return the RMS of q − q_sim of every run and joint, (runs, joints), each simulated in open
    loop from its first row.
    """
    segments = rollout.log.segments(None)
    simulated = rollout.positions(values[None], segments)[0]
    error = simulated - rollout.log.q[rows_of(segments)]
    stops = np.cumsum([each.rows for each in segments])[:-1]
    return np.array([np.sqrt(np.mean(part**2, axis=0)) for part in np.split(error, stops)])
