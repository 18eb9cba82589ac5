"""Regressor and inverse dynamics beside Pinocchio called from Python: batches on one and two
threads, single calls.
"""

from __future__ import annotations

import numpy as np

import thetahat as th
from benchmarks.robots import EXAMPLES, Pair, example_folder, pair
from benchmarks.timing import best, interleaved

SAMPLES = 1000
PEER_SAMPLES = 100  # one call of the peer after the other, into the same preallocated array


def peer_regressor(p: Pair, out: np.ndarray) -> None:
    import pinocchio

    q, dq, ddq = p.peer_states
    for k in range(PEER_SAMPLES):
        out[k] = pinocchio.computeJointTorqueRegressor(p.model, p.data, q[k], dq[k], ddq[k])


def peer_inverse_dynamics(p: Pair, out: np.ndarray) -> None:
    import pinocchio

    q, dq, ddq = p.peer_states
    for k in range(PEER_SAMPLES):
        out[k] = pinocchio.rnea(p.model, p.data, q[k], dq[k], ddq[k])


def batches(p: Pair) -> list[tuple[str, float, list[float]]]:
    """(what, peer's µs per sample, ours on one and two threads)."""
    robot, states = p.robot, p.states
    Y = np.empty((SAMPLES, robot.nv, len(robot.theta)))
    tau = np.empty((SAMPLES, robot.nv))
    rows = []
    for what, peer, ours, out in (
        ("regressor", peer_regressor, th.regressor, Y),
        (
            "inverse dynamics",
            peer_inverse_dynamics,
            lambda *a, **k: th.inverse_dynamics(*a, rigid=True, **k),
            tau,
        ),
    ):
        times = interleaved(
            lambda peer=peer, out=out: peer(p, out),
            lambda ours=ours, out=out: ours(robot, *states, out=out, threads=1),
            lambda ours=ours, out=out: ours(robot, *states, out=out, threads=2),
        )
        rows.append((what, times[0] / PEER_SAMPLES * 1e6, [t / SAMPLES * 1e6 for t in times[1:]]))
    return rows


def single_calls(p: Pair) -> list[tuple[str, float, float]]:
    """(what, peer's µs, ours) of one call with one sample."""
    import pinocchio as pin

    robot, model, data = p.robot, p.model, p.data
    q, dq, ddq = (s[0] for s in p.states)
    pq, pdq, pddq = (s[0] for s in p.peer_states)
    Y, peer_Y, tau, D = (
        np.empty((robot.nv, len(robot.theta))),
        np.empty((robot.nv, len(robot.theta))),
        np.empty(robot.nv),
        np.empty((robot.nv, robot.nv)),
    )

    def copy_regressor() -> None:
        peer_Y[...] = pin.computeJointTorqueRegressor(model, data, pq, pdq, pddq)

    calls = {
        "regressor": (copy_regressor, lambda: th.regressor(robot, q, dq, ddq, out=Y)),
        "inverse dynamics": (
            lambda: pin.rnea(model, data, pq, pdq, pddq),
            lambda: th.inverse_dynamics(robot, q, dq, ddq, rigid=True, out=tau),
        ),
        "forward dynamics": (
            lambda: pin.aba(model, data, pq, pdq, pddq),
            lambda: th.forward_dynamics(robot, q, dq, ddq, rigid=True, out=tau),
        ),
        "mass matrix": (
            lambda: pin.crba(model, data, pq),
            lambda: th.mass_matrix(robot, q, rigid=True, out=D),
        ),
        "Coriolis matrix": (
            lambda: pin.computeCoriolisMatrix(model, data, pq, pdq),
            lambda: th.coriolis_matrix(robot, q, dq, out=D),
        ),
        "gravity": (
            lambda: pin.computeGeneralizedGravity(model, data, pq),
            lambda: th.gravity(robot, q, out=tau),
        ),
    }
    return [(what, *(t * 1e6 for t in interleaved(*pair_))) for what, pair_ in calls.items()]


def algorithm_1(p: Pair) -> float:
    """µs per sample of the paper's Algorithm 1 on the same batch."""
    return (
        best(lambda: th.regressor_by_unit_parameters(p.robot, *p.states), repeats=3) / SAMPLES * 1e6
    )


def main() -> None:
    folder = example_folder()
    pairs = [pair(name, folder / path, SAMPLES) for name, path in EXAMPLES.items()]
    print(
        f"\nBatches of {SAMPLES} samples, µs per sample (× faster than Pinocchio called from"
        " Python)\n"
    )
    print(f"{'robot':8} {'n':>3}  {'what':17} {'Pinocchio':>10} {'1 thread':>18} {'2 threads':>18}")
    for p in pairs:
        for what, peer, ours in batches(p):
            cells = "".join(f"{t:10.3f} ({peer / t:4.1f}×)" for t in ours)
            print(f"{p.name:8} {p.robot.nv:3}  {what:17} {peer:10.2f} {cells}")
        print(f"{p.name:8} {p.robot.nv:3}  {'Algorithm 1':17} {'':>10} {algorithm_1(p):10.3f}")
    print("\nOne sample per call, µs (× the time of Pinocchio's call; the regressor may take 3×)\n")
    print(f"{'robot':8} {'what':17} {'Pinocchio':>10} {'thetahat':>10}")
    for p in pairs:
        for what, peer, ours in single_calls(p):
            print(f"{p.name:8} {what:17} {peer:10.2f} {ours:10.2f} ({ours / peer:4.2f}×)")


if __name__ == "__main__":
    main()
