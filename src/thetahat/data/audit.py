"""Audit of a log in one pass: channels that are dead, stuck, saturated or do not follow the
position.

Everything here is of bounded size. What needs a model of the robot (units, signs, scale of the
torques, the direction of gravity) is checked at the end, from a few thousand short windows spread
over the log (audit_model.py). What needs a fitted model (somebody who pushes the robot, another
payload) is found after the fit (identification/residual_audit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from thetahat.data.audit_channels import (
    MIN_STRETCH,
    STILL,
    ConstantChannel,
    ConstantRows,
    Extreme,
    ExtremeScan,
    Rows,
    merged,
    position_mismatch,
    position_range,
    velocity_travel,
)
from thetahat.data.audit_model import check_against_model
from thetahat.data.audit_windows import WindowCollector
from thetahat.data.columns import ColumnMap
from thetahat.data.derivative_check import DerivativeCheck, Spectra
from thetahat.data.derivative_findings import derivative_findings
from thetahat.data.finding_kinds import REASON_OF, treatment
from thetahat.data.types import Channels, Finding, Mask
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

MOVED_ANGLE = 0.1  # [rad] of motion that contradicts a constant channel
MOVED_LENGTH = 0.01  # [m]
DEAD_ROWS = 0.8  # of the log: a torque that is dead in so many is dead in all
DEAD_CHANGES = 0.02  # of the rows: a torque that changes more rarely is dead in all


@dataclass(frozen=True)
class AuditResult:
    """Findings of a log, and what must not be used of it."""

    findings: tuple[Finding, ...]
    masks: tuple[Mask, ...]
    unused: tuple[tuple[str, int], ...] = ()  # dq or ddq, and the degree of freedom


@dataclass(frozen=True, eq=False)
class AuditScan:
    """Audit of one file, rows counted from its first; merged by `Audit.add`."""

    constant: dict[str, np.ndarray]  # by channel: (k, 4) degree of freedom, value, first, stop row
    extremes: dict[str, dict[int, ExtremeScan]]  # "top" and "bottom", by degree of freedom
    changes: dict[int, int]  # by degree of freedom: rows whose torque is not that of the row before
    windows: dict[str, np.ndarray]
    period: float  # [s] of the windows
    derivatives: Spectra


class Audit:
    """Audit of all channels of a log; `keep` are reasons for which nothing is left out."""

    def __init__(
        self,
        robot: Robot,
        columns: ColumnMap,
        *,
        where: Callable[[int], str],
        file: str,
        keep: tuple[str, ...] = (),
    ) -> None:
        self._robot, self._columns, self._where, self._file = robot, columns, where, file
        self._keep = keep
        self._windows = WindowCollector(robot, columns)
        self._derivatives = DerivativeCheck(robot, columns)
        self._dofs = [
            (node, robot.tree.q_index[node.name], robot.tree.v_index[node.name])
            for node in robot.tree.independent
            if node.kind.nv == 1 and not node.sensor and node.name not in columns.locked
        ]
        limits = {
            v: MOVED_ANGLE if node.kind is JointKind.REVOLUTE else MOVED_LENGTH
            for node, _, v in self._dofs
        }
        measured = {at for kind, at, _ in columns.place if kind == "tau"}
        torques = {v: limit for v, limit in limits.items() if v in measured}
        velocities = limits if columns.has("dq") else {}
        self._constant = {
            "dead": {v: ConstantChannel(position_range, m) for v, m in torques.items()},
            "stuck": {v: ConstantChannel(velocity_travel, m) for v, m in velocities.items()},
            "held": {v: ConstantChannel(position_mismatch, m) for v, m in velocities.items()},
        }
        self._extremes = {name: {v: Extreme() for v in torques} for name in ("top", "bottom")}
        self._rows = 0
        self._findings: list[Finding] = []
        self._masks: list[Mask] = []
        self._unusable: dict[int, list[tuple[int, int]]] = {}

    def feed(self, channels: Channels, starts: np.ndarray, *, row: int, period: float) -> None:
        """Take a batch of consecutive rows; `starts` are where runs begin in it."""
        q, dq, tau = channels["q"], channels["dq"], channels["tau"]
        self._rows = row + len(q)
        least = max(MIN_STRETCH, int(0.9 * STILL / period)) if period else MIN_STRETCH
        for _, at, v in self._dofs:
            rows = Rows(
                channels["t"],
                np.ascontiguousarray(q[:, at]),
                None if dq is None else np.ascontiguousarray(dq[:, v]),
                row,
            )
            if v in self._constant["dead"] and tau is not None:
                torque = np.ascontiguousarray(tau[:, v])
                self._constant["dead"][v].feed(torque, rows, starts, least)
                self._extremes["top"][v].feed(torque, rows.q, row)
                self._extremes["bottom"][v].feed(-torque, rows.q, row)
            if v in self._constant["stuck"] and rows.dq is not None:
                self._constant["stuck"][v].feed(rows.q, rows, starts, least)
                self._constant["held"][v].feed(rows.dq, rows, starts, least)
        self._windows.feed(channels, starts, row=row, period=period)
        self._derivatives.feed(channels, starts, period=period)

    def scan(self) -> AuditScan:
        """Return what was seen of a file that has been fed to its end."""
        constant = {
            name: np.array(
                [(v, *rows) for v, channel in channels.items() for rows in channel.finish()],
                dtype=float,
            ).reshape(-1, 4)
            for name, channels in self._constant.items()
        }
        extremes = {
            name: {v: extreme.scan() for v, extreme in by_dof.items()}
            for name, by_dof in self._extremes.items()
        }
        changes = {v: channel.changes for v, channel in self._constant["dead"].items()}
        windows, period = self._windows.collected()
        derivatives = self._derivatives.collected()
        return AuditScan(constant, extremes, changes, windows, period, derivatives)

    def add(self, scan: AuditScan, row: int, rows: int) -> None:
        """Add what was seen of the file that has these rows of the log."""
        for name, channels in self._constant.items():
            for v, value, first, stop in scan.constant[name].tolist():
                constant = ConstantRows(value, int(first) + row, int(stop) + row)
                channels[int(v)].constant.append(constant)
        for v, changes in scan.changes.items():
            self._constant["dead"][v].changes += changes
        for name, extremes in self._extremes.items():
            for v, extreme in scan.extremes[name].items():
                extremes[v].add(extreme, row)
        self._windows.add(scan.windows, scan.period, row)
        self._derivatives.add(scan.derivatives)
        self._rows = row + rows

    def finish(self) -> AuditResult:
        """Return findings and masks.

        Raises:
            MalformedInput: the log is in degrees, or its time stamps are not in seconds.

        """
        unused = tuple(self._report_derivatives())
        differentiated = {v for kind, v in unused if kind == "dq"}
        for node, _, v in self._dofs:
            limits = self._report_saturation(node.name, v)
            self._report_dead(node.name, v, limits)
            self._report_stuck(node.name, v, differentiated=v in differentiated)
        findings, masks = check_against_model(
            self._robot,
            self._columns,
            self._windows.windows(self._unusable),
            differentiated=differentiated,
            rows=self._rows,
            file=self._file,
            keep=self._keep,
        )
        return AuditResult((*self._findings, *findings), (*self._masks, *masks), unused)

    # -- derivatives -------------------------------------------------------------------------------

    def _report_derivatives(self) -> Iterator[tuple[str, int]]:
        """Report channels that do not follow the position; yield those that are not used."""
        matches = list(self._derivatives.matches())
        angular = [True] * self._robot.nv
        for node, _, v in self._dofs:
            angular[v] = node.kind is JointKind.REVOLUTE
        names = self._robot.velocity_names
        self._findings += derivative_findings(matches, names, angular, self._keep)
        for match in matches:
            if not match.follows and match.kind not in self._keep:
                yield match.kind, match.dof

    # -- channels ----------------------------------------------------------------------------------

    def _report_dead(self, joint: str, v: int, limits: list[float]) -> None:
        """Report torques that do not change while the joint moves: all of them where most are."""
        channel = self._constant["dead"].get(v)
        constant = [] if channel is None else channel.finish()
        # saturated torques are reported as such
        constant = [rows for rows in constant if rows.value not in limits]
        if channel is None or not constant:
            return
        count = sum(rows.stop - rows.first for rows in constant)
        share = count / max(self._rows, 1)
        if share < DEAD_ROWS and channel.changes > DEAD_CHANGES * self._rows:
            what = f"its torque stays at {constant[0].value:.6g} while it moves; those torques are"
            self._report_constant("dead-torque", joint, v, constant, what)
            return
        whole = [ConstantRows(constant[0].value, 0, self._rows)]
        sentence = (
            f"joint {joint!r}: its torque channel is dead ({constant[0].value:.6g} in {count} rows"
            f" while the joint moves, {share:.0%} of the log): all its torques are"
        )
        self._add("dead-torque", joint, v, whole, sentence)

    def _report_stuck(self, joint: str, v: int, *, differentiated: bool) -> None:
        for name, what in (
            ("stuck", "its position stays at {:.6g} but its velocity is not 0; these rows are"),
            ("held", "its velocity stays at {:.6g} but its position differs; these rows are"),
        ):
            channel = self._constant[name].get(v)
            constant = [] if channel is None else channel.finish()
            if constant and not (name == "held" and differentiated):
                self._report_constant("stuck", joint, v, constant, what.format(constant[0].value))

    def _report_constant(
        self, kind: str, joint: str, v: int, constant: list[ConstantRows], what: str
    ) -> None:
        count = sum(rows.stop - rows.first for rows in constant)
        place = self._span(constant[0].first, constant[-1].stop)
        sentence = f"joint {joint!r}, {place} ({count} rows): {what}"
        self._add(kind, joint, v, constant, sentence)

    def _add(
        self,
        kind: str,
        joint: str,
        v: int,
        constant: list[ConstantRows],
        sentence: str,
    ) -> None:
        """Add a finding and, unless the user keeps these rows, its masks."""
        kept = REASON_OF[kind] in self._keep
        message = treatment(kind, sentence, self._keep)
        rows = constant[0].first, constant[-1].stop
        self._findings.append(Finding(kind, joint, rows, message, kept=kept))
        spans = merged(np.array([(rows.first, rows.stop) for rows in constant]))
        # the torque of every joint depends on a position and a velocity
        dofs = range(self._robot.nv) if kind == "stuck" else (v,)
        for dof in () if kept else dofs:
            self._masks += _masks(dof, spans, kind.replace("-", " "))
        self._unusable.setdefault(v, []).extend((int(a), int(b)) for a, b in spans)

    def _report_saturation(self, joint: str, v: int) -> list[float]:
        """Report saturated torques, and return the values at which they are."""
        limits: list[float] = []
        for sign, name in ((1.0, "top"), (-1.0, "bottom")):
            extreme = self._extremes[name].get(v)
            saturation = None if extreme is None else extreme.saturation()
            if saturation is None:
                continue
            spans = [ConstantRows(0.0, int(begin), int(end)) for begin, end in saturation.rows]
            sentence = (
                f"joint {joint!r}, {self._span(spans[0].first, spans[-1].stop)}: its torque is"
                f" saturated at {sign * saturation.value:.6g} (the extreme value, in"
                f" {saturation.total} rows); those torques are"
            )
            self._add("saturated", joint, v, spans, sentence)
            limits.append(sign * saturation.value)
        return limits

    def _span(self, first: int, stop: int) -> str:
        return f"{self._where(first)} to {self._where(stop - 1)}"


def _masks(dof: int, intervals: np.ndarray, reason: str) -> list[Mask]:
    return [Mask(dof, int(first), int(stop), reason) for first, stop in intervals]
