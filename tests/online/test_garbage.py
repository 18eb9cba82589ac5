"""Numbers that no sensor means: finite, but garbage. None passes for noise, none stays in the
memory, none is raised in a control loop.
"""

from __future__ import annotations

import fault_streams as cases
import numpy as np
import pytest
from fault_cases import snapshot, warmed
from fault_streams import PERIOD, clean, identifier

from thetahat.errors import UsageError
from thetahat.online.config import GateRules
from thetahat.online.gate import Gate
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.stream import CONSTANT, MISSING

ELBOW = 3


def with_(array: np.ndarray, j: int, value: float) -> np.ndarray:
    out = array.copy()
    out[j] = value
    return out


@pytest.mark.parametrize("lie", ["dead", "flipped"])
def test_garbage_in_the_first_sample_does_not_pass_for_noise(lie: str) -> None:
    """A torque of 1000 N·m in sample 0, then a channel that lies: its noise was taken for 3 N·m,
    and an R² of −7000 for good enough.
    """
    one, rng = identifier(), np.random.default_rng(0)
    for k, (t, q, dq, tau) in enumerate(clean(0).cycles[: round(8.0 / PERIOD)]):
        tau = with_(
            tau, ELBOW, cases.sigma()[ELBOW] * rng.normal() if lie == "dead" else -tau[ELBOW]
        )
        one.push(t, q, dq, with_(tau, ELBOW, 1000.0) if k == 0 else tau)
        assert not one.gate.open, one.gate.reason
    assert one._stream.torque_noise[ELBOW] < 0.1
    assert one.events.counts["spike"] + one.events.counts["start"] >= 1


@pytest.mark.parametrize("channel", [1, 2, 3])
@pytest.mark.parametrize("at", [0, 1, 2, 7, 19])
def test_one_garbage_sample_among_the_first_costs_a_moment_only(channel: int, at: int) -> None:
    """It leaves nothing behind: noise and usual steps are those of the clean stream, and what was
    averaged with it is forgotten.
    """
    one, plain = identifier(memory="growing"), identifier(memory="growing")
    for k, cycle in enumerate(clean(0).cycles[:250]):
        plain.push(*cycle)
        arrays = list(cycle)
        if k == at:
            arrays[channel] = with_(arrays[channel], ELBOW, 1e5)
        one.push(*arrays)
    assert one.events.counts["spike"] + one.events.counts["start"] >= 1
    assert np.all(one._stream.torque_noise < 2.0 * plain._stream.torque_noise)
    assert np.max(np.abs(one._stream.sample.tau - plain._stream.sample.tau)) < 0.02 * np.max(
        np.abs(plain._stream.sample.tau)
    )
    assert np.max(np.abs(one._learner.memory._factors)) < 2.0 * np.max(
        np.abs(plain._learner.memory._factors)
    )


def test_garbage_right_after_a_gap_starts_the_filter_anew() -> None:
    one, at = warmed(0)
    one, cycles = snapshot(one), clean(0).cycles
    noise, spikes = one._stream.torque_noise.copy(), one.events.counts["spike"]
    for k in range(at + 30, at + 130):  # 30 are missing
        t, q, dq, tau = cycles[k]
        one.push(t, q, dq, with_(tau, ELBOW, 1000.0) if k == at + 30 else tau)
        if k == at + 35:
            assert one.robot is one.nominal, "nothing is known of the moment"
    assert one.events.counts["spike"] == spikes + 1
    assert np.all(one._stream.torque_noise < 1.5 * noise)
    assert abs(one._stream.sample.tau[0, ELBOW]) < 50.0
    assert one.gate.open, "the model was never in doubt"


@pytest.mark.parametrize("value", [1e160, 1e200, -1e12])
@pytest.mark.parametrize("memory", ["window", "growing"])
def test_an_absurd_number_is_as_good_as_none(value: float, memory: str) -> None:
    """Finite, but its square is not: noise stayed infinite and push raised, or factors were broken
    for good.
    """
    one = identifier(memory=memory)
    for k, (t, q, dq, tau) in enumerate(clean(0).cycles[: round(6.0 / PERIOD)]):
        one.push(t, q, dq, with_(tau, 0, value) if k in (0, 400) else tau)
    assert one.events.counts["not finite"] == 2
    assert np.all(np.isfinite(one._stream.torque_noise))
    assert one.gate.open, one.gate.reason


def test_noise_that_is_not_finite_opens_no_gate() -> None:
    from test_gate import evidence

    for noise in (np.inf, np.nan):
        gate = Gate(GateRules())
        gate.judge(10.0, evidence(noise=np.array([noise, 0.01])))
        assert not gate.state.open
        assert "noise of the torques is not finite" in gate.state.reason


def test_a_bad_stamp_costs_no_digit_of_the_clock() -> None:
    """1e300 s, not a number, or a clock set forward by years: what comes after is stamped as finely
    as before.
    """
    one, cycles, stamps = (
        identifier(),
        clean(0).cycles,
        {20: np.nan, 30: 1e300, 40: -1e300, 50: 1e9},
    )
    for k, (t, q, dq, tau) in enumerate(cycles[:300]):
        one.push(stamps.get(k, t), q, dq, tau)
        assert one.clock < 10.0
    assert one.events.counts["not finite"] == 3
    assert one.events.counts["clock"] == 2  # forward, and back
    before = one.clock
    one.push(*cycles[300])
    assert one.clock - before == pytest.approx(PERIOD, rel=1e-6)


# -- samples that are refused ----------------------------------------------------------------------


def test_a_refused_sample_is_a_missing_one() -> None:
    """Nineteen are held, with the twentieth the nominal robot is used, though each raises."""
    one, at = warmed(0)
    one = snapshot(one)
    for k in range(MISSING + 5):
        t, q, dq, tau = clean(0).cycles[at + k]
        with pytest.raises(UsageError):
            one.push(t, q, dq, tau[:3])
        assert one.gate.open == (k + 1 < MISSING)
    assert one.robot is one.nominal
    assert one.events.counts["refused"] == MISSING + 5


# -- rates -----------------------------------------------------------------------------------------


def test_a_queue_of_samples_at_the_start_does_not_decide_the_rate() -> None:
    """Ten samples 50 µs apart that had waited, then 250 Hz: every sample was a gap for ever."""
    one = OnlineIdentifier(cases.nominal(), rate=10.0, window=50)
    for k, (_, q, dq, tau) in enumerate(clean(0).cycles[:1600]):
        one.push(5e-5 * k if k < 11 else 5e-4 + PERIOD * (k - 10), q, dq, tau)
    assert one._stream.clock.period == pytest.approx(PERIOD)
    assert one.events.counts["rate"] == 1
    assert any("samples come every 0.004 s" in event.sentence for event in one.events)
    assert one.gate.open, one.gate.reason


@pytest.mark.parametrize("every", [2, 4])
def test_another_rate_is_a_reset_and_is_said(every: int) -> None:
    one, at = warmed(0)
    one, closed = snapshot(one), False
    for cycle in clean(0).cycles[at : at + 100 * every : every]:
        one.push(*cycle)
        closed |= not one.gate.open
    assert one._stream.clock.period == pytest.approx(every * PERIOD)
    assert one.events.counts["rate"] == 1
    assert closed
    assert one.events.counts["gap"] == 0


def test_a_slow_torque_channel_is_not_a_dead_one() -> None:
    """Refreshed every 25 cycles it is slow; a torque that stays the same for longer than CONSTANT
    while the joint moves is dead.
    """
    one, cycles = identifier(), clean(0).cycles
    for k, (t, q, dq, _) in enumerate(cycles[:1000]):
        one.push(t, q, dq, cycles[k // 25 * 25][3])
    assert one.events.counts["dead torque"] == 0
    for t, q, dq, _ in cycles[1000 : 1000 + round(2.0 * CONSTANT / PERIOD)]:
        one.push(t, q, dq, cycles[1000][3])
    assert one.events.counts["dead torque"] >= 1


# -- nothing is raised -----------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["window", "growing", "forgetting", "informative"])
def test_no_data_raise(memory: str) -> None:
    """Garbage of any size, sign and duration in any channel, stamps too, on an open gate: every
    cycle ends, and commands stay finite.
    """
    rng = np.random.default_rng(7)
    one = identifier(memory=memory)
    for k, cycle in enumerate(clean(0).cycles):
        t, *arrays = (cycle[0], *(array.copy() for array in cycle[1:]))
        if k > 1400 and rng.random() < (0.3 if k % 400 < 200 else 0.0):
            for _ in range(int(rng.integers(1, 4))):
                value = rng.choice(
                    [
                        0.0,
                        np.nan,
                        np.inf,
                        rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-300.0, 300.0),
                        10.0 ** rng.uniform(0.0, 9.0),
                    ]
                )
                arrays[rng.integers(3)][rng.integers(4)] = value
        one.push(
            t + rng.choice([0.0, 1e300, -5.0, np.nan], p=[0.997, 0.001, 0.001, 0.001]), *arrays
        )
        assert one.gate.open == (one.robot is not one.nominal)
    assert np.all(np.isfinite(one._stream.torque_noise))
    assert np.all(np.isfinite(one.robot.theta))
