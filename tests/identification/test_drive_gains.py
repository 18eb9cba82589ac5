"""Drive gains and several payloads from information alone; SciPy and NumPy solve the same problems
from all rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from payload_cases import Bar, noisy_pair, path, robot, torques, truth
from scipy.optimize import least_squares

from thetahat.data.samples import Samples
from thetahat.errors import NotIdentifiable
from thetahat.identification.gain_differences import gain_differences
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.payload.drive_gains import HeldPayload, LoadedRun, fit_gains
from thetahat.identification.payload.payload_body import PayloadBox, fit_payload
from thetahat.identification.payload.payload_difference import payload_from_difference
from thetahat.identification.payload.payload_evidence import Run, eliminated, whitened
from thetahat.identification.payload.payload_place import payload_place
from thetahat.identification.payload.payload_runs import Stacked, WhitenedRun, scale_error
from thetahat.model import parameters

GAINS = np.array([1.13, 0.88, 1.05, 0.95])
LINK = "hand"
HEAVY, LIGHT = Bar(mass=3.0), Bar(mass=1.0, centre=(0.01, 0.02, 0.05))


def runs(noise: float, *, gains: np.ndarray = GAINS) -> tuple[list[LoadedRun], list[np.ndarray]]:
    """Runs of the four-joint arm: empty, with a heavy and with a light payload; the rows, too."""
    arm, rng, out, rows = robot("arm4"), np.random.default_rng(3), [], []
    for seed, held, payload in ((1, None, None), (2, HEAVY, 0), (3, LIGHT, 1)):
        q, dq, ddq = (array[::10] for array in path(arm, 6.0, seed=seed, rate=0.3))
        load = {} if held is None else {"load": held.inertia, "link": LINK}
        tau = torques(arm, (q, dq, ddq), **load) / gains
        tau = tau + noise * rng.normal(size=tau.shape)
        info = information(arm, Samples(q=q, dq=dq, ddq=ddq, tau=tau))
        out.append(LoadedRun(info, payload, np.ones(arm.nv)))
        rows.append((full_regressor(arm, q, dq, ddq), tau))
    return out, rows


def held(masses: tuple[float | None, float | None]) -> list[HeldPayload]:
    place = payload_place(robot("arm4"), LINK, None)
    return [HeldPayload(place, mass) for mass in masses]


def test_without_noise_gains_and_the_other_payload_are_exact() -> None:
    fit = fit_gains(runs(0.0)[0], held((3.0, None)))
    np.testing.assert_allclose(fit.gains, GAINS, rtol=1e-5)
    theta = fit.theta[1]
    mass, com, _ = parameters.to_mass_com_inertia(theta)
    assert mass == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(com, truth(LIGHT)[1:4], atol=1e-5)


def test_gains_are_the_nonlinear_least_squares_of_all_rows() -> None:
    """SciPy's, over the rows of every run, each joint in units of its noise."""
    noise = 0.3
    given, rows = runs(noise)
    fit = fit_gains(given, held((3.0, None)))
    info = given[0].information
    carried = (
        info.base.map[:, held((None, None))[0].place.span] @ held((None, None))[0].place.to_body
    )
    p = len(info.base)
    sigma = [
        np.array(
            [
                abs(R[-1, -1]) / np.sqrt(n - len(R) + 1)
                for R, n in zip(run.information.factors, run.information.rows, strict=True)
            ]
        )
        for run in given
    ]

    def left(y: np.ndarray) -> np.ndarray:
        x, theta, log_s = y[:p], y[p : p + 20].reshape(2, 10), y[p + 20 :]
        parts = []
        for run, (Y, tau), std in zip(given, rows, sigma, strict=True):
            own = x if run.payload is None else x + carried @ theta[run.payload]
            model = np.exp(log_s) * (Y[..., info.base.independent] @ own)
            parts.append(((tau - model) / std).ravel())
        return np.concatenate([*parts, [(3.0 - theta[0, parameters.M]) / 3e-3]])

    start = np.concatenate([fit.x_base, fit.theta.ravel(), -np.log(fit.gains) + 0.02])
    scale = np.maximum(np.abs(start), 1e-2)
    best = least_squares(left, start, x_scale=scale, xtol=1e-14, ftol=1e-14, gtol=1e-14)
    np.testing.assert_allclose(np.exp(-best.x[p + 20 :]), fit.gains, rtol=2e-4)


def test_intervals_of_gains_hold() -> None:
    """Each gain within 4 standard deviations, and those are no excuse: below 2 %."""
    fit = fit_gains(runs(0.1)[0], held((3.0, None)))
    assert not np.any(np.ma.getmaskarray(fit.std))
    assert np.all(np.abs(fit.gains - GAINS) < 4.0 * fit.std)
    assert np.all(fit.std[1:] < 0.02)


def test_currents_have_gains_too() -> None:
    """Amperes: gains that are far from one."""
    fit = fit_gains(runs(0.0, gains=10.0 * GAINS)[0], held((3.0, None)))
    np.testing.assert_allclose(fit.gains, 10.0 * GAINS, rtol=1e-4)


def test_nothing_fixes_the_scale() -> None:
    given, _ = runs(0.1)
    with pytest.raises(NotIdentifiable, match="nothing fixes the scale"):
        fit_gains(given, held((None, None)))
    feather = [replace(held((1e-4, None))[0])]
    with pytest.raises(NotIdentifiable, match="hardly shows"):
        fit_gains([given[0], replace(given[0], payload=0)], feather)


def test_two_payloads_at_once_are_two_differences_that_share_the_robot() -> None:
    """NumPy, from the stacked rows: values of both payloads."""
    given, _ = runs(0.1, gains=np.ones(4))
    base = given[0].information.base
    whitened_runs = [
        WhitenedRun(whitened(run.information, "joint", np.ones(4)), run.payload) for run in given
    ]
    stacked = Stacked.of(base, whitened_runs, held((None, None)))
    norms = np.linalg.norm(stacked.rows, axis=0)
    x, *_ = np.linalg.lstsq(stacked.rows / norms, stacked.right, rcond=1e-13)
    for k, bar in enumerate((HEAVY, LIGHT)):
        payload = fit_payload(
            stacked.evidence(k), held((None, None))[k].place, typical=1.0, size=0.1
        )
        own = (x / norms)[len(base) + 10 * k : len(base) + 10 * (k + 1)]
        np.testing.assert_allclose(
            payload.least_squares / payload.theta_std, own / payload.theta_std, atol=1e-3
        )
        assert abs(payload.mass - bar.mass) < 4.0 * payload.mass_std
    alone = payload_from_difference(given[1].information, given[0].information, LINK)
    both = fit_payload(stacked.evidence(0), held((None, None))[0].place, typical=1.0, size=0.1)
    assert both.mass_std <= alone.mass_std * (1.0 + 1e-9)


def test_a_covariance_of_ones_changes_nothing_and_larger_ones_widen() -> None:
    _, loaded, unloaded = noisy_pair("arm7", "tool", 0)
    plain = [whitened(each, "joint", np.ones(7)) for each in (loaded, unloaded)]
    place = payload_place(loaded.robot, "tool", None)

    def payload(size: float | None) -> tuple[float, float]:
        given = [_rows_alone(run, size) for run in plain]
        one = [WhitenedRun(given[0], 0), WhitenedRun(given[1], None)]
        evidence = Stacked.of(loaded.base, one, [HeldPayload(place)]).evidence(0)
        found = fit_payload(evidence, place, typical=1.0, size=0.1)
        return found.mass, found.mass_std or 0.0

    (mass, std), (same, same_std), (wide, wide_std) = payload(None), payload(1.0), payload(9.0)
    assert same == pytest.approx(mass, abs=1e-6 * std)
    assert same_std == pytest.approx(std, rel=1e-6)
    assert wide == pytest.approx(mass, abs=1e-6 * std)
    assert wide_std == pytest.approx(3.0 * std, rel=1e-6)


def _rows_alone(run: Run, size: float | None) -> Run:
    rows, right = run.rows[:-1], run.right[:-1]  # without the row of what no x explains
    covariance = None if size is None else size * np.eye(len(right))
    return Run(rows, right, 0.0, run.rank, covariance)


def test_a_box_holds_the_payload() -> None:
    """Noise puts a light body's mass anywhere; all of it lies in the box that is given."""
    arm = robot("arm7")
    bar = Bar(mass=0.3, sides=(0.04, 0.04, 0.04), centre=(0.0, 0.0, 0.03))
    box = PayloadBox(np.array([-0.05, -0.05, 0.0]), np.array([0.05, 0.05, 0.08]))
    for seed in range(4):
        _, loaded, unloaded = noisy_pair("arm7", "tool", seed, bar=bar)
        place = payload_place(arm, "tool", None)
        plain = [whitened(each, "joint", np.full(7, 30.0)) for each in (loaded, unloaded)]
        one = [WhitenedRun(plain[0], 0), WhitenedRun(plain[1], None)]
        evidence = Stacked.of(loaded.base, one, [HeldPayload(place)]).evidence(0)
        payload = fit_payload(evidence, place, typical=1.0, size=box.size, box=box)
        assert payload.consistent
        assert np.all(payload.com >= box.low)
        assert np.all(payload.com <= box.high)
        inside = box.realisability @ payload.theta
        assert np.all(inside >= -1e-6 * payload.mass * box.size**2)


def test_a_filled_box_is_inside_itself() -> None:
    box = PayloadBox(np.array([-0.1, 0.02, 0.0]), np.array([0.1, 0.05, 0.3]))
    side = box.high - box.low
    np.testing.assert_allclose(box.realisability @ box.filled(2.0), 2.0 * side**2 / 6.0, rtol=1e-9)


@pytest.mark.parametrize("factor", [0.85, 1.0, 1.2])
def test_the_scale_error_is_that_of_the_torques(factor: float) -> None:
    """All torques times a factor, of a robot whose file is right."""
    info: Information = runs(0.0, gains=np.full(4, 1.0 / factor))[0][0].information
    assert scale_error(info, info.solution.x) == pytest.approx(abs(factor - 1.0), abs=1e-3)


def test_elimination_counts_degrees_of_freedom() -> None:
    """χ² of independent rows has its number of degrees of freedom as the mean."""
    rng = np.random.default_rng(0)
    shared, ten = rng.normal(size=(60, 15)), rng.normal(size=(60, 10))
    S = 4.0 * np.eye(60)
    mean = np.mean(
        [
            eliminated(shared, ten, right, runs=(Run(shared, right, 0.0, 60, S),)).surplus
            for right in 2.0 * rng.normal(size=(400, 60))
        ]
    )
    assert (
        eliminated(shared, ten, np.ones(60), runs=(Run(shared, np.ones(60), 0.0, 60, S),)).freedom
        == 35
    )
    assert mean == pytest.approx(35.0, rel=0.05)


def test_gains_that_differ_are_named_and_equal_ones_are_not() -> None:
    """From the unloaded run alone; a factor that all joints share shows nowhere."""
    for gains, named in ((GAINS, 1), (np.ones(4), 0), (np.full(4, 1.15), 0)):
        info = runs(0.1, gains=gains)[0][0].information
        findings = gain_differences(info, 1.0)
        assert len(findings) == named
        if named:
            assert "--known-mass" in findings[0].message
            assert info.robot.joint_names[1] in findings[0].message  # reports most: gain 0.88
