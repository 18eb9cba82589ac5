"""Pages whose code runs: a page is worked through from top to bottom in one folder, as a reader
would, in this process.

Blocks of `python` share their names, and a warning is an error. Lines of `sh` must succeed. Blocks
of `console` show what a command prints, or says on stderr where it fails; a line … stands for any
lines, and `$ echo $?` for the exit code. Blocks of `text` are not run.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from data_paths import ROOT

from thetahat.pipeline.settings import IdentifySettings

RUN = ("python", "sh", "console")
SHOWN = ("text", "json", "xml")  # read, not run
WIDTH = "100"  # columns of the terminal whose output pages show
SLOW_VERBS = ("demo", "watch")  # they have tests of their own; here it is enough that they exist
HURRY = {
    "excite": ["--starts", "2"],
    "identify": ["--no-tune"],
}  # a design with less time; what is shown in full (console) is tuned
ANYTHING = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int  # of its first line of content


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order; none inside another."""
    found = re.finditer(r"^```(\S*)[^\n]*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in found]


def sessions(block: Block) -> list[tuple[str, str]]:
    """(command, the output shown) of every `$ command` in a console block."""
    return re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block.text, flags=re.MULTILINE)


def commands(block: Block) -> list[str]:
    """The lines of a shell block that do something, without comments."""
    lines = [re.sub(r"\s+#\s.*$", "", line).strip() for line in block.text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


@dataclass
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


class Reader:
    """Someone who works through a page in a folder of their own."""

    def __init__(
        self, page: Path, folder: Path, *, alone: bool = False, waiting: tuple[str, ...] = ()
    ) -> None:
        """alone: every block of Python stands for itself. waiting: verbs and names that pages may
        use before they exist; such blocks are left out.
        """
        self.page, self.folder, self.alone, self.waiting = page, folder, alone, waiting
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.code = 0
        self.left_out: list[str] = []

    def work_through(self) -> None:
        """Run everything on the page."""
        for block in blocks(self.page.read_text(encoding="utf-8")):
            where = f"{self.page.relative_to(ROOT)}, line {block.line}"
            assert block.language in (*RUN, *SHOWN), (
                f"{where}: a block of {block.language or 'no language'}; give one of"
                f" {', '.join((*RUN, *SHOWN))}"
            )
            missing = self._missing(block)
            if missing:
                self.left_out.append(f"{where} waits for {missing}")
            elif block.language == "python":
                self._python(block, where)
            elif block.language == "sh":
                for line in commands(block):
                    answer = self._shell(line, where)
                    assert answer is None or answer.code == 0, (
                        f"{where}: {line!r} exits {answer.code}: {answer.err}"
                    )
            elif block.language == "console":
                for command, shown in sessions(block):
                    self._session(command, shown, where)

    def _missing(self, block: Block) -> str | None:
        import thetahat

        for name in self.waiting:
            verb = not name.startswith("th.")
            used = re.search(
                rf"^(?:\$ )?thetahat {name}\b" if verb else rf"\b{re.escape(name)}\b",
                block.text,
                flags=re.MULTILINE,
            )
            if (
                used
                and block.language in RUN
                and not (name in verbs() if verb else hasattr(thetahat, name[3:]))
            ):
                return name
        return None

    def _python(self, block: Block, where: str) -> None:
        code = compile("\n" * (block.line - 1) + block.text, str(self.page), "exec")
        names = {"__name__": "__main__"} if self.alone else self.names
        defaults = {} if self.alone else {"tune": False}  # as HURRY does; the README's are tuned
        with (
            patch.dict(IdentifySettings.__init__.__kwdefaults__, defaults),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error")
            try:
                exec(code, names)
            except Exception as error:
                raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error

    def _shell(self, line: str, where: str) -> Answer | None:
        """Run a command; make's and pip's lines must name what exists."""
        match shlex.split(line):
            case ["thetahat", verb, *arguments]:
                return run(
                    (
                        [verb, "--help"]
                        if verb in SLOW_VERBS
                        else [verb, *arguments, *HURRY.get(verb, [])]
                    ),
                    self.folder,
                )
            case ["python", script]:  # tests/docs/test_examples.py runs it
                assert (ROOT / script).is_file(), f"{where}: {script} is not there"
            case ["python", script, *arguments]:
                with (
                    contextlib.chdir(self.folder),
                    contextlib.redirect_stdout(io.StringIO()),
                    patch.object(sys, "argv", [script, *arguments]),
                ):
                    runpy.run_path(str(ROOT / script), run_name="__main__")
            case ["make", target]:
                if shutil.which("make"):
                    subprocess.run(
                        ["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True
                    )
            case ["pip", "install", what]:
                check_install(what)
            case _:
                pytest.fail(f"{where}: no test knows how to check {line!r}")
        return None

    def _session(self, command: str, shown: str, where: str) -> None:
        if command == "echo $?":
            assert shown.strip() == str(self.code), f"{where}: the exit code is {self.code}"
            return
        program, *arguments = shlex.split(command)
        assert program == "thetahat", f"{where}: {program}"
        answer = run(arguments, self.folder)
        self.code = answer.code
        said = answer.out if answer.code == 0 else answer.err
        pattern = re.escape(without_seconds(shown)).replace(
            re.escape(ANYTHING + "\n"), r"(?:.*\n)*?"
        )
        assert re.fullmatch(pattern, without_seconds(said)), (
            f"{where}: {command!r} exits {answer.code} and says\n{said}{answer.err}"
        )


def verbs() -> set[str]:
    """What `thetahat` can do."""
    from thetahat.cli.app import app

    return {command.name or command.callback.__name__ for command in app.registered_commands} | {
        group.name for group in app.registered_groups
    }


def options() -> set[str]:
    """Every option of every verb."""
    import typer

    from thetahat.cli.app import app

    def flags(command: Any) -> set[str]:
        found = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
        return found.union(*map(flags, getattr(command, "commands", {}).values()))

    return flags(typer.main.get_command(app))


def run(arguments: list[str], folder: Path) -> Answer:
    """`thetahat` with these arguments, in this process: what it costs to start it would be most of
    the time.
    """
    from thetahat.cli import main

    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
    )
    code = 0
    with (
        contextlib.chdir(folder),
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("COLUMNS", WIDTH)
        for name, value in (("argv", ["thetahat", *arguments]), ("stdout", out), ("stderr", err)):
            patched.setattr(sys, name, value)
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return Answer(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def check_install(what: str) -> None:
    """What `pip install` names is this package, with extras it has."""
    extras = re.fullmatch(r"\.(?:\[(.+)\])?", what)
    assert extras, f"{what} is not this package"
    declared = re.findall(
        r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert set(filter(None, (extras[1] or "").split(","))) <= set(declared)


def without_seconds(text: str) -> str:
    """The same text whatever the machine's speed."""
    return re.sub(r"\d+\.\d s\b", "… s", text)
