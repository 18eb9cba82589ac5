"""The engine of one process: samples of small logs are kept between passes, those of others not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_log import motion

import thetahat as th
from thetahat import robots
from thetahat.data.joint_selection import JointSelection
from thetahat.data.memory_log import log_from_arrays
from thetahat.data.prepare import choose
from thetahat.data.samples import Samples, concatenate
from thetahat.engine import local
from thetahat.engine.local import LocalEngine
from thetahat.engine.protocol import Rows


@pytest.fixture
def rows() -> Rows:
    robot = th.load(robots.path("arm4"))
    t, q, dq, ddq = motion(4, seconds=6.0, rate=200.0)
    log = log_from_arrays(robot, t, q, tau=th.inverse_dynamics(robot, q, dq, ddq), name="arm")
    return Rows(log, choose(log, robot, cutoff=8.0), (0, log.rows), JointSelection(robot))


def read(engine: LocalEngine, rows: Rows) -> Samples:
    return concatenate(list(engine.samples(rows, rows.joints.robot, "")), same_log=True)


def test_a_pass_that_is_kept_gives_what_reading_again_gives(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, prepared = LocalEngine(), []
    real = local.prepare_batches
    monkeypatch.setattr(
        local, "prepare_batches", lambda *a, **k: prepared.append(1) or real(*a, **k)
    )
    first, again, fresh = read(engine, rows), read(engine, rows), read(LocalEngine(), rows)
    assert len(prepared) == 2, "once by each engine"
    for each in (again, fresh):
        for name in ("q", "dq", "ddq", "tau"):
            np.testing.assert_array_equal(getattr(first, name), getattr(each, name))
    slower = replace(rows, settings=replace(rows.settings, cutoff=3.0))
    assert not np.allclose(read(engine, slower).ddq, first.ddq), "other settings are read anew"
    part = replace(rows, span=(0, rows.log.rows // 2))
    assert len(read(engine, part)) < len(first), "and so are other rows"


def test_what_was_read_in_part_or_is_too_long_is_not_kept(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LocalEngine()
    next(iter(engine.samples(rows, rows.joints.robot, "")))
    whole = len(read(engine, rows))
    assert whole > 1000
    monkeypatch.setattr(local, "KEPT", 100)
    engine = LocalEngine()
    assert len(read(engine, rows)) == len(read(engine, rows)) == whole
    assert not any(pass_.batches for pass_ in vars(engine)["_passes"])
