"""Bad robot files: each gets one sentence that names file, element, value and fix, and its exit
code. Nothing hangs.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from bad_robot_cases import AXIS, GOOD, MASS, ORIGIN, changed, refusal, save

from thetahat.errors import (
    MalformedInput,
)
from thetahat.model.io.load import load


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
