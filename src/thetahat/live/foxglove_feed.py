"""A run for Foxglove (extra `foxglove`): served on loopback, written as MCAP, or both.

    /joint_states   foxglove.JointStates: filtered positions, velocities, measured torques
    /torque         by joint: measured, by the identified and by the nominal model
    /gate           open or closed, and why, R², rank, samples
    /parameters     base parameters: nominal, identified, standard deviation
    /events         foxglove.Log
    /tf             foxglove.FrameTransforms: a frame per body
    /scene          foxglove.SceneUpdate: the robot's lines and the inertia ellipsoids of its bodies

Nothing is received: viewers can change nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from thetahat.errors import MissingExtra, StorageError
from thetahat.live.shared_state import Rows, RunInfo
from thetahat.model.io.mjcf_inertial import quaternion_of
from thetahat.online.gate import GateState
from thetahat.report.figures.stick_figure import Ellipsoid, Skeleton, ellipsoid
from thetahat.report.text import Data

if TYPE_CHECKING:
    from foxglove import Channel, Context
    from foxglove.mcap import MCAPWriter
    from foxglove.messages import Pose, Quaternion, SceneEntity, Timestamp
    from foxglove.websocket import WebSocketServer

HOST = "127.0.0.1"
BACKLOG = 256  # messages that may wait for a viewer who does not read
THICK = 3.0  # pixels of the robot's lines
GREY, BLUE, RED = (0.45, 0.45, 0.45, 1.0), (0.0, 0.45, 0.7, 0.35), (0.8, 0.2, 0.2, 0.35)
WORLD = "world"
SCENE = 2.0  # [s] between two scenes with all bodies, for viewers who come later
KINDS = ("measured", "identified", "nominal")
NUMBER = {"type": ["number", "null"]}
GATE = {
    "type": "object",
    "title": "thetahat.Gate",
    "properties": {
        "t": {"type": "number"},
        "open": {"type": "boolean"},
        "reason": {"type": "string"},
        **dict.fromkeys(("r2", "r2_fit", "rank", "structural_rank"), NUMBER),
        **{name: {"type": "integer"} for name in ("fill", "size")},
    },
}
PARAMETERS = {
    "type": "object",
    "title": "thetahat.Parameters",
    "properties": {
        "t": {"type": "number"},
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    **{n: {"type": "string"} for n in ("joint_or_link", "name", "unit")},
                    **dict.fromkeys(("nominal", "value", "std"), NUMBER),
                    "identified": {"type": "boolean"},
                },
            },
        },
    },
}


FAULTS = ("fault", "drift")  # kinds of events


def torque_schema(joints: Sequence[str]) -> Data:
    """Schema of /torque, with a number per joint."""
    by_joint = {"type": "object", "properties": dict.fromkeys(joints, NUMBER)}
    kinds = dict.fromkeys(KINDS, by_joint)
    return {
        "type": "object",
        "title": "thetahat.Torque",
        "properties": {"t": {"type": "number"}, **kinds},
    }


def load_foxglove() -> ModuleType:
    """Import the package, or say how to get it."""
    try:
        import foxglove
    except ImportError:
        raise MissingExtra(
            "Foxglove needs the extra 'foxglove': pip install 'thetahat[foxglove]'"
        ) from None
    module: ModuleType = foxglove
    return module


class FoxgloveFeed:
    """Publishes what a run shows.

    Args:
        info: constants of the run.
        start: [ns] since 1970 at which its clock was zero.
        port: on loopback; 0: any free one; None: nothing is served.
        file: MCAP to write, which appears when the run is over; None: none.

    """

    def __init__(
        self, info: RunInfo, start: int, *, port: int | None = None, file: Path | None = None
    ) -> None:
        foxglove = load_foxglove()
        import foxglove.channels as channels

        self.robot, self._start = info.identifier.robot, start
        self.joints = self.robot.velocity_names
        self._skeleton, self._theta = Skeleton(self.robot), self.robot.theta
        self._drawn = -math.inf  # [s] when bodies were drawn last
        self._context = context = foxglove.Context()  # channels close with it
        self._file = file
        self._scratch: Path | None = None
        self._writer = self._server = None
        if file is not None:
            self._scratch = file.with_name(f".{file.name}.part")
            self._writer = _opened(foxglove, self._scratch, context)
        if port is not None:
            self._server = _serve(foxglove, f"thetahat: {info.title}", port, context)
        self._states = channels.JointStatesChannel("/joint_states", context=context)
        self._frames = channels.FrameTransformsChannel("/tf", context=context)
        self._scene = channels.SceneUpdateChannel("/scene", context=context)
        self._log = channels.LogChannel("/events", context=context)

        def by_schema(topic: str, schema: Data) -> Channel:
            return foxglove.Channel(topic, schema=schema, context=context)

        self._torque = by_schema("/torque", torque_schema(self.joints))
        self._gate = by_schema("/gate", GATE)
        self._parameters = by_schema("/parameters", PARAMETERS)

    @property
    def address(self) -> str | None:
        """Where it is served."""
        return None if self._server is None else f"ws://{HOST}:{self._server.port}"

    def _time(self, t: float) -> int:
        return self._start + round(1e9 * t)

    # -- what is published -------------------------------------------------------------------------

    def rows(self, rows: Rows, torques: Sequence[np.ndarray]) -> None:
        """Samples, with torques by the identified and by the nominal model."""
        for k in np.flatnonzero(rows.settled):
            filtered = [channel[k] for channel in rows.filtered]
            self._row(float(rows.t[k]), filtered, [tau[k] for tau in torques])
        t = float(rows.t[-1])
        self.pose(t, rows.q[-1])
        if t - self._drawn >= SCENE or t < self._drawn:
            self._drawn = t
            self.bodies(t)

    def _row(self, t: float, filtered: Sequence[np.ndarray], torques: Sequence[np.ndarray]) -> None:
        from foxglove.messages import JointState, JointStates

        q, dq, _, tau = (channel.tolist() for channel in filtered)
        at = self._time(t)
        angles = q if self.robot.nq == self.robot.nv else [None] * len(dq)  # of ball joints none
        states = [
            JointState(name=name, position=a, velocity=b, effort=c)
            for name, a, b, c in zip(self.joints, angles, dq, tau, strict=True)
        ]
        self._states.log(JointStates(timestamp=_timestamp(at), joints=states), log_time=at)
        kinds = zip(KINDS, (filtered[3], *torques), strict=True)
        message = {"t": t} | {
            kind: dict(zip(self.joints, _numbers(values), strict=True)) for kind, values in kinds
        }
        self._torque.log(message, log_time=at)

    def pose(self, t: float, q: np.ndarray) -> None:
        """The robot in space."""
        from foxglove.messages import FrameTransform, FrameTransforms, Vector3

        at, pose = self._time(t), self._skeleton.pose(q)
        transforms = [
            FrameTransform(
                timestamp=_timestamp(at),
                parent_frame_id=WORLD,
                child_frame_id=name,
                translation=Vector3(**_xyz(p)),
                rotation=_quaternion(R),
            )
            for name, R, p in zip(self.robot.body_names, pose.rotation, pose.position, strict=True)
        ]
        self._frames.log(FrameTransforms(transforms=transforms), log_time=at)
        lines = pose.points.reshape(-1, 3, 3)[:, :2].reshape(-1, 3)  # without the gaps
        self._log_scene([self._lines(at, lines)], at)

    def bodies(self, t: float) -> None:
        """The inertia ellipsoids of the bodies."""
        at, made = self._time(t), []
        for name, numbers in zip(
            self.robot.body_names, self._theta.reshape(len(self.robot.body_names), -1), strict=True
        ):
            shape = ellipsoid(numbers)
            if shape is not None:
                made.append(self._ellipsoid(at, name, shape))
        self._log_scene(made, at)

    def gate(self, t: float, gate: GateState) -> None:
        """The gate after an update."""
        message = {
            "t": t,
            "open": gate.open,
            "reason": gate.reason,
            "r2": _number(gate.r2),
            "r2_fit": _number(gate.r2_fit),
            "rank": gate.rank,
            "structural_rank": gate.structural_rank,
            "fill": gate.fill,
            "size": gate.size,
        }
        self._gate.log(message, log_time=self._time(t))

    def parameters(self, table: Data, theta: np.ndarray | None) -> None:
        """The table of base parameters, as the page has it, and bodies that they are of."""
        self._theta = self.robot.theta if theta is None else theta
        self._parameters.log(table, log_time=self._time(table["t"]))

    def events(self, events: Sequence[Data]) -> None:
        """Events of the run, as the page has them."""
        from foxglove.messages import Log, LogLevel

        for event in events:
            at = self._time(event["t"])
            level = LogLevel.Warning if event["kind"] in FAULTS else LogLevel.Info
            message = Log(
                timestamp=_timestamp(at), level=level, message=event["message"], name=event["kind"]
            )
            self._log.log(message, log_time=at)

    # -- scenes ------------------------------------------------------------------------------------

    def _log_scene(self, entities: list[SceneEntity], at: int) -> None:
        from foxglove.messages import SceneUpdate

        self._scene.log(SceneUpdate(entities=entities), log_time=at)

    def _lines(self, at: int, points: np.ndarray) -> SceneEntity:
        from foxglove.messages import (
            Color,
            LinePrimitive,
            LinePrimitiveLineType,
            Point3,
            SceneEntity,
        )

        line = LinePrimitive(
            type=LinePrimitiveLineType.LineList,
            pose=_pose(np.zeros(3), np.eye(3)),
            thickness=THICK,
            scale_invariant=True,
            points=[Point3(**_xyz(point)) for point in points],
            color=Color(**dict(zip("rgba", GREY, strict=True))),
        )
        return SceneEntity(timestamp=_timestamp(at), frame_id=WORLD, id="robot", lines=[line])

    def _ellipsoid(self, at: int, name: str, shape: Ellipsoid) -> SceneEntity:
        from foxglove.messages import Color, SceneEntity, SpherePrimitive, Vector3

        axes = shape.axes * np.sign(np.linalg.det(shape.axes))  # a rotation
        ball = SpherePrimitive(
            pose=_pose(shape.centre, axes),
            size=Vector3(**_xyz(2.0 * shape.radii)),
            color=Color(**dict(zip("rgba", BLUE if shape.possible else RED, strict=True))),
        )
        return SceneEntity(
            timestamp=_timestamp(at),
            frame_id=name,
            id=f"inertia of {name}",
            frame_locked=True,
            spheres=[ball],
        )

    def close(self) -> None:
        """End the server, and put the file in its place."""
        server, self._server = self._server, None
        writer, self._writer = self._writer, None
        if server is not None:
            server.stop()
        if writer is not None and self._scratch is not None and self._file is not None:
            writer.close()
            self._scratch.replace(self._file)


def _opened(foxglove: ModuleType, path: Path, context: Context) -> MCAPWriter:
    try:
        return foxglove.open_mcap(path, allow_overwrite=True, context=context)
    except (OSError, RuntimeError) as error:
        raise StorageError(f"{path} cannot be written: {error}; check its folder") from None


def _serve(foxglove: ModuleType, name: str, port: int, context: Context) -> WebSocketServer:
    try:
        return foxglove.start_server(
            name=name, host=HOST, port=port, context=context, message_backlog_size=BACKLOG
        )
    except (OSError, RuntimeError) as error:
        raise StorageError(f"Foxglove cannot be served on port {port} ({error})") from None


def _timestamp(at: int) -> Timestamp:
    from foxglove.messages import Timestamp

    return Timestamp(sec=at // 10**9, nsec=at % 10**9)


def _xyz(values: np.ndarray) -> dict[str, float]:
    return dict(zip("xyz", np.asarray(values, dtype=float).tolist(), strict=True))


def _quaternion(rotation: np.ndarray) -> Quaternion:
    from foxglove.messages import Quaternion

    w, x, y, z = quaternion_of(rotation).tolist()
    return Quaternion(x=x, y=y, z=z, w=w)


def _pose(position: np.ndarray, rotation: np.ndarray) -> Pose:
    from foxglove.messages import Pose, Vector3

    return Pose(position=Vector3(**_xyz(position)), orientation=_quaternion(rotation))


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _numbers(values: np.ndarray) -> list[float | None]:
    return [_number(value) for value in values.tolist()]
