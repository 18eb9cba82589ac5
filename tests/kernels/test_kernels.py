"""The compiled parts by themselves: sine and cosine, eight lanes at once, where compiled code is
kept, and what the user is told.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mpmath
import numba
import numpy as np
import pytest

import thetahat as th
from oracles import pinocchio_bridge
from oracles.random_trees import random_robot, random_state
from thetahat.dynamics import batch
from thetahat.kernels import jit, kernel_cache, lanes
from thetahat.kernels.lanes import WIDTH
from thetahat.kernels.vectors import sincos
from thetahat.model.tree import JointKind

ULPS = 2.0  # of sine and cosine; 1.9 are seen, the C library's have 0.5
ABSOLUTE = 2.0**-52  # of numbers up to one
GUARD = -12345.678


def lanes_of(values: np.ndarray) -> np.ndarray:
    """Scratch as kernels have it, (rows, 1, 8), 64-byte aligned, filled row by row."""
    out = batch._aligned(-(-len(values) // WIDTH), 1, WIDTH)
    out.reshape(-1)[: len(values)] = values
    return out


# -- sine and cosine -------------------------------------------------------------------------------


@numba.njit
def _sincos(x, s, c):
    for row in range(x.shape[0]):
        sine, cosine = sincos(lanes.load(x, row, 0))
        lanes.store(s, row, 0, sine)
        lanes.store(c, row, 0, cosine)


def sine_and_cosine(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s, c = lanes_of(0.0 * x), lanes_of(0.0 * x)
    _sincos(lanes_of(x), s, c)
    return s.reshape(-1)[: len(x)], c.reshape(-1)[: len(x)]


def near_quarter_turns() -> np.ndarray:
    """The doubles next to multiples of π/2 up to 1e6: there one of the two functions is all
    cancellation.
    """
    quarters = np.unique(
        np.concatenate([np.arange(1, 200), np.random.default_rng(0).integers(1, 636_619, 1_500)])
    )
    with mpmath.workprec(200):
        return np.array([float(int(k) * mpmath.pi / 2) for k in quarters])


def random_angles(low: float, high: float, count: int = 1_500) -> np.ndarray:
    """Of both signs, sizes spread evenly over the decades."""
    rng = np.random.default_rng(1)
    return rng.choice([-1.0, 1.0], count) * 10.0 ** rng.uniform(
        np.log10(low), np.log10(high), count
    )


ANGLES = {
    "within a turn": np.random.default_rng(2).uniform(-2 * np.pi, 2 * np.pi, 2_000),
    "up to 1e6": np.random.default_rng(3).uniform(-1e6, 1e6, 2_000),
    "near quarter turns": near_quarter_turns(),
    "tiny": random_angles(1e-320, 1e-1),
    "at the switch": np.concatenate(
        [np.nextafter(s * 1e6, [0.0, s * np.inf]) for s in (-1, 1)] + [np.array([-1e6, 1e6])]
    ),
    "beyond the switch": random_angles(1e6, 1e22),
    "astronomic": random_angles(1e22, 1e300, 300),
}


@pytest.mark.parametrize("angles", ANGLES.values(), ids=list(ANGLES))
def test_sine_and_cosine_to_two_units_in_the_last_place(angles: np.ndarray) -> None:
    """Against mpmath, with all the digits that the angle needs."""
    with mpmath.workprec(1_200):
        for got, exact in zip(sine_and_cosine(angles), (mpmath.sin, mpmath.cos), strict=True):
            expected = [exact(mpmath.mpf(float(x))) for x in angles]
            error = np.array(
                [abs(float(mpmath.mpf(float(g)) - e)) for g, e in zip(got, expected, strict=True)]
            )
            assert np.all(error <= ULPS * np.array([np.spacing(abs(float(e))) for e in expected]))
            assert np.all(error <= ABSOLUTE)


def test_sine_and_cosine_of_zero_and_mixed_lanes() -> None:
    """One large angle among eight sends all of them through the C library: neighbours may change by
    a rounding, no more.
    """
    s, c = sine_and_cosine(np.array([0.0, -0.0]))
    assert np.array_equal(s, [0.0, 0.0])
    assert np.array_equal(c, [1.0, 1.0])
    x = np.linspace(-3.0, 3.0, WIDTH)
    mixed = x.copy()
    mixed[3] = 1e9
    for plain, beside, exact in zip(
        sine_and_cosine(x), sine_and_cosine(mixed), (np.sin, np.cos), strict=True
    ):
        np.testing.assert_allclose(np.delete(beside, 3), np.delete(plain, 3), rtol=0, atol=ABSOLUTE)
        np.testing.assert_allclose(beside, exact(mixed), rtol=0, atol=ABSOLUTE)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9, 1e15])
def test_joints_may_have_turned_often(size: float) -> None:
    """A continuous joint counts its turns: torques at huge angles are Pinocchio's, as accurate as
    at small ones.
    """
    robot = random_robot(7, nodes=6, kinds=(JointKind.REVOLUTE,), mimic=False)
    q, dq, ddq = random_state(robot, 7, 50)
    q = size * q
    expected = pinocchio_bridge.from_robot(robot).inverse_dynamics(q, dq, ddq)
    np.testing.assert_allclose(
        th.inverse_dynamics(robot, q, dq, ddq),
        expected,
        rtol=0,
        atol=1e-12 * np.max(np.abs(expected)),
    )


# -- lanes -----------------------------------------------------------------------------------------


@numba.njit
def _arithmetic(a, b, out):
    x, y = lanes.load(a, 0, 0), lanes.load(b, 0, 0)
    lanes.store(out, 0, 0, x + y)
    lanes.store(out, 1, 0, x - y)
    lanes.store(out, 2, 0, x * y)
    lanes.store(out, 3, 0, x / y)
    lanes.store(out, 4, 0, -x)
    lanes.store(out, 5, 0, 2.0 - x)
    lanes.store(out, 6, 0, x / 4.0)
    lanes.store(out, 7, 0, lanes.smaller(x, y))
    lanes.store(out, 8, 0, lanes.splat(7.0))


def test_arithmetic_is_lane_by_lane() -> None:
    a, b = np.random.default_rng(4).normal(size=(2, WIDTH))
    out = batch._aligned(9, 1, WIDTH)
    _arithmetic(lanes_of(a), lanes_of(b), out)
    expected = [
        a + b,
        a - b,
        a * b,
        a / b,
        -a,
        2.0 - a,
        a / 4.0,
        np.minimum(a, b),
        np.full(WIDTH, 7.0),
    ]
    assert np.array_equal(out[:, 0], expected)


@numba.njit
def _copy_tile(source, target, first, last, count, column):
    lanes.scatter(target, first, count, column, lanes.gather(source, first, last, column))


@pytest.mark.parametrize("count", range(1, WIDTH + 1))
def test_gather_and_scatter_keep_to_the_tile(count: int) -> None:
    """Lanes past the last sample repeat it when read, and are not written."""
    source = np.random.default_rng(5).normal(
        size=(3 + count, 4)
    )  # ends with the tile: nothing past it may be read into a result
    target = np.full((3 + WIDTH, 4), GUARD)
    _copy_tile(source, target, 3, len(source) - 1, count, 2)
    assert np.array_equal(target[3 : 3 + count, 2], source[3:, 2])
    target[3 : 3 + count, 2] = GUARD
    assert np.all(target == GUARD)


@numba.njit
def _gathered(source, first, last, column, out):
    lanes.store(out, 0, 0, lanes.gather(source, first, last, column))


def test_gather_repeats_the_last_sample() -> None:
    out = batch._aligned(1, 1, WIDTH)
    _gathered(np.arange(10.0).reshape(5, 2), 3, 4, 1, out)
    assert np.array_equal(out[0, 0], [7.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0])


@numba.njit
def _ten(values, rows, count, column, add):
    v = values
    ten = (
        lanes.load(v, 0, 0),
        lanes.load(v, 1, 0),
        lanes.load(v, 2, 0),
        lanes.load(v, 3, 0),
        lanes.load(v, 4, 0),
        lanes.load(v, 5, 0),
        lanes.load(v, 6, 0),
        lanes.load(v, 7, 0),
        lanes.load(v, 8, 0),
        lanes.load(v, 9, 0),
    )
    if add:
        lanes.add_ten(rows, count, column, ten)
    else:
        lanes.store_ten(rows, count, column, ten)


@pytest.mark.parametrize("add", [False, True], ids=["store_ten", "add_ten"])
@pytest.mark.parametrize("count", range(1, WIDTH + 1))
def test_ten_values_become_ten_neighbours_of_every_lane(count: int, add: bool) -> None:
    values = batch._aligned(10, 1, WIDTH)
    values[:, 0] = np.random.default_rng(6).normal(size=(10, WIDTH))
    for column in range(3):  # any alignment
        rows = np.full((WIDTH, 15), GUARD)
        _ten(values, rows, count, column, add)
        expected = np.full_like(rows, GUARD)
        expected[:count, column : column + 10] = values[:, 0, :count].T + (GUARD if add else 0.0)
        assert np.array_equal(rows, expected)


@numba.njit
def _write(target, at, source, streamed):
    lanes.write_eight(target, at, source, 0, 1, streamed)
    lanes.write_sum(target, at + 8, source, 0, 2, 3, streamed)
    lanes.write_zeros(target, at + 16, streamed)
    lanes.fence()


@pytest.mark.parametrize("streamed", [False, True])
def test_whole_lines_are_written_and_nothing_else(streamed: bool) -> None:
    source = np.random.default_rng(7).normal(size=(2, 16))
    for at in (8, 16) if streamed else range(8, 17):  # streamed writes want whole cache lines
        target = batch._aligned(48)
        target[:] = GUARD
        _write(target, at, source, streamed)
        expected = np.full(48, GUARD)
        expected[at : at + 8], expected[at + 8 : at + 16], expected[at + 16 : at + 24] = (
            source[0, 1:9],
            source[0, 2:10] + source[1, 3:11],
            0.0,
        )
        assert np.array_equal(target, expected)


@numba.njit
def _to_line(array):
    return lanes.doubles_to_line(array)


def test_distance_to_the_next_cache_line() -> None:
    memory = batch._aligned(32)
    assert [_to_line(memory[k:]) for k in range(17)] == [(-k) % 8 for k in range(17)]


def test_scratch_begins_at_a_cache_line() -> None:
    assert all(batch._aligned(n, 1, WIDTH).ctypes.data % 64 == 0 for n in range(1, 40))


# -- where compiled code is kept -------------------------------------------------------------------


def test_the_cache_is_keyed_by_every_kernel(tmp_path: Path, monkeypatch) -> None:
    """Numba does not notice an edit in a file that a kernel calls into; a hash of all of
    them does.
    """
    home = Path(jit.__file__).parent
    shutil.copytree(home, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    original = kernel_cache.source_digest()
    monkeypatch.setattr(kernel_cache, "__file__", str(tmp_path / "kernels" / "jit.py"))
    assert kernel_cache.source_digest() == original
    seen = {original}
    files = sorted((tmp_path / "kernels").glob("*.py"))
    assert len(files) >= 8
    for path in files:
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "\n", encoding="utf-8")
        seen.add(kernel_cache.source_digest())
        path.write_text(text, encoding="utf-8")
    (tmp_path / "kernels" / "more.py").write_text("", encoding="utf-8")
    seen.add(kernel_cache.source_digest())
    assert len(seen) == len(files) + 2, "each edit must give another folder"


def test_the_cache_goes_where_it_can_be_written(tmp_path: Path, monkeypatch) -> None:
    """NUMBA_CACHE_DIR, else the user's cache, else the machine's temporary folder, else nowhere;
    never an error.
    """
    blocked, user, machine = tmp_path / "file", tmp_path / "user", tmp_path / "machine"
    blocked.write_text("", encoding="utf-8")
    user.mkdir()
    machine.mkdir()
    name = f"thetahat-kernels-{kernel_cache.source_digest()}"

    def chosen(numba_folder: Path, user_folder: Path, machine_folder: Path) -> str:
        monkeypatch.setattr(jit.config, "CACHE_DIR", str(numba_folder))
        monkeypatch.setenv("XDG_CACHE_HOME", str(user_folder))
        monkeypatch.setattr(jit.tempfile, "gettempdir", lambda: str(machine_folder))
        return jit._cache_folder()

    assert chosen(tmp_path / "own", user, machine) == str(tmp_path / "own" / name)
    assert chosen(blocked / "own", user, machine) == str(user / name)
    assert chosen(blocked / "own", blocked / "user", machine) == str(machine / name)
    assert chosen(blocked / "own", blocked / "user", blocked / "machine") == ""


def start(cache: Path, package: Path, **environment: str) -> subprocess.Popen[str]:
    """A fresh process that needs one cheap kernel of a package, with a place for compiled code. It
    prints how often it compiled it.
    """
    script = (
        "import sys, numpy as np, thetahat\n"
        "assert 'numba' not in sys.modules, 'Numba is loaded lazily'\n"
        "from oracles.random_trees import random_robot\n"
        "robot = random_robot(0, nodes=2)\n"
        "from thetahat.dynamics.rigid_body import body_frames\n"
        "frames = body_frames(robot, robot.neutral)[1].shape\n"
        "from thetahat.kernels.kinematics import place\n"
        "print(frames, sum(place.stats.cache_misses.values()))\n"
    )
    path = os.pathsep.join([str(package.parent), str(Path(__file__).parents[1])])
    inherited = {key: value for key, value in os.environ.items() if key != "THETAHAT_QUIET"}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**inherited, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process printed, and what it said on standard error."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out, err


def test_a_user_who_waits_for_the_compiler_is_told_so_once(tmp_path: Path) -> None:
    """On standard error, and not when the code is there already: the same sources in another
    folder, with other times, need no compilation.
    """
    here, moved = Path(th.__file__).parent, tmp_path / "elsewhere" / "thetahat"
    out, err = ended(start(tmp_path / "a", here))
    assert err.count("compiling its kernels") == 1
    assert err.count("\n") == 1
    assert [folder.name for folder in (tmp_path / "a").iterdir()] == [
        f"thetahat-kernels-{kernel_cache.source_digest()}"
    ]
    shutil.copytree(
        here,
        moved,
        copy_function=shutil.copyfile,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    again, err = ended(start(tmp_path / "a", moved))
    assert err == ""
    assert out.split()[:2] == again.split()[:2]
    assert (out.split()[-1], again.split()[-1]) == ("1", "0")


def test_processes_that_start_together_compile_a_kernel_once(tmp_path: Path) -> None:
    """And a process that is told to be quiet says nothing."""
    here = Path(th.__file__).parent
    both = [start(tmp_path, here, THETAHAT_QUIET="1") for _ in range(2)]
    (out, err), (other_out, other_err) = [ended(process) for process in both]
    assert err == other_err == ""
    assert int(out.split()[-1]) + int(other_out.split()[-1]) == 1


def test_a_kernel_that_another_process_compiles_for_too_long_is_compiled(
    tmp_path: Path, monkeypatch
) -> None:
    """No wait is without a limit."""
    monkeypatch.setattr(kernel_cache, "LONGEST_WAIT", 0.1)
    lock = tmp_path / "kernel.lock"
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with kernel_cache._locked(lock):
            pass
