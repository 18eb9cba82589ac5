"""A floating robot that stands and sways on the ground, in MuJoCo with contacts.

Joint torques are the feedforward of a controller that believes in the nominal robot, which carries
the motion with the least contact forces, and stiffness and damping of the drives. The robot's
friction, rotors, sensors, delay, limits and payload are those of every plant (`Realism`). What is
logged is what a legged robot logs: the pose of its base, joint positions, motor torques, wrenches
of the ground on its feet, flags of contact, an IMU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from thetahat.data.formats.write_log import write_table
from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError
from thetahat.model.floating_base import ground_of, moving_link
from thetahat.model.ground import Foot
from thetahat.model.robot import Robot
from thetahat.plant import ground_sensors
from thetahat.plant.ground_sensors import Columns, GroundSensors
from thetahat.plant.ground_world import Drives, GroundWorld, Wanted
from thetahat.plant.realism import Realism, require_body
from thetahat.plant.sensors import STREAMS, Sensors, streams
from thetahat.plant.simulate import tick_times
from thetahat.plant.stance import StandingMotion, feedforward, leg_joints

STEP = 5e-4  # [s] of the physics, at most
SETTLING = 0.5  # [s] on the ground before the motion begins
QUICK = 100.0  # [rad/s] of joints that carry no foot
DAMPING = 0.7  # of critical, of legs under the whole body
SERIES = 3.0  # joints of a leg that bend one way
FALLEN = 0.35  # [rad or part of the height] from its course: it fell

Progress = Callable[[int, int], None]  # rows done, rows in all


@dataclass(frozen=True, eq=False)
class StandingSample:
    """What a controller measures in one of its periods."""

    k: int  # of the period
    t: float  # [s] of its beginning
    q: np.ndarray  # (nq,) at its beginning
    dq: np.ndarray  # (nv,) likewise; the base's twist is the state estimator's
    tau: np.ndarray  # (nv,) of the motors, in its mean
    wrenches: dict[str, np.ndarray]  # (6,) on each foot, in its mean


# takes what was measured; returns other feedforward torques (n, nv) from the next period on, or
# None to go on
Follower = Callable[[StandingSample], np.ndarray | None]


@dataclass(frozen=True, eq=False)
class StandingRecording:
    """The log's columns, and what was true at the same moments."""

    columns: Columns
    seed: int
    t: np.ndarray  # (n,) [s]
    q: np.ndarray  # (n, nq)
    tau: np.ndarray  # (n, nv) exerted by the drives from each moment on
    wrenches: np.ndarray  # (n, feet, 6) force and couple on each foot, in its axes
    wanted: np.ndarray  # (n, nq) the motion that was followed

    def without_wrenches(self, leave_out: bool = True) -> StandingRecording:
        """Return the recording of a robot without force sensors: flags of contact alone."""
        kept = {
            name: column
            for name, column in self.columns.items()
            if not (leave_out and name.startswith("wrench."))
        }
        return replace(self, columns=kept)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the columns to .csv, .parquet or .npz."""
        return write_table(path, list(self.columns), list(self.columns.values()))


@dataclass(frozen=True, eq=False)
class _Seen:
    """Signals at the ticks, (n, …), filled row by row; tau, wrenches and imu at every
    step of the physics first."""

    q: np.ndarray
    tau: np.ndarray
    wrenches: np.ndarray
    imu: np.ndarray
    measured_q: np.ndarray
    measured_dq: np.ndarray
    measured_tau: np.ndarray


def stand_and_sway(
    true: Robot,
    nominal: Robot,
    motion: StandingMotion,
    *,
    rate: float | None = None,
    realism: Realism | None = None,
    sensors: GroundSensors | None = None,
    imu: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    follower: Follower | None = None,
) -> StandingRecording:
    """Let a robot follow a motion with its feet in place.

    true: the robot that stands. nominal: the one its controller believes in; its ground names the
        feet. rate: of controller and log [Hz]; default: the motion's. imu: the link with an IMU.
        follower: sees what is measured while the robot moves, and may change the feedforward.
    """
    realism, sensors = realism or Realism(), sensors or GroundSensors()
    require_body(realism, true)
    rate = 1.0 / float(motion.t[1] - motion.t[0]) if rate is None else rate
    random = streams(seed)
    times = tick_times(realism, random["clock"], rate, float(motion.t[-1] - motion.t[0]))
    wanted = motion.resampled(nominal, motion.t[0] + times)
    robot = realism.applied(true)
    world = GroundWorld(robot, nominal)
    spawned = np.random.SeedSequence(seed).spawn(len(STREAMS) + 2)
    rng = np.random.default_rng(spawned[-2])
    tell = None
    if follower is not None:
        tell = _Telling(follower, world.feet, sensors, np.random.default_rng(spawned[-1]))
    seen = _run(world, nominal, robot, wanted, times, realism, random, imu, progress, tell)
    weight = nominal.mass * float(np.linalg.norm(nominal.gravity))
    columns = {"t": times} | ground_sensors.pose_columns(seen.q, sensors, rng)
    columns |= _joint_columns(robot, seen, speeds=realism.logs_speed)
    columns |= ground_sensors.wrench_columns(world.feet, seen.wrenches, sensors, rng)
    columns |= ground_sensors.contact_columns(world.feet, seen.wrenches, weight)
    if imu is not None:
        columns |= ground_sensors.imu_columns(seen.imu, sensors, rng)
    return StandingRecording(columns, seed, times, seen.q, seen.tau, seen.wrenches, wanted.q)


def drives_of(robot: Robot, q: np.ndarray, limits: np.ndarray | None) -> Drives:
    """Return stiffness and damping by which a robot of this size stands: its weight times its
    height per radian in the legs, and on flat feet for each of the joints in series that bend
    under it (hip, knee, ankle); elsewhere what moves each joint's own inertia quickly.
    """
    weight = robot.mass * float(np.linalg.norm(robot.gravity))
    height = max(abs(float(q[2])), 0.1)
    legs = leg_joints(robot)
    own = np.diag(rigid_body.mass_matrix(robot, q))
    body = robot.mass * height**2 / max(int(np.count_nonzero(legs)), 1)
    ground = ground_of(robot)
    flat = ground is not None and any(foot.flat for foot in ground.feet)
    upright = (SERIES if flat else 1.0) * weight * height
    stiffness = np.where(legs, upright, QUICK**2 * own)
    damping = 2.0 * DAMPING * np.sqrt(stiffness * np.where(legs, np.maximum(own, body), own))
    return Drives(stiffness, damping, limits)


def _run(
    world: GroundWorld,
    nominal: Robot,
    robot: Robot,
    wanted: StandingMotion,
    times: np.ndarray,
    realism: Realism,
    random: dict[str, np.random.Generator],
    imu: str | None,
    progress: Progress | None,
    tell: _Telling | None,
) -> _Seen:
    """The loop: command, measure, let time pass."""
    count, nv = len(times), robot.nv
    ahead = feedforward(nominal, wanted)
    drives = drives_of(nominal, wanted.q[0], realism.limits(robot))
    readings = Sensors(robot, realism.sensors, random)
    place = None if imu is None else moving_link(robot, imu, "--imu")
    period = float(np.median(np.diff(times)))
    inner = max(1, int(np.ceil(period / STEP - 1e-9)))
    seen = _Seen(
        np.empty((count, robot.nq)), np.empty((count * inner, nv)),
        np.empty((count * inner, len(world.feet), 6)), np.zeros((count * inner, 6)),
        np.empty((count, robot.nq)), np.empty((count, nv)), np.empty((count, nv)),
    )  # fmt: skip
    late = realism.command_delay / period
    payload, every = realism.payload, max(1, count // 100)
    _settle(world, drives, _asked(wanted, ahead, 0.0))
    for k in range(count):
        if payload is not None and payload.time <= times[k]:
            world.carry(payload.on(robot))
            payload = None
        asked = _asked(wanted, ahead, k - late)
        dt = times[k + 1] - times[k] if k + 1 < count else period
        q = world.q
        _require_upright(q, wanted.q[k], abs(float(wanted.q[0, 2])), times[k])
        seen.q[k] = q
        seen.measured_q[k], seen.measured_dq[k] = readings.motion(times[k], q, world.dq)
        for fine in range(k * inner, (k + 1) * inner):
            world.command(asked, drives, dt / inner)
            seen.tau[fine] = world.advance()
            seen.wrenches[fine] = world.wrenches()
            if place is not None:
                seen.imu[fine] = world.imu(place)
        if tell is not None:
            ahead = tell.period(k, times[k], seen, slice(k * inner, (k + 1) * inner), ahead)
        if progress is not None and k % every == 0:
            progress(k, count)
    tau = _averaged(seen.tau, inner)
    for k in range(count):
        seen.measured_tau[k] = readings.torque(times[k], tau[k])
    wrenches, turning = (_averaged(each, inner) for each in (seen.wrenches, seen.imu))
    return replace(seen, tau=tau, wrenches=wrenches, imu=turning)


class _Telling:
    """Tells a follower what its sensors measure."""

    def __init__(
        self,
        follower: Follower,
        feet: tuple[Foot, ...],
        sensors: GroundSensors,
        rng: np.random.Generator,
    ) -> None:
        self._follower, self._feet, self._sensors, self._rng = follower, feet, sensors, rng
        self._bias = sensors.force_biases(len(feet), rng)

    def period(self, k: int, t: float, seen: _Seen, fine: slice, ahead: np.ndarray) -> np.ndarray:
        """The feedforward after a period of the controller."""
        sensors, rng = self._sensors, self._rng
        q = seen.measured_q[k].copy()
        q[:7] = sensors.pose(seen.q[k, None, :7], rng)[0]
        dq = seen.measured_dq[k] + sensors.twist(rng, len(seen.measured_dq[k]))
        wrenches = sensors.wrenches(seen.wrenches[fine].mean(axis=0)[None], self._bias, rng)[0]
        named = {foot.link: wrench for foot, wrench in zip(self._feet, wrenches, strict=True)}
        sample = StandingSample(k, t, q, dq, seen.tau[fine].mean(axis=0), named)
        changed = self._follower(sample)
        return ahead if changed is None else changed


def _averaged(fine: np.ndarray, inner: int) -> np.ndarray:
    """A signal of every step of the physics, averaged around every tick over the time between two
    ticks, as a sensor's own low-pass does.
    """
    half = max(1, inner // 2)
    padded = np.concatenate(
        [np.repeat(fine[:1], half, axis=0), fine, np.repeat(fine[-1:], half, axis=0)]
    )
    weights = np.r_[0.5, np.ones(2 * half - 1), 0.5] / (2 * half)
    ticks = np.arange(0, len(fine), inner)
    return np.asarray(sum(w * padded[ticks + k] for k, w in enumerate(weights)))


def _settle(world: GroundWorld, drives: Drives, asked: Wanted) -> None:
    """Put the robot on the ground and let it come to rest."""
    world.place(asked.q)
    for _ in range(round(SETTLING / STEP)):
        world.command(asked, drives, STEP)
        world.advance()


def _asked(wanted: StandingMotion, ahead: np.ndarray, row: float) -> Wanted:
    """What is asked for at a row of the motion, between rows on a line."""
    k = int(np.clip(np.floor(row), 0, len(ahead) - 1))
    after, part = min(k + 1, len(ahead) - 1), float(np.clip(row - k, 0.0, 1.0))
    q, dq, tau = (a[k] + part * (a[after] - a[k]) for a in (wanted.q, wanted.dq, ahead))
    return Wanted(q, dq, tau)


def _require_upright(q: np.ndarray, wanted: np.ndarray, height: float, t: float) -> None:
    off = max(abs(q[2] - wanted[2]) / height, float(np.abs(q[3:6] - wanted[3:6]).max()))
    if not off < FALLEN:
        raise UsageError(f"the robot fell {t:.2f} s after the start; give a smaller --sway")


def _joint_columns(robot: Robot, seen: _Seen, *, speeds: bool) -> Columns:
    """Positions, speeds where they are logged, and torques of the joints."""
    tree, out = robot.tree, {}
    joints = tree.independent[1:]
    for node in joints:
        out[f"q.{node.name}"] = seen.measured_q[:, tree.q_index[node.name]]
    for node in joints if speeds else ():
        out[f"dq.{node.name}"] = seen.measured_dq[:, tree.v_index[node.name]]
    for node in joints:
        out[f"tau.{node.name}"] = seen.measured_tau[:, tree.v_index[node.name]]
    return out
