"""Small valid inputs of every format, which the fuzzer spoils."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import bag_files
import numpy as np
import polars as pl

import thetahat as th

URDF = """<?xml version="1.0"?>
<robot name="two">
  <link name="base"/>
  <link name="upper">
    <inertial><origin xyz="0 0 -0.2" rpy="0 0 0"/><mass value="2.5"/>
      <inertia ixx="0.03" ixy="0.001" ixz="0" iyy="0.03" iyz="0" izz="0.005"/></inertial>
    <visual><geometry><cylinder radius="0.05" length="0.4"/></geometry></visual>
  </link>
  <link name="lower">
    <inertial><origin xyz="0 0.01 -0.15" rpy="0.1 0 0"/><mass value="1.2"/>
      <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.002"/></inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><origin xyz="0 0 1" rpy="0 0 0"/><axis xyz="0 1 0"/>
    <limit lower="-2.5" upper="2.5" effort="80" velocity="4"/><dynamics damping="0.1" friction="0.2"/>
  </joint>
  <joint name="elbow" type="revolute">
    <parent link="upper"/><child link="lower"/><origin xyz="0 0 -0.4" rpy="0 0 0"/><axis xyz="1 0 0"/>
    <limit lower="-2.5" upper="2.5" effort="40" velocity="4"/>
  </joint>
</robot>
"""
MJCF = """<mujoco model="two">
  <compiler angle="radian" autolimits="true"/>
  <option gravity="0 0 -9.81"/>
  <default><joint damping="0.1" frictionloss="0.2"/></default>
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint name="shoulder" axis="0 1 0" range="-2.5 2.5"/>
      <inertial pos="0 0 -0.2" mass="2.5" diaginertia="0.03 0.03 0.005"/>
      <geom type="capsule" size="0.05 0.2" pos="0 0 -0.2" mass="0"/>
      <body name="lower" pos="0 0 -0.4">
        <joint name="elbow" axis="1 0 0" range="-2.5 2.5" armature="0.01"/>
        <inertial pos="0 0.01 -0.15" mass="1.2" fullinertia="0.01 0.01 0.002 0 0 0"/>
      </body>
    </body>
  </worldbody>
  <actuator><position joint="shoulder" kp="40"/><motor joint="elbow"/></actuator>
</mujoco>
"""
MANIFEST = """robot = "robot.urdf"

[robots.one]
logs = ["log.csv"]

[robots.two]
robot = "robot.urdf"

[[robots.two.logs]]
log = "log.csv"
date = 2024-03-01

[[robots.two.logs]]
log = "other.csv"
period = "spring"
"""
ROWS, RATE = 200, 100.0
NAMES = ("shoulder", "elbow")


def motion(seed: int = 0) -> dict[str, np.ndarray]:
    """Return a lively motion of two joints and its torques, with friction and some noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(ROWS) / RATE
    w = 2.0 * np.pi * np.array([0.5, 1.1, 1.9])
    a, phase = rng.uniform(0.2, 0.5, (2, 3)) / w * 3.0, rng.uniform(0.0, 6.28, (2, 3))
    angle = t[:, None, None] * w + phase
    q = np.sum(a * np.sin(angle), axis=2)
    dq, ddq = np.sum(a * w * np.cos(angle), axis=2), np.sum(-a * w**2 * np.sin(angle), axis=2)
    robot = th.load(_file(URDF))
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 0.3 * dq + 0.4 * np.tanh(dq / 0.05)
    tau += 0.01 * rng.normal(size=tau.shape)
    return {"t": t, "q": q, "dq": dq, "ddq": ddq, "tau": tau}


def _file(text: str) -> Path:
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="thetahat-fuzz-"))
    (folder / "robot.urdf").write_text(text)
    return folder / "robot.urdf"


def columns(data: dict[str, np.ndarray], kinds: str = "q dq tau") -> dict[str, np.ndarray]:
    """Return the columns of a log."""
    out = {"t": data["t"]}
    for kind in kinds.split():
        out |= {f"{kind}.{name}": data[kind][:, j] for j, name in enumerate(NAMES)}
    return out


def write_samples(folder: Path) -> Path:
    """Write valid inputs of every format into a folder; none of thetahat's own results."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "robot.urdf").write_text(URDF)
    (folder / "robot.xml").write_text(MJCF)
    data, other = motion(0), motion(1)
    frame = pl.DataFrame(columns(data))
    frame.write_csv(folder / "log.csv")
    pl.DataFrame(columns(other)).write_csv(folder / "other.csv")
    pl.DataFrame(columns(data, "q dq ddq")).write_csv(folder / "motion.csv")
    frame.write_parquet(folder / "log.parquet")
    frame.write_ipc(folder / "log.feather")
    np.savez(folder / "log.npz", **{key: data[key] for key in ("t", "q", "dq", "tau")})
    np.savez_compressed(folder / "packed.npz", **columns(data))
    _write_mat(folder / "log.mat", data)
    bag_files.write_ros2(folder / "bag", NAMES, data)
    shutil.copy(next((folder / "bag").glob("*.mcap")), folder / "log.mcap")
    bag_files.write_ros1(folder / "log.bag", NAMES, data)
    (folder / "map.csv").write_text("a,b\n1,0\n0.5,1\n")
    (folder / "fleet.toml").write_text(MANIFEST)
    (folder / "fleet.csv").write_text(
        "id,robot,log,period,date\none,robot.urdf,log.csv,,2024-03-01\ntwo,robot.urdf,other.csv,spring,\n"
    )
    _write_poses(folder / "poses.csv")
    drives = columns(data, "q") | {
        f"cmd.{name}": data["q"][:, j] + 0.02 * data["dq"][:, j] for j, name in enumerate(NAMES)
    }
    pl.DataFrame(drives).write_csv(folder / "drives.csv")
    gains = {
        "schema": "thetahat/drive/1",
        "robot": "robot.urdf",
        "sha256": None,
        "joints": list(NAMES),
        "motors": list(NAMES),
        "terms": {"offset": {"units": ["N·m", "N·m"], "values": [0.1, -0.1]}},
        "actuation": None,
        "gains": {"values": [1.05, None], "std": [0.01, None]},
    }
    (folder / "gains.json").write_text(json.dumps(gains))
    return folder


def _write_mat(path: Path, data: dict[str, np.ndarray]) -> None:
    from scipy.io import savemat

    savemat(path, {key: data[key] for key in ("t", "q", "dq", "tau")})


def _write_poses(path: Path) -> None:
    from scipy.spatial.transform import Rotation

    turns = Rotation.random(24, random_state=np.random.default_rng(3))
    bias = np.array([0.5, -0.2, 0.1])
    force = turns.inv().apply([0.0, 0.0, -9.81 * 1.2]) + bias
    torque = np.cross([0.01, 0.0, 0.06], force - bias) + 0.01
    noise = np.random.default_rng(4).normal(size=(24, 6)) * 1e-3
    rows = np.column_stack([turns.as_quat(), np.column_stack([force, torque]) + noise])
    head = "qx,qy,qz,qw,fx,fy,fz,tx,ty,tz"
    np.savetxt(path, rows, delimiter=",", header=head, comments="", fmt="%.9g")
