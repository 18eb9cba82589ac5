"""A robot of Unitree, over DDS (extra `ros2`): low-level state in, low-level commands out.

The topics are `rt/lowstate` and `rt/lowcmd`. Motors have numbers there, not names; `ROBOTS` says
which joint of the maker's robot file each one drives.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from thetahat.connect.connection import RobotState, checked_command, near_command
from thetahat.connect.ros2 import Domain, load_dds, messages_of, ros_domain, wire_name
from thetahat.errors import RefusedForSafety, UsageError, known

if TYPE_CHECKING:
    from cyclonedds.idl import IdlStruct
    from cyclonedds.pub import DataWriter
    from cyclonedds.sub import DataReader

    from thetahat.connect.sim_server import SimulationSetup

STATE, COMMAND = "/lowstate", "/lowcmd"
PATIENCE = 10.0  # [s] for the first sample
LOOK = 1.0  # [s] for others that command
HOLDING = 10  # commands that leave the robot held
ENABLED, STRONG = 0x01, 0x0A  # mode of a motor; of H1's large ones
HEAD, LOW_LEVEL = [0xFE, 0xEF], 0xFF  # of a unitree_go command
HOTTEST = 250.0  # [°C] that a temperature may say
_LEG = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
_ARM = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow")
_WRIST = ("wrist_roll", "wrist_pitch", "wrist_yaw")


def _joints(side: str, parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{side}_{part}_joint" for part in parts)


@dataclass(frozen=True)
class UnitreeRobot:
    """A kind of robot.

    messages: "Go" or "Hg". motors: joint by motor number, "" for an empty slot. kp, kd: of
    positions, [N·m/rad] and [N·m·s/rad], unless the address says others.
    """

    messages: str
    motors: tuple[str, ...]
    kp: float
    kd: float
    strong: tuple[int, ...] = ()  # motors with another mode


ROBOTS = {
    "go2": UnitreeRobot(
        "Go",
        sum((_joints(leg, ("hip", "thigh", "calf")) for leg in ("FR", "FL", "RR", "RL")), ()),
        60.0,
        5.0,
    ),
    "g1": UnitreeRobot(
        "Hg",
        _joints("left", _LEG)
        + _joints("right", _LEG)
        + _joints("waist", ("yaw", "roll", "pitch"))
        + _joints("left", _ARM + _WRIST)
        + _joints("right", _ARM + _WRIST),
        60.0,
        2.0,
    ),
    "h1": UnitreeRobot(
        "Go",
        _joints("right", ("hip_roll", "hip_pitch", "knee"))
        + _joints("left", ("hip_roll", "hip_pitch", "knee"))
        + ("torso_joint", "left_hip_yaw_joint", "right_hip_yaw_joint", "")
        + ("left_ankle_joint", "right_ankle_joint")
        + _joints("right", _ARM)
        + _joints("left", _ARM),
        100.0,
        3.0,
        tuple(range(9)),
    ),
}


@dataclass(frozen=True)
class UnitreeAddress:
    """Which robot is behind the topics, and gains of commanded positions."""

    robot: str
    kp: float | None = None
    kd: float | None = None

    @staticmethod
    def parse(text: str) -> UnitreeAddress:
        """Read ROBOT[,kp=X][,kd=X]."""
        robot, *rest = text.split(",")
        options = dict(each.partition("=")[::2] for each in rest)
        try:
            gains = {name: float(value) for name, value in options.items()}
        except ValueError:
            gains = {"": 0.0}
        fine = gains.keys() <= {"kp", "kd"} and all(0.0 <= g < 1000.0 for g in gains.values())
        if robot not in ROBOTS or not fine:
            raise UsageError(
                f"--via unitree:{text} is unclear; give unitree:ROBOT[,kp=X][,kd=X], such as"
                f" unitree:go2; robots: {known(ROBOTS)}"
            )
        return UnitreeAddress(robot, **gains)

    def open(self, setup: SimulationSetup, commands: str = "") -> UnitreeConnection:
        """Connect."""
        return UnitreeConnection(setup.robot.joint_names, self, commands=commands)


class UnitreeConnection:
    """A `Connection` to a robot of Unitree.

    Args:
        joints: of the robot's file, in its order.
        address: which robot.
        commands: "torque", "position", or "" for reading only.
        domain: None: that of ROS_DOMAIN_ID, else 0, as the robots have it.
        loopback: whether only this machine is heard.
        patience: [s] for the first sample.

    """

    simulated, limits = False, None

    def __init__(
        self,
        joints: Sequence[str],
        address: UnitreeAddress,
        *,
        commands: str = "",
        domain: int | None = None,
        loopback: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        load_dds()
        from thetahat.connect import unitree_messages as messages

        self.joints, self.mode = tuple(joints), commands or "read-only"
        self._robot = ROBOTS[address.robot]
        self._order = motor_numbers(self.joints, address.robot)
        self._kp = self._robot.kp if address.kp is None else address.kp
        self._kd = self._robot.kd if address.kd is None else address.kd
        self._hg = self._robot.messages == "Hg"
        self._messages = messages
        self._closed, self.rejected, self._last = False, 0, -np.inf
        self._newest: RobotState | None = None
        self._sent: np.ndarray | None = None  # newest command
        self._machine = 0  # what a unitree_hg command must repeat
        self._q: np.ndarray | None = None
        self._domain = Domain(ros_domain() if domain is None else domain, loopback=loopback)
        kind = messages.HgLowState if self._hg else messages.GoLowState
        self._reader: DataReader | None = self._domain.reader(STATE, kind, 1)
        self._writer: DataWriter | None = None
        self._wait(patience, str(kind.__idl_typename__))
        if commands:
            self._writer = self._only_writer()

    def _wait(self, patience: float, type_name: str) -> None:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            self._newest = self._taken()
            if self._newest is not None:
                return
            time.sleep(0.005)
        heard = self._domain.publications(LOOK)
        start = f"no state came on {wire_name(STATE)} in domain {self._domain.number}"
        there = heard.get(wire_name(STATE))
        if self.rejected:
            why = f"{self.rejected} messages could not be believed"
        elif there is not None and there.replace("::", ".") != type_name.replace("::", "."):
            why = f"it is published with type {there}; name the robot that it is: {known(ROBOTS)}"
        elif there is not None:
            why = (
                "it is published, but no message of it can be read: the robot's software defines it"
                " otherwise"
            )
        else:
            why = (
                "check the cable, and that CYCLONEDDS_URI names the network interface that leads to"
                " the robot"
            )
        self._leave()
        raise RefusedForSafety(f"{start} within {patience:g} s: {why}")

    def _only_writer(self) -> DataWriter:
        """What commands are sent by, unless another one sends them already."""
        if wire_name(COMMAND) in self._domain.publications(LOOK):
            self._leave()
            raise RefusedForSafety(
                f"another program publishes commands on {wire_name(COMMAND)}, so two would drive"
                " the robot; end that one: release the robot's own motion service (debug mode)"
            )
        kind = self._messages.HgLowCmd if self._hg else self._messages.GoLowCmd
        return self._domain.writer(COMMAND, kind)

    # -- samples -----------------------------------------------------------------------------------

    def read(self) -> RobotState | None:
        """The newest state; None where none came."""
        if self._closed:
            raise UsageError("the connection is closed; make a new one")
        newest, self._newest = self._newest, None
        return self._taken() or newest

    def _taken(self) -> RobotState | None:
        heard = [] if self._reader is None else messages_of(self._reader, 1)
        self.rejected += heard is None
        return self._decoded(heard[-1]) if heard else None

    def _decoded(self, message: IdlStruct) -> RobotState | None:
        """A message as a sample; None where it cannot be believed, or is old."""
        number, motors = self._messages.number, self._messages.motors(message)
        q, dq, tau = (motors[name][self._order, 0] for name in ("q", "dq", "tau_est"))
        temperature = np.max(motors["temperature"][self._order], axis=1)  # of two sensors, or one
        t = 1e-3 * number(message, "tick")  # [s]
        state = RobotState(t, q, dq, tau, temperature)
        if not state.is_valid(len(self.joints)) or np.max(temperature) > HOTTEST:
            self.rejected += 1
            return None
        if t <= self._last:
            return None
        self._last, self._q = t, q
        self._machine = int(number(message, "mode_machine")) if self._hg else 0
        return state

    # -- commands ----------------------------------------------------------------------------------

    def write(self, command: np.ndarray) -> None:
        """Publish positions, which motors hold with the gains kp and kd, or torques."""
        values = checked_command(command, self, closed=self._closed)
        if self.mode == "position":
            near_command(values, self._q)
        self._sent = values
        self._publish(values, self.mode)

    def _publish(self, values: np.ndarray, mode: str) -> None:
        assert self._writer is not None
        message = self._message(values, mode)
        message.crc = self._messages.checksum(message)
        self._writer.write(message)

    def _message(self, values: np.ndarray, mode: str) -> IdlStruct:
        """A command; "damping": no torque but what resists motion. Other motors stay disabled."""
        if self._hg:
            message = self._messages.HgLowCmd(mode_pr=0, mode_machine=self._machine)
        else:
            message = self._messages.GoLowCmd(head=list(HEAD), level_flag=LOW_LEVEL)
        for number, value in zip(self._order, values.tolist(), strict=True):
            motor = message.motor_cmd[number]
            motor.mode = STRONG if number in self._robot.strong else ENABLED
            motor.tau = value if mode == "torque" else 0.0
            motor.q = value if mode == "position" else 0.0
            motor.kp = self._kp if mode == "position" else 0.0
            motor.kd = 0.0 if mode == "torque" else self._kd
        return message

    def close(self) -> None:
        """Leave the robot at its last commanded position or, where torques were commanded, damped;
        let go.
        """
        if self._closed:
            return
        self._closed = True
        if self._sent is not None:
            for _ in range(HOLDING):
                self._publish(self._sent, "position" if self.mode == "position" else "damping")
                time.sleep(0.002)
        self._leave()

    def _leave(self) -> None:
        """Let go: of reader and writer first, as their handles are given to others after it."""
        self._reader = self._writer = None
        self._domain.leave()


def motor_numbers(joints: tuple[str, ...], name: str) -> list[int]:
    """Motor numbers in the order of the robot's file."""
    motors = ROBOTS[name].motors
    known_as = {each: each if each in motors else f"{each}_joint" for each in joints}  # MJCF's
    missing = [joint for joint, motor in known_as.items() if motor not in motors]
    if missing or not joints:
        raise UsageError(
            f"{name} has no motor for {known(missing)} of the robot's file; its motors drive"
            f" {known(each for each in motors if each)}: give a file without other joints"
        )
    return [motors.index(known_as[joint]) for joint in joints]
