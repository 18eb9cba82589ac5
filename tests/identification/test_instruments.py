"""Instrumental variables: equal to least squares where instruments are the motion itself, mergeable,
and unbiased where noise in the motion biases least squares.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import butter, filtfilt
from uncertainty_cases import PERIOD, arm, path, spread

import thetahat as th
from thetahat.data.reference_motion import with_reference
from thetahat.data.samples import REASONS, Samples
from thetahat.errors import MalformedInput, UsageError
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns, full_regressor
from thetahat.identification.submodel import view
from thetahat.identification.uncertainty.autocorrelation import contrast_covariance
from thetahat.identification.uncertainty.hausman import hausman_test, holm

SAME = 1e-10  # relative: two ways to the same numbers by QR
ENCODER = 1e-3  # [rad]
STANDSTILL = 0.03  # [rad/s]: five standard deviations of the speed's noise
SECONDS = 20.0
THINNED = 10  # rows of 1 kHz behind a low-pass of 10 Hz


def filtered_noise(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """White encoder noise behind a zero-phase low-pass of 10 Hz, and its two derivatives."""
    b, a = butter(4, 10.0 * 2.0 * PERIOD)
    q = filtfilt(b, a, ENCODER * rng.normal(size=shape), axis=0)
    dq = np.gradient(q, PERIOD, axis=0)
    return q, dq, np.gradient(dq, PERIOD, axis=0)


@cache
def motion(name: str = "arm4") -> tuple[th.Robot, Samples]:
    robot = arm(name)
    t, q, dq, ddq = path(robot, SECONDS)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    return robot, Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t, period=PERIOD)


def measured(seed: int, *, encoder: bool = True, name: str = "arm4") -> tuple[Samples, Samples]:
    """(samples with noise in torque and, if wanted, in the motion; the motion as commanded).

    Rows at standstill are left out, as `prepare` leaves them out: noise turns the sign of a speed
    there, which no linear instrument mends.
    """
    robot, clean = motion(name)
    still = np.where(np.abs(clean.dq) < STANDSTILL, REASONS.index("standstill"), 0)
    rng = np.random.default_rng(seed)
    tau = clean.tau + 0.02 * spread(robot) * rng.normal(size=clean.tau.shape)
    noise = filtered_noise(rng, clean.dq.shape) if encoder else (0.0, 0.0, 0.0)
    q, dq, ddq = (a + n for a, n in zip((clean.q, clean.dq, clean.ddq), noise, strict=True))
    noisy = replace(clean, q=q, dq=dq, ddq=ddq, tau=tau, reason=still.astype(np.uint8))
    rows = slice(0, None, THINNED)
    return tuple(replace(each.subset(rows), period=THINNED * PERIOD) for each in (noisy, clean))  # type: ignore[return-value]


def truth(information: Information) -> np.ndarray:
    return np.asarray(information.base.map @ Columns(information.robot).x0)


@pytest.mark.parametrize("weights", [None, "iterated"])
@pytest.mark.parametrize("name", ["arm4", "arm7"])
def test_with_the_motion_as_its_own_instruments_it_is_least_squares(
    name: str, weights: str | None
) -> None:
    samples, _ = measured(0, name=name)
    info = th.information(motion(name)[0], samples, instruments=samples)
    plain = th.information(motion(name)[0], samples)
    mine = th.Instrumental(weights).estimate(info)
    theirs = th.LeastSquares(weights).estimate(plain)
    assert np.all(np.abs(mine.x_base - theirs.x_base) <= SAME * np.abs(theirs.x_base).max())
    assert np.allclose(mine.base_std, theirs.base_std, rtol=1e-8)
    again = th.LeastSquares(weights).estimate(info)  # which takes no notice of instruments
    assert np.all(np.abs(again.x_base - theirs.x_base) <= SAME * np.abs(theirs.x_base).max())


def test_it_is_the_textbook_formula() -> None:
    """IDIM-IV [Janot2014]: x = (ZᵀY)⁻¹Zᵀu, all joints' rows one below the other."""
    robot, _ = motion()
    samples, reference = measured(1)
    info = th.information(robot, samples, instruments=reference)
    columns, valid = info.base.independent, samples.valid
    Y, Z = (
        full_regressor(robot, s.q, s.dq, s.ddq)[valid][:, columns] for s in (samples, reference)
    )
    dry = [k for k, name in enumerate(info.base.names) if name.startswith("coulomb")]
    Z[:, dry] = Y[:, dry]  # the direction of friction is the measured motion's
    oracle = np.linalg.solve(Z.T @ Y, Z.T @ samples.tau[valid])
    x = th.Instrumental().estimate(info).x_base
    assert np.all(np.abs(x - oracle) <= 1e-8 * np.abs(oracle).max())


def test_parts_merge_to_what_one_fold_gives(tmp_path: Path) -> None:
    robot, _ = motion("arm7")
    samples, reference = measured(2, name="arm7")
    whole = th.information(robot, samples, instruments=reference)
    cuts = [slice(0, 301), slice(301, 1200), slice(1200, None)]
    parts = [
        th.information(robot, samples.subset(cut), instruments=reference.subset(cut))
        for cut in cuts
    ]
    streamed = th.information(
        robot,
        (samples.subset(cut) for cut in cuts),
        instruments=(reference.subset(cut) for cut in cuts),
    )
    parts[0].save(tmp_path / "first.npz")
    merged = Information.load(tmp_path / "first.npz", robot) + parts[1] + parts[2]
    for other in (merged, streamed):
        assert np.array_equal(other.rows, whole.rows)
        assert other.instrument_factors is not None
        mine, theirs = other.stacked(), whole.stacked()
        assert np.allclose(mine.T @ mine, theirs.T @ theirs, rtol=1e-8)
        x = th.Instrumental().estimate(other).x_base
        assert np.allclose(x, th.Instrumental().estimate(whole).x_base, rtol=1e-8)


def test_factors_beside_are_those_without_instruments() -> None:
    robot, _ = motion()
    samples, reference = measured(2)
    info = th.information(robot, samples, instruments=reference)
    plain = th.information(robot, samples)
    for mine, theirs in zip(info.factors, plain.factors, strict=True):
        assert np.allclose(mine.T @ mine, theirs.T @ theirs, rtol=1e-10)
    seen = view(info, without=("offset",))
    direct = th.information(robot.with_drive(offset=False), samples, instruments=reference)
    x = th.Instrumental().estimate(seen).x_base
    assert np.allclose(x, th.Instrumental().estimate(direct).x_base, rtol=1e-8)


def test_noise_in_the_motion_biases_least_squares_and_not_instruments() -> None:
    robot, _ = motion()
    errors: dict[str, list[np.ndarray]] = {"ls": [], "iv": [], "consistent": []}
    for seed in range(12):
        samples, reference = measured(seed)
        info = th.information(robot, samples, instruments=reference)
        iv = th.solve(
            info, th.Instrumental("iterated"), samples=samples.with_instruments(reference)
        )
        fits = {
            "ls": th.LeastSquares("iterated").estimate(info),
            "iv": iv,
            "consistent": th.Consistent(weight=0.0).estimate(info),
        }
        for name, fit in fits.items():
            errors[name].append((fit.x_base - truth(info)) / iv.base_std)
    bias = {name: np.abs(np.mean(values, axis=0)) for name, values in errors.items()}
    # of a mean of twelve: 0.29 standard deviations; 4.5 of those for the largest of 31
    assert bias["ls"].max() > 3.0
    assert bias["iv"].max() < 1.3
    assert bias["consistent"].max() < 1.3
    ratio = np.std(errors["iv"], axis=0)
    assert 0.7 < np.median(ratio) < 1.3  # stated standard deviations are those of the estimates


def test_the_test_finds_noise_in_the_motion_and_only_there() -> None:
    robot, _ = motion()
    alarms = 0
    for seed in range(20):
        samples, reference = measured(seed, encoder=False)
        # instruments with noise of their own: a repeat of the motion
        other = measured(1000 + seed)[0]
        info = th.information(robot, samples, instruments=other)
        test = hausman_test(info, samples=samples.with_instruments(other), level=0.05)
        alarms += test.biased
    assert alarms <= 4  # of 20 at 5 %: more with probability 0.003
    samples, reference = measured(7)
    info = th.information(robot, samples, instruments=reference)
    test = hausman_test(info, samples=samples.with_instruments(reference))
    assert test.biased
    assert test.rejected_joints
    assert "noise in the motion biases" in test.sentence
    assert "1% false alarms" in test.sentence
    assert 0.5 < test.strength <= 1.0


def test_the_covariance_of_the_difference_is_that_of_a_monte_carlo() -> None:
    """Of d = x_IV − x_LS under white torque noise, by its own formula."""
    robot, _ = motion()
    samples, clean = measured(0, encoder=False)
    other = measured(1)[0]
    rng = np.random.default_rng(3)
    differences = []
    for _ in range(120):
        noisy = replace(samples, tau=clean.tau + spread(robot) * rng.normal(size=clean.tau.shape))
        info = th.information(robot, noisy, instruments=other)
        differences.append(
            th.Instrumental().estimate(info).x_base - th.LeastSquares().estimate(info).x_base
        )
    test = hausman_test(info, weights=None)
    # unweighted fits of joints with unequal noise: the one variance of all rows is not theirs
    weighed = contrast_of(info, spread(robot) ** 2)
    ratio = np.std(differences, axis=0) / weighed
    assert np.all((ratio > 0.8) & (ratio < 1.25))
    assert test.p_values.count() == len(info.base)


def contrast_of(info: Information, variances: np.ndarray) -> np.ndarray:
    """Standard deviation of x_IV − x_LS, without weights, for these variances of joints."""
    Hp, H = (
        np.linalg.inv(R.T @ R)
        for R in (each.stacked()[:-1, :-1] for each in (info, info.without_instruments))
    )
    projection = info.projection()
    assert projection is not None
    gains = [np.vstack([projection.gain[p] @ Hp, -H[p]]) for p in info.positions]
    covariance = contrast_covariance(info, gains, None, [np.array([v]) for v in variances])
    return np.sqrt(np.diag(covariance))


def test_holm_is_the_textbook_example() -> None:
    """[Holm1979]: thresholds level/m, level/(m − 1), …, up to the first that holds."""
    p = np.ma.masked_array([0.01, 0.04, 0.03, 0.005, 0.001], mask=[0, 0, 0, 0, 1])
    assert holm(p, 0.05).tolist() == [True, False, False, True, False]


# -- bad input -------------------------------------------------------------------------------------


def test_bad_references_are_refused_in_a_sentence() -> None:
    robot, _ = motion()
    samples, reference = measured(0)
    with pytest.raises(UsageError, match=r"1900 rows.*samples have 2000"):
        th.information(robot, samples, instruments=reference.subset(slice(0, 1900)))
    with pytest.raises(UsageError, match=r"coordinates and 7 velocities.*samples have 4 and 4"):
        th.information(robot, samples, instruments=measured(0, name="arm7")[1])
    with pytest.raises(UsageError, match="without overlap; shift its time stamps"):
        th.information(robot, samples, instruments=replace(reference, t=reference.t + 100.0))
    with pytest.raises(UsageError, match=r"differ from the samples' by up to 0\.5 s"):
        th.information(robot, samples, instruments=replace(reference, t=reference.t + 0.5))
    still = replace(reference, dq=np.zeros_like(reference.dq))
    with pytest.raises(UsageError, match="its reference is constant"):
        th.information(robot, samples, instruments=still)
    with pytest.raises(UsageError, match="has no instruments; fold it with them"):
        th.solve(th.information(robot, samples), th.Instrumental())
    info = th.information(robot, samples, instruments=reference)
    with pytest.raises(UsageError, match=r"samples\.with_instruments\(reference\)"):
        th.solve(info, th.Instrumental(), samples=samples)
    with pytest.raises(UsageError, match="one of these informations has instruments"):
        _ = info + th.information(robot, samples)
    parts = [samples.subset(slice(0, 900)), samples.subset(slice(900, None))]
    with pytest.raises(UsageError, match="the instruments end first"):
        th.information(robot, parts, instruments=[reference.subset(slice(0, 900))])


def test_a_reference_with_its_own_stamps_is_interpolated() -> None:
    robot, _ = motion()
    samples, reference = measured(0)
    shifted = reference.subset(slice(0, 1900, 3))
    paired = with_reference(samples, shifted, robot)
    assert paired.instruments is not None
    inside = slice(0, 1890)
    for name, tolerance in (("q", 1e-6), ("dq", 1e-5), ("ddq", 2e-2)):
        mine, exact = getattr(paired.instruments, name)[inside], getattr(reference, name)[inside]
        assert np.max(np.abs(mine - exact)) < tolerance
    assert not paired.valid[1920:].any()  # where the reference has ended
    assert np.array_equal(paired.valid[inside], samples.valid[inside])
    with pytest.raises(MalformedInput, match="without overlap"):
        with_reference(samples, replace(shifted, t=shifted.t + 50.0), robot)
    with pytest.raises(MalformedInput, match=r"covers .* of the log's rows"):
        with_reference(samples, shifted.subset(slice(0, 60)), robot)


def test_rows_at_standstill_are_those_of_the_reference_and_not_of_the_noise() -> None:
    """Rows that a measured speed chooses are chosen by its noise."""
    names = motion()[0].joint_names
    chosen = []
    for seed in (0, 1):
        samples, reference = measured(seed)
        still, index = REASONS.index("standstill"), REASONS.index("outlier")
        reason = np.where(np.abs(samples.dq) < STANDSTILL, still, 0).astype(np.uint8)
        reason[3] = index
        theirs = np.where(np.abs(reference.dq) < STANDSTILL, still, 0).astype(np.uint8)
        paired = replace(samples, reason=reason).with_instruments(replace(reference, reason=theirs))
        assert paired.reason is not None
        assert np.all(paired.reason[3] == index)  # other reasons stay
        chosen.append(paired.reason)
        assert np.any(reason != paired.reason)
    assert np.mean(chosen[0] != chosen[1]) < 0.1 * np.mean(chosen[0] == still) / len(names)


def test_a_joint_that_is_held_while_the_reference_moves_stands_still() -> None:
    samples, reference = measured(0)
    still = REASONS.index("standstill")
    moving = np.flatnonzero(np.abs(reference.dq[:, 1]) > 2.5 * STANDSTILL)
    dq = samples.dq.copy()
    dq[moving, 1] = 0.9 * STANDSTILL * np.sign(dq[moving, 1])
    reason = np.where(np.abs(dq) < STANDSTILL, still, 0).astype(np.uint8)
    theirs = np.where(np.abs(reference.dq) < STANDSTILL, still, 0).astype(np.uint8)
    held = replace(samples, dq=dq, reason=reason)
    paired = held.with_instruments(replace(reference, reason=theirs))
    assert paired.reason is not None
    assert np.all(paired.reason[moving, 1] == still)
    later = with_reference(held, replace(reference, reason=theirs), motion()[0])
    assert later.reason is not None
    assert np.array_equal(later.reason, paired.reason)  # also where it is laid beside by time
