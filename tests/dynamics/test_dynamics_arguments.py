"""What the dynamics take and give back: shapes, kinds of arrays, bad arguments; one sample, many,
threads and `out` to the last bit.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import thetahat as th
from oracles.random_trees import ONE_DOF, cloud, random_robot, random_state
from thetahat import robots
from thetahat.dynamics.configuration import integrate
from thetahat.dynamics.rigid_body import (
    body_frames,
    body_jacobian,
    kinetic_energy_regressor,
    mass_matrix_by_bodies,
    potential_energy_regressor,
    static_regressor,
)
from thetahat.errors import UnphysicalRobot, UsageError
from thetahat.model import parameters
from thetahat.model.drive import Drive
from thetahat.model.robot import Robot
from thetahat.model.tree import Joint, JointKind, Mimic, Node, Tree

SAMPLES = 5

# Every function of (q, dq, ddq), by name; each takes what it needs of them.
FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "inverse_dynamics": lambda r, q, dq, ddq, **o: th.inverse_dynamics(r, q, dq, ddq, **o),
    "forward_dynamics": lambda r, q, dq, ddq, **o: th.forward_dynamics(r, q, dq, ddq, **o),
    "mass_matrix": lambda r, q, dq, ddq, **o: th.mass_matrix(r, q, **o),
    "coriolis_matrix": lambda r, q, dq, ddq, **o: th.coriolis_matrix(r, q, dq, **o),
    "gravity": lambda r, q, dq, ddq, **o: th.gravity(r, q, **o),
    "regressor": lambda r, q, dq, ddq, **o: th.regressor(r, q, dq, ddq, **o),
    "static_regressor": lambda r, q, dq, ddq, **o: static_regressor(r, q, **o),
    "regressor_by_unit_parameters": lambda r, q, dq, ddq: th.regressor_by_unit_parameters(
        r, q, dq, ddq
    ),
    "mass_matrix_by_bodies": lambda r, q, dq, ddq: mass_matrix_by_bodies(r, q),
    "kinetic_energy": lambda r, q, dq, ddq: th.kinetic_energy(r, q, dq),
    "potential_energy": lambda r, q, dq, ddq: th.potential_energy(r, q),
    "kinetic_energy_regressor": lambda r, q, dq, ddq: kinetic_energy_regressor(r, q, dq),
    "potential_energy_regressor": lambda r, q, dq, ddq: potential_energy_regressor(r, q),
    "positions": lambda r, q, dq, ddq: body_frames(r, q)[1],
    "integrate": lambda r, q, dq, ddq: integrate(r, q, dq),
}
WITH_OUT = tuple(FUNCTIONS)[:7]
READS = {
    "dq": (
        "inverse_dynamics",
        "forward_dynamics",
        "coriolis_matrix",
        "regressor",
        "kinetic_energy",
        "integrate",
    ),
    "ddq": ("inverse_dynamics",),
}

over_functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=list(FUNCTIONS))
over_out = pytest.mark.parametrize(
    "call", [FUNCTIONS[name] for name in WITH_OUT], ids=list(WITH_OUT)
)


@pytest.fixture(scope="module")
def robot() -> Robot:
    """All kinds of joints, mimic, friction and rotors."""
    return random_robot(3, nodes=9, drive=True)


@pytest.fixture
def state(robot: Robot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return random_state(robot, 3, SAMPLES)


def refusal(error: type[Exception], call: Callable[..., object], *arguments, **options) -> str:
    """The sentence a call is refused with: one line, no traceback of NumPy or Numba."""
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message, "what is wrong; what to do"
    return message


# -- what is taken ---------------------------------------------------------------------------------


@over_functions
def test_any_kind_of_array_of_numbers(robot: Robot, state, function) -> None:
    """Lists, other floats, other byte orders, strides, read-only memory: the same answer, and
    nothing is written to them.
    """
    q, dq, ddq = state
    expected = function(robot, q, dq, ddq)
    frozen = [x.copy() for x in state]
    for x in frozen:
        x.setflags(write=False)
    wide = [np.repeat(x, 2, axis=1)[:, ::2] for x in state]
    variants = (
        [x.tolist() for x in state],
        frozen,
        wide,
        [np.asfortranarray(x) for x in state],
        [x.astype(">f8") for x in state],
        [x.astype(np.longdouble) for x in state],
        [
            np.concatenate([np.zeros(1, np.uint8), x.view(np.uint8).ravel()])[1:]
            .view(np.float64)
            .reshape(x.shape)
            for x in state
        ],  # unaligned
    )
    for variant in variants:
        assert np.array_equal(function(robot, *variant), expected)
    assert all(np.array_equal(a, b) for a, b in zip(state, frozen, strict=True)), (
        "an input was changed"
    )


@over_functions
def test_integers_are_numbers(function) -> None:
    robot = random_robot(5, nodes=4, kinds=ONE_DOF)
    whole = [np.arange(SAMPLES * robot.nv).reshape(SAMPLES, robot.nv) % 3 - 1 for _ in range(3)]
    assert np.array_equal(
        function(robot, *whole), function(robot, *(x.astype(float) for x in whole))
    )


@over_functions
def test_single_precision_is_taken_as_it_is(function) -> None:
    robot = random_robot(5, nodes=4, kinds=ONE_DOF)
    state = [x.astype(np.float32) for x in random_state(robot, 5, SAMPLES)]
    assert np.array_equal(
        function(robot, *state), function(robot, *(x.astype(float) for x in state))
    )


@over_functions
def test_a_sample_and_a_batch_of_one(robot: Robot, state, function) -> None:
    one = function(robot, *(x[2] for x in state))
    assert np.array_equal(function(robot, *(x[2:3] for x in state)), np.asarray(one)[None])


@over_functions
def test_no_samples_give_no_results(robot: Robot, state, function) -> None:
    assert function(robot, *(x[:0] for x in state)).shape == (0, *function(robot, *state).shape[1:])


@pytest.mark.parametrize("lead", [(), (4,), (0,)], ids=["one sample", "four", "none"])
@over_functions
def test_a_robot_that_cannot_move(function, lead: tuple[int, ...]) -> None:
    """nv = 0: empty results of the right shape, energies of zero."""
    rock = Robot("rock", Tree(()), np.zeros(0), Drive.none(0))
    empty = np.zeros((*lead, 0))
    result = np.asarray(function(rock, empty, empty, empty))
    assert result.shape[: len(lead)] == lead
    assert not np.any(result)
    assert th.inverse_dynamics(
        rock, empty, empty, empty, wrenches=np.zeros((*lead, 0, 6))
    ).shape == (*lead, 0)


def test_quaternions_count_by_their_direction(robot: Robot, state) -> None:
    """A length within a thousandth of one is taken, and does not scale anything."""
    q, dq, ddq = state
    nearly = q.copy()
    for _, at in robot.tree.quaternions:
        nearly[:, at : at + 4] *= 1.0 + 0.9e-3
    assert robot.tree.quaternions
    np.testing.assert_allclose(
        th.inverse_dynamics(robot, nearly, dq, ddq),
        th.inverse_dynamics(robot, q, dq, ddq),
        rtol=1e-11,
        atol=1e-11,
    )


# -- what is refused -------------------------------------------------------------------------------


@over_functions
def test_wrong_shapes_of_q_are_refused(robot: Robot, state, function) -> None:
    q, dq, ddq = state
    for bad in (q[:, :-1], q[None], 1.0, q[0, :-1], np.zeros((SAMPLES, 0))):
        message = refusal(UsageError, function, robot, bad, dq, ddq)
        assert f"q has shape {np.shape(bad)}" in message
        assert f"({robot.nq},) or (samples, {robot.nq})" in message
    for bad in (
        "q",
        ["a"] * robot.nq,
        [[1.0], [2.0, 3.0]],
        q.astype(complex),
        [object()] * robot.nq,
    ):
        assert "not an array of real numbers" in refusal(UsageError, function, robot, bad, dq, ddq)
    assert "q" in refusal(UsageError, function, robot, None, dq, ddq)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@over_functions
def test_not_finite_is_refused_by_place(robot: Robot, state, function, bad: float) -> None:
    q, dq, ddq = state
    q[3, 1] = bad
    assert f"q[3, 1] is {bad}" in refusal(UsageError, function, robot, q, dq, ddq)
    assert f"q[1] is {bad}" in refusal(UsageError, function, robot, q[3], dq[3], ddq[3])


@pytest.mark.parametrize(
    ("name", "function"),
    [(name, function) for name, functions in READS.items() for function in functions],
)
def test_rates_are_checked_like_q(robot: Robot, state, name: str, function: str) -> None:
    q, dq, ddq = state
    position = {"dq": 1, "ddq": 2}[name]
    said = "tau" if (function, name) == ("forward_dynamics", "ddq") else name

    def refused(value: np.ndarray) -> str:
        arguments = [q, dq, ddq]
        arguments[position] = value
        return refusal(UsageError, FUNCTIONS[function], robot, *arguments)

    wrong = dq.copy()
    wrong[4, 0] = np.nan
    assert f"{said}[4, 0] is nan" in refused(wrong)
    assert f"{said} has shape" in refused(dq[:, 1:])
    assert "same number of samples" in refused(dq[:-1])
    assert "same number of samples" in refused(dq[0])


def test_torques_are_called_torques(robot: Robot, state) -> None:
    q, dq, _ = state
    assert "tau has shape" in refusal(UsageError, th.forward_dynamics, robot, q, dq, dq[:, 1:])


def test_unnormalised_quaternions_are_refused(robot: Robot, state) -> None:
    q, dq, ddq = state
    joint, at = robot.tree.quaternions[0]
    for scale, length in ((1.01, "1.01"), (0.0, "0")):
        bad = q.copy()
        bad[2, at : at + 4] *= scale
        message = refusal(UsageError, th.inverse_dynamics, robot, bad, dq, ddq)
        assert repr(joint) in message
        assert f"length {length} at sample 2" in message
        assert "unit quaternion" in message


@over_out
def test_a_bad_out_is_refused(robot: Robot, state, call) -> None:
    shape = call(robot, *state).shape
    frozen = np.empty(shape)
    frozen.setflags(write=False)
    unaligned = np.zeros(8 * int(np.prod(shape)) + 1, np.uint8)[1:].view(np.float64).reshape(shape)
    bad = {
        "float32": np.empty(shape, dtype=np.float32),
        ">f8": np.empty(shape, dtype=">f8"),
        f"{(shape[0] - 1, *shape[1:])}": np.empty((shape[0] - 1, *shape[1:])),
        "list": np.empty(shape).tolist(),
        "C-contiguous": np.empty((*shape[:-1], 2 * shape[-1]))[..., ::2],
        "writeable": frozen,
        "aligned": unaligned,
    }
    for expected, out in bad.items():
        assert expected in refusal(UsageError, call, robot, *state, out=out)


@over_out
def test_an_out_that_was_pickled_is_an_out(robot: Robot, state, call) -> None:
    """Its dtype equals float64 without being the same object."""
    expected = call(robot, *state)
    out = pickle.loads(pickle.dumps(np.empty(expected.shape)))
    assert call(robot, *state, out=out) is out
    assert np.array_equal(out, expected)


def test_out_may_be_an_input(robot: Robot, state) -> None:
    """Torques over accelerations, in place; friction and rotors, which are added last, still see
    the input.
    """
    for k in (1, 2):
        arguments = [x.copy() for x in state]
        expected = th.inverse_dynamics(robot, *state)
        assert np.array_equal(th.inverse_dynamics(robot, *arguments, out=arguments[k]), expected)
        arguments = [x.copy() for x in state]
        assert np.array_equal(
            th.forward_dynamics(robot, *arguments, out=arguments[k]),
            th.forward_dynamics(robot, *state),
        )


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", np.nan])
@over_out
def test_bad_threads_are_refused(robot: Robot, state, call, threads) -> None:
    assert f"threads is {threads!r}" in refusal(UsageError, call, robot, *state, threads=threads)


def test_bad_theta_and_wrenches_are_refused(robot: Robot, state) -> None:
    theta, wrenches = robot.theta.copy(), np.zeros((SAMPLES, len(robot.body_names), 6))
    theta[7], wrenches[1, 2, 3] = np.nan, np.inf
    assert "theta[7] is nan" in refusal(UsageError, th.inverse_dynamics, robot, *state, theta=theta)
    for function in (th.inverse_dynamics, th.forward_dynamics):
        assert "wrenches[1, 2, 3] is inf" in refusal(
            UsageError, function, robot, *state, wrenches=wrenches
        )
        assert "couple, then a force" in refusal(
            UsageError, function, robot, *state, wrenches=wrenches[0]
        )
        assert "real numbers" in refusal(UsageError, function, robot, *state, wrenches="none")
    assert "theta has shape" in refusal(
        UsageError, th.inverse_dynamics, robot, *state, theta=robot.theta[:-10]
    )
    assert "real numbers" in refusal(UsageError, th.inverse_dynamics, robot, *state, theta="heavy")


def test_an_unknown_body_lists_the_bodies(robot: Robot, state) -> None:
    message = refusal(UsageError, body_jacobian, robot, state[0], "nose")
    assert "'nose'" in message
    assert all(name in message for name in robot.body_names)


# -- singular mass matrices ------------------------------------------------------------------------

AXES = {
    "x": np.array([1.0, 0.0, 0.0]),
    "z": np.array([0.0, 0.0, 1.0]),
    "skew": np.array([0.6, 0.0, 0.8]),
}
ROD = parameters.from_mass_com_inertia(
    1.0, np.array([0.0, 0.0, 0.3]), np.diag([0.02, 0.02, 0.0])
)  # turns about z without inertia
POINT = parameters.from_mass_com_inertia(1.0, np.array([0.1, 0.2, 0.3]), np.zeros((3, 3)))
NOTHING = np.zeros(10)
BODY = cloud(np.random.default_rng(0))
SINGULAR = {  # (kind, axis, θ) of each joint of a chain; the joints that must be named
    "nothing at the end": (
        [(JointKind.REVOLUTE, "x", BODY), (JointKind.REVOLUTE, "z", NOTHING)],
        ["joint1"],
    ),
    "a rod about itself": (
        [(JointKind.REVOLUTE, "x", BODY), (JointKind.REVOLUTE, "z", ROD)],
        ["joint1"],
    ),
    "a rod alone": ([(JointKind.REVOLUTE, "z", ROD)], ["joint0"]),
    "a point on a ball joint": ([(JointKind.BALL, "z", POINT)], ["joint0"]),
    "a free point": ([(JointKind.REVOLUTE, "x", BODY), (JointKind.FREE, "z", POINT)], ["joint1"]),
    "two slides along one line": (
        [
            (JointKind.REVOLUTE, "x", BODY),
            (JointKind.PRISMATIC, "skew", NOTHING),
            (JointKind.PRISMATIC, "skew", BODY),
        ],
        ["joint1", "joint2"],
    ),
}


def chain(parts: list[tuple[JointKind, str, np.ndarray]]) -> Robot:
    rng = np.random.default_rng(1)
    nodes, before = [], ""
    for i, (kind, axis, _) in enumerate(parts):
        turn = (
            np.eye(3) if axis == before else np.linalg.qr(rng.normal(size=(3, 3)))[0]
        )  # a second joint along the first stays so
        turn = turn * np.sign(np.linalg.det(turn))
        nodes.append(
            Node(f"joint{i}", kind, i - 1, turn, rng.normal(size=3), AXES[axis], f"link{i}")
        )
        before = axis
    return Robot(
        "chain",
        Tree(tuple(nodes)),
        np.concatenate([theta for _, _, theta in parts]),
        Drive.none(sum(n.kind.nv for n in nodes)),
    )


@pytest.mark.parametrize(("parts", "named"), SINGULAR.values(), ids=list(SINGULAR))
def test_a_singular_mass_matrix_names_the_link(parts, named: list[str]) -> None:
    """Also where rounding leaves it a tiny inertia, and an acceleration of 1e16 rad/s² would come
    out; a rotor makes it regular.
    """
    robot = chain(parts)
    state = random_state(robot, 2, 20)
    message = refusal(UnphysicalRobot, th.forward_dynamics, robot, *state)
    assert "singular" in message
    for name in named:
        assert repr(name) in message
        assert repr(name.replace("joint", "link")) in message
    assert message.count("(link ") == len(named)
    assert "singular" in refusal(
        UnphysicalRobot, th.forward_dynamics, robot, *(x[0] for x in state)
    )
    geared = replace(robot, drive=robot.drive.with_values(armature=np.full(robot.nv, 0.1)))
    assert np.max(np.abs(th.forward_dynamics(geared, *state))) < 1e4
    assert "singular" in refusal(UnphysicalRobot, th.forward_dynamics, geared, *state, rigid=True)


def test_a_singular_mass_matrix_is_noticed_with_mimic_joints() -> None:
    """The other way to accelerations, by Cholesky."""
    robot = chain([*SINGULAR["two slides along one line"][0], (JointKind.REVOLUTE, "x", BODY)])
    mimic = Joint(mimic=Mimic("joint0", 0.5, 0.1))
    nodes = [*robot.tree.nodes[:-1], replace(robot.tree.nodes[-1], joint=mimic)]
    robot = replace(robot, tree=Tree(tuple(nodes)), drive=Drive.none(3))
    message = refusal(UnphysicalRobot, th.forward_dynamics, robot, *random_state(robot, 4, 20))
    assert "'joint1'" in message
    assert "'joint2'" in message


def test_an_unphysical_body_is_named_before_its_mass_matrix() -> None:
    negative = BODY.copy()
    negative[parameters.M] = -1.0
    robot = chain([(JointKind.PRISMATIC, "z", negative)])
    message = refusal(UnphysicalRobot, th.forward_dynamics, robot, *random_state(robot, 5))
    assert "'link0'" in message
    assert "mass is negative" in message


def test_overflow_is_not_called_singular() -> None:
    robot = chain([(JointKind.REVOLUTE, "z", BODY), (JointKind.REVOLUTE, "x", BODY)])
    q, dq, tau = random_state(robot, 6)
    assert "units" in refusal(UsageError, th.forward_dynamics, robot, q, 1e200 * dq, tau)


# -- one sample, many samples, threads, out --------------------------------------------------------

BATCH_ROBOTS = {  # (seed, joints, options): how a regressor's rows lie in memory differs with each
    "one joint": (0, 1, {"kinds": (JointKind.REVOLUTE,)}),
    "chain and branches": (1, 7, {"mimic": False, "massless": False}),
    "one-DOF": (2, 9, {"kinds": ONE_DOF}),
    "all kinds": (3, 8, {}),
    "large": (4, 14, {}),
}
GUARD = -12345.678
LINE = 8  # doubles in 64 bytes
over_batch_robots = pytest.mark.parametrize("recipe", BATCH_ROBOTS.values(), ids=list(BATCH_ROBOTS))


def batch_robot(recipe: tuple[int, int, dict]) -> Robot:
    seed, nodes, options = recipe
    return random_robot(seed, nodes=nodes, drive=True, **options)


def guarded(shape: tuple[int, ...], shift: int) -> tuple[np.ndarray, np.ndarray]:
    """(memory, out): out lies `shift` doubles off a cache line, full of NaN, with guards on both
    sides.
    """
    size = int(np.prod(shape))
    memory = np.full(size + 4 * LINE, GUARD)
    start = LINE + (-memory.ctypes.data // 8) % LINE + shift
    out = memory[start : start + size].reshape(shape)
    out[...] = np.nan
    return memory, out


def untouched(memory: np.ndarray, out: np.ndarray) -> bool:
    start = (out.ctypes.data - memory.ctypes.data) // 8
    return bool(np.all(memory[:start] == GUARD) and np.all(memory[start + out.size :] == GUARD))


@over_batch_robots
@over_out
def test_a_batch_is_its_samples_one_by_one(call: Callable[..., np.ndarray], recipe) -> None:
    """To the last bit, for every number of samples up to five tiles, wherever `out` lies."""
    robot = batch_robot(recipe)
    states = random_state(robot, 5, 40)
    alone = np.stack([call(robot, *(x[k] for x in states)) for k in range(40)])
    for count in range(1, 41):
        memory, out = guarded((count, *alone.shape[1:]), shift=count % LINE)
        assert call(robot, *(x[:count] for x in states), out=out) is out
        assert np.array_equal(out, alone[:count])
        assert untouched(memory, out)
        assert np.array_equal(call(robot, *(x[:count] for x in states), threads=2), alone[:count])
    memory, out = guarded(alone.shape[1:], shift=3)
    assert np.array_equal(call(robot, *(x[7] for x in states), out=out), alone[7])
    assert untouched(memory, out)


@over_out
def test_threads_change_no_bit(call: Callable[..., np.ndarray]) -> None:
    robot = batch_robot(BATCH_ROBOTS["large"])
    states = random_state(robot, 6, 1_003)
    one = call(robot, *states, threads=1)
    for threads in (2, 3, None):
        memory, out = guarded(one.shape, shift=1)
        assert np.array_equal(call(robot, *states, threads=threads, out=out), one)
        assert untouched(memory, out)


@pytest.mark.parametrize("shift", range(LINE))
@pytest.mark.parametrize("name", ["chain and branches", "one-DOF", "large"])
def test_streamed_regressors_are_the_same_numbers(name: str, shift: int) -> None:
    """Results too large for the caches are written past them, in whole cache lines: another path,
    the same bits.
    """
    robot = batch_robot(BATCH_ROBOTS[name])
    per_sample = 8 * robot.nv * len(robot.theta)
    samples = (
        2 * (1 << 24) // per_sample + 2 * LINE + 3
    )  # so large that each of two threads streams
    states = random_state(robot, 7, samples)
    small = np.concatenate(
        [th.regressor(robot, *(x[k : k + 200] for x in states)) for k in range(0, samples, 200)]
    )
    for threads in (1, 2):
        memory, out = guarded(small.shape, shift)
        th.regressor(robot, *states, out=out, threads=threads)
        assert np.array_equal(out, small)
        assert untouched(memory, out)


def test_many_threads_may_call_at_once() -> None:
    """Scratch memory is not shared between calls under way, also on one robot."""
    robot = batch_robot(BATCH_ROBOTS["all kinds"])
    states = random_state(robot, 8, 64)
    calls = {name: FUNCTIONS[name] for name in WITH_OUT}
    expected = {name: call(robot, *states, threads=1) for name, call in calls.items()}
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            (name, pool.submit(calls[name], robot, *states, threads=2))
            for _ in range(20)
            for name in calls
        ]
        assert all(np.array_equal(job.result(), expected[name]) for name, job in jobs)


def test_a_robot_that_was_used_can_be_pickled() -> None:
    """Workers on other processes get robots by pickle; scratch memory stays at home."""
    robot = th.load(robots.path("arm7"))
    q = np.linspace(-1.0, 1.0, 3 * robot.nv).reshape(3, -1)
    before = th.inverse_dynamics(robot, q, q, q)
    text = pickle.dumps(robot)
    assert len(text) < 200_000
    np.testing.assert_array_equal(th.inverse_dynamics(pickle.loads(text), q, q, q), before)
