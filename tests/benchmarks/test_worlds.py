"""The online loop on an arm of somebody else's package: one here, all of them by `make worlds`."""

from __future__ import annotations

import pytest

pytest.importorskip("mujoco", reason="the worlds are simulated by MuJoCo (pip install mujoco)")

from benchmarks import worlds

PANDA = next(arm for arm in worlds.ARMS if arm.name == "panda")


@pytest.mark.skipif(
    PANDA.path is None, reason="robosuite is not installed (make worlds installs its files)"
)
def test_an_arm_of_others_with_dry_friction_tracks_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "SECONDS", 30.0)
    outcome = worlds.run(PANDA, 0.8)
    assert outcome.good, (outcome.reason, outcome.closings, outcome.alarms, outcome.ratio)
