"""A buffer of fixed size that keeps the samples which say most, fed one sample at a time.

With A_i the weighted base regressor of sample i and P = (Σ A_iᵀA_i + ridge)⁻¹, a new sample adds
log det(I + A P Aᵀ) to the log-determinant of the information, and taking sample i out again costs
−log det(I − A_i P A_iᵀ). The new one takes the place of the one that costs least, if that costs
less. P and every A_i P A_iᵀ follow by rank-nv updates and are made anew now and then.

D-optimality alone collects outliers. So a sample that the buffer's own fit cannot explain is turned
away, and one that got in early is the first to go once the others know better. If too many are
turned away, either one fit explains them and what is held: then it was new ground, and the guard
opens for a while; or none does: then the robot has changed, and all that is held is old and goes
first.

Push samples that differ, a few per period of the low-pass that made them: neighbours at 1 kHz
repeat each other's errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from thetahat.data.samples import MASKED, USABLE, Samples
from thetahat.dynamics import batch, rigid_body
from thetahat.errors import NotIdentifiable, UsageError, check_count, is_whole
from thetahat.identification import factor as f
from thetahat.identification.identifiability.base_parameters import base_parameters
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns
from thetahat.model.robot import Robot

# of the mean information per column: keeps P finite while directions are unseen, below what any log
# tells
RIDGE = 1e-7
# replacements between two times that P is made anew: rounding grows by less than 1e-9 meanwhile
REFRESH = 64
# a new sample must add this much more than is lost (log-determinant), or equals would chase each
# other
MARGIN = 1e-3
OUTLIER = 6.0  # robust standard deviations, of residual and fit together
# samples turned away beyond TOLERATED before the guard asks whether it is the robot that has
# changed
PATIENCE = 25
# share of samples turned away that is a matter of course: friction at reversal, contacts
TOLERATED = 0.2
SUSPECTS = 0.1  # share of the buffer that may be marked old at once for not fitting the rest
NORMAL = 1.4826  # standard deviation of a normal variable over its median absolute value
# of a joint's RMS torque: models of real robots err by this much everywhere, so it makes no outlier
NOISE = 1e-2
# how much the guard's idea of a usual prediction error may grow or shrink with one sample
ADAPT = 0.05
# what others hold of a direction, below which taking a sample out by an update would lose too many
# digits
ALONE = 1e-6
PRICELESS = 1e9  # log-determinant that a sample costs which alone shows a direction
TINY = 1e-150
SPARE = 2.0  # rows per base parameter from which the buffer's own fit may judge others


@dataclass
class Counts:
    """What became of the samples pushed."""

    pushed: int = 0
    kept: int = 0
    redundant: int = 0  # said nothing new
    outliers: int = 0  # turned away by the guard
    refused: int = 0  # not finite
    changes: int = 0  # times the robot was taken to have changed


class InformativeBuffer:
    """At most `size` samples of a robot's motion, those that tell most about its parameters.

    Args:
        robot: with the drive terms to identify.
        size: samples held, from (base parameters / degrees of freedom); the guard against outliers
            needs twice that.
        outlier: residuals, in robust standard deviations, from which a sample is turned away;
            infinite for no guard.
        patience: how many samples may be turned away in a row before the guard opens, or the robot
            counts as changed (a payload taken up).

    """

    def __init__(
        self, robot: Robot, size: int, *, outlier: float = OUTLIER, patience: int = PATIENCE
    ) -> None:
        self.robot, self._base, self._columns = robot, base_parameters(robot).strong, Columns(robot)
        nv, p = robot.nv, len(self._base)
        if not p:
            raise NotIdentifiable(
                f"no motion shows any parameter of robot {robot.name!r}, so no sample is"
                " informative"
            )
        least = max(-(-p // max(nv, 1)), 1)
        if not is_whole(size, least):
            raise UsageError(
                f"size is {size!r}; give at least {least} samples: {p} base parameters over {nv}"
                " degrees of freedom"
            )
        if not outlier > 0.0:
            raise UsageError(
                f"outlier is {outlier!r}; give a number of standard deviations above 0, or infinity"
                " for no guard"
            )
        check_count("patience", patience)
        self.size, self.outlier, self.patience = int(size), float(outlier), int(patience)
        self.counts = Counts()
        self._scale = 1.0 / self._base.scale[self._base.independent]
        # samples held, rejections on record, replacements since P was made
        self._n, self._unrest, self._since = (0, 0.0, 0)
        # q, dq, ddq, tau
        self._state = [np.zeros((size, width)) for width in (robot.nq, nv, nv, nv)]
        self._valid = np.ones((size, nv), dtype=bool)
        self._arrival = np.zeros(size, dtype=np.int64)
        self._old = np.zeros(size, dtype=bool)  # to be replaced first
        self._A, self._b = np.zeros((size, nv, p)), np.zeros((size, nv))  # weighted, columns scaled
        self._H = np.zeros((size, nv, nv))  # A_i P A_iᵀ
        self._P, self._Ab, self._ridge = np.zeros((p, p)), np.zeros(p), 0.0
        self._weights = np.ones(nv)  # 1/σ_j of the buffer's fit
        self._strange_A = np.zeros((self.patience, nv, p))  # turned away last
        self._strange_b = np.zeros((self.patience, nv))
        self._open = 0  # samples for which the guard stands open
        self._usual = np.ones(nv)  # running median of prediction errors over σ_j, at least 1

    def __len__(self) -> int:
        return self._n

    @property
    def full(self) -> bool:
        """Whether a new sample must take another's place."""
        return self._n == self.size

    @property
    def guarded(self) -> bool:
        """Whether the buffer's fit is good enough to turn samples away."""
        spare = np.count_nonzero(self._valid[: self._n]) >= SPARE * len(self._base)
        few_old = np.sum(self._old) <= SUSPECTS * self.size
        return bool(self.full and spare and np.isfinite(self.outlier) and few_old)

    @property
    def samples(self) -> Samples:
        """What is held, in the order it came."""
        order = np.argsort(self._arrival[: self._n], kind="stable")
        q, dq, ddq, tau = (array[: self._n][order] for array in self._state)
        reason = np.where(self._valid[: self._n][order], np.uint8(USABLE), np.uint8(MASKED))
        return Samples(q=q, dq=dq, ddq=ddq, tau=tau, reason=reason if np.any(reason) else None)

    def information(self) -> Information:
        """The information of what is held."""
        return information(self.robot, self.samples, threads=1)

    @property
    def x_base(self) -> np.ndarray:
        """The buffer's own fit of the strong base parameters, (p,), zero where not seen."""
        return np.asarray(self._scale * (self._P @ self._Ab))

    @property
    def log_det(self) -> float:
        """Log-determinant of the information held, rows over their noise; −∞ when empty."""
        return -float(np.linalg.slogdet(self._P)[1]) if self._n else -np.inf

    def forget(self) -> None:
        """Say that the robot has changed (a payload taken up): what is held goes first, one for
        every new sample, so that rank is kept meanwhile.
        """
        self.counts.changes += 1
        self._old[: self._n] = True

    # -- pushing -----------------------------------------------------------------------------------

    def push(
        self,
        q: np.ndarray,
        dq: np.ndarray,
        ddq: np.ndarray,
        tau: np.ndarray,
        *,
        valid: np.ndarray | None = None,
    ) -> bool:
        """Offer one sample; whether it was kept. NaN and infinity are refused and counted.

        valid: (nv,) which torques may be used; a joint at standstill, whose friction is unknown,
            may not.
        """
        self.counts.pushed += 1
        state = self._checked(q, dq, ddq, tau)
        if state is None:
            self.counts.refused += 1
            return False
        usable = np.asarray(np.ones(self.robot.nv) if valid is None else valid, dtype=bool)
        if usable.shape != (self.robot.nv,):
            raise UsageError(
                f"valid has shape {usable.shape}; expected ({self.robot.nv},), one entry per degree"
                " of freedom"
            )
        if not np.any(usable):
            self.counts.redundant += 1
            return False
        # small matrices: BLAS's threads cost more than they gain
        with f.blas_threads().limit(limits=1, user_api="blas"):
            return self._offer(state, usable)

    def _offer(self, state: list[np.ndarray], usable: np.ndarray) -> bool:
        """Keep the sample or not."""
        weights = self._weights * usable
        with np.errstate(over="ignore", invalid="ignore"):
            A, b = weights[:, None] * self._rows(*state[:3]), weights * state[3]
            if not self._n:
                self._start(A)
            T = A @ self._P
            S = np.eye(len(A)) + T @ A.T
        if not (np.isfinite(S).all() and np.isfinite(b).all()):  # finite numbers, but far too large
            self.counts.refused += 1
            return False
        if self._open:
            self._open -= 1
        elif self.guarded and self._is_outlier(T, A, b):
            return False
        L = np.linalg.cholesky(S)
        half, after = self._across(T, L)
        after = self._H - after
        slot, replaces = self._n, self.full
        if replaces:
            slot = self._least(after, gain=2.0 * float(np.sum(np.log(np.diag(L)))))
            if slot < 0:
                self.counts.redundant += 1
                return False
        self._P -= half.T @ half
        self._H = after
        safe = self._remove(slot) if replaces else True
        self._put(slot, state, usable, A, b)
        if not safe:
            self._factor()
        if self.full and not replaces:
            # weights come from a fit and a fit from weights: once more, and it may judge others
            self._refresh()
            self._refresh()
        elif self._since >= REFRESH:
            self._refresh()
        return True

    def _checked(self, *arrays: np.ndarray) -> list[np.ndarray] | None:
        """The sample as doubles, or None where it is not finite."""
        out = []
        for name, array, held in zip(("q", "dq", "ddq", "tau"), arrays, self._state, strict=True):
            try:
                array = np.array(array, dtype=float)
            except (TypeError, ValueError):
                raise UsageError(
                    f"{name} is not an array of numbers; give ({held.shape[1]},), one sample"
                ) from None
            if array.shape != held.shape[1:]:
                raise UsageError(
                    f"{name} has shape {array.shape}; expected {held.shape[1:]}, one sample of"
                    f" robot {self.robot.name!r}"
                )
            out.append(array)
        if not all(np.isfinite(array).all() for array in out):
            return None
        batch.check_state(self.robot, *out[:3])  # quaternions
        return out

    def _rows(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """The sample's base regressor with columns scaled, (nv, p)."""
        inertial = rigid_body.regressor(self.robot, q, dq, ddq)
        Y = np.concatenate([inertial, self._columns.drive.columns(dq, ddq, q=q)], axis=-1)
        return np.asarray(Y[:, self._base.independent] * self._scale)

    def _start(self, A: np.ndarray) -> None:
        """The first sample says how large rows are."""
        self._ridge = RIDGE * max(float(np.sum(A * A)) / len(self._P), TINY)
        self._P = np.eye(len(self._P)) / self._ridge

    def _is_outlier(self, T: np.ndarray, A: np.ndarray, b: np.ndarray) -> bool:
        """Whether the buffer's fit cannot explain the sample; keeps record of it."""
        # over noise and the fit's own uncertainty there
        error = np.abs(b - T @ self._Ab) / np.sqrt(1.0 + np.sum(T * A, axis=1))
        strange = bool(np.any(error > self.outlier * self._usual))
        # A median moves by steps, however far off one error is; errors that last move it as far as
        # they need, so nothing is locked out for ever.
        self._usual = np.maximum(
            self._usual * np.exp(ADAPT * np.sign(NORMAL * error - self._usual)), 1.0
        )
        if not strange:
            self._unrest = max(self._unrest - TOLERATED / (1.0 - TOLERATED), 0.0)
            return False
        at = self.counts.outliers % self.patience
        self._strange_A[at], self._strange_b[at] = A, b
        self._unrest += 1.0
        self.counts.outliers += 1
        if self._unrest >= self.patience:
            self._unrest, self._open = 0.0, self.patience
            if self._changed():
                self.forget()
        return True

    def _changed(self) -> bool:
        """Whether no one fit explains both what is held and what was turned away last; otherwise
        that was merely new ground.
        """
        A, b = self._strange_A.reshape(-1, len(self._P)), self._strange_b.ravel()
        S = np.eye(len(b)) + A @ self._P @ A.T
        # Residuals of the common fit over what they have by chance: r = S⁻¹(b − A x), of covariance
        # S⁻¹.
        inverse = np.linalg.inv(S)
        residual = np.abs(inverse @ (b - A @ (self._P @ self._Ab))) / np.sqrt(np.diag(inverse))
        worst = np.max(residual.reshape(self._strange_b.shape) / self._usual, axis=1)
        return bool(np.median(worst) > self.outlier)

    def _across(self, T: np.ndarray, L: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(L⁻¹T, A_i Tᵀ(L Lᵀ)⁻¹T A_iᵀ of every sample held): what a sample put in or taken out does
        to P and H.
        """
        half = np.linalg.solve(L, T)
        W = (self._A.reshape(-1, T.shape[1]) @ half.T).reshape(self._H.shape)
        return half, W @ W.transpose(0, 2, 1)

    def _least(self, after: np.ndarray, *, gain: float) -> int:
        """The sample whose place the new one takes; −1 where the new one says less than any."""
        losses = -np.linalg.slogdet(np.eye(after.shape[1]) - after)[1]
        losses = np.where(np.isfinite(losses), losses, PRICELESS)
        if np.any(self._old):
            return int(np.argmin(np.where(self._old, losses, np.inf)))
        slot = int(np.argmin(losses))
        return slot if losses[slot] + MARGIN < gain else -1

    # -- updates -----------------------------------------------------------------------------------

    def _remove(self, slot: int) -> bool:
        """P and H without this sample; False where it alone showed a direction."""
        A = self._A[slot]
        T = A @ self._P
        S = np.eye(len(A)) - T @ A.T
        self._Ab -= A.T @ self._b[slot]
        if np.linalg.eigvalsh(S)[0] < ALONE:
            return False
        half, back = self._across(T, np.linalg.cholesky(S))
        self._P += half.T @ half
        self._H += back
        return True

    def _put(
        self, slot: int, state: list[np.ndarray], usable: np.ndarray, A: np.ndarray, b: np.ndarray
    ) -> None:
        """The sample in its slot; P has it already."""
        for held, value in zip(self._state, state, strict=True):
            held[slot] = value
        self._A[slot], self._b[slot], self._valid[slot], self._old[slot] = A, b, usable, False
        self._Ab += A.T @ b
        self._P = 0.5 * (self._P + self._P.T)
        self._H[slot] = A @ self._P @ A.T
        self._arrival[slot] = self.counts.pushed
        self._n = max(self._n, slot + 1)
        self._since += 1
        self.counts.kept += 1

    def _refresh(self) -> None:
        """Update the noise, samples that do not fit the others, and P from what is held."""
        if self.full:
            self._weigh()
        self._ridge = RIDGE * max(float(np.sum(self._A**2)) / len(self._P), TINY)
        self._factor()
        self._since = 0

    def _weigh(self) -> None:
        """σ_j from the median residual, and which samples to let go of."""
        # what of a residual the sample did not fit away itself
        left = np.sqrt(np.maximum(1.0 - np.einsum("njj->nj", self._H), 1e-6))
        error = np.abs(self._b - self._A @ (self._P @ self._Ab))
        residual = np.where(self._valid, error / left, np.inf)
        rows = np.sum(self._valid, axis=0)
        count = np.maximum(rows, 1)
        middle = (count[None] - 1) // 2
        median = np.take_along_axis(np.sort(residual, axis=0), middle, axis=0)[0]
        torque = np.sqrt(np.sum(np.where(self._valid, self._b, 0.0) ** 2, axis=0) / count)
        sigma = np.maximum(NORMAL * np.where(rows > 0, median, 1.0), NOISE * torque)
        sigma[sigma <= 0.0] = 1.0
        self._weights /= sigma
        self._strange_A /= sigma[:, None]
        self._strange_b /= sigma
        self._usual = np.maximum(self._usual / sigma, 1.0)
        self._A /= sigma[:, None]
        self._b /= sigma
        enough = np.sum(rows) >= SPARE * len(self._P)
        if enough and np.isfinite(self.outlier) and not np.any(self._old):
            worst = np.max(np.where(self._valid, residual / sigma, 0.0), axis=1)
            suspects = np.argsort(-worst)[: int(SUSPECTS * self.size)]
            self._old[suspects] = worst[suspects] > self.outlier

    def _factor(self) -> None:
        """P = (AᵀA + ridge)⁻¹ and H from the samples held."""
        rows = self._A.reshape(-1, len(self._P))
        gram = rows.T @ rows
        gram[np.diag_indices_from(gram)] += self._ridge
        inverse, _ = lapack.dpotri(lapack.dpotrf(gram)[0])
        self._P = np.triu(inverse) + np.triu(inverse, 1).T
        self._Ab = rows.T @ self._b.ravel()
        self._H = (rows @ self._P).reshape(self._A.shape) @ self._A.transpose(0, 2, 1)
