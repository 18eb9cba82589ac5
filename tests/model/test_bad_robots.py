"""Bad robot files: each gets one sentence that names file, element, value and fix, and its exit
code. Nothing hangs.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thetahat.errors import (
    MalformedInput,
    RefusedForSafety,
    RobotWarning,
    StorageError,
    ThetahatError,
)
from thetahat.model.io.load import load
from thetahat.model.io.urdf import MAX_LINKS
from thetahat.model.io.xml_reader import MAX_BYTES, MAX_DEPTH

LONGEST = (
    5.0  # [s] issue 2: no hang; of processor time, as a test machine may be busy with other things
)

GOOD = """<?xml version="1.0"?>
<robot name="arm">
  <link name="base"/>
  <link name="upper">
    <inertial>
      <origin xyz="0 0 0.1" rpy="0 0 0"/>
      <mass value="1.5"/>
      <inertia ixx="0.02" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.01"/>
    </inertial>
  </link>
  <link name="lower">
    <inertial>
      <mass value="0.5"/>
      <inertia ixx="0.002" ixy="0" ixz="0" iyy="0.002" iyz="0" izz="0.001"/>
    </inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/>
    <child link="upper"/>
    <origin xyz="0 0 0.3" rpy="0 0 0"/>
    <axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" velocity="2" effort="3"/>
  </joint>
  <joint name="elbow" type="continuous">
    <parent link="upper"/>
    <child link="lower"/>
    <axis xyz="0 1 0"/>
  </joint>
</robot>
"""


def save(folder: Path, text: str | bytes, name: str = "arm.urdf") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def changed(*changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def refusal(path: Path, kind: type[ThetahatError], code: int) -> str:
    """Load, which must be refused, fast, with this class and exit code, in one line that names the
    file.
    """
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        with pytest.raises(kind) as caught:
            load(path)
    assert time.process_time() - start < LONGEST
    message = str(caught.value)
    assert caught.value.exit_code == code
    assert path.name in message
    assert message.isprintable(), "one line"
    assert ";" in message, "what is wrong; what to do"
    assert caught.value.__cause__ is None
    return message


def test_the_good_file_is_good(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(save(tmp_path, GOOD)).joint_names == ("shoulder", "elbow")


# -- not a robot file: exit 3 ----------------------------------------------------------------------

NOT_A_ROBOT = {
    "empty": (b"", ["is empty"]),
    "blank": (b" \n\t\n", ["is empty"]),
    "not XML": (b"mass: 3\n", ["line 1", "not XML"]),
    "zip": (b"PK\x03\x04\xff\xfe....", ["not XML"]),
    "truncated": (GOOD[: GOOD.index("<mass")].encode(), ["link 'upper'/inertial", "cut short"]),
    "truncated in a tag": (
        GOOD[: GOOD.index('value="1.5"') + 3].encode(),
        ["link 'upper'/inertial", "cut short"],
    ),
    "only the declaration": (b'<?xml version="1.0"?>\n', ["not XML"]),
    "wrong root": (b"<html><body/></html>", ["line 1", "'html'", "<robot>", "<mujoco>"]),
    "SDF": (
        b'<?xml version="1.0"?>\n<sdf version="1.6"/>',
        ["line 2", "'sdf'", "convert it to URDF"],
    ),
    "MJCF include": (b"<mujocoinclude/>", ["'mujocoinclude'", "load the <mujoco> file"]),
    "NUL byte": (GOOD.replace("base", "ba\0se", 1).encode(), ["line 3", "NUL"]),
    "bad UTF-8": (GOOD.encode().replace(b"base", b"ba\xffse", 1), ["line 3"]),
    "unknown encoding": (
        GOOD.replace('"1.0"?', '"1.0" encoding="klingon"?', 1).encode(),
        ["UTF-8"],
    ),
    "encoding of another width": (
        GOOD.replace('"1.0"?', '"1.0" encoding="UTF-16"?', 1).encode(),
        ["UTF-8"],
    ),
    "codec that is no text": (
        GOOD.replace('"1.0"?', '"1.0" encoding="rot13"?', 1).encode(),
        ["UTF-8"],
    ),
    "mismatched tag": (
        GOOD.replace("</inertial>", "</inertia>", 1).encode(),
        ["line 9", "<inertial> of line 5"],
    ),
    "undefined entity": (
        GOOD.replace('"base"', '"&who;"', 1).encode(),
        ["line 3", "undefined entity"],
    ),
    "two roots in XML": (GOOD.encode() + b"<robot/>", ["line 30", "junk after document element"]),
    "attribute twice": (
        GOOD.replace('name="base"', 'name="base" name="b"', 1).encode(),
        ["line 3", "duplicate attribute"],
    ),
}


@pytest.mark.parametrize("case", NOT_A_ROBOT)
def test_not_a_robot_file(tmp_path: Path, case: str) -> None:
    data, fragments = NOT_A_ROBOT[case]
    message = refusal(save(tmp_path, data), MalformedInput, 3)
    for fragment in fragments:
        assert fragment in message


def test_every_cut_is_refused(tmp_path: Path) -> None:
    """A file that lost its end, wherever, is never read as a smaller robot."""
    end = GOOD.index("</robot>") + len("</robot>")
    for at in range(end):
        refusal(save(tmp_path, GOOD[:at]), MalformedInput, 3)


# -- malformed values: exit 3 ----------------------------------------------------------------------

MASS, ORIGIN, AXIS = 'mass value="1.5"', 'origin xyz="0 0 0.3" rpy="0 0 0"', 'axis xyz="0 1 0"'
IN_MASS, IN_ORIGIN, IN_AXIS = (
    "line 7, robot 'arm'/link 'upper'/inertial/mass",
    "joint 'shoulder'/origin",
    "joint 'shoulder'/axis",
)

BAD_VALUES = {
    "mass 1kg": ([(MASS, 'mass value="1kg"')], [IN_MASS, "'1kg'", "SI units"]),
    "mass 1,5": ([(MASS, 'mass value="1,5"')], [IN_MASS, "'1,5'", "decimal point"]),
    "mass nan": ([(MASS, 'mass value="nan"')], [IN_MASS, "'nan'", "finite"]),
    "mass inf": ([(MASS, 'mass value="inf"')], [IN_MASS, "'inf'", "finite"]),
    "mass 1e400": ([(MASS, 'mass value="1e400"')], [IN_MASS, "'1e400'", "finite"]),
    "mass blank": ([(MASS, 'mass value=""')], [IN_MASS, "value=''"]),
    "mass without value": ([(MASS, "mass")], [IN_MASS, "'value' is missing"]),
    "mass in hexadecimal": ([(MASS, 'mass value="0x10"')], [IN_MASS, "'0x10'"]),
    "mass that is xacro": ([(MASS, 'mass value="${m}"')], [IN_MASS, "run xacro"]),
    "mass missing": ([(f"<{MASS}/>", "")], ["link 'upper'/inertial", "<mass> is missing"]),
    "mass beyond meaning": (
        [(MASS, 'mass value="1e300"')],
        [IN_MASS, "'1e300'", "check the units"],
    ),
    "origin beyond meaning": (
        [(ORIGIN, 'origin xyz="0 0 -1e200"')],
        [IN_ORIGIN, "'-1e200'", "check the units"],
    ),
    "multiplier beyond meaning": (
        [(f"<{AXIS}/>", f'<{AXIS}/><mimic joint="elbow" multiplier="1e200"/>')],
        ["joint 'shoulder'", "1e+200 times"],
    ),
    "inertia missing": (
        [('<inertia ixx="0.02" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.01"/>', "")],
        ["<inertia> is missing"],
    ),
    "inertia without izz": (
        [(' izz="0.01"', "")],
        ["link 'upper'/inertial/inertia", "'izz' is missing"],
    ),
    "inertia nan": ([('izz="0.01"', 'izz="nan"')], ["izz='nan'"]),
    "zero axis": ([(AXIS, 'axis xyz="0 0 0"')], [IN_AXIS, "'0 0 0'", "unit vector"]),
    "tiny axis": ([(AXIS, 'axis xyz="0 1e-12 0"')], [IN_AXIS, "no direction"]),
    "axis nan": ([(AXIS, 'axis xyz="0 nan 1"')], [IN_AXIS, "'nan'"]),
    "axis of two": ([(AXIS, 'axis xyz="0 1"')], [IN_AXIS, "2 numbers", "give 3"]),
    "axis of four": ([(AXIS, 'axis xyz="0 1 0 0"')], [IN_AXIS, "4 numbers", "give 3"]),
    "origin nan": ([(ORIGIN, 'origin xyz="0 nan 0"')], [IN_ORIGIN, "'nan'"]),
    "origin rpy inf": ([(ORIGIN, 'origin rpy="0 0 inf"')], [IN_ORIGIN, "rpy='inf'"]),
    "origin of two": ([(ORIGIN, 'origin xyz="0 0.3"')], [IN_ORIGIN, "2 numbers"]),
    "origin of four": ([(ORIGIN, 'origin xyz="0 0 0 0.3"')], [IN_ORIGIN, "4 numbers"]),
    "origin blank": ([(ORIGIN, 'origin xyz=""')], [IN_ORIGIN, "0 numbers"]),
    "origin of one": ([(ORIGIN, 'origin xyz="1"')], [IN_ORIGIN, "1 number;"]),
    "origin with commas": ([(ORIGIN, 'origin xyz="0,0,0.3"')], [IN_ORIGIN, "'0,0,0.3'", "blanks"]),
    "limits swapped": (
        [('lower="-1" upper="1"', 'lower="1" upper="-1"')],
        ["joint 'shoulder'/limit", "lower=1 ", "upper=-1", "swap"],
    ),
    "limit nan": ([('upper="1"', 'upper="nan"')], ["joint 'shoulder'/limit", "upper='nan'"]),
    "velocity limit negative": (
        [('velocity="2"', 'velocity="-2"')],
        ["joint 'shoulder'/limit", "velocity=-2", "magnitude"],
    ),
    "effort limit negative": (
        [('effort="3"', 'effort="-3"')],
        ["joint 'shoulder'/limit", "effort=-3"],
    ),
    "unknown type": (
        [('type="revolute"', 'type="hinge"')],
        ["joint 'shoulder'", "'hinge'", "prismatic"],
    ),
    "no type": ([(' type="revolute"', "")], ["joint 'shoulder'", "'type' is missing"]),
    "no joint name": ([('name="shoulder" ', "")], ["line 17", "'name' is missing"]),
    "blank link name": ([('name="base"', 'name=" "')], ["line 3", "name is blank"]),
    "damping text": (
        [(f"<{AXIS}/>", f'<{AXIS}/><dynamics damping="low"/>')],
        ["joint 'shoulder'/dynamics", "'low'"],
    ),
}

ELBOW = '<parent link="upper"/>\n    <child link="lower"/>'
BAD_TREES = {
    "duplicate link": (
        [('link name="lower"', 'link name="upper"')],
        ["line 11", "link 'upper'", "line 4"],
    ),
    "duplicate joint": (
        [('joint name="elbow"', 'joint name="shoulder"')],
        ["line 24", "joint 'shoulder'", "line 17"],
    ),
    "missing parent": (
        [('parent link="upper"', 'parent link="uper"')],
        ["joint 'elbow'", "'uper' is not declared", "upper"],
    ),
    "missing child": (
        [('child link="lower"', 'child link="lowr"')],
        ["joint 'elbow'", "child link 'lowr'"],
    ),
    "undeclared world": (
        [('parent link="base"', 'parent link="world"')],
        ["joint 'shoulder'", 'declare <link name="world"/>'],
    ),
    "no parent element": (
        [('<parent link="upper"/>', "")],
        ["joint 'elbow'", "<parent> is missing"],
    ),
    "no child element": ([('<child link="lower"/>', "")], ["joint 'elbow'", "<child> is missing"]),
    "two parents": (
        [(ELBOW, '<parent link="base"/><child link="upper"/>')],
        ["joint 'elbow'", "'upper' already hangs on joint 'shoulder'"],
    ),
    "self parent": (
        [('parent link="upper"', 'parent link="lower"')],
        ["joint 'elbow'", "'lower' is its own parent"],
    ),
    "loop beside the root": (
        [('parent link="base"', 'parent link="lower"')],
        ["joint 'shoulder' closes a loop", "'upper'"],
    ),
    "loop without a root": (
        [('<link name="base"/>', ""), ('parent link="base"', 'parent link="lower"')],
        ["closes a loop", "'upper'"],
    ),
    "two roots": (
        [('<link name="base"/>', '<link name="base"/><link name="table"/>')],
        ["2 links hang on no joint", "'base'", "'table'"],
    ),
    "no links": (
        [(GOOD[GOOD.index("  <link") : GOOD.index("</robot>")], "")],
        ["there is no <link>"],
    ),
    "mimic of itself": (
        [(f"<{AXIS}/>", f'<{AXIS}/><mimic joint="shoulder"/>')],
        ["joint 'shoulder'", "mimics it back"],
    ),
    "mimics in a circle": (
        [
            ('<limit lower="-1"', '<mimic joint="elbow"/><limit lower="-1"'),
            (ELBOW, ELBOW + '<mimic joint="shoulder"/>'),
        ],
        ["mimics it back", "circle"],
    ),
    "mimic without a joint": (
        [(f"<{AXIS}/>", f"<{AXIS}/><mimic/>")],
        ["joint 'shoulder'/mimic", "'joint' is missing"],
    ),
    "mimic of a fixed joint": (
        [("continuous", "fixed"), (f"<{AXIS}/>", f'<{AXIS}/><mimic joint="elbow"/>')],
        ["'elbow' of type 'fixed'"],
    ),
    "mimic by a floating joint": (
        [("continuous", "floating"), (ELBOW, ELBOW + '<mimic joint="shoulder"/>')],
        ["'floating' cannot mimic"],
    ),
    "mimic multiplier nan": (
        [(f"<{AXIS}/>", f'<{AXIS}/><mimic joint="elbow" multiplier="nan"/>')],
        ["multiplier='nan'"],
    ),
    "xacro left": (
        [("</robot>", '<xacro:hand side="left"/></robot>')],
        ["xacro:hand", "run xacro first"],
    ),
    "xacro name": (
        [('link name="base"', 'link name="${p}base"')],
        ["xacro expression", "run xacro first"],
    ),
}


@pytest.mark.parametrize("case", {**BAD_VALUES, **BAD_TREES})
def test_malformed(tmp_path: Path, case: str) -> None:
    changes, fragments = {**BAD_VALUES, **BAD_TREES}[case]
    message = refusal(save(tmp_path, changed(*changes)), MalformedInput, 3)
    for fragment in fragments:
        assert fragment in message, message


# -- refused for safety: exit 7 --------------------------------------------------------------------


def bomb() -> str:
    levels = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
    return f'<!DOCTYPE robot [<!ENTITY e0 "lol">{levels}]><robot name="&e11;"/>'


def chain(count: int) -> str:
    links = "".join(
        f'<link name="l{i}"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1"'
        ' iyz="0" izz="1"/></inertial></link>'
        for i in range(count)
    )
    joints = "".join(
        f'<joint name="j{i}" type="continuous"><parent link="l{i}"/><child'
        f' link="l{i + 1}"/></joint>'
        for i in range(count - 1)
    )
    return f'<robot name="chain">{links}{joints}</robot>'


UNSAFE = {
    "entity bomb": (bomb(), ["line 1", "<!DOCTYPE>"]),
    "quadratic entities": (
        f'<!DOCTYPE robot [<!ENTITY a "{"a" * 100_000}">]><robot name="{"&a;" * 10_000}"/>',
        ["<!DOCTYPE>"],
    ),
    "external entity": (
        '<!DOCTYPE robot [<!ENTITY x SYSTEM "file:///etc/hostname">]><robot name="x">&x;</robot>',
        ["<!DOCTYPE>"],
    ),
    "parameter entity": (
        '<!DOCTYPE robot [<!ENTITY % x SYSTEM "file:///etc/hostname"> %x;]><robot/>',
        ["<!DOCTYPE>"],
    ),
    "external document type": (
        '<!DOCTYPE robot SYSTEM "http://localhost/robot.dtd"><robot/>',
        ["<!DOCTYPE>"],
    ),
    "default attributes": (
        (
            "<!DOCTYPE robot [<!ATTLIST link name CDATA"
            f' "{"a" * 10_000}">]><robot>{"<link/>" * 100}</robot>'
        ),
        ["<!DOCTYPE>"],
    ),
    "200,000 deep": ("<robot>" + "<link>" * 200_000, [f"{MAX_DEPTH:,} deep"]),
    "200,000 deep and closed": (
        "<robot>" + "<a>" * 200_000 + "</a>" * 200_000 + "</robot>",
        [f"{MAX_DEPTH:,} deep"],
    ),
    "half a million elements": ("<robot>" + "<a/>" * 500_000 + "</robot>", ["300,000 elements"]),
    "one link too many": (chain(MAX_LINKS + 1), ["3,001 links", "3,000"]),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_refused_for_safety(tmp_path: Path, case: str) -> None:
    text, fragments = UNSAFE[case]
    message = refusal(save(tmp_path, text), RefusedForSafety, 7)
    for fragment in fragments:
        assert fragment in message, message


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "arm.urdf"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)  # sparse
    assert f"{MAX_BYTES // 2**20} MiB" in refusal(path, RefusedForSafety, 7)


def test_a_tag_of_many_attributes_is_no_hang(tmp_path: Path) -> None:
    attributes = " ".join(f'a{i}=""' for i in range(300_000))
    assert "no <link>" in refusal(save(tmp_path, f"<robot {attributes}/>"), MalformedInput, 3)


def test_the_longest_chain_loads_in_time(tmp_path: Path) -> None:
    path = save(tmp_path, chain(MAX_LINKS))
    start = time.process_time()
    assert load(path).nv == MAX_LINKS - 1
    assert time.process_time() - start < LONGEST


def test_the_longest_chain_of_mimics_loads_in_time(tmp_path: Path) -> None:
    """Each joint mimics the next one, so that a resolver without memory would take a quadratic
    time.
    """
    text = chain(MAX_LINKS)
    for i in range(MAX_LINKS - 2):
        text = text.replace(
            f'<joint name="j{i}" type="continuous">',
            f'<joint name="j{i}" type="continuous"><mimic joint="j{i + 1}"/>',
            1,
        )
    start = time.process_time()
    assert load(save(tmp_path, text)).nv == 1
    assert time.process_time() - start < LONGEST


# -- storage: exit 6 -------------------------------------------------------------------------------


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nobody.urdf", StorageError, 6)
    assert "is a folder" in refusal(tmp_path, StorageError, 6)
    inside_a_file = save(tmp_path, GOOD) / "arm.urdf"
    assert "cannot be read" in refusal(inside_a_file, StorageError, 6)
    with pytest.raises(StorageError):
        load("a\0b.urdf")
    (tmp_path / "circle.urdf").symlink_to("circle.urdf")
    refusal(tmp_path / "circle.urdf", StorageError, 6)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_no_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.urdf")
    assert "not a regular file" in refusal(tmp_path / "pipe.urdf", StorageError, 6)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)
    path.chmod(0)
    assert "ermission" in refusal(path, StorageError, 6)


def test_a_link_typed_by_its_user_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.urdf").symlink_to(save(tmp_path / "elsewhere", GOOD))
    assert load(tmp_path / "link.urdf").nv == 2


# -- unphysical or implausible: loads, with a warning that names the link --------------------------

WARNED = {
    "negative mass": (
        [(MASS, 'mass value="-1"')],
        r"arm.urdf: link 'upper' is not physical: mass is negative \(-1 kg\)",
    ),
    "massless leaf": (
        [
            ('mass value="0.5"', 'mass value="0"'),
            (
                'ixx="0.002" ixy="0" ixz="0" iyy="0.002" iyz="0" izz="0.001"',
                'ixx="0" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"',
            ),
        ],
        r"arm.urdf: link 'lower' moves, carries nothing and has no mass",
    ),
    "indefinite inertia": (
        [('izz="0.01"', 'izz="-0.01"')],
        r"link 'upper' is not physical: inertia .* negative principal moment \(-0.01",
    ),
    "triangle inequality": (
        [('izz="0.01"', 'izz="0.05"')],
        r"link 'upper' is not physical: principal moments .* triangle inequality",
    ),
    "grams": (
        [(MASS, 'mass value="1500"'), ('mass value="0.5"', 'mass value="500"')],
        r"arm.urdf: link 'upper' weighs 1500 kg; if the file is in grams",
    ),
    "grams of a light robot": (
        [(MASS, 'mass value="150"'), ('mass value="0.5"', 'mass value="50"')],
        r"arm.urdf: the links are too dense to be real",
    ),
    "millimetres in a joint": (
        [(ORIGIN, 'origin xyz="0 0 300"')],
        r"arm.urdf: joint 'shoulder' is 300 m from its parent; if .* millimetres",
    ),
    "millimetres in a centre of mass": (
        [('xyz="0 0 0.1"', 'xyz="0 0 100"')],
        r"arm.urdf: the centre of mass of link 'upper' is 100 m off",
    ),
    "square millimetres": (
        [
            ('ixx="0.02"', 'ixx="20000"'),
            ('iyy="0.02"', 'iyy="20000"'),
            ('izz="0.01"', 'izz="10000"'),
        ],
        (
            r"arm.urdf: the links' mean radius of gyration is .* m, link 'upper' most; if inertia"
            r" is in kg·mm²"
        ),
    ),
}


EXTREME = {
    "largest": [
        (MASS, 'mass value="1e30"'),
        ("0 0 0.1", "0 0 1e30"),
        ("revolute", "fixed"),
        ("0 0 0.3", "1e30 -1e30 1e30"),
    ],
    "smallest": [
        (MASS, 'mass value="5e-324"'),
        ("0 0 0.1", "0 0 1e30"),
        (ORIGIN, 'origin rpy="1e30 1e300 -1e300"'),
    ],
    "friction": [
        (
            f"<{AXIS}/>",
            (
                f'<{AXIS}/><mimic joint="elbow" multiplier="1e30" offset="-1e30"/><dynamics'
                ' damping="1e30" friction="1e30"/>'
            ),
        )
    ],
}


@pytest.mark.parametrize("case", WARNED)
def test_loads_with_a_warning(tmp_path: Path, case: str) -> None:
    changes, pattern = WARNED[case]
    with pytest.warns(RobotWarning, match=pattern):
        robot = load(save(tmp_path, changed(*changes)))
    assert robot.nv == 2
    assert np.all(np.isfinite(robot.theta))


@pytest.mark.parametrize("case", EXTREME)
def test_extreme_but_accepted_values_stay_finite(tmp_path: Path, case: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        robot = load(save(tmp_path, changed(*EXTREME[case])), floating_base=True)
    for array in (robot.theta, *robot.tree.arrays, robot.drive.viscous, robot.drive.coulomb):
        assert np.all(np.isfinite(array))


def test_a_negative_mass_stays_what_the_file_says(tmp_path: Path) -> None:
    """Pinocchio keeps −1, Drake turns it into +1: we keep it and report it."""
    with pytest.warns(RobotWarning):
        robot = load(save(tmp_path, changed((MASS, 'mass value="-1"'))))
    assert robot.theta[9] == -1.0
    assert [bool(verdict) for verdict in robot.consistency] == [False, True]


# -- anything at all -------------------------------------------------------------------------------

NASTY = st.sampled_from(
    [
        b"<",
        b">",
        b'"',
        b"&",
        b"\0",
        b"nan",
        b"1e999",
        b"-",
        b" ",
        b"</robot>",
        b"<link/>",
        b"\xff",
        b"base",
        b"lower",
        b"${x}",
        b"&#10;",
    ]
)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(GOOD)), st.integers(0, 12), st.one_of(NASTY, st.binary(max_size=3))
        ),
        min_size=1,
        max_size=3,
    )
)
def test_damaged_files_load_or_are_refused(
    tmp_path: Path, edits: list[tuple[int, int, bytes]]
) -> None:
    """Whatever bytes are lost or changed: a robot of finite numbers, or one sentence."""
    data = GOOD.encode()
    for at, lost, new in edits:
        data = data[:at] + new + data[at + lost :]
    path = save(tmp_path, data)
    robot, error = None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        try:
            robot = load(path)
        except ThetahatError as refused:
            error = refused
    if robot is None:
        assert error.exit_code in (3, 7)
        assert path.name in str(error)
        assert str(error).isprintable()
    else:
        assert np.all(np.isfinite(robot.theta))
        assert all(np.all(np.isfinite(array)) for array in robot.tree.arrays)
