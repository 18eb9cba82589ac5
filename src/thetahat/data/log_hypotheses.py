"""What one channel of a log, or all its torques, may have wrong, by hypotheses that could be true.

Where no robot with this kinematics explains the torques, simple mistakes are tried one at a time:
the position of a joint with the other sign, or in degrees; its torque with the other sign. Each is
judged by a fit of all joints with shared parameters,

    τ_j = Y_j(q, q̇, q̈)·θ + viscous·q̇_j + Coulomb·sign(q̇_j) + offset,

so that a joint's mistake is found where it is made and not at the neighbours that suffer from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.audit_windows import Windows
from thetahat.data.columns import ColumnMap
from thetahat.data.joint_torques import ENOUGH, JointTorque
from thetahat.data.types import Finding
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

ROWS = 512  # windows that are fitted
POOR = 0.05  # of a joint's variance that is left: there is something to explain
GOOD = 0.05  # left in the mean over joints by a hypothesis that is named
CLEAR = 4.0  # times less is left than as logged
APART = 1.5  # times less than by any other hypothesis
LOADED = 0.5  # of a joint's load by the file is gravity's: it must show
WEIGHTLESS, SCALE = 0.15, 3.0  # of the file's gravity; a file's inertia may be wrong by this factor
FAINT = 0.4  # of a joint's variance that may be left by the file's inertia
RIDGE = 1e-6  # of the largest column: parameters that the motion hardly shows
DEGREE = np.pi / 180.0


@dataclass(frozen=True)
class Hypothesis:
    """A mistake that a log may have."""

    kind: str
    dof: int
    windows: Windows  # as they would be without it


def check_hypotheses(
    robot: Robot, columns: ColumnMap, windows: Windows, judged: list[int], *, rows: int
) -> Finding | None:
    """Return the mistake that explains what no parameters explain; None where there is no such.

    judged: degrees of freedom whose torque is measured and fit for use.
    """
    if len(judged) < 2 or robot.nq != robot.nv or len(windows) < ENOUGH:
        return None
    thin = _thinned(windows)
    as_logged = unexplained(robot, thin, judged)
    if as_logged is None or as_logged.max() < POOR:
        return None
    tried = [
        (unexplained(robot, each.windows, judged), each) for each in _mistakes(robot, thin, judged)
    ]
    left = sorted(
        ((float(part.mean()), each) for part, each in tried if part is not None),
        key=lambda pair: pair[0],
    )
    if not left:
        return None
    least, best = left[0]
    rivals = [part for part, each in left[1:] if each.dof != best.dof]
    if least > GOOD or least * CLEAR > as_logged.mean() or least * APART > min(rivals, default=1.0):
        return None
    return _finding(robot, columns, best, as_logged.mean(), least, rows=rows)


def check_gravity(robot: Robot, joints: dict[int, JointTorque], *, rows: int) -> Finding | None:
    """Return that torques hold inertia and friction as the file states them, but no gravity.

    A fit of all joints cannot tell: links without first moments have no gravity either. So each
    joint that the file loads with gravity is fitted by the file's inertia and gravity.
    """
    inertia, weight, loads = [], [], []
    for joint in joints.values():
        gravity = joint.gravity @ np.array(robot.gravity)
        load = joint.load(np.array(robot.gravity))
        if np.linalg.norm(gravity) < LOADED * np.linalg.norm(load):
            continue
        A = np.column_stack([joint.inertial, gravity, joint.friction])
        length = np.linalg.norm(A, axis=0)
        if not np.all(length > 0.0):
            continue
        x = np.linalg.lstsq(A / length, joint.tau, rcond=1e-8)[0] / length
        rest = joint.tau - A @ x
        if rest @ rest > FAINT * (joint.tau @ joint.tau):
            continue
        inertia.append(float(x[0]))
        weight.append(float(x[1]))
        loads.append(joint.unit * float(np.linalg.norm(gravity)))
    if len(weight) < 2:
        return None
    share = float(np.sqrt(np.average(np.square(weight), weights=np.square(loads))))
    if share > WEIGHTLESS:
        return None
    if not 1.0 / SCALE < float(np.median(inertia)) < SCALE:
        return None
    return Finding(
        "gravity-removed",
        None,
        (0, rows),
        f"gravity seems to be missing from the torques, as where a controller logs them without its"
        f" gravity compensation: {len(weight)} joints have the file's inertia"
        f" ({np.median(inertia):.2g} times) and {share:.0%} of its gravity;"
        " nothing was changed: log the full torques of the motors, or identify with --gravity"
        " 0,0,0, which finds inertias but no weights",
    )


def unexplained(robot: Robot, windows: Windows, judged: list[int]) -> np.ndarray | None:
    """Return the share of each judged joint's variance that no parameters explain."""
    from thetahat.dynamics.rigid_body import regressor

    if windows.tau is None:
        return None
    Y = regressor(robot.without_drive(), windows.q, windows.dq, windows.ddq)
    k, own = Y.shape[2], 2 * len(judged)
    blocks, torques = [], []
    for place, v in enumerate(judged):
        rows = windows.usable[:, v]
        tau = windows.tau[rows, v]
        spread = float(np.std(tau)) if len(tau) >= ENOUGH else 0.0
        if spread == 0.0:
            return None
        speed = windows.dq[rows, v]
        width = max(0.02, 0.1 * float(np.percentile(np.abs(speed), 95)))
        block = np.zeros((len(tau), k + own))
        block[:, :k] = Y[rows, v]
        block[:, k + 2 * place : k + 2 * place + 2] = np.column_stack(
            [speed, np.tanh(speed / width)]
        )
        share = spread * np.sqrt(len(tau))
        blocks.append((block - block.mean(axis=0)) / share)
        torques.append((tau - tau.mean()) / share)
    A, b = np.vstack(blocks), np.concatenate(torques)
    length = np.linalg.norm(A, axis=0)
    A = A[:, length > 1e-9 * length.max()] / length[length > 1e-9 * length.max()]
    if not np.all(np.isfinite(A)):
        return None
    normal = A.T @ A
    normal[np.diag_indices_from(normal)] += RIDGE
    rest = b - A @ np.linalg.solve(normal, A.T @ b)
    ends = np.cumsum([len(each) for each in torques])[:-1]
    return np.array([float(part @ part) for part in np.split(rest, ends)])


def _mistakes(robot: Robot, windows: Windows, judged: list[int]) -> Iterator[Hypothesis]:
    """Yield what may be wrong, one thing at a time."""
    for node in robot.tree.independent:
        v = robot.tree.v_index[node.name]
        if not np.ptp(windows.q[:, v]) > 0.0:
            continue
        yield Hypothesis("position-sign", v, _turned(windows, v, -1.0))
        if node.kind is JointKind.REVOLUTE and np.abs(windows.q[:, v]).max() > np.pi:
            yield Hypothesis("position-degrees", v, _turned(windows, v, DEGREE))
        if v in judged and windows.tau is not None:
            tau = windows.tau.copy()
            tau[:, v] *= -1.0
            yield Hypothesis("sign", v, replace(windows, tau=tau))


def _turned(windows: Windows, v: int, factor: float) -> Windows:
    """Return the windows with one joint's motion times a factor."""
    parts = {name: getattr(windows, name).copy() for name in ("q", "dq", "ddq")}
    for part in parts.values():
        part[:, v] *= factor
    return replace(windows, **parts)


def _thinned(windows: Windows) -> Windows:
    """Return at most `ROWS` of the windows, evenly."""
    chosen = np.unique(np.linspace(0, len(windows) - 1, ROWS).astype(int))
    return replace(
        windows,
        q=windows.q[chosen],
        dq=windows.dq[chosen],
        ddq=windows.ddq[chosen],
        tau=None if windows.tau is None else windows.tau[chosen],
        of_position=None,
        row=windows.row[chosen],
        usable=windows.usable[chosen],
    )


def _finding(
    robot: Robot, columns: ColumnMap, best: Hypothesis, before: float, after: float, *, rows: int
) -> Finding:
    evidence = (
        f"{after:.2%} of the torques' variance stays unexplained then (mean over joints), whatever"
        f" the links weigh, and {before:.1%} as logged"
    )
    name = robot.velocity_names[best.dof]
    column = columns.column_of("tau" if best.kind == "sign" else "q", best.dof)
    what, fix = {
        "position-sign": (
            "its position seems to have the other sign than in the robot file",
            "multiply q, dq and ddq by −1, or turn the joint's axis in the file",
        ),
        "position-degrees": (
            "its position seems to be in degrees",
            "multiply by pi/180",
        ),
        "sign": ("the sign of its torque seems flipped", "multiply the column by −1"),
    }[best.kind]
    return Finding(
        best.kind,
        name,
        (0, rows),
        f"joint {name!r} (column {column!r}): {what}: {evidence}; nothing was changed: {fix}",
    )
