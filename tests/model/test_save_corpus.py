"""Robots of the corpus, changed and written: the diff is the changed values, and other engines read
the intended robot from it.
"""

from __future__ import annotations

import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_paths import EXAMPLES, SHARED, needs_examples, needs_shared
from save_cases import (
    changed_inertials,
    changed_values,
    loaded,
    single_links,
    states,
    stretched,
    varied,
    with_link,
)

import thetahat as th
from thetahat.errors import RobotWarning
from thetahat.model import parameters
from thetahat.model.io.save import Saved, save
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

AGREEMENT = 1e-9  # [N·m or N]; the bound
SEEN = 1e-5  # [N·m or N]; a change must be seen in the torques to count as compared
URDF = sorted(EXAMPLES.rglob("*.urdf"))
MJCF = sorted(
    path
    for name in ("mjcf_stripped", "dm_control", "bullet3", "mujoco_menagerie")
    for path in (SHARED / "models" / name).rglob("*.xml")
)
# Every fourth robot of the corpus, and in the slow version all.
sampled = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
INERTIA = {"ixx", "ixy", "ixz", "iyy", "iyz", "izz"}


def quietly(robot: Robot, path: Path) -> Saved:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        return save(robot, path)


def pinocchio_torques(path: Path, robot: Robot, state: tuple[np.ndarray, ...]) -> np.ndarray | None:
    from oracles import pinocchio_bridge

    if any(node.kind is JointKind.PLANAR for node in robot.tree.nodes):
        return None  # Pinocchio takes no notice of a planar joint's axis
    return pinocchio_bridge.from_urdf(path, robot, mimic=False).inverse_dynamics(*state)


# -- URDF ------------------------------------------------------------------------------------------


@needs_examples
@sampled
def test_urdf_with_another_link_differs_in_that_links_values(tmp_path: Path, every: int) -> None:
    """Another mass: one value of the file. Another inertia: the link's mass, centre and six
    moments, and no more. Pinocchio reads what was meant.
    """
    pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    rng, target, compared, worst = np.random.default_rng(1), tmp_path / "robot.urdf", 0, 0.0
    for path in URDF[::every]:
        robot = loaded(path)
        links = single_links(robot) if robot else []
        if not links:
            continue
        link = links[int(rng.integers(len(links)))]
        mass, com, inertia = parameters.to_mass_com_inertia(link.theta)
        heavier = with_link(
            robot, link, parameters.from_mass_com_inertia(1.25 * mass, com, inertia)
        )
        quietly(heavier, target)
        values = changed_values(path.read_bytes(), target.read_bytes())
        assert [(v.owner, v.tag, v.attribute) for v in values] == [(link.name, "mass", "value")], (
            path
        )
        assert float(values[0].new) == pytest.approx(1.25 * float(values[0].old), rel=1e-15)

        changed = with_link(robot, link, stretched(link.theta, rng))
        saved = quietly(changed, target)
        values = changed_values(path.read_bytes(), target.read_bytes())
        assert {v.owner for v in values} == {link.name}
        assert {(v.tag, v.attribute) for v in values} == {
            ("origin", "xyz"),
            ("mass", "value"),
            *(("inertia", key) for key in INERTIA),
        }, path
        assert saved.files == (target,)

        state = states(changed)
        expected, measured = (
            th.inverse_dynamics(changed, *state, rigid=True),
            pinocchio_torques(target, changed, state),
        )
        if measured is not None:
            worst = max(worst, float(np.max(np.abs(measured - expected))))
            compared += (
                np.max(np.abs(th.inverse_dynamics(robot, *state, rigid=True) - expected)) > SEEN
            )
    print(f"worst of {compared}: {worst:.2g} N·m")
    assert worst < AGREEMENT
    assert compared >= (60 if every == 1 else 12)


def urdf_skeleton(text: bytes) -> bytes:
    """All but what may change: inertials and dynamics."""
    text = re.sub(rb"\s*<inertial>.*?</inertial>", b"", text, flags=re.DOTALL)
    return re.sub(rb"\s*<dynamics\b[^>]*?(/>|>\s*</dynamics>)", b"", text)


@needs_examples
@sampled
def test_urdf_with_all_bodies_and_drives_changed(tmp_path: Path, every: int) -> None:
    """Every body, with the links welded into it, and all friction: Pinocchio reads the same
    torques; damping and friction are in the file.
    """
    pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    compared, worst = 0, 0.0
    for number, path in enumerate(URDF[::every]):
        robot = (loaded(path, floating_base=True) if number % 2 else None) or loaded(path)
        if robot is None:
            continue
        changed, target = varied(robot, number), tmp_path / "robot.urdf"
        saved = quietly(changed, target)
        assert saved.not_in_file == (("offset", "armature") if np.any(changed.drive.offset) else ())
        assert saved.torque_error < AGREEMENT
        assert urdf_skeleton(path.read_bytes()) == urdf_skeleton(target.read_bytes())
        floating = "root_joint" in robot.tree.index_of
        again = loaded(target, floating_base=floating)
        for term in ("viscous", "coulomb"):
            np.testing.assert_allclose(
                again.drive.value(term), changed.drive.value(term), rtol=1e-14
            )
        physical = {link.name for link in robot.links if parameters.check(link.theta)}
        assert all(parameters.check(link.theta) for link in again.links if link.name in physical), (
            path
        )
        state = states(changed)
        if not any(node.kind is JointKind.PLANAR for node in robot.tree.nodes):
            from oracles import pinocchio_bridge

            measured = pinocchio_bridge.from_urdf(
                target, changed, floating_base=floating, mimic=False
            ).inverse_dynamics(*state)
            worst = max(
                worst,
                float(np.max(np.abs(measured - th.inverse_dynamics(changed, *state, rigid=True)))),
            )
            compared += 1
    print(f"worst of {compared}: {worst:.2g} N·m")
    assert worst < AGREEMENT
    assert compared >= (60 if every == 1 else 12)


# -- MJCF ------------------------------------------------------------------------------------------


def mjcf_folder(path: Path, tmp_path: Path, copies: dict[Path, Path]) -> Path:
    """The file in a copy of its folder, where a new file can stand beside it."""
    folder = next(
        parent
        for parent in path.parents
        if parent.parent.name in ("mujoco_menagerie", "models", "mjcf_stripped")
    )
    if folder not in copies:
        copies[folder] = tmp_path / f"folder{len(copies)}"
        shutil.copytree(folder, copies[folder])
    return copies[folder] / path.relative_to(folder)


def mujoco_torques(path: Path, robot: Robot, state: tuple[np.ndarray, ...]) -> np.ndarray | None:
    from oracles import mujoco_bridge

    try:
        return mujoco_bridge.from_mjcf(path, robot).inverse_dynamics(*state)
    except ValueError:  # a mesh or texture is not there
        return None


@needs_shared
@sampled
def test_mjcf_with_another_body_differs_in_that_bodys_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """As for URDF, read by MuJoCo; files whose values lie in an included one are compared there."""
    pytest.importorskip("mujoco", reason="MuJoCo reads MJCF (pip install mujoco)")
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file in the working folder
    rng, copies, written, in_place, compared, worst = np.random.default_rng(1), {}, 0, 0, 0, 0.0
    for original in MJCF[::every]:
        path = mjcf_folder(original, tmp_path, copies)
        robot = loaded(path)
        links = [link for link in single_links(robot) if link.has_inertia] if robot else []
        if not links:
            continue
        link = links[int(rng.integers(len(links)))]
        changed = with_link(robot, link, stretched(link.theta, rng))
        saved = quietly(changed, path.with_name("copy.xml"))
        try:
            pairs = [
                (
                    path if file == saved.path else file.with_name(file.name.removeprefix("copy_")),
                    file,
                )
                for file in saved.files
            ]
            found = [
                changed_inertials(before.read_bytes(), after.read_bytes())
                for before, after in pairs
            ]
            inertials = [inertial for changes, _ in found for inertial in changes]
            others = [tag for _, tags in found for tag in tags]
            overridden = any(
                b"inertiafromgeom" in tag for tag in others
            )  # then what it overrode is stated, too
            assert overridden or len(inertials) == 1, original
            assert (
                link.name.startswith("body")
                or link.name in {owner for owner, _, _ in inertials}
                or overridden
            ), original
            assert all(
                tag.startswith((b"<include", b"<compiler")) or b"springdamper" in tag
                for tag in others
            ), original
            for _, old, new in inertials:
                turned = [
                    b"quat" if name in (b"euler", b"axisangle", b"xyaxes", b"zaxis") else name
                    for name in old
                ]
                assert not old or new in (old, turned, [*old, b"quat"]), original
                in_place += old == new
            written += 1
            state = states(changed)
            measured, expected = (
                mujoco_torques(saved.path, changed, state),
                intended(changed, state),
            )
            if measured is not None:
                worst = max(worst, float(np.max(np.abs(measured - expected))))
                compared += np.max(np.abs(intended(robot, state) - expected)) > SEEN
        finally:
            for file in saved.files:
                file.unlink()
    print(f"worst of {compared}: {worst:.2g} N·m")
    assert worst < AGREEMENT
    assert written >= 150 // every
    assert in_place >= 80 // every
    assert compared >= (60 if every == 1 else 12)


def intended(robot: Robot, state: tuple[np.ndarray, ...]) -> np.ndarray:
    from oracles import mujoco_bridge

    return th.inverse_dynamics(mujoco_bridge.comparable(robot), *state)


@needs_shared
@sampled
def test_mjcf_with_all_bodies_and_drives_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Every body, damping, friction loss and rotor inertia: MuJoCo reads the same torques."""
    mujoco = pytest.importorskip("mujoco", reason="MuJoCo reads MJCF (pip install mujoco)")
    monkeypatch.chdir(tmp_path)
    copies, compared, worst = {}, 0, 0.0
    for number, original in enumerate(MJCF[::every]):
        path = mjcf_folder(original, tmp_path, copies)
        robot = loaded(path)
        if robot is None:
            continue
        changed = varied(robot, number)
        saved = quietly(changed, path.with_name("copy.xml"))
        try:
            assert saved.torque_error < AGREEMENT
            stated = robot.drive.offset  # of springs that are not at rest at zero
            assert ("offset" in saved.not_in_file) == bool(np.any(changed.drive.offset != stated))
            state = states(changed)
            measured = (
                mujoco_torques(saved.path, changed, state)
                if set(saved.not_in_file) <= {"offset"}
                else None
            )
            if measured is not None:
                expected = intended(
                    replace(changed, drive=changed.drive.with_values(offset=stated)),
                    state,
                )
                worst = max(worst, float(np.max(np.abs(measured - expected))))
                model = mujoco.MjModel.from_xml_path(str(saved.path))
                np.testing.assert_allclose(
                    model.dof_frictionloss, changed.drive.coulomb, rtol=1e-14
                )
                compared += 1
        finally:
            for file in saved.files:
                file.unlink()
    print(f"worst of {compared}: {worst:.2g} N·m")
    assert worst < AGREEMENT
    assert compared >= (60 if every == 1 else 12)
