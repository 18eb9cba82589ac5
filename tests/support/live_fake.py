"""A server that speaks to the live page with synthetic data: what the page does is tested without a
robot, and can be told to happen.

`python tests/live_fake.py [joints] [mode] [port]` shows it in a browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
import pytest

from thetahat.report.figures import online_run, stick_figure
from thetahat.report.figures.base import BLUE, ORANGE, axis, figure, line, linear
from thetahat.report.figures.time_series import torque_over_time
from thetahat.report.page import plotly_file
from thetahat.report.traces import Series

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self';"
    " img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PERIOD, SWITCHES = 0.02, (8.0, 40.0)  # [s] of points; when the gate opens, and when it closes again
MANY = 12


@dataclass
class Fake:
    """A run of sines. What the page sent is kept; what it gets can be said by hand."""

    joints: tuple[str, ...] = tuple(f"joint_{k}" for k in range(7))
    mode: str = "study"
    title: str = "arm"
    rate: float = 25.0  # frames per second
    age: float = 0.0  # [s] that the run is old when it starts
    started: str = "2026-01-01T12:00:00+00:00"
    silent: bool = False  # the connection stands, and nothing is said
    refuse: bool = False  # as a server does that has another token
    closed_reason: str = "R² of joint_3 on held-out samples is 0.71, below 0.95"
    paused: bool = False
    forced: bool = False
    ended: bool = False
    robot_file: bool = False  # whether it can be downloaded
    drive_file: bool = True  # whether drive.json goes beside the robot file
    got: list[dict[str, Any]] = field(default_factory=list)
    says: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self.begin, self.t, self.known = time.monotonic(), self.age, 0.0

    def hold(self, paused: bool) -> None:
        """Stop the clock, or let it go on."""
        self.age, self.begin, self.paused = self.now(), time.monotonic(), paused

    def now(self) -> float:
        if not (self.paused or self.ended):
            self.t = self.age + time.monotonic() - self.begin
        return self.t

    # -- what there is to say ----------------------------------------------------------------------

    def open(self, t: float) -> bool:
        return bool(SWITCHES[0] <= t < SWITCHES[1])

    def r2(self, t: np.ndarray, k: int) -> np.ndarray:
        return (
            1.0
            - (0.9 + 0.1 * k) * np.exp(-np.asarray(t) / (1.6 + 0.2 * k))
            - 0.003 * (1 + k % 3) * (1 + np.sin(0.7 * np.asarray(t) + k))
        )

    def torque(self, t: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        noise = np.sin(1e4 * np.asarray(t) ** 2)
        true = (30.0 - k) * np.sin(1.3 * np.asarray(t) + k) + 6.0 * np.sin(4.1 * np.asarray(t))
        return true + 0.8 * noise, true * np.where(np.asarray(t) < SWITCHES[0], 0.7, 0.99)

    def error(self, t: np.ndarray, k: int) -> np.ndarray:
        return np.where(np.asarray(t) < SWITCHES[0], 0.02, 0.002) * np.sin(1.3 * np.asarray(t) + k)

    def drawn(self) -> dict[str, int]:
        """Names of the lines of R² and error, and the joint of each."""
        some = range(len(self.joints)) if len(self.joints) <= MANY else (0, 1, 2)
        return {
            (
                self.joints[k]
                if len(self.joints) <= MANY
                else f"{('worst', 'median', 'chosen')[k]}: {self.joints[k]}"
            ): k
            for k in some
        }

    def lines(self, name: str, t: np.ndarray, joint: int) -> list[np.ndarray]:
        match name:
            case "r2":
                return [
                    np.mean([self.r2(t, k) for k in range(3)], axis=0),
                    *(self.r2(t, k) for k in self.drawn().values()),
                ]
            case "torque":
                return list(self.torque(t, joint))
            case "error":
                return [self.error(t, k) for k in self.drawn().values()]
            case "fill":
                return [100.0 * np.minimum(1.0, t / 5.0), 100.0 * np.minimum(1.0, t / 3.0)]
            case _:
                return [180.0 + 12.0 * np.sin(t), 240.0 + 40.0 * np.sin(3.0 * t) ** 8]

    def panel(self, name: str, end: float, joint: int = 0) -> dict[str, Any]:
        t = np.arange(max(0.0, end - 60.0), end, PERIOD)
        grounds = [(SWITCHES[0], min(end, SWITCHES[1]))] if end >= SWITCHES[0] else []
        rows = [Series(t, y) for y in self.lines(name, t, joint)]
        match name:
            case "r2":
                curves = dict(zip(["all joints", *self.drawn()], rows, strict=True))
                return online_run.r2_over_time(
                    curves, threshold=0.95, identified=grounds, full_at=5.0 if end > 5.0 else None
                )
            case "torque":
                return torque_over_time(*rows)
            case "error":
                return online_run.over_time(
                    dict(zip(self.drawn(), rows, strict=True)),
                    "wanted − true [rad]",
                    identified=grounds,
                )
            case "fill":
                named = zip(("buffer", "rank"), (BLUE, ORANGE), rows, strict=True)
                return figure(
                    [line(linear(y.t), linear(y.y), n, c) for n, c, y in named],
                    x=axis("time [s]"),
                    y=axis("share [%]", range=[0, 105]),
                )
            case _:
                return online_run.over_time({"p50": rows[0], "p99": rows[1]}, "cycle [µs]")

    def panels(self) -> list[str]:
        return [
            name
            for name in ("r2", "torque", "error", "fill", "cycle")
            if name != "error" or self.mode == "study"
        ]

    def place(self, t: float) -> tuple[np.ndarray, list[list[float]]]:
        """Bones of a chain, (3, points), and the pose of every body."""
        p, heading, points, poses = np.zeros(3), 0.0, [np.zeros(3)], []
        for k in range(len(self.joints)):
            heading += (2.0 / len(self.joints)) * np.sin(0.8 * t + 0.5 * k)
            c, s = np.cos(heading), np.sin(heading)
            R = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
            poses.append([*R.ravel().tolist(), *p.tolist()])
            p = p + R @ np.array([0.0, 0.02, 1.6 / len(self.joints)])
            points.append(p)
        return np.array(points).T, poses * 2

    def scene(self) -> dict[str, Any]:
        bones, _ = self.place(self.t)
        sphere, faces = stick_figure._sphere()
        radii, centre = (
            np.array([0.08, 0.06, 0.7 / len(self.joints)]),
            np.array([0.0, 0.0, 0.8 / len(self.joints)]),
        )
        mesh = dict(zip("xyz", (sphere * radii + centre).T.tolist(), strict=True)) | dict(
            zip("ijk", faces.T.tolist(), strict=True)
        )
        data = [
            {
                "type": "scatter3d",
                "mode": "lines",
                **dict(zip("xyz", bones.tolist(), strict=True)),
                "name": "robot",
                "line": {"color": "#808790"},
            }
        ]
        data += [
            {"type": "mesh3d", **mesh, "name": "identified", "color": "#2f7ed8"}
            for _ in self.joints
        ]
        angle = np.linspace(0.0, 2.0 * np.pi, 25)
        ring = np.stack(
            [
                1.3 * radii[0] * np.cos(angle),
                0.0 * angle,
                1.3 * radii[2] * np.sin(angle) + centre[2],
            ]
        )
        rings = {
            "type": "scatter3d",
            "mode": "lines",
            **dict(zip("xyz", ring.tolist(), strict=True)),
            "name": "nominal",
            "line": {"color": "#d0740f"},
        }
        return {"data": data + [rings for _ in self.joints], "layout": {"scene": {}}}

    def state(self, t: float) -> dict[str, Any]:
        opened = self.open(t)
        scores = [
            None if k == len(self.joints) - 1 and t < 4.0 else float(self.r2(t, k))
            for k in range(len(self.joints))
        ]
        gate = {
            "open": opened,
            "reason": "all nine conditions hold" if opened else self.closed_reason,
        }
        gate |= {
            "since": SWITCHES[0] if opened else SWITCHES[1] if t > SWITCHES[1] else 0.0,
            "r2": float(self.r2(t, 0)),
            "r2_fit": float(self.r2(t, 1)),
        }
        gate |= {
            "r2_per_joint": scores,
            "fill": int(min(50, t * 10)),
            "window": 50,
            "rank": int(min(22, 8 * t)),
            "structural_rank": 24,
            "condition": 35.1,
        }
        return {
            "gate": gate,
            "model": "identified" if opened and not self.forced else "nominal",
            "forced": self.forced,
            "paused": self.paused,
            "ended": self.ended,
            "cycle": {"rate": 1000.0, "p50": 181.3, "p99": 243.0},
            "dropped": {"samples": 0, "frames": 0},
            "viewers": 1,
        }

    def parameters(self, t: float) -> dict[str, Any]:
        rows, kinds = (
            [],
            (
                ("mass", "kg", 2.0),
                ("m·cx", "kg·m", 0.1),
                ("m·cy", "kg·m", -0.02),
                ("Ixx", "kg·m²", 0.01),
                ("viscous", "N·m·s/rad", 0.4),
                ("Ixy", "kg·m²", -3.57e-5),
            ),
        )
        for k, joint in enumerate(self.joints):
            for j, (name, unit, nominal) in enumerate(kinds):
                value, std = (
                    nominal * (1.0 + 0.3 * np.sin(k + j) * (1.0 - np.exp(-t / 5.0))),
                    0.05 * abs(nominal) + 0.3 * abs(nominal) / (1.0 + t),
                )
                if name == "Ixy":  # nothing to speak of, and not known better than that
                    value, std = -4.74e-5, 8e-4
                told = {
                    "joint_or_link": joint if name == "viscous" else f"{joint}_link",
                    "name": name,
                    "unit": unit,
                    "nominal": nominal * (1.0 + 0.1 * k),
                }
                rows.append(
                    {
                        **told,
                        "value": float(value),
                        "std": float(std),
                        "identified": (k + j) % 4 != 3,
                    }
                )
        return {"type": "parameters", "t": t, "rows": rows}

    def hello(self) -> dict[str, Any]:
        t, count = self.now(), len(self.joints)
        titles = {
            "r2": "R² per joint",
            "torque": "Torque",
            "error": "Joint errors",
            "fill": "Buffer and rank",
            "cycle": "Cycle time",
        }
        panels = [
            {
                "id": "torque:0" if n == "torque" else n,
                "title": titles[n],
                "figure": self.panel(n, t),
                "span": None,
            }
            for n in self.panels()
        ]
        told = {
            "type": "hello",
            "version": "0",
            "mode": self.mode,
            "title": self.title,
            "robot": "fake arm",
            "joints": self.joints,
            "units": ["N·m"] * count,
        }
        told |= {
            "position_units": ["rad"] * count,
            "bodies": [f"{name}_link" for name in self.joints],
            "rate": 1000.0,
            "speed": 1.0,
            "threshold": 0.95,
            "drive_file": self.drive_file,
        }
        told |= {
            "window": 50,
            "started": self.started,
            "panels": panels,
            "scene": self.scene(),
            "state": self.state(t),
        }
        events = [{"type": "event", "t": 0.0, "kind": "info", "message": "the run began"}]
        return told | {"parameters": self.parameters(t), "events": events}

    def frame(self, seq: int, before: float, t: float, joint: int) -> dict[str, Any]:
        times = np.arange(np.ceil(before / PERIOD) * PERIOD, t, PERIOD)
        extend = {
            f"torque:{joint}" if n == "torque" else n: [
                [times.round(4).tolist(), np.round(y, 5).tolist()]
                for y in self.lines(n, times, joint)
            ]
            for n in self.panels()
        }
        bones, poses = self.place(t)
        pose = dict(zip("xyz", bones.round(5).tolist(), strict=True))
        return {
            "type": "frame",
            "seq": seq,
            "t": t,
            "state": self.state(t),
            "extend": extend,
            "pose": pose,
            "bodies": poses,
        }

    # -- the server --------------------------------------------------------------------------------

    async def _listen(self, ws: Any, viewer: dict[str, Any]) -> None:
        async for text in ws.iter_text():
            message = json.loads(text)
            self.got.append(message)
            match message:
                case {"type": "subscribe", "joint": joint}:
                    viewer["joint"] = joint
                    await ws.send_json(
                        {
                            "type": "figure",
                            "id": f"torque:{joint}",
                            "figure": self.panel("torque", self.t, joint),
                        }
                    )
                case {"type": "command", "name": "pause" | "resume" as name}:
                    self.hold(name == "pause")
                case {"type": "command", "name": "force_nominal" | "release" as name}:
                    self.forced = name == "force_nominal"

    async def live(self, ws: Any) -> None:
        if self.refuse:
            await ws.close()
            return
        await ws.accept()
        viewer: dict[str, Any] = {"joint": 0}
        listener = asyncio.create_task(self._listen(ws, viewer))
        try:
            await ws.send_text(json.dumps(self.hello(), allow_nan=False))
            before, opened, seq, said, told = self.t, self.open(self.t), 0, len(self.says), 0.0
            while not listener.done():
                await asyncio.sleep(1.0 / self.rate)
                t, messages = self.now(), self.says[said:]
                said += len(messages)
                if not self.silent:
                    messages.append(self.frame(seq := seq + 1, before, t, viewer["joint"]))
                    before = t
                if self.open(t) != opened:
                    opened = self.open(t)
                    messages += [
                        {"type": "figure", "id": n, "figure": self.panel(n, t)}
                        for n in ("r2", "error")
                        if n in self.panels()
                    ]
                    messages.append(
                        {
                            "type": "event",
                            "t": t,
                            "kind": "gate",
                            "message": f"the gate {'opened' if opened else 'closed'}",
                        }
                    )
                if t - told > 0.4:
                    told = t
                    messages.append(self.parameters(t))
                for message in messages:
                    await ws.send_text(json.dumps(message, allow_nan=False))
        except Exception:  # the page went away
            pass
        finally:
            listener.cancel()

    def app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.responses import FileResponse, JSONResponse, Response
        from starlette.routing import Route, WebSocketRoute

        def asset(name: str) -> Response:
            for package, folder in (("thetahat.live", "static"), ("thetahat.report", "style")):
                path = resources.files(package).joinpath(folder, name)
                if path.is_file():
                    return Response(
                        path.read_bytes(),
                        media_type=TYPES[name.rpartition(".")[2]],
                        headers={"Content-Security-Policy": POLICY},
                    )
            return Response("no such file", status_code=404)

        async def download(request: Any) -> Response:
            if request.path_params["name"] == "robot" and self.robot_file:
                return Response(
                    "<robot/>",
                    media_type="application/xml",
                    headers={"Content-Disposition": 'attachment; filename="arm_identified.urdf"'},
                )
            if request.path_params["name"] != "estimate.json":
                return JSONResponse({"message": "there is no estimate yet"}, status_code=409)
            return JSONResponse(
                {"schema": "fake"},
                headers={"Content-Disposition": 'attachment; filename="arm-estimate.json"'},
            )

        routes = [
            Route(
                "/",
                lambda _: (
                    Response("wrong token", status_code=403) if self.refuse else asset("index.html")
                ),
            ),
            Route("/static/{name}", lambda request: asset(request.path_params["name"])),
            Route(
                "/plotly.min.js",
                lambda _: FileResponse(plotly_file(), media_type="text/javascript"),
            ),
            Route("/download/{name}", download),
            WebSocketRoute("/live", self.live),
        ]
        return Starlette(routes=routes)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        uvicorn = pytest.importorskip(
            "uvicorn", reason='the live page needs pip install "thetahat[web]"'
        )
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", self.port))
            self.port = probe.getsockname()[1]
        config = uvicorn.Config(
            self.app(),
            host="127.0.0.1",
            port=self.port,
            log_level="critical",
            ws="websockets-sansio",
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the fake server did not start"
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10.0)
        assert not self.thread.is_alive()

    def commands(self) -> list[str]:
        return [message["name"] for message in self.got if message["type"] == "command"]


@contextmanager
def running(**options: Any) -> Iterator[Fake]:
    fake = Fake(**options)
    fake.start()
    try:
        yield fake
    finally:
        fake.stop()


def named(count: int) -> tuple[str, ...]:
    """Names as long as those of a humanoid."""
    parts = (
        "leftHipYaw",
        "leftHipRoll",
        "leftKneePitch",
        "torsoYaw",
        "rightShoulderPitch",
        "rightForearmYaw",
        "lowerNeckPitch",
    )
    return tuple(f"{parts[k % len(parts)]}{k // len(parts) or ''}" for k in range(count))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    with running(
        joints=named(int(arguments[0]) if arguments else 7),
        mode=(arguments[1:2] or ["study"])[0],
        port=int((arguments[2:3] or [0])[0]),
    ) as shown_here:
        print(shown_here.address, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            shown_here.thread.join()
