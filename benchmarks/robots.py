"""Robots of the benchmarks, as this project and as Pinocchio read them, with joints in the same
order.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots

EXAMPLES = {
    "UR5": "ur_description/urdf/ur5_robot.urdf",
    "Panda": "panda_description/urdf/panda.urdf",
    "TALOS": "talos_data/robots/talos_full_v2.urdf",
}


VALKYRIE = (
    Path(__file__).resolve().parents[2]
    / "shared"
    / "data"
    / "robots"
    / "valkyrie"
    / "derived_valkyrie_A_44dof.urdf"
)


def valkyrie() -> Path:
    """44 joints: the published model where it is beside the repository, else the robot of its
    dimensions that ships with the package.
    """
    return VALKYRIE if VALKYRIE.is_file() else robots.path("valkyrie")


@dataclass(frozen=True, eq=False)
class Pair:
    """One robot twice, and random states in both orders."""

    name: str
    robot: th.Robot
    model: object  # pinocchio.Model
    data: object
    states: tuple[np.ndarray, np.ndarray, np.ndarray]  # q, dq, ddq, this project's order
    peer_states: tuple[np.ndarray, np.ndarray, np.ndarray]


def example_folder() -> Path:
    """Where example-robot-data keeps its files."""
    import pinocchio

    for parent in Path(pinocchio.__file__).parents:
        found = parent / "share" / "example-robot-data" / "robots"
        if found.is_dir():
            return found
        found = parent / "cmeel.prefix" / "share" / "example-robot-data" / "robots"
        if found.is_dir():
            return found
    raise SystemExit("example-robot-data is not installed; run `make bench`, which installs it")


def pair(name: str, path: Path, samples: int) -> Pair:
    """Load a robot twice and draw states."""
    import pinocchio

    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        # Pinocchio reads mimic joints as free ones, so both get the file without them: the same
        # work for both.
        free = Path(folder) / path.name
        free.write_text(
            re.sub(r"<mimic[^>]*/>", "", path.read_text(encoding="utf-8")), encoding="utf-8"
        )
        robot = th.load(free)
        model = pinocchio.buildModelFromUrdf(str(free))
    if model.nq != model.nv or model.nv != robot.nv:
        raise SystemExit(
            f"{name}: continuous joints make Pinocchio's q differ; choose another robot for the"
            " benchmark"
        )
    rng = np.random.default_rng(0)
    states = tuple(rng.normal(size=(samples, robot.nv)) for _ in range(3))
    order = [robot.joint_names.index(joint) for joint in list(model.names)[1:]]
    return Pair(
        name,
        robot,
        model,
        model.createData(),
        states,
        tuple(np.ascontiguousarray(s[:, order]) for s in states),
    )
