"""What a robot holds: mass, centre of mass and inertia, from two runs, or from one run of a robot
that is known.

    u = Y·(x + E·θ_p) + noise                                                        [Atkeson1986]
        E puts the payload's ten numbers θ_p on the body that carries it

Two runs: x is unknown and the same in both, and only the loaded one has θ_p; one least-squares
problem, from the two factors alone. One run: x is a robot's, or an estimate's, which is then known
as well as its covariance says. Either way x is eliminated by a rank-revealing QR, and ten columns
are left. A payload is a body, J(θ_p) ⪰ 0 [Wensing2018]: where least squares breaks that, the body
that fits best takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from scipy.stats import chi2

from thetahat.errors import UsageError, known
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.information import Information, robot_key
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.payload.payload_body import HELD, fit_payload, typical_mass
from thetahat.identification.payload.payload_evidence import (
    Evidence,
    Run,
    eliminated,
    prior_rows,
    whitened,
)
from thetahat.identification.payload.payload_place import payload_place
from thetahat.identification.payload.payload_result import Payload
from thetahat.model.parameters import SIZE
from thetahat.model.robot import Robot

SURPRISE = 1e-4  # probability of a misfit by chance below which it is named,
INFLATED = 0.01  # and below which it counts as noise that is larger than each run says


def payload_from_difference(
    loaded: Information,
    unloaded: Information,
    link: str,
    *,
    frame: str | None = None,
    differing: Iterable[str] = (),
    weights: str = "joint",
    inflation: np.ndarray | None = None,
    size: float = HELD,
) -> Payload:
    """What `link` holds in one run and not in the other; the runs need not be the same motion.
    Nothing of the robot need be known.

    frame: of the answer, a link welded to the same body (default: `link`). differing: drive terms
    ("offset", "coulomb", …) that may have changed between the runs. weights: "joint" or "iterated",
    of each run's own fit. inflation: (nv,), or (2, nv) with the loaded run
    first: factors on the standard deviation of each joint's noise, where its samples are not
    independent. size: [m] of what may be held; numbers known no better than for any body of that
    size are not seen.
    """
    _require(loaded, "loaded")
    _require(unloaded, "unloaded")
    if loaded.key != unloaded.key:
        raise UsageError(
            f"the runs are informations of different robots ({loaded.robot.name!r} and"
            f" {unloaded.robot.name!r}): geometry, gravity or drive columns differ; fold both logs"
            " with the same robot"
        )
    place = payload_place(loaded.robot, link, frame)
    columns = Columns(loaded.robot)
    base = loaded.base
    changed = _changed(columns, differing)
    factors = _inflation(inflation, 2, loaded.robot.nv)
    with f.blas_threads().limit(limits=1, user_api="blas"):
        with_load = whitened(loaded, weights, factors[0])
        without = whitened(unloaded, weights, factors[1])
        A, B = with_load.rows, without.rows
        none = np.zeros((len(B), len(changed)))
        shared = np.vstack([np.hstack([A, A @ base.map[:, changed]]), np.hstack([B, none])])
        ten = np.vstack([A @ (base.map[:, place.span] @ place.to_body), np.zeros((len(B), SIZE))])
        right = np.concatenate([with_load.right, without.right])
        evidence = eliminated(shared, ten, right, runs=(with_load, without))
        payload = fit_payload(evidence, place, typical=typical_mass(loaded.robot), size=size)
    odd = f"the runs differ by more than a payload on {link!r} explains"
    fix = (
        "pass inflation if samples are not independent, name friction that changed in differing, or"
        " try another link"
    )
    return with_misfit(payload, evidence, odd, fix)


def payload_on_link(
    information: Information,
    without: Robot | Estimate,
    link: str,
    *,
    frame: str | None = None,
    weights: str = "joint",
    inflation: np.ndarray | None = None,
    size: float = HELD,
) -> Payload:
    """What `link` holds, from one run of a robot whose own parameters and friction are known: ten
    unknowns, the rest fixed.

    without: a Robot counts as exact; an Estimate as known to its covariance, which goes into the
    payload's uncertainty. Others as in `payload_from_difference`; inflation is (nv,).
    """
    _require(information, "information")
    place, base = payload_place(information.robot, link, frame), information.base
    factors = _inflation(inflation, 1, information.robot.nv)
    exact = isinstance(without, Robot)
    if isinstance(without, Robot):
        x = _own_values(information, without)
    else:
        x = _estimated_values(information, without)
    with f.blas_threads().limit(limits=1, user_api="blas"):
        run = whitened(information, weights, factors[0])
        ten = run.rows @ (base.map[:, place.span] @ place.to_body)
        left = run.right - run.rows @ (base.map @ x)
        advice: tuple[str, ...] = ()
        if isinstance(without, Robot):
            evidence = eliminated(np.zeros((len(left), 0)), ten, left, runs=(run,))
        else:
            prior, advice = prior_rows(without)
            shared = np.vstack([run.rows, prior])
            ten = np.vstack([ten, np.zeros((len(prior), SIZE))])
            none = np.zeros(len(prior))
            runs = (run, Run(prior, none, 0.0, len(prior)))
            evidence = eliminated(shared, ten, np.append(left, none), runs=runs)
        typical = typical_mass(information.robot)
        payload = fit_payload(evidence, place, typical=typical, size=size)
    odd = f"the run shows more than the known robot and a payload on {link!r} explain"
    fix = (
        "pass inflation if samples are not independent, identify the robot without payload first,"
        " or try another link"
    )
    payload = with_misfit(payload, evidence, odd, fix)
    return replace(payload, exact_rest=exact, advice=(*payload.advice, *advice))


# -- what is given --------------------------------------------------------------------------------


def _require(information: Information, what: str) -> None:
    if not isinstance(information, Information):
        raise UsageError(
            f"{what} is of type {type(information).__name__}; give an Information, from"
            " th.information(robot, samples)"
        )


def _changed(columns: Columns, terms: Iterable[str]) -> list[int]:
    """Positions in x of these drive terms."""
    terms = (terms,) if isinstance(terms, str) else tuple(terms)
    identified = columns.drive.identified
    for term in terms:
        if term not in identified:
            raise UsageError(
                f"differing names {term!r}, which is no drive term with columns here; terms:"
                f" {known(identified)}"
            )
    return [k for k in range(columns.inertial, columns.count) if columns.pairs[k][0] in terms]


def _inflation(inflation: np.ndarray | None, runs: int, nv: int) -> np.ndarray:
    """(runs, nv)."""
    given = (
        np.ones(nv) if inflation is None else np.asarray(np.ma.filled(inflation, 1.0), dtype=float)
    )
    if given.shape not in ((nv,), (runs, nv)) or not np.all(np.isfinite(given) & (given > 0.0)):
        shapes = f"({nv},) or ({runs}, {nv})" if runs > 1 else f"({nv},)"
        raise UsageError(
            f"inflation has shape {given.shape}; give finite factors above zero, one per joint:"
            f" {shapes}"
        )
    return np.broadcast_to(given, (runs, nv))


def _own_values(information: Information, robot: Robot) -> np.ndarray:
    """x of a robot that counts as known; an error where its friction has no column, as the factor
    then cannot tell it from a payload.
    """
    mine = information.robot.drive
    if robot_key(replace(robot, drive=mine)) != information.key or len(robot.drive.viscous) != len(
        mine.viscous
    ):
        raise UsageError(
            f"robot {robot.name!r} is not the one the information was folded with"
            f" ({information.robot.name!r}): joints, geometry or gravity differ"
        )
    for term in robot.drive.terms:
        if term not in mine.identified and np.any(robot.drive.value(term)):
            raise UsageError(
                f"robot {robot.name!r} states {term!r} drive terms, but the information has no"
                f" column for them; fold it with {term}=True"
            )
    values = [
        robot.drive.value(term) if term in robot.drive.terms else mine.value(term)
        for term in mine.identified
    ]
    return np.concatenate([robot.theta, *(value[list(mine.column_motors)] for value in values)])


def _estimated_values(information: Information, estimate: Estimate) -> np.ndarray:
    if not isinstance(estimate, Estimate):
        raise UsageError(
            f"without is of type {type(estimate).__name__}; give the Robot without payload, or an"
            " Estimate of it"
        )
    if robot_key(estimate.robot) != information.key or not np.array_equal(
        estimate.base.independent, information.base.independent
    ):
        raise UsageError(
            f"the estimate is of robot {estimate.robot.name!r} with other joints, geometry or drive"
            " columns than the information's"
        )
    return estimate.x


def with_misfit(payload: Payload, evidence: Evidence, odd: str, fix: str) -> Payload:
    """Return the payload with its misfit, and a sentence where that is no chance."""
    freedom = evidence.freedom
    if freedom <= 0:
        return payload
    advice, chance = payload.advice, float(chi2.sf(evidence.surplus, freedom))
    fit = replace(payload.fit, misfit=evidence.surplus / freedom)
    if chance < INFLATED:
        fit = fit.inflated(float(np.sqrt(evidence.surplus / freedom)))
    if chance < SURPRISE:
        advice = (
            *advice,
            f"{odd} (χ² {evidence.surplus:.4g}, {freedom} expected), so standard deviations are"
            f" {np.sqrt(evidence.surplus / freedom):.2g} times those of the noise; {fix}",
        )
    return replace(payload, fit=fit, advice=advice)
