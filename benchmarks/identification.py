"""From arrays to a pseudo-inverse estimate with R² per joint, beside a Pinocchio loop and NumPy's
least squares: time and memory.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.robots import EXAMPLES, Pair, example_folder, pair
from thetahat.data.samples import Samples
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import information
from thetahat.identification.solve import solve

SAMPLES = 50_000
REPEATS = 3


def peer(p: Pair, tau: np.ndarray) -> np.ndarray:
    """Stack the regressor with friction columns sample by sample, solve, and score each joint."""
    import pinocchio

    q, dq, ddq = p.peer_states
    n, columns = p.model.nv, 10 * (p.model.njoints - 1)
    Y = np.zeros((len(q), n, columns + 3 * n))
    joints = np.arange(n)
    for k in range(len(q)):
        Y[k, :, :columns] = pinocchio.computeJointTorqueRegressor(
            p.model, p.data, q[k], dq[k], ddq[k]
        )
    Y[:, joints, columns + joints] = dq
    Y[:, joints, columns + n + joints] = np.sign(dq)
    Y[:, joints, columns + 2 * n + joints] = 1.0
    Y = Y.reshape(-1, Y.shape[-1])
    x = np.linalg.lstsq(Y, tau.ravel(), rcond=None)[0]
    residual = (tau.ravel() - Y @ x).reshape(tau.shape)
    return 1.0 - np.sum(residual**2, axis=0) / np.sum(tau**2, axis=0)


def ours(p: Pair, tau: np.ndarray, threads: int) -> np.ndarray:
    """The same through `information`."""
    robot = p.robot.with_drive(viscous=True, coulomb=True, offset=True)
    q, dq, ddq = p.states
    return np.asarray(
        solve(
            information(robot, Samples(q=q, dq=dq, ddq=ddq, tau=tau), threads=threads),
            LeastSquares(),
        ).r2_per_joint
    )


def _measured(path: Path, which: str, threads: int) -> tuple[float, float, np.ndarray]:
    """(best seconds, peak memory above the start [MB], R²) of one of the two, in a process of its
    own.
    """
    p = pair(path.stem, path, SAMPLES)
    rng = np.random.default_rng(1)
    noise = 0.05 * rng.normal(size=(SAMPLES, p.robot.nv))
    tau = th.inverse_dynamics(p.robot, *p.states) + noise
    order = [p.robot.joint_names.index(joint) for joint in list(p.model.names)[1:]]
    peer_tau = np.ascontiguousarray(tau[:, order])
    call: Callable[[], np.ndarray] = (
        (lambda: peer(p, peer_tau)) if which == "peer" else (lambda: ours(p, tau, threads))
    )
    if which == "ours":
        small = pair(path.stem, path, 64)
        ours(
            small, th.inverse_dynamics(small.robot, *small.states), 1
        )  # kernels compiled and base parameters found
    before = _peak(reset=True)
    best = np.inf
    for _ in range(1 if which == "peer" else REPEATS):
        start = time.perf_counter()
        r2 = call()
        best = min(best, time.perf_counter() - start)
    return best, _peak() - before, r2[order] if which == "ours" else r2


def _peak(*, reset: bool = False) -> float:
    """Peak resident memory of this process [MB], counted from now on if `reset` (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return float(line.split()[1]) / 1024.0


def _in_process(*arguments) -> tuple[float, float, np.ndarray]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, arguments)


def main() -> None:
    folder = example_folder()
    shared = (
        Path(__file__).resolve().parents[2]
        / "shared"
        / "data"
        / "logs"
        / "panda"
        / "panda_gaz2019_published.urdf"
    )
    paths = {
        "UR5": folder / EXAMPLES["UR5"],
        "Panda": shared if shared.exists() else folder / EXAMPLES["Panda"],
    }
    print(
        f"\n{SAMPLES} samples to a pseudo-inverse estimate with R² per joint, friction columns"
        " included\n"
    )
    print(f"{'robot':7} {'':26} {'µs/sample':>10} {'peak memory':>12}")
    for name, path in paths.items():
        seconds, memory, r2 = _in_process(path, "peer", 1)
        print(
            f"{name:7} {'Pinocchio loop + lstsq':26} {seconds / SAMPLES * 1e6:10.2f}"
            f" {memory:9.0f} MB"
        )
        for threads in (1, 2):
            own, own_memory, own_r2 = _in_process(path, "ours", threads)
            ratio = (
                f"{seconds / own:5.1f}× faster, {own_memory / memory:.3f} of the memory, R² differs"
                f" by {np.abs(own_r2 - r2).max():.1e}"
            )
            print(
                f"{name:7} {f'thetahat, threads={threads}':26} {own / SAMPLES * 1e6:10.2f}"
                f" {own_memory:9.0f} MB   {ratio}"
            )


if __name__ == "__main__":
    main()
