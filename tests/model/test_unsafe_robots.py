"""Robot files that are refused for safety, and those that cannot be read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from bad_robot_cases import GOOD, LONGEST, refusal, save

from thetahat.errors import (
    MalformedInput,
    RefusedForSafety,
    StorageError,
)
from thetahat.model.io.load import load
from thetahat.model.io.urdf import MAX_LINKS
from thetahat.model.io.xml_reader import MAX_BYTES, MAX_DEPTH


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
