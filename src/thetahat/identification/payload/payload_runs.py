"""Payloads of several runs at once: one least-squares problem in which the robot is the same.

    u_r = Y_r·(x + E·θ_k) + noise        run r holds payload k, or none

Each run comes in units of its noise. What is known of the robot beforehand is a run of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.errors import NotIdentifiable
from thetahat.identification import factor as f
from thetahat.identification.identifiability.base_parameters import BaseParameters
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.payload.drive_gains import HeldPayload
from thetahat.identification.payload.payload_body import (
    HELD,
    PayloadBox,
    fit_payload,
    typical_mass,
)
from thetahat.identification.payload.payload_difference import with_misfit
from thetahat.identification.payload.payload_evidence import Evidence, Run, eliminated
from thetahat.identification.payload.payload_result import Payload
from thetahat.model.parameters import SIZE

WIDEST = 0.5  # error of the torques' scale that is counted at most


@dataclass(frozen=True, eq=False)
class WhitenedRun:
    """A run in units of its noise, and the payload that was held in it."""

    run: Run
    payload: int | None  # position among the payloads; None: nothing was held


@dataclass(frozen=True, eq=False)
class Stacked:
    """All runs below each other: rows·(x, θ_1 … θ_K) − right."""

    runs: tuple[WhitenedRun, ...]
    rows: np.ndarray  # (rows, p + 10 K)
    right: np.ndarray

    @staticmethod
    def of(
        base: BaseParameters, runs: Sequence[WhitenedRun], payloads: Sequence[HeldPayload]
    ) -> Stacked:
        """Stack runs; base parameters are those of the robot without a payload."""
        parts = []
        for each in runs:
            A = each.run.rows
            part = np.zeros((len(A), len(base) + SIZE * len(payloads)))
            part[:, : len(base)] = A
            if each.payload is not None:
                place, at = payloads[each.payload].place, len(base) + SIZE * each.payload
                part[:, at : at + SIZE] = A @ (base.map[:, place.span] @ place.to_body)
            parts.append(part)
        right = np.concatenate([each.run.right for each in runs])
        return Stacked(tuple(runs), np.vstack(parts), right)

    def evidence(self, payload: int) -> Evidence:
        """Return what the runs say of one payload, all else eliminated."""
        first = self.rows.shape[1] - SIZE * self._count
        ten = slice(first + SIZE * payload, first + SIZE * (payload + 1))
        shared = np.delete(self.rows, ten, axis=1)
        runs = tuple(each.run for each in self.runs)
        return eliminated(shared, self.rows[:, ten], self.right, runs=runs)

    def robot(self, theta: np.ndarray) -> np.ndarray:
        """Return the base parameters of the robot with these payloads, (payloads, 10) → (p,)."""
        p = self.rows.shape[1] - theta.size
        A, left = self.rows[:, :p], self.right - self.rows[:, p:] @ theta.ravel()
        norms = np.linalg.norm(A, axis=0)
        scale = np.where(norms > 0.0, norms, 1.0)
        return np.asarray(np.linalg.lstsq(A / scale, left, rcond=f.RANK)[0] / scale)

    @property
    def _count(self) -> int:
        held = [each.payload for each in self.runs if each.payload is not None]
        return max(held) + 1 if held else 0


def payload_of(
    evidence: Evidence,
    held: HeldPayload,
    information: Information,
    *,
    box: PayloadBox | None,
    scale_error: float,
) -> Payload:
    """Return the payload that fits best, with standard deviations that know of the misfit and of
    the torques' scale.
    """
    size = HELD if box is None else box.size
    typical = typical_mass(information.robot)
    try:
        payload = fit_payload(evidence, held.place, typical=typical, size=size, box=box)
    except np.linalg.LinAlgError:
        raise NotIdentifiable(
            f"the runs say nothing of a payload on {held.place.link!r} that can be computed; check"
            " their units, and move the joints that carry it"
        ) from None
    payload = with_misfit(
        payload,
        evidence,
        f"the runs differ by more than a payload on {held.place.link!r} explains",
        "record both with the same warm robot, name another link, or find the drives' gains",
    )
    fit = payload.fit.with_scale_error(payload.theta, scale_error)
    return replace(payload, fit=fit)


def scale_error(information: Information, x_base: np.ndarray) -> float:
    """Return by how much the bodies' torques of a fit are larger or smaller than the robot file's,
    as a fraction of them.

    A log cannot show its own scale: with every torque 10 % too small, every mass is. The robot
    file's masses are the only other witness, so the scale counts as known as well as they agree.
    """
    columns, base = Columns(information.robot), information.base
    stated = base.map[:, : columns.inertial] @ columns.x0[: columns.inertial]
    bodies = np.where(base.independent < columns.inertial, x_base, 0.0)
    dot = square = 0.0
    for positions, R in zip(information.positions, information.factors, strict=True):
        file, fitted = R[:, :-1] @ stated[positions], R[:, :-1] @ bodies[positions]
        dot, square = dot + float(file @ fitted), square + float(file @ file)
    return min(abs(dot / square - 1.0), WIDEST) if square > 0.0 else WIDEST
