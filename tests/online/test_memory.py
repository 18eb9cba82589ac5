"""What the memories remember: the same as a batch would hold, and nothing that standstill can
break.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from data_paths import example_robot
from online_settings import MEMORIES

import thetahat as th
from thetahat import robots
from thetahat.data.samples import MASKED, Samples
from thetahat.errors import UsageError
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.config import Forgetting, SolverConfig
from thetahat.online.memory import Memory, RecursiveMemory, create_memory
from thetahat.online.stacked_factor import Stack, solve

FRICTION = {"viscous": True, "coulomb": True, "offset": True}
SAME = 1e-10  # relative: two ways to the same least squares
ALL = np.ones(4, dtype=bool)


def arm(**terms: bool) -> th.Robot:
    return th.load(robots.path("arm4")).with_drive(**(terms or FRICTION))


def states(robot: th.Robot, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(np.random.default_rng(seed).normal(size=(3, count, robot.nv)))


def measured(
    robot: th.Robot, count: int, *, noise: float = 0.1, seed: int = 0
) -> tuple[np.ndarray, ...]:
    q, dq, ddq = states(robot, count, seed)
    return (
        q,
        dq,
        ddq,
        th.inverse_dynamics(robot, q, dq, ddq)
        + noise * np.random.default_rng(seed + 1).normal(size=q.shape),
    )


def make(name: str, robot: th.Robot, size: int, *, forgetting: float) -> Memory:
    config = Forgetting(forgetting) if name == "forgetting" else MEMORIES[name]
    return create_memory(config, robot, size)


def feed(memory, arrays: tuple[np.ndarray, ...], valid: np.ndarray | None = None) -> None:
    for k in range(len(arrays[0])):
        memory.add(
            FilteredSample(*(array[k : k + 1] for array in arrays)),
            np.ones(arrays[1].shape[1], dtype=bool) if valid is None else valid[k],
        )


def close(a: np.ndarray, b: np.ndarray, tolerance: float = SAME) -> bool:
    return bool(np.max(np.abs(a - b)) <= tolerance * np.max(np.abs(b)))


# -- the triangle of all joints --------------------------------------------------------------------


def coupled(robot: th.Robot) -> th.Robot:
    """Motors that each drive two joints: rows of one branch reach into another's columns."""
    B = np.eye(robot.nv)
    B[0, -1], B[1, 2] = 0.7, -0.4
    return robot.without_drive().with_actuation(B).with_drive(**FRICTION)


@pytest.mark.parametrize(
    "robot",
    [
        pytest.param(lambda: arm(), id="arm4"),
        pytest.param(lambda: coupled(th.load(robots.path("arm4"))), id="arm4, coupled motors"),
        pytest.param(
            lambda: th.load(example_robot("solo12")).with_drive(viscous=True), id="solo12"
        ),
        pytest.param(lambda: th.load(example_robot("talos")).with_drive(armature=True), id="talos"),
        pytest.param(
            lambda: th.load(example_robot("tiago")), id="tiago, mimic joints and sliding ones"
        ),
    ],
)
def test_the_quick_triangle_is_that_of_plain_rows(robot) -> None:
    """NumPy's least squares on the rows themselves is the oracle; rows masked here and there,
    joints weighted.
    """
    robot = robot()
    count = 70  # more than one chunk
    q = th.random_configuration(robot, np.random.default_rng(0), count)
    dq, ddq, tau = np.random.default_rng(1).normal(size=(3, count, robot.nv))
    valid = np.random.default_rng(2).random((count, robot.nv)) > 0.1
    joints = np.random.default_rng(3).uniform(0.5, 2.0, robot.nv)
    stack = Stack(robot)
    R = stack.of_rows(stack.rows(FilteredSample(q, dq, ddq, tau), valid.astype(float)), joints)
    Y = (
        full_regressor(robot, q, dq, ddq)[..., stack.base.independent] * (valid * joints)[..., None]
    ).reshape(-1, len(stack.base))
    u = (tau * valid * joints).ravel()
    assert np.array_equal(R, np.triu(R))
    assert close(R.T @ R, np.column_stack([Y, u]).T @ np.column_stack([Y, u]), 1e-12)
    assert close(Y @ solve(R).x, Y @ np.linalg.lstsq(Y, u, rcond=None)[0], 1e-8)


def test_a_short_triangle_gives_the_same_fit_as_the_library() -> None:
    robot = arm()
    memory = make("window", robot, 50, forgetting=1.0)
    arrays = measured(robot, 5)
    feed(memory, arrays)
    fit = solve(memory.triangle())
    info = memory.information()
    assert fit.rank == info.rank < len(info.base)
    assert close(fit.x, info.solution.x, 1e-8)


# -- memories --------------------------------------------------------------------------------------


def batch(robot: th.Robot, arrays: tuple[np.ndarray, ...], valid: np.ndarray):
    q, dq, ddq, tau = arrays
    return information(
        robot,
        Samples(q=q, dq=dq, ddq=ddq, tau=tau, reason=np.where(valid, 0, MASKED).astype(np.uint8)),
    )


@pytest.mark.parametrize(
    ("kind", "last"), [("window", 50), ("growing", None), ("forgetting", None)]
)
@pytest.mark.parametrize("count", [30, 50, 151, 300])
def test_a_memory_is_the_batch_of_what_it_remembers(
    kind: str, last: int | None, count: int
) -> None:
    """The window: the last 50; growing, and forgetting with λ = 1: everything. Factors, solution,
    residuals and rows.
    """
    robot = arm()
    arrays, valid = measured(robot, count), np.random.default_rng(5).random((count, 4)) > 0.1
    memory = make(kind, robot, 50, forgetting=1.0)
    feed(memory, arrays, valid)
    part = slice(None) if last is None else slice(-last, None)
    whole = batch(robot, tuple(array[part] for array in arrays), valid[part])
    x = solve(memory.triangle()).x
    assert close(x, whole.solution.x)
    assert close(memory.information().solution.x, whole.solution.x)
    assert np.array_equal(memory.information().rows, whole.rows)
    sums = memory.sums(x)
    e2, u2, rows = sums.e2, sums.u2, sums.rows
    assert close(e2, whole.residual_norms(whole.solution.x) ** 2)
    assert close(u2, whole.torque_norms() ** 2)
    assert np.array_equal(rows, whole.rows)
    assert memory.full == (count >= 50)


def test_every_memory_is_empty_after_it_is_cleared() -> None:
    robot = arm()
    for kind in ("window", "growing", "forgetting", "informative"):
        fresh, used = (make(kind, robot, 50, forgetting=0.98) for _ in range(2))
        feed(used, measured(robot, 20, seed=8))
        used.clear()
        assert len(used) == 0
        for memory in (fresh, used):
            feed(memory, measured(robot, 70, seed=9))
        assert np.array_equal(fresh.triangle(), used.triangle())


def test_the_informative_memory_is_the_buffer() -> None:
    from thetahat.identification.informative.informative_buffer import InformativeBuffer

    robot, arrays = arm(), measured(arm(), 120)
    memory, buffer = make("informative", robot, 40, forgetting=1.0), InformativeBuffer(robot, 40)
    feed(memory, arrays)
    for k in range(120):
        buffer.push(*(array[k] for array in arrays))
    assert close(solve(memory.triangle()).x, buffer.information().solution.x)
    assert len(memory) == 40


def test_names_and_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(
        UsageError,
        match=r"memory is 'rolling'; give Window\(\), Growing\(\), Forgetting\(factor\) or Inf",
    ):
        SolverConfig(memory="rolling")
    with pytest.raises(UsageError, match=r"factor is 1\.5"):
        Forgetting(1.5)


# -- forgetting ------------------------------------------------------------------------------------


def own_factor(memory: RecursiveMemory, v: int) -> tuple[np.ndarray, np.ndarray]:
    """(L, z) of one joint."""
    R = memory._triangles(memory._factors)[v]
    return R[:-1, :-1], R[:-1, -1]


def test_a_motion_that_goes_on_is_forgotten_by_the_factor_per_sample() -> None:
    """In a lasting motion the memory is the plain scheme's, Σ λ^age y yᵀ: its information settles
    at 1/(1 − λ) samples in every direction.
    """
    robot, factor, v = arm(viscous=True, offset=True), 0.98, 0
    memory = make("forgetting", robot, 50, forgetting=factor)
    arrays = measured(robot, 1500)
    shares = []
    Y = full_regressor(robot, *arrays[:3])[:, v][:, memory.stack.base.independent][
        :, memory.stack.positions[v]
    ]
    typical = np.linalg.inv(np.linalg.cholesky(Y.T @ Y / len(Y)))
    for k in range(1500):
        memory.add(FilteredSample(*(array[k : k + 1] for array in arrays)), ALL)
        if k >= 500 and k % 7 == 0:  # at all phases of the blocks
            L, _ = own_factor(memory, v)
            shares.append(np.linalg.eigvalsh(typical @ (L.T @ L) @ typical.T) * (1.0 - factor))
    mean = np.mean(shares, axis=0)
    assert np.all((mean > 0.1) & (mean < 6.0)), (
        mean
    )  # of 1/(1 − λ) samples, sorted: 50 samples of 24 columns spread as much
    assert 0.5 < np.mean(mean) < 1.5


def test_directions_without_excitation_are_not_forgotten() -> None:
    """Joints 3 and 4 locked at a pose: what joint 4's own motion told before is there to the last
    digits.
    """
    robot = arm(viscous=True, offset=True)
    memory = make("forgetting", robot, 50, forgetting=0.98)
    feed(memory, measured(robot, 4 * int(memory.blocks[3])))
    before = own_factor(memory, 3)[0].copy()
    q, dq, ddq, tau = measured(robot, 2000, seed=6)
    for array in (q, dq, ddq):
        array[:, 2:] = 0.0
    dq[:, :2], ddq[:, :2] = 0.0, 0.0
    q[:, :2] = q[:1, :2]
    feed(memory, (q, dq, ddq, tau))
    after = own_factor(memory, 3)[0]
    φ = full_regressor(robot, q[:1], dq[:1], ddq[:1])[0, 3][memory.stack.base.independent][
        memory.stack.positions[3]
    ]
    free = np.linalg.svd(φ[None])[2][1:]  # directions of x that the pose does not show
    known = [free @ (L.T @ L) @ free.T for L in (before, after)]
    assert close(known[1], known[0], 1e-9)
    assert not close(
        after.T @ after, before.T @ before, 1e-3
    )  # while the pose's own direction is another


def test_forgetting_as_such_moves_no_parameter() -> None:
    """A joint's own fit stays where it is for rows that it explains, whatever they excite."""
    robot = arm()
    memory = make("forgetting", robot, 50, forgetting=0.98)
    feed(memory, measured(robot, 80))
    before = [np.linalg.solve(*own_factor(memory, v)) for v in range(4)]
    q, dq, ddq = states(robot, 200, seed=3)
    for k in range(200):
        Y = full_regressor(robot, q[k : k + 1], dq[k : k + 1], ddq[k : k + 1])[0][
            :, memory.stack.base.independent
        ]
        tau = np.array([[Y[v, own] @ before[v] for v, own in enumerate(memory.stack.positions)]])
        memory.add(FilteredSample(q[k : k + 1], dq[k : k + 1], ddq[k : k + 1], tau), ALL)
    for v in range(4):
        assert close(np.linalg.solve(*own_factor(memory, v)), before[v], 1e-7)


def test_forgetting_does_not_depend_on_units() -> None:
    """A robot in millimetres (and grams, for round numbers) forgets the same."""
    robot = arm()
    memory = make("forgetting", robot, 50, forgetting=0.95)
    arrays = measured(robot, 150)
    feed(memory, arrays)
    scaled = make("forgetting", robot, 50, forgetting=0.95)
    scaled.stack.rows = lambda *a, rows=scaled.stack.rows: (
        rows(*a) * np.geomspace(1e-3, 1e3, scaled.stack.height)[:, None]
    )
    feed(scaled, arrays)
    for v, own in enumerate(memory.stack.positions):
        first = memory.stack.plan.starts[v]
        unit = np.geomspace(1e-3, 1e3, memory.stack.height)[first : first + len(own) + 1]
        x, y = np.linalg.solve(*own_factor(memory, v)), np.linalg.solve(*own_factor(scaled, v))
        assert close(y * unit[:-1] / unit[-1], x, 1e-6)


def test_forgetting_follows_a_robot_that_changes() -> None:
    """Many memories later nothing is left of the robot before; friction and all."""
    robot = arm()
    heavier = robot.with_parameters(
        np.concatenate(
            [1.5 * robot.theta, robot.drive.viscous, robot.drive.coulomb, robot.drive.offset]
        )
    )
    memory = make("forgetting", robot, 50, forgetting=0.95)
    feed(memory, measured(robot, 100, noise=0.0))
    feed(memory, measured(heavier, 1500, noise=0.0, seed=4))
    truth = memory.stack.base.of(
        np.concatenate(
            [heavier.theta, robot.drive.viscous, robot.drive.coulomb, robot.drive.offset]
        )
    )
    assert close(solve(memory.triangle()).x, truth, 1e-6)


def still(robot: th.Robot, seed: int = 7) -> tuple[np.ndarray, ...]:
    """A pose, and the torque that carries it."""
    q, zero = states(robot, 1, seed)[0], np.zeros((1, robot.nv))
    return q, zero, zero, th.inverse_dynamics(robot, q, zero, zero)


def stand_still(count: int) -> None:
    """So many samples of one pose: factors bounded, parameters where they were; and the memory
    still learns afterwards.
    """
    robot = arm(viscous=True, offset=True)
    robot = replace(robot, drive=robot.drive.with_values(coulomb=np.zeros(4)))
    memory = make("forgetting", robot, 50, forgetting=0.98)
    feed(memory, measured(robot, 200, noise=0.0))
    before, size = solve(memory.triangle()), np.max(np.abs(memory._factors))
    pose = still(robot)
    for _ in range(count):
        memory.add(FilteredSample(*pose), ALL)
    after = solve(memory.triangle())
    assert np.all(np.isfinite(memory._factors))
    assert (
        np.max(np.abs(memory._factors)) <= 10.0 * size
    )  # information grows until the pose's torque is known to 1 − λ
    assert after.rank == before.rank == len(memory.stack.base)
    assert np.max(np.abs(after.x - before.x)) <= 1e-6
    heavier = robot.with_parameters(
        np.concatenate([1.3 * robot.theta, robot.drive.viscous, robot.drive.offset])
    )
    feed(memory, measured(heavier, 2500, noise=0.0, seed=4))
    truth = memory.stack.base.of(
        np.concatenate([heavier.theta, robot.drive.viscous, robot.drive.offset])
    )
    assert close(solve(memory.triangle()).x, truth, 1e-6)


def test_standstill_neither_fills_nor_empties_the_memory() -> None:
    stand_still(20_000)


@pytest.mark.slow
def test_a_million_still_samples() -> None:
    stand_still(1_000_000)


def test_after_noisy_motion_standstill_moves_parameters_by_less_than_their_noise_and_then_no_more() -> (
    None
):
    """Joints contradict each other by noise; a pose repeated settles their argument in its own
    direction, once. It is no drift.
    """
    robot = arm()
    memory = make("forgetting", robot, 50, forgetting=0.98)
    feed(memory, measured(robot, 300))
    before = solve(memory.triangle()).x
    std = memory.information().solution.inverse
    std = 0.1 * np.sqrt(np.sum(std**2, axis=1))
    q, zero = states(robot, 1, 7)[0], np.zeros((1, 4))
    Y = full_regressor(robot, q, zero, zero)[0][:, memory.stack.base.independent]
    pose = (q, zero, zero, (Y @ before)[None])
    moved = []
    for _ in range(2):
        for _ in range(5000):
            memory.add(FilteredSample(*pose), ALL)
        moved.append(solve(memory.triangle()).x)
    assert np.all(np.abs(moved[0] - before) <= 4.0 * std)
    assert np.all(np.abs(moved[1] - moved[0]) <= 0.05 * std)  # the blocks' phase, no drift


def test_plain_forgetting_overflows_where_this_does_not() -> None:
    """What the memory is spared: P/λ of a direction that nothing excites, after 71,000 steps at λ =
    0.99.
    """
    with np.errstate(over="ignore"):
        assert np.isinf(np.float64(1.0) / np.float64(0.99) ** 71_000 * 1e2)
