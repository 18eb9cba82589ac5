"""A session: a loop, the publisher of what it leaves, viewers, commands, and what can be taken
home. The loop waits for nobody.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from thetahat.errors import NotIdentifiable, ThetahatError, UsageError, known
from thetahat.live.downloads import Memory, Order, Product
from thetahat.live.loop_process import Remote
from thetahat.live.messages import COMMANDS
from thetahat.live.publisher import Publisher
from thetahat.live.sample_loop import Loop
from thetahat.live.sample_sources import Source
from thetahat.live.shared_state import Facts, Shared
from thetahat.live.viewers import Viewer
from thetahat.online.identifier import OnlineIdentifier

SWITCH = 5e-4  # [s] after which a thread that builds frames makes way for the loop
PATIENCE = 120.0  # [s] for a product
NO_ROBOT = "no robot file could be written; estimate.json says why, under advice"


class Unfinished(ThetahatError):
    """Something that is being made, and not done yet."""


@dataclass
class _Making:
    """A product that was asked for."""

    memory: Memory
    resets: int  # of the run, when it was
    future: Future
    owed: bool = False  # whether someone was sent away before it was done

    def answers(self, memory: Memory, resets: int) -> bool:
        """Whether it is what someone wants who asks now: of this memory, or on its way, for another
        would wait behind it; nothing forgotten.
        """
        return resets == self.resets and (
            memory is self.memory or self.owed or not self.future.done()
        )


class Session:
    """`start` it, `attach` viewers, tell it commands, and take home what it learned; `stop` ends
    it.

    The loop runs in a thread of this process; of `Session.apart(factory, …)` in a process of its
    own, where nothing of the page can hold it up.
    """

    def __init__(
        self, source: Source | None, *, speed: float = 1.0, remote: Remote | None = None
    ) -> None:
        self.source, self._remote = source, remote
        self.shared = Shared(Facts.of(source, speed) if remote is None else remote.facts)
        self.loop = None if remote is not None else Loop(source, self.shared, speed=speed)
        self._product: _Making | None = None
        self._making = threading.Lock()
        self.refused = 0  # frames of samples from outside that could not be used
        self._thread: threading.Thread | None = None
        self._interval = sys.getswitchinterval()
        self.publisher = Publisher(self.shared)

    @classmethod
    def apart(
        cls, factory: Callable[..., Source], *arguments: Any, speed: float = 1.0, **options: Any
    ) -> Session:
        """A session whose source is made, and runs, in another process; raises what making it
        raises. All that is handed over must travel.
        """
        return cls(None, speed=speed, remote=Remote(factory, arguments, options, speed=speed))

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> Session:
        """Begin."""
        if self._remote is not None:
            self._remote.start(self.shared)
        else:
            sys.setswitchinterval(min(SWITCH, self._interval))
            self._thread = threading.Thread(target=self.loop.run, name="thetahat-loop", daemon=True)
            self._thread.start()
        self.publisher.start()
        return self

    def stop(self) -> None:
        """End the loop and tell the viewers."""
        self.publisher.stopping = True
        if self._remote is not None:
            self._remote.stop()
        else:
            self.loop.command("stop")
            if self._thread is not None:
                self._thread.join(timeout=10.0)
        self.publisher.stop()
        self.shared.workshop.close()
        sys.setswitchinterval(self._interval)

    @property
    def identifier(self) -> OnlineIdentifier:
        """Of a run in this process."""
        return self.source.identifier

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- commands ----------------------------------------------------------------------------------

    def command(self, name: str) -> None:
        """One of `COMMANDS`; raises `UsageError` with the reason where it makes no sense."""
        if name not in COMMANDS:
            raise UsageError(f"command {str(name)[:40]!r} is unknown; commands: {known(COMMANDS)}")
        if self.shared.ended:
            raise UsageError(f"the run is over, so there is nothing to {name.split('_')[0]}")
        facts = self.shared.facts
        if name in ("force_nominal", "release") and not facts.forcible:
            why = (
                "its controller uses the nominal model always"
                if facts.controlled
                else "no controller of ours drives this robot"
            )
            raise UsageError(f"the nominal model cannot be forced: {why}")
        (self.loop if self._remote is None else self._remote).command(name)

    def say(self, kind: str, sentence: str, *, like: str | None = None) -> None:
        """Put something on record; like: what other events it may be counted with."""
        self.shared.event(self.shared.status.clock, kind, sentence, like)

    # -- viewers -----------------------------------------------------------------------------------

    def attach(self, wake: Callable[[], None] = lambda: None) -> Viewer:
        """Someone more who watches; `wake` is called, in another thread, when there is a message to
        take.
        """
        return self.publisher.attach(wake)

    def detach(self, viewer: Viewer) -> None:
        """Someone left."""
        self.publisher.detach(viewer)

    # -- products ----------------------------------------------------------------------------------

    @property
    def memory(self) -> Memory | None:
        """What the identifier remembered after its last update."""
        return self.shared.memory

    def estimate_json(self) -> bytes:
        """`estimate.json`, schema thetahat/estimate/1, of what is remembered now."""
        return self.product().estimate

    def robot_file(self) -> tuple[str, bytes]:
        """(name, content) of the robot's file with what was identified."""
        made = self.product()
        if made.robot is None:
            raise NotIdentifiable(NO_ROBOT)
        return made.robot_name, made.robot

    def report_html(self) -> bytes:
        """The report."""
        return self.product().report

    def product(self) -> Product:
        """All of them, of one moment, made in a process beside the loop; raises `Unfinished` where
        that takes too long.
        """
        memory = self.shared.memory
        if memory is None or not memory.count:
            raise NotIdentifiable(
                "nothing has been learned yet: the memory is empty; let the robot move"
            )
        with self._making:
            making = self._product
            if making is None or not making.answers(memory, self.shared.resets):
                making = self._product = _Making(
                    memory,
                    self.shared.resets,
                    self.shared.workshop.ask("product", self._order(memory)),
                )
            making.owed = False
        try:
            return making.future.result(timeout=PATIENCE)
        except ThetahatError:
            raise
        except Exception as error:
            if not making.future.done():
                making.owed = True
                raise Unfinished(
                    f"what was learned is not written up after {PATIENCE:g} s; ask again in a while"
                ) from None
            with self._making:
                self._product = None if self._product is making else self._product
            raise NotIdentifiable(
                f"what was learned could not be written up: {type(error).__name__} {error}".rstrip()
            ) from None

    def _order(self, memory: Memory) -> Order:
        facts = self.shared.facts
        return Order(
            memory=memory,
            recent=self.publisher.recent(),
            figures=self.publisher.figures(),
            events=tuple(self.shared.journal.all),
            title=facts.title,
            cutoff=facts.cutoff,
            min_speed=tuple(facts.min_speed.tolist()),
            provenance=facts.provenance,
            findings=facts.findings,
            locked=facts.locked,
        )

    # -- in words ----------------------------------------------------------------------------------

    def summary(self) -> str:
        """What was seen, in a sentence or two."""
        shared, gate, status = self.shared, self.shared.gate, self.shared.status
        seconds = time.monotonic() - self.publisher.began
        r2 = "" if gate.r2 is None else f", R² {gate.r2:.4f} on samples held out"
        return (
            f"{shared.facts.title}: {shared.tap.cycles} samples in {seconds:.0f} s,"
            f" {status.clock:.1f} s of the robot's, {status.dropped} dropped; {status.updates}"
            f" updates, gate {'open' if gate.open else 'closed'} ({gate.reason}){r2}"
        )
