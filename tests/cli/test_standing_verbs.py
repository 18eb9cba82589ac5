"""`excite` and `simulate` with --floating-base, and `identify` on what they write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from data_paths import example_robot
from identify_cases import Done
from test_schemas import require

import thetahat as th

pytest.importorskip("mujoco")
Thetahat = Callable[..., Done]
FEET = "FL_FOOT,FR_FOOT,HL_FOOT,HR_FOOT"


def test_a_sway_is_designed_simulated_and_identified(thetahat: Thetahat, tmp_path: Path) -> None:
    robot, floating = example_robot("solo12"), ("--floating-base", "--contacts", FEET)
    motion, log = tmp_path / "motion.csv", tmp_path / "log.csv"
    designed = thetahat(
        *("excite", robot, *floating, "--out", motion, "--duration", 5, "--json", "--quiet")
    )
    require("standing_motion", designed.data)
    simulated = thetahat(
        *("simulate", robot, motion, *floating, "--out", log, "--rate", 250, "--imu", "base_link"),
        *("--torque-noise", 0.005, "--viscous", 0.01, "--coulomb", 0.01, "--json", "--quiet"),
    )
    require("simulate", simulated.data)
    assert len(simulated.data["joints"]) == 12
    identified = thetahat(
        *("identify", robot, log, "--floating-base", "--cutoff", 8),
        *("--json", "--out", tmp_path / "out", "--quiet"),
    )
    mass = identified.data["plausibility"]["total_mass"]
    assert mass == pytest.approx(th.load(robot, floating_base=True).mass, rel=5e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "no TRAJECTORY"),
        (("--floating-base",), "--contacts left_foot,right_foot"),
        (("--floating-base", "--contacts", "hoof"), "no moving link 'hoof'"),
        (("--contacts", FEET), "needs --floating-base"),
        (("--floating-base", "--contacts", FEET, "--plant", "own"), "--plant mujoco"),
        (("--floating-base", "--contacts", FEET, "--imu", "nose"), "no moving link 'nose'"),
        (("--floating-base", "--contacts", FEET, "--duration", "0"), "--duration"),
    ],
)
def test_wrong_options_are_named(
    thetahat: Thetahat, options: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    done = thetahat("simulate", example_robot("solo12"), *options, "--out", tmp_path / "l.csv")
    assert done.code == 2
    assert sentence in done.err
