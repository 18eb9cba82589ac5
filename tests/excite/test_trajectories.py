"""Trajectories: derivatives are derivatives, motions begin and end at rest, and what is saved is
what is played.
"""

from __future__ import annotations

import numpy as np
import polars
import pytest
import sympy
from excite_cases import one_of_each, shipped
from scipy.interpolate import BPoly

import thetahat as th
from thetahat.errors import MalformedInput, StorageError, UsageError
from thetahat.excite.bases import FourierFamily, SplineFamily
from thetahat.excite.trajectories import Fourier, Moves, Sinusoids, Spline, tick_tock
from thetahat.excite.trajectory import Motion

CASES = one_of_each()
EXACT = 1e-12  # the same closed form in another order of operations
REST = 1e-9  # of the largest speed or acceleration: cancellation of sums that vanish
# of the largest derivative: a central difference of fourth order with steps of 1e-3 s, and its
# rounding
DIFFERENCE = 1e-7


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_the_position(name: str) -> None:
    trajectory = CASES[name]
    h = 1e-3 * trajectory.duration / 5.0
    rng = np.random.default_rng(1)
    t = rng.uniform(3 * h, trajectory.duration - 3 * h, 400)
    joints = [0.0, *getattr(trajectory, "times", [])]
    if name in (
        "moves",
        "tick-tock",
    ):  # where a move ends, the third derivative jumps, and a difference across it is coarse
        ends = np.concatenate([trajectory._begins, trajectory._begins + trajectory.times])
        t = t[np.min(np.abs(t[:, None] - ends), axis=1) > 3 * h]
    elif name.startswith("sinusoids"):
        t = t[
            np.min(
                np.abs(t[:, None] - [trajectory.ramp, trajectory.duration - trajectory.ramp]),
                axis=1,
            )
            > 3 * h
        ]
    elif name == "spline":
        t = t[np.min(np.abs(t[:, None] - joints), axis=1) > 3 * h]
    assert len(t) > 100
    at = [trajectory.at(t + k * h) for k in (-2, -1, 1, 2)]
    _, dq, ddq = trajectory.at(t)
    for order, exact in ((0, dq), (1, ddq), (2, trajectory.jerk(t))):
        difference = (at[0][order] - 8 * at[1][order] + 8 * at[2][order] - at[3][order]) / (12 * h)
        assert np.max(np.abs(difference - exact)) <= DIFFERENCE * np.max(np.abs(exact)) * (
            10.0 if order else 1.0
        )


@pytest.mark.parametrize("name", CASES)
def test_a_motion_rests_at_its_ends_and_outside_of_them(name: str) -> None:
    trajectory = CASES[name]
    T = trajectory.duration
    _, dq, ddq = trajectory.at(np.linspace(0, T, 500))
    for t in (0.0, T, -1.0, T + 1.0):
        q, dq_end, ddq_end = trajectory.at(t)
        assert np.max(np.abs(dq_end)) <= REST * np.max(np.abs(dq))
        assert np.max(np.abs(ddq_end)) <= REST * np.max(np.abs(ddq))
        assert np.allclose(q, trajectory.at(0.0 if t <= 0 else T)[0], atol=0, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_acceleration_has_no_jump(name: str) -> None:
    """Halving the step halves the largest change of q̈: a jump would not shrink."""
    trajectory = CASES[name]
    steps = [
        np.max(np.abs(np.diff(trajectory.at(np.linspace(0, trajectory.duration, n))[2], axis=0)))
        for n in (20_001, 40_001)
    ]
    assert steps[1] < 0.6 * steps[0]


@pytest.mark.parametrize("name", CASES)
def test_one_time_is_a_row_of_many(name: str) -> None:
    trajectory = CASES[name]
    t = np.linspace(0, trajectory.duration, 7)
    many = trajectory.at(t)
    for k, time in enumerate(t):
        for one, all_of_them in zip(trajectory.at(float(time)), many, strict=True):
            assert one.shape == (4,)
            assert np.allclose(one, all_of_them[k], rtol=1e-13, atol=1e-13)


# -- closed forms by SymPy and SciPy ---------------------------------------------------------------


def by_sympy(expression: sympy.Expr, t: sympy.Symbol, times: np.ndarray) -> list[np.ndarray]:
    return [sympy.lambdify(t, sympy.diff(expression, t, k), "numpy")(times) for k in range(3)]


def test_fourier_is_the_series_of_its_formula() -> None:
    trajectory, t = CASES["fourier"], sympy.Symbol("t")
    times = np.linspace(0, 7.0, 50)
    for j in range(4):
        q = sympy.Float(trajectory.centre[j])
        for k in range(1, 5):
            w = 2 * sympy.pi * k / 7
            q += trajectory.a[j, k - 1] / w * sympy.sin(w * t) - trajectory.b[
                j, k - 1
            ] / w * sympy.cos(w * t)
        for ours, theirs in zip(trajectory.at(times), by_sympy(q, t, times), strict=True):
            assert np.allclose(ours[:, j], theirs, rtol=EXACT, atol=10 * EXACT)


def test_fourier_repeats_its_period() -> None:
    trajectory = CASES["fourier twice"]
    assert trajectory.duration == 6.0
    t = np.linspace(0, 3.0, 40)
    for first, second in zip(trajectory.at(t), trajectory.at(t + 3.0), strict=True):
        assert np.allclose(first, second, atol=1e-12)


def test_at_rest_moves_coefficients_by_the_least() -> None:
    """The nearest point of {Σ a = 0} and {Σ k b = 0}, by NumPy's pseudo-inverse."""
    rng, robot = np.random.default_rng(3), shipped()
    a, b = rng.normal(size=(2, 4, 5))
    fourier = Fourier.at_rest(robot, 5.0, centre=np.zeros(4), a=a, b=b)
    for given, found, row in (
        (a, fourier.a, np.ones((1, 5))),
        (b, fourier.b, np.arange(1.0, 6.0)[None]),
    ):
        assert np.allclose(found, given @ (np.eye(5) - np.linalg.pinv(row) @ row), atol=EXACT)


def test_sinusoids_are_the_windowed_sum_of_their_formula() -> None:
    trajectory, t = CASES["sinusoids"], sympy.Symbol("t")
    x = t / sympy.Rational(3, 2)
    ramps = (10 * x**3 - 15 * x**4 + 6 * x**5, sympy.Integer(1))
    for times, window in (
        (np.linspace(0.01, 1.49, 30), ramps[0]),
        (np.linspace(1.6, 4.4, 30), ramps[1]),
    ):
        for j in range(4):
            terms = zip(
                trajectory.amplitude[j], trajectory.frequency[j], trajectory.phase[j], strict=True
            )
            q = trajectory.centre[j] + window * sum(
                A * sympy.sin(2 * sympy.pi * f * t + phase) for A, f, phase in terms
            )
            for ours, theirs in zip(trajectory.at(times), by_sympy(q, t, times), strict=True):
                assert np.allclose(ours[:, j], theirs, rtol=1e-11, atol=1e-11)


def test_a_move_is_the_polynomial_of_degree_five_that_rests_at_both_ends() -> None:
    """Against SciPy's polynomial from end conditions (BPoly.from_derivatives)."""
    trajectory = CASES["moves"]
    times = np.linspace(0, trajectory.duration, 333)
    for move, begin in enumerate(trajectory._begins):
        end = begin + trajectory.times[move]
        inside = times[(times >= begin) & (times <= end)]
        for j in range(4):
            ends = [[trajectory.points[move + k, j], 0.0, 0.0] for k in (0, 1)]
            poly = BPoly.from_derivatives([begin, end], ends)
            for order, ours in enumerate(trajectory.at(inside)):
                assert np.allclose(
                    ours[:, j],
                    poly.derivative(order)(inside) if order else poly(inside),
                    atol=1e-10,
                )


def test_moves_rest_in_every_point() -> None:
    trajectory = CASES["moves"]
    for k, point in enumerate(trajectory.points):
        arrive = trajectory._begins[k - 1] + trajectory.times[k - 1] if k else 0.0
        for t in np.linspace(arrive, arrive + 0.3, 5):
            q, dq, ddq = trajectory.at(float(t))
            assert np.allclose(q, point, atol=1e-12)
            assert np.allclose([dq, ddq], 0.0, atol=1e-9)


def test_tick_tock_goes_there_and_back() -> None:
    robot, a, b = shipped(), np.zeros(4), np.array([0.1, -0.2, 0.3, -0.4])
    trajectory = tick_tock(robot, a, b, time=2.0, repeats=3)
    assert trajectory.duration == 12.0
    q, _, _ = trajectory.at(2.0 * np.arange(7))
    assert np.allclose(q, np.array([a, b, a, b, a, b, a]))


def test_a_spline_passes_its_points_and_is_smooth_between() -> None:
    trajectory = CASES["spline"]
    assert np.allclose(trajectory.at(trajectory.times)[0], trajectory.points, atol=1e-11)
    h = 1e-4  # third derivatives from either side of every inner point agree
    for t in trajectory.times[1:-1]:
        left = (trajectory.at(t - h)[2] - trajectory.at(t - 2 * h)[2]) / h
        right = (trajectory.at(t + 2 * h)[2] - trajectory.at(t + h)[2]) / h
        assert np.max(np.abs(left - right)) < 1e-2 * np.max(
            np.abs(trajectory.at(np.linspace(0, 5, 100))[2])
        )


def test_a_spline_through_two_points_is_a_move() -> None:
    robot, points = shipped(), np.array([[0.0] * 4, [1.0, -2.0, 0.5, 3.0]])
    spline, move = (
        Spline(robot.joint_names, [0.0, 2.0], points),
        Moves(robot.joint_names, points, [2.0]),
    )
    for a, b in zip(spline.at(np.linspace(0, 2, 50)), move.at(np.linspace(0, 2, 50)), strict=True):
        assert np.allclose(a, b, atol=1e-11)


@pytest.mark.parametrize("family", [FourierFamily, SplineFamily])
@pytest.mark.parametrize("start", [None, np.array([0.1, -0.7, 0.4, 1.0])])
def test_families_are_linear_and_are_what_their_trajectories_are(
    family: type, start: np.ndarray | None
) -> None:
    robot, rng, t = shipped(), np.random.default_rng(0), np.linspace(0, 4.0, 31)
    members = family(robot.joint_names, 4.0, 6, start)
    X = rng.normal(size=(4, members.size))
    trajectory = members.trajectory(X)
    for order, (functions, exact) in enumerate(
        zip(members.functions(t), trajectory.at(t), strict=True)
    ):
        offset = start if order == 0 and start is not None else 0.0
        assert np.allclose(offset + functions @ X.T, exact, atol=1e-11)
    if start is not None:
        assert np.allclose(trajectory.at(0.0)[0], start, atol=1e-12)


# -- samples and files -----------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1000.0, 125.0, 3.7])
def test_samples_are_equally_spaced_from_start_to_end(rate: float) -> None:
    for trajectory in CASES.values():
        motion = trajectory.sampled(rate)
        assert motion.t[0] == 0.0
        assert trajectory.duration * (1 - 1e-12) <= motion.t[-1] < trajectory.duration + 1 / rate
        assert np.allclose(np.diff(motion.t), 1 / rate)
        assert np.allclose(motion.q, trajectory.at(motion.t)[0])


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_a_saved_motion_comes_back(tmp_path, ending: str) -> None:
    robot, motion = shipped(), CASES["fourier"].sampled(200.0)
    back = Motion.load(motion.save(tmp_path / f"motion.{ending}"), robot)
    for name in ("t", "q", "dq", "ddq"):
        assert np.array_equal(getattr(back, name), getattr(motion, name)), name
    assert back.joint_names == robot.joint_names


def test_a_saved_motion_has_the_columns_a_driver_reads(tmp_path) -> None:
    robot, motion = shipped(), CASES["spline"].sampled(50.0)
    table = polars.read_csv(motion.save(tmp_path / "motion.csv"))
    assert table.columns == [
        "t",
        *(f"{kind}.{joint}" for kind in ("q", "dq", "ddq") for joint in robot.joint_names),
    ]
    assert np.array_equal(table[f"dq.{robot.joint_names[2]}"].to_numpy(), motion.dq[:, 2])


def test_a_file_without_accelerations_is_refused(tmp_path) -> None:
    robot, motion = shipped(), CASES["fourier"].sampled(100.0)
    path = motion.save(tmp_path / "motion.csv")
    table = polars.read_csv(path)
    table.select([c for c in table.columns if not c.startswith("ddq")]).write_csv(path)
    with pytest.raises(MalformedInput, match=r"no ddq\.<joint> columns"):
        Motion.load(path, robot)


def test_a_file_in_two_runs_is_refused(tmp_path) -> None:
    robot, motion = shipped(), CASES["fourier"].sampled(100.0)
    t = motion.t + 5.0 * (motion.t > 3.0)
    path = Motion(t, motion.q, motion.dq, motion.ddq, motion.joint_names).save(
        tmp_path / "motion.csv"
    )
    with pytest.raises(MalformedInput, match="2 runs"):
        Motion.load(path, robot)


# -- refusals --------------------------------------------------------------------------------------

NAMES = ("a", "b")
ZERO, FLAT = np.zeros(2), np.zeros((2, 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Fourier(NAMES, 0.0, ZERO, FLAT, FLAT), "period is 0.0"),
        (lambda: Fourier(NAMES, -1.0, ZERO, FLAT, FLAT), "period is -1.0"),
        (lambda: Fourier(NAMES, float("nan"), ZERO, FLAT, FLAT), "period is nan"),
        (lambda: Fourier(NAMES, 1.0, ZERO, FLAT + 1.0, FLAT), "Σ a_k of joint 'a' is not zero"),
        (lambda: Fourier(NAMES, 1.0, ZERO, FLAT, FLAT + 1.0), "Σ k·b_k of joint 'a' is not zero"),
        (lambda: Fourier(NAMES, 1.0, ZERO, FLAT, np.zeros((2, 4))), "b has shape"),
        (lambda: Fourier(NAMES, 1.0, ZERO, FLAT, FLAT, 0), "periods is 0"),
        (
            lambda: Fourier.at_rest(
                shipped(), 1.0, centre=np.zeros(4), a=np.ones((4, 1)), b=np.ones((4, 1))
            ),
            "at least two harmonics",
        ),
        (lambda: Sinusoids(NAMES, 3.0, ZERO, FLAT, FLAT, FLAT, 2.0), "ramp is 2 s"),
        (lambda: Sinusoids(NAMES, 0.0, ZERO, FLAT, FLAT, FLAT, 2.0), "duration is 0.0"),
        (lambda: Moves(NAMES, np.zeros((1, 2)), []), "two"),
        (lambda: Moves(NAMES, np.zeros((2, 2)), [0.0]), "time is 0.0"),
        (lambda: Spline(NAMES, [0.0, 0.0], np.zeros((2, 2))), "ascending"),
        (lambda: Spline(NAMES, [1.0, 2.0], np.zeros((2, 2))), "from 0 on"),
        (lambda: Spline(NAMES, [0.0, 1.0], np.full((2, 2), np.inf)), "all finite"),
        (lambda: FourierFamily(NAMES, 1.0, 1), "harmonics is 1"),
        (lambda: SplineFamily(NAMES, 1.0, 2), "points is 2"),
        (lambda: CASES["moves"].sampled(0.0), "rate is 0.0"),
        (lambda: CASES["moves"].sampled(1e12), "more than"),
        (lambda: CASES["moves"].at(np.nan), "t is nan"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        Motion.load(tmp_path / "nowhere.csv", shipped())


def test_floating_bases_are_refused(tmp_path) -> None:
    from thetahat import robots

    robot = th.load(robots.path("arm4"), floating_base=True)
    with pytest.raises(UsageError, match="6 degrees of freedom"):
        Motion.load(tmp_path / "motion.csv", robot)
