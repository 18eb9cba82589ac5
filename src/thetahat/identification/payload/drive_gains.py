"""Drive gains: how many N·m one unit of a joint's logged torque or current is, from known payloads.

    u_j = s_j · Y_j·(x + E·θ_p) + noise,    gain k_j = 1/s_j: torque = k_j · logged

With s unknown, x, θ_p and 1/s may all be multiplied by one factor: nothing fixes the scale, unless
a payload's mass is known. Then every joint that feels it has its own scale. The noise is that of
the logged signal, so the gain stands beside the model and not beside the measurement, where its
noise would bias it. Gauss–Newton on the joints' triangular factors; no row of a log is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.errors import NotIdentifiable
from thetahat.identification import factor as f
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.payload.payload_evidence import Evidence, Run, eliminated
from thetahat.identification.payload.payload_place import PayloadPlace
from thetahat.model.parameters import SIZE, M

WEIGHED = 1e-3  # of a known mass: how well a scale weighs it
# standard deviation of log gain before anything is known: within a factor of e of what the robot
# file suggests
UNKNOWN = 1.0
KNOWN = 0.1  # standard deviation of log gain above which a gain is not told
ROUNDS, SETTLED = 60, 1e-9  # of Gauss–Newton; change of log gain at which it ends


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """The information of a run, which payload was held in it, and its noise's correlation."""

    information: Information
    payload: int | None  # position among the payloads; None: nothing was held
    inflation: np.ndarray  # (nv,) factors on the standard deviation of independent rows


@dataclass(frozen=True, eq=False)
class HeldPayload:
    """What is asked about one payload."""

    place: PayloadPlace
    mass: float | None = None  # [kg] where it is known


@dataclass(frozen=True, eq=False)
class GainFit:
    """Gains of every joint, and what is left for the payloads with the gains unknown."""

    gains: np.ndarray  # (nv,) torque per unit of the logged signal
    std: np.ma.MaskedArray  # (nv,) masked where the motion does not tell the gain
    x_base: np.ndarray  # (p,) of the robot without a payload
    theta: np.ndarray  # (payloads, 10)
    evidence: tuple[Evidence, ...]  # of every payload
    misfit: float  # χ² per degree of freedom


@dataclass(frozen=True, eq=False)
class _Block:
    """One joint's rows of one run, in units of their noise."""

    joint: int
    payload: int | None
    rows: np.ndarray  # (c, p)
    right: np.ndarray  # (c,)


def fit_gains(runs: Sequence[LoadedRun], payloads: Sequence[HeldPayload]) -> GainFit:
    """Fit the robot, its payloads and the gain of every joint to all runs at once.

    At least one payload has a known mass, and is held in a run.
    """
    weighed = [
        k for k, each in enumerate(payloads) if each.mass and any(r.payload == k for r in runs)
    ]
    if not weighed:
        raise NotIdentifiable(
            "nothing fixes the scale of the torques: gains, masses and friction may all be"
            " multiplied by one factor; weigh a payload, record it, and give --known-mass KG"
        )
    with f.blas_threads().limit(limits=1, user_api="blas"):
        problem = _Problem.of(runs, payloads)
        y, log_s = problem.solve()
        J, error = problem.linearised(y, log_s)
        return _result(problem, y, log_s, np.column_stack([J, error]))


@dataclass(frozen=True, eq=False)
class _Problem:
    blocks: tuple[_Block, ...]
    carried: tuple[np.ndarray, ...]  # (p, 10) base parameters of each payload
    payloads: tuple[HeldPayload, ...]
    start: np.ndarray  # (nv,) log s by the robot file
    p: int

    @staticmethod
    def of(runs: Sequence[LoadedRun], payloads: Sequence[HeldPayload]) -> _Problem:
        """Collect the joints' factors, each in units of what its own fit leaves."""
        first = runs[0].information
        blocks = [block for run in runs for block in _blocks(run)]
        carried = tuple(
            first.base.map[:, each.place.span] @ each.place.to_body for each in payloads
        )
        start = _scale_by_file(first, [b for b in blocks if b.payload is None] or blocks)
        return _Problem(tuple(blocks), carried, tuple(payloads), start, len(first.base))

    def linearised(self, y: np.ndarray, log_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(J, error) of all rows by (x, θ_1 … θ_K, log s), known masses and gains' prior below."""
        size = self.p + SIZE * len(self.carried)
        nv = len(log_s)
        x, theta = y[: self.p], y[self.p :].reshape(-1, SIZE)
        parts, errors = [], []
        for block in self.blocks:
            own = (
                x
                if block.payload is None
                else x + self.carried[block.payload] @ theta[block.payload]
            )
            s = np.exp(log_s[block.joint])
            J = np.zeros((len(block.rows), size + nv))
            J[:, : self.p] = s * block.rows
            if block.payload is not None:
                at = self.p + SIZE * block.payload
                J[:, at : at + SIZE] = s * block.rows @ self.carried[block.payload]
            J[:, size + block.joint] = s * (block.rows @ own)
            parts.append(J)
            errors.append(block.right - J[:, size + block.joint])
        known = [k for k, each in enumerate(self.payloads) if each.mass]
        stated = np.zeros((len(known) + nv, size + nv))
        wrong = np.zeros(len(stated))
        for row, k in enumerate(known):
            mass = self.payloads[k].mass or 1.0
            stated[row, self.p + SIZE * k + M] = 1.0 / (WEIGHED * mass)
            wrong[row] = (mass - theta[k, M]) / (WEIGHED * mass)
        stated[len(known) :, size:] = np.eye(nv) / UNKNOWN
        wrong[len(known) :] = (self.start - log_s) / UNKNOWN
        return np.vstack([*parts, stated]), np.concatenate([*errors, wrong])

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        """Gauss–Newton with halved steps from the gains that the robot file suggests."""
        size = self.p + SIZE * len(self.carried)
        y, log_s = np.zeros(size), self.start.copy()
        J, error = self.linearised(y, log_s)
        y = y + _least_squares(J[:, :size], error)
        J, error = self.linearised(y, log_s)
        for _ in range(ROUNDS):
            step = _least_squares(J, error)
            length = 1.0
            while True:
                moved = self.linearised(y + length * step[:size], log_s + length * step[size:])
                if moved[1] @ moved[1] <= error @ error or length < 1e-6:
                    break
                length *= 0.5
            y, log_s = y + length * step[:size], log_s + length * step[size:]
            J, error = moved
            if np.max(np.abs(length * step[size:])) < SETTLED:
                break
        return y, log_s


def _blocks(run: LoadedRun) -> list[_Block]:
    """The rows of a run joint by joint; the noise is what each joint's own fit leaves."""
    information, out = run.information, []
    for v, (positions, R) in enumerate(
        zip(information.positions, information.factors, strict=True)
    ):
        spare = int(information.rows[v]) - len(positions)
        if spare <= 0:
            continue
        rms = np.linalg.norm(R[:, -1]) / np.sqrt(information.rows[v])
        noise = max(abs(R[-1, -1]) / np.sqrt(spare), 1e-6 * rms) or 1.0
        rows = np.zeros((len(R) - 1, len(information.base)))
        rows[:, positions] = R[:-1, :-1]
        weight = 1.0 / (noise * run.inflation[v])
        out.append(_Block(v, run.payload, weight * rows, weight * R[:-1, -1]))
    return out


def _scale_by_file(information: Information, blocks: Sequence[_Block]) -> np.ndarray:
    """log s of every joint by which the robot file's bodies fit best, friction left free, (nv,)."""
    columns, base = Columns(information.robot), information.base
    x = base.map @ np.concatenate(
        [columns.x0[: columns.inertial], np.zeros(columns.count - columns.inertial)]
    )
    drive = base.independent >= columns.inertial
    out = np.full(len(information.rows), np.nan)
    for v in range(len(out)):
        mine = [block for block in blocks if block.joint == v]
        if not mine:
            continue
        rows = np.vstack([block.rows for block in mine])
        A = np.column_stack([rows @ x, rows[:, drive & np.any(rows, axis=0)]])
        scale = _least_squares(A, np.concatenate([block.right for block in mine]))[0]
        if np.isfinite(scale) and scale > 0.0:
            out[v] = np.log(scale)
    usual = np.nanmedian(out) if np.any(np.isfinite(out)) else 0.0
    return np.where(np.isfinite(out), out, usual)


def _least_squares(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Least squares with scaled columns, of least norm in them where columns depend."""
    norms = np.linalg.norm(A, axis=0)
    scale = np.where(norms > 0.0, norms, 1.0)
    return np.asarray(np.linalg.lstsq(A / scale, b, rcond=f.RANK)[0] / scale)


def _result(problem: _Problem, y: np.ndarray, log_s: np.ndarray, rows: np.ndarray) -> GainFit:
    """Standard deviations from the linearised problem, and each payload's own evidence."""
    J, error = rows[:, :-1], rows[:, -1]
    size, nv = len(y), len(log_s)
    norms = np.linalg.norm(J, axis=0)
    scale = np.where(norms > 0.0, norms, 1.0)
    _, s, Vt = np.linalg.svd(J / scale, full_matrices=False)
    rank = int(np.sum(s > f.RANK * s[0]))
    inverse = (Vt[:rank].T / s[:rank]) / scale[:, None]
    freedom = max(len(error) - rank, 1)
    misfit = float(error @ error) / freedom
    spread = np.linalg.norm(inverse[size:], axis=1) * np.sqrt(max(misfit, 1.0))
    felt = np.isin(np.arange(nv), [block.joint for block in problem.blocks])
    told = felt & (spread <= KNOWN)
    if not np.any(told):
        raise NotIdentifiable(
            "the known payload hardly shows in the torques, so it fixes no gain (the best is known"
            f" to ±{100.0 * float(np.min(spread[felt], initial=np.inf)):.0f} %); hold a heavier"
            " one, further out, and move it"
        )
    gains = np.exp(-log_s)
    # the linear problem that has this solution: right side = error + J·(y, 0)
    right = error + J[:, :size] @ y
    evidence = []
    for k in range(len(problem.carried)):
        ten = slice(problem.p + SIZE * k, problem.p + SIZE * (k + 1))
        others = np.delete(J, ten, axis=1)
        run = Run(J, right, 0.0, len(right))
        evidence.append(eliminated(others, J[:, ten], right, runs=(run,)))
    return GainFit(
        gains,
        np.ma.masked_array(gains * spread, mask=~told),
        y[: problem.p],
        y[problem.p :].reshape(-1, SIZE),
        tuple(evidence),
        misfit,
    )
