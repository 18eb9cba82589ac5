"""The publisher: a thread that builds the messages of all viewers, some 40 times a second.

It reads what the loop left, keeps the histories, and never holds the loop up.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from thetahat import __version__
from thetahat.identification.parameter_columns import Columns
from thetahat.live import viewers as messages
from thetahat.live.contact_watch import ContactWatch
from thetahat.live.downloads import Arrays, ParameterTable, Snapshot
from thetahat.live.panels import MANY, SPAN, TITLES, Panels, RobotScene
from thetahat.live.shared_state import Filtered, RecentRows, SharedState
from thetahat.live.viewers import Viewer, ViewerList
from thetahat.model.robot import Robot
from thetahat.online.predict import Model, Predictor
from thetahat.report.section import Figure, Panel

if TYPE_CHECKING:
    from thetahat.live.foxglove_feed import FoxgloveFeed

# [s] between frames: of up to MANY joints, of more, and while nothing happens
FAST, SLOW, STILL = 1 / 40, 1 / 20, 1 / 2
CYCLES = 0.5  # [s] between two points of the cycle time
PARAMETERS = 1 / 3  # [s] between two tables of parameters, at least
STARTED = 2.0  # [s] before the first: the worker starts beside a loop that runs well
SCENE = 2.0  # [s] between two shapes of the ellipsoids, at least
RECENT = 2000  # rows that a report draws
ParameterRequest = Callable[[Snapshot], Future[ParameterTable]]  # to a process beside the loop
CAPTIONS = {
    "r2": "R² of every update: of joints over samples held out of the fit, of the fit over the"
    " samples in its buffer; and the gate's threshold. Green: the identified model is in use.",
    "error": "Joint errors; green: the controller uses the identified model.",
    "fill": "Fill of the identifier's buffer, and rank of the data, of the structural rank.",
}


class TorqueModels:
    """Predicts torques of rows by the nominal and by the identified parameters."""

    def __init__(self, robot: Robot) -> None:
        self._predictor, self._x0 = Predictor(robot), Columns(robot).x0
        self._nominal = self._identified = self._predictor.model(self._x0)
        self._snapshot: Snapshot | None = None

    def update(self, snapshot: Snapshot | None) -> None:
        """Use the parameters of a snapshot."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            x = None if snapshot is None else snapshot.x
            self._identified = self._predictor.model(self._x0 if x is None else x)

    def torques(self, filtered: Filtered) -> tuple[np.ndarray, np.ndarray]:
        """Return the torques by the identified and by the nominal model."""
        q, dq, ddq = (np.ascontiguousarray(array) for array in filtered[:3])

        def torque(model: Model) -> np.ndarray:
            return np.array(model.torque(q, dq, ddq))

        return torque(self._identified), torque(self._nominal)


class LiveParameters:
    """The table of base parameters on the page, renewed by a worker now and then."""

    def __init__(self, request: ParameterRequest) -> None:
        self.table, self._request = ParameterTable(), request
        self.future: Future[ParameterTable] | None = None
        self._requested_at = -np.inf

    def forget(self) -> None:
        """Show nothing of what was identified before a reset, nor a fit of it on its way."""
        if self.future is not None:
            self.future.cancel()
        self.table, self.future, self._requested_at = ParameterTable(), None, -np.inf

    def receive(self) -> bool:
        """Take a table that is done; whether there was one."""
        if self.future is None or not self.future.done():
            return False
        future, self.future = self.future, None
        if future.cancelled() or future.exception(timeout=0.0) is not None:
            return False
        self.table = future.result(timeout=0.0)
        return True

    def request(self, snapshot: Snapshot | None) -> None:
        """Request the table of a snapshot, unless it is shown or another is on its way."""
        now = time.monotonic()
        if snapshot is None or not snapshot.count or snapshot.t == self.table.t:
            return
        if self.future is None and now - self._requested_at >= PARAMETERS:
            self.future, self._requested_at = self._request(snapshot), now

    def message(self) -> dict[str, Any]:
        """Return the table as the page takes it."""
        return {"t": self.table.t, "rows": list(self.table.rows)}


class Publisher:
    """Builds the messages of a run; started and stopped by its session."""

    def __init__(self, shared: SharedState, request: ParameterRequest) -> None:
        self._shared, info, tracks = shared, shared.info.identifier, shared.info.control.tracks
        self.panels = Panels(
            shared.robot, tracks=tracks, threshold=info.threshold, window=info.window
        )
        self.viewers, self.parameters = ViewerList(), LiveParameters(request)
        self.feed: FoxgloveFeed | None = None  # others who are shown the run, set before the start
        self.scene, self._models = RobotScene(shared.robot), TorqueModels(shared.robot)
        self._recent, self._gate = RecentRows(shared.robot, RECENT), shared.gate
        self.contacts = ContactWatch(shared.robot)
        self._scene_at = self._cycle_at = -np.inf  # [s] when they were last renewed
        self._cycle: tuple[float, float] | None = None  # quantiles of its processor time [µs]
        self._resets, self._paused, self._stood = 0, False, False  # at the last frame
        self._changes = 0  # of the model in use, as drawn
        self._identified = False  # model in use in the last row
        self.stopping = False  # whether an end is the session's and not the run's own
        self._ended = self._failed = False  # whether the end, or a failed picture, was reported
        self.t, self.frames, self.lost = 0.0, 0, 0
        self.began = time.monotonic()
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="thetahat-publisher", daemon=True)

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self.began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and tell all viewers."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        for viewer in self.viewers:
            viewer.notify(messages.bye("stopped", "the server was stopped"))

    @property
    def still(self) -> bool:
        """Whether nothing moves."""
        return self._shared.status.paused or self._shared.ended

    def _run(self) -> None:
        period = FAST if self._shared.robot.nv <= MANY else SLOW
        due = time.monotonic()
        while not self._over.is_set():
            try:
                with self._lock:
                    self._tick()
            except Exception as error:  # a picture that cannot be drawn must not end the others
                self._report_failure(error)
                self._over.wait(1.0)
            idle = self.still and not self.viewers.waiting
            due = max(due + (STILL if idle else period), time.monotonic())
            while not self._over.is_set() and (left := due - time.monotonic()) > 0.0:
                self._over.wait(min(left, FAST * 2))
                if not self.still or self.viewers.waiting:
                    due = min(due, time.monotonic() + period)

    def _report_failure(self, error: Exception) -> None:
        """Report a failed picture: to the page as long as it lasts, to the terminal once."""
        at = traceback.extract_tb(error.__traceback__)[-1]
        sentence = (
            f"a picture could not be drawn: {type(error).__name__}: {error} ({at.name}, line"
            f" {at.lineno}; a bug); the run goes on"
        )
        self._shared.event(self._shared.status.clock, "fault", sentence, "picture")
        if not self._failed:
            self._failed = True
            print(f"thetahat: {sentence}", file=sys.stderr, flush=True)

    # -- a frame -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        shared, was_paused = self._shared, self._paused
        ended = shared.ended  # before what it left is read
        reset, self._resets = shared.resets != self._resets, shared.resets
        paused = self._paused = shared.status.paused
        self._read()
        if reset:
            self.parameters.forget()
            self.contacts.forget()
            self._scene_at = -np.inf
        news = self._news()
        self.panels.collect()
        if reset or (was_paused and not paused):  # all is forgotten, or the picture goes on
            for viewer in self.viewers:
                viewer.renew()
        if self.viewers:
            self._publish(news, standing=(paused and was_paused) or self._stood)
        self._stood = ended  # from the next frame on: this one had the last points
        if ended and not self._ended and not self.stopping:
            self._ended, title = True, shared.info.title
            over = f"{title} is over after {self.t:.1f} s; results can still be downloaded"
            for viewer in self.viewers:
                viewer.put(messages.bye("finished", shared.failure or over))

    def _read(self) -> None:
        """Take what the loop left."""
        shared, now = self._shared, time.monotonic()
        rows, lost = shared.read()
        self.lost += lost
        snapshot = shared.snapshot
        self._models.update(snapshot)
        if len(rows):
            x = None if snapshot is None else snapshot.x
            external = self.contacts.add(rows, x, shared.gate)
            torques = self._models.torques(rows.filtered)
            self.panels.add(rows, *torques, external)
            if self.feed is not None:
                self.feed.rows(rows, torques)
            for event in self.contacts.events():
                shared.events.add(event.t, "contact", event.sentence)
            self._recent.add(rows)
            self.t, self.scene.q = float(rows.t[-1]), rows.q[-1]
            self._identified = bool(rows.identified[-1])
        while shared.updates:
            update = shared.updates.popleft()
            self.panels.add_update(*update)
            if self.feed is not None:
                self.feed.gate(*update)
        self._gate = shared.gate
        if len(rows) and now - self._cycle_at >= CYCLES:
            self._cycle_at, self._cycle = now, shared.quantiles()
            if self._cycle is not None:
                self.panels.add_cycle(self.t, *self._cycle)

    def _news(self) -> list[str]:
        """Return the messages that all viewers get beside the frame."""
        shared, now = self._shared, time.monotonic()
        shared.events.flush(self.t, over=shared.ended)
        events, table = shared.events.new(), self.parameters.receive()
        out = [messages.to_json(event) for event in events]
        if table:
            out.append(messages.to_json({"type": "parameters", **self.parameters.message()}))
        if self.feed is not None:
            self.feed.events(events)
            if table:
                self.feed.parameters(self.parameters.message(), self.parameters.table.theta)
        if (self.viewers or self.feed is not None) and now - self.began >= STARTED:
            self.parameters.request(shared.snapshot)
        theta = self.parameters.table.theta
        theta = shared.robot.theta if theta is None else theta
        held = None if shared.snapshot is None else shared.snapshot.payload
        if now - self._scene_at >= SCENE and self.scene.redraw(theta, held):
            self._scene_at = now
            figure = {"type": "figure", "id": "scene", "figure": self.scene.figure}
            out.append(messages.to_json(figure))
        return out

    def _publish(self, news: list[str], *, standing: bool) -> None:
        """Send every viewer what it lacks. standing: no points are new on the page."""
        changes = self.panels.identified.changes
        switched, self._changes = self._changes != changes, changes
        self.frames += 1
        texts = _FrameTexts(self, standing=standing)
        for viewer in self.viewers:
            joint = min(max(viewer.joint, 0), self._shared.robot.nv - 1)
            if viewer.waits:
                if viewer.ready:
                    viewer.drawn = joint
                    viewer.put_picture(texts.hello(joint))
                continue
            redrawn = self._redrawn(viewer, joint, switched=switched)
            for name in redrawn:
                viewer.put(texts.figure(name, joint))
            for message in news:
                viewer.put(message)
            viewer.put(texts.frame(joint, redrawn), self.frames)

    def _redrawn(self, viewer: Viewer, joint: int, *, switched: bool) -> tuple[str, ...]:
        """Return the panels that a viewer gets anew: of another joint, or the model changed."""
        out = {"r2", "error"} if switched else set()
        if viewer.drawn != joint:
            viewer.drawn = joint
            out |= {"torque", *(("r2", "error") if self.panels.many else ())}
        return tuple(name for name in self.panels.names if name in out)

    # -- messages ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the current state."""
        shared, info, status = self._shared, self._shared.info, self._shared.status
        # Where a controller runs, what it did last counts: it may keep the nominal model though the
        # gate is open.
        in_use = self._identified or not info.control.controlled
        identified = self._gate.open and not status.forced and in_use
        p50, p99 = (None, None) if self._cycle is None else (round(x, 2) for x in self._cycle)
        condition, snapshot = self.parameters.table.condition, shared.snapshot
        held = None if snapshot is None else snapshot.payload
        return {
            "contact": self.contacts.state(),
            "payload": None if held is None else held.state(),
            "gate": messages.gate(self._gate, window=info.identifier.window, condition=condition),
            "model": "identified" if identified else "nominal",
            "forced": status.forced,
            "paused": status.paused,
            "ended": shared.ended,
            "cycle": {"rate": round(info.rate, 3), "p50": p50, "p99": p99},
            "dropped": {"samples": status.dropped, "frames": self.viewers.dropped},
            "viewers": len(self.viewers),
        }

    def hello(self, joint: int) -> dict[str, Any]:
        """Return the whole picture for a viewer who looks at this joint."""
        shared, panels, info = self._shared, self.panels, self._shared.info
        robot = shared.robot
        drawn = [
            {
                "id": panel_id(name, joint),
                "title": TITLES[name],
                "figure": panels.figure(name, joint),
                "span": SPAN if name == "torque" else None,
            }
            for name in panels.names
        ]
        return {
            "type": "hello",
            "version": __version__,
            "mode": info.mode,
            "title": info.title,
            "robot": robot.name,
            "joints": list(panels.joints),
            "units": panels.torque_units,
            "position_units": panels.units,
            "bodies": [robot.body_names[b] for b in self.scene.bodies],
            "rate": round(info.rate, 3),
            "speed": info.speed,
            "forcible": info.control.forcible,
            "drive_file": needs_drive_file(robot),
            "threshold": info.identifier.threshold,
            "window": info.identifier.window,
            "started": shared.started.isoformat(timespec="seconds"),
            "t": round(self.t, 4),
            "panels": drawn,
            "scene": self.scene.posed_figure(),
            "state": self.state(),
            "parameters": self.parameters.message(),
            "events": shared.events.all,
        }

    # -- for a report ------------------------------------------------------------------------------

    def recent_rows(self) -> Arrays:
        """Return the last filtered rows that were not fitted."""
        with self._lock:
            rows = self._recent.arrays()
        return {**rows, "valid": np.abs(rows["dq"]) >= self._shared.info.identifier.min_speed}

    def figures(self) -> tuple[Figure, ...]:
        """Return the panels as a report draws them."""
        with self._lock:
            return tuple(
                Figure((Panel(TITLES[name], self.panels.figure(name, 0)),), CAPTIONS[name])
                for name in self.panels.names
                if name in CAPTIONS
            )


class _FrameTexts:
    """Texts of one frame, each made once for all viewers who get the same."""

    def __init__(self, publisher: Publisher, *, standing: bool) -> None:
        self._publisher, self._panels, self._standing = publisher, publisher.panels, standing
        self._state = messages.to_json(publisher.state())
        self._pose = messages.pose(publisher.scene.pose, publisher.scene.bodies)
        self._made: dict[tuple[object, ...], str] = {}

    def _key(self, kind: str, name: str, joint: int) -> tuple[object, ...]:
        """Return what a text depends on: of most panels not the joint."""
        depends = name == "torque" or (self._panels.many and name in ("r2", "error"))
        return kind, name, joint if depends else -1

    def hello(self, joint: int) -> str:
        key = "hello", joint
        if key not in self._made:
            self._made[key] = messages.to_json(self._publisher.hello(joint))
        return self._made[key]

    def figure(self, name: str, joint: int) -> str:
        key = self._key("figure", name, joint)
        if key not in self._made:
            figure = self._panels.figure(name, joint)
            message = {"type": "figure", "id": panel_id(name, joint), "figure": figure}
            self._made[key] = messages.to_json(message)
        return self._made[key]

    def _extension(self, name: str, joint: int) -> str:
        key = self._key("extension", name, joint)
        if key not in self._made:
            points = self._panels.extension(name, joint)
            text = f'"{panel_id(name, joint)}":{messages.to_json(points)}'
            self._made[key] = "" if points is None else text
        return self._made[key]

    def frame(self, joint: int, redrawn: tuple[str, ...]) -> str:
        """Return the frame of a viewer who got these panels anew."""
        key = "frame", joint, redrawn
        if key not in self._made:
            names = [name for name in self._panels.names if name not in redrawn]
            parts = [] if self._standing else [self._extension(name, joint) for name in names]
            new, publisher = [part for part in parts if part], self._publisher
            frame = messages.frame(publisher.frames, publisher.t, self._state, new, self._pose)
            self._made[key] = frame
        return self._made[key]


def needs_drive_file(robot: Robot) -> bool:
    """Whether drive.json is needed: no format holds an offset, and URDF no rotor inertia."""
    source, terms = robot.source, robot.drive.identified
    urdf = source is not None and source.suffix.lower() == ".urdf"
    return source is not None and ("offset" in terms or ("armature" in terms and urdf))


def panel_id(name: str, joint: int) -> str:
    """Return the identity of a panel: the torque's has its joint in it."""
    return f"torque:{joint}" if name == "torque" else name
