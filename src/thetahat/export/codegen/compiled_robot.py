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
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class CompiledRobot:
    """A robot's dynamics, in C where it could be built: `native` says so, `note` why not.

    Parameters and arrays are those of the functions of the same names, drive included. Arrays that
    a function returns are the caller's own.
    """

    robot: Robot
    note: str | None
    _module: ModuleType | None
    _parameters: np.ndarray

    @property
    def native(self) -> bool:
        """Whether calls go to compiled C."""
        return self._module is not None

    def _call(self, name: str) -> Call:
        return getattr(self._module, name, _nothing)

    def __post_init__(self) -> None:
        for name in ("inverse_dynamics", "gravity", "mass_matrix", "regressor", "forward_dynamics"):
            object.__setattr__(self, f"_{name}", self._call(name))

    def inverse_dynamics(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute τ = D q̈ + C q̇ + G + friction + rotors."""
        tau = self._inverse_dynamics(self._parameters, q, dq, ddq, out)
        if tau is None:
            return rigid_body.inverse_dynamics(self.robot, q, dq, ddq, out=out)
        return tau

    def gravity(self, q: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
        """Compute G(q)."""
        tau = self._gravity(self._parameters, q, out)
        return rigid_body.gravity(self.robot, q, out=out) if tau is None else tau

    def mass_matrix(self, q: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
        """Compute D(q), rotors included."""
        D = self._mass_matrix(self._parameters, q, out)
        return rigid_body.mass_matrix(self.robot, q, out=out) if D is None else D

    def forward_dynamics(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, *, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute q̈ from joint torques."""
        ddq = self._forward_dynamics(self._parameters, q, dq, tau, out)
        if ddq is None:
            return rigid_body.forward_dynamics(self.robot, q, dq, tau, out=out)
        return ddq

    def regressor(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute Y with Y·θ = D q̈ + C q̇ + G."""
        Y = self._regressor(q, dq, ddq, out)
        return rigid_body.regressor(self.robot, q, dq, ddq, out=out) if Y is None else Y


def _nothing(*_: object) -> None:
    return None


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
        return CompiledRobot(robot, note, None, np.empty(0))
    return CompiledRobot(robot, None, module, np.ascontiguousarray(code.parameters))


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
        for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    except OSError:
        pass
    return platform.processor()
