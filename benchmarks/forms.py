"""Forms of the equation of motion on real logs: torque, momentum and filtered rows, scored by the
torques that they predict on the same held-out rows.

`python -m benchmarks.forms [names]`: the cases of `benchmarks.real` with held-out rows. Everything
but the form is chosen once, by the library, from the rows that are fitted. A fit of every form is
scored row by row in torque, on the rows that `benchmarks.real` scores. Spread: of base parameters
between plain least-squares fits to four parts of the training rows, median over the parameters,
relative to that of the torque form; std: likewise of the stated standard deviations. The tables go
to build/forms. `python -m benchmarks.forms simulated`: arms with noisy encoders, least squares, and
the error on another motion without noise.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.real import CASES, LOGS, ROOT, Case, inputs, scored
from thetahat import robots
from thetahat.data.prepare import prepare_batches
from thetahat.data.regressor_form import FORMS
from thetahat.data.samples import Samples, concatenate
from thetahat.files import write_atomically
from thetahat.identification.scores import Validation, validate
from thetahat.pipeline.identification import Identification
from thetahat.pipeline.identify import identify
from thetahat.plant.perturb import perturb

OUT = ROOT / "build" / "forms"
RATE, CUTOFFS = 500.0, (10.0, 20.0, 40.0)  # [Hz] of simulated logs, and of their low-passes
PARTS = 4  # of the training rows, each fitted by itself


@dataclass(frozen=True, eq=False)
class FormResult:
    """What a form gave on one case."""

    form: str
    scores: Validation
    kind: int  # of rows that count: 0 all, 1 in motion
    rows: int  # that were fitted, all joints together
    std: np.ndarray  # (p,) stated, of base parameters
    spread: np.ndarray  # (p,) between parts of the rows
    seconds: float  # to fold and solve

    @property
    def r2(self) -> float:
        """All joints together."""
        sums = self.scores.sums
        return 1.0 - float(sums.left[self.kind].sum() / sums.torque[self.kind].sum())

    @property
    def r2_joints(self) -> list[float]:
        """One by one."""
        return [float(value) for value in self.scores.sums.r2(self.kind)]


def main() -> None:
    """Run the cases with held-out rows, or those whose name holds one of the words given."""
    if sys.argv[1:] == ["simulated"]:
        print(simulated())
        return
    if not LOGS.is_dir():
        print("real logs: skipped, since the shared data folder is not beside the repository")
        return
    words = [word.lower() for word in sys.argv[1:]]
    chosen = [
        case
        for case in CASES
        if case.measure != "relative"
        and (not words or any(word in case.name.lower() for word in words))
    ]
    lines, data = [], []
    for case in chosen:
        results = run_case(case)
        lines.append(table(case, results))
        data.append(as_data(case, results))
        print(lines[-1], flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    write_atomically(OUT / "forms.md", "\n".join(["# Forms of the equation of motion", "", *lines]))
    write_atomically(OUT / "forms.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def run_case(case: Case) -> list[FormResult]:
    """Choose all settings once, then fit and score every form."""
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log, test, settings = inputs(case, Path(scratch))
        outcome = identify(LOGS / case.robot, log, test=test, settings=settings)
        return [_fitted(case, outcome, form) for form in FORMS]


def _fitted(case: Case, outcome: Identification, form: str) -> FormResult:
    data, tuned = outcome.dataset, outcome.tuned
    filtering = replace(tuned.settings, form=form)
    batches = prepare_batches(data.log, data.robot, settings=filtering, span=data.train_rows)
    samples = concatenate(list(map(data.joints.select, batches)), same_log=True)
    robot, began = tuned.robot, time.monotonic()
    info = th.information(robot, samples)
    period = samples.row_period
    statistics = None if tuned.statistics is None else tuned.statistics.at(period)
    estimator = replace(tuned, statistics=statistics).estimator(data.prior_of(robot))
    estimate = th.solve(info, estimator, samples=samples)
    seconds = time.monotonic() - began
    model = replace(outcome.model, identified=robot.with_parameters(estimate), information=info)
    scores, _ = scored(case, replace(outcome, model=model))
    plain = th.LeastSquares(weights="iterated")
    parts = [th.solve(th.information(robot, part), plain).x_base for part in _parts(samples, PARTS)]
    spread = np.std(parts, axis=0, ddof=1)
    std = np.sqrt(np.diag(estimate.covariance))
    rows = int(np.sum(info.rows))
    kind = int(case.measure == "r2_moving")
    return FormResult(form, scores["consistent"], kind, rows, std, spread, seconds)


def _parts(samples: Samples, count: int) -> list[Samples]:
    edges = np.linspace(0, len(samples), count + 1).astype(int)
    return [samples.subset(slice(a, b)) for a, b in itertools.pairwise(edges)]


# -- simulated arms --------------------------------------------------------------------------------


def simulated(noise: float = 5e-4, robots_tried: int = 4) -> str:
    """Return a table of 1 − R² by the low-pass of the motion, for this encoder noise [rad]."""
    nominal = th.load(robots.path("arm4"))
    fitted = nominal.without_drive().with_drive(
        viscous=True, coulomb=True, offset=True, armature=True
    )
    moves = th.design(nominal, duration=10.0, starts=2).trajectory
    others = th.design(nominal, duration=8.0, starts=2, seed=5).trajectory
    errors: dict[tuple[float, str], list[float]] = {}
    for seed in range(robots_tried):
        truth = perturb(nominal, seed=seed)
        real = th.Realism.typical(truth, seed=seed)
        real = replace(real, sensors=replace(real.sensors, encoder_noise=noise))
        plant = th.OwnPlant(truth, realism=real, seed=seed)
        log = th.simulate(plant, moves, rate=RATE, seed=seed).log
        exact = th.simulate(th.OwnPlant(truth), others, rate=RATE)
        test = Samples(
            q=exact.q, dq=exact.dq, ddq=exact.ddq, tau=exact.tau, t=exact.t, period=1.0 / RATE
        )
        for cutoff in CUTOFFS:
            for form in FORMS:
                samples = th.prepare(
                    log, nominal, cutoff=cutoff, torque_cutoff=CUTOFFS[0], form=form
                )
                plain = th.LeastSquares(weights="iterated")
                estimate = th.solve(th.information(fitted, samples), plain)
                score = validate(fitted.with_parameters(estimate), test).r2_total
                errors.setdefault((cutoff, form), []).append(1.0 - (score or 0.0))
    lines = [f"| low-pass | {' | '.join(FORMS)} |", "| --- " * (1 + len(FORMS)) + "|"]
    for cutoff in CUTOFFS:
        means = [np.exp(np.mean(np.log(errors[cutoff, form]))) for form in FORMS]
        lines.append(f"| {cutoff:g} Hz | {' | '.join(f'{mean:.1e}' for mean in means)} |")
    return "\n".join(lines)


# -- tables ----------------------------------------------------------------------------------------


def ratios(results: list[FormResult], name: str) -> list[float]:
    """Return the median ratio of a spread to that of the torque form, over base parameters."""
    first = getattr(results[0], name)
    seen = np.isfinite(first) & (first > 0.0)
    return [float(np.median(getattr(each, name)[seen] / first[seen])) for each in results]


def table(case: Case, results: list[FormResult]) -> str:
    """Markdown: a row per form."""
    names = results[0].scores.names
    heads = ["form", "R²", *names, "rows", "std", "spread", "time [s]"]
    lines = [f"## {case.name}", "", f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    pairs = zip(results, ratios(results, "std"), ratios(results, "spread"), strict=True)
    for each, std, spread in pairs:
        cells = [each.form, f"{each.r2:.4f}", *(f"{value:.4f}" for value in each.r2_joints)]
        cells += [f"{each.rows:,}", f"{std:.2f}", f"{spread:.2f}", f"{each.seconds:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def as_data(case: Case, results: list[FormResult]) -> dict[str, object]:
    """Plain numbers."""
    std, spread = ratios(results, "std"), ratios(results, "spread")
    return {
        "case": case.name,
        "joints": list(results[0].scores.names),
        "forms": [
            {
                "form": each.form,
                "r2": each.r2,
                "r2_joints": each.r2_joints,
                "rms": [float(value) for value in each.scores.rms],
                "rows": each.rows,
                "std": std[k],
                "spread": spread[k],
                "seconds": each.seconds,
            }
            for k, each in enumerate(results)
        ],
    }


if __name__ == "__main__":
    main()
