"""Log → Samples: derivatives as they are, gaps and held-out rows that leave no trace, batches that
equal the whole, and the automatic choices.
"""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from prepare_cases import (
    BATCH,
    NAMES,
    Chunk,
    HandLog,
    Mask,
    Run,
    difference,
    even,
    log_of,
    measured,
    motion,
    uneven,
)
from scipy import signal
from scipy.spatial.transform import Rotation

import thetahat as th
from thetahat import robots
from thetahat.data import filters
from thetahat.data.prepare import Settings, choose, prepare, prepare_batches
from thetahat.data.samples import EDGE, OUTLIER, REASONS, STANDSTILL, concatenate


@pytest.fixture(scope="module")
def arm() -> th.Robot:
    return th.load(
        robots.path("arm4")
    ).without_drive()  # no steps of friction: its torques are as smooth as its motion


# -- the motion comes out as it was ----------------------------------------------------------------


@pytest.mark.parametrize("columns", [(), ("dq",), ("dq", "ddq"), ("ddq",)])
@pytest.mark.parametrize("stamps", [even, uneven])
@pytest.mark.parametrize(("derivative", "tolerance"), [("butterworth", 1e-6), ("savgol", 2e-3)])
def test_motion_and_torque_come_out_as_they_were(
    arm: th.Robot, columns: tuple, stamps, derivative: str, tolerance: float
) -> None:
    run = motion(arm, stamps(6000), top=2.0)
    samples = prepare(
        log_of(arm, measured(run, *columns)), arm, cutoff=40.0, derivative=derivative, min_speed=0.0
    )
    want = motion(arm, samples.t, top=2.0)
    rows = samples.valid.all(axis=1)
    assert rows.mean() > 0.95
    tolerance = max(
        tolerance, 2e-5 if stamps is uneven else 0.0
    )  # what a cubic across a hole of 4.5 periods costs the second derivative
    for name in NAMES:
        error = np.abs(getattr(samples, name) - want[name]) / np.max(np.abs(want[name]))
        assert np.max(error[rows]) < 2 * filters.EDGE_WEIGHT + tolerance, name
        assert np.max(error[500:-500]) < tolerance, (
            name
        )  # where no end is within the kernel's reach
    np.testing.assert_allclose(samples.t[[0, -1]], run["t"][[0, -1]], atol=1e-9)


def test_the_average_of_the_paper_follows_with_its_lag(arm: th.Robot) -> None:
    run = motion(arm, even(6000))
    samples = prepare(
        log_of(arm, measured(run, "dq")), arm, cutoff=10.0, derivative="ema", min_speed=0.0
    )
    keep = np.exp(-2 * np.pi * 10.0 * 2e-3)

    def average(x: np.ndarray, start: np.ndarray) -> np.ndarray:
        return signal.lfilter([1 - keep], [1, -keep], x, axis=0, zi=keep * start)[0]

    for ours, raw in ((samples.q, run["q"]), (samples.dq, run["dq"]), (samples.tau, run["tau"])):
        np.testing.assert_allclose(ours, average(raw, raw[:1]), atol=1e-9 * np.max(np.abs(raw)))
    differences = np.diff(run["dq"], axis=0, prepend=run["dq"][:1]) / 2e-3
    np.testing.assert_allclose(
        samples.ddq,
        average(differences, np.zeros_like(differences[:1])),
        atol=1e-8 * np.max(np.abs(samples.ddq)),
    )
    assert samples.valid[-1].all()  # causal: nothing is missing at the end


def test_uneven_stamps_and_even_ones_give_one_motion(arm: th.Robot) -> None:
    w = 2 * np.pi * 1.5
    results = []
    for t in (even(9000), uneven(9000)):
        q = np.sin(w * t)[:, None] * np.ones(4)
        results.append(
            prepare(
                log_of(arm, {"t": t, "q": q, "tau": np.cos(w * t)[:, None] * np.ones(4)}),
                arm,
                cutoff=20.0,
                min_speed=0.0,
            )
        )
    for samples in results:
        rows = samples.valid.all(axis=1)
        assert (
            np.max(np.abs(samples.ddq[rows, 0] + w**2 * np.sin(w * samples.t[rows])))
            < filters.EDGE_WEIGHT * w**2
        )
        assert (
            np.max(np.abs(samples.ddq[:, 0] + w**2 * np.sin(w * samples.t))[500:-500]) < 1e-6 * w**2
        )


def test_a_burst_of_stamps_is_one_measurement(arm: th.Robot) -> None:
    t = even(4000)
    t[1000:1004] = t[1003] + np.arange(-3, 1) * 1e-6  # four late messages at once
    q = np.sin(5 * t)[:, None] * np.ones(4)
    q[1000:1004] = np.sin(5 * even(4000)[1000:1004])[:, None]  # with the values of their own times
    samples = prepare(log_of(arm, {"t": t, "q": q, "tau": q}), arm, cutoff=20.0, min_speed=0.0)
    assert np.max(np.abs(samples.q[1, :] - q[1])) < 1
    rows = samples.valid.all(axis=1)
    assert np.max(np.abs(samples.dq[rows, 0] - 5 * np.cos(5 * samples.t[rows]))) < 0.05 * 5


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("derivative", ["butterworth", "savgol", "ema"])
@pytest.mark.parametrize("stamps", [even, uneven])
@pytest.mark.parametrize(("rows", "piece"), [(500, 333), (4096, 65_536), (997, 13)])
def test_batches_equal_the_whole(
    arm: th.Robot, derivative: str, stamps, rows: int, piece: int
) -> None:
    rng = np.random.default_rng(3)
    runs = []
    for n, start in ((5000, 0.0), (9, 20.0), (1200, 30.0), (60, 50.0)):
        run = measured(motion(arm, stamps(n) + start), "dq")
        runs.append(
            {
                **run,
                "tau": run["tau"] + rng.normal(size=run["tau"].shape),
                "dq": run["dq"] + 0.01 * rng.normal(size=run["dq"].shape),
            }
        )
    runs[0]["tau"][700, 1] += 500.0
    log = log_of(
        arm,
        *runs,
        masks=(Mask(2, 480, 530, "saturated"), Mask(0, 5100, 6000, "dead-torque")),
        piece=piece,
    )
    whole = prepare(log, arm, derivative=derivative, cutoff=12.0)
    parts = list(prepare_batches(log, arm, derivative=derivative, cutoff=12.0, rows=rows))
    assert max(map(len, parts)) <= rows
    joined = concatenate(parts, same_log=True)
    assert difference(whole, joined) < BATCH
    np.testing.assert_array_equal(whole.reason, joined.reason)
    np.testing.assert_array_equal(whole.run, joined.run)
    np.testing.assert_allclose(whole.t, joined.t, rtol=1e-14)
    assert len(whole) == 5000 + 9 + 1200 + 60
    assert {"saturated", "dead torque", "edge", "outlier"} <= set(whole.dropped)


def test_the_settings_do_not_depend_on_how_a_log_is_cut(arm: th.Robot) -> None:
    log = log_of(
        arm,
        measured(motion(arm, uneven(9000)), "dq"),
        measured(motion(arm, even(3000) + 30, seed=5), "dq"),
    )
    first = choose(log, arm)
    for piece in (1000, 4321):
        assert choose(dataclasses.replace(log, piece=piece), arm) == first
    assert choose(log, arm, chunks=log.read()) == first


def test_memory_does_not_grow_with_the_log(arm: th.Robot) -> None:
    base = motion(arm, even(20_000))

    @dataclass(frozen=True)
    class Endless(HandLog):
        copies: int = 1

        runs = property(
            lambda self: (
                Run(
                    "0", 20_000 * self.copies, 0, 0.0, 2e-3 * (20_000 * self.copies - 1), 2e-3, 0.0
                ),
            )
        )
        rows = property(lambda self: 20_000 * self.copies)

        def chunks(self, rows: int = 0) -> Iterator[Chunk]:
            for copy in range(self.copies):
                yield Chunk(
                    base["t"] + 40.0 * copy,
                    base["q"],
                    base["dq"],
                    None,
                    base["tau"],
                    0,
                    20_000 * copy,
                )

    peaks = []
    for copies in (6, 24):
        log = Endless(log_of(arm, measured(base, "dq")).whole, arm.joint_names, copies=copies)
        settings = choose(log, arm, cutoff=10.0)
        tracemalloc.start()
        rows = sum(
            len(batch) for batch in prepare_batches(log, arm, settings=settings, rows=16_384)
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert rows == 20_000 * copies
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 60e6


# -- gaps, edges, held-out rows --------------------------------------------------------------------


def test_a_gap_with_a_jump_leaves_no_trace(arm: th.Robot) -> None:
    one, two = (
        measured(motion(arm, even(3000)), "dq"),
        measured(motion(arm, even(2500) + 7.0, seed=9), "dq"),
    )
    two = {**two, "q": two["q"] + 50.0, "dq": two["dq"] - 300.0, "tau": two["tau"] + 1e4}
    settings = choose(log_of(arm, one), arm)
    both = prepare(log_of(arm, one, two), arm, settings=settings)
    for number, run in enumerate((one, two)):
        alone = prepare(log_of(arm, run), arm, settings=settings)
        part = both.subset(both.run == number)
        for name in (*NAMES, "reason", "t"):
            np.testing.assert_array_equal(getattr(alone, name), getattr(part, name), err_msg=name)


def test_usable_rows_at_the_ends_are_those_of_a_longer_log(arm: th.Robot) -> None:
    run = measured(motion(arm, even(8000)))
    settings = Settings(cutoff=10.0, min_speed=(0.0,) * 4)
    long = prepare(log_of(arm, run), arm, settings=settings)
    short = prepare(
        log_of(arm, {name: value[3000:5000] for name, value in run.items()}), arm, settings=settings
    )
    rows = np.flatnonzero(short.valid.all(axis=1))
    assert 0 < rows[0] * 2e-3 < 0.4
    assert 0 < (1999 - rows[-1]) * 2e-3 < 0.4
    assert (short.reason[: rows[0]] == EDGE).all()
    assert (short.reason[rows[-1] + 1 :] == EDGE).all()
    for name in NAMES:
        error = np.abs(getattr(short, name)[rows] - getattr(long, name)[3000 + rows])
        assert np.max(error) < 2 * filters.EDGE_WEIGHT * np.max(np.abs(getattr(long, name))), name
    unsettled = np.abs(short.ddq - long.ddq[3000:5000])[[0, -1]]
    assert np.max(unsettled) > 0.05 * np.max(
        np.abs(long.ddq)
    )  # what would have been kept without the mark


@pytest.mark.parametrize("stamps", [even, uneven])
@pytest.mark.parametrize("derivative", ["butterworth", "savgol", "ema"])
def test_held_out_rows_touch_no_training_sample(arm: th.Robot, stamps, derivative: str) -> None:
    run = measured(motion(arm, stamps(6000)), "dq")
    rng = np.random.default_rng(0)
    log = log_of(arm, run)
    cut = prepare(log, arm, cutoff=10.0, derivative=derivative).split(0.6)[1].t[0]
    held_out = run["t"] >= cut
    changed = {
        name: (
            value
            if name == "t"
            else np.where(held_out[:, None], value + rng.normal(size=value.shape), value)
        )
        for name, value in run.items()
    }
    settings = choose(
        log, arm, cutoff=10.0, derivative=derivative, span=(0, int(np.sum(~held_out)))
    )
    trains = [prepare(log_of(arm, r), arm, settings=settings).split(0.6)[0] for r in (run, changed)]
    usable = trains[0].valid
    assert usable[: len(usable) // 2].any(axis=0).all()
    np.testing.assert_array_equal(usable, trains[1].valid)
    for name in ("dq", "ddq", "tau"):
        before, after = (getattr(train, name) for train in trains)
        assert np.max(np.abs(before - after)[usable]) < BATCH * np.max(np.abs(before)), name
        if derivative != "ema":
            assert (
                np.max(np.abs(before - after)[~usable]) > 1e-6
            )  # without the guard it would have leaked


def test_a_span_is_all_that_is_looked_at(arm: th.Robot) -> None:
    run = measured(motion(arm, even(6000)), "dq")
    changed = {name: value.copy() for name, value in run.items()}
    for name in ("q", "dq", "tau"):
        changed[name][4000:] = 1e3 * np.random.default_rng(0).normal(size=(2000, 4))
    first, second = (prepare(log_of(arm, r), arm, span=(0, 4000)) for r in (run, changed))
    assert len(first) == 4000
    for name in (*NAMES, "reason"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert first.provenance["rows"] == [0, 4000]
    rest = prepare(
        log_of(arm, run),
        arm,
        settings=choose(log_of(arm, run), arm, span=(0, 4000)),
        span=(4000, 6000),
    )
    assert rest.t[0] == pytest.approx(8.0)


# -- reasons ---------------------------------------------------------------------------------------


def test_standstill_is_marked_for_the_joint_that_stands(arm: th.Robot) -> None:
    t = even(10_000)
    ramp = np.clip((t - 8.0) / 0.5, 0, 1)
    q = np.column_stack([np.sin(2 * t), np.sin(2 * t) * (1 - ramp), np.sin(3 * t), np.sin(t)])
    q += 1e-6 * np.random.default_rng(0).normal(size=q.shape)
    samples = prepare(log_of(arm, {"t": t, "q": q, "tau": np.cos(t)[:, None] * np.ones(4)}), arm)
    still = samples.reason == STANDSTILL
    assert still[(samples.t > 9) & (samples.t < 19.5), 1].all()
    moving = samples.valid & (np.abs(samples.dq) > 0.15)
    assert moving[:, 0].mean() > 0.85  # a moving joint is left alone
    assert still[:, 0].mean() < 0.06
    turning = (np.abs(samples.dq[:, 0]) < 0.005) & (samples.reason[:, 0] != EDGE)
    assert turning.any()
    assert still[turning, 0].all()  # where it turns back, the sign of its friction is not known
    assert (
        STANDSTILL
        not in prepare(log_of(arm, {"t": t, "q": q, "tau": q}), arm, min_speed=0.0).reason
    )


def test_a_joint_that_never_moves_is_at_standstill_throughout(arm: th.Robot) -> None:
    run = motion(arm, even(4000))
    q, dq = run["q"].copy(), run["dq"].copy()
    q[:, 2], dq[:, 2] = 0.7, 0.0
    samples = prepare(log_of(arm, {**measured(run), "q": q, "dq": dq}), arm)
    assert np.isin(samples.reason[:, 2], (STANDSTILL, EDGE)).all()
    assert samples.valid[:, 0].mean() > 0.7


def test_spikes_are_taken_out_and_marked_and_their_neighbours_keep_their_values(
    arm: th.Robot,
) -> None:
    run = measured(motion(arm, even(6000)), "dq")
    rng = np.random.default_rng(0)
    run = {
        **run,
        "tau": run["tau"] + 0.05 * rng.normal(size=run["tau"].shape),
        "dq": run["dq"] + 0.01 * rng.normal(size=run["dq"].shape),
    }
    clean = prepare(log_of(arm, run), arm, cutoff=15.0)
    assert OUTLIER not in clean.reason
    spiked = {name: value.copy() for name, value in run.items()}
    for row, joint in ((1000, 0), (2500, 3), (2501, 3)):
        spiked["tau"][row, joint] += 300.0
    spiked["dq"][4000, 1] -= 40.0
    samples = prepare(log_of(arm, spiked), arm, cutoff=15.0)
    marked = samples.reason == OUTLIER
    assert marked[1000, 0]
    assert marked[2500:2502, 3].all()
    assert marked[4000].all()  # a wrong velocity concerns every torque
    assert marked.sum() < 30
    rows = samples.valid & clean.valid
    for name in ("dq", "ddq", "tau"):
        assert np.max(np.abs(getattr(samples, name) - getattr(clean, name))[rows]) < 0.02 * np.max(
            np.abs(getattr(clean, name))
        ), name


def test_steps_and_noise_are_no_spikes(arm: th.Robot) -> None:
    rng = np.random.default_rng(0)
    t = even(6000)
    q = np.sin(3 * t)[:, None] * np.ones(4)
    tau = 5 * np.sign(np.cos(3 * t))[:, None] + 0.3 * rng.standard_t(
        5, size=(6000, 4)
    )  # Coulomb friction, heavy tails
    tau[:, 2] = np.round(tau[:, 2])  # quantised
    samples = prepare(log_of(arm, {"t": t, "q": q, "tau": tau}), arm)
    assert (samples.reason == OUTLIER).sum() < 5


def test_masks_of_the_log_reach_as_far_as_its_filter(arm: th.Robot) -> None:
    run = measured(motion(arm, even(6000)))
    log = log_of(
        arm,
        run,
        masks=(Mask(1, 3000, 3100, "saturated"), Mask(3, 0, 6000, "no torque column")),
        locked=(arm.joint_names[2],),
    )
    samples = prepare(log, arm, cutoff=10.0, min_speed=0.0)
    saturated = np.flatnonzero(samples.reason[:, 1] == REASONS.index("saturated"))
    assert 2800 < saturated[0] < 2990
    assert 3110 < saturated[-1] < 3300
    assert len(saturated) == saturated[-1] - saturated[0] + 1
    assert (samples.reason[:, 2] == REASONS.index("locked")).all()
    assert (samples.reason[:, 3] == REASONS.index("no torque column")).all()
    damaged = {**run, "tau": run["tau"].copy()}
    damaged["tau"][3000:3100, 1] = 40.0
    other = prepare(
        HandLog(log_of(arm, damaged).whole, arm.joint_names, masks=log.masks),
        arm,
        cutoff=10.0,
        min_speed=0.0,
    )
    rows = other.valid[:, 1]
    assert np.max(np.abs(other.tau - samples.tau)[rows, 1]) < 0.1  # of 40 N·m


# -- joints with several degrees of freedom --------------------------------------------------------


def test_a_floating_base_turns_and_moves_as_its_body_twist_says() -> None:
    robot = th.load(robots.path("double_pendulum"), floating_base=True)
    assert robot.nq == robot.nv + 1
    t = even(5000)
    turn = Rotation.from_rotvec(np.column_stack([np.sin(2 * t), np.cos(1.3 * t), 0.4 * t]))
    h = 1e-5  # the oracle: SciPy's rotations, differenced
    later = Rotation.from_rotvec(
        np.column_stack([np.sin(2 * (t + h)), np.cos(1.3 * (t + h)), 0.4 * (t + h)])
    )
    omega = (turn.inv() * later).as_rotvec() / h
    x = np.column_stack([np.sin(t), np.cos(2 * t), 0.1 * t**2])
    v = turn.inv().apply(np.column_stack([np.cos(t), -2 * np.sin(2 * t), 0.2 * t]))
    joints = np.column_stack([np.sin(3 * t), np.cos(2 * t)])
    quaternion = (
        turn.as_quat() * np.where(np.arange(5000) % 700 < 350, 1, -1)[:, None]
    )  # either sign is the same turn
    q = np.column_stack([x, quaternion, joints])
    twist = np.column_stack([omega, v, 3 * np.cos(3 * t), -2 * np.sin(2 * t)])
    samples = prepare(
        log_of(robot, {"t": t, "q": q, "tau": np.sin(twist)}), robot, cutoff=20.0, min_speed=0.0
    )
    rows = samples.valid.all(axis=1)
    assert rows.mean() > 0.8
    np.testing.assert_allclose(samples.dq[rows], twist[rows], atol=1e-4)
    acceleration = filters.central_difference(twist, 2e-3)
    np.testing.assert_allclose(samples.ddq[rows], acceleration[rows], atol=2e-2)
    np.testing.assert_allclose(np.linalg.norm(samples.q[:, 3:7], axis=1), 1.0, atol=1e-12)
    batches = concatenate(
        prepare_batches(
            log_of(robot, {"t": t, "q": q, "tau": np.sin(twist)}, piece=777),
            robot,
            cutoff=20.0,
            min_speed=0.0,
            rows=900,
        ),
        same_log=True,
    )
    assert difference(samples, batches) < BATCH
