"""Momentum and filtered forms of the equation of motion: the same equation as the torque form, from
positions and velocities alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.signal import butter, sosfiltfilt

import thetahat as th
from thetahat import robots
from thetahat.data.regressor_form import RegressorForm
from thetahat.data.samples import OUTLIER, Samples
from thetahat.dynamics.momentum import momentum_rate_regressor, momentum_regressor
from thetahat.errors import UsageError
from thetahat.identification.estimators.robust import Robust
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.tuning.cross_validation import CrossValidation
from thetahat.identification.tuning.form_choice import choose_form
from thetahat.model.friction_terms import FrictionDirection, quadratic, spring, stribeck
from thetahat.model.robot import Robot
from thetahat.report.section import Table
from thetahat.report.sections.choices import choices

QUADRATURE = 1e-8  # of the largest entry, with adaptive quadrature (asked for)
WINDOW = 0.08  # [s]
FORMS = ("momentum", "filtered")
W = 2.0 * np.pi * np.array([0.31, 0.53, 0.79, 0.47])


@pytest.fixture(scope="module")
def robot() -> Robot:
    """An arm with every drive term that does not jump, with values."""
    arm = th.load(robots.path("arm4")).without_drive().with_drive(viscous=True, armature=True)
    drive = arm.drive.with_extra_term(quadratic()).with_extra_term(spring())
    values = {"viscous": 0.7, "armature": 0.05, "quadratic": 0.2, "spring": 1.5}
    size = np.arange(1, arm.nv + 1)
    return replace(arm, drive=drive.with_values(**{term: v * size for term, v in values.items()}))


def state(t: np.ndarray | float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(q, dq, ddq) of an analytic motion of four joints."""
    phase = np.asarray(t)[..., None] * W + np.array([0.1, 0.7, 1.9, 2.6])
    return 0.8 * np.sin(phase), 0.8 * W * np.cos(phase), -0.8 * W**2 * np.sin(phase)


def sampled(robot: Robot, rate: float, form: RegressorForm, seconds: float = 4.0) -> Samples:
    """Samples of the motion, with the torques of the robot."""
    t = np.arange(round(seconds * rate) + 1) / rate
    q, dq, ddq = state(t)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    period = 1.0 / rate
    return Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t, period=period, form=form)


def with_noise(samples: Samples, seed: int) -> Samples:
    """Samples with noise in the torques behind a low-pass of 10 Hz, as `prepare` leaves it."""
    white = np.random.default_rng(seed).standard_normal(samples.tau.shape)
    rate = 1.0 / (samples.period or 1.0)
    noise = sosfiltfilt(butter(4, 10.0, fs=rate, output="sos"), white, axis=0)
    return replace(samples, tau=samples.tau + 0.5 * noise, cutoff=10.0)


def residual(robot: Robot, samples: Samples) -> float:
    """‖Y x − u‖ of the true parameters over ‖u‖."""
    info = th.information(robot, samples)
    x = info.base.map @ Columns(robot).x0
    return float(np.linalg.norm(info.residual_norms(x)) / np.linalg.norm(info.torque_norms()))


# -- the same equation -----------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [lambda s: 1.0, lambda s: np.exp(-s / 0.03)], ids=FORMS)
def test_both_forms_equal_the_torque_form_on_analytic_motions(
    robot: Robot, weight: Callable[[float], float]
) -> None:
    """∫w·Y dt = [w·Y_p] − ∫ẇ·Y_p dt + ∫w·Y_r dt, by adaptive quadrature, column by column.

    s: time until the end of the window; ẇ = w/T of the low-pass, zero of the box.
    """
    begin, end, decay = 0.4, 0.4 + WINDOW, 0.0 if weight(1.0) == 1.0 else 1.0 / 0.03
    rigid = robot.without_drive()

    def integral(of: Callable[[float], np.ndarray]) -> np.ndarray:
        value, _ = quad_vec(lambda t: weight(end - t) * of(t), begin, end, epsabs=1e-13)
        return np.asarray(value)

    def momentum(t: float) -> np.ndarray:
        return momentum_regressor(rigid, *state(t)[:2])

    torque = integral(lambda t: th.regressor(rigid, *state(t)))
    without = weight(0.0) * momentum(end) - weight(end - begin) * momentum(begin)
    without -= decay * integral(momentum)
    without += integral(lambda t: momentum_rate_regressor(rigid, *state(t)[:2]))
    np.testing.assert_allclose(without, torque, rtol=0.0, atol=QUADRATURE * np.abs(torque).max())


@pytest.mark.parametrize("form", FORMS)
def test_sampled_rows_converge_at_second_order(robot: Robot, form: str) -> None:
    """Twice the rate, a quarter of the error: bodies, viscous and quadratic friction, springs and
    rotors.
    """
    time = RegressorForm(form, WINDOW if form == "momentum" else WINDOW / 4.0)
    errors = [residual(robot, sampled(robot, rate, time)) for rate in (100.0, 200.0, 400.0)]
    order = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert np.all(np.abs(order - 2.0) < 0.1), order
    assert errors[-1] < 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_rotors_behind_a_map_that_turns_with_the_joints_are_carried(
    robot: Robot, form: str
) -> None:
    """B(q)·d(Bᵀq̇)/dt by parts has a term of Ḃ."""

    def B(q: np.ndarray) -> np.ndarray:
        out = np.zeros((*q.shape[:-1], 4, 4))
        out[..., range(4), range(4)] = 2.0 + np.sin(q)
        out[..., 0, 1] = np.cos(q[..., 1])
        return out

    plain = th.load(robots.path("arm4")).without_drive().with_actuation(B)
    plain = plain.with_drive(armature=True)
    turned = replace(plain, drive=plain.drive.with_values(armature=np.full(4, 0.3)))
    time = RegressorForm(form, WINDOW / 2.0)
    assert residual(turned, sampled(turned, 1000.0, time, 2.0)) < 1e-5


@pytest.mark.parametrize("form", FORMS)
def test_dry_friction_is_carried_and_jumps_inside_a_window(form: str) -> None:
    """The torque form's column integrated row by row; a jump costs less than a step's share."""
    plain = th.load(robots.path("arm4")).without_drive().with_drive(coulomb=True, offset=True)
    drive = plain.drive.with_extra_term(stribeck(np.full(4, 0.3)))
    values = {"coulomb": np.full(4, 2.0), "offset": np.full(4, 0.5), "stribeck": np.full(4, 0.4)}
    dry = FrictionDirection(np.full(4, 0.05), np.zeros(4))
    rough = replace(plain, drive=drive.with_values(**values).with_dry(dry))
    assert residual(rough, sampled(rough, 1000.0, RegressorForm(form, WINDOW / 2.0), 2.0)) < 1e-4


# -- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_how_a_log_is_batched_changes_nothing(robot: Robot, form: str) -> None:
    samples = sampled(robot, 250.0, RegressorForm(form, WINDOW / 2.0), 3.0)
    whole = th.information(robot, samples)
    edges = [0, 1, 3, 200, 201, 444, len(samples)]
    parts = [samples.subset(slice(a, b)) for a, b in pairwise(edges)]
    streamed = th.information(robot, iter(parts))
    np.testing.assert_array_equal(whole.rows, streamed.rows)
    assert (whole.samples, whole.samples <= len(samples)) == (streamed.samples, True)
    for mine, theirs in zip(streamed.factors, whole.factors, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.0, atol=1e-10 * np.abs(theirs).max())


def test_no_window_reaches_over_a_gap_a_run_or_a_torque_that_is_not_usable(robot: Robot) -> None:
    form = RegressorForm("momentum", 0.04)  # of ten steps
    samples = sampled(robot, 250.0, form, 2.0)  # 501 samples: 50 windows
    assert list(th.information(robot, samples).rows) == [50] * 4
    run = np.zeros(501, dtype=int)
    run[205:] = 1
    assert list(th.information(robot, replace(samples, run=run)).rows) == [20 + 29] * 4
    late = replace(samples, t=np.asarray(samples.t) + 0.5 * (np.arange(501) >= 205))
    assert list(th.information(robot, late).rows) == [20 + 29] * 4
    reason = np.zeros(samples.tau.shape, dtype=np.uint8)
    reason[[17, 250], 2] = OUTLIER  # the second one is the end of a window and begins the next
    spoiled = replace(samples, reason=reason, tau=np.where(reason > 0, 1e6, samples.tau))
    info = th.information(robot, spoiled)
    assert list(info.rows) == [50, 50, 47, 50]
    x = info.base.map @ Columns(robot).x0
    assert np.all(info.residual_norms(x) < 1e-2 * info.torque_norms())


# -- estimates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_standard_deviations_hold_for_noise_in_the_torque(robot: Robot, form: str) -> None:
    """Over 60 logs with white noise, errors of the base parameters have the size that is stated."""
    time = RegressorForm(form, WINDOW if form == "momentum" else WINDOW / np.pi)
    clean = sampled(robot, 200.0, time, 6.0)
    rng, errors = np.random.default_rng(0), []
    for _ in range(60):
        noise = 0.3 * rng.standard_normal(clean.tau.shape)
        noisy = replace(clean, tau=clean.tau + noise)
        info = th.information(robot, noisy)
        estimate = th.solve(info, th.LeastSquares())
        truth = info.base.map @ Columns(robot).x0
        errors.append((estimate.x_base - truth) / np.sqrt(np.diag(estimate.covariance)))
    size = np.sqrt(np.mean(np.array(errors) ** 2, axis=0))
    assert 0.8 < np.median(size) < 1.2, np.median(size)
    samples = th.solve(info, th.LeastSquares(), samples=noisy)
    assert samples.noise is not None
    assert samples.noise.period == pytest.approx(noisy.row_period)


def test_identify_scores_torques_whatever_the_form(robot: Robot) -> None:
    samples = sampled(robot, 250.0, RegressorForm(), 8.0)
    noisy = with_noise(samples, seed=1)
    results = {
        form: th.identify(
            th.load(robots.path("arm4")),
            noisy,
            settings=th.IdentifySettings(form=form, tune=False, report=False),
        )
        for form in ("torque", "momentum")
    }
    torque, momentum = (results[form].scores for form in ("torque", "momentum"))
    np.testing.assert_array_equal(torque.rows, momentum.rows)
    assert momentum.r2_total == pytest.approx(torque.r2_total, abs=2e-3)
    assert results["momentum"].data["provenance"]["settings"]["form"] == "momentum"


def test_the_form_is_chosen_by_the_torques_it_predicts(robot: Robot) -> None:
    """Torque where the forms are alike, and momentum where accelerations of some rows are wrong."""
    rng = np.random.default_rng(2)
    clean = with_noise(sampled(robot, 250.0, RegressorForm(), 20.0), seed=2)
    ddq = clean.ddq.copy()
    ddq[2000:2600] += 100.0 * rng.standard_normal((600, robot.nv))
    validation = CrossValidation(Columns(robot).x0)
    chosen, reason = choose_form(validation, robot, clean)
    assert chosen == "torque"
    assert reason.startswith("form of the equation of motion torque: no other improves")
    chosen, reason = choose_form(validation, robot, replace(clean, ddq=ddq))
    assert chosen == "momentum"
    assert "momentum instead of torque: improves cross-validated log-likelihood by" in reason


def test_identify_says_the_form_it_chose(robot: Robot) -> None:
    samples = with_noise(sampled(robot, 250.0, RegressorForm(), 8.0), seed=3)
    settings = th.IdentifySettings(form="auto", report=False)
    result = th.identify(robot, samples, settings=settings)
    rows = next(block for block in choices(result.data).blocks if isinstance(block, Table)).rows
    (row,) = [row for row in rows if row[0] == "form of the equation of motion"]
    assert str(row[1]).startswith(result.tuned.settings.form)
    assert "cross-validated log-likelihood" in str(row[2])


# -- refusals --------------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused_with_a_sentence(robot: Robot) -> None:
    samples = sampled(robot, 250.0, RegressorForm("momentum", 0.04), 2.0)
    for wrong, sentence in (
        (lambda: RegressorForm("impulse", 0.1), "form is 'impulse'; give one of torque, momentum"),
        (lambda: RegressorForm("momentum"), "length of a window in seconds"),
        (lambda: RegressorForm("filtered", np.nan), "time constant in seconds"),
        (lambda: replace(samples, cutoff=None).with_form("filtered"), "cut-off of their low-pass"),
        (lambda: th.information(robot, samples, weights=np.ones(samples.tau.shape)), "weights are"),
        (
            lambda: th.solve(
                th.information(robot, samples), Robust(th.LeastSquares()), samples=samples
            ),
            "Robust weights single torques",
        ),
        (lambda: th.IdentifySettings(form="impulse"), "is 'impulse'; give one of torque"),
        (lambda: th.IdentifySettings(form="momentum", robust=True), "weights single torques"),
        (lambda: th.IdentifySettings(form="auto", tune=False), "a choice of the tuning"),
    ):
        with pytest.raises(UsageError, match=sentence):
            wrong()
