"""A memory that fades, but only in the directions that new samples say something about.

Forgetting everything by a factor at every step, as plain recursive least squares does, empties the
memory while the robot stands still: the covariance grows by 1/λ a step and overflows after some
71,000 (λ = 0.99), and the parameters drift off on noise. Here forgetting keeps to the subspace of
information that was excited [Cao2000, Lai2024], in square-root form and block by block. With L the
triangle of a joint's rows, and E that of the last B of them (which are in L, too):

    E L⁻¹ = U diag(s) Vᵀ          s² ∈ [0, 1]: the share of what is known in each direction that the
    last B samples brought [L z] ← diag(√g) Vᵀ [L z]     g = λ^(B·min(1, s²/τ)),  τ = ½(1 − λᴮ)

B is half of the memory, but at least two rows per column, as fewer cannot show all directions. A
motion that goes on has s² = 1 − λᴮ in all directions, which are then forgotten by λ per sample, as
in the plain scheme: a memory of 1/(1 − λ) samples. A direction that nothing excites has s = 0 and
is not touched, ever; one that noise alone excites gains more than it loses. While the robot stands
still, the pose's own direction has s = 1 and settles at B/(1 − λᴮ) samples: bounded above and below
for any number of them. The torques' column goes along, so forgetting as such changes no parameter
(L x = z before, L x = z after); it does not depend on units; and no matrix is ever squared.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.model.robot import Robot
from thetahat.online.memory import Recursive

SPANS = 2  # rows per column: fewer cannot show which directions are excited
HIDDEN = 1e-10  # of a column's length: what keeps L⁻¹ finite in directions that nothing has shown


class Forgetting(Recursive):
    """One triangle per joint, which fades by `factor` per sample in the directions that are
    excited; 1: nothing fades.
    """

    def __init__(self, robot: Robot, size: int, *, factor: float) -> None:
        if not 0.0 < factor <= 1.0:
            raise UsageError(
                f"forgetting is {factor!r}; give the share that is left after one sample, above 0,"
                " at most 1 (1: nothing is forgotten)"
            )
        super().__init__(robot, size)
        self.factor = float(factor)
        half = (
            round(0.5 / (1.0 - factor)) if factor < 1.0 else 0
        )  # of the samples that are remembered
        self.blocks = np.array(
            [max(half, SPANS * len(own), 1) for own in self.stack.positions]
        )  # B of every joint
        self._recent = np.zeros_like(self._factors)
        self._rows = np.zeros(robot.nv, dtype=np.int64)  # in the block

    def clear(self) -> None:
        """Empty."""
        super().clear()
        self._recent[:], self._rows[:] = 0.0, 0

    def _fold(self, matrices: np.ndarray, valid: np.ndarray) -> None:
        super()._fold(matrices, valid)
        if self.factor == 1.0:
            return
        self.stack.kernel.fold_sample(
            matrices, 0, self.stack.starts, valid, self._recent, self._row
        )
        self._rows += valid
        if np.any(self._rows >= self.blocks):
            with f.blas_threads().limit(limits=1, user_api="blas"):
                for v in np.flatnonzero(self._rows >= self.blocks):
                    self._forget(v)

    def _forget(self, v: int) -> None:
        """Let a joint's old rows fade where its last block told something."""
        whole, recent, kept = (
            self._triangles()[v],
            self._triangles(self._recent)[v],
            self.factor ** self.blocks[v],
        )
        p = len(whole) - 1
        L, E = whole[:p, :p], recent[:p, :p]
        lengths = np.linalg.norm(L, axis=0)
        floor = HIDDEN * np.where(lengths > 0.0, lengths, 1.0)
        full = f.triangle(np.asfortranarray(np.vstack([L, np.diag(floor)])))
        both = solve_triangular(full, np.hstack([E.T, L.T]), trans="T", check_finite=False).T
        _, s, Vt = np.linalg.svd(both[:p] @ both[p:].T)  # E·L⁺, finite where L is short
        root = kept ** (0.5 * np.minimum(1.0, s**2 / (0.5 * (1.0 - kept))))
        whole[:p] = f.triangle(np.asfortranarray(root[:, None] * (Vt @ whole[:p])))[:p]
        whole[p, p] *= np.sqrt(kept)
        recent[:], self._rows[v], self._weight[v] = 0.0, 0, kept * self._weight[v]
