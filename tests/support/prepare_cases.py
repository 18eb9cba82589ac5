"""Logs made by hand, and motions with their exact derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.data.types import Chunk, Mask, Run

BATCH = 1e-12  # relative, of batches against the whole
NAMES = ("q", "dq", "ddq", "tau")


# -- a log made by hand, with the attributes of thetahat.data.log.Log ------------------------------


@dataclass(frozen=True)
class HandLog:
    whole: tuple[Chunk, ...]
    joint_names: tuple[str, ...]
    masks: tuple[Mask, ...] = ()
    locked: tuple[str, ...] = ()
    sources: tuple = (("run.csv", "00ff", 17),)
    piece: int = 65_536

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(
            Run(str(c.run), len(c.t), c.row, c.t[0], c.t[-1], float(np.median(np.diff(c.t))), 0.0)
            for c in self.whole
        )

    @property
    def rows(self) -> int:
        return self.whole[-1].row + len(self.whole[-1].t)

    has_dq = property(lambda self: self.whole[0].dq is not None)
    has_ddq = property(lambda self: self.whole[0].ddq is not None)
    has_tau = property(lambda self: self.whole[0].tau is not None)

    def read(self) -> list[Chunk]:
        return list(self.whole)

    def chunks(self, rows: int = 0) -> Iterator[Chunk]:
        rows = rows or self.piece
        for c in self.whole:
            for at in range(0, len(c.t), rows):
                yield c.part(at, at + rows)


def log_of(robot: th.Robot, *runs: dict, **more) -> HandLog:
    chunks, row = [], 0
    for number, run in enumerate(runs):
        chunks.append(
            Chunk(run["t"], run["q"], run.get("dq"), run.get("ddq"), run.get("tau"), number, row)
        )
        row += len(run["t"])
    return HandLog(tuple(chunks), robot.joint_names, **more)


def motion(robot: th.Robot, t: np.ndarray, *, seed: int = 0, top: float = 2.0) -> dict:
    """q, dq, ddq of sums of sines up to `top` Hz, and the torques of the robot for them."""
    rng = np.random.default_rng(seed)
    w, phase, size = (
        2 * np.pi * rng.uniform(0.1 * top, top, (5, robot.nv)),
        rng.uniform(0, 6, (5, robot.nv)),
        rng.uniform(0.05, 0.3, (5, robot.nv)),
    )
    angle = t[:, None, None] * w + phase
    q, dq, ddq = (
        (size * np.sin(angle)).sum(1),
        (size * w * np.cos(angle)).sum(1),
        (-size * w**2 * np.sin(angle)).sum(1),
    )
    return {"t": t, "q": q, "dq": dq, "ddq": ddq, "tau": th.inverse_dynamics(robot, q, dq, ddq)}


def measured(run: dict, *columns: str) -> dict:
    """Only these of the motion's columns, beside t, q and tau."""
    return {name: run[name] for name in ("t", "q", "tau", *columns)}


def even(n: int, period: float = 2e-3) -> np.ndarray:
    return np.arange(n) * period


def uneven(n: int, period: float = 2e-3, seed: int = 1) -> np.ndarray:
    steps = period * (1 + np.random.default_rng(seed).uniform(-0.4, 0.4, n - 1))
    steps[n // 3] *= 4.5  # a hole just short of a gap
    return np.concatenate([[0.0], np.cumsum(steps)])


def difference(a: Samples, b: Samples) -> float:
    return max(
        float(
            np.max(np.abs(getattr(a, name) - getattr(b, name)) / np.max(np.abs(getattr(a, name))))
        )
        for name in NAMES
    )
