"""Audit of what a fitted model leaves of the torques, run by run: contacts, another payload.

Both need a model, so they are looked for after the fit, from samples that pass by anyway. Kept are,
per run, the squares of the residuals in blocks of a quarter of a second, and the normal equations
of a mass at the last bodies: e ≈ Y_m·(m, m·c), e the residual [Atkeson1986]. Nothing grows with the
length of a log beyond a bound.

A contact: some short time in which the residuals of several joints are far above all that the same
run shows elsewhere, and above what a stronger motion explains. Another payload: a run whose
residual a mass at the last body explains, unlike that of most runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from thetahat.data.filters import decimation_factor
from thetahat.data.samples import Samples
from thetahat.data.types import Finding, Run
from thetahat.dynamics.rigid_body import inverse_dynamics
from thetahat.model.robot import Robot

BLOCK = 0.25  # [s]
MOST_BLOCKS = 8_192  # of a run; beyond, neighbours are put together
ENOUGH_BLOCKS = 24  # to know what is usual; shorter runs are compared with all others
USUAL = 0.8  # quantile of blocks that counts as usual: a contact may last a fifth of a run
ALIKE, ENOUGH_ALIKE = 0.5, 8  # of a block's acceleration: blocks to compare it with, and how many
FAR = 4.0  # times the usual residual
MOST, CLEAR = 0.95, 2.0  # quantile of all other blocks, and how far beyond it a contact must be
JOINTS = 2  # that must show it at once
PART = 0.1  # of the torque's standard deviation that a contact must add, and more than friction
LONGEST = 8.0  # [s] of a contact; what lasts longer is a model that does not fit
SHOWN = 3  # contacts of a run that are listed

LEAVES = 4  # last bodies that are looked at
SHORTEST = 3.0  # [s] of a run that can tell a mass
PRIOR = np.array([10.0, 2.0, 2.0, 2.0])  # [kg, kg·m] what a payload may be
SURE = 8.0  # standard deviations
EXPLAINED = 0.5  # of the run's residual that the mass takes away
LEAST_MASS, LEAST_PART = 0.15, 0.01  # [kg], of the robot's mass
PARAMETERS = (9, 7, 4, 3)  # m, m·cx, m·cy, m·cz among a body's ten


@dataclass(frozen=True)
class ResidualFindings:
    """Findings in what a fitted model leaves of the torques."""

    fit: tuple[Finding, ...] = ()
    test: tuple[Finding, ...] = ()


class ResidualAudit:
    """Collects residuals while samples stream by: `add` them, take the `findings`."""

    def __init__(self, identified: Robot) -> None:
        self._robot = identified
        self._leaves = last_bodies(identified)
        units = np.zeros((len(self._leaves), 4, identified.theta.size))
        for i, body in enumerate(self._leaves):
            for k, parameter in enumerate(PARAMETERS):
                units[i, k, 10 * body + parameter] = 1.0
        rigid = identified.without_drive()
        self._units = [[rigid.with_parameters(theta) for theta in each] for each in units]
        self._runs: dict[tuple[str, int], _Run] = {}

    def add(self, samples: Samples, part: str) -> None:
        """Add a batch of rows of the fitted log ("fit") or of another ("test")."""
        if samples.t is None or samples.run is None or not samples.period or not len(samples):
            return
        step = decimation_factor(samples.cutoff or 0.5 / samples.period, samples.period)
        thin = samples.subset(slice(0, None, step))
        if thin.run is None or thin.t is None:
            return
        residual, friction = self._residual(thin)
        columns = [
            np.stack([inverse_dynamics(unit, thin.q, thin.dq, thin.ddq) for unit in units], axis=-1)
            for units in self._units
        ]  # (n, nv, 4) each
        cutoff = samples.cutoff or 0.5 / samples.period
        independent = min(1.0, 2.0 * cutoff * step * samples.period)
        for run in np.unique(thin.run):
            rows = np.flatnonzero(thin.run == run)
            own = self._runs.setdefault((part, int(run)), _Run(len(columns), thin.nv))
            own.add(thin.subset(rows), residual[rows], [c[rows] for c in columns], independent)
            own.friction += np.sum(friction[rows] ** 2 * thin.scorable[rows], axis=0)

    def _residual(self, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """Return what the model leaves of the torques, and the friction it states, (n, nv)."""
        drive, q, dq = self._robot.drive, samples.q, samples.dq
        rigid = inverse_dynamics(self._robot, q, dq, samples.ddq, rigid=True)
        if drive.is_zero:
            return samples.tau - rigid, np.zeros_like(rigid)
        direction = samples.direction_of(drive)
        torque = drive.torque(dq, samples.ddq, q=q, load=rigid, direction=direction)
        friction = drive.friction(dq, q=q, load=rigid, direction=direction)
        return samples.tau - rigid - torque, np.asarray(friction)

    def findings(self, fit: Sequence[Run], test: Sequence[Run] = ()) -> ResidualFindings:
        """Return what was found; runs of the fitted and of the test log, for their names."""
        names = {("fit", i): run for i, run in enumerate(fit)}
        names |= {("test", i): run for i, run in enumerate(test)}
        runs = {key: run for key, run in self._runs.items() if key in names}
        found: dict[str, list[Finding]] = {"fit": [], "test": []}
        blocks = {key: run.blocks() for key, run in runs.items()}
        together = Blocks.joined([each for each in blocks.values() if each is not None])
        for key, own in blocks.items():
            if own is None or together is None:
                continue
            usual = own if len(own.place) >= ENOUGH_BLOCKS else together
            if len(usual.place) >= ENOUGH_BLOCKS:
                found[key[0]] += self._contacts(runs[key], own, usual, names[key])
        for key, sentence in self._payloads(runs, names):
            rows = (names[key].first_row, names[key].stop_row)
            found[key[0]].append(Finding("payload", None, rows, sentence))
        return ResidualFindings(tuple(found["fit"]), tuple(found["test"]))

    # -- contacts ----------------------------------------------------------------------------------

    def _contacts(
        self, run: _Run, blocks: Blocks, others: Blocks, stated: Run
    ) -> Iterator[Finding]:
        """Yield short times in which something pushed the robot."""
        stretches = list(contact_stretches(blocks, others))
        for contact in stretches[:SHOWN]:
            first, stop, joints = contact.first, contact.stop, contact.joints
            begin = run.origin + run.length * float(blocks.place[first])
            end = run.origin + run.length * float(blocks.place[stop - 1] + 1)
            who = [self._robot.velocity_names[j] for j in joints]
            most = [float(blocks.residual[first:stop, j].max()) for j in joints]
            usual = [float(contact.usual[j]) for j in joints]
            each = ", ".join(
                f"{name} {high:.3g} against {low:.3g}"
                for name, high, low in zip(who, most, usual, strict=True)
            )
            yield Finding(
                "contact",
                who[0],
                _rows(stated, begin, end),
                f"run {stated.name!r}, {begin - stated.start:.1f} to {end - stated.start:.1f} s:"
                f" somebody or something seems to have pushed the robot (residual RMS in N·m or N:"
                f" {each} usually in this run); the rows are used: leave the run out, or record it"
                " again without contact",
            )
        if len(stretches) > SHOWN:
            last = run.origin + run.length * blocks.place[stretches[-1].first]
            yield Finding(
                "contact",
                None,
                _rows(stated, last, last),
                f"run {stated.name!r}: {len(stretches) - SHOWN} more contacts, the last at"
                f" {last - stated.start:.1f} s",
            )

    # -- payload -----------------------------------------------------------------------------------

    def _payloads(
        self, runs: dict[tuple[str, int], _Run], names: dict[tuple[str, int], Run]
    ) -> Iterator[tuple[tuple[str, int], str]]:
        """Yield runs in which another mass hangs on the robot than in the others."""
        long = {key: run for key, run in runs.items() if run.seconds >= SHORTEST}
        if len(long) < 2 or not self._leaves:
            return
        squares = sum(run.squares for run in long.values())
        counts = sum(run.counts for run in long.values())
        spread = np.sqrt(squares / np.maximum(counts, 1.0))
        if not np.all(np.isfinite(spread)) or not spread.any():
            return
        mass = float(np.sum(self._robot.theta.reshape(-1, 10)[:, 9]))
        least = max(LEAST_MASS, LEAST_PART * mass)
        for i, body in enumerate(self._leaves):
            fits = {key: run.mass(i, spread) for key, run in long.items()}
            ordered = sorted(fits, key=lambda key: fits[key].value[0])
            usual = fits[ordered[(len(ordered) - 1) // 2]]
            for key in ordered:
                more = float(fits[key].value[0] - usual.value[0])
                std = float(np.hypot(fits[key].std, usual.std))
                gain = fits[key].explained_beyond(usual.value)
                if abs(more) < max(least, SURE * std) or gain < EXPLAINED:
                    continue
                yield (
                    key,
                    f"run {names[key].name!r}: the robot carried {abs(more):.2f} ± {std:.2g} kg"
                    f" {'more' if more > 0.0 else 'less'} at {self._robot.body_names[body]} than in"
                    f" most runs (that explains {gain:.0%} of what the model leaves); the rows are"
                    " used: identify from runs with the same payload",
                )


# -- sums of one run -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Blocks:
    """Residuals of one run in blocks of time."""

    place: np.ndarray  # (b,) which block of the run
    residual: np.ndarray  # (b, nv) RMS; NaN where too few rows can be used
    activity: np.ndarray  # (b, nv) RMS of the acceleration
    least: np.ndarray  # (nv,) that a contact must exceed: a part of the torque, and friction
    length: float  # [s] of a block

    @staticmethod
    def joined(parts: list[Blocks]) -> Blocks | None:
        """Return the blocks of several runs."""
        if not parts:
            return None
        return Blocks(
            np.concatenate([part.place for part in parts]),
            np.concatenate([part.residual for part in parts]),
            np.concatenate([part.activity for part in parts]),
            np.max([part.least for part in parts], axis=0),
            parts[0].length,
        )

    @cached_property
    def busy(self) -> np.ndarray:
        """The acceleration that most blocks stay below, per joint."""
        return np.asarray(np.nanquantile(self.activity, 0.95, axis=0))

    def exertion(self, busy: np.ndarray) -> np.ndarray:
        """Return how strongly the robot accelerates in each block, 1: as strongly as it does."""
        parts = np.nan_to_num(self.activity)[:, busy > 0.0] / busy[busy > 0.0]
        return np.sqrt(np.mean(parts**2, axis=1)) if parts.shape[1] else np.zeros(len(parts))

    def usual(self, exertion: float) -> np.ndarray | None:
        """Return the residual that most blocks of a motion as strong stay below, per joint; None
        where there are too few.
        """
        alike = self.exertion(self.busy) >= ALIKE * exertion
        if np.count_nonzero(alike) < ENOUGH_ALIKE:
            return None
        return np.asarray(np.nanquantile(np.nan_to_num(self.residual[alike]), USUAL, axis=0))


@dataclass(frozen=True, eq=False)
class MassFit:
    """A mass at a body that explains a run's residual best."""

    value: np.ndarray  # (4,) m, m·c
    std: float  # [kg] of the mass
    normal: np.ndarray  # (4, 4)
    right: np.ndarray  # (4,)
    square: float  # of the residual

    def explained_beyond(self, other: np.ndarray) -> float:
        """Return the part of the residual's square, with another mass, that the own one removes."""

        def left(value: np.ndarray) -> float:
            return float(self.square - 2.0 * self.right @ value + value @ self.normal @ value)

        return 1.0 - left(self.value) / max(left(other), 1e-300)


class _Run:
    """Sums of one run."""

    def __init__(self, leaves: int, nv: int) -> None:
        self.length, self.origin = BLOCK, 0.0
        self._parts: list[np.ndarray] = []  # rows of (block, Σe², Σq̈², count), nv each
        self._count = 0
        self.squares, self.counts = np.zeros(nv), np.zeros(nv)  # of residuals
        self._torque = np.zeros((2, nv))  # Σu, Σu²
        self.friction = np.zeros(nv)  # Σ of its square
        self._normal, self._right = np.zeros((leaves, nv, 4, 4)), np.zeros((leaves, nv, 4))
        self.seconds, self._independent = 0.0, 1.0

    def add(
        self,
        samples: Samples,
        residual: np.ndarray,
        columns: list[np.ndarray],
        independent: float,
    ) -> None:
        t, usable = samples.t, samples.scorable
        if t is None or not samples.period:
            return
        if not self._parts:
            self.origin = float(t[0])
        steps = np.diff(t)
        self.seconds += float(len(t) * np.median(steps)) if len(steps) else 0.0
        error = np.where(usable, residual, 0.0)
        self._add_blocks(t, error, samples.ddq, usable)
        self.squares += np.sum(error**2, axis=0)
        self.counts += usable.sum(axis=0)
        torque = np.where(usable, samples.tau, 0.0)
        self._torque += np.stack([torque.sum(axis=0), np.sum(torque**2, axis=0)])
        for i, matrix in enumerate(columns):
            own = np.where(usable[:, :, None], matrix, 0.0)
            self._normal[i] += np.einsum("njk,njl->jkl", own, own)
            self._right[i] += np.einsum("njk,nj->jk", own, error)
        self._independent = independent

    def _add_blocks(
        self, t: np.ndarray, error: np.ndarray, ddq: np.ndarray, usable: np.ndarray
    ) -> None:
        place = np.floor((t - self.origin) / self.length).astype(np.int64)
        blocks, inverse = np.unique(place, return_inverse=True)
        nv = error.shape[1]
        sums = np.zeros((len(blocks), 1 + 3 * nv))
        sums[:, 0] = blocks
        np.add.at(sums[:, 1:], inverse, np.hstack([error**2, ddq**2 * usable, usable]))
        self._parts.append(sums)
        self._count += len(blocks)
        while self._count > MOST_BLOCKS:
            self._coarsen()

    def _coarsen(self) -> None:
        """Double the length of blocks; of two neighbours the one with more residual stays."""
        whole = self._joined()
        nv = (whole.shape[1] - 1) // 3
        mean = whole[:, 1 : nv + 1].sum(axis=1) / np.maximum(whole[:, 2 * nv + 1 :].sum(axis=1), 1)
        order = np.lexsort((mean, whole[:, 0] // 2))
        last = np.flatnonzero(np.diff(whole[order, 0] // 2, append=np.inf))
        whole = whole[order[last]]
        whole[:, 0] //= 2
        self._parts, self._count, self.length = [whole], len(whole), 2.0 * self.length

    def _joined(self) -> np.ndarray:
        """Return the sums with one row per block, in order of time."""
        rows = np.concatenate(self._parts)
        blocks, inverse = np.unique(rows[:, 0], return_inverse=True)
        out = np.zeros((len(blocks), rows.shape[1]))
        np.add.at(out, inverse, rows)
        out[:, 0] = blocks
        return out

    def blocks(self) -> Blocks | None:
        """Return residuals in blocks of time; None where no torque can be used."""
        if not self._parts:
            return None
        sums = self._joined()
        nv = (sums.shape[1] - 1) // 3
        square, activity, count = (sums[:, 1 + k * nv : 1 + (k + 1) * nv] for k in range(3))
        enough = count >= 0.5 * np.maximum(np.median(count, axis=0), 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            rms = np.where(enough, np.sqrt(square / count), np.nan)
            moved = np.where(enough, np.sqrt(activity / count), np.nan)
        unused = np.all(np.isnan(rms), axis=0)
        if unused.all():
            return None
        rms[:, unused], moved[:, unused] = 0.0, 0.0
        total = np.maximum(self.counts, 1.0)
        torque = np.sqrt(np.maximum(self._torque[1] / total - (self._torque[0] / total) ** 2, 0.0))
        # what friction's reversals leave is less than friction
        least = np.maximum(PART * torque, np.sqrt(self.friction / total))
        return Blocks(sums[:, 0], rms, moved, least, self.length)

    def mass(self, leaf: int, spread: np.ndarray) -> MassFit:
        """Return the mass at a last body that explains the residual; spread: of each joint's."""
        weight = np.where(spread > 0.0, self._independent / np.maximum(spread, 1e-300) ** 2, 0.0)
        normal = np.einsum("j,jkl->kl", weight, self._normal[leaf])
        right = weight @ self._right[leaf]
        covariance = np.linalg.inv(normal + np.diag(1.0 / PRIOR**2))
        square = float(weight @ self.squares)
        return MassFit(covariance @ right, float(np.sqrt(covariance[0, 0])), normal, right, square)


class Contact(NamedTuple):
    """Blocks in which something pushes the robot."""

    first: int
    stop: int
    joints: list[int]  # that show it
    usual: np.ndarray  # (nv,) residual of other blocks


def contact_stretches(blocks: Blocks, others: Blocks) -> Iterator[Contact]:
    """Yield contacts; others: blocks that tell what is usual."""
    residual = np.nan_to_num(blocks.residual)
    usual = np.full(residual.shape, np.inf)
    for k, exertion in enumerate(blocks.exertion(others.busy).tolist()):
        alike = others.usual(exertion)
        usual[k] = np.inf if alike is None else alike
    limit = np.maximum(FAR * usual, others.least)
    # a joint without noise and load shows nothing
    high = (residual > limit) & (limit > 0.0)
    some = high.sum(axis=1) >= min(JOINTS, residual.shape[1])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], some.astype(np.int8), [0]])))
    for first, stop in edges.reshape(-1, 2).tolist():
        if (stop - first) * blocks.length > LONGEST:
            continue
        elsewhere = np.delete(residual, slice(first, stop), axis=0)
        if len(elsewhere) < ENOUGH_BLOCKS:
            elsewhere = np.nan_to_num(others.residual)
        rare = residual[first:stop] > CLEAR * np.quantile(elsewhere, MOST, axis=0)
        joints = np.flatnonzero((high[first:stop] & rare).any(axis=0)).tolist()
        if len(joints) >= min(JOINTS, residual.shape[1]):
            yield Contact(first, stop, joints, np.nanmin(usual[first:stop], axis=0))


def last_bodies(robot: Robot) -> list[int]:
    """Return the bodies that carry no other, at most `LEAVES` of them, with most joints first."""
    tree = robot.tree
    parents = {node.parent for node in tree.nodes}
    depth: dict[int, int] = {-1: 0}
    for i, node in enumerate(tree.nodes):
        depth[i] = depth[node.parent] + 1
    ends = [(i, k) for k, i in enumerate(tree.bodies) if i not in parents and depth[i] > 1]
    ends.sort(key=lambda pair: -depth[pair[0]])
    return [k for _, k in ends[:LEAVES]]


def _rows(run: Run, begin: float, end: float) -> tuple[int, int] | None:
    """Return the rows of the log between two times of a run."""
    span = run.stop - run.start
    if span <= 0.0:
        return None
    first, stop = (
        run.first_row + round((t - run.start) / span * (run.rows - 1)) for t in (begin, end)
    )
    first = min(max(first, run.first_row), run.stop_row - 1)
    return first, min(max(stop + 1, first + 1), run.stop_row)
