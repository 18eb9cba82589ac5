"""A result of `identify` that the tests of exports share, and the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import simulated_log

import thetahat as th


@pytest.fixture(scope="session")
def identified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small arm's result."""
    folder = tmp_path_factory.mktemp("identified")
    log = simulated_log.simulated(folder, noise=0.02)
    settings = th.IdentifySettings(report=False, tune=False)
    th.identify("arm4", log, settings=settings).save(folder / "result")
    return folder / "result"


@pytest.fixture
def actuators(tmp_path: Path) -> Callable[..., Path]:
    """Write an actuators.json of arm4; changes are made to its first joint."""

    def write(**changes: object) -> Path:
        joints = [
            {
                "name": name,
                "armature": 0.05,
                "viscous": 0.4,
                "coulomb": 0.6,
                "kp": 300.0,
                "kd": 12.0,
                "delay": 0.012,
                "bias": 0.002,
                "std": {"armature": 0.002, "viscous": 0.02, "coulomb": 0.03, "kp": 5.0},
                "rms_test": 0.01,
                "rms_nominal": 0.05,
            }
            for name in th.load(_arm4()).velocity_names
        ]
        joints[0] |= changes
        data = {
            "schema": "thetahat/actuators/1",
            "joints": joints,
            "rms_test": 0.01,
            "rms_nominal": 0.05,
            "verdict": {"level": "good", "summary": "", "reasons": [], "next_steps": []},
            "provenance": {"robot_file": str(_arm4())},
        }
        path = tmp_path / "actuators.json"
        path.write_text(json.dumps(data))
        return path

    return write


def _arm4() -> Path:
    from thetahat import robots

    return robots.path("arm4")
