"""Where meshes are sought: beside the file that names them, as MuJoCo does, and in folders that the user allows."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

import thetahat as th
from thetahat import cli
from thetahat.errors import RefusedForSafety, UsageError
from thetahat.model.io.asset_roots import VARIABLE, asset_roots, meshes_allowed_in
from thetahat.model.io.link_shapes import link_shapes

mujoco = pytest.importorskip("mujoco")

TETRAHEDRON = "v 0 0 0\nv .1 0 0\nv 0 .1 0\nv 0 0 .1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def inspected(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int | str | None:
    """The exit code of `thetahat inspect`."""
    monkeypatch.setattr("sys.argv", ["thetahat", "inspect", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def model(folder: Path, mesh: str, *, main_folder: str = "", part_folder: str = "") -> Path:
    """A body in an included file whose inertia comes from a mesh."""
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    compilers = [
        f'<compiler meshdir="{name}"/>' if name else "" for name in (main_folder, part_folder)
    ]
    (folder / "sub" / "part.xml").write_text(
        f'<mujoco>{compilers[1]}<asset><mesh name="m" file="{mesh}"/></asset><worldbody><body name="b">'
        '<joint name="j" axis="0 1 0"/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>'
    )
    (folder / "main.xml").write_text(
        f'<mujoco>{compilers[0]}<include file="sub/part.xml"/></mujoco>'
    )
    return folder / "main.xml"


PLACES = ("m.obj", "sub/m.obj", "meshes/m.obj", "sub/meshes/m.obj")


@pytest.mark.parametrize("place", PLACES)
def test_meshes_are_found_where_mujoco_finds_them(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text(TETRAHEDRON)
    found = 0
    for name, folders in product(
        PLACES[:3], (("", ""), ("meshes", ""), ("", "meshes"), (".", "meshes"))
    ):
        file = model(tmp_path, name, main_folder=folders[0], part_folder=folders[1])
        try:
            mass = mujoco.MjModel.from_xml_path(str(file)).body_mass[1]
        except ValueError:
            with pytest.raises(th.errors.MalformedInput, match="is not there"):
                th.load(file)
            continue
        robot = th.load(file)
        assert robot.mass == pytest.approx(mass, rel=1e-9)
        assert len(link_shapes(robot).points["b"]) >= 4
        found += 1
    assert found


def test_a_mesh_outside_the_folder_needs_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "stls").mkdir()
    (tmp_path / "stls" / "m.obj").write_text(TETRAHEDRON)
    file = model(tmp_path / "robot", "m.obj", main_folder="../stls")
    with pytest.raises(RefusedForSafety, match="--asset-root"):
        th.load(file)
    with meshes_allowed_in([str(tmp_path / "stls")]):
        assert asset_roots() == (tmp_path / "stls",)
        robot = th.load(file)
        assert "b" in link_shapes(robot).points
    assert robot.mass == pytest.approx(1000.0 * 1e-3 / 6.0)
    assert VARIABLE not in os.environ
    assert inspected(monkeypatch, file) == 7
    assert inspected(monkeypatch, file, "--asset-root", tmp_path / "stls") == 0
    assert VARIABLE not in os.environ
    capsys.readouterr()
    assert inspected(monkeypatch, file, "--asset-root", tmp_path / "no") == 2
    assert "is not a folder" in capsys.readouterr().err
    with pytest.raises(UsageError), meshes_allowed_in([str(file)]):
        pass


def test_packages_are_sought_in_allowed_folders(tmp_path: Path) -> None:
    (tmp_path / "ws" / "my_robot").mkdir(parents=True)
    mesh = tmp_path / "ws" / "my_robot" / "m.obj"
    mesh.write_text(TETRAHEDRON)
    (tmp_path / "here").mkdir()
    for name in ("package://my_robot/m.obj", str(mesh), f"file://{mesh}", "../ws/my_robot/m.obj"):
        file = tmp_path / "here" / "arm.urdf"
        file.write_text(
            '<robot name="arm"><link name="base"/><joint name="j" type="continuous"><parent link="base"/>'
            '<child link="bob"/></joint><link name="bob"><inertial><mass value="1"/>'
            '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
            f'<collision><geometry><mesh filename="{name}"/></geometry></collision></link></robot>'
        )
        robot = th.load(file)
        assert not link_shapes(robot).points, name
        for allowed in (tmp_path / "ws", tmp_path / "ws" / "my_robot"):
            with meshes_allowed_in([str(allowed)]):
                assert "bob" in link_shapes(robot).points, name
        (tmp_path / "other").mkdir(exist_ok=True)
        with meshes_allowed_in([str(tmp_path / "other")]):
            assert not link_shapes(robot).points, "another folder allows nothing here"
