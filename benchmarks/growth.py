"""How the time per sample grows with the number of joints: serial chains, and balanced binary
trees.
"""

from __future__ import annotations

import numpy as np

import thetahat as th
from benchmarks.timing import best
from thetahat.model.drive import Drive
from thetahat.model.parameters import from_mass_com_inertia
from thetahat.model.tree import JointKind, Node, Tree

SIZES = (2, 4, 8, 16, 32, 64, 128)


def robot(parents: list[int]) -> th.Robot:
    """Revolute joints about x, y, z in turn, links of 0.1 m."""
    axes = np.eye(3)
    nodes = tuple(
        Node(
            f"j{i}",
            JointKind.REVOLUTE,
            parent,
            np.eye(3),
            np.array([0.0, 0.0, 0.1]),
            axes[i % 3],
            f"b{i}",
        )
        for i, parent in enumerate(parents)
    )
    theta = from_mass_com_inertia(
        np.array(1.0), np.array([0.0, 0.0, 0.05]), np.diag([1e-3, 1e-3, 1e-3])
    )
    return th.Robot("growth", Tree(nodes), np.tile(theta, len(nodes)), Drive.none(len(nodes)))


def chain(n: int) -> list[int]:
    return list(range(-1, n - 1))


def balanced(n: int) -> list[int]:
    """Parents of a binary tree of n joints, depth first."""
    parents: list[int] = []

    def grow(parent: int, count: int) -> None:
        if count:
            parents.append(parent)
            me = len(parents) - 1
            grow(me, (count - 1) // 2)
            grow(me, count - 1 - (count - 1) // 2)

    grow(-1, n)
    return parents


def depths(parents: list[int]) -> list[int]:
    out: list[int] = []
    for parent in parents:
        out.append(1 if parent < 0 else out[parent] + 1)
    return out


def microseconds(r: th.Robot, function, *, samples: int, **kwargs) -> float:
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(samples, r.nv)) for _ in range(3)]
    return best(lambda: function(r, *states, **kwargs), repeats=5) / samples * 1e6


def measure(make) -> list[tuple[int, int, float, float]]:
    """(n, Σ depth, µs of the regressor, µs of Algorithm 1) per sample, for each size."""
    rows = []
    for n in SIZES:
        r = robot(make(n))
        samples = 512 if n <= 32 else 128
        out = np.empty((samples, n, 10 * n))
        fast = microseconds(r, th.regressor, samples=samples, out=out, threads=1)
        reference = (
            microseconds(r, th.regressor_by_unit_parameters, samples=64)
            if n <= 64
            else float("nan")
        )
        rows.append((n, sum(depths(make(n))), fast, reference))
    return rows


def exponent(x: list[float], y: list[float]) -> float:
    """Slope of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def main() -> None:
    for name, make in (("serial chain", chain), ("balanced tree", balanced)):
        rows = measure(make)
        print(
            f"\n{name}: µs per sample\n\n{'n':>4} {'n·depth':>8} {'regressor':>10}"
            f" {'Algorithm 1':>12}"
        )
        for n, work, fast, reference in rows:
            print(f"{n:4} {work:8} {fast:10.3f} {reference:12.3f}")
        large = [row for row in rows if row[0] >= 8]
        by_n = exponent([r[0] for r in rows], [r[2] for r in rows])
        print(
            f"time ~ n^{by_n:.2f} (all sizes),"
            f" n^{exponent([r[0] for r in large], [r[2] for r in large]):.2f} (n ≥ 8); output ~ n^2"
        )
        print(f"time ~ (n·depth)^{exponent([r[1] for r in rows], [r[2] for r in rows]):.2f}")
        known = [r for r in rows if np.isfinite(r[3])]
        print(f"Algorithm 1 ~ n^{exponent([r[0] for r in known], [r[3] for r in known]):.2f}")


if __name__ == "__main__":
    main()
