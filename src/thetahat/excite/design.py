"""The design of a motion: the one of a family that shows a robot's parameters best inside all
limits.

Many motions at random start a search each; the better half goes on at every stage, as the barrier
before the limits thins. The best is scaled so that it keeps every limit at every millisecond. The
search ends by counts of motions and iterations, so that the seed alone decides the result; the time
limit is far off, and a design that it ends says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.errors import NotIdentifiable, UsageError, check_count, check_positive, known
from thetahat.excite.bases import Family, FourierFamily, SplineFamily
from thetahat.excite.evaluation import Excitation, MotionCheck, Workspace, check_motion
from thetahat.excite.evaluation import excitation as excitation
from thetahat.excite.initial_guess import check_start, poses, random_coefficients, restored, used
from thetahat.excite.measurement_noise import MeasurementNoise, measurement_noise
from thetahat.excite.motion_limits import Margin, MotionLimits, motion_limits
from thetahat.excite.objective import CRITERIA, Problem
from thetahat.excite.payload_objective import payload_problem
from thetahat.excite.prior_information import prior_information
from thetahat.excite.search import Budget, Climb, climb, is_inside
from thetahat.excite.trajectory import Trajectory, joint_array, require_plain
from thetahat.identification import factor as f
from thetahat.identification.identifiability.base_parameters import base_parameters
from thetahat.identification.information import Information, robot_key
from thetahat.model.robot import Robot

INSIDE = 0.8  # of the scale at which a random motion meets its first limit, where a search begins
# Stages of the search: the barrier's weights with the iterations given to each, and the part of the
# motions that goes on from it.
STAGES = (
    (((0.1, 20), (0.03, 30)), 0.35),
    (((0.01, 40),), 0.5),
    (((0.003, 40), (0.001, 40)), 0.0),
)
BEGIN = 0.3  # of the time limit, in which searches are started
TIME_LIMIT = 600.0  # [s], about twenty times what an arm of seven joints takes
# times that limits are tightened where a motion takes too much of them between two samples of the
# grid
TIGHTENED = 4
MOST_STARTS = 10_000
GROW = 1.1  # how much larger than found a motion may become in the end


@dataclass(frozen=True)
class Progress:
    """How far a design is."""

    criterion: float  # of the best motion so far: log det of its information, or condition number
    left: float  # [s] until the time limit
    done: float  # part of the work, 0 to 1
    evaluations: int


@dataclass(frozen=True)
class SearchRecord:
    """How a design was searched."""

    evaluations: int  # of the criterion or its gradient
    seconds: float
    # whether no search was ended by the time limit; only then does the seed alone decide the result
    complete: bool


@dataclass(frozen=True, eq=False)
class Design:
    """A motion, what it shows, and how near it comes to its limits."""

    trajectory: Trajectory
    criterion: str  # "log-det" or "condition"
    excitation: Excitation
    limits: MotionLimits
    check: MotionCheck  # how near it comes to them, and the space it takes
    noise: MeasurementNoise
    search: SearchRecord
    notes: tuple[str, ...]  # a sentence for everything that was assumed

    @property
    def margins(self) -> tuple[Margin, ...]:
        """The nearest to each kind of limit, at every millisecond."""
        return self.check.margins

    @property
    def workspace(self) -> Workspace:
        """The space that the motion takes."""
        return self.check.workspace

    @property
    def information(self) -> Information:
        """What the motion alone shows."""
        return self.excitation.information

    @property
    def log_det(self) -> float:
        """Of the information in base parameters, earlier logs included."""
        return self.excitation.log_det

    @property
    def condition(self) -> float:
        """Of the column-scaled base regressor, earlier logs included."""
        return self.excitation.condition

    @property
    def evaluations(self) -> int:
        """Of the criterion or its gradient."""
        return self.search.evaluations

    @property
    def seconds(self) -> float:
        """That the design took."""
        return self.search.seconds

    @property
    def complete(self) -> bool:
        """Whether the time limit ended no search, so that the seed alone decides the result."""
        return self.search.complete

    def __str__(self) -> str:
        head = (
            f"motion of {self.trajectory.duration:g} s for {len(self.trajectory.joint_names)}"
            f" joints: condition {self.condition:.3g}, log det {self.log_det:.4g},"
            f" {self.evaluations} evaluations in {self.seconds:.1f} s"
        )
        lines = (*self.margins, self.workspace, *self.notes)
        return "\n".join([head, *(f"  {line}" for line in lines)])


def design(
    robot: Robot,
    *,
    duration: float = 10.0,
    harmonics: int = 5,
    points: int | None = None,
    start: np.ndarray | None = None,
    limits: MotionLimits | None = None,
    criterion: str = "log-det",
    noise: float | Sequence[float] | np.ndarray | None = None,
    encoder_noise: float | Sequence[float] | np.ndarray | None = None,
    prior_spread: float | None = None,
    earlier: Information | None = None,
    rate: float = 100.0,
    starts: int = 24,
    seconds: float = TIME_LIMIT,
    seed: int = 0,
    payload_link: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Design:
    """Return the motion that shows most of the robot's base parameters inside all limits.

    Args:
        robot: its drive says which friction columns count; its parameters predict the torques.
        duration: of the motion [s].
        harmonics: of a Fourier series over the duration, which starts and ends at rest in one pose.
        points: a spline through so many points instead, from rest to rest.
        start: the pose (nv,) to start from; anywhere inside the limits where it is not given.
        limits: those of the robot file, by `motion_limits`, where they are not given.
        criterion: "log-det" of the information, made large, or the "condition" number of the
            column-scaled base regressor, made small.
        noise: standard deviation of torques, of each joint or all; default: 1 % of their limits.
        encoder_noise: standard deviation of the positions [rad or m], from which accelerations are
            derived; 1e-4 rad where it is not given, zero for accelerations without noise.
        prior_spread: how well the robot's own inertial parameters are known, such as 0.3 for 30 %;
            the motion then shows most of what they leave open (Bayesian D-optimality).
        earlier: what earlier logs showed; the motion is then the one that adds most to it.
        rate: samples per second of the log to come, which counts beside earlier logs.
        starts: how many random motions start a search; the time that it takes grows with it.
        seconds: time limit; where it ends a search, the result depends on the machine (`notes`).
        seed: of the random motions; it alone decides the result where the time limit is not met.
        payload_link: design for the ten numbers of what this link holds, the robot's own known.
        progress: called with a `Progress` after every step.

    """
    began = time.monotonic()
    budget = _budget(began, seconds, starts, seed)
    family = _family(robot, duration, harmonics, points, start)
    prior = None if prior_spread is None else prior_information(robot, prior_spread)
    problem, notes = planned(
        robot, family, limits=limits, criterion=criterion, noise=noise,
        encoder_noise=encoder_noise, prior=prior, earlier=earlier, rate=rate
    )  # fmt: skip
    problem, notes = _for_payload(problem, notes, payload_link)
    X = _improved(problem, np.random.default_rng(seed), starts, budget, progress)
    if budget.cut:
        said = f"the time limit of {seconds:g} s ended the search: give it more or fewer starts"
        notes += (said,)
    record = SearchRecord(budget.evaluations, time.monotonic() - began, not budget.cut)
    return _result(problem, X, record, notes, earlier=earlier, prior=prior)


def _for_payload(
    problem: Problem, notes: tuple[str, ...], link: str | None
) -> tuple[Problem, tuple[str, ...]]:
    """The problem of what a link holds, where one is named."""
    if link is None:
        return problem, notes
    said = f"for a payload on {link}, of a robot that is known or logged without"
    return payload_problem(problem, link), (*notes, said)


def _budget(began: float, seconds: float, starts: int, seed: int) -> Budget:
    check_positive("seconds", seconds, "the time limit of the design [s]")
    check_count("starts", starts, "how many random motions start a search", most=MOST_STARTS)
    check_count("seed", seed, "the seed of the random motions", least=0)
    return Budget(began + seconds, began + BEGIN * seconds)


def _improved(
    problem: Problem,
    rng: np.random.Generator,
    starts: int,
    budget: Budget,
    progress: Callable[[Progress], None] | None,
) -> np.ndarray:
    """Coefficients of the best motion."""
    if problem.family.start is not None:
        check_start(problem, problem.family.start)
    with f.blas_threads().limit(limits=1, user_api="blas"):
        climbs = _begin(problem, rng, starts, budget)
        best = _search(problem, climbs, budget, _reporter(problem, budget, progress))
        return _kept(problem, best, budget)


def _result(
    problem: Problem,
    X: np.ndarray,
    search: SearchRecord,
    notes: tuple[str, ...],
    *,
    earlier: Information | None,
    prior: np.ndarray | None,
) -> Design:
    robot, trajectory = problem.robot, problem.family.trajectory(X)
    return Design(
        trajectory=trajectory,
        criterion=problem.criterion,
        excitation=excitation(
            robot, trajectory, problem.noise, rate=problem.rate, earlier=earlier, prior=prior
        ),
        limits=problem.limits,
        check=check_motion(robot, problem.limits, trajectory),
        noise=problem.noise,
        search=search,
        notes=notes,
    )


def planned(
    robot: Robot,
    family: Family,
    *,
    limits: MotionLimits | None = None,
    criterion: str = "log-det",
    noise: float | Sequence[float] | np.ndarray | None = None,
    encoder_noise: float | Sequence[float] | np.ndarray | None = None,
    prior: np.ndarray | None = None,
    earlier: Information | None = None,
    rate: float = 100.0,
) -> tuple[Problem, tuple[str, ...]]:
    """The problem a design solves, checked, and what was assumed."""
    require_plain(robot)
    if criterion not in CRITERIA:
        raise UsageError(f"criterion is {criterion!r}; criteria: {known(CRITERIA)}")
    limits = motion_limits(robot) if limits is None else limits
    if limits.joint_names != robot.joint_names:
        raise UsageError(
            f"the limits are of joints {known(limits.joint_names)}; robot {robot.name!r} has"
            f" {known(robot.joint_names)}"
        )
    if not len(base_parameters(robot).strong):
        raise NotIdentifiable(
            f"no motion shows any parameter of robot {robot.name!r}; give its links mass, or let"
            " friction be identified"
        )
    sigma, notes = measurement_noise(
        robot,
        limits.torque,
        torque=noise,
        position=encoder_noise,
        rate=rate,
        highest=family.highest_frequency,
    )
    known_already = prior
    if earlier is not None:
        if earlier.key != robot_key(robot):
            raise UsageError(
                f"the earlier information is of another robot than {robot.name!r}: geometry,"
                " gravity or drive columns differ; fold that log with this robot"
            )
        R = earlier.stacked(1.0 / sigma.torque)[:, :-1]
        known_already = R.T @ R + (0.0 if prior is None else prior)
    return Problem(robot, family, limits, criterion, sigma, float(rate), known_already), (
        *limits.notes,
        *notes,
    )


def random_motion(
    problem: Problem, rng: np.random.Generator, *, together: bool = True
) -> Trajectory:
    """A motion at random about the middle of the limits, scaled up to the first limit it meets at
    any millisecond: what a design is to beat.

    together: one scale for all joints; else each joint is scaled to its own limits first, which
        makes much better random motions.
    """
    with f.blas_threads().limit(limits=1, user_api="blas"):
        start = problem.family.start
        pose = poses(problem, rng, 1)[0] if start is None else start
        X = restored(problem, random_coefficients(problem, rng, pose, together=together), most=GROW)
    if X is None:
        raise NotIdentifiable(
            f"limits leave robot {problem.robot.name!r} no room to move from a pose that it can"
            " hold; give it more room"
        )
    return problem.family.trajectory(X)


# -- parts of a design -----------------------------------------------------------------------------


def _family(
    robot: Robot, duration: float, harmonics: int, points: int | None, start: np.ndarray | None
) -> Family:
    require_plain(robot)
    if start is not None:
        start = joint_array(
            "start", start, (robot.nv,), f"({robot.nv},), one position per joint of {robot.name!r}"
        )
    if points is not None:
        return SplineFamily(robot.joint_names, duration, points, start)
    return FourierFamily(robot.joint_names, duration, harmonics, start)


def _begin(problem: Problem, rng: np.random.Generator, starts: int, budget: Budget) -> list[Climb]:
    """Random motions well inside their limits; those that show everything."""
    robot, family = problem.robot, problem.family
    centres = (
        poses(problem, rng, starts) if family.start is None else np.tile(family.start, (starts, 1))
    )
    climbs: list[Climb] = []
    X = np.zeros((robot.nv, family.size))
    for pose in centres:
        X = random_coefficients(problem, rng, pose, together=False)
        X[:, family.moving] *= INSIDE
        look = problem.look(X)
        budget.evaluations += 1
        if is_inside(look):
            climbs.append(Climb(look))
        if climbs and len(climbs) < len(centres) and budget.late:
            break
    if not climbs:
        shown = excitation(robot, family.trajectory(X), problem.noise).information
        missing = shown.missing()
        reason = (
            f"it shows {shown.rank} of {len(shown.base)} base parameters ({missing[0]})"
            if missing
            else "limits leave it no room to move"
        )
        raise NotIdentifiable(
            f"no motion of this kind shows all parameters of {robot.name!r}: {reason}; give more"
            " time, harmonics or room, or say how well the file knows them (prior spread)"
        )
    return climbs


def _search(
    problem: Problem, climbs: list[Climb], budget: Budget, report: Callable[[float], None]
) -> Climb:
    """Improve all, then the better ones, and return the best."""
    total, done, left = 0.0, 0.0, len(climbs)
    for rungs, keep in STAGES:
        total += left * sum(iterations for _, iterations in rungs)
        left = max(1, round(keep * left))
    for rungs, keep in STAGES:
        for at in climbs:
            for mu, iterations in rungs:
                budget.progress = lambda _, done=done: report(done / total)
                climb(problem, at, mu=mu, iterations=iterations, budget=budget)
                done += iterations
        climbs = sorted(climbs, key=lambda at: at.look.value)
        if keep:
            climbs = climbs[: max(1, round(keep * len(climbs)))]
    return climbs[0]


def _kept(problem: Problem, best: Climb, budget: Budget) -> np.ndarray:
    """The best motion made to keep every limit at every millisecond, not at the grid alone.

    Where it does not yet: from the last motion on its way that keeps limits tighter by what was too
    much, the search goes on under those.
    """
    X, now = best.look.X, problem
    for _ in range(TIGHTENED):
        excess = used(problem, X)
        if excess <= 1.0:
            break
        now = replace(now, tight=now.tight * excess * (1.0 + 1e-3))
        inside = next(
            (look for look in map(now.look, reversed(best.history)) if is_inside(look)), None
        )
        if inside is None:
            break
        again = Climb(inside)
        for mu in (0.01, 0.001):
            climb(now, again, mu=mu, iterations=15, budget=budget)
        X = again.look.X
    for candidate in (X, *reversed(best.history)):
        kept = restored(problem, candidate, most=GROW if problem.criterion == "log-det" else 1.0)
        if kept is not None:
            return kept
    raise NotIdentifiable(
        f"no motion of robot {problem.robot.name!r} that was tried keeps all limits at every"
        " millisecond; give it more room"
    )


def _reporter(
    problem: Problem, budget: Budget, progress: Callable[[Progress], None] | None
) -> Callable[[float], None]:
    """What the search calls after every step."""

    def report(done: float) -> None:
        if progress is None:
            return
        value = -2.0 * len(problem.columns) * budget.best
        if problem.criterion != "log-det":
            value = float(np.exp(budget.best))
        left = max(0.0, budget.deadline - time.monotonic())
        progress(Progress(value, left, done, budget.evaluations))

    return report
