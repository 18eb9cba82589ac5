"""Logs in many files for tests of shards, workers and the store: an arm's motion with friction, in
every shape a log comes in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import polars
from simulated_log import motion

import thetahat as th
from thetahat import robots
from thetahat.data.prepare import Settings, choose
from thetahat.engine.multi_log import MultiLog
from thetahat.engine.reduce import Reduction, ShardReducer
from thetahat.engine.shard_work import Fold, FoldResult, Preparation
from thetahat.identification.information import Information
from thetahat.model.robot import Robot

# of the estimate, column by column in proportion to what the column contributes to the torque
SAME = 1e-10


@cache
def arm(name: str = "arm4") -> Robot:
    return th.load(robots.path(name))


def fitted(robot: Robot) -> Robot:
    return robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)


def columns(
    seed: int = 0,
    *,
    robot: Robot | None = None,
    seconds: float = 20.0,
    rate: float = 200.0,
    start: float = 0.0,
) -> dict[str, np.ndarray]:
    """Named columns of a log: measured positions, velocities and torques, with noise."""
    robot = robot or arm()
    t, q, dq, ddq = motion(robot.nv, seconds=seconds, rate=rate, seed=seed)
    rng = np.random.default_rng(100 + seed)
    size = np.arange(1, robot.nv + 1)
    tau = th.inverse_dynamics(robot, q, dq, ddq, rigid=True) + size * (
        0.7 * dq + 1.3 * np.sign(dq) + 0.4
    )
    tau += rng.normal(0.0, 0.05, tau.shape)
    q, dq = q + rng.normal(0.0, 1e-5, q.shape), dq + rng.normal(0.0, 1e-3, q.shape)
    out = {"t": start + t}
    for kind, array in (("q", q), ("dq", dq), ("tau", tau)):
        out |= {f"{kind}.{joint}": array[:, j] for j, joint in enumerate(robot.joint_names)}
    return out


def write(path: Path, table: dict[str, np.ndarray], *, group: int = 1_500) -> Path:
    """A log file by its ending; Parquet in small row groups, so that shards and groups do not fall
    together.
    """
    if path.suffix == ".parquet":
        polars.DataFrame(table).write_parquet(path, row_group_size=group)
    elif path.suffix == ".csv":
        polars.DataFrame(table).write_csv(path)
    else:
        np.savez(path, **table)
    return path


def folder_of(path: Path, count: int, *, ending: str = ".parquet", **options: float) -> Path:
    """A folder of logs, each of another motion."""
    path.mkdir(exist_ok=True)
    for k in range(count):
        write(path / f"run{k:03d}{ending}", columns(k, **options))
    return path


# -- every shape -----------------------------------------------------------------------------------


def quicker(table: dict[str, np.ndarray], times: float) -> dict[str, np.ndarray]:
    """The same way in less time; torques as they were."""
    speeds = {name: times * array for name, array in table.items() if name.startswith("dq.")}
    return table | {"t": table["t"] / times} | speeds


def jittered(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    period = table["t"][1] - table["t"][0]
    return table | {"t": table["t"] + rng.uniform(-0.3, 0.3, len(table["t"])) * period}


def drifting(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A clock that runs a third slower at first and a third faster then."""
    t = table["t"] - table["t"][0]
    return table | {"t": table["t"][0] + t + 0.3 * t[-1] / np.pi * np.sin(np.pi * t / t[-1])}


def gaps(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows missing: a run of three rows, one of six, and gaps elsewhere."""
    n = len(table["t"])
    keep = np.ones(n, dtype=bool)
    for first, stop in ((700, 740), (743, 800), (806, 850), (2_500, 2_530), (n - 400, n - 360)):
        keep[first:stop] = False
    return {name: array[keep] for name, array in table.items()}


def wrapped(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An encoder that wraps where the joint often passes."""
    name = next(name for name in table if name.startswith("q."))
    return table | {name: (table[name] + 0.3) % (2.0 * np.pi) - 0.3}


def spoiled(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A torque that saturates, one that dies for a while, spikes, and a standstill."""
    taus = [name for name in table if name.startswith("tau.")]
    out = {name: array.copy() for name, array in table.items()}
    limit = np.quantile(out[taus[0]], 0.97)
    out[taus[0]] = np.minimum(out[taus[0]], limit)
    out[taus[1]][1_400:1_900] = 1.25
    rng = np.random.default_rng(3)
    out[taus[2]][rng.choice(len(out["t"]), 40, replace=False)] += 500.0
    return out


def bursts(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Two measurements in one packet, every fiftieth time."""
    t = table["t"].copy()
    period = t[1] - t[0]
    t[50::50] = t[49:-1:50] + 0.05 * period
    return table | {"t": t}


def noisy_velocity(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A velocity that does not follow its position, so that it is differentiated."""
    name = [name for name in table if name.startswith("dq.")][1]
    noise = np.random.default_rng(5).normal(size=len(table["t"]))
    return table | {name: table[name].std() * noise}


SHAPES: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "even": lambda table: table,
    "jitter": jittered,
    "drift": drifting,
    "gaps": gaps,
    "wraps": wrapped,
    "spoiled": spoiled,
    "bursts": bursts,
    "noisy dq": noisy_velocity,
    "epoch": lambda table: jittered(table | {"t": table["t"] + 1.7e9}),
}


# -- both ways -------------------------------------------------------------------------------------


def one_pass(
    robot: Robot,
    paths: object,
    *,
    fitted: Robot,
    settings: Settings | None = None,
    span: tuple[int, int] | None = None,
) -> Information:
    """What `read_log`, `prepare` and `information` make of the logs, in one pass and all in
    memory.
    """
    from thetahat.data.log import read_log
    from thetahat.identification.information import information

    log = read_log(paths, robot)
    settings = settings or choose(log, robot, span=span)
    return information(fitted, th.prepare(log, robot, settings=settings, span=span))


def gathered(
    reducer: ShardReducer,
    paths: object,
    robot: Robot,
    fit: Robot,
    span: tuple[int, int] | None = None,
) -> tuple[Information, Reduction[FoldResult], MultiLog]:
    """The same through shards."""
    files = reducer.scan(paths, robot)
    settings = reducer.choose(files, span=span)
    found, told = reducer.fold(
        files, Fold(Preparation(robot, settings, files.log.locked), fit), span
    )
    return found, told, files


def differ(a: Information, b: Information) -> float:
    """The largest difference of two estimates: of each base parameter, times its column, relative
    to the torque.
    """
    from thetahat.identification.estimators.least_squares import LeastSquares

    x, y = (LeastSquares().estimate(each).x_base for each in (a, b))
    stacked = a.stacked()
    sizes = np.linalg.norm(stacked[:, :-1], axis=0)
    return float(np.max(sizes * np.abs(x - y)) / np.linalg.norm(stacked[:, -1]))


def spoil(folder: Path, how: str) -> tuple[str, str, int]:
    """(name of a bad file added to the folder, what is said of it, exit code)."""
    table = columns(9)
    if how == "cut":
        path = write(folder / "bad.parquet", table)
        path.write_bytes(path.read_bytes()[:-200])
        return path.name, "footer", 3
    if how == "damaged":
        path = write(folder / "bad.parquet", table)
        data = bytearray(path.read_bytes())
        data[400:4000] = b"\xff" * 3600
        path.write_bytes(bytes(data))
        return path.name, "cannot be read as Parquet", 3
    if how == "names":
        write(
            folder / "bad.parquet",
            {name.replace("elbow", "ellbow"): array for name, array in table.items()},
        )
        return "bad.parquet", "joint names differ", 3
    if how == "columns":
        write(
            folder / "bad.parquet",
            {name: array for name, array in table.items() if not name.startswith("dq.")},
        )
        return "bad.parquet", "different columns", 3
    if how == "degrees":
        write(
            folder / "bad.parquet",
            {
                name: array * 57.29578 if name.startswith(("q.", "dq.")) else array
                for name, array in table.items()
            },
        )
        return "bad.parquet", "degrees", 3
    if how == "text":
        (folder / "bad.csv").write_text("t,q1\n0,1\n1,one\n")
        return "bad.csv", "one", 3
    write(
        folder / "bad.npz",
        {"t": np.zeros(0)} | {name: np.zeros(0) for name in table if name != "t"},
    )
    return "bad.npz", "no rows", 5
