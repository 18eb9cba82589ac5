"""After a fit: runs in which somebody pushed the robot or another payload hung on it are named; runs
that are merely different are not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted_logs import Recorder, Recording, Truth, record

import thetahat as th
from thetahat import robots
from thetahat.data.types import Finding
from thetahat.dynamics.rigid_body import gravity
from thetahat.model import parameters

RECORDER = Recorder(rate=100.0, seconds=14.0, kinds=("q", "dq", "tau"))
SETTINGS = th.IdentifySettings(tune=False, report=False, holdout=0.2)


def several_runs(robot: th.Robot, count: int, payloads: dict[int, float], seed: int) -> Recording:
    """Return runs of one robot one after another, some with a payload on the last body."""
    parts = []
    for k in range(count):
        truth = Truth(payload=payloads.get(k, 0.0))
        own = record(robot, replace(RECORDER, seconds=8.0), truth, seed=seed)
        # the same robot, but another motion
        other = record(
            robot, replace(RECORDER, seconds=8.0, speed=1.0 + 0.15 * k), truth, seed=seed
        )
        parts.append(own if k == 0 else other)
    columns = {
        kind: np.concatenate([part.columns[kind] for part in parts]) for kind in ("q", "dq", "tau")
    }
    rows = len(parts[0].columns["t"])
    t = np.concatenate([part.columns["t"] for part in parts])
    run = np.repeat([f"run{k}" for k in range(count)], rows)
    return Recording(robot, {"t": t, **columns}, run)


def force_torques(robot: th.Robot, q: np.ndarray, force: np.ndarray) -> np.ndarray:
    """Return the joint torques that hold against a force at the last body: those of a point mass
    of 1 kg, 10 cm off its origin, in a gravity of that force, (n, nv).
    """
    theta = np.zeros_like(robot.theta).reshape(-1, 10)
    theta[-1] = parameters.from_mass_com_inertia(
        np.array(1.0), np.array([0.0, 0.0, 0.1]), np.zeros((3, 3))
    )
    return gravity(robot.with_parameters(theta.ravel()).with_gravity(force), q)


def found(recording: Recording, kind: str) -> list[Finding]:
    result = th.identify(recording.robot, recording.log(), settings=SETTINGS)
    return [finding for finding in result.audit.findings if finding.kind == kind]


@pytest.mark.parametrize("name", ["arm4", "arm7"])
def test_a_push_is_found_where_it_was(name: str) -> None:
    robot = th.load(robots.path(name))
    recording = record(robot, RECORDER, seed=3)
    tau, q = recording.columns["tau"].copy(), recording.columns["q"]
    rows = slice(520, 590)  # 0.7 s
    shape = np.sin(np.linspace(0.0, np.pi, 70))[:, None]
    tau[rows] += shape * force_torques(robot, q[rows], np.array([25.0, -30.0, 20.0]))
    pushed = replace(recording, columns={**recording.columns, "tau": tau})
    findings = found(pushed, "contact")
    assert len(findings) == 1
    assert findings[0].rows is not None
    first, stop = findings[0].rows
    assert abs(first - 520) < 60
    assert abs(stop - 590) < 60
    assert findings[0].effect == "suspect"
    assert "N·m" in findings[0].message
    assert not found(recording, "contact"), "nobody pushed"


@pytest.mark.parametrize(("heavy", "mass"), [((2,), 2.0), ((0,), 1.0), ((0, 1, 3), 3.0)])
def test_a_run_with_another_payload_is_named(heavy: tuple[int, ...], mass: float) -> None:
    robot = th.load(robots.path("arm7"))
    loaded = several_runs(robot, 4, dict.fromkeys(heavy, mass), seed=5)
    findings = found(loaded, "payload")
    odd = heavy if len(heavy) < 3 else tuple(set(range(4)) - set(heavy))
    assert [finding.message.split("'")[1] for finding in findings] == [f"run{k}" for k in odd]
    text = findings[0].message
    assert ("more" if len(heavy) < 3 else "less") in text
    stated = float(text.partition("carried ")[2].split(" ")[0])
    assert stated == pytest.approx(mass, rel=0.25)


def test_runs_of_one_payload_are_not_told_apart() -> None:
    robot = th.load(robots.path("arm7"))
    for payload in ({}, dict.fromkeys(range(4), 2.0)):
        assert not found(several_runs(robot, 4, payload, seed=7), "payload")


def test_how_a_log_is_cut_into_batches_changes_nothing() -> None:
    from thetahat.identification.residual_audit import ResidualAudit

    robot = th.load(robots.path("arm4"))
    recording = record(robot, RECORDER, Truth(mass_error=0.0, com_error=0.0), seed=3)
    push = np.zeros_like(recording.columns["tau"])
    push[520:590] = force_torques(robot, recording.columns["q"][520:590], np.full(3, 60.0))
    log = recording.planted("tau", slice(None), lambda tau: tau + push).log()
    samples = th.prepare(log, robot, cutoff=8.0)
    whole, pieces = ResidualAudit(robot), ResidualAudit(robot)
    whole.add(samples, "fit")
    step = 7 * 36
    for first in range(0, len(samples), step):
        pieces.add(samples.subset(slice(first, first + step)), "fit")
    findings = [audit.findings(log.runs).fit for audit in (whole, pieces)]
    assert findings[0]
    assert [(f.kind, f.rows) for f in findings[0]] == [(f.kind, f.rows) for f in findings[1]]
