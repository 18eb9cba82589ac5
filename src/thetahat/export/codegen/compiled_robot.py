"""`robot.compiled()`: dynamics of one sample per call through generated C.

A call with one state of contiguous doubles goes to C; anything else, a batch of samples, a list, a
number that is not finite, goes to the functions of `dynamics.rigid_body`, which check it and have
the words for what is wrong. Without a compiler every call goes there.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import platform
import sys
import sysconfig
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import RobotWarning, UsageError
from thetahat.export.codegen import c_compiler
from thetahat.export.codegen.c_compiler import CompilerError
from thetahat.export.codegen.c_sources import RobotCode
from thetahat.export.codegen.extension_source import extension_source
from thetahat.model.robot import Robot

PREFIX = "robot"  # of the names in C, the same for every robot
MODULE = "thetahat_compiled"
Call = Callable[..., np.ndarray | None]


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True)
class Calls:
    """The functions of an extension; each returns None for what is not for C."""

    inverse_dynamics: Call = _nothing
    gravity: Call = _nothing
    mass_matrix: Call = _nothing
    forward_dynamics: Call = _nothing
    regressor: Call = _nothing

    @staticmethod
    def of(module: ModuleType) -> Calls:
        """Return those that a module has."""
        names = (field.name for field in fields(Calls))
        return Calls(**{name: getattr(module, name, _nothing) for name in names})


@dataclass(frozen=True, eq=False)
class CompiledRobot:
    """A robot's dynamics, in C where it could be built; `note` says why it could not.

    Arguments and results are those of the functions of the same names, drive included.
    """

    robot: Robot
    note: str | None  # None: calls go to C
    calls: Calls
    parameters: np.ndarray  # θ, then the drive's values, as C takes them

    @property
    def native(self) -> bool:
        """Whether calls go to compiled C."""
        return self.note is None

    def inverse_dynamics(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute τ = D q̈ + C q̇ + G + friction + rotors."""
        tau = self.calls.inverse_dynamics(self.parameters, q, dq, ddq, out)
        if tau is None:
            return rigid_body.inverse_dynamics(self.robot, q, dq, ddq, out=out)
        return tau

    def gravity(self, q: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
        """Compute G(q)."""
        tau = self.calls.gravity(self.parameters, q, out)
        return rigid_body.gravity(self.robot, q, out=out) if tau is None else tau

    def mass_matrix(self, q: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
        """Compute D(q), rotors included."""
        D = self.calls.mass_matrix(self.parameters, q, out)
        return rigid_body.mass_matrix(self.robot, q, out=out) if D is None else D

    def forward_dynamics(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, *, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute q̈ from joint torques."""
        ddq = self.calls.forward_dynamics(self.parameters, q, dq, tau, out)
        if ddq is None:
            return rigid_body.forward_dynamics(self.robot, q, dq, tau, out=out)
        return ddq

    def regressor(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute Y with Y·θ = D q̈ + C q̇ + G."""
        Y = self.calls.regressor(q, dq, ddq, out)
        return rigid_body.regressor(self.robot, q, dq, ddq, out=out) if Y is None else Y


def compile_robot(robot: Robot) -> CompiledRobot:
    """Build a robot's C code, or take it from the cache; where that fails, warn in one sentence and
    stay on Numba.
    """
    try:
        code = RobotCode(robot, base=False, name=PREFIX)
        module = _module(code)
    except (CompilerError, UsageError) as error:
        note = f"{error}; robot.compiled() of {robot.name!r} stays on Numba"
        warnings.warn(note, RobotWarning, stacklevel=3)
        return CompiledRobot(robot, note, Calls(), np.empty(0))
    return CompiledRobot(robot, None, Calls.of(module), code.parameters)


def _module(code: RobotCode) -> ModuleType:
    """Load the extension, built before or now; one that does not load is built once more."""
    name = f"{MODULE}_{_key(code)}"
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    path = c_compiler.cache_folder() / f"{name}.so"
    if path.exists():
        try:
            return _load(name, path)
        except (ImportError, OSError):
            c_compiler.remove(path)
    include = sysconfig.get_paths()["include"]
    if not (Path(include) / "Python.h").is_file():
        raise CompilerError(f"the headers of Python are not installed in {include}")
    sources = {
        f"{code.prefix}.h": code.header(),
        f"{code.prefix}.c": code.source(),
        "extension.c": extension_source(name, code),
    }
    c_compiler.build_library(sources, "extension.c", [include, np.get_include()], path)
    try:
        return _load(name, path)
    except (ImportError, OSError) as error:
        raise CompilerError(f"what was built does not load ({error})") from None


def _load(name: str, path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} is no extension")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def _key(code: RobotCode) -> str:
    """Hash of everything the built code depends on: structure, not values of parameters; this
    package's sources; interpreter, NumPy and processor.
    """
    digest = hashlib.sha256(code.structure_hash.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    place = (sys.implementation.cache_tag, np.__version__, platform.machine(), _processor())
    digest.update(repr(place).encode())
    return digest.hexdigest()[:24]


def _processor() -> str:
    """What tells processors with other instructions apart, where the system says it."""
    try:
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        ):
            if line.startswith(("flags", "Features")):
                return line
    except OSError:
        pass
    return platform.processor()
