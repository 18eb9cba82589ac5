"""The online loop on an arm of somebody else's package: one here, all of them by `make worlds`."""

from __future__ import annotations

import pytest

pytest.importorskip("mujoco", reason="the worlds are simulated by MuJoCo (pip install mujoco)")

from benchmarks import worlds

UR5E, PANDA = (next(arm for arm in worlds.ARMS if arm.name == name) for name in ("ur5e", "panda"))


@pytest.mark.skipif(
    PANDA.path is None, reason="robosuite is not installed (make worlds installs its files)"
)
@pytest.mark.parametrize(
    ("arm", "friction"),
    [(UR5E, 0.05), pytest.param(PANDA, 0.8, marks=pytest.mark.slow)],
    ids=["ur5e", "panda"],
)
def test_an_arm_of_others_with_dry_friction_tracks_better(
    monkeypatch: pytest.MonkeyPatch, arm: worlds.Arm, friction: float
) -> None:
    """In every 5 s after the switch, too: the UR5e's last wrist has 1e-4 kg·m², which slow motion
    does not tell.
    """
    monkeypatch.setattr(worlds, "SECONDS", 34.0)
    outcome = worlds.run(arm, friction)
    assert outcome.worst > 0.0, "some window is judged"
    assert outcome.good, (outcome.reason, outcome.closings, outcome.alarms, outcome.ratio)
