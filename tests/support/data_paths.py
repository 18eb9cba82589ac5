"""Where test robots and logs are: beside the repository (../shared/data, or where the environment
variable THETAHAT_SHARED says that ../shared is) and in the example-robot-data package.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("THETAHAT_SHARED", ROOT.parent / "shared")) / "data"
STRD = ROOT / "tests" / "data" / "strd"  # NIST's certified regressions, kept here
EXAMPLES = (
    Path(sysconfig.get_paths()["purelib"])
    / "cmeel.prefix"
    / "share"
    / "example-robot-data"
    / "robots"
)

NO_SHARED = "the shared data folder is not beside the repository"
NO_EXAMPLES = "example-robot-data is not installed (pip install example-robot-data)"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=NO_SHARED)
needs_examples = pytest.mark.skipif(not EXAMPLES.is_dir(), reason=NO_EXAMPLES)

# Robots of example-robot-data that tests across the suite use: arms, hands, quadrupeds, humanoids.
EXAMPLE_ROBOTS = {
    "panda": "panda_description/urdf/panda.urdf",
    "ur5": "ur_description/urdf/ur5_robot.urdf",
    "ur10": "ur_description/urdf/ur10_robot.urdf",
    "kinova": "kinova_description/robots/kinova.urdf",
    "talos": "talos_data/robots/talos_reduced.urdf",
    "talos_full": "talos_data/robots/talos_full_v2.urdf",
    "icub": "icub_description/robots/icub.urdf",
    "solo12": "solo_description/robots/solo12.urdf",
    "anymal": "anymal_b_simple_description/robots/anymal.urdf",
    "hyq": "hyq_description/robots/hyq_no_sensors.urdf",
    "tiago": "tiago_description/robots/tiago.urdf",
    "baxter": "baxter_description/urdf/baxter.urdf",
    "romeo": "romeo_description/urdf/romeo.urdf",
    "g1": "g1_description/urdf/g1_29dof_rev_1_0.urdf",
    "allegro": "allegro_hand_description/urdf/allegro_right_hand.urdf",
    "xarm7": "xarm_description/urdf/xarm7.urdf",
}


def thinned(values: Sequence[Any], every: int) -> list[Any]:
    """Parameters of a test: one of `every` many is in `make test`, the others are slow tests."""
    return [
        value if k % every == 0 else pytest.param(value, marks=pytest.mark.slow)
        for k, value in enumerate(values)
    ]


def shared_file(*parts: str) -> Path:
    """A file or folder below ../shared/data; skips the test where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)}: {NO_SHARED}")
    return path


def example_robot(name: str) -> Path:
    """The URDF of one of `EXAMPLE_ROBOTS`; skips the test where the package is absent."""
    path = EXAMPLES / EXAMPLE_ROBOTS[name]
    if not path.is_file():
        pytest.skip(f"{name}: {NO_EXAMPLES}")
    return path


def valkyrie() -> list[Path]:
    """The Valkyrie models of ../shared/data/robots, largest first; skips where absent."""
    return sorted(
        shared_file("robots", "valkyrie").rglob("*.urdf"), key=lambda path: -path.stat().st_size
    )


def corpus(pattern: str) -> list[tuple[str, Path]]:
    """(short name, path) of every file matching the pattern in ../shared/data and in
    example-robot-data; empty where absent.
    """
    found = []
    for title, folder in (
        ("models", SHARED / "models"),
        ("robots", SHARED / "robots"),
        ("logs", SHARED / "logs"),
        ("example-robot-data", EXAMPLES),
    ):
        found += [
            (f"{title}/{path.relative_to(folder).as_posix()}", path)
            for path in sorted(folder.rglob(pattern))
        ]
    return found
