"""Covariance of base parameters where neighbouring samples are not independent, as those of a log
at 1 kHz are not.

    x = H⁻¹ Σ_j w_j² Y_jᵀu_j,   Cov x = H⁻¹ [Σ_j w_j⁴ Y_jᵀT_j Y_j] H⁻¹,   H = Σ_j w_j² Y_jᵀY_j

with T_j the autocovariance of joint j's torque noise along each stretch of the log, from the
residuals (`noise.py`). Two passes over the log: what the residuals and the regressor are worth at
every lag, then the sum in brackets. Both work in whitened columns, z_j = w_j·Y_j·(H^{-½})_j in
which Σ zᵀz = 1, so that no digits are lost to the condition of the fit. Noise of different joints
counts as independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import fft

from thetahat.dynamics import batch
from thetahat.dynamics.contact_projection import eliminates_forces
from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import Source, covariance_of_data
from thetahat.identification.estimators.joint_weights import EXACT, Weights, weigh
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.time_blocks import (
    Block,
    base_rows,
    blocks,
    instrument_rows,
    row_counts,
    row_plan,
)
from thetahat.identification.uncertainty.flags import MODEL_ERROR, SLOW_NOISE
from thetahat.identification.uncertainty.lag_products import (
    SMALLEST,
    JointPart,
    joint_parts,
    lag_products,
    together,
)
from thetahat.identification.uncertainty.model_error import (
    NOTABLE,
    OmittedSums,
    omitted_columns,
    omitted_effect,
    possible,
)
from thetahat.identification.uncertainty.noise import (
    LAGS,
    TAIL,
    Autocovariance,
    LagSums,
    NoiseModel,
    fit,
)
from thetahat.identification.uncertainty.score_covariance import row_by_row
from thetahat.identification.uncertainty.sensitivity import Sensitivity
from thetahat.model.drive import TERMS

# blocks of which the regressor's own autocorrelation is taken; in longer logs the fit takes next to
# nothing
LEVERAGE = 16
HIDDEN = 1e-6  # of a parameter's variance: less than this is rounding in the gain of an estimate
ROUNDED = 0.02  # beside one: of rows that count by parts, and are whole in an information
# of a parameter's variance from joints whose noise is not known: its interval is a lower bound
UNRESOLVED = 0.25
# independent stretches of slow noise: with fewer, its variance is known to no better than 30 %
STRETCHES = 25.0


def corrected(
    estimate: Estimate,
    information: Information,
    samples: Source,
    *,
    weights: str | Weights | None = None,
) -> Estimate:
    """The estimate with standard deviations that know of the noise's autocorrelation. weights:
    those it was made with.

    For every estimate that is linear in the torques, with x = Q·Σ w²Yᵀu + … and Q symmetric: least
    squares, the blend with a guess, ridge. Q follows from the covariance the estimate has,
    σ²·Q·H·Q.
    """
    # joints go side by side, and BLAS's own threads would fight with theirs
    with f.blas_threads().limit(limits=1, user_api="blas"):
        weights = weights if isinstance(weights, Weights) else weigh(information, weights)
        solution = f.solve(information.stacked(weights.joints))
        x, variance = estimate.x_base, weights.variance
        middle, model, slow, omitted = _middle(
            information, x, samples, weights.joints, solution, variance=variance
        )
        if all(each is None or each.few for each in model.autocovariances):
            return estimate.with_noise(estimate.covariance, model)  # rows count as independent
        sensitivity = estimate.diagnostics.sensitivity
        if sensitivity is None:
            return estimate.with_noise(_through(estimate, solution, variance, middle), model)
        effects = _Effects.of(omitted, model, solution.rank, estimate.coulomb)
        sensitivity = sensitivity.with_noise(middle + effects.spread)
        return _with_model_error(estimate, sensitivity, slow, effects).with_noise_model(model)


def _with_model_error(
    estimate: Estimate, sensitivity: Sensitivity, slow: np.ndarray, effects: _Effects
) -> Estimate:
    """The estimate with the covariance of noise, model error and prior, and its flags."""
    corrected = estimate.with_sensitivity(sensitivity, estimate.diagnostics.posterior)
    moved = estimate.base.map @ sensitivity.data
    variances = np.einsum("ij,jk,ik->i", moved, sensitivity.noise, moved)
    unknown = np.einsum("ij,jk,ik->i", moved, slow, moved) > UNRESOLVED * variances
    shifted = np.max(np.abs(moved @ effects.shifts), axis=1, initial=0.0)
    flagged = shifted > NOTABLE * corrected.base_std.filled(np.inf)
    flagged |= _of_chosen_shape(estimate)
    return corrected.with_flag(SLOW_NOISE, unknown).with_flag(MODEL_ERROR, flagged)


def _of_chosen_shape(estimate: Estimate) -> np.ndarray:
    """Base parameters of friction beyond Coulomb and viscous, (p,) bool: a shape of several that
    predicts best, which need not be the true one.
    """
    columns = Columns(estimate.robot)
    chosen = np.array([name not in TERMS for name, _ in columns.pairs])
    chosen[: columns.inertial] = False
    return np.asarray(np.any(np.abs(estimate.base.map[:, chosen]) > 1e-9, axis=1))


def noise_covariance(
    information: Information, x_base: np.ndarray, samples: Source, weights: np.ndarray | None = None
) -> tuple[np.ndarray, NoiseModel]:
    """Return the covariance of base parameters by least squares, and the noise model."""
    with f.blas_threads().limit(limits=1, user_api="blas"):
        solution = f.solve(information.stacked(weights))
        freedom = max(int(np.sum(information.rows)) - solution.rank, 1)
        rows = max(int(np.sum(information.rows)), 1)
        torques = information.torque_norms() * (1.0 if weights is None else weights)
        floor = EXACT * float(np.linalg.norm(torques))
        variance = max(solution.residual**2 / freedom, floor**2 / rows) or 1.0
        x = np.asarray(x_base, dtype=float)
        middle, model, *_ = _middle(information, x, samples, weights, solution, variance=variance)
        return covariance_of(solution, middle), model


@dataclass(frozen=True, eq=False)
class WhitenedNoise:
    """Noise of a fit's whitened combinations of torques, with what the model may lack."""

    solution: f.Solution  # of the weighted fit; its rows `seen` are the whitened columns
    covariance: np.ndarray  # (rank, rank)
    model: NoiseModel


def whitened_noise(information: Information, samples: Source, weights: Weights) -> WhitenedNoise:
    """Return the noise of least squares with these weights, from the samples that were folded."""
    with f.blas_threads().limit(limits=1, user_api="blas"):
        solution = f.solve(information.stacked(weights.joints))
        middle, model, _, omitted = _middle(
            information, solution.x, samples, weights.joints, solution, variance=weights.variance
        )
        if all(each is None or each.few for each in model.autocovariances):
            return WhitenedNoise(solution, weights.variance * np.eye(solution.rank), model)
        coulomb = _coulomb(information, solution.x)
        effects = _Effects.of(omitted, model, solution.rank, coulomb)
        return WhitenedNoise(solution, middle + effects.spread, model)


def _coulomb(information: Information, x_base: np.ndarray) -> np.ndarray:
    """Coulomb friction of every degree of freedom, (nv,); zero where motors drive several."""
    columns, out = Columns(information.robot), np.zeros(len(information.rows))
    if columns.drive.actuation is None:
        motors = dict(zip(columns.motor_names, columns.drive.column_motors, strict=True))
        for k, value in zip(information.base.independent, x_base, strict=True):
            term, owner = columns.pairs[k]
            if term == "coulomb" and k >= columns.inertial:
                out[motors[owner]] = value
    return out


def independent_share(information: Information, samples: Source, weights: Weights) -> np.ndarray:
    """Return the share of each joint's rows that are independent in its part of the fit, (nv,).

    Residuals are those of least squares. Correlation multiplies the variance of a fit by Σ_k
    c(|k|)a(k)/(c(0)a(0)), mean over a joint's part in it (a(k): leverage at lag k); as many rows
    make one independent one. One pass over the log.
    """
    with f.blas_threads().limit(limits=1, user_api="blas"):
        solution = f.solve(information.stacked(weights.joints))
        parts = joint_parts(information, solution, weights.joints)
        with ThreadPoolExecutor(batch.CORES) as pool:
            sums, _ = _lag_sums(information, solution.x, samples, parts, pool)
        share = np.ones(len(information.rows))
        for part, each in zip(parts, sums, strict=True):
            rows, torque = information.rows[part.joint], information.torque_norms()[part.joint]
            model = fit(each, (EXACT * torque) ** 2 / rows, weights.variance / part.weight**2)
            a, c = each.leverage[: len(model.c)], model.c / model.c[0]
            if a[0] > 0.0 and not model.white:
                inflation = 1.0 + 2.0 * float(c[1:] @ a[1:]) / a[0]
                share[part.joint] = 1.0 / max(inflation, 1.0)
    return share


def sandwich(
    information: Information,
    samples: Source,
    autocovariances: Sequence[np.ndarray],
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return the covariance of least squares for given autocovariances of joint noise."""
    with f.blas_threads().limit(limits=1, user_api="blas"):
        solution = f.solve(information.stacked(weights))
        parts = joint_parts(information, solution, weights)
        models = [np.asarray(autocovariances[part.joint], dtype=float) for part in parts]
        shares = lag_products(information, samples, parts, models)
        return covariance_of(solution, together(parts, shares, solution.rank))


def contrast_covariance(
    information: Information,
    gains: Sequence[np.ndarray],
    samples: Source | None,
    autocovariances: Sequence[np.ndarray],
) -> np.ndarray:
    """Return the covariance of Σ_j gains_jᵀ·[Z_j | Y_j]ᵀε_j, (p, p), of noise ε_j with these
    autocovariances, Z_j the instruments' columns. gains: (2·columns, p) of every joint; samples:
    None where every autocovariance is that of independent rows.
    """
    parts = []
    for v, (R, gain) in enumerate(zip(information.instrument_factors or (), gains, strict=True)):
        if information.rows[v]:
            _, sizes, back = f.singular_values(R[:, :-1] @ gain)
            kept = sizes > SMALLEST * np.max(sizes, initial=0.0)
            parts.append(JointPart(v, 1.0, gain @ back[kept].T, back[kept].T, sizes[kept]))
    models = [np.asarray(autocovariances[part.joint], dtype=float) for part in parts]
    if samples is None:
        shares = [c[0] * np.diag(part.sizes**2) for part, c in zip(parts, models, strict=True)]
    else:
        sources = (instrument_rows, base_rows)
        shares = lag_products(information, samples, parts, models, sources=sources)
    return together(parts, shares, gains[0].shape[1])


def covariance_of(solution: f.Solution, middle: np.ndarray) -> np.ndarray:
    """H^{-½}·middle·H^{-½}ᵀ in the directions seen, infinite as for plain least squares."""
    plain = covariance_of_data(solution, 1.0)
    return np.where(np.isfinite(plain), solution.inverse @ middle @ solution.inverse.T, np.inf)


def _through(
    estimate: Estimate, solution: f.Solution, variance: float, middle: np.ndarray
) -> np.ndarray:
    """The covariance of the estimate: its gain on whitened data, from the covariance it has, around
    the middle.

    C = σ²·g·gᵀ with g = Q·seenᵀ, so seen·C·seenᵀ = σ²·(seen·g)², and seen·g is symmetric: g =
    C·seenᵀ·(seen·g)⁻¹/σ². What rounding hides from g (a guess that outweighs some directions of
    exact data by many orders) keeps the variance it has.
    """
    C = estimate.covariance
    if not np.all(np.isfinite(C)):
        return covariance_of(solution, middle)
    values, vectors = np.linalg.eigh(solution.seen @ C @ solution.seen.T / variance)
    root = np.sqrt(np.maximum(values, 0.0))
    counts = root > 1e-8 * np.max(root, initial=0.0)
    inverse = np.where(counts, 1.0 / np.where(counts, root, 1.0), 0.0)
    gain = C @ solution.seen.T @ (vectors * inverse) @ vectors.T / variance
    size = np.sqrt(np.diag(C))
    size = np.where(size > 0.0, size, 1.0)
    hidden, axes = np.linalg.eigh((C - variance * gain @ gain.T) / np.outer(size, size))
    axes = size[:, None] * axes[:, hidden > HIDDEN]
    return np.asarray(gain @ middle @ gain.T + (axes * hidden[hidden > HIDDEN]) @ axes.T)


# -- the middle ------------------------------------------------------------------------------------


class _Middle(NamedTuple):
    """Covariance of the whitened combinations of torques, (rank, rank), the noise model behind it,
    and the part of joints whose noise is too slow, or whose rows are too few, to tell.
    """

    covariance: np.ndarray
    noise: NoiseModel
    slow: np.ndarray
    # joint by joint, sums of columns that the model lacks
    omitted: list[tuple[JointPart, OmittedSums]]


def _middle(
    information: Information,
    x_base: np.ndarray,
    samples: Source,
    weights: np.ndarray | None,
    solution: f.Solution,
    *,
    variance: float,
) -> _Middle:
    """Σ_j w_j²·Z_jᵀT_j Z_j in whitened columns, with T from the residuals at x_base; the noise.

    variance: of a weighted row were all independent, for joints with too few rows to tell.
    """
    parts = joint_parts(information, solution, weights)
    with ThreadPoolExecutor(batch.CORES) as pool:
        sums, period = _lag_sums(information, x_base, samples, parts, pool)
        floors = [
            (EXACT * information.torque_norms()[part.joint]) ** 2 / information.rows[part.joint]
            for part in parts
        ]
        variances = [variance / part.weight**2 for part in parts]
        models = list(pool.map(fit, sums, floors, variances, timeout=batch.LONGEST_WAIT))
    shares = lag_products(information, samples, parts, [model.c for model in models])
    model = _noise_model(information, x_base, list(zip(parts, models, shares, strict=True)), period)
    slow = [
        k
        for k, (part, each) in enumerate(zip(parts, models, strict=True))
        if not each.resolved or model.effective[part.joint] < STRETCHES
    ]
    covariance = _definite(together(parts, shares, solution.rank))
    if information.instrument_factors is not None and all(each.resolved for each in models):
        inflations = model.inflation[[part.joint for part in parts]]
        covariance = row_by_row(
            information,
            x_base,
            samples,
            parts,
            sums,
            middle=covariance,
            rows_per_independent=float(np.mean(inflations**2)),
        )
    return _Middle(
        covariance,
        model,
        together([parts[k] for k in slow], [shares[k] for k in slow], solution.rank),
        [(part, each.omitted) for part, each in zip(parts, sums, strict=True) if each.omitted],
    )


class _Effects(NamedTuple):
    """What columns that the model lacks may have added to the combinations of torques."""

    spread: np.ndarray  # (rank, rank) second moments
    shifts: np.ndarray  # (rank, joints) what the data show, joint by joint

    @staticmethod
    def of(
        omitted: list[tuple[JointPart, OmittedSums]],
        noise: NoiseModel,
        rank: int,
        coulomb: np.ndarray,
    ) -> _Effects:
        """coulomb: (nv,) friction of every joint, which bounds what else it may have."""
        fitted = np.zeros(rank)
        for part, each in omitted:
            fitted += part.weight * part.back @ each.fitted
        spread, shifts = np.zeros((rank, rank)), np.zeros((rank, len(omitted)))
        for k, (part, each) in enumerate(omitted):
            v, w = part.joint, part.weight
            variance = float((noise.std[v] * noise.inflation[v]) ** 2)
            may = possible(float(coulomb[v]), len(each.residual))
            effect = omitted_effect(each, part.back.T @ fitted / w, variance, may)
            spread += w**2 * part.back @ effect.spread @ part.back.T
            if effect.shift is not None:
                shifts[:, k] = w * part.back @ effect.shift
        return _Effects(spread, shifts)


def _definite(middle: np.ndarray) -> np.ndarray:
    """The same with eigenvalues no smaller than truncating c may have taken."""
    values, vectors = np.linalg.eigh(middle)
    values = np.maximum(values, TAIL * np.max(values, initial=0.0))
    return np.asarray((vectors * values) @ vectors.T)


def _noise_model(
    information: Information,
    x_base: np.ndarray,
    fits: Sequence[tuple[JointPart, Autocovariance, np.ndarray]],
    period: float | None,
) -> NoiseModel:
    """The model of all joints. fits: of every joint with rows, its part in the fit, its
    autocovariance and its share of the middle.
    """
    nv, torques = len(information.rows), information.torque_norms()
    effective, inflation = (np.ma.masked_array(np.zeros(nv), mask=True) for _ in range(2))
    models: list[Autocovariance | None] = [None] * nv
    for part, model, share in fits:
        v, c0 = part.joint, model.c[0]
        effective[v] = information.rows[v] / max(model.level, 1.0)
        size = float(np.sum(part.sizes**2))
        coloured = size and not model.white
        inflation[v] = np.sqrt(max(np.trace(share) / (c0 * size), TAIL)) if coloured else 1.0
        models[v] = model
    return NoiseModel(
        joints=tuple(information.robot.velocity_names),
        rows=information.rows,
        period=period,
        autocovariances=tuple(models),
        effective=effective,
        inflation=inflation,
        left=information.residual_norms(x_base) / np.where(torques > 0.0, torques, 1.0),
    )


# -- first pass: sums at every lag -----------------------------------------------------------------


class _Pairs:
    """Σ_t x_t·x_{t+k} over pairs of rows of a segment, summed over several series."""

    def __init__(self, rows: int) -> None:
        """rows: of the log. One that is shorter than a block has no block that continues another,
        and needs no full circle.
        """
        self._length = 2 * LAGS if rows >= LAGS else fft.next_fast_len(2 * max(rows, 1), real=True)
        bins = self._length // 2 + 1
        self.power, self.cross = np.zeros(bins), np.zeros(bins, dtype=complex)
        self._before: np.ndarray | None = None

    def add(self, series: np.ndarray, *, first: bool) -> None:
        """(series, rows) of the next block."""
        now = fft.rfft(series, self._length)
        self.power += np.einsum("sf,sf->f", now.real, now.real) + np.einsum(
            "sf,sf->f", now.imag, now.imag
        )
        if not first and self._before is not None:
            self.cross += np.einsum("sf,sf->f", self._before.conj(), now)
        self._before = now

    def sums(self) -> np.ndarray:
        """(LAGS,): partners at lag k are in the same block, or in the next."""
        same = fft.irfft(self.power, self._length)[: self._length // 2]
        if len(same) == LAGS:
            return np.asarray(same + fft.irfft(self.cross, self._length)[LAGS:])
        return np.concatenate([same, np.zeros(LAGS - len(same))])


def _lag_sums(
    information: Information,
    x_base: np.ndarray,
    samples: Source,
    parts: list[JointPart],
    pool: ThreadPoolExecutor,
) -> tuple[list[LagSums], float | None]:
    """Lag sums of every joint that has rows, and the period."""
    plan = row_plan(information)
    held = [[_Pairs(information.samples) for _ in range(3)] for _ in parts]
    omitted: dict[int, OmittedSums] = {}
    speeds = np.zeros(len(information.rows))
    longest = length = count = 0
    period, used = None, np.zeros(len(information.rows))
    for number, block in enumerate(blocks(samples, plan.information.robot, LAGS, reach=LAGS)):
        rows, counts = base_rows(plan, block), row_counts(plan, block)
        fitted = rows
        if information.instrument_factors is not None and number < LEVERAGE:
            fitted = instrument_rows(plan, block)

        def add(
            part: JointPart,
            pairs: list[_Pairs],
            rows: np.ndarray = rows,
            fitted: np.ndarray = fitted,
            block: Block = block,
            number: int = number,
            counts: np.ndarray = counts,
        ) -> None:
            v = part.joint
            mine, usable = rows[plan.starts[v] : plan.starts[v + 1]], block.usable[:, v]
            left = np.where(usable, block.tau[:, v], 0.0) - x_base[information.positions[v]] @ mine
            pairs[0].add(left[None], first=block.first)
            pairs[1].add(np.sqrt(counts[None, :, v]), first=block.first)
            if number < LEVERAGE:
                z = part.columns.T @ fitted[plan.starts[v] : plan.starts[v + 1]]
                pairs[2].add(z, first=block.first)
                if block.windows is None:
                    omitted[v] = _omitted(omitted.get(v), speeds, block, v, (z, left))

        list(pool.map(add, parts, held, timeout=batch.LONGEST_WAIT))
        used += counts.sum(axis=0)
        length = len(block) if block.first else length + len(block)
        longest, count, period = max(longest, length), count + 1, block.period
    there = information.rows > 0
    close = 1.0 + ROUNDED * information.rows if eliminates_forces(information.robot) else 0.0
    if np.any((np.abs(used - information.rows) > close)[there]):
        raise UsageError(
            f"the samples have {', '.join(f'{n:.9g}' for n in used)} usable torques per joint,"
            " but the"
            f" information was folded from {', '.join(map(str, information.rows))}; pass the"
            " samples it was folded from"
        )
    out = []
    for part, (residual, pairs, leverage) in zip(parts, held, strict=True):
        a = leverage.sums()
        a *= float(np.sum(part.sizes**2)) / a[0] if count > LEVERAGE and a[0] > 0.0 else 1.0
        lacking = omitted.get(part.joint)
        out.append(LagSums(residual.sums(), np.rint(pairs.sums()), a, longest, lacking))
    return out, period


def _omitted(
    before: OmittedSums | None,
    speeds: np.ndarray,
    block: Block,
    v: int,
    rows: tuple[np.ndarray, np.ndarray],
) -> OmittedSums:
    """The sums with those of one more block; rows: z and the residual. speeds: (nv,) RMS of the
    first block, filled here.
    """
    dq, usable = block.rows.dq[:, v], block.usable[:, v]
    if not speeds[v]:
        speeds[v] = np.sqrt(np.mean(dq**2)) or 1.0
    q = block.rows.q[:, v] if block.rows.q.shape[1] == block.rows.dq.shape[1] else None
    z, residual = rows
    torque = block.tau[:, v] - residual  # as predicted: without noise
    rate = np.gradient(torque) if len(torque) > 1 else np.zeros(len(torque))
    steady = usable & np.append(usable[1:], False) & np.append(False, usable[:-1])
    columns = omitted_columns(q, dq / speeds[v], np.where(steady, rate, 0.0)) * usable
    sums = OmittedSums.of(columns, z, residual)
    return sums if before is None else before + sums
