"""Mistakes of one channel, or of all torques, are named where they are made, and clean logs are not suspected."""

from __future__ import annotations

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.data import audit_model
from thetahat.data.memory_log import log_from_table
from thetahat.errors import MalformedInput
from thetahat.model import parameters

RATE, SECONDS = 200.0, 12.0
KINDS = (
    "sign",
    "signs",
    "position-sign",
    "position-degrees",
    "gravity-removed",
    "gravity-direction",
    "torque-scale",
)
JOINT = 2  # turns about a horizontal axis in most poses of these arms


def wrong_file(robot: th.Robot, seed: int) -> th.Robot:
    """A file whose masses and inertias are off by up to 30 %."""
    rng = np.random.default_rng(seed)
    mass, com, inertia = parameters.to_mass_com_inertia(robot.theta.reshape(-1, 10))
    ratio = rng.uniform(0.7, 1.3, len(mass))
    theta = parameters.from_mass_com_inertia(mass * ratio, com, inertia * ratio[:, None, None])
    return robot.without_drive().with_parameters(theta.ravel())


def motion(robot: th.Robot, seed: int) -> tuple[np.ndarray, ...]:
    """t, q, dq, ddq of random sines."""
    rng = np.random.default_rng([seed, 1])
    t = np.arange(0.0, SECONDS, 1.0 / RATE)
    w = 2.0 * np.pi * rng.uniform(0.1, 0.6, (4, robot.nv))
    a, phase = rng.uniform(0.1, 0.5, w.shape), rng.uniform(0.0, 6.0, w.shape)
    angle = t[:, None, None] * w + phase
    return (
        t,
        (a * np.sin(angle)).sum(1),
        (a * w * np.cos(angle)).sum(1),
        (-a * w**2 * np.sin(angle)).sum(1),
    )


def findings(name: str, mistake: str, seed: int) -> list[tuple[str, str | None]]:
    robot = th.load(robots.path(name))
    t, q, dq, ddq = motion(robot, seed)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    tau += 0.01 * np.std(tau, axis=0) * np.random.default_rng([seed, 2]).normal(size=tau.shape)
    q, dq = q.copy(), dq.copy()
    factor = {"position-sign": -1.0, "position-degrees": 180.0 / np.pi}.get(mistake)
    if factor is not None:
        q[:, JOINT] *= factor
        dq[:, JOINT] *= factor
    elif mistake == "sign":
        tau[:, JOINT] *= -1.0
    elif mistake == "gravity-removed":
        tau -= th.gravity(robot, q)
    table = {"t": t}
    for kind, values in (("q", q), ("dq", dq), ("tau", tau)):
        table |= {f"{kind}.{joint}": values[:, v] for v, joint in enumerate(robot.joint_names)}
    log = log_from_table(table, wrong_file(robot, seed))
    return [(each.kind, each.joint) for each in log.findings if each.kind in KINDS]


@pytest.mark.parametrize("name", ["arm4", "arm7"])
@pytest.mark.parametrize("mistake", ["position-sign", "sign", "gravity-removed", "none"])
def test_a_mistake_is_named_where_it_is_made(name: str, mistake: str) -> None:
    joint = th.load(robots.path(name)).velocity_names[JOINT]
    expected = {"none": [], "gravity-removed": [(mistake, None)]}.get(mistake, [(mistake, joint)])
    for seed in (1, 2):
        assert findings(name, mistake, seed) == expected


@pytest.mark.parametrize("name", ["arm4", "arm7"])
def test_one_joint_in_degrees_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its limits, where those of the file tell, and by its torques where they do not."""
    joint = th.load(robots.path(name)).velocity_names[JOINT]
    with pytest.raises(MalformedInput, match=f"{joint}.*degrees"):
        findings(name, "position-degrees", 1)
    monkeypatch.setattr(audit_model, "_check_degrees", lambda *_: None)
    assert findings(name, "position-degrees", 1) == [("position-degrees", joint)]


def test_a_log_without_gravity_is_not_usable() -> None:
    robot = th.load(robots.path("arm4"))
    t, q, dq, ddq = motion(robot, 3)
    tau = th.inverse_dynamics(robot, q, dq, ddq) - th.gravity(robot, q)
    table = {"t": t}
    for kind, values in (("q", q), ("dq", dq), ("tau", tau)):
        table |= {f"{kind}.{joint}": values[:, v] for v, joint in enumerate(robot.joint_names)}
    settings = th.IdentifySettings(tune=False, report=False, friction=())
    result = th.identify(wrong_file(robot, 3), table, settings=settings)
    assert result.verdict.level == "not usable"
    assert any("gravity seems to be missing" in reason for reason in result.verdict.reasons)
