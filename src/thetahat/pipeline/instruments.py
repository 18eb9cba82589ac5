"""Whether a fit is by instrumental variables: where a reference motion is there, and noise in the
motion biases least squares.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from thetahat.data.samples import Samples
from thetahat.data.samples_log import SamplesLog
from thetahat.engine.protocol import Engine, Fold, Rows
from thetahat.errors import MalformedInput, UsageError
from thetahat.identification.information import Information
from thetahat.identification.uncertainty.hausman import hausman_test
from thetahat.identification.uncertainty.instrument_choice import InstrumentChoice
from thetahat.model.robot import Robot
from thetahat.pipeline.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Instrumented:
    """The rows of a fit with their instruments, and whether they are used."""

    rows: Rows
    fold: Fold
    seen: Information  # view of the fold that is fitted
    decision: InstrumentChoice

    @property
    def used(self) -> bool:
        """Whether the fit is by instrumental variables."""
        return self.decision.used


def instrumented(
    dataset: Dataset,
    engine: Engine,
    rows: Rows,
    fitted: Robot,
    view: Callable[[Information], Information],
) -> Instrumented | None:
    """Fold the rows once more with instruments, and test least squares; None where there is no
    reference motion, or it cannot be used, which is said.
    """
    asked, reference = dataset.settings.instruments, dataset.reference_motion
    given = isinstance(rows.log, SamplesLog) and rows.log.samples.instruments is not None
    if asked is False or (reference is None and not given):
        if asked:
            raise UsageError(
                "instruments are asked for, and there is no reference motion; log the commanded"
                " positions as cmd.<joint>, or give --reference FILE"
            )
        return None
    paired = replace(rows, reference=reference)
    source = "given with the samples" if reference is None else f"from {reference.name}"
    try:
        fold = engine.fold(paired, fitted)
    except MalformedInput as error:
        if asked or dataset.settings.reference is not None:
            raise
        warnings.warn(f"the commanded motion is not used: {error}", stacklevel=2)
        return None

    def samples() -> Iterator[Samples]:
        return engine.samples(paired, fitted, "testing for noise in the motion", every=True)

    seen = view(fold.information)
    test = hausman_test(seen, samples=samples, weights=dataset.settings.weights)
    return Instrumented(paired, fold, seen, InstrumentChoice(test, source, asked))
