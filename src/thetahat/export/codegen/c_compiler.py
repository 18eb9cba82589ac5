"""The system's C compiler, and the folder in which what it built is kept."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")
LONGEST = 120.0  # [s] a compiler may take
CACHE = "THETAHAT_CODE_CACHE"  # names the folder, where set
FLAGS = ("-std=c99", "-O3", "-fPIC", "-shared")
NATIVE = ("-march=native", "-ffp-contract=fast")  # left out where the compiler does not know them


class CompilerError(Exception):
    """Why nothing was built, in one sentence."""


def find_compiler() -> list[str]:
    """Return the command of the C compiler: the variable CC, or the first of `COMPILERS`."""
    stated = shlex.split(os.environ.get("CC", ""))
    if stated:
        if shutil.which(stated[0]) is None:
            raise CompilerError(f"the C compiler that CC names, {stated[0]!r}, is not there")
        return stated
    for name in COMPILERS:
        if shutil.which(name) is not None:
            return [name]
    raise CompilerError(f"no C compiler is installed ({', '.join(COMPILERS)})")


def cache_folder() -> Path:
    """Return the folder of built code."""
    stated = os.environ.get(CACHE)
    if stated:
        return Path(stated)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "thetahat" / "compiled"


def build_library(sources: dict[str, str], main: str, includes: list[str], target: Path) -> None:
    """Compile sources (text by file name), of which `main` includes the others, to a shared library
    that appears whole or not at all.
    """
    compiler = find_compiler()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as scratch:
            for name, text in sources.items():
                (Path(scratch) / name).write_text(text, encoding="utf-8")
            built = Path(scratch) / target.name
            command = [*compiler, *FLAGS, *(f"-I{folder}" for folder in includes)]
            command += [str(Path(scratch) / main), "-o", str(built), "-lm"]
            problem = _run([*command, *NATIVE])
            if problem is not None and (problem := _run(command)) is not None:
                raise CompilerError(f"the C compiler {compiler[0]!r} failed: {problem}")
            built.replace(target)
    except OSError as error:
        raise CompilerError(
            f"{target.parent} cannot hold built code ({error.strerror or error})"
        ) from None


def remove(path: Path) -> None:
    """Remove a file that cannot be used; where that fails it stays."""
    with contextlib.suppress(OSError):
        path.unlink()


def _run(command: list[str]) -> str | None:
    """Run a compiler; return what went wrong, in a line."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {LONGEST:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    return (lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0][:200]
