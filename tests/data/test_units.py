"""Units of columns: converted exactly, named once, refused where they could not be meant."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.data.formats.write_log import write_table
from thetahat.data.log import read_log
from thetahat.data.memory_log import log_from_table
from thetahat.data.units import ANGLES, TIMES, TORQUES, parse_units, units_of

T = np.arange(200) * 0.01
ANGLE = np.column_stack([np.sin(2.0 * T), 0.5 * np.cos(3.0 * T)])
SPEED = np.column_stack([2.0 * np.cos(2.0 * T), -1.5 * np.sin(3.0 * T)])
TORQUE = 3.0 + ANGLE
CARRIAGE = """<robot name="carriage">
<link name="base"/>
<link name="slide"><inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="arm"><inertial><origin xyz="0.2 0 0"/><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="rail" type="prismatic"><parent link="base"/><child link="slide"/><axis xyz="1 0 0"/><limit lower="-1" upper="1" effort="9" velocity="9"/></joint>
<joint name="turn" type="continuous"><parent link="slide"/><child link="arm"/><axis xyz="0 1 0"/></joint>
</robot>"""


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("double_pendulum"))


def columns(
    t: float = 1.0, q: float = 1.0, dq: float = 1.0, tau: float = 1.0
) -> dict[str, np.ndarray]:
    """The motion in units of these sizes [SI]."""
    out = {"t": T / t}
    for kind, array, size in (("q", ANGLE, q), ("dq", SPEED, dq), ("tau", TORQUE, tau)):
        out |= {f"{kind}{j + 1}": array[:, j] / size for j in range(2)}
    return out


def check(log: th.data.log.Log) -> None:  # type: ignore[name-defined]
    (chunk,) = log.read()
    for found, wanted in ((chunk.t, T), (chunk.q, ANGLE), (chunk.dq, SPEED), (chunk.tau, TORQUE)):
        np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_a_converted_log_is_the_log_in_si_units(
    robot: th.Robot, tmp_path: Path, suffix: str
) -> None:
    table = columns(t=1e-3, q=math.pi / 180, dq=math.pi / 30, tau=1e-3)
    path = write_table(tmp_path / f"log{suffix}", list(table), list(table.values()))
    log = read_log(path, robot, units="q=deg,t=ms,dq=rpm,tau=mNm")
    check(log)
    told = [finding.message for finding in log.findings if finding.kind == "unit-conversion"]
    assert told == [
        "units converted to SI: q from deg (× 0.0174533), t from ms (× 0.001), dq from rpm"
        " (× 0.10472), tau from mNm (× 0.001)"
    ]


@pytest.mark.parametrize(
    ("kind", "unit", "size"),
    [
        *(("q", name, size) for name, size in ANGLES.items()),
        *(("t", name, size) for name, size in TIMES.items()),
        *(("tau", name, size) for name, size in TORQUES.items()),
        *(("dq", name, size) for name, size in units_of("dq")[0].items()),
        ("dq", "deg", math.pi / 180),
        ("q", "°", math.pi / 180),
        ("t", "µs", 1e-6),
        ("tau", "0.25", 0.25),
    ],
)
def test_every_unit_has_its_size(robot: th.Robot, kind: str, unit: str, size: float) -> None:
    check(log_from_table(columns(**{kind: size}), robot, units={kind: unit}))


def test_kilogram_force_centimetres() -> None:
    assert parse_units("tau=kgfcm")["tau"].angular == pytest.approx(0.0980665, rel=1e-15)


def test_each_joint_has_the_units_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "carriage.urdf"
    path.write_text(CARRIAGE)
    robot = th.load(path)
    table = {"t": T, "q.rail": 400.0 * ANGLE[:, 1], "q.turn": np.degrees(ANGLE[:, 0])}
    for units in ("q.rail=mm,q.turn=deg", {"q": "deg", "q.rail": "mm"}):
        (chunk,) = log_from_table(table, robot, units=units).read()
        np.testing.assert_allclose(chunk.q[:, 0], 0.4 * ANGLE[:, 1], rtol=1e-14)
        np.testing.assert_allclose(chunk.q[:, 1], ANGLE[:, 0], rtol=1e-14)
    (chunk,) = log_from_table({**table, "q.rail": 0.4 * ANGLE[:, 1]}, robot, units="q=deg").read()
    np.testing.assert_allclose(chunk.q[:, 0], 0.4 * ANGLE[:, 1], rtol=1e-14)


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ("tau=A", ["current is no torque", "gain", "--actuation"]),
        ("tau.elbow=mA", ["current is no torque"]),
        ("q=ms", ["units of q are rad, mrad, deg, rev"]),
        ("tau=rad", ["units of tau are Nm"]),
        ("q", ["q=deg,t=ms"]),
        ("", ["q=deg,t=ms"]),
        ("q=deg,q=rad", ["twice"]),
        ("x=deg", ["known keys are t, q, dq"]),
        ("q.wrist=deg", ["no joint 'wrist'", "shoulder, elbow"]),
        ("q=mm", ["no column of q that could be in it"]),
        ("ddq=deg", ["no column of ddq"]),
        ("t=0", ["units of t"]),
        ("tau=nan", ["units of tau"]),
    ],
)
def test_units_that_cannot_be_meant(robot: th.Robot, units: str, words: list[str]) -> None:
    with pytest.raises(th.ThetahatError) as caught:
        log_from_table(columns(), robot, units=units)
    assert caught.value.exit_code == 2
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_gains_turn_currents_into_torques(robot: th.Robot) -> None:
    table = columns() | {"tau1": TORQUE[:, 0] / 11.5, "tau2": TORQUE[:, 1] / 8.25}
    check(log_from_table(table, robot, units="tau.shoulder=11.5,tau.elbow=8.25"))
