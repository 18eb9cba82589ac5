"""MJCF files that are refused, each in one sentence, and what MuJoCo is never let near."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from mjcf_cases import INERTIAL, load, mjcf, save

from thetahat.errors import MalformedInput, MissingExtra, RefusedForSafety, ThetahatError

mujoco = pytest.importorskip("mujoco")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(
        tmp_path
    )  # MuJoCo, as the oracle, writes its warnings to a file in the working folder


# -- refusals --------------------------------------------------------------------------------------


def refused(text: str, kind: type[ThetahatError], *parts: str) -> None:
    """The file is refused by one sentence that names it and these parts, at once."""
    start = time.perf_counter()
    with pytest.raises(kind) as caught:
        load(text)
    message = str(caught.value)
    assert time.perf_counter() - start < 5.0
    assert "\n" not in message
    for part in ("robot.xml", *parts):
        assert part in message, message
    assert not Path("MUJOCO_LOG.TXT").exists()


BODY = f'<body name="arm"><joint name="j"/>{INERTIAL}</body>'


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('mass="1.5"', 'mass="1kg"', ("line 1", "arm", "1kg")),
        ('mass="1.5"', 'mass="1,5"', ("1,5",)),
        ('mass="1.5"', 'mass="nan"', ("nan",)),
        ('mass="1.5"', 'mass="inf"', ("inf",)),
        ('mass="1.5"', 'mass="1e400"', ("1e400",)),
        ('mass="1.5"', "", ("mass",)),
        ('name="j"', 'name="j" axis="0 0 0"', ("axis", "joint 'j'")),
        ('name="j"', 'name="j" axis="0 nan 1"', ("nan", "joint 'j'")),
        ('name="j"', 'name="j" axis="0 1"', ("axis", "'0 1'")),
        ('name="j"', 'name="j" range="30 -30"', ("joint 'j'", "swap")),
        ('name="j"', 'name="j" range="nan 3"', ("nan",)),
        ('name="j"', 'name="j" type="screw"', ("screw", "joint 'j'")),
        ('name="j"', 'name="j" damping="1e99"', ("1e99",)),
        ('name="arm"', 'name="arm" pos="0 0 nan"', ("nan", "arm")),
        ('name="arm"', 'name="arm" pos="0 0 0 0"', ("pos", "0 0 0 0")),
        ('name="arm"', 'name="arm" speed="3"', ("speed='3'", "spelling")),
        ('name="arm"', 'name="arm" childclass="none"', ("class",)),
        ("<joint", "<jiont", ("jiont",)),
        ("</body>", '</body><body name="arm"/>', ("repeated name 'arm'",)),
        ("</body>", '</body><body name="world"/>', ("world",)),
    ],
)
def test_bad_values(old: str, new: str, parts: tuple[str, ...]) -> None:
    assert old in BODY
    refused(mjcf(BODY.replace(old, new, 1)), MalformedInput, *parts)


def test_errors_name_the_line_of_the_users_file() -> None:
    save(
        f'<mujocoinclude>\n\n<body name="b">\n<joint foo="1"/>{INERTIAL}</body></mujocoinclude>',
        "part.xml",
    )
    refused(
        mjcf(f'\n\n{BODY}\n<body\n name="c" bar="2"/>'),
        MalformedInput,
        "robot.xml, line 4",
        "bar='2'",
    )
    with pytest.raises(MalformedInput, match=r"part\.xml, line 4, .*foo='1'"):
        load(mjcf('<include file="part.xml"/>'))


@pytest.mark.parametrize(
    "text",
    [
        "<mujocoinclude/>",
        "<robot/>",
        "<mujoco/>",
        "<mujoco><worldbody><geom size='1'/></worldbody></mujoco>",
    ],
)
def test_no_robot_in_it(text: str) -> None:
    refused(text, MalformedInput)


@pytest.mark.parametrize(
    "file",
    [
        "../secret.xml",
        "/etc/hostname",
        "sub/../../secret.xml",
        "link.xml",
        "linked/secret.xml",
        "..\\secret.xml",
    ],
)
def test_includes_stay_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (tmp_path / "secret.xml").write_text("<mujocoinclude/>")
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "link.xml").symlink_to(tmp_path / "secret.xml")
    (inside / "linked").symlink_to(tmp_path)
    monkeypatch.chdir(inside)
    refused(
        mjcf(f'<include file="{file}"/>{BODY}'), RefusedForSafety, "leaves the folder", "<include>"
    )
    refused(
        mjcf(
            f'{BODY}<attach model="m" prefix="x"/>',
            before=f'<asset><model name="m" file="{file}"/></asset>',
        ),
        RefusedForSafety,
        "<model>",
    )
    mesh = f'<asset><mesh name="m" file="{file}"/></asset>'
    refused(
        mjcf('<body><joint/><geom type="mesh" mesh="m"/></body>', before=mesh),
        RefusedForSafety,
        "mesh",
    )


def test_symlinks_within_the_folder_are_fine() -> None:
    save(f"<mujocoinclude>{BODY}</mujocoinclude>", "sub/real.xml")
    Path("link.xml").symlink_to(Path("sub/real.xml"))
    assert load(mjcf('<include file="link.xml"/>')).nv == 1


def test_include_cycles_repeats_and_gaps() -> None:
    save('<mujocoinclude><include file="b.xml"/></mujocoinclude>', "a.xml")
    save('<mujocoinclude><include file="a.xml"/></mujocoinclude>', "b.xml")
    refused('<mujoco><include file="robot.xml"/></mujoco>', RefusedForSafety, "cycle")
    with pytest.raises(RefusedForSafety, match=r"b\.xml, line 1.*'a\.xml' includes itself"):
        load('<mujoco><include file="a.xml"/></mujoco>')
    save("<mujocoinclude/>", "c.xml")
    refused(
        '<mujoco><include file="c.xml"/><include file="./c.xml"/></mujoco>', MalformedInput, "twice"
    )
    refused(
        '<mujoco><include file="absent.xml"/></mujoco>', MalformedInput, "'absent.xml' is not there"
    )
    refused("<mujoco><include/></mujoco>", MalformedInput, "file")
    Path("loop.xml").symlink_to("loop.xml")
    refused('<mujoco><include file="loop.xml"/></mujoco>', MalformedInput, "loop.xml")
    save("<!DOCTYPE x [<!ENTITY a 'b'>]><mujocoinclude>&a;</mujocoinclude>", "bomb.xml")
    with pytest.raises(RefusedForSafety, match=r"bomb\.xml"):
        load('<mujoco><include file="bomb.xml"/></mujoco>')


def test_long_include_chains() -> None:
    for k in range(80):
        save(f'<mujocoinclude><include file="c{k + 1}.xml"/></mujocoinclude>', f"c{k}.xml")
    with pytest.raises(RefusedForSafety, match="in a row"):
        load('<mujoco><include file="c0.xml"/></mujoco>')


def test_a_model_that_attaches_itself() -> None:
    before = '<asset><model name="m" file="robot.xml"/></asset>'
    refused(
        mjcf(f'{BODY}<attach model="m" prefix="x"/>', before=before),
        RefusedForSafety,
        "includes itself",
    )


def test_missing_and_broken_meshes() -> None:
    body = '<body name="arm"><joint/><geom type="mesh" mesh="m"/></body>'
    before = '<compiler meshdir="parts"/><asset><mesh name="m" file="hand.stl"/></asset>'
    refused(
        mjcf(body, before=before),
        MalformedInput,
        "mesh 'parts/hand.stl' is not there",
        "body 'arm'",
        "<inertial>",
    )
    save("solid nonsense", "parts/hand.stl")
    refused(mjcf(body, before=before), MalformedInput, "MuJoCo refuses")
    refused(mjcf(body), MalformedInput, "mesh")


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (
            f'<replicate count="3001" offset="1 0 0"><body><joint/>{INERTIAL}</body></replicate>',
            "3,000 bodies",
        ),
        (f"<body>{INERTIAL}</body>" * 3001, "3,000 bodies"),
        (
            (
                '<body><joint/><replicate count="1e9" offset="1 0 0"><geom'
                ' size="1"/></replicate></body>'
            ),
            "1,000,000,000 copies",
        ),
        (
            (
                '<body><joint/><replicate count="900"><replicate count="900"><geom'
                ' size="1"/></replicate></replicate></body>'
            ),
            "810,000 copies",
        ),
        ("<body><joint/>" * 600 + "</body>" * 600, "490 deep"),
        (f"{'<body><joint/>' * 450}{'</body>' * 450}" * 6, "degrees of freedom"),
    ],
)
def test_too_large(body: str, part: str) -> None:
    refused(mjcf(body), RefusedForSafety, part)


def test_mujoco_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    refused(mjcf(BODY), MissingExtra, "pip install 'thetahat[mujoco]'")


def test_mujoco_opens_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What MuJoCo is given names no file outside the assets handed over with it."""
    save("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n", "t.obj")
    save(mjcf(BODY.replace("arm", "sub").replace('"j"', '"k"')), "sub.xml")
    save(f"<mujocoinclude>{BODY}</mujocoinclude>", "part.xml")
    seen: list[tuple[str, dict[str, bytes]]] = []
    compile_text = mujoco.MjModel.from_xml_string

    class Spy:
        @staticmethod
        def from_xml_string(text: str, assets: dict[str, bytes]) -> object:
            seen.append((text, assets))
            return compile_text(text, assets)

    monkeypatch.setattr(mujoco, "MjModel", Spy)
    load(
        mjcf(
            '<include file="part.xml"/><body name="m"><joint/><geom type="mesh" mesh="t"/><attach'
            ' model="sub" prefix="s_"/></body>',
            before="""<asset><mesh file="t.obj"/><mesh name="unused" file="u.obj"/><texture file="x.png" type="2d" name="x"/>
                        <hfield file="h.png" name="h" size="1 1 1 1"/>
                        <model name="sub" file="sub.xml"/></asset>""",
        )
    )
    ((text, assets),) = seen
    named = [part.split('"')[1] for part in text.split("file=")[1:]]
    assert sorted(named) == sorted(assets)
    assert len(named) == 2
    assert "include" not in text
