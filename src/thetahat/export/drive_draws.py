"""Drives drawn from the law of an actuators.json: all parameters together, with correlations.

`spread` states a Gaussian of what the fit sees: logarithms of gains, friction and rotor inertia per
gain. Drawn drives move about as alike as the log allows, which drives drawn number by number do
not: where delay and armature make up for one another, they do so in every draw. Of a joint whose
scale no log tells, the gain is held, as its motion shows the ratios alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri

from thetahat.errors import MalformedInput
from thetahat.export.simulator_model import NEVER_NEGATIVE, JointDrive, SimulatorModel
from thetahat.identification.verdict_reason import Data

SWEEPS = 100  # of Gibbs sampling
JITTER = 1e-9  # of correlations, which are rounded
FARTHEST, TINY = 35.0, 1e-290  # standard deviations into a tail, and their probability
NAMES = {"limit": "effort_limit"}  # of the fit, where exports differ
WIDEST = 1.0  # standard deviation of log kp, beyond which the gain is held
LARGEST_LOAD = 0.95  # friction per load, from which a gear locks


def drawn_drives(
    model: SimulatorModel, count: int, *, seed: int
) -> dict[tuple[str, str], np.ndarray]:
    """Return draws, (count,), by term and joint; empty where the result states no law."""
    stated = model.data.get("spread")
    if not stated or not stated["parameters"]:
        return {}
    rows = stated["parameters"]
    centre = np.array([row["value"] for row in rows])
    positive = np.array(
        [row["scale"] != "log" and _term(row) in NEVER_NEGATIVE for row in rows], dtype=bool
    )
    x = _gaussian(centre, _covariance(model, stated), positive, count, seed=seed)
    gains = {row["joint"]: np.exp(x[:, at]) for at, row in enumerate(rows) if row["name"] == "kp"}
    known = {joint.name: joint.get("kp") or 1.0 for joint in model.joints}
    out = {}
    for at, row in enumerate(rows):
        joint, values = row["joint"], x[:, at]
        if joint not in known:
            raise MalformedInput(
                f"{model.file}: spread names the joint {joint!r}, which the robot does not have;"
                " identify again"
            )
        if row["scale"] == "log":
            values = np.exp(values)
        elif row["scale"] == "per kp":
            values = values * gains.get(joint, known[joint])
        if row["name"] == "load":
            values = np.minimum(values, LARGEST_LOAD)
        if np.ptp(values) > 0.0:
            out[_term(row), joint] = values
    return out


def with_drawn(
    model: SimulatorModel, draws: dict[tuple[str, str], np.ndarray], k: int
) -> SimulatorModel:
    """Return the model with its k-th draw."""
    joints: list[JointDrive] = []
    for joint in model.joints:
        mine = {term: float(x[k]) for (term, name), x in draws.items() if name == joint.name}
        joints.append(replace(joint, values={**joint.values, **mine}))
    return model.with_joints(tuple(joints))


def _term(row: Data) -> str:
    return NAMES.get(row["name"], str(row["name"]))


def _covariance(model: SimulatorModel, stated: Data) -> np.ndarray:
    """Return the covariance, given the gains of joints whose scale is not known."""
    rows, triangle = stated["parameters"], stated["correlations"]
    count = len(rows)
    if [len(row) for row in triangle] != list(range(1, count + 1)):
        raise MalformedInput(
            f"{model.file}: correlations of spread are no triangle of {count} rows; identify again"
        )
    R = np.zeros((count, count))
    for at, row in enumerate(triangle):
        R[at, : at + 1] = row
    R = R + np.tril(R, -1).T
    std = np.array([row["std"] for row in rows])
    C: np.ndarray = R * np.outer(std, std)
    held = np.array([row["name"] == "kp" and row["std"] > WIDEST for row in rows])
    if held.any():
        gain = C[:, held] @ np.linalg.pinv(C[np.ix_(held, held)])
        C = C - gain @ C[held]
        C[held], C[:, held] = 0.0, 0.0
    return C


def _gaussian(
    centre: np.ndarray, C: np.ndarray, positive: np.ndarray, count: int, *, seed: int
) -> np.ndarray:
    """Draw from a Gaussian without its part where something is negative that cannot be.

    Gibbs sampling: each number in turn from its law given the others, a chain for every draw.
    """
    rng = np.random.default_rng(seed)
    size, axes = np.linalg.eigh(C)
    root = axes * np.sqrt(np.maximum(size, 0.0))
    x: np.ndarray = centre + rng.standard_normal((count, len(centre))) @ root.T
    if not np.any(x[:, positive] < 0.0):
        return x
    x[:, positive] = np.maximum(x[:, positive], 0.0)
    free = np.flatnonzero(np.diag(C) > 0.0)
    std = np.sqrt(np.diag(C))[free]
    scaled = C[np.ix_(free, free)] / np.outer(std, std) + JITTER * np.eye(len(free))
    P = np.linalg.inv(scaled)
    z = (x[:, free] - centre[free]) / std
    for _ in range(SWEEPS):
        for k in range(len(free)):
            width = 1.0 / np.sqrt(P[k, k])
            middle = z[:, k] - (z @ P[k]) / P[k, k]
            share = rng.random(count)
            if positive[free[k]]:
                least = np.minimum((-centre[free[k]] / std[k] - middle) / width, FARTHEST)
                share = share * ndtr(-least)
            z[:, k] = middle - width * ndtri(np.maximum(share, TINY))
    x[:, free] = centre[free] + std * z
    x[:, positive] = np.maximum(x[:, positive], 0.0)
    return x
