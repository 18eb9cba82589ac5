"""`thetahat watch study|replay|listen`: the live page of a robot that is being identified."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit, heard, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import friction_terms
from thetahat.cli.study import STUDIES, _complete
from thetahat.errors import UsageError
from thetahat.files import as_text

if TYPE_CHECKING:
    from thetahat.live.sample_sources import Settings
    from thetahat.live.session import Session

SCHEMA = "thetahat/watch/1"
PORT = 8765
FASTEST = 1000.0
FRICTION = ("viscous", "coulomb", "offset")
ALL = ",".join(FRICTION)

app = typer.Typer(
    help=(
        "Watch a robot being identified, in the browser: a study, a log that is played, or joint"
        " states from outside."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

Speed = Annotated[
    float,
    option("Seconds of the robot per second on the wall.", metavar="TIMES", show_default=True),
]
Port = Annotated[int, option("Of the page; 0: any that is free.", metavar="N", show_default=True)]
Host = Annotated[str, option("Address to listen on.", metavar="ADDRESS", show_default=True)]
Remote = Annotated[
    bool,
    option(
        "Let other machines see the page and steer it: needed for any --host but this machine's"
        " own.",
        "--allow-remote",
    ),
]
Open = Annotated[
    bool,
    option(
        "Open the page in the browser; default: yes, where there is a screen.", "--open/--no-open"
    ),
]
Token = Annotated[
    str | None,
    option("That the link carries; default: a random one for every start.", metavar="TEXT"),
]
Rate = Annotated[float, option("Updates per second.", metavar="HZ", show_default=True)]
Window = Annotated[int, option("Samples that fill the buffer.", metavar="N", show_default=True)]
Threshold = Annotated[float, option("R² at which the gate opens.", metavar="R2", show_default=True)]
Cutoff = Annotated[
    float, option("Of the causal low-pass on all channels.", metavar="HZ", show_default=True)
]
Friction = Annotated[
    str,
    option("Friction to identify: some of the three, or none.", metavar="TERMS", show_default=True),
]
Held = Annotated[
    str | None,
    option(
        "Link that may take up a payload; its mass is reported.", "--payload-link", metavar="LINK"
    ),
]


@arguments.verb(app)
def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"One of {', '.join(STUDIES)}.",
            autocompletion=_complete,
            show_default=False,
        ),
    ],
    *,
    speed: Speed = 1.0,
    plant: arguments.Plant = None,
    seed: Annotated[
        int, option("Of how the robot was built, and of its noise.", metavar="N", show_default=True)
    ] = 0,
    port: Port = PORT,
    host: Host = "127.0.0.1",
    allow_remote: Remote = False,
    open: Open = True,
    token: Token = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Run one of the paper's experiments and watch it: the gate, the switch, and better tracking
    afterwards.
    """
    if name not in STUDIES:
        raise UsageError(f"study {name!r} is unknown; studies: {', '.join(STUDIES)}")
    if seed < 0:
        raise UsageError(f"--seed is {seed}; give a whole number from 0")
    engine = arguments.plant(plant)

    times = _speed(speed)

    def session() -> Session:
        from thetahat.live.sample_sources import Study
        from thetahat.live.session import Session

        return Session.apart(
            Study.named, name, engine, seed=seed, speed=times
        )  # a control loop shares no interpreter with the page

    _serve(
        session,
        port=port,
        host=host,
        allow_remote=allow_remote,
        show=open,
        token=token,
        json=json,
        quiet=quiet,
    )


@arguments.verb(app)
def replay(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    speed: Speed = 1.0,
    rate: Rate = 3.0,
    window: Window = 50,
    threshold: Threshold = 0.95,
    cutoff: Cutoff = 10.0,
    friction: Friction = ALL,
    payload_link: Held = None,
    gravity: arguments.Gravity = None,
    columns: arguments.Columns = None,
    topic: arguments.Topic = None,
    salvage: arguments.Salvage = False,
    port: Port = PORT,
    host: Host = "127.0.0.1",
    allow_remote: Remote = False,
    open: Open = True,
    token: Token = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Play a log through the online identifier at the pace of its own stamps, and watch it."""
    file, vector, chosen = (
        arguments.robot_file(robot),
        arguments.gravity(gravity),
        _settings(rate, window, threshold, cutoff, friction, payload_link),
    )

    times = _speed(speed)

    def session() -> Session:
        from thetahat.data.log import read_log
        from thetahat.live.sample_sources import Replay
        from thetahat.live.session import Session
        from thetahat.model.io.load import load

        loaded = load(file, gravity=vector)
        return Session(
            Replay(
                loaded,
                read_log(list(logs), loaded, columns=columns, topic=topic, salvage=salvage),
                chosen(),
            ),
            speed=times,
        )

    _serve(
        session,
        port=port,
        host=host,
        allow_remote=allow_remote,
        show=open,
        token=token,
        json=json,
        quiet=quiet,
    )


@arguments.verb(app)
def listen(
    robot: arguments.Robot,
    *,
    rate: Rate = 3.0,
    window: Window = 50,
    threshold: Threshold = 0.95,
    cutoff: Cutoff = 10.0,
    friction: Friction = ALL,
    payload_link: Held = None,
    gravity: arguments.Gravity = None,
    sample_rate: Annotated[
        float,
        option(
            "Samples per second that are expected; any are taken.", metavar="HZ", show_default=True
        ),
    ] = 1000.0,
    port: Port = PORT,
    host: Host = "127.0.0.1",
    allow_remote: Remote = False,
    open: Open = True,
    token: Token = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Take joint states from outside over a WebSocket, one frame per sample, identify the robot
    from them, and watch it.
    """
    file, vector, chosen = (
        arguments.robot_file(robot),
        arguments.gravity(gravity),
        _settings(rate, window, threshold, cutoff, friction, payload_link),
    )
    arguments.positive("--sample-rate", sample_rate, "Hz")

    def session() -> Session:
        from thetahat.live.sample_sources import Listen
        from thetahat.live.session import Session
        from thetahat.model.io.load import load

        return Session(Listen(load(file, gravity=vector), chosen(), rate=sample_rate))

    _serve(
        session,
        port=port,
        host=host,
        allow_remote=allow_remote,
        show=open,
        token=token,
        json=json,
        quiet=quiet,
    )


# -- serving ---------------------------------------------------------------------------------------


def _serve(
    begin: Callable[[], Session],
    *,
    port: int,
    host: str,
    allow_remote: bool,
    show: bool,
    token: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Until Ctrl-C or SIGTERM; then what was seen is summed up."""
    from thetahat.live.security import new_token
    from thetahat.live.server import Server, bind_socket

    secret = new_token(token)
    bound = bind_socket(
        host, port, allow_remote=allow_remote
    )  # before the robot is loaded, which takes longer
    try:
        with heard(quiet=quiet), Progress(quiet=quiet) as progress:
            progress.stage("preparing")
            session = begin()
        over = threading.Event()
        before = {
            each: signal.signal(each, lambda *_: over.set())
            for each in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            server = Server(session, token=secret, host=host, bound=bound)
            with server, session:
                _greet(server, session.shared.info.mode, json=json, quiet=quiet)
                if show and _has_screen():
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


def _settings(
    rate: float,
    window: int,
    threshold: float,
    cutoff: float,
    friction: str,
    payload_link: str | None,
) -> Any:
    """Checked now, made when all that is needed is loaded."""
    arguments.positive("--rate", rate, "Hz")
    arguments.positive("--cutoff", cutoff, "Hz")
    if window < 1:
        raise UsageError(f"--window is {window}; give a whole number from 1")
    if not 0.0 <= threshold <= 1.0:
        raise UsageError(f"--threshold is {threshold}; give an R² from 0 to 1")
    terms = friction_terms(friction)

    def made() -> Settings:
        from thetahat.live.sample_sources import Settings

        return Settings(rate, window, threshold, cutoff, terms, payload_link)

    return made
