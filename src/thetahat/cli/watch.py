"""`thetahat watch study|replay|listen`: the live page of a robot that is being identified."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import READING, friction_terms, with_options, with_settings
from thetahat.connect.open_connection import FORMS, Address
from thetahat.errors import UsageError
from thetahat.files import as_text
from thetahat.pipeline.settings import FRICTION, IdentifySettings, setting

if TYPE_CHECKING:
    from thetahat.connect.control_run import ControlResult, ControlRun
    from thetahat.live.sample_sources import Settings
    from thetahat.live.session import Session

SCHEMA = "thetahat/watch/1"
FASTEST = 1000.0

app = typer.Typer(
    help=(
        "Watch online identification in the browser: of a study, a replayed log, or streamed joint"
        " states."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options of the live page."""

    port: int = setting("Port of the page; 0: any free port.", 8765, "N", shown=True)
    host: str = setting("Address to listen on.", "127.0.0.1", "ADDRESS", shown=True)
    allow_remote: bool = setting(
        "Let other machines open and control the page; required for any --host other than"
        " loopback.",
        False,
        flags="--allow-remote",
    )
    open: bool = setting(
        "Open the page in a browser; default: yes, if there is a display.",
        True,
        flags="--open/--no-open",
    )
    token_file: str | None = setting(
        "File with the access token of the link; default: that in the environment variable"
        " THETAHAT_TOKEN, else a new random token.",
        None,
        "FILE",
    )
    foxglove: bool = setting(
        "Also serve the run to Foxglove, on loopback, at the page's port + 1 (extra foxglove).",
        False,
        flags="--foxglove",
    )
    mcap: str | None = setting(
        "Also write the run as MCAP, for Foxglove and PlotJuggler (extra foxglove).", None, "FILE"
    )

    def attach(self, session: Session) -> None:
        """Show the run to Foxglove as well, where it is asked for."""
        if not (self.foxglove or self.mcap):
            return
        from thetahat.live.foxglove_feed import FoxgloveFeed

        shared = session.shared
        session.publisher.feed = feed = FoxgloveFeed(
            shared.info,
            round(shared.started.timestamp() * 1e9),
            port=(self.port and self.port + 1) if self.foxglove else None,
            file=None if self.mcap is None else self._mcap_file(),
        )
        if feed.address is not None:
            say(f"in Foxglove, open the connection {feed.address}")

    def _mcap_file(self) -> Path:
        return arguments.table_file(self.mcap or "", "--mcap", keep=[], kinds=(".mcap",))


@dataclass(frozen=True, kw_only=True)
class IdentifierOptions:
    """Options of the online identifier."""

    rate: float | None = setting(
        "Rate of identification updates, one sample each; default: 3 Hz, three samples each.",
        None,
        "HZ",
    )
    window: int | None = setting(
        "Buffer size, in samples; default: what fills 16.7 s, of which 50 open the gate.",
        None,
        "N",
    )
    threshold: float = setting("R² at which the gate opens.", 0.95, "R2", shown=True)
    cutoff: float = setting(
        "Cut-off of the causal low-pass on all channels.", 10.0, "HZ", shown=True
    )
    friction: str = setting(
        "Friction terms to identify, or none.", ",".join(FRICTION), "TERMS", shown=True
    )
    payload_link: str | None = setting(
        "Link that may carry a payload; its mass is reported.", None, "LINK"
    )

    def __post_init__(self) -> None:
        if self.rate is not None:
            arguments.positive("--rate", self.rate, "Hz")
        arguments.positive("--cutoff", self.cutoff, "Hz")
        if self.window is not None:
            arguments.whole_number("--window", self.window, 1)
        if not 0.0 <= self.threshold <= 1.0:
            raise UsageError(f"--threshold is {self.threshold}; give an R² from 0 to 1")
        friction_terms(self.friction)

    def settings(self) -> Settings:
        """Return the settings of the source."""
        from thetahat.live.sample_sources import Settings

        return Settings(
            self.rate,
            self.window,
            self.threshold,
            self.cutoff,
            friction_terms(self.friction),
            self.payload_link,
        )


Speed = Annotated[
    float,
    option("Playback speed relative to real time.", metavar="TIMES", show_default=True),
]


@arguments.verb(app)
@with_options(PageOptions, "page")
def study(
    name: arguments.Study,
    *,
    speed: Speed = 1.0,
    plant: arguments.Plant = None,
    seed: Annotated[
        int,
        option("Random seed of the simulated robot and its noise.", metavar="N", show_default=True),
    ] = 0,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    page: PageOptions,
) -> None:
    """Run one of the paper's experiments: gate, model switch, tracking errors."""
    arguments.study_with_seed(name, seed)
    engine, times = arguments.plant(plant), _speed(speed)

    def session() -> Session:
        from thetahat.live.sample_sources import Study
        from thetahat.live.session import Session

        # a control loop shares no interpreter with the page
        return Session.apart(Study.named, name, engine, seed=seed, speed=times)

    _serve(session, page, json=json, quiet=quiet)


@arguments.verb(app)
@with_options(PageOptions, "page")
@with_options(IdentifierOptions, "identifier")
@with_settings("gravity", *READING)
def replay(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    speed: Speed = 1.0,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    page: PageOptions,
    identifier: IdentifierOptions,
    settings: IdentifySettings,
) -> None:
    """Replay a log through the online identifier at the rate of its time stamps."""
    file, times = robots.find(robot), _speed(speed)

    def session() -> Session:
        from thetahat.data.log import read_files
        from thetahat.live.sample_sources import Replay
        from thetahat.live.session import Session
        from thetahat.model.io.load import load

        loaded = load(file, gravity=settings.gravity)
        log = read_files(list(logs), loaded, settings.reading)
        return Session(Replay(loaded, log, identifier.settings()), speed=times)

    _serve(session, page, json=json, quiet=quiet)


@arguments.verb(app)
@with_options(PageOptions, "page")
@with_options(IdentifierOptions, "identifier")
@with_settings("gravity")
def listen(
    robot: arguments.Robot,
    *,
    sample_rate: Annotated[
        float,
        option("Expected sample rate; other rates are accepted.", metavar="HZ", show_default=True),
    ] = 1000.0,
    via: Annotated[
        str | None,
        option(f"Read the robot through a connection instead: {FORMS}.", metavar="NAME"),
    ] = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    page: PageOptions,
    identifier: IdentifierOptions,
    settings: IdentifySettings,
) -> None:
    """Identify a robot from joint states received over a WebSocket, or through a connection."""
    file, address = robots.find(robot), None if via is None else Address.parse(via)
    arguments.positive("--sample-rate", sample_rate, "Hz")

    def session() -> Session:
        from thetahat.connect.sim_server import SimulationSetup
        from thetahat.live.sample_sources import Connected, Listen
        from thetahat.live.session import Session
        from thetahat.model.io.load import load

        loaded, wanted = load(file, gravity=settings.gravity), identifier.settings()
        if address is not None:  # for reading only
            connection = address.open(SimulationSetup(loaded, rate=sample_rate, clocked=True))
            return Session(Connected(loaded, connection, wanted, rate=sample_rate))
        return Session(Listen(loaded, wanted, rate=sample_rate))

    _serve(session, page, json=json, quiet=quiet)


# -- serving ---------------------------------------------------------------------------------------


def _serve(begin: Callable[[], Session], page: PageOptions, *, json: bool, quiet: bool) -> None:
    """Serve the page until Ctrl-C or SIGTERM; then print a summary."""
    from thetahat.live.security import new_token
    from thetahat.live.server import Server, bind_socket

    secret = new_token(page.token_file)
    # before the robot is loaded, which takes longer
    bound = bind_socket(page.host, page.port, allow_remote=page.allow_remote)
    try:
        with collect_warnings(quiet=quiet), Progress(quiet=quiet) as progress:
            progress.stage("preparing")
            session = begin()
            page.attach(session)
        over = threading.Event()
        before = {
            each: signal.signal(each, lambda *_: over.set())
            for each in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            server = Server(session, token=secret, host=page.host, bound=bound)
            with server, session:
                _greet(server, session.shared.info.mode, json=json, quiet=quiet)
                if page.open and _has_screen():
                    threading.Thread(
                        target=webbrowser.open, args=(server.address,), daemon=True
                    ).start()
                while not over.wait(0.5):
                    pass
            if not quiet:
                say(session.summary())
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    finally:
        bound.close()


def watched(run: ControlRun, page: PageOptions) -> ControlResult:
    """Run a control loop in real time under its live page, until it is over or Ctrl-C."""
    from thetahat.live.sample_sources import Controlled
    from thetahat.live.security import new_token
    from thetahat.live.server import Server, bind_socket
    from thetahat.live.session import Session

    secret = new_token(page.token_file)
    bound = bind_socket(page.host, page.port, allow_remote=page.allow_remote)
    over = threading.Event()
    before = {
        each: signal.signal(each, lambda *_: over.set()) for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        source = Controlled(run)
        session = Session(source)
        page.attach(session)
        server = Server(session, token=secret, host=page.host, bound=bound)
        with server, session:
            say(f"live page: {server.address}")
            if page.open and _has_screen():
                threading.Thread(
                    target=webbrowser.open, args=(server.address,), daemon=True
                ).start()
            while not over.wait(0.2) and not source.over.is_set():
                pass
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        bound.close()
    return run.result()


def _greet(server: Any, mode: str, *, json: bool, quiet: bool) -> None:
    """The links on stdout, and what to do with them on stderr."""
    listens = mode == "listen"
    if json:
        emit(
            as_text(
                {
                    "schema": SCHEMA,
                    "mode": mode,
                    "page": server.address,
                    "joint_states": server.joint_states if listens else None,
                }
            )
        )
        return
    emit("\n".join([server.address, *([server.joint_states] if listens else [])]) + "\n")
    if not quiet:
        say(
            "open the first link to watch, send joint states to the second; Ctrl-C ends"
            if listens
            else "open the link to watch; Ctrl-C ends"
        )


def _has_screen() -> bool:
    """Whether a browser would be seen by anybody."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _speed(value: float) -> float:
    if not (math.isfinite(value) and 0.0 < value <= FASTEST):
        raise UsageError(
            f"--speed is {value}; give a number above 0, to {FASTEST:g}: 1 is real time"
        )
    return value
