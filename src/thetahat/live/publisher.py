"""The publisher: a thread that reads what the loop left, keeps the histories, and builds the
messages of all viewers, some 40 times a second.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from thetahat import __version__
from thetahat.errors import UsageError
from thetahat.identification.parameter_columns import Columns
from thetahat.live import messages
from thetahat.live.downloads import Arrays, Memory
from thetahat.live.panels import MANY, SPAN, TITLES, Panels
from thetahat.live.ring_buffer import Recent
from thetahat.live.shared_state import Shared
from thetahat.live.viewers import Viewer
from thetahat.model.robot import Robot
from thetahat.online.predict import Model, Predictor
from thetahat.report.figures.stick_figure import Skeleton, moving_figure

FAST, SLOW, STILL = (
    1 / 40,
    1 / 20,
    1 / 2,
)  # [s] between frames: of up to MANY joints, of more, and while nothing happens
CYCLES = 0.5  # [s] between two points of the cycle time
PARAMETERS = 1 / 3  # [s] between two tables of parameters, at least
SETTLED = (
    2.0  # [s] before the first: the process that makes them starts beside a loop that runs well
)
SCENE = 2.0  # [s] between two shapes of the ellipsoids, at least
RECENT = 2000  # rows that a report draws
MOST = 64  # viewers at once
NOTHING: dict[str, Any] = {
    "t": 0.0,
    "rows": [],
    "condition": None,
    "rank": None,
}  # parameters of nothing learned
DEPENDS = ("r2", "error")  # panels that show the chosen joint where there are many
CAPTIONS = {
    "r2": (
        "R² of every update, against the threshold of the gate; on green ground the identified"
        " model is in use."
    ),
    "error": "Joint errors; on green ground the controller uses the identified model.",
    "fill": (
        "How full the identifier's buffer is, and how many of the directions that motion can show"
        " the data know."
    ),
}


class Publisher:
    """Started and stopped by its session; `attach` and `detach` from any thread."""

    def __init__(self, shared: Shared) -> None:
        self._shared, robot = shared, shared.robot
        self.threshold, self.window = shared.facts.threshold, shared.facts.window
        self.panels = Panels(
            robot, wanted=shared.facts.wanted, threshold=self.threshold, window=self.window
        )
        self._predictor, self._skeleton, columns = Predictor(robot), Skeleton(robot), Columns(robot)
        self._x0 = columns.x0
        self._nominal = self._model = self._predictor.model(self._x0)
        self._memory: Memory | None = None
        self._q, self._identified = robot.neutral, False  # of the last row
        self._scene, self._bodies = moving_figure(robot, self._q, robot.theta, self._skeleton)
        self._theta, self._drawn_theta = robot.theta, robot.theta
        self._recent = Recent(robot, RECENT)
        self._parameters: dict[str, Any] = NOTHING
        self._asked: Future | None = None
        self._asked_at = self._scene_at = self._cycle_at = -np.inf
        self._quantiles: tuple[float, float] | None = None  # of the cycle's processor time
        self._grounds, self._bye, self._before, self._stood = 0, False, (0, False), False
        self._failed = False  # whether a picture could not be drawn
        self.stopping = False  # the end that comes now is not the run's own
        self._gate = shared.gate
        self._viewers: tuple[Viewer, ...] = ()
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="thetahat-publisher", daemon=True)
        self.t, self.frames, self.lost, self._gone = 0.0, 0, 0, 0
        self.began = time.monotonic()

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self.began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Tell all viewers that it is over."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        bye = messages.text(
            {"type": "bye", "reason": "stopped", "message": "the server was stopped"}
        )
        for viewer in self._viewers:
            viewer.say(bye)

    def attach(self, wake: Callable[[], None]) -> Viewer:
        """One viewer more; raises `UsageError` where there are too many."""
        with self._lock:
            if len(self._viewers) >= MOST:
                raise UsageError(f"{MOST} viewers watch already; close one of them")
            viewer = Viewer(wake)
            self._viewers = (*self._viewers, viewer)
        return viewer

    def detach(self, viewer: Viewer) -> None:
        """One viewer less."""
        viewer.closed = True
        with self._lock:
            self._viewers = tuple(each for each in self._viewers if each is not viewer)
            self._gone += viewer.dropped

    @property
    def viewers(self) -> int:
        """How many watch."""
        return len(self._viewers)

    @property
    def still(self) -> bool:
        """Whether the picture stands still."""
        return self._shared.status.paused or self._shared.ended

    def _run(self) -> None:
        period = FAST if self._shared.robot.nv <= MANY else SLOW
        due = time.monotonic()
        while not self._over.is_set():
            try:
                with self._lock:
                    self._tick()
            except Exception as error:  # a picture that cannot be drawn must not end the others
                self._fault(error)
                self._over.wait(1.0)
            due = max(
                due
                + (
                    STILL
                    if self.still and not any(viewer.waits for viewer in self._viewers)
                    else period
                ),
                time.monotonic(),
            )
            while not self._over.is_set() and (left := due - time.monotonic()) > 0.0:
                self._over.wait(min(left, FAST * 2))
                if not self.still or any(viewer.waits for viewer in self._viewers):
                    due = min(due, time.monotonic() + period)

    def _fault(self, error: Exception) -> None:
        """Say that a picture could not be drawn: to the page as long as it goes on, to the terminal
        once.
        """
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
        ended = self._shared.ended  # before what it left is read
        before, self._before = self._before, (self._shared.resets, self._shared.status.paused)
        forgot, paused = before[0] != self._before[0], self._before[1]
        self._read()
        if forgot:
            self._forget()
        events = self._news()
        self.panels.collect()
        if forgot or (before[1] and not paused):  # all is forgotten, or the picture goes on
            for viewer in self._viewers:
                viewer.renew()
        if self._viewers:
            self._publish(events, standing=(paused and before[1]) or self._stood)
        self._stood = ended  # as with a pause, from the next frame on: this one had the last points
        if ended and not self._bye and not self.stopping:
            self._say_bye()

    def _forget(self) -> None:
        """Show nothing of what was learned before a reset; a fit of it that is not done yet is not
        waited for.
        """
        if self._asked is not None:
            self._asked.cancel()
        self._parameters, self._theta, self._asked = NOTHING, self._shared.robot.theta, None
        self._asked_at = self._scene_at = -np.inf

    def _read(self) -> None:
        """Take what the loop left."""
        run, tap = self._shared, self._shared.tap
        block, lost = tap.read()
        self.lost += lost
        memory = run.memory
        if memory is not self._memory:
            self._memory = memory
            self._model = self._predictor.model(
                self._x0 if memory is None or memory.x is None else memory.x
            )
        if len(block):
            q, dq, ddq, _ = block.filtered
            self.panels.add(
                block, _torque(self._model, q, dq, ddq), _torque(self._nominal, q, dq, ddq)
            )
            self._recent.add(block)
            self.t, self._q, self._identified = (
                float(block.t[-1]),
                block.q[-1],
                bool(block.identified[-1]),
            )
        while run.said:
            t, self._gate = run.said.popleft()
            self.panels.add_update(t, self._gate)
        self._gate = run.gate
        if time.monotonic() - self._cycle_at >= CYCLES and len(block):
            self._cycle_at, self._quantiles = time.monotonic(), tap.quantiles()
            if self._quantiles is not None:
                self.panels.add_cycle(self.t, *self._quantiles)

    def _news(self) -> list[str]:
        """Messages that all viewers get, beside the frame."""
        run = self._shared
        run.journal.settle(self.t, over=run.ended)
        out = [messages.text(event) for event in run.journal.fresh()]
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            if asked.exception() is None:
                found = asked.result()
                self._theta = (
                    run.robot.theta if found["theta"] is None else np.array(found["theta"])
                )
                self._parameters = found
                out.append(
                    messages.text({"type": "parameters", "t": found["t"], "rows": found["rows"]})
                )
        now, memory = time.monotonic(), self._memory
        due = self._viewers and now - self._asked_at >= PARAMETERS and now - self.began >= SETTLED
        if (
            due
            and self._asked is None
            and memory is not None
            and memory.count
            and memory.t != self._parameters["t"]
        ):
            self._asked, self._asked_at = run.workshop.ask("parameters", memory), now
        if now - self._scene_at >= SCENE and not np.array_equal(self._theta, self._drawn_theta):
            self._scene_at, self._drawn_theta = now, self._theta
            self._scene, self._bodies = moving_figure(
                run.robot, self._q, self._theta, self._skeleton
            )
            out.append(messages.text({"type": "figure", "id": "scene", "figure": self._scene}))
        return out

    def _publish(self, news: list[str], *, standing: bool) -> None:
        """To every viewer what it lacks; texts are made once for all of them. standing: no points
        are new on the page.
        """
        switched, self._grounds = (
            self._grounds != self.panels.grounds.changes,
            self.panels.grounds.changes,
        )
        made: dict[tuple[str, int], str] = {}
        state, end = (
            messages.text(self.state()),
            messages.pose(*self._skeleton.pose(self._q), self._bodies),
        )
        self.frames += 1
        for viewer in self._viewers:
            joint = min(max(viewer.joint, 0), self._shared.robot.nv - 1)
            if viewer.waits:
                if viewer.ready:
                    viewer.drawn = joint
                    viewer.put_all([self._text(made, "hello", joint)])
                continue
            again = set()
            if viewer.drawn != joint:
                viewer.drawn = joint
                again |= {"torque", *(DEPENDS if self.panels.many else ())}
            if switched:
                again |= set(DEPENDS)
            for name in self.panels.identities:
                if name in again:
                    viewer.put(self._text(made, f"figure {name}", joint))
            for message in news:
                viewer.put(message)
            key = "frame " + " ".join(sorted(again)), joint
            if (
                key not in made
                # one text for all who get the same, so that those who take nothing cost no more
                # than one of them
            ):
                parts = (
                    []
                    if standing
                    else [
                        self._text(made, name, joint)
                        for name in self.panels.identities
                        if name not in again
                    ]
                )
                made[key] = messages.frame(
                    self.frames, self.t, state, [part for part in parts if part], end
                )
            viewer.put(made[key], self.frames)

    def _text(self, made: dict[tuple[str, int], str], name: str, joint: int) -> str:
        """An extension, a figure or a greeting as text, made once per frame."""
        what = name.removeprefix("figure ")
        depends = what in ("hello", "torque") or (self.panels.many and what in DEPENDS)
        key = name, joint if depends else -1
        if key not in made:
            if name == "hello":
                made[key] = messages.text(self.hello(joint))
            elif what != name:
                made[key] = messages.text(
                    {
                        "type": "figure",
                        "id": identity(what, joint),
                        "figure": self.panels.figure(what, joint),
                    }
                )
            else:
                points = self.panels.extension(name, joint)
                made[key] = (
                    "" if points is None else f'"{identity(name, joint)}":{messages.text(points)}'
                )
        return made[key]

    def _say_bye(self) -> None:
        self._bye, run = True, self._shared
        sentence = (
            run.failure
            or f"{run.facts.title} is over after {self.t:.1f} s; results can still be downloaded"
        )
        for viewer in self._viewers:
            viewer.put(messages.text({"type": "bye", "reason": "finished", "message": sentence}))

    # -- what it says ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """As it is now."""
        run, facts, status, quantiles = (
            self._shared,
            self._shared.facts,
            self._shared.status,
            self._quantiles,
        )
        # Where a controller runs, what it did last counts: it may keep the nominal model though the
        # gate is open.
        identified = (
            self._gate.open and not status.forced and (self._identified or not facts.controlled)
        )
        return {
            "gate": messages.gate(
                self._gate, window=self.window, condition=self._parameters["condition"]
            ),
            "model": "identified" if identified else "nominal",
            "forced": status.forced,
            "paused": status.paused,
            "ended": run.ended,
            "cycle": {
                "rate": round(facts.rate, 3),
                "p50": None if quantiles is None else round(quantiles[0], 2),
                "p99": None if quantiles is None else round(quantiles[1], 2),
            },
            "dropped": {
                "samples": status.dropped,
                "frames": self._gone + sum(viewer.dropped for viewer in self._viewers),
            },
            "viewers": len(self._viewers),
        }

    def hello(self, joint: int) -> dict[str, Any]:
        """The whole picture for a viewer who looks at this joint."""
        run, panels, facts = self._shared, self.panels, self._shared.facts
        self._scene["data"][0].update(
            zip("xyz", _columns(self._skeleton.pose(self._q)[0]), strict=True)
        )
        return {
            "type": "hello",
            "version": __version__,
            "mode": facts.mode,
            "title": facts.title,
            "robot": run.robot.name,
            "joints": list(panels.names),
            "units": panels.torque_units,
            "position_units": panels.units,
            "bodies": [run.robot.body_names[b] for b in self._bodies],
            "rate": round(facts.rate, 3),
            "speed": facts.speed,
            "forcible": facts.forcible,
            "drive_file": drive_file(run.robot),
            "threshold": self.threshold,
            "window": self.window,
            "started": run.started.isoformat(timespec="seconds"),
            "t": round(self.t, 4),
            "panels": [
                {
                    "id": identity(name, joint),
                    "title": TITLES[name],
                    "figure": panels.figure(name, joint),
                    "span": SPAN if name == "torque" else None,
                }
                for name in panels.identities
            ],
            "scene": self._scene,
            "state": self.state(),
            "parameters": {"t": self._parameters["t"], "rows": self._parameters["rows"]},
            "events": run.journal.all,
        }

    # -- for a report ------------------------------------------------------------------------------

    def recent(self) -> Arrays:
        """The last rows that were not fitted, after the filter."""
        with self._lock:
            found = self._recent.arrays()
        return {**found, "valid": np.abs(found["dq"]) >= self._shared.facts.min_speed}

    def figures(self) -> tuple[tuple[str, str, dict[str, Any]], ...]:
        """Panels as a report draws them."""
        with self._lock:
            return tuple(
                (TITLES[name], CAPTIONS[name], self.panels.figure(name, 0))
                for name in self.panels.identities
                if name in CAPTIONS
            )


def drive_file(robot: Robot) -> bool:
    """Whether what is identified needs drive.json beside the robot's file: no format holds an
    offset, and URDF no rotor inertia.
    """
    source, terms = robot.source, robot.drive.identified
    return source is not None and (
        "offset" in terms or ("armature" in terms and source.suffix.lower() == ".urdf")
    )


def identity(name: str, joint: int) -> str:
    """Of a panel: the torque's has its joint in it."""
    return f"torque:{joint}" if name == "torque" else name


def _torque(model: Model, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
    return model.torque(
        np.ascontiguousarray(q), np.ascontiguousarray(dq), np.ascontiguousarray(ddq)
    ).copy()


def _columns(points: np.ndarray) -> list[list[float | None]]:
    return [
        [
            value if value == value else None
            for value in np.round(points[:, k], messages.PLACE).tolist()
        ]
        for k in range(3)
    ]
