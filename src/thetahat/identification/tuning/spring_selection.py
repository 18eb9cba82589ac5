"""Which joints have a spring or a counterbalance: decided joint by joint, by the log's evidence.

Their torque is a function of the joint's own position: k·q of a spring, a·sin q + b·cos q of a
weight or a strut on a lever. Where the axis is horizontal, the centres of mass of the links that
the joint carries make nearly the same torque, and little or nothing is left in the residual; but
then the bodies are far from their file's. Both count in the evidence of the log with the bodies'
prior, each model with the weight of that prior that suits it best:

    gain = max_w log p(u | spring, w) − max_w log p(u | w)

The prior is no stronger than `STRONGEST`: one link of a file that is wrong by a factor is no
spring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from thetahat.data.samples import Samples
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.tuning.cross_validation import CrossValidation, Pieces
from thetahat.identification.tuning.gaussian_fit import (
    FreedColumns,
    GaussianFit,
    GaussianProblem,
)
from thetahat.identification.tuning.prior_strength import WEIGHTS
from thetahat.model.friction_terms import spring, spring_cosine, spring_sine
from thetahat.model.robot import Robot

EVIDENCE = 5.0  # [nats] ten on the scale of the Bayesian information criterion [Kass1995]
WORTH = 2.5  # standard deviations of its value, at least
STRONGEST = 10.0  # weight of the prior: robot files are wrong by a third
SPRING, COUNTERBALANCE = ("spring",), ("spring_sine", "spring_cosine")
MAKE = {"spring": spring, "spring_sine": spring_sine, "spring_cosine": spring_cosine}


@dataclass(frozen=True)
class Spring:
    """A spring or counterbalance of one motor."""

    motor: int
    terms: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SpringEvidence:
    """The rows of a log with the columns of every spring, and the evidence of some of them."""

    pieces: Pieces
    sigma: np.ndarray  # (nv,) noise of every joint [N·m or N]

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """Weights of the prior that are compared."""
        return tuple(w for w in WEIGHTS if w <= STRONGEST)

    @cached_property
    def whole(self) -> GaussianProblem:
        """All rows."""
        return self.pieces.model.problem(self.pieces.whole, self.sigma)

    def places(self, spring: Spring) -> np.ndarray:
        """Positions in x of a spring's values."""
        columns = self.pieces.model.columns
        motors = list(columns.drive.column_motors)
        starts = [columns.drive.identified.index(term) * len(motors) for term in spring.terms]
        return np.array(starts) + columns.inertial + motors.index(spring.motor)

    def fits(
        self, springs: Sequence[Spring], problem: GaussianProblem | None = None
    ) -> list[GaussianFit]:
        """Return the fits with these springs, one for every weight of the prior."""
        chosen = [k for each in springs for k in self.places(each)]
        without = np.setdiff1d(self.pieces.model.columns.of_position, chosen)
        return [(problem or self.whole).fit(w, without=without) for w in self.weights]

    def added(self, fits: Sequence[GaussianFit], spring: Spring) -> FreedColumns:
        """Return what a spring adds to these fits, each with the weight that suits it best."""
        before = [fit.log_evidence() for fit in fits]
        with_it = [fit.freed(self.places(spring)) for fit in fits]
        best = int(np.argmax([e + each.gain for e, each in zip(before, with_it, strict=True)]))
        return replace(with_it[best], gain=before[best] + with_it[best].gain - max(before))

    def left_out(self) -> Iterable[GaussianProblem]:
        """Yield the rows without each block of every way of cutting the log."""
        for cut in self.pieces.cuts():
            left = self.pieces.fitted.sums.without(cut.used)
            yield from self.pieces.model.problems(left, self.sigma)


def choose_springs(
    validation: CrossValidation, robot: Robot, samples: Samples
) -> tuple[Robot, list[str]]:
    """Return the robot with the springs of joints whose log shows them, and why.

    One after another is added, that with the most evidence first, until none has enough. Each must
    be worth `WORTH` of its standard deviations and have evidence whichever block of the log is left
    out, and held-out blocks must be predicted no worse with them.
    """
    robot = replace(robot, drive=robot.drive.without_springs())
    actuation = robot.drive.actuation
    if samples.q.shape[1] != robot.nv or (actuation is not None and not actuation.constant):
        return robot, []
    pieces = validation.pieces(with_springs(robot, _every(robot)), samples)
    evidence = SpringEvidence(pieces, pieces.noise(WEIGHTS[0]))
    springs, gains = _greedy(evidence)
    stable = [k for k in range(len(springs)) if _stable(evidence, springs, k)]
    if not stable:
        return robot, []
    tried = with_springs(robot, [springs[k] for k in stable])
    before, after = (validation.predict(each, samples) for each in (robot, tried))
    if after.gain(before)[0] < 0.0:
        return robot, []
    names = dict(zip(robot.drive.column_motors, pieces.model.columns.motor_names, strict=True))
    return tried, [
        f"{_kind(springs[k])} at {names[springs[k].motor]}: log-evidence +{gains[k]:.0f}"
        for k in stable
    ]


def with_springs(robot: Robot, springs: Iterable[Spring]) -> Robot:
    """Return the robot with these springs to identify."""
    shares: dict[str, np.ndarray] = {}
    for each in springs:
        for term in each.terms:
            share = shares.setdefault(term, np.zeros(len(robot.drive.viscous)))
            share[each.motor] = 1.0
    drive = robot.drive
    for term, make in MAKE.items():
        if term in shares:
            drive = drive.with_extra_term(make(shares[term]))
    return replace(robot, drive=drive)


def _every(robot: Robot) -> list[Spring]:
    """Springs of all motors with columns, counterbalances of those that turn."""
    drive, slides = robot.drive, Columns(robot).sliding_motors
    springs = [Spring(motor, SPRING) for motor in drive.column_motors]
    pairs = zip(drive.column_motors, slides, strict=True)
    return springs + [Spring(motor, COUNTERBALANCE) for motor, sliding in pairs if not sliding]


def _greedy(evidence: SpringEvidence) -> tuple[list[Spring], list[float]]:
    """Springs with enough evidence, the clearest first, and their gains."""
    springs, gains = list[Spring](), list[float]()
    left = _every(evidence.pieces.model.columns.robot)
    while left:
        fits = evidence.fits(springs)
        found = [evidence.added(fits, each).gain for each in left]
        best = int(np.argmax(found))
        if found[best] <= EVIDENCE:
            break
        springs.append(left.pop(best))
        gains.append(found[best])
    return springs, gains


def _stable(evidence: SpringEvidence, springs: Sequence[Spring], k: int) -> bool:
    """Whether a spring beside the others has evidence and a clear value, whichever block is left
    out.
    """
    others = [each for j, each in enumerate(springs) if j != k]
    for problem in (evidence.whole, *evidence.left_out()):
        added = evidence.added(evidence.fits(others, problem), springs[k])
        if added.gain <= 0.0 or added.worth < WORTH:
            return False
    return True


def _kind(spring: Spring) -> str:
    return "Spring" if spring.terms == SPRING else "Counterbalance"
