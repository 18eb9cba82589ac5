"""Open-loop simulation of logged commands with given drives, on several threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from thetahat.dynamics import batch
from thetahat.identification.actuators.drive_log import DriveLog, Segment
from thetahat.model.robot import Robot

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
