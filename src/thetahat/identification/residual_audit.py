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
from typing import NamedTuple

import numpy as np

from thetahat.data.contact_rows import without_contact_forces
from thetahat.data.filters import decimation_factor
from thetahat.data.samples import Samples
from thetahat.data.types import Finding, Run
from thetahat.dynamics.rigid_body import inverse_dynamics
from thetahat.identification.residual_sums import Blocks, RunSums
from thetahat.model.robot import Robot

ENOUGH_BLOCKS = 24  # to know what is usual; shorter runs are compared with all others
FAR = 4.0  # times the usual residual
MOST, CLEAR = 0.95, 2.0  # quantile of all other blocks, and how far beyond it a contact must be
JOINTS = 2  # that must show it at once
LONGEST = 8.0  # [s] of a contact; what lasts longer is a model that does not fit
SHOWN = 3  # contacts of a run that are listed

LEAVES = 4  # last bodies that are looked at
SHORTEST = 3.0  # [s] of a run that can tell a mass
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
        self._runs: dict[tuple[str, int], RunSums] = {}

    def add(self, samples: Samples, part: str) -> None:
        """Add a batch of rows of the fitted log ("fit") or of another ("test")."""
        if samples.t is None or samples.run is None or not samples.period or not len(samples):
            return
        step = decimation_factor(samples.cutoff or 0.5 / samples.period, samples.period)
        thin = samples.subset(slice(0, None, step))
        if thin.run is None or thin.t is None:
            return
        residual, friction = self._residual(thin)
        residual = without_contact_forces(self._robot, thin, residual)
        columns = [
            np.stack([inverse_dynamics(unit, thin.q, thin.dq, thin.ddq) for unit in units], axis=-1)
            for units in self._units
        ]  # (n, nv, 4) each
        columns = [without_contact_forces(self._robot, thin, each) for each in columns]
        cutoff = samples.cutoff or 0.5 / samples.period
        independent = min(1.0, 2.0 * cutoff * step * samples.period)
        for run in np.unique(thin.run):
            rows = np.flatnonzero(thin.run == run)
            own = self._runs.setdefault((part, int(run)), RunSums(len(columns), thin.nv))
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
        self, run: RunSums, blocks: Blocks, others: Blocks, stated: Run
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
        self, runs: dict[tuple[str, int], RunSums], names: dict[tuple[str, int], Run]
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
