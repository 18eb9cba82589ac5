"""Argument checks, scratch memory and threads of batched calls.

One sample or many: ``(n,)`` or ``(samples, n)``; results gain the same leading axis.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace

import numpy as np

from thetahat.errors import UsageError
from thetahat.model.robot import Robot
from thetahat.model.tree import Tree

WIDTH = 8  # samples in a tile
CORES = os.cpu_count() or 1  # asked once: the answer takes 10 µs
LONGEST_WAIT = 3600.0  # [s] for another thread's part of a batch
WORK_PER_THREAD = 100.0  # [µs]; less is not worth waking another thread for
_DOUBLE = np.dtype(np.float64)
# of its length; kernels turn by the direction of the quaternion, whatever its length
QUATERNION_TOLERANCE = 1e-3


@cache
def kernels() -> SimpleNamespace:
    """Import the compiled kernels, and Numba with them, on the first call."""
    from thetahat.kernels import (
        aba,
        computed_torque,
        crba,
        drive_sensitivity,
        drive_simulation,
        fold,
        frames,
        kinematics,
        momentum,
        pendulum_simulation,
        plant_steps,
        regressor,
        rnea,
        row_mixing,
        sample_check,
        slotine_li,
        torque_rollout,
    )

    return SimpleNamespace(
        aba=aba,
        computed_torque=computed_torque,
        crba=crba,
        drive_sensitivity=drive_sensitivity,
        drive_simulation=drive_simulation,
        fold=fold,
        frames=frames,
        kinematics=kinematics,
        momentum=momentum,
        pendulum_simulation=pendulum_simulation,
        plant_steps=plant_steps,
        regressor=regressor,
        rnea=rnea,
        row_mixing=row_mixing,
        sample_check=sample_check,
        slotine_li=slotine_li,
        torque_rollout=torque_rollout,
    )


# -- arguments -------------------------------------------------------------------------------------


def _usable(value: np.ndarray, width: int) -> np.ndarray | None:
    """`value` as doubles of shape (width,) or (samples, width), or None where it is not that or not
    finite.

    Contiguous, aligned and writeable, copied if need be: Numba would compile a kernel anew for any
    other kind of array.
    """
    if type(value) is not np.ndarray or value.dtype is not _DOUBLE or not value.flags.carray:
        if np.iscomplexobj(value):
            raise TypeError
        value = np.array(value, dtype=np.float64, order="C")
    if value.ndim == 1:
        # the quickest test there is of a few numbers
        if value.shape[0] == width and math.isfinite(sum(value.tolist())):
            return value
    elif value.ndim == 2 and value.shape[1] == width and np.isfinite(value).all():
        # Not by a dot product: on many numbers it wakes BLAS's threads, which then spin on the
        # cores the kernels want.
        return value
    return None


def check_array(name: str, value: np.ndarray, width: int, what: str) -> np.ndarray:
    """Return `value` as contiguous doubles of shape (width,) or (samples, width), all finite."""
    try:
        array = _usable(value, width)
    except (TypeError, ValueError):
        raise UsageError(
            f"{name} is not an array of real numbers; expected ({width},) or (samples, {width}),"
            f" {what}"
        ) from None
    if array is not None:
        return array
    array = np.array(value, dtype=np.float64, order="C")
    if np.ndim(value) not in (1, 2) or array.shape[-1] != width:
        raise UsageError(
            f"{name} has shape {np.shape(value)}; expected ({width},) or (samples, {width}), {what}"
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise UsageError(
            f"{name}[{', '.join(map(str, bad[0]))}] is {array[tuple(bad[0])]}; every entry must be"
            " a finite number"
        )
    return array  # finite, though its sum is not


_RATES = ("dq", "ddq")


def check_state(
    robot: Robot, q: np.ndarray, *rates: np.ndarray, names: tuple[str, ...] = _RATES
) -> list[np.ndarray]:
    """Return q and any of dq, ddq, tau (`names` says which) as contiguous arrays of one common
    shape (samples, ·) or (·,).
    """
    tree = robot.tree
    arrays = _all_usable(tree, q, *rates)
    if arrays is None:  # say what is wrong
        arrays = [check_array("q", q, tree.nq, f"one number per coordinate of {robot.name!r}")]
        for name, rate in zip(names, rates, strict=False):
            array = check_array(
                name, rate, tree.nv, f"one number per degree of freedom of {robot.name!r}"
            )
            if array.shape[:-1] != arrays[0].shape[:-1]:
                raise UsageError(
                    f"q has shape {arrays[0].shape} but {name} has {array.shape}; give the same"
                    " number of samples"
                )
            arrays.append(array)
    if tree.quaternions:
        _check_quaternions(tree, arrays[0])
    return arrays


def _all_usable(tree: Tree, q: np.ndarray, *rates: np.ndarray) -> list[np.ndarray] | None:
    """q and rates as `_usable` makes them, or None where one is not or their samples differ."""
    arrays: list[np.ndarray] = []
    width = tree.nq
    for value in (q, *rates):
        try:
            array = _usable(value, width)
        except (TypeError, ValueError):
            return None
        if array is None or (arrays and array.shape[:-1] != arrays[0].shape[:-1]):
            return None
        arrays.append(array)
        width = tree.nv
    return arrays


def one_sample(tree: Tree, q: np.ndarray, *rates: np.ndarray) -> list[np.ndarray] | None:
    """Return one sample's arrays as rows, (1, n) each, or None where `check_state` has to convert
    them.

    What a control loop hands in a thousand times a second should not wait for checks that batches
    can afford.
    """
    if tree.quaternions:
        return None
    out, width = [], tree.nq
    for value in (q, *rates):
        if (
            type(value) is not np.ndarray
            or value.dtype is not _DOUBLE
            or value.ndim != 1
            or len(value) != width
        ):
            return None
        if not value.flags.carray or not math.isfinite(sum(value.tolist())):
            return None
        out.append(value[None])
        width = tree.nv
    return out


def _check_quaternions(tree: Tree, q: np.ndarray) -> None:
    for name, at in tree.quaternions:
        length = np.atleast_1d(np.linalg.norm(q[..., at : at + 4], axis=-1))
        bad = np.abs(length - 1.0) > QUATERNION_TOLERANCE
        if np.any(bad):
            sample = int(np.argmax(bad))
            raise UsageError(
                f"the quaternion of joint {name!r} in q has length {length[sample]:.4g} at sample"
                f" {sample}; give a unit quaternion (qx, qy, qz, qw) at positions {at} to {at + 3}"
            )


def require_movable(robot: Robot, so: str) -> None:
    """Refuse what is no robot, and a robot that cannot move. so: what follows from that."""
    if not isinstance(robot, Robot):
        raise UsageError(
            f"robot is {type(robot).__name__}; give a Robot, as thetahat.load returns it"
        )
    if not robot.nv:
        raise UsageError(f"robot {robot.name!r} has no movable joint, so {so}")


def result(out: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array to fill: `out`, checked, or a new one."""
    if out is None:
        return np.empty(shape)
    # `==` too: a dtype that was pickled is another object
    if (
        not isinstance(out, np.ndarray)
        or not (out.dtype is _DOUBLE or out.dtype == _DOUBLE)
        or out.shape != shape
    ):
        given = type(out).__name__
        if isinstance(out, np.ndarray):
            given = f"{out.dtype} of shape {out.shape}"
        raise UsageError(f"out is {given}; expected float64 of shape {shape}")
    if not out.flags.carray:
        raise UsageError(
            "out is not a writeable, aligned, C-contiguous array; hand one in as np.empty makes it"
        )
    return out


def rows(array: np.ndarray) -> np.ndarray:
    """Return (n,) as (1, n), and (samples, n) as it is."""
    return array if array.ndim == 2 else array[None]


# -- scratch ---------------------------------------------------------------------------------------


def _aligned(*shape: int) -> np.ndarray:
    """Zeros that begin at a multiple of 64 bytes, as vector loads want them."""
    size = math.prod(shape)
    memory = np.zeros(size + WIDTH)
    start = (-memory.ctypes.data // 8) % WIDTH
    return memory[start : start + size].reshape(shape)


class Workspace:
    """Scratch memory of one thread for one tree; each part is allocated on first use."""

    def __init__(self, tree: Tree) -> None:
        self._nodes, self._dofs, self._nv = len(tree.nodes), len(tree.arrays.dofs), tree.nv
        self._tree = tree
        k = kernels()
        self.nodes = _aligned(self._nodes + 1, k.kinematics.NODE_SIZE, WIDTH)
        self.directions = _aligned(max(self._dofs, 1), k.kinematics.DOF_SIZE, WIDTH)

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_"):
            raise AttributeError(name)
        k = kernels()
        shapes = {
            "rows": (WIDTH, self._tree.scratch_size),
            "forces": (self._nodes + 1, k.rnea.WRENCH_SIZE, WIDTH),
            "torques": (self._nv, 1, WIDTH),
            "composite": (self._nodes + 1, k.crba.COMPOSITE_SIZE, WIDTH),
            "table": (max(self._dofs, 1), k.aba.SCREW_SIZE, WIDTH),
            "matrix": (self._nv * max(self._nv, 6), 1, WIDTH),
            "articulated": (self._nodes + 1, k.aba.ARTICULATED_SIZE, WIDTH),
            "elimination": (max(self._dofs, 1), k.aba.ELIMINATION_SIZE, WIDTH),
        }
        if name not in shapes:
            raise AttributeError(name)
        array = _aligned(*shapes[name])
        setattr(self, name, array)
        return array


# -- threads ---------------------------------------------------------------------------------------


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=CORES, thread_name_prefix="thetahat")


def thread_count(threads: int | None, work: float) -> int:
    """Return how many threads this work [µs] is worth: at most `threads`, at most the cores."""
    if threads is None:
        threads = CORES
    elif not isinstance(threads, int | np.integer) or threads < 1:
        raise UsageError(
            f"threads is {threads!r}; give a whole number from 1, or None for all cores"
        )
    return max(1, min(int(threads), int(work / WORK_PER_THREAD)))


def run(
    robot: Robot, threads: int | None, cost: float, call: Callable[..., None], *arrays: np.ndarray
) -> None:
    """Call `call(workspace, *arrays)` on several threads, each with its part of the rows.

    cost: rough time of one row [µs], which decides whether another thread is worth waking.
    """
    samples = len(arrays[0])
    count = (
        1
        if threads is None and samples * cost < 2.0 * WORK_PER_THREAD
        else thread_count(threads, samples * cost)
    )
    if count == 1:
        if samples:
            _one(robot.tree.spare_workspaces, robot.tree, call, arrays)
        return
    step = -(-samples // (count * WIDTH)) * WIDTH
    parts = [[array[start : start + step] for array in arrays] for start in range(0, samples, step)]
    futures = [
        _pool().submit(_one, robot.tree.spare_workspaces, robot.tree, call, part)
        for part in parts[1:]
    ]
    _one(robot.tree.spare_workspaces, robot.tree, call, parts[0])
    for future in futures:
        future.result(timeout=LONGEST_WAIT)


def _one(
    spare: list[Workspace], tree: Tree, call: Callable[..., None], arrays: Sequence[np.ndarray]
) -> None:
    try:
        workspace = spare.pop()
    except IndexError:  # the first call, or more threads than before
        workspace = Workspace(tree)
    call(workspace, *arrays)
    spare.append(workspace)
