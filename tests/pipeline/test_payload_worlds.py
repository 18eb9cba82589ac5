"""Payloads of an arm from somebody else's package, its torques by MuJoCo: the short version of
`make payloads`.
"""

from __future__ import annotations

import pytest

pytest.importorskip("mujoco")
payloads = pytest.importorskip("benchmarks.payloads")
ARMS = {arm.name: arm for arm in payloads.ARMS if arm.name in payloads.NAMES}


def bench(name: str) -> object:
    if ARMS[name].path is None:
        pytest.skip("robosuite is not installed (pip install robosuite)")
    return payloads.Bench(ARMS[name])


@pytest.mark.parametrize("unknown_gains", [False, True])
@pytest.mark.parametrize("name", ["panda"])
def test_a_payload_of_one_kilogram(name: str, *, unknown_gains: bool) -> None:
    """Friction with a Stribeck part, coloured noise, encoder noise, masses of the file off by 10 %;
    gains right, or off by up to 15 % beside a payload that was weighed.
    """
    run = bench(name).run(2, unknown_gains=unknown_gains)
    assert run.true_mass == 1.0
    assert abs(run.mass_error) <= 0.01
    assert run.com_error <= 3e-3
    assert run.mass_inside
    assert run.level in ("good", "usable")


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["known gains", "unknown gains"])
def test_intervals_hold(experiment: str) -> None:
    runs = [
        bench(name).run(seed, unknown_gains=experiment == "unknown gains")
        for name in ARMS
        for seed in range(1000, 1020)
    ]
    found = payloads.summary(runs)
    assert found["mass_within_1_percent_or_10_g"] == 1.0
    assert found["mass_coverage"] >= 0.9
    assert found["com_coverage"] >= 0.9
    assert found["com_error_at_1_kg_largest"] <= 3e-3
