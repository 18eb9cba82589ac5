"""Units of a log's columns: `q=deg,t=ms,tau=mNm`, or of one joint, `q.slider=mm`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from thetahat.errors import UsageError, known
from thetahat.model.floating_base import ground_of
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind
from thetahat.model.wrench_sensors import sensed_link, sensor_links

KINDS = ("t", "q", "dq", "ddq", "tau", "cmd", "wrench")
TURN = 2.0 * math.pi
KILOPOND = 9.80665  # [N] weight of a kilogram, by definition
ANGLES = {"rad": 1.0, "mrad": 1e-3, "deg": math.pi / 180.0, "rev": TURN}
LENGTHS = {"m": 1.0, "cm": 1e-2, "mm": 1e-3}
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
TORQUES = {
    "Nm": 1.0,
    "kNm": 1e3,
    "mNm": 1e-3,
    "Ncm": 1e-2,
    "kgfm": KILOPOND,
    "kgfcm": 1e-2 * KILOPOND,
}
FORCES = {"N": 1.0, "kN": 1e3, "mN": 1e-3, "kgf": KILOPOND}
CURRENTS = ("A", "mA", "amps", "ampere", "amperes")
SAME = {"µs": "us", "μs": "us", "°": "deg", "degrees": "deg", "radians": "rad", "N·m": "Nm"}


@dataclass(frozen=True)
class Unit:
    """Factors to SI units: of coordinates that are angles, and of those that are lengths."""

    name: str
    angular: float | None  # [rad per unit, N·m per unit …]; None: not a unit of these
    linear: float | None  # [m per unit, N per unit …]


def units_of(kind: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the units of a kind of column, with factors: for angles and for lengths."""
    if kind == "t":
        return TIMES, TIMES
    if kind in ("tau", "wrench"):
        return TORQUES, FORCES
    suffix = {"dq": "/s", "ddq": "/s^2"}.get(kind, "")
    angles = {f"{name}{suffix}": factor for name, factor in ANGLES.items()}
    if kind == "dq":
        angles["rpm"] = TURN / 60.0
    return angles, {f"{name}{suffix}": factor for name, factor in LENGTHS.items()}


def parse_units(units: str | Mapping[str, str] | None) -> dict[str, Unit]:
    """Parse ``"q=deg,t=ms,tau.elbow=mNm"`` into units by kind, or by kind and joint."""
    if units is None:
        return {}
    if isinstance(units, str):
        parts = [part.partition("=") for part in units.split(",") if part.strip()]
        if not parts or any(not mark for _, mark, _ in parts):
            raise UsageError(f"units is {units!r}; write it as q=deg,t=ms,tau=mNm")
        if len({key.strip() for key, _, _ in parts}) < len(parts):
            raise UsageError(f"units {units!r} states one of its keys twice; state each once")
        units = {key.strip(): name.strip() for key, _, name in parts}
    return {key: _unit(key, str(name)) for key, name in units.items()}


def _unit(key: str, name: str) -> Unit:
    kind = key.partition(".")[0]
    if kind not in KINDS:
        raise UsageError(
            f"units has the key {key!r}; known keys are {', '.join(KINDS)}, or one joint's, as in"
            " q.elbow"
        )
    if kind == "tau" and name in CURRENTS:
        raise UsageError(
            f"units has {key}={name}, but a current is no torque; give each motor's gain in N·m"
            " per A, as in tau.elbow=11.5, or for coupled motors multiply the currents yourself"
            " and use --actuation"
        )
    angles, lengths = units_of(kind)
    suffix = {"dq": "/s", "ddq": "/s^2"}.get(kind, "")
    plain = SAME.get(name, name).replace("²", "^2").replace("s2", "s^2")
    for text in (plain, f"{plain}{suffix}"):
        if text in angles or text in lengths:
            return Unit(text, angles.get(text), lengths.get(text))
    try:
        factor = float(name)
    except ValueError:
        factor = math.nan
    if not math.isfinite(factor) or factor == 0.0:
        listed = ", ".join(dict.fromkeys((*angles, *lengths)))
        raise UsageError(
            f"units has {key}={name}; units of {kind} are {listed}, or a factor to SI units"
        )
    return Unit(f"{factor:g}", factor, factor)


@dataclass(frozen=True)
class ScaledUnits:
    """Units of columns, gains of the drives that report torques, and the axes of wrenches."""

    units: str | Mapping[str, str] | None
    gains: tuple[tuple[str, float], ...] = ()  # joint, and factor on its torque
    wrench_frame: str = "link"  # or world: whose axes wrenches are in, about the link's origin

    def __post_init__(self) -> None:
        if self.wrench_frame not in ("link", "world"):
            raise UsageError(
                f"the frame of wrenches is {self.wrench_frame!r}; give link or world, whose axes"
                " they are in"
            )


@dataclass(frozen=True)
class Converter:
    """Factor of each column, and what was converted."""

    robot: Robot
    units: Mapping[str, Unit]
    gains: Mapping[str, float] = field(default_factory=dict)  # of each joint's torque

    def factor(self, kind: str, position: int) -> float:
        """Return the factor of a column to SI units. position: of q, dq, ddq or tau, or of the
        wrenches of the world and of contact flags.
        """
        if kind in ("wrench", "contact"):
            return self._ground_factor(kind, position)
        joint, dimension = self._coordinate(kind, position)
        link = sensed_link(joint) if kind == "tau" else None
        if link is not None:
            kind, joint = "wrench", link
        unit = self.units.get(f"{kind}.{joint}") or self.units.get(kind)
        factor = None
        if unit is not None and dimension:
            factor = unit.angular if dimension == "angle" else unit.linear
        gain = self.gains.get(joint, 1.0) if kind == "tau" else 1.0
        return gain if factor is None else gain * factor

    @property
    def time_factor(self) -> float:
        """Return the factor of the time stamps to seconds."""
        unit = self.units.get("t")
        return 1.0 if unit is None or unit.angular is None else unit.angular

    def check(self, place: Mapping[tuple[str, int], str]) -> None:
        """Refuse a unit that no column has. place: (kind, position) → column."""
        joints = set(self.robot.joint_names)
        if self.gains and not joints & set(self.gains):
            raise UsageError(
                f"the gains are of joints {known(self.gains)}, and the robot has"
                f" {known(self.robot.joint_names)}; give the drive.json of this robot"
            )
        for key, unit in self.units.items():
            kind, _, joint = key.partition(".")
            if kind == "wrench":
                self._check_wrench(key, joint)
                continue
            if joint and joint not in joints:
                raise UsageError(
                    f"units has the key {key!r}, but the robot has no joint {joint!r}; its joints:"
                    f" {known(self.robot.joint_names)}"
                )
            if kind in ("t", "cmd"):
                continue
            used = [
                at
                for k, at in place
                if k == kind
                and (not joint or self._coordinate(k, at)[0] == joint)
                and (unit.angular if self._coordinate(k, at)[1] == "angle" else unit.linear)
            ]
            if not used:
                raise UsageError(
                    f"units has {key}={unit.name}, but the log has no column of {key} that could"
                    " be in it; leave it out, or name the columns with --columns"
                )

    def _ground_factor(self, kind: str, position: int) -> float:
        """The factor of a wrench on a link of a floating robot; flags have none."""
        ground = ground_of(self.robot)
        if kind == "contact" or ground is None:
            return 1.0
        unit = self.units.get(f"wrench.{ground.measured[position // 6]}") or self.units.get(kind)
        factor = None if unit is None else (unit.linear, unit.angular)[position % 6 >= 3]
        return 1.0 if factor is None else factor

    def _check_wrench(self, key: str, link: str) -> None:
        links = set(sensor_links(self.robot))
        ground = ground_of(self.robot)
        links |= set() if ground is None else set(ground.measured)
        if (link and link not in links) or not links:
            raise UsageError(
                f"units has the key {key!r}, but the log has no columns {key}.fx … {key}.tz; leave"
                " it out"
            )

    def sentence(self, place: Mapping[tuple[str, int], str]) -> str:
        """Return what is converted, in words; empty where nothing is."""
        parts = []
        for key, unit in self.units.items():
            kind, _, joint = key.partition(".")
            if kind == "wrench":
                head = f"wrench.{joint}." if joint else "wrench."
                factors = {
                    self.factor(k, at)
                    for k, at in place
                    if k == "wrench" or (k == "tau" and self._coordinate(k, at)[0].startswith(head))
                }
            else:
                factors = {
                    self.factor(k, at)
                    for k, at in place
                    if k == kind and (not joint or self._coordinate(k, at)[0] == joint)
                }
            factors = {self.time_factor} if kind == "t" else factors - {1.0}
            factors -= {1.0}
            if factors:
                parts.append(f"{key} from {unit.name} (× {max(factors):.6g})")
        return f"units converted to SI: {', '.join(parts)}" if parts else ""

    def gain_notes(self, place: Mapping[tuple[str, int], str]) -> tuple[tuple[str, str], ...]:
        """Return which torques are multiplied by a drive's gain, as a note; none where none is."""
        torques = [self._coordinate(kind, at)[0] for kind, at in place if kind == "tau"]
        parts = [f"{name} × {self.gains[name]:.4g}" for name in torques if name in self.gains]
        text = f"torques multiplied by their drive's gain: {', '.join(parts)}"
        return (("gains", text),) if parts else ()

    def _coordinate(self, kind: str, position: int) -> tuple[str, str]:
        """Return (joint, "angle", "length" or "" for a quaternion) of a coordinate."""
        tree = self.robot.tree
        for node in tree.independent:
            first = (tree.q_index if kind in ("q", "cmd") else tree.v_index)[node.name]
            count = node.kind.nq if kind in ("q", "cmd") else node.kind.nv
            if first <= position < first + count:
                return node.name, _dimension(node.kind, kind, position - first)
        return "", ""


def _dimension(joint: JointKind, kind: str, at: int) -> str:
    if joint in (JointKind.REVOLUTE, JointKind.PRISMATIC):
        return "angle" if joint is JointKind.REVOLUTE else "length"
    name = (joint.coordinates if kind in ("q", "cmd") else joint.directions)[at]
    if name in ("x", "y", "z", "vx", "vy", "vz"):
        return "length"
    return "angle" if name in ("angle", "wx", "wy", "wz") else ""
