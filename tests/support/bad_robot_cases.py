"""A good URDF, changes to it, and what is said of a bad one."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import pytest

from thetahat.errors import (
    RobotWarning,
    ThetahatError,
)
from thetahat.model.io.load import load

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
MASS, ORIGIN, AXIS = 'mass value="1.5"', 'origin xyz="0 0 0.3" rpy="0 0 0"', 'axis xyz="0 1 0"'


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
