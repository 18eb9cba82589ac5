"""Rows of several joints of a sample, mixed with each other: what is left of them without contact
forces.
"""

from __future__ import annotations

from thetahat.kernels.jit import jit
from thetahat.kernels.lanes import WIDTH, put, splat, take


@jit
def mix_rows(projection, rows, starts, columns, scratch):
    """rows[starts[v] + c] ← Σ_u projection[v·joints + u]·rows[starts[u] + c], sample by sample, in
    place.

    projection: (joints², samples). rows: (all columns, samples), samples a multiple of WIDTH.
    columns: of every joint, the same ones. scratch: (joints, WIDTH).
    """
    joints = starts.shape[0]
    for first in range(0, projection.shape[1], WIDTH):
        for c in range(columns):
            for u in range(joints):
                put(scratch, u, 0, take(rows, starts[u] + c, first))
            for v in range(joints):
                left = splat(0.0)
                for u in range(joints):
                    left = left + take(projection, v * joints + u, first) * take(scratch, u, 0)
                put(rows, starts[v] + c, first, left)
