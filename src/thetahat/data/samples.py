"""Samples: rows of q, q̇, q̈ and τ for the regressor, and which torques must not be used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from thetahat.data.regressor_form import TORQUE, RegressorForm
from thetahat.errors import UsageError, known
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import FrictionDirection

# Why the torque of one degree of freedom in one row must not enter a fit; the code is the position,
# the last one for any other reason.
REASONS = (
    "usable",
    "standstill",
    "edge",
    "outlier",
    "saturated",
    "dead torque",
    "stuck",
    "sign",
    "locked",
    "no torque column",
    "masked",
)
USABLE, STANDSTILL, EDGE, OUTLIER, LOCKED, MASKED = (
    REASONS.index(name) for name in ("usable", "standstill", "edge", "outlier", "locked", "masked")
)
HELD = 0.5  # of the reference's speed: a joint slower than that, and standing still, is held

# the torque is not a measurement of the joint's
UNMEASURED = (LOCKED, REASONS.index("no torque column"), REASONS.index("dead torque"))

_ARRAYS = ("q", "dq", "ddq", "tau")
_OPTIONAL = ("t", "run", "reason", "direction", "contact")


def reason_code(name: str) -> int:
    """Return the code of a reason, however a log spells it; `masked` for unknown ones."""
    plain = name.strip().lower().replace("-", " ").replace("_", " ")
    return REASONS.index(plain) if plain in REASONS[1:] else MASKED


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples:
    """Rows of a motion and its torques. `reason` says, per row and degree of freedom, why a torque
    is not to be used (0: it is).

    From arrays: ``Samples(q=q, dq=dq, ddq=ddq, tau=tau)``. From a log: `prepare`.
    """

    q: np.ndarray  # (n, nq) [rad or m], quaternions x, y, z, w
    dq: np.ndarray  # (n, nv) [rad/s or m/s]
    ddq: np.ndarray  # (n, nv) [rad/s² or m/s²]
    tau: np.ndarray  # (n, nv) [N·m or N]
    t: np.ndarray | None = None  # (n,) [s]
    run: np.ndarray | None = None  # (n,) which run of the log a row is from
    reason: np.ndarray | None = None  # (n, nv) uint8, codes of REASONS
    period: float | None = None  # [s] between rows, where all runs share one
    cutoff: float | None = None  # [Hz] of the low-pass that made them
    guard: float = 0.0  # [s] a row depends on measurements up to this much later than itself
    provenance: Mapping[str, Any] = field(default_factory=dict)  # sources with hashes, settings
    # (n, motors) of dry friction, filtered like the torque (data/friction_direction.py)
    direction: np.ndarray | None = None
    dry: FrictionDirection | None = None  # the law it follows
    form: RegressorForm = TORQUE  # of the equation of motion that a fit makes of these rows
    # (n, feet) which feet of a floating robot touch ground whose force is not measured
    contact: np.ndarray | None = None
    # the same motion without this one's noise, row by row: as commanded, repeated or simulated
    instruments: Samples | None = None

    def __post_init__(self) -> None:
        given = {name: _matrix(name, getattr(self, name)) for name in _ARRAYS}
        count, nv = given["tau"].shape
        if nv == 0:
            raise UsageError("tau has no columns; give one per degree of freedom")
        for name, array in given.items():
            if len(array) != count:
                raise UsageError(
                    f"{name} has {len(array)} rows but tau has {count}; give the same number of"
                    " samples"
                )
            if name != "q" and array.shape[1] != nv:
                raise UsageError(
                    f"{name} has shape {array.shape} but tau has {given['tau'].shape}; give one"
                    " column per degree of freedom"
                )
            _check_finite(name, array)
        if given["q"].shape[1] < nv:
            raise UsageError(
                f"q has {given['q'].shape[1]} columns for {nv} degrees of freedom; give at least"
                " one per degree of freedom"
            )
        if self.t is not None:
            given["t"] = _vector("t", self.t, count, np.float64)
            _check_finite("t", given["t"])
        if self.run is not None:
            given["run"] = _vector("run", self.run, count, np.int64)
        if self.reason is not None:
            given["reason"] = _numbers("reason", self.reason, np.uint8, "one code per torque")
            if given["reason"].shape != (count, nv):
                raise UsageError(
                    f"reason has shape {np.shape(self.reason)}; expected {(count, nv)}, one code"
                    " per sample and degree of freedom"
                )
            if count and given["reason"].max() >= len(REASONS):
                raise UsageError(
                    f"reason holds the code {given['reason'].max()}; codes:"
                    f" {', '.join(f'{i} {name}' for i, name in enumerate(REASONS))}"
                )
        if self.direction is not None:
            given["direction"] = _matrix("direction", self.direction)
            if self.dry is None or given["direction"].shape != (count, self.dry.motors):
                raise UsageError(
                    f"direction has shape {np.shape(self.direction)}; give one row per sample, one"
                    " column per motor, and the law"
                )
        if self.contact is not None:
            given["contact"] = _numbers("contact", self.contact, np.bool_, "one flag per foot")
            if given["contact"].ndim != 2 or len(given["contact"]) != count:
                raise UsageError(
                    f"contact has shape {np.shape(self.contact)}; give one row per sample and one"
                    " column per foot"
                )
        if self.instruments is not None:
            _check_instruments(self.instruments, given["q"], given["dq"])
        for name, array in given.items():
            view = array.view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    def __len__(self) -> int:
        return len(self.tau)

    def __str__(self) -> str:
        runs = "" if self.run is None else f" in {len(np.unique(self.run))} run(s)"
        left_out = ", ".join(f"{count} {name}" for name, count in self.dropped.items()) or "none"
        low_pass = "" if self.cutoff is None else f", low-pass {self.cutoff:.4g} Hz"
        form = ""
        if self.form.windowed:
            form = f", {self.form.name} form over {1e3 * self.form.time:.3g} ms"
        return (
            f"{len(self)} samples of {self.nv} degrees of freedom{runs}{low_pass}{form}; torques"
            f" left out: {left_out}"
        )

    @property
    def nq(self) -> int:
        """Return the number of coordinates."""
        return int(self.q.shape[1])

    @property
    def nv(self) -> int:
        """Return the number of degrees of freedom."""
        return int(self.tau.shape[1])

    @cached_property
    def valid(self) -> np.ndarray:
        """Return (n, nv) whether each torque may enter a fit."""
        return np.ones(self.tau.shape, dtype=bool) if self.reason is None else self.reason == USABLE

    @cached_property
    def scorable(self) -> np.ndarray:
        """Return (n, nv) whether each torque may enter a score: standstill is left out of a fit,
        not of a score.
        """
        return self.valid if self.reason is None else np.isin(self.reason, (USABLE, STANDSTILL))

    @cached_property
    def dropped(self) -> dict[str, int]:
        """Return how many torques (rows × degrees of freedom) are left out, by reason."""
        if self.reason is None:
            return {}
        counts = np.bincount(self.reason.ravel(), minlength=len(REASONS))
        return {
            name: int(count) for name, count in zip(REASONS[1:], counts[1:], strict=True) if count
        }

    def direction_of(self, drive: Drive) -> np.ndarray | None:
        """Return (n, motors) of this drive's dry friction; None where the samples do not hold it:
        then it follows from the speed alone.
        """
        if drive.dry is None or self.dry is None or self.dry.key != drive.dry.key:
            return None
        return self.direction

    def with_form(self, name: str) -> Samples:
        """Return the samples with another form of the equation of motion, its windows as long as
        the low-pass of the torque asks for.
        """
        if name == self.form.name:
            return self
        cutoff = self.provenance.get("settings", {}).get("torque_cutoff") or self.cutoff
        return replace(self, form=RegressorForm.of(name, cutoff, self.time_step))

    @property
    def time_step(self) -> float | None:
        """Return the time between samples [s]: the one all runs share, or the median."""
        if self.period is not None or self.t is None or len(self) < 2:
            return self.period
        return float(np.median(np.diff(self.t)))

    @property
    def row_period(self) -> float | None:
        """Return the time between rows of a fit [s], where all runs share one."""
        if not self.form.windowed or not self.time_step:
            return self.period
        windows = self.form.windows(self.time_step)
        return windows.stride * windows.period

    # -- parts -------------------------------------------------------------------------------------

    def subset(self, rows: slice | Sequence[int] | np.ndarray) -> Samples:
        """Return these rows, in this order: a slice, positions, or a mask."""
        index = rows if isinstance(rows, slice) else np.asarray(rows)
        if not isinstance(index, slice):
            if index.dtype == bool and index.shape != (len(self),):
                raise UsageError(
                    f"the mask has shape {index.shape}; expected ({len(self)},), one entry per"
                    " sample"
                )
            if index.dtype != bool and index.size:
                whole = np.issubdtype(index.dtype, np.integer)
                if not (whole and -len(self) <= index.min() and index.max() < len(self)):
                    got = f"{index.min()} … {index.max()}" if whole else f"type {index.dtype}"
                    raise UsageError(
                        f"rows must be whole numbers from 0 to {len(self) - 1}; got {got}"
                    )
            index = index if index.size else np.zeros(0, dtype=int)
        per_row = {name: getattr(self, name) for name in (*_ARRAYS, *_OPTIONAL)}
        taken: dict[str, Any] = {
            name: None if value is None else value[index] for name, value in per_row.items()
        }
        if self.instruments is not None:
            taken["instruments"] = self.instruments.subset(index)
        return replace(self, **taken)

    def with_instruments(self, reference: Samples) -> Samples:
        """Return these samples with the motion of instrumental variables beside theirs.

        reference: the same motion, row by row, with noise of its own or none: as commanded, of a
            repeat, or simulated. Its torques do not matter. Where both say which rows stand still,
            the reference decides, so that rows are not chosen by the noise in them.
        """
        if not isinstance(reference, Samples):
            raise UsageError(
                f"the reference is {type(reference).__name__}; give Samples of the commanded,"
                " repeated or simulated motion"
            )
        _check_times(reference, self)
        return replace(
            self,
            reason=_reasons_beside(self, reference),
            instruments=replace(reference, instruments=None),
        )

    @property
    def without_instruments(self) -> Samples:
        """These samples alone."""
        return self if self.instruments is None else replace(self, instruments=None)

    def split(self, fraction: float) -> tuple[Samples, Samples]:
        """Split the rows into (first part, last part); rows of the first part that the filter
        mixed with the last part are marked `edge`.

        A filtered row depends on measurements up to `guard` seconds later, so the last rows before
        the cut are not usable where the cut falls inside a run: no held-out measurement touches a
        usable row of the first part.
        """
        if not (isinstance(fraction, int | float | np.floating) and 0.0 < fraction < 1.0):
            raise UsageError(
                f"fraction is {fraction!r}; give the part of the rows that comes first, between 0"
                " and 1"
            )
        cut = min(max(round(fraction * len(self)), 1), len(self) - 1)
        if cut < 1:
            raise UsageError(f"{len(self)} sample(s) cannot be split in two; record more")
        first, last = self.subset(slice(0, cut)), self.subset(slice(cut, None))
        if self.guard <= 0.0 or self.t is None:
            return first, last
        touched = self.t[:cut] >= self.t[cut] - self.guard * (1.0 + 1e-9)
        if self.run is not None:
            touched &= self.run[:cut] == self.run[cut]
        reason = (
            np.zeros(first.tau.shape, dtype=np.uint8)
            if first.reason is None
            else first.reason.copy()
        )
        rows = np.flatnonzero(touched)
        reason[rows] = np.where(reason[rows] <= STANDSTILL, EDGE, reason[rows])
        return replace(first, reason=reason), last

    def split_runs(
        self, train: Iterable[int], test: Iterable[int] | None = None
    ) -> tuple[Samples, Samples]:
        """Split into (runs in `train`, runs in `test`, by default all others). Runs are filtered
        separately, so nothing leaks.
        """
        if self.run is None:
            raise UsageError("these samples have no runs; use split(fraction)")
        present = [int(r) for r in np.unique(self.run)]
        train = [int(r) for r in train]
        test = [r for r in present if r not in train] if test is None else [int(r) for r in test]
        for run in (*train, *test):
            if run not in present:
                raise UsageError(
                    f"run {run} is not among these samples; runs: {known(map(str, present))}"
                )
        both = sorted(set(train) & set(test))
        if both:
            raise UsageError(f"run {both[0]} is in train and in test; put it in one of them")
        if not train or not test:
            raise UsageError(
                f"{'train' if not train else 'test'} has no runs; runs: {known(map(str, present))}"
            )
        return self.subset(np.isin(self.run, train)), self.subset(np.isin(self.run, test))


def concatenate(parts: Iterable[Samples], *, same_log: bool = False) -> Samples:
    """Concatenate samples. Runs are renumbered unless the parts are batches of one log."""
    parts = list(parts)
    if not parts:
        raise UsageError("there is nothing to concatenate; give at least one Samples")
    first = parts[0]
    for part in parts[1:]:
        if (part.nq, part.nv) != (first.nq, first.nv):
            raise UsageError(
                f"samples of {first.nv} and of {part.nv} degrees of freedom cannot be concatenated;"
                " they are of different robots"
            )
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS
    }
    joined["t"] = _stacked([part.t for part in parts])
    if any(part.reason is not None for part in parts):
        joined["reason"] = np.concatenate(
            [
                np.where(part.valid, USABLE, MASKED) if part.reason is None else part.reason
                for part in parts
            ]
        )
    joined["run"] = _joined_runs(parts, same_log=same_log)
    joined["contact"] = _stacked([part.contact for part in parts])
    laws = {part.dry.key if part.dry is not None else None for part in parts}
    if len(laws) == 1 and first.dry is not None:
        direction = _stacked([part.direction for part in parts])
        joined |= {"direction": direction, "dry": None if direction is None else first.dry}
    references = [part.instruments for part in parts if part.instruments is not None]
    if len(references) == len(parts):
        joined["instruments"] = concatenate(references, same_log=same_log)
    cutoffs = {part.cutoff for part in parts}
    forms = sorted({part.form.name for part in parts})
    if len(forms) > 1:
        raise UsageError(
            f"samples of the forms {' and '.join(forms)} cannot be concatenated; prepare all with"
            " one form"
        )
    return Samples(
        **joined,
        period=_common([part.period for part in parts]),
        cutoff=first.cutoff if len(cutoffs) == 1 else None,
        guard=max(part.guard for part in parts),
        form=first.form,
        provenance=(
            first.provenance if same_log else {"parts": [dict(part.provenance) for part in parts]}
        ),
    )


def _joined_runs(parts: list[Samples], *, same_log: bool) -> np.ndarray | None:
    """Return the run numbers of all parts; a part without runs is one run."""
    if same_log:
        return _stacked([part.run for part in parts])
    numbers, offset = [], 0
    for part in parts:
        own = (
            np.zeros(len(part), dtype=np.int64)
            if part.run is None
            else part.run - (part.run.min() if len(part) else 0)
        )
        numbers.append(own + offset)
        offset += int(own.max()) + 1 if len(own) else 0
    return np.concatenate(numbers)


def _stacked(arrays: list[np.ndarray | None]) -> np.ndarray | None:
    """Concatenate the arrays; None if one is missing."""
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None


def _common(periods: list[float | None]) -> float | None:
    """Return the period that all share to a hundredth, or None."""
    stated = [period for period in periods if period is not None]
    if len(stated) < len(periods):
        return None
    middle = float(np.median(stated))
    return middle if all(abs(period - middle) <= 0.01 * middle for period in stated) else None


def _check_instruments(reference: Samples, q: np.ndarray, dq: np.ndarray) -> None:
    """Refuse a reference of other joints or rows, or one that stands still where these move."""
    if (reference.nq, reference.nv) != (q.shape[1], dq.shape[1]):
        raise UsageError(
            f"the reference has {reference.nq} coordinates and {reference.nv} velocities, but the"
            f" samples have {q.shape[1]} and {dq.shape[1]}; give the motion of the same joints"
        )
    if len(reference) != len(q):
        raise UsageError(
            f"the reference has {len(reference)} rows, but the samples have {len(q)}; give it row"
            " by row (thetahat.data.reference_motion.with_reference interpolates by time)"
        )


def require_motion(reference: Samples, samples: Samples, names: Sequence[str]) -> None:
    """Refuse a reference in which a joint stands still that moves in the samples."""
    for v, name in enumerate(names):
        if np.ptp(samples.dq[:, v]) > 0.0 and not np.ptp(reference.dq[:, v]) > 0.0:
            raise UsageError(
                f"joint {name!r} moves in the samples, but its reference is constant; give the"
                " motion that was commanded, repeated or simulated"
            )


def _reasons_beside(samples: Samples, reference: Samples) -> np.ndarray | None:
    """Return why rows are not usable, (N, nv), where a reference says which joints stand still.

    Rows chosen by a measured speed are chosen by its noise, which biases what instruments are to
    mend. A joint that stands still while the reference moves at twice its speed is held or lags,
    and stays left out.
    """
    own, theirs = samples.reason, reference.reason
    if own is None or theirs is None or own.shape != theirs.shape:
        return own
    held = (own == STANDSTILL) & (np.abs(samples.dq) < HELD * np.abs(reference.dq))
    still = np.where((theirs == STANDSTILL) | held, np.uint8(STANDSTILL), np.uint8(USABLE))
    return np.where(own <= STANDSTILL, still, own)


def _check_times(reference: Samples, samples: Samples) -> None:
    """Refuse a reference of other times than the samples'."""
    if reference.t is None or samples.t is None or len(reference) != len(samples):
        return
    if not len(samples):
        return
    if reference.t[0] > samples.t[-1] or reference.t[-1] < samples.t[0]:
        raise UsageError(
            f"the reference lasts from {reference.t[0]:.6g} to {reference.t[-1]:.6g} s and the"
            f" samples from {samples.t[0]:.6g} to {samples.t[-1]:.6g} s, without overlap; shift its"
            " time stamps so that both begin together"
        )
    period = samples.period or _typical_step(samples.t)
    apart = float(np.max(np.abs(reference.t - samples.t)))
    if apart > 0.5 * period:
        raise UsageError(
            f"the reference's times differ from the samples' by up to {apart:.3g} s; give it row by"
            " row (thetahat.data.reference_motion.with_reference interpolates by time)"
        )


def _typical_step(t: np.ndarray) -> float:
    """Return the median step of time stamps [s], infinite without any."""
    return float(np.median(np.abs(np.diff(t)))) if len(t) > 1 else math.inf


def _numbers(name: str, value: object, kind: type, expected: str) -> np.ndarray:
    """Return an array of numbers, whatever was given."""
    try:
        return np.ascontiguousarray(value, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} is not an array of numbers; give {expected}") from None


def _matrix(name: str, value: np.ndarray) -> np.ndarray:
    array = _numbers(name, value, np.float64, "(samples, columns)")
    if array.ndim != 2:
        raise UsageError(f"{name} has shape {np.shape(value)}; expected (samples, columns)")
    return array


def _vector(name: str, value: np.ndarray, count: int, kind: type) -> np.ndarray:
    array = _numbers(name, value, kind, "one per sample")
    if array.shape != (count,):
        raise UsageError(f"{name} has shape {np.shape(value)}; expected ({count},), one per sample")
    return array


def _check_finite(name: str, array: np.ndarray) -> None:
    """Raise an error that names the sample and joint of the first entry that is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        quick = math.isfinite(float(array.sum()))  # then every entry is finite
    if not quick and not np.all(np.isfinite(array)):
        where = np.argwhere(~np.isfinite(array))[0]
        column = (
            f", {'coordinate' if name == 'q' else 'joint'} {where[1]} (counted from 0),"
            if len(where) > 1
            else ""
        )
        raise UsageError(
            f"{name} of sample {where[0]}{column} is {array[tuple(where)]}; every entry must be a"
            " finite number, so leave that sample out"
        )
