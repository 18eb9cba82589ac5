"""Steps of a robot's inertial parameters: when, on which link, and how much mass.

All inertial base parameters of a period are one vector b_t with its covariance C_t. With what
scatters from period to period on the diagonal, V_t = C_t + diag τ², the difference of the means
before and after k is d_k, with covariance S_k = (Σ_before V⁻¹)⁻¹ + (Σ_after V⁻¹)⁻¹, and

    k = argmax d_kᵀ S_k⁻¹ d_k,       body = argmin over i of  min_θ (d − G_i θ)ᵀ S⁻¹ (d − G_i θ) +
    2·rank G_i

A payload on body i changes the base parameters by G_i·θ (parameter_series.py), so the body that
leaves least unexplained carries it [Akaike1974].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.fleet import changes
from thetahat.fleet.changes import FEWEST, SHORTEST, Change
from thetahat.fleet.parameter_series import INERTIAL, PAYLOAD, RANK, Parameter, Space, series_of
from thetahat.fleet.period_estimates import PeriodEstimate, payload_map
from thetahat.model.parameters import FIRST_MOMENT, M

KINDS = ("step", "spell")
MANY = 3 * SHORTEST  # periods, from which on there can be a spell
ROUNDS = 3  # in which the two ends of a spell are looked for in turn
CLEAR = 5.0  # standard deviations of a mass, from which on its centre is told


@dataclass(frozen=True, eq=False)
class Event:
    """A step."""

    at: int  # first period after it
    body: int  # that explains it best
    mass: Change | None  # of a payload on that body; None where the motion does not show its mass
    com: np.ndarray | None  # (3,) [m] of the payload, in the body's frame
    clearest: tuple[Parameter, Change]  # the base parameter that changed the most
    chance: float


def find_events(
    space: Space, periods: Sequence[PeriodEstimate], *, chance: float | None, level: float
) -> list[Event]:
    """Return all steps of a robot that is known to have one, in order.

    level: probability of a further one by chance, halved at each division.
    """
    known = _Vectors.of(space, periods)
    if known is None or chance is None:
        return []
    out: list[tuple[int, float]] = []
    _divide(known, (0, len(known.rows)), chance, level / 2.0, out)
    cuts = [0, *sorted(at for at, _ in out), len(known.rows)]
    chances = dict(out)
    return [
        _event(space, periods, known, (a, k, b), chances[k])
        for a, k, b in zip(cuts, cuts[1:], cuts[2:], strict=False)
    ]


def _divide(
    known: _Vectors,
    span: tuple[int, int],
    chance: float,
    level: float,
    out: list[tuple[int, float]],
) -> None:
    """Note the step of a stretch, or both ends of a spell, then those in what they leave."""
    cuts = known.best(span)
    out += [(at, chance) for at in cuts]
    for part in zip((span[0], *cuts), (*cuts, span[1]), strict=True):
        again = known.chance(part)
        if again is not None and again <= level:
            _divide(known, part, again, level / 2.0, out)


@dataclass(frozen=True, eq=False)
class _Vectors:
    """The inertial base parameters that most periods show, of the periods that show all of them."""

    rows: np.ndarray  # (T,) numbers of these periods
    b: np.ndarray  # (T, n)
    precision: np.ndarray  # (T, n, n) V⁻¹
    # base parameters and masses on links
    series: tuple[tuple[Parameter, np.ndarray, np.ndarray], ...]
    places: np.ndarray  # (n,) of b in the base

    @staticmethod
    def of(space: Space, periods: Sequence[PeriodEstimate]) -> _Vectors | None:
        """None where too few periods show all."""
        every = [
            (parameter, *series_of(parameter, periods))
            for parameter in space.parameters
            if parameter.kind in (INERTIAL, PAYLOAD)
        ]
        often = max((int(np.sum(np.isfinite(y))) for _, y, _ in every), default=0)
        # what motion seldom shows would cost the rest
        looked = [each for each in every if 2 * int(np.sum(np.isfinite(each[1]))) > often]
        if not any(parameter.kind == INERTIAL for parameter, _, _ in looked):
            return None
        rows = np.flatnonzero(np.all([np.isfinite(y) for _, y, _ in looked], axis=0))
        if len(rows) < FEWEST:
            return None
        shown = [periods[int(k)] for k in rows]
        series = tuple((parameter, y[rows], v[rows]) for parameter, y, v in looked)
        places = np.array(
            [
                int(np.argmax(parameter.w))
                for parameter, _, _ in series
                if parameter.kind == INERTIAL
            ]
        )
        tau = np.array([_scatter(y, v) for parameter, y, v in series if parameter.kind == INERTIAL])
        b = np.array([each.x_base[places] for each in shown])
        precision = np.array(
            [
                np.linalg.pinv(
                    each.covariance[np.ix_(places, places)] + np.diag(tau), hermitian=True
                )
                for each in shown
            ]
        )
        return _Vectors(rows, b, precision, series, places)

    def chance(self, span: tuple[int, int]) -> float | None:
        """Of the clearest step in a stretch, times the parameters that were looked at."""
        chances = [change.chance for change in self._changes(span, KINDS)]
        return min(1.0, len(chances) * min(chances)) if chances else None

    def _changes(self, span: tuple[int, int], kinds: tuple[str, ...]) -> list[Change]:
        """The best change of every parameter in a stretch that is long enough."""
        part, times = slice(*span), np.arange(span[1] - span[0])
        each = (
            changes.best_change(y[part], v[part], times, kinds=kinds) for _, y, v in self.series
        )
        return [change for change in each if change is not None]

    def best(self, span: tuple[int, int]) -> tuple[int, ...]:
        """Where in a stretch the step is, or where the spell begins and ends."""
        first, stop = span
        at = max(
            range(first + SHORTEST, stop - SHORTEST + 1),
            key=lambda k: self.difference(first, k, stop)[2],
        )
        spell = self._spell(span)
        if spell is None:
            return (at,)
        gain = self._inside(*spell, span) - self.difference(first, at, stop)[2]
        return spell if gain > np.log(stop - first) else (at,)

    def _spell(self, span: tuple[int, int]) -> tuple[int, int] | None:
        """The clearest spell of any parameter, its ends then moved to where all parameters want
        them.
        """
        first, stop = span
        spells = self._changes(span, ("spell",)) if stop - first >= MANY else []
        if not spells:
            return None
        best = min(spells, key=lambda change: change.chance)
        k, end = first + best.at, first + best.end
        for _ in range(ROUNDS):
            before = k, end
            starts = range(first + SHORTEST, end - SHORTEST + 1)
            k = starts[int(np.argmax([self._inside(start, end, span) for start in starts]))]
            ends = range(k + SHORTEST, stop - SHORTEST + 1)
            end = ends[int(np.argmax([self._inside(k, other, span) for other in ends]))]
            if before == (k, end):
                break
        return k, end

    def _inside(self, k: int, end: int, span: tuple[int, int]) -> float:
        """dᵀS⁻¹d of the mean inside a spell and that before and after it."""
        outside = np.r_[span[0] : k, end : span[1]]
        return _distance(self._mean(outside), self._mean(np.arange(k, end)))[2]

    def difference(self, first: int, at: int, stop: int) -> tuple[np.ndarray, np.ndarray, float]:
        """(d, S⁻¹, dᵀS⁻¹d) of the means before and after a period."""
        return _distance(self._mean(np.arange(first, at)), self._mean(np.arange(at, stop)))

    def _mean(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, its inverse covariance) over some periods."""
        whole = np.sum(self.precision[rows], axis=0)
        return (
            np.linalg.solve(whole, np.einsum("tij,tj->i", self.precision[rows], self.b[rows])),
            whole,
        )


def _distance(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, float]:
    """(d, S⁻¹, dᵀS⁻¹d) of two means; (A⁻¹ + B⁻¹)⁻¹ = A (A + B)⁻¹ B."""
    (a, A), (b, B) = one, other
    inverse = A @ np.linalg.solve(A + B, B)
    return b - a, inverse, float((b - a) @ inverse @ (b - a))


def _scatter(y: np.ndarray, v: np.ndarray) -> float:
    """τ² around the parameter's own clearest step."""
    change = changes.best_change(y, v, np.arange(len(y)), kinds=KINDS)
    return change.scatter**2 if change is not None else 0.0


def _event(
    space: Space,
    periods: Sequence[PeriodEstimate],
    known: _Vectors,
    cut: tuple[int, int, int],
    chance: float,
) -> Event:
    """What a step is, from the stretches on both sides of it."""
    d, inverse, _ = known.difference(*cut)
    fits = list(_explained(space, known.places, d, inverse))
    body, theta = min(fits, key=lambda each: each[2])[:2]
    inside, at = slice(cut[0], cut[2]), cut[1] - cut[0]
    steps = [
        (parameter, changes.step_at(y[inside], v[inside], at)) for parameter, y, v in known.series
    ]
    name = space.robot.body_names[body]
    mass = next(
        (
            step
            for parameter, step in steps
            if parameter.kind == PAYLOAD and parameter.where == name
        ),
        None,
    )
    com = (
        theta[list(FIRST_MOMENT)] / theta[M]
        if mass is not None and mass.deviations > CLEAR and abs(theta[M]) > CLEAR * mass.std
        else None
    )
    clearest = max(
        (each for each in steps if each[0].kind == INERTIAL), key=lambda each: each[1].deviations
    )
    return Event(int(known.rows[cut[1]]), body, mass, com, clearest, chance)


def _explained(
    space: Space, places: np.ndarray, d: np.ndarray, inverse: np.ndarray
) -> Iterator[tuple[int, np.ndarray, float]]:
    """(body, θ, what is left and how many numbers it took) of a payload on every body."""
    eigen, vectors = np.linalg.eigh(inverse)
    half = np.sqrt(np.maximum(eigen, 0.0))[:, None] * vectors.T
    for body in range(len(space.robot.body_names)):
        G = half @ payload_map(space.base, body)[places]
        norms = np.linalg.norm(G, axis=0)
        scale = np.where(norms > 0.0, norms, 1.0)
        U, s, Vt = np.linalg.svd(G / scale, full_matrices=False)
        used = s > max(RANK * s[0], np.finfo(float).tiny)
        along = U[:, used].T @ (half @ d)
        theta = (Vt[used].T @ (along / s[used])) / scale
        yield body, theta, float(np.sum((half @ d) ** 2) - np.sum(along**2) + 2 * np.sum(used))
