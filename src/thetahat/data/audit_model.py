"""Check of a log against the robot's model: units, scale and signs of torques, gravity.

Units that are not SI are refused. What the torques say (torque_scale.py, torque_signs.py) is named,
and nothing is changed, unless every joint is flipped.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from thetahat.data.audit_windows import Windows
from thetahat.data.columns import ColumnMap
from thetahat.data.joint_torques import ENOUGH, joint_torques
from thetahat.data.log_hypotheses import check_gravity, check_hypotheses
from thetahat.data.torque_scale import common_factor, dead_torques, scale_findings, torque_scales
from thetahat.data.torque_signs import TorqueHypotheses, check_signs
from thetahat.data.types import Finding, Mask
from thetahat.data.wrench_audit import check_wrenches
from thetahat.errors import MalformedInput
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

DEGREE = np.pi / 180.0
UNITS = {1e-3: "milliseconds", 1e-6: "microseconds", 1e-9: "nanoseconds"}
OPTIONS = {1e-3: "ms", 1e-6: "us", 1e-9: "ns"}  # of --units


def check_against_model(
    robot: Robot,
    columns: ColumnMap,
    windows: Windows | None,
    *,
    differentiated: Collection[int] = (),
    rows: int,
    file: str,
    keep: tuple[str, ...] = (),
) -> tuple[list[Finding], list[Mask]]:
    """Return findings and masks; raise `MalformedInput` where the units are not SI.

    differentiated: degrees of freedom whose logged velocity is not used.
    """
    if windows is None or not windows.finite:
        return [], []
    findings: list[Finding] = []
    try:
        _check_time(robot, columns, windows, file, seconds=rows * windows.period)
        _check_degrees(robot, columns, windows, file)
    except MalformedInput as error:
        if "units" not in keep:
            raise MalformedInput(f"{error}, or --keep units if they are right") from None
        message = f"{error}; the log is used as it is (--keep units)"
        return [Finding("units", None, None, message, kept=True)], []
    if windows.tau is None or len(windows) < ENOUGH:
        return [], []
    windows = windows.differentiated(differentiated)
    check_wrenches(robot, windows, file)
    joints = joint_torques(robot, columns, windows)
    dead, masks = dead_torques(joints, robot, rows=rows, keep=keep)
    living = {v: joint for v, joint in joints.items() if v not in {mask.joint for mask in masks}}
    scales = torque_scales(living, robot)
    findings += [*dead, *scale_findings(scales, robot)]
    factors = {each.dof: each.load.factor for each in scales if each.flagged and not each.common}
    common = common_factor(scales)
    scaled = {v: joint.divided(factors.get(v, common)) for v, joint in living.items()}
    signs, flipped = check_signs(robot, columns, windows, scaled, keep=keep, rows=rows)
    if not flipped and common == 1.0:
        mistake = check_hypotheses(robot, columns, windows, sorted(living), rows=rows)
        if mistake is None and not factors:
            mistake = check_gravity(robot, living, rows=rows)
        if mistake is not None:  # scales and signs that were found are its consequences
            return [*dead, mistake], masks
    return [*findings, *signs], [*masks, *flipped]


# -- units -----------------------------------------------------------------------------------------


def _check_time(
    robot: Robot, columns: ColumnMap, windows: Windows, file: str, *, seconds: float
) -> None:
    """Compare positions with velocities: time stamps in milliseconds make positions change a
    thousand times slower; likewise for degrees.
    """
    if windows.slope is None or len(windows) < 3:
        return
    if not columns.has("dq"):
        _check_pace(columns, windows, file, seconds)
        return
    ratios, names = [], []
    for node in robot.tree.independent:
        at = robot.tree.v_index[node.name]
        dq, slope = windows.dq[:, at], windows.slope[:, at]
        product, squares = dq @ slope, np.sqrt((dq @ dq) * (slope @ slope))
        # moving, and both tell of the same motion
        if node.name not in columns.locked and squares > 0 and product > 0.8 * squares:
            ratios.append(np.sqrt((slope @ slope) / (dq @ dq)))
            names.append(node.name if node.kind is JointKind.REVOLUTE else "")
    if not ratios:
        return
    ratio = float(np.median(ratios))
    for factor, unit in UNITS.items():
        if factor / 1.5 < ratio < factor * 1.5:
            raise MalformedInput(
                f"{file}, column {columns.time!r}: positions change {1 / ratio:.4g} times slower"
                f" than the velocities say, so the time stamps seem to be in {unit}; give seconds"
                f" (multiply by {factor:g}), or pass --units t={OPTIONS[factor]}"
            )
    turning = [r for r, name in zip(ratios, names, strict=True) if name]
    angular = float(np.median(turning)) if turning else 1.0
    for factor, wrong, right in ((DEGREE, "dq", "q"), (1.0 / DEGREE, "q", "dq")):
        if factor / 1.3 < angular < factor * 1.3:
            first = (
                columns.column_of(wrong, 0)
                if (wrong, 0) in {(k, at) for k, at, _ in columns.place}
                else wrong
            )
            raise MalformedInput(
                f"{file}, column {first!r} and the others of {wrong}: positions change"
                f" {angular:.4g} times as fast as the velocities say, so {wrong} seems to be in"
                f" degrees and {right} in radians; give radians (multiply by pi/180), or pass"
                f" --units {wrong}=deg"
            )


def _check_pace(columns: ColumnMap, windows: Windows, file: str, seconds: float) -> None:
    """Without velocities: detect hours of few rows per second in which everything creeps."""
    slope = windows.q[:, :0] if windows.slope is None else windows.slope
    speed = float(np.percentile(np.abs(slope), 98, axis=0).max(initial=0.0))
    span = float(np.ptp(windows.q, axis=0).max(initial=0.0))
    if windows.period > 100.0 or (
        windows.period >= 0.1 and seconds > 1800.0 and span > 0.1 and speed < 0.02
    ):
        factor = next((factor for factor in UNITS if 0.05 < speed / factor < 50.0), 1e-3)
        raise MalformedInput(
            f"{file}, column {columns.time!r}: its median step is {windows.period:.4g} s and the"
            f" fastest joint moves {speed:.2g} rad/s, so the time stamps seem to be in"
            f" {UNITS[factor]}; give seconds (multiply by {factor:g}) or pass --units"
            f" t={OPTIONS[factor]}, or log dq too if the robot is so slow"
        )


def _check_degrees(robot: Robot, columns: ColumnMap, windows: Windows, file: str) -> None:
    """Detect angles far outside their joints' limits that are inside as degrees."""
    joints = [
        node
        for node in robot.tree.independent
        if node.kind is JointKind.REVOLUTE and node.name not in columns.locked
    ]
    reach = {
        node.name: np.abs(windows.q[:, robot.tree.q_index[node.name]]).max() for node in joints
    }
    if not joints or max(reach.values()) <= 2.0 * np.pi:
        return
    limited = [
        node
        for node in joints
        if np.isfinite(node.limits.lower)
        and np.isfinite(node.limits.upper)
        and node.limits.upper > node.limits.lower
    ]
    outside, inside = [], True
    for node in limited:
        q = windows.q[:, robot.tree.q_index[node.name]]
        if q.min() < node.limits.lower - 0.5 or q.max() > node.limits.upper + 0.5:
            outside.append(node)
        inside &= bool(
            q.min() * DEGREE > node.limits.lower - 0.2
            and q.max() * DEGREE < node.limits.upper + 0.2
        )
    away = [node for node in limited if reach[node.name] > 0.5]
    far = [
        node
        for node in outside
        if reach[node.name] > 4.0 * np.pi
        and reach[node.name] > 3.0 * max(abs(node.limits.lower), abs(node.limits.upper))
    ]
    by_limits = bool(far) and inside and 2 * len(outside) >= len(away)
    if by_limits or _torques_say_degrees(robot, columns, windows):
        node = max(far or joints, key=lambda node: reach[node.name])
        column = columns.column_of("q", robot.tree.q_index[node.name])
        bounds = (
            f", beyond its limits {node.limits.lower:.4g} to {node.limits.upper:.4g} rad"
            if node in limited
            else ""
        )
        raise MalformedInput(
            f"{file}, column {column!r} reaches {reach[node.name]:.4g}{bounds}: positions seem to"
            " be in degrees; give radians (multiply by pi/180), or pass --units q=deg"
        )


def _torques_say_degrees(robot: Robot, columns: ColumnMap, windows: Windows) -> bool:
    """Return whether the model explains the torques much better with angles in degrees."""
    if windows.tau is None or len(windows) < ENOUGH or robot.nq != robot.nv:
        return False
    scale = np.array(
        [DEGREE if node.kind is JointKind.REVOLUTE else 1.0 for node in robot.tree.independent]
    )
    as_logged, turned = (
        TorqueHypotheses(robot, joint_torques(robot, columns, each, own_links=False))
        for each in (windows, _scaled(windows, scale))
    )
    joints = as_logged.loaded() & turned.loaded()
    if not joints.any():
        return False
    before, after = (fits.explained(robot.gravity)[joints].mean() for fits in (as_logged, turned))
    return bool(after > 0.8 and before < after - 0.3)


def _scaled(windows: Windows, scale: np.ndarray) -> Windows:
    of_position = None if windows.of_position is None else windows.of_position * scale
    q, dq, ddq = (array * scale for array in (windows.q, windows.dq, windows.ddq))
    return replace(windows, q=q, dq=dq, ddq=ddq, of_position=of_position)
