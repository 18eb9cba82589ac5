"""A progress bar on stderr, for a reader at a terminal, and only when something takes longer than a
second.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from thetahat.excite.design import Progress as SearchProgress

PATIENCE = 1.0  # [s]
T = TypeVar("T", bound=Sized)


class Progress:
    """``with Progress() as progress: progress.stage("reading"); progress.count(batches, "folding",
    total)``.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = sys.stderr.isatty() and not quiet and os.environ.get("TERM") != "dumb"
        self._lock, self._over = threading.Lock(), False

    def __enter__(self) -> Progress:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            console = Console(
                stderr=True, color_system=None if os.environ.get("NO_COLOR") else "auto"
            )
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=None)
            self._timer = threading.Timer(PATIENCE, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._shown:
            self._timer.cancel()
            with self._lock:
                self._over = True
                self._bar.stop()

    def _start(self) -> None:
        with self._lock:
            if not self._over:
                self._bar.start()

    def stage(self, text: str, total: int | None = None) -> None:
        """What goes on now; `total` rows, where they can be counted."""
        if self._shown:
            self._bar.reset(self._task, total=total, description=text)

    def count(self, parts: Iterable[T], text: str, total: int) -> Iterator[T]:
        """Hand parts on and count what is in them."""
        self.stage(text, total)
        for part in parts:
            yield part
            if self._shown:
                self._bar.advance(self._task, len(part))

    def rows(self, text: str) -> Callable[[int, int], None]:
        """Return a function that shows how many of all rows are done."""
        self.stage(text)

        def tell(done: int, total: int) -> None:
            if self._shown:
                self._bar.update(self._task, completed=done, total=total)

        return tell

    def update(self, text: str, done: int, total: int) -> None:
        """Show what goes on, and how much of it is done."""
        if self._shown:
            self._bar.update(self._task, completed=done, total=total, description=text)

    def share(self, text: str) -> Callable[[SearchProgress], None]:
        """Return a function that shows the progress of a search and its best value."""
        self.stage(text, 1000)

        def tell(so_far: SearchProgress) -> None:
            if self._shown:
                shown = f"{text}: {so_far.criterion:.4g}"
                self._bar.update(self._task, completed=round(1000 * so_far.done), description=shown)

        return tell
