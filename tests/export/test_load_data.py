"""Load data for vendors: examples of their manuals entered by hand, round trips, bad results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from thetahat.errors import MalformedInput, NotUsable, StorageError, ThetahatError, UsageError
from thetahat.export import vendor_blocks
from thetahat.export.load_data import LoadData, pose, read_load

HAND = LoadData(0.73, np.array([-0.01, 0.0, 0.03]), np.diag([0.001, 0.0025, 0.0017]), "hand")
NUMBER = r"-?\d+\.?\d*"


def body(seed: int) -> LoadData:
    """A box of random size, turned at random."""
    rng = np.random.default_rng(seed)
    mass, size = rng.uniform(0.2, 20.0), rng.uniform(0.02, 0.4, 3)
    turned = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    inertia = mass / 12.0 * np.diag(np.sum(size**2) - size**2)
    return LoadData(mass, rng.normal(0, 0.2, 3), turned @ inertia @ turned.T, "box")


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(NUMBER, text)]


def from_urscript(text: str) -> tuple[float, np.ndarray, np.ndarray]:
    """Order of the manual: m, [x, y, z] in m, [Ixx, Iyy, Izz, Ixy, Ixz, Iyz] about the CoG."""
    call = re.search(r"^set_target_payload\((.*)\)$", text, re.MULTILINE)
    assert call
    m, x, y, z, xx, yy, zz, xy, xz, yz = numbers(call[1])
    return m, np.array([x, y, z]), np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def from_franka(text: str) -> tuple[float, np.ndarray, np.ndarray]:
    data = json.loads(text)
    columns = np.array(data["inertia"]).reshape(3, 3).T
    return data["mass"], np.array(data["centerOfMass"]), columns


def from_kuka(text: str) -> tuple[float, np.ndarray, np.ndarray]:
    """A about Z, B about the new Y, C about the new X; one matrix product written out."""
    fields = re.search(r"\{M (.*),CM \{(.*?)\},J \{(.*?)\}\}", text)
    assert fields
    x, y, z, a, b, c = numbers(fields[2])
    a, b, c = np.deg2rad([a, b, c])
    about_z = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    about_y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    about_x = np.array([[1, 0, 0], [0, np.cos(c), -np.sin(c)], [0, np.sin(c), np.cos(c)]])
    axes = about_z @ about_y @ about_x
    inertia = axes @ np.diag(numbers(fields[3])) @ axes.T
    return float(fields[1]), np.array([x, y, z]) / 1e3, inertia


def from_abb(text: str) -> tuple[float, np.ndarray, np.ndarray]:
    m, x, y, z, w, i, j, k, *moments = numbers(text.partition(":=")[2])
    axes = Rotation.from_quat([i, j, k, w]).as_matrix()
    return m, np.array([x, y, z]) / 1e3, axes @ np.diag(moments) @ axes.T


READERS: dict[str, Callable[[str], tuple[float, np.ndarray, np.ndarray]]] = {
    "urscript": from_urscript,
    "franka": from_franka,
    "kuka": from_kuka,
    "abb": from_abb,
}


@pytest.mark.parametrize("target", READERS)
def test_what_is_written_is_the_load(target: str) -> None:
    for seed in range(25):
        load = body(seed)
        text = vendor_blocks.TARGETS[target](load)
        assert text.isascii()
        mass, com, inertia = READERS[target](text)
        assert mass == pytest.approx(load.mass, rel=1e-5)
        np.testing.assert_allclose(com, load.com, atol=1e-6)
        assert load.inertia is not None
        np.testing.assert_allclose(inertia, load.inertia, atol=2e-5 * np.trace(load.inertia))


def test_examples_of_the_manuals() -> None:
    """Franka's hand as its documentation states it; ABB's gripper of 5 kg, a point mass; a KUKA
    load whose long axis is turned by 30° about the flange's z; a UR payload, tensor in its order.
    """
    assert json.loads(vendor_blocks.franka(HAND)) == {
        "mass": 0.73,
        "centerOfMass": [-0.01, 0.0, 0.03],
        "inertia": [0.001, 0, 0, 0, 0.0025, 0, 0, 0, 0.0017],
    }
    gripper = LoadData(5.0, np.array([0.023, 0.0, 0.075]), np.zeros((3, 3)))
    assert "[5, [23, 0, 75], [1, 0, 0, 0], 0, 0, 0];" in vendor_blocks.abb(gripper)
    about_z = Rotation.from_euler("z", 30.0, degrees=True).as_matrix()
    turned = LoadData(
        60.0, np.array([0.1, 0.0, 0.25]), about_z @ np.diag([1.0, 2.0, 1.5]) @ about_z.T
    )
    expected = "{M 60,CM {X 100,Y 0,Z 250,A 30,B 0,C 0},J {X 1,Y 2,Z 1.5}}"
    assert expected in vendor_blocks.kuka(turned)
    tensor = np.array([[1.0, 0.1, 0.2], [0.1, 2.0, 0.3], [0.2, 0.3, 2.5]])
    text = vendor_blocks.urscript(LoadData(1.5, np.array([0.0, 0.01, 0.1]), tensor))
    assert text.endswith("set_target_payload(1.5, [0, 0.01, 0.1], [1, 2, 2.5, 0.1, 0.2, 0.3])\n")


def test_a_frame_in_the_flange() -> None:
    """A sensor 40 mm in front of the flange, turned by 90° about z."""
    moved = HAND.moved(pose("0,0,0.04,0,0,1.5707963267948966"))
    np.testing.assert_allclose(moved.com, [0.0, -0.01, 0.07], atol=1e-12)
    assert moved.inertia is not None
    np.testing.assert_allclose(moved.inertia, np.diag([0.0025, 0.001, 0.0017]), atol=1e-12)
    np.testing.assert_allclose(HAND.moved(pose("1,2,3")).com, [0.99, 2.0, 3.03])


def test_plain_json_is_read_again(tmp_path: Path) -> None:
    load = body(3)
    path = tmp_path / "load.json"
    path.write_text(vendor_blocks.plain(load))
    again = read_load(path)
    assert again.mass == load.mass
    np.testing.assert_array_equal(again.com, load.com)
    assert again.inertia is not None
    assert load.inertia is not None
    np.testing.assert_allclose(again.inertia, load.inertia, rtol=1e-12)


GOOD = {"schema": "thetahat/tool/1", "mass": 1.0, "com": [0, 0, 0.1], "verdict": {"level": "good"}}


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"schema": "thetahat/estimate/1"}, MalformedInput, "schema"),
        ({"mass": None}, MalformedInput, "mass is None"),
        ({"mass": -1.0}, MalformedInput, "positive"),
        ({"mass": [1.0]}, MalformedInput, "mass"),
        ({"com": [0, None, 1]}, MalformedInput, "com"),
        ({"com": "far"}, MalformedInput, "com"),
        ({"inertia_com": [1, 0, 0, 1, 0, -1]}, MalformedInput, "not that of a body"),
        ({"verdict": {"level": "not usable", "reasons": ["no motion"]}}, NotUsable, "no motion"),
    ],
)
def test_results_that_cannot_be_exported(
    tmp_path: Path, change: dict[str, Any], error: type[ThetahatError], said: str
) -> None:
    path = tmp_path / "tool.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(error, match=said):
        read_load(path)
    if error is NotUsable:
        assert read_load(path, force=True).mass == 1.0


def test_files_that_are_no_results(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="check the path"):
        read_load(tmp_path / "none.json")
    with pytest.raises(StorageError, match=r"holds no payload\.json"):
        read_load(tmp_path)
    for text in ("[1]", "{", "[" * 100_000):
        (tmp_path / "tool.json").write_text(text)
        with pytest.raises(MalformedInput, match="result"):
            read_load(tmp_path)
    for text in ("1,2", "a,b,c", "1,2,nan"):
        with pytest.raises(UsageError, match="--in-flange"):
            pose(text)
