"""Payloads that a motion shows in part or not at all, and requests that cannot be met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from data_paths import example_robot, needs_examples
from payload_cases import (
    PANDA,
    TERMS,
    TOOL,
    Bar,
    Run,
    case,
    every_way,
    noisy_pair,
    numbers,
    path,
    robot,
    sensor_noise,
    still_poses,
    torques,
    truth,
)

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.errors import NotIdentifiable, ThetahatError, UsageError
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information, information
from thetahat.identification.payload.payload_difference import (
    payload_from_difference,
    payload_on_link,
)
from thetahat.identification.payload.payload_evidence import Sight
from thetahat.identification.payload.payload_result import PARTS, Payload
from thetahat.identification.solve import solve
from thetahat.model import parameters
from thetahat.model.lock_joints import lock

# -- what does not show ----------------------------------------------------------------------------


@pytest.mark.parametrize("motion", ["slow", "still"])
@needs_examples
def test_gravity_alone_gives_mass_and_centre_and_says_so(motion: str) -> None:
    arm = robot(PANDA)
    states = path(arm, 20.0, seed=2, rate=0.003) if motion == "slow" else still_poses(arm, 12)
    loaded, unloaded = Run.of(arm, states, load=Bar().inertia, link=TOOL), Run.of(arm, states)
    errors, rng = [], np.random.default_rng(0)
    for _ in range(50):
        payload = payload_from_difference(
            loaded.noisy(rng, sensor_noise(arm)), unloaded.noisy(rng, sensor_noise(arm)), TOOL
        )
        assert payload.unseen == PARTS[4:]
        assert payload.status == "rank_short"
        assert "inertia" in payload.advice[0]
        assert "not seen" in str(payload)
        assert payload.consistent
        assert np.all(np.ma.getmaskarray(payload.inertia_std))
        values, std = numbers(payload)
        assert payload.mass_std < 0.02
        errors.append((values - truth(Bar()))[:4] / std[:4])
    errors = np.array(errors)
    # Honest: 200 errors in units of their standard deviation, which is that of the data alone. A
    # slow motion's inertia is bounded by its being that of a body, which mass and centre gain from
    # and their spread does not count on.
    assert (0.8 if motion == "still" else 0.5) < np.sqrt(np.mean(errors**2)) < 1.2
    assert np.max(np.abs(errors)) < 4.5


@needs_examples
def test_links_that_turn_about_one_axis_show_one_number() -> None:
    arm, loaded, unloaded = noisy_pair(PANDA, "panda_link1", 0)
    for payload in every_way(arm, loaded, unloaded, "panda_link1").values():
        assert payload.unseen == PARTS
        assert payload.mass_std is None
        seen = ~np.ma.getmaskarray(payload.theta_std)
        assert [name for name, shows in zip(parameters.NAMES, seen, strict=True) if shows] == [
            "Izz"
        ]
        exact = th.from_pinocchio(Bar().inertia.toDynamicParameters())[parameters.IZZ]
        assert abs(payload.theta[parameters.IZZ] - exact) < 4.0 * payload.theta_std[parameters.IZZ]
        assert "about the origin: Izz" in str(payload)


def test_nothing_that_hangs_on_the_rounding_of_the_file_hides_what_shows() -> None:
    """The UR10's file writes 1.5708: directions of 1e-6 are neither shown nor in the way."""
    arm, loaded, unloaded = noisy_pair("ur10", "shoulder_link", 0)
    for info in (
        (loaded, unloaded),
        (case("ur10", "shoulder_link")[1].clean, case("ur10", "shoulder_link")[2].clean),
    ):
        payload = payload_from_difference(*info, "shoulder_link")
        assert not np.ma.getmaskarray(payload.theta_std)[parameters.IZZ]
        assert payload.unseen == PARTS
    assert payload_on_link(loaded, arm, "shoulder_link").unseen == PARTS


def test_no_payload_is_no_mass() -> None:
    arm = robot("arm7")
    for seed in range(3):
        loaded, unloaded = (
            Run.of(arm, path(arm, 5.0, seed=k)).noisy(
                np.random.default_rng(seed + k), sensor_noise(arm)
            )
            for k in (1, 2)
        )
        payload = payload_from_difference(loaded, unloaded, "tool")
        assert payload.mass < 4.0 * payload.mass_std < 0.1
        assert "com x" in payload.unseen
        assert "cannot be told from none" in payload.advice[0]


def test_swapped_runs_are_named() -> None:
    _, loaded, unloaded = noisy_pair("arm7", "tool", 0)
    payload = payload_from_difference(unloaded, loaded, "tool")
    assert any("swapped" in sentence for sentence in payload.advice)
    assert payload.mass >= 0.0
    assert payload.least_squares[parameters.M] == pytest.approx(-1.5, rel=0.01)
    assert payload.consistent


@needs_examples
def test_fingers_that_never_move_are_as_if_welded() -> None:
    """A gripper's fingers stay shut in both runs: their columns and the hand's are one, and the
    payload is that of a robot without finger joints.
    """
    whole = th.load(example_robot(PANDA)).without_drive().with_drive(**TERMS)
    shut = lock(whole, ["panda_finger_joint1"])
    rng, infos = np.random.default_rng(0), []
    for seed, load in ((2, {"load": Bar().inertia, "link": TOOL}), (1, {})):
        q, dq, ddq = path(shut, 3.0, seed=seed)
        tau = torques(shut, (q, dq, ddq), **load) + 0.3 * rng.normal(size=q.shape)
        welded = Samples(q=q, dq=dq, ddq=ddq, tau=tau)
        q, dq, ddq, tau = (
            np.column_stack([array, np.zeros(len(q))]) for array in (q, dq, ddq, tau)
        )
        unused = np.zeros(tau.shape, dtype=np.uint8)
        unused[:, -1] = 1
        infos.append(
            (
                information(whole, Samples(q=q, dq=dq, ddq=ddq, tau=tau, reason=unused)),
                information(shut, welded),
            )
        )
    (loaded, loaded_shut), (unloaded, unloaded_shut) = infos
    assert loaded.rank < len(loaded.base)
    a, b = (
        payload_from_difference(loaded, unloaded, TOOL),
        payload_from_difference(loaded_shut, unloaded_shut, TOOL),
    )
    assert a.status == b.status == "solved"
    np.testing.assert_allclose(a.theta_std, b.theta_std, rtol=1e-6)
    np.testing.assert_allclose(a.theta / b.theta_std, b.theta / b.theta_std, rtol=0, atol=1e-4)
    assert a.misfit == pytest.approx(b.misfit, rel=1e-3)
    known = payload_on_link(loaded, solve(unloaded, LeastSquares(weights="joint")), TOOL)
    assert any("does not know" in sentence for sentence in known.advice)
    values, std = numbers(known)
    assert np.all((np.abs(values - truth(Bar())) < 4.5 * std).filled(True))


def test_rounding_of_a_file_is_no_direction() -> None:
    """One row that sees Izz, and what rounding left of Ixx beside it: Izz is known, Ixx is not."""
    factor = np.zeros((11, 11))
    factor[0, [parameters.IZZ, parameters.IXX, 10]] = 1e5, 0.37, 1e3
    std = Sight(factor, 1.0, 0.1).std(np.eye(10))
    assert std[parameters.IZZ] == pytest.approx(1e-5, rel=1e-6)
    assert np.all(std[np.arange(10) != parameters.IZZ] > 1e3)


def test_spreads_are_those_of_first_order() -> None:
    """Standard deviations of centre and inertia, by differences of the payload's own numbers along
    its covariance's axes.
    """
    _, loaded, unloaded = noisy_pair("arm7", "tool", 0, bar=Bar(mass=0.5, centre=(0.2, -0.3, 0.25)))
    payload = payload_from_difference(loaded, unloaded, "tool")
    values, axes = np.linalg.eigh(np.ma.getdata(payload.covariance))
    steps = (axes * np.sqrt(np.maximum(values, 0.0))).T
    changes = []
    for step in 1e-3 * steps:
        (_, c1, I1), (_, c0, I0) = (
            parameters.to_mass_com_inertia(payload.theta + sign * step) for sign in (1.0, -1.0)
        )
        changes.append(np.concatenate([c1 - c0, (I1 - I0).ravel()]) / 2e-3)
    expected = np.linalg.norm(changes, axis=0)
    np.testing.assert_allclose(
        np.concatenate([payload.com_std, payload.inertia_std.ravel()]), expected, rtol=1e-4
    )


def or_error(find: Callable[[], Payload]) -> Payload | str:
    """The payload, or what an error says."""
    try:
        return find()
    except NotIdentifiable as error:
        return str(error)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_is_not_finite_leaves(seed: int) -> None:
    """Any few joints that move, any link, from no noise to much of it."""
    rng = np.random.default_rng(seed)
    arm = robot(str(rng.choice(["arm4", "arm7"])))
    link = str(rng.choice([each.name for each in arm.links if each.body >= 0]))
    moving = tuple(rng.choice(arm.nv, rng.integers(0, 3), replace=False))
    states = path(arm, 1.0, seed=seed, moving=moving, rate=float(rng.choice([0.01, 0.3])))
    bar = Bar(mass=float(rng.choice([1e-3, 1.0, 50.0])))
    for factor in (0.0, 1.0, 100.0):
        loaded, unloaded = (
            run.noisy(rng, factor * sensor_noise(arm))
            for run in (Run.of(arm, states, load=bar.inertia, link=link), Run.of(arm, states))
        )
        known = solve(unloaded, LeastSquares(weights="joint"))
        ways = [
            or_error(partial(payload_from_difference, loaded, unloaded, link)),
            *(or_error(partial(payload_on_link, loaded, r, link)) for r in (arm, known)),
        ]
        for payload in ways:
            if isinstance(payload, str):
                assert "shows no number" in payload
                continue
            values, std = numbers(payload)
            for array in (
                values,
                payload.theta,
                payload.least_squares,
                np.ma.getdata(payload.covariance),
                std.compressed(),
            ):
                assert np.all(np.isfinite(array))
            assert payload.consistent
            assert "nan" not in str(payload)
            assert payload.status in ("solved", "rank_short")


# -- refused ---------------------------------------------------------------------------------------


@cache
def small() -> tuple[th.Robot, Information]:
    arm = robot("arm4")
    return arm, Run.of(arm, path(arm, 1.0, seed=0)).clean


def other_robot() -> Information:
    arm = robot("arm7")
    return Run.of(arm, path(arm, 0.5, seed=0)).clean


def no_rows(info: Information) -> Information:
    return replace(
        info,
        factors=tuple(np.zeros_like(R) for R in info.factors),
        rows=np.zeros_like(info.rows),
        samples=0,
    )


REFUSED = {
    "unknown link": (
        lambda arm, info: payload_from_difference(info, info, "gripper"),
        UsageError,
        "link 'gripper' is not in robot",
    ),
    "welded to the world": (
        lambda arm, info: payload_from_difference(info, info, "torso"),
        UsageError,
        "welded to the world",
    ),
    "frame elsewhere": (
        lambda arm, info: payload_on_link(info, arm, "hand", frame="arm"),
        UsageError,
        "frame 'arm' moves against link 'hand'",
    ),
    "unknown frame": (
        lambda arm, info: payload_on_link(info, arm, "hand", frame="tcp"),
        UsageError,
        "frame 'tcp' is not in robot",
    ),
    "two robots": (
        lambda arm, info: payload_from_difference(info, other_robot(), "hand"),
        UsageError,
        "different robots",
    ),
    "another robot": (
        lambda arm, info: payload_on_link(info, robot("arm7"), "hand"),
        UsageError,
        "is not the one the information",
    ),
    "another gravity": (
        lambda arm, info: payload_on_link(info, arm.with_gravity((0, 0, -1.62)), "hand"),
        UsageError,
        "gravity differ",
    ),
    "another estimate": (
        lambda arm, info: payload_on_link(info, solve(other_robot()), "hand"),
        UsageError,
        "the estimate is of robot",
    ),
    "no column": (
        lambda arm, info: payload_on_link(frictionless(arm), arm, "hand"),
        UsageError,
        "no column for",
    ),
    "not a run": (
        lambda arm, info: payload_from_difference(info, arm, "hand"),
        UsageError,
        "unloaded is of type Robot",
    ),
    "not a robot": (
        lambda arm, info: payload_on_link(info, arm.theta, "hand"),
        UsageError,
        "without is of type ndarray",
    ),
    "no such term": (
        lambda arm, info: payload_from_difference(info, info, "hand", differing=("stiction",)),
        UsageError,
        "differing names 'stiction'",
    ),
    "weights": (
        lambda arm, info: payload_on_link(info, arm, "hand", weights="none"),
        UsageError,
        "weights is 'none'",
    ),
    "size": (
        lambda arm, info: payload_on_link(info, arm, "hand", size=0.0),
        UsageError,
        "size is 0.0",
    ),
    "inflation": (
        lambda arm, info: payload_on_link(info, arm, "hand", inflation=np.ones(3)),
        UsageError,
        "inflation has shape (3,)",
    ),
    "inflation is nan": (
        lambda arm, info: payload_on_link(info, arm, "hand", inflation=np.full(4, np.nan)),
        UsageError,
        "finite factors",
    ),
    "no rows": (
        lambda arm, info: payload_from_difference(no_rows(info), no_rows(info), "hand"),
        NotIdentifiable,
        "shows no number of a payload",
    ),
    "no motion": (
        lambda arm, info: payload_on_link(standstill(arm), arm, "shoulder"),
        NotIdentifiable,
        "shows no number of a payload",
    ),
}


def frictionless(arm: th.Robot) -> Information:
    return Run.of(
        arm.with_drive(viscous=False, coulomb=False, offset=False), path(arm, 0.5, seed=0)
    ).clean


def standstill(arm: th.Robot) -> Information:
    return Run.of(arm, still_poses(arm, 1)).noisy(np.random.default_rng(0), sensor_noise(arm))


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_get_one_sentence(name: str) -> None:
    call, kind, said = REFUSED[name]
    with pytest.raises(ThetahatError) as caught:
        call(*small())
    assert isinstance(caught.value, kind)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
