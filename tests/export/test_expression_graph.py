"""The expression graph: what it simplifies, and that it still computes the same."""

from __future__ import annotations

import math

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.export.codegen.expression_graph import Graph
from thetahat.export.codegen.symbolic_dynamics import SymbolicRobot

CALLS = {"sin": math.sin, "cos": math.cos}


def test_zeros_ones_signs_and_common_parts_vanish() -> None:
    graph = Graph()
    x, y = graph.inputs("x", 2)
    same = [
        (x + 0.0, x),
        (x * 1.0, x),
        (x * -1.0, -x),
        (graph.negate(-x), x),
        (x - x, graph.zero),
        (x * 0.0, graph.zero),
        (x + y, y + x),
        (x * y, y * x),
        ((-x) * y, -(x * y)),
        (x + (-y), x - y),
        (x - (-y), x + y),
        ((-x) - y, -(x + y)),
        (graph.number(2.0) * graph.number(3.0), graph.number(6.0)),
    ]
    for k, (a, b) in enumerate(same):
        assert a.index == b.index, k
    assert (y - x).index == (-(x - y)).index


def test_the_recursion_computes_what_the_kernels_compute() -> None:
    robot = th.load(robots.path("arm4")).without_drive()
    graph = Graph()
    dq, ddq = graph.inputs("dq", 4), graph.inputs("ddq", 4)
    tau = SymbolicRobot(robot, graph).inverse_dynamics(dq, ddq)
    state = np.random.default_rng(0).normal(size=(3, 4))
    arrays = dict(zip(("q", "dq", "ddq"), state.tolist(), strict=True))
    got = graph.evaluate(tau, {**arrays, "p": robot.theta.tolist()}, CALLS)
    np.testing.assert_allclose(got, th.inverse_dynamics(robot, *state), rtol=1e-12)
