"""Physically consistent fits: time of a solve, from the information of a log, beside CVXPY with
Clarabel on the same problem.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.robots import EXAMPLES, example_folder
from benchmarks.timing import best, verdict
from thetahat.identification.consistency.misfit import objective
from thetahat.identification.estimators.consistent import LogCholesky
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.solve import solve
from thetahat.model.lock_joints import lock

SAMPLES, NOISE, WEIGHT = 3000, 0.02, 1e-2
DRAWS, SECONDS = 1000, 2.0  # robots drawn from a posterior, and how long that may take
VALKYRIE = ("robots", "valkyrie", "derived_valkyrie_A_44dof.urdf")


def folded(robot: th.Robot) -> Information:
    """A simulated log with all four drive terms as columns, noise relative to each joint's
    torque.
    """
    robot = robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True, armature=True)
    columns, rng = Columns(robot), np.random.default_rng(0)
    robot = columns.apply(
        np.concatenate([robot.theta, rng.uniform(0.01, 0.3, columns.count - columns.inertial)])
    )
    q = th.random_configuration(robot, rng, SAMPLES)
    dq, ddq = rng.normal(size=(SAMPLES, robot.nv)), 3.0 * rng.normal(size=(SAMPLES, robot.nv))
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    tau += NOISE * np.sqrt(np.mean(tau**2, axis=0)) * rng.normal(size=tau.shape)
    return information(robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau))


def peer(info: Information, metric: str) -> tuple[float, float] | None:
    """(seconds, objective) of CVXPY with Clarabel, from the same factor; formulating it is not
    counted, solving twice is, once.
    """
    import cvxpy as cp

    f = objective(info, prior=None, weight=WEIGHT, metric=metric, weights="iterated")
    x, n = cp.Variable(f.columns.count), f.columns.inertial
    misfit = 0.5 * cp.sum_squares((f.R @ (info.base.map * f.scale)) @ x - f.z)
    far = x - f.x0 / f.scale
    away, constraints = (
        0.5 * cp.sum_squares(far if metric == "euclidean" else far[n:]),
        [x[k] >= 0 for k in f.nonnegative],
    )
    for b in range(f.bodies):
        ixx, ixy, ixz, mz, my, iyy, iyz, mx, izz, m = (
            f.scale[10 * b + k] * x[10 * b + k] for k in range(10)
        )
        half = (ixx + iyy + izz) / 2
        J = cp.bmat(
            [
                [half - ixx, -ixy, -ixz, mx],
                [-ixy, half - iyy, -iyz, my],
                [-ixz, -iyz, half - izz, mz],
                [mx, my, mz, m],
            ]
        )
        W = np.linalg.inv(np.linalg.cholesky(f.references[b]))
        J = W @ J @ W.T
        if metric == "entropic":
            away = away + cp.trace(J) - cp.log_det((J + J.T) / 2) - 4
        else:
            constraints.append(J >> 0)
    problem = cp.Problem(cp.Minimize(misfit + WEIGHT * away), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=cp.CLARABEL)
        except cp.SolverError:
            return None
    if x.value is None:
        return None
    return float(problem.solver_stats.solve_time), f.value(f.scale * np.asarray(x.value))


def drawing(name: str, info: Information, missed: list[str]) -> None:
    """Time of robots drawn from an estimate's law; those of seven joints have a bound."""
    estimate = solve(info, th.Consistent(metric="moments", weight=30.0))
    seconds = best(lambda: estimate.sample(DRAWS, seed=0), repeats=3)
    allowed = SECONDS if info.robot.nv == 7 else None
    judged = verdict(f"drawing {DRAWS} robots of {name}", seconds, allowed, "s", missed)
    print(f"  {'sample':10} {1e3 * seconds:8.0f} ms   {DRAWS} physical robots {judged}", flush=True)


def main() -> list[str]:
    """Print the table; return what missed its bound."""
    missed: list[str] = []
    warnings.simplefilter("ignore")
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    panda = th.load(example_folder() / EXAMPLES["Panda"])
    robots = {"Panda (7)": lock(panda, [name for name in panda.joint_names if "finger" in name])}
    if shared.joinpath(*VALKYRIE).exists():
        robots["Valkyrie (44)"] = th.load(shared.joinpath(*VALKYRIE))
    print(
        "\nPhysically consistent fit with four drive terms, from the information of a log:"
        " milliseconds of `identify`, best of several\n"
    )
    for name, robot in robots.items():
        start = time.perf_counter()
        info = folded(robot)
        print(
            f"{name}: {info.base.columns} columns, {len(info.base)} base parameters (log simulated"
            f" and folded in {time.perf_counter() - start:.1f} s)"
        )
        for metric in ("euclidean", "entropic"):
            estimator = th.Consistent(metric=metric, weight=WEIGHT)
            estimate = solve(info, estimator)
            own = best(lambda estimator=estimator, info=info: solve(info, estimator))
            found = peer(info, metric)
            proof = (
                f"gap {estimate.certificate.gap:.1e} of {estimate.certificate.objective:.4g},"
                f" {estimate.certificate.iterations} iterations"
            )
            other = (
                "CVXPY with Clarabel failed"
                if found is None
                else f"Clarabel {1e3 * found[0]:.0f} ms ({found[0] / own:.1f}×), f {found[1]:.4g}"
            )
            print(f"  {metric:10} {1e3 * own:8.1f} ms   {proof}   {other}", flush=True)
        smooth = th.Consistent(weight=WEIGHT, metric="entropic", solver=LogCholesky())
        warm = replace(smooth, solver=LogCholesky(start=solve(info, smooth)))
        cold, again = (
            1e3 * best(lambda each=each, info=info: solve(info, each)) for each in (smooth, warm)
        )
        print(
            f"  {'smooth':10} {cold:8.1f} ms   entropic, from the prior; {again:.1f} ms from its"
            " own answer"
        )
        drawing(name, info, missed)
    return missed


if __name__ == "__main__":
    main()
