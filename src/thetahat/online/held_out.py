"""Samples that are in no fit: a ring of the last ones, and how well a model predicts them.

Between two updates several samples are taken that never join the memory. A model is scored on all
of them that are in the ring; and before an update they are predicted by the model of the update
before ("ahead"), which no fit can flatter.
"""

from __future__ import annotations

import numpy as np

from thetahat.data.samples import STANDSTILL, USABLE, Samples
from thetahat.model.floating_base import base_dofs
from thetahat.model.robot import Robot
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.gate_evidence import NominalSums, Score
from thetahat.online.model_change import is_light
from thetahat.online.predict import Model

LATELY = 3  # updates whose samples are the newest
# updates by which a model must be older than the samples that it predicts well: 2 s at 3 Hz
LATER = 6
SIGMA = 1.4826  # standard deviations of normal errors in their median size
# times what the median of the errors tells, at most, is their usual size: friction has heavy tails
HEAVY = 3.0
FEW = 10  # held-out rows of a joint, below which its usual error is not known
# times the dry friction that a joint at rest may hold back: before it breaks away a gear takes up
# to three times what it takes sliding
AT_REST = 3.0
UNTRIED = 0.1  # of what a still joint carries: its usual error then
LEAST = 1e-3  # of the torques: no model counts as better than that


class HeldOut:
    """The last ticks × per_tick samples.

    rigid, whole: the nominal robot without its friction and with it.
    """

    def __init__(
        self, robot: Robot, *, ticks: int, per_tick: int, rigid: Model, whole: Model
    ) -> None:
        self._robot, self._rigid, self._whole = robot, rigid, whole
        self._floating = bool(base_dofs(robot))
        self._size, self._per_tick = ticks * per_tick, per_tick
        # (2, samples, nv) torques of both, of the samples before `_told`
        self._nominal, self._told = np.zeros((2, self._size, robot.nv)), 0
        widths = (robot.nq, robot.nv, robot.nv, robot.nv)
        self._arrays = FilteredSample(*(np.zeros((self._size, width)) for width in widths))
        self._valid = np.zeros((self._size, robot.nv), dtype=bool)
        self._count, self._fresh = 0, 0  # taken in all; since the last update
        self._ahead = np.zeros((ticks, 2))  # e'e and u'u of every update's samples
        self._tick = 0
        self._pending = np.zeros(2)
        # (updates, nv) rows and squared errors of every update's samples by an older model
        self._later = np.zeros((2, LATER, robot.nv))

    def add(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """Take one sample; valid: (nv,) which torques count."""
        at = self._count % self._size
        for array, value in zip(self._arrays, sample, strict=True):
            array[at] = value[0]
        self._valid[at] = valid
        self._count += 1
        self._fresh = min(self._fresh + 1, self._size)

    def clear(self) -> None:
        """Empty."""
        self._count = self._fresh = self._told = 0
        self._ahead[:], self._pending[:], self._later[:] = 0.0, 0.0, 0.0
        self._valid[:] = False

    def __len__(self) -> int:
        return min(self._count, self._size)

    @property
    def moving(self) -> np.ndarray:
        """(nv,) whether each joint's torque counts in any sample of the ring."""
        return np.asarray(np.any(self._valid[: len(self)], axis=0))

    def _order(self, last: int | None = None) -> np.ndarray:
        n = len(self) if last is None else min(last, len(self))
        return (self._count - n + np.arange(n)) % self._size

    @property
    def samples(self) -> Samples:
        """What is in the ring, in the order it came; torques that do not count are marked."""
        order = self._order()
        q, dq, ddq, tau = (array[order] for array in self._arrays)
        reason = np.where(self._valid[order], np.uint8(USABLE), np.uint8(STANDSTILL))
        return Samples(q=q, dq=dq, ddq=ddq, tau=tau, reason=reason)

    def newest(self, count: int) -> tuple[FilteredSample, np.ndarray]:
        """The last samples, in the order they came, and (n, nv) which torques count."""
        order = self._order(count)
        sample = FilteredSample(*(np.ascontiguousarray(array[order]) for array in self._arrays))
        return sample, self._valid[order]

    def _nominal_torques(self) -> np.ndarray:
        """(2, n, nv) of all that is in the ring, each sample's computed once."""
        order = self._order(self._count - self._told)
        if len(order):
            q, dq, ddq, _ = (np.ascontiguousarray(array[order]) for array in self._arrays)
            for out, model in zip(self._nominal, (self._rigid, self._whole), strict=True):
                out[order] = model.torque(q, dq, ddq)
            self._told = self._count
        return self._nominal[:, : len(self)]

    def score(self, model: Model) -> Score | None:
        """How well a model predicts all that is in the ring, beside the nominal robot; None while
        it is empty.
        """
        n = len(self)
        if not n:
            return None
        q, dq, ddq, tau = (array[:n] for array in self._arrays)
        valid = self._valid[:n]
        with np.errstate(over="ignore", invalid="ignore"):
            rigid, whole = self._nominal_torques()
            error = tau - model.torque(q, dq, ddq)
            e2, u2, nominal2, cross, whole2, whole_cross = (
                np.sum(part, axis=0, where=valid)
                for part in (error**2, tau**2, rigid**2, tau * rigid, whole**2, tau * whole)
            )
            rows = np.count_nonzero(valid, axis=0)
            late2 = rows * self._late(error)
            size = np.sqrt(np.maximum(u2, nominal2) / np.maximum(rows, 1))
            light, beside = is_light(self._robot, size), NominalSums(whole2, whole_cross)
            cancelling = light & self._floating
            known = e2, u2, rows, nominal2, cross, _usual(error, valid), late2
            if np.all(rows == n):
                return Score(*known, whole=beside, light=light, cancelling=cancelling)
            excess = _beyond_friction(model, error, dq)
            still2, still_u2 = (np.sum(part, axis=0, where=~valid) for part in (excess**2, tau**2))
        return Score(
            *known, still2, still_u2, n - rows, whole=beside, light=light, cancelling=cancelling
        )

    def _late(self, error: np.ndarray) -> np.ndarray:
        """(nv,) mean square of errors (n, nv) over the newest samples."""
        newest = self._order(LATELY * self._per_tick)
        valid = self._valid[newest]
        rows = np.maximum(np.count_nonzero(valid, axis=0), self._per_tick)
        return np.asarray(np.sum(error[newest] ** 2, axis=0, where=valid) / rows)

    def predict(self, model: Model) -> None:
        """Predict the samples since the last update by the model from before it."""
        order = self._order(self._fresh)
        if len(order):
            q, dq, ddq, tau = (np.ascontiguousarray(array[order]) for array in self._arrays)
            valid = self._valid[order]
            with np.errstate(over="ignore", invalid="ignore"):
                error = tau - model.torque(q, dq, ddq)
                self._pending[:] = np.sum(error**2, where=valid), np.sum(tau**2, where=valid)

    def predict_later(self, model: Model | None) -> None:
        """Predict the same samples by a model that is LATER updates older; None: there is none."""
        order = self._order(self._fresh)
        self._later[:] = np.roll(self._later, 1, axis=1)
        self._later[:, 0] = 0.0
        if model is not None and len(order):
            q, dq, ddq, tau = (np.ascontiguousarray(array[order]) for array in self._arrays)
            valid = self._valid[order]
            self._later[0, 0] = np.count_nonzero(valid, axis=0)
            with np.errstate(over="ignore", invalid="ignore"):
                error = tau - model.torque(q, dq, ddq)
                self._later[1, 0] = np.sum(error**2, axis=0, where=valid)

    @property
    def later(self) -> np.ndarray:
        """(nv,) mean squared error of the last LATER updates' samples by models so much older; NaN
        where a joint has not moved, or models have not been there for so long.
        """
        rows, squares = np.sum(self._later, axis=1)
        whole = bool(np.all(np.any(self._later[0] > 0, axis=1)))
        return np.where((rows > 0) & whole, squares / np.maximum(rows, 1.0), np.nan)

    def tick(self) -> None:
        """An update is done."""
        self._ahead[self._tick % len(self._ahead)] = self._pending
        self._tick += 1
        self._pending[:], self._fresh = 0.0, 0

    @property
    def ahead(self) -> tuple[float, float]:
        """(e'e, u'u) of all that was predicted ahead over the ring's updates."""
        e2, u2 = np.sum(self._ahead, axis=0)
        return float(e2), float(u2)


def _usual(error: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """(nv,) σ of errors (n, nv) by their median."""
    sizes = (np.abs(e[v]) for e, v in zip(error.T, valid.T, strict=True))
    return np.array([SIGMA * np.median(size) if len(size) else 0.0 for size in sizes])


def _beyond_friction(model: Model, error: np.ndarray, dq: np.ndarray) -> np.ndarray:
    """(n, nv) by how much errors are more than dry friction: a joint that stands still may have any
    of that, but no other torque than what carries it.
    """
    held = AT_REST * model.dry() + (model.dry() - model.coulomb)
    return np.asarray(np.maximum(np.abs(error + model.coulomb * np.sign(dq)) - held, 0.0))


def usual_errors(score: Score, noise: np.ndarray) -> np.ndarray:
    """(nv,) [N·m or N] that a model in use leaves of the torques; noise: of the torques
    themselves.
    """
    rows = np.maximum(score.rows, 1)
    # Samples after a change are held out, too, before anyone knows of it: they must not pass for
    # what is usual.
    rms, size = np.minimum(np.sqrt(score.e2 / rows), HEAVY * score.usual), np.sqrt(score.u2 / rows)
    usual = np.maximum.reduce(
        [rms, noise, LEAST * size, np.full(len(rms), LEAST * float(np.max(size)))]
    )
    carried = np.sqrt(score.still_u2 / np.maximum(score.still_rows, 1))
    return np.where(score.rows < FEW, np.maximum(usual, UNTRIED * carried), usual)
