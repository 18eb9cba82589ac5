"""Frames of all nodes, for what is computed from them outside the kernels: Jacobians, energies,
pictures.
"""

from __future__ import annotations

from thetahat.kernels.jit import jit
from thetahat.kernels.kinematics import ROTATION, place
from thetahat.kernels.lanes import WIDTH, load, scatter


@jit
def frames(topology, geometry, dofs, axes, q, nodes, directions, out):
    """Fill out (samples, 12·nodes): rotation row by row, then position, of every node in
    the world.
    """
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        for i in range(topology.shape[0]):
            for k in range(12):
                scatter(out, first, count, 12 * i + k, load(nodes, i + 1, ROTATION + k))
