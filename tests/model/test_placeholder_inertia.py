"""Files whose inertias are made up are recognised, and real ones are not."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from data_paths import SHARED, example_robot

import thetahat as th
from thetahat import robots
from thetahat.model.placeholder_inertia import placeholder_reason

BOX = '<inertia ixx="{0}" iyy="{0}" izz="{0}" ixy="0" ixz="0" iyz="0"/>'
LINK = '<inertia ixx="0.02" iyy="0.02" izz="0.004" ixy="0" ixz="0" iyz="0"/>'


def chain(folder: Path, bodies: list[tuple[float, str, str]], *, serial: bool = True) -> th.Robot:
    """Links of (mass, centre of mass, inertia), each on the one before or all on the base."""
    parts = ['<link name="l0"/>']
    for k, (mass, com, inertia) in enumerate(bodies, start=1):
        parent = f"l{k - 1}" if serial else "l0"
        parts.append(
            f'<joint name="j{k}" type="continuous"><parent link="{parent}"/><child link="l{k}"/>'
            f'<origin xyz="0 0 0.3"/><axis xyz="0 1 0"/></joint><link name="l{k}"><inertial>'
            f'<origin xyz="{com}"/><mass value="{mass}"/>{inertia}</inertial></link>'
        )
    (folder / "chain.urdf").write_text(f'<robot name="chain">{"".join(parts)}</robot>')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return th.load(folder / "chain.urdf")


OFF = "0 0 0.1"


@pytest.mark.parametrize(
    ("bodies", "serial", "expected"),
    [
        ([(2.0, OFF, LINK), (1.0, OFF, LINK), (0.5, OFF, LINK)], True, None),
        ([(0.0, OFF, BOX.format(0))] * 3, True, "no body has mass"),
        ([(2.0, OFF, BOX.format(1)), (1.0, OFF, BOX.format(1))], True, "all axes"),
        ([(2.0, OFF, BOX.format(1e-3)), (1.0, OFF, BOX.format(1e-3)), (0.1, OFF, LINK)],
         True, "all axes"),
        ([(2.0, OFF, LINK), (1.0, OFF, LINK), (0.1, OFF, BOX.format(1e-3))], True, None),
        ([(1.0, OFF, LINK)] * 2, True, "same mass and inertia"),
        ([(1.0, OFF, LINK)] * 2, False, None),
        ([(3.0, "0 0 0", LINK), (2.0, "0 0.1 0", LINK), (1.0, "0 0 0", LINK)], True, "axis"),
        ([(3.0, "0 0 0", LINK), (2.0, "0 0.1 0", LINK), (1.0, "0 0 0", LINK)], False, None),
        ([(3.0, "0 0 0", LINK), (2.0, OFF, LINK), (1.0, "0 0 0", LINK)], True, None),
        ([(0.0, "0 0 0", BOX.format(0)), (2.0, OFF, LINK)], True, None),
    ],
)  # fmt: skip
def test_rules(
    tmp_path: Path, bodies: list[tuple[float, str, str]], serial: bool, expected: str | None
) -> None:
    reason = placeholder_reason(chain(tmp_path, bodies, serial=serial))
    assert (reason is None) if expected is None else (reason is not None and expected in reason)


@pytest.mark.parametrize("name", robots.names())
def test_shipped_robots_are_real(name: str) -> None:
    assert placeholder_reason(th.load(robots.path(name))) is None


@pytest.mark.parametrize("name", ["panda", "ur5", "kinova", "talos", "solo12", "xarm7", "baxter"])
def test_real_robots_are_real(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert placeholder_reason(th.load(example_robot(name))) is None


@pytest.mark.slow
def test_files_of_the_corpus() -> None:
    """Of the files that load, a quarter has placeholders: read by hand, a sample of them does."""
    if not (SHARED / "models").is_dir():
        pytest.skip("the corpus of robot files is not there")
    flagged, fine = set(), set()
    for path in sorted((SHARED / "models").rglob("*.urdf")):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                robot = th.load(path)
        except th.ThetahatError:
            continue
        if robot.body_names:
            (flagged if placeholder_reason(robot) else fine).add(path.name)
    assert {"kr120r2500pro.urdf", "abbYuMi.urdf", "m710ic50.urdf", "schunk_lwa4d.urdf"} <= flagged
    assert 40 <= len(flagged) <= 90
    assert len(fine) >= 100
