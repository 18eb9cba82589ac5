"""Geometry of links: meshes and primitives as they are written, as Pinocchio and MuJoCo place them,
and nothing read from where a robot file must not point.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_paths import example_robot

import thetahat as th
from thetahat.model.io import mesh_folder
from thetahat.model.io.link_shapes import link_shapes
from thetahat.model.io.mesh_vertices import Unreadable, mesh_vertices

TRIANGLE = np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.25], [0.0, 1.0, -2.0]])
SINGLE = 1e-6  # of a length: STL holds single precision

COLLADA = """<?xml version="1.0"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
 <asset><unit meter="{metre}"/><up_axis>Y_UP</up_axis></asset>
 <library_geometries><geometry id="g"><mesh>
  <source id="n"><float_array id="na" count="3">9 9 9</float_array></source>
  <source id="p"><float_array id="pa" count="9">{numbers}</float_array></source>
  <vertices id="v"><input semantic="POSITION" source="#p"/></vertices>
 </mesh></geometry></library_geometries>
 <library_visual_scenes><visual_scene id="s"><node>
  <matrix>0 -1 0 1  1 0 0 2  0 0 1 3  0 0 0 1</matrix>
  <node><scale>2 2 2</scale><instance_geometry url="#g"/></node>
 </node></visual_scene></library_visual_scenes>
</COLLADA>"""


def binary_stl(points: np.ndarray, header: bytes = b"") -> bytes:
    facets = b"".join(
        np.concatenate([np.zeros(3), corner]).astype("<f4").tobytes() + b"\0\0"
        for corner in points.reshape(-1, 9)
    )
    return header.ljust(80, b" ") + (len(points) // 3).to_bytes(4, "little") + facets


def text_stl(points: np.ndarray) -> str:
    vertices = "\n".join(f"   vertex {x} {y} {z}" for x, y, z in points)
    return f"solid a\n facet normal 0 0 1\n  outer loop\n{vertices}\n  endloop\nendsolid\n"


def write_triangle(folder: Path, name: str) -> Path:
    path = folder / name
    match path.suffix:
        case ".stl" if "text" in name:
            path.write_text(text_stl(TRIANGLE))
        case ".stl":
            path.write_bytes(binary_stl(TRIANGLE, b"solid, and binary all the same"))
        case ".obj":
            lines = (f"v {x} {y} {z}" for x, y, z in TRIANGLE)
            path.write_text("mtllib ../../secret\nvn 9 9 9\n" + "\n".join(lines) + "\nf 1 2 3\n")
        case _:
            numbers = " ".join(map(str, TRIANGLE.ravel()))
            path.write_text(COLLADA.format(metre="1", numbers=numbers))
    return path


@pytest.mark.parametrize("name", ["a.stl", "text.stl", "a.obj"])
def test_vertices_are_those_written(tmp_path: Path, name: str) -> None:
    assert mesh_vertices(write_triangle(tmp_path, name)) == pytest.approx(TRIANGLE, abs=SINGLE)


def test_collada_is_placed_by_its_scene_in_metres(tmp_path: Path) -> None:
    path = tmp_path / "a.dae"
    path.write_text(COLLADA.format(metre="0.01", numbers=" ".join(map(str, TRIANGLE.ravel()))))
    turned = 2.0 * TRIANGLE[:, [1, 0, 2]] * [-1.0, 1.0, 1.0] + [1.0, 2.0, 3.0]
    assert mesh_vertices(path) == pytest.approx(0.01 * turned)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.stl", b""),
        ("cut.stl", binary_stl(TRIANGLE)[:-20]),
        ("count.stl", b" " * 80 + b"\xff\xff\xff\xff" + b"\0" * 100),
        ("nan.stl", binary_stl(TRIANGLE * np.nan)),
        ("words.obj", b"v one two three\n"),
        ("short.obj", b"v 1 2\n"),
        ("none.obj", b"f 1 2 3\n"),
        ("broken.dae", b"<COLLADA><unit"),
        ("entity.dae", b'<!DOCTYPE a [<!ENTITY b "c">]><COLLADA/>'),
        ("deep.dae", b"<a>" * 2_000),
        ("numbers.dae", COLLADA.format(metre="x", numbers="1").encode()),
        ("a.ply", b"ply"),
    ],
)
def test_what_cannot_be_read_has_a_reason(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(Unreadable):
        mesh_vertices(path)


# -- where meshes are read from --------------------------------------------------------------------


def arm(folder: Path, mesh: str, file: str = "arm.urdf") -> th.Robot:
    """A pendulum whose link has this mesh."""
    (folder / file).write_text(
        f"""<robot name="arm"><link name="base"/>
        <joint name="j" type="continuous"><parent link="base"/><child link="bob"/></joint>
        <link name="bob"><inertial><origin xyz="0 0 0.1"/><mass value="1"/>
          <inertia ixx="0.1" iyy="0.1" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial>
        <collision><origin xyz="0 0 1"/><geometry><mesh filename="{mesh}" scale="2 1 1"/>
        </geometry></collision></link></robot>"""
    )
    return th.load(folder / file)


def test_a_mesh_beside_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "meshes").mkdir()
    write_triangle(tmp_path / "meshes", "a.stl")
    found = link_shapes(arm(tmp_path, "meshes/a.stl"))
    assert found.notes == ()
    assert found.points["bob"] == pytest.approx(TRIANGLE * [2, 1, 1] + [0, 0, 1], abs=SINGLE)


def test_a_package_is_one_of_the_parents(tmp_path: Path) -> None:
    (tmp_path / "my_robot" / "urdf").mkdir(parents=True)
    write_triangle(tmp_path / "my_robot", "a.stl")
    write_triangle(tmp_path, "b.stl")
    found = link_shapes(arm(tmp_path / "my_robot" / "urdf", "package://my_robot/a.stl"))
    assert len(found.points["bob"]) == 3
    for name in ("package://other/a.stl", "package://my_robot/../b.stl", "package://../b.stl"):
        found = link_shapes(arm(tmp_path / "my_robot" / "urdf", name))
        assert not found.points
        assert len(found.notes) == 1


def test_nothing_outside_the_folder_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "robot"
    inner.mkdir()
    outside = write_triangle(tmp_path, "a.stl")
    (inner / "link.stl").symlink_to(outside)
    (inner / "up").symlink_to(tmp_path)
    (inner / "pipe.stl").mkdir()

    def refuse(path: Path) -> np.ndarray:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(mesh_folder, "mesh_vertices", refuse)
    for name in ("../a.stl", f"file://{outside}", str(outside), "link.stl", "up/a.stl", "pipe.stl",
                 "model://a.stl", "https://example.org/a.stl", "", "package:///../a.stl",
                 "missing.stl", "..\\a.stl", "a\0.stl".replace("\0", "%00")):  # fmt: skip
        found = link_shapes(arm(inner, name))
        assert not found.points, name
        assert len(found.notes) == 1, name


def test_a_mesh_that_is_too_large_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_triangle(tmp_path, "a.stl")
    monkeypatch.setattr(mesh_folder, "MAX_TOTAL", 10)
    found = link_shapes(arm(tmp_path, "a.stl"))
    assert not found.points
    assert "MiB" in found.notes[0]


def test_geometry_that_dynamics_do_not_need_may_be_malformed(tmp_path: Path) -> None:
    robot = arm(tmp_path, "a.stl")
    assert robot.source is not None
    text = robot.source.read_text()
    robot.source.write_text(
        text.replace('<mesh filename="a.stl" scale="2 1 1"/>', '<box size="1"/>')
    )
    found = link_shapes(th.load(robot.source))
    assert not found.points
    assert "size" in found.notes[0]


# -- oracles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["panda", "ur5", "solo12", "kinova"])
def test_meshes_stand_where_pinocchio_puts_them(name: str) -> None:
    """Boxes around every link's geometry, in world axes at q = 0."""
    pin = pytest.importorskip("pinocchio")
    path = example_robot(name)
    robot = th.load(path)
    found = link_shapes(robot)
    folder = str(path).split("example-robot-data")[0]
    model = pin.buildModelFromUrdf(str(path))
    own = {link.name for link in robot.links}
    expected: dict[str, list[np.ndarray]] = {}
    for kind in (pin.GeometryType.COLLISION, pin.GeometryType.VISUAL):
        geometry = pin.buildGeomFromUrdf(model, str(path), kind, package_dirs=[folder])
        for each in geometry.geometryObjects:
            vertices = getattr(each.geometry, "vertices", None)
            link = model.frames[each.parentFrame]
            if vertices is None or link.name not in own:
                continue
            frame = link.placement.actInv(each.placement)
            points = np.asarray(vertices()) * each.meshScale
            expected.setdefault(link.name, []).append(points @ frame.rotation.T + frame.translation)
    compared = 0
    for link_name, parts in expected.items():
        mine, theirs = found.points[link_name], np.vstack(parts)
        if len(mine) < len(theirs):
            continue
        compared += 1
        for end in (np.min, np.max):
            assert end(mine, axis=0) == pytest.approx(end(theirs, axis=0), abs=2e-3), link_name
    assert compared >= 4


GEOMS = """<mujoco><compiler angle="degree" eulerseq="zyx" meshdir="assets"/>
<default><mesh scale="0.1 0.2 0.1"/><geom type="capsule" size="0.05 0.2"/>
 <default class="visual"><geom type="mesh" contype="0"/></default>
 <default class="ball"><geom type="sphere" size="0.3"/></default></default>
<asset><mesh name="wedge" file="wedge.stl" refpos="0.1 0 0.2" refquat="0 1 0 0"/></asset>
<worldbody><geom type="plane" size="1 1 1"/>
 <body name="a" pos="0 0 1" childclass="visual"><joint axis="0 1 0"/>
  <inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/>
  <geom mesh="wedge" pos="0.1 0 0" euler="30 20 10"/>
  <frame pos="0 0 0.5" axisangle="0 0 1 90"><geom class="ball" pos="1 0 0"/></frame>
  <body name="b" pos="1 0 0"><joint axis="0 0 1"/><inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/>
   <geom class="main" fromto="0 0 0 0 1 1"/><geom type="box" size="0.1 0.2 0.3" zaxis="1 1 0"/>
   <geom type="ellipsoid" size="0.1 0.2 0.3" quat="1 1 0 0"/><geom type="cylinder" size="0.1 0.4"/>
  </body></body></worldbody></mujoco>"""


def test_geoms_stand_where_mujoco_puts_them(tmp_path: Path) -> None:
    mujoco = pytest.importorskip("mujoco")
    (tmp_path / "assets").mkdir()
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=float)
    faces = corners[[[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]].reshape(-1, 3)
    (tmp_path / "assets" / "wedge.stl").write_bytes(binary_stl(faces))
    (tmp_path / "arm.xml").write_text(GEOMS)
    found = link_shapes(th.load(tmp_path / "arm.xml"))
    assert found.notes == ()
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "arm.xml"))
    assert set(found.points) == {"a", "b"}
    rng = np.random.default_rng(0)
    for body, name in ((1, "a"), (2, "b")):
        reach = []
        directions = rng.normal(size=(20, 3))
        for g in np.flatnonzero(model.geom_bodyid == body):
            reach.append(_support(model, g, directions))
        mine = np.max(found.points[name] @ directions.T, axis=0)
        # rings and balls are drawn by a few points, which stay inside
        slack = 0.03 * np.linalg.norm(directions, axis=1)
        expected = np.max(reach, axis=0)
        assert np.all(mine <= expected + 1e-6)
        assert np.all(mine >= expected - slack)


def _support(model: object, g: int, directions: np.ndarray) -> np.ndarray:
    """How far a compiled geom reaches in each direction of its body's axes."""
    w, x, y, z = model.geom_quat[g]
    R = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    d, size = directions @ R, model.geom_size[g]
    at = directions @ model.geom_pos[g]
    ring = np.linalg.norm(d[:, :2], axis=1)
    match int(model.geom_type[g]):
        case 2:
            return at + size[0] * np.linalg.norm(d, axis=1)
        case 3:
            return at + size[0] * np.linalg.norm(d, axis=1) + size[1] * np.abs(d[:, 2])
        case 4:
            return at + np.linalg.norm(d * size, axis=1)
        case 5:
            return at + size[0] * ring + size[1] * np.abs(d[:, 2])
        case 6:
            return at + np.abs(d) @ size
    mesh = model.geom_dataid[g]
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    return at + np.max(d @ model.mesh_vert[first : first + count].T, axis=1)
