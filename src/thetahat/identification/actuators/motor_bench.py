"""A motor on a test bench: winding, friction law and rotor from a pendulum of known mass.

The equations are in kernels/pendulum_simulation.py. The fit minimises the difference between
measured positions and those of whole runs that are simulated from their first row, robustly, over
the parameters' logarithms where these are positive. Terms of the friction law beyond Coulomb and
viscous friction must lower the error of runs that a fit has not seen.

Torque is kt·V/R − (kt²/R)·q̇, so that driven runs tell kt/R, by the weight that is lifted, and the
sum of kt²/R and viscous friction; only a motor that is switched off while it swings tells one from
the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from thetahat.dynamics.batch import kernels

# In the order of the kernel's columns.
NAMES = (
    *("kt", "R", "armature", "bias", "delay", "coulomb", "viscous", "stribeck", "stribeck_speed"),
    *("load", "load_driving", "load_driven", "load_squared", "load_stribeck", "quadratic", "warm"),
)
BASE = ("kt", "R", "armature", "bias", "delay", "coulomb", "viscous")
# Terms that must earn their place; terms of one group are tried together.
TERMS = {
    "stribeck": ("stribeck", "stribeck_speed"),
    "load": ("load",),
    "directional load": ("load_driving", "load_driven"),
    "load at low speed": ("load_stribeck", "stribeck_speed"),
    "squared load": ("load_squared",),
    "quadratic": ("quadratic",),
    "temperature": ("warm",),
}
# where a fit begins, its smallest and its largest value
RANGES = {
    "kt": (0.5, 0.01, 20.0),
    "R": (4.0, 0.05, 200.0),
    "armature": (2e-3, 1e-7, 1.0),
    "bias": (0.0, -0.3, 0.3),
    "delay": (5e-3, 0.0, 0.1),
    "coulomb": (0.02, 0.0, 10.0),
    "viscous": (5e-3, 0.0, 10.0),
    "stribeck": (0.01, 0.0, 10.0),
    "stribeck_speed": (0.5, 0.02, 10.0),
    "load": (0.05, 0.0, 0.9),
    "load_driving": (0.05, 0.0, 0.9),
    "load_driven": (0.05, 0.0, 0.9),
    "load_squared": (0.02, 0.0, 10.0),
    "load_stribeck": (0.05, 0.0, 0.9),
    "quadratic": (1e-3, 0.0, 10.0),
    "warm": (0.0, -0.05, 0.05),
}
UNITS = {
    **{"kt": "N·m/A", "R": "Ω", "armature": "kg·m²", "bias": "rad", "delay": "s"},
    **{"coulomb": "N·m", "viscous": "N·m·s/rad", "stribeck": "N·m", "stribeck_speed": "rad/s"},
    **{"load": "N·m/(N·m)", "load_driving": "N·m/(N·m)", "load_driven": "N·m/(N·m)"},
    **{"load_squared": "1/(N·m)", "load_stribeck": "N·m/(N·m)", "quadratic": "N·m·s²/rad²"},
    **{"warm": "1/K"},
}
LOGARITHMIC = ("kt", "R", "armature", "stribeck_speed")
STEP, COARSE_STEP = 2.5e-3, 8e-3  # [s] of the simulation, at most; while laws are compared
ROBUST = 0.02  # [rad] of an error, beyond which it counts less than its square
MOST, FEW = 40, 15  # evaluations of a fit; of one of those that compare laws
EARNED = 0.97  # of the error of runs not fitted, to which a term must lower it
FOLDS = 2
MOST_TERMS = 3  # of a friction law beside Coulomb and viscous friction
# [kt in N·m/A, R in Ω] of servos of some size and of large ones, from where fits begin
STARTS = ((0.4, 4.0), (1.2, 3.0))


@dataclass(frozen=True, eq=False)
class BenchRuns:
    """Runs of a pendulum on one motor; columns of the rows as in the kernel."""

    rows: np.ndarray  # (rows, 8): t, command, q, dq, volts, enabled, temperature, gain of the duty
    first: np.ndarray  # (runs,) first row of every run
    last: np.ndarray  # (runs,) behind the last one
    names: tuple[str, ...]
    step: float = STEP  # [s] of the simulation, at most

    def part(self, runs: Sequence[int]) -> BenchRuns:
        """Return these runs alone."""
        at = list(runs)
        return replace(
            self,
            first=self.first[at],
            last=self.last[at],
            names=tuple(self.names[k] for k in at),
        )

    @property
    def used(self) -> np.ndarray:
        """Positions of the runs' rows."""
        return np.concatenate([np.arange(a, b) for a, b in zip(self.first, self.last, strict=True)])

    @property
    def swings_free(self) -> bool:
        """Whether the motor is switched off somewhere while it moves."""
        rows = self.rows[self.used]
        return bool(np.mean((rows[:, 5] < 0.5) & (np.abs(rows[:, 3]) > 0.1)) > 0.01)


@dataclass(frozen=True)
class Pendulum:
    """What hangs on the motor."""

    inertia: float  # [kg·m²] about the axis
    weight: float  # [N·m] of gravity, held out level


@dataclass(frozen=True, eq=False)
class BenchMotor:
    """Parameters of a motor by name, those that were fitted, and their covariance."""

    values: dict[str, float]
    fitted: tuple[str, ...]
    covariance: np.ndarray | None = None  # of the fitted ones

    def std(self, name: str) -> float | None:
        """Return the standard deviation of a parameter; None where it was not fitted."""
        if self.covariance is None or name not in self.fitted:
            return None
        at = self.fitted.index(name)
        std = float(np.sqrt(self.covariance[at, at]))
        return std if std < RANGES[name][2] - RANGES[name][1] else None  # else the runs do not tell

    @property
    def vector(self) -> np.ndarray:
        """The kernel's columns."""
        return np.array([self.values[name] for name in NAMES])

    @staticmethod
    def start() -> BenchMotor:
        """Return where fits begin: no friction but Coulomb and viscous."""
        values = {name: RANGES[name][0] if name in BASE else 0.0 for name in NAMES}
        return BenchMotor(values | {"stribeck_speed": RANGES["stribeck_speed"][0]}, ())


def simulate(motors: Sequence[BenchMotor], pendulum: Pendulum, runs: BenchRuns) -> np.ndarray:
    """Return positions of the runs' rows, (motors, rows)."""
    out = np.zeros((len(motors), len(runs.rows)))
    sets = np.array([each.vector for each in motors])
    _simulate(sets, pendulum, runs, out)
    return out[:, runs.used]


def _simulate(sets: np.ndarray, pendulum: Pendulum, runs: BenchRuns, out: np.ndarray) -> None:
    kernels().pendulum_simulation.simulate_pendulum(
        sets, pendulum.inertia, pendulum.weight, runs.rows, runs.first, runs.last, runs.step, out
    )


def run_errors(motor: BenchMotor, pendulum: Pendulum, runs: BenchRuns) -> np.ndarray:
    """Return the mean absolute error of every run, (runs,) [rad], simulated from its first row."""
    error = np.abs(simulate([motor], pendulum, runs)[0] - runs.rows[runs.used, 2])
    sizes = runs.last - runs.first
    return np.array([np.mean(part) for part in np.split(error, np.cumsum(sizes)[:-1])])


# -- fit -------------------------------------------------------------------------------------------


def fit(
    runs: BenchRuns,
    pendulum: Pendulum,
    fitted: Sequence[str],
    start: BenchMotor,
    *,
    most: int = MOST,
) -> BenchMotor:
    """Fit these parameters, the others as in `start`."""
    names = tuple(name for name in NAMES if name in fitted)
    x0 = np.array([_seen(name, start.values[name]) for name in names])
    low, high = (np.array([_seen(name, RANGES[name][side]) for name in names]) for side in (1, 2))
    x0 = np.clip(x0, low + 1e-9, high - 1e-9)
    measured, used = runs.rows[runs.used, 2], runs.used
    steps = np.array([_step(name) for name in names])

    def positions(points: np.ndarray) -> np.ndarray:
        out = np.zeros((len(points), len(runs.rows)))
        sets = np.array([_moved(start, names, x).vector for x in points])
        _simulate(sets, pendulum, runs, out)
        simulated: np.ndarray = out[:, used]
        return simulated

    def residual(x: np.ndarray) -> np.ndarray:
        return np.asarray(positions(x[None])[0] - measured)

    def jacobian(x: np.ndarray) -> np.ndarray:
        sign = np.where(x + steps > high, -1.0, 1.0)
        points = x + np.vstack([np.zeros(len(x)), np.diag(sign * steps)])
        q = positions(points)
        out: np.ndarray = ((q[1:] - q[0]) / (sign * steps)[:, None]).T
        return out

    solved = least_squares(
        residual,
        x0,
        jac=jacobian,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=ROBUST,
        x_scale=np.array([_scale(name) for name in names]),
        max_nfev=most,
    )
    motor = replace(_moved(start, names, solved.x), fitted=names)
    covariance = _covariance(residual(solved.x), jacobian(solved.x), runs)
    slopes = np.array([motor.values[n] if n in LOGARITHMIC else 1.0 for n in names])
    return replace(motor, covariance=covariance * np.outer(slopes, slopes))


def _seen(name: str, value: float) -> float:
    return float(np.log(value)) if name in LOGARITHMIC else value


def _step(name: str) -> float:
    """Return the step of a finite difference."""
    return 1e-4 if name in LOGARITHMIC else 1e-5


def _scale(name: str) -> float:
    return 0.3 if name in LOGARITHMIC else max(abs(RANGES[name][0]), 0.01)


def _moved(start: BenchMotor, names: Sequence[str], x: np.ndarray) -> BenchMotor:
    values = dict(start.values)
    for name, value in zip(names, x.tolist(), strict=True):
        values[name] = float(np.exp(value)) if name in LOGARITHMIC else value
    return replace(start, values=values)


def _covariance(residual: np.ndarray, J: np.ndarray, runs: BenchRuns) -> np.ndarray:
    """Return the covariance of what the fit sees: rows of one run are not independent, so each
    run's part of the gradient counts as one draw, where there are enough of them.
    """
    weight = 1.0 / np.sqrt(1.0 + (residual / ROBUST) ** 2)
    H = (J * weight[:, None]).T @ J
    scale = np.sqrt(np.maximum(np.diag(H), 1e-300))
    inverse = np.linalg.pinv(H / np.outer(scale, scale), rcond=1e-10, hermitian=True)
    inverse = inverse / np.outer(scale, scale)
    stops = np.cumsum(runs.last - runs.first)[:-1]
    weighted = weight * residual
    blocks = [
        part.T @ r for part, r in zip(np.split(J, stops), np.split(weighted, stops), strict=True)
    ]
    rows = _correlated_rows(weighted, stops)
    naive = inverse * float(np.mean(weighted**2)) * rows
    if len(blocks) < 4:
        return np.asarray(naive)
    g = np.array(blocks)
    robust = inverse @ (g.T @ g) @ inverse * len(g) / (len(g) - 1.0)
    more = np.sqrt(np.maximum(np.diag(robust) / np.maximum(np.diag(naive), 1e-300), 1.0))
    out: np.ndarray = naive * np.outer(more, more)
    return out


def _correlated_rows(residual: np.ndarray, stops: np.ndarray) -> float:
    """Return how many rows count as one, by the autocorrelation up to its first zero."""
    sizes = []
    for part in np.split(residual, stops):
        x = part - part.mean()
        size = 1 << (2 * len(x) - 1).bit_length()
        spectrum = np.abs(np.fft.rfft(x, size)) ** 2
        r = np.fft.irfft(spectrum)[: len(x)]
        below = np.flatnonzero(r <= 0.0)
        stop = int(below[0]) if len(below) else len(r)
        sizes.append(float(2.0 * r[:stop].sum() / r[0] - 1.0) if r[0] > 0.0 else 1.0)
    return max(1.0, float(np.mean(sizes)))


# -- choice of the law -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BenchFit:
    """The motor, the terms of its friction law that earned their place, and the errors by which
    they did.
    """

    motor: BenchMotor
    terms: tuple[str, ...]
    tried: dict[str, float]  # error of runs not fitted [rad], by law


def identify_motor(
    runs: BenchRuns,
    pendulum: Pendulum,
    *,
    stage: Callable[[str], None] = lambda text: None,
    warm: bool = True,
) -> BenchFit:
    """Fit a motor, and choose its friction law by the error of runs that were not fitted.

    warm: whether friction may depend on the temperature that the runs state.
    """
    base: tuple[str, ...] = BASE if runs.swings_free else tuple(n for n in BASE if n != "viscous")
    stage("fitting the winding and the rotor")
    coarse = replace(runs, step=COARSE_STEP)
    candidates = []
    for kt, resistance in STARTS:
        start = BenchMotor.start()
        values = start.values | {"kt": kt, "R": resistance}
        start = replace(start, values=values if runs.swings_free else values | {"viscous": 0.0})
        candidates.append(fit(coarse, pendulum, base, start))
    motor = min(candidates, key=lambda each: float(np.mean(run_errors(each, pendulum, coarse))))
    folds = min(FOLDS, len(runs.names))
    tried = {"coulomb + viscous": _unseen(coarse, pendulum, base, motor, folds)}
    chosen: list[str] = []
    error = tried["coulomb + viscous"]
    left = [name for name in TERMS if name != "temperature" or warm]
    while left and folds > 1 and len(chosen) < MOST_TERMS:
        errors = {}
        for name in left:
            stage(f"choosing the friction law: {' + '.join([*chosen, name])}")
            fitted, begin = _with_term(base, motor, [*chosen, name])
            errors[name] = _unseen(coarse, pendulum, fitted, begin, folds)
            tried[" + ".join(["coulomb + viscous", *chosen, name])] = errors[name]
        best = min(errors, key=lambda name: errors[name])
        if errors[best] > EARNED * error:
            break
        chosen.append(best)
        error = errors[best]
        left = [name for name in left if name != best and not _overlap(name, best)]
        motor = fit(coarse, pendulum, *_with_term(base, motor, chosen))
    stage("fitting the chosen law")
    motor = fit(runs, pendulum, *_with_term(base, motor, chosen))
    return BenchFit(motor, tuple(chosen), tried)


def _overlap(one: str, other: str) -> bool:
    """Whether two groups of terms are one law written twice."""
    return {one, other} == {"load", "directional load"}


def _with_term(
    base: Sequence[str], motor: BenchMotor, terms: Sequence[str]
) -> tuple[tuple[str, ...], BenchMotor]:
    """Return the parameters to fit with these terms, and where they begin."""
    fitted = dict.fromkeys([*base, *(name for term in terms for name in TERMS[term])])
    values = dict(motor.values)
    for name in fitted:
        if values[name] == 0.0:
            values[name] = RANGES[name][0]
    return tuple(fitted), replace(motor, values=values)


def _unseen(
    runs: BenchRuns, pendulum: Pendulum, fitted: Sequence[str], start: BenchMotor, folds: int
) -> float:
    """Return the mean error of runs that were not fitted, each left out once."""
    if folds < 2:
        return float(np.mean(run_errors(fit(runs, pendulum, fitted, start), pendulum, runs)))
    errors: list[float] = []
    every = np.arange(len(runs.names))
    for fold in range(folds):
        out = every % folds == fold
        motor = fit(runs.part(every[~out]), pendulum, fitted, start, most=FEW)
        errors += run_errors(motor, pendulum, runs.part(every[out])).tolist()
    return float(np.mean(errors))
