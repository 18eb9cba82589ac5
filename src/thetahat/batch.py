"""What every batched call shares: checking arguments once, scratch memory, and threads.

One sample or many: ``(n,)`` or ``(samples, n)``; results gain the same leading axis.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import numpy as np

from thetahat.errors import UsageError
from thetahat.model.robot import Robot
from thetahat.model.tree import Tree

WIDTH = 8  # samples in a tile
SAMPLES_PER_THREAD = 64  # fewer are not worth waking another thread
QUATERNION_TOLERANCE = 1e-3  # of its length; kernels turn by the direction of the quaternion, whatever its length


@cache
def kernels() -> SimpleNamespace:
    """The compiled kernels; Numba is imported at the first call, not with the package."""
    from thetahat.kernels import aba, crba, energy, kinematics, regressor, rnea

    return SimpleNamespace(aba=aba, crba=crba, energy=energy, kinematics=kinematics, regressor=regressor, rnea=rnea)


# -- arguments --------------------------------------------------------------------------------------------------------


def check_array(name: str, value: np.ndarray, width: int, what: str) -> np.ndarray:
    """`value` as contiguous doubles of shape (width,) or (samples, width), all finite."""
    array = np.ascontiguousarray(value, dtype=np.float64)
    if array.ndim not in (1, 2) or array.shape[-1] != width:
        raise UsageError(f"{name} has shape {np.shape(value)}; expected ({width},) or (samples, {width}), {what}")
    flat = array.reshape(-1)
    if not math.isfinite(flat.dot(flat)) and not np.all(np.isfinite(flat)):
        where = np.argwhere(~np.isfinite(array))[0]
        raise UsageError(f"{name}[{', '.join(map(str, where))}] is {array[tuple(where)]}; every entry must be a finite number")
    return array


def check_state(robot: Robot, *, q: np.ndarray, **rates: np.ndarray) -> list[np.ndarray]:
    """q and any of dq, ddq, tau, as contiguous arrays of one common shape (samples, ·) or (·,)."""
    tree = robot.tree
    arrays = [check_array("q", q, tree.nq, f"one number per coordinate of {robot.name!r}")]
    arrays += [check_array(name, value, tree.nv, f"one number per degree of freedom of {robot.name!r}") for name, value in rates.items()]
    shape = arrays[0].shape[:-1]
    for name, array in zip(rates, arrays[1:], strict=True):
        if array.shape[:-1] != shape:
            raise UsageError(f"q has shape {arrays[0].shape} but {name} has {array.shape}; give the same number of samples")
    if tree.quaternions:
        _check_quaternions(tree, arrays[0])
    return arrays


def _check_quaternions(tree: Tree, q: np.ndarray) -> None:
    for name, at in tree.quaternions:
        length = np.atleast_1d(np.linalg.norm(q[..., at : at + 4], axis=-1))
        bad = np.abs(length - 1.0) > QUATERNION_TOLERANCE
        if np.any(bad):
            sample = int(np.argmax(bad))
            raise UsageError(
                f"the quaternion of joint {name!r} in q has length {length[sample]:.4g} at sample {sample}; "
                f"give a unit quaternion (qx, qy, qz, qw) at positions {at} to {at + 3}"
            )


def result(out: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """The array to fill: `out`, checked, or a new one."""
    if out is None:
        return np.empty(shape)
    if not isinstance(out, np.ndarray) or out.dtype != np.float64 or out.shape != shape:
        found = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise UsageError(f"out is {found}; expected float64 of shape {shape}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise UsageError("out must be a writeable, C-contiguous array, as np.empty makes it")
    return out


def rows(array: np.ndarray) -> np.ndarray:
    """(n,) → (1, n); (samples, n) as it is."""
    return array if array.ndim == 2 else array.reshape(1, -1)


# -- scratch ----------------------------------------------------------------------------------------------------------


def _aligned(*shape: int) -> np.ndarray:
    """Zeros that begin at a multiple of 64 bytes, as vector loads want them."""
    size = math.prod(shape)
    memory = np.zeros(size + WIDTH)
    start = (-memory.ctypes.data // 8) % WIDTH
    return memory[start : start + size].reshape(shape)


class Workspace:
    """Scratch memory of one thread for one tree, each part made when a kernel first wants it."""

    def __init__(self, tree: Tree) -> None:
        self._nodes, self._dofs, self._nv = len(tree.nodes), len(tree.arrays.dofs), tree.nv
        self._tree = tree
        k = kernels()
        self.nodes = _aligned(self._nodes + 1, k.kinematics.NODE_SIZE, WIDTH)
        self.directions = _aligned(max(self._dofs, 1), k.kinematics.DOF_SIZE, WIDTH)

    def __getattr__(self, name: str) -> np.ndarray:
        k = kernels()
        shapes = {
            "rows": (WIDTH, self._tree.scratch_size),
            "forces": (self._nodes + 1, k.rnea.WRENCH_SIZE, WIDTH),
            "torques": (self._nv, 1, WIDTH),
            "composite": (self._nodes + 1, k.crba.COMPOSITE_SIZE, WIDTH),
            "table": (max(self._dofs, 1), k.crba.SCREW_SIZE, WIDTH),
            "matrix": (self._nv * max(self._nv, 6), 1, WIDTH),
            "articulated": (self._nodes + 1, k.aba.ARTICULATED_SIZE, WIDTH),
            "elimination": (max(self._dofs, 1), k.aba.ELIMINATION_SIZE, WIDTH),
        }
        if name not in shapes:
            raise AttributeError(name)
        array = _aligned(*shapes[name])
        setattr(self, name, array)
        return array


_spare: WeakKeyDictionary[Tree, list[Workspace]] = WeakKeyDictionary()


# -- threads ----------------------------------------------------------------------------------------------------------


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="thetahat")


def thread_count(threads: int | None, samples: int) -> int:
    """How many threads to use: at most `threads`, at most the cores there are, none without enough samples."""
    if threads is not None and (not isinstance(threads, int | np.integer) or threads < 1):
        raise UsageError(f"threads is {threads!r}; give a whole number from 1, or None for all cores")
    cores = (os.cpu_count() or 1) if threads is None else threads
    return max(1, min(cores, samples // SAMPLES_PER_THREAD))


def run(tree: Tree, samples: int, threads: int | None, call: Callable[[Workspace, slice], None]) -> None:
    """Call `call(workspace, slice of samples)` for parts that together make all samples, on so many threads."""
    count = 1 if samples < 2 * SAMPLES_PER_THREAD else thread_count(threads, samples)
    if count == 1:
        if threads is not None:
            thread_count(threads, samples)
        _one(tree, call, slice(0, samples))
        return
    step = -(-samples // (count * WIDTH)) * WIDTH
    parts = [slice(start, min(start + step, samples)) for start in range(0, samples, step)]
    futures = [_pool().submit(_one, tree, call, part) for part in parts[1:]]
    _one(tree, call, parts[0])
    for future in futures:
        future.result()


def _one(tree: Tree, call: Callable[[Workspace, slice], None], part: slice) -> None:
    spare = _spare.get(tree)
    if spare is None:
        spare = _spare.setdefault(tree, [])
    try:
        workspace = spare.pop()
    except IndexError:
        workspace = Workspace(tree)
    call(workspace, part)
    spare.append(workspace)
