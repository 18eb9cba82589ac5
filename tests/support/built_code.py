"""Generated C, built by a compiler and called from Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from thetahat.export.codegen.c_sources import RobotCode
from thetahat.export.codegen.code_files import code_files

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O3")
COMPILERS = [
    pytest.param(
        name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is missing")
    )
    for name in ("gcc", "clang")
]
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing")


def write(code: RobotCode, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in code_files(code).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run(*command: object, cwd: Path | None = None) -> str:
    """Run a command, which must succeed; its output."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


class Library:
    """A robot's functions, each on many states."""

    def __init__(self, code: RobotCode, folder: Path, optimize: str = "-O3") -> None:
        write(code, folder)
        self.code, self.robot = code, code.robot
        self.file = folder / "library.so"
        source = folder / f"{code.prefix}.c"
        run("gcc", *STRICT, optimize, "-shared", "-fPIC", source, "-o", self.file, "-lm")
        self.library = ctypes.CDLL(str(self.file))
        self.real = np.float32 if code.single else np.float64
        self.parameters = np.ascontiguousarray(code.parameters, dtype=self.real)

    def __call__(self, name: str, *states: np.ndarray) -> np.ndarray:
        """(samples, …) results of a function, its matrices flat."""
        nv = self.robot.nv
        widths = {"mass_matrix": nv, "regressor": len(self.robot.theta)}
        if self.code.base:
            widths["base_regressor"] = len(self.robot.base_parameters.strong)
        function = getattr(self.library, f"{self.code.prefix}_{name}")
        given = [np.ascontiguousarray(s, dtype=self.real) for s in states]
        out = np.full((len(given[0]), nv * widths.get(name, 1)), np.nan, dtype=self.real)
        for k, row in enumerate(out):
            if name in widths:
                getattr(self.library, f"{self.code.prefix}_{name}_init")(_pointer(row))
            arrays = [a[k] for a in given] + [row]
            if name != "regressor":
                arrays.insert(0, self.parameters)
            status = function(*(_pointer(a) for a in arrays))
            assert name != "forward_dynamics" or status == 0
        return out.reshape(len(out), nv, -1) if name in widths else out


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
