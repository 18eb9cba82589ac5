"""Do the joints' torques disagree on the robot as if their drives had different gains?

    u_j = (1 + δ_j)·Y_j·x + noise

Bodies show in the torques of several joints at once, so gains that differ between joints leave a
misfit that no x explains. The linear columns Y_j·x̂ of every joint are added to the fit, and what
they take of the misfit is compared with chance. A gain that all joints share shows nowhere here.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from thetahat.data.types import Finding
from thetahat.identification import factor as f
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.information import Information

KIND = "gain-differences"
CHANCE = 1e-6  # probability of naming differences that are not there
EXPLAINED = 0.5  # of the misfit between joints, that gains must take
APART = 0.03  # standard deviation of the joints' gains that is worth a word


def gain_differences(information: Information, share: float) -> tuple[Finding, ...]:
    """Return a finding where gains that differ between joints explain most of what is left.

    share: of the rows that are independent.
    """
    joints = [v for v, rows in enumerate(information.rows) if rows > len(information.base)]
    if len(joints) < 2:
        return ()
    with f.blas_threads().limit(limits=1, user_api="blas"):
        x = f.solve(information.stacked(weigh(information, "iterated").joints)).x
        rows, right, predicted = _blocks(information, joints, x)
        before = _left(rows, right)
        with_gains = np.column_stack([rows, predicted])
        change = _solution(with_gains, right)[rows.shape[1] :]
        after = _left(with_gains, right)
    change = change - np.mean(change)
    gained = share * (before - after)
    spread = float(np.std(change))
    if (
        spread < APART
        or before - after < EXPLAINED * before
        or special.chdtrc(len(joints) - 1, gained) > CHANCE
    ):
        return ()
    ends = sorted(zip(change, joints, strict=True))
    (low, least), (high, most) = ends[0], ends[-1]
    names = information.robot.velocity_names
    message = (
        f"drives whose gains differ would explain {100.0 * (before - after) / before:.0f} % of what"
        f" the joints' torques disagree on: {names[most]} reports {100.0 * (high - low):.0f} % more"
        f" than {names[least]} for the same torque; weigh something, hold it, record it, and find"
        " the gains with thetahat payload --known-mass KG"
    )
    return (Finding(KIND, names[most], None, message),)


def _blocks(
    information: Information, joints: list[int], x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, right side, and a column per joint with what x predicts, in units of each joint's own
    noise.
    """
    rows, right, predicted = [], [], []
    for k, v in enumerate(joints):
        R, positions = information.factors[v], information.positions[v]
        noise = abs(R[-1, -1]) / np.sqrt(max(int(information.rows[v]) - len(positions), 1))
        noise = max(noise, 1e-6 * float(np.linalg.norm(R[:, -1])) / np.sqrt(information.rows[v]))
        own = np.zeros((len(positions), len(x)))
        own[:, positions] = R[:-1, :-1] / (noise or 1.0)
        column = np.zeros((len(positions), len(joints)))
        column[:, k] = own @ x
        rows.append(own)
        right.append(R[:-1, -1] / (noise or 1.0))
        predicted.append(column)
    return np.vstack(rows), np.concatenate(right), np.vstack(predicted)


def _solution(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(A, axis=0)
    scale = np.where(norms > 0.0, norms, 1.0)
    return np.asarray(np.linalg.lstsq(A / scale, b, rcond=1e-10)[0] / scale)


def _left(A: np.ndarray, b: np.ndarray) -> float:
    left = b - A @ _solution(A, b)
    return float(left @ left)
